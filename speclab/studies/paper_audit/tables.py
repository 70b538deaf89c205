"""Rows of evidence from what other notebooks exported: an INT4 self-draft, distilled drafts and a
specialist (08), the cost of a target pass over several tokens (10).
"""

import io
import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from speclab import score, stats
from speclab.plain import read_json
from speclab.profiles import ROOT
from speclab.prompts import DOMAINS
from speclab.studies.paper_audit.claims import (
    AT_0,
    AT_1,
    not_measured,
    row_of,
)

WAYS = {"hit[1]": AT_0, "alpha": AT_1}  # an exported estimator: the way it is asked
OF_DRAFTS = ("self-draft", "own-outputs", "maths-draft")
SHIPPED = ROOT / "data" / "measured"  # tables of pairs without committed figures
VERIFIED = 5  # tokens of a pass that verifies four drafted ones


def places_of(pair: str, figures: Path) -> list[Path]:
    """Where a pair's exported tables may be: the session's own, then what is committed."""
    return [figures / pair, ROOT / "figures" / pair, SHIPPED / f"{pair}.json"]


def rows(places: Iterable[Path]) -> dict[tuple[str, str], list[dict]]:
    """By claim and way to ask, from the first of `places` (folders, or files of SHIPPED) that has a
    table; where none has it, or it judged too few prompts for a verdict, a row that says so.
    """
    places = list(places)
    found = {}
    distilled = _table(places, "08_distillation")
    judged = 0 if distilled is None else int(distilled["n_prompts"].min())
    for claim in OF_DRAFTS:
        for estimator, way in WAYS.items():
            found[claim, way] = _of_drafts(places, claim, estimator, judged)
    found["one-pass", AT_0] = _one_pass(_table(places, "10_pass-times"))
    return found


def _table(places: list[Path], name: str) -> pd.DataFrame | None:
    for place in places:
        if (place / f"{name}.csv").is_file():
            return pd.read_csv(place / f"{name}.csv")
        if place.suffix == ".json" and place.is_file():
            held = read_json(place, "take the committed one")["tables"]
            if name in held:
                return pd.read_csv(io.StringIO("\n".join(held[name])))
    return None


def _of_drafts(
    places: list[Path], claim: str, estimator: str, judged: int
) -> list[dict]:
    if not judged:
        return [not_measured("notebook 08 has not run for this pair")]
    if judged < stats.FEW_PROMPTS:
        return [not_measured(f"notebook 08 judged {judged} prompts a domain: too few")]
    if claim == "self-draft":
        found = _text_cells(_table(places, "08_self-drafts"), estimator)
    elif claim == "own-outputs":
        found = _distilled(_table(places, "08_distillation"), estimator)
    else:
        found = _specialist(_table(places, "08_specialist"), estimator)
    return found or [not_measured("notebook 08 has no such draft for this pair")]


def _text_cells(table: pd.DataFrame | None, estimator: str) -> list[dict]:
    """Of cells '0.95 [0.94, 0.96]', by domain."""
    if table is None:
        return []
    asked = (table["draft"] == "INT4 self-draft") & (table["estimator"] == estimator)
    found = []
    for line in table[asked].to_dict("records"):
        for domain in DOMAINS:
            numbers = re.findall(r"[\d.]+", str(line.get(domain, "")))
            if numbers:
                found.append(row_of(estimator, domain, *numbers))
    return found


def _distilled(table: pd.DataFrame | None, estimator: str) -> list[dict]:
    """Change by training on the target's text, mean of the domains, of each objective."""
    if table is None:
        return []
    asked = (table["domain"] == score.ALL) & (table["estimator"] == estimator)
    name = f"{estimator}, distilled - before"
    return [
        row_of(name, line.draft, line.difference, line.low, line.high)
        for line in table[asked].itertuples()
    ]


def _specialist(table: pd.DataFrame | None, estimator: str) -> list[dict]:
    """Change in math by training on mathematics instead of every domain."""
    if table is None:
        return []
    asked = (table["domain"] == "math") & (table["estimator"] == estimator)
    name = f"{estimator}, specialist - all domains"
    return [
        row_of(name, line.domain, line.estimate, line.low, line.high)
        for line in table[asked].itertuples()
    ]


def _one_pass(table: pd.DataFrame | None) -> list[dict]:
    """v(5) with the range that its two measured times allow."""
    if table is None or VERIFIED not in set(table["n"]):
        return [not_measured("notebook 10 has not measured a pass over 5 tokens here")]
    at = table.set_index("n")
    one, five = at.loc[1], at.loc[VERIFIED]
    low = five["target_low"] / one["target_high"]
    high = five["target_high"] / one["target_low"]
    return [row_of("v(5)", "this machine", five["v(n)"], low, high)]

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
    distilled = _table(places, TABLES["own-outputs"])
    judged = 0 if distilled is None else int(distilled["n_prompts"].min())
    for claim in TABLES:
        for estimator, way in WAYS.items():
            found[claim, way] = _of_drafts(places, claim, estimator, judged)
    found["one-pass", AT_0] = _one_pass(_table(places, "10/pass-times"))
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
    table = _table(places, TABLES[claim])
    found = []
    if table is not None:
        found = READ[claim](table[table["estimator"] == estimator], estimator)
    return found or [not_measured("notebook 08 has no such draft for this pair")]


def _self_draft(table: pd.DataFrame, estimator: str) -> list[dict]:
    """Of cells '0.95 [0.94, 0.96]', by domain."""
    lines = table[table["draft"] == "INT4 self-draft"].to_dict("records")
    numbers = {
        domain: re.findall(r"[\d.]+", str(line.get(domain, "")))
        for line in lines
        for domain in DOMAINS
    }
    return [
        row_of(estimator, domain, *ends) for domain, ends in numbers.items() if ends
    ]


def _distilled(table: pd.DataFrame, estimator: str) -> list[dict]:
    """Change by training on the target's text, mean of the domains, of each objective."""
    name, rows = f"{estimator}, distilled - before", table[table["domain"] == score.ALL]
    ends = rows[["draft", "difference", "low", "high"]]
    return [row_of(name, *line) for line in ends.itertuples(index=False)]


def _specialist(table: pd.DataFrame, estimator: str) -> list[dict]:
    """Change in math by training on mathematics instead of every domain."""
    name, rows = f"{estimator}, specialist - all domains", table["domain"] == "math"
    ends = table.loc[rows, ["domain", "estimate", "low", "high"]]
    return [row_of(name, *line) for line in ends.itertuples(index=False)]


TABLES = {
    "self-draft": "08/self-drafts",
    "own-outputs": "08/distillation",
    "maths-draft": "08/specialist",
}
READ = {
    "self-draft": _self_draft,
    "own-outputs": _distilled,
    "maths-draft": _specialist,
}


def _one_pass(table: pd.DataFrame | None) -> list[dict]:
    """v(5) with the range that its two measured times allow."""
    if table is None or VERIFIED not in set(table["n"]):
        return [not_measured("notebook 10 has not measured a pass over 5 tokens here")]
    at = table.set_index("n")
    one, five = at.loc[1], at.loc[VERIFIED]
    low = five["target_low"] / one["target_high"]
    high = five["target_high"] / one["target_low"]
    return [row_of("v(5)", "this machine", five["v(n)"], low, high)]

"""The claims that tables of notebooks 08 and 10 answer."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from speclab import stats
from speclab.analysis.claims import AT_0, AT_1, Claim, Evidence, attempt, rows_of
from speclab.cost import LEAST_V
from speclab.plain import read_json
from speclab.profiles import ROOT

READS = [
    "data/measured",
    "08/distillation.csv",
    "08/self-drafts.csv",
    "08/specialist.csv",
    "10/pass-times.csv",
]
PASS_TIMES = "10/pass-times"
SHIPPED = ROOT / READS[0]  # tables of pairs without committed figures
ESTIMATORS = {AT_0: "hit[1]", AT_1: "alpha"}
VERIFIED = 5  # tokens of a pass that verifies four drafted tokens

Tables = Mapping[str, pd.DataFrame]


def tables_of(pair: str, figures: Path, temperature: float = 1.0) -> dict[str, pd.DataFrame]:
    """The tables of READS that a pair has: in `figures`, the session's own folder, else the
    committed ones, else the shipped ones. temperature: of their sampled texts. The claims are about
    T = 1, so rows of another temperature are left out.
    """
    tables = {}
    shipped = SHIPPED / f"{pair}.json"
    if shipped.is_file():
        for name, lines in read_json(shipped, "take the committed one")["tables"].items():
            tables[name] = pd.read_csv(io.StringIO("\n".join(lines)))
    for folder in (ROOT / "figures", figures):
        for name in READS[1:]:
            path = folder / pair / name
            if path.is_file():
                tables[name.removesuffix(".csv")] = pd.read_csv(path)
    if temperature != 1:
        sampled = ESTIMATORS[AT_1]
        for name, table in tables.items():
            if "estimator" in table:
                tables[name] = table[table["estimator"] != sampled]
    return tables


def of_tables(listed: Mapping[str, Claim], tables: Tables) -> Evidence:
    """What the tables show about the claims: the rows that claims.yaml names (`of_drafts`)."""
    evidence = {("one-pass", AT_0): attempt(one_pass, tables)}
    for claim in listed.values():
        for way, estimator in ESTIMATORS.items():
            if claim.table:
                evidence[claim.id, way] = attempt(of_drafts, tables, estimator, claim.table)
    return evidence


def of_drafts(tables: Tables, estimator: str, entry: Mapping[str, Any]) -> pd.DataFrame:
    """Evidence from rows of a table of 08, as the entry `table` of a claim says: the rows of `name`
    that have one of the given values in each column of `where`. ValueError: no such table or rows,
    or 08 used too few prompts for a verdict.
    """
    counts = [table["n_prompts"].min() for table in tables.values() if "n_prompts" in table]
    judged = min(counts, default=stats.FEW_PROMPTS)
    if judged < stats.FEW_PROMPTS:
        raise ValueError(
            f"notebook 08 used {judged:.0f} prompts per domain; a verdict needs {stats.FEW_PROMPTS}"
        )
    wanted = {"estimator": [estimator]} | entry["where"]
    table = tables.get(entry["name"], pd.DataFrame(columns=list(wanted)))
    rows = table[table[list(wanted)].isin(wanted).all(axis=1)]
    if rows.empty:
        raise ValueError("notebook 08 has no such draft for this pair at this temperature")
    rows = rows.rename(columns={entry.get("estimate", "estimate"): "estimate"})
    return rows_of(estimator + entry.get("says", ""), rows, entry.get("row", "domain"))


def one_pass(tables: Tables) -> pd.DataFrame:
    """v(5) with the range that its two measured times allow. ValueError: 10 has not measured it, or
    its timing is unreliable (a longer pass is cheaper).
    """
    table = tables.get(PASS_TIMES, pd.DataFrame({"n": []})).set_index("n")
    if VERIFIED not in table.index:
        raise ValueError("notebook 10 has not measured a pass over 5 tokens on this machine")
    cheapest = table["v(n)"].min()
    if cheapest < LEAST_V:
        raise ValueError(
            f"timing unreliable: a pass over several tokens was measured at {cheapest:.2f} of a "
            "pass over one, which is impossible; rerun notebook 10 on an idle machine"
        )
    one, five = table.loc[1], table.loc[VERIFIED]
    numbers = {
        "row": "this machine",
        "estimate": five["v(n)"],
        "low": five["target_low"] / one["target_high"],
        "high": five["target_high"] / one["target_low"],
    }
    return rows_of(f"v({VERIFIED})", pd.DataFrame([numbers]), "row")

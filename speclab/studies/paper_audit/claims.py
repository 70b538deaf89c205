"""The claims of the paper and the article as facts, and how a verdict follows from intervals.

A claim (data/paper/claims.yaml) is a number and a region: it holds if the number lies in it. An
interval inside the region holds, one outside does not, one across its edge cannot tell. Several
rows (domains, differences) must all hold; one that fails is enough. A verdict is that of the right
estimator; a claim that holds by the published one alone is said to hold only as published.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log10
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from speclab.analysis.published import published
from speclab.profiles import ROOT
from speclab.prompts import DOMAINS

CLAIMS = ROOT / "data" / "paper" / "claims.yaml"
HOLDS, FAILS, UNKNOWN, NOT_TESTED = (
    "holds here",
    "does not hold here",
    "cannot be told here",
    "not tested here",
)
AS_PUBLISHED, NO_CONDITION = "holds only as published", "not a condition of anything"
# the note of a number that no sampling made (arithmetic, a log, a worked case): what follows holds
# not only here
EXACT = "exact"
VERDICTS = (
    HOLDS,
    "holds",
    AS_PUBLISHED,
    UNKNOWN,
    FAILS,
    "does not hold",
    NO_CONDITION,
    NOT_TESTED,
)
PUBLISHED, RIGHT = "as published", "right estimator"
COLUMNS = [
    "claim",
    "view",
    "estimator",
    "row",
    "estimate",
    "low",
    "high",
    "least",
    "most",
    "note",
]


@dataclass(frozen=True)
class Claim:
    """A claim as a fact: where it stands, its number, and the region (least, most, both excluded)
    of a number for which it holds.

    `fact`: numbers read off a log, code or example that decide it; no run is asked.
    """

    id: str
    source: str
    where: str
    claim: str
    number: str
    region: tuple | Mapping[str, tuple]
    decides: str = "interval"
    fact: Mapping | None = None

    def bounds(self, row: str) -> tuple[float, float]:
        """The region of one row (a domain) as numbers; none named for it: all is allowed."""
        of_row = isinstance(self.region, Mapping)
        least, most = self.region.get(row, (None, None)) if of_row else self.region
        return (
            -np.inf if least is None else float(least),
            np.inf if most is None else float(most),
        )


def claims(path: Path = CLAIMS) -> dict[str, Claim]:
    """The claims by id, in the file's order. ValueError: an id twice, an unknown way to decide."""
    found = [
        Claim(**entry)
        for entry in yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    ]
    odd = [
        claim.id for claim in found if claim.decides not in ("interval", "necessity")
    ]
    if odd or len({claim.id for claim in found}) < len(found):
        raise ValueError(
            f"{path}: claims {odd} have an unknown `decides` (interval, necessity), or an id "
            "occurs twice"
        )
    return {claim.id: claim for claim in found}


def row_of(
    estimator: str, row: str, estimate: float, low: float, high: float, note: str = ""
) -> dict:
    """One measured number of a claim: which estimator, in which domain (or difference, or run), the
    estimate and its interval.
    """
    return {
        "estimator": estimator,
        "row": row,
        "estimate": float(estimate),
        "low": float(low),
        "high": float(high),
        "note": note,
    }


def exact(estimator: str, row: str, value: float) -> dict:
    """A number that no sampling made: its interval is a point."""
    return row_of(estimator, row, value, value, value, EXACT)


# ---- verdicts ------------------------------------------------------------------------------------


def judge_interval(low: float, high: float, least: float, most: float) -> str:
    """HOLDS if [low, high] lies inside the region, FAILS if outside, else (an edge is crossed, or
    no interval) UNKNOWN.
    """
    if low > least and high < most:
        return HOLDS
    return FAILS if high <= least or low >= most else UNKNOWN


def judge_rows(rows: pd.DataFrame) -> str:
    """Of one view: every row must hold, one that fails decides, no rows is NOT_TESTED."""
    intervals = rows[["low", "high", "least", "most"]].to_numpy(np.float64)
    found = {judge_interval(*interval) for interval in intervals}
    for decisive in (FAILS, UNKNOWN, HOLDS):
        if decisive in found:
            return decisive
    return NOT_TESTED


def verdict(claim: Claim, rows: pd.DataFrame) -> str:
    """The verdict on a claim from its rows (COLUMNS): that of the right estimator, or of the
    published one where there is no other.
    """
    as_published = judge_rows(rows[rows["view"] == PUBLISHED])
    right = judge_rows(rows[rows["view"] == RIGHT])
    if claim.decides == "necessity":
        return NO_CONDITION if right == FAILS else right
    if as_published == HOLDS and right == FAILS:
        return AS_PUBLISHED
    found = as_published if right == NOT_TESTED else right
    not_sampled = len(rows) and (rows["note"] == EXACT).all()
    return found.removesuffix(" here") if not_sampled else found


def cell(rows: pd.DataFrame, named: bool = False) -> str:
    """Rows as one text: least and greatest estimate, and the hull of the intervals: '0.21 to 0.35
    [0.19, 0.37]'. One part an estimator, named where there are several (or `named`); where nothing
    was measured, the reason; '' for no rows.
    """
    known = rows.dropna(subset="estimate")
    if known.empty:
        return "; ".join(dict.fromkeys(rows["note"]))
    named = named or known["estimator"].nunique() > 1
    parts = []
    for name, part in known.groupby("estimator", sort=False):
        parts.append(f"{name}: {_span(part)}" if named else _span(part))
    return "; ".join(parts)


def _span(rows: pd.DataFrame) -> str:
    numbers = rows[["estimate", "low", "high"]].to_numpy(np.float64)
    digits = _digits(numbers[np.isfinite(numbers)])
    ends = [
        f"{value:.{digits}f}" for value in (numbers[:, 0].min(), numbers[:, 0].max())
    ]
    text = " to ".join(dict.fromkeys(ends))
    if rows["low"].isna().all() or (rows["note"] == EXACT).all():
        return text
    low, high = np.nanmin(numbers[:, 1]), np.nanmax(numbers[:, 2])
    return f"{text} [{low:.{digits}f}, {high:.{digits}f}]"


def _digits(values: np.ndarray) -> int:
    """Decimals for two figures of the largest number; none where all are whole."""
    largest = np.abs(values).max()
    if (values % 1 == 0).all():
        return 0
    return 1 if largest >= 10 else max(2, 1 + ceil(-log10(largest)))


def table(
    found: Mapping[str, Claim],
    evidence: pd.DataFrame,
    records: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """One row a claim: id, source, where, claim, number, as_published, estimator, right_estimator,
    [authors_records], verdict.

    `evidence` has COLUMNS; `records` (claim, row, estimate, …) is the same of the authors' records,
    for show, their estimators named: no verdict rests on them.
    """
    lines = []
    for claim in found.values():
        rows = evidence[evidence["claim"] == claim.id]
        right = rows[rows["view"] == RIGHT]
        line = {
            name: getattr(claim, name)
            for name in ("id", "source", "where", "claim", "number")
        }
        line["as_published"] = cell(rows[rows["view"] == PUBLISHED])
        line["estimator"] = ", ".join(dict.fromkeys(right["estimator"]))
        line["right_estimator"] = cell(right)
        if records is not None:
            line["authors_records"] = cell(
                records[records["claim"] == claim.id], named=True
            )
        lines.append(line | {"verdict": verdict(claim, rows)})
    return pd.DataFrame(lines)


def by_verdict(table: pd.DataFrame) -> dict[str, list[str]]:
    """The ids of the claims under each of VERDICTS."""
    return {name: list(table.loc[table["verdict"] == name, "id"]) for name in VERDICTS}


def not_in_picture(table: pd.DataFrame) -> pd.DataFrame:
    """The claims that arithmetic, a log or a worked case decides, with few columns."""
    rows = table[
        table["verdict"].isin(["holds", "does not hold", NO_CONDITION, NOT_TESTED])
    ]
    columns = ["id", "claim", "as_published", "right_estimator", "verdict"]
    return rows[columns].reset_index(drop=True)


def verdicts_said(groups: Mapping[str, list[str]]) -> str:
    """One line a verdict that a claim has."""
    return "\n".join(
        f"* **{name}** ({len(ids)}): {', '.join(ids)}"
        for name, ids in groups.items()
        if ids
    )


def open_said(evidence: pd.DataFrame) -> str:
    """One line a claim that could not be measured, with the reason."""
    rows = evidence[evidence["estimate"].isna()]
    if rows.empty:
        return "Every claim that was asked has an answer."
    return "\n".join(
        f"* {row.claim}, {row.view}: {row.note}" for row in rows.itertuples()
    )


def printed() -> pd.DataFrame:
    """The paper's own numbers behind its claims: claim, row, estimate.

    From `published.published`; differences of what is printed.
    """
    first = published("I").pivot(index="domain", columns="quantity", values="published")
    alpha = first["alpha_mean"].drop("all")
    depth = published("IV").pivot(index="domain", columns="depth", values="published")
    late = published("V").pivot(index="depth", columns="bin", values="published")
    rho = published("VI").set_index("domain")["published"]
    found = {
        "level": alpha,
        "gap": alpha[["chat"]] - alpha["math"],
        "order": -alpha.sort_values(ascending=False).diff().dropna(),
        "length": published("II").set_index("domain")["published"],
        "depth": depth[3] - depth[1],
        "position": (late[1] - late[0]).drop(2),
        "entropy-sign": rho,
        "entropy-weak": rho,
        "paradox": alpha["chat"] - alpha.drop("chat"),
    }
    return pd.concat(found, names=["claim", "row"]).rename("estimate").reset_index()


def self_draft(*tables: Path) -> tuple[dict, ...]:
    """Rows of an INT4 copy of the target as its own draft, from notebook 08's table of text cells
    ('0.95 [0.94, 0.96]'), the first of `tables` that is there: `row_of` fields. () if there is no
    such table, or none of INT4 in it.
    """
    there = [table for table in tables if table.is_file()]
    if not there:
        return ()
    frame, rows = pd.read_csv(there[0]), []
    for line in frame[frame["draft"] == "INT4 self-draft"].to_dict("records"):
        for domain in DOMAINS:
            numbers = re.findall(r"[\d.]+", str(line.get(domain, "")))
            if numbers:
                rows.append(row_of(line["estimator"], domain, *numbers))
    return tuple(rows)

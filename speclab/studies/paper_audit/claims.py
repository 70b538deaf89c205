"""The claims of the paper and the article as facts, and how a verdict follows from intervals.

A claim (data/paper/claims.yaml) is a number and a region: it holds if the number lies in it. An
interval inside the region holds, one outside does not, one across its edge cannot tell. Several
rows (domains, differences) must all hold; one that fails is enough. A verdict is that of the right
estimator; a claim that holds by the published one alone is said to hold only as published.
"""

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
VERDICTS = (HOLDS, "holds", AS_PUBLISHED, UNKNOWN, FAILS, "does not hold", NO_CONDITION, NOT_TESTED)
PUBLISHED, RIGHT = "as published", "right estimator"
COLUMNS = ["claim", "view", "estimator", "row", "estimate", "low", "high", "least", "most", "note"]


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
        """The region of one row (a domain) as numbers; nothing named for it: everything is allowed."""
        region = (
            self.region.get(row, (None, None)) if isinstance(self.region, Mapping) else self.region
        )
        return tuple(
            side if value is None else float(value)
            for value, side in zip(region, (-np.inf, np.inf), strict=True)
        )


def claims(path: Path = CLAIMS) -> dict[str, Claim]:
    """The claims by id, in the file's order. ValueError: an id twice, an unknown way to decide."""
    found = [Claim(**entry) for entry in yaml.safe_load(Path(path).read_text(encoding="utf-8"))]
    odd = [claim.id for claim in found if claim.decides not in ("interval", "necessity")]
    if odd or len({claim.id for claim in found}) < len(found):
        raise ValueError(
            f"{path}: claims {odd} have an unknown `decides` (interval, necessity), or an id occurs twice"
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


def judge(low: float, high: float, least: float, most: float) -> str:
    """HOLDS if [low, high] lies inside the region, FAILS if outside, else (an edge is crossed, or
    no interval) UNKNOWN.
    """
    if low > least and high < most:
        return HOLDS
    return FAILS if high <= least or low >= most else UNKNOWN


def judge_rows(rows: pd.DataFrame) -> str:
    """Of one view: every row must hold, one that fails decides, no rows is NOT_TESTED."""
    found = [judge(*row) for row in rows[["low", "high", "least", "most"]].to_numpy(np.float64)]
    return (
        NOT_TESTED
        if not found
        else FAILS
        if FAILS in found
        else HOLDS
        if set(found) == {HOLDS}
        else UNKNOWN
    )


def verdict(claim: Claim, rows: pd.DataFrame) -> str:
    """The verdict on a claim from its rows (COLUMNS): that of the right estimator, or of the
    published one where there is no other.
    """
    published, right = (judge_rows(rows[rows["view"] == view]) for view in (PUBLISHED, RIGHT))
    if claim.decides == "necessity":
        return NO_CONDITION if right == FAILS else right
    if (published, right) == (HOLDS, FAILS):
        return AS_PUBLISHED
    found = published if right == NOT_TESTED else right
    return found.removesuffix(" here") if len(rows) and (rows["note"] == EXACT).all() else found


def cell(rows: pd.DataFrame, named: bool = False) -> str:
    """Rows as one text: least and greatest estimate, and the hull of the intervals: '0.21 to 0.35
    [0.19, 0.37]'. One part an estimator, named where there are several (or `named`); where nothing
    was measured, the reason; '' for no rows.
    """
    known = rows.dropna(subset="estimate")
    if known.empty:
        return "; ".join(dict.fromkeys(rows["note"]))
    parts = {name: _span(part) for name, part in known.groupby("estimator", sort=False)}
    return (
        "; ".join(parts.values())
        if len(parts) == 1 and not named
        else "; ".join(f"{name}: {text}" for name, text in parts.items())
    )


def _span(rows: pd.DataFrame) -> str:
    values = rows[["estimate", "low", "high"]].to_numpy(np.float64)
    largest = np.nanmax(np.abs(values))
    digits = (
        max(1, 2 + max(0, ceil(-log10(largest)) - 1) - (largest >= 10)) if largest else 1
    )  # two figures of the largest number
    digits = 0 if (values[np.isfinite(values)] % 1 == 0).all() else digits
    text = " to ".join(
        dict.fromkeys(f"{value:.{digits}f}" for value in (values[:, 0].min(), values[:, 0].max()))
    )
    if rows["low"].isna().all() or (rows["note"] == EXACT).all():
        return text
    return f"{text} [{np.nanmin(values[:, 1]):.{digits}f}, {np.nanmax(values[:, 2]):.{digits}f}]"


def table(
    found: Mapping[str, Claim], evidence: pd.DataFrame, records: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row a claim: id, source, where, claim, number, as_published, estimator, right_estimator,
    [authors_records], verdict.

    `evidence` has COLUMNS; `records` (claim, row, estimate, …) is the same of the authors' records,
    for show, their estimators named: no verdict rests on them.
    """
    lines = []
    for claim in found.values():
        rows = evidence[evidence["claim"] == claim.id]
        views = {view: rows[rows["view"] == view] for view in (PUBLISHED, RIGHT)}
        line = {
            "id": claim.id,
            "source": claim.source,
            "where": claim.where,
            "claim": claim.claim,
            "number": claim.number,
            "as_published": cell(views[PUBLISHED]),
            "estimator": ", ".join(dict.fromkeys(views[RIGHT]["estimator"])),
            "right_estimator": cell(views[RIGHT]),
        }
        if records is not None:
            line["authors_records"] = cell(records[records["claim"] == claim.id], named=True)
        lines.append(line | {"verdict": verdict(claim, rows)})
    return pd.DataFrame(lines)


def printed() -> pd.DataFrame:
    """The paper's own numbers behind its claims: claim, row, estimate.

    From `paper.published`; differences of what is printed.
    """
    alpha, length = (published(t).query(f"quantity == '{q}' and domain != 'all'").set_index("domain")["published"]
                     for t, q in (("I", "alpha_mean"), ("II", "expected_accepted_length")))  # fmt: skip
    depth = published("IV").pivot(index="domain", columns="depth", values="published")
    late = published("V").pivot(index="depth", columns="bin", values="published")
    steps = -alpha.sort_values(ascending=False).diff().dropna()
    rho = published("VI").set_index("domain")["published"]
    found = {
        "level": alpha, "gap": alpha[["chat"]] - alpha["math"], "order": steps, "length": length, "depth": depth[3] - depth[1],
        "position": (late[1] - late[0]).drop(2), "entropy-sign": rho, "entropy-weak": rho, "paradox": alpha["chat"] - alpha.drop("chat"),
    }  # fmt: skip
    return pd.concat(found, names=["claim", "row"]).rename("estimate").reset_index()


def self_draft(table: Path | str) -> tuple[dict, ...]:
    """Rows of an INT4 copy of the target as its own draft, from notebook 08's table of text cells
    ('0.95 [0.94, 0.96]'): estimator, row (domain), estimate, low, high. () if there is no such
    table, or none of INT4 in it.
    """
    if not Path(table).is_file():
        return ()
    frame = pd.read_csv(table)
    frame, rows = frame[frame["draft"] == "INT4 self-draft"], []
    for line in frame.to_dict("records"):
        for domain in (d for d in DOMAINS if d in line):
            numbers = map(float, str(line[domain]).translate(str.maketrans("[],", "   ")).split())
            rows.append(
                {"estimator": line["estimator"], "row": domain}
                | dict(zip(("estimate", "low", "high"), numbers, strict=True))
            )
    return tuple(rows)

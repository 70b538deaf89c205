"""The claims of the paper and the article as facts, and how a verdict follows from intervals.

A claim (data/paper/claims.yaml) is a number and a region: it holds if the number lies in it. The
rule for a claim of several rows (domains, differences) is that of intersection and union: it holds
if *every* row's 95 % interval lies in its region, which needs no correction (Berger 1982, Multi-
parameter hypothesis testing and acceptance sampling); it does not hold if *one* row's interval,
widened for so many rows (Bonferroni), lies outside. Else it cannot be told. A claim of equality
("weak", "near", "the same") has a region of two edges, the margin, which is named beforehand: an
interval that merely reaches 0 shows no equality. Each verdict is of one pair, one temperature and
one estimator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import yaml
from scipy.special import ndtri

from speclab import stats
from speclab.analysis.published import published
from speclab.profiles import ROOT

CLAIMS = ROOT / "data" / "paper" / "claims.yaml"
HOLDS = "holds here"
FAILS = "does not hold here"
UNKNOWN = "cannot be told here"
TURNS = "depends on c"
TOO_FEW = "too few prompts here"
NOT_TESTED = "not tested here"
NO_CONDITION = "not a condition of anything"
DEFECT = "defect"
SIGNS = {  # of a table of many verdicts
    HOLDS: "✓",
    FAILS: "✗",
    NO_CONDITION: "✗",
    UNKNOWN: "?",
    TURNS: "c",
    TOO_FEW: "few",
    NOT_TESTED: "–",
}
# how a number was asked for: by the paper's procedure (T = 0), or by what is exact at a temperature
PUBLISHED = "as published"
AT_0 = "T = 0"
AT_1 = "T = 1"
SOURCES = "sources"  # in place of a pair: arithmetic, a log, code or an example decides
KEYS = ["claim", "pair", "asked"]
NUMBER = ["estimator", "row", "estimate", "low", "high", "note"]
COLUMNS = [*KEYS, "c", "slope", *NUMBER, "least", "most"]
LEVEL = 0.05  # of every interval and verdict


@dataclass(frozen=True)
class Claim:
    """A claim as a fact: where it stands, its number, and the region (least, most, both excluded)
    of a number for which it holds; a mapping gives each row its own.

    about: "pair", or "sources" where no run is asked. decides: "interval", "necessity" (the number
    is said to be a condition of something), "cost" (a verdict for every c), or "defect" (nothing is
    claimed: what is wrong in a procedure, and what it costs). margin: why these edges. published,
    exact: how runs are asked (`measures.evaluate`). fact: numbers read off a log, code or an
    example. untested: why nothing here answers it.
    """

    id: str
    source: str
    where: str
    claim: str
    number: str
    region: tuple | Mapping[str, tuple] = (None, None)
    about: str = "pair"
    decides: str = "interval"
    margin: str = ""
    published: Sequence[Mapping] = ()
    exact: Sequence[Mapping] = ()
    fact: Mapping | None = None
    untested: str = ""

    def bounds(self, row: str) -> tuple[float, float]:
        """The region of one row (a domain) as numbers; none named for it: all is allowed."""
        of_row = isinstance(self.region, Mapping)
        least, most = self.region.get(row, (None, None)) if of_row else self.region
        least = -np.inf if least is None else least
        most = np.inf if most is None else most
        return least, most

    def region_said(self) -> str:
        """The region in words: 'above 0', '0.4 to 0.6', 'chat above 1, math below 1'."""
        if isinstance(self.region, Mapping):
            parts = [f"{row} {_edges(*edges)}" for row, edges in self.region.items()]
            return ", ".join(parts)
        return _edges(*self.region)


def _edges(least: float | None, most: float | None) -> str:
    if least is None:
        return "" if most is None else f"below {most:g}"
    if most is None:
        return f"above {least:g}"
    return f"{least:g} to {most:g}"


def claims() -> dict[str, Claim]:
    """The claims by id, in the file's order."""
    text = CLAIMS.read_text(encoding="utf-8")
    entries = yaml.safe_load(text)
    return {entry["id"]: Claim(**entry) for entry in entries}


# ---- numbers -------------------------------------------------------------------------------------


def row_of(
    estimator: str, row: str, estimate: float, low: float, high: float, note: str = ""
) -> dict:
    """One measured number of a claim: which estimator, in which domain (or difference, or run), the
    estimate and its interval.
    """
    numbers = (float(number) for number in (estimate, low, high))
    return dict(zip(NUMBER, (estimator, row, *numbers, note), strict=True))


def rows_of(estimator: str, table: pd.DataFrame, row: str = "domain") -> list[dict]:
    """`row_of` each line of a table: its column `row`, estimate, low, high and, if there, note."""
    named = table.rename(columns={row: "row"}).assign(estimator=estimator)
    named = named.reindex(columns=NUMBER, fill_value="")
    return named.to_dict("records")


def exact(estimator: str, row: str, value: float) -> dict:
    """A number that no sampling made: its interval is a point."""
    return row_of(estimator, row, value, value, value)


def not_measured(reason: str) -> dict:
    """A number that could not be had, and why."""
    return row_of("", "", np.nan, np.nan, np.nan, reason)


def in_frame(
    listed: Mapping[str, Claim],
    pair: str,
    asked: Mapping[tuple[str, str], Callable[[], list[dict]]],
) -> pd.DataFrame:
    """What the functions (by claim and way to ask) answer, as one frame: COLUMNS, in the order of
    `listed`. One that raises ValueError cannot answer: its row is empty, and its note the reason.
    """
    rows = []
    in_order = (key for name in listed for key in asked if key[0] == name)
    for claim, way in in_order:
        try:
            found = asked[claim, way]()
        except ValueError as error:
            found = [not_measured(str(error))]
        for row in found:
            least, most = listed[claim].bounds(row["row"])
            head = {"claim": claim, "pair": pair, "asked": way}
            rows.append(head | row | {"least": least, "most": most})
    return pd.DataFrame(rows, columns=COLUMNS)


# ---- verdicts ------------------------------------------------------------------------------------


def widened(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Both ends of the intervals at level 0.05 / rows: each half is longer by the ratio of the
    normal quantiles (Bonferroni); of one row, the interval itself.
    """
    longer = ndtri(LEVEL / len(rows) / 2) / ndtri(LEVEL / 2)
    estimate = rows["estimate"]
    low = estimate - longer * (estimate - rows["low"])
    high = estimate + longer * (rows["high"] - estimate)
    return low, high


def room(rows: pd.DataFrame) -> float:
    """How far every edge could move in before the claim no longer holds; 0 or less: it does not."""
    above = rows["low"] - rows["least"]
    below = rows["most"] - rows["high"]
    inside = np.minimum(above, below)
    return float(inside.min(skipna=False))


def excess(rows: pd.DataFrame) -> float:
    """How far every edge could move out and the claim still does not hold; below 0: not shown."""
    low, high = widened(rows)
    outside = np.maximum(rows["least"] - high, low - rows["most"])
    return float(outside.max())


def judge(rows: pd.DataFrame) -> str:
    """HOLDS, FAILS or UNKNOWN from rows with estimate, low, high and their region least, most; an
    edge itself lies outside. A row without interval cannot hold; no rows are NOT_TESTED.
    """
    if rows.empty:
        return NOT_TESTED
    if room(rows) > 0:
        return HOLDS
    if excess(rows) >= 0:
        return FAILS
    return UNKNOWN


def verdict(claim: Claim, rows: pd.DataFrame, prompts: int | None = None) -> str:
    """The verdict on a claim from the rows (COLUMNS) of one pair and one way to ask.

    prompts: of the pair's smallest domain. Of fewer than 20 nothing is said (`stats.FEW_PROMPTS`:
    intervals of so few cover less than they say). A claim about cost gets the verdict that it has
    at every c and slope, TURNS where that changes.
    """
    known = rows.dropna(subset="estimate")
    if known.empty:
        return NOT_TESTED
    if claim.decides == "defect":
        return DEFECT
    if claim.decides == "cost":
        found = set(by_cost(known)["verdict"])
        found = found.pop() if len(found) == 1 else TURNS
    else:
        found = judge(rows)
    if claim.decides == "necessity" and found == FAILS:
        return NO_CONDITION
    if claim.about == SOURCES:
        return found.removesuffix(" here")
    if prompts is not None and prompts < stats.FEW_PROMPTS:
        return TOO_FEW
    return found


def by_cost(rows: pd.DataFrame) -> pd.DataFrame:
    """The verdict at each (slope, c): slope, c, verdict, by slope and rising c."""
    groups = rows.groupby(["slope", "c"], sort=True)
    found = [(*cost, judge(of_cost)) for cost, of_cost in groups]
    return pd.DataFrame(found, columns=["slope", "c", "verdict"])


def at_every_slope(rows: pd.DataFrame, verdict: str) -> str:
    """The c at which a claim about cost has this verdict for every slope: '0.05, 0.1'."""
    found = by_cost(rows).groupby("c")["verdict"].agg(set)
    always = [c for c, verdicts in found.items() if verdicts == {verdict}]
    return ", ".join(f"{c:g}" for c in always)


# ---- tables --------------------------------------------------------------------------------------


def cell(rows: pd.DataFrame) -> str:
    """Rows as one text: least and greatest estimate, and the hull of the intervals: '0.21 to 0.35
    [0.19, 0.37]'. Several estimators: one part each, named; where nothing was measured, the reason;
    '' for no rows.
    """
    known = rows.dropna(subset="estimate")
    if known.empty:
        return "; ".join(dict.fromkeys(rows["note"]))
    parts = []
    for name, part in known.groupby("estimator", sort=False):
        ends = part["estimate"].agg(["min", "max"]).map(_number)
        text = " to ".join(ends.unique())
        if (part["low"] < part["high"]).any():
            low = _number(part["low"].min())
            high = _number(part["high"].max())
            text += f" [{low}, {high}]"
        parts.append(text if known["estimator"].nunique() == 1 else f"{name} {text}")
    return "; ".join(parts)


def _number(value: float) -> str:
    if value == round(value):
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}"


def verdict_table(
    listed: Mapping[str, Claim],
    evidence: pd.DataFrame,
    prompts: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """One row for each claim, pair and way to ask: KEYS, source, where, said, estimator, region,
    measured, verdict; where it turns: `room` and `excess`, of a claim about cost the c at which it
    `holds_at` and `fails_at` for every slope.

    evidence: COLUMNS. prompts: of each pair's smallest domain.
    """
    lines = []
    for keys, rows in evidence.groupby(KEYS, sort=False):
        name, pair, _ = keys
        claim = listed[name]
        known = rows.dropna(subset="estimate")
        by_c = claim.decides == "cost" and not known.empty
        lines.append(
            dict(zip(KEYS, keys, strict=True))
            | {
                "source": claim.source,
                "where": claim.where,
                "said": claim.claim,
                "estimator": ", ".join(dict.fromkeys(rows["estimator"])),
                "region": claim.region_said(),
                "measured": cell(rows),
                "verdict": verdict(claim, rows, (prompts or {}).get(pair)),
                "room": np.nan if by_c else room(rows),
                "excess": np.nan if by_c else excess(rows),
                "holds_at": at_every_slope(known, HOLDS) if by_c else "",
                "fails_at": at_every_slope(known, FAILS) if by_c else "",
            }
        )
    return pd.DataFrame(lines)


def signs_beside(verdicts: pd.DataFrame) -> pd.DataFrame:
    """The verdicts bound to a pair side by side, as SIGNS: claim, said, and a column for each pair
    and way to ask; '' where nothing is asked.
    """
    bound = verdicts[verdicts["asked"].isin([PUBLISHED, AT_0, AT_1])]
    column = bound["pair"] + ", " + bound["asked"]
    sign = bound["verdict"].map(SIGNS)
    bound = bound.assign(column=column, sign=sign)
    cells = bound.set_index(["claim", "said", "column"])["sign"]
    wide = cells.unstack(sort=False).rename_axis(columns=None)
    return wide.fillna("").reset_index()


def tally(verdicts: pd.Series) -> str:
    """How many claims hold and how many do not, as a clause."""
    held, fell = ((verdicts == verdict).sum() for verdict in (HOLDS, FAILS))
    if not held + fell:
        return "none can be decided"
    verbs = "holds" if held == 1 else "hold", "does" if fell == 1 else "do"
    return f"{held} {verbs[0]} and {fell} {verbs[1]} not"


def printed() -> pd.DataFrame:
    """The paper's own numbers behind its claims: claim, row, estimate.

    From `published.published`; differences of what is printed.
    """
    alpha = published("I").query("quantity == 'alpha_mean' and domain != 'all'")
    alpha = alpha.set_index("domain")["published"]
    depth = published("IV").pivot(index="domain", columns="depth", values="published")
    late = published("V").pivot(index="depth", columns="bin", values="published")
    late = late[1] - late[0]
    rho = published("VI").set_index("domain")["published"]
    found = {
        "level": alpha,
        "gap": pd.Series({"chat - math": alpha["chat"] - alpha["math"]}),
        "order": -alpha.sort_values(ascending=False).diff().dropna(),
        "length": published("II").set_index("domain")["published"],
        "depth": depth[3] - depth[1],
        "position": late.drop(2),
        "depth-2": late[[2]],
        "entropy-sign": rho,
        "entropy-weak": rho,
        "paradox": alpha["chat"] - alpha.drop("chat"),
    }
    numbers = pd.concat(found, names=["claim", "row"])
    return numbers.rename("estimate").reset_index()

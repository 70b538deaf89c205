"""The claims of the paper and the article as facts, and how a verdict follows from intervals.

A claim (data/paper/claims.yaml) is a number and a region: it holds if the number lies in it. The
rule for a claim of several rows (domains, differences) is that of intersection and union: it holds
if *every* row's 95 % interval lies in its region, which needs no correction (Berger 1982, Multi-
parameter hypothesis testing and acceptance sampling); it does not hold if *one* row's interval,
widened for so many rows (Bonferroni), lies outside. Else it cannot be told. A claim of equality
("weak", "near", "the same") has a region of two edges, the margin, which is named beforehand: an
interval that merely reaches 0 shows no equality.

Each verdict is of one pair, one temperature and one estimator, and says at which edge (of a cost:
at which c) it turns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, log10
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from scipy.special import ndtri

from speclab import stats
from speclab.analysis.published import published
from speclab.profiles import ROOT

CLAIMS = ROOT / "data" / "paper" / "claims.yaml"
HOLDS, FAILS, UNKNOWN = "holds here", "does not hold here", "cannot be told here"
TURNS, TOO_FEW, NOT_TESTED = "depends on c", "too few prompts here", "not tested here"
NO_CONDITION, DEFECT = "not a condition of anything", "defect"
VERDICTS = (
    HOLDS,
    TURNS,
    UNKNOWN,
    FAILS,
    TOO_FEW,
    NOT_TESTED,
    "holds",
    "does not hold",
    NO_CONDITION,
    DEFECT,
)
# how a number was asked for: by the paper's procedure (T = 0), or by what is exact at a temperature
PUBLISHED, AT_0, AT_1 = "as published", "T = 0", "T = 1"
ASKED = (PUBLISHED, AT_0, AT_1)
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
    claimed: what is wrong in a procedure, and what it costs). margin: why these edges. fact:
    numbers read off a log, code or an example. untested: why nothing here answers it.
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
    fact: Mapping | None = None
    untested: str = ""

    def bounds(self, row: str) -> tuple[float, float]:
        """The region of one row (a domain) as numbers; none named for it: all is allowed."""
        of_row = isinstance(self.region, Mapping)
        least, most = self.region.get(row, (None, None)) if of_row else self.region
        return (
            -np.inf if least is None else float(least),
            np.inf if most is None else float(most),
        )

    def region_said(self) -> str:
        """The region in words: 'above 0', '0.4 to 0.6', 'chat above 1, math below 1'."""
        if isinstance(self.region, Mapping):
            parts = [f"{row} {_edges(*edges)}" for row, edges in self.region.items()]
            return ", ".join(parts)
        return _edges(*self.region)


def _edges(least: float | None, most: float | None) -> str:
    if least is None and most is None:
        return ""
    if least is None:
        return f"below {most:g}"
    return f"above {least:g}" if most is None else f"{least:g} to {most:g}"


def claims(path: Path = CLAIMS) -> dict[str, Claim]:
    """The claims by id, in the file's order."""
    entries = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    return {entry["id"]: Claim(**entry) for entry in entries}


def row_of(
    estimator: str, row: str, estimate: float, low: float, high: float, note: str = ""
) -> dict:
    """One measured number of a claim: which estimator, in which domain (or difference, or run), the
    estimate and its interval.
    """
    numbers = (float(number) for number in (estimate, low, high))
    return dict(zip(NUMBER, (estimator, row, *numbers, note), strict=True))


def exact(estimator: str, row: str, value: float) -> dict:
    """A number that no sampling made: its interval is a point."""
    return row_of(estimator, row, value, value, value)


def not_measured(reason: str) -> dict:
    """A number that could not be had, and why."""
    return row_of("", "", np.nan, np.nan, np.nan, reason)


# ---- verdicts ------------------------------------------------------------------------------------


IN_REGION = ["estimate", "low", "high", "least", "most"]


def _ends(rows: pd.DataFrame) -> np.ndarray:
    """IN_REGION [5, rows]."""
    return rows[IN_REGION].to_numpy(np.float64).T


def widened(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the intervals at level 0.05 / rows: each half is longer by the ratio of the
    normal quantiles (Bonferroni); of one row, the interval itself.
    """
    estimate, low, high, *_ = _ends(rows)
    longer = ndtri(LEVEL / len(rows) / 2) / ndtri(LEVEL / 2)
    return estimate - longer * (estimate - low), estimate + longer * (high - estimate)


def room(rows: pd.DataFrame) -> float:
    """How far every edge could move in before the claim no longer holds; 0 or less: it does not."""
    _, low, high, least, most = _ends(rows)
    return float(np.minimum(low - least, most - high).min())


def excess(rows: pd.DataFrame) -> float:
    """How far every edge could move out and the claim still does not hold; below 0: not shown."""
    *_, least, most = _ends(rows)
    low, high = widened(rows)
    return float(np.fmax.reduce(np.maximum(least - high, low - most)))


def judge(rows: pd.DataFrame) -> str:
    """HOLDS, FAILS or UNKNOWN from rows with estimate, low, high and their region least, most; an
    edge itself lies outside. A row without interval cannot hold; no rows are NOT_TESTED.
    """
    if rows.empty:
        return NOT_TESTED
    if room(rows) > 0:
        return HOLDS
    return FAILS if excess(rows) >= 0 else UNKNOWN


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
    return TOO_FEW if prompts is not None and prompts < stats.FEW_PROMPTS else found


def by_cost(rows: pd.DataFrame) -> pd.DataFrame:
    """The verdict at each (slope, c): slope, c, verdict, by slope and rising c."""
    groups = rows.groupby(["slope", "c"], sort=True)
    found = [(*cost, judge(of_cost)) for cost, of_cost in groups]
    return pd.DataFrame(found, columns=["slope", "c", "verdict"])


# ---- where a verdict turns -----------------------------------------------------------------------


def turns(claim: Claim, rows: pd.DataFrame) -> str:
    """At which edge (of a cost: at which c) the verdict on these rows turns, in words."""
    known = rows.dropna(subset=["estimate", "low", "high"])
    if known.empty or claim.about == SOURCES or len(known) < len(rows):
        return ""
    if claim.decides == "cost":
        return turns_at_cost(by_cost(known))
    low, high = widened(known)
    for edge, other, holds, fails, below, from_ in (
        ("least", "most", known["low"].min(), high.min(), "below", "from"),
        ("most", "least", known["high"].max(), low.max(), "above", "up to"),
    ):
        of_all = known[edge].nunique() == 1 and np.isfinite(known[edge]).all()
        if of_all and np.isinf(known[other]).all():
            return f"holds for an edge {below} {holds:.3g}, does not for one {from_} {fails:.3g}"
    holds, fails = -room(known), excess(known)
    said = f"holds with edges {_moved(holds)}"
    nothing_left = -fails >= ((known["most"] - known["least"]) / 2).min()
    return said if nothing_left else f"{said}; does not with edges {_moved(fails)}"


def _moved(outwards: float) -> str:
    return f"{abs(outwards):.3g} further {'out' if outwards > 0 else 'in'}"


def turns_at_cost(verdicts: pd.DataFrame) -> str:
    """`by_cost` in words: for each slope of v the ranges of c (as asked) and their verdict."""
    lines = []
    for slope, rows in verdicts.groupby("slope", sort=True):
        change = rows["verdict"] != rows["verdict"].shift()
        parts = []
        for _, run in rows.groupby(change.cumsum()):
            first, last = run["c"].iloc[0], run["c"].iloc[-1]
            span = f"{first:g}" if first == last else f"{first:g} to {last:g}"
            parts.append(f"{run['verdict'].iloc[0].removesuffix(' here')} at c {span}")
        lines.append(f"v(n) = 1 + {slope:g} (n - 1): {', '.join(parts)}")
    return "; ".join(lines)


# ---- tables --------------------------------------------------------------------------------------


def cell(rows: pd.DataFrame) -> str:
    """Rows as one text: least and greatest estimate, and the hull of the intervals: '0.21 to 0.35
    [0.19, 0.37]'. Several estimators: one part each, named; where nothing was measured, the reason;
    '' for no rows.
    """
    known = rows.dropna(subset="estimate")
    if known.empty:
        return "; ".join(dict.fromkeys(rows["note"]))
    spans = {name: _span(part) for name, part in known.groupby("estimator", sort=False)}
    if len(spans) == 1:
        return spans.popitem()[1]
    return "; ".join(f"{name} {span}" for name, span in spans.items())


def _span(rows: pd.DataFrame) -> str:
    numbers = rows[["estimate", "low", "high"]].to_numpy(np.float64)
    digits = _digits(numbers[np.isfinite(numbers)])
    ends = [
        f"{value:.{digits}f}" for value in (numbers[:, 0].min(), numbers[:, 0].max())
    ]
    text = " to ".join(dict.fromkeys(ends))
    if (rows["low"] == rows["high"]).all() or rows["low"].isna().all():
        return text
    low, high = np.nanmin(numbers[:, 1]), np.nanmax(numbers[:, 2])
    return f"{text} [{low:.{digits}f}, {high:.{digits}f}]"


def _digits(values: np.ndarray) -> int:
    """Decimals for two figures of the largest number; none where all are whole."""
    largest = np.abs(values).max()
    if (values % 1 == 0).all():
        return 0
    return 1 if largest >= 10 else max(2, 1 + ceil(-log10(largest)))


def verdict_table(
    listed: Mapping[str, Claim],
    evidence: pd.DataFrame,
    prompts: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """One row for each claim, pair and way to ask: KEYS, source, where, said, estimator, region,
    measured, verdict, turns.

    evidence: COLUMNS. prompts: of each pair's smallest domain.
    """
    lines = []
    for keys, rows in evidence.groupby(KEYS, sort=False):
        name, pair, _ = keys
        claim = listed[name]
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
                "turns": turns(claim, rows),
            }
        )
    return pd.DataFrame(lines)


SIGNS = {  # of a table of many verdicts
    HOLDS: "✓",
    FAILS: "✗",
    NO_CONDITION: "✗",
    UNKNOWN: "?",
    TURNS: "c",
    TOO_FEW: "few",
    NOT_TESTED: "–",
}


def signs_beside(verdicts: pd.DataFrame) -> pd.DataFrame:
    """The verdicts bound to a pair side by side, as SIGNS: claim, said, and a column for each pair
    and way of ASKED; '' where nothing is asked.
    """
    bound = verdicts[(verdicts["pair"] != SOURCES) & verdicts["asked"].isin(ASKED)]
    columns = bound["pair"] + ", " + bound["asked"]
    signs = bound.assign(column=columns, sign=bound["verdict"].map(SIGNS))
    wide = signs.pivot(index=["claim", "said"], columns="column", values="sign")
    order = list(dict.fromkeys(columns))
    shown = wide[order].rename_axis(columns=None).reset_index().fillna("")
    in_order = bound[["claim", "said"]].drop_duplicates()
    return in_order.merge(shown, on=["claim", "said"])


def without_pair(verdicts: pd.DataFrame) -> pd.DataFrame:
    """The claims and defects that no pair is asked about, with few columns."""
    rows = verdicts[verdicts["pair"] == SOURCES]
    columns = ["claim", "said", "estimator", "measured", "verdict"]
    return rows[columns].reset_index(drop=True)


def tally_said(verdicts: pd.DataFrame) -> str:
    """The tally in words, a line for each pair and way to ask, in the order of `verdicts`."""
    lines = []
    for (pair, asked), rows in verdicts.groupby(["pair", "asked"], sort=False):
        counts = rows["verdict"].value_counts()
        parts = [f"{counts[name]} {name}" for name in VERDICTS if name in counts]
        head = "facts that need no pair" if pair == SOURCES else f"{pair}, {asked}"
        lines.append(f"* **{head}**: {', '.join(parts)}.")
    return "\n".join(lines)


def agreed_said(verdicts: pd.DataFrame) -> str:
    """Which claims hold, and which do not, on every pair by what is exact at a temperature."""
    lines = []
    for asked, rows in _exact_ones(verdicts).groupby("asked", sort=False):
        wide = rows.pivot(index="claim", columns="pair", values="verdict").dropna()
        for name in (HOLDS, FAILS):
            ids = wide.index[(wide == name).all(axis=1)]
            said = name.removesuffix(" here")
            lines.append(
                f"* {asked}, {said} on every pair: {', '.join(ids) or 'none'}."
            )
    return "\n".join(lines)


def temperatures_said(verdicts: pd.DataFrame) -> str:
    """Which claims have another verdict at T = 1 than at T = 0, a line a pair."""
    lines = []
    for pair, rows in _exact_ones(verdicts).groupby("pair", sort=False):
        wide = rows.pivot(index="claim", columns="asked", values="verdict")
        both = wide.reindex(columns=[AT_0, AT_1]).dropna()
        both = both[(both != NOT_TESTED).all(axis=1)]
        other = both[both[AT_0] != both[AT_1]]
        said = [
            f"{name} ({cold} at T = 0, {warm} at T = 1)"
            for name, cold, warm in other.itertuples(name=None)
        ]
        lines.append(
            f"* {pair}: {len(other)} of {len(both)} verdicts differ between the temperatures: "
            f"{'; '.join(said) or 'none'}."
        )
    return "\n".join(lines)


def _exact_ones(verdicts: pd.DataFrame) -> pd.DataFrame:
    of_pairs = verdicts["pair"] != SOURCES
    return verdicts[of_pairs & verdicts["asked"].isin([AT_0, AT_1])]


def costs_said(listed: Mapping[str, Claim], evidence: pd.DataFrame) -> str:
    """At which c each claim about cost has one verdict for every pair, temperature and slope that
    was asked; a line a claim.
    """
    lines = []
    for claim in listed.values():
        rows = evidence[evidence["claim"] == claim.id]
        if claim.decides != "cost" or rows.empty:
            continue
        bars = [by_cost(part) for _, part in rows.groupby(["pair", "asked"])]
        verdicts = pd.concat(bars).groupby("c")["verdict"].agg(set)
        parts = []
        for name in (HOLDS, FAILS):
            cs = [f"{c:g}" for c, known in verdicts.items() if known == {name}]
            parts.append(f"{name.removesuffix(' here')} at {', '.join(cs) or 'none'}")
        lines.append(f"* **{claim.id}**: {'; '.join(parts)}.")
    return "\n".join(lines)


def open_said(listed: Mapping[str, Claim], evidence: pd.DataFrame) -> str:
    """One line a claim that could not be measured, with the reason."""
    rows = evidence[evidence["estimate"].isna()]
    lines = [
        f"* {row.claim} ({row.pair}, {row.asked}): {row.note}"
        for row in rows.itertuples()
    ]
    lines += [f"* {c.id}: {c.untested}" for c in listed.values() if c.untested]
    return "\n".join(lines) or "Every claim that was asked has an answer."


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
        "depth-2": (late[1] - late[0])[[2]],
        "entropy-sign": rho,
        "entropy-weak": rho,
        "paradox": alpha["chat"] - alpha.drop("chat"),
    }
    return pd.concat(found, names=["claim", "row"]).rename("estimate").reset_index()


def answer(measure: Callable[..., list[dict]], *arguments) -> list[dict]:
    """What `measure` gives, or the reason why this run cannot answer."""
    try:
        return measure(*arguments)
    except ValueError as error:
        return [not_measured(str(error))]

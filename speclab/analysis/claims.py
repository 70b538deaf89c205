"""The claims of the paper and the article as facts, and how a verdict follows from intervals.

A claim (data/paper/claims.yaml) is a number and a region: it holds if the number lies in it. The
rule for a claim of several rows (domains, differences) is that of intersection and union: it holds
if *every* row's 95 % interval lies in its region, which needs no correction (Berger 1982, Multi-
parameter hypothesis testing and acceptance sampling); it does not hold if *one* row's interval,
widened for so many rows (Bonferroni), lies outside. Else it is inconclusive. A claim of equality
("weak", "near", "the same") has a region of two edges, the margin, which is named beforehand: an
interval that includes 0 shows no equality. So a verdict is wrong by chance with a probability of at
most 0.05. Each is for one pair, one prompt set, one temperature and one estimator. Claims that
state one fact are judged apart and counted once, by the claim that `fact` names.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy.special import ndtri

from speclab import stats
from speclab.analysis import prompt_sets
from speclab.profiles import ROOT
from speclab.prompts import DOMAINS

READS = ["data/paper/claims.yaml"]
CLAIMS = ROOT / READS[0]
HOLDS = "holds here"
FAILS = "does not hold here"
FORM = f"holds on {prompt_sets.OWN} only"
UNDECIDED = "inconclusive here"
TURNS = "depends on c"
TOO_FEW = "too few prompts here"
NOT_TESTED = "not tested here"
NO_CONDITION = "not a condition of anything"
DEFECT = "defect"
SIGNS = {  # of a table of many verdicts
    HOLDS: "✓",
    FORM: "(✓)",
    FAILS: "✗",
    NO_CONDITION: "✗",
    UNDECIDED: "?",
    TURNS: "c",
    TOO_FEW: "few",
    NOT_TESTED: "–",
}
# how a number is measured: by the paper's procedure (T = 0), or by what is exact at a temperature
PUBLISHED = "as published"
AT_0 = "T = 0"
AT_1 = "T = 1"
SOURCES = "sources"  # in place of a pair: arithmetic, a log, code or an example decides
KEYS = ["claim", "pair", "asked", "prompts"]
NUMBER = ["estimator", "row", "estimate", "low", "high", "note"]
COLUMNS = [*KEYS, "c", "slope", *NUMBER, "least", "most"]
LEVEL = 0.05  # of every interval and verdict
# rows of evidence, with the columns NUMBER (note may be missing), c and slope: by claim and by how
# they are measured
Evidence = dict[tuple[str, str], pd.DataFrame]


@dataclass(frozen=True)
class Claim:
    """A claim as a fact: where it stands, its number, and the region (least, most, both excluded)
    of a number for which it holds; a mapping gives each row its own.

    about: "pair", or "sources" where no run is asked. decides: "interval", "necessity" (the number
    is said to be a condition of something), "cost" (a verdict for every c), or "defect" (nothing is
    claimed: what is wrong in a procedure, and what it costs). margin: why these edges. fact: the
    claim that states the same fact, by which it is counted ("": its own). published, exact:
    what is measured on runs; table: rows of another notebook's table (`studies.paper_audit`).
    values: rows (what, where, number) that are exact, read off a log, code, a table or an example.
    note: what a reader of the verdict should know. untested: why nothing here answers it.
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
    fact: str = ""
    published: Sequence[Mapping] = ()
    exact: Sequence[Mapping] = ()
    table: Mapping | None = None
    values: Sequence[Sequence] = ()
    note: str = ""
    untested: str = ""

    def bounds(self, row: str) -> tuple[float, float]:
        """The region of one row (a domain) as numbers; none named for it: all is allowed."""
        region = self.region
        if isinstance(region, Mapping):
            region = region.get(row, (None, None))
        least, most = region
        return -np.inf if least is None else least, np.inf if most is None else most

    def region_said(self) -> str:
        """The region in words: 'above 0', '0.4 to 0.6', 'chat above 1, math below 1'."""
        if isinstance(self.region, Mapping):
            return ", ".join(f"{row} {_edges(*edges)}" for row, edges in self.region.items())
        return _edges(*self.region)


def _edges(least: float | None, most: float | None) -> str:
    above = "" if least is None else f"above {least:g}"
    below = "" if most is None else f"below {most:g}"
    return f"{least:g} to {most:g}" if above and below else above + below


def claims() -> dict[str, Claim]:
    """The claims by id, in the file's order."""
    text = CLAIMS.read_text(encoding="utf-8")
    return {entry["id"]: Claim(**entry) for entry in yaml.safe_load(text)}


# ---- evidence ------------------------------------------------------------------------------------


def rows_of(estimator: str, table: pd.DataFrame, row: str = "domain") -> pd.DataFrame:
    """Evidence from a table with estimate, low, high and, if there, note; `row` names its rows."""
    return table.rename(columns={row: "row"}).assign(estimator=estimator)


def from_draws(
    estimator: str, draws: stats.Draws, numbers: pd.DataFrame | Mapping[str, pd.Series]
) -> pd.DataFrame:
    """Evidence from numbers that were made of draws: of each domain (a frame), or by name. One
    without interval counts as not measured.
    """
    if isinstance(numbers, pd.DataFrame):
        numbers = numbers[list(draws.prompts.domains)]
    table = draws.table({"": pd.DataFrame(numbers)})
    table["estimate"] = table["estimate"].where(table["note"] == "")
    return rows_of(estimator, table)


def attempt(measure: Callable[..., pd.DataFrame], *arguments: Any) -> pd.DataFrame:
    """The evidence that a function gives; where it raises ValueError, a row without number whose
    note is the reason.
    """
    try:
        return measure(*arguments)
    except ValueError as error:
        return pd.DataFrame({"estimator": "", "row": "", "note": [str(error)]})


def in_frame(
    listed: Mapping[str, Claim], pair: str, evidence: Evidence, prompts: str = prompt_sets.OWN
) -> pd.DataFrame:
    """The evidence on a prompt set as one frame: COLUMNS, in the order of `listed`."""
    order = list(listed)
    rows = []
    for claim, way in sorted(evidence, key=lambda key: order.index(key[0])):
        head = {"claim": claim, "pair": pair, "asked": way, "prompts": prompts, "note": ""}
        for number in evidence[claim, way].to_dict("records"):
            least, most = listed[claim].bounds(number["row"])
            rows.append(head | number | {"least": least, "most": most})
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


def judge(rows: pd.DataFrame) -> str:
    """HOLDS, FAILS or UNDECIDED from rows with estimate, low, high and their region least, most; an
    edge itself lies outside. A row without interval cannot hold; no rows are NOT_TESTED.
    """
    if rows.empty:
        return NOT_TESTED
    least, most = rows["least"], rows["most"]
    inside = (rows["low"] > least) & (rows["high"] < most)
    if inside.all():
        return HOLDS
    low, high = widened(rows)
    outside = (high <= least) | (low >= most)
    return FAILS if outside.any() else UNDECIDED


def by_cost(rows: pd.DataFrame) -> pd.Series:
    """The verdict at each cost, by slope and c; of rows without number or cost there is none."""
    known = rows.dropna(subset=["estimate", "slope", "c"])
    costs = known.groupby(["slope", "c"])
    return pd.Series({cost: judge(part) for cost, part in costs}, dtype=object)


def at_every_slope(verdicts: pd.Series, verdict: str) -> str:
    """The c at which a claim about cost (`by_cost`) has this verdict for every slope: '0.05,
    0.1'.
    """
    if verdicts.empty:
        return ""
    everywhere = (verdicts == verdict).groupby(level=1).all()
    return ", ".join(f"{c:g}" for c in everywhere.index[everywhere])


def verdict_on(claim: Claim, rows: pd.DataFrame, prompts: float = np.inf) -> str:
    """The verdict on a claim from the rows (COLUMNS) of one pair, measured in one way.

    prompts: of the pair's smallest domain. Of fewer than 20 nothing is said (`stats.FEW_PROMPTS`:
    intervals of so few cover less than they say). A claim about cost gets the verdict that it has
    at every c and slope, TURNS where that changes.
    """
    if rows["estimate"].isna().all():
        return NOT_TESTED
    if claim.decides == "defect":
        return DEFECT
    if prompts < stats.FEW_PROMPTS:
        return TOO_FEW
    if claim.decides == "cost":
        first, *others = by_cost(rows).unique()
        return TURNS if others else first
    judged = judge(rows)
    if judged == FAILS and claim.decides == "necessity":
        judged = NO_CONDITION
    return judged.removesuffix(" here") if claim.about == SOURCES else judged


# ---- tables --------------------------------------------------------------------------------------


def summary(rows: pd.DataFrame) -> str:
    """Rows as one text: least and greatest estimate, and the hull of the intervals: '0.21 to 0.35
    [0.19, 0.37]'. Several estimators: one part each, named; where nothing was measured, the reason;
    '' for no rows.
    """
    known = rows.dropna(subset="estimate")
    if known.empty:
        return "; ".join(rows["note"].unique())
    parts = {}
    for name, rows in known.groupby("estimator", sort=False):
        estimates = rows["estimate"]
        ends = [f"{estimates.min():.3g}", f"{estimates.max():.3g}"]
        parts[name] = " to ".join(dict.fromkeys(ends))
        if (rows["low"] < rows["high"]).any():
            low, high = rows["low"].min(), rows["high"].max()
            parts[name] += f" [{low:.3g}, {high:.3g}]"
    if len(parts) == 1:
        return parts[name]
    return "; ".join(f"{name} {text}" for name, text in parts.items())


def of_other_texts(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a prompt set whose texts are not the pair's own: without the wrapper, code and
    chat are the same prompts.
    """
    same_texts = {*DOMAINS} - {*prompt_sets.WITH_WORDS}
    domains = rows["row"].str.split(" - ")
    repeated = domains.map(same_texts.issuperset)
    return rows[~repeated | (rows["prompts"] != prompt_sets.UNWRAPPED)]


def verdict_table(
    listed: Mapping[str, Claim],
    evidence: pd.DataFrame,
    prompts: Mapping[str, int] = MappingProxyType({}),
) -> pd.DataFrame:
    """One row for each claim, pair, way to measure and prompt set: KEYS, fact (the claim by which
    it is counted), source, where, said, estimator, region, measured, verdict, note; of a claim
    about cost the c at which it `holds_at` and `fails_at` for every slope.

    A row whose texts are the pair's own again decides nothing (`of_other_texts`), but a claim that
    it keeps from holding is inconclusive. The verdict is FORM where a claim holds on the pair's own
    prompts, on none of the others, and does not hold on one of them.

    evidence: COLUMNS. prompts: of each pair's smallest domain.
    """
    lines = []
    for keys, rows in evidence.groupby(KEYS, sort=False):
        name, pair, *_ = keys
        claim = listed[name]
        count = prompts.get(pair, np.inf)
        new = of_other_texts(rows)
        if new.empty:
            continue
        found = verdict_on(claim, new, count)
        if found == HOLDS != verdict_on(claim, rows, count):
            found = UNDECIDED
        costs = by_cost(new)
        line = {
            "fact": claim.fact or name,
            "source": claim.source,
            "where": claim.where,
            "said": claim.claim,
            "estimator": ", ".join(new["estimator"].unique()),
            "region": claim.region_said(),
            "measured": summary(new),
            "verdict": found,
            "note": claim.note,
            "holds_at": at_every_slope(costs, HOLDS),
            "fails_at": at_every_slope(costs, FAILS),
        }
        lines.append(dict(zip(KEYS, keys, strict=True)) | line)
    table = pd.DataFrame(lines)
    is_own = table["prompts"] == prompt_sets.OWN
    elsewhere = table["verdict"].mask(is_own)
    claim_of_pair = [table[key] for key in KEYS[:3]]
    falls, holds = (
        elsewhere.eq(one).groupby(claim_of_pair).transform("any") for one in (FAILS, HOLDS)
    )
    of_form = is_own & table["verdict"].eq(HOLDS) & falls & ~holds
    table.loc[of_form, "verdict"] = FORM
    return table


def signs_beside(verdicts: pd.DataFrame) -> pd.DataFrame:
    """The verdicts on one pair side by side, as SIGNS: claim, said, a column for each way to
    measure and prompt set ('' where a claim is not measured), and a remark.
    """
    column = verdicts["asked"] + ", " + verdicts["prompts"]
    rows = verdicts.assign(column=column, sign=verdicts["verdict"].map(SIGNS))
    signs = rows.set_index(["claim", "said", "column"])["sign"]
    wide = signs.unstack(sort=False, fill_value="").rename_axis(columns=None).reset_index()
    by_claim = verdicts.groupby("claim", sort=False)
    return wide.assign(remark=[_remark(own) for _, own in by_claim])


def _remark(verdicts: pd.DataFrame) -> str:
    """What is to be known of the verdicts on one claim."""
    of_form = verdicts.loc[verdicts["verdict"] == FORM, "asked"]
    claim, fact, note = verdicts.iloc[0][["claim", "fact", "note"]]
    counted = "" if claim == fact else f"counted as {fact}"
    remarks = [*(f"{FORM} ({way})" for way in of_form), counted, note]
    return "; ".join(filter(None, remarks))


def decided(verdicts: pd.Series) -> list[int]:
    """How many verdicts say that a claim holds, that it holds on the pair's own prompts only, and
    that it does not hold.
    """
    counts = verdicts.map(SIGNS).value_counts()
    return [int(counts.get(SIGNS[one], 0)) for one in (HOLDS, FORM, FAILS)]


def tally(verdicts: pd.Series) -> str:
    """How many facts hold and how many do not, as a clause."""
    everywhere, of_form, fell = decided(verdicts)
    held = everywhere + of_form
    if not held + fell:
        return "none can be decided"
    hold = "holds" if held == 1 else "hold"
    do = "does" if fell == 1 else "do"
    only = f" ({of_form} on {prompt_sets.OWN} only)" if of_form else ""
    return f"{held} {hold}{only} and {fell} {do} not"


def by_chance(verdicts: pd.Series) -> str:
    """How many of these verdicts chance may have made, as a sentence."""
    count = sum(decided(verdicts))
    if not count:
        return "No verdict is decided."
    return (
        f"Each verdict rests on 95 % intervals, so on average at most {LEVEL * count:.0f} of the "
        f"{count} decided ones are wrong by chance."
    )

"""The claims of the paper and the article as facts, and how a verdict follows from intervals.

A claim (data/paper/claims.yaml) is a number and a region: the claim holds if the number lies in the
region. A claim of several rows (domains, differences) is judged by the intersection-union rule. It
holds if *every* row's 95 % interval lies in its region, which needs no correction (Berger 1982,
Multiparameter hypothesis testing and acceptance sampling). It fails if *one* row's interval lies
outside after it is widened for the number of rows (Bonferroni). Else it is inconclusive. A claim of
equality ("weak", "near", "the same") has a region with two edges, a margin that is named
beforehand, because an interval that includes 0 does not show equality. So a verdict is wrong by
chance with a probability of at most 0.05. Each verdict is for one pair, one prompt set, one
temperature and one estimator. Claims that say the same are judged separately and counted once, as
one statement, by the claim that `fact` names.
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
from speclab.estimates import counted
from speclab.profiles import ROOT
from speclab.prompts import DOMAINS

READS = ["data/paper/claims.yaml"]
CLAIMS = ROOT / READS[0]
HOLDS = "holds"
FAILS = "fails"
FORM = f"holds on {prompt_sets.OWN} only"
UNDECIDED = stats.INCONCLUSIVE
TURNS = "depends on c"
TOO_FEW = "too few prompts"
NOT_TESTED = "not tested"
NO_CONDITION = "fails (not necessary)"
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
# how a number is measured: by the paper's procedure (T = 0), or exactly at a temperature
PUBLISHED = "as published"
AT_0 = "T = 0"
AT_1 = "T = 1"
SOURCES = "sources"  # instead of a pair: arithmetic, a log, code or an example decides
KEYS = ["claim", "pair", "asked", "prompts"]
NUMBER = ["estimator", "row", "estimate", "low", "high", "note"]
COLUMNS = [*KEYS, "c", "slope", *NUMBER, "least", "most"]
LEVEL = 0.05  # of every interval and verdict
# rows of evidence by claim and by how they are measured, with the columns NUMBER (note may be
# missing), c and slope
Evidence = dict[tuple[str, str], pd.DataFrame]


@dataclass(frozen=True)
class Claim:
    """A claim as a fact: its source, its number, and the region (least, most, both excluded) in
    which the number has to lie; a mapping gives each row its own region.

    about: "pair", or "sources" where no run is measured. decides: "interval", "necessity" (the
    number is claimed to be a condition), "cost" (a verdict for every c), or "defect" (nothing is
    claimed: what is wrong in a procedure, and its effect). margin: why these edges. fact: the claim
    that says the same, by which it is counted ("": its own). published, exact: what is
    measured on runs. table: rows of another notebook's table (`studies.paper_audit`). values: rows
    (what, where, number) that are exact, read from a log, code, a table or an example. note: what a
    reader of the verdict should know. untested: why nothing here tests it.
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
        """The region of one row (a domain) as numbers; a row without a region has no bounds."""
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
    """Evidence from numbers that were computed from draws: of each domain (a frame), or by name. A
    number without interval counts as not measured.
    """
    if isinstance(numbers, pd.DataFrame):
        numbers = numbers[list(draws.prompts.domains)]
    table = draws.table({"": pd.DataFrame(numbers)}).frame
    table["estimate"] = table["estimate"].where(table["note"] == "")
    return rows_of(estimator, table)


def attempt(measure: Callable[..., pd.DataFrame], *arguments: Any) -> pd.DataFrame:
    """The evidence that a function returns; if it raises ValueError, a row without a number whose
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
    normal quantiles (Bonferroni). The interval of a single row stays as it is.
    """
    longer = ndtri(LEVEL / len(rows) / 2) / ndtri(LEVEL / 2)
    estimate = rows["estimate"]
    low = estimate - longer * (estimate - rows["low"])
    high = estimate + longer * (rows["high"] - estimate)
    return low, high


def judge(rows: pd.DataFrame) -> str:
    """HOLDS, FAILS or UNDECIDED from rows with estimate, low, high and their region least, most; an
    edge itself lies outside. A row without interval cannot hold. No rows: NOT_TESTED.
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
    """The verdict at each cost, by slope and c; rows without a number or a cost have no verdict."""
    known = rows.dropna(subset=["estimate", "slope", "c"])
    costs = known.groupby(["slope", "c"])
    return pd.Series({cost: judge(part) for cost, part in costs}, dtype=object)


def at_every_slope(verdicts: pd.Series, verdict: str) -> str:
    """The values of c at which a claim about cost (`by_cost`) has this verdict for every slope:
    '0.05, 0.1'.
    """
    if verdicts.empty:
        return ""
    everywhere = (verdicts == verdict).groupby(level=1).all()
    return ", ".join(f"{c:g}" for c in everywhere.index[everywhere])


def verdict_on(claim: Claim, rows: pd.DataFrame, prompts: float = np.inf) -> str:
    """The verdict on a claim from the rows (COLUMNS) of one pair, measured in one way.

    prompts: in the pair's smallest domain. With fewer than 20 (`stats.FEW_PROMPTS`) there is no
    verdict, because intervals then cover the true value too rarely. A claim about cost gets the
    verdict that it has at every c and slope, or TURNS if the verdict changes.
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
    return NO_CONDITION if judged == FAILS and claim.decides == "necessity" else judged


# ---- tables --------------------------------------------------------------------------------------


def summary(rows: pd.DataFrame) -> str:
    """Rows as one text: the least and the greatest estimate, and the hull of the intervals, as
    '0.21 to 0.35 [0.19, 0.37]'. Several estimators have one named part each. Nothing measured: the
    reason. No rows: ''.
    """
    known = rows.dropna(subset="estimate")
    if known.empty:
        return "; ".join(rows["note"].unique())
    parts = {}
    for name, rows in known.groupby("estimator", sort=False):
        estimates = rows["estimate"]
        ends = [_digits(estimates.min()), _digits(estimates.max())]
        parts[name] = " to ".join(dict.fromkeys(ends))
        if (rows["low"] < rows["high"]).any():
            low, high = _digits(rows["low"].min()), _digits(rows["high"].max())
            parts[name] += f" [{low}, {high}]"
    if len(parts) == 1:
        return parts[name]
    return "; ".join(f"{name} {text}" for name, text in parts.items())


def by_row(rows: pd.DataFrame) -> str:
    """The `summary` of each row (domain), named."""
    parts = rows.groupby("row", sort=False)
    return "; ".join(f"{row} {summary(part)}" for row, part in parts)


def _digits(number: float) -> str:
    """A number with three significant digits and at most four decimals."""
    return f"{round(number, 4):z.3g}".replace("-", "\N{MINUS SIGN}")


def of_other_texts(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a prompt set whose texts are not the pair's own: without the wrapper, code and
    chat have the same prompts.
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
    it is counted), source, where, said, estimator, region, measured, verdict, note, and the values
    of c at which a claim about cost `holds_at` and `fails_at` for every slope.

    A row with the same texts as the pair's own prompts decides nothing (`of_other_texts`), but a
    claim that fails to hold because of it is inconclusive. The verdict is FORM if a claim holds on
    the pair's own prompts, holds on no other set, and fails on one of them.

    evidence: COLUMNS. prompts: in each pair's smallest domain.
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
            "measured": by_row(new) if isinstance(claim.region, Mapping) else summary(new),
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
    """The verdicts on one pair side by side, as SIGNS: key, claim, a column for each way to measure
    and prompt set ('' where a claim is not measured), and a remark.
    """
    column = verdicts["asked"] + ", " + verdicts["prompts"]
    rows = verdicts.assign(column=column, sign=verdicts["verdict"].map(SIGNS))
    signs = rows.set_index(["claim", "said", "column"])["sign"]
    wide = signs.unstack(sort=False, fill_value="").rename_axis(columns=None).reset_index()
    by_claim = verdicts.groupby("claim", sort=False)
    remarks = [_remark(rows) for _, rows in by_claim]
    return wide.rename(columns={"claim": "key", "said": "claim"}).assign(remark=remarks)


def _remark(verdicts: pd.DataFrame) -> str:
    """What a reader should know of the verdicts on one claim."""
    of_form = verdicts.loc[verdicts["verdict"] == FORM, "asked"]
    claim, fact, note = verdicts.iloc[0][["claim", "fact", "note"]]
    counted_as = "" if claim == fact else f"counted as {fact}"
    remarks = [*(f"{FORM} ({way})" for way in of_form), counted_as, note]
    return "; ".join(filter(None, remarks))


def decided(verdicts: pd.Series) -> list[int]:
    """How many claims hold, how many hold on the pair's own prompts only, and how many fail."""
    counts = verdicts.map(SIGNS).value_counts()
    return [int(counts.get(SIGNS[one], 0)) for one in (HOLDS, FORM, FAILS)]


def tally(verdicts: pd.Series) -> str:
    """How many statements hold and how many fail, as a clause."""
    everywhere, of_form, failed = decided(verdicts)
    held = everywhere + of_form
    if not held + failed:
        return "no statement can be decided"
    hold = "holds" if held == 1 else "hold"
    fail = "fails" if failed == 1 else "fail"
    only = f" ({of_form} on {prompt_sets.OWN} only)" if of_form else ""
    return f"{held} {hold}{only} and {failed} {fail}"


def by_chance(verdicts: pd.Series) -> str:
    """How many of these verdicts chance may have made, as a sentence."""
    count = sum(decided(verdicts))
    if not count:
        return "No verdict is decided."
    return (
        f"With 95 % intervals we expect at most {LEVEL * count:.0f} of the "
        f"{counted(count, 'decided verdict')} to be wrong by chance."
    )

"""How a verdict on a claim of the paper or the article follows from intervals.

A claim (data/paper/claims.yaml) is a number and a region: the claim holds if the number lies in the
region. A claim of several rows (domains, differences) is judged by the intersection-union rule. It
holds if *every* row's 95 % interval lies in its region, which needs no correction (Berger 1982,
Multiparameter hypothesis testing and acceptance sampling). It fails if *one* row's interval lies
outside after it is widened for the number of rows (Bonferroni). Else it is inconclusive. A claim of
equality ("weak", "near", "the same") has a region with two edges, a margin that is named
beforehand, because an interval that includes 0 does not show equality. So a verdict is wrong by
chance with a probability of at most 0.05. Each verdict is for one pair, one prompt set, one
temperature and one estimator. Claims that say the same are judged separately and counted once, as
one statement, by the claim that `fact` names. Notebook 11 measures the numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import yaml
from scipy.special import ndtri

from speclab import stats
from speclab.lab import prompt_sets
from speclab.study.profiles import ROOT
from speclab.study.prompts import DOMAINS

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
# how a number is measured: by the paper's procedure (T = 0), or exactly at a temperature
PUBLISHED = "as published"
AT_0 = "T = 0"
AT_1 = "T = 1"
SOURCES = "sources"  # instead of a pair: arithmetic, a log, code or an example decides
KEYS = ["claim", "pair", "asked", "prompts"]
NUMBER = ["estimator", "row", "estimate", "low", "high", "note"]
COLUMNS = [*KEYS, "c", "slope", *NUMBER, "least", "most"]  # of evidence
FACTS = ["fact", "source", "where", "said", "estimator", "region", "measured", "verdict", "note"]
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
    that says the same, by which it is counted ("": its own). values: rows (what, where, number)
    that are exact, read from a log, code, a table or an example. note: what a reader of the verdict
    should know. untested: why nothing here tests it.
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
    if least is None:
        return "" if most is None else f"below {most:g}"
    return f"above {least:g}" if most is None else f"{least:g} to {most:g}"


def claims() -> dict[str, Claim]:
    """The claims by id, in the file's order."""
    text = CLAIMS.read_text(encoding="utf-8")
    return {entry["id"]: Claim(**entry) for entry in yaml.safe_load(text)}


# ---- evidence ------------------------------------------------------------------------------------


def rows_of(estimator: str, table: pd.DataFrame, row: str = "domain") -> pd.DataFrame:
    """Evidence from a table with estimate, low, high and, if there, note; `row` names its rows."""
    return table.rename(columns={row: "row"}).assign(estimator=estimator)


def in_frame(
    listed: Mapping[str, Claim], pair: str, evidence: Evidence, prompts: str = prompt_sets.OWN
) -> pd.DataFrame:
    """The evidence on a prompt set as one frame with COLUMNS."""
    parts = []
    for (claim, way), rows in evidence.items():
        head = {"claim": claim, "pair": pair, "asked": way, "prompts": prompts}
        edges = [listed[claim].bounds(row) for row in rows["row"]]
        parts.append(
            rows.assign(**head, least=[one for one, _ in edges], most=[one for _, one in edges])
        )
    frame = pd.concat(parts, ignore_index=True).reindex(columns=COLUMNS)
    return frame.fillna({"note": ""})


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
    for name, part in known.groupby("estimator", sort=False):
        ends = part["estimate"].agg(["min", "max"])
        parts[name] = " to ".join(dict.fromkeys(map(_digits, ends)))
        if (part["low"] < part["high"]).any():
            parts[name] += f" [{_digits(part['low'].min())}, {_digits(part['high'].max())}]"
    if len(parts) == 1:
        return parts[name]
    return "; ".join(f"{name} {text}" for name, text in parts.items())


def by_row(rows: pd.DataFrame) -> str:
    """The `summary` of each row (domain), named."""
    return "; ".join(f"{row} {summary(part)}" for row, part in rows.groupby("row", sort=False))


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
    listed: Mapping[str, Claim], evidence: pd.DataFrame, prompts: Mapping[str, int] = {}
) -> pd.DataFrame:
    """One row for each claim, pair, way to measure and prompt set: KEYS, FACTS (fact: the claim by
    which it is counted), and the values of c at which a claim about cost `holds_at` and `fails_at`
    for every slope.

    A row with the same texts as the pair's own prompts decides nothing (`of_other_texts`), but a
    claim that fails to hold because of it is inconclusive. The verdict is FORM if a claim holds on
    the pair's own prompts, holds on no other set, and fails on one of them.

    evidence: COLUMNS. prompts: in each pair's smallest domain.
    """
    lines = []
    for keys, rows in evidence.groupby(KEYS, sort=False):
        claim = listed[keys[0]]
        count = prompts.get(keys[1], np.inf)
        new = of_other_texts(rows)
        if new.empty:
            continue
        verdict = verdict_on(claim, new, count)
        if verdict == HOLDS != verdict_on(claim, rows, count):
            verdict = UNDECIDED
        names = ", ".join(new["estimator"].unique())
        measured = by_row(new) if isinstance(claim.region, Mapping) else summary(new)
        facts = [claim.fact or claim.id, claim.source, claim.where, claim.claim, names]
        facts += [claim.region_said(), measured, verdict, claim.note]
        costs = by_cost(new)
        at = [at_every_slope(costs, decided) for decided in (HOLDS, FAILS)]
        lines.append([*keys, *facts, *at])
    table = pd.DataFrame(lines, columns=[*KEYS, *FACTS, "holds_at", "fails_at"])
    is_own = table["prompts"] == prompt_sets.OWN
    elsewhere = table[~is_own].groupby(KEYS[:3])["verdict"].agg(set)
    for row in table.index[is_own & (table["verdict"] == HOLDS)]:
        others = elsewhere.get(tuple(table.loc[row, KEYS[:3]]), set())
        if FAILS in others and HOLDS not in others:
            table.loc[row, "verdict"] = FORM
    return table

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

import numpy as np
import pandas as pd
import yaml
from scipy.special import ndtri

from speclab import stats
from speclab.analysis import prompt_sets
from speclab.analysis.published import published
from speclab.profiles import ROOT
from speclab.prompts import DOMAINS

READS = ["data/paper/claims.yaml"]
CLAIMS = ROOT / READS[0]
HOLDS = "holds here"
FAILS = "does not hold here"
FORM = f"holds on {prompt_sets.OWN} only"
UNKNOWN = "inconclusive here"
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
KEYS = ["claim", "pair", "asked", "prompts"]
NUMBER = ["estimator", "row", "estimate", "low", "high", "note"]
COLUMNS = [*KEYS, "c", "slope", *NUMBER, "least", "most"]
LEVEL = 0.05  # of every interval and verdict


@dataclass(frozen=True)
class Claim:
    """A claim as a fact: where it stands, its number, and the region (least, most, both excluded)
    of a number for which it holds; a mapping gives each row its own.

    about: "pair", or "sources" where no run is asked. decides: "interval", "necessity" (the number
    is said to be a condition of something), "cost" (a verdict for every c), or "defect" (nothing is
    claimed: what is wrong in a procedure, and what it costs). margin: why these edges. fact: the
    claim that states the same fact, by which it is counted ("": its own). published, exact: how
    runs are asked (`measures.evaluate`). value: what, where and a number that is read off a log,
    code, a table or an example. note: what a reader of the verdict should know. untested: why
    nothing here answers it.
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
    value: Sequence = ()
    note: str = ""
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
    prompts: str = prompt_sets.OWN,
) -> pd.DataFrame:
    """What the functions (by claim and way to ask) answer on a prompt set, as one frame: COLUMNS,
    in the order of `listed`. One that raises ValueError cannot answer: its row is empty, and its
    note the reason.
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
            head = dict(zip(KEYS, (claim, pair, way, prompts), strict=True))
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


def verdict(claim: Claim, rows: pd.DataFrame, prompts: float = np.inf) -> str:
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
    if prompts < stats.FEW_PROMPTS and claim.about != SOURCES:
        return TOO_FEW
    if claim.decides == "cost":
        found = set(by_cost(known)["verdict"])
        found = found.pop() if len(found) == 1 else TURNS
    else:
        found = judge(rows)
    if claim.decides == "necessity" and found == FAILS:
        return NO_CONDITION
    if claim.about == SOURCES:
        return found.removesuffix(" here")
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
        least, most = part["estimate"].min(), part["estimate"].max()
        text = " to ".join(dict.fromkeys((f"{least:.3g}", f"{most:.3g}")))
        if (part["low"] < part["high"]).any():
            text += f" [{part['low'].min():.3g}, {part['high'].max():.3g}]"
        parts.append(text if known["estimator"].nunique() == 1 else f"{name} {text}")
    return "; ".join(parts)


def of_other_texts(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a prompt set whose texts are not the pair's own: unwrapped, code and chat are
    the same prompts.
    """
    same = {*DOMAINS} - {*prompt_sets.WITH_WORDS}
    is_same = [{*row.split(" - ")} <= same for row in rows["row"]]
    return rows[(rows["prompts"] != prompt_sets.UNWRAPPED) | ~np.array(is_same)]


def verdict_table(
    listed: Mapping[str, Claim],
    evidence: pd.DataFrame,
    prompts: Mapping[str, int] = MappingProxyType({}),
) -> pd.DataFrame:
    """One row for each claim, pair, way to ask and prompt set: KEYS, fact (the claim by which it is
    counted), source, where, said, estimator, region, measured, verdict, note; of a claim about
    cost the c at which it `holds_at` and `fails_at` for every slope.

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
        of_all = verdict(claim, rows, count)
        rows = of_other_texts(rows)
        if rows.empty:
            continue
        found = verdict(claim, rows, count)
        if found == HOLDS != of_all:
            found = UNKNOWN
        known = rows.dropna(subset="estimate")
        by_c = claim.decides == "cost" and not known.empty
        lines.append(
            dict(zip(KEYS, keys, strict=True))
            | {
                "fact": claim.fact or name,
                "source": claim.source,
                "where": claim.where,
                "said": claim.claim,
                "estimator": ", ".join(dict.fromkeys(rows["estimator"])),
                "region": claim.region_said(),
                "measured": cell(rows),
                "verdict": found,
                "note": claim.note,
                "holds_at": at_every_slope(known, HOLDS) if by_c else "",
                "fails_at": at_every_slope(known, FAILS) if by_c else "",
            }
        )
    table = pd.DataFrame(lines)
    is_own = table["prompts"] == prompt_sets.OWN
    elsewhere = table[~is_own].groupby(KEYS[:3])["verdict"].agg(set)
    fallen = elsewhere[[FAILS in found and HOLDS not in found for found in elsewhere]]
    of_form = is_own & pd.MultiIndex.from_frame(table[KEYS[:3]]).isin(fallen.index)
    table.loc[of_form & (table["verdict"] == HOLDS), "verdict"] = FORM
    return table


def signs_beside(verdicts: pd.DataFrame) -> pd.DataFrame:
    """The verdicts on one pair side by side, as SIGNS: claim, said, a column for each way to ask
    and prompt set ('' where nothing is asked), and a remark.
    """
    columns = verdicts["asked"] + ", " + verdicts["prompts"]
    sign = verdicts["verdict"].map(SIGNS)
    rows = verdicts.assign(column=columns, sign=sign)
    wide = rows.pivot(index="claim", columns="column", values="sign")
    by_claim = rows.groupby("claim", sort=False)
    first = by_claim["said"].first()
    wide = wide.loc[first.index, sorted(wide, key=list(columns).index)]
    wide.insert(0, "said", first)
    wide["remark"] = [_remark(own) for _, own in by_claim]
    return wide.fillna("").rename_axis(columns=None).reset_index()


def _remark(verdicts: pd.DataFrame) -> str:
    """What is to be known of the verdicts on one claim."""
    of_form = verdicts.loc[verdicts["verdict"] == FORM, "asked"]
    claim, fact, note = verdicts.iloc[0][["claim", "fact", "note"]]
    counted = "" if claim == fact else f"counted as {fact}"
    parts = [*(f"{FORM} ({asked})" for asked in of_form), counted, note]
    return "; ".join(filter(None, parts))


def tally(verdicts: pd.Series) -> str:
    """How many facts hold and how many do not, as a clause."""
    found = verdicts.replace(NO_CONDITION, FAILS).value_counts()
    held, of_form, fell = (found.get(one, 0) for one in (HOLDS, FORM, FAILS))
    held += of_form
    if not held + fell:
        return "none can be decided"
    verbs = "holds" if held == 1 else "hold", "does" if fell == 1 else "do"
    only = f" ({of_form} on {prompt_sets.OWN} only)" if of_form else ""
    return f"{held} {verbs[0]}{only} and {fell} {verbs[1]} not"


def by_chance(verdicts: pd.Series) -> str:
    """How many of these verdicts chance may have made, as a sentence."""
    decided = verdicts.isin([HOLDS, FORM, FAILS, NO_CONDITION]).sum()
    if not decided:
        return "No verdict is decided."
    return (
        f"Each verdict rests on 95 % intervals, so on average at most {LEVEL * decided:.0f} of the "
        f"{decided} decided ones are wrong by chance."
    )


def printed() -> pd.DataFrame:
    """The paper's own numbers behind its claims: claim, row, estimate.

    From `published.published`; differences of what is printed.
    """
    alpha = published("I").query("quantity == 'alpha_mean' and domain != 'all'")
    alpha = alpha.set_index("domain")["published"]
    depth = published("IV").pivot(index="domain", columns="depth", values="published")
    rho = published("VI").set_index("domain")["published"]
    found = {
        "level": alpha,
        "gap": pd.Series({"chat - math": alpha["chat"] - alpha["math"]}),
        "length": published("II").set_index("domain")["published"],
        "depth": depth[3] - depth[1],
        "entropy-sign": rho,
    }
    numbers = pd.concat(found, names=["claim", "row"])
    return numbers.rename("estimate").reset_index()

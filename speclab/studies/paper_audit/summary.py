"""What the audit shows a reader: the data of its two figures, and its computed sentences."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from speclab.analysis import claims
from speclab.analysis.claims import AT_0, AT_1, FAILS, FORM, HOLDS, NO_CONDITION, TURNS, Claim
from speclab.analysis.prompt_sets import OWN
from speclab.estimates import counted, named, starting, whole
from speclab.stats import FEW_PROMPTS, cell
from speclab.studies.paper_audit.other_notebooks import PASS_TIMES, Tables, one_pass

# verdicts in the cells of a figure, where they are not the verdict itself
SHORT = {FORM: OWN, NO_CONDITION: FAILS, claims.TOO_FEW: "too few"}
# the order of the rows of a figure: by the verdict on the first pair
ORDER = (HOLDS, FORM, TURNS, claims.UNDECIDED, claims.TOO_FEW, claims.NOT_TESTED, FAILS)


# ---- figures -------------------------------------------------------------------------------------


def of_facts(verdicts: pd.DataFrame) -> pd.DataFrame:
    """The verdicts on the pairs' own prompts, one claim per statement: those that hold on the first
    pair come first, those that fail come last.
    """
    own = verdicts.query("prompts == @OWN and claim == fact")
    tested = own[own["verdict"] != claims.NOT_TESTED]
    known = own[own["claim"].isin(tested["claim"])]
    first = known[known["pair"] == known["pair"].iloc[0]]
    of_claim = first.sort_values("asked", key=_exact_first, kind="stable").groupby("claim")
    places = of_claim["verdict"].first().replace(NO_CONDITION, FAILS).map(ORDER.index)
    rows = known.assign(place=known["claim"].map(places)).sort_values("place", kind="stable")
    return _with_words(rows)[["claim", "said", "pair", "asked", "verdict", "word", "sign"]]


def _exact_first(asked: pd.Series) -> pd.Series:
    """T = 0, then T = 1, then as published."""
    return asked.map([AT_0, AT_1, claims.PUBLISHED].index)


def of_costs(
    found: pd.DataFrame, listed: Mapping[str, Claim], pair: str, prompts: float = np.inf
) -> pd.DataFrame:
    """The verdict on each claim about speed at each c, on the own prompts of a pair; it is the same
    for every slope of v, or inconclusive. prompts: in the pair's smallest domain.
    """
    about_cost = [claim.id for claim in listed.values() if claim.decides == "cost"]
    rows = found.query("pair == @pair and prompts == @OWN")
    rows = rows[rows["claim"].isin(about_cost)]
    parts = []
    for (claim, asked), part in rows.groupby(["claim", "asked"], sort=False):
        by_c = claims.by_cost(part).groupby(level=1)
        verdict = by_c.first().where(by_c.nunique() == 1, claims.UNDECIDED)
        if prompts < FEW_PROMPTS:
            verdict[:] = claims.TOO_FEW
        line = {"claim": claim, "said": listed[claim].claim, "asked": asked, "verdict": verdict}
        parts.append(pd.DataFrame(line).rename_axis("c").reset_index())
    return _with_words(pd.concat(parts, ignore_index=True))


def _with_words(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the `word` and the `sign` of their verdicts."""
    verdict = rows["verdict"]
    return rows.assign(word=verdict.replace(SHORT), sign=verdict.map(claims.SIGNS))


def measured_c(tables: Tables) -> float | None:
    """c, the cost of a draft pass, if notebook 10 has measured it reliably on this machine."""
    rows = claims.attempt(one_pass, tables)
    if "estimate" not in rows:
        return None
    return float(tables[PASS_TIMES].set_index("n").loc[1, "c(n)"])


def of_runs(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Verdicts on public runs and their numbers: a row per run, a column per claim."""
    cells = verdicts["verdict"] + ": " + verdicts["measured"]
    wide = verdicts.assign(cell=cells).pivot(index="pair", columns="said", values="cell")
    wide = wide.loc[verdicts["pair"].unique(), verdicts["said"].unique()]
    return wide.rename_axis(columns=None, index="run").reset_index()


# ---- sentences -----------------------------------------------------------------------------------


def alike(verdicts: pd.DataFrame) -> list[str]:
    """How many statements hold and fail on all pairs, and which hold: list items for T = 0 and
    T = 1; none for a single pair.
    """
    own = verdicts.query("prompts == @OWN and claim == fact")
    pairs = own["pair"].nunique()
    if pairs == 1:
        return []
    same = own.replace({NO_CONDITION: FAILS})
    by_pair = same.pivot(index=["asked", "said"], columns="pair", values="verdict")
    lines = []
    for asked in (AT_0, AT_1):
        held, failed = (by_pair.loc[asked].eq(one).all(axis=1) for one in (HOLDS, FAILS))
        said = "; ".join(held.index[held])
        counts = f"{failed.sum()} failed and {held.sum()} held"
        lines.append(f"* **{starting(whole('pair', pairs))}, {asked}:** {counts} ({said or '–'}).")
    return lines


def runs_in_words(verdicts: pd.DataFrame) -> str:
    """In how many public runs each claim holds and fails, as list items."""
    lines = []
    for said, rows in verdicts.groupby("said", sort=False):
        held, _, failed = claims.decided(rows["verdict"])
        runs = counted(len(rows), "public run")
        lines.append(f"* “{starting(said)}.” It holds in {held} and fails in {failed} of {runs}.")
    return "\n".join(lines)


def not_tested(listed: Mapping[str, Claim], verdicts: pd.DataFrame) -> list[str]:
    """What could not be tested, and why, as list items."""
    lines = [
        f"* “{starting(one.claim)}.” {one.untested}" for one in listed.values() if one.untested
    ]
    missing = verdicts[verdicts["verdict"] == claims.NOT_TESTED]
    for reason, rows in missing.groupby("measured", sort=False):
        ids, pairs, ways, sets = (list(rows[key].unique()) for key in claims.KEYS)
        what = f"{named([f'`{name}`' for name in ids])} at {named(ways)} on {named(pairs)}"
        lines.append(f"* {what} ({named(sets)}): {reason}.")
    return lines


def in_numbers(verdicts: pd.DataFrame, listed: Mapping[str, Claim]) -> pd.DataFrame:
    """Some claims beside the number that the paper prints: claim, the paper, and a column for each
    pair at T = 0, on its own prompts.
    """
    exact = verdicts.query("prompts == @OWN and asked == @AT_0 and claim in @listed.keys()")
    columns = exact["pair"] + ", " + AT_0
    wide = exact.assign(column=columns).pivot(index="claim", columns="column", values="measured")
    wide = wide.loc[list(listed), list(columns.unique())].reset_index(drop=True)
    facts = [[claim.claim, claim.number] for claim in listed.values()]
    return pd.DataFrame(facts, columns=["claim", "the paper"]).join(wide)


def how_many_held(verdicts: pd.Series, of: str = "") -> str:
    """How many statements held and failed, as a clause. of: whose statements they are."""
    held, of_form, failed = claims.decided(verdicts)
    if not held + of_form + failed:
        return f"no statement{of} can be decided"
    return f"{counted(held + of_form, 'statement')}{of} held and {failed} failed"


def verdicts_in_words(pair: str, verdicts: pd.Series, printed: str, gap: Any) -> str:
    """The notebook's answer. verdicts: on the statements at T = 0; printed: the paper's gap; gap:
    ours, with its interval.
    """
    published = cell(float(printed), np.nan, np.nan, 1, "points")
    ours = cell(gap.estimate, gap.low, gap.high, 0, "points")
    counts = how_many_held(verdicts, " of the paper and the article")
    return (
        f"For the pair `{pair}`, {counts} (T = 0, own prompts). For example, acceptance in chat "
        f"minus acceptance in math is {published} in the paper and {ours} here."
    )

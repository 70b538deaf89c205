"""Loops: the positions at which a text repeats itself, and what an estimate is without them.

A small model's greedy text runs into loops, and a draft that copies them looks good for a reason
that has nothing to do with language. So every number of greedy text stands beside its value outside
loops, and the one of sampled text.

A position *repeats* when its token ends a run of NGRAM tokens which the same continuation (the
prompt not included) has had before; it lies *outside loops* when it does not. The mark looks back
only: the first tokens of a loop, and the one that leaves it, lie outside. What is averaged outside
loops is
* over positions (and the nodes that hang on them): those outside loops;
* over blocks: of the blocks that a decoder visits in the whole text, those whose first token lies
  outside loops. A block counts whole, so one that runs into a loop keeps what it gets there.
A loop once begun mostly lasts, so the positions outside lie early in their texts. NumPy and pandas.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from scipy.linalg import block_diag

from speclab import replay, score, stats
from speclab.score import Estimator, domains_in, require
from speclab.show.estimates import NUMBERS, Estimates, stack
from speclab.stats import MIN_PROMPTS

NGRAM = 4  # tokens of a run that counts as said again
WHOLE, OUTSIDE, SAMPLED = "T = 0", "T = 0 outside loops", "T = 1"
CHANGE = "outside less whole"  # what leaving loops out does at T = 0, prompts paired
WORDS = (  # of `Estimates.sentence`, for the rows CHANGE
    "outside loops it is higher in",
    "outside loops it is lower in",
    "outside loops it cannot be told apart in",
)


# ---- which positions repeat ----------------------------------------------------------------------


def repeats(trace: pd.DataFrame, n: int = NGRAM) -> pd.Series:
    """Does a position's token end a run of `n` tokens that its own text has had before (the two may
    overlap)? bool, aligned with the rows of `trace`, which may be in any order.

    `trace` needs prompt_id, position (counted from 0 in each prompt) and token. ValueError: missing
    columns, positions that are missing or there twice.
    """
    require(trace, ["prompt_id", "position", "token"], "trace")
    order = np.lexsort((trace["position"], pd.factorize(trace["prompt_id"])[0]))
    text = trace[["prompt_id", "position", "token"]].iloc[order].reset_index(drop=True)
    place = text.groupby("prompt_id", observed=True).cumcount()
    wrong = text["position"] != place
    if wrong.any():
        raise ValueError(
            f"trace: the positions of prompt {text['prompt_id'][wrong.argmax()]!r} are not 0, 1, "
            "2, …, each once: mark whole texts, and filter afterwards"
        )
    of_text = text.groupby("prompt_id", observed=True)["token"]
    run = pd.DataFrame({f"{back} before": of_text.shift(back) for back in range(n)})
    again = run.assign(prompt=text["prompt_id"]).duplicated() & (place >= n - 1)
    found = np.zeros(len(trace), bool)
    found[order] = again
    return pd.Series(found, trace.index, name="repeats")


def marks(trace: pd.DataFrame) -> pd.Series:
    """`repeats` of a trace of whole texts by prompt_id and position, its index."""
    place = [trace["prompt_id"], trace["position"]]
    return pd.Series(repeats(trace).to_numpy(), place, name="repeats")


def repeated_at(
    frame: pd.DataFrame, known: pd.Series, at: str = "position"
) -> np.ndarray:
    """Does the position `at` of each row repeat, by `marks`? bool (rows,); ValueError for a row of
    no position of the trace.
    """
    place = ["prompt_id", at]
    rows = pd.MultiIndex.from_frame(require(frame, place, "frame")[place])
    number = known.index.get_indexer(rows)
    missing = number < 0
    if missing.any():
        raise ValueError(
            f"{missing.sum()} rows have no position in the trace, the first "
            f"{rows[missing.argmax()]}: give the trace of the same run"
        )
    return known.to_numpy()[number]


def outside(
    frame: pd.DataFrame, trace: pd.DataFrame, at: str = "position"
) -> pd.DataFrame:
    """The rows of `frame` (a trace, nodes, blocks) whose position `at` lies outside loops; `trace`
    holds the whole texts. ValueError as of `repeats` and `repeated_at`.
    """
    return frame[~repeated_at(frame, marks(trace), at)]


def share(traces: Mapping[str, pd.DataFrame]) -> Estimates:
    """Share of the positions that repeat, by text (the keys of `traces`), domain and `all` (mean of
    the domains): temperature, domain, estimate, low, high.
    """
    repeated = score.mean_of("repeats")
    parts = {
        text: by_known_domain(trace.assign(repeats=repeats(trace)), repeated)
        for text, trace in traces.items()
    }
    return Estimates(stack(parts, "temperature"))


# ---- blocks --------------------------------------------------------------------------------------


def outside_sums(trace: pd.DataFrame, gammas: Iterable[int]) -> pd.DataFrame:
    """`replay.chain_sums` (greedy rule, visited blocks) of the blocks whose first token lies
    outside loops. Each text has one at least: its first block.
    """
    parts, known = {}, marks(trace)
    for gamma in gammas:
        blocks = replay.replay(trace, gamma)
        outside_loops = ~repeated_at(blocks, known, "start")
        parts[gamma] = replay.prompt_sums(blocks[outside_loops])
    columns = ["gamma", "prompt_id", "domain", "blocks", "drafted", "accepted"]
    return stack(parts, "gamma")[[*columns, "emitted", "truncated"]]


# ---- side by side --------------------------------------------------------------------------------


def by_known_domain(
    frame: pd.DataFrame,
    estimator: Estimator,
    domains: Iterable[str] | None = None,
    method: str = stats.EXPANDED,
) -> pd.DataFrame:
    """`stats.by_domain` (`method` is its) of an estimator of one number, without `pooled`: domain,
    estimate, low, high, n_prompts. A domain (default: those of the frame) with fewer prompts than
    an interval needs is undefined (NaN), and so is then the mean of all: it cannot be told.
    """
    wanted = list(domains or domains_in(frame))
    prompts = frame.groupby("domain", observed=True)["prompt_id"].nunique()
    prompts = prompts.reindex(wanted, fill_value=0)
    enough = prompts.index[prompts >= MIN_PROMPTS]
    table = pd.DataFrame({"domain": [*wanted, score.ALL]})
    known = frame[frame["domain"].isin(enough)]
    found = pd.DataFrame(columns=["domain", *NUMBERS])
    if len(enough):
        found = stats.by_domain(known, estimator, method=method)
        found = found[["domain", *NUMBERS]]
    table = table.merge(found, on="domain", how="left")
    if len(enough) < len(wanted):
        table.loc[table["domain"] == score.ALL, NUMBERS] = np.nan
    return table.assign(n_prompts=[*prompts, prompts.sum()])


def side_by_side(
    whole: pd.DataFrame,
    part: pd.DataFrame,
    sampled: pd.DataFrame,
    estimator: Estimator,
    of_sampled: Estimator | None = None,
) -> Estimates:
    """One number of the greedy texts, of what lies outside loops there, the change from the first
    to the second (prompts paired), and of the sampled texts: text (WHOLE, OUTSIDE, CHANGE,
    SAMPLED), domain, estimate, low, high, n_prompts.

    whole, part: frames of greedy text with the same columns, all rows and those outside loops
    (`outside`, or sums over blocks). of_sampled: the estimator at T = 1, where its rule is another.
    Undefined (NaN) where too few prompts are left.
    """
    domains = domains_in(whole)
    rows = {
        WHOLE: by_known_domain(whole, estimator),
        OUTSIDE: by_known_domain(part, estimator, domains),
        CHANGE: by_known_domain(*_change(whole, part, estimator)),
        SAMPLED: by_known_domain(sampled, of_sampled or estimator),
    }
    undefined = rows[OUTSIDE]["estimate"].isna().to_numpy()
    rows[CHANGE].loc[undefined, NUMBERS] = np.nan
    return Estimates(stack(rows, "text"))


def _change(
    whole: pd.DataFrame, part: pd.DataFrame, estimator: Estimator
) -> tuple[pd.DataFrame, Estimator]:
    """Rows of both frames, and an estimator on them: that of `part` less that of `whole`."""
    both = [whole, part]
    sums = pd.DataFrame(block_diag(*map(estimator.columns, both)))
    who = pd.concat(both, ignore_index=True)[["prompt_id", "domain"]]

    def value(totals: np.ndarray) -> np.ndarray:
        of_whole, of_part = np.split(totals, 2, axis=-1)
        return estimator.value(of_part) - estimator.value(of_whole)

    return who.join(sums), Estimator(CHANGE, lambda rows: rows[list(sums)], value)


def in_rows(numbers: Mapping[str, Estimates]) -> pd.DataFrame:
    """Several numbers of `side_by_side`, by name, as one tidy table: number, text, domain,
    estimate, low, high.
    """
    found = Estimates.stacked(numbers, "number").frame
    return found[["number", "text", "domain", *NUMBERS]]


def texts_in_cells(numbers: Mapping[str, Estimates]) -> pd.DataFrame:
    """The same as cells '0.56 [0.55, 0.58]', a row for each number and text, a column a domain."""
    parts = {name: one.wide("text", "domain") for name, one in numbers.items()}
    return stack(parts, "number").fillna("")


# ---- in words ------------------------------------------------------------------------------------


def said(shares: Estimates) -> str:
    """How much of each text repeats, in the mean of the domains, in words, from `share`."""
    means = _listed(shares.at(domain=score.ALL), "temperature")
    return (
        f"**Loops.** This share of the positions ends a run of {NGRAM} tokens which the same text "
        f"has had before, in the mean of the domains: {means}."
    )


def change_in_words(name: str, beside: Estimates) -> str:
    """What leaving loops out does to one number of `side_by_side`, in words."""
    means = _listed(beside.at(domain=score.ALL).without(text=CHANGE), "text")
    change = beside.at(text=CHANGE).without(domain=score.ALL)
    return f"{name}, mean of the domains: {means}; {change.sentence(*WORDS)}."


def _listed(numbers: Estimates, by: str) -> str:
    """'0.53 [0.51, 0.56] (T = 0), 0.04 [0.03, 0.05] (T = 1)'."""
    return ", ".join(f"{one} ({name})" for name, one in numbers.groups(by))

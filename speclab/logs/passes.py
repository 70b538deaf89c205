"""Passes: one row per target pass, whether our decoder, a replay or a server made it.

A frame `passes` has the columns of COLUMNS: prompt_id, domain, turn (0 for the first answer of a
conversation), step (0 for an answer's first pass), start (tokens of the answer before the pass),
remaining (tokens of the answer from `start` to its end), drafted (draft tokens that the target
verified), accepted and emitted. The rows of an answer are together and in order.

A log without the order of its passes has a row per kind of pass of an answer, with `blocks`, how
many passes it stands for; `remaining` are all tokens that the answer's passes emit.

A pass emits its accepted tokens and one token of the target, but no token after the end of the
answer. Servers count accepted tokens before they check for the end, so the last pass of an answer
may report more accepted tokens than the answer has; `count_by_answer` cuts them.

`sums_by_request` sums them by request. `sums_at` answers for another gamma, with hard bounds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab import replay
from speclab.plain import Array

COLUMNS = ["prompt_id", "domain", "turn", "step", "start", "remaining"]
COLUMNS += ["drafted", "accepted", "emitted"]
REQUEST = ["prompt_id", "domain"]  # a request; its turns count together
MISSES, HITS = "misses", "hits"  # what an unknown position is taken for: the lower, the upper bound
SUMS = ["blocks", "drafted", "accepted", "emitted"]
LONGEST, MOST_TOKENS = 1_000, 10**7  # tokens of a draft, and of an answer
FIRST, MORE = 5, 2  # the heuristic schedule of transformers: 5 at first, 2 more after a success


@dataclass(frozen=True)
class Answer:
    """The passes of one answer, as a log reports them.

    accepted: draft tokens that each pass accepted; drafted: draft tokens that each pass verified
    (None: the log does not say). tokens: length of the answer (None: all tokens that its passes
    emit); before: its tokens before the first pass (1 where the prompt's own pass gives the first
    token). plain: further passes that had no draft, whose position the log does not say; spare: how
    many more are possible. context: tokens of the prompt. part, where: the run in the file, and the
    file and the line, for messages.
    """

    prompt_id: str
    domain: str
    accepted: Sequence[int]
    drafted: Sequence[int] | None
    tokens: int | None = None
    turn: int = 0
    before: int = 0
    plain: int = 0
    spare: float = 0
    context: float = np.nan
    part: str = ""
    where: str = ""

    @property
    def has_passes(self) -> bool:
        """Whether the answer took a target pass after the prompt's own."""
        return len(self.accepted) + self.plain > 0


def count_by_answer(answers: Iterable[Answer] | pd.DataFrame) -> pd.DataFrame:
    """The passes of answers, or of a table with their fields; `drafted` is NaN where a log does not
    say it. ValueError names the answer: no pass, lists of unequal length, more accepted than
    drafted, a draft of more than LONGEST tokens, or a pass after the end of the answer.
    """
    every = answers
    if not isinstance(every, pd.DataFrame):
        every = pd.DataFrame([vars(answer) for answer in answers])
    lists = []
    for row in every.itertuples():
        accepted = row.accepted
        drafted = [np.nan] * len(accepted) if row.drafted is None else row.drafted
        if len(drafted) != len(accepted) or not len(accepted) + row.plain:
            raise ValueError(
                f"{row.where}request {row.prompt_id!r}: {len(accepted)} passes by its accepted "
                f"tokens and {len(drafted)} by its drafted tokens; one entry per pass is needed in "
                "both"
            )
        if row.plain:  # these passes are last
            no_draft = [0] * row.plain
            accepted, drafted = [*accepted, *no_draft], [*drafted, *no_draft]
        lists.append((accepted, drafted))
    kept, tried = (np.concatenate(column) for column in zip(*lists, strict=True))
    # a pass begins after what the earlier passes of its answer emitted
    sizes = np.array([len(accepted) for accepted, _ in lists])
    del lists
    first, answer = sizes.cumsum() - sizes, np.repeat(np.arange(len(sizes), dtype="int32"), sizes)
    before = kept.cumsum() - kept + np.arange(len(kept))
    start = before - (before[first] - every["before"].to_numpy())[answer]
    emitted = np.add.reduceat(kept + 1, first) + every["before"]
    remaining = every["tokens"].astype(float).fillna(emitted).to_numpy(int)[answer] - start
    is_long = (remaining > MOST_TOKENS) | (np.fmax(kept, tried) > LONGEST)
    wrong = np.flatnonzero((kept > tried) | (remaining < 1) | is_long)
    for at in wrong[:1]:
        row = every.iloc[answer[at]]
        raise ValueError(
            f"{row['where']}request {row['prompt_id']!r}: pass {at - first[answer[at]]} accepts "
            f"{kept[at]} of {tried[at]:.0f} drafted tokens, and begins at token {start[at]} of "
            f"{start[at] + remaining[at]}; it accepts at most what it drafts ({LONGEST:,} tokens "
            "at most), before the end"
        )
    del before, is_long
    kept, start, remaining = (column.astype("int32") for column in (kept, start, remaining))
    frame = every[[*REQUEST, "turn"]].astype({"turn": "int32"}).iloc[answer]
    # the end of an answer cuts its last pass short
    return frame.reset_index(drop=True).assign(
        step=np.arange(len(kept), dtype="int32") - first.astype("int32")[answer],
        start=start,
        remaining=remaining,
        drafted=tried if tried.dtype.kind == "f" else tried.astype("int32"),
        accepted=np.minimum(kept, remaining),
        emitted=np.minimum(kept + 1, remaining),
    )


def passes_of_replay(blocks: pd.DataFrame) -> pd.DataFrame:
    """The blocks of `replay.replay` as passes: a decoder's, or one from every start."""
    step = blocks.groupby("prompt_id", sort=False).cumcount()
    return blocks.assign(turn=0, step=step)[COLUMNS]


def sums_by_request(passes: pd.DataFrame) -> pd.DataFrame:
    """The target passes and the tokens of each request: REQUEST, then SUMS. `drafted` is NaN where
    a log does not say it. The passes, or the totals of several turns (with `blocks`).
    """
    rows = passes if "blocks" in passes else passes.assign(blocks=1)
    by_request = rows.groupby(REQUEST, sort=False, observed=True)
    return by_request[SUMS].sum(min_count=1).reset_index()


def depth_counts(passes: pd.DataFrame, depth: int) -> pd.DataFrame:
    """Passes of each request at a depth: prompt_id, domain, passes (all), reached (the target
    accepted all tokens above, the draft has a token here and the answer goes on) and accepted.

    If it is not known what was drafted, every pass counts as having a token here.
    """
    is_short = passes["drafted"] < depth
    above = passes["accepted"] >= depth - 1
    goes_on = passes["remaining"] >= depth
    accepted = passes["accepted"] >= depth
    reached = ~is_short & above & goes_on
    blocks = passes.get("blocks", 1)  # that a row stands for
    counts = {"passes": 1, "reached": reached, "accepted": accepted}
    flags = passes[REQUEST].assign(**{name: flag * blocks for name, flag in counts.items()})
    return flags.groupby(REQUEST, sort=False, observed=True).sum().reset_index()


# ---- another gamma -------------------------------------------------------------------------------


def trace_of(passes: pd.DataFrame, unknown: str) -> pd.DataFrame:
    """What the passes say of each position of the answers: prompt_id, domain, position and
    draft_rank (0: the draft's top token was the target's, 1: it was not).

    It needs a chain at T = 0 by a draft whose q does not depend on where the block began. An
    accepted token is a hit and the token after a rejection a miss. The token after a fully accepted
    draft is `unknown`: HITS or MISSES. Positions count from the first pass; prompt_id holds the
    turn. The log must say how many tokens were drafted.
    """
    rows = passes.loc[passes.index.repeat(passes["emitted"])]
    ahead = rows.groupby(level=0).cumcount()
    is_hit = ahead < rows["accepted"]
    is_known = is_hit | (rows["accepted"] < rows["drafted"])
    is_miss = ~is_hit & (is_known | (unknown == MISSES))
    answer = rows["prompt_id"].astype(str) + _BETWEEN + rows["turn"].astype(str)
    position = rows.groupby(answer.to_numpy(), sort=False).cumcount()
    frame = pd.DataFrame(
        {
            "prompt_id": answer,
            "domain": rows["domain"],
            "position": position,
            "draft_rank": is_miss.astype("int64"),
        }
    )
    return frame.reset_index(drop=True)


_BETWEEN = "\N{UNIT SEPARATOR}"  # of a prompt's name and its turn


def sums_at(passes: pd.DataFrame, gammas: Iterable[int], unknown: str) -> pd.DataFrame:
    """`replay.chain_sums` of other gammas by prompt: a lower bound of tokens per pass if unknown
    positions are MISSES, an upper bound if they are HITS. Conditions as of `trace_of`.
    """
    if "blocks" in passes:
        parts = [sums_without_order(passes, gamma, unknown) for gamma in gammas]
        return pd.concat(parts, ignore_index=True)
    sums = replay.chain_sums(trace_of(passes, unknown), gammas)
    prompt = sums["prompt_id"].str.partition(_BETWEEN)[0]
    by = ["gamma", "prompt_id", "domain"]
    return sums.assign(prompt_id=prompt).groupby(by, sort=False).sum().reset_index()


def sums_without_order(passes: pd.DataFrame, gamma: int, unknown: str) -> pd.DataFrame:
    """`sums_at` for one gamma from rows that stand for several passes (`blocks`), in any order.

    A pass that accepts a of k tokens is a run of a hits and, if a < k, a miss. So with gamma it
    takes ceil((a + 1) / (gamma + 1)) blocks, wherever it stands, and the next pass begins a block.
    After a = k the token is unknown. As MISSES every pass ends a block: the bound that the order
    gives, too. As HITS a full pass may go on into the next one, which only the order would say,
    unless gamma + 1 divides k + 1. Without the order it adds no block, and a block holds gamma + 1
    tokens at most: this bound is hard, and wider than with the order. Where every full pass ends a
    block, both are equal and exact. Tokens past the end of an answer, which vLLM counts, may take a
    block away, so there both are bounds, too.
    """
    whole = -(-(passes["accepted"] + 1) // (gamma + 1))
    counted = passes.assign(tokens=(passes["accepted"] + 1) * passes["blocks"])
    if unknown == HITS:
        whole *= (passes["accepted"] < passes["drafted"]) | (
            (passes["drafted"] + 1) % (gamma + 1) == 0
        )
    counted["blocks"] *= whole
    by = [*REQUEST, "turn", "remaining"]
    sums = counted.groupby(by, sort=False, observed=True)[["blocks", "tokens"]].sum().reset_index()
    sums["emitted"] = sums["remaining"]
    if unknown == HITS:
        past = np.ceil((sums["tokens"] - sums["emitted"]).clip(lower=0) / (gamma + 1))
        is_own = (passes["drafted"].isin([0, gamma])).all()
        sums["blocks"] = np.maximum(
            sums["blocks"] - past * (not is_own), np.ceil(sums["emitted"] / (gamma + 1))
        )
    kept = sums.groupby(REQUEST, sort=False, observed=True)[["blocks", "emitted"]].sum()
    return kept.reset_index().assign(gamma=gamma)


def heuristic_drafted(accepted: Sequence[int]) -> Array:
    """The draft length of each pass by the heuristic schedule of transformers, int [passes]: FIRST,
    then MORE after a fully accepted draft, else one less (1 at least).

    ValueError if a pass accepts more than its draft would hold: the schedule was another one.
    """
    drafted = np.empty(len(accepted), np.int64)
    length = FIRST
    for step, kept in enumerate(accepted):
        if kept > length:
            raise ValueError(
                f"pass {step} accepts {kept} tokens where the heuristic schedule drafts {length}: "
                "the log was made with another schedule"
            )
        drafted[step] = length
        length = length + MORE if kept == length else max(length - 1, 1)
    return drafted

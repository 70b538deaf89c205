"""Passes: one row per target pass, whether our decoder, a replay or a server made it.

A frame `passes` has the columns of COLUMNS: prompt_id, domain, turn (0 for the first answer of a
conversation), step (0 for an answer's first pass), start (tokens of the answer before the pass),
remaining (tokens of the answer from `start` to its end), drafted (draft tokens that the target
verified), accepted and emitted. The rows of an answer are together and in order.

A log without the order of its passes has a row per kind of pass of an answer, with `blocks`, how
many passes it stands for; `remaining` are all tokens that the answer's passes emit, and `emitted`
is a mean.

A pass emits its accepted tokens and one token of the target, but no token after the end of the
answer. Servers count accepted tokens before they check for the end, so the last pass of an answer
may report more accepted tokens than the answer has; `count_by_answer` cuts them.

`sums_by_request` sums them by request. `sums_at` answers for another gamma, with hard bounds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from speclab import replay

COLUMNS = ["prompt_id", "domain", "turn", "step", "start", "remaining"]
COLUMNS += ["drafted", "accepted", "emitted"]
REQUEST = ["prompt_id", "domain"]  # a request; its turns count together
MISSES, HITS = "misses", "hits"  # what an unknown position is taken for: the lower, the upper bound
SUMS = ["blocks", "drafted", "accepted", "emitted"]
LONGEST = 1_000  # tokens of a draft
HEURISTIC = "heuristic"  # in place of a draft length: the schedule of transformers
FIRST, MORE = 5, 2  # the heuristic schedule of transformers: 5 at first, 2 more after a success


@dataclass(frozen=True)
class Answer:
    """What a log says of one answer, of some lines of a server, or of one setting.

    accepted: draft tokens that each pass accepted; drafted: draft tokens that each pass verified
    (None: the log does not say). tokens: length of the answer (None: all tokens that its passes
    emit); before: its tokens before the first pass (1 where the prompt's own pass gives the first
    token). plain: further passes that had no draft, whose position the log does not say. context:
    tokens of the prompt (NaN: the log does not say). part, where: the run in the file, and the file
    and the line, for messages. method: what drafted, in the engine's words. misfit: what its counts
    by depth add up to, if they are left out because the totals say something else.

    If the log does not give the order of the passes, `totals` has the answer's SUMS, and accepted
    and drafted have one entry per kind of pass, `blocks` how many passes are of it. They are empty
    if the log has totals only.
    """

    prompt_id: str
    domain: str
    accepted: Sequence[float]
    drafted: Sequence[float] | None = None
    tokens: int | None = None
    turn: int = 0
    before: int = 0
    plain: int = 0
    where: str = ""
    part: str = ""
    method: str = ""
    misfit: str = ""
    context: float = np.nan
    blocks: Sequence[float] = ()
    totals: Sequence[float] = ()


def count_by_answer(answers: Sequence[Answer] | pd.DataFrame) -> pd.DataFrame:
    """The passes of answers, or of a frame of their fields; `drafted` is NaN where a log does not
    say it. ValueError names the answer: no pass, lists of unequal length, more accepted than
    drafted, or a pass after the end of the answer.
    """
    table = pd.DataFrame(answers)
    kept, tried = [], []
    for answer in table[["prompt_id", "where", "accepted", "drafted", "plain"]].itertuples():
        accepted, drafted = answer.accepted, answer.drafted
        if drafted is None:
            drafted = [np.nan] * len(accepted)
        if len(drafted) != len(accepted) or not len(accepted) + answer.plain:
            raise ValueError(
                f"{answer.where}request {answer.prompt_id!r}: {len(accepted)} passes by its "
                f"accepted tokens and {len(drafted)} by its drafted tokens; one entry per pass is "
                "needed in both"
            )
        no_draft = np.zeros(answer.plain, "int32")  # these passes are last
        kept.append(np.append(np.asarray(accepted, "int32"), no_draft))
        tried.append(np.append(drafted, no_draft))
    table = table.astype({"turn": "int32", "before": "int32", "tokens": float})
    number = table.index.repeat([len(accepted) for accepted in kept])
    rows = table[[*REQUEST, "turn", "before", "tokens"]].reindex(number)  # no lists: memory
    # a pass begins after what the earlier passes of its answer emitted
    whole = pd.Series(np.concatenate(kept) + 1, number)
    drafts = np.concatenate(tried)
    del kept, tried  # memory
    of_answer = whole.groupby(level=0)
    start = of_answer.cumsum() - whole + rows["before"]
    tokens = rows["tokens"].fillna(of_answer.transform("sum") + rows["before"])
    remaining = tokens.astype("int32") - start
    # the end of an answer cuts its last pass short
    frame = rows[[*REQUEST, "turn"]].assign(
        step=of_answer.cumcount().astype("int32"),
        start=start,
        remaining=remaining,
        drafted=drafts,
        accepted=np.minimum(whole - 1, remaining),
        emitted=np.minimum(whole, remaining),
    )
    wrong = (whole - 1 > frame["drafted"]) | (remaining < 1)
    if wrong.any():
        row = frame[wrong].iloc[0]
        raise ValueError(
            f"{table['where'][row.name]}request {row.prompt_id!r}: pass {row.step} accepts "
            f"{whole[wrong].iloc[0] - 1} of {row.drafted:.0f} drafted tokens, and begins at token "
            f"{row.start} of {row.start + row.remaining}; it accepts at most what it drafts, "
            "before the end"
        )
    return frame.reset_index(drop=True)


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


def sum_counts(passes: pd.DataFrame, /, **counts: Any) -> pd.DataFrame:
    """Counts of each row's passes, summed by request: REQUEST, then the counts by their names. A
    row stands for `blocks` passes, if there is this column.
    """
    blocks = passes.get("blocks", 1)
    weighted = {name: count * blocks for name, count in counts.items()}
    rows = passes[REQUEST].assign(**weighted)
    return rows.groupby(REQUEST, sort=False, observed=True).sum().reset_index()


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
    return sum_counts(passes, passes=1, reached=reached, accepted=accepted)


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
    ends = (rows["accepted"] < rows["drafted"]) | (unknown == MISSES)
    is_miss = ~is_hit & ends
    answer = rows["prompt_id"].astype(str) + _BETWEEN + rows["turn"].astype(str)
    position = rows.groupby(answer.to_numpy(), sort=False).cumcount()
    trace = rows[["domain"]].assign(prompt_id=answer, position=position, draft_rank=is_miss * 1)
    return trace.reset_index(drop=True)


_BETWEEN = "\N{UNIT SEPARATOR}"  # of a prompt's name and its turn


def sums_at(passes: pd.DataFrame, gammas: Iterable[int], unknown: str) -> pd.DataFrame:
    """`replay.chain_sums` of other gammas by prompt: a lower bound of tokens per pass if unknown
    positions are MISSES, an upper bound if they are HITS. Conditions as of `trace_of`.
    """
    if "blocks" in passes:
        parts = {gamma: sums_without_order(passes, gamma, unknown) for gamma in gammas}
        return pd.concat(parts, names=["gamma"]).reset_index(level=0)
    sums = replay.chain_sums(trace_of(passes, unknown), gammas)
    prompt = sums["prompt_id"].str.partition(_BETWEEN)[0]
    by = ["gamma", "prompt_id", "domain"]
    return sums.assign(prompt_id=prompt).groupby(by, sort=False).sum().reset_index()


def sums_without_order(passes: pd.DataFrame, gamma: int, unknown: str) -> pd.DataFrame:
    """`sums_at` for one gamma, from rows that stand for several passes (`blocks`) in any order.

    A pass that accepts a of k tokens is a run of a hits and, if a < k, a miss. With gamma it takes
    ceil((a + 1) / (gamma + 1)) blocks, and the next pass begins a block. After a = k the token is
    unknown. As MISSES every pass ends a block, as with the order. As HITS a full pass may go on
    into the next one, unless gamma + 1 divides k + 1, so it adds no block. A block holds gamma + 1
    tokens at most. Tokens past the end of an answer, which vLLM counts, are in one pass.
    """
    size = gamma + 1
    blocks = -(-(passes["accepted"] + 1) // size)
    longest = blocks.max()
    if unknown == HITS:
        is_full = passes["accepted"] == passes["drafted"]
        blocks *= ~is_full | ((passes["drafted"] + 1) % size == 0)
    tokens = passes["accepted"] + 1
    sums = sum_counts(passes, blocks=blocks, emitted=passes["emitted"], tokens=tokens).round(6)
    if unknown == HITS:
        fewest = sums["blocks"] - (longest - 1) * (sums["tokens"] > sums["emitted"])
        sums["blocks"] = np.maximum(fewest, np.ceil(sums["emitted"] / size))
    return sums.drop(columns="tokens")


def drafted_of(accepted: pd.Series, length: int | str) -> pd.Series:
    """The draft lengths of each answer's passes: `length` each, or by `heuristic_drafted` if it is
    HEURISTIC.
    """
    if length == HEURISTIC:
        return accepted.map(heuristic_drafted)
    return accepted.map(partial(np.full_like, fill_value=int(length)))


def heuristic_drafted(accepted: Sequence[int]) -> list[int]:
    """The draft length of each pass by the heuristic schedule of transformers: FIRST, then MORE
    after a fully accepted draft, else one less (1 at least).

    ValueError if a pass accepts more than its draft would hold: the schedule was another one.
    """
    drafted = []
    length = FIRST
    for step, kept in enumerate(accepted):
        if kept > length:
            raise ValueError(
                f"pass {step} accepts {kept} tokens where the heuristic schedule drafts {length}: "
                "the log was made with another schedule"
            )
        drafted.append(length)
        length = length + MORE if kept == length else max(length - 1, 1)
    return drafted

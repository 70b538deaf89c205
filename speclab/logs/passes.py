"""Passes: one row per target pass, whether our decoder, a replay or a server made it.

A frame `passes` has the columns of COLUMNS: prompt_id, domain, turn (0 for the first answer of a
conversation), step (0 for an answer's first pass), start (tokens of the answer before the pass),
remaining (tokens of the answer from `start` to its end), drafted (draft tokens that the target
verified), accepted and emitted. The rows of an answer are together and in order.

A pass emits its accepted tokens and one token of the target, but no token after the end of the
answer. Servers count accepted tokens before they check for the end, so the last pass of an answer
may report more accepted tokens than the answer has; `of_answers` cuts them.

`as_blocks` turns passes into the frame of `replay.replay`, so every estimator, interval and picture
takes them unchanged. `sums_at` answers for another gamma, with hard bounds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab import replay
from speclab.plain import Array
from speclab.score import require

COLUMNS = ["prompt_id", "domain", "turn", "step", "start", "remaining"]
COLUMNS += ["drafted", "accepted", "emitted"]
REQUEST = ["prompt_id", "domain"]  # a request; its turns count together
MISSES, HITS = "misses", "hits"  # what an unknown position is taken for: the lower, the upper bound
PART = 500_000  # passes that are summed at once
FIRST, MORE = 5, 2  # the heuristic schedule of transformers: 5 at first, 2 more after a success


@dataclass(frozen=True)
class Answer:
    """The passes of one answer, as a log reports them.

    accepted: draft tokens that each pass accepted; drafted: draft tokens that each pass verified
    (None: the log does not say). tokens: length of the answer (None: all tokens that its passes
    emit); before: its tokens before the first pass (1 where the prompt's own pass gives the first
    token). plain: further passes that had no draft, whose position the log does not say. where: the
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
    where: str = ""

    @property
    def name(self) -> str:
        """The answer in a message."""
        name = f"request {self.prompt_id!r}"
        return f"{self.where}: {name}" if self.where else name

    @property
    def has_passes(self) -> bool:
        """Whether the answer took a target pass after the prompt's own."""
        return len(self.accepted) + self.plain > 0

    def padded(self, counts: Sequence[int] | None) -> Array:
        """Counts of all passes, int32 [passes], or NaN where they are unknown; passes without a
        draft are last and have 0.
        """
        unknown = np.full(len(self.accepted), np.nan)
        known = unknown if counts is None else np.asarray(counts, np.int32)
        return np.append(known, np.zeros(self.plain, np.int32))


def of_answers(answers: Iterable[Answer]) -> pd.DataFrame:
    """The passes of answers; `drafted` is NaN where a log does not say it. ValueError names the
    answer: no pass, lists of unequal length, more accepted than drafted, or a pass after the end of
    the answer.
    """
    answers = list(answers)
    for answer in answers:
        _check_lists(answer)
    # one row per pass: its answer and its number in the answer
    passes_of = np.array([len(answer.accepted) + answer.plain for answer in answers])
    first = np.cumsum(passes_of) - passes_of
    at = np.repeat(np.arange(len(answers)), passes_of)  # of each pass, its answer
    step = np.arange(len(at)) - first[at]
    accepted = np.concatenate([answer.padded(answer.accepted) for answer in answers])
    drafted = np.concatenate([answer.padded(answer.drafted) for answer in answers])
    wrong = (accepted < 0) | (accepted > drafted)
    if wrong.any():
        row = wrong.argmax()
        raise ValueError(
            f"{answers[at[row]].name}: pass {step[row]} accepts {accepted[row]} of "
            f"{drafted[row]:.0f} drafted tokens"
        )
    # where each pass begins: after what the earlier passes of its answer emitted
    whole = accepted.astype(np.int64) + 1
    before_pass = np.cumsum(whole) - whole
    before_answer = np.array([answer.before for answer in answers]) - before_pass[first]
    start = before_pass + before_answer[at]
    ends = np.add.reduceat(whole, first) + before_pass[first] + before_answer
    tokens = np.array([answer.tokens for answer in answers], float)
    length = np.where(np.isnan(tokens), ends, tokens).astype(np.int64)
    remaining = length[at] - start
    if (remaining < 1).any():
        row = (remaining < 1).argmax()
        raise ValueError(
            f"{answers[at[row]].name}: pass {step[row]} begins at token {start[row]}, and the "
            f"answer has {length[at[row]]} tokens"
        )
    # the end of an answer cuts its last pass short
    facts = [(answer.prompt_id, answer.domain, answer.turn) for answer in answers]
    frame = pd.DataFrame(facts, columns=["prompt_id", "domain", "turn"])
    frame = frame.astype({"turn": "int32"}).iloc[at].reset_index(drop=True)
    counts = {
        "step": step,
        "start": start,
        "remaining": remaining,
        "drafted": drafted,
        "accepted": np.minimum(accepted, remaining),
        "emitted": np.minimum(whole, remaining),
    }
    for name, values in counts.items():
        is_known = values.dtype.kind == "i"
        frame[name] = values.astype(np.int32) if is_known else values
    return frame[COLUMNS]


def _check_lists(answer: Answer) -> None:
    """ValueError for an answer without a pass, or whose lists have different lengths."""
    accepted, drafted = len(answer.accepted), answer.drafted
    of_drafted = accepted if drafted is None else len(drafted)
    if of_drafted != accepted or not answer.has_passes:
        raise ValueError(
            f"{answer.name}: {accepted} passes by its accepted tokens and {of_drafted} by its "
            "drafted tokens; one entry per pass is needed in both"
        )


def of_replay(blocks: pd.DataFrame) -> pd.DataFrame:
    """The blocks of `replay.replay` as passes: a decoder's, or one from every start."""
    require(blocks, ["prompt_id", "domain", "start", "remaining", *replay.COUNTS], "blocks")
    step = blocks.groupby("prompt_id", sort=False).cumcount()
    return blocks.assign(turn=0, step=step)[COLUMNS]


def as_blocks(passes: pd.DataFrame) -> pd.DataFrame:
    """Passes as the frame of `replay.replay`: one row per pass, with survival_1 … up to the longest
    draft.
    """
    require(passes, COLUMNS, "passes")
    known = passes.drop(columns=["turn", "step"])
    truncated = passes["accepted"] == passes["remaining"]
    depths = range(1, max(passes["accepted"].max(), 1) + 1)
    survival = {f"survival_{d}": (passes["accepted"] >= d).astype(float) for d in depths}
    return known.assign(weight=1.0, truncated=truncated, **survival)


def sums_by_request(passes: pd.DataFrame) -> pd.DataFrame:
    """`replay.prompt_sums` of passes. They are summed in parts, so that the passes of a large log
    need little memory.
    """
    parts = []
    for begin in range(0, len(passes), PART):
        part = as_blocks(passes.iloc[begin : begin + PART])
        parts.append(replay.prompt_sums(part))
    together = pd.concat(parts, ignore_index=True).fillna(0.0)
    by_prompt = together.groupby(REQUEST, sort=False, observed=True)
    return by_prompt.sum().reset_index()


def depth_counts(passes: pd.DataFrame, depth: int) -> pd.DataFrame:
    """Passes of each request at a depth: prompt_id, domain, passes (all), reached (the target
    accepted all tokens above, the draft has a token here and the answer goes on) and accepted.

    If it is not known what was drafted, every pass counts as having a token here.
    """
    has_token = passes["drafted"].isna() | (passes["drafted"] >= depth)
    above = passes["accepted"] >= depth - 1
    goes_on = passes["remaining"] >= depth
    accepted = passes["accepted"] >= depth
    reached = has_token & above & goes_on
    flags = passes[REQUEST].assign(passes=1, reached=reached, accepted=accepted)
    return flags.groupby(REQUEST, sort=False, observed=True).sum().reset_index()


# ---- another gamma -------------------------------------------------------------------------------


def trace_of(passes: pd.DataFrame, unknown: str) -> pd.DataFrame:
    """What the passes say of each position of the answers: prompt_id, domain, position and
    draft_rank (0: the draft's top token was the target's, 1: it was not).

    It needs a chain at T = 0 by a draft whose q does not depend on where the block began. An
    accepted token is a hit and the token after a rejection a miss. The token after a fully accepted
    draft is `unknown`: HITS or MISSES. Positions count from the first pass; prompt_id holds the
    turn. ValueError where the log does not say how many tokens were drafted.
    """
    require(passes, COLUMNS, "passes")
    if passes["drafted"].isna().any():
        raise ValueError(
            "passes: the log does not say how many tokens each pass drafted, so no other gamma can "
            "be judged; name the draft length (--drafted)"
        )
    replay.among("unknown", unknown, (MISSES, HITS))
    rows = passes.loc[passes.index.repeat(passes["emitted"])]
    ahead = rows.groupby(level=0).cumcount()
    is_hit = ahead < rows["accepted"]
    is_known = is_hit | (rows["accepted"] < rows["drafted"])
    is_miss = ~is_hit & (is_known | (unknown == MISSES))
    answer = rows["prompt_id"].astype(str) + f"{_BETWEEN}" + rows["turn"].astype(str)
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
    sums = replay.chain_sums(trace_of(passes, unknown), gammas)
    prompt = sums["prompt_id"].str.partition(_BETWEEN)[0]
    by = ["gamma", "prompt_id", "domain"]
    return sums.assign(prompt_id=prompt).groupby(by, sort=False).sum().reset_index()


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

"""Passes: one row per target pass, whether our decoder, a replay or a server made it.

A frame `passes` has the columns of COLUMNS: prompt_id, domain, turn (0 for the first answer of a
conversation), step (0 for an answer's first pass), start (tokens of the answer before the pass),
remaining (tokens of the answer from `start` to its end), drafted (draft tokens that the target
verified), accepted and emitted. The rows of an answer are together and in order.

A pass emits its accepted tokens and one token of the target, but no token after the end of the
answer. Servers count accepted tokens before they check for the end, so the last pass of an answer
may report more accepted tokens than the answer has; `of_answers` cuts them.

`blocks` turns passes into the frame of `replay.replay`, so every estimator, interval and picture
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
MISSES, HITS = "misses", "hits"  # what an unknown position is taken for: the lower, the upper bound
FIRST, MORE = 5, 2  # the heuristic schedule of transformers: 5 at first, 2 more after a success


@dataclass(frozen=True)
class Answer:
    """The passes of one answer, as a log reports them.

    accepted: draft tokens that each pass accepted; drafted: draft tokens that each pass verified
    (None: the log does not say). tokens: length of the answer (None: all tokens that its passes
    emit); before: its tokens before the first pass (1 where the prompt's own pass gives the first
    token). plain: further passes that had no draft, whose position the log does not say.
    """

    prompt_id: str
    domain: str
    accepted: Sequence[int]
    drafted: Sequence[int] | None
    tokens: int | None = None
    turn: int = 0
    before: int = 0
    plain: int = 0

    @property
    def has_passes(self) -> bool:
        """Whether the answer took a target pass after the prompt's own."""
        return len(self.accepted) + self.plain > 0

    def padded(self, counts: Sequence[int] | None) -> Array:
        """Counts of all passes, float [passes]: those without a draft are last and have 0; NaN:
        unknown.
        """
        known = np.full(len(self.accepted), np.nan) if counts is None else np.asarray(counts, float)
        return np.append(known, np.zeros(self.plain))


def of_answers(answers: Iterable[Answer]) -> pd.DataFrame:
    """The passes of answers; `drafted` is NaN where a log does not say it. ValueError names the
    answer: no pass, lists of unequal length, more accepted than drafted, or a pass after the end of
    the answer.
    """
    answers = list(answers)
    for answer in answers:
        _check(answer)
    steps = [len(answer.accepted) + answer.plain for answer in answers]
    facts = [(a.prompt_id, a.domain, a.turn, a.before, a.tokens) for a in answers]
    frame = pd.DataFrame(facts, columns=["prompt_id", "domain", "turn", "before", "tokens"])
    frame = frame.loc[np.repeat(frame.index, steps)].reset_index(names="answer")
    frame["accepted"] = np.concatenate([a.padded(a.accepted) for a in answers]).astype("int64")
    frame["drafted"] = np.concatenate([a.padded(a.drafted) for a in answers])
    if frame["drafted"].notna().all():
        frame["drafted"] = frame["drafted"].astype("int64")
    of_answer = frame.groupby("answer", sort=False)
    whole = frame["accepted"] + 1
    emitted_before = whole.groupby(frame["answer"]).cumsum() - whole
    frame["step"] = of_answer.cumcount()
    frame["start"] = frame["before"] + emitted_before
    ends = frame["before"] + whole.groupby(frame["answer"]).transform("sum")
    frame["remaining"] = frame["tokens"].fillna(ends).astype("int64") - frame["start"]
    after = frame["remaining"] < 1
    if after.any():
        row = frame[after].iloc[0]
        raise ValueError(
            f"request {row['prompt_id']!r}: pass {row['step']} begins at token {row['start']}, and "
            f"the answer has {row['tokens']:.0f} tokens"
        )
    frame["emitted"] = whole.clip(upper=frame["remaining"])
    frame["accepted"] = frame["accepted"].clip(upper=frame["remaining"])
    return frame[COLUMNS]


def _check(answer: Answer) -> None:
    """ValueError for an answer whose lists do not fit each other."""
    accepted = np.asarray(answer.accepted)
    drafted = accepted if answer.drafted is None else np.asarray(answer.drafted)
    if accepted.shape != drafted.shape or not accepted.size:
        raise ValueError(
            f"request {answer.prompt_id!r}: {accepted.size} passes by its accepted tokens and "
            f"{drafted.size} by its drafted tokens; one entry per pass is needed in both"
        )
    wrong = (accepted < 0) | (accepted > drafted)
    if wrong.any():
        step = wrong.argmax()
        raise ValueError(
            f"request {answer.prompt_id!r}: pass {step} accepts {accepted[step]} of "
            f"{drafted[step]} drafted tokens"
        )


def of_blocks(blocks: pd.DataFrame) -> pd.DataFrame:
    """The passes that a replay visits (`replay.replay`, starts="visited")."""
    require(blocks, ["prompt_id", "domain", "start", "remaining", *replay.COUNTS], "blocks")
    step = blocks.groupby("prompt_id", sort=False).cumcount()
    return blocks.assign(turn=0, step=step)[COLUMNS]


def blocks(passes: pd.DataFrame) -> pd.DataFrame:
    """Passes as the frame of `replay.replay`: one row per pass, with survival_1 … up to the longest
    draft.
    """
    require(passes, COLUMNS, "passes")
    known = passes.drop(columns=["turn", "step"])
    truncated = passes["accepted"] == passes["remaining"]
    depths = range(1, max(passes["accepted"].max(), 1) + 1)
    survival = {f"survival_{d}": (passes["accepted"] >= d).astype(float) for d in depths}
    return known.assign(weight=1.0, truncated=truncated, **survival)


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

"""Starts: how many tokens are accepted of a block that begins at a position, and the blocks of a
chain.

A frame `starts` has one row for each proposer and each position at which a block can begin:
prompt_id, domain, position, proposer, accepted (the number of drafted tokens from here on that the
target accepts in a row), remaining (the number of tokens from here to the end of the text, with
this token), limit (the largest number of drafted tokens that was tried), and prompt_tokens (the
prompt's length) if it is known. The rows of a text are consecutive, from its first start (position
0, or 1 if the first token came with the prompt's own pass) to its last token.

At temperature 0 this record is enough for a chain of any gamma up to `limit`. It also works for
drafts for which `draft_rank` is not enough. The q of EAGLE's or Medusa's heads depends on the start
of the block, because they read their own features or a cache from the last block. So their accepted
tokens must be recorded for each start.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from speclab import score
from speclab.plain import Array
from speclab.replay import sums_by_gamma
from speclab.tree import check_limit

NEEDED = ["prompt_id", "domain", "position", "proposer", "accepted", "remaining", "limit"]


def replay_starts(starts: pd.DataFrame, gamma: int | Array) -> pd.DataFrame:
    """Blocks of a chain of `gamma` drafted tokens by one proposer. The frame has the columns of
    `replay.replay` with the same meaning, and also prompt_tokens and any further columns of the
    starts.

    gamma: one number, or int [rows], the number of tokens to draft at each row (0: nothing is
    drafted there). Raises ValueError for
    missing columns, no rows, several proposers, a gamma larger than the recorded limit, and
    incomplete texts.
    """
    longest = max(gamma.max(), 1) if isinstance(gamma, np.ndarray) else gamma
    check_limit("gamma", longest)
    _check(starts, gamma)
    remaining = starts["remaining"]
    drafted = remaining.clip(upper=gamma)
    accepted = starts["accepted"].clip(upper=drafted)
    truncated = accepted == remaining
    known = starts.drop(columns=["proposer", "accepted", "remaining", "limit"])
    blocks = known.rename(columns={"position": "start"})
    blocks = blocks.assign(
        remaining=remaining,
        weight=1.0,
        drafted=drafted,
        accepted=accepted,
        emitted=accepted + 1 - truncated,
        truncated=truncated,
    )
    blocks = blocks[visited(blocks["emitted"].to_numpy(), remaining.to_numpy())]
    survival = {}
    for depth in range(1, longest + 1):
        reaches = blocks["accepted"] >= depth
        survival[f"survival_{depth}"] = reaches.astype(float)
    return blocks.assign(**survival).reset_index(drop=True)


def sums_of_starts(starts: pd.DataFrame, gammas: Iterable[int]) -> pd.DataFrame:
    """Sums of a chain for each gamma and prompt, as `replay.chain_sums`. Raises ValueError as
    `replay_starts` does.
    """
    return sums_by_gamma(lambda gamma: replay_starts(starts, gamma), gammas)


def visited(emitted: Array, remaining: Array) -> Array:
    """Where a decoder's blocks begin, bool [rows]: at the first row of each text and after every
    block.

    emitted, remaining: int [rows], for a block that begins at each row. The rows of a text are
    consecutive, up to its last row (remaining 1).
    """
    begins = np.zeros(len(remaining), bool)
    follows_end = remaining[:-1] == 1
    at = np.flatnonzero(np.append(True, follows_end))
    while at.size:
        begins[at] = True
        goes_on = emitted[at] < remaining[at]
        at = (at + emitted[at])[goes_on]
    return begins


def _check(starts: pd.DataFrame, gamma: int | Array) -> None:
    """Refuses what would silently give a wrong number; see `replay_starts`."""
    score.require(starts, NEEDED, "starts")
    proposers = starts["proposer"].unique()
    if len(proposers) > 1:
        raise ValueError(
            f"starts has the proposers {', '.join(map(repr, proposers))}: a chain has one "
            "proposer, so keep the rows of one"
        )
    if (gamma > starts["limit"]).any():
        raise ValueError(
            f"gamma={np.max(gamma)}: blocks of {proposers[0]!r} were recorded up to "
            f"{starts['limit'].min()} drafted tokens; give at most that gamma"
        )
    text = starts[["prompt_id", "remaining"]]
    following = text.shift(-1)
    is_next = text["remaining"] - 1 == following["remaining"]
    goes_on = (text["prompt_id"] == following["prompt_id"]) & is_next
    wrong = ~(goes_on | (text["remaining"] == 1))
    if wrong.any():
        row = starts[wrong].iloc[0]
        raise ValueError(
            f"starts: rows of prompt {row['prompt_id']!r} are missing or out of order after "
            f"position {row['position']}; filter whole prompts"
        )

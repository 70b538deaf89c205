"""Starts: what a block that begins at a position gets accepted, and the blocks of a chain.

A frame `starts` has one row for each position of a text at which a block can begin, for each
proposer: prompt_id, domain, position, proposer, accepted (drafted tokens, counted from here, that
the target accepts in a row), remaining (tokens of this text from here to its end, this one
included), limit (how many drafted tokens were tried at most: accepted never exceeds it), and
prompt_tokens (the prompt's length) where it is known. The rows of a text stand together, in order,
from its first start (position 0, or 1 where the first token came with the prompt's own pass) to its
last token.

It is the one record that a chain of any gamma up to `limit` needs at temperature 0, and it asks
less of the draft than `draft_rank` does: a draft that reads its own features or a cache that the
last block left (EAGLE's head, Medusa's) has a q that depends on where the block began, so its
accepted tokens are no run of ranks and must be recorded start by start.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from speclab import score
from speclab.plain import Array
from speclab.replay import STARTS, among, sums_by_gamma
from speclab.tree import check_limit

NEEDED = ["prompt_id", "domain", "position", "proposer"]
NEEDED += ["accepted", "remaining", "limit"]


def replay_starts(starts: pd.DataFrame, gamma: int | Array, which: str = "visited") -> pd.DataFrame:
    """Blocks of a chain of `gamma` drafted tokens by one proposer: the frame of `replay.replay`,
    with its columns and its meaning, so that what reads that reads this; prompt_tokens and
    further columns of the starts go along.

    gamma: one number, or int [rows], of a block that begins at each row (0 in some: it drafts
    nothing there). which: "visited" or "every", as `starts` of `replay`. ValueError: columns
    missing, no rows, several proposers, gamma beyond what was recorded, texts that are not whole.
    """
    among("which", which, STARTS)
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
    if which == "visited":
        begins = visited(blocks["emitted"].to_numpy(), remaining.to_numpy())
        blocks = blocks[begins]
    survival = {}
    for depth in range(1, longest + 1):
        reaches = blocks["accepted"] >= depth
        survival[f"survival_{depth}"] = reaches.astype(float)
    return blocks.assign(**survival).reset_index(drop=True)


def sums_of_starts(
    starts: pd.DataFrame, gammas: Iterable[int], which: str = "visited"
) -> pd.DataFrame:
    """Per-prompt sums of a chain for each gamma, as `replay.chain_sums`; errors of
    `replay_starts`.
    """
    return sums_by_gamma(lambda gamma: replay_starts(starts, gamma, which), gammas)


def visited(emitted: Array, remaining: Array) -> Array:
    """Where a decoder's block begins, bool [rows]: at each text's first row, and after every
    block.

    emitted, remaining: int [rows], of a block that begins at each row; the rows of a text stand
    together, in order, to its last (remaining 1).
    """
    begins = np.zeros(len(remaining), bool)
    at = np.flatnonzero(np.append(True, remaining[:-1] == 1))
    while at.size:
        begins[at] = True
        goes_on = emitted[at] < remaining[at]
        at = (at + emitted[at])[goes_on]
    return begins


def _check(starts: pd.DataFrame, gamma: int | Array) -> None:
    """What would give a wrong number silently: see `replay_starts`."""
    score.require(starts, NEEDED, "starts")
    proposers = starts["proposer"].unique()
    if len(proposers) > 1:
        raise ValueError(
            f"starts has the proposers {', '.join(map(repr, proposers))}: a chain is one "
            "proposer's; keep the rows of one"
        )
    limit = starts["limit"].min()
    if (gamma > starts["limit"]).any():
        raise ValueError(
            f"gamma={np.max(gamma)}: {limit} drafted tokens per block were recorded of "
            f"{proposers[0]!r}; give a gamma up to {limit}"
        )
    text = starts[["prompt_id", "remaining"]]
    following = text.shift(-1)
    is_next = text["remaining"] - 1 == following["remaining"]
    goes_on = (text["prompt_id"] == following["prompt_id"]) & is_next
    wrong = ~(goes_on | (text["remaining"] == 1))
    if wrong.any():
        row = starts[wrong].iloc[0]
        raise ValueError(
            f"starts: prompt {row['prompt_id']!r} does not go on as it should after position "
            f"{row['position']}; a text's rows stand together to its end: filter whole prompts"
        )

"""Prompt lookup: proposing a block by copying from the text so far, and its exact replay.

Before each block we look up the last tokens in the text so far. The longest suffix of at most
LONGEST tokens that occurred before is used, at its most recent occurrence. The tokens that followed
it are copied, up to MOST tokens. If the copy reaches the end of the text, it continues within the
copied tokens. Source: Saxena, 'Prompt Lookup Decoding' (2023).
"""

from collections.abc import Sequence

import numpy as np

from speclab.plain import Array

LONGEST = 8  # most tokens of a match
MOST = 16  # most tokens of a copy


def matches(ids: Array, longest: int = LONGEST) -> tuple[Array, Array]:
    """For each prefix ids[:n] with n from 0 to len(ids), find the longest suffix (at most `longest`
    tokens) that occurred earlier in the prefix.

    ids: token ids, int [tokens]. Returns two int64 arrays [len(ids) + 1]: the length of the match,
    and the position (below n) that followed its most recent earlier occurrence. Both are 0 if
    nothing matches.
    """
    count = len(ids) + 1
    vocab = ids.max(initial=0) + 1
    # suffix[n] identifies the last tokens of ids[:n]: equal numbers mean equal tokens
    matched, place, suffix = np.zeros((3, count), np.int64)
    for length in range(1, longest + 1):
        ends = np.arange(length, count)
        before = ids[ends - length]
        longer = suffix[ends] * vocab + before
        _, suffix[ends] = np.unique(longer, return_inverse=True)
        by_suffix = np.argsort(suffix[ends], kind="stable")
        order = ends[by_suffix]
        earlier = order[:-1]
        later = order[1:]
        again = suffix[earlier] == suffix[later]
        found = later[again]
        matched[found] = length
        place[found] = earlier[again]
    return matched, place


def copied(context: Sequence[int], least: int, most: int) -> Array:
    """The next `most` tokens, copied from the context. At least `least` (1 or more) of the last
    tokens must match; otherwise the result is empty. int64 [most] or [0].
    """
    ids = np.array(context, np.int64)
    matched, place = matches(ids)
    if matched[-1] < least:
        return ids[:0]
    start = place[-1]
    period = len(ids) - start
    ahead = np.arange(most) % period
    copy: Array = ids[start + ahead]
    return copy


def replayed(
    prompt: Sequence[int], text: Sequence[int], longest: int = LONGEST, most: int = MOST
) -> tuple[Array, Array]:
    """Replay of prompt lookup over a greedy text (token ids). For a block that starts at each
    position of the text: the length of the match, and how many of the `most` copied tokens are
    accepted. int64 [tokens of the text] each.
    """
    ids = np.array([*prompt, *text], np.int64)
    start = np.arange(len(prompt), len(ids))
    of_all, places = matches(ids, longest)
    matched = of_all[start]
    place = places[start]
    padded = np.append(ids, np.full(most, -1))
    ahead = np.arange(most)
    proposed = padded[place[:, None] + ahead]
    wanted = padded[start[:, None] + ahead]
    same = proposed == wanted
    accepted = same.cumprod(axis=1).sum(axis=1)
    return matched, accepted * (matched > 0)

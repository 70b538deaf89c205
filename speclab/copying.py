"""Copying from the text so far: prompt lookup as a block proposes it, its exact replay, and the
positions at which a text repeats itself.

Before each block the last tokens are looked up in the text so far: the longest suffix of at most
LONGEST tokens that occurred before, at its most recent position. What followed there is copied, up
to MOST tokens; where the copy reaches the text's end it goes on in what it has copied. NumPy and
pandas only. Source: Saxena, 'Prompt Lookup Decoding' (2023).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from speclab.plain import Array
from speclab.score import require

LONGEST = 8  # tokens of a match
MOST = 16  # tokens of a copy
REPEATED = 4  # tokens of a run that counts as repeated


def matches(ids: Array, longest: int = LONGEST) -> tuple[Array, Array]:
    """Of each beginning ids[:n], n from 0 to len(ids): how many of its last tokens stood in it
    before, at most `longest`, and the most recent place (below n) where the text went on behind
    them; int64 [len(ids) + 1] each, 0 and 0 where nothing matches.

    ids: token ids, int [tokens].
    """
    count = len(ids) + 1
    vocab = ids.max(initial=0) + 1
    # suffix: a number for each n's last tokens, equal where they are
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


def copied(context: Sequence[int], least: int, most: int = MOST) -> Array:
    """The `most` tokens that are copied after a context of which at least `least` (1 or more) last
    tokens match; none, where fewer do.
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
    """Of a block that begins at each position of a greedy text after its prompt (token ids): how
    many tokens match, and how many of `most` that would be copied are the text's; int64 [tokens of
    the text] each.
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


def repeats(trace: pd.DataFrame, n: int = REPEATED) -> pd.Series:
    """Does a position's token end a run of `n` tokens that its own text, the prompt not included,
    has had before (the two may overlap)? bool, aligned with the rows of `trace`, in any order.

    A small model's greedy text runs into loops, and a draft that copies them looks good for a
    reason that has nothing to do with language. The mark looks back only: the first tokens of a
    loop, and the one that leaves it, lie outside. `trace` needs prompt_id, position (counted from 0
    in each text) and token; where it has a `seed`, every seed is a text. ValueError: missing
    columns, positions that are missing or there twice.
    """
    require(trace, ["prompt_id", "position", "token"], "trace")
    of_text = ["prompt_id", "seed"] if "seed" in trace else ["prompt_id"]
    rows = trace.reset_index(drop=True).sort_values([*of_text, "position"])
    texts = rows.groupby(of_text, observed=True, sort=False)
    wrong = rows["position"] != texts.cumcount()
    if wrong.any():
        raise ValueError(
            f"trace: the positions of prompt {rows['prompt_id'][wrong.idxmax()]!r} are not 0, 1, "
            "2, …, each once: mark whole texts, and filter afterwards"
        )
    marks = [matches(tokens.to_numpy(), n)[0][1:] == n for _, tokens in texts["token"]]
    marked = pd.Series(np.concatenate(marks), rows.index)
    return pd.Series(marked.sort_index().to_numpy(), trace.index, name="repeats")

"""Loops: the positions at which a text repeats itself.

A small model's greedy text runs into loops, and a draft that copies them looks good for a reason
that has nothing to do with language.

A position *repeats* when its token ends a run of NGRAM tokens which the same continuation (the
prompt not included) has had before; it lies *outside loops* when it does not. The mark looks back
only: the first tokens of a loop, and the one that leaves it, lie outside. A loop once begun mostly
lasts, so the positions outside lie early in their texts. NumPy and pandas.
"""

import pandas as pd

from speclab.score import require

NGRAM = 4  # tokens of a run that counts as said again


def repeats(trace: pd.DataFrame, n: int = NGRAM) -> pd.Series:
    """Does a position's token end a run of `n` tokens that its own text has had before (the two may
    overlap)? bool, aligned with the rows of `trace`, which may be in any order.

    `trace` needs prompt_id, position (counted from 0 in each text) and token; where it has a
    `seed`, every seed is a text. ValueError: missing columns, positions that are missing or there
    twice.
    """
    require(trace, ["prompt_id", "position", "token"], "trace")
    who = ["prompt_id", "seed"] if "seed" in trace else ["prompt_id"]
    text = trace.reset_index(drop=True).sort_values([*who, "position"])
    of_text = text.groupby(who, observed=True, sort=False)["token"]
    place = of_text.cumcount()
    wrong = text["position"] != place
    if wrong.any():
        raise ValueError(
            f"trace: the positions of prompt {text['prompt_id'][wrong.idxmax()]!r} are not 0, 1, "
            "2, …, each once: mark whole texts, and filter afterwards"
        )
    run = pd.DataFrame({back: of_text.shift(back) for back in range(n)})
    again = run.join(text[who]).duplicated() & (place >= n - 1)
    return pd.Series(again.sort_index().to_numpy(), trace.index, name="repeats")

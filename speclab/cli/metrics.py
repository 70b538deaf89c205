"""The acceptance of a recorded run, in the numbers that other engines print.

data/engines/names.yaml has the engines' names for them. The numbers are counts of a replay
(`speclab.replay`, visited blocks) and ratios of pooled counts. The mean of the ratios of single
requests (prompts) is another number, because the pooled ratio weights a request by its blocks.

A block that the end of a text cuts counts with the tokens accepted inside the text. `drafted` are
the tokens drafted inside the text. `drafted_whole` are the tokens of the whole shape in every
block, as counted by an engine that drafts past the end (vLLM, SGLang). Such an engine also counts
tokens that it accepts after the end. No trace records these, and they can change the counts of the
`truncated` blocks only.
"""

from typing import Any

import numpy as np
import pandas as pd

from speclab import score

COUNTS = ("blocks", "drafted", "accepted", "emitted", "truncated")


def figures(sums: pd.DataFrame, size: int) -> dict[str, Any]:
    """The numbers of prompts, pooled, to 6 decimals. Numbers by depth are lists, with NaN for a
    division by 0.

    sums: `replay.prompt_sums`, or some of its rows; size: tokens that a block drafts.
    `accepted_by_depth[d]`: blocks that accepted at least d tokens. `blocks_by_accepted[n]`: blocks
    that accepted exactly n tokens.
    """
    totals = sums.sum(numeric_only=True)
    blocks, accepted = totals["blocks"], totals["accepted"]
    accepted_by_depth = totals.filter(like="survival_")
    at_least = [blocks, *accepted_by_depth, 0]
    with_bonus = accepted + blocks
    drafted_whole = size * blocks
    found = {name: totals[name] for name in COUNTS}
    for name, estimator in score.block_estimators().items():
        found[name] = estimator(sums)
    found |= {
        "drafted_whole": drafted_whole,
        "accepted_by_depth": accepted_by_depth,
        "blocks_by_accepted": -np.diff(at_least),
        "mean_accepted_and_bonus": with_bonus / blocks,
        "draft_utilisation_whole": accepted / drafted_whole,
        "accepted_per_verified": with_bonus / (drafted_whole + blocks),
    }
    return {name: np.round(value, 6).tolist() for name, value in found.items()}

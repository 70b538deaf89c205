"""The acceptance of a recorded run in the figures that other engines print.

What an engine calls them stands in data/engines/names.yaml. The figures are counts of a replay
(`speclab.replay`, visited blocks) and ratios of counts, pooled. The mean of the ratios of single
requests (prompts) is another number, since the pooled ratio weights a request by its blocks.

The end of a text: a block that it cuts counts with the tokens accepted inside the text. `drafted`
are the tokens drafted inside it, `drafted_whole` those of the whole shape in every block, which is
what an engine counts that drafts past the end (vLLM, SGLang). Such an engine also counts what it
accepts after the end; no trace tells that, and only the `truncated` blocks can differ by it.
"""

from typing import Any

import numpy as np
import pandas as pd

from speclab import score

COUNTS = ("blocks", "drafted", "accepted", "emitted", "truncated")


def figures(sums: pd.DataFrame, size: int) -> dict[str, Any]:
    """The figures of prompts, pooled, to 6 decimals; those by depth are lists, NaN where there is
    nothing to divide by.

    sums: `replay.prompt_sums`, or some of its rows; size: tokens that a block drafts.
    `accepted_by_depth[d]`: blocks that accepted at least d tokens; `blocks_by_accepted[n]`: those
    that accepted exactly n.
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

"""Acceptance at each depth of drafted chains."""

import pandas as pd

from speclab import passes, score, stats


def accepted_at_depths(rows: pd.DataFrame, deepest: int) -> stats.Draws:
    """Acceptance at each depth of `passes`, given that all tokens above were accepted, over the
    passes that could go so deep: their draft and the rest of the answer were long enough.

    Entries are depths, up to `deepest` or the longest draft.
    """
    depths = range(1, min(deepest, int(rows["drafted"].max())) + 1)
    share = score.ratio_of("accepted", "reached")
    return stats.jointly({depth: (passes.depth_counts(rows, depth), share) for depth in depths})

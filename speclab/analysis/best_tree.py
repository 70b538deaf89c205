"""Which static tree is best: Sequoia's dynamic programme (arXiv:2402.12374) over size and depth,
from measured rank-acceptances.

NumPy and pandas only. A child of rank k is accepted with probability a[k] wherever its parent is
(the positional assumption of Sequoia), so a tree's expected emitted tokens per target pass are F(T)
= sum over its nodes, root included, of the product of a along the path.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from speclab.analysis.choose import fastest
from speclab.cost import speedup_tree
from speclab.tree import Tree

DEPTHS = (1, 2, 3, 4, 5, 6, 8)  # that are tried for speed


@dataclass(frozen=True)
class Best:
    """A tree and what is expected of it: emitted tokens per target pass, and the speed-up it was
    chosen for (NaN: not asked).
    """

    tree: Tree
    block_efficiency: float
    speedup: float = float("nan")


def rank_acceptance(trace: pd.DataFrame, ranks: int = 8) -> np.ndarray:
    """P(the target's own token has rank k under the draft) for k = 0..ranks-1, at T = 0 child k's
    acceptance; float64 [ranks].
    """
    return np.array([(trace["draft_rank"] == k).mean() for k in range(ranks)])


def best_tree(a: np.ndarray, budget: int, depth: int) -> Best:
    """The tree of at most `budget` drafted nodes, and `depth` levels with the largest
    F; a: rank acceptances, numbers from 0 that sum to 1 at most.
    """

    @cache
    def family(rank: int, size: int, levels: int) -> tuple[float, tuple]:
        """The best value of children rank, rank + 1, … with `size` nodes among them, and these
        children, each as the tuple of its own.
        """
        if size == 0 or levels == 0 or rank == len(a):
            return 0.0, ()
        tried = []
        for first in range(1, size + 1):  # nodes that the first child takes
            below, children = family(0, first - 1, levels - 1)
            beside, siblings = family(rank + 1, size - first, levels)
            tried.append(
                (a[rank] * (1 + below) + beside, -first, (children, *siblings))
            )
        value, _, best = max(tried)
        return value, best

    value, children = family(0, budget, depth)
    return Best(_breadth_first(children), float(1 + value))


def _breadth_first(children: tuple) -> Tree:
    """Nested tuples of children, in rank order, as a tree."""
    nodes, queue = [(-1, 0, 0)], [(0, children)]
    for parent, below in queue:
        for rank, own in enumerate(below):
            queue.append((len(nodes), own))
            nodes.append((parent, rank, nodes[parent][2] + 1))
    return Tree(*np.array(nodes, np.int64).T)


def best_tree_for_speed(
    a: np.ndarray,
    cost,
    budgets=(1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 63),
) -> Best:
    """The tree with the largest predicted speed-up under measured costs (`cost.Costs`): maximise S,
    not F.
    """
    trees = [best_tree(a, budget, depth) for budget in budgets for depth in DEPTHS]
    speeds = [speedup_tree(best.block_efficiency, best.tree, cost) for best in trees]
    best = fastest(speeds)
    return replace(trees[best], speedup=speeds[best])

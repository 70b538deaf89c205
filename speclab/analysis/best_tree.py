"""Which static tree is best: Sequoia's dynamic programme (arXiv:2402.12374) over size and depth,
from measured rank-acceptances.

NumPy and pandas only. A child of rank k is accepted with probability a[k] wherever its parent is
(the positional assumption of Sequoia), so a tree's expected emitted tokens per target pass are F(T)
= sum over its nodes, root included, of the product of a along the path.
"""

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from speclab.analysis.choose import fastest
from speclab.cost import Costs
from speclab.tree import Tree

DEPTHS = (1, 2, 3, 4, 5, 6, 8)  # that are tried for speed


def best_tree(a: Sequence[float], budget: int, depth: int) -> tuple[Tree, float]:
    """The tree of at most `budget` drafted nodes, and `depth` levels with the largest
    F, and F; a[k]: P(the target's own token has rank k under the draft), at T = 0 the acceptance
    of child k.
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
            value = a[rank] * (1 + below) + beside
            these = (children, *siblings)
            tried.append((value, -first, these))
        value, _, best = max(tried)
        return value, best

    value, children = family(0, budget, depth)
    return _breadth_first(children), float(1 + value)


def _breadth_first(children: tuple) -> Tree:
    """Nested tuples of children, in rank order, as a tree."""
    nodes = [(-1, 0, 0)]  # parent, rank, depth
    queue = [(0, children)]
    for parent, below in queue:
        depth = nodes[parent][2] + 1
        for rank, own in enumerate(below):
            queue.append((len(nodes), own))
            nodes.append((parent, rank, depth))
    parents, ranks, depths = np.array(nodes, np.int64).T
    return Tree(parents, ranks, depths)


def best_tree_for_speed(a: Sequence[float], costs: Costs, budgets: Iterable[int]) -> Tree:
    """The tree with the largest predicted speed-up under measured costs: maximise S, not F."""
    tried = [best_tree(a, budget, depth) for budget in budgets for depth in DEPTHS]
    speeds = [expected / costs.of_block(tree) for tree, expected in tried]
    tree, _ = tried[fastest(speeds)]
    return tree

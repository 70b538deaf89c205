"""Which static tree is best: Sequoia's dynamic programme (arXiv:2402.12374) over size and depth,
from measured rank-acceptances.

NumPy and pandas only. A child of rank k is accepted with probability a[k] wherever its parent is
(the positional assumption of Sequoia), so a tree's expected emitted tokens per target pass are F(T)
= sum over its nodes, root included, of the product of a along the path.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from speclab.cost import speedup_tree
from speclab.tree import Tree, check_limit


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
    if not len(trace):
        raise ValueError("trace has no rows: record a run first")
    return np.array([(trace["draft_rank"] == k).mean() for k in range(ranks)])


def _checked(a: np.ndarray) -> np.ndarray:
    a = np.asarray(a, dtype=float)
    if a.ndim != 1 or not len(a) or not np.isfinite(a).all() or (a < 0).any() or a.sum() > 1 + 1e-9:
        raise ValueError(
            f"rank acceptances {a}: numbers from 0 that sum to 1 at most are needed, one a rank"
        )
    return a


def expected_block_efficiency(tree: Tree, a: np.ndarray) -> float:
    """F(T) of a tree under rank-acceptances a."""
    a, reached = _checked(a), np.ones(tree.size + 1)
    if tree.width.max() > len(a):
        raise ValueError(
            f"the tree needs {int(tree.width.max())} ranks, acceptances of {len(a)} are given"
        )
    for node in range(1, tree.size + 1):
        reached[node] = reached[tree.parent[node]] * a[tree.rank[node]]
    return float(reached.sum())


def best_tree(a: np.ndarray, budget: int, depth: int, branches: int | None = None) -> Best:
    """The tree of at most `budget` drafted nodes, `depth` levels and `branches` children a node
    with the largest F.
    """
    a = _checked(a)[: branches or len(a)]
    check_limit("budget", budget), check_limit("depth", depth)

    @cache
    def node(size: int, levels: int) -> float:
        """Best F of a subtree of `size` nodes, its root counted as 1."""
        return 1 + family(0, size - 1, levels)[0]

    @cache
    def family(rank: int, size: int, levels: int) -> tuple[float, int]:
        """Best value of children rank, rank + 1, … with `size` nodes among them, and how many the
        first takes.
        """
        if size == 0 or levels == 0 or rank == len(a):
            return 0.0, 0
        return max(
            (a[rank] * node(first, levels - 1) + family(rank + 1, size - first, levels)[0], -first)
            for first in range(1, size + 1)
        )

    tree = _grow(lambda rank, size, levels: -family(rank, size, levels)[1], budget, depth)
    return Best(tree, expected_block_efficiency(tree, a))


def _grow(first_size, budget: int, depth: int) -> Tree:
    """The tree the programme chose, breadth-first.

    first_size(rank, size, levels): nodes that the child of this rank takes.
    """
    parent, rank, deep, queue = [-1], [0], [0], [(0, budget, depth)]
    while queue:
        above, size, levels = queue.pop(0)
        child_rank = 0
        while taken := first_size(child_rank, size, levels):
            parent.append(above), rank.append(child_rank), deep.append(deep[above] + 1)
            queue.append((len(parent) - 1, taken - 1, levels - 1))
            child_rank, size = child_rank + 1, size - taken
    return Tree(*(np.array(x, dtype=np.int64) for x in (parent, rank, deep)))


def best_tree_for_speed(
    a: np.ndarray,
    cost,
    budgets=(1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 63),
    depths=(1, 2, 3, 4, 5, 6, 8),
) -> Best:
    """The tree with the largest predicted speed-up under measured costs (`cost.Costs`): maximise S,
    not F.
    """
    found = []
    for budget in budgets:
        for depth in depths:
            best = best_tree(a, budget, depth)
            found.append(
                Best(
                    best.tree,
                    best.block_efficiency,
                    speedup_tree(best.block_efficiency, best.tree, cost),
                )
            )
    return max(found, key=lambda b: b.speedup)

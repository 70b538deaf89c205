"""Best static trees: hand-made cases, all small trees by brute force, and the cost that is
maximised.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclab.cost import Costs
from speclab.studies.wall_clock import best_tree, best_tree_for_speed
from speclab.tree import Tree

COSTS = Costs(
    10.0,
    (1, 2, 4, 8, 16, 32, 64),
    (0.2, 0.2, 0.22, 0.3, 0.5, 0.9, 1.7),
    (1, 1.02, 1.1, 1.3, 1.8, 3.0, 5.5),
    0.1,
)


def expected_block_efficiency(tree, a):
    """F(T): the sum over the nodes, root included, of the product of a along the path."""
    reached = [1.0]
    for parent, rank in zip(tree.parent[1:], tree.rank[1:], strict=True):
        reached.append(reached[parent] * a[rank])
    return sum(reached)


def all_trees(size, depth, ranks):
    """Every rank-contiguous tree of `size` drafted nodes, by choosing each node's parent in
    breadth-first order.
    """
    for parents in product(*[range(node) for node in range(1, size + 1)]):
        rank = [parents[:i].count(parent) for i, parent in enumerate(parents)]
        deep = [0]
        for parent in parents:
            deep.append(deep[parent] + 1)
        if list(parents) == sorted(parents) and max(deep) <= depth and max(rank) < ranks:
            yield Tree(np.array([-1, *parents]), np.array([0, *rank]), np.array(deep))


@settings(max_examples=25)
@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=3), st.integers(1, 6), st.integers(1, 4))
def test_the_programme_finds_the_best_of_all_trees(weights, budget, depth):
    a = np.sort(np.array(weights))[::-1] / (sum(weights) + 0.3)
    tree, expected = best_tree(a, budget, depth)
    every = [
        expected_block_efficiency(t, a)
        for size in range(1, budget + 1)
        for t in all_trees(size, depth, len(a))
    ]
    assert expected == pytest.approx(max(every), abs=1e-12)
    assert expected_block_efficiency(tree, a) == pytest.approx(expected)
    assert tree.size <= budget and tree.max_depth <= depth


def test_speed_weighs_what_a_tree_costs():
    """Every tree of up to four nodes by brute force; with expensive passes the smallest tree is
    best.
    """
    a = [0.8, 0.1]

    def speed(tree):
        return expected_block_efficiency(tree, a) / COSTS.of_block(tree)

    every = [tree for size in range(1, 5) for tree in all_trees(size, size, len(a))]
    best = best_tree_for_speed(a, COSTS, range(1, 5))
    assert speed(best) == pytest.approx(max(map(speed, every)))
    costly = Costs(10.0, (1, 64), (0.9, 2.0), (1.0, 30.0))
    assert best_tree_for_speed([0.2, 0.1], costly, range(1, 9)).size == 1

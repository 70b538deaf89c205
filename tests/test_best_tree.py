"""Best static trees: hand cases, all small trees by brute force, the cost that is maximised."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclab.analysis.best_tree import (
    best_tree,
    best_tree_for_speed,
    rank_acceptance,
)
from speclab.cost import Costs, speedup_tree
from speclab.tree import Tree, chain, static_tree

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
        if list(parents) != sorted(parents):
            continue
        rank = [
            sum(1 for other in parents[:i] if other == parent)
            for i, parent in enumerate(parents)
        ]
        deep = [0]
        for parent in parents:
            deep.append(deep[parent] + 1)
        if max(deep) <= depth and max(rank) < ranks and deep == sorted(deep):
            yield Tree(np.array([-1, *parents]), np.array([0, *rank]), np.array(deep))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=3),
    st.integers(1, 6),
    st.integers(1, 4),
)
def test_the_programme_finds_the_best_of_all_trees(weights, budget, depth):
    a = np.sort(np.array(weights))[::-1] / (sum(weights) + 0.3)
    best = best_tree(a, budget, depth)
    every = [
        expected_block_efficiency(t, a)
        for size in range(1, budget + 1)
        for t in all_trees(size, depth, len(a))
    ]
    assert best.block_efficiency == pytest.approx(max(every), abs=1e-12)
    assert best.tree.size <= budget and best.tree.max_depth <= depth


def test_hand_cases():
    assert expected_block_efficiency(chain(2), [0.5]) == pytest.approx(1.75)
    assert expected_block_efficiency(static_tree(3, 2, 8), [0.6, 0.2]) == pytest.approx(
        1 + 0.8 + 0.64 + 0.36 * 0.8
    )
    assert best_tree([0.9, 0.05], 3, 3).tree.parent.tolist() == [
        -1,
        0,
        1,
        2,
    ]  # a sure draft: a chain
    assert best_tree([0.4, 0.3, 0.2], 3, 3).tree.parent.tolist() == [
        -1,
        0,
        0,
        0,
    ]  # 0.9 beats any second level


def test_speed_weighs_what_a_tree_costs():
    sure, costly = (
        best_tree_for_speed([0.8, 0.1], COSTS),
        Costs(10.0, (1, 64), (0.9, 2.0), (1.0, 30.0)),
    )
    assert (
        sure.speedup
        == pytest.approx(speedup_tree(sure.block_efficiency, sure.tree, COSTS))
        and sure.speedup > 1.5
    )
    assert (
        best_tree_for_speed([0.2, 0.1], costly).tree.size == 1
    )  # the least there is to draft
    by_hand = 1.8 / (0.2 + COSTS.v(2) + 0.1)
    assert speedup_tree(1.8, chain(1), COSTS) == pytest.approx(by_hand)
    assert COSTS.of_block(static_tree(3, 2, 8)) == pytest.approx(
        0.2 + 0.2 + 0.2 + COSTS.v(9) + 0.1
    )


def test_rank_acceptance_counts_the_targets_own_tokens():
    assert rank_acceptance(pd.DataFrame({"draft_rank": [0, 0, 1, 9]}), 3).tolist() == [
        0.5,
        0.25,
        0,
    ]

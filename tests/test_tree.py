"""Trees: the paper's tree, limits, chains, and properties of every static tree."""

import numpy as np
import pytest
from conftest import refuses
from hypothesis import given
from hypothesis import strategies as st

from speclab.shapes import Shape, parse_shape
from speclab.tree import Tree, static_tree


def test_the_papers_tree_has_levels_of_2_4_2_and_the_last_two_hang_below_the_best_grandchild():
    tree = static_tree(3, 2, 8)
    assert tree.parent.tolist() == [-1, 0, 0, 1, 1, 2, 2, 3, 3]
    assert tree.depth.tolist() == [0, 1, 1, 2, 2, 2, 2, 3, 3]
    assert tree.rank.tolist() == [0, 0, 1, 0, 1, 0, 1, 0, 1]
    assert tree.best_path.nonzero()[0].tolist() == [0, 1, 3, 7]


def test_a_budget_cuts_in_the_middle_of_a_family():
    assert static_tree(2, 3, 5).parent.tolist() == [-1, 0, 0, 0, 1, 1]


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 60))
def test_static_trees_are_breadth_first_and_never_over_budget(depth, branches, budget):
    tree = static_tree(depth, branches, budget)
    full = sum(branches**d for d in range(1, depth + 1))
    assert tree.size == min(budget, full)
    assert (np.diff(tree.depth) >= 0).all() and (
        tree.parent[1:] < np.arange(1, tree.size + 1)
    ).all()
    for node in range(tree.size + 1):
        kids = tree.children(node)
        assert tree.rank[kids].tolist() == list(range(len(kids))) and tree.width[node] == len(kids)
        assert tree.ancestors[node].sum() == tree.depth[node] + 1
        assert tree.ancestors[kids, node].all()
    assert tree.best_path.sum() == tree.max_depth + 1


@pytest.mark.parametrize(
    ("text", "size", "lookup", "is_chain"),
    [
        ("chain:4", 4, None, True),
        ("tree:3,2,8", 8, None, False),
        ("tree:2, 3", 12, None, False),
        ("dynamic:4,3,7", 7, None, False),
        ("chain:5 + lookup:3", 16, 3, True),  # a copy has up to 16 tokens
        ("chain:17+lookup:3", 17, 3, True),
        ("lookup:1", 16, 1, True),
        ("plain", 0, None, True),
    ],
)
def test_shapes_are_read_from_text(text, size, lookup, is_chain):
    shape = parse_shape(text)
    assert (shape.size, shape.lookup, shape.is_chain) == (size, lookup, is_chain)


@pytest.mark.parametrize(
    "text",
    [
        "chain",
        "tree:3",
        "bush:1,2",
        "tree:1,2,3,4",
        "chain:1.5",
        "lookup",
        "plain+lookup:3",
        "lookup:3+chain:5",
        "tree:3,2,8+lookup:3",
    ],
)
def test_a_broken_shape_says_what_is_allowed(text):
    with refuses(r"chain:GAMMA .* tree:DEPTH,BRANCHES"):
        parse_shape(text)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: static_tree(2, 0), "branches=0"),
        (lambda: parse_shape("chain:5+lookup:9"), "lookup=9: .* from 1 to 8"),
        (lambda: parse_shape("lookup:0"), "lookup=0"),
        (lambda: Shape(static_tree(2, 2), lookup=1), "needs a chain"),
    ],
)
def test_limits_are_named(call, words):
    with refuses(words):
        call()


MEDUSA = [[0], [1, 0], [0, 0, 2], [1], [0, 1], [0, 0], [3]]  # in any order; ranks may be left out


def test_a_tree_of_paths_has_their_nodes_in_order():
    tree = Tree.of_paths(MEDUSA)
    assert tree.parent.tolist() == [-1, 0, 0, 0, 1, 1, 2, 4]
    assert tree.rank.tolist() == [0, 0, 1, 3, 0, 1, 0, 2]
    assert tree.depth.tolist() == [0, 1, 1, 1, 2, 2, 2, 3]
    assert tree.has_gaps and not Tree.of_paths([[1], [0]]).has_gaps


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 60))
def test_the_paths_of_a_tree_are_the_tree(depth, branches, budget):
    tree = static_tree(depth, branches, budget)
    assert Tree.of_paths(tree.paths[::-1]).parent.tolist() == tree.parent.tolist()


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ([[0], [1, 0]], r"path \[1, 0\] is there without \[1\]; add"),
        ([[0], [1], [0]], r"path \[0\] occurs twice"),
        ([[0], [-1]], "rank=-1: allowed are whole numbers from 0 to 1023"),
        ([[0], []], r"path \[\]: a path is a list of ranks"),
        ([0, 1], "path 0: a path is a list of ranks"),
        ([[0] * 65], "depth=65"),
        ([], "budget=0"),
    ],
)
def test_paths_that_make_no_tree_are_named(paths, words):
    with refuses(words):
        Tree.of_paths(paths)


@pytest.mark.parametrize(
    ("parent", "depth", "words"),
    [
        ([-1, 0, 1, 0], [0, 1, 2, 1], "breadth-first"),
        ([-1, 2, 0], [0, 1, 1], "parents come before"),
        ([-1, 0, 1], [0, 1, 1], "one level deeper"),
    ],
)
def test_nodes_out_of_order_are_no_tree(parent, depth, words):
    with pytest.raises(AssertionError, match=words):
        Tree(np.array(parent), np.zeros(len(parent), dtype=int), np.array(depth))


def test_a_tree_is_cut_below_a_depth():
    tree = static_tree(3, 2, 8)
    assert tree.upto(2).parent.tolist() == [-1, 0, 0, 1, 1, 2, 2] and tree.upto(3) is tree
    assert tree.upto(0).size == 0

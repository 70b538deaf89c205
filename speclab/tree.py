"""Topology of draft trees, in NumPy integers. Tokens and probabilities are not stored here.

Node 0 is the root (the last committed token). Nodes 1..N are drafted, in breadth-first order. So a
parent always comes before its children, and each level is a slice.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from speclab.plain import Array

LIMITS = {
    "depth": (1, 64),
    "branches": (1, 1024),
    "budget": (1, 4096),  # a tree's tables and masks grow with the square of its nodes
    "depth times branches": (1, 4096),  # what a dynamic tree runs
    "gamma": (1, 64),
    "lookup": (1, 8),  # number of last tokens that match (copying.LONGEST)
}


def check_limit(name: str, value: int) -> int:
    """`value` as an int. Raises a ValueError that names the argument, unless `value` is a whole
    number within LIMITS[name].
    """
    low, high = LIMITS[name]
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise ValueError(f"{name}={value!r}: allowed are whole numbers from {low} to {high}")
    return int(value)


class Level(NamedTuple):
    """The nodes of one depth that have children, in the order in which a draft runs them, and the
    origin of their children's tokens.

    parents: int64 [k], these nodes. widths: how many best tokens each of them needs. sees: bool
    [k, n], which of the n nodes that have run each of them attends to (without the root, with
    itself). children: int64 [m], the children of all of them. row, rank: int64 [m], the position of
    each child's parent in `parents`, and the child's rank.
    """

    parents: Array
    widths: Array
    sees: Array
    children: Array
    row: Array
    rank: Array


@dataclass(frozen=True, eq=False)
class Tree:
    """A rank-indexed draft tree: `parent`, `rank` among siblings (0 = the draft's best token) and
    `depth`, each int64 [N + 1].
    """

    parent: Array
    rank: Array
    depth: Array

    def __post_init__(self) -> None:
        parent = self.parent[1:]
        assert (parent < np.arange(1, len(self.parent))).all(), "parents come before their children"
        below = self.depth[parent] + 1
        assert (self.depth[1:] == below).all(), "a child is one level deeper than its parent"
        assert (np.diff(self.depth) >= 0).all(), "nodes are in breadth-first order"

    @property
    def size(self) -> int:
        """Number of drafted nodes, without the root."""
        return len(self.parent) - 1

    @property
    def max_depth(self) -> int:
        """Depth of the deepest node."""
        return int(self.depth[-1])

    @property
    def is_chain(self) -> bool:
        """True if no node has two children."""
        return self.size == self.max_depth

    def children(self, node: int) -> Array:
        """The children of a node, in rank order."""
        children = np.flatnonzero(self.parent == node)
        return children[np.argsort(self.rank[children])]

    def upto(self, depth: int) -> "Tree":
        """The tree without the nodes deeper than `depth`."""
        if depth >= self.max_depth:
            return self
        kept = self.depth <= depth
        return Tree(self.parent[kept], self.rank[kept], self.depth[kept])

    @cached_property
    def width(self) -> Array:
        """How many of the draft's best tokens each node needs, int64 [N + 1]. This is the largest
        rank of its children plus 1, or 0 for a leaf.
        """
        width = np.zeros(self.size + 1, dtype=np.int64)
        np.maximum.at(width, self.parent[1:], self.rank[1:] + 1)
        return width

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """What a draft runs, level by level, to the deepest nodes that have children."""
        inner = np.flatnonzero(self.width)
        run: list[int] = []
        found = []
        for depth in range(self.max_depth):
            parents = inner[self.depth[inner] == depth]
            run += parents.tolist()
            children = np.flatnonzero(self.depth == depth + 1)
            sees = self.ancestors[np.ix_(parents, run[1:])]
            row = np.searchsorted(parents, self.parent[children])
            level = Level(parents, self.width[parents], sees, children, row, self.rank[children])
            found.append(level)
        return tuple(found)

    @cached_property
    def ancestors(self) -> Array:
        """ancestors[i, j] is True if j is node i or an ancestor of it; bool [N + 1, N + 1]."""
        table = np.eye(self.size + 1, dtype=bool)
        for node in range(1, self.size + 1):
            table[node] |= table[self.parent[node]]
        return table

    @cached_property
    def best_path(self) -> Array:
        """True if every rank from the root to the node is 0; bool [N + 1]."""
        misses = self.ancestors & (self.rank > 0)
        return np.logical_not(misses.any(axis=1))


def static_tree(depth: int, branches: int, budget: int | None = None) -> Tree:
    """The tree of `depth` levels in which each node has `branches` children, filled breadth-first
    up to `budget` nodes (None: no limit).

    static_tree(3, 2, 8) is the paper's tree. Its levels have 2, 4 and 2 nodes, and the last two are
    the children of the best child of the best child.
    """
    check_limit("depth", depth)
    check_limit("branches", branches)
    sizes = [branches**level for level in range(1, depth + 1)]
    full = sum(sizes)
    most = check_limit("budget", full if budget is None else budget)
    size = min(full, most)
    place = np.arange(size)  # the children of a node follow the children of the previous node
    parent = place // branches
    rank = place % branches
    deep = [0]
    for above in parent:
        deep.append(deep[above] + 1)
    return Tree(np.append(-1, parent), np.append(0, rank), np.array(deep))


def chain(gamma: int) -> Tree:
    """`gamma` tokens in a row, which is a tree with one branch."""
    return static_tree(check_limit("gamma", gamma), 1)


PLAIN = Tree(np.array([-1]), np.array([0]), np.array([0]))  # nothing is drafted

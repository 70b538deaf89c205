"""Topology of draft trees: NumPy integers only, no tokens, no probabilities.

Node 0 is the root (the last committed token). Nodes 1..N are drafted and stand in breadth-first
order, so a parent always comes before its children and a level is a slice.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

LIMITS = {"depth": (1, 64), "branches": (1, 1024), "budget": (1, 65536), "gamma": (1, 64)}


def check_limit(name: str, value: int) -> int:
    """`value` as it came; a ValueError that names the argument unless it is a whole number within
    LIMITS[name].
    """
    low, high = LIMITS[name]
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or not low <= value <= high
    ):
        raise ValueError(f"{name}={value!r}: allowed are whole numbers from {low} to {high}")
    return int(value)


@dataclass(frozen=True, eq=False)
class Tree:
    """A rank-indexed draft tree: `parent`, `rank` among siblings (0 = the draft's best) and
    `depth`, int64 [N + 1].
    """

    parent: np.ndarray
    rank: np.ndarray
    depth: np.ndarray

    def __post_init__(self):
        for node in range(1, len(self.parent)):
            up = self.parent[node]
            if (
                not 0 <= up < node
                or self.depth[node] != self.depth[up] + 1
                or self.depth[node] < self.depth[node - 1]
            ):
                raise ValueError(
                    f"node {node} (parent {up}, depth {self.depth[node]}): nodes must stand breadth-first, parents first"
                )

    @property
    def size(self) -> int:
        """Number of drafted nodes, the root excluded."""
        return len(self.parent) - 1

    @property
    def max_depth(self) -> int:
        """Depth of the deepest node."""
        return int(self.depth.max())

    def children(self, node: int) -> np.ndarray:
        """Children of a node in rank order."""
        found = np.flatnonzero(self.parent == node)
        return found[np.argsort(self.rank[found], kind="stable")]

    def level(self, depth: int) -> np.ndarray:
        """Nodes at a depth, in breadth-first order."""
        return np.flatnonzero(self.depth == depth)

    @property
    def is_chain(self) -> bool:
        """True when no node has two children."""
        return self.size == self.max_depth

    def upto(self, depth: int) -> "Tree":
        """The tree cut below a depth (nodes stand breadth-first, so it is a prefix)."""
        keep = int((self.depth <= depth).sum())
        return (
            self
            if keep == len(self.parent)
            else Tree(self.parent[:keep], self.rank[:keep], self.depth[:keep])
        )

    @cached_property
    def width(self) -> np.ndarray:
        """How many of the draft's best tokens each node needs: its largest child rank + 1, or 0 for
        a leaf; int64 [N + 1].
        """
        width = np.zeros(self.size + 1, dtype=np.int64)
        np.maximum.at(width, self.parent[1:], self.rank[1:] + 1)
        return width

    @cached_property
    def best_path(self) -> np.ndarray:
        """True where every rank from the root down is 0; bool [N + 1]."""
        best = np.ones(self.size + 1, dtype=bool)
        for node in range(1, self.size + 1):
            best[node] = best[self.parent[node]] and self.rank[node] == 0
        return best

    @cached_property
    def ancestors(self) -> np.ndarray:
        """ancestors[i, j] is True iff node j is node i or stands above it; bool [N + 1, N + 1]."""
        table = np.eye(self.size + 1, dtype=bool)
        for node in range(1, self.size + 1):
            table[node] |= table[self.parent[node]]
        return table


def static_tree(depth: int, branches: int, budget: int | None = None) -> Tree:
    """The top-`branches` tree of a depth, filled breadth-first until `budget` nodes (None: no cut).

    static_tree(3, 2, 8) is the paper's: levels of 2, 4 and 2 nodes, the last two below the best
    child of the best child.
    """
    check_limit("depth", depth), check_limit("branches", branches)
    limit = LIMITS["budget"][1] if budget is None else check_limit("budget", budget)
    parent, rank, deep = [-1], [0], [0]
    for node in range(limit):  # nodes are appended while they are expanded: breadth-first
        if node >= len(parent) or deep[node] == depth or len(parent) > limit:
            break
        count = min(branches, limit + 1 - len(parent))
        parent += [node] * count
        rank += range(count)
        deep += [deep[node] + 1] * count
    if budget is None and len(parent) > limit:
        raise ValueError(
            f"depth={depth}, branches={branches}: the full tree has over {limit} nodes; name a budget"
        )
    return Tree(*(np.array(column, dtype=np.int64) for column in (parent, rank, deep)))


def chain(gamma: int) -> Tree:
    """`gamma` tokens in a row: a tree of one branch."""
    return static_tree(check_limit("gamma", gamma), 1)


def parse_shape(text: str) -> Tree:
    """`chain:GAMMA` or `tree:DEPTH,BRANCHES[,BUDGET]` as a tree."""
    kind, _, numbers = text.partition(":")
    parts = numbers.split(",")
    if kind in ("chain", "tree") and all(p.strip().isdigit() for p in parts):
        values = [int(p) for p in parts]
        if kind == "chain" and len(values) == 1:
            return chain(values[0])
        if kind == "tree" and len(values) in (2, 3):
            return static_tree(*values)
    raise ValueError(
        f"shape={text!r}: allowed are chain:GAMMA (as chain:4) and tree:DEPTH,BRANCHES[,BUDGET] (as tree:3,2,8)"
    )

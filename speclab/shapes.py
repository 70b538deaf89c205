"""Shapes: what a block drafts, as data. The module `draft` drafts it with torch. This module needs
no torch.
"""

import re
from dataclasses import dataclass

from speclab import tree
from speclab.copying import MOST
from speclab.tree import Tree, chain, check_limit, static_tree


@dataclass(frozen=True)
class Shape:
    """What one block drafts: a static `tree`, or a dynamic tree of `budget` nodes.

    stop: a chain ends before a token if the draft's best token has a lower probability there.

    A dynamic tree (EAGLE-2, arXiv:2406.16858) adds `branches` nodes per level up to `depth`, by
    cumulative draft probability, and keeps the best `budget` nodes. lookup: if at least this many
    of the last tokens match (`speclab.copying`), a chain is copied and not drafted (None: never).
    """

    tree: Tree | None = None
    stop: float = 0.0
    depth: int = 0
    branches: int = 0
    budget: int = 0
    lookup: int | None = None

    def __post_init__(self) -> None:
        if self.tree is None:
            for name in ("depth", "branches", "budget"):
                check_limit(name, getattr(self, name))
            check_limit("depth times branches", self.depth * self.branches)
        if self.stop and not self.is_chain:
            raise ValueError("stop: a stop rule needs a chain")
        if self.lookup is not None:
            check_limit("lookup", self.lookup)
            if not self.is_chain:
                raise ValueError("lookup: a copy replaces a chain, so it needs a chain")

    @property
    def is_chain(self) -> bool:
        """True if no node can have two children."""
        return self.tree is not None and self.tree.is_chain

    @property
    def size(self) -> int:
        """The largest number of tokens that a block drafts."""
        drafted = self.budget if self.tree is None else self.tree.size
        return max(drafted, MOST) if self.lookup else drafted

    @property
    def room(self) -> int:
        """The number of cache slots that a block can need after the text."""
        return 2 + self.size + self.depth * self.branches


NO_DRAFT = Shape(tree.PLAIN)  # drafts nothing, so the target decodes alone


def parse_shape(text: str) -> Shape:
    """The shape that a text names: `plain`, `chain:GAMMA`, `tree:DEPTH,BRANCHES[,BUDGET]`,
    `dynamic:DEPTH,BRANCHES,BUDGET`, `chain:GAMMA+lookup:LEAST` (a copy if LEAST or more tokens
    match, else a chain) or `lookup:LEAST` (a copy or nothing).
    """
    tight = re.sub(r" *([:,+]) *", r"\1", text.strip(" "))
    form = re.sub(r"[1-9][0-9]{0,8}|0", "N", tight)  # 04 is no number
    if form == "plain":
        return NO_DRAFT
    sizes = [int(number) for number in re.findall(r"[0-9]+", tight)]
    if form in ("tree:N,N", "tree:N,N,N"):
        return Shape(static_tree(*sizes))
    if form == "dynamic:N,N,N":
        return Shape(None, 0.0, *sizes)
    if form in ("chain:N", "chain:N+lookup:N"):
        return Shape(chain(sizes[0]), 0.0, 0, 0, 0, *sizes[1:])
    if form == "lookup:N":
        return Shape(tree.PLAIN, lookup=sizes[0])
    raise ValueError(
        f"shape={text!r}: allowed are plain, chain:GAMMA (as chain:4), "
        "tree:DEPTH,BRANCHES[,BUDGET] (as tree:3,2,8), "
        "dynamic:DEPTH,BRANCHES,BUDGET (as dynamic:4,4,8), "
        "chain:GAMMA+lookup:LEAST (as chain:5+lookup:3) and lookup:LEAST (as lookup:1)"
    )

"""Shapes: what a block drafts, as data. `draft` drafts it and needs torch; this module does not."""

import re
from dataclasses import dataclass

from speclab import tree
from speclab.copying import MOST
from speclab.tree import LIMITS, Tree, chain, check_limit, static_tree

MEASURES = ("confidence", "entropy")


@dataclass(frozen=True)
class StopRule:
    """Dynamic gamma: stop drafting before the token whose draft distribution is too flat.

    confidence: stop when the best token's q is below the threshold; entropy: when the draft's
    entropy (nats) is above it.
    """

    measure: str
    threshold: float

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise ValueError(f"measure={self.measure!r}: allowed are {', '.join(MEASURES)}")


@dataclass(frozen=True)
class Shape:
    """What is drafted a step: a static `tree` (chains too, with an optional `stop` rule), or a
    dynamic tree of `budget` nodes.

    A dynamic tree (EAGLE-2, arXiv:2406.16858) grows `branches` nodes a level to `depth` by
    cumulated draft probability and keeps the best `budget`. lookup: where at least this many
    of the last tokens match (`speclab.copying`), a chain is not drafted but copied; None: never.
    """

    tree: Tree | None = None
    stop: StopRule | None = None
    depth: int = 0
    branches: int = 0
    budget: int = 0
    lookup: int | None = None

    def __post_init__(self) -> None:
        if self.tree is None:
            for name in ("depth", "branches", "budget"):
                check_limit(name, getattr(self, name))
            run, most = self.depth * self.branches, LIMITS["budget"][1]
            if run > most:
                raise ValueError(
                    f"depth={self.depth}, branches={self.branches}: a dynamic tree runs depth "
                    f"times branches tokens, {run}; allowed are up to {most}"
                )
        if self.stop and not self.is_chain:
            raise ValueError("stop: dynamic gamma goes with a chain")
        if self.lookup is not None:
            check_limit("lookup", self.lookup)
            if not self.is_chain:
                raise ValueError("lookup: a copy goes in place of a chain")

    @property
    def is_chain(self) -> bool:
        """True when no node can have two children."""
        return self.tree is not None and self.tree.is_chain

    @property
    def size(self) -> int:
        """The most tokens that a block drafts."""
        drafted = self.budget if self.tree is None else self.tree.size
        return max(drafted, MOST) if self.lookup else drafted

    @property
    def room(self) -> int:
        """Cache slots a block can need beyond the text."""
        return 2 + self.size + self.depth * self.branches


NO_DRAFT = Shape(tree.PLAIN)  # drafts nothing: the target decodes alone


def parse_shape(text: str) -> Shape:
    """`plain`, `chain:GAMMA`, `tree:DEPTH,BRANCHES[,BUDGET]`, `dynamic:DEPTH,BRANCHES,BUDGET`,
    `chain:GAMMA+lookup:LEAST` (a copy where LEAST or more tokens match) or `lookup:LEAST` (a copy
    or nothing) as a shape.
    """
    tight = re.sub(r" *([:,+]) *", r"\1", text.strip(" "))
    form = re.sub(r"[1-9][0-9]{0,8}|0", "N", tight)  # 04 is no number
    if form == "plain":
        return NO_DRAFT
    sizes = [int(number) for number in re.findall(r"[0-9]+", tight)]
    if form in ("tree:N,N", "tree:N,N,N"):
        return Shape(static_tree(*sizes))
    if form == "dynamic:N,N,N":
        return Shape(None, None, *sizes)
    if form in ("chain:N", "chain:N+lookup:N"):
        return Shape(chain(sizes[0]), None, 0, 0, 0, *sizes[1:])
    if form == "lookup:N":
        return Shape(tree.PLAIN, lookup=sizes[0])
    raise ValueError(
        f"shape={text!r}: allowed are plain, chain:GAMMA (as chain:4), "
        "tree:DEPTH,BRANCHES[,BUDGET] (as tree:3,2,8), "
        "dynamic:DEPTH,BRANCHES,BUDGET (as dynamic:4,4,8), "
        "chain:GAMMA+lookup:LEAST (as chain:5+lookup:3) and lookup:LEAST (as lookup:1)"
    )

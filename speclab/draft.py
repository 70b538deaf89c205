"""Drafting: a chain, a static tree or a dynamic tree of tokens from the draft model, over its
rolled-back cache.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from speclab import tree
from speclab.model import KVCache, LanguageModel
from speclab.sampling import Sampling, entropy, probabilities, rank_key
from speclab.tree import Tree, check_limit
from speclab.verify import RULES, draw_children

MEASURES = ("confidence", "entropy")


@dataclass(frozen=True)
class StopRule:
    """Dynamic gamma: stop drafting before the token whose draft distribution is too flat.

    confidence: stop when the best token's q is below the threshold; entropy: when the draft's
    entropy (nats) is above it.
    """

    measure: str
    threshold: float

    def __post_init__(self):
        if self.measure not in MEASURES:
            raise ValueError(f"measure={self.measure!r}: allowed are {', '.join(MEASURES)}")

    def stops(self, q: Tensor) -> bool:
        """True when no token should be drafted from q [vocab]."""
        return (
            bool(q.max() < self.threshold)
            if self.measure == "confidence"
            else bool(entropy(q) > self.threshold)
        )


@dataclass(frozen=True)
class Shape:
    """What is drafted a step: a static `tree` (chains too, with an optional `stop` rule), or a
    dynamic tree of `budget` nodes.

    A dynamic tree (EAGLE-2, arXiv:2406.16858) grows `branches` nodes a level to `depth` by
    cumulated draft probability and keeps the best `budget`.
    """

    tree: Tree | None = None
    stop: StopRule | None = None
    depth: int = 0
    branches: int = 0
    budget: int = 0

    def __post_init__(self):
        if self.tree is None:
            for name in ("depth", "branches", "budget"):
                check_limit(name, getattr(self, name))
        if self.stop and not (self.tree and self.tree.is_chain):
            raise ValueError("stop: dynamic gamma goes with a chain")

    @property
    def room(self) -> int:
        """Cache slots a block can need beyond the text."""
        return 2 + (self.tree.size if self.tree else self.depth * self.branches + self.budget)


PLAIN = Shape(tree.chain(1).upto(0))  # drafts nothing: the target decodes alone


def parse_shape(text: str) -> Shape:
    """`chain:GAMMA`, `tree:DEPTH,BRANCHES[,BUDGET]` or `dynamic:DEPTH,BRANCHES,BUDGET` as a shape."""
    kind, _, numbers = text.partition(":")
    parts = numbers.split(",")
    if kind == "dynamic" and len(parts) == 3 and all(p.strip().isdigit() for p in parts):
        return Shape(None, None, *map(int, parts))
    try:
        return Shape(tree.parse_shape(text))
    except ValueError as error:
        raise ValueError(
            f"{error}, and dynamic:DEPTH,BRANCHES,BUDGET (as dynamic:4,4,8)"
            if "shape=" in str(error)
            else str(error)
        ) from None


@dataclass(frozen=True)
class Proposal:
    """Drafted tokens: `tree`, `tokens` int64 [N + 1] (entry 0 unused), `q` [N + 1, vocab] for rules
    that need it, and each node's slot in the draft's cache, int64 [N + 1], -1 where it was not run
    (leaves).
    """

    tree: Tree
    tokens: np.ndarray
    q: Tensor | None
    slots: np.ndarray


def _root(draft: LanguageModel, cache: KVCache, context: list[int]) -> Tensor:
    """Hidden state after the context; runs what the cache does not hold yet. [1, d]"""
    return draft.forward(torch.tensor([context[cache.length :]]), cache)[0, -1:]


def _level(
    draft: LanguageModel,
    cache: KVCache,
    trunk: int,
    depth: int,
    tokens: np.ndarray,
    sees: np.ndarray | None,
) -> Tensor:
    """Hidden states of nodes at a depth, [k, d]; sees: bool [k, nodes run so far, themselves
    included], None for a chain.
    """
    new = torch.from_numpy(tokens)[None]
    if sees is None:
        return draft.forward(new, cache)[0]
    visible = torch.cat(
        [torch.ones(len(tokens), trunk, dtype=torch.bool), torch.from_numpy(sees)], 1
    )
    return draft.forward(new, cache, torch.full((len(tokens),), trunk + depth - 1), visible)[0]


def _children(
    logits: Tensor, tree: Tree, parents: np.ndarray, rule: str, sampling: Sampling, rng
) -> tuple[list[np.ndarray], Tensor | None]:
    """Token ids of each parent's children in rank order, and q at the parents where the rule needs
    it.
    """
    widths = tree.width[parents]
    if not RULES[rule].sampled:
        best = rank_key(logits).topk(int(widths.max())).indices.cpu().numpy()
        return [row[:w] for row, w in zip(best, widths, strict=True)], None
    q = probabilities(logits, sampling)
    return [
        draw_children(row, int(w), rng.random(int(w))).cpu().numpy()
        for row, w in zip(q, widths, strict=True)
    ], q


def _static(
    draft: LanguageModel,
    cache: KVCache,
    context: list[int],
    shape: Shape,
    tree: Tree,
    rule: str,
    sampling: Sampling,
    rng,
) -> Proposal:
    tokens, slots = np.zeros(tree.size + 1, dtype=np.int64), np.full(tree.size + 1, -1)
    hidden, parents, run, rows = _root(draft, cache, context), np.array([0]), [], {}
    for depth in range(1, tree.max_depth + 1):
        logits = draft.logits(hidden)
        if shape.stop and shape.stop.stops(probabilities(logits[0], sampling)):
            tree = tree.upto(depth - 1)
            break
        found, q = _children(logits, tree, parents, rule, sampling, rng)
        for i, parent in enumerate(parents):
            kids = tree.children(parent)
            tokens[kids] = found[i][tree.rank[kids]]
            rows[int(parent)] = q[i] if q is not None else None
        parents = tree.level(depth)[tree.width[tree.level(depth)] > 0]
        if len(parents):
            run += parents.tolist()
            slots[parents] = cache.length + np.arange(len(parents))
            sees = None if tree.is_chain else tree.ancestors[np.ix_(parents, run)]
            hidden = _level(draft, cache, len(context), depth, tokens[parents], sees)
    q = None
    if RULES[rule].needs_q:
        q = torch.zeros(tree.size + 1, draft.vocab, device=draft.device)
        for parent, row in rows.items():
            q[parent] = row
    return Proposal(tree, tokens[: tree.size + 1], q, slots[: tree.size + 1])


def _dynamic(
    draft: LanguageModel,
    cache: KVCache,
    context: list[int],
    shape: Shape,
    depth: int,
    sampling: Sampling,
) -> Proposal:
    """EAGLE-2's expansion and reranking, with the draft's own probabilities as confidence."""
    width = min(shape.branches, draft.vocab)
    parent, rank, deep, token, score, slot = (
        [-1],
        [0],
        [0],
        [0],
        [0.0],
        [-1],
    )  # grown level by level, sorted at the end
    hidden, frontier, run = _root(draft, cache, context), [0], []
    for level in range(1, depth + 1):
        logits = draft.logits(hidden)
        best = rank_key(logits).topk(width).indices
        gain, best = (
            x.cpu().numpy() for x in (probabilities(logits, sampling).gather(-1, best).log(), best)
        )
        new = [
            (node, r, int(best[i, r]), score[node] + float(gain[i, r]))
            for i, node in enumerate(frontier)
            for r in range(width)
        ]
        first = len(parent)
        for node, r, t, s in new:
            for column, value in (
                (parent, node),
                (rank, r),
                (deep, level),
                (token, t),
                (score, s),
                (slot, -1),
            ):
                column.append(value)
        frontier = sorted(
            sorted(range(first, len(parent)), key=lambda n: -score[n])[: shape.branches]
        )
        if level < depth:
            run += frontier
            for i, node in enumerate(frontier):
                slot[node] = cache.length + i
            sees = np.array(
                [[_is_above(parent, other, node) for other in run] for node in frontier]
            )
            hidden = _level(
                draft, cache, len(context), level, np.array([token[n] for n in frontier]), sees
            )
    # a child never scores above its parent, so the best `budget` nodes are a tree; ties go to the
    # earlier node
    kept = sorted(sorted(range(1, len(parent)), key=lambda n: (-score[n], n))[: shape.budget])
    place = {0: 0} | {node: i + 1 for i, node in enumerate(kept)}
    order = [0, *kept]
    tree = Tree(
        np.array([-1] + [place[parent[n]] for n in kept]),
        np.array([rank[n] for n in order]),
        np.array([deep[n] for n in order]),
    )
    return Proposal(
        tree, np.array([token[n] for n in order]), None, np.array([slot[n] for n in order])
    )


def _is_above(parent: list[int], other: int, node: int) -> bool:
    """True iff `other` is `node` or stands above it."""
    while node > other:
        node = parent[node]
    return node == other


def propose(
    draft: LanguageModel,
    cache: KVCache,
    context: list[int],
    shape: Shape,
    remaining: int,
    rule: str,
    sampling: Sampling,
    rng: np.random.Generator | None,
) -> Proposal:
    """Draft one block behind the context, no deeper than the tokens that remain; leaves its nodes
    in the draft's cache.
    """
    if shape.tree is not None and not shape.tree.size:
        q = torch.zeros(1, draft.vocab, device=draft.device) if RULES[rule].needs_q else None
        return Proposal(shape.tree, np.zeros(1, np.int64), q, np.full(1, -1))
    if shape.tree is not None:
        return _static(
            draft, cache, context, shape, shape.tree.upto(remaining), rule, sampling, rng
        )
    return _dynamic(draft, cache, context, shape, min(shape.depth, remaining), sampling)

"""Everything that one block of a verification rule can emit on small random models, summed exactly.

A rule is a function `step(p, q, tokens) -> (chances, residual)`: at a node, the probability of
accepting each child after the earlier children were rejected, and the distribution of the next
token if all are rejected. Block verification has no step at a node: its `step` takes a whole chain
with its rows of p and q, and returns the chance h_i and the next token's distribution for every i.

The sums are plain NumPy. Only `step_of` calls the rules of `speclab.verify`, so the tests can put
their own definitions of the rules through the same sums. A `World` is a pair of models: p and q
after every prefix.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations, product

import numpy as np
import torch

from speclab.plain import Array
from speclab.tree import Tree, chain, static_tree
from speclab.verify import RULES, block_chances, point_mass_step

KINDS = ("random", "p = q", "disjoint", "zeros", "p one-hot", "cut")
VOCAB, SEEDS = 4, 4  # of the models of `distance_of`: their tokens; models of each of KINDS


@dataclass
class World:
    """Random p and q after any prefix (a tuple of tokens), from a seed, float64 [vocab].

    concentration: of their Dirichlet distribution; small: one token is likely. kind: one of KINDS.
    With "disjoint" p and q share no token, with "zeros" one token of each has no probability, with
    "p one-hot" the target is sure, and "cut" cuts both as min-p does.
    """

    seed: int
    vocab: int = 3
    concentration: float = 0.7
    kind: str = "random"
    rows: dict[tuple, Array] = field(default_factory=dict)

    def _row(self, which: int, prefix: tuple) -> Array:
        rng = np.random.default_rng([self.seed, which, len(prefix), *prefix])
        row = rng.dirichlet(np.full(self.vocab, self.concentration))
        first = np.arange(self.vocab) < self.vocab // 2
        zero = {
            "disjoint": first if which else ~first,
            "zeros": rng.permutation(self.vocab) == 0,
            "p one-hot": (which == 0) & (row < max(row)),
            "cut": row < 0.3 * max(row),
        }
        row = np.where(zero.get(self.kind, False), 0.0, row)
        return row / row.sum()

    def at(self, which: str, prefix: tuple) -> Array:
        """Row of "p" or "q" after a prefix."""
        key = (int(which == "q" and self.kind != "p = q"), prefix)
        if key not in self.rows:
            self.rows[key] = self._row(*key)
        return self.rows[key]


def remaining_weights(weights: Array, gone: tuple) -> Array:
    """Renormalised weights without the tokens `gone`; uniform over the others if none is left."""
    is_free = ~np.isin(np.arange(len(weights)), gone)
    left = weights * is_free
    left = left if left.any() else is_free
    return left / left.sum()


def drafts(rule: str, q: Array, count: int) -> Iterator[tuple[tuple, float]]:
    """Every (children in rank order, probability): draws without replacement for a sampled rule,
    else q's best.
    """
    if not RULES[rule].sampled:
        yield tuple(np.argsort(-q, kind="stable")[:count].tolist()), 1.0
        return
    for tokens in permutations(range(len(q)), count):
        weight = float(np.prod([remaining_weights(q, tokens[:r])[x] for r, x in enumerate(tokens)]))
        if weight > 0:
            yield tokens, weight


def block_outcomes(rule: str, step: Callable, tree: Tree, world: World) -> dict[tuple, float]:
    """Exact distribution of the tokens that one block emits, from all drafts, all acceptances and
    rejections, and all last tokens.
    """
    if rule == "block":
        return _chain_outcomes(step, tree.size, world)

    @cache  # what follows a node and a text is the same, however they were reached
    def below(node: int, prefix: tuple) -> dict:
        emitted: dict[tuple, float] = defaultdict(float)
        children = tree.children(node)
        p, q = world.at("p", prefix), world.at("q", prefix)
        for drafted, weight in drafts(rule, q, int(tree.width[node])):
            # a tree may leave out a rank
            tokens = tuple(drafted[rank] for rank in tree.rank[children])
            chances, residual = step(p, q, tokens)
            for child, token, chance in zip(children, tokens, chances, strict=True):
                if weight * chance > 0:
                    for tail, share in below(int(child), (*prefix, token)).items():
                        emitted[(token, *tail)] += weight * chance * share
                weight *= 1 - chance
            for token, share in enumerate(residual):
                emitted[(token,)] += weight * share
        return emitted

    return below(0, ())


def _chain_outcomes(step: Callable, gamma: int, world: World) -> dict[tuple, float]:
    """`block_outcomes` of block verification: the longest beginning of a chain whose coin accepts
    it.
    """
    emitted: dict[tuple, float] = defaultdict(float)
    for drafted in product(range(world.vocab), repeat=gamma):
        texts = [drafted[:length] for length in range(gamma + 1)]
        p, q = (np.stack([world.at(which, text) for text in texts]) for which in "pq")
        weight = float(np.prod(q[range(gamma), drafted]))
        if weight == 0:
            continue
        chances, after = step(p, q, drafted)
        for text, chance, residual in reversed([*zip(texts, chances, after, strict=True)]):
            for token, share in enumerate(residual):
                emitted[(*text, token)] += weight * float(chance) * float(share)
            weight *= 1 - float(chance)
    return emitted


def first_tokens(emitted: dict[tuple, float], world: World, count: int) -> Array:
    """Joint distribution [vocab] * count of the first tokens, a shorter block being continued by
    sampling from p.
    """
    joint = np.zeros((world.vocab,) * count)
    for tokens, share in emitted.items():
        for tail in product(range(world.vocab), repeat=max(0, count - len(tokens))):
            whole = (*tokens, *tail)[:count]
            joint[whole] += share * likelihood(whole, world, min(len(tokens), count))
    return joint


def likelihood(tokens: tuple, world: World, start: int = 0) -> float:
    """Target probability of the tokens from `start` on."""
    return float(np.prod([world.at("p", tokens[:i])[tokens[i]] for i in range(start, len(tokens))]))


def target_joint(world: World, count: int) -> Array:
    """The target's own joint distribution of the first `count` tokens."""
    return first_tokens({(): 1.0}, world, count)


# ---- the rules of the kit ------------------------------------------------------------------------


def step_of(rule: str) -> Callable:
    """The step of a rule of `verify.RULES`, on NumPy rows."""

    def step(p: Array, q: Array, tokens: tuple) -> tuple:
        if rule == "block":
            return block_chances(torch.tensor(p), torch.tensor(q[:-1]), np.array(tokens))
        # the chance that the target's own draw is this child and no earlier one
        walked = point_mass_step if rule == "exact-match" else RULES[rule].step
        *chances, residual = walked(torch.tensor(p), torch.tensor(q), list(tokens))
        return [float(chance) for chance in chances], residual.numpy()

    return step


def distance_of(rule: str, tree: Tree | None = None) -> float:
    """The exact total-variation distance (0 to 1) of a rule's output to the target's distribution:
    the largest over 20 pairs of random models of four tokens.

    It is 0, but for rounding (1e-12), if the rule is lossless on these models. The output is the
    joint distribution of the first max_depth + 1 tokens. It is a sum over all drafts, coins and
    tokens, so nothing is sampled.

    rule: a name of `verify.RULES`, to which you can add your own. tree: at most 4 levels, 16 nodes
    and 4 children of a node; default: a chain of two tokens if the rule needs a chain, else two
    levels of two children each.

    ValueError for an unknown rule, for greedy (at T = 0 its distance is 0), for a larger tree, and
    for a step that yields no probabilities.
    """
    if rule == "greedy" or rule not in RULES:
        raise ValueError(
            f"rule={rule!r}: allowed are {', '.join([*RULES][1:])} (greedy has no probabilities)"
        )
    tree = tree or (chain(2) if RULES[rule].chain_only else static_tree(2, 2))
    if RULES[rule].chain_only and (tree.has_gaps or not tree.is_chain):
        raise ValueError(f"rule {rule!r} verifies chains only, each token of rank 0; name a chain")
    if max(tree.max_depth, *tree.width) > VOCAB or tree.size > VOCAB**2:
        raise ValueError(
            f"a tree of {tree.size} nodes is too large to enumerate: allowed are 4 levels, 4 "
            "children of a node and 16 nodes"
        )
    # the largest over models of every kind
    count = tree.max_depth + 1
    found = []
    for kind, seed in product(KINDS, range(SEEDS)):
        world = World(seed, VOCAB, kind=kind)
        emitted = block_outcomes(rule, step_of(rule), tree, world)
        if not (min(emitted.values()) > -1e-9 and abs(sum(emitted.values()) - 1) < 1e-9):
            raise ValueError(
                f"rule {rule!r}: what its step yields are no probabilities; yield a chance from 0 "
                "to 1 per child, then a distribution with sum 1"
            )
        gap = first_tokens(emitted, world, count) - target_joint(world, count)
        found.append(float(np.abs(gap).sum() / 2))
    return max(found)

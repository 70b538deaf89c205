"""An independent version of the verification rules, from their papers' definitions in plain NumPy,
with exact sums over everything that can happen in one block.

Nothing in this file calls speclab.verify. A rule is `step(p, q, tokens) -> (chances, residual)`, so
the same enumerator takes the steps of this file and of the kit. A `World` is a pair of models: p
and q after every prefix.
"""

from collections import defaultdict
from itertools import pairwise, permutations, product

import numpy as np


class World:
    """Seeded p and q after any prefix (a tuple of tokens), memorised; float64 [vocab]."""

    def __init__(self, seed: int, vocab: int = 3, concentration: float = 0.7, kind: str = "random"):
        self.seed, self.vocab, self.concentration, self.kind, self.rows = (
            seed,
            vocab,
            concentration,
            kind,
            {},
        )

    def _row(self, which: int, prefix: tuple) -> np.ndarray:
        rng = np.random.default_rng([self.seed, which, len(prefix), *prefix])
        row = rng.dirichlet(np.full(self.vocab, self.concentration))
        first = np.arange(self.vocab) < self.vocab // 2
        zero = {
            "disjoint": first if which else ~first,
            "zeros": rng.permutation(self.vocab) == 0,
            "p one-hot": (which == 0) & (row < max(row)),
        }
        row = np.where(zero.get(self.kind, False), 0.0, row)
        return row / row.sum()

    def at(self, which: str, prefix: tuple) -> np.ndarray:
        """Row of "p" or "q" after a prefix."""
        key = (int(which == "q" and self.kind != "p = q"), prefix)
        if key not in self.rows:
            self.rows[key] = self._row(*key)
        return self.rows[key]


def without(weights: np.ndarray, gone) -> np.ndarray:
    """Renormalised weights without the tokens `gone`; uniform over the others if none is left."""
    left = [0.0 if x in gone else weights[x] for x in range(len(weights))]
    if sum(left) == 0:
        left = [0.0 if x in gone else 1.0 for x in range(len(weights))]
    return np.array(left) / sum(left)


def excess(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """norm(max(p - q, 0)); p where they are equal (never reached)."""
    positive = np.maximum(p - q, 0)
    return positive / positive.sum() if positive.sum() > 0 else p


def recursive(p, q, tokens):
    """Recursive rejection of children that were drawn without replacement."""
    chances = []
    for rank, x in enumerate(tokens):
        now = without(q, tokens[:rank])
        chances.append(min(1.0, p[x] / now[x]))
        p = excess(p, now)
    return chances, p


def point_mass(p, q, tokens):
    """Deterministic children: the conditional probability of each among what is left."""
    chances = []
    for rank, x in enumerate(tokens):
        rest = sum(p[y] for y in range(len(p)) if y not in tokens[:rank])
        chances.append(p[x] / rest if rest > 0 else 0.0)
    kept = np.array([0.0 if y in tokens else p[y] for y in range(len(p))])
    return chances, kept / kept.sum() if kept.sum() > 0 else p


def ratio(p, q, tokens):
    """Lossy: min(1, p/q) whatever the rank."""
    return [min(1.0, p[x] / q[x]) for x in tokens], excess(p, q) if len(tokens) else p


def typical(p, q, tokens):
    """Lossy: Medusa's threshold."""
    cold = np.prod([x**x for x in p if x > 0])  # exp(-H) = prod x^x
    threshold = min(0.09, 0.3 * cold)
    return [float(p[x] > threshold) for x in tokens], p


def greedy(p, q, tokens):
    """Argmax."""
    return [float(x == p.argmax()) for x in tokens], np.eye(len(p))[p.argmax()]


STEPS = {
    "greedy": greedy,
    "rejection": recursive,
    "without-replacement": recursive,
    "point-mass": point_mass,
    "ratio": ratio,
    "typical": typical,
}
SAMPLED = {"rejection", "without-replacement"}


def drafts(rule: str, q: np.ndarray, count: int):
    """Every (children in rank order, probability): draws without replacement for a sampled rule,
    else q's best.
    """
    if rule not in SAMPLED:
        yield tuple(int(x) for x in np.argsort(-q, kind="stable")[:count]), 1.0
        return
    for tokens in permutations(range(len(q)), count):
        weight = float(np.prod([without(q, tokens[:r])[x] for r, x in enumerate(tokens)]))
        if weight > 0:
            yield tokens, weight


def block(rule: str, step, tree, world: World) -> dict[tuple, float]:
    """Exact distribution of the tokens that one block emits: all drafts, all accepts and rejects,
    all emitted tokens.
    """
    memory: dict[tuple, dict] = {}

    def below(node: int, prefix: tuple) -> dict:
        if (node, prefix) not in memory:
            memory[node, prefix] = expand(node, prefix)
        return memory[node, prefix]

    def expand(node: int, prefix: tuple) -> dict:
        emitted, children = defaultdict(float), [int(c) for c in tree.children(node)]
        p, q = world.at("p", prefix), world.at("q", prefix)
        for tokens, weight in drafts(rule, q, len(children)):
            chances, residual = step(p, q, tokens)
            for child, token, chance in zip(children, tokens, chances, strict=True):
                if weight * chance > 0:
                    for tail, share in below(child, (*prefix, token)).items():
                        emitted[(token, *tail)] += weight * float(chance) * share
                weight *= 1 - float(chance)
            for token, share in enumerate(residual):
                emitted[(token,)] += weight * float(share)
        return dict(emitted)

    return below(0, ())


def first_tokens(emitted: dict[tuple, float], world: World, count: int) -> np.ndarray:
    """Joint distribution [vocab] * count of the first tokens, a shorter block being continued by
    sampling from p.
    """
    joint = np.zeros((world.vocab,) * count)
    for tokens, share in emitted.items():
        for tail in product(range(world.vocab), repeat=max(0, count - len(tokens))):
            whole = (*tokens, *tail)[:count]
            joint[whole] += share * likelihood(whole, world, min(len(tokens), count))
    return joint


class Behind:
    """A world after a text. If tokens are copied, a share `sure` of q belongs to them."""

    def __init__(self, world: World, text: tuple, copy: list = (), sure: float = 1.0):
        self.world, self.text, self.copy, self.sure = world, text, copy, sure

    def at(self, which: str, prefix: tuple) -> np.ndarray:
        """Row of "p" or "q" after a prefix."""
        row = self.world.at(which, (*self.text, *prefix))
        if which == "p" or len(prefix) >= len(self.copy):
            return row
        copied = np.eye(len(row))[self.copy[len(prefix)]]
        return self.sure * copied + (1 - self.sure) * row


def texts(block_at, world: World, count: int) -> np.ndarray:
    """Joint distribution [vocab] * count of a text that is decoded in blocks. block_at(text): the
    exact distribution of a block's tokens after a text.
    """
    joint, unfinished = np.zeros((world.vocab,) * count), {(): 1.0}
    while unfinished:
        text, share = unfinished.popitem()
        if len(text) >= count:
            joint[text[:count]] += share
            continue
        for tokens, chance in block_at(text).items():
            longer = (*text, *tokens)
            unfinished[longer] = unfinished.get(longer, 0.0) + share * chance
    return joint


def likelihood(tokens: tuple, world: World, start: int = 0) -> float:
    """Target probability of the tokens from `start` on."""
    return float(np.prod([world.at("p", tokens[:i])[tokens[i]] for i in range(start, len(tokens))]))


def target(world: World, count: int) -> np.ndarray:
    """The target's own joint distribution of the first `count` tokens."""
    whole = product(range(world.vocab), repeat=count)
    return np.array([likelihood(tokens, world) for tokens in whole]).reshape((world.vocab,) * count)


def token_tuples(rule: str, tree, world: World):
    """Every (tokens [N + 1], probability) of a whole drafted tree."""

    def grow(node: int, tokens: list, weight: float):
        if node > tree.size:
            yield np.array(tokens), weight
            return
        children = tree.children(node)
        for chosen, share in drafts(
            rule, world.at("q", prefix_of(tree, tokens, node)), len(children)
        ):
            grown = list(tokens)
            for child, token in zip(children, chosen, strict=True):
                grown[child] = token
            yield from grow(node + 1, grown, weight * share)

    yield from grow(0, [0] * (tree.size + 1), 1.0)


def prefix_of(tree, tokens, node: int) -> tuple:
    """Tokens from below the root down to a node."""
    return () if node == 0 else (*prefix_of(tree, tokens, tree.parent[node]), int(tokens[node]))


def rows(tree, tokens, world: World) -> tuple[np.ndarray, np.ndarray]:
    """p and q [N + 1, vocab] after each node of a drafted tree."""
    return tuple(
        np.stack([world.at(which, prefix_of(tree, tokens, n)) for n in range(tree.size + 1)])
        for which in "pq"
    )


def walk(rule: str, tree, tokens, p, q, uniforms) -> tuple[tuple, int, str, int]:
    """(path, token, kind, tried) of given uniforms, by this file's steps."""
    node, path, tried = 0, [], 0
    while True:
        children = [int(c) for c in tree.children(node)]
        chances, residual = STEPS[rule](p[node], q[node], tuple(int(tokens[c]) for c in children))
        for child, chance in zip(children, chances, strict=True):
            tried += 1
            if uniforms[tried - 1] < chance:
                path, node = [*path, child], child
                break
        else:
            token = int(
                np.searchsorted(
                    np.cumsum(residual), uniforms[tried] * np.sum(residual), side="right"
                )
            )
            return tuple(path), token, "recovered" if children else "bonus", tried


def cuts(rule: str, tree, tokens, p, q) -> np.ndarray:
    """Every place in [0, 1] where a decision at any node can change."""
    found = [0.0, 1.0]
    for node in range(tree.size + 1):
        chances, residual = STEPS[rule](
            p[node], q[node], tuple(int(tokens[c]) for c in tree.children(node))
        )
        found += [*chances, *np.cumsum(residual)]
    found = np.unique(np.clip(found, 0, 1))
    return found[np.append(True, np.diff(found) > 1e-15)]


def integrate(decide, breaks: np.ndarray, count: int):
    """Exact integral of a piecewise constant decision over its uniforms: every (verdict, volume).

    `decide(uniforms [count])` reads its first `tried + 1` uniforms only and changes at `breaks`
    only, so one point in each cell will do.
    """

    def explore(coins: list, volume: float):
        verdict = decide(np.array(coins + [0.5] * (count - len(coins))))
        if verdict.tried < len(coins):
            yield verdict, volume
            return
        for low, high in pairwise(breaks):
            yield from explore([*coins, (low + high) / 2], volume * (high - low))

    yield from explore([], 1.0)

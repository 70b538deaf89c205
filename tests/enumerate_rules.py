"""An independent version of the verification rules, from their papers' definitions in plain NumPy,
for the sums of `speclab.lab.enumeration`, which take these steps as well as the kit's.

Nothing in this file calls speclab.verify.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from speclab.lab.enumeration import World, drafts, remaining_weights
from speclab.plain import Array
from speclab.tree import Tree


def excess(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """norm(max(p - q, 0)); p where they are equal (never reached)."""
    positive = np.maximum(p - q, 0)
    return positive / positive.sum() if positive.sum() > 0 else p


def recursive(p, q, tokens):
    """Recursive rejection of children that were drawn without replacement."""
    chances = []
    for rank, x in enumerate(tokens):
        now = remaining_weights(q, tokens[:rank])
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


def block_verification(p, q, tokens):
    """Algorithm 2 of arXiv:2403.10444, line by line: h_1 .. h_n after h_0 = 1, and the distribution
    of the next token after each length, which after the whole chain is p.
    """
    joint, chances, after = 1.0, [], []
    for i in range(len(tokens) + 1):
        if i > 0:
            x = tokens[i - 1]
            joint = min(joint * p[i - 1][x] / q[i - 1][x], 1.0)
        if i == len(tokens):
            return [1.0, *chances[1:], joint], [*after, p[i]]
        missing = [max(joint * p[i][y] - q[i][y], 0.0) for y in range(len(p[i]))]
        bottom = sum(missing) + 1 - joint
        chances.append(sum(missing) / bottom if bottom > 0 else 1.0)
        after.append(np.array(missing) / sum(missing) if sum(missing) > 0 else p[i])


STEPS = {
    "greedy": greedy,
    "rejection": recursive,
    "without-replacement": recursive,
    "point-mass": point_mass,
    "ratio": ratio,
    "typical": typical,
    "exact-match": point_mass,  # the chance that the target's draw is this child and no earlier one
    "block": block_verification,
}


def accepted_length(emitted: dict[tuple, float]) -> float:
    """Mean number of accepted tokens in a block, whose last token was not drafted."""
    return sum(share * (len(tokens) - 1) for tokens, share in emitted.items())


def most_accepted(
    gamma: int, world: World, text: tuple = (), drafted: float = 1.0, accepted: float = 1.0
) -> float:
    """The most drafted tokens that any lossless rule for a chain drawn from q accepts on average.

    A chain is drafted and accepted as often as it is drafted at most, and as often as its beginning
    is accepted and followed by p, because a lossless text goes on so.
    """
    if gamma == 0:
        return 0.0
    total = 0.0
    for token, (p, q) in enumerate(zip(world.at("p", text), world.at("q", text), strict=True)):
        chain = min(drafted * q, accepted * p)
        longer = (*text, token)
        total += chain + most_accepted(gamma - 1, world, longer, drafted * q, chain)
    return total


class Behind:
    """A world after a text. If tokens are copied, a share `sure` of q belongs to them."""

    def __init__(self, world: World, text: tuple, copy: list = (), sure: float = 1.0):
        self.world, self.text, self.copy, self.sure = world, text, copy, sure
        self.vocab = world.vocab

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


def token_tuples(rule: str, tree: Tree, world: World) -> Iterator[tuple[Array, float]]:
    """Every (tokens [N + 1], probability) of a whole drafted tree."""

    def grow(node: int, tokens: list, weight: float) -> Iterator[tuple[Array, float]]:
        if node > tree.size:
            yield np.array(tokens), weight
            return
        children = tree.children(node)
        q = world.at("q", prefix_of(tree, tokens, node))
        for chosen, share in drafts(rule, q, len(children)):
            grown = list(tokens)
            for child, token in zip(children, chosen, strict=True):
                grown[child] = token
            yield from grow(node + 1, grown, weight * share)

    yield from grow(0, [0] * (tree.size + 1), 1.0)


def prefix_of(tree: Tree, tokens: Array | list, node: int) -> tuple:
    """Tokens from below the root down to a node."""
    return () if node == 0 else (*prefix_of(tree, tokens, tree.parent[node]), int(tokens[node]))


def rows(tree: Tree, tokens: Array, world: World) -> tuple[Array, ...]:
    """p and q [N + 1, vocab] after each node of a drafted tree."""
    return tuple(
        np.stack([world.at(which, prefix_of(tree, tokens, n)) for n in range(tree.size + 1)])
        for which in "pq"
    )


def walk(rule: str, tree, tokens, p, q, uniforms) -> tuple[tuple, int, str, int]:
    """(path, token, kind, tried) of given uniforms, by this file's steps."""
    if rule == "exact-match":
        return own_draws(tree, tokens, p, uniforms)
    if rule == "block":
        chances, after = STEPS[rule](p, q, tuple(tokens[1:]))
        length = max(i for i in range(tree.size + 1) if uniforms[i] < chances[i] or i == 0)
        token, path = picked(after[length], uniforms[0]), tuple(range(1, length + 1))
        return path, token, "bonus" if length == tree.size else "recovered", tree.size
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
            token = picked(residual, uniforms[tried])
            return tuple(path), token, "recovered" if children else "bonus", tried


def picked(row: np.ndarray, uniform: float) -> int:
    """The token that a uniform number picks."""
    return int(np.searchsorted(np.cumsum(row), uniform * np.sum(row), side="right"))


def own_draws(tree, tokens, p, uniforms) -> tuple[tuple, int, str, int]:
    """`walk` of exact match: at each node the target draws with the node's number."""
    node, path, tried = 0, [], 0
    while True:
        own, children = picked(p[node], uniforms[node]), [int(c) for c in tree.children(node)]
        drafted = [int(tokens[c]) for c in children]
        if own not in drafted:
            kind = "recovered" if children else "bonus"
            return tuple(path), own, kind, tried + len(children)
        tried += drafted.index(own) + 1
        node = children[drafted.index(own)]
        path.append(node)


def cuts(rule: str, tree, tokens, p, q) -> np.ndarray:
    """Every place in [0, 1] where a decision at any node can change."""
    found = [0.0, 1.0]
    if rule == "block":
        chances, after = STEPS[rule](p, q, tuple(tokens[1:]))
        found += [*chances, *np.cumsum(after, axis=1).ravel()]
        return np.unique(np.clip(found, 0, 1))
    for node in range(tree.size + 1):
        chances, residual = STEPS[rule](
            p[node], q[node], tuple(int(tokens[c]) for c in tree.children(node))
        )
        found += [*chances, *np.cumsum(p[node] if rule == "exact-match" else residual)]
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

"""An independent version of the verification rules, from their papers' definitions in plain NumPy,
with exact sums over everything that can happen in one block.

Nothing in this file calls speclab.verify. A rule is `step(p, q, tokens) -> (chances, residual)`, so
the same enumerator takes the steps of this file and of the kit. Block verification has no step at a
node: its `step` takes a whole chain with its rows of p and q, and gives the chance h_i and the next
token's distribution for every i. A `World` is a pair of models: p and q after every prefix.
"""

from collections import defaultdict
from itertools import pairwise, permutations, product

import numpy as np
from scipy.optimize import linprog


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
SAMPLED = {"rejection", "without-replacement", "exact-match", "block"}


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
    if rule == "block":
        return whole_chains(step, tree, world)
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


def whole_chains(step, tree, world: World) -> dict[tuple, float]:
    """`block` for block verification: the longest beginning of the chain whose coin accepts it."""
    emitted = defaultdict(float)
    for tokens, weight in token_tuples("block", tree, world):
        drafted = tuple(int(x) for x in tokens[1:])
        chances, after = step(*rows(tree, tokens, world), drafted)
        for length in reversed(range(tree.size + 1)):
            for token, share in enumerate(after[length]):
                here = weight * float(chances[length]) * float(share)
                emitted[(*drafted[:length], token)] += here
            weight *= 1 - float(chances[length])
    return dict(emitted)


def accepted_length(emitted: dict[tuple, float]) -> float:
    """Mean number of accepted tokens in a block, whose last token was not drafted."""
    return sum(share * (len(tokens) - 1) for tokens, share in emitted.items())


def most_accepted(gamma: int, world: World) -> float:
    """The most drafted tokens that any lossless rule for a chain drawn from q accepts on average: a
    linear programme over all rules, whatever they look at.

    Its variables are P(at least i tokens are accepted | the chain). They fall in i. If the chains
    that begin with y are accepted up to y with probability A(y) together, the token after y can
    only follow p if A(y x) <= A(y) p(x | y), and this is enough.
    """
    chains = list(product(range(world.vocab), repeat=gamma))
    names = {(c, i): k for k, (c, i) in enumerate(product(chains, range(1, gamma + 1)))}
    drafted = {c: np.prod([world.at("q", c[:i])[x] for i, x in enumerate(c)]) for c in chains}

    def accepted(prefix):
        """A(prefix) as coefficients of the variables, and as a constant."""
        row = np.zeros(len(names))
        for c in chains:
            if prefix and c[: len(prefix)] == prefix:
                row[names[c, len(prefix)]] = drafted[c]
        return row, float(not prefix)

    rows_, limits = [], []
    for length in range(1, gamma + 1):
        for y in product(range(world.vocab), repeat=length):
            (above, constant), share = accepted(y[:-1]), world.at("p", y[:-1])[y[-1]]
            rows_.append(accepted(y)[0] - share * above)
            limits.append(share * constant)
    for c, i in product(chains, range(2, gamma + 1)):
        row = np.zeros(len(names))
        row[names[c, i]], row[names[c, i - 1]] = 1, -1
        rows_.append(row)
        limits.append(0)
    value = -np.array([drafted[c] for c, _ in names])
    return -linprog(value, np.array(rows_), limits, bounds=(0, 1)).fun


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

"""Verification rules: exact identities over everything that can happen. The lossy rules must
violate them. (Sampling through drafting and caches: test_decode.)

`enumerate_rules` defines the rules independently of the kit; `speclab.lab.enumeration` sums over
everything that can happen. There are three parts: the rules' steps reproduce the target's
distribution exactly (enumerated); the walk of `verify` equals the enumerated walk (compared for any
uniforms, and integrated exactly over all of them); and children are drawn with exactly their
probability.
"""

from collections import defaultdict
from functools import partial
from itertools import permutations, product

import numpy as np
import pytest
import torch
from conftest import refuses
from enumerate_rules import (
    STEPS,
    Behind,
    accepted_length,
    cuts,
    integrate,
    most_accepted,
    rows,
    texts,
    token_tuples,
    walk,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from speclab.copying import copied
from speclab.lab.enumeration import (
    KINDS,
    World,
    block_outcomes,
    distance_of,
    drafts,
    first_tokens,
    remaining_weights,
    step_of,
    target_joint,
)
from speclab.shapes import parse_shape
from speclab.tree import PLAIN, Tree, chain, static_tree
from speclab.verify import (
    RULES,
    Rule,
    Verdict,
    draw_children,
    matching_path,
    verify,
)

ALL, PAIR = st.sampled_from(list(RULES)), static_tree(1, 2)
LOSSLESS = ("rejection", "block", "point-mass", "without-replacement")
CHAINS = [("chain:1", 3), ("chain:2", 3), ("chain:3", 3), ("chain:4", 3), ("chain:2", 4)]
# wide roots, as wide as the vocabulary too, two levels, a budget that cuts a family, siblings that
# both have a family, the paper's 2+4+2
TREES = [("tree:1,3", 3), ("tree:1,4", 4), ("tree:2,2", 4), ("tree:2,3,5", 4), ("tree:3,2,8", 4)]
CASES = [(rule, *chain) for rule in LOSSLESS[:2] for chain in CHAINS]
CASES += [(rule, *shape) for rule in LOSSLESS[2:] for shape in [("chain:3", 3), *TREES]]


def decide(rule, tree, tokens, p, q, uniforms):
    """`verify` on NumPy rows."""
    return verify(rule, tree, tokens, torch.tensor(p), torch.tensor(q), uniforms)


def drafted(rule, tree, world, rng):
    """tokens, p and q of a tree drafted for the rule with NumPy's own random choice."""
    tokens = np.zeros(tree.size + 1, dtype=np.int64)
    for node in range(tree.size + 1):
        q = rows(tree, tokens, world)[1][node]
        options, weights = zip(*drafts(rule, q, len(tree.children(node))), strict=True)
        tokens[tree.children(node)] = options[
            rng.choice(len(options), p=np.array(weights) / sum(weights))
        ]
    return (tokens, *rows(tree, tokens, world))


def assert_same(found, wanted, within=1e-12):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=within)


# ---- the steps: exact ----------------------------------------------------------------------------

weights = st.lists(
    st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-6, 1.0)), min_size=4, max_size=4
).filter(any)
distributions = weights.map(lambda w: np.array(w) / sum(w))


@given(distributions, distributions, st.sampled_from(list(permutations(range(4), 3))))
def test_every_step_equals_its_definition(p, q, tokens):
    for rule in ("without-replacement", "point-mass", "ratio", "typical"):
        if rule != "typical" and not q[list(tokens)].all():
            continue
        chances, residual = step_of(rule)(p, q, tokens)
        wanted, left = STEPS[rule](p, q, tokens)
        reached = np.cumprod(
            [1.0, *(1 - np.array(wanted))]
        )  # what is never reached may be anything
        assert_same(reached[:-1] * chances, reached[:-1] * wanted, 1e-9)
        assert_same(reached[-1] * residual, reached[-1] * left, 1e-9)


def test_one_rejection_by_hand():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    chance, residual = step_of("rejection")(p, q, (1,))
    assert chance == pytest.approx([0.6]) and residual == pytest.approx([1, 0, 0])
    chances, residual = step_of("without-replacement")(
        p, q, (1, 2)
    )  # then p = (1, 0, 0), q = (0.4, 0, 0.6)
    assert chances == pytest.approx([0.6, 0]) and residual == pytest.approx([1, 0, 0])
    chances, residual = step_of("point-mass")(
        p, q, (1, 2)
    )  # 0.3, then 0.2 of the 0.7 that are left
    assert chances == pytest.approx([0.3, 2 / 7]) and residual == pytest.approx([1, 0, 0])
    assert step_of("ratio")(p, q, (1, 2))[0] == pytest.approx([0.6, 2 / 3])
    assert step_of("typical")(p, q, (1, 2))[0] == [1, 1], "min(0.09, 0.3 exp(-1.03)) = 0.09"
    assert step_of("typical")(np.array([0.93, 0.05, 0.02]), q, (0, 1))[0] == [1, 0]


# ---- whole blocks: exact -------------------------------------------------------------------------


def assert_lossless(rule, step, tree, world):
    """The first tokens of a block have exactly the target's distribution."""
    emitted = block_outcomes(rule, step, tree, world)
    for count in (1, 2, tree.max_depth + 1):
        assert_same(first_tokens(emitted, world, count), target_joint(world, count))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rule", "shape", "vocab"), CASES)
def test_a_blocks_tokens_have_exactly_the_targets_distribution(rule, shape, vocab, kind):
    world = World(11, vocab, kind=kind)
    assert_lossless(rule, step_of(rule), parse_shape(shape).tree, world)


def test_the_tree_may_be_irregular():
    tree = Tree(
        np.array([-1, 0, 0, 2, 2, 2, 4]),
        np.array([0, 0, 1, 0, 1, 2, 0]),
        np.array([0, 1, 1, 2, 2, 2, 3]),
    )
    for rule in LOSSLESS[2:]:
        assert_lossless(rule, step_of(rule), tree, World(3, 4))


@pytest.mark.parametrize(
    ("rule", "drafted_as"), [("rejection", "ratio"), ("point-mass", "rejection")]
)
def test_what_the_wrong_kind_of_draft_costs(rule, drafted_as):
    """Rejection needs sampled tokens. Point mass also accepts sampled tokens if their choice does
    not depend on the target.
    """
    world = World(5, 4)
    joint = first_tokens(block_outcomes(drafted_as, step_of(rule), chain(2), world), world, 2)
    miss = np.abs(joint - target_joint(world, 2)).max()
    assert miss > 0.01 if rule == "rejection" else miss < 1e-12


# ---- the distance of a rule ----------------------------------------------------------------------


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "greedy"])
def test_the_distance_of_a_rule_says_whether_it_is_lossless(rule):
    distance = distance_of(rule)
    assert distance < 1e-12 if RULES[rule].lossless else 0.5 < distance < 1


def test_the_distance_of_typical_acceptance_on_a_chain_of_one_token_by_hand():
    """An accepted best token of q comes with probability 1 instead of p; else p is kept."""
    misses = []
    for kind, seed in product(KINDS, range(4)):
        p, q = (World(seed, 4, kind=kind).at(which, ()) for which in "pq")
        (accepted,), _ = STEPS["typical"](p, q, (q.argmax(),))
        misses.append(accepted * (1 - p[q.argmax()]))
    assert distance_of("typical", chain(1)) == pytest.approx(max(misses), abs=1e-12)


def test_a_rank_that_is_drawn_and_left_out_is_no_loss_for_best_tokens_only():
    tree = Tree.of_paths([[0], [2], [2, 0]])
    assert distance_of("without-replacement", tree) > 0.1
    assert distance_of("point-mass", tree) < 1e-12 and distance_of("exact-match", tree) < 1e-12


@pytest.mark.parametrize(
    ("rule", "tree", "words"),
    [
        ("rejecton", None, "'rejecton': allowed are rejection, .*greedy has no prob"),
        ("greedy", None, "'greedy': allowed are"),
        ("block", PAIR, "verifies chains only"),
        ("point-mass", static_tree(1, 5), "allowed are 4 levels"),
        ("rejection", chain(5), "too large to enumerate"),
    ],
)
def test_a_distance_that_cannot_be_enumerated_is_refused(rule, tree, words):
    with refuses(words):
        distance_of(rule, tree)


@pytest.mark.parametrize(("chance", "factor"), [(1.2, 1), (0.5, 2), (float("nan"), 1)])
def test_a_step_that_yields_no_probabilities_is_refused(chance, factor, monkeypatch):
    def step(p, q, tokens):
        yield from [torch.tensor(chance)] * len(tokens)
        yield factor * p

    monkeypatch.setitem(RULES, "mine", Rule(step))
    with refuses("'mine': what its step yields are no probabilities"):
        distance_of("mine")


# ---- block verification --------------------------------------------------------------------------

TWO_WORDS = np.array([1, 2]) / 3, np.array([2, 1]) / 3  # p and q, whatever the text


class Constant:
    """A world whose p and q do not depend on the text."""

    vocab = 2

    def at(self, which, prefix):
        return TWO_WORDS[which == "q"]


def test_block_verification_by_hand():
    """The example of the paper's section 2: of two drafted words token verification accepts 10/9,
    block verification 11/9. The chain (0, 1) is always accepted, though its word 0 is too likely.
    """
    p, q = (np.tile(row, (3, 1)) for row in TWO_WORDS)
    by_hand = {  # h_1 and h_2, and what follows one accepted word
        (0, 0): ([0, 1 / 4], [1 / 3, 2 / 3]),  # nothing is missing, so h_1 = 0 and e_1 = 0
        (0, 1): ([0, 1], [1 / 3, 2 / 3]),
        (1, 0): ([1, 1 / 2], [0, 1]),
        (1, 1): ([1, 1], [0, 1]),
    }
    for tokens, (wanted, follows) in by_hand.items():
        chances, after = step_of("block")(p, q, tokens)
        assert_same(chances, [1, *wanted])
        assert_same(after, [[0, 1], follows, TWO_WORDS[0]])
    for rule, accepted in {"rejection": 10 / 9, "block": 11 / 9}.items():
        emitted = block_outcomes(rule, step_of(rule), chain(2), Constant())
        assert accepted_length(emitted) == pytest.approx(accepted, abs=1e-12)


def test_block_verification_of_no_tokens_draws_from_the_target():
    q = torch.zeros(1, 3)  # not read
    assert verify("block", PLAIN, [0], P[:1], q, [0.6]) == Verdict((), 1, "bonus", 0)


@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_no_lossless_rule_accepts_more_than_block_verification(gamma, kind):
    """Theorem 2 of the paper: the most that any rule can reach. Token verification reaches it for
    one token, and if p/q never falls below 1 before it is 0.
    """
    accepted = {}
    for seed in range(4):
        world = World(seed, 3, kind=kind)
        for rule in LOSSLESS[:2]:
            emitted = block_outcomes(rule, step_of(rule), chain(gamma), world)
            accepted[rule, seed] = accepted_length(emitted)
        most = most_accepted(gamma, world)
        assert accepted["block", seed] == pytest.approx(most, abs=1e-12)
        assert accepted["rejection", seed] < accepted["block", seed] + 1e-12
    gains = [accepted["block", seed] - accepted["rejection", seed] for seed in range(4)]
    is_strict = gamma > 1 and kind in ("random", "zeros")
    assert max(gains) > 1e-3 if is_strict else max(gains) < 1e-12


def changed_step(change):
    """Block verification with a mistake: change(chances, after, token) replaces both; token holds
    the chances and residuals of token verification.
    """

    def step(p, q, tokens):
        chances, after = STEPS["block"](p, q, tokens)
        token = [STEPS["rejection"](p[i], q[i], (x,)) for i, x in enumerate(tokens)]
        return change(chances, after, token)

    return step


MISTAKES = {
    "the residual of token verification": lambda chances, after, token: (
        chances,
        [*(rest for _, rest in token), after[-1]],
    ),
    "the chances of token verification, up to the last that is accepted": lambda _, after, token: (
        [1.0, *(chance for (chance,), _ in token)],
        after,
    ),
    "a draw from p after a rejection": lambda chances, after, token: (
        chances,
        [after[-1]] * len(after),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_block_verification_fail_the_identity(mistake):
    """The wrong residual shows least: 0.005. No sampled text of a usual length would tell."""
    world = World(1, 3, 1.0)
    wrong = block_outcomes("block", changed_step(MISTAKES[mistake]), chain(2), world)
    found = first_tokens(wrong, world, 3)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert np.abs(found - target_joint(world, 3)).sum() / 2 > 0.003, "total variation"


def test_block_verification_that_stops_at_the_first_rejection_fails_the_identity():
    """A deeper coin can accept what an earlier one rejected."""
    world, emitted = Constant(), defaultdict(float)
    for tokens, weight in token_tuples("block", chain(2), world):
        chances, after = STEPS["block"](*rows(chain(2), tokens, world), tokens[1:])
        for length in range(3):
            ends = 1 - chances[length + 1] if length < 2 else 1
            for token, share in enumerate(after[length]):
                emitted[(*tokens[1 : length + 1], token)] += weight * ends * share
            weight *= 1 - ends
    found = first_tokens(emitted, world, 3)
    assert np.abs(found - target_joint(world, 3)).sum() / 2 > 0.05, "total variation"


# ---- exact match ---------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.sampled_from(["chain:3", "tree:2,2,3"]))
def test_exact_match_writes_what_the_target_draws_with_the_same_numbers(seed, kind, shape):
    """Token for token, whatever was drafted: the text of a seed does not depend on the draft."""
    world, rng, tree = (
        World(seed, 4, kind=kind),
        np.random.default_rng(seed),
        parse_shape(shape).tree,
    )
    tokens, p, q = drafted("exact-match", tree, world, rng)
    coins, alone = rng.random(tree.size + 1), ()
    verdict = decide("exact-match", tree, tokens, p, q, coins)
    for node in (0, *verdict.path):
        alone += (int((world.at("p", alone).cumsum() > coins[node]).argmax()),)
    assert (*tokens[list(verdict.path)].tolist(), verdict.token) == alone


# ---- a draft and copies together: exact, over whole texts ---------------------------------------


def texts_of_both(rule, world, verified_as="point-mass", sure=1.0):
    """Joint distribution of a text's first four tokens, in which blocks are copied if a token
    matches and drafted otherwise. Parameters: how copies are verified, and how sure q is of them.
    """

    def block_at(text):
        copy = copied((0, 1, *text), least=1, most=3).tolist()
        here = Behind(world, text, copy, sure)
        if not copy:
            return block_outcomes(rule, step_of(rule), chain(2), here)
        return block_outcomes("point-mass", step_of(verified_as), chain(3), here)

    return texts(block_at, world, 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", LOSSLESS)
def test_texts_of_a_draft_and_copies_have_exactly_the_targets_distribution(rule, kind):
    """A copied token is a point mass, and also valid for the rejection rule with q = 1 for it."""
    world = World(11, 3, kind=kind)
    for verified_as in ("point-mass", "rejection"):
        assert_same(texts_of_both(rule, world, verified_as), target_joint(world, 4))


def test_copies_that_pass_for_drawn_tokens_fail_the_identity():
    for seed in range(5):
        world = World(seed, 3, 1.0)
        found = texts_of_both("rejection", world, "rejection", sure=0.6)
        assert found.sum() == pytest.approx(1, abs=1e-12)
        assert np.abs(found - target_joint(world, 4)).sum() / 2 > 0.05, "total variation"


# ---- verify itself -------------------------------------------------------------------------------


@settings(max_examples=100)
@given(
    st.integers(0, 10**6),
    st.sampled_from(KINDS),
    st.sampled_from(["chain:1", "chain:4", "tree:1,3", "tree:3,2,8", "tree:3,3,20"]),
    ALL,
)
def test_verify_walks_as_defined(seed, kind, shape, rule):
    tree, rng = parse_shape(shape).tree, np.random.default_rng(seed)
    if RULES[rule].chain_only and not shape.startswith("chain"):
        rule = "without-replacement"
    world = World(seed, 4, kind="random" if rule == "ratio" else kind)
    tokens, p, q = drafted(rule, tree, world, rng)
    uniforms = rng.random(tree.size + 1)
    wanted = walk(rule, tree, tokens, p, q, uniforms)
    assert decide(rule, tree, tokens, p, q, uniforms) == Verdict(*wanted)


@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        ("rejection", "chain:1"),
        ("rejection", "chain:2"),
        ("block", "chain:1"),
        ("block", "chain:2"),
        ("exact-match", "chain:2"),
        ("exact-match", "tree:1,2"),
        ("without-replacement", "tree:1,2"),
        ("point-mass", "tree:1,2"),
        ("point-mass", "tree:2,2,3"),
        ("ratio", "chain:2"),
        ("typical", "chain:2"),
        ("typical", "tree:1,2"),
    ],
)
def test_verify_integrated_over_its_uniforms_is_the_target(rule, shape):
    """verify as a black box: every draft, and one point in every cell of the uniforms within which
    the result is constant.
    """
    tree, world, emitted = (parse_shape(shape).tree, World(22, 3, 1.0), defaultdict(float))
    for tokens, weight in token_tuples(rule, tree, world):
        p, q = rows(tree, tokens, world)
        black_box = partial(verify, rule, tree, tokens, torch.tensor(p), torch.tensor(q))
        for verdict, volume in integrate(black_box, cuts(rule, tree, tokens, p, q), tree.size + 1):
            emitted[(*tokens[list(verdict.path)].tolist(), verdict.token)] += weight * volume
    miss = max(
        np.abs(first_tokens(emitted, world, n) - target_joint(world, n)).max()
        for n in (1, 2, tree.max_depth + 1)
    )
    assert sum(emitted.values()) == pytest.approx(1, abs=1e-12)
    assert miss < 1e-12 if RULES[rule].lossless else miss > 0.01


def test_float32_rows_are_normalised_in_float64():
    third = torch.full((2, 3), 1 / 3, dtype=torch.float32)  # 0.33333334 each
    asked = {
        ("point-mass", None, 0.333333334): "recovered",
        ("point-mass", None, 0.333333333): "bonus",
        ("rejection", third.double(), 0.99999999): "bonus",  # equal but for rounding
    }
    for (rule, q, coin), kind in asked.items():
        assert verify(rule, chain(1), [0, 0], third, q, [coin, 0.0]).kind == kind


# ---- drafting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [(0.5, 0.3, 0.15, 0.05), (0.0, 0.7, 0.0, 0.3), (0.0, 0.0, 1.0, 0.0)])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_children_are_drawn_with_exactly_their_probability(q, count):
    """Uniforms in the middle and just inside the ends of a token's share of the remaining mass draw
    this token.
    """
    q = np.array(q)
    for tokens, _ in drafts("without-replacement", q, count):
        left = [remaining_weights(q, tokens[:rank]) for rank in range(count)]
        both = list(zip(left, tokens, strict=True))
        for place in (0.5, 1e-9, 1 - 1e-9):
            uniforms = [row.cumsum()[token] - place * row[token] for row, token in both]
            assert draw_children(torch.tensor(q), count, uniforms).tolist() == list(tokens)


def test_a_level_is_drawn_at_once_as_row_by_row():
    rng = np.random.default_rng(0)
    q = torch.tensor(rng.dirichlet(np.ones(6), (2, 3)), dtype=torch.float32)
    uniforms = rng.random((2, 3, 4))
    together = draw_children(q, 4, uniforms)
    assert together.shape == (2, 3, 4)
    for place in np.ndindex(2, 3):
        alone = draw_children(q[place], 4, uniforms[place])
        assert together[place].tolist() == alone.tolist()


# ---- greedy --------------------------------------------------------------------------------------


@given(
    st.integers(0, 10**6),
    st.sampled_from(["chain:1", "chain:5", "tree:1,4", "tree:3,2,8", "tree:3,3", "tree:2,3,5"]),
)
def test_greedy_takes_the_longest_path_of_argmaxes(seed, shape):
    tree, rng = parse_shape(shape).tree, np.random.default_rng(seed)
    scores = rng.normal(size=(tree.size + 1, 4)).round(1)  # rounded: ties
    tokens, coins = np.zeros(tree.size + 1, dtype=int), rng.random(tree.size + 1)
    for node in range(tree.size + 1):
        children = tree.children(node)
        tokens[children] = rng.permutation(4)[: len(children)]
    verdict = decide("greedy", tree, tokens, scores, scores, None)
    assert verdict == Verdict(*walk("greedy", tree, tokens, scores, scores, coins))
    best = scores.argmax(1)  # of equal scores the lowest id
    assert verdict == matching_path(tree, tokens, best)
    cold = np.eye(4)[best]  # the limit of a cold target
    assert verdict == decide("point-mass", tree, tokens, cold, cold, coins)


# ---- bad input -----------------------------------------------------------------------------------

ONLY_0 = torch.tensor([[1.0, 0.0, 0.0]]).repeat(3, 1)
P, U = torch.tensor([[0.5, 0.3, 0.2]]).repeat(3, 1), np.full(3, 0.5)


def changed(row, column, value):
    """P with one number changed."""
    rows = P.clone()
    rows[row, column] = value
    return rows


@pytest.mark.parametrize(
    ("rule", "tree", "tokens", "p", "q", "uniforms", "words"),
    [
        ("rejection", chain(2), [0, 1, 2], P, None, U, "rule 'rejection' needs q"),
        ("point-mass", PAIR, [0, 1, 1], P, None, U, r"\[1, 1\]: .* need different"),
        ("point-mass", PAIR, [0, 1, 2], changed(2, 0, 0.6), None, U, "p: each row"),
        ("rejection", chain(2), [0, 1, 2], P, changed(1, 1, 0.0), U, "q: each row"),
        ("rejection", chain(2), [0, 1, 2], P, ONLY_0, U, r"tokens \[1\]: .* q = 0"),
        ("block", chain(2), [0, 0, 2], P, ONLY_0, U, r"tokens \[2\]: .* q = 0"),
        ("block", chain(2), [0, 1, -1], P, P, U, r"\[1, -1\]: .* need different"),
        ("block", PAIR, [0, 1, 2], P, P, U, "verifies chains only"),
        ("block", chain(2), [0, 1, 2], P, None, U, "rule 'block' needs q"),
        ("exact-match", chain(2), [0, 1, 2], changed(0, 0, 0.6), None, U, "p: each row"),
        ("point-mass", PAIR, [0, 1, 2], P, None, [0.1, 1.0, 0.2], "less than 1"),
        ("greedy", PAIR, [0, 1, 2], changed(1, 0, float("nan")), None, None, "without NaN"),
    ],
)
def test_what_does_not_fit_together_is_refused(rule, tree, tokens, p, q, uniforms, words):
    with refuses(words):
        verify(rule, tree, tokens, p, q, uniforms)


def test_the_roots_token_and_rows_of_q_below_leaves_are_not_read():
    q = P.clone()
    q[2] = float("nan")
    for rule in ("rejection", "block", "exact-match"):
        assert verify(rule, chain(2), [10**6, 0, 0], P, q, U * 0.9).path == (1, 2)


def test_a_draft_that_ran_out_of_tokens_is_verified_as_it_was_drawn():
    q = torch.tensor([[0.0, 1.0, 0.0]]).repeat(3, 1)  # the second child is any other token
    accepted = verify("without-replacement", PAIR, [0, 1, 2], P, q, [0.5, 0.57, 0.5])
    assert accepted.path == (2,), "p = (5, 0, 2)/7 against (1, 0, 1)/2: the chance is 4/7"
    assert verify("without-replacement", PAIR, [0, 1, 2], P, q, [0.5, 0.58, 0.5]) == Verdict(
        (), 0, "recovered", 2
    )
    with refuses(r"tokens \[2, 1\]: .* q = 0"):
        verify("without-replacement", PAIR, [0, 2, 1], P, q, U)

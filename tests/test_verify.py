"""Verification rules: exact identities over everything that can happen. The lossy rules must
violate them. (Sampling through drafting and caches: test_decode.)

`enumerate_rules` defines the rules independently. There are three parts: the rules' steps reproduce
the target's distribution exactly (enumerated); the walk of `verify` equals the enumerated walk
(compared for any uniforms, and integrated exactly over all of them); and children are drawn with
exactly their probability.
"""

from collections import defaultdict
from functools import partial
from itertools import permutations, product

import numpy as np
import pytest
import torch
from enumerate_rules import (
    STEPS,
    Behind,
    World,
    accepted_length,
    block,
    cuts,
    drafts,
    first_tokens,
    integrate,
    most_accepted,
    rows,
    target,
    texts,
    token_tuples,
    walk,
    without,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from speclab.copying import copied
from speclab.shapes import parse_shape
from speclab.tree import PLAIN, Tree, chain, static_tree
from speclab.verify import (
    RULES,
    Verdict,
    block_chances,
    draw_children,
    matching_path,
    verify,
)

ALL = st.sampled_from(list(RULES))
LOSSLESS = ("rejection", "block", "point-mass", "without-replacement")
KINDS = ("random", "p = q", "disjoint", "zeros", "p one-hot")
CHAINS = [("chain:1", 3), ("chain:2", 3), ("chain:3", 3), ("chain:4", 3), ("chain:2", 4)]
# wide roots, as wide as the vocabulary too, two levels, a budget that cuts a family, siblings that
# both have a family, the paper's 2+4+2
TREES = [("tree:1,3", 3), ("tree:1,4", 4), ("tree:2,2", 4), ("tree:2,3,5", 4), ("tree:3,2,8", 4)]
CASES = [(rule, *chain) for rule in LOSSLESS[:2] for chain in CHAINS]
CASES += [(rule, *shape) for rule in LOSSLESS[2:] for shape in [("chain:3", 3), *TREES]]


def kit_step(rule):
    """The kit's step of a rule on NumPy rows: (chances, residual); of block verification for a
    whole chain, as in `enumerate_rules`.
    """

    def step(p, q, tokens):
        if rule == "block":
            return block_chances(torch.tensor(p), torch.tensor(q[:-1]), tokens)
        *chances, residual = RULES[rule].step(torch.tensor(p), torch.tensor(q), list(tokens))
        return [float(chance) for chance in chances], residual.numpy()

    return step


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
        chances, residual = kit_step(rule)(p, q, tokens)
        wanted, left = STEPS[rule](p, q, tokens)
        reached = np.cumprod(
            [1.0, *(1 - np.array(wanted))]
        )  # what is never reached may be anything
        assert_same(reached[:-1] * chances, reached[:-1] * wanted, 1e-9)
        assert_same(reached[-1] * residual, reached[-1] * left, 1e-9)


@given(distributions, distributions)
def test_acceptance_is_the_ladders(p, q):
    accepted = sum(
        w * kit_step("rejection")(p, q, tokens)[0][0] for tokens, w in drafts("rejection", q, 1)
    )
    assert accepted == pytest.approx(np.minimum(p, q).sum(), abs=1e-12), (
        "one sampled token: the overlap"
    )
    ((best, _),) = drafts("point-mass", q, 2)
    chances, _ = kit_step("point-mass")(p, q, best)
    missed = np.prod(1 - np.array(chances))
    assert 1 - missed == pytest.approx(p[list(best)].sum(), abs=1e-12), "the top mass"


def test_one_rejection_by_hand():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    chance, residual = kit_step("rejection")(p, q, (1,))
    assert chance == pytest.approx([0.6]) and residual == pytest.approx([1, 0, 0])
    chances, residual = kit_step("without-replacement")(
        p, q, (1, 2)
    )  # then p = (1, 0, 0), q = (0.4, 0, 0.6)
    assert chances == pytest.approx([0.6, 0]) and residual == pytest.approx([1, 0, 0])
    chances, residual = kit_step("point-mass")(
        p, q, (1, 2)
    )  # 0.3, then 0.2 of the 0.7 that are left
    assert chances == pytest.approx([0.3, 2 / 7]) and residual == pytest.approx([1, 0, 0])
    assert kit_step("ratio")(p, q, (1, 2))[0] == pytest.approx([0.6, 2 / 3])
    assert kit_step("typical")(p, q, (1, 2))[0] == [1, 1], "min(0.09, 0.3 exp(-1.03)) = 0.09"
    assert kit_step("typical")(np.array([0.93, 0.05, 0.02]), q, (0, 1))[0] == [1, 0]


# ---- whole blocks: exact -------------------------------------------------------------------------


def assert_lossless(rule, step, tree, world):
    """The first tokens of a block have exactly the target's distribution."""
    emitted = block(rule, step, tree, world)
    for count in (1, 2, tree.max_depth + 1):
        assert_same(first_tokens(emitted, world, count), target(world, count))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rule", "shape", "vocab"), CASES)
def test_a_blocks_tokens_have_exactly_the_targets_distribution(rule, shape, vocab, kind):
    world = World(11, vocab, kind=kind)
    assert_lossless(rule, kit_step(rule), parse_shape(shape).tree, world)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([0.2, 1.0, 5.0]), st.sampled_from(CASES))
def test_the_identity_holds_for_random_models(seed, concentration, case):
    rule, shape, vocab = case
    world = World(seed, vocab, concentration)
    assert_lossless(rule, kit_step(rule), parse_shape(shape).tree, world)


def test_the_tree_may_be_irregular():
    tree = Tree(
        np.array([-1, 0, 0, 2, 2, 2, 4]),
        np.array([0, 0, 1, 0, 1, 2, 0]),
        np.array([0, 1, 1, 2, 2, 2, 3]),
    )
    for rule in LOSSLESS[2:]:
        assert_lossless(rule, kit_step(rule), tree, World(3, 4))


@pytest.mark.parametrize(
    ("rule", "drafted_as"), [("rejection", "ratio"), ("point-mass", "rejection")]
)
def test_what_the_wrong_kind_of_draft_costs(rule, drafted_as):
    """Rejection needs sampled tokens. Point mass also accepts sampled tokens if their choice does
    not depend on the target.
    """
    world = World(5, 4)
    joint = first_tokens(block(drafted_as, kit_step(rule), chain(2), world), world, 2)
    miss = np.abs(joint - target(world, 2)).max()
    assert miss > 0.01 if rule == "rejection" else miss < 1e-12


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
        chances, after = kit_step("block")(p, q, tokens)
        assert_same(chances, [1, *wanted])
        assert_same(after, [[0, 1], follows, TWO_WORDS[0]])
    for rule, accepted in {"rejection": 10 / 9, "block": 11 / 9}.items():
        emitted = block(rule, kit_step(rule), chain(2), Constant())
        assert accepted_length(emitted) == pytest.approx(accepted, abs=1e-12)


def test_block_verification_of_no_tokens_draws_from_the_target():
    q = torch.zeros(1, 3)  # not read
    assert verify("block", PLAIN, [0], P[:1], q, [0.6]) == Verdict((), 1, "bonus", 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_no_lossless_rule_accepts_more_than_block_verification(gamma, kind):
    """Theorem 2 of the paper: the most that any rule can reach, by a linear programme. Token
    verification reaches it for one token, and if p/q never falls below 1 before it is 0.
    """
    accepted = {}
    for seed in range(4):
        world = World(seed, 3, kind=kind)
        for rule in LOSSLESS[:2]:
            emitted = block(rule, kit_step(rule), chain(gamma), world)
            accepted[rule, seed] = accepted_length(emitted)
        most = most_accepted(gamma, world)
        assert accepted["block", seed] == pytest.approx(most, abs=1e-6), "the solver's tolerance"
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
    wrong = block("block", changed_step(MISTAKES[mistake]), chain(2), world)
    found = first_tokens(wrong, world, 3)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert np.abs(found - target(world, 3)).sum() / 2 > 0.003, "total variation"


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
    assert np.abs(found - target(world, 3)).sum() / 2 > 0.05, "total variation"


# ---- exact match ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drafted_as", ["rejection", "point-mass"])
@pytest.mark.parametrize("shape", ["chain:1", "chain:2", "chain:3", "tree:2,2,3"])
def test_exact_match_over_every_draft_and_every_draw_of_the_target(shape, drafted_as, kind):
    """It is lossless for drawn and for best tokens. A drawn first token is accepted with the sum of
    q p, the best token with its p.
    """
    tree, world, emitted = parse_shape(shape).tree, World(11, 3, kind=kind), defaultdict(float)
    for tokens, weight in token_tuples(drafted_as, tree, world):
        p, _ = rows(tree, tokens, world)
        for own in product(range(3), repeat=tree.size + 1):
            drawn = np.array([row[token] for row, token in zip(p, own, strict=True)])
            if not drawn.all():
                continue
            coins = [row.cumsum()[t] - row[t] / 2 for row, t in zip(p, own, strict=True)]
            verdict = verify("exact-match", tree, tokens, torch.tensor(p), None, coins)
            tail = (*tokens[list(verdict.path)].tolist(), verdict.token)
            emitted[tail] += weight * drawn.prod()
    for count in (1, 2, tree.max_depth + 1):
        assert_same(first_tokens(emitted, world, count), target(world, count))
    accepted = sum(share for tokens, share in emitted.items() if len(tokens) > 1)
    p, q = world.at("p", ()), world.at("q", ())
    wanted = p[q.argmax()] if drafted_as == "point-mass" else p @ q
    if tree.is_chain:
        assert accepted == pytest.approx(wanted, abs=1e-12)


@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_exact_match_writes_what_the_target_draws_with_the_same_numbers(seed, kind):
    """Token for token, whatever was drafted: the text of a seed does not depend on the draft."""
    world, rng = World(seed, 4, kind=kind), np.random.default_rng(seed)
    tokens, p, q = drafted("exact-match", chain(3), world, rng)
    coins, alone = rng.random(4), ()
    for coin in coins:
        alone += (int((world.at("p", alone).cumsum() > coin).argmax()),)
    verdict = decide("exact-match", chain(3), tokens, p, q, coins)
    written = (*tokens[list(verdict.path)].tolist(), verdict.token)
    assert written == alone[: len(written)]


def test_exact_match_that_draws_again_after_a_mismatch_fails_the_identity():
    p, q = World(1, 4).at("p", ()), World(1, 4).at("q", ())
    again = q * p + (1 - q @ p) * p
    assert np.abs(again - p).sum() / 2 > 0.02, "total variation"


# ---- a draft and copies together: exact, over whole texts ---------------------------------------


def texts_of_both(rule, world, verified_as="point-mass", sure=1.0):
    """Joint distribution of a text's first four tokens, in which blocks are copied if a token
    matches and drafted otherwise. Parameters: how copies are verified, and how sure q is of them.
    """

    def block_at(text):
        copy = copied((0, 1, *text), least=1, most=3).tolist()
        here = Behind(world, text, copy, sure)
        if not copy:
            return block(rule, kit_step(rule), chain(2), here)
        return block("point-mass", kit_step(verified_as), chain(3), here)

    return texts(block_at, world, 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", LOSSLESS)
def test_texts_of_a_draft_and_copies_have_exactly_the_targets_distribution(rule, kind):
    """A copied token is a point mass, and also valid for the rejection rule with q = 1 for it."""
    world = World(11, 3, kind=kind)
    for verified_as in ("point-mass", "rejection"):
        assert_same(texts_of_both(rule, world, verified_as), target(world, 4))


def test_copies_that_pass_for_drawn_tokens_fail_the_identity():
    for seed in range(5):
        world = World(seed, 3, 1.0)
        found = texts_of_both("rejection", world, "rejection", sure=0.6)
        assert found.sum() == pytest.approx(1, abs=1e-12)
        assert np.abs(found - target(world, 4)).sum() / 2 > 0.05, "total variation"


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
        np.abs(first_tokens(emitted, world, n) - target(world, n)).max()
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
        left = [without(q, tokens[:rank]) for rank in range(count)]
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
P, U, PAIR = (torch.tensor([[0.5, 0.3, 0.2]]).repeat(3, 1), np.full(3, 0.5), static_tree(1, 2))


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
    with pytest.raises(ValueError, match=words):
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
    with pytest.raises(ValueError, match=r"tokens \[2, 1\]: .* q = 0"):
        verify("without-replacement", PAIR, [0, 2, 1], P, q, U)

"""Replay against literal decoders on toy models, exact enumeration, hand-made numbers and
properties.
"""

from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from conftest import refuses
from enumerate_rules import STEPS, Behind
from hypothesis import given, settings
from hypothesis import strategies as st
from test_choose import trace_of

from speclab import score
from speclab.lab.combined import longest_chain
from speclab.lab.enumeration import World, block_outcomes, likelihood
from speclab.replay import DRAWN, chain_sums, prompt_sums, ranks_ahead, replay, replay_sampled
from speclab.tree import Tree, chain, static_tree

PAPER_TREE = static_tree(3, 2, 8)
GAPS = Tree(
    np.array([-1, 0, 0, 1, 2, 4]), np.array([0, 1, 3, 0, 2, 0]), np.array([0, 1, 1, 2, 2, 3])
)  # ranks need not be 0, 1, 2
TREES = [
    GAPS,
    chain(1),
    chain(3),
    chain(16),
    PAPER_TREE,
    static_tree(3, 2),
    static_tree(2, 3),
    static_tree(4, 2, 11),
]
EOS = 0
COUNTS = ["blocks", "drafted", "accepted", "emitted", "truncated"]


def as_trace(texts):
    """{prompt: {column: values}} as a trace."""
    parts = [
        pd.DataFrame(columns).assign(
            prompt_id=prompt, domain="code", position=lambda rows: range(len(rows))
        )
        for prompt, columns in texts.items()
    ]
    return pd.concat(parts, ignore_index=True)


def of_pairs(pairs):
    """Columns of the (p, q) of each token."""
    p, q = zip(*pairs, strict=True)
    return {"p_token": p, "q_token": q}


def ranks(*values):
    return trace_of({"x": ("code", values)})


# ---------------------------------------------------------------- by hand


def test_chain_by_hand():
    # gamma 2: [0 0 1] accepts 2, emits 3; [0 0 0]: 2, 3; [2]: 0, 1; [0]: 1 accepted, the text ends
    # before its bonus token.
    blocks = replay(ranks(0, 0, 1, 0, 0, 0, 2, 0), 2)
    columns = ["start", "remaining", "drafted", "accepted", "emitted", "truncated"]
    assert blocks[columns].to_numpy().tolist() == [
        [0, 8, 2, 2, 3, False],
        [3, 5, 2, 2, 3, False],
        [6, 2, 2, 0, 1, False],
        [7, 1, 1, 1, 1, True],
    ]
    assert blocks.dtypes[columns].tolist() == ["int64"] * 5 + ["bool"]
    sums = prompt_sums(blocks)
    assert sums[COUNTS].to_numpy().tolist() == [[4, 7, 5, 8, 1]]
    found = {name: one(sums) for name, one in score.block_estimators().items()}
    assert found["survival_by_depth"].tolist() == [3 / 4, 2 / 4]
    assert found["accept_by_depth"].tolist() == [3 / 4, 2 / 3]
    assert found["mean_accepted"] == 5 / 4 and found["block_efficiency"] == 2
    assert found["draft_utilisation"] == 5 / 7


def test_paper_tree_by_hand():
    # The third level hangs below the best child of the best child only.
    accepted = {"0000": 3, "0010": 3, "0100": 2, "1100": 2, "1000": 2, "0200": 1, "2000": 0}
    for path, expected in accepted.items():
        first = replay(ranks(*map(int, path)), PAPER_TREE).iloc[0]
        found = first.accepted, first.emitted, first.truncated
        assert found == (expected, expected + 1, False), path


def test_end_of_text_by_hand():
    # Room for all three but no bonus token; and a block that is cut by the end is not one that
    # fails at the last token.
    columns = ["accepted", "emitted", "truncated"]
    for text, gamma, expected in (
        ((0, 0, 0), 3, [3, 3, True]),
        ((0, 0, 0), 2, [2, 3, False]),
        ((0, 0, 5), 9, [2, 3, False]),
    ):
        found = replay(ranks(*text), gamma)
        assert found[columns].to_numpy().tolist() == [expected]
    blocks = replay(ranks(1, 0, 0, 0, 0), 2, starts="every")
    # accepted 0 2 2 2* 1*, emitted 1 3 3 2* 1* (* cut); room for 3 tokens at the starts 0, 1, 2
    wanted = {"all": [5, 9, 7, 10, 2], "room": [3, 6, 4, 7, 0]}
    for ends, counts in wanted.items():
        assert prompt_sums(blocks, ends)[COUNTS].to_numpy().tolist() == [counts]


def test_sampled_by_hand():
    trace = as_trace(
        {"a": {"p_token": [0.5, 0.4, 0.8], "q_token": [0.25, 0.8, 0.2]}}
    )  # accepted with 1/2, 1, 1/4
    blocks = replay_sampled(trace, 2)
    # From 0: rejected -> a block at 1; else both accepted, the bonus ends the text. From 1: one
    # accepted, then one recovered or accepted.
    assert blocks["start"].tolist() == [0, 1] and np.allclose(blocks["weight"], [1, 1 / 2])
    assert np.allclose(blocks["accepted"], [1 / 2 + 1 / 2, 1 + 1 / 4])
    assert np.allclose(blocks["truncated"], [0, 1 / 4])
    assert np.allclose(blocks["emitted"], [2, 2])
    every = replay_sampled(trace, 2, starts="every")
    by_hand = [[1, 1, 2, 0], [1, 1.25, 2, 0.25], [1, 0.25, 1, 0.25]]
    assert np.allclose(every[["weight", "accepted", "emitted", "truncated"]], by_hand)
    assert prompt_sums(blocks)[["emitted", "blocks"]].to_numpy().tolist() == [[3, 1.5]]
    # block: 1/2, 1/2 * 2 is not below it; 1, 2 * 1/4; 1/4. exact match: q, and its product
    survival = {
        "block": [[1 / 2, 1 / 2], [1, 1 / 2], [1 / 4, 0]],
        "exact-match": [[0.25, 0.2], [0.8, 0.16], [0.2, 0]],
    }
    for rule, by_hand in survival.items():
        every = replay_sampled(trace, 2, "every", rule)
        assert np.allclose(every[["survival_1", "survival_2"]], by_hand)


# ---- T = 0: a literal greedy decoder on a toy pair


class GreedyToy:
    """The target has a next token for every prefix; the draft has a ranking of the six words for
    every prefix, which is often right.
    """

    def __init__(self, seed):
        self.seed = seed

    def _rng(self, prefix, salt):
        return np.random.default_rng([self.seed, salt, len(prefix), *prefix])

    def target(self, prefix):
        rng = self._rng(prefix, 1)
        return EOS if rng.random() < 0.04 else int(rng.integers(1, 6))

    def draft(self, prefix):
        rng = self._rng(prefix, 2)
        ranking = rng.permutation(6).tolist()
        if rng.random() < 0.6:
            ranking.remove(self.target(prefix))
            ranking.insert(0, self.target(prefix))
        return ranking

    def text(self, limit):
        text = ()
        while len(text) < limit and EOS not in text:
            text += (self.target(text),)
        return text

    def trace(self, limit):
        text = self.text(limit)
        return {
            "token": list(text),
            "draft_rank": [self.draft(text[:t]).index(text[t]) for t in range(len(text))],
        }


def literal_decoder(toy, tree, limit):
    """(start, emitted) of each target pass: draft every node, keep the longest path that the target
    accepts, add the target's token.
    """
    text, passes = (), []
    while len(text) < limit and EOS not in text:
        drafted = {0: ()}
        for node in range(1, tree.size + 1):
            above = drafted[int(tree.parent[node])]
            drafted[node] = above + (toy.draft(text + above)[tree.rank[node]],)
        right = [
            path
            for path in drafted.values()
            if all(toy.target(text + path[:i]) == path[i] for i in range(len(path)))
        ]
        longest = max(right, key=len)
        new = longest + (toy.target(text + longest),)
        new = new[: new.index(EOS) + 1] if EOS in new else new
        new = new[: limit - len(text)]
        passes.append((len(text), len(new)))
        text += new
    assert text == toy.text(limit)
    return passes


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: f"{tree.size}nodes{tree.max_depth}deep")
@pytest.mark.parametrize("limit", [1, 7, 30])
def test_equals_the_literal_decoder(tree, limit):
    toys = {f"p{seed}": GreedyToy(seed) for seed in range(12)}
    trace = as_trace({name: toy.trace(limit) for name, toy in toys.items()})
    blocks = replay(trace.sample(frac=1, random_state=1), tree)  # rows in any order
    for name, toy in toys.items():
        own = blocks[blocks["prompt_id"] == name]
        passes = list(zip(own["start"], own["emitted"], strict=True))
        assert passes == literal_decoder(toy, tree, limit)
    ends_in_eos = {toy.text(limit)[-1] == EOS for toy in toys.values()}
    assert limit < 30 or ends_in_eos == {True, False}, "both ends are tried"


# ---- T > 0: exact enumeration on three words


def decode_exactly(rule, tree, world, limit, stop=None):
    """Expected passes, accepted tokens and cut blocks of a whole decode up to `limit` tokens or a
    `stop`, and the distribution of its text, from consecutive blocks of the enumerator.
    """
    reach, final, totals = {(): 1.0}, {}, np.zeros(3)
    while reach:
        text = min(reach, key=len)
        weight, behind = reach.pop(text), Behind(world, text)
        drafted = tree.upto(min(tree.max_depth, limit - len(text)))
        for tokens, share in block_outcomes(rule, STEPS[rule], drafted, behind).items():
            after = (*text, *tokens)[:limit]
            if stop in after:
                after = after[: after.index(stop) + 1]
            emitted = len(after) - len(text)
            accepted = min(len(tokens) - 1, emitted)
            totals += weight * share * np.array([1, accepted, accepted == emitted])
            has_ended = len(after) == limit or stop in after
            there = final if has_ended else reach
            there[after] = there.get(after, 0.0) + weight * share
    return totals, final


def trace_of_all(texts, world):
    """A trace of texts, one prompt per text, with the numbers of the world's models."""
    columns = {}
    for text in texts:
        p, q = ([world.at(w, text[:t]) for t in range(len(text))] for w in "pq")
        ranking = [np.argsort(-row, kind="stable").tolist() for row in q]
        columns[str(text)] = {
            "p_token": [row[x] for row, x in zip(p, text, strict=True)],
            "q_token": [row[x] for row, x in zip(q, text, strict=True)],
            "draft_rank": [row.index(x) for row, x in zip(ranking, text, strict=True)],
        }
    return as_trace(columns)


def assert_is_expected(blocks, world, totals, final):
    """Replayed blocks of all texts, weighted by the target's probability of each text."""
    prob = pd.Series({str(text): likelihood(text, world) for text in final})
    assert [*final.values()] == pytest.approx(prob.tolist(), abs=1e-13), "lossless"
    sums = prompt_sums(blocks).set_index("prompt_id")
    found = sums[["blocks", "accepted", "truncated", "emitted"]].mul(prob, axis=0)
    length = sum(weight * len(text) for text, weight in final.items())
    assert np.allclose(found.sum(), [*totals, length], rtol=0, atol=1e-12)


@pytest.mark.parametrize("stop", [None, EOS])
@pytest.mark.parametrize(
    ("rule", "gamma"),
    [
        *(("rejection", gamma) for gamma in (1, 2, 3, 6)),
        *product(["block", "exact-match"], [1, 2, 3]),
    ],
)
def test_sampled_chain_equals_enumerated_speculative_sampling(rule, gamma, stop):
    world = World(3)
    exact = decode_exactly(rule, chain(gamma), world, 5, stop)
    trace = trace_of_all(exact[1], world)
    assert_is_expected(replay_sampled(trace, gamma, rule=rule), world, *exact)


@pytest.mark.parametrize("kind", ["random", "zeros", "p = q", "disjoint", "p one-hot"])
@pytest.mark.parametrize("rule", DRAWN)
def test_each_text_is_accepted_as_deep_as_enumerated(rule, kind):
    """Not only on average: P(at least i accepted and the text begins with y), for every text y."""
    world, gamma, accepted = World(2, kind=kind), 3, {}
    for tokens, share in block_outcomes(rule, STEPS[rule], chain(gamma), world).items():
        for tail in product(range(3), repeat=gamma + 1 - len(tokens)):
            text = (*tokens, *tail)
            chance = share * likelihood(text, world, len(tokens))
            for i in range(1, len(tokens)):
                accepted[text, i] = accepted.get((text, i), 0.0) + chance
    texts = [y for y in product(range(3), repeat=gamma + 1) if likelihood(y, world)]
    every = replay_sampled(trace_of_all(texts, world), gamma, "every", rule)
    first = every[every["start"] == 0].set_index("prompt_id")
    for text, i in product(texts, range(1, gamma + 1)):
        found = first.loc[str(text), f"survival_{i}"] * likelihood(text, world)
        assert found == pytest.approx(accepted.get((text, i), 0.0), abs=1e-13)


def test_point_mass_tree_over_sampled_text():
    """Two deterministic children per node, over every text."""
    world, tree = World(8), static_tree(2, 2)
    exact = decode_exactly("point-mass", tree, world, 4)
    assert_is_expected(replay(trace_of_all(exact[1], world), tree), world, *exact)


# ---------------------------------------------------------------- properties

rank_lists = st.lists(
    st.lists(st.sampled_from([0, 0, 0, 1, 2, 7]), min_size=1, max_size=25), min_size=1, max_size=4
)
prob_lists = st.lists(
    st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1, max_size=20),
    min_size=1,
    max_size=3,
)
gammas = st.integers(1, 12)


def check_counts(trace, blocks, depth):
    sums = prompt_sums(blocks)
    assert np.allclose(sums["emitted"], trace.groupby("prompt_id", sort=False).size())
    total = sums[COUNTS].sum()
    assert total.emitted == pytest.approx(total.blocks + total.accepted - total.truncated)
    survival = sums[[f"survival_{d}" for d in range(1, depth + 1)]].sum()
    assert (survival.diff().dropna() <= 1e-12).all()
    assert survival.sum() == pytest.approx(total.accepted)
    assert (blocks["accepted"] <= np.minimum(depth, blocks["remaining"]) + 1e-12).all()


@settings(max_examples=40)
@given(rank_lists, st.sampled_from(TREES))
def test_walk_properties(lists, tree):
    trace = as_trace({f"p{i}": {"draft_rank": values} for i, values in enumerate(lists)})
    blocks = replay(trace, tree)
    check_counts(trace, blocks, tree.max_depth)
    assert (blocks["emitted"] == blocks["accepted"] + 1 - blocks["truncated"]).all()
    if tree.best_path.sum() == tree.max_depth + 1:  # the tree contains the chain
        on_tree, on_chain = (replay(trace, shape, "every") for shape in (tree, tree.max_depth))
        assert (on_tree["accepted"] >= on_chain["accepted"]).all()


@settings(max_examples=40)
@given(prob_lists, gammas)
def test_sampled_properties(lists, gamma):
    trace = as_trace({f"p{i}": of_pairs(pairs) for i, pairs in enumerate(lists)})
    check_counts(trace, replay_sampled(trace, gamma), gamma)
    every, longer = (replay_sampled(trace, g, "every") for g in (gamma, gamma + 1))
    assert (longer["accepted"] >= every["accepted"] - 1e-12).all(), "but for rounding"
    assert np.allclose(longer[f"survival_{gamma}"], every[f"survival_{gamma}"])
    check_counts(trace, replay_sampled(trace, gamma, rule="block"), gamma)
    by_block = replay_sampled(trace, gamma, "every", "block")
    assert (by_block["accepted"] >= every["accepted"] - 1e-12).all(), "at every start"


@settings(max_examples=25)
@given(rank_lists, gammas)
def test_at_certainty_the_sampled_chain_is_the_greedy_one(lists, gamma):
    columns = [
        {"draft_rank": values, "p_token": 0.5, "q_token": np.equal(values, 0) * 0.5}
        for values in lists
    ]
    trace = as_trace({f"p{i}": column for i, column in enumerate(columns)})
    for starts in ("visited", "every"):  # q/p in {0, 1}
        pd.testing.assert_frame_equal(
            replay(trace, gamma, starts), replay_sampled(trace, gamma, starts), check_dtype=False
        )


# ---------------------------------------------------------------- frames


def test_sweep_equals_replay_gamma_by_gamma():
    trace = trace_of({"b": ("math", [0, 0, 1, 0]), "a": ("code", [1, 0, 1, 1, 0])})
    trace = trace.assign(p_token=0.5, q_token=0.5 / (1 + trace["draft_rank"]))
    drawn = {rule: partial(replay_sampled, rule=rule) for rule in DRAWN}
    for rule, walk in {"point-mass": replay, **drawn}.items():
        swept = chain_sums(trace, (1, 4), rule, "every").set_index("gamma")
        for gamma in (1, 4):
            sums = prompt_sums(walk(trace, gamma, "every"))
            part = swept.loc[gamma].reset_index(drop=True)
            pd.testing.assert_frame_equal(part, sums[list(part)])


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("rounded", [0, 1, 5])
def test_greedy_text_of_half_precision_is_refused_though_rounding_turned_some_tokens(rounded):
    top = np.arange(512) % 30
    p, token = np.full(512, 0.7), top.copy()
    token[:rounded] += 1  # a near tie fell the other way
    p[:rounded] = 0.49
    columns = {"token": token, "target_top": top, "p_token": p, "q_token": p}
    with refuses(r"greedy text \(\d+\.\d% of the tokens"):
        replay_sampled(as_trace({"a": columns}), 2)


@pytest.mark.parametrize("sure", [0.995, 0.9999])
def test_sampled_text_is_never_taken_for_greedy_however_sure_its_model_is(sure):
    """2,000 positions, 200 texts each. In the most certain texts at least 99 % of tokens are the
    argmax.
    """
    rng = np.random.default_rng(3)
    top, p_top = (np.zeros(2000, int), 1 - rng.exponential(1 - sure, (200, 2000)).clip(0, 0.5))
    for p in p_top:
        left = rng.random(2000) >= p
        columns = {"token": left.astype(int), "target_top": top, "q_token": p}
        replay_sampled(as_trace({"a": columns | {"p_token": np.where(left, 1 - p, p)}}), 1)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"position": [0, 1, 3]}, "prompt 'x' has position .* needs 0..n-1"),
        ({"draft_rank": [0, -1, 0]}, "draft_rank = -1"),
        ({"domain": ["code", "chat", "code"]}, "prompt 'x' has two domains"),
    ],
)
def test_a_broken_trace_and_a_wrong_gamma_are_refused(broken, message):
    trace = ranks(0, 0, 0)
    with refuses(message):
        replay(trace.assign(**broken), 2)
    with refuses("gamma=.* whole numbers from 1"):
        replay(trace, 0)
    with refuses("rule = 'typical' .* rejection, block, exact-match"):
        replay_sampled(trace, 2, rule="typical")


# ---------------------------------------------------------------- blocks of a head


def with_lists(trace, longest=16):
    """The trace as that of a head whose ranks do not depend on where a block began."""
    lists = {}
    for _, rows in trace.groupby("prompt_id"):
        for at, row in enumerate(rows.index):
            lists[row] = rows["draft_rank"].to_numpy()[at : at + longest]
    return trace.assign(block_ranks=pd.Series(lists))


@pytest.mark.parametrize("tree", [chain(3), PAPER_TREE, GAPS])
@pytest.mark.parametrize("end", [40, 21, 2])
def test_a_head_s_blocks_are_those_of_its_lists_in_whole_and_cut_texts(tree, end):
    """The lists of a text that was cut go on after its end, and no block does."""
    rng = np.random.default_rng(0)
    drawn = {f"p{i}": ("code", rng.geometric(0.6, 40) - 1) for i in range(5)}
    trace = with_lists(trace_of(drawn)).query("position < @end").reset_index(drop=True)
    plain = trace.drop(columns="block_ranks")
    pd.testing.assert_frame_equal(replay(trace, tree), replay(plain, tree))
    first = trace[trace["prompt_id"] == "p0"]
    ahead = ranks_ahead(first, 3)
    np.testing.assert_array_equal(ahead, ranks_ahead(first.drop(columns="block_ranks"), 3))
    assert ahead[-1].tolist() == [first["draft_rank"].iloc[-1], -1, -1]


def test_a_head_s_blocks_follow_its_lists_and_not_the_ranks_along_the_text():
    trace = ranks(0, 0, 0, 0).assign(block_ranks=[[0, 1, 1, 1], [0, 0, 0], [0, 0], [0]])
    assert ranks_ahead(trace, 2).tolist() == [[0, 1], [0, 0], [0, 0], [0, -1]]
    assert replay(trace, 3)["accepted"].tolist() == [1, 2]
    assert replay(trace.drop(columns="block_ranks"), 3)["accepted"].tolist() == [3]
    two = trace_of({"x": ("code", [0, 1]), "y": ("code", [2])})
    assert ranks_ahead(two, 2).tolist() == [[0, 1], [1, -1], [2, -1]]


@pytest.mark.parametrize(("tokens", "limit"), [(20, 16), (16, 64)])
def test_a_head_goes_as_deep_as_its_blocks_were_recorded(tokens, limit):
    plain = ranks(*[0] * tokens)
    trace = with_lists(plain)
    assert (longest_chain(plain), longest_chain(trace)) == (64, limit)
    assert replay(trace, limit)["accepted"].tolist()[0] == min(tokens, limit)
    if limit < 64:
        with refuses("blocks of up to 16"):
            replay(trace, limit + 1)

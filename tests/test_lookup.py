"""Prompt lookup: equal to a literal n-gram search, a proper distribution, lossless as any draft,
and its text is the node's own path.
"""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import WORDS, toy_pair

from speclab.analysis import by_hand
from speclab.decode import decode, decode_prompt
from speclab.draft import Shape, StopRule, parse_shape, propose
from speclab.drafts.lookup import MISS, LookupBody, lookup_model, with_lookup
from speclab.prompts import EncodedPrompt
from speclab.record import generate, record_prompt
from speclab.sampling import Sampling, probabilities
from speclab.tree import chain, static_tree

GREEDY, WARM = Sampling(), Sampling(1.0)


def literal(text, longest=3, candidates=4):
    """(candidates in order, length of the longest match) by comparing slices, one place after
    another.
    """
    found, best = [], 0
    for n in range(longest, 0, -1):
        for end in range(
            len(text) - 1, n - 1, -1
        ):  # the earlier n-gram is text[end - n : end], the most recent first
            if len(text) >= n and text[end - n : end] == text[len(text) - n :]:
                best = max(best, n)
                if text[end] not in found:
                    found.append(text[end])
    return found[:candidates], best


def states(text, **settings):
    """(candidates, length) after every token of a text, from one forward pass."""
    model = lookup_model(max(text) + 1, **settings)
    hidden = model.forward(torch.tensor([text]), model.cache())[0]
    return [([int(t) for t in row[:-1] if t >= 0], int(row[-1])) for row in hidden]


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(1, 5),
)
def test_every_state_is_what_a_literal_search_finds(text, longest, candidates):
    assert states(text, longest=longest, candidates=candidates) == [
        literal(text[: i + 1], longest, candidates) for i in range(len(text))
    ]


def test_by_hand_the_longest_then_the_most_recent_occurrence_wins():
    #       a  b  c  d  b  c  e  a  b  c
    text = [0, 1, 2, 3, 1, 2, 4, 0, 1, 2]
    assert states(text)[-1] == (
        [3, 4],
        3,
    )  # "abc" stood once, before d; "bc" also before e
    assert states(text, longest=2)[-1] == (
        [4, 3],
        2,
    )  # both are "bc": the later one first
    assert states([7, 7])[-1] == (
        [7],
        1,
    )  # an occurrence may end right before the last token
    assert states([5]) == [([], 0)] and states([1, 2, 3])[-1] == ([], 0)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=25))
def test_q_is_a_distribution_and_its_confidence_is_the_length_of_the_match(text):
    model = lookup_model(9)
    q = probabilities(
        model.logits(model.forward(torch.tensor([text]), model.cache())), GREEDY
    )[0]
    assert torch.allclose(q.sum(-1), torch.ones(len(text)), atol=1e-6) and (q > 0).all()
    for row, (found, length) in zip(q, states(text), strict=True):
        assert (
            row.topk(len(found)).indices.tolist() == found
            if found
            else torch.allclose(row, torch.full((9,), 1 / 9))
        )
        rest = (
            MISS ** (length * len(found)) / 9
        )  # of each token, on top of what it has as a candidate
        assert row.max() == pytest.approx(
            (1 - MISS**length) + rest if found else 1 / 9, abs=1e-6
        )


def test_rejection_sampling_with_it_gives_the_targets_distribution():
    rng, model = np.random.default_rng(0), lookup_model(6)
    for text in ([0, 1, 2, 0, 1], [3, 3, 3, 3], [0, 1, 2, 3], [1, 2, 1, 4, 1]):
        q = (
            probabilities(
                model.logits(model.forward(torch.tensor([text]), model.cache()))[
                    0, -1
                ].double(),
                WARM,
            )
            .double()
            .numpy()
        )
        q /= q.sum()
        p = rng.dirichlet(np.full(6, 0.5))
        assert (
            by_hand.total_variation(
                by_hand.emitted(q, by_hand.chance(p, q), by_hand.residual(p, q)), p
            )
            < 1e-12
        )


def prompt_of(ids):
    return EncodedPrompt("p", "code", tuple(int(i) for i in ids), 0)


@pytest.mark.parametrize(
    "shape", ["chain:1", "chain:5", "tree:3,2,8", "tree:2,4", "dynamic:4,3,7", "stop"]
)
def test_greedy_text_is_the_plain_text(random_pair, shape):
    shape = (
        Shape(chain(6), StopRule("confidence", 0.5))
        if shape == "stop"
        else parse_shape(shape)
    )
    pair = with_lookup(random_pair)
    for length in (1, 2, 60):
        prompt = prompt_of(np.random.default_rng(1).integers(2, 40, length))
        (plain,) = generate(pair.target, [prompt], 40, pair.stop_ids, GREEDY, 0)
        assert (
            decode_prompt(pair, prompt, "greedy", shape, GREEDY, 40).token_ids == plain
        )


# 800 draws see tokens drawn from p after a rejection (0.06 of total variation) in 98 of 100 studies
@pytest.mark.parametrize("draws", [800, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        ("rejection", "chain:3"),
        ("without-replacement", "tree:2,3"),
        ("point-mass", "tree:2,2"),
    ],
)
def test_sampled_first_tokens_have_the_targets_distribution(rule, shape, draws):
    from scipy.stats import chisquare

    pair, ids, draws, rng = (
        with_lookup(toy_pair(stop=-1)),
        (1, 2, 3, 1, 2),
        draws,
        np.random.default_rng(5),
    )
    counts = np.zeros(WORDS)
    for _ in range(draws):
        counts[
            next(decode(pair, ids, rule, parse_shape(shape), WARM, 2, rng)).tokens[0]
        ] += 1
    p = (
        pair.target.logits(
            pair.target.forward(torch.tensor([ids]), pair.target.cache())[0, -1]
        )
        .double()
        .softmax(-1)
        .numpy()
    )
    assert chisquare(counts, draws * p).pvalue > 1e-3
    assert (
        chisquare(counts, draws * np.roll(p, 1)).pvalue < 1e-3
    )  # the test sees a wrong distribution


class Copyist:
    """A toy head whose next token is a fixed function of the last one, so that text repeats itself
    with a period of `period`.
    """

    def __init__(self, period):
        self.period = period

    def __call__(self, hidden):
        following = (hidden[..., -1].long()) % self.period  # hidden holds token + 1
        return 10.0 * torch.nn.functional.one_hot(following, WORDS).float()


def test_a_text_that_repeats_is_accepted_and_one_that_does_not_is_not():
    toy = toy_pair(stop=-1)
    toy.target.head = Copyist(4)
    pair, ids = with_lookup(toy), (0, 1, 2, 3, 0)
    made = decode_prompt(pair, prompt_of(ids), "greedy", Shape(chain(5)), GREEDY, 24)
    assert (
        made.token_ids == tuple(i % 4 for i in range(1, 25))
        and made.block_efficiency == 6
    )
    toy.target.head = Copyist(10)
    fresh = decode_prompt(
        pair,
        prompt_of((0,)),
        "greedy",
        Shape(chain(5), StopRule("confidence", 0.5)),
        GREEDY,
        8,
    )
    assert fresh.block_efficiency == 1 and {s.drafted for s in fresh.steps} == {0}, (
        "nothing matches: nothing is drafted"
    )


def test_recorded_ranks_are_those_of_the_literal_search():
    pair, ids = with_lookup(toy_pair(stop=-1)), (1, 2, 3, 1, 2)
    (text,) = generate(pair.target, [prompt_of(ids)], 30, frozenset(), GREEDY, 0)
    found = record_prompt(pair, prompt_of(ids), text, static_tree(2, 2), GREEDY)
    whole = [*ids, *text]
    for at, (top, rank) in enumerate(
        zip(found.trace["draft_top"], found.trace["draft_rank"], strict=True)
    ):
        candidates, _ = literal(whole[: len(ids) + at])
        assert top == (candidates or [0])[0]
        if text[at] in candidates:
            assert rank == candidates.index(text[at])
    children = found.nodes["token"].reshape(
        len(text), -1
    )  # 2 + 4 nodes: the third is the best child of the first
    for at, row in enumerate(children):
        assert row[2] == (literal([*whole[: len(ids) + at], int(row[0])])[0] or [0])[0]
        assert row[4] == (literal([*whole[: len(ids) + at], int(row[1])])[0] or [0])[0]


def test_a_node_reads_its_own_path_only():
    """A packed tree against its paths one by one; with a mask that shows the sibling too the states
    are others.
    """
    model, trunk = lookup_model(9), [1, 2, 3, 1, 2, 4, 1]
    cache = model.cache()
    model.forward(torch.tensor([trunk]), cache)
    visible = torch.cat(
        [
            torch.ones(3, len(trunk), dtype=torch.bool),
            torch.tensor([[1, 0, 0], [0, 1, 0], [0, 1, 1]], dtype=torch.bool),
        ],
        1,
    )
    at = torch.tensor([7, 7, 8])
    packed = model.forward(torch.tensor([[2, 4, 1]]), cache, at, visible)[0]
    for row, path in zip(packed, ([2], [4], [4, 1]), strict=True):
        alone = lookup_model(9)
        assert torch.equal(
            row, alone.forward(torch.tensor([[*trunk, *path]]), alone.cache())[0, -1]
        )
    cache.crop(len(trunk))
    wrong = visible.clone()
    wrong[2, len(trunk)] = True
    assert not torch.equal(
        model.forward(torch.tensor([[2, 4, 1]]), cache, at, wrong)[0, 2], packed[2]
    )


def test_the_cache_is_cropped_and_kept_as_any_other():
    model, cache = lookup_model(9), lookup_model(9).cache(4)
    model.forward(torch.tensor([[1, 2, 3, 1, 2, 5, 6]]), cache)
    cache.crop(5)
    after = model.forward(torch.tensor([[3]]), cache)[0, -1]
    fresh = model.forward(torch.tensor([[1, 2, 3, 1, 2, 3]]), model.cache())[0, -1]
    assert torch.equal(after, fresh) and cache.length == 6
    cache.keep(4, [5])  # 1 2 3 1, then the token of slot 5
    assert torch.equal(
        model.forward(torch.tensor([[1]]), cache)[0, -1],
        model.forward(torch.tensor([[1, 2, 3, 1, 3, 1]]), model.cache())[0, -1],
    )
    assert model.passes == 5


def test_second_children_are_other_occurrences():
    model, cache, text = lookup_model(9), lookup_model(9).cache(), [1, 2, 1, 3, 1]
    made = propose(
        model, cache, text, parse_shape("tree:1,2"), 5, "greedy", GREEDY, None
    )
    assert made.tokens[1:].tolist() == [3, 2]


def test_facts_and_settings(random_pair):
    pair = with_lookup(random_pair, longest=2, candidates=1)
    assert (
        pair.facts["draft"]["parameters"] == 0
        and pair.facts["target"] is random_pair.facts["target"]
    )
    assert (
        dataclasses.replace(pair, draft=random_pair.draft, facts=random_pair.facts)
        == random_pair
    )
    with pytest.raises(ValueError, match="longest=0, candidates=4: both"):
        LookupBody(longest=0)

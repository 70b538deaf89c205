"""Prompt lookup: equal to a literal n-gram search, a proper distribution, lossless as any draft,
and its text is the node's own path.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from test_decode import assert_plain, next_p, prompt_of
from toy import WORDS, toy_pair

from speclab.decode import decode
from speclab.draft import Shape, StopRule, parse_shape
from speclab.drafts.lookup import MISS, lookup_model, with_lookup
from speclab.sampling import Sampling, probabilities
from speclab.tree import chain

GREEDY, WARM = Sampling(), Sampling(1.0)
STOPPED = Shape(chain(6), StopRule("confidence", 0.5))


def literal(text, longest=3, candidates=4):
    """(candidates in order, length of the longest match) by comparing slices, one place after
    another.
    """
    found, best = [], 0
    for n in range(longest, 0, -1):
        # the earlier n-gram is text[end - n : end], the most recent first
        for end in range(len(text) - 1, n - 1, -1):
            if len(text) >= n and text[end - n : end] == text[len(text) - n :]:
                best = max(best, n)
                if text[end] not in found:
                    found.append(text[end])
    return found[:candidates], best


def seen(model, text, cache=None):
    """Hidden states after every token of a text."""
    return model.forward(torch.tensor([text]), cache or model.cache())[0]


def states(text, **settings):
    """(candidates, length) after every token of a text, from one forward pass."""
    hidden = seen(lookup_model(max(text) + 1, **settings), text)
    return [([int(t) for t in row[:-1] if t >= 0], int(row[-1])) for row in hidden]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 5))
def test_every_state_is_what_a_literal_search_finds(text, longest, candidates):
    assert states(text, longest=longest, candidates=candidates) == [
        literal(text[: i + 1], longest, candidates) for i in range(len(text))
    ]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=25))
def test_q_is_a_distribution_and_its_confidence_is_the_length_of_the_match(text):
    model = lookup_model(9)
    q = probabilities(model.logits(seen(model, text)), GREEDY)
    assert torch.allclose(q.sum(-1), torch.ones(len(text)), atol=1e-6) and (q > 0).all()
    for row, (found, length) in zip(q, states(text), strict=True):
        if not found:
            assert torch.allclose(row, torch.full((9,), 1 / 9))
            continue
        assert row.topk(len(found)).indices.tolist() == found
        # of each token, on top of what it has as a candidate
        rest = MISS ** (length * len(found)) / 9
        assert row.max() == pytest.approx(1 - MISS**length + rest, abs=1e-6)


@pytest.mark.parametrize(
    "shape", [parse_shape("tree:3,2,8"), parse_shape("dynamic:4,3,7"), STOPPED]
)
def test_greedy_text_is_the_plain_text(random_pair, shape):
    pair = with_lookup(random_pair)
    for length in (1, 60):
        prompt = prompt_of(np.random.default_rng(1).integers(2, 40, length))
        assert_plain(pair, prompt, shape, 40)


def test_sampled_first_tokens_have_the_targets_distribution():
    """800 draws see tokens drawn from p after a rejection (0.06 of total variation) in 98 of 100
    studies.
    """
    pair, ids, draws = with_lookup(toy_pair(stop=-1)), (1, 2, 3, 1, 2), 800
    rng, counts, shape = (np.random.default_rng(5), np.zeros(WORDS), parse_shape("chain:3"))
    for _ in range(draws):
        steps = decode(pair, ids, "rejection", shape, WARM, 2, rng)
        counts[next(steps).tokens[0]] += 1
    p = next_p(pair, ids)
    assert chisquare(counts, draws * p).pvalue > 1e-3
    wrong = np.roll(p, 1)
    assert chisquare(counts, draws * wrong).pvalue < 1e-3, "it would be seen"


def test_a_node_reads_its_own_path_only():
    """A packed tree against its paths one by one; with a mask that shows the sibling too the states
    are others.
    """
    model, trunk = lookup_model(9), [1, 2, 3, 1, 2, 4, 1]
    cache = model.cache()
    seen(model, trunk, cache)
    own = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 1, 1]], dtype=torch.bool)
    visible = torch.cat([torch.ones(3, len(trunk), dtype=torch.bool), own], 1)
    nodes, at = torch.tensor([[2, 4, 1]]), torch.tensor([7, 7, 8])
    packed = model.forward(nodes, cache, at, visible)[0]
    for row, path in zip(packed, ([2], [4], [4, 1]), strict=True):
        assert torch.equal(row, seen(lookup_model(9), [*trunk, *path])[-1])
    cache.crop(len(trunk))
    visible[2, len(trunk)] = True
    assert not torch.equal(model.forward(nodes, cache, at, visible)[0, 2], packed[2])

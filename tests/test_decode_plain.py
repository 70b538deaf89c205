"""Decoding with a shape that drafts nothing."""

import numpy as np
import pytest
from scipy.stats import chisquare
from test_decode import assert_plain, next_p, prompt_of
from toy import toy_pair

from speclab.decode import LOSSLESS, decode
from speclab.sampling import Sampling
from speclab.shapes import NO_DRAFT


def test_drafting_nothing_is_plain_greedy_decoding():
    pair = toy_pair()
    for seed in range(5):
        ids = np.random.default_rng(seed).integers(0, 9, 4).tolist()
        found = assert_plain(pair, prompt_of(ids), NO_DRAFT, 20)
        assert found.draft_passes == 0 and found.target_passes == len(found.token_ids)


# 600 draws see half of the words drawn from the draft (0.2 of total variation) in 999 of 1,000
# studies
@pytest.mark.parametrize("draws", [600, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", [rule for rule in LOSSLESS if rule != "greedy"])
def test_drafting_nothing_samples_the_target(rule, draws):
    pair, ids = toy_pair(), (3, 1, 4)
    p = next_p(pair, ids)
    counts = np.zeros(len(p))
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        step = next(decode(pair, ids, rule, NO_DRAFT, Sampling(1.0), 3, rng))
        counts[step.tokens[0]] += 1
    assert chisquare(counts, draws * p).pvalue > 1e-3
    assert chisquare(counts, draws * np.roll(p, 1)).pvalue < 1e-3, "it can fail"
    assert pair.draft.passes == draws, "the prefill's, one each"

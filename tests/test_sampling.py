"""Processors, ranks and samples against hand-made cases and the definition."""

import numpy as np
import pytest
import torch

from speclab.sampling import Sampling, entropy, probabilities, rank_key, rank_of, sample, uniforms

LOGITS = torch.tensor([2.0, 1.0, 1.0, 0.0]).log_softmax(-1)


def test_temperature_zero_gives_the_probabilities_of_temperature_one():
    assert torch.equal(probabilities(LOGITS, Sampling(0.0)), torch.softmax(LOGITS, -1))
    assert torch.allclose(probabilities(LOGITS, Sampling(0.5)), torch.softmax(2 * LOGITS, -1))


def test_top_k_breaks_ties_by_the_lower_id_and_top_p_keeps_the_token_that_crosses_the_line():
    p = torch.tensor([0.5, 0.2, 0.2, 0.1]).log()
    assert probabilities(p, Sampling(1.0, top_k=2)).tolist() == pytest.approx([5 / 7, 2 / 7, 0, 0])
    assert probabilities(p, Sampling(1.0, top_p=0.55)).tolist() == pytest.approx(
        [5 / 7, 2 / 7, 0, 0]
    )
    assert probabilities(p, Sampling(1.0, top_p=1e-6)).tolist() == [1, 0, 0, 0]


def test_min_p_is_a_share_of_the_best_tokens_probability_after_top_k_and_top_p():
    p = torch.tensor([0.5, 0.2, 0.2, 0.1]).log()
    for more, left in ({}, [5 / 9, 2 / 9, 2 / 9, 0]), ({"top_k": 2}, [5 / 7, 2 / 7, 0, 0]):
        assert probabilities(p, Sampling(1.0, min_p=0.3, **more)).tolist() == pytest.approx(left)
    assert torch.equal(probabilities(p, Sampling(min_p=1.0)), p.exp()), "T = 0"


def test_ranks_count_the_tokens_before_and_ties_go_to_the_lower_id():
    key = rank_key(torch.tensor([[1.0, 3.0, 1.0, 2.0]]).expand(4, 4))
    assert rank_of(key, torch.arange(4)).tolist() == [2, 0, 3, 1]
    assert key.topk(4).indices[0].tolist() == [1, 3, 0, 2]


def test_entropy_is_in_nats_and_zero_times_log_zero_is_zero():
    assert entropy(torch.tensor([0.5, 0.5, 0.0])).item() == pytest.approx(np.log(2))


def test_inverse_cdf_sampling_has_the_distribution_and_never_draws_an_excluded_token():
    p = torch.tensor([0.0, 0.25, 0.0, 0.75])
    tokens = sample(p.expand(10_000, 4), torch.from_numpy((np.arange(10_000) + 0.5) / 10_000))
    assert torch.bincount(tokens, minlength=4).tolist() == [0, 2500, 0, 7500]
    assert sample(p, torch.tensor(0.0)).item() == 1 and sample(p, 1 - 1e-16).item() == 3


def test_uniforms_belong_to_the_prompt_and_the_seed():
    assert np.array_equal(uniforms(0, "a", 3), uniforms(0, "a", 5)[:3])
    assert not np.array_equal(uniforms(0, "a", 3), uniforms(0, "b", 3)) and not np.array_equal(
        uniforms(0, "a", 3), uniforms(1, "a", 3)
    )


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -1},
        {"temperature": 9e-5},
        {"top_k": -1},
        {"top_p": 0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"min_p": 2},
    ],
)
def test_settings_out_of_range_are_refused(values):
    with pytest.raises(ValueError, match="allowed are temperature"):
        Sampling(**values)

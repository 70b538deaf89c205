"""Drafts that are tried along recorded texts: first layers, what they propose there, and the texts
that a quantised copy is calibrated on.
"""

import copy
import dataclasses

import pandas as pd
import pytest
import torch
from toy import plain

from speclab.drafts import candidates, quantise
from speclab.plain import EncodedPrompt
from speclab.study.runs import record_run, texts_of


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Traces are kept in a folder of the test."""
    monkeypatch.setattr(candidates, "WORK", tmp_path / "drafts")
    return tmp_path / "drafts"


@pytest.fixture(scope="module")
def profile(random_profile):
    """A small run of the random pair."""
    return random_profile.replace(prompts_per_domain=5, max_new_tokens=6, block_prompts=7)


@pytest.fixture(scope="module")
def own(random_pair, profile, tmp_path_factory):
    """The pair's own run, tree and all."""
    return record_run(profile, tmp_path_factory.mktemp("run"), pair=random_pair)


@pytest.fixture(scope="module")
def drafts(random_pair, profile):
    """A loaded draft and the target's first layer."""
    loaded = candidates.load_candidate("loaded", random_pair, profile, profile.draft)
    return [loaded, candidates.first_layers(random_pair, profile, 1)]


def test_first_layers_is_the_network_with_fewer_layers(random_pair, profile):
    early = candidates.first_layers(random_pair, profile, 1).pair
    tokens = torch.tensor([[3, 9, 27, 5]])
    short = copy.deepcopy(random_pair.target.network)
    short.model.layers = short.model.layers[:1]
    got, whole = (
        model.logits(model.forward(tokens, model.cache()))
        for model in (early.draft, random_pair.target)
    )
    with torch.inference_mode():
        assert torch.allclose(got, short(tokens, use_cache=False).logits, atol=1e-4)
    assert not torch.allclose(got, whole, atol=1e-2), "the target is left as it was"
    kept = sum(p.numel() for p in short.parameters())
    assert early.facts["draft"]["parameters"] == kept
    with pytest.raises(ValueError, match="exit_layers must be"):
        candidates.first_layers(random_pair, profile, 9)


def test_traces_are_the_recorders_and_kept(drafts, own, profile, work, monkeypatch):
    """Every column equals the draft's recorded run on the same texts, bit for bit."""
    texts = texts_of(own)
    for one in drafts:  # of one spec: kept apart by their names
        made = candidates.proposed(one, profile, "greedy", texts)
        small = profile.replace(depth=1, branches=1, budget=1)
        again = record_run(small, work / one.name, one.pair, texts).trace
        for name in made:
            assert made[name].tolist() == again[name].tolist(), name
    few = dict(list(texts.items())[:2])
    part = candidates.proposed(one, profile, "greedy", few)
    assert part["prompt_id"].nunique() == 2, "another choice of prompts is kept apart"
    monkeypatch.setattr(candidates, "trace_along", None)
    pd.testing.assert_frame_equal(candidates.proposed(one, profile, "greedy", texts), made)
    monkeypatch.setattr(candidates, "device_of", lambda _: torch.device("cuda"))
    auto = dataclasses.replace(profile.target, device="auto")
    with pytest.raises(TypeError):  # float16 there: another trace
        candidates.proposed(one, profile.replace(target=auto), "greedy", texts)


# ---- calibration ---------------------------------------------------------------------------------


def test_calibration_texts_are_the_targets_greedy_ones_of_all_lengths(random_pair, profile):
    few, every = (
        quantise.calibration_of(random_pair, profile.replace(max_new_tokens=4), 10, 1, count)
        for count in (5, 40)
    )
    tokens, prompts = few.facts
    assert (tokens, prompts) == (4, every.facts[1][::8])
    for row, ids in zip(few.rows(), prompts, strict=True):
        assert row == [*ids, *plain(random_pair, EncodedPrompt("a", "code", ids, 0), 4)]

"""The plan: weights as published, and an upper bound on the recorder's real memory."""

import pytest
import torch
from test_record import prompts_of
from transformers import AutoConfig, AutoModelForCausalLM

from speclab import record
from speclab.cli.plan import CONTEXT_BYTES, held, planned_bytes, planned_pair
from speclab.model import KVCache
from speclab.models.pairs import parameter_count
from speclab.sampling import Sampling
from speclab.study.profiles import load_profile


def on_t4s(name="paper", **overrides):
    """A hub profile and its pair as it holds them on a machine with two GPUs."""
    profile = load_profile(name, overrides)
    return profile, planned_pair(profile)


def test_sizes_of_the_papers_pair():
    _, (target, draft) = on_t4s()
    assert target.cached == 2 * 32 * 4096 * 2 == 524_288
    assert draft.cached == 2 * 22 * 4 * 64 * 2  # four heads of keys and values
    assert draft.loaded == 2_200_096_768  # the paper's log: 2.20 GB
    # size of its file on the hub; both in the log: 6.10 GB
    assert target.on_host == pytest.approx(3.90e9, rel=0.005)
    _, (reasoning, _) = on_t4s("reasoning")  # group size 32
    assert reasoning.on_host == pytest.approx(5.96e9, rel=0.005)


@pytest.mark.parametrize("kind", ["gpt2", "gemma3_text", "olmo2", "falcon", "mixtral"])
def test_other_architectures_are_estimated_too(kind):
    """GPT-2 shares its tables, and Falcon has one group of keys."""
    config = AutoConfig.for_model(kind)
    planned = held(config.to_dict(), "float16", "cuda:0")
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)
    assert planned.loaded == 2 * network.num_parameters()


def test_devices_and_number_formats():
    for gpus, device, size in ((0, "cpu", 4), (1, "cuda:0", 2)):
        target, _ = planned_pair(load_profile("small"), gpus)
        assert target.device == device and target.on_host == size * 49_152 * 960


def test_weights_are_those_of_the_loaded_network(random_pair):
    """On a CPU in float32, products are laid out once more."""
    for model in (random_pair.target, random_pair.draft):
        config = model.network.config.to_dict()
        size = 4 * parameter_count(model.network)
        assert held(config, "float32", "cuda:0").loaded == size
        assert held(config, "float32", "cpu").loaded == 2 * size


@pytest.mark.parametrize(("length", "new", "packed"), [(40, 12, 7), (100, 60, 64)])
def test_the_recorders_caches_fit_into_the_plan(
    random_pair, random_profile, monkeypatch, length, new, packed
):
    caches = []
    models = random_pair.target, random_pair.draft
    for model in models:
        monkeypatch.setattr(
            model, "cache", lambda capacity: caches.append(KVCache(capacity)) or caches[-1]
        )
    prompts = prompts_of(*[[3 + i % 30 for i in range(length)]] * 3)
    limits = {"max_prompt_tokens": length, "max_new_tokens": new, "max_packed_tokens": packed}
    profile = random_profile.replace(prompts_per_domain=3, block_prompts=3, **limits)
    texts = record.generate(random_pair.target, prompts, new, frozenset(), Sampling(), 0)
    record.record_prompt(random_pair, prompts[0], texts[0], profile.tree, Sampling(), packed)
    buffers = [[sum(b.nbytes for b in layer) for layer in c.layers.values()] for c in caches]
    written, *scored = map(sum, buffers)
    pair = [held(model.network.config.to_dict(), "float32", "cpu") for model in models]
    planned = planned_bytes(profile, pair)["cpu"] - sum(model.loaded for model in pair)
    assert max(written, sum(scored)) <= planned


def test_each_device_holds_its_own():
    draft = on_t4s()[1][1]
    two, one = (planned_bytes(*on_t4s(**on)) for on in ({}, {"device": "cuda:0"}))
    assert set(two) == {"cuda:0", "cuda:1"} and set(one) == {"cuda:0"}
    assert two["cuda:1"] > draft.loaded + CONTEXT_BYTES
    assert two["cuda:0"] + draft.loaded <= one["cuda:0"] < sum(two.values())

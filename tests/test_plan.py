"""The plan: sizes as published, and caches as the recorder really has them."""

import dataclasses

import pytest
from test_record import resampling_of

from speclab import record
from speclab.models.pairs import parameter_count
from speclab.ops import plan
from speclab.ops.plan import Planned, held, planned_bytes, planned_pair
from speclab.profiles import load_profile
from speclab.sampling import Sampling

LLAMA = load_profile("paper").notes["target_config"]
GREEDY = Sampling()


def on_t4s(name="paper", **overrides):
    """A hub profile and its pair as it holds them on a machine with two GPUs."""
    profile = load_profile(name, overrides)
    return profile, planned_pair(profile)


def models_of(pair):
    return pair.target, pair.draft


def of_pair(pair):
    """A loaded pair as the plan sees it."""
    configs = [model.network.config.to_dict() for model in models_of(pair)]
    return Planned(*(held(config, "float32", "cpu") for config in configs))


def small(profile, length, new, packed, prompts=3, block=3):
    """A profile with prompts of one domain, all of a length."""
    return profile.replace(
        max_prompt_tokens=length,
        max_new_tokens=new,
        max_packed_tokens=packed,
        prompts_per_domain=prompts,
        block_prompts=block,
        domains=("code",),
    )


# ---- sizes ---------------------------------------------------------------------------------------


def test_sizes_of_the_papers_pair():
    _, (target, draft) = on_t4s()
    assert target.cached(1) == 2 * 32 * 4096 * 2 == 524_288
    assert draft.cached(1) == 2 * 22 * 4 * 64 * 2  # four heads of keys and values
    assert draft.stored == 2_200_096_768  # the paper's log: 2.20 GB
    # size of its file on the hub; both in the log: 6.10 GB
    assert target.stored == pytest.approx(3.90e9, rel=0.005)
    whole = held(LLAMA | {"quantization_config": None}, "float16", "cuda:0")
    assert whole.stored == 2 * 6_738_415_616
    _, (reasoning, _) = on_t4s("reasoning")  # group size 32
    assert reasoning.stored == pytest.approx(5.96e9, rel=0.005)


def test_parameters_are_those_of_the_loaded_network(random_pair):
    for model, planned in zip(models_of(random_pair), of_pair(random_pair), strict=True):
        assert planned.products + planned.others == parameter_count(model.network)


def test_an_unknown_architecture_is_named():
    with pytest.raises(ValueError, match="model_type='mamba': known are llama, qwen2"):
        held(LLAMA | {"model_type": "mamba"}, "float16", "cuda:0")


def test_devices_number_formats_and_kernels():
    for gpus, expected in ((0, ("cpu", 4)), (1, ("cuda:0", 2))):
        target, _ = planned_pair(load_profile("small"), gpus)
        assert (target.device, target.itemsize) == expected
    assert [model.device for model in on_t4s()[1]] == ["cuda:0", "cuda:1"]


def test_on_a_cpu_in_float32_the_weights_of_products_are_held_twice(random_pair):
    planned = of_pair(random_pair).target
    laid_out = [
        module._copy
        for layer in random_pair.target.body.layers
        for module in (layer.qkv, layer.out, layer.gate_up, layer.down)
    ]
    again = sum(4 * copy.numel() for copy in laid_out) + 4 * planned.head
    assert planned.loaded == planned.stored + again
    moved = dataclasses.replace(planned, device="cuda:0")
    assert moved.loaded == moved.stored


# ---- the plan against the recorder ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "new", "packed"), [(5, 12, 2048), (40, 12, 7), (100, 60, 64), (3, 9, 2048)]
)
def test_planned_caches_are_the_recorders(
    random_pair, random_profile, monkeypatch, length, new, packed
):
    made, fresh = [], random_pair.target.cache
    for model in models_of(random_pair):
        monkeypatch.setattr(
            model, "cache", lambda capacity: made.append(fresh(capacity)) or made[-1]
        )
    profile, prompts = (
        small(random_profile, length, new, packed),
        resampling_of(*[[3 + i % 30 for i in range(length)]] * 3),
    )
    texts = record.generate(random_pair.target, prompts, new, frozenset(), GREEDY, 0)
    record.record_prompt(random_pair, prompts[0], texts[0], profile.tree, GREEDY, packed)
    written, *scored = [
        sum(buffer.nbytes for buffers in cache.layers.values() for buffer in buffers)
        for cache in made
    ]
    pair = of_pair(random_pair)
    for model, used in zip(pair, scored, strict=True):
        assert model.cached(plan.slots_beside(profile)) == used
    monkeypatch.setattr(plan, "beside_weights", lambda *_: 0)
    monkeypatch.setattr(plan.Held, "activations", lambda *_: 0)
    loaded = sum(model.loaded for model in pair)
    assert planned_bytes(profile, pair) == {"cpu": loaded + written}


# ---- devices -------------------------------------------------------------------------------------


def test_each_device_holds_its_own():
    draft = on_t4s()[1].draft
    two, one = (planned_bytes(*on_t4s(**on)) for on in ({}, {"device": "cuda:0"}))
    assert set(two) == {"cuda:0", "cuda:1"} and set(one) == {"cuda:0"}
    assert two["cuda:1"] > draft.loaded + plan.CONTEXT_BYTES
    assert two["cuda:0"] + draft.loaded <= one["cuda:0"] < sum(two.values())


@pytest.mark.parametrize("name", ["t4", "paper", "qwen", "reasoning"])
def test_profiles_for_t4s_fit_a_t4(name):
    free = 15.0e9  # of 15.8 on a T4 whose context is there
    assert all(need < free for need in planned_bytes(*on_t4s(name)).values())

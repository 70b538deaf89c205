"""The plan: sizes as published, caches, passes and operations as the recorder really has them,
packing, and the bar of ten minutes.
"""

import dataclasses

import pytest
import torch
from conftest import save_trimmed_draft
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear
from torch.utils.flop_counter import FlopCounterMode
from toy import record_block

from speclab import record
from speclab.models.model import Projection
from speclab.models.pairs import load_model, parameter_count
from speclab.ops import plan as memory
from speclab.ops.plan import (
    T4,
    Held,
    Speed,
    Stage,
    held,
    packed_tokens_that_fit,
    peaks,
    plan,
    seconds,
    shape_of,
    stages,
)
from speclab.profiles import ModelSpec, load_profile
from speclab.prompts import EncodedPrompt
from speclab.sampling import Sampling

PAPER = load_profile("paper")
LLAMA, TINY_LLAMA = (PAPER.notes[f"{which}_config"] for which in ("target", "draft"))
GREEDY = Sampling()


def on_t4s(name="paper", **overrides):
    """A hub profile and its two models as it holds them on a machine with two GPUs."""
    profile = load_profile(name, overrides)
    return profile, *(
        held(s, profile.notes[f"{w}_config"], 2)
        for w, s in (("target", profile.target), ("draft", profile.draft))
    )


def of_pair(pair):
    """A loaded pair as the plan sees it."""
    return [
        Held(shape_of(m.network.config), 4, "cpu") for m in (pair.target, pair.draft)
    ]


def prompts_of(count, length):
    return [
        EncodedPrompt(
            f"p{i}", "code", tuple(3 + (i + j) % 30 for j in range(length)), 0
        )
        for i in range(count)
    ]


# ---- sizes ---------------------------------------------------------------------------------------


def test_sizes_of_the_papers_pair():
    target, draft = shape_of(LLAMA), shape_of(TINY_LLAMA)
    assert target.kv_bytes(2) == 2 * 32 * 4096 * 2 == 524_288
    assert (
        draft.kv_bytes(2) == 2 * 22 * 4 * 64 * 2
    )  # grouped queries: four heads of keys and values
    assert draft.weight_bytes(2) == 2_200_096_768  # the paper's log: 2.20 GB
    assert target.weight_bytes(2) == pytest.approx(
        3.90e9, rel=0.005
    )  # size of its file on the hub; both in the log: 6.10 GB
    assert dataclasses.replace(target, bits=None).weight_bytes(2) == 2 * 6_738_415_616


def test_a_small_group_costs_what_its_scales_and_zeros_take():
    reasoning = shape_of(load_profile("reasoning").notes["target_config"])
    assert reasoning.weight_bytes(2) == pytest.approx(
        5.96e9, rel=0.005
    )  # size of its file on the hub, group size 32
    assert dataclasses.replace(reasoning, group=128).weight_bytes(
        2
    ) < 0.95 * reasoning.weight_bytes(2)


def test_a_config_object_and_its_file_give_the_same_shape(random_pair):
    config = random_pair.target.network.config
    assert shape_of(config) == shape_of(config.to_dict())
    for model in (random_pair.target, random_pair.draft):
        assert shape_of(model.network.config).parameters == parameter_count(
            model.network
        )


def test_a_trimmed_head_counts_by_the_tokens_it_says(random_folders, tmp_path):
    folder = save_trimmed_draft(tmp_path, random_folders[0], (1, 2, 3, 5))
    network = load_model(ModelSpec(str(folder), device="cpu")).network
    shape = shape_of(network.config)
    assert shape.parameters == parameter_count(network)
    whole = dataclasses.replace(shape, kept=None)
    assert whole.parameters - shape.parameters == (40 - 4) * 16
    profile = load_profile("tiny")
    models = [Held(s, 4, "cpu") for s in (shape, whole)]
    head, full = (stages(profile, m, m)[-1] for m in models)
    assert head.name == "logits" and full.flops == 10 * head.flops
    assert full.bytes > head.bytes > 0.9 * full.bytes, "rows are as wide as ever"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"model_type": "mamba"},
            "model_type='mamba': the memory plan knows llama, qwen2",
        ),
        ({"vocab_size": None}, "config.json lacks vocab_size"),
    ],
)
def test_an_unknown_or_cut_config_is_named(change, words):
    config = {k: v for k, v in (LLAMA | change).items() if v is not None}
    with pytest.raises(ValueError, match=words):
        shape_of(config)


def test_devices_and_number_formats():
    small = load_profile("small")
    config = small.notes["target_config"]
    assert [
        (h.device, h.itemsize) for h in (held(small.target, config, n) for n in (0, 1))
    ] == [
        ("cpu", 4),
        ("cuda:0", 2),
    ]
    paper = [(h.device, h.itemsize, h.unpacks) for h in on_t4s()[1:]]
    assert paper == [("cuda:0", 2, True), ("cuda:1", 2, False)]
    assert held(
        dataclasses.replace(PAPER.target, backend="marlin"), LLAMA, 1
    ).pass_bytes == shape_of(LLAMA).weight_bytes(2)


# ---- the plan against the recorder ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "new", "packed"),
    [(5, 12, 2048), (40, 12, 7), (100, 60, 64), (3, 9, 2048)],
)
def test_planned_caches_are_the_recorders(
    random_pair, random_profile, monkeypatch, length, new, packed
):
    made, fresh = [], random_pair.target.cache
    for model in (random_pair.target, random_pair.draft):
        monkeypatch.setattr(
            model, "cache", lambda capacity: made.append(fresh(capacity)) or made[-1]
        )
    limits = {
        "max_prompt_tokens": length,
        "max_new_tokens": new,
        "max_packed_tokens": packed,
    }
    profile = random_profile.replace(prompts_per_domain=3, domains=("code",), **limits)
    prompts = prompts_of(3, length)
    texts = record.generate(random_pair.target, prompts, new, frozenset(), GREEDY, 0)
    record.record_prompt(
        random_pair, prompts[0], texts[0], profile.tree, GREEDY, packed
    )
    used = [
        sum(buffer.nbytes for buffers in cache.layers.values() for buffer in buffers)
        for cache in made
    ]
    planned = {
        n.stage: n.parts["KV cache"] for n in plan(profile, *of_pair(random_pair))
    }
    assert planned == {"generate": used[0], "record": used[1] + used[2]}


@pytest.mark.parametrize(
    ("length", "new", "block", "packed"), [(6, 8, 2, 2048), (6, 11, 3, 9)]
)
def test_planned_passes_and_tokens_are_the_recorders(
    random_pair, random_profile, monkeypatch, length, new, block, packed
):
    profile = random_profile.replace(
        max_prompt_tokens=length,
        max_new_tokens=new,
        block_prompts=block,
        max_packed_tokens=packed,
        prompts_per_domain=5,
        domains=("code",),
    )
    for model in (random_pair.target, random_pair.draft):
        monkeypatch.setattr(model, "passes", 0)
    endless, rows, prompts = (
        dataclasses.replace(random_pair, stop_ids=frozenset()),
        [],
        prompts_of(5, length),
    )
    monkeypatch.setattr(
        random_pair.draft,
        "logits",
        lambda h, honest=random_pair.draft.logits: rows.append(h.shape[0]) or honest(h),
    )
    for i in range(0, 5, block):
        record_block(
            endless, prompts[i : i + block], profile.tree, GREEDY, new, 0, packed
        )
    planned = stages(profile, *of_pair(random_pair))
    for which in ("target", "draft"):
        passes = sum(
            s.passes for s in planned if s.model == which and s.name != "logits"
        )
        assert passes == getattr(random_pair, which).passes
    assert sum(rows) == next(
        s.tokens for s in planned if (s.name, s.model) == ("logits", "draft")
    )


def test_operations_are_those_a_counter_counts(random_pair, monkeypatch):
    """The counter knows neither the fused attention of CPUs nor oneDNN's products."""
    shape, length = of_pair(random_pair)[0].shape, 24
    tokens = torch.randint(3, 30, (1, length))
    monkeypatch.setattr(
        Projection, "__call__", lambda self, x: linear(x, self.weight, self.bias)
    )
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        random_pair.target.forward(tokens, random_pair.target.cache())
    assert counter.get_total_flops() == pytest.approx(
        shape.flops(length, length), rel=1e-9
    )


def test_no_more_than_rows_are_ever_reduced_at_once(
    random_pair, random_profile, monkeypatch
):
    assert memory.ROWS == record.ROWS
    seen = []
    for model in (random_pair.target, random_pair.draft):
        monkeypatch.setattr(
            model,
            "logits",
            lambda h, honest=model.logits: (
                seen.append(h.numel() // h.shape[-1]) or honest(h)
            ),
        )
    text = tuple(3 + i % 30 for i in range(300))
    record.record_prompt(
        random_pair, prompts_of(1, 8)[0], text, random_profile.tree, GREEDY, 2048
    )
    assert max(seen) == record.ROWS, "300 positions, two children each"


# ---- packing -------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    free=st.floats(0.05e9, 20e9),
    new=st.sampled_from([64, 512, 2048]),
    limit=st.sampled_from([64, 100, 2048, 100_000]),
)
def test_the_packing_is_the_largest_that_fits(free, new, limit):
    profile, target, draft = on_t4s("t4", max_new_tokens=new, max_packed_tokens=limit)

    def fits(packed):
        (need,) = (
            n for n in plan(profile, target, draft, packed) if n.stage == "record"
        )
        return need.total - need.parts["weights"] - need.parts["context"] <= free

    try:
        packed = packed_tokens_that_fit(profile, target, draft, {"cuda:0": free})
    except ValueError as error:
        assert "lower max_prompt_tokens or max_new_tokens" in str(error)
        assert not fits(15) and not fits(limit)
        return
    assert (
        fits(packed) and packed <= limit and (packed == limit or not fits(2 * packed))
    )


def test_what_does_not_fit_is_said_with_numbers():
    with pytest.raises(
        ValueError,
        match=r"cuda:1: recording needs 0\.\d+ GB beside the weights .* 0\.01 GB are free",
    ):
        packed_tokens_that_fit(*on_t4s(), {"cuda:0": 1e10, "cuda:1": 1e7})


def test_each_device_holds_its_own():
    needs = {(n.device, n.stage): n for n in plan(*on_t4s())}
    both = {n.stage: n for n in plan(*on_t4s(device="cuda:0"))}
    assert set(needs) == {
        (d, s) for d in ("cuda:0", "cuda:1") for s in ("generate", "record")
    } and set(both) == {"generate", "record"}
    assert (
        both["record"].parts["weights"]
        == needs["cuda:0", "record"].parts["weights"]
        + needs["cuda:1", "record"].parts["weights"]
    )
    assert "KV cache" not in needs["cuda:1", "generate"].parts, (
        "the draft waits while the target writes"
    )
    assert peaks(list(needs.values()))["cuda:0"].stage == "generate"


@pytest.mark.parametrize("name", ["t4", "paper", "qwen", "reasoning"])
def test_profiles_for_t4s_fit_a_t4(name):
    free = 15.0e9  # of 15.8 on a T4 whose context is there
    assert all(need.total < free for need in peaks(plan(*on_t4s(name))).values())


# ---- time ----------------------------------------------------------------------------------------


def test_time_of_a_stage_by_hand():
    speed = Speed(1e12, 1e11, 1e-3)
    assert Stage("x", "target", 10, 5, 2e12, 3e11, 0).seconds(speed) == pytest.approx(
        5.0
    )  # 2 s of arithmetic, 3 s of traffic
    assert Stage("x", "target", 1000, 5, 2e12, 3e11, 8).seconds(speed) == pytest.approx(
        8.0
    )  # launching takes longer


def test_decoding_by_hand():
    profile, target, draft = on_t4s(backend="marlin")
    decode = next(s for s in stages(profile, target, draft) if s.name == "decode")
    assert (decode.passes, decode.tokens) == (
        10 * 63,
        200 * 63,
    )  # ten blocks of twenty, one token comes of the prefill
    weights, cached = (
        630 * target.shape.weight_bytes(2),
        200 * 63 * (512 + 32) * 524_288,
    )
    assert decode.bytes == weights + cached
    assert decode.flops == 2 * 6_476_005_376 * 12_600 + 4 * 32 * 4096 * 12_600 * 544


@pytest.mark.parametrize(
    ("name", "overrides"),
    [("paper", {}), ("t4", {}), ("paper", {"device": "cuda:0", "block_prompts": 12})],
)
def test_the_papers_measurement_takes_less_than_ten_minutes_on_t4s(name, overrides):
    profile, target, draft = on_t4s(name, **overrides)
    assert (
        sum(s.tokens for s in stages(profile, target, draft) if s.name == "decode")
        + 200
        == 12_800
        >= 99_768 / 8
    )
    assert seconds(profile, target, draft, T4) < 600, (
        "even if every prompt had 512 tokens, with the kernel that unpacks at every pass"
    )
    assert seconds(profile, target, draft, T4, prompt_tokens=150) < seconds(
        profile, target, draft, T4
    )


def test_the_estimate_knows_what_is_dear():
    base = seconds(*on_t4s(), T4)
    assert seconds(*on_t4s(backend="marlin"), T4) < 0.75 * base, "no unpacking"
    assert seconds(*on_t4s(block_prompts=1), T4) > 4 * base, "one prompt a pass"
    assert seconds(*on_t4s(max_new_tokens=128), T4) > 1.3 * base


def test_on_a_cpu_in_float32_the_weights_of_products_are_held_twice(random_pair):
    held = of_pair(random_pair)[0]
    single = held.shape.weight_bytes(held.itemsize)
    laid_out = [
        module._copy
        for layer in random_pair.target.body.layers
        for module in (layer.qkv, layer.out, layer.gate_up, layer.down)
    ]
    again = sum(copy.numel() * 4 for copy in laid_out)
    again += 4 * held.shape.said * held.shape.width
    assert held.weights == single + again
    assert dataclasses.replace(held, itemsize=2).weights == single / 2
    assert dataclasses.replace(held, device="cuda:0").weights == single

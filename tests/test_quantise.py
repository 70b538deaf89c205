"""Quantised copies: the unpacked weights are the packed codes exactly, fewer bits are further away,
bad input says what is allowed.
"""

import json
import re

import numpy as np
import pytest
import torch
from conftest import save_random_llama
from safetensors.torch import load_file

from speclab.drafts import quantise
from speclab.drafts.quantise import available, quantised_copy, unpacked

needs_gptq = pytest.mark.skipif(
    not available(), reason="gptqmodel is not installed: pip install speclab[gptq]"
)
LAYER = "model.layers.0.mlp.down_proj"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A random Llama whose layers have 64 inputs or a multiple."""
    folder = tmp_path_factory.mktemp("model") / "target"
    return save_random_llama(
        folder, 3, hidden_size=64, intermediate_size=128, tie_word_embeddings=True
    )


@pytest.fixture(scope="module")
def rows():
    """Calibration rows."""
    return np.random.default_rng(0).integers(3, 40, (6, 48)).tolist()


@pytest.fixture(scope="module")
def copies(source, rows, tmp_path_factory):
    """The model at 8, 4 and 3 bits."""
    work = tmp_path_factory.mktemp("work")
    return {bits: quantised_copy(source, work, rows, bits, 32) for bits in (8, 4, 3)}


def codes(packed, layer=LAYER, bits=4):
    """Integers, zeros and scales of a layer, unpacked from int32 words by hand (4 and 8 bits):
    weight = scale (code - zero).
    """
    tensors, per = load_file(packed / "model.safetensors"), 32 // bits
    shift, mask = torch.arange(per) * bits, 2**bits - 1
    words = tensors[f"{layer}.qweight"]  # [inputs / per, outputs]
    code = ((words[:, None] >> shift[None, :, None]) & mask).reshape(-1, words.shape[1])
    zero = ((tensors[f"{layer}.qzeros"][:, :, None] >> shift) & mask).reshape(
        tensors[f"{layer}.scales"].shape
    ) + 1  # stored less one
    group = tensors[f"{layer}.g_idx"].long()
    return code, zero[group], tensors[f"{layer}.scales"].float()[group]


@needs_gptq
@pytest.mark.parametrize("bits", [4, 8])
def test_the_plain_copy_holds_exactly_the_packed_weights(copies, bits):
    code, zero, scale = codes(copies[bits].packed, bits=bits)
    plain = load_file(copies[bits].plain / "model.safetensors")[f"{LAYER}.weight"]
    assert plain.dtype == torch.float32 and torch.equal(
        plain, (scale * (code - zero)).T
    )
    assert not torch.equal(plain, (scale * (code - zero + 1)).T), (
        "a zero point that is off by one would be seen"
    )


@needs_gptq
def test_fewer_bits_weigh_less_and_are_further_from_the_source(copies, source):
    truth = load_file(source / "model.safetensors")[f"{LAYER}.weight"].float()
    errors = [
        (load_file(copies[bits].plain / "model.safetensors")[f"{LAYER}.weight"] - truth)
        .abs()
        .mean()
        .item()
        for bits in (8, 4, 3)
    ]
    sizes = [copies[bits].weight_bytes for bits in (8, 4, 3)]
    assert (
        0 < errors[0] < errors[1] < errors[2] < truth.abs().mean()
        and sizes[0] > sizes[1] > sizes[2]
    )
    assert [copies[bits].bits for bits in (8, 4, 3)] == [8, 4, 3]


@needs_gptq
@pytest.mark.slow
def test_the_plain_copy_loads_as_an_unquantised_model_and_the_packed_one_as_a_quantised(
    copies,
):
    from speclab.models.pairs import load_model
    from speclab.profiles import ModelSpec

    plain = load_model(ModelSpec(str(copies[8].plain), device="cpu"))
    assert (
        not plain.quantised
        and plain.kernel == "Linear"
        and plain.dtype == torch.float32
    )
    packed = load_model(
        ModelSpec(
            str(copies[8].packed), device="cpu", dtype="bfloat16", backend="torch"
        )
    )
    assert packed.quantised and packed.kernel != "Linear"
    tokens = torch.tensor([[5, 9, 7, 12]])
    one, two = (
        m.logits(m.forward(tokens, m.cache())).softmax(-1) for m in (plain, packed)
    )
    assert (one - two).abs().max() < 0.05, (
        "the kernel computes the same model, in bfloat16"
    )


@needs_gptq
def test_a_copy_is_made_once_and_a_killed_call_leaves_nothing_that_looks_finished(
    copies, source, rows, monkeypatch, tmp_path
):
    work = copies[4].packed.parents[1]
    monkeypatch.setattr(
        quantise, "quantise", lambda *a, **k: pytest.fail("quantised again")
    )
    assert quantised_copy(source, work, rows, 4, 32) == copies[4]
    with pytest.raises(pytest.fail.Exception):
        quantised_copy(source, work, rows[:-1], 4, 32)  # other rows are another copy
    assert not [
        p
        for p in work.iterdir()
        if re.fullmatch("int4-[0-9a-f]+", p.name)
        and not (p / "plain" / "config.json").is_file()
    ]
    again = unpacked(copies[3].packed, tmp_path)
    assert unpacked(copies[3].packed, tmp_path) == again
    assert again.bits == 3 and not (again.plain / "quantize_config.json").exists()
    assert "quantization_config" not in json.loads(
        (again.plain / "config.json").read_text()
    )
    first, second = (
        load_file(c.plain / "model.safetensors") for c in (copies[3], again)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 5}, "bits=5: GPTQ takes 2, 3, 4, 8"),
        ({"bits": 16}, "bits=16: GPTQ takes 2, 3, 4, 8"),
        ({"group_size": 0}, "group_size=0: allowed are -1"),
        ({"calibration": []}, "calibration is empty"),
    ],
)
def test_bad_input_is_refused_before_anything_is_loaded(tmp_path, change, message):
    for work in (quantise.quantise, quantised_copy):
        with pytest.raises(ValueError, match=message):
            work(
                **{
                    "folder": tmp_path,
                    "out" if work is quantise.quantise else "work": tmp_path / "out",
                    "calibration": [[1]],
                }
                | change
            )
    assert not (tmp_path / "out").exists()


def test_without_gptqmodel_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(quantise.importlib.util, "find_spec", lambda name: None)
    assert not quantise.available()
    with pytest.raises(ValueError, match=r"gptqmodel is not installed: pip install"):
        quantise.quantise(tmp_path, tmp_path / "out", [[1]])

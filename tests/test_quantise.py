"""Quantised copies: the unpacked weights are exactly the packed codes, and a copy is made only
once.
"""

import re

import numpy as np
import pytest
import torch
from conftest import save_random_llama
from safetensors.torch import load_file

from speclab.drafts import quantise
from speclab.drafts.quantise import Calibration, available, quantised_copy

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


def calibration(rows):
    """Rows that are there already."""
    return Calibration(rows, lambda: rows)


@pytest.fixture(scope="module")
def copies(source, rows, tmp_path_factory):
    """The model at 8 and 4 bits."""
    work = tmp_path_factory.mktemp("work")
    return {bits: quantised_copy(source, work, calibration(rows), bits) for bits in (8, 4)}


def weights_of(folder):
    return load_file(folder / "model.safetensors")


def codes(packed, bits):
    """Integers, zeros and scales of LAYER, unpacked from int32 words by hand (4 and 8 bits):
    weight = scale (code - zero).
    """
    tensors, per = weights_of(packed), 32 // bits
    words, zeros, scales, group = (
        tensors[f"{LAYER}.{name}"] for name in ("qweight", "qzeros", "scales", "g_idx")
    )
    shift, mask = torch.arange(per) * bits, 2**bits - 1
    # words: [inputs / per, outputs]
    code = ((words[:, None] >> shift[None, :, None]) & mask).reshape(-1, words.shape[1])
    zero = ((zeros[:, :, None] >> shift) & mask).reshape(scales.shape) + 1  # less one
    return code, zero[group.long()], scales.float()[group.long()]


@needs_gptq
@pytest.mark.parametrize("bits", [4, 8])
def test_the_plain_copy_holds_exactly_the_packed_weights(copies, bits):
    code, zero, scale = codes(copies[bits].packed, bits)
    plain = weights_of(copies[bits].plain)[f"{LAYER}.weight"]
    assert plain.dtype == torch.float32
    assert torch.equal(plain, (scale * (code - zero)).T)
    off_by_one = (scale * (code - zero + 1)).T
    assert not torch.equal(plain, off_by_one), "it would be seen"


@needs_gptq
def test_the_librarys_tables_reach_no_page(source, rows, tmp_path, capfd):
    """A page holds what any process of its notebook prints."""
    quantised_copy(source, tmp_path, calibration(rows[:1]), 8)
    said = capfd.readouterr()
    assert "INFO" not in said.out + said.err and "module" not in said.out + said.err


@needs_gptq
def test_a_copy_is_made_once_and_a_killed_call_leaves_nothing_that_looks_finished(
    copies, source, rows, monkeypatch, tmp_path
):
    def killed(*args):
        raise KeyboardInterrupt

    work = copies[4].packed.parents[1]
    monkeypatch.setattr(quantise, "_alone", killed)
    unread = Calibration(rows, None)  # a finished copy needs no rows
    assert quantised_copy(source, work, unread, 4) == copies[4]
    with pytest.raises(KeyboardInterrupt):  # other rows are another copy
        quantised_copy(source, work, calibration(rows[:-1]), 4)
    made = [p for p in work.iterdir() if re.fullmatch("int4-[0-9a-f]+", p.name)]
    assert made == [copies[4].packed.parent]

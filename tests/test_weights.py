"""A model's files: which of them hold its weights, whether these fit its network, and what is said
where a library cannot use them.
"""

import json
import shutil

import pytest
import torch
from conftest import change_weights, edit_json, profile_of, refuses, save_random_llama
from safetensors.torch import load_file, save_file

from speclab.cli import doctor
from speclab.drafts.quantise import available
from speclab.models import pairs
from speclab.models.folder import ModelFolder
from speclab.models.pairs import load_model
from speclab.plain import ModelSpec
from speclab.study.profiles import ROOT

needs_gptq = pytest.mark.skipif(
    not available(), reason="gptqmodel is not installed: pip install speclab[gptq]"
)
GPTQ = ROOT / "data/pairs/tiny/target-gptq"
GROUP = 64  # inputs of a packed layer that share a scale
FILE, INDEX = "model.safetensors", "model.safetensors.index.json"


def loaded(folder, **options):
    return load_model(ModelSpec(str(folder), device="cpu", **options))


def refused(folder, **options):
    """The message of loading: one line that names the folder."""
    with refuses(str(folder)) as error:
        loaded(folder, **options)
    return str(error.value)


def logits(model):
    tokens = torch.tensor([[2, 3, 5, 7, 11]])
    return model.logits(model.forward(tokens, model.cache()))


def split(folder):
    """Store the weights in two files and an index."""
    weights = load_file(folder / FILE)
    (folder / FILE).unlink()
    names = sorted(weights)
    parts = {"model-1-of-2.safetensors": names[::2], "model-2-of-2.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, folder / file, {"format": "pt"})
    places = {name: file for file, part in parts.items() for name in part}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))


@pytest.fixture
def model(tmp_path):
    """The folder of a random Llama."""
    return save_random_llama(tmp_path / "model", 1)


# ---- which files ---------------------------------------------------------------------------------


def add_other_forms(folder):
    """What publishers put beside the weights. Nobody may read it: it is no safetensors file."""
    (folder / "original").mkdir()
    for name in ("consolidated", "adapter_model", "original/model", "model-3-of-3"):
        (folder / f"{name}.safetensors").write_bytes(b"x" * 10_000_000)


@pytest.mark.parametrize("shards", [False, True], ids=["one file", "index"])
def test_only_the_files_of_the_weights_count(model, shards):
    """For size, digest and check."""
    if shards:
        split(model)
    folder = ModelFolder(model)
    alone = folder.bytes, folder.digest, logits(loaded(model))
    add_other_forms(model)
    assert (folder.bytes, folder.digest) == alone[:2]
    assert torch.equal(logits(loaded(model)), alone[2])


def test_one_file_counts_before_an_index(model):
    """As for transformers."""
    alone, weights = ModelFolder(model).digest, (model / FILE).read_bytes()
    split(model)
    assert ModelFolder(model).digest != alone
    (model / FILE).write_bytes(weights)
    assert ModelFolder(model).digest == alone


@pytest.mark.parametrize("index", [[], {}, {"weight_map": ["a"]}])
def test_a_damaged_index_is_refused(model, index):
    (model / FILE).unlink()
    (model / INDEX).write_text(json.dumps(index))
    with refuses(f"{INDEX} .*; download the whole model again"):
        loaded(model)


def test_a_missing_file_is_named(model):
    split(model)
    (model / "model-2-of-2.safetensors").unlink()
    assert not ModelFolder(model).has_weights
    assert "has no model-2-of-2.safetensors" in refused(model)


# ---- packed weights ------------------------------------------------------------------------------


@pytest.fixture
def packed(tmp_path):
    """A copy of a model that is packed as by GPTQ: per group of inputs, an output has a scale and a
    zero point, and each input names its group.
    """
    return shutil.copytree(GPTQ, tmp_path / "packed", ignore=lambda *_: {"quantize_config.json"})


def in_any_order(folder):
    """Declare that the inputs of a group are anywhere (desc_act)."""
    how = ModelFolder(folder).config["quantization_config"]
    edit_json(folder / "config.json", quantization_config=how | {"desc_act": True, "meta": {}})


@needs_gptq
def test_a_packed_model_without_some_tensors_is_refused(packed):
    """GPTQModel fills them with zeros and says nothing."""
    in_any_order(packed)
    of_layers = ("s.0.mlp.down_proj.scales", "q_proj.qzeros", "k_proj.g_idx")
    assert change_weights(packed, *of_layers, "model.norm", "embed_tokens") == 19
    said = refused(packed)
    assert "19 weights are missing" in said and "model.layers.0.mlp.down_proj.scales" in said
    assert "download the whole model again" in said


@needs_gptq
def test_a_plain_model_that_is_declared_packed_is_refused(packed, model):
    """And one that lacks packed numbers: GPTQModel says so itself."""
    how = ModelFolder(packed).config["quantization_config"]
    edit_json(model / "config.json", quantization_config=how)
    change_weights(packed, "v_proj.qweight")
    for folder in (packed, model):
        said = refused(folder)
        assert "_proj.qweight" in said and "download the whole model again" in said


@pytest.mark.parametrize("method", ["awq", "fp8", "compressed-tensors", "bitsandbytes", "mxfp4"])
def test_a_packing_that_is_not_loaded_is_named_before_anything_is_loaded(
    model, monkeypatch, method
):
    how = {"quant_method": method, "bits": 4, "group_size": GROUP}
    edit_json(model / "config.json", quantization_config=how)
    monkeypatch.setattr(pairs, "_load", lambda *_: pytest.fail("begun"))
    said = refused(model)
    assert f"packed by {method!r}" in said and "'gptq'" in said
    row = doctor.answer("target", doctor.model, profile_of(model, model), "target")
    assert row.startswith("do") and f"packed by {method!r}" in row


@needs_gptq
def test_packed_layouts_that_hold_all_load(packed):
    """Two files with an index, groups in order without their list, biases that the network lacks
    (as AutoGPTQ writes them), and AutoGPTQ's file name.
    """
    wanted = logits(loaded(GPTQ))
    weights = load_file(packed / FILE)
    scales = {name: value for name, value in weights.items() if name.endswith("scales")}
    zeros = {name.replace("scales", "bias"): value[0] * 0 for name, value in scales.items()}
    change_weights(packed, "g_idx", **zeros)
    (packed / FILE).rename(packed / f"gptq_model-4bit-{GROUP}g.safetensors")
    assert torch.equal(logits(loaded(packed)), wanted)
    (packed / f"gptq_model-4bit-{GROUP}g.safetensors").rename(packed / FILE)
    split(packed)
    assert torch.equal(logits(loaded(packed)), wanted)


# ---- advice --------------------------------------------------------------------------------------


def test_a_folder_without_tokenizer_is_said(model):
    (model / "tokenizer.json").unlink()
    with refuses("the backend tokenizer .*; if one is damaged, download the whole model a"):
        _ = ModelFolder(model).tokenizer


# ---- folders that variables name -----------------------------------------------------------------

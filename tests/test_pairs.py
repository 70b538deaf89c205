"""Loading: what is refused, and with which words; what a loaded pair says of itself."""

import copy
import dataclasses
import json
import shutil

import pytest
import torch
from conftest import save_random_llama, save_trimmed_draft

from speclab.__main__ import main
from speclab.models import pairs
from speclab.models.pairs import (
    SETTINGS,
    check_fits,
    load_model,
    load_pair,
    model_folder,
)
from speclab.profiles import ModelSpec, Profile
from speclab.runs import weights_digest


def pair_of(target, draft, **changes):
    return load_pair(
        Profile(
            "test",
            ModelSpec(str(target), device="cpu"),
            ModelSpec(str(draft), device="cpu"),
            max_prompt_tokens=64,
            max_new_tokens=8,
            **changes,
        )
    )


def test_a_pair_knows_itself(random_pair):
    assert random_pair.vocab == 40 and random_pair.stop_ids == {1}
    facts = random_pair.facts["target"]
    assert (
        facts["dtype"] == "float32"
        and facts["kernel"] == "Linear"
        and not facts["quantised"]
    )
    assert facts["parameters"] == sum(
        p.numel() for p in random_pair.target.network.parameters()
    )


def test_only_float32_on_the_cpu_is_exact(random_pair):
    assert random_pair.is_exact
    half = copy.copy(random_pair.draft)
    half.dtype = torch.bfloat16
    assert not dataclasses.replace(random_pair, draft=half).is_exact


def test_padded_vocabularies_are_cut_to_the_shared_ids(random_folders, tmp_path):
    padded = save_random_llama(tmp_path / "padded", 3, vocab=48)
    pair = pair_of(random_folders[0], padded)
    hidden = pair.draft.forward(torch.tensor([[2, 3]]), pair.draft.cache())
    assert pair.vocab == 40 and pair.draft.logits(hidden).shape == (1, 2, 40)


def test_vocabularies_that_differ_are_refused(random_folders, tmp_path):
    other = save_random_llama(tmp_path / "other", 3, words=20)
    with pytest.raises(
        ValueError,
        match=r"different vocabularies: 17 tokens differ, as .*one vocabulary",
    ):
        pair_of(random_folders[0], other)


def test_missing_models_and_weights_say_what_to_do(
    tmp_path, random_folders, monkeypatch
):
    with pytest.raises(ValueError, match="make tiny-pair DATA"):
        model_folder(ModelSpec("nowhere"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="SPECLAB_MODELS"):
        model_folder(ModelSpec("nobody/no-such-model-here"))
    bare = tmp_path / "bare"
    shutil.copytree(random_folders[0], bare)
    (bare / "model.safetensors").rename(bare / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pickled weights are refused"):
        load_model(ModelSpec(str(bare), device="cpu"))


def test_attached_models_are_found(tmp_path, random_folders, monkeypatch):
    shutil.copytree(random_folders[0], tmp_path / "owner" / "name")
    monkeypatch.setenv("SPECLAB_MODELS", str(tmp_path))
    assert model_folder(ModelSpec("owner/name")) == tmp_path / "owner" / "name"


def test_too_little_memory_is_said_with_both_numbers(random_folders, monkeypatch):
    import psutil

    monkeypatch.setattr(
        psutil, "virtual_memory", lambda: type("M", (), {"available": 1000})()
    )
    with pytest.raises(
        ValueError, match=r"about 0.00 GB are needed on cpu, 0.00 GB are free"
    ):
        check_fits(random_folders[0], torch.device("cpu"), torch.float32, False)


def test_on_a_cpu_in_float32_a_lean_model_needs_its_weights_twice(
    random_folders, monkeypatch
):
    folder, device = random_folders[0], torch.device("cpu")
    single = pairs.loaded_bytes(folder, torch.float32)
    monkeypatch.setattr(pairs, "free_bytes", lambda device: 1.5 * single)
    check_fits(folder, device, torch.float16, False)
    with pytest.raises(ValueError, match="are needed on cpu"):
        check_fits(folder, device, torch.float32, False)


def test_a_context_longer_than_the_model_takes_is_refused(random_folders):
    with pytest.raises(ValueError, match="takes 512 positions, 600 are asked for"):
        load_model(ModelSpec(str(random_folders[0]), device="cpu"), 600)


def test_a_gpu_that_is_not_there_is_named(random_folders):
    with pytest.raises(ValueError, match="this machine has"):
        load_model(ModelSpec(str(random_folders[0]), device="cuda:99"))


def test_an_architecture_that_ignores_tree_masks_is_refused(
    random_folders, monkeypatch
):
    from speclab.models.model import LanguageModel

    honest = LanguageModel.forward
    monkeypatch.setattr(
        LanguageModel,
        "forward",
        lambda self, tokens, cache, positions=None, visible=None: honest(
            self, tokens, cache, positions
        ),
    )
    with pytest.raises(ValueError, match="does not take 4-D masks"):
        load_model(ModelSpec(str(random_folders[0]), device="cpu"))


def test_the_quantised_target_runs_through_the_same_code(tiny_pair):
    from speclab.profiles import load_profile

    pair = load_pair(
        load_profile(
            "tiny", {"device": "cpu", "target.path": "data/pairs/tiny/target-gptq"}
        )
    )
    assert pair.facts["target"]["quantised"] and pair.facts["target"]["kernel"] not in (
        "",
        "Linear",
    )
    assert pair.facts["target"]["parameters"] == tiny_pair.facts["target"]["parameters"]
    tokens = torch.tensor([tiny_pair.tokenizer("def add(a, b):\n")["input_ids"]])
    p, plain = (
        m.logits(m.forward(tokens, m.cache())).softmax(-1)
        for m in (pair.target, tiny_pair.target)
    )
    overlap = torch.minimum(p, plain).sum(-1).mean()
    assert (
        0.7 < overlap < 0.9999
    )  # close to the full-precision target, and not the same


def test_a_model_whose_state_cannot_be_cropped_is_refused(
    random_folders, tmp_path, monkeypatch
):
    from transformers import MambaConfig, MambaForCausalLM

    from speclab.models.model import KVCache

    MambaForCausalLM(
        MambaConfig(vocab_size=40, hidden_size=16, state_size=4, num_hidden_layers=2)
    ).save_pretrained(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"taken back from a key/value cache, and it has no scaled dot-product attention",
    ):
        load_model(ModelSpec(str(tmp_path), device="cpu"))
    honest = KVCache.update
    monkeypatch.setattr(  # as a hybrid does, whose recurrent layers keep their state elsewhere
        KVCache,
        "update",
        lambda self, k, v, i, *_, **__: honest(self, k, v, 0) if i == 0 else (k, v),
    )
    monkeypatch.setattr("speclab.models.pairs.knows", lambda network: False)
    with pytest.raises(ValueError, match=r"only 1 of its 2 layers write to ours"):
        load_model(ModelSpec(str(random_folders[0]), device="cpu"))
    monkeypatch.setattr(KVCache, "update", lambda self, *_: self.has_previous_state())
    with pytest.raises(ValueError, match="it does not run over ours"):
        load_model(ModelSpec(str(random_folders[0]), device="cpu"))


# ---- broken folders: one line that names the file ------------------------------------------------

READ = [
    name
    for name in SETTINGS
    if name not in ("special_tokens_map.json", "added_tokens.json")
]
BROKEN = {
    "cut": (b'{"a": [1, ', "is damaged (not JSON"),
    "empty": (b"", "is damaged (not JSON"),
    "bytes": (b"\xff\xfe\x00", "is not text in UTF-8"),
    "list": (b"[]", "an object is needed, a list came"),
    "null": (b"null", "an object is needed, a NoneType came"),
    "number": (b"5", "an object is needed, a int came"),
    "text": (b'"x"', "an object is needed, a str came"),
}


@pytest.fixture
def copied(random_folders, tmp_path):
    """A copy of the random target, to be broken."""
    return shutil.copytree(random_folders[0], tmp_path / "model")


def refused(target, draft):
    """What loading says: one line."""
    with pytest.raises(ValueError) as error:
        pair_of(target, draft)
    assert "\n" not in str(error.value)
    return str(error.value)


def setting(name, value):
    """Change one entry of config.json."""

    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))

    return change


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("name", READ)
def test_a_broken_json_file_is_named(copied, random_folders, name, kind):
    """Also those that the libraries pass over in silence, as a cut generation_config.json: it holds
    the tokens that end a text.
    """
    content, words = BROKEN[kind]
    (copied / name).write_bytes(content)
    said = refused(copied, random_folders[1])
    assert f"{copied / name}" in said and words in said and "fetch the model" in said


@pytest.mark.parametrize("size", [0, 10, 2000, -1])
def test_cut_weights_are_named(copied, random_folders, size):
    path = copied / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    for pair in ((copied, random_folders[1]), (random_folders[0], copied)):
        assert f"{path} is damaged or cut" in refused(*pair)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (setting("hidden_size", "a"), "Field 'hidden_size' expected int, got str"),
        (setting("hidden_size", -5), "hidden size (-5) is not a multiple"),
        (setting("num_attention_heads", 0), "ZeroDivisionError"),
        (setting("num_hidden_layers", None), "'num_hidden_layers' expected int"),
        (setting("model_type", "nosuch"), "model type `nosuch`"),
        (setting("dtype", "float13"), "float13"),
        (setting("rope_parameters", 5), "rope_parameters"),
        (setting("hidden_act", "nosuch"), "nosuch"),
        (setting("eos_token_id", "x"), "eos_token_id"),
        (lambda folder: (folder / "config.json").write_text("{}"), "model_type"),
    ],
)
def test_a_setting_that_is_none_is_named(copied, random_folders, change, words):
    """Raised by the libraries as half a dozen other kinds of errors, some on many lines."""
    change(copied)
    said = refused(copied, random_folders[1])
    assert str(copied) in said and words in said


@pytest.mark.parametrize("stops", ["x", ["x"], [1, "x"], {"a": 1}, [[1]]])
def test_stops_that_are_no_token_ids_are_refused(copied, random_folders, stops):
    path = copied / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": stops}))
    said = refused(copied, random_folders[1])
    assert str(path) in said and "which is no token id" in said


@pytest.mark.parametrize(
    ("name", "value"), [("kept_tokens", "x"), ("embedding_of", 5), ("hidden_size", "a")]
)
def test_broken_settings_of_a_trimmed_draft_are_named(
    random_folders, tmp_path, name, value
):
    draft = save_trimmed_draft(tmp_path / "draft", random_folders[0], (0, 1, 2, 5))
    setting(name, value)(draft)
    said = refused(random_folders[0], draft)
    assert str(draft) in said and name in said


def test_a_broken_model_is_one_line_of_the_command_and_writes_nothing(
    copied, tmp_path, capsys
):
    (copied / "config.json").write_text("[]")
    out = tmp_path / "run"
    change = [f"target.path={copied}", f"draft.path={copied}", "device=cpu"]
    assert main(["record", "--out", str(out), "--set", *change]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"speclab: {copied / 'config.json'}: an object is needed")
    assert said.count("\n") == 1 and not out.exists()


@pytest.mark.parametrize(
    "content", ["[", "[]", "{}", '{"weights": 5}', '{"weights": {"a": 5}}']
)
def test_a_broken_source_of_weights_is_named(copied, content):
    """It is part of the key of a run, and read before anything else."""
    (copied / "source.json").write_text(content)
    with pytest.raises(ValueError, match="source.json") as error:
        weights_digest(copied)
    assert "git checkout" in str(error.value) and "\n" not in str(error.value)

"""Loading a pair: what is rejected and with which message, and the facts about a loaded pair."""

import dataclasses
import re
import shutil

import pytest
import torch
from conftest import change_weights, cut_file, edit_json, profile_of, save_random_llama
from toy import plain, record_prompt

from speclab.decode import decode_prompt
from speclab.model import KVCache
from speclab.models.folder import ModelFolder
from speclab.models.pairs import load_model
from speclab.plain import ModelSpec
from speclab.sampling import Sampling
from speclab.shapes import parse_shape
from speclab.study.pairs import load_pair
from speclab.study.prompts import Prompt, encode_prompts
from speclab.study.recording import Job, record_here
from speclab.tree import static_tree


def pair_of(target, draft):
    return load_pair(profile_of(target, draft))


def test_a_pair_knows_itself(random_pair):
    assert random_pair.vocab == 40 and random_pair.stop_ids == {1}
    facts, network = random_pair.facts["target"], random_pair.target.network
    assert (facts["dtype"], facts["kernel"]) == ("float32", "Linear")
    assert facts["parameters"] == sum(p.numel() for p in network.parameters())
    half = dataclasses.replace(random_pair.draft, dtype=torch.bfloat16)
    assert random_pair.is_exact
    assert not dataclasses.replace(random_pair, draft=half).is_exact


def test_vocabularies_that_cannot_be_compared_are_refused(random_folders, tmp_path):
    other = save_random_llama(tmp_path / "other", 3, words=20)
    words = f"^{other}: target and draft have different vocabularies, and the target's tokenizer is"
    with pytest.raises(ValueError, match=words + " neither byte-level"):
        pair_of(random_folders[0], other)


def test_attached_models_are_found_and_missing_ones_say_what_to_do(
    tmp_path, random_folders, monkeypatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="SPECLAB_MODELS"):
        ModelFolder.fetched(ModelSpec("nobody/no-such-model-here"))
    attached = shutil.copytree(random_folders[0], tmp_path / "owner" / "name")
    monkeypatch.setenv("SPECLAB_MODELS", str(tmp_path))
    assert ModelFolder.fetched(ModelSpec("owner/name")).path == attached
    (attached / "model.safetensors").rename(attached / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pickled weights are refused"):
        load_model(ModelSpec("owner/name", device="cpu"))


def test_a_model_whose_state_cannot_be_cropped_is_refused(random_folders, monkeypatch):
    """As a hybrid, whose recurrent layers keep their state elsewhere."""
    honest = KVCache.update
    monkeypatch.setattr(
        KVCache,
        "update",
        lambda self, key, value, layer, *_: (
            (key, value) if layer else honest(self, key, value, layer)
        ),
    )
    with pytest.raises(ValueError, match="its files cannot be used"):
        load_model(ModelSpec(str(random_folders[0]), device="cpu"))


# ---- broken folders: one line that names the file ------------------------------------------------


@pytest.fixture
def copied(random_folders, tmp_path):
    """A copy of the random target, to be broken."""
    return shutil.copytree(random_folders[0], tmp_path / "model")


def refused(target, draft):
    """The message of loading: one line."""
    with pytest.raises(ValueError) as error:
        pair_of(target, draft)
    assert "\n" not in str(error.value)
    return str(error.value)


DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("config.json", cut_file, "download the whole model"),
        (
            "generation_config.json",
            cut_file,
            "download the whole model",
        ),  # it names the tokens that end a text
        ("tokenizer.json", cut_file, "download the whole model"),
        ("model.safetensors", cut_file, "model.safetensors is damaged or cut"),
        (
            "model.safetensors",
            lambda file: change_weights(file.parent, DOWN),
            f"1 weights are missing, .*'{DOWN}",
        ),
        (
            "model.safetensors",
            lambda file: change_weights(file.parent, **{DOWN: torch.ones(32, 4)}),
            f"1 weights are missing, .*'{DOWN}",
        ),
    ],
)
def test_a_broken_file_is_named(copied, random_folders, name, damage, words):
    """Also those that the libraries pass over in silence."""
    damage(copied / name)
    said = refused(copied, random_folders[1])
    assert str(copied) in said and re.search(words, said)


# ---- what would be wrong without a word ----------------------------------------------------------


@pytest.fixture
def larger(tmp_path):
    """A target whose network and tokenizer have eight ids more than the random draft."""
    return save_random_llama(tmp_path / "larger", 3, vocab=48, words=45)


@pytest.mark.parametrize("stop", [45, "x"])
def test_a_stop_that_the_draft_does_not_have_is_refused(larger, random_folders, stop):
    edit_json(larger / "generation_config.json", eos_token_id=[1, stop])
    said = refused(larger, random_folders[1])
    assert f"texts end with token id {stop!r}" in said and "among the 40 ids" in said


def test_no_prompt_may_hold_an_id_that_only_the_target_has(larger, random_folders, random_profile):
    pair = pair_of(larger, random_folders[1])
    [prompt] = encode_prompts(pair.tokenizer, [Prompt("p", "code", "a w44")], 9)
    shape, tree = parse_shape("chain:2"), static_tree(1, 1)
    job = Job(random_profile, ((prompt,),))
    for use in (
        lambda: list(record_here(job, [0], pair)),
        lambda: plain(pair, prompt, 2),
        lambda: record_prompt(pair, prompt, (3, 4), tree, Sampling()),
        lambda: decode_prompt(pair, prompt, "greedy", shape, Sampling(), 2),
    ):
        with pytest.raises(ValueError, match="holds token id 47, but both models sha"):
            use()


def test_a_model_without_enough_memory_is_refused_before_it_is_loaded(random_folders, monkeypatch):
    target = random_folders[0]
    need = 2 * ModelFolder(target).bytes  # of float32 on a CPU
    monkeypatch.setattr("speclab.models.pairs.free_bytes", lambda device: need)
    assert load_model(ModelSpec(str(target)))
    monkeypatch.setattr("speclab.models.pairs.free_bytes", lambda device: need - 1)
    with pytest.raises(ValueError, match=rf"^{target.name} needs about .* on cpu.* smaller pair"):
        load_model(ModelSpec(str(target)))

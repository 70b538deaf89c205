"""Loading a pair: what is rejected and with which message, and the facts about a loaded pair."""

import copy
import dataclasses
import shutil

import pytest
import torch
from conftest import (
    change_weights,
    cut_file,
    edit_json,
    profile_of,
    random_network,
    refuses,
    save_random_llama,
)
from toy import plain, record_prompt
from transformers import AutoModelForCausalLM, AutoTokenizer

import speclab
from speclab.decode import decode_prompt
from speclab.model import KVCache
from speclab.models import pairs
from speclab.models.folder import ModelFolder
from speclab.models.pairs import load_model
from speclab.plain import EncodedPrompt, ModelSpec
from speclab.sampling import Sampling
from speclab.shapes import parse_shape
from speclab.study.pairs import load_pair
from speclab.study.prompts import Prompt, encode_prompts
from speclab.study.recording import Job, Worker
from speclab.tree import static_tree


def pair_of(target, draft):
    return load_pair(profile_of(target, draft))


@pytest.fixture
def larger(tmp_path):
    """A target whose network and tokenizer have eight ids more than the random draft."""
    return save_random_llama(tmp_path / "larger", 3, vocab=48, words=45)


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
    with refuses(words + " neither byte-level"):
        pair_of(random_folders[0], other)


def test_attached_models_are_found_and_missing_ones_say_what_to_do(
    tmp_path, random_folders, monkeypatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with refuses("SPECLAB_MODELS"):
        ModelFolder.fetched(ModelSpec("nobody/no-such-model-here"))
    attached = shutil.copytree(random_folders[0], tmp_path / "owner" / "name")
    monkeypatch.setenv("SPECLAB_MODELS", str(tmp_path))
    assert ModelFolder.fetched(ModelSpec("owner/name")).path == attached
    (attached / "model.safetensors").rename(attached / "pytorch_model.bin")
    with refuses("pickled weights are refused"):
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
    with refuses("its files cannot be used"):
        load_model(ModelSpec(str(random_folders[0]), device="cpu"))


# ---- in memory -----------------------------------------------------------------------------------


def loaded(folder):
    """A model and its tokenizer, as a user of transformers loads them."""
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def test_a_pair_in_memory_is_the_pair_of_its_folders(larger, random_folders):
    (target, tokenizer), (draft, _) = map(loaded, (larger, random_folders[1]))
    made, read = speclab.pair_of(target, draft, tokenizer), pair_of(larger, random_folders[1])
    assert (made.stop_ids, made.vocab) == (read.stop_ids, 40)
    facts = [pair.facts["target"] | {"weight_bytes": 0} for pair in (made, read)]
    assert facts[0] == facts[1]
    how = EncodedPrompt("p", "", (3, 4, 5), 0), "rejection", parse_shape("chain:3"), Sampling(1.0)
    texts = [decode_prompt(pair, *how, 20).token_ids for pair in (made, read)]
    assert texts[0] == texts[1] and len(texts[0]) > 3


def test_what_a_model_in_memory_would_get_wrong_is_refused(random_folders, tmp_path, monkeypatch):
    target, tokenizer = loaded(random_folders[0])
    capped = random_network("Gemma2", pad_token_id=0, final_logit_softcapping=30.0)
    other, others = loaded(save_random_llama(tmp_path, 3, words=20))
    packed, trained = copy.deepcopy(target), copy.deepcopy(target).train()
    packed.config.quantization_config = {"quant_method": "gptq"}
    for given, words in (
        ((capped, target, tokenizer), "final_logit_softcapping=30.0"),
        ((trained, target, tokenizer), "target is in training mode"),
        ((target, packed, tokenizer), "draft is in .* or has packed weights"),
        ((random_folders[0], target, tokenizer), "target is a .*Path; pass a model"),
        ((target.model, target, tokenizer), "target is a LlamaModel; pass a model"),
        ((target, other, tokenizer, others), "different vocabularies"),
    ):
        with refuses(words):
            speclab.pair_of(*given)
    monkeypatch.setattr(pairs, "check_architecture", lambda *_: None)
    with refuses("packed tree and its paths differ"):
        speclab.pair_of(target, capped, tokenizer)  # also a cap that no setting names


# ---- broken folders: one line that names the file ------------------------------------------------


@pytest.fixture
def copied(random_folders, tmp_path):
    """A copy of the random target, to be broken."""
    return shutil.copytree(random_folders[0], tmp_path / "model")


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
    with refuses(words) as error:
        pair_of(copied, random_folders[1])
    assert str(copied) in str(error.value)


# ---- what would be wrong without a word ----------------------------------------------------------


@pytest.mark.parametrize("stop", [45, "x"])
def test_a_stop_that_the_draft_does_not_have_is_refused(larger, random_folders, stop):
    edit_json(larger / "generation_config.json", eos_token_id=[1, stop])
    with refuses(f"texts end with token id {stop!r}.* among the 40 ids"):
        pair_of(larger, random_folders[1])


def test_no_prompt_may_hold_an_id_that_only_the_target_has(larger, random_folders, random_profile):
    pair = pair_of(larger, random_folders[1])
    [prompt] = encode_prompts(pair.tokenizer, [Prompt("p", "code", "a w44")], 9)
    shape, tree = parse_shape("chain:2"), static_tree(1, 1)
    job = Job(random_profile, ((prompt,),))
    for use in (
        lambda: Worker(job, pair=pair).record(0),
        lambda: plain(pair, prompt, 2),
        lambda: record_prompt(pair, prompt, (3, 4), tree, Sampling()),
        lambda: decode_prompt(pair, prompt, "greedy", shape, Sampling(), 2),
    ):
        with refuses("holds token id 47, but both models sha"):
            use()


def test_a_model_without_enough_memory_is_refused_before_it_is_loaded(random_folders, monkeypatch):
    target = random_folders[0]
    need = 2 * ModelFolder(target).bytes  # of float32 on a CPU
    monkeypatch.setattr("speclab.models.pairs.free_bytes", lambda device: need)
    assert load_model(ModelSpec(str(target)))
    monkeypatch.setattr("speclab.models.pairs.free_bytes", lambda device: need - 1)
    with refuses(rf"^{target.name} needs about .* on cpu.* smaller pair"):
        load_model(ModelSpec(str(target)))

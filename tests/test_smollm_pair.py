"""The real pair: its committed files and, if its weights are present, its tokens. Texts equal
transformers' and one another; records equal the literal procedure's.
"""

import shutil

import pytest
from bench import of_library
from conftest import ROOT
from test_tiny_pair import check_committed

from speclab.models.folder import ModelFolder
from speclab.models.hub import ModelsMissing
from speclab.record import generate
from speclab.sampling import Sampling
from speclab.study import runs
from speclab.study.pairs import load_pair
from speclab.study.profiles import load_profile
from speclab.study.prompts import encode_prompts, load_prompts

PAIR = ROOT / "data" / "pairs" / "smollm"
TRACES = ROOT / "data" / "traces" / "smollm"
GREEDY = Sampling()
NEW = 48


@pytest.fixture(scope="module")
def pair():
    """The pair on the CPU in float32; skipped where its weights were not made."""
    try:
        return load_pair(load_profile("smollm", {"device": "cpu"}))
    except ModelsMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def prompts(pair):
    """One prompt per domain, in the chat template."""
    return encode_prompts(pair.tokenizer, load_prompts("project", 1), 512, "chat")


# ---- files, without the weights ------------------------------------------------------------------


def test_what_is_committed_is_safe_and_of_no_training_machine():
    check_committed(PAIR)


def test_the_key_is_the_same_with_and_without_the_weights(tmp_path):
    if not (PAIR / "target" / "model.safetensors").is_file():
        pytest.skip("needs the target's weights: `make pair PROFILE=smollm`")
    ignored = shutil.ignore_patterns("*.safetensors")
    shutil.copytree(PAIR / "target", tmp_path / "target", ignore=ignored)
    assert ModelFolder(tmp_path / "target").digest == ModelFolder(PAIR / "target").digest


@pytest.mark.parametrize("folder", sorted(TRACES.iterdir()), ids=lambda f: f.name)
def test_every_shipped_run_is_read_without_the_models(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RUNS", tmp_path)
    monkeypatch.setattr(runs, "record_run", lambda *_, **__: pytest.fail("recorded"))
    run = runs.load_or_record(load_profile("smollm"), folder.name)
    assert run.folder == folder and run.manifest["kind"] == folder.name
    assert run.manifest["rows"]["trace"] == len(run.trace)
    asked = runs.profile_prompts(runs.of_kind(load_profile("smollm"), folder.name))
    assert set(run.trace["prompt_id"]) == {prompt.prompt_id for prompt in asked}


def test_a_shipped_run_for_every_kind_that_the_notebooks_read():
    shipped = {folder.name for folder in TRACES.iterdir()}
    # `chat-template`: the profile's own prompts are in it
    assert shipped == set(runs.kinds_of(load_profile("smollm"))) - {"chat-template"}


# ---- with the weights ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_plain_greedy_is_transformers_token_for_token(pair, prompts):
    texts = generate(pair.target, prompts, NEW, pair.stop_ids, GREEDY, 0)
    for prompt, text in zip(prompts, texts, strict=True):
        # which knows no stop here
        assert of_library(pair, prompt, NEW).ids[: len(text)] == text, prompt.domain

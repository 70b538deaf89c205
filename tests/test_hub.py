"""Models of the hub, with a simulated hub: the meaning of its errors, which files are downloaded,
and by which commands. No test uses a network.
"""

import json
import shutil
from types import SimpleNamespace
from unittest.mock import Mock

import huggingface_hub
import pytest
from conftest import edit_json
from huggingface_hub import errors
from huggingface_hub.utils import filter_repo_objects

from speclab.__main__ import main
from speclab.cli.doctor import answer, model
from speclab.models import hub
from speclab.models.folder import ModelFolder
from speclab.plain import ModelSpec
from speclab.study.profiles import load_profile

NAME = "somebody/some-model"
HUB_PAIR = {"target": NAME, "draft": NAME}
INDEX = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
# a publisher's own form of the weights, and an adapter
UNWANTED = ["consolidated.safetensors", "original/params.json", "original/model.safetensors"]
UNWANTED += ["adapter_model.safetensors", "pytorch_model.bin"]


@pytest.fixture(autouse=True)
def of_hub(tmp_path, monkeypatch, random_folders):
    """A hub with one model, the random target: the folder with its files. `fetched` has the names
    of those that were downloaded, each as if it had 1 GB.
    """
    there, cache, fetched = tmp_path / "there", tmp_path / "cache", []
    shutil.copytree(random_folders[0], there)
    (there / "original").mkdir()
    for name in UNWANTED:
        (there / name).write_bytes(b"{}")
    monkeypatch.setattr("speclab.study.runs.RUNS", tmp_path / "runs")
    monkeypatch.delenv("SPECLAB_MODELS", raising=False)

    def snapshot_download(_name, allow_patterns=None, ignore_patterns=None, dry_run=False, **_):
        if not allow_patterns:  # it asks for what is in the cache
            raise errors.LocalEntryNotFoundError("none")
        names = [path.relative_to(there).as_posix() for path in there.rglob("*.*")]
        patterns = {"allow_patterns": allow_patterns, "ignore_patterns": ignore_patterns}
        names = [*filter_repo_objects(names, **patterns)]
        if dry_run:
            return [SimpleNamespace(file_size=10**9) for _ in names]
        cache.mkdir(exist_ok=True)
        for name in names:
            shutil.copy(there / name, cache)
        fetched.extend(names)
        return cache

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return SimpleNamespace(folder=there, fetched=fetched)


@pytest.mark.parametrize(
    "kind",
    [
        errors.GatedRepoError,
        errors.RevisionNotFoundError,
        errors.HFValidationError,
        errors.LocalEntryNotFoundError,
        ConnectionError,
    ],
)
def test_an_error_of_the_hub_says_what_to_do(kind, monkeypatch):
    error = kind.__new__(kind)  # it has the parts of a hub's response
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=error))
    with pytest.raises(hub.ModelsMissing, match=NAME) as caught:
        hub.size(ModelSpec(NAME, revision="main2"))
    for words in (kind.__name__, "'main2'", "`hf auth login`", "set SPECLAB_MODELS"):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", ["one file", "index"])
def test_only_the_files_of_the_weights_are_fetched(of_hub, form):
    weights = ["model.safetensors"]
    if form == "index":
        (of_hub.folder / "model.safetensors").unlink()
        weights = ["model.safetensors.index.json", *INDEX["weight_map"].values()]
        for name in weights:
            (of_hub.folder / name).write_text(json.dumps(INDEX))
    assert ModelFolder.fetched(ModelSpec(NAME), hub.EVERYTHING).has_weights
    assert {*weights, "config.json", "tokenizer.json"} <= {*of_hub.fetched}
    assert not {*UNWANTED} & {*of_hub.fetched}
    assert hub.size(ModelSpec(NAME)) == 10**9 * len(of_hub.fetched)


@pytest.mark.parametrize(
    ("reason", "words"),
    [({"model_type": "gemma2"}, "softcapping"), ({"max_position_embeddings": 8}, "8 positions")],
)
def test_no_weights_are_fetched_of_a_model_that_cannot_be_used(of_hub, capsys, reason, words):
    """Its config.json says so, and that is fetched first."""
    edit_json(of_hub.folder / "config.json", **reason)
    changes = [f"--set={key}={value}" for key, value in HUB_PAIR.items()]
    assert main(["pair", "--profile", "tiny", *changes]) == 2
    assert f"target {NAME}" in (said := capsys.readouterr().err) and words in said
    assert "model.safetensors" not in of_hub.fetched


def test_the_doctor_fetches_settings_and_no_weights(of_hub, monkeypatch):
    monkeypatch.setattr("speclab.models.pairs.free_bytes", lambda _: 1e9)
    profile = load_profile("tiny", HUB_PAIR | {"device": "cpu", "max_prompt_tokens": 9})
    row = answer("target", model, profile, "target")
    assert row.startswith(f"do  target: {NAME} will be downloaded from the hub, ")
    assert "1.0 GB are free on cpu\n    -> use another device" in row
    assert not [name for name in of_hub.fetched if name.endswith(".safetensors")]


def test_a_model_is_in_the_cache_though_files_that_nobody_fetched_are_not(tmp_path, monkeypatch):
    """huggingface_hub 2.4 considers a folder without README.md incomplete, and gives its path."""
    incomplete, nowhere = (errors.LocalEntryNotFoundError("none") for _ in range(2))
    incomplete.snapshot_path = str(tmp_path)
    for error, folder in ((incomplete, ModelFolder(tmp_path)), (nowhere, None)):
        monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=error))
        assert ModelFolder.here(ModelSpec(NAME)) == folder


def test_a_stopped_download_is_no_whole_model(tmp_path, random_folders, monkeypatch):
    folder = shutil.copytree(random_folders[0], tmp_path / "part")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: folder)
    assert ModelFolder.whole(ModelSpec(NAME)).path == folder
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(INDEX))
    assert ModelFolder.whole(ModelSpec(NAME)) is None


def test_weights_that_config_json_names_are_those_that_count(tmp_path, random_folders):
    folder = ModelFolder(shutil.copytree(random_folders[0], tmp_path / "named"))
    before = folder.digest
    edit_json(folder.path / "config.json", transformers_weights="other.safetensors")
    assert not ModelFolder(folder.path).has_weights
    (folder.path / "other.safetensors").write_bytes(b"others")
    assert ModelFolder(folder.path).digest != before
    edit_json(folder.path / "config.json", transformers_weights="other.json")
    (folder.path / "other.json").write_text(json.dumps(INDEX))
    assert not ModelFolder(folder.path).has_weights, "an index of files that are not there"

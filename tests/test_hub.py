"""Models of the hub, with a simulated hub: the meaning of its errors, messages before a download,
and which commands download. No test uses a network.
"""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import huggingface_hub
import pytest
from huggingface_hub import errors
from huggingface_hub.utils import filter_repo_objects

from speclab.__main__ import main
from speclab.cli.doctor import answer, model
from speclab.models import hub
from speclab.models.folder import ModelFolder, cached
from speclab.study.profiles import ModelSpec, load_profile

NAME = "somebody/some-model"
CONFIG = load_profile("small").notes.target_config
HUB_PAIR = {"target": NAME, "draft": NAME}
INDEX = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}


@pytest.fixture(autouse=True)
def made_up(tmp_path, monkeypatch, random_folders):
    """A hub with one model, the random target, of 3 GB; what was fetched from it, by name."""
    fetched = []
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("speclab.models.folder.cached", lambda *_: None)
    monkeypatch.setattr("speclab.study.runs.RUNS", tmp_path / "runs")
    monkeypatch.delenv("SPECLAB_MODELS", raising=False)
    files = [("config.json", 1e3), ("model.safetensors", 3e9), ("pytorch_model.bin", 9e9)]
    siblings = [SimpleNamespace(rfilename=name, size=int(size)) for name, size in files]
    facts = SimpleNamespace(siblings=siblings)

    def model_info(_self, name, **_):
        return facts

    def hf_hub_download(name, file, local_dir, **_):
        path = tmp_path / "one" / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(CONFIG))
        fetched.append(f"{name}/{file}")
        return path

    def snapshot_download(name, allow_patterns=(), **_):
        if "model.safetensors" in allow_patterns:
            fetched.append(name)
        return random_folders[0]

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return fetched


def refusing(monkeypatch, kind):
    """Every call of the hub fails with an error of this kind."""

    def refused(*_, **__):
        raise kind.__new__(kind)  # it has the parts of a hub's response

    for name in ("hf_hub_download", "snapshot_download"):
        monkeypatch.setattr(huggingface_hub, name, refused)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (errors.GatedRepoError, f"co/{NAME}, then run `hf auth login`"),
        (errors.RepositoryNotFoundError, "on the hub it is private or missing"),
        (errors.RevisionNotFoundError, "no revision 'main2' on the hub"),
        (errors.HFValidationError, "no model name of the hub"),
        (errors.LocalEntryNotFoundError, "set SPECLAB_MODELS"),
        (ConnectionError, "without a network"),
    ],
)
def test_an_error_of_the_hub_says_what_to_do(kind, words, monkeypatch):
    refusing(monkeypatch, kind)
    spec = ModelSpec(NAME, revision="main2")
    for ask in (hub.snapshot, hub.config, ModelFolder.fetched):
        with pytest.raises(hub.ModelsMissing, match=NAME) as caught:
            ask(spec)
        assert words in str(caught.value)


def test_how_much_is_fetched_is_said_first(capsys, monkeypatch, made_up):
    assert hub.size(ModelSpec(NAME)) == 3_000_001_000, "pickled weights are not fetched"
    hub.snapshot(ModelSpec(NAME), shows=True)
    assert f"downloading {NAME}: 3.00 GB" in capsys.readouterr().err and NAME in made_up
    made_up.clear()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1e9))
    with pytest.raises(ValueError, match=r"1\.00 GB free, and 3\.00 GB are needed; make room"):
        hub.snapshot(ModelSpec(NAME), shows=True)
    assert NAME not in made_up


def changes(**more):
    """Options of a verb that change the profile tiny."""
    return [f"--set={key}={value}" for key, value in (HUB_PAIR | more).items()]


def test_models_are_fetched_in_the_foreground_where_they_are_needed(made_up, tmp_path, capsys):
    assert main(["pair", "--profile", "tiny", *changes()]) == 0
    assert NAME in made_up
    few = {"prompts_per_domain": 1, "domains": "[code]", "max_prompt_tokens": 9, "device": "cpu"}
    out = tmp_path / "run"
    assert main(["record", "--profile=tiny", f"--out={out}", *changes(**few)]) == 0
    assert "downloading" in capsys.readouterr().err and (out / "manifest.json").is_file()
    made_up.clear()
    main(["pair", "--profile", "tiny"])
    main(["plan", "--profile", "tiny", "--notebook", "02", *changes()])
    assert made_up == []


def test_no_weights_are_fetched_of_a_model_that_cannot_be_used(made_up, monkeypatch, capsys):
    """Its config.json says so, and that is fetched first."""
    refused = CONFIG | {"model_type": "gemma2"}
    monkeypatch.setattr(ModelFolder, "config", refused)
    assert main(["pair", "--profile", "tiny", *changes()]) == 2
    assert f"target {NAME}" in (said := capsys.readouterr().err) and "softcapping" in said
    assert made_up == []


def test_the_doctor_fetches_settings_and_no_weights(made_up, random_folders, tmp_path, monkeypatch):
    settings = shutil.ignore_patterns("*.safetensors")
    folder = shutil.copytree(random_folders[0], tmp_path / "settings", ignore=settings)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: folder)
    monkeypatch.setattr("speclab.models.pairs.free_bytes", lambda _: 1e9)
    row = answer(
        "target", model, load_profile("tiny", HUB_PAIR | {"max_prompt_tokens": 9}), "target"
    )
    assert row.startswith(f"do  target: {NAME} will be downloaded from the hub, 3.00 GB")
    assert "1.0 GB are free on cpu\n    -> use another device" in row
    assert {*made_up} == {f"{NAME}/config.json"}


def test_a_model_is_in_the_cache_though_files_that_nobody_fetched_are_not(tmp_path, monkeypatch):
    """huggingface_hub 2.4 considers a folder without README.md incomplete, and gives its path."""
    incomplete, nowhere = (errors.LocalEntryNotFoundError("none") for _ in range(2))
    incomplete.snapshot_path = str(tmp_path)
    for error, place in ((incomplete, tmp_path), (nowhere, None)):
        monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=error))
        assert cached(NAME, None) == place


def test_a_stopped_download_is_no_whole_model(tmp_path, random_folders, monkeypatch):
    folder = shutil.copytree(random_folders[0], tmp_path / "part")
    monkeypatch.setattr("speclab.models.folder.cached", lambda *_: folder)
    assert ModelFolder.whole(ModelSpec(NAME)).path == folder
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(INDEX))
    assert ModelFolder.whole(ModelSpec(NAME)) is None


@pytest.mark.parametrize("form", ["one file", "index"])
def test_only_the_files_of_the_weights_are_fetched(tmp_path, monkeypatch, form):
    """Not the publisher's own form of the weights, nor an adapter."""
    facts = {"config.json": CONFIG, "tokenizer.json": {}}
    weights = ["model.safetensors"]
    if form == "index":
        facts["model.safetensors.index.json"] = INDEX
        weights = [*INDEX["weight_map"].values()]
    unwanted = ["consolidated.safetensors", "original/params.json", "original/model.safetensors"]
    unwanted += ["adapter_model.safetensors", "pytorch_model.bin"]
    names = [*facts, *weights, *unwanted]
    siblings = [SimpleNamespace(rfilename=name, size=7) for name in names]
    of_hub = SimpleNamespace(siblings=siblings)
    folder = tmp_path / "fetched"

    def hf_hub_download(_name, file, local_dir, **_):
        path = Path(local_dir, file)
        path.write_text(json.dumps(facts[file]))
        return path

    def snapshot_download(_name, allow_patterns, ignore_patterns, **_):
        kept = filter_repo_objects(
            names, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
        )
        for name in kept:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(json.dumps(facts.get(name)))
        return folder

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: of_hub)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert hub.size(ModelSpec(NAME)) == 7 * len([*facts, *weights])
    assert ModelFolder(hub.snapshot(ModelSpec(NAME))).has_weights
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {*facts, *weights}

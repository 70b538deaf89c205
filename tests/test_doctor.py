"""The doctor on made-up machines and broken folders, and once on this machine."""

import shutil
import sys

import pytest
import torch
from conftest import edit_json
from pretended import pretended

from speclab.__main__ import main
from speclab.cli import doctor
from speclab.cli.doctor import answer
from speclab.cli.hosted import satisfies
from speclab.models.folder import ModelFolder
from speclab.plain import ModelSpec
from speclab.study.profiles import ROOT, load_profile

TINY = load_profile("tiny", {"max_prompt_tokens": 64})


@pytest.fixture(autouse=True)
def no_hub(tmp_path, monkeypatch):
    """A machine without a hub, its cache, or variables of the kit."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("SPECLAB_MODELS", raising=False)


def row_of(**changes):
    """The row about the target of tiny, with these changes."""
    return answer("target", doctor.model, TINY.replace(**changes), "target")


@pytest.mark.parametrize(
    ("free", "words"),
    [(30e9, "ok  target: data/pairs/tiny/target on this machine, 15.7 MB"), (1e9, "4 bit or a s")],
)
def test_the_memory_of_a_device_is_compared_with_the_size_of_the_files(free, words, monkeypatch):
    monkeypatch.setattr("speclab.models.pairs.free_bytes", lambda _: free)
    row = row_of()
    assert words in row and row.startswith("ok" if free > 2e9 else "do")
    assert f"about 1.5 GB (a coarse estimate), {free / 1e9} GB are free on cpu" in row


def test_what_is_wrong_with_a_model_is_said_with_what_to_do(tmp_path, random_folders):
    assert "this machine has 0 GPUs\n    -> name another" in row_of(
        target=ModelSpec(TINY.target.path, device="cuda:0")
    )
    row = row_of(target=ModelSpec("no/model"))
    assert row.startswith("do") and "the hub does not provide it" in row
    assert "put the model under a folder and set SPECLAB_MODELS" in row
    # weights that are made here and are not yet
    folder = shutil.copytree(random_folders[0], tmp_path / "model")
    spec = ModelSpec(str(folder))
    assert row_of(target=spec).startswith(f"ok  target: {folder} on this machine")
    edit_json(folder / "adapter_config.json", peft_type="LORA")
    assert "holds an adapter" in row_of(target=spec)
    (folder / "adapter_config.json").unlink()
    shutil.copy(ROOT / load_profile("smollm").target.path / "source.json", folder)
    (folder / "model.safetensors").unlink()
    assert "-> `make pair PROFILE=" in row_of(target=spec)
    edit_json(folder / "config.json", dtype="auto")
    assert "dtype 'auto'" in row_of(target=spec)
    (folder / "config.json").write_text("{")
    assert "config.json is damaged" in row_of(target=spec)


def vocabularies_of(target, draft):
    """The row about the vocabularies of two folders."""
    specs = {"target": ModelSpec(str(target)), "draft": ModelSpec(str(draft))}
    return answer("vocabularies", doctor.shared_tokens, TINY.replace(**specs))


def test_what_two_models_share_is_said_without_weights(tmp_path, random_folders):
    pairs = ROOT / "data/pairs"
    tiny, smollm = pairs / "tiny/target", pairs / "smollm/target"
    padded = tmp_path / "padded"  # the same tokenizer, and more ids
    shutil.copytree(tiny, padded, ignore=shutil.ignore_patterns("*.safetensors"))
    edit_json(padded / "config.json", vocab_size=4200)
    assert vocabularies_of(padded, tiny) == "ok  vocabularies: both models share 4,096 ids"
    row = vocabularies_of(smollm, pairs / "smollm/head")
    assert row == "ok  vocabularies: a trained head has its target's"
    row = vocabularies_of(pairs / "qwen-coder/target", smollm)
    assert row.endswith("can propose 39,237 of the target's 151,936 tokens (two vocabularies)")
    row = vocabularies_of(smollm, random_folders[0])
    assert row.startswith("do  vocabularies: target and draft have different vocabularies, and the")
    assert row.endswith(
        "cannot be compared by their bytes\n    -> use a draft of the target's family"
    )


def test_packages_that_lack_or_are_too_old_are_said(monkeypatch):
    asked = ("torch>=99", "no-such-package", "torch>=2,<99")
    assert [satisfies(need) for need in asked] == [False, False, True]
    monkeypatch.setattr("speclab.cli.hosted.satisfies", lambda need: "scipy" not in need)
    row = answer("packages", doctor.packages)
    assert row.startswith("do  packages: missing or out of range: scipy>=")
    assert row.endswith("-> run `python -m speclab hosted install`")


@pytest.mark.parametrize(
    ("trait", "package", "option"),
    [("quantised", "gptqmodel", "--gptq"), ("is_head", "speculators", "--heads")],
)
def test_a_library_that_a_model_needs_and_that_does_not_load_is_said(
    trait, package, option, monkeypatch
):
    monkeypatch.setattr(ModelFolder, trait, True)
    monkeypatch.setitem(sys.modules, package, None)
    assert option in answer("draft", doctor.model, TINY, "draft")


def test_a_full_disk_is_said(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9e9, 9e9, 5e8))
    assert answer("disk", doctor.disk).endswith("-> make room for runs")


def test_a_gpu_without_kernels_in_torch_is_named(monkeypatch):
    """As Kaggle's P100: torch's build for CUDA 12.8 has no kernels for it."""
    with pretended(1, (7, 5)):
        row = answer("cuda:0", doctor.gpu, "cuda:0")
    assert row == "ok  cuda:0: pretended, compute capability 7.5"

    def refused(*_, **__):
        raise RuntimeError("CUDA error: no kernel image is available")

    monkeypatch.setattr(torch, "ones", refused)
    with pretended(1, (6, 0)):
        row = answer("cuda:0", doctor.gpu, "cuda:0")
    assert row.startswith("do  cuda:0: pretended, compute capability 6.0, but this torch")
    assert "no kernel image" in row and "-> choose another GPU" in row


def test_the_real_look_at_this_machine(capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["doctor", "--profile", "tiny"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("\n\ntiny: ready\n") and "pip check has " in said
    rows = [line[:9] for line in said.splitlines()[:-2]]
    assert rows == ["ok  packa", "ok  targe", "ok  draft", "ok  vocab", "ok  disk:"]
    assert main(["doctor", "--profile", "tiny", "--set", "max_new_tokens=2000"]) == 1
    said = capsys.readouterr().out
    assert said.count("\ndo  ") == 2 and said.endswith("tiny: 2 to do\n")

"""The doctor on made-up machines and broken folders, and once on this machine."""

import json
import shutil

import pytest
import torch
from pretended import pretended

from speclab.__main__ import main
from speclab.cli import doctor
from speclab.cli.doctor import answered, examine
from speclab.cli.hosted import in_range
from speclab.plain import ModelSpec
from speclab.study.profiles import ROOT, Notes, load_profile

PAPER, T4, TINY = (load_profile(name) for name in ("paper", "t4", "tiny"))
SMOLLM = load_profile("smollm")
CPU = {"cpu": 30e9}
ONE = CPU | {"cuda:0": 15e9}
TWO = ONE | {"cuda:1": 15e9}


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    """A machine with every package, and without a hub, its cache, or variables of the kit."""
    monkeypatch.setattr("speclab.cli.hosted.in_range", lambda need: True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("speclab.models.hub.config", lambda spec: {})
    monkeypatch.setattr("speclab.models.hub.size", lambda spec: 3e9)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("speclab.study.runs.RUNS", tmp_path / "runs")
    for name in ("MODELS", "DATASETS", "TRACES"):
        monkeypatch.delenv(f"SPECLAB_{name}", raising=False)


def todo(profile, free=TWO, hub=True):
    """The lines that report a problem. The default machine has two T4s and can reach the hub."""
    return [line for line in examine(profile, free, hub) if line[:2] == "do"]


@pytest.mark.parametrize("name", ["t4", "paper", "qwen", "reasoning"])
def test_all_is_well_on_two_t4s(name):
    lines = list(examine(load_profile(name), TWO, True))
    assert {line[:4] for line in lines} == {"ok  "}
    if name == "paper":
        said = "at most 4.3 GB needed (a coarse estimate), 15.0 GB free"
        assert f"ok  memory of cuda:1: {said}" in lines
        assert "ok  data set openai/gsm8k: will be downloaded from the hub" in lines


@pytest.mark.parametrize(
    ("profile", "machine", "subject", "words"),
    [
        (PAPER, (ONE,), "memory of cuda:1", "--set device=cuda:0"),
        (T4, (CPU,), "memory of cuda:0", "turn a GPU on"),
        (T4, (TWO, False), T4.target.path, "attach it and set SPECLAB_MODELS"),
        (PAPER, (TWO, False), "openai/gsm8k", "attach it and set SPECLAB_DATASETS"),
        (T4, ({"cpu": 1e9, "cuda:0": 1e9},), "memory", "a smaller pair"),
    ],
)
def test_what_a_machine_lacks_is_said_with_what_to_do(profile, machine, subject, words):
    found = [line for line in todo(profile, *machine) if subject in line]
    assert found and words in found[0].partition("->")[2]


def test_packages_that_lack_or_are_too_old_are_said(monkeypatch):
    asked = ("torch>=99", "no-such-package", "torch>=2,<99")
    assert [in_range(need) for need in asked] == [False, False, True]
    monkeypatch.setattr("speclab.cli.hosted.in_range", lambda need: "gptqmodel" not in need)
    [line] = todo(PAPER)
    assert line.startswith("do  packages") and "-> run `python -m speclab hosted" in line
    assert "gptqmodel>=" in line and "install --gptq`" in line
    assert todo(TINY, CPU) == [], "only a quantised pair needs it"


def test_what_is_broken_of_a_model_is_said(tmp_path, random_folders):
    folder = shutil.copytree(random_folders[0], tmp_path / "model")
    asked = "model", doctor.model, ModelSpec(str(folder)), True
    assert answered(*asked).startswith("ok  model: on this machine")
    for name in ("config.json", "source.json"):
        shutil.copy(ROOT / SMOLLM.target.path / name, folder)
    (folder / "model.safetensors").unlink()
    assert "-> `make pair PROFILE=" in answered(*asked)


@pytest.mark.parametrize(
    "odd", [{"vocab_size": "x"}, {"num_attention_heads": 0}, {"hidden_size": None}]
)
def test_an_odd_config_in_the_notes_is_a_line(odd, random_folders):
    """One in a folder: test_architectures."""
    config = json.loads((random_folders[0] / "config.json").read_text()) | odd
    odd_pair = TINY.replace(target=ModelSpec("no/model"), notes=Notes(target_config=config))
    assert "memory: unknown" in "\n".join(examine(odd_pair, CPU, True))


def test_runs_are_looked_for_where_they_are_read(tmp_path, monkeypatch):
    """smollm's traces are read with and without its weights; tiny records two kinds itself."""
    assert ": greedy, sampled, " in doctor.recorded(SMOLLM)
    assert "greedy" not in doctor.recorded(TINY)
    assert doctor.recorded(PAPER) == doctor.UNKNOWN
    traces = shutil.copytree(ROOT / "data" / "traces" / "tiny", tmp_path / "traces")
    monkeypatch.setenv("SPECLAB_TRACES", str(traces))
    with (traces / "sampled" / "nodes.parquet").open("ab") as spoiled:
        spoiled.write(b"x")
    line = answered("runs", doctor.recorded, TINY)
    assert line.startswith("do") and "nodes.parquet is damaged" in line


def test_a_gpu_without_kernels_in_torch_is_named(monkeypatch):
    """As Kaggle's P100: torch's build for CUDA 12.8 has no kernels for it."""
    with pretended(1, (7, 5)):
        line = answered("GPU cuda:0", doctor.gpu, "cuda:0")
    assert line == "ok  GPU cuda:0: pretended, compute capability 7.5, 15.0 GB"

    def refused(*_, **__):
        raise RuntimeError("CUDA error: no kernel image is available")

    monkeypatch.setattr(torch, "ones", refused)
    with pretended(1, (6, 0)):
        line = answered("GPU cuda:0", doctor.gpu, "cuda:0")
    assert line.startswith("do  GPU cuda:0: pretended, compute capability 6.0, but this torch")
    assert "no kernel image" in line and "-> choose another GPU" in line


def test_the_memory_that_loading_takes_is_said():
    little = TWO | {"cpu": 3e9}
    [line] = todo(T4, little)
    assert line.startswith(
        "do  memory to load the models: at most 3.9 GB needed (a coarse estimate), 3.0 GB free"
    )
    assert not any("memory to load" in line for line in examine(TINY, CPU, True))


def test_the_real_look_at_this_machine(capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["doctor", "--profile", "tiny"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("tiny: ready\n")
    for subject in ("packages", "tokenizers", "prompts", "runs", "memory"):
        assert f"\nok  {subject}" in f"\n{said}"
    asked = ["--set", "domains=[maths]"]
    assert main(["doctor", "--profile", "tiny", *asked]) == 1
    assert "do  prompts: " in capsys.readouterr().out

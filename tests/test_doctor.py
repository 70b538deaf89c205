"""The doctor: mistakes on machines that are made up and in folders that are broken, and one real
look at this one.
"""

import dataclasses
import json
import shutil
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from safetensors.numpy import save_file

from speclab.__main__ import main
from speclab.ops import doctor
from speclab.ops.doctor import Line, Machine, check_model, check_runs, examine
from speclab.ops.plan import Speed
from speclab.profiles import ROOT, ModelSpec, load_profile
from speclab.prompts import HUB_SETS

PAPER, T4, TINY = (load_profile(name) for name in ("paper", "t4", "tiny"))
SMOLLM = load_profile("smollm")
VERSIONS = {}  # of packages that are here in another version; None: not at all
GIGA = 10**9


def version(name):
    """The lowest version that pyproject.toml allows, of every package, but for VERSIONS."""
    have = VERSIONS.get(name, LOWEST[name])
    if have is None:
        raise doctor.metadata.PackageNotFoundError(name)
    return have


def lowest():
    project = doctor.tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["gptq"]]
    found = {}
    for need in map(Requirement, needs):
        [found[need.name]] = [s.version for s in need.specifier if s.operator == ">="]
    return found


LOWEST = lowest()


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    """A machine with every package, and without a hub, its cache, or variables of the kit."""
    monkeypatch.setattr(doctor.metadata, "version", version)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("speclab.runs.RUNS", tmp_path / "runs")
    for name in ("MODELS", "DATASETS", "TRACES"):
        monkeypatch.delenv(f"SPECLAB_{name}", raising=False)


def kaggle(**changes):
    """Two T4s and the hub in reach."""
    free = {"cpu": 30 * GIGA, "cuda:0": 15 * GIGA, "cuda:1": 15 * GIGA}
    machine = Machine(free, ("Tesla T4", "Tesla T4"), 60 * GIGA, True, None)
    return dataclasses.replace(machine, **changes)


ONE_GPU = {"gpus": ("Tesla T4",), "free": {"cpu": 30 * GIGA, "cuda:0": 15 * GIGA}}
NO_GPU = {"gpus": (), "free": {"cpu": 30 * GIGA}, "speed": Speed(30e9, 8e9, 2e-4)}


def todo(profile, **changes):
    """(subject, what to do) of the lines that are not well."""
    lines = examine(profile, kaggle(**changes))
    return [(line.subject, line.do) for line in lines if line.do]


# ---- machines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t4", "paper", "qwen", "reasoning", "small"])
def test_all_is_well_on_two_t4s(name):
    assert todo(load_profile(name)) == []


def test_the_page_says_what_will_happen():
    found = {line.subject: line.text for line in examine(PAPER, kaggle())}
    assert "4-bit kernel: triton" in found["target on cuda:0"]
    assert found["disk"] == "7.1 GB needed, 60.0 GB free"  # 3.9 + 2.2, 1 to spare
    assert found["memory of cuda:1"] == "3.0 GB needed, 15.0 GB free"
    assert found["minutes"].endswith("a T4's usual speed")
    assert found["data set openai/gsm8k"] == "will be fetched from the hub"
    found = {line.subject: line.text for line in examine(SMOLLM, kaggle(**NO_GPU))}
    low, _, high, *_ = found["minutes"].split()
    assert 5 < float(low) < float(high) < 60, "30 GFLOP/s, 200 prompts: a quarter hour"


@pytest.mark.parametrize(
    ("profile", "changes", "subject", "words"),
    [
        (PAPER, ONE_GPU, "draft on cuda:1", "--set device=cuda:0"),
        (T4, NO_GPU, "target on cuda:0", "turn a GPU on"),
        (T4, {"hub": False}, T4.target.path, "attach it and set SPECLAB_MODELS"),
        (PAPER, {"hub": False}, "openai/gsm8k", "attach it and set SPECLAB_DATASETS"),
        (PAPER, {"disk_bytes": 6 * GIGA}, "disk", "set HF_HOME"),
        (
            T4,
            {"free": dict.fromkeys(("cuda:0", "cpu"), GIGA)},
            "memory",
            "a smaller pair",
        ),
        (
            load_profile("small", {"dtype": "float16", "device": "cpu"}),
            {},
            "draft on cpu",
            "--set dtype=float32",
        ),
        (
            load_profile("t4", {"device": "cpu", "dtype": "float32"}),
            {},
            "target on cpu",
            "triton needs a GPU: --set backend=torch",
        ),
    ],
)
def test_what_a_machine_lacks_is_said_with_what_to_do(profile, changes, subject, words):
    found = [do for name, do in todo(profile, **changes) if subject in name]
    assert found and words in found[0], todo(profile, **changes)


def test_a_kernel_that_cannot_be_compiled_is_said(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    [(subject, do)] = todo(load_profile("t4", {"backend": "auto"}))
    assert subject == "target on cuda:0" and "--set backend=triton" in do


@pytest.mark.parametrize(("name", "have"), [("torch", "2.5.1"), ("gptqmodel", None)])
def test_a_package_that_lacks_or_is_too_old_is_said(name, have, monkeypatch):
    monkeypatch.setitem(VERSIONS, name, have)
    [(subject, do)] = todo(PAPER)
    assert subject == name and do.startswith(f"pip install '{name}")


def test_data_sets_are_looked_for_in_the_mirror_alone(tmp_path, monkeypatch):
    for hub_set in list(HUB_SETS.values())[1:]:
        (tmp_path / hub_set.name).mkdir(parents=True)
    monkeypatch.setenv("SPECLAB_DATASETS", str(tmp_path))
    [(subject, _)] = todo(PAPER)
    assert subject == f"data set {next(iter(HUB_SETS.values())).name}"


# ---- models, prompts, runs -----------------------------------------------------------------------


def of_folder(folder):
    """The line of a target in a folder."""
    profile = TINY.replace(target=ModelSpec(str(folder)))
    return check_model(profile, "target", kaggle())


def test_models_are_found_where_the_loader_finds_them(tmp_path, monkeypatch):
    spec = ModelSpec("owner/name", revision="0" * 40)
    assert doctor.folder_of(spec) is None
    snapshot = tmp_path / "hub" / "models--owner--name" / "snapshots" / spec.revision
    snapshot.mkdir(parents=True)
    assert doctor.folder_of(spec) == snapshot
    folder = tmp_path / "attached" / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "quantize_config.json").write_text('{"bits": 4}')
    monkeypatch.setenv("SPECLAB_MODELS", str(tmp_path / "attached"))
    assert doctor.folder_of(spec) == folder
    config = doctor.config_of(TINY.replace(target=spec), "target")
    assert config == {"model_type": "llama", "quantization_config": {"bits": 4}}


def test_what_is_broken_of_a_model_is_said(tmp_path, random_folders):
    folder = shutil.copytree(random_folders[0], tmp_path / "model")
    weights, index = (
        folder / "model.safetensors",
        folder / "model.safetensors.index.json",
    )
    assert not of_folder(folder).do
    index.write_text('{"weight_map": {"x": "model.safetensors", "y": "second"}}')
    assert "fetch the model again" in of_folder(folder).do, "a shard is missing"
    save_file({}, folder / "second")
    assert not of_folder(folder).do
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert "damaged or cut" in of_folder(folder).text
    weights.write_bytes(whole)
    for name, words in (("config.json", "no-such"), ("tokenizer.json", "not JSON")):
        text = (folder / name).read_text()
        (folder / name).write_text(
            '{"model_type": "no-such"}' if "conf" in name else "["
        )
        assert words in of_folder(folder).text and of_folder(folder).do
        (folder / name).write_text(text)


def test_weights_that_are_yet_to_be_made_say_make_pair(tmp_path):
    for name in ("config.json", "source.json"):
        shutil.copy(ROOT / SMOLLM.target.path / name, tmp_path)
    assert of_folder(tmp_path).do == "make pair PROFILE=tiny"
    (tmp_path / "source.json").write_text('{"weights": 5}')
    assert "does not say where weights come from" in of_folder(tmp_path).text


def test_a_config_that_cannot_be_planned_with_still_ends_with_lines():
    changed = T4.notes["target_config"] | {"model_type": "gpt2"}
    notes = T4.notes | {"target_config": changed}
    for other, words in ((notes, "model_type='gpt2'"), ({}, "config.json is not here")):
        lines = examine(T4.replace(notes=other), kaggle())
        assert words in lines[-1].text and not lines[-1].do


def test_tokenizers_that_differ_are_said(tmp_path, random_folders):
    """All was well to the doctor; the loader refuses them."""
    draft = shutil.copytree(random_folders[1], tmp_path / "draft")
    pair = {"target": ModelSpec(str(random_folders[0]))}
    same = TINY.replace(**pair, draft=ModelSpec(str(draft)))
    assert todo(same, **NO_GPU) == []
    file = draft / "tokenizer.json"
    settings = json.loads(file.read_text())
    words = settings["model"]["vocab"]
    words["a"], words["b"] = words["b"], words["a"]
    file.write_text(json.dumps(settings))
    [(subject, do)] = todo(same, **NO_GPU)
    assert subject == "tokenizers" and "draft of the target's family" in do


@pytest.mark.parametrize("place", ["runs", "figures"])
def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch, place):
    """All was well to the doctor; the first block, or figure, failed."""
    file = tmp_path / "a-file"
    file.touch()
    gone = tmp_path / "link"
    gone.symlink_to(tmp_path / "a-disk-that-is-not-mounted")
    for bad in (file / place, gone):
        monkeypatch.setattr("speclab.runs.RUNS", tmp_path / "runs")
        monkeypatch.setattr(doctor, "FIGURES", tmp_path / "figures")
        if place == "runs":
            monkeypatch.setattr("speclab.runs.RUNS", bad)
        else:
            monkeypatch.setattr(doctor, "FIGURES", bad)
        [line] = [line for line in doctor.check_writable() if line.do]
        assert line.subject == bad.name and f"cannot write {bad}" in line.text
    assert not (tmp_path / "runs").exists(), "nothing is made"


def test_broken_prompts_and_too_many_are_said(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt_id": "a", "domain": "code", "prompt": "x"}\n{"promp')
    for change, words in (
        ({"prompts": str(path)}, f"{path}, line 2: not valid JSON"),
        ({"prompts_per_domain": 100_000}, "domain code has 50, asked for 100000"),
    ):
        lines = examine(TINY.replace(**change), kaggle(**NO_GPU))
        [line] = [line for line in lines if line.do]
        assert line.subject == "prompts" and words in line.text


def test_runs_are_looked_for_where_they_are_read(tmp_path, monkeypatch):
    """smollm's traces are read with and without its weights; tiny records two kinds itself."""
    prompts = doctor.runs.profile_prompts(SMOLLM)
    [line] = check_runs(SMOLLM, prompts)
    assert line.subject == "runs read without the models" and "greedy, " in line.text
    _, line = check_runs(TINY, prompts)
    assert line == Line("runs to be recorded", "greedy, sampled")
    traces = shutil.copytree(ROOT / "data" / "traces" / "tiny", tmp_path / "traces")
    monkeypatch.setenv("SPECLAB_TRACES", str(traces))
    with (traces / "sampled" / "nodes.parquet").open("ab") as spoiled:
        spoiled.write(b"x")
    damaged, _ = check_runs(TINY, prompts)
    assert (
        damaged.subject == "run sampled" and "nodes.parquet is damaged" in damaged.text
    )
    for profile, known in ((TINY, []), (load_profile("reasoning"), prompts)):
        [line] = check_runs(profile, known)
        assert "not known" in line.text


# ---- packages and the repository that are missing ------------------------------------------------

WITHOUT = """
import importlib.metadata, runpy, sys

missing = sys.argv[1]


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def version(name, real=importlib.metadata.version):
    if name == missing:
        raise importlib.metadata.PackageNotFoundError(name)
    return real(name)


sys.meta_path.insert(0, Missing())
importlib.metadata.version = version
sys.argv[:] = ["speclab", *sys.argv[2:]]
runpy.run_module("speclab", run_name="__main__", alter_sys=True)
"""


def python_without(package, *arguments):
    """The command line in a Python without a package."""
    command = [sys.executable, "-c", WITHOUT, package, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize("package", ["psutil", "click", "pydantic"])
def test_a_missing_package_is_named_by_a_line(package):
    done = python_without(package, "doctor")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"pip install '{package}" in done.stdout


def test_any_verb_without_a_package_says_to_ask_the_doctor():
    done = python_without("psutil", "record", "--out", "/no/such/folder")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "`python -m speclab doctor`" in done.stderr


def test_the_package_alone_says_that_the_repository_is_needed(tmp_path):
    """As `pip install --target` leaves it."""
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "speclab", tmp_path / "speclab", ignore=leave)
    program = """
from speclab.__main__ import main
for verb in ("record", "doctor", "reproduce", "authors", "hosted restore"):
    assert main(verb.split()) == 2
assert main(["--help"]) == 0
"""
    command = [sys.executable, "-B", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    lines = done.stderr.splitlines()
    assert done.returncode == 0 and len(lines) == 5, done.stderr
    assert all(f"{tmp_path} holds the package alone; " in line for line in lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["speclab"]


# ---- the real look -------------------------------------------------------------------------------


def test_the_tiny_profile_is_well_on_this_machine(capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["doctor", "--profile", "tiny"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("tiny: all is well\n")
    for subject in ("Python", "tokenizers", "prompts", "disk", "memory", "minutes"):
        assert f"\nok  {subject}" in f"\n{said}"


def test_exit_status_and_bad_profiles(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "probe", lambda profile: kaggle(disk_bytes=0))
    assert main(["doctor", "--profile", "t4"]) == 1
    said = capsys.readouterr().out
    assert "do  disk: " in said and "\n    -> " in said and "t4: 1 to do" in said
    assert main(["doctor", "--profile", "t5"]) == 2
    assert "did you mean 't4'" in capsys.readouterr().err

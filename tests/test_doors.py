"""Every door of the kit, tried with what does not fit: exit status 2 and one line that names what
came, no traceback, no model loaded, nothing written.

A row stands for a kind of mistake: a command, and a word of the line that is said.
"""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from conftest import save_random_llama

from data.routing import prepare
from speclab import runs, traces
from speclab.__main__ import cli, main
from speclab.models import pairs
from speclab.ops import hosted, pair, reproduce
from speclab.profiles import ROOT, load_profile, parse_overrides
from speclab.show import notebook

FEW = "prompts_per_domain=1 domains=[code] max_new_tokens=4"
PROMPT = '{"prompt_id": "a", "domain": "code", "prompt": "def f():"}\n'
PROFILE = """\
target: {path: data/pairs/tiny/target}
draft: {path: data/pairs/tiny/draft}
prompts_per_domain: 1
domains: [code]
max_prompt_tokens: 64
max_new_tokens: 4
"""


def half(content: bytes) -> bytes:
    """The first half of a file."""
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    """A file with one bit of its middle byte turned."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


def field(name: str, value: object) -> Callable[[bytes], bytes]:
    """A JSON file with one field changed."""
    return lambda content: json.dumps(json.loads(content) | {name: value}).encode()


def damage(path: Path, recipe: Callable | None) -> None:
    """Change a file by a recipe; None takes it away."""
    if recipe is None:
        path.unlink()
    else:
        path.write_bytes(recipe(path.read_bytes()))


def contents(folder: Path) -> dict[Path, bytes | None]:
    """The files and folders below a folder."""
    paths = folder.rglob("*")
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


@pytest.fixture
def refused(place, capsys):
    """Asserts that a command ends with status 2 and one line that has a word in it, and that
    nothing is written.
    """

    def check(command: str, word: str) -> None:
        before = contents(place)
        assert main(shlex.split(command)) == 2
        said = capsys.readouterr().err
        assert said.startswith("speclab: ") and said.count("\n") == 1
        assert word in said
        assert contents(place) == before

    return check


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with a right profile and right prompts, where recordings go too; no variable
    of the kit is set, no hub is asked, and work that begins (a network, a notebook) is a failure.
    """

    def begun(*_, **__):
        raise AssertionError("work begins before what was given is checked")

    for loader in ("_load_plain", "_load_trimmed", "_load_quantised"):
        monkeypatch.setattr(pairs, loader, begun)
    monkeypatch.setattr(reproduce, "execute", begun)
    for name in ("TRACES", "DATASETS", "MODELS", "OUT", "REPO", "AUTHOR_RECORDS"):
        monkeypatch.delenv(f"SPECLAB_{name}", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(runs, "RUNS", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profile.yaml").write_text(PROFILE)
    (tmp_path / "prompts.jsonl").write_text(PROMPT)
    (tmp_path / "results.jsonl").write_text('{"prompt_id": "z"}\n')
    (tmp_path / "empty").mkdir()
    shutil.copy(ROOT / "figures/smollm/09_policy.json", tmp_path / "policy.json")
    return tmp_path


# ---- the command line ----------------------------------------------------------------------------

DECODE = "decode --profile profile.yaml --prompts prompts.jsonl --out new.jsonl"
WARM = "--rule rejection --temperature 1"
RECORD = "record --profile profile.yaml --out new"
REPRODUCE = "reproduce --out new"
KAGGLE = "hosted kaggle --out new --notebook 02 --user a"
REPO = "--repo https://x/y"


# fmt: off
COMMANDS = [
    ("", "Missing command"),
    ("nonsense", "nonsense"),
    ("doctor --nonsense", "--nonsense"),
    ("doctor tiny", "tiny"),
    ("decode --out new", "--prompts"),
    ("metrics ''", "'RUN'"),
    ("doctor --profile tyni", "did you mean 'tiny'"),
    ("doctor --profile nowhere.yaml", "nowhere.yaml"),
    ("authors --base foo --out new", "foo"),
    ("hosted restore nowhere", "nowhere"),
    ("hosted keep prompts.jsonl", "prompts.jsonl"),
    # changes of a profile
    (f"{DECODE} --set max_new_token=3", "did you mean 'max_new_tokens'"),
    (f"{DECODE} --set target.pathh=3", "did you mean 'path'"),
    (f"{DECODE} --set max_new_tokens", "max_new_tokens"),
    (f"{DECODE} --set seed=3 seed=4", "seed"),
    (f"{DECODE} --set seed=3 --seed 3", "seed"),
    (f"{DECODE} --set seed=[1", "seed=[1"),
    (f"{DECODE} --set max_new_tokens=0", "max_new_tokens=0"),
    (f"{DECODE} --set target=", "path=None"),
    (f"{DECODE} --set device=cuda:99", "cuda:99"),
    (f"{DECODE} --set depth=5", "depth"),
    # decoding
    (f"{DECODE} --seed -1", "seed=-1"),
    (f"{DECODE} --seed 1.5", "1.5"),
    (f"{DECODE} --rule rejection --temperature 1e-5", "temperature=1e-05"),
    (f"{DECODE} --rule rejection --temperature nan", "temperature="),
    (f"{DECODE} --temperature 0.7", "greedy"),
    (f"{DECODE} --rule rejection", "rejection"),
    (f"{DECODE} --rule GREEDY", "GREEDY"),
    (f"{DECODE} {WARM} --shape tree:3,2,8", "tree"),
    (f"{DECODE} {WARM} --check", "--check"),
    (f"{DECODE} --shape chain", "chain"),
    (f"{DECODE} --shape chain:0", "gamma=0"),
    (f"{DECODE} --shape tree:9,9", "budget"),
    (f"{DECODE} --policy policy.json --shape plain", "--shape"),
    (f"{DECODE} --policy policy.json", "another pair"),
    (f"{DECODE} --prompts nowhere.jsonl", "nowhere.jsonl"),
    (f"{DECODE} --prompts empty", "empty"),
    (f"{DECODE} --out ''", "--out"),
    (f"{DECODE} --out empty", "empty"),
    (f"{DECODE} --out prompts.jsonl/x", "prompts.jsonl/x"),
    (f"{DECODE} --out empty/../prompts.jsonl", "prompts.jsonl"),
    (f"{DECODE} --out profile.yaml", "profile.yaml"),
    (f"{DECODE} --out results.jsonl", "--force"),
    # recording
    (f"{RECORD} --kind greddy", "greddy"),
    (f"{RECORD} --kind sampled --set temperature=0.5", "temperature"),
    (f"{RECORD} --engine spark", "spark"),
    (f"{RECORD} --devices cpu:x", "cpu:x"),
    (f"{RECORD} --workers 2", "--workers"),
    (f"{RECORD} --set name=../../x", "name='../../x'"),
    (f"{RECORD} --set budget=65536", "budget=65536"),
    (f"{RECORD} --set prompts_per_domain=51", "51"),
    (f"{RECORD} --out prompts.jsonl", "prompts.jsonl"),
    # notebooks
    (f"{REPRODUCE} --notebook 99", "99"),
    (f"{REPRODUCE} --parameter gama=3", "did you mean 'gamma'"),
    (f"{REPRODUCE} --parameter gammas=3", "gammas"),
    (f"{REPRODUCE} --notebook 00 --parameter gammas=[1]", "gammas"),
    (f"{REPRODUCE} --set gama=3", "gama"),
    ("hosted kaggle --notebook 02 --user a", "--repo"),
    (f"{KAGGLE} {REPO} --no-internet", "--no-internet"),
    (f"{KAGGLE} {REPO} --notebook 99", "99"),
    (f"{KAGGLE} {REPO} --model a/b", "a/b"),
]
# fmt: on


@pytest.mark.parametrize(("command", "word"), COMMANDS)
def test_the_command_line(command, word, refused):
    refused(command, word)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (PROFILE + "gama: 3", "did you mean"),
        (PROFILE + "seed: 1\nseed: 2", "'seed' comes twice"),
        (PROFILE + "seed: 1:30", "seed='1:30'"),
        (PROFILE + "name: ../../..", "name='../../..'"),
        (PROFILE + "notes: !!python/object/apply:os.getcwd []", "not valid YAML"),
        ("target: x", "`target` and `draft`"),
        (PROFILE.replace("{path: data/pairs/tiny/draft}", "{}"), "path"),
    ],
)
def test_a_profile(content, word, place, refused):
    (place / "profile.yaml").write_text(content)
    refused(RECORD, word)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("\n", "prompts.jsonl"),
        (PROMPT + PROMPT[:20], "line 2"),
        (PROMPT * 2, "'a' is taken"),
        (PROMPT.replace("code", "maths"), "maths"),
    ],
)
def test_a_file_of_prompts(content, word, place, refused):
    (place / "prompts.jsonl").write_text(content)
    refused(DECODE, word)


# ---- runs, traces, policies ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with a `run` of the tiny pair, one prompt, and the `trace` packed of it."""
    folder = tmp_path_factory.mktemp("recorded")
    profile = load_profile("tiny", parse_overrides([*FEW.split(), "device=cpu"]))
    run = runs.record_run(profile, folder / "run", progress=iter)
    traces.pack(run, folder / "trace", "greedy", "free")
    return folder


PACK = "pack run --licence free --out new"
AGAIN = f"record --profile tiny --set {FEW} device=cpu --out run"


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("metrics nowhere", "nowhere"),
        ("metrics run --shape plain", "plain"),
        ("metrics run --rule rejection", "rejection"),
        ("explore run run --out new.html", "greedy"),
        ("explore run --out prompts.jsonl", "prompts.jsonl"),
        (PACK, "--kind"),
        (f"{PACK} --kind chain", "depth=8"),
        ("pack run --kind greedy --out new", "--licence"),
        (f"{PACK} --kind greedy --out run", "run"),
        (f"{AGAIN} --set seed=7", "other settings"),
    ],
)
def test_verbs_of_runs(command, word, recorded, place, refused):
    shutil.copytree(recorded / "run", place / "run")
    refused(command, word)


@pytest.mark.parametrize(
    ("command", "file", "recipe"),
    [
        ("metrics run", "manifest.json", None),
        ("metrics run", "manifest.json", half),
        ("metrics run", "manifest.json", lambda _: b"null"),
        ("metrics run", "manifest.json", field("schema", 2)),
        ("metrics run", "trace.parquet", None),
        ("metrics run", "trace.parquet", flipped),
        (f"{PACK} --kind greedy", "nodes.parquet", half),
        (AGAIN, "settings.json", half),
    ],
)
def test_a_damaged_run(command, file, recipe, recorded, place, refused):
    shutil.copytree(recorded / "run", place / "run")
    damage(place / "run" / file, recipe)
    refused(command, file)


@pytest.mark.parametrize(
    ("file", "recipe"),
    [
        ("manifest.json", half),
        ("trace.parquet", None),
        ("trace.parquet", flipped),
        ("nodes.parquet", flipped),
    ],
)
def test_a_damaged_trace(file, recipe, recorded, place, refused, monkeypatch):
    shutil.copytree(recorded / "trace", place / "traces" / "greedy")
    damage(place / "traces" / "greedy" / file, recipe)
    monkeypatch.setenv("SPECLAB_TRACES", "traces")
    refused(f"record --profile tiny --set {FEW} device=cpu", file)


@pytest.mark.parametrize(
    ("recipe", "word"),
    [
        (half, "policy.json"),
        (field("gama", 3), "gama"),
        (field("default", "chain:99"), "gamma=99"),
        (field("domains", {"maths": "plain"}), "maths"),
        (field("costs", {"c": float("nan")}), "NaN"),
        (field("pair", {}), "another pair"),
    ],
)
def test_a_policy(recipe, word, place, refused):
    damage(place / "policy.json", recipe)
    refused(f"{DECODE} --policy policy.json", word)


# ---- models and the machine ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a random `target` and `draft`."""
    folder = tmp_path_factory.mktemp("models")
    save_random_llama(folder / "target", 1)
    save_random_llama(folder / "draft", 2, layers=1, kv_heads=1)
    return folder


@pytest.fixture
def with_models(models, place):
    """The working folder with a random pair that its profile names."""
    shutil.copytree(models, place, dirs_exist_ok=True)
    lines = [f"{m}: {{path: {place / m}, device: cpu}}" for m in ("target", "draft")]
    rest = PROFILE.splitlines()[2:]
    (place / "profile.yaml").write_text("\n".join([*lines, *rest]))
    return place


@pytest.mark.parametrize(
    ("file", "recipe", "word"),
    [
        ("config.json", None, "config.json"),
        ("config.json", half, "config.json"),
        ("config.json", field("model_type", "nonsense"), "nonsense"),
        ("config.json", field("hidden_size", 33), "target"),
        ("config.json", field("num_hidden_layers", 3), "weights are missing"),
        ("config.json", field("num_hidden_layers", 1), "layers.1"),
        ("config.json", field("max_position_embeddings", 4), "4 positions"),
        ("tokenizer.json", half, "tokenizer"),
        ("model.safetensors", None, "safetensors"),
        ("model.safetensors", half, "target"),
        ("model.safetensors", lambda b: b[:-4096] + b"\xff" * 4096, "target"),
    ],
)
def test_a_model_folder(file, recipe, word, with_models, refused, monkeypatch):
    monkeypatch.undo()
    monkeypatch.chdir(with_models)
    damage(with_models / "target" / file, recipe)
    refused(DECODE, word)


@pytest.mark.parametrize(
    ("command", "recipe"),
    [
        ("pair --profile profile.yaml", half),
        ("pair --profile profile.yaml", field("weights", {"../x": {"bytes": 1}})),
        (RECORD, field("weights", None)),
    ],
)
def test_the_source_of_weights(command, recipe, with_models, refused, monkeypatch):
    monkeypatch.setattr(pair, "_download", lambda _: pytest.fail("it is fetched"))
    target = with_models / "target"
    (target / "model.safetensors").unlink()
    shutil.copy(ROOT / "data/pairs/smollm/target/source.json", target)
    damage(target / "source.json", recipe)
    refused(command, "source.json")


@pytest.mark.parametrize(
    ("variable", "value", "command"),
    [
        ("SPECLAB_TRACES", "nowhere", f"record --profile tiny --set {FEW}"),
        ("SPECLAB_DATASETS", "nowhere", "record --set prompts=paper --out new"),
        ("SPECLAB_MODELS", "nowhere", "record --set target.path=a/b --out new"),
        ("OMP_NUM_THREADS", "0", REPRODUCE),
        ("RAY_ADDRESS", "nonsense", "record --engine ray --out new"),
    ],
)
def test_the_environment(variable, value, command, refused, monkeypatch):
    monkeypatch.setenv(variable, value)
    refused(command, variable)


def test_out_that_is_a_file_is_refused_as_a_notebook_starts(place, monkeypatch):
    monkeypatch.setenv("SPECLAB_OUT", "prompts.jsonl")
    with pytest.raises(ValueError, match="SPECLAB_OUT"):
        notebook.start("02_gamma_sweep", "tiny")


# ---- the one line --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        (ValueError("one\n  two"), 2, "speclab: one two\n"),
        (MemoryError(), 2, "MemoryError"),
        (runs.RunError("record it"), 2, "record it"),
        (ModuleNotFoundError("No module named 'psutil'"), 2, "'psutil'"),
        (click.Abort(), 130, "goes on from there"),
    ],
)
def test_how_a_verb_ends(error, status, word, monkeypatch, capsys):
    def raised(*_, **__):
        raise error

    monkeypatch.setattr(cli, "main", raised)
    assert main(["doctor"]) == status
    said = capsys.readouterr().err
    assert word in said and said.count("\n") == 1


def test_a_mistake_of_ours_is_no_line(monkeypatch):
    def raised(*_, **__):
        raise RuntimeError("shape mismatch")

    monkeypatch.setattr(cli, "main", raised)
    with pytest.raises(RuntimeError):
        main(["doctor"])


def python(*arguments: str) -> subprocess.CompletedProcess:
    """A Python of its own in the repository's folder."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_who_runs_without_the_environment_reads_one_line():
    done = python(
        "-c", "import sys; sys.modules['click'] = None; import speclab.__main__"
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "click" in done.stderr and "make env" in done.stderr


def test_without_its_checks_nothing_starts():
    done = python("-O", "-c", "import speclab")
    assert done.returncode == 1 and "PYTHONOPTIMIZE" in done.stderr
    assert python("-c", "import speclab").returncode == 0


# ---- Kaggle, Colab and the router's data ---------------------------------------------------------


def test_keep_refuses_its_own_folder(tmp_path):
    folder = tmp_path / "runs"
    (folder / "one").mkdir(parents=True)
    for inside in (folder, folder / "one"):
        with pytest.raises(ValueError, match="data/runs"):
            hosted.keep(inside, folder)


def test_keep_takes_trained_drafts_along(tmp_path):
    folder, drive = tmp_path / "runs", tmp_path / "drive"
    names = ["drafts/recorded/settings.json", "drafts/trained/facts.json"]
    for name in names:
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("{}")
    hosted.keep(drive, folder)
    found = sorted(p.relative_to(drive).as_posix() for p in drive.rglob("*.json"))
    assert found == names and folder.resolve() == drive


def test_the_router_names_text_that_is_not_there(tmp_path, capsys):
    places = ["--data", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]
    assert prepare.main(places) == 2
    assert capsys.readouterr().err.startswith("speclab: ")

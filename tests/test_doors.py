"""Every entry point of the kit with bad input: exit status 2 and one line that names the input, no
traceback, no model loaded, nothing written.

Each row is one kind of mistake: a command, and a word of the expected line.
"""

import shlex
import shutil
import subprocess
import sys
from unittest.mock import Mock

import click
import pytest
from conftest import contents
from test_faults import DAMAGES

from speclab import runs
from speclab.models import pairs
from speclab.ops import pair
from speclab.ops.commands import cli, main
from speclab.profiles import ROOT, load_profile, parse_overrides

FEW = "prompts_per_domain=1 --set domains=[code] --set max_new_tokens=4"
PROMPT = '{"prompt_id": "a", "domain": "code", "prompt": "def f():"}\n'
PROFILE = """\
target: {path: data/pairs/tiny/target}
draft: {path: data/pairs/tiny/draft}
prompts_per_domain: 1
domains: [code]
max_prompt_tokens: 64
max_new_tokens: 4
"""


@pytest.fixture
def refused(place, capsys):
    """Asserts that a command ends with status 2 and one line that has a word in it, and that
    nothing is written.
    """

    def check(command, word):
        before = contents(place)
        assert main(shlex.split(command)) == 2
        said = capsys.readouterr().err
        assert said.startswith("speclab: ") and said.count("\n") == 1
        assert word in said
        assert contents(place) == before

    return check


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with a valid profile and valid prompts, used for recordings too. No variable
    of the kit is set and no hub is used. Loading a network is a failure.
    """

    def begun(*_, **__):
        raise AssertionError("work begins before what was given is checked")

    monkeypatch.setattr(pairs, "check_fits", begun)  # before any network is loaded
    for name in ("TRACES", "DATASETS", "MODELS", "OUT", "REPO", "AUTHOR_RECORDS"):
        monkeypatch.delenv(f"SPECLAB_{name}", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(runs, "RUNS", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profile.yaml").write_text(PROFILE)
    (tmp_path / "prompts.jsonl").write_text(PROMPT)
    (tmp_path / "results.jsonl").write_text('{"prompt_id": "z"}\n')
    (tmp_path / "empty").mkdir()
    shutil.copy(ROOT / "figures/smollm/09/policy.json", tmp_path / "policy.json")
    return tmp_path


# ---- the command line ----------------------------------------------------------------------------

DECODE = "decode --profile profile.yaml --prompts prompts.jsonl --out new.jsonl"

# the rest of a command, and a word of the expected message
COMMANDS = {
    "": {
        "": "Missing command",
        "doctor --nonsense": "--nonsense",
        "doctor --profile tyni": "did you mean 'tiny'",
        "decode --out new": "--prompts",
        "hosted restore nowhere": "nowhere",
        "hosted keep prompts.jsonl": "prompts.jsonl",
    },
    DECODE: {
        "--profile nowhere.yaml": "nowhere.yaml",
        "--set max_new_token=3": "did you mean 'max_new_tokens'",
        "--set seed=[1": "seed=[1",
        "--set depth=5": "depth",
        "--rule rejection --set temperature=1e-5": "temperature=1e-05",
        "--rule rejection --set temperature=1 --shape tree:3,2,8": "tree",
        "--rule rejection --set temperature=1 --check": "--check",
        "--rule greedy --set temperature=0.7": "greedy",
        "--check --set temperature=0.7": "T = 0.7 is not greedy",
        "--shape chain:0": "gamma=0",
        "--shape chain:04": "chain:04",
        "--shape tree:9,9": "budget",
        "--policy policy.json --shape plain": "--shape",
        "--policy policy.json": "another pair",
        "--prompts results.jsonl": "results.jsonl, line 1",
        "--out prompts.jsonl/x": "prompts.jsonl",
        "--out empty/../prompts.jsonl": "prompts.jsonl",
        "--out results.jsonl": "--force",
    },
    "record --profile profile.yaml --out new": {
        "--kind greddy": "greddy",
        "--set temperature=0.5": "conflicts with --kind greedy",
        "--kind sampled-0.3 --set temperature=0.5": "temperature",
        "--engine spark": "spark",
        "--workers 2": "--workers",
        "--set name=../../x": "name='../../x'",
        "--set domains=[maths]": "'math'",
        "--profile twice.yaml": "'seed' occurs twice",
    },
    "log prompts.jsonl --out new": {
        "": "prompts.jsonl, line 1: no format fits",
        "nowhere.jsonl": "nowhere.jsonl",
        "--format vlm": "did you mean 'vllm'",
        "--format vllm": "prompts.jsonl, line 1: it is no line of the format vllm",
        "--drafted four": "drafted='four'",
        "--prompts results.jsonl": "results.jsonl, line 1: prompt_id and domain are needed",
        "--out empty": "empty exists already",
        "--out prompts.jsonl --force": "holds something other than a log",
    },
    "reproduce --out new": {
        "--notebook 99": "99",
        "--notebook 00 --parameter gammas=[1]": "gammas",
    },
}


@pytest.mark.parametrize(
    ("command", "word"),
    [(f"{begin} {end}", COMMANDS[begin][end]) for begin in COMMANDS for end in COMMANDS[begin]],
)
def test_the_command_line(command, word, place, refused):
    (place / "twice.yaml").write_text(PROFILE + "seed: 1\nseed: 2")
    refused(command, word)


# ---- prompts of one's own ------------------------------------------------------------------------

ODD = {  # a line of the prompts file, and a word of the expected message
    '{"prompt_id": "b", "domain": "CODE", "prompt": "x"}': "domain='CODE': it differs from 'code'",
    '{"prompt_id": "b", "domain": "%s", "prompt": "x"}' % ("a" * 200): "domain='aaa",
    '{"prompt_id": "b", "domain": "code", "prompt": " "}': "prompt",
    '{"prompt_id": "a", "domain": "code", "prompt": "x"}': "prompt_id 'a' occurs twice",
    '{"domain": "code", "prompt": "x"}': "missing field prompt_id",
    '{"prompt_id": "b", "domain": "code", "messages": [{"role": "assistant", "content": "x"}]}': (
        "messages end with role 'assistant'"
    ),
}
STUDY = "--profile profile.yaml --set domains=null --set prompts=odd.jsonl"


@pytest.mark.parametrize("verb", ["plan --notebook 02", "reproduce --notebook 02 --out new"])
@pytest.mark.parametrize("line", ODD, ids=list(ODD.values()))
def test_a_line_of_prompts_is_named_before_anything_begins(verb, line, place, refused):
    (place / "odd.jsonl").write_text(f"{PROMPT}\n{line}\n")
    refused(f"{verb} {STUDY}", f"odd.jsonl, line 3: {ODD[line]}")


def test_a_domain_that_no_prompt_has_is_named(place, refused):
    (place / "odd.jsonl").write_text(PROMPT)
    refused(f"plan {STUDY} --set domains=[coed]", "did you mean 'code'")


# ---- recorded runs -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with a `run` of the tiny pair, one prompt, and with copies of it that are damaged as
    `test_faults` does.
    """
    folder = tmp_path_factory.mktemp("recorded")
    profile = load_profile("tiny", parse_overrides([*FEW.split(" --set "), "device=cpu"]))
    runs.record_run(profile, folder / "run")
    for name, file, recipe in (
        ("cut", "manifest.json", "cut"),
        ("turned", "trace.parquet", "turned"),
        ("other", "settings.json", "cut"),
    ):
        copy = shutil.copytree(folder / "run", folder / name)
        content = (copy / file).read_bytes()
        (copy / file).write_bytes(DAMAGES[recipe](content))
    return folder


PACK = "pack run --licence free --out new"
EXPORT = "export tiny/greedy --for vllm --profile-json"
AGAIN = f"record --profile tiny --set {FEW} --set device=cpu --out"


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("explore nowhere --out new.html", "nowhere"),
        ("explore run run --out new.html", "greedy"),
        ("explore run --out prompts.jsonl", "prompts.jsonl"),
        (PACK, "--kind"),
        (f"{PACK} --kind chain", "no run of kind 'chain'"),
        ("pack run --kind greedy --out new", "--licence"),
        (f"{PACK} --kind greedy --licence ' '", "--licence"),
        (f"{PACK} --kind greedy --out run", "is not empty; choose a new folder"),
        ("explore run --set seed=3 --out new.html", "--set"),
        (f"{EXPORT} run/manifest.json", "manifest.json"),
        (f"{EXPORT} empty", "empty"),
        (f"{AGAIN} run --set budget=7", "other settings"),
        (f"{AGAIN} other", "other settings"),
        ("explore cut --out new.html", "manifest.json"),
        ("explore turned --out new.html", "trace.parquet"),
    ],
)
def test_verbs_of_runs(command, word, recorded, place, refused):
    shutil.copytree(recorded, place, dirs_exist_ok=True)
    refused(command, word)


@pytest.mark.parametrize(
    "command",
    [
        "pack {} --kind greedy --licence free --out new{}",
        "explore {} --out {}.html",
        "export {} --for transformers",
    ],
)
def test_a_terminal_obeys_no_name_of_a_run(command, recorded, place, capsys):
    name = "\x1b]0;title\x07\u202e"
    run = shutil.copytree(recorded / "run", place / name)
    words = [word.format(name) for word in shlex.split(command)]
    main(words)
    (run / "trace.parquet").unlink()
    assert main(words) == 2
    said = "".join(capsys.readouterr())
    assert r"\x1b" in said and not set(said) & {"\x1b", "\x07", "\u202e"}


# ---- the machine ---------------------------------------------------------------------------------


def test_the_source_of_weights(tmp_path):
    (tmp_path / "source.json").write_text('{"wheel"')
    with pytest.raises(ValueError, match=r"source\.json is damaged"):
        pair.source_of(tmp_path)


@pytest.mark.parametrize(
    ("variable", "options"),
    [
        ("SPECLAB_TRACES", FEW),
        ("SPECLAB_DATASETS", "prompts=paper --out new"),
        ("SPECLAB_MODELS", "target.path=a/b --out new"),
    ],
)
def test_the_environment(variable, options, refused, monkeypatch):
    monkeypatch.setenv(variable, "nowhere")
    refused(f"record --profile tiny --set {options}", variable)


# ---- the one line --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (ValueError("one\n  two"), "speclab: one two\n"),
        (ValueError("\x1b]0;\x07"), r"\x1b]0;\x07"),
        (runs.RunError("record it"), "record it"),
        (ModuleNotFoundError("No module named 'psutil'"), "'psutil'"),
        (click.Abort(), "Run the same command again"),
    ],
)
def test_an_error_is_a_line_and_a_mistake_of_ours_is_none(error, word, monkeypatch, capsys):
    monkeypatch.setattr(cli, "invoke", Mock(side_effect=[error, RuntimeError("shapes")]))
    assert main(["doctor"]) == (130 if isinstance(error, click.Abort) else 2)
    said = capsys.readouterr().err
    assert word in said and said.count("\n") == 1
    with pytest.raises(RuntimeError, match="shapes"):
        main(["doctor"])


def python(*arguments):
    """A Python of its own in the repository's folder."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_who_runs_without_the_environment_reads_one_line():
    done = python("-c", "import sys; sys.modules['click'] = None; import speclab.__main__")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "click" in done.stderr and "make env" in done.stderr


def test_without_its_checks_nothing_starts():
    done = python("-O", "-c", "import speclab")
    assert done.returncode == 1 and "PYTHONOPTIMIZE" in done.stderr
    assert python("-c", "import speclab").returncode == 0

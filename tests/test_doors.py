"""Every entry point of the kit with bad input: exit status 2 and one line that names the input, no
traceback, no model loaded, nothing written.

Each row is one kind of mistake: a command, and a word of the expected line.
"""

import io
import json
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
from itertools import product
from pathlib import Path
from unittest.mock import Mock

import click
import pytest
from conftest import contents
from test_faults import DAMAGES

from speclab.cli.commands import cli, main
from speclab.models import pairs
from speclab.run import reproduce
from speclab.study import runs
from speclab.study.profiles import ROOT, load_profile, parse_overrides

FEW = "prompts_per_domain=1 --set domains=[code] --set max_new_tokens=4"
PROMPT = '{"prompt_id": "a", "domain": "code", "prompt": "def f():"}\n'
STUDY = "--profile profile.yaml --set domains=null --set prompts=odd.jsonl"
REPEATED = STUDY.replace("odd", "repeated")
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

    monkeypatch.setattr(pairs, "_load_plain", begun)  # before any network is loaded
    for name in ("TRACES", "DATASETS", "MODELS", "OUT", "REPO", "AUTHOR_RECORDS"):
        monkeypatch.delenv(f"SPECLAB_{name}", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(runs, "RUNS", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profile.yaml").write_text(PROFILE)
    (tmp_path / "twice.yaml").write_text(PROFILE + "seed: 1\nseed: 2")
    (tmp_path / "prompts.jsonl").write_text(PROMPT)
    (tmp_path / "repeated.jsonl").write_text(f"{PROMPT}\n{PROMPT}\n")
    (tmp_path / "results.jsonl").write_text('{"prompt_id": "z"}\n')
    (tmp_path / "empty").mkdir()
    return tmp_path


# ---- the command line ----------------------------------------------------------------------------

DECODE = "decode --profile profile.yaml --prompts prompts.jsonl --out new.jsonl"

# the rest of a command, and a word of the expected message
COMMANDS = {
    "": {
        "": "Missing command",
        "doctor --nonsense": "--nonsense",
        "doctor --profile tyni": "did you mean 'tiny'",
        f"plan {REPEATED}": "repeated.jsonl, line 3: prompt_id 'a' occurs twice",
        f"reproduce --notebook 02 --out new {REPEATED}": "repeated.jsonl, line 3",
        "decode --out new": "--prompts",
    },
    DECODE: {
        "--profile nowhere.yaml": "nowhere.yaml",
        "--set max_new_token=3": "did you mean 'max_new_tokens'",
        "--set sed=1 --set nonsense=2": "'nonsense'",
        "--set seed=[1": "seed=[1",
        "--set depth=2": "depth has no effect on decode",
        "--rule rejection --set temperature=1e-5": "temperature=1e-05",
        "--rule rejection --set temperature=1 --shape tree:3,2,8": "tree",
        "--rule rejection --set temperature=1 --check": "--check",
        "--rule greedy --set temperature=0.7": "greedy",
        "--check --set temperature=0.7": "T = 0.7 is not greedy",
        "--shape chain:0": "gamma=0",
        "--shape chain:04": "chain:04",
        "--shape tree:9,9": "budget",
        "--prompts results.jsonl": "results.jsonl, line 1",
        "--out prompts.jsonl/x": "prompts.jsonl",
        "--out empty/../prompts.jsonl": "prompts.jsonl",
        "--out results.jsonl --force": "no result of decode",
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
        "": "prompts.jsonl: no counts of drafts to read",
        "nowhere.jsonl": "nowhere.jsonl",
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
def test_the_command_line(command, word, refused):
    refused(command, word)


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("--set 'notes={licence: !!bool x}'", "line 1, column 11"),
        ("--set 'notes={licence: &a [*a]}'", "aliases"),
        ("--set 'prompts=no such #5.jsonl'", "no such #5.jsonl,"),
        ("--set 'traces=no such #5' --set nonsense=[1]", "'nonsense'"),
        ("--parameter 'gama=3 #4'", "parameter 'gama': did you mean 'gammas'"),
        ("--SET 'seed=1 \"prompts=it is #5.jsonl\"'", "it is #5.jsonl,"),
        ("--SET 'seed=1 prompts=my file'", "--set file has no value in YAML"),
        ("--PARAMETERS 'log=my log'", "--parameter log has no value"),
    ],
)
def test_values_of_the_command_line(option, word, refused):
    refused(f"reproduce --profile profile.yaml --notebook 14_your_log --out new {option}", word)


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("--parameter 'log=/x/run #5'", "log", "/x/run #5"),
        ("--parameter 'log=[old] x: 1.5'", "log", "[old] x: 1.5"),
        ("--parameter drafted=5", "drafted", "5"),
        ("--parameter 'v={\"8\": 1.5}'", "v", {"8": 1.5}),
        ("--parameter c=0.5", "c", 0.5),
        ("--PARAMETERS \"'log=/x/my run #5' c=0.5\"", "log", "/x/my run #5"),
        ("--PARAMETERS 'v={\"8\":1.5} c=0.5'", "v", {"8": 1.5}),
    ],
)
def test_a_notebook_gets_the_value_as_it_was_written(option, name, value, place, reproduced):
    command = f"reproduce --profile profile.yaml --notebook 14_your_log {option}"
    assert main(shlex.split(command)) == 0
    assert reproduced[0].changed[name] == value


@pytest.fixture
def reproduced(monkeypatch):
    """What `reproduce` would run: the notebooks of its calls."""
    notebooks = []
    monkeypatch.setattr(reproduce, "reproduce", lambda call, _: notebooks.extend(call.notebooks))
    return notebooks


def write_log(path, *names):
    """A log of `decode` with a request of each domain, with the mark that Windows writes first."""
    row = {"accepted_per_step": [1], "drafted_per_step": [2], "target_passes": 1}
    rows = [row | {"prompt_id": n, "domain": n, "token_ids": [1, 2, 3]} for n in names]
    path.write_text("\ufeff" + "\n".join(map(json.dumps, rows)), "utf-8")


def test_the_command_that_log_prints_studies_the_log(place, reproduced, capsys):
    write_log(place / "log.jsonl", "a")
    assert main(["log", "log.jsonl", "--out", "my log #5: [new]"]) == 0
    (command,) = re.findall("`python -m speclab (.*)`", capsys.readouterr().out)
    assert main(shlex.split(command)) == 0
    assert Path(reproduced[0].changed["log"]) == place / "my log #5: [new]"


# ---- files that are no files ---------------------------------------------------------------------


def special(kind, path):
    """Puts something that is no file at a path."""
    if kind == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("this user may not make a device")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)  # a long path does not fit
    else:
        {"pipe": os.mkfifo, "folder": os.mkdir, "loop": lambda path: path.symlink_to(path)}[kind](
            path
        )


OF_FILES = (
    f"{DECODE} --out odd.pdf",
    "explore run --out odd.pdf",
)
OF_FOLDERS = (
    "pack run --kind greedy --licence free --out odd.pdf",
    "log nowhere.jsonl --out odd.pdf --force",
    "fetch author-records --out odd.pdf --base file:///nowhere",
    "record --profile profile.yaml --out odd.pdf",
)
SPECIAL = ("pipe", "socket", "device", "loop")


@pytest.mark.parametrize(
    ("command", "kind"),
    [*product(OF_FILES, (*SPECIAL, "folder")), *product(OF_FOLDERS, SPECIAL)],
)
def test_only_what_may_be_replaced_is_replaced(command, kind, recorded, place, refused):
    shutil.copytree(recorded, place, dirs_exist_ok=True)
    special(kind, place / "odd.pdf")
    mode = (place / "odd.pdf").lstat().st_mode
    refused(command, "odd.pdf")
    assert (place / "odd.pdf").lstat().st_mode == mode


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_and_its_target_is_written(is_there, place):
    target = place / "target.svg"
    if is_there:
        target.write_text("old")
    (place / "link.svg").symlink_to(target.name)
    runs.written(place / "link.svg", lambda path: path.write_text("new"))
    assert (place / "link.svg").is_symlink() and target.read_text() == "new"


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("odd.yaml", "plan --profile odd.yaml"),
        ("odd.jsonl", f"plan {STUDY}"),
        ("empty/odd.jsonl", f"plan {STUDY.replace('odd.jsonl', 'empty')}"),
        ("odd.jsonl", f"{DECODE} --prompts odd.jsonl"),
    ],
)
def test_what_may_never_end_is_not_read(name, command, kind, place, refused):
    special(kind, place / "odd")
    (place / "odd").rename(place / name)
    refused(command, f"{name} is not a regular file")


# ---- terminals -----------------------------------------------------------------------------------


def test_names_that_a_terminal_lacks_are_printed_as_escapes(place, monkeypatch):
    write_log(place / "log.jsonl", "größe", "名前")
    terminal = io.TextIOWrapper(io.BytesIO(), "latin-1")
    monkeypatch.setattr("sys.stdout", terminal)
    assert main(["log", "log.jsonl", "--out", "logbuch-名"]) == 0
    terminal.flush()
    seen = terminal.buffer.getvalue().decode("latin-1")
    assert "größe: " in seen and r"\u540d\u524d: " in seen and r"logbuch-\u540d holds" in seen


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
        (f"{PACK} --kind greedy --out run", "run exists"),
        ("explore run --set seed=3 --out new.html", "--set"),
        ("export empty --for vllm", "empty"),
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
    assert main(words) == 0
    (run / "trace.parquet").unlink()
    assert main(words) == 2
    said = "".join(capsys.readouterr())
    assert r"\x1b" in said and not set(said) & {"\x1b", "\x07", "\u202e"}


# ---- the machine ---------------------------------------------------------------------------------


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

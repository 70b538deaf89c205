"""What a user may get wrong on the command lines: one clear line that says what came and what to
do, exit status 2, never a traceback.
"""

import io
import json
import sys

import click
import pytest

from data.routing import prepare
from speclab.__main__ import cli, main
from speclab.ops import hosted

RECORD = ["record", "--out", "{out}", "--kind"]
HUGE = ["prompts_per_domain=100000", "max_new_tokens=65536"]
DECODE = ["decode", "--prompts", "{prompts}", "--out", "{out}"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*DECODE, "--set", "max_new_tokens=[1"], "the value is not YAML"),
        ([*DECODE, "--set", "max_new_tokens"], "write KEY=VALUE"),
        ([*DECODE, "--set", "max_new_tokens=1.5"], "a whole number is needed"),
        ([*DECODE, "--set", "top_p=abc"], "top_p='abc': a number is needed"),
        ([*DECODE, "--set", "device=3"], "device=3: allowed are auto, cpu, cuda"),
        ([*DECODE, "--set", "device=cuda:x"], "device='cuda:x': allowed are"),
        ([*DECODE, "--set", "domains=3"], "domains=3: write a list"),
        ([*DECODE, "--set", "domains=math"], "domains='math': write a list"),
        ([*DECODE, "--set", "target=3"], "path=3: a folder"),
        ([*DECODE, "--set", "target={}"], "`path` is missing"),
        (
            [*DECODE, "--set", "draft.path=data/prompts"],
            "model 'data/prompts': no config.json in",
        ),
        ([*DECODE, "--set", "gama=3"], "unknown parameter 'gama'"),
        ([*DECODE, "--seed", "-1"], "--seed -1: allowed are whole numbers from 0"),
        (
            [*DECODE, "--check", "--rule", "rejection", "--temperature", "0.7"],
            "--check compares greedy texts",
        ),
        (
            [
                *DECODE,
                "--rule",
                "rejection",
                "--shape",
                "tree:3,2,8",
                "--temperature",
                "0.7",
            ],
            "not a static tree",
        ),
        (
            [
                *DECODE,
                "--rule",
                "rejection",
                "--shape",
                "dynamic:3,2,8",
                "--temperature",
                "0.7",
            ],
            "not a dynamic tree",
        ),
        ([*DECODE, "--policy", "nowhere.json"], "nowhere.json"),
        (["decode", "--prompts", "{empty}", "--out", "{out}"], "no prompt in it"),
        (
            ["decode", "--prompts", "nowhere.jsonl", "--out", "{out}"],
            "no prompts at nowhere.jsonl",
        ),
        (
            ["record", "--devices", "cpu:x", "--out", "{out}"],
            "device='cpu:x': allowed are",
        ),
        # settings that another one decides
        (
            [*DECODE, "--seed", "6", "--set", "seed=5"],
            "--seed 6 and --set seed=5: give",
        ),
        (
            [*DECODE, "--temperature", "1", "--set", "temperature=0"],
            "--temperature 1.0 and --set temperature=0: give one of them",
        ),
        ([*DECODE, "--seed", "4294967296"], "whole numbers from 0 to 4294967295"),
        (
            [*DECODE, "--policy", "{empty}", "--shape", "plain"],
            "names the shapes; leave out --shape plain",
        ),
        ([*DECODE, "--set", "depth=5"], "--set depth: decode does not read it"),
        (
            [*DECODE, "--set", "max_new_tokens=4", "prompts_per_domain=1"],
            "--set prompts_per_domain: decode does not read it",
        ),
        (
            [*RECORD, "sampled", "--set", "temperature=0.5"],
            "--set temperature=0.5: --kind sampled has temperature=1.0; leave it out",
        ),
        ([*RECORD, "chain", "--set", "depth=3"], "--kind chain has depth=8"),
        ([*RECORD, "balanced", "--set", "budget=5"], "--kind balanced has budget="),
        ([*RECORD, "warm"], "kind='warm': allowed are greedy"),
        # shapes
        ([*DECODE, "--shape", "chain:²"], "shape='chain:²': allowed are"),
        ([*DECODE, "--shape", "chain:٣"], "shape='chain:٣': allowed are"),
        ([*DECODE, "--shape", "chain:1 2"], "shape='chain:1 2': allowed are"),
        ([*DECODE, "--shape", "chain:" + "9" * 5000], "dynamic:DEPTH,BRANCHES,BUDGET"),
        ([*DECODE, "--shape", "tree:9,9,65536"], "budget=65536: allowed are whole"),
        ([*DECODE, "--shape", "tree:9,9"], "name a budget, up to 4096"),
        (
            [*DECODE, "--shape", "dynamic:64,1024,8"],
            "depth times branches tokens, 65536; allowed are up to 4096",
        ),
        ([*RECORD, "greedy", "--set", "budget=65536"], "budget=65536: allowed are"),
        (
            [*RECORD, "greedy", "--set", "budget=4096", "depth=64", *HUGE],
            "nodes fit: lower budget, prompts_per_domain or max_new_tokens",
        ),
        # nothing, and what is no text
        (["decode", "--prompts", "{prompts}", "--out", ""], "'--out': '' is empty"),
        (["decode", "--prompts", "{prompts}", "--out="], "'--out': '' is empty"),
        (["record", "--out", " "], "'--out': ' ' is empty; give a path"),
        (
            ["record", "--out", "a\0b"],
            "'--out': 'a\\x00b' holds a NUL byte; give a path",
        ),
        (["metrics", ""], "'RUN': '' is empty"),
        (["pack", "data", "--out", ""], "'--out': '' is empty"),
        (["pack", "data", "--out", "{out}", "--kind", ""], "'--kind': '' is empty"),
        (
            ["pack", "data", "--out", "{out}", "--licence", ""],
            "'' is empty; give a text",
        ),
        (["doctor", "--profile", "\udcff"], "'\\udcff': allowed is text in UTF-8"),
        ([*DECODE, "--shape", ""], "shape='': allowed are plain"),
        ([*DECODE, "--shape", "chain:4\n"], "shape='chain:4\\n': allowed are plain"),
        # places
        (["metrics", "nowhere"], "nowhere: no manifest.json"),
        (["metrics", "{prompts}"], "no manifest.json"),
        (["pack", "nowhere", "--out", "{out}"], "nowhere: no manifest.json"),
        ([*DECODE, "--policy", "{empty}"], "is damaged (not JSON"),
        ([*DECODE, "--policy", "data"], "data cannot be read (Is a directory)"),
    ],
)
def test_one_line_and_status_2(arguments, words, tmp_path, capsys):
    (tmp_path / "prompts.jsonl").write_text(
        json.dumps({"prompt_id": "a", "prompt": "def f():"})
    )
    (tmp_path / "empty.jsonl").write_text("\n")
    places = {
        "prompts": tmp_path / "prompts.jsonl",
        "empty": tmp_path / "empty.jsonl",
        "out": tmp_path / "out",
    }
    given = [
        a.format(**places) if a.startswith("{") and a != "{}" else a for a in arguments
    ]
    assert main(given) == 2
    said = capsys.readouterr().err.strip()
    assert (
        said.startswith("speclab: ")
        and words in said
        and "Traceback" not in said
        and len(said.splitlines()) == 1
    )
    assert not places["out"].exists()


# ---- the one line --------------------------------------------------------------------------------


def ends(monkeypatch, error):
    """Every verb ends with this error."""

    def raised(*given, **options):
        raise error

    monkeypatch.setattr(cli, "main", raised)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\n  two\r\n\tthree\u2028four", "one two three four"),
        ("\x1b[31mred\0\ud800", "\\x1b[31mred\\x00\\ud800"),
        ("", "ValueError"),
        ("long " * 1000 + "do this", None),
    ],
)
def test_an_error_is_one_line_whatever_its_text(text, line, monkeypatch, capsys):
    ends(monkeypatch, ValueError(text))
    assert main(["doctor"]) == 2
    said = capsys.readouterr().err
    assert said.endswith("\n") and len(said.splitlines()) == 1 and len(said) < 1020
    if line:
        assert said == f"speclab: {line}\n"
    else:
        assert said.startswith("speclab: long long") and said.endswith("do this\n")


def test_out_of_memory_is_a_line(monkeypatch, capsys):
    ends(monkeypatch, MemoryError("Unable to allocate 4.00 GiB"))
    assert main(["record"]) == 2
    assert capsys.readouterr().err == "speclab: Unable to allocate 4.00 GiB\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["record"], "finished blocks are kept, the same command goes on from there"),
        (["decode"], "finished texts are kept, the same command goes on from there"),
        (
            ["decode", "--force"],
            "the same command (without --force) goes on from there",
        ),
        (["pack"], "stopped; the same command begins anew"),
        (["metrics"], "stopped; the same command begins anew"),
    ],
)
def test_ctrl_c_promises_what_the_verb_keeps(arguments, said, monkeypatch, capsys):
    ends(monkeypatch, click.Abort())
    assert main(arguments) == 130
    assert capsys.readouterr().err.rstrip().endswith(said)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_streams_that_lack_a_character_change_no_status(encoding, monkeypatch):
    def said(*given, **options):
        print("done … é")
        click.echo("done … é")
        print("kept … é", file=sys.stderr)
        return given[0][0] == "doctor"

    monkeypatch.setattr(cli, "main", said)
    streams = {
        name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")
    }
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    assert main(["record"]) == 0 and main(["doctor"]) == 1
    for stream in streams.values():
        stream.flush()
        assert b"\\u2026" in stream.buffer.getvalue()
    ends(monkeypatch, ValueError("…"))
    assert main(["record"]) == 2


def test_keep_refuses_its_own_folder_and_what_cannot_be_written(
    tmp_path, capsys, monkeypatch
):
    runs = tmp_path / "runs"
    (runs / "one").mkdir(parents=True)
    for inside in (runs, runs / "one"):
        with pytest.raises(
            ValueError, match="this is data/runs, or one holds the other"
        ):
            hosted.keep(inside, runs)
    (tmp_path / "file").write_text("")
    assert main(
        ["hosted", "keep", str(tmp_path / "file" / "x")]
    ) == 2 and capsys.readouterr().err.startswith("speclab: ")
    assert (
        main(["hosted", "restore", str(tmp_path / "nowhere")]) == 2
        and "no such folder" in capsys.readouterr().err
    )


def test_keep_takes_trained_drafts_along(tmp_path):
    runs, drive = tmp_path / "runs", tmp_path / "drive"
    (runs / "drafts" / "recorded" / "parts").mkdir(parents=True)
    (runs / "drafts" / "recorded" / "settings.json").write_text("{}")
    (runs / "drafts" / "trained").mkdir()
    (runs / "drafts" / "trained" / "facts.json").write_text("{}")
    hosted.keep(drive, runs)
    found = sorted(p.relative_to(drive).as_posix() for p in drive.rglob("*.json"))
    assert (
        found == ["drafts/recorded/settings.json", "drafts/trained/facts.json"]
        and runs.resolve() == drive
    )


def test_the_router_names_text_that_is_not_there(tmp_path, capsys):
    assert (
        prepare.main(
            ["--data", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]
        )
        == 2
    )
    assert capsys.readouterr().err.startswith("speclab: ")

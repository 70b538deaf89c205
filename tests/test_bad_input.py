"""What a user may get wrong on the command lines: one clear line that says what came and what to
do, exit status 2, never a traceback.
"""

import json

import pytest

from data.routing import prepare
from speclab.__main__ import main
from speclab.ops import hosted

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


def test_keep_refuses_its_own_folder_and_what_cannot_be_written(
    tmp_path, capsys, monkeypatch
):
    runs = tmp_path / "runs"
    (runs / "one").mkdir(parents=True)
    for inside in (runs, runs / "one"):
        with pytest.raises(ValueError, match="data/runs itself or inside it"):
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

"""Two logs of the same prompts: paired differences by hand, and what cannot be compared."""

import json

import pytest
from test_readers import DATA, changed

from speclab.__main__ import main

NAMES = [f"r{i}" for i in range(6)]


def lines_of(accepted, names=NAMES, **facts):
    """The log of a decoder that accepts so many of 3 tokens in the passes of each prompt."""
    lines = {
        "domain": "code",
        "accepted_per_step": accepted,
        "drafted_per_step": [3] * len(accepted),
    }
    lines |= {"token_ids": [0] * (sum(accepted) + len(accepted))} | facts
    return "\n".join(json.dumps(lines | {"prompt_id": name}) for name in names)


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """Call the verb with two logs: its status, and what it says."""
    monkeypatch.chdir(tmp_path)

    def call(*texts):
        for name, text in zip(("a.jsonl", "b.jsonl"), texts, strict=True):
            (tmp_path / name).write_text(text)
        return main(["log", "a.jsonl", "b.jsonl"]), "".join(capsys.readouterr())

    return call


# 6 tokens in 3 passes against 9; no prompt differs from another, so intervals have no width
PAIRED = [
    "5 prompts are in both logs: a.jsonl, b.jsonl",
    ": 2.00, 3.00, 1.00 [1.00, 1.00]\n",
    " depth 1, if all above were: 0.67, 1.00, 0.33 [0.33, 0.33]\n",
    " depth 2, if all above were: 0.50, 0.67, 0.17 [0.17, 0.17]\n",
    "b.jsonl has more in 5 prompts and less in 0. They differ most in 'r0': 2.00, 3.00.",
    "answer differs in 5 prompts",
    "prompt differs in 5 prompts",
    "a.jsonl: format speclab, tokens per draft: 3",
]


def test_a_paired_difference_by_hand(compare):
    one = lines_of([2, 0, 1], prompt_tokens=8)
    status, said = compare(one, lines_of([3, 1, 2], [*NAMES[:5], "x"], prompt_tokens=9))
    assert status == 0 and not [words for words in PAIRED if words not in said]
    assert said.count("depth") == 2  # the first log accepts no third token


def test_the_interval_is_paired(compare):
    """Prompts differ a lot and each gains the same: unpaired, the interval would be wide."""
    one, other = (
        "\n".join(lines_of([i % 2 + gain] * 4, [f"r{i}"]) for i in range(12)) for gain in (0, 1)
    )
    _, said = compare(one, other)
    assert "  tokens per target pass: 1.50, 2.50, 1.00 [1.00, 1.00]" in said
    _, said = compare(one, one)
    assert "  tokens per target pass: 1.50, 1.50, 0.00 [0.00, 0.00]" in said


def test_totals_have_no_depths(compare):
    totals = changed("sglang-totals.json")
    other = "".join(totals.replace('"a"', f'"{name}"') for name in NAMES)
    _, said = compare(lines_of([2, 0, 1]), other)
    assert "  tokens per target pass: 2.00, 2.00, 0.00" in said and "depth" not in said


def test_what_cannot_be_compared(compare, capsys):
    status, said = compare(lines_of([1]), lines_of([1], ["x"]))
    assert status == 2 and "a.jsonl and b.jsonl have no request of the same name" in said
    for text in ("vllm.log", "llamacpp.log"):
        status, said = compare(lines_of([1]), changed(text))
        assert status == 2 and "compare the responses that the servers sent (JSON), or read" in said
    assert main(["log", str(DATA / "vllm.jsonl")]) == 2
    assert "name --out for the folder of one log, or two logs" in capsys.readouterr().err


def test_a_folder_is_compared_with_a_file(compare, capsys):
    compare(lines_of([1]), lines_of([2]))
    capsys.readouterr()
    for words in (["a.jsonl", "--out", "a"], ["a", "b.jsonl"]):
        assert main(["log", *words]) == 0
    assert "2.00, 3.00, 1.00 [1.00, 1.00]" in capsys.readouterr().out

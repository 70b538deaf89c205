"""Two logs of the same prompts: paired differences by hand, and what cannot be compared."""

import pytest
from test_log_gammas import log_of
from test_logs import PER_STEP, SUMMARY, bench, vllm, write

from speclab.__main__ import main
from speclab.logs import log_compare, logs, readers

BETTER = {"per_step_accepted": [3, 1, 2], "num_accepted_draft_tokens": 6}


def lines_of(folder, one, other, names=("a.jsonl", "b.jsonl")):
    """What is said of two logs, each from responses."""
    both = zip(names, (one, other), strict=True)
    read = {name: logs.read_log([write(folder, *lines, name=name)]) for name, lines in both}
    return log_compare.compared_lines(read)


def test_a_paired_difference_by_hand(tmp_path):
    names = [f"r{i}" for i in range(6)]
    one = [vllm(name=name) for name in names]
    better = PER_STEP | BETTER | {"acceptance_histogram": [0, 1, 1, 1]}
    better |= {"per_step_drafted": [3, 3, 3], "num_draft_tokens": 9}
    other = [vllm(better, 10, name) for name in [*names[:5], "x"]]
    said = lines_of(tmp_path, one, other)
    assert said[0] == "5 prompts are in both logs: a.jsonl, b.jsonl, difference."
    # 6 tokens in 3 passes against 9; no prompt differs from another, so the interval has no width
    assert "  tokens per target pass: 2.00, 3.00, 1.00 [1.00, 1.00]" in said
    assert "  accepted at depth 1, if all above were: 0.67, 1.00, 0.33 [0.33, 0.33]" in said
    assert said[-5].startswith("b.jsonl has more in 5 prompts and less in 0. They differ most")
    assert said[-5].endswith("in 'r0': 2.00, 3.00.")
    assert said[-4:] == [
        "The length of the answer differs in 5 prompts.",
        "The length of the prompt differs in 0 prompts.",
        "a.jsonl: format vllm, tokens per draft: 3",
        "b.jsonl: format vllm, tokens per draft: 3",
    ]
    same = lines_of(tmp_path, one, one)
    assert "  tokens per target pass: 2.00, 2.00, 0.00 [0.00, 0.00]" in same
    assert "The length of the answer differs in 0 prompts." in same


def test_the_interval_is_paired():
    """Prompts differ a lot and each gains the same: unpaired, the interval would be wide."""
    frames = {}
    for gain, name in ((0, "a"), (1, "b")):
        parts = [log_of([i % 3 + gain] * 4, [5] * 4, name=f"r{i}") for i in range(12)]
        frame = logs.pd.concat(parts, ignore_index=True)
        sums = logs.passes.sums_by_request(frame).assign(context=100.0 + gain)
        frames[name] = logs.Log("speclab", readers.REQUESTS, frame, sums, {}, [])
    said = log_compare.compared_lines(frames)
    assert "  tokens per target pass: 2.00, 3.00, 1.00 [1.00, 1.00]" in said
    assert "The length of the prompt differs in 12 prompts." in said


def test_logs_with_totals_and_logs_that_share_no_prompt(tmp_path):
    totals = {key: value for key, value in SUMMARY.items() if key != "acceptance_histogram"}
    names = [f"r{i}" for i in range(6)]
    said = lines_of(tmp_path, [vllm(totals, name=n) for n in names], [vllm(name=n) for n in names])
    assert not any("depth" in line for line in said) and "  tokens per target pass: " in said[1]
    with pytest.raises(ValueError, match="a.jsonl and b.jsonl have no request of the same name"):
        lines_of(tmp_path, [vllm(name="a")], [vllm(name="b")])


def test_the_verb_compares_two_logs(tmp_path, capsys):
    lines = [bench(name) for name in range(6)]
    path, folder = write(tmp_path, *lines), tmp_path / "log"
    assert main(["log", str(path), "--out", str(folder)]) == 0
    capsys.readouterr()
    assert main(["log", str(folder), str(path)]) == 0
    said = capsys.readouterr().out
    assert "6 prompts are in both logs" in said and "2.00, 2.00, 0.00 [0.00, 0.00]" in said
    assert main(["log", str(path)]) == 2
    assert "name --out for the log's folder, or two logs" in capsys.readouterr().err

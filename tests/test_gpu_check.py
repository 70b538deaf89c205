"""`make gpu-check`, as far as a CPU can test it: its output, its margins, a wrong recorder and a
wrong decoder fail it, and a process that dies or hangs fails.
"""

import json
from types import SimpleNamespace

import gpu_check
import pytest
import torch
from gpu_check import Compared, Difference
from test_record import prompts_of
from toy import let_nodes_see_their_cousins, toy_pair

MACHINE = {
    "name": "machine",
    "status": "passed",
    "said": "cpu: a test",
    "time_s": 0.0,
    "facts": {"device": "cpu", "formats": ["float32"]},
}


def here(name, settings):
    """In the place of a process for each check: this one, where a test can break things."""
    return MACHINE if name == "machine" else gpu_check.judged(name, settings)


@pytest.fixture
def on_the_toy(monkeypatch):
    """The checks load a ten-word pair in the place of the tiny one."""
    monkeypatch.setattr(gpu_check, "load_pair", lambda profile: toy_pair())
    prompts = prompts_of([1, 2, 3, 4], [5])
    monkeypatch.setattr(gpu_check, "some_prompts", lambda pair, count: prompts)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "build" / "gpu-check.json"


def ran(out, *names, run=here):
    """Exit status of a call, its JSON file, and the status of each check."""
    code = gpu_check.main(["--out", str(out), "--tokens", "6", "--only", *names], run)
    results = json.loads(out.read_text())
    return code, results, {one["name"]: one["status"] for one in results["checks"]}


def test_a_call_writes_its_file_and_names_what_a_cpu_cannot_do(out, on_the_toy):
    cpu = ("packing", "text", "recorder")
    cuda = ("pairs", "halving", "sampling", "waits", "attention")
    code, results, status = ran(out, *cpu, *cuda)
    assert code == 0 and not results["stopped"]
    assert status == dict.fromkeys(cuda, "skipped") | dict.fromkeys(cpu, "passed")
    assert results["checks"][0]["facts"]["float32"]["rows"] > 50


@pytest.mark.parametrize("name", ["packing", "recorder"])
def test_a_wrong_recorder_fails_and_the_other_checks_go_on(out, on_the_toy, monkeypatch, name):
    """Negative control: nodes see their siblings and cousins."""
    let_nodes_see_their_cousins(monkeypatch)
    code, _, status = ran(out, name, "text")
    assert code == 1 and status == {name: "failed", "text": "passed"}


def test_a_wrong_decoder_fails(out, on_the_toy, monkeypatch):
    honest = gpu_check.decode_prompt

    def wrong(*arguments):
        return SimpleNamespace(token_ids=(*honest(*arguments).token_ids[:2], 8))

    monkeypatch.setattr(gpu_check, "decode_prompt", wrong)
    code, results, status = ran(out, "text")
    assert code == 1 and status == {"text": "failed"}
    assert results["checks"][0]["facts"]["float32"]["largest"][0]["position"] == 2


@pytest.mark.parametrize(
    ("gap", "margins", "dtype", "status"),
    [
        (0.0, [], torch.float32, "passed"),
        (5e-5, [1e-5], torch.float32, "reported"),
        (0.0, [0.05], torch.float16, "reported"),
        (0.01, [], torch.float32, "failed"),
        (float("nan"), [], torch.float16, "failed"),
        (0.0, [float("nan")], torch.bfloat16, "failed"),
    ],
)
def test_status_by_margin_and_number_format(gap, margins, dtype, status):
    differences = [Difference("target rank", "p0", 3, margin) for margin in margins]
    assert Compared(8, 0, gap, differences).status(dtype) == status

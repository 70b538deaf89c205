"""`make gpu-check`, as far as a CPU can tell: what it writes, that a wrong recorder fails it, that
it needs no more than it says, and its margins.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import venv
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import gpu_check
import gpu_checks
import gpu_compare
import gpu_measure
import pytest
import torch
from gpu_check import Asked
from gpu_compare import Compared, Difference
from packaging.requirements import Requirement
from test_record import prompts_of
from toy import let_nodes_see_their_cousins, toy_pair

ROOT = Path(__file__).resolve().parents[1]
SMALL = Asked("cpu", ("float32",), 1, 1, 4)
MACHINE = {
    "name": "machine",
    "status": "passed",
    "said": "cpu: a test",
    "time_s": 0.0,
    "facts": {"device": "cpu", "formats": ["float32"]},
}


def here(name, asked):
    """In the place of a process for each check: this one, where a test can break things."""
    if name == "machine":
        return MACHINE
    return gpu_checks.judged(name, gpu_checks.Settings(**vars(asked)))


@pytest.fixture
def on_the_toy(monkeypatch):
    """The checks load a ten-word pair in the place of the tiny one."""
    monkeypatch.setattr(gpu_checks, "load_pair", lambda profile: toy_pair())
    prompts = prompts_of([1, 2, 3, 4], [5])
    monkeypatch.setattr(gpu_checks, "some_prompts", lambda pair, count: prompts)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "build" / "gpu-check.json"


def ran(out, *arguments, run=here):
    """Exit status and the JSON file of a call."""
    code = gpu_check.main(["--out", str(out), *arguments], run)
    return code, json.loads(out.read_text())


# ---- what it writes ------------------------------------------------------------------------------


def test_checks_are_the_same_in_both_files():
    assert list(gpu_checks.CHECKS) == ["machine", *gpu_check.CHECKS]


def test_a_call_writes_file_and_page_and_names_what_a_cpu_cannot_do(
    out, on_the_toy, capsys
):
    names = ["packing", "text", "recorder", "pairs", "halving", "sampling"]
    code, results = ran(out, "--tokens", "6", "--only", *names)
    assert code == 0 and not results["stopped"]
    status = {one["name"]: one["status"] for one in results["checks"]}
    skipped = dict.fromkeys(("pairs", "halving", "sampling"), "skipped")
    assert status == skipped | dict.fromkeys(("packing", "text", "recorder"), "passed")
    assert all(
        "needs a CUDA device" in one["said"]
        for one in results["checks"]
        if one["status"] == "skipped"
    )
    rows = next(c for c in results["checks"] if c["name"] == "packing")["facts"][
        "float32"
    ]["rows"]
    assert rows > 50
    said = results["summary"]
    assert said.startswith("no CUDA device: ran on the CPU: 3 skipped (pairs,")
    page = out.with_suffix(".md").read_text()
    assert said in page and page.count("\n| ") == 2 + len(names)
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("name", ["packing", "recorder"])
def test_a_wrong_recorder_fails_and_the_other_checks_go_on(
    out, on_the_toy, monkeypatch, name
):
    """Negative control: nodes see their siblings and cousins."""
    let_nodes_see_their_cousins(monkeypatch)
    code, results = ran(out, "--tokens", "6", "--only", name, "text")
    assert code == 1
    status = {one["name"]: one["status"] for one in results["checks"]}
    assert status == {name: "failed", "text": "passed"}
    assert f"1 failed ({name})" in results["summary"]


def test_a_wrong_decoder_fails(out, on_the_toy, monkeypatch):
    honest = gpu_checks.decode_prompt

    def wrong(*arguments):
        found = honest(*arguments)
        return SimpleNamespace(token_ids=(*found.token_ids[:2], 8))

    monkeypatch.setattr(gpu_checks, "decode_prompt", wrong)
    code, results = ran(out, "--tokens", "6", "--only", "text")
    (one,) = results["checks"]
    assert code == 1 and one["status"] == "failed"
    assert one["facts"]["float32"]["largest"][0]["position"] == 2


def test_gptqmodel_is_missed_by_name(out, monkeypatch):
    monkeypatch.setattr(gpu_checks, "find_spec", lambda name: None)
    code, results = ran(out, "--only", "gptq")
    (one,) = results["checks"]
    assert (code, one["said"]) == (0, "gptqmodel is not installed")
    assert "1 skipped (gptq)" in results["summary"]


def test_an_error_is_a_failure_of_its_check_alone(out, monkeypatch):
    def broken(settings):
        raise torch.OutOfMemoryError("CUDA out of memory.\nmore")

    monkeypatch.setitem(gpu_checks.CHECKS, "packing", broken)
    code, results = ran(out, "--only", "packing", "halving")
    first, second = results["checks"]
    assert code == 1 and second["status"] == "skipped"
    assert (first["status"], first["said"]) == (
        "failed",
        "OutOfMemoryError: CUDA out of memory.",
    )
    assert "broken" in "\n".join(first["facts"]["traceback"])


def test_results_are_written_after_each_check_and_ctrl_c_keeps_them(out):
    there = []

    def run(name, asked):
        if name == "machine":
            return MACHINE
        if name == "text":
            there.append(json.loads(out.read_text()))
            raise KeyboardInterrupt
        return {**MACHINE, "name": name}

    code, results = ran(out, "--only", "packing", "text", "timing", run=run)
    assert code == 130
    assert [one["name"] for one in there[0]["checks"]] == ["packing"]
    assert [one["name"] for one in results["checks"]] == ["packing"]
    assert results["stopped"] and results["summary"].endswith("; stopped")


# ---- a process for each check --------------------------------------------------------------------


def test_a_process_that_dies_or_hangs_has_failed(monkeypatch, tmp_path):
    for code, words in (
        ("import os; os.kill(os.getpid(), 11)", "its process ended by signal 11"),
        ("print('last words'); raise SystemExit(3)", "exit status 3"),
        ("import time; time.sleep(60)", "it took longer than 1 s"),
    ):
        script = tmp_path / "check.py"
        script.write_text(code)
        monkeypatch.setattr(gpu_check, "__file__", str(script))
        monkeypatch.setattr(gpu_check, "LIMIT_S", 1 if "sleep" in code else 60)
        found = gpu_check.in_child("text", SMALL)
        assert (found["status"], found["said"]) == ("failed", words)
    assert found["facts"] == {"output": []}


def test_ctrl_c_stops_what_a_check_has_started(tmp_path):
    script = tmp_path / "check.py"
    script.write_text(
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])\n"
        f"pathlib.Path({str(tmp_path / 'id')!r}).write_text(str(child.pid))\n"
        "time.sleep(99)\n"
    )
    calling = (
        f"import signal, sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"import gpu_check; gpu_check.__file__ = {str(script)!r}\n"
        f"sys.exit(gpu_check.main(['--out', {str(tmp_path / 'o.json')!r}]))\n"
    )
    call = subprocess.Popen([sys.executable, "-c", calling], stderr=subprocess.PIPE)
    started = tmp_path / "id"
    while not started.is_file() or not started.read_text():
        time.sleep(0.05)
    call.send_signal(signal.SIGINT)
    assert call.wait(60) == 130 and b"stopped" in call.stderr.read()
    state = Path(f"/proc/{started.read_text()}/status")
    assert not state.is_file() or "State:\tZ" in state.read_text()
    assert json.loads((tmp_path / "o.json").read_text())["stopped"]


# ---- a machine with torch and transformers alone -------------------------------------------------


def needed_by(names):
    """Distributions that these need, with all that those need, without extras."""
    found, left = set(), list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in found:
            continue
        found.add(name)
        for line in metadata.requires(name) or []:
            asked = Requirement(line)
            if asked.marker is None or asked.marker.evaluate({"extra": ""}):
                left.append(asked.name)
    return found


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    """A virtual environment that links to torch, transformers and what they need, and no more: not
    even pydantic, which some versions of their command line bring along.
    """
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in needed_by(gpu_checks.NEEDED) - {"pydantic", "pydantic-core"}:
        there = metadata.distribution(name)
        tops = {file.parts[0] for file in there.files if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(there.locate_file(top))
    return folder


def test_a_bare_machine_runs_it_through_make_and_installs_nothing(bare, tmp_path):
    """`make gpu-check VENV=`: in this environment neither pandas, pyarrow, scipy, pydantic, psutil
    nor gptqmodel are there.
    """
    python = bare / "bin" / "python"
    probe = "import importlib.util as u; print([n for n in {!r} if u.find_spec(n)])"
    asked = [python, "-c", probe.format(gpu_checks.EXTRA)]
    assert subprocess.check_output(asked, text=True).strip() == "[]"
    out = tmp_path / "gpu-check.json"
    given = f"--device cpu --formats float32 --tokens 4 --only text --out {out}"
    call = ["make", "gpu-check", "VENV=", f"PYTHON={python}", f"ARGS={given}"]
    # nothing of the environment that runs the tests shall be found
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    there = sorted(bare.rglob("site-packages/*.dist-info"))
    done = subprocess.run(call, cwd=ROOT, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(bare.rglob("site-packages/*.dist-info")) == there
    results = json.loads(out.read_text())
    assert results["machine"]["facts"]["stand_ins"] == ["psutil", "pydantic"]
    (text,) = results["checks"]
    assert text["status"] == "passed" and list(text["facts"]) == ["float32"]
    assert text["facts"]["float32"]["rows"] == 4 * 3 * 4, "prompts, shapes, tokens"


def test_every_module_of_the_checks_is_to_be_had_there(bare):
    """What the checks import late, too."""
    script = (
        "import sys; sys.path[:0] = ['tests', '.']\n"
        "import gpu_checks, gpu_measure, speclab.ops.decode_file\n"
    )
    call = [bare / "bin" / "python", "-c", script]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- judging -------------------------------------------------------------------------------------


def difference(margin):
    return Difference("target rank", "p0", 3, margin)


@pytest.mark.parametrize(
    ("found", "dtype", "status"),
    [
        (Compared(rows=8), torch.float32, "passed"),
        (Compared(8, 0, 5e-5, [difference(1e-5)]), torch.float32, "reported"),
        (Compared(8, 0, 0.0, [difference(0.05)]), torch.float32, "failed"),
        (Compared(8, 0, 0.0, [difference(0.05)]), torch.float16, "reported"),
        (Compared(8, 0, 0.01), torch.float32, "failed"),
        (Compared(8, 0, float("nan")), torch.float16, "failed"),
        (Compared(8, 0, 0.0, [difference(float("nan"))]), torch.bfloat16, "failed"),
    ],
)
def test_status_by_margin_and_number_format(found, dtype, status):
    assert found.status(dtype) == status


def test_records_that_differ_are_told_with_margins_and_what_hangs_below_is_not_read():
    pair, (prompt,) = toy_pair(), prompts_of([1, 2, 3, 4])
    text = gpu_checks.greedy_text(pair, prompt, 3)
    rows = gpu_compare.rows_of(gpu_checks.recorded(pair, prompt, text))
    equal = gpu_compare.compare_rows(pair, prompt, text, rows, rows)
    assert (equal.rows, equal.unread, equal.gap, equal.differences) == (24, 0, 0.0, [])
    other = [dict(row) for row in rows]
    first, second = other[0], other[1]
    first["token"], second["token"] = second["token"], first["token"]
    other[8]["target_rank"] += 1
    other[9]["target_prob"] += 0.5
    found = gpu_compare.compare_rows(pair, prompt, text, other, rows)
    assert [one.what for one in found.differences] == [
        "drafted token",
        "drafted token",
        "target rank",
    ]
    assert found.unread == 6 and found.gap == pytest.approx(0.5)
    logits = gpu_compare._logits(pair.draft, list(prompt.ids))
    apart = float(abs(logits[first["token"]] - logits[second["token"]]))
    assert found.differences[0].margin == pytest.approx(apart) and apart > 0


# ---- what is measured ----------------------------------------------------------------------------


def test_costs_of_a_pair(monkeypatch):
    monkeypatch.setattr(gpu_measure, "SIZES", (1, 5, 17))
    monkeypatch.setattr(gpu_measure, "tokens_per_s", lambda pair, shape: 10.0)
    found = gpu_measure.costs(toy_pair())
    assert set(found["v"]) == {"1", "5", "17"} and found["v"]["1"] == 1
    assert found["c"] == pytest.approx(found["draft_ms"] / found["target_ms"])
    assert "c = " in gpu_measure.costs_said(found)


def test_as_much_of_the_papers_shapes_as_fits_a_device(monkeypatch):
    def size(gigabytes):
        monkeypatch.setattr(gpu_measure, "free_bytes", lambda device: 1e9 * gigabytes)
        return gpu_measure.size_that_fits("cuda:0", torch.float16)

    whole = size(80)
    assert (whole.layers, whole.draft_layers, whole.block) == (32, 22, 20)
    assert size(24).layers == 32, "7B and 1.1B in float16 take 15.7 GB"
    t4 = size(15)
    assert 8 <= t4.layers < 32
    with pytest.raises(ValueError, match=r"cuda:0: 1\.9 GB are free, too few"):
        size(2)


def test_so_many_prompts_as_the_plan_gives_time_for():
    held = gpu_measure.planned_of(gpu_measure.WHOLE, "cuda:0", torch.float16)
    few = gpu_measure.prompts_in_time(gpu_measure.WHOLE, held, gpu_measure.plan.T4)
    fast = gpu_measure.plan.Speed(1e15, 3e12, 1e-5)
    assert few % 20 == 0 and 20 <= few < 200
    assert gpu_measure.prompts_in_time(gpu_measure.WHOLE, held, fast) == 200

"""Every notebook, found by glob, runs from first cell to last on the tiny pair: the same code path
with fewer prompts and tokens.
"""

import json
import subprocess
import sys

import pytest
from filelock import FileLock

from speclab.profiles import ROOT

NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.py"))
SMALL = ["prompts_per_domain=6", "max_new_tokens=16"]
PARAMETERS = {
    "00_by_hand": ["blocks_each=50"],
    "02_gamma_sweep": ["largest_gamma=4", "decoded_prompts=2"],
    "08_better_drafts": [
        "bit_widths=[4]",
        "calibration_rows=4",
        "train_prompts_per_domain=8",
        "objectives=[total-variation]",
        "seeds=[0, 1]",
        "steps=8",
        "exit_layers=[2]",
        "max_gamma=4",
    ],
    "09_budgets_and_routing": [
        "max_gamma=3",
        "budget=4",
        "requests=40",
        "streams=3",
        "batches=[1, 4]",
        "pass_repeats=3",
        "probe_prompts=1",
        "probe_repeats=1",
        "check_prompts=2",
        "check_repeats=1",
    ],
    "10_wall_clock": [
        "prompts_per_domain_timed=2",
        "new_tokens=12",
        "repeats=2",
        "pass_repeats=3",
        "folds=2",
    ],
    "12_try_it": ["new_tokens=16"],
}


def test_there_are_thirteen_notebooks():
    assert [name[:2] for name in NOTEBOOKS] == [f"{i:02d}" for i in range(13)]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """The runs that the notebooks share, recorded once, whichever worker comes first; they go to
    data/runs, as a user's do.
    """
    script = (
        "from speclab.notebook import quiet; quiet()\nfrom speclab.profiles import load_profile, "
        "parse_overrides\n"
        "from speclab.runs import KINDS, load_or_record\nprofile = load_profile('tiny', "
        f"parse_overrides({SMALL!r}))\n"
        "for kind in KINDS:\n"
        "    if kind != 'plain-template': load_or_record(profile, kind)"
    )
    with FileLock(tmp_path_factory.getbasetemp().parent / "recorded.lock"):
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, recorded, tmp_path):
    chosen = [f"--set={item}" for item in SMALL] + [
        f"--parameter={item}" for item in PARAMETERS.get(name, [])
    ]
    command = [
        sys.executable,
        "-m",
        "speclab",
        "reproduce",
        "--profile",
        "tiny",
        "--notebook",
        name,
        "--out",
        str(tmp_path),
        *chosen,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    stamp = json.loads((tmp_path / "build" / "tiny" / f"{name}.json").read_text())
    assert stamp["status"] == "done" and any(
        file.endswith(".png") for file in stamp["files"]
    )

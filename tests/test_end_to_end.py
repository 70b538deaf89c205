"""Every notebook, found by glob, runs completely on the tiny pair and its shipped traces, and each
of its tables equals the committed one in tests/golden (`make golden` writes them).

`make test` runs the cells in copies of a process that has imported the libraries (see
`same_process`). `make test-full` runs each notebook as a user does, in a kernel.
"""

import gc
import importlib
import io
import json
import os
import pkgutil
import shutil
import subprocess
import sys

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from same_process import use_no_kernel

import speclab
from speclab.__main__ import main
from speclab.cli.run_plan import declared, kinds_named
from speclab.lab import texts
from speclab.logs import specdecode_bench
from speclab.show import figures
from speclab.study import runs
from speclab.study.profiles import ROOT, load_profile
from speclab.study.runs import load_or_record

NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.py"))
GOLDEN = ROOT / "tests" / "golden"
PARAMETERS = {
    "00_by_hand": "draws=200 blocks_each=10",
    "01_load_models": "new_tokens=16",
    "08_better_drafts": "bit_widths=[4] exit_layers=[2] calibration_rows=4 "
    "calibration_prompts_per_domain=4 judged_prompts_per_domain=5 max_gamma=4",
    "10_wall_clock": "prompts_per_domain_timed=1 new_tokens=12 pass_repeats=3 pass_tries=1 folds=2",
    "11_paper_audit": "beside=[]",
    "13_public_runs": "permutations=200 deepest=3 gammas=[1,3] pairs=[tiny,smollm]",
    "14_your_log": "gammas=[1,4] most_requests=60",
}
PARAMETERS_AS_A_USER = {"11_paper_audit": ""}  # with all files of the pairs


@pytest.fixture(scope="session")
def imported(tiny_pair):
    """All that a notebook imports, and the fonts of a figure, here: the copies of this process need
    not do it again.
    """
    importlib.import_module("nbconvert")
    for module in pkgutil.walk_packages(speclab.__path__, "speclab."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    with figures.styled():
        figure, axes = plt.subplots()
        axes.set_title("any")
        for kind in ("pdf", "png"):
            figure.savefig(io.BytesIO(), format=kind)
        plt.close(figure)
    gc.freeze()  # what is here already is looked through no more


@pytest.fixture
def light(imported, monkeypatch):
    """`reproduce` without kernels."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    use_no_kernel(monkeypatch)


def command(name, out, changed):
    """The words of the command line that run one notebook small, its parameters changed so."""
    chosen = ["--set=recorded=[]"]  # all traces of tiny come with the kit
    chosen += [f"--parameter={item}" for item in changed.split()]
    words = ["reproduce", "--profile", "tiny", "--notebook", name, "--out", str(out)]
    return words + chosen


@pytest.fixture(autouse=True)
def only_what_is_shipped(monkeypatch, tmp_path):
    """A clone may hold traces that were fetched, and runs of this machine; the committed tables are
    of the traces that ship.
    """
    monkeypatch.setattr("speclab.study.runs.RUNS", tmp_path / "runs")
    monkeypatch.setenv("SPECLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(specdecode_bench, "read_traces", lambda: None)


def check_done(name, out):
    """Check that a notebook's stamp is good, that it drew something, and that no cell ends in a
    value, because a reader would see Python's representation of it. Returns its first output.
    """
    build = out / "build" / "tiny"
    stamp = json.loads((build / f"{name}.json").read_text())
    book = nbformat.read(build / f"{name}.ipynb", as_version=4)
    shown = [one for cell in book.cells for one in cell.get("outputs", ())]
    assert "execute_result" not in [one.output_type for one in shown]
    assert stamp["status"] == "done"
    assert any((out / "figures").glob(f"*/{name[:2]}/*.png"))
    assert (build / "site" / f"{name}.html").stat().st_size > 10_000
    return next(one.data["text/markdown"] for one in shown if "data" in one)


@pytest.fixture
def asked_for(monkeypatch, tmp_path):
    """A file with a line for each run that a notebook asks for: profile and kind."""
    path = tmp_path / "asked-for.txt"
    path.touch()

    def asking(profile, kind="greedy", engine=None):
        with path.open("a") as lines:
            lines.write(f"{profile.name} {kind}\n")
        return load_or_record(profile, kind, engine)

    for module in (runs, texts):
        monkeypatch.setattr(module, "load_or_record", asking)
    return path


# tables that a clock or a model makes during the test: other processors give other numbers
MADE_HERE = (
    "01/rejected.csv",
    *(f"08/{name}.csv" for name in ("drafts", "first-token", "prompts-needed", "tokens-per-pass")),
    *(f"10/{name}.csv" for name in ("all-prompts", "batches", "copies", "limits", "passes")),
    *(f"10/{name}.csv" for name in ("speed", "ways")),
)
NEAR = ("01/tree.csv", "01/tree-nodes.csv")  # one pass of float32 models: rounding may differ


def check_tables(name, out):
    """Check every table of a notebook against the committed one, number by number. A table of
    MADE_HERE needs the same columns and no infinite number only.
    """
    number = name[:2]
    [folder] = [path for path in (out / "figures").glob(f"*/{number}") if path.is_dir()]
    golden = GOLDEN / number
    written = sorted(path.name for path in folder.glob("*.csv"))
    if os.environ.get("GOLDEN") == "write":
        shutil.rmtree(golden, ignore_errors=True)
        shutil.copytree(folder, golden, ignore=lambda _, names: {*names}.difference(written))
    assert written == sorted(os.listdir(golden))
    for table in written:
        found, expected = (pd.read_csv(where / table) for where in (folder, golden))
        if f"{number}/{table}" in MADE_HERE:
            assert list(found) == list(expected), table
            assert not np.isinf(found.select_dtypes("number")).any(axis=None), table
        else:
            tolerance = 1e-4 if f"{number}/{table}" in NEAR else 1e-9
            assert_frame_equal(found, expected, rtol=1e-6, atol=tolerance)


def test_a_changed_number_is_seen(tmp_path, monkeypatch):
    """The negative control: without it what follows could not fail."""
    golden, folder = tmp_path / "golden", tmp_path / "figures/tiny/02"
    for where, number in ((golden / "02", 0.5), (folder, 0.50001)):
        where.mkdir(parents=True)
        pd.DataFrame({"domain": ["code"], "x": [number]}).to_csv(where / "a.csv", index=False)
    monkeypatch.setattr("test_end_to_end.GOLDEN", golden)
    with pytest.raises(AssertionError, match="x"):
        check_tables("02_gamma_sweep", tmp_path)
    monkeypatch.setattr("test_end_to_end.MADE_HERE", ["02/a.csv"])
    check_tables("02_gamma_sweep", tmp_path)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_its_tables_are_the_committed_ones(
    name, light, asked_for, tmp_path, capfd
):
    status = main(command(name, tmp_path, PARAMETERS.get(name, "")))
    said = capfd.readouterr()
    assert status == 0, said.out[-3000:] + said.err[-3000:]
    check_done(name, tmp_path)
    check_tables(name, tmp_path)
    kinds = kinds_named(load_profile("tiny"), declared(ROOT / "notebooks" / name))
    asked = {*asked_for.read_text().splitlines()}
    assert {line for line in asked if line.startswith("tiny ")} == {f"tiny {k}" for k in kinds}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_runs_as_a_user_runs_it(name, tmp_path):
    """By the command line, in a kernel of its own."""
    changed = PARAMETERS_AS_A_USER.get(name, PARAMETERS.get(name, ""))
    words = [sys.executable, "-m", "speclab", *command(name, tmp_path, changed)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert check_done(name, tmp_path).startswith("**Answer.** "), "the kernel puts it in its place"

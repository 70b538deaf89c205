"""Timing runs: where the costs of a pair come from, and what is no timing run."""

import os

import pandas as pd
import pytest
from conftest import refuses
from frames import shipped
from tools import timing as tool

from speclab.cost import Costs, disturbed
from speclab.explore import page
from speclab.study import runs, timing_runs

FIRST = Costs(40.0, (1, 8), (0.1, 0.2), (1.0, 1.5), 0.05, 0.1)
SECOND = Costs(60.0, (1, 8), (0.2, 0.4), (1.0, 1.7), 0.15, 0.3)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A recorded run of `tiny`, where nothing was timed yet."""
    monkeypatch.setattr(runs, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(timing_runs, "SHIPPED", tmp_path / "shipped")
    return shipped("tiny", "greedy")


def write(run, *rounds):
    return timing_runs.write(run.manifest["weights"], "float32 on the CPU", 2, rounds)


def test_costs_are_given_measured_here_or_assumed(run):
    assumed = timing_runs.costs_for(run)
    assert assumed.costs == Costs.assumed(0.1) and assumed.runs == ()
    assert "Notebook 10 measures" in assumed.source and page.measured_for(run) is None
    write(run, FIRST, SECOND)
    found = timing_runs.costs_for(run)
    assert page.measured_for(run) == found.costs
    assert found.costs.c() == pytest.approx(0.15) and found.costs.v(8) == pytest.approx(1.6)
    assert found.costs.loop(True) == pytest.approx(0.1)
    assert found.costs.loop(False) == pytest.approx(0.2) and found.costs.target_ms == 50
    assert len(found.runs) == 1 and "1 timing run on this machine" in found.source
    assert timing_runs.costs_for(run, 0.3).costs == Costs.assumed(0.3)


def test_timing_runs_of_the_kit_come_first_and_are_added_by_hand(run, tmp_path):
    path = write(run, FIRST)
    (tmp_path / "shipped").mkdir()
    to = tool.add(path, "tiny")
    with refuses("already"):
        tool.add(path, "tiny")
    rows = timing_runs.read_file(to)
    later = rows.assign(when="2031-01-01T00:00", c=2 * rows["c"], machine="another")
    pd.concat([rows, later]).to_csv(to, index=False)
    write(run, SECOND)
    found = timing_runs.costs_for(run)
    assert len(found.runs) == 2 and "2 timing runs that the kit ships" in found.source
    assert [each.c() for each in found.runs] == pytest.approx([0.1, 0.2])
    assert found.costs.c() == pytest.approx(0.15)


def test_another_machine_and_another_pair_are_not_ones_own(run, monkeypatch):
    path = write(run, FIRST)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "cpu_count", lambda: 999)
        assert timing_runs.costs_for(run).runs == ()
    assert len(timing_runs.costs_for(run).runs) == 1
    other = timing_runs.read_file(path).assign(draft="0" * 40)
    other.to_csv(path, index=False)
    assert not len(timing_runs.timing_runs(run.manifest["weights"])[0])


def test_what_is_no_timing_run_is_named(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("a,b\n1,2\n")
    with refuses(r"mine.csv holds no timing run; notebook 10 writes one"):
        timing_runs.read_file(path)


def test_the_shipped_runs_are_enough_for_a_verdict():
    found = timing_runs.costs_for(shipped("smollm", "greedy"))
    assert len(found.runs) >= timing_runs.LEAST_RUNS
    assert all(not disturbed(costs) for costs in found.runs)

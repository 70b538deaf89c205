"""Workers: whichever engine runs the blocks, the run is the same but for rounding, and a worker
killed in the middle loses nothing.
"""

import os
import shutil
import signal
import sys
from dataclasses import replace
from functools import partial

import psutil
import pytest
from conftest import edit_json
from pandas.testing import assert_frame_equal

from speclab.__main__ import main
from speclab.cli.workers import engine_of, record_on_devices, record_on_ray
from speclab.study.recording import Worker
from speclab.study.runs import RunError, record_run


def assert_same(run, other):
    """Equal tables: texts that are written in other groups are rounded otherwise."""
    for name in ("trace", "nodes"):
        assert_frame_equal(getattr(run, name), getattr(other, name), atol=1e-5)


def children():
    """Worker processes below this one, youngest last, but for helpers that compute nothing."""
    return sorted(psutil.Process().children(recursive=True), key=lambda p: p.create_time())


def kill_after_the_first_block(engine, wanted):
    """An engine that kills one of its workers (its command line holds `wanted`) with signal 9 once
    a block is done.
    """

    def run(job, indices):
        killed = False
        for done in engine(job, indices):
            if not killed:
                victims = [p for p in children() if wanted in " ".join(p.cmdline())]
                assert victims, "the test must find a worker, or it proves nothing"
                os.kill(victims[-1].pid, signal.SIGKILL)
                killed = True
            yield done

    return run


def test_two_processes_write_the_same_run(short_profile, short_run, tmp_path, capfd):
    target = shutil.copytree(short_profile.target.path, tmp_path / "target")
    edit_json(target / "generation_config.json", repetition_penalty=1.1)  # is left out
    profile = short_profile.replace(target=replace(short_profile.target, path=str(target)))
    engine = partial(record_on_devices, devices=["cpu", "cpu"])
    run = record_run(profile, tmp_path / "run", engine=engine)
    assert_same(run, short_run)
    assert run.manifest["peak_bytes"]["process"] > 0
    assert capfd.readouterr().out.count("asks for repetition_penalty=1.1") == 1


@pytest.mark.slow
def test_a_process_that_dies_loses_nothing_that_was_done(short_profile, short_run, tmp_path):
    dying = kill_after_the_first_block(partial(record_on_devices, devices=["cpu"]), "spawn_main")
    with pytest.raises(RunError, match="a worker died .*Finished blocks are kept"):
        record_run(short_profile, tmp_path, engine=dying)
    done = len(list((tmp_path / "parts").glob("*.json")))
    assert 1 <= done < 6
    asked = []

    def going_on(job, left):
        asked.extend(left)
        return map(Worker(job, ahead=True).record, left)

    run = record_run(short_profile, tmp_path, engine=going_on)
    assert len(asked) == 6 - done
    assert_same(run, short_run)


@pytest.fixture
def cluster(monkeypatch):
    """A Ray cluster of this machine with two CPUs."""
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # else a busy machine starves its workers
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=100 * 2**20,
    )
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_a_local_ray_cluster_writes_the_same_run_when_a_worker_is_killed(
    short_profile, short_run, tmp_path, cluster
):
    killing = kill_after_the_first_block(partial(record_on_ray, workers=3), "ray::Worker")
    run = record_run(short_profile, tmp_path / "killed", engine=killing)
    assert_same(run, short_run)  # Ray restarts the actor, which repeats its block


def test_what_this_machine_lacks_is_said_first(capsys, tmp_path, monkeypatch):
    assert engine_of("local", [], None) is None
    out = tmp_path / "run"
    assert main(["record", "--devices", "cuda:77", "--out", str(out)]) == 2
    assert "device='cuda:77': this machine has" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["record", "--engine", "ray", "--out", str(out)]) == 2
    assert "pip install 'ray" in capsys.readouterr().err and not out.exists()

"""Real faults: killed processes, full disks, flipped bits, wrong weights, jumping clocks. Nothing
recorded is lost, and nothing damaged is used.
"""

import contextlib
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import tables
from tqdm import tqdm

from speclab.study.runs import RunError, load_run, part_file, record_run


def forked(work):
    """Run `work` in a forked process, which has everything loaded already; its process id."""
    pid = os.fork()
    if pid == 0:
        # processes share tqdm's lock, and one that is killed while it holds it would stop all
        tqdm.set_lock(threading.RLock())
        with contextlib.suppress(BaseException), open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1), os.dup2(nothing.fileno(), 2)
            work()
            os._exit(0)
        os._exit(1)
    return pid


@pytest.mark.parametrize("kills", [12, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_many_times_at_random_moments_it_ends_with_the_same_bytes(
    short_profile, short_run, random_pair, tmp_path, kills
):
    began = time.perf_counter()
    record_run(short_profile, tmp_path / "whole", random_pair)
    usual, whole = time.perf_counter() - began, tables(short_run.folder)
    folder, rng, killed, done = tmp_path / "killed", np.random.default_rng(0), 0, []
    while killed < kills or not any(0 < parts < 6 for parts in done):
        pid = forked(lambda: record_run(short_profile, folder, random_pair))
        time.sleep(rng.uniform(0, 0.5 * usual))
        os.kill(pid, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        done.append(len(list(folder.glob("parts/*.json"))))
        if (folder / "manifest.json").is_file():  # begin again: kills in other places
            assert tables(folder) == whole
            shutil.rmtree(folder)
    record_run(short_profile, folder, random_pair)
    assert tables(folder) == whole and not list(folder.rglob("*.tmp"))


def test_a_disk_that_is_full_loses_nothing(
    short_profile, short_run, random_pair, tmp_path, monkeypatch
):
    """/dev/full refuses every byte with the kernel's own error."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    folder, honest = tmp_path / "full", pq.write_table

    def full(table, path):
        is_blocked = "00003.nodes" in path.name
        honest(table, "/dev/full" if is_blocked else path)

    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", full)
        with pytest.raises(OSError, match="No space left on device"):
            record_run(short_profile, folder, random_pair)
    assert len(list(folder.glob("parts/*.json"))) == 3
    record_run(short_profile, folder, random_pair)
    assert tables(folder) == tables(short_run.folder)


def turned(content, place, bit=4):
    """A file's content with one bit turned."""
    changed = bytearray(content)
    changed[place] ^= 1 << bit
    return bytes(changed)


DAMAGES = {
    "cut": lambda content: content[: len(content) // 2],
    "turned": lambda content: turned(content, len(content) // 2),
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("name", ["nodes.parquet", "trace.parquet", "json"])
@pytest.mark.parametrize("damage", [*DAMAGES, "gone"])
def test_a_damaged_part_is_noticed_and_recorded_again(
    short_profile, short_run, run_copy, random_pair, name, damage, capfd
):
    part = part_file(run_copy, 3, name)
    if damage == "gone":
        part.unlink()
    else:
        part.write_bytes(DAMAGES[damage](part.read_bytes()))
    record_run(short_profile, run_copy, random_pair)
    assert tables(run_copy) == tables(short_run.folder)
    never_was = (name, damage) == ("json", "gone")
    assert ("part 3 in" in capfd.readouterr().err) != never_was


def test_a_part_of_another_run_is_recorded_again(
    short_profile, short_run, run_copy, random_pair, tmp_path, capfd
):
    """The same prompts and complete parts: only the settings differ."""
    warm = short_profile.replace(temperature=1.0)
    other = record_run(warm, tmp_path / "other", random_pair).folder
    for part in (other / "parts").glob("00003.*"):
        shutil.copy(part, run_copy / "parts")
    (run_copy / "manifest.json").unlink()
    record_run(short_profile, run_copy, random_pair)
    assert tables(run_copy) == tables(short_run.folder)
    assert "part 3 in" in capfd.readouterr().err


# bits turned in each file
@pytest.mark.parametrize("flips", [60, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["trace.parquet", "nodes.parquet", "manifest.json"])
def test_no_turned_bit_of_a_finished_run_is_read(name, run_copy, short_run, flips):
    content, rng, refused = (run_copy / name).read_bytes(), np.random.default_rng(14), 0
    for place in rng.integers(len(content), size=flips):
        (run_copy / name).write_bytes(turned(content, place, rng.integers(8)))
        try:
            found = load_run(run_copy)
        except RunError as error:
            assert name in str(error) and "\n" not in str(error)
            refused += 1
        else:  # an e of a number may become an E
            assert name == "manifest.json" and found.manifest == short_run.manifest
    assert refused >= flips - 5


# ---- models --------------------------------------------------------------------------------------

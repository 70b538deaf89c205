"""Which notebook runs next: two at a time, those that measure time after the others (where they
measure, nothing runs beside them: see `turns`), each after those whose tables it reads.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from speclab.ops import plan, sources
from speclab.profiles import ROOT
from speclab.show.notebook import cores_of_this_process

# their numbers are times of this machine: they ask to be alone
TIMED = ("08", "09", "10", "12")
# what others wait for, and what takes longest: 02 decodes, 08 makes its drafts before it measures
EARLY = ("00", "01", "02", "08")
AT_ONCE = 2  # notebooks at once, where nothing else is asked
# of a notebook beside its models: Python, the libraries, the tables of a run
NOTEBOOK_BYTES = 1_000_000_000


def places(asked: int | None) -> int:
    """Notebooks that may run at once: `asked` (default: AT_ONCE), and at most one a core.

    ValueError for less than one.
    """
    if asked is not None and asked < 1:
        raise ValueError(f"--workers {asked}: allowed are whole numbers from 1")
    return min(asked or AT_ONCE, cores_of_this_process())


def number_of(notebook: Path) -> str:
    """The digits before the first underscore of a notebook's name."""
    return notebook.stem.split("_")[0]


def _place(notebook: Path) -> int:
    """Those of EARLY come first, those that measure time last."""
    if number_of(notebook) in EARLY:
        return 0
    return 2 if is_timed(notebook) else 1


def is_timed(notebook: Path) -> bool:
    """Whether a notebook measures time."""
    return number_of(notebook) in TIMED


def waits_for(root: Path, notebooks: Sequence[Path]) -> dict[Path, set[Path]]:
    """Of each notebook those others whose tables it reads."""
    by_number = {number_of(notebook): notebook for notebook in notebooks}
    found = {}
    for notebook in notebooks:
        numbers = {name[:2] for name in sources.tables_read(root, notebook)}
        found[notebook] = {by_number[n] for n in numbers if n in by_number} - {notebook}
    return found


def next_of(
    waiting: Sequence[Path],
    running: Sequence[Path],
    after: Mapping[Path, set[Path]],
    at_once: int,
    idle: Sequence[Path] = (),
) -> Path | None:
    """The notebook that may start now, beside those that run; None where none may.

    after: as of `waits_for`; at_once: how many run at a time. With one, they run as they come.
    idle: those that wait to be alone.
    """
    if not waiting or len(running) >= at_once:
        return None
    if at_once == 1:
        return None if idle else waiting[0]
    unfinished = {*waiting, *running, *idle}
    ready = [notebook for notebook in waiting if not after[notebook] & unfinished]
    if ready:
        return min(ready, key=_place)
    return None if running or idle else waiting[0]


# ---- threads and memory --------------------------------------------------------------------------


def threads(alone: int, at_once: int) -> int:
    """Threads of a notebook that shares the cores with others: at most what it has alone."""
    return min(alone, max(cores_of_this_process() // at_once, 1))


def pair_bytes(profile: Any, gpus: int) -> dict[str, int]:
    """Bytes that a notebook takes at most on each device, its models loaded and recording; of
    models that are not here, or are not known, nothing.
    """
    needs = {"cpu": NOTEBOOK_BYTES}
    specs = (profile.target, profile.draft)
    files = [sources.config_of(ROOT, spec) for spec in specs]
    if not all(files):
        return needs
    try:
        pair = plan.planned_pair(profile, gpus)
    except ValueError:  # the doctor says what is not known of them
        return needs
    for device, need in plan.planned_bytes(profile, pair).items():
        needs[device] = needs.get(device, 0) + need
    return needs


def gpu_bytes() -> list[int]:
    """Free bytes of each GPU, as its driver says; nothing is loaded for that."""
    if not shutil.which("nvidia-smi") or os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return []
    asked = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    done = subprocess.run(asked, capture_output=True, text=True)
    numbers = [line.strip() for line in done.stdout.splitlines()]
    return [int(text) * 2**20 for text in numbers if text.isdecimal()]


def taken_bytes(process_ids: Iterable[int]) -> list[int]:
    """Bytes of memory that each of these processes holds, with those that it started."""
    found = []
    for process_id in process_ids:
        try:
            process = psutil.Process(process_id)
            family = [process, *process.children(recursive=True)]
            found.append(sum(one.memory_info().rss for one in family))
        except psutil.Error:  # it has just ended
            found.append(0)
    return found


class Room:
    """Whether the memory holds one more notebook; that it does not is said once."""

    def __init__(self, profile: Any, say: Callable[[str], None]) -> None:
        self.profile, self.say = profile, say
        self._said = False

    def for_one_more(self, process_ids: Sequence[int]) -> bool:
        """Whether one more fits beside those that run in these processes, when all have taken what
        they may come to need.
        """
        gpus = gpu_bytes()
        needs = pair_bytes(self.profile, len(gpus))
        running = taken_bytes(process_ids)
        count = len(running) + 1
        held = sum(min(taken, needs["cpu"]) for taken in running)
        free = {"cpu": psutil.virtual_memory().available + held}
        free |= {f"cuda:{index}": size for index, size in enumerate(gpus)}
        for device, need in needs.items():
            if count * need > free.get(device, 0):
                self._say(count, device, count * need, free.get(device, 0))
                return False
        return True

    def _say(self, count: int, device: str, need: int, free: int) -> None:
        if self._said:
            return
        self._said = True
        fewer = "one notebook" if count == 2 else f"{count - 1} notebooks"
        self.say(
            f"{fewer} at a time: {count} at once may take {need / 1e9:.1f} GB of {device} memory, "
            f"{free / 1e9:.1f} GB are free"
        )

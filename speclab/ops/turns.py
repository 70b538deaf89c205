"""Quiet for notebooks that measure time, while others run in processes of their own.

Every notebook of a call holds its place in one file, shared; one that is about to measure asks for
the place alone (`notebook.alone`), and has it when the others have ended or wait for it too. Until
it has ended no other begins. (Locks of the operating system: what is killed leaves none behind.)
"""

import contextlib
import fcntl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from speclab.show.notebook import ASKS

POLL_S = 0.05


def waits(folder: Path, name: str) -> bool:
    """Whether a notebook has asked for its place alone, and does not have it yet."""
    return _question(folder, name).exists()


def _question(folder: Path, name: str) -> Path:
    return folder / f".{name}.asks"


@contextlib.contextmanager
def turn(folder: Path, name: str) -> Iterator[dict[str, str]]:
    """The place of one notebook for the time of a block, waited for while another has it alone;
    gives the environment with which its kernel asks for it alone.

    folder: of all notebooks of a call.
    """
    asks, over = _question(folder, name), threading.Event()
    asks.unlink(missing_ok=True)
    with (folder / ".turn").open("a") as place:
        fcntl.flock(place, fcntl.LOCK_SH)
        granting = threading.Thread(
            target=_grant, args=(place, asks, over), daemon=True
        )
        granting.start()
        try:
            yield {ASKS: str(asks.resolve())}
        finally:
            over.set()
            asks.unlink(missing_ok=True)


def _grant(place, asks: Path, over: threading.Event) -> None:
    """Wait until the kernel asks; answer when the place is its alone, by taking the question
    away.
    """
    while not asks.exists():
        if over.wait(POLL_S):
            return
    fcntl.flock(place, fcntl.LOCK_UN)  # two that wait for each other both let go
    while not over.is_set():
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            asks.unlink(missing_ok=True)
            return
        time.sleep(POLL_S)

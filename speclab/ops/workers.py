"""Jobs in processes of their own, each with a line of progress on the terminal, all of them stopped
cleanly.

A process, because papermill moves the working directory of the process it runs in.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

PATIENCE_S = 30  # for a job to end its kernel, before it is killed
SAID, ENDED, RAISED = "said", "ended", "raised"


class Died(RuntimeError):
    """A job's process ended without a result."""


# ---- on the terminal -----------------------------------------------------------------------------


@dataclass
class Lines:
    """The last lines of a terminal: one for each running job, by name. Where standard error is no
    terminal they are not shown.
    """

    texts: dict[str, str] = field(default_factory=dict)
    drawn: int = 0

    def show(self, name: str, text: str) -> None:
        """Let this be the line of a job."""
        self.texts[name] = text
        self._clear()
        self._draw()

    def drop(self, name: str) -> None:
        """A job has no line any more."""
        self.texts.pop(name, None)
        self._clear()
        self._draw()

    def print(self, line: str) -> None:
        """Print a line that stays, above those of the jobs."""
        self._clear()
        print(line, flush=True)
        self._draw()

    def _draw(self) -> None:
        if not sys.stderr.isatty():
            return
        width = shutil.get_terminal_size().columns - 1
        lines = [f"{name}: {text}"[:width] for name, text in self.texts.items()]
        sys.stderr.write("\n".join(lines))
        sys.stderr.flush()
        self.drawn = len(lines)

    def _clear(self) -> None:
        if not self.drawn:
            return
        sys.stderr.write("\r\x1b[K" + "\x1b[1A\x1b[K" * (self.drawn - 1))
        sys.stderr.flush()
        self.drawn = 0


class Relay:
    """A file that passes progress bars (text with a carriage return) on to `say`, each in its last
    state; other text is dropped.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def write(self, text: str) -> None:
        """Say the last state of a progress bar."""
        last = text.replace("\n", "").rsplit("\r", 1)[-1].strip()
        if "\r" in text and last:
            self.say(last)

    def flush(self) -> None:
        """Nothing is held back."""


# ---- in the job's process ------------------------------------------------------------------------


def _work(pipe: Connection, job: Callable[..., Any], arguments: tuple) -> None:
    """Do a job and send what it returns, or the error that ended it; nothing when it is stopped."""
    # Ctrl-C reaches every process of the terminal: the first one decides, and stops the others
    signal.signal(signal.SIGINT, _ignore)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        result = job(*arguments, lambda text: pipe.send((SAID, text)))
        pipe.send((ENDED, result))
    except KeyboardInterrupt:
        return
    except Exception as error:
        pipe.send((RAISED, error))


STOPS = {signal.SIGINT, signal.SIGTERM}


def _ignore(*_: Any) -> None:
    """Unlike SIG_IGN not handed on to a kernel."""


def _stop(*_: Any) -> None:
    signal.signal(signal.SIGTERM, _ignore)  # what is being cleaned up is not cut off
    raise KeyboardInterrupt


def _stop_with_parent() -> None:
    """A job whose starter was killed has nobody to report to."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


# ---- in the process that starts them -------------------------------------------------------------


class Workers:
    """Jobs that run now; on leaving the block those that still run are stopped."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self._jobs: dict[Connection, tuple[str, Any]] = {}
        # on Linux a copy of this process, which has read its modules; elsewhere a new one
        way = "fork" if sys.platform == "linux" else "spawn"
        self._processes = multiprocessing.get_context(way)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    @property
    def names(self) -> list[str]:
        """Names of the jobs that run."""
        return [name for name, _ in self._jobs.values()]

    @property
    def process_ids(self) -> list[int]:
        """Ids of their processes."""
        return [process.pid for _, process in self._jobs.values()]

    def start(self, name: str, job: Callable[..., Any], *arguments: Any) -> None:
        """Start `job(*arguments, say)`, `say` being a function that shows its progress."""
        receiver, sender = self._processes.Pipe(duplex=False)
        process = self._processes.Process(
            target=_work, args=(sender, job, arguments), name=name
        )
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            process.start()  # it sets its own handlers, and only then takes signals
            self._jobs[receiver] = name, process
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sender.close()  # a process that dies is then seen
        self.lines.show(name, "starting")

    def wait(self, timeout_s: float | None = None) -> tuple[str, Any] | None:
        """The next job that ends: its name, and what it returned. What it raised is raised here.

        Died, as a value, where its process ended without a word; None where for timeout_s no job
        said anything.
        """
        while True:
            ready = wait(list(self._jobs), timeout_s)
            if not ready:
                return None
            for pipe in ready:
                name, process = self._jobs[pipe]
                try:
                    kind, said = pipe.recv()
                except EOFError:
                    kind, said = ENDED, None
                if kind == SAID:
                    self.lines.show(name, said)
                    continue
                del self._jobs[pipe]
                self.lines.drop(name)
                _end(process)
                if kind == RAISED:
                    raise said
                return name, _died(process) if said is None else said

    def stop(self) -> None:
        """Stop all jobs, and wait until they have ended what they started."""
        left = [process for _, process in self._jobs.values()]
        for process in left:
            process.terminate()
        try:
            for process in left:
                process.join(PATIENCE_S)
        finally:  # also when Ctrl-C comes again
            for process in left:
                _end(process, 0)
            for name in self.names:
                self.lines.drop(name)
            self._jobs.clear()


def _end(process: Any, patience_s: float = PATIENCE_S) -> None:
    process.join(patience_s)
    if process.is_alive():
        process.kill()
        process.join()


def _died(process: Any) -> Died:
    code = process.exitcode
    why = f"by signal {-code}" if code < 0 else f"with status {code}"
    return Died(f"its process was ended {why} (out of memory?)")

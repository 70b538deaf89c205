"""A notebook's cells run in a shell of the process that was forked for it, in place of a kernel's:
what every new kernel imports first takes longer than most of our notebooks do when they are small.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import nbformat
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output
from papermill.engines import Engine, papermill_engines

from speclab.ops import reproduce


class SameProcess(Engine):
    """What papermill calls to run the cells of a notebook."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: Any, kernel_name: str, **options: Any
    ) -> None:
        """Run cell by cell, up to the first that fails."""
        shell = InteractiveShell.instance()
        for index, cell in enumerate(nb_man.nb.cells):
            if cell.cell_type != "code":
                continue
            nb_man.cell_start(cell, index)
            with capture_output() as said:
                shell.display_trap.hook = sys.displayhook  # the last line's value too
                found = shell.run_cell(cell.source)
            cell.execution_count = index
            cell.outputs = outputs(said)
            error = found.error_before_exec or found.error_in_exec
            if error:
                cell.outputs.append(told(error, shell))
                nb_man.cell_exception(cell, index)
                return
            nb_man.cell_complete(cell, index)


def outputs(said: CapturedIO) -> list[Any]:
    """What a cell printed and displayed, as a notebook keeps it."""
    printed = [("stdout", said.stdout), ("stderr", said.stderr)]
    streams = [
        nbformat.v4.new_output("stream", name=name, text=text)
        for name, text in printed
        if text
    ]
    displayed = [
        nbformat.v4.new_output("display_data", data=one.data, metadata=one.metadata)
        for one in said.outputs
    ]
    return streams + displayed


def told(error: BaseException, shell: InteractiveShell) -> Any:
    """An error, as a notebook keeps it."""
    lines = shell.InteractiveTB.structured_traceback(
        type(error), error, error.__traceback__
    )
    return nbformat.v4.new_output(
        "error", ename=type(error).__name__, evalue=str(error), traceback=lines
    )


@contextlib.contextmanager
def no_kernel(
    session: reproduce.Session, threads: int, variables: dict[str, str] | None = None
) -> Iterator[None]:
    """In place of `reproduce.kernel`: the same variables, set in this very process."""
    with tempfile.TemporaryDirectory() as folder:
        named = reproduce._environment(session, folder, threads)
        os.environ |= named | (variables or {})
        papermill_engines.register(None, SameProcess)
        yield

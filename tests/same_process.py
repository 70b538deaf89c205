"""Run a notebook's cells in a shell in a copy of this process instead of a kernel. A new kernel's
imports take longer than most of our small notebooks.
"""

import multiprocessing

import nbformat
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from papermill.engines import Engine, papermill_engines

from speclab.run import reproduce

FORK = multiprocessing.get_context("fork")


class SameProcess(Engine):
    """What papermill calls to run the cells of a notebook."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, **options):
        """Run cell by cell, up to the first that fails."""
        receiver, sender = FORK.Pipe(duplex=False)
        process = FORK.Process(target=run_cells, args=(nb_man.nb.cells, sender))
        process.start()
        sender.close()
        try:
            nb_man.nb.cells = receiver.recv()
        except EOFError:
            raise RuntimeError("Kernel died") from None
        finally:
            process.join()


def run_cells(cells, sender):
    """Run the cells here, up to the first that fails, and send them with their outputs."""
    shell = InteractiveShell.instance()
    for index, cell in enumerate(cells):
        if cell.cell_type != "code":
            continue
        values = []
        with capture_output() as said:
            shell.display_trap.hook = values.append  # the last line's value
            found = shell.run_cell(cell.source)
        cell.execution_count = index
        cell.outputs = outputs(said)
        for value in values:
            if value is not None:
                data, _ = shell.display_formatter.format(value)
                result = nbformat.v4.new_output("execute_result", data, execution_count=index)
                cell.outputs.append(result)
        if error := found.error_before_exec or found.error_in_exec:
            cell.outputs.append(told(error, shell))
            break
    sender.send(cells)


def outputs(said):
    """What a cell printed and displayed, as a notebook keeps it."""
    printed = [("stdout", said.stdout), ("stderr", said.stderr)]
    streams = [
        nbformat.v4.new_output("stream", name=name, text=text) for name, text in printed if text
    ]
    displayed = [
        nbformat.v4.new_output("display_data", data=one.data, metadata=one.metadata)
        for one in said.outputs
    ]
    return streams + displayed


def told(error, shell):
    """An error, as a notebook keeps it."""
    lines = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
    return nbformat.v4.new_output(
        "error", ename=type(error).__name__, evalue=str(error), traceback=lines
    )


def use_no_kernel(patch):
    """Let papermill run cells, and `make reproduce` record, in copies of this process."""
    patch.setattr(reproduce, "get_context", lambda _: FORK)
    for variable in ("JUPYTER_PATH", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "SPECLAB_OUT"):
        patch.setenv(variable, "")  # so that it is as before at the end
    patch.setitem(papermill_engines._engines, None, SameProcess)

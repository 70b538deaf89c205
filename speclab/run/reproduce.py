"""`make reproduce`: run the numbered notebooks, each only if something it depends on has changed.

Two notebooks run at once. Notebooks that read the tables of others run after them (`turns_of`). A
cell that measures time is tagged `timed` and runs while no other cell does (`Turn`). Each notebook
gets a kernel of this interpreter at the root of the repository. Its results are
build/<profile>/NN_name.ipynb, the HTML page, and a stamp NN_name.json. At the end of a call the
notebook is also written as Markdown, in README.md of its figures' folder. A failed notebook is kept
as NN_name.failed.ipynb. A notebook that lacks models or files is not a failure, and its figures
stay as they are. After an interruption, the same command continues from the stamps.

A change in the code that draws figures (DRAWING) makes no notebook stale. The figures are redrawn
from their data.

The figures of a notebook are replaced all together. While it runs, its earlier figures are kept in
the folder NN.before. They are restored unless the notebook succeeds; after a kill, the next call
restores them.

One hash covers everything that a notebook's outcome depends on (`digest`). Code counts as its
syntax tree without docstrings, for the notebook and for the modules that it imports. The files that
this code reads are declared in a list of plain texts called READS, at the top of a module or in a
notebook's cell of imports: `READS = ["data/paper", "08/drafts.csv"]` (`names_read`).
"""

import ast
import base64
import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import papermill
import psutil
from ipykernel.kernelspec import write_kernel_spec
from papermill.exceptions import PapermillExecutionError
from tqdm import tqdm

import speclab
from speclab.cli import pair
from speclab.cli.run_plan import FORMER, chosen, declared, fetch_models, kinds_named
from speclab.explore import page as explorer
from speclab.models.folder import ModelFolder, cached
from speclab.models.hub import ModelsMissing
from speclab.plain import digest_of, one_line, sha256_of
from speclab.run import pages, report
from speclab.run.pages import cells_of
from speclab.run.parameters import (
    OF_PAIR,
    Parameter,
    check_names,
    check_values,
    parameters_of,
    without_gone,
)
from speclab.run.report import DONE, FAILED
from speclab.show import notebook as kit
from speclab.show import redraw
from speclab.study import timing_runs
from speclab.study.place import folder_of
from speclab.study.profiles import MODELS, ROOT, Profile, load_profile, profile_names
from speclab.study.prompts import HUB_SETS, MIRROR
from speclab.study.runs import (
    BENCH,
    PLACE,
    Damaged,
    RunError,
    locked,
    read_facts,
    sets_asked,
    sizes_of,
    write_facts,
)

LOADING = "speclab/models/pairs.py"  # a notebook that loads the pair imports this module
TIMED = "timed"  # tag of a cell that measures time: no other cell runs meanwhile
# modules that only draw figures from their data: after a change no notebook needs to run again
DRAWING = tuple(f"speclab/show/{name}.py" for name in ("style", "figures", "drawings"))
# modules that change no outcome: where a notebook runs, and what only an open notebook shows
NOT_FOLLOWED = ("speclab/cli/hosted.py", "speclab/explore/", *DRAWING)
PICTURES = re.compile(r"\]\(\.\./figures/[^/]+/")  # a figure in the text of a notebook
BEFORE, REPLACED = ".before", ".replaced"  # suffixes of folders with earlier figures
FOLDERS = ("SPECLAB_MODELS", MIRROR, PLACE, "SPECLAB_AUTHOR_RECORDS")
SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# errors that a notebook raises if it lacks models or files
NEEDS = {
    "ModelsMissing": report.NEEDS_MODELS,
    "FilesMissing": report.NEEDS_FILES,
    "LeftOut": report.LEFT_OUT,
}
TIMING_RUNS = timing_runs.SHIPPED.relative_to(ROOT).as_posix()  # in READS of who uses them


@dataclass(frozen=True)
class Code:
    """A Python file: its syntax `tree` as text, the files that its imports may run, and the entries
    of its READS lists.
    """

    tree: str
    imports: list[str]
    reads: list[str]


@dataclass(frozen=True)
class Notebook:
    """A numbered notebook: its cells (`cells_of`), its code and that of the imported modules by
    path, its parameters, their values in this call, and whether a cell measures time.
    """

    path: Path
    cells: list
    code: dict[str, Code]
    known: dict[str, Parameter]
    values: dict[str, Any]
    is_timed: bool

    @property
    def name(self) -> str:
        """The name without suffix, such as 02_gamma_sweep."""
        return self.path.stem

    @property
    def reads(self) -> set[str]:
        """The entries of READS in its code, without the notebook's own tables."""
        declared = chain.from_iterable(code.reads for code in self.code.values())
        return {text for text in declared if text[:2] != self.name[:2]}


@dataclass(frozen=True)
class Stamp:
    """The outcome of a notebook's last run.

    seconds: without the time spent waiting for other notebooks. kept: checksums by name of the
    figures and tables from the last successful run. given: the arguments `profile`, `overrides` and
    `changes` of `open_call`. style: digest of the code that drew the figures (`style_digest`).
    """

    name: str
    status: str
    seconds: float
    digest: str
    kept: dict[str, str]
    given: dict[str, Any]
    error: str = ""
    style: str = ""


@dataclass(frozen=True)
class Call:
    """One call of `make reproduce`.

    It has the checked profile, the notebooks to run, why requested notebooks are left out, the
    folders for pages and for figures, and the arguments `given` (as in `Stamp`). `current` and
    `ran` are the stamps by name of notebooks that were up to date and of those that ran. `stopped`
    is set when the call is interrupted.
    """

    profile: Profile
    notebooks: list[Notebook]
    left_out: dict[str, str]
    build: Path
    figures: Path
    given: dict[str, Any]
    current: dict[str, Stamp] = field(default_factory=dict)
    ran: dict[str, Stamp] = field(default_factory=dict)
    stopped: threading.Event = field(default_factory=threading.Event)

    def page(self, name: str, end: str) -> Path:
        """Path of a notebook's page with the suffix `end`."""
        return self.build / f"{name}.{end}"

    def exported(self, name: str) -> Path:
        """The folder of a notebook's figures and tables."""
        return kit.drawn_in(self.figures, name)

    def stamp(self, name: str) -> Stamp | None:
        """The stamp of a notebook's last run; None if it is missing or was edited."""
        try:
            facts = read_facts(self.page(name, "json"), "run the notebook again")
            del facts["files"]  # always empty in a stamp
            return Stamp(**facts)
        except (Damaged, TypeError):
            return None

    def seconds(self, notebook: Notebook) -> float:
        """Duration of a notebook's last run in seconds; 0 if unknown."""
        stamp = self.stamp(notebook.name)
        return stamp.seconds if stamp else 0

    def is_current(self, stamp: Stamp, now: str) -> bool:
        """True if the last run had the same inputs and everything it wrote is unchanged, or if it
        needed models that are still missing.
        """
        if stamp.digest != now or stamp.status == FAILED:
            return False
        if stamp.status in (report.NEEDS_FILES, report.LEFT_OUT):
            return True
        if stamp.status == report.NEEDS_MODELS:
            return bool(pair.missing(self.profile))
        if stamp.given["changes"].get("timing") == "new":  # measures once more
            return False
        files = content(self.exported(stamp.name) / file for file in stamp.kept)
        pages = [self.page(stamp.name, end) for end in ("ipynb", "html")]
        return dict(files) == stamp.kept and all(page.is_file() for page in pages)


# ---- the call ------------------------------------------------------------------------------------


def open_call(
    profile: str, wanted: Sequence[str], overrides: dict, changes: dict, out: Path | None = None
) -> Call:
    """Check the arguments of `make reproduce`.

    profile: a name or a YAML file. wanted: notebooks by number or name; empty means all. overrides:
    of the profile's parameters. changes: of the notebooks' parameters. out: the folder for build/
    and figures/ (default: the repository). Raises ValueError for unknown names, for values that are
    not allowed, for prompts that cannot be read, and for a notebook that differs from its source.
    """
    if profile.endswith((".yaml", ".yml")):
        profile = str(Path(profile).resolve())
    settings = load_profile(profile, overrides)
    overrides = found(overrides, settings)
    for variable in FOLDERS:
        named_folder(variable)
    sets_asked(settings, sizes_of(settings))
    # what the profile sets in single notebooks
    of_notebooks: dict[str, Any] = {}
    for name, values in settings.notebooks.items():
        (path,) = chosen([name], ROOT)
        there = without_gone(values, parameters_of(path), f"{settings.name}: {name}")
        check_names(there, notebook_of(path, there).known)
        of_notebooks[path.stem] = of_notebooks.get(path.stem, {}) | there
    # the wanted notebooks; this call's parameters go before the profile's
    of_pair = {"profile": profile, "overrides": overrides}
    notebooks: list[Notebook] = []
    left_out: dict[str, str] = {}
    known: dict[str, Parameter] = {}
    for path in chosen(wanted, ROOT):
        of_profile = of_notebooks.get(path.stem, {})
        notebook = notebook_of(path, of_profile | changes | of_pair)
        check_twin(notebook)
        judged = notebook.values.get("judged_prompts_per_domain", 0)
        known |= notebook.known
        if reason := kit.lacks(notebook.name, settings, judged):
            left_out[notebook.name] = reason
        else:
            notebooks.append(notebook)
    check_names(changes, known)
    if not notebooks:
        reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
        raise ValueError(f"no notebook is left to run: {reasons}")
    place = (out or ROOT).resolve()
    build, figures = place / "build" / settings.name, place / "figures" / settings.name
    given = of_pair | {"changes": changes}
    return Call(settings, notebooks, left_out, build, figures, given)


def text_parameters(wanted: Sequence[str]) -> set[str]:
    """The parameters of these notebooks (empty means all) whose values are texts."""
    parameters = [parameters_of(path) for path in chosen(wanted, ROOT)]
    return {name for known in parameters for name in known if isinstance(known[name].default, str)}


def found(overrides: dict, profile: Profile) -> dict:
    """The overrides with the paths of the profile, because kernels run in another folder."""
    named: dict[str, Any] = {"prompts": profile.prompts, "traces": profile.traces}
    named["other_prompts"] = list(profile.others)
    for model in MODELS:
        named[f"{model}.path"] = getattr(profile, model).path
        if isinstance(overrides.get(model), str):
            named[model] = getattr(profile, model).path
    return overrides | {name: named[name] for name in overrides if name in named}


def named_folder(variable: str) -> list[Path]:
    """The folder that an environment variable names, as a list of at most one. The variable is made
    absolute. Raises ValueError if the folder does not exist.
    """
    folder = folder_of(variable)
    if not folder:
        return []
    folder = folder.absolute()
    if not folder.is_dir():
        raise ValueError(f"{variable}={folder}: no such folder; name one, or unset it")
    os.environ[variable] = str(folder)
    return [folder]


def notebook_of(path: Path, given: dict[str, Any]) -> Notebook:
    """A notebook with the given values of its parameters. Raises ValueError if the file is not a
    notebook, if a value is not allowed, and if its code is not valid Python.
    """
    try:
        book = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat and its schema have many kinds
        raise ValueError(
            f"{path} is not a notebook ({type(error).__name__}); `make notebooks` writes it from "
            "its .py"
        ) from None
    cells = cells_of(book)
    known = parameters_of(path)
    values = {name: given.get(name, parameter.default) for name, parameter in known.items()}
    check_values(values, known)
    source = "\n".join(text for kind, text, _ in cells if kind == "code")
    try:
        code = followed(path.name, source)
    except SyntaxError as error:
        raise ValueError(
            f"{error.filename}, line {error.lineno}: {error.msg}; fix it, then run again"
        ) from None
    is_timed = any(map(measures_time, book.cells))
    return Notebook(path, cells, code, known, values, is_timed)


def measures_time(cell: nbformat.NotebookNode) -> bool:
    """True if a cell has the tag TIMED."""
    return TIMED in cell.metadata.get("tags", ())


def check_twin(notebook: Notebook) -> None:
    """Raise ValueError if the .ipynb, which runs, and its .py have different cells. File times
    cannot show which of the two was edited, because a checkout or an autosave changes them too.
    """
    name = notebook.path.name
    source, number = notebook.path.with_suffix(".py"), name[:2]
    if source.is_file() and cells_of(jupytext.read(source)) != notebook.cells:
        raise ValueError(
            f"{source} and {name} differ: `make notebooks NOTEBOOKS={number}` keeps the .py "
            f"and writes the .ipynb from it, `make sources NOTEBOOKS={number}` keeps the .ipynb"
        )


# ---- what an outcome depends on ------------------------------------------------------------------


def digest(call: Call, notebook: Notebook) -> str:
    """SHA-256 of everything that a notebook's outcome depends on. Tables of other notebooks are
    looked for in this call's folder and in the repository, under the profile's name and under the
    names of the profiles that the notebook reads.
    """
    names = names_read(call, notebook)
    shipped = profile_names()
    profiles = [call.profile, *(load_profile(name) for name in names if name in shipped)]
    roots = [ROOT]
    for figures in (call.figures.parent, ROOT / "figures"):
        roots += [figures / profile.name for profile in profiles]
    places = [root / name for root in roots for name in names]
    values = {name: value for name, value in notebook.values.items() if name not in OF_PAIR}
    code = {path: module.tree for path, module in notebook.code.items()}
    files = content([ROOT / "requirements.lock", *places])
    studied = [inputs(profile) for profile in profiles]
    python = sys.version_info[:2]
    return digest_of([notebook.cells, code, studied, values, files, python])


def style_digest() -> str:
    """SHA-256 of the code that draws figures from their data (DRAWING)."""
    there = [path for path in DRAWING if (ROOT / path).is_file()]
    trees = [code_of(path, (ROOT / path).read_text(encoding="utf-8")).tree for path in there]
    return digest_of(dict(zip(there, trees, strict=True)))


def names_read(call: Call, notebook: Notebook) -> list[str]:
    """Files, folders and profiles that a notebook declares in READS. `{target}` becomes the path of
    the profile's target, `{beside}` each value of the parameter `beside`, and `$NAME` an
    environment variable.
    """
    names = []
    for text in sorted(notebook.reads):
        value = notebook.values.get(text.strip("{}"), text)
        names += value if isinstance(value, list) else [value]
    target = call.profile.target.path
    filled = [os.path.expandvars(name.replace("{target}", target)) for name in names]
    return [name for name in filled if name]


def followed(name: str, source: str) -> dict[str, Code]:
    """Code by path, of the notebook and of the repository's modules that it imports, directly or
    indirectly, including lazy imports. Raises SyntaxError if code is not valid Python.
    """
    code = {name: code_of(name, source)}
    waiting = list(code[name].imports)
    while waiting:
        path = waiting.pop()
        is_new = path not in code and not path.startswith(NOT_FOLLOWED)
        if is_new and (ROOT / path).is_file():
            code[path] = code_of(path, (ROOT / path).read_text(encoding="utf-8"))
            waiting += code[path].imports
    return code


def modules_of(name: str) -> list[str]:
    """The modules that an imported name may stand for: `speclab` itself offers some names."""
    head, _, last = name.rpartition(".")
    offered = speclab.__all__ if name == "speclab" else [last] if head == "speclab" else []
    return [name, *(f"speclab.{speclab.MODULE_OF.get(one, one)}" for one in offered)]


@lru_cache(maxsize=512)
def code_of(path: str, text: str) -> Code:
    """A file without comments, layout and docstrings, which change no outcome. Raises SyntaxError
    if it is not valid Python.
    """
    module = ast.parse(text, path)
    names, reads = [], []
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "READS":
            try:
                listed = ast.literal_eval(node.value)
                if not isinstance(listed, list):
                    raise ValueError
                reads += listed
            except ValueError:
                where = (path, node.lineno, None, None)
                raise SyntaxError("READS must be a list of plain texts", where) from None
        elif isinstance(node, SCOPES) and ast.get_docstring(node) is not None:
            del node.body[0]
    imports = []
    for name in chain.from_iterable(map(modules_of, names)):
        for place in accumulate(name.split("."), "{}/{}".format):  # and its parent packages
            imports += [f"{place}.py", f"{place}/__init__.py"]
    return Code(ast.dump(module), imports, reads)


def inputs(profile: Profile) -> list[Any]:
    """The profile and the files it refers to: weights (weights still to be made count as made), the
    models' settings, prompts, and manifests of shipped traces. Nothing is downloaded.
    """
    places = [ROOT / name for name in (profile.prompts, *profile.others)]
    fetched = HUB_SETS.get(profile.prompts, {})  # revisions are pinned, so only local copies vary
    for mirror in named_folder(MIRROR):
        places += [mirror / dataset.name for dataset in fetched.values()]
    shipped = [ROOT / profile.traces] if profile.traces else []
    for folder in [*named_folder(PLACE), *shipped]:
        places += [*folder.rglob("manifest.json"), *folder.glob(BENCH)]
    facts: list[Any] = [profile]
    for spec in (profile.target, profile.draft):
        if model := ModelFolder.local(spec):
            facts.append(model.digest)
            places += [path for path in model.path.rglob("*") if path.suffix != ".safetensors"]
        else:
            facts.append(cached(spec.path, spec.revision))
    return [*facts, content(places)]


def content(places: Iterable[Path]) -> list[tuple[str, str]]:
    """(name, SHA-256) of files, and of all files in folders. Missing paths are skipped."""
    files = set()
    for place in places:
        paths = [place] if place.is_file() else place.rglob("*")
        files |= {path.resolve() for path in paths if path.is_file()}
    kept = [path for path in files if "__pycache__" not in path.parts]
    return sorted((path.name, sha256_of(path)) for path in kept)


# ---- one notebook --------------------------------------------------------------------------------


class Room:
    """A limit on the cells that run at once: one seat per running notebook."""

    def __init__(self, seats: int):
        self.seats = seats
        self.free, self.door = threading.Semaphore(seats), threading.Lock()


@dataclass
class Turn:
    """A notebook's use of a room. It holds one seat while it works. A cell that measures time takes
    all seats. It waits until the running cells of other notebooks have ended, and their next cells
    wait for it.

    waited: seconds spent waiting for seats.
    """

    room: Room
    held: int = 0
    waited: float = 0.0

    def take(self, seats: int) -> None:
        """Leave, then wait for this many seats. Meanwhile no other notebook can take one."""
        self.leave()
        begun = time.monotonic()
        with self.room.door:
            for _ in range(seats):
                self.room.free.acquire()
        self.held = seats
        self.waited += time.monotonic() - begun

    def leave(self) -> None:
        """Release all seats."""
        for _ in range(self.held):
            self.room.free.release()
        self.held = 0

    def before(self, cell: nbformat.NotebookNode, cell_index: int) -> None:
        """Called by nbclient before each code cell."""
        self.take(self.room.seats if measures_time(cell) else 1)


def move_aside(folder: Path) -> None:
    """Move the figures of the previous run aside, and create an empty folder."""
    put_back(folder)
    folder.mkdir(parents=True, exist_ok=True)
    folder.rename(folder.with_suffix(BEFORE))
    folder.mkdir()


def replace_figures(folder: Path, written_before: Iterable[str]) -> None:
    """Replace the earlier figures with those of this run. Files that the earlier run did not write
    are kept. The last step is a rename, so an interruption cannot leave a mixture.
    """
    earlier = folder.with_suffix(BEFORE)
    for path in earlier.iterdir():
        place = folder / path.name
        if path.name not in written_before and not place.exists():
            copy = shutil.copytree if path.is_dir() else shutil.copy2
            copy(path, place)
    earlier.rename(folder.with_suffix(REPLACED))


def put_back(folder: Path) -> None:
    """Undo a run that did not succeed: restore the earlier figures if they were moved aside. Also
    remove figures that a run has replaced.
    """
    earlier = folder.with_suffix(BEFORE)
    if earlier.is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        earlier.rename(folder)
    shutil.rmtree(folder.with_suffix(REPLACED), ignore_errors=True)


def put_all_back(call: Call) -> None:
    """Undo the unfinished runs of a killed call."""
    for path in chosen([], ROOT):
        folder = call.exported(path.stem)
        if folder.with_suffix(BEFORE).is_dir():
            with figures_locked(call, folder):
                put_back(folder)


def figures_locked(call: Call, folder: Path) -> contextlib.AbstractContextManager[None]:
    """A lock on the pair whose figures a notebook writes. A call already holds the lock of its own
    pair from start to end.
    """
    build = call.build.with_name(folder.parent.name)
    return contextlib.nullcontext() if build == call.build else locked(build)


def run_one(call: Call, notebook: Notebook, now: str, room: Room) -> None:
    """Run a notebook, then put its pages, figures and stamp in place and remove figures that it no
    longer writes. If the run does not succeed, figures and tables stay as they were. If it is
    interrupted, pages and stamp stay too, and the error is raised again.
    """
    name, folder = notebook.name, call.exported(notebook.name)
    earlier = call.stamp(name)
    files = earlier.kept if earlier else {}
    with figures_locked(call, folder):
        # the earlier figures stand aside and come back whole if the notebook fails
        turn, begun = Turn(room), time.monotonic()
        turn.take(1)
        try:
            move_aside(folder)
            status, error = execute(call, notebook, turn)
            if status == DONE:
                written = dict(content([folder]))
                replace_figures(folder, files)
                files = written
        finally:
            turn.leave()
            put_back(folder)
    spent = time.monotonic() - begun - turn.waited
    changes = {n: value for n, value in call.given["changes"].items() if n in notebook.known}
    given = call.given | {"changes": changes}
    stamp = Stamp(name, status, spent, now, files, given, error, style_digest())
    write_facts(call.page(name, "json"), asdict(stamp), [])
    call.ran[name] = stamp
    tell(stamp, status)


def is_in_style(call: Call, stamp: Stamp) -> bool:
    """True if the figures of an up-to-date notebook match the current drawing code; if they do not,
    they are redrawn. False if the current code cannot draw their data, or if a figure is drawn in
    the notebook itself, so that the notebook has to run again.
    """
    if stamp.status != DONE or stamp.style == style_digest():
        return True
    folder = call.exported(stamp.name)
    if {path.stem for path in folder.glob("*.svg")} - redraw.recipes_in(folder).keys():
        return False
    try:
        draw_again(call, stamp)
    except Exception as error:  # data and options of other code can fail in any way
        tqdm.write(f"{stamp.name}: its figures cannot be redrawn ({one_line(error)})")
        return False
    tqdm.write(f"{stamp.name}: its figures are redrawn")
    return True


def draw_again(call: Call, stamp: Stamp) -> None:
    """Redraw a notebook's figures in the current style from their data, and update its pages and
    its stamp.
    """
    name, folder = stamp.name, call.exported(stamp.name)
    with figures_locked(call, folder):
        changed = redraw.redraw_all(folder)
        page = call.page(name, "ipynb")
        book = nbformat.read(page, as_version=4)
        for cell in book.cells:
            for output in cell.get("outputs", ()):
                shown = output.get("data", {}).get("image/png", "")
                if new := changed.get(base64.b64decode(shown)):
                    output["data"]["image/png"] = base64.b64encode(new).decode()
        nbformat.write(book, page)
        pages.to_html(page, folder)
        kept = dict(content(folder / file for file in stamp.kept))
        stamp = replace(stamp, kept=kept, style=style_digest())
        write_facts(call.page(name, "json"), asdict(stamp), [])


def tell(stamp: Stamp, status: str) -> None:
    """Print one line on the terminal."""
    tqdm.write(f"{stamp.name:<26} {stamp.seconds:7.1f} s  {status} {stamp.error}")


def execute(call: Call, notebook: Notebook, turn: Turn) -> tuple[str, str]:
    """Run a notebook and keep its pages. Returns its status, and where and why it ended ("" after
    success).
    """
    name, known = notebook.name, notebook.known
    page, failed = call.page(name, "ipynb"), call.page(name, "failed.ipynb")
    changed = {n: value for n, value in notebook.values.items() if value != known[n].default}
    kernel = "speclab-timed" if notebook.is_timed else "speclab"
    bar = {"desc": name, "leave": False, "disable": not sys.stderr.isatty()}
    status, said = DONE, ""
    try:
        papermill.execute_notebook(
            notebook.path,
            failed,
            changed,
            kernel_name=kernel,
            progress_bar=bar,
            start_timeout=300,
            on_cell_execute=turn.before,
            # The kernel's folder. Not the process's: papermill changes that while it saves.
            resources={"metadata": {"path": str(ROOT)}},
        )
    except (PapermillExecutionError, RuntimeError) as error:  # RuntimeError: the kernel died
        if call.stopped.is_set():
            failed.unlink(missing_ok=True)
            raise
        status, said = how_it_ended(error)
    for end in ("json", "ipynb", "html"):  # remove the earlier stamp and pages
        call.page(name, end).unlink(missing_ok=True)
    if status == FAILED:
        return FAILED, f"{said} (see {os.path.relpath(failed)})"
    if status == DONE:
        folder = call.exported(name)
        shown = Path(os.path.relpath(folder.parent, call.build)).as_posix()
        text = failed.read_text(encoding="utf-8")
        page.write_text(PICTURES.sub(f"]({shown}/", text), encoding="utf-8")
        pages.to_html(page, folder)
    failed.unlink(missing_ok=True)
    return status, said


def how_it_ended(error: Exception) -> tuple[str, str]:
    """The status that an error means, and its cell and message."""
    if not isinstance(error, PapermillExecutionError):
        return FAILED, str(error)
    said = error.evalue.partition("\n")[0]
    if error.ename in NEEDS:
        return NEEDS[error.ename], said
    return FAILED, f"cell [{error.exec_count}]: {error.ename}: {said}"


@contextlib.contextmanager
def kernels(call: Call, at_once: int) -> Iterator[None]:
    """Kernels of this interpreter, whatever `python3` means to Jupyter on this machine. They get
    this process's environment. Threads are shared among the notebooks that run at once; a notebook
    that measures time gets all of them.
    """
    before, threads = dict(os.environ), kit.limit_threads()
    with tempfile.TemporaryDirectory() as folder:
        shared = max(threads // at_once, 1)
        for name, count in (("speclab", shared), ("speclab-timed", threads)):
            environment = {"env": {"OMP_NUM_THREADS": str(count)}}
            kernel = Path(folder) / "kernels" / name
            write_kernel_spec(kernel, environment, ["--log-level=50"])
        jupyters = ("JUPYTER_PATH", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        os.environ |= dict.fromkeys(jupyters, folder) | {
            "SPECLAB_OUT": str(call.figures.parents[1]),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        try:
            yield
        finally:
            os.environ.clear()
            os.environ |= before


# ---- all notebooks -------------------------------------------------------------------------------


def places(workers: int | None) -> int:
    """Number of notebooks that run at once: `workers` (default 2), at most one per core. With a GPU
    it is 1, because the GPU's memory may hold only one pair.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    if visible and shutil.which("nvidia-smi"):
        return 1
    return min(workers or 2, kit.cores_of_this_process())


def turns_of(call: Call) -> tuple[list[Notebook], list[Notebook]]:
    """The notebooks of a call in two lists: those that read nothing of the others, then those that
    read their tables, or the timing runs that the timed ones write.

    The longest of the last run starts first (if unknown, the lowest number, which needs no run
    while 01 records what the others read). Next are the notebooks without timed cells, so that the
    timed cells of the rest need not wait for long cells.
    """
    longest, *others = sorted(call.notebooks, key=call.seconds, reverse=True)
    others.sort(key=lambda notebook: notebook.is_timed)
    numbers = {notebook.name[:2] for notebook in call.notebooks}
    times = any("timing" in notebook.known for notebook in call.notebooks)
    first: list[Notebook] = []
    readers: list[Notebook] = []
    for notebook in [longest, *others]:
        read_from = {text[:2] for text in notebook.reads}
        waits = read_from & numbers or (times and TIMING_RUNS in notebook.reads)
        (readers if waits else first).append(notebook)
    return first, readers


def run_wave(call: Call, wave: list[Notebook], room: Room) -> None:
    """Run the notebooks that are not up to date. After an interruption no kernel keeps running."""
    digests = [digest(call, notebook) for notebook in wave]
    with ThreadPoolExecutor(room.seats) as pool:
        pending = set()
        try:
            for notebook, now in zip(wave, digests, strict=True):
                stamp = call.stamp(notebook.name)
                if stamp and call.is_current(stamp, now) and is_in_style(call, stamp):
                    call.current[notebook.name] = stamp
                    tell(stamp, "up to date" if stamp.status == DONE else stamp.status)
                else:
                    pending.add(pool.submit(run_one, call, notebook, now, room))
            while pending:  # one second at a time: on Windows, waiting blocks Ctrl-C
                done, pending = wait(pending, 1, FIRST_COMPLETED)
                for future in done:
                    future.result()  # an error in the runner itself ends the call
        finally:
            if pending:
                stop(call, pool, pending)


def stop(call: Call, pool: ThreadPoolExecutor, pending: set[Future]) -> None:
    """Start no further notebook, and kill kernels and their children until all runs have ended. The
    loop also catches kernels that are just starting.
    """
    call.stopped.set()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignore further Ctrl-C
    pool.shutdown(wait=False, cancel_futures=True)
    while not all(future.done() for future in pending):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
        time.sleep(0.1)


def remove_former(call: Call) -> None:
    """Delete the pages and figures of notebooks that have another name now."""
    numbers = {path.stem[:2] for path in chosen([], ROOT)}
    for old in FORMER:
        for page in call.build.glob(f"{old}.*"):
            page.unlink()
        if old[:2] not in numbers:
            shutil.rmtree(call.figures / old[:2], ignore_errors=True)


def reproduce(call: Call, workers: int | None = None) -> int:
    """Run the notebooks that are not up to date, and write the report. Returns 0, or 1 if a
    notebook failed, or 130 after an interruption. workers: notebooks at once.
    """
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        room = Room(places(workers))
        with locked(call.build), kernels(call, room.seats):
            call.figures.mkdir(parents=True, exist_ok=True)
            remove_former(call)
            put_all_back(call)
            for name, reason in call.left_out.items():
                tqdm.write(f"{name:<26} {'':>9}  left out: {reason}")
            # what others read runs first, what measures time runs alone
            for wave in turns_of(call):
                run_wave(call, wave, room)
            page = write_report(call)
    except KeyboardInterrupt:
        ended = call.current | call.ran
        names = [notebook.name for notebook in call.notebooks]
        left = ", ".join(name for name in names if name not in ended)
        print(f"Interrupted. Not run: {left}. The same command continues from here.")
        return 130
    failed = sum(stamp.status == FAILED for stamp in call.ran.values())
    counts = f"{len(call.current)} up to date, {failed} failed"
    spent, where = time.monotonic() - begun, os.path.relpath(page)
    print(f"{len(call.notebooks)} notebooks ({counts}) in {spent:.0f} s: {where}")
    return min(failed, 1)


def write_report(call: Call) -> Path:
    """Write the pages of this call's notebooks, the explorer and the report. The report describes
    the profile with this call's overrides if all notebooks had them, else the profile without
    overrides.
    """
    of_call = call.current | call.ran
    done = [stamp.name for stamp in of_call.values() if stamp.status == DONE]
    for name in done:
        with figures_locked(call, call.exported(name)):
            pages.publish(call.page(name, "ipynb"), call.figures, done)
    names = sorted(path.stem for path in call.build.glob("[0-9]*.json"))
    stamps = [stamp for stamp in map(call.stamp, names) if stamp]
    profile, overrides = call.given["profile"], call.given["overrides"]
    if any(stamp.given["overrides"] != overrides for stamp in stamps):
        overrides = {}
    head = load_profile(profile, overrides)
    described = {"profile": profile} | overrides
    remarks = {
        stamp.name: report.remark(stamp, described, is_stale(call, stamp)) for stamp in stamps
    }
    write_explorer(head, call.figures, call.build)
    return report.write_index(call.build, call.figures, head, stamps, remarks)


def is_stale(call: Call, stamp: Stamp) -> bool:
    """True if an earlier run with the same settings would differ today, because its inputs or its
    outputs have changed.
    """
    if stamp.status != DONE or stamp.name in call.current | call.ran:
        return False
    try:
        again = open_call(wanted=[stamp.name], out=call.figures.parents[1], **stamp.given)
    except ValueError:  # its arguments are no longer allowed
        return True
    return not again.is_current(stamp, digest(again, *again.notebooks))


def write_explorer(profile: Profile, figures: Path, build: Path) -> None:
    """Write explore.html into the figures folder if its content has changed, and beside the pages
    a copy with links to them. If it cannot be written, print why.
    """
    try:
        runs = explorer.runs_there(profile)
        heads = explorer.heads_there(profile, runs)
        explorer.write_page(runs, figures / "explore.html", heads)
        explorer.with_links(figures / "explore.html", build)
    except (ValueError, RunError) as error:
        print(f"explore.html is not written: {error}")


def loads_the_pair(notebook: Notebook) -> bool:
    """True if a cell of the notebook imports the module that loads the pair."""
    return LOADING in notebook.code[notebook.path.name].imports


def fetch_weights(call: Call) -> None:
    """Download weights that the profile's models lack, if possible. Hub models are downloaded here
    if a notebook of the call needs them, so that the user sees the progress.
    """
    try:
        pair.make(call.profile)
        asked = [declared(notebook.path) for notebook in call.notebooks]
        if None in asked or any(loads_the_pair(notebook) for notebook in call.notebooks):
            pair.fetch_pair(call.profile)
        else:
            fetch_models(call.profile, kinds_named(call.profile, chain(*asked)))
    except (RunError, ModelsMissing, OSError) as error:
        print(f"{error}. Notebooks that only read recordings still run.")

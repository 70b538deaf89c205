"""`make reproduce`: run the numbered notebooks, each only when something it depends on changed.

Two run at once, and notebooks that read the tables of others run after those (`turns_of`). A cell
that measures time is tagged `timed` and runs while no other cell does (`Turn`). Each notebook has a
kernel of this interpreter at the root of the repository. It becomes build/<profile>/NN_name.ipynb
with its HTML and a stamp NN_name.json; one that failed is kept as NN_name.failed.ipynb. At the end
of a call README.md beside the figures tells the same in Markdown. A notebook
that lacks models or files has not failed: its figures stay as they are. Whatever stops a call, the
same command goes on from the stamps.

A change of the code that draws figures (DRAWING) makes no notebook stale: they are drawn again from
their data.

Figures are replaced as a whole. While a notebook runs, its earlier figures wait in the folder
NN.before. Unless the notebook ends well they are put back, after a kill by the next call.

One hash names all that a notebook's outcome depends on (`digest`). Code counts as its syntax tree
without docstrings, of the notebook and of the modules that it imports. The files that this code
reads are declared: a list of plain texts called READS at the top of a module, or in a notebook's
cell of imports, as `READS = ["data/paper", "08/self-drafts.csv"]` (`names_read`).
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

from speclab.explore import page as explorer
from speclab.models.folder import ModelFolder, cached
from speclab.models.hub import ModelsMissing
from speclab.ops import pages, pair, report
from speclab.ops.pages import cells_of
from speclab.ops.parameters import OF_PAIR, Parameter, check_names, check_values, parameters_of
from speclab.ops.report import DONE, FAILED
from speclab.ops.run_plan import chosen, declared, fetch_models, kinds_named
from speclab.plain import digest_of, one_line, sha256_of
from speclab.profiles import MODELS, ROOT, Profile, load_profile, profile_names
from speclab.prompts import HUB_SETS, MIRROR
from speclab.runs import (
    BENCH,
    PLACE,
    Damaged,
    RunError,
    locked,
    profile_prompts,
    read_facts,
    write_facts,
)
from speclab.show import notebook as kit
from speclab.show import redraw

LOADING = "speclab/models/pairs.py"  # what a notebook imports that loads the pair
TIMED = "timed"  # the tag of a cell that measures time: nothing runs beside it
# what draws figures from their data, and nothing else: a change needs no notebook to run again
DRAWING = tuple(f"speclab/show/{name}.py" for name in ("style", "figures", "drawings"))
# modules that change no outcome: where a notebook runs, what only an open notebook shows
NOT_FOLLOWED = ("speclab/ops/hosted.py", "speclab/explore/", *DRAWING)
PICTURES = re.compile(r"\]\(\.\./figures/[^/]+/")  # how the text of a notebook shows a figure
BEFORE, REPLACED = ".before", ".replaced"  # ends of folders of earlier figures
FOLDERS = ("SPECLAB_MODELS", MIRROR, PLACE, "SPECLAB_AUTHOR_RECORDS")
SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# errors by which a notebook says what it lacks
NEEDS = {"ModelsMissing": report.NEEDS_MODELS, "FilesMissing": report.NEEDS_FILES}


@dataclass(frozen=True)
class Code:
    """A file of Python: its syntax `tree` as text, the files that its imports may run, and what its
    lists READS declare.
    """

    tree: str
    imports: list[str]
    reads: list[str]


@dataclass(frozen=True)
class Notebook:
    """A numbered notebook: its cells (`cells_of`), the code of itself and of the modules that it
    imports by path, its parameters, their values in a call, and whether a cell measures time.
    """

    path: Path
    cells: list
    code: dict[str, Code]
    known: dict[str, Parameter]
    values: dict[str, Any]
    is_timed: bool

    @property
    def name(self) -> str:
        """As 02_gamma_sweep."""
        return self.path.stem

    @property
    def reads(self) -> set[str]:
        """What its code declares in READS, its own tables apart."""
        declared = chain.from_iterable(code.reads for code in self.code.values())
        return {text for text in declared if text[:2] != self.name[:2]}


@dataclass(frozen=True)
class Stamp:
    """How a notebook ended. `seconds`: without those in which it waited for others; `kept`:
    checksums of the figures and tables by name that its last good run wrote; `given`: the arguments
    `profile`, `overrides` and `changes` of `open_call` that it was run with; `style`: the digest of
    what drew its figures (`style_digest`).
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
    """One call: the checked profile, what is asked for, why others that were asked for are left
    out, the folders of its pages and of its figures, what was `given` (as in a `Stamp`); stamps by
    name of what was up to date and of what ran; and whether it was stopped.
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
        """A file of a notebook in the folder of pages."""
        return self.build / f"{name}.{end}"

    def exported(self, name: str) -> Path:
        """The folder of a notebook's figures and tables."""
        return kit.drawn_in(self.figures, name)

    def stamp(self, name: str) -> Stamp | None:
        """The stamp of a notebook's last run; None without one, or where it was edited."""
        try:
            facts = read_facts(self.page(name, "json"), "run the notebook again")
            del facts["files"]  # a stamp has none
            return Stamp(**facts)
        except (Damaged, TypeError):
            return None

    def seconds(self, notebook: Notebook) -> float:
        """What a notebook took in its last run; 0 where that is not known."""
        stamp = self.stamp(notebook.name)
        return stamp.seconds if stamp else 0

    def is_current(self, stamp: Stamp, now: str) -> bool:
        """Whether the last run had the same inputs and all that it wrote is there as it was, or
        needed models that are still missing.
        """
        if stamp.digest != now or stamp.status == FAILED:
            return False
        if stamp.status == report.NEEDS_FILES:
            return True
        if stamp.status == report.NEEDS_MODELS:
            return bool(pair.missing(self.profile))
        files = content(self.exported(stamp.name) / file for file in stamp.kept)
        pages = [self.page(stamp.name, end) for end in ("ipynb", "html")]
        return dict(files) == stamp.kept and all(page.is_file() for page in pages)


# ---- what is asked -------------------------------------------------------------------------------


def open_call(
    profile: str, wanted: Sequence[str], overrides: dict, changes: dict, out: Path | None = None
) -> Call:
    """What a call of `make reproduce` asks for, checked.

    profile: a name or a YAML file; wanted: notebooks by number or name, none means all; overrides:
    of the profile's parameters; changes: of the notebooks' parameters; out: where build/ and
    figures/ go (default: the repository). ValueError for what is not there or not allowed, for
    prompts that cannot be read, and for a notebook that differs from its source.
    """
    if profile.endswith((".yaml", ".yml")):
        profile = str(Path(profile).resolve())
    settings = load_profile(profile, overrides)
    overrides = found(overrides, settings)
    for variable in FOLDERS:
        named_folder(variable)
    if settings.prompts not in HUB_SETS:  # those would be fetched
        profile_prompts(settings)
    of_notebooks: dict[str, Any] = {}
    for name, values in settings.notebooks.items():
        (path,) = chosen([name], ROOT)
        check_names(values, notebook_of(path, values).known)
        of_notebooks[path.stem] = values
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


def found(overrides: dict, profile: Profile) -> dict:
    """The overrides with files and folders as the profile has them: kernels run elsewhere."""
    named: dict[str, Any] = {"prompts": profile.prompts, "traces": profile.traces}
    named["other_prompts"] = list(profile.others)
    for model in MODELS:
        named[f"{model}.path"] = getattr(profile, model).path
        if isinstance(overrides.get(model), str):
            named[model] = getattr(profile, model).path
    return overrides | {name: named[name] for name in overrides if name in named}


def named_folder(variable: str) -> list[Path]:
    """The folder that an environment variable names, if any; the variable is absolute from then on.
    ValueError where no folder is there.
    """
    named = os.environ.get(variable)
    if not named:
        return []
    folder = Path(named).expanduser().absolute()
    if not folder.is_dir():
        raise ValueError(f"{variable}={folder}: no such folder; name one, or unset it")
    os.environ[variable] = str(folder)
    return [folder]


def notebook_of(path: Path, given: dict[str, Any]) -> Notebook:
    """A notebook with the values that are given for its parameters. ValueError for a file that is
    no notebook, for a value that is not allowed, and for code that is not Python.
    """
    try:
        book = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat and its schema have many kinds
        raise ValueError(
            f"{path} is no notebook ({type(error).__name__}); `make notebooks` writes it from its "
            ".py"
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
            f"{error.filename}, line {error.lineno}: {error.msg}; mend it, then call again"
        ) from None
    is_timed = any(map(measures_time, book.cells))
    return Notebook(path, cells, code, known, values, is_timed)


def measures_time(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell is tagged so."""
    return TIMED in cell.metadata.get("tags", ())


def check_twin(notebook: Notebook) -> None:
    """ValueError where an .ipynb, which runs, and the .py beside it have other cells. No file tells
    which of the two was edited: their times are those of a checkout or of an autosave.
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
    """SHA-256 of all that the outcome of a notebook depends on. Tables of other notebooks may lie
    in the folder of this call and in the repository, under the profile's name and under those of
    the profiles that the notebook reads.
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
    """Files, folders and profiles that a notebook's code declares in READS. Filled in are
    `{target}`, the path of the profile's target; `{beside}`, each value of the parameter `beside`;
    and `$NAME`, an environment variable.
    """
    names = []
    for text in sorted(notebook.reads):
        value = notebook.values.get(text.strip("{}"), text)
        names += value if isinstance(value, list) else [value]
    target = call.profile.target.path
    filled = [os.path.expandvars(name.replace("{target}", target)) for name in names]
    return [name for name in filled if name]


def followed(name: str, source: str) -> dict[str, Code]:
    """Code by path: a notebook's own, and that of the modules of the repository that it imports,
    directly or through others, lazy imports included. SyntaxError for what is not Python.
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


@lru_cache(maxsize=512)
def code_of(path: str, text: str) -> Code:
    """A file without comments, layout and docstrings, which change no outcome. SyntaxError for what
    is not Python.
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
                reads += ast.literal_eval(node.value)
            except ValueError:
                where = (path, node.lineno, None, None)
                raise SyntaxError("READS holds plain texts", where) from None
        elif isinstance(node, SCOPES) and ast.get_docstring(node) is not None:
            del node.body[0]
    imports = []
    for name in names:
        for place in accumulate(name.split("."), "{}/{}".format):  # with the packages above it
            imports += [f"{place}.py", f"{place}/__init__.py"]
    return Code(ast.dump(module), imports, reads)


def inputs(profile: Profile) -> list[Any]:
    """The profile, and what it points at: weights (those that are to be made count as made), the
    models' settings, prompts, manifests of shipped traces. Nothing is fetched.
    """
    places = [ROOT / name for name in (profile.prompts, *profile.others)]
    fetched = HUB_SETS.get(profile.prompts, {})  # revisions are pinned; copies are files
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
    """(name, SHA-256) of files, and of all files of folders; of what is not there nothing."""
    files = set()
    for place in places:
        paths = [place] if place.is_file() else place.rglob("*")
        files |= {path.resolve() for path in paths if path.is_file()}
    kept = [path for path in files if "__pycache__" not in path.parts]
    return sorted((path.name, sha256_of(path)) for path in kept)


# ---- one notebook --------------------------------------------------------------------------------


class Room:
    """Where several notebooks work at once, each on a seat."""

    def __init__(self, seats: int):
        self.seats = seats
        self.free, self.door = threading.Semaphore(seats), threading.Lock()


@dataclass
class Turn:
    """A notebook's turn in a room: it holds a seat while it works. A cell that measures time takes
    all seats: it waits until the cells of others have ended, and their next ones wait for it.

    waited: for seats, in seconds.
    """

    room: Room
    held: int = 0
    waited: float = 0.0

    def take(self, seats: int) -> None:
        """Leave, and wait for that many seats; meanwhile nobody else takes one."""
        self.leave()
        begun = time.monotonic()
        with self.room.door:
            for _ in range(seats):
                self.room.free.acquire()
        self.held = seats
        self.waited += time.monotonic() - begun

    def leave(self) -> None:
        """Give back all seats."""
        for _ in range(self.held):
            self.room.free.release()
        self.held = 0

    def before(self, cell: nbformat.NotebookNode, cell_index: int) -> None:
        """What nbclient calls before a cell of code."""
        self.take(self.room.seats if measures_time(cell) else 1)


def move_aside(folder: Path) -> None:
    """Move the figures from before a run aside, and begin with an empty folder."""
    put_back(folder)
    folder.mkdir(parents=True, exist_ok=True)
    folder.rename(folder.with_suffix(BEFORE))
    folder.mkdir()


def replace_figures(folder: Path, written_before: Iterable[str]) -> None:
    """Keep the figures of a run in place of those from before it. Files that the earlier run did
    not write stay. The last step is a rename: nothing can halve it.
    """
    earlier = folder.with_suffix(BEFORE)
    for path in earlier.iterdir():
        place = folder / path.name
        if path.name not in written_before and not place.exists():
            copy = shutil.copytree if path.is_dir() else shutil.copy2
            copy(path, place)
    earlier.rename(folder.with_suffix(REPLACED))


def put_back(folder: Path) -> None:
    """Undo a run that did not end well: put the figures from before it back if they wait aside.
    Remove the figures that a run replaced.
    """
    earlier = folder.with_suffix(BEFORE)
    if earlier.is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        earlier.rename(folder)
    shutil.rmtree(folder.with_suffix(REPLACED), ignore_errors=True)


def put_all_back(call: Call) -> None:
    """Undo the runs that a killed call did not end."""
    for path in chosen([], ROOT):
        folder = call.exported(path.stem)
        if folder.with_suffix(BEFORE).is_dir():
            with figures_locked(call, folder):
                put_back(folder)


def figures_locked(call: Call, folder: Path) -> contextlib.AbstractContextManager[None]:
    """The lock of the pair whose figures a notebook writes. A call holds that of its own pair from
    its beginning to its end.
    """
    build = call.build.with_name(folder.parent.name)
    return contextlib.nullcontext() if build == call.build else locked(build)


def run_one(call: Call, notebook: Notebook, now: str, room: Room) -> None:
    """Run a notebook; put its pages, its figures and its stamp in place, remove figures that it no
    longer writes. Where it does not end well, figures and tables are as they were, whatever ended
    it. Where it is stopped, its pages and its stamp are too, and the error goes on.
    """
    name, folder = notebook.name, call.exported(notebook.name)
    earlier = call.stamp(name)
    files = earlier.kept if earlier else {}
    with figures_locked(call, folder):
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
    """Whether the figures of a notebook that is up to date are those of today's style: where they
    are not, they are drawn again. False where today's code cannot draw their data: the notebook has
    to run again.
    """
    if stamp.status != DONE or stamp.style == style_digest():
        return True
    try:
        draw_again(call, stamp)
    except Exception as error:  # data and options of other code fail in any way
        tqdm.write(f"{stamp.name}: its figures cannot be drawn again ({one_line(error)})")
        return False
    tqdm.write(f"{stamp.name}: its figures are drawn again")
    return True


def draw_again(call: Call, stamp: Stamp) -> None:
    """Draw the figures of a notebook in today's style, from their data. Its pages show them, and it
    gets a new stamp.
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
    """One line for the terminal."""
    tqdm.write(f"{stamp.name:<26} {stamp.seconds:7.1f} s  {status} {stamp.error}")


def execute(call: Call, notebook: Notebook, turn: Turn) -> tuple[str, str]:
    """Run a notebook and keep its pages; its status, and where and why it ended ("": well)."""
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
        )
    except (PapermillExecutionError, RuntimeError) as error:  # or the kernel died
        if call.stopped.is_set():
            failed.unlink(missing_ok=True)
            raise
        status, said = how_it_ended(error)
    for end in ("json", "ipynb", "html"):  # the earlier stamp goes with the earlier pages
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
    """The status that an error means; the cell, and what it says."""
    if not isinstance(error, PapermillExecutionError):
        return FAILED, str(error)
    said = error.evalue.partition("\n")[0]
    if error.ename in NEEDS:
        return NEEDS[error.ename], said
    return FAILED, f"cell [{error.exec_count}]: {error.ename}: {said}"


@contextlib.contextmanager
def kernels(call: Call, at_once: int) -> Iterator[None]:
    """Kernels of this interpreter at the root of the repository, whatever `python3` means to
    Jupyter here. Their environment is this process's own; threads are shared among those that run
    at once, but a notebook that measures time has all.
    """
    before, threads = dict(os.environ), kit.limit_threads()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(ROOT):
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


# ---- all of them ---------------------------------------------------------------------------------


def places(workers: int | None) -> int:
    """Notebooks that run at once: `workers` (default: two), at most one per core, and one where
    there is a GPU: its memory may hold one pair only.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    if visible and shutil.which("nvidia-smi"):
        return 1
    return min(workers or 2, kit.cores_of_this_process())


def turns_of(call: Call) -> tuple[list[Notebook], list[Notebook]]:
    """The notebooks of a call: those that read no tables of the others, then those that do. The one
    that took longest before begins (where that is not known the first number: 00 needs no run while
    01 records what others read), then come those that measure no time, so that the timed cells of
    the rest need not wait for long ones.
    """
    longest, *others = sorted(call.notebooks, key=call.seconds, reverse=True)
    others.sort(key=lambda notebook: notebook.is_timed)
    numbers = {notebook.name[:2] for notebook in call.notebooks}
    first: list[Notebook] = []
    readers: list[Notebook] = []
    for notebook in [longest, *others]:
        read_from = {text[:2] for text in notebook.reads}
        (readers if read_from & numbers else first).append(notebook)
    return first, readers


def run_wave(call: Call, wave: list[Notebook], room: Room) -> None:
    """Run those that are not up to date. Stopped, no kernel stays."""
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
            while pending:  # a second at a time: on Windows a wait hears no Ctrl-C
                done, pending = wait(pending, 1, FIRST_COMPLETED)
                for future in done:
                    future.result()  # an error of the runner itself ends the call
        finally:
            if pending:
                stop(call, pool, pending)


def stop(call: Call, pool: ThreadPoolExecutor, pending: set[Future]) -> None:
    """Start no notebook more, and kill kernels and what they started until all have ended: one may
    just be starting.
    """
    call.stopped.set()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # once is enough
    pool.shutdown(wait=False, cancel_futures=True)
    while not all(future.done() for future in pending):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
        time.sleep(0.1)


def reproduce(call: Call, workers: int | None = None) -> int:
    """Run what is not up to date, and write the report; 0, 1 when a notebook failed, 130 when
    interrupted.

    workers: notebooks at once.
    """
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        room = Room(places(workers))
        with locked(call.build), kernels(call, room.seats):
            call.figures.mkdir(parents=True, exist_ok=True)
            put_all_back(call)
            for name, reason in call.left_out.items():
                tqdm.write(f"{name:<26} {'':>9}  left out: {reason}")
            for wave in turns_of(call):
                run_wave(call, wave, room)
            page = write_report(call)
    except KeyboardInterrupt:
        ended = call.current | call.ran
        names = [notebook.name for notebook in call.notebooks]
        left = ", ".join(name for name in names if name not in ended)
        print(f"Interrupted. Left: {left}. The same command goes on from here.")
        return 130
    failed = sum(stamp.status == FAILED for stamp in call.ran.values())
    counts = f"{len(call.current)} up to date, {failed} failed"
    spent, where = time.monotonic() - begun, os.path.relpath(page)
    print(f"{len(call.notebooks)} notebooks ({counts}) in {spent:.0f} s: {where}")
    return min(failed, 1)


def write_report(call: Call) -> Path:
    """Write the pages of the notebooks of this call, the explorer and the report, whose head
    describes the profile with the overrides of this call if all notebooks had them, else the
    profile as it stands.
    """
    of_call = call.current | call.ran
    done = [stamp.name for stamp in of_call.values() if stamp.status == DONE]
    for name in done:
        with figures_locked(call, call.exported(name)):
            pages.write_page(call.page(name, "ipynb"), call.figures, done)
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
    write_explorer(head, call.figures)
    return report.write_report(call.build, call.figures, head, stamps, remarks)


def is_stale(call: Call, stamp: Stamp) -> bool:
    """Whether an earlier run would be another one today, with the same settings: its inputs have
    changed since, or what it wrote.
    """
    if stamp.status != DONE or stamp.name in call.current | call.ran:
        return False
    try:
        again = open_call(wanted=[stamp.name], out=call.figures.parents[1], **stamp.given)
    except ValueError:  # what it was given is not allowed any more
        return True
    return not again.is_current(stamp, digest(again, *again.notebooks))


def write_explorer(profile: Profile, figures: Path) -> None:
    """Write explore.html beside the figures where what it shows has changed; say why not."""
    try:
        explorer.write_page(explorer.runs_there(profile), figures / "explore.html")
    except (ValueError, RunError) as error:
        print(f"explore.html is not written: {error}")


def loads_the_pair(notebook: Notebook) -> bool:
    """Whether a cell of its own imports what loads the pair."""
    return LOADING in notebook.code[notebook.path.name].imports


def fetch_weights(call: Call) -> None:
    """Fetch the weights that the profile's models lack, where they can be had. Models of the hub
    are fetched here where a notebook of the call needs them, so that the download is seen.
    """
    try:
        pair.make(call.profile)
        asked = [declared(notebook.path) for notebook in call.notebooks]
        if None in asked or any(loads_the_pair(notebook) for notebook in call.notebooks):
            pair.fetch_pair(call.profile)
        else:
            fetch_models(call.profile, kinds_named(call.profile, chain(*asked)))
    except (RunError, ModelsMissing, OSError) as error:
        print(f"{error}. Notebooks that read recordings run all the same.")

"""`make reproduce`: run the numbered notebooks, each only when something it depends on changed.

Two at once, those that read the tables of others behind the rest (`turns_of`). A cell that measures
time, tagged `timed`, runs while no other cell does (`Turn`). Each notebook has a kernel of this
interpreter, at the root of the repository, and becomes build/<profile>/NN_name.ipynb with its HTML
and a stamp NN_name.json; one that failed is kept as NN_name.failed.ipynb. One that asks for models
or files which are not there is no failure: its figures stay as they are. Whatever stops a call, the
same command goes on from the stamps.

Figures are replaced as a whole. While a notebook runs, its earlier figures wait in the folder
NN.before. Unless the notebook ends well they are put back, after a kill by the next call.

A thread waits for each notebook, which is a process of its own anyway: its kernel.

What a notebook's outcome depends on is one hash (`digest`). Code counts as its syntax tree without
docstrings. NOT_FOLLOWED are the modules that do not change what comes out: where a notebook runs
(`ops.hosted`), what only an open notebook shows (`explore`), and the command line.
"""

import ast
import contextlib
import hashlib
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
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import chain
from modulefinder import ModuleFinder
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
from speclab.models.folder import ModelFolder, ModelsMissing, cached
from speclab.ops import pair, report
from speclab.ops.parameters import OF_PAIR, Parameter, check_names, check_values, parameters_of
from speclab.plain import near, read_json
from speclab.profiles import ROOT, Profile, load_profile, profile_names
from speclab.prompts import HUB_SETS, MIRROR, OWN_SETS
from speclab.runs import (
    BENCH,
    PLACE,
    Damaged,
    FilesMissing,
    RunError,
    locked,
    profile_prompts,
    read_facts,
    sha256_of,
    write_facts,
)
from speclab.show import notebook as kit

TIMED = "timed"  # the tag of a cell that measures time: nothing runs beside it
NOT_FOLLOWED = ("speclab.ops.hosted", "speclab.explore", "speclab.__main__")
PICTURES = re.compile(r"\]\(\.\./figures/[^/]+/")  # how the text of a notebook shows a figure
DATA = re.compile(r"""["']data["']((?:\s*/\s*["'][\w.-]+["'])+)""")
BESIDE = re.compile(r"""\.path \+ ["'](-[\w-]+)""")  # a folder beside a model's
TABLE = re.compile(r"""["'](\d\d/[\w-]+)(\.\w+)?["']""")
RECORDS = "SPECLAB_AUTHOR_RECORDS"
FETCHED = ("author-records", "specdecode-bench")  # under data/runs
BEFORE, REPLACED = ".before", ".replaced"  # ends of folders of earlier figures
FOLDERS = ("SPECLAB_MODELS", MIRROR, PLACE, RECORDS)
SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
DONE, FAILED = "done", report.FAILED
NEEDS = {ModelsMissing.__name__: report.NEEDS_MODELS}
NEEDS |= {FilesMissing.__name__: report.NEEDS_FILES}
STOPPED = "stopped"


@dataclass(frozen=True)
class Notebook:
    """A numbered notebook: its cells (`cells_of`), all code by path (its own, and that of the
    modules that it imports), its parameters, their values in a call, and whether a cell of it
    measures time.
    """

    path: Path
    cells: list
    code: dict[str, str]
    known: dict[str, Parameter]
    values: dict[str, Any]
    is_timed: bool

    @property
    def name(self) -> str:
        """As 02_gamma_sweep."""
        return self.path.stem


@dataclass(frozen=True)
class Stamp:
    """How a notebook ended. `seconds`: without those in which it waited for others; `kept`:
    checksums of the figures and tables by name that its last good run wrote; `given`: the arguments
    `profile`, `overrides` and `changes` of `open_call` that it was run with.
    """

    name: str
    status: str
    seconds: float
    digest: str
    kept: dict[str, str]
    given: dict[str, Any]
    error: str = ""


@dataclass(frozen=True)
class Call:
    """One call: the checked profile, what is asked for, the folders of its pages and of its
    figures, what was `given` (as in a `Stamp`); stamps by name of what was up to date and of what
    ran; and whether it was stopped.
    """

    profile: Profile
    notebooks: list[Notebook]
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
        """The stamp of a notebook's last run; None where there is none as it was written."""
        try:
            facts = read_facts(self.page(name, "json"), "run the notebook again")
            del facts["files"]  # of a stamp none
            return Stamp(**facts)
        except (Damaged, TypeError):
            return None

    def seconds(self, notebook: Notebook) -> float:
        """What a notebook took in its last run, else where the figures that come with the kit were
        made; 0 where that is not known.
        """
        if stamp := self.stamp(notebook.name):
            return stamp.seconds
        file = ROOT / "figures" / self.profile.name / "measured.json"
        measured = read_json(file, "take the committed one") if file.is_file() else {}
        return measured.get("seconds", {}).get(notebook.name, 0)

    def is_current(self, stamp: Stamp | None, now: str) -> bool:
        """Whether the last run had the same inputs and all that it wrote is there as it was, or
        needed models that are still missing.
        """
        if not stamp or stamp.digest != now or stamp.status == FAILED:
            return False
        if stamp.status in NEEDS.values():
            is_files = stamp.status == report.NEEDS_FILES
            return is_files or bool(pair.missing(self.profile))
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
    for variable in FOLDERS:
        named_folder(variable)
    if settings.prompts not in HUB_SETS:  # those would be fetched
        profile_prompts(settings)
    for name, own in settings.notebooks.items():
        check_names(own, notebook_of(*chosen([name]), own).known)
    values = changes | {"profile": profile, "overrides": overrides}
    notebooks = [
        notebook_of(path, settings.notebooks.get(path.stem, {}) | values) for path in chosen(wanted)
    ]
    check_names(changes, {n: 0 for one in notebooks for n in one.known})
    for one in notebooks:
        check_twin(one.path)
        judged = one.values.get("judged_prompts_per_domain", 0)
        kit.check_enough(one.name, settings, judged)
    place = (out or ROOT).resolve()
    folders = [place / kind / settings.name for kind in ("build", "figures")]
    given = {"profile": profile, "overrides": overrides, "changes": changes}
    return Call(settings, notebooks, *folders, given)


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


def chosen(wanted: Sequence[str]) -> list[Path]:
    """The notebooks of these numbers or names, all without any. ValueError for one not there."""
    paths = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    known = {name: path for path in paths for name in (path.stem, path.stem[:2])}
    asked = [Path(text).stem.zfill(2) for text in wanted]
    for name in asked:
        if name not in known:
            raise ValueError(f"no notebook {name!r}: {near(name, known)}")
    return sorted({known[name] for name in asked}) or paths


def notebook_of(path: Path, given: dict[str, Any]) -> Notebook:
    """A notebook with the parameters of its that are given. ValueError for a file that is none, for
    a value that is not allowed, and for code that is not Python.
    """
    try:
        book = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat and its schema have many kinds
        raise ValueError(
            f"{path} is no notebook ({type(error).__name__}); `make notebooks` writes it from its "
            ".py"
        ) from None
    cells, is_timed = cells_of(book), any(map(measures_time, book.cells))
    known = parameters_of(path)
    values = {name: given.get(name, own.default) for name, own in known.items()}
    check_values(values, known)
    own = "\n".join(text for kind, text, _ in cells if kind == "code")
    try:
        code = followed(path.name, own)
    except SyntaxError as error:
        raise ValueError(
            f"{error.filename}, line {error.lineno}: {error.msg}; mend it, then call again"
        ) from None
    return Notebook(path, cells, code, known, values, is_timed)


def cells_of(book: nbformat.NotebookNode) -> list[tuple[str, str, list[str]]]:
    """(kind, text, tags) of every cell."""
    return [
        (cell.cell_type, cell.source.strip(), cell.metadata.get("tags", [])) for cell in book.cells
    ]


def measures_time(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell is tagged so."""
    return TIMED in cell.metadata.get("tags", ())


def check_twin(path: Path) -> None:
    """ValueError where an .ipynb, which runs, and the .py beside it have other cells. Which of the
    two was edited no file tells: their times are those of a checkout or of an autosave.
    """
    source, number = path.with_suffix(".py"), path.name[:2]
    if not source.is_file():
        return
    if cells_of(jupytext.read(source)) != cells_of(nbformat.read(path, as_version=4)):
        raise ValueError(
            f"{source} and {path.name} differ: `make notebooks NOTEBOOKS={number}` keeps the .py "
            f"and writes the .ipynb from it, `make sources NOTEBOOKS={number}` keeps the .ipynb"
        )


# ---- what an outcome depends on ------------------------------------------------------------------


def digest(call: Call, notebook: Notebook) -> str:
    """SHA-256 of all that the outcome of a notebook depends on."""
    own = {k: v for k, v in notebook.values.items() if k not in OF_PAIR}
    lists = [v if isinstance(v, list) else [v] for v in own.values()]
    named = [str(value) for value in chain.from_iterable(lists) if value]
    ends = BESIDE.findall("\n".join(notebook.code.values()))
    named += [call.profile.target.path + end for end in ends]
    tables = tables_of(call, notebook, named)
    places = [ROOT / "requirements.lock", *tables, *data_named(notebook.code.values())]
    facts = [
        notebook.cells,
        [(path, plain_code(path, text)) for path, text in notebook.code.items()],
        inputs(call.profile),
        sorted(own.items()),
        [named_by(call.profile, text) for text in named],
        content([*places, *named_folder(RECORDS)]),
        sys.version_info[:2],
    ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def followed(name: str, own: str) -> dict[str, str]:
    """Code by path: a notebook's own, and that of the modules of the repository that it imports,
    directly or through others, lazy imports included. SyntaxError for what is not Python.
    """
    plain_code(name, own)
    finder = ModuleFinder(path=[str(ROOT)], excludes=NOT_FOLLOWED)
    finder.scan_code(compile(own, name, "exec"), finder.add_module("__main__"))
    code = {name: own}
    for module in sorted({*finder.modules, *finder.badmodules}):  # bad: maybe no Python
        place = module.replace(".", "/")
        for path in (f"{place}.py", f"{place}/__init__.py"):
            if (ROOT / path).is_file() and not module.startswith(NOT_FOLLOWED):
                code[path] = (ROOT / path).read_text(encoding="utf-8")
                plain_code(path, code[path])
    return code


@lru_cache(maxsize=512)
def plain_code(path: str, text: str) -> str:
    """A file's syntax tree without docstrings: comments and layout change no outcome."""
    tree = ast.parse(text, path)
    for node in ast.walk(tree):
        if isinstance(node, SCOPES) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree)


def data_named(texts: Iterable[str]) -> list[Path]:
    """Files and folders … / "data" / … that code names; of recorded runs, which have keys, none but
    what was fetched.
    """
    named = {place for text in texts for place in DATA.findall(text)}
    paths = [ROOT.joinpath("data", *re.findall(r"[\w.-]+", place)) for place in named]
    runs = ROOT / "data" / "runs"
    return [p for p in paths if not p.is_relative_to(runs) or p.name in FETCHED]


def tables_read(notebook: Notebook) -> set[str]:
    """Files, as 08/self-drafts.csv, of other notebooks' tables that this one or its modules name,
    as "08/self-drafts" or "09/policy.json".
    """
    texts = "\n".join(notebook.code.values())
    found = {f"{name}{end or '.csv'}" for name, end in TABLE.findall(texts)}
    return {name for name in found if name[:2] != notebook.name[:2]}


def tables_of(call: Call, notebook: Notebook, named: Iterable[str]) -> list[Path]:
    """Where the tables that a notebook reads may be: those of the profile and of the profiles that
    its parameters name, in the folder of this call and in the repository.
    """
    pairs = [call.profile.name, *(text for text in named if text in profile_names())]
    folders = [call.figures.parent, ROOT / "figures"]
    tables = tables_read(notebook)
    return [folder / pair / name for folder in folders for pair in pairs for name in tables]


def inputs(profile: Profile) -> list[Any]:
    """The profile, and what it points at: weights (those that are to be made count as made), the
    models' settings, prompts, manifests of shipped traces. Nothing is fetched.
    """
    places = [OWN_SETS.get(profile.prompts, ROOT / profile.prompts)]
    if profile.prompts in HUB_SETS:  # revisions are pinned; copies are files
        sets = [one.name for one in HUB_SETS[profile.prompts].values()]
        places = [mirror / name for mirror in named_folder(MIRROR) for name in sets]
    own = [ROOT / profile.traces] if profile.traces else []
    for folder in [*named_folder(PLACE), *own]:
        places += sorted([*folder.rglob("manifest.json"), *folder.glob(BENCH)])
    found = [profile]
    for spec in (profile.target, profile.draft):
        if folder := ModelFolder.local(spec):
            found.append(folder.digest)
            places += [p for p in folder.path.rglob("*") if p.suffix != ".safetensors"]
        else:
            found.append(cached(spec.path, spec.revision))
    return [*found, content(places)]


def named_by(profile: Profile, text: str) -> list[Any]:
    """What a parameter's text names, if anything: a profile, a file or folder, one beside the
    target.
    """
    if text in profile_names():
        return inputs(load_profile(text))
    local = ModelFolder.local(profile.target)
    target = local.path if local else ROOT / profile.target.path
    with contextlib.suppress(OSError, ValueError):  # a text that cannot be a name
        places = [(folder / text).resolve() for folder in (ROOT, target.parent)]
        return content(place for place in places if not ROOT.is_relative_to(place))
    return []


def content(places: Iterable[Path]) -> list[tuple[str, str]]:
    """(name, SHA-256) of files, and of all files of folders; of what is not there nothing."""
    inside = {
        path.resolve()
        for place in places
        for path in ([place] if place.is_file() else place.rglob("*"))
    }
    kept = [p for p in inside if p.is_file() and "__pycache__" not in p.parts]
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
        """Leave, and wait for so many seats; meanwhile nobody else takes one."""
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


def put_back(folder: Path) -> None:
    """Undo a run that did not end well: put the figures from before it back if they wait aside.
    Remove the figures that a run replaced.
    """
    earlier = folder.with_suffix(BEFORE)
    if earlier.is_dir():
        if folder.is_dir():
            shutil.rmtree(folder)
        earlier.rename(folder)
    shutil.rmtree(folder.with_suffix(REPLACED), ignore_errors=True)


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
        if path.name in written_before or place.exists():
            continue
        copy = shutil.copytree if path.is_dir() else shutil.copy2
        copy(path, place)
    earlier.rename(folder.with_suffix(REPLACED))


def put_all_back(call: Call) -> None:
    """Undo the runs that a killed call did not end."""
    for path in chosen([]):
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
    it. Where it is stopped, its pages and its stamp are too.
    """
    name, folder = notebook.name, call.exported(notebook.name)
    with figures_locked(call, folder):
        turn, begun = Turn(room), time.monotonic()
        turn.take(1)
        old = call.stamp(name)
        files = old.kept if old else {}
        try:
            move_aside(folder)
            status, error = execute(call, notebook, turn)
            if status == DONE:
                new = dict(content([folder]))
                replace_figures(folder, files)
                files = new
        finally:
            turn.leave()
            put_back(folder)
    if status != STOPPED:
        spent = time.monotonic() - begun - turn.waited
        changes = call.given["changes"]
        own = {name: changes[name] for name in changes if name in notebook.known}
        given = call.given | {"changes": own}
        stamp = Stamp(name, status, spent, now, files, given, error)
        write_facts(call.page(name, "json"), asdict(stamp), [])
        call.ran[name] = stamp
        tell(stamp, status)


def tell(stamp: Stamp, status: str) -> None:
    """One line for the terminal."""
    tqdm.write(f"{stamp.name:<26} {stamp.seconds:7.1f} s  {status} {stamp.error}")


def execute(call: Call, notebook: Notebook, turn: Turn) -> tuple[str, str]:
    """Run a notebook and keep its pages; its status, and where and why it ended ("": well)."""
    name, values = notebook.name, notebook.values
    done, failed = call.page(name, "ipynb"), call.page(name, "failed.ipynb")
    changed = {n: v for n, v in values.items() if v != notebook.known[n].default}
    bar = {"desc": name, "leave": False, "disable": not sys.stderr.isatty()}
    try:
        papermill.execute_notebook(
            notebook.path,
            failed,
            changed,
            kernel_name="speclab-timed" if notebook.is_timed else "speclab",
            progress_bar=bar,
            start_timeout=300,
            on_cell_execute=turn.before,
        )
        folder = call.exported(name).parent
        pictures = Path(os.path.relpath(folder, call.build)).as_posix()
        text = failed.read_text(encoding="utf-8")
        # the earlier stamp goes with the earlier pages
        call.page(name, "json").unlink(missing_ok=True)
        done.write_text(PICTURES.sub(f"]({pictures}/", text), encoding="utf-8")
        report.to_html(done)
        status, said = DONE, ""
    except (PapermillExecutionError, RuntimeError) as error:  # or the kernel died
        status, said = (STOPPED, "") if call.stopped.is_set() else how_it_ended(error)
    if status not in (DONE, STOPPED):
        for page in (done, done.with_suffix(".html")):
            page.unlink(missing_ok=True)
    if status == FAILED:
        return FAILED, f"{said} (see {os.path.relpath(failed)})"
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
        counts = {"speclab": max(threads // at_once, 1), "speclab-timed": threads}
        for name, count in counts.items():
            own = {"env": {"OMP_NUM_THREADS": str(count)}}
            write_kernel_spec(Path(folder) / "kernels" / name, own, ["--log-level=50"])
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


def places(asked: int | None) -> int:
    """Notebooks that run at once: `asked` (default: two), at most one a core, and one where there
    is a GPU: its memory may hold one pair only.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    if visible and shutil.which("nvidia-smi"):
        return 1
    return min(asked or 2, kit.cores_of_this_process())


def turns_of(call: Call) -> tuple[list[Notebook], list[Notebook]]:
    """The notebooks that are asked for: those that read no tables of the others, then those that
    do. The one that took longest before begins (where that is not known the first number: 00 needs
    no run while 01 records what others read), then come those that measure no time, so that the
    timed cells of the rest need not wait for long ones.
    """
    ordered = sorted(call.notebooks, key=call.seconds, reverse=True)
    others = sorted(ordered[1:], key=lambda one: one.is_timed)
    asked = {one.name[:2] for one in call.notebooks}
    first, readers = [], []
    for one in [*ordered[:1], *others]:
        read_from = {name[:2] for name in tables_read(one)}
        (readers if read_from & asked else first).append(one)
    return first, readers


def run_wave(call: Call, wave: list[Notebook], room: Room) -> None:
    """Run those that are not up to date. Stopped, no kernel stays."""
    digests = [digest(call, one) for one in wave]
    with ThreadPoolExecutor(room.seats) as pool:
        pending = set()
        try:
            for one, now in zip(wave, digests, strict=True):
                stamp = call.stamp(one.name)
                if call.is_current(stamp, now):
                    call.current[one.name] = stamp
                    tell(stamp, "up to date" if stamp.status == DONE else stamp.status)
                else:
                    pending.add(pool.submit(run_one, call, one, now, room))
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


def reproduce(call: Call, asked: int | None = None) -> int:
    """Run what is not up to date, and write the report; 0, 1 when a notebook failed, 130 when
    interrupted.

    asked: notebooks at once.
    """
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        room = Room(places(asked))
        with locked(call.build), kernels(call, room.seats):
            call.figures.mkdir(parents=True, exist_ok=True)
            put_all_back(call)
            for wave in turns_of(call):
                run_wave(call, wave, room)
            return finish(call, time.monotonic() - begun)
    except KeyboardInterrupt:
        ended = call.current | call.ran
        left = ", ".join(one.name for one in call.notebooks if one.name not in ended)
        print(f"Interrupted. Left: {left}. The same command goes on from here.")
        return 130


def finish(call: Call, spent: float) -> int:
    """The report; returns 1 when a notebook failed, else 0. Its head describes the profile with the
    overrides of this call if all notebooks had them, else the profile as it stands.
    """
    names = sorted(path.stem for path in call.build.glob("[0-9]*.json"))
    stamps = [stamp for stamp in map(call.stamp, names) if stamp]
    profile, shared = call.given["profile"], call.given["overrides"]
    if any(stamp.given["overrides"] != shared for stamp in stamps):
        shared = {}
    head = load_profile(profile, shared)
    described = {"profile": profile} | shared
    remarks = {
        stamp.name: report.remark(stamp, described, is_stale(call, stamp)) for stamp in stamps
    }
    write_explorer(head, call.figures)
    page = report.write_index(call.build, call.figures, head, stamps, remarks)
    report.write_light(call.figures, head, remarks)
    failed = sum(stamp.status == FAILED for stamp in call.ran.values())
    counts = f"{len(call.current)} up to date, {failed} failed"
    where = os.path.relpath(page)
    print(f"{len(call.notebooks)} notebooks ({counts}) in {spent:.0f} s: {where}")
    return min(failed, 1)


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
    why_not = "no run with these settings is recorded yet"
    try:
        if runs := explorer.runs_there(profile):
            explorer.write_page(runs, figures / "explore.html")
            return
    except (ValueError, RunError) as error:
        why_not = error
    print(f"explore.html is not written: {why_not}")


def fetch_weights(profile: Profile) -> None:
    """Fetch the weights that a profile's models lack, where they can be had."""
    try:
        pair.make(profile)
    except (RunError, OSError) as error:
        print(f"{error}. Notebooks that read recordings run all the same.")

"""`make reproduce`: run the numbered notebooks, each only when something it depends on changed.

In three waves: those that measure no time, two at once (in the order of their numbers: 00 needs no
run while 01 records what the others read); those that measure time, alone; those that
read the tables of others. Each runs in a kernel of this interpreter, at the root of the repository,
and becomes build/<profile>/NN_name.ipynb with its HTML and a stamp NN_name.json; one that failed is
kept as NN_name.failed.ipynb. One that asks for models which are not there is no failure: its
figures stay as they are. Whatever stops a call, the same command goes on from the stamps.

A thread waits for each notebook, which is a process of its own anyway: its kernel.

What a notebook's outcome depends on is one hash (`digest`). Code counts as its syntax tree without
docstrings. The rooms `ops` (where and how a notebook runs) and `explore` (shown in open notebooks
only), and the command line are not followed: they do not change what comes out.
"""

import ast
import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

import nbformat
import papermill
import psutil
from filelock import FileLock, Timeout
from huggingface_hub import try_to_load_from_cache
from ipykernel.kernelspec import write_kernel_spec
from papermill.exceptions import PapermillExecutionError
from tqdm import tqdm

from speclab.models.pairs import ModelsMissing, local_folder
from speclab.ops import explore, pair, parameters, report
from speclab.profiles import ROOT, Profile, load_profile, profile_names
from speclab.prompts import HUB_SETS, MIRROR, PROJECT_PROMPTS
from speclab.runs import (
    PLACE,
    RunError,
    sha256_of,
    shipped,
    weights_digest,
    written,
)
from speclab.show import notebook as kit

TIMED = ("08", "09", "10", "12")  # they measure time: nothing runs beside them
NOT_FOLLOWED = ("speclab.ops", "speclab.explore", "speclab.__main__")
PICTURES = "](../figures/smollm/"  # how the text of a notebook shows a figure
DATA = re.compile(r"""["']data["']((?:\s*/\s*["'][\w.-]+["'])+)""")
TABLE = re.compile(r"""["'](\d\d_[\w-]+)(?:\.csv)?["']""")
RECORDS = "SPECLAB_AUTHOR_RECORDS"
FOLDERS = ("SPECLAB_MODELS", MIRROR, PLACE, RECORDS)
SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
DONE, FAILED, NEEDS_MODELS = "done", report.FAILED, report.NEEDS_MODELS
STOPPED = "stopped"


@dataclass(frozen=True)
class Notebook:
    """A numbered notebook: its cells as (kind, text), all code by path (its own, and that of the
    modules that it imports), its parameters, and their values in a call.
    """

    path: Path
    cells: list
    code: dict[str, str]
    known: dict[str, parameters.Parameter]
    values: dict[str, Any]

    @property
    def name(self) -> str:
        """As 02_gamma_sweep."""
        return self.path.stem


@dataclass(frozen=True)
class Stamp:
    """How a notebook ended. `files`: checksums of its figures and tables by name."""

    name: str
    status: str
    seconds: float
    digest: str
    files: dict[str, str]
    error: str = ""

    def line(self, status: str) -> str:
        """One line for the terminal."""
        return f"{self.name:<26} {self.seconds:7.1f} s  {status} {self.error}".rstrip()


@dataclass(frozen=True)
class Call:
    """One call: the checked profile, the folders of its pages and of its figures, and whether it
    was stopped.
    """

    profile: Profile
    build: Path
    figures: Path
    stopped: threading.Event = dataclasses.field(default_factory=threading.Event)

    def page(self, name: str, end: str) -> Path:
        """A file of a notebook in the folder of pages."""
        return self.build / f"{name}.{end}"

    def results(self, name: str) -> dict[Path, int]:
        """When each figure and table of a notebook was written."""
        found = self.figures.glob(f"{name[:2]}_*")
        return {path: path.stat().st_mtime_ns for path in found}

    def stamp(self, name: str) -> Stamp | None:
        """The stamp of a notebook's last run; None where there is none that can be read."""
        try:
            text = self.page(name, "json").read_text(encoding="utf-8")
            return Stamp(**json.loads(text))
        except (OSError, ValueError, TypeError):
            return None

    def is_current(self, stamp: Stamp | None, now: str) -> bool:
        """Whether the last run had the same inputs and all that it wrote is there as it was, or
        needed models that are still missing.
        """
        if not stamp or stamp.digest != now or stamp.status == FAILED:
            return False
        if stamp.status == NEEDS_MODELS:
            return bool(pair.missing(self.profile))
        files = content(self.figures / name for name in stamp.files)
        pages = [self.page(stamp.name, end) for end in ("ipynb", "html")]
        return dict(files) == stamp.files and all(page.is_file() for page in pages)


# ---- what is asked -------------------------------------------------------------------------------


def open_call(
    profile: str,
    wanted: list[str],
    overrides: dict,
    changes: dict,
    out: Path | None = None,
) -> tuple[Call, list[Notebook]]:
    """What a call of `make reproduce` asks for, checked.

    profile: a name or a YAML file; wanted: notebooks by number or name, none means all; overrides:
    of the profile's parameters; changes: of the notebooks' parameters; out: where build/ and
    figures/ go (default: the repository). ValueError for what is not there or not allowed, and for
    a notebook that is behind its source.
    """
    if profile.endswith((".yaml", ".yml")):
        profile = str(Path(profile).resolve())
    settings = load_profile(profile, overrides)
    kit.limit_threads()  # says what is wrong with OMP_NUM_THREADS
    check_folders()
    for name, values in settings.notebooks.items():
        parameters.check_names(values, read(*chosen([name]), values).known)
    given = changes | {"profile": profile, "overrides": overrides}
    notebooks = [
        read(path, settings.notebooks.get(path.stem, {}) | given)
        for path in chosen(wanted)
    ]
    parameters.check_names(changes, {n: 0 for one in notebooks for n in one.known})
    for one in notebooks:
        check_twin(one.path)
        judged = one.values.get("judged_prompts_per_domain", 0)
        kit.check_enough(one.name, settings, judged)
    place = (out or ROOT).resolve()
    folders = [place / kind / settings.name for kind in ("build", "figures")]
    return Call(settings, *folders), notebooks


def check_folders() -> None:
    """Let the variables that name folders be absolute. ValueError for one that names none."""
    for variable in FOLDERS:
        if named := os.environ.get(variable):
            folder = Path(named).expanduser().absolute()
            if not folder.is_dir():
                raise ValueError(
                    f"{variable}={named}: no such folder; name one, or unset it"
                )
            os.environ[variable] = str(folder)


def chosen(wanted: list[str]) -> list[Path]:
    """The notebooks of these numbers or names, all without any. ValueError for one not there."""
    paths = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    known = {path.stem: path for path in paths}
    for path in paths:
        known |= {path.stem[:2]: path, str(int(path.stem[:2])): path}
    asked = [Path(text).stem for text in wanted]
    for name in asked:
        if name not in known:
            raise parameters.unknown("notebook", name, [path.stem for path in paths])
    return sorted({known[name] for name in asked}) or paths


def read(path: Path, given: dict[str, Any]) -> Notebook:
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
    known = parameters.parameters_of(path)
    values = {name: given.get(name, own.default) for name, own in known.items()}
    parameters.check_values(values, known)
    cells = cells_of(book)
    own = "\n".join(text for kind, text in cells if kind == "code")
    try:
        return Notebook(path, cells, followed(path.name, own), known, values)
    except SyntaxError as error:
        raise ValueError(
            f"{error.filename}, line {error.lineno}: {error.msg}; mend it, then call again"
        ) from None


def cells_of(book: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """(kind, text) of every cell."""
    return [(cell.cell_type, cell.source.strip()) for cell in book.cells]


def check_twin(path: Path) -> None:
    """ValueError where the .py beside an .ipynb was edited and the twin, which runs, is behind."""
    import jupytext

    source = path.with_suffix(".py")
    if not source.is_file() or source.stat().st_mtime < path.stat().st_mtime:
        return
    if cells_of(jupytext.read(source)) != cells_of(nbformat.read(path, as_version=4)):
        raise ValueError(
            f"{source} was edited, and {path.name}, the twin that runs, is behind: "
            "`make notebooks` writes it anew"
        )


# ---- what an outcome depends on ------------------------------------------------------------------


def digest(call: Call, notebook: Notebook) -> str:
    """SHA-256 of all that the outcome of a notebook depends on."""
    own = {k: v for k, v in notebook.values.items() if k not in parameters.OF_PAIR}
    tables = [call.figures / f"{name}.csv" for name in tables_read(notebook)]
    places = [ROOT / "requirements.lock", *tables, *data_named(notebook.code.values())]
    facts = [
        notebook.cells,
        [*notebook.code],
        [plain_code(path, text) for path, text in notebook.code.items()],
        inputs(call.profile),
        sorted(own.items()),
        [named_by(call.profile, value) for value in parameters.leaves(own)],
        content([*places, *folder_of(RECORDS)]),
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
    found = [module.__file__ for module in finder.modules.values() if module.__file__]
    for bad in finder.badmodules:  # one that is no Python is among them
        if not bad.startswith(NOT_FOLLOWED):
            place = ROOT.joinpath(*bad.split("."))
            found += [place.with_suffix(".py"), place / "__init__.py"]
    code = {name: own}
    for path in sorted(path for path in map(Path, found) if path.is_file()):
        text = path.read_text(encoding="utf-8")
        code[path.relative_to(ROOT).as_posix()] = text
        plain_code(path.relative_to(ROOT).as_posix(), text)
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
    the authors' records.
    """
    named = {place for text in texts for place in DATA.findall(text)}
    paths = [ROOT.joinpath("data", *re.findall(r"[\w.-]+", place)) for place in named]
    return [p for p in paths if "runs" not in p.parts or p.name == "author-records"]


def tables_read(notebook: Notebook) -> set[str]:
    """Names, as "08_self-drafts", of other notebooks' tables that this one or its modules name."""
    texts = "\n".join(notebook.code.values())
    return {name for name in TABLE.findall(texts) if name[:2] != notebook.name[:2]}


def folder_of(variable: str) -> list[Path]:
    """The folder that an environment variable names, if any."""
    return [Path(named)] if (named := os.environ.get(variable)) else []


def inputs(profile: Profile) -> list[Any]:
    """The profile, and what it points at: weights (those that are to be made count as made), the
    models' settings, prompts, manifests of shipped traces. Nothing is fetched.
    """
    places = [
        PROJECT_PROMPTS if profile.prompts == "project" else ROOT / profile.prompts
    ]
    if profile.prompts == "paper":  # revisions of the hub are pinned; copies are files
        sets = [one.name for one in HUB_SETS.values()]
        places = [mirror / name for mirror in folder_of(MIRROR) for name in sets]
    places += [folder / "manifest.json" for folder in shipped(profile, "")]
    places += (ROOT / "data" / "traces" / profile.name).glob("*/manifest.json")
    found = [profile]
    for spec in (profile.target, profile.draft):
        if folder := local_folder(spec):
            found.append(weights_digest(folder))
            places += [p for p in folder.rglob("*") if p.suffix != ".safetensors"]
        elif spec.path.count("/") == 1:
            hub = spec.path, "config.json"
            found.append(str(try_to_load_from_cache(*hub, revision=spec.revision)))
    return [*found, content(places)]


def named_by(profile: Profile, text: Any) -> list[Any]:
    """What a parameter's text names, if anything: a profile, a file or folder, one beside the
    target.
    """
    if not isinstance(text, str) or not text:
        return []
    if text in profile_names():
        return inputs(load_profile(text))
    target = local_folder(profile.target) or ROOT / profile.target.path
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


def run_one(call: Call, notebook: Notebook, now: str) -> Stamp:
    """Run a notebook; put its pages in place, remove figures that it no longer writes. Where it
    does not end well, figures and tables stay as they were.
    """
    name, begun = notebook.name, time.monotonic()
    ages, old = call.results(name), call.stamp(name)
    before = {path: path.read_bytes() for path in ages}
    own = [*(old.files if old else ()), f"{name[:2]}_captions.json"]
    for path in [call.page(name, "json"), *(call.figures / file for file in own)]:
        path.unlink(missing_ok=True)
    status, error = execute(call, notebook)
    new = [path for path, age in call.results(name).items() if age != ages.get(path)]
    if status != DONE:
        for path in new:
            path.unlink()
        for path, data in before.items():
            path.write_bytes(data)
        new = before if status == NEEDS_MODELS else ()
    spent = time.monotonic() - begun
    return Stamp(name, status, spent, now, dict(content(new)), error)


def execute(call: Call, notebook: Notebook) -> tuple[str, str]:
    """Run a notebook and keep its pages; its status, and where and why it ended ("": well)."""
    name, values = notebook.name, notebook.values
    running, done = call.page(f".{name}", "ipynb"), call.page(name, "ipynb")
    failed = call.page(name, "failed.ipynb")
    bar = {"desc": name, "leave": False, "disable": not sys.stderr.isatty()}
    try:
        papermill.execute_notebook(
            notebook.path,
            running,
            {n: v for n, v in values.items() if v != notebook.known[n].default},
            kernel_name="speclab",
            progress_bar=bar,
            start_timeout=300,
        )
        pictures = Path(os.path.relpath(call.figures, call.build)).as_posix()
        text = running.read_text(encoding="utf-8")
        done.write_text(text.replace(PICTURES, f"]({pictures}/"), encoding="utf-8")
        failed.unlink(missing_ok=True)
        report.to_html(done)
        return DONE, ""
    except (PapermillExecutionError, RuntimeError) as error:  # or the kernel died
        if call.stopped.is_set():
            return STOPPED, ""
        for page in (done, done.with_suffix(".html"), failed):
            page.unlink(missing_ok=True)
        said = first_line(getattr(error, "evalue", error))
        if getattr(error, "ename", "") == ModelsMissing.__name__:
            return NEEDS_MODELS, said
        running.replace(failed)
        return FAILED, f"{place_of(error)}{said} (see {os.path.relpath(failed)})"
    finally:
        running.unlink(missing_ok=True)


def first_line(said: object) -> str:
    """The first line of a message."""
    return next(iter(str(said).strip().splitlines()), "no message")


def place_of(error: Exception) -> str:
    """Cell and line of a notebook's error; "" where its kernel died."""
    if not isinstance(error, PapermillExecutionError):
        return ""
    trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
    line = re.search(r"-+> \d+ +(.*)", trace)
    at = f" at `{line[1].strip()}`" if line else ""
    return f"cell [{error.exec_count}]{at}: {error.ename}: "


@contextlib.contextmanager
def kernels(call: Call) -> Iterator[None]:
    """Kernels of this interpreter at the root of the repository, whatever `python3` means to
    Jupyter here; their environment is this process's own.
    """
    before = dict(os.environ)
    places = [str(ROOT), *filter(None, [before.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(ROOT):
        place = Path(folder) / "kernels" / "speclab"
        write_kernel_spec(place, extra_arguments=["--log-level=50"])
        jupyters = ("JUPYTER_PATH", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        os.environ |= dict.fromkeys(jupyters, folder) | {
            "PYTHONPATH": os.pathsep.join(places),
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


def wave_of(notebook: Notebook, notebooks: list[Notebook]) -> int:
    """0 for one that measures no time, 1 for one that does, 2 for one that reads tables of others
    that are asked for too.
    """
    read_from = {name[:2] for name in tables_read(notebook)}
    if read_from & {one.name[:2] for one in notebooks}:
        return 2
    return int(notebook.name[:2] in TIMED)


def run_wave(
    call: Call, notebooks: list[Notebook], at_once: int, force: bool, ended: dict
) -> None:
    """Run those that are not up to date, a line and a stamp as each ends: into `ended`, with
    whether it ran. Stopped, no kernel stays.
    """
    pool, pending = ThreadPoolExecutor(at_once), set()
    try:
        for one in notebooks:
            now, stamp = digest(call, one), call.stamp(one.name)
            if not force and call.is_current(stamp, now):
                ended[one.name] = stamp, False
                status = "up to date" if stamp.status == DONE else stamp.status
                tqdm.write(stamp.line(status))
            else:
                pending.add(pool.submit(run_one, call, one, now))
        while pending:  # a second at a time: on Windows a wait hears no Ctrl-C
            done, pending = wait(pending, 1, FIRST_COMPLETED)
            keep(call, [future.result() for future in done], ended)
    finally:
        if pending:
            call.stopped.set()
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # once is enough
        pool.shutdown(wait=False, cancel_futures=True)
        while not all(future.done() for future in pending):  # one may just be starting
            stop_children()
            time.sleep(0.1)
        whole = [f for f in pending if not f.cancelled() and not f.exception()]
        keep(call, [future.result() for future in whole], ended)


def stop_children() -> None:
    """Kill the kernels, and what they started."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()


def keep(call: Call, stamps: list[Stamp], ended: dict) -> None:
    """Leave the stamps of notebooks that ended, and say so."""
    for stamp in stamps:
        if stamp.status != STOPPED:
            ended[stamp.name] = stamp, True
            write_json(call.page(stamp.name, "json"), dataclasses.asdict(stamp))
            tqdm.write(stamp.line(stamp.status))


def write_json(path: Path, facts: dict) -> None:
    """Write a file that appears whole."""
    text = json.dumps(facts, indent=1)
    written(path, lambda path: path.write_text(text, encoding="utf-8"))


@contextlib.contextmanager
def only_call(folder: Path) -> Iterator[None]:
    """One call at a time works for a folder; another one waits."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"another call works in {folder}: this one waits for it", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def reproduce(
    call: Call, notebooks: list[Notebook], force: bool = False, asked: int | None = None
) -> int:
    """Run what is not up to date, and write the report; 0, 1 when a notebook failed, 130 when
    interrupted.

    asked: notebooks at once, of those that measure no time.
    """
    begun, ended = time.monotonic(), {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with only_call(call.build), kernels(call):
            run_waves(call, notebooks, force, places(asked), ended)
            return finish(call, notebooks, ended, time.monotonic() - begun)
    except KeyboardInterrupt:
        left = [one.name for one in notebooks if one.name not in ended]
        print(
            f"Interrupted. Left: {', '.join(left)}. The same command goes on from here."
        )
        return 130


def run_waves(
    call: Call, notebooks: list[Notebook], force: bool, at_once: int, ended: dict
) -> None:
    """The models where they can be made, then the notebooks; `ended` is filled as they end."""
    call.figures.mkdir(parents=True, exist_ok=True)
    try:
        pair.make(call.profile)
    except RunError as error:  # notebooks that read traces run all the same
        print(error, flush=True)
    threads = kit.limit_threads()  # of one that runs alone
    for wave, count in enumerate((at_once, 1, 1)):
        asked = [one for one in notebooks if wave_of(one, notebooks) == wave]
        os.environ["OMP_NUM_THREADS"] = str(max(threads // count, 1))
        run_wave(call, asked, count, force, ended)


def finish(call: Call, notebooks: list[Notebook], ended: dict, spent: float) -> int:
    """The page to explore runs and the report; returns 1 when a notebook failed, else 0."""
    ran = [is_new for _, is_new in ended.values()]
    if said := explore.bring_up_to_date(call.profile, call.figures):
        print(f"{explore.NAME:<26} {said}")
    names = sorted(path.stem for path in call.build.glob("[0-9]*.json"))
    stamps = [stamp for stamp in map(call.stamp, names) if stamp]
    page = report.write_index(call.build, call.figures, call.profile.name, stamps)
    failed = sum(stamp.status == FAILED for stamp, _ in ended.values())
    if all(ran) and not failed:  # README tells what a whole call takes
        facts = {"seconds": spent, "notebooks": [one.name for one in notebooks]}
        write_json(call.build / report.CALL, facts)
    counts = f"{ran.count(False)} up to date, {failed} failed"
    where = os.path.relpath(page)
    print(f"{len(ran)} notebooks ({counts}) in {spent:.0f} s: {where}")
    return min(failed, 1)

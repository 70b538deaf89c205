"""`make reproduce`: run the numbered notebooks headlessly, each only when something it depends on
changed.

Notebooks run two at a time, each from a process of its own (see `schedule`); where one measures
time, nothing runs beside it (see `turns`). A notebook runs in a kernel of this very interpreter, at
the root of the repository, under a temporary name. When it is done it becomes
build/<profile>/NN_name.ipynb with its HTML and a stamp NN_name.json; a notebook that failed is kept
as NN_name.failed.ipynb. One that asks for models which are not there (most read recorded runs only)
is no failure: its figures stay as they are. The stamp holds a hash of all that the notebook's
outcome depends on (see `sources`).
"""

import ast
import contextlib
import dataclasses
import difflib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import papermill
from papermill.exceptions import PapermillExecutionError

from speclab import runs
from speclab.ops import explore, pair, report, schedule, sources, turns
from speclab.ops.workers import Died, Lines, Relay, Workers
from speclab.profiles import ROOT, load_profile
from speclab.show.notebook import THREADS_ALONE, check_enough_prompts, limit_threads

KERNEL = "speclab-reproduce"
LOOK_S = 1.0  # how often it is looked whether a notebook waits for its turn
DONE, FAILED, NEEDS_MODELS = "done", report.FAILED, report.NEEDS_MODELS
MODELS_MISSING = "ModelsMissing"  # speclab.models.pairs raises it in the notebook


@dataclass(frozen=True)
class Session:
    """What the notebooks of one call share: the repository, the folders they write to, the checked
    profile and the parameters.
    """

    root: Path
    build: Path
    figures: Path
    profile: Any
    parameters: dict[str, Any]

    def given(self, notebook: Path) -> dict[str, Any]:
        """The parameters that this notebook has: the profile's for it, and over them the call's."""
        known = defaults(notebook)
        asked = self.profile.notebooks.get(notebook.stem, {}) | self.parameters
        return {
            name: numbered(name, value, known[name])
            for name, value in asked.items()
            if name in known
        }

    def values(self, notebook: Path) -> dict[str, Any]:
        """All parameters of this notebook: those that it is given, and its defaults."""
        return defaults(notebook) | self.given(notebook)


@dataclass(frozen=True)
class Stamp:
    """How a notebook ended; also its stamp on disk.

    `files` are checksums by name in the figures folder, `status` is DONE, FAILED or NEEDS_MODELS.
    """

    name: str
    status: str
    seconds: float
    digest: str
    files: dict[str, str] = field(default_factory=dict)
    error: str = ""

    def line(self, status: str = "") -> str:
        """One line for the terminal."""
        figures = sum(file.endswith(".png") for file in self.files)
        reason = f": {self.error}" if self.error else ""
        ending = (status or self.status) + reason
        return f"{self.name:<26} {self.seconds:7.1f} s  {figures:2d} figures  {ending}"


# ---- what is asked -------------------------------------------------------------------------------


def open_session(
    profile: str,
    wanted: list[str],
    overrides: dict[str, Any],
    changes: dict[str, Any],
    out: Path | None = None,
) -> tuple[Session, list[Path]]:
    """What a call of `make reproduce` asks for, checked: the session, and its notebooks.

    profile: a name or a YAML file; wanted: notebooks by number or name, none means all; overrides:
    of the profile's parameters; changes: of the notebooks' parameters; out: where build/ and
    figures/ go (default: the repository). ValueError for what is not there, and for a notebook that
    is behind its source.
    """
    is_file = profile.endswith((".yaml", ".yml"))
    name = str(Path(profile).resolve()) if is_file else profile
    settings = load_profile(name, overrides)
    for variable in sources.FOLDERS:
        sources.folder_of(variable)
    limit_threads()  # says what is wrong with OMP_NUM_THREADS
    notebooks = chosen(ROOT, wanted)
    for notebook in notebooks:
        if said := sources.check_twin(notebook):
            print(said, flush=True)
    _check_not_of_pair(changes)
    parameters = {"profile": name, **changes}
    if overrides:
        parameters["overrides"] = overrides
    check_parameters(notebooks, parameters)
    for own, values in settings.notebooks.items():
        _check_not_of_pair(values)
        check_parameters(chosen(ROOT, [own]), values)
    place = (out or ROOT).resolve()
    build, figures = place / "build" / settings.name, place / "figures" / settings.name
    session = Session(ROOT, build, figures, settings, parameters)
    for notebook in notebooks:
        judged = session.values(notebook).get("judged_prompts_per_domain", 0)
        count = settings.prompts_per_domain
        check_enough_prompts(notebook.stem, min(judged or count, count))
    return session, notebooks


def chosen(root: Path, wanted: list[str]) -> list[Path]:
    """The numbered notebooks of the repository, or those named by number or name.

    Raises ValueError when one is not there.
    """
    there = sorted((root / "notebooks").glob("[0-9]*.ipynb"))
    if not there:
        folder = root / "notebooks"
        raise ValueError(
            f"no notebooks [0-9]*.ipynb in {folder}: `make notebooks` writes them from the .py"
        )
    names = [path.stem for path in there]
    for text in wanted:
        if not any(_means(text, name) for name in names):
            raise ValueError(
                f"notebook {text!r}: {_near(text, names)}there are {', '.join(names)}"
            )
    return [
        p for p in there if not wanted or any(_means(text, p.stem) for text in wanted)
    ]


def _near(text: str, names: Iterable[str]) -> str:
    """'did you mean …? ' where a name is near, else nothing."""
    near = difflib.get_close_matches(text, names, 1)
    return f"did you mean {near[0]!r}? " if near else ""


def _means(text: str, name: str) -> bool:
    plain = Path(text).name.removesuffix(".ipynb").removesuffix(".py")
    number = name.split("_")[0]
    alike = plain.lstrip("0") == number.lstrip("0")
    return plain == name or (plain.isascii() and plain.isdecimal() and alike)


def _check_not_of_pair(parameters: dict[str, Any]) -> None:
    """ValueError for a parameter of the notebooks that says which pair: the folders, and what is up
    to date, would be those of another.
    """
    for name in sources.OF_PAIR:
        if name in parameters:
            raise ValueError(
                f"parameter {name!r} says which pair is studied: give it as --profile and --set "
                "(make: PROFILE=… SET=…)"
            )


def defaults(notebook: Path) -> dict[str, Any]:
    """The parameters of a notebook as its cell sets them."""
    found = papermill.inspect_notebook(notebook).items()
    return {name: ast.literal_eval(row["default"]) for name, row in found}


def numbered(name: str, value: Any, default: Any) -> Any:
    """A parameter as it came; its names as numbers where the notebook's own has numbers for names
    (in YAML all are text). ValueError for another name.
    """
    numbers = isinstance(default, dict) and any(type(key) is float for key in default)
    if not (numbers and isinstance(value, dict)):
        return value
    try:
        return {float(key): inner for key, inner in value.items()}
    except ValueError:
        raise ValueError(
            f"parameter {name}={value!r}: numbers are needed before the colons, as {default!r}"
        ) from None


def check_parameters(notebooks: list[Path], parameters: dict[str, Any]) -> None:
    """Raise ValueError for a parameter that none of the notebooks has (papermill only warns), or
    one of another type than its default.
    """
    known = {}
    for path in notebooks:
        known |= defaults(path)
    for name, value in parameters.items():
        if name not in known:
            there = ", ".join(known)
            raise ValueError(
                f"parameter {name!r}: {_near(name, known)}the notebooks have {there}"
            )
        default = known[name]
        numbered(name, value, default)
        whole_for_float = isinstance(default, float) and type(value) is int
        if (
            default is not None
            and type(value) is not type(default)
            and not whole_for_float
        ):
            needed = type(default).__name__
            raise ValueError(
                f"parameter {name}={value!r}: needed is {needed}, as {default!r}"
            )
        _check_elements(name, value, default)


def _check_elements(name: str, value: Any, default: Any) -> None:
    """ValueError for an empty list, and for an element of another kind than those of the notebook's
    own; whole numbers are numbers.
    """
    if not isinstance(default, list) or not default:
        return
    if not value:
        raise ValueError(f"parameter {name}=[] is empty: write some, as {default!r}")
    kinds = {type(one) for one in default}
    if float in kinds:
        kinds.add(int)
    for one in value:
        if type(one) not in kinds:
            raise ValueError(
                f"parameter {name}: {one!r} is not as its own, {default!r}"
            )


# ---- what is up to date --------------------------------------------------------------------------


def previous(session: Session, name: str) -> Stamp | None:
    """The stamp of the notebook's last run, or None where there is none that can be read."""
    try:
        values = json.loads(
            (session.build / f"{name}.json").read_text(encoding="utf-8")
        )
        return Stamp(**values | {"files": dict(values["files"])})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def is_current(session: Session, stamp: Stamp | None, current: str) -> bool:
    """True when the last run ended well on the same inputs and everything that it wrote is still
    there as it was written, or when it needed models that are still missing.
    """
    if stamp is None or stamp.digest != current:
        return False
    if stamp.status == NEEDS_MODELS:
        return sources.models_missing(session.root, session.profile)
    if stamp.status != DONE:
        return False
    pages = [session.build / f"{stamp.name}{end}" for end in (".ipynb", ".html")]
    if not all(path.is_file() and path.stat().st_size for path in pages):
        return False
    return stamp.files == _checksums(session.figures, stamp.files)


def _checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of files by name, of those that are there."""
    there = [name for name in names if (folder / name).is_file()]
    return {name: sources.digest_of(folder / name) for name in there}


# ---- one notebook --------------------------------------------------------------------------------


@contextlib.contextmanager
def kernel(
    session: Session, threads: int, variables: dict[str, str] | None = None
) -> Iterator[None]:
    """A kernel specification for this interpreter in a temporary folder, with more environment
    `variables`: whatever `python3` means to Jupyter here, it is not asked.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "kernels" / KERNEL
        place.mkdir(parents=True)
        launch = [sys.executable, "-m", "ipykernel_launcher", "--log-level=50"]
        specification = {
            "argv": [*launch, "-f", "{connection_file}"],
            "display_name": "speclab",
            "language": "python",
            "env": _environment(session, folder, threads) | (variables or {}),
        }
        (place / "kernel.json").write_text(json.dumps(specification))
        with _set({"JUPYTER_PATH": folder, "JUPYTER_RUNTIME_DIR": folder}):
            yield


def _environment(session: Session, folder: str, threads: int) -> dict[str, str]:
    places = [str(session.root), os.environ.get("PYTHONPATH", "")]
    named = {name: sources.folder_of(name) for name in sources.FOLDERS}
    return {name: str(folder) for name, folder in named.items() if folder} | {
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "OMP_NUM_THREADS": str(threads),
        THREADS_ALONE: str(limit_threads()),
        "SPECLAB_OUT": str(session.figures.parents[1]),
        "IPYTHONDIR": folder,
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


@contextlib.contextmanager
def _set(variables: dict[str, str]) -> Iterator[None]:
    """Environment variables for the time of a block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def execute(session: Session, notebook: Path, progress: Relay) -> tuple[str, str]:
    """Run one notebook and put its result in place; returns its status, and where and why it ended
    in one line ("" when it is done).
    """
    name = notebook.stem
    running = _running(session, name)
    done, failed = (
        session.build / f"{name}.ipynb",
        session.build / f"{name}.failed.ipynb",
    )
    shown = "{bar:20} cell {n_fmt} of {total_fmt}, {elapsed}"
    try:
        papermill.execute_notebook(
            notebook,
            running,
            session.given(notebook),
            kernel_name=KERNEL,
            cwd=session.root,
            progress_bar={
                "file": progress,
                "leave": False,
                "disable": not sys.stderr.isatty(),
                "bar_format": shown,
                "ascii": False,
            },
            stderr_file=progress,
            start_timeout=300,
            coalesce_streams=True,
        )
    except (
        PapermillExecutionError,
        RuntimeError,
    ) as error:  # RuntimeError: the kernel died
        _remove_results(session, name)
        if getattr(error, "ename", "") == MODELS_MISSING:
            return NEEDS_MODELS, _message(error)
        running.replace(failed)
        return FAILED, f"{_reason(error)} (see {os.path.relpath(failed)})"
    else:
        point_to_figures(session, running)
        running.replace(done)
        failed.unlink(missing_ok=True)
        report.to_html(done)
        return DONE, ""
    finally:
        running.unlink(missing_ok=True)


def point_to_figures(session: Session, executed: Path) -> None:
    """Let the pictures in the text of an executed notebook be this session's: the sources name
    those of the committed `tiny`.
    """
    folder = Path(os.path.relpath(session.figures, session.build)).as_posix()
    text = executed.read_text(encoding="utf-8")
    executed.write_text(
        text.replace("](../figures/smollm/", f"]({folder}/"), encoding="utf-8"
    )


def _reason(error: Exception) -> str:
    if not isinstance(error, PapermillExecutionError):
        return str(error).strip().splitlines()[0]
    trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
    line = re.search(r"-+> \d+ +(.*)", trace)
    at = f", at `{line[1].strip()}`" if line else ""
    return f"cell [{error.exec_count}]: {error.ename}: {_message(error)}{at}"


def _message(error: PapermillExecutionError) -> str:
    return (str(error.evalue).strip().splitlines() or ["no message"])[0]


def _remove_results(session: Session, name: str) -> None:
    """Of an earlier run, where this one failed."""
    for end in (".ipynb", ".html", ".failed.ipynb"):
        (session.build / f"{name}{end}").unlink(missing_ok=True)


def _running(session: Session, name: str) -> Path:
    """Where a notebook is written while it runs."""
    return session.build / f".{name}.running.ipynb"


def run_in_kernel(
    session: Session,
    notebook: Path,
    current: str,
    threads: int,
    places: Path,
    say: Callable[[str], None],
) -> Stamp:
    """`run_one` in a kernel of its own with so many threads, its progress told to `say`: what a
    worker does. places: folder of the turns of this call.
    """
    with (
        turns.turn(places, notebook.stem) as asking,
        kernel(session, threads, asking),
    ):
        return run_one(session, notebook, current, Relay(say))


def run_one(session: Session, notebook: Path, current: str, progress: Relay) -> Stamp:
    """Execute a notebook, find the figures and tables it wrote (NN_*), remove those only its last
    run wrote, and leave the stamp. Without its models: leave the figures as they were.
    """
    name, number = notebook.stem, notebook.stem.split("_")[0]
    stamp, old = session.build / f"{name}.json", previous(session, name)
    stamp.unlink(missing_ok=True)
    kept = {p: p.read_bytes() for p in session.figures.glob(f"{number}_*")}
    (session.figures / f"{number}_captions.json").unlink(missing_ok=True)
    before = _ages(session.figures, number)
    start = time.monotonic()
    status, error = execute(session, notebook, progress)
    seconds = time.monotonic() - start
    after = _ages(session.figures, number)
    written = sorted(file for file in after if after[file] != before.get(file))
    if status == DONE and old:
        for file in set(old.files) - set(written):
            (session.figures / file).unlink(missing_ok=True)
    if status == NEEDS_MODELS:
        _put_back(kept, [session.figures / file for file in written])
        written = sorted(path.name for path in kept)
    sums = _checksums(session.figures, written)
    return _stamped(session, Stamp(name, status, seconds, current, sums, error))


def _stamped(session: Session, outcome: Stamp) -> Stamp:
    """Leave the stamp of a notebook's run."""
    text = json.dumps(dataclasses.asdict(outcome), indent=1)
    path = session.build / f"{outcome.name}.json"
    runs.written(path, lambda path: path.write_text(text, encoding="utf-8"))
    return outcome


def _put_back(kept: dict[Path, bytes], written: list[Path]) -> None:
    """Files as they were, by path; others that were written go."""
    for path in {*kept, *written}:
        if path not in kept:
            path.unlink(missing_ok=True)
        elif not path.is_file() or path.read_bytes() != kept[path]:
            path.write_bytes(kept[path])


def _ages(folder: Path, number: str) -> dict[str, int]:
    """When each file of a notebook was written, by name."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob(f"{number}_*")}


# ---- all of them ---------------------------------------------------------------------------------


Ended = dict[Path, tuple[Stamp, bool]]  # how each ended, and whether it ran now


def run_all(
    session: Session, notebooks: list[Path], force: bool = False, at_once: int = 1
) -> int:
    """Run what is not up to date, a line each, and write the report; returns 0, 1 when a notebook
    failed, 130 when interrupted.

    at_once: notebooks that run at a time (see `schedule`).
    """
    start = time.monotonic()
    by_notebook: Ended = {}
    _get_models(session)
    session.build.mkdir(parents=True, exist_ok=True)
    session.figures.mkdir(parents=True, exist_ok=True)
    try:
        _bring_up_to_date(session, notebooks, force, at_once, by_notebook)
    except KeyboardInterrupt:
        done = [path.stem for path in notebooks if path in by_notebook]
        left = [path.stem for path in notebooks if path not in by_notebook]
        print(
            f"Interrupted. Finished: {', '.join(done) or 'none'}. Left: {', '.join(left)}. "
            "The same command goes on from here.",
            flush=True,
        )
        return 130
    ended = [by_notebook[notebook] for notebook in notebooks]
    _explore(session, any(ran for _, ran in ended))
    page = report.write_index(
        session.build, session.figures, session.profile.name, all_stamps(session)
    )
    failed = sum(outcome.status == FAILED for outcome, _ in ended)
    missing = sum(outcome.status == NEEDS_MODELS for outcome, _ in ended)
    current = sum(not ran and outcome.status == DONE for outcome, ran in ended)
    counts = f"{current} up to date, {failed} failed"
    if missing:
        counts += f", {missing} without the models they need"
    spent = time.monotonic() - start
    if not failed and all(ran for _, ran in ended):
        _keep_call(session, notebooks, spent)
    print(
        f"{len(ended)} notebooks ({counts}) in {spent:.0f} s. Figures "
        f"and tables: {os.path.relpath(session.figures)}/ · report: {os.path.relpath(page)}"
    )
    return 1 if failed else 0


def _keep_call(session: Session, notebooks: list[Path], seconds: float) -> None:
    """What a call took that ran all that it was asked for."""
    facts = {"seconds": seconds, "notebooks": [path.stem for path in notebooks]}
    text = json.dumps(facts, indent=1)
    runs.written(
        session.build / report.CALL, lambda path: path.write_text(text, "utf-8")
    )


def _get_models(session: Session) -> None:
    """Make the profile's models where they can be made; where they cannot, the notebooks that read
    traces run all the same.
    """
    try:
        pair.make(session.profile)
    except runs.RunError as error:
        print(error, flush=True)


def _explore(session: Session, ran: bool) -> None:
    """The page to explore the runs by hand, after the notebooks: they may have recorded them."""
    start = time.monotonic()
    done = explore.bring_up_to_date(session.profile, session.figures, ran)
    if done:
        print(f"{explore.NAME:<26} {time.monotonic() - start:7.1f} s  {done}")


def _bring_up_to_date(
    session: Session, notebooks: list[Path], force: bool, at_once: int, ended: Ended
) -> None:
    """Run each notebook that is not up to date, as the schedule has it; `ended` is filled as they
    end.
    """
    lines = Lines()
    room = schedule.Room(session.profile, lines.print)
    after = schedule.waits_for(session.root, notebooks) if at_once > 1 else {}
    waiting, running = list(notebooks), {}
    with tempfile.TemporaryDirectory() as folder, Workers(lines) as workers:
        places = Path(folder)
        while waiting or running:
            busy = [
                path for name, path in running.items() if not turns.waits(places, name)
            ]
            idle = [path for path in running.values() if path not in busy]
            notebook = schedule.next_of(waiting, busy, after, at_once, idle)
            if notebook:
                current = digest_now(session, notebook)
                stamp = previous(session, notebook.stem)
                if not force and is_current(session, stamp, current):
                    lines.print(
                        stamp.line("up to date" if stamp.status == DONE else "")
                    )
                    waiting.remove(notebook)
                    ended[notebook] = stamp, False
                    continue
                if not running or room.for_one_more(workers.process_ids):
                    threads = schedule.threads(limit_threads(), at_once)
                    job = (session, notebook, current, threads, places)
                    workers.start(notebook.stem, run_in_kernel, *job)
                    waiting.remove(notebook)
                    running[notebook.stem] = notebook
                    continue
            ended_now = workers.wait(LOOK_S)
            if not ended_now:
                continue  # one may have begun to wait for its turn
            name, found = ended_now
            notebook = running.pop(name)
            if isinstance(found, Died):
                found = _left_by_the_dead(session, notebook, found)
            lines.print(found.line())
            ended[notebook] = found, True


def digest_now(session: Session, notebook: Path) -> str:
    """The hash of all that a notebook's outcome depends on, as it is now."""
    values = session.values(notebook)
    return sources.digest(
        session.root, session.figures, notebook, session.profile, values
    )


def _left_by_the_dead(session: Session, notebook: Path, error: Died) -> Stamp:
    """The stamp of a notebook whose process was ended from outside: it failed."""
    name = notebook.stem
    running = _running(session, name)
    _remove_results(session, name)
    if running.is_file():
        running.replace(session.build / f"{name}.failed.ipynb")
    return _stamped(session, Stamp(name, FAILED, 0.0, "", {}, str(error)))


def all_stamps(session: Session) -> list[Stamp]:
    """The last run of every notebook of the profile."""
    names = [path.stem for path in sorted(session.build.glob("[0-9]*.json"))]
    return [stamp for name in names if (stamp := previous(session, name))]

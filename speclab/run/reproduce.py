"""`make reproduce`: run the numbered notebooks, each only if something it depends on has changed.

Runs that they need and that are not recorded yet are recorded first, in processes of their own.
Then notebooks with a cell tagged `timed` run, each alone, because they measure time. Then the
others run, two at once, each in a kernel of this interpreter. The results are
build/<profile>/NN_name.ipynb, its pages, and a stamp NN_name.json. A notebook that lacks models or
files is not a failure. After an interruption, the same command continues from the stamps.

Notebooks write below build/<profile>/new, where a failed one stays until the next call. Figures
take the place of earlier ones by a rename, when their notebook has ended well (`finish`).

A digest covers everything that a notebook's outcome depends on: its cells, its parameters and the
files that they name, the profile, and the code and the data of the kit. A stamp also has the
digests of the figures, because profiles share those of public runs.
"""

import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from tqdm import tqdm

from speclab.cli import pair
from speclab.cli.run_plan import JUDGED, chosen, runs_asked
from speclab.models.folder import model_digest
from speclab.place import folder_of
from speclab.plain import Facts, digest_of, one_line, say_once, sha256_of
from speclab.run import DONE, FAILED, LEFT_OUT, NEEDS_MODELS, parameters
from speclab.show import notebook as kit
from speclab.study import runs
from speclab.study.profiles import ROOT, Profile, load_profile
from speclab.study.reading import checked

STYLE = "SPECLAB_STYLE"  # environment variable: the reader's style file
IGNORED = re.compile(r"\..*|.*\.(pyc|safetensors|whl)")  # names of files that have no digest
OLD = ".old"  # ending of figures whose place new ones take
LEAST_MEMORY = 6e9  # bytes for two notebooks at once
STILL = "Notebooks that only read recordings still run."
# errors that a notebook raises if it lacks something
NEEDS = {"ModelsMissing": NEEDS_MODELS, "LeftOut": LEFT_OUT}


@dataclass(frozen=True)
class Notebook:
    """A numbered notebook: the values of all its parameters, those that the profile or the call
    changes, whether a cell measures time, and what its stamp says before it has run: `name`,
    `digest` of all that its outcome depends on, and `given`, what the call names and changes.
    """

    path: Path
    values: Any
    changed: Facts
    is_timed: bool
    stamp: Facts


@dataclass(frozen=True)
class Call:
    """One call of `make reproduce`: the checked profile as it was `named`, with its overrides, the
    notebooks to run, and the folders for pages with their stamps and for the profile's figures.
    """

    profile: Profile
    named: Facts
    build: Path
    figures: Path
    notebooks: list[Notebook]


# ---- the call ------------------------------------------------------------------------------------


def open_run(
    profile: str,
    wanted: Sequence[str],
    overrides: Facts,
    changes: Sequence[str],
    out: Path | None = None,
) -> Call:
    """Check the arguments of `make reproduce`.

    profile: a name or a YAML file. wanted: notebooks by number or name; empty means all that the
    study changes. overrides:
    of the profile's parameters. changes: of the notebooks' parameters, as name=value. out: the
    folder for build/ and figures/ (default: the repository). Raises ValueError for unknown names,
    for values that are not allowed, for prompts that cannot be read, and for a file that is no
    style file.
    """
    # the profile, its prompts, the style, and all names
    settings = load_profile(profile, overrides)
    runs.sets_asked(settings, runs.sizes_of(settings))
    if style := folder_of(STYLE):
        from speclab.show import figures  # lazy: imports matplotlib

        figures.check_style()
    known = {path: parameters.parameters_of(path) for path in chosen(wanted, ROOT)}
    of_call = parameters.values_of_call(changes, known.values())
    named = {"profile": profile, "overrides": overrides}
    folders = [(out or ROOT).resolve() / kind / settings.name for kind in ("build", "figures")]
    call = Call(settings, named, *folders, [])
    # what all outcomes depend on; weights that are still to be made count as made
    models = settings.models.values()
    weights = [model_digest(spec, fetch=False) for spec in models]
    of_kit = ["requirements.lock", "notebooks/profiles", "speclab", runs.RUNS / "specdecode-bench"]
    of_kit += [path for path in (ROOT / "data").glob("*") if path.name != "runs"]
    of_study = str(settings.prompts), *settings.others, settings.traces, folder_of(runs.PLACE)
    files = content([*of_kit, *of_study, *(spec.path for spec in models)])
    shared = digest_of([settings, weights, files, sys.version_info[:2]])
    # each notebook's values, whether the study has enough for it, and what its outcome depends on
    for path, allowed in known.items():
        names = allowed.__dataclass_fields__
        own = {name: value for name, value in of_call.items() if name in names}
        given = parameters.values_of(settings, path, own, allowed)
        values = checked(allowed, given, path.stem)
        reason = "" if wanted else kit.unchanged_by(settings, path.stem, given)
        if reason := reason or kit.lacks(path.stem, settings, getattr(values, JUDGED, 0)):
            tell(path.stem, LEFT_OUT, reason)
            continue
        cells = parameters.cells_of(path)
        is_timed = any("timed" in tags for *_, tags in cells)
        texts = [value for value in given.values() if isinstance(value, str)]
        read = content([*texts, not is_timed and style])  # a style file changes no times
        now = digest_of([shared, cells, given, read])
        stamp = {"name": path.stem, "digest": now, "given": named | {"changes": own}}
        call.notebooks.append(Notebook(path, values, given | named, is_timed, stamp))
    return call


def content(names: Iterable[Any]) -> dict[str, str]:
    """SHA-256 by path, of files and of all files in folders, but not of weights, byte code and
    hidden files. Paths may be seen from the working folder; a name of no file has no digest.
    """
    places = {folder / name for name in filter(None, names) for folder in (ROOT, Path.cwd())}
    there = [place for place in places if os.path.exists(place)]  # also of a long text
    files = {path for place in there for path in (place, *place.rglob("*")) if path.is_file()}
    seen = [path for path in files if not IGNORED.fullmatch(path.name)]
    return {os.path.relpath(path, ROOT): sha256_of(path) for path in seen}


# ---- what has run --------------------------------------------------------------------------------


def last_stamp(call: Call, name: str) -> Any:
    """The outcome of a notebook's last run, as `finish` writes it; None if it is missing or was
    edited.
    """
    with suppress(runs.Damaged):
        return SimpleNamespace(**runs.read_facts(call.build / f"{name}.json", "run it again"))


def is_current(call: Call, notebook: Notebook) -> Any:
    """Whether another run of a notebook would end alike, which is then printed: its inputs are the
    same, and its figures are as it drew them, or what it needs is still missing. A notebook that
    shall measure once more is never current.
    """
    name = notebook.path.stem
    stamp = last_stamp(call, name)
    is_new = notebook.changed.get("timing") == "new"
    if not stamp or is_new or stamp.digest != notebook.stamp["digest"]:
        return False
    ends_alike = {
        DONE: stamp.drawn.items() <= content([kit.drawn_in(call.figures, name)]).items(),
        NEEDS_MODELS: pair.missing(call.profile),
        LEFT_OUT: True,
    }.get(stamp.status)
    if ends_alike:
        tell(name, f"up to date: {stamp.status}", stamp.error)
    return ends_alike


def tell(name: str, status: str, error: str = "") -> None:
    """Print in one line how a notebook began or ended."""
    tqdm.write(f"{name:<26} {status} {error}")


# ---- running -------------------------------------------------------------------------------------


@contextmanager
def stopping(pool: Executor) -> Iterator[Executor]:
    """A pool of which, after an interruption, no process and no kernel keeps running."""
    with pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if "resource_tracker" not in " ".join(child.cmdline()):  # it ends by itself
                        child.kill()
            raise


def record_missing(call: Call, notebooks: Sequence[Notebook], at_once: int) -> None:
    """Record the runs that these notebooks need and that are not there, so that no two notebooks
    wait for the same recording. Processes of their own give the models' memory back.
    """
    asked = runs_asked(call.profile, [notebook.path for notebook in notebooks])
    missing = [run.kind for run in asked if not (run.here or run.refused)]
    if not missing:
        return
    pool = ProcessPoolExecutor(at_once, get_context("spawn"), start_recorder, (at_once,))
    with stopping(pool):
        recorded = [pool.submit(runs.load_or_record, call.profile, kind) for kind in missing]
        for one in as_completed(recorded):
            if error := one.exception():
                say_once(f"{one_line(error)}. {STILL}")


def start_recorder(at_once: int) -> None:
    """Prepare a process that records: Ctrl-C ends it, and it says what a reader can act on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    share_cores(at_once)
    kit.quiet()


def share_cores(at_once: int) -> None:
    """Let each of `at_once` processes that start now use its share of the cores."""
    os.environ["OMP_NUM_THREADS"] = str(kit.limit_threads() // at_once or 1)


def run_all(call: Call, notebooks: Sequence[Notebook], at_once: int) -> list[str]:
    """Run notebooks, and return how they ended."""
    share_cores(at_once)
    with stopping(ThreadPoolExecutor(at_once)) as pool:
        running = {pool.submit(execute, call, notebook): notebook for notebook in notebooks}
        return [finish(call, running[one], *one.result()) for one in as_completed(running)]


def execute(call: Call, notebook: Notebook) -> tuple[str, str]:
    """Run a notebook. Returns its status, and where and why it ended ("" after success)."""
    import papermill

    name = notebook.path.stem
    tell(name, "begins")
    try:
        papermill.execute_notebook(
            notebook.path,
            call.build / "new" / notebook.path.name,
            notebook.changed,
            kernel_name="python3",
            progress_bar={"desc": name, "leave": False, "disable": None},  # None: not in a log
            start_timeout=300,
            extra_arguments=["--log-level=50"],  # of the kernel
        )
    except papermill.PapermillExecutionError as failure:
        error = failure.evalue.partition("\n")[0]
        if failure.ename in NEEDS:
            return NEEDS[failure.ename], error
        return FAILED, f"cell [{failure.exec_count}]: {failure.ename}: {error}"
    except RuntimeError as failure:  # the kernel died
        return FAILED, str(failure)
    return DONE, ""


def finish(call: Call, notebook: Notebook, status: str, error: str) -> str:
    """Put a notebook's page, figures and stamp in place, and return how it ended. If it did not end
    well, its earlier page and figures stay as they were. Renames replace the folder of figures, so
    an interruption cannot leave a mixture.
    """
    name, new = notebook.path.stem, call.build / "new"
    facts = notebook.stamp | {"status": status, "error": error, "drawn": {}}
    if status == DONE:
        folder = kit.drawn_in(call.figures, name)
        drawn = kit.drawn_in(new / "figures" / call.figures.name, name)
        for place in (folder, drawn):
            place.mkdir(parents=True, exist_ok=True)
        folder.rename(drawn.with_suffix(OLD))
        drawn.rename(folder)
        (new / notebook.path.name).replace(call.build / notebook.path.name)
        facts["drawn"] = content([folder])
    # the stamp comes last, because it vouches for page and figures
    runs.write_facts(call.build / f"{name}.json", facts, [])
    tell(name, status, error)
    return status


def reproduce(call: Call, workers: int = 2) -> int:
    """Run the notebooks that are not up to date, and write the report. Returns 0, or 1 if a
    notebook failed. workers: notebooks at once; 1 if less than LEAST_MEMORY is free, or if there is
    a GPU, whose memory may hold only one pair. The .ipynb runs, not its .py. ValueError: no
    notebook to run.
    """
    from speclab.explore import page as explorer
    from speclab.run import pages, report

    has_gpu = os.environ.get("CUDA_VISIBLE_DEVICES") != "" and shutil.which("nvidia-smi")
    has_little = psutil.virtual_memory().available < LEAST_MEMORY
    at_once = 1 if has_gpu or has_little else workers
    if not call.notebooks:
        raise ValueError("no notebook is left to run")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    new, index = call.build / "new", call.build / "index.html"
    with runs.locked(call.build.parent):  # two profiles may share a folder of figures
        for earlier in new.glob(f"figures/*/*{OLD}"):  # a killed call took these figures away
            place = call.figures.parent / earlier.parent.name / earlier.stem
            if not place.exists():
                earlier.rename(place)
        stale = [notebook for notebook in call.notebooks if not is_current(call, notebook)]
        if stale:
            shutil.rmtree(new, ignore_errors=True)
            index.unlink(missing_ok=True)  # of older pages
        new.mkdir(parents=True, exist_ok=True)
        record_missing(call, stale, at_once)
        # kernels of this interpreter, without the user's settings
        os.environ |= {"JUPYTER_PREFER_ENV_PATH": "1", "JUPYTER_RUNTIME_DIR": tempfile.gettempdir()}
        os.environ |= dict.fromkeys(("IPYTHONDIR", "SPECLAB_OUT"), str(new))
        ended = run_all(call, [one for one in stale if one.is_timed], 1)
        ended += run_all(call, [one for one in stale if not one.is_timed], at_once)
        # the pages of the notebooks, the explorer and the report, whose head describes the profile
        # without overrides; each notebook says what else it was run with
        if not index.is_file():
            stamps = [stamp for path in chosen([], ROOT) if (stamp := last_stamp(call, path.stem))]
            for stamp in stamps:
                if stamp.status == DONE:
                    pages.to_markdown(call.build / f"{stamp.name}.ipynb", call.figures)
            study, page = load_profile(call.named["profile"]), call.figures / "explore.html"
            try:
                found = explorer.runs_there(study)
                explorer.write_page(found, page, explorer.heads_there(study, found))
            except (ValueError, runs.RunError) as error:
                print(f"explore.html, of the profile without --set, is not written: {error}")
            report.write_report(call.build, call.figures, study, stamps)
    counts = [f"{count} {status}" for status, count in Counter(ended).items()]
    print(f"{os.path.relpath(index)}: {', '.join(counts) or 'all up to date'}")
    return int(FAILED in ended)

"""`make reproduce`: run the numbered notebooks, each only if something it depends on has changed.

Runs that they need and that are not recorded yet are recorded first, in a process of its own. Then
notebooks with a cell tagged `timed` run, each alone, because they measure time. Then the others
run, two at once, each in a kernel of this interpreter. The results are
build/<profile>/NN_name.ipynb, the HTML page, and a stamp NN_name.json. At the end of a call the
notebook is also written as Markdown, in README.md of its figures' folder. A failed notebook is kept
as NN_name.failed.ipynb. A notebook that lacks models or files is not a failure. After an
interruption, the same command continues from the stamps.

Notebooks write below build/<profile>/new. Figures take the place of earlier ones by a rename, when
their notebook has ended well (`replace_folder`).

One hash covers everything that a notebook's outcome depends on (`digest`): its cells, its
parameters, the profile, the code of the kit, and the files that the notebook or this code lists in
plain texts called READS: `READS = ["data/paper", "{log}"]`.
"""

import ast
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jupytext
import nbformat
import papermill
import psutil
from ipykernel.kernelspec import write_kernel_spec
from papermill.exceptions import PapermillExecutionError
from tqdm import tqdm

from speclab.cli import pair
from speclab.cli.run_plan import JUDGED, chosen, runs_asked
from speclab.explore import page as explorer
from speclab.models.folder import ModelFolder
from speclab.place import folder_of
from speclab.plain import digest_of, one_line, say_once, sha256_of
from speclab.run import pages, parameters, report
from speclab.run.report import DONE, FAILED, LEFT_OUT, NEEDS_FILES, NEEDS_MODELS
from speclab.show import notebook as kit
from speclab.study import runs
from speclab.study.pairs import pair_digests
from speclab.study.profiles import MODELS, ROOT, Profile, load_profile
from speclab.study.prompts import HUB_SETS, MIRROR

LISTED = re.compile(r"^READS = (\[[^]]*\])", re.MULTILINE)
STYLE = "$SPECLAB_STYLE"  # as the module that draws lists it
UNREAD = ("cli", "run", "explore")  # folders of the package that change no outcome
SHIPPED = ("requirements.lock", "notebooks/profiles", "data/traces")
FOLDERS = ("SPECLAB_MODELS", MIRROR, runs.PLACE, "SPECLAB_AUTHOR_RECORDS")
LEAST_MEMORY = 6e9  # bytes, for two notebooks at once
ENDS = {DONE: ".ipynb", FAILED: ".failed.ipynb"}  # of the pages that are kept
OLD = ".old"  # suffix of a folder of figures while it is replaced
KEEPS = "(with its earlier style: another run would measure other times)"
STILL = "Notebooks that only read recordings still run."
# errors that a notebook raises if it lacks something
NEEDS = {"ModelsMissing": NEEDS_MODELS, "FilesMissing": NEEDS_FILES, "LeftOut": LEFT_OUT}


@dataclass(frozen=True)
class Notebook:
    """A numbered notebook: the values of its parameters that differ from their defaults, whether a
    cell measures time, and the digest of everything that its outcome depends on.
    """

    path: Path
    changed: dict[str, Any]
    is_timed: bool
    digest: str

    @property
    def name(self) -> str:
        """The name without suffix, such as 02_gamma_sweep."""
        return self.path.stem


@dataclass(frozen=True)
class Call:
    """One call of `make reproduce`: the checked profile, the notebooks to run, the folder for
    build/ and figures/, and the arguments `given` to `open_call`.
    """

    profile: Profile
    notebooks: list[Notebook]
    place: Path
    given: dict[str, Any]

    @property
    def build(self) -> Path:
        """The folder for pages and stamps."""
        return self.place / "build" / self.profile.name

    @property
    def figures(self) -> Path:
        """The folder of the profile's figures."""
        return self.place / "figures" / self.profile.name

    def stamp(self, name: str) -> SimpleNamespace | None:
        """The outcome of a notebook's last run, as `finish` writes it; None if it is missing or was
        edited.
        """
        with suppress(runs.Damaged):
            return SimpleNamespace(**runs.read_facts(self.build / f"{name}.json", "run it again"))
        return None


def tell(name: str, status: str, error: str = "", seconds: float = 0) -> None:
    """Print in one line how a notebook ended."""
    tqdm.write(f"{name:<26} {seconds:7.1f} s  {status} {error}")


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
    # notebooks work in the kit's folder, so what they get is absolute
    if profile.endswith((".yaml", ".yml")):
        profile = str(Path(profile).absolute())
    settings = load_profile(profile, overrides)
    overrides = absolute(overrides, settings)
    runs.sets_asked(settings, runs.sizes_of(settings))
    check_environment()
    of_profile = parameters.of_profile(settings)
    every: dict[str, Any] = {}
    of_pair = {"profile": profile, "overrides": overrides}
    place = (out or ROOT).resolve()
    call = Call(settings, [], place, of_pair | {"changes": changes})
    for path in chosen(wanted, ROOT):
        every |= (known := parameters.parameters_of(path))
        # this call's parameters go before the profile's
        values = parameters.values_of(of_profile.get(path.stem, {}) | changes | of_pair, known)
        cells = cells_of_twins(path)
        if reason := kit.lacks(path.stem, settings, values.get(JUDGED, 0)):
            tell(path.stem, LEFT_OUT, reason)
        else:
            is_timed = any("timed" in tags for *_, tags in cells)
            now = digest(settings, cells, values, is_timed)
            changed = {
                name: value for name, value in values.items() if value != known[name].default
            }
            call.notebooks.append(Notebook(path, changed, is_timed, now))
    parameters.check_names(changes, every)
    if not call.notebooks:
        raise ValueError("no notebook is left to run")
    return call


def absolute(overrides: dict, profile: Profile) -> dict:
    """The overrides with the paths of the profile."""
    paths: dict[str, Any] = {"prompts": profile.prompts, "traces": profile.traces}
    paths["other_prompts"] = list(profile.others)
    for name in MODELS:
        paths |= dict.fromkeys((name, f"{name}.path"), getattr(profile, name).path)
    given = {name: value for name, value in overrides.items() if not isinstance(value, dict)}
    return overrides | {name: paths.get(name, value) for name, value in given.items()}


def check_environment() -> None:
    """Make paths in environment variables absolute. ValueError: one names no folder, or no style
    file.
    """
    for variable in FOLDERS:
        if folder := folder_of(variable):
            os.environ[variable] = str(folder.absolute())
            if not folder.is_dir():
                raise ValueError(f"{variable}={folder}: no such folder; name one, or unset it")
    if STYLE[1:] in os.environ:
        from speclab.show import figures

        figures.check_style()


def cells_of_twins(path: Path) -> list:
    """The cells of a notebook. ValueError if the .ipynb, which runs, and its .py have different
    cells. File times cannot show which was edited, because a checkout or an autosave changes them.
    """
    cells = pages.cells_of(nbformat.read(path, as_version=4))
    source, number = path.with_suffix(".py"), path.name[:2]
    if source.is_file() and pages.cells_of(jupytext.read(source)) != cells:
        raise ValueError(
            f"{source} and {path.name} differ: `make notebooks NOTEBOOKS={number}` keeps the .py "
            f"and writes the .ipynb from it, `make sources NOTEBOOKS={number}` keeps the .ipynb"
        )
    return cells


# ---- what an outcome depends on ------------------------------------------------------------------


def digest(profile: Profile, cells: list, values: dict[str, Any], is_timed: bool) -> str:
    """SHA-256 of everything that a notebook's outcome depends on. Weights that are still to be made
    count as made. Nothing is downloaded.
    """
    package = ROOT / "speclab"
    code = [path for path in package.rglob("*.py") if path.parts[len(package.parts)] not in UNREAD]
    names = [*SHIPPED, *code, profile.prompts, *profile.others, profile.traces, f"${runs.PLACE}"]
    # revisions of public sets are pinned, so only local copies vary
    names += [f"${MIRROR}/{one.name}" for one in HUB_SETS.get(profile.prompts, {}).values()]
    for folder in filter(None, map(ModelFolder.local, (profile.target, profile.draft))):
        names += [path for path in folder.path.rglob("*") if path.suffix != ".safetensors"]
    sources = [path.read_text("utf-8") for path in code] + [text for _, text, _ in cells]
    for name in reads_in(sources):
        value = values.get(name.strip("{}"), name)
        names += value if isinstance(value, list) else [value]
    # a style file changes no times, so a notebook that measures them keeps its figures
    files = content(name for name in names if name and (name != STYLE or not is_timed))
    weights = pair_digests(profile, fetch=False)
    return digest_of([cells, values, profile, weights, files, sys.version_info[:2]])


def reads_in(sources: Iterable[str]) -> list[str]:
    """What notebooks and modules list in READS."""
    lists = LISTED.findall("\n".join(sources))
    return [name for listed in lists for name in ast.literal_eval(listed)]


def content(names: Iterable[Path | str]) -> dict[str, str]:
    """SHA-256 by path, of files and of all files in folders. `$NAME` stands for an environment
    variable.
    """
    places = [ROOT / os.path.expandvars(name) for name in names]
    paths = [path for place in places for path in (place, *place.rglob("*")) if path.is_file()]
    kept = [path for path in paths if path.suffix != ".pyc"]
    return {os.path.relpath(path, ROOT): sha256_at(path, path.stat().st_mtime_ns) for path in kept}


@cache
def sha256_at(path: Path, _changed_ns: int) -> str:
    """SHA-256 of a file, computed once per process unless the file changes."""
    return sha256_of(path)


def current(call: Call, notebook: Notebook) -> SimpleNamespace | None:
    """The stamp of a notebook's last run if that had the same inputs and everything it wrote is
    unchanged, or if it needed what is still missing.
    """
    stamp, page = call.stamp(notebook.name), call.build / f"{notebook.name}.ipynb"
    if not stamp or stamp.digest != notebook.digest:
        return None
    is_new = notebook.changed.get("timing") == "new"  # it measures once more
    is_current = {
        DONE: page.is_file() and content(stamp.kept) == stamp.kept and not is_new,
        NEEDS_MODELS: pair.missing(call.profile),
        FAILED: False,
    }
    return stamp if is_current.get(stamp.status, True) else None


# ---- running -------------------------------------------------------------------------------------


def record(profile: Profile, kinds: Sequence[str], threads: int) -> None:
    """Record runs of these kinds, as far as the models are there. It works in a process of its own,
    which gives their memory back.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    kit.quiet()
    kit.limit_threads()
    for kind in kinds:
        try:
            runs.load_or_record(profile, kind)
        except (ValueError, OSError, RuntimeError) as error:
            say_once(f"{one_line(error)}. {STILL}")


def execute(call: Call, notebook: Notebook) -> tuple[str, str, float]:
    """Run a notebook. Returns its status, where and why it ended ("" after success), and its
    seconds.
    """
    name, begun = notebook.name, time.monotonic()
    tqdm.write(f"{name:<26} begins")
    status, error = DONE, ""
    try:
        papermill.execute_notebook(
            notebook.path,
            call.build / "new" / f"{name}.ipynb",
            notebook.changed,
            kernel_name="speclab",
            progress_bar={"desc": name, "leave": False, "disable": not sys.stderr.isatty()},
            start_timeout=300,
        )
    except PapermillExecutionError as failure:
        status, error = NEEDS.get(failure.ename, FAILED), failure.evalue.partition("\n")[0]
        if status == FAILED:
            error = f"cell [{failure.exec_count}]: {failure.ename}: {error}"
    except RuntimeError as failure:  # the kernel died
        status, error = FAILED, str(failure)
    return status, error, time.monotonic() - begun


def finish(call: Call, notebook: Notebook, status: str, error: str, seconds: float) -> None:
    """Put a notebook's page, figures and stamp in place. If it did not end well, its earlier page
    and figures stay as they were.
    """
    name, new = notebook.name, call.build / "new"
    stamp, page = call.stamp(name), new / f"{name}.ipynb"
    kept = stamp.kept if stamp else {}
    if status == DONE:
        # pictures in the text are those of this call
        text = page.read_text("utf-8").replace("](../figures/", "](../../figures/")
        page.write_text(text.replace("/figures/smollm/", f"/figures/{call.figures.name}/"), "utf-8")
        drawn = kit.drawn_in(new / "figures" / call.figures.name, name)
        with runs.locked(call.build.parent):  # two profiles may share a folder of figures
            kept = replace_folder(kit.drawn_in(call.figures, name), drawn, kept)
    changes = {n: v for n, v in notebook.changed.items() if n in call.given["changes"]}
    facts = {"name": name, "status": status, "error": error, "seconds": seconds, "kept": kept}
    facts |= {"digest": notebook.digest, "given": call.given | {"changes": changes}}
    # the stamp comes last, because it vouches for page and figures
    if status in ENDS:
        page.replace(call.build / f"{name}{ENDS[status]}")
    runs.write_facts(call.build / f"{name}.json", facts, [])
    if status == DONE:
        (call.build / f"{name}{ENDS[FAILED]}").unlink(missing_ok=True)
    tell(name, status, error, seconds)


def replace_folder(folder: Path, new: Path, earlier: Iterable[str]) -> dict[str, str]:
    """Replace a folder of figures by a new one, with the files of a user: those that no `earlier`
    run wrote. Returns the new checksums. The last steps are renames, so an interruption cannot
    leave a mixture, and the next call completes them (`clean`).
    """
    for place in (folder, new):
        place.mkdir(parents=True, exist_ok=True)
    written = [path.name for path in new.iterdir()]
    for path in folder.iterdir():
        if os.path.relpath(path, ROOT) not in earlier and path.name not in written:
            copy = shutil.copytree if path.is_dir() else shutil.copy2
            copy(path, new / path.name)
    old = folder.rename(folder.with_suffix(OLD))
    shutil.move(new, folder)
    shutil.rmtree(old)
    return content(folder / name for name in written)


def clean(call: Call, new: Path) -> None:
    """Complete what a killed call left."""
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    for old in call.figures.parent.glob(f"*/[0-9][0-9]{OLD}"):
        if old.with_suffix("").is_dir():
            shutil.rmtree(old)
        else:
            old.rename(old.with_suffix(""))


def run_all(call: Call, notebooks: Sequence[Notebook], at_once: int) -> None:
    """Run notebooks. After an interruption no kernel keeps running."""
    os.environ["OMP_NUM_THREADS"] = str(max(kit.limit_threads() // at_once, 1))
    with ThreadPoolExecutor(at_once) as pool:
        running = {pool.submit(execute, call, notebook): notebook for notebook in notebooks}
        try:
            for future in as_completed(running):
                finish(call, running[future], *future.result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in running):  # kernels may just be starting
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                for child in psutil.Process().children(recursive=True):
                    with suppress(psutil.Error):
                        child.kill()
                time.sleep(0.1)


def places(workers: int | None) -> int:
    """Number of notebooks that run at once: `workers`, else 2, or 1 with little memory; at most one
    per core. With a GPU it is 1, because the GPU's memory may hold only one pair.
    """
    usual = 2 if psutil.virtual_memory().available > LEAST_MEMORY else 1
    has_gpu = os.environ.get("CUDA_VISIBLE_DEVICES") != "" and shutil.which("nvidia-smi")
    return 1 if has_gpu else min(workers or usual, kit.cores_of_this_process())


def reproduce(call: Call, workers: int | None = None) -> int:
    """Run the notebooks that are not up to date, and write the report. Returns 0, or 1 if a
    notebook failed. workers: notebooks at once.
    """
    begun, new = time.monotonic(), call.build / "new"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with runs.locked(call.build), tempfile.TemporaryDirectory() as folder:
        with runs.locked(call.build.parent):
            clean(call, new)
        stale = []
        for notebook in call.notebooks:
            if stamp := current(call, notebook):
                status = "up to date" if stamp.status == DONE else stamp.status
                keeps = notebook.is_timed and STYLE[1:] in os.environ
                tell(notebook.name, status, KEEPS if keeps else stamp.error, stamp.seconds)
            else:
                stale.append(notebook)
        # no two notebooks wait for the same recording
        paths = [notebook.path for notebook in stale]
        asked = runs_asked(call.profile, paths)
        missing = [run.kind for run in asked if not (run.here or run.refused)]
        at_once, spawn = min(places(workers), len(missing)), get_context("spawn")
        children = []
        for start in range(at_once):  # each process records every second run, if there are two
            threads = max(kit.limit_threads() // at_once, 1)
            given = (call.profile, missing[start::at_once], threads)
            children.append(spawn.Process(target=record, args=given, daemon=True))
        for child in children:
            child.start()
        for child in children:
            child.join()
        write_kernel_spec(Path(folder, "kernels", "speclab"), {}, ["--log-level=50"])
        os.environ |= {"JUPYTER_PATH": folder, "JUPYTER_RUNTIME_DIR": folder}
        os.environ |= {"IPYTHONDIR": folder, "SPECLAB_OUT": str(new)}
        timed = [notebook for notebook in stale if notebook.is_timed]
        run_all(call, timed, 1)
        run_all(call, [notebook for notebook in stale if notebook not in timed], places(workers))
        page = call.build / "index.html"
        if stale or not page.is_file() or page.stat().st_mtime < newest_code():
            write_report(call)
    spent = time.monotonic() - begun
    print(f"{len(call.notebooks)} notebooks in {spent:.0f} s: {os.path.relpath(page)}")
    return int(any(call.stamp(one.name).status == FAILED for one in call.notebooks))


# ---- after the notebooks, and before -------------------------------------------------------------


def newest_code() -> float:
    """When the code and the templates of pages, report and explorer last changed."""
    folders = [ROOT / "speclab" / name for name in UNREAD]
    files = [path for folder in folders for path in folder.rglob("*.*") if path.suffix != ".pyc"]
    return max((path.stat().st_mtime for path in files), default=0)


def write_report(call: Call) -> None:
    """Write the pages of this call's notebooks, the explorer and the report. Its head describes the
    profile without overrides; each notebook says what else it was run with.
    """
    stamps = [stamp for path in chosen([], ROOT) if (stamp := call.stamp(path.stem))]
    done = [stamp.name for stamp in stamps if stamp.status == DONE]
    for name in {notebook.name for notebook in call.notebooks} & {*done}:
        pages.publish(call.build / f"{name}.ipynb", call.figures, done)
    study = load_profile(call.given["profile"])
    try:
        found, page = explorer.runs_there(study), call.figures / "explore.html"
        explorer.write_page(found, page, explorer.heads_there(study, found))
        explorer.with_links(page, call.build)
    except (ValueError, runs.RunError) as error:
        print(f"explore.html is not written: {error}")
    described = {"profile": call.given["profile"]}
    remarks = {stamp.name: report.remark(stamp, described, False) for stamp in stamps}
    report.write_index(call.build, call.figures, study, stamps, remarks)


def text_parameters(wanted: Sequence[str]) -> set[str]:
    """The parameters of these notebooks (empty means all) whose values are texts."""
    known = [parameters.parameters_of(path) for path in chosen(wanted, ROOT)]
    return {name for one in known for name in one if isinstance(one[name].default, str)}


def fetch_weights(call: Call) -> None:
    """Download or convert weights that the profile's models lack, with progress. Models of the hub
    are downloaded if a notebook of the call loads the pair itself.
    """
    try:
        pair.make(call.profile)
        if any("load_pair(" in notebook.path.read_text("utf-8") for notebook in call.notebooks):
            pair.fetch_pair(call.profile)
    except (runs.RunError, ValueError, OSError) as error:
        print(f"{error}. {STILL}")

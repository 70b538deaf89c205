"""`make reproduce`: run the numbered notebooks, each only if something it depends on has changed.

Runs that they need and that are not recorded yet are recorded first, in processes of their own.
Then notebooks with a cell tagged `timed` run, each alone, because they measure time. Then the
others run, two at once, each in a kernel of this interpreter. The results are
build/<profile>/NN_name.ipynb, its pages, and a stamp NN_name.json. A notebook that lacks models or
files is not a failure. After an interruption, the same command continues from the stamps.

Notebooks write below build/<profile>/new, where a failed one stays until the next call. Figures
take the place of earlier ones by a rename, when their notebook has ended well (`replace_folder`).

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
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from tqdm import tqdm

from speclab.cli import pair
from speclab.cli.run_plan import JUDGED, chosen, runs_asked
from speclab.place import folder_of
from speclab.plain import Facts, digest_of, one_line, say_once, sha256_of
from speclab.run import DONE, FAILED, LEFT_OUT, NEEDS_MODELS, parameters
from speclab.show import notebook as kit
from speclab.study import runs
from speclab.study.pairs import pair_digests
from speclab.study.profiles import ROOT, Profile, load_profile
from speclab.study.prompts import MIRROR

sha256_once = cache(sha256_of)  # a file is read once per call
LISTED = re.compile(r"^READS = (\[[^]]*\])", re.MULTILINE)
STYLE = "$SPECLAB_STYLE"  # as the module that draws lists it
UNREAD = ("cli", "run", "explore")  # folders of the package that change no outcome
SHIPPED = ("requirements.lock", "notebooks/profiles", "data/traces", f"${runs.PLACE}")
FOLDERS = ("SPECLAB_MODELS", MIRROR, runs.PLACE, "SPECLAB_AUTHOR_RECORDS")
LEAST_MEMORY = 6e9  # bytes, for two notebooks at once
STILL = "Notebooks that only read recordings still run."
# errors that a notebook raises if it lacks something
NEEDS = {"ModelsMissing": NEEDS_MODELS, "LeftOut": LEFT_OUT}


@dataclass(frozen=True)
class Notebook:
    """A numbered notebook: the values of its parameters that the profile or the call changes, those
    that the call changes, whether a cell measures time, and the digest of all that its outcome
    depends on.
    """

    path: Path
    changed: Facts
    of_call: Facts
    is_timed: bool
    digest: str


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


def last_stamp(call: Call, name: str) -> Any:
    """The outcome of a notebook's last run, as `finish` writes it; None if it is missing or was
    edited.
    """
    with suppress(runs.Damaged):
        return SimpleNamespace(**runs.read_facts(call.build / f"{name}.json", "run it again"))


def current(call: Call, notebook: Notebook) -> Any:
    """The stamp of a notebook's last run, if another run would end alike: the inputs are the same,
    and all that it wrote is there, or what it needs is still missing. Else None.
    """
    stamp = last_stamp(call, notebook.path.stem)
    if not stamp or stamp.digest != notebook.digest:
        return None
    is_new = notebook.changed.get("timing") == "new"  # it measures once more
    is_whole = all((call.build / name).is_file() for name in stamp.kept)
    is_current = {
        DONE: is_whole and not is_new,
        NEEDS_MODELS: pair.missing(call.profile),
        FAILED: False,
    }
    return stamp if is_current.get(stamp.status, True) else None


def tell(name: str, status: str, error: str = "", seconds: float = 0) -> None:
    """Print in one line how a notebook ended."""
    tqdm.write(f"{name:<26} {seconds:7.1f} s  {status} {error}")


# ---- the call ------------------------------------------------------------------------------------


def open_call(
    profile: str, wanted: Sequence[str], overrides: Facts, changes: Facts, out: Path | None = None
) -> Call:
    """Check the arguments of `make reproduce`.

    profile: a name or a YAML file. wanted: notebooks by number or name; empty means all. overrides:
    of the profile's parameters. changes: of the notebooks' parameters. out: the folder for build/
    and figures/ (default: the repository). Raises ValueError for unknown names, for values that are
    not allowed, for prompts that cannot be read, and for a notebook that differs from its source.
    """
    # the profile, its prompts, and all names
    settings = load_profile(profile, overrides)
    runs.sets_asked(settings, runs.sizes_of(settings))
    of_profile = parameters.of_profile(settings)
    known = {path: parameters.parameters_of(path) for path in chosen(wanted, ROOT)}
    parameters.check_names(changes, {name: 0 for names in known.values() for name in names})
    check_environment()
    # notebooks work in the kit's folder, so what they get is absolute
    if profile.endswith((".yaml", ".yml")):
        profile = str(Path(profile).absolute())
    named = {"profile": profile, "overrides": absolute(overrides, settings)}
    folders = [(out or ROOT).resolve() / kind / settings.name for kind in ("build", "figures")]
    call = Call(settings, named, *folders, [])
    # each notebook's values, whether the study has enough for it, and what its outcome depends on
    for path, allowed in known.items():
        own = {name: value for name, value in changes.items() if name in allowed}
        given = of_profile.get(path.stem, {}) | own  # the call goes before the profile
        values = parameters.values_of(given, allowed)
        if reason := kit.lacks(path.stem, settings, values.get(JUDGED, 0)):
            tell(path.stem, LEFT_OUT, reason)
            continue
        cells = parameters.cells_of(path)
        is_timed = any("timed" in tags for *_, tags in cells)
        now = digest(settings, cells, values | named, is_timed)
        notebook = Notebook(path, given | named, own, is_timed, now)
        if not current(call, notebook):
            check_twin(path)
        call.notebooks.append(notebook)
    if not call.notebooks:
        raise ValueError("no notebook is left to run")
    return call


def absolute(overrides: Facts, profile: Profile) -> Facts:
    """The overrides with the paths of the profile."""
    paths = {
        "prompts": profile.prompts,
        "other_prompts": [*profile.others],
        "traces": profile.traces,
        "target": profile.target.path,
        "draft": profile.draft.path,
    }
    return {
        name: value if isinstance(value, dict) else paths.get(name.removesuffix(".path"), value)
        for name, value in overrides.items()
    }


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


def check_twin(path: Path) -> None:
    """ValueError if a notebook's .ipynb, which runs, and its .py have different cells. File times
    cannot show which was edited, because a checkout or an autosave changes them.
    """
    source, number = path.with_suffix(".py"), path.name[:2]
    if source.is_file() and parameters.cells_of(source) != parameters.cells_of(path):
        raise ValueError(
            f"{source} and {path.name} differ: `make notebooks NOTEBOOKS={number}` keeps the .py "
            f"and writes the .ipynb from it, `make sources NOTEBOOKS={number}` keeps the .ipynb"
        )


# ---- what an outcome depends on ------------------------------------------------------------------


def digest(profile: Profile, cells: list, values: Facts, is_timed: bool) -> str:
    """SHA-256 of everything that a notebook's outcome depends on. Weights that are still to be made
    count as made. Nothing is downloaded.
    """
    package = ROOT / "speclab"
    code = [path for path in package.rglob("*.py") if path.parts[len(package.parts)] not in UNREAD]
    names = [*SHIPPED, *code, profile.prompts, *profile.others, profile.traces]
    names += [profile.target.path, profile.draft.path]
    for name in reads_in(
        [path.read_text("utf-8") for path in code] + [text for _, text, _ in cells]
    ):
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
    """SHA-256 by path, of files and of all files in folders, but not of weights and byte code.
    `$NAME` stands for an environment variable.
    """
    places = [ROOT / os.path.expandvars(name) for name in names]
    files = {path for place in places for path in (place, *place.rglob("*")) if path.is_file()}
    read = [path for path in files if path.suffix not in (".pyc", ".safetensors")]
    return {os.path.relpath(path, ROOT): sha256_once(path) for path in read}


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


def record_missing(call: Call, notebooks: Sequence[Notebook], at_once: int) -> None:
    """Record the runs that these notebooks need and that are not there, so that no two notebooks
    wait for the same recording.
    """
    asked = runs_asked(call.profile, [notebook.path for notebook in notebooks])
    missing = [run.kind for run in asked if not (run.here or run.refused)]
    threads, children = kit.limit_threads() // at_once or 1, []
    for start in range(min(at_once, len(missing))):  # each records every second run, if two do
        given = (call.profile, missing[start::at_once], threads)
        children.append(get_context("spawn").Process(target=record, args=given, daemon=True))
    for child in children:
        child.start()
    for child in children:
        child.join()


def execute(call: Call, notebook: Notebook) -> tuple[str, str, float]:
    """Run a notebook. Returns its status, where and why it ended ("" after success), and its
    seconds.
    """
    import papermill

    name, begun, status, error = notebook.path.stem, time.monotonic(), DONE, ""
    tqdm.write(f"{name:<26} begins")
    try:
        papermill.execute_notebook(
            notebook.path,
            call.build / "new" / notebook.path.name,
            notebook.changed,
            kernel_name="python3",
            progress_bar={"desc": name, "leave": False, "disable": not sys.stderr.isatty()},
            start_timeout=300,
            extra_arguments=["--log-level=50"],  # of the kernel
        )
    except papermill.PapermillExecutionError as failure:
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
    name, page = notebook.path.stem, call.build / "new" / notebook.path.name
    kept = getattr(last_stamp(call, name), "kept", [])
    if status == DONE:
        drawn = kit.drawn_in(page.parent / "figures" / call.figures.name, name)
        folder = kit.drawn_in(call.figures, name)
        written = replace_folder(folder, drawn, {Path(path).name for path in kept})
        page.replace(call.build / page.name)
        kept = [page.name, *(os.path.relpath(folder / path, call.build) for path in written)]
    facts = {"name": name, "status": status, "error": error, "seconds": seconds, "kept": kept}
    facts |= {"digest": notebook.digest, "given": call.named | {"changes": notebook.of_call}}
    # the stamp comes last, because it vouches for page and figures
    runs.write_facts(call.build / f"{name}.json", facts, [])
    tell(name, status, error, seconds)


def replace_folder(folder: Path, new: Path, earlier: set[str]) -> list[str]:
    """Replace a folder of figures by a new one, with the files of a user: those that no `earlier`
    run wrote. Returns the names of the new files. The last steps are renames, so an interruption
    cannot leave a mixture.
    """
    for place in (folder, new):
        place.mkdir(parents=True, exist_ok=True)
    written = os.listdir(new)
    ours = earlier.union(written)
    shutil.copytree(
        folder,
        new,
        ignore=lambda place, _: ours if place == str(folder) else (),
        dirs_exist_ok=True,
    )
    old = folder.with_suffix(".old")
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    shutil.move(new, folder)
    shutil.rmtree(old)
    return written


def run_all(call: Call, notebooks: Sequence[Notebook], at_once: int) -> list[str]:
    """Run notebooks and return how they ended. After an interruption no kernel keeps running."""
    os.environ["OMP_NUM_THREADS"] = str(kit.limit_threads() // at_once or 1)
    ended = []
    with ThreadPoolExecutor(at_once) as pool:
        running = {pool.submit(execute, call, notebook): notebook for notebook in notebooks}
        try:
            for future in as_completed(running):
                finish(call, running[future], *future.result())
                ended.append(future.result()[0])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    child.kill()
            raise
    return ended


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
    begun, at_once, ended, stale = time.monotonic(), places(workers), [], []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with runs.locked(call.build.parent):  # two profiles may share a folder of figures
        new = call.build / "new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        # what is up to date
        for notebook in call.notebooks:
            if stamp := current(call, notebook):
                ended.append("up to date" if stamp.status == DONE else stamp.status)
                tell(stamp.name, ended[-1], stamp.error, stamp.seconds)
            else:
                stale.append(notebook)
        record_missing(call, stale, at_once)
        # kernels of this interpreter, without the user's settings
        os.environ |= {"JUPYTER_PREFER_ENV_PATH": "1", "JUPYTER_RUNTIME_DIR": tempfile.gettempdir()}
        os.environ |= dict.fromkeys(("IPYTHONDIR", "SPECLAB_OUT"), str(new))
        ended += run_all(call, [one for one in stale if one.is_timed], 1)
        ended += run_all(call, [one for one in stale if not one.is_timed], at_once)
        # a call that was killed may have left older pages
        page, stamps = call.build / "index.html", call.build.glob("[0-9]*.json")
        if not page.is_file() or page.stat().st_mtime < max(one.stat().st_mtime for one in stamps):
            write_report(call)
    counts = ", ".join(f"{count} {status}" for status, count in Counter(ended).items())
    print(f"{counts}, in {time.monotonic() - begun:.0f} s: {os.path.relpath(page)}")
    return int(FAILED in ended)


# ---- after the notebooks, and before -------------------------------------------------------------


def write_report(call: Call) -> None:
    """Write the pages of this call's notebooks, the explorer and the report. Its head describes the
    profile without overrides; each notebook says what else it was run with.
    """
    from speclab.explore import page as explorer
    from speclab.run import pages, report

    stamps = [stamp for path in chosen([], ROOT) if (stamp := last_stamp(call, path.stem))]
    done = [stamp.name for stamp in stamps if stamp.status == DONE]
    for name in {notebook.path.stem for notebook in call.notebooks} & {*done}:
        pages.to_markdown(call.build / f"{name}.ipynb", call.figures)
    study = load_profile(call.named["profile"])
    try:
        found, page = explorer.runs_there(study), call.figures / "explore.html"
        explorer.write_page(found, page, explorer.heads_there(study, found))
    except (ValueError, runs.RunError) as error:
        print(f"explore.html is not written: {error}")
    report.write_report(call.build, call.figures, study, stamps)


def text_parameters(wanted: Sequence[str]) -> set[str]:
    """The parameters of these notebooks (empty means all) whose values are texts."""
    known = [parameters.parameters_of(path) for path in chosen(wanted, ROOT)]
    return {name for one in known for name in one if isinstance(one[name].default, str)}


def fetch_weights(call: Call) -> None:
    """Download or convert weights that the profile's models lack, with progress. Models of the hub
    are downloaded if a notebook that will run loads the pair itself.
    """
    stale = [notebook.path for notebook in call.notebooks if not current(call, notebook)]
    try:
        pair.make(call.profile)
        if any("load_pair(" in path.read_text("utf-8") for path in stale):
            pair.fetch_pair(call.profile)
    except (runs.RunError, ValueError, OSError) as error:
        print(f"{error}. {STILL}")

"""Kaggle and Colab: install missing packages without changing the host's own, use attached models
and data sets instead of downloads, and keep runs after a session.

`notebook.start` calls `attach` and `restore`, and a notebook's bootstrap cell calls `prepare`.
`install`, `restore` and `keep` are verbs of the command line. The top of this module imports only
the standard library, because the bootstrap cell imports it before anything is installed.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from importlib import invalidate_caches, metadata
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any

from speclab.study.place import IS_INSTALLED, ROOT

if TYPE_CHECKING:
    from speclab.study.profiles import Profile

# data sets, models and outputs of other notebooks, read-only, in folders that Kaggle names
MOUNTED = Path("/kaggle/input")

# an environment variable and a folder that only this host has; Kaggle's image is made from Colab's
HOSTS = {
    "Kaggle": ("KAGGLE_KERNEL_RUN_TYPE", "/kaggle"),
    "Colab": ("COLAB_RELEASE_TAG", "/content"),
}
# the installer never changes these: a running kernel has loaded them, or other packages of the
# host are compiled for exactly this version
KEPT = (
    *("torch", "torchvision", "torchaudio", "triton"),
    *("numpy", "pandas", "pyarrow", "protobuf"),
    *("ipykernel", "ipywidgets", "ipython", "jupyter-client", "jupyter-core"),
    *("tornado", "traitlets", "pyzmq", "psutil"),
)
# packages that most users do not need, and the option of `hosted install` that installs them
EXTRAS = {"gptqmodel": "gptq"} | dict.fromkeys(("speculators", "hs_connectors", "openai"), "heads")
EXTRAS |= dict.fromkeys(("papermill", "jupytext", "nbconvert", "nbformat"), "reproduce")
LAST_LINES = 12  # of pip's output, printed if it fails


def platform() -> str:
    """The host of this process, Kaggle or Colab; an empty text elsewhere."""
    for host, (variable, folder) in HOSTS.items():
        if variable in os.environ or Path(folder).is_dir():
            return host
    return ""


def slug(text: str) -> str:
    """A name as Kaggle writes it in addresses and folders: lower case with dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


# ---- packages ------------------------------------------------------------------------------------


def prepare() -> None:
    """Go to the root of the kit, which an installed package has not; on a host also install missing
    packages. SystemExit: it failed.
    """
    if not IS_INSTALLED:
        os.chdir(ROOT)
    if platform():
        try:
            print(install())
        except ValueError as error:
            sys.exit(str(error))


def install(gptq: bool = False, heads: bool = False, reproduce: bool = False) -> str:
    """Install the packages of pyproject.toml that the active environment lacks, on any machine.

    No package of KEPT changes its version. gptq: also GPTQModel and the packages that it imports.
    They are installed without their own requirements, because GPTQModel requires one exact numpy
    and newer releases of packages that it does not import. heads: also speculators, for trained
    heads. It is installed in the same way, because it requires older releases of transformers and
    datasets than the kit allows. reproduce: also the packages that run notebooks from the command
    line. Returns a line that names upgraded packages. ValueError: a package of KEPT is out of
    range, or pip fails.
    """
    needs = lacking() + lacking("reproduce") * reproduce
    alone = lacking("gptq") * gptq
    for need in lacking("heads") * heads:
        is_alone = need.startswith("speculators")
        (alone if is_alone else needs).append(need)
    where = f"speclab {project()['version']} in {platform() or sys.prefix}"
    if not needs + alone:
        return f"{where}: no package is missing"
    before = _versions()
    _refuse_to_move(before, needs)
    print(f"{where}: pip installs {', '.join(needs + alone)}", flush=True)
    if needs:  # pip fails if one of these would have to change
        pinned = [f"{name}=={before[name]}" for name in KEPT if name in before]
        _pip(needs, *pinned)
    if alone:
        _pip(alone, "--no-deps")
    after = _versions()
    moved = []
    for name, version in before.items():
        if after.get(name, version) != version:
            moved.append(f"{name} {version} to {after[name]}")
    if moved:
        return f"upgraded: {', '.join(moved)}; restart the session if one of them was imported"
    return "installed; all other packages are unchanged"


def project() -> dict[str, Any]:
    """The project table of the kit's pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    facts: dict[str, Any] = tomllib.loads(text)["project"]
    return facts


def lacking(extra: str = "") -> list[str]:
    """The requirements of the kit, or of one of its extras, that no installed package satisfies."""
    needs = project()["optional-dependencies"][extra] if extra else project()["dependencies"]
    return [need for need in needs if not in_range(need)]


def in_range(need: str) -> bool:
    """Whether an installed package satisfies a requirement, as `torch>=2`."""
    from packaging.requirements import Requirement

    wanted = Requirement(need)
    try:
        version = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return False
    return wanted.specifier.contains(version, prereleases=True)


def _versions() -> dict[str, str]:
    """The version of each installed package, by its name in lower case with dashes."""
    versions: dict[str, str] = {}
    for package in metadata.distributions():  # the first on sys.path is the one that is imported
        versions.setdefault(slug(str(package.metadata["Name"])), package.version)
    return versions


def _refuse_to_move(there: dict[str, str], needs: list[str]) -> None:
    """ValueError for a need that only another version of a kept package satisfies."""
    for need in needs:
        name = slug(re.split("[<>=]", need)[0])
        if name in KEPT and name in there:
            raise ValueError(
                f"{name} {there[name]} is installed, speclab needs {need}, and this command never "
                f"moves {name}; run `pip install '{need}'`, or `make env` for an environment of "
                "its own (on Kaggle and Colab: choose another version of the image or of speclab)"
            )


def missing_package(error: ImportError) -> str:
    """What to do about an import that failed, in one line."""
    name = (error.name or "").partition(".")[0]
    if name in EXTRAS:
        return f"{error}; run `python -m speclab hosted install --{EXTRAS[name]}`"
    return (
        f"{error}. The kit needs the packages of requirements.lock and Python 3.11 to 3.13 (this "
        f"is {python_version()}): run `make env` to install them in .venv, or `pip install -e .` "
        "for the active environment"
    )


def _pip(needs: list[str], *options: str) -> None:
    """Install packages. ValueError, after pip's last lines, if that fails."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", *needs, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    invalidate_caches()  # of what can be imported
    if done.returncode:
        print(*done.stderr.splitlines()[-LAST_LINES:], sep="\n")
        mend = "pip's last lines, above, say why"
        if "pcre2" in done.stderr:
            mend = "PyPcre is compiled here; first run `apt-get install libpcre2-dev`"
        raise ValueError(f"pip could not install {', '.join(needs)}; {mend}")


# ---- attached models and data sets ---------------------------------------------------------------


def attach(
    profile: "Profile", mounted: Path = MOUNTED, links: Path = ROOT / "build" / "attached"
) -> dict[str, Path]:
    """Find the profile's models (and the paper's data sets) among the attached folders, and let the
    kit read them from there.

    Kaggle names the folders, so they are found by name: `TheBloke/Llama-2-7B-Chat-GPTQ` in any
    folder named llama-2-7b-chat-gptq that holds config.json. Links under `links` give them the
    layout owner/name. SPECLAB_MODELS and SPECLAB_DATASETS are set to these links, unless they are
    set already; data sets only if all four are attached. Returns what was found. ValueError:
    attached twice.
    """
    from speclab.study.prompts import HUB_SETS, MIRROR

    specs = (profile.target, profile.draft)
    models = [spec.path for spec in specs if not (ROOT / spec.path).exists()]
    sets = [hub_set.name for hub_set in HUB_SETS.get(profile.prompts, {}).values()]
    found: dict[str, Path] = {}
    for variable, names, file in (("SPECLAB_MODELS", models, "config.json"), (MIRROR, sets, "*")):
        if os.environ.get(variable):
            continue
        folders = {name: _attached(name, mounted, file) for name in names}
        there = {name: folder for name, folder in folders.items() if folder}
        if variable == MIRROR and len(there) < len(names):
            continue
        for name, folder in there.items():
            link = links / variable / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            _link(link, folder)
            os.environ[variable] = str(links / variable)
        found |= there
    return found


def _attached(name: str, mounted: Path, pattern: str) -> Path | None:
    """The folder of such a file in the one attached folder with the name of a model or data set."""
    called = slug(name.split("/")[-1])
    folders = [path for path in mounted.rglob("*") if slug(path.name) == called]
    with_file = [folder for folder in folders if any(folder.rglob(pattern))]
    outermost = [folder for folder in with_file if not {*folder.parents} & {*with_file}]
    if not outermost:
        return None
    if len(outermost) > 1:
        places = ", ".join(map(str, sorted(outermost)))
        raise ValueError(f"{name} is attached {len(outermost)} times: {places}; detach all but one")
    files = outermost[0].rglob(pattern)
    shallowest = min(files, key=lambda file: (len(file.parts), file))
    return shallowest.parent


def _link(link: Path, folder: Path) -> None:
    """Make a symbolic link to a folder. ValueError if the system refuses it, as Windows may."""
    try:
        link.symlink_to(folder, target_is_directory=True)
    except OSError as error:
        raise ValueError(
            f"{link}: the system refuses a symbolic link to {folder} ({error}); copy the folder "
            "instead"
        ) from None


# ---- runs that outlive a session -----------------------------------------------------------------


def runs_folder() -> Path:
    """Where runs are recorded: data/runs, or the folder that SPECLAB_RUNS names."""
    from speclab.study.runs import RUNS

    return RUNS


def restore(attached: Path = MOUNTED, runs: Path | None = None) -> list[str]:
    """Copy saved runs into `runs` (None: `runs_folder`), so that recording continues where it
    stopped. Returns their names.

    attached: a folder that contains the last session's data/runs, as Kaggle attaches the output of
    a notebook or a data set made from it. Nothing on this machine is overwritten. A saved run is
    skipped, with a notice, if this machine has the run with other settings, or if its settings.json
    has no parts. Parts are copied unchanged; the recorder checks them.
    """
    from speclab.plain import notice

    done = []
    runs = runs or runs_folder()
    for settings in sorted(attached.rglob("settings.json")):
        saved = settings.parent
        here = runs / saved.name
        own = here / settings.name
        if not (saved / "parts").is_dir():
            notice(f"{settings}: not restored, because it belongs to no run")
        elif own.is_file() and own.read_bytes() != settings.read_bytes():
            notice(f"{saved.name}: not restored, because data/runs has it with other settings")
        elif _copy_new(saved, here):
            done.append(saved.name)
    return done


def _copy_new(source: Path, target: Path) -> list[str]:
    """Copy the files that `target` lacks, each whole or not at all; returns the new files."""
    from speclab.study.runs import written

    new = []

    def copy(file: str, place: str) -> None:
        if not Path(place).exists():
            written(Path(place), partial(shutil.copyfile, file))
            new.append(place)

    ignored = shutil.ignore_patterns("*.tmp", ".lock")
    shutil.copytree(source, target, ignore=ignored, copy_function=copy, dirs_exist_ok=True)
    return new


def keep(folder: Path, runs: Path | None = None) -> None:
    """Make `runs` (None: `runs_folder`) a link to `folder` on a disk that outlives the session
    (Colab: a mounted Drive), so that each part is saved at once.

    The content of `runs` is copied there first, and the old folder is kept as runs.before.
    """
    runs = runs or runs_folder()
    here = runs.parent.resolve() / runs.name
    folder = folder.resolve()
    if folder.is_relative_to(here) or here.is_relative_to(folder):
        raise ValueError(
            f"folder {folder} is data/runs, or one contains the other; name a folder on the disk "
            "that outlives the session"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if runs.is_symlink():
        runs.unlink()
    elif runs.is_dir():
        _copy_new(runs, folder)
        runs.rename(runs.with_name(runs.name + ".before"))
    runs.parent.mkdir(parents=True, exist_ok=True)
    _link(runs, folder)

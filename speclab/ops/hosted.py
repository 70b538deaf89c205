"""Kaggle and Colab: the file Kaggle's API wants, models and data sets that are attached instead of
fetched, runs that outlive a session.

`python -m speclab hosted kaggle --notebook 02 --user NAME` writes a folder for `kaggle kernels
push -p FOLDER`. `attach`, `restore` and `keep` are called by `notebook.start` or by hand.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from speclab.profiles import ROOT, Profile
from speclab.prompts import HUB_SETS, MIRROR
from speclab.runs import written

# data sets, models and outputs of other notebooks, read-only, each in folders that Kaggle chooses
MOUNTED = Path("/kaggle/input")
RUNS = ROOT / "data" / "runs"
GPU = (
    "NvidiaTeslaT4"  # Kaggle's name of GPU T4 x2 (Kaggle/kaggle-cli pull request 1198)
)
MODEL = "owner/model/framework/variation/version"


def slug(text: str) -> str:
    """A name as Kaggle writes it in addresses and folders: lower case, dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


# ---- 1. kernel-metadata.json ---------------------------------------------------------------------


def notebook_file(number: str) -> Path:
    """The .ipynb twin of a notebook given by its number or name.

    ValueError names the ones there are.
    """
    found = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    asked = number.zfill(2) if number.isdecimal() else number
    for path in found:
        if asked in (path.stem, path.stem[:2]):
            return path
    names = ", ".join(path.stem for path in found)
    raise ValueError(f"notebook={number!r}: allowed are {names}, or their numbers")


def _sources(name: str, values: list[str], form: str = "owner/name") -> list[str]:
    for value in values:
        if value.count("/") != form.count("/"):
            raise ValueError(
                f"{name} {value!r}: write {form}, as in its address on Kaggle"
            )
    return list(values)


def kernel_metadata(
    notebook: str,
    user: str,
    internet: bool = True,
    datasets: list[str] = (),
    models: list[str] = (),
    kernels: list[str] = (),
) -> dict:
    """What kernel-metadata.json says of a private copy of a notebook on two T4s.

    Keys and their values' form: docs/kernels_metadata.md of Kaggle/kaggle-cli. kernels: notebooks
    whose output is attached (an earlier session of this one, to go on from). Without internet the
    kit itself has to be among `datasets`.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", user):
        raise ValueError(
            f"user={user!r}: the name in the address of your Kaggle profile, lower case letters, "
            "digits and dashes"
        )
    if not internet and not datasets:
        raise ValueError(
            "internet off: attach the kit as a data set (--dataset NAME/speclab), nothing can be "
            "fetched"
        )
    twin = notebook_file(notebook)
    title = f"speclab {twin.stem.replace('_', ' ')}"
    return {
        "id": f"{user}/{slug(title)}",  # Kaggle makes the slug from the title: they have to agree
        "title": title,
        "code_file": twin.name,
        "language": "python",
        "kernel_type": "notebook",
        "is_private": "true",
        "enable_gpu": "true",
        "enable_internet": str(internet).lower(),
        "machine_shape": GPU,
        "dataset_sources": _sources("dataset", datasets),
        "competition_sources": [],
        "kernel_sources": _sources("kernel", kernels),
        "model_sources": _sources("model", models, MODEL),
    }


def with_parameters(
    book: Any, parameters: dict[str, object], address: str = "", carried: str = ""
) -> Any:
    """A notebook with its parameters set in a cell of their own, and the kit's git address known
    to the bootstrap cell.

    carried: text of the file that the parameter `profile` names there; a cell writes it.
    """
    from papermill.parameterize import parameterize_notebook

    book = parameterize_notebook(book, parameters)
    if carried:
        place = f"Path({parameters['profile']!r})"
        source = (
            "from pathlib import Path\n"
            f"{place}.parent.mkdir(exist_ok=True)\n"
            f"{place}.write_text({carried!r}, encoding='utf-8')"
        )
        _insert(book, "carried-profile", "injected-parameters", source)
    if address:
        source = f'import os\nos.environ["SPECLAB_REPO"] = {address!r}'
        _insert(book, "kit-address", "bootstrap", source)
    return book


def _insert(book: Any, name: str, before: str, source: str) -> None:
    """A new code cell before the one with that tag."""
    from nbformat.v4 import new_code_cell
    from papermill.utils import find_first_tagged_cell_index

    place = find_first_tagged_cell_index(book, before)
    cell = new_code_cell(source, id=name, metadata={"tags": [name]})
    book.cells.insert(place, cell)


def profile_there(profile: str, settings: Profile) -> tuple[str, str]:
    """How a profile that is called `profile` here is called there, and for a file its text: it goes
    along in the notebook. ValueError when its settings name files that do not.
    """
    named = {
        "prompts": settings.prompts,
        "target.path": settings.target.path,
        "draft.path": settings.draft.path,
    }
    for name, path in named.items():
        away = Path(path).is_absolute() or ".." in Path(path).parts
        if away and not path.startswith("/kaggle/"):
            raise ValueError(
                f"{name}={path}: a place on this machine; attach it as a data set or model, and "
                f"name it as it is there (--set {name}=/kaggle/input/…; a model: owner/name)"
            )
    if not profile.endswith((".yaml", ".yml")):
        return profile, ""
    file = Path(profile)
    return f"build/{file.name}", file.read_text(encoding="utf-8-sig")


def write_kernel(
    folder: Path,
    metadata: dict,
    parameters: dict[str, object],
    address: str = "",
    carried: str = "",
) -> None:
    """Write kernel-metadata.json and the notebook it names into a folder."""
    import nbformat
    from papermill.iorw import load_notebook_node

    from speclab.ops.reproduce import check_twin

    twin = ROOT / "notebooks" / metadata["code_file"]
    check_twin(twin)
    book = load_notebook_node(str(twin))
    book = with_parameters(book, parameters, address, carried)
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(book, folder / metadata["code_file"])
    text = json.dumps(metadata, indent=1) + "\n"
    (folder / "kernel-metadata.json").write_text(text, encoding="utf-8")


# ---- 2. attached models and data sets ------------------------------------------------------------


def _attached(name: str, mounted: Path, holds: str) -> Path | None:
    """The one attached folder that is called like a model or data set and holds such a file
    somewhere below.
    """
    wanted, found = slug(name.split("/")[-1]), []
    for place in _from_above(mounted.rglob("*")):
        inner = any(outer in place.parents for outer in found)
        if slug(place.name) == wanted and not inner and any(place.rglob(holds)):
            found.append(place)
    if len(found) > 1:
        places = ", ".join(map(str, found))
        raise ValueError(
            f"{name} is attached {len(found)} times: {places}; detach all but one"
        )
    return found[0] if found else None


def _from_above(places: Iterable[Path]) -> list[Path]:
    return sorted(places, key=lambda place: (len(place.parts), place))


def _link(folder: Path, name: str, place: Path) -> None:
    link = folder / name
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink():
        link.unlink()
    link.symlink_to(place, target_is_directory=True)


def attach(
    profile: Profile, mounted: Path = MOUNTED, links: Path = ROOT / "build" / "attached"
) -> dict[str, Path]:
    """Find the profile's models (and the paper's data sets) among what is attached, and let the kit
    read them from there.

    Kaggle names the folders, so they are found by name: `TheBloke/Llama-2-7B-Chat-GPTQ` in any
    folder called llama-2-7b-chat-gptq that holds config.json. Links under `links` give them the
    layout owner/name, and SPECLAB_MODELS and SPECLAB_DATASETS are set to those (to nothing that is
    already set; data sets only when all four are there). Returns what was found. ValueError:
    attached twice.
    """
    found = {}
    if not os.environ.get("SPECLAB_MODELS"):
        for spec in (profile.target, profile.draft):
            outer = _attached(spec.path, mounted, "config.json")
            if outer and not (ROOT / spec.path).exists():
                place = _from_above(outer.rglob("config.json"))[0].parent
                _link(links / "models", spec.path, place)
                found[spec.path] = place
        if found:
            os.environ["SPECLAB_MODELS"] = str(links / "models")
    if not os.environ.get(MIRROR) and profile.prompts == "paper":
        names = [hub_set.name for hub_set in HUB_SETS.values()]
        sets = {name: _attached(name, mounted, "*") for name in names}
        if all(sets.values()):
            for name, place in sets.items():
                _link(links / "datasets", name, place)
            found |= sets
            os.environ[MIRROR] = str(links / "datasets")
    return found


# ---- 3. runs that outlive a session --------------------------------------------------------------


def restore(attached: Path = MOUNTED, runs: Path = RUNS) -> list[str]:
    """Copy saved runs into `runs`, so that they go on where they were cut off; returns their names.

    attached: a folder below which the last session's data/runs lies, as Kaggle attaches the output
    of a notebook or a data set made of it. Nothing that is here is overwritten; a run that is here
    with other settings is left alone and said. Parts are copied as they are: the recorder checks
    them.
    """
    done = []
    for settings in sorted(attached.rglob("settings.json")):
        saved = settings.parent
        # the one folder of runs inside runs
        here = runs / ("drafts" if saved.parent.name == "drafts" else "") / saved.name
        own = here / settings.name
        if own.is_file() and own.read_bytes() != settings.read_bytes():
            said = "here with other settings, the saved one is not used"
            print(f"{saved.name}: {said}", file=sys.stderr)
        elif _copy_new(saved, here):
            done.append(saved.name)
    return done


def _copy_new(source: Path, target: Path) -> list[Path]:
    """Copy what `target` does not have, each file whole or not at all; returns what was copied."""
    copied = []

    def copy(file: str, place: str) -> None:
        if not os.path.exists(place):
            written(Path(place), lambda path: shutil.copyfile(file, path))
            copied.append(Path(place))

    unfinished = shutil.ignore_patterns("*.tmp", ".lock")
    kinds = {"copy_function": copy, "ignore": unfinished, "dirs_exist_ok": True}
    shutil.copytree(source, target, **kinds)
    return copied


def keep(folder: Path, runs: Path = RUNS) -> None:
    """From now on `runs` is a link to `folder` on a disk that outlives the session (Colab: a
    mounted Drive): each part is safe at once.

    What `runs` holds is copied there first; the old folder stays beside it as runs.before.
    """
    here, folder = runs.parent.resolve() / runs.name, Path(folder).resolve()
    inside = not runs.is_symlink() and folder.is_relative_to(here)
    if inside or here.is_relative_to(folder):
        raise ValueError(
            f"folder {folder}: this is data/runs, or one holds the other; name a folder on the "
            "disk that outlives the session"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if runs.is_symlink():
        runs.unlink()
    elif runs.is_dir():
        _copy_new(runs, folder)
        runs.rename(runs.with_name(runs.name + ".before"))
    runs.parent.mkdir(parents=True, exist_ok=True)
    runs.symlink_to(folder, target_is_directory=True)

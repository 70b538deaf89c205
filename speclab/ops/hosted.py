"""Kaggle and Colab: models and data sets that are attached instead of fetched, runs that outlive a
session. `attach` and `restore` are called by `notebook.start`, `restore` and `keep` by hand.
"""

import os
import re
import shutil
import sys
from functools import partial
from pathlib import Path

from speclab.plain import shown
from speclab.profiles import ROOT, Profile
from speclab.prompts import HUB_SETS, MIRROR
from speclab.runs import written

# data sets, models and outputs of other notebooks, read-only, each in folders that Kaggle chooses
MOUNTED = Path("/kaggle/input")
RUNS = ROOT / "data" / "runs"


def slug(text: str) -> str:
    """A name as Kaggle writes it in addresses and folders: lower case, dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


# ---- attached models and data sets ---------------------------------------------------------------


def _attached(name: str, mounted: Path, holds: str) -> Path | None:
    """Where such a file lies in the one attached folder that is called like a model or data set."""
    wanted, found = slug(name.split("/")[-1]), {}
    for file in sorted(mounted.rglob(holds), key=lambda file: (len(file.parts), file)):
        above = [place for place in file.parents if place.is_relative_to(mounted)]
        called_so = [place for place in above if slug(place.name) == wanted]
        if called_so:
            found.setdefault(
                called_so[-1], file.parent
            )  # the outermost; first the shallowest file
    if len(found) > 1:
        raise ValueError(
            f"{name} is attached {len(found)} times: {', '.join(map(str, found))}; detach all but "
            "one"
        )
    return next(iter(found.values()), None)


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
    specs = (profile.target, profile.draft)
    models = [spec.path for spec in specs if not (ROOT / spec.path).exists()]
    sets = [one.name for one in HUB_SETS.get(profile.prompts, {}).values()]
    found = _linked("SPECLAB_MODELS", models, "config.json", mounted, links)
    mirrored = [name for name in sets if _attached(name, mounted, "*")]
    if mirrored == sets:
        found |= _linked(MIRROR, sets, "*", mounted, links)
    return found


def _linked(
    variable: str, names: list[str], holds: str, mounted: Path, links: Path
) -> dict[str, Path]:
    """Link what is attached of these names, and let a variable name the links."""
    if os.environ.get(variable):
        return {}
    places = {name: _attached(name, mounted, holds) for name in names}
    found = {name: place for name, place in places.items() if place}
    for name, place in found.items():
        link = links / variable / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(place, target_is_directory=True)
        os.environ[variable] = str(links / variable)
    return found


# ---- runs that outlive a session -----------------------------------------------------------------


def restore(attached: Path = MOUNTED, runs: Path = RUNS) -> list[str]:
    """Copy saved runs into `runs`, so that they go on where they were cut off; returns their names.

    attached: a folder below which the last session's data/runs lies, as Kaggle attaches the output
    of a notebook or a data set made of it. Nothing that is here is overwritten; a run that is here
    with other settings is left alone and said, as is a settings.json beside which no parts lie.
    Parts are copied as they are: the recorder checks them.
    """
    done = []
    for settings in sorted(attached.rglob("settings.json")):
        saved = settings.parent
        # the one folder of runs inside runs
        here = runs / ("drafts" if saved.parent.name == "drafts" else "") / saved.name
        own = here / settings.name
        if not (saved / "parts").is_dir():
            print(shown(f"{settings}: left there, it is of no run"), file=sys.stderr)
        elif own.is_file() and own.read_bytes() != settings.read_bytes():
            said = "here with other settings, the saved one is not used"
            print(shown(f"{saved.name}: {said}"), file=sys.stderr)
        elif _copy_new(saved, here):
            done.append(saved.name)
    return done


def _copy_new(source: Path, target: Path) -> int:
    """Copy what `target` does not have, each file whole or not at all; returns how many files."""
    new = 0
    for file in source.rglob("*"):
        place = target / file.relative_to(source)
        whole = file.is_file() and file.suffix != ".tmp" and file.name != ".lock"
        if whole and not place.exists():
            written(place, partial(shutil.copyfile, file))
            new += 1
    return new


def keep(folder: Path, runs: Path = RUNS) -> None:
    """From now on `runs` is a link to `folder` on a disk that outlives the session (Colab: a
    mounted Drive): each part is safe at once.

    What `runs` holds is copied there first; the old folder stays beside it as runs.before.
    """
    here, folder = runs.parent.resolve() / runs.name, Path(folder).resolve()
    if folder.is_relative_to(here) or here.is_relative_to(folder):
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

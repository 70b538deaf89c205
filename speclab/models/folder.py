"""A model's folder: where it is, what its weights are called, and how its target reads prompts.

Needs no torch: keys and recorded runs are asked for where no model is loaded.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from speclab.plain import brief, digest_of, read_json, sha256_of
from speclab.profiles import MODELS, ROOT, ModelSpec, Profile
from speclab.prompts import EncodedPrompt, Prompt, encode_prompts

WEIGHTS = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]
MEND = "fetch the model again, whole"


class ModelsMissing(ValueError):
    """A model's weights are asked for and are not on this machine; the message says how to get
    them. `make reproduce` knows it by its name.
    """


# ---- where it is ---------------------------------------------------------------------------------


def local_folder(spec: ModelSpec) -> Path | None:
    """The folder of a model that is here without the hub: as named, relative to the repository, or
    under SPECLAB_MODELS; one with weights before one without.
    """
    roots = [Path(), ROOT, Path(os.environ.get("SPECLAB_MODELS") or ROOT)]
    places = [root / spec.path for root in roots]
    there = [place for place in places if (place / "config.json").is_file()]
    return max(there, key=lambda place: any(place.glob("*.safetensors")), default=None)


def known_folder(spec: ModelSpec) -> Path | None:
    """Where a model is on this machine, in the hub's cache too; nothing is fetched. None: nowhere,
    or only a part of it.
    """
    place = local_folder(spec) or cached(spec.path, spec.revision)
    promised = place and (place / "source.json").is_file()
    return place if promised or (place and any(place.glob("*.safetensors"))) else None


def cached(name: str, revision: str | None, kind: str = "model") -> Path | None:
    """Where a model or data set lies in the hub's cache; None for nowhere."""
    from huggingface_hub import errors, snapshot_download

    asked = {"revision": revision, "repo_type": kind, "local_files_only": True}
    try:
        return Path(snapshot_download(name, **asked))
    except (errors.LocalEntryNotFoundError, errors.HFValidationError):
        return None


def model_folder(spec: ModelSpec) -> Path:
    """The local folder of a model: as named, relative to the repository, under SPECLAB_MODELS, or
    fetched from the hub (ModelsMissing where that fails).
    """
    if here := local_folder(spec):
        return here
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(spec.path, revision=spec.revision, allow_patterns=WEIGHTS))
    except Exception as error:
        raise ModelsMissing(
            f"model {spec.path!r} is neither a whole folder nor to be had from the hub "
            f"({type(error).__name__}). Without a network put it under a folder and set "
            "SPECLAB_MODELS to that folder"
        ) from error


def base_folder(folder: Path) -> Path | None:
    """The model whose embedding (and tokenizer) a draft reads by; None where it has its own."""
    named = read_json(folder / "config.json", MEND).get("embedding_of")
    return (folder / named).resolve() if named else None


def tokenizer_folder(folder: Path) -> Path:
    """The folder that has a model's tokenizer: its own, or the one that its config.json names."""
    config = read_json(folder / "config.json", MEND)
    named = config.get("tokenizer_of") or config.get("embedding_of")
    return (folder / named).resolve() if named else folder


# ---- what its weights are called -----------------------------------------------------------------

PATHS = ("embedding_of", "tokenizer_of", "_name_or_path")  # in a model's config.json


def weights_digest(folder: Path) -> str:
    """A hash of a model folder's weights, configuration and tokenizer, wherever it stands: 40 hex
    digits. Weights that are to be made from a `source.json` and are not there yet count by the hash
    it names; a draft that reads by the embedding of another model counts with that one.
    """
    digests = _promised_weights(folder)
    for file in [*folder.glob("*.safetensors"), folder / "tokenizer.json"]:
        if file.is_file():
            digests[file.name] = _file_digest(file, file.stat().st_mtime_ns)
    file = folder / "config.json"
    config = read_json(file, MEND)
    others = {name: value for name, value in config.items() if name not in PATHS}
    digests[file.name] = sha256_of(file) if others == config else digest_of(others)
    if base := base_folder(folder):
        digests["base"] = weights_digest(base)
    inner = "".join(digests[name] for name in sorted(digests))
    return hashlib.sha256(bytes.fromhex(inner)).hexdigest()[:40]


def _promised_weights(folder: Path) -> dict[str, str]:
    """SHA-256 by name of the weights that the folder's source.json promises; {} without one."""
    source = folder / "source.json"
    if not source.is_file():
        return {}
    again = "take it from the repository again (git checkout)"
    weights = read_json(source, again).get("weights")
    try:
        return {name: bytes.fromhex(made["sha256"]).hex() for name, made in weights.items()}
    except (AttributeError, TypeError, KeyError, ValueError):
        came = f"weights={brief(weights)}"
        raise ValueError(f"{source}: {came}: digests are needed; {again}") from None


@cache
def _file_digest(file: Path, mtime_ns: int) -> str:
    """SHA-256 of a file; read once a process as long as it is not changed (4 GB take 10 s, and a
    key is asked for several times). The hub's cache names large files by it.
    """
    stored = file.resolve()
    if stored.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{64}", stored.name):
        return stored.name
    return sha256_of(file)


def model_digest(spec: ModelSpec) -> str:
    """What names a model's weights: `weights_digest` of its folder; of a commit of the hub that is
    not on this machine the commit (nothing is fetched for that).
    """
    folder = known_folder(spec)
    if folder is None and re.fullmatch(r"[0-9a-f]{40}", spec.revision or ""):
        return spec.revision
    return weights_digest(folder or model_folder(spec))


def pair_digests(profile: Profile) -> dict[str, str]:
    """`model_digest` of the target and of the draft."""
    return {name: model_digest(getattr(profile, name)) for name in MODELS}


@dataclass(frozen=True)
class Read:
    """Prompts as a target reads them, and the ids that end its texts."""

    prompts: tuple[EncodedPrompt, ...]
    stop_ids: tuple[int, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """`encoded`, a SHA-256 of the prompts' ids, domains and token ids, and `stop_ids`."""
        rows = [(one.prompt_id, one.domain, one.ids) for one in self.prompts]
        return {"encoded": digest_of(rows), "stop_ids": list(self.stop_ids)}


def read_by_target(profile: Profile, prompts: Sequence[Prompt]) -> Read:
    """Prompts as the profile's target reads them; its tokenizer is fetched if it is not here."""
    folder = model_folder(profile.target)
    files = [*folder.glob("*"), *tokenizer_folder(folder).glob("*")]
    stamps = tuple((file, file.stat().st_mtime_ns) for file in sorted(files))
    longest, template = profile.max_prompt_tokens, profile.template
    return _read(folder, stamps, tuple(prompts), longest, template)


@cache
def _read(folder: Path, _stamps: tuple, prompts: tuple, longest: int, template: str) -> Read:
    """Once a process, as long as no file of the model's folder changes."""
    from speclab.models.pairs import load_tokenizer, stop_ids

    tokenizer = load_tokenizer(folder)
    encoded = encode_prompts(tokenizer, prompts, longest, template)
    return Read(tuple(encoded), tuple(sorted(stop_ids(folder, tokenizer), key=str)))

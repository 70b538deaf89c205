"""Models of the hub: their size, their config.json alone, or all their files with a progress bar.
Any error there becomes a `ModelsMissing` of one line that says what to do.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

from speclab.plain import Facts, notice, read_json
from speclab.profiles import ModelSpec

READING = ["*.json", "*.model", "*.jinja", "*.txt"]  # settings and tokenizer
WEIGHTS = [*READING, "*.safetensors"]
MEND = "download the whole model again"


class ModelsMissing(ValueError):
    """A model's weights are needed and not on this machine. The message says how to get them.
    `make reproduce` recognises this error by its name.
    """


@contextmanager
def answering(spec: ModelSpec) -> Iterator[None]:
    """Turn errors of the hub, or of the network, into a message that says what to do."""
    try:
        yield
    except Exception as error:  # the client has many kinds, and the network below it more
        raise ModelsMissing(_said(spec, error)) from error


def _said(spec: ModelSpec, error: Exception) -> str:
    """What an error means, and what to do."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{spec.path}"
    if isinstance(error, errors.GatedRepoError):
        return (
            f"model {spec.path!r} is gated; request access at {page}, then run `hf auth login` "
            "with a token of that account"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return (
            f"model {spec.path!r} has no revision {spec.revision!r} on the hub; use a commit from "
            f"{page}/commits/main"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"model {spec.path!r} is no folder here, and on the hub it is private or missing; "
            "check the name, or run `hf auth login`"
        )
    if isinstance(error, errors.HFValidationError):
        return f"model {spec.path!r} is no folder here and no model name of the hub; check the path"
    return (
        f"model {spec.path!r} is not complete on this machine, and the hub does not provide it "
        f"({type(error).__name__}); without a network put it under a folder and set SPECLAB_MODELS "
        "to that folder"
    )


def config(spec: ModelSpec) -> Facts:
    """The config.json of a model, without its other files; nothing is kept."""
    from huggingface_hub import hf_hub_download

    with TemporaryDirectory() as folder:
        with answering(spec):
            where = {"revision": spec.revision, "local_dir": folder}
            path = hf_hub_download(spec.path, "config.json", **where)
        found: Facts = read_json(path, MEND)
        return found


def size(spec: ModelSpec) -> int:
    """The bytes of the files of a model that `snapshot` downloads."""
    from huggingface_hub import HfApi

    with answering(spec):
        facts = HfApi().model_info(spec.path, revision=spec.revision, files_metadata=True)
    files = facts.siblings or []
    wanted = [file for file in files if any(fnmatch(file.rfilename, like) for like in WEIGHTS)]
    return sum(file.size or 0 for file in wanted)


def snapshot(spec: ModelSpec, weights: bool = True, shows: bool = False) -> Path:
    """The folder of a model in the hub's cache, downloaded if it is not there.

    weights: False downloads settings and tokenizer only. shows: first print the size, check that
    the disk has room, and show a progress bar.
    """
    from huggingface_hub import constants, snapshot_download
    from tqdm import tqdm

    bar = {}
    if shows:
        bar = {"tqdm_class": tqdm}
        needed = size(spec)
        notice(f"downloading {spec.path}: {needed / 1e9:.2f} GB from the hub (once)")
        _check_room(needed, Path(constants.HF_HUB_CACHE))
    with answering(spec):
        patterns = WEIGHTS if weights else READING
        wanted = {"revision": spec.revision, "allow_patterns": patterns}
        return Path(snapshot_download(spec.path, **wanted, **bar))


def _check_room(needed: int, cache: Path) -> None:
    """ValueError if the disk of the hub's cache has no room for this many bytes."""
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if needed > free:
        raise ValueError(
            f"{cache} has {free / 1e9:.2f} GB free, and {needed / 1e9:.2f} GB are needed; make "
            "room, or set HF_HOME to a folder on a larger disk"
        )

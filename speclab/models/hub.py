"""Models of the hub: their size, their config.json alone, or all their files with a progress bar.
Any error there becomes a `ModelsMissing` of one line that says what to do.

Also what a config.json says about the other files: which hold the weights, and how these are
packed.
"""

import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from fnmatch import filter as matching
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from speclab.plain import Facts, notice, read_json
from speclab.study.profiles import ModelSpec

READING = ["*.json", "*.model", "*.jinja", "*.txt"]  # settings and tokenizer
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
OF_GPTQ = "gptq_model-*.safetensors"  # AutoGPTQ's name for the only file
PACKED_BY = "quantize_config.json"  # read before config.json by GPTQModel
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
            f"model {spec.path!r} has no config.json here, and on the hub it is private or "
            "missing; check the name, or run `hf auth login`"
        )
    if isinstance(error, errors.HFValidationError):
        return (
            f"model {spec.path!r} has no config.json here, and is no model name of the hub; check "
            "the path"
        )
    return (
        f"model {spec.path!r} is not complete on this machine, and the hub does not provide it "
        f"({type(error).__name__}); without a network put it under a folder and set SPECLAB_MODELS "
        "to that folder"
    )


# ---- what a config.json says about the other files -----------------------------------------------


def unloadable(config: Facts) -> str:
    """Why the weights of a model with this config.json are not loaded: a packing that the kit does
    not read, or a number format that transformers cannot read; empty if they are.
    """
    packing = config.get("quantization_config") or {}
    method = packing.get("quant_method", "gptq") if isinstance(packing, dict) else packing
    if method != "gptq":
        return (
            f"its weights are packed by {method!r} (quantization_config), and the kit loads plain "
            "weights and those packed by 'gptq'; use another form of this model"
        )
    dtype = config.get("dtype") or config.get("torch_dtype") or "float32"
    if not re.fullmatch(r"b?float\d+\w*", str(dtype)):
        return (
            f"config.json has dtype={dtype!r}, which transformers cannot read; write the number "
            "format of its weights there, such as 'bfloat16'"
        )
    return ""


def weights_of(config: Facts, names: Collection[str], read: Callable[[str], Facts]) -> list[str]:
    """Which files hold a model's weights, as their library chooses among `names`. transformers
    takes one file before an index of several, GPTQModel an index before one file.

    read: gives the content of an index. ValueError for an index without names.
    """
    is_packed = config.get("quantization_config") or PACKED_BY in names
    order = [*matching(names, OF_GPTQ), INDEX, SINGLE] if is_packed else [SINGLE, INDEX]
    name = next((name for name in order if name in names), SINGLE)
    if not is_packed:
        name = str(config.get("transformers_weights") or name)
    if not name.endswith(".json"):
        return [name]
    try:
        return sorted({*map(str, read(name)["weight_map"].values())})
    except (KeyError, AttributeError):
        raise ValueError(f"{name} does not name the files of the weights; {MEND}") from None


# ---- files of the hub ----------------------------------------------------------------------------


def config(spec: ModelSpec) -> Facts:
    """The config.json of a model, without its other files; nothing is kept."""
    return _facts(spec, "config.json")


def _facts(spec: ModelSpec, name: str) -> Facts:
    """The content of a JSON file of a model; nothing is kept."""
    from huggingface_hub import hf_hub_download

    with TemporaryDirectory() as folder:
        with answering(spec):
            where = {"revision": spec.revision, "local_dir": folder}
            path = hf_hub_download(spec.path, name, **where)
        found: Facts = read_json(path, MEND)
        return found


def size(spec: ModelSpec) -> int:
    """The bytes of the files of a model that `snapshot` downloads."""
    from huggingface_hub import HfApi

    settings = config(spec)
    with answering(spec):
        facts = HfApi().model_info(spec.path, revision=spec.revision, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in facts.siblings or []}
    outer = [name for name in sizes if "/" not in name]
    wanted = {name for name in outer if any(fnmatch(name, like) for like in READING)}
    wanted |= {*weights_of(settings, outer, partial(_facts, spec))}
    return sum(sizes.get(name, 0) for name in wanted)


def snapshot(spec: ModelSpec, weights: bool = True, shows: bool = False) -> Path:
    """The folder of a model in the hub's cache, downloaded if it is not there.

    weights: False downloads settings and tokenizer only. shows: first print the size, check that
    the disk has room, and show a progress bar.
    """
    from huggingface_hub import constants
    from tqdm import tqdm

    bar = {}
    if shows:
        bar = {"tqdm_class": tqdm}
        needed = size(spec)
        notice(f"downloading {spec.path}: {needed / 1e9:.2f} GB from the hub (once)")
        _check_room(needed, Path(constants.HF_HUB_CACHE))
    folder = _download(spec, [], bar)
    if not weights:
        return folder
    settings = read_json(folder / "config.json", MEND)
    there = [file.name for file in folder.iterdir()]
    named = weights_of(settings, there, lambda name: read_json(folder / name, MEND))
    return _download(spec, [SINGLE, OF_GPTQ, *named], bar)


def _download(spec: ModelSpec, weights: list[str], bar: Facts) -> Path:
    """Download settings, tokenizer and the files of `weights`; other folders than the outermost
    hold other forms of the model.
    """
    from huggingface_hub import snapshot_download

    wanted = {"allow_patterns": [*READING, *weights], "ignore_patterns": ["*/*"]}
    with answering(spec):
        return Path(snapshot_download(spec.path, revision=spec.revision, **wanted, **bar))


def _check_room(needed: int, cache: Path) -> None:
    """ValueError if the disk of the hub's cache has no room for this many bytes."""
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if needed > free:
        raise ValueError(
            f"{cache} has {free / 1e9:.2f} GB free, and {needed / 1e9:.2f} GB are needed; make "
            "room, or set HF_HOME to a folder on a larger disk"
        )

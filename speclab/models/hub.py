"""Models of the hub, downloaded by its own client. Any error there becomes a `ModelsMissing` of one
line that says what to do.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from speclab.plain import Facts, ModelSpec, one_line, read_json

READING = ("*.json", "*.model", "*.jinja", "*.txt")  # settings and tokenizer
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
OF_GPTQ = "gptq_model-*.safetensors"  # AutoGPTQ's name for the only file
# neither a publisher's own form of the weights nor an adapter
WEIGHTS = (SINGLE, "model-*.safetensors", OF_GPTQ)
MEND = "download the whole model again"


class ModelsMissing(ValueError):
    """A model's weights are needed and not on this machine. The message says how to get them.
    `make reproduce` recognises this error by its name.
    """


@contextmanager
def answering(spec: ModelSpec) -> Iterator[None]:
    """Turn errors of the hub, or of the network, into a message that says what to do."""
    from huggingface_hub import constants

    try:
        yield
    except Exception as error:  # the client has many kinds, and the network below it more
        page = f"{constants.ENDPOINT}/{spec.path}"
        said = one_line(f"{type(error).__name__}: {error}")[:200]
        raise ModelsMissing(
            f"model {spec.path!r} (revision {spec.revision!r}) is not complete on this machine, "
            f"and the hub does not provide it ({said}); check the name and the revision, request "
            f"access at {page} and run `hf auth login`, or put the model under a folder and set "
            "SPECLAB_MODELS to that folder"
        ) from error


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


def config(spec: ModelSpec) -> Facts:
    """The config.json of a model, downloaded without its other files."""
    settings: Facts = read_json(snapshot(spec, ["config.json"]) / "config.json", MEND)
    return settings


def size(spec: ModelSpec) -> int:
    """The bytes of the files of a model that `snapshot` would download."""
    from huggingface_hub import snapshot_download

    wanted = {"allow_patterns": [*READING, *WEIGHTS], "ignore_patterns": "*/*"}
    with answering(spec):
        files = snapshot_download(spec.path, revision=spec.revision, dry_run=True, **wanted)
    return sum(file.file_size for file in files)


def snapshot(spec: ModelSpec, patterns: Sequence[str] = (*READING, *WEIGHTS)) -> Path:
    """The folder of a model in the hub's cache, with its outermost files of these patterns, which
    are downloaded with a progress bar. Other folders hold other forms of the model.
    """
    from huggingface_hub import snapshot_download
    from tqdm import tqdm

    wanted = {"allow_patterns": [*patterns], "ignore_patterns": "*/*", "tqdm_class": tqdm}
    with answering(spec):
        return Path(snapshot_download(spec.path, revision=spec.revision, **wanted))

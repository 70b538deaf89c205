"""Models of the hub, downloaded by its own client. Any error there becomes a `ModelsMissing` of one
line that says what to do.
"""

import re
from collections.abc import Sequence
from typing import Any

from speclab.plain import ModelSpec, one_line

READING = ("*.json", "*.model", "*.jinja", "*.txt")  # settings and tokenizer
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
OF_GPTQ = "gptq_model-*.safetensors"  # AutoGPTQ's name for the only file
# neither a publisher's own form of the weights nor an adapter
WEIGHTS = (SINGLE, "model-*.safetensors", OF_GPTQ)
EVERYTHING = (*READING, *WEIGHTS)
MEND = "download the whole model again"


class ModelsMissing(ValueError):
    """A model's weights are needed and not on this machine. The message says how to get them.
    `make reproduce` recognises this error by its name.
    """


def size(spec: ModelSpec) -> int:
    """The bytes of the files of a model, without downloading them."""
    return sum(file.file_size for file in download(spec, EVERYTHING, dry_run=True))


def check_name(name: str) -> None:
    """ModelsMissing for a path that no model of the hub can have as its name."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise ModelsMissing(
            f"{name} is no folder with a config.json, and no name of the hub (owner/name); correct "
            "the path, or set SPECLAB_MODELS to the folder around it"
        )


def download(spec: ModelSpec, patterns: Sequence[str], **options: Any) -> Any:
    """What the hub's client gives for a model's outermost files of these patterns: a folder in its
    cache, to which it downloads them. (Inner folders hold other forms of the model.) ModelsMissing
    if the hub does not provide them.
    """
    from huggingface_hub import snapshot_download

    check_name(spec.path)
    options |= {"allow_patterns": [*patterns], "ignore_patterns": "*/*"}
    try:
        return snapshot_download(spec.path, revision=spec.revision, **options)
    except Exception as error:  # the client has many kinds, and the network below it more
        said = one_line(f"{type(error).__name__}: {error}")[:200]
        raise ModelsMissing(
            f"{spec.path} (revision {spec.revision!r}) is not complete on this machine, and the "
            f"hub does not provide it ({said}); check the name and the revision, request "
            "access on its page and run `hf auth login`, or put the model under a folder and set "
            "SPECLAB_MODELS to that folder"
        ) from error

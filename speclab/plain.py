"""Types that models and studies share; JSON read strictly; texts of others shown safely.

A broken file is a ValueError that names the file and what to do. A key that occurs twice is
refused.
"""

import hashlib
import json
import sys
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

Array = np.ndarray[Any, np.dtype[Any]]  # docstrings state shape and kind
Facts = dict[str, Any]  # the content of a file: plain values by name
Texts = dict[str, tuple[int, ...]]  # token ids by prompt_id
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
# of the kit's and the paper's prompts; a user's file names its own domains
DOMAINS = ("code", "math", "reasoning", "chat")


@dataclass(frozen=True, config=STRICT)
class ModelSpec:
    """Where a model comes from and how it is loaded. path: a folder (relative to the repository) or
    a model of the hub. revision: a commit hash.
    """

    path: Annotated[str, Field(min_length=1)]
    revision: str | None = None
    # auto: float32 on a CPU, float16 on a GPU
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    # auto: the first GPU, else the CPU
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:[0-9]{1,3})?)$")
    # kernel of a GPTQ model; auto: GPTQModel's choice; torch is slow and works everywhere
    backend: Literal["auto", "torch", "triton", "marlin"] = "auto"

    def dtype_on(self, device: str) -> str:
        """The number format on a device ("cpu", "cuda:0"); "auto" if both are auto."""
        if self.dtype != "auto" or device == "auto":
            return self.dtype
        return "float32" if device == "cpu" else "float16"


@dataclass(frozen=True)
class EncodedPrompt:
    """Token ids of one prompt, and how many tokens were `cut` to keep to the limit (0 = none)."""

    prompt_id: str
    domain: str
    ids: tuple[int, ...]
    cut: int


def _each_once(pairs: list[tuple[str, Any]]) -> Facts:
    found: Facts = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} occurs twice")
        found[name] = value
    return found


JSON = json.JSONDecoder(object_pairs_hook=_each_once)


def parse_json(text: str | bytes) -> Any:
    """A JSON text as plain values. ValueError (without the file's name)."""
    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except RecursionError as error:
        raise ValueError(error) from None


def content_of(path: Path | str) -> bytes:
    """The bytes of a file. ValueError for a pipe or a device, which may never end, and a folder."""
    file = Path(path)
    if file.exists() and not file.is_file():
        raise ValueError(f"{path} is not a regular file; save it as one")
    return file.read_bytes()


def read_values(path: Path | str, parse: Callable[[bytes], Any], do: str, kind: type) -> Any:
    """A file as plain values, by `parse`. ValueError, with the file's name, if it is damaged or its
    content is not a `kind`. do: what the reader of the message can do.
    """
    try:
        value = parse(content_of(path))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged or cannot be read ({error}); {do}") from None
    if not isinstance(value, kind):
        raise ValueError(
            f"{path} holds a {type(value).__name__} instead of a {kind.__name__}; {do}"
        )
    return value


def read_json(path: Path | str, do: str, kind: type = dict) -> Any:
    """A JSON file as plain values; ValueError as in `read_values`."""
    return read_values(path, parse_json, do, kind)


def one_line(text: Any) -> str:
    """A text, for example a library's error, in one line."""
    return " ".join(str(text).split())


def brief(value: Any) -> str:
    """A value as a message quotes it, cut if it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def notice(text: Any) -> None:
    """Print a line on standard error, as `shown`."""
    print(shown(text), file=sys.stderr)


@cache
def say_once(line: str) -> None:
    """Print a line once per process, as `shown`."""
    print(shown(line))


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of a file's content."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def digest_of(content: Any) -> str:
    """SHA-256 (hex) of plain values, whatever the order of their names."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def shown(text: Any) -> str:
    """A text on one line that a terminal prints unchanged: line ends, control characters and marks
    of direction become escapes, such as `\\x1b`.
    """
    return "".join(
        char if char.isprintable() or unicodedata.category(char) == "Zs" else ascii(char)[1:-1]
        for char in str(text)
    )

"""Types that models and studies share; YAML and JSON read strictly; texts of others shown safely.

A broken file is a ValueError that names the file and what to do. A key that occurs twice is
refused. YAML guesses nothing: `1:30` and `yes` are text, and `010` is no whole number.
"""

import difflib
import hashlib
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

Array = np.ndarray[Any, np.dtype[Any]]  # docstrings state shape and kind
Facts = dict[str, Any]  # the content of a file: plain values by name
Texts = dict[str, tuple[int, ...]]  # token ids by prompt_id
T = TypeVar("T")
# of the kit's and the paper's prompts; a user's file names its own domains
DOMAINS = ("code", "math", "reasoning", "chat")
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
# PyYAML's own rules read 010 as 8, 1:30 as 90 and yes as true; numbers too large for a float are
# text here
SCALARS = {
    "null": r"(~|null)?\Z",
    "bool": r"(true|false)\Z",
    "int": r"[-+]?(0|[1-9][0-9]{0,199})\Z",
    "float": r"[-+]?([0-9]{1,200}\.?|[0-9]{0,200}\.[0-9]+)(e[-+]?[0-9]{1,2})?\Z"
    r"|[-+]?\.inf\Z|\.nan\Z",
}
UNKNOWN = "unknown parameter"


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


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars above and without tags; the names of a mapping are
    text, each once.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012

    def fetch_tag(self) -> None:
        raise yaml.MarkedYAMLError(None, None, "tags (!) are not read; omit it", self.get_mark())

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        return super().construct_object(node, True)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in node.value:
            name = self.construct_scalar(key)
            if name in found:
                raise yaml.MarkedYAMLError(None, None, f"{name!r} occurs twice", key.start_mark)
            found[name] = self.construct_object(value)
        return found


for _tag, _pattern in SCALARS.items():
    _whole = re.compile(_pattern, re.IGNORECASE)
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _whole, None)


def _each_once(pairs: list[tuple[str, Any]]) -> Facts:
    found: Facts = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} occurs twice")
        found[name] = value
    return found


def parse_yaml(text: str | bytes) -> Any:
    """A YAML text as plain values. ValueError, with the place and without the file's name."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, OverflowError, ValueError) as error:
        raise ValueError(re.sub('in "<[a-z ]+>",', "at", one_line(error))) from None


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


def _read(path: Path | str, parse: Callable[[bytes], Any], do: str, kind: type) -> Any:
    try:
        value = parse(content_of(path))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged or cannot be read ({error}); {do}") from None
    if not isinstance(value, kind):
        came = type(value).__name__
        raise ValueError(f"{path} holds a {came} instead of a {kind.__name__}; {do}")
    return value


def read_yaml(path: Path | str, do: str, kind: type = object) -> Any:
    """A YAML file as plain values. ValueError, with the file's name, if it is damaged or its
    content is not a `kind`. do: what the reader of the message can do.
    """
    return _read(path, parse_yaml, do, kind)


def read_json(path: Path | str, do: str, kind: type = dict) -> Any:
    """A JSON file as plain values; ValueError as in `read_yaml`."""
    return _read(path, parse_json, do, kind)


def near(name: str, allowed: Iterable[str]) -> str:
    """What a message says about an unknown name: the nearest allowed name, and all of them."""
    names = list(allowed)
    return f"{_nearest(name, names)}allowed are {', '.join(names)}"


def _nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, 1, cutoff=0.45)
    return f"did you mean {close[0]!r}? " if close else ""


def checked(cls: type[T], values: Any, where: str, of_json: bool = False) -> T:
    """Values as an instance of a pydantic dataclass (config STRICT). ValueError: what is wrong with
    each value, after `where`, its place. of_json: the values come from JSON, so a dict may stand
    for a dataclass and a list for a tuple.
    """
    if not isinstance(values, dict):
        came = type(values).__name__
        raise ValueError(f"{where}: found a {came} instead of names with values")
    try:
        if of_json:
            return TypeAdapter(cls).validate_json(json.dumps(values))
        return cls(**values)
    except ValidationError as error:
        allowed: Any = cls.__dataclass_fields__  # type: ignore[attr-defined]
        said = [_complaint(allowed, one) for one in error.errors()[:5]]
        if any(text.startswith(UNKNOWN) for text in said):
            said.append(f"allowed are {', '.join(allowed)}")
        raise ValueError(f"{where}: {'; '.join(said)}") from None


def _complaint(allowed: Iterable[str], error: Any) -> str:
    name = ".".join(map(str, error["loc"]))
    if error["type"] == "unexpected_keyword_argument":
        return f"{UNKNOWN} {name!r}: {_nearest(name, allowed)}".rstrip(": ")
    if error["type"] == "missing":
        return f"missing field {name}"
    came = f"{name}={brief(error['input'])}: " if name else ""
    message = str(error["msg"]).removeprefix("Value error, ")
    return came + message


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

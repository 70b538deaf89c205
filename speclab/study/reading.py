"""Values that people write: YAML read strictly, checked, and refused with what is allowed.

YAML guesses nothing: `1:30` and `yes` are text, and `010` is no whole number. A key that occurs
twice is refused, and so are aliases, with which a few lines can stand for gigabytes.
"""

import difflib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from speclab.plain import brief, one_line, read_values

T = TypeVar("T")
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


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars above and without tags; the names of a mapping are
    text, each once.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012

    def fetch_tag(self) -> None:
        raise yaml.MarkedYAMLError(None, None, "tags (!) are not read; omit it", self.get_mark())

    def fetch_alias(self) -> None:
        raise yaml.MarkedYAMLError(
            None, None, "aliases (*) are not read; write the value again", self.get_mark()
        )

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


def parse_yaml(text: str | bytes) -> Any:
    """A YAML text as plain values. ValueError, with the place and without the file's name."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, OverflowError, ValueError) as error:
        raise ValueError(re.sub('in "<[a-z ]+>",', "at", one_line(error))) from None


def read_yaml(path: Path | str, do: str, kind: type = object) -> Any:
    """A YAML file as plain values. ValueError as of `read_values`."""
    return read_values(path, parse_yaml, do, kind)


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
    if error["type"] == "string_pattern_mismatch" and not str(error["input"]).strip():
        return f"{came}it must not be empty"
    return came + str(error["msg"]).removeprefix("Value error, ")

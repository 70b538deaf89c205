"""Reading what people write: YAML and JSON files, strictly.

A broken file is a ValueError of one line that names the file, what came and what to do. Nothing is
guessed: a key that comes twice, an alias, NaN or half a character is refused, and YAML is read by
the rules of its version 1.2, where `010` is 10, `1:30` and `yes` are text.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 1_000_000  # of a YAML file: a profile has a few hundred
MOST_DIGITS = 19  # of a whole number: more than any size or seed has
TAG = "tag:yaml.org,2002:"
PLAIN = ("null", "bool", "str", "seq", "map")  # and int and float, below
# The core schema of YAML 1.2, section 10.3.2
SCALARS = {
    "null": (r"~|null|Null|NULL|", "~nN\0"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+", "-+0123456789"),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)"
        r"|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
}


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2, without aliases and repeated keys."""

    yaml_implicit_resolvers = {}  # noqa: RUF012
    yaml_constructors = {  # noqa: RUF012
        tag: make
        for tag, make in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.removeprefix(TAG) in PLAIN
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(None, None, "aliases are not read here", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict:
        names = [key.value for key, _ in node.value]
        for place, (key, _) in enumerate(node.value):
            if not isinstance(key, yaml.ScalarNode):
                raise _at(key, "a name is needed before the colon")
            if key.value in names[:place]:
                raise _at(key, f"{_short(key.value)} comes twice")
        return {key.value: self.construct_object(v, deep) for key, v in node.value}

    def construct_yaml_int(self, node: Any) -> int:
        digits = self.construct_scalar(node)
        if len(digits) > MOST_DIGITS:
            raise _at(node, f"a number of {len(digits)} digits (text goes in quotes)")
        return int(digits)

    def construct_yaml_float(self, node: Any) -> float:
        text = self.construct_scalar(node).lower()
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))


for _name, (_pattern, _first) in SCALARS.items():
    _whole = re.compile(rf"(?:{_pattern})\Z")
    _firsts = [letter.strip("\0") for letter in _first]
    _Loader.add_implicit_resolver(TAG + _name, _whole, _firsts)
_Loader.add_constructor(TAG + "int", _Loader.construct_yaml_int)
_Loader.add_constructor(TAG + "float", _Loader.construct_yaml_float)


def _at(node: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def parse_yaml(text: str) -> Any:
    """A YAML text as plain values. ValueError (one line, without the file's name)."""
    try:
        value = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(_in_a_line(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_characters(value)
    if any("\0" in text for text in _texts(value)):
        raise ValueError("a character that no text has (NUL)")
    return value


def _in_a_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark else ""
    problem = getattr(error, "problem", None) or getattr(error, "reason", "not YAML")
    return where + " ".join(str(problem).split())


def read_yaml(path: Path | str, do: str) -> Any:
    """A YAML file as plain values; ValueError that names the file; do: what the reader can do."""
    try:
        text = read_text(path, do, MOST_BYTES)
        return parse_yaml(text)
    except _Unreadable:
        raise
    except ValueError as error:
        raise ValueError(f"{path}: not valid YAML ({error}); {do}") from None


# ---- JSON ----------------------------------------------------------------------------------------


def parse_json(text: str | bytes) -> Any:
    """A JSON text as plain values. ValueError (one line, without the file's name)."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    _check_characters(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{_short(twice)} comes twice")
    return found


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def read_json(path: Path | str, do: str, kind: type = dict) -> Any:
    """A JSON file as plain values; ValueError that names the file, also where the whole is not of
    `kind`; do: what the reader can do.
    """
    text = read_text(path, do)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{path} is damaged (not JSON: {error}); {do}") from None
    if not isinstance(value, kind):
        named = {dict: "an object", list: "a list"}.get(kind, kind.__name__)
        came = type(value).__name__
        raise ValueError(f"{path}: {named} is needed, a {came} came; {do}")
    return value


# ---- text ----------------------------------------------------------------------------------------


class _Unreadable(ValueError):
    """A file that cannot be read; the message names it."""


def read_text(path: Path | str, do: str, most_bytes: int | None = None) -> str:
    """The text of a UTF-8 file (a byte order mark is skipped); ValueError that names the file."""
    try:
        size = Path(path).stat().st_size
        if most_bytes and size > most_bytes:
            raise _Unreadable(f"{path} has {size} bytes, at most {most_bytes}; {do}")
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise _Unreadable(f"{path} is not text in UTF-8; {do}") from None
    except OSError as error:
        said = error.strerror or error
        raise _Unreadable(f"{path} cannot be read ({said}); {do}") from None


def is_whole_text(text: str) -> bool:
    """Whether a text can be written in UTF-8: JSON and YAML can name half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_characters(value: Any) -> None:
    for text in _texts(value):
        if not is_whole_text(text):
            raise ValueError(f"half a character (a lone surrogate) in {_short(text)}")


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value, also the names."""
    if isinstance(value, str):
        yield value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _short(text: str) -> str:
    """A text as it is quoted in a message, in ASCII and not long."""
    return ascii(text if len(text) <= 40 else text[:40] + "…")


def brief(value: Any) -> str:
    """A value as a message quotes it, however long it is."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"

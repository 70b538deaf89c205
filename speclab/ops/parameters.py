"""Parameters of notebooks: their defaults, and what is allowed, both from the parameters cell.

The comment behind a default begins with what is allowed, up to a semicolon: `1 to 64` (an end may
be the name of another parameter), `one of a, b`, or `any`; of a list or dict each element.
"""

import ast
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import papermill

from speclab.plain import brief

OF_PAIR = ("profile", "overrides")  # the checked profile stands for them


@dataclass(frozen=True)
class Parameter:
    """The default of a parameter, and what is allowed, in words."""

    default: Any
    allowed: str


def parameters_of(notebook: Path) -> dict[str, Parameter]:
    """The parameters of a notebook, as its cell sets them, by name."""
    return {
        name: Parameter(ast.literal_eval(row["default"]), row["help"].partition(";")[0])
        for name, row in papermill.inspect_notebook(notebook).items()
    }


def unknown(what: str, name: str, known: Iterable[str]) -> ValueError:
    """The error that there is no such name, with those that there are."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return ValueError(f"{what} {name!r}: {hint}there are {', '.join(known)}")


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """ValueError for a parameter that is not there (papermill only warns), or that says which pair
    is studied: the folders would be those of another.
    """
    for name in given:
        if name in OF_PAIR:
            raise ValueError(
                f"parameter {name!r} says which pair is studied: give it as --profile and --set "
                "(make: PROFILE=… SET=…)"
            )
        if name not in known:
            raise unknown("parameter", name, known)


def check_values(values: dict[str, Any], known: dict[str, Parameter]) -> None:
    """ValueError for a value that is not written as its default, or is not allowed."""
    for name, own in known.items():
        value, said = values[name], ""
        if name in OF_PAIR:
            continue
        if not is_alike(value, own):
            said = f"needed is {type(own.default).__name__}, as {own.default!r}"
        elif not all(is_allowed(one, own.allowed, values) for one in leaves(value)):
            said = f"allowed is {own.allowed}"
        if said:
            raise ValueError(f"parameter {name}={brief(value)}: {said}")


def is_alike(value: Any, own: Parameter) -> bool:
    """Whether a value, and what it holds, is of the default's type; whole numbers are numbers, and
    only where anything is allowed may a list be empty.
    """
    kinds = {type(one) for one in leaves(own.default)}
    if float in kinds:
        kinds.add(int)
    found = {type(one) for one in leaves(value)}
    containers = [isinstance(one, (list, dict)) for one in (value, own.default)]
    same = type(value) is type(own.default) or not any(containers)
    return same and found <= kinds and (bool(found) or own.allowed == "any")


def leaves(value: Any) -> list[Any]:
    """A value, or the values in a list or dict."""
    if not isinstance(value, (list, dict)):
        return [value]
    inner = value.values() if isinstance(value, dict) else value
    return [leaf for one in inner for leaf in leaves(one)]


def is_allowed(value: Any, allowed: str, values: dict[str, Any]) -> bool:
    """Whether a number or text is within what is allowed; values: of all parameters."""
    choice = allowed.removeprefix("one of ")
    if choice != allowed:
        return str(value) in choice.split(", ")
    low, to, high = allowed.partition(" to ")
    if not to:
        return True
    return float(values.get(low, low)) <= value <= float(values.get(high, high))

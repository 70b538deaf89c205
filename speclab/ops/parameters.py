"""Parameters of notebooks: their defaults, and what is allowed, both from the parameters cell.

The comment after a default begins with what is allowed, up to a semicolon: `1 to 64` (an end may
be the name of another parameter), `one of a, b`, or `any`; of a list or dict each element.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import papermill
from pydantic import Field, TypeAdapter, ValidationError

from speclab.plain import brief, near

OF_PAIR = ("profile", "overrides")  # the checked profile stands for them


@dataclass(frozen=True)
class Parameter:
    """The default of a parameter, and what is allowed, in words."""

    default: Any
    allowed: str


def parameters_of(notebook: Path) -> dict[str, Parameter]:
    """The parameters of a notebook, as its cell sets them, by name."""
    parameters = {}
    for name, row in papermill.inspect_notebook(notebook).items():
        default = ast.literal_eval(row["default"])
        allowed = row["help"].partition(";")[0]
        parameters[name] = Parameter(default, allowed)
    return parameters


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
            raise ValueError(f"unknown parameter {name!r}: {near(name, known)}")


def check_values(values: dict[str, Any], known: dict[str, Parameter]) -> None:
    """ValueError for a value that is not written as its default, or is not allowed."""
    for name, parameter in known.items():
        if name in OF_PAIR:
            continue
        default, allowed = parameter.default, parameter.allowed
        try:
            kind = type_of(default, allowed, values)
            TypeAdapter(kind).validate_python(values[name], strict=True)
        except ValidationError:
            raise ValueError(
                f"parameter {name}={brief(values[name])}: allowed is {allowed}, written as "
                f"{default!r}"
            ) from None


def type_of(default: Any, allowed: str, values: dict[str, Any]) -> Any:
    """The type of what is allowed, for pydantic: that of the default (whole numbers are numbers
    too), its first element that of all; an empty one holds numbers. Only where anything is allowed,
    or the default is empty, may a list be empty.

    values: of all parameters, for ranges that end at one of them.
    """
    if isinstance(default, (list, dict)):
        is_dict = isinstance(default, dict)
        first, *_ = [*(default.values() if is_dict else default), 0.0]
        element = type_of(first, allowed, values)
        kind: Any = dict[str, element] if is_dict else list[element]  # type: ignore[valid-type]
        least = int(bool(default) and allowed != "any")
        return Annotated[kind, Field(min_length=least)]
    if allowed.startswith("one of "):
        words = allowed.removeprefix("one of ").split(", ")
        return Literal[tuple(type(default)(word) for word in words)]
    low, to, high = allowed.partition(" to ")
    if not to:
        return type(default)
    ends = [type(default)(values.get(end, end)) for end in (low, high)]
    return Annotated[type(default), Field(ge=ends[0], le=ends[1])]

"""Parameters of notebooks. Their defaults and allowed values are both read from the parameters
cell.

The comment after a default starts with the allowed values, up to a semicolon: `1 to 64` (a bound
may be the name of another parameter), `one of a, b`, or `any`. For a list or dict this applies to
each element.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import papermill
from pydantic import Field, TypeAdapter, ValidationError

from speclab.plain import brief, near, notice

OF_PAIR = ("profile", "overrides")  # they are checked as a profile, not here


@dataclass(frozen=True)
class Parameter:
    """The default of a parameter, and its allowed values in words."""

    default: Any
    allowed: str


def parameters_of(notebook: Path) -> dict[str, Parameter]:
    """The parameters of a notebook by name, from its parameters cell."""
    parameters = {}
    for name, row in papermill.inspect_notebook(notebook).items():
        default = ast.literal_eval(row["default"])
        allowed = row["help"].partition(";")[0]
        parameters[name] = Parameter(default, allowed)
    return parameters


# parameters that notebooks no longer have, and what to do instead
EQUAL = "a test holds the decoder equal to the replay, for every gamma"
TIMED = "notebook 10 measures time"
GONE = {
    **dict.fromkeys(["decoded_gammas", "decoded_prompts"], EQUAL),
    **dict.fromkeys(["decoded_gamma", "decoded_prompts_per_domain", "decoded_tokens"], TIMED),
    **dict.fromkeys(["pass_repeats", "pass_tries", "rounds", "new_tokens"], TIMED),
    "article_int4": "the article's number stands in notebook 08",
    "bins": "use n_bins",
    "entropy_bins": "bins of entropy are no longer shown",
    "public_runs": "notebook 13 reads all public runs",
    "article_cost": "the article's cost stands in notebook 11",
    "parts": "drift along the log is a table",
    "tried": "use gammas",
    "batches": "notebook 10 has the batches of a server",
    **dict.fromkeys(["streams", "mix", "load", "requests"], "notebook 10 shows batches"),
    **dict.fromkeys(["dynamic", "cost_margin", "router"], "notebook 09 compares four policies"),
    **dict.fromkeys(["check_prompts", "check_repeats", "probes", "probe_prompts"], TIMED),
    "wanted_overlap": "use wanted",
    "sure": "notebook 07 makes no class by a cut; cuts sets the surface",
    "deepest": "notebook 08 shows three depths",
    **dict.fromkeys(["cs", "slopes"], "notebook 11 judges no claim about costs"),
    "author_records": "notebook 11 reads no records of the authors",
    "largest_gamma": "use max_gamma",
    "level": "intervals are 95 % intervals",
}


def without_gone(values: dict[str, Any], known: Iterable[str], where: str) -> dict[str, Any]:
    """A profile's parameters of a notebook without those that are GONE, which are reported."""
    gone = [name for name in values if name in GONE and name not in known]
    for name in gone:
        notice(f"{where}: parameter {name!r} is gone and ignored: {GONE[name]}")
    return {name: value for name, value in values.items() if name not in gone}


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError for an unknown parameter (papermill only warns), and for a parameter that
    chooses the pair, because the folders would then belong to another pair.
    """
    for name in given:
        if name in OF_PAIR:
            raise ValueError(
                f"parameter {name!r} chooses the pair: pass it as --profile and --set "
                "(make: PROFILE=… SET=…)"
            )
        if name in GONE and name not in known:
            raise ValueError(f"parameter {name!r} is gone: {GONE[name]}")
        if name not in known:
            raise ValueError(f"unknown parameter {name!r}: {near(name, known)}")


def check_values(values: dict[str, Any], known: dict[str, Parameter]) -> None:
    """Raise ValueError for a value that has another type than the default, or is not allowed."""
    for name, parameter in known.items():
        if name in OF_PAIR:
            continue
        default, allowed = parameter.default, parameter.allowed
        try:
            kind = type_of(default, allowed, values)
            TypeAdapter(kind).validate_python(values[name], strict=True)
        except ValidationError:
            raise ValueError(
                f"parameter {name}={brief(values[name])}: allowed is {allowed}, in the form of "
                f"{default!r}"
            ) from None


def type_of(default: Any, allowed: str, values: dict[str, Any]) -> Any:
    """The type of the allowed values, for pydantic.

    It is the type of the default; whole numbers count as numbers too. The first element of a list
    or dict sets the type of all its elements, and an empty default means numbers. A list may be
    empty only if anything is allowed or the default is empty. values: all parameters, for ranges
    whose bound is another parameter.
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

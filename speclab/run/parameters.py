"""Parameters of notebooks. Their defaults and allowed values are both read from the parameters
cell.

The comment after a default starts with the allowed values, up to a semicolon: `1 to 64`, `one
of a, b`, or `any`. For a list or dict this applies to each element.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from speclab.cli.run_plan import chosen
from speclab.plain import Facts, brief, notice, read_json
from speclab.study.profiles import ROOT, Profile
from speclab.study.reading import near

OF_PAIR = ("profile", "overrides")  # they are checked as a profile, not here
LINE = re.compile(r"^(\w+): \w+ = (.+?)(?:  # ([^;\n]*).*)?$", re.MULTILINE)
# parameters that notebooks no longer have; CHANGELOG.md says what there is instead
GONE = re.compile(
    r"decoded_\w+|rounds|pass_(repeats|tries)|new_tokens|check_(prompts|repeats)|probe_prompts"
    r"|probes|batches|streams|mix|load|requests|article_(int4|cost)|bins|entropy_bins|public_runs"
    r"|parts|tried|dynamic|cost_margin|router|wanted_overlap|sure|deepest|cs|slopes|author_records"
    r"|largest_gamma|level"
)
OF_GONE = "notebooks no longer have it (see CHANGELOG.md)"


def cells_of(notebook: Path) -> list[tuple[str, str, list[str]]]:
    """(kind, text, tags) of every cell of a notebook."""
    book = read_json(notebook, "`make notebooks` writes it from its .py")
    return [
        (cell["cell_type"], "".join(cell["source"]), cell["metadata"].get("tags", []))
        for cell in book["cells"]
    ]


def parameters_of(notebook: Path) -> dict[str, tuple[Any, str]]:
    """Default and allowed values (in words) of a notebook's parameters by name, from its parameters
    cell, but those OF_PAIR.
    """
    text = "\n".join(text for _, text, tags in cells_of(notebook) if "parameters" in tags)
    return {
        name: (ast.literal_eval(default), allowed)
        for name, default, allowed in LINE.findall(text)
        if name not in OF_PAIR
    }


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError for an unknown parameter; papermill only warns."""
    for name in given:
        if name not in known:
            why = OF_GONE if GONE.fullmatch(name) else near(name, known)
            raise ValueError(f"parameter {name!r}: {why}")


def values_of(
    profile: Profile, path: Path, of_call: Facts, known: Mapping[str, tuple[Any, str]]
) -> Facts:
    """The values of parameters of a notebook that a profile and the call give; the call goes first.
    Those of the profile that are GONE are reported and left out.

    Raises ValueError for an unknown name, also of a notebook, and for a value that has another type
    than the default, or is not allowed.
    """
    given: Facts = {}
    for notebook, values in profile.notebooks.items():
        given |= values if chosen([notebook], ROOT) == [path] else {}
    for name in filter(GONE.fullmatch, given.keys() - known):
        notice(f"{profile.name}: {path.stem}: {name!r} is ignored: {OF_GONE}")
        del given[name]
    given |= of_call
    check_names(given, known)
    for name, value in given.items():
        usual, allowed = known[name]
        if not is_allowed(value, usual, allowed):
            raise ValueError(
                f"parameter {name}={brief(value)}: allowed is {allowed}, in the form of {usual!r}"
            )
    return given


def is_allowed(value: Any, usual: Any, allowed: str) -> bool:
    """Whether a value has the type of its default `usual` and is within the allowed values.

    Whole numbers count as numbers too. The first element of a list sets the type of all its
    elements; the elements of an empty default, and of a dict, are numbers. A list may be empty only
    if anything is allowed or the default is empty.
    """
    if type(value) is not type(usual) and (type(value), type(usual)) != (int, float):
        return False
    if isinstance(usual, list | dict):
        each = value.values() if isinstance(value, dict) else value
        is_enough = bool(value or not usual or allowed == "any")
        return is_enough and all(is_allowed(one, [*usual, 0.0][0], allowed) for one in each)
    if allowed.startswith("one of "):
        return str(value) in allowed.removeprefix("one of ").split(", ")
    low, to, high = allowed.partition(" to ")
    return not to or float(low) <= value <= float(high)

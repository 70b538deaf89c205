"""Parameters of notebooks. Their names, types and allowed values are read from the parameters cell.

The comment after a default starts with the allowed values, up to a semicolon: `1 to 64`, `one
of a, b`, or `any`. For a list or dict this applies to each element.
"""

import ast
import re
from collections import ChainMap
from collections.abc import Iterable
from dataclasses import field, make_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from speclab.cli.run_plan import chosen
from speclab.plain import STRICT, Facts, notice, read_json
from speclab.study.profiles import ROOT, Profile, parse_overrides
from speclab.study.reading import near

# name, default and allowed values; profile and overrides are checked as a profile, not here
LINE = re.compile(r"^(?!profile:|overrides:)(\w+): \w+ = (.+?)(?:  # ([^;\n]*).*)?$", re.MULTILINE)
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


def parameters_of(notebook: Path) -> Any:
    """The parameters of a notebook with their defaults, from its parameters cell: a dataclass that
    checks values (`reading.checked`).
    """
    text = "\n".join(text for _, text, tags in cells_of(notebook) if "parameters" in tags)
    fields = []
    for name, default, allowed in LINE.findall(text):
        usual = partial(ast.literal_eval, default)
        fields.append((name, type_of(usual(), allowed), field(default_factory=usual)))
    return dataclass(make_dataclass("Parameters", fields), config=STRICT)


def type_of(usual: Any, allowed: str) -> Any:
    """The type of values that are like the default `usual` and within the allowed values.

    The first element of a list sets the type of all its elements; the elements of an empty default,
    and of a dict, are numbers. A list may be empty only if anything is allowed or the default is
    empty.
    """
    kind: Any = type(usual)
    if kind in (list, dict):
        one = type_of([*usual, 0.0][0], allowed)
        least = int(bool(usual) and allowed != "any")
        return Annotated[kind[one if kind is list else (str, one)], Field(min_length=least)]
    if allowed.startswith("one of "):
        return Literal[tuple(map(kind, allowed.removeprefix("one of ").split(", ")))]
    low, to, high = allowed.partition(" to ")
    return Annotated[kind, Field(ge=float(low), le=float(high))] if to else kind


def values_of_call(changes: Iterable[str], notebooks: Iterable[Any]) -> Facts:
    """The values in `changes`, name=value, of parameters (`parameters_of`) of any of the notebooks.
    ValueError as of `parse_overrides`, and for an unknown name.
    """
    known = ChainMap(*(one.__dataclass_fields__ for one in notebooks))
    texts = [name for name, one in known.items() if one.type is str]
    given = parse_overrides(changes, "--parameter", texts)
    for name in given.keys() - known:
        why = OF_GONE if GONE.fullmatch(name) else near(name, known)
        raise ValueError(f"parameter {name!r}: {why}")
    return given


def values_of(profile: Profile, path: Path, of_call: Facts, known: Any) -> Facts:
    """The values of parameters of a notebook that a profile and the call give; the call goes first.
    Those of the profile that are GONE are reported and left out. known: its `parameters_of`.
    ValueError for an unknown notebook.
    """
    given: Facts = {}
    for notebook, values in profile.notebooks.items():
        given |= values if chosen([notebook], ROOT) == [path] else {}
    for name in filter(GONE.fullmatch, given.keys() - known.__dataclass_fields__):
        notice(f"{profile.name}: {path.stem}: {name!r} is ignored: {OF_GONE}")
        del given[name]
    return given | of_call

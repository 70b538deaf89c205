"""Parameters of notebooks. Their defaults and allowed values are both read from the parameters
cell.

The comment after a default starts with the allowed values, up to a semicolon: `1 to 64` (a bound
may be the name of another parameter), `one of a, b`, or `any`. For a list or dict this applies to
each element.
"""

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from speclab.cli.run_plan import chosen
from speclab.plain import Facts, brief, notice, read_json
from speclab.study.profiles import ROOT, Profile
from speclab.study.reading import near

OF_PAIR = ("profile", "overrides")  # they are checked as a profile, not here
LINE = re.compile(r"^(\w+): \w+ = (.+?)(?:  # ([^;\n]*).*)?$", re.MULTILINE)
# what to do instead of parameters that notebooks do not have or no longer have
GONE = {
    "it chooses the pair: pass it as --profile and --set": "profile overrides",
    "a test holds the decoder equal to the replay": "decoded_gammas decoded_prompts",
    "notebook 10 measures time": "decoded_gamma decoded_prompts_per_domain decoded_tokens rounds "
    "pass_repeats pass_tries new_tokens check_prompts check_repeats probes probe_prompts",
    "notebook 10 shows batches": "batches streams mix load requests",
    "the article's numbers stand in notebooks 08 and 11": "article_int4 article_cost",
    "use n_bins": "bins",
    "bins of entropy are no longer shown": "entropy_bins",
    "notebook 13 reads all public runs": "public_runs",
    "drift along the log is a table": "parts",
    "use gammas": "tried",
    "notebook 09 compares four policies": "dynamic cost_margin router",
    "use wanted": "wanted_overlap",
    "notebook 07 makes no class by a cut; cuts sets the surface": "sure",
    "notebook 08 shows three depths": "deepest",
    "notebook 11 judges no claim about costs": "cs slopes",
    "notebook 11 reads no records of the authors": "author_records",
    "use max_gamma": "largest_gamma",
    "intervals are 95 % intervals": "level",
}
WHY_GONE = {name: why for why, names in GONE.items() for name in names.split()}


class Parameter(NamedTuple):
    """The default of a parameter, and its allowed values in words."""

    default: Any
    allowed: str


def cells_of(notebook: Path) -> list[tuple[str, str, list[str]]]:
    """(kind, text, tags) of every cell of a notebook, which may be its .py."""
    if notebook.suffix == ".py":
        import jupytext  # lazy: takes a second

        book = jupytext.read(notebook)
    else:
        book = read_json(notebook, "`make notebooks` writes it from its .py")
    return [
        (cell["cell_type"], "".join(cell["source"]).strip(), cell["metadata"].get("tags", []))
        for cell in book["cells"]
    ]


def parameters_of(notebook: Path) -> dict[str, Parameter]:
    """The parameters of a notebook by name, from its parameters cell, but those OF_PAIR."""
    text = "\n".join(text for _, text, tags in cells_of(notebook) if "parameters" in tags)
    return {
        name: Parameter(ast.literal_eval(default), allowed)
        for name, default, allowed in LINE.findall(text)
        if name not in OF_PAIR
    }


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError for an unknown parameter; papermill only warns."""
    for name in given:
        if name not in known:
            raise ValueError(f"parameter {name!r}: {WHY_GONE.get(name) or near(name, known)}")


def profile_parameters(profile: Profile) -> dict[str, Facts]:
    """The parameters that a profile sets in single notebooks, by notebook. Those that are GONE are
    reported and left out. Raises ValueError for unknown notebooks and names, and as `values_of`.
    """
    found: dict[str, Facts] = {}
    for notebook, values in profile.notebooks.items():
        [path] = chosen([notebook], ROOT)
        known, given = parameters_of(path), found.setdefault(path.stem, {})
        given |= values
        for name in values.keys() & WHY_GONE - known.keys():
            notice(f"{profile.name}: {notebook}: {name!r} is ignored: {WHY_GONE[name]}")
            del given[name]
        values_of(given, known)
    return found


def values_of(given: Facts, known: dict[str, Parameter]) -> Facts:
    """The values of all parameters, given ones before defaults. Raises ValueError for an unknown
    name, and for a value that has another type than the default, or is not allowed.
    """
    check_names(given, known)
    values = {name: given.get(name, parameter.default) for name, parameter in known.items()}
    for name, (usual, allowed) in known.items():
        if not is_allowed(values[name], usual, allowed, values):
            raise ValueError(
                f"parameter {name}={brief(values[name])}: allowed is {allowed}, in the form of "
                f"{usual!r}"
            )
    return values


def is_allowed(value: Any, usual: Any, allowed: str, values: Facts) -> bool:
    """Whether a value has the type of its default `usual` and is within the allowed values.

    Whole numbers count as numbers too. The first element of a list or dict sets the type of all its
    elements, and an empty default means numbers. A list may be empty only if anything is allowed or
    the default is empty. values: all parameters, for ranges that end at another parameter.
    """
    if type(value) is not type(usual) and (type(value), type(usual)) != (int, float):
        return False
    if isinstance(usual, dict):
        return is_allowed([*value.values()], [*usual.values()], allowed, values)
    if isinstance(usual, list):
        is_enough = bool(value or not usual or allowed == "any")
        like = [*usual, 0.0][0]
        return is_enough and all(is_allowed(one, like, allowed, values) for one in value)
    if allowed.startswith("one of "):
        return str(value) in allowed.removeprefix("one of ").split(", ")
    low, to, high = allowed.partition(" to ")
    return not to or float(low) <= value <= float(values.get(high, high))

"""Parameters of notebooks. Their defaults and allowed values are both read from the parameters
cell.

The comment after a default starts with the allowed values, up to a semicolon: `1 to 64` (a bound
may be the name of another parameter), `one of a, b`, or `any`. For a list or dict this applies to
each element.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speclab.cli.run_plan import chosen
from speclab.plain import brief, near, notice, read_json
from speclab.study.profiles import ROOT, Profile

OF_PAIR = ("profile", "overrides")  # they are checked as a profile, not here
LINE = re.compile(r"^(\w+): \w+ = (.+?)(?:  # ([^;\n]*).*)?$", re.MULTILINE)
# parameters that notebooks no longer have, by what to do instead
GONE = {
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


@dataclass(frozen=True)
class Parameter:
    """The default of a parameter, and its allowed values in words."""

    default: Any
    allowed: str


def parameters_of(notebook: Path) -> dict[str, Parameter]:
    """The parameters of a notebook by name, from its parameters cell."""
    book = read_json(notebook, "`make notebooks` writes it from its .py")
    tagged = [cell for cell in book["cells"] if "parameters" in cell["metadata"].get("tags", ())]
    lines = LINE.findall("".join(line for cell in tagged for line in cell["source"]))
    return {name: Parameter(ast.literal_eval(default), allowed) for name, default, allowed in lines}


def why_gone(name: str) -> str:
    """What to do without a parameter that notebooks no longer have; "" for any other name."""
    return next((why for why, names in GONE.items() if name in names.split()), "")


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
        if name not in known:
            raise ValueError(f"parameter {name!r}: {why_gone(name) or near(name, known)}")


def of_profile(profile: Profile) -> dict[str, dict[str, Any]]:
    """The parameters that a profile sets in single notebooks, by notebook. Those that are GONE are
    reported and left out. Raises ValueError for unknown notebooks and names, and as `values_of`.
    """
    found: dict[str, dict[str, Any]] = {}
    for notebook, values in profile.notebooks.items():
        [path] = chosen([notebook], ROOT)
        known, there = parameters_of(path), found.setdefault(path.stem, {})
        for name, value in values.items():
            if name not in known and why_gone(name):
                notice(f"{profile.name}: {notebook}: {name!r} is ignored: {why_gone(name)}")
            else:
                there[name] = value
        check_names(there, known)
        values_of(there, known)
    return found


def values_of(given: dict[str, Any], known: dict[str, Parameter]) -> dict[str, Any]:
    """The values of all parameters, given ones before defaults. Raises ValueError for a value that
    has another type than the default, or is not allowed.
    """
    values = {name: given.get(name, parameter.default) for name, parameter in known.items()}
    for name, value in values.items():
        usual, allowed = known[name].default, known[name].allowed
        if name not in OF_PAIR and not is_allowed(value, usual, allowed, values):
            raise ValueError(
                f"parameter {name}={brief(value)}: allowed is {allowed}, in the form of {usual!r}"
            )
    return values


def is_allowed(value: Any, usual: Any, allowed: str, values: dict[str, Any]) -> bool:
    """Whether a value has the type of its default `usual` and is within the allowed values.

    Whole numbers count as numbers too. The first element of a list or dict sets the type of all its
    elements, and an empty default means numbers. A list may be empty only if anything is allowed or
    the default is empty. values: all parameters, for ranges that end at another parameter.
    """
    kinds = (int, float) if isinstance(usual, float) else (type(usual),)
    if type(value) not in kinds:
        return False
    if isinstance(usual, dict):
        return is_allowed([*value.values()], [*usual.values()], allowed, values)
    if isinstance(usual, list):
        is_enough = bool(value or not usual or allowed == "any")
        return is_enough and all(
            is_allowed(one, [*usual, 0.0][0], allowed, values) for one in value
        )
    if allowed.startswith("one of "):
        return str(value) in allowed.removeprefix("one of ").split(", ")
    low, to, high = allowed.partition(" to ")
    return not to or float(low) <= value <= float(values.get(high, high))

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
            raise ValueError(f"parameter {name!r}: {WHY_GONE.get(name) or near(name, known)}")


def of_profile(profile: Profile, path: Path, known: Iterable[str]) -> Facts:
    """The values that a profile gives to parameters of a notebook. Those that are GONE are reported
    and left out. Raises ValueError for names of notebooks that the kit does not have.
    """
    given: Facts = {}
    for notebook, values in profile.notebooks.items():
        given |= values if chosen([notebook], ROOT) == [path] else {}
    for name in given.keys() & WHY_GONE.keys() - known:
        notice(f"{profile.name}: {path.stem}: {name!r} is ignored: {WHY_GONE[name]}")
        del given[name]
    return given


def check_values(given: Facts, known: Mapping[str, tuple[Any, str]]) -> None:
    """Raise ValueError for an unknown name, and for a value that has another type than the default,
    or is not allowed.
    """
    check_names(given, known)
    for name, value in given.items():
        usual, allowed = known[name]
        if not is_allowed(value, usual, allowed):
            raise ValueError(
                f"parameter {name}={brief(value)}: allowed is {allowed}, in the form of {usual!r}"
            )


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

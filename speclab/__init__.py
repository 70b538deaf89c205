"""A study kit for speculative decoding: the mechanism in flat modules, and rooms around it.

core      trees, shapes, verification, sampling, drafting, decoding, recording, replay, scores,
          statistics, estimates, costs, the interface of a model, shared types
models    networks: their folders, how they are loaded, their passes, and the cost of a pass
drafts    other drafts: quantised copies, and the trained drafts that come with the kit
study     profiles, prompts, recorded runs and their manifests
lab       what several notebooks share: texts, prompt sets, choosing a setting, stop rules
logs      logs of servers and public runs
show      what a reader sees: figures, pictures, tables, the start of a notebook
explore   a page that explores a recorded run in a browser, without a kernel
run       `make reproduce`: which notebooks run again, their pages, the report
cli       the other verbs: record, decode, log, plan, export, doctor, Kaggle and Colab

What users import is here: the modules `decode`, `replay`, `score`, `stats` and `verify`, and
`load_run` (a recorded run), `load_pair` (target and draft of a profile), `pair_of` (of two loaded
models), `Tree` and `distance_of` (how far a rule is from lossless). They are loaded when they are
first used, so replaying a run needs no torch. notebooks/RECIPES.md uses each of them.

`python -m speclab --help` lists the commands. speclab/README.md says where to change what.
"""

from importlib import import_module
from typing import Any

if not __debug__:
    raise ImportError(
        "speclab needs its assertions: start Python without -O and without PYTHONOPTIMIZE"
    )

# for type checkers: __init__.pyi
MODULE_OF = {
    "Tree": "tree",
    "distance_of": "lab.enumeration",
    "load_pair": "study.pairs",
    "load_run": "study.runs",
    "pair_of": "models.pairs",
}
__all__ = [*MODULE_OF, "decode", "replay", "score", "stats", "verify"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'speclab' has no attribute {name!r}; it has {__all__}")
    try:
        module = import_module(f"speclab.{MODULE_OF.get(name, name)}")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error}, which speclab.{name} needs; run `pip install '.[models]'` in the clone"
        ) from None
    return getattr(module, name) if name in MODULE_OF else module

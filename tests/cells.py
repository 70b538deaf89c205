"""Cells of a notebook, run on made numbers: for the tests of what notebooks conclude."""

import ast
from functools import cache
from types import SimpleNamespace

import jupytext
import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.estimates import Estimates
from speclab.lab import prompt_sets
from speclab.study.profiles import ROOT

KIT = {"np": np, "pd": pd, "replay": replay, "score": score, "stats": stats, "ALL": score.ALL}
KIT |= {"Estimates": Estimates, "prompt_sets": prompt_sets, "POOLED": score.POOLED}
# bounds for each verdict
BOUNDS = {"above": (0.1, 0.3), "below": (-0.3, -0.1), "inconclusive": (-0.1, 0.1)}
BOUNDS["undefined"] = (np.nan, np.nan)


@cache
def code_of(number):
    """The cells of a notebook, without the one that looks for the kit."""
    [source] = (ROOT / "notebooks").glob(f"{number}_*.py")
    cells = [cell for cell in jupytext.read(source).cells if cell.cell_type == "code"]
    return [cell.source for cell in cells if "bootstrap" not in cell.metadata.get("tags", ())]


def functions_of(number, **names):
    """The imports, functions and WORDS of a notebook, and the names that they use. No other line of
    it runs.
    """
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef)
    body = [
        node
        for node in ast.parse("\n".join(code_of(number))).body
        if isinstance(node, kinds) or ast.unparse(node).startswith("WORDS = ")
    ]
    exec(compile(ast.Module(body, []), number, "exec"), names)
    return names


def run_cells(number, first, last, profile=None, **names):
    """Run the cells from the one with the text `first` to the one with `last`, drawing nothing.
    All their names; `answers` has what was answered.
    """
    cells, answers = code_of(number), []
    begin, end = (next(i for i, cell in enumerate(cells) if t in cell) for t in (first, last))
    quiet = dict.fromkeys(("draw", "plot", "table", "export", "say"), lambda *_, **__: None)
    ctx = SimpleNamespace(profile=profile, answer=answers.append, **quiet)
    names = KIT | names | {"ctx": ctx, "answers": answers}
    for cell in cells[begin : end + 1]:
        exec(cell, names)
    return names


def set_of(rows, *new, name="", is_part=False):
    """A set of prompts as a notebook has it."""
    words = {"name": name, "in_words": f"the set {name}"}
    return SimpleNamespace(trace=rows, new=new, is_part=is_part, **words)

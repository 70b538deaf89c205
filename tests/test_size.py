"""How large the house is: nodes of Python's syntax trees, docstrings left out, so that squeezing
lines lowers nothing. Whoever adds something sees what it costs.
"""

import ast
from pathlib import Path

import pytest

from speclab.profiles import ROOT

# thousands of nodes, at most; to raise one on purpose, change it in a commit that says what for
LIMITS = {"speclab/**/*.py": 86, "speclab/*.py": 20.7, "tests/*.py": 103, "tests/tools/*.py": 9}


def size(path):
    """Nodes of a file's syntax tree without docstrings and marks of loading and storing."""
    count = 0
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        count += not isinstance(node, ast.expr_context)
        is_scope = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        if is_scope and ast.get_docstring(node) is not None:
            count -= 2
    return count


@pytest.mark.parametrize("files", LIMITS)
def test_the_house_is_no_larger_than_it_was(files):
    paths = sorted(ROOT.glob(files))
    assert paths and sum(map(size, paths)) <= 1000 * LIMITS[files], (
        f"{files}: see what can go before the limit in {Path(__file__).name} is raised"
    )

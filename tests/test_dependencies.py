"""The import map: who may know whom. Imports are tried in a fresh interpreter, so that what a module drags in is seen too."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from speclab.profiles import ROOT

PURE = (
    "tokenview", "byhand", "explain", "tree", "score", "stats", "replay", "cost", "search", "paper", "prompts", "profiles", "notebook",
    "sweep", "control", "causes", "power", "audit", "claims", "budgets", "routing", "online", "stream", "training_prompts", "authors",
    "memory", "machine", "doctor", "hosted", "parts", "tokens",
)  # fmt: skip
ONLY = {
    "matplotlib": {"figures"},
    "seaborn": {"figures"},
    "transformers": {"pairs", "pretrain"},
    "gptqmodel": {"machine", "pairs", "quantise"},
    "papermill": {"reproduce"},
    "nbconvert": {"report"},
    "ray": {"engines"},
    "peft": {"drafts"},
}
HEAVY = ("torch", "transformers", "gptqmodel", "matplotlib", "seaborn", "datasets")
MODULES = {path.stem: path for path in sorted((ROOT / "speclab").glob("*.py"))}


def dragged_in(module: str) -> set[str]:
    """The heavy libraries that are loaded once `module` is imported in a fresh interpreter."""
    script = f"import sys, json, {module}; print(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def imported(path: Path) -> set[str]:
    """Top-level names of all that a file imports, wherever in the file, but for annotations only (`if TYPE_CHECKING`)."""
    names, tree = set(), ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.split(".")[0] for name in names}


def test_the_probe_sees_a_heavy_import():
    assert dragged_in("speclab.figures") >= {"matplotlib", "seaborn"}, "the negative control: without it the tests below could not fail"


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_need_no_model_and_no_plotting(module):
    assert dragged_in(f"speclab.{module}") == set()


def test_verification_knows_torch_only():
    assert dragged_in("speclab.verify") <= {"torch"}


@pytest.mark.parametrize("library", ONLY)
def test_a_library_is_imported_where_the_map_says(library):
    assert {name for name, path in MODULES.items() if library in imported(path)} <= ONLY[library]


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("[0-9]*.py")), ids=lambda p: p.stem)
def test_notebooks_go_through_the_package(notebook):
    assert not imported(notebook) & {"transformers", "gptqmodel", "matplotlib", "seaborn"}, "speclab has a function for it, or needs one"

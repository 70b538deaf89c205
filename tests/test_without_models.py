"""Code that only reads traces runs without torch, transformers and fcntl, as on a laptop or on
Windows. Each test runs in its own process, which cannot import them.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_notebooks import SOURCES

from speclab.show.notebook import drawn_in
from speclab.study.profiles import ROOT

BLOCKED = ("torch", "transformers", "gptqmodel", "datasets", "fcntl")
# no finder of this interpreter finds them, as where they are not installed
BLOCK = """
import sys

def hiding(find_spec):
    def find(name, *rest):
        return None if name.partition(".")[0] in BLOCKED else find_spec(name, *rest)
    return find

for finder in sys.meta_path:
    finder.find_spec = hiding(finder.find_spec)
"""
# these name tokens by the target's tokenizer, for which transformers is needed
NAMING = ("01", "06", "07", "11")
READERS = (
    "01",
    "03",
    "04",
    "05",
    "06",
    "07",
    "11",
    "12",
    "13",
    "14",
)  # notebooks that load no model (01 leaves out the section that needs one)
READING = [path for path in SOURCES if path.name[:2] in READERS]


def run_blocked(code, out, blocked=BLOCKED, cwd=ROOT):
    """The finished process of Python code that cannot import these names; figures go to out."""
    code = f"BLOCKED = {blocked}\n{BLOCK}{code}"
    return subprocess.run(
        [sys.executable, "-W", "ignore:only soft file lock", "-c", code],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "SPECLAB_OUT": str(out)},
        capture_output=True,
        text=True,
    )


def code_of(notebook):
    """All code of a notebook: in its source, text is comments."""
    return notebook.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BLOCKED)
def test_what_is_blocked_cannot_be_imported(tmp_path, name):
    assert "ModuleNotFoundError" in run_blocked(f"import {name}", tmp_path).stderr


def bare():
    """The packages that `pip install .` brings: those of pyproject.toml and all that they need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs, found = list(project["dependencies"]), set()
    while needs:
        need = Requirement(needs.pop())
        name = canonicalize_name(need.name)
        if name not in found and (not need.marker or need.marker.evaluate({"extra": ""})):
            found.add(name)
            needs += metadata.requires(name) or ()
    return found


def test_the_eight_lines_of_readme_run_in_any_folder_with_what_pip_installs(tmp_path):
    """Nothing else that is installed here can be imported."""
    text, allowed = (ROOT / "README.md").read_text(encoding="utf-8"), bare()
    code, printed = re.search(r"```python\n(.*?)```.*?```\n(.*?)```", text, re.DOTALL).groups()
    owners = metadata.packages_distributions().items()
    others = [
        name for name, of in owners if not {*map(canonicalize_name, of)} & {*allowed, "speclab"}
    ]
    assert {"torch", "transformers", "click", "matplotlib"} <= {*others} and "pandas" in allowed
    done = run_blocked(code, tmp_path, (*others, "fcntl"), cwd=tmp_path)
    assert (done.stdout, done.stderr) == (printed, "")


def test_studies_of_traces_are_imported(tmp_path):
    imports = [
        ast.unparse(node)
        for path in READING
        for node in ast.parse(code_of(path)).body
        if isinstance(node, ast.ImportFrom) and node.module.startswith("speclab")
    ]
    assert len(READING) == len(READERS) and len(imports) > 50
    assert run_blocked("\n".join(imports), tmp_path).stderr == ""


@pytest.mark.parametrize(
    "notebook",
    [
        "04_depth_profile",
        *(pytest.param(p.stem, marks=pytest.mark.slow) for p in READING if p.stem[:2] != "04"),
    ],
)
def test_a_notebook_that_reads_traces_runs(tmp_path, notebook):
    blocked = BLOCKED if notebook[:2] not in NAMING else ("torch", "gptqmodel", "fcntl")
    done = run_blocked(code_of(ROOT / "notebooks" / f"{notebook}.py"), tmp_path, blocked)
    assert done.returncode == 0, done.stderr
    folder = drawn_in(tmp_path / "figures" / "smollm", notebook)
    assert (folder / "numbers.json").is_file()

"""Code that only reads traces runs without torch, transformers and fcntl, as on a laptop or on
Windows. Each test runs in its own process, which cannot import them.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib

import pytest
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


def test_the_eight_lines_of_readme_run_in_any_folder_without_what_models_adds(tmp_path):
    text, project = ((ROOT / name).read_text("utf-8") for name in ("README.md", "pyproject.toml"))
    code, printed = re.search(r"```python\n(.*?)```.*?```\n(.*?)```", text, re.DOTALL).groups()
    added = tomllib.loads(project)["project"]["optional-dependencies"]["models"]
    names = [re.match(r"[\w-]+", need)[0].replace("scikit-learn", "sklearn") for need in added]
    done = run_blocked(code, tmp_path, (*BLOCKED, *names), cwd=tmp_path)
    assert (done.stdout, done.stderr) == (printed, "") and {"torch", "click"} <= {*names}


def test_what_needs_models_says_what_to_install(tmp_path):
    for name in ("decode", "pair_of", "distance_of"):
        said = run_blocked(f"from speclab import {name}", tmp_path).stderr
        assert f"No module named 'torch', which speclab.{name} needs; run `pip" in said


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

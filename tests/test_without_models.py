"""What only reads traces runs where torch, transformers and fcntl are missing: on any laptop, on Windows, in a browser's
Python. The blocked names are refused by the interpreter itself, in a process of its own.
"""

import re
import subprocess
import sys

import pytest
from test_notebooks import SOURCES

from speclab.profiles import ROOT

BLOCKED = ("torch", "transformers", "gptqmodel", "datasets", "fcntl")
# the notebooks that study recorded traces
READERS = [path for path in SOURCES if path.stem[:2] in "03 04 05 06 07 11 13 14 15".split()]
BLOCK = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED}:
            raise ModuleNotFoundError(f"No module named {{name!r}} (blocked)", name=name)

sys.meta_path.insert(0, Refuse())
for name in [*sys.modules]:
    if name.partition(".")[0] in {BLOCKED}:
        del sys.modules[name]
"""


def run_blocked(code, folder, **environment):
    """The finished process of Python code that cannot import what is BLOCKED."""
    return subprocess.run(
        [sys.executable, "-c", BLOCK + code],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "SPECLAB_OUT": str(folder)} | environment,
        capture_output=True,
        text=True,
    )


def code_of(path, imports_only=False):
    """A notebook's code, or its imports alone."""
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("#")]
    if imports_only:
        kept = re.findall(r"^(?:from|import) [^(\n]+(?:\([^)]*\))?$", "\n".join(kept), re.MULTILINE)
    return "\n".join(kept)


@pytest.mark.parametrize("name", BLOCKED)
def test_what_is_blocked_cannot_be_imported(tmp_path, name):
    done = run_blocked(f"import {name}", tmp_path)
    assert done.returncode and "(blocked)" in done.stderr


def test_the_eight_lines_of_readme(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, printed = re.search(r"```python\n(.*?)```.*?```\n(.*?)```", text, re.DOTALL).groups()
    done = run_blocked(code, tmp_path)
    assert done.stderr == "" and done.stdout == printed

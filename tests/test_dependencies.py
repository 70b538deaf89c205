"""The import map: which module may import which.

Imports are tried in copies of a fresh interpreter, so that indirect imports are seen too.
"""

import ast
import json
import subprocess
import sys

import pytest
from test_notebooks import each_notebook

from speclab.profiles import ROOT

PURE = (
    "show.pictures",
    "estimates",
    "tree",
    "copying",
    "score",
    "stats",
    "replay",
    "starts",
    "cost",
    "prompts",
    "profiles",
    "show.notebook",
    "show.tables",
    "show.redraw",
    "runs",
    "analysis.published",
    "analysis.texts",
    "analysis.variance_components",
    "analysis.stopping",
    "analysis.combined",
    "analysis.power",
    "analysis.choose",
    "analysis.token_kinds",
    "analysis.bins",
    "analysis.association",
    "analysis.specdecode_bench",
    "analysis.fetch",
    "analysis.significance",
    "passes",
    "analysis.logs",
    "analysis.log_summary",
    "analysis.log_gammas",
    "analysis.claims",
    "analysis.author_records",
    "explore.trace_data",
    "explore.page",
    "ops.plan",
    "ops.doctor",
    "ops.hosted",
    "ops.commands",
)
ONLY = {
    "matplotlib": {"show.figures"},
    # ops.pair converts GGUF files, ops.plan counts on the meta device
    "transformers": {
        *("models.folder", "models.pairs", "models.support", "models.trimmed"),
        *("ops.pair", "ops.plan"),
    },
    "gptqmodel": {"models.pairs", "drafts.quantise"},
    "speculators": {"models.head"},
    "papermill": {"ops.reproduce", "ops.parameters"},
    "nbconvert": {"ops.report", "ops.pages"},
    "ray": {"ops.workers"},
    "data": set(),  # scripts that made the data use the package, never the reverse
}
HEAVY = ("torch", "transformers", "gptqmodel", "matplotlib", "datasets")
PACKAGE = ROOT / "speclab"
MODULES = {
    ".".join(p.relative_to(PACKAGE).with_suffix("").parts): p for p in sorted(PACKAGE.rglob("*.py"))
}


# the interpreter is copied for each module, before it has imported anything of the kit
SCRIPT = """
import importlib, json, os, sys
import numpy, pandas, pyarrow.parquet, pydantic, scipy.optimize, scipy.stats, yaml
heavy, modules = json.loads(sys.argv[1])
assert not {"speclab", *heavy} & {*sys.modules}
for module in modules:
    if os.fork() == 0:
        importlib.import_module(module)
        print(json.dumps([module, [n for n in heavy if n in sys.modules]]), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, module
"""


def dragged_in(modules):
    """The heavy libraries that are loaded once a module of speclab is imported where none of the
    kit is; by module.
    """
    names = [f"speclab.{module}" for module in modules]
    command = [sys.executable, "-c", SCRIPT, json.dumps([HEAVY, names])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(map(json.loads, done.stdout.splitlines()))
    assert list(found) == names
    return {module: set(found[f"speclab.{module}"]) for module in modules}


def is_for_types(node):
    """`if TYPE_CHECKING`: what is there is imported for annotations only."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports_of(path, for_types=True):
    """Dotted names of all that a file imports, wherever in it, and whether at its top."""
    tree, found = ast.parse(path.read_text(encoding="utf-8")), []
    if not for_types:
        tree.body = [one for one in tree.body if not is_for_types(one)]
    for node in ast.walk(tree):
        head = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        if head or isinstance(node, ast.Import):
            names = [head + alias.name for alias in node.names]
            found += [(name, node in tree.body) for name in names]
    return found


def imported(path):
    """Top-level names of all that a file imports, but for annotations only."""
    return {name.partition(".")[0] for name, _ in imports_of(path, for_types=False)}


def kit_imports(path):
    """Modules and names of the kit that a file imports, without the package's name."""
    every = imports_of(path)
    return [(n[8:], at_top) for n, at_top in every if n.startswith("speclab.")]


def test_pure_modules_need_no_model_and_no_plotting_and_verification_torch_only():
    found = dragged_in([*PURE, "verify", "show.figures"])
    assert found.pop("show.figures") == {"matplotlib"}, (
        "the negative control: without it what follows could not fail"
    )
    assert found.pop("verify") <= {"torch"}
    assert {module: heavy for module, heavy in found.items() if heavy} == {}


@pytest.mark.parametrize("library", ONLY)
def test_a_library_is_imported_where_the_map_says(library):
    assert {name for name, path in MODULES.items() if library in imported(path)} <= ONLY[library]


@each_notebook
def test_notebooks_go_through_the_package(source):
    assert not imported(source) & {"transformers", "gptqmodel", "matplotlib"}, (
        "speclab has a function for it, or needs one"
    )


# ---- the rooms: who may import whom --------------------------------------------------------------

MAY_IMPORT = {  # a room, and the rooms it may import
    "core": {"core", "models"},
    "models": {"core", "models"},
    "show": {"core", "show"},
    "analysis": {"core", "show", "analysis"},
    "drafts": {"core", "models", "drafts"},
    "explore": {"core", "show", "analysis", "explore"},
    "ops": {"core", "models", "show", "explore", "ops"},
}
# inside a function only: the command line reaches everything, a notebook's start may ask where it
# runs
LAZY = {
    "ops.commands": set(MAY_IMPORT),
    "ops.decode_call": {"analysis"},
    "show.notebook": {"ops"},
}


def room_of(module):
    """The room that a dotted module or name lives in."""
    head = module.partition(".")[0].replace("__main__", "ops")  # it starts ops.commands
    return head if head in MAY_IMPORT else "core"


def wrong_imports(module, path):
    """Imports of a module that its room may not make, as sentences."""
    here, wrong = room_of(module), []
    for name, at_top in kit_imports(path):
        there = room_of(name)
        lazily = not at_top and there in LAZY.get(module, set())
        if there not in MAY_IMPORT[here] and not lazily:
            wrong.append(f"{module} ({here}) imports {name} ({there})")
    return wrong


@pytest.mark.parametrize("module", MODULES)
def test_rooms(module):
    assert wrong_imports(module, MODULES[module]) == []


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        (
            "score",
            "from speclab.analysis import texts",
            "score (core) imports analysis.texts (analysis)",
        ),
        (
            "analysis.texts",
            "import speclab.drafts.shipped",
            "analysis.texts (analysis) imports drafts.shipped (drafts)",
        ),
        (
            "show.notebook",
            "from speclab.ops import hosted",
            "show.notebook (show) imports ops.hosted (ops)",
        ),
    ],
)
def test_each_wrong_import_is_seen(tmp_path, module, line, complaint):
    (tmp_path / "module.py").write_text(line)
    assert any(complaint in wrong for wrong in wrong_imports(module, tmp_path / "module.py"))

"""The import map: which module may import which.

Imports are tried in copies of a fresh interpreter, so that indirect imports are seen too.
"""

import ast
import json
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import pytest
from test_notebooks import SOURCES, each_notebook

import speclab
from speclab.study.profiles import ROOT

PURE = (
    "show.pictures",
    "estimates",
    "tree",
    "copying",
    "score",
    "stats",
    "replay",
    "lab.starts",
    "cost",
    "study.prompts",
    "study.profiles",
    "show.notebook",
    "show.tables",
    "study.runs",
    "lab.published",
    "lab.texts",
    "lab.variance_components",
    "lab.stopping",
    "lab.combined",
    "lab.choose",
    "lab.token_kinds",
    "lab.bins",
    "lab.association",
    "logs.specdecode_bench",
    "logs.fetch",
    "lab.significance",
    "logs.passes",
    "logs.readers",
    "logs.logs",
    "logs.log_summary",
    "logs.log_compare",
    "logs.log_gammas",
    "logs.author_records",
    "explore.trace_data",
    "explore.page",
    "cli.doctor",
    "cli.hosted",
    "cli.commands",
)
ONLY = {
    "matplotlib": {"show.figures"},
    # cli.pair converts GGUF files
    "transformers": {
        *("models.folder", "models.pairs", "models.support", "models.trimmed"),
        "cli.pair",
    },
    "gptqmodel": {"models.pairs", "drafts.quantise"},
    "speculators": {"models.head"},
    "papermill": {"run.reproduce"},
    "nbconvert": {"run.pages"},
    "sphinx": {"run.site"},
    "ray": {"cli.workers"},
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


def test_what_users_import_needs_no_torch_to_replay():
    """The names that `speclab` offers are its modules' own, and loaded when they are used."""
    script = (
        "import sys, speclab\n"
        "assert 'numpy' not in sys.modules\n"
        "assert speclab.load_run and speclab.replay.replay and speclab.score and speclab.stats\n"
        "assert not {'torch', 'transformers', 'matplotlib'} & {*sys.modules}\n"
        "offered = {name: getattr(speclab, name).__name__ for name in speclab.__all__}\n"
        "assert {*offered} == {n.removeprefix('speclab.') for n in offered.values()}, offered"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'load'; it has"):
        speclab.load  # noqa: B018


@pytest.mark.parametrize("library", ONLY)
def test_a_library_is_imported_where_the_map_says(library):
    assert {name for name, path in MODULES.items() if library in imported(path)} <= ONLY[library]


@each_notebook
def test_notebooks_go_through_the_package(source):
    assert not imported(source) & {"transformers", "gptqmodel", "matplotlib"}, (
        "speclab has a function for it, or needs one"
    )


# ---- the rooms: who may import whom --------------------------------------------------------------

# A room imports from rooms of its own row and of rows to its left. Nobody imports drafts.
ROWS = ["core", "models", "study", "drafts", "lab logs", "show", "explore cli run"]
ROW_OF = {room: row for row, rooms in enumerate(ROWS) for room in rooms.split()}


def room_of(module):
    """The room that a dotted module or name lives in."""
    head = module.partition(".")[0].replace("__main__", "cli")  # it starts cli.commands
    return head if head in ROW_OF else "core"


def module_of(name):
    """The module that an imported name is, or is a part of."""
    parts = name.split(".")
    heads = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((head for head in heads if head in MODULES), "__init__")


def wrong_imports(module, path):
    """Imports of a module that its room may not make, as sentences."""
    here, wrong = room_of(module), []
    for name, _ in kit_imports(path):
        there = room_of(name)
        is_left = ROW_OF[there] <= ROW_OF[here] and there != "drafts"
        if not is_left and there != here:
            wrong.append(f"{module} ({here}) imports {name} ({there})")
    return wrong


@pytest.mark.parametrize("module", MODULES)
def test_rooms(module):
    assert wrong_imports(module, MODULES[module]) == []


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        ("score", "from speclab.study import prompts", "score (core) imports study.prompts"),
        ("lab.texts", "import speclab.drafts.shipped", "imports drafts.shipped (drafts)"),
        ("show.notebook", "from speclab.run import report", "imports run.report (run)"),
    ],
)
def test_each_wrong_import_is_seen(tmp_path, module, line, complaint):
    (tmp_path / "module.py").write_text(line)
    assert any(complaint in wrong for wrong in wrong_imports(module, tmp_path / "module.py"))


GRAPH = {
    module: {module_of(name) for name, _ in kit_imports(path)} - {"__init__"}
    for module, path in MODULES.items()
    if module != "__init__"
}


def test_no_modules_import_each_other():
    TopologicalSorter(GRAPH).prepare()
    with pytest.raises(CycleError):
        TopologicalSorter(GRAPH | {"tree": {"replay"}}).prepare()


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("lab.")])
def test_two_notebooks_or_a_verb_share_a_module_of_lab(module):
    """Directly, or through another module of lab."""
    asked = {module} | {user for user, needed in GRAPH.items() if module in needed}
    users = {user for user in asked if room_of(user) == "cli"}
    for source in SOURCES:
        if {module_of(name) for name, _ in kit_imports(source)} & asked:
            users.add(source.stem)
    is_verb = any(user.startswith("cli.") for user in users)
    assert len(users) > 1 or is_verb or module == "lab.__init__"

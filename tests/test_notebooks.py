"""The house format of notebooks, held for every notebooks/[0-9]*.py and its .ipynb twin; and what
notebooks get from speclab.show.notebook.
"""

import ast
import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import jupytext
import nbformat
import pandas as pd
import papermill
import pytest

from speclab.ops import report
from speclab.ops.reproduce import cells_of
from speclab.profiles import ROOT, load_profile
from speclab.show import notebook

FOLDER = ROOT / "notebooks"
SOURCES = sorted(FOLDER.glob("[0-9]*.py"))
TEMPLATE = FOLDER / "_template.py"
each_notebook = pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)


def cells(source, kind="code"):
    """Cells of one kind as jupytext reads them from the .py file."""
    return [c for c in jupytext.read(source).cells if c.cell_type == kind]


def tagged(source, tag):
    """Code of the cells that carry a tag."""
    return [c.source for c in cells(source) if tag in c.metadata.get("tags", [])]


def rule_breaks(source):
    """Departures of one notebook from the house format, as sentences."""
    first, breaks = jupytext.read(source).cells[0], []
    if not re.match(r"# .*\?", first.source):
        breaks.append("the title asks no question mark")
    if any(re.search(r"import \*", cell.source) for cell in cells(source)):
        breaks.append("a star import")
    imports = next(c for c in cells(source) if re.match("import|from", c.source))
    if "jupyter" not in imports.metadata:
        breaks.append("the imports are not folded")
    if tagged(source, "bootstrap") != tagged(TEMPLATE, "bootstrap"):
        breaks.append("the bootstrap cell is not the template's")
    parameters = tagged(source, "parameters")
    if len(parameters) != 1:
        return [*breaks, f"{len(parameters)} cells tagged parameters, not 1"]
    for node in ast.parse(parameters[0]).body:
        if not isinstance(node, ast.AnnAssign):
            breaks.append(f"not annotated: {ast.unparse(node)}")
        elif any(isinstance(one, (ast.Call, ast.BinOp)) for one in ast.walk(node)):
            breaks.append(f"not a literal: {ast.unparse(node)}")
    return breaks


def twin_breaks(source):
    """Where the .ipynb twin departs from what jupytext makes of the .py file."""
    book, breaks = nbformat.read(source.with_suffix(".ipynb"), as_version=4), []
    if cells_of(book) != cells_of(jupytext.read(source)):
        breaks.append("the twin is not the .py file's: run `make notebooks`")
    if any(c.get("outputs") or c.get("execution_count") for c in book.cells):
        breaks.append("the twin holds outputs: run `make notebooks`")
    if book.metadata.get("kernelspec", {}).get("name") != "python3":
        breaks.append("the twin names no python3 kernel: Colab and papermill need it")
    return breaks


def test_there_are_notebooks():
    assert SOURCES, "no notebooks/[0-9]*.py: the rules below would hold for nothing"
    assert {p.stem for p in SOURCES} == {p.stem for p in FOLDER.glob("[0-9]*.ipynb")}, (
        "a twin without its .py file, or the reverse"
    )


@each_notebook
def test_house_format(source):
    assert rule_breaks(source) == [] and twin_breaks(source) == []
    code = "\n".join(cell.source for cell in cells(source))
    assert re.findall(r'start\(\s*"(\w+)"', code) == [source.stem], "figures' number"


@each_notebook
def test_papermill_sees_every_parameter(source):
    """papermill reads no `int | None`: plain types only."""
    lines = ast.parse(tagged(source, "parameters")[0]).body
    names = {node.target.id for node in lines}
    assert set(papermill.inspect_notebook(source.with_suffix(".ipynb"))) == names
    assert {"profile", "overrides"} <= names


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "# # NN. Which question does this notebook answer?",
            "# # NN. A statement",
            "question mark",
        ),
        ('profile: str = "smollm"', 'profile = "smollm"', "not annotated"),
        ('profile: str = "smollm"', 'profile: str = "ti" * 2', "not a literal"),
        ('# %% tags=["parameters"]', "# %%", "0 cells tagged parameters"),
        ("hosted.prepare()", "hosted.restore()", "bootstrap"),
        ("from speclab import runs", "from speclab.score import *", "star import"),
    ],
)
def test_each_rule_can_be_broken(tmp_path, old, new, complaint):
    text = TEMPLATE.read_text(encoding="utf-8")
    assert text.count(old) == 1
    (tmp_path / "NN_name.py").write_text(text.replace(old, new), encoding="utf-8")
    assert any(complaint in found for found in rule_breaks(tmp_path / "NN_name.py"))


def bootstrap(folder, before="", **environment):
    """Run the bootstrap cell in `folder`, as a notebook opened there would; it ends by printing the
    working folder. before: code that runs first.
    """
    source = tagged(TEMPLATE, "bootstrap")[0]
    not_ours = ("PYTHONPATH", "SPECLAB_REPO")
    clean = {name: v for name, v in os.environ.items() if name not in not_ours}
    call = {"cwd": folder, "env": clean | environment, "capture_output": True}
    command = [sys.executable, "-c", f"{before}\n{source}\nprint(os.getcwd())"]
    return subprocess.run(command, text=True, timeout=120, **call)


@pytest.mark.parametrize("folder", [ROOT, FOLDER])
def test_bootstrap_in_a_checkout_only_moves_to_the_root(folder):
    done = bootstrap(folder)
    assert (done.returncode, done.stdout.strip()) == (0, str(ROOT)), done.stderr
    cell = tagged(TEMPLATE, "bootstrap")[0].splitlines()
    assert sum(not line.startswith("#") for line in cell if line) <= 10, "a short first cell"


def test_bootstrap_elsewhere_says_what_to_do(tmp_path):
    done = bootstrap(tmp_path)
    assert done.returncode == 1 and "SPECLAB_REPO" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def shown(monkeypatch):
    """What was displayed."""
    found = []

    def display(what, display_id=None):
        found.append(what)

    monkeypatch.setattr("IPython.display.display", display)
    return found


def test_context_writes_numbered_figures_tables_and_numbers(tmp_path, monkeypatch, shown):
    from speclab.show import figures

    monkeypatch.setenv("SPECLAB_OUT", str(tmp_path))
    ctx = notebook.start("03_domain_acceptance", "tiny", {"prompts_per_domain": 20})
    assert ctx.profile.prompts_per_domain == 20
    assert ctx.figures == tmp_path / "figures" / "tiny" / "03"
    figure, _ = figures.subplots(width=figures.ONE_COLUMN, height=1)
    caption = "Alpha by domain: 0.5 in code."
    ctx.save(figure, "by-domain", caption)
    ctx.table(pd.DataFrame({"domain": ["code"], "alpha": [0.51249]}), "table-1")
    ctx.record(tau=1.234567, pairs=2)
    _answer, picture, text, table = shown
    assert picture.data == (ctx.figures / "by-domain.png").read_bytes()
    assert picture.alt == caption and text.data == f"*{caption}*"
    assert "0.512" in table.data and "code" in table.data
    for name, held in [
        ("captions", {"by-domain": caption}),
        ("numbers", {"tau": 1.235, "pairs": 2}),
    ]:
        assert json.loads((ctx.figures / f"{name}.json").read_text()) == held
    another = notebook.start("15_at_scale", "tiny")
    assert another.figures == tmp_path / "figures" / "llama-3.1-8b" / "15"
    ends = {path.name.partition(".")[2] for path in ctx.figures.iterdir()}
    assert ends == {"png", "pdf", "csv", "tex", "json"}


ANSWERED = """
from speclab.show import notebook
ctx = notebook.start("03_domain_acceptance", "tiny")
ctx.say("In between.")
"""


def test_the_answer_is_the_first_output_and_code_is_behind_a_switch(tmp_path, monkeypatch):
    """Under papermill, in a kernel, and in the HTML that nbconvert writes."""
    monkeypatch.setenv("SPECLAB_OUT", str(tmp_path))
    source, done = tmp_path / "source.ipynb", tmp_path / "done.ipynb"
    (tmp_path / "dot.png").write_bytes(b"not really a picture")
    book = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# A question?\n![a dot](dot.png)"),
            nbformat.v4.new_code_cell(ANSWERED),
            nbformat.v4.new_code_cell("ctx.answer('It is **0.5** here.')"),
        ]
    )
    nbformat.write(book, source)
    papermill.execute_notebook(source, done, kernel_name="python3", cwd=ROOT, progress_bar=False)
    _, first, last = nbformat.read(done, as_version=4).cells
    shown = [output["data"]["text/markdown"] for output in first.outputs]
    assert shown == ["**Answer.** It is **0.5** here.", "In between."]
    assert last.outputs == []
    numbers = tmp_path / "figures" / "tiny" / "03" / "numbers.json"
    assert json.loads(numbers.read_text()) == {"answer": "It is **0.5** here."}
    page = report.to_html(done).read_text(encoding="utf-8")
    said, answer, between = map(
        page.index, ('id="show-code"', "</strong> It is", "In between.</p>")
    )
    assert said < page.index("<main>") < answer < between
    assert "data:image/png;base64,bm90IHJ" in page and "computed at the end" not in page


def test_what_is_enough_for_which_notebook():
    few = {"domains": ("math",), "prompts_per_domain": 5, "max_new_tokens": 8}
    profile = load_profile("tiny", few)
    assert notebook.check_enough("00_by_hand", profile) == 5
    assert notebook.check_enough("08_x", load_profile("tiny"), judged=6) == 6


@pytest.mark.parametrize(
    ("number", "changes", "said"),
    [
        ("02", {"domains": ["math", "chat"]}, "3 domains and has 2"),
        ("02", {"prompts_per_domain": 4}, "5 prompts_per_domain .* has 4"),
        ("07", {"max_new_tokens": 8}, "16 max_new_tokens and has 8"),
        ("01", {"temperature": 0.7}, "temperature=0.7"),
        ("07", {"temperature": 1, "top_k": 1}, "top_k=1"),
        ("05", {"top_p": 0.9}, "top_p=0.9"),
    ],
)
def test_what_a_notebook_cannot_study_is_said_before_it_records(number, changes, said):
    with pytest.raises(ValueError, match=said) as refused:
        notebook.check_enough(f"{number}_x", load_profile("tiny", changes))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("changes", [{"temperature": 1}, {"top_k": 2}, {}])
def test_what_notebooks_can_study_is_not_refused(changes):
    profile = load_profile("tiny", changes)
    for number in range(16):
        assert notebook.check_enough(f"{number:02d}_x", profile) == 50


def test_threads_follow_the_environment(monkeypatch):
    seen = []
    torch = SimpleNamespace(set_num_threads=seen.append)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert notebook.limit_threads() == 3 and seen == [3]
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert 1 <= notebook.limit_threads() <= 8
    assert os.environ["OMP_NUM_THREADS"] == str(seen[-1])

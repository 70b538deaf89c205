"""The house format of notebooks, checked for every notebooks/[0-9]*.py and its .ipynb twin, and the
helpers in speclab.show.notebook.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import jupytext
import nbformat
import pandas as pd
import papermill
import pytest
from bs4 import BeautifulSoup
from nbconvert.filters import markdown2html
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from speclab.show import notebook
from speclab.study.profiles import ROOT, load_profile

FOLDER = ROOT / "notebooks"
SOURCES = [twin.with_suffix(".py") for twin in sorted(FOLDER.glob("[0-9]*.ipynb"))]
BOOTSTRAP = jupytext.read(FOLDER / "_template.py").cells[2].source
each_notebook = pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)


@each_notebook
def test_house_format(source):
    """That a twin has the cells of its source is what the runner demands."""
    title, *cells = jupytext.read(source).cells
    assert re.match(r"# .*\?", title.source), "the title asks no question"
    assert cells[0].metadata["tags"] == ["parameters"], "what a reader changes comes first"
    imports = next(cell for cell in cells if re.match("import|from", cell.source))
    assert "jupyter" in imports.metadata, "the imports are not folded"
    tagged = {tag: cell.source for cell in cells for tag in cell.metadata.get("tags", [])}
    assert tagged["bootstrap"] == BOOTSTRAP
    assert len(BOOTSTRAP.replace("\n\n", "\n").splitlines()) <= 8
    lines = ast.parse(tagged["parameters"]).body
    assert all(isinstance(line, ast.AnnAssign) for line in lines)
    code = source.read_text(encoding="utf-8")
    assert code.count('tags=["parameters"]') == 1
    assert re.findall(r'start\(\s*"(\w+)"', code) == [source.stem], "figures' number"
    twin = source.with_suffix(".ipynb")
    book = nbformat.read(twin, as_version=4)
    assert book.metadata["kernelspec"]["name"] == "python3", "Colab and papermill need it"
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in book.cells)
    assert code.count("ctx.compares(") <= 1, "it says twice that nothing is compared"
    names = {line.target.id for line in lines} | {"profile", "overrides"}
    assert {*papermill.inspect_notebook(twin)} == names, "it reads no `int | None`"


@each_notebook
def test_no_line_of_a_formula_is_a_bullet(source):
    """Markdown makes a bullet of a line that begins with + or -; our bullets begin with a star."""
    for cell in jupytext.read(source).cells:
        bullets = re.findall(r"^\s*[+-]\s.*", cell.source, re.MULTILINE)
        assert cell.cell_type == "code" or not bullets


def bootstrap(folder, *options, **environment):
    """Run the bootstrap cell in `folder`, as a notebook opened there would; it ends by printing the
    working folder and where speclab is. options: of Python, as -S: no package is installed.
    """
    not_ours = ("PYTHONPATH", "SPECLAB_REPO")
    clean = {name: value for name, value in os.environ.items() if name not in not_ours}
    end = "import speclab; print(os.getcwd()); print(os.path.dirname(speclab.__file__))"
    command = [sys.executable, *options, "-c", f"{BOOTSTRAP}\n{end}"]
    call = {"cwd": folder, "env": clean | environment, "capture_output": True, "text": True}
    return subprocess.run(command, timeout=120, **call)


@pytest.mark.parametrize("folder", [ROOT, FOLDER])
def test_bootstrap_in_a_checkout_only_moves_to_the_root(folder):
    done = bootstrap(folder)
    assert (done.returncode, done.stdout.split()) == (0, [str(ROOT), str(ROOT / "speclab")])


def test_bootstrap_elsewhere_goes_to_the_kit_that_the_kernel_has(tmp_path):
    (tmp_path / "speclab").mkdir()  # a folder of this name is no kit
    done = bootstrap(tmp_path, "-S", PYTHONPATH=str(ROOT))
    assert done.stdout.split() == [str(ROOT), str(ROOT / "speclab")], done.stderr


def test_bootstrap_with_an_installed_package_stays_where_it_is(tmp_path):
    """Such a package has no root with notebooks and data, and its folder may be read-only."""
    site, here = tmp_path / "site", tmp_path / "here"
    here.mkdir()
    junk = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "speclab", site / "speclab", ignore=junk)
    (site / "speclab/kit").mkdir()
    done = bootstrap(here, "-S", PYTHONPATH=str(site))
    assert done.stdout.split() == [str(here), str(site / "speclab")], done.stderr


@pytest.fixture
def shown(monkeypatch):
    """What was displayed."""
    found = []

    def display(what, display_id=None, metadata=None):
        found.append(what)

    monkeypatch.setattr("IPython.display.display", display)
    return found


def test_context_writes_numbered_figures_tables_and_numbers(tmp_path, monkeypatch, shown):
    monkeypatch.setenv("SPECLAB_OUT", str(tmp_path))
    ctx = notebook.start("03_domain_acceptance", "tiny", {"prompts_per_domain": 20})
    assert ctx.profile.prompts_per_domain == 20
    assert ctx.figures == tmp_path / "figures/tiny/03"
    names = [f"domain {number}" for number in range(13)]
    alphas = pd.DataFrame({"domain": names, "estimate": 0.5, "low": 0.4, "high": 0.6})
    ctx.plot(alphas, "domain", "by-domain", "Alpha by domain.", kind="points")
    ctx.table(pd.DataFrame({"domain": ["code", "math"], "alpha": [0.51249, 1]}), "table-1", most=1)
    ctx.record(tau=1.234567, pairs=2)
    ctx.answer("Yes.")
    _, _, picture, _, table, _ = shown
    assert picture.data == (ctx.figures / "by-domain.png").read_bytes()
    caption = "Alpha by domain."
    assert "| code | 0.512 |" in table.data and "math" not in table.data
    read = [json.loads((ctx.figures / f"{n}.json").read_text()) for n in ("captions", "numbers")]
    assert read == [{"by-domain": caption}, {"tau": 1.235, "pairs": 2, "answer": "Yes."}]
    another = notebook.start("13_public_runs", "tiny")
    assert another.figures == tmp_path / "figures/public/13"
    files = {path.name for path in ctx.figures.glob("by-domain*")}
    assert files == {
        f"by-domain{end}" for end in (".csv", ".png", ".pdf", ".svg", "-column.pdf", "-column.png")
    }
    assert {path.name for path in ctx.figures.glob("table-1*")} == {"table-1.csv", "table-1.tex"}
    with pytest.raises(ValueError, match="by-domain.csv already holds another table"):
        ctx.export(alphas.assign(estimate=0.7), "by-domain")


def test_sentences_show_names_as_they_are(tmp_path, monkeypatch, shown):
    """Also where Markdown, HTML or a formula would begin; code stays code."""
    names = ["<u>x</u> & *y*", "$a_1$, $b$", "[d](#e) `f`", "a_b"]
    rows = [
        {"prompt_id": f"{n}<u>", "domain": name, "prompt": name} for n, name in enumerate(names)
    ]
    (tmp_path / "own_set.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setenv("SPECLAB_OUT", str(tmp_path))
    ctx = notebook.start("01_load_models", "tiny", {"prompts": str(tmp_path / "own_set.jsonl")})
    for name in [*names, "3<u>"]:
        ctx.say(f"**In {name}** the domain `a_b` is seen.")
        said = BeautifulSoup(markdown2html(shown[-1].data), "html.parser")
        assert said.get_text().strip() == f"In {name} the domain a_b is seen."
        assert [tag.name for tag in said.find_all()] == ["p", "strong", "code"]
    ctx.answer(f"It is {names[0]}.")
    [answer] = json.loads((ctx.figures / "numbers.json").read_text()).values()
    said = BeautifulSoup(markdown2html(answer), "html.parser")
    assert said.get_text().strip() == f"It is {names[0]}."


ANSWERED = """
from speclab.show import notebook
ctx = notebook.start("03_domain_acceptance", "tiny")
ctx.say("In between.")
"""


def test_the_answer_is_the_first_output(tmp_path, monkeypatch):
    """Under papermill, in a kernel. (The pages that are made of it: test_pages.)"""
    monkeypatch.setenv("SPECLAB_OUT", str(tmp_path))
    source, done = tmp_path / "source.ipynb", tmp_path / "done.ipynb"
    title = new_markdown_cell("# A question?")
    code = [new_code_cell(text) for text in (ANSWERED, "ctx.answer('It is **0.5** here.')")]
    nbformat.write(new_notebook(cells=[title, *code]), source)
    papermill.execute_notebook(source, done, kernel_name="python3", cwd=ROOT, progress_bar=False)
    _, first, last = nbformat.read(done, as_version=4).cells
    outputs = [first.outputs[0], *first.outputs[2:]]  # without the line of settings
    outputs = [output["data"]["text/markdown"] for output in outputs]
    assert outputs == ["**Answer.** It is **0.5** here.", "In between."] and last.outputs == []


@pytest.mark.parametrize(
    ("number", "changes", "judged"),
    [
        ("00", {"domains": ["math"], "prompts_per_domain": 5, "max_new_tokens": 8}, 0),
        ("08", {}, 6),
        *((f"{n:02}", changes, 0) for n in range(15) for changes in ({}, {"top_k": 2})),
        *((f"{n:02}", {"domains": ["math"]}, 0) for n in (*range(2, 11), 12)),
        ("03", {"temperature": 0.7}, 0),
        *((number, {"branches": 1, "top_p": 0.9}, 0) for number in notebook.SAMPLED_TREES),
    ],
)
def test_what_notebooks_can_study_is_not_refused(number, changes, judged):
    assert notebook.lacks(f"{number}_x", load_profile("tiny", changes), judged) == ""


@pytest.mark.parametrize(
    ("number", "changes", "said"),
    [
        ("11", {"domains": ["math", "chat"]}, "the domains of the paper's claims"),
        ("02", {"prompts_per_domain": 4}, "5 prompts in a domain and has 4"),
        ("07", {"max_new_tokens": 8}, "16 max_new_tokens and has 8"),
        ("07", {"temperature": 1, "top_k": 1}, "top_k=1"),
        ("05", {"top_p": 0.9}, "set branches=1, or top_k=0 (or 2 or more) and top_p=1"),
    ],
)
def test_what_a_notebook_cannot_study_is_said_before_it_records(number, changes, said):
    reason = notebook.lacks(f"{number}_x", load_profile("tiny", changes))
    assert said in reason and "\n" not in reason


def test_a_notebook_by_position_refuses_a_head_and_others_take_it(tmp_path):
    (tmp_path / "config.json").write_text('{"speculators_model_type": "eagle3"}')
    settings = load_profile("tiny", {"draft": str(tmp_path)})
    reason = notebook.lacks("07_x", settings)
    assert "is a trained head" in reason and "02, 04, 08" in reason and "\n" not in reason
    assert all(notebook.lacks(f"{n:02}_x", settings) == "" for n in range(15) if n != 7)


def test_threads_follow_the_environment(monkeypatch):
    seen = []
    torch = SimpleNamespace(set_num_threads=seen.append)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert notebook.limit_threads() == 3 and seen == [3]
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert 1 <= notebook.limit_threads() <= 8
    assert os.environ["OMP_NUM_THREADS"] == str(seen[-1])

"""The house format of notebooks, checked for every notebooks/[0-9]*.py and its .ipynb twin, and the
helpers in speclab.show.notebook.
"""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pandas as pd
import papermill
import pytest
import torch

from speclab import stats
from speclab.run.parameters import parameters_of
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
    tagged = {tag: cell.source for cell in cells for tag in cell.metadata.get("tags", [])}
    assert tagged["bootstrap"] == BOOTSTRAP
    names = {line.target.id for line in ast.parse(tagged["parameters"]).body}
    code = source.read_text(encoding="utf-8")
    assert code.count('tags=["parameters"]') == 1
    assert re.findall(r'start\(\s*"(\w+)"', code) == [source.stem], "figures' number"
    twin = source.with_suffix(".ipynb")
    book = nbformat.read(twin, as_version=4)
    assert book.metadata["kernelspec"]["name"] == "python3", "Colab and papermill need it"
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in book.cells)
    assert {*papermill.inspect_notebook(twin)} == names, "it reads no `int | None`"
    assert {*parameters_of(twin).__dataclass_fields__} == names - {"profile", "overrides"}


def test_the_bootstrap_is_short():
    assert len(BOOTSTRAP.replace("\n\n", "\n").splitlines()) <= 8


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


def test_bootstrap_goes_to_the_root_of_a_checkout_or_of_the_kit_that_the_kernel_has(tmp_path):
    (tmp_path / "speclab").mkdir()  # a folder of this name is no kit
    for folder, known in ((ROOT, {}), (FOLDER, {}), (tmp_path, {"PYTHONPATH": str(ROOT)})):
        done = bootstrap(folder, *["-S"] * bool(known), **known)
        assert done.stdout.split() == [str(ROOT), str(ROOT / "speclab")], done.stderr


def test_context_writes_numbered_figures_tables_and_numbers(tmp_path, monkeypatch):
    shown = []
    display = lambda what, display_id=None, metadata=None: shown.append(what)  # noqa: E731
    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setenv("SPECLAB_OUT", str(tmp_path))
    ctx = notebook.start("03_domain_acceptance", "tiny", {"prompts_per_domain": 20})
    assert ctx.profile.prompts_per_domain == 20
    assert ctx.figures == tmp_path / "figures/tiny/03"
    alphas = pd.DataFrame({"domain": [*"abcdefghijklm"], "estimate": 0.5, "low": 0.4, "high": 0.6})
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
    assert notebook.start("13_public_runs", "tiny").figures == tmp_path / "figures/public/13"
    files = {path.name for path in ctx.figures.iterdir() if path.suffix != ".json"}
    ends = (".csv", ".png", ".pdf", ".svg", "-column.pdf", "-column.png")
    assert files == {f"by-domain{end}" for end in ends} | {"table-1.csv", "table-1.tex"}
    with pytest.raises(ValueError, match="by-domain.csv already holds another table"):
        ctx.export(alphas.assign(estimate=0.7), "by-domain")


def test_the_page_and_a_table_say_the_level_of_their_intervals(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(notebook, "show_text", said.append)
    monkeypatch.setenv("SPECLAB_OUT", str(tmp_path))
    monkeypatch.setattr(stats, "LEVEL", stats.LEVEL)
    given = {"level": 0.9, "prompts_per_domain": 10}
    ctx = notebook.start("03_domain_acceptance", "tiny", given)
    ctx.export(pd.DataFrame({"low": [1]}), "shares", caption="Shares.")
    assert r"Shares. Intervals: 90 \%." in (ctx.figures / "shares.tex").read_text()
    assert stats.LEVEL == 0.9 and "Intervals: 90 % over prompts" in said[0]
    assert "95" not in "".join(said)
    texts = "".join(path.read_text("utf-8") for path in SOURCES)
    named = re.findall(r'(?:title|caption)="[^"]*9\d ?%', texts)
    assert named == ['title="Coverage of 95 %'], "simulated at this level, in 12"


STUDIED = [  # notebook, changes of the profile, and what is said if it cannot study them
    ("00", {"domains": ["math"], "prompts_per_domain": 5, "max_new_tokens": 8}, ""),
    *((f"{n:02}", {}, "") for n in range(15)),
    *((f"{n:02}", {"domains": ["math"]}, "") for n in (*range(2, 11), 12)),
    ("03", {"temperature": 0.7}, ""),
    ("04", {"draft": "head"}, ""),
    ("11", {"domains": ["math", "chat"]}, "the domains of the paper's claims"),
    ("02", {"prompts_per_domain": 4}, "5 prompts in a domain and has 4"),
    ("07", {"max_new_tokens": 8}, "16 max_new_tokens and has 8"),
    ("07", {"draft": "head"}, "is a trained head"),
]


@pytest.mark.parametrize(("number", "changes", "said"), STUDIED)
def test_what_a_notebook_cannot_study_is_said_before_it_records(
    number, changes, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("head").mkdir()
    Path("head/config.json").write_text('{"speculators_model_type": "eagle3"}')
    reason = notebook.lacks(f"{number}_x", load_profile("tiny", changes))
    assert said in reason and bool(reason) is bool(said) and "\n" not in reason


def test_threads_follow_the_environment(monkeypatch):
    threads = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert notebook.limit_threads() == 3 == torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert str(notebook.limit_threads()) == os.environ["OMP_NUM_THREADS"]
    torch.set_num_threads(threads)

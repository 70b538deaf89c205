"""`make reproduce` on small repositories made here: what runs, what is left alone, what a failure
or an interruption leaves behind.
"""

import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import jupytext
import nbformat
import psutil
import pytest
from same_process import no_kernel

from speclab.__main__ import main
from speclab.ops import reproduce, schedule, sources, turns, workers
from speclab.profiles import ROOT, load_profile, parse_overrides
from speclab.show import notebook

FIGURE = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["SPECLAB_OUT"], "figures", profile)
(folder / "{number}_plot.png").write_bytes(b"not really a picture")
facts = [sys.executable, os.getcwd(), os.environ["OMP_NUM_THREADS"]]
(folder / "{number}_facts.csv").write_text(",".join(facts))
"""
PARAMETERS = 'profile: str = "paper"  # injected\ngamma: int = 4  # tokens'


def write(root: Path, name: str, body: str, title: str = "# A question?") -> Path:
    """A notebook in the house format, as far as the runner cares."""
    cells = [
        nbformat.v4.new_markdown_cell(title),
        nbformat.v4.new_code_cell(PARAMETERS),
        nbformat.v4.new_code_cell(body),
    ]
    cells[1].metadata.tags = ["parameters"]
    book = nbformat.v4.new_notebook(
        cells=cells,
        metadata={
            "kernelspec": {"name": "python3", "language": "python", "display_name": "x"}
        },
    )
    (root / "notebooks").mkdir(exist_ok=True)
    nbformat.write(book, root / "notebooks" / f"{name}.ipynb")
    return root / "notebooks" / f"{name}.ipynb"


def run(root: Path, *arguments: str) -> int:
    """The command on a repository, its output going under the repository too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce, "ROOT", root)
        patch.setattr(reproduce.explore, "runs_there", lambda profile: [])
        return main(["reproduce", "--profile", "tiny", "--out", str(root), *arguments])


def ages(root: Path) -> dict[str, int]:
    """When each executed notebook was written."""
    return {
        p.stem: p.stat().st_mtime_ns
        for p in (root / "build" / "tiny").glob("[0-9]*.ipynb")
    }


@pytest.fixture
def repository(tmp_path):
    write(tmp_path, "01_good", FIGURE.format(number="01"), title="# 01. Does <it> run?")
    write(tmp_path, "02_also_good", FIGURE.format(number="02"))
    (tmp_path / "speclab").mkdir()
    (tmp_path / "speclab" / "part.py").write_text("x = 1\n")
    (tmp_path / "data" / "runs").mkdir(parents=True)
    (tmp_path / "data" / "prompts.jsonl").write_text("{}\n")
    return tmp_path


@pytest.fixture
def light(monkeypatch):
    """The runner without kernels: the cells run in the job's own process."""
    monkeypatch.setattr(reproduce, "kernel", no_kernel)


def test_results_are_in_place_and_made_by_this_interpreter(repository, capsys):
    assert run(repository) == 0
    build, figures = repository / "build" / "tiny", repository / "figures" / "tiny"
    names = {
        "01_good.ipynb",
        "01_good.html",
        "01_good.json",
        "02_also_good.ipynb",
        "02_also_good.html",
        "02_also_good.json",
        "call.json",
        "index.html",
    }
    assert {p.name for p in build.iterdir()} == names, (
        "nothing but results: no temporary file is left"
    )
    assert (figures / "01_facts.csv").read_text().split(",")[:2] == [
        sys.executable,
        str(repository),
    ]
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 3
    out[:2] = sorted(out[:2])
    assert (
        out[0].startswith("01_good")
        and "1 figures" in out[0]
        and out[0].endswith("done")
    )
    assert "2 notebooks (0 up to date, 0 failed)" in out[2] and "index.html" in out[2]
    page = (build / "index.html").read_text()
    assert (
        "01. Does &lt;it&gt; run?" in page
        and "data:image/png;base64," in page
        and "1 tables" in page
        and str(repository) not in page
    )
    for file in build.glob("*.html"):
        assert (
            "<script src=" not in file.read_text() and "cdn" not in file.read_text()
        ), f"{file.name} asks the network for something"


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
    assert (
        second["01_good"] == first["01_good"]
        and second["02_also_good"] > first["02_also_good"]
    )
    (repository / "figures" / "tiny" / "01_plot.png").unlink()
    assert run(repository) == 0
    third = ages(repository)
    assert (
        third["01_good"] > second["01_good"]
        and third["02_also_good"] == second["02_also_good"]
    )
    assert run(repository, "--parameter", "gamma=8") == 0
    assert min(ages(repository).values()) > max(third.values()), (
        "a parameter changes every notebook that has it"
    )


# ---- what an outcome depends on ------------------------------------------------------------------


PACKAGE = {  # a small kit: what notebook 01 imports, what those import, and what it does not
    "speclab/__init__.py": "",
    "speclab/score.py": "from speclab.tree import chain\n",
    "speclab/tree.py": "def chain():\n    return 1\n",
    "speclab/stats.py": "x = 1\n",
    "speclab/show/notebook.py": "def start():\n    from speclab.ops import hosted\n",
    "speclab/ops/__init__.py": "",
    "speclab/ops/hosted.py": "x = 1\n",
    "speclab/studies/__init__.py": "",
    "speclab/studies/good.py": "from speclab import ROOT\nDATA = ROOT / 'data' / 'paper'\nTABLE = "
    "'08_named.csv'\n",
    "speclab/studies/other.py": "x = 1\n",
    "data/paper/table.csv": "1\n",
    "data/routing/card.json": "{}\n",
    "data/prompts/math.jsonl": "{}\n",
    "data/runs/part.parquet": "",
    "weights/target/model.safetensors": "1",
    "weights/draft/model.safetensors": "1",
    "figures/08_named.csv": "1\n",
    "figures/08_other.csv": "1\n",
    "figures/01_named.csv": "1\n",
    "requirements.lock": "a==1\n",
    "README.md": "",
}


@pytest.fixture
def kit(tmp_path):
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    body = (
        "from speclab import notebook, score\nfrom speclab.studies import good as study"
    )
    write(tmp_path, "01_good", body)
    return tmp_path


def digest_of(kit: Path, parameters: dict | None = None, **changes) -> str:
    """The digest of the kit's notebook on a profile whose models lie in the kit."""
    models = {
        "target.path": str(kit / "weights/target"),
        "draft.path": str(kit / "weights/draft"),
    }
    profile = load_profile("tiny", models | changes)
    notebook = kit / "notebooks" / "01_good.ipynb"
    return sources.digest(
        kit, kit / "figures", notebook, profile, parameters or {"gamma": 4}
    )


@pytest.mark.parametrize(
    ("file", "text", "runs_again"),
    [
        ("speclab/score.py", "from speclab.tree import chain\nx = 2\n", True),
        ("speclab/tree.py", "def chain():\n    return 2\n", True),
        (
            "speclab/tree.py",
            'def chain():\n    """Says more."""\n    return 1  # so\n',
            False,
        ),
        ("speclab/stats.py", "x = 2\n", False),
        ("speclab/studies/good.py", "x = 3\n", True),
        ("speclab/studies/other.py", "x = 2\n", False),
        ("speclab/ops/hosted.py", "x = 2\n", False),
        ("speclab/show/notebook.py", "def start():\n    return 2\n", True),
        ("data/paper/table.csv", "2\n", True),
        ("data/routing/card.json", "{2}\n", False),
        ("data/prompts/math.jsonl", "{2}\n", True),
        ("data/runs/part.parquet", "2", False),
        ("weights/target/model.safetensors", "2", True),
        ("weights/draft/model.safetensors", "2", True),
        ("figures/08_named.csv", "2\n", True),
        ("figures/08_other.csv", "2\n", False),
        ("figures/01_named.csv", "2\n", False),
        ("requirements.lock", "a==2\n", True),
        ("README.md", "more", False),
    ],
)
def test_a_notebook_depends_on_what_it_imports_and_reads(kit, file, text, runs_again):
    before = digest_of(kit)
    assert digest_of(kit) == before
    (kit / file).write_text(text)
    assert (digest_of(kit) != before) is runs_again


def test_a_notebook_depends_on_its_prose_its_profile_and_its_parameters(kit):
    found = {
        digest_of(kit),
        digest_of(kit, {"gamma": 5}),
        digest_of(kit, max_new_tokens=7),
    }
    book = nbformat.read(kit / "notebooks" / "01_good.ipynb", as_version=4)
    book.cells[0].source += " Another word."
    nbformat.write(book, kit / "notebooks" / "01_good.ipynb")
    assert len(found | {digest_of(kit)}) == 4


def test_prompts_and_weights_outside_the_kit_count_too(kit, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "prompts"
    elsewhere.mkdir()
    (elsewhere / "math.jsonl").write_text("{}")
    before = digest_of(kit, prompts=str(elsewhere))
    (elsewhere / "math.jsonl").write_text("{} ")
    assert digest_of(kit, prompts=str(elsewhere)) != before


PLACES = {  # what is set, and a file that then counts: {} is a folder outside the kit
    "SPECLAB_MODELS": ({"target.path": "org/big"}, "org/big/model.safetensors"),
    "SPECLAB_DATASETS": ({"prompts": "paper"}, "openai/gsm8k/main/test.parquet"),
    "SPECLAB_AUTHOR_RECORDS": ({}, "records.csv"),
}


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("variable", PLACES)
def test_what_an_environment_variable_points_at_counts(
    kit, tmp_path_factory, monkeypatch, variable, relative
):
    changes, name = PLACES[variable]
    folder = tmp_path_factory.mktemp("elsewhere")
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("1")
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv(variable, folder.name if relative else str(folder))
    before = digest_of(kit, **changes)
    file.write_text("2")
    assert digest_of(kit, **changes) != before
    session = reproduce.Session(kit, kit, kit / "figures" / "tiny", None, {})
    given = reproduce._environment(session, "kernel", 1)[variable]
    assert given == str(folder), "a notebook runs in another folder"


def test_the_commit_of_a_model_in_the_hubs_cache_counts(kit, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    place = tmp_path / "hub" / "models--org--big"
    (place / "refs").mkdir(parents=True)
    found = {digest_of(kit, **{"target.path": "org/big"})}
    for commit in ("a" * 40, "b" * 40):
        (place / "refs" / "main").write_text(commit)
        (place / "snapshots" / commit).mkdir(parents=True)
        (place / "snapshots" / commit / "config.json").write_text("{}")
        found.add(digest_of(kit, **{"target.path": "org/big"}))
    assert len(found) == 3
    assert digest_of(kit, **{"target.path": "org/big"}) in found


@pytest.mark.parametrize(
    ("named", "file"),
    [
        ("{}", "{}/records.csv"),
        ("target-gptq", "weights/target-gptq/model.safetensors"),
        (["paper", "tiny"], "data/traces/tiny/greedy/manifest.json"),
        ("file.csv", "file.csv"),
    ],
)
def test_what_a_parameter_names_counts(kit, tmp_path_factory, named, file):
    elsewhere = str(tmp_path_factory.mktemp("elsewhere"))
    place = named.format(elsewhere) if isinstance(named, str) else named
    path = kit / file.format(elsewhere)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("1")
    before = digest_of(kit, {"place": place})
    assert digest_of(kit, {"place": place}) == before
    path.write_text("2")
    assert digest_of(kit, {"place": place}) != before


def test_what_a_default_names_counts(repository, monkeypatch):
    more = f"{PARAMETERS}\nplace: list = ['mine.csv']"
    monkeypatch.setattr(sys.modules[__name__], "PARAMETERS", more)
    notebook = write(repository, "01_good", "1")
    asked = []
    monkeypatch.setattr(reproduce, "ROOT", repository)
    monkeypatch.setattr(sources, "digest", lambda *given: asked.append(given[-1]))
    session, _ = reproduce.open_session("tiny", [], {}, {"gamma": 7}, repository)
    reproduce.digest_now(session, notebook)
    assert asked == [{"profile": "tiny", "gamma": 7, "place": ["mine.csv"]}]


@pytest.mark.parametrize("text", [".", "/", "", "x" * 300, "a\0b", "~"])
def test_a_parameter_that_names_nothing_is_a_text(kit, text):
    assert digest_of(kit, {"place": text}) != digest_of(kit, {"place": "b"})


def test_the_order_of_changes_to_the_profile_does_not_count(kit):
    given = {"depth": 2, "branches": 3}
    turned = dict(reversed(given.items()))
    first = digest_of(kit, {"profile": "a", "overrides": given}, **given)
    assert digest_of(kit, {"profile": "b", "overrides": turned}, **turned) == first
    assert digest_of(kit, {"profile": "a"}) != first


def test_the_kits_own_notebooks_follow_their_studies():
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        code = "\n".join(
            text for kind, text in sources.cells_of(path) if kind == "code"
        )
        modules = [p.relative_to(ROOT).as_posix() for p in sources.followed(ROOT, code)]
        assert "speclab/show/notebook.py" in modules
        assert not [name for name in modules if name.startswith("speclab/ops/")]


@pytest.mark.usefixtures("light")
def test_a_failed_notebook_is_kept_and_the_others_run(repository, capsys):
    write(repository, "01_good", "x = 1\nassert x == 2, 'x is not two'")
    assert run(repository) == 1
    build = repository / "build" / "tiny"
    assert (
        (build / "01_good.failed.ipynb").exists()
        and not (build / "01_good.ipynb").exists()
        and (build / "02_also_good.ipynb").exists()
    )
    out = capsys.readouterr().out
    assert (
        "failed: cell [3]: AssertionError: x is not two, at `assert x == 2, 'x is not two'`"
        in out
    )
    assert "2 notebooks (0 up to date, 1 failed)" in out
    assert "x is not two" in (build / "index.html").read_text()
    assert run(repository) == 1, "a failure is not up to date"
    assert "1 up to date, 1 failed" in capsys.readouterr().out
    write(repository, "01_good", FIGURE.format(number="01"))
    assert run(repository) == 0
    assert not (build / "01_good.failed.ipynb").exists()


def test_a_dead_kernel_is_a_failed_notebook(repository, capsys):
    write(repository, "01_good", "import os\nos._exit(3)")
    assert run(repository) == 1
    assert "01_good" in capsys.readouterr().out
    assert json.loads((repository / "build" / "tiny" / "01_good.json").read_text())[
        "error"
    ].startswith("Kernel died")


ASKS_FOR_MODELS = """
import json
(folder / "01_captions.json").write_text(json.dumps({"plot": "half"}))
(folder / "01_more.csv").write_text("half")
class ModelsMissing(ValueError): pass
if not list((pathlib.Path.cwd() / "weights" / "target").glob("*.safetensors")):
    raise ModelsMissing("no weights yet; `make pair PROFILE=tiny` gets <them>")
"""


@pytest.fixture
def modelless(repository, monkeypatch):
    """A repository whose target is promised by a source.json; 01 asks for it, 02 does not."""
    more = PARAMETERS + "\noverrides: dict = {}  # of the profile"
    monkeypatch.setattr(sys.modules[__name__], "PARAMETERS", more)
    write(repository, "02_also_good", FIGURE.format(number="02"))
    write(repository, "01_good", FIGURE.format(number="01") + ASKS_FOR_MODELS)
    for name in ("target", "draft"):
        (repository / "weights" / name).mkdir(parents=True)
    promised = hashlib.sha256(b"weights").hexdigest()
    (repository / "weights" / "target" / "source.json").write_text(promised)
    return repository


def run_with_weights(root: Path) -> int:
    places = [f"{name}.path={root / 'weights' / name}" for name in ("target", "draft")]
    return run(root, "--set", *places)


@pytest.mark.usefixtures("light")
def test_a_notebook_without_its_models_is_no_failure_and_runs_when_they_are_there(
    modelless, capsys
):
    figures = modelless / "figures" / "tiny"
    figures.mkdir(parents=True)
    committed = {"01_plot.png": b"as committed", "01_captions.json": b'{"plot": "so"}'}
    for name, content in committed.items():
        (figures / name).write_bytes(content)
    for again in (False, True):
        assert run_with_weights(modelless) == 0
        *ended, said = capsys.readouterr().out.splitlines()
        out = [*sorted(ended), said]
        words = "no weights yet; `make pair PROFILE=tiny` gets <them>"
        assert out[0].startswith("01_good")
        assert out[0].endswith(f"1 figures  needs the models: {words}")
        counts = f"({int(again)} up to date, 0 failed, 1 without the models they need)"
        assert f"2 notebooks {counts}" in out[2]
        found = {p.name: p.read_bytes() for p in figures.glob("01_*")}
        assert found == committed
        assert not list((modelless / "build/tiny").glob("01_*.ipynb"))
    page = (modelless / "build" / "tiny" / "index.html").read_text()
    assert "1 without the models they need" in page
    assert "<code>make pair PROFILE=tiny</code> gets &lt;them&gt;" in page
    assert "those of an earlier run" in page and "<figcaption>so</figcaption>" in page

    first = ages(modelless)
    weights = modelless / "weights" / "target" / "model.safetensors"
    weights.write_bytes(b"weights")
    assert run_with_weights(modelless) == 0
    *ended, said = capsys.readouterr().out.splitlines()
    out = [*sorted(ended), said]
    assert out[0].endswith("done") and "(1 up to date, 0 failed)" in out[2]
    assert ages(modelless)["02_also_good"] == first["02_also_good"]
    assert (figures / "01_plot.png").read_bytes() == b"not really a picture"
    weights.write_bytes(b"others")
    assert run_with_weights(modelless) == 0
    assert "(0 up to date" in capsys.readouterr().out, "not the promised weights"


@pytest.mark.usefixtures("light")
def test_a_notebook_without_its_models_is_not_run_in_vain(modelless, monkeypatch):
    assert run_with_weights(modelless) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce, "execute", lambda *_: pytest.fail("it ran"))
        assert run_with_weights(modelless) == 0


def test_the_name_of_the_error_is_that_of_the_kit():
    from speclab.models import pairs

    assert pairs.ModelsMissing.__name__ == reproduce.MODELS_MISSING


def test_traces_count_by_their_manifests(kit, monkeypatch):
    places = [kit / "shipped" / "greedy", kit / "given"]
    for place in places:
        place.mkdir(parents=True)
        (place / "manifest.json").write_text("{}")
    for setting, place in zip(("shipped", None), places, strict=True):
        if setting is None:
            monkeypatch.setenv("SPECLAB_TRACES", str(kit / "given"))
        before = digest_of(kit, traces=setting)
        (place / "README.md").write_text("a word")
        assert digest_of(kit, traces=setting) == before
        (place / "manifest.json").write_text("{ }")
        assert digest_of(kit, traces=setting) != before


@pytest.mark.usefixtures("light")
def test_a_figure_that_is_no_longer_written_goes(repository):
    assert run(repository, "--notebook", "1") == 0
    write(repository, "01_good", "pass")
    (repository / "figures" / "tiny" / "01_mine.txt").write_text(
        "not written by a notebook"
    )
    assert run(repository, "--notebook", "01_good") == 0
    assert sorted(p.name for p in (repository / "figures" / "tiny").iterdir()) == [
        "01_mine.txt"
    ]


@pytest.mark.parametrize(
    "damaged",
    [
        "figures/tiny/01_facts.csv",
        "figures/tiny/01_plot.png",
        "build/tiny/01_good.html",
        "build/tiny/01_good.ipynb",
    ],
)
@pytest.mark.parametrize("content", [b"", b"another"])
def test_what_was_written_and_is_no_longer_so_is_not_up_to_date(
    tmp_path, monkeypatch, damaged, content
):
    def written(session, notebook, progress):
        for end in ("ipynb", "html"):
            (session.build / f"01_good.{end}").write_text("a page")
        (session.figures / "01_facts.csv").write_text("a table")
        (session.figures / "01_plot.png").write_text("a picture")
        return reproduce.DONE, ""

    monkeypatch.setattr(reproduce, "execute", written)
    build, figures = tmp_path / "build" / "tiny", tmp_path / "figures" / "tiny"
    session = reproduce.Session(tmp_path, build, figures, None, {})
    for folder in (build, figures):
        folder.mkdir(parents=True)
    stamp = reproduce.run_one(session, tmp_path / "01_good.ipynb", "digest", None)
    assert reproduce.previous(session, "01_good") == stamp
    assert reproduce.is_current(session, stamp, "digest")
    (tmp_path / damaged).write_bytes(content)
    is_own = content and damaged.startswith("build")  # a reader may write in a page
    assert reproduce.is_current(session, stamp, "digest") == bool(is_own)


# ---- a notebook and its source -------------------------------------------------------------------


@pytest.fixture
def source(repository, monkeypatch):
    """The .py that notebook 01 is made from."""
    monkeypatch.setattr(reproduce, "ROOT", repository)
    twin = repository / "notebooks" / "01_good.ipynb"
    made = twin.with_suffix(".py")
    jupytext.write(nbformat.read(twin, as_version=4), made, fmt="py:percent")
    return made


def opened(source: Path, number: str) -> list[Path]:
    """The notebooks of a call for one of them."""
    return reproduce.open_session("tiny", [number], {}, {}, source.parents[1])[1]


def test_a_source_that_was_edited_stops_the_call(source, capsys):
    root, before = source.parents[1], source.read_text()
    assert opened(source, "1"), "both agree"
    source.write_text(before + "\n# %%\nmore = 1\n")
    os.utime(source.with_suffix(".ipynb"), (0, 0))
    assert run(root, "--notebook", "01") == 2
    found = capsys.readouterr()
    assert "01_good.py was edited, and 01_good.ipynb, the twin that runs," in found.err
    assert "`make notebooks`" in found.err and not (root / "build").exists()
    assert opened(source, "2"), "another notebook is asked for"
    source.write_text(before)
    assert opened(source, "1") and not found.out


def test_a_notebook_that_was_edited_itself_is_said_and_runs(source, capsys):
    os.utime(source, (0, 0))
    write(source.parents[1], "01_good", "mine = 1")
    assert opened(source, "1")
    assert "01_good.ipynb was edited and is no longer what" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b'{"cells": [', b"[1]", b"\xff\xfe"])
def test_a_damaged_notebook_is_named(source, content):
    source.with_suffix(".ipynb").write_bytes(content)
    with pytest.raises(ValueError, match=r"01_good.ipynb is no notebook .*`make note"):
        opened(source, "1")


@pytest.mark.usefixtures("light")
def test_a_broken_stamp_means_run_again(repository):
    assert run(repository, "--notebook", "01") == 0
    first = ages(repository)
    (repository / "build" / "tiny" / "01_good.json").write_text('{"name": ')
    assert run(repository, "--notebook", "01") == 0
    assert ages(repository)["01_good"] > first["01_good"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--parameter", "gama=3"], "parameter 'gama': did you mean 'gamma'?"),
        (
            ["--parameter", "gamma=three"],
            "parameter gamma='three': needed is int, as 4",
        ),
        (["--notebook", "07"], "notebook '07': there are 01_good, 02_also_good"),
        (["--notebook", ""], "notebook '': there are 01_good, 02_also_good"),
        (["--notebook", "²"], "notebook '²': there are 01_good, 02_also_good"),
        (["--parameter", "profile=paper"], "'profile' says which pair is studied"),
        (["--parameter", "overrides={depth: 2}"], "give it as --profile and --set"),
        (["--notebook", "02_also_god"], "did you mean '02_also_good'?"),
        (["--profile", "tinny"], "profile='tinny': did you mean 'tiny'?"),
        (["--set", "max_new_token=3"], "did you mean 'max_new_tokens'?"),
    ],
)
def test_bad_input_is_an_error_before_anything_runs(
    repository, capsys, arguments, message
):
    assert run(repository, *arguments) == 2
    assert message in capsys.readouterr().err
    assert not (repository / "build").exists()


@pytest.mark.parametrize("variable", sources.FOLDERS)
@pytest.mark.parametrize("place", ["nowhere", "file", "loop"])
def test_a_variable_that_names_no_folder_is_refused_at_once(
    repository, capsys, monkeypatch, variable, place
):
    (repository / "file").write_text("")
    (repository / "loop").symlink_to("loop")
    monkeypatch.setenv(variable, str(repository / place))
    assert run(repository) == 2
    assert f"{variable}={repository / place}: no such fold" in capsys.readouterr().err
    assert not (repository / "build").exists()


def test_names_that_are_numbers_come_as_numbers(repository, capsys, monkeypatch):
    more = PARAMETERS + "\nkinds: dict = {0.3: 'a'}"
    monkeypatch.setattr(sys.modules[__name__], "PARAMETERS", more)
    monkeypatch.setattr(reproduce, "ROOT", repository)
    notebook = write(repository, "01_good", "1")
    given = parse_overrides(["kinds={0.5: b, 1: c}"])
    session, _ = reproduce.open_session("tiny", ["01"], {}, given, repository)
    assert session.given(notebook)["kinds"] == {0.5: "b", 1.0: "c"}
    assert run(repository, "--parameter", "kinds={warm: b}") == 2
    assert "numbers are needed before the colons" in capsys.readouterr().err


@pytest.mark.parametrize(
    "asked",
    [
        ["--parameter", "judged_prompts_per_domain=3"],
        ["--set", "prompts_per_domain=3"],
    ],
)
def test_too_few_prompts_are_refused_at_once(repository, capsys, monkeypatch, asked):
    own = "judged_prompts_per_domain: int = 0\noverrides: dict = {}"
    monkeypatch.setattr(sys.modules[__name__], "PARAMETERS", f"{PARAMETERS}\n{own}")
    write(repository, "08_drafts", "1")
    assert run(repository, "--notebook", "08", *asked) == 2
    assert "08_drafts has intervals, and 3 prompts a" in capsys.readouterr().err
    assert not (repository / "build").exists()


def test_no_notebooks_is_an_error(tmp_path, capsys):
    assert run(tmp_path) == 2
    assert "no notebooks" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_an_error(repository, capsys):
    (repository / "build").write_text("a file where a folder is needed")
    assert run(repository) == 2
    assert "build" in capsys.readouterr().err


# ---- two at a time -------------------------------------------------------------------------------

SPAN = """
import os, pathlib, time
began = time.time()
time.sleep({seconds})
span = [began, time.time(), os.getpid(), int(os.environ["OMP_NUM_THREADS"])]
pathlib.Path("{name}.span").write_text(" ".join(map(str, span)))
"""


def spans(root: Path) -> dict[str, tuple[float, float]]:
    """When each notebook of SPAN began and ended."""
    found = {}
    for path in root.glob("*.span"):
        began, ended = path.read_text().split()[:2]
        found[path.stem] = float(began), float(ended)
    return found


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def write_span(root: Path, name: str, seconds: float, more: str = "") -> None:
    write(root, name, SPAN.format(name=name, seconds=seconds) + more)


@pytest.fixture
def roomy(monkeypatch):
    """A machine of four cores, whatever this one is."""
    monkeypatch.setattr(schedule, "cores_of_this_process", lambda: 4)


def test_two_run_at_a_time_and_nothing_beside_what_is_measured(tmp_path, roomy):
    kit = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
    gate = f"{kit}from speclab import notebook\nnotebook.alone()\n"
    for name in ("02_a", "03_b"):
        write_span(tmp_path, name, 3)
    for name in ("08_timed", "10_timed"):
        write(tmp_path, name, gate + SPAN.format(name=name, seconds=0.5))
    write_span(tmp_path, "11_reader", 0.1, "needs = '08_table'")
    assert run(tmp_path) == 0
    found = spans(tmp_path)
    assert len(found) == 5
    assert overlap(found["02_a"], found["03_b"])
    for timed in ("08_timed", "10_timed"):
        assert not any(overlap(found[timed], found[n]) for n in found if n != timed)
        assert found[timed][0] > max(found["02_a"][1], found["03_b"][1])
    assert found["11_reader"][0] > found["08_timed"][1]


def test_who_asks_to_be_alone_waits_for_those_that_run(tmp_path, monkeypatch):
    """Two that ask let each other through, one after the other; a third begins after both."""
    told, ready = [], threading.Barrier(2)

    def timed(name):
        with turns.turn(tmp_path, name) as asking:
            ready.wait()
            asks = Path(asking[notebook.ASKS])
            asks.touch()
            while asks.exists():
                time.sleep(0.01)
            told.append(f"{name} alone")
            time.sleep(0.3)
            told.append(f"{name} over")

    def plain():
        with turns.turn(tmp_path, "c"):
            told.append("c")

    both = [threading.Thread(target=timed, args=(name,)) for name in "ab"]
    for one in both:
        one.start()
    while not told:
        time.sleep(0.01)
    plain()
    for one in both:
        one.join()
    first, other = ("a", "b") if told[0] == "a alone" else ("b", "a")
    told.remove("c")  # behind the first, before or behind the other
    alone = [f"{first} alone", f"{first} over", f"{other} alone", f"{other} over"]
    assert told == alone and not list(tmp_path.glob(".*.asks"))


def test_alone_outside_of_make_reproduce_waits_for_nobody(monkeypatch):
    monkeypatch.delenv(notebook.ASKS, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook.alone()
    assert os.environ["OMP_NUM_THREADS"] == "1"


@pytest.mark.usefixtures("light")
def test_one_worker_runs_one_after_another(tmp_path, roomy):
    for name in ("08_timed", "09_timed", "11_b"):
        write_span(tmp_path, name, 0.1)
    assert run(tmp_path, "--workers", "1") == 0
    call = tmp_path / "build" / "tiny" / "call.json"
    facts = json.loads(call.read_text())
    assert facts["notebooks"] == ["08_timed", "09_timed", "11_b"]
    assert 0.3 < facts["seconds"] < 600
    call.unlink()
    assert run(tmp_path) == 0 and not call.exists()  # up to date: nothing ran
    found = spans(tmp_path)
    assert sorted(found, key=found.get) == ["08_timed", "09_timed", "11_b"]


@pytest.mark.usefixtures("light")
def test_too_little_memory_for_two_is_said_and_one_runs(
    tmp_path, roomy, monkeypatch, capsys
):
    memory = SimpleNamespace(available=schedule.NOTEBOOK_BYTES // 2)
    monkeypatch.setattr(schedule.psutil, "virtual_memory", lambda: memory)
    for name in ("02_a", "03_b", "04_c"):
        write_span(tmp_path, name, 0.5)
    assert run(tmp_path) == 0
    found = sorted(spans(tmp_path).values())
    assert not any(map(overlap, found, found[1:]))
    out = capsys.readouterr().out
    assert out.count("one notebook at a time: 2 at once may take") == 1


def test_one_that_fails_and_one_that_dies_leave_the_other_alone(
    tmp_path, roomy, capsys
):
    write_span(tmp_path, "02_a", 3)
    write(tmp_path, "03_bad", "assert False, 'so it is'")
    kill = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time\n"
    write(tmp_path, "04_killed", f"{kill}time.sleep(60)")
    assert run(tmp_path) == 1
    out = capsys.readouterr().out
    assert "so it is" in out and "was ended by signal 9 (out of memory?)" in out
    assert "3 notebooks (0 up to date, 2 failed)" in out and "02_a" in spans(tmp_path)
    build = tmp_path / "build" / "tiny"
    stamp = json.loads((build / "04_killed.json").read_text())
    assert stamp["status"] == reproduce.FAILED
    assert "signal 9" in (build / "index.html").read_text()
    assert not list(build.glob(".*"))


def test_an_error_of_the_runner_itself_stops_all(tmp_path, roomy, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reproduce, "execute", full)
    write_span(tmp_path, "02_a", 0)
    assert run(tmp_path) == 2
    assert "No space left on device" in capsys.readouterr().err


def started(root: Path, *arguments: str) -> subprocess.Popen:
    """`reproduce` on a repository, in a process of its own, as from a terminal."""
    script = (  # a job started in the background of a shell inherits an ignored SIGINT
        "import signal, sys, pathlib as p; signal.signal(signal.SIGINT, "
        "signal.default_int_handler); "
        "from speclab.__main__ import main; from speclab.ops import reproduce, schedule; "
        "schedule.cores_of_this_process = lambda: 4; "
        "reproduce.ROOT = p.Path(sys.argv[1]); "
        "sys.exit(main(['reproduce', '--out', *sys.argv[1:]]))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, str(root), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def wait_for(what, seconds: float = 100) -> None:
    """Until `what()` is true."""
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert what()


def is_running(process_id: int) -> bool:
    return (
        psutil.pid_exists(process_id)
        and psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    )


SLEEPS = """
import os, pathlib, time
pathlib.Path("{name}.pid").write_text(str(os.getpid()))
time.sleep(120)
"""


def sleeping(root: Path, names: tuple[str, ...]) -> list[int]:
    """Process ids of the kernels of notebooks of SLEEPS, once all of them sleep."""
    files = [root / f"{name}.pid" for name in names]
    wait_for(lambda: all(file.is_file() and file.read_text() for file in files))
    return [int(file.read_text()) for file in files]


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    "from_terminal", [True, pytest.param(False, marks=pytest.mark.slow)]
)
def test_interruption_stops_both_says_what_is_done_and_goes_on_later(
    repository, from_terminal
):
    names = ("02_also_good", "03_sleeps")
    for name in names:
        write(repository, name, SLEEPS.format(name=name))
    process = started(repository)
    kernels = sleeping(repository, names)
    if from_terminal:  # Ctrl-C reaches every process of the group
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 130
    said = "Interrupted. Finished: 01_good. Left: 02_also_good, 03_sleeps. The same"
    assert said in out
    assert not any(map(is_running, kernels))
    build = repository / "build" / "tiny"
    assert not list(build.glob(".*"))
    assert [path.stem for path in build.glob("*.json")] == ["01_good"]
    first = ages(repository)
    for name in names:
        write(repository, name, "pass")
    assert run(repository) == 0
    assert ages(repository)["01_good"] == first["01_good"]


def test_kernels_end_when_the_runner_is_killed(tmp_path):
    names = ("02_a", "03_b")
    for name in names:
        write(tmp_path, name, SLEEPS.format(name=name))
    process = started(tmp_path)
    kernels = sleeping(tmp_path, names)
    process.kill()
    wait_for(lambda: not any(map(is_running, kernels)))
    process.communicate(timeout=100)


@pytest.mark.parametrize(
    ("waiting", "running", "at_once", "expected"),
    [
        ("02 08", "", 2, "02"),
        ("02 08", "01", 2, "02"),
        ("02 08", "01 03", 2, None),
        ("08 10", "01", 2, "08"),
        ("03", "08", 2, "03"),
        ("03 08", "", 2, "08"),
        ("03 09", "", 2, "03"),
        ("10", "08", 2, "10"),
        ("08 10", "", 2, "08"),
        ("08 11", "", 2, "08"),
        ("09 11", "", 2, "11"),
        ("11", "08", 2, None),
        ("08 11", "", 1, "08"),
        ("", "01", 2, None),
    ],
)
def test_which_runs_next(waiting, running, at_once, expected):
    paths = {n: Path(f"{n}_x.ipynb") for n in (waiting + " " + running).split()}
    after = {path: set() for path in paths.values()}
    if "11" in paths:
        after[paths["11"]] = {paths["08"]} if "08" in paths else set()
    given = ([paths[n] for n in text.split()] for text in (waiting, running))
    found = schedule.next_of(*given, after, at_once)
    assert found == (paths[expected] if expected else None)


def test_the_kits_notebooks_that_measure_time_are_named():
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        code = sources.code_of(sources.cells_of(path))
        own = ROOT / "speclab" / "studies"
        study = [p for p in sources.followed(ROOT, code) if p.is_relative_to(own)]
        mine = [p for p in study if path.stem.split("_", 1)[1] in p.as_posix()]
        texts = [code, *(p.read_text() for p in mine)]
        measures = any(
            word in text
            for text in texts
            for word in ("timing.pass_times", "timing.decoded_speed", "speed_in_words")
        )
        assert measures == schedule.is_timed(path), path.stem
        assert measures == ("notebook.alone()" in code), path.stem


def test_the_audit_waits_for_the_tables_that_it_reads():
    paths = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    after = schedule.waits_for(ROOT, paths)
    found = {p.stem: {other.stem for other in after[p]} for p in paths if after[p]}
    assert found == {"11_paper_audit": {"08_better_drafts", "10_wall_clock"}}


@pytest.mark.parametrize("asked", ["0", "-1"])
def test_fewer_workers_than_one_are_refused(repository, capsys, asked):
    assert run(repository, "--workers", asked) == 2
    assert "allowed are whole numbers from 1" in capsys.readouterr().err


def test_workers_are_at_most_the_cores(monkeypatch):
    monkeypatch.setattr(schedule, "cores_of_this_process", lambda: 4)
    assert [schedule.places(asked) for asked in (None, 1, 3, 9)] == [2, 1, 3, 4]
    assert schedule.threads(3, 2) == 2 and schedule.threads(1, 2) == 1


def test_memory_counts_what_runs_already(monkeypatch):
    said = []
    needs = {"cpu": 10, "cuda:0": 5}
    memory = SimpleNamespace(available=12)
    monkeypatch.setattr(schedule, "pair_bytes", lambda *_: needs)
    monkeypatch.setattr(schedule.psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(schedule, "taken_bytes", lambda ids: [8] * len(ids))
    monkeypatch.setattr(schedule, "gpu_bytes", lambda: [10])
    room = schedule.Room(None, said.append)
    assert room.for_one_more([1]) and not said
    monkeypatch.setattr(schedule, "gpu_bytes", lambda: [9])
    assert not room.for_one_more([1])
    assert "of cuda:0 memory" in said[0]
    memory.available = 11
    monkeypatch.setattr(schedule, "gpu_bytes", lambda: [10])
    assert not room.for_one_more([1]) and len(said) == 1


class Terminal(list):
    """Standard error as a terminal."""

    def write(self, text):
        self.append(text)

    def flush(self):
        pass

    def isatty(self):
        return True


def test_each_running_notebook_has_one_line_on_a_terminal_only(monkeypatch, capsys):
    lines = workers.Lines()
    lines.show("01_a", "cell 1 of 9")
    assert capsys.readouterr().err == ""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    lines.show("02_b", "x" * 500)
    width = shutil.get_terminal_size().columns
    first, second = shown[-1].split("\n")
    assert first == "01_a: cell 1 of 9" and len(second) < width
    del shown[:]
    lines.print("03_c done")
    assert shown[0] == "\r\x1b[K\x1b[1A\x1b[K" and shown[1].startswith("01_a: cell")
    lines.drop("01_a")
    lines.drop("02_b")
    assert lines.drawn == 0
    assert capsys.readouterr().out == "03_c done\n"


def test_progress_bars_are_told_in_their_last_state():
    told = []
    relay = workers.Relay(told.append)
    relay.write("a warning\n")
    relay.write("\r 10%|#\r 20%|##\n")
    relay.write("\r      \r")
    assert told == ["20%|##"]


def test_pictures_in_an_executed_notebook_are_the_sessions_own(tmp_path):
    (tmp_path / "build" / "mine").mkdir(parents=True)
    executed = tmp_path / "build" / "mine" / "03_a.ipynb"
    executed.write_text("![a](../figures/smollm/03_a.png) and (../figures/smollm/)")
    session = reproduce.Session(
        tmp_path, executed.parent, tmp_path / "figures" / "mine", None, {}
    )
    reproduce.point_to_figures(session, executed)
    assert (
        executed.read_text()
        == "![a](../../figures/mine/03_a.png) and (../figures/smollm/)"
    )


# ---- what a profile sets, and models that cannot be had ------------------------------------------


def yaml_of(root: Path, notebooks: str) -> str:
    """A profile file that sets parameters of single notebooks."""
    path = root / "own.yaml"
    path.write_text(
        "target: {path: data/pairs/tiny/target}\n"
        f"draft: {{path: data/pairs/tiny/draft}}\nnotebooks: {notebooks}\n"
    )
    return str(path)


def test_a_profile_sets_parameters_of_one_notebook_and_the_call_wins(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(reproduce, "ROOT", tmp_path)
    first, second = (write(tmp_path, name, "1") for name in ("01_a", "02_b"))
    profile = yaml_of(tmp_path, "{01_a: {gamma: 2}}")
    session, _ = reproduce.open_session(profile, [], {}, {}, tmp_path)
    assert session.given(first)["gamma"] == 2 and "gamma" not in session.given(second)
    session, _ = reproduce.open_session(profile, [], {}, {"gamma": 7}, tmp_path)
    assert session.given(first)["gamma"] == 7


@pytest.mark.parametrize(
    ("notebooks", "said"),
    [
        ("{01_a: {gama: 2}}", "did you mean 'gamma'"),
        ("{01_a: {gamma: two}}", "needed is int"),
        ("{03_c: {gamma: 2}}", "notebook '03_c'"),
        ("{01_a: {profile: paper}}", "'profile' says which pair is studied"),
    ],
)
def test_a_parameter_that_a_profile_gets_wrong_is_named(
    tmp_path, monkeypatch, notebooks, said
):
    monkeypatch.setattr(reproduce, "ROOT", tmp_path)
    write(tmp_path, "01_a", "1")
    with pytest.raises(ValueError, match=said):
        reproduce.open_session(yaml_of(tmp_path, notebooks), [], {}, {}, tmp_path)


@pytest.mark.usefixtures("light")
def test_models_that_cannot_be_had_are_said_and_the_notebooks_run(
    tmp_path, monkeypatch, capsys
):
    def refused(profile):
        raise reproduce.files.RunError("pip cannot fetch it; put it there by hand")

    monkeypatch.setattr(reproduce.pair, "make", refused)
    write(tmp_path, "01_a", FIGURE.replace("{number}", "01"))
    assert run(tmp_path) == 0
    said = capsys.readouterr().out
    assert "pip cannot fetch it" in said and "done" in said


def test_a_folder_with_a_space_is_one_folder(tmp_path):
    makefile = str(ROOT / "Makefile")
    words = [f"VENV={tmp_path}", "OUT=a b", "SET=depth=2 domains=[math,code]"]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    call = ["make", "-n", "-f", makefile, "reproduce", *words]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if "reproduce" in line)
    found = shlex.split(line)
    assert found[found.index("--out") + 1] == "a b"
    assert found[-4:] == ["--set", "depth=2", "--set", "domains=[math,code]"]


def test_a_module_that_is_no_python_is_named(tmp_path):
    (tmp_path / "speclab").mkdir()
    (tmp_path / "speclab" / "cost.py").write_text("x = 1\ny = = 2\n")
    with pytest.raises(ValueError, match=r"cost\.py, line 2: invalid syntax; mend it"):
        sources.followed(tmp_path, "from speclab import cost")

"""A study of one's own from start to end. The example of the repository gives figures and a report
about its categories, the guide's lines record in one folder and study in another, and an installed
package does everything that needs no clone.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from bs4 import BeautifulSoup
from conftest import contents
from test_end_to_end import imported, light  # noqa: F401

from speclab.__main__ import main
from speclab.plain import read_yaml
from speclab.study.profiles import ROOT, load_profile
from speclab.study.runs import sizes_of

EXAMPLE = ROOT / "data/examples/support_tickets/study.yaml"
TINY = {f"{name}": f"data/pairs/tiny/{name}" for name in ("target", "draft")}
NUMBERS = ("02", "03", "05", "06")
SMALL = {"max_new_tokens": 16}
# words of the project's own prompts; a target may be chat-tuned and have a chat template
OF_PROJECT = re.compile(
    r"\b(code|maths?|reasoning|chat(?! template|-tuned)|unwrapped|second (prompt )?set)\b",
    re.IGNORECASE,
)
GUIDE = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")


def visible(page):
    """The text that a reader of a page sees, but what is set as code and the page's own labels."""
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    for hidden in soup(["script", "style", "code", "pre", "title", "label"]):
        hidden.decompose()
    for picture in soup("img"):
        picture.replace_with(picture.get("alt", ""))
    return " ".join(soup.get_text(" ").split())


def strangers(page):
    """The places of a page that speak of the project's own prompts."""
    text = visible(page)
    return [text[max(0, m.start() - 60) : m.end() + 40] for m in OF_PROJECT.finditer(text)]


def study(out, changes, numbers=NUMBERS):
    """Run notebooks of the example into a folder."""
    words = ["reproduce", "--profile", str(EXAMPLE), "--out", str(out), "--workers", "1"]
    words += [f"--set={name}={value}" for name, value in changes.items()]
    words += ["--parameter=largest_gamma=4"]
    words += [word for number in numbers for word in ("--notebook", number)]
    assert main([*words]) == 0
    return out / "build/support_tickets", out / "figures/support_tickets"


def check_study(build, figures):
    """That notebooks and report are there, and speak of the study's own categories."""
    pages = sorted(build.glob("[0-9]*.html"))
    assert [page.name[:2] for page in pages] == [*NUMBERS]
    for number in NUMBERS:
        assert [*(figures / number).glob("*.png")] and [*(figures / number).glob("*.csv")]
    domains = [*sizes_of(load_profile(EXAMPLE))]
    assert all(domain in visible(pages[1]) for domain in domains)
    said = {page.name: strangers(page) for page in (*pages, build / "index.html")}
    assert {name: places for name, places in said.items() if places} == {}


def test_the_words_of_the_project_are_found(tmp_path):
    """The negative control: without it what follows could not fail."""
    page = tmp_path / "page.html"
    page.write_text("<p>in <code>chat</code>, the chat template</p><img alt='of math'>")
    assert strangers(page) == ["in , the chat template of math"]


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("light")
def test_the_example_speaks_of_its_own_categories(tmp_path, monkeypatch):
    monkeypatch.setattr("speclab.study.runs.RUNS", tmp_path / "runs")
    check_study(*study(tmp_path, TINY | SMALL))


# ---- odd pairs and odd prompts -------------------------------------------------------------------


# ---- record here, study there --------------------------------------------------------------------


def lines_of(heading):
    """The first block of commands under a heading of the guide."""
    section = GUIDE.partition(f"## {heading}\n")[2]
    return re.search(r"```\n(.*?)```", section, re.DOTALL)[1].splitlines()


def run_line(line, folder):
    """A line of the guide in a folder, by this interpreter."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    (bin_folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (bin_folder / "python").chmod(0o755)
    environment = os.environ | {
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SPECLAB_RUNS": str(folder / "recorded"),
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        ["bash", "-ec", line], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_is_recorded_here_is_studied_where_no_model_is(tmp_path):
    """The guide's lines unchanged; `scp` is a copy, without the models."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    for name in ("target", "draft"):
        shutil.copytree(ROOT / "data/pairs/tiny" / name, here / "models" / name)
    facts = read_yaml(EXAMPLE, "") | {"max_new_tokens": 8}
    facts |= {name: {"path": f"models/{name}"} for name in ("target", "draft")}
    (here / "study.yaml").write_text(json.dumps(facts))
    shutil.copy(EXAMPLE.with_name("prompts.jsonl"), here)
    record, pack, copy, study_there = lines_of("Record here, study there")
    for line in (record, pack):
        run_line(line, here)
    assert re.match("scp -r (.*) there:", copy)[1].split() == [
        "study.yaml",
        "prompts.jsonl",
        "traces",
    ]
    for name in ("study.yaml", "prompts.jsonl"):
        shutil.copy(here / name, there)
    shutil.copytree(here / "traces", there / "traces")
    run_line(study_there, there)
    assert [*(there / "figures/support_tickets/03").glob("*.png")]
    assert not [*(there / "recorded").glob("*")], "nothing is recorded there"


# ---- an installed package ------------------------------------------------------------------------

CALLS = """
import sys
from speclab.__main__ import main
assert not sys.modules["speclab"].__file__.startswith(sys.argv[1])
for words in sys.argv[2:]:
    print(main(words.split()), flush=True)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder in which speclab is installed, not as a link to this clone."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("package")
    source, wheels, there = (folder / name for name in ("source", "wheels", "there"))
    large = shutil.ignore_patterns("__pycache__", "drafts", "pairs", "runs", "traces")
    for name in ("speclab", "notebooks/profiles", "data"):
        shutil.copytree(ROOT / name, source / name, ignore=None if name == "speclab" else large)
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={wheels}"]
    subprocess.run([*pip, *build, str(source)], check=True)
    [wheel] = wheels.glob("*.whl")
    install = ["install", "--no-deps", "--no-index", f"--target={there}"]
    subprocess.run([*pip, *install, str(wheel)], check=True)
    return there


def environment_of(package):
    """The variables of a process in which this package is imported."""
    known = {name: value for name, value in os.environ.items() if "SPECLAB" not in name}
    return known | {"PYTHONPATH": str(package), "HF_HUB_OFFLINE": "1"}


def test_a_package_does_what_needs_no_clone_and_says_what_does(package, tmp_path):
    traces = ROOT / "data/traces/tiny/sampled-seed-1"
    calls = {
        "decode --help": 0,
        "doctor --profile small --set target=nobody/none": 1,
        f"export {traces} --for transformers": 0,
        "plan --profile small": 2,
        "reproduce --profile small": 2,
    }
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(ROOT), *calls],
        cwd=tmp_path,
        env=environment_of(package),
        capture_output=True,
        text=True,
    )
    status = [int(line) for line in done.stdout.splitlines() if line.isdigit()]
    assert status == [*calls.values()], done.stdout + done.stderr
    assert "ok  prompts: 200 in project" in done.stdout
    assert done.stderr.count("run this in a clone of the kit") == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["03_domain_acceptance", "12_how_sure"])
def test_a_notebook_beside_a_study_runs_with_the_package(name, package, tmp_path):
    """Its runs and figures are written beside it, not where the package is."""
    for part in ("target", "draft"):
        shutil.copytree(ROOT / "data/pairs/tiny" / part, tmp_path / part)
    shutil.copy(EXAMPLE.with_name("prompts.jsonl"), tmp_path)
    shutil.copy(ROOT / "notebooks" / f"{name}.ipynb", tmp_path)
    facts = {"target": "target", "draft": "draft", "prompts": "prompts.jsonl", "max_new_tokens": 8}
    (tmp_path / "mine.yaml").write_text(json.dumps({"name": "mine"} | facts))
    before = contents(package)
    words = [f"{name}.ipynb", "out.ipynb", "-p", "profile", "mine.yaml", "-k", "python3"]
    done = subprocess.run(
        [sys.executable, "-m", "papermill", *words],
        cwd=tmp_path,
        env=environment_of(package) | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [*(tmp_path / f"figures/mine/{name[:2]}").glob("*.png")]
    assert [*(tmp_path / "speclab-runs").iterdir()] and contents(package) == before


# ---- citing --------------------------------------------------------------------------------------


def test_the_citation_has_the_version_of_the_package():
    cited = read_yaml(ROOT / "CITATION.cff", "")
    version = re.search('^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert cited["version"] == version and f"version = {{{version}}}" in GUIDE
    year = str(cited["date-released"])[:4]
    assert f"year    = {{{year}}}" in GUIDE

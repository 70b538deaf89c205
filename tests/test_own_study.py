"""A study of one's own: the guide's lines record in one folder and study in another, and an
installed package does everything that needs no clone. (What its pages say: test_small_studies.)
"""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from speclab.study.profiles import ROOT
from speclab.study.reading import read_yaml

EXAMPLE = ROOT / "data/examples/support_tickets/study.yaml"
GUIDE = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")


# ---- record here, study there --------------------------------------------------------------------


def lines_of(heading):
    """The first block of commands under a heading of the guide."""
    section = GUIDE.partition(f"## {heading}\n")[2]
    return re.search(r"```\n(.*?)```", section, re.DOTALL)[1].splitlines()


def run_line(line, folder):
    """A line of the guide in a folder, by this interpreter."""
    line = line.replace("python -m", f'"{sys.executable}" -m')
    environment = os.environ | {
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
    page = there / "figures/support_tickets/03/README.md"
    assert "T = 0.7, top-k = 20, top-p = 0.95" in page.read_text("utf-8")
    cards = [card.read_text("utf-8") for card in (there / "traces").rglob("README.md")]
    assert cards and all("| system | You answer tickets" in card for card in cards)
    assert not [*(there / "recorded").glob("*")], "nothing is recorded there"


# ---- an installed package ------------------------------------------------------------------------

CALLS = """
import sys
from speclab.__main__ import main
from speclab import place
assert not sys.modules["speclab"].__file__.startswith(sys.argv[1])
assert not place.RUNS.is_absolute() and not place.OUT.is_absolute(), "beside the study"
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
    shipped = "data/traces/smollm/greedy"
    shutil.copytree(ROOT / shipped, source / shipped)
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
        "explore data/traces/smollm/greedy --out page.html": 0,  # which README's lines read
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
    assert done.stderr.count("run this in a clone of the kit") == 2


# ---- citing --------------------------------------------------------------------------------------


def test_the_citation_has_the_version_of_the_package():
    cited = read_yaml(ROOT / "CITATION.cff", "")
    version = re.search('^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert cited["version"] == version and f"version = {{{version}}}" in GUIDE

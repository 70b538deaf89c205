"""Kaggle and Colab, simulated: what the first cell does, and what is installed beside a host's
packages.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import refuses
from packaging.utils import canonicalize_name
from test_notebooks import bootstrap

from speclab.cli import hosted
from speclab.study.profiles import ROOT

# ---- the bootstrap cell --------------------------------------------------------------------------


@pytest.fixture
def kit(tmp_path):
    """The kit's code as a git repository."""
    folder = tmp_path / "kit"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "speclab", folder / "speclab", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "kit"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    return folder


def test_the_first_cell_clones_the_kit_once_and_needs_its_address(tmp_path, kit):
    away = tmp_path / "away"
    away.mkdir()
    for given, said in (
        ({}, "SPECLAB_REPO"),
        ({"SPECLAB_REPO": "/none"}, "'/none' does not exist"),
    ):
        done = bootstrap(away, "-S", **given)
        assert done.returncode == 1 and said in done.stderr and not list(away.iterdir())
    clone = str(away / "speclab-kit")
    packages = str(Path(pytest.__file__).parents[1])
    for given in ({"SPECLAB_REPO": str(kit), "PYTHONPATH": packages}, {}):
        done = bootstrap(away, "-S", **given)
        assert done.stdout.split()[-2:] == [clone, f"{clone}/speclab"], done.stderr
        assert ("no package is missing" in done.stdout) == bool(given), "then it is there"


def test_where_nothing_is_missing_the_first_cell_says_how_to_add_what_4_bit_needs():
    """It loads nothing that it might have to move."""
    done = bootstrap(ROOT, SPECLAB_REPO="address")
    missing, more, *_ = done.stdout.splitlines()
    assert missing.startswith("no package is missing") and "hosted install --gptq" in more
    heavy = ("torch", "pandas", "pyarrow", "transformers", "ipykernel", "ipywidgets", "IPython")
    done = speclab("hosted install", *heavy)
    assert done.returncode == 0 and "no package is missing" in done.stdout, done.stderr


def called(*command, **variables):
    """A process at the root of the kit, with variables of its environment; what a `make` that runs
    these tests was given (VENV=…) is not handed on.
    """
    ours = ("MAKE", "MFLA", "VENV")
    known = {name: value for name, value in os.environ.items() if name[:4] not in ours}
    where = {"cwd": ROOT, "env": known | variables}
    return subprocess.run(command, capture_output=True, text=True, **where)


def speclab(words, *blocked, **variables):
    """The command line in a process where the packages `blocked` cannot be imported."""
    block = f"import sys; sys.modules |= dict.fromkeys({blocked})"
    main = f"from speclab.__main__ import main; sys.exit(main({words.split()}))"
    return called(sys.executable, "-c", f"{block}\n{main}", **variables)


# ---- what a host has, and what is installed there ------------------------------------------------


HOSTS = json.loads((ROOT / "tests/hosts.json").read_text())


@pytest.fixture(params=HOSTS)
def host(request, monkeypatch):
    """A host with its packages: `calls` are the words of pip's installations, `kept` the lines of
    the last file of constraints, and `fails` its last output.
    """
    packages = dict(HOSTS[request.param]["packages"])
    host = SimpleNamespace(calls=[], kept=set(), fails="", packages=packages)

    def version(name):
        if (known := canonicalize_name(name)) not in packages:
            raise hosted.metadata.PackageNotFoundError(name)
        return packages[known]

    def run(command, **_options):
        words = command[3:]
        if words[0] == "list":
            lines = [f"{name}=={version}" for name, version in packages.items()]
            return SimpleNamespace(returncode=0, stdout="\n".join(lines))
        if "--constraint" in words:
            host.kept = {*Path(words[3]).read_text().splitlines()}
        host.calls.append(words)
        return SimpleNamespace(returncode=bool(host.fails), stderr=host.fails, stdout="")

    monkeypatch.setattr(hosted.metadata, "version", version)
    monkeypatch.setattr(hosted.subprocess, "run", run)
    return host


def names_of(words):
    """The packages that pip may install in any suitable version."""
    return [re.split("[<>=]", word)[0] for word in words if ">=" in word]


SITE = ("sphinx", "myst-nb", "sphinx-book-theme", "sphinx-mathjax-offline")


def test_on_both_hosts_nothing_is_missing(host):
    assert "no package is missing" in hosted.install() and host.calls == []
    hosted.install(reproduce=True)
    assert {*names_of(host.calls[0])} <= {"papermill", "jupytext", "nbconvert", "nbformat", *SITE}


def test_only_what_is_out_of_range_moves_and_never_what_a_kernel_has_loaded(host):
    """Kaggle's torch 2.10 was replaced, because the kit required 2.11."""
    old = {"scikit-learn": "0.1", "transformers": "4.57.0"}
    host.packages |= old | {"Odd_.name": "1", "torch": "0.1", "ipykernel": "0.1"}
    hosted.install()
    [words] = host.calls
    assert {*names_of(words)} == {*old, "torch", "ipykernel"}
    kept = {f"{name}=={version}" for name, version in host.packages.items() if name not in old}
    assert host.kept == kept, "so pip fails, because it may not move torch"
    host.fails = "torch 0.1 was requested as a constraint"
    with refuses("torch.*failed.*no other version.*torch, numpy"):
        hosted.install()


def test_what_would_move_packages_comes_without_its_own_requirements(host, capsys):
    """GPTQModel's would move numpy, pyarrow, protobuf and torch; those of speculators transformers
    and datasets. What else speculators imports comes with its requirements.
    """
    hosted.install(gptq=True, heads=True)
    needs, alone = host.calls
    assert "--no-deps" in alone and "speculators==0.9.0" in alone and "gptqmodel" in names_of(alone)
    assert names_of(needs) == ["openai"] and "hs-connectors==0.9.0" in needs
    assert f"torch=={host.packages['torch']}" in host.kept
    host.fails = "building PyPcre\nerror: pcre2.h: No such file"
    with refuses("apt-get install libpcre2-dev"):
        hosted.install(gptq=True)
    assert "pcre2.h: No such file" in capsys.readouterr().out


def test_without_papermill_jupytext_and_nbconvert_the_verb_that_needs_them_says_so():
    """Notebooks need none of them (test_dependencies)."""
    done = speclab("reproduce --notebook 00", "papermill", "jupytext", "nbconvert")
    assert done.returncode == 2, done.stderr
    assert "hosted install` with" in done.stderr and "--reproduce" in done.stderr


def test_a_torchvision_that_does_not_fit_torch_is_said_where_models_are_loaded(tmp_path):
    """transformers imports it with every model, and reports only that it cannot import Llama."""
    (tmp_path / "torchvision-0.28.0.dist-info").mkdir()
    about = tmp_path / "torchvision-0.28.0.dist-info" / "METADATA"
    about.write_text("Name: torchvision\nVersion: 0.28.0\n")
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('no nms')")
    words = f"record --profile tiny --out {tmp_path / 'run'}"
    done = speclab(words, PYTHONPATH=str(tmp_path), HF_HUB_OFFLINE="1")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and "torchvision does not fit torch" in last, done.stderr
    assert "no nms" in last and "pip uninstall torchvision" in last


# ---- the checkout --------------------------------------------------------------------------------


def test_git_never_rewrites_a_file_whose_digest_is_known():
    """With autocrlf, which Windows has set, shipped traces would not be recognised."""
    files = ["README.md", "speclab/study/runs.py", "data/traces/tiny/greedy/manifest.json"]
    done = called("git", "check-attr", "text", "--", *files)
    if done.returncode:
        pytest.skip("this is no git checkout")
    assert done.stdout.splitlines() == [f"{file}: text: unset" for file in files]


@pytest.mark.parametrize("variable", ["COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"])
def test_on_a_host_make_wants_the_active_environment(variable):
    done = called("make", "reproduce", **{variable: "1"})
    assert done.returncode == 2 and "make reproduce VENV=" in done.stderr


@pytest.mark.parametrize("out", ["new", ""])
def test_a_reproduced_notebook_stays_where_its_study_names_files(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECLAB_OUT", out)
    monkeypatch.delenv("SPECLAB_REPO", raising=False)
    hosted.prepare()
    assert Path.cwd() == (tmp_path if out else ROOT)

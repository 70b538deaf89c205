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
from test_notebooks import bootstrap

from speclab.cli import hosted
from speclab.study.profiles import ROOT


def put(folder, name="config.json", text="{}"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


# ---- the bootstrap cell --------------------------------------------------------------------------


@pytest.fixture
def kit(tmp_path):
    """The kit's code as a git repository, whose pyproject.toml asks for a torch of the future."""
    folder = tmp_path / "kit"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "speclab", folder / "speclab", ignore=ignored)
    text = (ROOT / "pyproject.toml").read_text()
    needs = text.replace("dependencies = [", 'dependencies = ["torch>=99",', 1)
    (folder / "pyproject.toml").write_text(needs)
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
    clone = away / "speclab-kit"
    packages = Path(pytest.__file__).parents[1]
    installs = bootstrap(away, "-S", SPECLAB_REPO=str(kit), PYTHONPATH=str(packages))
    assert "speclab needs torch>=99, and this command never moves torch" in installs.stderr
    assert installs.returncode == 1 and "Traceback" not in installs.stderr
    done = bootstrap(away, "-S")  # it is there already
    assert done.stdout.split() == [str(clone), str(clone / "speclab")], done.stderr


def test_where_nothing_is_missing_the_first_cell_says_how_to_add_what_4_bit_needs():
    done = bootstrap(ROOT, SPECLAB_REPO="address")
    missing, more, *_ = done.stdout.splitlines()
    assert missing.startswith("no package is missing") and "hosted install --gptq" in more


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


def test_the_installer_loads_nothing_that_it_might_have_to_move():
    heavy = ("torch", "pandas", "pyarrow", "transformers", "ipykernel", "ipywidgets", "IPython")
    done = speclab("hosted install", *heavy)
    assert done.returncode == 0 and "no package is missing" in done.stdout, done.stderr


# ---- what a host has, and what is installed there ------------------------------------------------


HOSTS = json.loads((ROOT / "tests/hosts.json").read_text())


@pytest.fixture(params=HOSTS)
def host(request, tmp_path, monkeypatch):
    """A host with its packages: `has(name, version)` changes one, `calls` are the words of pip's
    calls, `constraints` the lines of the last file of constraints, and `fails` its last output.
    """
    packages = HOSTS[request.param]["packages"]
    host = SimpleNamespace(calls=[], constraints=[], fails="", packages=packages)

    def has(name, version):
        folder = tmp_path / f"{name.replace('-', '_')}-0.dist-info"
        put(folder, "METADATA", f"Name: {name}\nVersion: {version}\n")

    def run(command, **_options):
        words = command[5:]
        if "--constraint" in words:
            host.constraints = Path(words.pop()).read_text().splitlines()
        host.calls.append(words)
        return SimpleNamespace(returncode=bool(host.fails), stderr=host.fails)

    for name, version in host.packages.items():
        has(name, version)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(hosted.subprocess, "run", run)
    host.has = has
    return host


def names_of(words):
    """The packages that pip may install in any suitable version."""
    return [re.split("[<>=]", word)[0] for word in words if ">=" in word]


def test_on_both_hosts_nothing_is_missing(host):
    assert "no package is missing" in hosted.install() and host.calls == []
    hosted.install(reproduce=True)
    assert {*names_of(host.calls[0])} <= {"papermill", "jupytext", "nbconvert", "nbformat"}


@pytest.mark.parametrize("name", ["torch", "numpy", "pandas", "ipykernel", "pyarrow"])
def test_a_package_of_the_host_that_is_out_of_range_is_said_and_nothing_installed(host, name):
    """Kaggle's torch 2.10 was replaced, because the kit required 2.11."""
    host.has(name, "0.1")
    host.has("tqdm", "0.1")
    words = rf"{name} 0.1 is installed, speclab needs {name}>=.*never"
    with pytest.raises(ValueError, match=words):
        hosted.install(gptq=True)
    assert host.calls == []


def test_what_is_missing_comes_with_all_else_held_by_constraints(host):
    for name, version in {
        "scikit-learn": "0.1",
        "transformers": "4.57.0",
        "Odd_.name": "1",
    }.items():
        host.has(name, version)
    host.has("half", "unknown")
    done = hosted.install()
    assert done.startswith("upgraded: scikit-learn, transformers; restart the session")
    assert [names_of(words) for words in host.calls] == [["transformers", "scikit-learn"]]
    moved = {"scikit-learn", "transformers"}
    kept = {name: v for name, v in host.packages.items() if name not in moved} | {"odd-name": "1"}
    assert {*host.constraints} == {f"{name}=={version}" for name, version in kept.items()}


def test_gptqmodel_comes_without_its_own_requirements_and_pips_reason_is_printed(host, capsys):
    """These would move numpy, pyarrow, protobuf and torch."""
    hosted.install(gptq=True)
    (words,) = host.calls
    assert words[-1] == "--no-deps" and words[0].startswith("gptqmodel>=")
    assert not {*names_of(words)} & {*hosted.KEPT}
    host.fails = "building PyPcre\nerror: pcre2.h: No such file"
    with pytest.raises(ValueError, match="apt-get install libpcre2-dev"):
        hosted.install(gptq=True)
    assert "pcre2.h: No such file" in capsys.readouterr().out


def test_speculators_comes_without_its_own_requirements(host):
    """These would move transformers and datasets, and add a torchvision. What else it imports
    comes with its requirements.
    """
    hosted.install(heads=True)
    with_requirements, alone = host.calls
    assert alone == ["speculators==0.9.0", "--no-deps"]
    assert names_of(with_requirements) == ["openai"] and "hs-connectors==0.9.0" in with_requirements
    assert f"torch=={host.packages['torch']}" in host.constraints


@pytest.mark.parametrize("name", ["openai.types", "speculators", "hs_connectors"])
def test_what_heads_need_is_installed_by_an_option(name):
    said = hosted.missing_package(ModuleNotFoundError(f"No module named '{name}'", name=name))
    assert said == f"No module named '{name}'; run `python -m speclab hosted install --heads`"


def test_without_papermill_jupytext_and_nbconvert_the_verb_that_needs_them_says_so():
    """Notebooks need none of them (test_dependencies)."""
    done = speclab("reproduce --notebook 00", "papermill", "jupytext", "nbconvert")
    assert done.returncode == 2, done.stderr
    assert "run `python -m speclab hosted install --reproduce`" in done.stderr.splitlines()[-1]


def test_a_torchvision_that_does_not_fit_torch_is_said_where_models_are_loaded(tmp_path):
    """transformers imports it with every model, and reports only that it cannot import Llama."""
    about = "Name: torchvision\nVersion: 0.28.0\n"
    put(tmp_path / "torchvision-0.28.0.dist-info", "METADATA", about)
    put(tmp_path, "torchvision.py", "raise RuntimeError('no nms')")
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

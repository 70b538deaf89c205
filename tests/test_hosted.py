"""Kaggle and Colab, simulated: attached models and data sets as Kaggle mounts them, and interrupted
runs that continue.
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
from conftest import interrupted, tables
from test_notebooks import bootstrap

from speclab import record
from speclab.cli import hosted
from speclab.cli.hosted import attach, keep, restore, slug
from speclab.models.folder import ModelFolder
from speclab.study.profiles import ROOT, load_profile
from speclab.study.prompts import PAPER_SETS
from speclab.study.runs import record_run

T4 = load_profile("t4")


# ---- attached models and data sets ---------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch):
    """No SPECLAB_ variable is set before or left afterwards."""
    for name in ("SPECLAB_MODELS", "SPECLAB_DATASETS"):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it
        monkeypatch.delenv(name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def put(folder, name="config.json", text="{}"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("target", "draft"),
    [  # a data set a model, as in Kaggle's newer mounts, and a model of Kaggle
        ("datasets/ann/llama-2-7b-chat-gptq", "datasets/ann/tinyllama-1-1b-chat-v1-0"),
        ("llama-2-7b-chat-gptq/files", "models/tl/tinyllama-1-1b-chat-v1-0/transformers/default/1"),
    ],
)
def test_attached_models_are_found_as_kaggle_mounts_them(tmp_path, environment, target, draft):
    mounted, links = tmp_path / "input", tmp_path / "links"
    places = {T4.target.path: put(mounted / target), T4.draft.path: put(mounted / draft)}
    put(mounted / target / "onnx")  # a configuration inside the model is not another model
    put(mounted / "datasets/bob/other")
    assert attach(load_profile("tiny"), mounted, links) == {}, "the kit's own pair is here"
    assert attach(T4, mounted, links) == places
    for spec in (T4.target, T4.draft):
        assert ModelFolder.fetched(spec).path.resolve() == places[spec.path], (
            "found without the hub"
        )
    assert attach(T4, mounted, links) == {}, "what is set stays"


def test_nothing_attached_changes_nothing_and_two_copies_are_refused(tmp_path, environment):
    assert attach(T4, tmp_path) == {} and "SPECLAB_MODELS" not in os.environ
    for name in ("a", "b"):
        put(tmp_path / name / "llama-2-7b-chat-gptq")
    with pytest.raises(ValueError, match=r"Chat-GPTQ is attached 2 times: .*detach all but one"):
        attach(T4, tmp_path)


def test_attached_data_sets_are_read_only_when_all_four_are_there(tmp_path, environment):
    paper, mounted = load_profile("paper"), tmp_path / "input"
    names = {hub_set.name for hub_set in PAPER_SETS.values()}
    for name in names:
        assert attach(paper, mounted, tmp_path / "links") == {}
        put(mounted / "datasets" / slug(name.split("/")[1]) / "main", "test.parquet")
    assert attach(paper, mounted, tmp_path / "links").keys() == names
    for name in names:
        assert Path(os.environ["SPECLAB_DATASETS"], name, "main/test.parquet").is_file()


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


def test_the_first_cell_clones_the_kit_once_and_a_wrong_address_is_said(tmp_path, kit):
    away = tmp_path / "away"
    away.mkdir()
    for address in ("", tmp_path / "none", tmp_path):  # nothing, no folder, no repository
        done = bootstrap(away, "-S", SPECLAB_REPO=str(address))
        assert done.returncode == 1 and "set SPECLAB_REPO to its address" in done.stderr
        assert "Traceback" not in done.stderr and not list(away.iterdir())
    clone = away / "speclab-kit"
    for address in (str(kit), ""):  # the second time it is there already
        done = bootstrap(away, "-S", SPECLAB_REPO=address)
        assert done.stdout.split() == [str(clone), str(clone / "speclab")], done.stderr
    (clone / "data").mkdir()
    done = bootstrap(clone / "data")
    assert done.stdout.split() == [str(clone), str(clone / "speclab")], "not the one in the kernel"


def test_on_a_host_the_first_cell_installs_and_its_refusal_is_one_line(kit):
    done = bootstrap(ROOT, COLAB_RELEASE_TAG="release-1")
    assert done.stdout.splitlines()[0] == "speclab 0.1.0 in Colab: no package is missing"
    done = bootstrap(kit, KAGGLE_KERNEL_RUN_TYPE="Interactive")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "speclab needs torch>=99, and this command never moves torch" in done.stderr


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
    calls, each of which upgrades tqdm, and `fails` is its last output.
    """
    host = SimpleNamespace(calls=[], fails="", packages=HOSTS[request.param]["packages"])

    def has(name, version):
        folder = tmp_path / f"{name.replace('-', '_')}-0.dist-info"
        put(folder, "METADATA", f"Name: {name}\nVersion: {version}\n")

    def run(command, **_options):
        host.calls.append(command[5:])
        has("tqdm", "99")
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


def test_what_is_missing_comes_with_all_that_stays_pinned_and_upgrades_are_named(host):
    for name, version in {"scikit-learn": "0.1", "transformers": "4.57.0", "tqdm": "98"}.items():
        host.has(name, version)
    assert hosted.install().startswith("upgraded: tqdm 98 to 99; restart the session")
    (words,) = host.calls
    assert names_of(words) == ["transformers", "scikit-learn"]
    kept = {f"{name}=={host.packages[name]}" for name in hosted.KEPT if name in host.packages}
    assert {word for word in words if "==" in word} == kept


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
    comes with its requirements, and with all that stays pinned.
    """
    hosted.install(heads=True)
    with_requirements, alone = host.calls
    assert alone == ["speculators==0.9.0", "--no-deps"]
    assert names_of(with_requirements) == ["openai"] and "hs-connectors==0.9.0" in with_requirements
    assert f"torch=={host.packages['torch']}" in with_requirements


@pytest.mark.parametrize("package", ["speculators", "openai"])
def test_without_what_a_head_needs_the_loader_says_how_to_install_it(package, tmp_path):
    layer = {"model_type": "llama", "vocab_size": 4096, "max_position_embeddings": 4096}
    config = {"speculators_model_type": "eagle3", "transformer_layer_config": layer}
    put(tmp_path / "head", text=json.dumps(config))
    put(tmp_path / "head", "model.safetensors", "\x08" + "\0" * 7 + "{}      ")
    words = f"record --profile tiny --out {tmp_path / 'run'} --set draft.path={tmp_path / 'head'}"
    done = speclab(words, package, HF_HUB_OFFLINE="1")
    assert done.returncode == 2, done.stderr
    assert "run `python -m speclab hosted install --heads`" in done.stderr.splitlines()[-1]


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


# ---- runs that continue --------------------------------------------------------------------------


def test_a_session_that_was_cut_off_goes_on_from_what_is_attached(
    short_profile, short_run, tmp_path, random_pair, monkeypatch
):
    here = tmp_path / "working/speclab-kit/data/runs"
    calls = interrupted(monkeypatch, record.Worker, "record", at=3)
    with pytest.raises(KeyboardInterrupt):
        record_run(short_profile, here / "run", random_pair)
    # how the output of a notebook comes back
    attached = tmp_path / "input/notebooks/ann/speclab-02/speclab-kit/data/runs"
    shutil.move(here, attached)
    (attached / "run/parts/00002.trace.parquet.tmp").write_bytes(b"half a file")
    assert restore(tmp_path / "input", here) == ["run"] and not list(here.rglob("*.tmp"))
    run = record_run(short_profile, here / "run", random_pair)
    assert tables(run.folder) == tables(short_run.folder)
    assert len(calls) == 7, "two of six blocks were there; the third was tried twice"
    assert restore(tmp_path / "input", here) == [], "nothing new"


def test_what_is_here_stays_and_other_settings_are_said(short_run, tmp_path, capfd):
    saved, here = tmp_path / "input", tmp_path / "runs"
    for folder in (saved, here):
        shutil.copytree(short_run.folder, folder / "run")
    run = here / "run"
    for name in ("nodes.parquet", "manifest.json", "parts/00001.json"):
        (run / name).unlink()
    own = run / "parts/00002.nodes.parquet"
    own.write_bytes(b"own")
    assert restore(saved, here) == ["run"] and tables(run) == tables(short_run.folder)
    assert own.read_bytes() == b"own", "the recorder checks it"
    (run / "settings.json").write_text("{}")
    put(saved / "\x1b]0;.vscode", "settings.json")
    assert restore(saved, here) == [] and [*here.iterdir()] == [run]
    said = capfd.readouterr().err
    assert "run: not restored, because data/runs has it with other settings" in said
    assert "vscode/settings.json" in said and "\x1b" not in said


def test_colab_keeps_runs_on_a_disk_that_stays(short_run, tmp_path):
    local, drive = tmp_path / "kit/data/runs", tmp_path / "drive/speclab"
    for folder in (local, drive):
        shutil.copytree(short_run.folder, folder / folder.parent.name)
    keep(drive, local)
    put(local / "new")
    shutil.rmtree(tmp_path / "kit")  # the machine is gone
    for _ in range(2):  # a second time changes nothing
        keep(drive, local)
        assert local.resolve() == drive and (local / "new/config.json").is_file()
        for name in ("data", "drive"):
            assert tables(local / name) == tables(short_run.folder)


@pytest.mark.parametrize("folder", ["data", "data/runs/inside"])
def test_runs_are_not_kept_in_a_folder_that_holds_them(tmp_path, folder):
    runs = tmp_path / "data" / "runs"
    put(runs / "run")
    with pytest.raises(ValueError, match="is data/runs, or one contains the other"):
        keep(tmp_path / folder, runs)
    assert (runs / "run" / "config.json").is_file() and not runs.is_symlink()


@pytest.mark.parametrize(
    ("there", "name"),
    [
        (["COLAB"], "Colab"),
        (["content", "kaggle"], "Kaggle"),
        (["content"], "Colab"),
        ([], ""),
    ],
)
def test_the_host_is_known(there, name, monkeypatch, tmp_path):
    signs = {"Kaggle": ("KAGGLE", tmp_path / "kaggle"), "Colab": ("COLAB", tmp_path / "content")}
    monkeypatch.setattr(hosted, "HOSTS", signs)
    for sign in there:
        if sign.isupper():
            monkeypatch.setenv(sign, "1")
        else:
            (tmp_path / sign).mkdir()
    assert hosted.platform() == name

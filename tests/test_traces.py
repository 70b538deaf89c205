"""Shipped runs: packed and read back, found by their key; bad folders and missing models."""

import copy
import hashlib
import html
import json
import os
import re
import shutil
import signal
from dataclasses import replace

import mistune
import pandas as pd
import pytest
from conftest import contents, cut_file, edit_json, save_random_llama, write_prompts
from test_faults import forked

from speclab import prompts, runs
from speclab.__main__ import main
from speclab.models import folder
from speclab.models.folder import ModelsMissing
from speclab.ops import pack as packing
from speclab.ops.pack import card, pack
from speclab.plain import shown
from speclab.profiles import ModelSpec, Notes, Profile
from speclab.runs import RunError, load_or_record, load_run

LICENCE = "prompts and text: MIT"
PROFILE = Profile(
    "small",
    ModelSpec("pair/target", device="cpu"),
    ModelSpec("pair/draft", device="cpu"),
    description="a random pair",
    prompts="prompts.jsonl",
    prompts_per_domain=2,
    domains=("code", "chat"),
    max_prompt_tokens=64,
    max_new_tokens=6,
    notes=Notes(licence=LICENCE),
    traces="traces",
)


def at(root):
    """The kit as if it were in `root`, until the change is undone."""
    patch = pytest.MonkeyPatch()
    patch.chdir(root)
    for module in (runs, folder):
        patch.setattr(module, "ROOT", root)
    patch.setattr(prompts, "REPOSITORY", root)
    patch.setattr(runs, "RUNS", root / "data" / "runs")
    runs.say_once.cache_clear()
    return patch


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A small repository: a random pair, a few prompts, runs of three kinds, and traces made from
    them.
    """
    root = tmp_path_factory.mktemp("recorded")
    target = save_random_llama(root / "pair/target", 1)
    save_random_llama(root / "pair/draft", 2, layers=1, kv_heads=1)
    content = (target / "model.safetensors").read_bytes()
    facts = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    source = json.dumps({"weights": {"model.safetensors": facts}})
    (target / "source.json").write_text(source)
    write_prompts(root, 2)
    patch = at(root)
    for kind in ("greedy", "sampled", "balanced"):
        pack(load_or_record(PROFILE.replace(traces=None), kind), root / "traces" / kind)
    patch.undo()
    return root


@pytest.fixture
def kit(recorded, tmp_path):
    """A copy with models, runs and traces."""
    root = tmp_path / "kit"
    shutil.copytree(recorded, root)
    patch = at(root)
    yield root
    patch.undo()


@pytest.fixture
def clone(kit):
    """A user's copy: three traces, no runs, and no target weights."""
    shutil.rmtree(kit / "data")
    (kit / "pair/target/model.safetensors").rename(kit / "weights")
    return kit


def run_of(root, kind):
    return next((root / "data" / "runs").glob(f"small-{kind}-*"))


# ---- packing -------------------------------------------------------------------------------------


def test_a_packed_run_reads_as_the_run_itself_and_is_smaller(kit):
    run, packed = load_run(run_of(kit, "greedy")), load_run(kit / "traces" / "greedy")
    assert {path.name for path in packed.folder.iterdir()} == {
        "README.md",
        "manifest.json",
        *runs.TABLES,
    }
    for name in runs.SCHEMAS:
        pd.testing.assert_frame_equal(getattr(packed, name), getattr(run, name))
        own, smaller = (one.folder / f"{name}.parquet" for one in (run, packed))
        assert smaller.stat().st_size < own.stat().st_size
    kept = set(run.manifest) - {"profile", "files", "licence"}
    assert all(packed.manifest[name] == run.manifest[name] for name in kept)
    written = (packed.folder / "README.md").read_text() + json.dumps(packed.manifest)
    assert LICENCE in written and str(kit) not in written


def test_the_command_packs(kit, capsys):
    run, out = run_of(kit, "greedy"), kit / "given" / "greedy"
    assert main(["pack", str(run), "--out", str(out), "--licence", "mine"]) == 0
    assert f"{out}: 0.0 MB" in capsys.readouterr().out
    assert "mine\n" in (out / "README.md").read_text() and load_run(out)


@pytest.mark.parametrize("name", ["write_facts", "_pack_table"])
def test_a_pack_that_was_killed_is_written_again(short_run, tmp_path, monkeypatch, name):
    out = tmp_path / "out"

    def work():
        monkeypatch.setattr(packing, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        pack(short_run, out, "greedy", LICENCE)

    status = os.waitpid(forked(work), 0)[1]
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    assert not out.exists()
    out.mkdir()
    written = contents(pack(short_run, out, "greedy", LICENCE))
    whole = contents(pack(short_run, tmp_path / "whole", "greedy", LICENCE))
    assert [*written.values()] == [*whole.values()]


BAD = "</td><script>a|b`c` *d* _e_ [f](http://g) &amp;\n\n# h\n~~~\n\x1b]0;i\x07\u202e"


def test_the_card_shows_names_as_text(short_run):
    """A Markdown parser finds the same elements, whatever the manifest contains."""
    read = mistune.create_markdown(escape=False, plugins=["table", "strikethrough"])
    manifest = copy.deepcopy(short_run.manifest)
    plain = read(card(manifest))
    manifest["profile"] |= {"name": BAD, "description": BAD}
    manifest["pair"]["target"]["path"] = manifest["licence"] = BAD
    page = read(card(manifest))
    assert re.findall("<[^>]+>", page) == re.findall("<[^>]+>", plain)
    assert shown(BAD) in html.unescape(page) and not set(page) & {"\x1b", "\u202e"}


# ---- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["greedy", "sampled", "balanced"])
def test_a_trace_is_read_where_the_models_are_not_and_says_so_once(clone, kind, capsys):
    first, again = (load_or_record(PROFILE, kind) for _ in range(2))
    assert first.folder == again.folder == clone / "traces" / kind
    (line,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"read from traces/{kind} \(recorded \d+-\d+-\d+\)", line)


def test_the_environment_names_another_place(clone, monkeypatch):
    (clone / "traces").rename(clone / "given")
    assert runs.shipped(PROFILE, "greedy") == []
    for place in ("given", "given/greedy"):
        monkeypatch.setenv(runs.PLACE, place)
        assert load_or_record(PROFILE).folder.resolve() == clone / "given" / "greedy"
    monkeypatch.setenv(runs.PLACE, "nowhere")
    with pytest.raises(ValueError, match="SPECLAB_TRACES=nowhere holds no trace"):
        load_or_record(PROFILE)
    (clone / "given").rename(clone / "traces")
    (clone / "nowhere").mkdir()
    (clone / "nowhere" / "combined_cnn.jsonl.gz").touch()
    own = load_or_record(PROFILE).folder.resolve()
    assert own == clone / "traces" / "greedy", "what notebook 15 reads hides nothing"


def test_a_kind_of_the_same_settings_is_not_recorded_twice(kit, monkeypatch):
    """With `budget: null` a balanced tree is the profile's own. Runs come before traces."""
    complete = PROFILE.replace(budget=None)
    monkeypatch.setattr(runs, "record_run", lambda *a, **k: pytest.fail("recorded"))
    assert load_or_record(complete, "greedy").folder == run_of(kit, "balanced")
    shutil.rmtree(kit / "data")
    assert load_or_record(complete, "greedy").folder == kit / "traces" / "balanced"


def other_prompts(root):
    file = root / "prompts.jsonl"
    file.write_text(file.read_text().replace("a b", "b a"))


@pytest.mark.parametrize(
    ("changes", "change", "words"),
    [({"max_new_tokens": 5}, None, r"max_new_tokens"), ({}, other_prompts, r"prompts")],
)
def test_what_a_trace_has_otherwise_is_named_before_it_is_recorded(
    clone, changes, change, words, capsys
):
    asked = PROFILE.replace(**changes)
    if change:
        change(clone)
    with pytest.raises(ModelsMissing, match="`make pair PROFILE=pair`"):
        load_or_record(asked)
    said = rf"traces/greedy is another run \({words}\): recording"
    assert re.search(said, capsys.readouterr().out)
    assert not [*clone.glob("data/runs/*/parts")], "nothing is begun"


def test_the_text_of_a_trace_is_read_for_another_tree(clone, monkeypatch):
    texts, given = runs.texts_of(load_or_record(PROFILE)), {}
    monkeypatch.setattr(runs, "record_run", lambda *a, **k: given.update(k))
    load_or_record(PROFILE, "chain")
    assert given["texts"] == texts and len(texts) == 4


def test_a_trace_is_known_by_the_commits_of_models_that_are_not_here(recorded, tmp_path):
    """Prompts are then identified by their texts, because no tokenizer can encode them."""
    root = tmp_path / "kit"
    shutil.copytree(recorded, root)
    patch = at(root)
    pinned = {
        name: replace(getattr(PROFILE, name), revision=digit * 40)
        for name, digit in (("target", "1"), ("draft", "2"))
    }
    own = PROFILE.replace(traces=None, **pinned)
    shutil.rmtree(root / "data")
    pack(load_or_record(own), root / "given" / "greedy")
    shutil.rmtree(root / "data")
    shutil.rmtree(root / "pair")
    patch.setenv(runs.PLACE, "given")
    assert load_or_record(own).folder.resolve() == root / "given" / "greedy"
    other = {"target": replace(pinned["target"], revision="3" * 40)}
    for changes in (other, {"max_prompt_tokens": 63}, {"max_new_tokens": 5}):
        assert runs.recorded_run(own.replace(**changes), "greedy") is None
    other_prompts(root)
    assert runs.recorded_run(own, "greedy") is None
    patch.undo()


@pytest.mark.parametrize("left", ["nothing", "settings and tokenizer"])
def test_a_trace_is_known_by_its_models_names_where_no_weights_are(kit, left, monkeypatch):
    """Recorded on one machine, studied on another: the profile's models are missing, and the trace
    describes them.
    """
    shutil.rmtree(kit / "data")
    monkeypatch.setenv(runs.PLACE, "traces")
    own = PROFILE.replace(traces=None)
    for name in ("target", "draft"):
        folder = kit / "pair" / name
        (folder / "source.json").unlink(missing_ok=True)
        (folder / "model.safetensors").unlink()
        if left == "nothing":
            shutil.rmtree(folder)
    by_end = own.replace(target=replace(own.target, path="target"))
    moved = own.replace(target=replace(own.target, path=str(kit.parent / "new/pair/target")))
    for profile in (own, by_end, moved):
        assert load_or_record(profile).folder.resolve() == kit / "traces" / "greedy"
    another = {"target": replace(own.target, path="another/target")}
    for changes in (another, {"template": "chat"}, {"max_new_tokens": 5}):
        assert runs.recorded_run(own.replace(**changes), "greedy") is None
    other_prompts(kit)
    assert runs.recorded_run(own, "greedy") is None


def test_traces_of_others_hide_none_of_the_profiles_own(clone, tmp_path, monkeypatch):
    """Notebook 11 reads the kit's pairs in a study whose traces are in SPECLAB_TRACES."""
    shutil.copytree(clone / "traces" / "balanced", tmp_path / "given" / "balanced")
    monkeypatch.setenv(runs.PLACE, str(tmp_path / "given"))
    assert load_or_record(PROFILE, "sampled").folder == clone / "traces" / "sampled"
    assert load_or_record(PROFILE, "balanced").folder == tmp_path / "given" / "balanced"


def forged(path):
    edit_json(path, prompts=9)


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("trace.parquet", cut_file, "greedy/trace.parquet is damaged or missing"),
        ("manifest.json", forged, "manifest.json has changed since it was written"),
    ],
)
def test_a_bad_folder_is_named_in_one_line_and_kept(clone, name, damage, words):
    folder = clone / "traces" / "greedy"
    damage(folder / name)
    before = contents(folder)
    with pytest.raises(RunError) as error:
        load_or_record(PROFILE)
    said = str(error.value)
    assert words in said and "\n" not in said and "remove" in said
    assert contents(folder) == before
    assert load_or_record(PROFILE, "sampled"), "the others are read"


def test_a_kind_that_is_recorded_here_is_not_read_from_its_trace(kit, monkeypatch, capsys):
    shutil.rmtree(kit / "data")
    own = PROFILE.replace(recorded=("sampled",))
    assert load_or_record(own, "greedy").folder == kit / "traces" / "greedy"
    assert runs.recorded_run(own, "sampled") is None
    fresh = load_or_record(own, "sampled")
    assert fresh.folder.parent == kit / "data" / "runs"
    shipped = load_run(kit / "traces" / "sampled")
    pd.testing.assert_frame_equal(fresh.trace, shipped.trace)
    assert "another run" not in capsys.readouterr().out
    monkeypatch.setenv("SPECLAB_TRACES", str(kit / "traces"))
    shutil.rmtree(kit / "data")
    assert load_or_record(own, "sampled").folder == kit / "traces" / "sampled"

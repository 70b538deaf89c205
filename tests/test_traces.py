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
from conftest import (
    contents,
    cut_file,
    edit_json,
    interrupted,
    save_random_llama,
    write_prompts,
)
from test_faults import forked
from test_manifest import GONE, forge

from speclab.__main__ import main
from speclab.cli import pack as packing
from speclab.cli.pack import card, pack
from speclab.models import folder
from speclab.models.hub import ModelsMissing
from speclab.plain import ModelSpec, shown
from speclab.study import prompts, recording, runs
from speclab.study.profiles import Notes, Profile
from speclab.study.runs import RunError, load_or_record, load_run, record_run

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


@pytest.mark.parametrize("name", ["write_facts", "_pack_table"])
def test_a_pack_that_was_killed_is_written_again(short_run, tmp_path, monkeypatch, name):
    out = tmp_path / "out"

    def work():
        monkeypatch.setattr(packing, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        pack(short_run, out, "greedy", LICENCE)

    status = os.waitpid(forked(work), 0)[1]
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    assert not out.exists()
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
    with pytest.raises(ValueError, match="SPECLAB_TRACES=nowhere is no folder"):
        load_or_record(PROFILE)


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


def forged(path):
    edit_json(path, prompts=9)


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("trace.parquet", cut_file, "greedy/trace.parquet has changed"),
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


# ---- a part of a larger run ----------------------------------------------------------------------


SELECTIONS = {
    "the first of each domain": lambda root: {"prompts_per_domain": 1},
    "one domain": lambda root: {"domains": ("chat",)},
    "another order of domains": lambda root: {"domains": ("chat", "code")},
}


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize(("where", "kind"), [("runs", "greedy"), ("traces", "sampled")])
def test_some_prompts_of_a_recorded_run_are_read_and_equal_to_a_recording(
    kit, capsys, where, selection, kind
):
    if where == "traces":
        shutil.rmtree(kit / "data")
    asked = PROFILE.replace(**SELECTIONS[selection](kit))
    nobody = {"engine": lambda *_: pytest.fail("recorded")}
    part = load_or_record(asked, kind, **nobody)
    [line] = capsys.readouterr().out.splitlines()
    wanted = runs.profile_prompts(asked)
    assert re.match(rf"read from .*{kind}.*: {len(wanted)} of its 4 prompts \(recorded ", line)
    fresh = record_run(runs.of_kind(asked, kind), kit / "fresh", kind=kind)
    for name in runs.SCHEMAS:
        pd.testing.assert_frame_equal(getattr(part, name), getattr(fresh, name), rtol=1e-4)
        assert part.table(name).num_rows == part.manifest["rows"][name]
    of_machine = {"pair", "time_s", "peak_bytes", "finished", "files", "profile", "licence"}
    for name in fresh.manifest.keys() - of_machine:
        assert part.manifest[name] == fresh.manifest[name], name
    for name in ("prompts_per_domain", "domains"):
        assert part.manifest["profile"][name] == getattr(asked, name)
    packed = load_run(pack(part, kit / "given" / kind))
    assert packed.trace.equals(part.trace) and packed.manifest["key"] == runs.run_key(
        runs.of_kind(asked, kind)
    )


@pytest.mark.parametrize("selection", SELECTIONS)
def test_some_prompts_of_a_trace_are_read_where_no_tokenizer_is(clone, selection):
    """Texts are then compared; the file of the trace's own prompts must be here."""
    shutil.rmtree(clone / "pair")
    (clone / "weights").unlink()
    changes = SELECTIONS[selection](clone)
    part, whole = (load_or_record(one).trace for one in (PROFILE.replace(**changes), PROFILE))
    names = [prompt.prompt_id for prompt in runs.profile_prompts(PROFILE.replace(**changes))]
    wanted = pd.concat([whole[whole["prompt_id"] == name] for name in names])
    pd.testing.assert_frame_equal(part, wanted.reset_index(drop=True))
    keys = [
        load_or_record(PROFILE.replace(domains=(name,))).manifest["key"]
        for name in ("chat", "code")
    ]
    assert len({*keys, load_or_record(PROFILE).manifest["key"]}) == 3
    for other in ({"template": "chat"}, {"max_prompt_tokens": 1}):
        assert runs.recorded_run(PROFILE.replace(**changes | other), "greedy") is None


def renamed(root):
    text = (root / "prompts.jsonl").read_text()
    (root / "chosen.jsonl").write_text(text.replace('"domain": "chat"', '"domain": "talk"'))
    return {"prompts": "chosen.jsonl", "domains": ("talk",)}


def rewritten(root):
    text = (root / "prompts.jsonl").read_text()
    (root / "chosen.jsonl").write_text(text.replace("a b", "b a"))
    return {"prompts": "chosen.jsonl", "prompts_per_domain": None}


@pytest.mark.parametrize(
    "change",
    [
        renamed,
        rewritten,
        lambda root: {"prompts_per_domain": 3},
        lambda root: {"domains": ("chat",), "max_prompt_tokens": 1},
        lambda root: {"domains": ("chat",), "max_new_tokens": 5},
        lambda root: {"domains": ("chat",), "budget": 7},
    ],
)
@pytest.mark.parametrize("left", ["everything", "no tokenizer"])
def test_what_a_larger_run_does_not_hold_is_not_read_from_it(kit, change, left):
    write_prompts(kit, 3)
    changes = change(kit)
    if left == "no tokenizer":
        shutil.rmtree(kit / "pair")
        shutil.rmtree(kit / "data")
    assert runs.recorded_run(PROFILE.replace(domains=("chat",)), "greedy")
    assert runs.recorded_run(PROFILE.replace(**changes), "greedy") is None


# ---- runs of others ------------------------------------------------------------------------------


FOREIGN = {
    "a list": "[]",
    "no profile": '{"profile": null}',
    "a number as profile": '{"profile": 3, "key": []}',
    "no JSON": "\\",
    "an older kit": '{"schema": 0, "profile": {"prompts": "x"}}',
    "strange types": '{"schema": [], "key_version": {}}',
}


@pytest.mark.parametrize("content", FOREIGN)
@pytest.mark.parametrize("left", ["everything", "no models"])
def test_a_foreign_folder_beside_the_runs_and_traces_is_passed_over(
    kit, content, left, monkeypatch, capsys
):
    monkeypatch.setenv(runs.PLACE, "given")
    for place in ("data/runs/small-greedy-0", "data/runs/a-a", "given/chain", "traces/x"):
        (kit / place).mkdir(parents=True)
        (kit / place / "manifest.json").write_text(FOREIGN[content])
    wanted = run_of(kit, "greedy")
    if left == "no models":
        shutil.rmtree(kit / "pair")
    assert load_or_record(PROFILE).folder == wanted
    assert load_or_record(PROFILE.replace(prompts_per_domain=1)).folder == wanted
    assert runs.recorded_run(PROFILE.replace(max_new_tokens=5), "greedy") is None
    shutil.rmtree(wanted)
    assert load_or_record(PROFILE).folder == kit / "traces" / "greedy"


def older(folder):
    forge(folder, key_version=GONE, encoded=GONE, stop_ids=GONE)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: cut_file(folder / "trace.parquet"),
        lambda folder: cut_file(folder / "manifest.json"),
        older,
    ],
)
@pytest.mark.parametrize("place", ["data/runs", "traces"])
def test_a_bad_run_of_another_study_hides_none(clone, recorded, damage, place, capsys):
    """Recorded there, studied here: without the models every run may be the wanted one."""
    shutil.rmtree(clone / "pair")
    other = clone / place / "another-sampled-0123456789abcdef"
    shutil.copytree(run_of(recorded, "sampled"), other)
    damage(other)
    for kind in ("greedy", "balanced"):
        assert load_or_record(PROFILE, kind).folder == clone / "traces" / kind
    assert runs.recorded_run(PROFILE, "chain") is None
    assert capsys.readouterr().err == ""


def test_a_damaged_run_is_named_and_its_trace_is_read_where_it_cannot_be_repaired(
    clone, recorded, capsys
):
    shutil.rmtree(clone / "pair")
    shutil.copytree(run_of(recorded, "greedy"), clone / "data/runs" / "mine")
    cut_file(clone / "data/runs/mine/nodes.parquet")
    assert load_or_record(PROFILE).folder == clone / "traces" / "greedy"
    [line] = capsys.readouterr().err.splitlines()
    assert "mine/nodes.parquet has changed" in line


# ---- a folder that is named ----------------------------------------------------------------------


def test_a_folder_is_found_in_the_repository_from_any_other(kit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = load_run("traces/greedy")
    assert found.trace.equals(load_run(kit / "traces/greedy").trace)
    shutil.copytree(kit / "traces/balanced", tmp_path / "traces/greedy")
    assert load_run("traces/greedy").manifest["kind"] == "balanced", "the working folder is first"
    assert main(["export", "data/traces/tiny/sampled-seed-1", "--for", "transformers"]) == 0


def test_what_a_folder_is_instead_of_a_run_is_said_with_what_to_do(kit, monkeypatch, random_pair):
    interrupted(monkeypatch, recording.Worker, "record", at=1)
    with pytest.raises(KeyboardInterrupt):
        record_run(PROFILE.replace(max_new_tokens=5), kit / "begun")
    for name, said in (
        ("begun", "repeat the command that began it"),
        ("traces", "is no finished run .*; name a folder with a manifest.json"),
        ("traces/gredy", "is no finished run in the working folder or in "),
    ):
        with pytest.raises(RunError, match=f"^{name} .*{said}") as error:
            load_run(name)
        assert "--out" not in str(error.value), "nothing is recorded over it"


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

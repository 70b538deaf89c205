"""Traces as data: packed and read back, found by their key; bad folders, missing models."""

import hashlib
import json
import re
import shutil

import pandas as pd
import pyarrow.parquet as pq
import pytest
from conftest import save_random_llama, seal_again

from speclab import prompts, runs, traces
from speclab.__main__ import main
from speclab.files import SCHEMAS, RunError
from speclab.models import pairs
from speclab.models.pairs import ModelsMissing
from speclab.profiles import ModelSpec, Profile
from speclab.runs import load_or_record, load_run

LICENCE = "prompts and text: MIT"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder as a small repository: a random pair, a few prompts, and runs of three kinds."""
    root = tmp_path_factory.mktemp("recorded")
    save_random_llama(root / "pair/target", 1)
    save_random_llama(root / "pair/draft", 2, layers=1, kv_heads=1)
    promise(root / "pair/target")
    rows = [
        {"prompt_id": f"{d}-{i}", "domain": d, "prompt": "a b c d"[: 2 * i + 1]}
        for d in ("code", "chat")
        for i in range(2)
    ]
    (root / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with at(root):
        for kind in ("greedy", "sampled", "balanced"):
            load_or_record(PROFILE, kind)
    return root


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
    notes={"licence": LICENCE},
    traces="traces",
)


def promise(folder):
    """What `make pair` would make, as the folder's source.json names it."""
    content = (folder / "model.safetensors").read_bytes()
    facts = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    source = json.dumps({"weights": {"model.safetensors": facts}})
    (folder / "source.json").write_text(source)


def at(root):
    """The kit as if it stood in `root`."""
    patch = pytest.MonkeyPatch()
    patch.chdir(root)
    for module in (runs, traces, pairs):
        patch.setattr(module, "ROOT", root)
    patch.setattr(prompts, "REPOSITORY", root)
    patch.setattr(runs, "RUNS", root / "data" / "runs")
    traces.say_once.cache_clear()
    return _Undone(patch)


class _Undone:
    """Undoes what was patched at the end of a `with`."""

    def __init__(self, patch):
        self.patch = patch

    def __enter__(self):
        return self.patch

    def __exit__(self, *_):
        self.patch.undo()


def run_of(root, kind):
    return next((root / "data" / "runs").glob(f"small-{kind}-*"))


@pytest.fixture
def kit(recorded, tmp_path):
    """A copy with models and runs; nothing is packed yet."""
    root = tmp_path / "kit"
    shutil.copytree(recorded, root)
    with at(root):
        yield root


@pytest.fixture
def clone(kit):
    """As others get it: three traces, no runs, and no weights of the target."""
    for kind in ("greedy", "sampled", "balanced"):
        traces.pack(load_run(run_of(kit, kind)), kit / "traces" / kind, kind)
    shutil.rmtree(kit / "data")
    (kit / "pair/target/model.safetensors").rename(kit / "weights")
    return kit


# ---- packing -------------------------------------------------------------------------------------


def test_a_packed_run_reads_as_the_run_itself_and_is_smaller(kit):
    run = load_run(run_of(kit, "greedy"))
    folder = traces.pack(run, kit / "traces" / "greedy", "greedy")
    assert {p.name for p in folder.iterdir()} == traces.NAMES
    assert {p.name for p in folder.parent.iterdir()} == {"greedy"}
    packed = load_run(folder)
    for name in SCHEMAS:
        pd.testing.assert_frame_equal(getattr(packed, name), getattr(run, name))
        schema = run.table(name).schema
        assert packed.table(name).schema.equals(schema, check_metadata=True)
        sizes = [(f / f"{name}.parquet").stat().st_size for f in (folder, run.folder)]
        assert sizes[0] < sizes[1]
    kept = set(run.manifest) - {"profile", "files", "seal"}
    assert {name: packed.manifest[name] for name in kept} == {
        name: run.manifest[name] for name in kept
    }


def test_the_card_says_what_it_is_and_nothing_of_this_machine(kit):
    run = load_run(run_of(kit, "sampled"))
    folder = traces.pack(run, kit / "traces" / "sampled", "sampled")
    card = (folder / "README.md").read_text()
    manifest = json.loads((folder / "manifest.json").read_text())
    rows = run.manifest["rows"]
    for text in (
        "# Trace: small, sampled",
        "A random pair.",
        "| path | pair/target | pair/draft |",
        manifest["weights"]["target"],
        "| temperature | 1.0 |",
        f"| run key | {run.manifest['key']} |",
        "| prompts recorded | 4 |",
        f"| {rows['trace']} |",
        f"| {rows['nodes']} |",
        manifest["files"]["nodes.parquet"],
        LICENCE,
    ):
        assert text in card, text
    assert "{" not in card.replace("{'licence'", "")
    for text in (card, json.dumps(manifest)):
        assert str(kit) not in text and "/tmp" not in text


def test_the_command_packs_twice_and_never_over_something_else(kit, capsys):
    run, out = run_of(kit, "greedy"), kit / "given" / "greedy"
    assert main(["pack", str(run), "--out", str(out)]) == 0
    assert f"MB in {out}" in capsys.readouterr().out
    whole = {path.name: path.read_bytes() for path in out.iterdir()}
    assert main(["pack", str(run), "--out", str(out)]) == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == whole
    assert main(["pack", str(run), "--out", str(out), "--licence", "mine"]) == 0
    assert "\nmine\n" in (out / "README.md").read_text() and load_run(out)
    other = run_of(kit, "sampled")
    assert main(["pack", str(other), "--out", str(out)]) == 2
    (out / "notes.txt").write_text("mine")
    assert main(["pack", str(run), "--out", str(out)]) == 2
    assert main(["pack", str(run), "--out", str(run)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3 and all("holds something else" in line for line in said)
    assert (out / "notes.txt").read_text() == "mine" and load_run(run)


def test_without_a_licence_it_asks_for_one(kit, capsys):
    folder = run_of(kit, "greedy")
    profile = load_run(folder).manifest["profile"]
    seal_again(folder, profile=profile | {"notes": {"other": LICENCE}})
    words = ["pack", str(folder), "--out", str(kit / "out")]
    assert main(words) == 2
    assert "does not say the licence of the text" in capsys.readouterr().err
    assert not (kit / "out").exists()
    assert main([*words, "--licence", "a\nb"]) == 2
    assert "write it in one line" in capsys.readouterr().err
    assert main([*words, "--licence", "MIT"]) == 0


def test_a_kind_is_told_by_the_folder_or_given_and_has_to_fit(kit, capsys):
    moved = run_of(kit, "sampled").rename(kit / "moved")
    words = ["pack", str(moved), "--out", str(kit / "out")]
    assert main(words) == 2
    assert "give --kind with one of greedy" in capsys.readouterr().err
    assert main([*words, "--kind", "balanced"]) == 2
    assert "has budget=None, this one has 8" in capsys.readouterr().err
    assert main([*words, "--kind", "sampled"]) == 0
    assert load_run(kit / "out").manifest["kind"] == "sampled"


@pytest.mark.parametrize("name", ["target", "draft", "prompts"])
def test_a_run_of_places_that_others_do_not_have_is_refused(kit, name):
    place = kit / "prompts.jsonl" if name == "prompts" else kit / "pair" / name
    model = ModelSpec(str(place), device="cpu")
    value = str(place) if name == "prompts" else model
    run = load_or_record(PROFILE.replace(**{name: value}))
    with pytest.raises(RunError, match=f"{place}, a place that others do not have"):
        traces.pack(run, kit / "out", "greedy")
    assert not (kit / "out").exists()


def test_half_a_trace_is_never_taken_for_a_whole_one(kit, monkeypatch):
    run, out = load_run(run_of(kit, "greedy")), kit / "traces" / "greedy"
    order = []
    honest = traces.written

    def stops_before_the_manifest(path, write, *words):
        order.append(path.name)
        if path.name == "manifest.json":
            raise KeyboardInterrupt
        honest(path, write, *words)

    monkeypatch.setattr(traces, "written", stops_before_the_manifest)
    with pytest.raises(KeyboardInterrupt):
        traces.pack(run, out, "greedy")
    assert order[-1] == "manifest.json" and len(order) == 4
    assert not out.exists() and traces.shipped(PROFILE) == []
    monkeypatch.setattr(traces, "written", honest)
    assert load_run(traces.pack(run, out, "greedy"))


def test_a_full_disk_keeps_the_trace_that_is_there(kit, monkeypatch):
    run, out = load_run(run_of(kit, "greedy")), kit / "traces" / "greedy"
    traces.pack(run, out, "greedy")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(RunError, match=r"No space left on device\. The run itself"):
        traces.pack(run, out, "greedy")
    assert load_run(out) and [p.name for p in out.parent.iterdir()] == ["greedy"]


# ---- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["greedy", "sampled", "balanced"])
def test_a_trace_is_read_where_the_models_are_not_and_says_so_once(clone, kind, capsys):
    first, again = (load_or_record(PROFILE, kind) for _ in range(2))
    assert first.folder == again.folder == clone / "traces" / kind
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 1
    assert re.fullmatch(rf"read from traces/{kind} \(recorded \d+-\d+-\d+\)", out[0])


def test_the_environment_names_another_place(clone, monkeypatch):
    (clone / "traces").rename(clone / "given")
    assert traces.shipped(PROFILE) == []
    for place in ("given", "given/greedy"):
        monkeypatch.setenv(traces.PLACE, place)
        assert load_or_record(PROFILE).folder.resolve() == clone / "given" / "greedy"
    monkeypatch.setenv(traces.PLACE, "nowhere")
    with pytest.raises(ValueError, match="SPECLAB_TRACES=nowhere: no trace there"):
        load_or_record(PROFILE)


def test_own_runs_come_before_traces(kit, capsys):
    run = load_run(run_of(kit, "greedy"))
    traces.pack(run, kit / "traces" / "greedy", "greedy")
    assert load_or_record(PROFILE).folder == run.folder
    assert capsys.readouterr().out == ""


def test_a_kind_of_the_same_settings_is_not_recorded_twice(kit, monkeypatch):
    """With `budget: null` a balanced tree is the profile's own."""
    complete = PROFILE.replace(budget=None)
    monkeypatch.setattr(runs, "record_run", lambda *a, **k: pytest.fail("recorded"))
    folder = run_of(kit, "balanced")
    assert load_or_record(complete, "greedy").folder == folder
    traces.pack(load_run(folder), kit / "traces" / "balanced", "balanced")
    shutil.rmtree(kit / "data")
    assert load_or_record(complete, "greedy").folder == kit / "traces" / "balanced"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_new_tokens": 5}, "max_new_tokens is 6 there, 5 is asked"),
        ({"prompts_per_domain": 1}, "prompts_per_domain is 2 there, 1 is asked"),
        (
            {"target": ModelSpec("pair/target", device="cpu", dtype="float16")},
            "target.dtype is auto there, float16 is asked",
        ),
    ],
)
def test_other_settings_are_named_and_recorded_or_say_what_is_missing(
    clone, changes, words, monkeypatch, capsys
):
    asked = PROFILE.replace(**changes)
    with pytest.raises(ModelsMissing) as error:
        load_or_record(asked)
    said = str(error.value)
    assert f"traces/greedy is another run ({words})" in said
    assert "`make pair PROFILE=pair`" in said and "\n" not in said
    assert not (clone / "data").exists()
    (clone / "weights").rename(clone / "pair/target/model.safetensors")
    monkeypatch.setattr(runs, "record_run", lambda profile, *a, **k: profile)
    assert load_or_record(asked) == asked
    assert capsys.readouterr().out.count(f"({words}): recording") == 1


def test_other_weights_and_other_prompts_are_named(kit, monkeypatch, capsys):
    traces.pack(load_run(run_of(kit, "greedy")), kit / "traces" / "greedy", "greedy")
    shutil.rmtree(kit / "data")
    monkeypatch.setattr(runs, "record_run", lambda profile, *a, **k: profile)
    text = (kit / "prompts.jsonl").read_text()
    (kit / "prompts.jsonl").write_text(text.replace("a b", "b a"))
    load_or_record(PROFILE)
    assert "is another run (the prompts are others): rec" in capsys.readouterr().out
    (kit / "prompts.jsonl").write_text(text)
    save_random_llama(kit / "pair/draft", 3, layers=1, kv_heads=1)
    load_or_record(PROFILE)
    assert "(the weights of draft are others)" in capsys.readouterr().out


def test_the_text_of_a_trace_is_read_for_another_tree(kit, monkeypatch):
    greedy = load_run(run_of(kit, "greedy"))
    texts = runs.texts_of(greedy)
    traces.pack(greedy, kit / "traces" / "greedy", "greedy")
    shutil.rmtree(kit / "data")
    given = {}
    monkeypatch.setattr(runs, "record_run", lambda *a, **k: given.update(k))
    load_or_record(PROFILE, "chain")
    assert given["texts"] == texts and len(texts) == 4


def test_nothing_recorded_and_no_models_says_how_to_get_them(clone):
    shutil.rmtree(clone / "traces")
    with pytest.raises(ModelsMissing, match="no trace in traces, which small names"):
        load_or_record(PROFILE, "sampled")


def test_a_pinned_commit_of_the_hub_is_named_without_fetching_it():
    commit = "0123456789" * 4
    spec = ModelSpec("owner/no-such-model", revision=commit)
    assert runs.model_digest(spec) == commit


# ---- bad input -----------------------------------------------------------------------------------


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])


def edit(**changes):
    def change(path):
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def test_traces_that_are_not_where_the_profile_says_are_missed_aloud(clone):
    away = PROFILE.replace(traces="elsewhere")
    with pytest.raises(ModelsMissing, match="no trace in elsewhere, which small names"):
        load_or_record(away)


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("trace.parquet", cut, "greedy/trace.parquet is damaged (its SHA-256"),
        ("nodes.parquet", flip, "greedy/nodes.parquet is damaged (its SHA-256"),
        ("nodes.parquet", lambda path: path.unlink(), "no nodes.parquet"),
        ("README.md", lambda path: path.unlink(), "no README.md, and a trace is not"),
        ("manifest.json", cut, "manifest.json is damaged (not JSON: "),
        ("manifest.json", lambda p: p.write_bytes(b"\xff"), "is not text in UTF-8"),
        ("manifest.json", lambda p: p.write_text("[]"), "an object is needed, a list"),
        ("manifest.json", lambda p: p.write_text("{}"), "is no manifest (needed are"),
        ("manifest.json", edit(prompts=9), "manifest.json is not as it was written"),
        ("manifest.json", edit(schema=0), "schema version 0, this kit reads 1"),
    ],
)
def test_a_bad_folder_is_named_in_one_line_and_kept(clone, name, damage, words):
    folder = clone / "traces" / "greedy"
    damage(folder / name)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(RunError) as error:
        load_or_record(PROFILE)
    said = str(error.value)
    assert words in said and "\n" not in said and "remove" in said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert load_or_record(PROFILE, "sampled"), "the others are read"


# ---- kinds that every machine records ------------------------------------------------------------


def test_a_kind_that_is_recorded_here_is_not_read_from_its_trace(
    clone, monkeypatch, capsys
):
    (clone / "weights").rename(clone / "pair/target/model.safetensors")
    own = PROFILE.replace(recorded=("sampled",))
    assert load_or_record(own, "greedy").folder == clone / "traces" / "greedy"
    assert runs.recorded_run(own, "sampled") is None
    fresh = load_or_record(own, "sampled")
    assert fresh.folder.parent == clone / "data" / "runs"
    shipped = load_run(clone / "traces" / "sampled")
    pd.testing.assert_frame_equal(fresh.trace, shipped.trace)
    said = capsys.readouterr().err
    assert "another run" not in said
    monkeypatch.setenv("SPECLAB_TRACES", str(clone / "traces"))
    shutil.rmtree(clone / "data")
    assert load_or_record(own, "sampled").folder == clone / "traces" / "sampled"


def test_a_kind_that_there_is_not_is_named(kit):
    with pytest.raises(
        ValueError, match="'gredy' is no kind of run; allowed are greedy, s"
    ):
        runs.recorded_run(PROFILE.replace(recorded=("gredy",)), "greedy")

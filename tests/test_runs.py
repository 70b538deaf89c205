"""Runs on disk: files and columns, resuming to the same bytes, keys, and wrong folders."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from conftest import contents, cut_file, edit_json, interrupted, tables
from filelock import FileLock
from pandas.testing import assert_frame_equal
from safetensors.torch import load_file, save_file

from speclab.study import recording, runs
from speclab.study.profiles import ROOT, load_profile
from speclab.study.runs import RunError, load_or_record, load_run, record_run, run_key


def test_a_run_has_the_specified_columns_and_a_manifest(short_run):
    trace, manifest = short_run.trace, short_run.manifest
    assert list(trace) == [*runs.SCHEMAS["trace"].names, "hit"]
    assert list(short_run.nodes) == runs.SCHEMAS["nodes"].names
    assert manifest["rows"] == {"trace": len(trace), "nodes": 8 * len(trace)}
    assert manifest["prompts"] == trace.prompt_id.nunique() == 6
    assert manifest["libraries"]["torch"] and manifest["peak_bytes"]["process"] > 0
    assert manifest["pair"]["target"]["kernel"] == "Linear"


def test_a_run_that_was_stopped_goes_on_and_ends_with_the_same_bytes(
    short_profile, short_run, tmp_path, random_pair, monkeypatch
):
    calls = interrupted(monkeypatch, recording.Worker, "record", at=2)
    folder = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        record_run(short_profile, folder, random_pair)
    assert (folder / "parts/00000.json").is_file()
    assert not (folder / "manifest.json").exists()
    record_run(short_profile, folder, random_pair)
    assert [index for _, index in calls] == [0, 1, 1, 2, 3, 4, 5]
    assert tables(folder) == tables(short_run.folder)


def test_a_text_read_from_another_run_gives_the_same_rows(
    short_profile, short_run, tmp_path, random_pair
):
    other, texts = short_profile.replace(budget=None), runs.texts_of(short_run)
    made = record_run(other, tmp_path / "made", random_pair)
    read = record_run(other, tmp_path / "read", random_pair, texts)
    for table in ("trace", "nodes"):  # another pass rounds otherwise
        assert_frame_equal(getattr(made, table), getattr(read, table), atol=1e-5)


def moved(profile, root):
    """The profile with its models and prompts copied to another folder."""
    for name in ("target", "draft"):
        shutil.copytree(getattr(profile, name).path, root / name)
    models = {n: replace(getattr(profile, n), path=str(root / n)) for n in ("target", "draft")}
    prompts = shutil.copy(profile.prompts, root / "moved.jsonl")
    return profile.replace(prompts=str(prompts), **models)


def test_the_key_follows_what_decides_the_numbers_and_nothing_else(short_profile, tmp_path):
    key = run_key(short_profile)
    same = short_profile.replace(block_prompts=5, max_packed_tokens=9, name="other")
    assert run_key(same) == run_key(same.replace(seed=7, top_k=3, min_p=0.1)) == key, "T = 0"
    assert run_key(same.replace(level=0.9, font="Noto Sans", wide_tables=True)) == key, "shown"
    full = replace(short_profile.target, dtype="float32", device="auto")
    assert run_key(moved(short_profile, tmp_path).replace(target=full)) == key
    changes = [
        {"temperature": 1.0, "seed": 1},
        {"max_new_tokens": 5},
        {"temperature": 1.0},
        {"temperature": 1.0, "min_p": 0.1},
        {"budget": 7},
        {"prompts_per_domain": 2},
        {"draft": short_profile.target},
        {"target": replace(short_profile.target, dtype="float16")},
    ]
    others = {run_key(short_profile.replace(**change)) for change in changes}
    assert len(others - {key}) == len(changes)


def test_a_system_message_and_variables_of_the_template_are_in_the_key_where_they_are_set(
    short_profile, tmp_path
):
    plain = moved(short_profile, tmp_path)
    template = "{{ messages[0].content }}{{ last }}"
    (tmp_path / "target" / "chat_template.jinja").write_text(template)
    asked = plain.replace(template="chat")
    told, both = (asked.replace(system="a", template_arguments=more) for more in ({}, {"last": 1}))
    assert len({run_key(asked), run_key(told), run_key(both)}) == 3
    # where no tokenizer tells the token ids, the keys of the profile do
    run, wanted = runs.identity_of(asked), runs.identity_of(both)
    assert runs.what_differs(run, wanted) == ["prompts"]
    del wanted["encoded"]
    assert runs.what_differs(run, wanted) == ["system", "template_arguments"]
    # without a template there is neither
    assert run_key(runs.of_kind(both, "plain-template")) == run_key(plain)
    assert (runs.other_format(asked), runs.other_format(told)) == ("plain-template", None)


def other_weights(folder):
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] *= 2
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def other_token(folder):
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace('"w30"', '"W30"'))


TEMPLATE = "{{ messages[0].content }}"
READ_OTHERWISE = {
    "template": lambda folder: (folder / "chat_template.jinja").write_text(f"a {TEMPLATE}"),
    "stop id": lambda folder: edit_json(folder / "generation_config.json", eos_token_id=[1, 9]),
    "penalty": lambda folder: edit_json(folder / "generation_config.json", repetition_penalty=1.1),
    "end of a text": lambda folder: edit_json(folder / "tokenizer_config.json", eos_token="b"),
    "tokenizer": other_token,
    "weights": other_weights,
}


@pytest.mark.parametrize("change", READ_OTHERWISE)
def test_a_run_that_the_target_reads_otherwise_is_another(
    short_profile, tmp_path, monkeypatch, change
):
    monkeypatch.setattr(runs, "RUNS", tmp_path / "runs")
    asked = moved(short_profile, tmp_path).replace(template="chat")
    folder = tmp_path / ("0123456789" * 4)  # named as a commit of the hub
    (tmp_path / "target").rename(folder)
    asked = asked.replace(target=replace(asked.target, path=str(folder)))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    first = load_or_record(asked)
    assert load_or_record(asked).folder == first.folder
    begun = tmp_path / "begun"
    interrupted(monkeypatch, recording.Worker, "record", at=2)
    with pytest.raises(KeyboardInterrupt):
        record_run(asked, begun)
    READ_OTHERWISE[change](folder)
    if change == "tokenizer":
        other_token(tmp_path / "draft")
    with pytest.raises(RunError, match="other settings"):
        record_run(asked, begun)
    assert load_or_record(asked).folder != first.folder


NO_EFFECT = {
    **{"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "bad_words_ids": None, "num_beams": 1},
    **{"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.1},
    **{"max_length": 99},
    **{"num_assistant_tokens": 5, "cache_implementation": "hybrid", "length_penalty": 0.5},
}


def test_what_the_target_asks_for_and_the_kit_leaves_out_is_said_and_held(
    short_profile, tmp_path, capsys
):
    asked = moved(short_profile, tmp_path)
    file = "generation_config.json"
    edit_json(tmp_path / "draft" / file, repetition_penalty=1.3)
    file = tmp_path / "target" / file
    edit_json(file, **NO_EFFECT)
    plain = runs.identity_of(asked)
    assert plain["key"] == run_key(short_profile)
    edit_json(file, typical_p=0.5, no_repeat_ngram_size=2, sequence_bias=[[[3], -9.5]])
    run = record_run(asked, tmp_path / "run")
    record_run(asked, tmp_path / "again")
    said = capsys.readouterr().out
    assert said.count("no_repeat_ngram_size=2") == 1 and f"its {file.name} asks for" in said
    assert "typical_p" not in said, "it changes no greedy text"
    left_out = {"no_repeat_ngram_size": 2, "sequence_bias": [[[3], -9.5]]}
    assert run.manifest["left_out"] == left_out
    assert runs.what_differs(run.manifest, plain) == ["left_out"]
    assert runs.what_differs(run.manifest, runs.identity_of(asked)) == []
    warm = runs.identity_of(asked.replace(temperature=1.0))
    assert warm["left_out"] == left_out | {"typical_p": 0.5}


def test_a_folder_of_data_runs_is_not_believed_by_its_name(
    short_profile, short_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(runs, "RUNS", tmp_path)
    other = short_profile.replace(max_new_tokens=5)
    shutil.copytree(short_run.folder, tmp_path / f"random-greedy-{run_key(other)}")
    assert runs.recorded_run(other, "greedy") is None
    with pytest.raises(RunError, match="other settings"):
        load_or_record(other)


def test_kinds_of_sampled_text_have_different_seeds(short_profile):
    for seed in (0, 1, 2, 3, 42):
        profile = short_profile.replace(seed=seed)
        kinds = ("sampled", *runs.SEEDS)
        seeds = [runs.of_kind(profile, kind).seed for kind in kinds]
        assert len({*seeds}) == 6 and seeds[0] == seed


@pytest.mark.parametrize(("pair", "seeds"), [("smollm", 6), ("tiny", 3)])
def test_further_seeds_are_read_where_they_are_recorded(pair, seeds):
    assert len(runs.seeds_of(load_profile(pair))) == seeds


@pytest.mark.parametrize(("asked", "sampled"), [(0.0, 1.0), (0.7, 0.7), (1.0, 1.0)])
def test_a_profile_has_two_temperatures(short_profile, asked, sampled):
    profile = short_profile.replace(temperature=asked)
    temperatures = {kind: runs.of_kind(profile, kind).temperature for kind in runs.KINDS}
    assert {temperatures[kind] for kind in ("greedy", "balanced", "chain", "long")} == {0.0}
    assert {temperatures[kind] for kind in ("sampled", *runs.SEEDS)} == {sampled}


def test_other_prompts_have_runs_of_their_own(short_profile, tmp_path):
    mine = tmp_path / "mine.jsonl"
    profile = short_profile.replace(other_prompts=(str(mine), "second"), prompts_per_domain=3)
    greedy, sampled = (runs.of_kind(profile, f"other-mine{end}") for end in ("", "-sampled"))
    assert (greedy.prompts, greedy.prompts_per_domain, greedy.temperature) == (str(mine), None, 0)
    assert sampled.temperature == 1.0 and runs.of_kind(profile, "second").prompts == "second"
    with pytest.raises(ValueError, match="kind='unwrapped': .*other-mine"):
        runs.of_kind(profile, "unwrapped")
    twice = profile.replace(other_prompts=(str(mine), "elsewhere/mine.jsonl"))
    with pytest.raises(ValueError, match="two sets have the name 'other-mine'"):
        runs.kinds_of(twice)


@pytest.mark.parametrize("pair", ["tiny", "smollm"])
def test_the_keys_are_those_of_the_shipped_traces(pair):
    profile = load_profile(pair)
    for folder in (ROOT / "data" / "traces" / pair).iterdir():
        key = load_run(folder).manifest["key"]
        assert run_key(runs.of_kind(profile, folder.name)) == key


@pytest.fixture
def short_of_memory(monkeypatch):
    """A function of the recorder that runs out of memory if `too_large` holds for its arguments."""

    def limit(name, too_large):
        honest = getattr(recording, name)

        def limited(*given):
            if too_large(*given):
                raise torch.OutOfMemoryError("not even one")
            return honest(*given)

        monkeypatch.setattr(recording, name, limited)

    return limit


def test_out_of_memory_halves_what_is_done_at_once(
    short_profile, short_run, tmp_path, random_pair, short_of_memory
):
    short_of_memory("record_prompts", lambda *given: given[5] > 600)
    run = record_run(short_profile, tmp_path / "trees", random_pair)
    assert run.manifest["max_packed_tokens"] == 512
    short_of_memory("generate", lambda _, prompts, *rest: len(prompts) > 1)
    run = record_run(short_profile.replace(block_prompts=2), tmp_path / "texts", random_pair)
    assert_frame_equal(run.trace, short_run.trace, atol=1e-5)
    short_of_memory("generate", lambda *_: True)
    with pytest.raises(torch.OutOfMemoryError, match="not even one"):
        record_run(short_profile, tmp_path / "none", random_pair)


@pytest.mark.parametrize("same", [True, False])
def test_a_second_process_waits_and_takes_the_same_run_only(
    short_profile, short_run, tmp_path, monkeypatch, same
):
    folder, waits = tmp_path / "run", threading.Event()
    monkeypatch.setattr(runs, "notice", lambda _: waits.set())
    asked = short_profile if same else short_profile.replace(max_new_tokens=5)
    nothing = {"engine": lambda job, missing: pytest.fail("recorded twice")}
    folder.mkdir()
    with ThreadPoolExecutor(1) as second, FileLock(folder / ".lock"):
        found = second.submit(record_run, asked, folder, **nothing)
        assert waits.wait(60)
        ignored = shutil.ignore_patterns("parts", ".lock")
        shutil.copytree(short_run.folder, folder, ignore=ignored, dirs_exist_ok=True)
        before = contents(folder)
    if same:
        assert found.result(60).folder == folder
    else:
        with pytest.raises(RunError, match="other settings"):
            found.result(60)
    assert contents(folder) == before, "nothing is written"


@pytest.mark.parametrize("name", ["trace.parquet", "manifest.json", "parts/00000.json"])
def test_nothing_of_somebody_else_is_written_over(short_profile, tmp_path, name):
    path = tmp_path / "theirs" / name
    path.parent.mkdir(parents=True)
    path.write_text("theirs")
    with pytest.raises(RunError, match=f"holds {name.partition('/')[0]}, of a run"):
        record_run(short_profile, tmp_path / "theirs")
    assert path.read_text() == "theirs"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("trace.parquet", lambda path: path.unlink()),
        ("nodes.parquet", cut_file),
        ("manifest.json", cut_file),
        ("manifest.json", lambda path: path.write_text("{}")),
    ],
)
def test_a_damaged_run_is_said_and_mended_from_its_parts(
    short_profile, short_run, tmp_path, monkeypatch, capsys, name, damage
):
    monkeypatch.setattr(runs, "RUNS", tmp_path)
    folder = tmp_path / f"{short_profile.name}-greedy-{run_key(short_profile)}"
    shutil.copytree(short_run.folder, folder)
    damage(folder / name)

    nobody = {"engine": lambda *_: pytest.fail("whole parts are not recorded again")}
    again = load_or_record(short_profile, **nobody)
    said = capsys.readouterr().err
    assert f"{name} has changed" in said or f"{name} is damaged" in said, "the second: no JSON"
    assert again.folder == folder and tables(folder) == tables(short_run.folder)
    load_or_record(short_profile, **nobody)
    assert capsys.readouterr().err == "", "it is whole now"


def test_an_unknown_kind_is_named(short_profile):
    profile = short_profile.replace(recorded=("gredy",))
    with pytest.raises(ValueError, match="kind='gredy': did you mean 'greedy'"):
        load_or_record(profile, "greedy")


def test_prompts_that_are_cut_are_said(short_profile, random_pair, tmp_path, capsys):
    shorter = short_profile.replace(max_prompt_tokens=2)
    run = record_run(shorter, tmp_path / "run", random_pair)
    cut = run.manifest["prompts_cut"]
    said = capsys.readouterr().err
    assert cut > 0 and "prompts are cut to 2 tokens" in said
    assert "block 1 of " in said, "a log has a line per block"

"""Runs on disk: files and columns, resume to the same bytes, keys, wrong folders."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from conftest import interrupted, tables
from filelock import FileLock

from speclab import record, runs
from speclab.__main__ import main
from speclab.profiles import ROOT, load_profile
from speclab.runs import RunError, load_or_record, load_run, record_run, run_key


def test_a_run_has_the_specified_columns_and_a_manifest(short_run):
    trace, nodes, manifest = short_run.trace, short_run.nodes, short_run.manifest
    assert list(trace) == runs.SCHEMAS["trace"].names
    assert list(nodes) == runs.SCHEMAS["nodes"].names
    assert len(nodes) == 8 * len(trace) and trace.prompt_id.nunique() == 6
    for prompt, rows in trace.groupby("prompt_id"):
        assert rows.position.tolist() == list(range(len(rows))), prompt
    first = nodes[(nodes.depth == 1) & (nodes["rank"] == 0)].target_prob.to_numpy()
    np.testing.assert_allclose(first, np.stack(trace.top_draft_p)[:, 0], atol=1e-6)
    assert manifest["rows"] == {"trace": len(trace), "nodes": len(nodes)}
    assert manifest["prompts"] == 6 and manifest["libraries"]["torch"]
    assert manifest["pair"]["target"]["kernel"] == "Linear"
    assert manifest["peak_bytes"]["process"] > 0


def test_a_run_that_was_stopped_goes_on_and_ends_with_the_same_bytes(
    short_profile, short_run, tmp_path, random_pair, monkeypatch
):
    calls = interrupted(monkeypatch, record.Worker, "record", at=2)
    folder = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        record_run(short_profile, folder, random_pair)
    assert (folder / "parts/00000.json").is_file()
    assert not (folder / "manifest.json").exists()
    record_run(short_profile, folder, random_pair)
    assert [index for _, index in calls] == [0, 1, 1, 2, 3, 4, 5]
    assert tables(folder) == tables(short_run.folder)


def test_a_text_read_from_another_run_gives_the_same_bytes(
    short_profile, short_run, tmp_path, random_pair
):
    other, texts = short_profile.replace(budget=None), runs.texts_of(short_run)
    made = record_run(other, tmp_path / "made", random_pair)
    read = record_run(other, tmp_path / "read", random_pair, texts)
    assert tables(made.folder) == tables(read.folder)


def test_the_key_follows_what_changes_the_numbers_and_nothing_else(short_profile):
    key = run_key(short_profile)
    same = short_profile.replace(block_prompts=5, max_packed_tokens=9, name="other")
    assert run_key(same) == key
    changes = [
        {"seed": 1},
        {"max_new_tokens": 5},
        {"temperature": 1.0},
        {"budget": 7},
        {"prompts_per_domain": 2},
        {"draft": short_profile.target},
    ]
    others = {run_key(short_profile.replace(**change)) for change in changes}
    assert len(others - {key}) == len(changes)


@pytest.mark.parametrize("pair", ["tiny", "smollm"])
def test_the_keys_are_those_of_the_shipped_traces(pair):
    profile = load_profile(pair)
    for folder in (ROOT / "data" / "traces" / pair).iterdir():
        key = load_run(folder).manifest["key"]
        assert run_key(runs.of_kind(profile, folder.name)) == key


def test_out_of_memory_halves_the_packing_and_goes_on(
    short_profile, tmp_path, random_pair, monkeypatch
):
    honest = record.record_prompt

    def short_of_memory(pair, prompt, text, tree, sampling, packed):
        if packed > 600:
            raise torch.OutOfMemoryError("no")
        return honest(pair, prompt, text, tree, sampling, packed)

    monkeypatch.setattr(record, "record_prompt", short_of_memory)
    run = record_run(short_profile, tmp_path / "run", random_pair)
    assert run.manifest["max_packed_tokens"] == 512


def test_out_of_memory_while_writing_texts_halves_the_prompts_at_once(
    short_profile, short_run, tmp_path, random_pair, monkeypatch
):
    profile = short_profile.replace(block_prompts=2)
    honest, sizes, most = record.generate, [], 1

    def short_of_memory(model, prompts, *rest):
        sizes.append(len(prompts))
        if len(prompts) > most:
            raise torch.OutOfMemoryError("not even one")
        return honest(model, prompts, *rest)

    monkeypatch.setattr(record, "generate", short_of_memory)
    run = record_run(profile, tmp_path / "run", random_pair)
    assert run.trace.equals(short_run.trace) and sizes == [2, *[1] * 6]
    most = 0
    with pytest.raises(torch.OutOfMemoryError, match="not even one"):
        record_run(profile, tmp_path / "none", random_pair)


def test_a_run_of_other_settings_is_refused_before_anything_is_written(
    short_profile, run_copy, random_pair
):
    def files():
        kept = (path for path in run_copy.rglob("*") if path.name != ".lock")
        return {path: path.stat().st_mtime_ns for path in kept}

    before = files()
    with pytest.raises(RunError, match="other settings"):
        record_run(short_profile.replace(seed=1), run_copy, random_pair)
    assert files() == before


def test_a_second_process_waits_and_takes_what_the_first_made(
    short_profile, short_run, tmp_path, monkeypatch
):
    folder, waits = tmp_path / "run", threading.Event()
    monkeypatch.setattr(runs, "print", lambda *_, **__: waits.set(), raising=False)
    nothing = {"engine": lambda job, missing: pytest.fail("recorded twice")}
    folder.mkdir()
    with ThreadPoolExecutor(1) as second, FileLock(folder / ".lock"):
        found = second.submit(record_run, short_profile, folder, **nothing)
        assert waits.wait(60)
        for file in short_run.folder.iterdir():
            if file.is_file() and file.name != ".lock":
                shutil.copy(file, folder)
    assert found.result(60).folder == folder
    assert tables(folder) == tables(short_run.folder)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("trace.parquet", lambda path: path.unlink()),
        ("nodes.parquet", cut_short),
        ("manifest.json", cut_short),
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
    assert f"{name} is" in capsys.readouterr().err
    assert again.folder == folder and tables(folder) == tables(short_run.folder)
    load_or_record(short_profile, **nobody)
    assert capsys.readouterr().err == "", "it is whole now"


def test_an_unknown_kind_is_named(short_profile):
    with pytest.raises(ValueError, match="kind='greddy': allowed are greedy"):
        load_or_record(short_profile, "greddy")
    with pytest.raises(ValueError, match="kind='gredy': allowed are greedy"):
        load_or_record(short_profile.replace(recorded=("gredy",)))


def test_the_command_line_records(short_profile, tmp_path, capsys):
    out = tmp_path / "out"
    sets = [
        "prompts_per_domain=1",
        "max_new_tokens=4",
        "max_prompt_tokens=64",
        f"prompts={short_profile.prompts}",
        "domains=[code]",
        f"target.path={short_profile.target.path}",
        f"draft.path={short_profile.draft.path}",
    ]
    words = ["record", "--profile", "tiny", "--kind", "sampled", "--out", str(out)]
    assert main([*words, *(f"--set={change}" for change in sets)]) == 0
    assert "nodes in" in capsys.readouterr().out
    assert load_run(out).manifest["kind"] == "sampled"


def test_prompts_that_are_cut_are_said(short_profile, random_pair, tmp_path, capsys):
    shorter = short_profile.replace(max_prompt_tokens=2)
    run = record_run(shorter, tmp_path / "run", random_pair)
    cut = run.manifest["prompts_cut"]
    assert cut > 0 and f"{cut} prompts are cut to 2 tokens" in capsys.readouterr().err

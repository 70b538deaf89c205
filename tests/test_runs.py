"""Runs on disk: files and columns, resume to the same bytes, damaged parts, keys, bad input."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import seal_again
from filelock import FileLock

import speclab.runs as runs
from speclab import record
from speclab.__main__ import main
from speclab.files import Damaged
from speclab.runs import RunError, load_or_record, load_run, record_run, run_key


@pytest.fixture
def profile(random_profile, tmp_path):
    """The random pair over six short prompts in three blocks."""
    rows = [
        {"prompt_id": f"{d}-{i}", "domain": d, "prompt": "a b c d"[: 2 * i + 1]}
        for d in ("code", "chat")
        for i in range(3)
    ]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return random_profile.replace(
        prompts=str(tmp_path / "prompts.jsonl"),
        prompts_per_domain=3,
        domains=("code", "chat"),
        block_prompts=2,
        max_new_tokens=6,
    )


def contents(folder):
    return {
        name: (folder / name).read_bytes()
        for name in ("trace.parquet", "nodes.parquet")
    }


def test_a_run_has_the_specified_columns_and_a_manifest(profile, tmp_path, random_pair):
    run = record_run(profile, tmp_path / "run", random_pair)
    assert (
        list(run.trace) == runs.SCHEMAS["trace"].names
        and list(run.nodes) == runs.SCHEMAS["nodes"].names
    )
    assert len(run.nodes) == 8 * len(run.trace) and run.trace.prompt_id.nunique() == 6
    for (prompt, _), rows in run.trace.groupby(["prompt_id", "domain"]):
        assert rows.position.tolist() == list(range(len(rows))), prompt
    first = run.nodes[(run.nodes.depth == 1) & (run.nodes["rank"] == 0)]
    np.testing.assert_allclose(
        first.target_prob.to_numpy(), np.stack(run.trace.top_draft_p)[:, 0], atol=1e-6
    )
    manifest = run.manifest
    assert (
        manifest["rows"] == {"trace": len(run.trace), "nodes": len(run.nodes)}
        and manifest["prompts"] == 6
    )
    assert (
        manifest["pair"]["target"]["kernel"] == "Linear"
        and manifest["libraries"]["torch"]
        and manifest["peak_bytes"]["process"] > 0
    )


def test_a_run_that_was_stopped_goes_on_and_ends_with_the_same_bytes(
    profile, tmp_path, random_pair, monkeypatch
):
    whole = contents(record_run(profile, tmp_path / "whole", random_pair).folder)
    honest, calls = record.Worker.record, []

    def stops_in_the_second_block(worker, index):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return honest(worker, index)

    monkeypatch.setattr(record.Worker, "record", stops_in_the_second_block)
    with pytest.raises(KeyboardInterrupt):
        record_run(profile, tmp_path / "cut", random_pair)
    assert (tmp_path / "cut/parts/00000.json").is_file() and not (
        tmp_path / "cut/manifest.json"
    ).exists()
    record_run(profile, tmp_path / "cut", random_pair)
    assert len(calls) == 4 and contents(tmp_path / "cut") == whole


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[: len(b) // 2], lambda b: b[:100] + bytes([b[100] ^ 1]) + b[101:]],
)
def test_a_damaged_part_is_recorded_again_and_said(
    profile, tmp_path, random_pair, damage, capfd
):
    folder = record_run(profile, tmp_path / "run", random_pair).folder
    whole, part = contents(folder), folder / "parts/00001.nodes.parquet"
    part.write_bytes(damage(part.read_bytes()))
    record_run(profile, folder, random_pair)
    assert "part 1 in" in (said := capfd.readouterr().err) and "damaged" in said
    assert contents(folder) == whole


def test_a_text_read_from_another_run_gives_the_same_bytes(
    profile, tmp_path, random_pair
):
    first = record_run(profile, tmp_path / "greedy", random_pair)
    other = profile.replace(budget=None)
    made, read = (
        record_run(other, tmp_path / name, random_pair, texts=t)
        for name, t in (("made", None), ("read", runs.texts_of(first)))
    )
    assert contents(made.folder) == contents(read.folder)


def test_the_key_follows_what_changes_the_numbers_and_nothing_else(profile):
    key = run_key(profile)
    assert (
        run_key(profile.replace(block_prompts=5, max_packed_tokens=9, name="other"))
        == key
    )
    changes = [
        {"seed": 1},
        {"max_new_tokens": 5},
        {"temperature": 1.0},
        {"budget": 7},
        {"prompts_per_domain": 2},
        {"draft": profile.target},
    ]
    assert len({run_key(profile.replace(**c)) for c in changes} | {key}) == 1 + len(
        changes
    )


def test_out_of_memory_halves_the_packing_and_goes_on(
    profile, tmp_path, random_pair, monkeypatch, capfd
):
    import torch

    honest = record.record_prompt

    def short_of_memory(pair, prompt, text, tree, sampling, packed):
        if packed > 600:
            raise torch.OutOfMemoryError("no")
        return honest(pair, prompt, text, tree, sampling, packed)

    monkeypatch.setattr(record, "record_prompt", short_of_memory)
    run = record_run(profile, tmp_path / "run", random_pair)
    assert (
        capfd.readouterr().err.count("out of memory") == 2
        and run.manifest["max_packed_tokens"] == 512
    )


def test_out_of_memory_while_writing_texts_halves_the_prompts_at_once(
    profile, tmp_path, random_pair, monkeypatch, capfd
):
    import torch

    whole = contents(record_run(profile, tmp_path / "whole", random_pair).folder)
    honest, sizes = record.generate, []

    def short_of_memory(model, prompts, *rest):
        sizes.append(len(prompts))
        if len(prompts) > 1:
            raise torch.OutOfMemoryError("no")
        return honest(model, prompts, *rest)

    monkeypatch.setattr(record, "generate", short_of_memory)
    assert contents(record_run(profile, tmp_path / "run", random_pair).folder) == whole
    assert (
        sizes == [2, 1, 1] * 3
        and "going on with 1 prompts at once" in capfd.readouterr().err
    )
    monkeypatch.setattr(
        record,
        "generate",
        lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("not even one")),
    )
    with pytest.raises(torch.OutOfMemoryError, match="not even one"):
        record_run(profile, tmp_path / "none", random_pair)


def test_packing_starts_from_what_is_free(profile, tmp_path, random_pair, monkeypatch):
    monkeypatch.setattr(record, "packed_tokens_for", lambda pair, profile: 64)
    assert (
        record_run(profile, tmp_path / "run", random_pair).manifest["max_packed_tokens"]
        == 64
    )


def test_folders_that_cannot_be_used_say_so(
    profile, tmp_path, random_pair, monkeypatch
):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RunError, match="cannot write .*choose another folder"):
        record_run(profile, blocked / "run", random_pair)
    record_run(profile, tmp_path / "run", random_pair)
    with pytest.raises(RunError, match="other settings"):
        record_run(profile.replace(seed=1), tmp_path / "run", random_pair)
    (tmp_path / "run" / "settings.json").write_text("{")
    with pytest.raises(Damaged, match=r"settings\.json is damaged .*choose another"):
        record_run(profile, tmp_path / "run", random_pair)
    with pytest.raises(RunError, match="no finished run"):
        load_run(tmp_path)

    def full(table, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(RunError, match="No space left on device.*free space"):
        record_run(profile, tmp_path / "full", random_pair)


def test_two_runs_on_one_folder_are_refused(profile, tmp_path, random_pair):
    (tmp_path / "run").mkdir()
    with (
        FileLock(tmp_path / "run" / ".lock"),
        pytest.raises(RunError, match="being written by another run"),
    ):
        record_run(profile, tmp_path / "run", random_pair)


def test_a_second_process_waits_and_takes_what_the_first_made(
    profile, tmp_path, random_pair, monkeypatch
):
    first = record_run(profile, tmp_path / "first", random_pair).folder
    folder, waits = tmp_path / "run", threading.Event()
    monkeypatch.setattr(runs, "print", lambda *_, **__: waits.set(), raising=False)
    nothing = {"engine": lambda job, missing: pytest.fail("recorded twice")}
    folder.mkdir()
    with ThreadPoolExecutor(1) as second, FileLock(folder / ".lock"):
        found = second.submit(record_run, profile, folder, wait=True, **nothing)
        assert waits.wait(60)
        for file in first.iterdir():
            if file.is_file() and file.name != ".lock":
                shutil.copy(file, folder)
    assert found.result(60).folder == folder
    assert contents(folder) == contents(first)


def test_records_of_another_schema_are_refused(profile, tmp_path, random_pair):
    folder = record_run(profile, tmp_path / "run", random_pair).folder
    table = pq.read_table(folder / "nodes.parquet").replace_schema_metadata(
        {"speclab_schema": "0"}
    )
    pq.write_table(table, folder / "nodes.parquet")
    seal_again(folder)
    with pytest.raises(RunError, match="schema version 0, this kit reads 1"):
        _ = load_run(folder).nodes


def test_tokens_that_no_model_has_are_refused(profile, tmp_path, random_pair):
    folder = record_run(profile, tmp_path / "run", random_pair).folder
    said = load_run(folder).manifest["pair"]["shared_vocabulary"]
    whole = pq.read_table(folder / "trace.parquet")
    for place, name in enumerate(["token", "top_draft_ids", "draft_top"]):
        frame = whole.to_pandas()
        value = [0, said] if name == "top_draft_ids" else [-1, said][place > 0]
        frame.at[0, name] = value
        damaged = pa.Table.from_pandas(frame, whole.schema, preserve_index=False)
        pq.write_table(damaged, folder / "trace.parquet")
        seal_again(folder)
        with pytest.raises(
            Damaged, match=rf"{name} has ids from .*, the pair has 0 to"
        ):
            _ = load_run(folder).trace
    pq.write_table(whole, folder / "trace.parquet")
    seal_again(folder)
    assert len(load_run(folder).trace) == whole.num_rows


def test_a_run_that_lost_rows_is_refused(profile, tmp_path, random_pair):
    folder = record_run(profile, tmp_path / "run", random_pair).folder
    table = pq.read_table(folder / "trace.parquet")
    pq.write_table(table.slice(1), folder / "trace.parquet")
    seal_again(folder)
    with pytest.raises(Damaged, match=r"trace\.parquet: \d+ rows, the manifest says"):
        _ = load_run(folder).trace


def test_a_manifest_without_checksums_is_refused(profile, tmp_path, random_pair):
    folder = record_run(profile, tmp_path / "run", random_pair).folder
    path = folder / "manifest.json"
    kept = {k: v for k, v in load_run(folder).manifest.items() if k != "seal"}
    path.write_text(json.dumps(kept))
    with pytest.raises(
        Damaged, match=r"manifest\.json has no checksums \(an older kit"
    ):
        load_run(folder)
    path.write_text(json.dumps(kept | {"seal": "0"}))
    with pytest.raises(Damaged, match=r"manifest\.json is not as it was written"):
        load_run(folder)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "null",
        "{}",
        '{"weights": null}',
        '{"weights": {"a": 1}}',
        '{"weights": {"a": {"sha256": "zz"}}}',
    ],
)
def test_a_promise_of_weights_that_is_broken_names_its_file(tmp_path, text):
    (tmp_path / "source.json").write_text(text)
    with pytest.raises(ValueError, match=r"source\.json.*take it from the repository"):
        runs.weights_digest(tmp_path)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("trace.parquet", lambda path: path.unlink(), "no trace.parquet"),
        ("nodes.parquet", cut_short, "nodes.parquet is damaged"),
        ("manifest.json", cut_short, "manifest.json is damaged (not JSON"),
        ("manifest.json", lambda path: path.write_text("{}"), "is no manifest"),
    ],
)
def test_a_damaged_run_is_said_and_mended_from_its_parts(
    profile, tmp_path, monkeypatch, capsys, name, damage, words
):
    monkeypatch.setattr(runs, "RUNS", tmp_path / "runs")
    run = load_or_record(profile)
    before = [run.trace, run.nodes, (run.folder / "trace.parquet").read_bytes()]
    damage(run.folder / name)
    capsys.readouterr()

    def nobody(job, indices):
        raise AssertionError("whole parts are not recorded again")

    again = load_or_record(profile, engine=nobody)
    assert words in capsys.readouterr().err
    assert again.trace.equals(before[0]) and again.nodes.equals(before[1])
    assert (run.folder / "trace.parquet").read_bytes() == before[2]
    load_or_record(profile, engine=nobody)
    assert capsys.readouterr().err == "", "it is whole now"


def test_an_unknown_kind_is_named(profile):
    with pytest.raises(ValueError, match="kind='greddy': allowed are greedy"):
        load_or_record(profile, "greddy")


def test_the_command_line_records_and_reports_errors_in_one_line(
    profile, tmp_path, capsys
):
    out = tmp_path / "out"
    sets = [
        "prompts_per_domain=1",
        "max_new_tokens=4",
        "max_prompt_tokens=64",
        f"prompts={profile.prompts}",
        "domains=[code]",
        f"target.path={profile.target.path}",
        f"draft.path={profile.draft.path}",
    ]
    assert main(["record", "--profile", "tiny", "--set", *sets, "--out", str(out)]) == 0
    assert "nodes in" in capsys.readouterr().out and {
        "trace.parquet",
        "nodes.parquet",
        "manifest.json",
    } <= {p.name for p in out.iterdir()}
    assert main(["record", "--profile", "tyni", "--out", str(out)]) == 2
    assert "did you mean 'tiny'" in capsys.readouterr().err


def test_a_library_that_is_not_installed_is_left_out_of_the_manifest(
    profile, tmp_path, random_pair, monkeypatch
):
    monkeypatch.setattr(runs, "LIBRARIES", (*runs.LIBRARIES, "no_such_library"))
    libraries = record_run(profile, tmp_path / "run", random_pair, iter).manifest[
        "libraries"
    ]
    assert "torch" in libraries and "no_such_library" not in libraries

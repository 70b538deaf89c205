"""Runs from other people: manifests and tables with correct checksums that are still not valid
runs.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speclab.__main__ import main
from speclab.plain import digest_of
from speclab.study import runs
from speclab.study.runs import Damaged, RunError, load_run

GONE = object()


def forge(folder, **changes):
    """Change entries of a manifest, given by their paths, and seal it again."""
    path = folder / "manifest.json"
    facts = json.loads(path.read_text())
    del facts["seal"]
    for place, value in changes.items():
        *outer, last = place.split("__")
        inner = facts
        for name in outer:
            inner = inner[name]
        inner[last] = value
        if value is GONE:
            del inner[last]
    path.write_text(json.dumps(facts | {"seal": digest_of(facts)}))


@pytest.mark.parametrize(
    ("place", "value", "word"),
    [
        ("key", "../../x", "key"),
        ("key", "0" * 16, "key"),
        ("kind", 3, "kind"),
        ("profile", GONE, "profile"),
        ("profile", [], "profile"),
        ("profile__name", "a/../b", "profile.name"),
        ("profile__depth", 10**9, "profile"),
        ("profile__temperature", "0", "profile.temperature"),
        ("profile__domains", ["code", "code"], "twice"),
        ("profile__extra", 1, "extra"),
        ("profile__max_new_tokens", 7, "key"),
        ("pair__draft__tokens_said", -1, "tokens_said"),
        ("pair__draft__path", None, "path"),
        ("pair__target__weight_bytes", 0, "weight_bytes"),
        ("pair__shared_vocabulary", 2.5, "shared_vocabulary"),
        ("weights__target", "", "weights.target"),
        ("stop_ids", None, "stop_ids"),
        ("rows__trace", -5, "rows.trace"),
        ("rows__trace", 0, "rows.trace"),
        ("files__../../etc/passwd", "0" * 64, "passwd"),
        ("files", {}, "manifest.json"),
        ("finished", 12, "finished"),
        ("time_s", float("nan"), "time_s|NaN"),
        ("surprise", {"a": 1}, "surprise"),
        ("schema", 2, "another version"),
    ],
)
def test_a_forged_manifest_is_refused_in_a_line(run_copy, place, value, word, capsys):
    forge(run_copy, **{place: value})
    with pytest.raises(RunError, match=word) as error:
        run = load_run(run_copy)
        assert run.trace is None and run.nodes is None
    assert "\n" not in str(error.value)
    for words in (
        ["explore", "--out", str(run_copy / "page.html")],
        ["pack", "--licence", "x", "--out", str(run_copy / "out")],
    ):
        assert main([words[0], str(run_copy), *words[1:]]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(run_copy.glob("out/*"))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 100_000, '{"a":1,"a":2}', "\xff"])
def test_what_is_no_manifest_is_refused_in_a_line(run_copy, text):
    (run_copy / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(Damaged, match=r"manifest\.json"):
        load_run(run_copy)


def put(column, value, row=3):
    """A change of a table: a value in one of its rows; in every place of a list."""

    def change(table):
        values = table[column].to_pylist()
        values[row] = [value] * len(values[row]) if isinstance(values[row], list) else value
        changed = pa.array(values, table[column].type)
        return table.set_column(table.column_names.index(column), column, changed)

    return change


def of_another_type(table):
    place = table.column_names.index("kl")
    return table.set_column(place, "kl", table["kl"].cast(pa.float64()))


@pytest.mark.parametrize(
    ("name", "change", "word"),
    [
        ("trace", put("p_token", 5.0), "p_token"),
        ("trace", put("q_token", -1.0), "q_token"),
        ("trace", put("overlap", np.nan), "overlap"),
        ("trace", put("kl", np.inf), "kl"),
        ("trace", put("target_entropy", None), "target_entropy"),
        ("trace", put("draft_rank", -3), "draft_rank"),
        ("trace", put("token", 40), "token"),
        ("trace", put("top_draft_ids", 99), "top_draft_ids"),
        ("trace", put("top_draft_q", None), "top_draft_q"),
        ("trace", put("position", 0), "positions"),
        ("trace", put("prompt_id", "code-9"), "positions"),
        ("trace", put("domain", "chat", 1), "positions|domain"),
        ("trace", of_another_type, "types"),
        ("trace", lambda table: table.slice(1), "instead of"),
        ("trace", lambda table: table.drop_columns("kl"), "instead of"),
        ("nodes", put("target_prob", 1.1), "target_prob"),
        ("nodes", put("parent", 7, 2), "tree"),
        ("nodes", put("node", 1), "tree"),
        ("nodes", put("best_path", True, 1), "tree"),
        ("nodes", put("position", 4), "positions"),
    ],
)
def test_a_forged_table_is_refused_in_a_line(run_copy, name, change, word, capsys):
    path = run_copy / f"{name}.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    forge(run_copy, **{f"files__{path.name}": runs.sha256_of(path)})
    with pytest.raises(Damaged, match=word) as error:
        getattr(load_run(run_copy), name)
    assert path.name in str(error.value) and "\n" not in str(error.value)
    out = run_copy / "out"
    assert main(["pack", str(run_copy), "--licence", "x", "--out", str(out)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_run_of_an_older_kit_is_refused_and_kept(short_profile, run_copy, tmp_path, monkeypatch):
    """It is neither read, nor overwritten, nor recorded a second time."""
    monkeypatch.setattr(runs, "RUNS", tmp_path)
    folder = run_copy.rename(tmp_path / f"{short_profile.name}-greedy-{'0' * 16}")
    forge(folder, key_version=GONE, encoded=GONE, stop_ids=GONE, key="0" * 16)
    (folder / "settings.json").write_text('{"key": "0000000000000000"}')
    for ask in (
        lambda: load_run(folder),
        lambda: runs.load_or_record(short_profile),
        lambda: runs.record_run(short_profile, folder),
    ):
        with pytest.raises(RunError, match="another version of the kit|other settings"):
            ask()
    longer = short_profile.replace(max_new_tokens=7)
    assert runs.recorded_run(longer, "greedy") is None, "another study is not in its way"

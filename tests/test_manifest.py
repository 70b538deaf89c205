"""Runs from other people: manifests and tables with correct checksums that are still not valid
runs.
"""

import json

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
        ("profile__name", "a/../b", "profile.name"),
        ("profile__depth", 10**9, "profile"),
        ("profile__temperature", "0", "profile.temperature"),
        ("profile__domains", ["code", "code"], "twice"),
        ("profile__extra", 1, "extra"),
        ("profile__max_new_tokens", 7, "key"),
        ("weights__target", "", "weights.target"),
        ("stop_ids", None, "stop_ids"),
        ("rows__trace", -5, "rows.trace"),
        ("rows__trace", 0, "0 rows"),
        ("files__../../etc/passwd", "0" * 64, "passwd"),
        ("files", {}, "manifest.json"),
        ("time_s", float("nan"), "time_s|NaN"),
        ("surprise", {"a": 1}, "surprise"),
        ("schema", 2, "another version"),
        ("key_version", GONE, "another version"),
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


def of_another_type(table):
    place = table.column_names.index("kl")
    return table.set_column(place, "kl", table["kl"].cast(pa.float64()))


@pytest.mark.parametrize(
    ("name", "change", "word"),
    [
        ("trace", of_another_type, "types"),
        ("trace", lambda table: table.slice(1), "instead of"),
        ("trace", lambda table: table.drop_columns("kl"), "instead of"),
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

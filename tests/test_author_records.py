"""Fetching the authors' files (from a folder: good, wrong, absent) and what their
records can tell, by hand and on them.
"""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from speclab import score
from speclab.__main__ import main
from speclab.studies.paper_audit import author_records, claims, measures

RECORDS = Path(__file__).resolve().parents[2] / "shared" / "paper" / "author_records"
released = pytest.mark.skipif(
    not RECORDS.is_dir(),
    reason="needs ../shared/paper/author_records, which carry no licence to be copied here",
)
CONTENT = bytes(range(256)) * 400
NAME = "raw_records_20260411_000001.csv"
FILE = {NAME: hashlib.sha1(b"blob 102400\0" + CONTENT).hexdigest()}


def author_rows(sample="he/0", position=0) -> pd.DataFrame:
    """Two root children, two children of the first, one of its second child; the fourth row's
    probability is NaN.
    """
    rows = [
        (1, 0, -1, 0.6, 0.3),
        (1, 1, -1, 0.2, 0.4),
        (2, 2, 0, 0.5, 0.5),
        (2, 3, 0, 0.3, np.nan),
        (3, 4, 3, 0.9, 0.09),
    ]
    frame = pd.DataFrame(
        rows,
        columns=["tree_depth", "node_id", "parent_id", "draft_prob", "target_prob"],
    )
    frame["acceptance_prob"] = np.fmin(
        1, (frame["target_prob"] / frame["draft_prob"]).fillna(1)
    )
    frame["target_entropy"] = frame["target_prob"] + 1
    return frame.assign(
        sample_id=sample,
        task_type="code",
        token_position=position,
        position_bin=0,
        token_id=range(5, 10),
    )


def test_the_git_id_is_gits():
    """The id of 'hello\\n' is printed by `git hash-object` on any machine."""
    hello = "ce013625030ba8dba906f756967f9e9ca394464a"
    assert author_records.blob_id(b"hello\n") == hello
    assert author_records.blob_id(CONTENT) == FILE[NAME]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


@pytest.fixture
def there(tmp_path):
    """A folder that serves one file."""
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / NAME).write_bytes(CONTENT)
    return folder


def test_a_good_file_is_fetched_once(there, tmp_path):
    (path,) = author_records.fetch(tmp_path / "new", there.as_uri(), FILE)
    assert path.read_bytes() == CONTENT and names(path.parent) == [NAME]
    path.write_bytes(b"spoiled")
    author_records.fetch(path.parent, there.as_uri(), FILE)
    assert path.read_bytes() == CONTENT
    (there / NAME).unlink()
    assert author_records.fetch(path.parent, there.as_uri(), FILE) == [path], (
        "a file that is there and right is not asked for again"
    )


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT + b"more"])
def test_other_bytes_are_refused(there, tmp_path, content):
    (there / NAME).write_bytes(content)
    with pytest.raises(author_records.FetchError, match="not the authors' file"):
        author_records.fetch(tmp_path / "new", there.as_uri(), FILE)
    assert not (tmp_path / "new").exists()


def test_an_absent_file_and_no_network_say_what_to_do(tmp_path, capsys):
    with pytest.raises(
        author_records.FetchError, match="SPECLAB_AUTHOR_RECORDS=folder"
    ):
        author_records.fetch(tmp_path, tmp_path.as_uri(), FILE)
    closed = "http://127.0.0.1:9/"
    assert main(["authors", "--out", str(tmp_path), "--base", closed]) == 2
    assert "Without a network" in capsys.readouterr().err and names(tmp_path) == []


@released
def test_git_ids_are_those_of_the_records_and_fetch_takes_them(tmp_path):
    short = dict(list(author_records.FILES.items())[:3])  # all but the final run
    for name, blob in short.items():
        run = author_records.run_name(name)
        content = gzip.decompress((RECORDS / f"{run}.csv.gz").read_bytes())
        assert author_records.blob_id(content) == blob
        (tmp_path / name).write_bytes(content)
    base = tmp_path.as_uri()
    paths = author_records.fetch(tmp_path / "out", base, short)
    assert [path.name for path in paths] == list(short)


def test_records_that_bear_a_known_name_must_be_the_public_file(tmp_path):
    run = "054105"
    author_rows().to_csv(tmp_path / f"{run}.csv", index=False)
    with pytest.raises(ValueError, match=f"not the authors' public file of run {run}"):
        author_records.read(tmp_path)
    blob = author_records.blob_id((tmp_path / f"{run}.csv").read_bytes())
    assert list(author_records.read(tmp_path, {f"raw_{run}.csv": blob})) == [run]


# ---- one file ------------------------------------------------------------------------------------


def read(folder: Path, *runs: pd.DataFrame) -> dict[str, author_records.AuthorRecords]:
    """Records of runs 000000, 000001, … written as the authors' files are."""
    for number, rows in enumerate(runs):
        rows.to_csv(folder / f"{number:06d}.csv", index=False)
    return author_records.read(folder)


def test_author_schema_becomes_a_nodes_frame(tmp_path):
    author_rows().iloc[::-1].to_csv(tmp_path / "a.csv.gz", index=False)
    records = author_records.read_file(tmp_path / "a.csv.gz")
    assert records.nodes[["node", "parent", "depth", "rank", "token"]].to_numpy().tolist() == [
        [1, 0, 1, 0, 5], [2, 0, 1, 1, 6], [3, 1, 2, 0, 7], [5, 4, 3, 0, 9],
    ]  # fmt: skip
    assert records.nodes["best_path"].tolist() == [True, False, True, False]
    assert records.nan_rows[["prompt_id", "position", "node"]].to_numpy().tolist() == [
        ["he/0", 0, 4]
    ]
    own, every = records.nodes, records.with_nan_as_accepted
    assert score.published_alpha(own) == pytest.approx((0.5 + 1 + 1 + 0.1) / 4)
    expected = author_rows()["acceptance_prob"].mean()
    assert score.published_alpha(every) == pytest.approx(expected)


def test_two_rows_of_one_node_are_refused(tmp_path):
    with pytest.raises(ValueError, match="occurs twice"):
        read(tmp_path, pd.concat([author_rows(), author_rows()]))


def test_facts_by_hand(tmp_path):
    (row,) = author_records.facts(read(tmp_path, author_rows())).to_dict("records")
    assert (row["prompts"], row["rows"], row["nan_share"]) == (1, 5, 0.2)
    assert row["without_nan"] == pytest.approx(2.6 / 4)
    assert row["nan_as_accepted"] == pytest.approx(3.6 / 5)
    assert row["published_length"] == pytest.approx(0.75 + 0.75 + 0.075)


def test_records_are_asked_as_published_where_they_have_prompts_enough(tmp_path):
    prompts = [author_rows(f"he/{i}", p) for i in range(5) for p in range(3)]
    records = read(tmp_path, pd.concat(prompts), author_rows())
    listed = claims.claims()
    parts = [
        claims.in_frame(listed, run, measures.as_published(one.text, listed))
        for run, one in records.items()
    ]
    found = pd.concat(parts).set_index(["pair", "claim"])
    level = found.loc[("000000", "level")]
    numbers = level[["estimate", "low", "high"]].to_numpy(float)
    np.testing.assert_allclose(numbers, [(0.5 + 1 + 1 + 0.1) / 4] * 3)
    assert found.loc[("000000", "gap"), "note"] == (
        "domain ['chat', 'math'] has no rows: record the missing prompts"
    )
    few = found.loc["000001"]
    assert (
        few["estimate"].isna().all() and "needs at least 5" in few.loc["level", "note"]
    )


@released
@pytest.mark.parametrize(
    ("name", "rows", "nan_rows"),
    [("054105", 2368, 7), ("055031", 1264, 108), ("060835", 2432, 6)],
)
def test_released_records_give_the_authors_averages_and_the_honest_ones(
    name, rows, nan_rows
):
    raw = pd.read_csv(RECORDS / f"{name}.csv.gz")
    one = author_records.read_file(RECORDS / f"{name}.csv.gz")
    assert len(one.nodes) + len(one.nan_rows) == rows and len(one.nan_rows) == nan_rows
    assert (raw.loc[raw["target_prob"].isna(), "acceptance_prob"] == 1).all()
    (row,) = author_records.facts({name: one}).to_dict("records")
    assert row["nan_as_accepted"] == pytest.approx(
        raw["acceptance_prob"].mean(), rel=1e-6
    )
    by_depth = raw.groupby("tree_depth")["acceptance_prob"].mean()
    assert row["published_length"] == pytest.approx(by_depth.cumprod().sum(), rel=1e-6)
    honest = raw.dropna()["acceptance_prob"].mean()
    assert row["without_nan"] == pytest.approx(honest, rel=1e-6)
    assert row["without_nan"] < row["nan_as_accepted"]

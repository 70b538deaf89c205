"""Download of the authors' files from a local server (correct, wrong and missing files), and the
analysis of their records, by hand and on the real files.
"""

import hashlib
import http.server
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from speclab.__main__ import main
from speclab.analysis import claims
from speclab.analysis.fetch import FetchError
from speclab.studies.paper_audit import author_records, evidence

RECORDS = Path(__file__).resolve().parents[2] / "shared" / "paper" / "author_records"
released = pytest.mark.skipif(
    not RECORDS.is_dir(),
    reason="needs ../shared/paper/author_records, which carry no licence to be copied here",
)
CONTENT = bytes(range(256)) * 400
NAME = "raw_records_20260411_000001.csv"
FILE = {NAME: hashlib.sha1(b"blob 102400\0" + CONTENT).hexdigest()}
COLUMNS = ["tree_depth", "node_id", "parent_id", "draft_prob", "target_prob"]


def author_rows(sample="he/0", position=0):
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
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame["target_entropy"] = frame["target_prob"] + 1
    return frame.assign(sample_id=sample, task_type="code", token_position=position, position_bin=0)


@pytest.fixture
def server(tmp_path_factory):
    """A server of one file on this machine, `.file`."""
    folder = tmp_path_factory.mktemp("served")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    book = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    book.file, book.base = folder / NAME, f"http://127.0.0.1:{book.server_port}/"
    book.file.write_bytes(CONTENT)
    threading.Thread(target=book.serve_forever, daemon=True).start()
    yield book
    book.shutdown()
    book.server_close()


def source(server, files=FILE):
    """The authors' source, were it that server."""
    return replace(author_records.SOURCE, base=server.base, files=files)


def names(folder):
    return sorted(path.name for path in folder.glob("*"))


def test_a_good_file_is_fetched_once(server, tmp_path):
    (path,) = source(server).fetch(tmp_path / "new")
    assert path.read_bytes() == CONTENT and names(path.parent) == [NAME]
    aside = server.file.rename(server.file.with_name("aside"))
    source(server).fetch(tmp_path / "new")  # present and correct: it is not downloaded
    aside.rename(server.file)
    path.write_bytes(b"spoiled")
    source(server).fetch(tmp_path / "new")
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT + b"more"])
def test_other_bytes_are_refused(server, tmp_path, content):
    server.file.write_bytes(content)
    with pytest.raises(FetchError, match="not the published file"):
        source(server).fetch(tmp_path)
    assert names(tmp_path) == []


def test_absent_file_and_no_network_say_what_to_do(server, tmp_path, capsys):
    absent = source(server, {"raw_records_20260411_999999.csv": "0"})
    with pytest.raises(FetchError, match="404.*SPECLAB_AUTHOR_RECORDS=folder"):
        absent.fetch(tmp_path)
    capsys.readouterr()
    server.server_close()
    for what in ("author-records", "specdecode-bench"):
        assert main(["fetch", what, "--out", str(tmp_path), "--base", server.base]) == 2
        said = capsys.readouterr().err
        assert "Without a network" in said and said.count("\n") == 1
    assert names(tmp_path) == []


# ---- what is read --------------------------------------------------------------------------------


def read(folder, *runs):
    """Records of runs 000000, 000001, … written as the authors' files are."""
    for number, rows in enumerate(runs):
        rows.to_csv(folder / f"{number:06d}.csv.gz", index=False)
    return author_records.read(folder)


def test_records_that_bear_a_known_name_must_be_the_public_file(tmp_path, monkeypatch):
    path = tmp_path / "054105.csv"
    author_rows().to_csv(path, index=False)
    with pytest.raises(ValueError, match="not the published file .*_054105.csv"):
        author_records.read(tmp_path)
    blob = author_records.blob_id(path.read_bytes())
    own = replace(author_records.SOURCE, files={"raw_records_20260411_054105.csv": blob})
    monkeypatch.setattr(author_records, "SOURCE", own)
    assert list(author_records.read(tmp_path)) == ["054105"]


def test_what_is_no_records_is_refused(tmp_path):
    with pytest.raises(ValueError, match="name another folder"):
        author_records.read(tmp_path)
    with pytest.raises(ValueError, match="occurs twice"):
        read(tmp_path, pd.concat([author_rows(), author_rows()]))
    (tmp_path / "notes.csv").write_text("")
    (tmp_path / "000000.csv.gz").unlink()
    with pytest.raises(ValueError, match="is no file of records"):
        author_records.read(tmp_path)


def test_facts_by_hand(tmp_path):
    (row,) = author_records.facts(read(tmp_path, author_rows())).to_dict("records")
    assert (row["domains"], row["prompts"], row["rows"], row["nan_share"]) == (1, 1, 5, 0.2)
    assert row["without_nan"] == pytest.approx(2.6 / 4)
    assert row["nan_as_accepted"] == pytest.approx(3.6 / 5)
    assert row["published_length"] == pytest.approx(0.75 + 0.75 + 0.075)


def test_records_are_measured_as_published_where_they_have_prompts_enough(tmp_path):
    prompts = [author_rows(f"he/{i}", p) for i in range(5) for p in range(3)]
    records = read(tmp_path, pd.concat(prompts), author_rows()).values()
    texts, listed = map(author_records.text_of, records), claims.claims()
    many, few = (evidence.as_published(text, listed) for text in texts)
    level = many["level", claims.PUBLISHED]
    for name in ("estimate", "low", "high"):
        assert level[name].tolist() == pytest.approx([(0.5 + 1 + 1 + 0.1) / 4])
    (reason,) = many["gap", claims.PUBLISHED]["note"]
    assert reason == "domain ['chat', 'math'] has no rows: record the missing prompts"
    assert "needs at least 5" in few["level", claims.PUBLISHED]["note"].item()


@released
@pytest.mark.parametrize(
    ("name", "rows", "nan_rows"), [("054105", 2368, 7), ("055031", 1264, 108), ("060835", 2432, 6)]
)
def test_released_records_give_the_authors_averages_and_the_honest_ones(name, rows, nan_rows):
    path = RECORDS / f"{name}.csv.gz"
    raw, nodes = pd.read_csv(path), author_records.read_file(path)
    assert len(nodes) == rows == len(author_records.usable(nodes)) + nan_rows
    accepted, is_nan = raw["acceptance_prob"], raw["target_prob"].isna()
    assert (accepted[is_nan] == 1).all()
    (row,) = author_records.facts({name: nodes}).to_dict("records")
    assert row["nan_as_accepted"] == pytest.approx(accepted.mean(), rel=1e-6)
    assert row["without_nan"] == pytest.approx(accepted[~is_nan].mean(), rel=1e-6)
    by_depth = accepted.groupby(raw["tree_depth"]).mean()
    assert row["published_length"] == pytest.approx(by_depth.cumprod().sum(), rel=1e-6)
    assert row["without_nan"] < row["nan_as_accepted"]

"""Download of the authors' files from a folder (correct, wrong and missing files), and what their
records count.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from conftest import refuses

from speclab import score
from speclab.__main__ import main
from speclab.logs import author_records

RECORDS = Path(__file__).resolve().parents[2] / "shared" / "paper" / "author_records"
released = pytest.mark.skipif(
    not RECORDS.is_dir(),
    reason="needs ../shared/paper/author_records, which carry no licence to be copied here",
)
CONTENT = bytes(range(256)) * 400
NAME = "raw_records_20260411_000001.csv"
FILE = {NAME: hashlib.sha1(b"blob 102400\0" + CONTENT).hexdigest()}


@pytest.fixture
def there(tmp_path_factory):
    """The one file, where it is published."""
    path = tmp_path_factory.mktemp("published") / NAME
    path.write_bytes(CONTENT)
    return path


def source(there, files=FILE):
    """The authors' source, were it that folder."""
    return replace(author_records.SOURCE, base=there.parent.as_uri(), files=files)


def names(folder):
    return sorted(path.name for path in folder.glob("*"))


def test_a_good_file_is_fetched_once(there, tmp_path):
    (path,) = source(there).fetch(tmp_path / "new")
    assert path.read_bytes() == CONTENT and names(path.parent) == [NAME]
    aside = there.rename(there.with_name("aside"))
    source(there).fetch(tmp_path / "new")  # present and correct: it is not downloaded
    aside.rename(there)
    path.write_bytes(b"spoiled")
    source(there).fetch(tmp_path / "new")
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT + b"more"])
def test_other_bytes_are_refused(there, tmp_path, content):
    there.write_bytes(content)
    with refuses("not the published file"):
        source(there).fetch(tmp_path)
    assert names(tmp_path) == []


def test_absent_file_and_no_network_say_what_to_do(there, tmp_path, capsys):
    absent = source(there, {"raw_records_20260411_999999.csv": "0"})
    with refuses("No such file.*copy the files .* into"):
        absent.fetch(tmp_path)
    capsys.readouterr()
    for what in ("author-records", "specdecode-bench"):
        assert main(["fetch", what, "--out", str(tmp_path), "--base", "http://127.0.0.1:1"]) == 2
        said = capsys.readouterr().err
        assert "Without a network" in said and said.count("\n") == 1
    assert names(tmp_path) == []


# ---- what their records count --------------------------------------------------------------------


@released
@pytest.mark.parametrize(
    ("name", "rows", "nan_rows"), [("054105", 2368, 7), ("055031", 1264, 108), ("060835", 2432, 6)]
)
def test_released_records_count_a_missing_number_as_accepted(name, rows, nan_rows):
    (path,) = RECORDS.glob(f"*{name}.csv*")
    nodes = pd.read_csv(path)
    is_nan = nodes["target_prob"].isna()
    assert (len(nodes), is_nan.sum()) == (rows, nan_rows)
    accepted = nodes["acceptance_prob"]
    assert (accepted[is_nan] == 1).all()
    ours = score.published_alpha(nodes[~is_nan])
    assert ours == pytest.approx(accepted[~is_nan].mean(), rel=1e-6)

"""Fetching the authors' files (a local server: good, cut, resumed, wrong, absent) and what their
records can tell, by hand and on them.
"""

import gzip
import hashlib
import http.server
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from test_published import RECORDS, author_rows, released
from test_score import make_run

from speclab import score, stats
from speclab.__main__ import main
from speclab.analysis import published
from speclab.studies.paper_audit import alpha_parts, author_records, final_run, growth

CONTENT = bytes(range(256)) * 400
NAME = "raw_records_20260411_000001.csv"
FILE = {NAME: hashlib.sha1(b"blob 102400\0" + CONTENT).hexdigest()}


def test_the_git_id_is_gits():
    """The id of 'hello\\n' is printed by `git hash-object` on any machine."""
    hello = "ce013625030ba8dba906f756967f9e9ca394464a"
    assert author_records.blob_id(b"hello\n") == hello
    assert author_records.blob_id(CONTENT) == FILE[NAME]


@pytest.fixture
def server():
    """A server of one file on this machine, that promises all of it and sends `.cut` bytes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            book = self.server
            book.asked += 1
            if self.path != f"/{NAME}":
                return self.send_error(404)
            self.send_response(200)
            self.send_header("Content-Length", str(len(book.content)))
            self.end_headers()
            self.wfile.write(book.content[: book.cut])

        def log_message(self, *_):
            pass

    book = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    book.content, book.cut, book.asked = CONTENT, None, 0
    book.base = f"http://127.0.0.1:{book.server_port}/"
    thread = threading.Thread(target=book.serve_forever, daemon=True)
    thread.start()
    yield book
    book.shutdown()
    book.server_close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def test_a_good_file_is_fetched_once(server, tmp_path):
    (path,) = author_records.fetch(tmp_path / "new", server.base, FILE)
    assert path.read_bytes() == CONTENT and names(path.parent) == [NAME]
    author_records.fetch(tmp_path / "new", server.base, FILE)
    assert server.asked == 1, "a file that is there and right is not asked for again"
    path.write_bytes(b"spoiled")
    author_records.fetch(tmp_path / "new", server.base, FILE)
    assert path.read_bytes() == CONTENT


def test_a_cut_connection_leaves_no_file(server, tmp_path):
    server.cut = 70_000
    with pytest.raises(author_records.FetchError, match="make author-records"):
        author_records.fetch(tmp_path, server.base, FILE)
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT + b"more"])
def test_other_bytes_are_refused(server, tmp_path, content):
    server.content = content
    with pytest.raises(author_records.FetchError, match="not the authors' file"):
        author_records.fetch(tmp_path, server.base, FILE)
    assert names(tmp_path) == []


def test_absent_file_and_no_network_say_what_to_do(server, tmp_path, capsys):
    fetch, absent = author_records.fetch, {"raw_records_20260411_999999.csv": "0"}
    with pytest.raises(
        author_records.FetchError, match="404.*SPECLAB_AUTHOR_RECORDS=folder"
    ):
        fetch(tmp_path, server.base, absent)
    closed = server.base
    server.shutdown()
    server.server_close()
    assert main(["authors", "--out", str(tmp_path), "--base", closed]) == 2
    assert "Without a network" in capsys.readouterr().err and names(tmp_path) == []


@released
def test_git_ids_are_those_of_the_records_and_fetch_takes_them(tmp_path):
    """A folder serves as address."""
    short = {
        name: blob
        for name, blob in author_records.FILES.items()
        if author_records.FINAL not in name
    }
    for name, blob in short.items():
        run = author_records.run_name(name)
        content = gzip.decompress((RECORDS / f"{run}.csv.gz").read_bytes())
        assert author_records.blob_id(content) == blob
        (tmp_path / name).write_bytes(content)
    base = tmp_path.as_uri()
    paths = author_records.fetch(tmp_path / "out", base, short)
    assert [path.name for path in paths] == list(short)
    with pytest.raises(author_records.FetchError, match="061513.csv"):
        author_records.fetch(tmp_path / "out", base)  # the run of the paper is not here
    assert len(names(tmp_path / "out")) == 3, "what came before it is kept"


def test_the_files_are_three_runs_and_the_papers():
    runs = [author_records.run_name(name) for name in author_records.FILES]
    assert runs == ["054105", "055031", "060835", author_records.FINAL]
    with pytest.raises(ValueError, match="is no file of records"):
        author_records.run_name("config.json")


def test_records_are_looked_for_where_the_docstring_says(tmp_path, monkeypatch):
    monkeypatch.delenv(author_records.VARIABLE, raising=False)
    monkeypatch.setattr(author_records, "FOLDER", tmp_path / "default")
    assert author_records.read() == {}, "a fresh machine has none"
    with pytest.raises(
        ValueError, match="holds no .csv or .csv.gz.*make author-records"
    ):
        author_records.read(tmp_path / "nowhere")
    for folder, run in (
        ("default", "111111"),
        ("variable", "222222"),
        ("given", "333333"),
    ):
        (tmp_path / folder).mkdir()
        author_rows().to_csv(tmp_path / folder / f"{run}.csv.gz", index=False)
    assert list(author_records.read()) == ["111111"]
    monkeypatch.setenv(author_records.VARIABLE, str(tmp_path / "variable"))
    assert list(author_records.read()) == ["222222"]
    found = author_records.read(tmp_path / "given")
    assert list(found) == ["333333"] and len(found["333333"].nan_rows) == 1


def test_records_that_bear_a_known_name_must_be_the_public_file(tmp_path):
    run = "054105"
    author_rows().to_csv(tmp_path / f"{run}.csv", index=False)
    with pytest.raises(ValueError, match=f"not the authors' public file of run {run}"):
        author_records.read(tmp_path)
    blob = author_records.blob_id((tmp_path / f"{run}.csv").read_bytes())
    assert list(author_records.read(tmp_path, {f"raw_{run}.csv": blob})) == [run]


def hand_records(tmp_path) -> published.AuthorRecords:
    """Two trees of test_paper's shape, the second whole: p 0.6 and 0.3 (best surely the argmax),
    under the first 0.45 and 0.3 (open: 0.25 is left), under the fourth 0.1 (surely not: exp(-1.1) =
    0.33).
    """
    whole = author_rows(position=1).assign(
        target_prob=[0.6, 0.3, 0.45, 0.3, 0.1], target_entropy=[0.9, 0.9, 1.2, 1.2, 1.1]
    )
    pd.concat([author_rows(), whole]).to_csv(tmp_path / "000001.csv", index=False)
    return author_records.read(tmp_path)["000001"]


def test_trees_with_a_nan_row_are_left_out_whole(tmp_path):
    records = hand_records(tmp_path)
    kept = author_records.whole_trees(records)
    assert len(records.nodes) == 9 and kept["position"].tolist() == [1] * 5
    bad = published.AuthorRecords(
        records.nodes[records.nodes["position"] == 0], records.nan_rows
    )
    with pytest.raises(ValueError, match="trees without a NaN row is empty"):
        author_records.whole_trees(bad)


def test_argmax_is_bounded_by_what_the_siblings_and_the_entropy_allow(tmp_path):
    low, high = growth.argmax_bounds(author_records.whole_trees(hand_records(tmp_path)))
    assert low["target_rank"].tolist() == [0, 1, 0, 1, 1]  # 0.45 > 1 - 0.75
    assert high["target_rank"].tolist() == [0, 1, 0, 1, 1]
    open_case = low.drop(columns="target_rank").assign(
        target_prob=[0.4, 0.1, 0.2, 0.3, 0.3], target_entropy=1.3
    )
    low, high = growth.argmax_bounds(open_case)
    assert low["target_rank"].tolist() == [1, 1, 1, 1, 1]  # 0.5, 0.5 and 0.7 are left
    assert high["target_rank"].tolist() == [
        0,
        1,
        1,
        0,
        0,
    ]  # exp(-1.3) = 0.27 is below 0.3 and 0.4


@pytest.mark.parametrize("seed", range(3))
def test_argmax_bounds_hold_on_known_distributions(seed):
    """A slow reference: random distributions whose argmax is known."""
    rng, rows, truth = np.random.default_rng(seed), [], []
    for position in range(300):
        p = rng.dirichlet(np.full(12, 0.3))
        children = rng.choice(12, 3, replace=False)
        rows += [
            ("x", position, n + 1, 0, p[token], -(p * np.log(p + 1e-300)).sum())
            for n, token in enumerate(children)
        ]
        truth += [token == p.argmax() for token in children]
    nodes = pd.DataFrame(
        rows,
        columns=[
            "prompt_id",
            "position",
            "node",
            "parent",
            "target_prob",
            "target_entropy",
        ],
    )
    certain, possible = (
        frame["target_rank"].to_numpy() == 0 for frame in growth.argmax_bounds(nodes)
    )
    assert (certain <= np.array(truth)).all() and (np.array(truth) <= possible).all()
    assert 0 < certain.sum() < np.sum(truth) < possible.sum(), (
        "the bounds are neither empty nor the truth"
    )


def test_pruned_trees_are_nested_and_by_hand(tmp_path):
    nodes = author_records.whole_trees(hand_records(tmp_path))
    assert nodes["rank"].tolist() == [0, 1, 0, 1, 0]
    assert growth.prune(nodes, 1)["node"].tolist() == [
        1,
        3,
    ]  # node 5 hangs under node 4, of rank 1
    assert growth.prune(nodes, 2)["node"].tolist() == [1, 2, 3, 4, 5]
    table = growth.growing_trees(nodes).set_index("branches")
    # one child: min(1, p/q) = 0.6/0.6, 0.45/0.5, so 1 + 0.9; two: 1, 1 | 0.9, 1 | 0.1/0.9, so 1 +
    # 0.95 + 0.95/9
    assert table["published_length"].tolist() == pytest.approx([1.9, 1.95 + 0.95 / 9])
    assert table["accepted_low"].tolist() == table["accepted_high"].tolist() == [2, 2]
    assert table["nodes"].tolist() == [2, 5]


def test_facts_by_hand(tmp_path):
    (row,) = author_records.run_facts({"000001": hand_records(tmp_path)}).to_dict(
        "records"
    )
    assert (
        row["levels"],
        row["prompts"],
        row["rows"],
        row["nan_rows"],
        row["nan_share"],
    ) == (
        "2+2+1",
        1,
        10,
        1,
        0.1,
    )
    first, second = [0.5, 1, 1, 0.1], [1, 1, 0.9, 1, 1 / 9]
    assert row["alpha_without_nan"] == pytest.approx(np.mean(first + second))
    assert row["alpha_nan_as_accepted"] == pytest.approx(np.mean([*first, 1, *second]))
    assert row["accepted_low"] == row["accepted_high"] == 2
    # position 0: 0.4 of 0.3 and 0.4 exceeds what is left, 0.3; under node 1 0.5 is not more than
    # 0.5: node 2 alone is accepted
    assert row["nan_rejected"] == pytest.approx((1 + 2) / 2)


@released
def test_released_records_contradict_the_published_length():
    records = author_records.read(RECORDS)
    table = author_records.run_facts(records).set_index("run")
    by_size = table.loc[["055031", "060835", "054105"]]
    assert by_size["published_length"].round(2).tolist() == [0.96, 0.61, 0.54]
    assert by_size["nan_rejected"].round(1).tolist() == [2.1, 2.5, 2.7]
    assert (by_size["nan_rejected"] <= by_size["accepted_high"]).all()
    for one in records.values():
        grown = growth.growing_trees(author_records.whole_trees(one))
        assert (grown["published_length"].diff().dropna() < 0).all() and (
            grown["accepted_low"].diff().dropna() >= 0
        ).all()
        assert (grown["accepted_low"] <= grown["accepted_high"]).all()


def test_growing_trees_takes_the_targets_own_ranks_where_there_are(tmp_path):
    nodes = author_records.whole_trees(hand_records(tmp_path)).assign(
        target_rank=[1, 0, 0, 0, 0]
    )
    table = growth.growing_trees(nodes)
    assert table["accepted_low"].tolist() == table["accepted_high"].tolist() == [0, 1]
    assert table["accepted_low"].iloc[-1] == score.tree_estimators()["mean_accepted"](
        nodes
    )


def test_trees_of_depth_one_by_hand():
    trace = pd.DataFrame({"draft_rank": [1, 3], "top_draft_q": [[0.5, 0.2, 0.1], [0.8, 0.1, 0.05]],
                          "top_draft_p": [[0.25, 0.6, 0.0], [0.8, 0.01, 0.1]]})  # fmt: skip
    length, accepted = growth.ROOT_TREES["E[L]"], growth.ROOT_TREES["accepted"]
    np.testing.assert_allclose(
        length(trace), [0.75, (0.5 + 1 + 1 + 0.1) / 4, (0.5 + 1 + 0 + 1 + 0.1 + 1) / 6]
    )
    np.testing.assert_allclose(accepted(trace), [0, 0.5, 0.5])
    with pytest.raises(ValueError, match="top_draft_q"):
        length(trace.drop(columns="top_draft_q"))


def test_shares_from_the_published_cells_by_hand():
    values = pd.DataFrame(
        {"f": ["a", "a", "a", "b", "b"], "ratio": [0.0, 1, 0.5, 1, 0.6]}
    )
    cells = (
        values.groupby("f")["ratio"]
        .agg(count="size", alpha_mean="mean", alpha_std="std")
        .reset_index()
    )
    slow = values.groupby("f")["ratio"].transform("mean").var() / values["ratio"].var()
    assert alpha_parts.published_shares(cells, "f") == pytest.approx(slow)


def test_a_mix_of_opposite_ranks_shows_no_correlation():
    entropy = np.linspace(0.1, 1, 8)
    first = pd.DataFrame(
        {"rank": 0, "target_prob": 0.9 - entropy / 2, "target_entropy": entropy}
    )
    second = first.assign(rank=1, target_prob=entropy / 2 + 0.05)
    nodes = pd.concat([first, second], ignore_index=True)
    nodes = nodes.assign(draft_prob=1.0, prompt_id="x", domain="code")
    table = alpha_parts.rank_correlations(nodes).set_index("rank")
    assert table.loc[[0, 1], "estimate"].tolist() == pytest.approx([-1, 1])
    assert abs(table.loc["all", "estimate"]) < 0.5
    assert table["low"].isna().all(), "one prompt: no interval"


@released
def test_within_a_rank_the_released_records_show_strong_opposite_correlations():
    for one in author_records.read(RECORDS).values():
        table = alpha_parts.rank_correlations(one.nodes).set_index("rank")["estimate"]
        assert table[0] < -0.5 and table[1] > 0.4 and abs(table["all"]) < 0.3


def test_shares_hold_the_pairs_the_records_and_the_paper(tmp_path):
    run, record = make_run(prompts=stats.FEW_PROMPTS), hand_records(tmp_path)
    few = make_run(prompts=6)
    pairs = {
        name: SimpleNamespace(greedy=one) for name, one in (("a", run), ("b", few))
    }
    asked = alpha_parts.sources(pairs, {"000001": record})
    found = alpha_parts.shares_by_source(asked)
    assert list(pd.unique(found.frame["source"])) == [
        "a",
        "b",
        "authors' 000001",
        alpha_parts.PAPER,
    ]
    one = found.at(source="a", factor="rank").frame.iloc[0]
    nodes = run.nodes.assign(ratio=score.ratio(run.nodes))
    mean = nodes.groupby("rank")["ratio"].transform("mean")
    assert one["estimate"] == pytest.approx(mean.var() / nodes["ratio"].var())
    assert one["low"] <= one["estimate"] <= one["high"]
    assert found.at(source="b").frame["low"].isna().all(), "too few prompts"
    assert "task" not in set(found.at(source="authors' 000001").frame["factor"]), (
        "one domain"
    )


# ---- the run of the paper ------------------------------------------------------------------------
# Its file could not be had where this was written: a made one of the same columns stands for it.

THEIRS = {ours: theirs for theirs, ours in published.AUTHOR_COLUMNS.items()}


def made_file(folder: Path) -> Path:
    """A file of node records as the authors' script writes it: four domains, some NaN rows."""
    nodes = make_run(prompts=stats.FEW_PROMPTS, positions=40).nodes
    rows = nodes.assign(token=nodes.index).rename(columns=THEIRS)
    rows[["node_id", "parent_id"]] -= 1
    rows.loc[::97, ["target_prob", "target_entropy"]] = np.nan
    path = folder / f"raw_records_20260411_{author_records.FINAL}.csv"
    rows[[*THEIRS.values()]].to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(folder, its file's name and git id) of a made run that bears the name of the paper's."""
    folder = tmp_path_factory.mktemp("made")
    path = made_file(folder)
    blob = author_records.blob_id(path.read_bytes())
    return folder, {path.name: blob}


def test_the_final_run_is_fetched_read_and_whole(made):
    folder, file = made
    (path,) = author_records.fetch(folder / "out", folder.as_uri(), file)
    with pytest.raises(ValueError, match="not the authors' public file of run 061513"):
        author_records.read(folder / "out")
    records = author_records.read(folder / "out", file)
    one = author_records.whole_runs(records)[author_records.FINAL]
    rows = pd.read_csv(path)
    assert len(one.nodes) + len(one.nan_rows) == len(rows)
    assert len(one.nan_rows) == rows["target_prob"].isna().sum() > 0
    assert set(one.nodes["domain"]) == set(rows["task_type"]) == set(score.DOMAINS)


def test_tables_of_a_whole_run_have_intervals_and_blanks(made):
    folder, file = made
    one = author_records.read(folder, file)[author_records.FINAL]
    found = final_run.tables(one).set_index("table")
    assert list(pd.unique(found.index)) == list(published.TABLES)
    assert found["ours_low"].notna().all()
    assert found["corrected"].isna().all(), "no trace and no target ranks"
    by_domain = final_run.levels(found.reset_index()).at(quantity="alpha_mean")
    code = one.nodes.query("domain == 'code'")
    assert by_domain.at(domain="code").value == score.published_alpha(code)


def test_parts_of_a_whole_run_have_intervals(made):
    folder, file = made
    one = author_records.read(folder, file)[author_records.FINAL]
    found = final_run.parts(one)
    shares = found.at(quantity=final_run.SHARE)
    assert shares.lies_within(0, 1)
    ranks = found.at(quantity=final_run.CORRELATION)
    assert ranks.frame["of"].tolist() == ["all nodes", "rank 0", "rank 1"]
    assert (found.frame["low"] < found.frame["high"]).all()

"""The published numbers, the authors' identities under our functions, and their record files."""

import numpy as np
import pandas as pd
import pytest
from made_pair import made_text
from numpy.testing import assert_allclose
from test_measures import visited
from test_score import make_run

from speclab import score, stats
from speclab.analysis import published
from speclab.show import tables

KEYS = {"task_type": "domain", "position_bin": "bin"}


def run_file(name):
    return pd.read_csv(published.DATA / f"run_{name}.csv").rename(columns=KEYS)


def cell_totals(cells, by, m):
    """(domains, 2m): sums and counts of alpha by depth, as `ratio_by_depth.columns` would add them
    up.
    """
    ordered = cells.sort_values(["domain", "depth"])
    total, count = (
        (ordered["alpha_mean"] * ordered["count"]).to_numpy(),
        ordered["count"].to_numpy(),
    )
    return np.concatenate([total.reshape(-1, m), count.reshape(-1, m)], axis=1)


def test_a_run_of_two_domains_is_beside_these_two_alone():
    """The paper's `all` is a mean of four domains: beside a mean of two it would mislead."""
    run, two = make_run(), ["math", "chat"]
    run.nodes, run.trace = (rows[rows["domain"].isin(two)] for rows in (run.nodes, run.trace))
    table = published.comparison("I", run)
    assert set(table["domain"]) == set(two)
    assert table["ours_as_published"].notna().all()


def test_published_tables_follow_from_the_authors_files():
    depth = run_file("alpha_by_depth_task")
    for table, frame, value, keys in (
        ("IV", depth, "alpha_mean", ["domain", "depth"]),
        ("III", run_file("cumulative_acceptance"), "prob_chain_ge_d", ["domain", "depth"]),
        ("II", run_file("expected_length"), "expected_length", ["domain"]),
        ("V", run_file("alpha_by_depth_position"), "alpha_mean", ["depth", "bin"]),
    ):
        both = published.published(table).merge(frame, on=keys)
        assert len(both) == len(frame) == len(published.published(table))
        assert_allclose(both["published"], both[value], atol=5.01e-4)


def test_chain_and_length_are_what_our_estimators_make_of_the_authors_depth_means():
    totals = cell_totals(run_file("alpha_by_depth_task"), "domain", 3)
    chain = (
        run_file("cumulative_acceptance")
        .sort_values(["domain", "depth"])["prob_chain_ge_d"]
        .to_numpy()
        .reshape(4, 3)
    )
    assert_allclose(score.published_chain.value(totals), chain, rtol=1e-12)
    lengths = run_file("expected_length").sort_values("domain")["expected_length"]
    assert_allclose(score.published_length.value(totals)[:, 0], lengths, rtol=1e-12)


def test_domain_means_are_count_weighted_and_the_all_row_is_their_mean():
    totals = cell_totals(run_file("alpha_by_depth_task"), "domain", 3)
    flat = np.stack([totals[:, :3].sum(axis=1), totals[:, 3:].sum(axis=1)], axis=1)
    values = score.across(score.published_alpha.value, flat)[:, 0]
    summary = run_file("summary_by_task").sort_values("domain")
    assert_allclose(values[:4], summary["mean_alpha"], rtol=1e-12)
    np.testing.assert_array_equal(flat[:, 1], summary["n_nodes"])
    printed = published.published("I").query("domain == 'all'").set_index("quantity")["published"]
    assert round(values[4], 4) == printed["alpha_mean"] == 0.5384
    assert round(values[5], 4) == 0.5382  # pooled over nodes: not what was printed


def test_table_v_pools_over_domains():
    cells = run_file("alpha_depth_task_position")
    ours = (
        cells.assign(total=cells["alpha_mean"] * cells["count"])
        .groupby(["depth", "bin"])[["total", "count"]]
        .sum()
        .reset_index()
    )
    theirs = run_file("alpha_by_depth_position")
    assert_allclose(ours["total"] / ours["count"], theirs["alpha_mean"], rtol=1e-12)
    mean_of_domains = cells.groupby(["depth", "bin"])["alpha_mean"].mean().to_numpy()
    assert np.abs(mean_of_domains - theirs["alpha_mean"]).max() > 1e-4


def test_comparison_puts_the_named_estimators_side_by_side():
    run = make_run(prompts=6, positions=40)
    chat = run.nodes[run.nodes["domain"] == "chat"]
    first = published.comparison("I", run).set_index(["quantity", "domain"])
    assert first.loc[("alpha_mean", "chat"), "ours_as_published"] == pytest.approx(
        score.published_alpha(chat)
    )
    at_0, at_1 = (
        stats.by_domain(run.trace, one).set_index("domain").at["all", "estimate"]
        for one in (score.member(score.hit, 1), score.alpha)
    )
    sampled = published.comparison("I", run, "point-mass")
    sampled = sampled.set_index(["quantity", "domain"])
    for table, value, name in ((first, at_0, "hit[1]"), (sampled, at_1, "alpha")):
        row = table.loc[("alpha_mean", "all")]
        assert row["corrected"] == pytest.approx(value) and row["estimator"] == name
    fifth = published.comparison("V", run).set_index(["depth", "bin"])
    late = run.nodes[run.nodes["position"] >= 32]
    assert fifth.loc[(3, 1), "ours_as_published"] == pytest.approx(score.ratio_by_depth(late)[3])
    chain = late[late["best_path"]]
    assert fifth.loc[(3, 1), "corrected"] == pytest.approx(
        score.tree_estimators()["accept_by_depth"](chain)[3]
    )


def test_tables_ii_and_iii_are_of_the_blocks_that_a_decoder_visits():
    """The survival of the paper's tree adds up to its accepted tokens, walked by hand."""
    text = made_text(prompts=5, length=40)
    second, third = (
        published.comparison(name, text).set_index("domain")["corrected"] for name in ("II", "III")
    )
    for domain, rows in text.trace.groupby("domain"):
        assert second[domain] == pytest.approx(visited(rows))
        assert third[domain].sum() == pytest.approx(second[domain])
    of_all = score.tree_estimators()["mean_accepted"]
    chat = text.nodes.query("domain == 'chat'")
    assert abs(second["chat"] - of_all(chat)) > 0.01, "not of every tree that was hung"


def test_exports_are_byte_stable_and_hold_every_digit(tmp_path):
    frame = published.comparison("V", make_run(positions=40))
    files = tables.export(frame, tmp_path / "new", "table_5")
    corrected = pd.read_csv(files[0])["corrected"]
    assert_allclose(corrected, frame["corrected"], rtol=1e-14)
    assert "nan" not in files[1].read_text().lower()
    before = [file.read_bytes() for file in files]
    tables.export(frame, tmp_path / "new", "table_5")
    assert before == [file.read_bytes() for file in files]

"""The published numbers, and the relations between them computed by our functions."""

import numpy as np
import pandas as pd
import pytest
from made_pair import made_text
from numpy.testing import assert_allclose
from test_score import make_run

from speclab import score, stats
from speclab.lab import published
from speclab.replay import replay
from speclab.tree import static_tree


def run_file(name):
    """A file of the authors' final run, in the order of domain, depth, bin."""
    frame = pd.read_csv(published.DATA / f"run_{name}.csv")
    frame = frame.rename(columns={"task_type": "domain", "position_bin": "bin"})
    keys = [key for key in ("domain", "depth", "bin") if key in frame]
    return frame.sort_values(keys, ignore_index=True)


def cell_totals():
    """Sums and counts of alpha by domain and depth (4, 6), as `ratio_by_depth.columns` would add
    them up.
    """
    cells = run_file("alpha_by_depth_task")
    counts = cells["count"].to_numpy().reshape(4, 3)
    return np.hstack([cells["alpha_mean"].to_numpy().reshape(4, 3) * counts, counts])


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        ("IV", "alpha_by_depth_task", "alpha_mean"),
        ("III", "cumulative_acceptance", "prob_chain_ge_d"),
        ("II", "expected_length", "expected_length"),
        ("V", "alpha_by_depth_position", "alpha_mean"),
    ],
)
def test_published_tables_follow_from_the_authors_files(table, name, value):
    frame, printed = run_file(name), published.published(table)
    keys = [key for key in ("domain", "depth", "bin") if key in frame]
    both = printed.merge(frame, on=keys)
    assert len(both) == len(frame) == len(printed)
    assert_allclose(both["published"], both[value], atol=5.01e-4)


def test_chain_and_length_are_what_our_estimators_make_of_the_authors_depth_means():
    chain = run_file("cumulative_acceptance")["prob_chain_ge_d"]
    assert_allclose(score.published_chain.value(cell_totals()).ravel(), chain, rtol=1e-12)
    lengths = run_file("expected_length")["expected_length"]
    assert_allclose(score.published_length.value(cell_totals()).ravel(), lengths, rtol=1e-12)


def test_domain_means_are_count_weighted_and_the_all_row_is_their_mean():
    totals = cell_totals().reshape(4, 2, 3).sum(axis=2)
    values = score.across(score.published_alpha.value, totals)[:, 0]
    summary = run_file("summary_by_task")
    assert_allclose(values[:4], summary["mean_alpha"], rtol=1e-12)
    assert_allclose(totals[:, 1], summary["n_nodes"])
    printed = published.published("I").set_index(["domain", "quantity"])["published"]
    assert round(values[4], 4) == printed["all", "alpha_mean"] == 0.5384
    assert round(values[5], 4) == 0.5382  # pooled over nodes: not what was printed


def compared(table, run, *arguments, **options):
    frame = published.comparison(table, run, *arguments, **options)
    return frame.set_index([key for key in published.KEYS if frame[key].nunique() > 1])


@pytest.mark.parametrize(
    ("rule", "exact"), [("greedy", score.mean_of("hit", "hit[1]")), ("point-mass", score.alpha)]
)
def test_table_i_puts_the_named_estimators_side_by_side(rule, exact):
    run = make_run(prompts=6, positions=40)
    first = compared("I", run, rule).xs("alpha_mean", level="quantity")
    chat = run.nodes[run.nodes["domain"] == "chat"]
    assert first.at["chat", "ours_as_published"] == pytest.approx(score.published_alpha(chat))
    expected = stats.by_domain(run.trace, exact).frame.set_index("domain").at["all", "estimate"]
    row = first.loc["all"]
    assert row["corrected"] == pytest.approx(expected) and row["estimator"] == exact.name


@pytest.mark.parametrize(("half", "asked"), [(32, {}), (20, {"half": 20})])
def test_table_v_is_of_one_bin_and_pooled(half, asked):
    run = make_run(prompts=6, positions=40)
    row = compared("V", run, **asked).loc[(3, 1)]
    late = run.nodes[run.nodes["position"] >= half]
    path = late[late["best_path"]].assign(reach=score.reach(late)[late["best_path"]])
    levels = path.groupby("depth")["reach"].sum()
    assert row["ours_as_published"] == pytest.approx(score.ratio_by_depth(late)[3])
    assert row["corrected"] == pytest.approx(levels[3] / levels[2])


def test_a_study_of_other_domains_has_the_tables_without_the_papers_numbers():
    run = make_run()
    for name in ("nodes", "trace"):
        rows = getattr(run, name)
        setattr(run, name, rows.replace({"domain": {"math": "billing"}}))
    of_paper, own = published.comparison("I", make_run()), published.comparison("I", run)
    assert own["published"].isna().all() and of_paper["published"].notna().all()
    cells = [published.cells_of_table(table) for table in (own, of_paper)]
    assert ["published" in table for table in cells] == [False, True]
    ours, theirs = (sorted(table["ours_as_published"]) for table in (own, of_paper))
    assert ours == pytest.approx(theirs), "in another order of domains"


def test_tables_ii_and_iii_are_of_the_blocks_that_a_decoder_visits():
    """The survival of the paper's tree adds up to its accepted tokens."""
    text, tree = made_text(prompts=5, length=40), static_tree(3, 2, 8)
    second, third = (compared(name, text, tree=tree)["corrected"] for name in ("II", "III"))
    for domain, rows in text.trace.groupby("domain"):
        assert second[domain] == pytest.approx(replay(rows, tree)["accepted"].mean())
        assert third[domain].sum() == pytest.approx(second[domain])
    chat = text.nodes.query("domain == 'chat'")
    of_all = score.reach(chat).sum() / (chat["node"] == 1).sum()
    assert abs(second["chat"] - of_all) > 0.01, "not of every tree that was hung"


@pytest.mark.parametrize("names", [{"math": "billing"}, {}])
def test_table_v_of_other_domains_is_the_pooled_row_alone(names):
    """Of some of the paper's domains too: its row pools all four."""
    run = make_run(positions=40)
    for name in ("nodes", "trace"):
        rows = getattr(run, name)
        kept = rows if names else rows[rows["domain"] != "code"]
        setattr(run, name, kept.replace({"domain": names}))
    table = published.comparison("V", run)
    assert set(table["domain"]) == {"all"} and len(table) == 6
    assert table["published"].isna().all() and table["corrected"].notna().all()
    assert "published" not in published.cells_of_table(table)

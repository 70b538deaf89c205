"""Clustered intervals, tests and effect sizes against scipy, brute force and simulation."""

import numpy as np
import pandas as pd
import pytest
from conftest import refuses
from frames import frame_of, pooled
from numpy.testing import assert_allclose
from scipy import stats as scipy_stats
from test_score import make_run

from speclab import score, stats
from speclab.lab import association, significance
from speclab.plain import DOMAINS


def clustered(prompts=20, rows=10, effect=1.0, seed=0, domain="code", mean=0.0):
    """Rows that share a prompt's own level: x = prompt level + noise."""
    rng = np.random.default_rng(seed)
    level = np.repeat(rng.normal(mean, effect, prompts), rows)
    frame = pd.DataFrame(
        {
            "prompt_id": np.repeat([f"{domain}-{i:03d}" for i in range(prompts)], rows),
            "domain": domain,
        }
    )
    return frame.assign(x=level + rng.normal(0, 0.3, len(level)), y=rng.normal(0, 1, len(level)))


def expand(frame, prompts, weight):
    return frame.iloc[np.repeat(np.arange(len(frame)), weight[prompts.rows].astype(int))]


def test_the_verdict_of_an_interval():
    """An interval that ends on the null value is inconclusive. A region includes its ends."""
    low, high = np.transpose([(0.1, 2), (-1, -0.1), (0, 2), (0, 0), [np.nan] * 2])
    words = ["above", "below", "inconclusive", "inconclusive", "undefined"]
    assert stats.verdict(low, pd.Series(high)).tolist() == words
    low, high = np.transpose([(3.5, 4), (0, 0.9), (0.5, 1.5), (1, 3)])
    words = ["above", "below", "inconclusive", "within"]
    assert [stats.verdict(*ends, (1, 3)) for ends in zip(low, high, strict=True)] == words


def test_intervals_are_those_of_the_redrawn_rows():
    """For a member of a family that is not a mean: each domain, their mean, and all rows."""
    nodes, estimator = make_run().nodes, score.published_chain
    prompts = stats.resampling_of(nodes, 60)
    literal = []
    for weight in prompts.weights:
        drawn = expand(nodes, prompts, weight)
        domains = [estimator(rows)[2] for _, rows in drawn.groupby("domain", sort=False)]
        literal.append([*domains, np.mean(domains), estimator(drawn)[2]])
    literal = np.array(literal)
    table = stats.by_domain(nodes, estimator, n=60).frame
    found = table[table["estimator"] == "published_chain[2]"].set_index("domain")
    assert list(found.index) == [*DOMAINS, "all", "pooled"]
    assert found["n_prompts"].tolist() == [6] * 4 + [24] * 2
    wanted = [literal[0], *stats.bounds_of(literal[1:], [6] * 6)]  # all domains have 6 prompts
    assert_allclose(found[stats.NUMBERS].T, wanted)


def test_a_frame_without_domains_has_each_column_once():
    frame = clustered().drop(columns="domain")
    table = stats.by_domain(frame, score.mean_of("x"), n=20).frame
    assert table["domain"].is_unique
    assert_allclose(table["estimate"], frame["x"].mean())


def test_interval_ignores_copies_of_rows_within_a_prompt():
    """More rows of the same prompts are not more evidence. An interval that treats each row as a
    cluster would shrink threefold.
    """
    frame = clustered()
    copied = pd.concat([frame] * 9, ignore_index=True)
    once, ninefold = (pooled(rows, score.mean_of("x")) for rows in (frame, copied))
    assert (ninefold.low, ninefold.high) == pytest.approx((once.low, once.high))
    by_row = copied.assign(prompt_id=[str(i) for i in range(len(copied))])
    wrong = pooled(by_row, score.mean_of("x"), n=500)
    assert wrong.high - wrong.low < 0.4 * (once.high - once.low)


def test_levels_by_hand(monkeypatch):
    """t of 4 degrees of freedom is 2.7764, times sqrt(5 / 4) 3.1041: Phi(-3.1041) = 0.000954."""
    assert stats.levels_of(5) == pytest.approx([0.000954, 1 - 0.000954], abs=2e-6)
    assert stats.levels_of(50)[0] == pytest.approx(0.02118, abs=1e-5)
    assert stats.levels_of(10**6) == pytest.approx([0.025, 0.975], abs=1e-6)
    # for 90 % t is 2.1318, times sqrt(5 / 4) 2.3835
    monkeypatch.setattr(stats, "LEVEL", 0.9)
    assert stats.levels_of(5) == pytest.approx([0.008575, 1 - 0.008575], abs=2e-6)


def test_a_domain_goes_by_its_own_prompts_and_all_by_the_fewest():
    both = pd.concat([clustered(6), clustered(30, domain="chat", seed=1)])
    prompts = stats.resampling_of(both, 10)
    assert prompts.domains == ("code", "chat") and prompts.fewest == 6
    assert prompts.counted == {"code": 6, "chat": 30}


def test_quantiles_are_those_of_nanquantile_where_few_are_undefined():
    """Each column uses its own number of prompts; six undefined draws of a hundred are too many."""
    draws, sizes = np.random.default_rng(0).normal(size=(100, 3)), [5, 12, 50]
    draws[:4, 1] = draws[:6, 2] = np.nan
    wanted = [np.nanquantile(draws[:, i], stats.levels_of(n)) for i, n in enumerate(sizes)]
    wanted[2][:] = np.nan
    assert_allclose(stats.bounds_of(draws, sizes).T, wanted)
    assert_allclose(stats.bounds_of(draws[:, 0], 5), wanted[0])


@pytest.mark.parametrize("digits", [(0, 0), (1, 9), (9, 9)])
def test_correlation_of_every_resample_equals_scipys(digits):
    """With many ties, as in alpha at 1, and without; within a prompt, and shared by prompts."""
    frame = clustered(prompts=9, rows=11)
    frame = pd.concat([frame, frame[-5:]])  # unequal lengths
    one = (frame["x"] + frame["y"]).round(digits[0]).to_numpy()
    other = frame["x"].round(digits[1]).to_numpy()
    prompts = stats.resampling_of(frame, 25, seed=1)
    theirs = []
    for weight in prompts.weights:
        rows = np.repeat(np.arange(len(frame)), weight[prompts.rows].astype(int))
        theirs.append(scipy_stats.spearmanr(one[rows], other[rows]).statistic)
    ours = association.correlation_draws(one, other, prompts)
    assert_allclose(ours, theirs, atol=1e-12)


def test_a_domain_without_a_correlation_does_not_hide_the_others():
    frame = frame_of(chat=[("a", 1.0), ("b", 1.0)], code=[("a", 0.0), ("b", 2.0)])
    frame["y"] = frame["x"] * 2
    found = association.correlations(frame, "x", "y")
    assert list(found["domain"]) == ["code", "chat"]
    assert found["estimate"].iloc[0] == pytest.approx(1)
    assert "constant" in found["note"].iloc[1] and np.isnan(found["low"].iloc[1])


def test_permutation_p_value_equals_enumeration():
    """5 against 5 prompts in two separate groups: 2 of 252 assignments are as extreme."""
    frame = pd.concat(
        [
            clustered(5, 1, domain="code", mean=0, effect=0.1),
            clustered(5, 1, domain="chat", mean=10, effect=0.1, seed=1),
        ]
    )
    result = significance.differences(frame, score.mean_of("x"), n=20_000).iloc[0]
    assert result["p_value"] == pytest.approx(2 / 252, abs=0.002)
    assert result["p_holm"] == result["p_value"]
    assert result["low"] < result["difference"] < result["high"] < 0


def test_permutation_and_holm_hold_their_level_without_a_difference():
    frame = pd.concat([clustered(10, 5, seed=seed, domain=f"d{seed:02d}") for seed in range(20)])
    result = significance.differences(frame, score.mean_of("x"), n=1000)
    assert len(result) == 190
    assert (result["p_value"] < 0.05).mean() < 0.12
    assert (result["p_holm"] > 0.05).all()
    by_row = frame.assign(prompt_id=range(len(frame)))  # the mistake: rows taken for independent
    wrong = significance.differences(by_row, score.mean_of("x"), n=1000)
    assert (wrong["p_value"] < 0.05).mean() > 0.3


def test_resamples_do_not_depend_on_the_order_of_the_domains():
    """Otherwise the difference between two frames' numbers would silently lose its pairing."""
    frame = pd.concat([clustered(domain=name, seed=3) for name in ("web", "app", "all else")])
    turned = frame.iloc[::-1]
    draws = [stats.jointly({"x": (rows, score.mean_of("x"))}) for rows in (frame, turned)]
    assert [*draws[0].prompts.domains] == [*draws[1].prompts.domains][::-1]
    first, second = (own["x"] for own in draws)
    assert_allclose(first, second[first.columns])


def test_a_domain_of_few_prompts_has_a_number_and_neither_interval_nor_test():
    """Derived numbers have no interval either. Other domains keep the intervals that they had
    without it.
    """
    many = pd.concat([clustered(), clustered(domain="math", seed=1)])
    few = clustered(prompts=4, domain="chat", seed=2)
    mean, both = score.mean_of("x"), pd.concat([many, few])
    assert stats.judged_domains(both) == ["code", "math"]
    table = stats.by_domain(both, mean).frame.set_index("domain")
    assert table.loc["chat", "estimate"] == pytest.approx(few["x"].mean())
    assert table.loc[["chat", "all", "pooled"], ["low", "high"]].isna().all(axis=None)
    alone = stats.by_domain(many, mean).frame.set_index("domain")
    assert_allclose(
        table.loc[["code", "math"], stats.NUMBERS], alone.loc[["code", "math"], stats.NUMBERS]
    )
    tests = significance.differences(both, mean, n=200)
    assert tests.equals(significance.differences(many, mean, n=200)), "one test, and Holm's of one"
    note = stats.jointly({"x": (both, mean)}).table().frame.set_index("domain")["note"]
    assert "needs at least 5" in note["chat"] and note["code"] == ""
    trend = association.correlations(both, "x", "y").set_index("domain").loc["chat"]
    assert np.isfinite(trend["estimate"]) and np.isnan(trend["low"])


def prompts_of(name, values, domain="code"):
    """One row per prompt."""
    ids = [f"{name}-{i:02d}" for i in range(len(values))]
    return pd.DataFrame({"prompt_id": ids, "domain": domain, "x": values})


def difference_of(first, second, n=400):
    """Draws of the means of two sets, and of their difference."""
    asked = {"first": (first, score.mean_of("x")), "second": (second, score.mean_of("x"))}
    draws = stats.jointly(asked, same=False, n=n)
    row = draws.table({"d": draws["first"] - draws["second"]}).at(domain="code").row
    return draws, row


def test_two_sets_are_resampled_by_themselves_and_the_smaller_sets_the_level():
    """By hand: means of 8 and of 5 prompts that are drawn apart, at the levels of 5 prompts."""
    first, second = prompts_of("a", np.arange(8.0)), prompts_of("b", np.arange(5.0) ** 2)
    draws, row = difference_of(first, second)
    one, other = np.split(draws.prompts.weights, [8], axis=1)
    assert (one.sum(axis=1) == 8).all() and (other.sum(axis=1) == 5).all()
    by_hand = one @ first["x"] / 8 - other @ second["x"] / 5
    ends = np.quantile(by_hand[1:], stats.levels_of(5))
    assert [row.estimate, row.low, row.high] == pytest.approx([3.5 - 6, *ends])
    assert abs(np.corrcoef(one @ first["x"], other @ second["x"])[0, 1]) < 0.15
    # what they share is drawn together: a copy has the same number in every resample
    asked = {"one": first, "copy": first, "part": first[:7], "far": prompts_of("b", np.ones(6))}
    draws = stats.jointly({k: (x, score.mean_of("x")) for k, x in asked.items()}, False, 50)
    assert_allclose(draws["one"], draws["copy"])
    assert draws.prompts.counted == {"code": 6} and draws.prompts.sizes == {"code": 14}


@pytest.mark.parametrize("sizes", [(4, 4), (50, 4), (4, 50)])
def test_with_four_prompts_in_a_set_a_difference_has_no_interval(sizes):
    """4 + 4 prompts are not 8."""
    _, row = difference_of(*(prompts_of(str(i), np.arange(n)) for i, n in enumerate(sizes)))
    assert np.isfinite(row.estimate) and np.isnan(row.low) and row.note == stats.TOO_FEW


@pytest.mark.parametrize(("spreads", "plain"), [((3, 1), (0, 0.03)), ((1, 3), (0.15, 0.5))])
def test_the_permutation_test_holds_its_level_with_75_and_15_prompts(spreads, plain):
    """No difference, other spreads. Without standard errors (the negative control) it is far off on
    either side.
    """
    rng, ours, theirs = np.random.default_rng(2), [], []
    for _ in range(250):
        x = rng.normal(size=90) * np.repeat(spreads, [75, 15])
        frame = pd.concat([prompts_of("a", x[:75], "a"), prompts_of("b", x[75:], "b")])
        test = significance.differences(frame, score.mean_of("x"), 199).iloc[0]
        ours.append(test["p_value"] <= 0.05)
        order = rng.random((199, 90)).argsort(axis=1) < 75
        permuted = order @ x / 75 - ~order @ x / 15
        theirs.append(np.mean(np.abs(permuted) >= abs(test["difference"])) <= 0.05)
    assert 0.015 < np.mean(ours) < 0.095
    assert plain[0] <= np.mean(theirs) <= plain[1]


def test_the_statistic_of_means_is_welchs_t():
    x, is_first = np.arange(14.0) ** 2, np.arange(14) < 9
    totals = np.column_stack([x, np.ones(14)])
    found = significance._studentised(is_first[None], totals, score.mean_of("x"))
    welch = scipy_stats.ttest_ind(x[is_first], x[~is_first], equal_var=False)
    assert found == pytest.approx([welch.statistic])
    assert significance._p_value(np.nan, np.ones(9)) == 1, "undefined is not significant"


def test_bad_input_is_named():
    with refuses("prompt_id occurs in two domains"):
        stats.resampling_of(pd.concat([clustered(), clustered().assign(domain="chat")]))
    prompts = stats.resampling_of(clustered(), 8)
    with refuses("x is undefined for this frame"):
        stats.Interval.of(np.full(9, np.nan), prompts, "x")


def test_holm_by_hand():
    """Factors 3, 2, 1 from the smallest p-value on, and never decreasing."""
    assert significance.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert significance.holm([0.3]).tolist() == [0.3]

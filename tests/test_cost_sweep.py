"""The gain of a setting for each domain by cost: by hand, chosen again in the resamples, and what
is said of a margin.
"""

import numpy as np
import pandas as pd
import pytest
from test_choose import random_trace, table_of

from speclab.analysis import choose, cost_sweep
from speclab.analysis.choose import PLAIN, UNKNOWN
from speclab.cost import Costs
from speclab.stats import Interval
from speclab.tree import PLAIN as NOTHING
from speclab.tree import chain


def two_domains(code, chat, prompts=10):
    """Prices of the settings a and b: every prompt of a domain costs the same."""
    rows = {"code": dict(zip("ab", code, strict=True))}
    rows["chat"] = dict(zip("ab", chat, strict=True))
    return table_of(
        {f"{d}-{i}": (d, row) for d, row in rows.items() for i in range(prompts)}
    )


def noisy(seed, prompts=20, apart=0.0):
    """Two domains and two settings; `apart` is how much cheaper each domain's own one is."""
    rng, texts = np.random.default_rng(seed), {}
    for domain, own in (("code", "a"), ("chat", "b")):
        for i in range(prompts):
            costs = dict(zip("ab", 10 + rng.normal(0, 1, 2), strict=True))
            costs[own] -= apart
            texts[f"{domain}-{i}"] = (domain, costs)
    return table_of(texts)


# ---- chosen again in every resample --------------------------------------------------------------


@pytest.mark.parametrize("routes", [None, "unknown", "crossed"])
def test_the_first_row_is_the_cross_fitted_choice(routes):
    prices = noisy(1)
    ids = prices.prompts["prompt_id"]
    other = {"code": "chat", "chat": "code"}
    taken_for = {
        None: None,
        "unknown": dict.fromkeys(ids, UNKNOWN),
        "crossed": {name: other[name.split("-")[0]] for name in ids},
    }[routes]
    found = choose.refitted(prices, taken_for, n=20)
    assert found.shape == (21, 2)
    judged = choose.cross_fit(prices, taken_for).groupby("domain")["cost"].sum()
    assert found[0].tolist() == pytest.approx(judged[["code", "chat"]].tolist())


def test_every_resample_is_a_cross_fitted_choice_of_its_own_prompts():
    """The same from frames that hold each drawn prompt as often as it was drawn."""
    prices = noisy(2, prompts=8)
    found = choose.refitted(prices, n=6)
    prompts = choose.resampling_of(prices.prompts, 6)
    domain = prices.prompts["domain"].to_numpy()
    fold = choose.fold_of(domain, 5)
    weights = prompts.weights[:, prompts.rows].astype(int)
    assert (weights[1:] != 1).any(axis=1).all()
    for row, weight in zip(found, weights, strict=True):
        drawn = np.repeat(np.arange(len(weight)), weight)
        cost = prices.cost[drawn]
        number = choose.cross_fitted(cost, domain[drawn], fold[drawn])
        spent = pd.Series(cost[np.arange(len(cost)), number])
        own = spent.groupby(domain[drawn]).sum()
        assert row.tolist() == pytest.approx(own[["code", "chat"]].tolist())


def test_prices_of_another_order_are_paid_by_the_right_prompt():
    prices = noisy(3)
    turned = choose.Prices(prices.table.sort_index(ascending=False).sort_index(level=0))
    assert turned.prompts["prompt_id"].tolist() != prices.prompts["prompt_id"].tolist()
    same = choose.refitted(prices, paid=prices, n=10)
    assert choose.refitted(prices, paid=turned, n=10) == pytest.approx(same)


def test_an_interval_of_speeds_holds_what_choosing_adds():
    """Two settings that are as good in the mean of all prompts: held fixed, one of them is compared
    with itself and nothing is unsure; chosen again, something is.
    """
    prices = noisy(4)
    ids = prices.prompts["prompt_id"]
    chosen = choose.setting_by_domain(prices)
    frames = {"one": prices.judged(chosen[UNKNOWN])}
    frames["each"] = prices.judged(dict.fromkeys(ids, chosen[UNKNOWN]))
    fixed = choose.paired_speeds(frames, "one").set_index(["quantity", "domain"])
    numbers = fixed.loc[("minus_baseline", "pooled"), ["estimate", "low", "high"]]
    assert (numbers == 0).all(), "the negative control: [0, 0] and no doubt"
    again = {
        "one": choose.refitted(prices, dict.fromkeys(ids, UNKNOWN)),
        "each": choose.refitted(prices),
    }
    found = choose.paired_speeds(frames, "one", again=again)
    row = found.query("quantity == 'minus_baseline' and domain == 'pooled'").iloc[0]
    assert row["low"] < 0 < row["high"]


# ---- the gain ------------------------------------------------------------------------------------


def test_the_gain_by_hand():
    """One setting for all: a, 10 + 16 = 26 a pair of prompts; one for each: 10 + 12 = 22."""
    found = cost_sweep.gain(two_domains(code=(10, 20), chat=(16, 12)), n=50)
    assert found.estimate == pytest.approx(26 / 22 - 1)
    assert found.low == found.high == pytest.approx(found.estimate)
    same = cost_sweep.gain(two_domains(code=(10, 20), chat=(10, 20)), n=50)
    assert (same.estimate, same.low, same.high) == (0, 0, 0)


def test_domains_that_are_alike_gain_nothing():
    """The negative control: a choice from fewer prompts is no better, so no interval lies above 0;
    domains that differ by as much as the noise are found.
    """
    alike = [cost_sweep.gain(noisy(seed), n=300) for seed in range(20)]
    assert sum(found.low > 0 for found in alike) <= 1
    assert np.mean([found.estimate for found in alike]) < 0.005
    apart = [cost_sweep.gain(noisy(seed, apart=1.5), n=300) for seed in range(5)]
    assert all(found.low > 0 for found in apart)


def test_a_draft_that_is_free_or_too_dear():
    trace = random_trace(hit=(0.95, 0.3))
    settings = {PLAIN: NOTHING} | {f"chain:{g}": chain(g) for g in range(1, 5)}
    counted = choose.block_counts(trace, settings)
    machines = cost_sweep.lines([0.3, 5.0], slopes=(0.0, 0.5))
    assert machines["v(n) = 1 + 0.5 (n - 1)", 0.3].v(5) == pytest.approx(3)
    assert machines["v = 1", 0.3] == Costs.on_a_line(0.3)
    found = cost_sweep.gain_by_cost(counted, settings, machines, n=50)
    assert found.keys == ["v", "c"] and found.at(v="v = 1", c=0.3).value > 0.02
    dear = found.at(c=5.0).frame
    assert (dear[["estimate", "low", "high"]] == 0).all(axis=None)
    assert set(dear["each"]) == {"code plain, chat plain"}


# ---- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.011, 0.03, cost_sweep.WORTH),
        (0.01, 0.03, cost_sweep.OPEN),
        (-0.01, 0.01, cost_sweep.NO_CASE),
        (-0.02, 0.005, cost_sweep.OPEN),
        (-0.03, -0.011, cost_sweep.LOSS),
        (np.nan, np.nan, cost_sweep.OPEN),
    ],
)
def test_what_is_told_of_a_margin(low, high, word):
    assert cost_sweep.told(Interval(0.0, low, high, 50), 0.01) == word

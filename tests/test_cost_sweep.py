"""The gain of a setting for each domain: by hand, and chosen again in the resamples."""

import numpy as np
import pandas as pd
import pytest
from test_choose import table_of

from speclab.analysis import choose, cost_sweep
from speclab.analysis.choose import UNKNOWN


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
    found = choose.fit(prices, taken_for, n=20)
    assert found.cost.shape == (21, 2)
    judged = found.judged.groupby("domain")["cost"].sum()
    assert found.cost[0].tolist() == pytest.approx(judged[["code", "chat"]].tolist())
    domain = prices.prompts["domain"].to_numpy()
    label = None if taken_for is None else ids.map(taken_for).to_numpy()
    fold = choose.fold_of(domain, 5)
    number = choose.cross_fitted(prices.cost, domain, fold, label)
    assert found.judged["setting"].tolist() == prices.settings[number].tolist()


def test_every_resample_is_a_cross_fitted_choice_of_its_own_prompts():
    """The same from frames that hold each drawn prompt as often as it was drawn."""
    prices = noisy(2, prompts=8)
    found = choose.fit(prices, n=6).cost
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
    same = choose.fit(prices, paid=prices, n=10).cost
    assert choose.fit(prices, paid=turned, n=10).cost == pytest.approx(same)


def test_an_interval_of_speeds_holds_what_choosing_adds():
    """Two settings that are as good in the mean of all prompts: held fixed, one of them is compared
    with itself and nothing is unsure; chosen again, something is.
    """
    prices = noisy(4)
    ids = prices.prompts["prompt_id"]
    chosen = choose.setting_by_domain(prices)
    one = choose.Choice(prices.judged(chosen[UNKNOWN]))
    fixed = choose.speeds({"one": one, "each": one})
    assert (fixed["each"] == fixed["one"]).all(axis=None), "the negative control"
    for_all = dict.fromkeys(ids, UNKNOWN)
    found = choose.speeds(
        {"one": choose.fit(prices, for_all), "each": choose.fit(prices)}
    )
    gained = found["each"]["pooled"] - found["one"]["pooled"]
    low, high = gained.iloc[1:].quantile([0.025, 0.975])
    assert low < 0 < high


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

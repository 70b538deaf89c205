"""Power: hand cases, statsmodels and simulation as references."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.power import TTestIndPower
from test_score import make_run

from speclab import score
from speclab.analysis import power, significance
from speclab.analysis.power import Design
from speclab.stats import resampling_of

MEAN = score.mean_of("x")


def texts(domain, values, rows=1):
    """One prompt a value; each of its rows is that value."""
    ids = np.repeat([f"{domain}-{i:03d}" for i in range(len(values))], rows)
    return pd.DataFrame(
        {"prompt_id": ids, "domain": domain, "x": np.repeat(np.asarray(values, float), rows)}
    )


def levels(domain, prompts, mean, seed, rows=8):
    """Prompts of different lengths and levels, rows with noise of their own: a ratio of sums that
    is no mean of prompt means.
    """
    rng = np.random.default_rng(seed)
    frame = texts(domain, rng.normal(mean, 1, prompts), rows)
    frame["x"] += rng.normal(0, 0.5, len(frame))
    return frame[np.arange(len(frame)) % rows < np.repeat(rng.integers(2, rows + 1, prompts), rows)]


TWO = pd.concat(
    [texts("code", [0, 1, 2, 3, 4]), texts("chat", [0, 0, 0, 0, 5])]
)  # sample variances 2.5 and 5


def test_influence_by_hand():
    """Sums 1, 2, 3, 4, 10 over 1, 1, 2, 2, 4 rows: the mean is 2, rows per prompt 2, influence (sum
    - 2 rows) / 2.
    """
    frame = pd.concat(
        [
            texts("code", [s / n], n).assign(prompt_id=f"p{s:02d}")
            for s, n in ((1, 1), (2, 1), (3, 2), (4, 2), (10, 4))
        ]
    )
    found = power.influence(frame, MEAN)["code"]
    assert found == pytest.approx([-0.5, 0, -0.5, 0, 1], abs=1e-6)


def test_closed_form_by_hand_and_by_statsmodels():
    design = power.between(TWO, MEAN, "code", "chat")
    assert design.sd == pytest.approx(np.sqrt(7.5))
    errors = np.sqrt(7.5 / 2)  # of one side, as Cohen's d has it
    for prompts, comparisons in ((30, 1), (50, 6)):
        reference = TTestIndPower().power(1 / errors, prompts, 0.05 / comparisons)
        found = design.power(1.0, prompts, 0.05 / comparisons)
        assert found == pytest.approx(reference)
    assert design.prompts_needed(1.0) == 60  # (1.959964 + 0.841621)^2 * 7.5 = 58.87, and a little
    many = (1.959964 + 0.841621) * np.sqrt(7.5 / 10**6)
    assert design.power(many, 10**6) == pytest.approx(0.8, abs=1e-4), (
        "of many prompts the normal approximation"
    )
    assert design.power(0.0, 30) == pytest.approx(0.05), (
        "without a difference, the rate of false alarms"
    )


@given(
    st.floats(0.01, 10), st.floats(0.05, 5), st.sampled_from([0.5, 0.8, 0.95]), st.integers(1, 10)
)
def test_the_prompts_needed_are_enough_and_no_fewer_are(sd, difference, wanted, comparisons):
    design = Design(sd)
    level = 0.05 / comparisons
    needed = design.prompts_needed(difference, wanted, level)
    assert design.power(difference, needed, level) >= wanted - 1e-9
    if needed > 5:
        assert design.power(difference, needed - 1, level) < wanted


def simulated_power(
    frame: pd.DataFrame,
    estimator: score.Estimator,
    prompts: int = 50,
    level: float = 0.05,
    repeats: int = 200,
    n: int = 999,
    seed: int = 0,
) -> float:
    """`significance.differences` itself on `repeats` studies of `prompts` prompts a side, drawn
    with replacement from those of a frame's two domains: the share whose p-value (of n
    permutations) is below the level, its power at their difference.
    """
    own = resampling_of(frame, 1)
    totals = own.totals(estimator.columns(frame))
    sides = [totals[own.domain == number] for number in range(2)]
    study = pd.DataFrame(
        {"prompt_id": range(2 * prompts), "domain": np.repeat(own.domains, prompts)}
    )
    rng, found = np.random.default_rng([seed, 3]), 0
    for _ in range(repeats):
        drawn = np.concatenate([rng.choice(side, prompts) for side in sides])
        redrawn = replace(estimator, columns=lambda rows, drawn=drawn: drawn[rows.index])
        again = {"n": n, "seed": int(rng.integers(2**31)), "resamples": 1}
        tested = significance.differences(study, redrawn, **again)
        found += tested["p_value"].item() < level
    return found / repeats


def test_false_alarms_are_as_rare_as_promised():
    same = levels("code", 60, 0.0, 7)
    other = same.assign(domain="chat", prompt_id="x" + same["prompt_id"])
    found = simulated_power(pd.concat([same, other]), MEAN, 30, repeats=80, n=99)
    assert found <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 80)
    far = pd.concat([same, other.assign(x=other["x"] + 2)])
    found = simulated_power(far, MEAN, 30, repeats=20, n=99)
    assert found == 1.0, "and a large difference is always found"


def test_every_pair_is_listed_with_the_values_that_are_given():
    frame = pd.concat([TWO, texts("math", [1, 2, 3, 4, 5])])
    own = power.every_pair(frame, MEAN, {"code": 2.0, "chat": 1.0, "math": 3.0})
    assert (own["estimator"] == "mean_x").all()
    assert [tuple(pair) for pair in own[["first", "second"]].to_numpy()] == [
        ("code", "math"),
        ("code", "chat"),
        ("math", "chat"),
    ]
    assert own["difference"].tolist() == pytest.approx([-1, 1, 2])
    design = power.between(frame, MEAN, "code", "chat")
    assert own["power"][1] == pytest.approx(design.power(1.0, 50, 0.05 / 3)), (
        "Holm's first step: level / 3"
    )
    assert design.prompts_needed(1, level=0.05 / 3) == own.loc[1, "needed"]
    same = power.every_pair(frame, MEAN, pd.Series({"code": 0.5, "chat": 0.5}))
    assert same["needed"].isna().tolist() == [True]
    flat = frame.assign(x=frame["x"].where(frame["domain"] == "math", 1.0))
    none = power.every_pair(flat, MEAN, {"code": 2.0, "chat": 1.0, "math": 3.0})
    assert none[["power", "needed"]].isna().all(axis=1).tolist() == [0, 1, 0]


def test_prompts_without_a_spread_plan_nothing():
    flat = [texts(name, [1, 1, 1, 1, 1]) for name in ("code", "chat")]
    with pytest.raises(ValueError, match="same in every prompt"):
        power.between(pd.concat(flat), MEAN, "code", "chat")


def test_an_estimator_that_is_undefined_in_a_domain_is_named():
    nodes = make_run().nodes
    nodes["best_path"] = nodes["best_path"] & (nodes["domain"] != "math")
    with pytest.raises(ValueError, match=r"best_path_ratio is undefined in math"):
        power.influence(nodes, score.best_path_ratio)

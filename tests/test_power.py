"""Power: hand-made cases, with statsmodels and simulation as references."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.power import TTestIndPower
from test_score import make_run

from speclab import score
from speclab.analysis import power
from speclab.analysis.power import Design

MEAN = score.mean_of("x")


def texts(domain, values, rows=1):
    """One prompt a value; each of its rows is that value."""
    ids = np.repeat([f"{domain}-{i:03d}" for i in range(len(values))], rows)
    return pd.DataFrame(
        {"prompt_id": ids, "domain": domain, "x": np.repeat(np.asarray(values, float), rows)}
    )


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
    assert design.power(0.0, 30) == pytest.approx(0.05), "the rate of false alarms"
    assert design.power(1e6, 30) == 1


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


def test_every_pair_is_planned_at_the_first_of_holms_steps():
    frame = pd.concat([TWO, texts("math", [1, 2, 3, 4, 5])])
    values = {"code": 2.0, "chat": 1.0, "math": 3.0}
    plans = power.every_pair(frame, MEAN, values)
    pairs = plans[["first", "second", "difference"]].to_numpy().tolist()
    assert pairs == [["code", "math", -1], ["code", "chat", 1], ["math", "chat", 2]]
    design = power.between(frame, MEAN, "code", "chat")
    assert plans.loc[1, "power"] == pytest.approx(design.power(1.0, 50, 0.05 / 3))
    assert plans.loc[1, "needed"] == design.prompts_needed(1, level=0.05 / 3)
    same = power.every_pair(frame, MEAN, {"code": 0.5, "chat": 0.5})
    assert same["needed"].isna().all() and same["power"].notna().all()
    flat = frame.assign(x=frame["x"].where(frame["domain"] == "math", 1.0))
    none = power.every_pair(flat, MEAN, values)
    assert none[["power", "needed"]].isna().all(axis=1).tolist() == [0, 1, 0]


def test_prompts_without_a_spread_plan_nothing():
    flat = [texts(name, [1, 1, 1, 1, 1]) for name in ("code", "chat")]
    with pytest.raises(ValueError, match="same in every prompt"):
        power.between(pd.concat(flat), MEAN, "code", "chat")
    found = Design(np.zeros(2)).power(np.array([0.1, 0]), 5)
    assert found == pytest.approx([1, 0.05]), "any difference is found, and none is a false alarm"


def test_a_domain_of_few_prompts_plans_nothing():
    few = pd.concat([TWO, texts("math", [1, 2, 3, 4])])
    with pytest.raises(ValueError, match="fewer than 5 prompts in math"):
        power.between(few, MEAN, "code", "math")
    plans = power.every_pair(few, MEAN, {"code": 2.0, "chat": 1.0, "math": 3.0})
    assert plans["power"].notna().tolist() == [False, True, False]


def test_an_estimator_that_is_undefined_in_a_domain_is_named():
    nodes = make_run().nodes
    nodes["best_path"] = nodes["best_path"] & (nodes["domain"] != "math")
    with pytest.raises(ValueError, match=r"best_path_ratio is undefined in math"):
        power.influence(nodes, score.best_path_ratio)


def test_the_least_difference_is_found_as_often_as_it_says():
    """Of unequal domains too: with the standard error of both, and the smaller one's prompts."""
    for prompts in (5, 9, 50):
        least = Design(0.3).least_difference(prompts, 0.8, 0.005)
        assert Design(0.3).power(least, prompts, 0.005) == pytest.approx(0.8)
    few = texts("lone", [1, 2, 3, 4])
    alike = pd.concat([texts("a", [1] * 5), texts("b", [2] * 6)])
    twelve = texts("many", np.arange(12.0))
    found = power.detectable(pd.concat([TWO, twelve, few]), MEAN, 0.8, 0.05)
    assert found[["first", "second"]].agg("-".join, axis=1).tolist() == [
        "code-chat",
        "code-many",
        "chat-many",
    ]
    assert found["prompts"].tolist() == [5, 5, 5]
    error = np.sqrt(2.5 / 5 + 13 / 12)
    assert found["least"][1] == pytest.approx(
        Design(error * np.sqrt(5)).least_difference(5, 0.8, 0.05 / 3)
    )
    assert power.detectable(alike, MEAN)["least"].isna().all()

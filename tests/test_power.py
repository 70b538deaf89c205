"""Power: hand-made cases, with statsmodels and simulation as references."""

import numpy as np
import pandas as pd
import pytest
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
    sides = power.influence(TWO, MEAN).values()
    assert sum(values.var(ddof=1) for values in sides) == pytest.approx(7.5)
    design = Design(np.sqrt(7.5))
    errors = np.sqrt(7.5 / 2)  # of one side, as Cohen's d has it
    for prompts, comparisons in ((30, 1), (50, 6)):
        reference = TTestIndPower().power(1 / errors, prompts, 0.05 / comparisons)
        found = design.power(1.0, prompts, 0.05 / comparisons)
        assert found == pytest.approx(reference)
    assert design.power(0.0, 30) == pytest.approx(0.05), "the rate of false alarms"
    assert design.power(1e6, 30) == 1


def test_prompts_without_a_spread():
    found = Design(np.zeros(2)).power(np.array([0.1, 0]), 5)
    assert found == pytest.approx([1, 0.05]), "any difference is found, and none is a false alarm"


def test_an_estimator_that_is_undefined_in_a_domain_is_named():
    nodes = make_run().nodes
    nodes["best_path"] = nodes["best_path"] & (nodes["domain"] != "math")
    with pytest.raises(ValueError, match=r"best_path_ratio is undefined in math"):
        power.influence(nodes, score.best_path_ratio)

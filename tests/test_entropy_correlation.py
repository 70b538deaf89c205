"""Notebook 05's study: areas under ROC curves against hand counts and scikit-learn, each acceptance
on the text of its own temperature, calibration by hand.
"""

import numpy as np
import pandas as pd
import pytest
from frames import noisy, text_of
from sklearn.metrics import roc_auc_score
from test_score import make_run

from speclab import stats
from speclab.studies import entropy_correlation as study


def test_auc_by_hand():
    """Pairs (accepted, rejected): 0.35 > 0.1, 0.35 < 0.4, 0.8 > both: 3 of 4."""
    one = pd.DataFrame({"signal": [0.1, 0.4, 0.35, 0.8], "hit": [0.0, 0, 1, 1]})
    texts = {f"p{i}": one for i in range(5)}
    frame = pd.concat(texts, names=["prompt_id"]).reset_index("prompt_id")
    assert study.auc(frame, "signal") == stats.Interval(0.75, 0.75, 0.75, 5)
    assert study.auc(frame.assign(signal=-frame["signal"]), "signal").estimate == 0.25
    ties = frame.assign(signal=[0, 0, 0, 1] * 5)
    assert study.auc(ties, "signal").estimate == 0.75, "ties one half"


def test_auc_of_every_resample_equals_sklearn():
    frame = noisy()
    prompts = stats.resampling_of(frame, 20)
    slow = [
        roc_auc_score(frame["hit"], frame["signal"], sample_weight=weight[prompts.rows])
        for weight in prompts.weights
    ]
    np.testing.assert_allclose(study.auc_draws(frame, "signal", prompts), slow)


def test_auc_difference_is_of_the_same_resamples():
    frame = noisy()
    difference = study.auc(frame, "signal", minus="other")
    assert study.auc(frame, "signal", minus="signal") == stats.Interval(0, 0, 0, 16)
    assert difference.low > 0, "the other signal is noise"


@pytest.mark.parametrize("change", [{"hit": 1.0}, {"signal": 3.0}])
def test_auc_of_what_does_not_vary_is_refused(change):
    with pytest.raises(
        ValueError, match="not both 0 and 1 here, or signal .* constant"
    ):
        study.auc(noisy().assign(**change), "signal")


def test_each_acceptance_is_asked_of_the_text_of_its_temperature():
    greedy, sampled = make_run(positions=6), make_run(positions=4, seed=1)
    for run in (greedy, sampled):
        run.trace["target_entropy"] = np.arange(len(run.trace)) % 11
    views = study.acceptances(text_of(greedy), text_of(sampled, 1.0))
    rows = {name: len(frame) for name, (frame, _) in views.items()}
    assert rows[study.HIT] == len(greedy.trace)
    assert rows[study.OVERLAP] == len(sampled.trace)
    assert rows["min(1, p/q), all nodes"] == len(greedy.nodes)
    never = views | {study.HIT: (greedy.trace.assign(hit=0.0), "hit")}
    found = study.entropy_correlations(never).frame
    undefined = found[found["estimate"].isna()]
    assert set(undefined["acceptance"]) == {study.HIT}
    assert undefined["note"].str.contains("constant").all()
    curves = study.acceptance_in_bins(views, 3)
    assert curves.lies_within(0, 1) and set(curves.frame["entropy_bin"]) == {0, 1, 2}


def test_calibration_of_a_draft_that_is_right():
    frame = noisy()
    frame["confidence"] = frame["hit"] / 2 + 0.25
    views = {"T = 0": (frame, "hit"), "itself": (frame, "confidence")}
    found = study.calibration(views, 10)
    assert found.at(view="itself").lies_within(0, 0)
    error = found.at(view="T = 0", estimator="calibration_error", domain="pooled")
    assert error.value == pytest.approx(0.25), "0.75 comes true, 0.25 does not"
    share = study.reliability(views, 10).at(view="T = 0", domain="pooled")
    assert share.frame["estimate"].tolist() == [0, 1]

"""Notebook 05's study: areas under ROC curves against hand counts and scikit-learn, and the words
that intervals get.
"""

import numpy as np
import pandas as pd
import pytest
from frames import noisy
from sklearn.metrics import roc_auc_score
from test_score import make_run

from speclab import stats
from speclab.analysis import association
from speclab.show.estimates import Estimates
from speclab.studies import entropy_correlation as study

# ---- ROC -----------------------------------------------------------------------------------------


def test_auc_by_hand():
    """Pairs (accepted, rejected): 0.35 > 0.1, 0.35 < 0.4, 0.8 > both: 3 of 4."""
    rows = [(0.1, 0.0), (0.4, 0.0), (0.35, 1.0), (0.8, 1.0)]
    frame = pd.DataFrame(
        [(f"p{i}", "code", s, y) for i in range(5) for s, y in rows],
        columns=["prompt_id", "domain", "signal", "hit"],
    )
    found = study.auc(frame, "signal", "hit")
    assert (found.estimate, found.low, found.high, found.n_prompts) == (
        0.75,
        0.75,
        0.75,
        5,
    )
    reversed_ = frame.assign(signal=-frame["signal"])
    assert study.auc(reversed_, "signal", "hit").estimate == 0.25
    ties = frame.assign(signal=[0, 0, 0, 1] * 5)
    assert study.auc(ties, "signal", "hit").estimate == 0.75, "ties one half"
    curve = study.roc(frame, "signal", "hit")
    assert np.trapezoid(
        curve["true_positive"], curve["false_positive"]
    ) == pytest.approx(0.75)


@pytest.mark.parametrize("domain", ["code", None])
def test_auc_of_every_resample_equals_sklearn(domain):
    frame = noisy()
    frame = frame if domain is None else frame[frame["domain"] == domain]
    prompts = stats.resampling_of(frame, 20)
    slow = [
        roc_auc_score(frame["hit"], frame["signal"], sample_weight=weight[prompts.rows])
        for weight in prompts.weights
    ]
    np.testing.assert_allclose(study.auc_draws(frame, "signal", "hit", prompts), slow)


def test_auc_difference_is_of_the_same_resamples():
    frame = noisy()
    both = [study.auc(frame, name, "hit") for name in ("signal", "other")]
    difference = study.auc(frame, "signal", "hit", minus="other")
    assert difference.estimate == pytest.approx(both[0].estimate - both[1].estimate)
    nothing = study.auc(frame, "signal", "hit", minus="signal")
    assert nothing == stats.Interval(0.0, 0.0, 0.0, 16)
    assert difference.low > 0, "the other signal is noise"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hit": 1.0}, r"holds \[1.0\], not both"),
        ({"signal": 3.0}, "signal 'signal' is constant"),
    ],
)
def test_roc_of_what_does_not_vary_is_refused(change, message):
    frame = noisy().assign(**change)
    for measure in (study.roc, study.auc):
        with pytest.raises(ValueError, match=message):
            measure(frame, "signal", "hit")


# ---- tables and words ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frames():
    run = make_run()
    run.trace = run.trace.assign(
        top_draft_q=run.trace["top_draft_p"],
        draft_entropy=run.trace["draft_rank"] + np.arange(len(run.trace)) % 7,
        target_entropy=np.arange(len(run.trace)) % 11,
    )
    return study.frames(run)


def correlations_of(*rows) -> Estimates:
    columns = ["method", "acceptance", "domain", "estimate", "low", "high"]
    return Estimates(pd.DataFrame(rows, columns=columns))


def test_published_correlations_stand_beside_ours():
    ours = correlations_of(("spearman", "hit", "code", -0.3, -0.4, -0.2))
    both = study.beside_published(ours)
    assert list(both.frame["acceptance"]) == ["hit", "published"], (
        "only domains that we have"
    )
    assert both.at(acceptance="published").value == -0.194


def test_tables_of_a_run_hold_every_view(frames):
    nodes, trace = frames
    never = trace.assign(overlap=0.5)
    none = study.entropy_correlations(nodes, never, trace.assign(hit=0))
    assert none.defined().frame["acceptance"].nunique() == 5, "each of its own text"
    none = study.entropy_correlations(nodes, trace, never)
    assert study.OVERLAP not in set(none.defined().frame["acceptance"])
    found = study.entropy_correlations(nodes, trace, trace)
    assert set(found.frame["method"]) == set(association.METHODS)
    curves = study.curves(nodes, trace, trace, 3)
    assert curves.lies_within(0, 1) and set(curves.frame["entropy_bin"]) == {0, 1, 2}
    assert set(study.areas(trace).frame["signal"]) == set(study.SIGNALS.values())


def test_calibration_of_a_draft_that_is_right(frames):
    _, trace = frames
    trace = trace.assign(confidence=trace["hit"] / 2 + 0.25)
    views = {"T = 0": (trace, "hit"), "itself": (trace, "confidence")}
    found = study.calibration(views, 10)
    assert found.at(view="itself").lies_within(0, 0)
    error = found.at(view="T = 0", estimator="calibration_error", domain="pooled").value
    assert error == pytest.approx(0.25), "0.75 comes true, 0.25 does not"
    share = study.reliability(views, 10).at(view="T = 0", domain="pooled")
    assert share.frame["estimate"].tolist() == [0, 1]

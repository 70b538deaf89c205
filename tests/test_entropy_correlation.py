"""Notebook 05's study: areas under ROC curves within texts against hand counts and scikit-learn,
each acceptance on the text of its own temperature, calibration by hand.
"""

import numpy as np
import pandas as pd
import pytest
from frames import noisy, text_of
from sklearn.metrics import roc_auc_score
from test_score import make_run

from speclab.studies import entropy_correlation as study


def signals_of(frame):
    """The frame with a column for each signal, of one seed."""
    others = {"draft_certainty": frame["other"], "target_certainty": -frame["signal"]}
    return frame.assign(confidence=frame["signal"], seed=0, **others)


def test_auc_by_hand():
    """Pairs (accepted, rejected): 0.35 > 0.1, 0.35 < 0.4, 0.8 > both: 3 of 4."""
    one = pd.DataFrame({"signal": [0.1, 0.4, 0.35, 0.8], "hit": [False, False, True, True]})
    texts = {f"p{i}": one.assign(signal=one["signal"] + i, other=[0, 0, 0, 1]) for i in range(5)}
    frame = pd.concat(texts, names=["prompt_id"]).reset_index("prompt_id")
    found = study.within_texts(signals_of(frame.assign(domain="code"))).table()
    found = found[found["domain"] == "code"].set_index("name")["estimate"]
    assert found.tolist() == [0.75, 0.75, 0.25], "ties one half; the level of a text is nothing"


def test_auc_within_texts_equals_sklearn_and_knows_no_level_of_a_text():
    frame = noisy()
    frame["signal"] += frame["prompt_id"].rank(method="dense")
    frame["hit"] = (frame["hit"] > 0) | (frame["prompt_id"] == "p03")  # no pairs there
    known = study.within_texts(signals_of(frame))["draft confidence"]
    areas, pairs = [], []
    for _, text in frame.groupby("prompt_id"):
        accepted = text["hit"].sum()
        if 0 < accepted < len(text):
            pairs.append(accepted * (len(text) - accepted))
            areas.append(roc_auc_score(text["hit"], text["signal"]))
    assert known["pooled"][0] == pytest.approx(np.average(areas, weights=pairs))
    level = frame.assign(signal=frame["prompt_id"].rank(method="dense"))
    of_level = study.within_texts(signals_of(level))["draft confidence"]["pooled"][0]
    assert of_level == 0.5, "to know the text alone is worth nothing"


def test_without_pairs_there_is_no_auc():
    found = study.within_texts(signals_of(noisy().assign(hit=True))).table()
    assert found["estimate"].isna().all()


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

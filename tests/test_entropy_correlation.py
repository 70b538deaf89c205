"""Notebook 05's study: areas under ROC curves within texts against counted pairs, acceptance on the
text of its own temperature, and calibration by hand.
"""

import numpy as np
import pandas as pd
import pytest
from frames import noisy, text_of
from test_score import make_run

from speclab.estimates import Estimates
from speclab.studies import entropy_correlation as study


def signals_of(frame):
    """The frame with a column for each signal, from one seed."""
    others = {"draft_certainty": frame["other"], "target_certainty": -frame["signal"]}
    return frame.assign(confidence=frame["signal"], seed=0, **others)


def test_auc_is_over_all_pairs_of_a_text_and_knows_no_level_of_it():
    frame = noisy()
    frame["signal"] += frame["prompt_id"].rank(method="dense")
    frame["hit"] = (frame["hit"] > 0) | (frame["prompt_id"] == "p03")  # no pairs there
    known = study.within_texts(signals_of(frame))["draft confidence"]
    pairs = above = 0
    for _, text in frame.groupby("prompt_id"):
        signal, hit = text["signal"].to_numpy(), text["hit"]
        leads = np.subtract.outer(signal[hit], signal[~hit])
        pairs += leads.size
        above += (np.sign(leads) + 1).sum() / 2
    assert known["pooled"][0] == pytest.approx(above / pairs)
    level = frame.assign(signal=frame["prompt_id"].rank(method="dense"))
    of_level = study.within_texts(signals_of(level))["draft confidence"]["pooled"][0]
    assert of_level == 0.5, "to know the text alone is worth nothing: ties count one half"


def test_without_pairs_there_is_no_auc():
    found = study.within_texts(signals_of(noisy().assign(hit=True))).table().frame
    assert found["estimate"].isna().all()


def test_each_acceptance_is_asked_of_the_text_of_its_temperature():
    greedy, sampled = make_run(positions=6), make_run(positions=4, seed=1)
    for run in (greedy, sampled):
        run.trace["target_entropy"] = np.arange(len(run.trace)) % 11
    views = study.acceptances(text_of(greedy), text_of(sampled, 0.7))
    rows = {name: len(frame) for name, (frame, _) in views.items()}
    assert rows["best token (T = 0)"] == len(greedy.trace)
    assert rows["drawn token (T = 0.7)"] == len(sampled.trace)
    assert rows[study.ALL_NODES] == len(greedy.nodes)
    never = views | {"best token (T = 0)": (greedy.trace.assign(hit=0.0), "hit")}
    table = study.entropy_correlations(never).frame
    undefined = table[table["note"].str.contains("constant")]
    assert set(undefined["acceptance"]) == {"best token (T = 0)"}
    assert undefined["estimate"].isna().all()


@pytest.mark.parametrize(("domains", "shown"), [(["math", "chat"], True), (["chat", "app"], False)])
def test_the_papers_numbers_are_shown_of_its_own_domains_alone(domains, shown):
    rows = pd.DataFrame({"acceptance": "best token (T = 0)", "domain": domains})
    both = study.beside_published(Estimates(rows.assign(estimate=0.5, low=0.4, high=0.6)))
    assert (study.PUBLISHED in set(both.frame["acceptance"])) == shown
    assert set(both.frame["domain"]) == {*domains}


@pytest.mark.parametrize(
    ("confidence", "outcome", "count", "error"),
    [
        # bin 0: confidence 0.15, outcome 0.5; bin 1: 0.85 and 1
        ([0.1, 0.2, 0.8, 0.9], [0.0, 1.0, 1.0, 1.0], 2, (0.35 + 0.15) / 2),
        ([0.1, 0.2, 0.8, 0.9], [0.0, 1.0, 1.0, 1.0], 1, 0.75 - 0.5),  # one bin: the gap
        ([0.1, 0.2, 0.8, 0.9], [0.1, 0.2, 0.8, 0.9], 10, 0.0),
        ([0.2, 0.8], [0.5, 0.5], 2, 0.3),  # gaps of opposite signs do not cancel
    ],
)
def test_calibration_by_hand(confidence, outcome, count, error):
    one = pd.DataFrame({"confidence": confidence, "hit": outcome, "domain": "code"})
    frame = pd.concat([one.assign(prompt_id=i) for i in range(5)])
    found = study.calibration_measures({"T = 0": (frame, "hit")}, count).at(domain="code")
    assert found.at(estimator="calibration_error").value == pytest.approx(error)
    gap = np.mean(outcome) - np.mean(confidence)
    assert found.at(estimator="calibration_gap").value == pytest.approx(gap)


def test_reliability_by_hand():
    frame = noisy()
    frame["confidence"] = frame["hit"] / 2 + 0.25
    share = study.reliability({"T = 0": (frame, "hit")}, 10).at(domain="pooled").frame
    assert share["estimate"].tolist() == [0, 1], "0.75 comes true, 0.25 does not"
    assert share["confidence"].tolist() == [0.25, 0.75]

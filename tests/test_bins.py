"""Signals and bins: every function against a hand-computed case."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from speclab.lab import bins


def test_signals_by_hand():
    entropies = {"draft_entropy": [0.5, 1.5], "target_entropy": [0.1, 2.0]}
    trace = pd.DataFrame({"draft_rank": [0, 2]} | entropies)
    trace["top_draft_q"] = [np.array([0.9, 0.05]), np.array([0.4, 0.3])]
    found = bins.signals(trace)
    names = ["hit", "confidence", "draft_certainty", "target_certainty"]
    expected = [[1, 0.9, -0.5, -0.1], [0, 0.4, -1.5, -2.0]]
    assert found[names].to_numpy().tolist() == expected


def test_pairs_that_a_signal_ranks_right_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"prompt_id": np.repeat(["b", "a", "all right"], [30, 20, 5]), "domain": "x"}
    )
    frame["hit"] = (rng.random(55) < 0.6) | (frame["prompt_id"] == "all right")
    frame["sure"], frame["other"] = rng.integers(0, 5, (2, 55))  # with ties
    found = bins.surer_pairs(frame.astype({"hit": float}), ["sure", "other"]).set_index("prompt_id")
    for prompt, rows in frame.groupby("prompt_id"):
        pairs = rows["hit"].sum() * (~rows["hit"]).sum()
        right = [pairs and pairs * roc_auc_score(rows["hit"], rows[n]) for n in ("sure", "other")]
        np.testing.assert_allclose(
            found.loc[prompt, ["pairs", "sure", "other"]].astype(float), [pairs, *right]
        )


def test_quantile_bins_by_hand():
    frame = pd.DataFrame({"x": [4.0, 1, 2, 3]})
    assert bins.quantile_bins(frame, "x", 2).tolist() == [1, 0, 0, 1]
    tied = frame.assign(x=[0.0, 0, 0, 1])
    assert set(bins.quantile_bins(tied, "x", 3)) == {0}, "ties leave fewer bins"
    with pytest.raises(ValueError, match="a column that varies"):
        bins.quantile_bins(frame.assign(x=2.0), "x", 2)

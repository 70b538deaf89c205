"""Bins, means by level and calibration: every function against a hand-computed case."""

import numpy as np
import pandas as pd
import pytest
from frames import frame_of

from speclab.analysis import bins

# ---- signals and bins ----------------------------------------------------------------------------


def test_signals_by_hand():
    entropies = {"draft_entropy": [0.5, 1.5], "target_entropy": [0.1, 2.0]}
    trace = pd.DataFrame({"draft_rank": [0, 2]} | entropies)
    trace["top_draft_q"] = [np.array([0.9, 0.05]), np.array([0.4, 0.3])]
    trace["top_draft_p"] = [np.array([0.7, 0.1]), np.array([0.2, 0.5])]
    found = bins.signals(trace)
    names = ["hit", "confidence", "top_p", "draft_certainty", "target_certainty"]
    expected = [[1, 0.9, 0.7, -0.5, -0.1], [0, 0.4, 0.2, -1.5, -2.0]]
    assert found[names].to_numpy().tolist() == expected


def test_quantile_bins_by_hand():
    frame = pd.DataFrame({"x": [4.0, 1, 2, 3]}, index=[7, 5, 6, 4])
    assert bins.quantile_bins(frame, "x", 2).to_dict() == {7: 1, 5: 0, 6: 0, 4: 1}
    tied = frame.assign(x=[0.0, 0, 0, 1])
    assert bins.quantile_bins(tied, "x", 3).nunique() == 1, "ties leave fewer bins"
    with pytest.raises(ValueError, match="values that differ"):
        bins.quantile_bins(frame.assign(x=2.0), "x", 2)


def test_group_means_by_hand():
    frame = frame_of(chat=[("a", 1.0), ("a", 3.0), ("b", 6.0)], code=[("a", 4.0)])
    frame["z"] = frame["x"] * 10
    frame["group"] = pd.Categorical(frame["group"], ["b", "a", "unused"])
    found = bins.group_means(frame, "x", "group", x="z").frame
    columns = ["domain", "group", "estimate", "rows", "n_prompts", "z"]
    assert found[columns].astype(str).agg(" ".join, axis=1).tolist() == [
        "code a 4.0 5 5 40.0",
        "chat b 6.0 5 5 60.0",
        "chat a 2.0 10 5 20.0",
        "pooled b 6.0 5 5 60.0",
        f"pooled a {8 / 3} 15 10 {80 / 3}",
    ]


def test_group_means_leave_out_levels_of_too_few_prompts():
    frame = frame_of(code=[("a", 1.0)], chat=[("a", 1.0)])
    frame.loc[0, "group"] = "rare"
    found = bins.group_means(frame, "x", "group").frame
    assert set(zip(found["domain"], found["group"], strict=True)) == {
        ("chat", "a"),
        ("pooled", "a"),
    }, "code: 4 prompts of a, 1 of rare"
    with pytest.raises(ValueError, match="fewer bins"):
        bins.group_means(frame.assign(group=frame["prompt_id"]), "x", "group")


# ---- calibration ---------------------------------------------------------------------------------


def test_calibration_by_hand():
    """Bin 0: confidence 0.15, outcome 0.5; bin 1: 0.85 and 1: error (0.35 + 0.15) / 2."""
    frame = pd.DataFrame({"q": [0.1, 0.2, 0.8, 0.9], "hit": [0.0, 1.0, 1.0, 1.0]})
    assert bins.calibration_error("q", "hit", 2)(frame) == pytest.approx(0.25)
    one_bin = bins.calibration_error("q", "hit", 1)(frame)
    assert one_bin == pytest.approx(0.75 - 0.5), "the size of the gap"
    perfect = bins.calibration_error("q", "hit", 10)(frame.assign(hit=frame["q"]))
    assert perfect == pytest.approx(0)
    opposite = pd.DataFrame({"q": [0.2, 0.8], "hit": [0.5, 0.5]})
    assert bins.calibration_error("q", "hit", 2)(opposite) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="no probabilities"):
        bins.calibration_error("q", "hit")(frame.assign(q=2.0))

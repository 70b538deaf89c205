"""Bins and means by level: every function against a hand-computed case."""

import numpy as np
import pandas as pd
import pytest
from frames import frame_of

from speclab.lab import bins


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
    frame = pd.DataFrame({"x": [4.0, 1, 2, 3]})
    assert bins.quantile_bins(frame, "x", 2).tolist() == [1, 0, 0, 1]
    tied = frame.assign(x=[0.0, 0, 0, 1])
    assert set(bins.quantile_bins(tied, "x", 3)) == {0}, "ties leave fewer bins"
    with pytest.raises(ValueError, match="a column that varies"):
        bins.quantile_bins(frame.assign(x=2.0), "x", 2)


def test_equal_bins_by_hand():
    frame = pd.DataFrame({"q": [0.0, 0.49, 0.5, 1.0]})
    assert bins.equal_bins(frame, "q", 2).tolist() == [0, 0, 1, 1]


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

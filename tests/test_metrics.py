"""One run under other engines' names, by hand."""

import numpy as np
import pytest
from test_choose import trace_of

from speclab import replay
from speclab.cli import metrics
from speclab.plain import read_yaml
from speclab.study.profiles import ROOT

BY_HAND = trace_of({"a": ("a", [0, 0, 1, 0, 0, 0, 2, 0]), "b": ("b", [3, 3])})
SUMS = replay.prompt_sums(replay.replay(BY_HAND, 2))


def test_a_run_by_hand():
    # a: 2 accepted of 2, 2 of 2, 0 of 2, and 1 of 1 where the text ends; b: 0 of 2, 0 of 1
    expected = {
        "blocks": 6,
        "accepted": 5,
        "emitted": 10,
        "drafted": 10,
        "drafted_whole": 12,
        "truncated": 1,
        "accepted_by_depth": [3, 2],
        "blocks_by_accepted": [3, 1, 2],
        "mean_accepted": 5 / 6,
        "mean_accepted_and_bonus": 11 / 6,
        "block_efficiency": 10 / 6,
        "draft_utilisation": 5 / 10,
        "draft_utilisation_whole": 5 / 12,
        "accepted_per_verified": (5 + 6) / (12 + 6),
        "survival_by_depth": [3 / 6, 2 / 6],
        "accept_by_depth": [3 / 6, 2 / 3],
    }
    figures = metrics.figures(SUMS, 2)
    assert figures == {name: pytest.approx(value, abs=1e-6) for name, value in expected.items()}
    of_b = metrics.figures(SUMS[1:], 2)
    assert of_b["accept_by_depth"] == pytest.approx([0, np.nan], nan_ok=True)


def test_every_name_is_a_figure():
    known = metrics.figures(SUMS, 2)
    for group in read_yaml(ROOT / "data" / "engines" / "names.yaml", ""):
        for figure in filter(None, group["names"].values()):
            name, _, depth = figure.removesuffix(" %").partition("[")
            assert isinstance(known[name], list) or not depth, (group["engine"], figure)
        assert group["of"] in ("pooled", "interval", "request")

"""Repeated positions against a literal loop."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclab.analysis import loops

TEXTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=25), min_size=1, max_size=4)


def texts(*tokens):
    """A trace with one prompt for each list of tokens."""
    parts = [
        pd.DataFrame({"prompt_id": f"code-{number}", "position": range(len(one)), "token": one})
        for number, one in enumerate(tokens)
    ]
    return pd.concat(parts, ignore_index=True)


def literal(tokens, n):
    """The definition, run by run."""
    seen, found = [], []
    for t in range(len(tokens)):
        run = tokens[t - n + 1 : t + 1] if t >= n - 1 else None
        found.append(run is not None and run in seen)
        seen.append(run)
    return found


@settings(max_examples=40)
@given(TEXTS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_repeats_are_the_literal_loops_in_any_order_of_rows(tokens, n, random):
    trace = texts(*tokens)
    expected = [mark for one in tokens for mark in literal(one, n)]
    assert loops.repeats(trace, n).tolist() == expected
    order = random.sample(range(len(trace)), len(trace))
    mixed = trace.iloc[order]
    assert loops.repeats(mixed, n).tolist() == [expected[row] for row in order]
    assert loops.repeats(mixed, n).index.equals(mixed.index)


@pytest.mark.parametrize(
    ("tokens", "repeated"),
    [
        ([1, 2, 3, 4, 1, 2, 3, 4], [7]),  # said again once, whole
        ([5] * 6, [4, 5]),  # the two runs may overlap
        ([1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6], [8, 9]),  # what leaves the loop lies outside
    ],
)
def test_repeats_by_hand(tokens, repeated):
    marks = loops.repeats(texts(tokens))
    assert marks.dtype == bool and list(np.flatnonzero(marks)) == repeated


def test_a_text_with_holes_is_refused():
    trace = texts([1, 2, 3])
    with pytest.raises(ValueError, match="'code-0' are not 0, 1, 2"):
        loops.repeats(trace[trace["position"] != 1])


def test_every_seed_is_a_text_of_its_own():
    trace = pd.concat([texts([1, 2, 3, 4]).assign(seed=seed) for seed in (0, 1)])
    assert not loops.repeats(trace.reset_index(drop=True)).any()

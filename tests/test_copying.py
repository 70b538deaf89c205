"""Prompt lookup equals a literal search and a literal copy, token by token. Positions that repeat
are marked correctly.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclab.copying import copied, repeats, replayed

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def literal_match(text, longest):
    """(matched, position) of a text's last tokens, by comparing slices, the most recent first."""
    for length in range(min(longest, len(text) - 1), 0, -1):
        for place in range(len(text) - 1, length - 1, -1):
            if text[place - length : place] == text[-length:]:
                return length, place
    return 0, 0


def literal_copy(text, place, most):
    """A copy that is made token by token."""
    whole = list(text)
    for step in range(most):
        whole.append(whole[place + step])
    return whole[len(text) :]


@given(TEXTS, st.integers(1, 9), st.integers(1, 20))
def test_a_copy_goes_on_in_what_it_has_copied(text, least, most):
    matched, place = literal_match(text, 8)
    wanted = literal_copy(text, place, most) if matched >= least else []
    assert copied(text, least, most).tolist() == wanted


@given(TEXTS, TEXTS, st.integers(1, 9), st.integers(1, 20))
def test_replayed_are_the_tokens_that_a_copy_gets_right(prompt, text, longest, most):
    whole, rows = [*prompt, *text], []
    for start in range(len(prompt), len(whole)):
        matched, place = literal_match(whole[:start], longest)
        copy = literal_copy(whole[:start], place, most) if matched else []
        right = [a == b for a, b in zip(copy, whole[start:], strict=False)]
        accepted = [*right, False].index(False)
        rows.append((matched, accepted))
    found = replayed(prompt, text, longest, most)
    assert list(zip(*(each.tolist() for each in found), strict=True)) == rows


# ---- positions that repeat -----------------------------------------------------------------------


def trace_of(*texts):
    """A trace with one prompt per list of tokens."""
    rows = [(f"p{n}", t, token) for n, text in enumerate(texts) for t, token in enumerate(text)]
    return pd.DataFrame(rows, columns=["prompt_id", "position", "token"])


def literal_repeats(text, n):
    """The definition, sequence by sequence. The two occurrences may overlap; the token that leaves
    a loop is not marked.
    """
    runs = [text[t - n + 1 : t + 1] if t >= n - 1 else None for t in range(len(text))]
    return [run is not None and run in runs[:t] for t, run in enumerate(runs)]


@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(1, 5), st.integers(0, 99))
def test_repeats_are_the_literal_ones_in_any_order_of_rows(texts, n, seed):
    trace = trace_of(*texts)
    trace["wanted"] = [mark for text in texts for mark in literal_repeats(text, n)]
    mixed = trace.sample(frac=1, random_state=seed)
    pd.testing.assert_series_equal(repeats(mixed, n), mixed["wanted"], check_names=False)


def test_repeats_by_hand():
    marks = repeats(trace_of([1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6]))
    assert np.flatnonzero(marks).tolist() == [8, 9]
    trace = trace_of([1, 2, 3, 4])
    with pytest.raises(ValueError, match="'p0' are not 0, 1, 2"):
        repeats(trace[trace["position"] != 1])
    two_seeds = pd.concat([trace.assign(seed=seed) for seed in (0, 1)], ignore_index=True)
    assert not repeats(two_seeds).any(), "a text is a seed's own"

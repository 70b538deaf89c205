"""Repeated positions against a literal loop, and numbers outside loops against hand-made texts."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclab import replay, score
from speclab.analysis import loops

HIT = score.mean_of("hit", "hit[1]")
TEXTS = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=25), min_size=1, max_size=4
)


def texts(*tokens, ranks=None, domain="code"):
    """A trace with one prompt for each list of tokens; ranks: its lists of draft ranks."""
    ranks = ranks or [[0] * len(one) for one in tokens]
    parts = [
        pd.DataFrame(
            {
                "prompt_id": f"{domain}-{number}",
                "domain": domain,
                "position": range(len(one)),
                "token": one,
                "draft_rank": rank,
            }
        )
        for number, (one, rank) in enumerate(zip(tokens, ranks, strict=True))
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


# ---- which positions repeat ----------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
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
        (
            [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6],
            [8, 9],
        ),  # what leaves the loop lies outside
    ],
)
def test_repeats_by_hand(tokens, repeated):
    marks = loops.repeats(texts(tokens))
    assert marks.dtype == bool and list(np.flatnonzero(marks)) == repeated


def test_a_text_with_holes_is_refused():
    trace = texts([1, 2, 3])
    with pytest.raises(ValueError, match="'code-0' are not 0, 1, 2"):
        loops.repeats(trace[trace["position"] != 1])


# ---- outside -------------------------------------------------------------------------------------

LOOP = [1, 2, 3, 4, 1, 2, 3, 4, 1]  # positions 7 and 8 repeat


def test_outside_takes_positions_nodes_and_blocks():
    trace = texts(LOOP)
    assert loops.outside(trace, trace)["position"].tolist() == list(range(7))
    nodes = pd.DataFrame({"prompt_id": "code-0", "position": [6, 6, 7, 7], "node": 1})
    assert loops.outside(nodes, trace)["position"].tolist() == [6, 6]
    blocks = pd.DataFrame({"prompt_id": ["code-0"] * 2, "start": [0, 8]})
    assert loops.outside(blocks, trace, "start")["start"].tolist() == [0]


def test_rows_of_another_run_are_refused():
    other = pd.DataFrame({"prompt_id": ["code-0", "code-9"], "position": [0, 0]})
    with pytest.raises(ValueError, match="code-9"):
        loops.outside(other, texts(LOOP))


def test_blocks_outside_loops_by_hand():
    # gamma 2: blocks (0 1 2) (3) (4 5 6) (7 8); the last begins in the loop, and 4's runs up to it
    trace = texts(LOOP, ranks=[[0, 0, 0, 5, 0, 0, 0, 0, 0]])
    sums = loops.outside_sums(trace, [2]).iloc[0]
    assert sums[["blocks", "emitted", "accepted"]].tolist() == [3, 7, 4]
    whole = replay.chain_sums(trace, [2]).iloc[0]
    assert whole[["blocks", "emitted", "accepted"]].tolist() == [4, 9, 6]


def test_without_loops_nothing_is_left_out():
    rng = np.random.default_rng(0)
    tokens = [rng.permutation(30).tolist() for _ in range(5)]
    ranks = (rng.random((5, 30)) < 0.4).astype(int).tolist()
    trace = texts(*tokens, ranks=ranks)
    columns = list(loops.outside_sums(trace, [1, 3]))
    pd.testing.assert_frame_equal(
        loops.outside_sums(trace, [1, 3]), replay.chain_sums(trace, [1, 3])[columns]
    )


# ---- side by side --------------------------------------------------------------------------------


def hits(trace):
    return trace.assign(hit=trace["draft_rank"] == 0)


def one_of_each(ranks, prompts=5):
    return hits(texts(*[LOOP] * prompts, ranks=[ranks] * prompts))


def test_share_by_hand():
    found = loops.share({"T = 0": texts(*[LOOP] * 5), "T = 1": texts(*[[1, 2, 3]] * 5)})
    assert found.at(temperature="T = 0", domain="code").value == pytest.approx(2 / 9)
    assert found.at(temperature="T = 1", domain="all").value == 0
    assert "0.22 [0.22, 0.22] (T = 0), 0.00 [0.00, 0.00] (T = 1)" in loops.said(found)


def test_side_by_side_by_hand():
    greedy = one_of_each([0, 1, 1, 1, 1, 1, 1, 0, 0])  # right in the loop, else once
    sampled = one_of_each([0, 1, 1, 1, 1, 1, 1, 1, 1])
    beside = loops.side_by_side(greedy, loops.outside(greedy, greedy), sampled, HIT)
    code = beside.at(domain="code").frame.set_index("text")
    expected = [3 / 9, 1 / 7, 1 / 7 - 3 / 9, 1 / 9]
    texts_ = [loops.WHOLE, loops.OUTSIDE, loops.CHANGE, loops.SAMPLED]
    for column in ("estimate", "low", "high"):  # the prompts are alike
        assert code.loc[texts_, column].tolist() == pytest.approx(expected)
    assert "outside loops it is lower in code" in loops.change_in_words(
        "hit[1]", beside
    )


def test_the_change_is_that_of_the_same_resamples():
    rng = np.random.default_rng(1)
    level = rng.random(20)[:, None]  # prompts differ much, what loops do is the same
    ranks = (rng.random((20, 9)) > level).astype(int)
    greedy = hits(texts(*[LOOP] * 20, ranks=ranks.tolist()))
    part = loops.outside(greedy, greedy)
    beside = loops.side_by_side(greedy, part, greedy, HIT).at(domain="code")
    width = beside.frame.set_index("text").eval("high - low")
    assert width[loops.CHANGE] < 0.5 * width[loops.WHOLE]


def test_too_few_prompts_are_undefined_and_no_error():
    few = hits(texts(*[LOOP] * 2, domain="math"))
    greedy = pd.concat([one_of_each([0] * 9), few], ignore_index=True)
    beside = loops.side_by_side(greedy, loops.outside(greedy, greedy), greedy, HIT)
    assert beside.at(domain=["math", "all"]).frame["estimate"].isna().all()
    assert beside.at(domain="code", text=loops.OUTSIDE).value == 1
    assert "is undefined in math" in loops.change_in_words("hit[1]", beside)

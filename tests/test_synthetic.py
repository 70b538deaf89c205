"""Synthetic acceptance: its means and variances by hand, the server against an event loop, and logs
whose answer is known.
"""

import heapq

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclab import passes, replay
from speclab.estimates import Estimates
from speclab.passes import Answer
from speclab.stats import NUMBERS
from speclab.studies.budgets_and_routing import serving, synthetic
from speclab.studies.budgets_and_routing.synthetic import (
    DRAWN,
    EQUAL,
    FIXED,
    LATE,
    RECORDED,
    SHUFFLED,
    THROUGHPUT,
)

BY_HAND = [4, 0, 0, 1, 4], [1, 4]  # accepted tokens of the passes of two requests
TOKENS = 80


def log_of(requests, tokens=None):
    """Passes of requests, from the accepted tokens of each, drafted by a chain of 4."""
    return passes.of_answers(
        Answer(f"p{i:02}", "code", accepted, [4] * len(accepted), tokens=tokens)
        for i, accepted in enumerate(requests)
    )


def sums_of(log):
    return replay.prompt_sums(passes.as_blocks(log), ends="room")


def random_log(*chances):
    """Requests of equal length, each with a chance of its own that a token is accepted."""
    rng = np.random.default_rng(0)
    requests = []
    for chance in chances:
        accepted = np.minimum(rng.geometric(1 - chance, TOKENS) - 1, 4)
        ends = (accepted + 1).cumsum()
        count = 1 + np.count_nonzero(ends < TOKENS)
        requests.append(accepted[:count].tolist())
    return log_of(requests, TOKENS)


# ---- acceptance from a mean ----------------------------------------------------------------------


def test_all_kinds_have_the_mean_by_hand():
    """Every pass begins more than 4 tokens before the end: 14 tokens in 7 passes."""
    kinds = synthetic.survivals(sums_of(log_of(BY_HAND)))
    assert kinds[FIXED].tolist() == [1, 1, 0, 0]
    assert kinds[SHUFFLED].tolist() == pytest.approx([5 / 7, 3 / 7, 3 / 7, 3 / 7])
    first, second, *_ = kinds[DRAWN]
    assert second == pytest.approx(first**2)
    assert [kind.sum() for kind in kinds.values()] == pytest.approx([2, 2, 2])


def test_passes_by_hand():
    rng = np.random.default_rng(0)
    tokens = np.array([6, 7, 1])
    everything, nothing = np.ones(2), np.zeros(2)
    assert synthetic.passes_needed(tokens, everything, rng).tolist() == [2, 3, 1]
    assert synthetic.passes_needed(tokens, nothing, rng).tolist() == [6, 7, 1]
    half = np.array([1, 0.5, 0])  # 2 or 3 tokens per pass: 300 tokens in 120 passes
    needed = synthetic.passes_needed(np.full(2000, 300), half, rng)
    assert needed.mean() == pytest.approx(120, abs=0.5)
    assert needed.min() >= 100 and needed.max() <= 150


def test_the_variance_of_a_pass_by_hand():
    requests = [[4, 0, 0, 1, 4], [1, 4, 0]]
    accepted = np.concatenate(requests)
    sums = sums_of(log_of(requests, None).assign(remaining=9))
    share = accepted.mean() % 1
    assert synthetic.VARIANCE(sums) == pytest.approx(accepted.var() / (share * (1 - share)))
    assert np.isnan(synthetic.VARIANCE(sums_of(log_of(BY_HAND)))), "a whole mean has no variance"


# ---- the server ----------------------------------------------------------------------------------


def event_loop(arrival, service, slots):
    """Slots as a heap of the times from which they are free."""
    free, done = [0.0] * slots, []
    for arrives, takes in zip(arrival, service, strict=True):
        ends = max(heapq.heappop(free), arrives) + takes
        heapq.heappush(free, ends)
        done.append(ends)
    return done


@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 5)), min_size=1, max_size=30),
    st.integers(1, 4),
)
def test_slots_are_the_event_loop(pairs, slots):
    gap, service = np.array(pairs).T
    arrival = gap.cumsum()
    both = synthetic.finish_in_slots(arrival, np.stack([service] * 2), slots)
    assert np.allclose(both, event_loop(arrival, service, slots), atol=1e-9)
    if slots == 1:
        assert np.allclose(both, serving.finish_times(arrival, service), atol=1e-9)


def ratios_of(log, slots):
    table = synthetic.over_real(log, [slots], 0.8, 60, 10, n=200)
    return Estimates(table)


def test_requests_that_are_alike_are_served_alike():
    """Negative control: real passes that are independent draws."""
    log = random_log(*[0.6] * 30)
    for slots in (1, 16):
        table = ratios_of(log, slots).at(acceptance=[DRAWN, SHUFFLED]).frame
        assert ((table["low"] <= 1) & (table["high"] >= 1)).all()
        assert table["estimate"].between(0.9, 1.1).all()


def test_requests_that_differ_have_a_tail_that_no_mean_shows():
    """Half the requests accept nearly everything and half nearly nothing."""
    log = random_log(*[0.9, 0.1] * 15)
    ratios = ratios_of(log, 16)
    assert (ratios.at(metric=LATE).frame["high"] < 0.9).all()
    assert ratios.at(metric=THROUGHPUT).frame["estimate"].between(0.95, 1.05).all()


def test_answers_are_cut_to_one_length_by_hand():
    """Requests of 7 and 5 tokens, and one of 3, which is left out; only the first turn counts."""
    log = log_of([[4, 1], [1, 2], [0, 1]])
    both = pd.concat([log, log.assign(turn=1)], ignore_index=True)
    cut = synthetic.of_equal_length(both)
    assert cut["prompt_id"].tolist() == ["p00", "p01", "p01"]
    assert cut["remaining"].tolist() == [5, 5, 3]
    assert cut["accepted"].tolist() == [4, 1, 2]
    assert cut["emitted"].tolist() == [5, 2, 3]


def test_several_runs_and_what_is_said_of_them():
    logs = {"alike": random_log(*[0.6] * 12), "unlike": random_log(*[0.9, 0.1] * 6)}
    ratios, varied = synthetic.of_logs(logs, [1, 8], 0.8, 20, 2)
    assert len(ratios.frame) == 2 * 2 * 2 * 3 * 3
    assert varied.frame["run"].tolist() == ["alike", "unlike"]
    assert "At batch 8" in synthetic.fairness_in_words(ratios, varied)


def test_a_log_without_room_is_named():
    with pytest.raises(ValueError, match="every pass may be cut by the end of its answer"):
        synthetic.over_real(log_of([[2], [2]], 2), [1], 0.8, 5, 1)


# ---- in words ------------------------------------------------------------------------------------

HIGH, LOW, SAME, MISSING = (1.2, 1.1, 1.3), (0.7, 0.6, 0.8), (1, 0.9, 1.1), (np.nan,) * 3
NEAR = (1.1, 1.01, 1.19)  # significant alone, and not among four comparisons


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"a": LOW}, "is too low for a"),
        ({"a": LOW, "b": LOW}, "is too low for a and b"),
        ({"a": LOW, "b": HIGH, "c": SAME}, "low for a; too high for b; not significantly"),
        ({"a": NEAR, "b": SAME}, "not significantly different for a and b"),
        ({"a": MISSING}, "is undefined for a"),
    ],
)
def test_fairness_in_words(numbers, said):
    rows = [
        (answers, run, 64, kind, metric, *of_run)
        for run, of_run in numbers.items()
        for answers in (EQUAL, RECORDED)
        for kind in (FIXED, SHUFFLED)
        for metric in (LATE, THROUGHPUT)
    ]
    columns = ["answers", "run", "batch", "acceptance", "metric", *NUMBERS]
    ratios = Estimates(pd.DataFrame(rows, columns=columns)).in_units("x")
    text = synthetic.fairness_in_words(ratios, ratios.at(metric=LATE, acceptance=FIXED))
    assert text.count(said) == 2
    assert "throughput may be off by more than 2 %" in text
    assert "nan" not in text


def test_a_throughput_that_is_right():
    rows = [
        (answers, "a", 8, kind, metric, 1.005, 1.0, 1.01)
        for answers in (EQUAL, RECORDED)
        for kind in (FIXED, SHUFFLED)
        for metric in (LATE, THROUGHPUT)
    ]
    columns = ["answers", "run", "batch", "acceptance", "metric", *NUMBERS]
    ratios = Estimates(pd.DataFrame(rows, columns=columns)).in_units("x")
    text = synthetic.fairness_in_words(ratios, ratios.at(metric=LATE, acceptance=FIXED))
    assert text.startswith("With the fixed schedule throughput lies within 2 % of the real")
    assert text.count("is not significantly different for a") == 2

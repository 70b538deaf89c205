"""What a log says of other gammas: bounds and verdicts by hand, depth by hand."""

import pytest

from speclab.cost import Costs
from speclab.logs import log_gammas, passes
from speclab.logs.log_gammas import ESTIMATE, KNOWN, LOGGED, SLOWER, TIED, TOO_FEW, TRY
from speclab.logs.passes import HITS, MISSES, Answer

FREE = Costs.assumed(0.0)  # drafting costs nothing, so speed-up is tokens per pass


def log_of(accepted, drafted, requests=1, domain="code", name="r"):
    """The passes of equal requests, each with one answer."""
    return passes.count_by_answer(
        Answer(f"{name}{i:03d}", domain, accepted, drafted) for i in range(requests)
    )


def speeds(log, gammas, costs=FREE):
    """{(gamma, bound): the estimated speed-up in the sample}."""
    draws = log_gammas.bounded_speeds(log, gammas, costs)
    return {key: draws[key]["pooled"].iloc[0] for key in draws.values}


# ---- another gamma -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accepted", "bounds"),
    [
        # h h ? and h m: at gamma 1 [h h] [?] [h m], or [h h] [? h] [m]
        ([2, 1], {1: (5 / 3, 5 / 3), 2: (5 / 2, 5 / 2)}),
        # h h ? and h h ?: at gamma 1 [h h] [?] [h h] [?], or [h h] [? h] [h ?]
        ([2, 2], {1: (6 / 4, 6 / 3), 2: (6 / 2, 6 / 2), 5: (6 / 2, 6 / 1)}),
    ],
)
def test_bounds_by_hand(accepted, bounds):
    speed = speeds(log_of(accepted, [2, 2]), bounds)
    assert {gamma: (speed[gamma, MISSES], speed[gamma, HITS]) for gamma in bounds} == bounds


@pytest.mark.parametrize(
    ("accepted", "drafted", "costs", "own", "cost"),
    [
        # two passes of two drafted tokens, and a target pass over 3 is between those over 2 and 5
        ([2, 1], [2, 2], Costs(1.0, (1, 2, 5), (0.1,) * 3, (1.0, 1.2, 1.5)), 2, 2 * (0.2 + 1.3)),
        # lengths that vary are priced as logged
        ([3, 0, 1], [3, 4, 2], Costs.assumed(0.1), LOGGED, 3 + 0.1 * (3 + 4 + 2)),
    ],
)
def test_a_block_costs_what_it_drafts_and_plain_decoding_is_1(accepted, drafted, costs, own, cost):
    log = log_of(accepted, drafted, requests=6)
    speed = speeds(log, [2], costs)
    per_token = (sum(accepted) + len(accepted)) / cost
    assert [speed[own, end] for end in (MISSES, HITS)] == pytest.approx([per_token] * 2)
    assert speed[0, HITS] == 1 and (log_gammas.own_gamma(log) or LOGGED) == own


def test_the_own_gamma_may_be_cut_by_the_end_and_by_passes_without_a_draft():
    assert log_gammas.own_gamma(log_of([0, 2, 0, 0], [3, 3, 0, 1])) == 3
    assert log_gammas.own_gamma(log_of([0, 0], [0, 0])) is None
    assert log_gammas.own_gamma(log_of([0, 0, 0, 0], [3, 2, 3, 3])) is None


@pytest.mark.parametrize(
    ("drafted", "requests", "verdicts", "estimate"),
    [
        # shorter is slower where drafting is free, and longer gains nothing
        (8, 20, {0: SLOWER, 1: SLOWER, 2: KNOWN, 8: TIED}, 3),
        (8, 2, {0: TOO_FEW, 1: TOO_FEW, 2: KNOWN}, 3),
        # every draft is accepted whole
        (2, 20, {0: SLOWER, 2: KNOWN, 5: TRY}, 6),
    ],
)
def test_verdicts_of_passes_that_accept_two_tokens(drafted, requests, verdicts, estimate):
    """estimate: speed-up of the longest gamma."""
    log = log_of([2, 2], [drafted] * 2, requests)
    table = log_gammas.bounds(log_gammas.bounded_speeds(log, [*verdicts][1:], FREE))
    assert dict(zip(table["gamma"], table["verdict"], strict=True)) == verdicts
    assert table["estimate"].iloc[-1] == estimate
    assert table["low"].isna().all() == (requests < 5)


def without_order(log):
    """The same passes as kinds of passes of each request."""
    tokens = log.groupby("prompt_id")["emitted"].transform("sum")
    kinds = log.assign(remaining=tokens).drop(columns=["step", "start"])
    return kinds.groupby([*kinds], as_index=False).size().rename(columns={"size": "blocks"})


def test_a_log_without_the_order_has_the_same_depths_and_its_own_gamma():
    log = log_of([2, 0, 1, 2, 2, 0], [2] * 6, requests=6)
    kinds = without_order(log)
    for depth in (1, 2):
        assert passes.depth_counts(log, depth).equals(passes.depth_counts(kinds, depth))
    speed, mixed = (speeds(one, [1, 2, 4]) for one in (log, kinds))
    assert mixed[2, MISSES] == mixed[2, HITS] == speed[2, HITS] == 13 / 6
    for gamma in (1, 4):  # the order narrows the upper bound only
        assert mixed[gamma, HITS] >= speed[gamma, HITS] >= mixed[gamma, MISSES]
        assert mixed[gamma, MISSES] == speed[gamma, MISSES]
        assert mixed[gamma, ESTIMATE] == speed[gamma, ESTIMATE]


@pytest.mark.parametrize(
    ("log", "asked", "message"),
    [
        (None, {}, "totals per request only"),
        (log_of([1], [2]), {"drafts": "heads"}, "are heads"),
        (log_of([1], [2]), {"temperature": 0.7}, "sampled at T = 0.7"),
        (log_of([1], None), {}, "does not say how many tokens each pass drafted"),
    ],
)
def test_why_a_log_says_nothing_about_another_gamma(log, asked, message):
    said = log_gammas.why_no_bounds(log, **asked)
    assert message in said
    assert log_gammas.why_no_bounds(log_of([1], [2])) == ""


# ---- depth ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "depth", "expected"),
    [
        (([2, 0, 1, 1], [2, 2, 2, 1]), 1, [4, 4, 3]),
        # the last draft has one token only, and a rejected first token reaches no second
        (([2, 0, 1, 1], [2, 2, 2, 1]), 2, [4, 2, 1]),
        # two tokens are left, both accepted: the third has nothing to agree with
        (([2], [3], 2), 3, [1, 0, 0]),
        # without draft lengths every pass counts as having a token
        (([2, 0, 1], None), 2, [3, 2, 1]),
    ],
)
def test_acceptance_by_depth_by_hand(answer, depth, expected):
    """How many passes there are, reach the depth and accept its token."""
    counts = passes.depth_counts(passes.count_by_answer([Answer("a", "code", *answer)]), depth)
    assert counts[["passes", "reached", "accepted"]].iloc[0].tolist() == expected

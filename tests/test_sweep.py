"""The gamma sweep's estimators against hand-computed cases, an exact enumeration of the Markov
chain, and a replayed one.
"""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_choose import trace_of

from speclab import stats
from speclab.analysis import association, sweep

PROBABILITY = st.floats(0.05, 0.95)


def texts(*ranks, domain="code", **columns):
    """A trace with one prompt for each list of draft ranks."""
    made = {f"{domain}-{i}": (domain, rs) for i, rs in enumerate(ranks)}
    return trace_of(made).assign(**columns)


def frame_of(trace, largest=4, rule="greedy", starts="visited"):
    return sweep.replayed(trace, largest, rule, starts)


def random_texts(seed=0, prompts=8, length=30, miss=0.35):
    rng = np.random.default_rng(seed)
    return texts(*(rng.random((prompts, length)) < miss).astype(int))


def decoded(tau, prompts=6, domain="code", blocks=100):
    """Counts as a decoder would give them: tau[gamma - 1] tokens a pass in every prompt, and a
    made-up text for the positions.
    """
    counts = [
        (g, blocks, blocks * g, blocks * (t - 1), blocks * t)
        for g, t in enumerate(tau, 1)
    ]
    rows = [
        (g, f"{domain}-{i}", domain, *rest)
        for g, *rest in counts
        for i in range(prompts)
    ]
    sums = pd.DataFrame(rows, columns=["gamma", "prompt_id", "domain", *sweep.COUNTS])
    return sweep.per_prompt(
        sums, sweep.positions(texts(*[[0, 1]] * prompts, domain=domain))
    )


# ---- sums over positions -------------------------------------------------------------------------


def test_positions_by_hand():
    found = sweep.positions(texts([0, 0, 1, 0], [3])).set_index("prompt_id")[
        sweep.POSITIONS
    ]
    assert found.loc["code-0"].tolist() == [4, 3, 3, 2, 2, 1]
    assert found.loc["code-1"].tolist() == [1, 0, 0, 0, 0, 0], (
        "a text of one token has no neighbours"
    )


def test_positions_of_sampled_text_by_hand():
    trace = texts(
        [9, 9, 9],
        p_token=[0.5, 0.4, 0.8],
        q_token=[0.25, 0.8, 0.2],
        overlap=[0.6, 0.7, 0.2],
    )  # accepted with 1/2, 1, 1/4
    found = sweep.positions(trace, "rejection")[sweep.POSITIONS].to_numpy()[0]
    assert found == pytest.approx([3, 1.5, 2, 1.5, 1.25, 0.75])


def test_rows_may_stand_in_any_order():
    trace = random_texts()
    pd.testing.assert_frame_equal(
        sweep.positions(trace), sweep.positions(trace.sample(frac=1, random_state=1))
    )


def test_lag1_is_pearsons_correlation_of_neighbours():
    trace = random_texts()
    ours = sweep.estimators(4, 0.1)["lag1"]
    pairs = trace.sort_values(["prompt_id", "position"]).assign(
        hit=lambda t: t["draft_rank"] == 0
    )
    pairs["next_hit"] = pairs.groupby("prompt_id")["hit"].shift(-1)
    pairs = pairs.dropna(subset="next_hit").astype({"next_hit": bool})
    theirs = association.correlations(
        pairs, "hit", "next_hit", methods=["pearson"]
    ).iloc[0]
    interval = stats.by_domain(frame_of(trace), ours).iloc[0]
    assert interval[["estimate", "low", "high"]].tolist() == pytest.approx(
        theirs[["estimate", "low", "high"]].tolist()
    )
    hand = frame_of(texts([0, 0, 1, 0]))
    assert (
        ours(hand) == pytest.approx(-0.5)
        and sweep.estimators(4, 0.1)["alpha"](hand) == 0.75
    )


def test_without_spread_lag1_is_undefined_and_the_chain_is_independent():
    known = sweep.estimators(3, 0.1)
    for ranks, alpha, tau in ([1, 1, 1], 0, [1, 1, 1]), ([0] * 12, 1, [2, 3, 4]):
        frame = frame_of(texts(ranks), 3)
        assert np.isnan(known["lag1"](frame)) and known["alpha"](frame) == alpha
        assert known["markov"](frame).tolist() == known["iid"](frame).tolist() == tau


# ---- families by gamma ---------------------------------------------------------------------------


def test_families_by_hand():
    frame = frame_of(texts([0, 0, 1, 0]), 2)
    known = sweep.estimators(2, 0.25)
    # gamma 1: accept, bonus | reject, own token | accept (cut): 4 tokens in 3 passes; gamma 2:
    # accept, accept, bonus | accept (cut): 2
    assert known["block_efficiency"](frame).tolist() == pytest.approx([4 / 3, 2])
    assert known["draft_utilisation"](frame).tolist() == pytest.approx([2 / 3, 3 / 3])
    assert known["iid"](frame).tolist() == pytest.approx([1.75, 1 + 0.75 + 0.75**2])
    assert known["minus_iid"](frame)[1] == pytest.approx(4 / 3 - 1.75)
    assert known["speedup"](frame).tolist() == pytest.approx([4 / 3 / 1.25, 2 / 1.5])
    assert known["minus_markov"](frame)[2] == pytest.approx(
        2 - sweep.block_efficiency_markov(0.75, -0.5, 2)
    )


# ---- the Markov chain ----------------------------------------------------------------------------


def enumerated(hit: float, miss: float, gamma: int) -> float:
    """Visited blocks by brute force: all outcomes of gamma + 1 positions from either state, then
    the stationary share of the states.
    """
    emitted, to_hit = np.zeros(2), np.zeros(2)
    for state, outcome in product((0, 1), product((0, 1), repeat=gamma + 1)):
        probability, before = 1.0, state
        for accept in outcome:
            chance = hit if before else miss
            probability, before = (
                probability * (chance if accept else 1 - chance),
                accept,
            )
        accepted = (*outcome[:gamma], 0).index(0)
        emitted[state] += probability * (accepted + 1)
        to_hit[state] += (
            probability * outcome[accepted]
        )  # the token behind the accepted ones: a rejected place, or the bonus token's
    share = to_hit[0] / (1 - to_hit[1] + to_hit[0])
    return share * emitted[1] + (1 - share) * emitted[0]


@given(PROBABILITY, st.floats(-0.05, 0.9), st.integers(1, 5))
def test_markov_is_the_enumerated_chain(alpha, lag1, gamma):
    hit, miss = alpha + lag1 * (1 - alpha), alpha * (1 - lag1)
    if 0 <= hit <= 1 and 0 <= miss <= 1:
        assert sweep.block_efficiency_markov(alpha, lag1, gamma) == pytest.approx(
            enumerated(hit, miss, gamma)
        )


@pytest.mark.parametrize("starts", ["visited", "every"])
def test_markov_is_what_a_replay_of_such_a_text_gives(starts):
    rng, hits = np.random.default_rng(0), [1]
    for u in rng.random(30_000):  # alpha 0.6, lag-1 correlation 0.5
        hits.append(int(u < (0.8 if hits[-1] else 0.3)))
    frame = frame_of(texts(1 - np.array(hits)), 4, starts=starts)
    known = sweep.estimators(4, 0.1, starts)
    assert known["lag1"](frame) == pytest.approx(0.5, abs=0.02) and known["alpha"](
        frame
    ) == pytest.approx(0.6, abs=0.02)
    assert (
        known["minus_markov"](frame).abs().max()
        < 0.03
        < known["minus_iid"](frame).abs().max()
    )


# ---- the best gamma ------------------------------------------------------------------------------


def test_best_gamma_of_equal_prompts_is_certain():
    table = sweep.best_gamma(
        decoded([1.5, 1.9, 2.0]), sweep.estimators(3, 0.1)["speedup"], n=200
    )
    assert table["gamma"].tolist() == [0, 1, 2, 3]
    assert table["speedup"].tolist() == pytest.approx(
        [1, 1.5 / 1.1, 1.9 / 1.2, 2 / 1.3]
    )
    assert table["share_best"].tolist() == [0, 0, 1, 0]
    for name in ("behind", "behind_low", "behind_high"):
        assert table[name].tolist() == pytest.approx(
            (1.9 / 1.2 - table["speedup"]).tolist()
        )
    assert sweep.choices(table).to_numpy().tolist() == [
        ["code", 2, 2, 2, 1.0, pytest.approx(1.9 / 1.2), 2, 2]
    ]


def test_where_drafting_never_pays_the_choice_is_none():
    table = sweep.best_gamma(
        decoded([1.0, 1.0]), sweep.estimators(2, 0.1)["speedup"], n=200
    )
    assert sweep.choices(table)[
        ["best", "best_low", "best_high", "as_good_high"]
    ].to_numpy().tolist() == [[0, 0, 0, 0]]
    free = sweep.best_gamma(
        decoded([1.0, 1.0]), sweep.estimators(2, 0.0)["speedup"], n=200
    )
    assert sweep.choices(free)[
        ["best", "as_good_low", "as_good_high"]
    ].to_numpy().tolist() == [[0, 0, 2]], "equals: the smallest"

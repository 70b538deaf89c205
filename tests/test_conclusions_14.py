"""Notebook 14: which gamma a log makes known, and which is to be tried."""

import numpy as np
import pytest
from frames import shipped
from test_log_gammas import log_of

from speclab import replay
from speclab.cost import Costs
from speclab.logs import log_gammas, passes
from speclab.logs.log_gammas import ESTIMATE, TRY

GAMMAS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16]
COSTS = (0.02, 0.05, 0.1, 0.2)
LOGGED = (1, 2, 3, 4, 6, 8)


def trials(kind):
    """Logs cut from a recorded run: the log's gamma, what is known and what is to be tried, each
    with its loss against the fastest gamma of the full replay.
    """
    trace = shipped("smollm", kind).trace
    sums = replay.chain_sums(trace, GAMMAS).groupby("gamma")[["emitted", "blocks"]].sum()
    found = []
    for own in LOGGED:
        log = passes.passes_of_replay(replay.replay(trace, own))
        for c in COSTS:
            speed = log_gammas.bounded_speeds(log, GAMMAS, Costs.assumed(c))
            rows = log_gammas.known_and_tried(log_gammas.bounds(speed))
            true = sums["emitted"] / sums["blocks"] / (1 + c * sums.index)
            true.loc[0] = 1.0
            losses = [1 - true[row["gamma"]] / true.max() for row in rows]
            found.append((own, *(row["gamma"] for row in rows), *losses))
    return np.array(found, float).T


@pytest.mark.parametrize(
    ("kind", "own_known", "lost", "least"),
    [("greedy", 16, 0.016, 0.24), ("second", 8, 0.001, 0.05)],
)
def test_the_gamma_to_try_is_nearly_the_fastest_of_the_full_replay(kind, own_known, lost, least):
    own, known, tried, loss_known, loss_tried = trials(kind)
    assert loss_tried.max() < lost, "the bound on the loss"
    # negative control: the highest lower bound gives the log's own gamma back, and loses
    assert (known == own).sum() == own_known and loss_known.max() > least
    assert (tried == own).sum() < (known == own).sum()


def test_the_estimate_by_hand():
    """Drafts of 2: of 4 passes 3 accept the first token, and 2 of these the second."""
    log = log_of([2, 2, 1, 0], [2, 2, 2, 2], requests=6)
    speed = log_gammas.bounded_speeds(log, [1, 2, 3, 4], Costs.assumed(0))
    estimates = [speed[gamma, ESTIMATE]["pooled"].iloc[0] for gamma in (1, 2, 3, 4)]
    tau, last, again = 9 / 4, 2 / 4, 2 / 3
    expected = [tau - last, tau, tau + last * again, tau + last * (again + again**2)]
    assert np.allclose(estimates, expected)
    table = log_gammas.bounds(speed).set_index("gamma")
    assert (table["least"] <= table["estimate"]).all()
    assert (table["estimate"] <= table["most"]).all()
    assert table.loc[2, "estimate"] == table.loc[2, "least"] == tau


def test_four_is_known_and_seven_is_to_be_tried():
    trace = shipped("smollm", "greedy").trace
    log = passes.passes_of_replay(replay.replay(trace, 4))
    gamma, said = log_gammas.gamma_to_try(log, Costs.assumed(0.02))
    assert gamma == 7
    assert said.startswith("Try gamma = 7: ") and "gamma = 4 has the highest lower bound" in said


def test_drafts_of_varying_length_have_no_estimate():
    log = log_of([3, 0, 1], [3, 4, 2], requests=6)
    table = log_gammas.bounds(log_gammas.bounded_speeds(log, [1, 3], Costs.assumed(0.1)))
    assert (table["estimate"] == table["least"]).all() and TRY not in {*table["verdict"]}

"""Measured costs on a random pair: shapes, rounds, and the computation of the overhead. No time is
asserted.
"""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from test_record import prompts_of
from toy import plain

from speclab.cost import disturbed
from speclab.models import timing
from speclab.models.timing import (
    Measured,
    decoded_speed,
    drawn_seconds,
    measured,
)
from speclab.shapes import Shape
from speclab.tree import chain

TIMES = pd.DataFrame(
    {
        "model": ["target"] * 6 + ["draft"] * 6,
        "n": [1, 1, 1, 4, 4, 4] * 2,
        "repeat": [0, 1, 2] * 4,
        "ms": [10.0, 11, 12, 15, 16, 17, 1, 2, 3, 2, 3, 4],
    }
)


def rounds_of(first, second, block=3.0):
    """Two rounds of passes in which a chain of 1 costs `first` and `second`, and three texts whose
    blocks took `block` plain tokens.
    """
    rounds = []
    for price in (first, second):
        ms = {"target": 10.0, "draft": 10.0 * (price - 1)}
        rows = [(*case, ms[case[0]]) for case in product(ms, (1, 2), range(3))]
        rounds.append(pd.DataFrame(rows, columns=list(TIMES)))
    blocks = pd.DataFrame({"method": "chain:1", "prompt_id": list("abc"), "block": block})
    return Measured(tuple(rounds), blocks, {"chain:1": Shape(chain(1))})


@pytest.mark.parametrize(
    ("first", "second", "block", "drift"),
    [
        (1.5, 1.5, 3.0, 0.0),
        (1.5, 1.8, 3.0, 0.2),  # the second round was slower,
        (1.5, 1.2, 3.0, 0.2),  # or cheaper
        (1.5, 1.5, 1.25, 0.25),  # a decoded block took less than its passes alone
    ],
)
def test_a_disturbed_clock_is_seen_in_both_directions(first, second, block, drift):
    costs = rounds_of(first, second, block).costs
    assert costs.drift == pytest.approx(drift)
    assert bool(disturbed(costs)) == (drift > 0.15)
    loop = max(block - (first + second) / 2, 0)
    assert costs.overhead == pytest.approx(loop) and costs.tree_overhead == 0


@pytest.mark.parametrize(("bad", "taken"), [(0, 2), (1, 3), (3, 4)])
def test_rounds_are_timed_again_while_the_clock_is_disturbed(monkeypatch, bad, taken):
    """Each disturbed round differs from the one before; up to three more follow."""
    prices = [1.5 * 1.3**k for k in range(bad)] + [9.0] * (taken - bad)
    left = [rounds_of(price, price).rounds[0] for price in prices]
    monkeypatch.setattr(timing, "pass_times", lambda *a: left.pop(0))
    monkeypatch.setattr(timing, "decoded_speed", lambda *a, **k: None)
    made = rounds_of(1, 1, block=20.0)
    monkeypatch.setattr(timing, "scale_to_plain", lambda speeds: made.blocks)
    found = timing.measured(None, [], made.shapes, 8, tries=3)
    assert not left, "all of them are taken, and no more"
    assert found.costs.drift == pytest.approx(0.0 if bad < 3 else 9 / 2.535 - 1)


def test_seconds_are_drawn_over_prompts_and_repeats():
    """Equal prompts, a machine that is slower in the second repeat, but only for the chain: no
    prompt shows that, the repeats do. Without it nothing is left.
    """
    rows = [
        (method, repeat, f"p{i}", seconds * (1 + slow * repeat))
        for repeat in (0, 1)
        for i in range(6)
        for method, seconds, slow in (("plain", 1.0, 0.0), ("chain:1", 0.5, 0.2))
    ]
    speeds = pd.DataFrame(rows, columns=["method", "repeat", "prompt_id", "time_s"])
    drawn = drawn_seconds(speeds)
    assert drawn.iloc[0].to_dict() == pytest.approx({"plain": 6, "chain:1": 3.3})
    shares = drawn["chain:1"][1:].round(9).value_counts(normalize=True)
    assert set(shares.index) == {3.0, 3.6} and shares.between(0.45, 0.55).all()
    still = drawn_seconds(speeds.query("repeat == 0"))
    assert np.allclose(still["chain:1"], 3)
    unequal = speeds.assign(time_s=speeds["prompt_id"].str[1:].astype(float))
    of_prompts = np.arange(6).std() * 6**0.5  # of a sum of six that are drawn
    assert drawn_seconds(unequal)["plain"][1:].std() == pytest.approx(of_prompts, rel=0.1)


def test_plain_decoding_makes_a_pass_for_each_token(random_pair, monkeypatch):
    """From the same prefill to the same last token: no token comes from the prompt's own pass."""
    prompts = prompts_of(range(2, 20), range(2, 21))
    passes = []
    forward = random_pair.target.forward
    monkeypatch.setattr(
        random_pair.target,
        "forward",
        lambda tokens, *rest: passes.append(tokens.shape[-1]) or forward(tokens, *rest),
    )
    (row,) = decoded_speed(random_pair, prompts[:1], {}, 10, 1).itertuples()
    prefill = len(prompts[0].ids) - 1  # of the warm-up, and again
    assert passes == [prefill, *[1] * 8, prefill, *[1] * 10]
    assert row.blocks == row.tokens == 10
    assert row.text == plain(random_pair, prompts[0], 10)


def test_everything_is_measured_on_a_real_pair(random_pair):
    prompts = prompts_of(range(2, 20), range(2, 21))
    two = {"chain 2": Shape(chain(2))}
    found = measured(random_pair, prompts, two, 8, (1, 3, 8), 16, 2)
    costs = found.costs
    assert costs.v(1) == 1 and costs.overhead >= 0 and costs.c(3) > 0
    assert len(found.times) == 2 * (2 * 3 * 2) and (found.times["ms"] > 0).all()
    speed = decoded_speed(random_pair, prompts, two, 10, 2)
    assert len(speed) == 2 * 2 * 2 and (speed["blocks"] <= speed["tokens"]).all()
    assert speed.groupby("prompt_id")["text"].nunique().eq(1).all(), "the same texts"
    order = speed.groupby(["repeat", "prompt_id"])["method"].first().unstack()
    assert order.to_numpy().tolist() == [["plain", "chain 2"], ["chain 2", "plain"]]

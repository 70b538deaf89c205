"""Measured costs on the toy and a random pair: shapes, medians, and the overhead's arithmetic; no
time is asserted.
"""

import numpy as np
import pandas as pd
import pytest

from speclab.decode import Decoded, Step, decode_prompt
from speclab.draft import Shape
from speclab.models.timing import (
    costs_of,
    decoded_speed,
    measured_overhead,
    pass_times,
    quartiles,
    spread,
    with_median_loop,
)
from speclab.prompts import EncodedPrompt
from speclab.sampling import Sampling
from speclab.tree import chain

TIMES = pd.DataFrame(
    [
        (m, n, r, ms + r)
        for m, n, ms in (
            ("target", 1, 10.0),
            ("target", 4, 15.0),
            ("draft", 1, 1.0),
            ("draft", 4, 2.0),
        )
        for r in range(3)
    ],
    columns=["model", "n", "repeat", "ms"],
)


def test_medians_become_ratios():
    costs = costs_of(TIMES)
    assert (
        costs.target_ms == 11
        and costs.sizes == (1, 4)
        and costs.v(4) == pytest.approx(16 / 11)
        and costs.c() == pytest.approx(2 / 11)
    )
    q = quartiles(TIMES).set_index(["model", "n"])
    assert q.loc[("target", 1)].tolist() == [11.0, 10.5, 11.5] and spread(
        TIMES
    ) == pytest.approx(1 / 2)


def test_the_overhead_is_what_blocks_took_beyond_their_passes():
    costs, step = costs_of(TIMES), Step((1,), 0, 1, "recovered")
    decoded = [Decoded("p", (1,) * 10, (step,) * 10, 10, 1.0, 0.1)]  # 90 ms a block
    block = 2 / 11 + costs.v(2)
    assert measured_overhead(decoded, Shape(chain(1)), costs) == pytest.approx(
        90 / 11 - block
    )
    assert (
        measured_overhead(
            [Decoded("p", (1,), (step,), 1, 0.001, 0.0)], Shape(chain(1)), costs
        )
        == 0
    )


def test_the_loop_is_the_median_of_the_texts():
    costs, step = costs_of(TIMES), Step((1,), 0, 1, "recovered")
    texts = [Decoded("p", (1,) * 10, (step,) * 10, 10, t, 0.1) for t in (1.0, 2.0, 9.0)]
    block = 2 / 11 + costs.v(2)
    found = with_median_loop(costs, texts, Shape(chain(1)))
    assert (
        found.overhead == pytest.approx(190 / 11 - block)
        and found.verify == costs.verify
    )


def test_everything_is_measured_on_a_real_pair(random_pair):
    prompts = [
        EncodedPrompt(f"p{i}", "code", tuple(range(2, 20 + i)), 0) for i in range(2)
    ]
    times = pass_times(random_pair, (1, 3), 16, 2)
    assert len(times) == 2 * 2 * 2 and (times.ms > 0).all()
    shape = Shape(chain(4))
    made = [
        decode_prompt(random_pair, p, "greedy", shape, Sampling(), 8) for p in prompts
    ]
    costs = with_median_loop(
        costs_of(pass_times(random_pair, (1, 3, 8), 16, 2)), made, shape
    )
    assert costs.v(1) == 1 and costs.overhead >= 0 and costs.c(3) > 0
    speed = decoded_speed(random_pair, prompts, {"chain 2": Shape(chain(2))}, 10, 2)
    assert len(speed) == 2 * 2 * 2 and speed.time_s.median() > 0
    assert (
        speed.groupby("prompt_id")["tokens"].nunique().eq(1).all()
    )  # plain and speculative text are the same
    assert np.all(speed.blocks <= speed.tokens)
    order = speed.groupby(["repeat", "prompt_id"])["method"].first().unstack()
    assert order.to_numpy().tolist() == [["plain", "chain 2"], ["chain 2", "plain"]]

"""Measured costs on the toy and a random pair: shapes, medians, and the overhead's arithmetic; no
time is asserted.
"""

import pandas as pd
import pytest
from test_record import resampling_of

from speclab.decode import Decoded, Step
from speclab.draft import Shape
from speclab.models.timing import (
    costs_of,
    decoded_speed,
    measured_costs,
    pass_times,
    quartiles,
    with_median_loop,
)
from speclab.tree import chain

TIMES = pd.DataFrame(
    {
        "model": ["target"] * 6 + ["draft"] * 6,
        "n": [1, 1, 1, 4, 4, 4] * 2,
        "repeat": [0, 1, 2] * 4,
        "ms": [10.0, 11, 12, 15, 16, 17, 1, 2, 3, 2, 3, 4],
    }
)


def test_medians_become_ratios():
    costs = costs_of(TIMES)
    assert costs.target_ms == 11 and costs.sizes == (1, 4)
    assert (costs.v(4), costs.c()) == pytest.approx((16 / 11, 2 / 11))
    found = quartiles(TIMES).set_index(["model", "n"])
    assert found.loc[("target", 1)].tolist() == [11.0, 10.5, 11.5]


def test_the_overhead_is_what_blocks_took_beyond_their_passes():
    costs, step, shape = costs_of(TIMES), Step((1,), 0, 1, "recovered"), Shape(chain(1))
    texts = [Decoded("p", (1,) * 10, (step,) * 10, 10, t, 0.1) for t in (1.0, 2.0, 9.0)]
    passes = 2 / 11 + costs.v(2)
    fast = Decoded("p", (1,), (step,), 1, 0.001, 0.0)
    assert with_median_loop(costs, [fast], shape).overhead == 0
    loop = with_median_loop(costs, texts, shape)  # 90, 190 and 890 ms a block
    assert loop.overhead == pytest.approx(190 / 11 - passes)
    assert loop.verify == costs.verify


def test_everything_is_measured_on_a_real_pair(random_pair):
    prompts = resampling_of(range(2, 20), range(2, 21))
    times = pass_times(random_pair, (1, 3, 8), 16, 2)
    assert len(times) == 2 * 3 * 2 and (times.ms > 0).all()
    costs = measured_costs(random_pair, prompts, 8, (1, 3, 8), 16, 2)
    assert costs.v(1) == 1 and costs.overhead >= 0 and costs.c(3) > 0
    speed = decoded_speed(random_pair, prompts, {"chain 2": Shape(chain(2))}, 10, 2)
    assert len(speed) == 2 * 2 * 2 and (speed.blocks <= speed.tokens).all()
    assert speed.groupby("prompt_id")["text"].nunique().eq(1).all(), "the same texts"
    order = speed.groupby(["repeat", "prompt_id"])["method"].first().unstack()
    assert order.to_numpy().tolist() == [["plain", "chain 2"], ["chain 2", "plain"]]

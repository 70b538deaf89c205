"""The benchmark's tables, from a hand-made frame: medians, ratios, equality of texts."""

import math

import bench
import pandas as pd
import pytest
from bench import PLAIN, measure, summary
from test_record import prompts_of
from toy import toy_pair

from speclab.cost import Costs
from speclab.shapes import Shape
from speclab.tree import chain

COSTS = Costs(10.0, (1, 5, 9), (0.1, 0.1, 0.1), (1.0, 1.5, 2.0), 0.1)


def test_the_table_of_a_hand_made_frame():
    seconds = {
        PLAIN: (10, 40, 40),
        "transformers assisted:4": (8, 24, None),
        "own chain:4": (4, 12, 10),
        "own lookup:2": (5, 40, 20),
        "own chain:4+lookup:2": (2, 8, 8),
    }
    rows = [
        (name, prompt, 0, 40, blocks, time, (name, prompt) != ("own lookup:2", "b"))
        for name, (first, second, blocks) in seconds.items()
        for prompt, time in (("a", first), ("b", second))
    ]
    columns = ["method", "prompt_id", "repeat", "tokens", "blocks", "time_s", "same"]
    table = summary(COSTS, pd.DataFrame(rows, columns=columns))
    assert table.index.tolist() == list(seconds)
    ratio, nan = (10 / 4 + 40 / 12) / 2, math.nan
    wanted = {
        "own chain:4": [ratio, (8 / 4 + 24 / 12) / 2, 4, 1, ratio * 1.9 / 4],
        "own lookup:2": [1.5, nan, 2, 0.5, nan],
        "own chain:4+lookup:2": [5, nan, 5, 1, nan],  # its blocks have no price of their own
    }
    names = [
        "ratio_to_plain",
        "ratio_to_assisted",
        "block_efficiency",
        "same_text",
        "share_reached",
    ]
    for name, numbers in wanted.items():
        assert table.loc[name, names].tolist() == pytest.approx(numbers, nan_ok=True)
    assert math.isnan(table.loc[PLAIN, "block_efficiency"])


def test_a_text_that_differs_is_counted():
    pair, prompts = toy_pair(stop=-1), prompts_of([1, 2, 3], [5, 6])

    def wrong(pair, prompt, new):
        made = bench.own_plain(pair, prompt, new)
        return bench.Made((*made.ids[:-1], 99), None, made.time_s)

    own = "own chain:2"
    asked = bench.own(Shape(chain(2)))
    methods = {PLAIN: bench.own_plain, own: asked, "wrong": wrong}
    found = measure(pair, prompts, methods, 12, 2)
    assert len(found) == 12
    same = found.groupby("method").same.mean().to_dict()
    assert same == {PLAIN: 1, own: 1, "wrong": 0}

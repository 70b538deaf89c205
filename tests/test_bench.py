"""The benchmark's table, from a hand-made frame: medians, ratios, equality of texts, efficiency."""

import math

import bench_decode
import pandas as pd
import pytest
from bench_decode import PLAIN, measure, summary
from test_record import prompts_of
from toy import toy_pair

from speclab.cost import Costs

COSTS = Costs(10.0, (1, 5, 9), (0.1, 0.1, 0.1), (1.0, 1.5, 2.0), 0.1)


def test_the_table_of_a_hand_made_frame(monkeypatch, capsys):
    monkeypatch.setattr(bench_decode, "_costs", lambda pair, prompts: COSTS)
    seconds = {
        PLAIN: (10, 40, None),
        "transformers assisted:4": (8, 24, None),
        "own chain:4": (4, 12, 10),
        "own prompt lookup:4": (5, 40, 20),
    }
    rows = [
        (
            name,
            prompt,
            0,
            40,
            blocks,
            time,
            name != "own prompt lookup:4" or prompt == "a",
        )
        for name, (first, second, blocks) in seconds.items()
        for prompt, time in (("a", first), ("b", second))
    ]
    columns = ["method", "prompt_id", "repeat", "tokens", "blocks", "time_s", "same"]
    table = summary(None, pd.DataFrame(rows, columns=columns), [])
    assert table.index.tolist() == list(seconds)
    chain = table.loc["own chain:4"]
    assert chain.ratio_to_plain == pytest.approx((10 / 4 + 40 / 12) / 2)
    assert chain.block_efficiency == 4 and chain.same_text == 1
    assert chain.predicted == pytest.approx(4 / (0.4 + 1.5 + 0.1))
    lookup = table.loc["own prompt lookup:4"]
    assert lookup.block_efficiency == 2 and lookup.same_text == 0.5
    assert math.isnan(lookup.predicted) and math.isnan(
        table.loc[PLAIN, "block_efficiency"]
    )
    # 8 / 4 and 24 / 12
    assert (
        "own chain:4 against transformers assisted:4: 2.00x" in capsys.readouterr().out
    )


def test_a_text_that_differs_is_counted():
    pair, prompts = toy_pair(stop=-1), prompts_of([1, 2, 3], [5, 6])

    def wrong(pair, prompt, new):
        made = bench_decode.own_plain(pair, prompt, new)
        return bench_decode.Made((*made.ids[:-1], 99), None, made.time_s)

    methods = {
        PLAIN: bench_decode.own_plain,
        "own chain:2": bench_decode.own("chain:2"),
        "wrong": wrong,
    }
    found = measure(pair, prompts, methods, 12, 2)
    same = found.groupby("method").same.mean()
    assert len(found) == 12 and same.to_dict() == {
        PLAIN: 1,
        "own chain:2": 1,
        "wrong": 0,
    }


def test_products_of_few_and_many_rows_are_timed_both_ways(monkeypatch):
    monkeypatch.setattr(bench_decode, "SHAPES", ((64, 8),))
    rows = bench_decode.products()
    assert [row["rows"] for row in rows] == list(bench_decode.ROWS)
    assert all(row["projection_ms"] > 0 and row["linear_ms"] > 0 for row in rows)

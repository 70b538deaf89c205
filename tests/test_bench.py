"""The benchmark's table, from a hand-made frame: medians, ratios, equality of texts, efficiency."""

import math

import bench_decode
import bench_limits
import pandas as pd
import pytest
import torch
from bench_decode import PLAIN, measure, summary
from test_record import prompts_of
from toy import toy_pair

from speclab.cost import Costs
from speclab.models.model import Projection

COSTS = Costs(10.0, (1, 5, 9), (0.1, 0.1, 0.1), (1.0, 1.5, 2.0), 0.1)


def test_the_table_of_a_hand_made_frame():
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
    table = summary(COSTS, pd.DataFrame(rows, columns=columns))
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
    assert chain.ratio_to_assisted == (8 / 4 + 24 / 12) / 2
    assert math.isnan(lookup.ratio_to_assisted)
    assert bench_decode.in_words(COSTS).endswith("v(9) = 2.00, o = 0.10")


def test_time_within_a_call_counts_for_that_call_only(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(bench_limits.time, "perf_counter", lambda: next(clock))
    watch = bench_limits.Watch()
    inner = watch.watched("inner", lambda: None)
    outer = watch.watched("outer", lambda: (inner(), inner()))
    outer()
    assert watch.seconds == {"inner": 2, "outer": 3}  # 0 to 5, less 1 to 2 and 3 to 4


def test_work_of_projections_is_counted():
    one = Projection(torch.ones(6, 4))
    with bench_limits.counted() as done:
        one(torch.ones(1, 5, 4))
    one(torch.ones(1, 5, 4))
    assert (done.operations, done.bytes) == (2 * 5 * 6 * 4, 6 * 4 * 4)


def test_parts_of_a_block_are_those_of_the_real_loop():
    pair = toy_pair(stop=-1)
    honest = pair.target.forward
    table = bench_limits.loop_table(pair, prompts_of([1, 2, 3]), "chain:2", 6)
    assert set(table["part"]) == {
        "target pass",
        "draft passes",
        "drafting, without its passes",
        "verification",
        "cache rolled back",
        "the loop between them",
    }
    assert (table["ms"] >= 0).all() and pair.target.forward == honest


def test_bars_say_what_is_reached():
    chain = {"method": "own chain:4", "ratio_to_assisted": 1.5, "ratio_to_plain": 1.1}
    found = {
        "decoder": {"tiny": [chain], "another": [chain]},
        "overhead": {"tiny": 0.3, "another": 9.0},
        "limits": {
            "tiny": [
                {"what": "target pass", "tokens": 1, "share": 0.8},
                {"what": "recorder", "tokens": 64, "share": 0.1},
            ],
            "another": [],
        },
    }
    told = bench_limits.bars(found).set_index("what")["is_reached"].to_dict()
    assert told == {
        "own chain:4 over assisted:4": False,
        "own chain:4 over own plain": True,
        "target pass, share of copies": True,
        "loop, target passes a block": False,
    }


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


def test_work_is_held_against_the_limit_of_its_kind(monkeypatch):
    machine = bench_limits.Limits(operations=1000.0, bytes=400.0)
    monkeypatch.setattr(bench_limits, "limits", lambda: machine)
    monkeypatch.setattr(bench_limits, "_seconds", lambda work, repeats: 0.5)
    one = Projection(torch.ones(6, 4))

    def work():
        one(torch.ones(1, 5, 4))

    of_products = bench_limits._held("recorder", 5, "GFLOP/s", work, 1)
    assert of_products["share"] == 2 * 5 * 6 * 4 / 0.5 / 1000
    of_copies = bench_limits._held("target pass", 5, "GB/s", work, 1)
    assert of_copies["share"] == 6 * 4 * 4 / 0.5 / 400
    parts = ("products", "attention", "other operators", "between operators")
    assert all(0 <= of_copies[part] <= 1.5 for part in parts)

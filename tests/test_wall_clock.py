"""Notebook 10's study on hand-made times: the price of a block, measured beside predicted, and what
one ideal term would bring.
"""

import numpy as np
import pandas as pd
import pytest
from test_stopping import COSTS
from test_timing import TIMES

from speclab import draft, tree
from speclab.models import timing
from speclab.prompts import EncodedPrompt
from speclab.show.estimates import Estimates
from speclab.studies import wall_clock as study

FOUR = draft.Shape(tree.chain(4))


def test_the_first_prompts_of_each_domain():
    prompts = [
        EncodedPrompt(f"{d}{i}", d, (1,), 0) for i in range(3) for d in ("code", "chat")
    ]
    chosen = study.first_of_each(prompts, ["chat", "code"], 2)
    assert [p.prompt_id for p in chosen] == ["chat0", "chat1", "code0", "code1"]


def test_passes_as_a_table_and_as_curves():
    costs = timing.costs_of(TIMES)
    table = study.pass_table(TIMES, costs).set_index("n")
    assert table.loc[4, ["c(n)", "v(n)"]].tolist() == pytest.approx([3 / 11, 16 / 11])
    assert table.loc[1, ["target_ms", "target_low", "draft_high"]].tolist() == [
        11,
        10.5,
        2.5,
    ]
    curves = study.pass_curves(TIMES, costs)
    ratios = curves.at(unit="target passes over one token")
    assert ratios.at(**{"pass": "target"}, n=4).value == pytest.approx(16 / 11)
    assert ratios.at(**{"pass": "v = n"}, n=4).value == 4
    assert curves.at(unit="ms", n=1).at(**{"pass": "draft"}).value == 2


def test_the_parts_of_a_block_are_its_price():
    shapes = {
        "chain": FOUR,
        "tree": draft.Shape(tree.static_tree(3, 2, 8)),
        "dynamic": draft.Shape(None, None, 3, 4, 7),
        "stop": draft.Shape(tree.chain(4), draft.StopRule("confidence", 0.5)),
    }
    stopped = pd.DataFrame({"blocks": [2, 2], "passes": [5, 7], "cost": [4.0, 5.2]})
    parts = study.block_parts(shapes, COSTS, stopped).set_index("method")
    price = parts.sum(axis=1)
    assert price["chain"] == pytest.approx(COSTS.of_block(FOUR.tree))
    assert parts.loc["chain"].tolist() == pytest.approx([4 * 0.2, COSTS.v(5), 0.1])
    assert price["tree"] == pytest.approx(COSTS.of_block(shapes["tree"].tree))
    # a root pass, two levels of four, seven nodes to verify
    assert parts.loc["dynamic"].tolist() == pytest.approx([0.2 + 2 * 0.22, 1.3, 0.1])
    assert price["stop"] == pytest.approx(9.2 / 4)
    assert parts.loc["stop", "draft passes"] == pytest.approx(12 / 4 * 0.2)


def timed(seconds, tokens=30, blocks=10):
    """Times as `timing.decoded_speed` gives them, six prompts, two repeats that agree."""
    rows = []
    for method, time_s in seconds.items():
        passes = tokens if method == "plain" else blocks
        for repeat in range(2):
            for i in range(6):
                rows.append((method, repeat, f"p{i}", "code", tokens, passes, time_s))
    names = ["method", "repeat", "prompt_id", "domain", "tokens", "blocks", "time_s"]
    return pd.DataFrame(rows, columns=names)


def test_measured_beside_predicted():
    each = study.medians(timed({"plain": 0.3, "chain": 0.2}))
    assert each["plain_s"].tolist() == [0.3] * 12
    parts = study.block_parts({"chain": FOUR}, COSTS)
    table = study.speed_table(each, parts, COSTS).set_index("method")
    price = COSTS.of_block(FOUR.tree)
    chain = table.loc["chain"]
    assert chain[
        ["block_efficiency", "speedup", "low", "high"]
    ].tolist() == pytest.approx([3, 1.5, 1.5, 1.5])
    assert chain["tokens_per_s"] == pytest.approx(150)
    assert chain["predicted"] == pytest.approx(3 / price)
    assert chain["block_cost"] == pytest.approx(
        20 / 10
    )  # 20 ms a block, 10 ms a target pass
    assert chain["share_of_predicted"] == pytest.approx(1.5 / (3 / price))
    assert chain["share_without_o"] == pytest.approx(0.5 * price * (1 - 0.1 / price))
    assert table.loc["plain", ["predicted", "share_without_o"]].tolist() == [1, 1]


def test_decodings_that_are_not_the_replayed_ones_are_counted():
    counts = {
        "chain": pd.DataFrame({"prompt_id": [f"p{i}" for i in range(6)], "emitted": 30})
    }
    counts["chain"]["blocks"] = [10, 10, 10, 10, 10, 9]
    assert (
        study.unlike(timed({"plain": 0.3, "chain": 0.2}), counts) == 2
    )  # one prompt, two repeats


def test_texts_that_are_not_the_recorded_ones_are_counted():
    trace = pd.DataFrame({"prompt_id": ["a", "a", "b"], "token": [3, 4, 5]})
    texts = [(3, 4), (5,), (3, 5), (5, 5)]
    speeds = pd.DataFrame({"prompt_id": ["a", "b", "a", "b"], "text": texts})
    assert study.unlike_texts(speeds, trace) == 2


def test_only_static_shapes_without_a_rule_are_replayed():
    trace = pd.DataFrame(
        {
            "prompt_id": "a",
            "domain": "code",
            "position": range(3),
            "draft_rank": [0, 0, 1],
        }
    )
    stop = draft.Shape(tree.chain(2), draft.StopRule("confidence", 0.5))
    shapes = {
        "chain": draft.Shape(tree.chain(2)),
        "stop": stop,
        "dynamic": draft.Shape(None, None, 2, 2, 2),
    }
    counts = study.replayed_counts(trace, shapes)
    assert list(counts) == ["chain"] and counts["chain"]["blocks"].tolist() == [1]


# ---- formulas ------------------------------------------------------------------------------------


def test_the_alpha_that_is_needed():
    assert study.needed_alpha(1, 0.5, 1.0, 0.0) == pytest.approx(0.5)  # 1 + a = 1.5
    assert study.needed_alpha(1, 1.5, 1.0, 0.0) == np.inf


def test_break_even_lines_and_points():
    hit = Estimates(
        pd.DataFrame(
            {
                "domain": ["code", "chat"],
                "estimate": [0.6, 0.5],
                "low": 0.4,
                "high": 0.7,
            }
        )
    )
    found = study.break_even_lines(COSTS, hit, (1, 4))
    textbook = found.at(costs="v = 1, o = 0: the textbook")
    line = textbook.at(series="gamma 1").frame
    assert line["estimate"].tolist() == pytest.approx(line["c"].tolist()), (
        "1 + a = 1 + c"
    )
    points = textbook.at(series=["code", "chat"]).frame
    assert points["c"].mean() == pytest.approx(COSTS.c()) and points[
        "estimate"
    ].tolist() == [
        0.6,
        0.5,
    ]
    dear = found.at(costs="v, o as measured", series="gamma 4").frame
    assert dear["c"].max() < 1, "beyond it not even alpha = 1 is enough"


def test_the_worked_example():
    example = study.worked_example((0.85, 4, 100.0, 5.0), 0.5, 2.0, COSTS)
    article = example["article's example"]
    assert article.iloc[:3].tolist() == pytest.approx([400 / 120, 340 / 117, 340 / 112])
    assert article.iloc[4] == pytest.approx(5 / 1.2) and article.iloc[5:].isna().all()
    here = example["this pair here"]
    assert here.iloc[5:].tolist() == pytest.approx(
        [2 / 1.8, 2 / (0.8 + COSTS.v(5) + 0.1)]
    )


# ---- what limits speed ---------------------------------------------------------------------------


def test_costs_made_ideal():
    made = study.counterfactuals(COSTS)
    four = [(used.c(4), used.v(16), used.overhead) for used in made.values()]
    assert next(iter(made)) == "as measured"
    assert four == [
        (0.22, 1.8, 0.1),
        (0, 1.8, 0.1),
        (0.22, 1, 0.1),
        (0.22, 1.8, 0),
        (0, 1, 0),
    ]


def test_limits_by_hand():
    taus = pd.DataFrame(
        {"estimate": [1.5, 2.0], "low": [1.2, 1.6], "high": [1.8, 2.4]},
        index=pd.Index([1, 4], name="gamma"),
    )
    table = study.limits(taus, COSTS).set_index("made ideal")
    one, four = (COSTS.of_block(tree.chain(g)) for g in (1, 4))
    assert table.loc["as measured", "same gamma"] == pytest.approx(1.5 / one)
    assert table.loc["as measured", "gamma"] == 1 and 1.5 / one > 2.0 / four
    assert table.loc["as measured", ["low", "high"]].tolist() == pytest.approx(
        [1.2 / one, 1.8 / one]
    )
    assert table.loc["all three", ["same gamma", "own best", "gamma"]].tolist() == [
        1.5,
        2.0,
        4,
    ]
    assert table.loc["draft always right", "own best"] == pytest.approx(5 / four)
    assert np.isnan(table.loc["draft always right", "low"])


def test_tokens_per_pass_of_all_prompts():
    rows = [
        (f"p{i}", "code", t, r) for i in range(6) for t, r in enumerate([0, 0, 1, 0])
    ]
    trace = pd.DataFrame(
        rows, columns=["prompt_id", "domain", "position", "draft_rank"]
    )
    table = study.tokens_per_pass(trace, [1, 2])
    assert table.index.tolist() == [1, 2]
    assert table["estimate"].tolist() == pytest.approx([4 / 3, 2])


# ---- sampling ------------------------------------------------------------------------------------


def test_sampled_texts_are_replayed_and_compared(random_pair):
    prompts = [
        EncodedPrompt(f"p{i}", "code", tuple(range(2, 9 + i)), 0) for i in range(5)
    ]
    made = study.sampled(random_pair, prompts, 2, 6, 2)
    assert len(made) == 10 and made["prompt_id"].value_counts().eq(2).all()
    assert (
        (made["blocks"] >= made["emitted"] / 3) & (made["blocks"] <= made["emitted"])
    ).all()
    assert (made["decoded"] <= made["emitted"]).all()
    table = study.sampled_table(made, made)
    sums = made[["emitted", "decoded", "blocks"]].sum()
    assert table.loc["decoded", "estimate"] == pytest.approx(
        sums["emitted"] / sums["decoded"]
    )

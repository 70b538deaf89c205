"""Notebook 10's study on hand-made times: the cost of a block, measured and predicted, and the
effect of one ideal term.
"""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_sentences import BAD
from test_stopping import COSTS
from test_timing import TIMES

from speclab import tree
from speclab.estimates import Estimates
from speclab.models import timing
from speclab.shapes import Shape, StopRule
from speclab.show.notebook import too_long
from speclab.studies import wall_clock as study

FOUR = Shape(tree.chain(4))


def test_passes_as_a_table_and_as_curves():
    costs = timing.costs_of(TIMES)
    table = study.pass_table(TIMES, costs).set_index("n")
    assert table.loc[4, ["c(n)", "v(n)"]].tolist() == pytest.approx([3 / 11, 16 / 11])
    assert table.loc[1, ["target_ms", "target_low", "draft_high"]].tolist() == [11, 10.5, 2.5]
    curves = study.pass_curves(TIMES, costs)
    ratios = curves.at(unit="target passes over one token")
    assert ratios.at(**{"pass": "target"}, n=4).value == pytest.approx(16 / 11)
    assert ratios.at(**{"pass": "v = n"}, n=4).value == 4
    assert curves.at(unit="ms", n=1).at(**{"pass": "draft"}).value == 2


def test_the_cost_of_a_block():
    shapes = {
        "chain": FOUR,
        "dynamic": Shape(None, None, 3, 4, 7),
        "stop": Shape(tree.chain(4), StopRule("confidence", 0.5)),
    }
    stopped = pd.DataFrame({"blocks": [2, 2], "cost": [4.0, 5.2]})
    block = study.block_costs(shapes, COSTS, {"stop": stopped})
    assert block["chain"] == pytest.approx(4 * 0.2 + COSTS.v(5) + 0.1)
    # a root pass, two levels of four, seven nodes to verify
    assert block["dynamic"] == pytest.approx(0.2 + 2 * 0.22 + 1.3 + 0.1)
    assert block["stop"] == pytest.approx(9.2 / 4)


def test_speed_ups_are_of_all_texts_together():
    rows = [
        (method, 0, f"p{i}", "code", 30 * (1 + i), blocks * (1 + i), seconds * (1 + i))
        for method, blocks, seconds in (("plain", 30, 0.3), ("chain", 10, 0.2))
        for i in range(6)
    ]
    names = ["method", "repeat", "prompt_id", "domain", "tokens", "blocks", "time_s"]
    tau, speed = study.rates(pd.DataFrame(rows, columns=names))
    assert np.allclose(tau["chain"], 3) and np.allclose(tau["plain"], 1)
    assert np.allclose(speed["chain"], 1.5), "the same prompts are drawn"


# ---- what limits speed ---------------------------------------------------------------------------


def test_costs_made_ideal():
    made = study.counterfactuals(COSTS)
    four = [(used.c(4), used.v(16), used.overhead) for used in made.values()]
    assert next(iter(made)) == "as measured"
    ideal = [(0, 1.8, 0.1), (0.22, 1, 0.1), (0.22, 1.8, 0), (0, 1, 0)]
    assert four == [(0.22, 1.8, 0.1), *ideal]
    cheap = replace(COSTS, verify=(1.0, *(0.98,) * (len(COSTS.sizes) - 1)))
    free = study.counterfactuals(cheap)["free verification (v = 1)"]
    assert free.v(2) == 0.98, "what is made ideal never costs more"


def test_limits_by_hand():
    numbers = {"estimate": [1.5, 2.0], "low": [1.2, 1.6], "high": [1.8, 2.4]}
    taus = pd.DataFrame(numbers, index=pd.Index([1, 4], name="gamma"))
    table = study.limits(taus, COSTS).set_index("made ideal")
    one, four = (COSTS.of_block(tree.chain(g)) for g in (1, 4))
    assert 1.5 / one > 2.0 / four
    measured = table.loc["as measured", ["same gamma", "low", "high", "gamma"]]
    assert measured.tolist() == pytest.approx([1.5 / one, 1.2 / one, 1.8 / one, 1])
    assert table.loc["all three", ["same gamma", "own best", "gamma"]].tolist() == [1.5, 2.0, 4]
    right = table.loc["draft always right", ["own best", "low"]].tolist()
    assert right == pytest.approx([5 / four, np.nan], nan_ok=True)
    shown = study.shown_limits(table.reset_index())
    assert shown["speed-up at the same gamma"].iloc[0].startswith(f"{1.5 / one:.2f}x [")


# ---- in words ------------------------------------------------------------------------------------


def speed_up(method, *numbers):
    row = dict(zip(("estimate", "low", "high"), numbers, strict=True))
    return Estimates(pd.DataFrame([{"method": method} | row])).in_units("x")


FOUR_PLUS, TREE = "chain of 4 + lookup", "best static tree (5 nodes)"
CHAIN, SET = "chain of 1", "second prompt set"


@pytest.mark.parametrize("most", ["Acceptance", "Costs"])
@pytest.mark.parametrize("method", [FOUR_PLUS, TREE, "chain of 5 with stop rule"])
@pytest.mark.parametrize("own", [None, 1.05, 1.2])
def test_the_answer_is_short(most, method, own):
    number, there = speed_up(method, 1.74, 1.3, 2.51), None
    if own:
        rows = [speed_up(method, own, 0.83, 1.37).frame, speed_up(CHAIN, 1.1, 0.9, 1.3).frame]
        there = Estimates(pd.concat(rows, ignore_index=True).assign(set=SET)).in_units("x")
    for term in study.TERMS:
        limits = dict.fromkeys(study.TERMS, 1.5) | {term: 1.6, study.ALL_THREE: 2.0}
        limits |= {study.RIGHT: 2.8 if most == "Acceptance" else 1.9}
        limit = study.limit_in_words(
            pd.Series(limits, name="same gamma").rename_axis("made ideal").reset_index()
        )
        assert limit.startswith(most) and study.TERMS[term] in limit
        said = study.speed_in_words(number, there, f"on the {SET}", 12) + f" {limit}"
        assert not too_long(said) and not [bad for bad in BAD if re.search(bad, said)], said
        assert (f"'{CHAIN}' is faster" in said) == (own == 1.05)
    said = study.unreliable(number)
    assert not too_long(said) and "no verdict on speed" in said
    assert method in said or method.capitalize() in said


def test_how_many_methods_are_faster_than_plain():
    rows = [(1.3, 1.1, 1.5), (0.8, 0.7, 0.9), (1.0, 0.9, 1.2), (1.4, 1.2, 1.6)]
    table = pd.DataFrame(rows, columns=["estimate", "low", "high"])
    table.insert(0, "method", ["a", "b", "c", "d"])
    said = study.compared_in_words(Estimates(table), "plain")
    assert said == (
        "Methods that are significantly faster than plain: a and d. Methods that are significantly "
        "slower: b."
    )
    said = study.compared_in_words(Estimates(table.iloc[[0, 3]]), "plain")
    assert said == "Every method is significantly faster than plain."


def test_one_way_to_name_what_copies():
    settings = {0: "lookup:2", 4: "chain:4+lookup:1"}
    names = [study.copying_name(*pair) for pair in settings.items()]
    assert names == ["lookup", "chain of 4 + lookup"]
    assert study.copying_name(4, "chain:4") == "chain of 4", "the rule that never copies"
    said = study.copying_in_words(settings)
    assert said == (
        "Lookup copies after 2 matching tokens or more. "
        "Chain of 4 + lookup copies after 1 matching token or more."
    )
    assert "never copies" in study.copying_in_words({4: "chain:4"})

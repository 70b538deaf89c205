"""Notebook 10's study on hand-made times: the price of a block, measured beside predicted, and what
one ideal term would bring.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from frames import pooled
from test_stopping import COSTS
from test_timing import TIMES

from speclab import score, tree
from speclab.models import timing
from speclab.shapes import Shape, StopRule
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


def timed(seconds, tokens=30, blocks=10):
    """Times as `timing.decoded` gives them, six prompts, two repeats that agree."""
    rows = []
    for method, time_s in seconds.items():
        passes = tokens if method == "plain" else blocks
        for repeat in range(2):
            for i in range(6):
                rows.append((method, repeat, f"p{i}", "code", tokens, passes, time_s))
    names = ["method", "repeat", "prompt_id", "domain", "tokens", "blocks", "time_s"]
    return pd.DataFrame(rows, columns=names)


def test_speed_ups_and_their_leads_are_paired_by_prompt():
    seconds = {"plain": 0.3, "chain": 0.2, "tree": 0.25}
    each = timing.medians(timed(seconds))
    assert each["plain_s"].tolist() == [0.3] * 18
    speed = study.drawn(each, "method", "plain_s", "time_s")
    assert speed.iloc[0].to_dict() == pytest.approx({"plain": 1, "chain": 1.5, "tree": 1.2})
    gain = timing.intervals(speed, "method", 6).at(method="chain").frame
    assert gain[["low", "high"]].to_numpy().tolist() == [pytest.approx([1.5, 1.5])]
    slower = each.assign(time_s=each["time_s"] * (1 + 0.1 * (each.index % 6)))
    speed = study.drawn(slower.assign(plain_s=0.3), "method", "plain_s", "time_s")
    lead = timing.intervals(speed[["chain"]].sub(speed["tree"], axis=0), "method", 6)
    share = speed["chain"] / speed["tree"]
    assert np.allclose(share, 1.25), "the same prompts in each resample"
    assert lead.frame["low"].item() > 0


def test_a_ratio_and_its_interval_are_those_of_the_bootstrap():
    rng = np.random.default_rng(1)
    rows = [("chain", f"{d}{i}", d, *rng.integers(1, 30, 2)) for d in "ab" for i in range(7)]
    columns = ["method", "prompt_id", "domain", "tokens", "blocks"]
    each = pd.DataFrame(rows, columns=columns)
    drawn = study.drawn(each, "method", "tokens", "blocks")
    found = timing.intervals(drawn, "method", len(each)).frame.iloc[0]
    rows = each.drop(columns="domain")
    wanted = pooled(rows, score.ratio_of("tokens", "blocks"))
    assert (found.estimate, found.low, found.high) == pytest.approx(
        (wanted.estimate, wanted.low, wanted.high)
    )


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
    assert table.loc["all three", ["same gamma", "own best", "gamma"]].tolist() == [1.5, 2.0, 4]
    assert table.loc["draft always right", "own best"] == pytest.approx(5 / four)
    assert np.isnan(table.loc["draft always right", "low"])

"""What one set of prompts says of domains, asked of others: by hand, and where nothing is to be
found.
"""

import numpy as np
import pandas as pd
import pytest

from speclab import score
from speclab.analysis import prompt_sets
from speclab.analysis.prompt_sets import OWN, UNWRAPPED

MEAN = score.mean_of("x")


def rows_of(means, prompts=20, spread=0.02, seed=0):
    """Two rows a prompt, each prompt's value near its domain's mean."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        [
            {"prompt_id": f"s-{domain}-{i:02d}", "domain": domain, "x": mean + value}
            for domain, mean in means.items()
            for i in range(prompts)
            for value in 2 * [spread * rng.standard_normal()]
        ]
    )


def test_orders_and_how_often_they_are_the_first_sets():
    far = rows_of({"code": 0.5, "math": 0.9, "chat": 0.1})
    near = rows_of({"code": 0.5, "math": 0.5, "chat": 0.1}, seed=3)
    turned = rows_of({"code": 0.9, "math": 0.5, "chat": 0.1}, seed=4)
    sets = {OWN: far, "far": far, "near": near, "turned": turned}
    found = prompt_sets.domain_orders(
        prompt_sets.asked(sets, lambda rows: (rows, MEAN))
    )
    found = found.set_index("set")
    assert found["order"]["far"] == "math > code > chat"
    assert found["order"]["turned"] == "code > math > chat"
    assert found["share"]["far"] == 1 and found["share"]["turned"] == 0
    assert 0.025 < found["share"]["near"] < 0.975
    said = {
        name: prompt_sets.order_verdict(found.loc[[OWN, name]].reset_index())
        for name in ("far", "near", "turned")
    }
    assert list(said.values()) == ["holds", "is inconclusive", "does not hold"]
    assert prompt_sets.order_verdict(found.reset_index()) == "does not hold"


def test_differences_of_the_first_set_that_hold_and_that_are_turned():
    signs = pd.DataFrame(
        {"a − b": [1, 1, -1], "a − c": [-1, 0, 1], "b − c": [0, 1, 1]},
        index=[OWN, "one holds", "both turned"],
    )
    assert prompt_sets.carried(signs).to_dict("list") == {
        "set": [OWN, "one holds", "both turned"],
        "told": [2, 2, 2],
        "hold": [2, 1, 0],
        "turned": [0, 0, 2],
    }
    nothing = prompt_sets.carried(signs * 0)
    assert (nothing[["told", "hold", "turned"]] == 0).all(axis=None)


def test_the_words_effect_is_paired_by_prompt():
    own = rows_of({"code": 0.5, "math": 0.9, "reasoning": 0.6}, spread=0.3)
    alone = own.assign(x=own["x"] - 0.2 * (own["domain"] == "math"))
    sets = {OWN: own, UNWRAPPED: alone}
    found = prompt_sets.effect_of_words(sets, lambda rows: (rows, MEAN))
    numbers = found.frame.set_index("domain")[["estimate", "low", "high"]]
    assert list(numbers.index) == ["math", "reasoning"]
    assert np.allclose(numbers.loc["math"], 0.2), "prompts differ by 0.3, pairs by 0"
    assert np.allclose(numbers.loc["reasoning"], 0)


def test_categories_are_the_middle_words_of_the_ids_highest_first():
    rows = rows_of({"writing": 0.2, "maths": 0.7}, spread=0).assign(domain="chat")
    found = prompt_sets.by_category(rows, lambda rows: (rows, MEAN)).frame
    assert found["category"].tolist() == ["maths", "writing"]
    assert found["estimate"].tolist() == pytest.approx([0.7, 0.2])

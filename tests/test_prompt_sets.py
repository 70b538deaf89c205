"""What one set of prompts says of domains, asked of others: by hand, and where nothing is to be
found.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from frames import text_of
from scipy.stats import nct
from scipy.stats import t as student
from test_score import make_run

from speclab import score
from speclab.analysis import prompt_sets
from speclab.analysis.prompt_sets import ENGLISH, OWN, SECOND, UNWRAPPED
from speclab.analysis.texts import Text
from speclab.profiles import load_profile

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


def asked(rows):
    return rows, MEAN


FOUR = {"code": 0.5, "math": 0.9, "reasoning": 0.6, "chat": 0.1}
TURNED = FOUR | {"math": 0.2, "chat": 0.8}


def test_the_first_sets_order_is_asked_of_every_set():
    """By hand: 0.9 - (0.5 + 0.6 + 0.1) / 3 = 0.5, 0.9 - 0.1 = 0.8, (0.5 + 0.6) / 2 - 0.1 = 0.45;
    where math and chat are turned, by the same names: 0.2 - 1.9 / 3, -0.6, -0.25.
    """
    sets = {OWN: rows_of(FOUR, spread=0), SECOND: rows_of(TURNED, 6, spread=0)}
    found = prompt_sets.contrasts_by_set(sets, asked).frame
    assert found["contrast"].tolist()[:3] == [
        "math − the others",
        "math − chat",
        "reasoning and code − chat",
    ]
    own, there = np.split(found["estimate"].to_numpy(), 2)
    assert own == pytest.approx([0.5, 0.8, 0.45])
    assert there == pytest.approx([0.2 - 1.9 / 3, -0.6, -0.25])
    assert found["change"].to_numpy() == pytest.approx([*np.zeros(3), *(there - own)])
    assert found["highest"].tolist() == ["math"] * 3 + ["chat"] * 3


def test_a_change_is_paired_on_the_same_problems_only():
    """All prompts lose 0.1 of math: no spread where prompts are paired, that of two samples where
    they are not.
    """
    own = rows_of(FOUR, spread=0.2)
    less = own.assign(x=own["x"] - 0.1 * (own["domain"] == "math"))
    sets = {OWN: own, UNWRAPPED: less, SECOND: less}
    found = prompt_sets.contrasts_by_set(sets, asked).at(role="lead").frame
    width = (found["change_high"] - found["change_low"]).to_numpy()
    assert found["change"].tolist() == pytest.approx([0, -0.1, -0.1])
    assert (found["power"] > 0.99).all()
    assert width[:2] == pytest.approx([0, 0])
    own_width, *_ = found["high"] - found["low"]
    assert width[2] == pytest.approx(2**0.5 * own_width, rel=0.1)


def test_power_is_that_of_students_test_of_the_smaller_side():
    """Sides of 8 and 30 prompts, by the noncentral t distribution."""
    sides = [rows_of({name: 0.0}, n, 0.5) for name, n in (("code", 8), ("chat", 30))]
    levels = [side.groupby("prompt_id")["x"].first() for side in sides]
    error = np.sqrt(sum(level.var() / len(level) for level in levels))
    limit = student.isf(0.025, 14)
    tails = nct.sf(limit, 14, 0.55 / error), nct.cdf(-limit, 14, 0.55 / error)
    weights = pd.DataFrame({"difference": {"code": 1, "chat": -1}})
    for difference, wanted in ((0.55, sum(tails)), (0, 0.05)):
        found = prompt_sets.power_of(np.array([difference]), weights, pd.concat(sides), MEAN)
        assert found == pytest.approx([wanted])


def test_texts_that_are_the_same_on_two_sets_never_agree():
    """All pairs differ on each set; unwrapped code and chat are the first set's texts, so of six
    pairs five count there, and of the English set those with its chat.
    """
    far = rows_of(FOUR)
    sets = {OWN: far, UNWRAPPED: far, SECOND: rows_of(TURNED, seed=3), ENGLISH: far}
    pairs = prompt_sets.pairs_of_domains(sets, asked, 0.05)
    assert not ((pairs["set"] == UNWRAPPED) & (pairs["pair"] == "code − chat")).any()
    found = prompt_sets.carried(pairs)
    counts = found[["compared", "same", "reversed"]].to_numpy().tolist()
    assert counts == [[6, 6, 0], [5, 5, 0], [6, 1, 5], [3, 3, 0]], "code and reasoning stay"
    assert found["expected"].tolist() == pytest.approx(found["compared"].tolist())
    nothing = prompt_sets.carried(pairs.assign(sign_own=0))
    assert not nothing.drop(columns="set").to_numpy().any()
    draws = prompt_sets.asked(sets, asked)
    shown = prompt_sets.by_set(draws).frame.groupby("set")["domain"].agg(list)
    assert shown[UNWRAPPED] == ["math", "reasoning"] and shown[ENGLISH] == ["chat"]


def test_near_ties_are_neither_the_same_nor_reversed():
    near = rows_of(dict.fromkeys(FOUR, 0.5), spread=0.2, seed=5)
    pairs = prompt_sets.pairs_of_domains({OWN: rows_of(FOUR), SECOND: near}, asked, 0.05)
    (_, own), (_, second) = prompt_sets.carried(pairs).iterrows()
    assert own["same"] == 6 and second[["same", "reversed"]].tolist() == [0, 0]


def test_at_t1_every_set_has_one_seed(monkeypatch):
    profile = load_profile("smollm")
    run = make_run(prompts=5)
    traces = [run.trace.assign(seed=seed) for seed in (42, 43, 44)]
    text = text_of(run, 1.0)
    own = replace(text, trace=pd.concat(traces, ignore_index=True))
    monkeypatch.setattr(Text, "recorded", lambda *_: text)
    sets = prompt_sets.texts(profile, own)
    assert sets[OWN].trace["seed"].unique().tolist() == [42]
    assert len(sets[OWN].trace) == len(run.trace)


def test_the_words_effect_is_paired_by_prompt():
    own = rows_of({"code": 0.5, "math": 0.9, "reasoning": 0.6}, spread=0.3)
    alone = own.assign(x=own["x"] - 0.2 * (own["domain"] == "math"))
    found = prompt_sets.effect_of_words({OWN: own, UNWRAPPED: alone}, asked).frame
    assert found["domain"].tolist() == ["math", "reasoning"]
    numbers = found[["estimate", "low", "high"]]
    assert np.allclose(numbers.T, [0.2, 0]), "prompts differ by 0.3, pairs by 0"

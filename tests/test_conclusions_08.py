"""Notebook 08 judges drafts on prompts that did not choose their training."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from cells import functions_of
from statsmodels.stats.power import TTestPower

from speclab import score, stats
from speclab.plain import read_json
from speclab.score import with_hits
from speclab.study.profiles import ROOT
from speclab.study.runs import load_run


def by_prompt(trace):
    """Tokens and accepted first tokens by prompt of a recorded run."""
    rows = with_hits(load_run(ROOT / "data/traces" / trace).trace)
    sums = rows.groupby(["domain", "prompt_id"], sort=False)["hit"].agg(["size", "sum"])
    return sums.set_axis(["tokens", "accepted"], axis=1).reset_index()


def chose(rows):
    """Whether a prompt is among the first eight of its domain."""
    return rows.groupby("domain").cumcount() < 8


def accepted(rows):
    """In points, the mean of the domains."""
    sums = rows.groupby("domain")[["accepted", "tokens"]].sum()
    return 100 * (sums["accepted"] / sums["tokens"]).mean()


@pytest.mark.parametrize(("size", "number", "first"), [(50, 8, 8), (50, 0, 0), (10, 8, 5)])
def test_the_first_prompts_of_a_domain_are_left_out(size, number, first):
    asked = [SimpleNamespace(domain=d, number=i) for i in range(size) for d in ("code", "chat")]
    left = functions_of("08")["others"](asked, number)
    assert [prompt.number for prompt in left] == [*range(first, size)] * 2


def test_the_prompts_that_chose_the_training_are_easier_and_not_in_the_headline():
    rows = by_prompt("smollm/greedy")
    first, others = rows[chose(rows)], rows[~chose(rows)]
    curve = read_json(ROOT / "data/pairs/smollm/card.json", "")["training"]["distil"]
    assert accepted(first) == pytest.approx(100 * curve[-1]["hit"], abs=0.1), "the curve's prompts"
    assert len(others) == 168 and accepted(others) == pytest.approx(56.8, abs=0.05)


# ---- how many prompts tell two drafts apart ------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "needed"), [(0.2, 199), (0.5, 34), (0.8, 15), (9, 5), (0, np.nan)]
)
def test_prompts_needed_are_those_of_tables(effect, needed):
    """G*Power's for a paired t test, two-sided, 5 %, power 0.8; at least 5."""
    function, n = functions_of("08", LIKELY=0.8, MOST=1_000_000)["prompts_needed"], 50
    gap = np.array([effect, -1.0, 1.0]) * np.sqrt(n - 1) / n  # differences deviate by 1
    assert function(gap, n, effect) == pytest.approx(needed, nan_ok=True)


def test_prompts_needed_are_those_of_the_paired_differences():
    differ = np.random.default_rng(0).normal(0.1, 0.5, 60)
    rows = pd.DataFrame({"prompt_id": range(60), "domain": "code", "hit": 0.0})
    asked = {"base": rows, "other": rows.assign(hit=differ)}
    hits = stats.jointly({name: (each, score.mean_of("hit")) for name, each in asked.items()})
    gap = (hits["other"] - hits["base"])[score.ALL]
    wanted = TTestPower().solve_power(0.1 / differ.std(ddof=1), alpha=0.05, power=0.8)
    found = functions_of("08", LIKELY=0.8, MOST=1000)["prompts_needed"](gap, 60, 0.1)
    assert found == pytest.approx(wanted, rel=0.08), "2,000 resamples"

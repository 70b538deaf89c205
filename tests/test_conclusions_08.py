"""Notebook 08 judges drafts on prompts that did not choose their training."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from cells import functions_of
from statsmodels.stats.power import TTestPower

from speclab import score, stats


@pytest.mark.parametrize(("size", "number", "first"), [(50, 8, 8), (50, 0, 0), (10, 8, 5)])
def test_the_first_prompts_of_a_domain_are_left_out(size, number, first):
    asked = [SimpleNamespace(domain=d, number=i) for i in range(size) for d in ("code", "chat")]
    left = functions_of("08")["others"](asked, number)
    assert [prompt.number for prompt in left] == [*range(first, size)] * 2


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

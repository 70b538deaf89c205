"""What notebook 12 concludes: its list of primary outcomes by plain pandas."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def primary():
    table = pd.read_csv(ROOT / "tests/golden/12/primary-outcomes.csv", dtype={"notebook": str})
    return table.set_index(table["notebook"] + " " + table["outcome"].str.split().str[0])


def prompts_of(kind):
    """By prompt of `tiny`: hits, tokens, and their share."""
    rows = pd.read_parquet(ROOT / f"data/traces/tiny/{kind}/trace.parquet")
    hit = (rows["draft_rank"] == 0).groupby([rows["domain"], rows["prompt_id"]])
    return hit.agg(["sum", "size"]).assign(hit=hit.mean()).reset_index()


def test_domains_differ_by_an_omnibus_test_over_prompts(primary):
    by_domain = [rows["hit"] for _, rows in prompts_of("greedy").groupby("domain")]
    expected = stats.alexandergovern(*by_domain).pvalue
    assert primary.loc["03 domains", "p_value"].iloc[0] == pytest.approx(expected)


def test_a_mean_is_divided_by_its_standard_error(primary):
    """Chat minus the mean of the others; the error of a ratio of sums from its influence."""
    level, error = {}, {}
    for domain, rows in prompts_of("greedy").groupby("domain"):
        level[domain] = rows["sum"].sum() / rows["size"].sum()
        influence = (rows["sum"] - level[domain] * rows["size"]) / rows["size"].mean()
        error[domain] = influence.var() / len(rows)
    others = {*level} - {"chat"}
    difference = level["chat"] - np.mean([level[d] for d in others])
    row = primary.loc["06 hit"]
    assert row["estimate"] == pytest.approx(difference)
    size = np.sqrt(error["chat"] + sum(error[d] for d in others) / 9)
    found = stats.t.isf(row["p_value"] / 2, 49)
    assert found == pytest.approx(abs(difference) / size, rel=0.05)


def test_holm_is_over_the_whole_list(primary):
    ordered = primary.sort_values("p_value")
    factors = np.arange(len(ordered), 0, -1)
    expected = (ordered["p_value"] * factors).cummax().clip(upper=1)
    assert ordered["p_holm"].tolist() == pytest.approx(expected.tolist())
    assert (primary["significant"] == (primary["p_holm"] < 0.05)).all()

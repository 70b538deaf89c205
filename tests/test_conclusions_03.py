"""What notebook 03 concludes of `tiny`, by plain pandas; what its tests and intervals promise is in
test_stats.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
GOLDEN, TRACES = ROOT / "tests/golden/03", ROOT / "data/traces/tiny"
KINDS = {"without wrapper": "unwrapped", "second prompt set": "second"}


def log_of_tokens_per_pass(hits):
    """Of one text and a greedy chain decoder that drafts four tokens."""
    hits, start, passes = hits.to_numpy(), 0, 0
    while start < len(hits):
        wrong = np.flatnonzero(~hits[start : start + 4])
        start += (wrong[0] if len(wrong) else 4) + 1
        passes += 1
    return np.log(len(hits) / passes)


@pytest.fixture(scope="module")
def texts():
    """By kind: hits, and the logarithm of tokens per pass of each prompt."""
    found = {}
    for kind in ("greedy", "unwrapped", "second"):
        rows = pd.read_parquet(TRACES / kind / "trace.parquet")
        rows = rows.sort_values(["prompt_id", "position"])
        by_prompt = rows.assign(hit=rows["draft_rank"] == 0).groupby(["domain", "prompt_id"])["hit"]
        table = by_prompt.agg(["sum", "size"]).assign(log=by_prompt.apply(log_of_tokens_per_pass))
        found[kind] = table.reset_index("prompt_id")
    return found


def test_each_domain_on_other_prompts(texts):
    """Change of hit[1], and the share of prompts inside the prediction interval, in every row."""
    table = pd.read_csv(GOLDEN / "other-prompts.csv")
    assert table.groupby("set", sort=False).size().tolist() == [2, 4, 1], "new texts alone"
    for row in table.itertuples():
        there, own = (
            texts[KINDS.get(row.set, "second")].loc[row.domain],
            texts["greedy"].loc[row.domain],
        )
        if row.set == "second set in English":
            there = there[~there["prompt_id"].str.contains("-language-")]
        n, middle = len(own), own["log"].mean()
        width = stats.t.ppf(0.975, n - 1) * own["log"].std() * np.sqrt(1 + 1 / n)
        levels = [rows["sum"].sum() / rows["size"].sum() for rows in (there, own)]
        found = [len(there), levels[0] - levels[1], *np.exp([middle - width, middle + width])]
        assert found == pytest.approx([row.prompts, row.estimate, row.least, row.most], rel=1e-6)
        assert row.inside == (abs(there["log"] - middle) <= width).mean()


def test_the_decisive_number_is_the_difference_of_the_differences():
    table = pd.read_csv(GOLDEN / "spreads.csv").set_index(["name", "set"])["estimate"]
    gap, change = table["math minus chat"], table["change"]
    expected = gap.drop("own prompts") - gap["own prompts"]
    assert change.to_dict() == pytest.approx(expected.to_dict()) and len(change) == 3

"""How notebook 11 judges claims: cases that must hold, must fail and are inconclusive."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from cells import functions_of
from scipy.stats import norm

from speclab import stats
from speclab.lab.published import published

ROOT = Path(__file__).resolve().parents[1]
SOURCE = (ROOT / "notebooks/11_paper_audit.py").read_text("utf-8")
CLAIMS = {
    claim["id"]: claim
    for claim in yaml.safe_load((ROOT / "data/paper/claims.yaml").read_text("utf-8"))
}


NOTEBOOK = functions_of("11", listed=pd.DataFrame(CLAIMS.values()).set_index("id"))
ABOVE = [0, np.inf]


def rows(*intervals, region=ABOVE, claim="gap", prompts=50):
    """Rows of a claim: (low, high) or (estimate, low, high)."""
    numbers = [(np.mean(ends), *ends)[-3:] if len(ends) == 2 else ends for ends in intervals]
    table = pd.DataFrame(numbers, columns=["estimate", "low", "high"], dtype=float)
    return table.assign(least=region[0], most=region[1], claim=claim, fewest=prompts)


INSIDE, BARELY_INSIDE = (0.1, 0.2), (0.1, 0.01, 0.19)
BARELY_OUTSIDE, CLEARLY_OUTSIDE = (-0.1, -0.19, -0.01), (-0.3, -0.4, -0.2)


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([(0.1, 0.2)], "holds"),
        ([(-0.1, 0.0)], "fails"),
        ([(0.0, 0.1)], "inconclusive"),  # the edge is outside the region
        ([(0.1, np.nan, np.nan)], "inconclusive"),
        ([BARELY_OUTSIDE], "fails"),
        ([BARELY_OUTSIDE, INSIDE, INSIDE, INSIDE], "inconclusive"),
        ([CLEARLY_OUTSIDE, INSIDE, INSIDE, INSIDE], "fails"),
        ([BARELY_INSIDE] * 4, "holds"),  # every row, without correction
        ([BARELY_INSIDE, BARELY_INSIDE, (-0.1, 0.1)], "inconclusive"),
    ],
)
def test_rows_are_judged_together(intervals, expected):
    assert NOTEBOOK["judge"](rows(*intervals)) == expected


def test_one_row_fails_at_the_quantile_of_the_number_of_rows():
    """The halves of 3 intervals are longer by the ratio of normal quantiles."""
    longer = norm.ppf(1 - 0.05 / 6) / norm.ppf(0.975)
    for edge, expected in ((longer + 0.01, "fails"), (longer - 0.01, "inconclusive")):
        judged = NOTEBOOK["judge"](rows((-edge, -edge - 1, -edge + 1), INSIDE, INSIDE))
        assert judged == expected


@pytest.mark.parametrize("size", [1, 4])
def test_no_more_than_one_verdict_in_twenty_is_wrong_by_chance(size):
    """400 studies in which every row's truth is the edge of the region."""
    z = np.random.default_rng(0).normal(size=(400, size))
    ends = np.stack([z, z - 1.96, z + 1.96], axis=-1)
    verdicts = np.array([NOTEBOOK["judge"](rows(*map(tuple, one))) for one in ends])
    assert (verdicts == "holds").mean() <= 0.05
    assert (verdicts == "fails").mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize(
    ("claim", "prompts", "interval", "expected"),
    [
        ("gap", 20, (1, 2), "holds"),
        ("gap", 20, (-2, -1), "fails"),
        ("gap", 19, (-2, -1), "too few prompts"),
        ("gap", 20, (np.nan, np.nan), "not tested"),
        ("level", 20, (1, 2), "agrees"),  # a number about another pair
        ("level", 20, (-2, -1), "differs"),
        ("small-draft", 20, (-2, -1), "not judged"),
        ("bonus", np.nan, (-2, -1), "defect"),
    ],
)
def test_the_kind_of_a_claim_says_what_its_verdict_can_be(claim, prompts, interval, expected):
    assert NOTEBOOK["verdict"](rows(interval, claim=claim, prompts=prompts)) == expected
    assert prompts != 19 or stats.FEW_PROMPTS == 20


def test_a_cell_has_the_extremes_and_no_interval_where_there_is_none():
    table = rows((0.2, 0.1, 0.3), (0.5, 0.4, 0.61)).assign(number="", row="")
    assert NOTEBOOK["summary"](table) == "0.2 to 0.5 [0.1, 0.61]"
    assert NOTEBOOK["summary"](table.assign(low=np.nan, high=np.nan)) == "0.2 to 0.5"
    assert NOTEBOOK["summary"](table.assign(estimate=np.nan)) == ""


def test_task_against_depth_is_a_difference_of_shares_of_variance():
    """The tokens one by one: sums of squares between groups, over the sum around the mean."""
    rng = np.random.default_rng(0)
    kept = rng.random((60, 3)) < np.repeat([0.9, 0.4, 0.6], 20)[:, None]
    survived = pd.DataFrame(np.cumprod(kept, axis=1), columns=[f"survival_{d}" for d in (1, 2, 3)])
    blocks = survived.assign(domain=np.repeat(["a", "b", "c"], 20), weight=1, remaining=9)
    blocks["prompt_id"] = blocks["domain"] + (blocks.index % 10).astype(str)
    counts = dict.fromkeys(["drafted", "accepted", "emitted", "truncated"], 0)
    text = SimpleNamespace(chain=lambda gamma: blocks.assign(**counts))
    found = NOTEBOOK["task_minus_depth"](text)["estimate"].item()
    tokens = []
    for d in (1, 2, 3):
        tested = blocks if d == 1 else blocks[blocks[f"survival_{d - 1}"] == 1]
        tokens.append(tested[["domain"]].assign(y=tested[f"survival_{d}"], depth=d))
    tokens = pd.concat(tokens)
    shares = {}
    for factor in ("domain", "depth"):
        of_group = tokens.groupby(factor)["y"].transform("mean")
        shares[factor] = of_group.var() / tokens["y"].var()
    assert found == pytest.approx(shares["domain"] - shares["depth"])
    assert abs(found) > 0.1, "not 0 in either case"


def test_the_papers_claims_follow_from_its_own_numbers():
    alpha = published("I").query("quantity == 'alpha_mean' and domain != 'all'")
    alpha = alpha.set_index("domain")["published"]
    depth = published("IV").pivot(index="domain", columns="depth", values="published")
    length = published("II").set_index("domain")["published"]
    correlation = published("VI").set_index("domain")["published"]
    gap = pd.Series({"chat - math": alpha["chat"] - alpha["math"]})
    assert gap.item() == pytest.approx(float(CLAIMS["gap"]["number"]), abs=5e-4)
    numbers = {"level": alpha, "gap": gap, "length": length, "depth": depth[3] - depth[1]}
    numbers |= dict.fromkeys(["entropy-sign", "entropy-weak"], correlation)
    for name, values in numbers.items():
        region = CLAIMS[name]["region"]
        for row, value in values.items():
            least, most = region[row] if isinstance(region, dict) else region
            assert least < value < most, (name, row)

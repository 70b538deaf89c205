"""Levels of a variance: hand cases, planted effects, statsmodels' mixed model as the reference."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from test_score import make_run

from speclab.analysis import levels
from speclab.stats import resampling_of

SPACE = np.array([1, -1, 0.5, -0.5]) / np.sqrt(0.625)  # four domains, variance 1


def planted(
    prompts=50, domain=0.0, prompt=1.0, row=1.0, rows=(20, 40), seed=0
) -> pd.DataFrame:
    """Four domains: y = domain effect + prompt effect + row, of these standard deviations; prompts
    of different lengths, a covariate x with slope 0.5.
    """
    rng = np.random.default_rng(seed)
    size = rng.integers(rows[0], rows[1] + 1, 4 * prompts)
    number = np.repeat(np.arange(4 * prompts), size)
    of = number // prompts
    effect = prompt * rng.standard_normal(4 * prompts)
    x = rng.standard_normal(len(number))
    y = domain * SPACE[of] + effect[number] + row * rng.standard_normal(len(number))
    names = np.array(["code", "math", "reasoning", "chat"])
    return pd.DataFrame(
        {
            "prompt_id": np.char.add("p", np.char.zfill(number.astype(str), 4)),
            "domain": names[of],
            "x": x,
            "y": y + 0.5 * x,
        }
    )


def test_domain_shares_by_hand():
    """Prompt means 0-4 and 2-6, two rows each, one above and one below: sums of squares 20 between
    domains, 40 of prompts about them (mean square 5), 20 of rows.
    """
    means = [*range(5), *range(2, 7)]
    rows = [
        (f"p{i}", "code" if i < 5 else "chat", mean + off)
        for i, mean in enumerate(means)
        for off in (-1, 1)
    ]
    frame = pd.DataFrame(rows, columns=["prompt_id", "domain", "y"])
    found = levels.domain_shares(frame, "y", n=50).set_index("level")
    assert found.loc[levels.ROWS, "uncorrected"] == pytest.approx(20 / 80)
    assert found.loc[levels.ROWS, "estimate"] == pytest.approx(15 / 85)
    assert found.loc[levels.MEANS, "uncorrected"] == pytest.approx(20 / 60)
    assert found.loc[levels.MEANS, "estimate"] == pytest.approx(15 / 65)


def test_without_a_domain_effect_the_share_is_nothing_and_the_plain_one_is_not():
    found = pd.concat(
        levels.domain_shares(planted(10, rows=(5, 9), seed=seed), "y", n=100)
        for seed in range(100)
    )
    means = found[found["level"] == levels.MEANS]
    assert means["uncorrected"].mean() == pytest.approx(3 / 39, abs=0.02), (
        "the negative control: uncorrected, whole prompts of chance look like domains"
    )
    assert means["estimate"].median() < 0.02
    assert (means["low"] <= 0).mean() >= 0.9


def test_a_planted_share_is_found_at_each_level(domain=0.3):
    """Unequal lengths; the rows' and the prompts' own variances are 4 and 1."""
    found = []
    for seed in range(12):
        frame = planted(domain=domain, row=2.0, seed=seed)
        question = levels.Question(frame, "y", ("x",))
        shares = levels.measure({levels.AT_0: question}, n=40).shares.frame
        found.append(shares.set_index("level")["estimate"])
    mean = pd.concat(found, axis=1).mean(axis=1)
    truth = domain**2 / (domain**2 + 1)
    row = domain**2 / (domain**2 + 1 + 4.25)  # 0.25 is of x
    assert mean[levels.ROWS] == pytest.approx(row, abs=0.02)
    assert mean[levels.PROMPTS] == pytest.approx(truth, abs=0.03)
    assert mean[levels.GIVEN] == pytest.approx(truth, abs=0.03)
    assert mean[levels.ROWS] < mean[levels.MEANS] < mean[levels.PROMPTS] + 0.01


def test_the_interval_holds_the_planted_share():
    """0.1 of the variance of prompt means; the plain percentiles would do about as well here, but
    lie around the uncorrected share.
    """
    truth, covered, middle = 0.1, 0, []
    for seed in range(80):
        frame = planted(domain=1 / 3, row=1e-3, rows=(1, 1), seed=seed)
        frame["y"] -= 0.5 * frame["x"]
        own = levels.domain_shares(frame, "y", n=300).set_index("level")
        low, high = own.loc[levels.MEANS, ["low", "high"]]
        covered += low <= truth <= high
        middle.append(own.loc[levels.MEANS, "estimate"])
    assert covered / 80 >= 0.88
    assert np.mean(middle) == pytest.approx(truth, abs=0.015)


@pytest.mark.parametrize("prompt", [0.3, 1.0])
@pytest.mark.parametrize("domains", [False, True])
def test_the_fit_is_that_of_statsmodels(prompt, domains):
    frame = planted(8, domain=0.4, prompt=prompt, rows=(4, 15), seed=3)
    fixed = levels.fixed_effects(frame, ["x"], domains)
    found = levels.random_intercept(frame, "y", fixed, n=1)
    centred = frame.assign(x=frame["x"] - frame["x"].mean())
    formula = "y ~ 0 + domain + x" if domains else "y ~ x"
    slow = smf.mixedlm(formula, centred, groups=centred["prompt_id"])
    slow = slow.fit(reml=True, method="powell")
    assert slow.converged
    assert found.prompt[0] == pytest.approx(slow.cov_re.iloc[0, 0], rel=1e-3)
    assert found.residual[0] == pytest.approx(slow.scale, rel=1e-4)
    names = {levels.LEVEL: "Intercept", "x": "x"}
    for term, value in zip(found.terms, found.coefficients[0], strict=True):
        own = names.get(term, f"domain[{term}]")
        assert value == pytest.approx(slow.fe_params[own], abs=1e-4)


def test_a_resample_is_the_fit_of_the_redrawn_prompts():
    frame = planted(6, domain=0.5, rows=(4, 9), seed=5)
    found = levels.random_intercept(
        frame, "y", levels.fixed_effects(frame, ["x"], True), n=3
    )
    weights = resampling_of(frame, 3).weights[2].astype(int)
    parts = []
    for copies, (name, rows) in zip(weights, frame.groupby("prompt_id"), strict=True):
        parts += [rows.assign(prompt_id=f"{name}-{copy}") for copy in range(copies)]
    redrawn = pd.concat(parts, ignore_index=True)
    fixed = levels.fixed_effects(redrawn, [], True)
    fixed["x"] = redrawn["x"] - frame["x"].mean()
    own = levels.random_intercept(redrawn, "y", fixed, n=1)
    assert found.prompt[2] == pytest.approx(own.prompt[0], rel=1e-3)
    np.testing.assert_allclose(found.coefficients[2], own.coefficients[0], atol=1e-5)


def test_fixed_effects_are_levels_and_centred_covariates():
    frame = pd.DataFrame(
        {
            "domain": ["code", "code", "chat", "chat"],
            "rank": ["rank 0", "rank 1"] * 2,
            "x": [0.0, 1, 2, 3],
            "same": 1.0,
        }
    )
    with_domains = levels.fixed_effects(frame, ["rank", "x", "same"], True)
    assert set(with_domains) == {"code", "chat", "x", "rank 1"}
    assert with_domains["code"].tolist() == [1, 1, 0, 0]
    assert with_domains["x"].tolist() == [-1.5, -0.5, 0.5, 1.5]
    assert with_domains["rank 1"].tolist() == [-0.5, 0.5, -0.5, 0.5]
    alone = levels.fixed_effects(frame, [], False)
    assert list(alone) == [levels.LEVEL] and (alone == 1).all(axis=None)


def with_tokens(run, period=100):
    token = run.trace["position"] % period
    return SimpleNamespace(trace=run.trace.assign(token=token), nodes=run.nodes)


def test_the_questions_hold_what_they_name():
    run = with_tokens(make_run(prompts=6, positions=8), period=2)
    lengths = dict.fromkeys(run.trace["prompt_id"].unique(), 250) | {"code-0": 50}
    asked = levels.questions(run, run, lengths)
    assert list(asked) == [levels.PUBLISHED, levels.AT_0, levels.AT_1]
    hits = asked[levels.AT_0].frame
    assert hits["hit"].mean() == pytest.approx((run.trace["draft_rank"] == 0).mean())
    assert set(hits.loc[hits["prompt_id"] == "code-0", "prompt length"]) == {0.5}
    for one in (asked[levels.PUBLISHED], asked[levels.AT_1]):
        loop = one.frame.groupby("position")["in a loop"].unique()
        assert [list(values) for values in loop] == [[0.0]] * 5 + [[1.0]] * 3


def test_what_cannot_be_parted_is_refused():
    frame = planted(6, rows=(3, 3))
    one = frame[frame["domain"] == "code"]
    with pytest.raises(ValueError, match="a share between domains needs two"):
        levels.domain_shares(one, "y")
    with pytest.raises(ValueError, match="'y' is constant"):
        fixed = levels.fixed_effects(frame, [], True)
        levels.random_intercept(frame.assign(y=1.0), "y", fixed, n=1)

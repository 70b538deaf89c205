"""Coverage of intervals: bounds against scipy, studies simulated with a known true value, and the
committed table.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats
from test_stats import clustered

from data.coverage import prepare as coverage
from data.coverage.prepare import EXPANDED, PERCENTILE, TABLE, Case
from speclab import score, stats


def mean_case(values, name="mean"):
    """The mean of one row per prompt."""
    totals = np.column_stack([values, np.ones(len(values))])
    return Case(name, (totals,), lambda sums: score.quotient(sums)[..., 0, 0])


def test_bca_is_scipys():
    values = np.random.default_rng(0).lognormal(size=25)
    theirs = scipy_stats.bootstrap(
        (values,), np.mean, method="BCa", n_resamples=999, rng=np.random.default_rng(1)
    )
    found = np.concatenate([[values.mean()], theirs.bootstrap_distribution])
    left_out = (values.sum() - values) / 24
    ours = coverage.bca_bounds(found[:, None], left_out[None, :, None])
    assert ours[:, 0] == pytest.approx(theirs.confidence_interval, rel=1e-9)


def test_standard_errors_by_hand_and_of_every_resample():
    """Of a mean over prompts of one length: the sample's own s / sqrt(n), in every resample."""
    frame = pd.concat([clustered(8, 3), clustered(6, 3, domain="chat", seed=1)])
    prompts = stats.resampling_of(frame, 40)
    totals = prompts.totals(score.mean_of("x").columns(frame))
    products = prompts.resampled(totals[:, [0, 0, 0, 1]] * totals[:, [0, 1, 1, 1]])
    sizes = np.array([8, 6])
    errors = coverage.standard_errors(
        prompts.resampled(totals),
        products.reshape(41, 2, 2, 2),
        sizes,
        lambda sums: score.across(score.quotient, sums)[..., 0],
    )
    means = frame.groupby("prompt_id")["x"].mean().to_numpy()
    for weight, found in zip(prompts.weights, errors, strict=True):
        drawn = np.repeat(np.arange(14), weight.astype(int))
        code, chat = (means[drawn[prompts.domain[drawn] == number]] for number in (0, 1))
        by_hand = np.array([code.std(ddof=1), chat.std(ddof=1)]) / np.sqrt(sizes)
        assert found[:3] == pytest.approx([*by_hand, np.hypot(*by_hand) / 2], abs=1e-6)


def test_intervals_of_many_studies_are_those_that_the_kit_makes():
    """Each simulated study's interval is what `by_domain` gives for a frame of its prompts."""
    rng = np.random.default_rng(3)
    case = mean_case(rng.random(40))
    drawn = case.totals[0][rng.integers(40, size=(3, 1, 12))]
    frames = [
        pd.DataFrame({"prompt_id": range(100, 112), "domain": "code", "x": one[0, :, 0]})
        for one in drawn
    ]
    weights = stats.resampling_of(frames[0], 200).weights
    found = coverage.four_intervals(case, drawn, weights[:, None])
    for bounds, frame in zip(found[EXPANDED].T, frames, strict=True):
        row = stats.by_domain(frame, score.mean_of("x"), 200).frame.iloc[0]
        assert bounds == pytest.approx([row["low"], row["high"]], rel=1e-6)


def held(case, prompts):
    """Share of 600 studies whose interval covers the true value, by method."""
    found = coverage.simulated_coverage(case, prompts, studies=600, resamples=499)
    return found.set_index("method")["held"] / 600


def test_few_prompts_undercover_by_percentile_and_less_by_the_kits_interval():
    """With a seed: 600 studies of 5 prompts. The negative control is the plain percentile."""
    case = mean_case(np.random.default_rng(5).normal(size=50))
    few, many = (held(case, size) for size in (5, 50))
    assert few[PERCENTILE] < 0.86 < 0.88 < few[EXPANDED] < 0.97
    assert many.between(0.91, 0.98).all()


def test_the_committed_table_shows_what_is_claimed_of_it():
    known = pd.read_csv(TABLE)
    keys = ["pair", "estimator", "n_prompts"]
    plain = known[known["method"] == PERCENTILE]
    both = known[known["used"]].merge(plain, on=keys, suffixes=("", "_plain"))
    assert len(both) == 2 * 3 * 5
    assert (both["coverage"] >= both["coverage_plain"]).all()
    assert both.loc[both["n_prompts"] >= 10, "coverage"].between(0.91, 0.98).all()
    assert both.loc[both["n_prompts"] == 5, "coverage"].min() < 0.9, "few stay few"

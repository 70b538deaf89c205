"""Differences between domains, and between two measurements of the same prompts, with permutation
tests that move whole prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from statsmodels.stats.multitest import multipletests

from speclab import stats
from speclab.score import POOLED, Estimator, domains_in
from speclab.stats import RESAMPLES, Interval, bounds_of, resampling_of

PERMUTATIONS = 10_000


@dataclass(frozen=True)
class Difference(Interval):
    """A difference, first - second, as an Interval with its two-sided permutation p-value."""

    p_value: float


def differences(
    frame: pd.DataFrame,
    estimator: Estimator,
    n: int = PERMUTATIONS,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> pd.DataFrame:
    """Every pair of domains: first, second, difference, low, high (of `resamples`), p_value
    (prompts permuted between the two, n times), p_holm.

    Holm's correction is over the pairs.
    """
    prompts = resampling_of(frame, resamples, seed)
    totals = prompts.totals(estimator.columns(frame))
    resampled = estimator.number(prompts.resampled(totals))
    rng = np.random.default_rng([seed, 1])
    rows = []
    for (a, first), (b, second) in combinations(enumerate(prompts.domains), 2):
        spread = resampled[:, a] - resampled[:, b]
        both = totals[np.isin(prompts.domain, [a, b])]
        size = int((prompts.domain == a).sum())
        order = rng.random((n, len(both))).argsort(axis=1)
        picked = (order < size) @ both
        others = both.sum(axis=0) - picked
        permuted = estimator.number(picked) - estimator.number(others)
        p_value = _p_value(spread[0], permuted)
        fewest = min(size, len(both) - size)
        bounds = bounds_of(spread[1:], fewest)
        rows.append((first, second, spread[0], *bounds, p_value))
    result = pd.DataFrame(rows, columns=["first", "second", "difference", "low", "high", "p_value"])
    return result.assign(p_holm=holm(result["p_value"]))


def with_signs(found: pd.DataFrame, level: float) -> pd.DataFrame:
    """`differences` with pair ('code − math') and sign: 1 or -1 where Holm's p is below `level`,
    else 0.
    """
    sign = np.sign(found["difference"]) * (found["p_holm"] < level)
    return found.assign(pair=found["first"] + " − " + found["second"], sign=sign)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's adjusted p-values of a family."""
    if len(p_values) == 1:  # statsmodels collects garbage at every call: 0.1 s
        return np.array(p_values)
    return multipletests(p_values, method="holm")[1]


def paired_difference(
    first: pd.DataFrame, second: pd.DataFrame, estimator: Estimator, n: int = PERMUTATIONS
) -> Difference:
    """first - second on the same prompts (template on and off, two drafts): prompts resampled
    together, swapped within a prompt.

    Low in power (p-value only) where the frames differ in rows a prompt. ValueError if they do not
    hold the same prompts.
    """
    measured = {"first": (first, estimator), "second": (second, estimator)}
    draws = stats.jointly(measured)
    spread = (draws["first"] - draws["second"])[POOLED].to_numpy()
    found = Interval.of(spread, draws.prompts, "the difference")
    # both in the order of the prompts' ids
    before, after = (
        resampling_of(frame, 1).totals(estimator.columns(frame)) for frame in (first, second)
    )
    rng = np.random.default_rng([0, 2])
    swap = rng.integers(0, 2, (n, len(before)))
    moved = swap @ (after - before)
    of_first = estimator.number(before.sum(axis=0) + moved)
    of_second = estimator.number(after.sum(axis=0) - moved)
    p_value = _p_value(spread[0], of_first - of_second)
    return Difference(**vars(found), p_value=p_value)


def paired_by_domain(
    first: pd.DataFrame, second: pd.DataFrame, estimator: Estimator, n: int = PERMUTATIONS
) -> pd.DataFrame:
    """`paired_difference` in each domain and pooled: domain, estimate, low, high, n_prompts,
    p_value.
    """
    rows = []
    for domain in (*domains_in(first), POOLED):
        own = [first, second]
        if domain != POOLED:
            own = [part[part["domain"] == domain] for part in own]
        found = paired_difference(*own, estimator, n)
        rows.append({"domain": domain} | vars(found))
    return pd.DataFrame(rows)


def _p_value(observed: float, permuted: np.ndarray) -> float:
    """Two-sided, the sample itself counted; equal within rounding is as extreme."""
    as_extreme = np.abs(permuted) >= abs(observed) - 1e-12
    return float((1 + as_extreme.sum()) / (1 + len(permuted)))

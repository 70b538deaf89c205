"""Differences between domains. Permutation tests move whole prompts and compare a difference in
units of its standard error (Janssen 1997, Statistics & Probability Letters 36). Otherwise, a test
of domains of unequal size and spread does not hold its level.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from statsmodels.stats.multitest import multipletests

from speclab import stats
from speclab.score import Estimator
from speclab.stats import bounds_of, resampling_of

PERMUTATIONS = 10_000
AT_ONCE = 1_000_000  # left-out prompts whose numbers are in memory


def differences(frame: pd.DataFrame, estimator: Estimator, n: int = PERMUTATIONS) -> pd.DataFrame:
    """Every pair of domains with at least 5 prompts each: first, second, difference, low, high
    (from resamples), p_value (prompts permuted between the two domains, n times; the statistic is
    `_studentised`), p_holm (Holm's correction over these pairs).
    """
    frame = frame[frame["domain"].isin(stats.judged_domains(frame))]
    prompts = resampling_of(frame)
    totals = prompts.totals(estimator.columns(frame))
    resampled = estimator.number(prompts.resampled(totals))
    rng = np.random.default_rng([0, 1])
    rows = []
    for (a, first), (b, second) in combinations(enumerate(prompts.domains), 2):
        difference = resampled[:, a] - resampled[:, b]
        is_here = np.isin(prompts.domain, [a, b])
        both = totals[is_here]
        size = prompts.sizes[first]
        is_first = prompts.domain[is_here] == a
        observed = _studentised(is_first[None], both, estimator)[0]
        permuted = []
        most = max(1, AT_ONCE // len(both))
        for start in range(0, n, most):
            shape = min(most, n - start), len(both)
            order = rng.random(shape).argsort(axis=1)
            permuted.append(_studentised(order < size, both, estimator))
        fewest = min(size, prompts.sizes[second])
        bounds = bounds_of(difference[1:], fewest)
        p_value = _p_value(observed, np.concatenate(permuted))
        rows.append((first, second, difference[0], *bounds, p_value))
    columns = ["first", "second", "difference", "low", "high", "p_value"]
    result = pd.DataFrame(rows, columns=columns)
    return result.assign(p_holm=holm(result["p_value"]))


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's adjusted p-values of a family of tests."""
    if len(p_values) == 1:  # statsmodels collects garbage at every call: 0.1 s
        return np.array(p_values)
    return multipletests(p_values, method="holm")[1]


def _studentised(is_first: np.ndarray, totals: np.ndarray, estimator: Estimator) -> np.ndarray:
    """The difference between two groups of prompts divided by its standard error, for each row of
    `is_first` (rows, prompts). totals (prompts, k) are the prompts' sums. The error is the
    jackknife's: each prompt is left out of its group once. NaN: no difference and no error.
    """
    difference = np.zeros(len(is_first))
    variance = np.zeros(len(is_first))
    for sign, members in ((1, is_first), (-1, ~is_first)):
        group = members @ totals
        size = members.sum(axis=1)
        left = estimator.number(group[:, None] - totals)
        left = np.where(members, left, 0)
        mean = left.sum(axis=1) / size
        deviations = np.where(members, left - mean[:, None], 0)
        squares = (deviations**2).sum(axis=1)
        variance += (size - 1) / size * squares
        difference += sign * estimator.number(group)
    difference[np.abs(difference) < 1e-12] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics: np.ndarray = difference / np.sqrt(variance)
    return statistics


def _p_value(observed: float, permuted: np.ndarray) -> float:
    """Two-sided. The sample itself counts. Statistics that are equal but for rounding count as
    equally extreme, and undefined ones as more extreme.
    """
    is_less = np.abs(permuted) < abs(observed) * (1 - 1e-9)
    as_extreme = 1 + np.sum(~is_less)
    return float(as_extreme / (1 + len(permuted)))

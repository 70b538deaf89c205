"""Differences between domains, and between two measurements of the same prompts. Permutation tests
move whole prompts.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from statsmodels.stats.multitest import multipletests

from speclab import stats
from speclab.score import Estimator
from speclab.stats import RESAMPLES, bounds_of, resampling_of

PERMUTATIONS = 10_000


def differences(
    frame: pd.DataFrame,
    estimator: Estimator,
    n: int = PERMUTATIONS,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> pd.DataFrame:
    """Every pair of domains with at least 5 prompts each: first, second, difference, low, high
    (from `resamples`), p_value (prompts permuted between the two domains, n times), p_holm (Holm's
    correction over these pairs).
    """
    frame = frame[frame["domain"].isin(stats.judged_domains(frame))]
    prompts = resampling_of(frame, resamples, seed)
    totals = prompts.totals(estimator.columns(frame))
    resampled = estimator.number(prompts.resampled(totals))
    rng = np.random.default_rng([seed, 1])
    rows = []
    for (a, first), (b, second) in combinations(enumerate(prompts.domains), 2):
        difference = resampled[:, a] - resampled[:, b]
        both = totals[np.isin(prompts.domain, [a, b])]
        size, other_size = prompts.sizes[first], prompts.sizes[second]
        drawn = rng.random((n, len(both)))
        order = drawn.argsort(axis=1)
        picked = (order < size) @ both
        others = both.sum(axis=0) - picked
        permuted = estimator.number(picked) - estimator.number(others)
        bounds = bounds_of(difference[1:], min(size, other_size))
        p_value = _p_value(difference[0], permuted)
        rows.append((first, second, difference[0], *bounds, p_value))
    columns = ["first", "second", "difference", "low", "high", "p_value"]
    result = pd.DataFrame(rows, columns=columns)
    return result.assign(p_holm=holm(result["p_value"]))


def with_signs(tests: pd.DataFrame, level: float) -> pd.DataFrame:
    """`differences` with pair ('code − math') and sign: 1 or -1 if Holm's p is below `level`, else
    0.
    """
    is_significant = tests["p_holm"] < level
    sign = np.sign(tests["difference"]) * is_significant
    pair = tests["first"] + " − " + tests["second"]
    return tests.assign(pair=pair, sign=sign)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's adjusted p-values of a family of tests."""
    if len(p_values) == 1:  # statsmodels collects garbage at every call: 0.1 s
        return np.array(p_values)
    return multipletests(p_values, method="holm")[1]


def _p_value(observed: float, permuted: np.ndarray) -> float:
    """Two-sided. The sample itself counts, and differences that are equal but for rounding count as
    equally extreme.
    """
    as_extreme = np.abs(permuted) >= abs(observed) - 1e-12
    return float((1 + as_extreme.sum()) / (1 + len(permuted)))

"""Differences between domains, and between two measurements of the same prompts. Permutation tests
move whole prompts.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from statsmodels.stats.multitest import multipletests

from speclab import stats
from speclab.score import POOLED, Estimator, domains_in
from speclab.stats import RESAMPLES, Interval, bounds_of, resampling_of

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


def paired_by_domain(
    first: pd.DataFrame, second: pd.DataFrame, estimator: Estimator, n: int = PERMUTATIONS
) -> pd.DataFrame:
    """first - second on the same prompts (template on and off, two drafts), in each domain and
    pooled: domain, estimate, low, high, n_prompts, p_value (the two values of a prompt swapped at
    random, n times).

    The p-value has little power if the frames differ in rows per prompt. ValueError if they do not
    hold the same prompts.
    """
    rows = []
    for domain in (*domains_in(first), POOLED):
        both = [first, second]
        if domain != POOLED:
            both = [frame[frame["domain"] == domain] for frame in both]
        rows.append({"domain": domain} | _paired(both, estimator, n))
    return pd.DataFrame(rows)


def _paired(both: Sequence[pd.DataFrame], estimator: Estimator, n: int) -> dict[str, float]:
    """The first minus the second: the fields of an `Interval` (prompts resampled together), and
    p_value.
    """
    draws = stats.jointly({name: (frame, estimator) for name, frame in enumerate(both)})
    change = draws[0] - draws[1]
    difference = change[POOLED].to_numpy()
    interval = Interval.of(difference, draws.prompts, "the difference")
    # both in the order of the prompts' ids
    before, after = (resampling_of(frame, 1).totals(estimator.columns(frame)) for frame in both)
    rng = np.random.default_rng([0, 2])
    swap = rng.integers(0, 2, (n, len(before)))
    moved = swap @ (after - before)
    of_first = estimator.number(before.sum(axis=0) + moved)
    of_second = estimator.number(after.sum(axis=0) - moved)
    p_value = _p_value(difference[0], of_first - of_second)
    return vars(interval) | {"p_value": p_value}


def _p_value(observed: float, permuted: np.ndarray) -> float:
    """Two-sided. The sample itself counts, and differences that are equal but for rounding count as
    equally extreme.
    """
    as_extreme = np.abs(permuted) >= abs(observed) - 1e-12
    return float((1 + as_extreme.sum()) / (1 + len(permuted)))

"""Bootstrap-t intervals, for numbers whose spread grows with them, such as a ratio of variances:
there the percentile interval of `speclab.stats` covers less than it says (data/coverage).
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.score import Estimator

STEP = (
    1e-4  # relative change in a derivative, whose error is of the order of its square
)


def studentised_bounds(values: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Bootstrap-t bounds (2, ...) from values (1 + n, ...) and their standard errors: the sample's,
    then those of its resamples (Efron 1982, The Jackknife, the Bootstrap and Other Resampling
    Plans). For numbers whose spread grows with them, such as a ratio of variances.
    """
    far = score.divide(values[1:] - values[0], errors[1:])
    low, high = stats.quantiles(far, (0.025, 0.975))
    return np.stack([values[0] - high * errors[0], values[0] - low * errors[0]])


def standard_errors(
    sums: np.ndarray,
    products: np.ndarray,
    sizes: np.ndarray,
    value: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Linearised standard errors (..., out) of value(sums), over prompts (delta method; the same as
    the infinitesimal jackknife, Efron 1982).

    sums: of totals over the prompts of each domain (..., domains, k); products: of each prompt's
    totals with each other (..., domains, k, k); sizes: prompts of each domain (domains,). `value`
    maps (..., domains, k) to (..., out), `out` being one axis or several.
    """
    n = np.asarray(sizes)[:, None, None]
    spread = products - sums[..., :, None] * sums[..., None, :] / n
    spread = spread * n / (n - 1)
    scale = np.abs(sums).max(axis=tuple(range(sums.ndim - 2)))
    variance = 0.0
    for domain in range(len(sizes)):
        slopes = []
        for column in range(sums.shape[-1]):
            step = np.zeros_like(scale)
            step[domain, column] = STEP * (scale[domain, column] or 1.0)
            rise = value(sums + step) - value(sums - step)
            slopes.append(rise / (2 * step[domain, column]))
        out = slopes[0].shape
        slope = np.stack(slopes).reshape(len(slopes), *sums.shape[:-2], -1)
        pulled = np.einsum("...jl,l...m->j...m", spread[..., domain, :, :], slope)
        variance += (slope * pulled).sum(axis=0)
    return np.sqrt(np.maximum(variance, 0.0)).reshape(out)


def by_domain(
    frame: pd.DataFrame, estimator: Estimator, n: int = stats.RESAMPLES
) -> pd.DataFrame:
    """`stats.by_domain` with the bounds of `studentised_bounds`."""
    prompts = stats.resampling_of(frame, n)
    totals = prompts.totals(estimator.columns(frame))
    pairs = (totals[:, :, None] * totals[:, None, :]).reshape(len(totals), -1)

    def value(sums: np.ndarray) -> np.ndarray:  # (1 + n, domains + 2, m)
        return score.across(estimator.value, sums)

    sums = prompts.resampled(totals)
    products = prompts.resampled(pairs).reshape(*sums.shape, -1)
    errors = standard_errors(sums, products, np.bincount(prompts.domain), value)
    low, high = studentised_bounds(value(sums), errors)
    found = stats.by_domain(frame, estimator, n)
    return found.assign(low=low.ravel(), high=high.ravel())

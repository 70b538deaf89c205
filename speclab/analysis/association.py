"""Correlations of two columns over rows, with the prompt as the unit."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd

from speclab.score import column_of, divide, domains_in
from speclab.stats import RESAMPLES, Interval, Resampling, resampling_of

METHODS = ("spearman", "pearson")
TIES_AT_ONCE = 1000  # memory


def correlation(
    frame: pd.DataFrame,
    x: str,
    y: str,
    method: str = "spearman",
    n: int = RESAMPLES,
) -> Interval:
    """Spearman or Pearson correlation of two columns over rows, with a prompt-clustered interval
    (`ratio` may be named).

    Spearman ranks every resample anew, ties at their mean rank: exact. ValueError if a column is
    constant.
    """
    correlate = {"spearman": _spearman, "pearson": _pearson}[method]
    prompts = resampling_of(frame, n)
    values = {name: column_of(frame, name) for name in (x, y)}
    constant = [name for name, column in values.items() if np.ptp(column) == 0]
    if constant:
        raise ValueError(
            f"column {constant} is constant: its correlation is undefined; "
            "choose rows where it varies"
        )
    draws = correlate(values[x], values[y], prompts)
    return Interval.of(draws, prompts, f"the correlation of {x} and {y}")


def correlations(
    frame: pd.DataFrame,
    x: str,
    y: str,
    methods: Sequence[str] = METHODS,
    n: int = RESAMPLES,
) -> pd.DataFrame:
    """`correlation` in each domain by each method: domain, method and Interval's fields."""
    rows = []
    for domain, method in product(domains_in(frame), methods):
        found = correlation(frame[frame["domain"] == domain], x, y, method, n)
        rows.append({"domain": domain, "method": method} | vars(found))
    return pd.DataFrame(rows)


def _pearson(x: np.ndarray, y: np.ndarray, prompts: Resampling) -> np.ndarray:
    """Correlations (1 + n,): of the sample, then of each resample, from weighted moments (centred
    first: no cancellation).
    """
    x, y = (v - v.mean() for v in (x, y))
    totals = prompts.totals(
        np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)
    )
    count, sx, sy, xx, yy, xy = prompts.resampled(totals).sum(axis=1).T
    spread = np.maximum((xx - sx * sx / count) * (yy - sy * sy / count), 0.0)
    return divide(xy - sx * sy / count, np.sqrt(spread))


def _spearman(x: np.ndarray, y: np.ndarray, prompts: Resampling) -> np.ndarray:
    """Correlations (1 + n,) of mid-ranks.

    A row's rank in a resample is linear in the prompts' weights, so the product of its ranks is a
    cubic form in the weights: the rows are ranked once, against each prompt, and a resample costs
    no pass over the rows. The spread of ranks follows from their ties alone.
    """
    rows, weights = prompts.rows, prompts.weights
    level_x, equal_x = _levels(x, rows)
    level_y, equal_y = _levels(y, rows)
    below_x, below_y = _twice_below(equal_x), _twice_below(equal_y)
    products = np.zeros(len(weights))
    for prompt, weight in enumerate(weights.T):
        own = rows == prompt
        table = below_x[level_x[own]].T @ below_y[level_y[own]]  # prompts by prompts
        products += weight * ((weights @ table) * weights).sum(axis=1)
    # twice a mid-rank is, on average, the size of the resample
    centre = (weights @ np.bincount(rows)) ** 3
    xx, yy = ((centre - _cubed_ties(one, weights)) / 3 for one in (equal_x, equal_y))
    return divide(products - centre, np.sqrt(np.maximum(xx * yy, 0.0)))


def _levels(values: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each row's distinct value, by its place among them in rising order (rows,); and how many rows
    of each prompt hold each distinct value, float64 (levels, prompts).
    """
    level = np.unique(values, return_inverse=True)[1]
    size = rows.max() + 1
    counts = np.bincount(level * size + rows, minlength=(level.max() + 1) * size)
    return level, counts.reshape(-1, size).astype(np.float64)


def _twice_below(equal: np.ndarray) -> np.ndarray:
    """For each distinct value (levels, prompts) twice the number of a prompt's values that are
    below it, equal ones counted half.
    """
    return 2 * equal.cumsum(axis=0) - equal


def _cubed_ties(equal: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sum over the distinct values of the cubed weight of the rows that hold it, for every set of
    weights: (n,). Most values of a real number are met in one prompt alone.
    """
    shared = (equal > 0).sum(axis=1) > 1
    cubes = weights**3 @ (equal[~shared] ** 3).sum(axis=0)
    tied = equal[shared]
    for start in range(0, len(tied), TIES_AT_ONCE):
        cubes += ((weights @ tied[start : start + TIES_AT_ONCE].T) ** 3).sum(axis=1)
    return cubes

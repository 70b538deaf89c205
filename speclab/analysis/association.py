"""Correlations of two columns over rows, with the prompt as the unit."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from speclab.score import column_of, divide, domains_in, require
from speclab.stats import RESAMPLES, Interval, Prompts, prompts_of

METHODS = ("spearman", "pearson")


def correlation(
    frame: pd.DataFrame,
    x: str,
    y: str,
    method: str = "spearman",
    n: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Spearman or Pearson correlation of two columns over rows, with a prompt-clustered interval
    (`alpha` may be named).

    Spearman ranks every resample anew, ties at their mean rank: exact. ValueError if a column is
    constant.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; allowed: 'spearman', 'pearson'")
    prompts, values = (
        prompts_of(frame, n, seed),
        {name: column_of(frame, name) for name in (x, y)},
    )
    constant = [name for name, column in values.items() if np.ptp(column) == 0]
    if constant:
        raise ValueError(
            f"column {constant} is constant: its correlation is undefined; "
            "choose rows where it varies"
        )
    draws = (_spearman if method == "spearman" else _pearson)(
        values[x], values[y], prompts
    )
    return Interval.of(draws, prompts, f"the correlation of {x} and {y}")


def correlations(
    frame: pd.DataFrame,
    x: str,
    y: str,
    within: str | None = None,
    methods: Sequence[str] = METHODS,
    n: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """`correlation` in each domain (and each value of `within`, such as rank): domain, [within],
    method and Interval's fields.
    """
    keys, rows = ["domain"] + ([within] if within else []), []
    groups = dict(list(require(frame, keys, "frame").groupby(keys, observed=True)))
    for key in sorted(
        groups, key=lambda key: (domains_in(frame).index(key[0]), *key[1:])
    ):
        head = dict(zip(keys, key, strict=True))
        rows += [
            head
            | {"method": method}
            | vars(correlation(groups[key], x, y, method, n, seed))
            for method in methods
        ]
    return pd.DataFrame(rows)


def _pearson(x: np.ndarray, y: np.ndarray, prompts: Prompts) -> np.ndarray:
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


def _spearman(x: np.ndarray, y: np.ndarray, prompts: Prompts) -> np.ndarray:
    """Correlations (1 + n,) of mid-ranks.

    A row's rank in a resample is linear in the prompts' weights, so the moments of the ranks are
    cubic forms in the weights: the rows are ranked once, against each prompt, and a resample costs
    no pass over the rows.
    """
    weights, size = prompts.weights, prompts.weights.shape[1]
    x, y = (_count_below(values, prompts.rows, size) for values in (x, y))
    centre = (
        weights @ np.bincount(prompts.rows)
    ) ** 3  # twice a mid-rank is, on average, the size of the resample
    xx, yy, xy = (
        _cubic(a, b, prompts.rows, weights) - centre
        for a, b in ((x, x), (y, y), (x, y))
    )
    return divide(xy, np.sqrt(np.maximum(xx * yy, 0.0)))


def _count_below(values: np.ndarray, rows: np.ndarray, n_prompts: int) -> np.ndarray:
    """(rows, prompts): twice the number of a prompt's values that are below a row's, equal ones
    counted half.
    """
    seen = np.zeros((len(values) + 1, n_prompts))
    seen[np.arange(1, len(values) + 1), rows[np.argsort(values)]] = 1
    np.cumsum(seen, axis=0, out=seen)
    return (
        seen[rankdata(values, "min").astype(int) - 1]
        + seen[rankdata(values, "max").astype(int)]
    )


def _cubic(
    a: np.ndarray, b: np.ndarray, rows: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Sum over rows of w[row] (a @ w)(b @ w) for every set of weights: (n,)."""
    tables = (a[rows == p].T @ b[rows == p] for p in range(weights.shape[1]))
    return sum(
        weight * ((weights @ table) * weights).sum(axis=1)
        for weight, table in zip(weights.T, tables, strict=True)
    )

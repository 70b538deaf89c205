"""Correlations of two columns over rows, with the prompt as the unit."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from speclab.score import column_of, divide, domains_in, require
from speclab.stats import RESAMPLES, Interval, Prompts, prompts_of

METHODS = ("spearman", "pearson")
TIES_AT_ONCE = 1000  # memory


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

    A row's rank in a resample is linear in the prompts' weights, so the product of its ranks is a
    cubic form in the weights: the rows are ranked once, against each prompt, and a resample costs
    no pass over the rows. The spread of ranks follows from their ties alone.
    """
    rows, weights = prompts.rows, prompts.weights
    if len(np.unique(x)) < len(np.unique(y)):
        x, y = y, x
    level_x, below_x = _count_below(x, rows, weights.shape[1])
    level_y, below_y = _count_below(y, rows, weights.shape[1])
    if len(below_y) < weights.shape[1]:  # few values: fewer tables by value
        products = _by_value(level_x, below_x, level_y, below_y, prompts)
    else:
        products = _by_prompt(level_x, below_x, level_y, below_y, prompts)
    # twice a mid-rank is, on average, the size of the resample
    centre = (weights @ np.bincount(rows)) ** 3
    xx, yy = ((centre - _cubed_ties(one, rows, weights)) / 3 for one in (x, y))
    return divide(products - centre, np.sqrt(np.maximum(xx * yy, 0.0)))


def _count_below(
    values: np.ndarray, rows: np.ndarray, n_prompts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Each row's distinct value, by its place among them in rising order (rows,); and for each
    distinct value (levels, prompts) twice the number of a prompt's values that are below it, equal
    ones counted half.
    """
    level = np.unique(values, return_inverse=True)[1]
    levels = level.max() + 1
    equal = np.bincount(level * n_prompts + rows, minlength=levels * n_prompts)
    equal = equal.reshape(levels, n_prompts)
    below = 2 * equal.cumsum(axis=0) - equal
    return level, below.astype(np.float64)


def _by_value(
    level_x: np.ndarray,
    below_x: np.ndarray,
    level_y: np.ndarray,
    below_y: np.ndarray,
    prompts: Prompts,
) -> np.ndarray:
    """Sum over rows of (x's rank)(y's rank) for the sample and every resample (1 + n,), from a
    table of prompts by prompts for each value of y.
    """
    weights, total = prompts.weights, 0.0
    parts = _parts(level_y, prompts.rows)
    for own, rank in zip(parts, below_y @ weights.T, strict=True):
        present, added = _added(below_x[level_x[own]], prompts.rows[own])
        product = (weights[:, present] @ added) * weights
        total = total + rank * product.sum(axis=1)
    return total


def _by_prompt(
    level_x: np.ndarray,
    below_x: np.ndarray,
    level_y: np.ndarray,
    below_y: np.ndarray,
    prompts: Prompts,
) -> np.ndarray:
    """The same from a table for each prompt. Rows of one prompt with the same y (the nodes of a
    tree have one entropy) are added up first.
    """
    weights, total = prompts.weights, 0.0
    parts = _parts(prompts.rows, level_y)
    for own, weight in zip(parts, weights.T, strict=True):
        values, added = _added(below_x[level_x[own]], level_y[own])
        product = (weights @ (added.T @ below_y[values])) * weights
        total = total + weight * product.sum(axis=1)
    return total


def _parts(group: np.ndarray, within: np.ndarray) -> list[np.ndarray]:
    """The row numbers of each group 0, 1, …, each in the order of `within`."""
    ends = np.bincount(group).cumsum()
    return np.split(np.lexsort((within, group)), ends[:-1])


def _added(values: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The groups that occur among rows in their order, and the sums of their rows."""
    groups, first = np.unique(group, return_index=True)
    return groups, np.add.reduceat(values, first, axis=0)


def _cubed_ties(
    values: np.ndarray, rows: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Sum over the distinct values of the cubed weight of the rows that hold it, for every set of
    weights: (n,). Most values of a real number are met in one prompt alone.
    """
    size = weights.shape[1]
    value = np.unique(values, return_inverse=True)[1]
    met, count = np.unique(value * size + rows, return_counts=True)
    value, prompt = np.divmod(met, size)
    shared = np.bincount(value)[value] > 1
    alone = np.bincount(prompt[~shared], count[~shared] ** 3.0, size)
    cubes = (weights * weights * weights) @ alone
    level = np.unique(value[shared], return_inverse=True)[1]
    table = np.zeros((size, level.max(initial=-1) + 1))
    table[prompt[shared], level] = count[shared]
    for start in range(0, table.shape[1], TIES_AT_ONCE):
        times = weights @ table[:, start : start + TIES_AT_ONCE]
        cubes += (times * times * times).sum(axis=1)
    return cubes

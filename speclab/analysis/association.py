"""Correlations of two columns over rows, with the prompt as the unit."""

import numpy as np
import pandas as pd

from speclab.score import column_of, divide, domains_in
from speclab.stats import NUMBERS, RESAMPLES, Interval, Resampling, resampling_of


def correlation(
    frame: pd.DataFrame, x: str, y: str, method: str = "spearman", n: int = RESAMPLES
) -> Interval:
    """Spearman or Pearson correlation of two columns over rows, with a prompt-clustered interval
    (`ratio` may be named).

    Spearman ranks every resample again, ties at their mean rank: exact. ValueError if a column is
    constant.
    """
    prompts = resampling_of(frame, n)
    values = {name: column_of(frame, name) for name in (x, y)}
    constant = [name for name, column in values.items() if np.ptp(column) == 0]
    if constant:
        raise ValueError(
            f"column {constant} is constant: its correlation is undefined; "
            "choose rows where it varies"
        )
    draws = correlation_draws(values[x], values[y], prompts, method)
    return Interval.of(draws, prompts, f"the correlation of {x} and {y}")


def correlations(frame: pd.DataFrame, x: str, y: str, method: str = "spearman") -> pd.DataFrame:
    """`correlation` in each domain: domain, Interval's fields and a note; missing, with the reason
    as the note, where a column is constant in a domain.
    """
    rows = []
    for domain in domains_in(frame):
        part = frame[frame["domain"] == domain]
        try:
            interval = correlation(part, x, y, method)
            numbers = vars(interval) | {"note": ""}
        except ValueError as error:
            numbers = dict.fromkeys(NUMBERS, np.nan) | {"note": str(error)}
        rows.append({"domain": domain} | numbers)
    return pd.DataFrame(rows)


def correlation_draws(x: np.ndarray, y: np.ndarray, prompts: Resampling, method: str) -> np.ndarray:
    """Correlations (1 + n,): of the sample, then of each resample."""
    ranked = {"spearman": True, "pearson": False}[method]
    levels = [np.unique(values, return_inverse=True)[1] for values in (x, y)]

    def once(weight: np.ndarray) -> float:
        pair = [midranks(level, weight) for level in levels] if ranked else [x, y]
        covariance = np.cov(pair, aweights=weight)
        spread = np.sqrt(covariance[0, 0] * covariance[1, 1])
        return float(divide(covariance[0, 1], spread))

    draws = [once(weights[prompts.rows]) for weights in prompts.weights]
    return np.array(draws)


def midranks(level: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Rank of each row among rows that count `weight` times (rows,), ties at their mean: the weight
    below it, and half of its ties'. level: each row's place among the distinct values (rows,).
    """
    tied = np.bincount(level, weight)
    ranks = tied.cumsum() - tied / 2
    return ranks[level]

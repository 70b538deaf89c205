"""Correlations of two columns over rows. Intervals resample prompts."""

import numpy as np
import pandas as pd

from speclab.score import column_of, divide, domains_in
from speclab.stats import NUMBERS, RESAMPLES, Interval, Resampling, resampling_of


def correlation(
    frame: pd.DataFrame, x: str, y: str, method: str = "spearman", n: int = RESAMPLES
) -> Interval:
    """Spearman or Pearson correlation of two columns over rows (`ratio` is a column, too), with an
    interval over resampled prompts.

    Spearman's ranks are computed again in every resample, with ties at their mean rank. ValueError
    if a column is constant.
    """
    prompts = resampling_of(frame, n)
    values = {name: column_of(frame, name) for name in (x, y)}
    constant = [name for name, column in values.items() if np.ptp(column) == 0]
    if constant:
        raise ValueError(
            f"column {constant} is constant, so its correlation is undefined: choose rows where it "
            "varies"
        )
    draws = correlation_draws(values[x], values[y], prompts, method)
    return Interval.of(draws, prompts, f"the correlation of {x} and {y}")


def correlations(frame: pd.DataFrame, x: str, y: str, method: str = "spearman") -> pd.DataFrame:
    """`correlation` in each domain: domain, Interval's fields and a note. If a column is constant
    in a domain, the numbers are missing and the note gives the reason.
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
    """Correlations (1 + n,) of the sample, then of each resample."""
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
    """Rank of each row (rows,) among rows that count `weight` times, with ties at their mean: the
    weight below the row plus half the weight of its ties. level: the index of each row's value
    among the distinct values (rows,).
    """
    tied = np.bincount(level, weight)
    ranks = tied.cumsum() - tied / 2
    return ranks[level]

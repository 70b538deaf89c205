"""Intervals, tests and effect sizes with the prompt as the unit.

The nodes of a tree share a context and the trees of a prompt share a text, so rows are not
independent: intervals resample prompts within a domain, and tests move whole prompts. Sums over
rows (`score.Estimator`) become per-prompt sums times a matrix of prompt weights.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab import score
from speclab.score import Estimator, domains_in, require

RESAMPLES, MIN_PROMPTS = 2000, 5
BOUNDS = (0.025, 0.975)  # of every interval


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % percentile interval over resampled prompts; `str()` gives '0.565
    [0.551, 0.579]'.
    """

    estimate: float
    low: float
    high: float
    n_prompts: int

    @classmethod
    def of(cls, draws: np.ndarray, n_prompts: int, what: str) -> "Interval":
        """The interval of draws (1 + n,): the estimate, then its resamples; ValueError if `what` is
        undefined on the frame itself.
        """
        if np.isnan(draws[0]):
            raise ValueError(
                f"{what} is undefined on this frame (nothing to divide by)"
            )
        low, high = bounds_of(draws[1:])
        return cls(float(draws[0]), float(low), float(high), n_prompts)

    def __str__(self) -> str:
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Prompts:
    """Each row's prompt (rows,), each prompt's domain number (prompts,), and weights (1 + n,
    prompts): all 1, then n resamples.
    """

    rows: np.ndarray
    domain: np.ndarray
    domains: tuple[str, ...]
    weights: np.ndarray

    def totals(self, columns: np.ndarray) -> np.ndarray:
        """Per-prompt sums (prompts, k) of row values (rows, k)."""
        size = self.weights.shape[1]
        columns = np.asarray(columns, np.float64)
        return np.stack(
            [np.bincount(self.rows, column, size) for column in columns.T], axis=1
        )

    def resampled(self, totals: np.ndarray) -> np.ndarray:
        """Per-domain sums (1 + n, domains, k): of the sample itself, then of each resample."""
        members = [self.domain == d for d in range(len(self.domains))]
        return np.stack([self.weights[:, own] @ totals[own] for own in members], axis=1)


def prompts_of(
    frame: pd.DataFrame, n: int = RESAMPLES, seed: int = 0, cluster: str = "prompt_id"
) -> Prompts:
    """Prompts of a frame, resampled n times within each domain; the same prompts and seed give the
    same weights, whatever the rows.

    ValueError if a domain has fewer than 5 prompts: a percentile interval of fewer means nothing.
    """
    require(frame, [cluster], "frame")
    if n < 1:
        raise ValueError(
            f"n={n} resamples; at least 1 is needed, and 2,000 for an interval"
        )
    domains, of_row = ("all",), np.zeros(len(frame), int)
    if "domain" in frame:
        domains = domains_in(frame)
        of_row = pd.Categorical(frame["domain"], domains).codes
    rows, ids = pd.factorize(frame[cluster].astype(str), sort=True)
    domain = np.zeros(len(ids), int)
    domain[rows] = of_row
    if (domain[rows] != of_row).any():
        raise ValueError(
            f"a {cluster} occurs in two domains: give every prompt an id of its own"
        )
    weights = np.ones((1 + n, len(domain)))
    for number, name in enumerate(domains):
        size = int((domain == number).sum())
        if size < MIN_PROMPTS:
            raise ValueError(
                f"{name!r} has {size} prompts; an interval needs at least {MIN_PROMPTS}: "
                f"record {MIN_PROMPTS - size} more"
            )
        rng = np.random.default_rng([seed, number])
        weights[1:, domain == number] = rng.multinomial(
            size, np.full(size, 1 / size), size=n
        )
    return Prompts(rows, domain, domains, weights)


def bounds_of(draws: np.ndarray) -> np.ndarray:
    """Percentile bounds (2, ...) over axis 0 of resampled values; undefined (NaN) if more than 5 %
    of the resamples are.
    """
    undefined = np.isnan(draws).mean(axis=0) > 0.05
    bounds = np.nanquantile(np.where(undefined, 0.0, draws), BOUNDS, axis=0)
    return np.where(undefined, np.nan, bounds)


def by_domain(
    frame: pd.DataFrame, estimator: Estimator, n: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Estimates with intervals, long: estimator, domain, estimate, low, high, per_prompt,
    n_prompts.

    Domains of the frame, then `all` (mean of the domain values) and `pooled` (over rows).
    `per_prompt` is the mean over prompts of each prompt's own value: it differs where prompts
    differ in length. An undefined member (nothing to divide by) is NaN.
    """
    prompts = prompts_of(frame, n, seed)
    totals = prompts.totals(estimator.columns(frame))
    values = score.across(
        estimator.value, prompts.resampled(totals)
    )  # (1 + n, domains + 2, m)
    low, high = bounds_of(values[1:])
    each = estimator.value(totals)
    own = np.stack(
        [each[prompts.domain == d].mean(axis=0) for d in range(len(prompts.domains))]
    )
    own = np.vstack([own, own.mean(axis=0), each.mean(axis=0)])
    counts = np.bincount(prompts.domain)
    names = [*prompts.domains, score.ALL, score.POOLED]
    labels = estimator.labels(values.shape[-1])
    return pd.DataFrame(
        {
            "estimator": labels * len(names),
            "domain": np.repeat(names, len(labels)),
            "estimate": values[0].ravel(),
            "low": low.ravel(),
            "high": high.ravel(),
            "per_prompt": own.ravel(),
            "n_prompts": np.repeat([*counts, counts.sum(), counts.sum()], len(labels)),
        }
    )


def bootstrap(
    frame: pd.DataFrame,
    statistic: Callable,
    n: int = RESAMPLES,
    seed: int = 0,
    cluster: str = "prompt_id",
) -> Interval:
    """Interval of one number over the whole frame, prompts resampled within their domain.

    A scalar `Estimator` takes the fast way; any other function of a frame is called on n resampled
    frames. ValueError if the number is undefined on the frame.
    """
    prompts = prompts_of(frame, n, seed, cluster)
    if isinstance(statistic, Estimator):
        totals, value = scalar_totals(frame, statistic, prompts)
        values = value(prompts.resampled(totals).sum(axis=1))
    else:
        order, sizes = (
            np.argsort(prompts.rows, kind="stable"),
            np.bincount(prompts.rows),
        )
        first = np.cumsum(sizes) - sizes
        values = [statistic(frame)]
        for weight in prompts.weights[1:].astype(int):
            drawn = np.repeat(np.arange(len(sizes)), weight)
            rows = [order[first[i] : first[i] + sizes[i]] for i in drawn]
            values.append(statistic(frame.iloc[np.concatenate(rows)]))
        values = np.array(values, np.float64)
    return Interval.of(values, prompts.weights.shape[1], "the statistic")


def interval_of(draws: np.ndarray, n_prompts: int, what: str) -> Interval:
    """The interval of draws (1 + n,): the estimate, then its resamples.

    ValueError if `what` is undefined, here or in over 5 % of them.
    """
    if np.isnan(draws[0]) or np.isnan(draws).mean() > 0.05:
        raise ValueError(
            f"{what} is undefined here, or in over 5 % of the resamples: "
            "too few rows; record more prompts or take fewer bins"
        )
    return Interval.of(draws, n_prompts, what)


def scalar_totals(
    frame: pd.DataFrame, estimator: Estimator, prompts: Prompts
) -> tuple[np.ndarray, Callable]:
    """Per-prompt sums (prompts, k) of an estimator of one number, and that number of totals."""
    if not estimator.scalar:
        raise ValueError(
            f"{estimator.name} is a family of numbers: use by_domain, or an estimator of one number"
        )
    return prompts.totals(estimator.columns(frame)), lambda totals: estimator.value(
        totals
    )[..., 0]


def fold_of(domain: np.ndarray, folds: int, seed: int = 0) -> np.ndarray:
    """A fold 0..folds-1 for each prompt, evenly within its domain, at random.

    ValueError if a domain has fewer prompts than folds.
    """
    if folds < 2:
        raise ValueError(
            f"folds={folds}: at least 2 are needed, one to judge on and one to fit on"
        )
    sizes = pd.Series(domain).value_counts()
    if sizes.min() < folds:
        raise ValueError(
            f"domain {sizes.idxmin()!r} has {sizes.min()} prompts, folds={folds}: "
            "record more prompts, or take fewer folds"
        )
    order = (
        pd.Series(np.random.default_rng(seed).random(len(domain)))
        .groupby(domain)
        .rank()
    )
    return order.to_numpy().astype(int) % folds

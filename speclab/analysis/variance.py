"""Shares of an outcome's variance that factors explain, with the prompt as the unit."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd

from speclab.score import column_of, require
from speclab.stats import RESAMPLES, bounds_of, prompts_of

FACTORS = ("rank", "depth", "domain", "position", "target_entropy", "draft_entropy")


def variance_shares(
    frame: pd.DataFrame,
    outcome: str = "alpha",
    factors: Sequence[str] = FACTORS,
    bins: int = 8,
    n: int = RESAMPLES // 4,
    seed: int = 0,
) -> pd.DataFrame:
    """Share of the outcome's variance that each factor explains in additive least squares: factor,
    alone, last, shapley, low, high.

    `alone` is its R2 by itself, `last` what it adds to all others (type II), `shapley` its mean
    gain over every order of entry; Shapley values sum to the R2 of all (row `all factors`) and the
    interval is theirs. A numeric factor of more than `bins` values is cut into that many quantile
    bins, so that a curve counts too. ValueError if the outcome or a factor is constant.
    """
    prompts, y = prompts_of(frame, n, seed), column_of(frame, outcome)
    if np.ptp(y) == 0:
        raise ValueError(f"column {outcome!r} is constant: there is no variance to share")
    design, groups = _design(frame, factors, bins)
    block = np.column_stack([np.ones(len(y)), y - y.mean(), design])
    gram = np.stack(
        [
            block[prompts.rows == p].T @ block[prompts.rows == p]
            for p in range(prompts.weights.shape[1])
        ]
    )
    grams = np.tensordot(prompts.weights, gram, 1)
    subsets = [subset for size in range(len(factors) + 1) for subset in combinations(factors, size)]
    r2 = {
        subset: _r_squared(grams, [column for factor in subset for column in groups[factor]])
        for subset in subsets
    }
    every = r2[tuple(factors)]
    rows = [_shares(r2, tuple(factors), factor) for factor in factors] + [
        ("all factors", *[every[0]] * 3, *bounds_of(every[1:]))
    ]
    return pd.DataFrame(rows, columns=["factor", "alone", "last", "shapley", "low", "high"])


def _shares(r2: Mapping[tuple, np.ndarray], factors: tuple[str, ...], factor: str) -> tuple:
    """A row of variance_shares: the gain in R2 when `factor` joins each subset of the others."""
    gain = {
        subset: r2[tuple(f for f in factors if f == factor or f in subset)] - r2[subset]
        for subset in r2
        if factor not in subset
    }
    size = len(factors) - 1
    shapley = sum(
        value / (len(factors) * comb(size, len(subset))) for subset, value in gain.items()
    )
    return factor, gain[()][0], gain[max(gain, key=len)][0], shapley[0], *bounds_of(shapley[1:])


def _design(
    frame: pd.DataFrame, factors: Sequence[str], bins: int
) -> tuple[np.ndarray, Mapping[str, list[int]]]:
    """Indicator columns (rows, k), the first level of each factor left out, and each factor's
    columns counted after 1 and y.
    """
    require(frame, list(factors), "frame")
    many = {
        name
        for name in factors
        if pd.api.types.is_numeric_dtype(frame[name]) and frame[name].nunique() > bins
    }
    levels = [
        pd.qcut(frame[name], bins, labels=False, duplicates="drop") if name in many else frame[name]
        for name in factors
    ]
    parts = [pd.get_dummies(values, drop_first=True).to_numpy(np.float64) for values in levels]
    constant = [name for name, part in zip(factors, parts, strict=True) if part.shape[1] == 0]
    if constant:
        raise ValueError(f"factor {constant} is constant: leave it out of factors")
    ends = 2 + np.cumsum([part.shape[1] for part in parts])
    columns = [list(range(end - part.shape[1], end)) for part, end in zip(parts, ends, strict=True)]
    return np.concatenate(parts, axis=1), dict(zip(factors, columns, strict=True))


def _r_squared(grams: np.ndarray, columns: list[int]) -> np.ndarray:
    """R2 (n,) of y on 1 and `columns`, from Gram matrices of (1, y, ...)."""
    total = grams[:, 1, 1] - grams[:, 0, 1] ** 2 / grams[:, 0, 0]
    use = [0, *columns]
    left, right = grams[:, use][:, :, use], grams[:, use, 1]
    left = left + 1e-9 * grams[:, :1, :1] * np.eye(
        len(use)
    )  # a level may be absent from a resample
    residual = grams[:, 1, 1] - np.einsum(
        "nk,nk->n", right, np.linalg.solve(left, right[..., None])[..., 0]
    )
    return 1.0 - residual / total

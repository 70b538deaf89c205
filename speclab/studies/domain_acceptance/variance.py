"""What explains the acceptance of a node: the variance of min(1, p/q) shared out among factors."""

from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd

from speclab.analysis import levels, published
from speclab.score import ALL, column_of, require
from speclab.show.estimates import Estimates, stack
from speclab.stats import RESAMPLES, Resampling, interval_of, resampling_of

FACTORS = ("rank", "depth", "domain", "position", "target_entropy", "draft_entropy")
TOGETHER = "all factors"
HERE, PAPER = "this pair", "the paper's run, alone"
SHAPLEY = "nodes, Shapley"


def varying(nodes: pd.DataFrame) -> list[str]:
    """The FACTORS that take more than one value."""
    return [name for name in FACTORS if nodes[name].nunique() > 1]


def variance_shares(
    frame: pd.DataFrame,
    outcome: str = "ratio",
    factors: Sequence[str] = FACTORS,
    bins: int = 8,
    n: int = RESAMPLES // 4,
    seed: int = 0,
) -> pd.DataFrame:
    """Share of the outcome's variance that each factor explains in additive least squares: factor,
    alone, last, shapley, low, high.

    `alone` is its R2 by itself, `last` what it adds to all others (type II), `shapley` its mean
    gain over every order of entry; Shapley values sum to the R2 of all (row TOGETHER) and the
    interval is theirs. A numeric factor of more than `bins` values is cut into that many quantile
    bins, so that a curve counts too. ValueError if the outcome or a factor is constant.
    """
    y = column_of(frame, outcome)
    if np.ptp(y) == 0:
        raise ValueError(
            f"column {outcome!r} is constant: there is no variance to share"
        )
    levels = require(frame, list(factors), "frame").reset_index(drop=True)
    design = pd.concat(
        {name: _indicators(levels[name], bins) for name in factors}, axis=1
    )
    owner = [None, None, *design.columns.get_level_values(0)]
    constant = [name for name in factors if name not in owner]
    if constant:
        raise ValueError(f"factor {constant} is constant: leave it out of factors")
    prompts = resampling_of(frame, n, seed)
    block = np.column_stack([np.ones(len(y)), y - y.mean(), design])
    own = [prompts.rows == number for number in range(prompts.weights.shape[1])]
    grams = np.tensordot(
        prompts.weights, np.stack([block[p].T @ block[p] for p in own]), 1
    )
    r2 = {}
    for size in range(len(factors) + 1):
        for subset in combinations(factors, size):
            columns = [place for place, name in enumerate(owner) if name in subset]
            r2[frozenset(subset)] = _r_squared(grams, columns)
    rows = [_shares(r2, name, prompts) for name in factors]
    every = r2[frozenset(factors)]
    rows.append((TOGETHER, every[0], every[0], *_numbers(every, prompts)))
    return pd.DataFrame(
        rows, columns=["factor", "alone", "last", "shapley", "low", "high"]
    )


def _indicators(values: pd.Series, bins: int) -> pd.DataFrame:
    """A column for each level but the first: (rows, levels - 1), float64."""
    if pd.api.types.is_numeric_dtype(values) and values.nunique() > bins:
        values = pd.qcut(values, bins, labels=False, duplicates="drop")
    return pd.get_dummies(values, drop_first=True, dtype=np.float64)


def _r_squared(grams: np.ndarray, columns: list[int]) -> np.ndarray:
    """R2 (1 + n,) of y on 1 and `columns`, from Gram matrices of (1, y, ...)."""
    total = grams[:, 1, 1] - grams[:, 0, 1] ** 2 / grams[:, 0, 0]
    use = [0, *columns]
    right = grams[:, use, 1]
    # a level may be absent from a resample
    absent = 1e-9 * grams[:, :1, :1] * np.eye(len(use))
    solved = np.linalg.solve(grams[:, use][:, :, use] + absent, right[..., None])
    residual = grams[:, 1, 1] - np.einsum("nk,nk->n", right, solved[..., 0])
    return 1.0 - residual / total


def _shares(r2: dict[frozenset, np.ndarray], factor: str, prompts: Resampling) -> tuple:
    """A row of `variance_shares`: the gain in R2 when `factor` joins each subset of the others."""
    gains = {s: r2[s | {factor}] - r2[s] for s in r2 if factor not in s}
    others = max(map(len, gains))
    shapley = sum(
        gain / ((others + 1) * comb(others, len(s))) for s, gain in gains.items()
    )
    last = gains[max(gains, key=len)]
    return factor, gains[frozenset()][0], last[0], *_numbers(shapley, prompts)


def _numbers(draws: np.ndarray, prompts: Resampling) -> tuple[float, float, float]:
    found = interval_of(draws, prompts, "a share of variance")
    return found.estimate, found.low, found.high


def alone_in_paper() -> pd.Series:
    """What domain and depth explain alone in the published run: by factor, from the cells of its
    final run and its printed standard deviation.
    """
    cells = pd.read_csv(published.DATA / "run_alpha_by_depth_task.csv")
    cells = cells.rename(columns={"task_type": "domain"})
    cells["total"] = cells["alpha_mean"] * cells["count"]
    first = published.published("I").set_index(["domain", "quantity"])["published"]
    variance = first[ALL, "alpha_sd"] ** 2
    n, total = cells[["count", "total"]].sum()
    shares = {}
    for factor in ("domain", "depth"):
        levels = cells.groupby(factor)[["count", "total"]].sum()
        between = (levels["total"] ** 2 / levels["count"]).sum() / n - (total / n) ** 2
        shares[factor] = 100 * between / variance / 100
    return pd.Series(shares)


def in_percent(shares: pd.DataFrame, alone: pd.Series) -> Estimates:
    """Shapley shares in percent by factor and source, the largest first and TOGETHER last, then the
    paper's (`alone_in_paper`), which have no interval.
    """
    falling = shares.sort_values("shapley", ascending=False)
    last = falling["factor"] == TOGETHER
    here = pd.concat([falling[~last], falling[last]])
    here = here.rename(columns={"shapley": "estimate"})
    paper = pd.DataFrame({"factor": alone.index, "estimate": alone.to_numpy()})
    both = stack({HERE: here, PAPER: paper}, "source")
    numbers = 100 * both[["estimate", "low", "high"]]
    return Estimates(both[["factor", "source"]].join(numbers))


def domain_by_level(shares: pd.DataFrame, by_level: Estimates) -> Estimates:
    """What the domain explains, in percent: its Shapley share among the nodes' FACTORS, then the
    shares of `levels.measure`, by estimator and level.
    """
    own = shares[shares["factor"] == "domain"].rename(columns={"shapley": "estimate"})
    own = own.assign(estimator=levels.PUBLISHED, level=SHAPLEY)
    columns = ["estimator", "level", "estimate", "low", "high"]
    rows = pd.concat([own[columns], by_level.frame[columns]], ignore_index=True)
    return levels.percent(Estimates(rows))

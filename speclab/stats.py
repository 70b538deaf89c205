"""Intervals, tests and effect sizes with the prompt as the unit.

The nodes of a tree share a context and the trees of a prompt share a text, so rows are not
independent: intervals resample prompts within a domain, and tests move whole prompts. Sums over
rows (`score.Estimator`) become per-prompt sums times a matrix of prompt weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from speclab import score
from speclab.score import Estimator, column_of, domains_in, require

RESAMPLES, PERMUTATIONS, MIN_PROMPTS = 2000, 10_000, 5
BOUNDS = (0.025, 0.975)  # of every interval
METHODS = ("spearman", "pearson")
FACTORS = ("rank", "depth", "domain", "position", "target_entropy", "draft_entropy")


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % percentile interval over resampled prompts; `str()` gives '0.565
    [0.551, 0.579]'.
    """

    estimate: float
    low: float
    high: float
    n_prompts: int

    def __str__(self) -> str:
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Difference(Interval):
    """A difference, first - second, as an Interval with its two-sided permutation p-value."""

    p_value: float


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
        return np.stack(
            [np.bincount(self.rows, column, size) for column in np.asarray(columns, np.float64).T],
            axis=1,
        )

    def resampled(self, totals: np.ndarray) -> np.ndarray:
        """Per-domain sums (1 + n, domains, k): of the sample itself, then of each resample."""
        return np.stack(
            [
                self.weights[:, self.domain == d] @ totals[self.domain == d]
                for d in range(len(self.domains))
            ],
            axis=1,
        )


def prompts_of(
    frame: pd.DataFrame, n: int = RESAMPLES, seed: int = 0, cluster: str = "prompt_id"
) -> Prompts:
    """Prompts of a frame, resampled n times within each domain; the same prompts and seed give the
    same weights, whatever the rows.

    ValueError if a domain has fewer than 5 prompts: a percentile interval of fewer means nothing.
    """
    require(frame, [cluster], "frame")
    if n < 1:
        raise ValueError(f"n={n} resamples; at least 1 is needed, and 2,000 for an interval")
    domains = domains_in(frame) if "domain" in frame else ("all",)
    of_row = (
        pd.Categorical(frame["domain"], domains).codes
        if "domain" in frame
        else np.zeros(len(frame), int)
    )
    rows, ids = pd.factorize(frame[cluster].astype(str), sort=True)
    domain = np.zeros(len(ids), int)
    domain[rows] = of_row
    if (domain[rows] != of_row).any():
        raise ValueError(f"a {cluster} occurs in two domains: give every prompt an id of its own")
    weights = np.ones((1 + n, len(domain)))
    for number, name in enumerate(domains):
        size = int((domain == number).sum())
        if size < MIN_PROMPTS:
            raise ValueError(
                f"{name!r} has {size} prompts; an interval needs at least {MIN_PROMPTS}: record {MIN_PROMPTS - size} more"
            )
        weights[1:, domain == number] = np.random.default_rng([seed, number]).multinomial(
            size, np.full(size, 1 / size), size=n
        )
    return Prompts(rows, domain, domains, weights)


def _bounds(draws: np.ndarray) -> np.ndarray:
    """Percentile bounds (2, ...) over axis 0; undefined (NaN) if more than 5 % of the resamples
    are.
    """
    undefined = np.isnan(draws).mean(axis=0) > 0.05
    return np.where(
        undefined, np.nan, np.nanquantile(np.where(undefined, 0.0, draws), BOUNDS, axis=0)
    )


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
    values = score.across(estimator.value, prompts.resampled(totals))  # (1 + n, domains + 2, m)
    low, high = _bounds(values[1:])
    each = estimator.value(totals)
    own = np.stack([each[prompts.domain == d].mean(axis=0) for d in range(len(prompts.domains))])
    own = np.vstack([own, own.mean(axis=0), each.mean(axis=0)])
    counts = np.bincount(prompts.domain)
    names, labels = [*prompts.domains, score.ALL, score.POOLED], estimator.labels(values.shape[-1])
    result = pd.DataFrame(
        {
            "estimator": labels * len(names),
            "domain": np.repeat(names, len(labels)),
            "estimate": values[0].ravel(),
        }
    )
    sizes = np.repeat([*counts, counts.sum(), counts.sum()], len(labels))
    return result.assign(
        low=low.ravel(), high=high.ravel(), per_prompt=own.ravel(), n_prompts=sizes
    )


def ladder_intervals(run, rule: str = "greedy", n: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """`score.ladder` with intervals, in the long form of `by_domain`."""
    rungs = score.ladder_estimators(run, rule)
    return pd.concat(
        [by_domain(getattr(run, name), estimator, n, seed) for name, estimator in rungs],
        ignore_index=True,
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
        totals, value = _scalar_totals(frame, statistic, prompts)
        values = value(prompts.resampled(totals).sum(axis=1))
    else:
        members = np.split(
            np.argsort(prompts.rows, kind="stable"), np.cumsum(np.bincount(prompts.rows))[:-1]
        )
        picks = (
            np.repeat(np.arange(len(members)), weight.astype(int)) for weight in prompts.weights[1:]
        )
        draws = (
            statistic(frame.iloc[np.concatenate([members[i] for i in pick])]) for pick in picks
        )
        values = np.array([statistic(frame), *draws], np.float64)
    return _interval(values, prompts.weights.shape[1], "the statistic")


def _interval(values: np.ndarray, n_prompts: int, what: str) -> Interval:
    if np.isnan(values[0]):
        raise ValueError(f"{what} is undefined on this frame (nothing to divide by)")
    return Interval(float(values[0]), *map(float, _bounds(values[1:])), n_prompts)


def interval_of(draws: np.ndarray, n_prompts: int, what: str) -> Interval:
    """The interval of draws (1 + n,): the estimate, then its resamples.

    ValueError if `what` is undefined, here or in over 5 % of them.
    """
    if np.isnan(draws[0]) or np.isnan(draws).mean() > 0.05:
        raise ValueError(
            f"{what} is undefined here, or in over 5 % of the resamples: too few rows; record more prompts or take fewer bins"
        )
    return Interval(float(draws[0]), *map(float, np.nanquantile(draws[1:], BOUNDS)), n_prompts)


def cluster_mean(frame: pd.DataFrame, column: str, n: int = RESAMPLES, seed: int = 0) -> Interval:
    """Mean of a column over rows with its interval: a ratio of per-prompt sums, so prompts of any
    length.
    """
    return bootstrap(frame, score.mean_of(column), n, seed)


def _scalar_totals(
    frame: pd.DataFrame, estimator: Estimator, prompts: Prompts
) -> tuple[np.ndarray, Callable]:
    if not estimator.scalar:
        raise ValueError(
            f"{estimator.name} is a family of numbers: use by_domain, or an estimator of one number"
        )
    return prompts.totals(estimator.columns(frame)), lambda totals: estimator.value(totals)[..., 0]


def _p_value(observed: float, permuted: np.ndarray) -> float:
    """Two-sided, the sample itself counted; equal within rounding is as extreme."""
    return float((1 + (np.abs(permuted) >= abs(observed) - 1e-12).sum()) / (1 + len(permuted)))


def differences(
    frame: pd.DataFrame,
    estimator: Estimator,
    domains: Sequence[str] | None = None,
    n: int = PERMUTATIONS,
    seed: int = 0,
) -> pd.DataFrame:
    """Every pair of domains: first, second, difference, low, high, p_value (prompts permuted
    between the two), p_holm.

    Holm's correction is over the pairs. ValueError if a domain that is asked for is missing.
    """
    chosen = tuple(domains or domains_in(frame))
    domains_in(frame, chosen)
    if len(chosen) < 2:
        raise ValueError(f"domains is {chosen}: a difference needs two")
    prompts = prompts_of(frame, RESAMPLES, seed)
    totals, value = _scalar_totals(frame, estimator, prompts)
    resampled, rng, rows = value(prompts.resampled(totals)), np.random.default_rng([seed, 1]), []
    for first, second in combinations(chosen, 2):
        a, b = prompts.domains.index(first), prompts.domains.index(second)
        spread = resampled[:, a] - resampled[:, b]
        both = totals[np.isin(prompts.domain, [a, b])]
        size = int((prompts.domain == a).sum())
        picked = (rng.random((n, len(both))).argsort(axis=1) < size).astype(np.float64) @ both
        p_value = _p_value(spread[0], value(picked) - value(both.sum(axis=0) - picked))
        rows.append((first, second, spread[0], *_bounds(spread[1:]), p_value))
    result = pd.DataFrame(rows, columns=["first", "second", "difference", "low", "high", "p_value"])
    return result.assign(p_holm=holm(result["p_value"].to_numpy()))


def holm(p_values: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values of a family (statsmodels' are the same, and collect garbage at every
    call).
    """
    order, count = np.argsort(p_values, kind="stable"), len(p_values)
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(
        np.maximum.accumulate(p_values[order] * np.arange(count, 0, -1)), 1.0
    )
    return adjusted


def paired_difference(
    first: pd.DataFrame,
    second: pd.DataFrame,
    estimator: Estimator,
    n: int = PERMUTATIONS,
    seed: int = 0,
) -> Difference:
    """first - second on the same prompts (template on and off, two drafts): prompts resampled
    together, swapped within a prompt.

    Low in power (p-value only) where the frames differ in rows a prompt. ValueError if they do not
    hold the same prompts.
    """
    unmatched = set(map(str, first["prompt_id"])) ^ set(map(str, second["prompt_id"]))
    if unmatched:
        raise ValueError(
            f"{len(unmatched)} prompts are in one frame only, such as {min(unmatched)!r}; a paired difference needs the same"
        )
    prompts, others = (
        prompts_of(first, RESAMPLES, seed),
        prompts_of(second, 1),
    )  # both number the prompts in the order of their ids
    (one, value), (two, _) = (
        _scalar_totals(first, estimator, prompts),
        _scalar_totals(second, estimator, others),
    )
    spread = value(prompts.resampled(one).sum(axis=1)) - value(prompts.resampled(two).sum(axis=1))
    swap = np.random.default_rng([seed, 2]).integers(0, 2, (n, len(one))).astype(np.float64)
    moved = swap @ (two - one)
    permuted = value(one.sum(axis=0) + moved) - value(two.sum(axis=0) - moved)
    return Difference(
        **vars(_interval(spread, len(one), "the difference")), p_value=_p_value(spread[0], permuted)
    )


def correlation(
    frame: pd.DataFrame, x: str, y: str, method: str = "spearman", n: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Spearman or Pearson correlation of two columns over rows, with a prompt-clustered interval
    (`alpha` may be named).

    Spearman ranks every resample anew, ties at their mean rank: exact. ValueError if a column is
    constant.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; allowed: 'spearman', 'pearson'")
    prompts, values = prompts_of(frame, n, seed), {name: column_of(frame, name) for name in (x, y)}
    constant = [name for name, column in values.items() if np.ptp(column) == 0]
    if constant:
        raise ValueError(
            f"column {constant} is constant: its correlation is undefined; choose rows where it varies"
        )
    draws = (_spearman if method == "spearman" else _pearson)(values[x], values[y], prompts)
    return _interval(draws, prompts.weights.shape[1], f"the correlation of {x} and {y}")


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
    for key in sorted(groups, key=lambda key: (domains_in(frame).index(key[0]), *key[1:])):
        head = dict(zip(keys, key, strict=True))
        rows += [
            head | {"method": method} | vars(correlation(groups[key], x, y, method, n, seed))
            for method in methods
        ]
    return pd.DataFrame(rows)


def _pearson(x: np.ndarray, y: np.ndarray, prompts: Prompts) -> np.ndarray:
    """Correlations (1 + n,): of the sample, then of each resample, from weighted moments (centred
    first: no cancellation).
    """
    x, y = (v - v.mean() for v in (x, y))
    totals = prompts.totals(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1))
    count, sx, sy, xx, yy, xy = prompts.resampled(totals).sum(axis=1).T
    spread = np.maximum((xx - sx * sx / count) * (yy - sy * sy / count), 0.0)
    return score.divide(xy - sx * sy / count, np.sqrt(spread))


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
    xx, yy, xy = (_cubic(a, b, prompts.rows, weights) - centre for a, b in ((x, x), (y, y), (x, y)))
    return score.divide(xy, np.sqrt(np.maximum(xx * yy, 0.0)))


def _count_below(values: np.ndarray, rows: np.ndarray, n_prompts: int) -> np.ndarray:
    """(rows, prompts): twice the number of a prompt's values that are below a row's, equal ones
    counted half.
    """
    seen = np.zeros((len(values) + 1, n_prompts))
    seen[np.arange(1, len(values) + 1), rows[np.argsort(values)]] = 1
    np.cumsum(seen, axis=0, out=seen)
    return seen[rankdata(values, "min").astype(int) - 1] + seen[rankdata(values, "max").astype(int)]


def _cubic(a: np.ndarray, b: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sum over rows of w[row] (a @ w)(b @ w) for every set of weights: (n,)."""
    tables = (a[rows == p].T @ b[rows == p] for p in range(weights.shape[1]))
    return sum(
        weight * ((weights @ table) * weights).sum(axis=1)
        for weight, table in zip(weights.T, tables, strict=True)
    )


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
        ("all factors", *[every[0]] * 3, *_bounds(every[1:]))
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
    return factor, gain[()][0], gain[max(gain, key=len)][0], shapley[0], *_bounds(shapley[1:])


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


def fold_of(domain: np.ndarray, folds: int, seed: int = 0) -> np.ndarray:
    """A fold 0..folds-1 for each prompt, evenly within its domain, at random.

    ValueError if a domain has fewer prompts than folds.
    """
    if folds < 2:
        raise ValueError(f"folds={folds}: at least 2 are needed, one to judge on and one to fit on")
    sizes = pd.Series(domain).value_counts()
    if sizes.min() < folds:
        raise ValueError(
            f"domain {sizes.idxmin()!r} has {sizes.min()} prompts, folds={folds}: record more prompts, or take fewer folds"
        )
    return (
        pd.Series(np.random.default_rng(seed).random(len(domain)))
        .groupby(domain)
        .rank()
        .to_numpy()
        .astype(int)
        % folds
    )

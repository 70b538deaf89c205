"""Intervals and verdicts with the prompt as the unit.

The nodes of a tree share a context and the trees of a prompt share a text, so rows are not
independent: intervals resample prompts within a domain, and tests move whole prompts. Sums over
rows (`score.Estimator`) become per-prompt sums times a matrix of prompt weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, stdtrit

from speclab.plain import Array
from speclab.prompts import DOMAINS
from speclab.score import ALL, POOLED, Estimator, across, domains_in, require

RESAMPLES, MIN_PROMPTS = 2000, 5
FEW_PROMPTS = 20  # a domain; intervals of fewer cover less than they say (notebook 13)
NUMBERS = ["estimate", "low", "high"]
UNNAMED = "one domain"  # of a frame without `domain`
NO_INTERVAL = "undefined here, or in over 5 % of the resamples: too few such rows"
TOO_FEW = f"an interval needs at least {MIN_PROMPTS} prompts in each domain"
# of `verdict`
ABOVE, BELOW, WITHIN = "above", "below", "within"
INCONCLUSIVE, UNDEFINED = "inconclusive", "undefined"
# of `cell`: scale, what follows the number, and its sign
UNITS = {"": (1, "", ""), "x": (1, "x", ""), "%": (100, " %", ""), "points": (100, " points", "+")}


def verdict(low: Any, high: Any, null: float | tuple[float, float] = 0.0) -> Any:
    """What an interval says of a null value: ABOVE or BELOW where all of it lies on that side, else
    INCONCLUSIVE; UNDEFINED where an end is missing. Of a null region (least, most) also WITHIN,
    where the interval lies inside. A word for numbers, an array of words for columns.
    """
    low = np.asarray(low, float)
    high = np.asarray(high, float)
    least, most = np.broadcast_to(null, 2)
    is_inside = (least <= low) & (high <= most)
    cases = {
        UNDEFINED: np.isnan(low + high),
        ABOVE: low > most,
        BELOW: high < least,
        WITHIN: (least < most) & is_inside,
    }
    words = np.select(list(cases.values()), list(cases), INCONCLUSIVE)
    return words if words.ndim else str(words)


def cell(estimate: float, low: float, high: float, digits: int = 3, unit: str = "") -> str:
    """A number and its interval as text: '0.565 [0.551, 0.579]', '0.565' where no interval is
    known, 'undefined'.

    unit: one of UNITS; '72 % [70, 74]', '+6 points [5, 8]' and '1.35x [1.32, 1.37]' need 0, 0 and
    2 digits. Shares and their differences are given as fractions of 1.
    """
    if np.isnan(estimate):
        return UNDEFINED
    scale, after, sign = UNITS[unit]
    number = f"{scale * estimate:{sign}z.{digits}f}{after}"  # z: no minus before a zero
    least, most = (f"{scale * end:z.{digits}f}" for end in (low, high))
    text = number if np.isnan(low) else f"{number} [{least}, {most}]"
    return text.replace("-", "\N{MINUS SIGN}")


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval over resampled prompts (`bounds_of`), and the prompts of
    all domains; `str()` gives '0.565 [0.551, 0.579]'.
    """

    estimate: float
    low: float
    high: float
    n_prompts: int

    @classmethod
    def of(cls, draws: Array, prompts: "Resampling", what: str) -> "Interval":
        """The interval of draws (1 + n,): the estimate, then its resamples; ValueError if `what` is
        undefined on the frame itself.
        """
        if np.isnan(draws[0]):
            raise ValueError(f"{what} is undefined on this frame (nothing to divide by)")
        low, high = bounds_of(draws[1:], prompts.fewest)
        return cls(float(draws[0]), float(low), float(high), len(prompts.domain))

    def __str__(self) -> str:
        return cell(self.estimate, self.low, self.high)


@dataclass(frozen=True)
class Resampling:
    """Each row's prompt (rows,), each prompt's domain number (prompts,), and weights (1 + n,
    prompts): all 1, then n resamples.
    """

    rows: Array
    domain: Array
    domains: tuple[str, ...]
    weights: Array

    @property
    def sizes(self) -> dict[str, int]:
        """Prompts of each domain."""
        return dict(zip(self.domains, np.bincount(self.domain).tolist(), strict=True))

    @property
    def fewest(self) -> int:
        """Prompts of the smallest domain: what an interval over several domains goes by."""
        return min(self.sizes.values())

    @property
    def by_row(self) -> Array:
        """What the intervals of the rows of `score.across` go by: each domain's own prompts, then
        twice the fewest.
        """
        return np.array([*self.sizes.values(), self.fewest, self.fewest])

    def totals(self, columns: Array) -> Array:
        """Per-prompt sums (prompts, k) of row values (rows, k)."""
        size = self.weights.shape[1]
        columns = np.asarray(columns, np.float64)
        sums = [np.bincount(self.rows, column, size) for column in columns.T]
        return np.stack(sums, axis=1)

    def resampled(self, totals: Array) -> Array:
        """Per-domain sums (1 + n, domains, k): of the sample itself, then of each resample."""
        members = [self.domain == d for d in range(len(self.domains))]
        sums = [self.weights[:, rows] @ totals[rows] for rows in members]
        return np.stack(sums, axis=1)


def judged_domains(frame: pd.DataFrame) -> list[str]:
    """Domains of `frame` with 5 prompts or more, in order: those of which an interval or a test
    says something.
    """
    prompts = frame.groupby("domain")["prompt_id"].nunique()
    return [domain for domain in domains_in(frame) if prompts[domain] >= MIN_PROMPTS]


def resampling_of(frame: pd.DataFrame, n: int = RESAMPLES, seed: int = 0) -> Resampling:
    """Prompts of a frame, resampled n times within each domain; the same prompts and seed give the
    same weights, whatever the rows and their order, so that numbers of two frames can be paired.

    A frame without `domain` is one domain, UNNAMED.
    """
    require(frame, ["prompt_id"], "frame")
    if "domain" not in frame:
        frame = frame.assign(domain=UNNAMED)
    domains = domains_in(frame)
    of_row = pd.Categorical(frame["domain"], domains).codes
    ids = frame["prompt_id"].astype(str)
    rows, prompts = pd.factorize(ids, sort=True, use_na_sentinel=False)
    domain = np.zeros(len(prompts), int)
    domain[rows] = of_row
    if (domain[rows] != of_row).any():
        raise ValueError("a prompt_id occurs in two domains: give every prompt an id of its own")
    weights = np.ones((1 + n, len(domain)))
    of_kit = [name for name in DOMAINS if name in domains]
    others = sorted(set(domains) - set(DOMAINS))
    for number, name in enumerate([*of_kit, *others]):
        is_here = domain == domains.index(name)
        size = np.count_nonzero(is_here)
        weights[1:, is_here] = _times_drawn(size, n, seed, number)
    return Resampling(rows, domain, domains, weights)


@lru_cache(maxsize=32)  # a notebook asks hundreds of times for the same resamples
def _times_drawn(size: int, n: int, seed: int, number: int) -> Array:
    """How often each of `size` prompts is drawn in each of n resamples of the domain `number`,
    int64 (n, size); to be read only.
    """
    rng = np.random.default_rng([seed, number])
    drawn = rng.multinomial(size, np.full(size, 1 / size), size=n)
    drawn.flags.writeable = False
    return drawn


def levels_of(n_prompts: int) -> Array:
    """Quantile levels (2,) of a 95 % interval from resamples of this many prompts (of a domain):
    Phi(-+ sqrt(n / (n - 1)) t), t of n - 1 degrees of freedom.

    The expanded percentile interval (Hesterberg 2015, What Teachers Should Know About the
    Bootstrap, The American Statistician 69): the plain one, levels 0.025 and 0.975, is as narrow as
    one from a variance over n, not n - 1, and from normal quantiles. Both agree for many prompts.
    """
    assert n_prompts >= 2
    t = stdtrit(n_prompts - 1, np.array([0.025, 0.975]))
    levels: Array = ndtr(np.sqrt(n_prompts / (n_prompts - 1)) * t)
    return levels


def bounds_of(draws: Array, n_prompts: int | Sequence[int]) -> Array:
    """Expanded percentile bounds (2, ...) over axis 0 of resampled values (n, ...); undefined (NaN)
    if more than 5 % of the resamples are, or of fewer than 5 prompts, whose interval would mean
    nothing. `n_prompts`: of the smallest domain, or one number for each entry of axis 1.
    """
    sizes = np.asarray(n_prompts)
    if sizes.ndim == 0 and sizes < MIN_PROMPTS:
        return np.full((2, *draws.shape[1:]), np.nan)
    if sizes.ndim == 0:
        return quantiles(draws, levels_of(int(sizes)))
    bounds = np.empty((2, *draws.shape[1:]))
    for size in np.unique(sizes):
        members = sizes == size
        bounds[:, members] = bounds_of(draws[:, members], size)
    return bounds


def quantiles(draws: Array, levels: Array) -> Array:
    """Quantiles over axis 0; NaN where more than 5 % of the draws are undefined."""
    undefined = np.isnan(draws).mean(axis=0) > 0.05
    known = np.where(undefined, 0.0, draws)
    bounds = np.quantile(known, levels, axis=0)
    some_missing = np.isnan(known).any(axis=0)
    if some_missing.any():  # nanquantile calls Python once a column: for these only
        bounds[:, some_missing] = np.nanquantile(known[:, some_missing], levels, axis=0)
    return np.where(undefined, np.nan, bounds)


@dataclass(frozen=True)
class Draws:
    """Numbers by name, of a sample and of its resamples, the same resamples for all of them.

    `draws[name]` is a frame (1 + n, domains + 2): row 0 the sample, then the resamples; a column
    for each domain, `all` and `pooled`. What is made of several (a difference, a ratio, a rank) is
    plain pandas on these frames; `table` gives it its interval. Mind pandas' means: skipna=False.

    notes: by name, why a number cannot be had (its values are missing then).
    """

    values: dict[str, pd.DataFrame]
    prompts: Resampling
    notes: dict[str, str]

    def __getitem__(self, name: Any) -> pd.DataFrame:
        return self.values[name]

    def table(
        self, draws: Mapping[str, pd.DataFrame | pd.Series] | None = None, key: str = "name"
    ) -> pd.DataFrame:
        """A row for each of `draws` (default: of the values themselves), or for each of its
        columns: key, [domain], estimate, low, high, n_prompts, note.

        An interval that is undefined here, or in over 5 % of the resamples, or of fewer than 5
        prompts in a domain, is missing, and the note says why.
        """
        tables = []
        for name, values in (self.values if draws is None else draws).items():
            is_series = isinstance(values, pd.Series)
            table = self._rows(values.to_frame("") if is_series else values)
            is_missing = table[NUMBERS].isna().any(axis=1)
            reasons = self.notes.get(name, table["note"])
            table["note"] = np.where(is_missing, reasons, "")
            table.insert(0, key, name)
            tables.append(table.drop(columns="domain") if is_series else table)
        return pd.concat(tables, ignore_index=True)

    def _rows(self, values: pd.DataFrame) -> pd.DataFrame:
        """A row for each column: what it is named (domain), its numbers, its prompts, and why an
        interval would be missing.
        """
        sizes = self.prompts.sizes
        every = len(self.prompts.domain)
        draws = values.to_numpy(float, copy=True)
        draws[~np.isfinite(draws)] = np.nan
        fewest = [sizes.get(name, self.prompts.fewest) for name in values]
        numbers = [draws[0], *bounds_of(draws[1:], fewest)]
        table = pd.DataFrame(dict(zip(NUMBERS, numbers, strict=True)))
        table.insert(0, "domain", list(values))
        n_prompts = [sizes.get(name, every) for name in values]
        is_few = np.array(fewest) < MIN_PROMPTS
        return table.assign(n_prompts=n_prompts, note=np.where(is_few, TOO_FEW, NO_INTERVAL))


def jointly(
    questions: Mapping[str, tuple[pd.DataFrame, Estimator]], same: bool = True, n: int = RESAMPLES
) -> Draws:
    """Several numbers, each an estimator on a frame of its own, over the same prompts, which are
    resampled once for all of them. A family of numbers gives one for each member, `name[i]`.

    same: a ValueError where one frame lacks a prompt that another has; with False such a prompt
    counts nothing there. The seed of a domain's resamples is its number among the domains there
    (the kit's first, in their order, then by name): filter to some domains before, never between,
    numbers that are to be compared.
    """
    ids = [frame.filter(["prompt_id", "domain"]) for frame, _ in questions.values()]
    prompts = resampling_of(pd.concat(ids), n)
    ends = np.cumsum([len(frame) for frame in ids])
    of_frame = np.split(prompts.rows, ends[:-1])
    columns = [*prompts.domains, ALL, POOLED]
    values, notes = {}, {}
    for rows, (name, (frame, estimator)) in zip(of_frame, questions.items(), strict=True):
        present = np.unique(rows)
        missing = len(prompts.domain) - len(present)
        if same and missing:
            raise ValueError(
                f"{name}: {missing} prompts are missing that another frame has; give frames of the "
                "same prompts, or same=False where they are different ones"
            )
        try:
            of_rows = replace(prompts, rows=rows)
            totals = of_rows.totals(estimator.columns(frame))
            numbers = across(estimator.value, prompts.resampled(totals))
        except ValueError as error:
            values[name] = pd.DataFrame(np.nan, range(1 + n), columns)
            notes[name] = str(error)
            continue
        asked_as = replace(estimator, name=name)
        labels = asked_as.labels(numbers.shape[-1])
        for label, draws in zip(labels, np.moveaxis(numbers, -1, 0), strict=True):
            values[label] = pd.DataFrame(draws, columns=columns)
    return Draws(values, prompts, notes)


def by_domain(frame: pd.DataFrame, estimator: Estimator, n: int = RESAMPLES) -> pd.DataFrame:
    """Estimates with intervals, long: estimator, domain, estimate, low, high, n_prompts.

    Domains of the frame, then `all` (mean of the domain values) and `pooled` (over rows). An
    undefined member (nothing to divide by) is NaN. Intervals are those of `bounds_of`: a domain's
    by its own prompts, the last two by the fewest.
    """
    draws = jointly({estimator.name: (frame, estimator)}, n=n)
    if draws.notes:
        raise ValueError(draws.notes[estimator.name])
    table = draws.table(key="estimator").drop(columns="note")
    domains = [rows for _, rows in table.groupby("domain", sort=False)]
    return pd.concat(domains, ignore_index=True)

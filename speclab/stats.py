"""Confidence intervals and verdicts, with the prompt as the unit of resampling.

The nodes of a tree share a context, and the trees of a prompt share a text. Rows are therefore not
independent. Intervals resample whole prompts within each domain. Sums over rows (`score.Estimator`)
become sums per prompt, which are multiplied by a matrix of prompt weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtr, stdtrit

from speclab.estimates import ABOVE as ABOVE
from speclab.estimates import BELOW as BELOW
from speclab.estimates import INCONCLUSIVE as INCONCLUSIVE
from speclab.estimates import NUMBERS as NUMBERS
from speclab.estimates import UNDEFINED as UNDEFINED
from speclab.estimates import WITHIN as WITHIN
from speclab.estimates import Estimates
from speclab.estimates import cell as cell
from speclab.estimates import verdict as verdict
from speclab.plain import DOMAINS, Array
from speclab.score import ALL, POOLED, Estimator, across, domains_in, require

RESAMPLES, MIN_PROMPTS = 2000, 5
FEW_PROMPTS = 20  # per domain; with fewer, intervals cover less than they promise (notebook 12)
LEVEL = 0.95  # of all intervals; a notebook sets that of its study (`level` in the profile)
UNNAMED = "one domain"  # the domain of a frame without the column `domain`
NO_INTERVAL = "too few rows: undefined in the sample, or in more than 5 % of the resamples"
NO_NUMBER = "undefined in some rows, as min(1, p/q) is where q = 0"
TOO_FEW = f"an interval needs at least {MIN_PROMPTS} prompts in each domain"


@dataclass(frozen=True)
class Interval:
    """An estimate, its interval over resampled prompts (`bounds_of`), and the number of
    prompts in all domains.
    """

    estimate: float
    low: float
    high: float
    n_prompts: int

    @classmethod
    def of(cls, draws: Array, prompts: "Resampling", what: str) -> "Interval":
        """The interval from draws (1 + n,): the estimate, then the values of n resamples. Raises
        ValueError if `what` is undefined in the sample.
        """
        if np.isnan(draws[0]):
            raise ValueError(f"{what} is undefined for this frame: its denominator is 0")
        low, high = bounds_of(draws[1:], prompts.fewest)
        return cls(float(draws[0]), float(low), float(high), len(prompts.domain))


@dataclass(frozen=True)
class Resampling:
    """Prompts and their resamples: each row's prompt (rows,), each prompt's domain number
    (prompts,), and prompt weights (1 + n, prompts). The first row of the weights is all 1 (the
    sample); the next n rows are resamples.

    smallest: by domain, the prompts of the smallest of several sets that are compared.
    """

    rows: Array
    domain: Array
    domains: tuple[str, ...]
    weights: Array
    smallest: Mapping[str, int] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of prompts in each domain."""
        return dict(zip(self.domains, np.bincount(self.domain).tolist(), strict=True))

    @property
    def counted(self) -> dict[str, int]:
        """Numbers of prompts that set the width of the domains' intervals."""
        return self.sizes | dict(self.smallest)

    @property
    def fewest(self) -> int:
        """Number of prompts in the smallest domain. It sets the width of an interval over several
        domains.
        """
        return min(self.counted.values())

    def totals(self, columns: Array) -> Array:
        """Sums per prompt (prompts, k) of row values (rows, k)."""
        size = self.weights.shape[1]
        columns = np.asarray(columns, np.float64)
        sums = [np.bincount(self.rows, column, size) for column in columns.T]
        return np.stack(sums, axis=1)

    def resampled(self, totals: Array) -> Array:
        """Sums per domain (1 + n, domains, k), of the sample and then of each resample."""
        members = [self.domain == d for d in range(len(self.domains))]
        sums = [self.weights[:, rows] @ totals[rows] for rows in members]
        return np.stack(sums, axis=1)


def judged_domains(frame: pd.DataFrame) -> list[str]:
    """Domains with at least 5 prompts, in order. Only these domains get intervals and tests."""
    prompts = frame.groupby("domain")["prompt_id"].nunique()
    return [domain for domain in domains_in(frame) if prompts[domain] >= MIN_PROMPTS]


def resampling_of(
    frame: pd.DataFrame, n: int = RESAMPLES, seed: int = 0, groups: Array | None = None
) -> Resampling:
    """Resample the prompts of a frame n times within each domain, and there within each of the
    `groups` (a number per row; default: one group).

    The same prompts and seed give the same weights, whatever the rows and their order, so numbers
    from two frames can be paired. A frame without `domain` counts as one domain, UNNAMED. Raises
    ValueError if a prompt_id occurs in two domains.
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
    group = np.zeros(len(prompts), int)
    group[rows] = 0 if groups is None else groups
    if (domain[rows] != of_row).any():
        raise ValueError("a prompt_id occurs in two domains: give every prompt its own id")
    weights = np.ones((1 + n, len(domain)))
    of_kit = [name for name in DOMAINS if name in domains]
    others = sorted(set(domains) - set(DOMAINS))
    for number, name in enumerate([*of_kit, *others]):
        is_domain = domain == domains.index(name)
        for part, label in enumerate(np.unique(group[is_domain])):
            is_here = is_domain & (group == label)
            size = np.count_nonzero(is_here)
            weights[1:, is_here] = _times_drawn(size, n, seed, number, part)
    return Resampling(rows, domain, domains, weights)


@lru_cache(maxsize=32)  # a notebook needs the same resamples hundreds of times
def _times_drawn(size: int, n: int, seed: int, number: int, part: int) -> Array:
    """How often each of `size` prompts is drawn in each of n resamples of a part of domain
    `number`, int64 (n, size). The array is read-only because it is cached.
    """
    rng = np.random.default_rng([seed, number, part])
    drawn = rng.multinomial(size, np.full(size, 1 / size), size=n)
    drawn.flags.writeable = False
    return drawn


def tails() -> Array:
    """The quantile levels (2,) between which a share LEVEL of a distribution lies in its middle:
    0.025 and 0.975 for 95 %.
    """
    below = round((1 - LEVEL) / 2, 9)
    return np.array([below, 1 - below])


def levels_of(n_prompts: int) -> Array:
    """Quantile levels (2,) of an interval from resamples of `n_prompts` prompts per domain:
    Phi(-+ sqrt(n / (n - 1)) t), where t are Student's quantiles at `tails` for n - 1 degrees of
    freedom.

    This is the expanded percentile interval (Hesterberg 2015, What Teachers Should Know About the
    Bootstrap, The American Statistician 69). The plain percentile interval uses the levels `tails`.
    It is too narrow for few prompts, as if a variance were divided by n instead of n - 1 and
    quantiles were normal. With many prompts both intervals agree.
    """
    t = stdtrit(n_prompts - 1, tails())
    wider = np.sqrt(n_prompts / (n_prompts - 1))
    levels: Array = ndtr(wider * t)
    return levels


def bounds_of(draws: Array, n_prompts: int | Sequence[int]) -> Array:
    """Bounds (2, ...) of the expanded percentile interval over axis 0 of resampled values (n, ...).

    Bounds are NaN if more than 5 % of the resamples are undefined, or with fewer than 5 prompts.
    n_prompts: prompts of the smallest domain, or one number per entry of axis 1.
    """
    sizes = np.asarray(n_prompts)
    bounds: Array = np.full((2, *draws.shape[1:]), np.nan)
    if sizes.ndim:
        for size in np.unique(sizes):
            members = sizes == size
            bounds[:, members] = bounds_of(draws[:, members], size)
        return bounds
    if sizes < MIN_PROMPTS:
        return bounds
    levels = levels_of(int(sizes))
    undefined = np.isnan(draws).mean(axis=0) > 0.05
    known = np.where(undefined, 0.0, draws)
    bounds = np.quantile(known, levels, axis=0)
    some_missing = np.isnan(known).any(axis=0)
    if some_missing.any():  # nanquantile is slow, so only for incomplete columns
        bounds[:, some_missing] = np.nanquantile(known[:, some_missing], levels, axis=0)
    return np.where(undefined, np.nan, bounds)


@dataclass(frozen=True)
class Draws:
    """Named numbers of a sample and of its resamples. All numbers share the same resamples.

    `draws[name]` is a frame (1 + n, domains + 2). Row 0 is the sample; the next rows are the
    resamples. It has one column per domain, then `all` and `pooled`. Differences, ratios and ranks
    of several numbers are plain pandas on these frames, and `table` adds their intervals. Pass
    skipna=False to pandas' means.

    notes: by name, why a number is missing.
    """

    values: dict[str, pd.DataFrame]
    prompts: Resampling
    notes: dict[str, str]

    def __getitem__(self, name: Any) -> pd.DataFrame:
        return self.values[name]

    def table(
        self, draws: Mapping[str, pd.DataFrame | pd.Series] | None = None, key: str = "name"
    ) -> Estimates:
        """One row per entry of `draws` (default: all values), or per column of the entry: key,
        [domain], estimate, low, high, n_prompts, note.

        An interval is missing if it is undefined in the sample or in more than 5 % of the
        resamples, or if a domain has fewer than 5 prompts. The note then gives the reason.
        """
        sizes, every = self.prompts.sizes, len(self.prompts.domain)
        counted, fewest_of_all = self.prompts.counted, self.prompts.fewest
        tables = []
        for name, values in (self.values if draws is None else draws).items():
            is_series = isinstance(values, pd.Series)
            frame = values.to_frame("") if is_series else values
            columns = frame.to_numpy(float, copy=True)
            columns[~np.isfinite(columns)] = np.nan
            # each column's numbers, and why an interval would be missing
            fewest = [counted.get(domain, fewest_of_all) for domain in frame]
            numbers = [columns[0], *bounds_of(columns[1:], fewest)]
            table = pd.DataFrame(np.transpose(numbers), columns=NUMBERS)
            is_missing = table.isna().any(axis=1)
            reasons = np.where(np.array(fewest) < MIN_PROMPTS, TOO_FEW, NO_INTERVAL)
            table["n_prompts"] = [sizes.get(domain, every) for domain in frame]
            is_undefined = table["estimate"].isna()
            reasons = np.where(is_undefined, self.notes.get(name, reasons), reasons)
            table["note"] = np.where(is_missing, reasons, "")
            if not is_series:
                table.insert(0, "domain", list(frame))
            table.insert(0, key, name)
            tables.append(table)
        return Estimates(pd.concat(tables, ignore_index=True))


def jointly(
    questions: Mapping[str, tuple[pd.DataFrame, Estimator]], same: bool = True, n: int = RESAMPLES
) -> Draws:
    """Several numbers, each from an estimator and a frame, over the same resampled prompts. A
    family of numbers gives one entry per member, `name[i]`.

    same: if true, all frames must have the same prompts, else ValueError. If false, frames without
    a common prompt are resampled by themselves, each as often as it is large. Frames that share
    prompts are resampled together, and a prompt that a frame lacks has weight 0 in that frame. The
    frame with the fewest prompts in a domain sets the width of the domain's intervals; below 5
    prompts they are missing. The seed of a domain's resamples depends on the domain's
    number among the domains present (the kit's domains first, in their order, then the others by
    name). To compare two numbers, select the domains before both, not between them.
    """
    # one resampling of all frames, so that a draw takes the same prompts in each of them
    ids = [frame.filter(["prompt_id", "domain"]) for frame, _ in questions.values()]
    lengths = [len(frame) for frame in ids]
    groups = np.zeros(len(ids), int) if same else _groups(ids)
    prompts = resampling_of(pd.concat(ids), n, groups=np.repeat(groups, lengths))
    of_frame = np.split(prompts.rows, np.cumsum(lengths)[:-1])
    if not same:
        prompts = replace(prompts, smallest=_smallest(prompts, of_frame))
    # each number of the sample and of the resamples, or why it is missing
    columns = [*prompts.domains, ALL, POOLED]
    values, notes = {}, {}
    for rows, (name, (frame, estimator)) in zip(of_frame, questions.items(), strict=True):
        missing = len(prompts.domain) - len(np.unique(rows))
        if same and missing:
            raise ValueError(
                f"{name}: {missing} prompts are missing that another frame has. Pass frames with "
                "the same prompts, or same=False if they differ on purpose"
            )
        try:
            of_rows = replace(prompts, rows=rows)
            totals = of_rows.totals(estimator.columns(frame))
            numbers = across(estimator.value, prompts.resampled(totals))
        except ValueError as error:
            values[name] = pd.DataFrame(np.nan, range(1 + n), columns)
            notes[name] = str(error)
            continue
        # an estimator of several numbers has a column of draws for each
        for place, draws in enumerate(np.moveaxis(numbers, -1, 0), 1):
            label = name if estimator.scalar else f"{name}[{place}]"
            values[label] = pd.DataFrame(draws, columns=columns)
            if np.isnan(totals).any():
                notes[label] = NO_NUMBER
    return Draws(values, prompts, notes)


def _groups(frames: Sequence[pd.DataFrame]) -> Array:
    """A number for each frame. Frames that share a prompt have the same one, also if they share it
    through a third frame.
    """
    prompts = [set(frame["prompt_id"].astype(str)) for frame in frames]
    shares = [[not one.isdisjoint(other) for other in prompts] for one in prompts]
    groups: Array = connected_components(np.array(shares))[1]
    return groups


def _smallest(prompts: Resampling, of_frame: Sequence[Array]) -> dict[str, int]:
    """By domain, the prompts of the frame with the fewest, of the frames that have the domain."""
    present = [prompts.domain[np.unique(rows)] for rows in of_frame]
    size = len(prompts.domains)
    counts = np.array([np.bincount(own, minlength=size) for own in present])
    of_present = np.where(counts, counts, counts.max(axis=0))
    fewest = of_present.min(axis=0)
    return dict(zip(prompts.domains, fewest.tolist(), strict=True))


def by_domain(frame: pd.DataFrame, estimator: Estimator, n: int = RESAMPLES) -> Estimates:
    """Estimates with intervals in long form: estimator, domain, estimate, low, high, n_prompts.

    Rows are the domains of the frame, then `all` (mean of the domain values) and `pooled` (over all
    rows). A member whose denominator is 0 is NaN. A domain's interval uses its own number of
    prompts; `all` and `pooled` use the smallest domain's (`bounds_of`).
    """
    draws = jointly({estimator.name: (frame, estimator)}, n=n)
    if (reason := draws.notes.get(estimator.name, NO_NUMBER)) != NO_NUMBER:
        raise ValueError(reason)
    table = draws.table(key="estimator").frame.drop(columns="note")
    domains = [rows for _, rows in table.groupby("domain", sort=False)]
    return Estimates(pd.concat(domains, ignore_index=True))

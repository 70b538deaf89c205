"""Power and sensitivity of a study whose unit is the prompt: what so many prompts can show, and
what an estimate owes to the settings.

Power: the smallest difference between two domains (or between two treatments of the same prompts)
that a number of prompts detects, and the prompts that a difference needs, from the spread between
the prompts of a recorded run. The spread is that of the prompts' influence on the estimator
(infinitesimal jackknife; Efron 1982, The Jackknife, the Bootstrap and Other Resampling Plans), for
a ratio of sums (numerator - ratio * denominator) / mean denominator; the rest is the normal
approximation. `simulated` runs the very tests of `speclab.stats` on redrawn prompts, so that nobody
has to believe the approximation.

Sensitivity: an estimator on variants of one run (texts cut earlier, short and long prompts, the
last block treated otherwise), each with its change against a base variant on the same resamples of
prompts. Knows no model and no figure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, comb

import numpy as np
import pandas as pd
from scipy.stats import norm

from speclab import replay, score, stats
from speclab.analysis import significance
from speclab.score import Estimator, domains_in, member, require
from speclab.stats import MIN_PROMPTS, RESAMPLES, Interval, prompts_of

THIRDS = ("short prompts", "middling prompts", "long prompts")
NEEDED = ("needed", "needed_low", "needed_high")
# change of a prompt's weight in the numerical derivative; its error is of the order of STEP squared
STEP = 1e-4


@dataclass(frozen=True)
class Design:
    """A comparison of two sides: `sd` / sqrt(prompts) is the standard error of the difference with
    `prompts` prompts a side (paired: with `prompts` pairs). [low, high] is the 95 % interval of
    `sd` over resampled prompts, `n_prompts` the prompts a side that it comes from.
    """

    sd: float
    low: float
    high: float
    n_prompts: int

    def detectable(
        self, prompts: int = 50, power: float = 0.8, level: float = 0.05, comparisons: int = 1
    ) -> Interval:
        """Smallest true difference that a two-sided test at `level` finds with probability `power`.

        `comparisons`: tests in the family. The first of Holm's steps asks for level / comparisons
        (Bonferroni), later ones for less, so that Holm finds this difference with at least this
        probability.
        """
        _check_prompts(prompts)
        factor = _quantiles(power, level, comparisons) / np.sqrt(prompts)
        return Interval(self.sd * factor, self.low * factor, self.high * factor, self.n_prompts)

    def prompts_needed(
        self, difference: float, power: float = 0.8, level: float = 0.05, comparisons: int = 1
    ) -> int:
        """Prompts a side (pairs) that find a true `difference` with probability `power`; never
        below the 5 that an interval needs.
        """
        if not (np.isfinite(difference) and difference):
            raise ValueError(
                f"difference={difference}: no number of prompts shows it; give a finite difference other than 0"
            )
        return max(
            MIN_PROMPTS,
            ceil((_quantiles(power, level, comparisons) * self.sd / abs(difference)) ** 2),
        )

    def power(self, difference, prompts, level: float = 0.05, comparisons: int = 1) -> np.ndarray:
        """Probability that the test finds a true `difference` with `prompts` prompts a side; both
        may be arrays.
        """
        _quantiles(0.5, level, comparisons)
        limit, shift = (
            norm.isf(level / comparisons / 2),
            np.abs(difference) * np.sqrt(prompts) / self.sd,
        )
        return norm.sf(limit - shift) + norm.cdf(-limit - shift)


def _quantiles(power: float, level: float, comparisons: int) -> float:
    """Standard errors between 0 and a difference that is found with probability `power`."""
    if not 0 < level < power < 1 or comparisons < 1:
        raise ValueError(
            f"level={level}, power={power}, comparisons={comparisons}: needed are 0 < level < power < 1 and a comparison"
        )
    return float(norm.isf(level / comparisons / 2) + norm.ppf(power))


def _check_prompts(prompts: int) -> None:
    if prompts < MIN_PROMPTS:
        raise ValueError(f"prompts={prompts}: an interval needs at least {MIN_PROMPTS} a side")


def influence(frame: pd.DataFrame, estimator: Estimator) -> pd.DataFrame:
    """One row a prompt: prompt_id, domain, `influence` on its domain's estimate, of mean 0 in a
    domain.

    Its standard error is the standard deviation of the influences over the square root of the
    prompts. ValueError: fewer than 5 prompts in a domain, an estimator that is a family, or one
    that is undefined there.
    """
    ids, totals = prompt_totals(frame, estimator)
    if not estimator.scalar:
        raise ValueError(
            f"{estimator.name} is a family of numbers: take one of them, such as explain.pick(score.hit, 1)"
        )
    values = np.zeros(len(ids))
    for rows in ids.groupby("domain", sort=False).indices.values():
        up, down = (
            estimator.value(totals[rows].sum(axis=0) + step * totals[rows])[:, 0]
            for step in (STEP, -STEP)
        )
        values[rows] = len(rows) * (up - down) / (2 * STEP)
    if not np.isfinite(values).all():
        raise ValueError(
            f"{estimator.name} is undefined in {sorted(set(ids['domain'][~np.isfinite(values)]))}: nothing to divide by there"
        )
    return ids.assign(influence=values)


def prompt_totals(frame: pd.DataFrame, estimator: Estimator) -> tuple[pd.DataFrame, np.ndarray]:
    """(prompt_id and domain, one row a prompt in the order of the ids; the estimator's sums over
    each prompt's rows, [prompts, k]).
    """
    prompts = prompts_of(frame, 1)
    ids = (
        frame[["prompt_id", "domain"]]
        .astype(str)
        .drop_duplicates()
        .sort_values("prompt_id", ignore_index=True)
    )
    return ids, prompts.totals(estimator.columns(frame))


def between(
    frame: pd.DataFrame,
    estimator: Estimator,
    first: str,
    second: str,
    n: int = RESAMPLES,
    seed: int = 0,
) -> Design:
    """Two domains with prompts of their own.

    ValueError: a domain missing, too few prompts (says how many more), no spread at all.
    """
    domains_in(frame, [first, second])
    found = influence(frame[frame["domain"].isin([first, second])], estimator)
    groups = [
        found.loc[found["domain"] == name, "influence"].to_numpy() for name in (first, second)
    ]
    return _design(groups, estimator.name, n, seed)


def paired(
    first: pd.DataFrame,
    second: pd.DataFrame,
    estimator: Estimator,
    n: int = RESAMPLES,
    seed: int = 0,
) -> Design:
    """Two treatments of the same prompts (chat template on and off, two drafts), each prompt its
    own control; all rows as one group.

    ValueError if the frames do not hold the same prompts, and as `between`.
    """
    one, two = (
        influence(frame.assign(domain=score.POOLED), estimator)
        for frame in _same_prompts(first, second)
    )
    return _design([(one["influence"] - two["influence"]).to_numpy()], estimator.name, n, seed)


def _same_prompts(*frames: pd.DataFrame) -> Sequence[pd.DataFrame]:
    odd = set.symmetric_difference(*(set(frame["prompt_id"].astype(str)) for frame in frames))
    if odd:
        raise ValueError(
            f"{len(odd)} prompts are in one frame only, such as {min(odd)!r}; a paired comparison needs the same"
        )
    return frames


def _design(groups: Sequence[np.ndarray], name: str, n: int, seed: int) -> Design:
    variances = sum(
        _variances(values, np.random.default_rng([seed, i]), n) for i, values in enumerate(groups)
    )
    if variances[0] <= 1e-18:
        raise ValueError(
            f"{name} is the same in every prompt (constant): there is no spread to plan with; record prompts that differ"
        )
    low, high = np.sqrt(np.quantile(variances[1:], stats.BOUNDS))
    return Design(float(np.sqrt(variances[0])), float(low), float(high), min(map(len, groups)))


def _variances(values: np.ndarray, rng: np.random.Generator, n: int) -> np.ndarray:
    """Sample variance (1 + n,): of the values, then of n resamples."""
    draws = np.vstack([values, values[rng.integers(0, len(values), (n, len(values)))]])
    return draws.var(axis=1, ddof=1)


def plan(
    frame: pd.DataFrame,
    estimator: Estimator,
    values: Mapping[str, float] | None = None,
    prompts: int = 50,
    power: float = 0.8,
    level: float = 0.05,
) -> pd.DataFrame:
    """Every pair of domains: first, second, difference, detectable, low, high, needed, needed_low,
    needed_high.

    `detectable` is the smallest difference that `prompts` prompts a domain find (interval: of the
    spread, over resampled prompts), in the family of all pairs; `needed` the prompts a domain that
    find `difference`: that of `values` by domain (such as published ones), else of the run itself;
    missing where it is 0. ValueError: a domain of `values` missing, fewer than two, and as
    `between`.
    """
    own = (
        score.point_estimates(frame, estimator).iloc[0].drop([score.ALL, score.POOLED])
        if values is None
        else values
    )
    domains = [name for name in domains_in(frame, [*dict(own)]) if name in own]
    if len(domains) < 2:
        raise ValueError(f"domains is {domains}: a difference needs two")
    family, rows = comb(len(domains), 2), []
    for first, second in combinations(domains, 2):
        design, difference = (
            between(frame, estimator, first, second),
            float(own[first] - own[second]),
        )
        found = design.detectable(prompts, power, level, family)
        spreads = (
            Design(sd, sd, sd, design.n_prompts) for sd in (design.sd, design.low, design.high)
        )
        needed = [
            spread.prompts_needed(difference, power, level, family) if difference else pd.NA
            for spread in spreads
        ]
        rows.append((first, second, difference, found.estimate, found.low, found.high, *needed))
    table = pd.DataFrame(
        rows, columns=["first", "second", "difference", "detectable", "low", "high", *NEEDED]
    )
    return table.astype(dict.fromkeys(NEEDED, "Int64"))


def curve(
    design: Design,
    differences: Sequence[float],
    prompts: Sequence[int],
    level: float = 0.05,
    comparisons: int = 1,
) -> pd.DataFrame:
    """Power for every difference with every number of prompts: difference, prompts, power.

    One row each, for a figure.
    """
    _check_prompts(min(prompts))
    grid = pd.MultiIndex.from_product(
        [prompts, differences], names=["prompts", "difference"]
    ).to_frame(index=False)
    return grid.assign(
        power=design.power(
            grid["difference"].to_numpy(float), grid["prompts"].to_numpy(float), level, comparisons
        )
    )


@dataclass(frozen=True)
class Simulated:
    """Shares of `repeats` redrawn studies in which the permutation test's p-value was below the
    level, and the 95 % interval left out 0.
    """

    by_test: float
    by_interval: float
    repeats: int


def simulated(
    first: pd.DataFrame,
    second: pd.DataFrame,
    estimator: Estimator,
    prompts: int = 50,
    paired: bool = False,
    null: bool = False,
    level: float = 0.05,
    repeats: int = 200,
    n: int = 999,
    seed: int = 0,
) -> Simulated:
    """The kit's own test on studies of `prompts` prompts a side, drawn with replacement from a
    run's: its power at the run's difference.

    `significance.differences` (first, second: two domains), or with `paired` `significance.paired_difference`
    (the same prompts, treated differently). `null` takes the difference away: both sides are drawn
    from all prompts, a pair's treatments swapped at random; what is then found is a false alarm.
    """
    _check_prompts(prompts)
    frames = _same_prompts(first, second) if paired else (first, second)
    sides = [prompt_totals(frame.assign(domain="one"), estimator)[1] for frame in frames]
    study = pd.DataFrame(
        {"prompt_id": range(2 * prompts), "domain": np.repeat(["one", "two"], prompts)}
    )
    if paired:
        study = study.assign(prompt_id=study["prompt_id"] % prompts, domain="one")
    rng, found = np.random.default_rng([seed, 3]), []
    for _ in range(repeats):
        drawn, seed_of_test = _redrawn(sides, prompts, paired, null, rng), int(rng.integers(2**31))
        redrawn = Estimator(
            estimator.name, lambda rows, drawn=drawn: drawn[rows.index], estimator.value
        )
        if paired:
            found.append(
                significance.paired_difference(
                    study[:prompts], study[prompts:], redrawn, n, seed_of_test
                )
            )
        else:
            found += significance.differences(study, redrawn, n=n, seed=seed_of_test).itertuples()
    return Simulated(
        float(np.mean([f.p_value < level for f in found])),
        float(np.mean([f.low * f.high > 0 for f in found])),
        repeats,
    )


def _redrawn(
    sides: Sequence[np.ndarray], prompts: int, paired: bool, null: bool, rng: np.random.Generator
) -> np.ndarray:
    """Sums of the prompts of a redrawn study, [2 * prompts, k], the first side's above the
    second's.
    """
    if not paired:
        return np.concatenate(
            [rng.choice(np.concatenate(sides) if null else side, prompts) for side in sides]
        )
    both = np.stack(sides)[:, rng.integers(0, len(sides[0]), prompts)]
    if null:
        both = np.where(rng.random((prompts, 1)) < 0.5, both, both[::-1])
    return np.concatenate(both)


def compare(
    variants: Mapping[str, pd.DataFrame],
    estimator: Estimator,
    base: str,
    n: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """An estimator on variants of a run's rows: variant, domain (then `all`, `pooled`), estimate,
    low, high, change, change_low, change_high. The change is against the variant `base`, on the
    same resamples of prompts (all prompts that any variant holds).
    """
    if base not in variants:
        raise ValueError(f"base={base!r}: the variants are {', '.join(variants)}")
    found = {name: prompt_totals(frame, estimator) for name, frame in variants.items()}
    ids = (
        pd.concat([one for one, _ in found.values()])
        .drop_duplicates()
        .sort_values("prompt_id", ignore_index=True)
    )
    totals = {
        name: pd.DataFrame(sums, one["prompt_id"])
        .reindex(ids["prompt_id"], fill_value=0.0)
        .to_numpy()
        for name, (one, sums) in found.items()
    }
    size, parts = totals[base].shape[1], {}
    for name, sums in totals.items():
        change = Estimator(
            "change",
            lambda _, sums=sums: np.hstack([sums, totals[base]]),
            lambda t: estimator.value(t[..., :size]) - estimator.value(t[..., size:]),
        )
        itself = Estimator(estimator.name, lambda _, sums=sums: sums, estimator.value)
        own, moved = (stats.by_domain(ids, one, n, seed) for one in (itself, change))
        moved = moved[["estimate", "low", "high"]].set_axis(
            ["change", "change_low", "change_high"], axis=1
        )
        parts[name] = pd.concat([own[["domain", "estimate", "low", "high"]], moved], axis=1)
    return pd.concat(parts, names=["variant"]).reset_index("variant").reset_index(drop=True)


def cut_texts(frame: pd.DataFrame, limits: Sequence[int]) -> dict[str, pd.DataFrame]:
    """The rows of a run with fewer new tokens, exactly as a run of that `max_new_tokens` would have
    them (a text's beginning does not depend on its limit): '8 tokens', …, and the whole as 'all
    tokens'. For `trace` and `nodes`; blocks must be replayed after the cut.
    """
    positions = require(frame, ["position"], "frame")["position"]
    if not limits or min(limits) < 1:
        raise ValueError(f"limits={list(limits)}: give numbers of new tokens, 1 or more")
    return {f"{limit} tokens": frame[positions < limit] for limit in sorted(limits)} | {
        "all tokens": frame
    }


def by_length(frame: pd.DataFrame, lengths: Mapping[str, float]) -> dict[str, pd.DataFrame]:
    """The rows of each third of a domain's prompts by length (THIRDS; ties in the order of the
    ids), `lengths` by prompt_id.

    ValueError: a prompt without a length, a domain with fewer than 15 prompts, or whose prompts are
    all equally long.
    """
    ids = (
        require(frame, ["prompt_id", "domain"], "frame")[["prompt_id", "domain"]]
        .astype(str)
        .drop_duplicates()
        .sort_values("prompt_id")
    )
    ids["length"] = ids["prompt_id"].map(dict(lengths))
    if ids["length"].isna().any():
        raise ValueError(
            f"lengths has no prompt {ids.loc[ids['length'].isna(), 'prompt_id'].iloc[0]!r}: count the tokens of every prompt"
        )
    groups = ids.groupby("domain")["length"]
    for domain, size in groups.size().items():
        if size < 3 * MIN_PROMPTS:
            raise ValueError(
                f"{domain!r} has {size} prompts; thirds need {3 * MIN_PROMPTS}: record {3 * MIN_PROMPTS - size} more"
            )
        if groups.nunique()[domain] == 1:
            raise ValueError(
                f"the prompts of {domain!r} are all of one length (constant): its effect is undefined"
            )
    ids["third"] = 3 * (groups.rank(method="first") - 1) // groups.transform("size")
    member = frame["prompt_id"].astype(str).map(ids.set_index("prompt_id")["third"])
    return {name: frame[member == number] for number, name in enumerate(THIRDS)}


def text_ends(
    trace: pd.DataFrame, shape, max_new_tokens: int, nodes: pd.DataFrame | None = None
) -> dict[str, pd.DataFrame]:
    """Per-prompt sums of the visited blocks (`replay.prompt_sums`) under each treatment of the
    blocks that a text's end cut.

    'counted': as a decoder counts. 'left out'. 'extended, least' and 'extended, most': bounds,
    where the text was cut at `max_new_tokens` (not by its EOS), as if it went on and the next token
    were rejected, or all of the shape's depth accepted. 'extended': exactly, from the `nodes` of a
    T = 0 run of the same shape, which look past the end. Estimators: `score.block_estimators`.
    """
    blocks = replay.replay(trace, shape)
    length = blocks["start"] + blocks["remaining"]
    cut, depth = (
        blocks["truncated"] & (length >= max_new_tokens),
        sum(str(name).startswith("survival_") for name in blocks),
    )
    accepted = {
        "extended, least": blocks["accepted"],
        "extended, most": pd.Series(depth, blocks.index),
    }
    if nodes is not None:
        walked = (
            nodes[["prompt_id", "position"]]
            .assign(walked=score.reach(nodes))
            .groupby(["prompt_id", "position"])["walked"]
            .sum()
        )
        accepted["extended"] = blocks.join(walked, on=["prompt_id", "start"])["walked"]
    result = {
        "counted": replay.prompt_sums(blocks),
        "left out": replay.prompt_sums(blocks, "untruncated"),
    }
    for name, more in accepted.items():
        changed = {
            "accepted": blocks["accepted"].mask(cut, more),
            "emitted": blocks["emitted"].mask(cut, more + 1),
        }
        result[name] = replay.prompt_sums(
            blocks.assign(**changed, truncated=blocks["truncated"] & ~cut)
        )
    return result


def sensitivity(
    run,
    lengths: Mapping[str, float] | None,
    shape,
    max_new_tokens: int,
    limits: Sequence[int] = (8, 16, 32),
    gamma: int = 4,
) -> pd.DataFrame:
    """What the estimates of a T = 0 run owe to its settings: setting, estimator, then the columns
    of `compare`.

    Settings: `new tokens` (texts cut at `limits`, against the whole), `prompt length` (thirds of
    each domain by `lengths`, against the short ones; lengths None: left out), `last block`
    (`text_ends` of the run's own `shape`, against 'counted'). Estimators: published_alpha, alpha,
    hit[1], block_efficiency of the tree from every position and of a chain of `gamma` over the
    visited blocks. ValueError: a run without nodes, and as the functions it puts together.
    """
    nodes, trace = (
        require(run.nodes, ["position"], "nodes"),
        require(run.trace, ["position"], "trace"),
    )
    visited = score.block_estimators()["block_efficiency"]
    asked = {
        "published_alpha": (nodes, score.published_alpha),
        "alpha": (trace, score.overlap_alpha),
        "hit[1]": (trace, member(score.hit, 1)),
        "block_efficiency, tree": (nodes, score.tree_estimators()["block_efficiency"]),
        f"block_efficiency, chain of {gamma}, visited": (trace, visited),
    }
    parts = {}
    for name, (frame, estimator) in asked.items():
        settings = (
            [("prompt length", by_length(frame, lengths), THIRDS[0])] if lengths is not None else []
        )
        for setting, variants, base in [
            ("new tokens", cut_texts(frame, limits), "all tokens"),
            *settings,
        ]:
            if estimator is visited:
                variants = {
                    variant: replay.prompt_sums(replay.replay(rows, gamma))
                    for variant, rows in variants.items()
                }
            parts[setting, name] = compare(variants, estimator, base)
    ends = text_ends(trace, shape, max_new_tokens, nodes)
    parts["last block", "block_efficiency, tree, visited"] = compare(ends, visited, "counted")
    return (
        pd.concat(parts, names=["setting", "estimator"])
        .reset_index(["setting", "estimator"])
        .reset_index(drop=True)
    )

"""Compute coverage.csv: `python -m data.coverage.prepare` (three minutes on one core).

How often does a 95 % interval cover the true value if a study has few prompts? The prompts of a
recorded run are the population. A study draws some prompts per domain, with replacement, and
computes its interval. The true value is the number for all recorded prompts. Rarer and stranger
prompts than the recorded ones are missing from this population.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest

from speclab import replay, score, stats
from speclab.score import Estimator
from speclab.study import runs
from speclab.study.profiles import load_profile

TABLE = Path(__file__).with_name("coverage.csv")
PAIRS = ("tiny", "smollm")
PROMPTS = (5, 10, 15, 20, 50)  # per domain; the second prompt set has 15
LEVELS = (0.025, 0.975)
PERCENTILE, BCA = "percentile", "BCa"
EXPANDED = "expanded percentile"
METHODS = (PERCENTILE, EXPANDED, BCA)
BLOCK = 100  # studies at once, to limit memory


@dataclass(frozen=True)
class Case:
    """A number of a population. `totals` has an array [prompts, k] per domain that it needs;
    `value` maps their sums [..., domains, k] to [...].
    """

    name: str
    totals: tuple[np.ndarray, ...]
    value: Callable[[np.ndarray], np.ndarray]

    @property
    def truth(self) -> float:
        """The number for the whole population, with equal weight for every domain."""
        return float(self.value(np.stack([own.mean(axis=0) for own in self.totals])))


def mean_in_domain(name: str, frame: pd.DataFrame, estimator: Estimator) -> list[Case]:
    """An estimator of one number, as a case for each domain of a frame."""
    prompts = stats.resampling_of(frame, 1)
    totals = prompts.totals(estimator.columns(frame))
    own = [totals[prompts.domain == d] for d in range(len(prompts.domains))]
    return [Case(name, (each,), lambda s: estimator.value(s)[..., 0, 0]) for each in own]


def difference(name: str, first: Case, second: Case) -> Case:
    """One domain's number minus another's, for two cases of one estimator."""
    both = first.totals + second.totals
    return Case(name, both, lambda s: first.value(s[..., :1, :]) - second.value(s[..., 1:, :]))


def cases(greedy, gamma: int = 4) -> list[Case]:
    """The simulated numbers of a greedy run: a mean over positions, a ratio whose prompts differ in
    length, and the difference between two domains (the first and the last).
    """
    hits = greedy.trace
    mean = mean_in_domain("hit[1]", hits, score.mean_of("hit"))
    blocks = replay.chain_sums(greedy.trace, [gamma])
    tau = score.block_estimators()["block_efficiency"]
    return [
        *mean,
        *mean_in_domain(f"block_efficiency, chain {gamma}", blocks, tau),
        difference("hit[1], difference", mean[0], mean[-1]),
    ]


# ---- the intervals of many studies at once -------------------------------------------------------


def bca_bounds(values: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    """Bias-corrected and accelerated bounds (2, studies): Efron 1987, Better Bootstrap Confidence
    Intervals, JASA 82.

    values (1 + n, studies): the sample, then its resamples. left_out (domains, prompts, studies):
    the value without each prompt.
    """
    draws = np.sort(values[1:], axis=0)
    below = ((draws < values[0]).mean(axis=0) + (draws <= values[0]).mean(axis=0)) / 2
    bias = ndtri(np.clip(below, 1 / len(draws), 1 - 1 / len(draws)))
    pull = (left_out.mean(axis=1, keepdims=True) - left_out).reshape(-1, len(bias))
    spread = np.maximum((pull**2).sum(axis=0), 1e-100)
    acceleration = (pull**3).sum(axis=0) / (6 * spread**1.5)
    moved = bias + ndtri(np.array(LEVELS))[:, None]
    place = ndtr(bias + moved / (1 - acceleration * moved)) * (len(draws) - 1)
    lower = np.clip(place.astype(int), 0, len(draws) - 2)
    at, after = (np.take_along_axis(draws, rows, 0) for rows in (lower, lower + 1))
    return at + (place - lower) * (after - at)


def three_intervals(case: Case, drawn: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Bounds (2, studies) by each method.

    drawn [studies, domains, n, k]: totals of the prompts that each study drew. weights [1 +
    resamples, domains, n]: as in `stats.Resampling`.
    """
    size = drawn.shape[2]
    sums = _resampled(weights, drawn)
    values = case.value(sums)
    left_out = []
    for domain in range(drawn.shape[1]):
        without = np.repeat(sums[:1], size, axis=0)
        without[:, :, domain] -= drawn[:, domain].swapaxes(0, 1)
        left_out.append(case.value(without))
    return {
        PERCENTILE: np.quantile(values[1:], LEVELS, axis=0),
        EXPANDED: stats.bounds_of(values[1:], size),
        BCA: bca_bounds(values, np.stack(left_out)),
    }


def _resampled(weights: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Sums [1 + resamples, studies, domains, k] of `totals` [studies, domains, n, k]."""
    each = [
        (weights[:, domain] @ totals[:, domain]).swapaxes(0, 1) for domain in range(totals.shape[1])
    ]
    return np.stack(each, axis=2)


def simulated_coverage(
    case: Case, n_prompts: int, studies: int, resamples: int, seed: int = 0
) -> pd.DataFrame:
    """Simulate studies with `n_prompts` prompts per domain. Columns: method, held (number of
    intervals that cover the true value; an undefined interval does not), width (median).
    """
    names = np.repeat([f"domain {d}" for d in range(len(case.totals))], n_prompts)
    ids = [f"{number:06d}" for number in range(len(names))]  # in the order of the domains
    study = pd.DataFrame({"prompt_id": ids, "domain": names})
    weights = stats.resampling_of(study, resamples, seed).weights
    weights = weights.reshape(len(weights), len(case.totals), n_prompts)
    rng, blocks = np.random.default_rng([seed, n_prompts]), []
    for start in range(0, studies, BLOCK):
        shape = (min(BLOCK, studies - start), n_prompts)
        drawn = [own[rng.integers(len(own), size=shape)] for own in case.totals]
        blocks.append(three_intervals(case, np.stack(drawn, axis=1), weights))
    rows = []
    for method in METHODS:
        low, high = np.concatenate([block[method] for block in blocks], axis=1)
        holds = (low <= case.truth + 1e-12) & (case.truth - 1e-12 <= high)
        rows.append((method, int(holds.sum()), pd.Series(high - low).median()))
    return pd.DataFrame(rows, columns=["method", "held", "width"])


def coverage_table(
    asked: Iterable[Case],
    prompts: Iterable[int] = PROMPTS,
    studies: int = 200,
    resamples: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    """Coverage: estimator, n_prompts (per domain), method, coverage with its 95 % Monte-Carlo
    interval (low, high), width (mean over domains of the median width), studies, and used (whether
    it is the kit's method). Cases with one name (its domains) are counted together.
    """
    parts = []
    for case in asked:
        for size in prompts:
            part = simulated_coverage(case, size, studies, resamples, seed)
            parts.append(part.assign(estimator=case.name, n_prompts=size, n=studies))
    keys = ["estimator", "n_prompts", "method"]
    groups = pd.concat(parts).groupby(keys, sort=False)
    counts = groups.agg(held=("held", "sum"), studies=("n", "sum"), width=("width", "mean"))
    found = [
        binomtest(row.held, row.studies).proportion_ci(method="wilson")
        for row in counts.itertuples()
    ]
    counts["coverage"] = counts["held"] / counts["studies"]
    counts["low"], counts["high"] = np.array(found).T
    counts = counts.reset_index()
    counts["used"] = counts["method"] == EXPANDED
    return counts[[*keys, "coverage", "low", "high", "width", "studies", "used"]]


def main() -> None:
    """Write coverage.csv: pair, then the columns of `coverage_table`."""
    parts = {}
    for pair in PAIRS:
        profile = load_profile(pair).replace(temperature=0.0)
        parts[pair] = coverage_table(cases(runs.load_or_record(profile, "greedy")))
    found = pd.concat(parts, names=["pair"]).reset_index("pair")
    found.to_csv(TABLE, index=False)


if __name__ == "__main__":
    sys.exit(main())

"""A server with a mix of domains, simulated over recorded texts: what a policy of speculation is
worth in tokens per second and latency (section 4), and when the mix drifts (section 6).

A request is a recorded prompt; its service time is what it costs under a policy, in a *judged*
frame (`speclab.analysis.choose`). Requests arrive as a Poisson process (at random, one independent
of the other, at a constant mean rate), first come first served, one at a time; prefill, network and
memory limits are left out.

Intervals: prompts are resampled within their domain (outside), and each resample serves streams
drawn from it with fresh seeds (inside), whose mean counts. So an interval covers which prompts were
recorded and what the seeds left of chance. All policies serve the same streams. NumPy and pandas
only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab.analysis.choose import PROMPT, SUMS, Prices, fastest
from speclab.score import domains_in
from speclab.show.estimates import Estimates
from speclab.stats import RESAMPLES, bounds_of, fold_of, resampling_of

NEVER = "never"
METRICS = ("tokens_per_s", "p50_s", "p95_s", "passes_saved", "drafts_per_token")
SHARES = (
    "passes_saved",
    "drafts_per_token",
)  # may be 0: compared by difference, not ratio


def check_mix(mix: Mapping[str, float], domains: Sequence[str]) -> np.ndarray:
    """Shares of `domains` in a mix, float64; ValueError for a domain without prompts, a share below
    0 or a sum that is not 1.
    """
    if unknown := sorted(set(mix) - set(domains)):
        raise ValueError(
            f"mix names {unknown}: there are prompts of {', '.join(domains)} only"
        )
    shares = np.array([mix.get(name, 0.0) for name in domains], np.float64)
    if not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(f"mix is {dict(mix)}: shares from 0 that sum to 1 are needed")
    return shares


# ---- one setting for a mix -----------------------------------------------------------------------


def best_for_mix(
    prices: Prices, mix: Mapping[str, float], folds: int = 5
) -> pd.DataFrame:
    """One setting for everybody, the fastest for a mix of domains: a judged frame, each prompt's
    chosen on the other folds' prompts. (`choose.cross_fit` takes the mix as it was recorded.)
    """
    domains = domains_in(prices.prompts)
    shares = check_mix(mix, domains)
    ids, domain = (prices.prompts[name].to_numpy() for name in PROMPT)
    fold = fold_of(domain, folds)
    chosen = {}
    for held_out in range(folds):
        others = fold != held_out
        means = [
            prices.cost[others & (domain == name)].mean(axis=0) for name in domains
        ]
        best = prices.settings[fastest(1 / (shares @ np.array(means)))]
        chosen |= dict.fromkeys(ids[fold == held_out], best)
    return prices.judged({name: chosen[name] for name in ids})


def mostly(domains: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mixes in which one domain has 70 % and the others share the rest."""
    share = 0.7
    rest = (1 - share) / (len(domains) - 1)
    return {
        f"mostly {d}": {e: share if e == d else rest for e in domains} for d in domains
    }


def drift(
    prices: Prices,
    mixes: Mapping[str, Mapping[str, float]],
    per_domain: pd.DataFrame,
    n: int = RESAMPLES,
) -> Estimates:
    """Speed-up of one setting fitted to one mix and served another: fitted_on, served; then of
    `per_domain` (a judged frame), which was fitted to no mix.
    """
    frames = {name: best_for_mix(prices, mix) for name, mix in mixes.items()}
    rows = []
    for fitted_on, frame in (frames | {"per-domain": per_domain}).items():
        prompts = resampling_of(frame, n)
        sums = prompts.resampled(
            prompts.totals(frame[["emitted", "cost"]].to_numpy(float))
        )
        means = sums / np.bincount(prompts.domain)[:, None]
        for served, mix in mixes.items():
            tokens, cost = np.tensordot(
                means, check_mix(mix, prompts.domains), (1, 0)
            ).T
            speed = tokens / cost
            bounds = bounds_of(speed[1:], prompts.fewest)
            rows.append((fitted_on, served, speed[0], *bounds))
    names = ["fitted_on", "served", "estimate", "low", "high"]
    return Estimates(pd.DataFrame(rows, columns=names), digits=3)


def most_lost(drifted: Estimates) -> float:
    """The most that one setting loses when the mix becomes another than it was fitted to."""
    grid = drifted.frame.pivot(index="fitted_on", columns="served", values="estimate")
    own = grid.loc[grid.columns, grid.columns]
    return float((np.diag(own) - own).max(axis=None))


# ---- the stream ----------------------------------------------------------------------------------


def finish_times(arrival: np.ndarray, service: np.ndarray) -> np.ndarray:
    """When each request is done on one server, first come first served; arrays [..., requests],
    arrivals ascending.

    Lindley's recursion, finish = max(arrival, finish before) + service, as a running maximum.
    """
    done = service.cumsum(axis=-1)
    return done + np.maximum.accumulate(arrival - (done - service), axis=-1)


@dataclass(frozen=True)
class Served:
    """What streams gave: `values` [policies, METRICS, 1 + resamples], of the recorded prompts
    themselves first; `n_prompts`: those of the smallest domain.
    """

    policies: tuple[str, ...]
    values: np.ndarray
    n_prompts: int

    def of(self, policy: str) -> np.ndarray:
        """[METRICS, 1 + resamples] of one policy."""
        return self.values[self.policies.index(policy)]

    def table(self, against: str | None = None) -> Estimates:
        """metric, policy; `against` a policy: ratios to it (differences for SHARES)."""
        values = self.values
        if against is not None:
            base = self.of(against)
            differ = np.isin(METRICS, SHARES)[:, None]
            values = np.where(
                differ, values - base, values / np.where(differ, 1.0, base)
            )
        low, high = bounds_of(np.moveaxis(values[..., 1:], -1, 0), self.n_prompts)
        keys = pd.MultiIndex.from_product(
            [self.policies, METRICS], names=["policy", "metric"]
        )
        numbers = {"estimate": values[..., 0], "low": low, "high": high}
        flat = {name: part.ravel() for name, part in numbers.items()}
        return Estimates(pd.DataFrame(flat, keys).reset_index(), digits=3)

    def is_fastest(self, policy: str, but: str) -> bool:
        """No policy (`but` one left out) gives more tokens per second, in any stream."""
        others = [self.of(name)[0] for name in self.policies if name != but]
        return bool((np.array(others) <= self.of(policy)[0] + 1e-9).all())


def draw(
    shares: np.ndarray, gap: float, requests: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A stream from each row of prompt probabilities [rows, prompts]: prompt numbers and arrival
    times, [rows, requests] each.
    """
    coins, ends = rng.random((len(shares), requests)), shares.cumsum(axis=1)
    pairs = zip(ends, coins, strict=True)
    which = [np.searchsorted(end, coin * end[-1], side="right") for end, coin in pairs]
    return np.stack(which), rng.exponential(gap, coins.shape).cumsum(axis=1)


def simulate(
    policies: Mapping[str, pd.DataFrame],
    mix: Mapping[str, float],
    target_ms: float,
    load: float = 0.8,
    requests: int = 300,
    seeds: int = 4,
    n: int = RESAMPLES,
    seed: int = 0,
) -> Served:
    """Serve streams of a mix under each policy (judged frames by name, "never" among them), one
    request at a time.

    load: share of the time that "never", plain decoding, would be busy. tokens_per_s: tokens per
    second of work, what a server gives that never waits; p50_s, p95_s: latency, waiting included,
    from an empty server on; passes_saved: 1 - target passes / tokens; drafts_per_token: draft
    passes a token. Each is the mean over `seeds` streams of `requests`. ValueError: see
    `check_mix`.
    """
    assert load > 0 and min(requests, seeds) > 0
    in_order = [frame.sort_values("prompt_id") for frame in policies.values()]
    assert all(
        list(one["prompt_id"]) == list(in_order[0]["prompt_id"]) for one in in_order
    )
    sums = np.stack(
        [frame[SUMS].to_numpy(float).T for frame in in_order]
    )  # [policies, 4, prompts]
    prompts = resampling_of(
        policies[NEVER][PROMPT], n, seed
    )  # in the order of their ids, too
    share = check_mix(mix, prompts.domains) / np.bincount(prompts.domain)
    probability = share[prompts.domain]
    plain_cost = sums[list(policies).index(NEVER), SUMS.index("cost")]
    gap = float(probability @ plain_cost) / load
    total = np.zeros((len(policies), len(METRICS), n + 1))
    for number in range(seeds):
        rng = np.random.default_rng([seed, number])
        which, arrival = draw(prompts.weights * probability, gap, requests, rng)
        total += [_measured(own[:, which], arrival, target_ms / 1e3) for own in sums]
    return Served(tuple(policies), total / seeds, prompts.fewest)


def _measured(sums: np.ndarray, arrival: np.ndarray, pass_s: float) -> np.ndarray:
    """METRICS of streams, [METRICS, rows]: SUMS of requests [4, rows, requests], their arrival
    times, and the seconds of a target pass.
    """
    emitted, cost, target_passes, draft_passes = sums.sum(axis=-1)
    service = sums[SUMS.index("cost")]
    waiting = finish_times(arrival, service) - arrival
    median, late = np.quantile(waiting, [0.5, 0.95], axis=-1) * pass_s
    tokens_per_s = emitted / (cost * pass_s)
    saved, drafts = 1 - target_passes / emitted, draft_passes / emitted
    return np.stack([tokens_per_s, median, late, saved, drafts])

"""A server with a mix of domains, simulated over recorded texts: what a policy gains in tokens per
second and latency, and at which batch size drafting must stop (notebook 14).

A request is a recorded prompt; its service time is its cost under a policy
(`speclab.analysis.choose`). Requests arrive as a Poisson process (at random, independently, at a
constant mean rate) and are served one at a time in order of arrival; prefill, network and memory
limits are left out.

Intervals: prompts are resampled within their domain, and each resample serves streams drawn from it
with new seeds, whose mean counts. So an interval covers the choice of prompts and the chance that
is left in the streams. All policies serve the same streams. NumPy and pandas only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from speclab.analysis import choose
from speclab.analysis.choose import PROMPT, UNKNOWN, Choice, PromptCosts, Settings
from speclab.cost import Costs
from speclab.estimates import Estimates, named, stack
from speclab.score import POOLED, domains_in
from speclab.stats import (
    ABOVE,
    BELOW,
    NUMBERS,
    RESAMPLES,
    Draws,
    resampling_of,
    verdict,
)
from speclab.studies.budgets_and_routing import policies

METRICS = ["tokens_per_s", "p50_s", "p95_s"]
SAVED = "one setting / no drafting"  # ratios of policies
PER_DOMAIN = "setting per domain / one setting"
IN_WORDS = {  # the panels of a figure
    "tokens_per_s": "tokens per second",
    "p50_s": "median latency (s)",
    "p95_s": "95th-percentile latency (s)",
}


def check_mix(mix: Mapping[str, float], domains: Sequence[str]) -> np.ndarray:
    """Shares of `domains` in a mix, float64; ValueError for a domain without prompts, a share below
    0 or a sum that is not 1.
    """
    shares = np.array([mix.get(name, 0.0) for name in domains])
    if unknown := [name for name in mix if name not in domains]:
        raise ValueError(
            f"mix: {named(unknown)}: no such domain; the domains here are {named(domains)} "
            "(mix={} takes all of them equally often)"
        )
    if (shares < 0).any() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(
            f"mix={dict(mix)}: the shares of {named(domains)} must be 0 or more and sum to 1"
        )
    return shares


def mix_of(mix: Mapping[str, float], domains: Sequence[str]) -> dict[str, float]:
    """A mix that `check_mix` accepts; an empty one is every domain equally often."""
    shares = dict(mix) or dict.fromkeys(domains, 1 / len(domains))
    check_mix(shares, domains)
    return shares


def mix_in_words(mix: Mapping[str, float]) -> str:
    """The shares of the requests, as a sentence."""
    shares = [f"{100 * share:.0f} % {name}" for name, share in mix.items()]
    return f"The requests are {named(shares)}."


# ---- one setting for a mix -----------------------------------------------------------------------


def best_for_mix(by_prompt: PromptCosts, mix: Mapping[str, float]) -> Choice:
    """One setting for all requests, the fastest for a mix of domains, cross-fitted. (`choose.fit`
    takes the recorded mix; here the costs of each domain weigh as much as its share.)
    """
    for_all = dict.fromkeys(by_prompt.prompts["prompt_id"], UNKNOWN)
    return choose.fit(weighed(by_prompt, mix), for_all, paid=by_prompt, n=1)


def weighed(by_prompt: PromptCosts, mix: Mapping[str, float]) -> PromptCosts:
    """The costs with each domain's prompts weighing as much as the domain's share in a mix."""
    prompts = by_prompt.prompts
    domains = domains_in(prompts)
    shares = pd.Series(check_mix(mix, domains), domains)
    weight = shares / prompts["domain"].value_counts()
    domain = by_prompt.table.index.get_level_values("domain")
    return PromptCosts(by_prompt.table.mul(domain.map(weight), axis=0))


# ---- the stream ----------------------------------------------------------------------------------


def finish_times(arrival: np.ndarray, service: np.ndarray) -> np.ndarray:
    """When each request is done on one server, in order of arrival; arrays [..., requests],
    arrivals ascending.

    Lindley's recursion, finish = max(arrival, finish before) + service, as a running maximum.
    """
    done = service.cumsum(axis=-1)
    begun = done - service
    idle = np.maximum.accumulate(arrival - begun, axis=-1)
    return done + idle


def draw(
    shares: np.ndarray, gap: float | np.ndarray, requests: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A stream from each row of prompt probabilities [rows, prompts]: prompt numbers and arrival
    times, [rows, requests] each. gap: mean time between arrivals, one or [rows, 1].
    """
    coins = rng.random((len(shares), requests))
    ends = shares.cumsum(axis=1)
    scaled = coins * ends[:, -1:]
    rows = zip(ends, scaled, strict=True)
    which = [np.searchsorted(end, coin, side="right") for end, coin in rows]
    arrival = rng.exponential(gap, coins.shape).cumsum(axis=1)
    return np.stack(which), arrival


def simulate(
    policies: Mapping[str, Choice],
    mix: Mapping[str, float],
    target_ms: float,
    load: float = 0.8,
    requests: int = 300,
    streams: int = 4,
    n: int = RESAMPLES,
) -> Draws:
    """Serve streams of a mix under each policy ("never" among them), one request at a time: for
    each a frame of draws, columns METRICS. Settings are held fixed in the resamples.

    load: share of the time that "never", plain decoding, would be busy. tokens_per_s: tokens per
    second of work, which idle time does not lower; p50_s, p95_s: latency with waiting, from an
    empty server on. Each is the mean over `streams` of this many `requests`. ValueError: see
    `check_mix`.
    """
    names = list(policies)
    tables = [choice.judged.set_index("prompt_id").sort_index() for choice in policies.values()]
    assert all(table.index.equals(tables[0].index) for table in tables)
    ids = tables[0].reset_index()[PROMPT]
    work = [table[["emitted", "cost"]].to_numpy(float).T for table in tables]
    prompts = resampling_of(ids, n)  # in the order of their ids too
    share = check_mix(mix, prompts.domains) / np.bincount(prompts.domain)
    probability = share[prompts.domain]
    _, plain_cost = work[names.index("never")]
    gap = float(probability @ plain_cost) / load
    of_resample = prompts.weights * probability
    total = np.zeros((len(names), n + 1, len(METRICS)))
    for number in range(streams):
        rng = np.random.default_rng([0, number])
        which, arrival = draw(of_resample, gap, requests, rng)
        total += [_served(*own[:, which], arrival, target_ms / 1e3) for own in work]
    means = [pd.DataFrame(mean, columns=METRICS) for mean in total / streams]
    return Draws(dict(zip(names, means, strict=True)), prompts, {})


def _served(
    emitted: np.ndarray, cost: np.ndarray, arrival: np.ndarray, pass_s: float
) -> np.ndarray:
    """METRICS of streams, [rows, METRICS], from [rows, requests] each and the seconds of a pass."""
    waiting = finish_times(arrival, cost) - arrival
    median, late = np.quantile(waiting, [0.5, 0.95], axis=-1) * pass_s
    busy_s = cost.sum(axis=-1) * pass_s
    rate = emitted.sum(axis=-1) / busy_s
    return np.stack([rate, median, late], axis=-1)


def by_metric(
    served: Draws, draws: Mapping[str, pd.DataFrame] | None = None, key: str = "policy"
) -> Estimates:
    """`Draws.table` of what `simulate` served, or of `draws` made of it: `key`, metric, estimate,
    low, high, …
    """
    return Estimates(served.table(draws, key).frame.rename(columns={"domain": "metric"}))


# ---- full batches --------------------------------------------------------------------------------
# Requests whose blocks are made together: one draft pass per level over all their nodes, one target
# pass over all their tokens.


def flat_until(knee: int, c: float) -> Costs:
    """An assumed accelerator: a pass takes no longer until it holds `knee` tokens, and then grows
    in proportion; a draft pass costs c of it.
    """
    sizes = (1, knee, 16 * knee)
    draft = (c, c, 16 * c)
    verify = (1.0, 1.0, 16.0)
    return Costs(target_ms=1.0, sizes=sizes, draft=draft, verify=verify)


def extended(costs: Costs, largest: int) -> Costs:
    """`costs` up to passes over `largest` tokens.

    Beyond the last measured size this is an extrapolation: a straight line with the slope from the
    largest size of at most half of it to the last one; it never falls.
    """
    last = costs.sizes[-1]
    if largest <= last:
        return costs
    half = max(n for n in costs.sizes if n <= last / 2)
    beyond = (largest - last) / (last - half)
    ends = {}
    for name, ratio in (("draft", costs.c), ("verify", costs.v)):
        rise = max(ratio(last) - ratio(half), 0.0)
        ends[name] = (*getattr(costs, name), ratio(last) + rise * beyond)
    return replace(costs, sizes=(*costs.sizes, int(largest)), **ends)


def batched(costs: Costs, batch: int, nodes: int) -> Costs:
    """The machine as one request sees it in batches of `batch` that are always full, all drafting
    trees of the same shape.

    Its target pass over one token is its share of a pass over `batch` tokens (target_ms v(batch) /
    batch), and the other costs are ratios to it: v(n batch) / v(batch), c(n batch) / v(batch), the
    overhead of a block once per batch. `nodes`: tokens of the largest pass that a request needs.
    Passes beyond the measured sizes are `extended`.
    """
    sizes = np.arange(1, nodes + 1)
    wide = extended(costs, batch * nodes)
    one = wide.v(batch)
    draft = wide.c(sizes * batch) / one
    verify = wide.v(sizes * batch) / one
    loops = costs.loop(True) / one, costs.loop(False) / one
    ratios = [tuple(values.tolist()) for values in (sizes, draft, verify)]
    return Costs(costs.target_ms * one / batch, *ratios, *loops)


def by_batch(
    counted: pd.DataFrame,
    settings: Settings,
    machines: Mapping[str, Costs],
    batches: Sequence[int],
    n: int = 500,
) -> Estimates:
    """Speed-up of the best drafting setting in full batches: machine, batch, domain (and pooled);
    `setting`, and `pass_tokens` of its target pass over the whole batch. The setting is chosen on
    the prompts that judge it, and held fixed in their resamples.
    """
    shapes = {name: shape for name, shape in settings.items() if shape.size}
    sizes = {name: shape.size for name, shape in shapes.items()}
    parts = {}
    for machine, costs in machines.items():
        for batch in batches:
            in_batches = batched(costs, batch, 1 + max(sizes.values()))
            by_prompt = choose.prompt_costs(counted, shapes, in_batches)
            best = choose.fastest_rows(choose.best_setting(by_prompt, n))
            pass_tokens = batch * (best["setting"].map(sizes) + 1)
            parts[machine, batch] = best.assign(pass_tokens=pass_tokens)
    table = stack(parts, ["machine", "batch"]).rename(columns={"speedup": "estimate"})
    keys = ["machine", "batch", "domain"]
    return Estimates(table[[*keys, *NUMBERS, "setting", "pass_tokens"]])


# ---- in words ------------------------------------------------------------------------------------


def as_drawn(result: Estimates) -> Estimates:
    """`by_metric` as a figure shows it, with the names of the page."""
    rows = policies.with_names(result).frame
    return Estimates(rows.assign(metric=rows["metric"].map(IN_WORDS), bars="95 % intervals"))


def batches_in_words(crowd: Estimates) -> str:
    """From which batch size on drafting makes no domain faster, as a clause."""
    rows = crowd.without(domain=POOLED).frame
    if rows["low"].isna().all():
        return "the speed-up of drafting has no interval"
    helps = verdict(rows["low"], rows["high"], 1) == ABOVE
    most = rows["batch"].max()
    last = rows["batch"][helps].max()  # NaN: none is helped
    if last == most:
        return f"drafting still helps a domain at batch {most}"
    beyond = rows["batch"][~(rows["batch"] <= last)]
    return f"drafting makes no domain faster from batch {beyond.min()} on"


def server_in_words(
    saved: Estimates,
    per_domain: Estimates | None,
    place: str,
    batches: str,
    is_measured: bool,
    is_trusted: bool,
) -> str:
    """Notebook 14's answer. saved, per_domain: tokens per second, of one setting over no drafting
    on the own prompts, and of a setting per domain over one on `place` (None: one domain); batches:
    of `batches_in_words`, or "".
    """
    start = "In this simulation" if is_measured else "At assumed costs"
    said = f"{start} one setting {saved_in_words(saved)}."
    if not is_trusted:
        return f"Timing was unreliable in notebook 09, so there is no verdict on speed. {said}"
    if per_domain:
        words = {ABOVE: "faster", BELOW: "slower"}
        word = words.get(per_domain.verdict(1), "not significantly faster")
        said += f" A setting per domain is {word} {place}."
    return f"{said} At these costs {batches}." if batches else said


def saved_in_words(saved: Estimates) -> str:
    """How much faster one setting for all serves than no drafting, as the end of a sentence."""
    return f"gives {saved.in_units('')} times the tokens per second of no drafting"

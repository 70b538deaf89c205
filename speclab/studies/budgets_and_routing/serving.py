"""A server with a mix of domains, simulated over recorded texts: what a policy of speculation is
worth in tokens per second and latency.

A request is a recorded prompt; what it costs under a policy is a *judged* frame
(`speclab.analysis.choose`: one row a prompt, cost in target passes over one token), and that is its
service time. The server, as modelled: requests arrive as a Poisson process, first come first
served; prefill, network and memory limits are left out.

* One request at a time (`finish_times`): Lindley's recursion.
* Batches (`lockstep`): whenever a block ends, waiting requests join until `batch` are active; then
  all make one block together, a draft pass a level over all their nodes and one target pass over
  all their tokens. What one request costs where batches are always full is priced by `batched`, so
  that everything in `speclab.analysis.choose` can be asked of a batch, too.

Intervals: prompts are resampled within their domain (outside), and each resample serves streams
drawn from it with fresh seeds (inside), whose mean counts. So an interval covers which prompts were
recorded and what the seeds left of chance. All policies serve the same streams. NumPy and pandas
only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from speclab.analysis.choose import PLAIN, fastest, judge
from speclab.cost import Costs
from speclab.replay import replay
from speclab.score import domains_in, require
from speclab.stats import BOUNDS, RESAMPLES, fold_of, prompts_of
from speclab.tree import Tree

if TYPE_CHECKING:
    from speclab.studies.budgets_and_routing.online import Walks

NEVER = "never"
PROMPT, COUNTS = ["prompt_id", "domain"], ["emitted", "target_passes", "draft_passes", "cost"]
METRICS = ("tokens_per_s", "p50_s", "p95_s", "passes_saved", "drafts_per_token")
SHARES = (
    "passes_saved",
    "drafts_per_token",
)  # metrics that may be 0: compared by difference, not ratio


def check_mix(mix: Mapping[str, float], domains: Sequence[str]) -> np.ndarray:
    """Shares of `domains` in a mix, float64; ValueError for a domain without prompts, a share below
    0 or a sum that is not 1.
    """
    unknown = [name for name in mix if name not in domains]
    if unknown:
        raise ValueError(
            f"mix names {unknown}: there are prompts of {', '.join(domains)} only; record the others or leave them out"
        )
    shares = np.array([mix.get(name, 0.0) for name in domains], np.float64)
    if not np.isfinite(shares).all() or (shares < 0).any() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(
            f"mix {dict(mix)} has shares that sum to {shares.sum():g}: shares from 0 that sum to 1 are needed"
        )
    return shares


# ---- a machine and its loop ----------------------------------------------------------------------


@dataclass(frozen=True)
class LoopCosts(Costs):
    """Costs of a machine whose loop takes longer over a tree than over a chain: `tree_overhead` a
    block, a chain `overhead`.
    """

    tree_overhead: float = 0.0

    def of_block(self, tree: Tree) -> float:
        """Cost of one block of a tree or chain, as `Costs.of_block`."""
        return super().of_block(tree) + (
            0.0 if tree.is_chain else self.tree_overhead - self.overhead
        )


def with_loop(costs: Costs, speeds: pd.DataFrame, settings: Mapping[str, Tree]) -> LoopCosts:
    """`costs` with the loop's own time, from texts decoded in turn (`timing.decoded_speed`, methods
    named as the settings).

    It is the time of a block over that of a plain token of the same prompt, less the block's
    passes: the median over prompts and settings, 0 where it drowns in the noise; chains and trees
    apart, a kind that was not decoded keeps what `costs` says. So the price of a block is relative
    to what plain decoding really takes.
    """
    each = speeds.groupby(["method", "prompt_id"])[["tokens", "blocks", "time_s"]].median()
    if absent := sorted({PLAIN, *settings} - set(each.index.levels[0])):
        raise ValueError(
            f"speeds lack {absent}: decode plainly and with every setting, on the same prompts"
        )
    token_s, found = (each["time_s"] / each["tokens"]).loc[PLAIN], {True: [], False: []}
    for name, tree in settings.items():
        block_s = (each["time_s"] / each["blocks"]).loc[name]
        found[tree.is_chain] += (
            block_s / token_s - (costs.of_block(tree) - _loop(costs, tree.is_chain))
        ).to_list()
    chains, trees = (
        max(0.0, float(np.median(found[kind]))) if found[kind] else _loop(costs, kind)
        for kind in (True, False)
    )
    return LoopCosts(costs.target_ms, costs.sizes, costs.draft, costs.verify, chains, trees)


def _loop(costs: Costs, chain: bool) -> float:
    """What the loop takes a block of a chain, or of a tree."""
    return costs.overhead if chain else getattr(costs, "tree_overhead", costs.overhead)


# ---- batches -------------------------------------------------------------------------------------


def extended(costs: Costs, largest: int) -> Costs:
    """`costs` up to passes over `largest` tokens.

    Beyond the last measured size this is an extrapolation: a straight line with the slope from the
    largest size of at most half of it to the last one; it never falls.
    """
    last = costs.sizes[-1]
    if largest <= last or last == 1:
        return costs
    half = max(n for n in costs.sizes if n <= last / 2)

    def onward(ratios: tuple[float, ...], at_half: float) -> tuple[float, ...]:
        return (
            *ratios,
            ratios[-1] + max(ratios[-1] - at_half, 0.0) / (last - half) * (largest - last),
        )

    draft, verify = onward(costs.draft, costs.c(half)), onward(costs.verify, costs.v(half))
    return replace(costs, sizes=(*costs.sizes, int(largest)), draft=draft, verify=verify)


def batched(costs: Costs, batch: int, nodes: int) -> Costs:
    """The machine as one request sees it in batches of `batch` that are always full, all drafting
    trees of the same shape.

    Its target pass over one token is its share of one over `batch` tokens (target_ms v(batch) /
    batch), and the others are ratios to it: v(n batch) / v(batch), c(n batch) / v(batch), the
    overhead of a block once a batch. `nodes`: tokens of the largest pass a request needs. Passes
    beyond the measured sizes are `extended`.
    """
    if batch < 1 or nodes < 1:
        raise ValueError(f"batch={batch}, nodes={nodes}: whole numbers from 1 are needed")
    wide, sizes = extended(costs, batch * nodes), tuple(range(1, nodes + 1))
    draft, verify = (tuple(at(n * batch) / wide.v(batch) for n in sizes) for at in (wide.c, wide.v))
    loops = {
        name: getattr(costs, name) / wide.v(batch)
        for name in ("overhead", "tree_overhead")
        if hasattr(costs, name)
    }
    return replace(
        costs,
        target_ms=costs.target_ms * wide.v(batch) / batch,
        sizes=sizes,
        draft=draft,
        verify=verify,
        **loops,
    )


@dataclass(frozen=True)
class Work:
    """A request in blocks: `tokens` of each target pass (the root included), int [blocks], and the
    tokens of its draft passes, int [blocks, levels], 0 where it makes none.
    """

    tokens: np.ndarray
    drafts: np.ndarray


def work(
    trace: pd.DataFrame, tree: Tree, max_new_tokens: int | None = None
) -> dict[str, Work]:
    """The blocks of every recorded text (T = 0) under a tree, by prompt_id.

    max_new_tokens: the decoder's limit, below which it drafts past an EOS it cannot foresee; None:
    it drafts nothing past the end.
    """
    require(trace, [*PROMPT, "position"], "trace")
    if not tree.size:
        sizes = trace.groupby("prompt_id", sort=False).size()
        return {
            name: Work(np.ones(size, int), np.zeros((size, 0), int)) for name, size in sizes.items()
        }
    nodes = np.bincount(tree.depth).cumsum()
    inner = np.array([(tree.width[tree.level(depth)] > 0).sum() for depth in range(tree.max_depth)])
    blocks = replay(trace, tree)
    room = blocks["remaining"] if max_new_tokens is None else max_new_tokens - blocks["start"]
    levels = np.minimum(room, tree.max_depth).groupby(blocks["prompt_id"], sort=False)
    return {
        name: Work(nodes[d], np.where(np.arange(len(inner)) < d.to_numpy()[:, None], inner, 0))
        for name, d in levels
    }


def lockstep(arrival: np.ndarray, requests: Sequence[Work], batch: int, costs: Costs) -> np.ndarray:
    """When each request is done on a server that makes the blocks of up to `batch` requests
    together; times in target passes.

    A step in which somebody drafts also costs the largest overhead. Passes over more tokens than
    were measured are refused (`extended`).
    """
    if batch < 1 or len(arrival) != len(requests) or not len(arrival):
        raise ValueError(
            f"batch={batch}, {len(arrival)} arrivals, {len(requests)} requests: a batch from 1 and an arrival each are needed"
        )
    finish, place, active, clock, coming = np.zeros(len(arrival)), [0] * len(requests), [], 0.0, 0
    while active or coming < len(arrival):
        clock = clock if active else max(clock, arrival[coming])
        while coming < len(arrival) and len(active) < batch and arrival[coming] <= clock:
            active.append(coming)
            coming += 1
        clock += _step_cost(
            [(requests[i].tokens[place[i]], requests[i].drafts[place[i]]) for i in active], costs
        )
        for i in active:
            place[i] += 1
            finish[i] = clock
        active = [i for i in active if place[i] < len(requests[i].tokens)]
    return finish


def _step_cost(blocks: list[tuple[int, np.ndarray]], costs: Costs) -> float:
    """Blocks made together: a draft pass a level over the tokens of all of them, one target pass."""
    levels = max(len(drafts) for _, drafts in blocks)
    widths = [
        sum(int(drafts[level]) for _, drafts in blocks if level < len(drafts))
        for level in range(levels)
    ]
    passes = sum(costs.c(width) for width in widths if width) + costs.v(
        int(sum(tokens for tokens, _ in blocks))
    )
    # a chain has one token a draft pass, and the root
    loops = [
        _loop(costs, tokens == (drafts > 0).sum() + 1) for tokens, drafts in blocks if tokens > 1
    ]
    return passes + max(loops, default=0.0)


# ---- policies ------------------------------------------------------------------------------------


def with_passes(judged: pd.DataFrame, counts: pd.DataFrame) -> pd.DataFrame:
    """A judged frame with target_passes and draft_passes of each prompt, from `budgets.counts` of
    its settings.
    """
    passes = counts.assign(draft_passes=counts["levels"] * counts["blocks"]).rename(
        columns={"blocks": "target_passes"}
    )
    sums = (
        passes.groupby(["setting", "prompt_id"])[["target_passes", "draft_passes"]]
        .sum()
        .reset_index()
    )
    found = judged.merge(sums, on=["setting", "prompt_id"], how="left")
    if found["target_passes"].isna().any():
        raise ValueError(
            f"counts lack setting {found.loc[found['target_passes'].isna(), 'setting'].iloc[0]!r}: count it too"
        )
    return found


def online_passes(
    judged: pd.DataFrame,
    at: "Walks",
    settings: Mapping[str, Tree],
    first: str,
    blocks: int,
    max_new_tokens: int | None = None,
) -> pd.DataFrame:
    """`with_passes` of `online.online`: the first `blocks` blocks draft by the setting `first`, the
    others by each prompt's own.
    """
    names, everyone = list(at.settings), np.arange(len(at.length))
    chosen = judged.set_index("prompt_id")["setting"].loc[at.prompt_id].map(names.index).to_numpy()
    depth = np.array([settings[name].max_depth for name in names])
    place, target, draft, step = (np.zeros(len(at.length), int) for _ in range(4))
    while (live := place < at.length).any():
        setting = np.where(step < blocks, names.index(first), chosen)
        room = (at.length if max_new_tokens is None else max_new_tokens) - place
        target, draft = target + live, draft + live * np.minimum(depth[setting], room)
        place, step = (
            place + live * at.emitted[setting, everyone, np.minimum(place, at.length - 1)],
            step + 1,
        )
    found = pd.DataFrame(
        {"prompt_id": at.prompt_id, "target_passes": target, "draft_passes": draft}
    )
    return judged.merge(found, on="prompt_id")


def always(
    table: pd.DataFrame, mix: Mapping[str, float], folds: int = 5, seed: int = 0
) -> pd.DataFrame:
    """One setting for everybody, the cheapest for a mix of domains: a judged frame, each prompt's
    chosen on the other folds' prompts.

    table: of `budgets.price`. (`budgets.cross_fit` takes the mix of the prompts as they were
    recorded.)
    """
    domains = domains_in(require(table, ["setting", *PROMPT, "cost"], "table"))
    shares, prompts = check_mix(mix, domains), table.drop_duplicates("prompt_id")
    fold = pd.Series(fold_of(prompts["domain"].to_numpy(), folds, seed), prompts["prompt_id"])
    chosen = {}
    for number in range(folds):
        rest = table[table["prompt_id"].map(fold) != number]
        mean = (
            rest.groupby(["setting", "domain"], sort=False, observed=True)["cost"]
            .mean()
            .unstack("domain")[list(domains)]
        )
        best = mean.index[fastest(1 / (mean @ shares).to_numpy())]
        chosen |= dict.fromkeys(fold.index[fold == number], best)
    return judge(table, chosen)


def drift(table: pd.DataFrame, mixes: Mapping[str, Mapping[str, float]], per_domain: pd.DataFrame, n: int = RESAMPLES,
          seed: int = 0) -> pd.DataFrame:  # fmt: skip
    """Speed-up of one setting fitted to one mix and served another: fitted_on, served, estimate,
    low, high; then of `per_domain` (a judged frame), which no mix was fitted to.
    """
    frames = {name: always(table, mix) for name, mix in mixes.items()} | {"per-domain": per_domain}
    rows = []
    for fitted_on, frame in frames.items():
        prompts = prompts_of(frame, n, seed)
        sums = prompts.resampled(prompts.totals(frame[["emitted", "cost"]].to_numpy(float)))
        means = sums / np.bincount(prompts.domain)[:, None]
        for name, mix in mixes.items():
            speed = np.divide(*np.tensordot(means, check_mix(mix, prompts.domains), (1, 0)).T)
            rows.append((fitted_on, name, speed[0], *np.quantile(speed[1:], BOUNDS)))
    return pd.DataFrame(rows, columns=["fitted_on", "served", "estimate", "low", "high"])


# ---- the stream ----------------------------------------------------------------------------------


def finish_times(arrival: np.ndarray, service: np.ndarray) -> np.ndarray:
    """When each request is done on one server, first come first served; arrays [..., requests],
    arrivals ascending.

    Lindley's recursion, finish = max(arrival, finish before) + service, as a running maximum.
    """
    done = service.cumsum(axis=-1)
    return done + np.maximum.accumulate(arrival - (done - service), axis=-1)


@dataclass(frozen=True)
class Outcome:
    """What streams gave: `values` [policies, METRICS, 1 + resamples], of the recorded prompts
    themselves first.
    """

    policies: tuple[str, ...]
    values: np.ndarray

    def table(self, against: str | None = None) -> pd.DataFrame:
        """metric, policy, estimate, low, high; `against` a policy: ratios to it (differences for
        SHARES, which may be 0).
        """
        values = self.values
        if against is not None:
            base, differ = values[self.policies.index(against)], np.isin(METRICS, SHARES)[:, None]
            values = np.where(differ, values - base, values / np.where(differ, 1.0, base))
        low, high = np.quantile(values[..., 1:], BOUNDS, axis=-1)
        cells = [
            (metric, policy, m, p)
            for m, metric in enumerate(METRICS)
            for p, policy in enumerate(self.policies)
        ]
        rows = [
            (metric, policy, values[p, m, 0], low[p, m], high[p, m])
            for metric, policy, m, p in cells
        ]
        return pd.DataFrame(rows, columns=["metric", "policy", "estimate", "low", "high"])


def draw(
    shares: np.ndarray, gap: float, requests: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A stream from each row of prompt probabilities [rows, prompts]: prompt numbers and arrival
    times, [rows, requests] each.
    """
    coins, ends = rng.random((len(shares), requests)), shares.cumsum(axis=1)
    which = np.stack(
        [
            np.searchsorted(end, coin * end[-1], side="right")
            for end, coin in zip(ends, coins, strict=True)
        ]
    )
    return which, rng.exponential(gap, which.shape).cumsum(axis=1)


def simulate(
    policies: Mapping[str, pd.DataFrame], mix: Mapping[str, float], target_ms: float, load: float = 0.8, requests: int = 300,
    seeds: int = 4, n: int = RESAMPLES, seed: int = 0,
) -> Outcome:  # fmt: skip
    """Serve streams of a mix under each policy, one request at a time.

    policies: frames of `with_passes` by name, "never" among them.

    load: share of the time that "never", plain decoding, would be busy. tokens_per_s: tokens per
    second of work, what a server gives that never waits; p50_s, p95_s: latency, waiting included,
    from an empty server on; passes_saved: 1 - target passes / tokens; drafts_per_token: draft
    passes a token. Each is the mean over `seeds` streams of `requests`. ValueError: see
    `check_mix`; policies that serve different prompts; fewer than 5 prompts in a domain.
    """
    if not load > 0 or min(requests, seeds) < 1 or NEVER not in policies:
        raise ValueError(
            f"load={load}, requests={requests}, seeds={seeds}, policies {list(policies)}: a load above 0, at least one of the "
            f"others, and the policy {NEVER!r} are needed"
        )
    prompts = prompts_of(policies[NEVER][PROMPT], n, seed)
    counts = np.stack(
        [_counts(name, frame, policies[NEVER]) for name, frame in policies.items()]
    )  # [policies, COUNTS, prompts]
    share = (
        check_mix(mix, prompts.domains)[prompts.domain]
        / np.bincount(prompts.domain)[prompts.domain]
    )
    gap = float(share @ counts[list(policies).index(NEVER), -1]) / load
    total = np.zeros((len(policies), len(METRICS), n + 1))
    for number in range(seeds):
        which, arrival = draw(
            prompts.weights * share, gap, requests, np.random.default_rng([seed, number])
        )
        total += [_measured(of[:, which], arrival, target_ms / 1e3) for of in counts]
    return Outcome(tuple(policies), total / seeds)


def _counts(name: str, frame: pd.DataFrame, never: pd.DataFrame) -> np.ndarray:
    """COUNTS of every prompt in the order of ids, as `stats.prompts_of` numbers them; ValueError if
    they are not those of `never`.
    """
    rows, others = (
        f.assign(prompt_id=f["prompt_id"].astype(str)).sort_values("prompt_id")
        for f in (require(frame, COUNTS, name), never)
    )
    same = (
        rows[["prompt_id", "domain", "emitted"]].to_numpy().tolist()
        == others[["prompt_id", "domain", "emitted"]].to_numpy().tolist()
    )
    if not same:
        raise ValueError(
            f"policy {name!r} serves other prompts or tokens than {NEVER!r}: judge all on one table"
        )
    return rows[COUNTS].to_numpy(float).T


def _measured(counts: np.ndarray, arrival: np.ndarray, second: float) -> np.ndarray:
    """METRICS of streams: counts [COUNTS, rows, requests] and arrival times; `second`: seconds of a
    target pass. [METRICS, rows]
    """
    tokens, target, draft, cost = counts.sum(axis=-1)
    latency = (
        np.quantile(finish_times(arrival, counts[-1]) - arrival, [0.5, 0.95], axis=-1) * second
    )
    return np.stack([tokens / (cost * second), *latency, 1 - target / tokens, draft / tokens])

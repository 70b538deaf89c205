"""Budgets: how much to draft for whom, from the trace of one run, with the uncertainty of the
choice and what a wrong one costs.

A *setting* is a name and a `Tree`, of no node for plain decoding; `counts` replays every setting on
every recorded text, `price` turns blocks into target passes on one machine. A lossless text is the
same under every setting, so speed-up = emitted / cost over any group of prompts, and the best
setting is the one of least cost. A *judged* frame has one row a prompt: prompt_id, domain, setting,
emitted, cost. NumPy and pandas only. speed-up x 1000 / `Costs.target_ms` = tokens per second behind
the prefill.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from speclab import replay
from speclab.cost import Costs
from speclab.score import POOLED, Estimator, domains_in, quotient, require
from speclab.stats import BOUNDS, RESAMPLES, Prompts, by_domain, fold_of, prompts_of
from speclab.tree import Tree

PLAIN, UNKNOWN = (
    "plain",
    "unknown",
)  # the setting that drafts nothing; the label of a prompt of no known domain
CS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # c of `curves`
Settings = Mapping[str, Tree]
KEYS, SUMS = (
    ["setting", "prompt_id", "domain"],
    ["blocks", "drafted", "accepted", "emitted", "cost"],
)


def assumed(
    c: float,
    per_token: float = 0.0,
    overhead: float = 0.0,
    target_ms: float = 1.0,
    largest: int = 256,
) -> Costs:
    """Costs of a machine that was not measured: a draft pass of any width costs c, v(n) = 1 +
    per_token (n - 1), n up to `largest`.
    """
    return Costs(target_ms, (1, largest), (c, c), (1.0, 1.0 + per_token * (largest - 1)), overhead)


# ---- the fastest setting: the one definition ------------------------------------------------------


def fastest(speedup: np.ndarray) -> np.ndarray:
    """The number of the fastest setting: the highest speed-up along the last axis, the first of
    equals. This is the kit's one definition; whoever picks a setting asks here.

    The speed-up of a group of prompts is the sum of their tokens over the sum of their costs. A
    lossless text is the same under every setting, so `fastest(1 / cost)` of summed costs [...,
    settings] is the same choice.
    """
    return np.asarray(speedup).argmax(axis=-1)


def fastest_rows(table: pd.DataFrame, by: str = "domain") -> pd.DataFrame:
    """The row of the fastest setting for each value of `by`, from a table with a column speedup."""
    groups = [part for _, part in table.groupby(by, sort=False, observed=True)]
    return pd.concat([part.iloc[[fastest(part["speedup"])]] for part in groups])


def how_sure(speedup: np.ndarray, settings: Sequence) -> pd.DataFrame:
    """How sure it is which setting is the fastest, from speed-ups [1 + n, settings]: of the sample
    itself, then of n resamples of its prompts. One row a setting.

    setting, speedup with low and high; share_best: the share of the resamples in which it is the
    `fastest`; behind, behind_low, behind_high: the speed-up of the sample's fastest setting minus
    this one's. The fastest one's speed-up is chosen and judged on the same prompts, which flatters
    it slightly: `cross_fitted` chooses without that bias.
    """
    best = fastest(speedup)
    behind = speedup[:, best[0], None] - speedup
    low, high = np.quantile(speedup[1:], BOUNDS, axis=0)
    behind_low, behind_high = np.quantile(behind[1:], BOUNDS, axis=0)
    times_best = np.bincount(best[1:], minlength=len(settings))
    return pd.DataFrame(
        {
            "setting": settings,
            "speedup": speedup[0],
            "low": low,
            "high": high,
            "share_best": times_best / len(best[1:]),
            "behind": behind[0],
            "behind_low": behind_low,
            "behind_high": behind_high,
        }
    )


def cross_fitted(
    cost: np.ndarray, domain: np.ndarray, fold: np.ndarray, taken_for: np.ndarray | None = None
) -> np.ndarray:
    """The number of each prompt's setting, int [prompts]: the `fastest` on the prompts of its domain
    that are in other folds, so that no prompt has a say in the choice it is judged by.

    cost [prompts, settings]: of texts that are the same under every setting. domain, fold: of each
    prompt. taken_for: the domain that each prompt is taken for (None: its own); where that is
    UNKNOWN, the choice is made on the prompts of all domains.
    """
    taken_for = domain if taken_for is None else taken_for
    chosen = np.zeros(len(cost), int)
    for held_out in pd.unique(fold):
        for label in pd.unique(taken_for):
            fitted_on = (fold != held_out) & ((domain == label) | (label == UNKNOWN))
            here = (fold == held_out) & (taken_for == label)
            chosen[here] = fastest(1 / cost[fitted_on].sum(axis=0))
    return chosen


# ---- replayed and priced -------------------------------------------------------------------------


def counts(
    trace: pd.DataFrame, settings: Settings, rule: str = "greedy", max_new_tokens: int | None = None
) -> pd.DataFrame:
    """Sums over the blocks of each setting and prompt, by the `levels` that were drafted (fewer
    than the depth near a text's end).

    Columns KEYS, levels, blocks, drafted, accepted, emitted. rule: as in `replay.chain_sums`;
    "rejection" replays chains only. max_new_tokens: the decoder's limit, up to which it drafts past
    an EOS it cannot foresee; None: nothing is drafted past the text's end.
    """
    require(trace, ["prompt_id", "domain", "position"], "trace")
    if rule not in replay.RULES:
        raise ValueError(f"rule = {rule!r} is unknown; allowed: {', '.join(replay.RULES)}")
    if max_new_tokens is not None and max_new_tokens <= trace["position"].max():
        raise ValueError(
            f"max_new_tokens={max_new_tokens}: a text has {trace['position'].max() + 1} tokens; give the limit it ran under"
        )
    parts = [
        _counted(trace, tree, rule, max_new_tokens).assign(setting=name)
        for name, tree in settings.items()
    ]
    return pd.concat(parts, ignore_index=True)[[*KEYS, "levels", *SUMS[:-1]]]


def _counted(trace: pd.DataFrame, tree: Tree, rule: str, limit: int | None) -> pd.DataFrame:
    by = ["prompt_id", "domain", "levels"]
    if not tree.size:
        one = trace[by[:2]].assign(levels=0, blocks=1.0, drafted=0.0, accepted=0.0, emitted=1.0)
        return one.groupby(by, sort=False, observed=True).sum().reset_index()
    if rule == "rejection" and not tree.is_chain:
        raise ValueError(
            "rule = 'rejection' replays chains; leave trees out, or use 'point-mass' for deterministic children"
        )
    blocks = (
        replay.replay_sampled(trace, tree.size)
        if rule == "rejection"
        else replay.replay(trace, tree)
    )
    levels, weight = levels_at(blocks, tree, limit), blocks["weight"]
    sums = {
        "drafted": np.bincount(tree.depth)[1:].cumsum()[levels - 1],
        "accepted": blocks["accepted"],
        "emitted": blocks["emitted"],
    }
    found = blocks[by[:2]].assign(
        levels=levels, blocks=weight, **{name: weight * value for name, value in sums.items()}
    )
    return found.groupby(by, sort=False, observed=True).sum().reset_index()


def levels_at(blocks: pd.DataFrame, tree: Tree, limit: int | None) -> np.ndarray:
    """Levels drafted in each block of a replay, int [blocks]; limit: `max_new_tokens` of `counts`,
    past which no decoder drafts.
    """
    return np.minimum(
        blocks["remaining"] if limit is None else limit - blocks["start"], tree.max_depth
    ).to_numpy(int)


def block_prices(settings: Settings, costs: Costs) -> dict[str, np.ndarray]:
    """For each setting the target passes of a block of 0, 1, … levels, [depth + 1]; entry 0 is a
    plain pass, 1.

    ValueError naming the setting if `costs` were not measured for so many tokens a pass.
    """
    prices = {}
    for name, tree in settings.items():
        try:
            deeper = [costs.of_block(tree.upto(level)) for level in range(1, tree.max_depth + 1)]
        except ValueError as error:
            raise ValueError(
                f"setting {name!r} cannot be priced: {error}; or leave it out"
            ) from None
        prices[name] = np.array([1.0, *deeper])
    return prices


def price(found: pd.DataFrame, settings: Settings, costs: Costs) -> pd.DataFrame:
    """`counts` on a machine: one row a setting and prompt (KEYS and SUMS), cost in target passes;
    plain decoding costs its tokens.
    """
    require(found, [*KEYS, "levels", *SUMS[:-1]], "counts")
    prices, codes = block_prices(settings, costs), found.groupby("setting", sort=False).groups
    if absent := [name for name in codes if name not in prices]:
        raise ValueError(
            f"settings lack {absent}, which were counted: pass the settings that `counts` was given"
        )
    cost = pd.Series(0.0, index=found.index)
    for name, rows in codes.items():
        cost[rows] = prices[name][found.loc[rows, "levels"]] * found.loc[rows, "blocks"]
    return (
        found.assign(cost=cost).groupby(KEYS, sort=False, observed=True)[SUMS].sum().reset_index()
    )


def prompt_table(
    trace: pd.DataFrame,
    settings: Settings,
    costs: Costs,
    rule: str = "greedy",
    max_new_tokens: int | None = None,
) -> pd.DataFrame:
    """Every setting on every prompt of a trace, on one machine: `price` of `counts`.

    Columns KEYS and SUMS.
    """
    return price(counts(trace, settings, rule, max_new_tokens), settings, costs)


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    """One row a prompt (prompt_id, domain, emitted), one column of costs a setting, both in order
    of appearance.
    """
    require(table, [*KEYS, "emitted", "cost"], "table")
    names, prompts = (
        pd.unique(table["setting"]),
        table.drop_duplicates("prompt_id").set_index("prompt_id")[["domain", "emitted"]],
    )
    cost = table.pivot(index="prompt_id", columns="setting", values="cost").loc[
        prompts.index, names
    ]
    if cost.isna().any(axis=None):
        raise ValueError("table: a setting lacks prompts that others have; make it from one trace")
    return pd.concat([prompts, cost], axis=1).reset_index()


# ---- the best setting ----------------------------------------------------------------------------


def _sums(prompts: Prompts, columns: np.ndarray) -> np.ndarray:
    """Sums (1 + n, domains + 1, k) over each domain and over all, of the sample and of each
    resample.
    """
    sums = prompts.resampled(prompts.totals(columns))
    return np.concatenate([sums, sums.sum(axis=1, keepdims=True)], axis=1)


def best_setting(table: pd.DataFrame, n: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """`how_sure` for each domain, then `pooled` (one setting for everyone): domain and its columns.

    ValueError if a domain has fewer than 5 prompts.
    """
    wide = _wide(table)
    prompts, names = prompts_of(wide, n, seed), list(wide.columns[3:])
    sums = _sums(prompts, wide[["emitted", *names]].to_numpy(float))
    speedup = sums[..., :1] / sums[..., 1:]
    parts = {
        domain: how_sure(speedup[:, number], names)
        for number, domain in enumerate([*prompts.domains, POOLED])
    }
    return pd.concat(parts, names=["domain"]).reset_index("domain").reset_index(drop=True)


def choose(table: pd.DataFrame) -> dict[str, str]:
    """The setting of least cost of each domain, and of all prompts together under UNKNOWN (where no
    domain is known).
    """
    wide = _wide(table)
    cost, domain = wide.iloc[:, 3:].to_numpy(float), wide["domain"].to_numpy()
    groups = {name: domain == name for name in sorted(set(domain))} | {UNKNOWN: domain == domain}
    best = {name: fastest(1 / cost[rows].sum(axis=0)) for name, rows in groups.items()}
    return {name: wide.columns[3 + number] for name, number in best.items()}


def judge(table: pd.DataFrame, chosen: str | Mapping[str, str]) -> pd.DataFrame:
    """What a choice costs each prompt: one setting for all, or a mapping from prompt_id or from
    domain to setting. A judged frame.
    """
    wide = _wide(table)
    key = (
        wide["prompt_id"]
        if not isinstance(chosen, str) and wide["prompt_id"].iloc[0] in chosen
        else wide["domain"]
    )
    setting = (
        pd.Series(chosen, index=wide.index) if isinstance(chosen, str) else key.map(dict(chosen))
    )
    if setting.isna().any():
        raise ValueError(
            f"nothing is chosen for {key[setting.isna()].iloc[0]!r}; the choice knows {sorted(chosen)[:8]}"
        )
    if unknown := sorted(set(setting) - set(wide.columns[3:])):
        raise ValueError(f"setting {unknown} is not in the table; it has {list(wide.columns[3:])}")
    cost = wide.to_numpy()[np.arange(len(wide)), wide.columns.get_indexer(setting)].astype(float)
    return wide[["prompt_id", "domain"]].assign(setting=setting, emitted=wide["emitted"], cost=cost)


def oracle(table: pd.DataFrame) -> pd.DataFrame:
    """Each prompt's own cheapest setting, chosen with hindsight: a bound that no router can pass.

    A judged frame.
    """
    wide = _wide(table)
    setting = wide.columns[3 + fastest(1 / wide.iloc[:, 3:].to_numpy(float))]
    return judge(table, dict(zip(wide["prompt_id"], setting, strict=True)))


def cross_fit(
    table: pd.DataFrame,
    routes: Mapping[str, str] | None = None,
    folds: int = 5,
    seed: int = 0,
    judged: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """A judged frame in which every prompt's setting was chosen on the other folds' prompts of its
    domain; it has `fold` as well.

    routes: prompt_id -> the domain the prompt is taken for (UNKNOWN: the setting that is best for
    all); None: its own. judged: the table in which the choice is paid for, if it is another one
    (other temperature, other machine) of the same prompts.
    """
    wide, paid = _wide(table), table if judged is None else judged
    if set(paid["prompt_id"]) != set(wide["prompt_id"]):
        raise ValueError(
            "judged holds other prompts than table: both must come from the same prompts"
        )
    ids, fold = wide["prompt_id"], fold_of(wide["domain"].to_numpy(), folds, seed)
    label = wide["domain"] if routes is None else ids.map(dict(routes))
    if odd := sorted(set(label.dropna()) - set(wide["domain"]) - {UNKNOWN}):
        raise ValueError(
            f"routes name {odd}; the table has the domains {domains_in(wide)}, and {UNKNOWN!r} stands for none"
        )
    if label.isna().any():
        raise ValueError(f"routes lack prompt {ids[label.isna()].iloc[0]!r}: route every prompt")
    cost, domain = wide.iloc[:, 3:].to_numpy(float), wide["domain"].to_numpy()
    setting = wide.columns[3 + cross_fitted(cost, domain, fold, label.to_numpy())]
    found = judge(paid, dict(zip(ids, setting, strict=True)))
    return found.assign(fold=found["prompt_id"].map(dict(zip(ids, fold, strict=True))))


def compare(
    policies: Mapping[str, pd.DataFrame], baseline: str, n: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Judged frames over the same prompts, paired: policy, quantity, domain (and all, pooled),
    estimate, low, high, n_prompts.

    quantity: speed (emitted / cost, relative to plain decoding) and minus_baseline (its difference
    from the policy `baseline`); all intervals from the same resamples of prompts. Settings are not
    chosen anew in a resample.
    """
    if baseline not in policies:
        raise ValueError(f"baseline={baseline!r} is not among the policies {list(policies)}")
    base, parts = policies[baseline].set_index("prompt_id"), []
    for name, frame in policies.items():
        if set(frame["prompt_id"]) != set(base.index) or len(frame) != len(base):
            raise ValueError(
                f"policies {name!r} and {baseline!r} were judged on different prompts; judge both on one table"
            )
        both = frame.assign(base=base["cost"].reindex(frame["prompt_id"]).to_numpy())
        for quantity in ("speed", *(() if name == baseline else ("minus_baseline",))):
            found = Estimator(
                quantity,
                lambda f: f[["emitted", "emitted", "cost", "base"]].to_numpy(float),
                _VALUES[quantity],
            )
            parts.append(by_domain(both, found, n, seed).assign(policy=name))
    table = pd.concat(parts, ignore_index=True).rename(columns={"estimator": "quantity"})
    return table[["policy", "quantity", "domain", "estimate", "low", "high", "n_prompts"]]


_VALUES = {
    "speed": lambda sums: quotient(sums)[..., :1],
    "minus_baseline": lambda sums: -np.diff(quotient(sums)),
}


# ---- other machines, other acceptance ------------------------------------------------------------


def curves(
    found: pd.DataFrame,
    settings: Settings,
    cs: Iterable[float] = CS,
    per_token: float = 0.0,
    overhead: float = 0.0,
    n: int = RESAMPLES // 4,
    seed: int = 0,
) -> pd.DataFrame:
    """The best of `settings` by c, for a user with other hardware (`assumed` costs): c, domain,
    levels, nodes and `best_setting`'s columns.

    found: `counts`. One row a c and domain (and pooled). For the best gamma, pass the chains only.
    """
    parts = []
    for c in cs:
        best = best_setting(price(found, settings, assumed(c, per_token, overhead)), n, seed)
        parts.append(fastest_rows(best).assign(c=c))
    table = pd.concat(parts, ignore_index=True)
    trees = table["setting"].map(settings)
    sizes = {
        "levels": [tree.max_depth for tree in trees],
        "nodes": [tree.size for tree in trees],
    }
    return table.assign(**sizes)[
        ["c", "domain", "setting", "levels", "nodes", "speedup", "low", "high", "share_best"]
    ]


def break_even(
    found: pd.DataFrame,
    settings: Settings,
    per_token: float = 0.0,
    overhead: float = 0.0,
    n: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """The c above which no setting is faster than plain decoding: domain (and pooled), setting (the
    last that pays), c, low, high.

    Exact: cost is linear in c. A bound at 0 or below says that not even a free draft helps.
    ValueError without a setting that drafts.
    """
    drafting = {name: tree for name, tree in settings.items() if tree.size}
    if not drafting:
        raise ValueError(
            f"settings {list(settings)} draft nothing: give at least one chain or tree"
        )
    free, paid = (
        _wide(
            price(found[found["setting"].isin(drafting)], drafting, assumed(c, per_token, overhead))
        )
        for c in (0.0, 1.0)
    )
    prompts, names = prompts_of(free, n, seed), list(drafting)
    emitted, fixed, passes = (
        _sums(prompts, columns.to_numpy(float))
        for columns in (free[["emitted"]], free[names], paid[names] - free[names])
    )
    even = (emitted - fixed) / passes
    low, high = np.quantile(even[1:].max(axis=-1), BOUNDS, axis=0)
    last = [names[i] for i in even[0].argmax(axis=-1)]
    return pd.DataFrame(
        {
            "domain": [*prompts.domains, POOLED],
            "setting": last,
            "c": even[0].max(axis=-1),
            "low": low,
            "high": high,
        }
    )


def perturb(trace: pd.DataFrame, factor: float, seed: int = 0) -> pd.DataFrame:
    """A trace whose share of positions with draft_rank 0 is `factor` times as large, in
    expectation, in every domain.

    Below 1 some first-rank positions, drawn at random, are missed by every tree; above 1 some
    others become first-rank. T = 0 and point-mass only. ValueError if a domain's share would pass
    1.
    """
    hit = require(trace, ["domain", "draft_rank"], "trace")["draft_rank"] == 0
    share = hit.groupby(trace["domain"], observed=True).transform("mean")
    if not factor >= 0 or (factor * share > 1).any():
        raise ValueError(
            f"factor={factor}: it must be at least 0 and at most {1 / share.max():.3f}, where a domain's acceptance is 1"
        )
    drawn, missed = np.random.default_rng(seed).random(len(trace)), np.iinfo(np.int32).max
    if factor <= 1:
        return trace.assign(draft_rank=trace["draft_rank"].mask(hit & (drawn >= factor), missed))
    return trace.assign(
        draft_rank=trace["draft_rank"].mask(
            ~hit & (drawn < (factor - 1) * share / (1 - share).clip(1e-12)), 0
        )
    )


def misestimated(
    trace: pd.DataFrame,
    settings: Settings,
    costs: Costs,
    factors: Iterable[float] = (0.9, 1.1),
    folds: int = 5,
    n: int = RESAMPLES,
    seed: int = 0,
    max_new_tokens: int | None = None,
) -> pd.DataFrame:
    """What it costs to choose per domain from acceptance that is wrong by a factor: `compare` with
    the choice from the truth (`x1`).
    """
    true, policies = prompt_table(trace, settings, costs, max_new_tokens=max_new_tokens), {}
    for factor in factors:
        believed = prompt_table(
            perturb(trace, factor, seed), settings, costs, max_new_tokens=max_new_tokens
        )
        policies[f"x{factor:g}"] = cross_fit(believed, None, folds, seed, judged=true)
    return compare({"x1": cross_fit(true, None, folds, seed)} | policies, "x1", n, seed)

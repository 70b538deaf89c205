"""Budgets: how much to draft for whom, from the trace of one run, with the uncertainty of the
choice and what a wrong one costs.

A *setting* is a name and a `Tree`, or None for plain decoding; `counts` replays every setting on
every recorded text, `price` turns blocks into target passes on one machine. A lossless text is the
same under every setting, so speed-up = emitted / cost over any group of prompts, and the best
setting is the one of least cost. A *judged* frame has one row a prompt: prompt_id, domain, setting,
emitted, cost. NumPy and pandas only. speed-up x 1000 / `Costs.target_ms` = tokens per second behind
the prefill.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from speclab import replay
from speclab.analysis.best_tree import best_tree, rank_acceptance
from speclab.cost import Costs
from speclab.score import POOLED, Estimator, domains_in, ratio, require
from speclab.stats import BOUNDS, RESAMPLES, Prompts, by_domain, fold_of, prompts_of
from speclab.tree import Tree, chain, parse_shape

PLAIN, UNKNOWN = (
    "plain",
    "unknown",
)  # the setting that drafts nothing; the label of a prompt of no known domain
PAPER_TREE = "tree:3,2,8"
CS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # c of `curves`
Settings = Mapping[str, Tree | None]
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


def candidates(
    trace: pd.DataFrame,
    gammas: Iterable[int] = range(1, 17),
    budgets: Iterable[int] = (4, 8, 16, 32),
    depths: Iterable[int] = (1, 2, 3, 4, 6, 8),
) -> dict[str, Tree | None]:
    """Settings to choose from: plain, chain:GAMMA, the paper's tree, best:BUDGET,DEPTH (Sequoia's
    tree for the trace's rank acceptances).

    Trees equal to an earlier one are left out. The best trees see eight numbers of the whole trace;
    to judge them on prompts that they have not seen at all, design them on another trace.
    """
    found: dict[str, Tree | None] = {PLAIN: None} | {
        f"chain:{gamma}": chain(gamma) for gamma in gammas
    }
    found[PAPER_TREE], a = parse_shape(PAPER_TREE), rank_acceptance(trace)
    designed = {
        f"best:{budget},{depth}": best_tree(a, budget, depth).tree
        for budget in budgets
        for depth in depths
    }
    kept: dict[tuple, tuple[str, Tree | None]] = {}
    for name, tree in (found | designed).items():
        kept.setdefault(() if tree is None else (*tree.parent, *tree.rank), (name, tree))
    return dict(kept.values())


# ---- replayed and priced -------------------------------------------------------------------------


def counts(
    trace: pd.DataFrame, settings: Settings, rule: str = "greedy", max_new_tokens: int | None = None
) -> pd.DataFrame:
    """Sums over the blocks of each setting and prompt, by the `levels` that were drafted (fewer
    than the depth near a text's end).

    Columns KEYS, levels, blocks, drafted, accepted, emitted. rule: as in `replay.sweep`;
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


def _counted(trace: pd.DataFrame, tree: Tree | None, rule: str, limit: int | None) -> pd.DataFrame:
    by = ["prompt_id", "domain", "levels"]
    if tree is None:
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
            deeper = (
                []
                if tree is None
                else [costs.of_block(tree.upto(level)) for level in range(1, tree.max_depth + 1)]
            )
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
    """How sure the best setting is: one row a domain (then `pooled`: one setting for everyone) and
    setting.

    speedup, low, high: of this setting; share_best: share of the resamples of prompts in which it
    is the fastest (the first of equals); behind, behind_low, behind_high: speed-up of the sample's
    fastest minus this one's. The fastest row's speed-up is chosen and judged on the same prompts:
    `cross_fit` judges without that bias. ValueError if a domain has fewer than 5 prompts.
    """
    wide = _wide(table)
    prompts, names = prompts_of(wide, n, seed), list(wide.columns[3:])
    sums = _sums(prompts, wide[["emitted", *names]].to_numpy(float))
    parts = []
    for number, domain in enumerate([*prompts.domains, POOLED]):
        speed = sums[:, number, :1] / sums[:, number, 1:]
        fastest = speed.argmax(axis=1)
        behind = speed[:, fastest[0], None] - speed
        (low, high), (near, far) = (
            np.quantile(draws[1:], BOUNDS, axis=0) for draws in (speed, behind)
        )
        share = np.bincount(fastest[1:], minlength=len(names)) / n
        parts.append(
            pd.DataFrame(
                {
                    "domain": domain,
                    "setting": names,
                    "speedup": speed[0],
                    "low": low,
                    "high": high,
                    "share_best": share,
                    "behind": behind[0],
                    "behind_low": near,
                    "behind_high": far,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def choose(table: pd.DataFrame) -> dict[str, str]:
    """The setting of least cost of each domain, and of all prompts together under UNKNOWN (where no
    domain is known).
    """
    wide = _wide(table)
    costs = wide[wide.columns[3:]]
    return costs.groupby(wide["domain"]).sum().idxmin(axis=1).to_dict() | {
        UNKNOWN: costs.sum().idxmin()
    }


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
    return judge(
        table, dict(zip(wide["prompt_id"], wide[wide.columns[3:]].idxmin(axis=1), strict=True))
    )


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
    setting = pd.Series("", index=wide.index)
    for number in range(folds):
        best = choose(table[table["prompt_id"].isin(ids[fold != number])])
        setting[fold == number] = label[fold == number].map(best)
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
    "speed": lambda sums: ratio(sums)[..., :1],
    "minus_baseline": lambda sums: -np.diff(ratio(sums)),
}


def regret(
    table: pd.DataFrame, folds: int | None = 5, n: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """`compare` of plain, uniform (one setting for all), per-domain and oracle (per prompt), the
    baseline being uniform.

    minus_baseline of per-domain and of oracle is the regret of one uniform setting. folds: uniform
    and per-domain are chosen on other prompts than judged; None: on the same ones, where oracle >=
    per-domain >= uniform holds exactly (pooled cost) and flatters.
    """
    nobody = dict.fromkeys(table["prompt_id"], UNKNOWN)
    if folds is None:
        best = choose(table)
        uniform, own = judge(table, best[UNKNOWN]), judge(table, best)
    else:
        uniform, own = cross_fit(table, nobody, folds, seed), cross_fit(table, None, folds, seed)
    return compare(
        {
            PLAIN: judge(table, PLAIN),
            "uniform": uniform,
            "per-domain": own,
            "oracle": oracle(table),
        },
        "uniform",
        n,
        seed,
    )


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
        parts.append(best.loc[best.groupby("domain", sort=False)["speedup"].idxmax()].assign(c=c))
    table = pd.concat(parts, ignore_index=True)
    trees = table["setting"].map(settings)
    sizes = {
        "levels": [t.max_depth if t else 0 for t in trees],
        "nodes": [t.size if t else 0 for t in trees],
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
    drafting = {name: tree for name, tree in settings.items() if tree is not None}
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

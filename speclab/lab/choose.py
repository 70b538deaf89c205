"""How much to draft for which prompts, from the trace of one run: the cost of every setting, the
fastest setting, how certain it is, and what a choice gains.

A *setting* is a name ("plain", "chain:4", "tree:3,2,8") and the tree that it drafts. "plain" drafts
nothing. `block_counts` replays every setting on every recorded text, and `prompt_costs` gives the
cost of the blocks on one machine. A lossless text is the same under every setting. So the speed-up
of a setting for a group of prompts is their number of tokens divided by their cost. A *judged*
frame has one row per prompt: prompt_id, domain, setting, emitted, cost (in target passes over one
token), target_passes and draft_passes. The module needs NumPy and pandas only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import pandas as pd

from speclab import replay
from speclab.cost import Costs
from speclab.estimates import ABOVE, Estimates, verdict
from speclab.score import ALL, POOLED, across, domains_in, quotient, require
from speclab.shapes import parse_shape
from speclab.stats import (
    MIN_PROMPTS,
    RESAMPLES,
    UNNAMED,
    Draws,
    Resampling,
    bounds_of,
    judged_domains,
    resampling_of,
)
from speclab.tree import LIMITS, Tree, chain, check_limit

PLAIN_SETTING = "plain"  # drafts nothing, with the tree `speclab.tree.PLAIN`
LONGEST = 8  # the largest gamma of `best_gamma`
UNKNOWN = "unknown"  # the label of a prompt whose domain is not known
PROMPT = ["prompt_id", "domain"]
SUMS = ["emitted", "cost", "target_passes", "draft_passes"]
# columns of `how_sure`
SURE = ["speedup", "low", "high", "share_best", "behind", "behind_low", "behind_high"]
Settings = Mapping[str, Tree]


# ---- the fastest setting: the one definition -----------------------------------------------------


def fastest(speedup: np.ndarray) -> np.ndarray:
    """The index of the fastest setting, which has the highest speed-up along the last axis. Among
    equal speed-ups it is the first. All of the kit uses this definition.

    The speed-up of a group of prompts is the sum of their tokens divided by the sum of their costs.
    A lossless text is the same under every setting, so `fastest(1 / cost)` of summed costs [...,
    settings] makes the same choice.
    """
    return np.asarray(speedup).argmax(axis=-1)


def fastest_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The row of each domain's fastest setting, from a table with a column `speedup`."""
    by_domain = table.groupby("domain", sort=False, observed=True)
    return table.loc[by_domain["speedup"].idxmax()]


def how_sure(speedup: np.ndarray, settings: Sequence, prompts: Resampling) -> pd.DataFrame:
    """How certain the fastest setting is. One row for each domain (the last is POOLED) and setting.

    speedup: [1 + n, domains + 1, settings], of the sample and of n resamples of its prompts.
    Columns: domain, setting, speedup with low and high; share_best, the share of the resamples in
    which the setting is the `fastest`; behind, behind_low, behind_high, the speed-up of the
    sample's fastest setting minus the speed-up of this setting; n_prompts (of the smallest domain
    for POOLED). The fastest setting is chosen and judged on the same prompts, so its speed-up is
    slightly too high. `fit` chooses without this bias.
    """
    names = [*prompts.domains, POOLED]
    # each domain's own number of prompts; all together have that of the smallest
    sizes = np.array([*prompts.counted.values(), prompts.fewest])
    best = fastest(speedup)
    behind = np.take_along_axis(speedup, best[:1, :, None], axis=-1) - speedup
    # by setting: its speed-up, how often it is the best, and how much faster the best is
    is_best = best[1:, :, None] == np.arange(len(settings))
    share_best = is_best.mean(axis=0)
    numbers = [speedup[0], *bounds_of(speedup[1:], sizes), share_best]
    numbers += [behind[0], *bounds_of(behind[1:], sizes)]
    rows = pd.MultiIndex.from_product([names, settings], names=["domain", "setting"])
    columns = np.stack(numbers).reshape(len(SURE), -1)
    table = pd.DataFrame(columns.T, rows, SURE)
    return table.reset_index().assign(n_prompts=np.repeat(sizes, len(settings)))


# ---- the settings, and what each costs --------------------------------------------------------


def settings_up_to(max_gamma: int, budget: int) -> dict[str, Tree]:
    """The settings to choose from: plain, chains of up to `max_gamma` tokens, and static trees of 2
    to 4 levels, 2 or 3 children a node and up to `budget` nodes; of equal trees the first.
    """
    names = [PLAIN_SETTING]
    names += [f"chain:{gamma}" for gamma in range(1, max_gamma + 1)]
    for depth, branches in product((2, 3, 4), (2, 3)):
        sizes = range(branches, budget + 1)
        names += [f"tree:{depth},{branches},{nodes}" for nodes in sizes]
    different: dict[str, tuple[str, Tree]] = {}
    for name in names:
        tree = parse_shape(name).tree
        different.setdefault(str(tree.paths), (name, tree))
    return dict(different.values())


def best_trees(trace: pd.DataFrame, budget: int, depth: int) -> dict[str, Tree]:
    """For each number of nodes up to `budget` and of levels up to `depth`, the tree whose nodes
    were accepted most often along the recorded texts: of the target's text at T = 0, of sampled
    text under the point-mass rule. Different trees, by their paths as text.

    A path of ranks is accepted at a start if the draft ranks of the next tokens are its ranks. A
    node is never accepted more often than its parent, so the most frequent paths are a tree, and of
    all trees it has the most accepted tokens over the same starts. (Medusa, arXiv:2401.10774, and
    Sequoia, arXiv:2402.12374, multiply the acceptances of ranks, as if they were independent.) The
    starts are those of a decoder with a chain, then those with the tree of `budget` nodes.

    Judge a tree on other prompts than those that chose it. ValueError as in `replay.ranks_ahead`,
    and for a budget or depth outside `speclab.tree.LIMITS`.
    """
    check_limit("budget", budget)
    ahead = replay.ranks_ahead(trace, depth)
    sizes = trace.groupby("prompt_id", sort=False, observed=True).size()
    first_row = sizes.cumsum() - sizes
    trees = {}
    for levels in range(1, depth + 1):
        tree = chain(levels)
        for _ in range(2):
            blocks = replay.replay(trace, tree)
            starts = blocks["prompt_id"].map(first_row).astype(int) + blocks["start"]
            paths = _most_frequent(ahead[starts, :levels], budget)
            tree = Tree.of_paths(paths)
        for nodes in range(1, len(paths) + 1):
            smaller = Tree.of_paths(paths[:nodes])
            trees[str(smaller.paths)] = smaller
    return trees


def _most_frequent(ranks: np.ndarray, budget: int) -> list[tuple[int, ...]]:
    """The `budget` most frequent beginnings of rows of ranks [starts, levels], each after its own
    beginnings; of equally frequent ones the shorter, then the one with lower ranks, comes first.
    """
    counts: dict[tuple[int, ...], int] = {}
    for length in range(1, ranks.shape[1] + 1):
        ranks = ranks[(ranks[:, length - 1] >= 0) & (ranks[:, length - 1] <= LIMITS["rank"][1])]
        paths, times = np.unique(ranks[:, :length], axis=0, return_counts=True)
        counts |= dict(zip(map(tuple, paths.tolist()), times.tolist(), strict=True))
    return sorted(counts, key=lambda path: (-counts[path], len(path), path))[:budget]


def block_counts(
    trace: pd.DataFrame, settings: Settings, rule: str = "greedy", max_new_tokens: int | None = None
) -> pd.DataFrame:
    """How many blocks each setting needs for each prompt's text, by the number of `levels` that are
    drafted (fewer than the tree's depth near the end of a text).

    Columns setting, prompt_id, domain, levels, blocks, emitted. rule: as in `replay.chain_sums`;
    those of `replay.DRAWN` replay chains only. max_new_tokens: the decoder's limit. Up to this
    limit it drafts beyond the end of a text, which it cannot know in advance. None: nothing is
    drafted beyond the end.
    """
    require(trace, [*PROMPT, "position"], "trace")
    parts = []
    for name, shape in settings.items():
        made = blocks_of(trace, shape, rule, max_new_tokens)
        sums = made.groupby([*PROMPT, "levels"], sort=False, observed=True).sum()
        parts.append(sums.reset_index().assign(setting=name))
    return pd.concat(parts, ignore_index=True)


def blocks_of(
    trace: pd.DataFrame, shape: Tree, rule: str = "greedy", max_new_tokens: int | None = None
) -> pd.DataFrame:
    """The blocks of one setting, in the order of each text: prompt_id, domain, levels, blocks (1,
    or the probability of the block), emitted. Arguments as in `block_counts`.
    """
    if not shape.size:
        return trace[PROMPT].assign(levels=0, blocks=1.0, emitted=1.0)
    if rule in replay.DRAWN:
        assert shape.is_chain, f"rule {rule!r} replays chains; 'point-mass' replays trees"
        walked = replay.replay_sampled(trace, shape.size, rule=rule)
    else:
        walked = replay.replay(trace, shape)
    room = walked["remaining"] if max_new_tokens is None else max_new_tokens - walked["start"]
    levels = np.minimum(room, shape.max_depth).astype(int)
    blocks = walked["weight"]
    emitted = blocks * walked["emitted"]
    return walked[PROMPT].assign(levels=levels, blocks=blocks, emitted=emitted)


def costs_by_levels(shape: Tree, costs: Costs) -> np.ndarray:
    """The cost in target passes of a block in which 0, 1, … levels of a tree are drafted, [depth +
    1]. Entry 0 is a plain pass, which costs 1.
    """
    levels = range(1, shape.max_depth + 1)
    drafting = [costs.of_block(shape.upto(level)) for level in levels]
    return np.array([1.0, *drafting])


@dataclass(frozen=True)
class PromptCosts:
    """The cost of every setting for every prompt on one machine: a `table` of SUMS with the index
    setting, prompt_id and domain. Every setting has the same prompts in the same order.
    """

    table: pd.DataFrame

    @cached_property
    def settings(self) -> np.ndarray:
        """Names of the settings."""
        return self.table.index.unique("setting").to_numpy()

    @cached_property
    def prompts(self) -> pd.DataFrame:
        """prompt_id, domain, emitted: one row per prompt."""
        return self.table.loc[self.settings[0], ["emitted"]].reset_index()

    @cached_property
    def cost(self) -> np.ndarray:
        """Costs in target passes over one token, [prompts, settings]."""
        costs = self.table["cost"].to_numpy()
        return costs.reshape(len(self.settings), -1).T

    def judged(self, setting: str | Mapping[str, str]) -> pd.DataFrame:
        """A judged frame of one setting for every prompt, or of prompt_id -> setting (prompts that
        it does not name are left out). Raises KeyError for an unknown prompt or setting.
        """
        ids = self.prompts["prompt_id"]
        chosen = dict.fromkeys(ids, setting) if isinstance(setting, str) else setting
        by_name = self.table.reset_index("domain")
        rows = [(name, prompt) for prompt, name in chosen.items()]
        return by_name.loc[rows].reset_index()


def prompt_costs(counted: pd.DataFrame, settings: Settings, costs: Costs) -> PromptCosts:
    """The costs of `block_counts` for these settings on a machine. Plain decoding costs one target
    pass per token.

    Raises ValueError if `costs` were not measured for this number of tokens per pass.
    """
    rows = counted[counted["setting"].isin(list(settings))]
    by_levels = {name: costs_by_levels(shape, costs) for name, shape in settings.items()}
    drafted = zip(rows["setting"], rows["levels"], strict=True)
    of_block = [by_levels[name][levels] for name, levels in drafted]
    blocks = rows["blocks"]
    cost = blocks * of_block
    draft_passes = blocks * rows["levels"]
    parts = rows.assign(cost=cost, target_passes=blocks, draft_passes=draft_passes)
    by_setting = parts.groupby(["setting", *PROMPT], sort=False, observed=True)
    return PromptCosts(by_setting[SUMS].sum())


# ---- choices -------------------------------------------------------------------------------------


def best_setting(by_prompt: PromptCosts, n: int = RESAMPLES) -> pd.DataFrame:
    """`how_sure` of the settings. The domain `pooled` means one setting for all prompts."""
    prompts = resampling_of(by_prompt.prompts, n)
    emitted = by_prompt.prompts[["emitted"]].to_numpy()
    columns = np.hstack([np.broadcast_to(emitted, by_prompt.cost.shape), by_prompt.cost])
    speedups = across(quotient, prompts.resampled(prompts.totals(columns)))
    without_mean = np.delete(speedups, -2, axis=1)
    return how_sure(without_mean, by_prompt.settings, prompts)


def choose_for_all(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows, as one domain if one of their domains has fewer than 5 prompts. Numbers over all
    prompts may resample all prompts together, and so have intervals. Other numbers may not.
    """
    is_whole = judged_domains(frame) == list(domains_in(frame))
    return frame if is_whole else frame.assign(domain=UNNAMED)


def best_gamma(
    trace: pd.DataFrame, costs: Costs, rule: str, max_new_tokens: int | None
) -> tuple[int, str]:
    """One gamma for all prompts, and sentences that explain it with intervals. It is the smallest
    gamma (0: plain) that is not significantly slower than the `fastest` of plain and the chains up
    to LONGEST.

    Arguments as in `block_counts`. If a domain has fewer than 5 prompts, all prompts are resampled
    together. If there are fewer than 5 prompts in all, it is the fastest gamma.
    """
    trace = choose_for_all(trace)
    settings = settings_up_to(LONGEST, budget=0)
    counted = block_counts(trace, settings, rule, max_new_tokens)
    table = best_setting(prompt_costs(counted, settings, costs))
    rows = table[table["domain"] == POOLED].reset_index(drop=True)  # by gamma
    rows = rows.rename(columns={"speedup": "estimate"})
    if trace["prompt_id"].nunique() < MIN_PROMPTS:
        good = rows.loc[[int(fastest(rows["estimate"]))]]
        why = "the fastest (there are too few prompts for an interval)"
    else:
        good = rows[verdict(rows["behind_low"], rows["behind_high"]) != ABOVE]
        why = "the smallest that is not significantly slower than the fastest"
    gamma = int(good.index[0])
    speedups = Estimates(good).in_units("x").listed("setting")
    return gamma, (
        f"Use gamma = {gamma}. Of 0 (plain) to {LONGEST} it is {why}. Predicted speed-up of all "
        f"such gammas: {speedups}."
    )


def setting_by_domain(by_prompt: PromptCosts) -> dict[str, str]:
    """The fastest setting of each domain. UNKNOWN has the fastest setting of all prompts, for a
    prompt whose domain is not known.
    """
    costs = pd.DataFrame(by_prompt.cost)
    cost = costs.groupby(by_prompt.prompts["domain"], sort=False).sum()
    cost.loc[UNKNOWN] = cost.sum()
    best = by_prompt.settings[fastest(1 / cost.to_numpy())]
    return dict(zip(cost.index, best.tolist(), strict=True))


def choose_in_hindsight(by_prompt: PromptCosts) -> pd.DataFrame:
    """The oracle, a judged frame: the fastest setting of each prompt, chosen after seeing its text.
    No router can do better.
    """
    best = by_prompt.settings[fastest(1 / by_prompt.cost)]
    chosen = dict(zip(by_prompt.prompts["prompt_id"], best, strict=True))
    return by_prompt.judged(chosen)


@dataclass(frozen=True)
class Choice:
    """The choice of a policy for each prompt, as a `judged` frame. `cost`: float64 [1 + n,
    domains], of the sample and of resamples with settings chosen again in each. None: the settings
    are held fixed, and intervals leave out the uncertainty of the choice.
    """

    judged: pd.DataFrame
    cost: np.ndarray | None = None

    @property
    def settings(self) -> dict[str, str]:
        """prompt_id -> setting."""
        return self.judged.set_index("prompt_id")["setting"].to_dict()


def fit(
    by_prompt: PromptCosts,
    routes: Mapping[str, str] | None = None,
    folds: int = 5,
    n: int = RESAMPLES,
) -> Choice:
    """A cross-fitted setting for every prompt. It is the `fastest` setting on the prompts of its
    domain in other folds, so no prompt influences the choice by which it is judged. The choice is
    made again in each of the n resamples of `resampling_of`. A prompt that is drawn twice stays in
    one fold.

    routes: prompt_id -> the domain that a router gives it (None: its own domain). For UNKNOWN and
    for the only prompt of a domain, the choice is made on the prompts of all domains.
    """
    ids, domain = (by_prompt.prompts[name].to_numpy() for name in PROMPT)
    label = domain if routes is None else np.array([routes[name] for name in ids])
    assert set(label) <= {*domain, UNKNOWN}, "routes name a domain without prompts"
    prompts = resampling_of(by_prompt.prompts, n)
    fold = fold_of(domain, folds)
    weights = prompts.weights[:, prompts.rows]
    number = np.zeros(len(ids), int)
    spent = np.zeros(weights.shape)  # on each prompt, as often as it was drawn
    for held_out, taken_for in set(zip(fold, label, strict=True)):
        here = (fold == held_out) & (label == taken_for)
        alike = (domain == taken_for) | (taken_for == UNKNOWN)
        others = (fold != held_out) & alike
        if not others.any():
            others = fold != held_out
        cost = weights[:, others] @ by_prompt.cost[others]
        best = fastest(-cost.round(9))  # [1 + n], first of the sample itself
        number[here] = best[0]
        cost_of_best = by_prompt.cost[here][:, best]
        spent[:, here] = weights[:, here] * cost_of_best.T
    chosen = dict(zip(ids, by_prompt.settings[number], strict=True))
    by_domain = [spent[:, domain == name].sum(axis=1) for name in prompts.domains]
    return Choice(by_prompt.judged(chosen), np.stack(by_domain, axis=1))


def speeds(policies: Mapping[str, Choice], n: int = RESAMPLES) -> Draws:
    """The speed-up of each policy over plain decoding, to 9 decimals, on the same prompts and the
    same n resamples.
    """
    first = next(iter(policies.values()))
    ids = first.judged[PROMPT]
    prompts = resampling_of(ids, n)
    values = {}
    for name, choice in policies.items():
        by_id = choice.judged.set_index("prompt_id")
        columns = by_id.loc[ids["prompt_id"], ["emitted", "cost"]]
        totals = prompts.totals(columns.to_numpy())
        sums = prompts.resampled(totals)
        if choice.cost is not None:
            sums[..., 1] = choice.cost
        speedups = across(quotient, sums)[..., 0].round(9)
        values[name] = pd.DataFrame(speedups, columns=[*prompts.domains, ALL, POOLED])
    return Draws(values, prompts, {})


def fold_of(domain: np.ndarray, folds: int) -> np.ndarray:
    """A random fold 0..folds-1 for each prompt, evenly within its domain. In a domain with no more
    prompts than folds, each prompt has a fold of its own.
    """
    rng = np.random.default_rng(0)
    drawn = pd.Series(rng.random(len(domain)))
    ranks = drawn.groupby(domain).rank().to_numpy()
    return ranks.astype(int) % folds

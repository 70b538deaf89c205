"""How much to draft for whom, from the trace of one run: what every setting costs, which is the
fastest, how sure that is, and what a choice is worth.

A *setting* is a name ("plain", "chain:4", "tree:3,2,8") and the tree that it drafts; "plain" drafts
nothing. `block_counts` replays every setting on every recorded text, `prompt_costs` says what the
blocks cost on one machine. A lossless text is the same under every setting, so the speed-up of a
setting over any group of prompts is their tokens over their cost. A *judged* frame has one row per
prompt: prompt_id, domain, setting, emitted, cost (in target passes over one token), target_passes
and draft_passes. NumPy and pandas only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from speclab import replay
from speclab.cost import Costs
from speclab.estimates import Estimates, named
from speclab.score import ALL, POOLED, across, domains_in, quotient, require
from speclab.stats import (
    ABOVE,
    MIN_PROMPTS,
    RESAMPLES,
    UNNAMED,
    Draws,
    Interval,
    Resampling,
    bounds_of,
    judged_domains,
    resampling_of,
    verdict,
)
from speclab.tree import PLAIN, Tree, chain

PLAIN_SETTING = "plain"  # drafts nothing; its tree is `speclab.tree.PLAIN`
UNKNOWN = "unknown"  # the label of a prompt of no known domain
PROMPT = ["prompt_id", "domain"]
SUMS = ["emitted", "cost", "target_passes", "draft_passes"]
# of `how_sure`
SURE = ["speedup", "low", "high", "share_best"]
SURE += ["behind", "behind_low", "behind_high"]
Settings = Mapping[str, Tree]


# ---- the fastest setting: the one definition -----------------------------------------------------


def fastest(speedup: np.ndarray) -> np.ndarray:
    """The number of the fastest setting: the highest speed-up along the last axis, the first of
    equals. This is the kit's one definition; whoever picks a setting asks here.

    The speed-up of a group of prompts is the sum of their tokens over the sum of their costs. A
    lossless text is the same under every setting, so `fastest(1 / cost)` of summed costs [...,
    settings] is the same choice.
    """
    return np.asarray(speedup).argmax(axis=-1)


def best_and_tied(draws: pd.DataFrame, n_prompts: int) -> tuple[str, list[str] | None]:
    """The column of the largest number (row 0: the sample, then resamples of the same prompts, the
    fewest of them in a domain), and the columns over which its lead is not significant; None: there
    are too few prompts for an interval.
    """
    best = draws.iloc[0].idxmax()
    if n_prompts < MIN_PROMPTS:
        return best, None
    lead = draws.drop(columns=best).rsub(draws[best], axis=0)
    bounds = bounds_of(lead.to_numpy()[1:], n_prompts)
    return best, list(lead.columns[verdict(*bounds) != ABOVE])


def leader(draws: pd.DataFrame, n_prompts: int) -> tuple[str, str]:
    """The first of `best_and_tied`, and words on its lead."""
    best, tied = best_and_tied(draws, n_prompts)
    if tied is None:
        return best, f"its lead has no interval (fewer than {MIN_PROMPTS} prompts in a domain)"
    if not tied:
        return best, "its lead over every other is significant"
    return best, f"its lead over {named(tied)} is not significant"


def fastest_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The row of each domain's fastest setting, from a table with a column speedup."""
    groups = table.groupby("domain", sort=False, observed=True)["speedup"]
    best = [speedups.index[fastest(speedups)] for _, speedups in groups]
    return table.loc[best]


def how_sure(speedup: np.ndarray, settings: Sequence, prompts: Resampling) -> pd.DataFrame:
    """How sure it is which setting is the fastest, from speed-ups [1 + n, domains (+ 1), settings]
    of the sample itself, then of n resamples of its prompts. One row a domain (then POOLED) and
    setting.

    domain, setting, speedup with low and high; share_best: the share of the resamples in which it
    is the `fastest`; behind, behind_low, behind_high: the speed-up of the sample's fastest setting
    minus this one's; n_prompts (of the smallest domain for POOLED). The fastest one's speed-up is
    chosen and judged on the same prompts, which flatters it slightly: `fit` chooses without that
    bias.
    """
    names = [*prompts.domains, POOLED][: speedup.shape[1]]
    sizes = prompts.by_row[: len(names)]
    best = fastest(speedup)
    top = speedup[:, np.arange(len(names)), best[0]]
    behind = top[..., None] - speedup
    is_best = best[1:, :, None] == np.arange(len(settings))
    numbers = [speedup[0], *bounds_of(speedup[1:], sizes), is_best.mean(axis=0)]
    numbers += [behind[0], *bounds_of(behind[1:], sizes)]
    rows = pd.MultiIndex.from_product([names, settings], names=["domain", "setting"])
    columns = np.stack(numbers).reshape(len(SURE), -1)
    table = pd.DataFrame(columns.T, rows, SURE)
    return table.reset_index().assign(n_prompts=np.repeat(sizes, len(settings)))


# ---- what every setting costs --------------------------------------------------------------------


def block_counts(
    trace: pd.DataFrame, settings: Settings, rule: str = "greedy", max_new_tokens: int | None = None
) -> pd.DataFrame:
    """How many blocks each setting makes of each prompt's text, by the `levels` that were drafted
    (fewer than the tree's depth near a text's end).

    Columns setting, prompt_id, domain, levels, blocks, emitted. rule: as in `replay.chain_sums`;
    "rejection" replays chains only. max_new_tokens: the decoder's limit, up to which it drafts past
    an end of text that it cannot foresee; None: nothing is drafted past the end.
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
    or the probability that there is one), emitted; arguments as of `block_counts`.
    """
    if not shape.size:
        return trace[PROMPT].assign(levels=0, blocks=1.0, emitted=1.0)
    if rule == "rejection":
        assert shape.is_chain, "the rejection rule replays chains; 'point-mass' replays trees"
        walked = replay.replay_sampled(trace, shape.size)
    else:
        walked = replay.replay(trace, shape)
    room = walked["remaining"] if max_new_tokens is None else max_new_tokens - walked["start"]
    levels = np.minimum(room, shape.max_depth).astype(int)
    blocks = walked["weight"]
    emitted = blocks * walked["emitted"]
    return walked[PROMPT].assign(levels=levels, blocks=blocks, emitted=emitted)


def costs_by_levels(shape: Tree, costs: Costs) -> np.ndarray:
    """Target passes that a block costs in which 0, 1, … levels of a tree are drafted, [depth + 1];
    entry 0 is a plain pass: 1.
    """
    levels = range(1, shape.max_depth + 1)
    drafting = [costs.of_block(shape.upto(level)) for level in levels]
    return np.array([1.0, *drafting])


@dataclass(frozen=True)
class PromptCosts:
    """What every setting costs on every prompt, on one machine: a `table` of SUMS by setting,
    prompt_id and domain (its index), every setting with the same prompts in the same order.
    """

    table: pd.DataFrame

    @cached_property
    def settings(self) -> np.ndarray:
        """Names of the settings."""
        return self.table.index.unique("setting").to_numpy()

    @cached_property
    def prompts(self) -> pd.DataFrame:
        """prompt_id, domain, emitted: one row a prompt."""
        return self.table.loc[self.settings[0], ["emitted"]].reset_index()

    @cached_property
    def cost(self) -> np.ndarray:
        """Target passes over one token, [prompts, settings]."""
        costs = self.table["cost"].to_numpy()
        return costs.reshape(len(self.settings), -1).T

    def judged(self, setting: str | Mapping[str, str]) -> pd.DataFrame:
        """A judged frame of one setting for every prompt, or of prompt_id -> setting (prompts that
        it does not name are left out). KeyError for a prompt or a setting of unknown cost.
        """
        ids = self.prompts["prompt_id"]
        chosen = dict.fromkeys(ids, setting) if isinstance(setting, str) else setting
        by_name = self.table.reset_index("domain")
        rows = [(name, prompt) for prompt, name in chosen.items()]
        return by_name.loc[rows].reset_index()


def prompt_costs(counted: pd.DataFrame, settings: Settings, costs: Costs) -> PromptCosts:
    """`block_counts` of these settings on a machine; plain decoding costs its tokens.

    ValueError if `costs` were not measured for this many tokens per pass.
    """
    rows = counted[counted["setting"].isin(list(settings))]
    by_levels = {name: costs_by_levels(shape, costs) for name, shape in settings.items()}
    drafted = zip(rows["setting"], rows["levels"], strict=True)
    of_block = [by_levels[name][levels] for name, levels in drafted]
    blocks = rows["blocks"]
    parts = rows.assign(
        cost=blocks * of_block, target_passes=blocks, draft_passes=blocks * rows["levels"]
    )
    by_setting = parts.groupby(["setting", *PROMPT], sort=False, observed=True)
    return PromptCosts(by_setting[SUMS].sum())


# ---- choices -------------------------------------------------------------------------------------


def domain_sums(prompts: Resampling, columns: np.ndarray) -> np.ndarray:
    """Sums (1 + n, domains + 1, k) over each domain, then over all, of the sample and of each
    resample.
    """
    sums = prompts.resampled(prompts.totals(columns))
    whole = sums.sum(axis=1, keepdims=True)
    return np.concatenate([sums, whole], axis=1)


def best_setting(by_prompt: PromptCosts, n: int = RESAMPLES) -> pd.DataFrame:
    """`how_sure` of the settings; `pooled`: one setting for everyone."""
    prompts = resampling_of(by_prompt.prompts, n)
    tokens = by_prompt.prompts[["emitted"]].to_numpy()
    emitted = domain_sums(prompts, tokens)
    speedup = emitted / domain_sums(prompts, by_prompt.cost)
    return how_sure(speedup, by_prompt.settings, prompts)


def of_all_prompts(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows as of one domain where one of theirs has fewer than 5 prompts: numbers over all
    prompts, and only these, may resample them together, and so have intervals.
    """
    is_whole = judged_domains(frame) == list(domains_in(frame))
    return frame if is_whole else frame.assign(domain=UNNAMED)


def best_gamma(
    trace: pd.DataFrame, costs: Costs, rule: str, max_new_tokens: int | None, longest: int = 8
) -> tuple[int, str]:
    """The smallest gamma (0: plain) that is not significantly slower than the `fastest` of plain
    and the chains up to `longest`, one for all prompts, and a sentence that says so with intervals.

    Arguments as of `block_counts`. Where a domain has fewer than 5 prompts, all prompts are
    resampled together; of fewer than 5 in all it is the fastest, and the sentence says so.
    """
    trace = of_all_prompts(trace)
    settings = {PLAIN_SETTING: PLAIN}
    settings |= {f"chain:{gamma}": chain(gamma) for gamma in range(1, longest + 1)}
    counted = block_counts(trace, settings, rule, max_new_tokens)
    table = best_setting(prompt_costs(counted, settings, costs))
    rows = table[table["domain"] == POOLED].reset_index(drop=True)  # by gamma
    rows = rows.rename(columns={"speedup": "estimate"})
    if trace["prompt_id"].nunique() < MIN_PROMPTS:
        gamma = int(fastest(rows["estimate"]))
        speedups = Estimates(rows.loc[[gamma]]).listed("setting")
        return gamma, (
            f"gamma = {gamma}: the fastest of 0 (plain) to {longest}, from too few prompts for an "
            f"interval; speed-up as predicted: {speedups}"
        )
    sides = verdict(rows["behind_low"], rows["behind_high"])
    tied = rows[sides != ABOVE]
    gamma = int(tied.index[0])
    return gamma, (
        f"gamma = {gamma}: the smallest of 0 (plain) to {longest} that is not significantly slower "
        f"than the fastest; speed-up as predicted: {Estimates(tied).listed('setting')}"
    )


def setting_by_domain(by_prompt: PromptCosts) -> dict[str, str]:
    """The fastest setting of each domain, and of all prompts together under UNKNOWN (for a prompt
    whose domain is not known).
    """
    prompts = by_prompt.prompts
    cost = pd.DataFrame(by_prompt.cost).groupby(prompts["domain"]).sum()
    cost = cost.loc[list(domains_in(prompts))]
    cost.loc[UNKNOWN] = cost.sum()
    number = fastest(1 / cost.to_numpy())
    best = by_prompt.settings[number]
    return dict(zip(cost.index, best.tolist(), strict=True))


def with_hindsight(by_prompt: PromptCosts) -> pd.DataFrame:
    """The oracle: each prompt's own fastest setting, chosen knowing the text, which no router can
    beat. A judged frame.
    """
    best = by_prompt.settings[fastest(1 / by_prompt.cost)]
    chosen = dict(zip(by_prompt.prompts["prompt_id"], best, strict=True))
    return by_prompt.judged(chosen)


@dataclass(frozen=True)
class Choice:
    """What a policy makes of each prompt: a `judged` frame; `cost`: float64 [1 + n, domains], of
    the sample and of resamples in each of which its settings are chosen again. None: they are held
    fixed, and intervals leave out what choosing adds.
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
    paid: PromptCosts | None = None,
    n: int = RESAMPLES,
) -> Choice:
    """Every prompt's setting cross-fitted: the `fastest` on the prompts of its domain that are in
    other folds, so that no prompt has a say in the choice it is judged by. Chosen again in each of
    the n resamples that `resampling_of` draws; a prompt drawn twice stays in one fold.

    routes: prompt_id -> the domain it is taken for (None: its own); where that is UNKNOWN, the
    choice is made on the prompts of all domains, and so it is for the only prompt of a domain.
    paid: the costs at which the choice is judged, if they are others (another temperature, another
    machine) of the same prompts.
    """
    ids, domain = (by_prompt.prompts[name].to_numpy() for name in PROMPT)
    label = domain if routes is None else np.array([routes[name] for name in ids])
    assert set(label) <= {*domain, UNKNOWN}, "routes name a domain without prompts"
    own = paid or by_prompt
    row = pd.Index(own.prompts["prompt_id"]).get_indexer(ids)
    judged = own.cost[row]
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
        cost_of_best = judged[here][:, best]
        spent[:, here] = weights[:, here] * cost_of_best.T
    chosen = dict(zip(ids, by_prompt.settings[number], strict=True))
    by_domain = [spent[:, domain == name].sum(axis=1) for name in prompts.domains]
    return Choice(own.judged(chosen), np.stack(by_domain, axis=1))


def gain(by_prompt: PromptCosts, n: int = RESAMPLES) -> Interval:
    """How much faster a setting for each domain is than one for all, as a share (0.02: 2 %): cost
    of one / cost of each - 1, by cross-fitted choices that are made again in each resample, so that
    the interval covers the choice as well as the judgement.

    (Simulated with 50 prompts a domain, drawn from the recorded ones of `smollm` and `tiny`: it
    holds the mean of such gains in 94 to 97 % where the domains' settings differ clearly, in all
    where they are nearly tied.)
    """
    for_all = dict.fromkeys(by_prompt.prompts["prompt_id"], UNKNOWN)
    one = fit(by_prompt, for_all, n=n).cost.sum(axis=1)
    each = fit(by_prompt, n=n).cost.sum(axis=1)
    prompts = resampling_of(by_prompt.prompts, 1)
    return Interval.of(one / each - 1, prompts, "the gain")


def speeds(policies: Mapping[str, Choice], n: int = RESAMPLES) -> Draws:
    """How many times as fast as plain decoding each policy is, to 9 decimals; all over the same
    prompts and from the same n resamples.
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
    """A fold 0..folds-1 for each prompt, evenly within its domain, at random; each prompt of a
    domain with no more prompts than folds has a fold of its own.
    """
    rng = np.random.default_rng(0)
    drawn = pd.Series(rng.random(len(domain)))
    ranks = drawn.groupby(domain).rank().to_numpy()
    return ranks.astype(int) % folds

"""Drafts compared: what the target accepts of each, what training changed, what a pass costs, the
fastest chain, and whether decoding with each is lossless.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.analysis import choose, combined, significance, stopping
from speclab.cost import Costs
from speclab.drafts.shipped import REPAIR, TrainedDraft
from speclab.estimates import Estimates, counted, named, stack, starting, without_interval
from speclab.models import timing
from speclab.models.pairs import Pair
from speclab.plain import read_json
from speclab.prompts import EncodedPrompt
from speclab.score import ALL, POOLED, ratio_of
from speclab.shapes import parse_shape
from speclab.studies.better_drafts.candidates import (
    ESTIMATORS,
    LOOKUP,
    OWN,
    SPECIALIST,
    Candidate,
    Families,
    Tried,
)

SPEEDUP, TOKENS = ratio_of("emitted", "cost"), ratio_of("emitted", "blocks")
EXIT = "early exit"


# ---- accepted ------------------------------------------------------------------------------------


def acceptance(tried: Tried, names: Sequence[str]) -> Estimates:
    """hit[1] on greedy text and alpha on sampled text, of some drafts: estimator, draft, domain
    (then `all`, `pooled`), estimate, low, high.
    """
    by_estimator = {}
    for kind, estimator in ESTIMATORS.items():
        traces = {name: (tried.trace(name, kind), estimator) for name in names}
        table = stats.jointly(traces).table(key="draft").frame
        by_estimator[estimator.name] = table.drop(columns="note")
    return Estimates.stacked(by_estimator, "estimator", digits=3)


# ---- trained -------------------------------------------------------------------------------------


CHANGE = ["domain", "before", "after", "estimate", "low", "high"]
CHANGE += ["seed_low", "seed_high", "n_prompts", "n_seeds"]


def trained_change(
    before: pd.DataFrame, after: Sequence[pd.DataFrame], estimator: score.Estimator
) -> pd.DataFrame:
    """What training changed, by domain, with intervals over prompts and training seeds.

    before: a trace; after: one trace per seed, over the same prompts. Columns: domain (and `all`,
    `pooled`), before, after, estimate (of the difference, mean over seeds), low, high, seed_low,
    seed_high (the smallest and largest difference of a single seed), n_prompts, n_seeds.

    The bootstrap has two levels: each resample draws prompts within the domain (the same for all
    runs, so that they are paired) and seeds. Three seeds show a spread but do not measure it well.
    """
    seeds = len(after)
    traces = dict(enumerate([before, *after]))
    draws = stats.jointly({number: (trace, estimator) for number, trace in traces.items()})
    first, *others = draws.values.values()
    changes = np.stack([other - first for other in others])
    sample, resamples = changes[:, 0], changes[:, 1:]
    rng = np.random.default_rng([0, 3])
    equally = np.full(seeds, 1 / seeds)
    times = rng.multinomial(seeds, equally, size=len(first) - 1)
    drawn = np.einsum("ns,snd->nd", times / seeds, resamples)
    mean = np.vstack([sample.mean(axis=0), drawn])
    table = draws.table({"change": pd.DataFrame(mean, columns=first.columns)}).frame
    sample_after = np.mean([other.iloc[0] for other in others], axis=0)
    table = table.assign(
        before=first.iloc[0].to_numpy(),
        after=sample_after,
        seed_low=sample.min(axis=0),
        seed_high=sample.max(axis=0),
        n_seeds=seeds,
    )
    return table[CHANGE]


def gained(tried: Tried, trained: Families) -> Estimates:
    """`trained_change` of every family on greedy and on sampled text: estimator, draft, domain,
    before, after, and its other columns.
    """
    parts = {}
    for kind, estimator in ESTIMATORS.items():
        before = tried.trace(OWN, kind)
        for family, drafts in trained.items():
            after = [tried.trace(name, kind) for name in drafts]
            parts[estimator.name, family] = trained_change(before, after, estimator)
    return Estimates(stack(parts, ["estimator", "draft"]), 3)


def specialist_against(tried: Tried, trained: Families) -> Estimates:
    """The specialist minus the family that learned every domain by the same objective, seeds
    averaged: estimator, domain, estimate, low, high, p_value.
    """
    specialists = trained[SPECIALIST]
    on_all = trained[objective_of(specialists)]
    parts = {}
    for kind, estimator in ESTIMATORS.items():
        special = pd.concat([tried.trace(name, kind) for name in specialists])
        general = pd.concat([tried.trace(name, kind) for name in on_all])
        gap = significance.paired_by_domain(special, general, estimator)
        parts[estimator.name] = gap.drop(columns="n_prompts")
    return Estimates.stacked(parts, "estimator", digits=3)


def objective_of(drafts: Mapping[str, TrainedDraft]) -> str:
    """The objective that all drafts of a family learned."""
    return next(iter(drafts.values())).facts["objective"]


IN_CARD = {"hit[1]": "hit", "alpha": "alpha"}  # an estimator, and its name in a card's log


def learning_curve(pair: Pair, domains: Iterable[str]) -> Estimates | None:
    """How the acceptance of the pair's own draft changed in the last phase of its training, from
    the log in card.json beside the draft's folder; None where no card has such a log, and for a
    trained head, whose folder lies beside another draft's card.

    Keys: estimator, domain (first `all`, the mean of the log's domains, then those of `domains`
    that it has), steps. No intervals are known.
    Step 0 is the end of the phase before.
    """
    card = pair.draft.folder.path.parent / "card.json"
    has_card = card.is_file() and not pair.draft.by_start
    phases = read_json(card, REPAIR).get("training") if has_card else None
    if not phases:
        return None
    *_, before, last = phases.values()
    log = pd.DataFrame([before[-1], *last])
    steps = pd.DataFrame({"steps": [0, *(row["step"] + 1 for row in last)]})
    curves = {}
    for estimator, name in IN_CARD.items():
        columns = {ALL: name} | {domain: f"{domain} {name}" for domain in domains}
        for domain, column in columns.items():
            if column in log:
                curves[estimator, domain] = without_interval(steps, log[column])
    return Estimates(stack(curves, ["estimator", "domain"]))


def ends_of(curve: Estimates) -> list[str]:
    """Mean hit[1] at the start and at the end of a `learning_curve`."""
    hits = curve.at(estimator="hit[1]", domain=ALL).frame["estimate"]
    return [f"{100 * hits.iloc[place]:.0f} %" for place in (0, -1)]


NO_CURVE = "The card of this pair has no learning curve of its draft, so none is shown here."


def training_in_words(trained: Families, profile: str) -> str:
    """Which trained drafts of a profile's pair come with the kit and what they learned, as
    paragraphs (Markdown).
    """
    made = [draft.facts for family in trained.values() for draft in family.values()]
    if not made:
        return (
            f"The kit has no further trained draft of `{profile}`, so this section ends here. "
            f"`python -m data.drafts.prepare --profile {profile}` trains some."
        )
    objectives = [f"`{name}`" for name in trained if name != SPECIALIST]
    said = (
        f"The kit has {counted(len(made), 'trained draft')} of this pair, all made from the pair's "
        "own draft. `data/drafts/README.md` says how long and on which texts they were trained. "
        f"The objectives are {named(objectives)}. Seeds differ in the order of the training texts."
    )
    if len(trained.get("total-variation", ())) > 1:
        said += (
            " Total variation got several seeds after a first look at the prompts that judge the "
            "drafts."
        )
    if SPECIALIST not in trained:
        return said
    return (
        f"{said}\n\nThe **specialist** learned with `{objective_of(trained[SPECIALIST])}` on some "
        "of the training domains only, in as many steps."
    )


def by_estimator(numbers: Estimates, said: str, words: Sequence[str], **options: Any) -> str:
    """What `Estimates.sentence` says of the numbers of each estimator, as a list (Markdown); said:
    how each line goes on after the estimator.
    """
    parts = numbers.groups("estimator")
    lines = [f"* By `{name}`, {said} {part.sentence(*words, **options)}." for name, part in parts]
    return "\n".join(lines)


# ---- the cost of a pass, and the fastest chain ---------------------------------------------------


def pass_costs(candidates: Iterable[Candidate], context: int, repeats: int) -> dict[str, float]:
    """c of each candidate on this machine: median draft pass over median target pass, both measured
    in one run in random orders.

    Drafts of one architecture do the same work, whatever their weights: the first is measured for
    all, so that timing noise does not rank them. A draft that does the target's work costs 1, a
    draft without weights 0.
    """
    by_work, by_name = {}, {}
    for one in candidates:
        work = _work(one.facts["draft"])
        if work == _work(one.facts["target"]):
            by_work[work] = 1.0
        elif not one.weight_bytes:
            by_work[work] = 0.0
        if work not in by_work:
            times = timing.pass_times(one.load(), (1,), context, repeats)
            by_work[work] = timing.costs_of(times).c()
        by_name[one.name] = by_work[work]
    return by_name


def _work(facts: Mapping) -> tuple:
    """What decides the time of a model's pass."""
    return tuple(facts[name] for name in ("parameters", "layers", "heads", "kernel"))


def with_c(costs: Costs, c: float) -> Costs:
    """The costs of the same target with another draft."""
    return dataclasses.replace(costs, draft=(c,) * len(costs.sizes))


def share_of_bytes(one: Candidate) -> float:
    """Stored bytes of a draft over the target's, at most two bytes per weight: wider weights would
    not be served as they are.
    """
    draft, target = one.facts["draft"], one.facts["target"]
    stored = min(one.weight_bytes, 2 * draft["parameters"])
    return stored / min(target["weight_bytes"], 2 * target["parameters"])


def best_chain(
    trace: pd.DataFrame, costs: Costs, gammas: Iterable[int]
) -> tuple[int, pd.DataFrame]:
    """The gamma whose chain `costs` predict to be fastest on a trace at T = 0, and its sums over
    the visited blocks of each prompt: emitted, blocks, cost (target passes).
    """
    sums = replay.chain_sums(trace, gammas)
    of_block = costs.of_chain(sums["gamma"])
    return _fastest(sums.assign(cost=sums["blocks"] * of_block))


def best_copies(tried: Tried, costs: Costs, gammas: Iterable[int]) -> tuple[int, pd.DataFrame]:
    """As `best_chain`, for prompt lookup on the greedy texts: where a token matches, a block copies
    up to gamma tokens; elsewhere it drafts nothing.
    """
    starts = combined.starts_of_trace(tried.trace(OWN, "greedy"), OWN)
    texts = tried.texts["greedy"]
    tokens = {prompt.prompt_id: (prompt.ids, texts[prompt.prompt_id]) for prompt in tried.prompts}
    both = combined.with_copies(starts, tokens)
    plans = {gamma: combined.planned(both, 0, 1, gamma) for gamma in gammas}
    sums = {gamma: stopping.totals(planned, costs) for gamma, planned in plans.items()}
    table = pd.concat(sums, names=["gamma"]).reset_index()
    return _fastest(table.rename(columns={"target_passes": "blocks"}))


def _fastest(sums: pd.DataFrame) -> tuple[int, pd.DataFrame]:
    total = sums.groupby("gamma")[["emitted", "cost"]].sum()
    best = total.index[choose.fastest(total["emitted"] / total["cost"])]
    return int(best), sums[sums["gamma"] == best]


# ---- all drafts compared -------------------------------------------------------------------------


def first_seeds(tried: Tried) -> list[Candidate]:
    """The drafts of the table; a family with several seeds is shown by its first seed."""
    first: dict[str, Candidate] = {}
    for name, one in tried.candidates.items():
        first.setdefault(short_name(name), one)
    return list(first.values())


def short_name(name: str) -> str:
    """A draft's name in tables of numbers."""
    return name.split(", seed")[0].replace("target's first", "first")


def draft_label(name: str) -> str:
    """What a draft is called on the page, from its name or its `short_name`."""
    short = short_name(name)
    numbers = re.findall(r"\d+", short)
    if short.startswith("INT"):
        return f"{numbers[0]}-bit copy"
    if short.startswith("first "):
        return f"{EXIT} after {numbers[0]} layers"
    if short.startswith("distilled, "):
        return f"{short.removeprefix('distilled, ')} draft"
    return short


def draft_in_words(name: str) -> str:
    """A draft's name in a sentence, with its article."""
    label = draft_label(name)
    if label == OWN:
        return f"the pair's {label}"
    if label.endswith("-bit copy"):
        return f"the target's {label}"
    return label if label.startswith((LOOKUP, EXIT)) else f"the {label}"


@dataclasses.dataclass(frozen=True)
class Compared:
    """Drafts compared over the same prompts of all domains.

    table: one row per draft: draft, layers, parameters, weight_bytes, of_target_bytes, c, gamma and
    gamma_by_bytes, and with low and high hit[1], alpha, block_efficiency and speedup (predicted),
    and these two where bytes are time. draws: the same numbers of the sample (row 0) and of its
    resamples, columns (draft, quantity); fewest: prompts of the smallest domain.
    """

    table: pd.DataFrame
    draws: pd.DataFrame
    fewest: int

    def best(self, quantity: str, unit: str) -> tuple[str, Estimates, list[str] | None]:
        """The best draft by a quantity, its number in this unit, and the drafts over which its lead
        is not significant (None: the lead has no interval).
        """
        draws = self.draws.xs(quantity, axis=1, level=1)
        best, tied = choose.best_and_tied(draws, self.fewest)
        numbers = Estimates.of(self.table, quantity, ["draft"]).in_units(unit)
        return best, numbers.at(draft=best), tied

    def fastest_in_words(self, quantity: str = "speedup") -> str:
        """Which draft is the fastest by a quantity, as the end of a sentence, and its lead."""
        best, number, tied = self.best(quantity, "x")
        said = f"{draft_in_words(best)}, at {number} the speed of plain decoding"
        if tied is None:
            return f"{said}. Its lead has no interval"
        others = named([draft_in_words(name) for name in tied]) if tied else "all others"
        return f"{said}. Its lead over {others} is {'not ' if tied else ''}significant"

    def title(self, is_reliable: bool) -> str:
        """The finding of the figure that shows all drafts."""
        most, fastest = (self.best(name, "x")[0] for name in ("hit[1]", "speedup"))
        said = f"{starting(draft_in_words(most))} agrees most often"
        if not is_reliable:
            return f"{said} with the target"
        is_both = "and is" if most == fastest else "but is not"
        return f"{said}, {is_both} predicted to be fastest"

    def answer(self, is_reliable: bool) -> str:
        """Which draft agrees most with the target, and which is fastest: the notebook's answer."""
        most, share, _ = self.best("hit[1]", "%")
        name = starting(draft_in_words(most))
        said = f"{name} agrees most often with the target ({share.span()})."
        if not is_reliable:
            return f"{said} Timing was unreliable, so there is no verdict on speed."
        fastest, number, tied = self.best("speedup", "x")
        name = "the same draft" if fastest == most else draft_in_words(fastest)
        said += f" {starting(name)} is predicted fastest ({number})"
        if tied is None:
            return f"{said}."
        if not tied:
            return f"{said}, significantly ahead of all others."
        others = counted(len(tied), "other draft")
        if len(tied) == 1:
            others = draft_in_words(tied[0])
        return f"{said}, not significantly ahead of {others}."


def compared(
    tried: Tried,
    drafts: Iterable[Candidate],
    pass_cost: Mapping[str, float],
    costs: Costs,
    gammas: Sequence[int],
) -> Compared:
    """Every draft at its own best gamma, by the measured costs (c from `pass_cost`) and where a
    pass costs the bytes of its weights (v = 1, o = 0). For prompt lookup, gamma is the most tokens
    of a copy. Prompts are resampled as `choose.of_all_prompts` says.
    """
    rows, numbers = [], {}
    for one in drafts:
        name, facts = short_name(one.name), one.facts["draft"]
        c, share = pass_cost[one.name], share_of_bytes(one)
        sizes = {key: facts[key] for key in ("layers", "parameters")}
        row = {"draft": name} | sizes | {"weight_bytes": one.weight_bytes}
        row |= {"of_target_bytes": share, "c": c}
        for kind, estimator in ESTIMATORS.items():
            trace = choose.of_all_prompts(tried.trace(one.name, kind))
            numbers[name, estimator.name] = trace, estimator
        machines = {"": with_c(costs, c), "_by_bytes": Costs.assumed(share)}
        for end, machine in machines.items():
            if one.name == LOOKUP:
                gamma, sums = best_copies(tried, machine, gammas)
            else:
                gamma, sums = best_chain(tried.trace(one.name, "greedy"), machine, gammas)
            sums = choose.of_all_prompts(sums)
            row[f"gamma{end}"] = gamma
            numbers[name, f"speedup{end}"] = sums, SPEEDUP
            numbers[name, f"block_efficiency{end}"] = sums, TOKENS
        rows.append(row)
    draws = stats.jointly(numbers)
    pooled = pd.DataFrame({key: draws[key][POOLED] for key in numbers})
    table, fewest = pd.DataFrame(rows), draws.prompts.fewest
    low, high = stats.bounds_of(pooled.to_numpy()[1:], fewest)
    for end, values in {"": pooled.iloc[0], "_low": low, "_high": high}.items():
        wide = pd.Series(np.asarray(values), pooled.columns).unstack()
        table = table.join(wide.add_suffix(end), on="draft")
    return Compared(table, pooled, fewest)


# ---- decoded for real ----------------------------------------------------------------------------


def lossless(
    tried: Tried,
    drafts: Iterable[Candidate],
    prompts: Sequence[EncodedPrompt],
    shapes: Sequence[str],
    new_tokens: int,
) -> pd.DataFrame:
    """`timing.decoded` of some prompts with every draft (except recorded ones) and shape, compared
    with the target's own texts: draft, shape, prompt_id, is_equal, and its other columns.
    """
    by_name = {name: parse_shape(name) for name in shapes}
    parts = {}
    for one in drafts:
        if one.load:
            pair = one.load()
            parts[one.name] = timing.decoded(pair, prompts, by_name, new_tokens)
            del pair  # before the next one is loaded
    made = stack(parts, "draft").rename(columns={"method": "shape"})
    return made.assign(is_equal=~timing.differs(made, tried.texts["greedy"], new_tokens))

"""Notebook 18: what a trained head gains from the target's hidden states, beside the pair's own
draft of equal training, and what its training prompts decide.

The heads and the draft predict the same recorded texts of one target. A head's blocks are replayed
from what was recorded for each start (`record.LONGEST` tokens).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors import safe_open
from scipy.special import stdtrit

from speclab import replay, score, stats
from speclab.analysis import significance
from speclab.analysis.own_pair import accepted_at_depths
from speclab.analysis.prompt_sets import OWN, SECOND, UNWRAPPED, after_on
from speclab.analysis.texts import Text
from speclab.cost import Costs
from speclab.estimates import Estimates, counted, named, stack, starting
from speclab.models import head, timing
from speclab.models.folder import ModelFolder
from speclab.passes import of_replay
from speclab.plain import read_json
from speclab.profiles import MODELS, ROOT, Profile, with_head
from speclab.prompts import EncodedPrompt, decoded_prompts
from speclab.runs import FilesMissing, encoded_prompts, load_run, of_kind
from speclab.score import ALL, POOLED
from speclab.shapes import Shape
from speclab.stats import ABOVE, BELOW, INCONCLUSIVE, Draws, cell

READS = [
    "data/traces/smollm",
    "data/traces/smollm-head",
    "data/traces/smollm-head-other",
    "data/pairs/smollm/head",
]
DRAFT, HEAD, OTHER = "draft", "head", "other head"
KINDS = {OWN: "greedy", UNWRAPPED: "unwrapped", SECOND: "second"}
SAMPLED = {OWN: "sampled", UNWRAPPED: "unwrapped-sampled", SECOND: "second-sampled"}
OF_HEAD = "data/pairs/smollm/head"
EXPECTED = ROOT / OF_HEAD / "expected.md"
EXPECTED_OF_SEEDS = ROOT / OF_HEAD / "expected_further_seeds.md"
SEEDS = ROOT / OF_HEAD / "seeds.csv"  # accepted first tokens of heads with further seeds
MEAN = "mean"  # over the seeds
CARD = ROOT / OF_HEAD / "card.json"  # how both heads were trained, and which is shipped
FORM, MIXED = "form", "mixed"  # the two sets of training prompts
TRAINED = ["prompts", "texts", "tokens", "steps", "core_minutes"]  # of a head's entry in the card
NAMES = {  # of a set of training prompts, after 'head'
    FORM: "kit's format",
    MIXED: "mixed prompts",
}
IN_WORDS = {"core_minutes": "minutes on one core", "right 1": "hit[1], learning curve"}
FIRST = score.ratio_of("accepted", "tokens", "hit")
TAU = score.ratio_of("emitted", "blocks", "block_efficiency")
ABSENT = (
    "this notebook compares a pair's draft with trained heads, and only the pair smollm has "
    "recorded heads (data/traces/smollm-head); run it with profile=smollm"
)

Sets = dict[str, Text]  # by prompt set


def heads_of(profile: Profile) -> dict[str, dict[str, Sets]]:
    """The recorded texts at T = 0 and above, by temperature's name, drafter and prompt set. The
    other head, whose weights are not shipped, is read at T = 0 only. FilesMissing for a pair
    without recorded heads.

    ValueError if two drafters were not recorded along the same texts.
    """
    of_head = with_head(profile)
    if of_head is None or of_head.traces != READS[1]:  # the other head is of this pair
        raise FilesMissing(ABSENT)
    greedy, sampled = (
        {
            drafter: {name: Text.recorded(own, kind) for name, kind in kinds.items()}
            for drafter, own in {DRAFT: profile, HEAD: of_head}.items()
        }
        for kinds in (KINDS, SAMPLED)
    )
    greedy[OTHER] = {name: _of_other(greedy[DRAFT][name], kind) for name, kind in KINDS.items()}
    for texts in (greedy, sampled):
        _check_same(texts)
    return {"T = 0": greedy, f"T = {profile.sampled_temperature:g}": sampled}


def _of_other(text: Text, kind: str) -> Text:
    """The other head's run of this kind, as far as it has the prompts of a text."""
    folder = ROOT / READS[2] / kind
    if not (folder / "manifest.json").is_file():
        raise FilesMissing(f"{READS[2]}/{kind} is missing; `git checkout` brings it back")
    whole = Text.of(load_run(folder))
    is_here = whole.trace["prompt_id"].isin(text.trace["prompt_id"].unique())
    return replace(whole, trace=whole.trace[is_here].reset_index(drop=True))


def _check_same(texts: Mapping[str, Sets]) -> None:
    """ValueError unless all drafters were recorded along the same texts."""
    names = ["prompt_id", "position", "token"]
    for prompts, first in texts[DRAFT].items():
        for drafter, own in texts.items():
            if not first.trace[names].equals(own[prompts].trace[names]):
                raise ValueError(
                    f"{drafter} was recorded along other texts than the {DRAFT} ({prompts}); use "
                    "the pair's own prompts and lengths, or record both again"
                )


def trained(path: Path = CARD) -> tuple[dict[str, str], dict]:
    """Which drafter was trained on which set of prompts ({MIXED: HEAD, FORM: OTHER} or the other
    way round), and the card of both heads.
    """
    card = read_json(path, "`git checkout` brings it back", dict)
    shipped = card["shipped"]
    other = FORM if shipped == MIXED else MIXED
    return {shipped: HEAD, other: OTHER}, card


def folders() -> dict[str, Path]:
    """Where the weights of the pair's draft and of its head are."""
    return {DRAFT: ROOT / "data/pairs/smollm/draft", HEAD: ROOT / OF_HEAD}


def in_words(trained: Mapping[str, str]) -> dict[str, str]:
    """The name of each head in figures, by drafter: 'head, mixed prompts'."""
    return {drafter: f"head, {NAMES[name]}" for name, drafter in trained.items()}


def training_table(card: dict) -> pd.DataFrame:
    """How both heads were trained: prompts, texts, tokens of the target, steps, minutes on one
    core, and the last numbers of the learning curve.
    """
    rows = []
    for name in (FORM, MIXED):
        own = card["heads"][name]
        curve = own["log"][-1]["right 1"]
        facts = {key: own[key] for key in TRAINED} | {"core_minutes": f"{own['core_minutes']:.0f}"}
        rows.append({"head": name} | facts | {"right 1": curve})
    return pd.DataFrame(rows).rename(columns=IN_WORDS)


# ---- one drafted token ---------------------------------------------------------------------------


def accepted_first(texts: Mapping[str, Sets], prompts: str) -> Draws:
    """The acceptance of a block's first token by drafter, over the same resampled prompts."""
    asked = {drafter: sets[prompts].accepted() for drafter, sets in texts.items()}
    return stats.jointly(asked)


def first_tokens(texts: Mapping[str, Sets]) -> dict[str, Draws]:
    """`accepted_first` of each prompt set."""
    return {prompts: accepted_first(texts, prompts) for prompts in texts[DRAFT]}


def first_token_table(draws: Mapping[str, Draws], digits: int = 1) -> Estimates:
    """Numbers by prompt set, drafter and domain."""
    parts = {prompts: own.table(key="drafter").frame for prompts, own in draws.items()}
    return Estimates.stacked(parts, "prompts").in_units("%", digits)


def gains(draws: Mapping[str, Draws]) -> Estimates:
    """How much more often the head's first token is accepted than the draft's, in points, by prompt
    set and domain.
    """
    parts = {name: own.table({HEAD: own[HEAD] - own[DRAFT]}).frame for name, own in draws.items()}
    table = Estimates.stacked(parts, "prompts").in_units("points", 1)
    return Estimates(table.frame.drop(columns="name"), table.digits, table.unit)


def coverage(texts: Mapping[str, Sets]) -> Estimates:
    """The share of the target's tokens that all drafters can output, by prompt set and domain."""
    (file,) = ModelFolder(ROOT / OF_HEAD).tensors
    with safe_open(file, "np") as opened:
        said = np.flatnonzero(opened.get_tensor("t2d"))
    parts = {}
    for name, text in texts[DRAFT].items():
        rows = text.trace.assign(covered=text.trace["token"].isin(said))
        parts[name] = stats.by_domain(rows, score.mean_of("covered")).frame
    return Estimates(stack(parts, "prompts")).in_units("%")


# ---- depth ---------------------------------------------------------------------------------------


Depths = dict[tuple[str, str], Draws]  # by prompt set and drafter; the draws are named by depth


def accepted_deep(texts: Mapping[str, Sets], deepest: int) -> Depths:
    """Acceptance of each token of a block, given that all earlier tokens were accepted, over every
    position as a start.
    """
    return {
        (prompts, drafter): accepted_at_depths(of_replay(text.chain(deepest, "every")), deepest)
        for drafter, sets in texts.items()
        for prompts, text in sets.items()
    }


def depth_table(depths: Depths) -> Estimates:
    """prompts, drafter, depth, domain, estimate, low, high."""
    tables = {key: draws.table(key="depth").frame for key, draws in depths.items()}
    return Estimates(stack(tables, ["prompts", "drafter"]))


def rises(depths: Depths, deepest: int) -> Estimates:
    """Acceptance at the deepest depth minus depth 1, mean of the domains, in points, by prompt set
    and drafter.
    """
    tables = {}
    for key, draws in depths.items():
        change = draws[deepest][ALL] - draws[1][ALL]
        tables[key] = draws.table({str(deepest): change}, key="depth").frame
    return Estimates(stack(tables, ["prompts", "drafter"])).in_units("points", 1)


# ---- tokens per pass, cost, speed ----------------------------------------------------------------


def chains_by_gamma(texts: Mapping[str, Sets], gammas: Sequence[int]) -> dict[str, Draws]:
    """Tokens per target pass of chains, by prompt set; the draws are named (drafter, gamma)."""
    draws = {}
    for prompts in texts[DRAFT]:
        asked = {}
        for drafter, sets in texts.items():
            text = sets[prompts]
            counts = replay.chain_sums(text.trace, gammas, text.chain_rule)
            for gamma, rows in counts.groupby("gamma"):
                asked[drafter, gamma] = rows, TAU
        draws[prompts] = stats.jointly(asked)
    return draws


def chain_table(draws: Mapping[str, Draws]) -> Estimates:
    """`chains_by_gamma` by prompt set, drafter, gamma and domain."""
    parts = {}
    for prompts, own in draws.items():
        of_chain: Mapping[Any, pd.DataFrame] = own.values
        for (drafter, gamma), values in of_chain.items():
            table = own.table({str(gamma): values}, key="gamma").frame
            parts[prompts, drafter, gamma] = table.drop(columns="gamma")
    return Estimates(stack(parts, ["prompts", "drafter", "gamma"]))


@dataclass(frozen=True)
class Best:
    """The predicted speed-up of a drafter's best gamma on a prompt set, and of all its gammas, as
    draws over resampled prompts.
    """

    gamma: int
    speed: pd.Series


def best_speeds(
    draws: Mapping[str, Draws],
    costs: Mapping[str, Costs],
    gammas: Sequence[int],
    again: Mapping[str, Sequence[Costs]] | None = None,
) -> dict[tuple[str, str], Best]:
    """The best gamma of each drafter and prompt set (prompts, drafter), for the mean of the domains
    at the measured costs. The same gamma is used in all resamples. again: of each drafter, its
    costs as measured, then resampled ones (`Measured.resampled`), so that intervals cover the
    clock's noise.
    """
    found = {}
    for prompts, own in draws.items():
        for drafter, measured in costs.items():
            speeds = {g: own[drafter, g][ALL] / measured.of_chain(g) for g in gammas}
            best = max(gammas, key=lambda g, speeds=speeds: speeds[g].iloc[0])
            speed = speeds[best]
            if again:
                first, *others = (each.of_chain(best) for each in again[drafter])
                noise = np.resize(first / np.array(others), len(speed) - 1)
                speed = speed * np.append(1.0, noise)
            found[prompts, drafter] = Best(best, speed)
    return found


def speed_table(best: Mapping[tuple[str, str], Best], draws: Mapping[str, Draws]) -> Estimates:
    """Predicted speed-ups at the best gamma: prompts, drafter, gamma, estimate, low, high."""
    rows = []
    for (prompts, drafter), own in best.items():
        table = draws[prompts].table({drafter: own.speed}, key="drafter").frame
        table.insert(1, "gamma", own.gamma)
        table.insert(0, "prompts", prompts)
        rows.append(table)
    return Estimates(pd.concat(rows, ignore_index=True)).in_units("x", 2)


def ratios_of_speed(best: Mapping[tuple[str, str], Best], draws: Mapping[str, Draws]) -> Estimates:
    """The head's predicted speed-up as a multiple of the draft's, by prompt set."""
    parts = {}
    for prompts, own in draws.items():
        ratio = best[prompts, HEAD].speed / best[prompts, DRAFT].speed
        parts[prompts] = own.table({HEAD: ratio}).frame
    frame = Estimates.stacked(parts, "prompts").frame.drop(columns="name")
    return Estimates(frame).in_units("x", 2)


def cost_table(measured: Mapping[str, Costs], gamma: int) -> pd.DataFrame:
    """c, v of target passes over up to gamma + 1 tokens, o, and the cost of a block of a chain, by
    drafter.
    """
    rows = []
    for drafter, costs in measured.items():
        of_passes = {f"v({n})": costs.v(n) for n in range(2, gamma + 2)}
        of_block = {"o": costs.overhead, f"block, chain of {gamma}": costs.of_chain(gamma)}
        rows.append({"drafter": drafter, "c": costs.c()} | of_passes | of_block)
    return pd.DataFrame(rows)


def free_of_charge(draws: Mapping[str, Draws], costs: Costs, gammas: Sequence[int]) -> Estimates:
    """The predicted speed-up of a head whose passes cost nothing, at its best gamma, by prompt
    set.
    """
    free = replace(costs, draft=tuple(0.0 for _ in costs.draft))
    best = best_speeds(draws, {HEAD: free}, gammas)
    return speed_table(best, draws)


def longest_in_words(tau: Estimates, gamma: int) -> str:
    """Tokens per target pass of the longest chain at T = 0, draft and head, as a title."""
    cold = tau.at(temperature="T = 0", prompts=OWN, gamma=gamma, domain=ALL)
    draft, own = (cold.at(drafter=drafter).span() for drafter in (DRAFT, HEAD))
    return (
        f"Gamma {gamma}, own prompts: {draft} tokens per target pass with the draft, {own} with "
        "the head"
    )


def course_in_words(change: Estimates, deepest: int) -> str:
    """How acceptance changes with depth on one prompt set, draft and head, as a title."""
    draft, own = (change.at(drafter=drafter).span() for drafter in (DRAFT, HEAD))
    return f"Depth {deepest} minus depth 1, own prompts: {draft} (draft) and {own} (head)"


def changes_in_words(changed: Estimates) -> str:
    """What the mixed set changes on both prompt sets, as a title."""
    own, second = (changed.at(on=name, domain=ALL).span() for name in (OWN, SECOND))
    return f"The mixed set changes the first token by {own} (own prompts) and {second} (second set)"


# ---- the experiment: two sets of training prompts ------------------------------------------------


def accepted_by_seed(texts: Mapping[str, Sets], mixed: str, form: str) -> pd.DataFrame:
    """How many of the first tokens of each prompt are accepted at T = 0, for both heads of every
    seed: seed, head (FORM or MIXED), prompts, domain, prompt_id, tokens, accepted.

    Seed 0 is counted in the recorded texts, further seeds are read from SEEDS.
    """
    counts = {}
    for name, drafter in ((FORM, form), (MIXED, mixed)):
        for prompts, text in texts[drafter].items():
            by_prompt = text.trace.groupby(["domain", "prompt_id"], sort=False)["hit"]
            sums = by_prompt.agg(tokens="size", accepted="sum").reset_index()
            counts[0, name, prompts] = sums
    first = stack(counts, ["seed", "head", "prompts"])
    return pd.concat([first, further_seeds()], ignore_index=True)


def further_seeds(path: Path = SEEDS) -> pd.DataFrame:
    """The rows of `accepted_by_seed` for the heads that were trained again with other seeds."""
    if not path.is_file():
        raise FilesMissing(f"{OF_HEAD}/{path.name} is missing; `git checkout` brings it back")
    names = {kind: prompts for prompts, kind in KINDS.items()}
    rows = pd.read_csv(path)
    return rows.assign(prompts=rows.pop("kind").map(names))


def changes_by_seed(accepted: pd.DataFrame) -> dict[Any, Estimates]:
    """hit[1] of the head trained on `mixed` prompts minus that of the head trained in the kit's
    form: on the kit's prompts, on the second set, and the second minus the first (the
    interaction), by domain, in points. One table per seed with intervals over prompts, and the
    mean over the seeds (MEAN) with intervals over prompts and seeds (`_mean_over_seeds`).

    The prompts of both sets are resampled apart. The interaction's intervals count the prompts of
    the smaller set.
    """
    draws = {}
    for name in (OWN, SECOND):
        rows = accepted[accepted["prompts"] == name]
        asked = {key: (own, FIRST) for key, own in rows.groupby(["head", "seed"], sort=False)}
        draws[name] = stats.jointly(asked)
    resamples = len(draws[OWN][MIXED, 0]) - 1
    order = np.random.default_rng(11).permutation(resamples)
    apart = [0, *(1 + order)]  # so that no resample of one set goes with its twin in the other
    hits: dict[str, dict] = {name: own.values for name, own in draws.items()}
    hits["interaction"] = {
        key: second.iloc[apart].reset_index(drop=True) - hits[OWN][key]
        for key, second in hits[SECOND].items()
    }
    smaller = min(draws.values(), key=lambda own: own.prompts.fewest)
    seeds = list(pd.unique(accepted["seed"]))
    tables: dict[Any, list[pd.DataFrame]] = {seed: [] for seed in (*seeds, MEAN)}
    for name, own in hits.items():
        mixed, form = ([own[head, seed] for seed in seeds] for head in (MIXED, FORM))
        changes = dict(zip(seeds, map(pd.DataFrame.sub, mixed, form), strict=True))
        for seed, change in (changes | {MEAN: _mean_over_seeds(mixed, form)}).items():
            table = draws.get(name, smaller).table({name: change}, key="on").frame
            tables[seed].append(table)
    return {
        seed: Estimates(pd.concat(parts, ignore_index=True)).in_units("points", 1)
        for seed, parts in tables.items()
    }


def _mean_over_seeds(mixed: Sequence[pd.DataFrame], form: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The mean over the seeds of `mixed`, minus that of `form`. To the resamples the error of this
    difference of two means is added: Student's t, in random order, with the variance over the
    seeds, which is pooled over both heads.
    """
    both = np.array([[draws.to_numpy() for draws in own] for own in (mixed, form)])
    means, seeds = both.mean(axis=1), len(mixed)  # [heads, 1 + n, columns]
    difference = means[0] - means[1]
    if seeds > 1:
        variance = both[:, :, 0].var(axis=1, ddof=1).mean(axis=0)
        share = (0.5 + np.arange(len(difference) - 1)) / (len(difference) - 1)
        error = np.random.default_rng(7).permutation(stdtrit(2 * (seeds - 1), share))
        difference[1:] += error[:, None] * np.sqrt(2 * variance / seeds)
    return pd.DataFrame(difference, columns=mixed[0].columns)


def seed_table(changes: Mapping[Any, Estimates]) -> Estimates:
    """`changes_by_seed` for the mean of the domains: seed, on, estimate, low, high."""
    parts = {seed: own.at(domain=ALL) for seed, own in changes.items()}
    return Estimates.stacked(parts, "seed").in_units("points", 1)


def domain_orders(first: Estimates, accepted: pd.DataFrame) -> pd.DataFrame:
    """The domains from most to least accepted: prompts, drafter, order, and how many seeds of the
    drafter have this order. A head's order is that of its mean over the seeds.
    """
    rows = []
    for prompts in pd.unique(first.frame["prompts"]):
        draft = first.at(prompts=prompts, drafter=DRAFT).without(domain=[ALL, POOLED]).frame
        order = _order(draft.set_index("domain")["estimate"])
        rows.append((prompts, DRAFT, order, "1 of 1"))
        for name, own in accepted[accepted["prompts"] == prompts].groupby("head", sort=False):
            shares = _shares(own)
            order = _order(shares.mean(axis=1))
            alike = sum(_order(shares[seed]) == order for seed in shares)
            rows.append((prompts, f"head, {NAMES[name]}", order, f"{alike} of {shares.shape[1]}"))
    return pd.DataFrame(rows, columns=["prompts", "drafter", "order", "seeds"])


def hits_by_seed(accepted: pd.DataFrame) -> pd.DataFrame:
    """hit[1] of each head in percent, mean of the domains: prompts, head, and a column per seed."""
    rows = []
    for (prompts, name), own in accepted.groupby(["prompts", "head"], sort=False):
        hits = (100 * _shares(own).mean()).add_prefix("seed ")
        rows.append({"prompts": prompts, "head": name} | hits.to_dict())
    return pd.DataFrame(rows)


def _shares(accepted: pd.DataFrame) -> pd.DataFrame:
    """hit[1] of one head on one prompt set, domain by seed."""
    sums = accepted.groupby(["domain", "seed"], sort=False)[["accepted", "tokens"]].sum()
    return (sums["accepted"] / sums["tokens"]).unstack("seed", sort=False)


def _order(shares: pd.Series) -> str:
    return " > ".join(shares.sort_values(ascending=False).index)


def pairs_that_change(accepted: pd.DataFrame, prompts: str, level: float) -> pd.DataFrame:
    """For each two domains: by how much the mixed training set changes the difference between them
    in hit[1], mean over the seeds, with Holm's p-value and `sign` (`significance.with_signs`).
    """
    rows = accepted[accepted["prompts"] == prompts]
    sign = rows["head"].map({MIXED: 1, FORM: -1}) / rows["seed"].nunique()
    by_prompt = rows.assign(change=sign * rows["accepted"]).groupby(["domain", "prompt_id"])
    changes = by_prompt.agg(change=("change", "sum"), tokens=("tokens", "first")).reset_index()
    tests = significance.differences(changes, score.ratio_of("change", "tokens"))
    return significance.with_signs(tests, level)


# ---- what was expected ---------------------------------------------------------------------------


def expected(path: Path = EXPECTED) -> pd.DataFrame:
    """The first table of `expected.md`, written before training: what, and the expected number of
    each head with its range, if it has one (form, form_low, form_high, mixed, ...).
    """
    lines = [line for line in path.read_text("utf-8").splitlines() if line.startswith("| ")]
    rows = []
    for line in lines[2:]:
        what, draft, form, mixed = (entry.strip() for entry in line.strip("|").split("|"))
        row: dict[str, object] = {"what": what, "draft": float(draft)}
        for name, entry in (("form", form), ("mixed", mixed)):
            numbers = [float(number) for number in re.findall(r"\d+\.\d+", entry)]
            row[name] = numbers[0]
            if len(numbers) == 3:
                row[f"{name}_low"], row[f"{name}_high"] = numbers[1:]
        rows.append(row)
    return pd.DataFrame(rows)


def came(
    hits: Mapping[str, Draws], taus: Mapping[str, Draws], gamma: int, mixed: str, form: str
) -> pd.DataFrame:
    """What came, in the rows of `expected`, for draft, form and mixed: hit[1] as the mean of the
    domains, and tokens per pass of all blocks together, as the numbers of the draft were there.
    """
    rows = []
    for prompts in (OWN, UNWRAPPED, SECOND):
        rows.append({name: hits[prompts][d][ALL].iloc[0] for name, d in _three(mixed, form)})
    for prompts in (OWN, SECOND):
        rows.append({n: taus[prompts][d, gamma][POOLED].iloc[0] for n, d in _three(mixed, form)})
    return pd.DataFrame(rows)


def _three(mixed: str, form: str) -> list[tuple[str, str]]:
    return [("draft", DRAFT), ("form", form), ("mixed", mixed)]


def beside_expected(said: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Expected beside found, in words: what, head, expected, found, verdict."""
    rows = []
    for (_, wanted), (_, got) in zip(said.iterrows(), found.iterrows(), strict=True):
        for name in ("form", "mixed"):
            low, high = (wanted.get(f"{name}_{end}", np.nan) for end in ("low", "high"))
            verdict = f"{got[name] - wanted[name]:+.3f}"
            if low == low:
                inside = low <= got[name] <= high
                verdict += ", in the range" if inside else ", outside the range"
            rows.append((wanted["what"], name, wanted[name], got[name], verdict))
    columns = ["what", "head", "expected", "found", "found - expected"]
    return pd.DataFrame(rows, columns=columns)


# ---- measured ------------------------------------------------------------------------------------

Speeds = Mapping[str, Mapping[str, pd.DataFrame]]  # by drafter and prompt set


def cannot_decode(profile: Profile, of_head: Profile) -> str:
    """Why nothing can be decoded here; '' if it can."""
    if said := head.unreadable(ModelFolder(ROOT / OF_HEAD)):
        return said
    for name in MODELS:
        for own in (profile, of_head):
            folder = ModelFolder.whole(getattr(own, name))
            if folder is None or not folder.tensors:
                return f"the weights of the {name} are missing (`make pair PROFILE={profile.name}`)"
    return ""


def timed_prompts(profile: Profile, per_domain: int) -> dict[str, list[EncodedPrompt]]:
    """The prompts that are decoded, of the kit's own and of the second set."""
    second = of_kind(profile, "second")
    return {
        OWN: decoded_prompts(encoded_prompts(profile), per_domain, profile.notes.decoded_from),
        SECOND: decoded_prompts(encoded_prompts(second), per_domain),
    }


def check_decoded(
    speeds: Mapping[str, pd.DataFrame], texts: Sets, shapes: Mapping[str, Shape], new_tokens: int
) -> list[str]:
    """The prompts whose decoded text is not the recorded one, or whose chain has other blocks than
    its replay; [] if all are right.
    """
    unlike = []
    for prompts, own in speeds.items():
        trace = texts[prompts].trace.query("position < @new_tokens")
        words = trace.groupby("prompt_id")["token"].agg(tuple)
        replayed = {
            name: replay.prompt_sums(replay.replay(trace, shape.tree))
            for name, shape in shapes.items()
            if shape.tree
        }
        for row in own.itertuples(index=False):
            right = row.text == words[row.prompt_id]
            if row.method in replayed:
                sums = replayed[row.method].set_index("prompt_id")["blocks"]
                right = right and row.blocks == sums[row.prompt_id]
            if not right:
                unlike.append(row.prompt_id)
    return unlike


def measured_gain(speeds: Speeds, shown: Mapping[str, str]) -> Estimates:
    """Measured speed-ups over plain decoding, from `timing.decoded_speed`: drafter, prompts, shape,
    estimate, low, high. shown: the name of each method of the decoder.
    """
    parts = {}
    for (drafter, prompts), own in _each(speeds).items():
        seconds = timing.drawn_seconds(own)
        gain = seconds.drop(columns="plain").rdiv(seconds["plain"], axis=0)
        table = timing.intervals(gain, "shape", own["prompt_id"].nunique()).frame
        parts[drafter, prompts] = table.assign(shape=table["shape"].map(shown))
    return Estimates(stack(parts, ["drafter", "prompts"])).in_units("x", 2)


def decoded_rates(speeds: Speeds, shown: Mapping[str, str]) -> pd.DataFrame:
    """Tokens per target pass of the decoded texts: prompts, shape, and a column per drafter."""
    parts = {}
    for key, own in _each(speeds).items():
        totals = own[own["method"] != "plain"].groupby("method", sort=False)
        sums = totals[["tokens", "blocks"]].sum()
        rate = (sums["tokens"] / sums["blocks"]).rename("rate").reset_index()
        parts[key] = rate.assign(shape=rate.pop("method").map(shown))
    rows = stack(parts, ["drafter", "prompts"])
    wide = rows.pivot(index=["prompts", "shape"], columns="drafter", values="rate")
    return wide.rename_axis(columns=None).reset_index()


def _each(speeds: Speeds) -> dict[tuple[str, str], pd.DataFrame]:
    return {(d, name): own for d, sets in speeds.items() for name, own in sets.items()}


def costs_of_card(card: dict) -> dict[str, Costs]:
    """The costs that were measured when the head was shipped. Both have one target, so v is the
    mean of what was measured beside each.
    """
    measured = {
        drafter: Costs(**{name: _tuple(value) for name, value in own.items()})
        for drafter, own in card["costs"].items()
    }
    verify = tuple(np.mean([costs.verify for costs in measured.values()], axis=0).tolist())
    return {drafter: replace(costs, verify=verify) for drafter, costs in measured.items()}


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# ---- sentences -----------------------------------------------------------------------------------


def chains_in_words(decoded: Estimates) -> str:
    """The measured speed-up of both drafters' chains on own prompts, as a title."""
    chain = decoded.frame["shape"].iloc[0]
    draft, own = (
        decoded.at(prompts=OWN, shape=chain, drafter=drafter).span() for drafter in (DRAFT, HEAD)
    )
    return f"{starting(chain)}, own prompts: {draft} with the draft, {own} with the head"


def checked_in_words(timed: Mapping[str, Sequence], drafters: Collection[str]) -> str:
    """How many texts were decoded and compared."""
    prompts = sum(map(len, timed.values()))
    return f"{counted(prompts, 'prompt')} with each of {counted(len(drafters), 'drafter')}"


def seeds_in_words(table: Estimates) -> str:
    """The interaction of every seed, from `seed_table`."""
    own = table.at(on="interaction").without(seed=MEAN)
    numbers = named([cell(row.estimate, row.low, row.high, 1, "points") for row in own.rows()])
    said = f"The interaction is {numbers} with {counted(len(own.frame), 'seed')}"
    return f"{said}. The interval of the mean covers prompts and seeds."


def follow_in_words(orders: pd.DataFrame, tests: pd.DataFrame) -> str:
    """Whether the order of the domains, and the differences between two of them, follow the
    training set.
    """
    wide = orders.pivot(index="prompts", columns="drafter", values="order")
    form, mixed = (wide[f"head, {NAMES[name]}"] for name in (FORM, MIXED))
    other = [after_on(name) for name in pd.unique(orders["prompts"]) if form[name] != mixed[name]]
    order = (
        f"The two training sets order the domains differently on {named(other)}."
        if other
        else "Both training sets lead to the same order of the domains on all prompt sets."
    )
    changed = (tests["sign"] != 0).groupby(tests["prompts"], sort=False).agg(["sum", "size"])
    if not changed["sum"].any():
        said = "significantly changes no difference between two domains on any prompt set"
    else:
        counts = [f"{n} of {size} on {after_on(name)}" for name, n, size in changed.itertuples()]
        said = f"significantly changes differences between two domains: {named(counts)}"
    return f"{order} The mixed set {said} (Holm's test)."


def seeds_expected_in_words(
    hits: pd.DataFrame, table: Estimates, path: Path = EXPECTED_OF_SEEDS
) -> str:
    """How many of the numbers of the further seeds lie in the ranges that were written down before
    their training, from `hits_by_seed` and `seed_table`.
    """
    lines = [line for line in path.read_text("utf-8").splitlines() if line.startswith("| ")][2:]
    ranges = [[float(x) for x in re.findall(r"-?\d+\.\d+", line)][-2:] for line in lines]
    further = [seed for seed in pd.unique(table.frame["seed"]) if seed not in (0, MEAN)]
    found = [
        [100 * table.at(on=on, seed=seed).value for seed in further]
        for on in (OWN, SECOND, "interaction")
    ]
    for prompts in (OWN, SECOND):
        own = hits[hits["prompts"] == prompts]
        found.append([x for seed in further for x in own[f"seed {seed}"] - own["seed 0"]])
    inside = [low <= x <= high for (low, high), own in zip(ranges, found, strict=True) for x in own]
    return (
        f"Of the {counted(len(inside), 'number')} of the further seeds {sum(inside)} lie in the "
        f"ranges that we wrote down before their training (`{path.name}`)."
    )


def hits_in_words(table: pd.DataFrame) -> str:
    """How many expectations held, and on which side the others lie."""
    verdict = table["found - expected"]
    ranged = verdict.str.contains("range").sum()
    held = verdict.str.contains("in the range").sum()
    higher = (table["found"] > table["expected"]).sum()
    return (
        f"{held} of the {counted(ranged, 'range')} that we wrote down contain what we found. "
        f"{higher} of {counted(len(table), 'number')} are higher than expected."
    )


def answer(over_draft: Estimates, ratios: Estimates) -> str:
    """The answer to the notebook's question."""
    own, second = (over_draft.at(prompts=prompts) for prompts in (OWN, SECOND))
    return (
        f"Trained equally, a head gains {own} in first-token acceptance over the draft on own "
        f"prompts and {second} on the second set. At measured costs it is "
        f"{faster_in_words(ratios)}."
    )


def faster_in_words(ratios: Estimates) -> str:
    """On which prompt sets the head is faster than the draft, from `ratios_of_speed`."""
    verdicts = stats.verdict(ratios.frame["low"], ratios.frame["high"], 1.0)
    of_verdict = ratios.frame["prompts"].groupby(verdicts).agg(list)
    clauses = []
    for verdict, word in ((ABOVE, "faster"), (BELOW, "slower")):
        if (verdicts == verdict).all():
            return f"{word} than the draft on all prompt sets"
        if verdict in of_verdict:
            clauses.append(f"{word} on {named([*map(after_on, of_verdict[verdict])])}")
    if not clauses:
        return "not significantly faster or slower on any prompt set"
    rest = ", inconclusive on the rest" if INCONCLUSIVE in of_verdict else ""
    return " and ".join(clauses) + rest


def help_in_words(change: Estimates) -> str:
    """What prompts without a format in the training set do, from the mean `interaction`."""
    words = {
        ABOVE: "Training prompts without a format help more where test prompts have none",
        BELOW: "Training prompts without a format help less where test prompts have none",
    }
    neither = "The training prompts matter about equally on both sets"
    return f"{words.get(change.verdict(), neither)} (interaction {change})."

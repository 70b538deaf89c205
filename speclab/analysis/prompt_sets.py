"""Does what one set of prompts says of domains hold on others? The same question asked of the
profile's own prompts and of each set that its `other_prompts` name. The kit's own prompts are asked
again without the words that stand around each problem, and on a second set, written in no form that
a draft was trained on (data/second_prompts).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from speclab import stats
from speclab.analysis import power, significance
from speclab.analysis.texts import Text
from speclab.estimates import Estimates, named, stack
from speclab.profiles import Profile
from speclab.prompts import HUB_SETS, WITH_WORDS
from speclab.runs import kind_of_set, sets_asked, sizes_of
from speclab.score import ALL, POOLED, Estimator, domains_in
from speclab.stats import NUMBERS

OWN = "own prompts"
UNWRAPPED = "without wrapper"
SECOND = "second prompt set"
# without its prompts in other languages, which are chat
ENGLISH = "second set in English"
# domains whose texts are not those of a set above: all of them where a set is not named
NEW = {UNWRAPPED: WITH_WORDS, ENGLISH: ("chat",)}
ABOUT = {
    "unwrapped": f"**{UNWRAPPED}**: our own problems of math and reasoning without the words that "
    "stand around each of them (`Solve as a math problem …`). The prompts of code and chat have no "
    "such words, so their texts are the same and are not shown again.",
    "second": f"**{SECOND}**: 120 prompts in eight categories, written as people write "
    "(`data/second_prompts`), none in the format of a draft's training. Five of the categories are "
    "chat. One of these is in other languages, so the set is shown once more without it.",
}
NO_OTHERS = (
    "This profile names no other prompts (`other_prompts`), so nothing here says whether the "
    "findings hold on other prompts."
)
IT = "it"  # the one number that is asked
MOST_NAMED = 3  # domains in the name of a difference
LEAD, SPREAD, LAST = "lead", "spread", "last"  # of `contrasts_by_set`
CHANGE = ["change", "change_low", "change_high"]

Asked = tuple[pd.DataFrame, Estimator]  # rows, and what is asked of them
Question = Callable[[Text], Asked]


def texts(profile: Profile, own: Text) -> dict[str, Text]:
    """Texts of each set at the temperature of `own`, which are the profile's own: then the other
    `sets_asked`, recorded if they are not there. Every set has one text a prompt, of the profile's
    seed, so that like is compared with like: of several seeds `own` gives its first. Of another set
    the domains of the profile's own prompts count. ValueError where it has none of them.
    """
    seed = own.trace["seed"]
    of_first = own.trace[seed == seed.iloc[0]]
    sets = {OWN: replace(own, trace=of_first.reset_index(drop=True))}
    domains = domains_in(own.trace)
    ending = "-sampled" if own.temperature else ""
    for source in sets_asked(profile, domains):
        other = Text.recorded(profile, f"{kind_of_set(source)}{ending}")
        check_domains(source, domains_in(other.trace), domains)
        name = set_name(source)
        if name in sets:
            raise ValueError(
                f"other_prompts: {source}: tables call another set {name!r}; rename it"
            )
        sets[name] = _where(other, other.trace["domain"].isin(domains))
    if second := sets.get(SECOND):
        sets[ENGLISH] = _where(second, category_of(second.trace) != "language")
    return sets


def check_domains(source: str, theirs: Collection[str], domains: Collection[str]) -> None:
    """ValueError for a set none of whose domains is one of the profile's own prompts."""
    if not set(domains) & set(theirs):
        raise ValueError(
            f"other_prompts: {source} has the domains {named([*theirs])} and none of "
            f"{named([*domains])}: name the domains alike, or leave the set out"
        )


def _where(text: Text, is_kept: pd.Series) -> Text:
    """The texts of some of the prompts."""
    kept = text.trace["prompt_id"][is_kept].unique()
    frames = (text.trace, text.nodes)
    trace, nodes = (rows[rows["prompt_id"].isin(kept)] for rows in frames)
    return replace(text, trace=trace, nodes=nodes)


def with_all_domains(sets: Mapping[str, Text]) -> dict[str, Text]:
    """The sets that have every domain of the first, `OWN`: those whose means are of the same."""
    domains = {*sets[OWN].trace["domain"]}
    return {name: text for name, text in sets.items() if domains <= {*text.trace["domain"]}}


def farthest(sets: Iterable[str]) -> str | None:
    """Which set a sentence names that has room for one: the last of the others, whole."""
    others = [name for name in sets if name not in (OWN, ENGLISH)]
    return others[-1] if others else None


def in_sentence(name: str) -> str:
    """A set's name after 'the prompts of'."""
    return f"the {name}" if name == SECOND else name


def set_name(source: str) -> str:
    """What a set is called in tables."""
    return {"unwrapped": UNWRAPPED, "second": SECOND}.get(source, Path(source).stem)


def described(profile: Profile, is_sampled: bool = True) -> str:
    """What the other sets are, in sentences (Markdown); where there is none, that too. is_sampled:
    whether their sampled texts are asked too.
    """
    lines = [ABOUT.get(source) or _about(profile, source) for source in profile.others]
    if not lines:
        return NO_OTHERS
    if is_sampled:
        lines.append(
            f"At T = {profile.sampled_temperature:g} every set, our own too, has one text per "
            "prompt, of one seed, so that like is compared with like."
        )
    return "\n\n".join(lines)


def _about(profile: Profile, source: str) -> str:
    """A public set, or a file or folder: how many prompts it has in each of the profile's domains,
    and which of these it lacks.
    """
    if source in HUB_SETS:
        return f"**{set_name(source)}**: the public set of this name."
    sizes = sizes_of(profile.replace(prompts=source, prompts_per_domain=None, domains=None))
    domains = list(sizes_of(profile))
    there = [f"{domain} {sizes[domain]}" for domain in domains if domain in sizes]
    missing = [domain for domain in domains if domain not in sizes]
    has = f"**{set_name(source)}**: prompts of `{Path(source).name}` ({named(there)})."
    if not missing:
        return has
    return f"{has} It lacks {named(missing)}, so comparisons of all domains leave it out."


def category_of(rows: pd.DataFrame) -> pd.Series:
    """The category of each row of the second set."""
    parts = rows["prompt_id"].str.split("-")
    return parts.str[1]


def asked(sets: Mapping[str, Text], question: Question) -> dict[str, stats.Draws]:
    """The question's draws on each set, by name; each set resamples its own prompts."""
    return {name: stats.jointly({IT: question(text)}) for name, text in sets.items()}


def is_new(name: str, *domains: str) -> bool:
    """Whether a set has texts of its own in one of the domains: what it says of others is the same
    number again, and agrees with nothing.
    """
    return any(domain in NEW.get(name, domains) for domain in domains)


def by_set(draws: Mapping[str, stats.Draws], what: Any = IT, digits: int = 3) -> Estimates:
    """A number of the draws on each set, where its texts are new: set, domain, estimate, low, high,
    n_prompts.
    """
    tables = {}
    for name, each in draws.items():
        table = each.table({what: each[what]}).drop(columns="name")
        shown = [is_new(name, domain) for domain in table["domain"]]
        tables[name] = table[shown]
    numbers = Estimates.stacked(tables, "set", digits)
    return numbers.without(domain=[ALL, POOLED])


def comparable(sets: Mapping[str, Text], question: Question) -> dict[str, Asked]:
    """The question on every set that has 5 prompts or more in all domains where the first set has
    so many; of these domains, in the first set's order.
    """
    questions = {name: question(text) for name, text in sets.items()}
    judged = {name: stats.judged_domains(rows) for name, (rows, _) in questions.items()}
    domains = judged[OWN]
    compared = {}
    for name, (rows, estimator) in questions.items():
        if set(domains) <= set(judged[name]):
            number = pd.Index(domains).get_indexer(rows["domain"])
            order = np.argsort(number, kind="stable")
            compared[name] = rows.iloc[order[number[order] >= 0]], estimator
    return compared


def contrasts_by_set(sets: Mapping[str, Text], question: Question) -> Estimates:
    """The first set's order of the domains asked of every `comparable` set, as three differences.
    LEAD: its highest domain minus the mean of the others; SPREAD: its highest minus its lowest;
    LAST: the mean of those between minus its lowest. Of two domains SPREAD alone.

    role, contrast, set, estimate, low, high, n_prompts, note; power: `power_of` the first set's
    difference; change, change_low, change_high: less the first set's, prompts paired where they are
    the same problems; highest: the highest domain of that set. ValueError: one domain.
    """
    questions = comparable(sets, question)
    draws = {name: stats.jointly({IT: each}) for name, each in questions.items()}
    means = {name: own[IT].drop(columns=[ALL, POOLED]) for name, own in draws.items()}
    levels = means[OWN].iloc[0].sort_values(ascending=False, kind="stable")
    order = list(levels.index)
    if len(order) < 2:
        raise ValueError(f"one domain ({named(order)}): there is nothing to compare")
    weights = _weights(order)
    roles = list(weights)
    first, *middle, last = order
    called = {LEAD: f"{first} − the others", SPREAD: f"{first} − {last}"}
    between = "those between" if len(middle) > MOST_NAMED else named(middle)
    called[LAST] = f"{between} − {last}"
    weights = weights.rename(columns=called)
    before = means[OWN][order] @ weights
    tables = {}
    for name, each in draws.items():
        values = means[name][order] @ weights
        table = each.table(dict(values), "contrast")
        # the same problems, or other prompts with resamples of their own
        shift = 0 if name in (OWN, UNWRAPPED) else 1
        shifted = np.roll(before[1:], shift, axis=0)
        change = values - np.r_[before[:1], shifted]
        table[CHANGE] = each.table(dict(change))[NUMBERS]
        table["power"] = power_of(before.iloc[0], weights, *questions[name])
        table["highest"] = means[name].iloc[0].idxmax()
        table.insert(0, "role", roles)
        tables[name] = table
    return Estimates(stack(tables, "set"), digits=3)


def _weights(order: list[str]) -> pd.DataFrame:
    """The weights of the domains (rows, from highest to lowest) in each difference (columns)."""
    weights = pd.DataFrame(0.0, order, [SPREAD])
    weights.iloc[0, 0], weights.iloc[-1, 0] = 1, -1
    if len(order) > 2:
        weights.insert(0, LEAD, [1.0, *[-1 / (len(order) - 1)] * (len(order) - 1)])
        weights[LAST] = [0.0, *[1 / (len(order) - 2)] * (len(order) - 2), -1.0]
    return weights


def power_of(
    differences: pd.Series,
    weights: pd.DataFrame,
    rows: pd.DataFrame,
    estimator: Estimator,
    level: float = 0.05,
) -> np.ndarray:
    """Probabilities that tests on the prompts of `rows` find true `differences` between domains;
    weights: of the domains (rows) in each of them (columns).
    """
    influence = power.influence(rows, estimator)
    fewest = min(map(len, influence.values()))
    of_domains = [influence[name] for name in weights.index]
    of_means = [values.var(ddof=1) / len(values) for values in of_domains]
    variances = (weights**2).T @ of_means
    deviations = np.sqrt(variances * fewest)
    design = power.Design(deviations.to_numpy())
    return design.power(np.asarray(differences), fewest, level)


def pairs_of_domains(sets: Mapping[str, Text], question: Question, level: float) -> pd.DataFrame:
    """Every pair of domains on each `comparable` set, where one of the two has new texts: set, the
    columns of `significance.with_signs` (Holm's family is the set's), sign_own (of the first set)
    and power (`power_of` the first set's difference).
    """
    tables = {}
    questions = comparable(sets, question)
    for name, (rows, estimator) in questions.items():
        tests = significance.differences(rows, estimator)
        tables[name] = significance.with_signs(tests, level)
    own = tables[OWN].copy()
    first, second = (pd.get_dummies(own[side], dtype=float) for side in ("first", "second"))
    weights = first.sub(second, fill_value=0).T
    first_step = level / len(own)  # of Holm's
    for name, table in tables.items():
        table["sign_own"] = own["sign"]
        table["power"] = power_of(own["difference"], weights, *questions[name], first_step)
    pairs = stack(tables, "set")
    new = [is_new(pair.set, pair.first, pair.second) for pair in pairs.itertuples()]
    return pairs[new].reset_index(drop=True)


def carried(pairs: pd.DataFrame) -> pd.DataFrame:
    """What became, on each set, of the pairs that differ significantly on the first: set, compared
    (how many have new texts there), same and reversed (significant there in the same direction,
    and in the opposite one), expected (sum of the powers: how many of them the set's tests find if
    its differences are those of the first set).
    """
    is_significant = pairs["sign_own"] != 0
    agrees = pairs["sign"] * pairs["sign_own"]
    counts = {
        "compared": is_significant,
        "same": agrees > 0,
        "reversed": agrees < 0,
        "expected": pairs["power"] * is_significant,
    }
    by_set = pd.DataFrame(counts).groupby(pairs["set"], sort=False)
    return by_set.sum().reset_index()


def effect_of_words(sets: Mapping[str, Text], question: Question) -> Estimates:
    """What the words around a problem change, its own form minus without, paired by prompt:
    domain, estimate, low, high, n_prompts, p_value; of the domains that have such words.
    """
    (own, estimator), (alone, _) = (question(sets[name]) for name in (OWN, UNWRAPPED))
    own, alone = (rows[rows["domain"].isin(WITH_WORDS)] for rows in (own, alone))
    effects = significance.paired_by_domain(own, alone, estimator)
    numbers = Estimates(effects, digits=3)
    return numbers.without(domain=POOLED)

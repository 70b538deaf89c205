"""Do differences between domains hold on other prompts? The same question is asked of the profile's
own prompts and of each set in its `other_prompts`. The kit has two such sets. One has its own
prompts without the wrapper around each problem. The other is a second prompt set
(data/second_prompts), on whose format no draft was trained.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

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
# without its prompts in other languages, which belong to chat
ENGLISH = "second set in English"
# domains in which a set has new texts; a set that is not named here has new texts in all domains
NEW = {UNWRAPPED: WITH_WORDS, ENGLISH: ("chat",)}
ABOUT = {
    "unwrapped": f"**{UNWRAPPED.capitalize()}**: our problems of math and reasoning without the "
    "wrapper around each problem (`Solve as a math problem …`). Prompts of code and chat have no "
    "wrapper, so their texts are the same and are not shown again.",
    "second": f"**{SECOND.capitalize()}**: 120 prompts in eight categories "
    "(`data/second_prompts`). No draft was trained on their format. Five of the "
    "categories count as chat; the other three are code, math and reasoning. One of the five is "
    f"not in English. We also show the set without it, as *{ENGLISH}*.",
}
NO_OTHERS = (
    "This profile names no other prompts (`other_prompts`), so we cannot say whether the findings "
    "hold on other prompts."
)
IT = "it"  # the name of the only number of a question
MOST_NAMED = 3  # domains in the name of a difference
LEAD, SPREAD, LAST = "lead", "spread", "last"  # of `contrasts_by_set`
CHANGE = ["change", "change_low", "change_high"]


@dataclass(frozen=True)
class PromptSet:
    """A set of prompts of which the same question is asked, and the target's texts on them.

    name: in tables and keys. in_words: in a sentence, after 'on'. new: the domains in which its
    texts are those of no set before it. is_part: whether another set has all its prompts.
    """

    name: str
    in_words: str
    text: Text
    new: tuple[str, ...]
    is_part: bool = False

    @property
    def trace(self) -> pd.DataFrame:
        """The texts, one row per position."""
        return self.text.trace

    @property
    def prompts(self) -> pd.Series:
        """Number of prompts by domain."""
        return self.trace.groupby("domain", sort=False)["prompt_id"].nunique()

    def shown(self, table: Estimates, *more: str) -> pd.DataFrame:
        """The rows of a table by domain in which the set has new texts. In other domains it would
        repeat the numbers of another set. more: further values of `domain` that are kept, as
        `score.ALL`, if all domains are new.
        """
        all_new = set(self.new) == set(self.trace["domain"])
        kept = {*self.new, *(more if all_new else ())}
        return table.frame[table.frame["domain"].isin(kept)]


Asked = tuple[pd.DataFrame, Estimator]  # rows, and what is computed from them
Question = Callable[[Text], Asked]


def texts(profile: Profile, own: Text) -> dict[str, Text]:
    """Texts of each set at the temperature of `own`: the profile's own texts, then the other
    `sets_asked`, which are recorded if they are missing. To compare like with like, every set has
    one text per prompt, with the profile's seed (the first seed of `own`). Other sets are limited
    to the domains of the profile's own prompts. ValueError: a set has none of these domains.
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
                f"other_prompts: {source}: tables call another set {name!r}; rename the file"
            )
        sets[name] = _where(other, other.trace["domain"].isin(domains))
    if second := sets.get(SECOND):
        sets[ENGLISH] = _where(second, category_of(second.trace) != "language")
    return sets


def check_domains(source: str, theirs: Collection[str], domains: Collection[str]) -> None:
    """ValueError if a set has none of the domains of the profile's own prompts."""
    if not set(domains) & set(theirs):
        raise ValueError(
            f"other_prompts: {source} has the domains {named([*theirs])} and none of "
            f"{named([*domains])}: use the same names for the domains, or leave the set out"
        )


def read(profile: Profile, own: Text) -> dict[str, PromptSet]:
    """The prompt sets of a profile by name: its own, then the others that it names, with their
    `texts`.
    """
    sets = {}
    for name, text in texts(profile, own).items():
        new = [domain for domain in domains_in(text.trace) if is_new(name, domain)]
        sets[name] = PromptSet(name, after_on(name), text, tuple(new), name == ENGLISH)
    return sets


def last(sets: Mapping[str, PromptSet]) -> PromptSet:
    """The set that a short sentence names beside the own prompts: the last one that is not a part
    of another; the own prompts if there is no other set.
    """
    return [each for each in sets.values() if not each.is_part][-1]


def _where(text: Text, is_kept: pd.Series) -> Text:
    """The texts of some of the prompts."""
    kept = text.trace["prompt_id"][is_kept].unique()
    frames = (text.trace, text.nodes)
    trace, nodes = (rows[rows["prompt_id"].isin(kept)] for rows in frames)
    return replace(text, trace=trace, nodes=nodes)


Sets = TypeVar("Sets", bound=Text | PromptSet)


def with_all_domains(sets: Mapping[str, Sets]) -> dict[str, Sets]:
    """The sets that have every domain of the first set, `OWN`, so that means of domains compare."""
    domains = {*sets[OWN].trace["domain"]}
    return {name: each for name, each in sets.items() if domains <= {*each.trace["domain"]}}


def farthest(sets: Iterable[str]) -> str | None:
    """The one set that a short sentence names: the last of the other sets."""
    others = [name for name in sets if name not in (OWN, ENGLISH)]
    return others[-1] if others else None


def after_on(name: str) -> str:
    """A set's name after 'on'."""
    known = {
        OWN: "our own prompts",
        UNWRAPPED: "prompts without wrapper",
        SECOND: "the second prompt set",
        ENGLISH: "the second prompt set in English",
    }
    return known.get(name, f"the set {name}")


def set_name(source: str) -> str:
    """What a set is called in tables."""
    return {"unwrapped": UNWRAPPED, "second": SECOND}.get(source, Path(source).stem)


def described(profile: Profile, is_sampled: bool = True) -> str:
    """Which other sets the profile names, if any, in sentences (Markdown). is_sampled: whether
    their sampled texts are used, too.
    """
    lines = [ABOUT.get(source) or _about(profile, source) for source in profile.others]
    if not lines:
        return NO_OTHERS
    if is_sampled:
        lines.append(
            f"At T = {profile.sampled_temperature:g} we use one text per prompt from one seed on "
            "every set, so that the sets are comparable."
        )
    return "\n\n".join(lines)


def _about(profile: Profile, source: str) -> str:
    """A public set, or a file or folder with its number of prompts in each of the profile's domains
    and the domains that it lacks.
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
    return f"{has} It lacks {named(missing)}, so comparisons of all domains leave this set out."


def category_of(rows: pd.DataFrame) -> pd.Series:
    """The category of each row of the second set."""
    parts = rows["prompt_id"].str.split("-")
    return parts.str[1]


def asked(sets: Mapping[str, Text], question: Question) -> dict[str, stats.Draws]:
    """The question's draws on each set, by name. Each set resamples its own prompts."""
    return {name: stats.jointly({IT: question(text)}) for name, text in sets.items()}


def is_new(name: str, *domains: str) -> bool:
    """Whether a set has new texts in one of the domains. In other domains its texts are those of
    another set, so the same number would only be repeated.
    """
    return any(domain in NEW.get(name, domains) for domain in domains)


def by_set(draws: Mapping[str, stats.Draws], what: Any = IT, digits: int = 3) -> Estimates:
    """A number of the draws on each set, in the domains where its texts are new: set, domain,
    estimate, low, high, n_prompts.
    """
    tables = {}
    for name, each in draws.items():
        table = each.table({what: each[what]}).frame.drop(columns="name")
        shown = [is_new(name, domain) for domain in table["domain"]]
        tables[name] = table[shown]
    numbers = Estimates.stacked(tables, "set", digits)
    return numbers.without(domain=[ALL, POOLED])


def comparable(sets: Mapping[str, Text], question: Question) -> dict[str, Asked]:
    """The question on every set that has 5 prompts or more in all domains in which the first set
    has 5 or more. Only these domains, in the first set's order.
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
    """The first set's order of the domains, tested on every `comparable` set by three differences.
    LEAD: its highest domain minus the mean of the others. SPREAD: its highest minus its lowest.
    LAST: the mean of the domains in between minus its lowest. Two domains have SPREAD only.

    Columns: role, contrast, set, estimate, low, high, n_prompts, note; power: `power_of` the first
    set's difference; change, change_low, change_high: minus the first set's difference, paired by
    prompt if the problems are the same; highest: the highest domain of that set. ValueError: one
    domain.
    """
    questions = comparable(sets, question)
    draws = {name: stats.jointly({IT: each}) for name, each in questions.items()}
    means = {name: own[IT].drop(columns=[ALL, POOLED]) for name, own in draws.items()}
    levels = means[OWN].iloc[0].sort_values(ascending=False, kind="stable")
    order = list(levels.index)
    if len(order) < 2:
        raise ValueError(f"only one domain ({named(order)}): nothing to compare")
    weights = _weights(order)
    roles = list(weights)
    first, *middle, last = order
    called = {LEAD: f"{first} − the others", SPREAD: f"{first} − {last}"}
    between = "those in between" if len(middle) > MOST_NAMED else named(middle)
    called[LAST] = f"{between} − {last}"
    weights = weights.rename(columns=called)
    before = means[OWN][order] @ weights
    tables = {}
    for name, each in draws.items():
        values = means[name][order] @ weights
        table = each.table(dict(values), "contrast").frame
        # paired for the same problems; other prompts have independent resamples
        shift = 0 if name in (OWN, UNWRAPPED) else 1
        shifted = np.roll(before[1:], shift, axis=0)
        change = values - np.r_[before[:1], shifted]
        table[CHANGE] = each.table(dict(change)).frame[NUMBERS]
        table["power"] = power_of(before.iloc[0], weights, *questions[name])
        table["highest"] = means[name].iloc[0].idxmax()
        table.insert(0, "role", roles)
        tables[name] = table
    return Estimates(stack(tables, "set"), digits=3)


def _weights(order: list[str]) -> pd.DataFrame:
    """The weights of the domains (rows, from highest to lowest) in each difference (columns)."""
    count = len(order)
    highest, *_, lowest = np.eye(count)
    if count == 2:
        return pd.DataFrame({SPREAD: highest - lowest}, order)
    others = (1 - highest) / (count - 1)
    between = (1 - highest - lowest) / (count - 2)
    weights = {LEAD: highest - others, SPREAD: highest - lowest, LAST: between - lowest}
    return pd.DataFrame(weights, order)


def power_of(
    differences: pd.Series,
    weights: pd.DataFrame,
    rows: pd.DataFrame,
    estimator: Estimator,
    level: float = 0.05,
) -> np.ndarray:
    """Probabilities that tests on the prompts of `rows` find true `differences` between domains.
    weights: of the domains (rows) in each difference (columns).
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
    """Every pair of domains on each `comparable` set, if one of the two domains has new texts: set,
    the columns of `significance.with_signs` (Holm's family is all pairs of the set), sign_own (of
    the first set) and power (`power_of` the first set's difference).
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
    """Which pairs that differ significantly on the first set do so on each set: set, compared (the
    pairs that have new texts on the set), same and reversed (significant in the same and in the
    opposite direction), expected (sum of the powers: how many of them the set's tests find on
    average if its differences are those of the first set).
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
    """The effect of the wrapper around a problem: with it minus without it, paired by prompt, in
    the domains that have a wrapper: domain, estimate, low, high, n_prompts, p_value.
    """
    (own, estimator), (alone, _) = (question(sets[name]) for name in (OWN, UNWRAPPED))
    own, alone = (rows[rows["domain"].isin(WITH_WORDS)] for rows in (own, alone))
    effects = significance.paired_by_domain(own, alone, estimator)
    numbers = Estimates(effects, digits=3)
    return numbers.without(domain=POOLED)

"""Do differences between domains hold on other prompts? The same question is asked of the profile's
own prompts and of each set in its `other_prompts`. The kit has two such sets. One has its own
prompts without the wrapper around each problem. The other is a second prompt set
(data/second_prompts), on whose format no draft was trained.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from speclab.estimates import Estimates, named
from speclab.lab.texts import Text
from speclab.score import domains_in
from speclab.study.profiles import Profile
from speclab.study.prompts import WITH_WORDS
from speclab.study.runs import kind_of_set, sets_asked, sizes_of

OWN = "own prompts"
UNWRAPPED = "without wrapper"
SECOND = "second prompt set"
# without its prompts in other languages, which belong to chat
ENGLISH = "second set in English"
# domains in which a set has new texts; a set that is not named here has new texts in all domains
NEW = {UNWRAPPED: WITH_WORDS, ENGLISH: ("chat",)}
IN_WORDS = {  # a set's name in a sentence, after 'on'
    OWN: "our own prompts",
    UNWRAPPED: "prompts without wrapper",
    SECOND: "the second prompt set",
    ENGLISH: "the second prompt set in English",
}
ABOUT = {  # GLOSSARY.md has the whole description
    "unwrapped": f"**{UNWRAPPED.capitalize()}**: math and reasoning without the lines around each "
    "problem.",
    "second": f"**{SECOND.capitalize()}**: 120 other prompts in another form; *{ENGLISH}* leaves "
    "out those in other languages.",
}
ANY_SET = (
    "**{}**: other prompts. If they lack one of our domains, comparisons of all domains leave them "
    "out."
)
CHOSE = ", of which the first {} decided when the draft's training ended"
NO_OTHERS = (
    "This profile names no other prompts (`other_prompts`), so we cannot say whether the findings "
    "hold on other prompts."
)


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
        theirs = domains_in(other.trace)
        if not {*domains} & {*theirs}:
            raise ValueError(
                f"other_prompts: {source} has the domains {named(theirs)} and none of "
                f"{named(domains)}: use the same names for the domains, or leave the set out"
            )
        sets[set_name(source)] = _where(other, other.trace["domain"].isin(domains))
    if second := sets.get(SECOND):
        category = second.trace["prompt_id"].str.split("-").str[1]
        sets[ENGLISH] = _where(second, category != "language")
    return sets


def read(profile: Profile, own: Text) -> dict[str, PromptSet]:
    """The prompt sets of a profile by name: its own, then the others that it names, with their
    `texts`.
    """
    sets = {}
    for name, text in texts(profile, own).items():
        domains = domains_in(text.trace)
        named_new = NEW.get(name, domains)
        new = tuple(domain for domain in domains if domain in named_new)
        in_words = IN_WORDS.get(name, f"the set {name}")
        sets[name] = PromptSet(name, in_words, text, new, name == ENGLISH)
    return sets


def last(sets: Mapping[str, PromptSet]) -> PromptSet:
    """The set that a short sentence names beside the own prompts: the last one that is not a part
    of another; the own prompts if there is no other set.
    """
    return [each for each in sets.values() if not each.is_part][-1]


def _where(text: Text, is_kept: pd.Series) -> Text:
    """The texts of some of the prompts: the rows of the trace that are kept, and their nodes."""
    trace = text.trace[is_kept]
    is_of_them = text.nodes["prompt_id"].isin(trace["prompt_id"])
    return replace(text, trace=trace, nodes=text.nodes[is_of_them])


def complete_sets(sets: Mapping[str, Any]) -> dict[str, Any]:
    """The sets that have every domain of the first set, `OWN`, so that means of domains compare."""
    domains = {*sets[OWN].trace["domain"]}
    return {name: each for name, each in sets.items() if domains <= {*each.trace["domain"]}}


def set_name(source: str) -> str:
    """What a set is called in tables."""
    return {"unwrapped": UNWRAPPED, "second": SECOND}.get(source, Path(source).stem)


def described(profile: Profile) -> str:
    """The profile's own prompts, which of them chose the draft's training, and the other sets that
    it names, if any, in sentences (Markdown).
    """
    sizes = sizes_of(profile).values()
    ends = dict.fromkeys([str(min(sizes)), str(max(sizes))])
    own = f"**{OWN.capitalize()}**: {' to '.join(ends)} per domain"
    if profile.notes.chose:
        own += CHOSE.format(profile.notes.chose)
    lines = [ABOUT.get(source) or ANY_SET.format(set_name(source)) for source in profile.others]
    return " ".join([f"{own}.", *(lines or [NO_OTHERS])])

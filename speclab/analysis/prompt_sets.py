"""Does what one set of prompts says of domains hold on others? The same question asked of the
profile's own prompts, of the same without the words that stand around each problem, and of a second
set, written in no form that a draft was trained on (data/second_prompts).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from speclab import stats
from speclab.analysis import significance
from speclab.analysis.texts import Text
from speclab.profiles import Profile
from speclab.score import ALL, POOLED, Estimator
from speclab.show.estimates import Estimates, counted, named

OWN = "own form"
UNWRAPPED = "unwrapped"
SECOND = "second set"
# without its prompts in other languages, which are chat
ENGLISH = "second set in English"
WITH_WORDS = ("math", "reasoning")  # domains whose prompts have words around them
IT = "it"  # the one number that is asked

# rows, and what is asked of them
Question = Callable[[Text], tuple[pd.DataFrame, Estimator]]


def texts(profile: Profile, own: Text) -> dict[str, Text]:
    """Texts of each set at the temperature of `own`, which are the profile's own, T = 0 or 1: then
    the others (of one seed), recorded if they are not there; `unwrapped` only where the profile's
    prompts have words that can be left out.
    """
    found = {OWN: own}
    kind = "" if own.rule == "greedy" else "-sampled"
    if profile.prompts == "project" and set(WITH_WORDS) & set(profile.domains):
        found[UNWRAPPED] = Text.recorded(profile, f"unwrapped{kind}")
    second = found[SECOND] = Text.recorded(profile, f"second{kind}")
    frames = (second.trace, second.nodes)
    trace, nodes = (rows[category_of(rows) != "language"] for rows in frames)
    found[ENGLISH] = replace(second, trace=trace, nodes=nodes)
    return found


def category_of(rows: pd.DataFrame) -> pd.Series:
    """The category of each row of the second set."""
    parts = rows["prompt_id"].str.split("-")
    return parts.str[1]


def asked(sets: Mapping[str, Text], question: Question) -> dict[str, stats.Draws]:
    """The question's draws on each set, by name; each set resamples its own prompts."""
    return {name: stats.jointly({IT: question(text)}) for name, text in sets.items()}


def by_set(
    draws: Mapping[str, stats.Draws], what: Any = IT, digits: int = 3
) -> Estimates:
    """A number of the draws on each set: set, domain, estimate, low, high, n_prompts."""
    rows = {}
    for name, own in draws.items():
        table = own.table({what: own[what]})
        rows[name] = table.drop(columns="name")
    return Estimates.stacked(rows, "set", digits).without(domain=[ALL, POOLED])


def domain_orders(draws: Mapping[str, stats.Draws], what: Any = IT) -> pd.DataFrame:
    """By set: its order of the domains, highest first, and the `share` of its resamples that have
    the first set's order, without a tie.
    """
    rows = []
    first = None
    for name, own in draws.items():
        values = own[what].drop(columns=[ALL, POOLED])
        order = np.argsort(-values.iloc[0], kind="stable")
        first = order if first is None else first
        falls = np.diff(values.to_numpy()[1:, first], axis=1) < 0
        same = falls.all(axis=1)
        said = " > ".join(values.columns[order])
        rows.append((name, said, same.mean()))
    return pd.DataFrame(rows, columns=["set", "order", "share"])


def order_verdict(found: pd.DataFrame) -> str:
    """What `domain_orders` (of one temperature or several) says of the first set's order: on other
    prompts it 'holds' where more than 97.5 % of each other set's resamples have it, 'does not hold'
    where fewer than 2.5 % of one's, else 'is inconclusive'.
    """
    least = found.loc[found["set"] != OWN, "share"].min()
    if least < 0.025:
        return "does not hold"
    return "holds" if least > 0.975 else "is inconclusive"


def carried(signs: pd.DataFrame) -> pd.DataFrame:
    """What became, on each set, of the differences that the first set tells apart: set, told (how
    many there are), hold (told apart there in the same direction), turned (in the other one).

    signs: a row a set, a column a difference: 1 or -1 where it is told apart, else 0.
    """
    first = signs.loc[OWN]
    agree = (signs * first).loc[:, first != 0]
    found = {
        "told": len(agree.columns),
        "hold": (agree == 1).sum(axis=1),
        "turned": (agree == -1).sum(axis=1),
    }
    return pd.DataFrame(found, dtype=int).rename_axis("set").reset_index()


def carried_in_words(kept: pd.DataFrame) -> str:
    """What `carried` says of the other sets, as a clause: 'of 5 significant differences 3
    (unwrapped) and 2 (second set) are significant again'. ENGLISH, a part of SECOND, is left out.
    """
    told = kept["told"].iloc[0]
    others = kept[~kept["set"].isin([OWN, ENGLISH])]
    again = [f"{row.hold} ({row.set})" for row in others.itertuples()]
    if not told:
        return "no difference is significant"
    differences = counted(told, "significant difference")
    return f"of {differences} {named(again)} {'is' if told == 1 else 'are'} significant again"


def effect_of_words(sets: Mapping[str, Text], question: Question) -> Estimates:
    """What the words around a problem change, its own form minus unwrapped, paired by prompt:
    domain, estimate, low, high, n_prompts, p_value; of the domains that have such words.
    """
    own, of = question(sets[OWN])
    alone, _ = question(sets[UNWRAPPED])
    own = own[own["domain"].isin(WITH_WORDS)]
    alone = alone[alone["domain"].isin(WITH_WORDS)]
    found = significance.paired_by_domain(own, alone, of)
    return Estimates(found, digits=3).without(domain=POOLED)


def by_category(second: Text, question: Question) -> Estimates:
    """The number in each category of the second set: category, estimate, low, high, n_prompts."""
    rows, of = question(second)
    rows = rows.assign(domain=category_of(rows))
    found = stats.by_domain(rows, of).drop(columns="estimator")
    found = found[~found["domain"].isin([ALL, POOLED])]
    found = found.rename(columns={"domain": "category"})
    found = found.sort_values("estimate", ascending=False, ignore_index=True)
    return Estimates(found, digits=3)

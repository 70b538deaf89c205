"""How far an interval can be trusted, how many prompts would be enough, and what the numbers owe to
the seed, the temperature, the length of the texts, and prompts that the draft has seen.
"""

import re
from collections.abc import Iterable

import pandas as pd

from speclab import replay, runs, score
from speclab.estimates import Estimates, counted
from speclab.profiles import ROOT, Profile
from speclab.prompts import Prompt, training_prompts, without_wrapper
from speclab.score import Estimator
from speclab.stats import FEW_PROMPTS, MIN_PROMPTS

HIT_MORE = ("positive in", "negative in", "not significantly different from 0 in")

# ---- coverage: simulated once, by data/coverage/prepare.py -------------------------------------

READS = ["data/coverage/coverage.csv"]
TABLE = ROOT / READS[0]
ELSEWHERE = "smollm"  # whose simulation stands in for a pair that has none of its own


def coverage_of(pair: str) -> tuple[str, pd.DataFrame]:
    """The pair whose prompts were simulated, `pair` itself where it was, and its coverage:
    estimator, n_prompts (a domain), method, coverage with its 95 % Monte-Carlo interval (low,
    high), width (mean over domains of the median width), studies, used: is it the kit's method?
    """
    studies = pd.read_csv(TABLE, float_precision="round_trip")
    shown = pair if (studies["pair"] == pair).any() else ELSEWHERE
    rows = studies[studies["pair"] == shown]
    return shown, rows.drop(columns="pair").reset_index(drop=True)


def coverage_at(used: Estimates, sizes: Iterable[int]) -> str:
    """The coverage (least to greatest) of simulated studies of so many prompts per domain, or of
    the next fewer that were simulated. sizes: 5 or more, the others have no interval.
    """
    simulated = used.frame["n_prompts"].unique()
    nearest = {simulated[simulated <= size].max() for size in sizes}
    return used.at(n_prompts=list(nearest)).span()


def small_sets(profile: Profile, domains: Iterable[str]) -> dict[str, dict[str, int]]:
    """The other sets of prompts that have 5 prompts or more but fewer than 20 in some of these
    domains: how many there, by set and domain. (`unwrapped` has as many as the profile's own.)
    """
    small = {}
    for source in runs.sets_asked(profile, domains):
        of_set = profile.replace(prompts=source, prompts_per_domain=None, domains=None)
        sizes = runs.sizes_of(of_set)
        there = {name: sizes[name] for name in domains if name in sizes}
        few = {name: n for name, n in there.items() if MIN_PROMPTS <= n < FEW_PROMPTS}
        if few and source != "unwrapped":
            small[source] = few
    return small


# ---- blocks --------------------------------------------------------------------------------------


def of_blocks(blocks: pd.DataFrame) -> tuple[pd.DataFrame, Estimator]:
    """What `stats.jointly` needs for the block_efficiency of these blocks (`Text.chain`)."""
    sums = replay.prompt_sums(blocks)
    return sums, score.block_estimators()["block_efficiency"]


# ---- prompts that the draft has seen -------------------------------------------------------------


def trigrams(text: str) -> set[tuple[str, ...]]:
    """Runs of three words of a prompt, without the words around every problem of its domain."""
    bare = without_wrapper(text).lower()
    words = re.findall(r"[a-z0-9]+", bare)
    starts = range(max(1, len(words) - 2))
    return {tuple(words[i : i + 3]) for i in starts}


def composed_prompts(profile: Profile) -> list[Prompt]:
    """The composed prompts that the profile's draft was trained on: as many of each domain, and of
    the seed, as its notes say under `trained_on`; none where they say nothing.
    """
    known = profile.notes.trained_on
    prompts: list[Prompt] = []
    for domain, count in known.composed.items() if known else ():
        prompts += training_prompts(count, known.seed, [domain])
    return prompts


def seen(profile: Profile, trained_on: Iterable[Prompt]) -> pd.DataFrame:
    """How much of each prompt of a profile one training prompt holds: prompt_id, domain, seen (the
    largest share of its trigrams of words), nearest (that training prompt's id).
    """
    known = {prompt.prompt_id: trigrams(prompt.text) for prompt in trained_on}
    rows = []
    for prompt in runs.profile_prompts(profile):
        words = trigrams(prompt.text)
        shared = {name: len(words & others) for name, others in known.items()}
        nearest = max(shared, key=shared.get)
        share = shared[nearest] / len(words)
        rows.append((prompt.prompt_id, prompt.domain, share, nearest))
    return pd.DataFrame(rows, columns=["prompt_id", "domain", "seen", "nearest"])


# ---- sentences -----------------------------------------------------------------------------------


def sizes_in_words(sizes: Iterable[int]) -> str:
    """'50 prompts per domain', '5 to 12 prompts per domain'."""
    known = list(sizes)
    ends = dict.fromkeys((min(known), max(known)))
    return f"{' to '.join(map(str, ends))} prompts per domain"


def power_in_words(plans: pd.DataFrame, prompts: int) -> str:
    """How likely it is that `prompts` prompts per domain find the paper's differences, as a
    sentence, from the rows of `power.every_pair` for one estimator.
    """
    powers = plans["power"].dropna()
    if powers.empty:
        return "The prompts do not differ here, so nothing can be planned."
    ends = dict.fromkeys(f"{100 * value:.0f}" for value in (powers.min(), powers.max()))
    what = counted(len(powers), "difference")
    return (
        f"A study of {prompts} prompts per domain finds each of the paper's {what} with a "
        f"probability of {' to '.join(ends)} %."
    )


def detectable_in_words(least: pd.DataFrame, likely: float) -> str:
    """Which differences this study finds, as a sentence, from the rows of `power.detectable` for
    one estimator.
    """
    known = least["least"].dropna()
    if known.empty:
        return "The prompts do not differ here, so nothing can be planned."
    (name,) = least["estimator"].unique()
    return (
        f"These prompts find a difference of {known.max():.2f} in `{name}` between any two domains "
        f"with a probability of at least {100 * likely:.0f} %."
    )

"""How far an interval can be trusted, how many prompts are enough, and how the numbers depend on
the seed, the temperature, the length of the texts, and prompts that the draft has seen.
"""

import re
from collections.abc import Iterable

import pandas as pd

from speclab import replay, runs, score
from speclab.estimates import Estimates, without_interval
from speclab.profiles import ROOT, Profile
from speclab.prompts import Prompt, training_prompts, without_wrapper
from speclab.score import Estimator

HIT_MORE = ("higher in", "lower in", "not significantly different in")

# ---- coverage: simulated once, by data/coverage/prepare.py -------------------------------------

READS = ["data/coverage/coverage.csv"]
TABLE = ROOT / READS[0]
LOOKS = {  # of the methods: ours stands out
    "percentile": {"color": "#AAAAAA", "marker": "s"},
    "expanded percentile": {"color": "#332288", "marker": "o"},
    "BCa": {"color": "#AAAAAA", "marker": "D"},
    "bootstrap-t": {"color": "#777777", "marker": "^"},
}
ELSEWHERE = "smollm"  # whose simulation stands in for a pair that has none of its own


def coverage_of(pair: str) -> tuple[str, pd.DataFrame]:
    """The pair whose prompts were simulated (`pair`, or another pair in its place) and its
    coverage: estimator, n_prompts (per domain), method, coverage with its 95 % Monte-Carlo interval
    (low, high), width (mean over domains of the median width), studies, used (whether it is the
    kit's method).
    """
    studies = pd.read_csv(TABLE, float_precision="round_trip")
    shown = pair if (studies["pair"] == pair).any() else ELSEWHERE
    rows = studies[studies["pair"] == shown]
    return shown, rows.drop(columns="pair").reset_index(drop=True)


def coverage_at(used: Estimates, sizes: Iterable[int]) -> str:
    """The coverage (least to greatest) of simulated studies with these numbers of prompts per
    domain, or with the next smaller number that was simulated. sizes: 5 or more, since fewer
    prompts have no interval.
    """
    simulated = used.frame["n_prompts"].unique()
    nearest = {simulated[simulated <= size].max() for size in sizes}
    return used.at(n_prompts=list(nearest)).span()


# ---- blocks --------------------------------------------------------------------------------------


def of_blocks(blocks: pd.DataFrame) -> tuple[pd.DataFrame, Estimator]:
    """Rows and estimator of the block_efficiency of these blocks (`Text.chain`), for
    `stats.jointly`.
    """
    sums = replay.prompt_sums(blocks)
    return sums, score.block_estimators()["block_efficiency"]


# ---- prompts that the draft has seen -------------------------------------------------------------


def trigrams(text: str) -> set[tuple[str, ...]]:
    """Sequences of three words of a prompt, without the wrapper of its domain's problems."""
    bare = without_wrapper(text).lower()
    words = re.findall(r"[a-z0-9]+", bare)
    starts = range(max(1, len(words) - 2))
    return {tuple(words[i : i + 3]) for i in starts}


def composed_prompts(profile: Profile) -> list[Prompt]:
    """The composed prompts that the profile's draft was trained on, by the domains, numbers and
    seed in its notes (`trained_on`); [] if the notes say nothing.
    """
    known = profile.notes.trained_on
    prompts: list[Prompt] = []
    for domain, count in known.composed.items() if known else ():
        prompts += training_prompts(count, known.seed, [domain])
    return prompts


def seen(profile: Profile, trained_on: Iterable[Prompt]) -> pd.DataFrame:
    """How much of each prompt of a profile occurs in one training prompt: prompt_id, domain, seen
    (the largest share of its three-word sequences), nearest (that training prompt's id).
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

SAME_PROMPTS = "All prompts of a domain are alike, so nothing can be planned."


def sizes_in_words(sizes: Iterable[int]) -> str:
    """'50 prompts per domain', '5 to 12 prompts per domain'."""
    known = list(sizes)
    ends = dict.fromkeys((min(known), max(known)))
    return f"{' to '.join(map(str, ends))} prompts per domain"


def power_in_words(plans: pd.DataFrame, estimator: str) -> str:
    """The probability that studies of this size find the paper's differences, as a sentence. plans:
    of `power.every_pair`, for this estimator.
    """
    powers = Estimates(without_interval(plans, plans["power"])).in_units("%")
    if powers.known.empty:
        return SAME_PROMPTS
    return (
        f"A difference as large as the paper's is found with a probability of {powers.span()}, "
        f"depending on the domains (`{estimator}`)."
    )


def detectable_in_words(least: pd.DataFrame, likely: float) -> str:
    """The difference that this study finds between any two domains, as a sentence. least: of
    `power.detectable`, for `hit[1]`.
    """
    most = least["least"].max()
    if pd.isna(most):
        return SAME_PROMPTS
    return (
        f"A difference of {100 * most:.0f} points between any two domains (`hit[1]`) is found with "
        f"a probability of {100 * likely:.0f} %."
    )


def seeds_in_words(p_value: float, level: float) -> str:
    """Whether the seeds differ more than shuffled texts would, as sentences."""
    if p_value < level:
        return f"The seeds differ significantly (p = {p_value:.2g}), and we know no cause."
    return f"The seeds do not differ significantly (p = {p_value:.2g})."


def coverage_in_words(sizes: Iterable[int], coverage: str, planned: str) -> str:
    """How sure the numbers are, as two short sentences. coverage: percent, or a range; planned:
    which differences the prompts find.
    """
    return (
        f"With {sizes_in_words(sizes)}, 95 % intervals cover the true value in {coverage} % of "
        f"simulated studies. {planned}"
    )

"""Notebook 02: tokens per target pass, wasted drafts and estimated speed-up for every gamma, for
greedy texts (T = 0) and sampled texts (the profile's temperature), replayed and decoded.

The notebook's cells compute with the draws of `stats.jointly` in plain pandas. This module needs
NumPy and pandas only, except for the decoder.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from speclab import cost, replay, score, stats
from speclab.analysis import choose
from speclab.analysis.texts import Text
from speclab.estimates import Estimates, counted, stack, starting
from speclab.models import timing
from speclab.models.pairs import Pair
from speclab.profiles import Profile
from speclab.prompts import EncodedPrompt
from speclab.score import ALL, POOLED
from speclab.shapes import Shape
from speclab.tree import chain

TAU = score.ratio_of("emitted", "blocks", "block_efficiency")
UTILISATION = score.ratio_of("accepted", "drafted", "draft_utilisation")

# what is said of a significantly positive, a significantly negative and any other difference
EVERY_POSITION = (
    "the average over every position is significantly higher in",
    "the average over every position is significantly lower in",
    "the two averages do not differ significantly in",
)
FORMULA_GIVES = (
    "the formula gives too few tokens in",
    "the formula gives too many tokens in",
    "the formula's error is not significant in",
)
DECODER_GIVES = (
    "the decoder gives significantly more at",
    "the decoder gives significantly fewer at",
    "there is no significant difference at",
)

ByGamma = Mapping[int, pd.DataFrame]  # draws (1 + n, domains + 2) of each gamma


# ---- one text ------------------------------------------------------------------------------------


def middle_text(blocks: pd.DataFrame) -> str:
    """The prompt whose text is shown: among the longest texts, the text with the median number of
    tokens per target pass.
    """
    sums = replay.prompt_sums(blocks)
    sums = sums.sort_values("blocks", ascending=False, kind="stable")
    longest = sums.loc[sums["emitted"] == sums["emitted"].max(), "prompt_id"]
    return longest.iloc[(len(longest) - 1) // 2]


def text_cells(blocks: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """One text as the `blocks` of each gamma divide it: gamma, passes, kept and drafted (of the
    whole text), position, is_drafted (else it is the target's own token).
    """
    parts = {}
    for gamma, own in blocks.items():
        ended = own[~own["truncated"]]
        targets_own = ended["start"] + ended["accepted"]
        position = np.arange(own["emitted"].sum())
        counts = {
            "passes": len(own),
            "kept": own["accepted"].sum(),
            "drafted": own["drafted"].sum(),
        }
        cells = pd.DataFrame({"position": position, "is_drafted": ~np.isin(position, targets_own)})
        parts[gamma] = cells.assign(**counts)
    return stack(parts, "gamma")


def saved_and_wasted(cells: pd.DataFrame) -> str:
    """The target passes and wasted tokens of the smallest and the largest gamma of `text_cells`, as
    a title.
    """
    least, most = cells.iloc[0], cells.iloc[-1]
    wasted = [row["drafted"] - row["kept"] for row in (least, most)]
    return (
        f"From gamma {least['gamma']} to {most['gamma']}, passes go from {least['passes']} to "
        f"{most['passes']}, and wasted tokens from {wasted[0]} to {wasted[1]}"
    )


# ---- every gamma ---------------------------------------------------------------------------------


def chain_counts(text: Text, gammas: Iterable[int], starts: str = "visited") -> pd.DataFrame:
    """`replay.chain_sums` of a text's seeds: one row for each gamma, prompt and seed."""
    gammas = list(gammas)
    seeds = text.trace.groupby("seed", sort=False)
    parts = [replay.chain_sums(trace, gammas, text.chain_rule, starts) for _, trace in seeds]
    return pd.concat(parts, ignore_index=True)


def by_gamma(counts: pd.DataFrame, estimator: score.Estimator) -> stats.Draws:
    """An estimator on the counts of each gamma. The draws are named by gamma, and the prompts are
    resampled once for all gammas.
    """
    groups = counts.groupby("gamma")
    return stats.jointly({gamma: (rows, estimator) for gamma, rows in groups})


def curves(
    draws: Mapping[str, stats.Draws], values: Mapping[str, ByGamma] | None = None
) -> Estimates:
    """The draws of each text, or `values` computed from them, by temperature, gamma and domain."""
    parts = {
        text: own.table(values and values[text], key="gamma").frame for text, own in draws.items()
    }
    return Estimates.stacked(parts, "temperature").without(domain=[ALL, POOLED])


def flattening(passes: Estimates, largest: int) -> str:
    """How little the second half of the gammas adds to tokens per target pass."""
    half = max(largest // 2, 1)
    of_gamma = passes.frame.set_index(["temperature", "domain", "gamma"])["estimate"].unstack()
    most = (of_gamma[largest] - of_gamma[half]).max()
    return f"Raising gamma from {half} to {largest} adds at most {most:.2f} tokens per target pass"


def used_at_most(used: Estimates, gamma: int) -> str:
    """The largest share of the draft tokens that the target accepts at a gamma."""
    most = used.known["estimate"].max()
    return f"At gamma {gamma} the target accepts at most {100 * most:.0f} % of the draft tokens"


# ---- decoded, not only replayed ------------------------------------------------------------------


def first_prompts(prompts: Sequence[EncodedPrompt], per_domain: int) -> list[EncodedPrompt]:
    """The first `per_domain` prompts of each domain. If these are fewer than 5 in all, too few for
    an interval, more of each domain.
    """
    domains = pd.Series([prompt.domain for prompt in prompts])
    number = domains.groupby(domains).cumcount()
    least = min(stats.MIN_PROMPTS, len(prompts))
    while (number < per_domain).sum() < least:
        per_domain += 1
    return [prompt for prompt, own in zip(prompts, number, strict=True) if own < per_domain]


def decode_chains(
    pair: Pair,
    prompts: Sequence[EncodedPrompt],
    gammas: Sequence[int],
    text: Text,
    settings: Profile,
) -> pd.DataFrame:
    """The columns of `chain_counts`, counted by the decoder with the profile's settings, the text's
    temperature and its rule: one row for each gamma and prompt.
    """
    shapes = {gamma: Shape(chain(gamma)) for gamma in gammas}
    heated = settings.replace(temperature=text.temperature)
    sampled = {"rule": text.chain_rule, "sampling": heated.sampling, "seed": settings.seed}
    counts = timing.decoded(pair, prompts, shapes, settings.max_new_tokens, **sampled)
    counts = counts.rename(columns={"method": "gamma", "tokens": "emitted"})
    return counts.sort_values("gamma", kind="stable", ignore_index=True)


def beside(decoded: pd.DataFrame, replayed: pd.DataFrame) -> pd.DataFrame:
    """`block_efficiency` of the same prompts, all domains together: gamma, made (decoded, replayed,
    difference = decoded - replayed), estimate, low, high, …

    Raises ValueError if the prompts differ.
    """
    both = stack({"decoded": decoded, "replayed": replayed}, "made")
    # two prompts per domain are too few to resample within it
    counts = both.drop(columns="domain").groupby(["made", "gamma"])
    draws = stats.jointly({key: (rows, TAU) for key, rows in counts})
    parts = {}
    for gamma in decoded["gamma"].unique():
        found = {made: draws[made, gamma][POOLED] for made in ("decoded", "replayed")}
        found["difference"] = found["decoded"] - found["replayed"]
        parts[gamma] = draws.table(found, key="made").frame
    return stack(parts, "gamma")


def agreement_in_words(unequal: int, prompts: int, gammas: int) -> str:
    """In how many cases the decoder's blocks or tokens differ from the replay's at T = 0; a case is
    a prompt with a gamma.
    """
    pairs = f"{counted(prompts, 'prompt')} × {counted(gammas, 'gamma')}"
    total = counted(prompts * gammas, "case")
    return f"At T = 0 the decoder and the replay differ in {unequal} of {total} ({pairs})."


def decoded_in_words(difference: Estimates) -> str:
    """At which gammas the decoder's tokens per target pass differ from the replay's."""
    gammas = "gamma " + difference.frame["gamma"].astype(str)
    named_gammas = Estimates(difference.frame.assign(gamma=gammas))
    return starting(named_gammas.sentence(*DECODER_GIVES, names="gamma"))


# ---- why the i.i.d. formula misses ---------------------------------------------------------------


def neighbours(text: Text) -> pd.DataFrame:
    """One row for each two neighbouring positions of a text: prompt_id, domain, and the probability
    that the token is accepted at the first position (before), at the second (after), at both. At
    T = 0 it is 0 or 1, above T = 0 it is min(1, q/p) of the token, as in `replay`.
    """
    rows = text.trace.sort_values(["prompt_id", "seed", "position"])
    own = rows["hit"].astype(float)
    if text.chain_rule == "rejection":
        ratio = rows["q_token"] / rows["p_token"]
        own = np.minimum(1.0, ratio).astype(float)
    texts = own.groupby([rows["prompt_id"], rows["seed"]], sort=False)
    after = texts.shift(-1)
    pairs = rows[["prompt_id", "domain"]]
    pairs = pairs.assign(before=own, after=after, both=own * after)
    order = pd.Index(score.domains_in(text.trace))
    pairs = pairs.dropna(subset="after")
    return pairs.sort_values("domain", key=order.get_indexer, kind="stable")


def one_token(text: Text) -> stats.Draws:
    """Means over `neighbours` (before, after, both), and `alpha`, the acceptance of one drafted
    token (hit[1] at T = 0, the mean overlap above T = 0).
    """
    pairs = neighbours(text)
    asked = {name: (pairs, score.mean_of(name)) for name in ("before", "after", "both")}
    asked |= {"alpha": (text.trace, text.acceptance)}
    return stats.jointly(asked, same=False)  # a text of one token has no neighbours


def lag1(drawn: stats.Draws) -> pd.DataFrame:
    """Correlation between acceptance at neighbouring positions, from the draws of `one_token`. It
    is missing if acceptance does not vary.
    """
    before = drawn["before"]
    after = drawn["after"]
    variance = before * (1 - before) * after * (1 - after)
    spread = np.sqrt(variance.where(variance > 1e-12))
    covariance = drawn["both"] - before * after
    return covariance / spread


def largest_miss(missed: Estimates) -> str:
    """The largest difference between the replay and the i.i.d. formula."""
    most = missed.frame["estimate"].abs().max()
    return f"The i.i.d. formula misses tokens per target pass by up to {most:.2f}"


# ---- the best gamma ------------------------------------------------------------------------------


def speed_ups(tau: stats.Draws, gammas: Iterable[int], c: float) -> ByGamma:
    """The standard estimate of the speed-up for an assumed c, with v = 1 and o = 0."""
    # rounding can make an expectation of one token slightly smaller than 1
    return {g: cost.speedup_standard(tau[g].clip(lower=1.0), g, c) for g in gammas}


def best_shares(tau: stats.Draws, speed: ByGamma) -> pd.DataFrame:
    """How certain the best gamma is, for each domain: domain, gamma, and the other columns of
    `choose.how_sure`. gamma 0 is plain decoding, with speed-up 1.
    """
    domains = [*tau.prompts.domains]
    each = [own[domains].to_numpy() for own in speed.values()]
    draws = np.stack([np.ones_like(each[0]), *each], axis=-1)  # [1 + n, domains, G + 1]
    table = choose.how_sure(draws, [0, *speed], tau.prompts)
    return table.rename(columns={"setting": "gamma"})


def choices(best: pd.DataFrame) -> pd.DataFrame:
    """Each domain's choice from `best_shares`: domain, best, best_low, best_high (95 % of the
    resamples' choices, `stats.levels_of`), as_good_low, as_good_high (the smallest and the largest
    gamma that is not significantly slower than the best). The last four are missing if there are
    fewer than 5 prompts.
    """
    rows = []
    for domain, table in best.groupby("domain", sort=False):
        gammas = table["gamma"].to_numpy()
        top = choose.fastest(table["speedup"])
        n_prompts = table["n_prompts"].iloc[0]
        if n_prompts < stats.MIN_PROMPTS:
            rows.append((domain, gammas[top], *[np.nan] * 4))
            continue
        reached = table["share_best"].cumsum() + 1e-12
        ends = gammas[np.searchsorted(reached, stats.levels_of(n_prompts))]
        as_good = gammas[table["behind_low"] <= 0]
        rows.append((domain, gammas[top], *ends, as_good.min(), as_good.max()))
    names = ("best", "best_low", "best_high", "as_good_low", "as_good_high")
    return pd.DataFrame(rows, columns=["domain", *names])


def best_by_cost(
    tau: Mapping[str, stats.Draws], gammas: Iterable[int], costs: Iterable[float]
) -> pd.DataFrame:
    """`choices` for each text and each assumed c: temperature, c, domain, best, …"""
    parts = {}
    for (text, draws), c in product(tau.items(), costs):
        speed = speed_ups(draws, gammas, c)
        best = best_shares(draws, speed)
        parts[text, c] = choices(best)
    return stack(parts, ["temperature", "c"])


def best_in_words(fastest: Estimates, c: float, elsewhere: Estimates | None) -> str:
    """The answer of notebook 02; fastest: the best gamma of each domain; elsewhere: of other
    prompts, None if there are none.
    """
    gammas = fastest.frame["estimate"]
    by_domain = ", by domain" if gammas.nunique() > 1 else ""
    plain = "" if gammas.all() else " Gamma 0 is plain decoding."
    others = "No other prompts were tested."
    if elsewhere is not None:
        others = f"On other prompts it would be {elsewhere.span()}."
    return (
        f"If a draft pass cost {100 * c:g} % of a target pass, the best gamma would be "
        f"{fastest.span()}{by_domain} (T = 0).{plain} Notebook 10 measures this cost. {others}"
    )

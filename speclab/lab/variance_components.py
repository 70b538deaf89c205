"""How much of the variance between texts lies between domains, between prompts and between draws.

A text is measured by its mean over positions. Texts differ for three reasons, whose variances add
up (`variances`). Domains have different levels ("domain"). Prompts differ from the level of their
domain ("prompt"). At T = 1 two texts of the same prompt differ by chance ("draw"). At T = 0 a
prompt always has the same text, and there is no draw. With one sampled text per prompt the draw
cannot be separated from the prompt, and counts as "prompt". `shares` gives the three shares.

Each domain counts equally, as in the mean of domains (`all`), whatever its number of prompts. The
variance of the prompts is the mean of the domains' variances. The variance of the domains is the
variance of their levels, minus the part that comes from having few prompts in each domain. These
estimates are unbiased for any sizes, also if prompts differ more in one domain than in another. So
a domain that explains nothing has a share of 0 on average, before shares are cut at 0.

The usual sums of squares weight a domain by its number of prompts. The same domains would then
explain a different share in another study, and the F ratio exceeds 1 without any effect if the
smallest domain varies most. For equal sizes both methods agree with the adjusted R squared and with
REML (Searle, Casella and McCulloch 1992, Variance Components). The tests compare with statsmodels'
MixedLM, which takes seconds. The sums over prompts used here can be resampled.
"""

import numpy as np
import pandas as pd

from speclab import stats
from speclab.estimates import named
from speclab.score import column_of
from speclab.stats import RESAMPLES, Interval, resampling_of


def shares(positions: pd.DataFrame, value: str, n: int = RESAMPLES) -> dict[str, Interval]:
    """Shares of the variance between texts (of the column `value`), from 0 to 1, each with its
    interval over resampled prompts: "domain", "prompt" (within its domain) and "draw" (of the text,
    given the prompt). A prompt has one text per `seed`. If no prompt has two texts, "draw" is
    absent. The shares add up to 1 unless one of them is cut at 0.

    Domains with fewer than 5 prompts are left out, because their spread is not known.

    A resample contains chance twice, from the sample and from the resampling. The draws are
    therefore moved back by their mean excess over the estimate.

    ValueError: only one domain has 5 prompts or more.
    """
    positions = positions[positions["domain"].isin(stats.judged_domains(positions))]
    keys = [name for name in ("prompt_id", "domain", "seed") if name in positions]
    known = positions.assign(**{value: column_of(positions, value)})
    of_text = known.groupby(keys, observed=True, sort=False)[value]
    texts = of_text.mean().reset_index()
    prompts = resampling_of(texts, n)
    if len(prompts.domains) < 2:
        raise ValueError(
            f"only {named(prompts.domains)} has {stats.MIN_PROMPTS} prompts or more, and a share "
            "between domains needs two such domains: record more prompts"
        )
    y = texts[value].to_numpy()
    y = y - y.mean()
    powers = np.stack([y**0, y, y**2], axis=1)
    count, total, square = prompts.totals(powers).T
    level = total / count
    about = square - total * level
    # as `variances` reads them
    of_prompt = [count**0, level, level**2, about, count - 1, 1 / count]
    sums = prompts.resampled(np.stack(of_prompt, axis=1))
    parts = variances(sums)
    whole = sum(parts)  # without a second text the variance of the draw is 0
    intervals = {}
    for name, part in zip(("domain", "prompt", "draw"), parts, strict=True):
        undefined = np.where(part > 0, 1.0, 0.0)
        draws = np.divide(part, whole, out=undefined, where=whole > 0)
        draws = np.clip(draws, -1, 2)  # far outside 0 to 1 one would move all of them
        excess = draws[1:].mean() - draws[0]
        bounds = stats.bounds_of(draws[1:] - excess, prompts.fewest)
        numbers = np.clip([draws[0], *bounds], 0, 1).tolist()
        intervals[name] = Interval(*numbers, len(prompts.domain))
    if count.max() == 1:
        del intervals["draw"]
    return intervals


def variances(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Variances (...) of the domains' levels, of the prompts around the level of their domain, and
    of the texts around their prompt. The last two are means of the domains. The chance part that
    comes from the levels below is subtracted, so the first two may be negative.

    sums (..., domains, 6): over a domain's prompts, of 1, y, y^2, S, k - 1 and 1 / k, where y is a
    prompt's mean of k texts and S their sum of squares around y. If each prompt has one text, the
    draw counts as "prompt", and the third variance is 0.
    """
    size, total, square, about, more_texts, per_text = np.moveaxis(sums, -1, 0)
    level = total / size
    spread = (square - total * level) / (size - 1)
    draw = about / np.maximum(more_texts, 1)  # variance of a prompt's texts
    chance = draw * per_text / size
    within = (spread - chance).mean(axis=-1)
    noise = (spread / size).mean(axis=-1)  # variance of a level, from its prompts
    domains = sums.shape[-2]
    prompts = size.sum(axis=-1)
    of_levels = level.var(axis=-1, ddof=1) - noise
    of_these = of_levels * (domains - 1) / domains
    between = of_these * prompts / (prompts - 1)  # as N - 1 prompts show it
    return between, within, draw.mean(axis=-1)

"""What the domain explains of the differences between texts, and between prompts.

A text is measured by its mean over positions. Texts differ for three reasons, whose variances add
up (`variances`): the levels of their domains ("domain"), the prompts about the level of their
domain ("prompt"), and, at T = 1, the draw of a text of the same prompt ("draw"). At T = 0 a prompt
has one text, always the same, and no draw. With one sampled text per prompt the draw cannot be
separated from the prompt, and counts as the prompt's. `shares` gives the shares of the three.

Domains of unequal size: each domain counts equally, as in the mean of domains (`all`). The variance
of the prompts is the mean of the domains' own variances. The variance of the domains is that of
their levels, less what these levels owe to the few prompts in each of them. All are unbiased
whatever the sizes are, and also where prompts of one domain differ more than those of another; so
a domain that explains nothing has a share of 0 on average before it is cut at 0. The usual sums of
squares lack this: they weight a domain by its prompts, so the same domains would explain another
share in other numbers of prompts, and the F ratio is above 1 without any effect if a small domain
is the one that varies most. For equal sizes both are the same (the adjusted R squared; and REML's
variances, Searle, Casella and McCulloch 1992, Variance Components): statsmodels' MixedLM is the
reference of the tests, and takes seconds where this takes sums of prompts, which can be resampled.
NumPy and pandas.
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
    given the prompt). A prompt has a text for each `seed` of the rows; where no prompt has two
    texts "draw" is absent. The shares add up to 1 unless one of them is cut at 0.

    Domains with fewer than 5 prompts are left out: their spread is not known.

    Resampled prompts double the chance part of a share (that of the sample, and that of the
    resample): the draws are moved back by their mean excess over the estimate.

    ValueError: only one domain with 5 prompts or more.
    """
    positions = positions[positions["domain"].isin(stats.judged_domains(positions))]
    keys = [name for name in ("prompt_id", "domain", "seed") if name in positions]
    known = positions.assign(**{value: column_of(positions, value)})
    of_text = known.groupby(keys, observed=True, sort=False)[value]
    texts = of_text.mean().reset_index()
    prompts = resampling_of(texts, n)
    if len(prompts.domains) < 2:
        raise ValueError(
            f"domains with prompts enough: {named(prompts.domains)}; a share between domains needs "
            "two"
        )
    y = texts[value].to_numpy()
    y = y - y.mean()
    powers = np.stack([y**0, y, y**2], axis=1)
    count, total, square = prompts.totals(powers).T
    level = total / count
    about = square - total * level
    of_prompt = [count**0, level, level**2, about, count - 1, 1 / count]
    sums = prompts.resampled(np.stack(of_prompt, axis=1))
    parts = variances(sums)
    several = count.max() > 1
    names = ["domain", "prompt", "draw"] if several else ["domain", "prompt"]
    whole = sum(parts)  # without a second text the variance of the draw is 0
    intervals = {}
    for name, part in zip(names, parts, strict=False):
        undefined = np.where(part > 0, 1.0, 0.0)
        draws = np.divide(part, whole, out=undefined, where=whole > 0)
        draws = np.clip(draws, -1, 2)  # far outside 0 to 1 one would move all of them
        excess = draws[1:].mean() - draws[0]
        bounds = stats.bounds_of(draws[1:] - excess, prompts.fewest)
        numbers = np.clip([draws[0], *bounds], 0, 1).tolist()
        intervals[name] = Interval(*numbers, len(prompts.domain))
    return intervals


def variances(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Variances (...) of the domains' levels, of the prompts about the level of their domain, and
    of the texts about their prompt, the last two as means of the domains. Each is without the
    chance of those below it; the first two may be negative by chance.

    sums (..., domains, 6): over a domain's prompts, of 1, y, y^2, S, k - 1 and 1 / k, where y is a
    prompt's mean of k texts and S their sum of squares about y. Where each prompt has one text, its
    draw counts as the prompt's, and the third variance is 0.
    """
    size, total, square, about, more_texts, per_text = np.moveaxis(sums, -1, 0)
    level = total / size
    spread = (square - total * level) / (size - 1)
    draw = about / np.maximum(more_texts, 1)  # variance of a prompt's texts
    within = (spread - draw * per_text / size).mean(axis=-1)
    noise = (spread / size).mean(axis=-1)  # variance of a level, by its prompts
    domains, prompts = sums.shape[-2], size.sum(axis=-1)
    of_levels = level.var(axis=-1, ddof=1) - noise
    of_these = of_levels * (domains - 1) / domains
    between = of_these * prompts / (prompts - 1)  # as N - 1 prompts show it
    return between, within, draw.mean(axis=-1)

"""What the domain explains of the differences between prompts.

A prompt is measured by the mean of its texts. At T = 0 it has one text, always the same. At T = 1
another text would have another mean: what the texts of a prompt have in common is the prompt's,
what differs between them is chance. Two variances remain after the chance is taken out: that of
the prompts about the level of their domain (within), and that of the domains' levels (between).
The share is between / (between + within). With one sampled text per prompt the draw of the text
would count as the prompt's, and the share would be too low.

Domains of unequal size: each domain counts equally, as in the mean of domains (`all`). The variance
within is the mean of the domains' own variances. The variance between is that of the domains'
levels, less what these levels owe to the few prompts behind each of them. Both are unbiased
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
from speclab.score import column_of
from speclab.stats import RESAMPLES, Interval, resampling_of


def domain_share(positions: pd.DataFrame, value: str, n: int = RESAMPLES) -> Interval:
    """Share of the variance between prompts (of the column `value`) that the domain explains, from
    0 to 1, with its interval over resampled prompts; a prompt has a text for each `seed` of the
    rows. 0 also where the prompts do not differ, or by no more than chance.

    Resampled prompts double the chance part of a share (that of the sample, and that of the
    resample): the draws are moved back by their mean excess over the estimate, and cut at 0 and 1.
    ValueError: one domain only, or fewer than 5 prompts in one.
    """
    of_text = [name for name in ("prompt_id", "domain", "seed") if name in positions]
    measured = column_of(positions, value)
    known = positions.assign(**{value: measured})
    texts = known.groupby(of_text, observed=True, sort=False)
    means = texts[value].mean().reset_index()
    prompts = resampling_of(means, n)
    if len(prompts.domains) < 2:
        raise ValueError(
            f"the frame has the domain {prompts.domains} only: a share between domains needs two"
        )
    y = means[value].to_numpy()
    y = y - y.mean()
    powers = np.stack([y**0, y, y**2], axis=1)
    count, total, square = prompts.totals(powers).T
    level = total / count
    of_prompt = [
        count**0,
        level,
        level**2,
        square - total * level,
        count - 1,
        1 / count,
    ]
    sums = prompts.resampled(np.stack(of_prompt, axis=1))
    within, between = variances(sums)
    whole = within + between
    draws = np.where(whole > 0, between / np.where(whole > 0, whole, 1), between > 0)
    draws = np.clip(draws, -1, 2)  # far outside 0 to 1 one draw would move all of them
    excess = draws[1:].mean() - draws[0]
    bounds = stats.bounds_of(draws[1:] - excess, prompts.fewest)
    numbers = np.clip([draws[0], *bounds], 0, 1).tolist()
    return Interval(*numbers, len(prompts.domain))


def variances(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variance (...) of the prompts about the level of their domain, mean of the domains, and
    variance (...) of the domains' levels, both without chance; either may be negative by chance.

    sums (..., domains, 6): over a domain's prompts, of 1, y, y^2, S, k - 1 and 1 / k, where y is a
    prompt's mean of k texts and S their sum of squares about y. Where each prompt has one text, its
    draw counts as the prompt's.
    """
    size, total, square, about, more_texts, per_text = np.moveaxis(sums, -1, 0)
    level = total / size
    spread = (square - total * level) / (size - 1)
    draw = about / np.maximum(more_texts, 1)  # variance of a prompt's texts
    within = (spread - draw * per_text / size).mean(axis=-1)
    noise = (spread / size).mean(axis=-1)  # variance of a level, by its prompts
    domains, prompts = sums.shape[-2], size.sum(axis=-1)
    of_levels = level.var(axis=-1, ddof=1) - noise
    # the variance of these domains, as N - 1 prompts show it
    between = of_levels * (domains - 1) / domains * prompts / (prompts - 1)
    return within, between

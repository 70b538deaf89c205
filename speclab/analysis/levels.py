"""What the domain explains of the differences between prompts.

A prompt is measured by the means of its texts. At T = 0 it has one text, always the same. At T = 1
another text would have another mean: what the texts of a prompt have in common is the prompt's,
what differs between them is chance. The share is that of the common part which lies between
domains: 1 - variance of prompts within domains / variance of all prompts, the variances those of a
random intercept (the prompt, its texts nested in it). With one sampled text a prompt the draw of
the text would count as the prompt's, and the share would be too low.

The variances are those of the analysis of variance, which for equally many texts a prompt are
REML's (Searle, Casella and McCulloch 1992, Variance Components): statsmodels' MixedLM is the
reference of the tests, and takes seconds where this takes sums of prompts, which can be resampled.
NumPy and pandas.
"""

import numpy as np
import pandas as pd

from speclab import stats
from speclab.score import column_of
from speclab.stats import RESAMPLES, Interval, resampling_of


def domain_share(positions: pd.DataFrame, value: str, n: int = RESAMPLES) -> Interval:
    """Share of the variance between prompts (of the column `value`) that the domain explains, with
    its interval over resampled prompts; a prompt has a text for each `seed` of the rows.

    Resampled prompts double the chance part of a share (that of the sample, and that of the
    resample): the draws are moved back by their mean excess over the estimate, and cut at 0 and 1.
    ValueError: one domain only, fewer than 5 prompts in one, or a constant column.
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
    if np.ptp(y) == 0:
        raise ValueError(f"column {value!r} is constant: it has no variance to part")
    powers = np.stack([y**0, y, y**2], axis=1)
    count, total, square = prompts.totals(powers).T
    of_prompt = np.stack(
        [
            count**0,
            count,
            count**2,
            total,
            square,
            total**2 / count,
        ],
        axis=1,
    )
    sums = prompts.resampled(of_prompt)
    whole = sums.sum(axis=1, keepdims=True)
    within = prompt_variance(sums)
    draws = 1 - within / prompt_variance(whole)
    excess = draws[1:].mean() - draws[0]
    bounds = stats.bounds_of(draws[1:] - excess, prompts.fewest)
    numbers = np.clip([draws[0], *bounds], 0, 1).tolist()
    return Interval(*numbers, len(prompts.domain))


def prompt_variance(sums: np.ndarray) -> np.ndarray:
    """Variance (...) of the prompts about the level of their group, without that between a prompt's
    own texts (0 where each has one); may be negative by chance.

    sums (..., groups, 6): over a group's prompts, of 1, n, n^2, S, Q and S^2 / n, with n, S and Q
    the number, sum and sum of squares of a prompt's texts.
    """
    prompts, n, n_squared, total, square, of_prompts = np.moveaxis(sums, -1, 0)
    between_texts = (square - of_prompts).sum(axis=-1)
    more_texts = (n - prompts).sum(axis=-1)
    text = between_texts / np.maximum(more_texts, 1)
    between = (of_prompts - total**2 / n).sum(axis=-1)
    free_prompts = (prompts - 1).sum(axis=-1)  # but for their group's level
    texts_of_a_prompt = (n - n_squared / n).sum(axis=-1)
    return (between - free_prompts * text) / texts_of_a_prompt

"""What a setting for each domain is worth over one for all, on one machine.

The gain is cost of one / cost of each - 1, over the prompts as they were recorded: of two policies
that emit the same tokens, how much faster the second is. Both choose by the same rule
(`choose.fastest`), each prompt on other folds' prompts, and both choose again in every resample of
the prompts, so that an interval covers the choice as well as the judgement. (Simulated with 50
prompts a domain, drawn from the recorded ones of `smollm` and `tiny`: it holds the mean of such
gains in 94 to 97 % where the domains' settings differ clearly, in all where they are nearly tied.)
NumPy and pandas only.
"""

from speclab.analysis import choose
from speclab.analysis.choose import UNKNOWN, Prices
from speclab.stats import RESAMPLES, Interval, resampling_of


def gain(prices: Prices, folds: int = 5, n: int = RESAMPLES) -> Interval:
    """How much faster a setting for each domain is than one for all, as a share (0.02: 2 %), by
    cross-fitted choices that are made again in each of n resamples of the prompts.

    ValueError if a domain has fewer prompts than folds.
    """
    for_all = dict.fromkeys(prices.prompts["prompt_id"], UNKNOWN)
    one, each = (
        choose.fit(prices, routes, folds, n=n).cost.sum(axis=1)
        for routes in (for_all, None)
    )
    return Interval.of(one / each - 1, resampling_of(prices.prompts, 1), "the gain")

"""From accepted tokens to speed-up: the standard cost model, the formulas for independent
acceptance (i.i.d.), and the article's rule, labelled as such.

Times are ratios to one target pass over one token: c = draft pass / target pass, verify = target
pass over the drafted tokens / over one, overhead = the loop's own time / target pass. All arguments
broadcast (numbers, arrays or Series); nothing is fitted here.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from speclab.tree import Tree


def within(name: str, value, low: float, high: float = np.inf, strict: bool = False):
    """`value` if every entry is finite and in [low, high] (above low if strict); ValueError
    otherwise.
    """
    entries = np.asarray(value, np.float64)
    inside = (entries > low) if strict else (entries >= low)
    if not (inside & (entries <= high) & np.isfinite(entries)).all():
        raise ValueError(
            f"{name} is {value}; it must be {'above' if strict else 'at least'} {low:g} and at "
            f"most {high:g}: check that it was measured, and in which unit"
        )
    return value


def speedup_standard(block_efficiency, gamma, c, verify=1.0, overhead=0.0):
    """Speed-up over plain decoding: block_efficiency / (gamma c + verify + overhead).

    For a tree, gamma is its depth, c the draft pass at its width and verify the target pass over
    its nodes. verify = 1 is the usual assumption that a pass over gamma + 1 tokens costs as much as
    over one; measure it. Above 1 is faster. Source: arXiv:2211.17192.
    """
    within("block_efficiency", block_efficiency, 1)
    cost = break_even_block_efficiency(gamma, c, verify, overhead)
    return block_efficiency / cost


def block_efficiency_iid(alpha, gamma):
    """Tokens per target pass if each drafted token were accepted with probability alpha,
    independently: (1 - a^(g+1)) / (1 - a).
    """
    a = np.asarray(within("alpha", alpha, 0, 1), np.float64)
    g = np.asarray(within("gamma", gamma, 1), np.float64)
    one = a == 1
    return np.where(one, g + 1, (1 - a ** (g + 1)) / np.where(one, 1.0, 1 - a))[()]


def break_even_block_efficiency(gamma, c, verify=1.0, overhead=0.0):
    """The tokens per target pass at which speculating costs as much as not: gamma c + verify +
    overhead.

    Above gamma + 1 no acceptance is enough.
    """
    within("gamma", gamma, 1)
    within("c", c, 0)
    within("verify", verify, 0, strict=True)
    within("overhead", overhead, 0)
    return gamma * c + verify + overhead


# ---- measured costs ------------------------------------------------------------------------------

LEAST_V = 0.97  # of an honest clock: a pass over several tokens costs no less than one over one
MOST_DRIFT = 0.15  # between two rounds of timed passes


@dataclass(frozen=True)
class Costs:
    """What one machine was measured to take: `target_ms`, a target pass over one token; the rest as
    ratios to it.

    sizes: tokens a pass, ascending from 1; draft, verify: a draft and a target pass over so many
    tokens, [len(sizes)]; overhead: the loop's own time a block, tree_overhead: of a tree,
    where that is another; drift: by how much the price of a block is uncertain, as a share. Between
    sizes the ratios are interpolated; beyond the last they are refused.
    """

    target_ms: float
    sizes: tuple[int, ...]
    draft: tuple[float, ...]
    verify: tuple[float, ...]
    overhead: float = 0.0
    tree_overhead: float | None = None
    drift: float = 0.0

    def __post_init__(self):
        ascending = list(self.sizes) == sorted({1, *self.sizes})
        if not ascending or not len(self.sizes) == len(self.draft) == len(self.verify):
            raise ValueError(
                f"sizes={self.sizes}: ascending whole numbers from 1 are needed, "
                "with as many draft and verify ratios"
            )
        within("target_ms", self.target_ms, 0, strict=True)
        within("draft", self.draft, 0)
        within("verify", self.verify, 0, strict=True)
        within("overhead", self.overhead, 0)

    @classmethod
    def on_a_line(cls, c: float) -> Self:
        """A machine that was not measured: a draft pass of any width costs c, and v(n) = 1, for n
        up to 256; o = 0.
        """
        return cls(1.0, (1, 256), (c, c), (1.0, 1.0))

    def _at(self, values: tuple[float, ...], n: int) -> float:
        if not 1 <= n <= self.sizes[-1]:
            raise ValueError(
                f"a pass over {n} tokens was not measured: sizes run from 1 to {self.sizes[-1]}; "
                "measure larger ones"
            )
        return float(np.interp(n, self.sizes, values))

    def c(self, width: int = 1) -> float:
        """A draft pass over `width` tokens, in target passes over one."""
        return self._at(self.draft, width)

    def v(self, n: int) -> float:
        """A target pass over n tokens, in target passes over one."""
        return self._at(self.verify, n)

    def loop(self, chain: bool) -> float:
        """What the loop itself takes a block of a chain, or of a tree."""
        return self.overhead if chain or self.tree_overhead is None else self.tree_overhead

    def of_block(self, tree: Tree) -> float:
        """Cost of one block of a tree or chain: a draft pass for each level that has children, one
        target pass, the overhead.
        """
        drafting = sum(self.c(len(level.parents)) for level in tree.levels)
        return drafting + self.v(tree.size + 1) + self.loop(tree.is_chain)


def disturbed(costs: Costs) -> str:
    """Why measured prices carry no verdict on speed, in one sentence; '' where they may.

    An honest clock gives no v(n) below LEAST_V, and about the same price of a block in two rounds
    (at most MOST_DRIFT apart).
    """
    least = min(costs.verify)
    if least < LEAST_V:
        what = f"a target pass over several tokens took {least:.2f} of one over a single token"
    elif costs.drift > MOST_DRIFT:
        what = f"the price of a block is uncertain by {costs.drift:.0%}"
    else:
        return ""
    return (
        f"**No verdict on speed**: timing is unreliable here, since {what}. Another program "
        "probably ran. Run this notebook again on an idle machine."
    )

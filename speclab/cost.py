"""From accepted tokens to speed-up: the cost of a block, on a measured machine or by the standard
model, and the formula for independent acceptance (i.i.d.).

Times are ratios to one target pass over one token: c = draft pass / target pass, verify = target
pass over the drafted tokens / over one, overhead = the loop's own time / target pass. All arguments
broadcast (numbers, arrays or Series); nothing is fitted here.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from speclab.tree import Tree

Number = Any  # a number, an array or a Series: all formulas broadcast


def within(
    name: str, value: Number, low: float, high: float = np.inf, strict: bool = False
) -> Number:
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


def block_cost(passes: Number, c: Number, verify: Number = 1.0, overhead: Number = 0.0) -> Number:
    """Cost of a block in target passes over one token: passes * c + verify + overhead.

    passes: draft passes, of a chain its gamma; verify: the target pass over the drafted tokens.
    verify = 1 is the usual assumption that a pass over gamma + 1 tokens costs as much as over one;
    `Costs` measures it. The cost is also the break-even point: the tokens per target pass at which
    speculating takes as long as plain decoding. Above gamma + 1 no acceptance is enough.
    """
    within("passes", passes, 0)
    within("c", c, 0)
    within("verify", verify, 0, strict=True)
    within("overhead", overhead, 0)
    return passes * c + verify + overhead


def speedup_standard(block_efficiency: Number, gamma: Number, c: Number) -> Number:
    """Speed-up of a chain over plain decoding where v = 1: block_efficiency / (gamma c + 1).

    Above 1 is faster. Source: arXiv:2211.17192.
    """
    within("block_efficiency", block_efficiency, 1)
    within("gamma", gamma, 1)
    return block_efficiency / block_cost(gamma, c)


def block_efficiency_iid(alpha: Number, gamma: Number) -> Number:
    """Tokens per target pass if each drafted token were accepted with probability alpha,
    independently: (1 - a^(g+1)) / (1 - a).
    """
    a = np.asarray(within("alpha", alpha, 0, 1), np.float64)
    g = np.asarray(within("gamma", gamma, 1), np.float64)
    certain = a == 1
    rest = np.where(certain, 1.0, 1 - a)
    series = (1 - a ** (g + 1)) / rest
    tokens = np.where(certain, g + 1, series)
    return tokens[()]


# ---- measured costs ------------------------------------------------------------------------------

LEAST_V = 0.97  # where timing is reliable: a pass over several tokens costs no less than over one
LEAST_C = 0.9  # the same of the draft, whose passes are short, so that their times differ more
MOST_DRIFT = 0.15  # between two rounds of timed passes
UNRELIABLE = "timing unreliable"  # stamped across figures


@dataclass(frozen=True)
class Costs:
    """What one machine was measured to take: `target_ms`, a target pass over one token; the rest as
    ratios to it.

    sizes: tokens per pass, ascending from 1; draft, verify: a draft and a target pass over this
    many tokens, [len(sizes)]; overhead: the loop's own time per block, tree_overhead: per block of
    a tree, where it differs; drift: by how much the cost of a block is uncertain, as a share.
    Between sizes the ratios are interpolated; beyond the last size they are refused.
    """

    target_ms: float
    sizes: tuple[int, ...]
    draft: tuple[float, ...]
    verify: tuple[float, ...]
    overhead: float = 0.0
    tree_overhead: float | None = None
    drift: float = 0.0

    def __post_init__(self) -> None:
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
    def assumed(cls, c: float) -> Self:
        """A machine that was not measured: a draft pass of any width costs c, and v(n) = 1, for n
        up to 256; o = 0.
        """
        return cls(1.0, (1, 256), (c, c), (1.0, 1.0))

    def _at(self, ratios: tuple[float, ...], n: Number) -> Number:
        sizes, largest = np.asarray(n), self.sizes[-1]
        outside = sizes[(sizes < 1) | (sizes > largest)]
        if outside.size:
            raise ValueError(
                f"a pass over {outside[0]} tokens was not measured: sizes run from 1 to {largest}; "
                "measure larger ones"
            )
        return np.interp(sizes, self.sizes, ratios)

    def c(self, width: Number = 1) -> Number:
        """A draft pass over `width` tokens (a number or an array), in target passes over one."""
        return self._at(self.draft, width)

    def v(self, n: Number) -> Number:
        """A target pass over n tokens (a number or an array), in target passes over one."""
        return self._at(self.verify, n)

    def loop(self, chain: bool) -> float:
        """The loop's own time per block of a chain, or of a tree."""
        return self.overhead if chain or self.tree_overhead is None else self.tree_overhead

    def of_chain(self, drafted: Number, passes: Number | None = None) -> Number:
        """Cost of blocks that draft this many tokens in a chain, a number or an array of any shape.

        passes: draft passes that they take, as many unless named: one more where a stop rule has
        looked at a token and refused it, none where the tokens are a copy.
        """
        made = drafted if passes is None else passes
        tokens = np.asarray(drafted) + 1
        return block_cost(made, self.c(), self.v(tokens), self.overhead)

    def of_block(self, tree: Tree) -> Number:
        """Cost of one block of a static tree or a chain: a draft pass for each level that has
        children, one target pass, the overhead.
        """
        if tree.is_chain:
            return self.of_chain(tree.size)
        widths = [len(level.parents) for level in tree.levels]
        return self._of_tree(widths, tree.size)

    def _of_tree(self, widths: list[int], nodes: int) -> Number:
        drafting = self.c(widths).sum()
        return drafting + self.v(nodes + 1) + self.loop(chain=False)


def loop_in_words(costs: Costs) -> str:
    """The loop's own time and how far the cost of a block is uncertain, as sentences."""
    return (
        f"The loop takes o = {costs.overhead:.2f} target passes per block of a chain and "
        f"{costs.loop(False):.2f} per block of a tree. Between the rounds the cost of a block "
        f"differs by {100 * costs.drift:.0f} %."
    )


def disturbed(costs: Costs) -> str:
    """Why measured costs carry no verdict on speed, and what to do; "" where timing is reliable.

    Reliable timing gives no v(n) below LEAST_V, no c(n) below LEAST_C of c(1), and about the same
    cost of a block in two rounds (at most MOST_DRIFT apart).
    """
    least = min(costs.verify)
    of_draft = min(costs.draft) / costs.draft[0] if costs.draft[0] else 1.0
    if of_draft < LEAST_C:
        what = (
            "A draft pass over several tokens was measured to be "
            f"{100 * (1 - of_draft):.0f} % faster than a pass over one token, which is impossible."
        )
    elif least < LEAST_V:
        what = (
            "A target pass over several tokens was measured to be "
            f"{100 * (1 - least):.0f} % faster than a pass over one token, which is impossible."
        )
    elif costs.drift > MOST_DRIFT:
        what = (
            f"The cost of a block is uncertain by {100 * costs.drift:.0f} %, where "
            f"{100 * MOST_DRIFT:.0f} % are allowed."
        )
    else:
        return ""
    return (
        f"**Timing is unreliable, so there is no verdict on speed.** {what} Another program "
        "probably used the machine. Run this notebook again on an idle machine."
    )


def stamp(costs: Costs) -> str:
    """What is stamped across a figure that shows measured costs: UNRELIABLE, or ""."""
    return UNRELIABLE if disturbed(costs) else ""

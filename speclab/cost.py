"""From accepted tokens to speed-up: the cost of a block, measured or assumed.

Times are ratios to one target pass over one token: c = draft pass / target pass, v = target pass
over the drafted tokens / over one, o = the loop's own time / target pass. The speed-up over plain
decoding is the tokens per target pass divided by the cost of a block. So this cost is also the
break-even point: the tokens per target pass at which speculating takes as long as plain decoding.
With v = 1 and o = 0 a chain costs gamma c + 1 (arXiv:2211.17192).
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from speclab.tree import Tree

Number = Any  # a number, an array or a Series: all formulas broadcast


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

    batch: requests whose blocks are made together. All costs are then of one of them, in its share
    of a plain pass over one token of each.
    """

    target_ms: float
    sizes: tuple[int, ...]
    draft: tuple[float, ...]
    verify: tuple[float, ...]
    overhead: float = 0.0
    tree_overhead: float | None = None
    drift: float = 0.0
    batch: int = 1

    def __post_init__(self) -> None:
        ratios = np.array([*self.draft, *self.verify, self.overhead])
        are_ratios = (ratios >= 0) & np.isfinite(ratios)
        is_measured = self.target_ms > 0 and are_ratios.all()
        ascending = list(self.sizes) == sorted({1, *self.sizes})
        same_length = len(self.sizes) == len(self.draft) == len(self.verify)
        if not (is_measured and ascending and same_length):
            raise ValueError(
                f"{self}: a target pass above 0 ms, ratios from 0, and ascending sizes from 1 with "
                "as many draft and verify ratios are needed"
            )

    @classmethod
    def assumed(cls, c: float) -> Self:
        """A machine that was not measured: a draft pass of any width costs c, and v(n) = 1, for n
        up to 256; o = 0.
        """
        return cls(1.0, (1, 256), (c, c), (1.0, 1.0))

    def _at(self, ratios: tuple[float, ...], n: Number) -> Number:
        sizes, largest = self.batch * np.asarray(n), self.sizes[-1]
        outside = sizes[(sizes < 1) | (sizes > largest)]
        if outside.size:
            raise ValueError(
                f"a pass over {outside[0]} tokens was not measured: sizes run from 1 to {largest}; "
                "measure larger ones"
            )
        return np.interp(sizes, self.sizes, ratios) / self._plain

    @property
    def _plain(self) -> Number:
        """A pass over one token of each request, in target passes over one token."""
        return np.interp(self.batch, self.sizes, self.verify)

    def c(self, width: Number = 1) -> Number:
        """A draft pass over `width` tokens (a number or an array), in target passes over one."""
        return self._at(self.draft, width)

    def v(self, n: Number) -> Number:
        """A target pass over n tokens (a number or an array), in target passes over one."""
        return self._at(self.verify, n)

    def loop(self, chain: bool) -> Number:
        """The loop's own time per block of a chain, or of a tree."""
        own = self.overhead if chain or self.tree_overhead is None else self.tree_overhead
        return own / self._plain

    def of_chain(self, drafted: Number, passes: Number | None = None) -> Number:
        """Cost of blocks that draft this many tokens in a chain, a number or an array of any shape.

        passes: draft passes that they take, as many unless named: one more where a stop rule has
        looked at a token and refused it, none where the tokens are a copy.
        """
        made = drafted if passes is None else passes
        return made * self.c() + self.v(np.asarray(drafted) + 1) + self.loop(chain=True)

    def of_block(self, tree: Tree) -> Number:
        """Cost of one block of a static tree or a chain: a draft pass for each level that has
        children, one target pass, the overhead.
        """
        if tree.is_chain:
            return self.of_chain(tree.size)
        widths = [len(level.parents) for level in tree.levels]
        drafting = self.c(widths).sum()
        return drafting + self.v(tree.size + 1) + self.loop(chain=False)


def disturbed(costs: Costs) -> str:
    """Why measured costs carry no verdict on speed, and what to do; "" where timing is reliable.

    Reliable timing gives no v(n) below LEAST_V, no c(n) below LEAST_C of c(1), and about the same
    cost of a block in two rounds (at most MOST_DRIFT apart).
    """
    # the fastest passes, in passes of the same model over one token
    least_v, first = min(costs.verify), costs.draft[0]
    least_c = min(costs.draft) / first if first else 1.0
    if least_v < LEAST_V or least_c < LEAST_C:
        what = (
            "A pass over several tokens was measured to be "
            f"{100 * (1 - min(least_v, least_c)):.0f} % faster than a pass over one token, which "
            "is impossible."
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

"""The cost model of SpecDecode-Bench (arXiv:2601.11580), theirs and not ours: what a block takes
with Llama-3.1-8B-Instruct on an H100, at a batch size, and the speed-up of a text.

A target pass takes a constant, and some time per token and per cached token; EAGLE's draft
likewise, **whatever the number of drafted tokens**: its constant was fitted to whole drafts of one
length, so no one can tell from it what one more token costs. Both readings are here: PRICES "block"
(theirs: the constant once per block) and "token" (a draft of that price for every drafted token),
which bracket a head that runs once per drafted token; "lookup" is their n-gram lookup, a share of
the target's pass. A batch is one request repeated; the first token comes with the prompt's own
pass; every step has the loop's own time. Constants: `predictor.py` of the commit that
`specdecode_bench` names.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab.replay import among

PRICES = ("block", "token", "lookup")
LOOP_S = 1.20683946e-3  # the loop's own time, a step
LOOKUP_SHARE = 0.005875  # of the target pass that follows


@dataclass(frozen=True)
class PassTime:
    """Seconds of a pass: a constant, and for each token that it runs and each that is cached."""

    fixed_s: float
    token_s: float
    cached_s: float

    def __call__(self, tokens, cached):
        """Seconds of a pass over `tokens` with `cached` before them (of the whole batch)."""
        return self.fixed_s + self.token_s * tokens + self.cached_s * cached


TARGET = PassTime(5.88590713e-3, 2.10103129e-5, 3.92645679e-8)
EAGLE_DRAFT = PassTime(2.13526175e-3, 8.41429603e-7, 2.37768493e-9)


def block_s(
    drafted: pd.Series, cached: pd.Series, batch: int = 1, price: str = "block"
) -> pd.Series:
    """Seconds of blocks: `drafted` tokens each, `cached` tokens of one request before them.

    price: one of PRICES. As in their code the draft's own tokens are those of one request.
    ValueError for another price.
    """
    among("price", price, PRICES)
    behind = batch * cached
    verify = TARGET(batch * (drafted + 1), behind)
    draft = {
        "block": EAGLE_DRAFT(drafted + 1, behind),
        "token": drafted * EAGLE_DRAFT(1, behind),
        "lookup": LOOKUP_SHARE * verify * (drafted > 0),
    }
    return draft[price] + verify + LOOP_S


def plain_s(prompt_tokens: np.ndarray, tokens: np.ndarray, batch: int = 1) -> np.ndarray:
    """Seconds of plain decoding of texts: the prompt's pass, then one for each further token."""
    passes = tokens - 1
    cached = passes * (prompt_tokens + 1) + passes * (passes - 1) / 2
    step_s = TARGET(batch, 0) + LOOP_S
    reading = TARGET.cached_s * batch * cached
    decoding = passes * step_s + reading
    return _prompt_s(prompt_tokens, batch) + decoding


def _prompt_s(prompt_tokens: np.ndarray, batch: int) -> np.ndarray:
    return TARGET(batch * prompt_tokens, 0) + LOOP_S


def times(blocks: pd.DataFrame, batch: int = 1, price: str = "block") -> pd.DataFrame:
    """One row a text: prompt_id, domain, tokens (the first, of the prompt's pass, included),
    blocks, plain_s, speculative_s, speedup.

    `blocks`: visited blocks from position 1 on, as `replay_starts` gives them, and prompt_tokens;
    where they have a column `is_copied`, such a block has the price "lookup". What `drafted` says
    is paid for. The mean of `speedup` over texts is the number that they publish.
    """
    cached = blocks["prompt_tokens"] + blocks["start"]
    step_s = block_s(blocks["drafted"], cached, batch, price)
    if "is_copied" in blocks:
        copy_s = block_s(blocks["drafted"], cached, batch, "lookup")
        step_s = step_s.mask(blocks["is_copied"], copy_s)
    priced = blocks.assign(step_s=step_s, blocks=1)
    texts = priced.groupby(["prompt_id", "domain"], sort=False)
    total = texts[["emitted", "blocks", "step_s"]].sum()
    prompt_tokens = texts["prompt_tokens"].first()
    total["tokens"] = total.pop("emitted") + 1
    total["plain_s"] = plain_s(prompt_tokens, total["tokens"], batch)
    total["speculative_s"] = _prompt_s(prompt_tokens, batch) + total.pop("step_s")
    total["speedup"] = total["plain_s"] / total["speculative_s"]
    return total.reset_index()


def with_oracle_length(blocks: pd.DataFrame) -> pd.DataFrame:
    """The blocks, had each drafted just what it gets accepted: an oracle's number of tokens."""
    return blocks.assign(drafted=blocks["accepted"])

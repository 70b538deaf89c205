"""Notebook 02: how many tokens should be drafted?"""

from collections.abc import Iterable

import pandas as pd

from speclab.decode import decode_prompt
from speclab.draft import Shape
from speclab.pairs import Pair
from speclab.prompts import EncodedPrompt
from speclab.sampling import Sampling
from speclab.tree import chain


def decoded_sweep(
    pair: Pair,
    prompts: list[EncodedPrompt],
    gammas: Iterable[int],
    rule: str,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int = 0,
) -> pd.DataFrame:
    """Counts of real decoding with chains, one row a gamma and prompt: gamma, prompt_id, domain,
    blocks, drafted, accepted, emitted.

    The columns of `replay.chain_sums`, counted instead of replayed.
    """
    rows = []
    for gamma in gammas:
        shape = Shape(chain(gamma))
        for prompt in prompts:
            steps = decode_prompt(pair, prompt, rule, shape, sampling, max_new_tokens, seed).steps
            row = {"gamma": gamma, "prompt_id": prompt.prompt_id, "domain": prompt.domain}
            row["blocks"] = len(steps)
            row["drafted"] = sum(step.drafted for step in steps)
            row["accepted"] = sum(step.accepted for step in steps)
            row["emitted"] = sum(len(step.tokens) for step in steps)
            rows.append(row)
    return pd.DataFrame(rows)

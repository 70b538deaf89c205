"""Decode with faults that users met, and write a log of each: `faults/NAME.jsonl.gz`.

    python -m data.logs.plant_faults             # 20 minutes on one core
    python -m data.logs.plant_faults short-head  # one of them

The pair is `smollm-head`, a trained head, with chains of K. The fault is planted while the prompts
are decoded. At T = 0 the texts stay the target's own. Faults that lose much need few prompts.
"""

import gzip
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from speclab import decode
from speclab.sampling import Sampling
from speclab.shapes import Shape
from speclab.study.pairs import load_pair
from speclab.study.profiles import ROOT, load_profile
from speclab.study.prompts import encode_prompts, load_prompts
from speclab.tree import chain

OUT = ROOT / "data" / "logs" / "faults"
K, TOKENS, FEW, MANY = 4, 64, 5, 25  # tokens per draft and per answer, prompts per domain
HEALTHY, EXACT = "healthy", "exact-match"
Fault = AbstractContextManager[Any]


# ---- faults --------------------------------------------------------------------------------------


def early_layers(pair: Any) -> Fault:
    """The head reads the target one layer before those of its training."""
    layers = tuple(layer - 1 for layer in pair.target.taps)
    return patch.object(pair.target, "taps", layers)


def other_words(pair: Any) -> Fault:
    """The draft's outputs belong to the token before, as if its vocabulary were shifted by one."""
    honest = pair.draft.logits
    return patch.object(pair.draft, "logits", lambda hidden: honest(hidden).roll(1, -1))


def _with_blocks(change: Callable[[np.ndarray], np.ndarray], longer: int = 0) -> Fault:
    """Blocks whose drafted tokens, of which there are `longer` more, are changed."""
    honest = decode.propose

    def propose(draft, cache, context, shape, left, *how):
        made = honest(draft, cache, context, Shape(chain(K + longer)), left + longer, *how)
        tokens = change(made.tokens)[: min(K, left) + 1]
        run = [node for node in made.run if node < 1]  # what the draft drafted runs again
        return replace(made, tree=chain(len(tokens) - 1), tokens=tokens, run=run)

    return patch.object(decode, "propose", propose)


def shifted_block() -> Fault:
    """From the second drafted token on each stands one position too early."""
    return _with_blocks(lambda tokens: np.delete(tokens, 2), longer=1)


def short_head(kept: int = 2) -> Fault:
    """The head drafts `kept` tokens, and the engine fills the block with token 0."""
    return _with_blocks(lambda tokens: np.where(np.arange(len(tokens)) > kept, 0, tokens))


def faults_of(pair: Any) -> dict[str, tuple[Fault, int]]:
    """The planted faults of a pair with a head, with the prompts per domain."""
    return {
        HEALTHY: (nullcontext(), MANY),
        "layers-early": (early_layers(pair), MANY),
        "other-vocabulary": (other_words(pair), FEW),
        "shifted-block": (shifted_block(), FEW),
        "short-head": (short_head(), FEW),
        EXACT: (nullcontext(), FEW),
    }


# ---- logs ----------------------------------------------------------------------------------------


def write_logs(names: list[str]) -> None:
    """Decode with the faults of these names (none: all) and write their logs."""
    profile = load_profile("smollm-head")
    pair = load_pair(profile)
    OUT.mkdir(exist_ok=True)
    for name, (fault, count) in faults_of(pair).items():
        if names and name not in names:
            continue
        rule, sampling = ("exact-match", Sampling(1.0)) if name == EXACT else ("greedy", Sampling())
        prompts = load_prompts("project", count)
        lines = []
        with fault:
            for prompt in encode_prompts(pair.tokenizer, prompts, 512, profile.template):
                text = decode.decode_prompt(pair, prompt, rule, Shape(chain(K)), sampling, TOKENS)
                row = {
                    "prompt_id": prompt.prompt_id,
                    "domain": prompt.domain,
                    "token_ids": text.token_ids,
                    "drafted_per_step": [step.drafted for step in text.steps],
                    "accepted_per_step": [step.accepted for step in text.steps],
                    "prompt_tokens": len(prompt.ids),
                }
                lines.append(json.dumps(row))
        packed = gzip.compress("\n".join([*lines, ""]).encode(), mtime=0)
        (OUT / f"{name}.jsonl.gz").write_bytes(packed)
        print(f"{name}: {len(lines)} answers", flush=True)


if __name__ == "__main__":
    write_logs(sys.argv[1:])

"""Decode with faults that users met, and write which shape each log looks like: `faults.csv`.

    python -m data.logs.plant_faults             # half an hour on one core

The pair is `smollm-head`, a trained head. Each fault is planted while the prompts are decoded, and
the texts stay the target's own. `explain` then compares the log with the healthy one.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from speclab import decode
from speclab.logs import passes, why
from speclab.logs.log_gammas import PER_PASS
from speclab.logs.logs import Log, opened
from speclab.logs.passes import Answer
from speclab.sampling import Sampling
from speclab.shapes import Shape
from speclab.study.pairs import load_pair
from speclab.study.profiles import ROOT, load_profile
from speclab.study.prompts import encode_prompts, load_prompts
from speclab.tree import chain

OUT = ROOT / "data" / "logs" / "faults.csv"
LOG = ROOT / "data" / "logs" / "smollm.jsonl.gz"
K, PROMPTS, TOKENS = 4, 25, 64  # per draft, per domain, per answer
Fault = AbstractContextManager[Any]


# ---- faults --------------------------------------------------------------------------------------


@contextmanager
def other_layers(pair: Any, by: int) -> Iterator[None]:
    """The head reads the target after the layers `by` later than those of its training."""
    with patch.object(pair.target, "taps", tuple(layer + by for layer in pair.target.taps)):
        yield


def other_words(pair: Any) -> Fault:
    """The draft's outputs belong to the token before, as if its vocabulary were shifted by one."""
    honest = pair.draft.logits
    return patch.object(pair.draft, "logits", lambda hidden: honest(hidden).roll(1, -1))


def _with_blocks(change: Callable[[Any, np.ndarray], np.ndarray], longer: int = 0) -> Fault:
    """Blocks whose drafted tokens, of which there are `longer` more, are changed."""
    honest = decode.propose

    def propose(draft, cache, context, shape, left, *how):
        made = honest(draft, cache, context, Shape(chain(K + longer)), left + longer, *how)
        tokens = change(draft, made.tokens)[: min(K, left) + 1]
        run = [node for node in made.run if node < 1]  # what the draft drafted runs again
        return replace(made, tree=chain(len(tokens) - 1), tokens=tokens, run=run)

    return patch.object(decode, "propose", propose)


def shifted_block() -> Fault:
    """From the second drafted token on each stands one position too early."""
    return _with_blocks(lambda _draft, tokens: np.delete(tokens, 2), longer=1)


def short_head(kept: int = 2) -> Fault:
    """The head drafts `kept` tokens, and the engine fills the block with token 0."""
    return _with_blocks(lambda _draft, tokens: np.where(np.arange(len(tokens)) > kept, 0, tokens))


def faults_of(pair: Any) -> dict[str, Fault]:
    """The planted faults of a pair with a head."""
    return {
        "none": nullcontext(),
        "layers one too early": other_layers(pair, -1),
        "layers one too late": other_layers(pair, 1),
        "vocabulary shifted by one": other_words(pair),
        "block shifted by one after its first token": shifted_block(),
        "head of two tokens": short_head(),
    }


# ---- logs ----------------------------------------------------------------------------------------


def decoded(pair: Any, prompts: list[Any], fault: Fault, tokens: int = TOKENS) -> Log:
    """The log of prompts that are decoded with a fault, greedily and in chains of K."""
    answers = []
    with fault:
        for prompt in prompts:
            text = decode.decode_prompt(pair, prompt, "greedy", Shape(chain(K)), Sampling(), tokens)
            accepted, drafted = (
                [getattr(step, name) for step in text.steps] for name in ("accepted", "drafted")
            )
            answers.append(
                Answer(prompt.prompt_id, prompt.domain, accepted, drafted, len(text.token_ids))
            )
    frame = passes.count_by_answer(answers)
    lengths = {prompt.prompt_id: len(prompt.ids) for prompt in prompts}
    sums = passes.sums_by_request(frame)
    sums = sums.assign(context=sums["prompt_id"].map(lengths))
    return replace(opened(LOG), passes=frame, sums=sums)


def row_of(name: str, log: Log, healthy: Log) -> dict[str, Any]:
    """What a log of a fault looks like, beside the healthy log."""
    shapes = why.explain(log, healthy, (0.0, 0.0))
    parts = [passes.depth_counts(log.passes, place) for place in range(1, K + 1)]
    return {
        "fault": name,
        "passes": len(log.passes),
        "tokens_per_pass": PER_PASS(log.sums),
        **{f"position_{place}": why.SHARE(rows) for place, rows in enumerate(parts, 1)},
        "looks_like": "; ".join(shapes.loc[shapes["verdict"] == why.FITS, "shape"]),
    }


def main() -> None:
    """Decode with every fault and write OUT."""
    profile = load_profile("smollm-head")
    pair = load_pair(profile)
    encoded = encode_prompts(
        pair.tokenizer, load_prompts("project", PROMPTS), 512, profile.template
    )
    prompts, logs = list(encoded), {}
    for name, fault in faults_of(pair).items():
        logs[name] = decoded(pair, prompts, fault)
        print(name, row_of(name, logs[name], logs["none"]), flush=True)
    table = pd.DataFrame([row_of(name, log, logs["none"]) for name, log in logs.items()])
    table.round(4).to_csv(OUT, index=False)


if __name__ == "__main__":
    main()

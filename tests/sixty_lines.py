"""Speculative decoding of a chain in sixty lines, to be copied: draft, score, accept, roll back.

`target` and `draft` are causal language models of transformers with one vocabulary. The text
follows the target's distribution, whatever the draft. Rule: Leviathan et al., arXiv:2211.17192.
"""

import numpy as np
import torch
from transformers import DynamicCache


def distributions(model, cache, ids, temperature):
    """The model's next-token distributions for the `ids` that the cache lacks, [new, vocab]."""
    new = torch.tensor([ids[cache.get_seq_length() :]])
    logits = model(new, past_key_values=cache).logits[0].double()
    if temperature:
        return (logits / temperature).softmax(-1)
    best = logits.argmax(-1)  # greedy: the best token has probability 1
    return torch.nn.functional.one_hot(best, logits.shape[-1]).double()


def draw(weights, coin):
    """Draw a token: the first whose cumulative weight exceeds the share `coin` of the total."""
    return int((weights.cumsum(-1) <= coin * weights.sum()).sum())


@torch.inference_mode()
def decode(target, draft, prompt, gamma, new_tokens, stop=(), temperature=0.0, seed=0):
    """Token ids after `prompt`, and the number of target passes."""
    rng = np.random.default_rng(seed)
    caches = DynamicCache(), DynamicCache()
    ids, end, passes = list(prompt), len(prompt) + new_tokens, 0
    while len(ids) < end:
        # 1. Draft up to gamma tokens, with one pass of the draft for each.
        drafted, q = [], []
        for _ in range(min(gamma, end - len(ids))):
            q.append(distributions(draft, caches[1], ids + drafted, temperature)[-1])
            drafted.append(draw(q[-1], rng.random()))
        # 2. Score them in one target pass, which also gives the distribution after the last one.
        p = distributions(target, caches[0], ids + drafted, temperature)[-len(drafted) - 1 :]
        passes += 1
        # 3. Accept each token with probability min(1, p / q), up to the first rejection.
        coins = iter(rng.random(len(drafted) + 1))
        kept = 0
        for token in drafted:
            if next(coins) * q[kept][token] >= p[kept, token]:
                break
            kept += 1
        # 4. Add one more token: from max(p - q, 0), or a bonus token from p if all were accepted.
        weights = p[kept] if kept == len(drafted) else (p[kept] - q[kept]).clamp(min=0)
        emitted = [*drafted[:kept], draw(weights, next(coins))][: end - len(ids)]
        ends = [place + 1 for place, token in enumerate(emitted) if token in stop]
        ids += emitted[: min(ends, default=len(emitted))]
        if ends:
            break
        # 5. Roll both caches back to the text without its last token, which the next pass reads.
        for cache in caches:
            if (surplus := cache.get_seq_length() - len(ids) + 1) > 0:
                cache.crop(-surplus)
    return ids[len(prompt) :], passes

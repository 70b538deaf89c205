"""From logits to distributions, ranks and tokens, with the same processors for target and draft.
Random numbers always come from the caller.
"""

import hashlib
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from speclab.plain import Array

# per token id: among equal logits, which are common in half precision, the lowest id ranks first
TIE = 1e-12
COLDEST = 1e-4  # at lower temperatures, logits divided by the temperature overflow float32


class NonFiniteProbability(FloatingPointError):
    """A model gave a probability that is not finite. None of its numbers is used."""


@dataclass(frozen=True)
class Sampling:
    """Temperature, then top-k, then top-p.

    Temperature 0 decodes greedily. Its probabilities are those at temperature 1.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        warm = self.greedy or COLDEST <= self.temperature <= 10
        if not warm or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                f"{self}: allowed are temperature 0 or {COLDEST} to 10, top_k from 0 (off), top_p "
                "above 0 to 1"
            )

    @property
    def greedy(self) -> bool:
        """True if the next token is the argmax."""
        return self.temperature == 0


@cache
def _ties(vocab: int, device: torch.device) -> Tensor:
    return TIE * torch.arange(vocab, dtype=torch.float64, device=device)


def rank_key(logits: Tensor) -> Tensor:
    """Logits [..., vocab] as float64, with ties broken by token id. Every argmax, top-k and rank of
    the kit comes from this key.
    """
    return logits.double() - _ties(logits.shape[-1], logits.device)


def check_finite(logits: Tensor, which: str) -> None:
    """Raises NonFiniteProbability if a row of logits [..., vocab] has no finite maximum. Such a row
    has an argmax, but no probabilities.
    """
    if not logits.amax(-1).isfinite().all():
        raise NonFiniteProbability(
            f"the {which} gave a non-finite probability; in half precision try dtype=float32 for "
            "that model"
        )


def fetched(logits: Tensor, which: str, found: Tensor) -> Array:
    """The numbers `found` from logits [rows, vocab], on the CPU as float64 [rows, k], after
    `check_finite`. One copy brings both, so the host waits for the device once.
    """
    largest = logits.amax(-1, keepdim=True)
    together = torch.hstack([largest.double(), found]).cpu()
    check_finite(together[:, :1], which)
    return together[:, 1:].numpy()


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """Next-token distribution after the processors, float32 [..., vocab]."""
    if sampling.greedy:
        return torch.softmax(logits.float(), -1)
    logits = logits.float() / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        key = rank_key(logits)
        last = key.topk(sampling.top_k).values[..., -1:]
        logits = logits.masked_fill(key < last, -torch.inf)
    p = torch.softmax(logits, -1)
    if sampling.top_p == 1:
        return p
    order = rank_key(logits).argsort(-1, descending=True)
    ranked = p.gather(-1, order)
    before = ranked.cumsum(-1) - ranked  # 0 for the best token, which therefore always stays
    kept = ranked.where(before < sampling.top_p, 0.0)
    p = torch.zeros_like(p).scatter(-1, order, kept)
    return p / p.sum(-1, keepdim=True)


def entropy(p: Tensor) -> Tensor:
    """Entropy in nats over the last axis; 0 log 0 = 0."""
    terms: Tensor = torch.special.entr(p)
    return terms.sum(-1)


def rank_of(key: Tensor, token: Tensor) -> Tensor:
    """Rank of `token` (0 = best) in rank_key [..., vocab]; token [...]."""
    own = key.gather(-1, token[..., None])
    return (key > own).sum(-1)


def uniforms(seed: int, prompt_id: str, count: int) -> Array:
    """`count` uniform numbers in [0, 1), float64 [count]. They belong to one prompt and do not
    depend on the other prompts.
    """
    digest = hashlib.sha256(prompt_id.encode()).digest()
    of_prompt = int.from_bytes(digest[:8], "big")
    return np.random.default_rng([seed, of_prompt]).random(count)


def sample(p: Tensor, uniform: Tensor | float) -> Tensor:
    """Inverse-CDF sample: the first token whose cumulative probability exceeds the uniform number.

    p [..., vocab], uniform [...].
    """
    cumulated = p.double().cumsum(-1)
    place = torch.as_tensor(uniform, dtype=torch.float64, device=p.device)[..., None]
    below = cumulated <= place * cumulated[..., -1:]
    last = p.shape[-1] - 1
    return below.sum(-1).clamp(max=last)

"""Prompt lookup: a draft without weights, which copies what followed the last tokens when they
stood in the text before.

It is a `speclab.models.model.LanguageModel` whose body looks n-grams up and whose head makes a
distribution of what was found, so recorder, decoder, stop rules and sampling rules run it as any
draft. Source: Saxena, 'Prompt Lookup Decoding' (2023). Its code, and that of transformers, copy a
span from the first occurrence; here each token is looked up anew, and the most recent occurrence
wins.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from speclab.models.model import KVCache, LanguageModel
from speclab.models.pairs import Pair
from speclab.sampling import Sampling, entropy, probabilities, rank_key

NAME = "prompt lookup"
# what each token of a match divides the doubt by: a match of n tokens is given probability 1 -
# MISS^n
MISS = 0.1


class LookupBody:
    """Finds continuations: called as a Hugging Face body; a hidden state is `candidates` token ids
    (-1: none), then the match's length.

    The text of a token is what it sees, in order of position. Candidates are the tokens that
    followed earlier occurrences of its last `longest`, …, 2, 1 tokens: longer matches first, then
    the more recent, each token once. Ids are exact in float32 up to 2^24.
    """

    lean = True  # one token behind the cache needs no mask

    def __init__(self, longest: int, candidates: int):
        self.longest = longest
        self.candidates = candidates

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor,
        past_key_values: KVCache,
        use_cache: bool = True,
    ) -> SimpleNamespace:
        new = (x.to(torch.float32)[:, None, :, None] for x in (input_ids, position_ids))
        kept = past_key_values.update(*new, 0)
        tokens, places = (x[:, 0, :, 0].numpy().astype(int) for x in kept)
        seen = np.ones((len(tokens), 1, tokens.shape[1]), bool)
        if attention_mask is not None:
            seen = (attention_mask[:, 0] == 0).expand(len(tokens), -1, -1).numpy()
        states = [
            self.states([_in_order(*row, visible) for visible in of_each])
            for *row, of_each in zip(tokens, places, seen, strict=True)
        ]
        return SimpleNamespace(last_hidden_state=torch.stack(states))

    def states(self, texts: Sequence[np.ndarray]) -> Tensor:
        """Hidden states [n, candidates + 1] behind n texts of token ids."""
        states = [self._state(text) for text in texts]
        return torch.from_numpy(np.stack(states))

    def _state(self, text: np.ndarray) -> np.ndarray:
        ends = np.arange(1, len(text))  # an earlier occurrence may end before each of them
        matches = np.ones(len(ends), bool)
        length = np.zeros(len(ends), int)
        longest = min(self.longest, len(text))
        for back in range(1, longest + 1):
            same = text[ends - back] == text[-back]
            matches &= (ends >= back) & same
            length += matches
        order = np.lexsort((ends, length))[::-1]  # longer matches first, then later places
        found = order[length[order] > 0]
        followed = text[ends[found]]
        tokens = pd.unique(followed)[: self.candidates]
        state = np.full(self.candidates + 1, -1, np.float32)
        state[: len(tokens)] = tokens
        state[-1] = length.max(initial=0)
        return state


def _in_order(tokens: np.ndarray, places: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The seen tokens of one row, in order of position."""
    order = np.argsort(places[seen], kind="stable")
    return tokens[seen][order]


def lookup_logits(hidden: Tensor, vocab: int) -> Tensor:
    """Logits of what was found: the k-th candidate of a match of n tokens has (1 - e) e^k with e =
    MISS^n, all tokens share the rest.

    So q is a distribution that excludes nothing; without a match it is uniform, and its confidence
    tells a stop rule not to draft.
    """
    tokens = hidden[..., :-1].long()
    doubt = MISS ** hidden[..., -1:].double()
    there = tokens >= 0
    order = torch.arange(tokens.shape[-1])
    found = there.sum(-1, keepdim=True)
    rest = doubt**found / vocab
    q = rest.expand(*hidden.shape[:-1], vocab).clone()
    share = (1 - doubt) * doubt**order
    shares = torch.where(there, share, 0.0)
    return q.scatter_add_(-1, tokens.clamp(min=0), shares).log()


def lookup_model(vocab: int, longest: int = 3, candidates: int = 4) -> LanguageModel:
    """Prompt lookup as a model over `vocab` ids, on the CPU; needs no weights and no training."""
    body = LookupBody(longest, candidates)
    head = partial(lookup_logits, vocab=vocab)
    return LanguageModel(body, head, vocab, torch.float32, "cpu", NAME)


def with_lookup(pair: Pair, longest: int = 3) -> Pair:
    """The pair with prompt lookup as its draft."""
    facts = {"path": NAME, "kernel": NAME, "quantised": False}
    facts |= {"parameters": 0, "weight_bytes": 0, "layers": 0, "heads": 0}
    facts["tokens_said"] = pair.vocab
    draft = lookup_model(pair.vocab, longest)
    return dataclasses.replace(pair, draft=draft, facts=pair.facts | {"draft": facts})


def chains_along(
    ids: tuple[int, ...], text: tuple[int, ...], gamma: int, vocab: int
) -> pd.DataFrame:
    """Prompt lookup's greedy chains of gamma tokens at every position of a greedy text behind the
    prompt `ids`: position, node, depth, rank, draft_prob, draft_entropy, and target_rank, 0 where
    the token is the text's (elsewhere 1: the target is not asked).
    """
    draft = lookup_model(vocab)
    whole = np.array([*ids, *text])
    known = np.arange(len(ids), len(whole))  # how many tokens stand before each position
    wanted = np.append(whole, np.full(gamma, -1))
    texts = [whole[:n] for n in known]
    levels = []
    for depth in range(gamma):
        logits = draft.logits(draft.body.states(texts))
        q = probabilities(logits, Sampling())
        token = rank_key(logits).argmax(-1).numpy()
        missed = token != wanted[known + depth]
        columns = {
            "position": range(len(text)),
            "draft_prob": q.max(-1).values,
            "draft_entropy": entropy(q),
            "target_rank": missed.astype(int),
        }
        depths = {"node": depth + 1, "depth": depth + 1, "rank": 0}
        levels.append(pd.DataFrame(columns).assign(**depths))
        texts = [np.append(*both) for both in zip(texts, token, strict=True)]
    return pd.concat(levels, ignore_index=True)

"""Prompt lookup: a draft without weights, which copies what followed the last tokens when they
stood in the text before.

It is a `speclab.models.model.LanguageModel` whose body looks n-grams up and whose head makes a
distribution of what was found, so recorder, decoder, stop rules and sampling rules run it as any
draft. Source: Saxena, 'Prompt Lookup Decoding' (2023). Its code, and that of transformers, copy a
span from the first occurrence; here each token is looked up anew, and the most recent occurrence
wins.
"""

import dataclasses
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
        self.longest, self.candidates = longest, candidates

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
        tokens, places = (x[:, 0, :, 0].numpy().astype(np.int32) for x in kept)
        seen = np.ones((len(tokens), 1, tokens.shape[1]), bool)
        if attention_mask is not None:
            seen = (attention_mask[:, 0] == 0).expand(len(tokens), -1, -1).numpy()
        rows = zip(tokens, places, seen, strict=True)
        found = np.stack([self.found(_texts(*row)) for row in rows])
        return SimpleNamespace(last_hidden_state=torch.from_numpy(found))

    def found(self, texts: np.ndarray) -> np.ndarray:
        """Hidden states [n, candidates + 1] of texts [n, slots]."""
        before = texts.shape[1] - 1  # places that an earlier occurrence may end at
        length = np.zeros((len(texts), before), np.int32)
        same = np.ones(length.shape, bool)
        for back in range(min(self.longest, before)):
            # is the token `back` before each place the last but `back`?
            wanted = texts[:, -1 - back, None]
            same[:, :back] = False
            same[:, back:] &= (texts[:, : before - back] == wanted) & (wanted >= 0)
            length += same
        # longer matches first, then later places
        score = np.where(length > 0, length * (before + 1) + np.arange(before), 0)
        hidden = np.full((len(texts), self.candidates + 1), -1, np.float32)
        hidden[:, -1] = length.max(axis=1)
        rows = np.arange(len(texts))
        for column in range(self.candidates):
            best = score.argmax(axis=1)
            token = np.where(score[rows, best] > 0, texts[rows, best + 1], -1)
            hidden[:, column] = token
            score[texts[:, 1:] == token[:, None]] = 0
        return hidden


def _texts(tokens: np.ndarray, places: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Each row's own text in order of position, right-aligned behind -1, at least two wide: int32
    [n, 1 + slots].
    """
    order = np.argsort(np.where(seen, places, -1), axis=1, kind="stable")
    texts = np.where(np.take_along_axis(seen, order, 1), tokens[order], -1)
    return np.pad(texts, ((0, 0), (1, 0)), constant_values=-1)


def lookup_logits(hidden: Tensor, vocab: int) -> Tensor:
    """Logits of what was found: the k-th candidate of a match of n tokens has (1 - e) e^k with e =
    MISS^n, all tokens share the rest.

    So q is a distribution that excludes nothing; without a match it is uniform, and its confidence
    tells a stop rule not to draft.
    """
    tokens, doubt = hidden[..., :-1].long(), MISS ** hidden[..., -1:].double()
    there, order = tokens >= 0, torch.arange(tokens.shape[-1])
    rest = doubt ** there.sum(-1, keepdim=True) / vocab
    q = rest.expand(*hidden.shape[:-1], vocab).clone()
    shares = torch.where(there, (1 - doubt) * doubt**order, 0.0)
    return q.scatter_add_(-1, tokens.clamp(min=0), shares).log()


def lookup_model(vocab: int, longest: int = 3, candidates: int = 4) -> LanguageModel:
    """Prompt lookup as a model over `vocab` ids, on the CPU; needs no weights and no training."""
    body, head = LookupBody(longest, candidates), partial(lookup_logits, vocab=vocab)
    return LanguageModel(body, head, vocab, torch.float32, "cpu", NAME)


def with_lookup(pair: Pair, longest: int = 3) -> Pair:
    """The pair with prompt lookup as its draft."""
    facts = {"path": NAME, "kernel": NAME, "quantised": False}
    facts |= {"parameters": 0, "weight_bytes": 0, "layers": 0, "heads": 0}
    draft = lookup_model(pair.vocab, longest)
    return dataclasses.replace(pair, draft=draft, facts=pair.facts | {"draft": facts})


def chains_along(
    ids: tuple[int, ...], text: tuple[int, ...], gamma: int, vocab: int
) -> pd.DataFrame:
    """Prompt lookup's greedy chains of gamma tokens at every position of a greedy text behind the
    prompt `ids`: position, node, depth, rank, draft_prob, draft_entropy, and target_rank, 0 where
    the token is the text's (elsewhere 1: the target is not asked).
    """
    draft, whole = lookup_model(vocab), np.array([*ids, *text])
    slots = np.arange(len(whole))
    known = slots[len(ids) :, None]  # how many tokens stand before each position
    rows = _texts(whole, slots, slots < known)
    wanted = np.append(whole, np.full(gamma, -1))
    levels = []
    for depth in range(gamma):
        logits = draft.logits(torch.from_numpy(draft.body.found(rows)))
        q = probabilities(logits, Sampling())
        token = rank_key(logits).argmax(-1).numpy()
        columns = {
            "position": range(len(text)),
            "draft_prob": q.max(-1).values,
            "draft_entropy": entropy(q),
            "target_rank": (token != wanted[known[:, 0] + depth]).astype(int),
        }
        depths = {"node": depth + 1, "depth": depth + 1, "rank": 0}
        levels.append(pd.DataFrame(columns).assign(**depths))
        rows = np.append(rows, token[:, None], axis=1)
    return pd.concat(levels, ignore_index=True)

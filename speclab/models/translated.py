"""A draft with another vocabulary than its target's. It proposes the tokens that both have (TLI,
arXiv:2502.05202); q is 0 for all others, which every lossless rule allows.

The draft reads the target's tokens one by one: a common token as its own id, any other token as its
own tokens for the same bytes. What it says is therefore a function of the text alone, in one pass
and with a cache, and a trace replays exactly.
"""

import json
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import pre_tokenizers
from torch import Tensor

from speclab.model import KVCache, LanguageModel

BYTE_LEVEL, SENTENCE_PIECE = "byte-level BPE", "SentencePiece"
Spelling = tuple[tuple[int, ...], ...]  # the draft's ids of each of the target's tokens


# ---- two vocabularies ----------------------------------------------------------------------------


def kind_of(tokenizer: Any, which: str) -> str:
    """How a tokenizer's tokens stand for bytes. ValueError for a kind that cannot be translated."""
    decoder = json.dumps(json.loads(tokenizer.backend_tokenizer.to_str())["decoder"])
    if '"ByteLevel"' in decoder:
        return BYTE_LEVEL
    if '"ByteFallback"' in decoder or '"Metaspace"' in decoder:
        return SENTENCE_PIECE
    raise ValueError(
        f"target and draft have different vocabularies, and the {which}'s tokenizer is neither "
        "byte-level BPE nor SentencePiece, so its tokens cannot be compared by their bytes; use a "
        "draft of the target's family"
    )


def tokens_of(tokenizer: Any, kind: str) -> tuple[dict[str, int], dict[str, int]]:
    """Ids by token, as the tokenizer's model writes tokens; ids of special tokens by their text."""
    ordinary, special = dict[str, int](), dict[str, int]()
    added = tokenizer.added_tokens_decoder
    for token, place in tokenizer.get_vocab().items():
        if place not in added:
            ordinary[token] = place
        elif added[place].special:
            special[token] = place
        elif kind == BYTE_LEVEL:  # an added word stands in the vocabulary as text
            ordinary.setdefault(in_bytes(token), place)
        else:
            ordinary.setdefault(token, place)
    return ordinary, special


def in_bytes(text: str) -> str:
    """A text in the alphabet of byte-level BPE, one character per byte."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return "".join(part for part, _ in split.pre_tokenize_str(text))


def spelling_of(target: Any, draft: Any, sizes: tuple[int, int]) -> tuple[Spelling, dict[int, int]]:
    """The draft's ids of each of the target's ids, and the draft's id of each common token by the
    target's id. sizes: how many ids each model has.

    Special tokens are common if their text is. What the draft cannot spell (a special token that it
    lacks, an id without a token) is spelled as its end of text. ValueError for tokenizers of two
    kinds.
    """
    kind, other = kind_of(target, "target"), kind_of(draft, "draft")
    if kind != other:
        raise ValueError(
            f"the target's tokenizer is {kind}, the draft's {other}: their tokens cannot be "
            "compared by their bytes; use a draft of the target's kind"
        )
    (ordinary, special), (its, its_special) = (tokens_of(one, kind) for one in (target, draft))
    pairs = [(place, its.get(token)) for token, place in ordinary.items()]
    pairs += [(place, its_special.get(token)) for token, place in special.items()]
    # a tokenizer can name ids that its model lacks
    common = {
        place: own
        for place, own in pairs
        if own is not None and place < sizes[0] and own < sizes[1]
    }
    spelled: list[tuple[int, ...]] = [(draft.eos_token_id or 0,)] * sizes[0]
    spell = draft.backend_tokenizer.model.tokenize
    for token, place in ordinary.items():
        if place < sizes[0]:  # bytes that the draft lacks are left out, as its tokenizer does
            pieces = [piece.id for piece in spell(token) if piece.id < sizes[1]]
            spelled[place] = tuple(pieces) or spelled[place]
    for place, own in common.items():
        spelled[place] = (own,)
    return tuple(spelled), common


# ---- the draft -----------------------------------------------------------------------------------


class TranslatedCache:
    """The draft's cache, counted in the target's tokens. sizes: how many of its own tokens each of
    the target's has.
    """

    def __init__(self, own: KVCache):
        self.own = own
        self.sizes: list[int] = []

    @property
    def length(self) -> int:
        """Committed tokens of the target."""
        return len(self.sizes)

    def crop(self, length: int) -> None:
        """Forget everything from `length` on."""
        if not 0 <= length <= self.length:
            raise ValueError(f"crop to {length}: the cache holds {self.length} tokens")
        self.sizes = self.sizes[:length]
        self.own.crop(sum(self.sizes))

    def keep(self, start: int, index: list[int]) -> None:
        """Keep the first `start` tokens and, after them, the tokens at `index`; forget the rest."""
        ends = torch.tensor([0, *self.sizes]).cumsum(0).tolist()
        slots = [slot for one in index for slot in range(ends[one], ends[one + 1])]
        self.own.keep(ends[start], slots)
        self.sizes = self.sizes[:start] + [self.sizes[one] for one in index]

    def take(self, features: Tensor) -> None:
        """It is no head and takes no features."""


class TranslatedModel(LanguageModel):
    """A draft that reads the target's tokens, and proposes those that both have.

    inner: the draft with its own ids. spelled: its ids of each of the target's tokens. common: its
    id of each common token, by the target's id.
    """

    alone = True

    def __init__(self, inner: LanguageModel, spelled: Spelling, common: dict[int, int]):
        self.inner, self.spelled = inner, spelled
        self.vocab, self.dtype, self.device = len(spelled), inner.dtype, inner.device
        self.folder = getattr(inner, "folder", None)  # where it was loaded from, if it was
        self.positions, self.quantised = inner.positions, inner.quantised
        places = sorted(common)
        self.common = torch.tensor(places, device=self.device)
        self.own = torch.tensor([common[place] for place in places], device=self.device)

    @property
    def kept(self) -> Tensor:
        """The target's ids of the common tokens."""
        return self.common

    def cache(self, capacity: int = 256) -> Any:
        """An empty cache."""
        return TranslatedCache(self.inner.cache(capacity + capacity // 8))

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor,
        cache: Any,
        positions: Tensor | None = None,
        visible: Tensor | None = None,
    ) -> Tensor:
        """As `LanguageModel.forward`, for one text [1, n]. The state of a token is that of the last
        of its own tokens. A row's position is the number of own tokens that it sees before itself.
        """
        [text] = tokens.tolist()
        pieces = [self.spelled[token] for token in text]
        sizes = [len(one) for one in pieces]
        own = torch.tensor([[piece for one in pieces for piece in one]])
        self.check_length(cache.own.length + own.shape[1])
        wide = places = None
        if visible is not None:
            wide = _widened(visible.cpu(), cache.sizes, sizes)
            places = wide.sum(1) - 1
        states = self.inner.forward(own, cache.own, places, wide)
        cache.sizes = cache.sizes + sizes
        self.passes += 1
        ends = torch.tensor(sizes, device=states.device).cumsum(0) - 1
        return states[:, ends]

    @torch.inference_mode()
    def kept_logits(self, hidden: Tensor) -> Tensor:
        """float32 logits [..., K] of the common tokens."""
        return self.inner.logits(hidden).index_select(-1, self.own)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """float32 logits over the target's ids: -inf for all but the common tokens."""
        said = self.kept_logits(hidden)
        logits = said.new_full((*said.shape[:-1], self.vocab), -torch.inf)
        return logits.index_copy_(-1, self.common, said)


def _widened(visible: Tensor, before: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """A mask [n, past + n] of the target's tokens as one of the draft's own tokens: a token's own
    tokens see those before them. before, sizes: own tokens of each cached and each new token.
    """
    columns, rows = torch.tensor([*before, *sizes]), torch.tensor(sizes)
    wide = visible.repeat_interleave(columns, 1).repeat_interleave(rows, 0)
    itself = torch.arange(len(sizes)).repeat_interleave(rows)
    count = len(itself)
    later = torch.ones(count, count, dtype=torch.bool).triu(1)
    wide[:, -count:] &= ~((itself[:, None] == itself) & later)
    return wide


def translated(inner: LanguageModel, target: Any, draft: Any, vocab: int) -> TranslatedModel:
    """A draft with its own tokenizer `draft`, for a target with the tokenizer `target` and `vocab`
    ids. ValueError as of `spelling_of`, and without a common token.
    """
    spelled, common = spelling_of(target, draft, (vocab, inner.vocab))
    if inner.kept is not None:  # a trimmed draft
        said = {*inner.kept.tolist()}
        common = {place: own for place, own in common.items() if own in said}
    if not common:
        raise ValueError(
            "target and draft have no token in common, so the draft can propose nothing; use a "
            "draft of the target's family"
        )
    return TranslatedModel(inner, spelled, common)

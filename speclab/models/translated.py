"""A draft with another vocabulary than its target's. It proposes the tokens that both have (TLI,
arXiv:2502.05202); q is 0 for all others, which every lossless rule allows.

The draft reads the target's tokens one by one: a common token as its own id, any other token as its
own tokens for the same bytes. What it says is therefore a function of the text alone, in one pass
and with a cache, and a trace replays exactly.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from speclab.model import KVCache, LanguageModel
from speclab.models.model import Network
from speclab.models.vocabularies import Spelling


class TranslatedCache(KVCache):
    """The draft's cache, counted in the target's tokens: `own` has keys and values. sizes: how many
    of its own tokens each of the target's has.
    """

    def __init__(self, own: KVCache):
        super().__init__()
        self.own = own
        self.sizes: list[int] = []

    def crop(self, length: int) -> None:
        """Forget everything from `length` on."""
        super().crop(length)
        self.sizes = self.sizes[:length]
        self.own.crop(sum(self.sizes))

    def keep(self, start: int, index: list[int]) -> None:
        """Keep the first `start` tokens and, after them, the tokens at `index`; forget the rest."""
        ends = torch.tensor([0, *self.sizes]).cumsum(0).tolist()
        slots = [slot for one in index for slot in range(ends[one], ends[one + 1])]
        self.own.keep(ends[start], slots)
        self.sizes = self.sizes[:start] + [self.sizes[one] for one in index]
        self.length = len(self.sizes)


class TranslatedModel(LanguageModel):
    """A draft that reads the target's tokens, and proposes those that both have.

    inner: the draft with its own ids. spelled: its ids of each of the target's tokens. common: its
    id of each common token, by the target's id.
    """

    alone = True

    def __init__(self, inner: Network, spelled: Spelling, common: dict[int, int]):
        self.inner = inner
        self.spelled = spelled
        self.vocab = len(spelled)
        self.dtype = inner.dtype
        self.device = inner.device
        self.folder = inner.folder
        self.positions = inner.positions
        self.quantised = inner.quantised
        places = sorted(common)
        self.kept = torch.tensor(places, device=self.device)
        self.own = torch.tensor([common[place] for place in places], device=self.device)

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
        in_a_row = [piece for one in pieces for piece in one]
        own = torch.tensor([in_a_row])
        self.check_length(cache.own.length + own.shape[1])
        wide = places = None
        if visible is not None:
            wide = _widened(visible.cpu(), cache.sizes, sizes)
            places = wide.sum(1) - 1
        states = self.inner.forward(own, cache.own, places, wide)
        cache.sizes = cache.sizes + sizes
        cache.length = len(cache.sizes)
        self.passes += 1
        ends = torch.tensor(sizes, device=states.device).cumsum(0) - 1
        return states[:, ends]

    @torch.inference_mode()
    def kept_logits(self, hidden: Tensor) -> Tensor:
        """float32 logits [..., K] of the common tokens."""
        return self.inner.logits(hidden).index_select(-1, self.own)


def _widened(visible: Tensor, before: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """A mask [n, past + n] of the target's tokens as one of the draft's own tokens: a token's own
    tokens see those before them. before, sizes: own tokens of each cached and each new token.
    """
    columns = torch.tensor([*before, *sizes])
    rows = torch.tensor(sizes)
    wide = visible.repeat_interleave(columns, 1).repeat_interleave(rows, 0)
    itself = torch.arange(len(sizes)).repeat_interleave(rows)
    count = len(itself)
    later = torch.ones(count, count, dtype=torch.bool).triu(1)
    is_same_token = itself[:, None] == itself
    wide[:, -count:] &= ~(is_same_token & later)
    return wide

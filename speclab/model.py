"""The kit's interface to a model: logits of packed tokens over a cache that can be rolled back.

Recorder and decoder use only what is here, so a ten-word toy and a GPTQ Llama run through the same
code. `models.model.Network` implements it for networks in Hugging Face's layout.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad


class KVCache:
    """Keys and values of every layer, in buffers that grow by doubling; rolled back by `crop` or
    `keep`.

    Implements the part of Hugging Face's cache protocol that a decoder layer calls (`update`,
    `get_seq_length`).
    """

    is_compileable = False

    def __init__(self, capacity: int = 256):
        self.capacity = capacity
        self.length = 0
        self.layers: dict[int, list[Tensor]] = {}  # keys and values: (batch, heads, capacity, d)

    def update(
        self, key: Tensor, value: Tensor, layer_idx: int, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values (batch, heads, n, head_dim) after the committed ones; returns
        all of them.
        """
        end = self.length + key.shape[-2]
        if layer_idx not in self.layers or end > self.layers[layer_idx][0].shape[-2]:
            self._grow(layer_idx, key, end)
        keys, values = self.layers[layer_idx]
        keys[..., self.length : end, :] = key
        values[..., self.length : end, :] = value
        return keys[..., :end, :], values[..., :end, :]

    def _grow(self, layer_idx: int, like: Tensor, end: int) -> None:
        self.capacity = max(self.capacity, 1 << (end - 1).bit_length())
        nothing = like[..., :0, :]
        held = self.layers.get(layer_idx) or [nothing, nothing]
        room = self.capacity - held[0].shape[-2]  # keys and values have as many slots
        self.layers[layer_idx] = [pad(part, (0, 0, 0, room)) for part in held]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Committed tokens."""
        return self.length

    def crop(self, length: int) -> None:
        """Forget everything from `length` on."""
        if not 0 <= length <= self.length:
            raise ValueError(f"crop to {length}: the cache holds {self.length} tokens")
        self.length = length

    def take(self, features: Tensor) -> None:
        """Take the target's features of the next tokens of the text, if the model is a head."""

    def of_row(self, row: int) -> "KVCache":
        """A cache of one text of the batch, in the same memory."""
        one = KVCache(self.capacity)
        for layer, parts in self.layers.items():
            one.layers[layer] = [part[row : row + 1] for part in parts]
        return one

    @torch.inference_mode()
    def keep(self, start: int, index: list[int]) -> None:
        """Keep the first `start` tokens and, after them, the tokens at `index` (absolute slots);
        forget the rest.
        """
        end = start + len(index)
        if index != list(range(start, end)):
            source = torch.tensor(index)
            for buffers in self.layers.values():
                for buffer in buffers:
                    # moved once; later buffers are on the same device
                    source = source.to(buffer.device, non_blocking=True)
                    buffer[..., start:end, :] = buffer.index_select(-2, source)
        self.length = end


def wait_for(device: torch.device) -> None:
    """Wait until a device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def over_trunk(trunk: int, sees: Tensor) -> Tensor:
    """bool [n, trunk + m]: nodes that see all of a trunk, and `sees` [n, m] of their tree."""
    return pad(sees, (trunk, 0), value=True)


class LanguageModel:
    """A causal language model, cut to the ids that it shares with its partner: hidden states first,
    and logits only where they are needed.

    positions: the most tokens of a context. quantised: whether its weights are packed. passes:
    forward passes so far. taps: numbers of the layers after which a trained head reads the hidden
    states (0: the embedding); by_start: whether its distributions depend on where the block began,
    as a head's do; features: those of the last pass, [batch, n, taps x d]. alone: whether it reads
    one text at a time. kept: the ids that a trimmed head can output, ascending [K]; None: all.
    """

    vocab: int
    dtype: torch.dtype
    device: torch.device
    positions: int = 2**31
    quantised: bool = False
    passes: int = 0
    taps: tuple[int, ...] = ()
    features: Tensor | None = None
    by_start: bool = False
    alone: bool = False
    kept: Tensor | None = None

    @property
    def tokens_said(self) -> int:
        """How many tokens can have a probability above 0."""
        if self.kept is None:
            return self.vocab
        return len(self.kept)

    def forward(
        self,
        tokens: Tensor,
        cache: KVCache,
        positions: Tensor | None = None,
        visible: Tensor | None = None,
    ) -> Tensor:
        """Run tokens [batch, n] after the cache and commit them; returns hidden states [batch, n,
        d].

        positions: int64 [n] or [batch, n]; default: after the cache. visible: bool [n, past + n] or
        [batch, n, past + n]; default: causal. Every row must see at least one token, such as
        itself.
        """
        raise NotImplementedError

    def kept_logits(self, hidden: Tensor) -> Tensor:
        """float32 logits [..., K] of the tokens of `kept`; of all, if it is None."""
        raise NotImplementedError

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """float32 logits [..., shared vocabulary] of hidden states [..., d]: -inf for all tokens
        but those of `kept`.
        """
        said = self.kept_logits(hidden)
        if self.kept is None:
            return said
        logits = said.new_full((*said.shape[:-1], self.vocab), -torch.inf)
        return logits.index_copy_(-1, self.kept, said)

    def check_branches(self, branches: int) -> None:
        """ValueError if a node has more children than the draft's output vocabulary has tokens."""
        if branches > self.tokens_said:
            raise ValueError(
                f"branches={branches}, but the draft outputs only {self.tokens_said} tokens; lower "
                "branches"
            )

    def check_length(self, tokens: int) -> None:
        """ValueError for a context of more tokens than `positions`."""
        if tokens > self.positions:
            raise ValueError(
                f"a text of {tokens} tokens, with what is drafted after it, exceeds the "
                f"{self.positions} positions of a model; shorten the prompt or the text"
            )

    def check_ids(self, ids: Iterable[int]) -> None:
        """ValueError for a prompt with an id that the models do not share."""
        wrong = max(ids, default=0)
        if wrong >= self.vocab:
            raise ValueError(
                f"a prompt holds token id {wrong}, but both models share only the ids below "
                f"{self.vocab}; remove this token from the prompt, or use another draft"
            )

    def cache(self, capacity: int = 256) -> KVCache:
        """An empty cache."""
        return KVCache(capacity)


@dataclass(frozen=True)
class Pair:
    """A target and a draft with one vocabulary. `stop_ids` end a continuation; `facts` go into
    manifests.
    """

    target: LanguageModel
    draft: LanguageModel
    tokenizer: Any
    stop_ids: frozenset[int]
    facts: dict[str, Any]

    @property
    def vocab(self) -> int:
        """Ids both models share."""
        return self.target.vocab

    @property
    def is_exact(self) -> bool:
        """True for plain weights on the CPU in float32, where passes of different shapes differ in
        the last digits only. Elsewhere rounding can decide a near tie the other way.
        """
        return all(
            model.dtype == torch.float32 and not model.quantised and model.device.type == "cpu"
            for model in (self.target, self.draft)
        )

"""A trained head as draft: an EAGLE-3 network (arXiv:2503.01840) in the format of speculators.

A head reads the target's hidden states of some layers (`features`). At a token of the text it runs
on the token's embedding and on the features of the token before. At a drafted token it runs on the
token's embedding and on its own state at the parent. So its probabilities depend on where the block
began, and on the path of the block.

The network, its configuration and its files are those of the library speculators, an optional
extra. `embed_tokens` and `lm_head` are the target's where the head's file has none.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

LONGEST = 16  # drafted tokens that are recorded from each position


def unrolled(network: Any, features: Tensor, tokens: Tensor, steps: int) -> Iterator[Tensor]:
    """Final states [batch, n, d] of a head for drafted tokens 1, 2, ..., `steps` of the block that
    begins at each position, if the block's tokens are the text's own (speculators' training
    forward, without its loss).

    features: [batch, n, layers x d] of tokens 0 .. n - 1 of a text. tokens: int64 [batch, n],
    tokens 1 .. n. Row t of step k gives the distribution of token t + 1 + k, counted from k = 1.
    Each row sees the text up to its own token, and its own earlier steps.
    """
    count = tokens.shape[1]
    sees = torch.ones(count, count, dtype=torch.bool, device=tokens.device).tril()
    own = torch.eye(count, dtype=torch.bool, device=tokens.device)
    places = 1 + torch.arange(count, device=tokens.device)[None]
    cache = _Appended()
    states = network.fc(normed_features(network, features))
    for step in range(steps):
        read = network.embed_tokens(tokens)
        states = layers(network, read, states, cache, places + step, sees[None, None])
        yield normed(network, states)
        if network.config.norm_output:
            states = normed(network, states)
        tokens = torch.nn.functional.pad(tokens[:, 1:], (0, 1))
        sees = torch.cat([sees, own], 1)


class _Appended:
    """Keys and values of every layer, with gradients."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, key: Tensor, value: Tensor, layer: int, *_args: Any, **_options: Any) -> tuple:
        """All keys and values so far."""
        if layer in self.kept:
            keys, values = self.kept[layer]
            key, value = torch.cat([keys, key], -2), torch.cat([values, value], -2)
        self.kept[layer] = key, value
        return key, value


def normed_features(network: Any, features: Tensor) -> Tensor:
    """Features as the network's `fc` reads them: its norm of all, of each layer, or none."""
    if network.input_norm is not None:
        features = network.input_norm(features)
    if network.fc_norm is not None:
        parts = features.chunk(len(network.fc_norm), -1)
        pairs = zip(network.fc_norm, parts, strict=True)
        features = torch.cat([norm(part) for norm, part in pairs], -1)
    return features


def layers(
    network: Any, read: Tensor, states: Tensor, cache: Any, places: Tensor, mask: Tensor
) -> Tensor:
    """States [batch, n, d] after the layers, from embeddings and states before."""
    both = torch.cat([read, states], -1)
    angles = network.rotary_emb(both, places)
    for layer in network.layers:
        both = layer(
            both,
            attention_mask=mask,
            position_ids=places,
            past_key_values=cache,
            position_embeddings=angles,
        )
    return both


def normed(network: Any, states: Tensor) -> Tensor:
    """States as the output layer reads them."""
    return network.norm(states)

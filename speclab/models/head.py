"""A trained head as draft: an EAGLE-3 network (arXiv:2503.01840) in the format of speculators.

A head reads the target's hidden states after some layers (`features`). At a token of the text it
runs on the token's embedding and on the features of the token before. At a drafted token it runs on
the token's embedding and on its own state at the parent. So its probabilities depend on where the
block began.

The network, its configuration and its files are those of the library speculators, an optional
extra. `embed_tokens` and `lm_head` are the target's where the head's file has none.
"""

import importlib.util
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from speclab.model import KVCache
from speclab.models.folder import ModelFolder
from speclab.models.model import Network, Projection
from speclab.models.trimmed import TrimmedHead
from speclab.plain import brief

# weights that a head's file may lack: the target's, and those that only its training uses
OF_TARGET = ("embed_tokens.weight", "lm_head.weight")
OF_TRAINING = ("verifier_norm.weight", "verifier_lm_head.weight")


# ---- the network ---------------------------------------------------------------------------------


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


# ---- a head as the draft of a pair ---------------------------------------------------------------


class HeadCache(KVCache):
    """Keys and values of a head, the features of the text (as its `fc` gives them), and its own
    states at every slot. Slot i is token i of the text, or a drafted token after the text.
    """

    def __init__(self, network: Any, capacity: int):
        super().__init__(capacity)
        self._network = network
        self.features = network.fc.weight.new_zeros(0, network.fc.out_features)
        self.states = self.features

    @torch.inference_mode()
    def take(self, features: Tensor) -> None:
        """Add the target's features [n, layers x d] of the next n tokens of the text."""
        weight = self._network.fc.weight
        given = features.to(weight.device, weight.dtype, non_blocking=True)
        read = self._network.fc(normed_features(self._network, given))
        self.features = torch.cat([self.features, read])

    def crop(self, length: int) -> None:
        """Forget everything from `length` on."""
        super().crop(length)
        self.features = self.features[:length]

    def keep(self, start: int, index: list[int]) -> None:
        """Keep the first `start` tokens. Drafted tokens are forgotten even if they are accepted:
        they run again with the target's features.
        """
        super().crop(start)


@dataclass(eq=False)
class Head(Network):
    """A head as the kit's draft. It runs only after the target has given it features
    (`HeadCache.take`) of all tokens before.
    """

    by_start = alone = True

    @property
    def config(self) -> Any:
        """The settings of its layers."""
        return self.network.config.transformer_layer_config

    def cache(self, capacity: int = 256) -> HeadCache:
        """An empty cache."""
        return HeadCache(self.network, capacity)

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor,
        cache: KVCache,
        positions: Tensor | None = None,
        visible: Tensor | None = None,
    ) -> Tensor:
        """As `LanguageModel.forward`, for one text [1, n]. A token whose predecessor's features are
        known reads these; any other token reads the head's own state at its parent, the last token
        that it sees besides itself.
        """
        assert isinstance(cache, HeadCache)
        past = cache.length
        count = tokens.shape[1]
        slots = torch.arange(past, past + count)
        if positions is None:
            positions = slots
        if visible is None:
            visible = torch.ones(count, past + count, dtype=torch.bool).tril(past)
        visible = visible.clone()
        visible[:, 0] &= slots == 0  # there is nothing before the first token for a head to read
        before = self._before(cache, slots, visible)
        embedded = self.network.embed_tokens(tokens.to(self.device, non_blocking=True))
        places = positions.to(self.device, non_blocking=True).expand(tokens.shape)
        mask = self._mask(visible, count, past)
        states = layers(self.network, embedded, before[None], cache, places, mask)
        read = self.network.norm(states)
        own = read if self.network.config.norm_output else states
        cache.states = torch.cat([cache.states[:past], own[0]])
        cache.length = past + count
        self.passes += 1
        return read

    def _before(self, cache: HeadCache, slots: Tensor, visible: Tensor) -> Tensor:
        """What each token reads besides its embedding, [n, d]."""
        past = int(slots[0])
        # the last token but one that each token sees
        above = visible.sum(1, keepdim=True) - 1
        parents = (visible.cumsum(1) == above).int().argmax(1)
        of_text = slots <= len(cache.features)
        last = int(of_text.sum())  # tokens of the text come first
        states = cache.states[parents[last:].to(cache.states.device, non_blocking=True)]
        if not last:
            return states
        end = past - 1 + last
        first = cache.features[max(0, past - 1) : end]
        if past == 0:  # there is nothing before the first token
            first = torch.cat([first.new_zeros(1, first.shape[1]), first])
        return torch.cat([first, states])


def unreadable(folder: ModelFolder) -> str:
    """Why the head in a folder cannot be loaded here; '' if it can."""
    if importlib.util.find_spec("speculators") is None:
        return (
            f"{folder.path} is a trained head, which the library speculators reads, and it is not "
            "installed; run `python -m speclab hosted install --heads`"
        )
    return ""


def load_head(folder: ModelFolder, target: Network, dtype: torch.dtype) -> Head:
    """The head in a folder as a draft for a loaded target, which then hands out its features.

    ValueError for a head that is damaged, of another kind, or made for a target of another shape.
    """
    if said := unreadable(folder):
        raise ValueError(said)
    # the library's network, with the weights of its file and of the target
    with folder.used():
        from speculators.config import SpeculatorModelConfig
        from speculators.models.eagle3 import Eagle3DraftModel

        config = SpeculatorModelConfig.from_pretrained(str(folder.path))
        config.transformer_layer_config._attn_implementation = "sdpa"
        # the kit gives it the target's weights itself, and looks for no other model
        config.speculators_config.verifier.name_or_path = None
        network: Any = Eagle3DraftModel(config).float()
    _check_shape(folder, network, target)
    borrowed = _load_weights(folder, network, target)
    del network.verifier_lm_head, network.verifier_norm
    network = network.to(target.device, dtype).eval().requires_grad_(False)
    for module in network.modules():
        if type(module) is torch.nn.Linear and module is not network.lm_head:
            setattr(module, "forward", Projection(module.weight, module.bias))  # noqa: B010
    # its output layer, with a column for each token that it can output
    said_by = network.lm_head
    vocab = network.embed_tokens.num_embeddings
    output: Any = Projection(said_by.weight)
    if network.use_draft_vocab:
        trimmed = TrimmedHead(said_by.weight, network.t2d.nonzero()[:, 0], vocab)
        trimmed.product, output = output, trimmed
    head = Head(
        body=network,
        head=output,
        vocab=vocab,
        dtype=dtype,
        device=target.device,
        network=network,
        folder=folder,
        borrowed=borrowed,
    )
    target.taps = tuple(network.config.eagle_aux_hidden_state_layer_ids)
    return head


def _check_shape(folder: ModelFolder, network: Any, target: Network) -> None:
    """ValueError unless the head fits the target: its width, vocabulary and layers."""
    own = network.config
    config = target.config
    count = config.num_hidden_layers
    named = folder.config.get("eagle_aux_hidden_state_layer_ids")
    if named is None:  # the library's default
        named = own.eagle_aux_hidden_state_layer_ids = [2, count // 2, count - 3]
    are_layers = named and all(type(at) is int and 0 <= at < count for at in named)
    layer = own.transformer_layer_config
    its, targets = ((one.hidden_size, one.vocab_size) for one in (layer, config))
    if its != targets or not are_layers:
        raise ValueError(
            f"{folder.path} was made for a target of width {its[0]} and vocabulary {its[1]}, and "
            f"reads it after the layers {brief(named)}, but this target has width {targets[0]}, "
            f"vocabulary {targets[1]} and {count} layers, of which a head reads those before the "
            "last; use a head that was trained for this target"
        )


def _load_weights(folder: ModelFolder, network: Any, target: Network) -> int:
    """Fill the network from its files, and with the target's weights where they have none; returns
    the number of the latter.
    """
    weights: dict[str, Tensor] = {}
    for file in folder.files:
        weights |= load_file(file)
    weights = {name: value for name, value in weights.items() if name not in OF_TRAINING}
    optional = {*OF_TARGET, *OF_TRAINING} - weights.keys()
    with folder.used():
        missing, unexpected = network.load_state_dict(weights, strict=False)
    folder.refuse([*unexpected, *({*missing} - optional)])
    ends = target.network.get_input_embeddings(), target.network.get_output_embeddings()
    rows = {name: end.weight for name, end in zip(OF_TARGET, ends, strict=True)}
    borrowed = [name for name in OF_TARGET if name in optional]
    with torch.no_grad():
        for name in borrowed:
            values = rows[name].to("cpu", torch.float32)
            if name == OF_TARGET[1] and network.use_draft_vocab:
                values = values[network.t2d]
            network.get_parameter(name).copy_(values)
    return sum(network.get_parameter(name).numel() for name in borrowed)

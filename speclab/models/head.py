"""A trained head as draft: an EAGLE-3 network (arXiv:2503.01840) in the format of speculators.

A head reads the target's hidden states after some layers (`features`). At a token of the text it
runs on the token's embedding and on the features of the token before. At a drafted token it runs on
the token's embedding and on its own state at the parent. So its probabilities depend on where the
block began.

The network, its configuration and its files are those of the library speculators, an optional
extra. `embed_tokens` and `lm_head` are the target's where the head's file has none.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from speclab.models.folder import MEND, ModelFolder, misfits
from speclab.models.model import KVCache, LanguageModel, Projection
from speclab.models.trimmed import FrozenHead, TrimmedHead
from speclab.plain import brief
from speclab.study.profiles import ModelSpec

LIBRARY = "speculators"
EAGLE3 = "eagle3"
# weights that a head's file may lack: the target's, and those that only its training uses
OF_TARGET = ("embed_tokens.weight", "lm_head.weight")
OF_TRAINING = ("verifier_norm.weight", "verifier_lm_head.weight")
ROUNDING = 1e-3  # as pairs.ROUNDING, in float32
LARGEST = 1e9  # of weights: trained ones are below 1e4; the squares of such states exceed float32


# ---- the network ---------------------------------------------------------------------------------


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
        words = network.embed_tokens(tokens)
        states = layers(network, words, states, cache, places + step, sees[None, None])
        read = network.norm(states)
        yield read
        if network.config.norm_output:
            states = read
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


# ---- a head as the draft of a pair ---------------------------------------------------------------


class HeadCache(KVCache):
    """Keys and values of a head, the features of the text (as its `fc` gives them), and its own
    states at every slot. Slot i is token i of the text, or a drafted token after the text.
    """

    def __init__(self, network: Any, capacity: int = 256):
        super().__init__(capacity)
        self._network = network
        width = network.fc.out_features
        self.features = network.fc.weight.new_zeros(0, width)
        self.states = network.fc.weight.new_zeros(0, width)

    @torch.inference_mode()
    def take(self, features: Tensor) -> None:
        """Add the target's features [n, layers x d] of the next n tokens of the text."""
        weight = self._network.fc.weight
        given = features.to(weight.device, weight.dtype, non_blocking=True)
        read = self._network.fc(normed_features(self._network, given))
        self.features = torch.cat([self.features, read])

    def add_states(self, states: Tensor) -> None:
        """Write the head's states [n, d] of the tokens after the committed ones."""
        end = self.length + len(states)
        if end > len(self.states):
            kept = self.states[: self.length]
            self.states = states.new_empty(max(self.capacity, end), states.shape[1])
            self.states[: self.length] = kept
        self.states[self.length : end] = states

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
class Head(LanguageModel):
    """A head as the kit's draft. It runs only after the target has given it features
    (`HeadCache.take`) of all tokens before.
    """

    by_start = True

    @property
    def layers(self) -> tuple[int, ...]:
        """After which layers of the target its features are taken (0: the embedding)."""
        return tuple(self.network.config.eagle_aux_hidden_state_layer_ids)

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
        past, count = cache.length, tokens.shape[1]
        slots = torch.arange(past, past + count)
        if positions is None:
            positions = slots
        if visible is None:
            visible = torch.ones(count, past + count, dtype=torch.bool).tril(past)
        visible = visible.clone()
        visible[:, 0] &= slots == 0  # there is nothing before the first token for a head to read
        before = self._before(cache, slots, visible)
        states = layers(
            self.network,
            self.network.embed_tokens(tokens.to(self.device, non_blocking=True)),
            before[None],
            cache,
            positions.to(self.device, non_blocking=True).expand(tokens.shape),
            self._mask(visible, count, past),
        )
        read = self.network.norm(states)
        own = read if self.network.config.norm_output else states
        cache.add_states(own[0])
        cache.length = past + count
        self.passes += 1
        return read

    def _before(self, cache: HeadCache, slots: Tensor, visible: Tensor) -> Tensor:
        """What each token reads besides its embedding, [n, d]."""
        known = len(cache.features)
        of_text = slots <= known
        past = int(slots[0])
        parents = (visible.cumsum(1) == visible.sum(1, keepdim=True) - 1).int().argmax(1)
        if bool((parents[~of_text] >= past).any()):
            raise ValueError(
                f"a head was given the features of {known} tokens and ran on {int(slots[-1])}; "
                "give it the features of the whole text first"
            )
        last = int(of_text.sum())  # tokens of the text come first
        states = cache.states[parents[last:].to(cache.states.device, non_blocking=True)]
        if not last:
            return states
        first = cache.features[max(0, past - 1) : past - 1 + last]
        if past == 0:  # there is nothing before the first token
            first = torch.cat([first.new_zeros(1, first.shape[1]), first])
        return torch.cat([first, states])


def unreadable(folder: ModelFolder) -> str:
    """Why the head in a folder cannot be loaded here; '' if it can."""
    if importlib.util.find_spec(LIBRARY) is None:
        return (
            f"{folder.path} is a trained head, which the library {LIBRARY} reads, and it is not "
            "installed; run `python -m speclab hosted install --heads`"
        )
    kind = folder.config.get("speculators_model_type")
    if kind != EAGLE3:
        return f"{folder.path} is a head of the kind {kind!r}; the kit reads {EAGLE3!r} heads"
    return ""


def load_head(spec: ModelSpec, target: LanguageModel, dtype: torch.dtype) -> Head:
    """The head of `spec` as a draft for a loaded target, which from now on hands out its features.

    ValueError for a head that is damaged, of another kind, or made for a target of another shape.
    """
    folder = ModelFolder.fetched(spec)
    folder.check()
    if said := unreadable(folder):
        raise ValueError(said)
    with folder.used():
        network = _network(folder)
    _check_shape(folder, network, target)
    borrowed = _load_weights(folder, network, target)
    del network.verifier_lm_head, network.verifier_norm
    network = network.to(target.device, dtype).eval().requires_grad_(False)
    _check_largest(folder, network)
    for module in network.modules():
        if type(module) is torch.nn.Linear and module is not network.lm_head:
            setattr(module, "forward", Projection(module.weight, module.bias))  # noqa: B010
    said_by, vocab = network.lm_head, network.embed_tokens.num_embeddings
    if network.use_draft_vocab:
        kept = network.d2t + torch.arange(len(network.d2t), device=network.d2t.device)
        output: Any = FrozenHead(TrimmedHead(said_by.weight, kept, vocab))
    else:
        output = Projection(said_by.weight)
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
    target.taps = head.layers
    _probe(head)
    head.checked = True
    return head


def _network(folder: ModelFolder) -> Any:
    """The library's network, without weights."""
    from speculators.config import SpeculatorModelConfig
    from speculators.models.eagle3 import Eagle3DraftModel

    config = SpeculatorModelConfig.from_pretrained(str(folder.path))
    config.transformer_layer_config._attn_implementation = "sdpa"
    # the kit gives it the target's weights itself, and looks for no other model
    config.speculators_config.verifier.name_or_path = None
    return Eagle3DraftModel(config).float()


def _check_shape(folder: ModelFolder, network: Any, target: LanguageModel) -> None:
    """ValueError unless the head fits the target: its width, vocabulary and layers."""
    config, own = target.config, network.config
    layer = own.transformer_layer_config
    wanted = {
        "width": (layer.hidden_size, config.hidden_size),
        "vocabulary": (layer.vocab_size, config.vocab_size),
    }
    for name, (its, targets) in wanted.items():
        if its != targets:
            raise ValueError(
                f"{folder.path} was made for a target of {name} {its}, but this target's is "
                f"{targets}; use a head that was trained for this target"
            )
    count = config.num_hidden_layers
    named = folder.config.get("eagle_aux_hidden_state_layer_ids")
    if named is None:  # the library's default
        named = [2, count // 2, count - 3]
        own.eagle_aux_hidden_state_layer_ids = named
    fits = [type(layer) is int and 0 <= layer < count for layer in named]  # the library takes "1"
    if not (fits and all(fits)):
        raise ValueError(
            f"{folder.path} reads the target after the layers {brief(named)}, but this target has "
            f"the layers 1 to {count}, and a head reads before the last; use a head that was "
            "trained for this target"
        )


def _load_weights(folder: ModelFolder, network: Any, target: LanguageModel) -> int:
    """Fill the network from its files, and with the target's weights where they have none; returns
    the number of the latter.
    """
    weights: dict[str, Tensor] = {}
    for file in folder.files:
        weights |= load_file(file)
    weights = {name: value for name, value in weights.items() if name not in OF_TRAINING}
    optional = {*OF_TARGET, *OF_TRAINING} - weights.keys()
    own = network.state_dict().items()
    needed = {name: value for name, value in own if name not in optional}
    folder.refuse(misfits(needed, weights))
    network.load_state_dict(weights, strict=False)
    if network.use_draft_vocab:
        _check_maps(folder, network)
    rows = dict(zip(OF_TARGET, _ends(target), strict=True))
    borrowed = [name for name in OF_TARGET if name in optional]
    with torch.no_grad():
        for name in borrowed:
            values = rows[name].to("cpu", torch.float32)
            if name == OF_TARGET[1] and network.use_draft_vocab:
                values = values[network.t2d]
            network.get_parameter(name).copy_(values)
    return sum(network.get_parameter(name).numel() for name in borrowed)


def _ends(target: LanguageModel) -> tuple[Tensor, Tensor]:
    """The weights of a target's embedding and output layer."""
    network = target.network
    return network.get_input_embeddings().weight, network.get_output_embeddings().weight


def _check_maps(folder: ModelFolder, network: Any) -> None:
    """ValueError unless `d2t` and `t2d` name the same tokens."""
    kept = network.d2t + torch.arange(len(network.d2t))
    said = torch.nonzero(network.t2d)[:, 0]
    if not torch.equal(kept, said):
        raise ValueError(f"{folder.path}: d2t and t2d name different tokens of the target; {MEND}")


def _check_largest(folder: ModelFolder, network: Any) -> None:
    """ValueError for weights that no training gives: some texts would have no probabilities."""
    largest = float(torch.stack([value.abs().max() for value in network.parameters()]).max())
    if not largest < LARGEST:  # also true for NaN
        raise ValueError(
            f"{folder.path}: its weights are damaged (the largest is {largest:.3g}); {MEND}"
        )


@torch.inference_mode()
def _probe(head: Head) -> None:
    """ValueError unless a packed tree scores as its paths do."""
    seventh = head.vocab / 7
    left, right, *text = (int(number * seventh) for number in (3, 5, 1, 2, 4))
    features = torch.linspace(-1, 1, head.network.fc.in_features).repeat(len(text) - 1, 1)

    def scored(*levels: list[int], visible: Tensor | None = None) -> Tensor:
        """Logits of the last level after the text."""
        cache = head.cache()
        cache.take(features)
        hidden = head.forward(torch.tensor([text]), cache)
        for level in levels:
            places = torch.full((len(level),), len(text))
            hidden = head.forward(torch.tensor([level]), cache, places, visible)
        return head.logits(hidden[0])

    sees = torch.ones(2, len(text) + 2, dtype=torch.bool)
    sees[:, len(text) :] = torch.eye(2, dtype=torch.bool)
    packed = scored([left, right], visible=sees)
    alone = torch.cat([scored([left]), scored([right])])
    said = ~alone.isneginf()
    gap = float((packed - alone)[said].abs().max())
    scale = max(1.0, float(alone[said].abs().max()))
    allowed = ROUNDING if head.dtype == torch.float32 else 0.1
    if not gap <= allowed * scale:
        raise ValueError(
            f"{head.folder.path}: a packed tree and its paths differ by {gap:.3g} at logit scale "
            f"{scale:.3g}; its weights are damaged, or the library does not fit ({LIBRARY})"
        )

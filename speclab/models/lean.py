"""The body of a plain Llama or Qwen2 network with fused projections. It gives the same numbers as
the Hugging Face body with a third of the calls.

With small models and few tokens, most of a pass is Python overhead, so this body determines the
decoder's speed. It shares its weights with the original network, whose projections become views of
the fused weights. Unknown architectures keep their own body. The loader compares both bodies on a
tree.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding, rms_norm, scaled_dot_product_attention, silu

from speclab.model import KVCache
from speclab.models.model import Projection

ROPES = ("default", "linear", "llama3")  # their angles depend only on the position
BIASED = ("q_proj", "k_proj", "v_proj")  # a bias elsewhere is not supported
ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM")


class Layer(NamedTuple):
    """Weights of one decoder layer. `qkv` and `gate_up` are fused along their outputs."""

    norm: Tensor
    qkv: Projection
    out: Projection
    mlp_norm: Tensor
    gate_up: Projection
    down: Projection


def is_supported(network: Any) -> bool:
    """True for an unquantised network in ARCHITECTURES whose layers have the structure that
    LeanBody computes.
    """
    config = network.config
    if type(network).__name__ not in ARCHITECTURES or config.hidden_act != "silu":
        return False
    rope = getattr(network.model.rotary_emb, "rope_type", "")
    if getattr(config, "use_sliding_window", False) or rope not in ROPES:
        return False
    linear = {name: m for name, m in network.named_modules() if hasattr(m, "in_features")}
    for name, m in linear.items():
        has_known_bias = m.bias is None or name.endswith(BIASED)
        if type(m) is not torch.nn.Linear or not has_known_bias:
            return False
    return True


def _fused(*modules: torch.nn.Linear) -> Projection:
    """Several linear modules as one projection. The modules keep views of its weights."""
    weight = torch.cat([m.weight.data for m in modules])
    for module, part in zip(modules, weight.split([m.out_features for m in modules]), strict=True):
        module.weight.data = part
    if modules[0].bias is None:
        return Projection(weight)
    return Projection(weight, torch.cat([m.bias.data for m in modules]))


def _layer(layer: Any) -> Layer:
    attention = layer.self_attn
    mlp = layer.mlp
    return Layer(
        norm=layer.input_layernorm.weight,
        qkv=_fused(attention.q_proj, attention.k_proj, attention.v_proj),
        out=Projection(attention.o_proj.weight),
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=_fused(mlp.gate_proj, mlp.up_proj),
        down=Projection(mlp.down_proj.weight),
    )


class LeanBody:
    """Called like the body of a Hugging Face network. `attention_mask` may be None for a single
    token that attends to everything.
    """

    lean = True

    def __init__(self, network: Any):
        inner = network.model
        config = network.config
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps = config.rms_norm_eps
        self.embed = inner.embed_tokens.weight
        self.norm = inner.norm.weight
        self.layers = [_layer(layer) for layer in inner.layers]
        places = torch.arange(config.max_position_embeddings, device=self.embed.device)[None]
        angles = inner.rotary_emb(self.embed[:1].unsqueeze(0), position_ids=places)
        half = self.head_dim // 2  # the second half repeats the first
        # [positions, 1, head_dim / 2] each
        self.cos, self.sin = (x[0, :, None, :half].contiguous() for x in angles)

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor,
        past_key_values: KVCache,
        use_cache: bool = True,
        output_hidden_states: bool = False,
    ) -> SimpleNamespace:
        x = embedding(input_ids, self.embed)
        turn = (self.cos[position_ids], self.sin[position_ids])  # [batch, n, 1, head_dim / 2] each
        states = [x]
        for index, layer in enumerate(self.layers):
            normed = self._norm(x, layer.norm)
            x = x + self._attend(normed, layer, index, turn, attention_mask, past_key_values)
            gate_up = layer.gate_up(self._norm(x, layer.mlp_norm))
            gate, up = gate_up.chunk(2, -1)
            x = x + layer.down(silu(gate) * up)
            if output_hidden_states:
                states.append(x)
        last = self._norm(x, self.norm)
        return SimpleNamespace(last_hidden_state=last, hidden_states=(*states[:-1], last))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        if x.device.type != "cpu" or x.dtype != torch.float32:
            return rms_norm(x, weight.shape, weight, self.eps)
        # the same result in half the time of torch's rms_norm on a CPU
        scale = x.square().mean(-1, keepdim=True).add_(self.eps).rsqrt_()
        return x * scale * weight

    def _attend(
        self,
        x: Tensor,
        layer: Layer,
        index: int,
        turn: tuple[Tensor, Tensor],
        mask: Tensor | None,
        cache: KVCache,
    ) -> Tensor:
        """Attention of one layer, [batch, n, width].

        Heads that share keys and values are packed: their queries follow one another along the
        length. (With `enable_gqa` and a mask, PyTorch has no fast kernel on a GPU.)
        """
        batch, n, _ = x.shape
        cos, sin = turn
        heads = layer.qkv(x).view(batch, n, -1, self.head_dim)
        turned = self.heads + self.kv_heads  # queries and keys are turned together
        first, second = heads[:, :, :turned].chunk(2, -1)
        turned_first = first * cos - second * sin
        turned_second = second * cos + first * sin
        both = torch.cat([turned_first, turned_second], -1)
        by_head = both.transpose(1, 2)
        query, key = by_head.split([self.heads, self.kv_heads], 1)
        value = heads[:, :, turned:].transpose(1, 2)
        keys, values = cache.update(key, value, index)
        group = self.heads // self.kv_heads
        packed = query.reshape(batch, self.kv_heads, group * n, self.head_dim)
        if mask is not None and group > 1:
            mask = mask.repeat(1, 1, group, 1)
        out = scaled_dot_product_attention(packed, keys, values, attn_mask=mask)
        out = out.reshape(batch, self.heads, n, self.head_dim)
        return layer.out(out.transpose(1, 2).reshape(batch, n, -1))

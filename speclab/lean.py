"""The body of a plain Llama or Qwen2 with fused projections and nothing around it: the same numbers
in a third of the calls.

On small models and few tokens a pass is mostly Python; this is where the decoder's speed comes
from. Weights are shared with the network it was made from (whose projections become views of the
fused ones). Whatever it does not know is left to the network's own body; the loader's probe
compares both on a tree.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu

from speclab.model import KVCache

ROPES = ("default", "linear", "llama3")  # those whose angles depend on the position alone
ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM")


class Layer(NamedTuple):
    """Weights of one decoder layer; `qkv` and `gate_up` are fused along their outputs."""

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


def _fused(modules: list[torch.nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Weights (and biases) of linear modules as one; the modules keep views of it."""
    weight = torch.cat([m.weight.data for m in modules])
    for module, part in zip(modules, weight.split([m.out_features for m in modules]), strict=True):
        module.weight.data = part
    bias = torch.cat([m.bias.data for m in modules]) if modules[0].bias is not None else None
    return weight, bias


def knows(network: Any) -> bool:
    """True for an unquantised network of ARCHITECTURES whose layers are as the body below computes
    them.
    """
    layer, config = network.model.layers[0] if hasattr(network, "model") else None, network.config
    linears = [m for m in network.modules() if hasattr(m, "in_features")]
    return (
        type(network).__name__ in ARCHITECTURES and all(type(m) is torch.nn.Linear for m in linears) and config.hidden_act == "silu"
        and all(m.bias is None for m in (layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj))
        and not getattr(config, "use_sliding_window", False) and getattr(network.model.rotary_emb, "rope_type", "") in ROPES
    )  # fmt: skip


class LeanBody:
    """Callable like a Hugging Face body; `attention_mask` may be None for one token that sees
    everything.
    """

    lean = True

    def __init__(self, network: Any):
        inner, config = network.model, network.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps, self.embed, self.norm = (
            config.rms_norm_eps,
            inner.embed_tokens.weight,
            inner.norm.weight,
        )
        self.shape = self.norm.shape
        self.layers = [self._layer(layer) for layer in inner.layers]
        places = torch.arange(config.max_position_embeddings, device=self.embed.device)[None]
        cos, sin = inner.rotary_emb(self.embed[:1].unsqueeze(0), position_ids=places)
        self.cos, self.sin = (
            x[0, :, None, : self.head_dim // 2].contiguous() for x in (cos, sin)
        )  # [positions, 1, head_dim / 2]

    @staticmethod
    def _layer(layer: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        qkv, bias = _fused([attention.q_proj, attention.k_proj, attention.v_proj])
        gate_up, _ = _fused([mlp.gate_proj, mlp.up_proj])
        return Layer(
            layer.input_layernorm.weight,
            qkv,
            bias,
            attention.o_proj.weight,
            layer.post_attention_layernorm.weight,
            gate_up,
            mlp.down_proj.weight,
        )

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor,
        past_key_values: KVCache,
        use_cache: bool = True,
    ) -> Any:
        x = embedding(input_ids, self.embed)
        cos, sin = self.cos[position_ids], self.sin[position_ids]  # [batch, n, 1, head_dim / 2]
        for index, layer in enumerate(self.layers):
            x = x + self._attend(
                rms_norm(x, self.shape, layer.norm, self.eps),
                layer,
                index,
                cos,
                sin,
                attention_mask,
                past_key_values,
            )
            gate, up = linear(
                rms_norm(x, self.shape, layer.mlp_norm, self.eps), layer.gate_up
            ).chunk(2, -1)
            x = x + linear(silu(gate) * up, layer.down)
        return SimpleNamespace(last_hidden_state=rms_norm(x, self.shape, self.norm, self.eps))

    def _attend(
        self,
        x: Tensor,
        layer: Layer,
        index: int,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
        cache: KVCache,
    ) -> Tensor:
        batch, n, _ = x.shape
        heads = linear(x, layer.qkv, layer.qkv_bias).view(
            batch, n, self.heads + 2 * self.kv_heads, self.head_dim
        )
        first, second = heads[:, :, : self.heads + self.kv_heads].chunk(
            2, -1
        )  # queries and keys are turned together
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1).transpose(
            1, 2
        )
        query, key = turned[:, : self.heads], turned[:, self.heads :]
        keys, values = cache.update(
            key, heads[:, :, self.heads + self.kv_heads :].transpose(1, 2), index
        )
        out = scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, enable_gqa=self.heads != self.kv_heads
        )
        return linear(out.transpose(1, 2).reshape(batch, n, -1), layer.out)

"""Whether the kit can use a model, from its config.json alone. `load_model` asks before it reads or
downloads weights; `doctor` and `plan` print the answer.

Where an entry of config.json is the reason, the error names it. Whatever else is wrong shows in one
pass through the kit's cache on torch's meta device, where a network has shapes and no memory.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from speclab.models.folder import OF_HEAD
from speclab.models.head import EAGLE3
from speclab.models.hub import MEND
from speclab.models.model import KVCache, limits
from speclab.plain import Facts, one_line

# entries that change logits after the output layer, with their values that change nothing
SCALES = {
    "final_logit_softcapping": (None,),
    "logits_scaling": (None, 1),
    "logit_scale": (None, 1),
    "lm_head_multiplier": (None, 1),
    "output_multiplier": (None, 1),
}
OF_SLOTS = "keep_window_size"  # a window that counts slots of the cache, siblings included
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
GPTQ = "gptq"
LAYERS = ("layer_types", "layers_block_type")  # entries that name the kind of each layer
LIST = "notebooks/README.md lists those that work"


def check_config(config: Mapping[str, Any], dtype: str, context: int = 0, packed: int = 0) -> str:
    """The architecture of a config.json and its positions, in words. ValueError if the kit cannot
    use it in this number format, or as of `check_positions`.
    """
    head = config.get("speculators_model_type")
    if head not in (None, EAGLE3):
        raise ValueError(
            f"it is a head of the kind {head!r}; the kit reads {EAGLE3!r} heads, use one of these"
        )
    if head:
        name, settings = f"{head} head", read_config(config[OF_HEAD])
    else:
        name, settings = _architecture(json.dumps(config), dtype)
    check_positions(settings, context, packed)
    entry, most = min(limits(settings).items(), key=lambda limit: limit[1], default=("", 0))
    seen = f", {most:,} positions ({entry})" if entry else ""
    return f"{name} in {dtype}{seen}"


def check_positions(config: Any, context: int, packed: int) -> None:
    """ValueError if a model's settings allow fewer positions than texts of `context` tokens have,
    or fewer slots of the cache than these and passes that add `packed` tokens take.
    """
    for entry, most in limits(config).items():
        needed, sum_of = context, "max_prompt_tokens + max_new_tokens + depth"
        if entry == OF_SLOTS:
            needed, sum_of = context + packed, f"{sum_of} + max_packed_tokens"
        if most < needed:
            raise ValueError(
                f"{entry} in its config.json allows {most:,} positions, but {needed:,} are needed "
                f"({sum_of}); lower one of these, or use another model"
            )


def read_config(config: Mapping[str, Any]) -> Any:
    """The settings of a config.json, as transformers reads them from a model's folder. ValueError
    if it refuses them.
    """
    from transformers import AutoConfig

    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        try:
            return AutoConfig.from_pretrained(folder, trust_remote_code=False)
        except Exception as error:  # each architecture checks its settings in its own way
            said = one_line(f"{type(error).__name__}: {error}")[:300]
            raise ValueError(f"its config.json cannot be used ({said}); {MEND}") from None


@cache
def _architecture(config: str, dtype: str) -> tuple[str, Any]:
    """The class and the settings of a model; ValueError if the kit cannot use it."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    written = json.loads(config)
    name = written.get("model_type")
    if name not in CONFIG_MAPPING:
        raise ValueError(
            f"transformers {version('transformers')} does not know model_type={name!r} of its "
            f"config.json; use another model ({LIST})"
        )
    packed = written.pop("quantization_config", None)
    settings = read_config(written)
    network: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(settings), None)
    for reason in _reasons(network, settings, packed, dtype):
        raise ValueError(
            f"the kit cannot use {getattr(network, '__name__', name)} with this config.json: "
            f"{reason}; use another model ({LIST})"
        )
    return network.__name__, settings


def _reasons(network: Any, config: Any, packed: Facts | None, dtype: str) -> Iterator[str]:
    """Why the kit cannot use a class of network, or None, with its settings and its
    quantization_config; what names an entry of config.json comes first.
    """
    text = config.get_text_config(decoder=True)
    method = (packed or {}).get("quant_method", GPTQ)
    if method != GPTQ:
        yield f"its weights are packed by {method!r} (quantization_config), not by {GPTQ!r}"
    if config.is_encoder_decoder:
        yield "it is an encoder and a decoder (is_encoder_decoder)"
    if network is None:
        yield "it is no causal language model of transformers"
    if getattr(text, "alibi", False):
        yield "its attention depends on slots of the cache (alibi), which are not positions"
    for name, neutral in SCALES.items():
        if getattr(text, name, None) not in neutral:
            value = getattr(text, name)
            yield f"its logits are changed after the output layer ({name}={value})"
    if getattr(text, "kv_lora_rank", None):
        yield "its keys and values have different widths (latent attention, kv_lora_rank)"
    kinds = {kind for name in LAYERS for kind in getattr(text, name, None) or ()} - ATTENTION
    if kinds or network._is_stateful:
        kind = min(kinds, default="recurrent")
        yield f"only attention can forget rejected tokens, and it has layers of the kind {kind!r}"
    if not packed and not network._supports_sdpa:
        yield "transformers has no sdpa attention for it"
    yield from _seen_on_meta(config, getattr(torch, dtype), None if packed else "sdpa")


def _seen_on_meta(config: Any, dtype: torch.dtype, attention: str | None) -> Iterator[str]:
    """Why a network does not run as the kit runs it."""
    from transformers import AutoModelForCausalLM

    options = {"attn_implementation": attention, "trust_remote_code": False}
    try:
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config, dtype=dtype, **options).eval()
            yield from _one_pass(network, dtype)
    except Exception as error:  # a library raises whatever it likes at a config of others
        if "meta" not in str(error):  # it asks for a number, which shapes do not have
            said = one_line(f"{type(error).__name__}: {error}")[:200].replace(";", ",")
            yield f"its network does not run with the kit's cache and masks ({said})"


@torch.inference_mode()
def _one_pass(network: Any, dtype: torch.dtype) -> Iterator[str]:
    """What is wrong with a pass over three tokens, inside torch's meta device."""
    body, head, cache = network.get_decoder(), network.get_output_embeddings(), KVCache()
    if "position_ids" not in inspect.signature(body.forward).parameters:
        yield "it takes no position_ids, and slots of the cache are not positions in a tree"
    if hasattr(network, "set_experts_implementation"):
        network.set_experts_implementation("batched_mm")  # the usual one asks for numbers
    states: list[Tensor] = []
    body.register_forward_hook(lambda *call: states.append(call[-1].last_hidden_state))
    head.register_forward_pre_hook(lambda *call: states.append(call[-1][0]))
    tokens = torch.zeros(1, 3, dtype=torch.int64)
    mask = torch.zeros(1, 1, 3, 3, dtype=dtype)
    options = {"past_key_values": cache, "use_cache": True, "position_ids": tokens}
    network(input_ids=tokens, attention_mask=mask, **options)
    layers = network.config.get_text_config(decoder=True).num_hidden_layers
    if len(cache.layers) != layers:
        yield f"only {len(cache.layers)} of its {layers} layers keep their keys in the cache"
    given, read = (state.untyped_storage()._cdata for state in states)
    if given != read:
        yield "its output layer does not read what its body gives"

"""Whether the kit can use a model, from its config.json alone. `load_model` asks before it reads or
downloads weights; `doctor` and `plan` print the answer.

Where an entry of config.json is the reason, the error names it. Whatever else is wrong shows in one
pass through the kit's cache on torch's meta device, where a network has shapes and no memory.
"""

import inspect
import json
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from speclab.models.folder import OF_HEAD
from speclab.models.head import EAGLE3
from speclab.models.hub import MEND, unloadable
from speclab.models.model import KVCache, limits
from speclab.plain import Facts, one_line

# entries that change logits after the output layer, unless they are None or 1
SCALES = (
    *("final_logit_softcapping", "logits_scaling", "logit_scale"),
    *("lm_head_multiplier", "output_multiplier"),
)
OF_SLOTS = "keep_window_size"  # a window that counts slots of the cache, siblings included
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
LAYERS = ("layer_types", "layers_block_type")  # entries that name the kind of each layer
LIST = "notebooks/README.md lists those that work"


def check_usable(config: Facts, context: int = 0, packed: int = 0) -> str:
    """The architecture of a config.json and its positions, in words. ValueError if the kit cannot
    use it, or as of `check_positions`.
    """
    head = config.get("speculators_model_type")
    if head not in (None, EAGLE3):
        raise ValueError(
            f"it is a head of the kind {head!r}; the kit reads {EAGLE3!r} heads, use one of these"
        )
    if head:
        name, settings = f"{head} head", read_config(config.get(OF_HEAD, {}))
    elif reason := unloadable(config):
        raise ValueError(reason)
    else:
        name, settings = _architecture(json.dumps(config))
    check_positions(settings, context, packed)
    allowed = [f", {most:,} positions ({entry})" for entry, most in limits(settings).items()]
    return name + "".join(allowed)


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


def read_config(config: Facts) -> Any:
    """The settings of a config.json, as transformers reads them from a model's folder, apart from
    the number format. ValueError if it refuses them.
    """
    from transformers import AutoConfig

    formats = ("dtype", "torch_dtype")
    config = {name: value for name, value in config.items() if name not in formats}
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        try:
            return AutoConfig.from_pretrained(folder, trust_remote_code=False)
        except Exception as error:  # each architecture checks its settings in its own way
            said = one_line(f"{type(error).__name__}: {error}")[:300]
            raise ValueError(f"its config.json cannot be used ({said}); {MEND}") from None


@cache
def _architecture(config: str) -> tuple[str, Any]:
    """The class and the settings of a model; ValueError if the kit cannot use it."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    written = json.loads(config)
    kind, packed = str(written.get("model_type")), written.pop("quantization_config", None)
    settings = read_config(written) if kind in CONFIG_MAPPING else None
    network: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(settings), None)
    if network is None:
        raise ValueError(
            f"transformers {version('transformers')} has no causal language model for "
            f"model_type={kind!r} in its config.json; use another model ({LIST})"
        )
    attention = None if packed else "sdpa"
    if reason := next(_reasons(network, settings, attention), "") or _on_meta(settings, attention):
        raise ValueError(
            f"the kit cannot use {network.__name__} with this config.json: {reason}; use another "
            f"model ({LIST})"
        )
    return network.__name__, settings


def _reasons(network: Any, config: Any, attention: str | None) -> Iterator[str]:
    """Why the kit cannot use a class of network with its settings."""
    text = config.get_text_config(decoder=True)
    if config.is_encoder_decoder:
        yield "it is an encoder and a decoder (is_encoder_decoder)"
    if getattr(text, "alibi", False):
        yield "its attention depends on slots of the cache (alibi), which are not positions"
    for name in SCALES:
        value = getattr(text, name, None)
        if value not in (None, 1):
            yield f"its logits are changed after the output layer ({name}={value})"
    if getattr(text, "kv_lora_rank", None):
        yield "its keys and values have different widths (latent attention, kv_lora_rank)"
    kinds = {kind for name in LAYERS for kind in getattr(text, name, None) or ()} - ATTENTION
    if kinds or network._is_stateful:
        kind = min(kinds, default="recurrent")
        yield f"only attention can forget rejected tokens, and it has layers of the kind {kind!r}"
    if attention and not network._supports_sdpa:
        yield "transformers has no sdpa attention for it"


def _on_meta(config: Any, attention: str | None) -> str:
    """What is wrong with a pass over three tokens; empty if nothing is."""
    try:
        with torch.device("meta"), torch.inference_mode():
            return _one_pass(config, attention)
    except Exception as error:  # a library raises whatever it likes at a config of others
        asks = isinstance(error, NotImplementedError) or "meta tensor" in str(error)
        if asks:  # for numbers, which shapes do not have
            return ""
        said = one_line(f"{type(error).__name__}: {error}")[:200].replace(";", ",")
        return f"its network does not run with the kit's cache and masks ({said})"


def _one_pass(config: Any, attention: str | None) -> str:
    from transformers import AutoModelForCausalLM

    options: Facts = {"attn_implementation": attention, "trust_remote_code": False}
    network = AutoModelForCausalLM.from_config(config, dtype=torch.float32, **options).eval()
    body, head, cache = network.get_decoder(), network.get_output_embeddings(), KVCache()
    if "position_ids" not in inspect.signature(body.forward).parameters:
        return "it takes no position_ids, and slots of the cache are not positions in a tree"
    if hasattr(network, "set_experts_implementation"):
        network.set_experts_implementation("batched_mm")  # the usual one asks for numbers
    states: list[Tensor] = []
    body.register_forward_hook(lambda *call: states.append(call[-1].last_hidden_state))
    head.register_forward_pre_hook(lambda *call: states.append(call[-1][0]))
    tokens = torch.zeros(1, 3, dtype=torch.int64)
    options = {"past_key_values": cache, "use_cache": True, "position_ids": tokens}
    network(input_ids=tokens, attention_mask=torch.zeros(1, 1, 3, 3), **options)
    layers = config.get_text_config(decoder=True).num_hidden_layers
    if len(cache.layers) != layers:
        return f"only {len(cache.layers)} of its {layers} layers keep their keys in the cache"
    given, read = (state.untyped_storage()._cdata for state in states)
    return "" if given == read else "its output layer does not read what its body gives"

"""Whether the kit can use a model, from its config.json alone. `load_model` asks before it reads or
downloads weights; `doctor` and `plan` print why not. The entry of config.json that is the reason is
named. What config.json does not say shows when a model is loaded (`pairs.check_model`).
"""

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from speclab.models.folder import OF_HEAD, ModelFolder
from speclab.models.hub import MEND
from speclab.plain import Facts, ModelSpec, one_line

EAGLE3 = "eagle3"
# entries that the kit does not compute, unless they are off or 1
NOT_COMPUTED = {
    "alibi": "its attention depends on slots of the cache, which are not positions",
    "kv_lora_rank": "its keys and values have different widths: latent attention",
    "final_logit_softcapping": (CHANGED := "its logits are changed after the output layer"),
    "logits_scaling": CHANGED,
    "logit_scale": CHANGED,
    "lm_head_multiplier": CHANGED,
    "output_multiplier": CHANGED,
}
# names of settings: how many keys attention sees; longrope's positions before its angles change
WINDOW = re.compile(r"(window|window_size|chunk_size)$")
BEFORE_LONG = "original_max_position_embeddings"
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
LAYERS = ("layer_types", "layers_block_type")  # entries that name the kind of each layer
LIST = "notebooks/README.md lists those that work"


def check_spec(spec: ModelSpec, context: int = 0, which: str = "model") -> ModelFolder:
    """The folder of a model, without weights yet. ValueError if its config.json says that it cannot
    be used, or not for texts of `context` tokens.
    """
    folder = ModelFolder.fetched(spec)
    try:
        if folder.is_head and which != "draft":
            raise ValueError(
                "it is a trained head, which can only be the `draft` of a profile, for the target "
                "that it was trained with; use a causal language model, or make the head the "
                "`draft` of a second profile"
            )
        check_usable(folder.config, context)
    except ValueError as error:
        raise ValueError(f"{which} {spec.path}: {error}") from None
    return folder


def check_usable(config: Facts, context: int) -> None:
    """ValueError if the kit cannot use the model of a config.json, or not for texts of `context`
    tokens.
    """
    head = config.get("speculators_model_type")
    if head not in (None, EAGLE3):
        raise ValueError(
            f"it is a head of the kind {head!r}; the kit reads {EAGLE3!r} heads, use one of these"
        )
    if "auto" in (config.get("dtype"), config.get("torch_dtype")):
        raise ValueError(
            "its config.json has the dtype 'auto', which is no number format; write the one of its "
            "weights there, such as float32"
        )
    packing = config.get("quantization_config") or {}
    method = packing.get("quant_method", "gptq") if isinstance(packing, dict) else packing
    if method != "gptq":
        raise ValueError(
            f"its weights are packed by {method!r} (quantization_config), and the kit loads plain "
            "weights and those packed by 'gptq'; use another form of this model"
        )
    settings = read_config(config.get(OF_HEAD, {}) if head else config)
    if not head:
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

        network = MODEL_FOR_CAUSAL_LM_MAPPING[type(settings)]
        check_architecture(network, settings, bool(packing))
    for entry, most in limits(settings).items():
        if most < context:
            raise ValueError(
                f"{entry} in its config.json allows {most:,} positions, but {context:,} are needed "
                "(max_prompt_tokens + max_new_tokens + depth); lower one of these, or use another "
                "model"
            )


def read_config(config: Facts) -> Any:
    """The settings of a config.json, as transformers reads them from a model's folder, apart from
    the number format and the packing. ValueError if it refuses them.
    """
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind = str(config.get("model_type"))
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ValueError(
            f"transformers {version('transformers')} has no causal language model for "
            f"model_type={kind!r} in its config.json; use another model ({LIST})"
        )
    apart = "dtype", "torch_dtype", "quantization_config"
    settings = {name: value for name, value in config.items() if name not in apart}
    try:
        return CONFIG_MAPPING[kind].from_dict(settings)
    except Exception as error:  # each architecture checks its settings in its own way
        said = one_line(f"{type(error).__name__}: {error}")[:300]
        raise ValueError(f"its config.json cannot be used ({said}); {MEND}") from None


def limits(config: Any) -> dict[str, int]:
    """The most tokens of a context, by the entry of a network's settings that says so.

    An attention window is one, because no tree's mask follows it. With longrope it is the tokens
    before its angles change, because cached keys have the earlier angles.
    """
    settings = config.get_text_config(decoder=True)
    found = {"max_position_embeddings": getattr(settings, "max_position_embeddings", None)}
    found |= {name: most for name, most in vars(settings).items() if WINDOW.search(name)}
    rope = getattr(settings, "rope_parameters", None) or {}
    for part in (rope, *rope.values()):
        if isinstance(part, dict) and part.get("rope_type") == "longrope":
            found[BEFORE_LONG] = part.get(BEFORE_LONG)
    return {name: most for name, most in found.items() if type(most) is int and most > 0}


def check_architecture(network: Any, settings: Any, packed: bool = False) -> None:
    """ValueError if the kit cannot use a class of networks with these settings."""
    if reason := next(_reasons(network, settings, packed), ""):
        raise ValueError(
            f"the kit cannot use {network.__name__} with this config.json: {reason}; use another "
            f"model ({LIST})"
        )


def _reasons(network: Any, config: Any, packed: bool) -> Iterator[str]:
    """Why the kit cannot use a class of network with its settings."""
    text = config.get_text_config(decoder=True)
    if config.is_encoder_decoder:
        yield "it is an encoder and a decoder (is_encoder_decoder)"
    for name, reason in NOT_COMPUTED.items():
        value = getattr(text, name, None)
        if value is True or value not in (None, False, 1):
            yield f"{reason} ({name}={value})"
    kinds = {kind for name in LAYERS for kind in getattr(text, name, None) or ()}
    others = kinds - ATTENTION
    if others or network._is_stateful:
        kind = min(others, default="recurrent")
        yield f"only attention can forget rejected tokens, and it has layers of the kind {kind!r}"
    if not packed and not network._supports_sdpa:
        yield "transformers has no sdpa attention for it"

"""Small random networks of the causal language models of transformers, made from their default
settings: numbers of known names become small, everything else stays.
"""

import re

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

KINDS = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
# by the name of a number in the settings: its small value
SMALL = {
    r"(.*_)?vocab_size\w*|encoder_hash_byte_group_vocab|ngram_vocab_size_base": 40,
    r"max_position_embeddings|n_positions|n_ctx|max_seq_len|context_length|model_max_length": 512,
    r"max_(target|source)_positions": 512,
    r"num_hidden_layers|(n|num)_layers?|(num_)?(en|de)coder_layers|num_blocks|max_window_layers": 4,
    r"num_layers_per_stack|num_query_groups|num_kv_heads|index_n_heads|\w*mamba_heads": 4,
    r"(.*_)?(attention_heads|n_heads?|num_heads)|linear_num_\w*heads|mamba_n_heads": 4,
    r"(swa_)?num_key_value_heads": 2,
    r"hidden_size|d_model|n_embd|emb_dim|(.*_)?embedding_size|embedding_dim|lru_width": 32,
    r"word_embed_proj_dim|attention_hidden_size|.*_embed_dim": 32,
    r".*intermediate_size(_mlp)?|.*ffn_dim|dim_ff|dff|(.*_)?ffn_hidden_size|d_inner": 48,
    r"feed_forward_size|router_hidden_size": 48,
    r"(.*_)?head_dim|d_head|dim_head|d_kv|kv_channels|attention_head_size|rotary_dim": 8,
    r"mamba_(d_head|headdim|head_dim)|qk_head_dim|hidden_size_per_layer_input": 16,
    r".*lora_rank|laurel_rank|adapter_rank|gated_norm_rank|hc_lowrank|query_pre_attn_scalar": 16,
    r"mamba_d_ssm": 64,
    r"num_(local_)?experts|n_routed_experts|moe_num_experts|zero_expert_num": 4,
    r"num_experts_per_tok(en)?|moe_topk|moe_k": 2,
    r"n_groups?|topk_group|num_expert_group|num_nextn_predict_layers": 1,
    r"first_k_dense_replace|num_dense_layers": 1,
    r"sliding_window(_size)?|(attention_)?window_size|local_attention": 512,
}
# what a settings class needs besides
TURNS = {"rope_type": "default", "rope_theta": 1e4}
HYBRID = {"layers_block_type": ["linear_attention", "hybrid"] * 2}
INDEXER = {"n_heads": 4, "kv_heads": 1, "head_dim": 8, "budget": 16, "compress_ratio": 4}
ALSO = {
    "cohere_compass_text": {"rope_parameters": {"full_attention": TURNS}},
    "dbrx": {"attn_config": {"rope_theta": 1e4, "clip_qkv": 8.0}},
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "gemma3n_text": {"num_kv_shared_layers": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {"head_dim": 16},
    "qwen4_exp_text": {f"indexer_{name}": value for name, value in INDEXER.items()},
    "reformer": {"axial_pos_embds": False},
    "zamba": HYBRID,
    "zamba2": HYBRID | {"hybrid_layer_ids": [1, 3]},
    "zaya": {"num_experts_per_tok": 1},
}
ALWAYS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "tie_word_embeddings": False}


def small_settings(kind, **changes):
    """The settings of a small network of a model_type."""
    return CONFIG_MAPPING[kind](**_small(CONFIG_MAPPING[kind]()) | ALSO.get(kind, {}) | changes)


def _small(settings):
    found = {}
    for name, value in settings.to_dict().items():
        part = getattr(settings, name) if name in settings.sub_configs else None
        sizes = [size for like, size in SMALL.items() if re.fullmatch(like, name)]
        if isinstance(part, PretrainedConfig):
            found[name] = type(part)(**_small(part))
        elif name in ("is_decoder", "per_layer_config"):
            found[name] = {"is_decoder": True, "per_layer_config": {}}[name]
        elif sizes and (type(value) is int or name in ("head_dim", "num_key_value_heads")):
            found[name] = sizes[0]
    if "kv_lora_rank" in found:
        found["num_key_value_heads"] = found["num_attention_heads"]
    return found | ALWAYS


def small_network(kind, seed=0, **changes):
    """A small network with wide random weights, so that a wrong mask changes its texts."""
    torch.manual_seed(seed)
    network = AutoModelForCausalLM.from_config(small_settings(kind, **changes)).eval()
    with torch.no_grad():
        for weights in network.parameters():
            if weights.is_floating_point():
                spread = 0.3 if weights.ndim > 1 else 0.2
                middle = round(float(weights.mean())) if weights.ndim == 1 else 0  # norms
                weights.copy_(middle + spread * torch.randn_like(weights))
    return network

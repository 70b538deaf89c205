"""Heads of other people: published configurations, rebuilt small with random weights, load, record
and decode losslessly. The weights are written by name here, not by the library.
"""

import json

import numpy as np
import pytest
import torch
from conftest import profile_of, random_network, save_random_llama
from safetensors.torch import save_file

pytest.importorskip("speculators", reason="the extra `heads` is not installed")

from test_decode import prompt_of
from toy import plain, recorded_tables

from speclab.decode import decode_prompt
from speclab.record import LONGEST
from speclab.replay import replay
from speclab.sampling import Sampling
from speclab.shapes import parse_shape
from speclab.study.pairs import load_pair

VOCABULARY, WIDTH, LAYERS = 40, 32, 7  # of the targets; without named layers a head reads 2, 3, 4
SAID = 20  # tokens of a trimmed vocabulary

# a published configuration, after SGLang's tests and vllm-project/speculators #53
PUBLISHED = {
    "architectures": ["Eagle3Speculator"],
    "auto_map": {"": "eagle3.Eagle3SpeculatorConfig"},
    "draft_vocab_size": 32000,
    "has_no_defaults_at_init": False,
    "norm_before_residual": True,
    "speculators_config": {
        "algorithm": "eagle3",
        "default_proposal_method": "greedy",
        "proposal_methods": [
            {
                "accept_tolerance": 0.0,
                "proposal_type": "greedy",
                "speculative_tokens": 3,
                "verifier_accept_k": 1,
            }
        ],
        "verifier": {"architectures": ["Qwen3ForCausalLM"], "name_or_path": "Qwen/Qwen3-8B"},
    },
    "speculators_model_type": "eagle3",
    "speculators_version": "0.1.0.dev14",
    "target_hidden_size": None,
    "torch_dtype": "bfloat16",
    "transformer_layer_config": {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "initializer_range": 0.02,
        "intermediate_size": 12288,
        "max_position_embeddings": 40960,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 1,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": 151936,
    },
    "transformers_version": "4.53.2",
}
OF_LAYER = "transformer_layer_config"
SMALL_LAYER = {
    **{"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 48, "head_dim": 8},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
}
LLAMA3_ROPE = {
    **{"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0},
    **{"original_max_position_embeddings": 8192, "rope_type": "llama3"},
}
# changes of the configuration, of its layers, and weights that the file lacks
HEADS = {
    "llama-3.1-8b": (
        {},
        {"intermediate_size": 56, "rms_norm_eps": 1e-5, "rope_scaling": LLAMA3_ROPE},
        (),
    ),
    "qwen3-8b": ({}, {"head_dim": 16}, ()),
    "layer of Qwen3": ({"norm_output": True}, {"model_type": "qwen3", "head_dim": 16}, ()),
    "size of the target": ({"target_hidden_size": WIDTH, "norm_before_residual": False}, {}, ()),
    "named layers": (
        {"eagle_aux_hidden_state_layer_ids": [1, 3, 5, 6], "norm_before_fc": True},
        {},
        ("embed_tokens.weight",),
    ),
    "all tokens": ({"draft_vocab_size": VOCABULARY}, {}, ("d2t", "t2d", "embed_tokens.weight")),
}
OF_QWEN = ("qwen3-8b", "layer of Qwen3")


def shapes_of(config):
    """The names and shapes of the weights of a head of one layer."""
    layer = config[OF_LAYER]
    width, inner, per_head = (layer[k] for k in ("hidden_size", "intermediate_size", "head_dim"))
    queries, keys = (per_head * layer[f"num_{k}_heads"] for k in ("attention", "key_value"))
    features = width * len(config.get("eagle_aux_hidden_state_layer_ids", "abc"))
    shapes = {
        "embed_tokens.weight": (layer["vocab_size"], width),
        "fc.weight": (width, features),
        "norm.weight": (width,),
        "lm_head.weight": (config["draft_vocab_size"], width),
        **{f"layers.0.{k}.weight": (width,) for k in ("input_layernorm", "hidden_norm")},
        "layers.0.post_attention_layernorm.weight": (width,),
        "layers.0.self_attn.q_proj.weight": (queries, 2 * width),
        **{f"layers.0.self_attn.{k}_proj.weight": (keys, 2 * width) for k in "kv"},
        "layers.0.self_attn.o_proj.weight": (width, queries),
        **{f"layers.0.mlp.{k}_proj.weight": (inner, width) for k in ("gate", "up")},
        "layers.0.mlp.down_proj.weight": (width, inner),
    }
    if layer["model_type"] == "qwen3":
        shapes |= {f"layers.0.self_attn.{k}_norm.weight": (per_head,) for k in "qk"}
    if config.get("norm_before_fc"):
        shapes["input_norm.weight"] = (features,)
    return shapes


def save_head(folder, name):
    """A small head of HEADS with random weights in bfloat16."""
    changes, of_layer, lacks = HEADS[name]
    layer = PUBLISHED[OF_LAYER] | SMALL_LAYER | of_layer
    config = PUBLISHED | {"draft_vocab_size": SAID, OF_LAYER: layer} | changes
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(3)
    weights = {
        name: (torch.randn(shape) * 0.2 + (len(shape) == 1)).bfloat16()
        for name, shape in shapes_of(config).items()
    }
    kept = torch.arange(1, VOCABULARY, VOCABULARY // SAID)
    weights["d2t"] = kept - torch.arange(SAID)
    weights["t2d"] = torch.isin(torch.arange(VOCABULARY), kept)
    there = {name: value for name, value in weights.items() if name not in lacks}
    save_file(there, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    """Folders of a random Llama and of a random Qwen3 whose heads are not width / heads wide."""
    base = tmp_path_factory.mktemp("targets")
    folders = {kind: save_random_llama(base / kind, 1, layers=LAYERS) for kind in ("llama", "qwen")}
    sizes = {"num_hidden_layers": LAYERS, "head_dim": 16}
    random_network("Qwen3", 1, **sizes).save_pretrained(folders["qwen"])
    return folders


@pytest.fixture(scope="module", params=HEADS)
def profile(request, targets, tmp_path_factory):
    """The profile of a target with one of HEADS."""
    folder = save_head(tmp_path_factory.mktemp("heads") / "head", request.param)
    return profile_of(targets["qwen" if request.param in OF_QWEN else "llama"], folder)


@pytest.fixture(scope="module")
def pair(profile):
    return load_pair(profile)


def test_it_loads_with_the_weights_of_its_file_else_the_targets(pair):
    settings, network = pair.draft.network.config, pair.draft.network
    named = settings.eagle_aux_hidden_state_layer_ids
    assert pair.target.taps == tuple(named) and named in ([2, 3, 4], [1, 3, 5, 6])
    assert pair.draft.tokens_said == settings.draft_vocab_size
    targets = pair.target.network.get_input_embeddings().weight
    is_own = named == [2, 3, 4] and settings.draft_vocab_size == SAID
    assert torch.equal(network.embed_tokens.weight, targets) == (not is_own)


def test_greedy_text_is_the_plain_text_and_counts_are_the_replays(pair):
    rng, accepted = np.random.default_rng(1), 0
    for length in (1, 2, 40):
        prompt = prompt_of(rng.integers(2, VOCABULARY, length))
        text = plain(pair, prompt, 30)
        trace = recorded_tables(pair, prompt, text)["trace"]
        assert trace["block_ranks"].map(len).max() == min(LONGEST, len(text))
        for shape in map(parse_shape, ("chain:1", "chain:4", "tree:3,2,8", "dynamic:3,3,7")):
            made = decode_prompt(pair, prompt, "greedy", shape, Sampling(), 30)
            assert made.token_ids == text
            counts = [step.accepted for step in made.steps]
            assert shape.tree is None or counts == replay(trace, shape.tree)["accepted"].tolist()
            accepted += sum(counts)
    assert accepted, "or acceptance is not tested"

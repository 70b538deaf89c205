"""The lean body against the network it is made from: batches, masks, caches, grouped heads, biases;
and what it refuses.
"""

import pytest
import torch

from speclab.models.lean import LeanBody, knows
from speclab.models.model import LanguageModel


def network(kind: str, **changes):
    from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

    torch.manual_seed(0)
    config = {"llama": LlamaConfig, "qwen2": Qwen2Config}[kind](
        **(
            {
                "vocab_size": 50,
                "hidden_size": 48,
                "intermediate_size": 64,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "initializer_range": 0.2,
                "max_position_embeddings": 256,
            }
            | changes
        )
    )
    model = AutoModelForCausalLM.from_config(config).eval()
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(p)
    return model


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {}),
        ("llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
        ("llama", {"head_dim": 16}),
        ("qwen2", {}),
    ],
)
def test_equals_the_network_with_batches_masks_and_a_cache(kind, changes):
    plain, model = network(kind, **changes), network(kind, **changes)
    lean = LanguageModel(
        LeanBody(model), model.get_output_embeddings(), 50, torch.float32, "cpu"
    )
    own = LanguageModel(
        plain.base_model, plain.get_output_embeddings(), 50, torch.float32, "cpu"
    )
    caches, tokens = (lean.cache(4), own.cache(4)), torch.randint(0, 50, (2, 90))
    visible = torch.ones(2, 3, 93, dtype=torch.bool)
    visible[:, :, 5:9], visible[0, 1, 91] = False, False
    for piece, positions, seen in (
        (tokens, None, None),
        (tokens[:, :1], None, None),
        (tokens[:, :3], torch.tensor([91, 92, 92]), None),
        (tokens[:, :3], torch.tensor([90, 91, 91]), visible),
    ):
        for cache in caches:
            cache.crop(min(cache.length, 90) if piece.shape[1] == 3 else cache.length)
        ours, theirs = (
            m.logits(m.forward(piece, c, positions, seen))
            for m, c in zip((lean, own), caches, strict=True)
        )
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)


def test_the_network_keeps_working_and_shares_its_memory():
    plain, model = network("llama"), network("llama")
    body, tokens = LeanBody(model), torch.randint(0, 50, (1, 9))
    torch.testing.assert_close(model(tokens).logits, plain(tokens).logits)
    q = model.model.layers[0].self_attn.q_proj.weight
    assert (
        q.untyped_storage().data_ptr()
        == body.layers[0].qkv.weight.untyped_storage().data_ptr()
    )


def test_a_body_without_its_rotation_is_seen():
    """Negative control."""
    plain, model = network("llama"), network("llama")
    body, tokens = LeanBody(model), torch.randint(0, 50, (1, 9))
    body.sin = -body.sin
    lean = LanguageModel(body, model.get_output_embeddings(), 50, torch.float32, "cpu")
    assert (
        lean.logits(lean.forward(tokens, lean.cache())) - plain(tokens).logits
    ).abs().max() > 0.1


def test_what_it_does_not_know_is_left_to_the_network():
    from transformers import AutoModelForCausalLM, Gemma2Config

    assert knows(network("llama")) and knows(network("qwen2"))
    assert not knows(network("llama", mlp_bias=True)) and not knows(
        network("llama", hidden_act="gelu")
    )
    small = {
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
    }
    assert not knows(AutoModelForCausalLM.from_config(Gemma2Config(**small)))
    packed = network("llama")
    packed.model.layers[1].mlp.up_proj.__class__ = type(
        "PackedLinear", (torch.nn.Linear,), {}
    )
    assert not knows(packed)

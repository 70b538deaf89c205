"""The lean body against the network from which it is made: batches, masks, caches, grouped heads,
biases, and rejected networks.
"""

import pytest
import torch
from conftest import random_network

from speclab.models.lean import LeanBody, is_supported
from speclab.models.model import Network

pytestmark = pytest.mark.numeric


def network(kind="Llama", **changes):
    """A network with random weights and biases."""
    model = random_network(kind, **changes)
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(p)
    return model


def both():
    """A network, and the same network with a lean body."""
    plain, model = network(), network()
    return plain, model, LeanBody(model)


def model_of(body, network):
    head = network.get_output_embeddings()
    return Network(body, head, 40, torch.float32, "cpu")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
        ("Llama", {"head_dim": 16}),
        ("Qwen2", {}),
    ],
)
def test_equals_the_network_with_batches_masks_and_a_cache(kind, changes):
    plain, model = network(kind, **changes), network(kind, **changes)
    pair = model_of(LeanBody(model), model), model_of(plain.base_model, plain)
    caches, tokens = [m.cache(4) for m in pair], torch.randint(0, 40, (2, 90))
    visible = torch.ones(2, 3, 93, dtype=torch.bool)
    visible[:, :, 5:9], visible[0, 1, 91] = False, False
    for start, piece, positions, seen in (
        (0, tokens, None, None),
        (90, tokens[:, :1], None, None),
        (90, tokens[:, :3], torch.tensor([91, 92, 92]), None),
        (90, tokens[:, :3], torch.tensor([90, 91, 91]), visible),
    ):
        for cache in caches:
            cache.crop(start)
        ours, theirs = (
            m.logits(m.forward(piece, cache, positions, seen))
            for m, cache in zip(pair, caches, strict=True)
        )
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)


def test_the_network_keeps_working_and_shares_its_memory():
    (plain, model, body), tokens = both(), torch.randint(0, 40, (1, 9))
    torch.testing.assert_close(model(tokens).logits, plain(tokens).logits)
    weights = model.model.layers[0].self_attn.q_proj.weight, body.layers[0].qkv.weight
    assert len({weight.untyped_storage().data_ptr() for weight in weights}) == 1


def test_a_body_without_its_rotation_is_seen():
    """Negative control."""
    (plain, model, body), tokens = both(), torch.randint(0, 40, (1, 9))
    body.sin = -body.sin
    lean = model_of(body, model)
    found = lean.logits(lean.forward(tokens, lean.cache()))
    assert (found - plain(tokens).logits).abs().max() > 0.1


def test_what_it_does_not_know_is_left_to_the_network():
    assert is_supported(network()) and is_supported(network("Qwen2"))
    assert not is_supported(network(mlp_bias=True))
    assert not is_supported(network(hidden_act="gelu"))
    assert not is_supported(network("Gemma2"))
    packed = network()
    linear = type("PackedLinear", (torch.nn.Linear,), {})
    packed.model.layers[1].mlp.up_proj.__class__ = linear
    assert not is_supported(packed)

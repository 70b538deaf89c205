"""What the kit computes is the network's own distribution, in every number format and on every
processor; else the network is refused, at loading and for pairs built in memory.
"""

import pytest
import torch
from conftest import random_network, refuses, round_as_amx

from speclab.models import pairs
from speclab.models.model import Network
from speclab.models.pairs import load_model, model_of
from speclab.plain import ModelSpec
from speclab.study.pairs import load_pair
from speclab.study.profiles import ROOT, load_profile

pytestmark = pytest.mark.numeric

FORMATS = ("float32", "float16", "bfloat16")
GPTQ = ROOT / "data/pairs/tiny/target-gptq"
# settings that act on the output of the head, or on its input, and their neutral values
CHANGED = [
    ("NanoChat", {"final_logit_softcapping": 15.0}, {"final_logit_softcapping": None}),
    ("Granite", {"logits_scaling": 8.0}, {"logits_scaling": 1.0}),
    ("Cohere", {"logit_scale": 0.0625}, {"logit_scale": 1.0}),
]
ALONE = "packed tree and its paths differ .* caps, scales|changed after the output layer"


def small(kind, dtype, **changes):
    """A random network in a number format."""
    return random_network(kind, pad_token_id=0, **changes).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("kind", "changes", "neutral"), CHANGED)
def test_logits_that_are_capped_or_scaled_are_refused_in_every_format(
    kind, changes, neutral, dtype, tmp_path
):
    network = small(kind, dtype, **changes)
    network.save_pretrained(tmp_path)
    for build in (
        lambda: load_model(ModelSpec(str(tmp_path), device="cpu", dtype=dtype)),
        lambda: model_of(network),
    ):
        with refuses(ALONE):
            build()
    plain = small(kind, dtype, **neutral)
    ours, tokens = model_of(plain), torch.tensor([[5, 11, 23]])
    with torch.inference_mode():
        theirs = plain(tokens).logits.float().softmax(-1)
    found = ours.logits(ours.forward(tokens, ours.cache())).softmax(-1)
    torch.testing.assert_close(found, theirs, rtol=0, atol=pairs.ROUNDING[plain.dtype])


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_cap_is_seen_where_it_changes_the_probe_by_less_than_rounding(dtype):
    """With the usual small weights the largest logit is 0.1, and the cap changes it by 4e-7."""
    network = small("Gemma2", dtype, initializer_range=0.02, final_logit_softcapping=30.0)
    with torch.inference_mode():
        logits = network(torch.tensor([[5, 11, 23]])).logits
    assert logits.abs().max() < 1
    with refuses(ALONE):
        model_of(network)


def test_what_acts_before_the_head_is_refused():
    network = small("Llama", "float32")
    network.lm_head.register_forward_pre_hook(lambda _module, given: (given[0] / 2,))
    with refuses(ALONE):
        model_of(network)


def test_a_head_with_a_bias_is_computed_with_it():
    network = small("Phi", "float32")
    torch.nn.init.normal_(network.lm_head.bias)
    ours, tokens = model_of(network), torch.tensor([[5, 11, 23]])
    with torch.inference_mode():
        theirs = network(tokens).logits
    found = ours.logits(ours.forward(tokens, ours.cache()))
    torch.testing.assert_close(found, theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", FORMATS)
def test_attention_by_cache_slots_is_refused_before_a_window_is_full(dtype):
    """A tree has more slots than positions. Three tokens fill no window."""
    local = {"window_size": 16, "num_layers": 2, "attention_types": [[["global", "local"], 1]]}
    network = small("GPTNeo", dtype, **local, intermediate_size=None)
    with refuses("packed tree and its paths differ"):
        model_of(network)
    for kind in ("Mistral", "Gemma3Text"):  # by positions: its masks are replaced by ours
        model_of(small(kind, dtype, sliding_window=16))


# ---- processors ----------------------------------------------------------------------------------


def quantised(**changes):
    """The pair tiny with its 4-bit target."""
    return load_profile("tiny", {"device": "cpu", "target.path": str(GPTQ)} | changes)


def test_a_four_bit_target_loads_where_the_kernel_rounds_as_on_amx(monkeypatch):
    round_as_amx(monkeypatch)
    pair = load_pair(quantised())
    assert pair.target.dtype == torch.float32 and pair.target.computes == torch.bfloat16
    assert pair.draft.computes == torch.float32 and not pair.is_exact
    tokens = torch.arange(40, 60)[None]
    whole = pair.target.logits(pair.target.forward(tokens, pair.target.cache()))
    cache = pair.target.cache()
    alone = [pair.target.logits(pair.target.forward(one[None], cache)) for one in tokens.T]
    gap = (torch.cat(alone, 1) - whole).abs().max() / whole.abs().max()
    assert 1e-3 < gap < pairs.ROUNDING[torch.bfloat16], "the stub rounds, and within its format"
    monkeypatch.setattr(Network, "computes", property(lambda self: self.dtype))
    with refuses("packed tree and its paths differ"):
        load_pair(quantised())

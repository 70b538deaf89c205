"""Half precision compared with float32 on the CPU: loaded models, records, and texts that
rounding changes.
"""

import numpy as np
import pytest
import torch
from conftest import save_random_llama, save_trimmed_draft
from toy import record_prompt

from speclab.models import model, pairs
from speclab.plain import ModelSpec
from speclab.record import generate
from speclab.sampling import Sampling
from speclab.study import runs
from speclab.study.pairs import load_pair
from speclab.study.profiles import ROOT, load_profile
from speclab.study.prompts import encode_prompts, load_prompts
from speclab.tree import static_tree

HALVES = ("float16", "bfloat16")
GREEDY = Sampling()
# largest differences from float32 of probabilities and of entropies (nats) of one position; seen on
# both pairs: 0.006 and 0.02 in float16, 0.04 and 0.13 in bfloat16
TOLERANCE = {"float16": (0.015, 0.05), "bfloat16": (0.1, 0.3)}
SHARES = ("p_token", "q_token", "overlap")
ENTROPIES = ("target_entropy", "draft_entropy")


def profile_of(name, dtype):
    """The shipped pair in a number format; skipped where its weights are not there."""
    for which in ("target", "draft"):
        if not list((ROOT / "data/pairs" / name / which).glob("*.safetensors")):
            pytest.skip(f"no weights of {name}: `make pair PROFILE={name}` gets them")
    given = {"dtype": dtype, "device": "cpu", "max_prompt_tokens": 512}
    return load_profile(name, given)


def loaded(name, dtype):
    return load_pair(profile_of(name, dtype))


def rotary(network):
    """Its frequencies."""
    named = dict(network.named_buffers())
    return [named[name] for name in sorted(named) if name.endswith("inv_freq")]


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.numeric
@pytest.mark.parametrize("dtype", HALVES)
def test_every_model_turns_by_the_same_angles_in_every_number_format(tmp_path, dtype):
    """A trimmed draft was cast whole: at position 575 its angles were wrong by 0.09."""
    plain = save_random_llama(tmp_path / "plain", 3)
    for folder in (plain, save_trimmed_draft(tmp_path / "trimmed", plain, range(2, 20))):
        specs = (ModelSpec(str(folder), dtype=name, device="cpu") for name in ("float32", dtype))
        exact, half = (pairs.load_model(spec) for spec in specs)
        assert next(half.network.parameters()).dtype == getattr(torch, dtype)
        for ours, theirs in zip(rotary(half.network), rotary(exact.network), strict=True):
            assert ours.dtype == torch.float32 and torch.equal(ours, theirs)


@pytest.mark.numeric
@pytest.mark.parametrize("dtype", ["float32", *HALVES])
@pytest.mark.parametrize("name", ["tiny", "smollm"])
def test_the_probe_at_loading_sees_a_wrong_mask(monkeypatch, name, dtype):
    """SmolLM2's first token ids are unused and all equal, so a probe with them saw nothing."""
    profile, right = profile_of(name, dtype), model.Network._mask
    both = profile.target, profile.draft
    for spec in both:
        pairs.load_model(spec)
    monkeypatch.setattr(
        model.Network, "_mask", lambda self, seen, n, past: right(self, None, n, past)
    )
    for spec in both:
        with pytest.raises(ValueError, match="packed tree and its paths differ"):
            pairs.load_model(spec)


# ---- records -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [pytest.param("tiny", marks=pytest.mark.numeric), "smollm"])
def test_records_in_half_precision_agree_with_float32(name):
    """smollm's draft is trimmed: with rounded angles its overlap was off by more."""
    exact = loaded(name, "float32")
    prompts = encode_prompts(exact.tokenizer, load_prompts("project", 1), 512)
    texts = generate(exact.target, prompts, 16, exact.stop_ids, GREEDY, 0)

    def columns(pair):
        both = zip(prompts, texts, strict=True)
        tree = static_tree(2, 2)
        found = [record_prompt(pair, *one, tree, GREEDY).trace for one in both]
        return {key: np.concatenate([one[key] for one in found]) for key in found[0]}

    right = columns(exact)
    for dtype, (share, nats) in TOLERANCE.items():
        ours = columns(loaded(name, dtype))
        for allowed, keys in ((share, SHARES), (nats, ENTROPIES)):
            for key in keys:
                assert np.abs(ours[key] - right[key]).max() <= allowed, (dtype, key)


def test_a_manifest_says_how_many_tokens_of_a_greedy_text_are_not_the_argmax(
    short_profile, short_run, random_pair, tmp_path
):
    assert short_run.manifest["not_argmax"] == 0
    texts = runs.texts_of(short_run)
    changed, text = next(iter(texts.items()))
    texts[changed] = (*text[:-1], text[-1] + 1)  # the last: no other token is read after it
    turned = runs.record_run(short_profile, tmp_path / "turned", random_pair, texts)
    assert turned.manifest["not_argmax"] == pytest.approx(1 / len(turned.trace))
    warm = runs.record_run(short_profile.replace(temperature=1.0), tmp_path / "warm", random_pair)
    assert warm.manifest["not_argmax"] is None


# ---- in words ------------------------------------------------------------------------------------

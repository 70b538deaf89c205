"""The cache: growth, crop, gather; and masks and positions through a real network against plain full-context passes."""

import pytest
import torch

from speclab.model import KVCache, causal


def test_the_cache_grows_by_doubling_and_keeps_what_it_holds():
    cache, rows = KVCache(capacity=2), torch.randn(1, 2, 9, 4)
    for start, end in ((0, 2), (2, 3), (3, 9)):
        keys, values = cache.update(rows[..., start:end, :], -rows[..., start:end, :], 0)
        cache.length = end
    assert torch.equal(keys, rows) and torch.equal(values, -rows) and cache.capacity == 16


def test_crop_and_keep_roll_back():
    cache, rows = KVCache(), torch.arange(8.0).view(1, 1, 8, 1)
    cache.update(rows, rows, 0)
    cache.length = 8
    cache.keep(3, [3, 4, 7])
    assert cache.length == 6 and cache.layers[0][0][0, 0, :6, 0].tolist() == [0, 1, 2, 3, 4, 7]
    cache.keep(5, [])
    cache.crop(2)
    assert cache.length == 2
    with pytest.raises(ValueError, match="crop to 3: the cache holds 2"):
        cache.crop(3)


def test_causal_masks_see_the_cache_and_the_past():
    assert causal(2, 1, torch.device("cpu")).tolist() == [[True, True, False], [True, True, True]]


def test_chunks_over_a_cache_equal_one_full_pass(random_pair):
    model, tokens = random_pair.target, torch.randint(2, 40, (1, 120))
    full = model.network(input_ids=tokens).logits
    cache, parts = model.cache(16), []
    for piece in tokens.split([70, 1, 49], dim=1):
        parts.append(model.logits(model.forward(piece, cache)))
    torch.testing.assert_close(torch.cat(parts, 1), full, atol=1e-4, rtol=0)
    cache.crop(70)
    torch.testing.assert_close(model.logits(model.forward(tokens[:, 70:71], cache)), full[:, 70:71], atol=1e-4, rtol=0)


def test_passes_are_counted(random_pair):
    before = random_pair.draft.passes
    random_pair.draft.forward(torch.tensor([[2, 3]]), random_pair.draft.cache())
    assert random_pair.draft.passes == before + 1

"""The cache: growth, crop, gather; and masks and positions through a real network against plain
full-context passes.
"""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.functional import linear
from torch.testing import assert_close

from speclab.decode import score_tree
from speclab.model import KVCache
from speclab.models.model import Projection
from speclab.tree import Tree

pytestmark = pytest.mark.numeric


def test_the_cache_grows_by_doubling_and_rolls_back():
    cache, rows = KVCache(capacity=2), torch.randn(1, 2, 9, 4)
    for start, end in ((0, 2), (2, 3), (3, 9)):
        new = rows[..., start:end, :]
        keys, values = cache.update(new, -new, 0)
        cache.length = end
    assert torch.equal(keys, rows) and torch.equal(values, -rows)
    assert cache.capacity == 16
    cache.keep(3, [3, 4, 7])
    kept = cache.layers[0][0][..., : cache.length, :]
    assert torch.equal(kept, rows[..., [0, 1, 2, 3, 4, 7], :])
    cache.keep(5, [])
    cache.crop(2)
    with pytest.raises(ValueError, match="crop to 3: the cache holds 2"):
        cache.crop(3)


@st.composite
def trees(draw):
    """Any tree of 1 to 12 nodes, breadth-first, ranks among siblings from 0."""
    parents = [-1]
    for node in range(1, draw(st.integers(1, 12)) + 1):
        parents.append(draw(st.integers(parents[-1] if node > 1 else 0, node - 1)))
    rank = [parents[:node].count(parent) for node, parent in enumerate(parents)]
    depth = [0]
    for parent in parents[1:]:
        depth.append(depth[parent] + 1)
    return Tree(np.array(parents), np.array(rank), np.array(depth))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tree=trees(),
    trunk=st.lists(st.integers(2, 39), min_size=1, max_size=90),
    nodes=st.lists(st.integers(2, 39), min_size=12, max_size=12),
)
def test_any_packed_tree_scores_as_its_paths_do(random_pair, tree, trunk, nodes):
    model, cache = random_pair.target, random_pair.target.cache()
    tokens = np.array([trunk[-1], *nodes[: tree.size]])
    if len(trunk) > 1:
        model.forward(torch.tensor([trunk[:-1]]), cache)
    packed = score_tree(model, cache, trunk, tree, tokens)
    for node in range(tree.size + 1):
        path = tokens[tree.ancestors[node]].tolist()
        alone = model.forward(torch.tensor([[*trunk[:-1], *path]]), model.cache())
        wanted = model.logits(alone[0, -1])
        assert_close(packed[node], wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("out", [5, 40])
@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 2), (1, 6), (1, 32), (1, 33), (2, 40), (7,)])
def test_a_projection_equals_torchs_for_any_number_of_tokens(shape, out):
    torch.manual_seed(0)
    weight, bias = torch.randn(out, 16), torch.randn(out)
    plain, biased = Projection(weight), Projection(weight, bias)
    for x in (torch.randn(*shape, 16), torch.randn(16, *shape).movedim(0, -1)):
        expected = linear(x.double(), weight.double()).float()
        assert_close(plain(x), expected, atol=1e-5, rtol=0)
        assert_close(biased(x), expected + bias, atol=1e-5, rtol=0)


def test_a_projection_is_torchs_own_in_half_precision_and_without_onednn(monkeypatch):
    x, weight = torch.randn(1, 5, 16), torch.randn(40, 16)
    half = x.bfloat16(), weight.bfloat16()
    assert torch.equal(Projection(half[1])(half[0]), linear(*half))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert torch.equal(Projection(weight)(x), linear(x, weight))

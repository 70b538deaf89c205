"""The cache: growth, crop, gather; and masks and positions through a real network against plain
full-context passes.
"""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speclab.models.model import KVCache, Projection, over_trunk
from speclab.tree import Tree


def test_the_cache_grows_by_doubling_and_keeps_what_it_holds():
    cache, rows = KVCache(capacity=2), torch.randn(1, 2, 9, 4)
    for start, end in ((0, 2), (2, 3), (3, 9)):
        keys, values = cache.update(
            rows[..., start:end, :], -rows[..., start:end, :], 0
        )
        cache.length = end
    assert (
        torch.equal(keys, rows) and torch.equal(values, -rows) and cache.capacity == 16
    )


def test_crop_and_keep_roll_back():
    cache, rows = KVCache(), torch.arange(8.0).view(1, 1, 8, 1)
    cache.update(rows, rows, 0)
    cache.length = 8
    cache.keep(3, [3, 4, 7])
    assert cache.length == 6 and cache.layers[0][0][0, 0, :6, 0].tolist() == [
        0,
        1,
        2,
        3,
        4,
        7,
    ]
    cache.keep(5, [])
    cache.crop(2)
    assert cache.length == 2
    with pytest.raises(ValueError, match="crop to 3: the cache holds 2"):
        cache.crop(3)


def test_chunks_over_a_cache_equal_one_full_pass(random_pair):
    model, tokens = random_pair.target, torch.randint(2, 40, (1, 120))
    full = model.network(input_ids=tokens).logits
    cache, parts = model.cache(16), []
    for piece in tokens.split([70, 1, 49], dim=1):
        parts.append(model.logits(model.forward(piece, cache)))
    torch.testing.assert_close(torch.cat(parts, 1), full, atol=1e-4, rtol=0)
    cache.crop(70)
    torch.testing.assert_close(
        model.logits(model.forward(tokens[:, 70:71], cache)),
        full[:, 70:71],
        atol=1e-4,
        rtol=0,
    )


def test_passes_are_counted(random_pair):
    before = random_pair.draft.passes
    random_pair.draft.forward(torch.tensor([[2, 3]]), random_pair.draft.cache())
    assert random_pair.draft.passes == before + 1


@st.composite
def trees(draw):
    """Any tree of 1 to 12 nodes, breadth-first, ranks among siblings from 0."""
    parents = [-1]
    for node in range(1, draw(st.integers(1, 12)) + 1):
        parents.append(draw(st.integers(parents[-1] if node > 1 else 0, node - 1)))
    rank = [0] + [
        parents[1 : n + 1].count(parents[n]) - 1 for n in range(1, len(parents))
    ]
    depth = [0]
    for parent in parents[1:]:
        depth.append(depth[parent] + 1)
    return Tree(np.array(parents), np.array(rank), np.array(depth))


@settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    tree=trees(),
    trunk=st.lists(st.integers(2, 39), min_size=1, max_size=90),
    data=st.data(),
)
def test_any_packed_tree_scores_as_its_paths_do(random_pair, tree, trunk, data):
    model, nodes = (
        random_pair.target,
        data.draw(st.lists(st.integers(2, 39), min_size=tree.size, max_size=tree.size)),
    )
    tokens = np.array([trunk[-1], *nodes])
    cache = model.cache()
    if len(trunk) > 1:
        model.forward(torch.tensor([trunk[:-1]]), cache)
    start = len(trunk) - 1
    visible = over_trunk(start, torch.from_numpy(tree.ancestors))
    assert visible[:, :start].all() and visible.shape == (
        tree.size + 1,
        start + tree.size + 1,
    )
    packed = model.logits(
        model.forward(
            torch.from_numpy(tokens)[None],
            cache,
            torch.from_numpy(start + tree.depth),
            visible,
        )[0]
    )
    for node in range(tree.size + 1):
        path = tokens[np.nonzero(tree.ancestors[node])[0]].tolist()
        alone = model.logits(
            model.forward(torch.tensor([[*trunk[:-1], *path]]), model.cache())[0, -1]
        )
        torch.testing.assert_close(packed[node], alone, atol=1e-4, rtol=1e-4)


@given(trees())
def test_levels_tell_what_a_draft_runs(tree):
    """Against the definition, node by node."""
    run = [node for level in tree.levels for node in level.parents]
    assert run == [node for node in range(tree.size + 1) if len(tree.children(node))]
    before = []
    for depth, level in enumerate(tree.levels):
        before += [node for node in level.parents if node]
        for place, parent in enumerate(level.parents):
            assert tree.depth[parent] == depth
            assert level.widths[place] == tree.rank[tree.children(parent)].max() + 1
            for column, node in enumerate(before):
                assert level.sees[place, column] == tree.ancestors[parent, node]
        assert level.sees.shape == (len(level.parents), len(before))
        for child, row, rank in zip(level.children, level.row, level.rank, strict=True):
            assert level.parents[row] == tree.parent[child] and rank == tree.rank[child]
    made = [child for level in tree.levels for child in level.children]
    assert made == list(range(1, tree.size + 1))


@pytest.mark.parametrize("out", [5, 40])
@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 1), (1, 2), (1, 6), (3, 2), (1, 32), (1, 33), (2, 40), (7,)]
)
def test_a_projection_equals_torchs_for_any_number_of_tokens(shape, out):
    torch.manual_seed(0)
    weight, bias = torch.randn(out, 16), torch.randn(out)
    plain, biased = Projection(weight), Projection(weight, bias)
    assert plain.out_features == out
    for x in (torch.randn(*shape, 16), torch.randn(16, *shape).movedim(0, -1)):
        expected = torch.nn.functional.linear(x.double(), weight.double())
        found = plain(x)
        assert found.shape == (*shape, out)
        torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(biased(x), found + bias, atol=1e-5, rtol=0)


def test_a_projection_in_half_precision_is_torchs_own():
    x, weight = torch.randn(1, 2, 16).bfloat16(), torch.randn(40, 16).bfloat16()
    assert torch.equal(Projection(weight)(x), torch.nn.functional.linear(x, weight))


def test_a_projection_is_torchs_own_where_onednn_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    x, weight = torch.randn(1, 5, 16), torch.randn(40, 16)
    assert torch.equal(Projection(weight)(x), torch.nn.functional.linear(x, weight))

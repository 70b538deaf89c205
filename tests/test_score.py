"""Estimators against hand-computed numbers on the paper's tree, and against a literal walk."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from conftest import refuses
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from speclab import score, stats
from speclab.lab.published import best_path_accept_by_depth
from speclab.plain import DOMAINS

PARENT, RANK, DEPTH = ([0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 0, 1, 0, 1, 0, 1], [1, 1, 2, 2, 2, 2, 3, 3])
BEST = [True, False, True, False, False, False, True, False]
ALPHA = np.array([0.5, 1.0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.0])


def tree_nodes(target_prob, target_rank, prompt_id="p", position=0, domain="code", draft_prob=0.5):
    """The paper's tree of 2 + 4 + 2 nodes at one position."""
    frame = pd.DataFrame(
        {"node": range(1, 9), "parent": PARENT, "depth": DEPTH, "rank": RANK, "best_path": BEST}
    )
    frame = frame.assign(
        target_prob=target_prob,
        target_rank=target_rank,
        draft_prob=draft_prob,
        target_entropy=[1.0] * 2 + [2.0] * 6,
    )
    return frame.assign(prompt_id=prompt_id, position=position, domain=domain)


@pytest.mark.parametrize(
    ("there", "order"),
    [
        (["returns", "chat", "app"], ["returns", "chat", "app"]),
        (["chat", "math"], ["math", "chat"]),  # the kit's own four
    ],
)
def test_domains_keep_the_order_of_the_prompts(there, order):
    frame = pd.concat([tree_nodes(ALPHA / 2, 0, domain=domain) for domain in [*there, *there]])
    assert score.domains_in(frame) == tuple(order)


def hand_nodes():
    """Two positions. The walk accepts nodes 1 and 4 at the first, and only node 2 at the second
    (node 7 is below a rejected node).
    """
    first = tree_nodes(ALPHA / 2, [0, 1, 1, 0, 1, 0, 0, 1])
    second = tree_nodes(ALPHA / 2, [1, 0, 0, 1, 1, 2, 0, 1], position=1)
    return pd.concat([first, second], ignore_index=True)


def make_run(prompts=6, positions=5, seed=0, shift=0.0):
    """A random run of all four domains; `shift` raises the first domain's target probability."""
    rng = np.random.default_rng(seed)
    places = product(DOMAINS, range(prompts), range(positions))
    at = pd.DataFrame(places, columns=["domain", "prompt_id", "position"])
    at["prompt_id"] = at["domain"] + "-" + at["prompt_id"].astype(str)
    ease = np.repeat(rng.uniform(0.2, 0.8, 4 * prompts), positions)
    ease += shift * (at["domain"] == DOMAINS[0]).to_numpy()
    size = len(at)
    trace = at.assign(
        overlap=rng.random(size) * ease,
        draft_rank=rng.integers(0, 5, size),
        target_entropy=rng.random(size),
        token=0,
    )
    trace["hit"] = trace["draft_rank"] == 0
    trace["top_draft_p"] = list(np.sort(rng.dirichlet(np.ones(9), size))[:, :0:-1])
    shape = tree_nodes(0.5, 0)[["node", "parent", "depth", "rank", "best_path", "draft_prob"]]
    ranks = np.repeat(rng.integers(0, 2, (size, 4)), 2, axis=1) ^ np.array(RANK)
    nodes = at.merge(shape, how="cross").assign(
        target_rank=(ranks + (rng.random(size) > ease)[:, None]).ravel(),
        target_prob=np.clip(rng.random((size, 8)) * ease[:, None], 0.001, 1).ravel(),
        target_entropy=rng.random(8 * size),
    )
    return SimpleNamespace(nodes=nodes.assign(token=nodes["rank"]), trace=trace)


def test_published_estimators_by_hand():
    nodes = hand_nodes()
    assert_allclose(score.ratio(nodes), np.tile(ALPHA, 2))
    assert score.published_alpha(nodes) == pytest.approx(4.5 / 8)
    assert_allclose(score.ratio_by_depth(nodes), [0.75, 0.5, 0.5])
    assert_allclose(score.published_chain(nodes), [0.75, 0.375, 0.1875])
    assert score.published_length(nodes) == pytest.approx(1.3125)
    assert score.best_path_ratio(nodes) == pytest.approx((0.5 + 0.2 + 1.0) / 3)


def test_alpha_is_capped_at_one_and_never_takes_nan_for_one():
    nodes = tree_nodes([0.9] + [0.1] * 7, [0] * 8)
    assert score.ratio(nodes)[0] == 1.0
    with refuses("'target_prob' has 1 values that are not finite"):
        score.published_alpha(nodes.assign(target_prob=[0.9, 0.1, np.nan] + [0.1] * 5))
    with refuses("undefined in 8 of 8"):
        score.ratio(nodes.assign(draft_prob=-0.1))


def test_where_q_is_zero_what_depends_on_it_is_undefined_and_says_so():
    nodes = hand_nodes()
    nodes.loc[nodes["node"] == 8, "draft_prob"] = 0.0  # at the last depth
    assert_allclose(score.ratio_by_depth(nodes), [0.75, 0.5, np.nan])
    for estimator in (score.published_alpha, score.published_length):
        found = stats.jointly({"": (nodes, estimator)}).table().frame
        assert found["estimate"].isna().all() and found["note"].eq(stats.NO_NUMBER).all()
    with refuses("'ratio' has 2 values that are not finite"):
        score.column_of(nodes, "ratio")


def test_walks_by_hand():
    nodes = hand_nodes()
    assert score.reach(nodes).tolist() == [1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    by_depth = pd.Series(score.reach(nodes, "point-mass")).groupby(nodes["depth"]).sum()
    assert by_depth.to_numpy() / 2 == pytest.approx([0.75, 0.425, 0.0125])
    greedy, point_mass = map(best_path_accept_by_depth, ("greedy", "point-mass"))
    assert_allclose(greedy(nodes), [0.5, 0, np.nan])
    assert_allclose(point_mass(nodes), [0.25, 0.1, 0.5])


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_reach_equals_a_literal_walk_in_any_row_order(seed):
    rng = np.random.default_rng(seed)
    trees = [tree_nodes(rng.random(8), rng.integers(0, 2, 8), position=t) for t in range(4)]
    nodes = pd.concat(trees).sample(frac=1, random_state=seed)
    table = {(node.position, node.node): node for node in nodes.itertuples()}
    expected = []
    for node in nodes.itertuples():
        greedy = point_mass = 1.0
        while node:
            greedy *= node.target_rank == 0
            point_mass *= node.target_prob
            node = table.get((node.position, node.parent))
        expected.append((greedy, point_mass))
    reached = [score.reach(nodes, rule) for rule in ("greedy", "point-mass")]
    assert_allclose(np.transpose(reached), expected)


def test_reach_refuses_broken_trees():
    nodes = hand_nodes()
    with refuses("parents of 2 nodes are missing"):
        score.reach(nodes.iloc[:8].drop(index=2))
    with refuses(r"no column.*target_rank"):
        score.reach(nodes.drop(columns="target_rank"))


def test_an_empty_frame_is_named():
    with refuses("frame is empty"):
        score.published_alpha(hand_nodes().iloc[:0])

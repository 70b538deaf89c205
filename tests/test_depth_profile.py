"""Depth: the chain's conditional shares against the ladder's own, mixtures by hand, and the words
that the numbers get.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from test_score import make_run, tree_nodes

from speclab import score
from speclab.studies import depth_profile as study


def uneven(positions=1) -> SimpleNamespace:
    """Five prompts of one domain; nodes under the best path are worth 0.6, the others 0.4."""
    parent = tree_nodes(0, 0)["parent"]
    worth = np.where(parent.isin([0, 1, 3]), 0.6, 0.4)
    nodes = [
        tree_nodes(worth, 0, f"p{i}", position, draft_prob=1.0)
        for i in range(5)
        for position in range(positions)
    ]
    return SimpleNamespace(nodes=pd.concat(nodes, ignore_index=True), trace=None)


@pytest.mark.parametrize("rule", ["greedy", "point-mass"])
def test_the_chain_has_the_conditional_shares_of_the_ladder(rule):
    chain = study.best_path_chain(make_run().nodes, rule)
    ladder = score.tree_estimators(rule)["accept_by_depth"](chain)
    for depth, rows in chain.groupby("depth"):
        own = study.ALONG["accept_by_depth"](rows)
        assert own == pytest.approx(ladder[depth])
        gain = study.ALONG[study.GAIN](rows)
        assert gain == pytest.approx(own - study.ALONG["unconditional"](rows))


def test_survival_along_the_best_path_never_rises():
    run = make_run()
    steps = study.along_best_path(run, run)
    assert set(steps.frame["text"]) == {"T = 0", "T = 1"}
    survival = steps.at(name="survival_by_depth").defined()
    assert (survival.steps("depth") <= 1e-12).all()
    first = steps.at(depth=1, name="unconditional").frame["estimate"]
    assert (
        first.tolist()
        == steps.at(depth=1, name="accept_by_depth").frame["estimate"].tolist()
    )


def test_a_mixture_bends_though_nothing_depends_on_depth():
    cut = uneven()
    means = study.mixtures(cut, cut)
    assert means.at(name="under the best path").span() == "0.600 to 0.600"
    table = study.mixture_table(means, cut, cut)
    assert table["other branches, 2 + 4 + 2"].tolist() == [0, 0.5, 0]
    assert table["all nodes, 2 + 4 + 2"].tolist() == pytest.approx([0.6, 0.5, 0.6])
    assert study.mixing_error(table, "2 + 4 + 2") < 1e-9
    assert study.mixing_error(table + 0.1, "2 + 4 + 2") > 0.01, "a wrong share is seen"
    assert study.cut_at_the_end(cut, cut).estimate == 0


def test_kinds_of_node_and_their_changes_are_paired():
    run = make_run(positions=6)
    tokens = run.trace["top_draft_p"].map(len).max()
    assert tokens >= 2
    kinds = study.kinds(run, run, run, 3, 2)
    profiles, changes = study.by_depth(kinds), study.change_by_kind(kinds)
    for name in list(kinds)[:4]:
        rows = profiles.at(name=name, domain="chat").frame.set_index("depth")[
            "estimate"
        ]
        assert changes.at(name=name, domain="chat").value == pytest.approx(
            rows[3] - rows[1]
        )


def test_the_heat_map_holds_every_cell():
    nodes = make_run(positions=5).nodes
    size = study.bin_size(nodes, 2)
    assert size == 2 and study.bin_size(nodes, 4) == 4
    cells = study.heat_map(nodes, size).set_index(
        ["estimator", "depth", "domain", "bin"]
    )
    part = nodes[
        (nodes["domain"] == "chat") & (nodes["depth"] == 3) & (nodes["position"] >= 4)
    ]
    assert len(cells) == 2 * 3 * 5 * 3
    value = cells.loc[("published_alpha", 3, "chat", 2), "mean"]
    assert value == pytest.approx(score.published_alpha(part))
    pooled = nodes[(nodes["depth"] == 1) & (nodes["position"] < 2)]
    value = cells.loc[("published_alpha", 1, score.ALL, 0), "mean"]
    assert value == pytest.approx(score.published_alpha(pooled))


def test_a_smooth_curve_of_a_constant_is_flat_and_ends_with_the_fifth_text():
    frame = pd.DataFrame(
        [
            ("code", f"p{i}", t, 0.5)
            for i in range(6)
            for t in range(9 if i < 5 else 40)
        ],
        columns=["domain", "prompt_id", "position", "x"],
    )
    found = study.smooth(frame, score.mean_of("x"), 4.0)
    assert found["estimate"].to_numpy() == pytest.approx(0.5)
    assert found.loc[found["domain"] == "code", "token"].max() == 9
    along = study.along_text({"x": (frame, score.mean_of("x"))}, 4.0, 20)
    assert along.at(domain=study.BINS).frame["token"].tolist() == [10, 30]


def test_each_estimator_is_asked_of_the_text_of_its_temperature():
    cut, warm = make_run(positions=6), make_run(positions=4, seed=1)
    asked = study.asked_of_texts(cut, warm)
    assert [len(frame) for frame, _ in asked.values()] == [
        len(cut.nodes),
        len(cut.trace),
        len(warm.trace),
    ]
    kinds = study.kinds(cut, cut, warm, 3, 2)
    for text, run in (("T = 0", cut), ("T = 1", warm)):
        rows, family = kinds[study.BEST_PATH[text]]
        assert rows is run.nodes
        chain = score.tree_estimators(study.RULES[text])["accept_by_depth"]
        expected = chain(rows[rows["best_path"]])
        np.testing.assert_allclose(family(rows), expected)


def test_position_effects_compare_the_same_prompts():
    rows = [
        (f"{domain}{i}", domain, t, float(t >= 32))
        for domain, long in (("code", 6), ("chat", 4))
        for i in range(6)
        for t in range(40 if i < long else 10)
    ]
    frame = pd.DataFrame(rows, columns=["prompt_id", "domain", "position", "x"])
    asked = {"x": (frame, score.mean_of("x"))}
    effects = study.position_effects(asked)
    assert effects["domain"].tolist() == ["code"], "chat has four long texts only"
    assert effects["estimate"].tolist() == [1.0]
    short = {"x": (frame[frame["position"] < 9], score.mean_of("x"))}
    none = study.position_effects(short)
    assert len(none) == 0 and len(study.effects_found(none, 0.05)) == 0


def test_long_texts_are_enough_when_every_domain_that_has_any_has_five():
    nodes = make_run(positions=34).nodes
    assert study.enough(study.long_texts(nodes))
    few = nodes[
        (nodes["position"] < 32) | ~nodes["prompt_id"].isin(["chat-0", "chat-1"])
    ]
    assert not study.enough(study.long_texts(few))
    assert not study.enough(study.long_texts(nodes[nodes["position"] < 32]))

"""Depth: the chain's shares against the ladder's own, mixtures by hand, the place in the text."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from frames import text_of
from test_score import make_run, tree_nodes

from speclab import score
from speclab.studies import depth_profile as study


def warm_and_cold(positions=6):
    return text_of(make_run(positions=positions)), text_of(make_run(seed=1), 1.0)


def test_the_best_path_has_the_conditional_shares_of_the_ladder():
    texts = warm_and_cold()
    steps = study.along_best_path(texts)
    for text in texts:
        chain = text.nodes[text.nodes["best_path"] & (text.nodes["domain"] == "chat")]
        ladder = score.tree_estimators(text.rule)["accept_by_depth"](chain)
        own = steps.at(text=text.name, domain="chat")
        found = own.frame.pivot(index="depth", columns="name", values="estimate")
        assert found["accept_by_depth"].tolist() == pytest.approx(ladder.tolist())
        gain = found["accept_by_depth"] - found["unconditional"]
        np.testing.assert_allclose(found[study.GAIN], gain)
        assert found.loc[1, study.GAIN] == 0, "nothing is above depth 1"
    survival = steps.at(name="survival_by_depth").defined()
    assert (survival.steps("depth") <= 1e-12).all()


def test_a_mixture_bends_though_nothing_depends_on_depth():
    """Nodes under the best path are worth 0.6, the others 0.4."""
    worth = np.where(tree_nodes(0, 0)["parent"].isin([0, 1, 3]), 0.6, 0.4)
    nodes = [tree_nodes(worth, 0, f"p{i}", 0, draft_prob=1.0) for i in range(5)]
    nodes = pd.concat(nodes, ignore_index=True)
    trace = make_run().trace
    text = text_of(SimpleNamespace(nodes=nodes, trace=trace))
    means = study.mixtures([text]).at(tree="2 + 4 + 2")
    assert means.at(name="under the best path").span() == "0.600"
    assert means.at(name="under other branches").frame["depth"].tolist() == [2]
    every = means.at(name="all nodes").frame["estimate"]
    assert every.tolist() == pytest.approx([0.6, 0.5, 0.6])


def long_texts(last):
    """Six prompts a domain, of 40 tokens; of chat, four. Accepted: the first 8, and from 33 on."""
    rows = [
        (f"{domain}{i}", domain, t, t < 8 or t >= 32)
        for domain, long in (("code", 6), ("chat", 4))
        for i in range(6)
        for t in range(last if i < long else 10)
    ]
    frame = pd.DataFrame(rows, columns=["prompt_id", "domain", "position", "hit"])
    trace = frame.assign(draft_rank=np.where(frame.pop("hit"), 0, 1))
    return SimpleNamespace(nodes=make_run().nodes, trace=trace)


def test_position_effects_compare_the_same_prompts():
    effects = study.position_effects([text_of(long_texts(40))])
    assert set(effects["domain"]) == {"code"}, "chat has four long texts only"
    assert effects["what"].str[:8].tolist() == ["tokens 1", "tokens f"]
    assert effects["estimate"].tolist() == [1.0, 1.0]
    assert study.position_effects([text_of(long_texts(9))]).empty


def test_acceptance_along_the_text_has_the_first_tokens_apart():
    along = study.along_text([text_of(long_texts(40))])
    code = along.at(domain="code").frame
    assert code["tokens"].tolist() == ["1-8", "9-16", "17-32", "33-64"]
    assert code["estimate"].tolist() == [1, 0, 0, 1]

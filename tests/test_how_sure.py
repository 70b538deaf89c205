"""How sure: a text that is cut against a shorter one, and what a draft had seen."""

import pandas as pd
import pytest
from toy import record_block, table_of, toy_pair

from data.pairs.smollm import prepare
from speclab import score
from speclab.analysis.texts import Text
from speclab.profiles import load_profile
from speclab.prompts import EncodedPrompt, Prompt, training_prompts
from speclab.runs import profile_prompts
from speclab.sampling import Sampling
from speclab.studies import how_sure as study
from speclab.tree import static_tree

TREE = static_tree(3, 2, 8)


def recorded(max_new_tokens, prompts=20):
    """Greedy texts of the toy pair; those of 8 new tokens are the beginnings of those of 16."""
    ids = [
        EncodedPrompt(f"p{i:02d}", "code" if i % 2 else "chat", (1 + i % 9, i // 9 + 1, 3), 0)
        for i in range(prompts)
    ]
    found = record_block(toy_pair(0.6), ids, TREE, Sampling(), max_new_tokens, 0, 4096)
    frames = {"trace": [], "nodes": []}
    for prompt, one in zip(ids, found, strict=True):
        who = {"prompt_id": prompt.prompt_id, "domain": prompt.domain, "seed": 0}
        for name, parts in frames.items():
            parts.append(table_of(getattr(one, name)).assign(**who))
    trace, nodes = (pd.concat(parts, ignore_index=True) for parts in frames.values())
    return Text(0.0, score.with_hits(trace), nodes)


@pytest.fixture(scope="module")
def short():
    return recorded(8)


@pytest.fixture(scope="module")
def long():
    return recorded(16)


@pytest.mark.parametrize("name", ["trace", "nodes"])
def test_a_cut_text_is_exactly_the_run_of_fewer_new_tokens(short, long, name):
    cut = getattr(long.cut(8), name).reset_index(drop=True)
    columns = [c for c in cut if cut[c].dtype != object]
    pd.testing.assert_frame_equal(cut[columns], getattr(short, name)[columns], atol=1e-6)
    assert len(cut) < len(getattr(long, name)), "some texts do go on"


# ---- seen ----------------------------------------------------------------------------------------


def test_seen_by_hand(monkeypatch):
    own = [Prompt("x", "chat", "one two three four, FIVE"), Prompt("y", "chat", "six")]
    monkeypatch.setattr(study.runs, "profile_prompts", lambda profile: own)
    known = [Prompt("t1", "chat", "two three four"), Prompt("t2", "chat", "a one two three four")]
    found = study.seen(load_profile("smollm"), known)
    assert found["seen"].tolist() == pytest.approx([2 / 3, 0])
    assert found["nearest"].iloc[0] == "t2"


def test_a_prompt_that_was_trained_on_is_seen_whole():
    profile = load_profile("smollm", {"prompts_per_domain": 2})
    found = study.seen(profile, [*training_prompts(5, 0), *profile_prompts(profile)])
    assert (found["seen"] == 1).all()


def test_the_composed_prompts_are_those_that_the_draft_was_trained_on():
    profile = load_profile("smollm")
    known = profile.notes.trained_on
    assert (known.seed, known.composed) == (prepare.SEED, prepare.COMPOSED)
    assert len(study.composed_prompts(profile)) == sum(prepare.COMPOSED.values())
    assert study.composed_prompts(load_profile("tiny")) == []

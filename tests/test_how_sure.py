"""How sure: a text that is cut against a shorter one, and what a draft had seen."""

from types import SimpleNamespace

import pandas as pd
import pytest
from frames import text_of
from toy import plain, recorded_tables, toy_pair

from data.pairs.smollm import prepare
from speclab.profiles import load_profile
from speclab.prompts import EncodedPrompt, Prompt
from speclab.studies import how_sure as study
from speclab.tree import static_tree

TREE = static_tree(3, 2, 8)


def recorded(new_tokens, prompts=20):
    """Greedy texts of the toy pair; those of 8 new tokens are the beginnings of those of 16."""
    pair, parts = toy_pair(0.6), []
    for i in range(prompts):
        ids, domain = (1 + i % 9, i // 9 + 1, 3), "code" if i % 2 else "chat"
        prompt = EncodedPrompt(f"p{i:02d}", domain, ids, 0)
        parts.append(recorded_tables(pair, prompt, plain(pair, prompt, new_tokens), TREE))
    trace, nodes = (pd.concat([part[name] for part in parts]) for name in ("trace", "nodes"))
    return text_of(SimpleNamespace(trace=trace, nodes=nodes))


@pytest.mark.parametrize("name", ["trace", "nodes"])
def test_a_cut_text_is_exactly_the_run_of_fewer_new_tokens(name):
    long, short = recorded(16), recorded(8)
    cut, wanted = (getattr(text, name).reset_index(drop=True) for text in (long.cut(8), short))
    columns = [c for c in cut if cut[c].dtype != object]
    pd.testing.assert_frame_equal(cut[columns], wanted[columns], atol=1e-6)
    assert len(cut) < len(getattr(long, name)), "some texts do go on"


# ---- seen ----------------------------------------------------------------------------------------


def test_seen_by_hand(monkeypatch):
    own = [Prompt("x", "chat", "one two three four, FIVE"), Prompt("y", "chat", "six")]
    monkeypatch.setattr(study.runs, "profile_prompts", lambda profile: own)
    known = [Prompt("t1", "chat", "two three four"), Prompt("t2", "chat", "a one two three four")]
    found = study.seen(load_profile("smollm"), known)
    assert found["seen"].tolist() == pytest.approx([2 / 3, 0])
    assert found["nearest"].iloc[0] == "t2"


def test_the_composed_prompts_are_those_that_the_draft_was_trained_on():
    profile = load_profile("smollm")
    known = profile.notes.trained_on
    assert (known.seed, known.composed) == (prepare.SEED, prepare.COMPOSED)
    assert len(study.composed_prompts(profile)) == sum(prepare.COMPOSED.values())
    assert study.composed_prompts(load_profile("tiny")) == []

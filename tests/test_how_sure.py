"""Notebook 13's study: a truncated text against a shorter one, and the prompts that a draft has
seen.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from frames import text_of
from toy import plain, recorded_tables, toy_pair

from data.pairs.smollm import prepare
from speclab.estimates import Estimates
from speclab.profiles import load_profile
from speclab.prompts import EncodedPrompt, Prompt
from speclab.show import notebook
from speclab.studies import how_sure as study
from speclab.tree import static_tree

TREE = static_tree(3, 2, 8)


def recorded(new_tokens, prompts=20):
    """Greedy texts of the toy pair. The texts of 8 new tokens are the beginnings of those of 16."""
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


# ---- sizes ---------------------------------------------------------------------------------------


def test_coverage_is_that_of_the_next_fewer_prompts_that_were_simulated():
    rows = pd.DataFrame({"n_prompts": [5, 10, 50], "estimate": [90.0, 93, 96]})
    used = Estimates(rows.assign(low=0.0, high=100.0), digits=0)
    found = [study.coverage_at(used, sizes) for sizes in ([50], [9, 5], [7, 49], [300])]
    assert found == ["96", "90", "90 to 93", "96"]
    assert study.sizes_in_words([5, 9, 5]) == "5 to 9 prompts per domain"


@pytest.mark.parametrize("sizes", [[50], [5, 10]])
@pytest.mark.parametrize("coverage", ["96", "90 to 94"])
def test_the_answer_is_short_in_every_branch(sizes, coverage):
    plans = [pd.DataFrame({"power": power}) for power in ([np.nan], [0.05], [0.05, 0.7])]
    least = [pd.DataFrame({"least": numbers}) for numbers in ([np.nan], [0.05, 0.6])]
    said = [study.power_in_words(rows, "published_alpha") for rows in plans]
    said += [study.detectable_in_words(rows, 0.8) for rows in least]
    for planned in said:
        answer = study.coverage_in_words(sizes, coverage, planned)
        assert not notebook.too_long(answer), answer
        assert answer.endswith(f"simulated studies. {planned}")


def test_every_method_has_its_look():
    _, covered = study.coverage_of("smollm")
    assert {*covered["method"]} == {*study.LOOKS}


def test_seeds_differ_or_not_in_words():
    said = [study.seeds_in_words(p, 0.05) for p in (0.0002, 0.255)]
    assert said[0] == "The seeds differ significantly (p = 0.0002), and we know no cause."
    assert said[1] == "The seeds do not differ significantly (p = 0.26)."

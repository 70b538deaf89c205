"""Notebook 06's study: contrasts and standardised means against hand-computed cases or independent
computations.
"""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from frames import frame_of, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_score import make_run

from speclab.analysis.published import CORRECTED, OURS
from speclab.analysis.texts import PAPER, Text
from speclab.estimates import Estimates
from speclab.profiles import load_profile
from speclab.studies import entropy_paradox as study

# x by domain and group: chat is 0.1 higher in either group, and meets the harder one less often
MIXED = frame_of(
    code=[("a", 0.2)] * 3 + [("b", 0.8)],
    math=[("a", 0.2)] * 3 + [("b", 0.8)],
    chat=[("a", 0.3), ("b", 0.9)],
)


def explained(frame, group="group"):
    tests = {("x", group): lambda: study.matched(frame, "x", group)}
    return study.explanations(tests, "chat").frame.set_index("stage")


def test_a_standardised_mean_by_hand():
    """Of all rows 0.7 are of group a: 0.7 · 0.2 + 0.3 · 0.8 in code, crude 0.35."""
    (kept, mean), (_, equal) = study.matched(MIXED, "x", "group")
    code = kept[kept["domain"] == "code"]
    assert (mean(code), equal(code)) == pytest.approx((0.35, 0.38))
    assert np.isnan(equal(code[code["group"] == "a"])), "a level without rows"


def test_standardising_removes_what_the_mix_made_and_only_that():
    found = explained(MIXED)
    assert found["estimate"].to_dict() == pytest.approx(
        {"before": 0.6 - 0.35, "after": 0.1, "change": -0.15}
    )
    change = found.loc["change"]
    assert (change["low"], change["high"]) == pytest.approx((-0.15, -0.15))


def test_matching_keeps_what_all_domains_share_and_refuses_a_single_level():
    frame = frame_of(
        code=[("a", 1.0), ("b", 1.0), ("d", 2.0), ("d", 2.0)],
        chat=[("a", 1.0), ("c", 1.0), ("d", 2.0)],
    )
    (before, _), (after, _) = study.matched(frame, "x", "group")
    assert set(before["group"]) == {"a", "d"} and len(before) == 25 and after is before
    frame.loc[0, "group"] = "b"  # code: a in four prompts only, so that d alone is left
    with pytest.raises(ValueError, match="every domain, and there are 1"):
        study.matched(frame, "x", "group")
    failed = explained(frame)
    assert failed["estimate"].isna().all()
    assert failed["note"].str.contains("there are 1").all()


tokens_of_texts = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 4)), min_size=2, max_size=40
)


@settings(max_examples=40)
@given(tokens_of_texts)
def test_frequency_elsewhere_is_a_count_over_the_other_prompts(rows):
    trace = pd.DataFrame(rows, columns=["prompt_id", "token"])
    if trace["prompt_id"].nunique() == 1:
        with pytest.raises(ValueError, match="one prompt"):
            study.frequency_elsewhere(trace)
        return
    slow = [(trace.loc[trace["prompt_id"] != p, "token"] == t).mean() for p, t in rows]
    np.testing.assert_allclose(study.frequency_elsewhere(trace), slow)


# ---- texts ---------------------------------------------------------------------------------------


@pytest.fixture
def texts():
    """Chat always hits at T = 0 and hardly overlaps at T = 1, so the two verdicts differ. Its draft
    outputs only ranks below 3.
    """
    run = make_run(prompts=6, positions=6)
    chat = run.trace["domain"] == "chat"
    trace = run.trace.assign(
        target_entropy=np.where(chat, 2.0, 1.0) + np.arange(len(chat)) % 5 / 100,
        token=np.random.default_rng(0).choice(3, len(chat), p=[0.5, 0.3, 0.2]),
    )
    others = np.where(np.arange(len(chat)) % 4, 1, 3)
    at_0 = trace.assign(draft_rank=np.where(chat, 0, others), overlap=0.9)
    at_1 = trace.assign(draft_rank=others, overlap=np.where(chat, 0.1, 0.9))
    return [
        study.with_tokens(text_of(made, t), list("abc"), 3, 2)
        for t, rows in ((0.0, at_0), (1.0, at_1))
        for made in [SimpleNamespace(trace=rows, nodes=run.nodes)]
    ]


def test_each_verdict_is_of_the_text_of_its_temperature(texts):
    leads = study.leads(texts, "chat")
    highest = leads.frame.groupby("view", sort=False)["share_highest"].min()
    _, at_0, at_1 = (part.value for _, part in leads.at(quantity="acceptance").groups("view"))
    assert highest.map(study.is_highest).tolist()[1:] == ["yes", "no"]
    assert (at_0, at_1) == pytest.approx((1, -0.8))
    tests = study.held_fixed(*texts, 2)
    (rows, _), _ = tests["drawn token (T = 1)", "token frequency"]()
    assert rows["overlap"].min() == 0.1, "sampled text"
    _, (rows, hit) = tests[PAPER, "exact measure"]()
    assert hit(rows[rows["domain"] == "chat"]) == 1, "greedy text"


def test_tokens_that_the_draft_cannot_say_are_left_out_of_the_count(texts):
    tests = study.held_fixed(*texts, 2)
    for text in texts:
        (rows, before), (_, after) = tests[text.token, study.VOCABULARY]()
        can_be_said = rows["draft_rank"] < 3
        accepted = rows[text.value].sum()
        assert 0 < can_be_said.sum() < len(rows)
        assert before(rows) == pytest.approx(accepted / len(rows))
        assert after(rows) == pytest.approx(accepted / can_be_said.sum())
    everything = [text.with_columns(said=1.0) for text in texts]
    named = {what for _, what in study.held_fixed(*everything, 2)}
    assert study.VOCABULARY not in named, "nothing to hold fixed: not a row of zeros"


# ---- the question --------------------------------------------------------------------------------


def test_the_domain_is_the_one_of_highest_entropy_or_the_one_that_is_named(texts):
    greedy, _ = texts
    assert study.asked_domain("", greedy) == "chat"
    assert study.asked_domain("code", greedy) == "code"
    with pytest.raises(ValueError, match="domain='caht': did you mean 'chat'"):
        study.asked_domain("caht", greedy)
    two = study.of_domains(greedy, ["math", "code"])
    assert set(two.nodes["domain"]) == {"math", "code"}
    assert study.asked_domain("", two) in ("math", "code")


@pytest.mark.parametrize(
    ("more", "template", "said"),
    [
        ({"messages": [{"role": "user", "content": "Hi."}]}, "chat", "conversations, which only"),
        ({"prompt": "apple " * 500}, "none", "tokens with the chat template"),
    ],
)
def test_prompts_that_cannot_be_given_in_the_other_format_are_said(
    tmp_path, more, template, said, monkeypatch
):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"prompt_id": "p", "domain": "tax"} | more))
    profile = load_profile("tiny", {"prompts": str(path), "template": template})
    monkeypatch.setattr(Text, "recorded", None)  # nothing is recorded
    text, why = study.in_other_format(profile)
    assert text is None and said in why


@pytest.mark.parametrize("names", [["lone"], ["a", "b"], [f"d{i}" for i in range(6)]])
def test_the_figure_has_every_domain_and_the_papers_panel_only_for_its_domains(names):
    quantities = ["alpha_mean", "target_entropy_mean"]
    table = pd.DataFrame(
        [(name, quantity) for name in names for quantity in quantities],
        columns=["domain", "quantity"],
    )
    table = table.assign(published=np.nan, **dict.fromkeys(CORRECTED + OURS, 0.5))
    rows = pd.DataFrame({"domain": names})
    texts = [Text(temperature, rows, rows) for temperature in (0.0, 0.7)]
    for published, panels in ((np.nan, 3), (0.5, 4)):
        tables = [table.assign(published=published)] * 2
        drawn = study.entropy_and_acceptance(*tables, texts)
        assert drawn["panel"].nunique() == panels
        assert drawn["domain"].unique().tolist() == names
    assert drawn["panel"].iloc[-1].endswith("drawn token (T = 0.7)")


def test_a_title_names_the_domains_of_highest_entropy_and_acceptance(texts):
    greedy, sampled = texts
    said = [study.highest_in_title(text) for text in (greedy, sampled)]
    assert said[0] == "At T = 0, chat has the highest entropy, chat the highest acceptance"
    assert said[1] == "At T = 1, chat has the highest entropy, code the highest acceptance"
    lone = study.of_domains(greedy, ["chat"])
    assert study.highest_in_title(lone) == "At T = 0, 100 % of the best tokens are accepted"


def test_the_factor_of_the_largest_change_is_named():
    numbers = [("a", "after", -0.2), ("a", "change", 0.1), ("b", "after", -0.5)]
    numbers.append(("b", "change", -0.2))
    found = pd.DataFrame(numbers, columns=["held_fixed", "stage", "estimate"])
    found = Estimates(found.assign(low=np.nan, high=np.nan))
    assert study.moves_in_words(found) == "With b held fixed, the difference is −50 points."
    title = "Holding b fixed changes the contrast of chat by −20 points"
    assert study.moves_in_title(found, "chat") == title


def test_the_last_set_is_named_and_no_other():
    rows = pd.DataFrame({"set": ["own prompts", "mine"], "estimate": [0.1, -0.1]})
    contrasts = Estimates(rows.assign(low=[0.05, -0.2], high=[0.2, -0.05]))
    assert study.elsewhere_in_words(contrasts) == "On the set mine this is negative."
    own = contrasts.at(set="own prompts")
    assert study.elsewhere_in_words(own) == "No other set has enough prompts."


def test_the_shares_of_the_kinds_of_a_domain_add_up_to_one(texts):
    greedy, _ = texts
    shares = study.shares_of_kinds(greedy)
    sums = shares.frame.groupby("domain")["estimate"].sum()
    assert sums.tolist() == pytest.approx([1] * len(sums))
    rows = greedy.trace
    counted = rows[rows["domain"] == "chat"]["kind"].value_counts(normalize=True)
    of_chat = shares.at(domain="chat").frame.set_index("kind")["estimate"]
    assert of_chat.to_dict() == pytest.approx(counted.to_dict())
    assert study.frequent(shares.without(domain="pooled")) == list(of_chat.index)

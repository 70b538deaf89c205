"""Notebook 06's study: contrasts and standardised means against hand-computed cases or independent
ones, and the words that they get.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from frames import frame_of, noisy
from hypothesis import given
from hypothesis import strategies as st
from test_score import make_run

from speclab import runs, score, stats
from speclab.analysis import rungs
from speclab.profiles import load_profile
from speclab.studies import chat_paradox as study

# ---- standardisation and contrasts ---------------------------------------------------------------


def test_standardised_mean_by_hand():
    """code holds three rows of a (0.2) and one of b (0.8): crude 0.35; with the reference's halves
    0.5.
    """
    frame = frame_of(
        code=[("a", 0.2)] * 3 + [("b", 0.8)], chat=[("a", 0.2), ("b", 0.8)]
    )
    reference = pd.DataFrame({"group": ["a", "b"]})
    code = frame[frame["domain"] == "code"]
    assert score.mean_of("x")(code) == pytest.approx(0.35)
    assert study.standardised_mean("x", "group", reference)(code) == pytest.approx(0.5)
    assert study.standardised_mean("x", "group", code)(code) == pytest.approx(0.35), (
        "to its own shares: nothing changes"
    )
    assert np.isnan(
        study.standardised_mean("x", "group", reference)(code[code["group"] == "a"])
    ), "a level without rows"


def test_standardising_removes_what_the_mix_made_and_only_that():
    frame = frame_of(
        code=[("a", 0.2)] * 3 + [("b", 0.8)],
        math=[("a", 0.2)] * 3 + [("b", 0.8)],
        chat=[("a", 0.3), ("b", 0.9)],
    )
    equal = study.standardised_mean("x", "group", frame)
    assert study.contrast(frame, score.mean_of("x"), "chat").estimate == pytest.approx(
        0.6 - 0.35
    )
    assert study.contrast(frame, equal, "chat").estimate == pytest.approx(0.1), (
        "the same 0.1 in both levels"
    )
    change = study.contrast_change((frame, score.mean_of("x")), (frame, equal), "chat")
    assert (change.estimate, change.low, change.high) == pytest.approx(
        (-0.15,) * 3
    ) and change.n_prompts == 15


def test_matched_keeps_what_all_domains_share():
    frame = frame_of(
        code=[("a", 1.0), ("b", 1.0), ("d", 2.0), ("d", 2.0)],
        chat=[("a", 1.0), ("c", 1.0), ("d", 2.0)],
    )
    (before, mean), (after, equal) = study.matched(frame, "x", "group")
    assert set(before["group"]) == {"a", "d"} and len(before) == 25 and after is before
    assert (mean(before), equal(before)) == pytest.approx((1.6, 1.6)), (
        "both domains together are the reference"
    )
    assert study.least_kept(
        lambda: study.matched(frame, "x", "group"), frame
    ) == pytest.approx(2 / 3)
    frame.loc[0, "group"] = "b"  # code: a in four prompts only, so that d alone is left
    with pytest.raises(ValueError, match="1 level of 'group'.*two or more"):
        study.matched(frame, "x", "group")


def test_explained_gives_before_after_and_change_or_the_reason():
    frame = frame_of(
        code=[("a", 0.2)] * 3 + [("b", 0.8)],
        math=[("a", 0.2)] * 3 + [("b", 0.8)],
        chat=[("a", 0.3), ("b", 0.9)],
    )
    found = study.explained(lambda: study.matched(frame, "x", "group"), "chat")
    assert list(found["estimate"]) == pytest.approx([0.25, 0.1, -0.15])
    apart = frame.assign(group=frame["domain"])
    failed = study.explained(lambda: study.matched(apart, "x", "group"), "chat")
    assert failed["estimate"].isna().all()


def test_contrast_by_hand():
    frame = frame_of(
        code=[("a", 0.1)], math=[("a", 0.3)], reasoning=[("a", 0.5)], chat=[("a", 0.7)]
    )
    found = study.contrast(frame, score.mean_of("x"), "chat")
    assert vars(found) == pytest.approx(
        {
            "estimate": 0.4,
            "low": 0.4,
            "high": 0.4,
            "n_prompts": 20,
            "share_highest": 1.0,
        }
    )


def test_contrast_interval_equals_brute_force():
    frame, estimator = noisy(), score.mean_of("signal")
    prompts = stats.resampling_of(frame)
    draws = []
    for weight in prompts.weights[1:]:
        part = frame.iloc[
            np.repeat(np.arange(len(frame)), weight[prompts.rows].astype(int))
        ]
        draws.append(
            part.groupby("domain")["signal"].mean()[["chat", "code"]].to_numpy()
        )
    chat, code = np.array(draws).T
    found = study.contrast(frame, estimator, "chat")
    assert [found.low, found.high] == pytest.approx(
        np.quantile(chat - code, stats.levels_of(min(np.bincount(prompts.domain))))
    )
    assert found.share_highest == (chat > code).mean()


def test_bad_contrasts_say_what_is_wrong():
    frame, mean = (
        frame_of(code=[("a", 1.0), ("b", 2.0)], chat=[("a", 1.0)]),
        score.mean_of("x"),
    )
    with pytest.raises(ValueError, match="'poetry'"):
        study.contrast(frame, mean, "poetry")
    other = frame.replace({"prompt_id": {"chat-4": "chat-9"}})
    with pytest.raises(AssertionError, match="the same prompts"):
        study.contrast_change((frame, mean), (other, mean), "chat")


def test_a_level_that_most_resamples_lack_is_refused():
    frame = frame_of(code=[("a", 1.0)], chat=[("a", 1.0)])
    frame.loc[frame["prompt_id"].isin(["code-0", "chat-0"]), "group"] = "b"
    with pytest.raises(ValueError, match="too few rows"):
        study.contrast(frame, study.standardised_mean("x", "group", frame), "chat")


def test_contrasts_of_the_ladder():
    run = make_run()
    table = study.ladder_contrasts(run, "chat").set_index("estimator")
    found = rungs.ladder_intervals(run, n=5)
    ladder = found.pivot(index="estimator", columns="domain", values="estimate")
    for name in (
        "published_alpha",
        "alpha",
        "hit[2]",
        "ratio_by_rank[0]",
        "published_length",
        "mean_accepted",
    ):
        others = ladder.loc[name, ["code", "math", "reasoning"]].mean()
        assert table.loc[name, "estimate"] == pytest.approx(
            ladder.loc[name, "chat"] - others
        )
    assert (table["note"] == "").all() and table["share_highest"].between(0, 1).all()


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 4)), min_size=2, max_size=40
    )
)
def test_frequency_elsewhere_is_a_count_over_the_other_prompts(rows):
    trace = pd.DataFrame(rows, columns=["prompt_id", "token"])
    if trace["prompt_id"].nunique() > 1:
        slow = [
            (trace.loc[trace["prompt_id"] != p, "token"] == t).mean() for p, t in rows
        ]
        np.testing.assert_allclose(study.frequency_elsewhere(trace), slow)


# ---- words and tables ----------------------------------------------------------------------------


def test_the_papers_own_contrasts():
    printed = study.printed_leads("chat", ["code", "math", "reasoning", "chat"])
    assert printed["published_alpha"] == pytest.approx(
        0.565 - (0.5382 + 0.5181 + 0.5321) / 3
    )
    assert {"entropy", "published_length"} <= set(printed)


def test_each_verdict_is_of_the_text_of_its_temperature():
    """Chat always hits at T = 0 and never overlaps at T = 1: the two verdicts differ."""
    run = make_run(prompts=6, positions=6)
    chat = run.trace["domain"] == "chat"
    bound = run.trace.assign(target_entropy=np.where(chat, 2.0, 1.0), kind="a")
    bound["frequency"] = np.arange(len(bound)) % 7
    greedy, sampled = (
        SimpleNamespace(
            nodes=run.nodes,
            trace=bound.assign(draft_rank=np.where(chat, rank, 1), overlap=overlap),
        )
        for rank, overlap in ((0, 0.9), (0, np.where(chat, 0.1, 0.9)))
    )
    leads = study.leads(greedy, sampled, "chat")
    assert study.state(leads.at(view=study.AT_0)) == "there is a paradox"
    assert study.state(leads.at(view=study.AT_1)) == "there is no paradox"
    assert leads.at(quantity="hit[1]").value == pytest.approx(1)
    assert leads.at(quantity="alpha").value == pytest.approx(-0.8)
    nodes = run.nodes.assign(ratio=score.ratio(run.nodes))
    traces = [
        one.trace.assign(hit=one.trace["draft_rank"] == 0) for one in (greedy, sampled)
    ]
    tests = study.tests_of(nodes, *traces, greedy, 2)
    for name, (rows, _) in tests.items():
        own = {"hit[1]": traces[0], "alpha": traces[1]}.get(name.split(":")[0], nodes)
        assert len(rows) == len(own) and rows["domain"].equals(own["domain"])
    matched = tests["alpha: token frequency"][1]()[0][0]
    assert matched["overlap"].min() == 0.1, "sampled text"
    _, (rows, hit) = tests["published_alpha: estimator"][1]()
    assert hit(rows[rows["domain"] == "chat"]) == 1, "greedy text"
    assert "alpha: prompt format" not in tests, "the other format is greedy text"


def test_parts_of_the_ranks_add_up():
    nodes = make_run().nodes
    parts = study.rank_parts(nodes, "chat")
    assert parts["share"].sum() == pytest.approx(1)
    lead = study.contrast(nodes, score.published_alpha, "chat").estimate
    if parts["spread_of_share"].max() < 1e-9:
        assert parts["part"].sum() == pytest.approx(lead)


def test_kinds_of_token_and_their_shares():
    rows = [
        (f"{domain}-{i}", domain, position, token, 0.5)
        for domain in ("code", "chat")
        for i in range(5)
        for position, token in enumerate([0, 1, 0])
    ]
    columns = ["prompt_id", "domain", "position", "token", "overlap"]
    frame = pd.DataFrame(rows, columns=columns).assign(draft_rank=0)
    trace = study.with_tokens(frame, [" for", "\n"])
    assert set(trace["kind"]) == {"word start", "white space"}, (
        "a keyword begins a word"
    )
    kinds = study.by_kind(trace, "overlap")
    assert kinds.lies_within(0.5, 0.5)
    hits = study.by_kind(trace, "hit")
    assert hits.lies_within(1, 1)
    share = kinds.at(domain="code").frame.set_index("kind")["share"]
    assert share.to_dict() == pytest.approx({"word start": 2 / 3, "white space": 1 / 3})


def test_the_other_format_is_the_one_that_the_profile_does_not_have():
    profile = load_profile("tiny")
    for own, other in (("none", "chat"), ("chat", "none")):
        kind = study.OTHERWISE[own]
        assert runs.of_kind(profile.replace(template=own), kind).template == other
    assert study.plain_first("none", "own", "other") == ("own", "other")
    assert study.plain_first("chat", "own", "other") == ("other", "own")

"""What explains acceptance: every function against a hand-computed case or an independent one, and
what each says to bad input.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from test_score import make_run

from speclab import estimates as explain
from speclab import score, stats
from speclab.analysis import association, bins, rungs, token_kinds
from speclab.studies import chat_paradox, entropy_correlation

FEW = 60  # resamples, where the interval's width is not the question


def frame_of(**domains) -> pd.DataFrame:
    """Five prompts a domain, all with the same rows: domain = list of (group, x), so that every
    resample gives the sample's own means.
    """
    rows = [
        (f"{domain}-{i}", domain, group, x)
        for domain, values in domains.items()
        for i in range(5)
        for group, x in values
    ]
    return pd.DataFrame(rows, columns=["prompt_id", "domain", "group", "x"])


def noisy(prompts=8, rows=30, seed=0) -> pd.DataFrame:
    """Two domains, a signal with ties that says something of the outcome, prompts of their own
    level.
    """
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"prompt_id": np.repeat([f"p{i:02d}" for i in range(2 * prompts)], rows)})
    frame["domain"] = np.where(frame["prompt_id"] < f"p{prompts:02d}", "code", "chat")
    level = np.repeat(rng.normal(0, 1, 2 * prompts), rows)
    frame["signal"] = np.round(level + rng.normal(0, 1, len(frame)), 1)
    frame["other"] = rng.normal(0, 1, len(frame))
    frame["hit"] = (frame["signal"] + rng.normal(0, 1, len(frame)) > 0).astype(float)
    return frame


# ---- what cannot be computed is said, and does not hide the rest ---------------------------------


def test_attempt_gives_numbers_or_the_reason():
    frame = frame_of(code=[("a", 1.0), ("b", 3.0)])
    good = explain.attempt(stats.bootstrap, frame, score.mean_of("x"), n=FEW)
    assert good == {"estimate": 2.0, "low": 2.0, "high": 2.0, "n_prompts": 5, "note": ""}
    bad = explain.attempt(
        stats.bootstrap, frame[frame["prompt_id"] != "code-0"], score.mean_of("x"), n=FEW
    )
    assert np.isnan(bad["estimate"]) and "at least 5" in bad["note"]
    with pytest.raises(KeyError):  # only bad input is told; a fault in the code is not
        explain.attempt(lambda: {}["x"])


def test_per_domain_keeps_the_order_and_goes_on_past_a_domain_that_cannot_answer():
    frame = frame_of(chat=[("a", 1.0), ("b", 1.0)], code=[("a", 0.0), ("b", 2.0)])
    frame["y"] = frame["x"] * 2
    found = explain.per_domain(
        frame, lambda part: association.correlation(part, "x", "y", "pearson", n=FEW), pooled=True
    )
    assert list(found["domain"]) == ["code", "chat", "pooled"]
    assert (
        found["estimate"].iloc[0] == pytest.approx(1)
        and "constant" in found["note"].iloc[1]
        and np.isnan(found["low"].iloc[1])
    )
    within = explain.per_domain(
        frame, lambda part: stats.bootstrap(part, score.mean_of("x"), n=FEW), "group"
    )
    assert list(within["domain"]) == ["code", "code", "chat", "chat"] and list(
        within["estimate"]
    ) == [0, 2, 1, 1]
    with pytest.raises(ValueError, match="no column"):
        explain.per_domain(frame, stats.bootstrap, "rank")


def test_direction_speaks_only_of_intervals_that_leave_zero():
    words = ("above", "below")
    assert explain.direction(stats.Interval(0.2, 0.1, 0.3, 5), *words) == "above"
    assert explain.direction(stats.Interval(-0.2, -0.3, -0.1, 5), *words) == "below"
    assert (
        explain.direction(stats.Interval(0.2, -0.1, 0.3, 5), *words) == "cannot be told apart from"
    )
    assert explain.direction(stats.Interval(np.nan, np.nan, np.nan, 5), *words, "?") == "?"


def test_by_direction_names_who_goes_where():
    rows = pd.DataFrame(
        {"domain": list("abcd"), "low": [0.1, -0.2, -0.1, np.nan], "high": [0.2, -0.1, 0.1, np.nan]}
    )
    assert (
        explain.by_direction(rows, "rises in", "falls in", "is flat in")
        == "rises in a; falls in b; is flat in c; is undefined in d"
    )
    assert (
        explain.by_direction(rows.assign(low=0.1, high=0.2), "rises in", "falls in", "is flat in")
        == "rises in a, b, c, d"
    )


def test_wide_writes_intervals_as_text():
    long = pd.DataFrame(
        {
            "domain": ["math", "math", "code", "code"],
            "of": ["b", "a"] * 2,
            "estimate": [0.5, 1, np.nan, -0.25],
            "low": [0.4, 1, np.nan, -0.5],
            "high": [0.625, 1, np.nan, 0],
        }
    )
    table = explain.wide(long, ["domain"], "of")
    assert list(table) == ["domain", "b", "a"] and list(table["domain"]) == ["math", "code"]
    assert (
        list(table["b"]) == ["0.50 [0.40, 0.62]", "undefined"]
        and table["a"].iloc[1] == "-0.25 [-0.50, 0.00]"
    )


# ---- signals and bins ----------------------------------------------------------------------------


def test_lists_and_sentences_within_a_key():
    rows = [
        ("T = 0", "code", 1.0, 0.5, 1.5),
        ("T = 0", "chat", -1.0, -2.0, -0.5),
        ("T = 1", "code", 0.0, -1.0, 1.0),
    ]
    columns = ["temperature", "domain", *explain.NUMBERS]
    table = explain.Estimates(pd.DataFrame(rows, columns=columns), 1)
    assert [(text, len(part.frame)) for text, part in table.groups("temperature")] == [
        ("T = 0", 2),
        ("T = 1", 1),
    ]
    assert table.listed(within="temperature") == (
        "T = 0: code 1.0 [0.5, 1.5], chat -1.0 [-2.0, -0.5]; T = 1: code 0.0 [-1.0, 1.0]"
    )
    said = table.sentence("rises in", "falls in", "is open in", within="temperature")
    assert said == "T = 0: rises in code; falls in chat. T = 1: is open in code"


def test_estimates_of_columns_and_stacked_frames():
    table = pd.DataFrame({"domain": ["code"], "best": [4], "best_low": [3], "best_high": [5]})
    assert explain.Estimates.of(table, "best", ["domain"], 0).listed() == "code 4 [3, 5]"
    both = explain.stack({"T = 0": table, "T = 1": table}, "temperature")
    assert both.columns[0] == "temperature" and both.index.tolist() == [0, 1]
    assert explain.Estimates.of(both, "best", ["temperature", "domain"]).keys == [
        "temperature",
        "domain",
    ]


def test_exact_curves_have_no_intervals():
    curves = explain.Estimates.exact("rule", {"flat": [1, 1], "up": [1, 2]}, "n", [4, 8])
    assert curves.keys == ["rule", "n"] and curves.at(rule="up", n=8).value == 2
    assert curves.frame[["low", "high"]].isna().all(axis=None)


def test_signals_by_hand():
    trace = pd.DataFrame(
        {"draft_rank": [0, 2], "draft_entropy": [0.5, 1.5], "target_entropy": [0.1, 2.0]}
    )
    trace["top_draft_q"], trace["top_draft_p"] = (
        [np.array([0.9, 0.05]), np.array([0.4, 0.3])],
        [np.array([0.7, 0.1]), np.array([0.2, 0.5])],
    )
    found = bins.signals(trace)
    assert found[
        ["hit", "confidence", "top_p", "draft_certainty", "target_certainty"]
    ].to_numpy().tolist() == [[1, 0.9, 0.7, -0.5, -0.1], [0, 0.4, 0.2, -1.5, -2.0]]
    with pytest.raises(ValueError, match="top_draft_q"):
        bins.signals(trace.drop(columns="top_draft_q"))


def test_quantile_bins_by_hand():
    frame = pd.DataFrame({"x": [4.0, 1, 2, 3]}, index=[7, 5, 6, 4])
    assert bins.quantile_bins(frame, "x", 2).to_dict() == {7: 1, 5: 0, 6: 0, 4: 1}
    assert bins.quantile_bins(frame.assign(x=[0.0, 0, 0, 1]), "x", 3).nunique() == 1, (
        "ties leave fewer bins"
    )
    for wrong, count in ((frame.assign(x=2.0), 2), (frame, 1)):
        with pytest.raises(ValueError, match="values that differ"):
            bins.quantile_bins(wrong, "x", count)


def test_equal_bins_by_hand():
    frame = pd.DataFrame({"q": [0.0, 0.49, 0.5, 1.0]})
    assert bins.equal_bins(frame, "q", 2).tolist() == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="probabilities"):
        bins.equal_bins(frame * 2, "q", 2)


def test_group_means_by_hand():
    frame = frame_of(chat=[("a", 1.0), ("a", 3.0), ("b", 6.0)], code=[("a", 4.0)])
    frame["z"] = frame["x"] * 10
    found = bins.group_means(frame, "x", "group", x="z", n=FEW)
    expected = [
        ("code", "a", 4, 5, 5, 40),
        ("chat", "a", 2, 10, 5, 20),
        ("chat", "b", 6, 5, 5, 60),
        ("pooled", "a", 8 / 3, 15, 10, 80 / 3),
        ("pooled", "b", 6, 5, 5, 60),
    ]
    columns = ["domain", "group", "estimate", "rows", "n_prompts", "z"]
    assert [tuple(row) for row in found[columns].to_numpy()] == [
        pytest.approx(row) for row in expected
    ]
    assert (found["low"] <= found["estimate"] + 1e-12).all() and (
        found["estimate"] <= found["high"] + 1e-12
    ).all()


def test_group_means_leave_out_levels_of_too_few_prompts():
    frame = frame_of(code=[("a", 1.0)], chat=[("a", 1.0)])
    frame.loc[0, "group"] = "rare"
    found = bins.group_means(frame, "x", "group", n=FEW)
    assert set(zip(found["domain"], found["group"], strict=True)) == {
        ("chat", "a"),
        ("pooled", "a"),
    }, "code: 4 prompts of a, 1 of rare"
    with pytest.raises(ValueError, match="fewer bins"):
        bins.group_means(frame.assign(group=frame["prompt_id"]), "x", "group", n=FEW)


def test_group_means_keep_the_order_of_categories():
    frame = frame_of(code=[("b", 1.0), ("a", 2.0)])
    frame["group"] = pd.Categorical(frame["group"], ["b", "a", "unused"])
    assert list(bins.group_means(frame, "x", "group", n=FEW)["group"]) == ["b", "a", "b", "a"]


# ---- calibration ---------------------------------------------------------------------------------


def test_calibration_by_hand():
    """Bin 0: confidence 0.15, outcome 0.5; bin 1: 0.85 and 1.

    Error = (0.35 + 0.15) / 2; gap = 0.75 - 0.5.
    """
    frame = pd.DataFrame({"q": [0.1, 0.2, 0.8, 0.9], "hit": [0.0, 1.0, 1.0, 1.0]})
    assert bins.calibration_error("q", "hit", 2)(frame) == pytest.approx(0.25)
    assert bins.calibration_gap("q", "hit")(frame) == pytest.approx(0.25)
    assert bins.calibration_error("q", "hit", 1)(frame) == pytest.approx(0.25), (
        "one bin: the size of the gap"
    )
    perfect = frame.assign(hit=frame["q"])
    assert (
        bins.calibration_error("q", "hit", 10)(perfect)
        == pytest.approx(0)
        == bins.calibration_gap("q", "hit")(perfect)
    )


def test_calibration_error_of_opposite_gaps_does_not_cancel():
    frame = pd.DataFrame({"q": [0.2, 0.8], "hit": [0.5, 0.5]})
    assert bins.calibration_gap("q", "hit")(frame) == pytest.approx(0)
    assert bins.calibration_error("q", "hit", 2)(frame) == pytest.approx(0.3)


# ---- ROC -----------------------------------------------------------------------------------------


def test_auc_by_hand():
    """Pairs (accepted, rejected): 0.35 > 0.1, 0.35 < 0.4, 0.8 > both: 3 of 4."""
    rows = [(0.1, 0.0), (0.4, 0.0), (0.35, 1.0), (0.8, 1.0)]
    frame = pd.DataFrame(
        [(f"p{i}", "code", s, y) for i in range(5) for s, y in rows],
        columns=["prompt_id", "domain", "signal", "hit"],
    )
    found = entropy_correlation.auc(frame, "signal", "hit", n=FEW)
    assert (found.estimate, found.low, found.high, found.n_prompts) == (0.75, 0.75, 0.75, 5)
    assert (
        entropy_correlation.auc(
            frame.assign(signal=-frame["signal"]), "signal", "hit", n=FEW
        ).estimate
        == 0.25
    )
    assert (
        entropy_correlation.auc(
            frame.assign(signal=frame["hit"] * 0 + [0, 0, 0, 1] * 5), "signal", "hit", n=FEW
        ).estimate
        == 0.75
    ), "ties one half"
    curve = entropy_correlation.roc(frame, "signal", "hit")
    assert np.trapezoid(curve["true_positive"], curve["false_positive"]) == pytest.approx(0.75)


@pytest.mark.parametrize("domain", ["code", None])
def test_auc_of_every_resample_equals_sklearn(domain):
    frame = noisy()
    frame = frame if domain is None else frame[frame["domain"] == domain]
    prompts = stats.prompts_of(frame, 20)
    slow = [
        roc_auc_score(frame["hit"], frame["signal"], sample_weight=weight[prompts.rows])
        for weight in prompts.weights
    ]
    np.testing.assert_allclose(
        entropy_correlation._auc_draws(frame, "signal", "hit", prompts), slow
    )


def test_auc_difference_is_of_the_same_resamples():
    frame = noisy()
    both = [entropy_correlation.auc(frame, name, "hit", n=FEW) for name in ("signal", "other")]
    difference = entropy_correlation.auc(frame, "signal", "hit", minus="other", n=FEW)
    assert difference.estimate == pytest.approx(both[0].estimate - both[1].estimate)
    assert entropy_correlation.auc(frame, "signal", "hit", minus="signal", n=FEW) == stats.Interval(
        0.0, 0.0, 0.0, 16
    )
    assert difference.low > 0, "the other signal is noise"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hit": 1.0}, r"holds \[1.0\], not both"),
        ({"hit": 0.5}, r"\[0.5\]"),
        ({"signal": 3.0}, "constant"),
        ({"hit": np.nan}, "not finite"),
    ],
)
def test_roc_of_what_does_not_vary_is_refused(change, message):
    frame = noisy().assign(**change)
    for measure in (entropy_correlation.roc, entropy_correlation.auc):
        with pytest.raises(ValueError, match=message):
            measure(frame, "signal", "hit")


def test_auc_of_too_few_prompts_is_refused():
    with pytest.raises(ValueError, match="at least 5"):
        entropy_correlation.auc(noisy(prompts=4), "signal", "hit")


# ---- standardisation and contrasts ---------------------------------------------------------------


def test_standardised_mean_by_hand():
    """code holds three rows of a (0.2) and one of b (0.8): crude 0.35; with the reference's halves
    0.5.
    """
    frame = frame_of(code=[("a", 0.2)] * 3 + [("b", 0.8)], chat=[("a", 0.2), ("b", 0.8)])
    reference = pd.DataFrame({"group": ["a", "b"]})
    code = frame[frame["domain"] == "code"]
    assert score.mean_of("x")(code) == pytest.approx(0.35)
    assert bins.standardised_mean("x", "group", reference)(code) == pytest.approx(0.5)
    assert bins.standardised_mean("x", "group", code)(code) == pytest.approx(0.35), (
        "to its own shares: nothing changes"
    )
    assert np.isnan(bins.standardised_mean("x", "group", reference)(code[code["group"] == "a"])), (
        "a level without rows"
    )


def test_standardising_removes_what_the_mix_made_and_only_that():
    frame = frame_of(
        code=[("a", 0.2)] * 3 + [("b", 0.8)],
        math=[("a", 0.2)] * 3 + [("b", 0.8)],
        chat=[("a", 0.3), ("b", 0.9)],
    )
    equal = bins.standardised_mean("x", "group", frame)
    assert chat_paradox.contrast(frame, score.mean_of("x"), n=FEW).estimate == pytest.approx(
        0.6 - 0.35
    )
    assert chat_paradox.contrast(frame, equal, n=FEW).estimate == pytest.approx(0.1), (
        "the same 0.1 in both levels"
    )
    change = chat_paradox.contrast_change((frame, score.mean_of("x")), (frame, equal), n=FEW)
    assert (change.estimate, change.low, change.high) == pytest.approx(
        (-0.15,) * 3
    ) and change.n_prompts == 15


def test_matched_keeps_what_all_domains_share():
    frame = frame_of(
        code=[("a", 1.0), ("b", 1.0), ("d", 2.0), ("d", 2.0)],
        chat=[("a", 1.0), ("c", 1.0), ("d", 2.0)],
    )
    (before, mean), (after, equal) = bins.matched(frame, "x", "group")
    assert set(before["group"]) == {"a", "d"} and len(before) == 25 and after is before
    assert (mean(before), equal(before)) == pytest.approx((1.6, 1.6)), (
        "both domains together are the reference"
    )
    assert chat_paradox.least_kept(
        lambda: bins.matched(frame, "x", "group"), frame
    ) == pytest.approx(2 / 3)
    frame.loc[0, "group"] = "b"  # code: a in four prompts only, so that d alone is left
    with pytest.raises(ValueError, match="1 level of 'group'.*two or more"):
        bins.matched(frame, "x", "group")


def test_explained_gives_before_after_and_change_or_the_reason():
    frame = frame_of(
        code=[("a", 0.2)] * 3 + [("b", 0.8)],
        math=[("a", 0.2)] * 3 + [("b", 0.8)],
        chat=[("a", 0.3), ("b", 0.9)],
    )
    found = chat_paradox.explained(lambda: bins.matched(frame, "x", "group"), n=FEW)
    assert list(found["stage"]) == ["before", "after", "change"] and (found["note"] == "").all()
    assert list(found["estimate"]) == pytest.approx([0.25, 0.1, -0.15])
    apart = frame.assign(group=frame["domain"])
    failed = chat_paradox.explained(lambda: bins.matched(apart, "x", "group"), n=FEW)
    assert np.isnan(chat_paradox.least_kept(lambda: bins.matched(apart, "x", "group"), apart))
    assert (
        failed["estimate"].isna().all()
        and failed["note"].str.contains("matching needs two or more").all()
    )


def test_contrast_by_hand():
    frame = frame_of(
        code=[("a", 0.1)], math=[("a", 0.3)], reasoning=[("a", 0.5)], chat=[("a", 0.7)]
    )
    found = chat_paradox.contrast(frame, score.mean_of("x"), n=FEW)
    assert vars(found) == pytest.approx(
        {"estimate": 0.4, "low": 0.4, "high": 0.4, "n_prompts": 20, "share_highest": 1.0}
    )
    math = chat_paradox.contrast(frame, score.mean_of("x"), "math", n=FEW)
    assert (math.estimate, math.share_highest) == (pytest.approx(0.3 - (0.1 + 0.5 + 0.7) / 3), 0)


def test_contrast_interval_equals_brute_force():
    frame, estimator = noisy(), score.mean_of("signal")
    prompts = stats.prompts_of(frame, 200)
    draws = []
    for weight in prompts.weights[1:]:
        part = frame.iloc[np.repeat(np.arange(len(frame)), weight[prompts.rows].astype(int))]
        draws.append(part.groupby("domain")["signal"].mean()[["chat", "code"]].to_numpy())
    chat, code = np.array(draws).T
    found = chat_paradox.contrast(frame, estimator, n=200)
    assert [found.low, found.high] == pytest.approx(np.percentile(chat - code, [2.5, 97.5]))
    assert found.share_highest == (chat > code).mean()


def test_bad_contrasts_say_what_is_wrong():
    frame, mean = frame_of(code=[("a", 1.0), ("b", 2.0)], chat=[("a", 1.0)]), score.mean_of("x")
    with pytest.raises(ValueError, match="'poetry'"):
        chat_paradox.contrast(frame, mean, "poetry")
    with pytest.raises(ValueError, match="two domains"):
        chat_paradox.contrast(frame[frame["domain"] == "chat"], mean)
    with pytest.raises(ValueError, match=r"undefined in \['chat'\].*matched"):
        chat_paradox.contrast(frame, bins.standardised_mean("x", "group", frame))
    with pytest.raises(ValueError, match="one number"):
        chat_paradox.contrast(make_run().trace, score.hit)
    with pytest.raises(ValueError, match="2 prompts are in one frame only"):
        chat_paradox.contrast_change(
            (frame, mean), (frame.replace({"prompt_id": {"chat-4": "chat-9"}}), mean)
        )


def test_a_level_that_most_resamples_lack_is_refused():
    frame = frame_of(code=[("a", 1.0)], chat=[("a", 1.0)])
    frame.loc[frame["prompt_id"].isin(["code-0", "chat-0"]), "group"] = "b"
    with pytest.raises(ValueError, match="too few rows"):
        chat_paradox.contrast(frame, bins.standardised_mean("x", "group", frame))


def test_pick_and_the_ladder():
    run = make_run()
    assert score.member(score.hit, 2)(run.trace) == score.hit(run.trace)[2]
    assert score.member(score.alpha_by_rank, 0)(run.nodes) == score.alpha_by_rank(run.nodes)[0]
    with pytest.raises(ValueError, match="has members 0 to"):
        score.member(score.alpha_by_rank, 99)(run.nodes)
    table = chat_paradox.ladder_contrasts(run, n=FEW).set_index("estimator")
    ladder = rungs.ladder(run)
    for name in (
        "published_alpha",
        "alpha",
        "hit[2]",
        "alpha_by_rank[0]",
        "published_length",
        "mean_accepted",
    ):
        others = ladder.loc[name, ["code", "math", "reasoning"]].mean()
        assert table.loc[name, "estimate"] == pytest.approx(ladder.loc[name, "chat"] - others)
    assert (table["note"] == "").all() and table["share_highest"].between(0, 1).all()


def test_the_module_needs_no_model_and_no_plotting():
    from test_dependencies import dragged_in

    assert dragged_in("speclab.estimates") == set()


# ---- tokens --------------------------------------------------------------------------------------


def test_token_kinds_cover_the_classes():
    from speclab.analysis.token_kinds import CLASSES

    assert set(token_kinds.KINDS) == set(CLASSES)
    found = token_kinds.token_kinds(
        pd.Series(pd.Categorical(["keyword", "word_start", "newline"], CLASSES), index=[3, 1, 2])
    )
    assert found.to_dict() == {3: "word start", 1: "word start", 2: "white space"}
    with pytest.raises(ValueError, match="holds \\['verb'\\]"):
        token_kinds.token_kinds(pd.Series(["verb"]))


def test_frequency_elsewhere_by_hand():
    """Prompt a: 1 1 2; prompt b: 1 3.

    In b, token 1 is 2 of the 3 tokens of a; in a, 1 of the 2 of b.
    """
    trace = pd.DataFrame({"prompt_id": list("aaabb"), "token": [1, 1, 2, 1, 3]})
    assert bins.frequency_elsewhere(trace).tolist() == pytest.approx([1 / 2, 1 / 2, 0, 2 / 3, 0])
    with pytest.raises(ValueError, match="one prompt"):
        bins.frequency_elsewhere(trace[trace["prompt_id"] == "a"])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), min_size=2, max_size=40))
def test_frequency_elsewhere_is_a_count_over_the_other_prompts(rows):
    trace = pd.DataFrame(rows, columns=["prompt_id", "token"])
    if trace["prompt_id"].nunique() > 1:
        slow = [(trace.loc[trace["prompt_id"] != p, "token"] == t).mean() for p, t in rows]
        np.testing.assert_allclose(bins.frequency_elsewhere(trace), slow)

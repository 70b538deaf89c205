"""Notebook 16: bounds and their verdicts by hand, depth and drift by hand, controls where nothing
differs, every branch of its sentences, and the shipped log against the replay of its trace.
"""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_sentences import BAD

from speclab import passes, replay
from speclab.analysis import log_gammas, log_summary, logs
from speclab.analysis.log_gammas import BEST, LOGGED, OPEN, SLOWER, TIED, TOO_FEW
from speclab.analysis.logs import Log
from speclab.estimates import Estimates
from speclab.passes import HITS, MISSES, Answer
from speclab.profiles import ROOT
from speclab.runs import load_run
from speclab.show import notebook
from speclab.studies import your_log as study

SHIPPED = ROOT / "data" / "logs" / "smollm.jsonl.gz"
FREE = study.assumed_costs(0.0, {})  # drafting costs nothing, so speed-up is tokens per pass


def log_of(accepted, drafted, requests=1, domain="code", name="r"):
    """The passes of equal requests, each with one answer."""
    return passes.of_answers(
        Answer(f"{name}{i:03d}", domain, accepted, drafted) for i in range(requests)
    )


def sums_of(*per_pass, domain="code", name="r", blocks=10):
    """Sums of requests with these tokens per pass, in log order."""
    emitted = np.multiply(per_pass, blocks).astype(float)
    ids = [f"{name}{i:03d}" for i in range(len(emitted))]
    frame = pd.DataFrame({"prompt_id": ids, "domain": domain, "blocks": float(blocks)})
    return frame.assign(emitted=emitted, drafted=40.0, accepted=emitted - blocks)


# ---- another gamma -------------------------------------------------------------------------------


def test_bounds_by_hand():
    """h h ? and h m: at gamma 1 the unknown position decides whether a block more begins."""
    log = log_of([2, 1], [2, 2])  # tokens: h h ?, h m
    speed = log_gammas.bounded_speeds(log, [1, 2], FREE)
    ends = {key: speed[key]["pooled"].iloc[0] for key in speed.values}
    trace = passes.trace_of(log, MISSES)
    assert trace["draft_rank"].tolist() == [0, 0, 1, 0, 1]
    assert passes.trace_of(log, HITS)["draft_rank"].tolist() == [0, 0, 0, 0, 1]
    assert ends[2, MISSES] == ends[2, HITS] == 5 / 2  # its own gamma: as logged
    assert ends[1, MISSES] == 5 / 3  # [h h] [?] [h m]
    assert ends[1, HITS] == 5 / 3  # [h h] [? h] [m]
    assert ends[0, MISSES] == ends[0, HITS] == 1


def test_a_block_costs_what_it_drafts_and_plain_decoding_is_1():
    log = log_of([2, 1], [2, 2], requests=6)
    costs = study.assumed_costs(0.1, {"2": 1.2, "5": 1.5})
    speed = log_gammas.bounded_speeds(log, [2], costs)
    v_3 = 1.2 + (1.5 - 1.2) / 3
    assert speed[2, HITS]["pooled"].iloc[0] == pytest.approx(2.5 / (2 * 0.1 + v_3))
    assert (speed[0, HITS] == 1).all(axis=None)


def test_drafts_of_varying_length_are_priced_as_logged():
    log = log_of([3, 0, 1], [3, 4, 2], requests=6)
    assert log_gammas.own_gamma(log) is None
    speed = log_gammas.bounded_speeds(log, [1], study.assumed_costs(0.1, {}))
    per_token = 7 / (3 + 0.1 * (3 + 4 + 2))
    assert speed[LOGGED, MISSES]["pooled"].iloc[0] == pytest.approx(per_token)
    table = log_gammas.bounds(speed)
    assert table["gamma"].tolist() == [0, 1, LOGGED]


def test_the_own_gamma_may_be_cut_by_the_end_and_by_passes_without_a_draft():
    assert log_gammas.own_gamma(log_of([0, 2, 0, 0], [3, 3, 0, 1])) == 3
    assert log_gammas.own_gamma(log_of([0, 0], [0, 0])) is None
    assert log_gammas.own_gamma(log_of([0, 0, 0, 0], [3, 2, 3, 3])) is None


def test_verdicts_follow_the_bounds():
    """A draft of 8 that is always right to depth 2: gamma 2 has exact tokens, and shorter is
    slower where drafting is free.
    """
    log = log_of([2, 2, 2, 2], [8, 8, 8, 8], requests=20)
    table = log_gammas.bounds(log_gammas.bounded_speeds(log, [1, 2, 8], FREE)).set_index("gamma")
    assert table.loc[2, "least"] == table.loc[2, "most"] == 3
    assert table["verdict"].to_dict() == {0: SLOWER, 1: SLOWER, 2: BEST, 8: TIED}
    few = log_gammas.bounds(log_gammas.bounded_speeds(log_of([2, 2], [8, 8], 4), [1, 2], FREE))
    assert few["verdict"].tolist() == [TOO_FEW, TOO_FEW, BEST] and few["low"].isna().all()
    short = log_of([2, 2, 2, 2], [2, 2, 2, 2], requests=20)  # every block is accepted whole
    table = log_gammas.bounds(log_gammas.bounded_speeds(short, [2, 5], FREE)).set_index("gamma")
    assert table["verdict"].to_dict() == {0: SLOWER, 2: BEST, 5: OPEN}
    assert (table.loc[5, "least"], table.loc[5, "most"]) == (3, 6)


def test_the_truth_lies_in_the_bounds_of_the_speed_up():
    trace = load_run(ROOT / "data" / "traces" / "smollm" / "greedy").trace
    log = passes.of_replay(replay.replay(trace, 4))
    costs = study.assumed_costs(0.05, {})
    table = log_gammas.bounds(log_gammas.bounded_speeds(log, [1, 3, 4, 6, 12], costs))
    truth = replay.chain_sums(trace, [1, 3, 4, 6, 12]).groupby("gamma")[["emitted", "blocks"]].sum()
    for row in table[table["gamma"] > 0].itertuples():
        whole = truth.loc[row.gamma]
        true = whole["emitted"] / whole["blocks"] / costs.of_chain(row.gamma)
        assert row.low <= row.least <= true + 1e-9 and true <= row.most + 1e-9 <= row.high + 1e-9


@pytest.mark.parametrize(
    ("log", "asked", "message"),
    [
        (None, {}, "totals per request only"),
        (log_of([1], [2]), {"drafts": log_gammas.HEADS}, "come from heads"),
        (log_of([1], [2]), {"drafts": log_gammas.COPIES}, "are copies"),
        (log_of([1], [2]), {"drafts": log_gammas.TREES}, "are trees"),
        (log_of([1], [2]), {"temperature": 0.7}, "sampled at T = 0.7"),
        (log_of([1], None), {}, "does not say how many tokens each pass drafted"),
    ],
)
def test_why_a_log_says_nothing_about_another_gamma(log, asked, message):
    said = log_gammas.why_no_bounds(log, **asked)
    assert message in said and said.endswith(log_gammas.NO_OTHER)
    assert log_gammas.why_no_bounds(log_of([1], [2])) == ""


def test_costs_that_do_not_reach():
    log = log_of([2, 1], [2, 2])
    costs = study.assumed_costs(0.1, {"8": 1.5})
    assert (costs.v(1), costs.v(8), costs.c(5)) == (1, 1.5, 0.1)
    assert study.gammas_covered([7, 8, 1], log, costs) == [1, 2, 7]
    with pytest.raises(ValueError, match="v reaches 2 tokens, and the log's longest draft needs 3"):
        study.gammas_covered([1], log, study.assumed_costs(0.1, {"2": 1.5}))
    for n in ("0", "1", "two"):
        with pytest.raises(ValueError, match=f"v has n = {n}: whole numbers from 2"):
            study.assumed_costs(0.1, {n: 1.5})


# ---- depth ---------------------------------------------------------------------------------------


def test_acceptance_by_depth_by_hand():
    log = log_of([2, 0, 1, 1], [2, 2, 2, 1])
    first, second = (passes.depth_counts(log, depth).iloc[0] for depth in (1, 2))
    assert (first["passes"], first["reached"], first["accepted"]) == (4, 4, 3)
    # the last draft has one token only, and a rejected first token reaches no second
    assert (second["passes"], second["reached"], second["accepted"]) == (4, 2, 1)
    draws = study.acceptance_by_depth(log, 8)
    assert [*draws.values] == [(panel, d) for d in (1, 2) for panel in (study.GIVEN, study.REACHED)]
    assert draws[study.GIVEN, 2]["code"].iloc[0] == 1 / 2
    assert study.depth_change(draws).frame["estimate"].tolist() == [1 / 2 - 3 / 4]


def test_a_token_after_the_end_is_not_rejected():
    """Two tokens are left, both accepted: the draft's third token has nothing to agree with."""
    log = passes.of_answers([Answer("a", "code", [2], [3], tokens=2)])
    assert passes.depth_counts(log, 3)["reached"].tolist() == [0]


def test_a_log_without_draft_lengths_counts_every_pass_as_reaching():
    log = log_of([2, 0, 1], None)
    assert passes.depth_counts(log, 2)["reached"].tolist() == [2]
    assert "does not say how many" in study.drafted_in_words(log)


# ---- drift ---------------------------------------------------------------------------------------


def test_drift_is_found_and_its_absence_too():
    rng = np.random.default_rng(3)
    level = rng.normal(2, 0.2, 60)
    falls = level - np.repeat([0, 0.2, 0.6], 20)
    steady, drifts = study.drift(sums_of(*level)), study.drift(sums_of(*falls))
    assert steady["p_value"].item() > 0.2 and drifts["p_value"].item() < 0.01
    assert drifts["difference"].item() == pytest.approx(falls[40:].mean() - falls[:20].mean())
    assert drifts["high"].item() < 0 < steady["high"].item()
    assert study.drift(sums_of(*level[:14])).empty and len(study.drift(sums_of(*level[:15]))) == 1


def test_a_log_without_drift_is_rarely_significant():
    rng = np.random.default_rng(0)
    steady = [study.drift(sums_of(*rng.normal(2, 0.2, 30)), n=200) for _ in range(60)]
    rejected = np.mean([tests["p_value"].item() < 0.05 for tests in steady])
    assert rejected <= 0.12  # 0.05 is expected


def test_a_changed_mix_is_no_drift_within_domains():
    rng = np.random.default_rng(1)
    math = sums_of(*rng.normal(3, 0.2, 30), domain="math", name="m")
    chat = sums_of(*rng.normal(1.5, 0.2, 30), domain="chat", name="c")
    tests = study.drift(pd.concat([math, chat], ignore_index=True))
    assert tests["name"].tolist() == [study.EVERY, "math", "chat"]
    assert (tests["p_holm"] < 0.05).tolist() == [True, False, False]
    both = pd.concat([math, chat], ignore_index=True)
    assert study.mix_change(both) == 1
    assert "no domain changes significantly" in study.drift_in_title(tests)
    assert "100 % of the mix of domains differs" in study.drift_in_words(tests, 1.0)
    mixed = both.iloc[np.argsort(np.tile(range(30), 2), kind="stable")]
    assert study.mix_change(mixed) == 0 and study.drift(mixed)["p_holm"].min() > 0.05


def test_bands_are_parts_in_log_order_by_hand():
    along = study.bands(sums_of(*[1.0] * 10, *[2.0] * 10, *[3.0] * 10), 3)
    assert along["estimate"].tolist() == [1, 2, 3]
    assert along["place"].tolist() == pytest.approx([100 / 6, 50, 500 / 6])
    assert len(study.bands(sums_of(*[1.0] * 17), 6)) == 3  # 5 requests per part at least


# ---- the page ------------------------------------------------------------------------------------


def as_log(frame):
    """A log as it was read."""
    return Log("vllm", frame, replay.prompt_sums(passes.as_blocks(frame)), {})


def test_a_long_log_is_thinned_evenly():
    log = as_log(log_of([2, 1], [2, 2], requests=100))
    few = study.thinned(log, 4)
    assert few.sums["prompt_id"].tolist() == ["r000", "r033", "r066", "r099"]
    assert few.passes["prompt_id"].nunique() == 4 and len(few.passes) == 8
    assert study.thinned(log, 100) is log
    totals = study.thinned(replace(log, passes=None), 4)
    assert totals.passes is None and len(totals.sums) == 4
    assert "This page uses 4 of them" in study.log_in_words(log, few)


def test_passes_without_a_draft_make_a_servers_bounds_approximate():
    log = as_log(log_of([2, 0, 0], [2, 2, 0], requests=2))
    assert study.without_draft_in_words(log).startswith(" 2 target passes had no draft. The log")
    assert study.without_draft_in_words(replace(log, format="speclab")) == ""
    assert study.without_draft_in_words(as_log(log_of([2, 0], [2, 2]))) == ""
    assert study.without_draft_in_words(replace(log, passes=None)) == ""


def test_at_most_so_many_requests_are_drawn():
    dots = study.dots(sums_of(*[2.0] * (study.MOST_DOTS + 50)))
    assert len(dots) == study.MOST_DOTS and (dots["of_request"] == 2).all()


def test_domains_without_enough_requests_are_drawn_together():
    few = pd.concat([sums_of(2.0, 1.5), sums_of(2.0, domain="chat", name="c")])
    assert study.grouped(few)["domain"].unique().tolist() == [study.EVERY]
    many = [sums_of(*[2.0] * (5 + i), domain=f"d{i}", name=f"d{i}") for i in range(8)]
    shown = study.grouped(pd.concat(many))["domain"].unique().tolist()
    assert shown == [f"d{i}" for i in range(2, 8)]


def numbers(*rows):
    return Estimates(pd.DataFrame([*rows], columns=["domain", "estimate", "low", "high"]))


def table(best, *others):
    """A table of `log_gammas.bounds`: gamma, least, most, verdict."""
    rows = pd.DataFrame([best, *others], columns=["gamma", "least", "most", "verdict"])
    ends = {"low": rows["least"] - 0.04, "least_high": rows["least"] + 0.04}
    return rows.assign(**ends, high=rows["most"] + 0.04)


PER_PASS = numbers((study.EVERY, 2.11, 2.06, 2.16))
BOUNDS = [
    table((4, 1.76, 1.76, BEST)),
    table((4, 1.76, 1.76, BEST), (3, 1.6, 1.8, OPEN)),
    table((4, 1.7, 1.76, BEST), (3, 1.6, 1.8, OPEN), (5, 1.6, 1.8, OPEN), (0, 1, 1, SLOWER)),
    table((6, 1.7, 1.76, BEST), *[(g, 1.6, 1.8, OPEN) for g in (1, 2, 3, 4, 5, 8, 10, 12, 16)]),
    table((0, 1.0, 1.0, BEST), (4, 0.9, 0.95, SLOWER)),
    table((0, 1.0, 1.0, BEST), (4, 0.9, 1.1, OPEN)),
    table((LOGGED, 1.9, 1.9, BEST), (4, 1.9, 1.95, OPEN)),
    table((4, 1.9, 1.9, BEST), (LOGGED, 1.92, 1.92, OPEN), (0, 1, 1, OPEN)),
]
ANSWERS = [study.answer_in_words(PER_PASS, 0.05, one) for one in (None, *BOUNDS)]


def changes(*rows, depth=4):
    found = numbers(*rows).in_units("points")
    return Estimates(found.frame.assign(depth=depth), found.digits, found.unit)


def drift_rows(*rows):
    return pd.DataFrame([*rows], columns=["name", "difference", "low", "high", "p_holm"])


def pairs(*signs):
    rows = [("math", "chat", 0.5 * sign or 0.1, sign) for sign in signs]
    return pd.DataFrame(rows, columns=["first", "second", "difference", "sign"])


NAN = np.nan
DRIFTS = [
    drift_rows((study.EVERY, 0.0, 0.0, 0.0, 1.0)),
    drift_rows((study.EVERY, -0.59, -0.7, -0.4, 0.001)),
    drift_rows((study.EVERY, 0.59, 0.4, 0.7, 0.001), ("code", 0.1, -0.1, 0.3, 0.4)),
    drift_rows((study.EVERY, 0.1, -0.1, 0.3, 0.4), ("a", 1, 1, 1, 0.01), ("b", 1, 1, 1, 0.01)),
]
DEPTHS = [
    changes(("code", 0.1, 0.05, 0.15), ("math", 0.1, -0.05, 0.15)),
    changes(("code", -0.1, -0.15, -0.05)),
    changes(("code", 0.1, NAN, NAN)),
    changes(("code", 0.0, 0.0, 0.0), depth=1),
]
TITLES = [
    *(study.bounds_in_title(one) for one in BOUNDS),
    *(study.drift_in_title(one) for one in DRIFTS),
    *(study.depth_in_title(one) for one in DEPTHS),
    *(study.spread_in_words(sums_of(*values)) for values in ([2.0], [2.0, 1.5, 3.0])),
]
ONE_LOG = as_log(log_of([2, 1], [2, 2]))
TWO = as_log(pd.concat([log_of([1], [2], 3), log_of([1], [2], 2, "chat", "c")], ignore_index=True))
SENTENCES = [
    *ANSWERS,
    *(study.drift_in_words(one, mix) for one in DRIFTS for mix in (0.0, 0.5)),
    *(study.differences_in_words(pairs(*signs)) for signs in ([0], [1], [-1, 1, 0])),
    *(study.log_in_words(one, one) for one in (ONE_LOG, TWO)),
    *(study.drafted_in_words(log_of([1, 0, 0], one)) for one in (None, [1, 1, 1], [3, 2, 1])),
    *(study.gammas_in_use([1, 9], tried, own) for tried in ([1, 9], [1]) for own in (1, None)),
    *(study.options_in_words(one) for one in (None, *BOUNDS)),
    *(study.too_short(count).replace("*", "") for count in (1, 14)),
    *(log_gammas.why_no_bounds(None), study.ONE_GROUP),
]


@pytest.mark.parametrize("text", [*SENTENCES, *(f"{title}." for title in TITLES)])
def test_every_sentence_reads_well(text):
    assert not [pattern for pattern in BAD if re.search(pattern, text)], text
    assert text[0].isupper() and text.endswith(".")


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_answer_is_short(answer):
    first, _, _ = answer.partition(". ")
    assert notebook.too_long(answer) == "" and len(first.split()) <= 25


@pytest.mark.parametrize("title", TITLES)
def test_every_title_is_short(title):
    assert len(title) <= 90


def test_the_answer_follows_the_bounds():
    assert "try gamma 4 (estimated speed-up 1.76x [1.72, 1.80]). No other" in ANSWERS[1]
    assert "at least 1.70x [1.66, 1.74]). Two other settings may be faster" in ANSWERS[3]
    assert "plain decoding is the fastest here." in ANSWERS[5]
    assert "no gamma is certain to beat plain decoding. One other setting may" in ANSWERS[6]
    assert "keep drafting as logged" in ANSWERS[7]
    gammas = [study.gamma_to_set(one) for one in (None, *BOUNDS)]
    assert gammas == [0, 4, 4, 4, 6, 0, 0, 0, 4]


def test_the_shipped_log_is_the_replay_prompt_by_prompt():
    log = logs.opened(SHIPPED)
    trace = load_run(ROOT / "data" / "traces" / "smollm" / "greedy").trace
    by_replay = replay.prompt_sums(replay.replay(trace, 4)).set_index("prompt_id")
    own = log.sums.set_index("prompt_id")
    shared = by_replay.loc[own.index]
    assert len(own) >= 60 and own["domain"].nunique() == 4
    for name in ("domain", "blocks", "emitted", "accepted"):
        assert (own[name] == shared[name]).all(), name
    per_domain = log_summary.tokens_per_pass(log.sums).without(domain=study.EVERY).frame
    expected = shared.groupby("domain")[["emitted", "blocks"]].sum()
    for row in per_domain.itertuples():
        whole = expected.loc[row.domain]
        assert row.estimate == pytest.approx(whole["emitted"] / whole["blocks"])

"""What a log says of other gammas: bounds and verdicts by hand, depth by hand, and the shipped log
against the replay of its trace.
"""

import pytest

from speclab import replay
from speclab.cost import Costs
from speclab.logs import log_gammas, log_summary, logs, passes
from speclab.logs.log_gammas import ESTIMATE, KNOWN, LOGGED, SLOWER, TIED, TOO_FEW, TRY
from speclab.logs.passes import HITS, MISSES, Answer
from speclab.study.profiles import ROOT
from speclab.study.runs import load_run

SHIPPED = ROOT / "data" / "logs" / "smollm.jsonl.gz"
FREE = Costs.assumed(0.0)  # drafting costs nothing, so speed-up is tokens per pass


def log_of(accepted, drafted, requests=1, domain="code", name="r"):
    """The passes of equal requests, each with one answer."""
    return passes.count_by_answer(
        Answer(f"{name}{i:03d}", domain, accepted, drafted) for i in range(requests)
    )


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
    costs = Costs(1.0, (1, 2, 5), (0.1,) * 3, (1.0, 1.2, 1.5))
    speed = log_gammas.bounded_speeds(log, [2], costs)
    v_3 = 1.2 + (1.5 - 1.2) / 3
    assert speed[2, HITS]["pooled"].iloc[0] == pytest.approx(2.5 / (2 * 0.1 + v_3))
    assert (speed[0, HITS] == 1).all(axis=None)


def test_drafts_of_varying_length_are_priced_as_logged():
    log = log_of([3, 0, 1], [3, 4, 2], requests=6)
    assert log_gammas.own_gamma(log) is None
    speed = log_gammas.bounded_speeds(log, [1], Costs.assumed(0.1))
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
    assert table["verdict"].to_dict() == {0: SLOWER, 1: SLOWER, 2: KNOWN, 8: TIED}
    few = log_gammas.bounds(log_gammas.bounded_speeds(log_of([2, 2], [8, 8], 4), [1, 2], FREE))
    assert few["verdict"].tolist() == [TOO_FEW, TOO_FEW, KNOWN] and few["low"].isna().all()
    short = log_of([2, 2, 2, 2], [2, 2, 2, 2], requests=20)  # every block is accepted whole
    table = log_gammas.bounds(log_gammas.bounded_speeds(short, [2, 5], FREE)).set_index("gamma")
    assert table["verdict"].to_dict() == {0: SLOWER, 2: KNOWN, 5: TRY}
    assert table.loc[5, ["least", "most", "estimate"]].tolist() == [3, 6, 6]


def without_order(log):
    """The same passes as kinds of passes of each request."""
    tokens = log.groupby("prompt_id")["emitted"].transform("sum")
    by = ["prompt_id", "domain", "turn", "remaining", "drafted", "accepted", "emitted"]
    kinds = log.assign(remaining=tokens).groupby(by, as_index=False).size()
    return kinds.rename(columns={"size": "blocks"})


def test_a_log_without_the_order_has_the_same_depths_and_its_own_gamma():
    log = log_of([2, 0, 1, 2, 2, 0], [2] * 6, requests=6)
    kinds = without_order(log)
    for depth in (1, 2):
        counts, same = (passes.depth_counts(one, depth) for one in (log, kinds))
        assert (counts == same).all(axis=None)
    speed, mixed = (log_gammas.bounded_speeds(one, [1, 2, 4], FREE) for one in (log, kinds))
    least, most = ({g: mixed[g, end]["pooled"][0] for g in (1, 2, 4)} for end in (MISSES, HITS))
    assert least[2] == most[2] == speed[2, HITS]["pooled"][0] == 13 / 6
    for gamma in (1, 4):
        assert least[gamma] == speed[gamma, MISSES]["pooled"][0]
        assert most[gamma] >= speed[gamma, HITS]["pooled"][0] >= least[gamma]
        assert mixed[gamma, ESTIMATE]["pooled"][0] == speed[gamma, ESTIMATE]["pooled"][0]


@pytest.mark.parametrize(
    ("log", "asked", "message"),
    [
        (None, {}, "totals per request only"),
        (log_of([1], [2]), {"drafts": "heads"}, "are heads"),
        (log_of([1], [2]), {"temperature": 0.7}, "sampled at T = 0.7"),
        (log_of([1], None), {}, "does not say how many tokens each pass drafted"),
    ],
)
def test_why_a_log_says_nothing_about_another_gamma(log, asked, message):
    said = log_gammas.why_no_bounds(log, **asked)
    assert message in said and said.endswith(log_gammas.NO_OTHER)
    assert log_gammas.why_no_bounds(log_of([1], [2])) == ""


# ---- depth ---------------------------------------------------------------------------------------


def test_acceptance_by_depth_by_hand():
    log = log_of([2, 0, 1, 1], [2, 2, 2, 1])
    first, second = (passes.depth_counts(log, depth).iloc[0] for depth in (1, 2))
    assert (first["passes"], first["reached"], first["accepted"]) == (4, 4, 3)
    # the last draft has one token only, and a rejected first token reaches no second
    assert (second["passes"], second["reached"], second["accepted"]) == (4, 2, 1)


def test_a_token_after_the_end_is_not_rejected():
    """Two tokens are left, both accepted: the draft's third token has nothing to agree with."""
    log = passes.count_by_answer([Answer("a", "code", [2], [3], tokens=2)])
    assert passes.depth_counts(log, 3)["reached"].tolist() == [0]


def test_a_log_without_draft_lengths_counts_every_pass_as_reaching():
    log = log_of([2, 0, 1], None)
    assert passes.depth_counts(log, 2)["reached"].tolist() == [2]


def test_the_shipped_log_is_the_replay_prompt_by_prompt():
    log = logs.opened(SHIPPED)
    trace = load_run(ROOT / "data" / "traces" / "smollm" / "greedy").trace
    by_replay = replay.prompt_sums(replay.replay(trace, 4)).set_index("prompt_id")
    own = log.sums.set_index("prompt_id")
    shared = by_replay.loc[own.index]
    assert len(own) >= 60 and own["domain"].nunique() == 4
    for name in ("domain", "blocks", "emitted", "accepted"):
        assert (own[name] == shared[name]).all(), name
    per_domain = log_summary.tokens_per_pass(log.sums).without(domain=log_summary.EVERY).frame
    expected = shared.groupby("domain")[["emitted", "blocks"]].sum()
    for row in per_domain.itertuples():
        whole = expected.loc[row.domain]
        assert row.estimate == pytest.approx(whole["emitted"] / whole["blocks"])

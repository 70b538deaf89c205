"""The mixed stream: queues by hand and against an event loop, conservation, batches, mixes, drift,
bad input.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclab.analysis import choose as budgets
from speclab.cost import Costs
from speclab.score import Estimator, quotient
from speclab.stats import bootstrap
from speclab.studies.budgets_and_routing import online
from speclab.studies.budgets_and_routing import serving as stream
from speclab.tree import PLAIN, chain, static_tree

COSTS = Costs(
    10.0,
    (1, 2, 4, 8, 16, 32, 64),
    (0.2, 0.2, 0.22, 0.3, 0.4, 0.6, 1.0),
    (1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0),
    0.1,
)
LOOP = stream.LoopCosts(10.0, COSTS.sizes, COSTS.draft, COSTS.verify, 0.1, 0.7)
SETTINGS = {
    "plain": PLAIN,
    "chain:1": chain(1),
    "chain:3": chain(3),
    "tree:2,2,4": static_tree(2, 2, 4),
}
MIX = {"code": 0.7, "chat": 0.3}


def trace_of(ranks):
    """A trace from {prompt_id: (domain, draft ranks)}."""
    rows = [
        (name, domain, t, rank)
        for name, (domain, texts) in ranks.items()
        for t, rank in enumerate(texts)
    ]
    return pd.DataFrame(rows, columns=["prompt_id", "domain", "position", "draft_rank"])


def random_trace(per_domain=7, seed=0, domains=("code", "chat")):
    """Texts of 5 to 25 tokens; code is accepted more often than chat."""
    rng, ranks = np.random.default_rng(seed), {}
    for d, domain in enumerate(domains):
        for i in range(per_domain):
            size = rng.integers(5, 26)
            ranks[f"{domain}-{i}"] = (
                domain,
                np.where(rng.random(size) < 0.85 - 0.4 * d, 0, rng.integers(1, 5, size)),
            )
    return trace_of(ranks)


def stream_of(trace, costs=COSTS, limit=None):
    """Table, counts and the usual policies of a trace."""
    counts = budgets.counts(trace, SETTINGS, max_new_tokens=limit)
    table = budgets.price(counts, SETTINGS, costs)
    judged = {
        "never": budgets.judge(table, "plain"),
        "always": budgets.judge(table, "chain:3"),
        "oracle": budgets.oracle(table),
        "per-domain": budgets.judge(table, budgets.choose(table)),
    }
    return (
        table,
        counts,
        {name: stream.with_passes(frame, counts) for name, frame in judged.items()},
    )


def event_loop(arrival, service):
    """One server, event by event: the slow reference of Lindley's recursion."""
    free, finish = 0.0, []
    for a, s in zip(arrival, service, strict=True):
        free = max(free, a) + s
        finish.append(free)
    return np.array(finish)


# ---- the queue -----------------------------------------------------------------------------------


def test_three_requests_by_hand():
    # the first is served at once, the second waits for it, the third finds the server free
    assert stream.finish_times(np.array([1.0, 2.0, 9.0]), np.array([3.0, 2.0, 1.0])).tolist() == [
        4.0,
        6.0,
        10.0,
    ]


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 5)), min_size=1, max_size=40))
def test_lindley_is_the_event_loop(pairs):
    gap, service = np.array(pairs).T
    arrival = gap.cumsum()
    assert np.allclose(
        stream.finish_times(arrival, service), event_loop(arrival, service), atol=1e-9
    )
    assert np.allclose(
        stream.finish_times(np.stack([arrival, arrival]), np.stack([service, service]))[1],
        event_loop(arrival, service),
    )


def test_a_stream_of_three_requests_by_hand():
    """Texts of equal length in one domain, so that every draw costs the same and only the arrivals
    are chance.
    """
    trace = trace_of({f"p{i}": ("code", [0, 1, 0]) for i in range(5)})
    counts = budgets.counts(trace, SETTINGS)
    table = budgets.price(counts, SETTINGS, COSTS)
    # chain of 1: blocks (0, miss) and (0, end): two passes over two tokens, a draft pass each; 2
    # (0.2 + 1.1 + 0.1) = 2.8 target passes
    policies = {"never": "plain", "one": "chain:1"}
    policies = {
        name: stream.with_passes(budgets.judge(table, setting), counts)
        for name, setting in policies.items()
    }
    found = stream.simulate(
        policies, {"code": 1.0}, COSTS.target_ms, load=0.5, requests=3, seeds=1, n=20
    )
    values = found.table().pivot(index="metric", columns="policy", values="estimate")
    assert values.loc["tokens_per_s", "never"] == pytest.approx(100) and values.loc[
        "tokens_per_s", "one"
    ] == pytest.approx(300 / 2.8)
    assert values.loc["passes_saved"].to_list() == pytest.approx([0, 1 / 3])
    assert values.loc["drafts_per_token"].to_list() == pytest.approx([0, 2 / 3])
    _, arrival = stream.draw(
        np.ones((21, 5)), 3 / 0.5, 3, np.random.default_rng([0, 0])
    )  # 3 tokens a request at half load
    for name, service in (("never", 3.0), ("one", 2.8)):
        latency = (event_loop(arrival[0], [service] * 3) - arrival[0]) * 0.01
        assert values.loc["p50_s", name] == pytest.approx(np.quantile(latency, 0.5))
        assert values.loc["p95_s", name] == pytest.approx(np.quantile(latency, 0.95))


def test_draws_follow_the_mix_and_the_load():
    shares = np.array([[0.1, 0.0, 0.9], [1.0, 0.0, 0.0]])
    which, arrival = stream.draw(shares, 2.0, 20_000, np.random.default_rng(1))
    assert np.bincount(which[0], minlength=3) / 20_000 == pytest.approx([0.1, 0, 0.9], abs=0.01)
    assert (
        (which[1] == 0).all()
        and (np.diff(arrival) > 0).all()
        and arrival[0, -1] / 20_000 == pytest.approx(2.0, rel=0.05)
    )


# ---- policies and streams ------------------------------------------------------------------------


def test_tokens_served_are_tokens_recorded():
    trace = random_trace()
    for limit in (None, 30):
        *_, policies = stream_of(trace, limit=limit)
        for name, frame in policies.items():
            assert frame["emitted"].sum() == len(trace), name
        assert (
            policies["never"]["target_passes"] == policies["never"]["emitted"]
        ).all() and not policies["never"]["draft_passes"].any()
        assert (policies["always"]["target_passes"] <= policies["never"]["target_passes"]).all()
        blocks = sum(len(w.tokens) for w in stream.work(trace, SETTINGS["chain:3"], limit).values())
        assert blocks == policies["always"]["target_passes"].sum()


@pytest.mark.parametrize("limit", [None, 30])
def test_passes_of_the_online_policy(limit):
    """Choosing what it began with, it makes the passes of that setting; else the first blocks' and
    the rest's, which cost what it says.
    """
    trace = random_trace()
    table, counts, _ = stream_of(trace, limit=limit)
    at = online.walks(trace, SETTINGS, COSTS, limit)
    same = budgets.judge(table, "chain:3")
    own = stream.with_passes(same, counts)[["target_passes", "draft_passes"]].to_numpy()
    assert (
        stream.online_passes(same, at, SETTINGS, "chain:3", 2, limit)[
            ["target_passes", "draft_passes"]
        ].to_numpy()
        == own
    ).all()
    flat = Costs(
        1.0, (1, 64), (0.25, 0.25), (1.0, 1.0)
    )  # cost = target passes + a quarter of the draft passes
    at = online.walks(trace, SETTINGS, flat, limit)
    judged = online.online(at, "chain:3", 2)
    found = stream.online_passes(judged, at, SETTINGS, "chain:3", 2, limit)
    assert found["setting"].nunique() > 1 and np.allclose(
        found["cost"], found["target_passes"] + found["draft_passes"] / 4
    )


def test_the_oracle_is_never_slower():
    for seed in range(3):
        *_, policies = stream_of(random_trace(seed=seed))
        outcome = stream.simulate(policies, MIX, 10.0, requests=40, seeds=2, n=50, seed=seed)
        values = dict(zip(outcome.policies, outcome.values, strict=True))
        for name in ("never", "always", "per-domain"):
            assert (values["oracle"][0] >= values[name][0] - 1e-9).all() and (
                values["oracle"][1:3] <= values[name][1:3] + 1e-9
            ).all()
        assert (values["always"][0] > values["oracle"][0] - 1e-9).mean() < 0.5, (
            "the control: always is not the oracle"
        )


def test_a_mix_of_one_domain_is_that_domain_alone():
    trace = random_trace()
    *_, both = stream_of(trace)
    *_, alone = stream_of(trace[trace["domain"] == "code"])
    options = {"requests": 200, "seeds": 2, "n": 300}
    mixed, single = (
        stream.simulate(p, {"code": 1.0}, 10.0, **options).table() for p in (both, alone)
    )
    joined = mixed.merge(single, on=["metric", "policy"])
    speed = joined[joined["metric"].isin(["tokens_per_s", "passes_saved", "drafts_per_token"])]
    assert np.allclose(speed["estimate_x"], speed["estimate_y"]), (
        "same prompts, same seeds, whatever else was recorded"
    )
    other = stream.simulate(both, {"chat": 1.0}, 10.0, **options).table()
    assert abs(other["estimate"] - mixed["estimate"]).max() > 0.01


def test_estimates_meet_the_exact_speed_and_its_interval():
    """Against the closed form: tokens per second of work is a ratio of mix-weighted means, its
    interval a bootstrap of prompts.
    """
    trace = random_trace(12, domains=("code",))
    *_, policies = stream_of(trace)
    found = (
        stream.simulate(policies, {"code": 1.0}, 10.0, requests=800, seeds=6, n=400)
        .table()
        .set_index(["metric", "policy"])
    )
    speed = Estimator("speed", lambda f: f[["emitted", "cost"]].to_numpy(float), quotient)
    exact = bootstrap(policies["always"], speed)
    row = found.loc["tokens_per_s", "always"]
    assert row["estimate"] == pytest.approx(100 * exact.estimate, rel=0.01)
    assert row["high"] - row["low"] == pytest.approx(100 * (exact.high - exact.low), rel=0.25)


def test_against_a_policy():
    *_, policies = stream_of(random_trace())
    outcome = stream.simulate(policies, MIX, 10.0, requests=30, seeds=1, n=60)
    own = outcome.table("never").set_index(["metric", "policy"])
    assert (own.loc[("tokens_per_s", "never"), ["estimate", "low", "high"]] == 1).all()
    assert (own.loc[("passes_saved", "never"), ["estimate", "low", "high"]] == 0).all()
    plain = outcome.table().set_index(["metric", "policy"])["estimate"]
    assert own.loc[("p95_s", "always"), "estimate"] == pytest.approx(
        plain["p95_s", "always"] / plain["p95_s", "never"]
    )
    assert own.loc[("passes_saved", "always"), "estimate"] == pytest.approx(
        plain["passes_saved", "always"]
    )


def test_more_load_waits_longer_and_works_no_faster():
    *_, policies = stream_of(random_trace())
    low, high = (
        stream.simulate(policies, MIX, 10.0, load=load, n=20)
        .table()
        .set_index(["metric", "policy"])
        for load in (0.3, 1.5)
    )
    assert high.loc[("p95_s", "never"), "estimate"] > 2 * low.loc[("p95_s", "never"), "estimate"]
    assert high.loc[("tokens_per_s", "never"), "estimate"] == pytest.approx(
        low.loc[("tokens_per_s", "never"), "estimate"]
    )


def test_always_follows_the_mix():
    """Code likes long chains, chat likes none: the one setting for all follows whoever comes more
    often.
    """
    ranks = {f"code-{i}": ("code", [0] * 12) for i in range(5)} | {
        f"chat-{i}": ("chat", [9] * 12) for i in range(5)
    }
    table = budgets.prompt_table(trace_of(ranks), SETTINGS, COSTS)
    chosen = [
        set(stream.always(table, {"code": share, "chat": 1 - share})["setting"])
        for share in (1.0, 0.9, 0.1)
    ]
    assert chosen == [{"chain:3"}, {"chain:3"}, {"plain"}]


def test_drift_by_hand():
    ranks = {f"code-{i}": ("code", [0] * 12) for i in range(5)} | {
        f"chat-{i}": ("chat", [9] * 12) for i in range(5)
    }
    table = budgets.prompt_table(trace_of(ranks), SETTINGS, COSTS)
    own = budgets.cross_fit(table)
    found = stream.drift(
        table, {"code": {"code": 1.0}, "chat": {"chat": 1.0}}, own, n=50
    ).set_index(["fitted_on", "served"])["estimate"]
    block = 3 * 0.2 + 1.2 + 0.1  # a chain of 3 and its pass over four tokens
    fast = 12 / (3 * block)
    slow = 12 / (
        10 * block + (2 * 0.2 + 1.15 + 0.1) + (0.2 + 1.1 + 0.1)
    )  # no draft is accepted; the last two blocks are cut short
    wanted = {
        ("code", "code"): fast,
        ("code", "chat"): slow,
        ("chat", "code"): 1,
        ("chat", "chat"): 1,
        ("per-domain", "code"): fast,
        ("per-domain", "chat"): 1,
    }
    assert found.to_dict() == pytest.approx(wanted)


# ---- a machine and its loop ----------------------------------------------------------------------


def test_the_loops_own_time_by_hand():
    """Plain: 10 ms a token.

    A block of a chain of 1 takes 16 ms: 1.6 tokens, of which its passes are 0.2 + 1.1.
    """
    rows = []
    for repeat, slow in enumerate((1.0, 1.0, 7.0)):  # one repeat met a busy machine
        for prompt, extra in (("a", 0.0), ("b", 0.1), ("c", 0.4)):
            rows += [
                (name, repeat, prompt, "code", 20, blocks, slow * 0.01 * blocks * cost)
                for name, blocks, cost in (
                    ("plain", 20, 1.0),
                    ("chain:1", 12, 1.6 + extra),
                    ("tree:2,2,4", 10, 2.5 + extra),
                )
            ]
    speeds = pd.DataFrame(
        rows, columns=["method", "repeat", "prompt_id", "domain", "tokens", "blocks", "time_s"]
    )
    drafted = {"chain:1": chain(1), "tree:2,2,4": static_tree(2, 2, 4)}
    found = stream.with_loop(COSTS, speeds, drafted)
    tree = 0.2 + 0.2 + COSTS.v(5)  # two draft passes (over one and two tokens) and five tokens
    assert (found.overhead, found.tree_overhead) == pytest.approx((0.3 + 0.1, 2.6 - tree))
    assert found.of_block(drafted["chain:1"]) == pytest.approx(1.7) and found.of_block(
        drafted["tree:2,2,4"]
    ) == pytest.approx(2.6)
    fast = speeds.assign(
        time_s=speeds["time_s"].where(speeds["method"] == "plain", speeds["time_s"] / 10)
    )
    assert (
        stream.with_loop(COSTS, fast, drafted).overhead,
        stream.with_loop(COSTS, fast, drafted).tree_overhead,
    ) == (0, 0)
    kept = stream.with_loop(found, speeds, {"chain:1": chain(1)})
    assert (kept.overhead, kept.tree_overhead) == pytest.approx(
        (found.overhead, found.tree_overhead)
    ), "no tree was decoded: as it was"
    with pytest.raises(ValueError, match=r"speeds lack \['chain:3'\]"):
        stream.with_loop(COSTS, speeds, {"chain:3": chain(3)})


# ---- batches -------------------------------------------------------------------------------------


def test_extrapolation_goes_on_with_the_last_slope():
    wide = stream.extended(COSTS, 128)
    assert (wide.v(128), wide.c(128)) == pytest.approx(
        (5 + 64 * 2 / 32, 1 + 64 * 0.4 / 32)
    ) and wide.v(96) == pytest.approx(7)
    assert [wide.v(n) for n in COSTS.sizes] == [
        COSTS.v(n) for n in COSTS.sizes
    ] and stream.extended(COSTS, 64) is COSTS
    falling = Costs(1.0, (1, 32, 64), (0.2, 0.5, 0.4), (1.0, 3.0, 2.0))
    assert stream.extended(falling, 128).v(128) == 2.0, "noise does not make larger passes cheaper"
    with pytest.raises(ValueError, match="was not measured"):
        COSTS.v(65)


@pytest.mark.parametrize("costs", [COSTS, LOOP])
def test_a_batch_of_one_is_no_batch(costs):
    trace, one = random_trace(), stream.batched(costs, 1, 16)
    assert one.target_ms == costs.target_ms
    assert np.allclose(*(budgets.prompt_table(trace, SETTINGS, c)["cost"] for c in (costs, one)))


@pytest.mark.parametrize("setting", list(SETTINGS))
@pytest.mark.parametrize("costs", [COSTS, LOOP])
@settings(max_examples=8)
@given(seed=st.integers(0, 1000))
def test_lockstep_of_one_is_lindley(costs, setting, seed):
    rng, trace = np.random.default_rng(seed), random_trace(5, seed)
    table = budgets.prompt_table(trace, SETTINGS, costs)
    service = table[table["setting"] == setting].set_index("prompt_id")["cost"]
    blocks, ids = stream.work(trace, SETTINGS[setting]), rng.choice(service.index, 12)
    arrival = rng.exponential(8.0, 12).cumsum()
    assert np.allclose(
        stream.lockstep(arrival, [blocks[i] for i in ids], 1, costs),
        event_loop(arrival, service[ids]),
    )


def test_lockstep_of_two_by_hand():
    # a: blocks of 4 and 2 tokens with 3 and 1 draft passes; b: plain, three passes; c comes when b
    # has left
    a = stream.Work(np.array([4, 2]), np.array([[1, 1, 1], [1, 0, 0]]))
    b, c = (stream.Work(np.ones(k, int), np.zeros((k, 0), int)) for k in (3, 1))
    first = 3 * 0.2 + COSTS.v(5) + 0.1  # a's chain of 3 beside b's single token
    second = 0.2 + COSTS.v(3) + 0.1
    third = 1.0  # b alone; c came during this step and joins at the next
    found = stream.lockstep(np.array([0.0, 0.0, first + second + 0.5]), [a, b, c], 2, COSTS)
    assert found == pytest.approx(
        [first + second, first + second + third, first + second + third + 1.0]
    )


@pytest.mark.parametrize("costs", [COSTS, LOOP])
def test_a_full_batch_costs_what_batched_says(costs):
    """Eight equal requests at once: the lock-step server takes eight times each one's share."""
    trace = trace_of({f"p{i}": ("code", [0, 0, 2, 0, 0, 0, 1, 0, 0]) for i in range(8)})
    for name, tree in SETTINGS.items():
        shared = stream.batched(costs, 8, 8)
        cost = budgets.prompt_table(trace, SETTINGS, shared)
        share = (
            cost.loc[cost["setting"] == name, "cost"].iloc[0] * shared.target_ms / costs.target_ms
        )
        blocks = stream.work(trace, tree)
        done = stream.lockstep(np.zeros(8), list(blocks.values()), 8, stream.extended(costs, 64))
        assert np.allclose(done, 8 * share), name


def test_speculation_stops_paying_in_large_batches():
    trace = random_trace()
    best = {
        batch: budgets.choose(
            budgets.prompt_table(trace, SETTINGS, stream.batched(COSTS, batch, 8))
        )["code"]
        for batch in (1, 64)
    }
    assert best[1] != "plain" and best[64] == "plain"


# ---- bad input -----------------------------------------------------------------------------------


def test_bad_input_says_what_to_do():
    trace = random_trace()
    table, counts, policies = stream_of(trace)
    run = {"policies": policies, "mix": MIX, "target_ms": 10.0, "n": 5, "requests": 5}
    mixes = {
        "sum to 0.9": {"code": 0.5, "chat": 0.4},
        "from 0": {"code": 1.5, "chat": -0.5},
        "names .*prose": {"prose": 1.0},
        "sum to nan": {"code": float("nan")},
    }
    for message, mix in mixes.items():
        with pytest.raises(ValueError, match=message):
            stream.simulate(**run | {"mix": mix})
        with pytest.raises(ValueError, match=message):
            stream.always(table, mix)
    for change in (
        {"load": 0},
        {"requests": 0},
        {"seeds": 0},
        {"policies": {"always": policies["always"]}},
    ):
        with pytest.raises(ValueError, match="are needed"):
            stream.simulate(**run | change)
    with pytest.raises(ValueError, match="'other' serves other prompts"):
        stream.simulate(**run | {"policies": policies | {"other": policies["always"].iloc[1:]}})
    with pytest.raises(ValueError, match="has no column.*target_passes"):
        stream.simulate(**run | {"policies": policies | {"bare": budgets.judge(table, "chain:1")}})
    with pytest.raises(ValueError, match="lack setting 'chain:3'"):
        stream.with_passes(budgets.judge(table, "chain:3"), counts[counts["setting"] == "plain"])
    for empty in (
        lambda: stream.work(trace[:0], None),
        lambda: stream.work(trace[:0], chain(1)),
        lambda: stream.always(table[:0], MIX),
    ):
        with pytest.raises(ValueError, match="empty"):
            empty()
    with pytest.raises(ValueError, match="whole numbers from 1"):
        stream.batched(COSTS, 0, 4)
    one = stream.Work(np.ones(1, int), np.zeros((1, 0), int))
    for arrival, requests, batch in (
        (np.zeros(1), [], 1),
        (np.zeros(0), [], 1),
        (np.zeros(1), [one], 0),
    ):
        with pytest.raises(ValueError, match="a batch from 1"):
            stream.lockstep(arrival, requests, batch, COSTS)

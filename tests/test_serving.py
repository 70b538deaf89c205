"""The mixed stream: queues by hand and against an event loop, conservation, batches, mixes, drift,
bad input.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclab.analysis import choose
from speclab.cost import Costs
from speclab.draft import Shape
from speclab.score import Estimator, quotient
from speclab.stats import bootstrap
from speclab.studies.budgets_and_routing import batches, machines, serving
from speclab.tree import PLAIN as NOTHING
from speclab.tree import chain, static_tree

COSTS = Costs(
    10.0,
    (1, 2, 4, 8, 16, 32, 64),
    (0.2, 0.2, 0.22, 0.3, 0.4, 0.6, 1.0),
    (1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0),
    0.1,
    0.1,
)
LOOP = Costs(10.0, COSTS.sizes, COSTS.draft, COSTS.verify, 0.1, 0.7)
BARE = Costs(10.0, COSTS.sizes, COSTS.draft, COSTS.verify)
SETTINGS = {
    "plain": NOTHING,
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
                np.where(
                    rng.random(size) < 0.85 - 0.4 * d, 0, rng.integers(1, 5, size)
                ),
            )
    return trace_of(ranks)


def priced(trace, costs=COSTS, limit=None):
    """Prices of a trace."""
    return choose.price(
        choose.block_counts(trace, SETTINGS, max_new_tokens=limit), SETTINGS, costs
    )


def policies_of(trace, costs=COSTS, limit=None):
    """Judged frames of the usual policies."""
    prices = priced(trace, costs, limit)
    best = choose.setting_by_domain(prices)
    domain = prices.prompts.set_index("prompt_id")["domain"]
    return {
        "never": prices.judged("plain"),
        "always": prices.judged("chain:3"),
        "oracle": choose.with_hindsight(prices),
        "per-domain": prices.judged(domain.map(best).to_dict()),
    }


def event_loop(arrival, service):
    """One server, event by event: the slow reference of Lindley's recursion."""
    free, finish = 0.0, []
    for a, s in zip(arrival, service, strict=True):
        free = max(free, a) + s
        finish.append(free)
    return np.array(finish)


# ---- the queue -----------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 5)), min_size=1, max_size=40)
)
def test_lindley_is_the_event_loop(pairs):
    gap, service = np.array(pairs).T
    arrival = gap.cumsum()
    assert np.allclose(
        serving.finish_times(arrival, service), event_loop(arrival, service), atol=1e-9
    )
    assert np.allclose(
        serving.finish_times(
            np.stack([arrival, arrival]), np.stack([service, service])
        )[1],
        event_loop(arrival, service),
    )


def test_a_stream_of_three_requests_by_hand():
    """Texts of equal length in one domain, so that every draw costs the same and only the arrivals
    are chance.
    """
    trace = trace_of({f"p{i}": ("code", [0, 1, 0]) for i in range(5)})
    prices = priced(trace)
    # chain of 1: blocks (0, miss) and (0, end): two passes over two tokens, a draft pass each; 2
    # (0.2 + 1.1 + 0.1) = 2.8 target passes
    policies = {"never": prices.judged("plain"), "one": prices.judged("chain:1")}
    found = serving.simulate(
        policies, {"code": 1.0}, COSTS.target_ms, load=0.5, requests=3, seeds=1, n=20
    )
    values = found.table().frame.pivot(
        index="metric", columns="policy", values="estimate"
    )
    assert values.loc["tokens_per_s", "never"] == pytest.approx(100) and values.loc[
        "tokens_per_s", "one"
    ] == pytest.approx(300 / 2.8)
    assert values.loc["passes_saved"].to_list() == pytest.approx([0, 1 / 3])
    assert values.loc["drafts_per_token"].to_list() == pytest.approx([0, 2 / 3])
    _, arrival = serving.draw(
        np.ones((21, 5)), 3 / 0.5, 3, np.random.default_rng([0, 0])
    )  # 3 tokens a request at half load
    for name, service in (("never", 3.0), ("one", 2.8)):
        latency = (event_loop(arrival[0], [service] * 3) - arrival[0]) * 0.01
        assert values.loc["p50_s", name] == pytest.approx(np.quantile(latency, 0.5))
        assert values.loc["p95_s", name] == pytest.approx(np.quantile(latency, 0.95))


def test_draws_follow_the_mix_and_the_load():
    shares = np.array([[0.1, 0.0, 0.9], [1.0, 0.0, 0.0]])
    which, arrival = serving.draw(shares, 2.0, 20_000, np.random.default_rng(1))
    assert np.bincount(which[0], minlength=3) / 20_000 == pytest.approx(
        [0.1, 0, 0.9], abs=0.01
    )
    assert (
        (which[1] == 0).all()
        and (np.diff(arrival) > 0).all()
        and arrival[0, -1] / 20_000 == pytest.approx(2.0, rel=0.05)
    )


# ---- policies and streams ------------------------------------------------------------------------


def test_tokens_served_are_tokens_recorded():
    trace = random_trace()
    for limit in (None, 30):
        policies = policies_of(trace, limit=limit)
        never, always = policies["never"], policies["always"]
        for name, frame in policies.items():
            assert frame["emitted"].sum() == len(trace), name
        assert (never["target_passes"] == never["emitted"]).all()
        assert not never["draft_passes"].any()
        assert (always["target_passes"] <= never["target_passes"]).all()
        levels = batches.levels_drafted(trace, SETTINGS["chain:3"], limit)
        assert sum(map(len, levels.values())) == always["target_passes"].sum()
        assert sum(map(sum, levels.values())) == always["draft_passes"].sum()


def test_the_oracle_is_never_slower():
    for seed in range(3):
        policies = policies_of(random_trace(seed=seed))
        found = serving.simulate(
            policies, MIX, 10.0, requests=40, seeds=2, n=50, seed=seed
        )
        for name in ("never", "always", "per-domain"):
            assert (found.of("oracle")[0] >= found.of(name)[0] - 1e-9).all()
            assert (found.of("oracle")[1:3] <= found.of(name)[1:3] + 1e-9).all()
        assert found.is_fastest("oracle", but="per-domain")
        assert not found.is_fastest("always", but="never"), (
            "the control: it is not the oracle"
        )


def test_a_mix_of_one_domain_is_that_domain_alone():
    trace = random_trace()
    both = policies_of(trace)
    alone = policies_of(trace[trace["domain"] == "code"])
    options = {"requests": 200, "seeds": 2, "n": 300}
    mixed, single = (
        serving.simulate(p, {"code": 1.0}, 10.0, **options).table().frame
        for p in (both, alone)
    )
    joined = mixed.merge(single, on=["metric", "policy"])
    speed = joined[
        joined["metric"].isin(["tokens_per_s", "passes_saved", "drafts_per_token"])
    ]
    assert np.allclose(speed["estimate_x"], speed["estimate_y"]), (
        "same prompts, same seeds, whatever else was recorded"
    )


def test_estimates_meet_the_exact_speed_and_its_interval():
    """Against the closed form: tokens per second of work is a ratio of mix-weighted means, its
    interval a bootstrap of prompts.
    """
    trace = random_trace(12, domains=("code",))
    policies = policies_of(trace)
    found = (
        serving.simulate(policies, {"code": 1.0}, 10.0, requests=800, seeds=6, n=400)
        .table()
        .frame.set_index(["metric", "policy"])
    )
    speed = Estimator(
        "speed", lambda f: f[["emitted", "cost"]].to_numpy(float), quotient
    )
    exact = bootstrap(policies["always"], speed)
    row = found.loc["tokens_per_s", "always"]
    assert row["estimate"] == pytest.approx(100 * exact.estimate, rel=0.01)
    assert row["high"] - row["low"] == pytest.approx(
        100 * (exact.high - exact.low), rel=0.25
    )


def test_against_a_policy():
    policies = policies_of(random_trace())
    outcome = serving.simulate(policies, MIX, 10.0, requests=30, seeds=1, n=60)
    own = outcome.table("never").frame.set_index(["metric", "policy"])
    assert (own.loc[("tokens_per_s", "never"), ["estimate", "low", "high"]] == 1).all()
    assert (own.loc[("passes_saved", "never"), ["estimate", "low", "high"]] == 0).all()


def test_more_load_waits_longer_and_works_no_faster():
    policies = policies_of(random_trace())
    low, high = (
        serving.simulate(policies, MIX, 10.0, load=load, n=20)
        .table()
        .frame.set_index(["metric", "policy"])
        for load in (0.3, 1.5)
    )
    assert (
        high.loc[("p95_s", "never"), "estimate"]
        > 2 * low.loc[("p95_s", "never"), "estimate"]
    )
    assert high.loc[("tokens_per_s", "never"), "estimate"] == pytest.approx(
        low.loc[("tokens_per_s", "never"), "estimate"]
    )


SURE_OR_NEVER = trace_of(
    {f"code-{i}": ("code", [0] * 12) for i in range(5)}
    | {f"chat-{i}": ("chat", [9] * 12) for i in range(5)}
)


def test_drift_by_hand():
    prices = priced(SURE_OR_NEVER)
    mixes = {"code": {"code": 1.0}, "chat": {"chat": 1.0}}
    found = serving.drift(prices, mixes, choose.cross_fit(prices), n=50)
    block = 3 * 0.2 + 1.2 + 0.1  # a chain of 3 and its pass over four tokens
    fast = 12 / (3 * block)
    # no draft is accepted; the last two blocks are cut short
    slow = 12 / (10 * block + (2 * 0.2 + 1.15 + 0.1) + (0.2 + 1.1 + 0.1))
    wanted = {
        ("code", "code"): fast,
        ("code", "chat"): slow,
        ("chat", "code"): 1,
        ("chat", "chat"): 1,
        ("per-domain", "code"): fast,
        ("per-domain", "chat"): 1,
    }
    speeds = found.frame.set_index(["fitted_on", "served"])["estimate"]
    assert speeds.to_dict() == pytest.approx(wanted)
    assert serving.most_lost(found) == pytest.approx(max(fast - 1, 1 - slow))


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
        rows,
        columns=[
            "method",
            "repeat",
            "prompt_id",
            "domain",
            "tokens",
            "blocks",
            "time_s",
        ],
    )
    trees = {"chain:1": chain(1), "tree:2,2,4": static_tree(2, 2, 4)}
    shapes = {name: Shape(tree) for name, tree in trees.items()}
    found = machines.with_measured_loop(BARE, speeds, shapes)
    passes = (
        0.2 + 0.2 + COSTS.v(5)
    )  # two draft passes (over one and two tokens) and five tokens
    assert (found.overhead, found.tree_overhead) == pytest.approx(
        (0.3 + 0.1, 2.6 - passes)
    )
    assert found.of_block(trees["chain:1"]) == pytest.approx(1.7)
    assert found.of_block(trees["tree:2,2,4"]) == pytest.approx(2.6)
    plain = speeds["method"] == "plain"
    fast = speeds.assign(time_s=speeds["time_s"].where(plain, speeds["time_s"] / 10))
    lean = machines.with_measured_loop(BARE, fast, shapes)
    assert (lean.overhead, lean.tree_overhead) == (0, 0)


# ---- batches -------------------------------------------------------------------------------------


def test_extrapolation_goes_on_with_the_last_slope():
    wide = batches.extended(COSTS, 128)
    assert (wide.v(128), wide.c(128)) == pytest.approx(
        (5 + 64 * 2 / 32, 1 + 64 * 0.4 / 32)
    ) and wide.v(96) == pytest.approx(7)
    falling = Costs(1.0, (1, 32, 64), (0.2, 0.5, 0.4), (1.0, 3.0, 2.0))
    assert batches.extended(falling, 128).v(128) == 2.0, (
        "noise does not make larger passes cheaper"
    )
    with pytest.raises(ValueError, match="was not measured"):
        COSTS.v(65)


@pytest.mark.parametrize("costs", [COSTS, LOOP])
def test_a_batch_of_one_is_no_batch(costs):
    trace, one = random_trace(), batches.batched(costs, 1, 16)
    assert one.target_ms == costs.target_ms
    assert np.allclose(*(priced(trace, c).cost for c in (costs, one)))


@pytest.mark.parametrize("setting", list(SETTINGS))
@pytest.mark.parametrize("costs", [COSTS, LOOP])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000))
def test_lockstep_of_one_serves_one_after_the_other(costs, setting, seed):
    trace = random_trace(5, seed)
    prices = priced(trace, costs)
    levels = batches.levels_drafted(trace, SETTINGS[setting])
    done = batches.lockstep(list(levels.values()), SETTINGS[setting], 1, costs)
    column = list(prices.settings).index(setting)
    assert done == pytest.approx(prices.cost[:, column].sum())


def test_lockstep_of_two_by_hand():
    """Three requests, two at a time: a chain of 3 and one of 1, and when the first leaves the third
    joins, whose text ends after one more block.
    """
    requests = [np.array([3]), np.array([1, 2]), np.array([3])]
    first = (
        2 * 0.2 + 0.2 + COSTS.c(2) - 0.2 + COSTS.v(4 + 2) + 0.1
    )  # both draft, then one alone
    second = COSTS.c(2) + COSTS.c(2) + 0.2 + COSTS.v(3 + 4) + 0.1
    found = batches.lockstep(requests, chain(3), 2, COSTS)
    assert found == pytest.approx(first + second)
    plain = [np.zeros(3, int), np.zeros(1, int), np.zeros(1, int)]
    assert batches.lockstep(plain, NOTHING, 2, COSTS) == pytest.approx(
        2 * COSTS.v(2) + 1
    )


@pytest.mark.parametrize("costs", [COSTS, LOOP])
def test_a_full_batch_costs_what_batched_says(costs):
    """Eight equal requests at once: the lock-step server takes eight times each one's share."""
    trace = trace_of({f"p{i}": ("code", [0, 0, 2, 0, 0, 0, 1, 0, 0]) for i in range(8)})
    shared = batches.batched(costs, 8, 8)
    prices = priced(trace, shared)
    for column, (name, shape) in enumerate(SETTINGS.items()):
        share = prices.cost[0, column] * shared.target_ms / costs.target_ms
        requests = list(batches.levels_drafted(trace, shape).values())
        done = batches.lockstep(requests, shape, 8, batches.extended(costs, 64))
        assert np.allclose(done, 8 * share), name


def test_batches_beside_their_simulation():
    trace = random_trace()
    counted = choose.block_counts(trace, SETTINGS)
    crowd = batches.by_batch(counted, SETTINGS, {"here": COSTS}, [1, 4, 16], n=50)
    unforeseen = choose.block_counts(trace, SETTINGS, max_new_tokens=30)
    same_limit = batches.by_batch(
        unforeseen, SETTINGS, {"here": COSTS}, [1, 4, 16], n=50
    )
    alone = batches.lockstep_speeds(same_limit, trace, SETTINGS, COSTS, 30)
    assert batches.one_at_a_time_agrees(same_limit, alone)
    size = {name: 16 * (shape.size + 1) for name, shape in SETTINGS.items()}
    rows = crowd.at(batch=16).frame
    assert rows["pass_tokens"].tolist() == [size[name] for name in rows["setting"]]
    assert batches.largest_priced(crowd, COSTS) in (4, 16)


# ---- bad input -----------------------------------------------------------------------------------


def test_bad_input_says_what_to_do():
    policies = policies_of(random_trace())
    for message, mix in {
        "sum to 1": {"code": 0.5, "chat": 0.4},
        "names .*prose": {"prose": 1.0},
    }.items():
        with pytest.raises(ValueError, match=message):
            serving.simulate(policies, mix, 10.0, n=5, requests=5)
    fewer = policies | {"other": policies["always"].iloc[1:]}
    with pytest.raises(AssertionError):
        serving.simulate(fewer, MIX, 10.0, n=5, requests=5)

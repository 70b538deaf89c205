"""The mixed stream: queues by hand and against an event loop, mixes, batches, bad input."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from frames import pooled
from hypothesis import given
from hypothesis import strategies as st
from test_choose import priced, random_trace, trace_of

from speclab.analysis import choose
from speclab.analysis.choose import Choice
from speclab.cost import Costs
from speclab.models import timing
from speclab.score import Estimator, quotient
from speclab.shapes import Shape
from speclab.studies.budgets_and_routing import serving
from speclab.tree import PLAIN, chain, static_tree

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
    "plain": PLAIN,
    "chain:1": chain(1),
    "chain:3": chain(3),
    "tree:2,2,4": static_tree(2, 2, 4),
}
MIX = {"code": 0.7, "chat": 0.3}


def policies_of(trace):
    """The usual policies, settings held fixed."""
    by_prompt = priced(trace, SETTINGS, COSTS)
    best = choose.setting_by_domain(by_prompt)
    domain = by_prompt.prompts.set_index("prompt_id")["domain"]
    frames = {
        "never": by_prompt.judged("plain"),
        "always": by_prompt.judged("chain:3"),
        "oracle": choose.with_hindsight(by_prompt),
        "per-domain": by_prompt.judged(domain.map(best).to_dict()),
    }
    return {name: Choice(frame) for name, frame in frames.items()}


def event_loop(arrival, service):
    """One server, event by event: the slow reference of Lindley's recursion."""
    free, finish = 0.0, []
    for a, s in zip(arrival, service, strict=True):
        free = max(free, a) + s
        finish.append(free)
    return np.array(finish)


# ---- the queue -----------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 5)), min_size=1, max_size=40))
def test_lindley_is_the_event_loop(pairs):
    gap, service = np.array(pairs).T
    arrival = gap.cumsum()
    both = serving.finish_times(np.stack([arrival] * 2), np.stack([service] * 2))
    assert np.allclose(both, event_loop(arrival, service), atol=1e-9)


def test_a_stream_of_three_requests_by_hand():
    """Texts of equal length in one domain, so that every draw costs the same and only the arrivals
    are chance.
    """
    trace = trace_of({f"p{i}": ("code", [0, 1, 0]) for i in range(5)})
    by_prompt = priced(trace, SETTINGS, COSTS)
    # chain of 1: blocks (0, miss) and (0, end): two passes over two tokens, a draft pass each; 2
    # (0.2 + 1.1 + 0.1) = 2.8 target passes
    services = {"never": 3.0, "one": 2.8}
    settings = zip(services, ("plain", "chain:1"), strict=True)
    choices = {name: Choice(by_prompt.judged(setting)) for name, setting in settings}
    found = serving.simulate(choices, {"code": 1.0}, COSTS.target_ms, 0.5, 3, 1, n=20)
    # 3 tokens a request at half load
    rng = np.random.default_rng([0, 0])
    _, arrival = serving.draw(np.ones((21, 5)), 3 / 0.5, 3, rng)
    for name, service in services.items():
        latency = (event_loop(arrival[0], [service] * 3) - arrival[0]) * 0.01
        wanted = [300 / service, *np.quantile(latency, [0.5, 0.95])]
        assert found[name].iloc[0].tolist() == pytest.approx(wanted)


# ---- policies and streams ------------------------------------------------------------------------


def test_the_oracle_is_never_slower_in_any_stream():
    policies = policies_of(random_trace())
    found = serving.simulate(policies, MIX, 10.0, requests=40, streams=2, n=50)
    for name in ("never", "always", "per-domain"):
        ahead = found["oracle"] - found[name]
        assert (ahead["tokens_per_s"] >= -1e-9).all()
        assert (ahead[["p50_s", "p95_s"]] <= 1e-9).all(axis=None)


def test_estimates_meet_the_exact_speed_and_its_interval():
    """Against the closed form: tokens per second of work is a ratio of mix-weighted means, its
    interval a bootstrap of prompts.
    """
    policies = policies_of(random_trace(prompts=12).query("domain == 'code'"))
    found = serving.simulate(policies, {"code": 1.0}, 10.0, 0.8, 800, 6, n=400)
    row = found.table().frame.set_index(["name", "domain"]).loc["always", "tokens_per_s"]
    speed = Estimator("speed", lambda f: f[["emitted", "cost"]].to_numpy(), quotient)
    exact = pooled(policies["always"].judged, speed)
    assert row["estimate"] == pytest.approx(100 * exact.estimate, rel=0.01)
    width = 100 * (exact.high - exact.low)
    assert row["high"] - row["low"] == pytest.approx(width, rel=0.25)


def test_one_setting_is_the_best_for_its_mix():
    """Code accepts everything, chat nothing: a mix of chat alone is best served plainly."""
    texts = {f"code-{i}": ("code", [0] * 12) for i in range(5)}
    texts |= {f"chat-{i}": ("chat", [9] * 12) for i in range(5)}
    by_prompt = priced(trace_of(texts), SETTINGS, COSTS)
    for mix, setting in (({"code": 1.0}, "chain:3"), ({"chat": 1.0}, "plain")):
        chosen = serving.best_for_mix(by_prompt, mix).judged["setting"]
        assert set(chosen) == {setting}


# ---- a machine and its loop ----------------------------------------------------------------------


@pytest.mark.parametrize("speed", [1, 10])
def test_the_loops_own_time_by_hand(speed):
    """Plain: 10 ms a token.

    A block of a chain of 1 takes 16 ms: 1.6 tokens, of which its passes are 0.2 + 1.1.
    """
    cost = {"plain": 1.0, "chain:1": 1.6 / speed, "tree:2,2,4": 2.5 / speed}
    extra = {"a": 0.0, "b": 0.1, "c": 0.4}
    cases = list(product((1.0, 1.0, 7.0), extra, cost))  # one repeat met a busy machine
    speeds = pd.DataFrame(cases, columns=["slow", "prompt_id", "method"])
    block = speeds["method"].map(cost)
    block += speeds["prompt_id"].map(extra).where(speeds["method"] != "plain", 0.0) / speed
    speeds = speeds.assign(repeat=speeds.index // 9, domain="code", tokens=20, blocks=20)
    speeds = speeds.assign(time_s=speeds["slow"] * 0.01 * 20 * block)
    shapes = {name: Shape(SETTINGS[name]) for name in ("chain:1", "tree:2,2,4")}
    found, least = timing.with_loop(BARE, timing.in_plain_tokens(speeds), shapes)
    # a block's median, less its passes: of a tree two of the draft, over one and two tokens
    loops = 1.7 / speed - (0.2 + 1.1), 2.6 / speed - (0.2 + 0.2 + COSTS.v(5))
    assert least == pytest.approx(min(loops))
    wanted = loops if speed == 1 else (0, 0)  # there a block took less than its passes
    assert (found.overhead, found.tree_overhead) == pytest.approx(wanted)


# ---- batches -------------------------------------------------------------------------------------


def test_extrapolation_goes_on_with_the_last_slope():
    wide = serving.extended(COSTS, 128)
    assert (wide.v(96), wide.v(128), wide.c(128)) == pytest.approx((7, 9, 1.8))
    falling = Costs(1.0, (1, 32, 64), (0.2, 0.5, 0.4), (1.0, 3.0, 2.0))
    assert serving.extended(falling, 128).v(128) == 2.0, "noise does not make larger passes cheaper"
    with pytest.raises(ValueError, match="was not measured"):
        COSTS.v(65)


@pytest.mark.parametrize("costs", [COSTS, LOOP])
def test_a_full_batch_by_hand(costs):
    """Eight equal requests at once, whose texts are two blocks of a tree of two levels (1 + 2 + 2
    nodes): two draft passes over 8 and 16 tokens, and a pass over 40, each for all of them.
    """
    trace = trace_of({f"p{i}": ("code", [0, 0, 0] * 2) for i in range(8)})
    shared = serving.batched(costs, 8, 8)
    tree = SETTINGS["tree:2,2,4"]
    inner = int((tree.width[tree.level(1)] > 0).sum())
    block = costs.c(8) + costs.c(8 * inner) + costs.v(8 * (tree.size + 1)) + costs.loop(False)
    column = list(SETTINGS).index("tree:2,2,4")
    share = priced(trace, SETTINGS, shared, max_new_tokens=99).cost[0, column]
    assert share * shared.target_ms * 8 == pytest.approx(2 * block * costs.target_ms)


def test_the_best_setting_of_a_batch_and_its_passes():
    counted = choose.block_counts(random_trace(), SETTINGS)
    crowd = serving.by_batch(counted, SETTINGS, {"here": COSTS}, [1, 16], n=50)
    rows = crowd.at(batch=16).frame
    size = {name: 16 * (shape.size + 1) for name, shape in SETTINGS.items()}
    assert rows["pass_tokens"].tolist() == rows["setting"].map(size).tolist()
    drafts = {name: shape for name, shape in SETTINGS.items() if shape.size}
    alone = choose.best_setting(choose.prompt_costs(counted, drafts, COSTS), 50)
    found = crowd.at(batch=1).frame.set_index("domain")["estimate"]
    assert found.to_dict() == pytest.approx(alone.groupby("domain")["speedup"].max().to_dict())


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ({"code": 0.5, "chat": 0.4}, "shares of code and chat must"),
        ({"code": 1.5, "chat": -0.5}, "shares of code and chat must"),
        ({"prose": 1.0}, "prose: no such domain; the domains here are code and chat"),
    ],
)
def test_a_mix_is_of_shares_of_known_domains(mix, message):
    with pytest.raises(ValueError, match=message):
        serving.mix_of(mix, ("code", "chat"))


def test_no_mix_is_every_domain_equally_often():
    assert serving.mix_of({}, ["a", "b", "c", "d"]) == dict.fromkeys("abcd", 0.25)
    assert serving.mix_of(MIX, ["chat", "code"]) == MIX

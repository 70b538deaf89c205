"""Which draft: candidates share target and text, what is kept is read again, costs and speeds by
hand, every draft lossless.
"""

import copy
import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import save_random_llama
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ArrowException
from toy import toy_pair

from speclab import score
from speclab.analysis.significance import paired_difference
from speclab.analysis.stopping import chains, stopped, totals
from speclab.cost import Costs, speedup_standard
from speclab.decode import decode_prompt
from speclab.draft import Shape, StopRule
from speclab.drafts.distil import TrainedDraft
from speclab.drafts.lookup import with_lookup
from speclab.drafts.prompts import training_prompts
from speclab.drafts.texts import TextConfig, continuations
from speclab.prompts import EncodedPrompt, encode_prompts, load_prompts
from speclab.record import generate, record_prompt
from speclab.runs import record_run, texts_of
from speclab.sampling import Sampling
from speclab.studies.better_drafts import accepted, candidates, speed
from speclab.studies.better_drafts.candidates import LOOKUP, OWN
from speclab.tree import chain

COSTS = Costs(2.0, (1, 64), (0.1, 0.1), (1.0, 7.3), 0.2)  # v(n) = 1 + 0.1 (n - 1)


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Traces are kept in a folder of the test."""
    monkeypatch.setattr(candidates, "WORK", tmp_path / "drafts")
    return tmp_path / "drafts"


@pytest.fixture(scope="module")
def profile(random_profile):
    """A small run of the random pair."""
    return random_profile.replace(
        prompts_per_domain=5, max_new_tokens=6, block_prompts=7
    )


@pytest.fixture(scope="module")
def own(random_pair, profile, tmp_path_factory):
    """The pair's own run, tree and all."""
    return record_run(profile, tmp_path_factory.mktemp("run"), pair=random_pair)


@pytest.fixture(scope="module")
def drafts(random_pair, profile):
    """A loaded draft, prompt lookup, and the target's first layer."""
    loaded = candidates.candidate("loaded", random_pair, profile, profile.draft.path)
    lookup = candidates.prompt_lookup(random_pair, profile)
    return [loaded, lookup, *candidates.early_exits(random_pair, profile, [1])]


class FakeTried:
    """Traces by name and kind, as `candidates.Tried` gives them."""

    def __init__(self, traces, **fields):
        self.traces = traces
        self.__dict__ |= fields

    def trace(self, name, kind):
        return self.traces[name, kind]


def of_both_kinds(traces):
    """The same traces for both kinds of run."""
    kinds = ("greedy", "sampled")
    return FakeTried(
        {(name, kind): trace for name, trace in traces.items() for kind in kinds}
    )


# ---- candidates and their traces -----------------------------------------------------------------


def test_first_layers_is_the_network_with_fewer_layers(random_pair, profile):
    early, tokens = (
        candidates.first_layers(random_pair, profile, 1),
        torch.tensor([[3, 9, 27, 5]]),
    )
    short = copy.deepcopy(random_pair.target.network)
    dropped = sum(p.numel() for p in short.model.layers[1].parameters())
    short.model.layers = short.model.layers[:1]
    draft = early.pair.draft
    got = draft.logits(draft.forward(tokens, draft.cache()))
    with torch.inference_mode():
        assert torch.allclose(got, short(tokens, use_cache=False).logits, atol=1e-4)
    whole = random_pair.target.logits(
        random_pair.target.forward(tokens, random_pair.target.cache())
    )
    assert not torch.allclose(got, whole, atol=1e-2), (
        "the target itself is left as it was"
    )
    assert (
        early.pair.facts["draft"]["parameters"]
        == random_pair.facts["target"]["parameters"] - dropped
    )


def test_a_draft_of_another_tokenizer_is_refused(random_pair, profile, tmp_path):
    other = save_random_llama(tmp_path / "other", 4, words=36)
    with pytest.raises(ValueError, match="different vocabularies"):
        candidates.candidate("other", random_pair, profile, other)


def test_traces_are_the_recorders_and_kept(drafts, own, profile, work, monkeypatch):
    """Along the same texts every column is the recorder's, bit for bit."""
    texts, runs = texts_of(own), {"greedy": own}
    runs["sampled"] = record_run(
        profile.replace(temperature=1.0), work / "run", drafts[0].pair
    )
    for kind, one in itertools.product(runs, drafts):
        small = profile.replace(temperature=float(kind == "sampled"))
        texts = texts_of(runs[kind])
        target = candidates.Remembered(one.pair.target)
        trace = candidates.judged(one, profile, kind, texts, target)
        again = record_run(
            small.replace(depth=1, branches=1, budget=1),
            work / f"{one.name} {kind}",
            one.pair,
            texts,
        ).trace
        again["confidence"] = [q[0] for q in again["top_draft_q"]]
        for name in trace:
            assert trace[name].tolist() == again[name].tolist(), (one.name, kind, name)
    loaded, lookup, early = (
        candidates.judged(one, profile, "greedy", texts_of(own)) for one in drafts
    )
    assert not np.allclose(lookup["confidence"], early["confidence"]), (
        "drafts that share a spec are kept apart by their names"
    )
    monkeypatch.setattr(candidates, "_along", lambda *a: pytest.fail("judged again"))
    again = candidates.judged(drafts[0], profile, "greedy", texts_of(own))
    pd.testing.assert_frame_equal(again, loaded)


def test_a_damaged_trace_is_refused(drafts, own, profile, work):
    asked = drafts[1], profile, "greedy", texts_of(own)
    candidates.judged(*asked)
    (path,) = work.glob("greedy/*.parquet")
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    with pytest.raises((OSError, ArrowException)):
        candidates.judged(*asked)


def test_chains_of_prompt_lookup_are_the_recorders(drafts, own, profile, work):
    """But for the target's ranks, which count up to the first token that is not the text's."""
    one = drafts[1]
    tried = FakeTried({}, texts={"greedy": texts_of(own)}, pair=one.pair)
    tried.profile = profile
    mine = candidates.Tried.lookup_chains(tried, 3)
    its = record_run(
        profile.replace(depth=3, branches=1, budget=3),
        work / "chains",
        one.pair,
        texts_of(own),
    ).nodes
    by = ["prompt_id", "position", "node"]
    mine, its = (nodes.sort_values(by, ignore_index=True) for nodes in (mine, its))
    for name in [
        *by,
        "domain",
        "depth",
        "rank",
        "token",
        "draft_prob",
        "draft_entropy",
    ]:
        assert mine[name].tolist() == its[name].tolist(), name
    rule = speed.CONFIDENT.measure, speed.CONFIDENT.threshold, 3
    at = [chains(nodes, profile.max_new_tokens) for nodes in (mine, its)]
    for name in ("left", "room", "run"):
        assert np.array_equal(*(getattr(one, name) for one in at)), name
    sums = [totals(one, stopped(one, *rule), COSTS) for one in at]
    pd.testing.assert_frame_equal(*sums)


def test_a_remembered_target_runs_a_text_once_and_nothing_else(random_pair):
    pair = dataclasses.replace(
        random_pair, target=candidates.Remembered(random_pair.target)
    )
    tokens, before = torch.tensor([[4, 5, 6]]), random_pair.target.passes
    first, second = (pair.target.forward(tokens, pair.target.cache()) for _ in range(2))
    assert torch.equal(first, second) and random_pair.target.passes == before + 1


def trace_of(ranks):
    """A trace of prompts of one domain from their draft ranks."""
    rows = [
        (f"p{i}", "code", at, 0, rank, 0.5)
        for i, text in enumerate(ranks)
        for at, rank in enumerate(text)
    ]
    return pd.DataFrame(
        rows,
        columns=["prompt_id", "domain", "position", "token", "draft_rank", "overlap"],
    )


def test_acceptance_and_differences_by_hand():
    half = trace_of([[0, 1, 0, 3]] * 6)
    all_right = trace_of([[0, 0, 0, 0]] * 6).assign(overlap=0.75)
    levels = accepted.acceptance(of_both_kinds({"a": half, "b": all_right}), ["a", "b"])
    assert levels.at(estimator="hit[1]", draft="a", domain="code").value == 0.5
    pooled = levels.at(estimator="alpha", draft="b", domain="pooled").frame
    assert pooled[["low", "high"]].to_numpy().tolist() == [[0.75, 0.75]]
    gain = accepted.against(all_right, half).set_index("domain")
    assert gain.loc["code", ["estimate", "low", "high"]].tolist() == [0.5, 0.5, 0.5]
    assert (
        gain.loc["code", "p_value"]
        < 0.05
        < accepted.against(half, half)["p_value"].min()
    )
    by_overlap = accepted.against(all_right, half, candidates.ALPHA)
    assert by_overlap["estimate"].tolist() == [0.25, 0.25]
    other = all_right.assign(token=1)
    with pytest.raises(AssertionError, match="traces of other texts"):
        accepted.against(other, half)
    assert accepted.against(other, half, same_text=False)["estimate"].tolist() == [
        0.5,
        0.5,
    ]


# ---- trained -------------------------------------------------------------------------------------


HIT = score.mean_of("hit")


def trace_with(values, rows=4):
    """A trace with `rows` positions a prompt; values: {domain: [share of each prompt]}."""
    return pd.DataFrame(
        {
            "prompt_id": f"{domain}-{i}",
            "domain": domain,
            "hit": float(k < round(share * rows)),
        }
        for domain, shares in values.items()
        for i, share in enumerate(shares)
        for k in range(rows)
    )


def test_what_training_changed_by_hand():
    before = trace_with({"code": [0, 0.5, 0.5, 1, 0.5], "chat": [0.5] * 5})
    one = trace_with({"code": [0.25, 0.75, 0.75, 1, 0.75], "chat": [0.5] * 5})
    two = trace_with({"code": [0, 0.5, 0.5, 1, 1], "chat": [0.75] * 5})
    table = accepted.trained_change(before, [one, two], HIT).set_index("domain")
    code, chat, both = table.loc["code"], table.loc["chat"], table.loc["all"]
    assert (code.before, code.after, code.difference) == pytest.approx(
        (0.5, 0.65, 0.15)
    )
    assert code.low < 0.15 < code.high
    assert (code.seed_low, code.seed_high) == pytest.approx((0.1, 0.2))
    assert (chat.seed_low, chat.seed_high) == pytest.approx((0, 0.25))
    assert (chat.low, chat.high) == pytest.approx((0, 0.25)), (
        "alike prompts leave the seeds"
    )
    assert both.difference == pytest.approx((0.15 + 0.125) / 2)
    assert both.n_prompts == 10 and both.n_seeds == 2


def test_no_change_has_no_interval_and_one_seed_gives_the_paired_interval():
    before = trace_with({"code": [0, 0.5, 0.5, 1, 0.5]})
    after = trace_with({"code": [0.25, 0.75, 0.5, 1, 0.75]})
    same = accepted.trained_change(before, [before] * 3, HIT)
    assert (same[["difference", "low", "high"]] == 0).all(axis=None)
    paired = paired_difference(after, before, HIT)
    row = accepted.trained_change(before, [after], HIT).iloc[-1]
    wanted = (paired.estimate, paired.low, paired.high)
    assert (row.difference, row.low, row.high) == pytest.approx(wanted)


def curve(*values):
    """A trained draft whose curve has these (hit[1], overlap) at steps 0, 10, …"""
    rows = [
        {"step": 10 * i, "hit[1]": h, "overlap": a} for i, (h, a) in enumerate(values)
    ]
    return TrainedDraft(None, {"minutes": 2.0 * len(values), "curve": rows})


def test_learning_curves_are_means_between_the_least_and_the_greatest_seed():
    seeds = {
        "a": curve((0.5, 0.4), (0.6, 0.5)),
        "b": curve((0.5, 0.4), (0.8, 0.3)),
    }
    curves = accepted.learning_curves({"sequence": seeds})
    at_10 = curves.at(draft="sequence", step=10, estimator="hit[1]").frame.iloc[0]
    assert (at_10.estimate, at_10.low, at_10.high) == pytest.approx((0.7, 0.6, 0.8))
    table = accepted.training_table({"sequence": seeds}, curves).iloc[0]
    assert table["hit[1] before"] == 0.5 and table["minutes"] == 4.0
    assert table["alpha after"] == pytest.approx(0.4)


def test_drafts_are_judged_on_the_first_prompts_of_a_whole_run(
    random_pair, profile, own, work, monkeypatch
):
    asked = []
    monkeypatch.setattr(
        candidates.runs,
        "load_or_record",
        lambda profile, kind: asked.append(profile) or own,
    )
    tried = candidates.Tried(profile, random_pair, per_domain=2)
    assert asked == [profile, profile], "the run as it is shipped, no smaller one"
    firsts = [p.prompt_id for p in load_prompts("project", 2)]
    trace = tried.trace(OWN, "greedy")
    assert trace["prompt_id"].drop_duplicates().tolist() == firsts
    assert list(tried.texts["greedy"]) == firsts and tried.recorded == 20
    tried.add(candidates.prompt_lookup(random_pair, profile))
    its = tried.trace(LOOKUP, "greedy")
    assert its["token"].tolist() == trace["token"].tolist()


def test_families_are_trained_recorded_and_compared(
    random_pair, profile, own, work, monkeypatch
):
    monkeypatch.setattr(candidates.runs, "load_or_record", lambda profile, kind: own)
    tried = candidates.Tried(profile, random_pair)
    config = TextConfig(max_prompt_tokens=12, max_new_tokens=4)
    text = continuations(random_pair, training_prompts(2), config, work)
    steps = candidates.train_config(1, 3, 1e-3)
    asked = candidates.trainings(text, ["total-variation", "sequence"], [0, 1], steps)
    trained = candidates.train(tried, asked)
    assert {family: list(names) for family, names in trained.items()} == {
        "total-variation": [
            f"distilled, total-variation, seed {seed}" for seed in (0, 1)
        ],
        "sequence": ["distilled, sequence, seed 0"],
        "specialist": ["specialist, seed 0", "specialist, seed 1"],
    }
    special = trained["specialist"]["specialist, seed 1"].facts["texts"]
    assert (
        0 < special < trained["sequence"]["distilled, sequence, seed 0"].facts["texts"]
    )
    gained = accepted.gained(tried, trained)
    change = gained.at(draft="sequence", estimator="alpha", domain="pooled").frame.iloc[
        0
    ]
    assert change["estimate"] == pytest.approx(change["after"] - change["before"])
    assert gained.frame.groupby("draft")["n_seeds"].first().to_dict() == {
        "total-variation": 2, "sequence": 1, "specialist": 2,
    }  # fmt: skip
    versus = accepted.specialist_against(tried, trained, "total-variation")
    pooled = gained.at(estimator="hit[1]", domain="pooled")
    mine, its = (
        pooled.at(draft=name).value for name in ("specialist", "total-variation")
    )
    difference = versus.at(estimator="hit[1]", domain="pooled").value
    assert difference == pytest.approx(mine - its, abs=1e-12)


# ---- copying -------------------------------------------------------------------------------------


def test_copying_by_hand():
    """Of four positions two match, one of these is right; the own draft is right at another one."""
    q = [0.9, 0.9, 0.1, 0.1] * 6
    lookup = trace_of([[0, 1, 1, 1]] * 6).assign(confidence=q)
    own = trace_of([[0, 0, 1, 1]] * 6)
    tried = FakeTried({(LOOKUP, "greedy"): lookup, (OWN, "greedy"): own})
    copies = accepted.copying(tried).at(domain="code")
    for asked in (accepted.MATCHED, accepted.RIGHT, accepted.EITHER):
        assert copies.at(estimator=asked).value == 0.5
    assert accepted.lookup_against_own(tried).at(domain="pooled").value == -0.25


# ---- costs and speed -----------------------------------------------------------------------------


def test_the_best_chain_by_hand():
    """Each text: 3 accepted, 1 rejected, twice.

    Gamma 3 makes blocks of 4 tokens at 0.3 + 1.3 + 0.2, gamma 1 of 2 at 0.1 + 1.1 + 0.2.
    """
    rows = trace_of([[0, 0, 0, 1] * 2] * 6)
    found = speed.fastest_chain(rows, COSTS, range(1, 6))
    assert found["gamma"] == 3 and found["block_efficiency"] == 4
    assert (
        found["speedup"]
        == pytest.approx(4 / 1.8)
        == pytest.approx(found["speedup_low"])
        == pytest.approx(found["speedup_high"])
    )
    dear = speed.fastest_chain(rows, speed.with_c(COSTS, 3.0), range(1, 6))
    assert dear["gamma"] == 1 and dear["speedup"] == pytest.approx(
        speedup_standard(2, 1, 3.0, 1.1, 0.2)
    )


@settings(max_examples=15)
@given(
    st.lists(
        st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=5, max_size=8
    ),
    st.floats(0, 1.5),
)
def test_no_other_gamma_is_faster(ranks, c):
    rows, costs = trace_of(ranks), speed.with_c(COSTS, c)
    best = speed.fastest_chain(rows, costs, range(1, 5))["speedup"]
    each = [
        speed.fastest_chain(rows, costs, [gamma])["speedup"] for gamma in range(1, 5)
    ]
    assert best == pytest.approx(max(each)) and best > 0


def test_a_chain_that_stops_costs_what_the_decoder_spends():
    """Prompt lookup that drafts nothing without a match, replayed from recorded chains and decoded
    for real.
    """
    pair, parts, made = with_lookup(toy_pair(stop=-1)), [], []
    rng, rule = np.random.default_rng(3), StopRule("confidence", 0.5)
    for i in range(6):
        prompt = EncodedPrompt(
            f"p{i}", "code", tuple(rng.integers(0, 4, 12).tolist()), 0
        )
        (text,) = generate(pair.target, [prompt], 14, frozenset(), Sampling(), 0)
        nodes = pd.DataFrame(
            record_prompt(pair, prompt, text, chain(3), Sampling()).nodes
        )
        parts.append(nodes.assign(prompt_id=prompt.prompt_id, domain="code"))
        made.append(
            {
                g: decode_prompt(
                    pair, prompt, "greedy", Shape(chain(g), rule), Sampling(), 14
                )
                for g in (1, 2, 3)
            }
        )
    nodes, reached = pd.concat(parts, ignore_index=True), {}
    for g in (1, 2, 3):
        spent = sum(
            COSTS.v(s.drafted + 1) + COSTS.overhead for m in made for s in m[g].steps
        )
        spent += sum(m[g].draft_passes * COSTS.c() for m in made)
        reached[g] = 6 * 14 / spent
    at = chains(nodes, 14)
    assert totals(at, stopped(at, "confidence", 0.5, 2), COSTS)["drafted"].sum() == sum(
        s.drafted for m in made for s in m[2].steps
    )
    found = speed.stopped_chain(nodes, COSTS, 14)
    assert found["speedup"] == pytest.approx(max(reached.values())) and found[
        "gamma"
    ] == max(reached, key=reached.get)
    assert speed.stopped_chain(nodes, COSTS, 14, limits=[2])[
        "speedup"
    ] == pytest.approx(reached[2])


def test_costs_of_candidates(drafts, random_pair):
    loaded, lookup, _ = drafts
    bound = speed.by_bytes(loaded)
    share = loaded.weight_bytes / random_pair.facts["target"]["weight_bytes"]
    assert bound.of_block(chain(4)) == pytest.approx(4 * share + 1)
    assert speed.by_bytes(lookup).c() == 0


def test_bytes_are_those_of_16_bits_at_most(drafts):
    assert speed.served_bytes(400, 32) == 200
    assert speed.served_bytes(400, 16) == 400
    assert speed.served_bytes(100, 4) == 100
    assert speed.served_bytes(0, 0) == 0
    loaded, _, _ = drafts
    quarter = dataclasses.replace(loaded, bits=8, weight_bytes=loaded.weight_bytes // 4)
    # a quarter of its float32 bytes is half of those that it would be served in
    wanted = pytest.approx(speed.share_of_bytes(loaded) / 2, rel=1e-3)
    assert speed.share_of_bytes(quarter) == wanted


@pytest.fixture
def runs_of(drafts, profile, own, work):
    """Every draft on the texts of the pair's own run, for both temperatures."""
    texts = texts_of(own)
    traces = {
        one.name: candidates.judged(one, profile, "greedy", texts, one.pair.target)
        for one in drafts
    }
    return of_both_kinds(traces)


def test_the_table_holds_each_drafts_own_numbers(drafts, runs_of):
    price = {one.name: c for one, c in zip(drafts, (0.2, 0.01, 0.6), strict=True)}
    table = speed.compared(runs_of, drafts, price, COSTS, range(1, 5)).set_index("name")
    for one in drafts:
        row, trace = table.loc[one.name], runs_of.trace(one.name, "greedy")
        best = speed.fastest_chain(
            trace, speed.with_c(COSTS, price[one.name]), range(1, 5)
        )
        assert row["hit[1]"] == (trace["draft_rank"] == 0).mean()
        assert row["hit[1]_low"] <= row["hit[1]"] <= row["hit[1]_high"]
        assert (row["speedup"], row["gamma"]) == (best["speedup"], best["gamma"])


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=9)
)
def test_the_pareto_front_is_what_nothing_dominates(points):
    cost, value = np.array(points).T
    front = speed.pareto(cost, value)
    for i, (c, v) in enumerate(points):
        assert front[i] == (
            not any((x <= c and y >= v) and (x < c or y > v) for x, y in points)
        )
    assert front.any()


def test_every_draft_is_lossless_and_the_check_can_fail(
    drafts, own, random_pair, profile
):
    known = load_prompts("project", 1)
    prompts = encode_prompts(random_pair.tokenizer, known, profile.max_prompt_tokens)
    timed, shapes = (
        speed.Timed(prompts, profile.max_new_tokens, 8),
        ("chain:3", "tree:3,2,8"),
    )
    texts = texts_of(own)
    table = speed.lossless(
        FakeTried({}, texts={"greedy": texts}), drafts, timed, shapes
    )
    assert len(table) == 6 and (table["texts"] == 4).all()
    assert (table["equal"] == table["texts"]).all()
    assert table["block_efficiency"].between(1, 4).all()
    wrong = {name: (text[0] ^ 1, *text[1:]) for name, text in texts.items()}
    table = speed.lossless(
        FakeTried({}, texts={"greedy": wrong}), drafts, timed, shapes
    )
    assert (table["equal"] == 0).all()

"""Selection: candidates share target and text, what is kept is read again, costs and speeds by
hand, every draft lossless.
"""

import copy
import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import save_random_llama
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import toy_pair

from speclab.analysis.stopping import chains, stopped, totals
from speclab.cost import Costs, speedup_standard
from speclab.decode import decode_prompt
from speclab.draft import Shape, StopRule, parse_shape
from speclab.drafts.lookup import with_lookup
from speclab.prompts import EncodedPrompt, encode_prompts, load_prompts
from speclab.record import generate, record_prompt
from speclab.runs import record_run, texts_of
from speclab.sampling import Sampling
from speclab.studies import better_drafts as selection
from speclab.studies.better_drafts import Candidate
from speclab.tree import chain

COSTS = Costs(2.0, (1, 64), (0.1, 0.1), (1.0, 7.3), 0.2)  # v(n) = 1 + 0.1 (n - 1)


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Traces are kept in a folder of the test."""
    monkeypatch.setattr(selection, "WORK", tmp_path / "drafts")
    return tmp_path / "drafts"


@pytest.fixture(scope="module")
def profile(random_profile):
    """A small run of the random pair."""
    return random_profile.replace(prompts_per_domain=5, max_new_tokens=6, block_prompts=7)


@pytest.fixture(scope="module")
def own(random_pair, profile, tmp_path_factory):
    """The pair's own run, tree and all."""
    return record_run(profile, tmp_path_factory.mktemp("run"), pair=random_pair, progress=iter)


@pytest.fixture(scope="module")
def tried(random_pair, profile):
    """A loaded draft, prompt lookup, and the target's first layer."""
    loaded = selection.candidate("loaded", random_pair, profile, profile.draft.path)
    lookup = Candidate("prompt lookup", with_lookup(random_pair), profile.draft, 0, 0)
    return [loaded, lookup, selection.first_layers(random_pair, profile, 1)]


def test_a_candidate_has_the_pairs_target_and_its_own_files_facts(tried, random_pair):
    loaded, _, early = tried
    assert all(
        one.pair.target is random_pair.target and one.pair.stop_ids == random_pair.stop_ids
        for one in tried
    )
    assert (
        loaded.bits == 32 and loaded.weight_bytes == random_pair.facts["draft"]["weight_bytes"]
    )  # this toy is stored in float32
    assert early.pair.facts["draft"]["layers"] == 1 and early.bits == 32
    table = selection.facts(tried).set_index("draft")
    assert table.loc["loaded", "layers"] == 1 and table.loc["prompt lookup", "weight_bytes"] == 0
    assert 0 < table.loc[early.name, "of_target_bytes"] < 1


def test_first_layers_is_the_network_with_fewer_layers(random_pair, profile):
    early, tokens = selection.first_layers(random_pair, profile, 1), torch.tensor([[3, 9, 27, 5]])
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
    assert not torch.allclose(got, whole, atol=1e-2), "the target itself is left as it was"
    assert (
        early.pair.facts["draft"]["parameters"]
        == random_pair.facts["target"]["parameters"] - dropped
    )


@pytest.mark.parametrize("layers", [0, 2, 5])
def test_first_layers_must_leave_some_out(random_pair, profile, layers):
    with pytest.raises(ValueError, match=f"layers={layers}: .* this one has 2"):
        selection.first_layers(random_pair, profile, layers)


def test_a_draft_of_another_tokenizer_is_refused(random_pair, profile, tmp_path):
    other = save_random_llama(tmp_path / "other", 4, words=36)
    with pytest.raises(ValueError, match="target and draft have different vocabularies"):
        selection.candidate("other", random_pair, profile, other)
    few = save_random_llama(tmp_path / "few", 4, vocab_size=30, words=27)
    with pytest.raises(
        ValueError, match="draft 'few' has 30 token ids, the pair shares 40|different vocabularies"
    ):
        selection.candidate("few", random_pair, profile, few)


def test_traces_are_the_recorders_and_kept(tried, own, profile, work, monkeypatch):
    texts = texts_of(own)
    for one in tried:
        run = selection.recorded(
            one, profile, "greedy", texts, target=selection.Remembered(one.pair.target)
        )
        assert run.trace["token"].equals(own.trace["token"])
        again = record_run(
            profile.replace(depth=1, branches=1, budget=1), work / one.name, one.pair, iter, texts
        )
        pd.testing.assert_frame_equal(
            run.trace.drop(columns=LISTS),
            again.trace.drop(columns=LISTS),
            check_exact=False,
            atol=1e-6,
        )
    loaded, lookup, early = (
        selection.recorded(one, profile, "greedy", texts).trace for one in tried
    )
    pd.testing.assert_frame_equal(
        loaded.drop(columns=LISTS), own.trace.drop(columns=LISTS), check_exact=False, atol=1e-6
    )
    assert not np.allclose(lookup["overlap"], early["overlap"]), (
        "drafts that share a spec are kept apart by their names"
    )
    written = selection.recorded(tried[0], profile, "greedy", None, "its own").trace
    assert written["token"].tolist() == own.trace["token"].tolist(), (
        "without texts the target writes them"
    )
    monkeypatch.setattr("speclab.runs.record_run", lambda *a, **k: pytest.fail("recorded again"))
    selection.recorded(tried[0], profile, "greedy", texts)


LISTS = ["top_draft_ids", "top_draft_q", "top_draft_p"]


def test_a_remembered_target_runs_a_text_once_and_nothing_else(random_pair):
    pair = dataclasses.replace(random_pair, target=selection.Remembered(random_pair.target))
    tokens, before = torch.tensor([[4, 5, 6]]), random_pair.target.passes
    first, second = (pair.target.forward(tokens, pair.target.cache()) for _ in range(2))
    assert torch.equal(first, second) and random_pair.target.passes == before + 1
    assert (
        torch.equal(pair.target.logits(first), random_pair.target.logits(first))
        and pair.vocab == random_pair.vocab
    )
    cache = random_pair.target.cache()
    random_pair.target.forward(tokens, cache)
    for options in ((cache,), (pair.target.cache(), torch.tensor([0, 1, 1]))):
        with pytest.raises(ValueError, match="whole texts only"):
            pair.target.forward(tokens, *options)


def trace_of(ranks):
    """A trace of prompts of one domain from their draft ranks."""
    rows = [
        (f"p{i}", "code", at, 0, rank, 0.5)
        for i, text in enumerate(ranks)
        for at, rank in enumerate(text)
    ]
    return pd.DataFrame(
        rows, columns=["prompt_id", "domain", "position", "token", "draft_rank", "overlap"]
    )


def test_acceptance_and_differences_by_hand():
    half, all_right = (
        trace_of([[0, 1, 0, 3]] * 6),
        trace_of([[0, 0, 0, 0]] * 6).assign(overlap=0.75),
    )
    table = selection.acceptance({"a": half, "b": all_right}).set_index(["draft", "domain"])
    assert table.loc[("a", "code"), "estimate"] == 0.5 and table.loc[
        ("b", "pooled"), ["low", "high"]
    ].tolist() == [1, 1]
    gain = selection.against({"b": all_right}, half).set_index("domain")
    assert gain.loc["code", ["estimate", "low", "high"]].tolist() == [0.5, 0.5, 0.5]
    assert (
        gain.loc["code", "p_value"] < 0.05 < selection.against({"a": half}, half)["p_value"].min()
    )
    assert selection.against({"b": all_right}, half, selection.ALPHA)["estimate"].tolist() == [
        0.25,
        0.25,
    ]
    with pytest.raises(ValueError, match="draft 'b' was judged on other texts"):
        selection.against({"b": all_right.assign(token=1)}, half)
    assert selection.against({"b": all_right.assign(token=1)}, half, same_text=False)[
        "estimate"
    ].tolist() == [0.5, 0.5]


def test_the_best_chain_by_hand():
    """Each text: 3 accepted, 1 rejected, twice.

    Gamma 3 makes blocks of 4 tokens at 0.3 + 1.3 + 0.2, gamma 1 of 2 at 0.1 + 1.1 + 0.2.
    """
    rows = trace_of([[0, 0, 0, 1] * 2] * 6)
    found = selection.best_chain(rows, COSTS, range(1, 6))
    assert found["gamma"] == 3 and found["block_efficiency"] == 4
    assert (
        found["speedup"]
        == pytest.approx(4 / 1.8)
        == pytest.approx(found["speedup_low"])
        == pytest.approx(found["speedup_high"])
    )
    dear = selection.best_chain(rows, selection.with_c(COSTS, 3.0), range(1, 6))
    assert dear["gamma"] == 1 and dear["speedup"] == pytest.approx(
        speedup_standard(2, 1, 3.0, 1.1, 0.2)
    )


@settings(max_examples=15)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=5, max_size=8),
    st.floats(0, 1.5),
)
def test_no_other_gamma_is_faster(ranks, c):
    rows, costs = trace_of(ranks), selection.with_c(COSTS, c)
    best = selection.best_chain(rows, costs, range(1, 5))["speedup"]
    each = [selection.best_chain(rows, costs, [gamma])["speedup"] for gamma in range(1, 5)]
    assert best == pytest.approx(max(each)) and best > 0


def test_a_chain_that_stops_costs_what_the_decoder_spends():
    """Prompt lookup that drafts nothing without a match, replayed from recorded chains and decoded
    for real.
    """
    pair, parts, made = with_lookup(toy_pair(stop=-1)), [], []
    rng, rule = np.random.default_rng(3), StopRule("confidence", 0.5)
    for i in range(6):
        prompt = EncodedPrompt(f"p{i}", "code", tuple(rng.integers(0, 4, 12).tolist()), 0)
        (text,) = generate(pair.target, [prompt], 14, frozenset(), Sampling(), 0)
        nodes = pd.DataFrame(record_prompt(pair, prompt, text, chain(3), Sampling()).nodes)
        parts.append(nodes.assign(prompt_id=prompt.prompt_id, domain="code"))
        made.append(
            {
                g: decode_prompt(pair, prompt, "greedy", Shape(chain(g), rule), Sampling(), 14)
                for g in (1, 2, 3)
            }
        )
    nodes, speed = pd.concat(parts, ignore_index=True), {}
    for g in (1, 2, 3):
        spent = sum(COSTS.v(s.drafted + 1) + COSTS.overhead for m in made for s in m[g].steps)
        spent += sum(m[g].draft_passes * COSTS.c() for m in made)
        speed[g] = 6 * 14 / spent
    at = chains(nodes, 14)
    assert totals(at, stopped(at, "confidence", 0.5, 2), COSTS)["drafted"].sum() == sum(
        s.drafted for m in made for s in m[2].steps
    )
    found = selection.stopped_chain(nodes, COSTS, 14)
    assert found["speedup"] == pytest.approx(max(speed.values())) and found["gamma"] == max(
        speed, key=speed.get
    )
    assert selection.stopped_chain(nodes, COSTS, 14, limits=[2])["speedup"] == pytest.approx(
        speed[2]
    )


def test_costs_of_candidates(tried, random_pair):
    bound = selection.by_bytes(tried[0])
    share = tried[0].weight_bytes / random_pair.facts["target"]["weight_bytes"]
    assert (
        bound.of_block(chain(4)) == pytest.approx(4 * share + 1)
        and selection.by_bytes(tried[1]).c() == 0
    )
    found = selection.pass_costs(
        [*tried, dataclasses.replace(tried[0], name="retrained")], context=16, repeats=3
    )
    assert list(found) == [*(one.name for one in tried), "retrained"] and all(
        0 < c < 10 for c in found.values()
    )
    assert found["retrained"] == found["loaded"] and len(set(found.values())) == 3, (
        "one measurement for one architecture"
    )
    timed = [EncodedPrompt(f"p{i}", "code", (3, 5, 7 + i), 0) for i in range(5)]
    speed = selection.measured_speed(tried[1], timed, 2, 60, 1, StopRule("confidence", 0.5))
    assert 0 < speed["measured_low"] <= speed["measured"] <= speed["measured_high"] < 20


def test_the_table_holds_each_drafts_own_numbers(tried, profile, own, work):
    runs = {one.name: selection.recorded(one, profile, "greedy", texts_of(own)) for one in tried}
    price = {one.name: c for one, c in zip(tried, (0.2, 0.01, 0.6), strict=True)}
    table = selection.compared(tried, runs, runs, price, COSTS, range(1, 5)).set_index("draft")
    for one in tried:
        row, best = (
            table.loc[one.name],
            selection.best_chain(
                runs[one.name].trace, selection.with_c(COSTS, price[one.name]), range(1, 5)
            ),
        )
        assert row["hit[1]"] == (runs[one.name].trace["draft_rank"] == 0).mean()
        assert row["hit[1]_low"] <= row["hit[1]"] <= row["hit[1]_high"]
        assert (
            row["speedup"] == best["speedup"]
            and row["gamma"] == best["gamma"]
            and row["c"] == price[one.name]
        )
        bound = max(
            selection.best_chain(runs[one.name].trace, selection.by_bytes(one), [g])["speedup"]
            for g in range(1, 5)
        )
        assert row["speedup_by_bytes"] == pytest.approx(bound)
    assert table.loc["prompt lookup", "front"] and table.loc[table["hit[1]"].idxmax(), "front"]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=9))
def test_the_pareto_front_is_what_nothing_dominates(points):
    cost, value = np.array(points).T
    front = selection.pareto(cost, value)
    for i, (c, v) in enumerate(points):
        assert front[i] == (not any((x <= c and y >= v) and (x < c or y > v) for x, y in points))
    assert front.any()


def test_pareto_refuses_what_it_cannot_compare():
    with pytest.raises(ValueError, match="as many finite numbers"):
        selection.pareto([1, 2], [1])
    with pytest.raises(ValueError, match="as many finite numbers"):
        selection.pareto([1, np.nan], [1, 2])


def test_every_draft_is_lossless_and_the_check_can_fail(tried, own, random_pair, profile):
    prompts = encode_prompts(
        random_pair.tokenizer, load_prompts("project", 2), profile.max_prompt_tokens
    )
    shapes = {name: parse_shape(name) for name in ("chain:3", "tree:3,2,8")}
    table = selection.lossless(tried, prompts, texts_of(own), shapes, profile.max_new_tokens)
    assert (
        len(table) == 6 and (table["equal"] == table["texts"]).all() and (table["texts"] == 8).all()
    )
    assert table["block_efficiency"].between(1, 4).all()
    wrong = {name: (text[0] ^ 1, *text[1:]) for name, text in texts_of(own).items()}
    assert (
        selection.lossless(tried, prompts, wrong, shapes, profile.max_new_tokens)["equal"] == 0
    ).all()


@pytest.mark.slow
def test_every_free_draft_is_lossless_on_the_tiny_pair(tiny_pair):
    from speclab.profiles import load_profile

    small = load_profile("tiny", {"device": "cpu", "prompts_per_domain": 5, "max_new_tokens": 32})
    tried = [
        Candidate("prompt lookup", with_lookup(tiny_pair), small.draft, 0, 0),
        selection.first_layers(tiny_pair, small, 2),
    ]
    prompts = encode_prompts(tiny_pair.tokenizer, load_prompts("project", 5), 512)
    made = generate(tiny_pair.target, prompts, 32, tiny_pair.stop_ids, Sampling(), 0)
    texts = {prompt.prompt_id: text for prompt, text in zip(prompts, made, strict=True)}
    shapes = {name: parse_shape(name) for name in ("chain:4", "tree:3,2,8", "dynamic:4,4,8")}
    table = selection.lossless(tried, prompts, texts, shapes, 32)
    assert (table["equal"] == table["texts"]).all()

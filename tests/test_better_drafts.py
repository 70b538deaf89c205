"""Notebook 08's study: candidates share target and text, stored results are read again, costs and
speeds match hand-made cases, and every draft is lossless.
"""

import copy
import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from pyarrow import ArrowException
from test_choose import trace_of
from test_faults import turned
from test_sentences import BAD
from toy import plain

from data.drafts import prepare
from data.drafts.texts import TextConfig, continuations
from speclab import score
from speclab.analysis import choose
from speclab.analysis.significance import paired_by_domain
from speclab.copying import MOST, copied
from speclab.cost import Costs
from speclab.decode import decode_prompt
from speclab.drafts.shipped import shipped_drafts
from speclab.models.folder import ModelFolder
from speclab.profiles import ROOT
from speclab.prompts import DOMAINS, decoded_prompts, load_prompts, training_prompts
from speclab.runs import record_run, texts_of
from speclab.sampling import Sampling
from speclab.shapes import parse_shape
from speclab.show.notebook import too_long
from speclab.studies.better_drafts import candidates, comparison
from speclab.studies.better_drafts.candidates import LOOKUP, OWN

COSTS = Costs(2.0, (1, 64), (0.1, 0.1), (1.0, 7.3), 0.2)  # v(n) = 1 + 0.1 (n - 1)


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Traces are kept in a folder of the test."""
    monkeypatch.setattr(candidates, "WORK", tmp_path / "drafts")
    return tmp_path / "drafts"


@pytest.fixture(scope="module")
def profile(random_profile):
    """A small run of the random pair."""
    return random_profile.replace(prompts_per_domain=5, max_new_tokens=6, block_prompts=7)


@pytest.fixture(scope="module")
def own(random_pair, profile, tmp_path_factory):
    """The pair's own run, tree and all."""
    return record_run(profile, tmp_path_factory.mktemp("run"), pair=random_pair)


@pytest.fixture(scope="module")
def drafts(random_pair, profile):
    """A loaded draft and the target's first layer."""
    loaded = candidates.candidate("loaded", random_pair, profile, Path(profile.draft.path))
    return [loaded, candidates.early_exit(random_pair, profile, 1)]


# ---- candidates and their traces -----------------------------------------------------------------


def test_first_layers_is_the_network_with_fewer_layers(random_pair, profile):
    early = candidates.early_exit(random_pair, profile, 1)
    tokens = torch.tensor([[3, 9, 27, 5]])
    short = copy.deepcopy(random_pair.target.network)
    short.model.layers = short.model.layers[:1]
    got, whole = (
        model.logits(model.forward(tokens, model.cache()))
        for model in (early.load().draft, random_pair.target)
    )
    with torch.inference_mode():
        assert torch.allclose(got, short(tokens, use_cache=False).logits, atol=1e-4)
    assert not torch.allclose(got, whole, atol=1e-2), "the target is left as it was"
    kept = sum(p.numel() for p in short.parameters())
    assert early.facts["draft"]["parameters"] == kept


def test_traces_are_the_recorders_and_kept(drafts, own, profile, work, monkeypatch):
    """Every column equals the draft's recorded run on the same texts, bit for bit."""
    texts = texts_of(own)
    for one in drafts:  # of one spec: kept apart by their names
        made = candidates.judged(one, profile, "greedy", texts)
        small = profile.replace(depth=1, branches=1, budget=1)
        again = record_run(small, work / one.name, one.load(), texts).trace
        for name in made:
            assert made[name].tolist() == again[name].tolist(), name
    few = dict(list(texts.items())[:2])
    part = candidates.judged(one, profile, "greedy", few)
    assert part["prompt_id"].nunique() == 2, "another choice of prompts is kept apart"
    monkeypatch.setattr(candidates, "trace_along", None)
    pd.testing.assert_frame_equal(candidates.judged(one, profile, "greedy", texts), made)
    monkeypatch.setattr(candidates, "device_of", lambda _: torch.device("cuda"))
    auto = dataclasses.replace(profile.target, device="auto")
    with pytest.raises(TypeError):  # float16 there: another trace
        candidates.judged(one, profile.replace(target=auto), "greedy", texts)


def test_a_damaged_trace_is_refused(drafts, own, profile, work):
    asked = drafts[1], profile, "greedy", texts_of(own)
    candidates.judged(*asked)
    (path,) = work.glob("greedy/*.parquet")
    path.write_bytes(turned(path.read_bytes(), 40))
    with pytest.raises((OSError, ArrowException)):
        candidates.judged(*asked)


@pytest.fixture
def tried(random_pair, profile, own, work, monkeypatch):
    """The pair's own draft, prompt lookup and the target's first layer on its own texts (both
    kinds: the greedy ones).
    """
    monkeypatch.setattr(candidates.runs, "load_or_record", lambda profile, kind: own)
    tried = candidates.Tried(profile, random_pair)
    tried.add(candidates.prompt_lookup(tried))
    tried.add(candidates.early_exit(random_pair, profile, 1))
    return tried


def test_copies_are_the_rules_and_their_alpha_is_p(tried, random_pair):
    target, trace = random_pair.target, tried.trace(LOOKUP, "sampled")
    rows = trace.set_index(["prompt_id", "position"])
    assert 0 < trace["hit"].sum() < len(trace)
    for prompt in tried.prompts[::4]:
        text = tried.texts["sampled"][prompt.prompt_id]
        for position, token in enumerate(text):
            context = [*prompt.ids, *text[:position]]
            hidden = target.forward(torch.tensor([context]), target.cache())
            p = target.logits(hidden[0, -1]).softmax(-1)
            row = rows.loc[prompt.prompt_id, position]
            copy = copied(context, 1, 1)
            assert row["hit"] == (copy.tolist() == [token])
            assert row["overlap"] == pytest.approx(p[copy].sum().item(), abs=1e-6)


def test_copies_are_the_decoders(tried, random_pair):
    """Blocks and tokens of `lookup:1`, whose copies are cut at gamma nowhere."""
    _, sums = comparison.best_copies(tried, Costs.assumed(0.0), [MOST])
    shape = parse_shape("lookup:1")
    for prompt in tried.prompts[::5]:
        new = len(tried.texts["greedy"][prompt.prompt_id])
        text = decode_prompt(random_pair, prompt, "greedy", shape, Sampling(), new)
        row = sums[sums["prompt_id"] == prompt.prompt_id].iloc[0]
        assert (row["emitted"], row["blocks"]) == (new, text.target_passes)


def test_a_trained_head_is_a_candidate_by_its_recorded_runs(tried, own, profile, monkeypatch):
    """Along the same texts only; nothing is loaded or recorded for its acceptance."""
    assert candidates.trained_head(tried) is None, "this pair has no profile with a head"
    of_head = profile.replace(name="with-head")
    ahead = [[1] * 16 for _ in range(len(own.trace))]
    run = SimpleNamespace(trace=own.trace.assign(block_ranks=ahead), manifest=own.manifest)
    recorded = {"greedy": run, "sampled": run}
    monkeypatch.setattr(candidates, "with_head", lambda profile: of_head)
    monkeypatch.setattr(candidates.head, "unreadable", lambda folder: "")
    monkeypatch.setattr(candidates.runs, "recorded_run", lambda _, kind: recorded[kind])
    made = candidates.trained_head(tried)
    tried.add(made)
    trace = tried.trace(candidates.HEAD, "greedy")
    assert made.weight_bytes == own.manifest["pair"]["draft"]["weight_bytes"]
    assert (trace["prompt_id"].nunique(), "block_ranks" in trace) == (len(tried.prompts), True)
    other = run.trace.assign(token=run.trace["token"] + 1)
    recorded["sampled"] = SimpleNamespace(trace=other, manifest=own.manifest)
    assert candidates.trained_head(tried) is None, "other texts"
    recorded["sampled"] = None
    assert candidates.trained_head(tried) is None, "a run is missing"


# ---- trained -------------------------------------------------------------------------------------


HIT = score.mean_of("hit")


def trace_with(**domains):
    """Four positions a prompt; domain = how many of each prompt's are hits."""
    texts = {
        f"{domain}-{i}": (domain, [0] * hits + [1] * (4 - hits))
        for domain, prompts in domains.items()
        for i, hits in enumerate(prompts)
    }
    return score.with_hits(trace_of(texts))


def test_what_training_changed_by_hand():
    before = trace_with(code=[0, 2, 2, 4, 2], chat=[2] * 5)
    one = trace_with(code=[1, 3, 3, 4, 3], chat=[2] * 5)
    two = trace_with(code=[0, 2, 2, 4, 4], chat=[3] * 5)
    table = comparison.trained_change(before, [one, two], HIT).set_index("domain")
    code, chat, both = table.loc["code"], table.loc["chat"], table.loc["all"]
    assert (code.before, code.after, code.estimate) == pytest.approx((0.5, 0.65, 0.15))
    assert code.low < 0.15 < code.high
    assert (code.seed_low, code.seed_high) == pytest.approx((0.1, 0.2))
    ends = [chat.seed_low, chat.seed_high, chat.low, chat.high]
    assert ends == pytest.approx([0, 0.25] * 2), "alike prompts leave the seeds"
    assert both.estimate == pytest.approx((0.15 + 0.125) / 2)
    assert both.n_prompts == 10 and both.n_seeds == 2


def test_one_seed_gives_the_paired_interval():
    before, after = trace_with(code=[0, 2, 2, 4, 2]), trace_with(code=[1, 3, 2, 4, 3])
    paired = paired_by_domain(after, before, HIT).iloc[-1]
    row = comparison.trained_change(before, [after], HIT).iloc[-1]
    numbers = ["estimate", "low", "high"]
    assert row[numbers].tolist() == pytest.approx(paired[numbers].tolist())


def test_drafts_are_judged_on_a_part_of_a_whole_run(random_pair, profile, own, work, monkeypatch):
    asked = []
    monkeypatch.setattr(
        candidates.runs, "load_or_record", lambda profile, kind: asked.append(profile) or own
    )
    tried = candidates.Tried(profile, random_pair, per_domain=2)
    assert asked == [profile, profile], "the run as it is shipped, no smaller one"
    prompts = decoded_prompts(load_prompts("project", 5), 2, profile.notes.decoded_from)
    chosen = [prompt.prompt_id for prompt in prompts]
    tried.add(candidates.prompt_lookup(tried))
    for name in (OWN, LOOKUP):
        assert tried.trace(name, "greedy")["prompt_id"].drop_duplicates().tolist() == chosen
    assert list(tried.texts["greedy"]) == chosen and tried.recorded == 20


def test_families_are_trained_found_and_compared(
    random_pair, profile, tried, tmp_path, monkeypatch
):
    """From the scripts in data/drafts to the tables of notebook 08, on a toy."""
    config = TextConfig(max_prompt_tokens=12, max_new_tokens=4)
    text = continuations(random_pair, training_prompts(2), config, tmp_path)
    steps = prepare.train_config(4, 3, 1e-2)
    asked = prepare.trainings(text, steps, ["total-variation", "sequence"], [0, 1])
    prepare.train_all(list(asked), tmp_path / "shipped" / "toy")
    shipped = shipped_drafts(random_pair, tmp_path / "shipped")
    monkeypatch.setattr(candidates, "shipped_drafts", lambda pair: shipped)
    trained = candidates.trained_drafts(tried)
    seeds = {family: len(drafts) for family, drafts in trained.items()}
    assert seeds == {"total-variation": 2, "sequence": 1, "specialist": 2}
    gained = comparison.gained(tried, trained).at(estimator="hit[1]", domain="pooled")
    its, mine = (gained.at(draft=name).value for name in ("total-variation", "specialist"))
    versus = comparison.specialist_against(tried, trained)
    gap = versus.at(estimator="hit[1]", domain="pooled").value
    assert gap == pytest.approx(mine - its)


def test_the_learning_curve_is_the_cards_log(tiny_pair):
    card = ROOT / "data" / "pairs" / "smollm" / "card.json"
    phases = json.loads(card.read_text())["training"]
    folder = ModelFolder(card.parent / "draft")
    pair = SimpleNamespace(draft=SimpleNamespace(folder=folder, by_start=False))
    curve = comparison.learning_curve(pair, DOMAINS).at(estimator="hit[1]")
    math, mean = (curve.at(domain=name).frame for name in ("math", "all"))
    first, last = phases["learn"][-1], phases["distil"][-1]
    assert math["estimate"].iloc[0] == first["math hit"]
    assert mean["estimate"].iloc[-1] == last["hit"]
    assert mean["steps"].tolist()[::5] == [0, last["step"] + 1]
    assert comparison.learning_curve(tiny_pair, DOMAINS) is None, "its card has no such log"


# ---- calibration ---------------------------------------------------------------------------------


def test_calibration_texts_are_the_targets_greedy_ones_of_all_lengths(random_pair, profile):
    prompts = candidates.calibration_prompts(random_pair, profile, 10, 1, 5)
    texts = candidates.greedy_texts(random_pair, prompts, 4)
    assert texts == [[*prompt.ids, *plain(random_pair, prompt, 4)] for prompt in prompts]
    every = candidates.calibration_prompts(random_pair, profile, 10, 1, 40)
    assert prompts == every[::8]


def test_more_calibration_rows_than_prompts_are_refused(random_pair, profile):
    with pytest.raises(ValueError, match="calibration_rows=5: allowed are 1 to 4; "):
        candidates.calibration_prompts(random_pair, profile, 1, 0, 5)


# ---- costs and speed -----------------------------------------------------------------------------


def speed_of(sums):
    """Tokens over cost of all prompts."""
    return sums["emitted"].sum() / sums["cost"].sum()


@pytest.mark.parametrize(("c", "gamma", "speed"), [(0.1, 3, 4 / 1.8), (3.0, 1, 2 / 4.3)])
def test_the_best_chain_by_hand(c, gamma, speed):
    """Each text: 3 accepted, 1 rejected, twice.

    Gamma 3 makes blocks of 4 tokens at 3 c + 1.3 + 0.2, gamma 1 of 2 at c + 1.1 + 0.2.
    """
    texts = {f"p{i}": ("code", [0, 0, 0, 1] * 2) for i in range(6)}
    rows = score.with_hits(trace_of(texts)).assign(overlap=0.5)
    found, sums = comparison.best_chain(rows, comparison.with_c(COSTS, c), range(1, 6))
    assert found == gamma and (sums["emitted"] / sums["blocks"]).eq(gamma + 1).all()
    assert speed_of(sums) == pytest.approx(speed)


def test_bytes_are_two_a_weight_at_most(drafts):
    loaded, _ = drafts
    draft, target = (loaded.facts[name]["parameters"] for name in ("draft", "target"))
    assert comparison.share_of_bytes(loaded) == draft / target, "float32 as if in 16 bits"
    half = dataclasses.replace(loaded, weight_bytes=draft)
    assert comparison.share_of_bytes(half) == pytest.approx(0.5 * draft / target)


def test_the_table_holds_each_drafts_own_numbers(tried):
    drafts, gammas = tried.candidates, range(1, 5)
    pass_cost = dict(zip(drafts, (0.2, 0.0, 0.6), strict=True))
    table = comparison.compared(tried, drafts.values(), pass_cost, COSTS, gammas).table
    assert table["draft"].tolist() == [OWN, LOOKUP, "first 1 layers"]
    for (name, c), row in zip(pass_cost.items(), table.itertuples(), strict=True):
        trace, costs = tried.trace(name, "greedy"), comparison.with_c(COSTS, c)
        if name == LOOKUP:
            gamma, sums = comparison.best_copies(tried, costs, gammas)
        else:
            gamma, sums = comparison.best_chain(trace, costs, gammas)
        assert (row.gamma, row.c) == (gamma, c)
        assert row.speedup == pytest.approx(speed_of(sums))
        assert row.speedup_low <= row.speedup <= row.speedup_high
    assert table["hit[1]"].iloc[-1] == trace["hit"].mean()
    lookup = drafts[LOOKUP]
    assert comparison.pass_costs([lookup], 4, 1) == {LOOKUP: 0.0}
    assert comparison.share_of_bytes(lookup) == 0


def test_a_draft_that_does_the_targets_work_costs_1(tried):
    same = tried.candidates[OWN].facts | {"draft": tried.pair.facts["target"]}
    quantised = dataclasses.replace(tried.candidates[OWN], load=None, facts=same)
    assert comparison.pass_costs([quantised], 4, 1) == {OWN: 1.0}


def test_every_draft_is_lossless_and_the_check_can_fail(tried, profile):
    drafts, few = tried.candidates.values(), tried.prompts[::5]
    asked = drafts, few, ("chain:3", "tree:3,2,8"), profile.max_new_tokens
    table = comparison.lossless(tried, *asked)
    assert len(table) == 2 * 2 * len(few) and table["is_equal"].all(), "lookup has no weights"
    texts = tried.texts["greedy"]
    wrong = {name: (text[0] ^ 1, *text[1:]) for name, text in texts.items()}
    tried.texts = {"greedy": wrong}
    assert not comparison.lossless(tried, *asked)["is_equal"].any()


def test_a_leader_and_those_over_which_its_lead_is_not_significant():
    noise, others = np.random.default_rng(0).normal(0, 0.1, (2, 500))
    noise[0] = others[0] = 0
    # 'behind' has the same prompts as 'best', 'near' has other prompts
    columns = {"best": 1.0 + noise, "behind": 0.9 + noise, "near": 0.99 + others}
    draws = pd.DataFrame(columns)
    best, lead = choose.leader(draws, 50)
    assert best == "best" and "near" in lead and "behind" not in lead
    assert "every other" in choose.leader(draws.drop(columns="near"), 50)[1]
    assert (
        choose.leader(draws, 4)[1] == "its lead has no interval (fewer than 5 prompts in a domain)"
    )


# ---- in words ------------------------------------------------------------------------------------

NAMES = "own draft", "INT4 self-draft", "prompt lookup", "first 20 layers"
NAMES += ("distilled, total-variation", "specialist")


def compared_with(best, tied, fewest=8):
    """A draft that leads by a quantity, and over which others it does not lead significantly."""
    noise = np.random.default_rng(0).normal(0, 0.3, (2, 200))
    noise[:, 0] = 0
    draws, numbers = {}, {}
    for name in NAMES:
        level = 1.5 if name == best else 1.45 if name in tied else 0.5
        for quantity in ("hit[1]", "speedup"):
            draws[name, quantity] = level + (noise[0] if name == best else noise[1])
    frame = pd.DataFrame(draws)
    for quantity in ("hit[1]", "speedup"):
        ends = {"": 1.5, "_low": 1.23, "_high": 1.77}
        numbers |= {f"{quantity}{end}": number for end, number in ends.items()}
    table = pd.DataFrame([{"draft": name} | numbers for name in NAMES])
    return comparison.Compared(table, frame, fewest)


@pytest.mark.parametrize("best", NAMES)
@pytest.mark.parametrize("tied", [NAMES[:0], NAMES[:1], NAMES[3:4], NAMES[3:], NAMES])
def test_the_answer_is_short_whatever_leads(best, tied):
    others = [name for name in tied if name != best]
    for fewest in (8, 4):
        found = compared_with(best, others, fewest)
        distilled = "After distillation the draft names 62 % of the best tokens instead of 29 %. "
        said = [distilled + found.answer(is_reliable) for is_reliable in (True, False)]
        assert not any(map(too_long, said)), said
        said += [f"It is {found.fastest_in_words()}."]
        assert not [bad for bad in BAD for text in said if re.search(bad, text)], said
        assert all(len(found.title(is_reliable)) <= 90 for is_reliable in (True, False))
    assert "no verdict on speed" in said[1] and "no verdict" not in said[0]


def test_the_section_on_training_announces_what_comes():
    """Without trained drafts it says so and promises nothing; with some it names what they are."""
    said = comparison.training_in_words({}, "smollm")
    assert "no further trained draft" in said and "specialist" not in said
    facts = {"objective": "sequence"}
    made = {"one": SimpleNamespace(facts=facts)}
    said = comparison.training_in_words({"sequence": made}, "tiny")
    assert "1 trained draft of" in said and "specialist" not in said
    assert "**specialist**" in comparison.training_in_words(
        {"sequence": made, "specialist": made}, "tiny"
    )
    source = (ROOT / "notebooks" / "08_better_drafts.py").read_text(encoding="utf-8")
    fixed = [line for line in source.splitlines() if line.startswith("# ")]
    assert not [line for line in fixed if "specialist" in line], "it comes with some pairs only"

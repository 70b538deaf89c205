"""Why is acceptance low? Every shape is named on a planted fault, no rule contradicts another, and
healthy logs are silent.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer

from data.logs import plant_faults
from data.logs.plant_faults import LOG, decoded
from speclab import replay
from speclab.__main__ import main
from speclab.logs import atlas, logs, passes, why
from speclab.logs.why import DIFFERS, FITS, OPEN, SHAPES
from speclab.models.model import Projection
from speclab.study.profiles import ROOT
from speclab.study.prompts import encode_prompts, load_prompts
from speclab.study.runs import load_run

NAMES = [shape for shape, *_ in SHAPES]
NOTHING, FIRST_ONLY, SHORT_HEAD, BREAK, SLOW, EXACT, LOW, SMALLER_K = NAMES
TRACES = ROOT / "data" / "traces"
SHARED = ROOT.parent / "shared" / "public_logs"


shipped = cache(logs.opened)


def log_of(frame, context=None):
    """A log of passes; context: tokens of each prompt."""
    sums = passes.sums_by_request(frame)
    if context is not None:
        sums = sums.assign(context=sums["prompt_id"].map(context))
    return replace(shipped(LOG), passes=frame, sums=sums)


def replayed(trace, gamma, context=None):
    return log_of(passes.passes_of_replay(replay.replay(trace, gamma)), context)


def fits(log, *given):
    """The shapes that a log looks like."""
    table = why.explain(log, *given)
    assert table["shape"].tolist() == NAMES, "the order is fixed"
    return table.loc[table["verdict"] == FITS, "shape"].tolist()


def said(log, shape, *given):
    """Verdict and numbers of a shape."""
    return why.explain(log, *given).set_index("shape").loc[shape, ["verdict", "numbers"]].tolist()


@cache
def trace_of(name):
    return load_run(TRACES / name).trace


def drawn(trace, chance, seed=0):
    """A sampled trace whose tokens are accepted with a chance: hits and misses, drawn."""
    is_miss = np.random.default_rng(seed).random(len(trace)) >= chance
    return trace.assign(draft_rank=is_miss.astype(int))


def by_rejection(trace, seed=0):
    """Accepted as the rejection rule does."""
    return drawn(trace, trace["q_token"] / trace["p_token"], seed)


# ---- by hand -------------------------------------------------------------------------------------


def rows_of(accepted, reached, requests=1):
    names = [f"r{i}" for i in range(requests)]
    return pd.DataFrame({"prompt_id": names, "accepted": accepted, "reached": reached})


def test_the_limit_of_a_share_of_nothing_is_the_rule_of_three_doubled():
    """0 of 120 is at most 6 of 120, and half of that of 1 is 0.1; one request has no interval."""
    estimate, low, high = why.ratio(rows_of(0, 120), rows_of(60, 120))
    assert estimate == 0 and np.isnan(low)
    assert high == pytest.approx((6 / 120) / (60 / 120))


@pytest.mark.parametrize(
    ("shares", "good"),
    [
        ([0.6, 0.5, 0.4], 0),
        ([0.6, 0.01, 0.5], 1),
        ([0.6, 0.6, 0.01], 2),
        ([0.6, 0.16], 0),  # a quarter, but not surely less
        ([0.02, 0.0], 0),  # nothing was there that could collapse
    ],
)
def test_the_positions_before_a_collapse(shares, good):
    parts = [rows_of([100 * share] * 6, [100] * 6, 6) for share in shares]
    assert why.collapse(parts, why.CLIFF) == good


# ---- planted faults ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_prompts(tiny_pair):
    """The project's prompts for `tiny`, encoded as its trace was."""
    return encode_prompts(tiny_pair.tokenizer, load_prompts("project", 50), 512)


@pytest.fixture(scope="module")
def lengths(tiny_prompts):
    return {prompt.prompt_id: len(prompt.ids) for prompt in tiny_prompts}


@pytest.fixture(scope="module")
def recorded(tiny_pair, tiny_prompts, lengths):
    """A function that records the draft of `tiny` along the recorded texts and replays it."""
    trace = trace_of("tiny/greedy")
    tokens = trace.groupby("prompt_id")["token"].agg(list)

    @torch.inference_mode()
    def record(draft, positions=None, gamma=4):
        misses = []
        for prompt in tiny_prompts:
            text = tokens[prompt.prompt_id]
            ids = torch.tensor([[*prompt.ids, *text[:-1]]])
            place = torch.arange(ids.shape[1])
            place = place if positions is None else positions(place)
            hidden = draft.forward(ids, draft.cache(ids.shape[1]), place)
            best = draft.logits(hidden[0, len(prompt.ids) - 1 :]).argmax(-1)
            misses += (best != torch.tensor(text)).int().tolist()
        order = [prompt.prompt_id for prompt in tiny_prompts]
        rows = trace.set_index("prompt_id").loc[order].reset_index()
        return replayed(rows.assign(draft_rank=misses), gamma, lengths)

    return record


@pytest.fixture(scope="module")
def healthy(tiny_pair, recorded):
    return recorded(tiny_pair.draft)


def test_the_fault_free_log_is_silent_and_is_the_shipped_trace(healthy, lengths):
    replay_of_shipped = replayed(trace_of("tiny/greedy"), 4, lengths)
    assert healthy.sums["blocks"].sum() == replay_of_shipped.sums["blocks"].sum()
    assert fits(healthy) == fits(healthy, replay_of_shipped, (0.0, 0.0)) == []
    assert said(healthy, NOTHING)[0] == said(healthy, BREAK)[0] == DIFFERS


def test_a_vocabulary_that_is_shifted_by_one_accepts_nothing(tiny_pair, recorded, healthy):
    with plant_faults.other_words(tiny_pair):
        log = recorded(tiny_pair.draft)
    assert fits(log) == [NOTHING]
    assert fits(log, healthy, (0.0, 0.0)) == [NOTHING]


@pytest.fixture(scope="module")
def eight(tiny_pair, tiny_prompts):
    """A function that decodes eight prompts with a fault."""
    return lambda fault: decoded(tiny_pair, tiny_prompts[::25], fault, 48)


def test_a_block_that_is_shifted_after_its_first_token(eight):
    assert fits(eight(plant_faults.shifted_block())) == [FIRST_ONLY]


def test_more_tokens_than_the_head_drafts(eight):
    assert fits(eight(plant_faults.short_head())) == [SHORT_HEAD]
    assert fits(eight(plant_faults.nullcontext())) == []


@pytest.mark.parametrize("kept", [2, 3])
def test_more_tokens_than_a_trained_head_drafts(kept):
    trace = trace_of("smollm-head/greedy")
    cut = [np.where(np.arange(len(ranks)) < kept, ranks, 9) for ranks in trace["block_ranks"]]
    assert fits(replayed(trace.assign(block_ranks=cut), 8)) == [SHORT_HEAD]
    assert fits(replayed(trace, 8)) == []
    assert fits(replayed(trace, kept)) == [], "the same head with its own K"


@pytest.mark.parametrize(
    ("passes_by_accepted", "shape"),
    [
        ([211, 109], FIRST_ONLY),  # speculators #613: position 1 has 34 %
        ([21, 21, 62, 0, 1], SHORT_HEAD),  # MiaAI's counters: 84 63 1 1 of 105
        ([60, 30, 10, 5, 0], None),
    ],
)
def test_a_log_of_one_request_as_users_post_it(passes_by_accepted, shape):
    """A server's counters since its start, without requests."""
    accepted = np.repeat(range(len(passes_by_accepted)), passes_by_accepted)
    answer = passes.Answer("all", "unknown", accepted, [4] * len(accepted))
    assert fits(log_of(passes.count_by_answer([answer]))) == ([shape] if shape else [])


def test_positions_that_begin_again_at_a_length(tiny_pair, recorded, healthy):
    def positions(place):
        return torch.where(place > 100, place - 100, place)

    log = recorded(tiny_pair.draft, positions)
    assert fits(log) == fits(log, healthy, (0.0, 0.0)) == [BREAK], "low, but not evenly"
    assert "break near 1" in said(log, BREAK)[1]


def thinned(context, loses):
    """A healthy trace that loses hits with the context of each request."""
    trace = trace_of("smollm/greedy")
    lost = loses(trace["prompt_id"].map(context) + trace["position"])
    kept = np.random.default_rng(0).random(len(trace)) >= lost
    return trace.assign(draft_rank=trace["draft_rank"].where(kept, 9))


@pytest.mark.parametrize(
    ("loses", "shape"),
    [
        (lambda context: 0.08 * np.log2(context / 100), SLOW),
        (lambda context: 0.95 * (context > 2000), BREAK),
        (lambda context: 0 * context, None),
    ],
)
def test_long_contexts_fall_slowly_or_break(loses, shape):
    names = trace_of("smollm/greedy")["prompt_id"].unique()
    context = dict(
        zip(names, 100 * 2.0 ** np.random.default_rng(1).uniform(0, 8, 200), strict=True)
    )
    log = replayed(thinned(context, loses), 4, context)
    assert fits(log) == ([shape] if shape else [])
    assert said(replace(log, sums=log.sums.assign(context=100)), SLOW)[0] == OPEN


@pytest.mark.parametrize("pair", ["smollm", "tiny"])
def test_exact_match_of_a_sampled_target(pair):
    """A token counts if the target draws the same one: with probability q of the sampled text."""
    sampled, cold = trace_of(f"{pair}/sampled"), replayed(trace_of(f"{pair}/greedy"), 4)
    exact = replayed(drawn(sampled, sampled["q_token"]), 4)
    by_rule = replayed(by_rejection(sampled), 4)
    assert fits(exact, cold, (1.0, 0.0)) == [EXACT]
    assert fits(by_rule, cold, (1.0, 0.0)) == []
    assert said(exact, EXACT) == [OPEN, why.NO_EXACT]


def test_nothing_above_temperature_0_looks_like_exact_match_too():
    sampled = trace_of("smollm/sampled")
    log = replayed(drawn(sampled, 0.01), 4)
    assert fits(log, None, (0.3,)) == [NOTHING, EXACT]
    lines = "\n".join(why.lines_of(why.explain(log)))
    assert lines.count("Usual cause") == 1 and "(tokenspeed #526). Check which layers" in lines
    assert fits(log, None, (0.0,)) == fits(log) == [NOTHING]


def rounded(layer, bits):
    """A layer with its weights in `bits` bits, and a scale for each row."""
    parts = {}
    for name in ("qkv", "out", "gate_up", "down"):
        weight = getattr(layer, name).weight
        scale = weight.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
        parts[name] = Projection((weight / scale).round() * scale)
    return layer._replace(**parts)


@pytest.mark.parametrize("bits", [3, 4])
def test_a_quantised_draft_is_a_little_low_and_needs_a_second_log(
    tiny_pair, recorded, healthy, monkeypatch, bits
):
    body = tiny_pair.draft.body
    monkeypatch.setattr(body, "layers", [rounded(layer, bits) for layer in body.layers])
    log = recorded(tiny_pair.draft)
    assert fits(log, healthy, (0.0, 0.0)) == [LOW]
    assert said(log, LOW)[0] == OPEN and "log A B" in said(log, LOW)[1]
    assert fits(healthy, log, (0.0, 0.0)) == [], "the other one is not low"


@pytest.mark.parametrize("name", ["smollm/greedy", "tiny/greedy", "smollm-head/greedy"])
def test_position_1_is_higher_at_a_smaller_k_which_is_no_fault(name):
    few, many = (replayed(trace_of(name), gamma) for gamma in (1, 8))
    assert fits(few, many, (0.0, 0.0)) == fits(many, few, (0.0, 0.0)) == [SMALLER_K]


# ---- what a log does not decide ------------------------------------------------------------------


def test_totals_decide_the_first_shape_only_and_the_others_say_what_they_need():
    log = replayed(trace_of("tiny/greedy"), 4)
    table = why.explain(replace(log, passes=None)).set_index("shape")
    assert table["verdict"].tolist() == [DIFFERS, *[OPEN] * 7]
    for shape, needs in {
        FIRST_ONLY: "a histogram or counts per pass",
        BREAK: "prompt lengths",
        LOW: "a second log, of the same prompts",
    }.items():
        assert needs in table.loc[shape, "numbers"]


@pytest.mark.parametrize("change", [{"drafted": np.nan}, {"drafted": 1.0}])
def test_drafts_of_unknown_length_or_of_one_token_have_no_later_positions(change):
    frame = replayed(trace_of("tiny/greedy"), 1).passes.assign(**change)
    assert said(log_of(frame), FIRST_ONLY)[0] == said(log_of(frame), SHORT_HEAD)[0] == OPEN


def test_the_command_prints_each_shape(tmp_path, capsys):
    assert main(["log", str(LOG), "--out", str(tmp_path / "log"), "--explain"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name}: " in shown for name in NAMES) and "Check" not in shown


def test_passes_without_a_draft_are_no_fault():
    """As of prompt lookup: 5 drafts in 200 passes, half of their tokens accepted."""
    answer = passes.Answer("p", "code", [2] * 5, [4] * 5, tokens=211, before=1, plain=195)
    log = log_of(passes.count_by_answer([replace(answer, prompt_id=f"p{i}") for i in range(6)]))
    assert said(log, NOTHING)[0] == said(replace(log, passes=None), NOTHING)[0] == DIFFERS
    plain = log_of(log.passes.assign(drafted=0, accepted=0, emitted=1))
    assert fits(plain) == [] and said(plain, NOTHING)[0] == OPEN


def test_a_second_log_of_other_prompts_says_nothing(healthy):
    other = replace(healthy, sums=healthy.sums.iloc[:4], passes=healthy.passes.query("step < 0"))
    table = why.explain(healthy, other, (0.0, 0.0)).set_index("shape")
    assert table.loc[[LOW, SMALLER_K], "numbers"].tolist() == [why.NO_OTHER] * 2


def test_logs_of_two_settings_are_not_compared_evenly(healthy):
    other = replayed(trace_of("tiny/greedy"), 8)
    assert said(healthy, LOW, other)[0] == said(healthy, LOW, healthy, (0.0, 1.0))[0] == OPEN


# ---- false alarms --------------------------------------------------------------------------------


def lengths_of(run):
    """Tokens of each prompt of a run, by the target's tokenizer, which is shipped."""
    facts = run.manifest["profile"]
    tokenizer = AutoTokenizer.from_pretrained(ROOT / facts["target"]["path"])
    prompts = load_prompts(facts["prompts"], facts["prompts_per_domain"])
    encoded = encode_prompts(tokenizer, prompts, facts["max_prompt_tokens"], facts["template"])
    return {prompt.prompt_id: len(prompt.ids) for prompt in encoded}


def healthy_logs():
    """(source, log): shipped logs, public runs, and replays of shipped traces."""
    yield "our decoder", shipped(LOG)
    for run in atlas.runs().itertuples():
        if run.has_passes and run.K != 0:
            yield "public runs (atlas)", log_of(atlas.passes_of(run.run))
    for folder in sorted(TRACES.glob("*/*")):
        run = load_run(folder)
        trace = run.trace
        if "sampled" in folder.name:
            if "block_q" in trace:
                continue  # a head's chances depend on the start
            trace = by_rejection(trace)
        lengths = lengths_of(run)
        for gamma in (1, 2, 4, 8, 16):
            yield "replays of traces", replayed(trace, gamma, lengths)


def healthy_pairs():
    """(source, log, other log, temperatures) of the same prompts, without a fault."""
    for pair, gamma in product(("smollm", "tiny"), (2, 4, 8)):
        cold = replayed(trace_of(f"{pair}/greedy"), gamma)
        kinds = ("sampled", "sampled-seed-1", "sampled-seed-2", "sampled-0.3", "sampled-0.7")
        warm = [replayed(by_rejection(trace_of(f"{pair}/{kind}")), gamma) for kind in kinds]
        for one, other in permutations(warm[:3], 2):
            yield "two seeds", one, other, (1.0, 1.0)
        for one in warm:
            yield "two temperatures", one, cold, (1.0, 0.0)


@pytest.mark.slow
def test_the_table_of_false_alarms_is_what_the_rules_say(monkeypatch):
    """The table in `data/logs/README.md`, recomputed, with contexts that differ as they do."""
    monkeypatch.setattr(why, "RANGE", 1)
    counts = Counter()
    for source, *given in (*healthy_logs(), *healthy_pairs()):
        counts[source] += 1
        counts[source, "alarms"] += len(fits(*given))
    text = (ROOT / "data" / "logs" / "README.md").read_text(encoding="utf-8")
    for source in [source for source in counts if isinstance(source, str)]:
        line = f"| {source} | {counts[source]} | {counts[source, 'alarms']} |"
        assert line in text, counts


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the public logs in ../shared")
def test_public_logs_look_like_the_one_shape_that_was_reported():
    """As far as they are read: a head of two tokens with K = 6, and no false alarm."""
    found = {}
    for path in sorted(SHARED.glob("*/*")):
        with suppress(ValueError):
            found[path.name] = fits(logs.opened(path))
    alarms = {name: shapes for name, shapes in found.items() if shapes}
    assert found and alarms.items() <= {"vllm_dspark_metrics.txt": [SHORT_HEAD]}.items()

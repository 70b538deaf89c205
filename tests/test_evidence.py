"""The evidence for the claims: measures by hand on made-up texts; no answer at one temperature uses
text of another.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from made_pair import STRINGS, made_pair, made_text
from test_choose import trace_of as trace_of_texts

from speclab import passes, replay, score
from speclab.analysis import atlas, claims, variance_components
from speclab.analysis.claims import AT_0, AT_1, FAILS, HOLDS, PUBLISHED, SOURCES, TURNS
from speclab.analysis.prompt_sets import OWN, SECOND
from speclab.analysis.texts import Text
from speclab.passes import Answer
from speclab.profiles import load_profile
from speclab.studies.paper_audit import evidence, other_notebooks, speed, summary

LISTED = claims.claims()
GRID = [(0.1, 0.0)]
FREE = [(0.05, 0.0), (5.0, 0.0)]
NUMBERS = ["estimate", "low", "high"]


def trace_of(length=12, prompts=5, **ranks):
    """A trace of `prompts` equal texts in each domain: domain = the draft's rank of every token, or
    of each.
    """
    texts = {
        f"{domain}-{i}": (domain, np.broadcast_to(rank, length))
        for domain, rank in ranks.items()
        for i in range(prompts)
    }
    return trace_of_texts(texts).assign(seed=0)


def greedy(trace):
    return Text(0.0, score.with_hits(trace), None)


def point(table, value):
    """The one row's number, of equal prompts: its interval is a point."""
    numbers = np.reshape(table[NUMBERS], (1, 3)).astype(float)
    assert numbers == pytest.approx(np.full((1, 3), value))


def verdict(name, rows):
    """The verdict on a listed claim of these rows."""
    frame = claims.in_frame(LISTED, "made", {(name, AT_0): rows})
    return claims.verdict_on(LISTED[name], frame)


# ---- rows, contrasts -----------------------------------------------------------------------------


def test_a_gap_by_hand_and_a_missing_domain_is_named():
    text = greedy(trace_of(chat=[0, 0, 0, 1] * 3, math=[0, 1, 1, 1] * 3))
    gap = evidence.measure(text, "positions", "acceptance", [["chat", "math"]])
    point(gap, 0.75 - 0.25)
    assert gap[["row", "estimator"]].to_numpy().tolist() == [["chat - math", "hit[1]"]]
    with pytest.raises(ValueError, match=r"domain \['reasoning'\] has no rows"):
        evidence.measure(text, "positions", "acceptance", [["chat", "reasoning"]])


def test_unsure_positions_are_the_top_of_each_domain_or_of_all():
    trace = trace_of(length=8, prompts=1, chat=0, math=0)
    text = Text(0.0, trace.assign(target_entropy=range(16)), None)
    assert list(evidence.unsure_quarter(text)["position"]) == [6, 7, 6, 7]
    assert evidence.unsure_half(text)["domain"].unique() == ["math"]


def test_numbers_differ_from_other_tokens_in_every_seed():
    trace = trace_of(length=10, math=[0, 9, 0, 9, 0, 0, 9, 9, 9, 9], chat=0)
    trace = trace.assign(token=trace["position"])  # even: numbers
    both = pd.concat([trace, trace.assign(seed=1)], ignore_index=True)
    text = evidence.with_numbers(greedy(both), STRINGS)
    point(evidence.measure(text, "math", "acceptance", "numbers - others"), 3 / 5 - 1 / 5)


def test_late_and_early_are_of_the_same_prompts():
    """chat, which stops early, has no part in it."""
    early = trace_of(length=20, chat=0)
    late = trace_of(length=40, code=[1] * 32 + [0] * 8)
    asked = ("long texts", "acceptance", "late - early")
    point(evidence.measure(greedy(pd.concat([early, late], ignore_index=True)), *asked), 1.0)
    with pytest.raises(ValueError, match="positions from 32 on"):
        evidence.measure(greedy(early), *asked)


def test_tokens_that_passes_tested_by_hand():
    """Down to depth 3, and no token beyond the draft, the answer or the first rejection."""
    log = passes.of_answers([Answer("a", "code", [5, 0, 1, 2], [8, 8, 1, 8], tokens=11)])
    tested = evidence.tested_in(log)
    assert tested.groupby("step")["depth"].agg(list).tolist() == [[1, 2, 3], [1], [1], [1, 2]]
    assert tested["kept"].tolist() == [True] * 3 + [False] + [True] + [True] * 2


def test_public_runs_are_judged_and_counted():
    runs = {"EAGLE": "eagle", "PLD": "pld"}
    found = evidence.on_public_runs(runs, LISTED)
    verdicts = claims.verdict_table(LISTED, found)
    assert found["row"].unique().tolist() == ["all", "domain"]
    assert verdicts["verdict"].tolist() == [FAILS] * 4
    lines = summary.runs_in_words(verdicts).splitlines()
    assert len(lines) == 2
    assert all(line.endswith("It holds in 0 and fails in 2 of 2 public runs.") for line in lines)
    shown = summary.of_runs(verdicts)
    assert shown["run"].tolist() == [*runs]
    share = found.query("pair == 'PLD' and row == 'domain'")["estimate"].item()
    log = atlas.in_tasks(atlas.passes_of("pld"))
    means = log.groupby(["domain", "prompt_id"])["emitted"].mean()
    levels = means.groupby("domain").mean().var()
    within = means.groupby("domain").var().mean()
    assert share == pytest.approx(levels / (levels + within), abs=0.05)


def test_a_claim_that_one_run_confirms():
    rows = pd.DataFrame({"said": ["so it is"], "verdict": [HOLDS]})
    assert (
        summary.runs_in_words(rows) == "* “So it is.” It holds in 1 and fails in 0 of 1 public run."
    )


def test_tested_tokens_by_hand():
    """Blocks from 0 (one kept, the next rejected), 2 (the first rejected, so that the second is not
    tested), 3 (three kept), and 7 (the text's last two tokens).
    """
    trace = trace_of(length=9, prompts=1, code=[0, 1, 1, 0, 0, 0, 0, 0, 0])
    tested = evidence.tested_tokens(greedy(trace))
    kept = tested.groupby("depth")["kept"].agg(list).to_dict()
    assert kept == {1: [1, 0, 1, 1], 2: [0, 1, 1], 3: [1]}


# ---- variance ------------------------------------------------------------------------------------


def test_shares_are_the_variance_of_group_means():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y": rng.random(200), "f": rng.integers(0, 5, 200)})
    means = frame.groupby("f")["y"].transform("mean")
    share = evidence.share_between(frame, "y", "f")
    assert share(frame) == pytest.approx(means.var() / frame["y"].var())
    one = frame[frame["f"] == 1]
    assert share(one) == pytest.approx(0.0), "levels that a resample lacks count nothing"
    with pytest.raises(ValueError, match="one domain only"):
        evidence.difference_of_shares(frame.assign(domain="code"), "y", "domain", "f")


def test_what_texts_differ_in_is_judged_by_the_domains_part_alone():
    """(`variance_components` has the shares by hand.)"""
    text = made_text(1, 2, 3, prompts=5, length=12)
    (entry,) = LISTED["task-first"].exact
    rows = evidence.measure(text, **entry)
    expected = variance_components.shares(text.trace, "overlap")
    shares = rows.set_index("row")[NUMBERS].T.to_dict("list")
    assert shares == {part: [one.estimate, one.low, one.high] for part, one in expected.items()}
    for low, expected in ((0.51, HOLDS), (0.1, FAILS)):
        domain = (rows["row"] == "domain").to_numpy()
        rows.loc[domain, NUMBERS] = low + 0.1, low, low + 0.2
        assert verdict("task-first", rows) == expected


# ---- other claims --------------------------------------------------------------------------------


def test_sampling_is_compared_in_accepted_tokens_of_the_tree():
    """All of 8 tokens in two passes of 4, 3 of them drafted; against none."""
    warm = Text(1.0, trace_of(length=5, code=7), None)
    cold = greedy(trace_of(length=8, code=0))
    point(evidence.warmer_less_greedy(evidence.PAPER_TREE, cold, warm), 0 - 3)


# ---- speed ---------------------------------------------------------------------------------------


def speeds(claim, grid, length, **ranks):
    """Of some domains' ranks; the others are never accepted."""
    ranks = {domain: ranks.get(domain, 1) for domain in ("math", "code", "chat")}
    text = greedy(trace_of(length, **ranks))
    return speed.speed_claims(text, grid)[claim, AT_0].reset_index(drop=True)


def test_speed_ups_and_the_rule_by_hand():
    """math: 10 tokens in 3 blocks (4, 4, 2), or in 2 of gamma 4; code: in 10."""
    rows = speeds("routing", [(0.29, 0.0), (0.29, 0.1)], 10, math=0).set_index(["row", "slope"])
    for slope, cost in ((0.0, 1.87), (0.1, 2.17)):
        point(rows.loc["math", slope], 10 / 3 / cost)
        point(rows.loc["code", slope], 1 / cost)
    rows = speeds("rule", [(0.05, 0.0), (0.05, 0.1)], 10, math=0).set_index(["row", "slope"])
    point(rows.loc["math", 0.0], (4 / 1.2) / (5 / 1.2))
    point(rows.loc["math", 0.1], (4 / 1.2) / (5 / 1.6))
    point(rows.loc["code", 0.0], 0.0)  # no hit: no token that the rule counts


def test_best_gammas_by_hand_and_their_verdicts():
    rows = speeds("gamma-proofs", FREE, 16, math=0)
    point(rows[:1], 15)  # one block of 16 tokens at 1.75 target passes
    point(rows[1:], 0)  # a draft pass costs more than it could save
    assert (speeds("gamma-open", FREE, 16)[NUMBERS] == 0).all(axis=None)  # plain decoding
    rows = speeds("gamma-contrast", FREE, 16, math=0)
    point(rows[:1], 15)
    for part, expected in ((rows, TURNS), (rows[:1], HOLDS), (rows[1:], FAILS)):
        assert verdict("gamma-contrast", part) == expected
    free = speeds("gamma-proofs", [(0.0, 0.0)], 10, math=0)
    point(free, 9)  # one block from gamma 9 on: the first of equals


def test_budget_gains_by_hand():
    # gamma 1, c 0.25: math 5 blocks of 1.25, chat 10; gamma 4: math 2 blocks of 2, chat 10. One
    # gamma: 1 (6.25 + 12.5 against 4 + 20), in every resample of 20 prompts
    trace = trace_of(10, 20, math=0, chat=1)
    chains = {gamma: replay.prompt_sums(greedy(trace).chain(gamma)) for gamma in (1, 4)}
    rows = speed.budget_gains(chains, [(0.25, 0.0), (0.0, 0.0)], "greedy")
    assert rows["estimate"][0] == pytest.approx(18.75 / 16.5 - 1)
    assert rows["low"][0] <= rows["estimate"][0] <= rows["high"][0]
    point(rows[1:], 0.0)  # drafts that cost nothing: 4 for everybody


# ---- every claim ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair():
    return made_pair(prompts=5, length=36)


@pytest.fixture(scope="module")
def found(pair):
    return evidence.of_pair(pair, LISTED, GRID, {})


def numbers(found, *ways):
    """The pair's own numbers; a difference of both temperatures left out."""
    rows = found[found["asked"].isin(ways) & (found["prompts"] == OWN)]
    rows = rows[rows["claim"] != "temperature"]
    return rows.set_index(["claim", "asked", "estimator", "row"])[NUMBERS]


def test_every_claim_is_measured_somewhere(found):
    asked = set(found["claim"])
    for one in LISTED.values():
        assert (one.id in asked) == (one.about != SOURCES and not one.untested), one.id
    known = found.dropna(subset=["low", "high"])
    assert (known["low"] <= known["high"]).all() and len(known) > 120


@pytest.mark.parametrize("swapped", [AT_0, AT_1])
def test_no_answer_at_one_temperature_is_read_from_text_of_the_other(pair, found, swapped):
    """The text of one temperature is another pair's, and a column that the exact answers on greedy
    text may not need is not there.
    """
    cold, warm = pair.greedy[OWN], pair.sampled[OWN]
    if swapped == AT_1:
        warm = made_text(5, 6, prompts=5, length=36, tables=7)
        cold = replace(cold, trace=cold.trace.drop(columns="overlap"))
    else:
        cold = made_text(prompts=5, length=36, tables=7)
    other = replace(pair, greedy={OWN: cold}, sampled={OWN: warm})
    again = evidence.of_pair(other, LISTED, GRID, {})
    kept = (PUBLISHED, AT_0) if swapped == AT_1 else (AT_1,)
    pd.testing.assert_frame_equal(numbers(again, *kept), numbers(found, *kept))
    assert not numbers(again, swapped).equals(numbers(found, swapped)), "that text is another"


@pytest.mark.parametrize("way", [AT_0, AT_1])
def test_answers_are_the_named_estimators(pair, found, way):
    text = {AT_0: pair.greedy, AT_1: pair.sampled}[way][OWN]
    trace, nodes = (rows.query("domain == 'code'") for rows in (text.trace, text.nodes))
    level, length = trace[text.value].mean(), visited(trace)  # of all seeds
    expected = {"level": level, "small-draft": level, "length": length}
    expected["eq3"] = score.published_length(nodes) / length
    asked = {(PUBLISHED, "entropy-sign"): nodes["ratio"].corr(nodes["target_entropy"])}
    asked = (asked if way == AT_0 else {}) | {(way, name): x for name, x in expected.items()}
    own = found[(found["prompts"] == OWN) & (found["row"] == "code")]
    at = own.set_index(["asked", "claim"])["estimate"]
    assert at[list(asked)].to_dict() == pytest.approx(asked)


def visited(trace):
    """Accepted tokens per block of the paper's tree, walked by hand over each text's ranks."""
    accepted = []
    for _, text in trace.groupby(["prompt_id", "seed"]):
        ranks, start = text.sort_values("position")["draft_rank"].to_list(), 0
        while start < len(ranks):
            kept = path = 0  # of two levels both ranks, of the third below rank 0, 0
            for level, rank in enumerate(ranks[start : start + 3]):
                if rank > 1 or (level == 2 and path > 0):
                    break
                kept, path = kept + 1, path + rank
            accepted.append(kept)
            start += kept + 1
    return np.mean(accepted)


def test_other_prompts_are_measured_by_what_is_exact_there(pair, found):
    """Each set's answers are its own texts'; a sampled text without trees answers nothing of its
    nodes, and at T = 0 all is measured.
    """
    at = found[found["prompts"] == SECOND].set_index(["claim", "asked", "row"]).sort_index()
    hits = pair.greedy[SECOND].trace.query("domain == 'chat'")["hit"]
    assert at.loc[("level", AT_0, "chat"), "estimate"] == pytest.approx(hits.mean())
    for name in ("eq3", "depth"):
        assert at.loc[(name, AT_0), "estimate"].notna().all()
        assert at.loc[(name, AT_1), "note"].str.contains("without draft trees").all()
    ways = found.groupby("prompts")["asked"].agg(set)
    assert ways.to_dict() == {OWN: {PUBLISHED, AT_0, AT_1}, SECOND: {AT_0, AT_1}}


def test_claims_are_asked_at_t1_whatever_the_temperature_of_the_profile(monkeypatch):
    asked = []

    def recorded(profile, kind):
        asked.append((kind, profile.sampled_temperature))
        return made_text()

    monkeypatch.setattr(Text, "recorded", recorded)
    monkeypatch.setattr(evidence, "with_numbers", lambda text, strings: text)
    evidence.recorded_texts(load_profile("tiny", {"temperature": 0.7, "other_prompts": []}), [])
    assert asked == [("greedy", 1.0), ("sampled", 1.0)]


def test_pairs_beside_are_as_they_are_shipped():
    own = load_profile("smollm").replace(prompts_per_domain=9)
    profiles = evidence.profiles_beside(own, ["tiny", "smollm"])
    assert list(profiles) == ["smollm", "tiny"] and profiles["smollm"] is own
    assert profiles["tiny"].recorded == () and profiles["tiny"].traces == "data/traces/tiny"


# ---- tables of notebooks 08 and 10 ---------------------------------------------------------------


def made(prompts=50, five=1.2):
    """The four tables as the notebooks export them, as evidence for the claims."""
    both = ["alpha", "hit[1]"]
    drafts = pd.DataFrame(
        product(both, ["INT4 self-draft", "INT8"], ["math", "all"]),
        columns=["estimator", "draft", "domain"],
    )
    distilled = pd.DataFrame({"estimator": both, "draft": "FKL", "difference": [0.5, -0.5]})
    specialist = pd.DataFrame({"domain": ["math", "chat"], "estimate": [0.06, -0.2]})
    times = {"n": [1, 5], "target_low": [9, 11], "target_high": [11, 13], "v(n)": [1.0, five]}
    tables = {
        "08/self-drafts": drafts.assign(estimate=0.92, low=0.91, high=0.93, n_prompts=prompts),
        "08/distillation": distilled.assign(domain="all", low=0, high=1, n_prompts=prompts),
        "08/specialist": specialist.assign(estimator="hit[1]", low=0, high=0.1),
        "10/pass-times": pd.DataFrame(times),
    }
    return other_notebooks.of_tables(LISTED, tables)


def test_where_no_notebook_has_run_or_too_few_prompts_every_row_says_so():
    nothing, few = other_notebooks.of_tables(LISTED, {}), made(prompts=8)
    drafts = {(name, way) for name, one in LISTED.items() if one.table for way in (AT_0, AT_1)}
    assert set(nothing) == drafts | {("one-pass", AT_0)} and len(drafts) == 6
    for rows in [*nothing.values(), *(few[key] for key in drafts)]:
        assert rows["note"].item().startswith("notebook")


def test_rows_of_the_tables_by_hand():
    found = made()
    expected = {
        ("self-draft", AT_1): ["alpha", "math", 0.92, 0.91, 0.93],
        ("own-outputs", AT_1): ["alpha, distilled - before", "FKL", 0.5, 0, 1],
        ("own-outputs", AT_0): ["hit[1], distilled - before", "FKL", -0.5, 0, 1],
        ("maths-draft", AT_0): ["hit[1], specialist - all domains", "math", 0.06, 0, 0.1],
        ("one-pass", AT_0): ["v(5)", "this machine", 1.2, 11 / 11, 13 / 9],
    }
    for key, row in expected.items():
        assert found[key][["estimator", "row", *NUMBERS]].to_numpy().tolist() == [row]


def test_a_clock_on_which_a_longer_pass_is_cheaper_carries_no_verdict():
    assert "measured at 0.96" in made(five=0.96)["one-pass", AT_0]["note"].item()
    assert made(five=0.98)["one-pass", AT_0]["estimate"].item() == 0.98


def test_a_sessions_own_tables_stand_before_those_that_are_shipped(tmp_path, monkeypatch):
    monkeypatch.setattr(other_notebooks, "ROOT", tmp_path)  # this checkout may have measured too
    shipped = other_notebooks.tables_of("tiny", tmp_path)
    for rows in other_notebooks.of_tables(LISTED, shipped).values():
        assert np.isfinite(rows["estimate"]).all()
    other = other_notebooks.tables_of("tiny", tmp_path, 0.7)
    sampled = [
        [(table.get("estimator", pd.Series()) == "alpha").any() for table in tables.values()]
        for tables in (shipped, other)
    ]
    assert list(map(any, sampled)) == [True, False], "the claims speak of T = 1"
    path = tmp_path / "tiny" / "10" / "pass-times.csv"
    path.parent.mkdir(parents=True)
    path.write_text("n\n7\n")
    assert list(other_notebooks.tables_of("tiny", tmp_path)["10/pass-times"]["n"]) == [7]

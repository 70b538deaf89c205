"""What runs say to the claims: measures by hand on made texts, and that no answer at one
temperature is read from text of another.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from made_pair import STRINGS, made_pair, made_run
from test_published import RECORDS, author_rows, released

from speclab import replay, score
from speclab.profiles import load_profile
from speclab.prompts import Prompt
from speclab.studies.paper_audit import author_records, claims, costs, evidence, tables
from speclab.studies.paper_audit.claims import (
    AT_0,
    AT_1,
    NOT_TESTED,
    PUBLISHED,
    SOURCES,
    UNKNOWN,
)
from speclab.studies.paper_audit.evidence import BETWEEN
from speclab.studies.paper_audit.side import PairRuns

LISTED = claims.claims()
GRID = costs.Grid((0.1,), (0.0,))
EXPORTED = tables.rows([])
EXPORTED_CLAIMS = {claim for claim, _ in EXPORTED}


def texts(length=12, prompts=5, **ranks) -> pd.DataFrame:
    """A trace of `prompts` equal texts a domain: domain = the draft's rank of every token, or of
    each.
    """
    parts = [
        pd.DataFrame({"draft_rank": rank, "position": range(length)}).assign(
            domain=domain, prompt_id=f"{domain}-{i}"
        )
        for domain, rank in ranks.items()
        for i in range(prompts)
    ]
    return pd.concat(parts, ignore_index=True)


def same(row: dict, value: float) -> None:
    """Equal prompts: the interval is a point."""
    found = [row[name] for name in ("estimate", "low", "high")]
    assert found == pytest.approx([value] * 3)


# ---- measures by hand ----------------------------------------------------------------------------


def test_gaps_by_hand_and_a_missing_domain_is_named():
    frame = texts(chat=4, math=1)
    (row,) = evidence.gaps(frame, "draft_rank", [("chat", "math")])
    same(row, 3.0)
    assert row["row"] == "chat - math"
    with pytest.raises(ValueError, match=r"domain \['reasoning'\] has no rows"):
        evidence.gaps(frame, "draft_rank", [("chat", "reasoning")])


def test_chat_leads_in_entropy_and_in_acceptance():
    frame = texts(chat=0, code=0, reasoning=0, math=0)
    entropy = {"chat": 3.0, "code": 1.0, "reasoning": 2.0, "math": 5.0}
    frame = frame.assign(target_entropy=frame["domain"].map(entropy), hit=1.0)
    rows = evidence.chat_leads(frame, "hit")
    assert [row["estimate"] for row in rows] == pytest.approx([2, 1, -2, 0, 0, 0])
    assert [row["estimator"] for row in rows] == ["target_entropy"] * 3 + ["hit[1]"] * 3


def test_unsure_positions_are_the_top_of_each_domain():
    frame = texts(length=8, prompts=1, chat=0, math=0)
    scale = frame["domain"].map({"chat": 1.0, "math": 10.0})
    frame = frame.assign(target_entropy=frame["position"] * scale)
    found = evidence.unsure_positions(frame, 0.25)
    assert found.groupby("domain")["position"].agg(list).to_dict() == {
        "chat": [6, 7],
        "math": [6, 7],
    }


def test_agreement_is_compared_where_the_target_is_unsure():
    frame = texts(chat=0, code=0, reasoning=0, math=0)
    unsure = frame["position"] >= 6
    in_chat = frame["domain"] == "chat"
    frame = frame.assign(target_entropy=1.0 * unsure, hit=np.where(unsure, in_chat, 1))
    rows = evidence.agreement_where_unsure(frame, "hit")
    assert [row["estimate"] for row in rows] == [1.0, 1.0, 1.0]


def test_numbers_are_told_from_other_tokens():
    frame = texts(length=10, math=[0, 9, 0, 9, 0, 0, 9, 9, 9, 9])
    frame = frame.assign(token=frame["position"])  # even: numbers
    (row,) = evidence.numbers_less_others(frame, STRINGS)
    same(row, 3 / 5 - 1 / 5)


def test_position_is_asked_of_the_same_prompts():
    early, late = texts(length=20, chat=1), texts(length=40, code=1)
    frame = pd.concat([early, late], ignore_index=True)
    frame["y"] = np.where(frame["domain"] == "chat", 9.0, frame["position"] >= 32)
    (row,) = evidence.same_prompts_late(frame, "y")
    same(row, 1.0)  # chat, which stops early, has no part in it


def test_the_change_along_a_chain_is_asked_of_accepted_prefixes():
    trace = texts(length=12, code=[0, 1] * 6, math=0)
    found = evidence.change_by_depth(evidence.Texts(trace, None), 2)
    assert {row["row"]: row["estimate"] for row in found} == pytest.approx(
        {"code": -1.0, "math": 0.0}
    )


def runs_of(greedy: pd.DataFrame, sampled: pd.DataFrame) -> PairRuns:
    runs = [SimpleNamespace(trace=trace, nodes=None) for trace in (greedy, sampled)]
    return PairRuns(load_profile("tiny"), runs[0], runs[0], runs[1], {}, ())


def test_sampling_is_compared_in_accepted_tokens_of_the_tree():
    """All of 8 tokens in two passes of 4, 3 of them drafted; against none."""
    pair = runs_of(texts(length=8, code=0), texts(length=5, code=7))
    (row,) = evidence.warmer_less_greedy(pair, {1.0: pair.sampled.trace})
    same(row, 0 - 3)
    assert row["estimator"] == "mean_accepted, T = 1 - T = 0"
    with pytest.raises(ValueError, match="prompts are missing"):
        evidence.warmer_less_greedy(pair, {1.0: texts(prompts=6, code=7)})


def test_a_rule_is_asked_of_chat_and_of_the_others():
    said = {
        "chat": "How are you today?",
        "code": "def f(): pass",
        "math": "What is 2 + 2?",
    }
    prompts = [
        Prompt(f"{domain}-{i}", domain, text)
        for domain, text in said.items()
        for i in range(10)
    ]
    prompts += [Prompt(f"plain-{i}", "math", "What is a prime?") for i in range(20)]
    chat, others = evidence.told_by_rule(prompts)
    same(chat, 1.0)
    assert (others["row"], others["estimate"]) == ("the others", 0.5)


# ---- every claim ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair():
    return made_pair(prompts=5, length=36)


def asked_of(pair: PairRuns, *ways: str, only=LISTED) -> pd.DataFrame:
    """The rows of some claims, asked in some ways."""
    asked = evidence.measures(pair, STRINGS, GRID)
    asked = {
        (claim, way): measure
        for (claim, way), measure in asked.items()
        if way in ways and claim in only
    }
    return evidence.in_frame(LISTED, "made", asked)


@pytest.fixture(scope="module")
def found(pair):
    return evidence.evidence(pair, "made", LISTED, STRINGS, GRID, EXPORTED)


def numbers(found: pd.DataFrame, *ways, but=()) -> pd.DataFrame:
    rows = found[found["asked"].isin(ways) & ~found["claim"].isin(but)]
    keys = ["claim", "asked", "estimator", "row"]
    return rows.set_index(keys)[["estimate", "low", "high"]]


def differs(one: pd.DataFrame, other: pd.DataFrame, way: str) -> bool:
    """Is the level another in every domain?"""
    levels = [numbers(found.query("claim == 'level'"), way) for found in (one, other)]
    return bool((levels[0]["estimate"] != levels[1]["estimate"]).all())


def test_every_claim_is_asked_somewhere(found):
    asked = set(found["claim"])
    for one in LISTED.values():
        assert (one.id in asked) == (one.about != SOURCES and not one.untested), one.id
    assert set(found["asked"]) == {PUBLISHED, AT_0, AT_1, BETWEEN}
    known = found.dropna(subset=["low", "high"])
    assert (known["low"] <= known["high"]).all() and len(known) > 130


def test_no_answer_at_0_is_read_from_sampled_text_or_from_the_overlap(pair, found):
    bare = pair.greedy.trace.drop(columns="overlap")
    greedy = SimpleNamespace(trace=bare, nodes=pair.greedy.nodes)
    other = made_run(seed=7, sampled=True, tables=7)
    changed, ways = replace(pair, greedy=greedy, sampled=other), (PUBLISHED, AT_0)
    again = asked_of(changed, *ways)
    own = numbers(found, *ways, but=EXPORTED_CLAIMS)
    pd.testing.assert_frame_equal(numbers(again, *ways), own)
    control = asked_of(changed, AT_1, only=["level"])
    assert differs(found, control, AT_1), "that text is another"


def test_no_answer_at_1_is_read_from_greedy_text(pair, found):
    other = made_run(tables=7)
    changed = replace(pair, greedy=other, balanced=other)
    but = ("temperature", *EXPORTED_CLAIMS)  # the first is a difference of both
    again = numbers(asked_of(changed, AT_1), AT_1, but=but)
    pd.testing.assert_frame_equal(again, numbers(found, AT_1, but=but))
    control = asked_of(changed, AT_0, only=["level"])
    assert differs(found, control, AT_0), "that text is another"


def test_no_answer_at_0_is_a_probability_but_the_papers_own():
    """Only E[L], whose definition is min(1, p/q), may ask for the nodes' probabilities."""
    run = made_run(prompts=5, length=34)
    bare = run.nodes.assign(target_prob=0.5, draft_prob=0.5)
    answers = []
    for nodes in (run.nodes, bare):
        asked = evidence.exact_at(evidence.Texts(run.trace, nodes), STRINGS, GRID)
        names = ("level", "length", "eq3", "commitment", "depth", "position", "gap")
        answers.append({name: asked[name]() for name in names})
    own, other = answers
    assert [name for name in own if own[name] != other[name]] == ["eq3"]


def test_answers_are_the_named_estimators(pair, found):
    at = found.set_index(["claim", "asked", "row"])["estimate"]
    greedy, sampled = pair.greedy, pair.sampled
    code = {
        name: getattr(run, frame).query("domain == 'code'")
        for name, run, frame in (
            ("cold", greedy, "trace"),
            ("warm", sampled, "trace"),
            ("cold nodes", greedy, "nodes"),
            ("warm nodes", sampled, "nodes"),
        )
    }
    hit = (code["cold"]["draft_rank"] == 0).mean()
    assert at["level", PUBLISHED, "code"] == pytest.approx(
        score.published_alpha(code["cold nodes"])
    )
    assert at["level", AT_0, "code"] == pytest.approx(hit)
    assert at["small-draft", AT_0, "code"] == pytest.approx(hit)
    assert at["level", AT_1, "code"] == pytest.approx(code["warm"]["overlap"].mean())
    for way, nodes, rule in ((AT_0, "cold", "greedy"), (AT_1, "warm", "point-mass")):
        accepted = score.tree_estimators(rule)["mean_accepted"](code[f"{nodes} nodes"])
        assert at["length", way, "code"] == pytest.approx(accepted)
        ratio = score.published_length(code[f"{nodes} nodes"]) / accepted
        assert at["eq3", way, "code"] == pytest.approx(ratio)
        assert at["commitment", way, "code"] == 0
    path = code["cold nodes"].query("best_path")
    last = path.query("depth == 3").set_index(["prompt_id", "position"])["target_rank"]
    first, second = (
        path.query("depth == @depth").set_index(["prompt_id", "position"])[
            "target_rank"
        ]
        for depth in (1, 2)
    )
    given = last[(first == 0) & (second == 0)]
    change = (given == 0).mean() - (first == 0).mean()
    assert at["depth", AT_0, "code"] == pytest.approx(change)


def test_what_a_run_cannot_answer_is_not_judged(pair):
    trace = pair.greedy.trace.query("domain != 'chat'")
    run = SimpleNamespace(trace=trace, nodes=pair.greedy.nodes)
    part = evidence.at_0(replace(pair, greedy=run))
    asked = evidence.exact_at(part, STRINGS, GRID)
    listed = {name: LISTED[name] for name in ("gap", "level")}
    asked = {(name, AT_0): asked[name] for name in listed}
    rows = evidence.in_frame(listed, "made", asked)
    assert rows[rows["estimate"].isna()]["claim"].tolist() == ["gap"]
    verdicts = claims.verdict_table(listed, rows).set_index("claim")["verdict"]
    assert verdicts["gap"] == NOT_TESTED != verdicts["level"]


# ---- other texts ---------------------------------------------------------------------------------


def test_outside_loops_counts_what_comes_before_them():
    run = made_run(prompts=5, length=40)
    run.trace["token"] = run.trace["position"] % 10  # goes round after ten tokens
    cold = replace(made_pair(prompts=5, length=4), greedy=run)
    listed = {"level": LISTED["level"], "length": LISTED["length"]}
    rows = evidence.outside_loops(cold, "made", listed, STRINGS, GRID)
    at = rows.set_index(["claim", "asked", "row"])["estimate"]
    early = run.trace.query("position < 13 and domain == 'code'")
    hit = (early["draft_rank"] == 0).mean()
    assert at["level", AT_0, "code"] == pytest.approx(hit)
    nodes = run.nodes.query("position < 13 and domain == 'code'")
    accepted = score.tree_estimators()["mean_accepted"](nodes)
    assert at["length", AT_0, "code"] == pytest.approx(accepted)


def test_other_seeds_are_asked_what_a_trace_can_answer(pair):
    names = ("level", "gap", "length", "eq3", "commitment")
    listed = {name: LISTED[name] for name in names}
    frames = evidence.other_seeds(pair, "made", listed, STRINGS, GRID)
    assert len(frames) == len(pair.seeds)
    for run, rows in zip(pair.seeds, frames, strict=True):
        assert set(rows["claim"]) == {"level", "gap"}
        assert set(rows["asked"]) == {AT_1}
        at = rows.set_index(["claim", "row"])["estimate"]
        own = run.trace.query("domain == 'math'")["overlap"].mean()
        assert at["level", "math"] == pytest.approx(own)


# ---- what needs no pair, and the authors' records ------------------------------------------------


def test_what_needs_no_pair_has_a_row_and_a_verdict_each():
    rows = evidence.of_sources(LISTED)
    about = [one.id for one in LISTED.values() if one.about == SOURCES]
    assert list(dict.fromkeys(rows["claim"])) == about
    verdicts = claims.verdict_table(LISTED, rows).set_index("claim")["verdict"]
    assert set(verdicts) <= {"holds", "does not hold", "defect", claims.NO_CONDITION}
    assert UNKNOWN not in set(verdicts)


def test_records_answer_what_they_can(tmp_path):
    prompts = [author_rows(f"he/{i}", p) for i in range(5) for p in range(3)]
    pd.concat(prompts).to_csv(tmp_path / "000001.csv", index=False)
    one = [author_rows("he/0", p) for p in range(33)]
    pd.concat(one).to_csv(tmp_path / "000002.csv", index=False)
    rows = evidence.record_evidence(author_records.read(tmp_path))
    found = rows.set_index(["row", "claim"])
    level = found.loc[("000001", "level")]
    assert level["estimate"] == level["low"] == pytest.approx((0.5 + 1 + 1 + 0.1) / 4)
    assert ("000001", "position") not in found.index
    assert found.loc[("000002", "position"), "estimate"] == pytest.approx(0.0)
    assert ("000002", "entropy-sign") not in found.index
    assert np.isnan(found.loc[("000002", "level"), "low"])
    assert evidence.record_evidence({}).empty


@released
def test_released_records_say_that_their_level_is_low():
    records = author_records.read(RECORDS)
    rows = evidence.record_evidence(records)
    found = rows.set_index(["row", "claim", "estimator"])["estimate"]
    level = found["055031", "level", "published_alpha"]
    assert level == pytest.approx(0.492, abs=5e-4)


def test_chains_at_t_1_are_of_drawn_tokens_and_say_so(pair):
    asked = evidence.measures(pair, STRINGS, GRID)
    for way, rule in ((AT_0, "greedy"), (AT_1, "rejection")):
        run = pair.greedy if way == AT_0 else pair.sampled
        (math, _) = asked["routing", way]()
        assert math["estimator"] == f"speed-up, chain of 3, {rule} rule"
        sums = replay.chain_sums(run.trace, [3], rule).query("domain == 'math'")
        tau = sums["emitted"].sum() / sums["blocks"].sum()
        assert math["estimate"] == pytest.approx(tau / 1.3)
    best = replay.chain_sums(pair.sampled.trace, [3], "point-mass")
    drawn = replay.chain_sums(pair.sampled.trace, [3], "rejection")
    assert best["blocks"].sum() != pytest.approx(drawn["blocks"].sum()), "told apart"

"""What runs say to the claims: measures by hand on made texts, and that no answer at one
temperature is read from text of another.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from made_pair import STRINGS, made_pair, made_text

from speclab import replay, score
from speclab.analysis import claims
from speclab.analysis.claims import AT_0, AT_1, FAILS, HOLDS, PUBLISHED, SOURCES, TURNS
from speclab.analysis.prompt_sets import OWN, SECOND
from speclab.analysis.texts import Text
from speclab.profiles import load_profile
from speclab.studies.paper_audit import measures

LISTED = claims.claims()
GRID = [(0.1, 0.0)]
FREE = [(0.05, 0.0), (5.0, 0.0)]


def texts(length=12, prompts=5, **ranks):
    """A trace of `prompts` equal texts a domain: domain = the draft's rank of every token, or of
    each.
    """
    parts = [
        pd.DataFrame({"draft_rank": rank, "position": range(length)}).assign(
            domain=domain, prompt_id=f"{domain}-{i}", seed=0
        )
        for domain, rank in ranks.items()
        for i in range(prompts)
    ]
    return pd.concat(parts, ignore_index=True)


def greedy(trace):
    return Text(0.0, score.with_hits(trace), None)


def same(row, value):
    """Equal prompts: the interval is a point."""
    found = [row[name] for name in ("estimate", "low", "high")]
    assert found == pytest.approx([value] * 3)


# ---- rows, contrasts -----------------------------------------------------------------------------


def test_a_gap_by_hand_and_a_missing_domain_is_named():
    text = greedy(texts(chat=[0, 0, 0, 1] * 3, math=[0, 1, 1, 1] * 3))
    asked = {"of": "positions", "number": "acceptance"}
    (row,) = measures.evaluate(text, **asked, contrast=[["chat", "math"]])
    same(row, 0.75 - 0.25)
    assert (row["row"], row["estimator"]) == ("chat - math", "hit[1]")
    with pytest.raises(ValueError, match=r"domain \['reasoning'\] has no rows"):
        measures.evaluate(text, **asked, contrast=[["chat", "reasoning"]])


def test_unsure_positions_are_the_top_of_each_domain_or_of_all():
    frame = texts(length=8, prompts=1, chat=0, math=0)
    scale = frame["domain"].map({"chat": 1.0, "math": 10.0})
    frame = frame.assign(target_entropy=frame["position"] * scale)
    found = measures.unsure_quarter(frame)
    both = found.groupby("domain")["position"].agg(list).to_dict()
    assert both == {"chat": [6, 7], "math": [6, 7]}
    half = measures.unsure_half(frame)
    assert half.groupby("domain").size().to_dict() == {"chat": 1, "math": 7}


def test_numbers_are_told_from_other_tokens_of_every_seed():
    frame = texts(length=10, math=[0, 9, 0, 9, 0, 0, 9, 9, 9, 9], chat=0)
    frame = frame.assign(token=frame["position"])  # even: numbers
    text = greedy(pd.concat([frame, frame.assign(seed=1)], ignore_index=True))
    text = measures.with_numbers(text, STRINGS)
    (row,) = measures.evaluate(text, "math", "acceptance", "numbers - others")
    same(row, 3 / 5 - 1 / 5)


def test_late_and_early_are_of_the_same_prompts():
    """chat, which stops early, has no part in it."""
    late = texts(length=40, code=[1] * 32 + [0] * 8)
    text = greedy(pd.concat([texts(length=20, chat=0), late], ignore_index=True))
    (row,) = measures.evaluate(text, "long texts", "acceptance", "late - early")
    same(row, 1.0)
    with pytest.raises(ValueError, match="positions from 32 on"):
        measures.evaluate(greedy(texts(chat=0)), "long texts", "acceptance", "late - early")


def test_tested_tokens_by_hand():
    """Blocks from 0 (one kept, the next rejected), 2 (the first rejected, so that the second is not
    tested), 3 (both kept) and 6 (the text's last token).
    """
    trace = texts(length=7, prompts=1, code=[0, 1, 1, 0, 0, 0, 0])
    found = measures.tested(replay.replay(trace, 2))
    assert found.query("depth == 1")["kept"].tolist() == [1, 0, 1, 1]
    assert found.query("depth == 2")["kept"].tolist() == [0, 1]


# ---- variance ------------------------------------------------------------------------------------


def test_shares_are_the_variance_of_group_means():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y": rng.random(200), "f": rng.integers(0, 5, 200)})
    slow = frame.groupby("f")["y"].transform("mean").var() / frame["y"].var()
    share = measures.share_between(frame, "y", "f")
    assert share(frame) == pytest.approx(slow)
    one = frame[frame["f"] == 1]
    assert share(one) == pytest.approx(0.0), "levels that a resample lacks count nothing"


def nested(of_domain, of_prompt, of_text, seeds, rng):
    """Texts whose `overlap` is a sum of a level of the domain, of the prompt and of the text."""
    rows = [
        (f"{domain}-{prompt}", domain, seed, position)
        for domain, prompt in product("abcd", range(60))
        for seed, position in product(range(seeds), range(2))
    ]
    trace = pd.DataFrame(rows, columns=["prompt_id", "domain", "seed", "position"])
    level = trace["domain"].map(dict(zip("abcd", (-1.5, -0.5, 0.5, 1.5), strict=True)))
    trace["overlap"] = of_domain * level / np.sqrt(1.25)
    for who, sd in ((["prompt_id"], of_prompt), (["prompt_id", "seed"], of_text)):
        number = trace.groupby(who).ngroup()
        trace["overlap"] += sd * rng.normal(size=number.max() + 1)[number]
    return Text(1.0, trace, None)


def test_what_texts_differ_in_is_judged_by_the_domains_part_alone():
    """True shares 1, 0.5 and 1.5 of 3; of one seed the draw is the prompt's. Most is the domain's
    only where the other two are small."""
    rng, claim = np.random.default_rng(1), LISTED["task-first"]
    rows = measures.share_between_texts(nested(1.0, 0.5**0.5, 1.5**0.5, 3, rng))
    shares = {row["row"]: row["estimate"] for row in rows}
    expected = {"domain": 1 / 3, "prompt": 1 / 6, "draw": 1 / 2}
    assert shares == pytest.approx(expected, abs=0.08)
    assert verdict(rows, claim.id) == FAILS
    rows = measures.share_between_texts(nested(1.0, 0.3, 0.5, 1, rng))
    assert [row["row"] for row in rows] == ["domain", "prompt"]
    assert verdict(rows, claim.id) == HOLDS


# ---- other claims --------------------------------------------------------------------------------


def test_sampling_is_compared_in_accepted_tokens_of_the_tree():
    """All of 8 tokens in two passes of 4, 3 of them drafted; against none."""
    tree = load_profile("tiny").tree
    warm = Text(1.0, texts(length=5, code=7), None)
    (row,) = measures.warmer_less_greedy(tree, greedy(texts(length=8, code=0)), warm)
    same(row, 0 - 3)
    assert row["estimator"] == "mean_accepted, T = 1 - T = 0"


# ---- speed ---------------------------------------------------------------------------------------


def speeds(trace, claim, grid):
    """`trace`: of some domains; the others are never accepted."""
    missing = dict.fromkeys({"math", "code", "chat"} - set(trace["domain"]), 1)
    length = trace["position"].max() + 1
    every = pd.concat([trace, texts(length, **missing)], ignore_index=True)
    return measures.speed_claims(greedy(every), grid)[claim]()


def verdict(rows, of):
    """The verdict on a listed claim of these rows."""
    edges = [LISTED[of].bounds(row["row"]) for row in rows]
    least, most = zip(*edges, strict=True)
    return claims.verdict(LISTED[of], pd.DataFrame(rows).assign(least=least, most=most))


def test_speed_ups_and_the_rule_by_hand():
    """math: 10 tokens in 3 blocks (4, 4, 2), or in 2 of gamma 4; code: in 10."""
    trace = texts(length=10, math=0, code=1)
    rows = speeds(trace, "routing", [(0.29, 0.0), (0.29, 0.1)])
    assert [row["row"] for row in rows] == ["math", "code"] * 2
    for row, price in zip(rows, (1.87, 1.87, 2.17, 2.17), strict=True):
        same(row, (10 / 3 if row["row"] == "math" else 1) / price)
    rows = speeds(trace, "rule", [(0.05, 0.0), (0.05, 0.1)])
    ratios = {(row["row"], row["slope"]): row for row in rows}
    same(ratios["math", 0.0], (4 / 1.2) / (5 / 1.2))
    same(ratios["math", 0.1], (4 / 1.2) / (5 / 1.6))
    same(ratios["code", 0.0], 0.0)  # no hit: no token that the rule counts


def test_best_gammas_by_hand_and_their_verdicts():
    trace = texts(length=16, math=0, chat=1)
    cheap, dear = speeds(trace, "gamma-proofs", FREE)
    same(cheap, 15)  # one block of 16 tokens at 1.75 target passes
    same(dear, 0)  # a draft pass costs more than it could save
    for row in speeds(trace, "gamma-open", FREE):
        same(row, 0)  # nothing is accepted: plain decoding
    rows = speeds(trace, "gamma-contrast", FREE)
    same(rows[0], 15)
    assert verdict(rows, "gamma-contrast") == TURNS
    assert verdict(rows[:1], "gamma-contrast") == HOLDS
    assert verdict(rows[1:], "gamma-contrast") == FAILS
    (free,) = speeds(texts(length=10, math=0), "gamma-proofs", [(0.0, 0.0)])
    same(free, 9)  # one block from gamma 9 on: the first of equals


def test_budget_gains_by_hand():
    # gamma 1, c 0.25: math 5 blocks of 1.25, chat 10; gamma 4: math 2 blocks of 2, chat 10. One
    # gamma: 1 (6.25 + 12.5 against 4 + 20), in every resample of so many prompts
    two = replay.chain_sums(texts(10, 20, math=0, chat=1), [1, 4])
    row, free = measures.budget_gains(two, [(0.25, 0.0), (0.0, 0.0)], "greedy")
    assert row["estimate"] == pytest.approx(18.75 / 16.5 - 1)
    assert row["low"] <= row["estimate"] <= row["high"]
    same(free, 0.0)  # drafts that cost nothing: 4 for everybody


# ---- every claim ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair():
    return made_pair(prompts=5, length=36).with_numbers(STRINGS)


@pytest.fixture(scope="module")
def found(pair):
    return measures.evidence(pair, LISTED, GRID, {})


def numbers(found, *ways, but=(), prompts=OWN):
    rows = found[found["asked"].isin(ways) & ~found["claim"].isin(but)]
    rows = rows[rows["prompts"] == prompts]
    keys = ["claim", "asked", "estimator", "row"]
    return rows.set_index(keys)[["estimate", "low", "high"]]


def test_every_claim_is_asked_somewhere(found):
    asked = set(found["claim"]) | {claim for claim, _ in measures.exported([])}
    for one in LISTED.values():
        assert (one.id in asked) == (one.about != SOURCES and not one.untested), one.id
    known = found.dropna(subset=["low", "high"])
    assert (known["low"] <= known["high"]).all() and len(known) > 120


def test_no_answer_at_one_temperature_is_read_from_text_of_the_other(pair, found):
    """The text of the other temperature is another pair's, and a column that the exact answers at
    this one may not need is not there."""
    other = measures.with_numbers(made_text(5, 6, prompts=5, length=36, tables=7), STRINGS)
    greedy = pair.greedy[OWN]
    bare = replace(greedy, trace=greedy.trace.drop(columns="overlap"))
    again = measures.evidence(
        replace(pair, greedy={OWN: bare}, sampled={OWN: other}), LISTED, GRID, {}
    )
    ways = (PUBLISHED, AT_0)
    pd.testing.assert_frame_equal(numbers(again, *ways), numbers(found, *ways))
    assert not numbers(again, AT_1).equals(numbers(found, AT_1)), "that text is another"
    cold = measures.with_numbers(made_text(prompts=5, length=36, tables=7), STRINGS)
    again = replace(pair, greedy={OWN: cold}, sampled={OWN: pair.sampled[OWN]})
    again = measures.evidence(again, LISTED, GRID, {})
    but = ("temperature",)  # a difference of both
    pd.testing.assert_frame_equal(numbers(again, AT_1, but=but), numbers(found, AT_1, but=but))
    assert not numbers(again, AT_0).equals(numbers(found, AT_0)), "that text is another"


def test_answers_are_the_named_estimators(pair, found):
    own = found[found["prompts"] == OWN]
    at = own.set_index(["claim", "asked", "row"])["estimate"]
    greedy, sampled = pair.greedy[OWN], pair.sampled[OWN]
    for name, way, text, column in (
        ("level", AT_0, greedy, "hit"),
        ("small-draft", AT_0, greedy, "hit"),
        ("level", AT_1, sampled, "overlap"),  # of all seeds
    ):
        mean = text.trace.query("domain == 'code'")[column].mean()
        assert at[name, way, "code"] == pytest.approx(mean)
    for way, text in ((AT_0, greedy), (AT_1, sampled)):
        nodes = text.nodes.query("domain == 'code'")
        accepted = visited(text.trace.query("domain == 'code'"))
        assert at["length", way, "code"] == pytest.approx(accepted)
        ratio = score.published_length(nodes) / accepted
        assert at["eq3", way, "code"] == pytest.approx(ratio)
    of_code = greedy.nodes.query("domain == 'code'")
    pearson = of_code["ratio"].corr(of_code["target_entropy"])
    assert at["entropy-sign", PUBLISHED, "code"] == pytest.approx(pearson)


def visited(trace):
    """Accepted tokens per block of the paper's tree, walked by hand over each text's ranks."""
    accepted = blocks = 0
    for _, text in trace.groupby(["prompt_id", "seed"]):
        ranks, start = text.sort_values("position")["draft_rank"].to_list(), 0
        while start < len(ranks):
            kept = path = 0  # of two levels both ranks, of the third below rank 0, 0
            for level, rank in enumerate(ranks[start : start + 3]):
                if rank > 1 or (level == 2 and path > 0):
                    break
                kept, path = kept + 1, path + rank
            accepted, blocks, start = accepted + kept, blocks + 1, start + kept + 1
    return accepted / blocks


def test_other_prompts_are_asked_what_is_exact_there(pair, found):
    """Each set's answers are its own texts'; a sampled text without trees answers nothing of its
    nodes, and at T = 0 all is asked."""
    second = found[found["prompts"] == SECOND].set_index(["claim", "asked", "row"])
    second = second.sort_index()
    assert set(second.index.get_level_values("asked")) == {AT_0, AT_1}
    hits = pair.greedy[SECOND].trace.query("domain == 'chat'")["hit"]
    assert second.loc[("level", AT_0, "chat"), "estimate"] == pytest.approx(hits.mean())
    for name in ("eq3", "depth"):
        assert second.loc[(name, AT_0), "estimate"].notna().all()
        assert second.loc[(name, AT_1), "note"].str.contains("without trees").all()
    claims_of = {p: set(rows["claim"]) for p, rows in found.groupby("prompts")}
    published_alone = {one.id for one in LISTED.values() if one.published} - {
        one.id for one in LISTED.values() if one.exact
    }
    assert claims_of[OWN] - claims_of[SECOND] == published_alone - {"task-depth"}


# ---- tables of notebooks 08 and 10 ---------------------------------------------------------------


def made(folder, prompts=50, five=1.2):
    """The four tables, as the notebooks export them."""
    (folder / "08").mkdir(parents=True)
    (folder / "10").mkdir()
    estimators = ["alpha", "hit[1]"]
    drafts = [
        {"estimator": e, "draft": draft, "domain": domain, "estimate": number, "low": 0.91,
         "high": 0.93, "n_prompts": prompts}
        for e in estimators
        for draft, number in (("INT4 self-draft", 0.92), ("INT8", 1.0))
        for domain in ("math", "all")
    ]  # fmt: skip
    distilled = [
        {"estimator": e, "draft": "FKL", "domain": domain, "difference": number,
         "low": number - 0.25, "high": number + 0.25, "n_prompts": prompts}
        for e, number in zip(estimators, (0.5, -0.5), strict=True)
        for domain in ("math", "all")
    ]  # fmt: skip
    specialist = [
        {"estimator": "hit[1]", "domain": domain, "estimate": number, "low": 0, "high": 0.1}
        for domain, number in (("math", 0.06), ("chat", -0.2))
    ]  # fmt: skip
    times = {"n": [1, 5], "target_low": [9, 11], "target_high": [11, 13], "v(n)": [1.0, five]}
    names = ("08/self-drafts", "08/distillation", "08/specialist", "10/pass-times")
    for name, table in zip(names, (drafts, distilled, specialist, times), strict=True):
        pd.DataFrame(table).to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_where_no_notebook_has_run_or_too_few_prompts_every_row_says_so(tmp_path):
    found = measures.exported([tmp_path, tmp_path / "none"])
    asked = {(c, way) for c in measures.DRAFTS for way in (AT_0, AT_1)}
    assert set(found) == asked | {("one-pass", AT_0)}
    few = measures.exported([made(tmp_path / "few", prompts=8)])
    for (row,) in [*found.values(), *(few[key] for key in asked)]:
        assert np.isnan(row["estimate"]) and row["note"]


def test_rows_of_the_tables_by_hand(tmp_path):
    found = measures.exported([tmp_path / "none", made(tmp_path / "here")])
    (row,) = found["self-draft", AT_1]
    assert row == claims.row_of("alpha", "math", 0.92, 0.91, 0.93)
    (row,) = found["own-outputs", AT_1]
    assert row == claims.row_of("alpha, distilled - before", "FKL", 0.5, 0.25, 0.75)
    (row,) = found["own-outputs", AT_0]
    assert (row["estimator"], row["estimate"]) == ("hit[1], distilled - before", -0.5)
    (row,) = found["maths-draft", AT_0]
    assert (row["row"], row["estimate"]) == ("math", 0.06)
    (row,) = found["one-pass", AT_0]
    assert row == claims.row_of("v(5)", "this machine", 1.2, 11 / 11, 13 / 9)


def test_a_clock_on_which_a_longer_pass_is_cheaper_carries_no_verdict(tmp_path):
    (row,) = measures.exported([made(tmp_path / "cheap", five=0.96)])["one-pass", AT_0]
    assert np.isnan(row["estimate"]) and "measured at 0.96" in row["note"]
    (row,) = measures.exported([made(tmp_path / "same", five=0.98)])["one-pass", AT_0]
    assert row["estimate"] == 0.98


def test_the_shipped_tables_have_what_is_read(tmp_path):
    found = measures.exported([tmp_path, measures.SHIPPED / "tiny.json"])
    for key, rows in found.items():
        assert np.isfinite([row["estimate"] for row in rows]).all(), key

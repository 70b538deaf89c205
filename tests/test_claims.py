"""Claims as facts, and how verdicts follow from intervals: constructed cases that must hold, must
fail and are inconclusive, for each kind of region; and what the audit shows of them.
"""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from scipy.stats import norm

from speclab import stats
from speclab.analysis import claims, prompt_sets
from speclab.analysis.claims import (
    AT_0,
    AT_1,
    FAILS,
    FORM,
    HOLDS,
    NO_CONDITION,
    NOT_TESTED,
    SOURCES,
    TOO_FEW,
    TURNS,
    UNDECIDED,
)
from speclab.analysis.published import published
from speclab.show import drawings, redraw, style
from speclab.studies.paper_audit import summary

OWN, UNWRAPPED, SECOND = prompt_sets.OWN, prompt_sets.UNWRAPPED, prompt_sets.SECOND
ABOVE, BELOW, BETWEEN = (0, None), (None, 0), (0.4, 0.6)
UP, DOWN, WIDE = (1, 2), (-2, -1), (-1, 1)  # intervals that hold, fail, are inconclusive above 0


def claim(region=ABOVE, **changes):
    facts = dict.fromkeys(["source", "where", "claim", "number"], "text")
    return claims.Claim(**{"id": "c", "region": region} | facts | changes)


def measured(of, *intervals, names=None, prompts=OWN, **columns):
    """Rows of a claim: (low, high) or (estimate, low, high), each in its own row."""
    numbers = [(np.mean(ends), *ends)[-3:] if len(ends) == 2 else ends for ends in intervals]
    table = pd.DataFrame(numbers, columns=["estimate", "low", "high"], dtype=float)
    table = table.assign(row=names or [f"row {i}" for i in range(len(table))], **columns)
    answer = claims.rows_of("e", table, "row")
    return claims.in_frame({of.id: of}, "made", {(of.id, AT_0): answer}, prompts)


def missing(of):
    """What a function could not measure."""

    def refuse():
        raise ValueError("no such draft")

    return claims.in_frame({of.id: of}, "made", {(of.id, AT_0): claims.attempt(refuse)})


# ---- one interval, one region --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "low", "high", "expected"),
    [
        (ABOVE, 0.1, 0.2, HOLDS),
        (ABOVE, -0.2, -0.1, FAILS),
        (ABOVE, 0.0, 0.1, UNDECIDED),  # the edge is outside the region
        (BELOW, 0.1, 0.2, FAILS),
        (BELOW, 0.0, 0.1, FAILS),
        (BETWEEN, 0.45, 0.55, HOLDS),
        (BETWEEN, 0.7, 0.8, FAILS),
        (BETWEEN, 0.55, 0.65, UNDECIDED),
        (ABOVE, np.nan, np.nan, UNDECIDED),
    ],
)
def test_an_interval_against_a_region(region, low, high, expected):
    of = claim(region)
    middle = np.nan_to_num((low + high) / 2)
    assert claims.verdict_on(of, measured(of, (middle, low, high))) == expected


@settings(max_examples=40)
@given(*(st.integers(low, 2000).map(lambda n: n / 1000) for low in (-2000, 0) * 2))
def test_what_holds_fails_where_the_region_is_elsewhere(low, width, least, breadth):
    most, ends = least + breadth, (low, low + width)
    regions = (least, most), (most, None), (None, least)
    inside, above, below = (claims.judge(measured(claim(region), ends)) for region in regions)
    if HOLDS in (above, below):
        assert inside == FAILS
    if inside == HOLDS:
        assert above == below == FAILS


# ---- several rows: every one must hold, one that lies clearly outside is enough to fail ----------

INSIDE, BARELY_INSIDE = (0.1, 0.2), (0.1, 0.01, 0.19)
BARELY_OUTSIDE, CLEARLY_OUTSIDE = (-0.1, -0.19, -0.01), (-0.3, -0.4, -0.2)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([BARELY_OUTSIDE], FAILS),
        ([BARELY_OUTSIDE, INSIDE, INSIDE, INSIDE], UNDECIDED),
        ([CLEARLY_OUTSIDE, INSIDE, INSIDE, INSIDE], FAILS),
        ([BARELY_INSIDE] * 4, HOLDS),  # they need no correction
        ([BARELY_INSIDE, BARELY_INSIDE, (-0.1, 0.1)], UNDECIDED),
        ([BARELY_INSIDE, (0.1, np.nan, np.nan)], UNDECIDED),
        ([], NOT_TESTED),
    ],
)
def test_several_rows_are_judged_together(rows, expected):
    assert claims.judge(measured(claim(), *rows)) == expected


@pytest.mark.parametrize(
    ("chat", "math", "expected"),
    [
        ((1.1, 1.2), (0.8, 0.9), HOLDS),
        ((1.1, 1.2), (1.3, 1.31), FAILS),
        ((0.7, 0.71), (0.8, 0.9), FAILS),
        ((1.1, 1.2), (0.9, 1.1), UNDECIDED),
    ],
)
def test_each_row_has_its_own_region(chat, math, expected):
    of = claim({"chat": (1, None), "math": (None, 1)})
    rows = measured(of, chat, math, names=["chat", "math"])
    assert claims.verdict_on(of, rows) == expected
    assert of.region_said() == "chat above 1, math below 1"


def test_intervals_are_widened_by_the_quantile_of_the_number_of_rows():
    rows = measured(claim(), (1.0, 0.0, 3.0), (5.0, 5.0, 5.0))
    longer = norm.ppf(1 - 0.05 / 4) / norm.ppf(1 - 0.05 / 2)
    wide = np.transpose(claims.widened(rows))
    np.testing.assert_allclose(wide, [[1 - longer, 1 + 2 * longer], [5, 5]])
    np.testing.assert_allclose(np.transpose(claims.widened(rows[:1])), [[0.0, 3.0]])


@pytest.mark.parametrize("size", [1, 4])
def test_no_more_than_one_verdict_in_twenty_is_wrong_by_chance(size):
    """400 studies in which every row's truth is the edge of the region."""
    z = np.random.default_rng(0).normal(size=(400, size))
    ends = np.stack([z, z - 1.96, z + 1.96], axis=-1)
    verdicts = np.array([claims.judge(measured(claim(), *map(tuple, one))) for one in ends])
    assert (verdicts == HOLDS).mean() <= 0.05
    assert (verdicts == FAILS).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


# ---- ways to decide ------------------------------------------------------------------------------


def at_costs(of, by_c, slope=0.0):
    """A row at each c."""
    rows = {c: measured(of, ends, c=c, slope=slope) for c, ends in by_c.items()}
    return pd.concat(rows, ignore_index=True)


@pytest.mark.parametrize(
    ("by_c", "expected"),
    [
        ({0.1: UP, 0.5: UP}, HOLDS),
        ({0.1: WIDE, 0.5: WIDE}, UNDECIDED),
        ({0.1: UP, 0.5: DOWN}, TURNS),
        ({0.1: UP, 0.5: WIDE}, TURNS),
    ],
)
def test_a_claim_about_cost_has_the_verdict_of_every_c(by_c, expected):
    of = claim(decides="cost")
    assert claims.verdict_on(of, at_costs(of, by_c)) == expected


def test_the_c_at_which_a_claim_about_cost_turns():
    of = claim(decides="cost")
    flat = at_costs(of, {0.05: UP, 0.1: UP, 0.2: WIDE, 0.5: DOWN, 1.0: DOWN})
    steep = at_costs(of, {0.05: UP, 0.1: DOWN, 1.0: DOWN}, slope=0.1)
    shuffled = pd.concat([flat, steep]).sample(frac=1, random_state=0)
    line = claims.verdict_table({"c": of}, shuffled)[["verdict", "holds_at", "fails_at"]]
    assert line.to_numpy().tolist() == [[TURNS, "0.05", "0.5, 1"]]


@pytest.mark.parametrize(
    ("changes", "ends", "fewer", "expected"),
    [
        ({}, UP, 0, HOLDS),
        ({}, DOWN, 1, TOO_FEW),
        ({"decides": "necessity"}, DOWN, 1, TOO_FEW),
        ({"decides": "necessity"}, DOWN, 0, NO_CONDITION),
        ({"about": SOURCES}, UP, 0, HOLDS),
    ],
)
def test_of_too_few_prompts_nothing_is_said(changes, ends, fewer, expected):
    of = claim(**changes)
    prompts = stats.FEW_PROMPTS - fewer
    assert claims.verdict_on(of, measured(of, ends), prompts) == expected


def test_what_could_not_be_measured_is_not_tested_and_says_why():
    of = claim()
    assert claims.verdict_on(of, missing(of), prompts=1) == NOT_TESTED
    assert claims.summary(missing(of)) == "no such draft"
    rows = pd.concat([measured(of, UP), missing(of)])
    assert claims.verdict_on(of, rows) == UNDECIDED, "what is missing cannot hold"


# ---- other prompts, facts, chance ----------------------------------------------------------------


def on_sets(**ends):
    """The verdicts on prompt sets, each with the intervals of some rows."""
    sets = {"own": OWN, "unwrapped": UNWRAPPED, "second": SECOND}
    parts = [
        measured(claim(), *rows.values(), names=list(rows), prompts=sets[name])
        for name, rows in ends.items()
    ]
    table = claims.verdict_table({"c": claim()}, pd.concat(parts))
    return dict(zip(table["prompts"], table["verdict"], strict=True)), table


def test_a_claim_that_falls_on_other_prompts_and_holds_on_none_is_of_the_form():
    up, down, wide = {"math": UP}, {"math": DOWN}, {"math": WIDE}
    found, table = on_sets(own=up, unwrapped=wide, second=down)
    assert found == {OWN: FORM, UNWRAPPED: UNDECIDED, SECOND: FAILS}
    (row,) = claims.signs_beside(table).to_dict("records")
    assert row["remark"] == f"{FORM} (T = 0)"
    assert [row[f"T = 0, {name}"] for name in found] == ["(✓)", "?", "✗"]
    for unwrapped, second in ((up, down), (wide, wide), (wide, up)):
        assert on_sets(own=up, unwrapped=unwrapped, second=second)[0][OWN] == HOLDS
    assert on_sets(own=down, second=down)[0][OWN] == FAILS


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ({"unwrapped": {"code": DOWN, "math": UP}}, {UNWRAPPED: UNDECIDED}),
        ({"second": {"code": DOWN, "math": UP}}, {SECOND: FAILS}),
        ({"unwrapped": {"code": UP, "math": DOWN}}, {UNWRAPPED: FAILS}),
        ({"own": {"chat - code": UP}, "unwrapped": {"chat - code": UP}}, {OWN: HOLDS}),
    ],
)
def test_unwrapped_texts_that_are_the_same_decide_nothing(sets, expected):
    assert on_sets(**sets)[0] == expected


def test_a_statement_is_counted_by_a_claim_that_counts():
    listed = claims.claims()
    assert not any(listed[one.fact].fact for one in listed.values() if one.fact)
    again = claim(fact="another")
    table = claims.verdict_table({"c": again}, measured(again, UP))
    assert claims.signs_beside(table)["remark"].tolist() == ["counted as another"]


def test_the_tally_and_what_chance_may_have_made_by_hand():
    some = pd.Series([HOLDS, FORM, FAILS, NO_CONDITION, UNDECIDED, TURNS] * 10)
    assert claims.tally(some) == f"20 hold (10 on {OWN} only) and 20 fail"
    assert "at most 2 of the 40 decided" in claims.by_chance(some)


# ---- figures and sentences -----------------------------------------------------------------------


def of_facts(*verdicts):
    """Verdicts at T = 0 and T = 1 on as many claims of pairs "a" and "b"."""
    rows = [
        {"claim": f"claim {number}", "fact": f"claim {number}", "said": f"says {number}"}
        | {"pair": pair, "asked": asked, "prompts": OWN, "verdict": verdict}
        for number, of_pair in enumerate(verdicts)
        for pair in ("a", "b")
        for asked, verdict in zip((AT_0, AT_1), of_pair, strict=True)
    ]
    return pd.DataFrame(rows)


def test_the_figure_has_what_holds_first_and_leaves_out_what_nobody_tested():
    fails = (FAILS, HOLDS)
    verdicts = of_facts(fails, (NOT_TESTED, NOT_TESTED), (HOLDS, FAILS), (NO_CONDITION, TURNS))
    other = verdicts[:4].assign(fact="claim 2"), verdicts[:4].assign(prompts=SECOND)
    shown = summary.of_facts(pd.concat([verdicts, *other]))
    assert shown["said"].unique().tolist() == ["says 2", "says 0", "says 3"]
    assert shown["word"].tolist() == [HOLDS, FAILS] * 2 + [*fails] * 2 + [FAILS, TURNS] * 2


def test_with_too_few_prompts_every_cell_says_so():
    verdicts = of_facts((TOO_FEW, TOO_FEW), (TOO_FEW, NOT_TESTED))
    words = summary.of_facts(verdicts)["word"].tolist()
    assert words == ["too few"] * 5 + [NOT_TESTED, "too few", NOT_TESTED]
    assert summary.how_many_held(verdicts["verdict"]) == "no statement can be decided"


def test_statements_that_hold_or_fail_on_all_pairs():
    verdicts = of_facts((HOLDS, FAILS), (NO_CONDITION, FAILS))
    assert summary.alike(verdicts) == [
        "* **Both pairs, T = 0:** 1 failed and 1 held (says 0).",
        "* **Both pairs, T = 1:** 2 failed and 0 held (–).",
    ]
    verdicts = of_facts((HOLDS, UNDECIDED), (HOLDS, UNDECIDED))
    assert summary.alike(verdicts) == [
        "* **Both pairs, T = 0:** 0 failed and 2 held (says 0; says 1).",
        "* **Both pairs, T = 1:** 0 failed and 0 held (–).",
    ]
    assert not summary.alike(verdicts[verdicts["pair"] == "a"])


def test_only_claims_without_any_number_are_called_not_tested():
    partly = pd.concat([measured(claim(), UP, (np.nan,) * 3), missing(claim(id="d"))])
    table = claims.verdict_table({"c": claim(), "d": claim(id="d")}, partly)
    listed = {"e": claim(id="e", claim="chat is easy", untested="Nobody measured it.")}
    assert summary.not_tested(listed, table) == [
        "* “Chat is easy.” Nobody measured it.",
        f"* `d` at T = 0 on made ({OWN}): no such draft.",
    ]


def test_a_cell_of_costs_is_the_verdict_at_every_slope():
    of = claim(decides="cost")
    flat = at_costs(of, {0.05: UP, 0.5: DOWN})
    steep = at_costs(of, {0.05: UP, 0.5: UP}, slope=0.1)
    cells = summary.of_costs(pd.concat([flat, steep]), {"c": of}, "made")
    assert cells[["c", "verdict"]].to_numpy().tolist() == [[0.05, HOLDS], [0.5, UNDECIDED]]
    few = summary.of_costs(flat, {"c": of}, "made", prompts=19)
    assert few["verdict"].tolist() == [TOO_FEW] * 2


@pytest.mark.parametrize("width", [style.ONE_COLUMN, style.TWO_COLUMNS])
@pytest.mark.parametrize("column", ["asked", "c"])
def test_cells_are_words_or_signs_that_the_legend_explains(width, column):
    verdicts = summary.of_facts(of_facts(*[(HOLDS, UNDECIDED), (FORM, FAILS)] * 12))
    options = {"panel": "pair", "order": [AT_1, AT_0]}
    if column == "c":
        costs = [verdicts.assign(c=c) for c in (0.01, 0.1, 0.2, 0.5, 0.7, 1.0)]
        verdicts = pd.concat(costs).query("asked == 'T = 0'")
        options = {"panel": "pair", "mark": 0.3, "mark_name": "measured c, 0.3"}
    draw = partial(drawings.draw_verdicts, verdicts, column, **options)
    figure = redraw.draw_styled(draw, width, title="A finding")
    assert figure.get_figheight() <= style.TALLEST
    assert min(text.get_fontsize() for text in figure.findobj(Text)) >= 6
    if column == "asked":
        ticks = figure.axes[0].get_xticklabels()
        assert [tick.get_text() for tick in ticks] == [AT_1, AT_0]
    cells = {text.get_text() for axes in figure.axes for text in axes.texts}
    explained = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    for sign, word in verdicts[["sign", "word"]].drop_duplicates().to_numpy():
        assert word in cells or (sign in cells and f"{sign} {word}" in explained)
    assert ("measured c, 0.3" in explained) == (column == "c")


# ---- the file of claims --------------------------------------------------------------------------


def printed():
    """The paper's own numbers of its claims, as printed or their differences: claim, row,
    estimate.
    """
    alpha = published("I").query("quantity == 'alpha_mean' and domain != 'all'")
    alpha = alpha.set_index("domain")["published"]
    depth = published("IV").pivot(index="domain", columns="depth", values="published")
    numbers = {
        "level": alpha,
        "gap": pd.Series({"chat - math": alpha["chat"] - alpha["math"]}),
        "length": published("II").set_index("domain")["published"],
        "depth": depth[3] - depth[1],
        "entropy-sign": published("VI").set_index("domain")["published"],
    }
    rows = pd.concat(numbers, names=["claim", "row"])
    return rows.rename("estimate").reset_index()


def test_the_papers_own_numbers_by_hand_and_that_its_claims_follow_from_them():
    listed, numbers = claims.claims(), printed()
    at = numbers.set_index(["claim", "row"])["estimate"]
    assert at["depth", "chat"] == pytest.approx(0.021)
    assert at["entropy-sign", "math"] == -0.186
    assert at["gap", "chat - math"] == pytest.approx(float(listed["gap"].number), abs=5e-4)
    weak = at["entropy-sign"].abs().to_numpy()
    assert weak.max() < listed["entropy-weak"].bounds("")[1]
    for name, rows in numbers.groupby("claim"):
        points = zip(rows["estimate"], rows["estimate"], strict=True)
        judged = measured(listed[name], *points, names=list(rows["row"]))
        assert claims.judge(judged) == HOLDS, name

"""Claims as facts, and how verdicts follow from intervals: constructed cases that must hold, must
fail and are inconclusive, for each kind of region.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from speclab import stats
from speclab.lab import claims, prompt_sets
from speclab.lab.claims import (
    AT_0,
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
from speclab.lab.published import published

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
    """A row without a number, which says why."""
    row = pd.DataFrame({"estimator": "", "row": "", "note": ["no such draft"]})
    return claims.in_frame({of.id: of}, "made", {(of.id, AT_0): row})


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
    return dict(zip(table["prompts"], table["verdict"], strict=True))


def test_a_claim_that_falls_on_other_prompts_and_holds_on_none_is_of_the_form():
    up, down, wide = {"math": UP}, {"math": DOWN}, {"math": WIDE}
    found = on_sets(own=up, unwrapped=wide, second=down)
    assert found == {OWN: FORM, UNWRAPPED: UNDECIDED, SECOND: FAILS}
    for unwrapped, second in ((up, down), (wide, wide), (wide, up)):
        assert on_sets(own=up, unwrapped=unwrapped, second=second)[OWN] == HOLDS
    assert on_sets(own=down, second=down)[OWN] == FAILS


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
    assert on_sets(**sets) == expected


def test_a_statement_is_counted_by_a_claim_that_counts():
    listed = claims.claims()
    assert not any(listed[one.fact].fact for one in listed.values() if one.fact)
    again = claim(fact="another")
    table = claims.verdict_table({"c": again}, measured(again, UP))
    assert table["fact"].tolist() == ["another"]


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

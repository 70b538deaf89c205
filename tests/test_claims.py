"""Claims as facts, and the logic that makes verdicts of intervals: constructed cases that must
hold, must fail and cannot be told, for each kind of region.
"""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from speclab import stats
from speclab.analysis import claims, prompt_sets, published
from speclab.analysis.claims import (
    AT_0,
    FAILS,
    FORM,
    HOLDS,
    NO_CONDITION,
    NOT_TESTED,
    SOURCES,
    TOO_FEW,
    TURNS,
    UNKNOWN,
)

OWN, UNWRAPPED, SECOND = prompt_sets.OWN, prompt_sets.UNWRAPPED, prompt_sets.SECOND
ABOVE, BELOW, BETWEEN = (0, None), (None, 0), (0.4, 0.6)
BY_ROW = {"chat": (1, None), "math": (None, 1)}


def claim(**changes):
    facts = {
        "id": "c",
        "source": "paper",
        "where": "Table I",
        "claim": "it rises",
        "number": "+1",
        "region": ABOVE,
    }
    return claims.Claim(**facts | changes)


def measured(of, *numbers, names=None, pair="made", asked=AT_0, prompts=OWN, **more):
    """Rows of a claim: (low, high) or (estimate, low, high), each in its own row."""
    names = names or [f"row {i}" for i in range(len(numbers))]
    lines = []
    for name, ends in zip(names, numbers, strict=True):
        estimate = ends[0] if len(ends) == 3 else sum(ends) / 2
        row = claims.row_of("e", name, estimate, *ends[-2:])
        least, most = of.bounds(name)
        head = {"claim": of.id, "pair": pair, "asked": asked, "prompts": prompts}
        head |= {"c": np.nan, "slope": np.nan, "least": least, "most": most}
        lines.append(head | row | more)
    return pd.DataFrame(lines, columns=claims.COLUMNS)


def at_costs(of, verdicts, slope=0.0, **more):
    """A row at each c (the keys) that holds, fails or cannot be told above 0."""
    ends = {HOLDS: (1, 2), FAILS: (-2, -1), UNKNOWN: (-1, 1)}
    parts = [measured(of, ends[name], c=c, slope=slope, **more) for c, name in verdicts.items()]
    return pd.concat(parts, ignore_index=True)


# ---- one interval, one region --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "low", "high", "expected"),
    [
        (ABOVE, 0.1, 0.2, HOLDS),
        (ABOVE, -0.2, -0.1, FAILS),
        (ABOVE, 0.0, 0.1, UNKNOWN),  # the edge is outside the region
        (BELOW, 0.1, 0.2, FAILS),
        (BELOW, 0.0, 0.1, FAILS),
        (BETWEEN, 0.45, 0.55, HOLDS),
        (BETWEEN, 0.7, 0.8, FAILS),
        (BETWEEN, 0.55, 0.65, UNKNOWN),
        (ABOVE, np.nan, np.nan, UNKNOWN),
    ],
)
def test_an_interval_against_a_region(region, low, high, expected):
    of = claim(region=region)
    middle = np.nan_to_num((low + high) / 2)
    assert claims.verdict(of, measured(of, (middle, low, high))) == expected


@settings(max_examples=40)
@given(*(st.integers(low, 2000).map(lambda n: n / 1000) for low in (-2000, 0) * 2))
def test_what_holds_fails_where_the_region_is_elsewhere(low, width, least, breadth):
    most, ends = least + breadth, (low, low + width)
    regions = (least, most), (most, None), (None, least)
    inside, above, below = (
        claims.judge(measured(claim(region=region), ends)) for region in regions
    )
    if HOLDS in (above, below):
        assert inside == FAILS
    if inside == HOLDS:
        assert above == below == FAILS


# ---- several rows: every one must hold, one that lies clearly outside is enough to fail ----------


def test_one_row_barely_outside_fails_alone_and_not_among_four():
    of, inside = claim(), (0.1, 0.2)
    barely, clearly = (-0.1, -0.19, -0.01), (-0.3, -0.4, -0.2)
    assert claims.judge(measured(of, barely)) == FAILS
    assert claims.judge(measured(of, barely, inside, inside, inside)) == UNKNOWN
    assert claims.judge(measured(of, clearly, inside, inside, inside)) == FAILS


def test_every_row_must_hold_and_no_correction_is_asked_of_them():
    of = claim()
    barely = (0.1, 0.01, 0.19)
    assert claims.judge(measured(of, barely, barely, barely, barely)) == HOLDS
    assert claims.judge(measured(of, barely, barely, (-0.1, 0.1))) == UNKNOWN
    assert claims.judge(measured(of, barely, (0.1, np.nan, np.nan))) == UNKNOWN


@pytest.mark.parametrize(
    ("chat", "math", "expected"),
    [
        ((1.1, 1.2), (0.8, 0.9), HOLDS),
        ((1.1, 1.2), (1.3, 1.31), FAILS),
        ((0.7, 0.71), (0.8, 0.9), FAILS),
        ((1.1, 1.2), (0.9, 1.1), UNKNOWN),
    ],
)
def test_each_row_has_its_own_region(chat, math, expected):
    of = claim(region=BY_ROW)
    rows = measured(of, chat, math, names=["chat", "math"])
    assert claims.verdict(of, rows) == expected


def test_intervals_are_widened_by_the_quantile_of_so_many_rows():
    rows = measured(claim(), (1.0, 0.0, 3.0), (5.0, 5.0, 5.0))
    longer = norm.ppf(1 - 0.05 / 4) / norm.ppf(1 - 0.05 / 2)
    wide = np.transpose(claims.widened(rows))
    np.testing.assert_allclose(wide, [[1 - longer, 1 + 2 * longer], [5, 5]])
    one = rows.iloc[:1]
    np.testing.assert_allclose(np.transpose(claims.widened(one)), [[0.0, 3.0]])


# ---- ways to decide ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by_c", "expected"),
    [
        ({0.1: HOLDS, 0.5: HOLDS}, HOLDS),
        ({0.1: UNKNOWN, 0.5: UNKNOWN}, UNKNOWN),
        ({0.1: HOLDS, 0.5: FAILS}, TURNS),
        ({0.1: HOLDS, 0.5: UNKNOWN}, TURNS),
    ],
)
def test_a_claim_about_cost_has_the_verdict_of_every_c(by_c, expected):
    of = claim(decides="cost")
    rows = at_costs(of, by_c)
    assert claims.verdict(of, rows) == expected
    assert dict(claims.by_cost(rows)[["c", "verdict"]].values) == by_c


def test_of_too_few_prompts_nothing_is_said():
    of, few = claim(), stats.FEW_PROMPTS
    rows = measured(of, (1, 2))
    assert claims.verdict(of, rows, prompts=few) == HOLDS
    for name in ("interval", "necessity"):
        less = claim(decides=name, region=BELOW)
        assert claims.verdict(less, rows, prompts=few - 1) == TOO_FEW
    free = claim(about=SOURCES)
    assert claims.verdict(free, rows, prompts=1) == "holds", "it asks no prompt"
    missing = pd.DataFrame([claims.not_measured("no such draft")])
    assert claims.verdict(of, missing, prompts=1) == NOT_TESTED


def test_no_rows_and_rows_without_number_are_not_tested():
    of = claim()
    assert claims.verdict(of, measured(of)) == NOT_TESTED == claims.judge(measured(of))
    rows = pd.concat([measured(of, (1, 2)), pd.DataFrame([claims.not_measured("why")])])
    assert claims.verdict(of, rows) == UNKNOWN, "what is missing cannot hold"


# ---- where a verdict turns -----------------------------------------------------------------------


def test_the_c_at_which_a_claim_about_cost_turns():
    of = claim(decides="cost")
    by_c = {0.05: HOLDS, 0.1: HOLDS, 0.2: UNKNOWN, 0.5: FAILS, 1.0: FAILS}
    steep = {0.05: HOLDS, 0.1: FAILS, 1.0: FAILS}
    rows = [at_costs(of, by_c), at_costs(of, steep, slope=0.1)]
    shuffled = pd.concat(rows).sample(frac=1, random_state=0)
    (line,) = claims.verdict_table({"c": of}, shuffled).to_dict("records")
    assert line["verdict"] == TURNS
    assert (line["holds_at"], line["fails_at"]) == ("0.05", "0.5, 1")


# ---- other prompts, facts, chance ----------------------------------------------------------------


def on_sets(of, **ends):
    """The verdicts on prompt sets, each with the intervals of some rows."""
    sets = {"own": OWN, "unwrapped": UNWRAPPED, "second": SECOND}
    parts = [
        measured(of, *rows.values(), names=list(rows), prompts=sets[name])
        for name, rows in ends.items()
    ]
    table = claims.verdict_table({of.id: of}, pd.concat(parts))
    return dict(zip(table["prompts"], table["verdict"], strict=True)), table


def test_a_claim_that_falls_on_other_prompts_and_holds_on_none_is_of_the_form():
    up, down, wide = {"math": (1, 2)}, {"math": (-2, -1)}, {"math": (-1, 1)}
    found, table = on_sets(claim(), own=up, unwrapped=wide, second=down)
    assert found == {OWN: FORM, UNWRAPPED: UNKNOWN, SECOND: FAILS}
    (row,) = claims.signs_beside(table).to_dict("records")
    assert row["remark"] == f"{FORM} (T = 0)"
    assert [row[f"T = 0, {name}"] for name in found] == ["(✓)", "?", "✗"]
    for unwrapped, second in ((up, down), (wide, wide), (wide, up)):
        found, _ = on_sets(claim(), own=up, unwrapped=unwrapped, second=second)
        assert found[OWN] == HOLDS
    assert on_sets(claim(), own=down, second=down)[0][OWN] == FAILS


def test_unwrapped_texts_that_are_the_same_decide_nothing():
    up, down = (1, 2), (-2, -1)
    rows = {"code": down, "math": up}
    assert on_sets(claim(), unwrapped=rows)[0] == {UNWRAPPED: UNKNOWN}
    assert on_sets(claim(), second=rows)[0] == {SECOND: FAILS}
    rows = {"code": up, "math": down}
    assert on_sets(claim(), unwrapped=rows)[0] == {UNWRAPPED: FAILS}
    rows = {"code": up, "chat - code": up}
    assert on_sets(claim(), own=rows, unwrapped=rows)[0] == {OWN: HOLDS}


def test_a_fact_is_counted_by_a_claim_that_counts():
    listed = claims.claims()
    for one in listed.values():
        assert not one.fact or not listed[one.fact].fact
    again = claim(fact="another")
    table = claims.verdict_table({"c": again}, measured(again, (1, 2)))
    assert claims.signs_beside(table)["remark"].tolist() == ["counted as another"]


def test_the_tally_and_what_chance_may_have_made_by_hand():
    some = pd.Series([HOLDS, FORM, FAILS, NO_CONDITION, UNKNOWN, TURNS] * 10)
    assert claims.tally(some) == f"20 hold (10 on {OWN} only) and 20 do not"
    assert "at most 2 of the 40 decided" in claims.by_chance(some)
    assert not re.search(r"\d", claims.by_chance(pd.Series([UNKNOWN])))


@pytest.mark.parametrize("size", [1, 4])
def test_no_more_than_one_verdict_in_twenty_is_wrong_by_chance(size):
    """400 studies in which every row's truth is the edge of the region."""
    z = np.random.default_rng(0).normal(size=(400, size))
    ends = np.stack([z, z - 1.96, z + 1.96], axis=-1)
    verdicts = [claims.judge(measured(claim(), *map(tuple, one))) for one in ends]
    held, fell = (np.mean([v == name for v in verdicts]) for name in (HOLDS, FAILS))
    assert held <= 0.05 and fell <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


# ---- the file of claims --------------------------------------------------------------------------


def test_the_numbers_of_the_claims_are_the_tables():
    found = claims.claims()
    alpha = published.published("I").query("quantity == 'alpha_mean'")
    alpha = alpha.set_index("domain")["published"].drop("all")
    assert found["level"].number == f"{alpha.min():.3f} to {alpha.max():.3f}"
    assert found["gap"].number == f"{alpha['chat'] - alpha['math']:+.3f}"
    rho = published.published("VI")["published"]
    assert found["entropy-sign"].number == f"rho {rho.min():.2f} to {rho.max():.2f}"
    assert rho.abs().max() < found["entropy-weak"].bounds("")[1]


def test_the_papers_own_numbers_by_hand_and_that_its_claims_follow_from_them():
    found, own = claims.claims(), claims.printed()
    at = own.set_index(["claim", "row"])["estimate"]
    assert at["depth", "chat"] == pytest.approx(0.021)
    assert at["entropy-sign", "math"] == -0.186
    for name, rows in own.groupby("claim"):
        points = [(value, value) for value in rows["estimate"]]
        judged = measured(found[name], *points, names=list(rows["row"]))
        assert claims.judge(judged) == HOLDS, name

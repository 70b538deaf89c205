"""Notebook 03's study: the estimators, ties in an order, and sentences about other prompt sets."""

import re
from itertools import product

import pandas as pd
import pytest
from frames import text_of
from test_score import make_run

from speclab import replay
from speclab.analysis import significance
from speclab.analysis.prompt_sets import CHANGE, ENGLISH, LAST, LEAD, OWN, SECOND, SPREAD
from speclab.estimates import Estimates
from speclab.show import drawings, notebook, redraw, style
from speclab.stats import NUMBERS
from speclab.studies import domain_acceptance as study
from speclab.tree import static_tree

TREE = static_tree(3, 2, 8)


def test_the_ladder_asks_each_rung_of_the_text_that_it_is_exact_on():
    run = make_run()
    questions = study.questions(text_of(run), text_of(run, 1.0), TREE)
    rungs = study.ladder(questions)
    assert list(pd.unique(rungs.frame["name"])) == list(questions)
    assert set(rungs.frame["estimator"]) > {*study.MAIN, *study.LENGTHS}
    code = run.trace[run.trace["domain"] == "code"]
    row = rungs.at(name="alpha, T = 1", domain="code").row
    assert (row.estimator, row.text) == ("alpha", "T = 1")
    assert row.estimate == pytest.approx(code["overlap"].mean())
    sums, estimator = questions["block_efficiency, T = 0"]
    visited, every = (replay.replay(run.trace, TREE, starts) for starts in ("visited", "every"))
    assert estimator(sums) == pytest.approx(visited["emitted"].mean())
    assert estimator(sums) != pytest.approx(every["emitted"].mean())


# ---- ties ----------------------------------------------------------------------------------------


def differences(**rungs):
    """rung = {(first, second): (difference, Holm's p)}, at a level of 0.05."""
    rows = [
        (name, first, second, difference, p)
        for name, pairs in rungs.items()
        for (first, second), (difference, p) in pairs.items()
    ]
    columns = ["name", "first", "second", "difference", "p_holm"]
    return significance.with_signs(pd.DataFrame(rows, columns=columns), 0.05)


SURE = {("a", "b"): (0.2, 0.001), ("a", "c"): (0.3, 0.001), ("b", "c"): (0.1, 0.01)}
TIE = SURE | {("a", "b"): (-0.01, 0.9)}  # b above a by a hair
AGAINST = SURE | {("a", "b"): (-0.2, 0.001)}


def test_a_tie_is_no_contradiction():
    signs = study.wide_signs(differences(sure=SURE, tie=TIE))
    assert "No two" in study.conflict(signs)
    rungs = pd.DataFrame({"name": ["sure"] * 3 + ["tie"] * 3, "domain": [*"abcabc"]})
    rungs = Estimates(rungs.assign(estimate=[3, 2, 1, 2, 3, 1], low=0, high=4))
    assert study.orders(rungs, signs).tolist() == ["a > b > c", "b ≈ a > c"]
    against = study.wide_signs(differences(sure=SURE, against=AGAINST))
    assert "put 1 pair of domains in opposite orders" in study.conflict(against)


def test_the_ladder_is_drawn_in_words_exact_definitions_before_published_ones():
    run = make_run()
    rungs = study.ladder(study.questions(text_of(run), text_of(run, 1.0), TREE))
    drawn = study.in_blocks(rungs)
    blocks = drawn[["axis", "block"]].drop_duplicates().to_numpy().tolist()
    shares, lengths = "tokens accepted (%)", "tokens per target pass"
    assert blocks == [
        [axis, of] for axis in (shares, lengths) for of in (study.EXACT, study.PUBLISHED)
    ]
    assert drawn["row"].notna().all() and not drawn["row"].str.contains(r"[\[_]\d|_").any()


# ---- other prompts -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [style.ONE_COLUMN, style.TWO_COLUMNS])
def test_blocks_of_one_axis_have_one_scale(width):
    rows = [("x", "share (%)", "a", 0.2), ("y", "share (%)", "b", 0.6), ("z", "tokens", "a", 2.5)]
    frame = pd.DataFrame(rows, columns=["block", "axis", "row", "estimate"])
    frame = frame.assign(domain="code", low=frame["estimate"] - 0.1, high=frame["estimate"] + 0.1)
    options = {"percent": ["share (%)"], "limits": {"tokens": [0, None]}, "reference": 0}
    figure = redraw.draw_styled(lambda: drawings.draw_blocks(frame, **options), width)
    first, second, tokens = figure.axes
    assert first.get_xlim() == second.get_xlim() != tokens.get_xlim()
    assert tokens.get_xlim()[0] == 0
    assert [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes] == [*"xyz"]
    labels = [label.get_text() for label in second.get_xticklabels()]
    assert "20" in labels and "0.2" not in labels, "shares in percent"


def asked_of_sets(lead, spread, last, highest="math"):
    """Contrasts at two temperatures: (estimate, low, high) on our own prompts and on the second
    set. The change is the difference of the estimates, ± 0.05.
    """
    rows = []
    for name, (role, pair) in product(
        ("T = 0", "T = 1"), {LEAD: lead, SPREAD: spread, LAST: last}.items()
    ):
        for which, numbers in zip((OWN, SECOND, ENGLISH), (*pair, pair[1]), strict=True):
            change = numbers[0] - pair[0][0]
            ends = change, change - 0.05, change + 0.05
            top = "math" if which == OWN else highest
            rows.append((name, which, role, "math − chat", *numbers, *ends, top))
    columns = ["name", "set", "role", "contrast", *NUMBERS, *CHANGE, "highest"]
    return pd.DataFrame(rows, columns=columns)


YES, OPEN, NO = (0.2, 0.1, 0.3), (0.02, -0.1, 0.1), (-0.2, -0.3, -0.1)


@pytest.mark.parametrize(
    ("contrasts", "highest", "said"),
    [
        ([(YES, YES)] * 3, "math", "is the easiest in both .* changes, but .* hardest in both"),
        (
            [(YES, OPEN)] * 3,
            "math",
            "easiest in 1 of 2 prompt sets, but not .* in the .* shrinks to 2",
        ),
        (
            [(OPEN, YES)] * 3,
            "math",
            "easiest in 1 of 2 prompt sets, but not .* on our own .* grows to 20",
        ),
        ([(OPEN, OPEN)] * 3, "math", "not significantly the easiest in any"),
        (
            [(YES, YES)] * 2 + [(YES, NO)],
            "math",
            "hardest in 1 of 2 prompt sets, but not .* in the second",
        ),
        ([(YES, YES)] * 3, "code", "easiest in 1 of 2 prompt sets, but not .* in the second"),
    ],
)
def test_what_holds_on_other_prompts_is_said_in_few_words(contrasts, highest, said):
    """The last row: another domain leads in the second set."""
    found = study.on_other_prompts(asked_of_sets(*contrasts, highest=highest))
    assert re.search(said, found, re.IGNORECASE) and len(found.split()) <= 60
    assert not re.search(r"nan|\.\.|  |;", found)


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        # other prompts lack a domain, or there are none
        (
            {"set": [OWN]},
            "Math is significantly the easiest (20 points above the others' mean at T = 0). Its "
            "lead over chat is 20 points at T = 0. Chat is significantly the hardest.",
        ),
        # two domains
        (
            {"role": [SPREAD]},
            "Math is above chat in both prompt sets. Its lead over chat, 20 points, changes, but "
            "not significantly, to 20 in the second set.",
        ),
        (
            {"role": [SPREAD], "set": [OWN]},
            "Math is significantly above chat. Its lead over chat is 20 points at T = 0.",
        ),
    ],
)
def test_what_is_said_of_one_set_and_of_two_domains(kept, said):
    rows = asked_of_sets(*[(YES, YES)] * 3)
    for column, values in kept.items():
        rows = rows[rows[column].isin(values)]
    assert study.on_other_prompts(rows) == said


def test_a_set_of_ones_own_is_named():
    rows = asked_of_sets(*[(YES, YES)] * 3).replace({"set": {SECOND: "again"}})
    assert "to 20 in the set again" in study.on_other_prompts(rows)


def test_a_figure_has_room_for_its_pairs():
    names = ["hit[1], T = 0"] + [f"{of}, T = 0" for of in study.MAIN if of != "hit[1]"]
    wide = {(f"a{i}", f"b{i}"): (-i / 50, 0.5) for i in range(40)}
    tests = study.main_rungs(differences(**dict.fromkeys(names, wide)))
    drawn = study.widest_pairs(tests)
    assert set(drawn["pair"]) == {f"a{i} − b{i}" for i in range(10, 40)}
    assert set(drawn["name"]) == {*names}


def test_what_holds_at_one_temperature_is_said_of_it():
    """A difference that is significant at T = 0 alone neither holds nor fails."""
    rows = asked_of_sets(*[(YES, YES)] * 3)
    cold = rows.eval("name == 'T = 1' and role == @LAST and set != @OWN")
    rows.loc[cold, "low"] = -0.1
    found = study.on_other_prompts(rows)
    assert "is the hardest in 1 of 2 prompt sets, but not significantly at T = 1 in the se" in found
    everywhere = rows.eval("name == 'T = 1' and role == @LAST")
    rows.loc[everywhere, "low"] = -0.1
    said = "Chat is not significantly the hardest at T = 1 on our own prompts and at T = 1 in the"
    assert said in study.on_other_prompts(rows)


def test_what_another_domain_shows_is_not_said_of_the_first():
    """At T = 1 code, not chat, is the lowest domain, by a significant difference."""
    rows = asked_of_sets(*[(YES, YES)] * 3)
    is_warm = (rows["name"] == "T = 1") & (rows["role"] == LAST)
    rows.loc[is_warm, "contrast"] = "chat − code"
    found = study.on_other_prompts(rows)
    assert "Chat is not significantly the hardest at T = 1 on our own prompts and at" in found


# ---- the answer and titles -----------------------------------------------------------------------

REVERSALS = [pd.DataFrame({"set": [OWN, SECOND], "reversed": [0, n]}) for n in (0, 1, 2)]
REVERSALS.append(REVERSALS[0][:1])


def answers():
    tests = [
        differences(x={("math", "chat"): (sign * 0.374, p)})
        for sign, p in product((1, -1), (0.001, 0.5))
    ]
    for pair, reversals in product(product((YES, OPEN, NO), repeat=2), REVERSALS):
        contrasts = asked_of_sets(*[pair] * 3)
        if reversals["set"].nunique() == 1:
            contrasts = contrasts[contrasts["set"] == OWN]
        for test in tests:
            yield study.order_in_words(test, contrasts, study.reversed_in_words(reversals))


def test_the_answer_is_short_in_every_branch():
    said = {*answers()}
    assert len(said) > 20
    for text in said:
        assert not notebook.too_long(text), text
        assert not re.search(r"nan|\.\.|  |\. [a-z]", text), text


def test_the_answer_names_the_higher_domain_first():
    tests = differences(x={("math", "chat"): (-0.374, 0.001), ("a", "b"): (0.9, 0.5)})
    said = study.order_in_words(tests, asked_of_sets(*[(YES, YES)] * 3), "")
    assert said.startswith("Yes, at T = 0 acceptance is 37 points higher in chat than in math.")


def test_how_many_pairs_differ_reads_as_a_title():
    two = {("a", "b"): (0.2, 0.001)}
    names = {f"{of}, T = 0": SURE for of in study.MAIN}
    said = [
        study.how_many_differ(differences(**names)),
        study.how_many_differ(differences(**dict.fromkeys(names, two))),
        study.how_many_differ(differences(**names | {"alpha, T = 0": TIE})),
        study.how_many_differ(differences(x={("a", "b"): (0.2, 0.5)})),
    ]
    assert said == [
        "All 3 pairs of domains differ significantly under each definition",
        "Both domains differ significantly under each definition",
        "2 to 3 of 3 pairs of domains differ significantly, by definition",
        "No pair of domains differs significantly",
    ]

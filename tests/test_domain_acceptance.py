"""Notebook 03's study: the estimators, ties in an order, and sentences about other prompt sets."""

import pandas as pd
import pytest
from frames import text_of
from test_score import make_run

from speclab import replay
from speclab.analysis import significance
from speclab.analysis.prompt_sets import ENGLISH, LAST, OWN, SECOND, SPREAD
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
    assert "no pair changes its direction" in study.conflict(signs)
    assert study.conflict(signs[:1]) == "The same pairs are significant under every definition."
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
    assert blocks == [
        [axis, of]
        for axes in (study.SHARES, study.TOKENS)
        for axis, of in zip(axes, (study.EXACT, study.PUBLISHED), strict=True)
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


YES, OPEN, NO = (0.2, 0.1, 0.3), (0.02, -0.1, 0.1), (-0.2, -0.3, -0.1)


def contrasts(*numbers):
    """Two differences on our own prompts and on other sets; numbers: of the second difference."""
    sets = (OWN, SECOND, ENGLISH)[: len(numbers)]
    rows = [
        ("hit[1], T = 0", which, role, contrast, *number)
        for role, contrast, of_sets in (
            (SPREAD, "math − chat", (YES, OPEN, NO)),
            (LAST, "code − chat", numbers),
        )
        for which, number in zip(sets, of_sets, strict=False)
    ]
    return Estimates(pd.DataFrame(rows, columns=["name", "set", "role", "contrast", *NUMBERS]))


def test_on_which_prompts_a_difference_is_significant():
    said = study.on_other_prompts(contrasts(YES, OPEN, NO)).splitlines()[1]
    assert said == (
        "* At T = 0, **code − chat** is significantly positive on our own prompts, and not "
        "significant on the second prompt set, and significantly negative on the second prompt set "
        "in English."
    )
    alone = study.on_other_prompts(contrasts(YES)).splitlines()[1]
    assert alone == "* At T = 0, **code − chat** is significantly positive on our own prompts."
    every = study.on_other_prompts(contrasts(YES, YES, YES)).splitlines()[1]
    assert (
        every == "* At T = 0, **code − chat** is significantly positive on all three prompt sets."
    )


def test_the_widest_gap_is_a_title():
    title = study.widest_gap(contrasts(YES, YES))
    assert title == "Math minus chat is +2 to +20 points, depending on the prompts (T = 0)"


def test_a_figure_has_room_for_its_pairs():
    names = ["hit[1], T = 0"] + [f"{of}, T = 0" for of in study.MAIN if of != "hit[1]"]
    wide = {(f"a{i}", f"b{i}"): (-i / 50, 0.5) for i in range(40)}
    tests = study.main_rungs(differences(**dict.fromkeys(names, wide)))
    drawn = study.widest_pairs(tests)
    assert set(drawn["pair"]) == {f"a{i} − b{i}" for i in range(10, 40)}
    assert set(drawn["name"]) == {*names}


# ---- the answer and titles -----------------------------------------------------------------------


@pytest.mark.parametrize(("difference", "sides"), [(0.374, "math than"), (-0.374, "chat than")])
def test_the_answer_names_the_higher_domain_first(difference, sides):
    rows = pd.DataFrame({"set": [OWN, SECOND], "compared": 6, "same": [6, 2]})
    elsewhere = study.carried_in_words(rows)
    assert elsewhere == (
        "Of 6 pairs that differ significantly, 2 also do on the second prompt set."
    )
    tests = differences(x={("math", "chat"): (difference, 0.001), ("a", "b"): (0.9, 0.5)})
    said = study.order_in_words(tests, elsewhere)
    assert f"37 points more often in {sides}" in said and not notebook.too_long(said)
    assert study.carried_in_words(rows[:1]) == study.NO_OTHER
    tests = differences(x={("math", "chat"): (difference, 0.5)})
    assert study.order_in_words(tests, elsewhere).startswith("No domains differ significantly")


def test_how_many_pairs_differ_reads_as_a_title():
    two = {("a", "b"): (0.2, 0.001)}
    names = {f"{of}, T = 0": SURE for of in study.MAIN}
    said = [
        study.how_many_differ(differences(**names)),
        study.how_many_differ(differences(**dict.fromkeys(names, two))),
        study.how_many_differ(differences(**names | {"alpha, T = 0": TIE})),
        study.how_many_differ(differences(x={("a", "b"): (0.2, 0.5)})),
        study.how_many_differ(differences(x=two, y={("a", "b"): (0.2, 0.5)})),
        study.how_many_differ(differences(x=TIE)),
    ]
    assert said == [
        "Under the four definitions 3 of 3 pairs of domains differ significantly",
        "Under the four definitions 1 of 1 pair of domains differ significantly",
        "Under the four definitions 2 to 3 of 3 pairs of domains differ significantly",
        "Under the four definitions 0 of 1 pair of domains differ significantly",
        "Under the four definitions 0 to 1 of 1 pair of domains differ significantly",
        "Under the four definitions 2 of 3 pairs of domains differ significantly",
    ]

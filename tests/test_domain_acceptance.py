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
    assert "no pair changes its direction" in study.conflict(signs)
    assert study.conflict(signs[:1]) == "The same pairs are significant under every definition."
    rungs = pd.DataFrame({"name": ["sure"] * 3 + ["tie"] * 3, "domain": [*"abcabc"]})
    rungs = Estimates(rungs.assign(estimate=[3, 2, 1, 2, 3, 1], low=0, high=4))
    said = "Under every definition a or b is highest, and c is lowest"
    assert study.highest_and_lowest(rungs, signs) == said
    named = rungs.frame.replace({"domain": {"a": 80 * "a"}})
    assert study.highest_and_lowest(Estimates(named), signs) == "", "too long for a title"
    mixed = rungs.frame.assign(estimate=[3, 2, 1, 1, 2, 3])
    assert study.highest_and_lowest(Estimates(mixed), signs) == "", "c is the highest and lowest"
    assert study.highest_and_lowest(rungs, 0 * signs).startswith("No definition")
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
        (
            [(YES, YES)] * 3,
            "math",
            "^Math has the highest acceptance on our own prompts and in the second prompt set. .* "
            "This difference does not change significantly in the .* Chat has the lowest .* and in",
        ),
        (
            [(YES, OPEN)] * 3,
            "math",
            "^Math .* on our own prompts. In the second prompt set this is not significant. .* 20 "
            "points on our own prompts and 2 in the second .* shrinks significantly in",
        ),
        (
            [(OPEN, YES)] * 3,
            "math",
            "^Math .* in the second prompt set. On our own prompts this is not significant.* grows",
        ),
        (
            [(OPEN, OPEN)] * 3,
            "math",
            "^No prompt set shows significantly that math has the highest acceptance. At",
        ),
        (
            [(YES, YES)] * 2 + [(YES, NO)],
            "math",
            "lowest acceptance on our own prompts. In the second prompt set this is not signif",
        ),
        ([(YES, YES)] * 3, "code", "own prompts. In the second prompt set this is not significant"),
    ],
)
def test_what_holds_on_other_prompts_is_said_in_few_words(contrasts, highest, said):
    """The last row: another domain leads in the second set."""
    found = study.on_other_prompts(asked_of_sets(*contrasts, highest=highest))
    assert re.search(said, found)
    assert not re.search(r"nan|\.\.|  |;", found)


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        # other prompts lack a domain, or there are none
        (
            {"set": [OWN]},
            "Math has the highest acceptance on our own prompts. At T = 0 math minus the mean of "
            "the others is 20 points. At T = 0 math minus chat is 20 points on our own prompts. "
            "Chat has the lowest acceptance on our own prompts.",
        ),
        # two domains
        (
            {"role": [SPREAD]},
            "At T = 0 math minus chat is 20 points on our own prompts and 20 in the second prompt "
            "set. This difference does not change significantly in the second prompt set.",
        ),
        (
            {"role": [SPREAD], "set": [OWN]},
            "At T = 0 math minus chat is 20 points on our own prompts.",
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
    assert "and 20 in the set again" in study.on_other_prompts(rows)


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
    assert "In the second prompt set this is significant only at T = 0." in found
    everywhere = rows.eval("name == 'T = 1' and role == @LAST")
    rows.loc[everywhere, "low"] = -0.1
    said = "No prompt set shows at each temperature that chat has the lowest acceptance. On our own"
    assert said in study.on_other_prompts(rows)


def test_what_another_domain_shows_is_not_said_of_the_first():
    """At T = 1 code, not chat, is the lowest domain, by a significant difference."""
    rows = asked_of_sets(*[(YES, YES)] * 3)
    is_warm = (rows["name"] == "T = 1") & (rows["role"] == LAST)
    rows.loc[is_warm, "contrast"] = "chat − code"
    found = study.on_other_prompts(rows)
    assert "No prompt set shows at each temperature that chat has the lowest acceptance" in found


# ---- the answer and titles -----------------------------------------------------------------------


def carried(same, turned, compared=6):
    rows = [(6, 6, 0), (compared, same, turned)] * 2
    frame = pd.DataFrame(rows, columns=["compared", "same", "reversed"])
    return frame.assign(set=[OWN, SECOND] * 2, name=["x, T = 0"] * 2 + ["y, T = 1"] * 2)


CARRIED = [carried(2, 0), carried(1, 1), carried(0, 2), carried(1, 0, 1), carried(0, 0, 0)]
CARRIED.append(CARRIED[0][::2])


def test_what_stays_significant_is_said_of_each_set():
    said = [*map(study.carried_in_words, CARRIED)]
    assert said[0] == (
        "At T = 0 we again find 2 of 6 significant pairs in the second prompt set. At T = 1 we "
        "again find 2 of 6 significant pairs in the second prompt set. No pair is reversed."
    )
    assert "1 of 1 significant pair in" in said[3] and said[2].endswith("4 pairs are reversed.")
    assert said[4:] == ["No difference is significant on our own prompts.", study.NO_OTHER]


def answers():
    tests = [
        differences(x={("math", "chat"): (sign * 0.374, p)})
        for sign, p in product((1, -1), (0.001, 0.5))
    ]
    for pair, counts in product(product((YES, OPEN, NO), repeat=2), CARRIED):
        contrasts = asked_of_sets(*[pair] * 3)
        if counts["set"].nunique() == 1:
            contrasts = contrasts[contrasts["set"] == OWN]
        for test in tests:
            yield study.order_in_words(test, contrasts, study.last_carried(counts))


def test_the_answer_is_short_in_every_branch():
    said = {*answers()}
    assert len(said) > 20
    for text in said:
        assert not notebook.too_long(text), text
        assert not re.search(r"nan|\.\.|  |\. [a-z]", text), text


def test_the_answer_names_the_higher_domain_first():
    tests = differences(x={("math", "chat"): (-0.374, 0.001), ("a", "b"): (0.9, 0.5)})
    said = study.order_in_words(tests, asked_of_sets(*[(YES, YES)] * 3), "")
    assert said.startswith(
        "Yes. At T = 0 the target accepts the draft's best token 37 points more often in chat than "
        "in math."
    )


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
        "All 3 pairs of domains differ significantly under each definition",
        "Both domains differ significantly under each definition",
        "Depending on the definition, 2 or all 3 pairs of domains differ significantly",
        "No pair of domains differs significantly",
        "Whether the domains differ significantly depends on the definition",
        "2 of 3 pairs of domains differ significantly under each definition",
    ]

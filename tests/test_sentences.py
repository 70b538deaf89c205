"""Computed sentences: they read well if nothing differs, if one thing differs, or if a number is
undefined.
"""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from speclab.analysis import choose, claims, try_it
from speclab.decode import Step
from speclab.estimates import Estimates, counted, starting, whole
from speclab.show import notebook
from speclab.stats import NUMBERS
from speclab.studies import (
    by_hand,
    domain_acceptance,
    entropy_paradox,
    gamma_sweep,
    how_sure,
    load_models,
)
from speclab.studies import entropy_correlation as entropy
from speclab.studies import rejection_causes as causes
from speclab.studies.paper_audit import summary

BAD = [
    r"\bnan\b|\bNaN\b|<NA>",
    r"\d\.0 of|\b0 of 0\b",  # a count is whole, and of something
    r": ?(;|\.|$)",  # a list without members
    r"(?<!i\.d)\. [a-z]",  # a sentence without a capital
    r"(?<![\d.,])1 (prompt|test|pair|claim|difference|domain|token)s\b",
    r"(?<![\d.,])1 (hold|do|differ)\b|\b[02-9] (holds|does|differs)\b",
    r"-0\.0+\b|\.\.|  | ,|\(\)",
]
NOTHING, RISES, FALLS, MISSING = (0, -1, 1), (2, 1, 3), (-2, -3, -1), (np.nan,) * 3
SIGNS = pd.DataFrame([[1, 0], [1, 0]], ["a", "b"], ["x − y", "x − z"])


def table(*numbers, key="domain", **more):
    rows = pd.DataFrame(numbers, columns=NUMBERS, dtype=float)
    names = ["code", "math", "reasoning", "chat"][: len(rows)]
    return Estimates(pd.concat([pd.DataFrame({key: names} | more), rows], axis=1))


def held_fixed(say=entropy_paradox.moves_in_words, *more, before=-0.3, **changes):
    if not changes:
        return say(
            Estimates(pd.DataFrame({"stage": ["change"]} | dict.fromkeys(NUMBERS, np.nan))), *more
        )
    parts = {
        "change": table(*[(c, c - 0.1, c + 0.1) for c in changes.values()]),
        "after": table(*[(before + c,) * 3 for c in changes.values()]),
    }
    found = Estimates.stacked(parts, "stage").frame
    return say(Estimates(found.assign(held_fixed=[*changes] * 2)), *more)


def compared(*leads):
    """By which of two factors the contrast changes less than by entropy."""
    rows = table(*leads, held_fixed=["token kind", "token frequency"][: len(leads)])
    return entropy_paradox.compared_changes("entropy", rows)


def contrast(number, share=0.0):
    """A domain's contrast in acceptance, and in which share of the resamples it is the highest."""
    return table(np.divide(number, 10), share_highest=share).in_units("points")


def on_sets(*numbers):
    names = ["own prompts", "third", "second set in English"]
    return table(*numbers, set=names[: len(numbers)])


def paradoxes(*verdicts):
    return entropy_paradox.paradoxes(
        pd.Series(verdicts, ["own prompts", "a", "b"][: len(verdicts)])
    )


def paradox(number, share, surest, elsewhere, moved):
    """The answer of notebook 06, put together as there."""
    numbers = contrast(number, share), contrast(RISES, surest)
    said = entropy_paradox.paradox_in_words(*numbers, "reasoning", "T = 0")
    there = entropy_paradox.elsewhere_in_words(on_sets(*elsewhere))
    return f"{said} {there} {moved}"


def state(number, cause="state: only target sure", first="yes"):
    return table(number, cause=cause, first=first)


def states(*firsts):
    """The state that costs most on other sets of prompts, and whether it is first."""
    sets = ["without wrapper", "second prompt set", "third"][: len(firsts)]
    rows = table(*[RISES] * len(firsts), cause="state: both unsure", first=list(firsts))
    return Estimates(rows.frame.assign(set=sets))


def gaps(*numbers):
    """Calibration gaps at two temperatures, by domain."""
    parts = {"T = 0": table(*numbers), "T = 1": table(*[RISES] * len(numbers))}
    return Estimates.stacked(parts, "view")


def plans(*power):
    return how_sure.power_in_words(pd.DataFrame({"power": power}), "alpha")


def least(*differences):
    rows = pd.DataFrame({"least": differences})
    return how_sure.detectable_in_words(rows, 0.8)


def leader(*columns):
    draws = pd.DataFrame(np.linspace(0, 1, 30)[:, None] * np.arange(len(columns)))
    return choose.leader(draws.set_axis(columns, axis=1), 5)[1]


def audited(verdicts):
    gap = table(FALLS).in_units("points").row
    return summary.verdicts_in_words("smollm", pd.Series(verdicts, dtype=object), "+0.047", gap)


def gammas(*best):
    return replace(table(*[(gamma, np.nan, np.nan) for gamma in best]), digits=0)


def at_gammas(*numbers):
    rows = table(*numbers, key="of").frame
    return Estimates(rows.assign(of=range(1, 1 + len(rows))).rename(columns={"of": "gamma"}))


def texts(*rows):
    """A text under several gammas; rows: gamma, passes, kept, drafted."""
    return pd.DataFrame(rows, columns=["gamma", "passes", "kept", "drafted"])


def curves(*numbers):
    """Tokens per target pass of one domain, at gamma 1, 2, …"""
    rows = [table((n,) * 3, temperature="T = 0", gamma=g).frame for g, n in enumerate(numbers, 1)]
    return Estimates(pd.concat(rows, ignore_index=True))


ROWS = [[NOTHING] * 4, [RISES], [RISES, FALLS, NOTHING, MISSING], [MISSING] * 2]
TABLES = [table(*rows, of="x") for rows in ROWS]
SIZE = {"target": 134_515_008, "draft": 18_600_000}
BEST = [gammas(*best) for best in ([4, 6, 5, 2], [4] * 4, [0] * 4, [0, 2, 3, 1], [4], [0], [3, 3])]
WASTED = [(1, 41, 23, 41)], [(1, 41, 23, 41), (16, 25, 40, 380)], [(1, 9, 0, 9), (4, 9, 0, 30)]
TALLIES = [], [claims.HOLDS], [claims.FAILS] * 2, [claims.FORM]
MANY = {"token frequency": 0.2}
CHANGES = {}, {"entropy": 0.2}, {"entropy": -0.2, "kind": -0.19}, {"entropy": 0.4}, MANY
TALLY = "rises", "falls", "does not change"
VERBS = "it rises in", "it falls in", "it does not change in"
LONE = ["code"]
SIZES = {"code": 1}, {"code": 15}, {"code": 15, "math": 15, "chat": 50}, {"code": 3, "math": 9}
CASES = [
    *(f"It is {rows.sentence()}." for rows in TABLES),
    *(f"{rows.sentence(*VERBS, within='of')}." for rows in TABLES),
    *(f"From {rows.span()}." for rows in TABLES),
    *(f"They are {rows}." for rows in TABLES),
    *(domain_acceptance.conflict(SIGNS * sign) for sign in (0, 1, np.array([[1], [-1]]))),
    *(plans(*power) for power in ([np.nan], [0.05, np.nan], [0.05, 0.7])),
    *(least(*differences) for differences in ([np.nan], [0.05, np.nan])),
    *(f"It {rows.tally(*TALLY)}." for rows in TABLES),
    *(paradoxes(*said) for said in (["no"], ["yes"] * 3, ["inconclusive", "no", "no"])),
    entropy_paradox.without_comparison("code", None),
    entropy_paradox.without_comparison("code", table((0.05, 0.01, 0.1)).in_units("points")),
    *(leader(*names) for names in (["one"], ["one", "two"], ["a", "b", "c"])),
    *(claims.tally(pd.Series(verdicts)) for verdicts in TALLIES),
    *(held_fixed(**changes) for changes in CHANGES),
    *(compared(*leads) for leads in ([RISES], [NOTHING], [RISES, NOTHING], [RISES] * 2)),
    *(claims.by_chance(pd.Series(verdicts)) for verdicts in TALLIES),
    *(f"{counted(n, 'prompt')} of {whole('domain', n)}" for n in (1, 2, 4, 30)),
    *(counted(n, "target pass") for n in (1, 27)),
    *(by_hand.block_in_words(1, Step((1,) * n, n - 1, 3, "recovered")) for n in (1, 2)),
    *(by_hand.formula_in_words(n, 6) for n in (5, 6)),
    *(load_models.vocabulary_in_words(SIZE, 9, n, 0.034) for n in (9, 5)),
    *(load_models.tree_in_words(n, 8, "`a`", own) for n in (0, 1) for own in ("", "`b`")),
    *(notebook.few_in_words(sizes, ", second prompt set") for sizes in SIZES),
    *(f"{rows.sentence(*gamma_sweep.EVERY_POSITION, within='of')}." for rows in TABLES[:3]),
    *(f"{rows.sentence(*gamma_sweep.FORMULA_GIVES, within='of')}." for rows in TABLES[:3]),
    *(f"{gamma_sweep.decoded_in_words(at_gammas(*rows))}." for rows in ROWS[:3]),
    *(gamma_sweep.agreement_in_words(*counts) for counts in ((0, 12, 5), (0, 1, 1), (3, 12, 5))),
]
NO_INTERVAL = (0.7, np.nan, np.nan)
AREAS = [table(n) for n in ((0.82, 0.81, 0.83), (0.5, 0.4, 0.6), NO_INTERVAL, MISSING)]
STATES = causes.FAMILIES["state"]
DOMAINS = ["code", "math"]
KINDS = table((0.8, 0.7, 0.9), (0.4, 0.3, 0.5), kind="punctuation")
# of notebooks; the page shows each directly below its title
ANSWERS = [
    *(
        entropy.uncertainty_in_words(area, rows, on)
        for area in AREAS
        for rows in TABLES
        for on in (None, rows)
    ),
    *(causes.cost_in_words(state(n), None) for n in (RISES, NOTHING, NO_INTERVAL)),
    *(causes.cost_in_words(state(RISES), states(*firsts)) for firsts in (["yes"], ["no", "yes"])),
    *(causes.cost_in_words(state(n, first="no"), states("yes", "no", "no")) for n in ROWS[2]),
    *(
        paradox(number, share, surest, on, held_fixed(**changes))
        for number, share in ((FALLS, 0.0), (RISES, 1.0), (NOTHING, 0.5))
        for surest in (0.0, 0.5, 1.0)
        for on in ([FALLS], [FALLS, NOTHING], [RISES, FALLS, NOTHING])
        for changes in CHANGES
    ),
    by_hand.rule_in_words(0.75, 2.73, 2.71),
    load_models.pair_in_words(SIZE, 2, 8, 64, 27),
    load_models.pair_in_words(SIZE, 1, 1, 1, 1),
    *(gamma_sweep.best_in_words(best, 0.05, None) for best in BEST),
    *(gamma_sweep.best_in_words(best, 0.125, gammas(2, 3)) for best in BEST),
    *(try_it.passes_in_words(*counts) for counts in ((64, 23), (1, 1))),
    *(audited(verdicts) for verdicts in (*TALLIES, [claims.HOLDS] * 2)),
]
# of figures
TITLES = [
    *(entropy.calibrated_in_words(gaps(*rows)) for rows in ROWS),
    *(causes.most_rejected(table(n, cause="kind: punctuation")) for n in (RISES, MISSING)),
    *(held_fixed(entropy_paradox.moves_in_title, "reasoning", **changes) for changes in CHANGES),
    *(entropy_paradox.most_frequent(KINDS.at(domain=names), "code") for names in (LONE, DOMAINS)),
    *(gamma_sweep.saved_and_wasted(texts(*rows)) for rows in WASTED),
    gamma_sweep.flattening(curves(1.5, 1.8), 2),
    gamma_sweep.used_at_most(table((0.19,) * 3, MISSING), 16),
    *(gamma_sweep.largest_miss(table((number,) * 3)) for number in (-0.2, 0.1)),
]


@pytest.mark.parametrize("said", [*CASES, *ANSWERS, *TITLES])
def test_a_computed_sentence_reads_well(said):
    assert not [pattern for pattern in BAD if re.search(pattern, said)], said


def test_a_caption_names_the_domains_without_bands():
    said = [notebook.without_bands(rows.frame) for rows in TABLES]
    assert said == ["", "", " There is no interval for chat.", ""]


@pytest.mark.parametrize("said", ANSWERS)
def test_an_answer_is_short(said):
    first, _, _ = said.partition(". ")
    assert not notebook.too_long(said), said
    assert len(first.split()) <= 25, first


@pytest.mark.parametrize("said", TITLES)
def test_a_title_is_one_clause(said):
    assert len(said) <= 90 and not said.endswith("."), said


def test_sentences_begin_as_sentences_do():
    begun = [starting(text) for text in ("own form", "hit[1] (T = 0)", "T = 0")]
    assert begun == ["Own form", "`hit[1]` (T = 0)", "T = 0"]


def test_the_words_follow_the_numbers():
    """Each branch has its own sentence, so no wording can serve all branches."""
    assert len({*CASES}) > len(CASES) - 6

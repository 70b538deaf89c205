"""Computed sentences: they read well if nothing differs, if one thing differs, or if a number is
undefined.
"""

import re

import numpy as np
import pandas as pd
import pytest

from speclab.analysis import choose, claims, try_it
from speclab.decode import Step
from speclab.estimates import Estimates, counted, starting, whole
from speclab.show import notebook
from speclab.stats import NUMBERS
from speclab.studies import (
    at_scale,
    by_hand,
    how_sure,
    load_models,
)
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


def table(*numbers, key="domain", **more):
    rows = pd.DataFrame(numbers, columns=NUMBERS, dtype=float)
    names = ["code", "math", "reasoning", "chat"][: len(rows)]
    return Estimates(pd.concat([pd.DataFrame({key: names} | more), rows], axis=1))


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


def scaled(*others):
    rows = table((2.75, 2.7, 2.8)).frame.assign(domain="instructcoder")
    faster = pd.Series([True] * 21 + [False] * 3)
    significant = dict(zip("abc", others, strict=True))
    return at_scale.proposers_in_words(Estimates(rows), significant, faster)


def runaways(*counts):
    of_set = pd.Series(counts, ["cnn", "code", "chat"][: len(counts)])
    return at_scale.ran_away_in_words(of_set, of_set / 20, 1410)


ROWS = [[NOTHING] * 4, [RISES], [RISES, FALLS, NOTHING, MISSING], [MISSING] * 2]
TABLES = [table(*rows, of="x") for rows in ROWS]
SIZE = {"target": 134_515_008, "draft": 18_600_000}
TALLIES = [], [claims.HOLDS], [claims.FAILS] * 2, [claims.FORM]
TALLY = "rises", "falls", "does not change"
VERBS = "it rises in", "it falls in", "it does not change in"
SIZES = {"code": 1}, {"code": 15}, {"code": 15, "math": 15, "chat": 50}, {"code": 3, "math": 9}
CASES = [
    *(f"It is {rows.sentence()}." for rows in TABLES),
    *(f"{rows.sentence(*VERBS, within='of')}." for rows in TABLES),
    *(f"From {rows.span()}." for rows in TABLES),
    *(f"They are {rows}." for rows in TABLES),
    *(plans(*power) for power in ([np.nan], [0.05, np.nan], [0.05, 0.7])),
    *(least(*differences) for differences in ([np.nan], [0.05, np.nan])),
    *(f"It {rows.tally(*TALLY)}." for rows in TABLES),
    *(leader(*names) for names in (["one"], ["one", "two"], ["a", "b", "c"])),
    *(claims.tally(pd.Series(verdicts)) for verdicts in TALLIES),
    *(claims.by_chance(pd.Series(verdicts)) for verdicts in TALLIES),
    *(f"{counted(n, 'prompt')} of {whole('domain', n)}" for n in (1, 2, 4, 30)),
    *(counted(n, "target pass") for n in (1, 27)),
    *(by_hand.block_in_words(1, Step((1,) * n, n - 1, 3, "recovered")) for n in (1, 2)),
    *(by_hand.formula_in_words(n, 6) for n in (5, 6)),
    *(load_models.vocabulary_in_words(SIZE, 9, n, 0.034) for n in (9, 5)),
    *(load_models.tree_in_words(n, 8, "`a`", own) for n in (0, 1) for own in ("", "`b`")),
    *(notebook.few_in_words(sizes, ", second prompt set") for sizes in SIZES),
    *(runaways(*counts) for counts in ([0, 5, 5], [1, 0, 0])),
    *(
        f"m: {at_scale.fitted_leasts(of)}."
        for of in (["chain:5"], ["lookup:4", "chain:5+lookup:3"])
    ),
]
# of notebooks; the page shows each directly below its title
ANSWERS = [
    by_hand.rule_in_words(0.75, 2.73, 2.71),
    load_models.pair_in_words(SIZE, 2, 8, 64, 27),
    load_models.pair_in_words(SIZE, 1, 1, 1, 1),
    *(try_it.passes_in_words(*counts) for counts in ((64, 23), (1, 1))),
    *(audited(verdicts) for verdicts in (*TALLIES, [claims.HOLDS] * 2)),
    *(scaled(*others) for others in ([False] * 3, [True, False, False], [True] * 3)),
]


@pytest.mark.parametrize("said", [*CASES, *ANSWERS])
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


def test_sentences_begin_as_sentences_do():
    begun = [starting(text) for text in ("own form", "hit[1] (T = 0)", "T = 0")]
    assert begun == ["Own form", "`hit[1]` (T = 0)", "T = 0"]


def test_the_words_follow_the_numbers():
    """Each branch has its own sentence, so no wording can serve all branches."""
    assert len({*CASES}) > len(CASES) - 6

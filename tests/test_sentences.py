"""Sentences that are computed: they read well when nothing differs, one thing does, or a number is
undefined.
"""

import re

import numpy as np
import pandas as pd
import pytest

from speclab.analysis import choose, claims
from speclab.estimates import NUMBERS, Estimates, counted, starting, whole
from speclab.studies import chat_paradox, domain_acceptance, how_sure
from speclab.studies import entropy_correlation as entropy
from speclab.studies import rejection_causes as causes
from speclab.studies.budgets_and_routing import serving

BAD = [
    r"\bnan\b|\bNaN\b|<NA>",
    r"\d\.0 of|\b0 of 0\b",  # a count is whole, and of something
    r": ?(;|\.|$)",  # a list without members
    r"\. [a-z]",  # a sentence without a capital
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


def held_fixed(**changes):
    draws = np.linspace(0.9, 1.1, 30)[:, None] * list(changes.values())
    changes = pd.DataFrame(draws.reshape(30, -1), columns=[*changes])
    return chat_paradox.moves_most(changes, 5)


def plans(*power):
    return how_sure.power_in_words(pd.DataFrame({"power": power}))


def first(*leads):
    rows = table(*[RISES] * len(leads), cause="kind: name").frame
    return f"Here {causes.first_in_words(Estimates(rows.assign(lead=leads)))}."


def rates(*numbers):
    return serving.rates_in_words(table(*numbers, key="policy"))


def leader(*columns):
    draws = pd.DataFrame(np.linspace(0, 1, 30)[:, None] * np.arange(len(columns)))
    return choose.leader(draws.set_axis(columns, axis=1), 5)[1]


ROWS = [[NOTHING] * 4, [RISES], [RISES, FALLS, NOTHING, MISSING], [MISSING] * 2]
CASES = [
    *(lambda rows=rows: f"It is {table(*rows).sentence()}." for rows in ROWS),
    *(lambda rows=rows: f"{table(*rows, of='x').sentence(within='of')}." for rows in ROWS),
    *(lambda rows=rows: f"From {table(*rows).span()}." for rows in ROWS),
    *(lambda rows=rows: f"They are {table(*rows)}." for rows in ROWS),
    *(lambda rows=rows: f"It {entropy.trend(table(*rows))}." for rows in ROWS),
    *(
        lambda s=s: domain_acceptance.conflict(SIGNS * s)
        for s in (0, 1, np.array([[1, 0], [-1, 0]]))
    ),
    *(lambda p=p: plans(*p) for p in ((np.nan,), (0.05, np.nan), (0.05, 0.7))),
    *(
        lambda n=n: first(*n)
        for n in (["it is significant"], ["not so"], ["it is significant", "not so"])
    ),
    *(lambda n=n: rates(*n) for n in ((RISES,), (RISES, NOTHING))),
    *(lambda c=c: leader(*c) for c in (("one",), ("one", "two"), ("a", "b", "c"))),
    *(
        lambda v=v: claims.tally(pd.Series(v))
        for v in ([], [claims.HOLDS], [claims.FAILS] * 2, [claims.FORM])
    ),
    *(lambda c=c: held_fixed(**c) for c in ({}, {"entropy": 0.2}, {"entropy": 0.2, "kind": -0.19})),
    *(lambda n=n: f"{counted(n, 'prompt')} of {whole('domain', n)}" for n in (1, 2, 4, 30)),
]


@pytest.mark.parametrize("make", CASES)
def test_a_computed_sentence_reads_well(make):
    said = make()
    assert not [pattern for pattern in BAD if re.search(pattern, said)], said


def test_sentences_begin_as_sentences_do():
    begun = [starting(text) for text in ("own form", "hit[1] (T = 0)", "T = 0")]
    assert begun == ["Own form", "`hit[1]` (T = 0)", "T = 0"]


def test_the_words_follow_the_numbers():
    """Each branch says something else, so that a wording cannot stand for all of them."""
    assert len({make() for make in CASES}) > len(CASES) - 6

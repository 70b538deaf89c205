"""Sentences that are computed: they read well when nothing differs, one thing does, or a number is
undefined.
"""

import re

import numpy as np
import pandas as pd
import pytest

from speclab.analysis import choose, claims, prompt_sets
from speclab.show.estimates import NUMBERS, Estimates, counted, starting, whole
from speclab.studies import chat_paradox, depth_profile, domain_acceptance, how_sure
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


def carried(signs):
    signs = pd.DataFrame([signs, signs], [prompt_sets.OWN, prompt_sets.SECOND])
    return prompt_sets.carried_in_words(prompt_sets.carried(signs))


def told(*counts):
    return domain_acceptance.told_in_words(pd.Series(counts), 6 if max(counts) else 1)


def found(*p_values):
    rows = table(RISES, RISES, RISES).frame.head(len(p_values))
    rows = rows.assign(p_holm=p_values, estimator="hit[1]", what="early − late")
    return f"Of all: {depth_profile.significant(rows, 0.05)}"


def plans(*power):
    return how_sure.power_in_words(pd.DataFrame({"power": power}))


def dearest(*names):
    numbers = table(RISES, RISES, RISES, key="cause")
    numbers.frame["cause"] = ["code", "math", "every"]
    return f"Here {causes.dearest(numbers, numbers, names)}"


def rates(*same):
    return serving.rates_in_words(table(RISES, NOTHING, key="policy"), same)


def leader(*columns):
    draws = pd.DataFrame(np.linspace(0, 1, 30)[:, None] * np.arange(len(columns)))
    return choose.leader(draws.set_axis(columns, axis=1), 5)[1]


ROWS = [[NOTHING] * 4, [RISES], [RISES, FALLS, NOTHING, MISSING], [MISSING] * 2]
CASES = [
    *(lambda rows=rows: f"It is {table(*rows).sentence()}." for rows in ROWS),
    *(
        lambda rows=rows: f"{table(*rows, of='x').sentence(within='of')}."
        for rows in ROWS
    ),
    *(lambda rows=rows: f"From {table(*rows).span()}." for rows in ROWS),
    *(lambda rows=rows: f"They are {table(*rows)}." for rows in ROWS),
    *(lambda rows=rows: f"It {entropy.trend(table(*rows))}." for rows in ROWS),
    *(lambda s=s: carried(s) for s in ({"a": 0}, {"a": 1, "b": 0}, {"a": 1, "b": -1})),
    *(
        lambda s=s: domain_acceptance.conflict(SIGNS * s)
        for s in (0, 1, np.array([[1, 0], [-1, 0]]))
    ),
    *(lambda c=c: told(*c) for c in ((0, 0), (1, 1), (0, 1), (2, 6))),
    *(lambda p=p: found(*p) for p in ((), (0.5,), (0.01,), (0.01, 0.02, 0.9))),
    *(lambda p=p: plans(*p) for p in ((np.nan,), (0.05, np.nan), (0.05, 0.7))),
    *(lambda n=n: dearest(*n) for n in ((), ("code",), ("code", "math"))),
    *(lambda s=s: rates(*s) for s in ((), ("code",), ("code", "math"))),
    *(lambda c=c: leader(*c) for c in (("one",), ("one", "two"), ("a", "b", "c"))),
    *(
        lambda v=v: claims.tally(pd.Series(v))
        for v in ([], [claims.HOLDS], [claims.FAILS] * 2, [claims.FORM])
    ),
    *(lambda r=r: chat_paradox.moves_most(table(*r, key="held_fixed")) for r in ROWS),
    *(
        lambda n=n: f"{counted(n, 'prompt')} of {whole('domain', n)}"
        for n in (1, 2, 4, 30)
    ),
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

"""Computed sentences: they read well if nothing differs, if one thing differs, or if a number is
undefined.
"""

import re

import numpy as np
import pandas as pd
import pytest

from speclab.estimates import Estimates, counted
from speclab.show import notebook
from speclab.stats import NUMBERS

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


ROWS = [[NOTHING] * 4, [RISES], [RISES, FALLS, NOTHING, MISSING], [MISSING] * 2]
TABLES = [table(*rows, of="x") for rows in ROWS]
SIZES = {"code": 1}, {"code": 15}, {"code": 15, "math": 15, "chat": 50}, {"code": 3, "math": 9}
CASES = [
    *(f"They are {rows}." for rows in TABLES),
    *(f"{counted(n, 'prompt')} of each" for n in (1, 2)),
    *(counted(n, "target pass") for n in (1, 27)),
    *(notebook.few_in_words(sizes, ", second prompt set") for sizes in SIZES),
]


@pytest.mark.parametrize("said", CASES)
def test_a_computed_sentence_reads_well(said):
    assert not [pattern for pattern in BAD if re.search(pattern, said)], said


def test_a_caption_names_the_domains_without_bands():
    said = [notebook.without_bands(rows.frame) for rows in TABLES]
    assert said == ["", "", " There is no interval for chat.", ""]

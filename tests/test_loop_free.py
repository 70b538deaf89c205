"""Verdicts beside those of other texts, and what is said of them."""

import numpy as np
import pandas as pd

from speclab.studies.paper_audit import claims, loop_free
from speclab.studies.paper_audit.claims import AT_0

PROMPTS = {"a": 50, "b": 50}


def listed() -> dict[str, claims.Claim]:
    facts = {
        "source": "paper",
        "where": "I",
        "claim": "",
        "number": "",
        "region": (0, None),
    }
    return {name: claims.Claim(name, **facts) for name in ("x", "y")}


def rows_of(*numbers) -> pd.DataFrame:
    """Evidence from (claim, pair, asked, low, high)."""
    lines = []
    for claim, pair, asked, low, high in numbers:
        head = {
            "claim": claim,
            "pair": pair,
            "asked": asked,
            "least": 0.0,
            "most": np.inf,
        }
        lines.append(head | claims.row_of("e", "r", (low + high) / 2, low, high))
    return pd.DataFrame(lines, columns=claims.COLUMNS)


def beside(whole: pd.DataFrame, *others: pd.DataFrame) -> pd.DataFrame:
    verdicts = claims.verdict_table(listed(), whole, PROMPTS)
    return loop_free.asked_again(verdicts, others, listed(), PROMPTS)


def test_what_the_other_texts_cannot_answer_is_left_out():
    whole = rows_of(("x", "a", AT_0, 1, 2), ("y", "a", AT_0, 1, 2))
    again = rows_of(("x", "a", AT_0, np.nan, np.nan), ("y", "a", AT_0, 1, 2))
    assert beside(whole, again)["claim"].tolist() == ["y"]

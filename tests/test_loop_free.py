"""Verdicts beside those of other texts, and what is said of them."""

import numpy as np
import pandas as pd

from speclab.studies.paper_audit import claims, loop_free
from speclab.studies.paper_audit.claims import AT_0, AT_1, FAILS, HOLDS, UNKNOWN

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


def test_verdicts_of_other_texts_stand_beside_their_own():
    whole = rows_of(
        ("x", "a", AT_0, 1, 2), ("x", "a", AT_1, 1, 2), ("x", "b", AT_0, -1, 1)
    )
    both = beside(
        whole, rows_of(("x", "a", AT_0, -2, -1)), rows_of(("x", "b", AT_0, 1, 2))
    )
    columns = [
        "pair",
        "asked",
        "measured",
        "verdict",
        "measured_other",
        "verdict_other",
    ]
    assert both[columns].values.tolist() == [
        ["a", AT_0, "1.50 [1.00, 2.00]", HOLDS, "-1.50 [-2.00, -1.00]", FAILS],
        ["b", AT_0, "0 [-1, 1]", UNKNOWN, "1.50 [1.00, 2.00]", HOLDS],
    ]  # T = 1 was not asked again


def test_what_the_other_texts_cannot_answer_is_left_out():
    whole = rows_of(("x", "a", AT_0, 1, 2), ("y", "a", AT_0, 1, 2))
    again = rows_of(("x", "a", AT_0, np.nan, np.nan), ("y", "a", AT_0, 1, 2))
    assert beside(whole, again)["claim"].tolist() == ["y"]


def test_changed_verdicts_are_said_pair_by_pair_and_once():
    whole = rows_of(
        ("x", "a", AT_1, 1, 2), ("y", "a", AT_1, 1, 2), ("x", "b", AT_1, 1, 2)
    )
    seeds = [
        rows_of(("x", "a", AT_1, -1, 1), ("y", "a", AT_1, 1, 2), ("x", "b", AT_1, 3, 4))
        for _ in range(2)
    ]
    said = loop_free.changed_said(beside(whole, *seeds), "two other seeds")
    assert said.splitlines() == [
        f"* a, two other seeds: 2 of 4 differ: x ({HOLDS} becomes {UNKNOWN}).",
        "* b, two other seeds: 0 of 2 differ: none.",
    ]

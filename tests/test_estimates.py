"""Tables of numbers with intervals: how they are selected, formatted and put into words."""

import numpy as np
import pandas as pd
import pytest

from speclab import estimates


def test_wide_writes_intervals_as_text():
    long = pd.DataFrame(
        {
            "domain": ["math", "math", "code", "code"],
            "of": ["b", "a"] * 2,
            "estimate": [0.5, 1, np.nan, -0.25],
            "low": [0.4, 1, np.nan, -0.5],
            "high": [0.625, 1, np.nan, 0],
        }
    )
    table = estimates.Estimates(long).wide("domain", "of")
    assert list(table) == ["domain", "b", "a"] and list(table["domain"]) == ["math", "code"]
    assert (
        list(table["b"]) == ["0.50 [0.40, 0.62]", "undefined"]
        and table["a"].iloc[1] == "−0.25 [−0.50, 0.00]"
    )


def test_lists_and_sentences_within_a_key():
    rows = [
        ("T = 0", "code", 1.0, 0.5, 1.5),
        ("T = 0", "chat", -1.0, -2.0, -0.5),
        ("T = 1", "code", 0.0, -1.0, 1.0),
        ("T = 1", "math", np.nan, np.nan, np.nan),
        ("T = 1", "reasoning", 1.0, np.nan, np.nan),
    ]
    columns = ["temperature", "domain", *estimates.NUMBERS]
    table = estimates.Estimates(pd.DataFrame(rows, columns=columns), 1)
    assert [(text, len(part.frame)) for text, part in table.groups("temperature")] == [
        ("T = 0", 2),
        ("T = 1", 3),
    ]
    assert table.listed(within="temperature") == (
        "T = 0: code 1.0 [0.5, 1.5] and chat −1.0 [−2.0, −0.5]; T = 1: code 0.0 [−1.0, 1.0], "
        "math undefined and reasoning 1.0"
    )
    said = table.sentence("rises in", "falls in", "is open in", within="temperature")
    assert said == (
        "T = 0: rises in code; falls in chat. T = 1: is open in code; no estimate for math; "
        "no interval for reasoning"
    )


def test_estimates_that_are_all_undefined_are_known_to_be_none():
    rows = [("code", np.nan, np.nan, np.nan), ("math", 1.0, 0.5, 1.5)]
    table = estimates.Estimates(pd.DataFrame(rows, columns=["domain", *estimates.NUMBERS]))
    assert list(table.known["domain"]) == list(table.defined().frame["domain"]) == ["math"]
    assert table.at(domain="code").known.empty
    with pytest.raises(ValueError, match="estimates is empty"):
        table.at(domain="code").defined()

"""Tables of numbers with intervals: how they are selected, formatted and put into words."""

import numpy as np
import pandas as pd
import pytest

from speclab import estimates, stats


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


def test_estimates_that_are_all_undefined_are_known_to_be_none():
    rows = [("code", np.nan, np.nan, np.nan), ("math", 1.0, 0.5, 1.5)]
    table = estimates.Estimates(pd.DataFrame(rows, columns=["domain", *estimates.NUMBERS]))
    assert list(table.known["domain"]) == list(table.defined().frame["domain"]) == ["math"]
    assert table.at(domain="code").known.empty
    with pytest.raises(ValueError, match="estimates is empty"):
        table.at(domain="code").defined()


@pytest.mark.parametrize(
    ("numbers", "digits", "unit", "text"),
    [
        ((0.724, 0.7, 0.746), 0, "%", "72 % [70, 75]"),
        ((0.058, 0.046, 0.081), 0, "points", "+6 points [5, 8]"),
        ((-0.301, -0.334, -0.27), 0, "points", "−30 points [−33, −27]"),
        ((1.3456, 1.3201, 1.3699), 2, "x", "1.35x [1.32, 1.37]"),
        ((-0.001, np.nan, np.nan), 2, "", "0.00"),
        ((0.05, 0.004, 0.11), 0, "points", "+5.0 points [0.4, 11.0]"),
        ((0.05, 0.0, 0.11), 0, "points", "+5 points [0, 11]"),
        ((1.1, 1.004, 1.2), 2, "x", "1.100x [1.004, 1.200]"),
        ((1.1, 1.0, 1.2), 2, "x", "1.10x [1.00, 1.20]"),
    ],
)
def test_cells_have_units(numbers, digits, unit, text):
    assert stats.cell(*numbers, digits, unit) == text
    table = estimates.Estimates(
        pd.DataFrame([("code", *numbers)], columns=["domain", *stats.NUMBERS])
    )
    assert str(table.in_units(unit, digits)) == text
    assert table.in_units(unit, digits).verdict() == table.verdict()

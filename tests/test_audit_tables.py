"""Rows of evidence from tables of notebooks 08 and 10: made files, none, and too few prompts."""

import numpy as np
import pandas as pd
import pytest

from speclab.studies.paper_audit import claims, tables
from speclab.studies.paper_audit.claims import AT_0, AT_1, FAILS, HOLDS, UNKNOWN

LISTED = claims.claims()


def made(folder, prompts=50, cell="0.92 [0.91, 0.93]"):
    """The four tables, as the notebooks export them."""
    for number in ("08", "10"):
        (folder / number).mkdir(parents=True, exist_ok=True)
    estimators = ["alpha", "hit[1]"]
    drafts = ["INT8 self-draft", "INT4 self-draft"]
    cells = [
        {"estimator": e, "draft": d, "math": cell if "4" in d else "1.00 [1.00, 1.00]"}
        for e in estimators
        for d in drafts
    ]
    pd.DataFrame(cells).to_csv(folder / "08/self-drafts.csv", index=False)
    distilled = [
        {"estimator": e, "draft": "FKL", "domain": domain, "difference": number,
         "low": number - 0.25, "high": number + 0.25, "n_prompts": prompts}
        for e, number in zip(estimators, (0.5, -0.5), strict=True)
        for domain in ("math", "all")
    ]  # fmt: skip
    pd.DataFrame(distilled).to_csv(folder / "08/distillation.csv", index=False)
    specialist = [
        {"estimator": e, "domain": domain, "estimate": number, "low": 0.0, "high": 0.1}
        for e in estimators
        for domain, number in (("math", 0.06), ("chat", -0.2))
    ]
    pd.DataFrame(specialist).to_csv(folder / "08/specialist.csv", index=False)
    times = {"n": [1, 5], "target_low": [9, 11], "target_high": [11, 13]}
    times = pd.DataFrame(times | {"v(n)": [1.0, 1.2]})
    times.to_csv(folder / "10/pass-times.csv", index=False)
    return folder


def test_where_no_notebook_has_run_every_row_says_so(tmp_path):
    found = tables.rows([tmp_path, tmp_path / "none"])
    asked = {(c, way) for c in tables.TABLES for way in (AT_0, AT_1)}
    assert set(found) == asked | {("one-pass", AT_0)}
    for (row,) in found.values():
        assert np.isnan(row["estimate"])


def test_rows_of_the_tables_by_hand(tmp_path):
    found = tables.rows([tmp_path / "none", made(tmp_path / "here")])
    (row,) = found["self-draft", AT_1]
    assert row == claims.row_of("alpha", "math", 0.92, 0.91, 0.93)
    (row,) = found["own-outputs", AT_1]
    assert row == claims.row_of("alpha, distilled - before", "FKL", 0.5, 0.25, 0.75)
    (row,) = found["own-outputs", AT_0]
    assert (row["estimator"], row["estimate"]) == ("hit[1], distilled - before", -0.5)
    (row,) = found["maths-draft", AT_0]
    assert (row["row"], row["estimate"]) == ("math", 0.06)
    (row,) = found["one-pass", AT_0]
    expected = claims.row_of("v(5)", "this machine", 1.2, 11 / 11, 13 / 9)
    assert row == expected


def test_the_shipped_tables_have_what_is_read(tmp_path):
    found = tables.rows([tmp_path, tables.SHIPPED / "tiny.json"])
    for key, rows in found.items():
        assert np.isfinite([row["estimate"] for row in rows]).all(), key


def test_a_draft_that_was_not_made_is_missing(tmp_path):
    folder = made(tmp_path / "here")
    (folder / "08/specialist.csv").unlink()
    found = tables.rows([folder])
    assert np.isnan(found["maths-draft", AT_1][0]["estimate"])
    assert np.isfinite(found["self-draft", AT_1][0]["estimate"])


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("0.92 [0.91, 0.93]", HOLDS),
        ("0.99 [0.985, 1.00]", FAILS),
        ("0.80 [0.78, 0.82]", FAILS),
        ("0.90 [0.87, 0.93]", UNKNOWN),
    ],
)
def test_a_self_draft_is_judged_by_the_intervals_it_comes_with(
    tmp_path, cell, expected
):
    found = tables.rows([made(tmp_path / "here", cell=cell)])
    least, most = LISTED["self-draft"].bounds("math")
    rows = pd.DataFrame(found["self-draft", AT_1]).assign(least=least, most=most)
    assert claims.verdict(LISTED["self-draft"], rows) == expected

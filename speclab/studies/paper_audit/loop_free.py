"""Do loops carry a verdict? Every claim that texts decide, measured once more outside the loops of
the greedy texts, and on the sampled texts.
"""

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from speclab.analysis import loops
from speclab.estimates import stack
from speclab.studies.paper_audit.claims import (
    EXACT,
    NOT_TESTED,
    PUBLISHED,
    RIGHT,
    Claim,
    cell,
    verdict,
)
from speclab.studies.paper_audit.evidence import Material, evidence

TEXTS = (loops.WHOLE, loops.OUTSIDE, loops.SAMPLED)


def three_texts(
    material: Material, listed: Mapping[str, Claim], found: pd.DataFrame
) -> pd.DataFrame:
    """The evidence (`evidence.evidence`, with the new first column `text`) of the claims that
    greedy text decides: `found`, which is that of the whole texts; outside loops; and the same
    estimators on the sampled texts, where the rule of deterministic children is point-mass.
    """
    outside = evidence(replace(material, outside=True, self_draft=()), listed)
    texts = outside[outside["note"] != EXACT]["claim"].unique()
    at_1 = evidence(
        Material(
            material.sampled, None, material.c, material.article_c, rule="point-mass"
        ),
        {name: listed[name] for name in texts},
    )
    parts = dict(zip(TEXTS, (found, outside, at_1), strict=True))
    rows = stack(parts, "text")
    return rows[rows["claim"].isin(texts)].reset_index(drop=True)


def three_verdicts(rows: pd.DataFrame, listed: Mapping[str, Claim]) -> pd.DataFrame:
    """One row a claim: id; for each text its number (of the right estimator, or as published where
    there is no other) and its verdict, in the columns 'T = 0', 'verdict, T = 0', ….
    """
    lines = []
    for name, of_claim in rows.groupby("claim", sort=False):
        line = {"id": name}
        for text in TEXTS:
            own = of_claim[of_claim["text"] == text]
            right = own[own["view"] == RIGHT]
            shown = own[own["view"] == PUBLISHED] if right.empty else right
            line[text] = cell(shown)
            line[f"verdict, {text}"] = verdict(listed[name], own)
        lines.append(line)
    return pd.DataFrame(lines)


def verdicts_in_cells(table: pd.DataFrame) -> pd.DataFrame:
    """`three_verdicts` with number and verdict in one cell: '0.60 [0.58, 0.62]: holds here'."""
    cells = table[["id"]].copy()
    for text in TEXTS:
        said = table[text].where(table[text] == "", table[text] + ": ")
        cells[text] = said + table[f"verdict, {text}"]
    return cells


def verdicts_changed(table: pd.DataFrame, text: str) -> str:
    """Which verdicts are others in a text than on the whole greedy texts, in words."""
    there = table[table[f"verdict, {text}"] != NOT_TESTED]
    before, after = there[f"verdict, {loops.WHOLE}"], there[f"verdict, {text}"]
    other = there[before != after]
    if other.empty:
        return f"{text}: all {len(there)} verdicts are the same."
    said = [
        f"{name} ({one} becomes {two})"
        for name, one, two in zip(
            other["id"], before[other.index], after[other.index], strict=True
        )
    ]
    return (
        f"{text}: {len(other)} of {len(there)} verdicts are others: {'; '.join(said)}."
    )

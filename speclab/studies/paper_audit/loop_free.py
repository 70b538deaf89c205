"""Does a verdict rest on loops, or on the one seed that text was drawn with? The same claims, asked
of what lies outside the loops of greedy text (T = 0), and of text drawn with other seeds (T = 1).
"""

from collections.abc import Iterable, Mapping

import pandas as pd

from speclab.studies.paper_audit.claims import NOT_TESTED, Claim, verdict_table

KEYS = ["claim", "pair", "asked"]


def asked_again(
    verdicts: pd.DataFrame,
    others: Iterable[pd.DataFrame],
    listed: Mapping[str, Claim],
    prompts: Mapping[str, int],
) -> pd.DataFrame:
    """The verdicts of `others` (frames of evidence) beside those on the whole texts of the first
    seed (`claims.table`): claim, pair, asked, measured, verdict, measured_other, verdict_other.
    """
    asked_again = [verdict_table(listed, rows, prompts) for rows in others]
    again = pd.concat(asked_again, ignore_index=True)
    columns = [*KEYS, "measured", "verdict"]
    both = verdicts[columns].merge(again[columns], on=KEYS, suffixes=("", "_other"))
    return both[both["verdict_other"] != NOT_TESTED].reset_index(drop=True)


def changed_said(both: pd.DataFrame, what: str) -> str:
    """Which verdicts of `asked_again` are others, a line a pair."""
    lines = []
    for pair, rows in both.groupby("pair", sort=False):
        other = rows[rows["verdict"] != rows["verdict_other"]]
        said = [
            f"{row.claim} ({row.verdict} becomes {row.verdict_other})"
            for row in other.itertuples()
        ]
        named = "; ".join(dict.fromkeys(said)) or "none"
        lines.append(f"* {pair}, {what}: {len(other)} of {len(rows)} differ: {named}.")
    return "\n".join(lines)

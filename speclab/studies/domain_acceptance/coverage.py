"""How often a 95 % interval holds the truth when a study has few prompts: simulated once, by
data/coverage/prepare.py, and read here.
"""

import pandas as pd

from speclab.profiles import ROOT
from speclab.show.estimates import Estimates

TABLE = ROOT / "data" / "coverage" / "coverage.csv"
EFFECT = "design effect"
ELSEWHERE = "smollm"  # whose simulation stands in for a pair that has none of its own


def coverage_of(pair: str) -> tuple[str, pd.DataFrame]:
    """The pair whose prompts were simulated, `pair` itself where it was, and its coverage:
    estimator, n_prompts (a domain), method, coverage with its 95 % Monte-Carlo interval (low,
    high), width (mean over domains of the median width), studies, used: is it the kit's method?
    """
    found = pd.read_csv(TABLE, float_precision="round_trip")
    shown = pair if (found["pair"] == pair).any() else ELSEWHERE
    rows = found[found["pair"] == shown]
    return shown, rows.drop(columns="pair").reset_index(drop=True)


def coverage_in_percent(found: pd.DataFrame) -> Estimates:
    """Coverage as estimates in percent by estimator, method and n_prompts."""
    shares = 100 * found[["coverage", "low", "high"]]
    shares = shares.rename(columns={"coverage": "estimate"})
    return Estimates(found[["estimator", "method", "n_prompts"]].join(shares), digits=0)

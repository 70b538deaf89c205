"""How coverage.csv was made: `python -m data.coverage.prepare` (three minutes on one core).

Notebook 03's simulation of intervals, with more studies, on both pairs: their greedy runs, recorded
or shipped.
"""

import sys

import pandas as pd

from speclab import runs
from speclab.profiles import ROOT, load_profile
from speclab.studies.domain_acceptance import coverage

PAIRS, STUDIES, RESAMPLES = ("tiny", "smollm"), 400, 2000


def main() -> None:
    """Write coverage.csv beside this file: pair, then the columns of `coverage.coverage_table`."""
    parts = {}
    for pair in PAIRS:
        greedy = runs.load_or_record(
            load_profile(pair).replace(temperature=0.0), "greedy"
        )
        parts[pair] = coverage.coverage_table(
            coverage.cases(greedy), studies=STUDIES, resamples=RESAMPLES
        )
    found = pd.concat(parts, names=["pair"]).reset_index("pair").round(4)
    found.to_csv(ROOT / "data" / "coverage" / "coverage.csv", index=False)


if __name__ == "__main__":
    sys.exit(main())

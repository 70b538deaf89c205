"""Put timing runs into data/measured: `python -m tests.tools.timing add FILE --pair NAME`. FILE is
what notebook 10 wrote beside the recorded runs (`timing/…csv`). Runs of users and of CI stay out.
"""

import argparse
from pathlib import Path

import pandas as pd

from speclab.study import timing_runs


def add(path, pair):
    """Append the timing runs of a file to those of a pair, in the order of their times. ValueError
    for a run that is there already.
    """
    rows, to = timing_runs.read_file(path), timing_runs.SHIPPED / f"{pair}.csv"
    known = timing_runs.read_file(to) if to.is_file() else rows[:0]
    if twice := {*rows["when"]} & {*known["when"]}:
        raise ValueError(f"{to.name} has the timing runs of {', '.join(sorted(twice))} already")
    both = pd.concat([known, rows]).sort_values(["when", "round", "n"], kind="stable")
    both.to_csv(to, index=False, lineterminator="\n")
    return to


def main(arguments=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["add"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--pair", required=True, help="the name of the file in data/measured")
    given = parser.parse_args(arguments)
    print(add(given.file, given.pair))


if __name__ == "__main__":
    main()

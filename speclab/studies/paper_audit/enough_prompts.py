"""Could so many prompts have shown the paper's difference? The answer for each spread between
prompts that is at hand: those of the pairs and of the authors' runs.
"""

from collections.abc import Mapping
from math import comb

import numpy as np
import pandas as pd

from speclab import score
from speclab.analysis import power
from speclab.analysis.levels import AT_0, AT_1, PUBLISHED, SHORT
from speclab.analysis.published import AuthorRecords
from speclab.prompts import DOMAINS
from speclab.show.estimates import Estimates
from speclab.stats import MIN_PROMPTS
from speclab.studies.paper_audit.author_records import whole_runs
from speclab.studies.paper_audit.side import PairRuns

ESTIMATORS = {
    PUBLISHED: score.published_alpha,
    AT_0: score.mean_of("hit", "hit[1]"),
    AT_1: score.alpha,
}
AUTHORS = "authors' {}"
YES, NO, UNSURE = "enough", "too few", "cannot be told"
OF_CLAIM = ("math", "chat")  # the pair of domains whose difference the paper speaks of


def spreads(
    pairs: Mapping[str, PairRuns],
    records: Mapping[str, AuthorRecords],
    printed: Mapping[str, float],
    prompts: int = 50,
) -> pd.DataFrame:
    """`power.every_pair` for each source and estimator: source, estimator, of_domain, first,
    second, …, and `verdict`: whether `prompts` prompts a domain find the printed difference.

    Sources: the pairs (ESTIMATORS on the text that each is exact for), then the authors' runs (as
    published). of_domain: the one domain whose spread stands for all, where a run has no other of 5
    prompts or more; a run that has none is left out.
    """
    parts = []
    for source, estimator, nodes_or_trace in _asked(pairs, records):
        enough = _domains_of_enough_prompts(nodes_or_trace)
        alone = None if set(printed.keys()) <= set(enough) else enough[0]
        frame = nodes_or_trace[nodes_or_trace["domain"].isin(enough)]
        rows = power.every_pair(
            frame, ESTIMATORS[estimator], printed, prompts, stand_in=alone
        )
        parts.append(
            rows.assign(source=source, estimator=estimator, of_domain=alone or "")
        )
    plans = pd.concat(parts, ignore_index=True)
    plans["verdict"] = np.select(
        [plans["needed_high"] <= prompts, plans["needed_low"] > prompts],
        [YES, NO],
        UNSURE,
    )
    first = ["source", "estimator", "of_domain"]
    return plans[[*first, *plans.columns.difference(first, sort=False)]]


def _asked(
    pairs: Mapping[str, PairRuns], records: Mapping[str, AuthorRecords]
) -> list[tuple[str, str, pd.DataFrame]]:
    """(source, estimator, its frame) of all that has enough prompts somewhere."""
    found = []
    for name, runs in pairs.items():
        found.append((name, PUBLISHED, runs.greedy.nodes))
        found.append((name, AT_0, score.with_hits(runs.greedy.trace)))
        found.append((name, AT_1, runs.sampled.trace))
    found += [
        (AUTHORS.format(run), PUBLISHED, one.nodes) for run, one in records.items()
    ]
    return [one for one in found if _domains_of_enough_prompts(one[2])]


def _domains_of_enough_prompts(frame: pd.DataFrame) -> list[str]:
    prompts = frame.groupby("domain", observed=True)["prompt_id"].nunique()
    known = score.domains_in(frame)
    return [name for name in known if prompts[name] >= MIN_PROMPTS]


def of_claim(plans: pd.DataFrame) -> pd.DataFrame:
    """The rows of the difference that the paper speaks of, between chat and math."""
    first, second = OF_CLAIM
    rows = plans[(plans["first"] == first) & (plans["second"] == second)]
    return rows.reset_index(drop=True)


def plans_in_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of `of_claim` with few columns, to be shown."""
    shown = rows[["source", "estimator"]].copy()
    for name, digits, low, high in (
        ("spread", 3, "spread_low", "spread_high"),
        ("detectable", 3, "low", "high"),
        ("needed", 0, "needed_low", "needed_high"),
    ):
        numbers = rows[[name, low, high]].itertuples(index=False)
        shown[name] = [
            f"{one:.{digits}f} [{least:.{digits}f}, {most:.{digits}f}]"
            for one, least, most in numbers
        ]
    return shown.assign(verdict=rows["verdict"])


def detectable(rows: pd.DataFrame) -> Estimates:
    """The smallest difference that is found, by source and estimator."""
    numbers = rows.rename(columns={"detectable": "estimate"})
    return Estimates(
        numbers[["source", "estimator", "estimate", "low", "high"]], digits=3
    )


def limit(rows: pd.DataFrame, prompts: int) -> float:
    """The spread up to which `prompts` prompts a domain find the difference of rows of `of_claim`
    (in the family of all pairs of the paper's domains).
    """
    family = comb(len(DOMAINS), 2)
    of_one = power.Design(np.full(3, 2**0.5))  # a spread of 1 on both sides
    least = of_one.detectable(prompts, comparisons=family)[0]
    return float(rows["difference"].abs().iloc[0] / least)


def numbers_of_plans(rows: pd.DataFrame, source: str) -> dict[str, float]:
    """What is found at the spreads of one source, from rows of `of_claim`, by estimator."""
    own = rows[rows["source"] == source]
    return {
        f"detectable_{SHORT[row.estimator]}": float(row.detectable)
        for row in own.itertuples()
    }


def enough_said(
    rows: pd.DataFrame, prompts: int, records: Mapping[str, AuthorRecords]
) -> str:
    """For which spreads `prompts` prompts a domain are enough, from rows of `of_claim`; whether the
    spread of the published run is among them.
    """
    size = rows["difference"].abs().iloc[0]
    lines = [
        f"The paper's difference between {OF_CLAIM[1]} and {OF_CLAIM[0]} is {size:.3f}; "
        f"{prompts} prompts a domain find it where the spread between prompts (their standard "
        f"deviation within a domain) is at most {limit(rows, prompts):.3f}. At a spread of\n"
    ]
    for verdict, words in (
        (YES, f"{prompts} prompts a domain are **enough**"),
        (NO, f"{prompts} prompts a domain are **too few**"),
        (UNSURE, "the interval leaves it **open**"),
    ):
        members = rows[rows["verdict"] == verdict]
        listed = "; ".join(_spread_said(row) for row in members.itertuples())
        if listed:
            lines.append(f"* {listed}: {words}.")
    return "\n".join(lines) + "\n\n" + _published_said(records)


def _spread_said(row) -> str:
    lent = f", {row.of_domain}'s for both" if row.of_domain else ""
    return (
        f"{row.spread:.3f} [{row.spread_low:.3f}, {row.spread_high:.3f}] ({row.source}, "
        f"`{row.estimator}`{lent}; {row.needed:,} prompts needed)"
    )


def _published_said(records: Mapping[str, AuthorRecords]) -> str:
    whole = [AUTHORS.format(run) for run in whole_runs(records)]
    if whole:
        return f"The spread of {', '.join(whole)} is that of the paper's own prompts and pair."
    return (
        "The spread of the published run itself is not known here: its file of records is not "
        "among those read, so whether its 50 prompts were enough is not decided by the above."
    )

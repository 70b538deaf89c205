"""Do loops carry the acceptance of a domain, and which domains differ? The main estimators of the
whole greedy texts, of what lies outside loops there, and of the sampled texts.
"""

from dataclasses import dataclass

import pandas as pd

from speclab import score
from speclab.analysis import loops, significance
from speclab.score import Estimator, domains_in
from speclab.show.estimates import Estimates, stack
from speclab.stats import MIN_PROMPTS
from speclab.studies.domain_acceptance.ladder import NOT_APART

UNTOLD = "cannot be told"
TEXTS = (loops.WHOLE, loops.OUTSIDE, loops.SAMPLED)


@dataclass(frozen=True)
class Asked:
    """An estimator, its rule at T = 1 where that is another, and the rows of each of TEXTS."""

    estimator: Estimator
    at_1: Estimator
    frames: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]


def main_estimators(greedy, sampled) -> dict[str, Asked]:
    """Estimators that have a meaning on all three texts, by name: hit[1] (of sampled text exact for
    the draft's best token under the point-mass rule), published_alpha, and `block_efficiency`
    (every position a possible start), which takes the point-mass rule at T = 1.
    """
    traces = (greedy.trace, loops.outside(greedy.trace, greedy.trace), sampled.trace)
    nodes = (greedy.nodes, loops.outside(greedy.nodes, greedy.trace), sampled.nodes)
    per_pass, at_1 = (
        score.tree_estimators(rule)["block_efficiency"]
        for rule in ("greedy", "point-mass")
    )
    hit = score.member(score.hit, 1)
    return {
        "hit[1]": Asked(hit, hit, traces),
        "published_alpha": Asked(score.published_alpha, score.published_alpha, nodes),
        "block_efficiency": Asked(per_pass, at_1, nodes),
    }


def three_estimates(asked: dict[str, Asked]) -> dict[str, Estimates]:
    """Each estimator by text and domain (`loops.side_by_side`)."""
    return {
        name: loops.side_by_side(*one.frames, one.estimator, one.at_1)
        for name, one in asked.items()
    }


def pairs_told_apart(asked: dict[str, Asked], level: float) -> pd.DataFrame:
    """Which pairs of domains the test tells apart, in each text: estimator, text, pair, verdict
    ('code > chat', NOT_APART, or UNTOLD where too few prompts are left).
    """
    parts = {}
    for name, one in asked.items():
        estimators = (one.estimator, one.estimator, one.at_1)
        of_texts = zip(TEXTS, one.frames, estimators, strict=True)
        domains = domains_in(one.frames[0])
        parts[name] = stack(
            {
                text: _verdicts(frame, estimator, domains, level)
                for text, frame, estimator in of_texts
            },
            "text",
        )
    return stack(parts, "estimator")


def _verdicts(
    frame: pd.DataFrame, estimator: Estimator, domains: tuple[str, ...], level: float
) -> pd.DataFrame:
    prompts = frame.groupby("domain")["prompt_id"].nunique()
    known = [name for name in domains if prompts.get(name, 0) >= MIN_PROMPTS]
    rows = {
        f"{first} − {second}": UNTOLD
        for number, first in enumerate(domains)
        for second in domains[number + 1 :]
    }
    if len(known) > 1:
        own = frame[frame["domain"].isin(known)]
        for row in significance.differences(own, estimator, known).itertuples():
            sign = ">" if row.difference > 0 else "<"
            apart = f"{row.first} {sign} {row.second}"
            said = apart if row.p_holm < level else NOT_APART
            rows[f"{row.first} − {row.second}"] = said
    return pd.DataFrame(list(rows.items()), columns=["pair", "verdict"])


def counted(found: pd.DataFrame) -> pd.DataFrame:
    """How many pairs are told apart: a row an estimator, a column a text."""
    apart = ~found["verdict"].isin([NOT_APART, UNTOLD])
    counts = apart.groupby([found["estimator"], found["text"]], sort=False)
    table = counts.agg(lambda rows: f"{rows.sum()} of {len(rows)}").unstack("text")
    return table[list(TEXTS)].rename_axis(columns=None).reset_index()


def pairs_changed(found: pd.DataFrame, text: str) -> str:
    """Verdicts on pairs of domains that are others in a text than in the whole greedy texts."""
    wide = found.pivot(index=["estimator", "pair"], columns="text", values="verdict")
    wide = wide.loc[found.set_index(wide.index.names).index.unique()]
    other = wide[wide[loops.WHOLE] != wide[text]]
    if other.empty:
        return f"{text}: every verdict is the same."
    said = [
        f"`{name}` {pair} ({row[loops.WHOLE]} becomes {row[text]})"
        for (name, pair), row in zip(other.index, other.to_dict("records"), strict=True)
    ]
    return (
        f"{text}: {len(other)} of {len(wide)} verdicts are others: {'; '.join(said)}."
    )

"""Do loops carry the acceptance of a domain, and which domains differ? The main estimators of the
whole greedy texts, of what lies outside loops there, and of the sampled texts.
"""

from itertools import combinations

import pandas as pd

from speclab import score
from speclab.analysis import loops, significance
from speclab.score import Estimator, domains_in
from speclab.show.estimates import Estimates, stack
from speclab.stats import MIN_PROMPTS
from speclab.studies.domain_acceptance.ladder import NOT_APART

UNTOLD = "cannot be told"
TEXTS = (loops.WHOLE, loops.OUTSIDE, loops.SAMPLED)


Asked = dict[
    str, tuple[pd.DataFrame, Estimator]
]  # by text: its rows, and what is asked


def main_estimators(greedy, sampled) -> dict[str, Asked]:
    """Estimators that have a meaning on all three texts, by name: hit[1] (of sampled text exact for
    the draft's best token under the point-mass rule), published_alpha, and `block_efficiency`
    (every position a possible start), which takes the point-mass rule at T = 1.
    """
    traces = (greedy.trace, loops.outside(greedy.trace, greedy.trace), sampled.trace)
    nodes = (greedy.nodes, loops.outside(greedy.nodes, greedy.trace), sampled.nodes)
    per_pass = [
        score.tree_estimators(rule)["block_efficiency"]
        for rule in ("greedy", "greedy", "point-mass")
    ]
    asked = {
        "hit[1]": (traces, [score.member(score.hit, 1)] * 3),
        "published_alpha": (nodes, [score.published_alpha] * 3),
        "block_efficiency": (nodes, per_pass),
    }
    return {
        name: dict(zip(TEXTS, zip(*of_texts, strict=True), strict=True))
        for name, of_texts in asked.items()
    }


def three_estimates(asked: dict[str, Asked]) -> dict[str, Estimates]:
    """Each estimator by text and domain (`loops.side_by_side`)."""
    found = {}
    for name, of_texts in asked.items():
        frames, (whole, _, at_1) = zip(*of_texts.values(), strict=True)
        found[name] = loops.side_by_side(*frames, whole, at_1)
    return found


def pairs_told_apart(asked: dict[str, Asked], level: float) -> pd.DataFrame:
    """Which pairs of domains the test tells apart, in each text: estimator, text, pair, verdict
    ('code > chat', NOT_APART, or UNTOLD where too few prompts are left).
    """
    parts = {}
    for name, of_texts in asked.items():
        domains = domains_in(of_texts[loops.WHOLE][0])
        verdicts = {
            text: _verdicts(*one, domains, level) for text, one in of_texts.items()
        }
        parts[name] = stack(verdicts, "text")
    return stack(parts, "estimator")


def _verdicts(
    frame: pd.DataFrame, estimator: Estimator, domains: tuple[str, ...], level: float
) -> pd.DataFrame:
    prompts = frame.groupby("domain")["prompt_id"].nunique()
    known = [name for name in domains if prompts.get(name, 0) >= MIN_PROMPTS]
    rows = {" − ".join(pair): UNTOLD for pair in combinations(domains, 2)}
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

"""What 'acceptance' can mean on one pair: the ladder of estimators, which domains differ under each
of them, and what other prompts say of that.
"""

import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.analysis.prompt_sets import (
    CHANGE,
    ENGLISH,
    LAST,
    LEAD,
    OWN,
    SECOND,
    SPREAD,
    UNWRAPPED,
)
from speclab.analysis.texts import Text
from speclab.estimates import (
    Estimates,
    named,
    stack,
    starting,
    whole,
)
from speclab.score import Estimator
from speclab.stats import NUMBERS
from speclab.tree import Tree

Questions = dict[str, tuple[pd.DataFrame, Estimator]]

OF_NO_LOSSLESS = ("published_alpha", "best_path_ratio", "published_length")
# in tokens per target pass; the other rungs are shares of tokens
LENGTHS = ["published_length", "block_efficiency"]
MAIN = ("published_alpha", "hit[1]", "alpha", "block_efficiency")  # whose pairs are drawn
MOST_PAIRS = 30  # that a figure has room for


# ---- the ladder ----------------------------------------------------------------------------------


def questions(greedy: Text, sampled: Text, tree: Tree) -> Questions:
    """The rungs of the ladder by name: rows, estimator. What needs nodes is of the first seed; what
    the recorded tree emits per block is over the blocks that a decoder visits.
    """
    hits = [score.member(score.hit, k) for k in (1, 2)]
    masses = [score.member(score.top_mass, k) for k in (1, 2)]
    block_efficiency = score.block_estimators()["block_efficiency"]
    greedy_blocks = replay.prompt_sums(greedy.tree(tree))
    sampled_blocks = replay.prompt_sums(sampled.tree(tree))
    rows = [
        (greedy, greedy.nodes, [score.published_alpha, score.best_path_ratio]),
        (greedy, greedy.trace, hits),
        (sampled, sampled.nodes, [score.published_alpha]),
        (sampled, sampled.trace, [score.alpha, *masses]),
        (greedy, greedy.nodes, [score.published_length]),
        (greedy, greedy_blocks, [block_efficiency]),
        (sampled, sampled_blocks, [block_efficiency]),
    ]
    rungs = {}
    for text, frame, estimators in rows:
        for estimator in estimators:
            rungs[f"{estimator.name}, {text.name}"] = (frame, estimator)
    return rungs


def ladder(rungs: Questions) -> Estimates:
    """Every rung by domain: name, estimator, text, domain, estimate, low, high, n_prompts."""
    parts = {name: stats.by_domain(*question) for name, question in rungs.items()}
    table = stack(parts, "name")
    text = table["name"].str.rpartition(", ")[2]
    table.insert(2, "text", text)
    return Estimates(table, digits=3)


def main_rungs(tests: pd.DataFrame) -> pd.DataFrame:
    """The tests of the MAIN estimators: of each its first rung (T = 0 where it has two)."""
    names = list(pd.unique(tests["name"]))
    chosen = [next(name for name in names if name.startswith(f"{of},")) for of in MAIN]
    return tests[tests["name"].isin(chosen)]


def widest_pairs(tests: pd.DataFrame) -> pd.DataFrame:
    """The tests of the MOST_PAIRS pairs of domains that differ the most under `hit[1]`; of fewer
    pairs all. tests: of `main_rungs`.
    """
    hits = tests[tests["name"].str.startswith("hit[1]")]
    widest = hits.loc[hits["difference"].abs().nlargest(MOST_PAIRS).index, "pair"]
    return tests[tests["pair"].isin(widest)]


def conflict(signs: pd.DataFrame) -> str:
    """Whether a pair of domains differs one way under one rung and the other way under another, as
    a sentence. signs: of `wide_signs`.
    """
    both = (signs > 0).any() & (signs < 0).any()
    if both.any():
        return f"Some definitions contradict each other on {named(list(signs.columns[both]))}."
    if not signs.any(axis=None):
        return "No definition finds a significant difference."
    return "No two definitions contradict each other."


def wide_signs(tests: pd.DataFrame) -> pd.DataFrame:
    """`significance.with_signs` by name: a row a rung, a column a pair."""
    return tests.pivot_table("sign", "name", "pair", sort=False)


def shared_ranks(tests: pd.DataFrame) -> pd.DataFrame:
    """Rank of each domain (a column) under each rung (a row), 1 = highest: one more than the
    domains that are significantly above, and half of one for each that does not differ
    significantly. tests: of `significance.with_signs`, by name.
    """
    first = tests.assign(domain=tests["first"])
    second = tests.assign(domain=tests["second"], sign=-tests["sign"])
    both = pd.concat([first, second])
    both["above"] = (1 - both["sign"]) / 2
    return 1 + both.pivot_table("above", "name", "domain", aggfunc="sum", sort=False)


def orders(by_domain: Estimates, signs: pd.DataFrame) -> pd.Series:
    """Domains from the highest value down under each rung, by name: `>` between neighbours that
    differ significantly, else `≈`. signs: of `wide_signs`.
    """
    texts = {}
    for name, rung in by_domain.groups("name"):
        significant = signs.loc[name].abs()
        before, *lower = rung.frame.sort_values("estimate", ascending=False)["domain"]
        texts[name] = before
        for domain in lower:
            pairs = [f"{before} − {domain}", f"{domain} − {before}"]
            differs = significant.reindex(pairs).any()
            texts[name] += f" {'>' if differs else '≈'} {domain}"
            before = domain
    return pd.Series(texts)


def with_ranks(by_domain: Estimates, ranks: pd.DataFrame) -> pd.DataFrame:
    """Levels with their intervals, and the `rank` of each domain that was tested."""
    places = [ranks.loc[row.name].get(row.domain, np.nan) for row in by_domain.rows()]
    return by_domain.frame.assign(rank=places)


# ---- other prompts -------------------------------------------------------------------------------
IN_WORDS = {OWN: "on our own prompts", UNWRAPPED: "without wrapper", SECOND: "in the second set"}


def on_other_prompts(contrasts: pd.DataFrame) -> str:
    """The first set's order of the domains, what of it holds on the others and how its spread
    changes, as sentences.

    contrasts: of shares (`prompt_sets.contrasts_by_set`), by name (temperature). What holds is
    significant under each name; numbers, in points, are those of the first.
    """
    rows = contrasts[contrasts["set"] != ENGLISH].copy()
    rows["where"] = [IN_WORDS.get(name, f"in the set {name}") for name in rows["set"]]
    rows[[*NUMBERS, *CHANGE]] *= 100
    rows["to"] = rows["estimate"].map("{:.0f} ".format) + rows["where"]
    rows["temperature"] = rows["name"].str.rpartition(", ")[2]
    temperature = rows["temperature"].iloc[0]
    of_role = dict(iter(rows.groupby("role")))
    spreads = of_role[SPREAD]
    first, last = spreads["contrast"].iloc[0].split(" − ")
    sentences = []
    if LEAD in of_role:
        leads = of_role[LEAD]
        led_by_another = leads["highest"] != first
        easiest = _holds("the easiest", leads.assign(low=leads["low"].mask(led_by_another, 0)))
        lead = Estimates(leads.query("temperature == @temperature"), digits=0).span()
        sentences += [f"{first} {easiest} ({lead} points above the others' mean at {temperature})"]
    else:
        sentences += [f"{first} {_holds(f'above {last}', spreads)}"]
    own, *others = spreads.query("temperature == @temperature").to_dict("records")
    spread = f"{own['estimate']:.0f} points"
    if others:
        changes = Estimates.of(pd.DataFrame(others), "change", ["to"])
        verbs = "grows to", "shrinks to", "moves, not significantly, to"
        change = changes.sentence(*verbs, "to")
        sentences += [f"its lead over {last}, {spread}, {change}"]
    else:
        sentences += [f"its lead over {last} is {spread} at {temperature}"]
    if LAST in of_role:
        sentences += [f"{last} {_holds('the hardest', of_role[LAST])}"]
    return " ".join(f"{starting(sentence)}." for sentence in sentences)


def _holds(what: str, rows: pd.DataFrame) -> str:
    """'is the easiest in all three prompt sets', or in which sets it is not significantly, or at
    one temperature only; of one set without the sets.
    """
    limits: dict[str, list[str]] = {}
    sets = rows.groupby("where", sort=False)
    for where, texts in sets:
        is_above = stats.verdict(texts["low"], texts["high"]) == stats.ABOVE
        temperatures = list(texts.loc[is_above, "temperature"])
        words = f"is significantly {what} at {named(temperatures)} only"
        if not temperatures:
            words = f"is not significantly {what}"
        if not is_above.all():
            limits.setdefault(words, []).append(where)
    if not limits:
        everywhere = f"is {what} in {whole('prompt set', len(sets))}"
        return everywhere if len(sets) > 1 else f"is significantly {what}"
    words, places = next(iter(limits.items()))
    if len(sets) == 1:
        return words
    if len(places) == len(sets):
        return f"{words} in any prompt set"
    return ", ".join(f"{words} {named(places)}" for words, places in limits.items())

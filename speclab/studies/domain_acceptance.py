"""What 'acceptance' can mean on one pair: definitions of acceptance (the ladder of estimators),
which domains differ under each of them, and which differences hold on other prompts.
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
    farthest,
)
from speclab.analysis.texts import Text
from speclab.estimates import Estimates, counted, named, stack, starting, whole
from speclab.score import Estimator
from speclab.stats import NUMBERS
from speclab.tree import Tree

Questions = dict[str, tuple[pd.DataFrame, Estimator]]

OF_NO_LOSSLESS = ("published_alpha", "best_path_ratio", "published_length")
# in tokens per target pass; the other definitions are shares of tokens
LENGTHS = ("published_length", "block_efficiency")
MAIN = ("published_alpha", "hit[1]", "alpha", "block_efficiency")  # whose pairs are drawn
MOST_PAIRS = 30  # that a figure has room for
# what a figure calls them: what is drafted, and verified
IN_FIGURES = {
    "hit[1]": "best token",
    "hit[2]": "two best tokens",
    "alpha": "drawn token",
    "top_mass[1]": "best token",
    "top_mass[2]": "two best tokens",
    "block_efficiency": "recorded tree",
    "published_alpha": "all nodes of the tree",
    "best_path_ratio": "best path of the tree",
    "published_length": "expected length E[L]",
}
EXACT, PUBLISHED = "Exact: what a lossless decoder accepts", "Published: accepted by no decoder"


# ---- the ladder ----------------------------------------------------------------------------------


def questions(greedy: Text, sampled: Text, tree: Tree) -> Questions:
    """The definitions of acceptance by name, each as rows and an estimator. Estimators that need
    nodes use the first seed. `block_efficiency` uses the blocks that a decoder of the recorded tree
    visits.
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
    """Every definition by domain: name, estimator, text, domain, estimate, low, high, n_prompts."""
    parts = {name: stats.by_domain(*question) for name, question in rungs.items()}
    table = stack(parts, "name")
    text = table["name"].str.rpartition(", ")[2]
    table.insert(2, "text", text)
    return Estimates(table)


def in_blocks(by_domain: Estimates) -> pd.DataFrame:
    """The ladder as `drawings.draw_blocks` draws it: what is exact and what was published, shares
    above tokens per target pass.
    """
    frame = by_domain.frame
    is_exact = ~frame["estimator"].isin(OF_NO_LOSSLESS)
    is_length = frame["estimator"].isin(LENGTHS)
    block = np.where(is_exact, EXACT, PUBLISHED)
    axis = np.where(is_length, "tokens per target pass", "tokens accepted (%)")
    drawn = frame.assign(block=block, axis=axis, row=in_figures(frame["name"]))
    order = np.lexsort([~is_exact, is_length])
    return drawn.iloc[order].reset_index(drop=True)


def in_figures(names: pd.Series) -> pd.Series:
    """Names of definitions in words: 'best token, T = 0' for 'hit[1], T = 0'."""
    parts = names.str.rpartition(", ")
    return parts[0].map(IN_FIGURES) + ", " + parts[2]


def main_rungs(tests: pd.DataFrame) -> pd.DataFrame:
    """The tests of the MAIN estimators, each at its first temperature."""
    names = list(pd.unique(tests["name"]))
    chosen = [next(name for name in names if name.startswith(f"{of},")) for of in MAIN]
    return tests[tests["name"].isin(chosen)]


def widest_pairs(tests: pd.DataFrame) -> pd.DataFrame:
    """The tests of the MOST_PAIRS pairs of domains that differ the most under `hit[1]`, or of all
    pairs if there are fewer. tests: of `main_rungs`.
    """
    hits = tests[tests["name"].str.startswith("hit[1]")]
    widest = hits.loc[hits["difference"].abs().nlargest(MOST_PAIRS).index, "pair"]
    return tests[tests["pair"].isin(widest)]


def how_many_differ(tests: pd.DataFrame) -> str:
    """How many pairs of domains differ significantly, as a title. tests: of `main_rungs`."""
    counts = tests.groupby("name")["sign"].agg(np.count_nonzero)
    every = tests["pair"].nunique()
    least, most = counts.min(), counts.max()
    if most == 0:
        return "No pair of domains differs significantly"
    if least == every:
        pairs = "Both domains differ" if every == 1 else f"All {every} pairs of domains differ"
        return f"{pairs} significantly under each definition"
    ends = " to ".join(map(str, dict.fromkeys((least, most))))
    return f"{ends} of {counted(every, 'pair')} of domains differ significantly, by definition"


def conflict(signs: pd.DataFrame) -> str:
    """Whether two definitions put a pair of domains in opposite orders, as a sentence. signs: of
    `wide_signs`.
    """
    both = (signs > 0).any() & (signs < 0).any()
    if count := both.sum():
        pairs = counted(count, "pair")
        return f"Definitions of acceptance put {pairs} of domains in opposite orders."
    if not signs.any(axis=None):
        return "No definition of acceptance finds a significant difference between domains."
    return "No two definitions of acceptance put domains in opposite orders."


def wide_signs(tests: pd.DataFrame) -> pd.DataFrame:
    """`significance.with_signs` by name: one row per definition, one column per pair."""
    return tests.pivot_table("sign", "name", "pair", sort=False)


def orders(by_domain: Estimates, signs: pd.DataFrame) -> pd.Series:
    """Domains from the highest value to the lowest under each definition, by name: `>` between
    neighbours that differ significantly, else `≈`. signs: of `wide_signs`.
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


# ---- other prompts -------------------------------------------------------------------------------

IN_WORDS = {OWN: "on our own prompts", UNWRAPPED: "without wrapper", SECOND: "in the second set"}
CHANGES = "grows to", "shrinks to", "changes, but not significantly, to"


def on_other_prompts(contrasts: pd.DataFrame) -> str:
    """The order of the domains on our own prompts, which sets it holds on, and how its spread
    changes, as sentences.

    contrasts: of shares (`prompt_sets.contrasts_by_set`), by name (temperature). The numbers, in
    points, are those of the first temperature.
    """
    rows = _in_points(contrasts)
    of_role = dict(iter(rows.groupby("role")))
    spreads = of_role[SPREAD]
    temperature = rows["temperature"].iloc[0]
    last = spreads["contrast"].iloc[0].rpartition(" − ")[2]
    sentences = [easiest(contrasts)]
    if LEAD in of_role:
        leads = of_role[LEAD].query("temperature == @temperature")
        ahead = f"{Estimates(leads, digits=0).span()} points above the others' mean"
        sentences = [f"{sentences[0]} ({ahead} at {temperature})"]
    own, *others = spreads.query("temperature == @temperature").to_dict("records")
    spread = f"{own['estimate']:.0f} points"
    if others:
        changes = Estimates.of(pd.DataFrame(others), "change", ["to"])
        change = changes.sentence(*CHANGES, "to").replace("; ", " and ")
        sentences += [f"its lead over {last}, {spread}, {change}"]
    else:
        sentences += [f"its lead over {last} is {spread} at {temperature}"]
    if LAST in of_role:
        lasts = of_role[LAST]
        is_another = lasts["contrast"].str.rpartition(" − ")[2] != last
        sentences += [f"{last} {_holds('the hardest', lasts, is_another)}"]
    return " ".join(f"{starting(sentence)}." for sentence in sentences)


def easiest(contrasts: pd.DataFrame) -> str:
    """On which sets of prompts the first set's highest domain is the highest, as a title. Of two
    domains: on which it is above the other.
    """
    rows = _in_points(contrasts)
    of_role = dict(iter(rows.groupby("role")))
    spreads = of_role[SPREAD]
    first, last = spreads["contrast"].iloc[0].split(" − ")
    if LEAD in of_role:
        leads = of_role[LEAD]
        is_named = leads["contrast"].str.startswith(f"{first} − ")
        is_another = ~is_named | (leads["highest"] != first)
        return f"{starting(first)} {_holds('the easiest', leads, is_another)}"
    is_another = spreads["contrast"] != f"{first} − {last}"
    return f"{starting(first)} {_holds(f'above {last}', spreads, is_another)}"


def order_in_words(tests: pd.DataFrame, contrasts: pd.DataFrame, elsewhere: str) -> str:
    """Whether acceptance depends on the domain, as three short sentences.

    tests: of the pairs at the first temperature (`significance.with_signs`); contrasts: as of
    `on_other_prompts`; elsewhere: the last sentence.
    """
    significant = tests[tests["sign"] != 0]
    shown = tests if significant.empty else significant
    widest = shown.loc[shown["difference"].abs().idxmax()]
    higher, lower = widest["first"], widest["second"]
    if widest["difference"] < 0:
        higher, lower = lower, higher
    points = f"{100 * abs(widest['difference']):.0f} points"
    said = f"Yes, at T = 0 acceptance is {points} higher in {higher} than in {lower}."
    if significant.empty:
        said = f"No domains differ significantly at T = 0 ({higher} minus {lower}: {points})."
    rows = _in_points(contrasts)
    other = farthest(rows["set"].unique())
    holds = easiest(contrasts)
    if other and " not " not in holds:
        spread = rows[(rows["role"] == SPREAD) & (rows["set"] == other)][:1]
        last = spread["contrast"].iloc[0].rpartition(" − ")[2]
        to = spread["estimate"].map("{:.0f} points ".format) + spread["where"]
        change = Estimates.of(spread.assign(to=to), "change", ["to"]).sentence(*CHANGES, "to")
        holds += f", and its lead over {last} {change}"
    return f"{said} {holds}. {elsewhere}"


def reversed_in_words(carried: pd.DataFrame) -> str:
    """Whether significant differences are reversed on other prompts, as a sentence. carried: of
    `prompt_sets.carried`.
    """
    if carried["set"].nunique() == 1:
        return "No other prompt set has all these domains."
    turned = int(carried["reversed"].sum())
    if not turned:
        return "No significant difference is reversed."
    return f"{counted(turned, 'significant difference')} {'is' if turned == 1 else 'are'} reversed."


def _in_points(contrasts: pd.DataFrame) -> pd.DataFrame:
    """Contrasts in points, with `where` (the set in words), `to` (the number and where) and
    `temperature`; without the English part of the second set.
    """
    rows = contrasts[contrasts["set"] != ENGLISH].copy()
    rows["where"] = [IN_WORDS.get(name, f"in the set {name}") for name in rows["set"]]
    rows[[*NUMBERS, *CHANGE]] *= 100
    rows["to"] = rows["estimate"].map("{:.0f} ".format) + rows["where"]
    rows["temperature"] = rows["name"].str.rpartition(", ")[2]
    return rows


def _holds(what: str, rows: pd.DataFrame, is_another: pd.Series) -> str:
    """'is the easiest in all three prompt sets', 'is the easiest in 2 of 3 prompt sets, but not
    significantly at T = 1 in the second set', 'is not significantly the easiest in any prompt set'.

    is_another: whether a row says this of another domain, so that it cannot hold there.
    """
    is_above = stats.verdict(rows["low"], rows["high"]) == stats.ABOVE
    known = rows.assign(holds=is_above & ~is_another)
    sets = known.groupby("where", sort=False)
    exceptions = []
    for where, texts in sets:
        temperatures = list(texts.loc[~texts["holds"], "temperature"])
        if len(temperatures) == len(texts):
            exceptions.append(where)
        elif temperatures:
            exceptions.append(f"at {named(temperatures)} {where}")
    count = len(sets)
    complete = count - len(exceptions)
    if not known["holds"].any():
        nowhere = f"is not significantly {what}"
        return f"{nowhere} in any prompt set" if count > 1 else nowhere
    if count == 1:
        held = dict.fromkeys(known.loc[known["holds"], "temperature"])
        here = f"is significantly {what}"
        return f"{here} at {named([*held])} only" if exceptions else here
    if complete == count:
        return f"is {what} in {whole('prompt set', count)}"
    if complete == 0:
        return f"is not significantly {what} {named(exceptions)}"
    return (
        f"is {what} in {complete} of {count} prompt sets, but not significantly {named(exceptions)}"
    )

"""What 'acceptance' can mean on one pair: definitions of acceptance (the ladder of estimators),
which domains differ under each of them, and which differences hold on other prompts.
"""

from collections.abc import Mapping

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
LONGEST_TITLE = 90  # characters
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
EXACT, PUBLISHED = "Exact: what a lossless decoder accepts", "From min(1, p/q): not exact"
SHARES = ("tokens accepted (%)", "mean of min(1, p/q) (%)")  # axes: exact, published
TOKENS = ("tokens per target pass", "E[L] (tokens)")


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
    exact, published = (np.where(is_length, *axes) for axes in zip(TOKENS, SHARES, strict=True))
    axis = np.where(is_exact, exact, published)
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
    if every == 1:
        return "Whether the domains differ significantly depends on the definition"
    if least == most:
        verb = "differs" if most == 1 else "differ"
        return f"{most} of {every} pairs of domains {verb} significantly under each definition"
    ends = f"{least} or all {every}" if least == every - 1 else f"{least} to {most} of {every}"
    return f"Depending on the definition, {ends} pairs of domains differ significantly"


def conflict(signs: pd.DataFrame) -> str:
    """Whether definitions disagree about pairs, as a sentence. signs: of `wide_signs`."""
    both = (signs > 0).any() & (signs < 0).any()
    if count := both.sum():
        pairs = counted(count, "pair")
        return f"Definitions of acceptance put {pairs} of domains in opposite orders."
    if not signs.any(axis=None):
        return "No definition of acceptance finds a significant difference between domains."
    if (signs == signs.iloc[0]).all(axis=None):
        return "The same pairs are significant under every definition."
    return (
        "Some pairs are significant under one definition and not under another, but no pair "
        "changes its direction."
    )


def highest_and_lowest(by_domain: Estimates, signs: pd.DataFrame) -> str:
    """Which domains are the highest and the lowest under the definitions, as a title. "": they
    are too many for a title. signs: of `wide_signs`.
    """
    both = (signs > 0).any() & (signs < 0).any()
    if both.any() or not signs.any(axis=None):
        return conflict(signs).rstrip(".")
    values = by_domain.frame.pivot(index="name", columns="domain", values="estimate")
    highest, lowest = (dict.fromkeys(end) for end in (values.idxmax(axis=1), values.idxmin(axis=1)))
    title = (
        f"Under every definition {' or '.join(highest)} is highest, and {' or '.join(lowest)} is "
        "lowest"
    )
    return "" if highest.keys() & lowest or len(title) > LONGEST_TITLE else title


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

IN_WORDS = {
    OWN: "on our own prompts",
    UNWRAPPED: "without wrapper",
    SECOND: "in the second prompt set",
}
NO_OTHER = "No other prompt set has all these domains."
CHANGES = "grows significantly", "shrinks significantly", "does not change significantly"
HIGHEST, LOWEST = "has the highest acceptance", "has the lowest acceptance"


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
    first, last = spreads["contrast"].iloc[0].split(" − ")
    sentences = []
    if LEAD in of_role:
        leads = of_role[LEAD]
        sentences += _where(f"{first} {HIGHEST}", leads, _is_another(leads, first))
        ahead = Estimates(leads.query("temperature == @temperature"), digits=0).span()
        sentences += [f"At {temperature} {first} minus the mean of the others is {ahead} points"]
    own, *others = spreads.query("temperature == @temperature").to_dict("records")
    numbers = [f"{own['estimate']:.0f} points {own['where']}"]
    numbers += [f"{row['estimate']:.0f} {row['where']}" for row in others]
    sentences += [f"At {temperature} {first} minus {last} is {named(numbers)}"]
    if others:
        changes = Estimates.of(pd.DataFrame(others), "change", ["where"])
        change = changes.sentence(*CHANGES, "where").replace("; ", " and ")
        sentences += [f"This difference {change}"]
    if LAST in of_role:
        lasts = of_role[LAST]
        is_another = lasts["contrast"].str.rpartition(" − ")[2] != last
        sentences += _where(f"{last} {LOWEST}", lasts, is_another)
    return " ".join(f"{sentence}." for sentence in sentences)


def easiest(contrasts: pd.DataFrame) -> str:
    """On how many sets of prompts the first set's highest domain is the highest, as a title. Of two
    domains: on how many it is above the other.
    """
    rows = _in_points(contrasts)
    of_role = dict(iter(rows.groupby("role")))
    spreads = of_role[SPREAD]
    first, last = spreads["contrast"].iloc[0].split(" − ")
    if LEAD in of_role:
        leads, what = of_role[LEAD], HIGHEST
        is_another = _is_another(leads, first)
    else:
        leads, what = spreads, f"has a higher acceptance than {last}"
        is_another = spreads["contrast"] != f"{first} − {last}"
    held = _held(leads, is_another)
    count = len(held)
    complete = sum(times == ALWAYS for times in held.values())
    where = f" in {complete} of {count} prompt sets" if complete < count else ""
    if complete == count > 1:
        where = f" in {whole('prompt set', count)}"
    if not complete:
        return _nowhere(f"{first} {what}", held)
    return f"{starting(first)} {what}{where}"


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
    said = (
        f"Yes. At T = 0 the target accepts the draft's best token {points} more often in {higher} "
        f"than in {lower}."
    )
    if significant.empty:
        said = f"No domains differ significantly at T = 0 ({higher} minus {lower}: {points})."
    rows = _in_points(contrasts)
    if other := farthest(rows["set"].unique()):
        spread = rows[(rows["role"] == SPREAD) & (rows["set"] == other)].iloc[0]
        first, last = spread["contrast"].split(" − ")
        there = f"{first} minus {last} is {spread['estimate']:.0f} points".replace("-", "−")
        said += f" {starting(spread['where'])}, {there}."
    return f"{said} {elsewhere}".rstrip()


def carried_in_words(carried: pd.DataFrame) -> str:
    """How many significant differences stay significant on other prompts, as sentences. carried: of
    `prompt_sets.carried`, by name.
    """
    others = carried[~carried["set"].isin([OWN, ENGLISH])]
    if others.empty:
        return NO_OTHER
    rows = others[others["compared"] > 0]
    if rows.empty:
        return "No difference is significant on our own prompts."
    sentences = []
    for name, sets in rows.groupby("name", sort=False):
        parts: list[str] = []
        for row in sets.itertuples():
            pairs = row.compared if parts else counted(row.compared, "significant pair")
            parts.append(f"{row.same} of {pairs} {in_words(row.set)}")
        temperature = name.rpartition(", ")[2]
        sentences.append(f"At {temperature} we again find {named(parts)}.")
    turned = rows["reversed"].sum()
    verb = "is" if turned == 1 else "are"
    said = f"{counted(turned, 'pair')} {verb} reversed." if turned else "No pair is reversed."
    sentences.append(said)
    return " ".join(sentences)


def last_carried(carried: pd.DataFrame) -> str:
    """The result of `carried_in_words` on the last set at the first temperature, as a short
    sentence after one about this set.
    """
    rows = carried[carried["name"] == carried["name"].iloc[0]].set_index("set")
    other = farthest(rows.index)
    if other is None:
        return NO_OTHER
    row = rows.loc[other]
    if not row["compared"]:
        return ""
    turned = f" ({row['reversed']} reversed)" if row["reversed"] else ""
    verb = "is" if row["same"] == 1 else "are"
    count = counted(row["compared"], "significant difference")
    return f"Of {count}, {row['same']} {verb} significant there, too{turned}."


def in_words(name: str) -> str:
    """Where a finding holds: 'on our own prompts', 'in the set mine'."""
    return IN_WORDS.get(name, f"in the set {name}")


def _in_points(contrasts: pd.DataFrame) -> pd.DataFrame:
    """Contrasts in points, with `where` (the set in words) and `temperature`; without the English
    part of the second set.
    """
    rows = contrasts[contrasts["set"] != ENGLISH].copy()
    rows["where"] = rows["set"].map(in_words)
    rows[[*NUMBERS, *CHANGE]] *= 100
    rows["temperature"] = rows["name"].str.rpartition(", ")[2]
    return rows


ALWAYS, NEVER = "significant", "not significant"


def _is_another(leads: pd.DataFrame, first: str) -> pd.Series:
    """Whether a row of LEAD is about another domain than `first`, or another one is the highest."""
    return ~leads["contrast"].str.startswith(f"{first} − ") | (leads["highest"] != first)


def _held(rows: pd.DataFrame, is_another: pd.Series) -> dict[str, str]:
    """At which temperatures the contrasts are significantly positive: ALWAYS, NEVER or 'significant
    only at T = 0' by set (`where`). is_another: whether a row is about another domain, so that it
    cannot hold there.
    """
    is_above = stats.verdict(rows["low"], rows["high"]) == stats.ABOVE
    known = rows.assign(holds=is_above & ~is_another)
    held = {}
    for where, texts in known.groupby("where", sort=False):
        temperatures = list(texts.loc[texts["holds"], "temperature"])
        some = f"significant only at {named(temperatures)}" if temperatures else NEVER
        held[where] = ALWAYS if len(temperatures) == len(texts) else some
    return held


def _nowhere(what: str, held: Mapping[str, str]) -> str:
    """That no set shows a rank at every temperature, as a title."""
    never = all(times == NEVER for times in held.values())
    return f"No prompt set shows {'significantly' if never else 'at each temperature'} that {what}"


def _where(what: str, rows: pd.DataFrame, is_another: pd.Series) -> list[str]:
    """Where a domain's rank is significant, as sentences without full stops: 'Chat has the lowest
    acceptance on our own prompts', 'In the second prompt set this is significant only at T = 0'.
    """
    held = _held(rows, is_another)
    everywhere = [where for where, times in held.items() if times == ALWAYS]
    if not everywhere:
        first = _nowhere(what, held)
        exceptions = {where: times for where, times in held.items() if times != NEVER}
    else:
        first = f"{starting(what)} {named(everywhere)}"
        exceptions = {where: times for where, times in held.items() if times != ALWAYS}
    return [first, *(f"{starting(where)} this is {times}" for where, times in exceptions.items())]

"""What 'acceptance' can mean on one pair: definitions of acceptance (the ladder of estimators),
which domains differ under each of them, and which differences hold on other prompts.
"""

import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.analysis.prompt_sets import SPREAD, after_on, farthest
from speclab.analysis.texts import Text
from speclab.estimates import Estimates, counted, stack, starting
from speclab.score import Estimator
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
    parts = {name: stats.by_domain(*question).frame for name, question in rungs.items()}
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
    span = " to ".join(map(str, sorted({counts.min(), counts.max()})))
    pairs = counted(tests["pair"].nunique(), "pair")
    return f"Under the four definitions {span} of {pairs} of domains differ significantly"


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

NO_OTHER = "No other prompt set has all these domains."
SET = "prompt set"  # a column whose name `Estimates.sentence` can count
CONTRAST_IS = ("significantly positive on", "significantly negative on", "not significant on")


def on_other_prompts(contrasts: Estimates) -> str:
    """On which prompt sets each difference is significant, as a list (Markdown). contrasts: of
    `prompt_sets.contrasts_by_set`, by name.
    """
    lines = []
    for name, of_text in contrasts.groups("name"):
        temperature = name.rpartition(", ")[2]
        for contrast, rows in of_text.groups("contrast"):
            named_sets = rows.frame.assign(**{SET: rows.frame["set"].map(after_on)})
            said = Estimates(named_sets).sentence(*CONTRAST_IS, names=SET)
            said = said.replace("; ", ", and ")
            lines.append(f"* At {temperature}, **{contrast}** is {said}.")
    return "\n".join(lines)


def widest_gap(contrasts: Estimates) -> str:
    """The difference of our own prompts' highest and lowest domain on all sets, as a title.
    contrasts: at T = 0.
    """
    spread = contrasts.at(role=SPREAD).in_units("points")
    first, last = spread.frame["contrast"].iloc[0].split(" − ")
    return f"{starting(first)} minus {last} is {spread.span()}, depending on the prompts (T = 0)"


def order_in_words(tests: pd.DataFrame, elsewhere: str) -> str:
    """Whether acceptance depends on the domain, as short sentences. tests: of the pairs at T = 0
    (`significance.with_signs`); elsewhere: the last sentence.
    """
    significant = tests[tests["sign"] != 0]
    shown = tests if significant.empty else significant
    widest = shown.loc[shown["difference"].abs().idxmax()]
    sides = widest[["first", "second"]]
    higher, lower = sides if widest["difference"] > 0 else sides[::-1]
    points = f"{100 * abs(widest['difference']):.0f} points"
    if significant.empty:
        return f"No domains differ significantly at T = 0 ({higher} minus {lower}: {points})."
    return (
        f"Yes. At T = 0 the target accepts the draft's best token {points} more often in {higher} "
        f"than in {lower}. {elsewhere}"
    )


def carried_in_words(carried: pd.DataFrame) -> str:
    """How many significant differences of our own prompts are significant on the last set, too.
    carried: of `prompt_sets.carried`, at one temperature.
    """
    other = farthest(carried["set"])
    if other is None:
        return NO_OTHER
    row = carried.set_index("set").loc[other]
    pairs = counted(row["compared"], "pair")
    return f"Of {pairs} that differ significantly, {row['same']} also do on {after_on(other)}."

"""What 'acceptance' can mean on one pair: the ladder of estimators, which domains differ under each
of them, and what other prompts say of that.
"""

import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.analysis.prompt_sets import CHANGE, LAST, LEAD, OWN, SECOND, SPREAD, UNWRAPPED
from speclab.analysis.texts import Text
from speclab.estimates import NUMBERS, Estimates, named, stack, starting, whole
from speclab.score import Estimator
from speclab.show import figures
from speclab.tree import Tree

Asked = dict[str, tuple[pd.DataFrame, Estimator]]

OF_NO_LOSSLESS = ("published_alpha", "best_path_ratio", "published_length")
MAIN = ("published_alpha, T = 0", "hit[1], T = 0", "alpha, T = 1", "block_efficiency, T = 0")


# ---- the ladder ----------------------------------------------------------------------------------


def shares_of_tokens(at_0: Text, at_1: Text) -> Asked:
    """The rungs that are a share of tokens, by name. What needs nodes is of the first seed."""
    best = score.member(score.hit, 1)
    two = score.member(score.hit, 2)
    mass_of_best = score.member(score.top_mass, 1)
    mass_of_two = score.member(score.top_mass, 2)
    return {
        "published_alpha, T = 0": (at_0.nodes, score.published_alpha),
        "best_path_ratio, T = 0": (at_0.nodes, score.best_path_ratio),
        "hit[1], T = 0": (at_0.trace, best),
        "hit[2], T = 0": (at_0.trace, two),
        "published_alpha, T = 1": (at_1.nodes, score.published_alpha),
        "alpha, T = 1": (at_1.trace, score.alpha),
        "top_mass[1], T = 1": (at_1.trace, mass_of_best),
        "top_mass[2], T = 1": (at_1.trace, mass_of_two),
    }


def numbers_of_tokens(at_0: Text, at_1: Text, tree: Tree) -> Asked:
    """The rungs in tokens per target pass, by name: the paper's E[L], and what the recorded tree
    emits a block, over the blocks that a decoder visits.
    """
    per_block = score.block_estimators()["block_efficiency"]
    visited = [replay.prompt_sums(text.tree(tree)) for text in (at_0, at_1)]
    return {
        "published_length, T = 0": (at_0.nodes, score.published_length),
        "block_efficiency, T = 0": (visited[0], per_block),
        "block_efficiency, T = 1": (visited[1], per_block),
    }


def ladder(asked: Asked) -> Estimates:
    """Every rung by domain: name, estimator, text, domain, estimate, low, high, per_prompt,
    n_prompts.
    """
    parts = {name: stats.by_domain(*one) for name, one in asked.items()}
    rows = stack(parts, "name")
    text = rows["name"].str.rpartition(", ")[2]
    rows.insert(2, "text", text)
    return Estimates(rows, digits=3)


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


def wide_signs(found: pd.DataFrame) -> pd.DataFrame:
    """`significance.with_signs` by name: a row a rung, a column a pair."""
    return found.pivot_table("sign", "name", "pair", sort=False)


def shared_places(found: pd.DataFrame) -> pd.DataFrame:
    """Place of each domain (a column) under each rung (a row), 1 = highest: one more than the
    domains that are significantly above, and half of one for each that does not differ
    significantly. found: of `significance.with_signs`, by name.
    """
    sides = {"first": (1 - found["sign"]) / 2, "second": (1 + found["sign"]) / 2}
    above = pd.concat(
        found[["name"]].assign(domain=found[side], above=count) for side, count in sides.items()
    )
    return 1 + above.pivot_table("above", "name", "domain", aggfunc="sum", sort=False)


def orders(rungs: Estimates, signs: pd.DataFrame) -> pd.Series:
    """Domains from the highest value down under each rung, by name: `>` between neighbours that
    differ significantly, else `≈`. signs: of `wide_signs`.
    """
    said = {}
    own = rungs.without(domain=[score.ALL, score.POOLED]).frame
    for name, rows in own.groupby("name", sort=False):
        before, *lower = rows.sort_values("estimate", ascending=False)["domain"]
        said[name] = before
        for domain in lower:
            pairs = f"{before} − {domain}", f"{domain} − {before}"
            differs = any(signs.loc[name].get(pair, 0) for pair in pairs)
            said[name] += f" {'>' if differs else '≈'} {domain}"
            before = domain
    return pd.Series(said)


def ladder_picture(shares: Estimates, lengths: Estimates, place: pd.DataFrame) -> figures.Figure:
    """Levels with their intervals (left) and places among the domains (right), shares above tokens
    per pass; grey: not the acceptance of any lossless algorithm.
    """
    figure, grid = figures.subplots(
        2, 2, height=5.4, sharey="row", width_ratios=[2.2, 1], height_ratios=[8, 3]
    )
    for (left, right), rungs in zip(grid, (shares, lengths), strict=True):
        levels = rungs.without(domain=[score.ALL, score.POOLED]).frame
        at = [place.loc[row.name, row.domain] for row in levels.itertuples(index=False)]
        ranks = levels.assign(estimate=at, low=np.nan, high=np.nan)
        for axes, rows in ((left, levels), (right, ranks)):
            figures.interval_bars(rows, axes, x="name", horizontal=True)
            names = pd.unique(rows["name"])
            for row, name in enumerate(names):
                if name.startswith(OF_NO_LOSSLESS):
                    axes.axhspan(row - 0.5, row + 0.5, color="#efefef", zorder=0)
        last = place.shape[1]
        right.set(xlim=(0.5, last + 0.5), xticks=range(1, last + 1))
        right.tick_params(left=False)
    grid[0, 0].set(
        title="level (grey: of no lossless algorithm)", xlabel="share of tokens", xlim=(0, 1)
    )
    grid[0, 1].set(title="rank (shared if not\nsignificantly different)")
    grid[1, 0].set(xlabel="tokens per target pass (published_length: E[L])")
    grid[1, 1].set(xlabel="1 = highest")
    figures.legend_above(figure, grid[0, 0])
    return figure


# ---- other prompts -------------------------------------------------------------------------------
IN_WORDS = {OWN: "on our own prompts", UNWRAPPED: "without wrapper", SECOND: "in the second set"}


def on_other_prompts(found: pd.DataFrame) -> str:
    """What of the first set's order holds on the others and how its spread changes, as sentences.

    found: `prompt_sets.contrasts` of shares, by name (temperature). What holds is significant under
    each name; numbers, in points, are those of the first.
    """
    rows = found.assign(where=found["set"].map(IN_WORDS)).dropna(subset="where")
    rows[[*NUMBERS, *CHANGE]] *= 100
    rows["to"] = rows["estimate"].map("{:.0f} ".format) + rows["where"]
    first, last = rows.query("role == @SPREAD")["contrast"].iloc[0].split(" − ")
    rows.loc[(rows["role"] == LEAD) & (rows["highest"] != first), "low"] = 0
    name = rows["name"].iloc[0]
    temperature = name.rpartition(", ")[2]
    at_first = rows[rows["name"] == name].set_index("role")
    leads = Estimates(at_first.loc[LEAD], digits=0).span()
    own, *_ = at_first.loc[SPREAD, "estimate"]
    changes = Estimates.of(at_first.loc[SPREAD].iloc[1:], "change", ["to"])
    verbs = "grows to", "shrinks to", "moves, not significantly, to"
    easiest = _holds("the easiest", rows[rows["role"] == LEAD])
    hardest = _holds("the hardest", rows[rows["role"] == LAST])
    said = (
        f"{first} {easiest} ({leads} points above the others' mean at {temperature})",
        f"its lead over {last}, {own:.0f} points, {changes.sentence(*verbs, 'to')}",
        f"{last} {hardest}",
    )
    return " ".join(f"{starting(one)}." for one in said)


def _holds(what: str, rows: pd.DataFrame) -> str:
    """'is the easiest in all three prompt sets', or in which sets it is not significantly, or at
    one temperature only.
    """
    said: dict[str, list[str]] = {}
    for where, own in rows.groupby("where", sort=False):
        is_above = stats.verdict(own["low"], own["high"]) == stats.ABOVE
        sure = [name.rpartition(", ")[2] for name in own.loc[is_above, "name"]]
        words = f"is significantly {what} at {named(sure)} only"
        if not sure:
            words = f"is not significantly {what}"
        said.setdefault(words if len(sure) < len(own) else "", []).append(where)
    holds = said.pop("", [])
    if not said:
        return f"is {what} in {whole('prompt set', len(holds))}"
    if not holds and len(said) == 1:
        return f"{next(iter(said))} in any prompt set"
    return ", ".join(f"{words} {named(places)}" for words, places in said.items())

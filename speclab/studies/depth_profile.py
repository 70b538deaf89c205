"""Notebook 04: does acceptance rise with depth? Profiles by depth with the kind of node held fixed,
what the cut of a tree does to a mean, acceptance where the parent was accepted, and the place in
the text.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.analysis import bins, published, rungs, significance
from speclab.analysis.texts import Text
from speclab.score import ALL, POOLED, POSITION_BIN, Estimator
from speclab.show.estimates import (
    NUMBERS,
    Estimates,
    counted,
    stack,
    starting,
    without_interval,
)
from speclab.tree import static_tree

FIRST = "tokens 1-8"
MIDDLE = "tokens 9-32"
LATE = "tokens from 33 on"
START = 8  # tokens at the start of a text that are looked at apart
GAIN = "accept_by_depth - unconditional"
BEST_PATH = {text: f"accept_by_depth, best path, {text}" for text in ("T = 0", "T = 1")}

Question = tuple[pd.DataFrame, Estimator]


def shape(text: Text) -> str:
    """Nodes of a text's tree by depth: '2 + 4 + 2'."""
    of_depth = text.nodes.groupby("depth")["node"].nunique()
    return " + ".join(map(str, of_depth))


# ---- profiles by depth ---------------------------------------------------------------------------


def kinds(
    cut: Text, full: Text, warm: Text, depth: int, branches: int
) -> dict[str, Question]:
    """Kinds of node by name, each as rows and a family of estimators by depth: of the paper's tree
    (`cut`), the complete one (`full`), and at T = 1 (`warm`: the best path from the nodes of its
    first seed, the complete tree replayed on all seeds).
    """
    tree = static_tree(depth, branches)
    blocks = warm.tree(tree, "every")
    complete = replay.prompt_sums(blocks, "room")
    whole = f"accept_by_depth, {shape(full)}"
    found = {
        f"published_alpha, {shape(text)}": (text.nodes, score.ratio_by_depth)
        for text in (cut, full)
    }
    for text in (cut, warm):
        family = score.best_path_accept_by_depth(text.rule)
        found[BEST_PATH[text.name]] = (text.nodes, family)
    family = score.tree_estimators(full.rule)["accept_by_depth"]
    found[f"{whole}, T = 0"] = (full.nodes, family)
    found[f"{whole}, T = 1"] = (complete, score.block_estimators()["accept_by_depth"])
    return found


def by_depth(asked: Mapping[str, Question]) -> Estimates:
    """Estimates by name, domain and depth."""
    parts = {name: stats.by_domain(*question) for name, question in asked.items()}
    found = stack(parts, "name")
    depth = found["estimator"].str.extract(r"\[(\d+)\]")[0]
    found["depth"] = depth.astype(int)
    return Estimates(found[["name", "domain", "depth", *NUMBERS]], digits=3)


def change_by_kind(asked: Mapping[str, Question]) -> Estimates:
    """The deepest level less depth 1 by name and domain: every resample of prompts draws both, so
    the difference is paired.
    """
    parts = {
        name: stats.by_domain(frame, rungs.change(family))
        for name, (frame, family) in asked.items()
    }
    columns = ["name", "domain", *NUMBERS, "n_prompts"]
    found = stack(parts, "name")
    return Estimates(found[columns], digits=3)


def beside_the_paper(
    ours: Estimates, names: Sequence[str], change: bool = False
) -> Estimates:
    """The paper's Table IV (`change`: its depth 3 less depth 1), then ours of the given names and
    the paper's domains, a `panel` each.
    """
    frame = ours.without(domain=[ALL, POOLED]).frame
    domains = list(frame["domain"].unique())
    theirs = published.published("IV").astype({"depth": int})
    theirs = theirs.pivot(index="domain", columns="depth", values="published")
    theirs = theirs.loc[domains]
    theirs = theirs[3] - theirs[1] if change else theirs.stack()
    printed = theirs.rename("estimate").reset_index()
    paper = without_interval(printed, printed["estimate"])
    parts = {"published_alpha,\nthe paper": paper}
    for name in names:
        own = ours.at(name=name, domain=domains).frame.dropna(subset="estimate")
        panel = name.replace(", ", ",\n", 1)
        parts[panel] = own.drop(columns="name")
    return Estimates.stacked(parts, "panel", ours.digits)


# ---- what the cut does to the mean ---------------------------------------------------------------


def under_best_path(text: Text) -> pd.Series:
    """Whether each node of a text hangs under the best path, or its root."""
    best = text.nodes.loc[text.nodes["best_path"], "node"]
    return text.nodes["parent"].isin({0, *best})


def mixtures(texts: Sequence[Text]) -> Estimates:
    """The mean of domains by tree, name and depth: of the nodes under the best path, of those under
    other branches, and of all, which is their mixture.
    """
    parts = {}
    for text in texts:
        inside = under_best_path(text)
        groups = {
            "under the best path": text.nodes[inside],
            "under other branches": text.nodes[~inside],
            "all nodes": text.nodes,
        }
        asked = {
            name: (rows, score.ratio_by_depth)
            for name, rows in groups.items()
            if len(rows)
        }
        found = by_depth(asked).at(domain=ALL)
        parts[shape(text)] = found.defined()
    return Estimates.stacked(parts, "tree", digits=3)


# ---- where the parent was accepted ---------------------------------------------------------------


def best_path(text: Text) -> pd.DataFrame:
    """The best path's nodes with `own` (accepted as if its parent were), `accepted` (with all
    above it) and `reached` (all above it).
    """
    chain = text.nodes[text.nodes["best_path"]].copy()
    greedy = text.rule == "greedy"
    chain["own"] = chain["target_rank"] == 0 if greedy else chain["target_prob"]
    chain["accepted"] = score.reach(chain, text.rule)
    above = chain.groupby(["prompt_id", "position"])["accepted"]
    return chain.assign(reached=above.shift(fill_value=1.0))


def along_best_path(texts: Sequence[Text]) -> Estimates:
    """Acceptance of the best path by text, depth, name and domain; GAIN: the difference of the
    first two.
    """
    asked = {
        "unconditional": score.mean_of("own"),
        "accept_by_depth": score.ratio_of("accepted", "reached"),
        "survival_by_depth": score.mean_of("accepted"),
    }
    parts = {}
    for text in texts:
        path = best_path(text)
        for depth, rows in path.groupby("depth"):
            draws = stats.jointly({name: (rows, of) for name, of in asked.items()})
            gain = {GAIN: draws["accept_by_depth"] - draws["unconditional"]}
            parts[text.name, depth] = draws.table(draws.values | gain)
    frame = stack(parts, ["text", "depth"])
    found = Estimates(frame[["text", "depth", "name", "domain", *NUMBERS]])
    return found.without(domain=[ALL, POOLED])


# ---- the place in the text -----------------------------------------------------------------------


def place_in_text(frame: pd.DataFrame) -> pd.Series:
    """FIRST, MIDDLE or LATE: the bin of tokens that each row's position is in."""
    edges = [-1, START - 1, POSITION_BIN - 1, np.inf]
    return pd.cut(frame["position"], edges, labels=[FIRST, MIDDLE, LATE])


def along_text(texts: Sequence[Text]) -> Estimates:
    """The exact acceptance of one token by name, domain and tokens of the text: the first START,
    then bins that double ('9-16', '17-32', …).
    """
    edges = [0, *START * 2 ** np.arange(20)]
    labels = [f"{low + 1}-{high}" for low, high in pairwise(edges)]
    parts = {}
    for text in texts:
        rows = text.positions
        bin_of = pd.cut(rows["position"], edges, labels=labels, right=False)
        rows = rows.assign(tokens=bin_of)
        name = f"{text.acceptance.name} ({text.name})"
        parts[name] = bins.group_means(rows, text.value, "tokens")
    found = Estimates.stacked(parts, "name", digits=3)
    return found.without(domain=POOLED)


def position_effects(texts: Sequence[Text]) -> pd.DataFrame:
    """The first tokens, and the late ones, less the tokens between of the same texts, those that
    get to the late ones: estimator, what, domain, fields of `significance.Difference`, p_holm over
    all. No columns where no domain has enough such prompts.
    """
    rows = []
    for text in texts:
        ends = text.positions.groupby(["prompt_id", "seed"])["position"]
        long = text.positions[ends.transform("max") >= POSITION_BIN]
        for domain in score.domains_in(text.positions):
            own = long[long["domain"] == domain]
            if own["prompt_id"].nunique() < stats.MIN_PROMPTS:
                continue
            places = own.groupby(place_in_text(own), observed=True)
            parts = dict(list(places))
            for place in (FIRST, LATE):
                pair = parts[place], parts[MIDDLE]
                found = significance.paired_difference(*pair, text.acceptance)
                key = {
                    "estimator": f"{text.acceptance.name} ({text.name})",
                    "what": f"{place} - {MIDDLE}",
                    "domain": domain,
                }
                rows.append(key | vars(found))
    effects = pd.DataFrame(rows)
    if rows:
        effects["p_holm"] = significance.holm(effects["p_value"])
    return effects


def significant(effects: pd.DataFrame, level: float) -> str:
    """Which of the `position_effects` have Holm's p below `level`, as the end of a sentence."""
    if effects.empty:
        return "there is nothing to test, since no text is long enough."
    found = effects[effects["p_holm"] < level]
    if found.empty:
        return f"none of {counted(len(effects), 'test')}."
    found = found.assign(where=found["estimator"] + ", " + found["what"])
    listed = Estimates(found, digits=3).listed(within="where")
    return f"{len(found)} of {counted(len(effects), 'test')}. {starting(listed)}."

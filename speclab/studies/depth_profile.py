"""Notebook 04: does acceptance rise with depth? Profiles by depth with the kind of node held fixed,
what the cut of a tree does to a mean, acceptance where all above was accepted beside that of a new
block at the same positions, and the place in the text.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.analysis import bins, published
from speclab.analysis.texts import PLACE, Text
from speclab.estimates import Estimates, stack, without_interval
from speclab.score import ALL, POOLED, Estimator
from speclab.stats import NUMBERS
from speclab.tree import static_tree

PARTS = (1 / 8, 1 / 4, 1 / 2, 1)  # of the length of the texts: ends of the bins along them
PATH = {  # along the best path, at a depth
    "accept_by_depth": score.ratio_of("accepted", "reached"),
    "a new block there": score.ratio_of("new", "followed"),
    "survival_by_depth": score.mean_of("accepted"),
}
Question = tuple[pd.DataFrame, Estimator]


def shape(text: Text) -> str:
    """Nodes of a text's tree by depth: '2 + 4 + 2'."""
    of_depth = text.nodes.groupby("depth")["node"].nunique()
    return " + ".join(map(str, of_depth))


# ---- profiles by depth ---------------------------------------------------------------------------


def best_path_name(text: Text) -> str:
    """The kind of node of the best path of a text, as `kinds` calls it."""
    return f"accept_by_depth, best path, {text.name}"


def kinds(cut: Text, full: Text, warm: Text, depth: int, branches: int) -> dict[str, Question]:
    """Kinds of node by name, each as rows and a family of estimators by depth: of the profile's
    tree (`cut`), the complete one (`full`), and of sampled text (`warm`: the best path from the
    nodes of its first seed, the complete tree replayed on all seeds). One kind for both trees where
    the profile's is complete.
    """
    blocks = warm.tree(static_tree(depth, branches), "every")
    complete = replay.prompt_sums(blocks, "room")
    whole = f"accept_by_depth, {shape(full)}"
    questions = {}
    for text in (cut, full):
        questions[f"published_alpha, {shape(text)}"] = (text.nodes, score.ratio_by_depth)
    for text in (cut, warm):
        path = score.best_path_accept_by_depth(text.rule)
        questions[best_path_name(text)] = (text.nodes, path)
    of_nodes = score.tree_estimators(full.rule)["accept_by_depth"]
    of_blocks = score.block_estimators()["accept_by_depth"]
    questions[f"{whole}, {full.name}"] = (full.nodes, of_nodes)
    questions[f"{whole}, {warm.name}"] = (complete, of_blocks)
    return questions


def by_depth(questions: Mapping[str, Question]) -> Estimates:
    """Estimates by name, domain and depth."""
    parts = {name: stats.by_domain(*question) for name, question in questions.items()}
    table = stack(parts, "name")
    table["depth"] = table.groupby(["name", "domain"]).cumcount() + 1
    return Estimates(table[["name", "domain", "depth", *NUMBERS]], digits=3)


def change_by_kind(questions: Mapping[str, Question]) -> Estimates:
    """The deepest level less depth 1 by name and domain: every resample of prompts draws both, so
    the difference is paired.
    """
    parts = {}
    for name, (rows, family) in questions.items():
        change = score.change(family)
        parts[name] = stats.by_domain(rows, change)
    return Estimates.stacked(parts, "name", digits=3)


def change_along_best_path(text: Text) -> Question:
    """accept_by_depth of the best path at the deepest level less at depth 1: rows, estimator."""
    return text.nodes, score.change(score.best_path_accept_by_depth(text.rule))


def beside_the_paper(ours: Estimates, names: Sequence[str], change: bool = False) -> Estimates:
    """The paper's Table IV (`change`: its depth 3 less depth 1) where it has one of these domains,
    then ours of the given names, a `panel` each.
    """
    domains = score.domains_in(ours.without(domain=[ALL, POOLED]).frame)
    table = published.published("IV").astype({"depth": int})
    paper = table.pivot(index="domain", columns="depth", values="published")
    paper = paper.reindex(domains).dropna()
    paper = paper[3] - paper[1] if change else paper.stack()
    rows = paper.rename("estimate").reset_index()
    parts = {}
    if len(rows):
        parts["published_alpha,\nthe paper"] = without_interval(rows, rows["estimate"])
    for name in names:
        panel = name.replace(", ", ",\n", 1)
        parts[panel] = ours.at(name=name, domain=domains).defined().frame
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
        known = {name: (rows, score.ratio_by_depth) for name, rows in groups.items() if len(rows)}
        parts[shape(text)] = by_depth(known).at(domain=ALL).defined()
    return Estimates.stacked(parts, "tree", digits=3)


# ---- where the parent was accepted ---------------------------------------------------------------


def best_path(text: Text) -> pd.DataFrame:
    """The best path's nodes with `own` (accepted as if its parent were), `accepted` (with all
    above it) and `reached` (all above it), and of a new block that begins at the node's place in
    the text: `followed` (1 where the text up to there is the path above the node, so that both have
    the same context) and `new` (`own` of the first node of that block; 0 where not followed).
    """
    chain = text.nodes[text.nodes["best_path"]].sort_values([*PLACE, "depth"])
    greedy = text.rule == "greedy"
    own = chain["target_rank"] == 0 if greedy else chain["target_prob"]
    chain["own"] = own.astype(float)
    in_text = chain.assign(position=chain["position"] + chain["depth"] - 1)
    place = pd.MultiIndex.from_frame(in_text[PLACE])
    hits = text.trace.set_index(PLACE)["hit"]
    hit = hits.reindex(place, fill_value=False)
    chain["hit"] = hit.to_numpy(float)
    starts = chain[chain["depth"] == 1].set_index(PLACE)
    first = starts["own"].reindex(place)

    blocks = chain.groupby(PLACE, sort=False)
    chain["accepted"] = blocks["own"].cumprod()
    chain["reached"] = blocks["accepted"].shift(fill_value=1.0)
    chain["followed"] = blocks["hit"].shift(fill_value=1.0)
    chain["followed"] = chain.groupby(PLACE, sort=False)["followed"].cumprod()
    chain["followed"] *= first.notna().to_numpy()
    return chain.assign(new=chain["followed"] * first.fillna(0).to_numpy(float))


def along_best_path(texts: Sequence[Text]) -> Estimates:
    """Acceptance along the best path by text, depth, name (of PATH) and domain."""
    parts = {}
    for text in texts:
        for depth, rows in best_path(text).groupby("depth"):
            draws = stats.jointly({name: (rows, of) for name, of in PATH.items()})
            parts[text.name, depth] = draws.table()
    table = stack(parts, ["text", "depth"])
    steps = Estimates(table[["text", "depth", "name", "domain", *NUMBERS]])
    return steps.without(domain=[ALL, POOLED])


# ---- the place in the text -----------------------------------------------------------------------


def along_text(texts: Sequence[Text]) -> Estimates:
    """The exact acceptance of one token by name, domain and tokens of the text, in bins that end at
    PARTS of the longest text ('1-8', '9-16', '17-32' and '33-64' of 64 tokens). Only texts that
    have half of the longest's tokens, so that the bins up to there hold the same texts, in domains
    with enough such prompts.
    """
    longest = 1 + max(text.trace["position"].max() for text in texts)
    ends = np.unique(np.ceil(np.multiply(PARTS, longest))).astype(int)
    labels = [f"{low + 1}-{high}" for low, high in pairwise([0, *ends])]
    parts = {}
    for text in texts:
        rows = text.trace
        tokens = pd.cut(rows["position"], [0, *ends], labels=labels, right=False)
        rows = rows.assign(tokens=tokens)
        last = rows.groupby(["prompt_id", "seed"])["position"].transform("max")
        long = rows[last >= last.max() / 2]
        prompts = long.groupby("domain")["prompt_id"].transform("nunique")
        enough = long[prompts >= stats.MIN_PROMPTS]
        name = f"{text.acceptance.name} ({text.name})"
        known = rows if enough.empty else enough
        parts[name] = bins.group_means(known, text.value, "tokens")
    return Estimates.stacked(parts, "name", digits=3).without(domain=POOLED)

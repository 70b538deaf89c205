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
from speclab.estimates import NUMBERS, Estimates, stack, without_interval
from speclab.score import ALL, POOLED, Estimator
from speclab.tree import static_tree

START = 8  # tokens at the start of a text that are looked at apart
PATH = {  # along the best path, at a depth
    "accept_by_depth": score.ratio_of("accepted", "reached"),
    "a new block there": score.ratio_of("new", "followed"),
    "survival_by_depth": score.mean_of("accepted"),
}
BEST_PATH = {text: f"accept_by_depth, best path, {text}" for text in ("T = 0", "T = 1")}

Question = tuple[pd.DataFrame, Estimator]


def shape(text: Text) -> str:
    """Nodes of a text's tree by depth: '2 + 4 + 2'."""
    of_depth = text.nodes.groupby("depth")["node"].nunique()
    return " + ".join(map(str, of_depth))


# ---- profiles by depth ---------------------------------------------------------------------------


def kinds(cut: Text, full: Text, warm: Text, depth: int, branches: int) -> dict[str, Question]:
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
        name: stats.by_domain(frame, score.change(family))
        for name, (frame, family) in asked.items()
    }
    columns = ["name", "domain", *NUMBERS, "n_prompts"]
    found = stack(parts, "name")
    return Estimates(found[columns], digits=3)


def beside_the_paper(ours: Estimates, names: Sequence[str], change: bool = False) -> Estimates:
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
        asked = {name: (rows, score.ratio_by_depth) for name, rows in groups.items() if len(rows)}
        found = by_depth(asked).at(domain=ALL)
        parts[shape(text)] = found.defined()
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
    chain["own"] = chain["target_rank"] == 0 if greedy else chain["target_prob"]
    chain["accepted"] = score.reach(chain, text.rule)
    here = chain[[*PLACE, "depth"]].eval("position = position + depth - 1")[PLACE]
    here = pd.MultiIndex.from_frame(here)
    first = chain[chain["depth"] == 1].set_index(PLACE)["own"].reindex(here)
    hit = text.trace.set_index(PLACE)["hit"].reindex(here, fill_value=False)
    chain["hit"] = hit.to_numpy(float)
    of_block = chain.groupby(PLACE, sort=False)
    chain["reached"] = of_block["accepted"].shift(fill_value=1.0)
    above = of_block["hit"].cumprod().groupby([chain[name] for name in PLACE], sort=False)
    in_text = first.notna().to_numpy()
    chain["followed"] = above.shift(fill_value=1.0) * in_text
    return chain.assign(new=chain["followed"] * first.fillna(0).to_numpy(float))


def along_best_path(texts: Sequence[Text]) -> Estimates:
    """Acceptance along the best path by text, depth, name (of PATH) and domain."""
    parts = {}
    for text in texts:
        for depth, rows in best_path(text).groupby("depth"):
            draws = stats.jointly({name: (rows, of) for name, of in PATH.items()})
            parts[text.name, depth] = draws.table()
    frame = stack(parts, ["text", "depth"])
    found = Estimates(frame[["text", "depth", "name", "domain", *NUMBERS]])
    return found.without(domain=[ALL, POOLED])


# ---- the place in the text -----------------------------------------------------------------------


def along_text(texts: Sequence[Text]) -> Estimates:
    """The exact acceptance of one token by name, domain and tokens of the text: the first START,
    then bins that double ('9-16', '17-32', …). Only texts that have half of the longest's tokens,
    so that the bins up to there hold the same texts, in domains with enough such prompts.
    """
    edges = [0, *START * 2 ** np.arange(20)]
    labels = [f"{low + 1}-{high}" for low, high in pairwise(edges)]
    parts = {}
    for text in texts:
        rows = text.trace
        ends = rows.groupby(["prompt_id", "seed"])["position"].transform("max")
        long = rows[ends >= ends.max() / 2]
        prompts = long.groupby("domain")["prompt_id"].transform("nunique")
        enough = long[prompts >= stats.MIN_PROMPTS]
        rows = rows if enough.empty else enough
        bin_of = pd.cut(rows["position"], edges, labels=labels, right=False)
        rows = rows.assign(tokens=bin_of)
        name = f"{text.acceptance.name} ({text.name})"
        parts[name] = bins.group_means(rows, text.value, "tokens")
    found = Estimates.stacked(parts, "name", digits=3)
    return found.without(domain=POOLED)

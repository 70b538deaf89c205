"""Does acceptance rise with depth? Profiles by depth for a fixed kind of node, the effect of a
tree's cut on the mean, acceptance given that all earlier tokens were accepted compared with a new
block at the same positions, and acceptance along the text.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.analysis import bins, published
from speclab.analysis.texts import PLACE, Text
from speclab.estimates import Estimates, counted, stack, starting, without_interval, yes_or_no
from speclab.score import ALL, POOLED, Estimator
from speclab.stats import NUMBERS
from speclab.tree import static_tree

PARTS = (1 / 8, 1 / 4, 1 / 2, 1)  # of the length of the texts: ends of the bins along them
PATH = {  # along the best path, at a depth
    "accept_by_depth": score.ratio_of("accepted", "reached"),
    "a new block there": score.ratio_of("new", "followed"),
    "survival_by_depth": score.mean_of("accepted"),
}
PATH_IN_WORDS = {
    "accept_by_depth": "all earlier tokens accepted",
    "a new block there": "new block at the same positions",
    "survival_by_depth": "blocks accepted to this depth",
}
MEAN_OF_NODES, GIVEN_ABOVE = "Mean of min(1, p/q)", "Accepted, if all earlier tokens were accepted"
TREND = ("rises", "falls", "does not change significantly")
BEST_PATH, OTHERS, ALL_NODES = "under the best path", "under other branches", "all nodes"
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
    tree (`cut`), of the complete tree (`full`), and of sampled text (`warm`). On sampled text the
    best path comes from the nodes of the first seed, and the complete tree is replayed on all
    seeds. Both trees are one kind if the profile's tree is complete.
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


def kind_in_words(name: str) -> str:
    """What a figure calls a kind of node: 'all nodes, 2 + 4 + 2' for 'published_alpha, 2 + 4 + 2',
    'best path, T = 0', 'any branch of 2 + 4 + 8, T = 0'.
    """
    estimator, _, kind = name.partition(", ")
    if estimator == "published_alpha":
        return f"all nodes, {kind}"
    return kind if kind.startswith("best path") else f"any branch of {kind}"


def by_depth(questions: Mapping[str, Question]) -> Estimates:
    """Estimates by name, domain and depth."""
    parts = {name: stats.by_domain(*question).frame for name, question in questions.items()}
    table = stack(parts, "name")
    table["depth"] = table.groupby(["name", "domain"]).cumcount() + 1
    return Estimates(table[["name", "domain", "depth", *NUMBERS]])


def change_by_kind(questions: Mapping[str, Question]) -> Estimates:
    """The deepest level minus depth 1 by name and domain. Every resample of prompts has both, so
    the difference is paired.
    """
    parts = {}
    for name, (rows, family) in questions.items():
        change = score.change(family)
        parts[name] = stats.by_domain(rows, change).frame
    return Estimates.stacked(parts, "name").in_units("points", 1)


def change_along_best_path(text: Text) -> Question:
    """accept_by_depth of the best path at the deepest level minus at depth 1: rows, estimator."""
    return text.nodes, score.change(score.best_path_accept_by_depth(text.rule))


def beside_the_paper(ours: Estimates, names: Sequence[str], change: bool = False) -> Estimates:
    """The paper's Table IV (`change`: its depth 3 minus depth 1) if it has one of these domains,
    then ours of the given names: block, axis and row (as of `drawings.draw_blocks`), numbers.
    """
    domains = score.domains_in(ours.without(domain=[ALL, POOLED]).frame)
    table = published.published("IV").astype({"depth": int})
    paper = table.pivot(index="domain", columns="depth", values="published")
    paper = paper.reindex(domains).dropna()
    paper = paper[3] - paper[1] if change else paper.stack()
    rows = paper.rename("estimate").reset_index()
    parts = {}
    if len(rows):
        parts[MEAN_OF_NODES, "all nodes, the paper"] = without_interval(rows, rows["estimate"])
    for name in names:
        block = MEAN_OF_NODES if name.startswith("published_alpha") else GIVEN_ABOVE
        parts[block, kind_in_words(name)] = ours.at(name=name, domain=domains).defined().frame
    table = stack(parts, ["block", "row"])
    table.insert(1, "axis", "change (points)" if change else "share (%)")
    return Estimates(table)


# ---- the effect of the cut on the mean -----------------------------------------------------------


def under_best_path(text: Text) -> pd.Series:
    """Whether each node of a text hangs under the best path, or under the root."""
    best = text.nodes.loc[text.nodes["best_path"], "node"]
    return text.nodes["parent"].isin({0, *best})


def mixtures(texts: Sequence[Text]) -> Estimates:
    """The mean of domains by tree, name and depth: of the nodes under the best path, of the nodes
    under other branches, and of all nodes. The last is a mixture of the first two. `share`: how
    many of the depth's nodes belong to the group.
    """
    parts = {}
    for text in texts:
        inside = under_best_path(text)
        groups = {
            BEST_PATH: text.nodes[inside],
            OTHERS: text.nodes[~inside],
            ALL_NODES: text.nodes,
        }
        sizes = {name: rows["depth"].value_counts() for name, rows in groups.items()}
        known = {name: (rows, score.ratio_by_depth) for name, rows in groups.items() if len(rows)}
        means = by_depth(known).at(domain=ALL).defined().frame
        shares = [sizes[row.name][row.depth] for row in means.itertuples(index=False)]
        wholes = means["depth"].map(sizes[ALL_NODES])
        parts[shape(text)] = means.assign(share=shares / wholes)
    return Estimates.stacked(parts, "tree")


# ---- given that all earlier tokens were accepted -------------------------------------------------


def best_path(text: Text) -> pd.DataFrame:
    """The best path's nodes with `own` (accepted, if its parent is), `accepted` (with all tokens
    above) and `reached` (all tokens above are accepted). Two columns are about a new block that
    begins at the node's position in the text: `followed` (1 if the text up to that position is the
    path above the node, so that both have the same context) and `new` (`own` of the first node of
    that block; 0 if not followed).
    """
    chain = text.nodes[text.nodes["best_path"]].sort_values([*PLACE, "depth"])
    greedy = text.rule == "greedy"
    own = chain["target_rank"] == 0 if greedy else chain["target_prob"]
    chain["own"] = own.astype(float)
    in_text = chain.assign(position=chain["position"] + chain["depth"] - 1)
    place = pd.MultiIndex.from_frame(in_text[PLACE])
    tokens = text.trace.set_index(PLACE)["token"].reindex(place)
    chain["is_text"] = (chain["token"].to_numpy() == tokens.to_numpy()).astype(float)
    starts = chain[chain["depth"] == 1].set_index(PLACE)
    first = starts["own"].reindex(place)

    blocks = chain.groupby(PLACE, sort=False)
    chain["accepted"] = blocks["own"].cumprod()
    chain["reached"] = blocks["accepted"].shift(fill_value=1.0)
    chain["followed"] = blocks["is_text"].shift(fill_value=1.0)
    chain["followed"] = chain.groupby(PLACE, sort=False)["followed"].cumprod()
    chain["followed"] *= first.notna().to_numpy()
    return chain.assign(new=chain["followed"] * first.fillna(0).to_numpy(float))


def along_best_path(texts: Sequence[Text]) -> Estimates:
    """Acceptance along the best path by text, depth, name (of PATH) and domain."""
    parts = {}
    for text in texts:
        for depth, rows in best_path(text).groupby("depth"):
            draws = stats.jointly({name: (rows, of) for name, of in PATH.items()})
            parts[text.name, depth] = draws.table().frame
    table = stack(parts, ["text", "depth"])
    steps = Estimates(table[["text", "depth", "name", "domain", *NUMBERS]])
    return steps.without(domain=[ALL, POOLED])


def own_states(text: Text, depth: int) -> Estimates:
    """Acceptance at a depth given that all earlier tokens were accepted, minus the acceptance of a
    new block's first token at the same positions, by domain. Of a trained head: what it loses as it
    drafts from its own states. Of any other draft: 0.
    """
    path = best_path(text)
    rows = path[(path["depth"] == depth) & (path["followed"] == 1)]
    draws = stats.jointly({name: (rows, score.mean_of(name)) for name in ("own", "new")})
    return draws.table({"change": draws["own"] - draws["new"]}).in_units("points", 1)


# ---- along the text ------------------------------------------------------------------------------


def along_text(texts: Sequence[Text]) -> Estimates:
    """The exact acceptance of one token by name, domain and tokens of the text. The bins end at
    PARTS of the longest text ('1-8', '9-16', '17-32' and '33-64' of 64 tokens). Only texts with at
    least half of the longest text's tokens count, so that the bins up to there hold the same texts,
    and only domains with enough such prompts.
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
        known = rows if enough.empty else enough
        parts[text.name] = bins.group_means(known, text.value, "tokens")
    return Estimates.stacked(parts, "name").without(domain=POOLED)


# ---- sentences -----------------------------------------------------------------------------------


def rise_with_depth(
    change: Estimates, deepest: int, by_set: pd.DataFrame, by_start: bool = False
) -> str:
    """Whether acceptance rises with depth, as short sentences. change: the deepest level minus
    depth 1 along the best path at T = 0, one row in points; by_set: of the other sets, by domain,
    or no rows; by_start: whether the draft is a head (`Text.by_start`).
    """
    judged = by_set.dropna(subset="low")
    rises = (judged["low"] > 0).sum()
    elsewhere = "No other prompts were tested."
    if len(judged):
        cases = counted(len(judged), "case")
        elsewhere = f"On other prompts it rises significantly in {rises} of {cases}."
    cause = "This is selection: blocks get deep where the text is easy."
    if by_start:
        cause = "Two causes mix: easy positions, and the head's own states."
    return (
        f"{starting(yes_or_no(change.verdict()))}. If all earlier tokens were accepted, acceptance "
        f"changes by {change} from depth 1 to {deepest} (T = 0). {cause} {elsewhere}"
    )


def along_in_title(along: Estimates) -> str:
    """In how many domains acceptance is clearly lower at the end of the text than at its beginning,
    as a title. along: of `along_text`, for one text.
    """
    domains = along.frame.groupby("domain")
    lower = domains["high"].last() < domains["low"].first()
    every = counted(len(lower), "domain")
    return f"Acceptance is lower at the end of the text in {lower.sum()} of {every} (T = 0)"

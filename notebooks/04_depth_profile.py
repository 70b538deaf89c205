# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 4. Does acceptance rise with depth?
#
# If a deep token is accepted as often as a shallow token, or more often, long drafts pay. The
# paper's mean over a tree's nodes rises a little with depth. But a budget cuts the tree, so the
# mean at each depth averages over different kinds of nodes. Here we fix the kind of node, and we
# measure the effect of the cut. A decoder asks: if all earlier drafted tokens were accepted, is the
# next one? Section 4 shows why acceptance rises with depth. Depth itself changes nothing, but only
# blocks at easy positions get deep.
#
# ![Change of acceptance from depth 1 to the deepest level](../figures/smollm/04/change.png)
#
# *Runs on* any machine · *time* under a minute on 2 cores, once the runs are there · *reads* the
# runs `greedy` (the profile's tree, temperature T = 0), `balanced` (T = 0, the same tree without
# the cut), `sampled`, `sampled-seed-1` and `sampled-seed-2` (the profile's temperature, by default
# 1; three seeds), and at T = 0 the runs of the profile's other prompts (`other_prompts`), which are
# recorded if they are missing · *writes* `figures/<profile>/04/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Goes to the root of the kit: around this folder, or where this kernel has it. If the kit is
# missing, it is cloned from SPECLAB_REPO.
# On Colab and Kaggle it installs missing packages: `python -m speclab hosted install`.
import importlib.util, os, pathlib, subprocess, sys

places = [here := pathlib.Path.cwd(), *here.parents, here / "speclab-kit"]
if origin := getattr(importlib.util.find_spec("speclab"), "origin", None):
    places.append(pathlib.Path(origin).parents[1])
kit = next((place for place in places if (place / "speclab/ops").is_dir()), places[-1])
if not kit.exists() and (address := os.environ.get("SPECLAB_REPO")):
    subprocess.run(["git", "clone", "--depth=1", address, kit])
if not (kit / "speclab/ops").is_dir():
    sys.exit(f"{kit} holds no kit: clone it, or set SPECLAB_REPO to its address")
if str(kit) not in sys.path:
    sys.path.insert(0, str(kit))
from speclab.ops import hosted

hosted.prepare()

# %% jupyter={"source_hidden": true}
from dataclasses import replace

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import prompt_sets, published
from speclab.analysis.texts import SEEDS, Text
from speclab.estimates import counted
from speclab.show import drawings, notebook
from speclab.studies import depth_profile as study

RUNS = ["greedy", "balanced", "seeds", "others"]

# %%
ctx = notebook.start("04_depth_profile", profile, overrides)
cut = Text.recorded(ctx.profile, "greedy")
full = Text.recorded(ctx.profile, "balanced")
warm = Text.recorded(ctx.profile, *SEEDS)
ctx.say(notebook.made_with(cut.pair))

# %%
domains = list(score.domains_in(cut.nodes))
mean = "mean of the domains" if len(domains) > 1 else domains[0]
unshown = [score.POOLED] if len(domains) > 1 else [score.POOLED, score.ALL]
deepest = int(cut.nodes["depth"].max())
half = (ctx.profile.max_new_tokens + 1) // 2  # tokens in each half of a text of full length

# %%
cut_shape, full_shape = study.shape(cut), study.shape(full)
ctx.say(
    f"The profile's tree has **{cut_shape}** nodes by depth (run `greedy`). Without the cut it has "
    f"**{full_shape}** (run `balanced`). Both runs have the target's greedy text, which does not "
    "depend on the tree."
)
assert cut.trace["token"].equals(full.trace["token"])

# %% [markdown]
# ## 1. The paper's Tables IV and V, on this pair
# The recorder hung a small tree of draft tokens on every position of the target's own text. At the
# paper's settings the tree has 2 tokens, then 2 children of each. Then a budget of 8 nodes leaves
# only 2 more. Table IV is the mean of min(1, p/q) at each depth (`published_alpha`). Here p is the
# target's and q the draft's probability of the node's token. Table V is this mean over all domains,
# once for the first half of the full text length (bin 0) and once for the second half (bin 1).
#
# The column `published` has the paper's numbers (Llama-2-7B and TinyLlama), if the domains are the
# paper's. The column `ours, as published` repeats the procedure on our pair. The column `corrected`
# is `accept_by_depth`: what a decoder at T = 0 accepts along the draft's best path, given that it
# accepted all earlier tokens. The 95 % intervals resample prompts 2,000 times. At temperature T = 0
# the target's most likely token is taken. Above 0 a token is drawn with the target's probabilities.

# %%
table_4 = published.comparison("IV", cut)
ctx.export(table_4.dropna(axis=1, how="all"), "table-4")
notebook.show_table(published.in_cells(table_4).drop(columns="estimator"))

# %% [markdown]
# Only long texts reach bin 1 of Table V, so a domain of short texts has less weight there. The
# table pools rows, so a domain of many prompts has more weight than a domain of few.

# %%
late = cut.nodes[cut.nodes["position"] >= half]
prompts = late.groupby("domain")["prompt_id"].nunique().reindex(domains, fill_value=0)
fewest_to_most = " to ".join(map(str, sorted({prompts.min(), prompts.max()})))
ctx.say(
    f"In each domain, the texts of {fewest_to_most} prompts have more than {half} tokens, half of "
    "the limit."
)

# %%
if prompts.sum():
    table_5 = published.comparison("V", cut, half=half)
    ctx.export(table_5.dropna(axis=1, how="all"), "table-5")
    notebook.show_table(published.in_cells(table_5).drop(columns="estimator"))
    if half != published.POSITION_BIN and table_5["published"].notna().any():
        ctx.say(f"(The paper's halves have {published.POSITION_BIN} tokens, ours {half}.)")

# %% [markdown]
# ## 2. Acceptance by depth, for one kind of node
# In the paper's tree half of the nodes at every depth are their parent's best child (rank 0), and
# half its second (rank 1). What changes with depth is the branch above them. Half of the nodes at
# depth 2 hang under the draft's second choice, and none at depth 3. Without the cut the share of
# such branches grows with depth instead. Only the best path (rank 0 at every depth) has the same
# kind of node at every depth.
#
# A decoder's share is `accept_by_depth`: if all earlier tokens were accepted, is the next one? At
# T = 0 a token is accepted if it is the target's most likely token (greedy rule). On sampled text
# it is accepted with the target's probability p (point-mass rule). The trees of sampled text come
# from the first seed, the only one recorded with trees. In the complete tree we ask whether any of
# the children is accepted (*any branch*).

# %%
kinds = study.kinds(cut, full, warm, ctx.profile.depth, ctx.profile.branches)
profiles = study.by_depth(kinds)
ctx.export(profiles, "profiles")
paths = [study.best_path_name(text) for text in (cut, warm)]
published_kinds = [name for name in kinds if name.startswith("published_alpha")]
changes = study.change_by_kind(kinds)
of_kind = dict(changes.at(domain=score.ALL).groups("name"))
as_published = of_kind[next(iter(kinds))]
path_0 = of_kind[paths[0]]

# %%
shown = study.beside_the_paper(profiles, [*published_kinds, *paths]).frame
ctx.plot(
    shown.assign(row=shown["row"].str.replace(", ", ",\n", n=1)),
    x="depth",
    columns="row",
    percent=True,
    limits=(0, None),
    y="mean of min(1, p/q), or accepted (%)",
    slug="depth-profile",
    title=f"On the best path acceptance {path_0.tally(*study.TREND)} with depth ({cut.name})",
    caption="Acceptance by depth. All nodes of a tree: mean of min(1, p/q) (`published_alpha`). "
    "Best path: share accepted, given that all earlier tokens were accepted (`accept_by_depth`). "
    "Bands: 95 % intervals (the paper prints none).",
)

# %% [markdown]
# A line may rise or fall by chance. What counts is the difference between the deepest level and
# depth 1 on the same prompts, with its interval.

# %%
ctx.draw(
    drawings.draw_blocks,
    study.beside_the_paper(changes, list(kinds), change=True),
    "change",
    title=f"Depth {deepest} minus depth 1 is {path_0} on the best path (T = 0)",
    percent=["change (points)"],
    reference=0,
    reference_name="no change",
    caption=f"Change of acceptance from depth 1 to depth {deepest} by kind of node. Top: the "
    f"published mean over all nodes (`published_alpha`), which changes by {as_published} in the "
    "profile's tree. Bottom: what a decoder accepts (`accept_by_depth`). The title and this number "
    "are the mean of the domains. Bars: 95 % intervals.",
)

# %%
rows = changes.without(domain=unshown).frame
rows = rows.assign(kind=rows["name"].map(study.kind_in_words))
in_last = " Its last column has the mean of the domains." * (len(domains) > 1)
ctx.say(f"The table has depth {deepest} minus depth 1.{in_last}")
notebook.show_table(replace(changes, frame=rows).wide("kind", "domain"))

# %% [markdown]
# ## 3. What the cut does to the mean
# The nodes of a depth hang under the best path (or the root), or under another branch. The mean
# over all nodes is a weighted average of these two groups. The budget decides the weights.

# %%
at_deepest = {
    name: text.nodes[text.nodes["depth"] == deepest]
    for name, text in {"cut": cut, "complete": full}.items()
}
draws = stats.jointly({name: (nodes, score.published_alpha) for name, nodes in at_deepest.items()})

# %%
gap = (draws["complete"] - draws["cut"])[score.POOLED]
side = "below" if gap.iloc[0] < 0 else "above"
size = -gap if side == "below" else gap
gap = draws.table({"complete - cut": size}).in_units("points", 1)
gap = str(gap).lstrip("+")
ctx.draw(
    drawings.draw_mixture,
    study.mixtures([cut, full]),
    "mixture",
    title=f"At depth {deepest} the complete tree's mean is "
    f"{gap.partition(' [')[0]} {side} the cut tree's",
    whole=study.ALL_NODES,
    weighted=study.OTHERS,
    caption=f"Mean of min(1, p/q) by depth, minus its value at depth 1 ({mean}). The mean over all "
    "nodes (line) lies between the means of its two groups. The percentage is the share of nodes "
    "under other branches. The dashed line repeats the mean over the cut tree. The file "
    "`mixture.csv` has the means with their intervals.",
)

# %%
ctx.say(
    f"So the published mean can change with depth even if acceptance does not. At depth {deepest} "
    f"the complete tree's mean is {gap} {side} the cut tree's, on the same texts."
)

# %% [markdown]
# ## 4. Is it depth, or the choice of positions?
# A block reaches depth 3 only if its tokens at depths 1 and 2 were accepted. Its drafted tokens are
# then the target's own text, and an ordinary draft sees nothing else. So its token at depth 3 is
# **the token that it would draft first in a new block at that position**. Both are accepted or both
# are rejected. Depth itself changes nothing. If acceptance rises with depth, blocks that get deep
# are at easier positions. Which tokens are reached, and which are accepted, is easy to count at
# T = 0 (the upper left panel of the next figure).

# %% tags=["by-hand"]
chain = cut.nodes[cut.nodes["best_path"]]
index = ["domain", "prompt_id", "position"]
hits = chain.assign(hit=chain["target_rank"] == 0)  # the target's most likely token
hits = hits.pivot(index=index, columns="depth", values="hit")

# %% tags=["by-hand"]
survived = hits.cumprod(axis=1)  # a hit at this depth and at all earlier depths
reached = survived.shift(axis=1, fill_value=1)  # a hit at all earlier depths
by_hand = survived.groupby("domain").sum() / reached.groupby("domain").sum()

# %%
steps = study.along_best_path([cut, warm])
at_0 = steps.at(text=cut.name)
kit = at_0.at(name="accept_by_depth").frame
kit = kit.pivot(index="domain", columns="depth", values="estimate")
assert np.allclose(by_hand, kit.loc[by_hand.index], equal_nan=True)

# %%
nodes_of_path = pd.concat([study.best_path(text) for text in (cut, warm)])
same = nodes_of_path[(nodes_of_path["depth"] > 1) & (nodes_of_path["followed"] == 1)]
assert cut.by_start or np.allclose(same["own"], same["new"], atol=1e-3)

# %%
new_block = at_0.at(name="a new block there", depth=deepest).frame["estimate"]
easier = new_block.mean() - kit[1].mean()
title = "A deep token and a new block's first token at its position are accepted equally often"
if cut.by_start:
    lost = study.own_states(cut, deepest).at(domain=score.ALL)
    title = f"The head's own states change acceptance at depth {deepest} by {lost} ({cut.name})"
survival = steps.at(name="survival_by_depth", depth=deepest).in_units("%")
ctx.plot(
    steps.frame.replace({"name": study.PATH_IN_WORDS}),
    x="depth",
    rows="text",
    columns="name",
    percent=True,
    y="tokens or blocks (%)",
    limits=(0, 1),
    height=1.9,
    slug="conditional",
    title=title,
    caption="Along the draft's best path. Left: acceptance, given that all earlier tokens were "
    "accepted (`accept_by_depth`). Middle: acceptance of a new block's first token at the same "
    "positions. Right: share of blocks whose tokens are all accepted down to this depth "
    f"(`survival_by_depth`, {survival.span()} at depth {deepest}). Bands: 95 % intervals.",
)

# %%
often = "more" if easier > 0 else "less"
points = counted(round(100 * abs(easier)), "point")
selection = (
    f"Where blocks reach depth {deepest}, a new block's first token is accepted {points} {often} "
    f"often than over all positions ({cut.name}, {mean})."
)
if deepest == 1:
    ctx.say("The tree has one level, so there is nothing to compare.")
elif cut.by_start:
    ctx.say(
        "**Selection is not the only cause.** This draft is a trained head, which drafts deeper "
        f"tokens from its own states. At depth {deepest} this changes its acceptance by {lost}, "
        f"compared with a new block's first token at the same positions. {selection}"
    )
else:
    ctx.say(
        f"**Only selection can cause a change.** We checked all {len(same):,} drafted tokens "
        "deeper than depth 1 whose earlier tokens were all right. Each has the acceptance of a new "
        f"block's first token at its position, because it is the same token. {selection}"
    )

# %% [markdown]
# For a user this means that accepted tokens come in streaks, and a deep block is in the middle of a
# streak. A longer draft gains where the text is easy and nothing elsewhere. A draft is not better
# at depth 3 than at depth 1. A head that drafts from its own predictions, such as EAGLE's, is
# different. Its deeper tokens are accepted less often than a new block's at the same positions
# (notebooks 15 and 18).
#
# The table has the change from depth 1 to the deepest level on each set of prompts that the profile
# names (`other_prompts`), along the best path at T = 0.

# %%
ctx.say(prompt_sets.described(ctx.profile, is_sampled=False))
sets = prompt_sets.texts(ctx.profile, cut)
by_set = prompt_sets.by_set(prompt_sets.asked(sets, study.change_along_best_path))
by_set = by_set.in_units("points")
ctx.table(by_set, "other-prompts", most=60, cells=by_set.wide("set", "domain"))

# %% [markdown]
# ## 5. Along the text
# How does the exact acceptance of one token depend on its position in the text? On greedy text we
# measure `hit[1]` (the draft's best token is the target's), and on sampled text `alpha` (the
# acceptance of one token drawn from the draft). The first two bins are one eighth of the longest
# text each, and each later bin is twice as long as the bin before. Late positions exist in long
# texts only. To keep the same prompts in all bins, we use only texts with at least half of the
# longest text's tokens.

# %%
along = study.along_text([cut, warm]).in_units("%")

# %%
ctx.plot(
    along,
    x="tokens",
    columns="name",
    kind="points",
    percent=True,
    y="tokens accepted (%)",
    x_label="position in the text (tokens)",
    limits=(0, None),
    slug="position",
    title=study.along_in_title(along.at(name=along.frame["name"].iloc[0])),
    caption="Acceptance of one drafted token by its position in the text and by domain (`hit[1]` "
    f"at T = 0, `alpha` at {warm.name}). The title counts a domain if its last interval lies below "
    "its first. Bars: 95 % intervals.",
)

# %%
is_own = by_set.frame["set"].isin([prompt_sets.OWN, prompt_sets.ENGLISH])
elsewhere = by_set.frame[~is_own]  # no rows if the profile names no other prompts
ctx.answer(study.rise_with_depth(path_0, deepest, elsewhere, cut.by_start))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: nodes under the best path have a mean of 0.6 at every depth, and nodes under other
#    branches 0.4. What is `published_alpha` at depths 1, 2, 3 of the tree 2 + 4 + 2? And of 2 + 4 +
#    8?
#
# <details><summary>What happens</summary>
# 0.6, 0.5, 0.6 in the cut tree: it falls and rises again, though nothing depends on depth. In the
# complete tree the other branches have 0, 1/2 and 3/4 of the nodes, which gives 0.6, 0.5, 0.45: a
# steady fall. The two trees show two different 'effects of depth', and neither is an effect of
# depth.</details>
#
# 2. Keep the draft's second choices only: `chain = cut.nodes[cut.nodes["rank"] == 1]`. Why does
#    `score.reach(chain)` refuse them?
#
# <details><summary>What happens</summary>
# A node counts as accepted only with all its ancestors, and the parents of the deeper nodes are on
# the best path, so they are not among the rows. An error names the orphans, because a silent answer
# would be about another tree.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: a mean over a tree's nodes depends on the tree's shape. For a fixed rank and branch
#   acceptance can rise with depth. With an ordinary draft the only cause is that deep blocks are at
#   easy positions. The share of blocks that get deep can only fall.
# * What this does not show: other trees than these two, sampled children, drafts that do not read
#   the whole context at each depth, and texts beyond the recorded length. The cause of the paper's
#   own rise also stays open, because its tables do not separate the two ranks. Sampled text by
#   depth comes from one seed's trees.
# * Next: [05](05_entropy_correlation.ipynb) asks what entropy has to do with acceptance.

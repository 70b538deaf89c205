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
# If a deep token is as likely to be accepted as a shallow one, or likelier, long drafts pay. The
# paper's mean over a tree's nodes rises a little with depth. But the tree is cut to a budget, so
# each depth averages another mixture of nodes. Here the kind of node is held fixed, the cut's own
# effect is measured, and we ask the question that matters to a decoder: if all earlier drafted
# tokens were accepted, is the next one? That share rises with depth, and section 4 shows why: not
# because of depth, but because only blocks at easy positions get deep.
#
# ![Change from depth 1 to the deepest level, by domain](../figures/smollm/04/change.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores, once the runs are there · *reads* the
# runs `greedy` (the profile's tree, temperature T = 0), `balanced` (T = 0, the same tree without
# the cut), `sampled`, `sampled-seed-1` and `sampled-seed-2` (the profile's temperature, by default
# 1; three seeds), and at T = 0 those of the other prompts that the profile names (`other_prompts`),
# recorded if they are not there · *writes* `figures/<profile>/04/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Goes to the root of the kit. If the kit is missing, it is cloned from SPECLAB_REPO.
# On Colab and Kaggle it installs missing packages: `python -m speclab hosted install`.
import os, pathlib, subprocess, sys

places = (here := pathlib.Path.cwd(), *here.parents, here / "speclab-kit")
kit = next((place for place in places if (place / "speclab/ops").is_dir()), places[-1])
if not kit.exists() and (address := os.environ.get("SPECLAB_REPO")):
    subprocess.run(["git", "clone", "--depth=1", address, kit])
if not (kit / "speclab/ops").is_dir():
    sys.exit(f"{kit} holds no kit: clone it, or set SPECLAB_REPO to its address")
sys.path.insert(0, str(kit))
from speclab.ops import hosted

hosted.prepare()

# %% jupyter={"source_hidden": true}
import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import prompt_sets, published
from speclab.analysis.texts import SEEDS, Text
from speclab.estimates import Estimates, counted
from speclab.show import notebook
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
deepest = int(cut.nodes["depth"].max())
half = (ctx.profile.max_new_tokens + 1) // 2  # tokens in each half of a text of full length

# %%
cut_shape, full_shape = study.shape(cut), study.shape(full)
ctx.say(
    f"Nodes by depth: **{cut_shape}** in the profile's tree (run `greedy`), **{full_shape}** "
    "without the cut (run `balanced`). The text does not depend on the tree: both runs are the "
    "target's greedy text."
)
assert cut.trace["token"].equals(full.trace["token"])

# %% [markdown]
# ## 1. The paper's Tables IV and V, on this pair
# At every position of the target's own text a small tree of draft tokens was hung: at the paper's
# settings 2 tokens, then 2 after each of them, then only 2 more, because a budget of 8 nodes cuts
# the rest. Table IV is the mean of min(1, p/q) at each depth (`published_alpha`; p: target's, q:
# draft's probability of the node's token), Table V the same for the first half (bin 0) and the
# second half (bin 1) of the texts' full length, all domains together. `published` is the paper's
# number (Llama-2-7B and TinyLlama), shown where the domains are the paper's. `ours, as published`
# is the same procedure on this pair, and `corrected` what a decoder at T = 0 accepts along the
# draft's best path, given that it accepted all above (`accept_by_depth`). The 95 % intervals
# resample prompts 2,000 times. (Temperature T = 0: the target's most likely token is taken; above
# 0 one is drawn with the target's probabilities.)

# %%
table_4 = published.comparison("IV", cut)
in_paper = table_4["published"].notna().any()
ctx.export(table_4.dropna(axis=1, how="all"), "table-4")
notebook.show_table(published.in_cells(table_4).drop(columns="estimator"))

# %% [markdown]
# Bin 1 holds only prompts with longer texts, so a domain of short texts weighs less in it. The
# table pools rows, so a domain of many prompts weighs more than one of few.

# %%
late = cut.nodes[cut.nodes["position"] >= half]
prompts = late.groupby("domain")["prompt_id"].nunique().reindex(domains, fill_value=0)
counts = ", ".join(f"{domain} {count}" for domain, count in prompts.items())
ctx.say(f"Prompts with texts of more than {half} tokens (half of the limit): {counts}.")

# %%
if prompts.sum():
    table_5 = published.comparison("V", cut, half=half)
    ctx.export(table_5.dropna(axis=1, how="all"), "table-5")
    notebook.show_table(published.in_cells(table_5).drop(columns="estimator"))
    if half != published.POSITION_BIN and table_5["published"].notna().any():
        ctx.say(f"(The paper's halves have {published.POSITION_BIN} tokens, ours {half}.)")

# %% [markdown]
# ## 2. The profile as published, and with the kind of node held fixed
# In the paper's tree half of the nodes at every depth are their parent's best child (rank 0) and
# half its second (rank 1). What changes with depth is the branch above them: half of the nodes at
# depth 2 hang under the draft's second choice, and none at depth 3. Without the cut the share of
# unlikely branches grows with depth instead. Like is compared with like only along the best path
# (rank 0 at every depth). A decoder's share is `accept_by_depth`: given that all nodes above were
# accepted, is the next? At T = 0 a token is accepted if it is the target's most likely one (greedy
# rule, greedy text), on sampled text with the target's probability p of it (point-mass rule; the
# trees of the first seed: the others were recorded without). The last two rows of the picture ask
# it of the complete tree: is one of the children accepted?

# %%
kinds = study.kinds(cut, full, warm, ctx.profile.depth, ctx.profile.branches)
profiles = study.by_depth(kinds)
ctx.export(profiles, "profiles")
paths = [study.best_path_name(text) for text in (cut, warm)]
cold, hot = (profiles.at(name=name, domain=domains).span() for name in paths)
published_kinds = [name for name in kinds if name.startswith("published_alpha")]

# %%
ctx.plot(
    study.beside_the_paper(profiles, [*published_kinds, *paths]),
    x="depth",
    columns="panel",
    y="mean of min(1, p/q),\nor share accepted",
    slug="depth-profile",
    caption="Acceptance by depth. `published_alpha`: mean of min(1, p/q) over the nodes, by tree. "
    "`accept_by_depth`: share accepted along the draft's best path, given that all tokens above "
    f"were accepted ({cold} at {cut.name}, {hot} at {warm.name}).",
)

# %% [markdown]
# A line may rise or fall by chance; what counts is the difference between the deepest level and
# depth 1 of the same prompts, with its interval:

# %%
changes = study.change_by_kind(kinds)
of_kind = dict(changes.at(domain=score.ALL).groups("name"))
as_published = of_kind[next(iter(kinds))]
path_0, path_1 = (of_kind[name] for name in paths)

# %%
ctx.plot(
    study.beside_the_paper(changes, list(kinds), change=True),
    x="panel",
    kind="bars",
    height=3.6,
    reference=0,
    x_label="",
    y=f"change from depth 1 to depth {deepest}{' (the paper: 3)' if in_paper else ''}",
    slug="change",
    caption="Change of acceptance from depth 1 to the deepest level, by definition, with 95 % "
    f"intervals: {as_published} as published, {path_0} at {cut.name} and {path_1} at {warm.name} "
    f"along the best path ({mean}). The change along the best path is the choice of positions, not "
    "an effect of depth (section 4).",
)

# %%
sentences = [
    f"* `{name}`: {rows.at(domain=domains).sentence()} ({mean}: {of_kind[name]})"
    for name, rows in changes.groups("name")
]
ctx.say("**Acceptance at the deepest level compared with depth 1**:\n\n" + "\n".join(sentences))

# %% [markdown]
# ## 3. What the cut does to the mean
# The nodes of a depth hang under the best path (or the root), or under another branch, and the mean
# over all is a mixture of the two, in shares that the budget sets:

# %%
ctx.plot(
    study.mixtures([cut, full]),
    x="depth",
    hue="name",
    columns="tree",
    kind="points",
    y="mean of min(1, p/q)",
    slug="mixture",
    caption=f"Mean of min(1, p/q) by depth ({mean}), in the profile's tree ({cut_shape}) and "
    f"without the cut ({full_shape}). The mean over all nodes is a weighted average of two groups: "
    "nodes under the best path and nodes under other branches. The tree's shape sets the weights.",
)

# %% [markdown]
# So the published profile can change even if acceptance does not. How far the cut moved the
# number at the deepest level is a difference on the same texts (draws of `stats.jointly`: the
# prompts are resampled once for both):

# %%
at_deepest = {
    name: text.nodes[text.nodes["depth"] == deepest]
    for name, text in {"cut": cut, "complete": full}.items()
}
draws = stats.jointly({name: (nodes, score.published_alpha) for name, nodes in at_deepest.items()})

# %%
gap = (draws["complete"] - draws["cut"])[score.POOLED]
gap = Estimates(draws.table({"complete - cut": gap}), digits=3)
ctx.say(
    f"At depth {deepest} the complete tree's `published_alpha` minus the cut tree's, pooled over "
    f"nodes: **{gap}**."
)

# %% [markdown]
# ## 4. Is it depth, or the choice of positions?
# A block reaches depth 3 only where depths 1 and 2 were accepted. What it has drafted so far is
# then the target's own text, and an ordinary draft knows nothing else. So its token at depth 3 is
# **the very token that it would draft first in a new block that begins there**, and is accepted or
# rejected alike. Depth itself changes nothing; if acceptance rises with depth, blocks that get deep
# stand at easier positions. At T = 0 by hand: which tokens are reached, and which are accepted.

# %%
chain = cut.nodes[cut.nodes["best_path"]]
index = ["domain", "prompt_id", "position"]
hits = chain.assign(hit=chain["target_rank"] == 0)
hits = hits.pivot(index=index, columns="depth", values="hit")

# %%
survived = hits.cumprod(axis=1)
reached = survived.shift(axis=1, fill_value=1)  # a hit at all depths above
by_hand = survived.groupby("domain").sum() / reached.groupby("domain").sum()

# %% [markdown]
# The kit's functions find the same. A new block that begins at the same positions drafts the same
# tokens with the same probabilities. A sampled text follows the draft's path only by chance, so the
# new blocks begin where it does.

# %%
steps = study.along_best_path([cut, warm])
at_0 = steps.at(text=cut.name)
kit = at_0.at(name="accept_by_depth").frame
kit = kit.pivot(index="domain", columns="depth", values="estimate")
assert np.allclose(by_hand, kit.loc[by_hand.index], equal_nan=True)

# %%
paths = pd.concat([study.best_path(text) for text in (cut, warm)])
same = paths[(paths["depth"] > 1) & (paths["followed"] == 1)]
assert np.allclose(same["own"], same["new"], atol=1e-3)

# %%
new_block = at_0.at(name="a new block there", depth=deepest).frame["estimate"]
easier = new_block.mean() - kit[1].mean()
survival = steps.at(name="survival_by_depth", depth=deepest)
ctx.plot(
    steps,
    x="depth",
    rows="text",
    columns="name",
    y="share accepted",
    x_label="depth, best path",
    limits=(0, 1),
    height=1.9,
    slug="conditional",
    caption="Along the draft's best path: acceptance given that all tokens above were accepted "
    "(left), acceptance of the first token of a new block at the same positions (middle), and the "
    f"share of blocks that reach this depth (right, {survival.span()} at depth {deepest}).",
)

# %%
ctx.say(
    f"**The change is selection alone.** All {len(same):,} drafted tokens below depth 1 whose path "
    "is the text are the tokens that a new block would draft first at the same positions, and are "
    f"accepted alike. At depth {deepest} acceptance at the positions that are reached is "
    f"{easier:+.2f} relative to all positions ({cut.name}, {mean})."
    if deepest > 1
    else "The tree has one level, so there is nothing to compare."
)

# %% [markdown]
# An identity is no finding about depth. For a user it means: acceptance comes in runs, and a block
# that has got far stands in one. A longer draft gains where the text is easy and nothing where it
# is not, and a draft is no better at depth 3 than at depth 1. A head that drafts from its own
# predictions (EAGLE's, notebook 15) does lose with depth: for it the identity does not hold.
#
# What the choice of positions brings on the other prompts that the profile names (`other_prompts`):
# acceptance at the deepest level minus acceptance at depth 1, along the best path at T = 0.

# %%
ctx.say(prompt_sets.described(ctx.profile, is_sampled=False))
sets = prompt_sets.texts(ctx.profile, cut)
others = [name for name in sets if name not in (prompt_sets.OWN, prompt_sets.ENGLISH)]
by_set = prompt_sets.by_set(prompt_sets.asked(sets, study.change_along_best_path))
ctx.table(by_set, "other-prompts", rows=60, cells=by_set.wide("set", "domain"))

# %% [markdown]
# ## 5. Along the text
# The exact acceptance of one token by its position, within each domain: `hit[1]` (T = 0: the
# draft's best token is the target's) on greedy text and `alpha` (the acceptance of one token drawn
# from the draft) on sampled text. The first eighth of the longest text's tokens has a bin of its
# own, the second too, and the other bins double. Late positions exist in long texts only, so a
# curve over all texts could move because its prompts change. Only texts with at least half of the
# longest text's tokens are used.

# %%
along = study.along_text([cut, warm])
earliest = along.frame["tokens"].min()
first = along.at(tokens=earliest)

# %%
ctx.plot(
    along,
    x="tokens",
    columns="name",
    kind="points",
    y="accepted (mean)",
    x_label="tokens of the text",
    slug="position",
    caption=f"Acceptance by position in the text. In tokens {earliest}: "
    f"{first.listed(within='name')}.",
)

# %%
elsewhere = "No other prompts were tested."
if others:
    judged = by_set.at(set=others).frame.dropna(subset="low")
    rises = (judged["low"] > 0).sum()
    elsewhere = (
        f"On other prompts acceptance rises significantly in {rises} of "
        f"{counted(len(judged), 'comparison')}."
    )
ctx.answer(
    f"On `{ctx.profile.name}` acceptance changes by {path_0} from depth 1 to depth {deepest}, by "
    f"selection alone ({cut.name}, all tokens above accepted). A new block begun at the same "
    f"positions drafts the same tokens. {elsewhere}"
)

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: nodes under the best path are worth 0.6 at every depth and nodes under other branches
#    0.4. What is `published_alpha` at depths 1, 2, 3 of the tree 2 + 4 + 2? And of 2 + 4 + 8?
#
# <details><summary>What happens</summary>
# 0.6, 0.5, 0.6 in the cut tree: down and up again, though nothing depends on depth. In the complete
# tree the other branches have 0, 1/2 and 3/4 of the nodes: 0.6, 0.5, 0.45, a steady fall. Two
# trees, two 'effects of depth', and neither is an effect of depth.</details>
#
# 2. Keep the draft's second choices only: `chain = cut.nodes[cut.nodes["rank"] == 1]`. Why does
#    `score.reach(chain)` refuse them?
#
# <details><summary>What happens</summary>
# A node counts as accepted only with all its ancestors, and the best-path parents of the deeper
# nodes are not among the rows: an error names the orphans, because a silent answer would be about
# another tree.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: a mean over a tree's nodes follows the tree's shape. With rank and branch held
#   fixed acceptance rises with depth, but only because deep blocks stand at easy positions.
#   Survival, which counts tokens, can only fall.
# * What this does not show: other trees than these two; sampled children; drafts that do not
#   read the whole context at each depth; texts beyond the recorded length; that the paper's own
#   rise has the same cause: its tables do not separate the two ranks. Sampled text by depth rests
#   on one seed's trees.
# * Next: notebook 05 asks what entropy has to do with acceptance.

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
# **Answer.** As published (`published_alpha` by depth) the question cannot be answered, because the
# profile mixes kinds of node: two ranks at every depth, and at depth 2, but not at depths 1 and 3,
# nodes under the draft's second choice. What the cut does to it is computed in section 3; what is
# left of a rise along the draft's best path is computed in section 2, for each domain with its
# interval and for either temperature on its own text (`accept_by_depth`: greedy rule at T = 0,
# point-mass rule at T = 1); and what a decoder gains from depth, the chance to get that far
# (`survival_by_depth`), can only fall (section 4).
#
# ![Change from depth 1 to the deepest level, by domain](../figures/smollm/04/change.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores, once the runs are there · *reads* the
# runs `greedy` (the paper's tree, temperature T = 0), `balanced` (T = 0, the same tree without the
# cut) and `sampled` (T = 1), recorded if they are not there · *writes* `figures/<profile>/04/`.

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Colab and Kaggle: fetches the kit and installs what is missing. In a checkout it only moves to the
# repository's root.
import os, shutil, subprocess, sys
from pathlib import Path

here, kit, is_kit = (
    Path.cwd(),
    Path("speclab-kit").resolve(),
    "speclab/show/notebook.py",
)
root = next((p for p in (here, *here.parents, kit) if (p / is_kit).is_file()), None)
origin = "here already; remove it to fetch another"
if root is None:
    address, half = os.environ.get("SPECLAB_REPO"), Path("speclab-kit.half").resolve()
    attached = min(Path("/kaggle/input").rglob(is_kit), default=None)
    why = "set SPECLAB_REPO to the kit's git address, or attach the kit as a data set"
    shutil.rmtree(half, ignore_errors=True)
    if address:  # wins over what is attached
        os.environ["GIT_TERMINAL_PROMPT"], origin = "0", f"from {address}"
        git = ["git", "clone", "--depth", "1", address, str(half)]
        said = subprocess.run(git, capture_output=True, text=True).stderr
        said = said.partition("fatal: ")[2].split("\n")[0] or "no kit is there"
        why = f"SPECLAB_REPO={address}: {said}"
    elif attached:  # read-only; the copy is not
        origin = f"from {attached.parents[2]}"
        shutil.copytree(attached.parents[2], half, copy_function=shutil.copyfile)
        for folder, *_ in os.walk(half):
            os.chmod(folder, 0o755)
    if kit.exists():
        why = f"{kit} is in the way, remove it"
    if kit.exists() or not (half / is_kit).is_file():
        shutil.rmtree(half, ignore_errors=True)
        raise SystemExit(f"No kit here: {why}.")
    root = half.rename(kit)
os.chdir(root)
sys.path.insert(0, str(root))
if root == kit:
    from speclab.show.notebook import install_missing

    about = Path("pyproject.toml").read_text(encoding="utf-8")
    version = about.partition('version = "')[2].partition('"')[0]
    print(f"speclab {version} in {root}, {origin}")
    install_missing(root)

# %% jupyter={"source_hidden": true}
from speclab import runs, score
from speclab.show import notebook
from speclab.analysis import published
from speclab.studies import depth_profile as study

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# tokens: standard deviation of the weights in the position curves
bandwidth: float = 4.0  # 0.1 to 1000
# a position effect is called found when Holm's p-value is below this
level: float = 0.05  # 0.0001 to 0.5

# %%
ctx = notebook.start("04_depth_profile", profile, overrides)
at_0 = ctx.profile.replace(temperature=0.0)
cut = runs.load_or_record(at_0, "greedy")
full = runs.load_or_record(at_0, "balanced")
warm = runs.load_or_record(ctx.profile, "sampled")
domains = list(score.domains_in(cut.nodes))
deepest = int(cut.nodes["depth"].max())

# %%
cut_shape, full_shape = study.shape(cut), study.shape(full)
ctx.say(
    f"Nodes by depth: **{cut_shape}** in the paper's tree (run `greedy`), **{full_shape}** without "
    "the cut (run `balanced`)."
)

# %% [markdown]
# The text does not depend on the tree: both runs are the target's greedy text.

# %%
assert cut.trace["token"].equals(full.trace["token"])

# %% [markdown]
# ## 1. The paper's Tables IV and V, on this pair
# At every position of the target's own text a small tree of draft tokens was hung: at the paper's
# settings 2 tokens, then 2 after each of them, then only 2 more, because a budget of 8 nodes cuts
# the rest. Table IV is the mean of min(1, p/q) at each depth (`published_alpha` by depth; p:
# target's, q: draft's probability of the node's token), Table V the same for tokens 1-32 (bin 0)
# and 33-64 (bin 1) of the text, all domains together. In the tables `published` is the paper's
# number (Llama-2-7B and TinyLlama), `ours_as_published` the same procedure on this pair, and
# `corrected` what a decoder at T = 0 accepts along the best path, where every token is the draft's
# best, given that it accepted all above (`accept_by_depth`, greedy rule). The intervals are 95 %
# and resample prompts: as many as there are, drawn anew with replacement, 2,000 times. (Temperature
# T = 0: the target's most likely token is taken; T = 1: one is drawn with the target's
# probabilities.)

# %%
table_4 = published.comparison("IV", cut)
ctx.export(table_4.dropna(axis=1, how="all"), "table-4")
notebook.show_table(published.in_cells(table_4))
assert table_4["ours_as_published"].between(0, 1).all()

# %% [markdown]
# Bin 1 of Table V holds only prompts whose text is longer than 32 tokens, so a domain of short
# texts weighs less in it; the table needs five of every domain that has any.

# %%
late = study.long_texts(cut.nodes)
ctx.say(
    f"Prompts with so long a text: {', '.join(f'{d} {late.get(d, 0)}' for d in domains)}."
)

# %%
if study.enough(late):
    table_5 = published.comparison("V", cut)
    ctx.export(table_5.dropna(axis=1, how="all"), "table-5")
    notebook.show_table(published.in_cells(table_5))

# %% [markdown]
# ## 2. The profile as published, and with the kind of node held fixed
# At every depth half of the nodes are their parent's best child (rank 0) and half its second (rank
# 1). What changes with depth is the branch above them: in the paper's tree half of the nodes at
# depth 2 hang under the draft's second choice, and none at depth 3. Without the cut (run
# `balanced`) the share of unlikely branches grows with depth instead. Like is compared with like
# only under the best path (rank 0 at every depth). What a decoder asks of it is `accept_by_depth`:
# given that a node was accepted, is the next? At T = 0 that is read from greedy text (greedy rule:
# a token is accepted if it is the target's most likely one), at T = 1 from text sampled from the
# target (point-mass rule: with the target's probability p of it). The last rows of the picture ask
# it of the complete tree: is one of the children accepted? (T = 1: replayed, starts with room for
# the whole tree.) Two rows in between are a curiosity: the mean of min(1, p/q) of the best path's
# nodes (`best_path_ratio`) and of their second siblings, a *T = 1 rule on greedy text*, which no
# decoder meets. They show what rank does to the published mean and answer nothing else.

# %%
kinds = study.kinds(cut, full, warm, ctx.profile.depth, ctx.profile.branches)
profiles = study.by_depth(kinds)
ctx.table(profiles, "profiles", rows=6)

# %%
printed = study.printed_profile(domains)
ctx.plot(
    study.beside_the_paper(profiles, printed, list(kinds)[:4]),
    x="depth",
    columns="panel",
    y="mean of min(1, p/q),\nor share accepted",
    slug="depth-profile",
    caption="Profile by depth in the paper, in the same tree here, in the complete tree (means of "
    "min(1, p/q)), and what is accepted along the best path given all above: at T = 0 "
    f"{profiles.at(name=study.BEST_PATH['T = 0'], domain=domains).span()}, at T = 1 "
    f"{profiles.at(name=study.BEST_PATH['T = 1'], domain=domains).span()}.",
)

# %% [markdown]
# The picture's lines may rise or fall by chance; what counts is the difference between the deepest
# level and depth 1 of the same prompts, with its interval:

# %%
changes = study.change_by_kind(kinds)
ctx.table(changes, "change", rows=6)

# %%
whole = changes.at(domain=score.ALL)
as_published = whole.at(name=next(iter(kinds)))
on_best_path = {text: whole.at(name=name) for text, name in study.BEST_PATH.items()}
ctx.plot(
    study.beside_the_paper(changes, study.printed_change(printed), list(kinds)),
    x="panel",
    kind="bars",
    height=4.2,
    reference=0,
    x_label="",
    y=f"change from depth 1 to depth {deepest} (the paper: 3)",
    slug="change",
    caption="Change from depth 1 to the deepest level by kind of node, with 95 % intervals: mean "
    f"of the domains as published {as_published}, accepted along the best path "
    f"{on_best_path['T = 0']} at T = 0 and {on_best_path['T = 1']} at T = 1.",
)

# %%
ctx.say(
    "**The deepest level beside depth 1** (95 % intervals of the paired difference, each domain by "
    "itself):\n\n" + study.change_said(changes)
)

# %% [markdown]
# ## 3. What the cut does to the mean
# The same nodes, sorted by where they hang: under the best path (or the root), or under any other
# branch. The published mean at a depth is a mixture of the two, and the budget sets the mixture: in
# the paper's tree the share of other branches is 0 at depth 1, a half at depth 2 and 0 again at
# depth 3. A profile can bend without acceptance changing at all. Depths 1 and 3 of that tree are
# mixed alike, both ranks half and half under the best path: between these two the cut makes no
# difference, the mean over ranks may.

# %%
means = study.mixtures(cut, full)
mixture = study.mixture_table(means, cut, full)
ctx.table(mixture, "mixture")

# %%
ctx.plot(
    means,
    x="depth",
    hue="name",
    y="mean of min(1, p/q)",
    slug="mixture",
    caption=f"Mean of domains by depth: {study.course(means.at(name='under the best path'))}; the "
    "means over all nodes mix this line and that of the other branches.",
)

# %% [markdown]
# The mean over all nodes is this mixture (two runs in float32: to four decimals):

# %%
assert study.mixing_error(mixture, cut_shape) < 1e-4
assert study.mixing_error(mixture, full_shape) < 1e-4

# %%
gap = study.cut_at_the_end(cut, full)
ctx.say(
    f"At depth {deepest} the complete tree's `published_alpha` minus the cut tree's, on the same "
    f"texts, pooled over nodes: **{gap}**: the cut by itself {study.cut_said(gap)} the number at "
    f"the deepest level. The mean of domains by depth: {study.course(means)}."
)

# %% [markdown]
# ## 4. Given that the parent was accepted
# A decoder reaches depth 2 only where depth 1 was accepted, and such places may be easier than the
# average. So ask three questions of the best path alone, a chain. At T = 0 its token is accepted if
# it is the target's most likely one (greedy rule, greedy text), at T = 1 with the target's
# probability p of it (point-mass rule, sampled text): how often that is so at a depth, whatever
# happened above (`unconditional`, as in all means so far); how often it is so where the parent was
# accepted (`accept_by_depth`); and how often a block, the tokens that one target pass checks, gets
# that far at all (`survival_by_depth`), the only one that counts tokens.

# %%
steps = study.along_best_path(cut, warm)
ctx.table(steps, "conditional", rows=6)

# %%
survival = steps.at(name="survival_by_depth")
ctx.plot(
    steps.without(name=study.GAIN),
    x="depth",
    rows="text",
    columns="name",
    y="share",
    x_label="depth, best path",
    limits=(0, 1),
    height=1.9,
    slug="conditional",
    caption="Acceptance along the best path at any place, where the parent was accepted, and of "
    f"the whole path, which falls to {survival.at(depth=deepest).span()} at depth {deepest}.",
)

# %% [markdown]
# A block that gets to a depth has been at the one above:

# %%
assert (survival.steps("depth") <= 1e-12).all()

# %%
ctx.say(
    "**Acceptance where the parent was accepted, beside acceptance everywhere** (95 % intervals of "
    f"the difference, each domain by itself): {study.gains_said(steps)}."
)

# %%
ctx.say(
    f"**Blocks whose best path is accepted down to depth 1**: "
    f"{survival.at(depth=1).listed(within='text')}. **Down to depth {deepest}**: "
    f"{survival.at(depth=deepest).listed(within='text')}."
)

# %% [markdown]
# ## 5. Depth and position together
# The paper's heat maps: `published_alpha` by depth and bin of positions, for each domain and for
# all (pooled over nodes, as in Table V). Below them what is accepted along the best path given all
# above (`accept_by_depth`, T = 0, greedy rule). One colour scale for both: equal colours are equal
# numbers. Blank: no text was that long, or no parent accepted.

# %%
size = study.bin_size(cut.nodes, ctx.profile.position_bin)
cells = study.heat_map(cut.nodes, size)
ctx.export(cells, "heat-map")
assert cells["mean"].dropna().between(0, 1).all()

# %%
spread = study.largest_step(cells)
ctx.save(
    study.heat_map_picture(cells, size),
    "heat-map",
    caption="Mean of min(1, p/q), and share accepted along the best path at T = 0, by depth, "
    "domain and tokens of the text: in one bin, depth 1 and the deepest level differ by "
    f"{spread['published_alpha']:.3f} at most as published, and by "
    f"{spread[study.BEST_PATH['T = 0']]:.3f} along the best path.",
)

# %% [markdown]
# A map has no intervals: for those see sections 2 and 6.
#
# ## 6. Along the text
# The same question for position alone, for three estimators: `published_alpha` and `hit[1]` (T = 0:
# the draft's best token is the target's) on greedy text, and `alpha` (T = 1: overlap, the
# acceptance of one token drawn from the draft) on sampled text. The curves are smooth: at each
# token a mean over all positions, weighted by a normal curve around it (`bandwidth`: its standard
# deviation in tokens), with a prompt-clustered interval as a band. The crosses are the means of the
# bins of section 5, all domains together. A domain's curve ends where fewer than five of its texts
# go on.

# %%
asked = study.asked_of_texts(cut, warm)
along = study.along_text(asked, bandwidth, size)
assert along.lies_within(0, 1)

# %%
last = {
    name: rows.span() for name, rows in along.without(domain=study.BINS).groups("name")
}
ctx.plot(
    along,
    x="token",
    columns="name",
    dots=[study.BINS],
    looks=study.BIN_LOOK,
    y="mean around the token",
    x_label="token of the text",
    slug="position",
    caption="Three estimators along the text, by domain, with 95 % bands: hit[1] (T = 0, greedy "
    f"text) lies at {last['hit[1], T = 0']}, alpha (T = 1, sampled text) at "
    f"{last['alpha, T = 1']}.",
)

# %% [markdown]
# Late positions hold only the prompts with long texts, so a curve may move because its prompts
# change. The test compares tokens 33-64 with tokens 1-32 of the same prompts: of every prompt the
# two may be swapped if position does not matter, and the p-value is the share of such swaps
# (10,000 at random) whose difference is as large. Holm's correction raises the p-values so that
# all tests together give a false alarm with a probability of no more than `level`.

# %%
effects = study.position_effects(asked)
if len(effects):
    ctx.table(effects, "position-effect", digits=4)

# %%
found = study.effects_found(effects, level)
ctx.say(
    f"**Tokens 33-64 less tokens 1-32**, the same prompts, {len(effects)} tests, Holm's p below "
    f"{level:g}. Found: {study.effects_said(found, len(effects))}."
)

# %%
path_0, path_1 = (on_best_path[text].frame.iloc[0] for text in study.RULES)
published_change = as_published.frame.iloc[0]
ctx.record(
    change_published_alpha=float(published_change["estimate"]),
    change_published_low=float(published_change["low"]),
    change_published_high=float(published_change["high"]),
    change_best_path=float(path_0["estimate"]),
    change_best_path_low=float(path_0["low"]),
    change_best_path_high=float(path_0["high"]),
    change_best_path_t1=float(path_1["estimate"]),
    change_best_path_t1_low=float(path_1["low"]),
    change_best_path_t1_high=float(path_1["high"]),
    complete_less_cut=gap.estimate,
    complete_less_cut_low=gap.low,
    complete_less_cut_high=gap.high,
    position_effects_tested=len(effects),
    position_effects_found=len(found),
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
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
#
# 3. Set `bandwidth` to 1. What happens to the bands of section 6?
#
# <details><summary>What happens</summary>
# Each window holds a quarter of the positions but as many prompts. The bands grow, but by less than
# the factor 2 that independent tokens would give, as far as a prompt's own level is what
# varies.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above. A mean over a tree's nodes follows the tree's shape; depth by
#   itself is asked with rank and branch held fixed, and what a decoder has from depth is survival.
# * What this does not show: other trees than these two; sampled children; longer texts; that the
#   paper's own rise is none: its tables do not hold the two ranks apart.
# * Next: notebook 05 asks what entropy has to do with acceptance.

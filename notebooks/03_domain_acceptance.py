# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 3. Does acceptance depend on the domain?
#
# **Answer.** It depends on what is called acceptance. The mean that the paper published
# (`published_alpha`) is not the acceptance of any lossless algorithm; beside it stand estimators
# that are, and they differ from it in level and can differ in the order of the domains. Which
# domains can be told apart on this pair, under which estimator, is computed in section 3; what so
# many prompts can show at all, in section 4; how much the domain matters beside the place of a
# token in the draft's ranking, and how much more of what differs between prompts it explains than
# of what differs between nodes, in section 5.
#
# ![Four domains under each estimator, and their order](../figures/smollm/03/ladder.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the runs `greedy`
# (temperature T = 0) and `sampled` (T = 1) of the profile, recorded if they are not there ·
# *writes* `figures/<profile>/03/`.

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
import pandas as pd

from speclab import cost, runs, score, stats
from speclab.show import notebook
from speclab.analysis import levels, loops, power, published
from speclab.studies.domain_acceptance import (
    certainty,
    coverage,
    ladder,
    loop_free,
    sensitivity,
    variance,
)

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# two domains are told apart when Holm's p-value is below this
level: float = 0.05  # 0.0001 to 0.5
# power: the probability with which a study should find a difference that is there
likely: float = 0.8  # 0.5 to 0.999
# shorter texts, to see what the estimates owe to the length
new_tokens: list = [8, 16, 32]  # 1 to 65536
# c, a draft pass in target passes, for the break-even lines;
# 0.29: llama.cpp, TinyLlama and Llama-2-7B
draft_costs: list = [0.05, 0.29]  # 0 to 10

# %%
ctx = notebook.start("03_domain_acceptance", profile, overrides)
greedy = runs.load_or_record(ctx.profile.replace(temperature=0.0), "greedy")
sampled = runs.load_or_record(ctx.profile, "sampled")
domains = list(score.domains_in(greedy.nodes))

# %% [markdown]
# ## 1. The paper's Tables I to III, on this pair
# A draft model proposes tokens and a target model checks them. At every position of the target's
# own text the recorder hung a small draft tree (at the paper's settings 2 + 4 + 2 nodes) and stored
# for each node the draft's probability q and the target's probability p of its token. The
# temperature T says how a model picks a token: T = 0 always takes the most likely one (greedy),
# T = 1 draws one with the model's own probabilities.
#
# The paper calls min(1, p/q) the acceptance of a node and averages it over all nodes of a domain:
# `published_alpha`, Table I. Table III multiplies the means of the depths, Table II adds up the
# products (`published_length`, the paper's E[L]). In the tables below, `published` is the paper's
# number for Llama-2-7B and TinyLlama, `ours_as_published` the same procedure on this pair, and
# `corrected` the estimator, named beside it, that is exact at the text's temperature (here T = 0):
# what a decoder gets accepted of one draft token (`hit[1]`), of a path, of a tree.
#
# All intervals are 95 % and *clustered*: as many prompts as there are, drawn anew with replacement,
# give the number once more; of 2,000 such draws the middle 95 % (a little more where prompts are
# few: section 9) are the interval. Whole prompts are drawn, because the nodes of one text have its
# difficulty in common and are not independent.
#
# The pairs differ, so the columns `published` and `ours_as_published` are not expected to agree in
# level.

# %%
table_1 = published.comparison("I", greedy)
table_1_sampled = published.comparison("I", sampled, rule="point-mass")
table_2 = published.comparison("II", greedy)
table_3 = published.comparison("III", greedy)

# %% [markdown]
# Counts of nodes, and of the texts they come from (positions: tokens of the target's own text):

# %%
ctx.table(ladder.node_counts(table_1, greedy.trace), "table-1-counts")

# %% [markdown]
# **Table I**, the means (the standard deviations and entropies are in `03_table-1.csv`)

# %%
ctx.export(ladder.shown(table_1), "table-1")
notebook.show_table(published.in_cells(table_1[table_1["quantity"] == "alpha_mean"]), 4)

# %% [markdown]
# **Tables II and III**

# %%
ctx.export(ladder.shown(table_2), "table-2")
notebook.show_table(published.in_cells(table_2))

# %%
ctx.export(ladder.shown(table_3), "table-3")
notebook.show_table(published.in_cells(table_3))

# %% [markdown]
# E[L] is the sum of Table III's products, in the paper within rounding:

# %%
columns = ["published", "ours_as_published"]
chains = table_3.groupby("domain")[columns].sum()
error = (chains - table_2.set_index("domain")[columns]).abs().max()
assert error["ours_as_published"] < 1e-9 and error["published"] < 0.0025

# %%
means = ladder.alpha_means(table_1, domains)
at_1 = ladder.alpha_means(table_1_sampled, domains)["corrected"]
ctx.say(
    "By `published_alpha` the order of the domains is "
    f"**{ladder.order(means['published'])}** in the paper and "
    f"**{ladder.order(means['ours_as_published'])}** on this pair. At T = 0 `hit[1]`, the exact "
    "acceptance of the draft's best token on the same texts, gives "
    f"**{ladder.order(means['corrected'])}**; at T = 1 `alpha`, that of one token drawn from the "
    f"draft on sampled texts, **{ladder.order(at_1)}**."
)

# %%
gap = means["corrected"] - means["ours_as_published"]
ctx.say(
    f"At T = 0 `hit[1]` differs from `published_alpha` by {gap.min():+.3f} ({gap.idxmin()}) to "
    f"{gap.max():+.3f} ({gap.idxmax()}). Whether neighbours in an order can be told apart is the "
    "question of section 3."
)

# %% [markdown]
# ## 2. The ladder of estimators
# Nothing is ever accepted in the published procedure: min(1, p/q) is the acceptance probability of
# a token that was *drawn* from q, and the tree's tokens were not drawn, they are the draft's two
# best. What would be accepted depends on the algorithm (a rule that accepts those with min(1, p/q)
# changes the target's distribution: `ratio` in GLOSSARY.md):
#
# | name | accepted share or number, exact for |
# | --- | --- |
# | `published_alpha` | no lossless algorithm: mean of min(1, p/q) over all nodes |
# | `best_path_ratio` | no lossless algorithm: the same mean over the draft's best tokens |
# | `hit[k]` | T = 0: the target's own token is among the draft's k best |
# | `alpha` | T = 1: one token drawn from the draft, sum over tokens of min(p, q) |
# | `top_mass[k]` | T = 1: the draft's k best tokens, as a tree has them (point-mass rule) |
# | `published_length` | no lossless algorithm: the paper's E[L] |
# | `block_efficiency` | tokens per target pass of the recorded tree: 1 + accepted ones |
#
# The *greedy rule* (T = 0) accepts a token that is the target's most likely one, the *point-mass
# rule* (T = 1) a given token with the target's probability p of it. The T = 0 rows come from the
# target's greedy text, the T = 1 rows from a text sampled from the target; each rule is shown on
# the text that it would meet. Every position counts as a possible start of a block (what one target
# pass checks). The whole ladder, every k and depth, is in `03_ladder-values.csv` (in its T = 0 rows
# `alpha` and `top_mass` are T = 1 rules on greedy text, and the acceptance of no decoder).

# %%
every = ladder.whole_ladder(greedy, sampled)
ctx.export(every.frame.drop(columns="name"), "ladder-values")

# %%
rungs = ladder.rungs(every)
ctx.table(rungs.without(domain=score.ALL).wide("name", "domain"), "ladder")

# %%
shares = ladder.point_table(ladder.rungs(every, ladder.SHARES))
values = ladder.point_table(rungs)
orders = values.apply(ladder.order, axis=1)

# %%
ctx.save(
    ladder.ladder_picture(rungs),
    "ladder",
    caption=f"Acceptance of {len(domains)} domains under each estimator, with 95 % intervals "
    "(left), and the order of the domains (right): the level runs from "
    f"{shares.min().min():.2f} to {shares.max().max():.2f}, and {orders.nunique()} orders occur.",
)

# %% [markdown]
# Two children never catch less than one:

# %%
assert (shares.loc["hit[1], T = 0"] <= shares.loc["hit[2], T = 0"] + 1e-9).all()
assert (
    shares.loc["top_mass[1], T = 1"] <= shares.loc["top_mass[2], T = 1"] + 1e-9
).all()

# %%
ctx.say(
    f"**Order of the point estimates.** The {len(orders)} rows of the figure "
    f"{ladder.orders_said(orders)}. An order says nothing about how sure it is: section 3 does."
)

# %%
ctx.say(
    f"**Level.** {ladder.levels_said(shares)}. A number called 'acceptance' without the "
    "estimator's name could be any of these."
)

# %% [markdown]
# **One number for all** is a mean over something: domains (the paper's row All), rows (long texts
# count more), or prompts.

# %%
ctx.table(ladder.averages(rungs), "averages")

# %% [markdown]
# ## 3. Which domains differ?
# For every pair of domains: the difference with its interval, and a *permutation test*: if the
# domain did not matter, any other way to share the same prompts out between the two would do as
# well, so the p-value is the share of such ways (10,000 at random) whose difference is as large.
# Six tests at 5 % would give a false alarm far more often than 5 %; *Holm's correction* raises the
# p-values so that the chance of any false alarm in the family of all pairs stays at the chosen
# level. It is made for each estimator alone. 'Told apart' below is what the test says; near the
# limit an interval, which answers a slightly different question, may disagree.

# %%
differences = ladder.domain_differences(greedy, sampled)
ctx.table(differences, "differences", digits=4, rows=6)
assert (differences["p_holm"] >= differences["p_value"] - 1e-12).all()

# %%
verdicts = ladder.with_verdicts(differences, level)
told = ladder.told_apart(verdicts)
pairs_of_domains = verdicts.frame["pair"].nunique()

# %%
ctx.plot(
    verdicts,
    x="pair",
    hue="verdict",
    columns="estimator",
    kind="bars",
    share_y=False,
    reference=0,
    x_label="",
    y="difference",
    slug="differences",
    caption="Difference of each pair of domains under four estimators (shares of tokens; tokens "
    f"per pass on the right) with 95 % intervals: of {pairs_of_domains} pairs, "
    f"{told.min()} to {told.max()} are told apart.",
)

# %%
counted = ", ".join(f"`{name}` {count}" for name, count in told.items())
ctx.say(
    f"**Told apart** (Holm's p below {level:g}), of {pairs_of_domains} pairs: {counted}. "
    f"**Turned round**: {ladder.turned(verdicts)}."
)

# %% [markdown]
# ## 4. How sure can so many nodes make us, and how many prompts would be enough?
# A table of thousands of nodes invites an interval for independent nodes, mean ± 1.96 sd/√n. But
# nodes share a tree and trees share a text. Resampling whole prompts gives the interval that a new
# set of prompts would bear out. The ratio of the two variances of the mean, prompts as the unit
# over nodes as the unit, is the **design effect**: so many nodes are worth one independent node.

# %%
published_alpha = rungs.at(name="published_alpha, T = 0", domain=domains)
effect = certainty.effect_by_domain(greedy.nodes, published_alpha)
ctx.table(effect, "design-effect")

# %%
worst = effect.loc[effect["design_effect"].idxmax()]
ctx.say(
    f"**Design effect**: {effect['design_effect'].min():.2g} to {worst['design_effect']:.2g} "
    f"[{worst['low']:.2g}, {worst['high']:.2g}]. In {worst.name}, {worst['nodes']:,.0f} nodes say "
    f"as much as {worst['nodes'] / worst['design_effect']:,.0f} independent ones."
)

# %%
wider = (effect["half_width_prompts"] / effect["half_width_nodes"]).max()
ctx.plot(
    certainty.both_intervals(published_alpha, effect),
    x="domain",
    hue="interval",
    kind="points",
    y="published_alpha, T = 0",
    slug="design-effect",
    caption="published_alpha with the interval that takes nodes as independent and the one that "
    f"resamples prompts, which is up to {wider:.1f} times as wide.",
)

# %% [markdown]
# So the number of prompts decides what a study can show. Its **power** is the probability that the
# test finds a true difference; a study is planned so that it is 0.8 or so (the parameter `likely`).
# It follows from the difference, from the number of prompts and from how much prompts of one domain
# differ, which is taken from this run (normal approximation, at the first and strictest step of
# Holm's correction). The differences asked for are the paper's: of Table I, and of Table II read as
# tokens per target pass. The paper had 50 prompts a domain.

# %%
per_pass = score.tree_estimators()["block_efficiency"]
lengths = table_2.set_index("domain")["published"][domains]
plans = [
    power.every_pair(
        greedy.nodes, score.published_alpha, means["published"], 50, likely, level
    ),
    power.every_pair(greedy.nodes, per_pass, lengths, 50, likely, level),
]
plans = pd.concat(plans, ignore_index=True)

# %%
ctx.table(plans, "power", digits=4)
assert (plans["needed"].dropna() >= stats.MIN_PROMPTS).all()

# %%
ctx.say(
    f"**Power** (found with probability {likely:g}, {pairs_of_domains} pairs, level {level:g}; the "
    "spread is this pair's, and another pair has its own):\n\n"
    + power.pairs_said(plans, 50)
)

# %% [markdown]
# Need we believe the formula? The test of section 3 itself is run on studies redrawn from this
# run's prompts, for the two domains that lie farthest apart in the paper, at the difference that
# they have here:

# %%
far = certainty.farthest(means["published"])
estimators = {"published_alpha": score.published_alpha, "block_efficiency": per_pass}
redrawn = certainty.redrawn(greedy.nodes, estimators, far, level, pairs_of_domains)
gap = (redrawn["found"] - redrawn["formula"]).abs().max()

# %%
designs = {
    name: power.between(greedy.nodes, one, *far) for name, one in estimators.items()
}
lines = {
    name: certainty.power_curves(design, likely, level, pairs_of_domains)
    for name, design in designs.items()
}

# %%
ctx.save(
    certainty.power_picture(lines, redrawn, plans),
    "power",
    caption=f"Power of the comparison of {' and '.join(far)} by true difference and prompts: the "
    f"test itself on redrawn studies (circles) and the formula (lines) differ by {gap:.2f} at "
    "most; the crosses are the differences between the paper's domains.",
)

# %% [markdown]
# ## 5. What explains the acceptance of a node?
# The variance of min(1, p/q) over the nodes, shared out among the node's rank (the draft's best or
# second choice) and depth, its domain and position, and the entropies of target and draft there.
# What a factor explains depends on what was explained before it, so its **Shapley share** is the
# mean of what it adds (to R², the explained share of variance) over every order in which the
# factors may come; these shares add up to what all factors explain together. Beside them stands
# what domain and depth explain alone in the paper's own run, from its published means and standard
# deviations.
#
# A share cannot be negative and a resample overfits a little, so that intervals of shares near zero
# sit above their estimate. And each share is one of the variance of *nodes*: what a domain explains
# of the differences between whole prompts is another number, and follows below.

# %%
shares_of = variance.variance_shares(
    greedy.nodes, factors=variance.varying(greedy.nodes)
)
alone = variance.alone_in_paper()
ctx.table(
    shares_of.assign(paper_alone=shares_of["factor"].map(alone)),
    "variance-shares",
    digits=4,
)

# %%
percent = variance.in_percent(shares_of, alone)
here = percent.at(source=variance.HERE)
most = here.frame["factor"].iloc[0]

# %%
ctx.plot(
    percent,
    x="factor",
    hue="source",
    kind="bars",
    y="share of the variance of min(1, p/q), %",
    x_label="",
    slug="variance-shares",
    caption=f"What explains min(1, p/q) of a node (Shapley shares): most of all {most}, with "
    f"{here.at(factor=most).value:.1f} %; all factors together explain "
    f"{here.at(factor=variance.TOGETHER).value:.0f} %.",
)

# %%
ctx.say(
    f"**{most}** has the largest share, {here.at(factor=most)} %. Domain and depth here: "
    f"{here.at(factor=['domain', 'depth']).listed('factor')} %; in the paper's run, alone: "
    f"{percent.at(source=variance.PAPER).listed('factor')} %. All factors together: "
    f"{here.at(factor=variance.TOGETHER)} %; the rest they leave open."
)

# %% [markdown]
# The shares add up:

# %%
together = here.at(factor=variance.TOGETHER).value
each = here.without(factor=variance.TOGETHER).frame["estimate"]
assert abs(each.sum() - together) < 1e-4

# %% [markdown]
# **Of which variance?** Most of what differs from node to node differs inside a text, which no
# choice for a whole prompt can reach. Who chooses a setting for a prompt asks what the domain
# explains of the differences *between prompts*. So beside the Shapley share stand the share of the
# variance of all nodes (or positions) and of prompt means, both corrected for chance (omega
# squared: by chance alone whole prompts differ, and domains with them), and that of the prompts'
# own levels in a mixed model with the prompt as random effect: by what part their variance shrinks
# when the domain joins the model; alone, and with target entropy, the prompt's length, loops, and
# for nodes rank and depth in the model already. For `published_alpha`, and for one drafted token at
# T = 0 (`hit[1]`) and at T = 1 (`alpha`, on sampled text).

# %%
lengths = levels.characters_of_prompts(ctx.profile)
measured = levels.measure(levels.questions(greedy, sampled, lengths))
ctx.export(measured.variances, "mixed-models")
ctx.export(measured.coefficients, "mixed-model-coefficients")

# %%
by_level = variance.domain_by_level(shares_of, measured.shares)
ctx.export(by_level, "domain-by-level")
at_prompts = by_level.at(level=levels.PROMPTS)

# %%
ctx.plot(
    by_level,
    x="level",
    hue="estimator",
    kind="bars",
    limits=(0, 100),
    y="share of the variance that the domain explains, %",
    x_label="",
    slug="domain-by-level",
    caption="What the domain explains, by the variance that is asked: of that between prompts "
    f"{at_prompts.listed('estimator')} %.",
)

# %%
ctx.say("**Does the domain matter little?**\n\n" + levels.shares_said(measured.shares))

# %% [markdown]
# The coefficients of the mixed model with everything in it (a domain: its level at a mean row; one
# nat of target entropy; 100 characters of prompt; in a loop or not; rank and depth against rank 0
# and depth 1):

# %%
notebook.show_table(measured.coefficients.wide("term", "estimator").fillna(""))

# %% [markdown]
# ## 6. What do the numbers owe to the study's settings?
# The same run, read as other studies would have recorded it: with fewer new tokens (exact: the
# beginning of a text does not depend on where it is cut), by thirds of the prompts of a domain in
# tokens (each against its short third), and with the last block of a text, which its end cuts, left
# out or extended: `least` and `most` are bounds for any text that goes on, `extended` is exact,
# because the recorded trees look past the end. All at T = 0, mean of the domains; each change is on
# the same resamples of prompts. (A chain of 4: four draft tokens one after the other, no tree;
# visited: blocks start where the last one ended, as in a decoder.)

# %%
tree, limit = ctx.profile.tree, ctx.profile.max_new_tokens
shorter = [count for count in new_tokens if count < limit] or [1]
prompt_lengths = sensitivity.prompt_lengths(ctx.profile)
settings = sensitivity.sensitivity(greedy, prompt_lengths, tree, limit, shorter)
ctx.export(settings, "sensitivity-values")

# %%
moved = sensitivity.moved(settings)
ctx.table(moved, "sensitivity", digits=4, rows=8)
assert moved["change"].notna().all()

# %%
changes = sensitivity.as_changes(moved)
of_shares = changes.at(unit="share of tokens")
of_tokens = changes.at(unit="tokens per target pass")

# %%
ctx.plot(
    of_shares,
    x="variant",
    hue="estimator",
    kind="bars",
    height=2.8,
    reference=0,
    x_label="",
    y="change, share of tokens",
    slug="sensitivity",
    caption="Change of two estimators against the whole texts or the short prompts: "
    f"{of_shares.span()} (shares of tokens, mean of the domains).",
)

# %%
ctx.plot(
    of_tokens,
    x="variant",
    hue="estimator",
    kind="bars",
    height=3.4,
    reference=0,
    x_label="",
    y="change, tokens per target pass",
    slug="sensitivity-tokens",
    caption="Change of block_efficiency against the whole texts, the short prompts or the blocks "
    f"as counted: {of_tokens.span()} tokens per target pass.",
)

# %%
ctx.say(
    "**Change against the whole texts, the short prompts, the blocks as counted** (mean of the "
    "domains, 95 % intervals):\n\n" + sensitivity.settings_said(changes)
)

# %% [markdown]
# ## 7. Is E[L] above 1 a condition for a speed-up?
# The paper reads Table II so. But a target pass always emits one token of its own, accepted drafts
# or not: the tokens per target pass (`block_efficiency`) are 1 + accepted. Whether that pays
# depends on cost: a block of a tree of depth d costs d draft passes and one target pass, so it
# breaks even at d c + 1 tokens per pass (c: draft pass over target pass; verifying several tokens
# taken to cost as much as one, which notebook 10 measures).

# %%
length = rungs.at(name="published_length, T = 0", domain=domains)
tokens = rungs.at(name="block_efficiency, T = 0", domain=domains)
ctx.say(
    f"`published_length` is {length.listed()}; `block_efficiency` at T = 0 is {tokens.listed()}."
)

# %%
depth = int(greedy.nodes["depth"].max())
for c in draft_costs:
    limit = cost.break_even_block_efficiency(depth, c)
    ctx.say(
        f"At c = {c:g} the break-even is {limit:.2f} tokens per pass: "
        f"{ladder.break_even_said(tokens, limit)}."
    )
assert tokens.lies_within(1, depth + 1)

# %% [markdown]
# ## 8. Do loops carry the result?
# A draft that copies the loops of greedy text looks good for a reason that has nothing to do with
# language (notebook 02, section 7). So the estimators of section 3 that have a meaning on both
# texts are given three times (`alpha` is of sampled text only): on the whole greedy texts, *outside
# loops* (positions whose token ends no run of four tokens that the same text has had before, and
# the trees that hang there), and on the sampled texts.

# %%
repeated = loops.share({"T = 0": greedy.trace, "T = 1": sampled.trace})
ctx.export(repeated, "loop-share")
notebook.show_table(repeated.wide("temperature", "domain"))
ctx.say(loops.said(repeated))

# %%
asked = loop_free.main_estimators(greedy, sampled)
beside = loop_free.three_estimates(asked)
ctx.export(loops.in_rows(beside), "loops")
shown = {name: beside[name] for name in ("hit[1]", "block_efficiency")}
notebook.show_table(loops.texts_in_cells(shown))
for name, one in beside.items():
    ctx.say(f"* {loops.change_in_words(f'`{name}`', one)}")

# %%
of_pairs = loop_free.pairs_told_apart(asked, level)
ctx.export(of_pairs, "loop-verdicts")
ctx.say("Pairs of domains that the test of section 3 tells apart in each text:")
notebook.show_table(loop_free.counted(of_pairs))
for text in (loops.OUTSIDE, loops.SAMPLED):
    ctx.say(
        f"* Against the whole greedy texts, {loop_free.pairs_changed(of_pairs, text)}"
    )

# %% [markdown]
# ## 9. How far can such intervals be trusted?
# A 95 % interval should hold the truth in 95 of 100 studies. Here the truth is known: let a
# recorded run's prompts be all that there are. A simulated study draws a few of them a domain, with
# replacement, and makes its interval; how many hold the number of all prompts is its *coverage*
# (simulated once, on `smollm` and `tiny`: `data/coverage/prepare.py`; another pair is shown that
# of `smollm`). Four ways to make an interval from the same resamples:
#
# | method | bounds |
# | --- | --- |
# | percentile | the middle 95 % of the resamples |
# | expanded percentile | a little more than that, as a t interval is wider than a normal one |
# | BCa | other quantiles, corrected for bias and for a spread that grows with the number |
# | bootstrap-t | the number and its standard error, with quantiles of t that are resampled, too |
#
# The kit's intervals are *expanded percentile* ones (Hesterberg 2015); those of a design effect,
# which is a ratio of variances and very skewed, *bootstrap-t*.

# %%
simulated, covered = coverage.coverage_of(ctx.profile.name)
ctx.export(covered, "coverage")
keys = ["estimator", "method"]
cells = covered.pivot(index=keys, columns="n_prompts", values="coverage")
notebook.show_table((100 * cells).add_suffix(" prompts").reset_index(), 1)

# %%
least, promised = 100 * covered["coverage"].min(), 95
studies = covered["studies"].min()
ctx.plot(
    coverage.coverage_in_percent(covered),
    x="n_prompts",
    hue="method",
    columns="estimator",
    kind="points",
    reference=promised,
    limits=(min(least, 80) - 2, 101),
    y="truth held, % of studies",
    x_label="prompts a domain",
    slug="coverage",
    caption="How many of the simulated studies' intervals hold the truth, by prompts a domain "
    f"(bars: Monte-Carlo error, {studies} studies a domain; line: the promised {promised} %). The "
    f"lowest is {least:.0f} %.",
)

# %%
own = covered[covered["used"]].groupby("n_prompts")["coverage"].agg(["min", "max"])
held = [
    f"{size}: {100 * low:.0f} to {100 * high:.0f} %"
    for size, low, high in own.itertuples()
]
ctx.say(
    f"**Held the truth**, where 95 % is promised, by prompts a domain (pair {simulated}, the kit's "
    f"interval of each number): {'; '.join(held)}."
)

# %%
ctx.say(
    f"Below {stats.FEW_PROMPTS} prompts a domain the notebooks say at their start that intervals "
    f"cover less than they promise; below {stats.MIN_PROMPTS} none is given."
)

# %% [markdown]
# A study that is drawn from the recorded prompts never meets one that is stranger than these: where
# rare prompts matter, true coverage is lower.

# %%
alpha = values.loc["alpha, T = 1"]
detectable = plans.groupby("estimator")["detectable"].max()
ctx.record(
    **values.loc["published_alpha, T = 0"].add_prefix("published_alpha_"),
    **alpha.add_prefix("alpha_"),
    **values.loc["block_efficiency, T = 0"].add_prefix("block_efficiency_"),
    **detectable.add_prefix("detectable_"),
    pairs_apart_published_alpha=int(told["published_alpha, T = 0"]),
    pairs_apart_hit=int(told["hit[1], T = 0"]),
    orders=int(orders.nunique()),
    largest_design_effect=float(worst["design_effect"]),
    largest_share=most,
    largest_share_of_variance=here.at(factor=most).value / 100,
    domain_share_of_variance=here.at(factor="domain").value / 100,
    **{
        f"domain_share_between_prompts_{levels.SHORT[row.estimator]}": row.estimate
        / 100
        for row in at_prompts.rows()
    },
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: the draft's two best tokens have q = 0.5 and 0.4, the target gives them p = 0.6 and
#    0.3. What is `published_alpha` of these two nodes, what is accepted at T = 0, and what at T = 1
#    when both are offered as children?
#
# <details><summary>What happens</summary>
# min(1, 0.6/0.5) = 1 and min(1, 0.3/0.4) = 0.75, so the mean is 0.875. At T = 0 the target's best
# token is among the two for certain (no other token can have more than 0.1), so one of them is
# accepted. At T = 1 two children catch top_mass[2] = 0.6 + 0.3 = 0.9. Three numbers, one
# tree.</details>
#
# 2. Record nothing new, only count every node twice: `twice = pd.concat([greedy.nodes,
#    greedy.nodes])`. What happens to the interval by nodes, and what to `stats.by_domain(twice,
#    score.published_alpha)`?
#
# <details><summary>What happens</summary>
# The interval by nodes shrinks by √2, as if the copies were news. The interval by prompts stays
# the same: its unit is the prompt, and there are no more prompts than before.</details>
#
# 3. In section 3, ask `hit[2]` instead of `hit[1]` (`draft_rank < 2`). Do more domains come apart,
#    or fewer?
#
# <details><summary>What happens</summary>
# Each share rises, because two children catch what one catches and more. Whether differences grow
# or shrink depends on where the target's token sits when the draft's best misses it: no rule says,
# so the test must.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above. The level of 'acceptance' and the order of the domains belong
#   to an estimator; intervals belong to prompts, not to nodes, and the number of prompts decides
#   what can be shown; E[L] above 1 decides nothing; section 8 says what of it loops carry.
# * What this does not show: other prompts, pairs or prompt formats; longer texts; a difference
#   smaller than section 4 says; how much the prompts of another pair differ, which a power of its
#   own needs; speed, which needs measured costs (notebook 10). The T = 0 and T = 1 rows come from
#   different texts, so what lies between them is not the effect of a rule alone.
# * Next: notebook 04 asks whether acceptance rises with depth; notebook 06 takes up the domain
#   chat, the highest in the paper.

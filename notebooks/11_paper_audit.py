# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 11. What is left of the paper and the article, claim by claim?
#
# **Answer.** Each claim is a number and a region in which that number would have to lie. The
# picture shows where it lies on the pair at hand: hollow as published, filled by the estimator that
# answers the question; crosses are the paper's own numbers, plus signs the authors' released
# records where they are here. A verdict follows from the interval and the region, not from opinion;
# the computed summary stands below the tables of section 1. Two findings do not depend on the pair:
# what the paper averages is not the acceptance of any lossless algorithm, and its E[L] can fall
# while the tree that it describes gets better (how often it does is computed in section 3).
#
# ![Each claim's number, where it would hold, and the verdict](../figures/tiny/11_claims.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the runs `greedy` and
# `balanced` (T = 0) and `sampled` (T = 1) of the profile, recorded if they are not there, and the
# authors' public records if they are (`make author-records`); the self-draft row appears once
# notebook 08 has run · *writes* `figures/<profile>/11_*`.

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Colab and Kaggle: fetches the kit and installs what is missing. In a checkout it only moves to the
# repository's root.
import os, shutil, subprocess, sys
from pathlib import Path

fetched, here = Path("speclab-kit").resolve(), Path.cwd()
root = next(
    (
        p
        for p in (here, *here.parents, fetched)
        if (p / "speclab" / "notebook.py").is_file()
    ),
    None,
)
if root is None:
    attached = next(
        Path("/kaggle/input").rglob("speclab/notebook.py"), None
    )  # the kit as an attached data set: read-only, so copied
    if attached:
        shutil.copytree(attached.parents[1], fetched)
    elif not os.environ.get("SPECLAB_REPO"):  # the kit has no public address yet
        raise SystemExit(
            "No checkout here: set SPECLAB_REPO to the kit's git address, "
            "or attach the kit as a data set."
        )
    else:
        subprocess.run(
            ["git", "clone", "--depth", "1", os.environ["SPECLAB_REPO"], str(fetched)],
            check=True,
        )
    root = fetched
os.chdir(root)
sys.path.insert(0, str(root))
if root == fetched:
    from speclab.notebook import install_missing

    install_missing(root)

# %%
import pandas as pd

from speclab import cost, notebook, runs, score
from speclab.analysis import loops, power, published
from speclab.estimates import Estimates, stack
from speclab.profiles import ROOT
from speclab.studies.paper_audit import (
    alpha_parts,
    author_records as authors,
    claims,
    evidence,
    final_run,
    growth,
    loop_free,
    pictures,
)

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "tiny"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# c, a draft pass in target passes: llama.cpp's figure for the paper's pair
draft_cost: float = 0.29
article_cost: float = 0.05  # c of the article's example: 5 ms / 100 ms
# folder of the authors' records; empty: $SPECLAB_AUTHOR_RECORDS, else data/runs/author-records
author_records: str = ""
prompts: int = 50  # prompts a domain whose power is asked for: the paper's number

# %%
ctx = notebook.start("11_paper_audit", profile, overrides)
at_0 = ctx.profile.replace(temperature=0.0)
greedy = runs.load_or_record(at_0, "greedy")
balanced = runs.load_or_record(at_0, "balanced")
sampled = runs.load_or_record(ctx.profile, "sampled")
records = authors.read(author_records or None)

# %%
made_by_08 = [ctx.figures, ROOT / "figures" / ctx.profile.name]
self_draft = claims.self_draft(
    *(folder / "08_self-drafts.csv" for folder in made_by_08)
)
material = evidence.Material(greedy, sampled, draft_cost, article_cost, self_draft)

# %%
listed = claims.claims()
found = evidence.evidence(material, listed)
theirs = evidence.record_evidence(records)
table = claims.table(listed, found, theirs if records else None)

# %%
texts = greedy.trace.groupby("domain")["prompt_id"].nunique()
of_domains = ", ".join(f"{domain} {count}" for domain, count in texts.items())
ctx.say(
    f"**{len(listed)} claims**, {len(found)} measured numbers. Prompts of this pair: {of_domains}. "
    f"Authors' runs: {', '.join(records) or 'none'}."
)

# %%
if not records:
    ctx.say(
        f"The authors' records are not here: `{authors.TARGET}` fetches them; what rests on them "
        "is left out."
    )

# %% [markdown]
# ## 1. Every claim, its evidence and its verdict
# The paper measured Llama-2-7B with TinyLlama; this notebook measures the pair of its profile, so
# that 'here' in a verdict means this pair. A level (0.54, E[L]) belongs to a pair and need not
# carry over; a direction (rises, falls, is highest) or a rule is meant to.
#
# Each claim is measured *as published*, by the paper's own procedure, and by the *right estimator*,
# the number that answers the question. A 95 % interval is *clustered*: prompts are drawn anew, with
# all nodes of their text, because nodes of one text are not independent. The verdict follows:
#
# * **holds here**: every interval of the claim lies in its region. **does not hold here**: one lies
#   outside. **cannot be told here**: neither.
# * **holds only as published**: by the published number, but not by the right one.
# * **not a condition of anything**: the number is said to be needed for something and is not.
# * **holds**, **does not hold**, without 'here': arithmetic, or a number read off a log, the
#   authors' code or an example (`fact` in `data/paper/claims.yaml`); no sample.

# %%
verdicts = table.set_index("id")["verdict"]
groups = claims.by_verdict(table)
ctx.say("**Verdicts.**\n\n" + claims.verdicts_said(groups))
assert set(verdicts) <= set(claims.VERDICTS)

# %%
measured = pictures.from_texts(found)["claim"].nunique()
ctx.save(
    pictures.claims_picture(listed, found, verdicts, claims.printed(), theirs),
    "claims",
    caption=f"The {measured} claims that texts decide, each with its numbers, 95 % intervals and "
    f"the region in which it holds: {len(groups[claims.HOLDS])} hold on this pair, "
    f"{len(groups[claims.FAILS])} do not, {len(groups[claims.UNKNOWN])} cannot be told.",
)

# %% [markdown]
# The others need no text:

# %%
notebook.show_table(claims.not_in_picture(table))

# %%
ctx.say(claims.open_said(found))

# %% [markdown]
# The tables of all claims are `11_claims-paper.csv` and `11_claims-article.csv` (least to greatest
# estimate over domains or differences, in brackets the hull of their intervals; the column
# `authors_records`, where it is, holds the authors' runs, usable rows only), and every number is in
# `11_evidence.csv`.

# %%
ctx.export(found, "evidence")
for source, rows in table.groupby("source"):
    ctx.export(rows.drop(columns="source").reset_index(drop=True), f"claims-{source}")

# %% [markdown]
# <details><summary>What decides each claim, and why the right estimator is another</summary>
#
# Words as in GLOSSARY.md. *Pearson's* correlation asks how well a straight line fits, *Spearman's*
# how well the ranks of the two numbers agree, whatever the curve; the *design effect* says how many
# nodes are worth one independent node.
#
# * *level, gap, order* (within 0.05 of 0.5384; differences above 0): the tree's tokens are the
#   draft's best, not draws from it, so that min(1, p/q) is not their acceptance. `alpha` is that of
#   one draw at the same positions.
# * *length* (chat above 1, the others below): E[L] multiplies means over both ranks;
#   `mean_accepted` is what the tree gets accepted, T = 0.
# * *depth* (change to the last depth above 0): a mean over both ranks is no acceptance, so rank 0
#   alone decides, at T = 0 (rank 1 and T = 1: notebook 04).
# * *position* (late less early above 0): the same prompts early and late (`hit[1]` may move the
#   other way: notebook 04).
# * *entropy* (below 0; within 0.21 of 0): `overlap` of each position, Spearman; the authors' code
#   computes Pearson over nodes.
# * *task-depth, task-first* (share of variance of the domain less that of depth, of rank, above 0):
#   section 2.
# * *independence* (design effect below 1.5): so many nodes are worth one independent node.
# * *temperature* (T = 1 less T = 0 below 0), *small-draft* (above 0.85): one drafted token, `alpha`
#   on text sampled at T = 1 and `hit[1]` on greedy text; *temperature* asks the paper's tree too.
# * *budgets, routing, rule* (gain above 1 %; speed-up below 1; within 5 %): replayed at T = 0; a
#   longer target pass counts as free (v = 1).
#
# </details>

# %% [markdown]
# ## 2. What is alpha made of?
# The abstract says that the task predicts acceptance better than depth does. That compares two
# small things. The share of the variance of min(1, p/q) between the levels of a factor is computed
# here for this pair, for the published run from its cells in `data/paper` (task, depth, position
# bin), and for the authors' released records. The **rank** of a node, whether it is the draft's
# best token there or its second, is not in the paper. `prompt` is what the nodes of one text have
# in common: the reason why nodes are not independent.

# %%
nodes_of = alpha_parts.sources(greedy, records)
shares = alpha_parts.shares_by_source(nodes_of)
ctx.table(shares, "shares", digits=5)

# %%
percent = alpha_parts.times_100(shares)
here = percent.at(source=alpha_parts.HERE)
of_run = percent.at(source=alpha_parts.PAPER)
ctx.save(
    alpha_parts.shares_picture(percent),
    "shares",
    caption="Share of the variance of min(1, p/q) between the levels of each factor (logarithmic): "
    f"on this pair {here.listed('factor')} %; in the paper's run {of_run.listed('factor')} %.",
)
assert here.lies_within(0, 100) and of_run.lies_within(0, 1)

# %%
by_rank = score.alpha_by_rank(greedy.nodes)
ctx.say(
    f"`published_alpha` {score.published_alpha(greedy.nodes):.3f} is the mean of best children, "
    f"{by_rank[0]:.3f}, and second ones, {by_rank[1]:.3f}."
)

# %%
if records:
    facts = authors.run_facts(records)
    ctx.say(alpha_parts.records_said(facts, percent))

# %% [markdown]
# What rank does to the correlation of Table VI: where the target is unsure, its best token is less
# likely (rank 0: acceptance falls with entropy), and for the same reason a second token is more
# likely (rank 1: it rises). Spearman's correlation compares the ranks of two numbers: 1 if they
# always rise together, -1 if one falls where the other rises.

# %%
ranks = alpha_parts.by_rank(nodes_of)
ctx.table(ranks, "rank-correlations")

# %%
ours = ranks.at(source=alpha_parts.HERE)
ctx.plot(
    ranks,
    x="rank",
    hue="source",
    kind="bars",
    reference=0,
    limits=(-1, 1),
    y="Spearman correlation with target entropy",
    slug="rank-correlations",
    caption="min(1, p/q) of a node and target entropy on this pair: over all nodes "
    f"{ours.at(rank='all')}, among the draft's best tokens (rank 0) {ours.at(rank=0)}.",
)

# %%
ctx.say(alpha_parts.opposed_said(ranks))

# %% [markdown]
# ## 3. E[L] can fall while the tree gets better
# Give every node one child more. The target then finds its token among the children at least as
# often: a further child can only add acceptance. The paper's E[L] multiplies means over *all*
# children, and a further child is mostly a worse one in the mean (not always: min(1, p/q) may rise
# with rank), so that E[L] can fall; how often it does is computed below: for the authors' own
# records, where they are here, their trees cut back to 1, 2, … children a node, so that each panel
# is one and the same tree growing (they do not hold the target's argmax; the band is what their
# probabilities and entropies leave open); and for this pair, the balanced tree with one child a
# node and with all, and trees of depth 1, where E[L] is the mean of min(1, p/q) over the children
# and the accepted share is `hit[k]` (T = 0).

# %%
trees = {f"authors' {run}": authors.whole_trees(one) for run, one in records.items()}
trees[f"this pair, depth {ctx.profile.depth}"] = balanced.nodes
grown = stack(
    {source: growth.growing_trees(nodes) for source, nodes in trees.items()}, "source"
)
ctx.table(grown, "growing-trees")

# %%
roots = growth.growing_roots(greedy.trace)
ctx.export(roots, "growing-roots")

# %%
growing = growth.growth(grown, roots)
falls, steps = growth.falls(growing)
ctx.plot(
    growing,
    x="branches",
    hue="quantity",
    columns="source",
    y="tokens per target pass",
    x_label="children a node",
    slug="growing-trees",
    caption="Accepted tokens and E[L] while trees grow: what is accepted never falls, E[L] falls "
    f"in {falls} of {steps} steps.",
)

# %% [markdown]
# In nested trees what is accepted cannot fall:

# %%
assert growing.at(quantity=growth.ACCEPTED).never_falls("branches")

# %%
ctx.say(growth.growth_said(growing))

# %%
depth = ctx.profile.depth
needed = [evidence.necessary_length(c, depth) for c in (article_cost, draft_cost)]
ctx.say(
    "**Is E[L] > 1 needed for a speed-up?** Plain decoding gives one token per target pass, a tree "
    f"one more than it gets accepted. At depth {depth} it pays from {needed[0]:.2f} accepted "
    f"tokens (c = {article_cost:g}) and {needed[1]:.2f} (c = {draft_cost:g}), if a pass over the "
    "whole tree takes no longer than over one token: a matter of cost, and 1 is nothing special."
)

# %% [markdown]
# ## 4. What the authors' public records hold
# Their code took the probability of padded half-precision rows as it came: some are NaN, and
# Python's `min(1.0, nan)` is 1.0, so that a missing number was averaged as a sure acceptance.
# `nan_rejected` is the greedy walk over all trees with those nodes taken as rejected.

# %%
if records:
    ctx.table(facts, "author-records")
    ctx.say(authors.facts_said(facts))

# %% [markdown]
# The run that the paper reports is among them, with 50 prompts in each domain. Of a run with all
# four domains it is asked: are the published numbers its own? What do Tables I to VI say with whole
# prompts drawn anew? What is its alpha made of?

# %%
of_four = authors.whole_runs(records)
if authors.FINAL not in of_four:
    ctx.say(
        f"The records of the paper's run ({authors.FINAL}) are not here: `{authors.TARGET}` "
        "fetches them, and this section then answers for the paper's own pair."
    )

# %%
for run, one in of_four.items():
    identity = final_run.identity(one)
    ctx.export(identity, f"identity-{run}")
    ctx.say(final_run.identity_said(run, identity))

# %% [markdown]
# The usable rows of such a run, with 95 % intervals (every table is exported as
# `11_tables-<run>.csv`). `corrected` is missing there where the records cannot answer: they hold
# neither the trace nor the target's ranks.

# %%
for run, one in of_four.items():
    published_tables = final_run.tables(one)
    ctx.export(published_tables, f"tables-{run}")
    levels = final_run.levels(published_tables)
    notebook.show_table(levels.frame)
    ctx.say(final_run.tables_said(one, published_tables))

# %%
for run, one in of_four.items():
    made_of = final_run.parts(one)
    ctx.export(made_of, f"parts-{run}")
    ctx.say(final_run.parts_said(made_of))

# %% [markdown]
# ## 5. Could 50 prompts have shown it?
# What a study can see depends on how much prompts of one domain differ. Its *power* is the
# probability that it finds a difference that is there. Taken from the texts of this pair:
# the smallest difference between two domains that the paper's number of prompts finds with a
# probability of 80 % under Holm's correction for all pairs (`detectable`), beside the difference
# that the paper prints, and the prompts a domain that would find it.

# %%
printed = published.published("I").query("quantity == 'alpha_mean'").set_index("domain")
printed = printed["published"][list(score.domains_in(greedy.nodes))]
plans = [
    power.every_pair(greedy.nodes, score.published_alpha, printed, prompts),
    power.every_pair(greedy.trace, score.overlap_alpha, printed, prompts),
]
plans = pd.concat(plans, ignore_index=True)

# %%
ctx.table(plans, "power")
assert (plans["detectable"] > 0).all()

# %%
ctx.say(power.pairs_said(plans, prompts))

# %% [markdown]
# ## 6. The article: advice, rule and pseudo-code
# Which gamma is best depends on acceptance *and* on c, so that advice by kind of text alone cannot
# be right for every pair. The article's rule S = (e T)/(t e + T) counts gamma alpha tokens and
# their cost: it leaves out that a block ends at the first rejection (it counts too much) and that
# the target adds a token of its own (too little).

# %%
costs = (article_cost, draft_cost)
best = pd.concat(
    [evidence.fastest_gammas(greedy.trace, c) for c in costs], ignore_index=True
)
ctx.table(best, "best-gamma")

# %%
gammas = Estimates.of(best, "best", ["c", "domain"], digits=0)
ctx.say(f"**Best gamma** by c: {gammas.listed(within='c')}.")

# %%
fact = listed["example"].fact
(e, whole, part), (top, bottom) = fact["rule"], fact["printed"]
standard = cost.speedup_iid(
    e / evidence.ARTICLE_GAMMA, evidence.ARTICLE_GAMMA, part / whole
)
ctx.say(
    f"**Worked example** (e = {e:g} with gamma {evidence.ARTICLE_GAMMA}, {whole} and {part} ms): "
    f"the rule gives {cost.speedup_article(e, whole, part):.2f}, printed is {top}/{bottom} = "
    f"{top / bottom:.2f}; the standard model gives {standard:.2f}."
)

# %%
off = found[found["claim"] == "rule"]["estimate"]
ctx.say(
    f"On this pair the rule is {off.min():.2f} to {off.max():.2f} times what the replay of the "
    "same chain gives."
)

# %% [markdown]
# How far a wrong output distribution is from the target's is told by the *total variation*: half
# the sum of the differences of the probabilities, so 0 for the same distribution and 1 for two that
# share no word.

# %%
flaws = evidence.pseudo_code()
ctx.say(
    "**Pseudo-code**, on three words with overlap 0.7: without a residual the output is "
    f"{flaws['residual']:.2f} (total variation) away from the target's, with p read one place late "
    f"{flaws['positions']:.2f}; without the bonus token {flaws['bonus']:.2f} words per pass are "
    "lost. Notebook 00 draws each case."
)

# %% [markdown]
# ## 7. Do loops carry a verdict?
# Most claims are measured at T = 0, on greedy text, which runs into loops; what a draft does there
# says little about language (notebook 02, section 7). So they are asked twice more. *Outside
# loops*: of the positions whose token ends no run of four tokens that the same text has had before,
# the trees that hang there, and the blocks that begin there. *T = 1*: the same estimators on the
# sampled texts, where a drafted token that was not drawn is kept by the point-mass rule.

# %%
repeated = loops.share({"T = 0": greedy.trace, "T = 1": sampled.trace})
ctx.export(repeated, "loop-share")
notebook.show_table(repeated.wide("temperature", "domain"))
ctx.say(loops.said(repeated))

# %%
on_texts = loop_free.three_texts(material, listed, found)
beside = loop_free.three_verdicts(on_texts, listed)
ctx.export(beside, "loops")
notebook.show_table(loop_free.verdicts_in_cells(beside))

# %%
for text in (loops.OUTSIDE, loops.SAMPLED):
    ctx.say(
        f"* Against the whole greedy texts, {loop_free.verdicts_changed(beside, text)}"
    )

# %%
counts = {f"verdict_{name.replace(' ', '_')}": len(ids) for name, ids in groups.items()}
own = shares.at(source=alpha_parts.HERE)
of_paper = shares.at(source=alpha_parts.PAPER)
ctx.record(
    **counts,
    share_rank=own.at(factor="rank").value,
    share_task=own.at(factor="task").value,
    share_depth=own.at(factor="depth").value,
    paper_share_task=of_paper.at(factor="task").value,
    paper_share_depth=of_paper.at(factor="depth").value,
    detectable_published_alpha=float(
        plans.loc[plans["estimator"] == "published_alpha", "detectable"].max()
    ),
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. Run the notebook with `draft_cost = 0.05`. Which verdicts can change, and which cannot?
#
# <details><summary>What happens</summary>
# Only what has this cost in it: `budgets`, `routing` and `threshold` (still not a condition: the
# limit is then 0.15 accepted tokens). No estimate of acceptance knows c.</details>
#
# 2. Run it with `overrides = {"prompts_per_domain": 10}`. Do verdicts turn round, or do they fade?
#
# <details><summary>What happens</summary>
# Intervals widen by about the square root of 5, so that *holds* and *does not hold* mostly fade
# into *cannot be told*. A verdict that turned round would have rested on luck, which happens to one
# interval in twenty.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw of this pair: the verdicts of section 1, what of them loops carry (section 7), and
#   the sentences below the figures.
# * What we saw that depends on no pair. The mean of Eq. 1 over a tree's deterministic children is
#   not the acceptance of any lossless algorithm. E[L] (Eq. 3) can fall while the tree gets better
#   (a further child can only add acceptance, and is mostly a worse one in the mean; here and in the
#   records: section 3): trees cannot be ranked by it. E[L] > 1 is no condition; what pays depends
#   on c and v. Depth 2 of the paper's tree holds another mix of branches than depths 1 and 3. The
#   printed correlations are Pearson's, over a mixture of ranks. 99,768 nodes are 200 prompts. The
#   article's pseudo-code is not lossless.
# * What this does not show: the paper's pair, unless the profile is `paper`. A verdict *here* is
#   about this pair. Intervals are 95 % each, not all at once: of 20 true rows one may fail, and a
#   claim of several rows falls with one of them. A share of variance cannot be negative and is
#   estimated too high, more so for the domain (whole prompts) than for depth: it favours
#   *task-depth*. The regions are ours where the paper names no number (within 0.05, 10 % or 1 %);
#   they stand in `data/paper/claims.yaml`. Speed is computed with v = 1: a real target pass over a
#   tree takes longer (notebook 10).
# * Next: notebooks [03](03_domain_acceptance.ipynb) to [06](06_chat_paradox.ipynb) go through
#   domains, depth, entropy and chat one by one, [10](10_wall_clock.ipynb) measures speed; the
#   self-draft belongs to notebook 08 and budgets to notebook 09.

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
# **Answer.** Each claim is a number and a region in which that number would have to lie, and gets a
# verdict for each pair and each temperature, from an estimator that is exact there. The picture
# shows where the numbers lie on the kit's two pairs; the tally, and which claims hold or fail on
# both, are computed in section 1. What speed is gained depends on c, so that those claims get a
# verdict for every c. What needs no pair (formulas, the authors' code and log, the article's
# example) is tallied apart: the mean of min(1, p/q) over the draft's best tokens is the acceptance
# of no lossless algorithm, and E[L] can fall while the tree that it describes gets better.
#
# ![Each claim's number, where it would hold, and the verdict](../figures/smollm/11/claims.png)
#
# *Runs on* any machine · *minutes* about two on 2 cores · *reads* the runs `greedy` and `balanced`
# (T = 0) and `sampled`, `sampled-0.3`, `sampled-0.7`, `sampled-seed-1`, `sampled-seed-2` of the
# profile and of the pairs beside it, recorded if they are not there, and the authors' public
# records if they are (`make author-records`); rows of drafts and of pass times appear once
# notebooks 08 and 10 have run · *writes* `figures/<profile>/11/`.

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

from speclab import cost, score
from speclab.show import notebook
from speclab.analysis import levels, loops, published
from speclab.show.estimates import stack
from speclab.models.pairs import load_tokenizer, model_folder
from speclab.show.pictures import strings_of
from speclab.studies.paper_audit import (
    alpha_parts,
    author_records as authors,
    claims,
    costs,
    enough_prompts,
    evidence,
    final_run,
    formulas,
    growth,
    loop_free,
    pictures,
    side,
    tables,
)

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# pairs that stand beside it, as they are recorded or shipped; [] for none
beside: list = ["tiny", "smollm"]  # any
# c, a draft pass in target passes, at which speed is asked, and slopes of v(n) = 1 + slope (n - 1)
cs: list = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.29, 0.4, 0.5, 0.7, 1.0]  # 0.0001 to 10
slopes: list = [0.0, 0.1]  # 0 to 10
article_cost: float = 0.05  # 0.0001 to 10; c of the article's example: 5 ms / 100 ms
# llama.cpp, TinyLlama and Llama-2-7B, both f16; the paper's is 4-bit
f16_cost: float = 0.29  # 0.0001 to 10
# folder of the authors' records; empty: $SPECLAB_AUTHOR_RECORDS, else data/runs/author-records
author_records: str = ""  # any
# prompts a domain whose power is asked for: the paper's number
prompts: int = 50  # 2 to 100000

# %%
ctx = notebook.start("11_paper_audit", profile, overrides)
pairs = side.of_pairs(ctx.profile, beside)
records = authors.read(author_records or None)

# %%
own = pairs[ctx.profile.name]
greedy, balanced, sampled = own.greedy, own.balanced, own.sampled

# %%
strings = {
    name: strings_of(load_tokenizer(model_folder(pair.profile.target)))
    for name, pair in pairs.items()
}
exported = {
    name: tables.rows(tables.places_of(name, ctx.figures.parents[1])) for name in pairs
}

# %%
listed = claims.claims()
grid = costs.Grid(tuple(cs), tuple(slopes))
of_pairs = {
    name: evidence.evidence(pair, name, listed, strings[name], grid, exported[name])
    for name, pair in pairs.items()
}

# %%
found = pd.concat([evidence.of_sources(listed), *of_pairs.values()], ignore_index=True)
smallest = side.smallest_domains(pairs)
verdicts = claims.verdict_table(listed, found, smallest)

# %%
sizes = ", ".join(f"{name} {count}" for name, count in smallest.items())
ctx.say(
    f"**{len(listed)} claims and defects**, {len(found)} measured numbers. Pairs, with the prompts "
    f"of their smallest domain: {sizes}. Authors' runs: {', '.join(records) or 'none'}."
)

# %%
if not records:
    ctx.say(
        f"The authors' records are not here: `{authors.TARGET}` fetches them; what rests on them "
        "is left out."
    )

# %% [markdown]
# ## 1. Every claim, its evidence and its verdict
# The paper measured Llama-2-7B with TinyLlama. Here two other pairs are measured, and 'here' in a
# verdict means one of them. A level (0.5, E[L]) belongs to a pair and need not carry over; a
# direction (rises, falls, is highest) is meant to, but two pairs cannot show that it does.
#
# Each claim is measured *as published*, by the paper's own procedure, and by what is *exact* for a
# lossless decoder, at each temperature on text of that temperature: at T = 0 the share of drafted
# tokens that are the target's own (`hit[1]`) and what is accepted of greedy text; at T = 1 the
# overlap of p and q (`alpha`) on sampled text, for chains drawn tokens (rejection rule), and for
# the paper's tree, whose tokens are the draft's best, the point-mass rule. Where the two
# temperatures differ there are two verdicts.
#
# Intervals are 95 %, prompts drawn anew with all that hangs on them. The rule for a claim of
# several rows (domains, differences):
#
# * **holds**: *every* row's interval lies in the region (an intersection-union test: no correction
#   is needed).
# * **does not hold**: *one* row's interval, widened for so many rows (Bonferroni), lies outside.
# * **cannot be told**: neither. No interval that merely reaches 0 shows that there is no effect: a
#   claim of equality has a margin, named in `data/paper/claims.yaml` before any run was asked.
# * **too few prompts**: a pair with fewer than 20 a domain gets no verdict (how far intervals of
#   few prompts can be trusted: notebook 03).
# * **depends on c**: the verdict changes along the cost of a draft pass; the second picture shows
#   where (each c is judged by itself).
# * **not a condition of anything**: the number is said to be needed for something and is not.

# %%
ctx.say("**Verdicts.**\n\n" + claims.tally_said(verdicts))
assert set(verdicts["verdict"]) <= set(claims.VERDICTS)

# %%
ctx.say(claims.agreed_said(verdicts))

# %%
ctx.say(claims.temperatures_said(verdicts))

# %%
caveat = side.caveat(pairs)
drawn = pictures.drawn(found, listed)
ctx.save(
    pictures.claims_picture(listed, found, verdicts, claims.printed(), caveat),
    "claims",
    caption=f"The {drawn['claim'].nunique()} claims that texts decide, each with its numbers, 95 % "
    "intervals and the region in which it holds, and a mark for each verdict: it holds (✓), does "
    f"not (✗), cannot be told (?). {caveat}.",
)

# %% [markdown]
# The same as a table, with what depends on c: it holds (✓), does not hold (✗), cannot be told (?),
# depends on c (c), the pair has too few prompts (few), or nothing here answers it (–).

# %%
notebook.show_table(claims.signs_beside(verdicts))

# %% [markdown]
# ### At which c do claims about speed turn?
# A claim about speed is one about c, the cost of a draft pass, and about v, what the target's pass
# over several tokens costs. The paper names neither, and 0.29, often quoted for its models, is of
# both in f16 where its target is in 4 bit. So each is asked at every c, with v free and rising.
# (How much a gamma for each domain gains on *this* machine, and at which c, is told in notebook 09;
# the claim `budgets` here is the same number.)

# %%
marked = {"the article's example": article_cost, "both in f16": f16_cost}
ctx.save(
    pictures.costs_picture(listed, found, marked, caveat),
    "costs",
    caption="Verdicts on what depends on cost, along c, for each pair, temperature and slope of "
    f"v(n) = 1 + slope (n - 1). {caveat}.",
)

# %%
ctx.say(
    "Of the c that were asked, those at which every pair, temperature and slope give the same "
    "verdict:\n\n" + claims.costs_said(listed, found)
)

# %% [markdown]
# ### What needs no pair
# Formulas, the authors' files and log, the article's example; and defects, which claim nothing:
# what is wrong in a procedure, and what that costs (a number that would be 0).

# %%
notebook.show_table(claims.without_pair(verdicts))

# %%
depth = ctx.profile.depth
needed = [formulas.necessary_length(c, depth) for c in (article_cost, f16_cost)]
ctx.say(
    "**Is E[L] > 1 needed for a speed-up?** Plain decoding gives one token per target pass, a tree "
    f"one more than it gets accepted. At depth {depth} it pays from {needed[0]:.2f} accepted "
    f"tokens (c = {article_cost:g}) and {needed[1]:.2f} (c = {f16_cost:g}), if a pass over the "
    "whole tree takes no longer than over one token; 1 is the limit only at "
    f"c = {formulas.turning_cost(depth):.2f}."
)

# %%
ctx.say(claims.open_said(listed, found))

# %% [markdown]
# Every verdict with its estimator, region, numbers and where it turns (the edge of the region, or
# c) is in `11_verdicts.csv`, every number in `11_evidence.csv`.

# %%
ctx.export(verdicts, "verdicts")
ctx.export(found, "evidence")
if records:
    ctx.export(evidence.record_evidence(records), "records-evidence")

# %% [markdown]
# <details><summary>What decides each claim, and why that estimator</summary>
#
# Words as in GLOSSARY.md. `hit[1]` and `alpha` are one drafted token, at T = 0 and T = 1.
# *Pearson's* correlation asks how well a straight line fits, *Spearman's* how well the ranks of the
# two numbers agree, whatever the curve.
#
# * *level, gap, order, small-draft*: one drafted token, by domain. *paradox* asks the entropy too.
# * *lexical*: the same where the target's entropy is above its median; *numeric*: of the tokens of
#   math that are numbers less the others; *orthogonal*: Spearman of draft and target entropy.
# * *task-depth*: shares of the variance of tested tokens (a chain's, its predecessors accepted)
#   between domains less between depths. *task-first*: of the variance between *prompts*, the level
#   at which one routes, the share of the domain, less what chance gives (section 2).
# * *independence*: the design effect, so many nodes (positions) are worth one independent one.
# * *length, eq3, temperature*: what the paper's tree gets accepted; at T > 0 under point-mass (of a
#   chain whose tokens are drawn, temperature takes less: notebook 02, section 8).
# * *depth, long-chains*: acceptance of the last token of a chain (of the best path, from every
#   position, as in notebook 04; of 8 tokens, in the blocks that a decoder visits), its predecessors
#   accepted, less that of the first.
# * *commitment*: the tokens that a decoder tests at depth 2 and 3, beside the first drafted token
#   at the same place: given an accepted prefix they are the same token, so that what rises with
#   depth is which places are reached, not how well they are drafted.
# * *position*: late less early, of the same prompts; *depth-2*: of the second token of a chain.
# * *entropy-needed*: what is accepted in the quarter of positions with the highest entropy.
# * *rules-route*: the share of the prompts that one rule tells right (it knows no text of the
#   target; the prompts are this kit's and carry forms of their domain: notebook 09 removes them).
# * *budgets, routing, gamma-…, deeper-chat, rule*: replayed chains at each c; a best gamma is
#   chosen again in every resample. *self-draft, own-outputs, maths-draft*: notebook 08; *one-pass*:
#   10.
#
# </details>

# %% [markdown]
# ## 2. What is alpha made of?
# The abstract says that the task predicts acceptance better than depth does. That compares two
# small things. The share of the variance of min(1, p/q) between the levels of a factor is computed
# here for each pair, for the published run from its cells in `data/paper` (task, depth, position
# bin), and for the authors' released records. The **rank** of a node, whether it is the draft's
# best token there or its second, is not in the paper. `prompt` is what the nodes of one text have
# in common: the reason why nodes are not independent.

# %%
nodes_of = alpha_parts.sources(pairs, records)
shares = alpha_parts.shares_by_source(nodes_of)
ctx.export(shares, "shares")

# %%
percent = levels.percent(shares, digits=2)
notebook.show_table(percent.wide("factor", "source").fillna(""))

# %%
here = percent.at(source=ctx.profile.name)
of_run = percent.at(source=alpha_parts.PAPER)
ctx.save(
    alpha_parts.shares_picture(percent),
    "shares",
    caption="Share of the variance of min(1, p/q) of nodes between the levels of each factor "
    f"(logarithmic): on {ctx.profile.name} {here.listed('factor')} %; in the paper's run "
    f"{of_run.listed('factor')} %.",
)
assert here.lies_within(0, 100) and of_run.lies_within(0, 1)

# %%
by_rank = alpha_parts.means_by_rank(nodes_of)
ctx.say(f"`published_alpha`, in brackets by rank, the draft's best first: {by_rank}.")

# %%
if records:
    facts = authors.run_facts(records)
    ctx.say(alpha_parts.records_said(facts, percent, pairs))

# %% [markdown]
# ### Does the task matter little? Of which variance?
# A node's min(1, p/q) differs mostly from one token to the next inside a text. Who routes chooses
# for a whole prompt, and asks how much of what differs *between prompts* the domain explains. So
# the share is given at four levels, for the published mean and for what is really accepted of one
# drafted token, at T = 0 (`hit[1]`, greedy text) and at T = 1 (`alpha`, sampled text):
#
# * *nodes, positions*: of the variance of all of them; *prompt means*: of the variance of the
#   means of the prompts. Both are corrected for chance (omega squared): by chance alone whole
#   prompts, and with them the means of domains, differ.
# * *prompts*: a mixed model in which each prompt has a level of its own (a random intercept). By
#   what part does the variance of these levels shrink when the domain joins the model? What a text
#   of so few tokens leaves to chance is taken out, as far as its rows are independent about its
#   level; neighbours are not quite, so that the share is if anything too low.
# * *prompts, covariates held*: the same with target entropy, the prompt's length in characters,
#   loops, and for nodes rank and depth in the model already: what the domain adds to them. Some of
#   them are the way in which a domain works (entropy), so that this is no better number, but
#   another one.

# %%
of_levels = alpha_parts.levels_of_pairs(pairs, records)
ctx.export(of_levels.shares, "shares-by-level")
ctx.export(of_levels.variances, "mixed-models")
ctx.export(of_levels.coefficients, "mixed-model-coefficients")

# %%
at_prompts = levels.percent(of_levels.shares.at(level=levels.PROMPTS))
ctx.plot(
    levels.percent(of_levels.shares),
    x="level",
    hue="estimator",
    columns="pair",
    kind="bars",
    limits=(0, 100),
    y="between domains, % of the variance",
    x_label="",
    slug="shares-by-level",
    caption="What the domain explains, by level, with 95 % intervals: of the variance between "
    f"prompts {at_prompts.listed('estimator', within='pair')} %.",
)

# %%
for name, rows in of_levels.shares.groups("pair"):
    ctx.say(f"**{name}**\n\n{levels.shares_said(rows)}")

# %% [markdown]
# The variances of the models: of the prompts' levels, of a row about them, and their intraclass
# correlation (ICC), the prompts' part of the two:

# %%
models = of_levels.variances.at(model=[levels.NOTHING, levels.DOMAIN])
notebook.show_table(models.wide(["pair", "estimator", "model"], "quantity"))

# %% [markdown]
# And the coefficients of the model with everything in it. Domains: the level at a mean row; the
# others: the change of acceptance for one nat, for 100 characters, for being in a loop, for the
# rank and the depth:

# %%
terms = of_levels.coefficients.at(pair=ctx.profile.name)
notebook.show_table(terms.wide("term", "estimator").fillna(""))

# %% [markdown]
# What rank does to the correlation of Table VI: where the target is unsure, its best token is less
# likely (rank 0: acceptance falls with entropy), and for the same reason a second token is more
# likely (rank 1: it rises). Spearman's correlation compares the ranks of two numbers: 1 if they
# always rise together, -1 if one falls where the other rises.

# %%
ranks = alpha_parts.by_rank(nodes_of)
ctx.export(ranks, "rank-correlations")
notebook.show_table(ranks.wide("rank", "source").fillna(""))

# %%
ours = ranks.at(source=ctx.profile.name)
ctx.plot(
    ranks,
    x="rank",
    hue="source",
    kind="bars",
    reference=0,
    limits=(-1, 1),
    y="Spearman correlation with target entropy",
    slug="rank-correlations",
    caption=f"min(1, p/q) of a node and target entropy on {ctx.profile.name}: over all nodes "
    f"{ours.at(rank='all')}, among the draft's best tokens (rank 0) {ours.at(rank=0)}.",
)

# %%
ctx.say(alpha_parts.opposed_said(ranks, pairs))

# %% [markdown]
# ## 3. E[L] can fall while the tree gets better
# Give every node one child more. The target then finds its token among the children at least as
# often: a further child can only add acceptance. The paper's E[L] multiplies means over *all*
# children, and a further child is mostly a worse one in the mean (not always: min(1, p/q) may rise
# with rank), so that E[L] can fall; how often it does is computed below: for the authors' own
# records, where they are here, their trees cut back to 1, 2, … children a node, so that each panel
# is one and the same tree growing (they do not hold the target's argmax; the band is what their
# probabilities and entropies leave open); and for each pair, at T = 0, the balanced tree with one
# child a node and with all, and trees of depth 1, where E[L] is the mean of min(1, p/q) over the
# children and the accepted share is `hit[k]`.

# %%
trees = {f"authors' {run}": authors.whole_trees(one) for run, one in records.items()}
trees |= {
    f"{name}, depth {pair.profile.depth}": pair.balanced.nodes
    for name, pair in pairs.items()
}
grown = stack(
    {source: growth.growing_trees(nodes) for source, nodes in trees.items()}, "source"
)
ctx.table(grown, "growing-trees")

# %%
roots = stack(
    {name: growth.growing_roots(pair.greedy.trace) for name, pair in pairs.items()},
    "pair",
)
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
    identity = final_run.against_published(one)
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
    by_domain = final_run.levels(published_tables)
    notebook.show_table(by_domain.frame)
    ctx.say(final_run.tables_said(one, published_tables))

# %%
for run, one in of_four.items():
    made_of = final_run.parts(one)
    ctx.export(made_of, f"parts-{run}")
    ctx.say(final_run.parts_said(made_of))

# %% [markdown]
# ## 5. Could 50 prompts have shown it?
# What a study can see depends on how much prompts of one domain differ. Its *power* is the
# probability that it finds a difference that is there. Asked for is a difference as large as the
# one that the paper prints between chat and math. Found means: with a probability of 80 %, under
# Holm's correction for all pairs of domains. The answer rests on the **spread**, the standard
# deviation between the prompts of a domain, and that is another for each pair, estimator and run;
# so it is given for each that is at hand. Of the authors' runs those count that have five prompts
# of a domain; where it is one domain, its spread is taken for both sides. The interval is that of
# the spread (Bonett's, which holds for few prompts too).

# %%
printed = published.published("I").query("quantity == 'alpha_mean'").set_index("domain")
printed = printed["published"][list(score.domains_in(greedy.nodes))]
plans = enough_prompts.spreads(pairs, records, printed, prompts)
ctx.export(plans, "power")
assert (plans["detectable"] > 0).all()

# %%
of_claim = enough_prompts.of_claim(plans)
notebook.show_table(enough_prompts.plans_in_cells(of_claim))

# %%
size = of_claim["difference"].abs().iloc[0]
ctx.plot(
    enough_prompts.detectable(of_claim),
    x="source",
    hue="estimator",
    kind="bars",
    reference=size,
    limits=(0, None),
    x_label="",
    y=f"smallest difference that {prompts} prompts a domain find",
    slug="power",
    caption=f"What {prompts} prompts a domain find at each spread at hand (95 % intervals: of the "
    f"spread). Left of the line, the paper's difference between chat and math ({size:.3f}), they "
    "are enough.",
)

# %%
ctx.say(enough_prompts.enough_said(of_claim, prompts, records))

# %% [markdown]
# ## 6. The article: advice, rule and pseudo-code
# Which gamma is best depends on acceptance *and* on c, so that advice by kind of text alone cannot
# be right for every pair; what the article says is a contrast (proofs want longer drafts than
# exploratory text), and two ranges. The best gamma of a text is chosen again in every resample. The
# article's rule S = (e T)/(t e + T) counts gamma alpha tokens and their cost: it leaves out that a
# block ends at the first rejection (it counts too much) and that the target adds a token of its own
# (too little).

# %%
best = evidence.best_gammas(pairs, grid)
ctx.export(best, "best-gamma")
at_article = best.at(c=article_cost, slope=0.0, T="T = 0")
notebook.show_table(at_article.wide("pair", "domain"))

# %%
ctx.plot(
    best.at(slope=0.0),
    x="c",
    hue="domain",
    rows="T",
    columns="pair",
    y="best gamma",
    x_label="c, a draft pass in target passes",
    slug="best-gamma",
    caption="The fastest chain by c, v free, with the central 95 % of the resamples' choices; 0 is "
    f"plain decoding. {caveat}.",
)

# %%
fact = listed["example"].fact
(e, whole, part), (top, bottom) = fact["rule"], fact["printed"]
gamma = formulas.ARTICLE_GAMMA
standard = cost.speedup_iid(e / gamma, gamma, part / whole)
ceiling = cost.speedup_iid(1.0, gamma, part / whole)
ctx.say(
    f"**Worked example** (e = {e:g} with gamma {gamma}, {whole} and {part} ms): the rule gives "
    f"{cost.speedup_article(e, whole, part):.2f}, printed is {top}/{bottom} = {top / bottom:.2f}; "
    f"the standard model gives {standard:.2f}, and {ceiling:.2f} at best, where the article has "
    f"{listed['best-case'].number}."
)

# %%
off = found[
    (found["claim"] == "rule") & (found["c"] == article_cost) & (found["slope"] == 0)
]
spans = off.groupby("pair", sort=False)["estimate"].agg(["min", "max"])
said = "; ".join(
    f"{row.Index} {row.min:.2f} to {row.max:.2f}" for row in spans.itertuples()
)
ctx.say(
    f"At c = {article_cost:g} the rule is so many times what the replay of the same chain gives: "
    f"{said}."
)

# %% [markdown]
# How far a wrong output distribution is from the target's is told by the *total variation*: half
# the sum of the differences of the probabilities, so 0 for the same distribution and 1 for two that
# share no word.

# %%
flaws = formulas.pseudo_code()
ctx.say(
    "**Pseudo-code**, on three words with overlap 0.7: without a residual the output is "
    f"{flaws['residual']:.2f} (total variation) away from the target's, with p read one place late "
    f"{flaws['positions']:.2f}; without the bonus token {flaws['bonus']:.2f} words per pass are "
    "lost; and a draft that is handed its own tokens only, without the prompt, begins "
    f"{flaws['prompt-blind']:.2f} away from its own q. Notebook 00 draws the first three."
)

# %% [markdown]
# ## 7. Does a verdict rest on loops, or on one seed?
# A small model's greedy text runs into loops, and what a draft does there says little about
# language (notebook 02, section 7). So the claims are asked again *outside loops*: of the positions
# whose token ends no run of four tokens that the same text has had before, the trees that hang
# there, and the blocks that begin there. And text at T = 1 is drawn with one seed: the claims that
# a trace can answer are asked of two other seeds.

# %%
texts = {
    f"{name}, T = {t}": run.trace
    for name, pair in pairs.items()
    for t, run in ((0, pair.greedy), (1, pair.sampled))
}
repeated = loops.share(texts)
ctx.export(repeated, "loop-share")
notebook.show_table(repeated.wide("temperature", "domain"))
ctx.say(loops.said(repeated))

# %%
outside = [
    evidence.outside_loops(pair, name, listed, strings[name], grid)
    for name, pair in pairs.items()
]
free = loop_free.asked_again(verdicts, outside, listed, smallest)
ctx.export(free, "loops")
ctx.say(loop_free.changed_said(free, "outside loops"))

# %%
redrawn = [
    frame
    for name, pair in pairs.items()
    for frame in evidence.other_seeds(pair, name, listed, strings[name], grid)
]
seeds = loop_free.asked_again(verdicts, redrawn, listed, smallest)
ctx.export(seeds, "seeds")
ctx.say(loop_free.changed_said(seeds, "two other seeds"))

# %%
tally = verdicts.value_counts(["pair", "asked", "verdict"])
counts = {
    f"{pair} {asked}: {verdict}": int(count)
    for (pair, asked, verdict), count in tally.items()
}
own = shares.at(source=ctx.profile.name)
of_paper = shares.at(source=alpha_parts.PAPER)
ctx.record(
    **counts,
    share_rank=own.at(factor="rank").value,
    share_task=own.at(factor="task").value,
    share_depth=own.at(factor="depth").value,
    paper_share_task=of_paper.at(factor="task").value,
    paper_share_depth=of_paper.at(factor="depth").value,
    **alpha_parts.numbers_of_parts(of_levels, ctx.profile.name),
    **enough_prompts.numbers_of_plans(of_claim, ctx.profile.name),
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. Which verdicts can change where `slopes = [0.0, 0.3]`, and which cannot?
#
# <details><summary>What happens</summary>
# Only what depends on cost: with a dear verification the ranges of c at which drafting pays shrink,
# and the best gammas fall. No estimate of acceptance knows c or v.</details>
#
# 2. Run it with `overrides = {"prompts_per_domain": 25}`. Do verdicts turn round, or do they fade?
#
# <details><summary>What happens</summary>
# Intervals widen by about the square root of 2, so that some of *holds* and *does not hold* fade
# into *cannot be told*. A verdict that turned round would have rested on luck. With fewer than 20
# there is none at all: intervals of so few prompts cover less than they say (notebook
# 03).</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw of the two pairs: the verdicts of section 1, at which c those about speed turn, and
#   which rest on loops or a seed (section 7).
# * What we saw that depends on no pair. The mean of Eq. 1 over a tree's best tokens is not the
#   acceptance of any lossless algorithm. E[L] (Eq. 3) can fall while the tree gets better (a
#   further child can only add acceptance, and is mostly a worse one in the mean; on the pairs and
#   in the records: section 3): trees cannot be ranked by it, and a gap does not come back in it
#   cubically. E[L] > 1 is no condition; what pays depends on c and v. Given an accepted prefix, a
#   token drafted deeper is the token that would have been drafted first there. The root has two
#   children, the prompts are the first rows, the printed correlations are Pearson's. The article's
#   pseudo-code is not lossless.
# * What this does not show: anything of the paper's pair, unless its records are here (section 4)
#   or the profile is `paper`. Two small pairs that agree are two pairs. A claim of several rows
#   falls with one of them. The regions are ours where the source names no number; they and their
#   reasons stand in `data/paper/claims.yaml`. A share of variance is estimated too high, more so
#   for the domain (whole prompts) than for depth: it favours *task-depth*.
# * Next: notebooks [03](03_domain_acceptance.ipynb) to [06](06_chat_paradox.ipynb) go through
#   domains, depth, entropy and chat one by one, [10](10_wall_clock.ipynb) measures speed; the
#   self-draft belongs to notebook 08 and budgets to notebook 09.

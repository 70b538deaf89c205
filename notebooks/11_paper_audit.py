# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 11. Which claims of the paper and the article hold?
#
# A paper measured acceptance by domain for one pair of models, and an article gives advice on how
# much to draft. Do their claims hold for other pairs and other prompts? We measure with estimators
# that are exact for a lossless decoder, and with intervals that resample prompts. Each claim is a
# number and a region in which the number has to lie. We wrote both into `data/paper/claims.yaml`
# before any run was measured. The verdict follows from the interval.
#
# ![Verdicts on the paper's and the article's claims](../figures/smollm/11/claims.png)
#
# *Runs on* any machine · *minutes* about one on 2 cores · *reads* the recorded texts of the pairs,
# `data/atlas`, and, if they exist, the tables of notebooks 08 and 10 and the authors' public
# records (`make author-records`) · *writes* `figures/<profile>/11/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# further pairs to judge, from recorded or shipped runs; [] for none
beside: list = ["tiny", "smollm"]  # any
# values of c, the cost of a draft pass in target passes
cs: list = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.29, 0.4, 0.5, 0.7, 1.0]  # 0.0001 to 10
# slopes of v(n) = 1 + slope (n - 1), the cost of a target pass over n tokens
slopes: list = [0.0, 0.1]  # 0 to 10
# runs of data/atlas with Spec-Bench's tasks; [] for none
public_runs: list = ["eagle", "recycling", "medusa", "sps", "pld", "lookahead"]  # any
article_cost: float = 0.05  # 0.0001 to 10; c in the article's example: 5 ms / 100 ms
# folder of the authors' records; empty: $SPECLAB_AUTHOR_RECORDS, else data/runs/author-records
author_records: str = ""  # any

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
import numpy as np
import pandas as pd

from speclab import cost, stats
from speclab.analysis import atlas, claims, prompt_sets, published
from speclab.analysis.prompt_sets import OWN
from speclab.estimates import counted
from speclab.show import drawings, notebook
from speclab.models.folder import ModelFolder
from speclab.prompts import DOMAINS
from speclab.show.pictures import strings_of
from speclab.show.tables import markdown
from speclab.studies.paper_audit import author_records as authors, evidence, summary
from speclab.studies.paper_audit.other_notebooks import tables_of

# the profiles and the folder that parameters name, and the atlas
READS = ["{beside}", "{author_records}", "data/atlas"]
RUNS = ["greedy", "sampled", "others", "others-sampled"]

# %%
ctx = notebook.start("11_paper_audit", profile, overrides)
listed = claims.claims()
grid = [(c, slope) for slope in slopes for c in cs]
records = authors.read(author_records)

# %%
pairs = {}
profiles = evidence.profiles_beside(ctx.profile, beside)
for name, of_pair in profiles.items():
    strings = strings_of(ModelFolder.fetched(of_pair.target, weights=False).tokenizer)
    pairs[name] = evidence.recorded_texts(of_pair, strings)

# %%
parts = [evidence.of_sources(listed)]
prompts, tables = {}, {}
for name, pair in pairs.items():
    temperature = profiles[name].sampled_temperature
    tables[name] = tables_of(name, ctx.figures.parents[1], temperature)
    parts.append(evidence.of_pair(pair, listed, grid, tables[name]))
    prompts[name] = evidence.fewest_prompts(pair.greedy[OWN].trace)

# %%
for run, nodes in records.items():
    if nodes["domain"].nunique() == len(DOMAINS):
        name = f"authors' {run}"
        as_published = evidence.as_published(authors.text_of(nodes), listed)
        parts.append(claims.in_frame(listed, name, as_published))
        prompts[name] = evidence.fewest_prompts(nodes)

# %%
found = pd.concat(parts, ignore_index=True)
verdicts = claims.verdict_table(listed, found, prompts)
of_pairs = verdicts[verdicts["pair"] != claims.SOURCES]
ctx.export(found, "evidence")
ctx.export(verdicts, "verdicts")

# %% [markdown]
# ## 1. Which claims hold, and which fail?
# *As published* is the paper's own procedure on greedy text. *T = 0* and *T = 1* are exact for a
# lossless decoder, each on text of its temperature. The acceptance of one drafted token is `hit[1]`
# at T = 0 and `alpha` at T = 1. At T = 1 chains consist of drawn tokens (rejection rule), and the
# paper's tree is verified by the point-mass rule. **E[L]** is the paper's formula for the accepted
# tokens per target pass (`published_length`).
#
# Some claims say the same: the paper's order of the four domains and its chat paradox both say that
# acceptance is higher in chat than in math. We judge each claim, but count such claims once, as one
# **statement**.

# %%
name = ctx.profile.name
facts = of_pairs.query("prompts == @OWN and claim == fact and pair == @name")
by_way = facts.groupby("asked", sort=False)["verdict"]
at_0 = by_way.get_group(claims.AT_0)
ctx.draw(
    drawings.draw_verdicts,
    summary.of_facts(of_pairs[of_pairs["pair"].isin(pairs)]),
    "claims",
    title=f"On {name} at T = 0, {summary.how_many_held(at_0)}",
    caption="Each row is a claim, each column a pair and a way to measure, on the pair's own "
    "prompts. Of claims that say the same, only one is shown. Green claims hold, red ones fail, "
    "grey ones are inconclusive, and violet ones depend on c, the cost of a draft pass. An empty "
    "cell does not apply. 'Own prompts': the claim holds on these prompts and fails on another "
    "set. Measured on these pairs, not on the paper's own pair.",
    column="asked",
    panel="pair",
    order=[claims.PUBLISHED, claims.AT_0, claims.AT_1],
)

# %%
lines = [f"* **{name}, {way}:** {claims.tally(verdict)}." for way, verdict in by_way]
ctx.say("\n".join([*lines, *summary.alike(of_pairs[of_pairs["pair"].isin(pairs)])]))

# %% [markdown]
# We test the same claims on the other prompt sets of the profile. Sets with few prompts have wide
# intervals (notebook 13), and many of their verdicts are inconclusive. Texts that are identical to
# those of our own prompts are not tested a second time.

# %%
ctx.say(prompt_sets.described(ctx.profile))

# %%
for pair, rows in of_pairs.groupby("pair", sort=False):
    signs = markdown(claims.signs_beside(rows))
    title = f"All verdicts on {pair}, by claim, way to measure and prompt set"
    ctx.say(f"<details><summary>{title}</summary>\n\n{signs}\n\n</details>")

# %%
ctx.say(
    "*Signs: ✓ holds, (✓) holds on own prompts only, ✗ fails, ? inconclusive, c: the verdict "
    "depends on c, few: too few prompts, – not tested.*\n\n"
    f"{claims.by_chance(of_pairs['verdict'])} Claims that say the same share their data, so they "
    "are wrong together."
)

# %% [markdown]
# **The rule.** A claim of several rows (domains, differences) **holds** if *every* row's 95 %
# interval lies in the region (intersection-union test, no correction needed). It **fails** if *one*
# row's interval lies outside after widening for the number of rows (Bonferroni). Otherwise it is
# **inconclusive**: an interval that includes 0 does not show that there is no effect. A claim of
# equality therefore has a margin. A claim about a number (acceptance near 0.5) is about one pair
# and need not hold for another. A claim about a direction should hold for all pairs, but a few
# pairs cannot prove it.

# %%
ctx.say("**Not tested:**\n\n" + "\n".join(summary.not_tested(listed, of_pairs)))

# %% [markdown]
# ### Does the task matter most on public runs?
# The atlas (`data/atlas`) holds the passes of public runs with Vicuna-7B at T = 0. Passes can
# decide two claims about tasks. The tasks are Spec-Bench's six with 80 prompts each. MT-Bench's
# conversations count as chat, and `math_reasoning` as math. The first number is the share of the
# variance of acceptance between tasks minus the share between depths. The second number is the
# share of the variance between texts that lies between tasks. A text is measured by its tokens per
# target pass. [17](17_atlas.ipynb) tests the claims about chat, math and depth on the same runs.

# %%
if public_runs:
    methods = atlas.runs().set_index("run")["method"]
    public = evidence.on_public_runs({methods[run]: run for run in public_runs}, listed)
    on_public = claims.verdict_table(listed, public)
    ctx.table(public, "public-runs", most=20, cells=summary.of_runs(on_public))
    ctx.say(summary.runs_in_words(on_public))

# %% [markdown]
# ## 2. One claim by hand
# The claim is that acceptance is higher in chat than in math. At T = 0 the estimate is the
# difference of the two domains' `hit[1]`. We resample whole prompts within each domain 2,000 times,
# each prompt with all its positions. The interval is the middle 95 % of the resampled differences.
# It is a little wider than that, because the prompts of a sample vary less about their own mean
# than about the true mean (`stats.levels_of`).

# %%
own = pairs[ctx.profile.name].greedy[OWN]
trace = own.trace

# %% [markdown] tags=["by-hand"]
# **By hand:** we count hits per prompt, draw prompts again, and take the difference.

# %% tags=["by-hand"]
hits = trace.groupby(["domain", "prompt_id"])["hit"].agg(["sum", "size"])
redrawn = {}
for number, domain in enumerate(["math", "chat"]):
    of_prompts = hits.loc[domain]
    n = len(of_prompts)
    rng = np.random.default_rng([0, number])
    times = rng.multinomial(n, np.full(n, 1 / n), size=2000)  # how often each prompt is drawn
    redrawn[domain] = times @ of_prompts["sum"] / (times @ of_prompts["size"])

# %% tags=["by-hand"]
by_domain = trace.groupby("domain")["hit"].mean()
estimate = by_domain["chat"] - by_domain["math"]
low, high = np.quantile(redrawn["chat"] - redrawn["math"], stats.levels_of(n))
verdict = claims.UNDECIDED
if low > 0:
    verdict = claims.HOLDS
if high <= 0:
    verdict = claims.FAILS

# %%
ctx.say(
    f"Acceptance (`hit[1]`) in chat minus acceptance in math is "
    f"{stats.cell(estimate, low, high, 0, 'points')} on {ctx.profile.name}. The region is "
    f"{listed['gap'].region_said()}, so the verdict is **{verdict}**. The paper reports "
    f"{stats.cell(float(listed['gap'].number), np.nan, np.nan, 1, 'points')}."
)

# %%
gap = found.set_index(claims.KEYS).loc[[("gap", ctx.profile.name, claims.AT_0, OWN)]]
assert np.allclose(gap[["estimate", "low", "high"]], [[estimate, low, high]])
assert verdict == claims.judge(gap)

# %% [markdown]
# `evidence.measure` does this for every claim. `claims.yaml` names the rows, the estimator and the
# contrast.
#
# ## 3. Five claims in numbers

# %%
shown = {name: listed[name] for name in ("level", "gap", "length", "depth", "entropy-sign")}
notebook.show_table(summary.in_numbers(of_pairs, shown))
ctx.say(
    "*The number that the paper prints, and the range of our estimates over the domains, with the "
    "outermost bounds of their 95 % intervals.*"
)

# %% [markdown]
# **Depth itself does not raise acceptance.** After an accepted prefix the text is what the draft
# proposed. So the token drafted at depth 3 is the token that a new block would draft first at the
# same position, and it is accepted equally often. Acceptance rises with depth only because deep
# positions are reached where acceptance is easy.

# %% [markdown] tags=["by-hand"]
# **By hand:** at T = 0 we check this token by token.

# %% tags=["by-hand"]
hits_of_text = trace.sort_values(["prompt_id", "position"]).groupby("prompt_id")["hit"]
ahead = trace.assign(second=hits_of_text.shift(-1), third=hits_of_text.shift(-2))
deep = own.nodes.query("best_path and depth == 3")
both = ahead.merge(deep[["prompt_id", "position", "target_rank"]])
reached = both[both["hit"] & both["second"].eq(True)].dropna(subset="third")
is_accepted = reached["target_rank"].eq(0)
assert (is_accepted == reached["third"]).all()

# %%
if len(reached):
    ctx.say(
        f"After an accepted prefix, {counted(len(reached), 'token')} were drafted at depth 3, and "
        f"{100 * is_accepted.mean():.0f} % of them were accepted. A new block that begins at the "
        "same position has its first token accepted in exactly the same cases. Over all positions, "
        f"the draft's first token is accepted in {100 * trace['hit'].mean():.0f} % of cases. The "
        "difference is selection."
    )

# %% [markdown]
# ## 4. At which costs do claims about speed hold?
# A claim about speed depends on c, the cost of a draft pass, and on v, the cost of a target pass
# over several tokens. The paper names neither. (For its two models, c = 0.29 is often quoted. That
# value is for both models in f16, but the paper's target is in 4 bit.) So we test each claim at
# every c, with constant and with rising v. The best gamma is chosen again in every resample. Each c
# is tested separately. With this many tests, an isolated c means nothing; a range of neighbouring
# values does.

# %%
measured_c = summary.measured_c(tables[name])
speed = summary.of_costs(found, listed, name, prompts[name])
of_speed = facts[facts["claim"].isin(speed["claim"]) & (facts["asked"] == claims.AT_0)]
depends = of_speed["verdict"] == claims.TURNS
ctx.draw(
    drawings.draw_verdicts,
    speed,
    "costs",
    title=f"On {name} at T = 0, the verdict on {depends.sum()} of {len(depends)} claims about "
    "speed depends on c",
    caption="Verdicts on claims about speed, by c, the cost of a draft pass in target passes. "
    "Drafting is cheap on the left and expensive on the right. A verdict that depends on v counts "
    "as inconclusive. Black line: the c that notebook 10 measured, if it measured one.",
    column="c",
    panel="asked",
    label="c (draft pass / target pass)",
    mark=measured_c,
    mark_name=f"measured c, {measured_c:.2g}" if measured_c else "",
)

# %% [markdown]
# ## 5. Which claims need no pair?
# Formulas, the authors' code and log, and the article's example decide these claims. A *defect* is
# not a claim but a fault in the authors' code or in the article's pseudo-code. Its size is a number
# that should be 0. *Total variation* is half the sum of the absolute differences of two
# distributions. `commitment` is 0 by construction, by the same argument as in section 3.

# %%
free = verdicts.query("pair == @claims.SOURCES")
free = free.rename(columns={"claim": "key", "said": "claim", "estimator": "number"})
notebook.show_table(free[["key", "claim", "number", "measured", "verdict"]])

# %%
depth = evidence.PAPER_TREE.max_depth
lengths = published.published("II").set_index("domain")["published"]
ends = lengths / depth  # c at which depth c = E[L]
assert np.isclose(cost.block_cost(depth, ends["math"]), 1 + lengths["math"])

# %%
ctx.say(
    "**Must the target accept more than one token per pass (E[L] > 1) before drafting pays?** No. "
    "A block emits one token more than the target accepts. With drafts of depth "
    f"{depth} and v = 1, drafting pays as soon as more than {depth}c tokens per block are accepted "
    f"on average. At c = {article_cost:g} this is {depth * article_cost:.2f}. By this rule, with "
    "the accepted tokens that the paper reports, drafting pays "
    f"up to c = {ends['math']:.2f} in math and {ends['chat']:.2f} in chat."
)

# %%
if records:
    ctx.say(authors.SHOWN)
    ctx.table(authors.facts(records), "author-records")
if authors.FINAL not in records:
    ctx.say(
        "The authors' records of the paper's run are not on this machine. "
        f"`{authors.SOURCE.again}` fetches them. Section 1 then also shows the paper's own pair."
    )

# %%
paper = listed["gap"].number
ctx.answer(summary.verdicts_in_words(name, at_0, paper, gap.iloc[0]))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. Set `slopes = [0.0, 0.3]`. Which verdicts can change, and which cannot?
#
# <details><summary>What happens</summary>
# Only verdicts that depend on cost can change. With expensive verification, drafting pays at fewer
# values of c, and the best gammas fall. No estimate of acceptance depends on c or v.</details>
#
# 2. Set `overrides = {"prompts_per_domain": 25}`. Do verdicts reverse, or become inconclusive?
#
# <details><summary>What happens</summary>
# Intervals become wider by about the square root of 2, so some verdicts become inconclusive. A
# verdict that reversed would have been wrong by chance.</details>
#
# 3. Write a claim of your own into `data/paper/claims.yaml`, with its region, before you look at
#    any number: which rows, which estimator, which contrast?

# %% [markdown]
# ## What this does not show, what is next
# * What this does not show: anything about the paper's own pair, unless its records are here or the
#   profile is `paper`. Two small pairs that agree are weak evidence. Our domains are prompt sets,
#   one failing domain makes a claim fail, and the regions are ours if the source names no number.
# * At T = 1 each prompt has one text, so in `task-first` sampling noise counts as a difference
#   between prompts. The other prompt sets have no recorded trees at T = 1, so `eq3` and `depth` are
#   not tested on them.
# * Notebooks [03](03_domain_acceptance.ipynb) to [06](06_entropy_paradox.ipynb) examine domains,
#   depth, entropy and chat one by one. [08](08_better_drafts.ipynb) makes the self-draft,
#   [09](09_budgets_and_routing.ipynb) studies budgets, and [10](10_wall_clock.ipynb) measures
#   speed.

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
# A paper measured acceptance by domain for one pair of models, and an article gives advice on how
# much to draft. Which of their claims hold for other pairs and other prompts, if the estimator is
# exact for a lossless decoder and the interval resamples prompts? Each claim is a number and a
# region in which that number has to lie. Both were written into `data/paper/claims.yaml` before any
# run was asked. The verdict follows from the interval.
#
# ![Five claims, numbers and regions](../figures/smollm/11/claims.png)
#
# *Runs on* any machine · *minutes* about one on 2 cores · *reads* the runs `greedy` and `sampled`
# (T = 1) of the profile and of the pairs beside it, those of their other prompts, the tables
# of notebooks 08 and 10 where they have run, and the authors' public records if they are there
# (`make author-records`) · *writes* `figures/<profile>/11/`.

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
# folder of the authors' records; empty: $SPECLAB_AUTHOR_RECORDS, else data/runs/author-records
author_records: str = ""  # any

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
from itertools import product

import numpy as np
import pandas as pd

from speclab import cost, stats
from speclab.analysis import claims, prompt_sets, published
from speclab.analysis.prompt_sets import OWN
from speclab.estimates import counted, named
from speclab.show import drawings, notebook
from speclab.models.folder import ModelFolder
from speclab.prompts import DOMAINS
from speclab.show.pictures import strings_of
from speclab.studies.paper_audit import author_records as authors, evidence, pictures
from speclab.studies.paper_audit.other_notebooks import tables_of

READS = ["{beside}", "{author_records}"]  # the profiles and the folder that parameters name
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
    ctx.say(f"`{name}`: {notebook.made_with(pairs[name].greedy[OWN].pair)}")

# %%
parts = [evidence.of_sources(listed)]
prompts = {}
for name, pair in pairs.items():
    tables = tables_of(name, ctx.figures.parents[1], profiles[name].sampled_temperature)
    parts.append(evidence.of_pair(pair, listed, grid, tables))
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
beyond = f"Measured on {' and '.join(pairs)}, not on the paper's own pair"
ctx.export(found, "evidence")
ctx.export(verdicts, "verdicts")

# %% [markdown]
# ## 1. The verdicts
# A claim holds (✓), does not hold (✗), is inconclusive (?), depends on c (c), has too few prompts
# (few), or nothing here answers it (–). *As published* is the paper's own procedure on greedy text.
# *T = 0* and *T = 1* are exact for a lossless decoder, each on text of its temperature: one drafted
# token is `hit[1]` or `alpha`. At T = 1 chains are drawn tokens (rejection rule), and the paper's
# tree is verified by the point-mass rule.
#
# The same claims are asked of the other sets of prompts that the profile names. Rows whose texts
# are those of the own prompts again decide nothing there. Where a set has few prompts its intervals
# are wide (notebook 13), and *?* is the usual result. (✓): the claim holds on the pair's own
# prompts only; it does not hold on another set.

# %%
ctx.say(prompt_sets.described(ctx.profile))

# %%
for pair, rows in of_pairs.groupby("pair", sort=False):
    ctx.say(f"**{pair}**")
    notebook.show_table(claims.signs_beside(rows))

# %%
ctx.say(
    f"*Verdicts by claim, way to ask and prompt set. {claims.by_chance(of_pairs['verdict'])} "
    "Claims that state one fact share their data, so they err together.*"
)

# %% [markdown]
# **How they are counted.** Some claims state one fact: the paper's order of the four domains and
# its chat paradox both say that chat is accepted more often than math (`gap`); the article's *less
# often the longer the chain* is the opposite of the paper's `depth`. Each is judged, but a fact is
# counted once, by the claim that the table names (*counted as*).

# %%
own_form = of_pairs.query("prompts == @OWN and claim == fact")
fails = own_form.replace({claims.NO_CONDITION: claims.FAILS})
by_pair = fails.pivot(index=["asked", "said"], columns="pair", values="verdict")[list(pairs)]
for asked, verdict in product((claims.AT_0, claims.AT_1), (claims.HOLDS, claims.FAILS)):
    alike = (by_pair.loc[asked] == verdict).all(axis=1)
    facts = list(alike.index[alike])
    ctx.say(
        f"* **{asked}, {verdict}** on {named(list(pairs))}, "
        f"{counted(len(facts), 'fact')}: {'; '.join(facts) or 'none'}."
    )

# %% [markdown]
# The rule for a claim of several rows (domains, differences): it **holds** if *every* row's 95 %
# interval lies in the region (an intersection-union test: no correction is needed). It **does not
# hold** if *one* row's interval, widened for the number of rows (Bonferroni), lies outside. Else it
# is **inconclusive**: an interval that includes 0 shows no absence of an effect, and a claim of
# equality has a margin. A level (0.5) belongs to a pair and need not carry over. A direction is
# meant to, but two pairs cannot show that it does.
#
# What could not be asked:

# %%
missing = found[found["estimate"].isna()]
lines = [f"* {one.id}: {one.untested}" for one in listed.values() if one.untested]
for note, rows in missing.groupby("note", sort=False):
    who = rows[claims.KEYS].drop_duplicates().agg(", ".join, axis=1)
    lines.append(f"* {note}: {'; '.join(who)}")
ctx.say("\n".join(lines))

# %% [markdown]
# ## 2. One claim by hand
# *Acceptance is higher in chat than in math*, at T = 0: the estimate is the difference of the two
# domains' `hit[1]`. We resample whole prompts within each domain, 2,000 times, each with all of its
# positions. The interval is the middle 95 % of the resampled differences, a little wider, since the
# prompts of a sample vary less about their own mean than about the true one (`stats.levels_of`).

# %%
own = pairs[ctx.profile.name].greedy[OWN]
trace = own.trace
hits = trace.groupby(["domain", "prompt_id"])["hit"].agg(["sum", "size"])
redrawn = {}
for number, domain in enumerate(["math", "chat"]):
    of_prompts = hits.loc[domain]
    rng, n = np.random.default_rng([0, number]), len(of_prompts)
    # how often each prompt is drawn
    times = rng.multinomial(n, np.full(n, 1 / n), size=2000)
    redrawn[domain] = times @ of_prompts["sum"] / (times @ of_prompts["size"])

# %%
by_domain = trace.groupby("domain")["hit"].mean()
estimate = by_domain["chat"] - by_domain["math"]
low, high = np.quantile(redrawn["chat"] - redrawn["math"], stats.levels_of(n))
verdict = claims.HOLDS if low > 0 else claims.UNDECIDED
if high <= 0:
    verdict = claims.FAILS

# %%
ctx.say(
    f"`hit[1]` in chat minus `hit[1]` in math is {estimate:.3f} [{low:.3f}, {high:.3f}] on "
    f"{ctx.profile.name}. The region is {listed['gap'].region_said()}, so the claim **{verdict}**. "
    f"The paper prints {listed['gap'].number}."
)

# %%
gap = found.set_index(claims.KEYS).loc[[("gap", ctx.profile.name, claims.AT_0, OWN)]]
assert np.allclose(gap[["estimate", "low", "high"]], [[estimate, low, high]])
assert verdict == claims.judge(gap)

# %% [markdown]
# From here on `evidence.measure` does this for every claim: `claims.yaml` names the rows, the
# estimator and the contrast, and the verdict follows.

# %% [markdown]
# ## 3. Five claims, drawn large

# %%
shown = {
    "level": "acceptance of a drafted token (share)",
    "gap": "acceptance in chat minus acceptance in math",
    "length": "accepted tokens per target pass",
    "depth": "acceptance at depth 3 minus acceptance at depth 1",
    "entropy-sign": "correlation with the target's entropy",
}
drawn = found[found["pair"].isin(pairs) & (found["prompts"] == OWN)]
ctx.draw(
    drawings.draw_claims,
    pictures.large(drawn, verdicts),
    "claims",
    labels={name: [listed[name].claim, number] for name, number in shown.items()},
    regions=pictures.regions({name: listed[name] for name in shown}),
    caption="Five claims: the paper's numbers and each pair's, as published and by exact "
    "estimators, with the verdict's mark. Green, or dashed edges where it differs by domain: the "
    f"region in which the claim holds. Bars: 95 % intervals. {beyond}.",
)

# %% [markdown]
# **What `depth` does not say.** Given that all earlier drafted tokens were accepted, the text goes
# on as the draft had it. The token drafted at depth 3 is then the token that the draft would
# propose first at that position, and it is accepted exactly as often. So acceptance rises with
# depth only because deep positions are reached where acceptance is easy. At T = 0 this can be
# checked token by token:

# %%
texts = trace.sort_values(["prompt_id", "position"]).groupby("prompt_id")["hit"]
ahead = trace.assign(second=texts.shift(-1), third=texts.shift(-2))
deep = own.nodes.query("best_path and depth == 3")
both = ahead.merge(deep[["prompt_id", "position", "target_rank"]])
both = both[both["hit"] & both["second"].eq(True)].dropna(subset="third")
assert (both["target_rank"].eq(0) == both["third"]).all()

# %%
if len(both):
    ctx.say(
        f"{len(both):,} tokens were drafted at depth 3 after an accepted prefix, and "
        f"{both['third'].mean():.1%} of them are accepted: the same ones, one by one, as of the "
        "tokens drafted first at the same positions. Over all positions the draft's first token "
        f"is accepted in {trace['hit'].mean():.1%}. The difference is selection."
    )

# %% [markdown]
# ## 4. At which c do claims about speed turn?
# A claim about speed is one about c, the cost of a draft pass, and about v, what the target's pass
# over several tokens costs. The paper names neither. (0.29, often quoted for its models, is for
# both in f16, while its target is in 4 bit.) So we ask each claim at every c, with v free and
# rising; the best gamma is chosen again in every resample. Each c is tested separately. With so
# many tests, an isolated c means nothing; a range of neighbouring values does. The table has the
# values of c at which a claim has the same verdict for every slope of v.

# %%
about_cost = [one.id for one in listed.values() if one.decides == "cost"]
by_cost = verdicts.query("claim in @about_cost and prompts == @OWN").reset_index()
notebook.show_table(by_cost[["claim", "pair", "asked", "verdict", "holds_at", "fails_at"]])

# %% [markdown]
# ## 5. What needs no pair
# Formulas, the authors' code and log, the article's example; and defects, which claim nothing: what
# is wrong in a procedure, and what that costs (a number that would be 0; *total variation* is half
# the sum of the differences of two distributions). `commitment` is 0 by construction, by the same
# argument as `depth` in section 3.

# %%
free = verdicts.query("pair == @claims.SOURCES")
notebook.show_table(free[["claim", "said", "estimator", "measured", "verdict"]])

# %%
depth = evidence.PAPER_TREE.max_depth
lengths = published.published("II").set_index("domain")["published"]
ends = lengths / depth  # c at which depth c = E[L]: one token more than is accepted
assert np.isclose(cost.block_cost(depth, ends["math"]), 1 + lengths["math"])

# %%
ctx.say(
    "**Does a speed-up need E[L] > 1?** No. A block emits one token more than it gets accepted. At "
    f"depth {depth} (v = 1) drafting pays from {depth}c accepted tokens, "
    f"{depth * article_cost:.2f} at c = {article_cost:g}. By this rule the paper's own lengths pay "
    f"up to c = {ends['math']:.2f} in math and {ends['chat']:.2f} in chat."
)

# %% [markdown]
# ## 6. The authors' public records
# Their code took the probability of padded half-precision rows as it came: some are NaN, and
# Python's `min(1.0, nan)` is 1.0, so a missing number was averaged as a sure acceptance. We ask
# their usable nodes as published. They hold neither the trace nor the target's ranks, so nothing
# exact can be asked.

# %%
if records:
    ctx.table(authors.facts(records), "author-records")
if authors.FINAL not in records:
    ctx.say(
        f"The records of the paper's own run ({authors.FINAL}) are not here: "
        f"`{authors.SOURCE.again}` fetches them, and the table of section 1 then has a column for "
        "the paper's own pair."
    )

# %%
mine = own_form[own_form["pair"] == ctx.profile.name].groupby("asked", sort=False)["verdict"]
for asked, of_way in mine:
    ctx.say(f"* **Facts on `{ctx.profile.name}`, {asked}:** {claims.tally(of_way)}.")

# %%
held, of_form, fell = claims.decided(mine.get_group(claims.AT_0))
facts = counted(held + of_form + fell, "fact")
fail = "fails" if fell == 1 else "fail"
said = f"At T = 0, {fell} of the {facts} that `{ctx.profile.name}` can decide {fail}. "
if facts == counted(0, "fact"):
    said = f"With so few prompts, `{ctx.profile.name}` decides nothing at T = 0. "
if of_form:
    hold = "holds" if of_form == 1 else "hold"
    said += f"Of the others {of_form} {hold} on {OWN} only. "

# %%
ctx.answer(
    f"{said}Example: the paper finds acceptance {100 * float(listed['gap'].number):.1f} points "
    f"higher in chat than in math; we find it {abs(100 * estimate):.0f} points "
    f"{'higher' if estimate > 0 else 'lower'} [{100 * low:.0f}, {100 * high:.0f}]."
)

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. Which verdicts can change where `slopes = [0.0, 0.3]`, and which cannot?
#
# <details><summary>What happens</summary>
# Only what depends on cost: with an expensive verification the ranges of c at which drafting pays
# shrink, and the best gammas fall. No estimate of acceptance depends on c or v.</details>
#
# 2. Run it with `overrides = {"prompts_per_domain": 25}`. Do verdicts turn round, or do they fade?
#
# <details><summary>What happens</summary>
# Intervals widen by about the square root of 2, so that some of *holds* and *does not hold* fade
# into *inconclusive*. A verdict that turned round would have rested on luck.</details>
#
# 3. Write a claim of your own into `data/paper/claims.yaml`, with its region, before you look at
#    any number: which rows, which estimator, which contrast?

# %% [markdown]
# ## What this does not show, what is next
# * Nothing about the paper's pair, unless its records are here or the profile is `paper`. Two small
#   pairs that agree are two pairs, and *domains* are here sets of prompts. A claim of several rows
#   fails with one of them. The regions are ours where the source names no number.
# * At T = 1 each prompt has one text, so the draw of a text counts as its prompt's in `task-first`.
#   The other prompt sets have no recorded trees at T = 1, so `eq3` and `depth` are not tested.
# * Notebooks [03](03_domain_acceptance.ipynb) to [06](06_entropy_paradox.ipynb) go through domains,
#   depth, entropy and chat one by one, [08](08_better_drafts.ipynb) makes the
#   self-draft, [09](09_budgets_and_routing.ipynb) asks for budgets, [10](10_wall_clock.ipynb)
#   measures speed.

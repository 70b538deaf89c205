# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 17. Does acceptance depend on the task, for the methods that people use?
#
# Our own pair is small, and the paper studied one pair. This page reads an **atlas**: what
# verification accepted in public runs of other decoders, from 7B to 70B. Six methods ran on the
# same 480 prompts of Spec-Bench with Vicuna-7B as target. The others ran on MT-Bench's 80 prompts
# or on shop tasks. Numbers come with the kit and texts do not. `data/atlas/README.md` names every
# source, its licence and its traps.
#
# ![Tokens per target pass by method and task](../figures/atlas/17/tasks.png)
#
# *Runs on* any machine, without a network · *minutes* less than one on 2 cores · *reads*
# `data/atlas`, whatever the profile · *writes* `figures/atlas/17/`.

# %% tags=["parameters"]
# a name from notebooks/profiles, or a YAML file; it does not change the runs of the atlas
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
deepest: int = 8  # 3 to 16; the deepest depth that is drawn
permutations: int = 2000  # 200 to 100000; of the prompts between the tasks

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
import pandas as pd

from speclab import stats
from speclab.analysis import atlas, claims, own_pair
from speclab.analysis.concordance import Orders
from speclab.estimates import Estimates, counted, stack
from speclab.show import drawings, notebook
from speclab.studies import atlas as study

RUNS = []
READS = ["data/atlas"]

# %%
ctx = notebook.start("17_atlas", profile, overrides)

# %% [markdown]
# ## 1. What is in the atlas?
# A **run** is one method on one target and one prompt set. Tokens per target pass
# (`block_efficiency`) are the tokens of all answers divided by the passes of the target. The unit
# is the prompt: all turns of a conversation count as one. Intervals are 95 % intervals, from 2,000
# resamples of whole prompts within each task.

# %%
of_runs = study.table_of_runs()
numbers = of_runs.frame[stats.NUMBERS].itertuples(index=False)
cells = of_runs.frame.assign(number=[stats.cell(*row, 2) for row in numbers])
shown = cells[["method", "target", "set", "n_prompts", "number"]]
heads = {"n_prompts": "prompts", "number": "tokens per target pass"}
ctx.table(of_runs, "runs", most=20, cells=shown.rename(columns=heads))

# %% [markdown]
# SpS is a small draft model (Vicuna-68M). EAGLE, Medusa and Hydra train heads on the target. PLD
# copies from the text, and REST copies from a datastore. Lookahead and Token Recycling reuse the
# target's own guesses. Three facts limit what we may compare. Medusa's runs on MT-Bench are not
# lossless, since they accept *typical* tokens at temperatures of 0 to 0.7. The source does not say
# the draft lengths of "SpS with a confidence limit". A tree's K is its depth, and trees differ in
# width.

# %% [markdown] tags=["by-hand"]
# **By hand:** we count the tokens per target pass of EAGLE's first answer.

# %% tags=["by-hand"]
answer = atlas.answers().query("run == 'eagle'").iloc[0]
accepted = answer["accepted"]  # draft tokens that each pass keeps
emitted = accepted + 1  # and one token of the target
by_hand = emitted.sum() / len(accepted)
print(f"{emitted.sum()} tokens in {len(accepted)} target passes: {by_hand:.2f} per target pass")

# %%
rows = atlas.passes_of("eagle").query("prompt_id == @answer.prompt_id.astype('str') and turn == 0")
assert abs(rows["emitted"].sum() - emitted.sum()) <= 1 and len(rows) == len(accepted)

# %% [markdown]
# ## 2. Does acceptance depend on the task?
# Spec-Bench has six tasks of 80 prompts. Its chat is MT-Bench. Each number below is a method's
# tokens per target pass on a task, divided by the mean of its six tasks.

# %%
frames = study.on_spec_bench()
tasks = Orders.of(frames, study.PER_PASS, permutations)
spreads = tasks.spreads()
levels = tasks.draws.table(key="method")
ctx.export(levels, "tokens-per-pass")
relative = study.over_mean(tasks)

# %%
worst = spreads["lowest"].value_counts()
ctx.draw(
    drawings.draw_relative,
    relative,
    "tasks",
    "Tokens per target pass by method (rows) and task (columns), divided by the method's mean over "
    "tasks. Blue is above the mean, red below it. A column of one colour is a task that is easy, "
    "or hard, for every method. Brackets: 95 % intervals.",
    title=f"{worst.index[0].capitalize()} is the worst task for {worst.iloc[0]} of "
    f"{counted(len(spreads), 'method')}",
    rows="method",
    columns="domain",
    label="task (1 = the method's mean over tasks)",
)

# %% [markdown]
# The best and the worst of six tasks always differ, even if the task does not matter. So we compare
# the ratio of best to worst with the ratio *by chance*. For it we deal the 480 prompts to the six
# tasks at random, 2,000 times. Holm's correction covers the six methods.

# %%
shown = spreads.assign(
    ratio=[stats.cell(*row, 2, "x") for row in spreads[stats.NUMBERS].itertuples(index=False)],
    chance=[f"{value:.2f}x" for value in spreads["by_chance"]],
)
columns = ["method", "highest", "lowest", "ratio", "chance", "p_holm"]
ctx.table(
    spreads,
    "spread",
    cells=shown[columns].set_axis(
        ["method", "best task", "worst task", "best over worst", "by chance", "p_holm"], axis=1
    ),
)

# %% [markdown]
# ## 3. Do the methods share one order of the tasks?
# **Kendall's W** measures the agreement of several orders. It is 1 if all are the same. We compare
# it with two kinds of chance. *Unrelated orders* are drawn at random, one per method. *Shared
# prompts only* deals whole prompts to the tasks at random. There the tasks do not matter, but a
# prompt that is easy for one method is easy for others, and so the methods agree as well. The
# second and third rows compare targets on the eight categories of MT-Bench, with ten prompts each.

# %%
targets = Orders.of(study.on_mt_bench(study.TARGETS), study.PER_PASS, permutations)
sizes = Orders.of(study.on_mt_bench(study.SIZES), study.PER_PASS, permutations)
compared = {
    f"{len(frames)} methods on Vicuna-7B, tasks": tasks,
    f"{len(study.TARGETS)} targets, one method each, categories": targets,
    f"Medusa on {len(study.SIZES)} sizes, categories": sizes,
}
agreement = {name: orders.agreement() for name, orders in compared.items()}
orders_table = pd.DataFrame(agreement).T.reset_index(names="compared")
numbers = orders_table[stats.NUMBERS].astype(float).itertuples(index=False)
shown = orders_table.assign(W=[stats.cell(*row, 2) for row in numbers])
for chance in ("unrelated", "shared"):
    shown[chance] = [f"{value:.2f}" for value in shown[chance]]
for chance, p_value in {"unrelated": "p_value", "shared": "p_shared"}.items():
    shown[chance] += [f" ({study.p_in_words(p)})" for p in shown[p_value]]
shown = shown[["compared", "W", "unrelated", "shared"]]
heads = {"unrelated": "unrelated orders", "shared": "shared prompts only"}
ctx.table(orders_table, "orders", cells=shown.rename(columns=heads))

# %%
of_methods, of_targets, of_sizes = agreement.values()
ctx.say(study.chance_in_words(of_methods))

# %%
categories = study.over_mean(targets, "target")
best = targets.spreads()["highest"].value_counts()
ctx.draw(
    drawings.draw_relative,
    categories,
    "categories",
    "Tokens per target pass by run (rows) and MT-Bench category (columns), divided by the run's "
    "mean over categories. Blue is above the mean, red below it. Each cell has ten prompts, so "
    "the intervals (brackets, 95 %) are wide.",
    title=f"{best.index[0].capitalize()} is the best category for {best.iloc[0]} of "
    f"{counted(len(study.TARGETS), 'target')}",
    rows="target",
    columns="domain",
    label="category (1 = the run's mean over categories)",
)

# %% [markdown]
# ## 4. Is a token accepted more often at greater depth?
# We ask how often the token at a depth is accepted if all tokens above it were. Only passes count
# whose draft and answer are long enough. For a tree, the question is whether any drafted token
# continues the accepted path. A pass in which PLD finds nothing to copy counts as rejected at
# depth 1.

# %%
by_depth, changes = study.depth_tables(study.METHODS, deepest)
ctx.export(changes, "depth-change")
ctx.plot(
    by_depth,
    "depth",
    "depth",
    "Acceptance by depth, given that all tokens above were accepted. The text below names the "
    "methods whose line rises or falls. Bands: 95 % intervals.",
    hue="method",
    title=study.depth_title(changes),
    y="accepted tokens (%)",
    x_label="depth (drafted tokens)",
    percent=True,
)
ctx.say(study.rises_in_words(changes))

# %% [markdown]
# Two effects mix, as [notebook 04](04_depth_profile.ipynb) shows. Only drafts at easy positions get
# deep, and this selection raises the line. The drafts of EAGLE, Medusa and Token Recycling are
# trees with fewer candidates at greater depth, which lowers the line.
#
# For comparison, the kit's own pair (SmolLM2-135M): its draft reads the text only, and its trained
# head drafts deeper tokens from its own states, as EAGLE does. Both draft chains on the project's
# prompts, at temperature 0. Target and prompts differ, so only the course of a row compares.

# %%
own = own_pair.traces()
if own:
    of_pair = own_pair.at_depths(own, deepest, "visited").at(domain="pooled")
    heads = {depth: f"depth {depth}" for depth in range(1, deepest + 1)}
    ctx.table(of_pair, "own-pair", cells=of_pair.wide("draft", "depth").rename(columns=heads))
ctx.say(own_pair.left_out(own) or "Notebook 18 compares the two.")

# %% [markdown]
# ## 5. What is easy for one method, is it easy for another?
# We rank the 480 prompts by tokens per target pass under each method and correlate the ranks with
# those of PLD, which only copies. If a small draft's acceptance were unrelated to copying, its
# correlation would be 0. *Within tasks* ranks prompts among the prompts of their task.

# %%
easy = study.easy_for_both(frames, frames)
of_copies = easy.at(other=study.COPYING)
ctx.export(easy, "correlations")
within = of_copies.at(over=study.WITHIN)
top = within.highest("over").row
ctx.plot(
    of_copies,
    "method",
    "copying",
    "Spearman's correlation with PLD over prompts, for each other method. A value of 1 would mean "
    "that a prompt's rank is the same as for copying. Bars: 95 % intervals.",
    hue="over",
    kind="points",
    title=f"{top.method} is most like copying: rank correlation {top.estimate:.2f} within tasks",
    y="rank correlation with PLD",
    x_label="",
    reference=0,
    reference_name="unrelated",
)
everywhere = easy.at(over=study.EVERYWHERE)
shown = everywhere.wide("method", "other")[["method", *frames]]
notebook.show_table(shown.fillna(""))
ctx.say("*Rank correlations of all pairs of methods, over all prompts.*")

# %% [markdown]
# ## 6. Does the size of the target matter?
# Medusa's authors published the same 80 prompts on three sizes of Vicuna. We compare the sizes on
# the same prompts.

# %%
of_sizes_table, steps = study.by_target_size()
ctx.export(steps, "size-steps")
pooled = of_sizes_table.at(domain="pooled")
ctx.plot(
    of_sizes_table.without(domain=["all"]),
    "domain",
    "size",
    "Tokens per target pass of Medusa by category of MT-Bench and size of the target; pooled: over "
    "all 80 prompts. Points of one category are close together. Bars: 95 % intervals.",
    hue="target",
    kind="points",
    title=f"From 7B to 33B, Medusa emits {pooled.span()} tokens per target pass",
    y="tokens per target pass",
    x_label="",
)
ctx.say(study.target_sizes_in_words(steps))

# %% [markdown]
# These runs accept typical tokens, and how many tokens count as typical may differ between targets.
# EAGLE on Llama-2-70B is missing here, because it is another family of models.
#
# ## 7. Do two machines give the same text?
# At temperature 0 a lossless method should give the target's own text. In half precision two nearly
# equal tokens can swap, and from there the texts differ. We count prompts whose first answers are
# the same. The runs of a repository are taken as from one machine; no source says so.

# %%
same = study.same_texts()
pairs = same.without(runs=[study.MEAN, study.DIFFERENCE])
ctx.export(same, "same-texts")
ctx.plot(
    pairs,
    "runs",
    "texts",
    "Share of 480 prompts with the same first answer, for pairs of runs. The text below compares "
    "both kinds of pairs. Bars: 95 % intervals.",
    hue="kind",
    kind="bars",
    title=study.texts_title(same),
    y="prompts with the same text (%)",
    x_label="",
    percent=True,
    apart=False,
)
ctx.say(study.texts_in_words(same))

# %% [markdown]
# ## 8. Which of the paper's claims hold here?
# We test four claims of [notebook 11](11_paper_audit.ipynb) that passes can decide. Chat is
# MT-Bench's writing, roleplay, stem and humanities (40 prompts). Math is Spec-Bench's math and
# MT-Bench's math (90 prompts). Code and reasoning have ten prompts each, which is too few.
# Acceptance is the share of passes that accept at least one token.

# %%
listed = claims.claims()
evidence = {}
for name, run in study.METHODS.items():
    measured = study.evidence_of(run)
    rows = {(claim, claims.AT_0): claims.rows_of(claim, part) for claim, part in measured.items()}
    evidence[name] = claims.in_frame(listed, name, rows)
verdicts = claims.verdict_table(listed, pd.concat(evidence.values(), ignore_index=True))
ctx.export(verdicts[["claim", "pair", "said", "measured", "verdict"]], "claims")
shown = verdicts.pivot(index="said", columns="pair", values="verdict")
shown = shown.loc[verdicts["said"].unique(), list(study.METHODS)]
notebook.show_table(shown.rename_axis(columns=None, index="claim").reset_index())

# %%
gaps = stack({name: rows.query("claim == 'gap'") for name, rows in evidence.items()}, "method")
gaps = Estimates(gaps[["method", *stats.NUMBERS]]).in_units("points")
ctx.say(study.gap_in_words(gaps))

# %%
ctx.record(
    headline=study.headline(spreads),
    kendalls_w=float(of_methods["estimate"]),
)
ctx.answer(study.tasks_in_words(spreads, of_methods))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. Run `atlas.passes_of("medusa-33b")`. Why does it fail?
#
# <details><summary>What happens</summary>
# The source has totals per answer only. So tokens per target pass are exact, and nothing can be
# said by depth.</details>
#
# 2. Run `Orders.of({"PLD": frames["PLD"]}, study.PER_PASS).spreads()`, then give every prompt a
#    random domain. What is the p-value?
#
# <details><summary>What happens</summary>
# With the true tasks it is as small as the number of permutations allows. With random tasks it is
# above 0.05 in 19 of 20 cases.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the task matters for every method, and for copying most. The methods agree on the
#   worst task more than on the rest of the order. A small draft is best where copying is best.
#   Speculative decoding changes a text about as often as another machine does.
# * What this does not show: time (tokens per target pass are no speed-up), sampling, newer targets,
#   and an order of domains beyond these prompts. The methods share their prompts, so their
#   agreement does not show by itself that tasks have an order.
# * Next: [16](16_your_log.ipynb) reads a log of your own decoder in the same way.

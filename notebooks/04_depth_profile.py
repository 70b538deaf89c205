# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 4. Does acceptance rise with depth?

# %% tags=["parameters"]
# the pair and its prompts: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# The kit is around this folder or in the environment, else SPECLAB_REPO is cloned and installed.
import importlib.util, os, subprocess, sys

kit = next((p for p in (".", "..") if os.path.isdir(f"{p}/speclab/cli")), "speclab-kit")
if not os.path.exists(kit) and not importlib.util.find_spec("speclab"):
    subprocess.run(["git", "clone", "--depth=1", os.environ["SPECLAB_REPO"], kit], check=True)
sys.path.insert(0, os.path.abspath(kit))
from speclab.cli import hosted

hosted.prepare()

# %% jupyter={"source_hidden": true}
import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.lab import prompt_sets, published
from speclab.lab.texts import ANSWER, CLOSING, THINKING, Text, segments
from speclab.estimates import Estimates, counted
from speclab.score import ALL
from speclab.show import notebook
from speclab.study import runs

RUNS = ["greedy", "others"]

# %%
ctx = notebook.start("04_depth_profile", profile, overrides)
text = Text.recorded(ctx.profile, "greedy")  # T = 0: always the target's most likely token
depth = ctx.profile.depth  # of the draft tree that was recorded at every position
domains = list(score.domains_in(text.trace))

# %% [markdown]
# The [paper](https://arxiv.org/abs/2604.14682) reports that deep tokens of a draft are accepted a
# little more often than shallow ones. If depth itself helped, long drafts would pay. We ask what a
# decoder meets: of the blocks that get as far as depth $d$, in how many is the token at that depth
# accepted?

# %% [markdown]
# ## 1. How often is each depth accepted?
# A target pass reads a **block** of drafted tokens from left to right and stops at the first token
# that the target would not have written. Depth $d$ is reached only if all tokens before it were
# accepted, so
#
# $$a_d = \frac{\text{blocks whose first } d \text{ tokens are accepted}}
#              {\text{blocks whose first } d-1 \text{ tokens are accepted}} .$$
#
# The record of the target's own texts is called **trace**. `replay` gives the blocks into which a
# greedy decoder divides them, one row per target pass. Its column `survival_d` is 1 where the first
# $d$ tokens were accepted, and `remaining` says how many tokens of the text were left.

# %%
blocks = replay.replay(text.trace, depth)
blocks = blocks[blocks["remaining"] > depth]  # blocks that the end of a text cannot cut short
if depth == 1 or blocks.empty:
    ctx.leave_out("needs a draft tree of two levels or more, and texts longer than it is deep")
survival = [f"survival_{d}" for d in range(1, depth + 1)]
notebook.show_table(blocks[["prompt_id", "start", "remaining", *survival]].head(3), 0)

# %% tags=["by-hand"]
survived = blocks[survival].groupby(blocks["domain"], sort=False).sum()
reached = survived.shift(axis=1)
reached["survival_1"] = blocks["domain"].value_counts()  # every block reaches depth 1
by_hand = survived / reached
print(by_hand.round(2).to_string())


# %%
def acceptance_by_depth(trace):
    """a_d over the blocks that a decoder visits, `a[1]` to the deepest level: row 0 is the
    sample, then resamples of its prompts (section 2); a column per domain.
    """
    sums = replay.prompt_sums(replay.replay(trace, depth), "room")
    return stats.jointly({"a": (sums, score.block_estimators()["accept_by_depth"])})


a = acceptance_by_depth(text.trace)
for d, name in enumerate(survival, 1):
    assert np.allclose(a[f"a[{d}]"].loc[0, by_hand.index], by_hand[name], equal_nan=True)

# %% [markdown]
# ## 2. Is it depth, or where the block is?
# A block gets to depth 3 only if its first two tokens are the target's own. An ordinary draft then
# reads exactly the text that it would read in a new block at that place, so it drafts the same
# token. Depth itself cannot matter. What can differ is **where** blocks are. The deeper
# tokens were computed separately, as nodes of a tree, so this can be checked.

# %% tags=["by-hand"]
PLACE = ["prompt_id", "position"]
starts = blocks.rename(columns={"start": "position"})[PLACE]
chain = text.nodes[text.nodes["best_path"]].merge(starts, on=PLACE).sort_values([*PLACE, "depth"])
chain["accepted"] = (chain["target_rank"] == 0).astype(int)  # the target's best token
so_far = chain.groupby(PLACE)["accepted"].cumprod()
chain["reached"] = so_far.groupby([chain["prompt_id"], chain["position"]]).shift(fill_value=1)

# the first token of a new block at the place of each drafted token
first = text.trace[[*PLACE, "hit"]].rename(columns={"hit": "new_block"})
chain = chain.assign(position=chain["position"] + chain["depth"] - 1).merge(first, on=PLACE)
chain["new_block"] = chain["new_block"].astype(int)
chain = chain[chain["reached"] == 1]
deep = chain[chain["depth"] > 1]
same = (deep["accepted"] == deep["new_block"]).sum()
assert text.by_start or same == len(deep)  # a trained head is different
print(
    f"for {same:,} of {len(deep):,} drafted tokens deeper than 1 the verdict is the one on the "
    "first token of a new block there"
)

# %% [markdown]
# An interval says how much a number would change with other prompts of the same kind: we draw as
# many prompts as there are, with replacement, 2,000 times ([12](12_how_sure.ipynb)).

# %%
LINES = {"accepted": "token at this depth", "new_block": "first token of a new block there"}
both = {
    name: Estimates.stacked(
        {d: stats.by_domain(rows, score.mean_of(column)) for d, rows in chain.groupby("depth")},
        "depth",
    )
    for column, name in LINES.items()
}
ctx.plot(
    Estimates.stacked(both, "line").at(domain=domains),
    x="depth",
    hue="line",
    columns="domain",
    limits=(0, 1),
    y="accepted (%)",
    slug="depth-or-place",
    title="Acceptance by depth, and of a new block at the same places",
    caption="Blocks that a greedy decoder visits. If the lines coincide, the depth of a token "
    "changes nothing. Bands: intervals over prompts.",
)

# %% [markdown]
# Where are blocks, then? Most start right after a rejection, where the text is hard, and those that
# get deep are where it is easy. Here are all positions of the text, by whether the draft's best
# token was right at the position before.

# %% tags=["by-hand"]
trace = text.trace.sort_values(PLACE)
before = trace.groupby("prompt_id")["hit"].shift()
where = before.map({False: "after a miss", True: "after a hit"}).fillna("first token")
streaks = trace.groupby(["domain", where])["hit"].mean().unstack().loc[domains]
print(streaks.round(2).to_string())

# %% [markdown]
# So accepted tokens come in streaks. A longer draft helps inside a streak and nowhere else. A
# trained head is different: it drafts deeper tokens from its own states, and the two lines part
# ([08](08_better_drafts.ipynb)).
#
# ## 3. Does it hold on other prompts?
# The steps from one depth to another on each set of prompts, for the domains in which the set has
# new texts, and for the mean of the domains (`all`) if all are new. Both ends of a step come from
# the same resampled prompts.

# %%
ctx.say(prompt_sets.described(ctx.profile))
sets = prompt_sets.read(ctx.profile, text)
whole = f"1 to {depth}"
ends = {f"{d - 1} to {d}": (d - 1, d) for d in range(2, depth + 1)} | {whole: (1, depth)}
changes = {}
for name, each in sets.items():
    a = acceptance_by_depth(each.trace)
    steps = {step: a[f"a[{high}]"] - a[f"a[{low}]"] for step, (low, high) in ends.items()}
    changes[name] = each.shown(a.table(steps, key="step"), ALL)
changes = Estimates.stacked(changes, "set").in_units("points")
ctx.table(
    changes,
    "steps",
    rows=["set", "step"],
    columns="domain",
    intervals=[ALL],
    most=24,
    caption="Change of acceptance between depths",
)

# %% [markdown]
# ## 4. Do the paper's Tables IV and V measure this?
# No. The paper averages $\min(1, p/q)$ over **all** nodes of a tree, where $p$ is the target's and
# $q$ the draft's probability of a node's token. Its tree has $2 + 4 + 2$ nodes: a budget of 8 nodes
# cuts the third level, so the nodes at each depth are of different kinds. At depth 2 half of them
# hang under the draft's second choice, at depth 3 none. Such a mean can rise or fall with the shape
# of the tree alone. `published` are the paper's numbers, of its own pair. `corrected` is $a_d$ with
# every position as a start instead of the blocks that a decoder visits, so its depth 1 is higher.

# %%
table_4 = published.comparison("IV", text)
ctx.export(
    table_4.dropna(axis=1, how="all"),
    "table-4",
    cells=published.cells_of_table(table_4),
    caption="Acceptance by depth: the paper and this pair",
)
notebook.show_table(published.cells_of_table(table_4).drop(columns="estimator"))

# %% [markdown]
# Table V is the same mean in the first half of the longest possible text (bin 0) and in the second.
# Only long texts reach bin 1.

# %%
half = (ctx.profile.max_new_tokens + 1) // 2
if (text.nodes["position"] >= half).any():
    table_5 = published.comparison("V", text, half=half)
    ctx.export(
        table_5.dropna(axis=1, how="all"),
        "table-5",
        cells=published.cells_of_table(table_5),
        caption="Acceptance by half of the text: the paper and this pair",
    )
    notebook.show_table(published.cells_of_table(table_5).drop(columns="estimator"))
else:
    ctx.say("No text reaches the second half, so there is no table.")

# %% [markdown]
# ## 5. Does acceptance change along an answer?
# Table V compares two halves of 64 tokens or so. Longer texts show more: those of the run `long`,
# cut into eight parts of equal length. Short answers would count in the first parts alone, so only
# the texts that reach the last part count, in all parts. We chose the parts and the steps below
# when we had seen 80 of the 100 texts of `smollm`, up to token 192. So on `smollm` they describe
# and do not test. The texts of `qwen-coder` were recorded later and test them.

# %%
PARTS = 8
found = runs.recorded_run(ctx.profile, "long")
if found:
    along = Text.of(found).trace
    length = along["position"].max() + 1
    along["part"] = along["position"] * PARTS // length
    last_part = along.groupby("prompt_id")["part"].transform("max")
    along = along[last_part == PARTS - 1]  # the same texts in every part
    texts = along["prompt_id"].nunique()
    ctx.say(f"{texts} texts reach the last part. A part has {length // PARTS} tokens.")
    of_part = {part + 1: (rows, score.mean_of("hit")) for part, rows in along.groupby("part")}
    by_part = {part: stats.by_domain(*each) for part, each in of_part.items()}
    ctx.plot(
        Estimates.stacked(by_part, "part").at(domain=domains),
        x="part",
        columns="domain",
        limits=(0, 1),
        y="best token right (%)",
        slug="along-an-answer",
        title="Acceptance along an answer",
        caption="Share of the positions at which the draft's best token is the target's, in each "
        "eighth of long texts. Bands: intervals over prompts.",
    )
else:
    record = f"python -m speclab record --profile {profile} --kind long"
    ctx.say(f"Long texts are not recorded: `{record}` records them.")

# %% [markdown]
# Many answers open in a fixed form. Does acceptance go on falling after the
# first part? Both ends of a step come from the same resampled prompts. A long greedy text may run
# into a loop, which a small draft copies well (GLOSSARY: repeated position). So a rise at the end
# may say nothing about language.

# %%
if found:
    names = {1: "first", 2: "second", PARTS: "last"}
    parts = stats.jointly({name: of_part[part] for part, name in names.items()})
    along_steps = {
        "first to second part": parts["second"] - parts["first"],
        "second to last part": parts["last"] - parts["second"],
    }
    steps = parts.table(along_steps, key="step").in_units("points")
    ctx.export(steps, "along-steps", caption="Change of acceptance along an answer")
    ctx.say(
        f"Change in the mean of the domains: {steps.at(domain=ALL).listed('step')}. "
        "`along-steps.csv` has each domain."
    )

# %% [markdown]
# ## 6. Are thinking and answer accepted alike?
# A reasoning model writes what it thinks, then `</think>`, then an answer. The column `segment`
# divides a text there. Only texts with both parts count, so both numbers have the same prompts.
# They are the long texts, if these are recorded.

# %%
read = found or runs.load_or_record(ctx.profile, "greedy")
tokenizer = runs.tokenizer_of(read)  # None: the target is not on this machine
if tokenizer:
    rows = score.with_hits(read.trace)
    rows["segment"] = segments(rows, tokenizer)
    rows = rows[rows.groupby("prompt_id")["segment"].transform("nunique") == 2]
if not tokenizer:
    ctx.say("Left out: the target's tokenizer is not on this machine.")
elif rows.empty:
    ctx.say(f"Left out: no text here has `{CLOSING}` and an answer after it.")
else:
    parts = {name: rows[rows["segment"] == name] for name in (THINKING, ANSWER)}
    draws = stats.jointly({name: (part, score.mean_of("hit")) for name, part in parts.items()})
    more = {f"{ANSWER} minus {THINKING}": draws[ANSWER] - draws[THINKING]}
    numbers = draws.table(key="segment").in_units("%")
    more = draws.table(more, key="segment").in_units("points")
    ctx.table(
        pd.concat([numbers.frame, more.frame], ignore_index=True),
        "segments",
        cells=pd.concat([each.wide("segment", "domain") for each in (numbers, more)]),
        caption="Share of the positions at which the draft's best token is the target's, while "
        "the target thinks and while it answers, and their paired difference.",
    )

# %%
rise = changes.at(set=prompt_sets.OWN, step=whole, domain=ALL)
size = f"by {counted(round(100 * abs(rise.value)), 'point')} from depth {whole}"
if len(domains) > 1:
    size += " in the mean of the domains"
last = prompt_sets.last(sets)
if last.name != prompt_sets.OWN and {*last.new} == {*domains}:
    there = changes.at(set=last.name, step=whole, domain=ALL).value
    size += f", on {last.in_words} by {100 * there:.0f}".replace("-", "\N{MINUS SIGN}")
# a head drafts deeper tokens from its own states; any other draft reads the text alone
cause = "Depth itself changes nothing."
if text.by_start:
    draws = stats.jointly({name: (deep, score.mean_of(name)) for name in LINES})
    loss = draws["accepted"].loc[0, ALL] - draws["new_block"].loc[0, ALL]
    more = "raises" if loss > 0 else "lowers"
    cause = f"Depth itself {more} acceptance by {counted(round(100 * abs(loss)), 'point')}."
elif rise.verdict() == stats.ABOVE:
    cause = "Depth is not the cause: blocks get deep where the text is easy."
ANSWERS = {
    stats.ABOVE: f"Yes, {size}.",
    stats.BELOW: f"No, it falls {size}.",
    stats.INCONCLUSIVE: "No clear change was found.",
    stats.UNDEFINED: "It cannot be said on these prompts.",
}
ctx.answer(f"{ANSWERS[rise.verdict()]} {cause}")

# %% [markdown]
# ## Try it
# Nodes whose parent is on the best path (or the root) have a mean of 0.6 at every depth, all other
# nodes 0.4. What is the mean over all nodes at depths 1, 2 and 3 of the tree $2 + 4 + 2$, and of
# $2 + 4 + 8$?
#
# <details><summary>Answer</summary>
# 0.6, 0.5, 0.6 in the first tree: it falls and rises, although nothing depends on depth. In the
# second the other branches have 0, 1/2 and 3/4 of the nodes, which gives 0.6, 0.5, 0.45. Both
# patterns come from the shape of the tree alone.</details>
#
# ## What this does not show
# Drafts that read less at greater depth (heads, block drafts), sampled children, trees of other
# shapes, greater depths than the recorded tree's, and longer texts. The paper's own rise stays
# unexplained: its tables do not separate the kinds of nodes. This is one question of several:
# [12](12_how_sure.ipynb) corrects for their number. Next:
# [05](05_entropy_correlation.ipynb), what uncertainty has to do with it.

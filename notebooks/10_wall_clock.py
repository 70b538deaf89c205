# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10. Does acceptance become time?

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# prompts that are timed, of each prompt set; the other prompts measure the loop's own time
prompts_per_domain_timed: int = 1  # 1 to 1000; more if they are fewer than five in all
new_tokens: int = 64  # 2 to 65536; at most, of each timed text
repeats: int = 1  # 1 to 100; how often each text is timed with each method, in swapped orders
gammas: list = [4]  # 1 to 64; the chains that are timed
copying_gamma: int = 4  # 1 to 64; the chain that is drafted where nothing can be copied
budget: int = 8  # 1 to 64; nodes of the timed tree, and of the largest tree in a batch
max_gamma: int = 8  # 1 to 64; the longest chain in a batch
# shapes that other prompts are decoded with, to measure the loop's own time
probes: list = ["chain:1", "chain:3", "tree:2,2,3", "tree:3,2,8"]  # any
probe_prompts: int = 1  # 1 to 1000; per domain, and at least four in all
timing: str = ""  # any; new: measure once more, though nothing has changed
pass_repeats: int = 7  # 3 to 1000; how often each pass is timed, in each of two rounds
pass_tries: int = 3  # 1 to 100; at most so often a round follows while timing is unreliable
folds: int = 5  # 2 to 100; each part of the prompts judges a rule that the others chose
batches: list = [1, 2, 4, 8, 16, 32, 64]  # 1 to 1024; requests whose blocks are made together
# an assumed accelerator: a pass over up to `knee` tokens takes as long as over one; its c
knee: int = 64  # 1 to 100000
assumed_c: float = 0.1  # 0.0001 to 10

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
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from speclab import cost, replay, score, stats
from speclab.study import prompts, runs, timing_runs
from speclab.lab import choose, combined, prompt_sets, stopping
from speclab.cost import Costs
from speclab.estimates import Estimates, stack
from speclab.models import head, pairs
from speclab.models import timing as stopwatch
from speclab.models.folder import ModelFolder
from speclab.study.profiles import with_head
from speclab.score import ALL, POOLED
from speclab.shapes import parse_shape
from speclab.show import notebook
from speclab.tree import chain

RUNS = ["greedy", "chain", "others-but-unwrapped"]

# %% tags=["timed"]
ctx = notebook.start("10_wall_clock", profile, overrides)
settings = ctx.profile.replace(temperature=0.0)
pair = pairs.load_pair(settings)

# %% [markdown]
# A draft that is often right gives many tokens per target pass, and may slow decoding all the same.
# Here we measure what passes cost on this machine, decode for real, and compare. All times hold for
# this machine and this hour.
#
# We decode at T = 0, where the target always writes its most probable token. The timed prompts are
# evenly spaced within each domain, without prompts that had a say in the draft's training.

# %%
greedy = runs.load_or_record(settings, "greedy")
new_tokens = min(new_tokens, settings.max_new_tokens)
sources = {prompt_sets.OWN: "greedy"}  # the kind of run of each set
for source in ctx.profile.others:
    if source != "unwrapped":  # many of its texts are those of the own prompts
        sources[prompt_sets.set_name(source)] = runs.kind_of_set(source)

# %%
asked, recorded = {}, {}  # by set: prompts; positions of their texts, and (prompt, text) by id
for name, kind in sources.items():
    run = runs.load_or_record(settings, kind)
    texts = {f"{name}/{i}": text for i, text in runs.texts_of(run).items()}
    whole = runs.encoded_prompts(runs.of_kind(settings, kind))
    whole = [replace(prompt, prompt_id=f"{name}/{prompt.prompt_id}") for prompt in whole]
    shared = [prompt for prompt in whole if prompt.domain in set(greedy.trace["domain"])]
    rows = run.trace.assign(prompt_id=f"{name}/" + run.trace["prompt_id"])
    if shared:
        asked[name] = shared
        there = {prompt.prompt_id: (prompt.ids, texts[prompt.prompt_id]) for prompt in shared}
        recorded[name] = rows[rows["prompt_id"].isin(there)], there
trace, tokens = recorded[prompt_sets.OWN]

# %%
first = settings.notes.decoded_from
least = -(-stats.MIN_PROMPTS // len(asked))  # five in all, or there is no interval
timed = []
for of_set in asked.values():
    timed += prompts.decoded_prompts(of_set, prompts_per_domain_timed, first, least)
ids = [prompt.prompt_id for prompt in timed]
own = asked[prompt_sets.OWN]
untimed = [prompt for prompt in own if prompt.prompt_id not in ids] or own
probed = prompts.decoded_prompts(untimed, probe_prompts, first, least=4)
ctx.say(notebook.made_with(greedy.manifest["pair"], pair.facts))

# %% [markdown]
# ## 1. What does a pass cost?
# The unit is a forward pass of the target over one token, which plain decoding makes for each
# token. A block of speculative decoding costs
#
# $$\gamma c + v(\gamma + 1) + o$$
#
# of them. $c$ is a draft pass over one token, and the draft makes $\gamma$ of them. $v(n)$ is a
# target pass over $n$ tokens. The textbook assumes $v = 1$: that holds while a pass waits for the
# weights to come from memory, and fails when it waits for arithmetic. $o$ is what a decoded block
# takes beyond its passes: choosing, comparing, and cutting the caches back.
#
# We time the passes in two rounds, each repeat in a new random order, and decode a few other
# prompts between them, for $o$. Timing is **unreliable** if the cost of a block differs by more
# than 15 % between the rounds, if decoded blocks take less than their passes alone by more than
# 0.15 target passes, or if a pass over several tokens seems over 3 % faster than over one.
# Then another round follows. This rule looks at the timing only, never at what it leads to.

# %% tags=["timed"]
context = int(np.median([len(prompt.ids) for prompt in timed])) + new_tokens // 2
probe_shapes = {name: parse_shape(name) for name in probes}
clock = stopwatch.measured(
    pair, probed, probe_shapes, new_tokens, stopwatch.SIZES, context, pass_repeats, pass_tries
)

# %%
costs = clock.costs
refused, stamp = cost.disturbed(costs), cost.stamp(costs)
# other notebooks read this timing run, unless the kit ships some of this pair
formats = notebook.formats(pair.facts)
timing_runs.write(greedy.manifest["weights"], formats, torch.get_num_threads(), clock.by_round)
ctx.say(
    f"A target pass over one token takes {costs.target_ms:.1f} ms with {context} tokens in the "
    f"cache. A draft pass takes c = {costs.c():.3f} of it. {cost.loop_in_words(costs)} {refused}"
)

# %%
quartiles = stopwatch.quartiles(clock.times)
passes = pd.DataFrame({"n": costs.sizes, "c(n)": costs.draft, "v(n)": costs.verify})
for model, rows in quartiles.groupby("model"):
    passes[[f"{model}_{name}" for name in ("ms", "low", "high")]] = rows.iloc[:, 2:].to_numpy()
ctx.export(passes, "pass-times")
by_pass = quartiles.rename(columns={"model": "pass", "ms": "estimate"})
by_pass[stats.NUMBERS] /= costs.target_ms
ctx.plot(
    by_pass,
    x="n",
    hue="pass",
    log=True,
    y="time, in target passes over one token",
    x_label="tokens in one pass, n",
    slug="passes",
    title="Time of a pass by the number of its tokens",
    stamp=stamp,
    reference=1,
    reference_name="v = 1",
    caption="On the line, one pass takes the same time for every n. Where a curve rises in "
    "proportion to n, more tokens in a pass gain nothing. Bands: quartiles of both rounds.",
)

# %% [markdown]
# The pair may have other drafters. A trained head has one layer, but a wide one. Copying from the
# text so far (lookup) makes no draft pass.

# %% tags=["timed"]
drafter_costs = {"the pair's draft": costs}
of_head = with_head(settings)
folder = ModelFolder.whole(of_head.draft) if of_head else None
if folder and not head.unreadable(folder):
    with_its_head = pairs.load_pair(of_head)
    times = stopwatch.pass_times(with_its_head, stopwatch.SIZES, context, pass_repeats)
    drafter_costs["the trained head"] = stopwatch.costs_of(times)
drafter_costs["lookup"] = replace(costs, draft=(0.0,) * len(costs.sizes))

# %%
table = [(name, each.c(), each.c(4), each.c(16)) for name, each in drafter_costs.items()]
table = pd.DataFrame(table, columns=["drafter", "c", "c(4)", "c(16)"])
ctx.table(
    table,
    "drafters",
    digits=3,
    caption="A draft pass over 1, 4 and 16 tokens, in target passes over one token.",
)

# %% [markdown]
# ## 2. What does decoding gain?
# We decode the same prompts plainly and with several shapes, in swapped orders. Each text is timed
# from the same prefill to its last token. All texts are the target's own, so the ratio of times is
# the speed-up. The shapes are chains, a static tree of up to `budget` nodes (three levels, two
# guesses each), and a chain that gives way to a copy where two or more of the last tokens occurred
# before.

# %% tags=["timed"]
names = [f"chain:{gamma}" for gamma in gammas]
copying = f"chain:{copying_gamma}+lookup:2"
names += [f"tree:3,2,{budget}", copying]
shapes = {name: parse_shape(name) for name in names}
speeds = stopwatch.decoded_speed(pair, timed, shapes, new_tokens, repeats)

# %% [markdown]
# Is every text the target's own? And did each prompt take as many blocks as its replay?


# %%
def replayed_on(trace, tokens):
    """Tokens, blocks and their cost by method and prompt, without a model. tokens: of each prompt
    and its text, in which the copies are looked up.
    """
    near = combined.with_copies(combined.starts_of_trace(trace, "draft"), tokens)
    of_copies = combined.settings_cost(near, copying_gamma, costs).table.loc[copying]
    parts = {copying: of_copies.reset_index().rename(columns={"target_passes": "blocks"})}
    for name in names[:-1]:
        sums = replay.prompt_sums(replay.replay(trace, shapes[name].tree))
        parts[name] = sums.assign(cost=sums["blocks"] * costs.of_block(shapes[name].tree))
    columns = ["method", "prompt_id", "domain", "emitted", "blocks", "cost"]
    return stack({name: parts[name] for name in names}, "method")[columns]


# %%
rows = pd.concat([positions for positions, _ in recorded.values()], ignore_index=True)
short = rows[rows["prompt_id"].isin(ids) & (rows["position"] < new_tokens)]
pairs_of = {i: both for _, of_set in recorded.values() for i, both in of_set.items() if i in ids}
cut = {i: (prompt, text[:new_tokens]) for i, (prompt, text) in pairs_of.items()}
replayed = replayed_on(short, cut)
differ = stopwatch.differs(speeds, {i: text for i, (_, text) in cut.items()}, new_tokens).sum()
each_text = stopwatch.medians(speeds)
both = each_text.merge(replayed, on=["method", "prompt_id"], suffixes=("", "_replayed"))
unlike = int((both["blocks"] != both["blocks_replayed"]).sum())

# %%
ctx.say(
    f"{differ} texts differ from the target's own, and {unlike} of {len(both)} counts of blocks "
    "from the replay. (On a GPU or in half precision a near tie may be decided differently.)"
)
assert not pair.is_exact or differ == unlike == 0, "same text, same counts"

# %% [markdown]
# ## 3. Does the measured speed-up match the prediction?
# First by hand, for the first chain: tokens per target pass divided by the cost of a block.

# %% tags=["by-hand"]
gamma = gammas[0]
of_chain = each_text[each_text["method"] == f"chain:{gamma}"]
tokens_per_pass = of_chain["tokens"].sum() / of_chain["blocks"].sum()
cost_of_block = gamma * costs.c() + costs.v(gamma + 1) + costs.overhead
predicted_by_hand = tokens_per_pass / cost_of_block
measured_by_hand = of_chain["plain_s"].sum() / of_chain["time_s"].sum()
ctx.say(
    f"A chain of {gamma} gives {tokens_per_pass:.2f} tokens per target pass, and its block costs "
    f"{cost_of_block:.2f}. We predict {predicted_by_hand:.2f}x and measured "
    f"{measured_by_hand:.2f}x."
)

# %% [markdown]
# Now all shapes. Intervals resample the timed prompts of all domains and sets together, because one
# domain has too few, and the repeats.


# %%
def drawn(frame, key, over, under):
    """The ratio of the sums of two columns, a column per value of `key`: row 0 the sample, then
    resamples of its prompts.
    """
    ratio = score.ratio_of(over, under)
    groups = frame.drop(columns="domain").groupby(key, sort=False)
    draws = stats.jointly({name: (rows, ratio) for name, rows in groups})
    return pd.DataFrame({name: each[POOLED] for name, each in draws.values.items()})


def rates_of(speeds):
    """Tokens per target pass, and the speed-up over plain decoding, a column per method."""
    tau = drawn(stopwatch.medians(speeds), "method", "tokens", "blocks")
    seconds = stopwatch.drawn_seconds(speeds)[tau.columns]
    return {"tokens per target pass": tau, "speed-up": 1 / seconds.div(seconds["plain"], axis=0)}


# %%
of_method = replayed.groupby("method", sort=False)[["emitted", "blocks", "cost"]].sum()
block = (of_method["cost"] / of_method["blocks"]).to_dict()
rates = rates_of(speeds)
tau, speed = rates.values()
gain = stopwatch.intervals(speed, "method", len(timed)).in_units("x")
measured = gain.frame.rename(columns={"estimate": "speedup"})
measured.insert(1, "block_efficiency", tau.iloc[0].to_numpy())
price = measured["method"].map(block).fillna(1.0)
measured["predicted"] = measured["block_efficiency"] / price
measured["share_of_predicted"] = measured["speedup"] / measured["predicted"]
ctx.table(
    measured,
    "measured",
    digits=2,
    caption="Timed prompts: speed-up with its interval, tokens per target pass "
    "(`block_efficiency`), the predicted speed-up, and the measured one as a share of it.",
)
by_method = measured.set_index("method").loc[f"chain:{gamma}"]
assert np.isclose(predicted_by_hand, by_method["predicted"])
assert np.isclose(measured_by_hand, by_method["speedup"])

# %%
bars = {
    quantity: stopwatch.intervals(draws[names], "method", len(timed)).frame
    for quantity, draws in rates.items()
}
ctx.plot(
    Estimates(stack(bars, "quantity")),
    x="method",
    hue="quantity",
    kind="bars",
    y="",
    x_label="",
    reference=1,
    reference_name="plain decoding",
    share_y=False,
    slug="speed",
    title="Tokens per target pass and speed-up of each shape",
    stamp=stamp,
    caption="Measured on a few prompts of each set. Many tokens per target pass are not always a "
    "high speed-up. Bars: intervals over the timed prompts.",
)

# %% [markdown]
# ## 4. What do all recorded prompts gain?
# Few prompts are timed, and the shape that is fastest on them is partly the luck of the draw. So
# they only say which **share of the prediction** is reached, as the mean of the shapes. The
# prediction comes from all recorded prompts of a set. Their product is the estimate. Its interval
# has the timed prompts; this hour and this machine are not in it.

# %%
predicted = tau[names] / pd.Series(block)[names]
share = (speed[names] / predicted).mean(axis=1)  # row 0: the sample; then resamples
everywhere = {}
for name, of_set in recorded.items():
    sums = replayed_on(*of_set).groupby("method", sort=False)[["emitted", "blocks", "cost"]].sum()
    everywhere[name] = sums
everywhere = stack({name: each.reset_index() for name, each in everywhere.items()}, "set")
everywhere["tokens per target pass"] = everywhere["emitted"] / everywhere["blocks"]
everywhere["predicted"] = everywhere["emitted"] / everywhere["cost"]

# %%
ends = stopwatch.intervals(share.to_frame("share"), "of", len(timed)).row
for column, factor in (("estimate", ends.estimate), ("low", ends.low), ("high", ends.high)):
    everywhere[column] = everywhere["predicted"] * factor
shown = ["set", "method", "tokens per target pass", "predicted", "estimate", "low", "high"]
ctx.table(
    everywhere[shown],
    "all-prompts",
    digits=2,
    caption="All recorded prompts: tokens per target pass and predicted speed-up from the replay, "
    "and the speed-up with the share of the prediction that the timed prompts reach.",
)

# %% [markdown]
# ## 5. What limits speed here?
# We make one cost at a time ideal and keep the others as measured, then all three, for chains on
# all prompts (replayed). *Draft always right* has the measured costs, and every block emits
# gamma + 1 tokens. The gamma stays today's best, or is chosen again. Intervals resample
# prompts and hold the costs fixed.

# %%
AS_MEASURED, ALL_THREE, RIGHT = "as measured", "all three", "draft always right"
free = {"draft": (0.0,) * len(costs.sizes)}
flat = {"verify": tuple(np.minimum(costs.verify, 1.0).tolist())}
lean = {"overhead": 0.0}
IDEAL = {
    AS_MEASURED: costs,
    "free draft (c = 0)": replace(costs, **free),
    "free verification (v = 1)": replace(costs, **flat),
    "lean loop (o = 0)": replace(costs, **lean),
    ALL_THREE: replace(costs, **free, **flat, **lean),
}

# %%
by_gamma = drawn(replay.chain_sums(trace, range(1, 17)), "gamma", "emitted", "blocks")
taus = stopwatch.intervals(by_gamma, "gamma", len(own)).frame.set_index("gamma")
price = {name: [used.of_block(chain(g)) for g in taus.index] for name, used in IDEAL.items()}
grid = pd.DataFrame(price, taus.index).rdiv(taus["estimate"], axis=0)  # speed-ups
grid[RIGHT] = (taus.index + 1) / price[AS_MEASURED]
best = taus.index[choose.fastest(grid.T)]
now = best[0]
limits = pd.DataFrame({"same gamma": grid.loc[now], "own best": grid.max(), "gamma": best})
for bound in ("low", "high"):
    ratio = taus.loc[now, bound] / taus.loc[now, "estimate"]
    limits[bound] = (limits["same gamma"] * ratio).drop(RIGHT)
limits = limits.rename_axis("made ideal").reset_index()

# %%
ctx.table(
    limits,
    "limits",
    digits=2,
    caption="Predicted speed-up of chains: at the gamma that is best as measured (with low and "
    "high), and at the gamma that is best with the ideal cost.",
)

# %% [markdown]
# ## 6. Should the draft stop early, or copy?
# The run `chain` holds the draft's own chain at every position of the target's text. So a **stop
# rule** is replayed exactly: draft up to a limit, but stop before a token whose probability under
# the draft is below a threshold. The pass that found this token is paid for. And a decoder may
# **copy** where the last tokens occurred before, and draft elsewhere. The best fixed gamma, limit,
# threshold, and how many tokens must match are fitted on other prompts of the domain than those
# that judge them. The chain of *draft alone* and *both* is not fitted: it has `copying_gamma`
# tokens. The first two rows also pay for tokens drafted past the end of a text, which a decoder
# cannot foresee. The other three do not.

# %%
chained = runs.load_or_record(settings, "chain")
starts = stopping.chains(chained.nodes, settings.max_new_tokens, pair.draft.by_start)
SHOWN = stopping.FIXED, "confidence"
fits = {method: stopping.fit_rule(starts, costs, method, folds) for method in SHOWN}
stopped = choose.speeds(fits).table(key="method").without(domain=[ALL, POOLED])

# %%
at_starts = combined.with_copies(combined.starts_of_trace(trace, "draft"), tokens)
quantities = {
    "tokens per target pass": combined.ways(at_starts, copying_gamma, folds=folds),
    "speed-up, predicted": combined.ways(at_starts, copying_gamma, costs, folds),
}
copies = {name: choose.speeds(choices) for name, choices in quantities.items()}
copies = {name: each.table(key="proposer") for name, each in copies.items()}
copies = Estimates.stacked(copies, "quantity").without(domain=POOLED)
ctx.export(copies, "copies")

# %%
of_ways = copies.at(quantity="speed-up, predicted").without(domain=ALL).frame
of_ways = of_ways.drop(columns="quantity").rename(columns={"proposer": "method"})
rows = pd.concat([stopped.frame, of_ways], ignore_index=True)
ctx.table(
    Estimates(rows).in_units("x"),
    "ways",
    rows="method",
    columns="domain",
    caption="Predicted speed-up over plain decoding, on all prompts. *confidence*: the stop rule. "
    f"*draft alone*: a chain of {copying_gamma}. *both*: copies, else this chain.",
)

# %% [markdown]
# ## 7. At which batch size should a server stop drafting?
# With $b$ requests in one pass, a block verifies $b\,(\gamma + 1)$ tokens at once, and plain
# decoding already fills the machine with $b$ tokens. We simulate batches that are always full.
# Their cost comes from $c(n)$ and $v(n)$. Beyond the largest measured pass they go on in a straight
# line. We also show an **assumed** accelerator, whose pass takes no longer until it holds `knee`
# tokens. The best setting is chosen on the prompts that judge it, which flatters it a bit.


# %%
def extended(costs, largest):
    """Costs of passes up to `largest` tokens: beyond the last size the last slope goes on."""
    last = costs.sizes[-1]
    if largest <= last:
        return costs
    half = max(n for n in costs.sizes if n <= last / 2)
    beyond = (largest - last) / (last - half)
    ends = {}
    for name, ratio in (("draft", costs.c), ("verify", costs.v)):
        rise = max(ratio(last) - ratio(half), 0.0)  # noise makes no pass cheaper
        ends[name] = (*getattr(costs, name), ratio(last) + rise * beyond)
    return replace(costs, sizes=(*costs.sizes, int(largest)), **ends)


def batched(costs, batch, nodes):
    """The costs for one request of a full batch, in its share of a plain pass of the batch."""
    sizes = np.arange(1, nodes + 1)
    wide = extended(costs, batch * nodes)
    one = wide.v(batch)
    ratios = [tuple((ratio(sizes * batch) / one).tolist()) for ratio in (wide.c, wide.v)]
    loops = costs.loop(True) / one, costs.loop(False) / one  # once per batch
    return Costs(costs.target_ms * one / batch, tuple(sizes.tolist()), *ratios, *loops)


# %%
drafting = choose.settings_up_to(max_gamma, budget)
del drafting[choose.PLAIN_SETTING]
counted = choose.block_counts(trace, drafting, max_new_tokens=settings.max_new_tokens)
most = 1 + max(each.size for each in drafting.values())
c = assumed_c
assumed = Costs(1.0, (1, knee, 16 * knee), (c, c, 16 * c), (1.0, 1.0, 16.0))
machines = {"measured costs": costs, f"assumed, v(n) = max(1, n / {knee})": assumed}
parts = {}
for machine, known in machines.items():
    for batch in batches:
        by_prompt = choose.prompt_costs(counted, drafting, batched(known, batch, most))
        parts[machine, batch] = choose.fastest_rows(choose.best_setting(by_prompt, 500))
crowd = stack(parts, ["machine", "batch"]).rename(columns={"speedup": "estimate"})
crowd = Estimates(crowd[["machine", "batch", "domain", *stats.NUMBERS, "setting"]])

# %%
ctx.plot(
    crowd.without(domain=POOLED),
    x="batch",
    columns="machine",
    kind="points",
    y="speed-up of the best drafting setting",
    x_label="requests per batch",
    reference=1,
    reference_name="plain decoding",
    slug="batches",
    title="Speed-up of drafting by batch size",
    stamp=stamp,
    caption="Below the line drafting slows the server. Bars: intervals over prompts.",
)

# %% [markdown]
# ### What does a benchmark with made-up acceptance miss?
# Server benchmarks often run no draft and make up acceptance with a given mean. With a **fixed
# schedule** (vLLM's `synthetic_acceptance_length`) a mean of 2.7 accepted tokens is two always and
# a third with probability 0.7. Throughput is right by design. But a real pass accepts nothing here
# and many tokens there, so requests take less equal times than the benchmark shows.

# %%
walked = replay.replay(trace, copying_gamma)
room = walked[walked["remaining"] > copying_gamma]  # the end of a text cuts none of these blocks
accepted = room.groupby("domain", sort=False)["accepted"].agg(["mean", "var"])
third = accepted["mean"] % 1  # how often the schedule accepts one more token
accepted["of the schedule"] = third * (1 - third)
accepted["ratio"] = accepted["var"] / accepted["of the schedule"]
ctx.table(
    accepted.reset_index(),
    "synthetic",
    digits=2,
    caption=f"Accepted tokens per pass with a chain of {copying_gamma}: mean, variance, variance "
    "of the fixed schedule with the same mean, and how often the first is the second.",
)

# %%
same = limits.set_index("made ideal")["same gamma"]
# at the gamma that is best today: would three ideal costs gain more than a draft always right?
costs_first = same[ALL_THREE] >= same[RIGHT]
words = "Costs limit it more than acceptance." if costs_first else "Acceptance limits it most."
# the shape is chosen by the replay of all own prompts, not by the clock
best_shape = everywhere[everywhere["set"] == prompt_sets.OWN].nlargest(1, "predicted").iloc[0]
answer = (
    f"With `{best_shape['method']}` a target pass gives {best_shape['tokens per target pass']:.1f} "
    "tokens instead of one. On this machine, in this hour, decoding is "
    f"{best_shape['estimate']:.1f} times as fast as without a draft. {words}"
)
if refused:
    answer = (
        f"With `{best_shape['method']}` a target pass gives "
        f"{best_shape['tokens per target pass']:.1f} tokens instead of one. Timing was unreliable, "
        "so there is no number on speed."
    )
ctx.record(c=costs.c(), overhead=costs.overhead, tree_overhead=costs.loop(False), drift=costs.drift)
ctx.answer(answer)

# %% [markdown]
# ## Try it
# With c = 0.1, v(5) = 1.3, o = 0.2, a chain of 4 gives 2.6 tokens per target pass. What is the
# speed-up? What would it be if the draft cost nothing?
#
# <details><summary>Answer</summary>
# A block costs 4 × 0.1 + 1.3 + 0.2 = 1.9 target passes: 2.6 / 1.9 = 1.37. With c = 0 it costs 1.5:
# 1.73. The textbook, which knows only c, predicts 2.6 / 1.4 = 1.86.</details>
#
# ## What this does not show
# Other machines, other pairs (a larger target makes o small, and on a GPU v(n) stays near 1 for
# longer), long contexts, memory, and energy. Batches are a model: no prefill, no queue, and a
# packed pass over one text stands for a pass over several. Intervals cover the choice of prompts
# and the noise of minutes; another hour may differ by more.

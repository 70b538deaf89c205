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
from itertools import product

import numpy as np
import pandas as pd
import torch

from speclab import cost, replay, score, stats
from speclab.study import prompts, runs, timing_runs
from speclab.study.pairs import load_pair
from speclab.lab import choose, combined, prompt_sets, stopping
from speclab.cost import Costs
from speclab.estimates import Estimates, counted, stack
from speclab.models import head
from speclab.models import timing as stopwatch
from speclab.models.folder import ModelFolder
from speclab.study.profiles import with_head
from speclab.score import ALL, POOLED
from speclab.shapes import parse_shape
from speclab.show import notebook

RUNS = ["greedy", "chain", "others-but-unwrapped"]

# %% tags=["timed"]
ctx = notebook.start("10_wall_clock", profile, overrides)
settings = ctx.profile.replace(temperature=0.0)
pair = load_pair(settings)

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
domains = set(greedy.trace["domain"])
asked, recorded = {}, {}  # by set: prompts, and the positions of their texts
tokens = {}  # of each prompt and its text
for name, kind in sources.items():
    run = runs.load_or_record(settings, kind)
    whole = runs.encoded_prompts(runs.of_kind(settings, kind))
    if shared := [prompt for prompt in whole if prompt.domain in domains]:
        texts = runs.texts_of(run)
        tokens |= {f"{name}/{p.prompt_id}": (p.ids, texts[p.prompt_id]) for p in shared}
        asked[name] = [replace(p, prompt_id=f"{name}/{p.prompt_id}") for p in shared]
        rows = run.trace[run.trace["domain"].isin(domains)]
        recorded[name] = rows.assign(prompt_id=f"{name}/" + rows["prompt_id"])
trace = recorded[prompt_sets.OWN]

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
was, formats = notebook.formats(greedy.manifest["pair"]), notebook.formats(pair.facts)
said = f"The texts were recorded with numbers in {was}. This notebook decodes in {formats}."
if was != formats:
    said += " Its texts may differ where two tokens are nearly equally likely."
ctx.say(said)

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
# takes beyond its passes.
#
# We time the passes in two rounds, each repeat in a new random order, and decode a few other
# prompts between them, for $o$. Timing is **unreliable** if the cost of a block differs by more
# than 15 % between the rounds, if decoded blocks take less than their passes alone by more than
# 0.15 target passes, or if a pass over several tokens seems over 3 % faster than over one.
# Then another round follows.

# %% tags=["timed"]
context = int(np.median([len(prompt.ids) for prompt in timed])) + new_tokens // 2
probe_shapes = {name: parse_shape(name) for name in probes}
clock = stopwatch.measured(
    pair, probed, probe_shapes, new_tokens, stopwatch.SIZES, context, pass_repeats, pass_tries
)

# %%
costs = clock.costs
refused, stamp = cost.disturbed(costs), cost.stamp(costs)
weights = greedy.manifest["weights"]
earlier, _ = timing_runs.timing_runs(weights)
is_alike = (earlier["machine"] == timing_runs.this_machine()) & (earlier["device"] == formats)
earlier = earlier[is_alike].groupby("when")
of_runs = [costs, *(timing_runs.mean_costs(rows) for _, rows in earlier)]
# other notebooks read a reliable timing run, unless the kit ships some of this pair
if not refused:
    timing_runs.write(weights, formats, torch.get_num_threads(), clock.by_round)
ctx.say(
    f"A target pass over one token takes {costs.target_ms:.1f} ms with {context} tokens in the "
    f"cache. A draft pass takes c = {costs.c():.3f} of it and the loop around them o = "
    f"{costs.overhead:.2f} per chain. {refused}"
)

# %% [markdown]
# The pair may have a trained head:

# %% tags=["timed"]
times = [clock.times]
of_head = with_head(settings)
folder = ModelFolder.whole(of_head.draft) if of_head else None
if folder and not head.unreadable(folder):
    its = stopwatch.pass_times(load_pair(of_head), stopwatch.SIZES, context, pass_repeats)
    its["ms"] *= costs.target_ms / stopwatch.costs_of(its).target_ms  # of another minute
    times.append(its[its["model"] == "draft"].assign(model="trained head"))

# %%
by_case = pd.concat(times).groupby(["model", "n"])["ms"]
by_pass = by_case.quantile([0.5, 0.25, 0.75]).unstack()
by_pass = by_pass.set_axis(stats.NUMBERS, axis=1).reset_index(names=["pass", "n"])
by_pass[stats.NUMBERS] /= costs.target_ms
ctx.plot(
    by_pass,
    x="n",
    hue="pass",
    kind="log",
    y="time, in target passes",
    slug="passes",
    title="Time of a pass by the number of its tokens",
    stamp=stamp,
    reference={"v = 1": 1},
    caption="On the line, one pass takes the same time for every n. Where a curve rises in "
    "proportion to n, more tokens in a pass gain nothing. Bands: quartiles.",
)

# %% [markdown]
# ## 2. What does decoding gain?
# We decode the same prompts plainly and with several shapes, in swapped orders. All texts are the
# target's own, so the ratio of times is the speed-up. The shapes are chains, a static tree of up to
# `budget` nodes (three levels, two guesses each), and a chain that gives way to a copy where two or
# more of the last tokens occurred before.

# %% tags=["timed"]
names = [f"chain:{gamma}" for gamma in gammas]
copying = f"chain:{copying_gamma}+lookup:2"
names += [f"tree:3,2,{budget}", copying]
shapes = {name: parse_shape(name) for name in names}
speeds = stopwatch.decoded_speed(pair, timed, shapes, new_tokens, repeats)

# %% [markdown]
# Is every text the target's own, with as many blocks as in its replay?


# %%
SUMS = ["emitted", "blocks", "cost"]


def replayed_on(trace, tokens, of_runs):
    """SUMS by timing run, method and prompt, without a model. tokens: of each prompt and its text,
    in which the copies are looked up.
    """
    near = combined.add_copies(combined.starts_of_trace(trace, "draft"), tokens)
    copies = combined.planned(near, copying_gamma, least=2)
    trees = {name: shapes[name].tree for name in names[:-1]}
    counts = {name: replay.prompt_sums(replay.replay(trace, tree)) for name, tree in trees.items()}
    parts = {}
    for run, known in enumerate(of_runs):
        for name, sums in counts.items():
            parts[run, name] = sums.assign(cost=sums["blocks"] * known.of_block(trees[name]))
        both = stopping.totals(copies, known).reset_index()
        parts[run, copying] = both.rename(columns={"target_passes": "blocks"})
    return stack(parts, ["run", "method"])[["run", "method", "prompt_id", "domain", *SUMS]]


# %%
rows = pd.concat(recorded.values(), ignore_index=True)
short = rows[rows["prompt_id"].isin(ids) & (rows["position"] < new_tokens)]
cut = {i: (tokens[i][0], tokens[i][1][:new_tokens]) for i in ids}
replayed = replayed_on(short, cut, [costs])
differ = (speeds["text"] != speeds["prompt_id"].map(lambda i: cut[i][1])).sum()
each_text = stopwatch.medians(speeds)
both = each_text.merge(replayed, on=["method", "prompt_id"], suffixes=("", "_replayed"))
unlike = int((both["blocks"] != both["blocks_replayed"]).sum())

# %%
ctx.say(
    f"{differ} texts differ from the target's own, and {unlike} of {len(both)} counts of blocks "
    "from the replay. (A GPU may decide a near tie differently.)"
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


seconds = stopwatch.drawn_seconds(speeds)
speed = {"predicted": drawn(replayed, "method", "emitted", "cost")[names]}
speed["measured"] = 1 / seconds[names].div(seconds["plain"], axis=0)
assert np.isclose(speed["predicted"].iloc[0, 0], predicted_by_hand)
assert np.isclose(speed["measured"].iloc[0, 0], measured_by_hand)

# %%
bars = {name: stopwatch.intervals(draws, "method", len(timed)) for name, draws in speed.items()}
ctx.plot(
    Estimates(stack(bars, "speed-up")),
    x="method",
    hue="speed-up",
    kind="bars",
    y="speed-up over plain decoding",
    reference={"plain decoding": 1},
    slug="speed",
    title="Predicted and measured speed-up of each shape",
    stamp=stamp,
    caption="Where both points of a shape are near each other, passes and loop explain its time. "
    "Bars: intervals over the timed prompts.",
)

# %% [markdown]
# ## 4. What do all recorded prompts gain?
# Few prompts are timed, and the shape that is fastest on them is partly the luck of the draw. So
# they only say which **share of the prediction** is reached, as the mean of the shapes. The
# prediction comes from all recorded prompts of a set. Their product is the estimate. Its interval
# resamples the timed prompts and the timing runs of this pair on this kind of machine, this one and
# earlier ones. It leaves out other machines, and which prompts were recorded.

# %%
share = (speed["measured"] / speed["predicted"]).mean(axis=1).to_numpy()
sums = {name: replayed_on(rows, tokens, of_runs) for name, rows in recorded.items()}
sums = stack(sums, "set").groupby(["set", "method", "run"], sort=False)[SUMS].sum()
predicted = (sums["emitted"] / sums["cost"]).unstack("run", sort=False)
of_draw = np.r_[0, np.random.default_rng(4).integers(0, len(of_runs), len(share) - 1)]  # its run
draws = share[:, None] * predicted.to_numpy().T[of_draw]
low, high = stats.bounds_of(draws[1:], len(timed))
here = sums.xs(0, level="run")  # this timing run
per_pass = {"tokens per target pass": here["emitted"] / here["blocks"]}
speeds_up = {"predicted": predicted[0], "estimate": draws[0], "low": low, "high": high}
everywhere = pd.DataFrame(per_pass | speeds_up).reset_index()
ctx.say(
    f"Decoding reaches {100 * share[0]:.0f} % of the prediction. The intervals cover "
    f"{counted(len(of_runs), 'timing run')}, this one and earlier ones of this kind of machine; "
    f"a verdict on speed needs {timing_runs.LEAST_RUNS}."
)
ctx.table(
    everywhere,
    "all-prompts",
    digits=2,
    caption="All recorded prompts: tokens per target pass and predicted speed-up from the replay, "
    f"and the speed-up with the share of the prediction that the timed prompts reach. {refused}",
)

# %% [markdown]
# ## 5. What limits speed here?
# We make one cost at a time ideal and keep the others as measured, then all three, for chains on
# all prompts (replayed). *Draft always right* has the measured costs, and every block emits
# gamma + 1 tokens. The gamma stays today's best, or is chosen again. Intervals resample
# prompts and hold the costs fixed.

# %%
AS_MEASURED, ALL_THREE, RIGHT = "as measured", "all three", "draft always right"
by_gamma = drawn(replay.chain_sums(trace, range(1, 17)), "gamma", "emitted", "blocks")
taus = stopwatch.intervals(by_gamma, "gamma", len(own)).set_index("gamma")


def speeds_at(costs, bound="estimate"):
    """Speed-ups of chains, a row per gamma, a column for each cost that is made ideal, at the
    estimate or at a bound of the tokens per target pass.
    """
    draft = {"draft": (0.0,) * len(costs.sizes)}
    verify = {"verify": tuple(np.minimum(costs.verify, 1.0).tolist())}
    loop = {"overhead": 0.0}
    ideal = {
        AS_MEASURED: {},
        "free draft (c = 0)": draft,
        "free verification (v = 1)": verify,
        "lean loop (o = 0)": loop,
        ALL_THREE: draft | verify | loop,
    }
    at = taus.index.to_numpy()
    price = {name: replace(costs, **changed).of_chain(at) for name, changed in ideal.items()}
    grid = pd.DataFrame(price, taus.index).rdiv(taus[bound], axis=0)
    grid[RIGHT] = (at + 1) / price[AS_MEASURED]
    return grid


# %%
grid = speeds_at(costs)
now = grid[AS_MEASURED].idxmax()
limits = pd.DataFrame({"same gamma": grid.loc[now], "own best": grid.max(), "gamma": grid.idxmax()})
for bound in ("low", "high"):
    limits[bound] = speeds_at(costs, bound).loc[now].drop(RIGHT)
ctx.table(
    limits.rename_axis("made ideal").reset_index(),
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
# **copy** where the last tokens occurred before, and draft elsewhere. Gamma, limit, threshold and
# how many tokens must match are fitted on other prompts of the domain than those that judge them,
# but the chain of *draft alone* and *both* has `copying_gamma` tokens. Only the first two rows pay
# for tokens drafted past the end of a text.

# %%
chained = runs.load_or_record(settings, "chain")
starts = stopping.chains(chained.nodes, settings.max_new_tokens)
SHOWN = stopping.FIXED, "confidence"
fits = {method: stopping.fit_rule(starts, costs, method, folds) for method in SHOWN}
stopped = choose.speeds(fits).table(key="method").without(domain=[ALL, POOLED])

# %%
at_starts = combined.add_copies(combined.starts_of_trace(trace, "draft"), tokens)
PREDICTED = "speed-up, predicted"
quantities = {
    "tokens per target pass": combined.ways(at_starts, copying_gamma, folds=folds),
    PREDICTED: combined.ways(at_starts, copying_gamma, costs, folds),
}
ways = {name: choose.speeds(choices) for name, choices in quantities.items()}
copies = {name: each.table(key="proposer") for name, each in ways.items()}
ctx.export(Estimates.stacked(copies, "quantity").without(domain=POOLED), "copies")

# %%
of_ways = ways[PREDICTED].table(key="method").without(domain=[ALL, POOLED])
rows = pd.concat([stopped.frame, of_ways.frame], ignore_index=True)
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
def extended(costs, most):
    """The costs with passes of up to `most` tokens: a straight line goes on from the largest."""
    last = costs.sizes[-1]
    if most <= last:
        return costs
    further = []
    for ratio in (costs.c, costs.v):
        rise = max(ratio(last) - ratio(last // 2), 0.0)  # noise makes no pass cheaper
        further.append(float(ratio(last) + rise * (most - last) / (last - last // 2)))
    draft = *costs.draft, further[0]
    verify = *costs.verify, further[1]
    return replace(costs, sizes=(*costs.sizes, most), draft=draft, verify=verify)


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
        of_batch = replace(extended(known, batch * most), batch=batch)
        by_prompt = choose.prompt_costs(counted, drafting, of_batch)
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
    reference={"plain decoding": 1},
    slug="batches",
    title="Speed-up of drafting by batch size",
    stamp=stamp,
    caption="Below the line drafting slows the server. Bars: intervals over prompts.",
)

# %%
# at the gamma that is best today: would three ideal costs gain more than a draft always right?
costs_first = set()
for known, bound in product(of_runs, stats.NUMBERS):
    grid = speeds_at(known, bound)
    row = grid.loc[grid[AS_MEASURED].idxmax()]
    costs_first.add(row[ALL_THREE] >= row[RIGHT])
words = "What limits it most depends on costs and prompts."
if len(of_runs) < timing_runs.LEAST_RUNS:
    words = "To say what limits it most needs more timing runs."
elif len(costs_first) == 1:
    words = "Costs limit it most." if costs_first.pop() else "Acceptance limits it most."
# the shape is chosen by the replay of all own prompts, not by the clock
best_shape = everywhere[everywhere["set"] == prompt_sets.OWN].nlargest(1, "predicted").iloc[0]
answer = (
    f"With `{best_shape['method']}` a target pass gives {best_shape['tokens per target pass']:.1f} "
    "tokens instead of one. Timing was unreliable, so there is no number on speed."
)
if not refused:
    timed_as = bars["measured"].set_index("method").at[best_shape["method"], "estimate"]
    answer = (
        f"On this machine, in this hour, `{best_shape['method']}` decoded the timed texts "
        f"{timed_as:.1f} times as fast as without a draft. For all own prompts we expect "
        f"{best_shape['estimate']:.1f} times. {words}"
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
# 1.73.</details>
#
# ## What this does not show
# Other machines, other pairs (a larger target makes o small, and on a GPU v(n) stays near 1 for
# longer), long contexts, memory, and energy. Batches are a model: no prefill, no queue, and a
# packed pass over one text stands for a pass over several. Outside section 4 intervals leave out
# other hours.

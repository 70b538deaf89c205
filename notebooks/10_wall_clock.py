# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10. Does acceptance become speed here, and what limits it?
#
# A draft that is often right emits many tokens per target pass, and may slow decoding all the same.
# A block of gamma drafted tokens costs gamma c + v(gamma + 1) + o target passes. Section 1 measures
# this cost on this machine. Section 2 decodes for real and compares the measured speed with the
# cost. Section 5 asks which part of the cost limits this pair, or whether acceptance does.
#
# ![Tokens per target pass, and the speed-up](../figures/smollm/10/speed.png)
#
# *Runs on* any machine, and holds for that machine only: times differ from run to run, so nothing
# below asserts a time · *minutes* about three on 2 cores · *reads* the runs `greedy`, `chain` and
# `sampled` of the profile and `greedy` of its other prompts, recorded if they are not there, and
# loads the pair · *writes* `figures/<profile>/10/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# prompts that are timed; the other prompts choose the best tree and the stopping rule
prompts_per_domain_timed: int = 4  # 1 to 1000; more if they are fewer than five in all
# others of these prompts, decoded once to measure the loop's own time, and their shapes
probe_prompts: int = 1  # 1 to 1000; per domain, and at least four in all
probes: list = ["chain:1", "chain:3", "tree:2,2,3", "tree:3,2,8"]  # any
new_tokens: int = 32  # 2 to 65536; at most, of each timed text
# how often each text is timed with each method, in swapped orders; the median counts
repeats: int = 2  # 1 to 100
pass_repeats: int = 9  # 3 to 1000; how often each pass is timed, in each of two rounds
pass_tries: int = 3  # 1 to 100; at most so often a round follows while timing is unreliable
gammas: list = [1, 4, 8]  # 1 to 64; the chains that are timed
# nodes of the trees that are compared with the paper's 2 + 4 + 2
budget: int = 8  # 1 to 64
# depth and branches of the dynamic tree of `budget` nodes
dynamic: list = [4, 4]  # 1 to 64
# tokens of the chain that is drafted where nothing can be copied
copying_gamma: int = 4  # 1 to 64
# parts of the prompts: each part judges a rule that the other parts chose
folds: int = 5  # 2 to 100

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

from speclab import cost, prompts, replay, runs, score, stats, tree
from speclab.shapes import Shape, StopRule, parse_shape
from speclab.analysis import choose, combined, prompt_sets, stopping
from speclab.copying import repeats as repeated
from speclab.estimates import Estimates, counted, stack, starting, without_interval
from speclab.explore import page
from speclab.models import pairs, timing
from speclab.show import notebook
from speclab.studies import wall_clock as study

RUNS = ["greedy", "chain", "sampled", "others-but-unwrapped"]

# %% tags=["timed"]
ctx = notebook.start("10_wall_clock", profile, overrides)
settings = ctx.profile.replace(temperature=0.0)
pair = pairs.load_pair(settings)

# %%
greedy = runs.load_or_record(settings, "greedy")
chained = runs.load_or_record(settings, "chain")
sampled = runs.load_or_record(ctx.profile, "sampled")
machine = notebook.formats(pair.facts)
ctx.say(notebook.made_with(greedy.manifest["pair"], pair.facts))

# %% [markdown]
# We time a few prompts of each domain at temperature **T = 0**, where the target always writes its
# most probable token. They are evenly spaced within the domain, without prompts that had a say in
# the draft's training. The other prompts choose the shapes of draft that are compared.

# %%
encoded = runs.encoded_prompts(settings)
decoded_from = settings.notes.decoded_from
least = stats.MIN_PROMPTS  # for an interval
timed = prompts.decoded_prompts(encoded, prompts_per_domain_timed, decoded_from, least)
untimed = [prompt for prompt in encoded if prompt not in timed] or encoded
probed = prompts.decoded_prompts(untimed, probe_prompts, decoded_from, least=4)

# %%
ids = [prompt.prompt_id for prompt in timed]
other_ids = [prompt.prompt_id for prompt in untimed]
new_tokens = min(new_tokens, settings.max_new_tokens)
trace = greedy.trace
domains = list(score.domains_in(trace))
short = trace.query("prompt_id in @ids and position < @new_tokens")

# %%
here, everywhere = (f"{100 * rows['hit'].mean():.0f} %" for rows in (short, trace))
ctx.say(
    f"We time {counted(len(timed), 'prompt')}, up to {new_tokens} tokens each. The draft's best "
    f"token is right at {here} of their positions, and at {everywhere} over all "
    f"{len(encoded)} prompts. The kit uses {counted(notebook.limit_threads(), 'thread')}."
)

# %% [markdown]
# ## 1. What does a pass cost?
# The unit is a forward pass of the target over one token, which plain decoding makes for each
# token. Speculative decoding makes other passes, and their costs have three names:
#
# * **c**: a draft pass over one token. The draft makes gamma of them before each target pass.
# * **v(n)**: a target pass over n tokens (the last token and n - 1 drafted ones). The textbook
#   assumes v = 1. That holds while a pass waits for the weights to come from memory, and fails when
#   it waits for arithmetic.
# * **o**: what a decoded block takes beyond these passes: choosing, comparing, cutting the caches
#   back, and reading weights again that the other model has pushed out of the processor's cache. It
#   is measured against a token of plain decoding, which has a loop of its own.
#
# We time the passes in two rounds, each repeat in a new random order. Between the rounds we decode
# a few other prompts plainly and with the shapes `probes`. Then o is the median of what their
# blocks took beyond their passes. Notebook 09 measures its costs in the same way, on other prompts,
# so its o differs. It says when timing is **unreliable**.

# %% tags=["timed"]
context = int(np.median([len(prompt.ids) for prompt in timed])) + new_tokens // 2
probed_shapes = {name: parse_shape(name) for name in probes}
clock = timing.measured(
    pair, probed, probed_shapes, new_tokens, timing.SIZES, context, pass_repeats, pass_tries
)

# %%
costs, times = clock.costs, clock.times
refused, stamp = cost.disturbed(costs), cost.stamp(costs)
ctx.export(study.pass_table(times, costs), "pass-times")
ctx.say(f"{study.costs_in_words(costs, context)} {refused}")
assert costs.v(1) == 1

# %%
ctx.plot(
    study.pass_curves(times, costs),
    "n",
    "passes",
    "Time of a pass by the number of its tokens, in milliseconds (left) and in target passes over "
    "one token (right). The thin lines show a pass that takes the same time for every n (v = 1) "
    "and a pass whose time grows in proportion to n (v = n). Bands: quartiles of both rounds.",
    title=f"A target pass over 64 tokens takes {costs.v(64):.1f} times as long as over one",
    stamp=stamp,
    hue="pass",
    columns="unit",
    y="time of a pass",
    x_label="tokens in one pass, n",
    share_y=False,
    log=True,
    looks=study.IDEAL,
)

# %% [markdown]
# ## 2. What does decoding gain?
# We decode the same prompts plainly and with several shapes of draft, in swapped orders. Each text
# is timed from the same prefill (the prompt without its last token) to its last token, so plain
# decoding makes one pass per token. All texts are the target's own (checked below), so the ratio of
# times is the speed-up. With up to `budget` drafted tokens per block we compare:
#
# * **chains**, and the **paper's tree** of 2 + 4 + 2 nodes;
# * the **best static tree**: the tree that is predicted to be the fastest, from the measured costs
#   and the acceptance of the draft's ranks;
# * a **dynamic tree**: each block chooses its nodes by cumulated draft probability (the rule of
#   EAGLE-2);
# * a chain with a **stop rule**: it stops before a token of which the draft is unsure. If the best
#   threshold never stops, it is a plain chain of the same limit;
# * **lookup** (prompt lookup): where the last tokens occurred before in the prompt or the text, a
#   block copies up to 16 tokens that followed them the most recent time. Elsewhere it drafts
#   nothing, or in **chain + lookup** a chain. The draft reads copied tokens in its next pass.
#
# Tree, threshold, limit and the number of tokens that must match are chosen on the prompts that are
# not timed.

# %%
ranks = trace.query("prompt_id in @other_ids")["draft_rank"]
accepted = [(ranks == rank).mean() for rank in range(8)]
best = study.best_tree_for_speed(accepted, costs, range(1, budget + 1))

# %%
every = stopping.chains(chained.nodes, settings.max_new_tokens, pair.draft.by_start)
not_timed = every.query("prompt_id in @other_ids")
threshold, limit, _ = stopping.fitted(not_timed, costs, "confidence")
planned = stopping.stopped(every, "confidence", threshold, limit)
whole = stopping.fixed(every, limit)
stops = bool((planned["drafted"] != whole["drafted"]).any())

# %%
chains = {gamma: tree.chain(gamma) for gamma in [*gammas, limit]}
shapes = {f"chain of {gamma}": Shape(shape) for gamma, shape in chains.items()}
rule = f"chain of {limit} with stop rule"
if stops:
    stop = StopRule("confidence", threshold)
    shapes[rule] = Shape(chains[limit], stop)

# %%
shapes |= {
    "paper's tree (8 nodes)": Shape(tree.static_tree(3, 2, 8)),
    f"best static tree ({counted(best.size, 'node')})": Shape(best),
    f"dynamic tree ({counted(budget, 'node')})": Shape(None, None, *dynamic, budget),
}
ctx.say(
    f"The fitted stop rule drafts at most {counted(limit, 'token')} and stops below a confidence "
    f"of {threshold:g}."
    if stops
    else f"The fitted stop rule never stops, so it is a plain chain of {limit}."
)

# %%
recorded = runs.texts_of(greedy)
tokens = {prompt.prompt_id: (prompt.ids, recorded[prompt.prompt_id]) for prompt in encoded}
at_starts = combined.with_copies(combined.starts_of_trace(trace, "draft"), tokens)
at_others = at_starts.query("prompt_id in @other_ids")

# %%
copying, names = {}, {}
for gamma in (0, copying_gamma):
    by_prompt = combined.settings_cost(at_others, gamma, costs)
    copying[gamma] = choose.setting_by_domain(by_prompt)[choose.UNKNOWN]
    names[gamma] = study.copying_name(gamma, copying[gamma])
shapes |= {names[gamma]: parse_shape(setting) for gamma, setting in copying.items()}
ctx.say(study.copying_in_words(copying))

# %% tags=["timed"]
speeds = timing.decoded_speed(pair, timed, shapes, new_tokens, repeats)

# %% [markdown]
# ### Are the texts and the blocks right?
# Each text must be the target's own, and each decoded block must be the replayed one.

# %%
counts = {
    name: replay.prompt_sums(replay.replay(short, shape.tree))
    for name, shape in shapes.items()
    if shape.tree and not shape.stop and not shape.lookup
}
sums_of = {}
if stops:
    here = stopping.chains(
        chained.nodes.query("prompt_id in @ids and position < @new_tokens"),
        new_tokens,
        pair.draft.by_start,
    )
    sums_of[rule] = stopping.totals(stopping.stopped(here, "confidence", threshold, limit), costs)

# %%
cut = {name: (prompt, text[:new_tokens]) for name, (prompt, text) in tokens.items()}
near = combined.with_copies(combined.starts_of_trace(short, "draft"), cut)
for gamma, setting in copying.items():
    sums_of[names[gamma]] = combined.settings_cost(near, gamma, costs).table.loc[setting]
sums_of = {
    name: sums.reset_index().rename(columns={"target_passes": "blocks"})
    for name, sums in sums_of.items()
}
counts |= sums_of

# %%
replayed = stack(counts, "method")[["method", "prompt_id", "blocks"]]
both = speeds.merge(replayed, on=["method", "prompt_id"], suffixes=("", "_replayed"))
unlike = (both["blocks"] != both["blocks_replayed"]).sum()
differ = timing.differs(speeds, recorded, new_tokens).sum()

# %%
ctx.say(
    f"Replay and decoding differ in **{counted(unlike, 'block count')}** ({len(counts)} methods, "
    f"{len(timed)} prompts, every repeat; the dynamic tree cannot be replayed). {differ} of "
    f"{len(speeds)} texts differ from the target's own. (On a GPU or in half precision a near tie "
    "may be decided differently.)"
)
assert not pair.is_exact or unlike == differ == 0, "same text, same counts"

# %% [markdown]
# ### Does the measured speed-up match the prediction?
# First by hand, for the first chain. The predicted speed-up is the number of tokens per target pass
# divided by the cost of a block.

# %% tags=["by-hand"]
gamma = gammas[0]
texts = timing.medians(speeds)
of_chain = texts[texts["method"] == f"chain of {gamma}"]
tokens_per_pass = of_chain["tokens"].sum() / of_chain["blocks"].sum()
cost_of_block = gamma * costs.c() + costs.v(gamma + 1) + costs.overhead
predicted_by_hand = tokens_per_pass / cost_of_block
measured_by_hand = of_chain["plain_s"].sum() / of_chain["time_s"].sum()

# %% tags=["by-hand"]
ctx.say(
    f"A chain of {gamma} emits {tokens_per_pass:.2f} tokens per target pass, and a block costs "
    f"{cost_of_block:.2f} target passes. So we predict {predicted_by_hand:.2f}x plain decoding. We "
    f"measured {measured_by_hand:.2f}x."
)

# %% [markdown]
# Now all shapes. Intervals resample the timed prompts of all domains together, because one domain
# has too few. They also resample the repeats of all texts, so they cover how timing varies from one
# repeat to the next.
# (The prediction counts whole blocks. The last block of a text is often cut and costs less.)

# %%
tau, speed = study.rates(speeds)
gain = timing.intervals(speed, "method", len(timed)).in_units("x")
block = study.block_costs(shapes, costs, sums_of).reindex(speed.columns, fill_value=1.0)
reached = timing.intervals(speed * block / tau, "method", len(timed))

# %%
table = gain.frame.rename(columns={"estimate": "speedup"}).set_index("method")
table.insert(0, "block_efficiency", tau.iloc[0])
table["predicted"] = table["block_efficiency"] / block
table["share_of_predicted"] = table["speedup"] / table["predicted"]

# %%
ctx.export(table.reset_index(), "measured")
assert np.isclose(predicted_by_hand, table["predicted"][f"chain of {gamma}"])
assert np.isclose(measured_by_hand, table["speedup"][f"chain of {gamma}"])

# %%
fastest, lead = choose.leader(speed.drop(columns="plain"), len(timed))
per_pass = timing.intervals(tau, "method", len(timed))
most = per_pass.at(method=table["block_efficiency"].idxmax())

# %%
in_order = gain.frame.sort_values("estimate", ascending=False).index
predicted = without_interval(gain.frame, table["predicted"].to_numpy())
both_ways = {
    ("tokens per target pass", "measured"): per_pass.frame.loc[in_order],
    ("speed-up over plain decoding", "measured"): gain.frame.loc[in_order],
    ("speed-up over plain decoding", "predicted"): predicted.loc[in_order],
}
bars = Estimates(stack(both_ways, ["quantity", "made"])).without(method="plain")

# %%
finding = f"{starting(fastest)} decodes {gain.at(method=fastest).value:.2f}x as fast as"
if refused:
    finding = f"{starting(most.row.method)} emits the most tokens per target pass"
ctx.plot(
    bars,
    "method",
    "speed",
    "Tokens per target pass and speed-up over plain decoding, by method, the fastest on top "
    f"({len(timed)} prompts, {machine}). Bars: 95 % intervals.",
    title=finding if refused else f"{finding} plain decoding",
    stamp=stamp,
    hue="made",
    columns="quantity",
    kind="bars",
    y="",
    x_label="",
    reference=1,
    reference_name="plain decoding",
    share_y=False,
    height=2.8,
)

# %%
if not refused:
    against_plain = study.compared_in_words(gain.without(method="plain"), "plain decoding")
    ctx.say(
        f"On these {len(timed)} prompts of at most {new_tokens} tokens each, {fastest} is fastest. "
        f"{starting(lead)}. {against_plain}"
    )
    ctx.say(f"{starting(most.row.method)} emits the most tokens per target pass, {most}.")

# %%
if not refused:
    drafting = reached.without(method="plain")
    ctx.say(
        f"The ratio of measured to predicted speed-up is {drafting.span()}, on average "
        f"{drafting.frame['estimate'].mean():.2f}. "
        f"{study.compared_in_words(drafting, 'predicted')}"
    )

# %% [markdown]
# ### And on other prompts?
# The chains and the fastest shape also decode prompts of the other sets that the profile names, of
# the same domains. Nothing is fitted to them. (The profile's own prompts without wrapper are
# left out, because many of their texts are the same.)

# %%
again = {f"chain of {gamma}": shapes[f"chain of {gamma}"] for gamma in gammas}
again[fastest] = shapes[fastest]
timed_of = {}
for source in ctx.profile.others:
    if source != "unwrapped":
        of_set = runs.of_kind(settings, runs.kind_of_set(source))
        whole_set = runs.encoded_prompts(of_set)
        prompt_sets.check_domains(source, {prompt.domain for prompt in whole_set}, domains)
        alike = [prompt for prompt in whole_set if prompt.domain in domains]
        timed_of[source] = prompts.decoded_prompts(alike, prompts_per_domain_timed, least=least)
if not timed_of:
    ctx.say(prompt_sets.NO_OTHERS)

# %% tags=["timed"]
speeds_of = {
    source: timing.decoded_speed(pair, of_set, again, new_tokens, repeats)
    for source, of_set in timed_of.items()
}

# %%
of_sets = {prompt_sets.OWN: (speed, tau, timed)}
for source, of_set in speeds_of.items():
    run = runs.load_or_record(settings, runs.kind_of_set(source))
    differ = timing.differs(of_set, runs.texts_of(run), new_tokens).sum()
    name = prompt_sets.set_name(source)
    ctx.say(f"{starting(name)}: {differ} of {len(of_set)} texts differ from the target's own.")
    assert not pair.is_exact or differ == 0, "same text"
    set_tau, set_speed = study.rates(of_set)
    of_sets[name] = set_speed, set_tau, timed_of[source]

# %%
by_set = {}
for number, quantity in enumerate(("speed-up", "tokens per target pass")):
    for name, (*draws, texts) in of_sets.items():
        chosen = draws[number][list(again)]
        by_set[name, quantity] = timing.intervals(chosen, "method", len(texts)).frame
by_set = Estimates(stack(by_set, ["set", "of"]))
ctx.table(by_set, "other-prompts", most=60, cells=by_set.wide(["of", "method"], "set"))

# %%
other = prompt_sets.farthest(of_sets)

# %%
# The same costs, dragged: what another c, v(n) or o would do to the speed-up, at both temperatures.
# (A headless run shows the pictures above only.)
page.show("machine", runs=[greedy, sampled], measured=None if refused else costs)

# %% [markdown]
# ## 3. Should the draft decide when to stop?
# The article proposes a gamma that follows the draft's confidence. The run `chain` holds the
# draft's own chain of 8 at every position of the target's text. So every stopping rule is replayed
# exactly, on all prompts and at the costs of section 1:
#
# * **best fixed gamma**: one gamma from 1 to 8 per domain;
# * **confidence**: draft up to a limit, but stop before a token whose q, the draft's probability,
#   is below a threshold. The pass that found this token is paid for;
# * **entropy**: the same, but stop where the entropy of the draft's distribution (in natural units,
#   **nats**) is above a threshold;
# * **oracle**: knows what will be accepted and makes the cheapest blocks. No rule can be faster.
#
# Gamma, limit and threshold are fitted on other prompts of the domain than those that judge them.

# %%
fits = {method: stopping.fit_rule(every, costs, method, folds) for method in stopping.METHODS}
rates = choose.speeds(fits)
gains = {name: rates[name] - rates[stopping.FIXED] for name in stopping.METHODS[1:]}

# %%
found = rates.table(key="method").at(domain=domains)
gains = rates.table(gains, "method").at(domain=domains)
gap = gains.at(method=list(stopping.MEASURES))

# %%
is_faster = stats.verdict(gap.frame["low"], gap.frame["high"]) == stats.ABOVE
ctx.plot(
    found,
    "domain",
    "stopping",
    "Speed-up over plain decoding by domain and stop rule (T = 0, replayed at the measured "
    "costs). The oracle is the most that any rule could reach. Bars: 95 % intervals.",
    title=f"Stop rules beat a fixed gamma significantly in {is_faster.sum()} of {len(is_faster)} "
    "combinations of rule and domain",
    stamp=stamp,
    hue="method",
    kind="points",
    y="speed-up over plain decoding",
    x_label="",
    reference=1,
    reference_name="plain decoding",
)

# %%
if not refused:
    words = "faster in", "slower in", "not significantly different in"
    lines = [
        f"* With a threshold on {name}, decoding is {part.sentence(*words)}."
        for name, part in gap.groups("method")
    ]
    oracle = gains.at(method=stopping.ORACLE)
    rest = (
        f"The stop rules change the speed-up by at most {gap.frame['estimate'].abs().max():.2f}x. "
        f"The oracle raises it by {oracle.in_units('x').span()}."
    )
    ctx.say("\n".join(["Compared with the best fixed gamma:\n", *lines, f"\n{rest}"]))

# %% [markdown]
# ## 4. Should it copy where it can?
# There are two kinds of draft: a model, which is expensive but general, and copying, which is free
# but can only repeat. Along a greedy text both can be replayed exactly at every position. So can a
# decoder that copies where at least m tokens match and drafts elsewhere. On all prompts we compare
# the **draft alone** (a chain of `copying_gamma`), **copies alone**, and **both**. The number m is
# fitted on other prompts of the same domain.
#
# A greedy text that runs into a loop is easy to copy for a reason that has nothing to do with
# language. So we also count the tokens per target pass of blocks that begin outside loops, with the
# same rules.

# %%
ways = combined.ways(at_starts, copying_gamma, folds=folds)
place = ["prompt_id", "position"]
assert (at_starts[place] == trace[place]).all(axis=None), "marked row by row"
is_new = at_starts.assign(counted=~repeated(trace))
quantities = {
    "tokens per target pass": ways,
    "outside loops": combined.settings_held(ways, is_new, copying_gamma),
    "speed-up, predicted": combined.ways(at_starts, copying_gamma, costs, folds),
}

# %%
levels, more = {}, {}
for quantity, choices in quantities.items():
    rates = choose.speeds(choices)
    gained = {"both": rates[combined.BOTH] - rates[combined.DRAFT]}
    levels[quantity] = rates.table(key="proposer").frame
    more[quantity] = rates.table(gained, "proposer").frame
copied = Estimates(stack(levels, "quantity")).at(domain=[*domains, "all"])
over_draft = Estimates(stack(more, "quantity")).at(domain=[*domains, "all"])

# %%
mean = over_draft.at(domain="all")
added = mean.at(quantity="tokens per target pass").value
ctx.plot(
    copied.at(domain=domains),
    "domain",
    "copies",
    f"Each marker is one way to draft in one domain: a chain of {copying_gamma}, copies, or both. "
    "Left: tokens per target pass in whole texts. Middle: only in blocks that begin outside loops. "
    "Right: predicted speed-up. All prompts, T = 0, replayed. Bars: 95 % intervals.",
    title=f"Copies {'add' if added >= 0 else 'cost'} {abs(added):.2f} tokens per target pass in a "
    f"chain of {copying_gamma} (mean of the domains)",
    stamp=stamp,
    hue="proposer",
    columns="quantity",
    kind="points",
    y="tokens per target pass, or speed-up",
    x_label="",
    reference=1,
    reference_name="plain decoding",
    share_y=False,
)

# %%
words = "higher in", "lower in", "not significantly different in"
lines = [
    f"* {study.COPYING[name]} {part.without(domain='all').sentence(*words)}. The mean "
    f"difference of the domains is {part.at(domain='all')}."
    for name, part in over_draft.groups("quantity")
]
ctx.say("\n".join(["Both compared with the draft alone:\n", *lines]))

# %% [markdown]
# ## 5. What limits speed here, and what would help?
# We make one cost at a time ideal and keep the others as measured, for chains on all prompts at
# T = 0 (replayed, visited blocks). The first column keeps the gamma that is best today, the second
# takes the best gamma up to 16. Intervals resample prompts and hold the costs fixed. These are
# predictions, mostly of shapes that were not decoded here.

# %%
chain_sums = replay.chain_sums(trace, range(1, 17))
chain_tau = study.drawn(chain_sums, "gamma", "emitted", "blocks")
taus = timing.intervals(chain_tau, "gamma", len(encoded)).frame.set_index("gamma")
limits = study.limits(taus, costs)
ctx.table(limits, "limits", 2, cells=study.shown_limits(limits))

# %%
if not refused:
    ctx.say(study.limit_in_words(limits))
    faster = gain.at(method=fastest).value
    ctx.record(headline=f"**{faster:.2f}x** as fast as plain decoding ({fastest})")
ctx.record(
    c=costs.c(),
    overhead=costs.overhead,
    tree_overhead=costs.loop(False),
    drift=costs.drift,
)

# %%
there = by_set.at(set=other, of="speed-up").in_units("x") if other else None
place = f"on {prompt_sets.after_on(other)}" if other else ""
said = study.speed_in_words(gain.at(method=fastest), there, place, len(timed))
said = f"{said} {study.limit_in_words(limits)}"
ctx.answer(study.unreliable(most) if refused else said)

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: c = 0.1, v(5) = 1.3, o = 0.2, and a chain of 4 emits 2.6 tokens per target pass. What
#    is the speed-up? What would it be if the draft cost nothing, and what if verifying five tokens
#    cost no more than verifying one?
#
# <details><summary>What happens</summary>
# A block costs 4 × 0.1 + 1.3 + 0.2 = 1.9 target passes, so the speed-up is 2.6 / 1.9 = 1.37. With
# c = 0 a block costs 1.5: 1.73. With v = 1 it costs 1.6: 1.63. The textbook, which knows only c,
# predicts 2.6 / 1.4 = 1.86.</details>
#
# 2. Set `gammas` to `[1, 2, 3, 4, 6, 8, 16]`. Which of the measured speed-ups and predictions stay
#    in the same order?
#
# <details><summary>What happens</summary>
# `block_efficiency` rises with gamma or stays the same, since a longer chain accepts all that a
# shorter chain does. The speed-up rises while a further token is likely enough to be accepted to
# pay for its draft pass and its share of v. Then it falls. Near the top the curve is flat, and
# neighbours change order with timing noise. The replayed counts never do.</details>
#
# 3. In section 3, charge a stopping rule only for the tokens that it keeps: take `drafts =
#    stopping.stopped(every, "confidence", 0.4, 8)`, then compare the `cost` of
#    `stopping.totals(drafts, costs)` with that of `drafts.assign(draft_passes=drafts["drafted"])`.
#
# <details><summary>What happens</summary>
# The second never costs more. The difference is c for every block that was stopped before its
# limit: to see that the next token is unsure, the draft must have computed it. With a cheap draft
# this is nothing. With an expensive draft it can cost more than the rule saves.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: acceptance becomes speed through the cost of a block. This cost has three parts,
#   which can be measured in seconds. Tokens per target pass alone do not say which shape is
#   fastest.
# * What this does not show: other machines, other pairs (a larger target makes o small, and on a
#   GPU v(n) stays near 1 for longer), batches of several texts, long contexts, or memory. Intervals
#   cover the choice of prompts and timing noise within minutes. Another day may differ by more.
# * Next: [11](11_paper_audit.ipynb) takes the paper's claims one by one.

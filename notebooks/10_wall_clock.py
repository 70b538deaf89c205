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
# A draft that is right often emits many tokens per target pass, and still may slow decoding: a
# block of gamma drafted tokens costs gamma c + v(gamma + 1) + o target passes. Section 1 measures
# this cost on this machine, section 2 decodes for real (plain, chains, trees) and holds the cost
# against it, section 5 asks which part of the cost, or acceptance itself, holds this pair back.
#
# ![Tokens per target pass, and the speed-up](../figures/smollm/10/speed.png)
#
# *Runs on* any machine, and speaks of that machine only: times differ from run to run, so nothing
# below asserts a time · *minutes* about three on 2 cores · *reads* the runs `greedy`, `chain` and
# `sampled` of the profile and `greedy` of its other prompts, recorded if they are not there, and
# loads the pair · *writes* `figures/<profile>/10/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# decoded for real; the other prompts choose the best tree and the stopping rule
prompts_per_domain_timed: int = 4  # 1 to 1000; more where these are not five in all
# of these others, decoded once to learn what the loop takes, and with which shapes
probe_prompts: int = 1  # 1 to 1000; per domain, and at least four in all
probes: list = ["chain:1", "chain:3", "tree:2,2,3", "tree:3,2,8"]  # any
new_tokens: int = 32  # 2 to 65536; at most, of each timed text
# of each text by each method, in orders swapped from text to text; the median counts
repeats: int = 2  # 1 to 100
pass_repeats: int = 9  # 3 to 1000; of each single pass, in each of two rounds
pass_tries: int = 3  # 1 to 100; more rounds while the clock is disturbed
gammas: list = [1, 4, 8]  # 1 to 64; the chains that are timed
# nodes of the trees that are compared with the paper's 2 + 4 + 2
budget: int = 8  # 1 to 64
# depth and branches of the dynamic tree of `budget` nodes
dynamic: list = [4, 4]  # 1 to 64
# of the chain that is drafted where nothing can be copied
copying_gamma: int = 4  # 1 to 64
# a stopping rule is judged on one part of the prompts and fitted on the others
folds: int = 5  # 2 to 100

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
import numpy as np

from speclab import cost, prompts, replay, runs, score, stats, tree
from speclab.shapes import Shape, StopRule, parse_shape
from speclab.analysis import choose, combined, prompt_sets, stopping
from speclab.copying import repeats as repeated
from speclab.estimates import Estimates, stack, starting, without_interval
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
# A few prompts of each domain are timed, at temperature **T = 0**, where the target writes its most
# probable token each time. They are evenly spread over the domain. (Prompts that had a say in the
# draft's training are left out: the profile's notes name them.) The other prompts choose the shapes
# of draft that are compared.

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
trace = score.with_hits(greedy.trace)
domains = list(score.domains_in(trace))
short = trace.query("prompt_id in @ids and position < @new_tokens")

# %%
ctx.say(
    f"{len(timed)} prompts are timed, up to {new_tokens} tokens each; the draft's best token is "
    f"the target's in {short['hit'].mean():.3f} of these positions, in {trace['hit'].mean():.3f} "
    f"of those of all {len(encoded)} prompts. Threads: {notebook.limit_threads()}."
)

# %% [markdown]
# ## 1. What does a pass cost?
# A forward pass of the target over one token is the unit: plain decoding makes one for each token.
# Speculation makes other passes, and their costs have three names:
#
# * **c**: a draft pass over one token; the draft makes gamma of them before each target pass;
# * **v(n)**: a target pass over n tokens (the last one and the n - 1 drafted). The textbook takes
#   v = 1: true while a pass waits for the weights to come from memory, not when it waits for
#   arithmetic;
# * **o**: what a decoded block takes beyond these passes (choosing, comparing, cutting the caches
#   back, the other model's weights having pushed its own out of the processor's cache), compared
#   with a token of plain decoding, which has a loop of its own.
#
# The passes are timed in two rounds. Between them a few prompts that are not timed later are
# decoded plainly and with the shapes `probes`: o is the median of what their blocks took beyond
# their passes. (Notebook 09 measures its costs in the same way.) Each repeat of a round runs all
# cases in a new random order. Medians count; the bands are the quartiles of the repeats.

# %% tags=["timed"]
context = int(np.median([len(prompt.ids) for prompt in timed])) + new_tokens // 2
probed_shapes = {name: parse_shape(name) for name in probes}
clock = timing.measured(
    pair, probed, probed_shapes, new_tokens, timing.SIZES, context, pass_repeats, pass_tries
)

# %%
costs, times = clock.costs, clock.times
ctx.export(study.pass_table(times, costs), "pass-times")

# %%
ctx.say(
    f"With {context} tokens in the cache, a target pass over one token takes {costs.target_ms:.2f} "
    f"ms in {machine}. **c = {costs.c():.3f}**, **v(5) = {costs.v(5):.2f}** (verifying a chain of "
    f"4), v(64) = {costs.v(64):.2f}, **o = {costs.overhead:.2f}** for a chain and "
    f"{costs.loop(False):.2f} for a tree. The price of a block is uncertain by {costs.drift:.0%}."
)
refused = cost.disturbed(costs)
if refused:
    ctx.say(refused)
assert costs.v(1) == 1

# %%
ctx.plot(
    study.pass_curves(times, costs),
    "n",
    "passes",
    f"Time of a pass over n tokens, medians and quartiles of both rounds. Over 64 "
    f"tokens the target takes {costs.v(64):.1f} times what it takes over one.",
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
# The same prompts are decoded plainly and with drafts of several shapes, one text after another, in
# swapped orders. Every text is timed from the same prefill (the prompt but its last token) to its
# last token, so plain decoding makes one pass for each token. All texts are the target's own
# (checked below), so the ratio of times is the speed-up. Compared at up to `budget` nodes: chains;
# the paper's tree of 2 + 4 + 2; the static tree that the measured costs and the acceptance of the
# draft's ranks (on the prompts that are not timed) predict to be fastest; a **dynamic** tree, which
# each block chooses by cumulated draft probability (EAGLE-2's rule);

# %%
ranks = trace.query("prompt_id in @other_ids")["draft_rank"]
accepted = [(ranks == rank).mean() for rank in range(8)]
best = study.best_tree_for_speed(accepted, costs, range(1, budget + 1))

# %% [markdown]
# and a chain that **stops** before a token of which the draft is unsure. Its limit and its
# threshold are fitted on the prompts that are not timed. If the threshold that is best there never
# stops, it is a plain chain. Either way the plain chain of that limit is timed.

# %%
every = stopping.chains(chained.nodes, settings.max_new_tokens)
not_timed = every.query("prompt_id in @other_ids")
threshold, limit, _ = stopping.fitted(not_timed, costs, "confidence")
planned = stopping.stopped(every, "confidence", threshold, limit)
whole = stopping.fixed(every, limit)
stops = bool((planned["drafted"] != whole["drafted"]).any())

# %%
chains = {gamma: tree.chain(gamma) for gamma in [*gammas, limit]}
shapes = {f"chain of {gamma}": Shape(shape) for gamma, shape in chains.items()}
rule = f"chain of {limit} (stop rule)"
if stops:
    stop = StopRule("confidence", threshold)
    shapes[rule] = Shape(chains[limit], stop)

# %%
shapes |= {
    "paper's 2 + 4 + 2": Shape(tree.static_tree(3, 2, 8)),
    f"best static ({best.size} nodes)": Shape(best),
    f"dynamic ({budget} nodes)": Shape(None, None, *dynamic, budget),
}
ctx.say(
    f"The fitted rule drafts at most {limit} tokens and stops below a confidence of {threshold:g}."
    if stops
    else f"The fitted threshold ({threshold:g}) never stops: the rule is a plain chain of {limit}."
)

# %% [markdown]
# And **copies** (prompt lookup): where the last tokens stood before in the prompt or the text, a
# block does not draft but copies what followed them the most recent time, up to 16 tokens. How many
# tokens, at least, must match is fitted on the prompts that are not timed, at the measured costs:
# `lookup:m` copies from m matching tokens on or drafts nothing, `chain:4+lookup:m` drafts a chain
# of 4 where it does not copy. The draft has not seen the copied tokens: its next pass reads them.

# %%
recorded = runs.texts_of(greedy)
tokens = {prompt.prompt_id: (prompt.ids, recorded[prompt.prompt_id]) for prompt in encoded}
at_starts = combined.with_copies(combined.starts_of_trace(trace, "draft"), tokens)
at_others = at_starts.query("prompt_id in @other_ids")

# %%
copying = {}
for gamma in (0, copying_gamma):
    by_prompt = combined.settings_cost(at_others, gamma, costs)
    copying[gamma] = choose.setting_by_domain(by_prompt)[choose.UNKNOWN]
shapes |= {name: parse_shape(name) for name in copying.values()}
ctx.say(f"Fitted: {' and '.join(copying.values())}.")

# %% tags=["timed"]
speeds = timing.decoded_speed(pair, timed, shapes, new_tokens, repeats)

# %% [markdown]
# ### Are the texts and the counts what they must be?
# Each text must be the target's own, and each block must be the replayed one.

# %%
counts = {
    name: replay.prompt_sums(replay.replay(short, shape.tree))
    for name, shape in shapes.items()
    if shape.tree and not shape.stop and not shape.lookup
}
counted = {}
if stops:
    here = stopping.chains(
        chained.nodes.query("prompt_id in @ids and position < @new_tokens"), new_tokens
    )
    counted[rule] = stopping.totals(stopping.stopped(here, "confidence", threshold, limit), costs)

# %%
cut = {name: (prompt, text[:new_tokens]) for name, (prompt, text) in tokens.items()}
near = combined.with_copies(combined.starts_of_trace(short, "draft"), cut)
for gamma, name in copying.items():
    counted[name] = combined.settings_cost(near, gamma, costs).table.loc[name]
counted = {
    name: sums.reset_index().rename(columns={"target_passes": "blocks"})
    for name, sums in counted.items()
}
counts |= counted

# %%
replayed = stack(counts, "method")[["method", "prompt_id", "blocks"]]
both = speeds.merge(replayed, on=["method", "prompt_id"], suffixes=("", "_replayed"))
unlike = (both["blocks"] != both["blocks_replayed"]).sum()
differ = timing.differs(speeds, recorded, new_tokens).sum()

# %%
ctx.say(
    f"Replayed against decoded, {len(counts)} shapes, {len(timed)} prompts, every repeat: "
    f"**{unlike} differences** in blocks; {differ} of {len(speeds)} texts differ from the "
    "target's own. (On a GPU or in half precision a near tie may fall the other way.)"
)
assert not pair.is_exact or unlike == differ == 0, "same text, same counts"

# %% [markdown]
# ### Does the clock agree with the prediction?
# The cost, and what it predicts, for the first chain by hand:

# %%
gamma = gammas[0]
first = f"chain of {gamma}"
texts = timing.medians(speeds)
sums = texts[texts["method"] == first].sum(numeric_only=True)

# %%
tokens_per_pass = sums["tokens"] / sums["blocks"]
cost_of_block = gamma * costs.c() + costs.v(gamma + 1) + costs.overhead
predicted_by_hand = tokens_per_pass / cost_of_block
measured_by_hand = sums["plain_s"] / sums["time_s"]

# %% [markdown]
# All shapes, from their totals. Intervals resample the timed prompts of all domains together (those
# of one domain are too few) and, for speeds, the repeats of all texts: so they hold what the clock
# does otherwise from one repeat to the next. (The prediction counts whole blocks; the last block of
# a text is often cut and costs less.)

# %%
tau, speed = study.rates(speeds)
gain = timing.intervals(speed, "method", len(timed))
block = study.block_costs(shapes, costs, counted).reindex(speed.columns, fill_value=1.0)
reached = timing.intervals(speed * block / tau, "method", len(timed))

# %%
table = gain.frame.rename(columns={"estimate": "speedup"}).set_index("method")
table.insert(0, "block_efficiency", tau.iloc[0])
table["predicted"] = table["block_efficiency"] / block
table["share_of_predicted"] = table["speedup"] / table["predicted"]

# %%
ctx.export(table.reset_index(), "measured")
assert np.isclose(predicted_by_hand, table["predicted"][first])
assert np.isclose(measured_by_hand, table["speedup"][first])

# %% [markdown]
# The fastest shape as measured is the fastest on these prompts. Its lead over each other shape has
# an interval, of the same prompts and repeats. Where that includes 0, the lead is not significant.

# %%
drafted = table.drop(index="plain")
most = drafted["block_efficiency"].idxmax()
fastest, lead = choose.leader(speed.drop(columns="plain"), len(timed))
crown = f"{fastest} was fastest ({gain.at(method=fastest)} times plain decoding); {lead}"

# %%
predicted = without_interval(gain.frame, table["predicted"].to_numpy())
both_ways = {
    ("tokens per target pass", "measured"): timing.intervals(tau, "method", len(timed)).frame,
    ("speed-up over plain decoding", "measured"): gain.frame,
    ("speed-up over plain decoding", "predicted"): predicted,
}
bars = Estimates(stack(both_ways, ["quantity", "made"])).without(method="plain")

# %%
ctx.plot(
    bars,
    "method",
    "speed",
    f"Tokens per target pass, and the speed-up they become in {machine}. Most tokens per pass: "
    f"{most}.",
    hue="made",
    columns="quantity",
    kind="bars",
    y="(1: plain decoding)",
    x_label="",
    reference=1,
    share_y=False,
    height=2.8,
)

# %%
against_plain = gain.without(method="plain").sentence(
    "faster with", "slower with", "no significant difference with", "method", than=1
)
ctx.say(
    refused
    or f"On these {len(timed)} prompts, in {machine}, {crown}. **Most tokens per pass**: {most}, "
    f"{drafted['block_efficiency'][most]:.2f}; its speed-up is {drafted['speedup'][most]:.2f}. "
    f"Compared with plain decoding: {against_plain}."
)

# %%
drafting = reached.without(method="plain")
share = drafting.frame["estimate"]
above = drafting.sentence(
    "faster than predicted with",
    "slower than predicted with",
    "no significant difference with",
    "method",
    than=1,
)
ctx.say(
    f"Measured over predicted speed-up is {drafting.span()}, {share.mean():.2f} on average over "
    f"{len(share)} shapes: {above}."
)

# %% [markdown]
# ### And on other prompts?
# The chains and the shape that was fastest above also decode prompts of the other sets that the
# profile names, of the domains above. Nothing is fitted to them. (The profile's own prompts without
# the words around them are left out: too many of their texts are the same.)

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
    ctx.say(f"{name}: {differ} of {len(of_set)} texts differ from the target's own.")
    assert not pair.is_exact or differ == 0, "same text"
    set_tau, set_speed = study.rates(of_set)
    of_sets[name] = set_speed, set_tau, timed_of[source]

# %%
by_set = {}
for number, quantity in enumerate(("speed-up", "tokens per pass")):
    for name, (*draws, texts) in of_sets.items():
        chosen = draws[number][list(again)]
        by_set[name, quantity] = timing.intervals(chosen, "method", len(texts)).frame
by_set = Estimates(stack(by_set, ["set", "of"]))
ctx.table(by_set, "other-prompts", rows=60, cells=by_set.wide(["of", "method"], "set"))

# %%
elsewhere = by_set.at(of="speed-up", method=fastest)
other = prompt_sets.farthest(of_sets)
if other:
    ctx.say(
        refused
        or f"{starting(fastest)} compared with plain decoding, times as fast: "
        f"{elsewhere.listed('set')}."
    )

# %%
# The same costs, dragged: what another c, v(n) or o would do to the speed-up, at both temperatures.
# (A headless run shows the pictures above only.)
page.show("machine", runs=[greedy, sampled], measured=None if refused else costs)

# %% [markdown]
# ## 3. Should the draft know when to stop?
# The article proposes a gamma that follows the draft's confidence. The run `chain` holds the
# draft's own chain of 8 at every position of the target's text, so that every stopping rule is
# replayed exactly, at the costs of section 1, on all prompts:
#
# * **best fixed gamma**: one gamma from 1 to 8 for a domain;
# * **confidence** (or **entropy**): draft up to a limit, but stop before the token whose q, the
#   draft's probability, is below a threshold (or whose distribution has an entropy, its
#   undecidedness in natural units, **nats**, above one); the pass that showed it is paid for;
# * **oracle**: foresees what will be accepted and makes the cheapest blocks. No rule can be faster.
#
# Gamma, limit and threshold are fitted on other prompts of the domain than they are judged on.

# %%
fits = {method: stopping.fit_rule(every, costs, method, folds) for method in stopping.METHODS}
rates = choose.speeds(fits)
gains = {name: rates[name] - rates[stopping.FIXED] for name in stopping.METHODS[1:]}

# %%
found = Estimates(rates.table(key="method")).at(domain=domains)
gains = Estimates(rates.table(gains, "method"), digits=3).at(domain=domains)

# %%
ctx.plot(
    found,
    "domain",
    "stopping",
    "Speed-up over plain decoding at T = 0, replayed at the measured costs. The oracle is the most "
    "that any stopping rule could reach.",
    hue="method",
    kind="points",
    y="speed-up over plain decoding",
    reference=1,
)

# %%
gap = gains.at(method=list(stopping.MEASURES))
verdict = gap.sentence("faster in", "slower in", "no significant difference in", within="method")
ctx.say(
    refused
    or f"Compared with the best fixed gamma. {verdict}. Change of its speed-up by the rules: "
    f"{gap.span()}, of {gains.at(method=stopping.ORACLE).span()} that the oracle adds."
)

# %% [markdown]
# ## 4. Should it copy where it can?
# There are two kinds of draft: a model, which is expensive but general, and copying, which is free
# but can only repeat. Along a greedy text both can be replayed exactly at every position, and so
# can a decoder that copies where at least m tokens match and drafts elsewhere. On all prompts: the
# **draft alone** (a chain of `copying_gamma`), **copies alone**, and **both**, m fitted on other
# prompts of the same domain.
# A greedy text that runs into a loop is copied for a reason that has nothing to do with language,
# so tokens per pass are shown outside loops as well (of the blocks that begin there; the rules stay
# those of whole texts).

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
    levels[quantity] = rates.table(key="proposer")
    more[quantity] = rates.table(gained, "proposer")
copied = Estimates(stack(levels, "quantity")).at(domain=[*domains, "all"])
over_draft = Estimates(stack(more, "quantity")).at(domain=[*domains, "all"])

# %%
ctx.plot(
    copied.at(domain=domains),
    "domain",
    "copies",
    f"A chain of {copying_gamma} alone, copies alone, and both: all prompts, T = 0, replayed.",
    hue="proposer",
    columns="quantity",
    kind="points",
    y="(1: plain decoding)",
    reference=1,
    share_y=False,
)

# %%
verdict = over_draft.at(domain=domains).sentence(
    "more in", "less in", "no significant difference in", within="quantity"
)
ctx.say(
    f"Both compared with the draft alone. {verdict}. Mean of the domains: "
    f"{over_draft.at(domain='all').listed('quantity')}."
)

# %% [markdown]
# ## 5. What limits speed here, and what would help?
# One term of the model at a time is made ideal, everything else as measured, for chains on all
# prompts at T = 0 (replayed, visited blocks). `same gamma` keeps the gamma that is best today; `own
# best` lets gamma follow, up to 16. Intervals resample prompts; the costs stand. These are
# predictions, of shapes that mostly were not decoded here.

# %%
chain_sums = replay.chain_sums(trace, range(1, 17))
chain_tau = study.drawn(chain_sums, "gamma", "emitted", "blocks")
taus = timing.intervals(chain_tau, "gamma", len(encoded)).frame.set_index("gamma")
limits = study.limits(taus, costs)
ctx.table(limits, "limits", 2)

# %%
same = limits.set_index("made ideal")["same gamma"]
added = (same - same[study.NOW]).drop([study.NOW, "all three", study.RIGHT])
added = added.sort_values(ascending=False)
best_gamma = int(limits["gamma"].iloc[0])

# %%
more = ", ".join(f"{name} ({up:+.2f})" for name, up in added.items())
# %%
ctx.say(
    refused
    or f"At gamma {best_gamma}, the best of chains as predicted ({same[study.NOW]:.2f} times "
    f"plain), what each term of the price would add, the most first: {more}. With all three costs "
    f"ideal the same drafts would be worth {same['all three']:.2f}, drafts that are always right "
    f"{same[study.RIGHT]:.2f} at today's price."
)

# %%
ctx.record(
    c=costs.c(),
    overhead=costs.overhead,
    tree_overhead=costs.loop(False),
    drift=costs.drift,
)

# %%
there = ""
if other:
    *_, texts = of_sets[other]
    there = f", and {elsewhere.at(set=other)} times on {len(texts)} prompts of "
    there += prompt_sets.in_sentence(other)
ctx.answer(
    refused
    or f"On `{ctx.profile.name}`, in {machine}, the fastest method, {fastest}, decodes "
    f"{gain.at(method=fastest)} times as fast as plain decoding on {len(timed)} prompts{there}. "
    f"{starting(lead)}. The clock "
    f"gives {share.min():.2f} to {share.max():.2f} of the predicted speed-ups."
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: c = 0.1, v(5) = 1.3, o = 0.2, and a chain of 4 emits 2.6 tokens per target pass. What
#    is the speed-up? What would it be if the draft cost nothing, and what if verifying five tokens
#    cost no more than one?
#
# <details><summary>What happens</summary>
# A block costs 4 × 0.1 + 1.3 + 0.2 = 1.9 target passes, so 2.6 / 1.9 = 1.37. With c = 0 it costs
# 1.5: 1.73. With v = 1 it costs 1.6: 1.63. The textbook, which knows only c, promises 2.6 / 1.4 =
# 1.86.</details>
#
# 2. Set `gammas` to `[1, 2, 3, 4, 6, 8, 16]`. Which of the measured speed-ups and predictions stay
#    in the same order?
#
# <details><summary>What happens</summary>
# `block_efficiency` rises with gamma, or stays: a longer chain accepts all that a shorter one does.
# The speed-up rises while a further token is likely enough to be accepted to pay for its draft pass
# and its share of v, then falls. Near its top the curve is flat, and neighbours trade places with
# the noise of the clock; the replayed counts never do.</details>
#
# 3. In section 3, charge a stopping rule only for the tokens that it keeps: take `drafts =
#    stopping.stopped(every, "confidence", 0.4, 8)`, then compare the `cost` of
#    `stopping.totals(drafts, costs)` with that of `drafts.assign(draft_passes=drafts["drafted"])`.
#
# <details><summary>What happens</summary>
# The second never costs more. The difference is c for every block that was stopped before its
# limit: to see that the next token is unsure, the draft must have computed it. With a cheap draft
# that is nothing; with a costly one it can eat what the rule saves.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: acceptance becomes speed through the cost of a block; that cost has three parts,
#   all of which can be measured in seconds, and tokens per pass alone do not say which shape is
#   fastest.
# * What this does not show: other machines, other pairs (a larger target makes o small, and on a
#   GPU v(n) stays near 1 for longer), batches of several texts, long contexts, or memory.
#   Intervals cover the choice of prompts and the noise of the clock within minutes; another day may
#   differ by more. Settings of section 3 are fitted again in each resample.
# * Next: notebook 11 takes the paper's claims one by one.

# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 14. What does a server gain?
#
# A server has many requests and one machine. Some requests wait while others are decoded, and some
# may be decoded together. A faster block therefore shortens the queue as well as the service, and a
# large batch leaves no room for drafts. A setting may also have been chosen at another temperature,
# or on other prompts than the incoming ones. And benchmarks of servers may make acceptance up.
#
# ![Tokens per second and latency of each policy](../figures/smollm/14/stream.png)
#
# *Runs on* any machine; needs no model, its costs come from the machine where
# [09](09_budgets_and_routing.ipynb) was run last · *minutes* one to two · *reads* the runs
# `greedy`, `sampled` and two more seeds of the profile, and those of its other prompts, recorded if
# they are not there, notebook 09's `policy.json`, and `data/atlas` · *writes*
# `figures/<profile>/14/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
max_gamma: int = 8  # 1 to 64; the longest chain to choose from
budget: int = 8  # 1 to 64; nodes of the largest tree to choose from
# shares of the requests by domain, which sum to 1; {}: every domain equally often
mix: dict = {}  # 0 to 1
# share of the time that a server without drafting would be busy
load: float = 0.8  # 0.01 to 0.99
requests: int = 300  # 10 to 1000000; per simulated stream
streams: int = 12  # 2 to 10000; each value is the mean of this many streams
# requests whose blocks are made together
batches: list = [1, 2, 4, 8, 16, 32, 64]  # 1 to 1024
# an assumed accelerator: a pass over up to `knee` tokens takes as long as over one; its c
knee: int = 64  # 1 to 100000
gamma: int = 4  # 1 to 64; the chain whose acceptance is made up in section 5
public_runs: list = ["eagle", "pld"]  # any; runs of data/atlas that section 5 serves too
assumed_c: float = 0.1  # 0.0001 to 10

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

from speclab import cost, passes, replay, runs, stats
from speclab.estimates import Estimates, stack, starting
from speclab.show import notebook
from speclab.analysis import atlas, choose, policy, prompt_sets
from speclab.analysis.texts import SEEDS, Text
from speclab.studies.budgets_and_routing import policies, recommendations, serving, synthetic

RUNS = ["greedy", "seeds", "others"]
READS = ["data/atlas"]

# %% [markdown]
# ## What is served
# We serve the recorded greedy texts under every *setting* (nothing, a chain, a static tree), at the
# costs that notebook 09 measured. **c** is a draft pass, **v(n)** a target pass over n tokens and
# **o** the loop's own time per block, all in target passes over one token. Run 09 first to get the
# costs of your machine.

# %%
ctx = notebook.start("14_serving", profile, overrides)
mix = serving.mix_of(mix, list(runs.sizes_of(ctx.profile)))
ctx.say(serving.mix_in_words(mix))
base = ctx.profile.replace(temperature=0.0)
limit = base.max_new_tokens

# %%
greedy = runs.load_or_record(base, "greedy")
trace = greedy.trace
costs, source = policy.costs_for(greedy, figures=ctx.figures.parent)
by_notebook_09 = policy.measured_for(greedy, ctx.figures.parent)
stamp = cost.stamp(costs)
ctx.say(notebook.made_with(greedy.manifest["pair"]))
ctx.say(f"The costs are {source}")

# %%
settings = recommendations.settings_up_to(max_gamma, budget)
counted = choose.block_counts(trace, settings, max_new_tokens=limit)

# %%
by_prompt = choose.prompt_costs(counted, settings, costs)
several = ctx.compares(stats.judged_domains(trace))

# %% [markdown]
# We compare four policies. **No drafting** (`never`) decodes plainly. **One setting for all**
# (`always`) is the best setting for the mix of requests. **A setting per domain** (`per-domain`)
# knows the domain of each request. **The oracle** knows each text in advance and is a bound. Each
# setting is chosen on other prompts than those that judge it.

# %%
judged = policies.judged_policies(by_prompt)
judged["always"] = serving.best_for_mix(by_prompt, mix)

# %% [markdown]
# ## 1. What does a stream of requests gain?
# Requests arrive as a **Poisson** process (at random, independently, at a constant mean rate) at a
# server that serves one request at a time. Prefill is left out. The **load** is the share of the
# time that a server without drafting would be busy.
#
# ### By hand: a queue
# The server begins a request when the request has arrived and the one before it is done. The
# request's latency is the time from its arrival until it is done.

# %% tags=["by-hand"]
rng = np.random.default_rng(0)
service = judged["never"].judged["cost"].to_numpy()  # target passes that each request takes
pauses = rng.exponential(service.mean() / load, len(service))
arrival = pauses.cumsum()
done, is_free_from = [], 0.0
for arrives, takes in zip(arrival, service, strict=True):
    begins = max(arrives, is_free_from)
    is_free_from = begins + takes
    done.append(is_free_from)
latency = np.array(done) - arrival
waits = latency > service + 1e-6

# %% tags=["by-hand"]
ctx.say(
    f"Without drafting a request takes {service.mean():.0f} target passes on average. At load "
    f"{load:g}, {100 * waits.mean():.0f} % of the requests have to wait, and the mean latency is "
    f"{latency.mean():.0f} target passes."
)

# %%
assert np.allclose(done, serving.finish_times(arrival, service))

# %% [markdown]
# ### Streams of the mix
# Each value is the mean of `streams` streams, and all policies serve the same streams. Latency
# includes waiting. Tokens per second count only the time of work. Intervals resample prompts and
# hold settings fixed.

# %%
served = serving.simulate(judged, mix, costs.target_ms, load, requests, streams)
result = serving.by_metric(served)
shown = policies.with_names(result)
ctx.table(result, "stream-by-policy", most=60, cells=shown.wide("policy", "metric"))
bound = served["oracle"]["tokens_per_s"] + 1e-9
assert all((one["tokens_per_s"] <= bound).all() for one in served.values.values())

# %%
saved = serving.by_metric(served, {"always": served["always"] / served["never"]})
rate = saved.at(metric="tokens_per_s")
ctx.plot(
    serving.as_drawn(result),
    x="policy",
    hue="bars",
    columns="metric",
    kind="bars",
    y="",
    x_label="",
    share_y=False,
    limits=(0, None),
    height=1.7,
    slug="stream",
    title=f"One setting for all serves {rate.value:.2f} times as many tokens per second as no "
    "drafting",
    stamp=stamp,
    caption="Tokens per second of work (more is better) and latency (less is better) of each "
    f"policy, simulated at load {load:g}. Bars: 95 % intervals.",
)

# %%
median = saved.at(metric="p50_s").in_units("%")
ctx.say(
    f"Drafting with one setting for all {serving.saved_in_words(rate)}. The median latency is "
    f"{median} of the median without drafting."
)

# %%
others = [name for name in served.values if name not in ("never", "always")]
ratios = {name: served[name] / served["always"] for name in others}
relative = serving.by_metric(served, ratios).in_units("x", 3)
compared = relative.at(policy=["per-domain", "oracle"] if several else ["oracle"])
cells = policies.with_names(compared).wide("policy", "metric")
ctx.table(compared, "relative-to-one-setting", cells=cells)
rates = policies.with_names(compared.at(metric="tokens_per_s"))
words = "higher with", "lower with", "not significantly different with", "policy"
said = rates.sentence(*words, than=1)
ctx.say(f"Compared with one setting for all, tokens per second are {said}.")

# %% [markdown]
# ## 2. At which batch size should drafting stop?
# With `batch` requests in one pass, a block verifies batch × (gamma + 1) tokens at once. Plain
# decoding already fills the machine with batch tokens. Batches are always full here, and their cost
# comes from c(n) and v(n). Passes beyond the largest measured pass continue in a straight line with
# the last slope. We also show an **assumed** accelerator, whose pass takes no longer until it holds
# `knee` tokens. The best setting is chosen on the prompts that judge it, which flatters it a bit.

# %%
kind = "measured" if by_notebook_09 else "assumed"
ours = f"{kind} costs, c = {costs.c():.2f}"
flat = f"assumed accelerator, v(n) = max(1, n / {knee})"
crowded = {ours: costs, flat: serving.flat_until(knee, assumed_c)}
crowd = serving.by_batch(counted, settings, crowded, batches)
ctx.export(crowd, "batches")

# %%
stops = {name: serving.batches_in_words(part) for name, part in crowd.groups("machine")}
ctx.plot(
    crowd,
    x="batch",
    only={"domain": [*served.prompts.domains]},
    columns="machine",
    kind="points",
    y="speed-up of the best drafting setting",
    x_label="requests per batch",
    reference=1,
    reference_name="plain decoding",
    slug="batches",
    title=f"At {kind} costs, {stops[ours]}",
    stamp=stamp,
    caption="Speed-up over plain decoding by batch size and domain, left at the "
    f"{kind} costs, right for the assumed accelerator. "
    "Below the line drafting slows the server. Bars: 95 % intervals.",
)

# %%
drawn = crowd.at(machine=ours).frame.query("domain != @stats.POOLED")
beyond = drawn["pass_tokens"] > costs.sizes[-1]
for name, said in stops.items():
    ctx.say(f"* {starting(name)}: {said}.")
if by_notebook_09 and beyond.any():
    ctx.say(
        f"{int(beyond.sum())} of {len(beyond)} values at measured costs are extrapolated, because "
        f"their pass has more than {costs.sizes[-1]} tokens."
    )

# %% [markdown]
# ## 3. What if the setting was chosen at another temperature?
# Settings chosen on greedy texts (T = 0) serve texts that were sampled at the profile's temperature
# (default 1) with three seeds. We compare them with settings chosen on such texts. Every resample
# of the prompts chooses again.

# %%
sampled = Text.recorded(ctx.profile, *SEEDS)

# %%
warm = policies.sampled_costs(sampled, settings, costs, limit)
chosen_at = {
    f"chosen at {sampled.name}": choose.fit(warm),
    "chosen at T = 0": choose.fit(by_prompt, paid=warm),
}
hot = choose.speeds(chosen_at)

# %%
of_sampled, of_greedy = (hot[name] for name in chosen_at)
lost = {"speed-up": of_greedy - of_sampled}
tables = {
    "times plain": hot.table(key="policy").frame,
    "difference": hot.table(lost, "policy").frame,
}
robust = Estimates(stack(tables, "quantity")).without(domain="all")

# %%
ctx.table(robust, "temperature", most=60, cells=robust.wide(["quantity", "policy"], "domain"))

# %%
change = robust.at(policy="speed-up", domain="pooled")
ctx.say(
    f"On texts sampled at {sampled.name}, settings chosen at T = 0 are "
    f"{policies.faster_or_slower(change)} than settings "
    f"chosen on such texts (change of the speed-up: {change})."
)

# %% [markdown]
# ## 4. What if other prompts come in?
# The settings were chosen on the profile's own prompts. Now the same settings serve a stream of the
# same mix from the other prompts that the profile names, if they have all of its domains. Nothing
# is chosen again. A setting per domain differs from one setting by another amount than in notebook
# 09, because here the mix of the requests counts. Notebook 09 also resamples the timing, so its
# intervals are wider.

# %%
ctx.say(prompt_sets.described(ctx.profile, is_sampled=False))

# %%
chosen = choose.setting_by_domain(by_prompt)
for_mix = choose.setting_by_domain(serving.weighed(by_prompt, mix))
chosen[choose.UNKNOWN] = for_mix[choose.UNKNOWN]
texts = prompt_sets.texts(ctx.profile, Text.recorded(base, "greedy"))
texts = prompt_sets.with_all_domains(texts)

# %%
streams_of = {prompt_sets.OWN: served}
for name, text in texts.items():
    if name != prompt_sets.OWN:
        replayed = choose.block_counts(text.trace, settings, max_new_tokens=limit)
        fixed = policies.elsewhere(chosen, choose.prompt_costs(replayed, settings, costs))
        streams_of[name] = serving.simulate(fixed, mix, costs.target_ms, load, requests, streams)

# %%
compared = {}
for name, draws in streams_of.items():
    pairs = {serving.SAVED: draws["always"] / draws["never"]}
    if several:
        pairs[serving.PER_DOMAIN] = draws["per-domain"] / draws["always"]
    compared[name] = serving.by_metric(draws, pairs, "policies")

# %%
compared = Estimates.stacked(compared, "set").in_units("x")
ctx.table(compared, "other-prompts", most=60, cells=compared.wide(["set", "policies"], "metric"))

# %% [markdown]
# ## 5. Is synthetic acceptance fair?
# Engines are often benchmarked with **synthetic acceptance**. The number of accepted tokens is then
# made up from its mean, and no draft is judged. The **fixed schedule** has the least variance
# (vLLM's `synthetic_acceptance_length`): a mean of 2.7 is two tokens always and a third with
# probability 0.7. **Independent draws** accept each token with one probability. **Shuffled passes**
# are real passes in random order, so that all requests are equally easy to draft. All three have
# the real mean. Benchmarks often use answers of one length, so we also cut the first answers of the
# requests to their median length, without the shorter ones.
#
# Each recorded request is served equally often. The server decodes up to `batch` requests at once,
# and real passes keep it busy for `load` of the time. Every pass takes equally long, so the ratios
# to real passes need no costs. We also serve `public_runs` from the atlas, made with Vicuna-7B on
# Spec-Bench.

# %%
logs = {ctx.profile.name: passes.of_replay(replay.replay(trace, gamma))}
methods = atlas.runs().set_index("run")["method"]
for run in public_runs:
    logs[methods[run]] = atlas.in_tasks(atlas.passes_of(run))
slots = batches[::3]
ratios, varied = synthetic.of_logs(logs, slots, load, requests, 2 * streams)
largest = ratios.at(batch=max(slots))

# %%
late = largest.at(answers=synthetic.EQUAL, acceptance=synthetic.FIXED, metric=synthetic.LATE)
ctx.plot(
    ratios,
    x="batch",
    hue="run",
    columns="answers",
    only={"metric": [synthetic.LATE], "acceptance": [synthetic.FIXED]},
    kind="points",
    y="95 % latency, fixed schedule / real",
    x_label="requests at once",
    reference=1,
    reference_name="real passes",
    slug="synthetic",
    title=f"At equal lengths the fixed schedule shows {late.span()} of the real 95 % latency",
    caption="95th-percentile latency with the fixed schedule over the latency with real passes, by "
    f"batch size, simulated at load {load:g}. Left, answers are cut to one length. Below the line "
    "the benchmark is too optimistic. Bars: 95 % intervals.",
)

# %%
ctx.say(synthetic.fairness_in_words(ratios, varied))

# %%
cells = largest.wide(["answers", "run", "metric"], "acceptance")
ctx.table(largest, "synthetic-over-real", most=18, cells=cells)

# %%
other = prompt_sets.farthest(texts) or prompt_sets.OWN
rate = compared.at(metric="tokens_per_s")
saved = rate.at(set=prompt_sets.OWN, policies=serving.SAVED)
few = recommendations.note_on_few(served.prompts)
per_domain = None
if several and not few:
    per_domain = rate.at(set=other, policies=serving.PER_DOMAIN)

# %%
said = serving.server_in_words(
    saved,
    per_domain,
    f"on {prompt_sets.after_on(other)}",
    "" if few else stops[ours],
    bool(by_notebook_09),
    recommendations.is_trusted(costs),
)
ctx.answer(f"{said}{few}")

# %% [markdown]
# ### Try it
# Predict the result first, then run the cell.
#
# 1. *A server that is nearly full.* Set `load` to 0.95. Which policy gains most, and in which
#    metric? <details><summary>Answer</summary>Latency. Tokens per second of work do not depend on
#    the load. But waiting grows without bound as a server comes near its limit, so a faster policy
#    shortens the queue far more than the service.</details>
# 2. *A larger machine.* Set `knee` to 256. At which batch size does drafting stop now?
#    <details><summary>Answer</summary>At about four times the batch size, because batch × (gamma +
#    1) is compared with the knee.</details>
#
# ### What we saw, what this does not show, what is next
# * The server is a model: no prefill, no memory limit, requests in order of arrival. Batches are
#   always full, and a packed pass over one text stands for a pass over several.
# * Texts are short. Intervals cover the choice of prompts at fixed costs. Another hour has other
#   costs (notebook 09 says how much two rounds of timed passes differ).
# * Section 5 keeps the time of a pass fixed. Its streams are short, and prefill is left out.
# * Energy was not measured.
# * Next: [10, wall clock](10_wall_clock.ipynb) takes the cost of a block apart.

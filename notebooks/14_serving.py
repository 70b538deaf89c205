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
# A server serves many requests with one machine: some wait while others are decoded, and some may
# be decoded together. So a faster block shortens the queue as well as the service, and a large
# batch leaves no room for drafts. A setting may also have been chosen at another temperature, or on
# other prompts than those that come in.
#
# ![Latency and tokens per second of each policy](../figures/smollm/14/stream.png)
#
# *Runs on* any machine; needs no model, its costs are of the machine where
# [09](09_budgets_and_routing.ipynb) was run last · *minutes* one · *reads* the runs `greedy`,
# `sampled` and two more seeds of the profile, and those of its other prompts, recorded if they are
# not there, and notebook 09's `policy.json` · *writes* `figures/<profile>/14/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
max_gamma: int = 8  # 1 to 64; the longest chain to choose from
budget: int = 8  # 1 to 64; nodes of the largest tree to choose from
# shares of the requests by domain, which sum to 1; {}: every domain equally often
mix: dict = {}  # 0 to 1
# share of the time that a server would be busy if it never speculated
load: float = 0.8  # 0.01 to 0.99
requests: int = 300  # 10 to 1000000; of a simulated stream,
streams: int = 12  # 2 to 10000; and how many streams a value is the mean of
# requests whose blocks are made together
batches: list = [1, 2, 4, 8, 16, 32, 64]  # 1 to 1024
# an assumed accelerator: tokens of a pass up to which it takes no longer than over one, and its c
knee: int = 64  # 1 to 100000
assumed_c: float = 0.1  # 0.0001 to 10

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

from speclab import runs, stats
from speclab.estimates import Estimates, stack
from speclab.show import notebook
from speclab.analysis import choose, policy, prompt_sets
from speclab.analysis.texts import SEEDS, Text
from speclab.studies.budgets_and_routing import policies, recommendations, serving

RUNS = ["greedy", "seeds", "others"]

# %% [markdown]
# ## What is served
# The recorded greedy texts, each under every *setting* (nothing, a chain, a static tree), at the
# costs that notebook 09 measured: **c** is a draft pass, **v(n)** a target pass over n tokens,
# **o** the loop's own time, in target passes over one token. Run 09 first for your machine's.

# %%
ctx = notebook.start("14_serving", profile, overrides)
mix = serving.mix_of(mix, list(runs.sizes_of(ctx.profile)))
ctx.say(serving.mix_in_words(mix))
base = ctx.profile.replace(temperature=0.0)
limit = base.max_new_tokens

# %%
greedy = runs.load_or_record(base, "greedy")
trace = greedy.trace
costs, priced = policy.costs_for(greedy, figures=ctx.figures.parent)
by_notebook_09 = policy.measured_for(greedy, ctx.figures.parent)
machine = f"in {by_notebook_09.device}" if by_notebook_09 else "at assumed prices"
ctx.say(notebook.made_with(greedy.manifest["pair"]))
ctx.say(f"The prices are {priced}")

# %%
settings = recommendations.settings_up_to(max_gamma, budget)
counted = choose.block_counts(trace, settings, max_new_tokens=limit)

# %%
by_prompt = choose.prompt_costs(counted, settings, costs)
several = ctx.compares(stats.judged_domains(trace))

# %% [markdown]
# The policies: **never** drafts nothing; **always** drafts by the one setting that is best for the
# mix of requests; **per-domain** by the setting of each request's domain; the **oracle** knows each
# text in advance, a bound. Each setting is chosen on other prompts than it is judged on.

# %%
judged = policies.judged_policies(by_prompt)
judged["always"] = serving.best_for_mix(by_prompt, mix)

# %% [markdown]
# ## 1. What does a stream of requests gain?
# Requests arrive as a **Poisson** process (at random, each independent of the others, at a constant
# mean rate) at a server that serves one at a time; prefill is left out. `load`: a server that never
# speculates would be busy that share of the time.
#
# ### By hand: a queue
# A request is done after the later of its arrival and the end of the one before, plus its service
# time; its latency is what it takes from its arrival on.

# %%
rng = np.random.default_rng(0)
service = judged["never"].judged["cost"].to_numpy()
arrival = rng.exponential(service.mean() / load, len(service)).cumsum()

# %%
done, free_from = [], 0.0
for came, takes in zip(arrival, service, strict=True):
    free_from = max(came, free_from) + takes
    done.append(free_from)
assert np.allclose(done, serving.finish_times(arrival, service))

# %% [markdown]
# ### Streams of the mix
# Each value is the mean of `streams` streams; all policies serve the same streams. `p50_s` and
# `p95_s` are latencies, waiting included; `tokens_per_s` counts the time of work only. Intervals
# resample prompts; settings are held fixed in them.

# %%
served = serving.simulate(judged, mix, costs.target_ms, load, requests, streams)
result = serving.by_metric(served)
ctx.table(result, "stream-by-policy", rows=60, cells=result.wide("policy", "metric"))
bound = served["oracle"]["tokens_per_s"] + 1e-9
assert all((one["tokens_per_s"] <= bound).all() for one in served.values.values())

# %%
others = [name for name in served.values if name not in ("never", "always")]
ratios = {name: served[name] / served["always"] for name in others}

# %%
relative = serving.by_metric(served, ratios)
shown = ["per-domain", "oracle"] if several else ["oracle"]
ctx.plot(
    relative.at(policy=shown),
    x="metric",
    hue="policy",
    kind="points",
    y="relative to 'always'",
    reference=1,
    slug="stream",
    caption="Tokens per second of work (more is better), and latency in the median and at 95 % "
    f"(less is better), at load {load:g}, relative to one setting for the mix, {machine}.",
)

# %%
rate = relative.at(metric="tokens_per_s", policy=shown)
ctx.say(f"Tokens per second compared with 'always'. {serving.rates_in_words(rate)}")

# %%
saved = serving.by_metric(served, {"always": served["always"] / served["never"]})

# %%
ctx.say(
    f"'Always' divided by never drafting: tokens per second {saved.at(metric='tokens_per_s')}, "
    f"median latency {saved.at(metric='p50_s')}, 95th percentile {saved.at(metric='p95_s')}."
)

# %% [markdown]
# ## 2. At which batch size must drafting stop?
# With `batch` requests in one pass, a block verifies batch × (gamma + 1) tokens at once, and plain
# decoding already fills the machine with batch tokens. Batches are always full here and are priced
# with c(n) and v(n); passes beyond the largest measured one lie on a straight line with the last
# slope. Beside these costs an **assumed** accelerator, whose pass takes no longer until it holds
# `knee` tokens. The best setting is chosen on the prompts that judge it (slightly flattering).

# %%
ours = f"priced at c = {costs.c():.2f}"
flat = f"assumed: v(n) = max(1, n / {knee})"
crowded = {ours: costs, flat: serving.flat_until(knee, assumed_c)}
crowd = serving.by_batch(counted, settings, crowded, batches)
ctx.export(crowd, "batches")

# %%
ctx.plot(
    crowd,
    x="batch",
    only={"domain": [*served.prompts.domains]},
    columns="machine",
    kind="points",
    y="speed-up, best drafting setting",
    reference=1,
    slug="batches",
    caption=f"Speed-up by batch ({crowd.span()}; {machine}). Below the line drafting slows the "
    "server.",
)

# %%
stops = {name: serving.batches_in_words(part) for name, part in crowd.groups("machine")}

# %%
beyond = crowd.at(machine=ours).frame["pass_tokens"] > costs.sizes[-1]
for name, said in stops.items():
    ctx.say(f"* Over all prompts, {name}: {said}.")
ctx.say(f"{int(beyond.sum())} of {len(beyond)} values {ours} are extrapolated.")

# %% [markdown]
# ## 3. What if it was chosen at another temperature?
# Settings chosen on greedy texts (T = 0) serve texts that were sampled at the profile's temperature
# (default 1), of three seeds, beside settings chosen on such texts. Every resample of the prompts
# chooses again.

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
tables = {"times plain": hot.table(key="policy"), "difference": hot.table(lost, "policy")}
robust = Estimates(stack(tables, "quantity"), digits=3).without(domain="all")

# %%
ctx.table(robust, "temperature", rows=60, cells=robust.wide(["quantity", "policy"], "domain"))

# %%
change = robust.at(policy="speed-up", domain="pooled")
words = {
    stats.ABOVE: "is higher",
    stats.BELOW: "is lower",
    stats.UNDEFINED: "differs by a number without interval",
}
words = words.get(change.verdict(), "is not significantly different")
ctx.say(
    f"Over all prompts the speed-up at {sampled.name} of a choice made at T = 0 {words}: {change}."
)

# %% [markdown]
# ## 4. What if other prompts come in?
# The settings were chosen on the profile's own prompts. Now the same settings serve a stream of the
# same mix from the other prompts that the profile names, if they have all of its domains. Nothing
# is chosen again. (Here the costs are fixed and the mix counts; notebook 09 also resamples the
# clock, and its intervals are wider.)

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
    pairs = {"always / never": draws["always"] / draws["never"]}
    if several:
        pairs["per-domain / always"] = draws["per-domain"] / draws["always"]
    compared[name] = serving.by_metric(draws, pairs, "policies")

# %%
compared = Estimates.stacked(compared, "set")
ctx.table(compared, "other-prompts", rows=60, cells=compared.wide(["set", "policies"], "metric"))

# %%
rate = compared.at(metric="tokens_per_s")
gained = rate.at(policies="always / never")
by_domain = rate.at(policies="per-domain / always") if several else None
if len(texts) > 1:
    ctx.say(f"Drafting with one setting multiplies tokens per second by {gained.listed('set')}.")
if by_domain and len(texts) > 1:
    ctx.say(f"A setting per domain then multiplies them by {by_domain.listed('set')}.")

# %%
unsure, in_batches = "", stops[ours]
if not recommendations.is_trusted(costs):
    unsure, in_batches = f" ({recommendations.REFUSED})", "there is no verdict on speed"
other = prompt_sets.farthest(texts)

# %%
answer = (
    f"On `{base.name}`, {machine}, at c = {costs.c():.2f}{unsure}, drafting with one setting "
    f"multiplies tokens per second by {saved.at(metric='tokens_per_s')}"
)
if other:
    answer += f", on the prompts of {prompt_sets.in_sentence(other)} by {gained.at(set=other)}"
answer += ". "
if several:
    best = relative.at(policy="per-domain", metric="tokens_per_s")
    there = f", there by {by_domain.at(set=other)}" if other else ""
    answer += f"A setting per domain multiplies this by {best}{there} (prices held fixed). "
few = recommendations.note_on_few(served.prompts)
ctx.answer(f"{answer}In full batches {in_batches}.{few}")

# %% [markdown]
# ### Try it
# 1. *A server that is nearly full.* Set `load` to 0.95. Which policy gains most, and in which
#    metric? <details><summary>Answer</summary>Latency: tokens per second of work do not depend on
#    the load, but waiting grows without bound as a server comes near its limit, so a faster policy
#    shortens the queue far more than the service.</details>
# 2. *A larger machine.* Set `knee` to 256. At which batch does drafting stop now?
#    <details><summary>Answer</summary>About four times as late: what counts is batch × (gamma + 1)
#    against the knee.</details>
#
# ### What we saw, what this does not show, what is next
# * The server is a model: no prefill, no memory limit, no scheduler but first come first served;
#   batches are always full, and a packed pass over one text stands for one over several.
# * Texts are short. Intervals are of prompts at fixed costs: another hour has other costs
#   (notebook 09 says how much two rounds of timed passes differ).
# * Energy was not measured.
# * Next: [10, wall clock](10_wall_clock.ipynb) takes the cost of a block apart.

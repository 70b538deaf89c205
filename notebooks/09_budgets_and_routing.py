# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 9. How many tokens should be drafted for which prompts, and does the predicted speed-up hold?
#
# A longer draft emits more tokens per block and costs more. Which length is best depends on how
# often the target accepts, and on what a block costs on the machine. So we choose a *setting* for
# each domain and write it to a small file, a *policy*. Then we ask three things of it. Does the
# measured speed-up match the prediction? Does a setting per domain gain anything over one setting
# for all? And is the policy still good on prompts that it was not made from?
#
# ![Speed-up of each policy, by domain](../figures/smollm/09/policies.png)
#
# *Runs on* any machine; what is 'measured here' speaks of that machine · *minutes* two or three ·
# *reads* the runs `greedy` of the profile and of its other prompts, recorded if they are not there,
# `data/routing`, and loads the pair · *writes* `figures/<profile>/09/`, among them `policy.json`
# for `python -m speclab decode --policy FILE`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
max_gamma: int = 8  # 1 to 64; the longest chain to choose from
budget: int = 8  # 1 to 64; nodes of the largest tree to choose from
# how far a promised speed-up may be off and still be kept
cost_margin: float = 0.1  # 0 to 1
# how the policy finds a domain: classifier (where the prompts have the domains that it was trained
# on), or none (the prompt says it)
router: str = "classifier"  # one of classifier, none
pass_repeats: int = 15  # 3 to 1000; of each single pass, in each of two rounds
pass_tries: int = 3  # 1 to 100; more rounds while the clock is disturbed
# decoded to learn what the loop takes
probes: list = ["chain:1", "chain:3", "tree:2,2,3", "tree:3,2,8"]  # any
probe_prompts: int = 2  # 1 to 1000; per domain, and at least four in all
# others are decoded plainly and by the policy, in swapped orders
check_prompts: int = 3  # 1 to 1000; per domain, and at least five in all,
check_repeats: int = 2  # 1 to 100; this many times
# whose flags end the notebook
engine: str = "vllm"  # one of vllm, sglang, llama.cpp, transformers, tensorrt-llm

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
import pandas as pd

from speclab import prompts, runs, stats
from speclab.shapes import parse_shape
from speclab.estimates import Estimates, stack, starting
from speclab.models import pairs, timing
from speclab.show import drawings, notebook
from speclab.analysis import choose, policy, prompt_sets
from speclab.analysis.texts import Text
from speclab.explore import page
from speclab.ops import export
from speclab.studies.budgets_and_routing import policies, promise, recommendations

RUNS = ["greedy", "others"]

# %% [markdown]
# ## What is replayed, and what a block costs
# A *setting* is what may be drafted in a block: nothing (`plain`), a chain (`chain:3`: three tokens
# in a row), or a static tree (`tree:2,3,4`: two levels, up to three guesses a position, four nodes
# in all). A lossless text is the same under every setting, so we count the blocks that each one
# makes of the recorded texts.

# %%
ctx = notebook.start("09_budgets_and_routing", profile, overrides)
base = ctx.profile.replace(temperature=0.0)
limit = base.max_new_tokens
greedy = runs.load_or_record(base, "greedy")

# %% tags=["timed"]
trace = greedy.trace
pair = pairs.load_pair(base)
machine = notebook.formats(pair.facts)
ctx.say(notebook.made_with(greedy.manifest["pair"], pair.facts))

# %%
settings = recommendations.settings_up_to(max_gamma, budget)
counted = choose.block_counts(trace, settings, max_new_tokens=limit)
assert (counted.groupby("setting")["emitted"].sum() == len(trace)).all()

# %% [markdown]
# Some prompts are decoded for real: for the loop's own time, and, others, to check the prediction.
# They are spread evenly over each domain. (Prompts that had a say in the draft's training are left
# out: the profile's notes name them.)

# %%
known = runs.profile_prompts(base)
encoded = runs.encoded_prompts(base)
first = base.notes.decoded_from
probed = prompts.decoded_prompts(encoded, probe_prompts, first, least=4)

# %%
others = [prompt for prompt in encoded if prompt not in probed]
if len(others) < stats.MIN_PROMPTS:
    others = encoded
    ctx.say("There are few prompts, so those that show the loop's time check the prediction too.")
checked = prompts.decoded_prompts(others, check_prompts, first, least=stats.MIN_PROMPTS)

# %% [markdown]
# A block costs gamma c + v(gamma + 1) + o target passes: **c** is a draft pass, **v(n)** a target
# pass over n tokens, both in units of a target pass over one; **o** is what a decoded block took
# beyond its passes, in units of a plainly decoded token. A tree makes one draft pass per level. We
# time the passes in random order in two rounds, one before and one after some prompts are decoded.
# If the cost of a block differs by more than 15 % between the rounds, or if a pass over several
# tokens takes less than 0.97 of one over a single token, the clock is disturbed and we time another
# round. This looks at the clock only, never at what the costs lead to.

# %% tags=["timed"]
context = int(np.median([len(prompt.ids) for prompt in encoded])) + limit // 2
shapes = {name: parse_shape(name) for name in probes}
clock = timing.measured(
    pair, probed, shapes, limit, timing.SIZES, context, pass_repeats, pass_tries
)

# %%
costs = clock.costs
ctx.say(promise.in_words(clock))
by_prompt = choose.prompt_costs(counted, settings, costs)

# %% [markdown]
# What the clock leaves uncertain belongs into every interval of a speed. So the timed passes are
# resampled as well: one of the two rounds, and its repeats, drawn with replacement.

# %%
clocks = [choose.prompt_costs(counted, settings, drawn) for drawn in clock.resampled()]

# %% [markdown]
# ## 1. What should be drafted for which domain?
# ### By hand: the best gamma of a domain
# The speed-up over plain decoding is the tokens over the cost of their blocks. Near the end of a
# text fewer `levels` are drafted, and a block without a draft is a plain pass.

# %%
chains = counted[counted["setting"].str.startswith("chain:")]
gamma = chains["levels"]
block = gamma * costs.c() + gamma.map(lambda n: costs.v(n + 1)) + costs.overhead

# %%
spent = chains["blocks"] * block.where(gamma > 0, 1.0)
by = [chains["domain"], chains["setting"]]
speedup = chains["emitted"].groupby(by, sort=False).sum() / spent.groupby(by).sum()
by_hand = speedup.unstack("setting")[list(chains["setting"].unique())]

# %%
drafted = {name: settings[name] for name in by_hand.columns}
by_kit = choose.best_setting(choose.prompt_costs(counted, drafted, costs), n=100)
by_kit = by_kit.pivot(index="domain", columns="setting", values="speedup")
assert np.allclose(by_hand, by_kit.loc[by_hand.index, by_hand.columns])

# %%
notebook.show_table(by_hand.idxmax(axis=1).rename("best chain").reset_index())

# %% [markdown]
# ### All settings
# A speed-up is flattered if the setting is chosen on the prompts that judge it. So it is
# **cross-fitted**: each prompt is judged by the setting that was fastest on *other* prompts of its
# domain. `share_best`: how often a setting stays the fastest when prompts are resampled; a small
# share means that several settings are about as fast. `speculate`: yes or no where the whole
# interval lies above or below 1. Each resample chooses again and draws the clock again.

# %%
own = {"own": choose.fit(by_prompt)}
speeds = recommendations.with_clock(choose.speeds(own), own, clocks)
advice = recommendations.recommend(by_prompt, costs, speeds)
ctx.export(advice, "recommendations")
keys = ["domain", "setting", "share_best", "speculate"]

# %%
shown = Estimates(advice.frame.assign(of="speed-up")).wide(keys, "of")
notebook.show_table(shown, digits=2)

# %%
# Any other machine: drag c, v and o. (A headless run shows the table above only.)
page.show("machine", runs=[greedy])

# %% [markdown]
# ## 2. Does a policy give what it promised?
# ### The policy: a small file
# A setting for each domain and a default for prompts of no known domain, the pair and the machine
# it was made for, and how a prompt's domain is found. It is refused for another pair.

# %%
chosen = choose.setting_by_domain(by_prompt)
classifier = policy.classifier()
if router == "classifier" and {*classifier.domains} != {*chosen} - {choose.UNKNOWN}:
    router = "none"
    ctx.say(
        "The kit's classifier was trained on other categories, so it is not asked: the policy "
        "takes the domain that a prompt names."
    )

# %%
made = policy.Policy(
    pair=runs.pair_digests(base),
    device=machine,
    costs=costs,
    default=chosen.pop(choose.UNKNOWN),
    domains=chosen,
    router=router,
    run=greedy.manifest["key"],
)
policy.write_policy(made, ctx.figures / "policy.json")

# %%
plan = policy.load(ctx.figures / "policy.json", runs.pair_digests(base))
assert plan == made

# %% [markdown]
# ### Does the clock agree?
# The checked prompts are decoded plainly and by the policy, in swapped orders, from the same
# prefill to the same last token. The decoder's blocks and tokens must be the replay's, exactly (in
# float32 on the CPU).

# %% tags=["timed"]
decoded = promise.decoded_by(pair, plan, known, checked, limit, check_repeats)

# %%
each = promise.with_promise(decoded, by_prompt)
wrong = int(each["differs"].sum())
ctx.say(f"Replayed against decoded: **{wrong} of {len(each)} prompts differ**.")
assert wrong == 0 or not pair.is_exact

# %% [markdown]
# The prediction is the cost of the same blocks at the costs above. It is *kept* if measured over
# predicted speed lies within `cost_margin` of 1 with all of its interval. Acceptance cancels
# there; what is left is the cost of a block. The intervals resample the checked prompts and the
# repeats; the ratio's interval also resamples the passes that the prediction was made from.

# %%
seconds = timing.drawn_seconds(promise.promised_seconds(decoded, each))
setting = dict(zip(each["prompt_id"], each["setting"], strict=True))
here = by_prompt.judged(setting)["cost"].sum()
drawn = np.array([clock.judged(setting)["cost"].sum() for clock in clocks])

# %%
reached = seconds["promised"] / seconds["policy"]
number = recommendations.drawn_clocks(len(reached) - 1, len(clocks))
reached.iloc[1:] *= drawn[number] / here

# %%
ratios = pd.DataFrame({"measured": seconds["plain"] / seconds["policy"], "ratio": reached})
ratios = timing.intervals(ratios, "of", len(each), digits=3)
measured, ratio = ratios.at(of="measured"), ratios.at(of="ratio")
promised = float(seconds["plain"][0] / seconds["promised"][0])
outcome = promise.kept(next(ratio.rows()), cost_margin, costs)

# %%
ctx.export(each, "check")
ctx.say(
    f"Measured speed-up **{measured}**, predicted {promised:.3f}, ratio {ratio}. The prediction, "
    f"to within {cost_margin:.0%}: **{outcome}** ({len(each)} prompts, on this machine, in "
    f"{machine}, once)."
)

# %%
ctx.draw(
    drawings.draw_check,
    each,
    "check",
    caption="Measured speed-up of each checked prompt against the predicted one. On the line both "
    f"are equal. All together: measured {measured}, predicted {promised:.3f} ({machine}).",
)

# %% [markdown]
# ## 3. Is it worth knowing the domain?
# Policies that differ in what they know of a prompt:
#
# * **always** drafts by one setting for everybody, the best for all prompts;
# * **per-domain** knows the true domain;
# * **classifier** (where the policy asks it) reads the domain from the prompt's text, by logistic
#   regression on counted words. Where the classifier is not sure, the prompt gets the default;
# * the **oracle** gives each text its own best setting: a bound that no router passes.

# %%
routes = {}
if plan.router == "classifier":
    found_by = classifier.routes([prompt.text for prompt in known])
    ids = [prompt.prompt_id for prompt in known]
    routes["classifier"] = dict(zip(ids, found_by, strict=True))

# %% [markdown]
# Every resample of the prompts chooses the settings again, and draws the clock again.

# %%
judged = policies.judged_policies(by_prompt, routes)
ours = recommendations.with_clock(choose.speeds(judged), judged, clocks)
speedups = Estimates(ours.table(key="policy"), digits=3)
speedups = speedups.without(policy="never", domain="all")

# %%
several = ctx.compares(stats.judged_domains(trace))
ctx.table(speedups, "policies", rows=60, cells=speedups.wide("policy", "domain"))
ctx.plot(
    speedups,
    x="domain",
    hue="policy",
    kind="points",
    y="predicted speed-up, this machine",
    slug="policies",
    caption="Speed-up by policy and domain (T = 0, replayed, costs measured here in "
    f"{machine}): from {speedups.span()}.",
)

# %% [markdown]
# Over all prompts, how far is each ahead of 'always'?

# %%
pooled = {
    name: ours[name]["pooled"] - ours["always"]["pooled"]
    for name in ("per-domain", *routes, "oracle")
}
ahead = Estimates(ours.table(pooled, "policy"), digits=3)

# %%
words = "faster with", "slower with", "no significant difference with"
verdicts = ahead.sentence(*words, names="policy")
ctx.say(f"Compared with 'always': {verdicts}. Differences in speed-up: {ahead.listed('policy')}.")
assert ahead.at(policy="oracle").value >= ahead.frame["estimate"].max() - 1e-9

# %% [markdown]
# The **gain** is how much faster each domain's own setting is than one for all, over all prompts,
# both chosen on other prompts than they are judged on.

# %%
times_as_fast = ours["per-domain"]["pooled"] / ours["always"]["pooled"]
percent = {"per-domain": 100 * (times_as_fast - 1)}
gain = Estimates(ours.table(percent, "policy"), digits=1)
if several:
    ctx.say(f"A setting per domain instead of one for all gains {gain} %.")

# %% [markdown]
# ## 4. Does the policy carry over to other prompts?
# The policy was made from the profile's own prompts. Here the same file serves the other prompts
# that the profile names, if they have all of its domains. Nothing is chosen again. The mean of the
# domains counts, because the sets hold other numbers of prompts of each.

# %%
ctx.say(prompt_sets.described(ctx.profile, is_sampled=False))

# %%
texts = prompt_sets.texts(ctx.profile, Text.recorded(base, "greedy"))
texts = prompt_sets.with_all_domains(texts)
fixed = plan.domains | {choose.UNKNOWN: plan.default}
there = {}
for name, text in texts.items():
    replayed = choose.block_counts(text.trace, settings, max_new_tokens=limit)
    served = policies.elsewhere(fixed, choose.prompt_costs(replayed, settings, costs))
    other = [choose.prompt_costs(replayed, settings, drawn) for drawn in clock.resampled(50)]
    there[name] = recommendations.with_clock(choose.speeds(served), served, other)

# %% [markdown]
# For the profile's own prompts the policies of section 3 stand in this table, each prompt judged by
# a setting that other prompts chose. The gain is `per-domain` over `always`, in percent.

# %%
there[prompt_sets.OWN] = ours
carried, gains = {}, {}
for name, draws in there.items():
    by_policy = {one: draws[one] for one in ("always", "per-domain")}
    carried[name] = draws.table(by_policy, "policy")
    more = draws["per-domain"]["all"] / draws["always"]["all"]
    gains[name] = draws.table({"gain": 100 * (more - 1)}, "of")

# %%
carried = stack(carried, "set").query("domain != 'pooled'")
places = zip(carried["set"], carried["domain"], strict=True)
is_new = [where == "all" or prompt_sets.is_new(name, where) for name, where in places]
carried = Estimates(carried[is_new].reset_index(drop=True))
gains = Estimates(stack(gains, "set"), digits=1)
ctx.export(carried, "other-prompts")
ctx.export(gains, "other-gains")
by_set = carried.at(policy="per-domain").wide("set", "domain")
notebook.show_table(by_set.fillna(""))

# %%
if len(texts) > 1:
    ctx.plot(
        carried,
        x="domain",
        only={"set": [*carried.without(set=prompt_sets.ENGLISH).frame["set"].unique()]},
        hue="set",
        columns="policy",
        kind="points",
        y="predicted speed-up, this machine",
        x_label="",
        reference=1,
        slug="other-prompts",
        caption="Predicted speed-up of the same policy on each set of prompts (1: plain decoding), "
        "with one setting for all (left) and one per domain (right). Bars: 95 % intervals. Costs: "
        f"{machine}.",
    )

# %%
mean = carried.at(policy="per-domain", domain="all")
ctx.say(f"**The speed-up of the policy**, mean of the domains: {mean.listed('set')}.")
if several:
    said = gains.sentence("faster on", "slower on", "no significant difference on", "set")
    ctx.say(
        f"A setting per domain compared with one setting for all. {starting(said)}. Gain in "
        f"percent: {gains.listed('set')}."
    )

# %%
other = prompt_sets.farthest(texts)
agrees = {
    "kept": "The clock agrees with the prediction",
    "not kept": "The clock disagrees with the prediction",
}.get(outcome, "Whether the clock agrees with the prediction is inconclusive")
elsewhere = there = ""
if other:
    named = prompt_sets.in_sentence(other)
    elsewhere = f", and {mean.at(set=other)} times on the prompts of {named}"
    there = f", {gains.at(set=other)} % on the prompts of {named}"
verdict = (
    f"In {machine} the policy is predicted to decode {mean.at(set=prompt_sets.OWN)} times as fast "
    f"as plain decoding on its own prompts{elsewhere}. {agrees} (to within {cost_margin:.0%})."
)
if not recommendations.is_trusted(costs):
    verdict = "There is no verdict on speed, since another program disturbed the clock."

# %%
if several:
    own = gains.at(set=prompt_sets.OWN)
    verdict += f" A setting per domain gains {own} % over one for all{there}."
if several or recommendations.is_trusted(costs):
    verdict += recommendations.note_on_few(ours.prompts)
ctx.answer(f"{verdict} This is `{base.name}` at c = {costs.c():.2f}.")

# %% [markdown]
# ### The line for your server
# Other engines draft chains, the same for everybody, so it is the smallest gamma that is not
# significantly slower than the fastest. Elsewhere: `python -m speclab export RUN --for ENGINE`.

# %%
gamma, why = choose.best_gamma(trace, costs, "greedy", limit)
refused = export.why_not(greedy, engine)
print(why, refused or export.commands(greedy, engine, gamma), sep="\n")

# %% [markdown]
# ### Try it
# 1. *An expensive draft.* In the page of section 1 drag c to 0.6 and to 0.9: where does a draft
#    still pay? <details><summary>Answer</summary>Where the best setting is still a chain or a tree.
#    With c high enough the best setting is `plain` everywhere.</details>
# 2. *Take the policy to the command line.* `python -m speclab decode --policy
#    figures/PROFILE/09/policy.json --prompts FILE --out OUT`; then the same with the profile of
#    another pair. <details><summary>Answer</summary>The second is refused: a policy carries digests
#    of both models' weights, because acceptance is a pair's own.</details>
#
# ### What we saw, what this does not show, what is next
# * The best setting follows the cost of a block and the prompt set: see the table of section 1.
#   Section 4 says what the same policy is worth on other prompts, if the profile names some.
# * The numbers are one pair's on one machine. Intervals hold the choice of prompts and what two
#   rounds of timed passes differ by, within minutes; another hour may differ by more.
# * Next: [10, wall clock](10_wall_clock.ipynb) takes the cost of a block apart;
#   [14, serving](14_serving.ipynb) asks what a
#   server with a mix of requests gains.

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
# A longer draft emits more tokens per block but costs more. The best length depends on how often
# the target accepts, and on what a block costs on the machine. So we choose a *setting* for each
# domain and write it to a small file, a *policy*. Then we ask three questions. Does the measured
# speed-up match the prediction? Does a setting per domain gain anything over one setting for all?
# And does the policy work on prompts that it was not made from?
#
# ![Gain of each policy over one setting for all, by domain](../figures/smollm/09/policies.png)
#
# *Runs on* any machine; what is 'measured here' holds for that machine · *minutes* two or three ·
# *reads* the runs `greedy` of the profile and of its other prompts, recorded if they are not there,
# `data/routing`, and loads the pair · *writes* `figures/<profile>/09/`, among them `policy.json`
# for `python -m speclab decode --policy FILE`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
max_gamma: int = 8  # 1 to 64; the longest chain to choose from
budget: int = 8  # 1 to 64; nodes of the largest tree to choose from
# how far the measured speed-up may be from the predicted one, as a share
cost_margin: float = 0.1  # 0 to 1
# how the policy finds a prompt's domain: classifier (if the prompts have the domains on which it
# was trained), or none (the prompt names it)
router: str = "classifier"  # one of classifier, none
pass_repeats: int = 15  # 3 to 1000; how often each pass is timed, in each of two rounds
pass_tries: int = 3  # 1 to 100; at most so often a round follows while timing is unreliable
# shapes that are decoded to measure the loop's own time
probes: list = ["chain:1", "chain:3", "tree:2,2,3", "tree:3,2,8"]  # any
probe_prompts: int = 2  # 1 to 1000; prompts per domain for it, and at least four in all
# other prompts, which are decoded plainly and by the policy, in swapped orders
check_prompts: int = 3  # 1 to 1000; per domain, and at least five in all
check_repeats: int = 2  # 1 to 100; how often
# the engine whose options end the notebook
engine: str = "vllm"  # one of vllm, sglang, llama.cpp, transformers, tensorrt-llm

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
import pandas as pd

from speclab import cost, prompts, runs, stats
from speclab.shapes import parse_shape
from speclab.estimates import Estimates, stack
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
# A *setting* says what may be drafted in a block: nothing (`plain`), a chain (`chain:3`: three
# tokens in a row), or a static tree (`tree:2,3,4`: two levels, up to three guesses per position,
# four nodes in all). A lossless text is the same under every setting, so we count the blocks that
# each setting makes of the recorded texts.

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
# A block costs gamma c + v(gamma + 1) + o target passes. **c** is the time of a draft pass, and
# **v(n)** the time of a target pass over n tokens, both in target passes over one token. **o** is
# what a decoded block takes beyond its passes, in units of a plainly decoded token. A tree makes
# one draft pass per level.
#
# We decode some prompts to measure o, and other prompts to check the prediction. They are evenly
# spaced within each domain, without prompts that had a say in the draft's training.

# %%
known = runs.profile_prompts(base)
encoded = runs.encoded_prompts(base)
first = base.notes.decoded_from
probed = prompts.decoded_prompts(encoded, probe_prompts, first, least=4)

# %%
others = [prompt for prompt in encoded if prompt not in probed]
if len(others) < stats.MIN_PROMPTS:
    others = encoded
    ctx.say("There are few prompts, so the same prompts measure o and check the prediction.")
checked = prompts.decoded_prompts(others, check_prompts, first, least=stats.MIN_PROMPTS)

# %% [markdown]
# We time the passes in random order in two rounds, before and after some prompts are decoded.
# Timing is **unreliable** if the cost of a block differs by more than 15 % between the rounds. It
# is also unreliable if a pass over several tokens takes less than 0.97 of a pass over one token.
# Then we time another round. This rule looks at the timing only, never at what the costs lead to.

# %% tags=["timed"]
context = int(np.median([len(prompt.ids) for prompt in encoded])) + limit // 2
shapes = {name: parse_shape(name) for name in probes}
clock = timing.measured(
    pair, probed, shapes, limit, timing.SIZES, context, pass_repeats, pass_tries
)

# %%
costs = clock.costs
refused = cost.disturbed(costs)
notebook.show_table(promise.in_rounds(clock))
ctx.say(f"{cost.loop_in_words(costs)} {refused}")
by_prompt = choose.prompt_costs(counted, settings, costs)

# %% [markdown]
# Intervals of a speed include the uncertainty of timing. Each resample takes one of the two rounds
# and draws its repeats again, with replacement.

# %%
clocks = [choose.prompt_costs(counted, settings, drawn) for drawn in clock.resampled()]

# %% [markdown]
# ## 1. What should be drafted for which domain?
# ### By hand: the best gamma of a domain
# The speed-up of a chain over plain decoding is the number of tokens divided by the cost of the
# blocks. The column `levels` counts the tokens drafted in a row, which are fewer near the end of a
# text. A block without a draft costs one plain pass.

# %% tags=["by-hand"]
chains = counted[counted["setting"].str.startswith("chain:")]
speedups = {}
for (domain, setting), rows in chains.groupby(["domain", "setting"], sort=False):
    gamma = rows["levels"]
    cost_of_block = gamma * costs.c() + costs.v(gamma + 1) + costs.overhead
    cost_of_block[gamma == 0] = 1  # a plain pass
    total_cost = (rows["blocks"] * cost_of_block).sum()
    speedups[domain, setting] = rows["emitted"].sum() / total_cost

# %% tags=["by-hand"]
by_hand = pd.Series(speedups).unstack(sort=False)
best = by_hand.idxmax(axis="columns")
notebook.show_table(by_hand.assign(best=best).rename_axis("domain").reset_index(), digits=2)

# %%
drafted = {name: settings[name] for name in by_hand.columns}
by_kit = choose.best_setting(choose.prompt_costs(counted, drafted, costs), n=100)
by_kit = by_kit.pivot(index="domain", columns="setting", values="speedup")
assert np.allclose(by_hand, by_kit.loc[by_hand.index, by_hand.columns])

# %% [markdown]
# ### All settings
# A setting looks too good on the prompts that chose it. So speed-ups are **cross-fitted**: each
# prompt is judged by the setting that was fastest on *other* prompts of its domain. The column `how
# often best` is the share of resamples in which the setting is the fastest. A small share means
# that several settings are about equally fast. `faster than plain` says where the whole interval
# lies above or below 1. Each resample chooses the setting again and draws the timing again.

# %%
own = {"own": choose.fit(by_prompt)}
speeds = recommendations.with_clock(choose.speeds(own), own, clocks)
advice = recommendations.recommend(by_prompt, costs, speeds)
ctx.export(advice, "recommendations")

# %%
keys = {"setting": "best setting", "share_best": "how often best"}
keys |= {"speculate": "faster than plain"}
named = Estimates(advice.frame.assign(of="speed-up").rename(columns=keys)).in_units("x")
notebook.show_table(named.wide(["domain", *keys.values()], "of"), digits=2)

# %%
# Any other machine: drag c, v and o. (A headless run shows the table above only.)
page.show("machine", runs=[greedy])

# %% [markdown]
# ## 2. Does the measured speed-up match the prediction?
# A policy file has a setting for each domain and a default for prompts of no known domain. It names
# the pair and the machine for which it was made, and how a prompt's domain is found. Another pair
# cannot use it.

# %%
chosen = choose.setting_by_domain(by_prompt)
classifier = policy.classifier()
if router == "classifier" and {*classifier.domains} != {*chosen} - {choose.UNKNOWN}:
    router = "none"
    ctx.say(
        "The kit's classifier was trained on other categories, so the policy takes the domain that "
        "a prompt names."
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
# We decode the checked prompts plainly and by the policy, in swapped orders, from the same prefill
# to the same last token. In float32 on the CPU the decoder's blocks and tokens must equal the
# replay's exactly.

# %% tags=["timed"]
decoded = promise.decoded_by(pair, plan, known, checked, limit, check_repeats)

# %%
each = promise.with_promise(decoded, by_prompt)
wrong = int(each["differs"].sum())
ctx.say(f"Replay and decoding differ in **{wrong} of {len(each)} prompts**.")
assert wrong == 0 or not pair.is_exact

# %% [markdown]
# The prediction is the cost of the same blocks at the costs above. It *holds* if the whole interval
# of the ratio measured / predicted lies within `cost_margin` of 1. Both speed-ups come from
# the same blocks, so the ratio tests only the predicted cost of a block. The intervals resample the
# checked prompts and the repeats. The interval of the ratio also resamples the timed passes.

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
ratios = timing.intervals(ratios, "of", len(each))
measured, ratio = ratios.at(of="measured"), ratios.at(of="ratio")
promised = float(seconds["plain"][0] / seconds["promised"][0])
outcome = promise.kept(next(ratio.rows()), cost_margin, costs)
agreement = promise.outcome_in_words(outcome, cost_margin)

# %%
ctx.export(each, "check")
ctx.say(
    f"On these {len(each)} prompts the measured speed-up is **{measured.in_units('x')}**. The "
    f"predicted speed-up is {promised:.2f}x. Their ratio is {ratio}. **{agreement}** "
    "The predictions below are for all prompts, so their speed-up differs from that of these few."
)

# %%
ctx.draw(
    drawings.draw_check,
    each,
    "check",
    title=f"The ratio of measured to predicted speed-up is {ratio} ({len(each)} prompts)",
    stamp=cost.stamp(costs),
    caption="Measured against predicted speed-up of each checked prompt, by domain. On the line "
    "both are equal.",
)

# %% [markdown]
# ## 3. Is a setting per domain faster than one setting for all?
# We compare policies that know more or less of a prompt:
#
# * **one setting for all** (`always`) is the best setting for all prompts together;
# * **a setting per domain** (`per-domain`) knows the true domain;
# * **the classifier** (where the policy uses it) reads the domain from the prompt's text, by
#   logistic regression on counted words. Where it is not sure, the prompt gets the default;
# * **the oracle** gives each text its own best setting. No router can do better.
#
# Every resample of the prompts chooses the settings again and draws the timing again.

# %%
routes = {}
if plan.router == "classifier":
    found_by = classifier.routes([prompt.text for prompt in known])
    ids = [prompt.prompt_id for prompt in known]
    routes[policies.CLASSIFIER] = dict(zip(ids, found_by, strict=True))

# %%
judged = policies.judged_policies(by_prompt, routes)
ours = recommendations.with_clock(choose.speeds(judged), judged, clocks)
speedups = ours.table(key="policy").in_units("x").without(policy="never", domain="all")
several = ctx.compares(stats.judged_domains(trace))
ctx.table(speedups, "speed-by-policy", most=60, cells=speedups.wide("policy", "domain"))

# %%
gains = policies.gains_over_always(ours)
ahead = gains.at(domain="pooled")
finding = f"The best setting of each text would gain {100 * ahead.at(policy='oracle').value:.1f} %"
if several:
    word = policies.faster_or_slower(ahead.at(policy="per-domain"))
    finding = f"A setting per domain is {word} than one setting for all"
ctx.plot(
    policies.drawn_gains(gains),
    x="domain",
    hue="policy",
    kind="points",
    y="gain in speed over one setting for all (%)",
    x_label="",
    reference=0,
    reference_name="one setting for all",
    slug="policies",
    title=finding,
    stamp=cost.stamp(costs),
    caption="Predicted gain in speed of each policy over one setting for all (the line at 0). "
    "Points above the line are faster. T = 0, replayed at the costs measured on this machine. "
    "Bars: 95 % intervals.",
)

# %%
words = "significantly faster with", "significantly slower with"
neither = "neither significantly faster nor slower with"
verdicts = policies.with_names(ahead).sentence(*words, neither, "policy")
ctx.say(f"Over all prompts, compared with one setting for all, decoding is {verdicts}.")
assert ahead.at(policy="oracle").value >= ahead.frame["estimate"].max() - 1e-9

# %% [markdown]
# ## 4. Does the policy work on other prompts?
# The policy was made from the profile's own prompts. Here it serves the other prompts that the
# profile names, if they have all of its domains. Nothing is chosen again. We take the mean of the
# domains, because the sets have different numbers of prompts in each.

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
# For the profile's own prompts the table repeats section 3, where other prompts chose each setting.

# %%
there[prompt_sets.OWN] = ours
carried, gains = {}, {}
for name, draws in there.items():
    by_policy = {one: draws[one] for one in ("always", "per-domain")}
    carried[name] = draws.table(by_policy, "policy").frame
    more = draws["per-domain"]["all"] / draws["always"]["all"]
    gains[name] = draws.table({"gain": more - 1}, "of").frame

# %%
carried = stack(carried, "set").query("domain != 'pooled'")
places = zip(carried["set"], carried["domain"], strict=True)
is_new = [where == "all" or prompt_sets.is_new(name, where) for name, where in places]
carried = policies.with_names(Estimates(carried[is_new].reset_index(drop=True)).in_units("x"))
gains = Estimates(stack(gains, "set")).in_units("%", 1)
ctx.export(carried, "other-prompts")
ctx.export(gains, "other-gains")
per_domain = carried.at(policy=policies.IN_WORDS[policies.PER_DOMAIN])
by_set = per_domain.wide("set", "domain")
notebook.show_table(by_set.fillna(""))

# %%
other = prompt_sets.farthest(texts)
mean = per_domain.at(domain="all")
if other:
    ctx.plot(
        carried,
        x="domain",
        only={"set": [*carried.without(set=prompt_sets.ENGLISH).frame["set"].unique()]},
        hue="set",
        columns="policy",
        kind="points",
        y="predicted speed-up",
        x_label="",
        reference=1,
        reference_name="plain decoding",
        slug="other-prompts",
        title=f"A setting per domain: predicted {mean.at(set=prompt_sets.OWN).value:.2f}x on own "
        f"prompts, {mean.at(set=other).value:.2f}x on {prompt_sets.after_on(other)}",
        stamp=cost.stamp(costs),
        caption="Predicted speed-up over plain decoding (the line at 1) with one setting for all "
        "and with a setting per domain, by domain and set of prompts. `all` is the mean of the "
        "domains, which the title gives. Bars: 95 % intervals.",
    )

# %%
if several and other:
    ctx.say("**The gain of a setting per domain** over one setting for all, mean of the domains:")
    notebook.show_table(gains.wide("set", "of"))

# %%
few = recommendations.note_on_few(ours.prompts)
said = agreement
if outcome != recommendations.REFUSED:
    said = promise.policy_in_words(measured, promised, len(each), agreement)
    if several and not few:
        said += promise.gain_in_words(gains, other)
ctx.answer(f"{said}{few}")

# %% [markdown]
# ### The line for your server
# Other engines draft chains of one length for all prompts. So we take the smallest gamma that is
# not significantly slower than the fastest. The intervals below leave out the timing. For other
# engines use `python -m speclab export RUN --for ENGINE`.

# %%
gamma, why = choose.best_gamma(trace, costs, "greedy", limit)
refusal = export.why_not(greedy, engine)
print(why, refusal or export.commands(greedy, engine, gamma), sep="\n")

# %% [markdown]
# ### Try it
# Predict the result first, then run the cell.
#
# 1. *An expensive draft.* In the page of section 1 drag c to 0.6 and to 0.9. Where does a draft
#    still help? <details><summary>Answer</summary>Where the best setting is still a chain or a
#    tree. With c high enough the best setting is `plain` everywhere.</details>
# 2. *Take the policy to the command line.* Run `python -m speclab decode --policy
#    figures/PROFILE/09/policy.json --prompts FILE --out OUT`, then the same with the profile of
#    another pair. <details><summary>Answer</summary>The second call is refused. A policy carries
#    digests of both models' weights, because acceptance depends on the pair.</details>
#
# ### What we saw, what this does not show, what is next
# * The best setting depends on the cost of a block and on the prompts (table of section 1). Section
#   4 says how fast the same policy is on other prompts, if the profile names some.
# * The numbers hold for one pair on one machine. Intervals cover the choice of prompts and the
#   difference between two rounds of timed passes, minutes apart. Another hour may differ by more.
# * Next: [10, wall clock](10_wall_clock.ipynb) takes the cost of a block apart;
#   [14, serving](14_serving.ipynb) asks what a server with a mix of requests gains.

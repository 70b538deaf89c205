# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 9. How much should be drafted for whom, and does a policy keep its promise?
#
# **Answer.** As much as the domain's acceptance and the machine's price of a block allow, and
# nothing where a block costs more than it emits. Section 1 recommends a setting for each domain and
# machine and writes it to a file, a *policy*; section 2 decodes with it and compares. Sections 3 to
# 6 ask whether knowing the domain is worth anything, what a server gains, at which batch size
# drafting must stop, and how wrong the numbers may be; section 7 reads the paper's own regimes. The
# sentences with the numbers stand there.
#
# ![Speed-up of each policy, by domain](../figures/smollm/09/policies.png)
#
# *Runs on* any machine; prices and recommendations marked 'measured here' speak of that machine ·
# *minutes* one or two · *reads* the runs `greedy` and `sampled` of the profile, recorded if they
# are not there, `data/routing`, and loads the pair · *writes* `figures/<profile>/09/`, among them
# `09_policy.json` for `python -m speclab decode --policy FILE`.

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Colab and Kaggle: fetches the kit and installs what is missing. In a checkout it only moves to the
# repository's root.
import os, shutil, subprocess, sys
from pathlib import Path

here, kit, is_kit = (
    Path.cwd(),
    Path("speclab-kit").resolve(),
    "speclab/show/notebook.py",
)
root = next((p for p in (here, *here.parents, kit) if (p / is_kit).is_file()), None)
origin = "here already; remove it to fetch another"
if root is None:
    address, half = os.environ.get("SPECLAB_REPO"), Path("speclab-kit.half").resolve()
    attached = min(Path("/kaggle/input").rglob(is_kit), default=None)
    why = "set SPECLAB_REPO to the kit's git address, or attach the kit as a data set"
    shutil.rmtree(half, ignore_errors=True)
    if address:  # wins over what is attached
        os.environ["GIT_TERMINAL_PROMPT"], origin = "0", f"from {address}"
        git = ["git", "clone", "--depth", "1", address, str(half)]
        said = subprocess.run(git, capture_output=True, text=True).stderr
        said = said.partition("fatal: ")[2].split("\n")[0] or "no kit is there"
        why = f"SPECLAB_REPO={address}: {said}"
    elif attached:  # read-only; the copy is not
        origin = f"from {attached.parents[2]}"
        shutil.copytree(attached.parents[2], half, copy_function=shutil.copyfile)
        for folder, *_ in os.walk(half):
            os.chmod(folder, 0o755)
    if kit.exists():
        why = f"{kit} is in the way, remove it"
    if kit.exists() or not (half / is_kit).is_file():
        shutil.rmtree(half, ignore_errors=True)
        raise SystemExit(f"No kit here: {why}.")
    root = half.rename(kit)
os.chdir(root)
sys.path.insert(0, str(root))
if root == kit:
    from speclab.show.notebook import install_missing

    about = Path("pyproject.toml").read_text(encoding="utf-8")
    version = about.partition('version = "')[2].partition('"')[0]
    print(f"speclab {version} in {root}, {origin}")
    install_missing(root)

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
max_gamma: int = 8  # 1 to 64; the longest chain to choose from
budget: int = 8  # 1 to 64; nodes of the largest tree to choose from
# c of machines that were not measured; there a pass over several tokens costs one
assumed_c: list = [0.05, 0.1, 0.3]  # 0.0001 to 10
# TinyLlama -> Llama-2-7B, both in f16 (llama.cpp issue 8499); the paper's target is 4-bit, and its
# c is not known
published_c: float = 0.29  # 0.0001 to 10
# a setting for each domain must gain more than this to be worth it, named beforehand
margin: float = 0.01  # 0 to 1
# what each further token adds to a pass of an assumed machine, in passes
slopes: list = [0.0, 0.1]  # 0 to 10
# how far a promised or forecast speed-up may be off and still be called right
price_margin: float = 0.1  # 0 to 1
# how the policy finds a domain: classifier, rules, or none (the prompt says it)
router: str = "classifier"  # one of classifier, rules, none
# shares of the requests
mix: dict = {"code": 0.4, "math": 0.1, "reasoning": 0.1, "chat": 0.4}  # 0 to 1
# share of the time that a server would be busy if it never speculated
load: float = 0.8  # 0.01 to 0.99
requests: int = 300  # 10 to 1000000; of a simulated stream,
streams: int = 12  # 2 to 10000; and how many streams a value is the mean of
# requests whose blocks are made together
batches: list = [1, 2, 4, 8, 16, 32, 64]  # 1 to 1024
# tokens of a pass up to which an assumed accelerator takes no longer than over one
knee: int = 64  # 1 to 100000
pass_repeats: int = 21  # 3 to 1000; of each single pass that is timed, up to
pass_tries: int = 3  # 1 to 100; times while the clock is disturbed
# decoded on other prompts to learn what the loop takes
probes: list = ["chain:1", "chain:3", "tree:2,2,3", "tree:3,2,8"]  # any
probe_prompts: int = 2  # 1 to 1000; a domain,
probe_repeats: int = 1  # 1 to 100; so many times, in swapped orders
check_prompts: int = 3  # 1 to 1000; a domain, decoded plainly and by the policy,
check_repeats: int = 2  # 1 to 100; so many times, in swapped orders

# %% jupyter={"source_hidden": true}
import os

import numpy as np
import pandas as pd

from speclab import decode, prompts, runs, sampling, stats
from speclab.models import pairs, timing
from speclab.show import notebook
from speclab.analysis import (
    bins,
    choose,
    cost_sweep,
    policy,
    published,
    router as routers,
)
from speclab.explore import page
from speclab.studies.budgets_and_routing import (
    batches as crowds,
    check,
    gains,
    machines,
    policies,
    robustness,
    serving,
)

# %% [markdown]
# ## What is replayed
# The recorded texts, and the prompts they answer. The last prompts of each domain tell how long the
# decoding loop takes; others, the first ones, are decoded by the policy in section 2.

# %%
ctx = notebook.start("09_budgets_and_routing", profile, overrides)
base = ctx.profile.replace(temperature=0.0)
limit = base.max_new_tokens
greedy = runs.load_or_record(base, "greedy")
trace = greedy.trace

# %%
pair = pairs.load_pair(base)
known = prompts.load_prompts(base.prompts, base.prompts_per_domain, base.domains)
encoded = prompts.encode_prompts(
    pair.tokenizer, known, base.max_prompt_tokens, base.template
)
probed = check.of_each_domain(encoded, last=probe_prompts)
checked = check.of_each_domain(encoded, first=check_prompts)

# %% [markdown]
# A *setting* is what may be drafted in a block: nothing (`plain`), a chain (`chain:3`: three tokens
# in a row), or a static tree (`tree:2,3,4`: two levels, up to three guesses a position, four nodes
# in all). We count the blocks that every setting makes of every text. A lossless text is the same
# under every setting, so all of them emit the recorded tokens, no more and no less.

# %%
settings = machines.settings_up_to(max_gamma, budget)
counted = choose.block_counts(trace, settings, max_new_tokens=limit)

# %%
ctx.say(
    f"{len(settings)} settings are replayed on {trace['prompt_id'].nunique()} texts of up to "
    f"{limit} tokens at T = 0 (greedy decoding)."
)
assert (counted.groupby("setting")["emitted"].sum() == len(trace)).all()

# %% [markdown]
# ## 1. What should be drafted, for which domain, on which machine?
# ### What a block costs here
# A block costs gamma c + v(gamma + 1) + o target passes: **c** is a draft pass, **v(n)** a target
# pass over n tokens, both in units of a target pass over one; **o** is what the decoding loop takes
# itself. A tree makes a draft pass a level, and its target pass holds all its nodes and the root.
#
# Single passes are timed in random order. If the clock was disturbed (a v(n) below 0.95, or a pass
# whose quartiles lie further apart than its median), all are timed again, `pass_tries` rounds at
# most. This looks at the clock only, never at what the prices lead to.

# %%
context = int(np.median([len(prompt.ids) for prompt in encoded])) + limit // 2
times, rounds = machines.timed_passes(pair, context, pass_repeats, pass_tries)

# %% [markdown]
# The loop's own time is what a decoded block took beyond its passes, larger for trees than chains:

# %%
probe_shapes = check.shapes_of(probes)
probing = timing.decoded_speed(pair, probed, probe_shapes, limit, probe_repeats)
costs = machines.with_measured_loop(timing.costs_of(times), probing, probe_shapes)
ctx.say(machines.in_words(costs, times, rounds))

# %% [markdown]
# ### What to draft
# The predicted speed-up of a setting is its tokens over the price of its blocks. Machines that were
# not measured are assumed (v = 1, o = 0), always with **this pair's** acceptance.
#
# A speed-up is flattered if the setting is chosen on the prompts that judge it. So it is
# **cross-fitted**: each prompt is judged by the setting that was fastest on *other* prompts of its
# domain. `share_best` is how often a setting stays the fastest when the prompts are resampled
# (drawn again, with repetition): small shares mean that several cannot be told apart. `speculate`
# is yes or no where the whole interval lies above or below 1; each resample chooses again.

# %%
here = "measured here"
published_name = (
    f"c = {published_c:g} (llama.cpp, both models f16; the paper's is 4-bit)"
)
assumed = {f"c = {c:g} (assumed)": machines.assumed(c) for c in assumed_c}
places = {here: costs} | assumed | {published_name: machines.assumed(published_c)}

# %%
advice = machines.recommend(counted, settings, places)
ctx.table(advice, "recommendations", rows=10)

# %%
own = advice[advice["machine"] == here]
ctx.say(f"Predicted here, times plain decoding: {machines.predicted(own).listed()}.")
assert set(own["setting"]) <= set(settings)

# %% [markdown]
# ### The policy: a small file
# It holds a setting for each domain and a default for prompts of no known domain, the pair and the
# machine it was made for, and how a prompt's domain is found.

# %%
prices = choose.price(counted, settings, costs)
chosen = choose.setting_by_domain(prices)
made = policy.Policy(
    pair=policy.identity(base),
    costs=policy.machine_facts(costs, pair.facts["target"]["device"]),
    default=chosen.pop(choose.UNKNOWN),
    domains=chosen,
    router=router,
    run=greedy.manifest["key"],
)
policy.write_policy(made, ctx.figures / "policy.json")

# %% [markdown]
# ### How a policy is used
# Load it for a pair. A policy that was made for another pair is refused:

# %%
plan = policy.load(ctx.figures / "policy.json", policy.identity(base))
assert plan == made

# %% [markdown]
# Choose what to draft for a prompt. With a router, only its text is looked at:

# %%
prompt = known[0]
setting = policy.setting_for(plan, prompt)

# %% [markdown]
# Decode with it:

# %%
shape = policy.shape_for(plan, prompt)
text = decode.decode_prompt(
    pair, encoded[0], "greedy", shape, sampling.Sampling(), limit
)
ctx.say(
    f"Prompt `{prompt.prompt_id}` drafts by `{setting}`: {len(text.token_ids)} tokens in "
    f"{text.target_passes} target passes."
)

# %% [markdown]
# From the command line, for a file of prompts: `python -m speclab decode --policy
# figures/PROFILE/09/policy.json --prompts FILE --out OUT`.
#
# ### Other hardware
# The best setting by c, with v = 1 and o = 0:

# %%
by_c = machines.curves_by_kind(counted, settings)
ctx.table(machines.cells_by_c(by_c), "by-c", rows=6)

# %%
panels = machines.panels_by_c(by_c)
even = machines.break_even(counted, settings)
ctx.plot(
    panels,
    x="c",
    columns="panel",
    share_y=False,
    y="",
    slug="by-c",
    caption=f"What to draft and what it gives, by c: nothing pays above {even.span()}.",
)

# %%
at_published = machines.predicted(advice).at(machine=published_name)
ctx.say(
    f"The c above which no setting pays: {even.listed()} (chosen on the prompts that judge it, "
    f"slightly flattering). Cross-fitted, this pair's acceptance would be worth, at c = "
    f"{published_c:g}, {at_published.listed()}."
)
dearer = panels.without(panel="gamma of the best chain")
assert (dearer.steps("c") <= 1e-9).all(), "a dearer draft is never better"

# %%
# Any machine: drag c, v and o. (A headless run shows the picture above only.)
page.show("machine", runs=[greedy])

# %% [markdown]
# ## 2. Does the policy give what it promised?
# The checked prompts are decoded plainly and by the setting that the policy gives them, in swapped
# orders. Before and after, the loop's time is measured again, on other prompts and by the policy's
# own settings.

# %%
routed_here = [
    prompt for prompt in known if prompt.prompt_id in {p.prompt_id for p in checked}
]
route = check.route(plan, routed_here)
drafts = check.shapes_of(route.values())

# %%
before = timing.decoded_speed(pair, probed, drafts, limit, probe_repeats)
each = check.decoded(pair, checked, route, limit, check_repeats)
after = timing.decoded_speed(pair, probed, drafts, limit, probe_repeats)

# %% [markdown]
# Two prices of the same blocks are compared with the clock. The **promise** takes section 1's, on
# which the policy rests. The **forecast** takes prices measured again: all passes of section 1 and
# of now, and the loop just before and after this decoding.

# %%
again = timing.pass_times(pair, timing.SIZES, context, pass_repeats)
passes = timing.costs_of(pd.concat([times, again]))
now = machines.with_measured_loop(passes, pd.concat([before, after]), drafts)
each = check.against_prices(each, prices, choose.price(counted, settings, now))

# %% [markdown]
# The decoder's blocks and tokens must be the replay's, exactly (in float32 on the CPU, where passes
# of any shape round alike):

# %%
wrong = int(each["differs"].sum())
ctx.say(f"Replayed against decoded: **{wrong} of {len(each)} prompts differ**.")
assert wrong == 0 or not pair.is_exact

# %% [markdown]
# Promise and forecast are each right if measured over predicted, compared prompt by prompt, lies
# within `price_margin` of 1 with all of its interval (the checked prompts are resampled).
# Acceptance cancels there, what is left is the price of a block.

# %%
found = check.outcome(each, price_margin)
ctx.table(check.check_table(each, plan), "check")
ctx.say(found.in_words())

# %%
ctx.save(
    check.draw_check(each, found),
    "check",
    caption=f"Measured against forecast speed-up, a point a prompt: {found.measured} in all.",
)

# %% [markdown]
# ## 3. Is it worth knowing the domain?
# Policies that differ in what they know of a prompt:
#
# * **never** speculates; **always** drafts by one setting for everybody, the best for all prompts;
# * **per-domain** knows the true domain;
# * **rules** and **classifier** read it from the prompt's text: regular expressions, and logistic
#   regression on TF-IDF (counts of words, in which words that are rare elsewhere weigh more). Where
#   the classifier is not sure, the prompt gets the default;
# * **online** needs no domain: two blocks are drafted alike, then the setting follows what was
#   accepted in them;
# * the **oracle** knows the text in advance and gives each prompt its own best setting: a bound
#   that no router passes. What lies between 'always' and it is the **regret** of one setting.

# %%
texts = policies.text_frame(known)
classifier = routers.load_router()
routed = routers.routed(texts, classifier)
by_rules = routers.rules(texts["text"])
routes = {
    "rules": dict(zip(texts["prompt_id"], by_rules, strict=True)),
    "classifier": dict(zip(texts["prompt_id"], routed["route"], strict=True)),
}

# %%
judged = {
    name: policies.judged_policies(trace, counted, settings, place, routes, limit)
    for name, place in places.items()
}
again = {
    name: policies.chosen_again(counted, settings, place, routes)
    for name, place in places.items()
}
speeds = policies.speeds(judged, again=again)
assert all(policies.oracle_is_bound(frames) for frames in judged.values())

# %% [markdown]
# ### On this machine
# Every resample of the prompts chooses the settings anew (but the first one of **online**, which is
# held fixed: its interval leaves out what choosing adds).

# %%
ours = speeds.at(machine=here).without(domain="all")
ctx.table(ours.wide(["quantity", "policy"], "domain"), "policies", rows=7)

# %%
shown = ours.at(quantity="speed").without(policy=["never", "rules"])
ctx.plot(
    shown,
    x="domain",
    hue="policy",
    kind="points",
    y="predicted speed-up, this machine",
    slug="policies",
    caption=f"Speed-up by policy and domain (T = 0, replayed), {here}: {shown.span()}.",
)

# %%
gaps = policies.pooled_changes(speeds)
others = gaps.at(machine=here).without(policy="per-domain")
verdicts = policies.told_each(others, "policy", than="'always'")
ctx.say(f"Over all prompts: {verdicts}.")

# %% [markdown]
# ### On the others

# %%
bound = gaps.at(policy="oracle")
ctx.table(gaps.wide("machine", "policy"), "policies-by-machine")
ctx.plot(
    policies.ahead(gaps),
    x="machine",
    hue="policy",
    kind="points",
    y="speed-up minus that of 'always'",
    reference=0,
    slug="policies-by-machine",
    caption=f"How far each policy is ahead of 'always'; the oracle by {bound.span()}.",
)

# %%
duel = policies.speeds({here: judged[here]}, "online", again).at(policy="classifier")
better = policies.told_each(policies.pooled_changes(duel), "policy", than="online")
ctx.say(f"Classifier or online rule? {better}.")

# %% [markdown]
# ### At which c is it worth it?
# The one answer of these notebooks to 'a setting for each domain, or one for all?'. Its **gain** is
# how much faster each domain's own setting is than one for all, both chosen on other prompts than
# they are judged on, over all prompts. Every resample chooses again, so that an interval holds what
# choosing adds. Against a margin that was named beforehand (`margin`): the gain *is worth it* if
# all of its interval lies above the margin, *has no case* if all of it lies within, either side,
# else it *cannot be told* from these prompts.
#
# c is swept; v is 1 (verification is free), a line v(n) = 1 + s (n - 1), or as measured here. Two c
# are marked: this machine's own, and the published one, of **two f16 models** in llama.cpp: the
# paper's target is 4-bit, and its c is not known. (Intervals are of prompts. What a clock does to
# the prices measured here is not in them: section 2 says how far these can be trusted.)

# %%
swept = gains.machines(costs, cost_sweep.C_GRID, slopes, published_c)
worth = gains.by_settings(counted, settings, swept)
ctx.export(gains.gains_told(worth, margin), "gain-by-c")
shown = worth.at(settings="chains and trees")
notebook.show_table(shown.wide("c", "v"))

# %%
marked = {f"c here, {costs.c():.2f}": costs.c(), "both f16, llama.cpp": published_c}
ctx.save(
    gains.draw_gains(worth, margin, marked),
    "gain-by-c",
    caption="How much faster a setting for each domain is than one for all, by c; bands: 95 %, "
    f"prompts resampled and settings chosen again. Grey: within {margin:.0%}. From "
    f"{100 * worth.frame['estimate'].min():.1f} to {100 * worth.frame['estimate'].max():.1f} %.",
)

# %%
for allowed, part in worth.groups("settings"):
    verdicts = cost_sweep.stretches_in_words(part, "a setting for each domain", margin)
    ctx.say(f"Of {allowed}, to within {margin:.0%}:\n\n{verdicts}")

# %%
own_gain = worth.at(v=gains.MEASURED, c=costs.c())
at_f16 = worth.at(v=cost_sweep.FREE, c=published_c)
ctx.say(
    f"Measured here (c = {costs.c():.2f}): {gains.at_in_words(own_gain, margin)}. At c = "
    f"{published_c:g} with free verification: {gains.at_in_words(at_f16, margin)}."
)

# %% [markdown]
# ### How often is the router right?
# It was trained on other prompts. It is judged on prompts held out of its training, on technical
# prose (which is of no domain), and on this profile's prompts, each with and without the form that
# gives a domain away. `right`: its most likely domain is the true one; `to_default`: not sure.

# %%
sets = {f"this profile's ({base.prompts})": known}
if os.environ.get(prompts.MIRROR):
    benchmarks = prompts.load_prompts("paper", base.prompts_per_domain, base.domains)
    sets["benchmarks' (paper)"] = benchmarks
ctx.table(policies.router_table(classifier, sets), "router")

# %%
bare = routers.routed(policies.text_frame(known, bare=True), classifier)
error = bins.calibration_error("confidence", "correct")
right = (texts["domain"] == by_rules).mean()
off, off_bare = stats.bootstrap(routed, error), stats.bootstrap(bare, error)
ctx.say(
    f"Rules are right in {right:.3f} of the prompts. The classifier's calibration error (how far "
    f"its confidence and its share of right answers lie apart) is {off}, form removed {off_bare}."
)

# %% [markdown]
# How well does its confidence tell the domains from technical prose? The area under the ROC curve
# is the chance that a prompt of a domain gets more confidence than a piece of prose; 0.5 is no
# better than a coin.

# %%
card = classifier.card
ctx.say(
    f"Area under the ROC curve: {card['text']['auc_of_prose']:.3f}, form removed "
    f"{card['bare']['auc_of_prose']:.3f}."
)
ctx.save(
    policies.draw_heat(
        {
            "classifier": policies.confusion(routed),
            "classifier, form of the prompt removed": policies.confusion(bare),
        },
        "prompts",
        digits=0,
    ),
    "routing",
    caption=f"True domain and route of {len(routed)} prompts.",
)

# %% [markdown]
# ### What does a wrong route cost?
# The other domain's setting, and nothing where two domains have the same one. Once here, and once
# on the assumed machine with the cheapest draft, where long drafts pay and domains differ most.

# %%
cheap = next(iter(assumed))
per_s = 1e3 / costs.target_ms
wrong_here = policies.wrong_routes(prices, per_s)
cheap_prices = choose.price(counted, settings, places[cheap])
wrong_cheap = policies.wrong_routes(cheap_prices)

# %%
ctx.table(wrong_here.wide("domain", "taken_for"), "wrong-routes-here")
ctx.save(
    policies.draw_heat({here: policies.square(wrong_here)}, "tokens/s", digits=1),
    "wrong-routes-here",
    caption=f"Tokens per second that a route changes, {here}: {wrong_here.span()}.",
)

# %%
ctx.table(wrong_cheap.wide("domain", "taken_for"), "wrong-routes-assumed")
ctx.save(
    policies.draw_heat({cheap: policies.square(wrong_cheap)}, "speed-up", digits=3),
    "wrong-routes-assumed",
    caption=f"Speed-up that a route changes, {cheap}: {wrong_cheap.span()}.",
)

# %% [markdown]
# ## 4. What does a server with a mix of requests gain?
# A simulation over the recorded texts. Requests arrive as a **Poisson** process (at random, each
# independent of the others, at a constant mean rate) at a server that serves one at a time; prefill
# is left out. `load`: a server that never speculates would be busy that share of the time. Latency
# includes waiting; passes and drafts are counted instead of energy. 'always' is here the best
# setting for the `mix`. Settings are chosen once and held fixed in the resamples.

# %%
for_mix = {policies.ALWAYS: serving.best_for_mix(prices, mix)}
served = serving.simulate(
    judged[here] | for_mix, mix, costs.target_ms, load, requests, streams
)
result = served.table()
ctx.table(result.wide("policy", "metric"), "stream")

# %%
relative = served.table("always").without(policy="always")
ctx.plot(
    relative.at(metric=["tokens_per_s", "p50_s", "p95_s"]).without(policy="never"),
    x="metric",
    hue="policy",
    kind="points",
    y="relative to 'always'",
    reference=1,
    slug="stream",
    caption=f"Tokens per second of work, and latency in the median and at 95 %, at load {load:g}.",
)

# %%
ctx.say(
    f"{streams} streams of {requests} requests. Relative to 'always', tokens per second: "
    f"{relative.at(metric='tokens_per_s').listed('policy')}; 95 % latency: "
    f"{relative.at(metric='p95_s').listed('policy')}."
)
assert served.is_fastest("oracle", but="online"), (
    "online changes its setting within a text"
)

# %% [markdown]
# ## 5. At which batch size must drafting stop?
# With `batch` requests in one pass, a block verifies batch × (gamma + 1) tokens at once, and plain
# decoding already fills the machine with batch tokens. Full batches are priced with the measured
# c(n) and v(n); passes beyond the largest measured one lie on a straight line with the last slope.
# Beside it an **assumed** accelerator, whose pass takes no longer until it holds `knee` tokens.

# %%
flat = f"assumed: v(n) = max(1, n / {knee}), c = {assumed_c[1]:g}"
crowded = {here: costs, flat: crowds.flat_until(knee, assumed_c[1])}
crowd = crowds.by_batch(counted, settings, crowded, batches)

# %%
ctx.table(crowd.wide(["machine", "batch"], "domain"), "batches", rows=7)
ctx.table(crowds.settings_table(crowd), "batch-settings", rows=7)

# %% [markdown]
# A lock-step simulation of the same texts, all arriving at once, has batches that empty at the end
# (and are never full where a domain has fewer prompts than that):

# %%
simulation = crowds.lockstep_speeds(
    crowd.at(machine=here), trace, settings, costs, limit
)
assert crowds.one_at_a_time_agrees(crowd.at(machine=here), simulation)

# %%
ctx.plot(
    crowds.with_simulation(crowd, simulation),
    x="batch",
    columns="machine",
    kind="points",
    y="speed-up, best drafting setting",
    reference=1,
    slug="batches",
    caption=f"Speed-up by batch, from {crowd.span()}: below the line drafting slows the server.",
)

# %%
for name in crowded:
    ctx.say(f"**{name}**: {crowds.turning_in_words(crowd.at(machine=name))}.")
largest = crowds.largest_priced(crowd.at(machine=here), costs)
ctx.say(
    f"Batches above {largest} are extrapolated for some domain. The best setting is chosen on the "
    "prompts that judge it (slightly flattering) and held fixed in their resamples."
)

# %% [markdown]
# ## 6. How robust is the choice?
# * **Acceptance misestimated**: settings are chosen as if the draft's first choice were right a
#   tenth less (x0.9) or more (x1.1) often than it is, and serve the real texts.
# * **Temperature**: settings are chosen at T = 0 and serve text sampled at T = 1, beside settings
#   chosen at T = 1.
#
# Every resample chooses again, so that an interval of 0.000 to 0.000 means: the same settings in
# (nearly) every resample.

# %%
factors = robustness.factors(trace)
misestimated = robustness.misestimated(trace, settings, costs, factors)

# %%
sampled = runs.load_or_record(base, "sampled")
warm = robustness.sampled_prices(sampled.trace, settings, costs, limit)
hot = robustness.other_temperature(prices, warm)

# %%
robust = robustness.together(misestimated, hot)
ctx.table(robust.wide(["question", "quantity", "policy"], "domain"), "robustness")

# %%
change = policies.pooled_changes(robust)
level = robust.at(quantity="speed", domain="pooled", policy=["x1", "chosen at T = 0"])
ctx.say(
    f"Change of speed-up, pooled: {change.listed('policy')}. At T = 0 the choice from true "
    f"acceptance (x1), at T = 1 the choice from T = 0: {level.listed('policy')} times plain."
)

# %% [markdown]
# **Drift**: one setting is fitted to a mix with 70 % of one domain and serves a mix with 70 % of
# another. The settings are held fixed in the resamples.

# %%
mixes = serving.mostly(base.domains)
drifted = serving.drift(prices, mixes, judged[here]["per-domain"])
ctx.table(drifted.wide("fitted_on", "served"), "drift")
ctx.say(
    f"The most that one setting loses when the mix drifts: {serving.most_lost(drifted):.3f}."
)

# %% [markdown]
# ## 7. The paper's regimes, read with the right break-even
# The paper calls speculation positive where its expected accepted length E[L] is above 1, negative
# below. But a target pass emits one token more than it accepts, and what a block costs depends on
# c: the break-even is gamma c + v + o tokens per pass. Below are both readings of **its own**
# numbers (Tables II and III; v = 1, o = 0; within 0.05 of 1: marginal) for several c, at its depth
# 3 (`speedup`, `regime`) and at the best gamma up to 3. Its acceptance is that of no lossless
# algorithm (notebook 03), so these are its numbers read rightly, not what its pair would do.

# %%
regimes = published.regimes((*assumed_c[:2], published_c, 0.5))
ctx.table(regimes, "regimes", rows=8)

# %%
changed = int((regimes["paper_regime"] != regimes["regime"]).sum())
ends = regimes.groupby("domain", sort=False)["break_even_c"].max()
ctx.say(
    f"{changed} of {len(regimes)} cells change their regime. By break-even at depth 3 drafting "
    f"pays up to a c of {ends.min():.2f} to {ends.max():.2f}. Whether to speculate is a question "
    "of c, not of E[L] = 1."
)

# %%
ctx.record(
    c=costs.c(),
    overhead=costs.overhead,
    tree_overhead=costs.tree_overhead,
    check_measured=found.measured.estimate,
    check_low=found.measured.low,
    check_high=found.measured.high,
    check_promised=found.promise,
    check_kept=found.kept,
    check_predicted=found.forecast,
    check_agrees=found.agrees,
    check_prompts_that_differ=wrong,
    regimes_changed=changed,
    gain_here=own_gain.at(settings="chains and trees").value,
    **policies.gap_numbers(gaps.at(machine=here)),
    **machines.advice_numbers(own),
)

# %% [markdown]
# ### Try it
# 1. *A dear draft.* `make reproduce NOTEBOOKS=09 PARAMETERS="assumed_c=[0.6,0.9]"`: which domains
#    still pay? <details><summary>Answer</summary>Compare the break-even c of each domain in section
#    1 with 0.6 and 0.9: a domain whose break-even lies below c is told to decode plainly.</details>
# 2. *A server that is nearly full.* Set `load` to 0.95. Which policy gains most, and in which
#    metric? <details><summary>Answer</summary>Latency: tokens per second of work do not depend on
#    the load, but waiting grows without bound as a server comes near its limit, so a faster policy
#    shortens the queue far more than the service.</details>
# 3. *Take the policy to the command line.* `python -m speclab decode --policy
#    figures/PROFILE/09/policy.json --prompts FILE --out OUT`; then the same with the profile of
#    another pair. <details><summary>Answer</summary>The second is refused: a policy carries digests
#    of both models' weights, because acceptance is a pair's own.</details>
#
# ### What we saw, what this does not show, what is next
# * The setting follows the price of a block more than the domain: read section 1 by machine, then
#   by domain. Whether the domain is worth knowing depends on c: section 3 says at which c it is, at
#   which it is not, and at which these prompts cannot tell.
# * Numbers 'measured here' are one pair's on one machine. Assumed machines keep this pair's
#   acceptance: they say how a recommendation moves with c, not what another pair would gain.
# * A setting is chosen for one temperature: section 6 says what it loses at another, and a policy's
#   file does not know which it will serve.
# * The server is a model: no prefill, no memory limit, no scheduler but first come first served;
#   batches make their blocks in lock step, and a packed pass over one text stands for one over
#   several.
# * Temperatures between 0 and 1 are not served here (notebook 02 has their acceptance); energy
#   was not measured.
# * Next: [10, wall clock](10_wall_clock.ipynb) takes the price of a block apart;
#   [11](11_paper_audit.ipynb) audits the paper.

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
# A longer draft emits more tokens a block and costs more; how much pays depends on how often the
# target accepts, and on what a block costs on the machine. So one may choose a *setting* for each
# domain, write it to a small file, a *policy*, and ask whether it keeps its promise by the clock,
# and whether knowing the domain gained anything over one setting for all.
#
# ![Speed-up of each policy, by domain](../figures/smollm/09/policies.png)
#
# *Runs on* any machine; what is 'measured here' speaks of that machine · *minutes* two or three ·
# *reads* the run `greedy` of the profile, recorded if it is not there, `data/routing`, and loads
# the pair · *writes* `figures/<profile>/09/`, among them `policy.json` for `python -m speclab
# decode --policy FILE`.

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
# c of three machines, named beforehand; there a pass over several tokens costs one. The last is
# that of TinyLlama and Llama-2-7B, both in f16 (llama.cpp issue 8499)
assumed_c: list = [0.05, 0.1, 0.29]  # 0.0001 to 10
# a setting for each domain must gain more than this to be worth it, named beforehand
margin: float = 0.01  # 0 to 1
# how far a promised speed-up may be off and still be kept
price_margin: float = 0.1  # 0 to 1
# how the policy finds a domain: classifier, rules, or none (the prompt says it)
router: str = "classifier"  # one of classifier, rules, none
pass_repeats: int = 21  # 3 to 1000; of each single pass that is timed, up to
pass_tries: int = 3  # 1 to 100; times while the clock is disturbed
# decoded to learn what the loop takes
probes: list = ["chain:1", "chain:3", "tree:2,2,3", "tree:3,2,8"]  # any
probe_prompts: int = 2  # 1 to 1000; a domain
# others are decoded plainly and by the policy, in swapped orders
check_prompts: int = 3  # 1 to 1000; a domain,
check_repeats: int = 2  # 1 to 100; so many times
# whose flags end the notebook
engine: str = "vllm"  # one of vllm, sglang, llama.cpp, transformers, tensorrt-llm

# %% jupyter={"source_hidden": true}
import numpy as np
import pandas as pd

from speclab import prompts, runs, score, stats
from speclab.cost import Costs
from speclab.models import pairs
from speclab.show import figures, notebook
from speclab.show.estimates import Estimates
from speclab.analysis import choose, policy, router as routers
from speclab.explore import page
from speclab.ops import export
from speclab.studies.budgets_and_routing import machines, policies

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

# %%
settings = machines.settings_up_to(max_gamma, budget)
counted = choose.block_counts(trace, settings, max_new_tokens=limit)
assert (counted.groupby("setting")["emitted"].sum() == len(trace)).all()

# %% [markdown]
# Some prompts are decoded for real: for the loop's own time, and, others, to check the promise.
# They are spread evenly over the set behind the first eight of each domain, which chose how long
# the draft was trained.

# %%
known = prompts.load_prompts(base.prompts, base.prompts_per_domain, base.domains)
encoded = prompts.encode_prompts(
    pair.tokenizer, known, base.max_prompt_tokens, base.template
)
probed = prompts.decoded_prompts(encoded, probe_prompts)

# %%
others = [prompt for prompt in encoded if prompt not in probed]
checked = prompts.decoded_prompts(others, check_prompts)

# %% [markdown]
# A block costs gamma c + v(gamma + 1) + o target passes: **c** is a draft pass, **v(n)** a target
# pass over n tokens, both in units of a target pass over one; **o** is what a decoded block took
# beyond its passes. A tree makes a draft pass a level. Passes are timed in random order, again
# while the clock is disturbed; this looks at the clock only, never at what the prices lead to.

# %% tags=["timed"]
costs, measured = machines.measured(
    pair, encoded, probed, probes, limit, pass_repeats, pass_tries
)
ctx.say(measured)

# %% [markdown]
# Three further machines are assumed (v = 1, o = 0), always with **this pair's** acceptance.

# %%
this_machine = "measured here"
assumed = {f"c = {c:g}": Costs.on_a_line(c) for c in assumed_c}
places = {this_machine: costs} | assumed
prices = choose.price(counted, settings, costs)

# %% [markdown]
# ## 1. What should be drafted, for which domain, on which machine?
# ### By hand: the best gamma of a domain
# The speed-up over plain decoding is the tokens over the price of their blocks. Near the end of a
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
by_kit = choose.best_setting(choose.price(counted, drafted, costs), n=100)
by_kit = by_kit.pivot(index="domain", columns="setting", values="speedup")
assert np.allclose(by_hand, by_kit.loc[by_hand.index, by_hand.columns])

# %%
notebook.show_table(by_hand.idxmax(axis=1).rename("best chain").reset_index())

# %% [markdown]
# ### All settings
# A speed-up is flattered if the setting is chosen on the prompts that judge it. So it is
# **cross-fitted**: each prompt is judged by the setting that was fastest on *other* prompts of its
# domain. `share_best`: how often a setting stays the fastest when prompts are resampled; small
# shares mean that several cannot be told apart. `speculate`: yes or no where the whole interval
# lies above or below 1; each resample chooses again.

# %%
advice = machines.recommend(counted, settings, places)
own = advice.at(machine=this_machine)
ctx.export(advice, "recommendations")
keys = ["machine", "domain", "setting", "share_best", "speculate"]

# %%
shown = Estimates(advice.frame.assign(of="speed-up")).wide(keys, "of")
notebook.show_table(shown, digits=2)

# %%
# Any machine: drag c, v and o. (A headless run shows the table above only.)
page.show("machine", runs=[greedy])

# %% [markdown]
# ## 2. Does a policy give what it promised?
# ### The policy: a small file
# A setting for each domain and a default for prompts of no known domain, the pair and the machine
# it was made for, and how a prompt's domain is found. It is refused for another pair.

# %%
chosen = choose.setting_by_domain(prices)
made = policy.Policy(
    pair=runs.pair_digests(base),
    device=pair.facts["target"]["device"],
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
# ### Beside the clock
# The checked prompts are decoded plainly and by the policy, in swapped orders. The decoder's blocks
# and tokens must be the replay's, exactly (in float32 on the CPU).

# %% tags=["timed"]
each = policies.decoded(pair, plan, known, checked, limit, check_repeats)
each = policies.with_promise(each, prices)
wrong = int(each["differs"].sum())
ctx.say(f"Replayed against decoded: **{wrong} of {len(each)} prompts differ**.")
assert wrong == 0 or not pair.is_exact

# %% [markdown]
# The promise is the price of the same blocks at the costs above. It is *kept* if measured over
# promised, compared prompt by prompt, lies within `price_margin` of 1 with all of its interval (the
# checked prompts are resampled). Acceptance cancels there; what is left is the price of a block.

# %%
rows = each.drop(columns="domain")
found = stats.bootstrap(rows, score.ratio_of("plain_s", "policy_s"))

# %%
ratio = stats.bootstrap(rows, score.ratio_of("promised_s", "policy_s"))
promised = float(each["plain_s"].sum() / each["promised_s"].sum())
promise = policies.kept(ratio, price_margin, costs)
ctx.export(each, "check")
ctx.say(
    f"Measured speed-up **{found}**, predicted {promised:.3f}, ratio {ratio}. The prediction, to "
    f"within {price_margin:.0%}: **{promise}** ({len(each)} prompts, on this machine, once)."
)

# %%
ctx.save(
    policies.draw_check(each),
    "check",
    caption=f"Measured against promised speed-up, a point a prompt; on the line: as promised. All "
    f"together {found}, promised {promised:.3f}.",
)

# %% [markdown]
# ## 3. Is it worth knowing the domain?
# Policies that differ in what they know of a prompt:
#
# * **always** drafts by one setting for everybody, the best for all prompts;
# * **per-domain** knows the true domain;
# * **rules** and **classifier** read it from the prompt's text: regular expressions, and logistic
#   regression on counted words. Where the classifier is not sure,
#   the prompt gets the default;
# * the **oracle** gives each text its own best setting: a bound that no router passes.

# %%
texts = routers.text_frame(known)
classified = routers.routed(texts, routers.load_router())
by_rules = routers.rules(texts["text"])
routes = {
    "rules": dict(zip(texts["prompt_id"], by_rules, strict=True)),
    "classifier": dict(zip(texts["prompt_id"], classified["route"], strict=True)),
}

# %%
speeds = {}
for name, place in places.items():
    judged = policies.judged_policies(counted, settings, place, routes)
    speeds[name] = choose.speeds(judged)

# %% [markdown]
# ### On this machine
# Every resample of the prompts chooses the settings anew.

# %%
ours = speeds[this_machine]
table_here = Estimates(ours.table(key="policy"), digits=3).without(
    policy="never", domain="all"
)

# %%
ctx.table(table_here.wide("policy", "domain"), "policies")
ctx.plot(
    table_here.without(policy="rules"),
    x="domain",
    hue="policy",
    kind="points",
    y="predicted speed-up, this machine",
    slug="policies",
    caption=f"Speed-up by policy and domain (T = 0, replayed, {this_machine}): from "
    f"{table_here.span()}.",
)

# %% [markdown]
# Over all prompts, how far is each ahead of 'always'?

# %%
pooled = {
    name: ours[name]["pooled"] - ours["always"]["pooled"]
    for name in ("per-domain", "rules", "classifier", "oracle")
}
ahead = Estimates(ours.table(pooled, "policy"), digits=3)

# %%
words = "faster with", "slower with", "no significant difference with"
verdicts = ahead.sentence(*words, names="policy")
ctx.say(
    f"Compared with 'always': {verdicts}. Differences in speed-up: {ahead.listed('policy')}."
)
assert ahead.at(policy="oracle").value >= ahead.frame["estimate"].max() - 1e-9

# %% [markdown]
# ### At which c is it worth it?
# The **gain** is how much faster each domain's own setting is than one for all, over all prompts,
# both chosen on other prompts than they are judged on. Three machines were named beforehand
# (`assumed_c`), and a margin: a setting for each domain *is worth it* if the gain is above the
# margin, *has no case* if it lies within, either side; else these prompts *cannot tell*. Three
# looks are three chances to be wrong, so p-values are **Holm's**, over the three.

# %%
gain = pd.DataFrame(
    {
        name: draws["per-domain"]["pooled"] / draws["always"]["pooled"] - 1
        for name, draws in speeds.items()
    }
)

# %%
told = policies.told_of_gains(gain[list(assumed)], margin)
table = ours.table(dict(gain.items()), "machine").drop(columns=["n_prompts", "note"])
table = table.merge(told, left_on="machine", right_index=True, how="left")

# %%
percent = table.assign(
    of="a setting for each domain", **100 * table[["estimate", "low", "high"]]
)
figure = figures.facets(
    percent,
    "machine",
    hue="of",
    kind="points",
    y="gain over one for all, %",
    reference=0,
)
figure.axes[0].axhspan(-100 * margin, 100 * margin, color="#dddddd", zorder=0)

# %%
gains = Estimates(percent, digits=1)
ctx.save(
    figure,
    "gain-by-c",
    caption="How much faster a setting for each domain is than one for all; bars: 95 %, prompts "
    f"resampled and settings chosen again; grey: within {margin:.0%}. In %: "
    f"{gains.listed('machine')}.",
)

# %%
by_place = "; ".join(
    f"{gains.at(machine=name)} % at {name} ({row.told})"
    for name, row in told.iterrows()
)
drafts = ", ".join(f"{row.domain} {row.setting}" for row in own.rows())

# %%
speed = table_here.at(policy="per-domain", domain="pooled")
verdict = f"The predicted speed-up is {speed} (the prediction: {promise})."
if not machines.is_trusted(costs):
    verdict = "There is no verdict on speed, since another program disturbed the clock."

# %%
ctx.answer(
    f"On `{base.name}` and this machine (c = {costs.c():.2f}) the best settings are {drafts}. "
    f"{verdict} A setting for each prompt set instead of one for all gains "
    f"{gains.at(machine=this_machine)} % here. On the assumed machines, compared with "
    f"{margin:.0%} (Holm): {by_place}."
)

# %% [markdown]
# ### The line for your server
# Other engines draft chains, the same for everybody, so it is the smallest gamma that these prompts
# do not tell apart from the fastest. Elsewhere: `python -m speclab export RUN --for ENGINE`.

# %%
gamma, why = choose.best_gamma(trace, costs, "greedy", limit)
refused = export.why_not(greedy, engine)
print(why, refused or export.commands(greedy, engine, gamma), sep="\n")

# %% [markdown]
# ### Try it
# 1. *A dear draft.* `make reproduce NOTEBOOKS=09 PARAMETERS="assumed_c=[0.6,0.9]"`: which domains
#    still pay? <details><summary>Answer</summary>Those whose row of section 1 says yes under
#    `speculate`; the others are told to decode plainly.</details>
# 2. *Take the policy to the command line.* `python -m speclab decode --policy
#    figures/PROFILE/09/policy.json --prompts FILE --out OUT`; then the same with the profile of
#    another pair. <details><summary>Answer</summary>The second is refused: a policy carries digests
#    of both models' weights, because acceptance is a pair's own.</details>
#
# ### What we saw, what this does not show, what is next
# * The setting follows the price of a block more than the domain: read the table of section 1 by
#   machine, then by prompt set.
# * Numbers 'measured here' are one pair's on one machine. Assumed machines keep this pair's
#   acceptance: they say how a recommendation moves with c, not what another pair would gain. The
#   domains are four prompt sets in the form that the draft was trained on.
# * Intervals are of prompts. What a clock does to the prices is not in them.
# * Next: [10, wall clock](10_wall_clock.ipynb) takes the price of a block apart;
#   [14, serving](14_serving.ipynb) asks what a
#   server with a mix of requests gains.

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
# how far a promised speed-up may be off and still be kept
price_margin: float = 0.1  # 0 to 1
# how the policy finds a domain: classifier, or none (the prompt says it)
router: str = "classifier"  # one of classifier, none
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

from speclab import prompts, runs, score, stats
from speclab.models import pairs
from speclab.show import notebook
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

# %%
prices = choose.price(counted, settings, costs)

# %% [markdown]
# ## 1. What should be drafted for which domain?
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
advice = machines.recommend(prices, costs)
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
# * **classifier** reads it from the prompt's text, by logistic regression on counted words. Where
#   the classifier is not sure, the prompt gets the default;
# * the **oracle** gives each text its own best setting: a bound that no router passes.

# %%
found_by = routers.load_router().routes([prompt.text for prompt in known])
ids = [prompt.prompt_id for prompt in known]
routes = {"classifier": dict(zip(ids, found_by, strict=True))}

# %% [markdown]
# Every resample of the prompts chooses the settings again.

# %%
judged = policies.judged_policies(prices, routes)
ours = choose.speeds(judged)
speedups = Estimates(ours.table(key="policy"), digits=3)
speedups = speedups.without(policy="never", domain="all")

# %%
ctx.table(speedups.wide("policy", "domain"), "policies")
ctx.plot(
    speedups,
    x="domain",
    hue="policy",
    kind="points",
    y="predicted speed-up, this machine",
    slug="policies",
    caption="Speed-up by policy and domain (T = 0, replayed, measured here): from "
    f"{speedups.span()}.",
)

# %% [markdown]
# Over all prompts, how far is each ahead of 'always'?

# %%
pooled = {
    name: ours[name]["pooled"] - ours["always"]["pooled"]
    for name in ("per-domain", "classifier", "oracle")
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
# The **gain** is how much faster each domain's own setting is than one for all, over all prompts,
# both chosen on other prompts than they are judged on.

# %%
times_as_fast = ours["per-domain"]["pooled"] / ours["always"]["pooled"]
percent = {"per-domain": 100 * (times_as_fast - 1)}
gain = Estimates(ours.table(percent, "policy"), digits=1)
drafts = ", ".join(f"{row.domain} {row.setting}" for row in advice.rows())

# %%
speed = speedups.at(policy="per-domain", domain="pooled")
verdict = f"The predicted speed-up is {speed} (the prediction: {promise})."
if not machines.is_trusted(costs):
    verdict = "There is no verdict on speed, since another program disturbed the clock."

# %%
ctx.answer(
    f"On `{base.name}` and this machine (c = {costs.c():.2f}) the best settings are {drafts}. "
    f"{verdict} A setting for each prompt set instead of one for all gains {gain} % here."
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
# * The numbers are one pair's on one machine. The domains are four prompt sets in the form that the
#   draft was trained on.
# * Intervals are of prompts. What a clock does to the prices is not in them.
# * Next: [10, wall clock](10_wall_clock.ipynb) takes the price of a block apart;
#   [14, serving](14_serving.ipynb) asks what a
#   server with a mix of requests gains.

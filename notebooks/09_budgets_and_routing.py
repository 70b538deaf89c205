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
# class of machine, section 2 decodes with the policy and compares; sections 3 to 6 ask whether
# knowing the domain is worth anything (against one setting for everybody, a router's mistakes, a
# rule that only watches the first blocks), what a server with a mix of requests gains, at which
# batch size drafting must stop, and how wrong the numbers may be. Section 7 reads the paper's own
# regimes with the right break-even. The sentences with the numbers stand there.
#
# ![Speed-up of each policy, by domain, and how far it stays behind the oracle](../figures/tiny/09_policies.png)
#
# *Runs on* any machine; prices and recommendations marked 'measured here' speak of that machine ·
# *minutes* one or two · *reads* the runs `greedy` and `sampled` of the profile, recorded if they
# are not there, `data/routing`, and loads the pair · *writes* `figures/<profile>/09_*`, among them
# `09_policy.json` for `python -m speclab decode --policy FILE`.

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Colab and Kaggle: fetches the kit and installs what is missing. In a checkout it only moves to the
# repository's root.
import os, shutil, subprocess, sys
from pathlib import Path

fetched, here = Path("speclab-kit").resolve(), Path.cwd()
root = next(
    (p for p in (here, *here.parents, fetched) if (p / "speclab" / "notebook.py").is_file()), None
)
if root is None:
    attached = next(
        Path("/kaggle/input").rglob("speclab/notebook.py"), None
    )  # the kit as an attached data set: read-only, so copied
    if attached:
        shutil.copytree(attached.parents[1], fetched)
    elif not os.environ.get("SPECLAB_REPO"):  # the kit has no public address yet
        raise SystemExit(
            "No checkout here: set SPECLAB_REPO to the kit's git address, or attach the kit as a data set."
        )
    else:
        subprocess.run(
            ["git", "clone", "--depth", "1", os.environ["SPECLAB_REPO"], str(fetched)], check=True
        )
    root = fetched
os.chdir(root)
sys.path.insert(0, str(root))
if root == fetched:
    from speclab.notebook import install_missing

    install_missing(root)

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "tiny"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
max_gamma: int = 8  # the longest chain to choose from
budget: int = 8  # nodes of the largest tree to choose from
assumed_c: list = [
    0.05,
    0.1,
    0.3,
]  # of machines that were not measured; there a pass over several tokens costs one
published_c: float = 0.29  # TinyLlama -> Llama-2-7B in f16, llama.cpp issue 8499
# how the policy finds a domain: classifier, rules, or none (the prompt says it)
router: str = "classifier"
mix: dict = {"code": 0.4, "math": 0.1, "reasoning": 0.1, "chat": 0.4}  # shares of the requests
load: float = 0.8  # share of the time that a server would be busy if it never speculated
requests: int = 300  # of a simulated stream,
streams: int = 12  # and how many streams a value is the mean of
batches: list = [1, 2, 4, 8, 16, 32, 64]  # requests whose blocks are made together
knee: int = 64  # tokens of a pass up to which an assumed accelerator takes no longer than over one
pass_repeats: int = 21  # of each single pass that is timed, up to
pass_tries: int = 3  # times while the clock is disturbed
probes: list = [
    "chain:1",
    "chain:3",
    "tree:2,2,3",
    "tree:3,2,8",
]  # decoded on other prompts to learn what the loop takes
probe_prompts: int = 2  # a domain,
probe_repeats: int = 2  # so many times, in swapped orders
check_prompts: int = 3  # a domain, decoded plainly and by the policy,
check_repeats: int = 3  # so many times, in swapped orders

# %%
import dataclasses

import numpy as np
import pandas as pd

from speclab.studies.budgets_and_routing import policies
from speclab.analysis import bins
from speclab import (
    estimates as explain,
    draft,
    figures,
    notebook,
    pairs,
    prompts,
    runs,
    score,
    stats,
)
from speclab.analysis import (
    choose as budgets,
    published as paper,
    policy,
    router as routing,
    timing,
)
from speclab.studies.budgets_and_routing import serving as stream
from speclab import tree

ctx = notebook.start("09_budgets_and_routing", profile, overrides)
base = ctx.profile.replace(temperature=0.0)
greedy, sampled = (runs.load_or_record(base, kind) for kind in ("greedy", "sampled"))
pair, trace, domains, limit = (
    pairs.load_pair(base),
    greedy.trace,
    list(score.domains_in(greedy.trace)),
    base.max_new_tokens,
)
known = prompts.load_prompts(base.prompts, base.prompts_per_domain, base.domains)
encoded = prompts.encode_prompts(pair.tokenizer, known, base.max_prompt_tokens, base.template)
of = {d: [p for p in encoded if p.domain == d] for d in domains}
checked, probed = (
    [p for d in domains for p in of[d][:check_prompts]],
    [p for d in domains for p in of[d][-probe_prompts:]],
)
chains = {f"chain:{g}": tree.chain(g) for g in range(1, max_gamma + 1)}
trees = {
    f"tree:{d},{b},{n}": tree.static_tree(d, b, n)
    for d in (2, 3, 4)
    for b in (2, 3)
    for n in range(b, budget + 1)
}
same = {
    (*t.parent, *t.rank): name for name, t in [*chains.items(), *trees.items()][::-1]
}  # equal trees have one name
settings = {"plain": tree.PLAIN} | {
    name: t for name, t in (chains | trees).items() if same[(*t.parent, *t.rank)] == name
}
found = budgets.counts(trace, settings, max_new_tokens=limit)
context = int(np.median([len(p.ids) for p in encoded])) + limit // 2
here, published = "measured here", f"c = {published_c:g} (published: TinyLlama, Llama-2-7B, f16)"
machines = {f"c = {c:g} (assumed)": budgets.assumed(c) for c in assumed_c} | {
    published: budgets.assumed(published_c)
}
notebook.say(
    f"{len(settings)} settings (plain, {len(chains)} chains, {len(settings) - len(chains) - 1} static trees of up to {budget} "
    f"nodes) are replayed on {trace['prompt_id'].nunique()} texts of up to {limit} tokens at T = 0; the loop is timed on "
    f"{len(probed)} prompts, the policy is checked on {len(checked)} others."
)
assert (found.groupby("setting")["emitted"].sum() == len(trace)).all(), (
    "every setting emits the recorded tokens, no more, no less"
)

# %% [markdown]
# ## 1. What should be drafted, for which domain, on which machine?
# A block costs gamma c + v(gamma + 1) + o target passes (a tree: a draft pass a level, v of its
# nodes and the root). The terms are measured here: single passes in random order for c and v,
# decoding on a few prompts for o, which is larger for a tree's loop than for a chain's. The
# predicted speed-up of a setting is `block_efficiency`, replayed block by block, over that cost.
# Machines that were not measured are assumptions and labelled as such: a draft that costs c, v(n) =
# 1, o = 0, always with **this pair's** acceptance.
#
# `speedup` judges each prompt by the setting that was fastest on other prompts of its domain, so
# that choosing does not flatter it. `speculate` is yes or no where the whole interval lies above or
# below 1. `share_best`: how often the setting is the fastest when prompts are resampled; small
# shares mean that several are as good. `gamma` is that of the fastest chain, `tree` the fastest
# tree. The curves over c and the break-even c below do not do so (best setting chosen on the
# prompts it is judged on: slightly flattering).
#
# The clock is judged before anything else: if a v(n) lies below 0.95 or a pass's quartiles lie
# further apart than its median, all passes are timed again, `pass_tries` rounds at most, and an
# undisturbed round is kept, or else the one with the smallest spread. This looks at the clock only,
# never at what the prices lead to.


# %%
def disturbed(found: pd.DataFrame) -> bool:
    return min(timing.costs_of(found).verify) < 0.95 or timing.spread(found) > 1


tried = [timing.pass_times(pair, timing.SIZES, context, pass_repeats)]
while disturbed(tried[-1]) and len(tried) < pass_tries:
    tried.append(timing.pass_times(pair, timing.SIZES, context, pass_repeats))
times, shapes = (
    min(tried, key=lambda t: (disturbed(t), timing.spread(t))),
    {name: draft.parse_shape(name) for name in probes},
)
probing = timing.decoded_speed(pair, probed, shapes, limit, probe_repeats)
costs = stream.with_loop(
    timing.costs_of(times), probing, {name: shape.tree for name, shape in shapes.items()}
)
advice = policies.recommend(found, settings, {here: costs} | machines)
ctx.table(advice, "recommendations")
table, best = (
    budgets.price(found, settings, costs),
    advice[advice["machine"] == here].set_index("domain"),
)
chosen, file = budgets.choose(table), ctx.figures / "09_policy.json"
made = policy.Policy(
    policy.identity(base),
    policy.summary(costs, pair.facts["target"]["device"]),
    chosen[budgets.UNKNOWN],
    {d: chosen[d] for d in domains},
    router,
    greedy.manifest["key"],
)
policy.save(made, file)
notebook.say(
    f"Measured here: c = {costs.c():.3f}, v(2) = {costs.v(2):.2f}, v(4) = {costs.v(4):.2f}, v(9) = {costs.v(9):.2f}, o = "
    f"{costs.overhead:.2f} for a chain, {costs.tree_overhead:.2f} for a tree (largest spread of a timed pass: "
    f"{100 * timing.spread(times):.0f} %, timed in {len(tried)} of {pass_tries} allowed rounds). Predicted: "
    + "; ".join(
        f"**{d}** {row['setting']}, {row['speedup']:.2f} times plain [{row['low']:.2f}, {row['high']:.2f}], speculate: "
        f"{row['speculate']}"
        for d, row in best.iterrows()
    )
    + (
        f". **Warning**: v falls to {min(costs.verify):.2f}, but a pass over several tokens cannot cost less than over one: the clock was "
        "disturbed; run this again."
        if min(costs.verify) < 0.95
        else "."
    )
)
assert policy.load(file, policy.identity(base)) == made and set(best["setting"]) <= set(settings)

# %%
only = {name: t for name, t in settings.items() if t.is_chain}
by_c = {
    "best chain": budgets.curves(found[found["setting"].isin(only)], only),
    "best chain or tree": budgets.curves(found, settings),
}
even, top = (
    budgets.break_even(found, settings).set_index("domain"),
    max(rows["high"].max() for rows in by_c.values()),
)
for_all = pd.concat([rows.assign(allowed=name) for name, rows in by_c.items()], ignore_index=True)
ctx.table(
    for_all.assign(cell=for_all["setting"] + " " + for_all["speedup"].map("{:.2f}".format))
    .pivot(index=["allowed", "c"], columns="domain", values="cell")[[*domains, "pooled"]]
    .rename_axis(columns=None)
    .reset_index(),
    "by-c",
)
fig, axes = figures.subplots(1, 3, height=2.7)
panels = [
    (by_c["best chain"].drop(columns=["low", "high"]), "levels"),
    *((rows, "speedup") for rows in by_c.values()),
]
for axis, title, (rows, value) in zip(axes, ("best chain", *by_c), panels, strict=True):
    figures.lines_with_bands(rows[rows["domain"].isin(domains)], axis, x="c", y=value)
    axis.set(
        xscale="log",
        xlabel="c, a draft pass in target passes",
        title=title,
        ylabel="predicted speed-up",
        ylim=(0.9, 1.05 * top),
    )
    axis.set_xticks(
        [0.02, 0.05, 0.1, 0.2, 0.5, 1], labels=["0.02", "0.05", "0.1", "0.2", "0.5", "1"]
    )
    axis.minorticks_off()
    axis.axvline(published_c, color="black", linewidth=0.6, linestyle=(0, (1, 2)))
axes[0].set(ylabel="gamma (0: do not speculate)", ylim=(-0.3, max_gamma + 0.3))
figures.legend_above(fig, axes[1])
ctx.save(fig, "by-c")
notebook.say(
    f"To be read off for other hardware (v = 1, o = 0; dotted: c = {published_c:g}). No setting pays above c = "
    + ", ".join(
        f"{even.loc[d, 'c']:.2f} [{even.loc[d, 'low']:.2f}, {even.loc[d, 'high']:.2f}] for {d}"
        for d in domains
    )
    + " (best setting chosen on "
    f"the prompts it is judged on: slightly flattering). Not so flattered, this pair's acceptance would be worth, at c = {published_c:g}, "
    + ", ".join(
        f"{row['speedup']:.2f} ({row['domain']})"
        for _, row in advice[advice["machine"] == published].iterrows()
    )
    + "."
)
assert all(
    (rows.groupby("domain")["speedup"].diff().dropna() <= 1e-9).all() for rows in by_c.values()
), "a dearer draft is never better"

# %% [markdown]
# ## 2. Does the policy give what it promised?
# The policy is read back from its file, each checked prompt gets the setting that `decode --policy`
# would give it (the router's mistakes included), and is decoded plainly and by that setting, in
# swapped orders. For these very prompts:
#
# * **tokens per target pass**: the replay's blocks and the decoder's must be the same, exactly;
# * **speed-up**: tokens over the price of those blocks, twice. The **promise** takes the prices of
#   section 1, on which the recommendations and the policy's file rest. The **forecast** takes
#   prices measured again: c and v(n) are medians over the passes of section 1 together with those
#   timed after this decoding, o is the median over the loop's blocks right before and right after
#   it, on other prompts and by the policy's own settings; section 1's loops are not in it. The
#   interval resamples the checked prompts (medians of the repeats); promise and forecast are each
#   right if they lie inside. Measured over forecast compares prompt by prompt, a sharper question:
#   acceptance cancels, what is left is the price of a block.

# %%
plan, ids = policy.load(file, policy.identity(base)), {p.prompt_id for p in checked}
route = {p.prompt_id: policy.setting_for(plan, p) for p in known if p.prompt_id in ids}
drafts = {s: draft.parse_shape(s) for s in dict.fromkeys(route.values())}
drafting = {s: shape for s, shape in drafts.items() if shape.size}
before = timing.decoded_speed(pair, probed, drafting, limit, probe_repeats)
speeds = pd.concat(
    [
        timing.decoded_speed(
            pair,
            [p for p in checked if route[p.prompt_id] == s],
            {"policy": shape},
            limit,
            check_repeats,
        )
        for s, shape in drafts.items()
    ]
)
after = timing.decoded_speed(pair, probed, drafting, limit, probe_repeats)
again = timing.pass_times(pair, timing.SIZES, context, pass_repeats)
now = stream.with_loop(
    timing.costs_of(pd.concat([times, again])),
    pd.concat([before, after]),
    {s: d.tree for s, d in drafting.items()},
)
each = (
    speeds.groupby(["prompt_id", "domain", "method"])[["tokens", "blocks", "time_s"]]
    .median()
    .unstack("method")
)
each = (
    pd.DataFrame(
        {
            "tokens": each["tokens", "policy"],
            "blocks": each["blocks", "policy"],
            "plain_s": each["time_s", "plain"],
            "policy_s": each["time_s", "policy"],
        }
    )
    .reset_index("domain")
    .loc[[p.prompt_id for p in checked]]
    .reset_index()
)
replayed = {
    name: stream.with_passes(
        budgets.judge(prices[prices["prompt_id"].isin(ids)], route), found
    ).set_index("prompt_id")
    for name, prices in (("promised", table), ("forecast", budgets.price(found, settings, now)))
}
counted = each.set_index("prompt_id")[["tokens", "blocks"]]
wrong = int(
    (
        counted.to_numpy()
        != replayed["promised"].loc[counted.index, ["emitted", "target_passes"]].to_numpy()
    )
    .any(axis=1)
    .sum()
)
for (
    name,
    judged,
) in (
    replayed.items()
):  # seconds that the blocks take at their price, in units of the prompt's own plain tokens
    each[name] = each["plain_s"] / each["tokens"] * each["prompt_id"].map(judged["cost"])
speed, sharp = (
    stats.bootstrap(
        each.drop(columns="domain"),
        score.Estimator(
            over, lambda rows, over=over: rows[[over, "policy_s"]].to_numpy(float), score.quotient
        ),
    )
    for over in ("plain_s", "forecast")
)
promise, forecast = (each["plain_s"].sum() / each[name].sum() for name in ("promised", "forecast"))
exact = {str(m.dtype) + str(m.device) for m in (pair.target, pair.draft)} == {
    "torch.float32cpu"
}  # no rounding between pass shapes
assert not exact or wrong == 0, "the decoder makes the replay's blocks"

# %%
sums = (
    each.groupby("domain", sort=False)[
        ["tokens", "blocks", "plain_s", "policy_s", "promised", "forecast"]
    ]
    .sum()
    .loc[domains]
)
ratios = {
    name: sums["plain_s"] / sums[of_s]
    for name, of_s in (("measured", "policy_s"), ("promised",) * 2, ("forecast",) * 2)
}
ctx.table(
    pd.DataFrame(
        {"setting": plan.domains, "block_efficiency": sums["tokens"] / sums["blocks"]} | ratios
    )
    .loc[domains]
    .rename_axis("domain")
    .reset_index(),
    "check",
)
fig, ax = figures.subplots(width=figures.TWO_COLUMNS, height=3.2)
for d, part in each.groupby("domain", sort=False):
    ax.plot(
        part["plain_s"] / part["forecast"],
        part["plain_s"] / part["policy_s"],
        label=d,
        **figures.style_of(d) | {"linestyle": "none"},
    )
reach = [[speed.estimate - speed.low], [speed.high - speed.estimate]]
for value, label, face in (
    (forecast, "all, forecast", "black"),
    (promise, "all, promised by section 1", "white"),
):
    ax.errorbar(
        [value],
        [speed.estimate],
        yerr=reach,
        fmt="*",
        markersize=10,
        capsize=3,
        color="black",
        mfc=face,
        label=label,
    )
ends = [
    0.95 * min(ax.get_xlim()[0], ax.get_ylim()[0]),
    1.05 * max(ax.get_xlim()[1], ax.get_ylim()[1]),
]
ax.plot(ends, ends, color="black", linewidth=0.8, zorder=1)
ax.set(
    ylabel="measured speed-up",
    xlabel="forecast speed-up over plain decoding, a point a prompt (T = 0); on the line: as forecast",
)
figures.legend_above(fig, ax)
ctx.save(fig, "check")
kept, agrees = (bool(speed.low <= value <= speed.high) for value in (promise, forecast))
notebook.say(
    f"Blocks and tokens of {len(each)} prompts, replayed against decoded: **{wrong} prompts differ**. Speed-up measured **{speed}**. The "
    f"promise (prices of section 1) is {promise:.3f}, **{'inside' if kept else 'outside'}** the interval: "
    + (
        "it is kept. "
        if kept
        else "**it is not kept**; the levels 'measured here' in sections 1 and 3 to 6 rest on the same prices and are off by as much "
        f"({100 * (promise / speed.estimate - 1):+.0f} % here). "
    )
    + f"The forecast (prices measured again) is {forecast:.3f}, "
    f"**{'inside' if agrees else 'outside'}** it. Measured over forecast is {sharp}: "
    + (
        "prices cannot be told from measured ones."
        if sharp.low <= 1 <= sharp.high
        else f"blocks took {'more' if sharp.estimate < 1 else 'less'} than their price, by "
        f"{100 * abs(1 / sharp.estimate - 1):.0f} %. The interval knows other prompts, not another moment."
    )
)

# %% [markdown]
# ## 3. Is it worth knowing the domain?
# Policies, all priced with the costs of section 1 and each prompt judged by settings that were
# fitted on other prompts:
#
# * **never** (plain), **always** (one setting for everybody, the best for the mix of the
#   parameters), **per-domain** (the true domain's);
# * **rules**, **classifier**: the domain that regular expressions, or TF-IDF with logistic
#   regression, read from the prompt's text. The classifier was trained on other prompts; where it
#   is not sure, the prompt gets the setting that is best for all prompts together;
# * **online**: no classifier; the first two blocks are drafted alike, then the setting follows what
#   was accepted in them;
# * **oracle**: each prompt's own best setting, with hindsight. What lies between 'always' and it is
#   the **regret** of one uniform setting.
#
# A wrong route costs what the other domain's setting costs; where two domains have the same
# setting, it costs nothing. Once here, once on the assumed machine with the cheapest draft, where
# long drafts pay and domains differ most. A positive number: the other domain's setting happens to
# be faster on these prompts; the tables hold the intervals.
#
# The classifier is also judged on its own: on prompts (and on technical prose, which is of no
# domain) held out of its training, on this profile's, and on the benchmarks' where a copy is at
# hand, each with and without the form that gives a domain away. `right`: its most likely domain is
# the true one; `to_default`: it is not sure enough.

# %%
texts = pd.DataFrame(
    [(p.prompt_id, p.domain, p.text) for p in known], columns=["prompt_id", "domain", "text"]
)
places, trained = {here: costs} | machines, routing.load_router()
routed, bare = (
    routing.routed(texts.assign(text=texts["text"].map(f)), trained)
    for f in (str, routing.strip_form)
)
taken = {"rules": routing.rules(texts["text"]), "classifier": routed["route"]}
routes = {
    name: dict(zip(texts["prompt_id"], labels, strict=True)) for name, labels in taken.items()
}
everywhere = {
    name: policies.judged(trace, found, settings, there, mix, routes, limit)
    for name, there in places.items()
}
judged, numeric = everywhere[here], ["estimate", "low", "high"]
compared = pd.concat(
    [budgets.compare(frames, "always").assign(machine=name) for name, frames in everywhere.items()],
    ignore_index=True,
)
compared[numeric] = compared[numeric].round(9) + 0.0  # no minus zero
ours = compared[(compared["machine"] == here) & compared["domain"].isin([*domains, "pooled"])]
ctx.table(explain.wide(ours, ["quantity", "policy"], "domain", 3), "policies")
gaps = compared[(compared["domain"] == "pooled") & (compared["quantity"] == "minus_baseline")]
ctx.table(explain.wide(gaps, ["machine"], "policy", 3), "policies-by-machine")
order = ["always", "per-domain", "classifier", "online", "oracle"]  # 'rules' are in the tables
zero = gaps[gaps["policy"] == "oracle"].assign(
    policy="always", estimate=0.0, low=np.nan, high=np.nan
)
short = pd.concat([zero, gaps]).assign(
    machine=lambda rows: rows["machine"].str.replace(r"measured | \(.*", "", regex=True)
)
panels = (
    (ours[ours["quantity"] == "speed"], "domain", "predicted speed-up, measured machine"),
    (short, "machine", "speed-up minus that of 'always', pooled"),
)
fig, axes = figures.subplots(1, 2, height=2.9)
for axis, (rows, x, label) in zip(axes, panels, strict=True):
    figures.interval_bars(
        pd.concat([rows[rows["policy"] == name] for name in order]), axis, x=x, hue="policy"
    )
    axis.set(ylabel=label, xlabel=f"{x} (T = 0, replayed)")
figures.legend_above(fig, axes[0])
ctx.save(fig, "policies")
assert all(
    (f["oracle"]["cost"].to_numpy() <= f["per-domain"]["cost"].to_numpy() + 1e-9).all()
    for f in everywhere.values()
)

# %%
duel = budgets.compare({n: judged[n] for n in ("online", "classifier")}, "online").set_index(
    ["policy", "quantity", "domain"]
)[numeric]
duel = duel.loc[("classifier", "minus_baseline", "pooled")].round(9) + 0.0
gaps["word"], cheap = (
    [policies.told(g, "is faster than", "is slower than") for _, g in gaps.iterrows()],
    next(iter(machines)),
)
gap = gaps[gaps["machine"] == here].set_index("policy")
knowing = gaps[gaps["policy"] == "per-domain"].groupby("word", sort=False)["machine"].agg(", ".join)
notebook.say(
    "Speed-up minus that of one setting for everybody, measured here, pooled over all prompts: "
    + "; ".join(
        f"**{name}** {g['word']} 'always' ({g['estimate']:+.3f} [{g['low']:+.3f}, {g['high']:+.3f}])"
        for name, g in gap.iterrows()
    )
    + f". The classifier {policies.told(duel, 'beats', 'is beaten by')} the online rule ({duel['estimate']:+.3f} [{duel['low']:+.3f}, "
    f"{duel['high']:+.3f}]). Rules are right in {(texts['domain'] == taken['rules']).mean():.3f} of the prompts. Knowing the true domain "
    + "; ".join(f"**{word}** 'always' on: {names}" for word, names in knowing.items())
    + "."
)
# %%
there, card = bool(os.environ.get(prompts.MIRROR)), trained.card
error = bins.calibration_error("confidence", "correct")
sets = {f"this profile's ({base.prompts})": known}
sets |= (
    {"benchmarks' (paper)": prompts.load_prompts("paper", base.prompts_per_domain, domains)}
    if there
    else {}
)
ctx.table(policies.router_table(trained, sets), "router")
notebook.say(
    f"The area under the ROC curve by which the classifier's probability tells held-out prompts of the domains from technical "
    f"prose is {card['text']['auc_of_prose']:.3f}, form removed {card['bare']['auc_of_prose']:.3f}. Its calibration error on this "
    f"profile's prompts is {stats.bootstrap(routed, error)}, form removed {stats.bootstrap(bare, error)}."
    + (
        ""
        if there
        else f" The benchmarks' prompts were not judged: {prompts.MIRROR} names no copy of them here."
    )
)
fig, axes = figures.subplots(4, 1, height=6.2, sharex=True)
for axis, (name, rows) in zip(
    axes,
    {"classifier": routed, "classifier, form of the prompt removed": bare}.items(),
    strict=False,
):
    figures.heatmap(
        policies.confusion(rows["domain"], rows["route"]),
        axis,
        "prompts",
        0,
        0,
        max(map(len, of.values())),
    )
    axis.set(title=name, xlabel="", ylabel="domain")
for axis, name in zip(axes[2:], (here, cheap), strict=True):
    lost = policies.wrong_routes(
        budgets.price(found, settings, costs if name == here else machines[name])
    )
    lost = lost[(lost["quantity"] == "minus_baseline") & lost["domain"].isin(domains)].rename(
        columns={"policy": "taken_for"}
    )
    lost[numeric] = (lost[numeric] * (1e3 / costs.target_ms if name == here else 1.0)).round(
        6
    ) + 0.0
    ctx.table(
        explain.wide(lost, ["domain"], "taken_for", 3),
        "wrong-routes-here" if name == here else "wrong-routes-assumed",
    )
    cells = lost.pivot(index="domain", columns="taken_for", values="estimate").loc[
        domains, [*domains, budgets.UNKNOWN]
    ]
    figures.heatmap(
        cells, axis, "tokens/s" if name == here else "speed-up", digits=1 if name == here else 3
    )
    axis.set(
        title=f"what the route changes, {name}",
        xlabel="" if name == here else "taken for",
        ylabel="domain",
    )
ctx.save(fig, "routing")

# %% [markdown]
# ## 4. What does a server with a mix of requests gain?
# A simulation over the recorded texts: requests of the mix arrive at random (Poisson) at one
# server, which serves one at a time; prefill is left out. `tokens/s` is what the server gives while
# it works; latency includes waiting. Load: a server that never speculates would be busy that share
# of the time. Intervals: prompts are resampled within their domain, and every resample serves its
# own random streams. Passes and drafts are counted instead of energy.

# %%
outcome = stream.simulate(judged, mix, costs.target_ms, load, requests, streams)
result, over = outcome.table(), outcome.table("always").set_index(["metric", "policy"])
ctx.table(explain.wide(result, ["policy"], "metric", 3), "stream")
fig, axes = figures.subplots(1, 3, height=2.5, sharey=True)
labels = {
    "tokens_per_s": "tokens per second of work",
    "p95_s": f"95 % latency, s (load {load:g})",
    "passes_saved": "target passes saved",
}
for axis, (metric, label) in zip(axes, labels.items(), strict=True):
    rows = result[result["metric"] == metric].assign(hue="estimate")
    figures.interval_bars(rows, axis, x="policy", hue="hue", horizontal=True)
    axis.set(xlabel=label)
    axis.tick_params(axis="y", left=False)
ctx.save(fig, "stream")
value = result.set_index(["metric", "policy"])["estimate"]
notebook.say(
    f"Mix: {', '.join(f'{100 * s:.0f} % {d}' for d, s in mix.items())}; {streams} streams of {requests} requests. **Never** speculating "
    f"gives {value['tokens_per_s', 'never']:.0f} tokens/s, latency {value['p50_s', 'never']:.2f} s in the median and "
    f"{value['p95_s', 'never']:.2f} s at 95 %; **always** {value['tokens_per_s', 'always']:.0f} tokens/s, {value['p50_s', 'always']:.2f} "
    f"and {value['p95_s', 'always']:.2f} s, with {100 * value['passes_saved', 'always']:.0f} % of the target passes saved for "
    f"{value['drafts_per_token', 'always']:.2f} draft passes a token. Relative to 'always', tokens per second: "
    + "; 95 % latency: ".join(
        ", ".join(
            f"{name} {r['estimate']:.3f} [{r['low']:.3f}, {r['high']:.3f}]"
            for name, r in over.loc[metric].drop("always").iterrows()
        )
        for metric in ("tokens_per_s", "p95_s")
    )
    + "."
)
fixed = [
    name != "online" for name in outcome.policies
]  # the online rule changes its setting within a text, the oracle does not
assert (
    outcome.values[fixed, 0] <= outcome.values[outcome.policies.index("oracle"), 0] + 1e-9
).all(), "in no stream is the oracle slower"

# %% [markdown]
# ## 5. At which batch size must drafting stop?
# With `batch` requests in one pass, a block verifies batch × (gamma + 1) tokens at once, and plain
# decoding already fills the machine with batch tokens. Full batches are priced with the measured
# c(n) and v(n) (hollow points: a pass beyond the measured 64 tokens, on a straight line with the
# last slope); crosses are a lock-step simulation of the same texts, arriving all at once, whose
# batch empties at the end (and is never full where a domain has fewer prompts than that). The
# speed-up is that of the best drafting setting (best setting chosen on the prompts it is judged on:
# slightly flattering). Beside it an **assumed** accelerator, on which a pass takes no longer until
# it holds `knee` tokens, and then grows in proportion.

# %%
c, drafting = assumed_c[len(assumed_c) // 2], {name: t for name, t in settings.items() if t.size}
flat = dataclasses.replace(
    budgets.assumed(c), sizes=(1, knee, 16 * knee), draft=(c, c, 16 * c), verify=(1.0, 1.0, 16.0)
)
rows = []
for name, machine in {here: costs, f"assumed: v(n) = max(1, n / {knee}), c = {c:g}": flat}.items():
    for batch in batches:
        full = stream.batched(machine, batch, 1 + max(t.size for t in drafting.values()))
        top = budgets.best_setting(
            budgets.price(found[found["setting"].isin(drafting)], drafting, full), n=500
        )
        top = top.loc[top.groupby("domain", sort=False)["speedup"].idxmax()].rename(
            columns={"speedup": "estimate"}
        )
        rows.append(
            top.assign(
                machine=name,
                batch=batch,
                pass_tokens=[batch * (drafting[s].size + 1) for s in top["setting"]],
            )
        )
crowd = pd.concat(rows, ignore_index=True)
ctx.table(explain.wide(crowd, ["machine", "batch"], "domain"), "batches")
which = crowd.pivot(index=["machine", "batch"], columns="domain", values="setting").loc[
    [*crowd["machine"].unique()], domains
]
ctx.table(which.rename_axis(columns=None).reset_index(), "batch-settings")
local = crowd[(crowd["machine"] == here) & crowd["domain"].isin(domains)]
wide = stream.extended(costs, int(local["pass_tokens"].max()))
walked = {name: stream.work(trace, settings[name], limit) for name in {"plain", *local["setting"]}}
simulated = {}
for row in local.itertuples():
    mine = [p.prompt_id for p in of[row.domain]]
    ends = [
        stream.lockstep(np.zeros(len(mine)), [walked[s][i] for i in mine], row.batch, wide).max()
        for s in ("plain", row.setting)
    ]
    simulated[row.domain, row.batch] = ends[0] / ends[1]

# %%
fig, axes = figures.subplots(1, 2, height=2.9, sharey=True)
panels = crowd[crowd["domain"].isin(domains)].groupby("machine", sort=False)
for axis, (name, rows) in zip(axes, panels, strict=True):
    figures.lines_with_bands(rows, axis, x="batch")
    for d in domains if name == here else ():
        look, beyond = (
            figures.style_of(d),
            rows[(rows["domain"] == d) & (rows["pass_tokens"] > costs.sizes[-1])],
        )
        axis.plot(
            beyond["batch"],
            beyond["estimate"],
            linestyle="none",
            mfc="white",
            mec=look["color"],
            marker=look["marker"],
            zorder=3,
        )
        axis.plot(
            batches,
            [simulated[d, b] for b in batches],
            linestyle="none",
            marker="x",
            color=look["color"],
        )
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set(xscale="log", xlabel="batch: requests in one pass", title=name)
    axis.set_xticks(batches, labels=[str(b) for b in batches])
    axis.minorticks_off()
axes[0].set_ylabel("speed-up of the best drafting setting")
figures.legend_above(fig, axes[0])
ctx.save(fig, "batches")
for name, rows in panels:
    turns = {d: policies.turning(part) for d, part in rows.groupby("domain", sort=False)}
    mixed = [d for d in domains if not turns[d].steady]
    notebook.say(
        f"**{name}**: the batch up to which drafting always pays (whole interval above 1) is "
        + ", ".join(f"{turns[d].pays_to or 'none'} ({d})" for d in domains)
        + "; it is turned off (whole interval below 1) from a batch of "
        + ", ".join(f"{turns[d].off_from or 'none of these'} ({d})" for d in domains)
        + " and at every larger one. The best setting is "
        "chosen on the prompts it is judged on: slightly flattering."
        + (
            f" In {', '.join(mixed)} it "
            f"does not go in one direction{': a pass was timed badly' if name == here else ''}."
            if mixed
            else ""
        )
    )
one = local[local["batch"] == 1].set_index("domain")["estimate"]
assert all(abs(simulated[d, 1] / one[d] - 1) < 1e-6 for d in domains if 1 in batches), (
    "one at a time the simulation is the closed form"
)

# %% [markdown]
# ## 6. How robust is the choice?
# * **Acceptance misestimated**: settings are chosen per domain as if the draft's first choice were
#   right a tenth less (x0.9) or more (x1.1) often than it is, and served to the real texts.
# * **Drift**: one setting is fitted to a mix with 70 % of one domain and serves a mix with 70 % of
#   another.
# * **Temperature**: settings are chosen at T = 0 and serve text sampled at T = 1 (chains by the
#   rejection rule, trees by point mass; run `sampled`), beside settings chosen at T = 1.

# %%
most = 1 / (trace["draft_rank"] == 0).groupby(trace["domain"]).mean().max()
missed = budgets.misestimated(trace, settings, costs, (0.9, min(1.1, most)))
mixes = {
    f"mostly {d}": {e: 0.7 if e == d else 0.3 / (len(domains) - 1) for e in domains}
    for d in domains
}
moved = stream.drift(table, mixes, judged["per-domain"])
chained = {name: t for name, t in settings.items() if t.is_chain}
branched = {name: t for name, t in settings.items() if name not in chained}
warm = [
    budgets.counts(sampled.trace, part, rule, limit)
    for part, rule in ((chained, "rejection"), (branched, "point-mass"))
]
warm = budgets.price(pd.concat(warm, ignore_index=True), settings, costs)
hot = {
    "chosen at T = 1": budgets.cross_fit(warm),
    "chosen at T = 0": budgets.cross_fit(table, judged=warm),
    "never": budgets.judge(warm, "plain"),
}
hot = budgets.compare(hot, "chosen at T = 1").assign(question="served at T = 1")
both = pd.concat([missed.assign(question="acceptance misestimated, T = 0"), hot], ignore_index=True)
both = both[both["domain"] != "all"].assign(**both[["estimate", "low", "high"]].round(9) + 0.0)
ctx.table(explain.wide(both, ["question", "quantity", "policy"], "domain", 3), "robustness")
ctx.table(explain.wide(moved, ["fitted_on"], "served", 3), "drift")
change = both[(both["domain"] == "pooled") & (both["quantity"] == "minus_baseline")].set_index(
    "policy"
)
level = both[(both["domain"] == "pooled") & (both["quantity"] == "speed")].set_index("policy")[
    "estimate"
]
grid = moved.pivot(index="fitted_on", columns="served", values="estimate").loc[
    [*mixes, "per-domain"], [*mixes]
]
drifted = (np.diag(grid.loc[[*mixes]]) - grid.loc[[*mixes]]).max(axis=None)
notebook.say(
    "Change of speed-up, pooled (against the choice from true acceptance; at T = 1 against the choice there): "
    + "; ".join(
        f"{name} {r['estimate']:+.3f} [{r['low']:+.3f}, {r['high']:+.3f}]"
        for name, r in change.iterrows()
    )
    + f". The most that one setting loses when the mix drifts is {drifted:.3f} (of {grid.max(axis=None):.2f}). At T = 1 the settings "
    f"chosen at T = 0 are worth {level['chosen at T = 0']:.2f} times plain decoding, against {level['x1']:.2f} at T = 0."
)

# %% [markdown]
# ## 7. The paper's regimes, read with the right break-even
# The paper calls speculation positive where its expected accepted length E[L] is above 1, negative
# below. But a target pass emits one token more than it accepts, and what a block costs depends on
# c: the break-even is gamma c + v + o tokens per pass. Below are both readings of **its own**
# numbers (Tables II and III; v = 1, o = 0; within 0.05 of 1: marginal) for several c, at its depth
# 3 (`speedup`, `regime`) and at the best gamma up to 3. Its acceptance is that of no algorithm
# (notebook 03), so these are its numbers read rightly, not what its pair would do.

# %%
regimes = paper.regimes((*assumed_c[:2], published_c, 0.5))
ctx.table(regimes, "regimes")
differ, last = (
    regimes[regimes["paper_regime"] != regimes["regime"]],
    regimes.groupby("domain", sort=False)["break_even_c"].max(),
)
notebook.say(
    f"{len(differ)} of {len(regimes)} cells change their regime. By E[L] "
    + ", ".join(
        f"{d} is {r}"
        for d, r in regimes.drop_duplicates("domain")[["domain", "paper_regime"]].to_numpy()
    )
    + "; by break-even at depth 3 "
    + ", ".join(f"{d} pays up to c = {end:.2f}" for d, end in last.items())
    + ". Whether to speculate is a question of c, not of E[L] = 1."
)
ctx.record(
    c=costs.c(),
    overhead=costs.overhead,
    tree_overhead=costs.tree_overhead,
    check_measured=speed.estimate,
    check_low=speed.low,
    check_high=speed.high,
    check_promised=promise,
    check_kept=str(kept),
    check_predicted=forecast,
    check_agrees=str(agrees),
    check_prompts_that_differ=wrong,
    regimes_changed=len(differ),
    **{
        f"{name}_minus_always".replace("-", "_"): gap.loc[name, "estimate"]
        for name in ("per-domain", "classifier", "online", "oracle")
    },
    **{
        f"{d}_{name}": row[name]
        for d, row in best.iterrows()
        for name in ("setting", "speedup", "low", "high", "speculate")
    },
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
#    figures/tiny/09_policy.json --prompts FILE --out OUT`; then the same with the profile of
#    another pair. <details><summary>Answer</summary>The second is refused: a policy carries digests
#    of both models' weights, because acceptance is a pair's own.</details>
#
# ### What we saw, what this does not show, what is next
# * The setting follows the price of a block more than the domain: read section 1 by machine, then
#   by domain. Whether the domain is worth knowing is the difference of 'per-domain' and 'always' in
#   section 3, and its interval says whether there is any.
# * Numbers 'measured here' are one pair's on one machine. Assumed machines keep this pair's
#   acceptance: they say how a recommendation moves with c, not what another pair would gain.
# * A setting is chosen for one temperature: section 6 says what it loses at another, and a policy's
#   file does not know which it will serve.
# * The server is a model: no prefill, no memory limit, no scheduler but first come first served;
#   batches make their blocks in lock step, and a packed pass over one text stands for one over
#   several.
# * T between 0 and 1 was not recorded; energy was not measured.
# * Next: [10, wall clock](10_wall_clock.ipynb) takes the price of a block apart;
#   [11](11_paper_audit.ipynb) audits the paper.

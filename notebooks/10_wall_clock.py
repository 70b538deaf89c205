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
# **Answer.** Only as far as the price of a block lets it. A block of gamma drafted tokens emits
# `block_efficiency` tokens and costs gamma c + v(gamma + 1) + o target passes; the speed-up is the
# first over the second. Section 1 measures the price on this machine, section 2 the speed of real
# decoding (plain, chains, trees) and how well the price predicts it, section 6 which part of the
# price, or acceptance itself, holds this pair back most. The sentences with the numbers stand
# there.
#
# ![Tokens per target pass, and the speed-up they become, for each shape of draft](../figures/tiny/10_speed.png)
#
# *Runs on* any machine, and speaks of that machine only: times differ from run to run, so nothing
# below asserts a time · *minutes* about one on 2 cores · *reads* the runs `greedy`, `chain` and
# `sampled` of the profile, recorded if they are not there, and loads the pair · *writes*
# `figures/<profile>/10_*`.

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

# %%
import dataclasses

import numpy as np
import pandas as pd

from speclab import (
    estimates as explain,
    cost,
    decode,
    draft,
    figures,
    notebook,
    pairs,
    prompts,
    record,
    replay,
    runs,
    score,
)
from speclab.analysis import stopping as control, best_tree as search
from speclab import stats, tree
from speclab.analysis import timing
from speclab.sampling import Sampling

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "tiny"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# decoded for real; the other prompts choose the best tree and the stopping rule
prompts_per_domain_timed: int = 4
new_tokens: int = 32  # at most, of each timed text
repeats: int = 3  # of each text by each method, in swapped orders; the median counts
pass_repeats: int = 9  # of each single pass
gammas: list = [1, 4, 8]  # the chains that are timed
# nodes of the trees that are compared with the paper's 2 + 4 + 2 and with a chain of 8
budget: int = 8
dynamic: list = [4, 4]  # depth and branches of the dynamic tree of `budget` nodes
folds: int = 5  # a stopping rule is judged on one part of the prompts and fitted on the others
sampled_gamma: int = 4  # the chain at temperature 1,
sampled_seeds: int = 2  # decoded so many times
# the article's worked example: acceptance, gamma, and times of a target and of a draft pass
article_alpha: float = 0.85
article_gamma: int = 4
target_ms: float = 100.0
draft_ms: float = 5.0

# %%
ctx = notebook.start("10_wall_clock", profile, overrides)
settings = ctx.profile.replace(temperature=0.0)
greedy, chained, sampled = (
    runs.load_or_record(settings, kind) for kind in ("greedy", "chain", "sampled")
)
pair, domains = pairs.load_pair(settings), list(score.domains_in(greedy.trace))
known = prompts.load_prompts(settings.prompts, settings.prompts_per_domain, settings.domains)
encoded = prompts.encode_prompts(
    pair.tokenizer, known, settings.max_prompt_tokens, settings.template
)
timed = [
    p for d in domains for p in [e for e in encoded if e.domain == d][:prompts_per_domain_timed]
]
ids, new_tokens = [p.prompt_id for p in timed], min(new_tokens, settings.max_new_tokens)
short = greedy.trace.query(
    "prompt_id in @ids and position < @new_tokens"
)  # what the timed texts will be
others = greedy.trace.query("prompt_id not in @ids") if len(timed) < len(encoded) else greedy.trace
exact = {str(m.dtype) + str(m.device) for m in (pair.target, pair.draft)} == {
    "torch.float32cpu"
}  # no rounding between pass shapes


def interval(frame: pd.DataFrame, over: str, under: str) -> stats.Interval:
    """Ratio of sums of two columns with its 95 % interval, prompts of all domains resampled
    together.
    """
    ratio = score.Estimator(over, lambda rows: rows[[over, under]].to_numpy(float), score.quotient)
    return stats.bootstrap(frame.drop(columns="domain", errors="ignore"), ratio)


notebook.say(
    f"{len(timed)} prompts are timed, {len(timed) / len(domains):g} a domain, up to {new_tokens} tokens each. Target: "
    f"{pair.facts['target']['parameters'] / 1e6:.3g}M parameters, draft: {pair.facts['draft']['parameters'] / 1e6:.3g}M, in "
    f"{pair.facts['target']['dtype']} on {pair.facts['target']['device']}, {notebook.limit_threads()} threads."
)

# %% [markdown]
# ## 1. What does a pass cost?
# A forward pass of the target over one token is the unit: plain decoding makes one for each token.
# Speculation makes other passes:
#
# * **c**: a draft pass over one token, in such units; the draft makes gamma of them before each
#   target pass;
# * **v(n)**: a target pass over n tokens (the last one and the n - 1 drafted) in units of one over
#   1. The textbook takes v = 1: true while a pass waits for the weights to come from memory, not
#   when it waits for arithmetic;
# * **o**: what a block takes besides its passes (choosing, comparing, cutting the caches back), and
#   what its first pass takes more, because the other model's weights have pushed its own out of the
#   processor's cache.
#
# Each repeat runs all cases in a new random order, for just that reason: with a fixed order the
# cases at the ends would always stand behind the other model. Medians count; the bands are the
# quartiles of the repeats.

# %%
context = int(np.median([len(p.ids) for p in timed])) + new_tokens // 2
times = timing.pass_times(pair, timing.SIZES, context, pass_repeats)
passes, four, costs = timing.quartiles(times), draft.Shape(tree.chain(4)), timing.costs_of(times)
texts = [decode.decode_prompt(pair, p, "greedy", four, Sampling(), new_tokens) for p in timed]
costs = dataclasses.replace(
    costs, overhead=float(np.median([timing.measured_overhead([t], four, costs) for t in texts]))
)
wide = passes.pivot(index="n", columns="model", values=["ms", "low", "high"])
wide.columns = [f"{model}_{name}" for name, model in wide.columns]
shown = pd.DataFrame({"c(n)": costs.draft, "v(n)": costs.verify}, index=wide.index).join(
    wide[sorted(wide, reverse=True)]
)
ctx.table(shown.reset_index(), "pass-times")
flat = max(
    (n for n in costs.sizes if all(costs.v(m) <= 1.25 for m in costs.sizes if m <= n)), default=1
)
notebook.say(
    f"With {context} tokens in the cache, a target pass over one token takes {costs.target_ms:.2f} ms; **c = {costs.c():.3f}**, "
    f"**v(5) = {costs.v(5):.2f}** (verifying a chain of 4), v(9) = {costs.v(9):.2f}, v(64) = {costs.v(64):.2f}, and a block takes "
    f"**o = {costs.overhead:.2f}** more than its passes (the median over texts decoded with a chain of 4). "
    + (
        f"Up to {flat} tokens a target pass costs at most a quarter more than over one. "
        if flat > 1
        else "Already 2 tokens cost over a quarter more than one. "
    )
    + f"The largest spread of a case (quartile range over median) is {100 * timing.spread(times):.0f} %."
)
assert costs.v(1) == 1 and (passes["low"] <= passes["ms"]).all()

# %%
fig, axes = figures.subplots(1, 2, height=2.7)
scaled = passes.assign(**{name: passes[name] / costs.target_ms for name in ("ms", "low", "high")})
names = ({"target": "target", "draft": "draft"}, {"target": "v(n)", "draft": "c(n)"})
for axis, frame, called in zip(axes, (passes, scaled), names, strict=True):
    figures.lines_with_bands(frame, axis, x="n", hue="model", y="ms")
    for model, label in called.items():
        end = frame[frame["model"] == model].iloc[-1]
        axis.annotate(label, (end["n"], end["ms"]), (5, 0), textcoords="offset points", va="center")
sizes = np.array(costs.sizes)
for label, line, dots in (("v = n", sizes, (0, (1, 2))), ("v = 1", sizes**0, "-")):
    axes[1].plot(sizes, line, color="black", linewidth=0.8, linestyle=dots, zorder=1)
    axes[1].annotate(label, (sizes[-1], line[-1]), (5, 0), textcoords="offset points", va="center")
for axis in axes:
    axis.set(xscale="log", yscale="log", xlabel="tokens in one pass, n", xlim=(0.9, 130))
    ticks = [
        t
        for t in np.outer(10.0 ** np.arange(-3, 5), [1, 2, 5]).ravel()
        if axis.get_ylim()[0] <= t <= axis.get_ylim()[1]
    ]
    axis.set_yticks(ticks, labels=[f"{t:g}" for t in ticks])
    axis.set_xticks([1, 2, 4, 8, 16, 32, 64], labels=["1", "2", "4", "8", "16", "32", "64"])
    axis.minorticks_off()
axes[0].set(ylabel="time of a pass, ms", title="median and quartiles")
axes[1].set(ylabel="target passes over one token", title="the same, in units of v(1)")
ctx.save(fig, "pass-times")

# %% [markdown]
# ## 2. What does decoding gain?
# The same prompts are decoded at T = 0 by plain decoding and with drafts of several shapes, one
# text after another, in swapped orders, the prefill left out. All texts are the target's own
# (checked below), so that the ratio of times is the speed-up. Compared at up to `budget` nodes:
# chains; the paper's tree of 2 + 4 + 2; the static tree that the measured costs and the acceptance
# of the draft's ranks (on the prompts that are not timed) predict to be fastest; a dynamic tree,
# chosen anew in each block by cumulated draft probability (EAGLE-2's rule); and a chain that stops
# when the draft is unsure (section 3), its threshold from the prompts that are not timed.
#
# **Predicted** speed-up = `block_efficiency` / (c per draft pass + v(nodes + 1) + o). It knows the
# price of section 1 and none of the times below. (It prices whole blocks; the last block of a text
# is often cut and costs less.) Intervals resample the timed prompts of all domains together: those
# of one domain are too few for an interval of their own, so the table by domain has none.

# %%
rank, every = search.rank_acceptance(others), control.chains(chained.nodes, settings.max_new_tokens)
small, large = range(1, budget + 1), [n for n in (12, 16, 24, 32, 48, 63) if n > budget]
best, unbound = (
    search.best_tree_for_speed(rank, costs, sizes) for sizes in (small, [*small, *large])
)
fitted = (
    ~np.isin(every.prompt_id, ids) if len(timed) < len(encoded) else np.ones(len(encoded), bool)
)
threshold, limit, _ = control.fit(every, costs, "confidence", [fitted])[0]
rule, own = f"chain of {limit}, stop rule", f"best static, {best.tree.size} nodes"
shapes = {f"chain of {g}": draft.Shape(tree.chain(g)) for g in gammas} | {
    rule: draft.Shape(tree.chain(limit), draft.StopRule("confidence", threshold)),
    "paper's 2 + 4 + 2": draft.Shape(tree.static_tree(3, 2, 8)),
    own: draft.Shape(best.tree),
    f"dynamic, {budget} nodes": draft.Shape(None, None, *dynamic, budget),
}
speeds = timing.decoded_speed(pair, timed, shapes, new_tokens, repeats)
here = control.chains(
    chained.nodes.query("prompt_id in @ids and position < @new_tokens"), new_tokens
)
counts = {
    name: replay.prompt_sums(replay.replay(short, s.tree))
    for name, s in shapes.items()
    if s.tree and not s.stop
}
counts[rule] = control.totals(here, control.stopped(here, "confidence", threshold, limit), costs)
wrong = {}
for name, sums in counts.items():
    both = speeds[speeds["method"] == name].merge(sums, on="prompt_id", suffixes=("", "_replayed"))
    wrong[name] = int(
        ((both["tokens"] != both["emitted"]) | (both["blocks"] != both["blocks_replayed"])).sum()
    )
truth, sample = short.groupby("prompt_id")["token"].agg(tuple), timed[::prompts_per_domain_timed]
differ = sum(
    decode.decode_prompt(pair, p, "greedy", s, Sampling(), new_tokens).token_ids
    != truth[p.prompt_id]
    for s in shapes.values()
    for p in sample
)

# %%
each = (
    speeds.groupby(["method", "prompt_id", "domain"], sort=False)[["tokens", "blocks", "time_s"]]
    .median()
    .reset_index()
)
each["plain_s"] = each["prompt_id"].map(
    each[each["method"] == "plain"].set_index("prompt_id")["time_s"]
)
block = {
    name: costs.of_block(s.tree) if s.tree else control.dynamic_tree_cost(costs, *dynamic, budget)
    for name, s in shapes.items()
}
block |= {rule: counts[rule]["cost"].sum() / counts[rule]["blocks"].sum(), "plain": 1.0}
rows = []
for name, part in each.groupby("method", sort=False):
    ratio, tau = interval(part, "plain_s", "time_s"), interval(part, "tokens", "blocks")
    rows.append(
        {
            "method": name,
            "tokens_per_s": part["tokens"].sum() / part["time_s"].sum(),
            "block_efficiency": tau.estimate,
            "tau_low": tau.low,
            "tau_high": tau.high,
            "speedup": ratio.estimate,
            "low": ratio.low,
            "high": ratio.high,
            "predicted": tau.estimate / block[name],
            "block_cost": 1e3 * part["time_s"].sum() / part["blocks"].sum() / costs.target_ms,
            "block_cost_predicted": block[name],
        }
    )
table = pd.DataFrame(rows).set_index("method")
table["share_of_predicted"], loop = (
    table["speedup"] / table["predicted"],
    np.where(table.index == "plain", 0.0, costs.overhead),
)
table["share_without_o"] = table["share_of_predicted"] * (1 - loop / table["block_cost_predicted"])
ctx.table(table.drop(columns=["tau_low", "tau_high"]).reset_index(), "speed")
by_domain = each.groupby(["method", "domain"], sort=False)[["plain_s", "time_s"]].sum()
ctx.table(
    (by_domain["plain_s"] / by_domain["time_s"]).unstack(sort=False)[domains].reset_index(),
    "speed-by-domain",
)
notebook.say(
    f"Replayed against decoded, {len(counts)} shapes, {len(timed)} prompts, every repeat: **{sum(wrong.values())} differences** in tokens "
    f"or blocks; {differ} of {len(shapes) * len(sample)} texts differ from the target's own."
    + (
        ""
        if exact
        else " (Not float32 on a CPU: passes of other shapes round otherwise, and a near tie may fall the other way.)"
    )
)
assert not exact or (sum(wrong.values()) == differ == 0), "same text, same counts"

# %%
drafted = table.drop("plain")
fig, (left, right) = figures.subplots(1, 2, height=3.0, sharey=True)
for axis, (value, low, high) in (
    (left, ("block_efficiency", "tau_low", "tau_high")),
    (right, ("speedup", "low", "high")),
):
    rows = drafted.reset_index().assign(measured="measured")
    figures.interval_bars(
        rows, axis, x="method", hue="measured", y=value, low=low, high=high, horizontal=True
    )
    axis.axvline(1, color="black", linewidth=0.8)
    axis.tick_params(axis="y", left=False)
right.plot(
    drafted["predicted"],
    range(len(drafted)),
    "D",
    mfc="none",
    mec="#B04A00",
    ms=6,
    label="predicted",
)
left.set(
    title="accepted: tokens per target pass", xlabel="block_efficiency, T = 0 (1: plain decoding)"
)
right.set(title="gained: speed-up", xlabel="speed-up over plain decoding (1: as fast)")
handles, labels = right.get_legend_handles_labels()
fig.legend(handles, labels, loc="outside upper center", ncols=2)
ctx.save(fig, "speed")
fastest, most = drafted["speedup"].idxmax(), drafted["block_efficiency"].idxmax()
up, down = drafted.index[drafted["low"] > 1], drafted.index[drafted["high"] < 1]
notebook.say(
    f"**Fastest**: {fastest}, {drafted.loc[fastest, 'speedup']:.2f} times plain decoding "
    f"[{drafted.loc[fastest, 'low']:.2f}, {drafted.loc[fastest, 'high']:.2f}]. **Most tokens per pass**: {most}, "
    f"{drafted.loc[most, 'block_efficiency']:.2f}; "
    + (
        "the fastest emits as many. "
        if drafted.loc[fastest, "block_efficiency"] >= drafted.loc[most, "block_efficiency"]
        else f"its speed-up is {drafted.loc[most, 'speedup']:.2f}: more tokens per pass is not more speed. "
    )
    + f"The whole interval is above 1 for {', '.join(up) or 'no shape'}, below 1 for {', '.join(down) or 'no shape'}. By the "
    f"acceptance of ranks alone, taken as equal everywhere, the search expects {best.speedup:.2f} of its {best.tree.size} nodes; allowed "
    f"{max([*small, *large])} it would take {unbound.tree.size} and expect {unbound.speedup:.2f}."
)

# %% [markdown]
# ### How well does the price predict the speed?
# On the solid line, measured = predicted. The prediction counts plain decoding as one target pass a
# token; the dashed line puts in what a token really takes there, loop and all. Points below it
# belong to shapes whose blocks take more than predicted (their loop takes more than the o that was
# measured with a chain of 4), points above it to shapes whose blocks take less.

# %%
plain, share = table.loc["plain", "block_cost"], drafted["share_of_predicted"]
fig, ax = figures.subplots(width=figures.TWO_COLUMNS, height=3.1)
reach = np.clip(
    [drafted["speedup"] - drafted["low"], drafted["high"] - drafted["speedup"]], 0, None
)
ax.errorbar(
    drafted["predicted"],
    drafted["speedup"],
    yerr=reach,
    fmt="o",
    color="#444444",
    capsize=2,
    elinewidth=1.2,
)
ends = np.array(
    [
        drafted[["predicted", "low"]].min().min() * 0.95,
        drafted[["predicted", "high"]].max().max() * 1.05,
    ]
)
ax.plot(ends, ends, color="black", linewidth=0.8, zorder=1, label="measured = predicted")
ax.plot(
    ends,
    plain * ends,
    color="black",
    linewidth=0.8,
    linestyle="--",
    zorder=1,
    label="blocks cost what was predicted",
)
places = drafted["predicted"].rank(method="first").astype(int).sort_values()
for name, place in places.items():
    ax.annotate(
        place,
        tuple(drafted.loc[name, ["predicted", "speedup"]]),
        (4, 3),
        textcoords="offset points",
    )
    ax.plot([], [], linestyle="none", label=f"{place}  {name}")
ax.set(xlabel="predicted speed-up", ylabel="measured speed-up", xlim=ends, ylim=ends)
fig.legend(*ax.get_legend_handles_labels(), loc="outside right upper")
ctx.save(fig, "predicted")
notebook.say(
    f"Share of the predicted speed-up that is reached: {share.min():.2f} ({share.idxmin()}) to {share.max():.2f} ({share.idxmax()}); of "
    f"the ideal without any o: {drafted['share_without_o'].min():.2f} ({drafted['share_without_o'].idxmin()}) to "
    f"{drafted['share_without_o'].max():.2f} ({drafted['share_without_o'].idxmax()}). Plain decoding itself takes {plain:.2f} target "
    "passes a token: a shape whose blocks cost just what was predicted would reach that share."
)

# %% [markdown]
# ## 3. Should the draft know when to stop?
# The article proposes a gamma that follows the draft's confidence. The run `chain` holds the
# draft's own chain of 8 at every position of the target's text, so that every stopping rule is
# replayed exactly, at the costs of section 1, on all prompts:
#
# * **best fixed gamma**: one gamma from 1 to 8 for a domain;
# * **confidence** (or **entropy**): draft up to a limit, but stop before the token whose q is below
#   a threshold (or whose distribution has an entropy above one); the pass that showed it is paid
#   for;
# * **oracle**: foresees what will be accepted and makes the cheapest blocks. No rule can be faster.
#
# Gamma, limit and threshold are fitted on other prompts of the domain than they are judged on.

# %%
compared = control.compare(every, costs, folds)
found = control.intervals(compared)
found["cell"] = [
    f"{e:.3f} [{low:.3f}, {high:.3f}]"
    for e, low, high in found[["estimate", "low", "high"]].to_numpy()
]
ctx.table(
    found.pivot(index=["quantity", "method"], columns="domain", values="cell")[
        [*domains, "all"]
    ].reset_index(),
    "stopping",
)
of_rule = compared.groupby(["method", "domain"], sort=False)
drafting = (
    of_rule[["blocks", "drafted", "accepted", "emitted"]]
    .sum()
    .join(of_rule[["limit", "threshold"]].median().add_prefix("median_"))
)
drafting["drafted_per_block"], drafting["block_efficiency"] = (
    drafting[n] / drafting["blocks"] for n in ("drafted", "emitted")
)
drafting["draft_utilisation"] = score.divide(drafting["accepted"], drafting["drafted"])
ctx.table(drafting.iloc[:, 4:].reset_index(), "stopping-blocks")
fig, ax = figures.subplots(height=2.6)
figures.interval_bars(
    found[found["domain"].isin(domains) & (found["quantity"] == "speed")],
    ax,
    x="domain",
    hue="method",
)
ax.axhline(1, color="black", linewidth=0.8)
ax.set(
    ylabel="speed-up over plain decoding", xlabel="domain (T = 0, replayed at the measured costs)"
)
figures.legend_above(fig, ax)
ctx.save(fig, "stopping")
closed = found[found["quantity"] == "closed"].set_index(["method", "domain"])["cell"]
for method in control.MEASURES:
    rows = found[
        (found["method"] == method)
        & (found["quantity"] == "minus_fixed")
        & found["domain"].isin(domains)
    ]
    verdict = explain.by_direction(rows, "faster in", "slower in", "not to be told apart in")
    notebook.say(
        f"Against the best fixed gamma the **{method}** rule is: {verdict}. Share of the gap up to the oracle that it closes: "
        + ", ".join(f"{d} {closed[method, d]}" for d in domains)
        + "."
    )
price = compared.pivot(index="prompt_id", columns="method", values="cost")
assert (price.sub(price["oracle"], axis=0) > -1e-9).all(axis=None), (
    "no rule beats the oracle, on any text"
)

# %% [markdown]
# ## 4. How good must a draft be?
# The standard model turned round: for each c, the `alpha` at which speculation neither gains nor
# loses, if drafted tokens were accepted independently. Below a curve speculation is slower than
# plain decoding. The points are this pair at T = 0 (`hit[1]`, the share of positions where the
# draft's best token is the target's), at this machine's c (dotted line; side by side, to be seen).

# %%
hit = stats.by_domain(
    greedy.trace.assign(hit=greedy.trace["draft_rank"] == 0), score.mean_of("hit")
).set_index("domain")
fig, axes = figures.subplots(1, 2, height=2.9, sharey=True)
for axis, (title, verify, loop) in zip(
    axes,
    (
        ("v = 1, o = 0: the textbook", lambda n: 1.0, 0.0),
        ("v and o as measured here", costs.v, costs.overhead),
    ),
    strict=True,
):
    for index, g in enumerate((1, 2, 4, 8)):
        most = (g + 1 - verify(g + 1) - loop) / g  # beyond this c not even alpha = 1 is enough
        x = np.linspace(0, max(most, 0) * (1 - 1e-9), 60)
        y = (
            [cost.break_even_alpha(g, c, verify(g + 1), loop) for c in x]
            if most > 0
            else np.full(60, np.nan)
        )
        axis.plot(x, y, label=f"gamma {g}", **figures.style_of("", index) | {"marker": "None"})
    axis.axvline(costs.c(), color="black", linewidth=0.6, linestyle=(0, (1, 2)))
    for place, domain in enumerate(domains):
        at, style = (
            hit.loc[domain],
            figures.style_of(domain)
            | {"linestyle": "none", "label": domain, "capsize": 2, "markersize": 3},
        )
        where, reach = (
            costs.c() + 0.014 * (place - (len(domains) - 1) / 2),
            [[at["estimate"] - at["low"]], [at["high"] - at["estimate"]]],
        )
        axis.errorbar([where], [at["estimate"]], yerr=reach, **style)
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="c, a draft pass in target passes", title=title)
axes[0].set_ylabel("alpha needed to break even (i.i.d.)")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
ctx.save(fig, "break-even")
blocks = {
    g: cost.break_even_block_efficiency(g, costs.c(), costs.v(g + 1), costs.overhead)
    for g in (1, 2, 4, 8)
}
need = {
    g: cost.break_even_alpha(g, costs.c(), costs.v(g + 1), costs.overhead) if b <= g + 1 else np.inf
    for g, b in blocks.items()
}
notebook.say(
    "On this machine the break-even alpha is "
    + ", ".join(
        (f"{a:.2f}" if np.isfinite(a) else "above 1, out of reach,") + f" at gamma {g}"
        for g, a in need.items()
    )
    + ". The pair's `hit[1]` is "
    + ", ".join(
        f"{d} {hit.loc[d, 'estimate']:.2f} [{hit.loc[d, 'low']:.2f}, {hit.loc[d, 'high']:.2f}]"
        for d in domains
    )
    + "."
)

# %% [markdown]
# ## 5. Two formulas, one example
# The article estimates the speed-up as (e T) / (t e + T), with T and t the times of a target and of
# a draft pass and e the tokens that speculation yields: gamma at best, alpha × gamma typically. The
# standard model (Leviathan et al.) counts also the token that every target pass adds, that one
# rejection loses all that follows, and all gamma draft passes, whether their tokens are kept or
# not.

# %%
g, c, here_c, ms, alpha = (
    article_gamma,
    draft_ms / target_ms,
    costs.c(),
    costs.target_ms,
    float(hit.loc["pooled", "estimate"]),
)
tau = replay.rates(replay.chain_sums(greedy.trace.assign(domain="pooled"), [g]))[
    "block_efficiency"
].iloc[0]
article, standard, iid = cost.speedup_article, cost.speedup_standard, cost.speedup_iid
example = pd.DataFrame(
    [
        (
            "article, best case",
            "e T / (t e + T), e = gamma",
            article(g, target_ms, draft_ms),
            article(g, ms, here_c * ms),
        ),
        (
            "article, typical case",
            "the same, e = alpha gamma",
            article(article_alpha * g, target_ms, draft_ms),
            article(max(alpha, 1e-9) * g, ms, here_c * ms),
        ),
        ("article, as it prints the typical case", "340 / 112", 340 / 112, np.nan),
        (
            "standard, i.i.d.",
            "(1 - a^(g+1)) / ((1 - a)(g c + 1))",
            iid(article_alpha, g, c),
            iid(alpha, g, here_c),
        ),
        (
            "standard, all accepted",
            "(g + 1) / (g c + 1)",
            standard(g + 1, g, c),
            standard(g + 1, g, here_c),
        ),
        ("standard, replayed tokens per pass", "tau / (g c + 1)", np.nan, standard(tau, g, here_c)),
        (
            "and v and o as measured",
            "tau / (g c + v(g + 1) + o)",
            np.nan,
            standard(tau, g, here_c, costs.v(g + 1), costs.overhead),
        ),
    ],
    columns=["rule", "formula", "article's example", "this pair here"],
)
ctx.table(example, "worked-example", digits=2)
best_case, typical, printed, independent, ceiling = example["article's example"].iloc[:5]
notebook.say(
    f"With T = {target_ms:g} ms, t = {draft_ms:g} ms, alpha = {article_alpha:g}, gamma = {g} the article's rule gives {best_case:.2f} at "
    f"best and {typical:.2f} typically (its own example prints {printed:.1f}, dividing by 112 where its rule has 117); the standard model "
    f"gives {independent:.2f}, at best {ceiling:.2f}. The article's rule leaves out the bonus or recovered token of each pass, the drafts "
    "that are paid for and thrown away, and what is lost behind a rejection. The first makes it too low, the others too high."
)
assert abs(article(4, 100, 5) - 400 / 120) < 1e-12 and abs(article(3.4, 100, 5) - 340 / 117) < 1e-12

# %% [markdown]
# ## 6. What limits speed here, and what would help?
# One term of the model at a time is made ideal, everything else as measured, for chains on all
# prompts at T = 0 (replayed, visited blocks). `same gamma` keeps the gamma that is best today; `own
# best` lets gamma follow, up to 16. Intervals resample prompts; the costs stand.

# %%
taus = {
    g: interval(rows, "emitted", "blocks")
    for g, rows in replay.chain_sums(greedy.trace, range(1, 17)).groupby("gamma")
}
ideal = control.counterfactuals(costs)
grid = pd.DataFrame(
    {
        name: {g: t.estimate / used.of_block(tree.chain(g)) for g, t in taus.items()}
        for name, used in ideal.items()
    }
)
grid["draft always right"] = [(g + 1) / costs.of_block(tree.chain(g)) for g in taus]
now = int(grid["as measured"].idxmax())
limits = pd.DataFrame({"same gamma": grid.loc[now], "own best": grid.max(), "gamma": grid.idxmax()})
limits[["low", "high"]] = (
    np.outer(limits["same gamma"], [taus[now].low, taus[now].high]) / taus[now].estimate
)
limits.loc["draft always right", ["low", "high"]] = np.nan
ctx.table(limits.reset_index(names="made ideal"), "limits")
fig, ax = figures.subplots(height=2.4)
rows = limits.assign(
    label=[f"{name}, best gamma {g}" for name, g in limits["gamma"].items()],
    hue=f"at gamma {now}, the best as measured",
)
figures.interval_bars(rows, ax, x="label", hue="hue", y="same gamma", horizontal=True)
ax.plot(
    limits["own best"],
    range(len(limits)),
    "D",
    color="#B04A00",
    mfc="none",
    label="at its own best gamma",
)
ax.axvline(1, color="black", linewidth=0.8)
ax.set(xlabel="predicted speed-up")
figures.legend_above(fig, ax)
ctx.save(fig, "limits")
gain = (
    (limits["same gamma"] - limits.loc["as measured", "same gamma"])
    .drop(["as measured", "all three"])
    .sort_values(ascending=False)
)
notebook.say(
    f"At gamma {now}, the best of chains as predicted ({grid.loc[now, 'as measured']:.2f} times plain), the most would come from a "
    f"**{gain.index[0]}** ({gain.iloc[0]:+.2f}), then {', '.join(f'{name} ({up:+.2f})' for name, up in gain.iloc[1:].items())}. With all "
    f"three costs ideal the same drafts would be worth {limits.loc['all three', 'same gamma']:.2f}."
)
assert (grid["all three"] >= grid[["as measured", *list(ideal)[1:4]]].min(axis=1) - 1e-9).all()

# %% [markdown]
# ## 7. And with sampling?
# At temperature 1 the draft's tokens are drawn, and accepted with probability min(1, p/q)
# (rejection rule). How many tokens a pass emits is then chance, but its mean given the text is
# known exactly: the replay averages over the coins of every block of that very text. Decoder and
# replay must agree within what chance allows.

# %%
warm, parts = Sampling(1.0), []
for seed in range(sampled_seeds):
    for p in timed:
        made = decode.decode_prompt(
            pair, p, "rejection", draft.Shape(tree.chain(sampled_gamma)), warm, new_tokens, seed
        )
        scored = record.record_prompt(pair, p, made.token_ids, tree.chain(1), warm).trace
        rows = pd.DataFrame(
            {
                name: scored[name]
                for name in ("position", "token", "target_top", "p_token", "q_token")
            }
        )
        parts.append(
            rows.assign(
                prompt_id=p.prompt_id,
                domain=p.domain,
                text=f"{p.prompt_id}, seed {seed}",
                decoded=made.target_passes,
            )
        )
drawn = pd.concat(parts, ignore_index=True)
both = replay.prompt_sums(
    replay.replay_sampled(
        drawn.drop(columns="prompt_id").rename(columns={"text": "prompt_id"}), sampled_gamma
    )
)
both = both.merge(
    drawn.groupby("text")[["prompt_id", "decoded"]].first(),
    left_on="prompt_id",
    right_on="text",
    suffixes=("_text", ""),
)
kept = replay.prompt_sums(
    replay.replay_sampled(
        sampled.trace.query("prompt_id in @ids and position < @new_tokens"), sampled_gamma
    )
)
columns = ["emitted", "decoded", "blocks"]
gap = score.Estimator(
    "gap",
    lambda f: f[columns].to_numpy(float),
    lambda t: t[..., :1] / t[..., 1:2] - t[..., :1] / t[..., 2:],
)
told = {
    "decoded": interval(both, "emitted", "decoded"),
    "expected, the same texts": interval(both, "emitted", "blocks"),
    "decoded - expected": stats.bootstrap(both[["prompt_id", *columns]], gap),
    "expected, the recorded texts": interval(kept, "emitted", "blocks"),
}
ctx.table(
    pd.DataFrame(map(vars, told.values()), index=pd.Index(told, name="block_efficiency, T = 1")),
    "sampled",
)
verdict = explain.direction(
    told["decoded - expected"],
    "more than chance explains",
    "less than chance explains",
    "within chance",
)
notebook.say(
    f"A rejection chain of {sampled_gamma} emits {told['decoded']} tokens per target pass; the expectation on the same texts is "
    f"{told['expected, the same texts']}, a difference of {told['decoded - expected']}: {verdict}."
)
assert all(
    1 <= told[name].estimate <= sampled_gamma + 1
    for name in ("decoded", "expected, the same texts")
)
ctx.record(
    c=costs.c(),
    v5=costs.v(5),
    overhead=costs.overhead,
    target_ms=costs.target_ms,
    fastest=fastest,
    best_gamma=now,
    speedup=float(drafted.loc[fastest, "speedup"]),
    predicted=float(drafted.loc[fastest, "predicted"]),
    helps_most=str(gain.index[0]),
    block_efficiency_sampled=told["decoded"].estimate,
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: c = 0.1, v(5) = 1.3, o = 0.2, and a chain of 4 emits 2.6 tokens per target pass. What
#    is the speed-up? What would it be if the draft cost nothing, and what if verifying five tokens
#    cost no more than one?
#
# <details><summary>What happens</summary>A block costs 4 × 0.1 + 1.3 + 0.2 = 1.9 target passes, so 2.6 / 1.9 = 1.37. With c = 0 it costs
# 1.5: 1.73. With v = 1 it costs 1.6: 1.63. The textbook, which knows only c, promises 2.6 / 1.4 =
# 1.86.</details>
#
# 2. Set `gammas` to `[1, 2, 3, 4, 6, 8, 16]`. Which of the measured speed-ups and predictions stay
#    in the same order?
#
# <details><summary>What happens</summary>`block_efficiency` rises with gamma, or stays: a longer chain accepts all that a shorter one does.
# The speed-up rises while a further token is likely enough to be accepted to pay for its draft pass
# and its share of v, then falls. Near its top the curve is flat, and neighbours trade places with
# the noise of the clock; the replayed counts never do.</details>
#
# 3. In section 3, charge a stopping rule only for the tokens that it keeps: take `drafts =
#    control.stopped(every, "confidence", threshold, limit)`, then compare
#    `control.prompt_costs(every, drafts, costs)` with that of `control.Drafts(drafts.drafted,
#    drafts.drafted)`.
#
# <details><summary>What happens</summary>The second is never dearer. The difference is c for every block that was stopped before its limit:
# to see that the next token is unsure, the draft must have computed it. With a cheap draft that is
# nothing; with a dear one it can eat what the rule saves.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above. Acceptance becomes speed through the price of a block; that
#   price has three parts, all of which can be measured in seconds, and tokens per pass alone do not
#   say which shape is fastest.
# * What this does not show: other machines, other pairs (a larger target makes o small, and on a
#   GPU v(n) stays near 1 for longer), batches of several texts, long contexts, or memory. The
#   intervals cover the choice of prompts; of the clock's noise they cover only what medians of a
#   few repeats leave in. Settings of section 3 are not fitted anew in each resample.
# * Next: notebook 11 takes the paper's claims one by one.

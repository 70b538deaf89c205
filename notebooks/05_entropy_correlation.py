# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5. Does uncertainty predict rejection?
#
# **Answer.** The picture answers for the kit's own small pair, the computed sentences of sections 1
# to 4 for the pair at hand. Each panel shows how often a drafted token is accepted where the target
# is sure (left) and where it is not (right): under the estimator that the paper published,
# `published_alpha`, split by rank, and under two that are the acceptance of an algorithm, `alpha`
# (temperature T = 1) and `hit[1]` (T = 0). The target's entropy is known only after the target
# pass, so sections 3 and 4 ask what a decoder needs: does the draft's own confidence foretell
# acceptance, and can it be taken at its word?
#
# ![Acceptance against target entropy, per domain, under four estimators](../figures/tiny/05_acceptance-by-entropy.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the runs `greedy` (T = 0) and
# `sampled` (T = 1) of the profile, recorded if they are not there · *writes*
# `figures/<profile>/05_*`.

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
from functools import partial

import pandas as pd

from speclab.studies import entropy_correlation
from speclab.analysis import association
from speclab.analysis import bins as binned
from speclab import files
from speclab import estimates as explain, figures, notebook, runs, score, stats
from speclab.analysis import published as paper
from speclab.estimates import by_direction, direction

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "tiny"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
bins: int = 8  # quantile bins of target entropy in the curves of section 2
# equal bins of the draft's confidence in the reliability diagrams of section 4
confidence_bins: int = 10

# %%
ctx = notebook.start("05_entropy_correlation", profile, overrides)
greedy, sampled = (runs.load_or_record(ctx.profile, kind) for kind in ("greedy", "sampled"))
nodes = greedy.nodes.assign(alpha=score.alpha(greedy.nodes))
trace, sampled_trace = binned.signals(greedy.trace), binned.signals(sampled.trace)
domains = list(score.domains_in(nodes))
notebook.say(
    f"{len(nodes):,} drafted nodes at {len(trace):,} positions of {trace['prompt_id'].nunique()} greedy texts, and "
    f"{len(sampled_trace):,} positions of sampled ones. Positions: "
    + ", ".join(
        f"{d} {(trace['domain'] == d).sum():,} greedy, {(sampled_trace['domain'] == d).sum():,} sampled"
        for d in domains
    )
    + "."
)

# %% [markdown]
# ## 1. Table VI: does acceptance fall as the target's entropy rises?
# Entropy says how undecided a distribution is: 0 nats when one token has all the probability, log n
# nats when n tokens share it evenly. The paper correlates the target's entropy with min(1, p/q)
# over all nodes of its draft trees. It prints rank correlations (Spearman); its code computes
# linear ones (Pearson); both are here.
#
# In the first table `published` is the paper's number (Llama-2-7B and TinyLlama),
# `ours_as_published` the same procedure on this pair, and `corrected` the correlation with
# `overlap`, the exact acceptance of one sampled draft token. All intervals are 95 % and resample
# prompts: nodes of one text are not independent, so the evidence grows with texts, not with nodes.
#
# In the paper's tree half of the nodes are the draft's best token (rank 0), half its second (rank
# 1). The published correlation mixes the two, so the second table also takes each rank alone. Its
# last columns need no tree: `overlap`, and `hit` (T = 0: is the draft's best token the target's?),
# one number a position.

# %%
table = paper.comparison("VI", greedy)
ctx.table(table.drop(columns=["depth", "bin"]).fillna({"estimator": ""}), "table-6")
asked = [
    (nodes, "alpha", None),
    (nodes, "alpha", "rank"),
    (trace, "overlap", None),
    (trace, "hit", None),
]
labels = {"alpha": "min(1, p/q), all nodes", "overlap": "overlap (T = 1)", "hit": "hit (T = 0)"}
parts = []
for method in association.METHODS:
    for frame, outcome, within in asked:
        found = explain.per_domain(
            frame, partial(association.correlation, x="target_entropy", y=outcome, method=method), within
        )
        found["acceptance"] = (
            "min(1, p/q), rank " + found["rank"].astype(str) if within else labels[outcome]
        )
        parts.append(found.assign(method=method))
correlations = pd.concat(parts, ignore_index=True)
ctx.table(explain.wide(correlations, ["method", "domain"], "acceptance"), "correlations")

# %%
spearman = correlations[correlations["method"] == "spearman"]
printed = (
    paper.published("VI").rename(columns={"published": "estimate"}).assign(acceptance="published")
)
fig, axes = figures.subplots(2, 1, height=4.4, sharex=True, sharey=True)
for ax, (method, rows) in zip(
    axes, correlations.dropna(subset="estimate").groupby("method", sort=False), strict=False
):
    published = printed.assign(
        estimate=printed["estimate"] if method == "spearman" else float("nan")
    )  # the paper prints Spearman only
    both = pd.concat([published[published["domain"].isin(domains)], rows])
    both = both.sort_values("domain", key=lambda names: names.map(domains.index), kind="stable")
    figures.interval_bars(both, ax, "domain", hue="acceptance")
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set(ylabel=f"{method.capitalize()} correlation\nwith target entropy")
    for place in range(1, both["domain"].nunique()):
        ax.axvline(place - 0.5, color="#e6e6e6", linewidth=0.8)
axes[-1].set(xlabel="domain")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
ctx.save(fig, "correlations")
assert spearman["estimate"].dropna().between(-1, 1).all()

# %%
words = (
    "rises with entropy in",
    "falls as entropy rises in",
    "shows no direction that can be told in",
)
sentences = [
    f"`{name}`: acceptance {by_direction(rows, *words)}"
    for name, rows in spearman.groupby("acceptance", sort=False)
]
notebook.say("**Direction** (Spearman, per domain).\n\n* " + "\n* ".join(sentences))
reach = spearman.groupby("acceptance", sort=False)["estimate"].agg(["min", "max"]).dropna()
notebook.say(
    "**Strength**, least to greatest over the domains: "
    + "; ".join(f"`{name}` {low:.2f} to {high:.2f}" for name, low, high in reach.itertuples())
    + f". The four published ones go from {printed['estimate'].min():.2f} to {printed['estimate'].max():.2f}."
)
by_rank = nodes.groupby("rank")["target_entropy"].mean()
each = spearman[spearman["rank"].notna()].groupby("domain", sort=False)
opposed = [name for name, rows in each if (rows["low"] > 0).any() and (rows["high"] < 0).any()]
notebook.say(
    "**What the mix of ranks does.** Siblings in a tree are scored under one distribution, so the mean target entropy of the ranks is "
    + ", ".join(f"{value:.3f} (rank {rank})" for rank, value in by_rank.items())
    + " nats: where these agree, rank is no confounder. But a mean over ranks with opposite directions shows neither: that is so in "
    + f"{', '.join(opposed) or 'no domain'}."
)
if len(set(ctx.profile.tree.width[ctx.profile.tree.width > 0])) == 1:
    assert by_rank.max() - by_rank.min() < 1e-5, (
        "every parent has a child of every rank, and siblings share their entropy"
    )

# %%
sides = correlations.assign(side=(correlations["low"] > 0) * 1 - (correlations["high"] < 0) * 1)
sides = sides.pivot(index=["acceptance", "domain"], columns="method", values="side")
unlike = [
    "`{}` in {}".format(*pair)
    for pair, row in sides.iterrows()
    if row["spearman"] * row["pearson"] < 0
]
alone = int(((sides["spearman"] == 0) != (sides["pearson"] == 0)).sum())
notebook.say(
    f"**Spearman against Pearson**, {len(sides)} correlations: they point in opposite directions for "
    f"{', '.join(unlike) or 'none'}; for {alone} only one of the two shows a direction that can be told."
)

# %% [markdown]
# ## 2. The curves behind the correlations
# One number cannot show a shape. Positions (or nodes) are cut into quantile bins of the target's
# entropy, the same bins in all domains, and the mean acceptance of each is drawn at the bin's mean
# entropy, with its interval as a band. A domain has a point where at least five of its prompts have
# rows in the bin. If entropy told all, the four lines would lie on each other: what remains between
# them at equal entropy is something else (notebook 06).

# %%
nodes["entropy_bin"], trace["entropy_bin"] = (
    binned.quantile_bins(frame, "target_entropy", bins) for frame in (nodes, trace)
)
asked = {
    f"min(1, p/q), rank {rank}": (rows, "alpha") for rank, rows in nodes.groupby("rank") if rank < 2
}
asked |= {"alpha = mean overlap (T = 1)": (trace, "overlap"), "hit[1] (T = 0)": (trace, "hit")}
curves = pd.concat(
    [
        binned.group_means(frame, outcome, "entropy_bin", x="target_entropy").assign(
            acceptance=name
        )
        for name, (frame, outcome) in asked.items()
    ],
    ignore_index=True,
)
files.export(curves, ctx.figures, f"{ctx.number}_curves")
fig, axes = figures.subplots(2, 2, height=4.6, sharex=True, sharey=True)
for ax, (name, rows) in zip(axes.flat, curves.groupby("acceptance", sort=False), strict=False):
    figures.lines_with_bands(rows[rows["domain"] != score.POOLED], ax, "target_entropy")
    ax.set(title=name, ylim=(0, 1))
for ax in axes[-1]:
    ax.set_xlabel("target entropy, nats (mean of the bin)")
for ax in axes[:, 0]:
    ax.set_ylabel("accepted (mean)")
figures.legend_above(fig, axes[0, 0])
ctx.save(fig, "acceptance-by-entropy")
assert curves["estimate"].between(0, 1 + 1e-9).all()

# %%
whole = curves[curves["domain"] == score.POOLED]
for name, rows in whole.groupby("acceptance", sort=False):
    first, last, steps = rows.iloc[0], rows.iloc[-1], rows["estimate"].diff().dropna()
    notebook.say(
        f"* `{name}`: {first['estimate']:.2f} [{first['low']:.2f}, {first['high']:.2f}] in the bin of least entropy "
        f"({first['target_entropy']:.2f} nats), {last['estimate']:.2f} [{last['low']:.2f}, {last['high']:.2f}] in the last "
        f"({last['target_entropy']:.2f} nats). It falls in {(steps < 0).sum()} of {len(steps)} steps from bin to bin."
    )
assert (whole.groupby("acceptance")["target_entropy"].diff().dropna() > 0).all(), (
    "bins stand in the order of entropy"
)

# %% [markdown]
# ## 3. Can the draft know beforehand?
# A decoder that could foresee a rejection would stop drafting there. Three signals are tried as
# predictors of `hit` (T = 0: the draft's best token is the target's): the draft's **confidence**,
# its probability q of its own best token; the draft's entropy, reversed; and the target's entropy,
# reversed, which no decoder has in time and which only shows what knowing it would be worth.
#
# An ROC curve lists, for every threshold, the share of accepted positions above it against the
# share of rejected ones. The area under it (AUC) is the probability that an accepted position has
# the larger signal than a rejected one: 0.5 tells nothing, 1 everything. The second table has the
# correlations of the two signals that are known in time with exact acceptance, `overlap` (T = 1)
# and `hit` (T = 0).

# %%
names = {
    "confidence": "draft confidence",
    "draft_certainty": "draft entropy, reversed",
    "target_certainty": "target entropy, reversed",
}
areas = pd.concat(
    [
        explain.per_domain(
            trace, partial(entropy_correlation.auc, signal=signal, outcome="hit"), pooled=True
        ).assign(signal=name)
        for signal, name in names.items()
    ],
    ignore_index=True,
)
ctx.table(explain.wide(areas, ["domain"], "signal"), "auc")
fig, (left, right) = figures.subplots(1, 2, height=3.1, width_ratios=[1, 1.35])
left.plot([0, 1], [0, 1], color="#8A8A8A", linewidth=0.8)
for index, signal in enumerate(names):
    curve = entropy_correlation.roc(trace, signal, "hit")
    left.plot(
        curve["false_positive"],
        curve["true_positive"],
        **figures.style_of(names[signal], index) | {"marker": ""},
    )
left.set(
    title="ROC, all domains",
    xlabel="share of rejected positions above",
    ylabel="share of accepted positions above",
)
left.set_aspect("equal")
figures.interval_bars(areas.dropna(subset="estimate"), right, "domain", hue="signal")
right.axhline(0.5, color="#8A8A8A", linewidth=0.8)
right.set(
    title="area under the curve",
    xlabel="domain",
    ylabel="AUC (line: tells nothing)",
    ylim=(None, 1),
)
figures.legend_above(fig, right)
ctx.save(fig, "roc")
assert areas["estimate"].dropna().between(0, 1).all()

# %%
online = {}
for signal, name in list(names.items())[:2]:
    for outcome in ("overlap", "hit"):
        for method in association.METHODS:
            measure = partial(association.correlation, x=signal, y=outcome, method=method)
            online[name, f"{method}, {outcome}"] = explain.per_domain(trace, measure, pooled=True)
online = (
    pd.concat(online, names=["signal", "correlation"])
    .reset_index(["signal", "correlation"])
    .reset_index(drop=True)
)
ctx.table(explain.wide(online, ["signal", "domain"], "correlation"), "online-correlations")
pooled_area = entropy_correlation.auc(trace, "confidence", "hit")
rival = {
    name: entropy_correlation.auc(trace, "confidence", "hit", minus=signal)
    for signal, name in list(names.items())[1:]
}
seen = areas[areas["signal"] == "draft confidence"]
above_half = seen[seen["domain"] != score.POOLED].assign(
    low=seen["low"] - 0.5, high=seen["high"] - 0.5
)
notebook.say(
    f"**Known in time.** Draft confidence tells accepted from rejected positions with an AUC of {pooled_area} over all domains; it "
    + by_direction(
        above_half, "foretells acceptance in", "misleads in", "cannot be shown to tell anything in"
    )
    + ". Its AUC less that of another signal, pooled: "
    + "; ".join(
        f"{name} {difference.estimate:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}], so that confidence "
        f"{direction(difference, 'foretells better than', 'foretells worse than')} it"
        for name, difference in rival.items()
    )
    + "."
)
mine = online[(online["correlation"] == "spearman, overlap") & (online["domain"] != score.POOLED)]
notebook.say(
    "**In correlations** with `overlap` (Spearman, least to greatest over the domains): "
    + "; ".join(
        f"{name} {rows['estimate'].min():.2f} to {rows['estimate'].max():.2f}"
        for name, rows in mine.groupby("signal", sort=False)
    )
    + "."
)
assert abs(seen.set_index("domain").loc[score.POOLED, "estimate"] - pooled_area.estimate) < 1e-12

# %% [markdown]
# ## 4. Can the draft be taken at its word?
# A forecaster is *calibrated* if what they call 70 % happens in 70 % of the cases. The reliability
# diagrams put the draft's confidence against what came of it: at T = 0 the share of positions where
# its best token is the target's; at T = 1 the target's mean probability p of that token, its exact
# acceptance as a deterministic child. Above the diagonal the draft is too modest, below it too
# sure. At T = 0 nothing obliges the two to agree, since the target's best token counts in full
# however small its lead; at T = 1 they would for a draft equal to its target.
#
# The *calibration error* is the mean distance from the diagonal, the *gap* its mean with sign. The
# error is never below 0 and noise adds to it, so that its interval is no test of 0: that is read
# from the gap. Entropy is no probability: only confidence can be taken at its word.

# %%
views = {"T = 0, share accepted": (trace, "hit"), "T = 1, mean p": (sampled_trace, "top_p")}
fig, axes = figures.subplots(2, 2, height=4.2, sharex=True, sharey="row", height_ratios=[3, 1])
reliability, calibration = [], []
for (above, below), (name, (frame, outcome)) in zip(axes.T, views.items(), strict=True):
    frame["bin"] = binned.equal_bins(frame, "confidence", confidence_bins)
    reliability.append(binned.group_means(frame, outcome, "bin", x="confidence").assign(view=name))
    for estimator in (
        binned.calibration_error("confidence", outcome, confidence_bins),
        binned.calibration_gap("confidence", outcome),
    ):
        calibration.append(stats.by_domain(frame, estimator).assign(view=name))
    above.plot([0, 1], [0, 1], color="#8A8A8A", linewidth=0.8)
    figures.lines_with_bands(
        reliability[-1][reliability[-1]["domain"] != score.POOLED], above, "confidence"
    )
    errors = calibration[-2].set_index("domain").loc[domains]
    text = "\n".join(
        f"{d} {row.estimate:.3f} [{row.low:.3f}, {row.high:.3f}]" for d, row in errors.iterrows()
    )
    above.text(
        0.99, 0.02, f"calibration error\n{text}", ha="right", va="bottom", transform=above.transAxes
    )
    above.set(title=name, xlim=(0, 1), ylim=(0, 1))
    for domain in domains:
        share = (
            frame.loc[frame["domain"] == domain, "bin"].value_counts(normalize=True).sort_index()
        )
        below.plot((share.index + 0.5) / confidence_bins, share, **figures.style_of(domain))
    below.set(xlabel="draft confidence q")
axes[0, 0].set_ylabel("what came of it")
axes[1, 0].set(ylabel="share of\npositions", ylim=(0, None))
figures.legend_above(fig, axes[0, 0])
ctx.save(fig, "reliability")
assert all(rows["estimate"].between(0, 1 + 1e-6).all() for rows in reliability)

# %%
calibration = pd.concat(calibration, ignore_index=True)
files.export(pd.concat(reliability, ignore_index=True), ctx.figures, f"{ctx.number}_reliability")
ctx.table(explain.wide(calibration, ["view", "domain"], "estimator", digits=3), "calibration")
words = ("is too modest in", "is too sure in", "cannot be shown to be too sure or too modest in")
for name, rows in calibration[calibration["domain"].isin(domains)].groupby("view", sort=False):
    gap, error = (rows[rows["estimator"] == f"calibration_{what}"] for what in ("gap", "error"))
    notebook.say(
        f"* **{name}**: the draft {by_direction(gap, *words)}; calibration error "
        f"{error['estimate'].min():.3f} to {error['estimate'].max():.3f} over the domains (intervals in the picture)."
    )
joined = calibration.pivot(index=["view", "domain"], columns="estimator", values="estimate")
assert (joined["calibration_error"] >= joined["calibration_gap"].abs() - 1e-9).all(), (
    "distances cannot cancel, signs can"
)

# %%
pooled_gap = joined["calibration_gap"].xs(score.POOLED, level="domain")
as_published = table[table["quantity"] == "spearman_entropy_alpha"].set_index("domain")
ctx.record(
    **{
        f"spearman_published_alpha_{d}": float(as_published.loc[d, "ours_as_published"])
        for d in domains
    },
    **{f"spearman_overlap_{d}": float(as_published.loc[d, "corrected"]) for d in domains},
    auc_draft_confidence=pooled_area.estimate,
    auc_gain_over_draft_entropy=rival["draft entropy, reversed"].estimate,
    auc_gain_over_target_entropy=rival["target entropy, reversed"].estimate,
    calibration_gap_t0=float(pooled_gap.iloc[0]),
    calibration_gap_t1=float(pooled_gap.iloc[1]),
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. The draft's best token has q = 0.9 and the target gives it p = 0.45; no other token has more
#    than 0.3 under p. What does this position add to the reliability diagram at T = 0, and what at
#    T = 1?
#
# <details><summary>What happens</summary>At T = 0 it is a hit (the token is the target's best): 1 at confidence 0.9, above the diagonal. At
# T = 1 it is 0.45 at confidence 0.9, far below. The same draft is too modest for one decoder and
# too sure for the other.</details>
#
# 2. Replace the signal `confidence` by its square in section 3: `trace["confidence"] ** 2`. Does
#    the AUC change? Does the calibration error of section 4 change?
#
# <details><summary>What happens</summary>The AUC does not: it depends on the order of the positions only, and squaring keeps the order of
# numbers between 0 and 1. The calibration error does: it asks whether the numbers can be taken at
# their word. A signal can be a fine predictor and badly calibrated; a threshold mends that, or a
# temperature fitted on other texts.</details>
#
# 3. Give every prompt's rows one common id per domain: `nodes.assign(prompt_id=nodes["domain"])`.
#    What does `association.correlation` say?
#
# <details><summary>What happens</summary>It refuses, and says how many prompts an interval needs: one text is one observation, whatever
# the number of its nodes.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above. Direction and strength belong to an estimator
#   (`published_alpha`, `alpha`, `hit[1]`) and, for `published_alpha`, to a rank; what is known
#   before the target pass is the draft's own confidence.
# * What this does not show: a cause. Entropy, domain, position and kind of token go together;
#   notebook 06 holds some of them fixed. The entropy here is that of temperature 1 also where the
#   text is greedy. Intervals are 95 % each, not all at once.
# * Next: notebook 06 asks whether entropy explains the order of the domains; notebook 09 stops
#   drafting where confidence is low.

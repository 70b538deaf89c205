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
# **Answer.** The computed sentences of sections 1 to 4 answer for the pair at hand, and so does the
# picture (in a page that was run, for its own pair; in the source, for the kit's small one). Each
# panel shows how often a drafted token is accepted where the target is sure (left) and where it is
# not (right): under the estimator that the paper published, `published_alpha`, split by rank, and
# under two that are the acceptance of an algorithm, `alpha` (temperature T = 1, on sampled text)
# and `hit[1]` (T = 0, on greedy text). The target's entropy is known only after the target pass, so
# sections 3 and 4 ask what a decoder needs: does the draft's own confidence foretell acceptance,
# and can it be taken at its word?
#
# ![Acceptance against target entropy](../figures/smollm/05/acceptance-by-entropy.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores, once the runs are there · *reads* the
# runs `greedy` (T = 0) and `sampled` (T = 1) of the profile, recorded if they are not there ·
# *writes* `figures/<profile>/05/`.

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

# %% jupyter={"source_hidden": true}
from speclab import runs, score
from speclab.show import notebook
from speclab.analysis import published
from speclab.studies import entropy_correlation as study

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
bins: int = 8  # 2 to 100; quantile bins of target entropy in the curves of section 2
# equal bins of the draft's confidence in the reliability diagrams of section 4
confidence_bins: int = 10  # 2 to 100

# %%
ctx = notebook.start("05_entropy_correlation", profile, overrides)
greedy = runs.load_or_record(ctx.profile, "greedy")
sampled = runs.load_or_record(ctx.profile, "sampled")

# %%
nodes, trace = study.frames(greedy)
_, sampled_trace = study.frames(sampled)
domains = list(score.domains_in(trace))
ctx.say(
    f"{len(nodes):,} drafted nodes at {len(trace):,} positions of {trace['prompt_id'].nunique()} "
    f"greedy texts, and {len(sampled_trace):,} positions of sampled ones."
)

# %% [markdown]
# ## 1. Does acceptance fall as the target's entropy rises?
# **Entropy** says how undecided a distribution is: 0 when one token has all the probability, log n
# when n tokens share it evenly. Logarithms are natural, and the unit is then called the **nat**:
# two equally likely tokens make 0.69 nats. The paper's Table VI correlates the target's entropy
# with min(1, p/q) over all nodes of its draft trees. A correlation says, from -1 to 1, how far two
# numbers rise together: *Spearman* compares their ranks, *Pearson* asks for a straight line. The
# paper prints the first; its code computes the second; both are here.
#
# In the table `published` is the paper's number, `ours_as_published` the same procedure on this
# pair, and `corrected` the correlation with `hit`, the acceptance of the draft's best token at the
# temperature of this text, T = 0. An interval (`low` to `high`) **resamples prompts**: as many
# prompts as there are get drawn anew, some twice and some never, 2,000 times, and 95 % of the
# numbers that come out lie between. Prompts are drawn and not nodes, since the nodes of one text
# are no independent witnesses.

# %%
table = published.comparison("VI", greedy)
table["estimator"] = table["estimator"].fillna("")
ctx.export(table.drop(columns=["depth", "bin"]), "table-6")
notebook.show_table(published.in_cells(table))

# %% [markdown]
# In the paper's tree half of the nodes are the draft's best token (rank 0), half its second (rank
# 1). The published correlation mixes the two, so we also take each rank alone. These are the
# published procedure, a T = 1 rule on greedy text, and the acceptance of no decoder. The last
# columns are, one number a position and without a tree: `overlap` (T = 1: the acceptance of one
# token drawn from the draft) on sampled text, and `hit` (T = 0: is the draft's best token the
# target's?) on greedy text.

# %%
correlations = study.entropy_correlations(nodes, trace, sampled_trace)
ctx.table(correlations.wide(["method", "domain"], "acceptance"), "correlations")
assert correlations.lies_within(-1, 1)

# %%
spearman = correlations.at(method="spearman")
at_0, at_1 = (spearman.at(acceptance=name) for name in (study.HIT, study.OVERLAP))
ctx.say(
    "**Direction** (Spearman, least to greatest domain; `overlap` on sampled text and `hit` on "
    "greedy text are acceptance, each at its own temperature; the rows of min(1, p/q) are the "
    f"published procedure, not acceptance):\n\n{study.directions(spearman)}"
)

# %%
both = study.beside_published(correlations)
printed = both.at(acceptance="published")
ctx.plot(
    both,
    x="domain",
    hue="acceptance",
    rows="method",
    kind="points",
    y="correlation with\ntarget entropy",
    reference=0,
    slug="correlations",
    caption="Correlation of acceptance with the target's entropy, by kind of acceptance. Spearman: "
    f"hit (T = 0) {at_0.span()}, overlap (T = 1) {at_1.span()}; as published in the paper "
    f"{printed.span()} (crosses).",
)

# %% [markdown]
# What does the mix of ranks do? Siblings in a tree are scored under one distribution. Where every
# rank so meets the same entropies, rank cannot be what makes entropy look important. But a mean
# over ranks with opposite directions shows neither.

# %%
means = nodes.groupby("rank")["target_entropy"].mean()
apart = means.max() - means.min()
ctx.say(
    f"The mean target entropies of the ranks are {apart:.3f} nats apart. One rank rises and "
    f"another falls in {study.opposed(spearman)}."
)

# %%
widths = set(ctx.profile.tree.width) - {0}
assert apart < 1e-5 or len(widths) > 1, "every parent has a child of every rank"

# %%
ctx.say(f"**Spearman against Pearson.** {study.methods_compared(correlations)}")

# %% [markdown]
# ## 2. The curves behind the correlations
# One number cannot show a shape. Positions (or nodes) are cut into **quantile bins** of the
# target's entropy: bins that hold equally many, with the same edges in all domains. The mean
# acceptance of each bin is drawn at its mean entropy, with its interval as a band. A domain has a
# point where at least five of its prompts have rows in the bin. If entropy told all, the four lines
# would lie on each other: what remains between them at equal entropy is something else (notebook
# 06).

# %%
curves = study.curves(nodes, trace, sampled_trace, bins)
ctx.export(curves, "curves")

# %%
pooled = curves.at(domain=score.POOLED)
notebook.show_table(pooled.wide("entropy_bin", "acceptance"))
assert curves.lies_within(0, 1)

# %%
least, most = pooled.frame["entropy_bin"].agg(["min", "max"])
hits = pooled.at(acceptance="hit[1] (T = 0)")
ctx.plot(
    study.panels(curves),
    x="target_entropy",
    columns="acceptance",
    y="accepted (mean)",
    limits=(0, 1),
    slug="acceptance-by-entropy",
    caption="Acceptance where the target is sure (left) and where it is not (right). At T = 0 the "
    f"draft's best token is accepted at {hits.at(entropy_bin=least)} of the surest positions "
    f"and at {hits.at(entropy_bin=most)} of the least sure.",
)

# %% [markdown]
# ## 3. Can the draft know beforehand?
# A decoder that could foresee a rejection would stop drafting there. Three signals are tried as
# predictors of `hit` (T = 0: the draft's best token is the target's): the draft's **confidence**,
# its probability q of its own best token; the draft's entropy, reversed; and the target's entropy,
# reversed, which no decoder has in time and which only shows what knowing it would be worth.
#
# Call "accepted" every position whose signal is above a threshold. An **ROC curve** lists, for
# every threshold, the share of accepted positions above it against the share of rejected ones. The
# area under it (**AUC**) is the probability that an accepted position has the larger signal than a
# rejected one: 0.5 tells nothing, 1 everything.

# %%
areas = study.areas(trace)
ctx.table(areas.wide("domain", "signal"), "auc")
assert areas.lies_within(0, 1)

# %%
confidence = areas.at(signal="draft confidence")
everywhere = study.auc(trace, "confidence", "hit")
ctx.save(
    study.roc_figure(trace, areas),
    "roc",
    caption="ROC curves over all domains, and the area under each by domain: draft confidence "
    f"tells accepted from rejected positions with an AUC of {everywhere}.",
)

# %%
each = confidence.without(domain=score.POOLED)
ctx.say(f"Draft confidence {each.sentence(*study.FORETELLS, than=0.5)}.")

# %%
lead = study.lead_of_confidence(trace)
ctx.say(
    f"Its AUC less that of another signal, all domains: {lead.listed('signal')}. It "
    f"{lead.sentence(*study.BETTER, names='signal')}."
)

# %% [markdown]
# The two signals that are known in time can also be correlated with exact acceptance: `overlap`
# (T = 1, sampled text) and `hit` (T = 0, greedy text).

# %%
online = study.signal_correlations(trace, sampled_trace)
ctx.table(online.wide(["signal", "domain"], "correlation"), "online-correlations")

# %% [markdown]
# ## 4. Can the draft be taken at its word?
# A forecaster is **calibrated** if what they call 70 % happens in 70 % of the cases. The
# reliability diagrams put the draft's confidence against what came of it. At T = 0 that is the
# share of positions where its best token is the target's. At T = 1, where text is sampled from p,
# it is the target's mean probability p of that token: the chance that it is accepted if it is
# proposed for certain and not drawn. Above the diagonal the draft is too modest, below it too sure.
# At T = 0 nothing obliges the two to agree, since the target's best token counts in full however
# small its lead; at T = 1 they would for a draft equal to its target.

# %%
views = {
    "T = 0, share accepted": (trace, "hit"),
    "T = 1, mean p": (sampled_trace, "top_p"),
}
reliability = study.reliability(views, confidence_bins)
ctx.export(reliability, "reliability")
assert reliability.lies_within(0, 1)

# %% [markdown]
# The **calibration error** is the mean distance from the diagonal, the **gap** its mean with sign.
# The error is never below 0 and noise adds to it, so that its interval is no test of 0: that is
# read from the gap. Entropy is no probability: only confidence can be taken at its word.

# %%
calibration = study.calibration(views, confidence_bins)
ctx.table(calibration.wide(["view", "domain"], "estimator"), "calibration")

# %%
errors, gaps = (
    calibration.at(estimator=f"calibration_{name}") for name in ("error", "gap")
)
ctx.save(
    study.reliability_figure(reliability),
    "reliability",
    caption="Above, what came of the draft's confidence, by domain: on the diagonal it would be "
    f"calibrated (the calibration error is {errors.span()}). Below, how often a confidence is met.",
)

# %%
for view, gap in gaps.at(domain=domains).groups("view"):
    ctx.say(f"* **{view}**: the draft {gap.sentence(*study.TOO_SURE)}.")

# %%
distance = errors.frame["estimate"] - gaps.frame["estimate"].abs()
assert (distance > -1e-9).all(), "distances cannot cancel, signs can"

# %%
rows = table[table["quantity"] == "spearman_entropy_alpha"]
gap = gaps.at(domain=score.POOLED)
t0, t1 = gap.frame["estimate"]
ctx.record(
    **study.named("spearman_published_alpha", rows, "ours_as_published"),
    **study.named("spearman_overlap", at_1.frame, "estimate"),
    **study.named("spearman_hit", at_0.frame, "estimate"),
    auc_draft_confidence=everywhere.estimate,
    auc_gain_over_draft_entropy=lead.at(signal="draft entropy, reversed").value,
    auc_gain_over_target_entropy=lead.at(signal="target entropy, reversed").value,
    calibration_gap_t0=t0,
    calibration_gap_t1=t1,
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. The draft's best token has q = 0.9 and the target gives it p = 0.45; no other token has more
#    than 0.3 under p. What does this position add to the reliability diagram at T = 0, and what at
#    T = 1?
#
# <details><summary>What happens</summary>
# At T = 0 it is a hit (the token is the target's best): 1 at confidence 0.9, above the diagonal. At
# T = 1 it is 0.45 at confidence 0.9, far below. The same draft is too modest for one decoder and
# too sure for the other.</details>
#
# 2. Replace the signal `confidence` by its square in section 3: `trace["confidence"] ** 2`. Does
#    the AUC change? Does the calibration error of section 4 change?
#
# <details><summary>What happens</summary>
# The AUC does not: it depends on the order of the positions only, and squaring keeps the order of
# numbers between 0 and 1. The calibration error does: it asks whether the numbers can be taken at
# their word. A signal can be a fine predictor and badly calibrated; a threshold mends that, or a
# temperature fitted on other texts.</details>
#
# 3. Give every prompt's rows one common id per domain: `nodes.assign(prompt_id=nodes["domain"])`.
#    What does `association.correlation` say?
#
# <details><summary>What happens</summary>
# It refuses, and says how many prompts an interval needs: one text is one observation, whatever the
# number of its nodes.</details>

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

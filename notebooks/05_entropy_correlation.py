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
# Where the target itself is undecided, a small draft should fail more often. The paper found only a
# weak link between the target's entropy and acceptance. Here the link is measured for the published
# number, for its two ranks apart, and for the acceptance of a decoder at either temperature. And
# since the target's entropy is known only after its pass, the second half asks what a decoder could
# use: does the draft's own confidence foretell acceptance, and can it be taken at its word?
#
# ![Acceptance against target entropy](../figures/smollm/05/acceptance-by-entropy.png)
#
# *Runs on* any machine · *minutes* one on 2 cores, once the runs are there · *reads* the runs
# `greedy` (temperature T = 0) and `sampled` (T = 1, three seeds) of the profile, recorded if they
# are not there · *writes* `figures/<profile>/05/`.

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
import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from speclab import score, stats
from speclab.analysis import association, bins
from speclab.analysis.texts import SEEDS, Text
from speclab.show import notebook
from speclab.show.estimates import Estimates, without_interval
from speclab.studies import entropy_correlation as study

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# quantile bins of target entropy in the curves of section 2
entropy_bins: int = 8  # 2 to 100
# equal bins of the draft's confidence in the reliability diagrams of section 4
confidence_bins: int = 10  # 2 to 100

# %%
ctx = notebook.start("05_entropy_correlation", profile, overrides)
greedy = Text.recorded(ctx.profile, "greedy")
sampled = Text.recorded(ctx.profile, *SEEDS)
domains = list(score.domains_in(greedy.trace))

# %% [markdown]
# ## 1. Does acceptance fall as the target's entropy rises?
# **Entropy** says how undecided a distribution is: 0 when one token has all the probability, log n
# when n tokens share it evenly. Its unit, with natural logarithms, is the **nat**: two equally
# likely tokens make 0.69. A correlation says, from -1 to 1, how far two numbers rise together;
# **Spearman**'s is the ordinary correlation of their ranks. Its interval **resamples prompts**: as
# many as there are get drawn anew, some twice and some never, and 95 % of the correlations that
# come out lie between `low` and `high`. Prompts are drawn and not tokens, since the tokens of one
# text are no independent witnesses. All of it by hand, in one domain, at T = 1 (`overlap`: the
# acceptance of one token drawn from the draft):

# %%
one = sampled.positions[sampled.positions["domain"] == domains[0]]
ranks = one[["target_entropy", "overlap"]].rank()
by_hand = np.corrcoef(ranks["target_entropy"], ranks["overlap"])[0, 1]

# %%
prompt_of_row, names = pd.factorize(one["prompt_id"], sort=True)
rng, alike = np.random.default_rng([0, 0]), np.full(len(names), 1 / len(names))
redrawn = []

# %%
for _ in range(200):
    times_drawn = rng.multinomial(len(names), alike)
    again = one.loc[one.index.repeat(times_drawn[prompt_of_row])]
    redrawn.append(again["target_entropy"].corr(again["overlap"], "spearman"))
low, high = np.quantile(redrawn, stats.levels_of(len(names)))

# %% [markdown]
# The kit's function does the same (and a little more than 95 % of few prompts: `stats.levels_of`).

# %%
said = "acceptance is the same everywhere, so it has no correlation"
if one["overlap"].nunique() > 1:
    kit = association.correlation(one, "target_entropy", "overlap", n=200)
    assert np.allclose([by_hand, low, high], [kit.estimate, kit.low, kit.high])
    said = f"{kit}, from {kit.n_prompts} prompts"
ctx.say(f"Correlation in {domains[0]}: {said}.")

# %% [markdown]
# The paper's Table VI correlates entropy with min(1, p/q) over all nodes of its draft trees (p: the
# target's, q: the draft's probability of the node's token). Half of these nodes are the draft's
# best token (rank 0), half its second (rank 1), so each rank is taken alone as well. All three are
# a T = 1 rule on greedy text, which no decoder meets. What a decoder meets is `overlap` on sampled
# text (T = 1) and `hit` on greedy text (T = 0: is the draft's best token the target's?).

# %%
views = study.acceptances(greedy, sampled)
correlations = study.entropy_correlations(views)
both = study.beside_published(correlations)
assert correlations.lies_within(-1, 1)

# %%
at_0 = correlations.at(acceptance=study.HIT)
at_1 = correlations.at(acceptance=study.OVERLAP)
printed = both.at(acceptance="published")

# %%
ctx.plot(
    both,
    x="domain",
    hue="acceptance",
    kind="points",
    height=3.2,
    y="Spearman correlation\nwith target entropy",
    x_label="",
    reference=0,
    slug="correlations",
    caption="Correlation of acceptance with the target's entropy, by kind of acceptance. Hit (T = "
    f"0): {at_0.span()}. Overlap (T = 1): {at_1.span()}. Published in the paper (crosses): "
    f"{printed.span()}.",
)

# %%
said = [
    f"* `{name}`, {rows.span()}: {rows.sentence(*study.RISE_OR_FALL)}"
    for name, rows in correlations.groups("acceptance")
]
ctx.say("**Acceptance as entropy rises** (and its correlations):\n\n" + "\n".join(said))

# %% [markdown]
# Where the two ranks point in opposite directions, a mean over both shows neither.

# %% [markdown]
# ## 2. The curves behind the correlations
# One number cannot show a shape. Positions (or nodes) are cut into **quantile bins** of the
# target's entropy: bins that hold equally many, with the same edges in all domains. A domain has a
# point where at least five of its prompts have rows in the bin. If entropy told all, the four lines
# would lie on each other: what remains between them at equal entropy is something else
# (notebook 06).

# %%
drawn = {
    "rank 0, published": views["min(1, p/q), rank 0"],
    "rank 1, published": views["min(1, p/q), rank 1"],
    "alpha (T = 1)": views[study.OVERLAP],
    "hit[1] (T = 0)": views[study.HIT],
}

# %%
curves = study.acceptance_in_bins(drawn, entropy_bins)
pooled = curves.at(domain=score.POOLED)
ctx.export(curves, "curves")

# %%
hits = pooled.at(acceptance="hit[1] (T = 0)")
least, most = hits.frame["entropy_bin"].agg(["min", "max"])

# %%
ctx.plot(
    curves.without(domain=score.POOLED),
    x="target_entropy",
    columns="acceptance",
    y="accepted (mean)",
    limits=(0, 1),
    slug="acceptance-by-entropy",
    caption="Acceptance where the target is sure (left) and where it is not (right). At T = 0 the "
    f"draft's best token is accepted at {hits.at(entropy_bin=least)} of the surest positions and "
    f"at {hits.at(entropy_bin=most)} of the least sure.",
)

# %% [markdown]
# ## 3. Can the draft know beforehand?
# A decoder that could foresee a rejection would stop drafting there. Three signals are tried as
# predictors of `hit` (T = 0): the draft's **confidence**, its probability q of its own best token;
# the draft's entropy, reversed; and the target's entropy, reversed, which no decoder has in time
# and which only shows what knowing it would be worth. The **AUC** (area under the ROC curve) is the
# probability that an accepted position has the larger signal than a rejected one, ties one half:
# 0.5 tells nothing, 1 everything.

# %%
trace = bins.signals(greedy.positions)
is_hit = trace["hit"] == 1
accepted, rejected = (
    trace["confidence"][is_hit],
    trace["confidence"][~is_hit].sort_values(),
)

# %%
below = rejected.searchsorted(accepted, "left")  # rejected ones with less confidence
not_above = rejected.searchsorted(accepted, "right")
by_hand = (below + not_above).mean() / 2 / len(rejected)

# %%
areas = study.areas(trace)
everywhere = areas.at(signal="draft confidence", domain=score.POOLED)
has_both = 0 < is_hit.mean() < 1  # else there is no pair to compare
if has_both:
    assert np.isclose(by_hand, everywhere.value)
    assert np.isclose(by_hand, roc_auc_score(trace["hit"], trace["confidence"]))

# %%
if has_both:
    ctx.plot(
        areas.defined(),
        x="domain",
        hue="signal",
        kind="points",
        reference=0.5,
        limits=(None, 1),
        y="AUC (line: no information)",
        x_label="",
        slug="auc",
        caption="How well three signals separate accepted from rejected positions at T = 0 (AUC "
        f"with 95 % intervals). Over all prompts draft confidence has an AUC of {everywhere}.",
    )

# %%
confidence = areas.at(signal="draft confidence", domain=domains)
lead = study.lead_of_confidence(trace)
ctx.say(
    f"The AUC of draft confidence is {confidence.sentence(*study.PREDICTS, than=0.5)}. Over all "
    f"prompts it is {lead.sentence(*study.BETTER, names='signal')}. Differences: "
    f"{lead.listed('signal')}."
    if has_both
    else "At T = 0 all positions are accepted, or all are rejected, so no signal can separate them."
)

# %% [markdown]
# ## 4. Can the draft be taken at its word?
# A forecaster is **calibrated** if what they call 70 % happens in 70 % of the cases. The
# reliability diagrams put the draft's confidence against what came of it: at T = 0 the share of
# positions where its best token is the target's; at T = 1 the target's mean probability p of that
# token, the chance that it is accepted if it is proposed for certain. Above the diagonal the draft
# is too modest, below it too sure. At T = 0 nothing obliges the two to agree, since the target's
# best token counts in full however small its lead; at T = 1 they would for a draft equal to its
# target.

# %%
forecasts = {
    "T = 0: share accepted": (trace, "hit"),
    "T = 1: mean p": (bins.signals(sampled.positions), "top_p"),
}
reliability = study.reliability(forecasts, confidence_bins)
assert reliability.lies_within(0, 1)

# %%
diagonal = pd.DataFrame({"domain": "calibrated", "confidence": [0.0, 1.0]})
diagonal = without_interval(diagonal, diagonal["confidence"])
lines = [diagonal.assign(view=view) for view in forecasts]
lines = [reliability.without(domain=score.POOLED).frame, *lines]

# %%
calibration = study.calibration(forecasts, confidence_bins)
errors = calibration.at(estimator="calibration_error")
gaps = calibration.at(estimator="calibration_gap")

# %%
ctx.plot(
    Estimates(pd.concat(lines, ignore_index=True)),
    x="confidence",
    columns="view",
    looks={"calibrated": {"color": "#8A8A8A", "marker": "", "linestyle": "-"}},
    y="what came of it",
    x_label="draft confidence q",
    limits=(0, 1),
    slug="reliability",
    caption="What came of the draft's confidence, by domain: on the diagonal it would be "
    f"calibrated. Calibration error: {errors.span()}.",
)

# %% [markdown]
# The **calibration error** is the mean distance from the diagonal, the **gap** its mean with sign.
# The error is never below 0 and noise adds to it, so that its interval is no test of 0: that is
# read from the gap.

# %%
ctx.table(calibration.wide(["view", "domain"], "estimator"), "calibration")
distance = errors.frame["estimate"] - gaps.frame["estimate"].abs()
assert (distance.dropna() > -1e-9).all(), "distances cannot cancel, signs can"

# %%
too_sure = gaps.at(domain=domains).sentence(*study.TOO_SURE, within="view")
ctx.say(f"What the draft is on average. {too_sure}.")

# %%
signal = (
    f"The draft's own confidence, known in advance, has an AUC of {everywhere} at T = 0"
)
ctx.answer(
    f"As the target's entropy rises on `{ctx.profile.name}`, acceptance at T = 0 (`hit[1]`) "
    f"{study.trend(at_0)}, and at T = 1 (`alpha`) it {study.trend(at_1)}. "
    f"{signal if has_both else 'At T = 0 all positions fared alike'}."
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
# their word. A signal can be a fine predictor and badly calibrated.</details>
#
# 3. Give every prompt's rows one common id: `one.assign(prompt_id="all")`. What does
#    `association.correlation` say?
#
# <details><summary>What happens</summary>
# It refuses, and says how many prompts an interval needs: one text is one observation, whatever the
# number of its tokens.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: direction and strength belong to an estimator and, for the published one, to a
#   rank; what is known before the target pass is the draft's own confidence.
# * What this does not show: a cause. Entropy, prompt set, position and kind of token go together;
#   notebook 06 holds some of them fixed. The entropy here is that of temperature 1 also where the
#   text is greedy. Four prompt sets in the form the draft was trained on are not four domains.
#   Intervals are 95 % each, not all at once.
# * Next: notebook 06 asks whether entropy explains the order of the domains; notebook 09 stops
#   drafting where confidence is low.

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
# use: does the draft's own confidence predict acceptance, and is it calibrated? The last section
# asks everything of other prompts, where the profile names some.
#
# ![Acceptance against target entropy](../figures/smollm/05/acceptance-by-entropy.png)
#
# *Runs on* any machine · *minutes* one on 2 cores, once the runs are there · *reads* the runs
# `greedy` (temperature T = 0) and `sampled` (the profile's temperature, by default 1; three seeds),
# and at both temperatures those of the other prompts that the profile names (`other_prompts`, one
# seed), recorded if they are not there · *writes* `figures/<profile>/05/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# quantile bins of target entropy in the curves of section 2
entropy_bins: int = 8  # 2 to 100
# equal bins of the draft's confidence in the reliability diagrams of section 4
confidence_bins: int = 10  # 2 to 100

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

from speclab import score, stats
from speclab.analysis import association, bins, prompt_sets
from speclab.analysis.texts import SEEDS, Text
from speclab.estimates import Estimates, named
from speclab.show import notebook
from speclab.studies import entropy_correlation as study

RUNS = ["greedy", "seeds", "others", "others-sampled"]

# %%
ctx = notebook.start("05_entropy_correlation", profile, overrides)
greedy = Text.recorded(ctx.profile, "greedy")
sampled = Text.recorded(ctx.profile, *SEEDS)
domains = list(score.domains_in(greedy.trace))
ctx.say(notebook.made_with(greedy.pair))

# %% [markdown]
# ## 1. Does acceptance fall as the target's entropy rises?
# **Entropy** says how undecided a distribution is: 0 when one token has all the probability, log n
# when n tokens share it evenly. Its unit, with natural logarithms, is the **nat**: two equally
# likely tokens make 0.69. A correlation says, from -1 to 1, how far two numbers rise together;
# **Spearman**'s is the ordinary correlation of their ranks. Its interval **resamples prompts**: as
# many as there are get drawn with replacement, some twice and some never, and 95 % of the resulting
# correlations lie between `low` and `high` (a little more than 95 % of few prompts:
# `stats.levels_of`). Prompts are drawn and not tokens, since the tokens of one text are not
# independent. The correlation by hand and by the kit, in one domain, on sampled text (`overlap`:
# the acceptance of one token drawn from the draft):

# %%
one = sampled.trace[sampled.trace["domain"] == domains[0]]
ranks = one[["target_entropy", "overlap"]].rank()
by_hand = np.corrcoef(ranks["target_entropy"], ranks["overlap"])[0, 1]

# %%
kit = Estimates(association.correlations(one, "target_entropy", "overlap"), digits=3)
assert np.isclose(by_hand, kit.value, equal_nan=True)
ctx.say(f"Correlation in {domains[0]}: {kit}.")

# %% [markdown]
# The paper's Table VI correlates entropy with min(1, p/q) over all nodes of its draft trees (p: the
# target's, q: the draft's probability of the node's token). Half of these nodes are the draft's
# best token (rank 0), half its second (rank 1), so each rank is taken alone as well. All three are
# a rule for drawn tokens on greedy text, which no decoder meets. What a decoder meets is `overlap`
# on sampled text and `hit` on greedy text (T = 0: is the draft's best token the target's?).

# %%
views = study.acceptances(greedy, sampled)
correlations = study.entropy_correlations(views)
both = study.beside_published(correlations)

# %%
of_greedy = correlations.at(acceptance=study.name_of_acceptance(greedy))
of_sampled = correlations.at(acceptance=study.name_of_acceptance(sampled))
of_paper = ""
if "published" in set(both.frame["acceptance"]):
    printed = both.at(acceptance="published")
    of_paper = f" Published in the paper (crosses): {printed.span()}."

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
    caption="Correlation of acceptance with the target's entropy, by kind of acceptance. Hit "
    f"({greedy.name}): {of_greedy.span()}. Overlap ({sampled.name}): {of_sampled.span()}."
    f"{of_paper}",
)

# %%
sentences = [
    f"* `{name}`, {rows.span()}: {rows.sentence(*study.RISE_OR_FALL)}"
    for name, rows in correlations.groups("acceptance")
]
ctx.say("**Acceptance as entropy rises** (and its correlations):\n\n" + "\n".join(sentences))

# %% [markdown]
# Where the two ranks point in opposite directions, a mean over both shows neither.

# %% [markdown]
# ## 2. Acceptance by entropy
# One number cannot show a shape. Positions (or nodes) are cut into **quantile bins** of the
# target's entropy: bins that hold equally many, with the same edges in all domains. A domain has a
# point where at least five of its prompts have rows in the bin. If entropy explained everything,
# the lines of the domains would coincide: what remains between them at equal entropy is something
# else (notebook 06).

# %%
drawn = {
    "rank 0, published": views["min(1, p/q), rank 0"],
    "rank 1, published": views["min(1, p/q), rank 1"],
    f"alpha ({sampled.name})": views[study.name_of_acceptance(sampled)],
    f"hit[1] ({greedy.name})": views[study.name_of_acceptance(greedy)],
}

# %%
curves = study.acceptance_in_bins(drawn, entropy_bins)
ctx.export(curves, "curves")
pooled = curves.at(domain=score.POOLED)
hits = pooled.at(acceptance=f"hit[1] ({greedy.name})")
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
# A decoder that could predict a rejection would stop drafting there. Three signals are tried as
# predictors of `hit` (T = 0): the draft's **confidence**, its probability q of its own best token;
# the draft's entropy (negated, so that larger means surer); and the target's entropy (negated),
# which no decoder knows in time; it serves as a reference. The **AUC** (area under the ROC curve)
# is the probability that an accepted position has the larger signal than a rejected one, ties one
# half: 0.5 tells nothing, 1 everything. Only pairs of positions of the **same text** are compared.
# Over all texts together, a signal would also be credited for knowing which prompt set is easy. By
# hand, in one domain:

# %%
trace = bins.signals(greedy.trace)
pairs = above = 0
for _, text in trace[trace["domain"] == domains[0]].groupby("prompt_id"):
    accepted, rejected = (text.loc[text["hit"] == hit, "confidence"] for hit in (1, 0))
    leads = np.sign(np.subtract.outer(accepted.to_numpy(), rejected.to_numpy()))
    pairs += leads.size
    above += (leads + 1).sum() / 2

# %%
draws = study.within_texts(trace)
areas = Estimates(draws.table(key="signal"), 3)
confidence = areas.at(signal="draft confidence", domain=domains)
if pairs:  # else all positions fared alike
    assert np.isclose(above / pairs, confidence.at(domain=domains[0]).value)

# %%
of_domains = areas.at(domain=domains)
mean_area = areas.at(signal="draft confidence", domain=score.ALL)
if len(of_domains.known):
    ctx.plot(
        of_domains.defined(),
        x="domain",
        hue="signal",
        kind="points",
        reference=0.5,
        limits=(None, 1),
        y="AUC within texts\n(line: no information)",
        x_label="",
        slug="auc",
        caption="How well three signals separate accepted from rejected positions of a text at "
        "T = 0, with 95 % intervals. The draft's confidence has an AUC of "
        f"{confidence.span()} by domain (mean {mean_area}).",
    )

# %%
first, *others = study.SIGNALS.values()
lead = {other: draws[first] - draws[other] for other in others}
lead = Estimates(draws.table(lead, key="signal"), 3).at(domain=domains)
ctx.say(
    f"The AUC of draft confidence is {confidence.sentence(*study.PREDICTS, than=0.5)}. Compared "
    f"with another signal's AUC on the same texts it is as follows. "
    f"{lead.sentence(within='signal')}. The differences are {lead.listed(within='signal')}."
)

# %% [markdown]
# ## 4. Is the draft calibrated?
# A forecaster is **calibrated** if what they call 70 % happens in 70 % of the cases. The
# reliability diagrams compare the draft's confidence with the outcome: at T = 0 the share of
# positions where its best token is the target's; on sampled text the target's mean probability p of
# that token, the chance that it is accepted if it is proposed for certain. Above the diagonal the
# draft is underconfident, below it overconfident. At T = 0 the two need not agree, since the
# target's best token counts in full however small its lead; on sampled text they would for a draft
# equal to its target.

# %%
forecasts = {
    f"{greedy.name}: share accepted": (trace, "hit"),
    f"{sampled.name}: mean p": (bins.signals(sampled.trace), "top_p"),
}
reliability = study.reliability(forecasts, confidence_bins)
diagonal = Estimates.exact("domain", {"calibrated": [0, 1]}, "confidence", [0, 1])
lines = [diagonal.frame.assign(view=view) for view in forecasts]
lines = pd.concat([reliability.without(domain=score.POOLED).frame, *lines])

# %%
calibration = study.calibration_measures(forecasts, confidence_bins)
errors = calibration.at(estimator="calibration_error")
gaps = calibration.at(estimator="calibration_gap")

# %%
ctx.plot(
    Estimates(lines),
    x="confidence",
    columns="view",
    looks={"calibrated": {"color": "#8A8A8A", "marker": "", "linestyle": "-"}},
    y="outcome",
    x_label="draft confidence q",
    limits=(0, 1),
    slug="reliability",
    caption="Outcome by the draft's confidence, on the profile's own prompts. On the diagonal the "
    f"draft would be calibrated. Calibration error: {errors.span()}.",
)

# %% [markdown]
# The **calibration error** is the mean distance from the diagonal, the **gap** its mean with sign.
# The error is never below 0 and noise adds to it, so that its interval is no test of 0: that is
# read from the gap. `all` is the mean of the domains, each of which counts once; in `pooled` each
# position does.

# %%
ctx.table(
    calibration, "calibration", rows=60, cells=calibration.wide(["view", "domain"], "estimator")
)

# %%
too_sure = gaps.at(domain=domains).sentence(*study.TOO_SURE, within="view")
ctx.say(f"The draft on average, on these prompts. {too_sure}.")

# %% [markdown]
# ## 5. Do other prompts say the same?
# The same three questions on the other prompts that the profile names (`other_prompts`), in three
# tables: Spearman's correlation of acceptance with the target's entropy; the AUC of the draft's
# confidence within texts (T = 0); and the calibration gap, outcome minus confidence. A stop rule
# that was tuned on one set of prompts may meet another gap on the next.

# %%
ctx.say(prompt_sets.described(ctx.profile))
sets = {text.name: prompt_sets.texts(ctx.profile, text) for text in (greedy, sampled)}
greedy_sets, sampled_sets = sets.values()
elsewhere = [  # without the part of a set that is shown once more
    name for name in greedy_sets if name not in (prompt_sets.OWN, prompt_sets.ENGLISH)
]

# %%
if elsewhere:
    trends = {}
    for name, texts in sets.items():
        of_sets = {which: (text.trace, text.value) for which, text in texts.items()}
        table = study.entropy_correlations(of_sets).frame.rename(columns={"acceptance": "set"})
        new = [prompt_sets.is_new(row.set, row.domain) for row in table.itertuples()]
        trends[name] = table[new]
    trends = Estimates.stacked(trends, "text")
    ctx.table(trends, "other-correlations", rows=60, cells=trends.wide(["text", "set"], "domain"))


# %%
def predicts(text):
    """Pairs of positions of each text, and the AUC of the draft's confidence over them."""
    pairs = study.pairs_within_texts(bins.signals(text.trace))
    return pairs, score.ratio_of("confidence", "pairs")


# %%
if elsewhere:
    auc_of_sets = prompt_sets.by_set(prompt_sets.asked(greedy_sets, predicts))
    ctx.table(auc_of_sets, "other-auc", rows=60, cells=auc_of_sets.wide("set", "domain"))

# %%
if elsewhere:
    gap_of_sets = {}
    for (name, texts), outcome in zip(sets.items(), ("hit", "top_p"), strict=True):
        draws_of_sets = prompt_sets.asked(
            texts, lambda text, of=outcome: study.calibration_gap(bins.signals(text.trace), of)
        )
        gap_of_sets[name] = prompt_sets.by_set(draws_of_sets)
    gap_of_sets = Estimates.stacked(gap_of_sets, "text", 3)
    ctx.table(gap_of_sets, "other-gaps", rows=60, cells=gap_of_sets.wide(["text", "set"], "domain"))

# %%
if elsewhere:
    at_both = gap_of_sets.at(text=greedy.name, set=[prompt_sets.OWN, *elsewhere])
    spans = [f"{rows.span()} ({which})" for which, rows in at_both.groups("set")]
    ctx.say(
        "Calibration belongs to the prompts as much as to the draft. The gaps by domain at "
        f"{greedy.name} are {named(spans)}."
    )

# %%
on_others, of_others = "No other prompts were tested.", ""
if elsewhere:
    falls = []
    for name, rows in trends.at(set=elsewhere).groups("text"):
        known = rows.frame.dropna(subset=["low", "high"])  # a row for each domain of each set
        verdicts = list(stats.verdict(known["low"], known["high"]))
        rising = f" and rises in {verdicts.count('above')}" if "above" in verdicts else ""
        counts = f"in {verdicts.count('below')} of {len(verdicts)} groups of prompts{rising}"
        falls.append(f"{counts} at {name}")
    on_others = f"On other prompts it falls significantly {' and '.join(falls)}."
    of_others = f", on other prompts {auc_of_sets.at(set=elsewhere).span()}"

# %%
ctx.answer(
    f"As the target's entropy rises on `{ctx.profile.name}`, acceptance {study.trend(of_greedy)} "
    f"at {greedy.name}. {on_others} Within a text the draft's confidence has an AUC of "
    f"{confidence.span()}{of_others}."
)

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. The draft's best token has q = 0.9 and the target gives it p = 0.45; no other token has more
#    than 0.3 under p. What does this position add to the reliability diagram at T = 0, and what at
#    T = 1?
#
# <details><summary>What happens</summary>
# At T = 0 it is a hit (the token is the target's best): 1 at confidence 0.9, above the diagonal. At
# T = 1 it is 0.45 at confidence 0.9, far below. The same draft is underconfident for one decoder
# and overconfident for the other.</details>
#
# 2. Replace the signal `confidence` by its square in section 3: `trace["confidence"] ** 2`. Does
#    the AUC change? Does the calibration error of section 4 change?
#
# <details><summary>What happens</summary>
# The AUC does not: it depends on the order of the positions only, and squaring keeps the order of
# numbers between 0 and 1. The calibration error does: it compares the numbers themselves with the
# outcomes. A signal can be a fine predictor and badly calibrated.</details>
#
# 3. Give every prompt's rows one common id: `one.assign(prompt_id="all")`. What does
#    `association.correlation` say?
#
# <details><summary>What happens</summary>
# It gives the number without an interval: one text is one observation, whatever the number of its
# tokens, and an interval needs five prompts at least.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: direction and strength belong to an estimator and, for the published one, to a
#   rank; what is known before the target pass is the draft's own confidence.
# * What this does not show: a cause. Entropy, prompt set, position and kind of token go together;
#   notebook 06 holds some of them fixed. The entropy of greedy text is that at temperature 1, the
#   entropy of sampled text that at the text's temperature. Calibration and AUC may differ from one
#   set of prompts to the next (section 5).
#   Intervals are 95 % each, not all at once.
# * Next: notebook 06 asks whether entropy explains the order of the domains; notebook 09 stops
#   drafting where confidence is low.

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
# weak link between the target's entropy and acceptance. Sections 1 and 2 measure this link for the
# paper's measure of acceptance, and for what a decoder accepts at T = 0 and on sampled text. But
# the target's entropy is known only after its pass. Sections 3 and 4 ask what a decoder could use
# instead: does the draft's own confidence predict acceptance, and is it calibrated? Section 5
# repeats everything on other prompt sets.
#
# ![Acceptance against target entropy](../figures/smollm/05/acceptance-by-entropy.png)
#
# *Runs on* any machine · *time* about a minute on 2 cores · *reads* the runs `greedy` (T = 0) and
# `sampled` (three seeds), and both for each other prompt set (one seed). Missing runs are recorded
# first. · *writes* `figures/<profile>/05/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# quantile bins of target entropy in the curves of section 2
entropy_bins: int = 8  # 2 to 100
# equal bins of the draft's confidence in the reliability diagrams of section 4
confidence_bins: int = 10  # 2 to 100

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

from speclab import score
from speclab.analysis import association, bins, prompt_sets
from speclab.analysis.texts import SEEDS, Text
from speclab.estimates import Estimates, named, starting
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
# **Entropy** measures how undecided a distribution is. It is 0 when one token has all the
# probability, and log n when n tokens share it evenly. With natural logarithms its unit is the
# **nat**: two equally likely tokens have 0.69 nats. A correlation says how closely two numbers rise
# together, from −1 to 1. **Spearman's** correlation is the ordinary correlation of their ranks.
#
# To get an interval we **resample the prompts**. We draw as many prompts as there are, with
# replacement, so some come twice and some not at all. 95 % of the resulting correlations lie in the
# interval. (With few prompts we widen it a little, see `stats.levels_of`.) We resample prompts and
# not tokens, because the tokens of one text are not independent.
#
# We compute the correlation by hand in one domain, on sampled text. There the acceptance of a token
# is `overlap`, the probability that a token drawn from the draft is accepted.

# %% tags=["by-hand"]
one = sampled.trace[sampled.trace["domain"] == domains[0]]
entropy_rank = one["target_entropy"].rank()
acceptance_rank = one["overlap"].rank()
by_hand = np.corrcoef(entropy_rank, acceptance_rank)[0, 1]

# %%
kit = Estimates(association.correlations(one, "target_entropy", "overlap"))
assert np.isclose(by_hand, kit.value, equal_nan=True)
ctx.say(f"The correlation in {domains[0]} is {kit}.")

# %% [markdown]
# The paper's Table VI correlates entropy with min(1, p/q) over all nodes of its draft trees. Here p
# is the target's probability of a node's token and q the draft's. Half of the paper's nodes are the
# draft's best token (rank 0), half its second-best (rank 1), so we also show each rank by itself.
# No decoder accepts tokens by this measure: min(1, p/q) is the rule for tokens drawn from q, and
# the nodes are not drawn. A decoder accepts a drawn token with probability `overlap` on sampled
# text. At T = 0 it accepts the draft's best token if that is the target's best (`hit`).

# %%
views = study.acceptances(greedy, sampled)
correlations = study.entropy_correlations(views)
best_token = correlations.at(acceptance=greedy.token)
both = study.beside_published(correlations)

# %%
ctx.plot(
    both,
    x="acceptance",
    kind="bars",
    x_label="",
    y="Spearman correlation with the target's entropy",
    reference=0,
    reference_name="no correlation",
    height=3,
    slug="correlations",
    title=f"{starting(greedy.token)}: as entropy rises, acceptance "
    f"{best_token.tally(*study.TREND)}",
    caption="Correlation of acceptance with the target's entropy, by measure of acceptance and "
    "domain. A point left of the line means that acceptance falls as entropy rises. For the best "
    f"token (`hit`) the correlation is {best_token.span()}. A drawn token is accepted with "
    "probability `overlap`. Bars: 95 % intervals.",
)

# %%
sentences = [
    f"* {starting(name)}: acceptance {rows.tally(*study.TREND)}."
    for name, rows in correlations.groups("acceptance")
]
ctx.say("With rising entropy of the target:\n\n" + "\n".join(sentences))

# %% [markdown]
# The mean over all nodes mixes the two ranks. Where one rises and the other falls, it hides this.

# %% [markdown]
# ## 2. Acceptance by entropy
# One number cannot show a shape. We therefore sort positions (or nodes) by the target's entropy and
# cut them into **quantile bins**. Every bin holds the same number of positions, and its edges are
# the same in all domains. We show a point only if at least five prompts of the domain have
# positions in the bin. If entropy explained everything, the lines of the domains would coincide.
# Notebook 06 asks what else differs at equal entropy.

# %%
drawn = {name: view for name, view in views.items() if name != study.ALL_NODES}
curves = study.acceptance_in_bins(drawn, entropy_bins)
ctx.export(curves, "curves")
hits = curves.at(domain=score.POOLED, acceptance=greedy.token).in_units("%")
lowest, *_, highest = (rows for _, rows in hits.groups("entropy_bin"))

# %%
ctx.plot(
    curves.without(domain=score.POOLED),
    x="target_entropy",
    columns="acceptance",
    y="mean acceptance",
    limits=(0, 1),
    slug="acceptance-by-entropy",
    title=f"{starting(greedy.token)}: right at {lowest.span()} where target entropy is "
    f"lowest, {highest.span()} where it is highest",
    caption="Mean acceptance in bins of the target's entropy, by measure of acceptance and domain. "
    "The title gives the first and the last bin of the best token, over all domains together. "
    "Where the lines differ at equal entropy, something other than entropy matters. Bands: 95 % "
    "intervals.",
)

# %% [markdown]
# ## 3. Can the draft predict a rejection?
# A decoder that could predict a rejection would stop drafting before it. We test three signals as
# predictors of `hit` (T = 0):
#
# * the draft's **confidence**, its probability q of its own best token;
# * the draft's entropy, negated so that larger means surer;
# * the target's entropy, negated. No decoder knows it in time; it is a reference.
#
# The **AUC** (area under the ROC curve) is the probability that the signal is larger at an accepted
# position than at a rejected one. A tie counts one half. A useless signal has 0.5, a perfect one 1.
# We compare only positions of the **same text**: across texts a signal would also get credit for
# knowing which domain is easy. By hand we compare, in one domain, every accepted position with
# every rejected position of its text.

# %% tags=["by-hand"]
positions = bins.signals(greedy.trace)
pairs, won = 0, 0.0
for _, text in positions[positions["domain"] == domains[0]].groupby("prompt_id"):
    of_accepted = text.loc[text["hit"] == 1, "confidence"].to_numpy()
    of_rejected = text.loc[text["hit"] == 0, "confidence"].to_numpy()
    lead = np.subtract.outer(of_accepted, of_rejected)  # of every pair
    pairs += lead.size
    won += (lead > 0).sum() + (lead == 0).sum() / 2

# %%
draws = study.within_texts(positions)
areas = draws.table(key="signal")
of_domains = areas.at(domain=domains)
confidence = of_domains.at(signal=study.CONFIDENCE)
if pairs:  # else all positions fared alike
    assert np.isclose(won / pairs, confidence.at(domain=domains[0]).value)
    ctx.say(
        f"In {domains[0]} the signal is larger at the accepted position in {won:,.0f} of "
        f"{pairs:,} pairs: the AUC is {won / pairs:.2f}."
    )

# %%
mean_area = areas.at(signal=study.CONFIDENCE, domain=score.ALL)
if len(of_domains.known):
    ctx.plot(
        of_domains.defined(),
        x="domain",
        hue="signal",
        kind="points",
        reference=0.5,
        reference_name="no information",
        limits=(None, 1),
        y="AUC within texts",
        x_label="",
        slug="auc",
        title=f"The draft's confidence {confidence.tally(*study.PREDICTS, than=0.5)} "
        f"(AUC {confidence.span()})",
        caption="How well three signals separate the accepted from the rejected positions of a "
        "text at T = 0, by domain. The mean AUC of "
        f"the draft's confidence is {mean_area}. Bars: 95 % intervals.",
    )

# %%
others = [name for name in study.SIGNALS.values() if name != study.CONFIDENCE]
lead = {other: draws[study.CONFIDENCE] - draws[other] for other in others}
lead = draws.table(lead, key="signal").at(domain=domains)
for other, rows in lead.groups("signal"):
    ctx.say(f"* Compared with the {other}, the draft's confidence {rows.tally(*study.HIGHER)}.")

# %% [markdown]
# ## 4. Is the draft calibrated?
# A forecaster is **calibrated** if what they call 70 % happens in 70 % of the cases. The
# reliability diagrams compare the draft's confidence with an outcome. At T = 0 the outcome is the
# share of positions where the draft's best token is the target's best. On sampled text it is the
# mean probability p that the target gives the draft's best token. This is the chance that the token
# is accepted if it is always proposed.
#
# Above the diagonal the draft is underconfident, below it overconfident. At T = 0 confidence and
# outcome need not agree, because the target's best token counts in full however small its lead. On
# sampled text they would agree for a draft equal to its target.

# %%
forecasts = {
    greedy.name: (positions, "hit"),
    sampled.name: (bins.signals(sampled.trace), "top_p"),
}
reliability = study.reliability(forecasts, confidence_bins)
diagonal = Estimates.exact("domain", {"calibrated": [0, 1]}, "confidence", [0, 1])
lines = [diagonal.frame.assign(view=view) for view in forecasts]
lines = pd.concat([reliability.without(domain=score.POOLED).frame, *lines])

# %%
calibration = study.calibration_measures(forecasts, confidence_bins)
errors = calibration.at(estimator="calibration_error")
gaps = calibration.at(estimator="calibration_gap", domain=domains)

# %%
ctx.plot(
    Estimates(lines),
    x="confidence",
    columns="view",
    looks={"calibrated": {"color": "#8A8A8A", "marker": "", "linestyle": "-"}},
    y="outcome",
    x_label="draft confidence",
    limits=(0, 1),
    slug="reliability",
    title=study.calibrated_in_words(gaps),
    caption=f"Outcome by the draft's confidence and domain: the share accepted at {greedy.name}, "
    f"the target's mean p at {sampled.name}. On the diagonal the draft would be calibrated. "
    f"The mean distance from the diagonal (calibration error) is {errors.span()}, depending on "
    "domain and temperature. Bands: 95 % intervals.",
)

# %% [markdown]
# The **calibration error** is the mean distance from the diagonal. The **calibration gap** is the
# mean of outcome minus confidence, so it has a sign. The error cannot be negative, and noise makes
# it larger. So only the interval of the gap can be compared with 0. `all` is the mean of the
# domains, each with the same weight.

# %%
ctx.table(calibration, "calibration", most=60, cells=study.calibration_table(calibration))

# %% [markdown]
# ## 5. Do other prompts give the same result?
# We repeat the three questions on other prompts (`other_prompts` in the profile, the study's
# settings file). The first table has the correlation of acceptance with the target's entropy. The
# second has the AUC of the draft's confidence (T = 0), the third the calibration gap. A decoder may
# stop drafting below some confidence. If the gap differs between prompt sets, a threshold that was
# tuned on one set may be wrong on another.

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
    ctx.table(trends, "other-correlations", most=60, cells=trends.wide(["text", "set"], "domain"))


# %%
def predicts(text):
    """Pairs of positions of each text, and the AUC of the draft's confidence over them."""
    pairs = study.pairs_within_texts(bins.signals(text.trace))
    return pairs, score.ratio_of("confidence", "pairs")


# %%
if elsewhere:
    auc_of_sets = prompt_sets.by_set(prompt_sets.asked(greedy_sets, predicts), digits=2)
    ctx.table(auc_of_sets, "other-auc", most=60, cells=auc_of_sets.wide("set", "domain"))

# %%
if elsewhere:
    gap_of_sets = {}
    for (name, texts), outcome in zip(sets.items(), ("hit", "top_p"), strict=True):
        draws_of_sets = prompt_sets.asked(
            texts, lambda text, of=outcome: study.calibration_gap(bins.signals(text.trace), of)
        )
        gap_of_sets[name] = prompt_sets.by_set(draws_of_sets)
    gap_of_sets = Estimates.stacked(gap_of_sets, "text")
    ctx.table(gap_of_sets, "other-gaps", most=60, cells=gap_of_sets.wide(["text", "set"], "domain"))

# %%
on_others = trends.at(text=greedy.name, set=elsewhere) if elsewhere else None
for name in sets if elsewhere else ():
    of_sets = trends.at(text=name, set=elsewhere).groups("set")
    parts = [f"{rows.tally(*study.TREND)} ({which})" for which, rows in of_sets]
    ctx.say(f"At {name}, as the target's entropy rises, acceptance {named(parts)}.")
ctx.answer(study.uncertainty_in_words(mean_area, best_token, on_others))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. The draft's best token has q = 0.9, and the target gives it p = 0.45. No other token has more
#    than 0.3 under p. What does this position add to the reliability diagram at T = 0, and what at
#    T = 1?
#
# <details><summary>What happens</summary>
# At T = 0 it is a hit, because the token is the target's best. It adds 1 at confidence 0.9, above
# the diagonal. At T = 1 it adds 0.45 at confidence 0.9, far below. The same draft is underconfident
# for one decoder and overconfident for the other.</details>
#
# 2. In section 3, replace the signal `confidence` by its square: `positions["confidence"] ** 2`.
#    Does the AUC change? Does the calibration error of section 4 change?
#
# <details><summary>What happens</summary>
# The AUC stays the same. It depends only on the order of the positions, and squaring keeps the
# order of numbers between 0 and 1. The calibration error changes: it compares the numbers
# themselves with the outcomes. A signal can predict well and be badly calibrated.</details>
#
# 3. Give every prompt's rows one common id: `one.assign(prompt_id="all")`. What does
#    `association.correlation` return?
#
# <details><summary>What happens</summary>
# It returns the number without an interval. One text is one observation, whatever the number of its
# tokens, and an interval needs at least five prompts.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: whether and how strongly acceptance falls with entropy depends on the measure of
#   acceptance and, in the paper's measure, on the rank. The draft's own confidence is
#   known before the target pass.
# * What this does not show: a cause. Entropy, domain, position and kind of token go together, and
#   notebook 06 holds some of them fixed. The entropy of greedy text is measured at temperature 1,
#   the entropy of sampled text at the text's own temperature. Calibration and AUC may differ
#   between sets of prompts (section 5). Each interval by itself contains the true value in 95 % of
#   cases. That all of them do so at once is less likely.
# * Next: notebook 06 asks whether entropy explains the order of the domains. Notebook 09 stops
#   drafting where confidence is low.

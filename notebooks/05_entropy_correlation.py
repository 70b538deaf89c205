# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5. Does uncertainty predict rejection?

# %% tags=["parameters"]
profile: str = "smollm"  # the pair and its prompts: a name from notebooks/profiles, or a YAML file
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}
confidence_bins: int = 10  # 2 to 100; bins of the draft's confidence

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# The kit is around this folder or in the environment, else SPECLAB_REPO is cloned and installed.
import importlib.util, os, subprocess, sys

kit = next((p for p in (".", "..") if os.path.isdir(f"{p}/speclab/cli")), "speclab-kit")
if not os.path.exists(kit) and not importlib.util.find_spec("speclab"):
    subprocess.run(["git", "clone", "--depth=1", os.environ["SPECLAB_REPO"], kit], check=True)
sys.path.insert(0, os.path.abspath(kit))
from speclab.cli import hosted

hosted.prepare()

# %% jupyter={"source_hidden": true}
import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.lab import association, bins, prompt_sets, published
from speclab.lab.texts import Text
from speclab.estimates import Estimates
from speclab.score import ALL
from speclab.show import notebook

RUNS = ["greedy", "seeds", "others"]

# %%
ctx = notebook.start("05_entropy_correlation", profile, overrides)
greedy = Text.recorded(ctx.profile, "greedy")  # the target's own text, with a tree per position
sampled = Text.sampled(ctx.profile)  # the same prompts at a temperature, several texts each
domains = stats.judged_domains(greedy.trace)  # domains with at least five prompts

# %% [markdown]
# A decoder could draft less where a rejection is likely. The paper correlates acceptance with the
# entropy of the target's distribution. But the target's entropy is known only after its pass. What
# a decoder knows in time is the draft's own distribution $q$: its entropy, and the probability of
# its best token, the draft's **confidence**. Which of them predicts a rejection, and how well?
#
# A **position** is one token of the target's text. At each we know both models' distributions, and
# whether the draft's best token is the target's (`hit`). Here are two positions of the first text.

# %%
positions = bins.signals(greedy.trace[greedy.trace["domain"].isin(domains)])
known = ["position", "target_entropy", "draft_entropy", "confidence", "hit"]
notebook.show_table(positions[known].head(2))

# %% [markdown]
# ## 1. How closely does acceptance follow the target's entropy?
# The paper's Table VI has **Spearman's correlation** within a domain: the correlation of the ranks
# of two numbers, from −1 to 1. The paper takes $\min(1, p/q)$ over the nodes of a tree. Exact
# are, per position, whether the draft's best token is the target's (greedy text), and the
# acceptance of a token that is drawn from the draft (sampled text),
#
# $$\alpha_t = \sum_x \min\left(p_t(x), q_t(x)\right).$$

# %% tags=["by-hand"]
one = sampled.trace[sampled.trace["domain"] == domains[0]]
by_hand = np.corrcoef(one["target_entropy"].rank(), one["overlap"].rank())[0, 1]
print(f"{domains[0]}, sampled text: {by_hand:.2f}")

# %%
VIEWS = {
    "paper's measure": (greedy.nodes, "ratio"),
    greedy.token: (greedy.trace, "hit"),
    sampled.token: (sampled.trace, "overlap"),
}
correlations = Estimates.stacked(
    {
        name: association.correlations(rows, "target_entropy", column)
        for name, (rows, column) in VIEWS.items()
    },
    "acceptance",
).at(domain=domains)
kit = correlations.at(acceptance=sampled.token, domain=domains[0])
assert np.isclose(by_hand, kit.value, equal_nan=True)
if correlations.known.empty:
    ctx.leave_out("needs positions that fare differently")

# %%
shown = correlations.known
paper = published.published("VI").rename(columns={"published": "estimate"})
if set(domains) <= set(paper["domain"]):  # the paper's numbers belong to its own domains
    paper = paper.set_index("domain").loc[domains].reset_index()
    shown = pd.concat([paper.assign(acceptance="the paper's pair", low=np.nan, high=np.nan), shown])
ctx.plot(
    Estimates(shown.reset_index(drop=True)),
    x="acceptance",
    kind="bars",
    y="correlation with the target's entropy",
    reference={"no correlation": 0},
    slug="correlations",
    title="Acceptance and the target's entropy",
    caption="Spearman's correlation by domain. Left of the line acceptance falls as entropy rises. "
    "Bars: intervals over prompts.",
)

# %% [markdown]
# ## 2. Which signal predicts a rejection in time?
# Take two positions of one text, one accepted and one rejected. How often does a signal rank the
# accepted one higher? This is the area under the ROC curve (AUC): 0.5 is chance, 1 never errs.

# %%
SIGNALS = {
    "confidence": "draft's confidence",
    "draft_certainty": "draft's entropy (negated)",
    "target_certainty": "target's entropy (negated)",
}
pairs = bins.surer_pairs(positions, SIGNALS)
questions = {label: (pairs, score.ratio_of(name, "pairs")) for name, label in SIGNALS.items()}
areas = stats.jointly(questions).table(key="signal")

# %%
ctx.plot(
    areas.at(domain=domains),
    x="domain",
    hue="signal",
    kind="points",
    reference={"chance": 0.5},
    limits=(None, 1),
    y="AUC within texts",
    slug="auc",
    title="How often each signal ranks an accepted position above a rejected one",
    caption="Greedy text. The target's entropy is known too late to be used. Bars: intervals over "
    "prompts.",
)

# %% [markdown]
# ## 3. Is the draft calibrated?
# A ranking needs no true probabilities, a cost-based rule does. If the draft says 0.8, are 8 of 10
# such tokens accepted? The **expected calibration error** is the mean distance over bins of
# confidence, weighted by their positions $n_b$
# ([Guo et al. 2017](https://arxiv.org/abs/1706.04599)):
#
# $$\mathrm{ECE} = \sum_b \frac{n_b}{n}
#   \left| \mathrm{accepted}_b - \mathrm{confidence}_b \right| .$$

# %%
# equal parts of 0 to 1, where 1 belongs to the last part
part = (positions["confidence"] * confidence_bins).astype(int)
rows = positions.assign(bin=part.clip(upper=confidence_bins - 1))
levels = sorted(rows["bin"].unique())
columns = bins.cut_levels("hit", "bin", levels)
share = score.Estimator("hit", columns, score.quotient, scalar=False)
means = stats.by_domain(rows, share).frame[["domain", *stats.NUMBERS]]
means.insert(1, "bin", levels * (len(means) // len(levels)))
facts = {"rows": ("prompt_id", "size"), "n_prompts": ("prompt_id", "nunique")}
facts["confidence"] = ("confidence", "mean")
reliability = means.join(rows.groupby(["domain", "bin"]).agg(**facts), ["domain", "bin"], "inner")
# a bin with rows of fewer than five prompts has no interval
reliability = reliability[reliability["n_prompts"] >= stats.MIN_PROMPTS]

# %%
ideal = pd.DataFrame({"domain": "calibrated", "confidence": [0.0, 1], "estimate": [0.0, 1]})
lines = pd.concat([reliability, ideal], ignore_index=True)
ctx.plot(
    Estimates(lines),
    x="confidence",
    y="accepted",
    x_label="draft's confidence",
    limits=(0, 1),
    slug="reliability",
    title="Share of best tokens accepted, by the draft's confidence",
    caption="Greedy text. A calibrated draft lies on the diagonal, an overconfident one below it, "
    "an underconfident one above it. "
    "Bands: intervals over prompts.",
)

# %% tags=["by-hand"]
in_bin = rows.groupby(["domain", "bin"])[["hit", "confidence"]].agg(["mean", "size"])
gap = (in_bin["hit", "mean"] - in_bin["confidence", "mean"]).abs()
size = in_bin["hit", "size"]
ece = (gap * size).groupby("domain").sum() / size.groupby("domain").sum()
ctx.table(
    ece[domains].rename("ECE").reset_index(),
    "calibration",
    digits=2,
    caption="Expected calibration error of the draft",
)

# %% [markdown]
# ## 4. Does it hold on other prompts?
# The AUC of the draft's confidence on each set, in the domains in which its texts are new. `all` is
# the mean of the domains, for the sets that are new in all of them.

# %%
ctx.say(prompt_sets.described(ctx.profile))
sets = prompt_sets.read(ctx.profile, greedy)
whole = [name for name, each in sets.items() if {*domains} <= {*each.new} and not each.is_part]
tables = {}
for name, each in sets.items():
    own = bins.signals(each.trace[each.trace["domain"].isin(domains)])
    if own["domain"].isin(each.new).any():
        pairs = bins.surer_pairs(own, ["confidence"])
        table = stats.by_domain(pairs, score.ratio_of("confidence", "pairs"))
        tables[name] = table.at(domain=[*each.new, *([ALL] if name in whole else [])])
elsewhere = Estimates.stacked(tables, "set")
ctx.table(
    elsewhere,
    "other-auc",
    rows="set",
    columns="domain",
    caption="Probability that the draft was surer of the accepted token, by prompt set",
)

# %%
ANSWERS = {
    stats.ABOVE: "Yes.",
    stats.BELOW: "Yes, but the wrong way round.",
    stats.INCONCLUSIVE: "It is not clear.",
    stats.UNDEFINED: "It cannot be said here.",
}
own, other = (elsewhere.at(domain=ALL, set=name) for name in (prompt_sets.OWN, whole[-1]))
answer = ANSWERS[own.verdict(0.5)]
if np.isfinite(own.value):
    answer += (
        " Of an accepted and a rejected token of one text, the draft was surer of the accepted one "
        f"{100 * own.value:.0f} times in 100"
    )
    if whole[-1] != prompt_sets.OWN and np.isfinite(other.value):
        unclear = "" if other.verdict(0.5) in (stats.ABOVE, stats.BELOW) else " (not clear)"
        answer += f", on {sets[whole[-1]].in_words} {100 * other.value:.0f}{unclear}"
    answer += "."
ctx.answer(answer)

# %% [markdown]
# ## Try it
# In section 2, replace the signal by its square: `positions["confidence"] ** 2`. Does the AUC
# change? Does the calibration error of section 3?
#
# <details><summary>What happens</summary>
# The AUC stays the same: it depends only on the order of the positions. The calibration error
# changes, because it compares the numbers themselves with the outcomes. A signal can predict well
# and be badly calibrated.</details>

# %% [markdown]
# ## What this does not show
# Whether a rule that uses the confidence is faster: [10](10_wall_clock.ipynb) prices stop rules. A
# correlation within a domain mixes texts; the AUC does not. Next: [06](06_chat_paradox.ipynb), the
# domain with the highest entropy.

# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 8. Can a better draft be made, and which draft is best?
#
# A better draft can mean two different things: it agrees with the target more often, or it makes
# decoding faster. A quantised copy of the target agrees most but costs as much as the target.
# Distillation changes what a small draft says, at the same cost. Copying from the text so far costs
# almost nothing. Section 4 compares all drafts in one table.
#
# ![Cost of a pass, acceptance and speed-up of every draft tried](../figures/smollm/08/drafts.png)
#
# *Runs on* any machine (GPTQ needs the extra `gptq`; without it those rows are left out) ·
# *minutes* about two on 2 cores the first time, one later · *reads* the runs `greedy` and `sampled`
# of the profile, the trained and recorded drafts in `data/drafts`, and the card of the pair; loads
# the pair, records the other drafts in `data/runs/drafts` · *writes* `figures/<profile>/08/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# bits per weight of the target's quantised copies
bit_widths: list = [8, 4, 3]  # one of 2, 3, 4, 8
calibration_rows: int = 32  # 1 to 10000; texts of the target that GPTQ is calibrated on
# composed prompts from which the calibration texts start
calibration_prompts_per_domain: int = 100  # 1 to 10000
calibration_seed: int = 0  # 0 to 4294967295; seed of these prompts
# prompts that judge the drafts, evenly spaced among the recorded ones; 0: all
judged_prompts_per_domain: int = 0  # 0 to 100000
exit_layers: list = [2, 4]  # 1 to 1000; how many layers of the target make an early-exit draft
max_gamma: int = 16  # 1 to 64; chains of 1 to this many tokens are compared
pass_repeats: int = 21  # 3 to 1000; how often each pass is timed
# texts decoded with every draft (at least four in all), and their length
decoded_prompts_per_domain: int = 1  # 1 to 1000
decoded_tokens: int = 32  # 2 to 65536; at most
article_int4: float = 0.93  # 0 to 1; the article's acceptance of a 4-bit self-draft

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

from speclab import cost, replay
from speclab.shapes import parse_shape
from speclab.analysis import significance
from speclab.drafts import quantise
from speclab.estimates import Estimates, named, stack, without_interval
from speclab.models import pairs, timing
from speclab.prompts import decoded_prompts
from speclab.show import notebook
from speclab.stats import ABOVE, BELOW, verdict
from speclab.studies.better_drafts import candidates, comparison

RUNS = ["greedy", "sampled"]

# %% tags=["timed"]
ctx = notebook.start("08_better_drafts", profile, overrides, judged_prompts_per_domain)
settings = ctx.profile
pair = pairs.load_pair(settings)
machine = notebook.formats(pair.facts)
ctx.say(f"This notebook decodes, and judges drafts, in {machine}.")

# %%
tried = candidates.Tried(settings, pair, judged_prompts_per_domain)
domains = tried.domains

# %% [markdown]
# We use two estimators. **`hit[1]`** is the share of positions where the draft's best token is the
# target's best token, which is exactly the acceptance at T = 0. **`alpha`** is the acceptance of a
# sampled token at the profile's temperature (default 1).
#
# To test a draft we run it along the target's texts. `judged_prompts_per_domain` limits this to
# some prompts, evenly spaced within each domain, without those that had a say in the draft's
# training. There is one sampled text per prompt.

# %%
greedy = tried.trace(candidates.OWN, "greedy")
ctx.say(
    f"Drafts are judged on {len(tried.prompts)} of the {tried.recorded} recorded prompts, with "
    f"{len(greedy)} tokens at T = 0. The sampled texts are at "
    f"T = {settings.sampled_temperature:g}."
)

# %% [markdown]
# Brackets, and bars in figures, are 95 % intervals. They come from resampled prompts: we draw as
# many prompts again, with repetition, and 95 % of the results lie within the interval. `all` is the
# mean of the domains, `pooled` weighs every token equally.
#
# ## 1. Is the quantised target a good draft of itself?
# The article's first advice is to use the target itself in 4 bits as the draft (a **self-draft**),
# which is accepted "93 % typically". It does not name the estimator. GPTQ rounds the weights of the
# linear layers so that their outputs on some of the target's own texts change least. Embeddings and
# norms keep 16 bits.
#
# We measure acceptance on an unpacked float32 copy with exactly the quantised weights. (Packed
# kernels on a CPU compute in bfloat16 and round differently for every shape of pass.) What
# the 4-bit copy of `smollm` proposes is recorded and comes with the kit (`data/drafts`). For other
# bit widths and calibrations GPTQModel makes the copy here.

# %%
calibration = candidates.calibration_prompts(
    pair, settings, calibration_prompts_per_domain, calibration_seed, calibration_rows
)
for bits in bit_widths:
    quantised = candidates.self_draft(tried, calibration, bits)
    if quantised:
        tried.add(quantised)

# %%
levels = comparison.acceptance(tried, list(tried.candidates))
ctx.export(levels, "self-drafts")

# %%
article = f"{100 * article_int4:.0f} %"
own_hits = levels.at(estimator="hit[1]", draft=candidates.OWN, domain=domains)
title = f"The pair's own draft has a hit[1] of {own_hits.in_units('%').span()}"
if candidates.INT4 in tried.candidates:
    int4 = levels.at(draft=candidates.INT4, domain=domains)
    hits = int4.at(estimator="hit[1]").frame
    is_below = verdict(hits["low"], hits["high"], article_int4) == BELOW
    title = (
        f"The target's 4-bit copy stays below the article's {article} in {is_below.sum()} of "
        f"{len(hits)} domains (hit[1])"
    )

# %%
ctx.plot(
    levels,
    x="draft",
    only={"domain": domains},
    columns="estimator",
    kind="bars",
    y="tokens accepted (%)",
    percent=True,
    x_label="",
    reference=article_int4,
    reference_name=f"the article's {article}",
    limits=(0, 1),
    slug="self-drafts",
    title=title,
    caption="Each marker is the share of tokens accepted in one domain, at T = 0 (`hit[1]`) and on "
    "sampled text (`alpha`). The INT4 self-draft is the target's 4-bit copy. The black line is the "
    "article's number. Bars: 95 % intervals.",
)

# %%
reason = quantise.obstacle(pair) or "`bit_widths` has no 4"
said = f"**There is no 4-bit self-draft here**, because {reason}."
if candidates.INT4 in tried.candidates:
    words = [f"{place} {article} in" for place in ("above", "below")]
    words.append(f"not significantly different from {article} in")
    said = comparison.by_estimator(int4, "the 4-bit copy is", words, than=article_int4)
ctx.say(said)
assert levels.lies_within(0, 1)

# %% [markdown]
# ## 2. Does training on the target's own text help?
# This is the article's second advice, and DistillSpec's (arXiv:2310.08461): a draft need not know
# the language, it only has to know the target. The target continues prompts that judge no draft.
# The draft learns from these texts, with one of four objectives:
#
# * `sequence`: the target's tokens (cross-entropy);
# * `forward-kl` and `reverse-kl`: the target's whole distribution p, by the Kullback-Leibler
#   divergence of q from p, or of p from q;
# * `total-variation`: p again, by half the sum of |p - q| over all tokens. At T = 1 `alpha` is 1
#   minus this distance.
#
# This notebook trains nothing. It judges drafts that come with the kit, which scripts beside the
# data trained once.
#
# ### How acceptance rises during training

# %%
curve = comparison.learning_curve(pair, domains)
distilled = ""
if not curve:
    ctx.say(comparison.NO_CURVE)
else:
    ctx.export(curve, "learning-curve")
    before, after = comparison.ends_of(curve)
    distilled = (
        f"After distillation the draft names {after} of the best tokens instead of {before}. "
    )
    ctx.plot(
        curve,
        x="steps",
        columns="estimator",
        y="tokens accepted (%)",
        percent=True,
        x_label="training steps",
        limits=(0, None),
        slug="learning-curve",
        title=f"Distillation: the draft's mean hit[1] is {after} instead of {before}",
        caption="Acceptance of the pair's own draft by training steps, on the first "
        f"{settings.notes.decoded_from} prompts of each domain. `all` is the mean of the domains. "
        "The first point is the draft before distillation. The learning rate falls to zero at the "
        "end, which raises the last points.",
    )
    ctx.say(
        "The last point is the pair's own draft. Sections 3 and 4 give its `hit[1]` on the prompts "
        "that judge all drafts: as the mean of the domains (`all`) and with every token weighed "
        "equally. So the three numbers differ slightly."
    )

# %% [markdown]
# ### Further drafts

# %%
trained = candidates.trained_drafts(tried)
ctx.say(comparison.training_in_words(trained, ctx.profile.name))

# %%
if trained:
    gained = comparison.gained(tried, trained)
    ctx.export(gained.frame.rename(columns={"estimate": "difference"}), "distillation")
    means = gained.at(domain="all")
    hits = means.at(estimator="hit[1]").frame
    is_higher = verdict(hits["low"], hits["high"]) == ABOVE
    ctx.plot(
        gained.at(domain=domains),
        x="domain",
        hue="draft",
        columns="estimator",
        kind="points",
        y="change of tokens accepted (points)",
        percent=True,
        x_label="",
        reference=0,
        reference_name="no change",
        slug="after-training",
        title=f"Training raises hit[1] significantly for {is_higher.sum()} of {len(hits)} "
        "kinds of draft",
        caption="Change of acceptance by training, by domain, on the prompts that judge the "
        "drafts. Bars: 95 % intervals over prompts and, where there are several, seeds.",
    )
    outcomes = "higher with", "lower with", "not significantly different with"
    said = comparison.by_estimator(means, "acceptance is", outcomes, names="draft")
    ctx.say(f"Mean of the domains, after training compared with before:\n\n{said}")

# %%
words = "higher in", "lower in", "not significantly different in"
if candidates.SPECIALIST in trained:
    objective = comparison.objective_of(trained[candidates.SPECIALIST])
    versus = comparison.specialist_against(tried, trained)
    ctx.export(versus, "specialist")
    said = comparison.by_estimator(versus.at(domain=domains), "its acceptance is", words)
    ctx.say(
        "The specialist compared with drafts that spent as many steps on all training domains "
        f"(`{objective}`, paired by prompt, mean of the seeds):\n\n{said}"
    )

# %% [markdown]
# ### A trained head
# An ordinary draft reads the text only. A head as EAGLE-3's is one layer that also reads the
# target's hidden states, and drafts deeper tokens from its own. Its proposals depend on where a
# block begins, so we replay them from its recorded runs. Notebook 18 compares heads with drafts.

# %%
head = candidates.trained_head(tried)
if head:
    tried.add(head)
    levels = comparison.acceptance(tried, [candidates.OWN, candidates.HEAD]).in_units("%")
    notebook.show_table(levels.at(domain=[*domains, "all"]).wide(["estimator", "draft"], "domain"))
else:
    ctx.say(
        "**No trained head is compared here**, because this pair has no profile with a head, or "
        "the head's folder, its recorded runs or the library `speculators` is missing."
    )

# %% [markdown]
# ## 3. Do drafts work that need no training?
# **Prompt lookup** has no weights. It looks for the last tokens (eight at most) earlier in the
# prompt and the text, and copies what followed their most recent occurrence. Where nothing matches
# it drafts nothing. A copy proposes one certain token, so a copy in sampled
# text is accepted with the token's p.
#
# **Early exit** runs the target's own first layers and then the target's head, untrained. It needs
# no memory beyond the target's. (It is left out where the kit does not run the layers of the
# target's architecture itself.)

# %%
tried.add(candidates.prompt_lookup(tried))
is_lean = getattr(pair.target.body, "lean", False)
exits = [candidates.early_exit(pair, settings, n) for n in exit_layers if is_lean]
for early in exits:
    tried.add(early)

# %%
free = [candidates.OWN, candidates.LOOKUP, *(early.name for early in exits)]
levels = comparison.acceptance(tried, free).in_units("%")
shown = levels.at(domain=[*domains, "all"]).wide(["estimator", "draft"], "domain")
notebook.show_table(shown.assign(draft=shown["draft"].map(comparison.draft_label)))

# %%
lookup = tried.trace(candidates.LOOKUP, "greedy")
gap = significance.paired_by_domain(lookup, greedy, candidates.HIT)
gap = Estimates(gap).in_units("points").at(domain=domains)
ctx.say(
    f"At T = 0, compared with the pair's own draft, prompt lookup's `hit[1]` is "
    f"{gap.sentence(*words)}."
)

# %% [markdown]
# ## 4. Which draft is best?
# A draft's value is the number of tokens per target pass divided by the cost of a block. First the
# tokens per target pass of a chain of three, by hand. At each position of a greedy text, drafted
# tokens are accepted up to the first wrong one, and the target adds one token.

# %% tags=["by-hand"]
gamma = 3
blocks = 0
for _, text in greedy.groupby("prompt_id"):
    # draft ranks of the next gamma tokens, if a block begins at a position
    ahead = replay.ranks_ahead(text, gamma)
    position = 0
    while position < len(ahead):
        drafted = ahead[position] == 0  # is each drafted token right?
        accepted = [*drafted, False].index(False)  # tokens before the first wrong one
        position += accepted + 1  # the target adds one
        blocks += 1

# %% tags=["by-hand"]
tokens_per_pass = len(greedy) / blocks
ctx.say(
    f"With chains of {gamma} tokens the pair's own draft gives {tokens_per_pass:.2f} tokens per "
    "target pass."
)

# %%
_, sums = comparison.best_chain(greedy, cost.Costs.assumed(0.1), [gamma])
assert np.isclose(tokens_per_pass, sums["emitted"].sum() / sums["blocks"].sum())

# %% [markdown]
# Now the cost, measured on this machine in float32. **c** is the time of a draft pass, **v(n)** the
# time of a target pass over n tokens, and **o** the loop's own time per block. The unit is a target
# pass over one token. A block with gamma drafted tokens costs gamma c + v(gamma + 1) + o.
#
# A quantised draft does the target's arithmetic in its unpacked copy, so we take c = 1 for it
# without timing. **A 4-bit kernel could be faster.** Where a pass waits for its weights to be read
# (large models, few tokens per pass), bytes count instead. So at the end of this section we repeat
# the comparison with c = bytes of the draft / bytes of the target (at most two per weight), v = 1
# and o = 0. This is a **bound, not a measurement**.
#
# The speed-up is predicted from the replayed chains of the judged prompts at T = 0. Each draft has
# its own best gamma, chosen on the same prompts, which flatters it slightly. Intervals resample
# prompts and hold gamma and costs fixed. Prompt lookup copies up to gamma tokens where at least one
# matches, with c = 0. A trained head reads accepted tokens again with the target's states, which c
# leaves out. (Notebook 10 tests such predictions by real decoding.)

# %% tags=["timed"]
few = decoded_prompts(tried.prompts, decoded_prompts_per_domain, least=4)
new_tokens = min(decoded_tokens, settings.max_new_tokens)
median = int(np.median([len(prompt.ids) for prompt in tried.prompts]))
context = median + settings.max_new_tokens // 2
sizes = tuple(range(1, max(max_gamma, 4) + 2))
four = {"chain:4": parse_shape("chain:4")}
clock = timing.measured(pair, few, four, new_tokens, sizes, context, pass_repeats)
costs = clock.costs
drafts = comparison.first_seeds(tried)
pass_cost = comparison.pass_costs(drafts, context, 3 * pass_repeats)

# %%
refused = cost.disturbed(costs)
ctx.say(
    f"A target pass over one token takes {costs.target_ms:.0f} ms on this machine. Over five "
    f"tokens it takes {costs.v(5):.2f} times as long. The loop takes o = {costs.overhead:.1g} "
    "target passes per block. (Notebooks 09 and 10 measure o on other prompts and shapes, so "
    f"their o differs.) {refused}"
)
if len(drafts) < len(tried.candidates):
    ctx.say("Of drafts with several seeds we show the first.")

# %%
gammas = range(1, max_gamma + 1)
found = comparison.compared(tried, drafts, pass_cost, costs, gammas)
table = found.table
ctx.export(table, "drafts-tried")

# %%
names = {"weight_bytes": "megabytes", "block_efficiency": "tokens per target pass"}
names |= {"speedup": "predicted speed-up"}
shown = ["weight_bytes", "c", "hit[1]", "alpha", "gamma", "block_efficiency", "speedup"]
rows = table[shown].assign(weight_bytes=table["weight_bytes"] / 1e6).rename(columns=names)
rows.insert(0, "draft", table["draft"].map(comparison.draft_label))
notebook.show_table(rows, digits=2)

# %%
own = table.set_index("draft").loc[candidates.OWN]
if own["gamma"] == gamma:
    assert np.isclose(own["block_efficiency"], tokens_per_pass)

# %%
fastest_first = table.sort_values("speedup", ascending=False)
hits, speedups = (
    Estimates.of(fastest_first, name, ["draft"]).frame for name in ("hit[1]", "speedup")
)
is_timed = fastest_first["c"].between(0, 1, inclusive="neither").to_numpy()
c = without_interval(hits, fastest_first["c"])
panels = {
    "cost of a draft pass (c)": c.assign(made=np.where(is_timed, "measured", "assumed")),
    "best tokens accepted (hit[1])": hits.assign(made="measured"),
    "speed-up": speedups.assign(made="predicted"),
}

# %%
bars = stack(panels, "number")
bars = bars.assign(draft=bars["draft"].map(comparison.draft_label))
ctx.plot(
    Estimates(bars[["number", "draft", "made", "estimate", "low", "high"]]),
    x="draft",
    hue="made",
    columns="number",
    kind="bars",
    y="",
    x_label="",
    share_y=False,
    limits=(0, None),
    reference={"speed-up": 1},
    reference_name="plain decoding",
    apart=False,
    height=0.6 + 0.27 * len(table),
    slug="drafts",
    title=found.title(not refused),
    stamp=cost.stamp(costs),
    caption="All drafts, with the highest predicted speed-up on top. Left: cost of a draft pass in "
    "target passes (c). Middle: share of best tokens accepted at T = 0 (`hit[1]`, pooled). Right: "
    "predicted speed-up over plain decoding. Bars: 95 % intervals.",
)

# %% [markdown]
# ### Is decoding lossless?

# %%
shapes = ("chain:4", "tree:3,2,8")
decoded = comparison.lossless(tried, drafts, few, shapes, new_tokens)
equal = decoded["is_equal"]
names_of = [comparison.draft_in_words(name) for name in decoded["draft"].unique()]
ctx.say(
    f"We decoded with {named(names_of)}, each as a chain and as a tree. Prompt lookup and recorded "
    "drafts are left out. "
    f"**{equal.sum()} of {len(equal)}** greedy texts equal the target's own token for token."
)
assert not pair.is_exact or equal.all(), "same text, whatever drafts"

# %% [markdown]
# ### The choice

# %%
if not refused:
    ctx.say(f"By prediction the fastest draft is {found.fastest_in_words()}.")
ctx.say(
    "If time depended only on the bytes read (a bound, not a measurement), the fastest draft would "
    f"be {found.fastest_in_words('speedup_by_bytes')}."
)

# %%
ctx.answer(distilled + found.answer(not refused))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. Without a computer: a self-draft is accepted at 95 % of positions, with c = 1 and v = 1. What
#    is the speed-up at gamma 1, and at gamma 4? How small must c be for gamma 4 to reach 2?
#
# <details><summary>What happens</summary>At gamma 1 a block emits 1.95 tokens and costs 2 target
# passes: 0.98. At gamma 4, with independent acceptances, it emits (1 - 0.95^5) / 0.05 = 4.52 tokens
# for 5 passes: 0.90. A draft as expensive as the target can never gain, however often it is right.
# For a speed-up of 2 a block may cost 4.52 / 2 = 2.26 passes. The target takes 1, so four draft
# passes may take 1.26: c = 0.32.</details>
#
# 2. Let prompt lookup copy one token only, in a new cell: `comparison.best_copies(tried, costs,
#    [1])`, then compare the tokens per block of its sums with those of `[max_gamma]`. Which copies
#    fewer tokens in vain, and which is faster?
#
# <details><summary>What happens</summary>
# A copy of one token is rarely in vain. But a right copy often continues to be right, and only the
# long copy gains from that. Copied tokens cost no draft pass, only a longer target pass, so the
# best length depends on v.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: agreement with the target and speed are different goals. The draft that agrees most
#   is rarely worth its cost, and the cost depends on the machine.
# * What this does not show: the time of a 4-bit kernel (the bound replaces it), a quantised target,
#   large models, adapters, drafts trained on their own samples (on-policy), trained exits, or more
#   than one head on the target's states (notebook 18). Texts of large models repeat themselves
#   less, so lookup gains less there. The best gamma of each draft was chosen on the prompts that
#   judge it.
# * Next: [09](09_budgets_and_routing.ipynb) chooses how much to draft for which prompts.

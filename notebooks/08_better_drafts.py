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
# A better draft can mean two things that pull apart: one that agrees with the target more often,
# and one that makes decoding faster. A quantised copy of the target is nearly the target, and
# as expensive; distillation changes a small draft, and its passes cost the same as before; copying
# from the text so far costs next to nothing. Section 4 puts every draft tried into one table.
#
# ![Acceptance and cost of a pass, every draft tried](../figures/smollm/08/drafts.png)
#
# *Runs on* any machine (GPTQ needs the extra `gptq`; without it those rows say so) · *minutes*
# about two on 2 cores the first time, one when its records are there · *reads* the runs `greedy`
# and `sampled` of the profile, the trained and recorded drafts in `data/drafts`, and the card of
# the pair; loads the pair, records the other drafts in `data/runs/drafts` · *writes*
# `figures/<profile>/08/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# of the target quantised as its own draft
bit_widths: list = [8, 4, 3]  # one of 2, 3, 4, 8
calibration_rows: int = 32  # 1 to 10000; texts of the target, for GPTQ
# composed prompts from which the calibration rows are taken
calibration_prompts_per_domain: int = 100  # 1 to 10000
calibration_seed: int = 0  # 0 to 4294967295; of these prompts
# of the recorded ones, evenly spread; 0: all. Each further draft must run their texts
judged_prompts_per_domain: int = 0  # 0 to 100000
exit_layers: list = [2, 4]  # 1 to 1000; of the target, as a draft
max_gamma: int = 16  # 1 to 64; chains of 1 to this many tokens are compared
pass_repeats: int = 21  # 3 to 1000; of each single pass that is timed
# decoded for real with every draft, and at least four in all,
decoded_prompts_per_domain: int = 1  # 1 to 1000
decoded_tokens: int = 32  # 2 to 65536; at most this many tokens each
article_int4: float = 0.93  # 0 to 1; the article's acceptance of an INT4 self-draft

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

from speclab import cost
from speclab.shapes import parse_shape
from speclab.analysis import significance
from speclab.drafts import quantise
from speclab.estimates import Estimates, stack, without_interval
from speclab.models import pairs, timing
from speclab.prompts import decoded_prompts
from speclab.show import notebook
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
# `T` is the temperature: at T = 0 the target always takes its most probable token, above 0 it draws
# the token from its distribution. `p` is the target's distribution of the next token, `q` the
# draft's. Two estimators throughout: **hit[1]**, the acceptance of the draft's best token at T = 0,
# and **alpha**, the acceptance of a sampled token at the profile's temperature (default 1).
#
# Every further draft has to run the texts it is judged on, so a part of the prompts may have to do:
# of each domain some that are evenly spread. (Prompts that had a say in the draft's training are
# left out: the profile's notes name them.) The sampled texts are one per prompt.

# %%
greedy = tried.trace(candidates.OWN, "greedy")
ctx.say(
    f"Drafts are judged on texts of {len(tried.prompts)} of the {tried.recorded} recorded prompts, "
    f"{len(greedy)} tokens at T = 0. The sampled texts are at "
    f"T = {settings.sampled_temperature:g}."
)

# %% [markdown]
# In brackets and as bars in figures: 95 % intervals. The prompts are *resampled*: drawn again and
# again from those that we have, as many each time, some twice and some not at all; 95 % of the
# results lie within the interval. (`all` is the mean of the domains, `pooled` counts every token
# once.)
#
# ## 1. The target, quantised, as its own draft
# The article's first advice: take the target itself in 4 bits as the draft; it accepts "93 %
# typically" (by which estimator, it does not say). GPTQ rounds the weights of the linear layers so
# that the outputs on some rows of the target's own text change least; embeddings and norms stay in
# 16 bits. Acceptance is measured on an unpacked float32 copy that has exactly the quantised
# weights: on a CPU the packed kernels compute in bfloat16 and round otherwise for every shape of
# pass. What the 4-bit copy of `smollm` proposes is recorded and comes with the kit (`data/drafts`),
# so that no copy is made; other bit widths and calibrations are made here by GPTQModel.

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
ctx.plot(
    levels,
    x="draft",
    only={"domain": domains},
    columns="estimator",
    kind="bars",
    y="share of tokens accepted",
    reference=article_int4,
    slug="self-drafts",
    caption="Acceptance of the quantised target as its own draft, beside the small draft of the "
    f"pair, by domain; the line is the article's {article_int4:.0%}.",
)

# %%
obstacle = quantise.obstacle(pair) or "it was not asked for"
said = f"**No INT4 self-draft here**: {obstacle}."
if candidates.INT4 in tried.candidates:
    words = "above it in", "below it in", "not significantly different in"
    int4 = levels.at(draft=candidates.INT4, domain=domains)
    verdict = int4.sentence(*words, than=article_int4, within="estimator")
    said = f"INT4 compared with the article's {article_int4:.0%}. {verdict}."
ctx.say(said)
assert levels.lies_within(0, 1)

# %% [markdown]
# ## 2. Distillation: drafts that were trained on what the target writes
# The article's second advice, and DistillSpec's (arXiv:2310.08461): a draft need not know the
# language, it must know the target. The target continues prompts that no draft is judged on. The
# draft learns its tokens (`sequence`: cross-entropy, minus the logarithm of the probability that
# the draft gives to the target's token) or its whole distribution at each of them. Three distances
# between p and q are tried: the Kullback-Leibler divergence of q from p (`forward-kl`), that of p
# from q (`reverse-kl`), and their **total variation**, half the sum of |p - q| over all tokens.
# At T = 1 alpha is 1 minus the total variation.
#
# This notebook trains nothing. It judges drafts that come with the kit: scripts beside the data
# trained them once.
#
# ### How acceptance rises during training
# Where the card of the pair has the log of its own draft's distillation, we plot it. The log was
# measured on some of the kit's own prompts. The learning rate falls to zero at the end, so
# the last points gain from that too.

# %%
curve = comparison.learning_curve(pair, domains)
if curve:
    ctx.export(curve, "learning-curve")
    ctx.plot(
        curve,
        x="steps",
        columns="estimator",
        y="share of tokens accepted",
        slug="learning-curve",
        caption="Acceptance of the pair's own draft during its distillation, by steps done, on the "
        "kit's own prompts. `all` is the mean of their domains. The first point is the draft "
        "before distillation.",
    )

# %%
ctx.say(comparison.curve_in_words(curve))

# %% [markdown]
# ### Further drafts
# They all start from the pair's own draft. The first objective has several seeds, the others have
# one. (A seed is an order of the training texts.) The **specialist** learned the first objective on
# two of the four training domains only, with several seeds. The training is described in
# `data/drafts/README.md`.

# %%
trained = candidates.trained_drafts(tried)
ctx.say(comparison.training_in_words(trained, ctx.profile.name))

# %% [markdown]
# What did training change on the prompts that drafts are judged on? Intervals resample prompts and,
# where there are several, seeds.

# %%
if trained:
    gained = comparison.gained(tried, trained)
    ctx.export(gained.frame.rename(columns={"estimate": "difference"}), "distillation")

# %%
outcomes = "higher with", "lower with", "no significant difference with"
if trained:
    verdict = gained.at(domain="all").sentence(*outcomes, "draft", within="estimator")
    ctx.say(f"Mean of the domains after training compared with before. {verdict}.")
    ctx.plot(
        gained.at(domain=domains),
        x="domain",
        hue="draft",
        columns="estimator",
        kind="points",
        y="after training - before",
        reference=0,
        slug="after-training",
        caption="What training changed in acceptance on the prompts that drafts are judged on.",
    )

# %% [markdown]
# The specialist must be compared with the drafts that spent as many steps on **all** training
# domains, with the same objective. The comparison is paired by prompt, seeds are averaged.

# %%
words = "more in", "less in", "no significant difference in"
if candidates.SPECIALIST in trained:
    objective = comparison.objective_of(trained[candidates.SPECIALIST])
    versus = comparison.specialist_against(tried, trained)
    ctx.export(versus, "specialist")
    verdict = versus.at(domain=domains).sentence(*words, within="estimator")
    ctx.say(
        f"Acceptance of the specialist compared with {objective} on all training domains. "
        f"{verdict}."
    )

# %% [markdown]
# ## 3. Drafts that need no training: copying, and leaving early
# **Prompt lookup** has no weights. It looks for the longest run of at most eight last tokens that
# occurred before in the prompt or the text, and copies what followed the most recent one. Where
# nothing matches it drafts nothing. A copy is one certain token, so in sampled text it is accepted
# with its p. **Early exit** runs the target's own first layers and reads the next token off with
# the target's head, untrained: no memory beyond the target's. (It is left out where the kit does
# not run the layers of the target's architecture itself.)

# %%
tried.add(candidates.prompt_lookup(tried))
is_lean = getattr(pair.target.body, "lean", False)
exits = [candidates.early_exit(pair, settings, n) for n in exit_layers if is_lean]
for early in exits:
    tried.add(early)

# %%
free = [candidates.OWN, candidates.LOOKUP, *(early.name for early in exits)]
levels = comparison.acceptance(tried, free)
notebook.show_table(levels.at(domain=[*domains, "all"]).wide(["estimator", "draft"], "domain"))

# %%
lookup = tried.trace(candidates.LOOKUP, "greedy")
gap = significance.paired_by_domain(lookup, greedy, candidates.HIT)
gap = Estimates(gap, 3).at(domain=domains)
ctx.say(
    f"What prompt lookup accepts at T = 0, compared with our draft: {gap.sentence(*words)}. "
    f"Differences: {gap}."
)

# %% [markdown]
# ## 4. Which draft?
# What a draft is worth is tokens per target pass over the cost of a block. The tokens of a chain
# of three, by hand: from each place of a greedy text the draft's tokens are accepted as long as
# they are the text's, and the target adds one.

# %%
gamma, blocks = 3, 0
for _, hits in greedy.groupby("prompt_id")["hit"]:
    is_right, place = hits.to_list(), 0
    while place < len(is_right):
        drafted = [*is_right[place : place + gamma], False]
        place += drafted.index(False) + 1
        blocks += 1

# %%
by_hand = len(greedy) / blocks
_, sums = comparison.best_chain(greedy, cost.Costs.assumed(0.1), [gamma])
assert np.isclose(by_hand, sums["emitted"].sum() / sums["blocks"].sum())

# %% [markdown]
# The cost, measured: **c** is the time of a draft pass in target passes on this machine, both in
# float32; **v(n)** is that of a target pass over n tokens, and **o** what the loop around them
# takes for each block. A block with gamma drafted tokens costs gamma c + v(gamma + 1) + o. For a
# quantised draft, c is that of the unpacked copy, **not that of a 4-bit kernel**: it does the
# target's arithmetic, so c is 1, which is not timed. Where a pass waits for its weights to be read
# (large models, few tokens a pass), bytes are what counts: the columns `by_bytes` take c = stored
# bytes of the draft over those of the target (two a weight at most), v = 1, o = 0. They are a
# **bound, not a measurement**.
#
# The speed-up is predicted from the replayed chains of the judged prompts at T = 0, at each draft's
# own best gamma (chosen on the same prompts: slightly flattering). Intervals resample prompts;
# gamma and costs are held fixed in them. Of drafts with several seeds, the first. Prompt lookup
# copies up to gamma tokens where at least one matches, without a draft pass (c = 0). (How far such
# predictions can be trusted, notebook 10 asks by decoding for real.)

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
    f"On this machine a target pass takes {costs.target_ms:.2f} ms in {machine}, v(5) = "
    f"{costs.v(5):.2f}, o = {costs.overhead:.2f}. {refused}"
)

# %%
gammas = range(1, max_gamma + 1)
found = comparison.compared(tried, drafts, pass_cost, costs, gammas)
table = found.table
ctx.export(table, "drafts-tried")
shown = ["draft", "weight_bytes", "c", "hit[1]", "alpha", "gamma", "block_efficiency"]
notebook.show_table(table[[*shown, "speedup"]])

# %%
own = table.set_index("draft").loc[candidates.OWN]
if own["gamma"] == gamma:
    assert np.isclose(own["block_efficiency"], by_hand)

# %%
cheapest_first = table.sort_values("c")
hits, speedups = (
    Estimates.of(cheapest_first, name, ["draft"]).frame for name in ("hit[1]", "speedup")
)
panels = {
    "c: a draft pass, in target passes": without_interval(hits, cheapest_first["c"]),
    "hit[1], domains pooled": hits,
    "speed-up, predicted": speedups,
}

# %%
ctx.plot(
    Estimates(stack(panels, "number").assign(bars="bars: 95 % intervals")),
    x="draft",
    hue="bars",
    columns="number",
    kind="bars",
    y="",
    x_label="",
    share_y=False,
    limits=(0, None),
    height=0.6 + 0.27 * len(table),
    slug="drafts",
    caption="Every draft tried, the cheapest pass on top: its price, its acceptance, and what both "
    f"make of decoding on this machine, in {machine} (1: plain decoding).",
)

# %% [markdown]
# ### Is every draft lossless?

# %%
shapes = ("chain:4", "tree:3,2,8")
decoded = comparison.lossless(tried, drafts, few, shapes, new_tokens)
equal = decoded["is_equal"]
ctx.say(
    f"Drafts: {decoded['draft'].nunique()}, each with a chain and a tree. **{equal.sum()} of "
    f"{len(equal)}** greedy texts equal the target's own token for token."
)
assert not pair.is_exact or equal.all(), "same text, whatever drafts"

# %% [markdown]
# ### The choice

# %%
most = found.said("hit[1]", "of its best tokens are the target's")
times = "times plain decoding"
speed = refused or (
    f"The draft that is predicted to be the fastest on this machine, in {machine}, is "
    f"{found.said('speedup', times)}."
)
ctx.say(f"The draft that agrees most with the target is {most}.")
ctx.say(speed)
ctx.say(
    "If time depended only on bytes read (a bound), the fastest draft would be "
    f"{found.said('speedup_by_bytes', times)}."
)

# %%
ctx.answer(
    f"On `{ctx.profile.name}` ({len(tried.prompts)} prompts, T = 0) the draft that agrees most "
    f"with the target is {most}. {speed}"
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. Without a computer: a self-draft accepts 0.95 a token at c = 1 and v = 1. What is the speed-up
#    at gamma 1, and at gamma 4? How small must c be for gamma 4 to reach 2?
#
# <details><summary>What happens</summary>At gamma 1 a block emits 1.95 tokens and costs 2 target
# passes: 0.98. At gamma 4, with independent acceptances, (1 - 0.95^5) / 0.05 = 4.52 tokens for 5
# passes: 0.90. A draft as costly as the target can never gain, however often it is right. For a
# speed-up of 2: 4.52 / 2 = 2.26 passes a block, less 1 for the target, over 4 draft passes: c =
# 0.32.</details>
#
# 2. Let prompt lookup copy one token only, in a new cell: `comparison.best_copies(tried, costs,
#    [1])`, then compare the tokens per block of its sums with those of `[max_gamma]`. Which copies
#    less in vain, and which is faster?
#
# <details><summary>What happens</summary>
# One token is copied less in vain, but a copy that is right often goes on being right, and only the
# long one uses that. Copied tokens cost no draft pass. What they cost is a longer target pass, so
# the best length depends on v.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: agreement with the target and speed are different goals: the draft that agrees most
#   is rarely the one that is worth its cost, and the cost depends on the machine.
# * What this does not show: a 4-bit kernel's time (the bound stands in for it), a quantised target,
#   large models (whose text repeats itself less, so that lookup gains less, and whose quantised
#   copies are closer to them), adapters, drafts trained from their own samples (on-policy), trained
#   exits, or heads on the target's states as in Medusa and EAGLE. Three seeds show a spread, they
#   do not measure it well; one seed shows none. The gamma of each draft was chosen on the prompts
#   it is judged on, and total variation was made the objective with all seeds after a first look at
#   tiny's prompts (the other reason: 1 - total variation is `alpha`).
# * Next: notebook 09 spends a budget over domains and texts.

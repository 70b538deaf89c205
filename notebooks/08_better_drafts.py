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
# **Answer.** A better draft can mean two things that pull apart: one that agrees with the target
# more often, and one that makes decoding faster. A quantised copy of the target is nearly the
# target, and nearly as dear; distillation changes a small draft at no cost a pass; copying from the
# text so far costs next to nothing. Section 5 puts every draft tried into one table and one
# picture; the sentence at its end says which agrees most and which is fastest here, as far as these
# prompts can tell.
#
# ![Acceptance against the price of a pass, every draft tried](../figures/smollm/08/pareto.png)
#
# *Runs on* any machine (GPTQ needs the extra `gptq`; without it those rows say so) · *minutes*
# about five on 2 cores the first time, two when its drafts and records are there · *reads* the
# runs `greedy` and `sampled` of the profile and the trained drafts in `data/drafts`, loads the
# pair, makes the others in `data/runs/drafts` · *writes* `figures/<profile>/08/`.

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
from speclab.models import pairs
from speclab.show import notebook
from speclab.studies.better_drafts import accepted, candidates, speed

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# of the target quantised as its own draft
bit_widths: list = [8, 4, 3]  # one of 2, 3, 4, 8
calibration_rows: int = 32  # 1 to 10000; of the target's text, for GPTQ
# of the recorded ones, the first; 0: all. Each further draft must run their texts
judged_prompts_per_domain: int = 0  # 0 to 100000
# a GPTQ copy in a folder beside the target's, for section 2; where there is none, it says so
quantised_target: str = "target-gptq"  # any
# that the target continues, for training and calibration
train_prompts_per_domain: int = 100  # 1 to 10000
train_prompts_seed: int = 0  # 0 to 4294967295; others with another seed
retrain: bool = False  # any; train also the drafts that come with the kit
# of distillation; the first with all seeds
objectives: list = [
    "total-variation",
    "forward-kl",
    "reverse-kl",
    "sequence",
]  # one of total-variation, forward-kl, reverse-kl, sequence
# of the first objective and the specialist; the others take the first
seeds: list = [0, 1, 2]  # 0 to 4294967295
steps: int = 150  # 1 to 100000; of training, a draft
batch: int = 16  # 1 to 1024; texts a step
learning_rate: float = 1e-3  # 0.000001 to 1; at its peak
exit_layers: list = [2, 4]  # 1 to 1000; of the target, as a draft
max_gamma: int = 16  # 1 to 64; chains of 1 to so many tokens are compared
pass_repeats: int = 21  # 3 to 1000; of each single pass that is timed
timed_prompts_per_domain: int = 2  # 1 to 1000; decoded for real,
timed_tokens: int = 32  # 2 to 65536; at most so many tokens each,
timed_repeats: int = 1  # 1 to 100; so many times where it is timed
article_int4: float = 0.93  # 0 to 1; the article's acceptance of an INT4 self-draft,
article_small: float = 0.85  # 0 to 1; and what a small draft should reach

# %%
ctx = notebook.start("08_better_drafts", profile, overrides, judged_prompts_per_domain)
settings = ctx.profile.replace(temperature=0.0)
pair = pairs.load_pair(settings)

# %%
tried = candidates.Tried(settings, pair, judged_prompts_per_domain)
text = candidates.training_text(
    pair, settings, train_prompts_per_domain, train_prompts_seed
)
domains = tried.domains

# %%
greedy, sampled = (
    tried.trace(candidates.OWN, "greedy"),
    tried.trace(candidates.OWN, "sampled"),
)
ctx.say(
    f"Drafts are judged on the target's texts for {greedy['prompt_id'].nunique()} of the "
    f"{tried.recorded} recorded prompts: "
    f"{len(greedy)} tokens at T = 0, {len(sampled)} at T = 1. They are made from its texts for "
    f"{len(text.prompts)} other prompts."
)

# %% [markdown]
# `T` is the temperature: at T = 0 the target always takes its most probable token, at T = 1 it
# draws the token from its distribution. `p` is the target's distribution of the next token, `q` the
# draft's.
#
# ## 1. The target, quantised, as its own draft
# The article's first advice: take the target itself in 4 bits as the draft; it accepts "93 %
# typically". GPTQ rounds the weights of the linear layers so that the outputs on some rows of the
# target's own text change least; embeddings and norms stay in 16 bits.
#
# Two estimators throughout: **hit[1]**, the acceptance of the draft's best token at temperature 0,
# and **alpha**, that of a sampled token at temperature 1. The article does not say which one it
# means. Both are measured on an unpacked float32 copy that has exactly the quantised weights: on a
# CPU the packed kernels compute in bfloat16 and round otherwise for every shape of pass. Beside
# them the pair's **own draft**, the small model that came with it.

# %%
obstacle = candidates.no_copy(pair)
for bits in [] if obstacle else bit_widths:
    tried.add(candidates.quantised_draft(tried, text, bits, calibration_rows))

# %%
levels = accepted.acceptance(tried, list(tried.candidates))
ctx.table(levels.wide(["estimator", "draft"], "domain"), "self-drafts")

# %% [markdown]
# In brackets and as bars in figures: 95 % intervals. The prompts are *resampled*: drawn again and
# again from those that we have, as many each time, some twice and some not at all; 95 % of the
# results lie within the interval. (`all` is the mean of the domains, `pooled` counts every token
# once.)

# %%
ctx.plot(
    levels.at(domain=domains),
    x="draft",
    columns="estimator",
    kind="bars",
    y="share of tokens accepted",
    reference=article_int4,
    slug="self-drafts",
    caption="Acceptance of the quantised target as its own draft, beside the small draft of the "
    f"pair, by domain; the line is the article's {article_int4:.0%}.",
)

# %%
ctx.say(
    f"All domains pooled: {levels.at(domain='pooled').listed('draft', within='estimator')}."
)
rounded = accepted.rounded_before(pair.target.folder)
ctx.say(f"{accepted.int4_sentence(levels, article_int4, obstacle)} {rounded}")
assert levels.lies_within(0, 1)

# %% [markdown]
# ## 2. And if the target is the quantised one?
# The paper's pair is the other way round: a 4-bit target with a small draft in 16 bits. Rounding
# moves the target's distribution, and the draft stays where it was. With the pair's own draft: on
# the **same text** (written by the full-precision target), how do alpha and the share of positions
# where both models have the **same best token** change; and on the text that **each** target
# **writes itself**, how do hit[1] and alpha change? (The prompts are the same, the texts are not:
# paired by prompt, with less power.)

# %%
shift = accepted.quantised_target(tried, quantised_target)
if shift:
    ctx.export(shift.frame.rename(columns={"estimate": "change"}), "quantised-target")
    notebook.show_table(shift.wide(["estimator", "text"], "domain"))

# %%
ctx.say(accepted.shift_sentence(shift))

# %% [markdown]
# ## 3. Distillation: train the draft on what the target writes
# The article's second advice, and DistillSpec's (arXiv:2310.08461): a draft need not know the
# language, it must know the target. The target continues prompts that are not judged on; the draft
# learns its tokens (`sequence`: cross-entropy, minus the logarithm of the probability that the
# draft gives to the target's token) or its whole distribution at each of them. Three distances
# between p and q are tried: the Kullback-Leibler divergence of q from p (`forward-kl`), that of p
# from q (`reverse-kl`), and their **total variation**, half the sum of |p - q| over all tokens: 1
# minus the last is alpha itself.
#
# A draft that can say some tokens only (a trimmed vocabulary) has q = 0 at the others: `sequence`
# leaves these out, both divergences compare p and q given a token that it can say, and total
# variation counts all.
#
# All start from the pair's own draft. The first objective is trained with every seed, and so is the
# **specialist** of section 3.1, on mathematics and reasoning only; the other objectives with one
# seed. (A seed is an order of the training texts.) Intervals resample prompts and, where there are
# several, seeds. Drafts trained with the settings above on `tiny` come with the kit
# (`data/drafts/README.md` says how); `retrain=True` trains them here.

# %%
config = candidates.train_config(steps, batch, learning_rate)
asked = candidates.trainings(text, objectives, seeds, config)
trained = candidates.train(tried, asked, retrain)
ctx.say(accepted.trained_on(trained))

# %% [markdown]
# First on prompts of the kind that the drafts were trained on, but held out. (The specialist's are
# of its own two domains.) A pair's own draft may have been made just so, on more text than here, as
# that of `smollm`: it knows prompts of this kind already, and little is left to gain.

# %%
curves = accepted.learning_curves(trained)
notebook.show_table(accepted.training_table(trained, curves))

# %%
ctx.plot(
    curves,
    x="step",
    hue="draft",
    columns="estimator",
    y="on held-out training prompts",
    x_label="training steps",
    share_y=False,
    slug="learning-curves",
    caption="Acceptance on held-out training prompts while drafts are trained; bands: from the "
    "least to the greatest seed.",
)

# %% [markdown]
# Then on the prompts that drafts are judged on. This is what counts: does it carry over?

# %%
gained = accepted.gained(tried, trained)
ctx.export(gained.frame.rename(columns={"estimate": "difference"}), "distillation")
notebook.show_table(
    gained.at(domain=[*domains, "all"]).wide(["estimator", "draft"], "domain")
)

# %%
ctx.plot(
    gained.at(domain=domains),
    x="domain",
    hue="draft",
    columns="estimator",
    kind="points",
    y="after training - before",
    reference=0,
    slug="distillation",
    caption="What training changed in acceptance on the prompts that drafts are judged on. "
    + accepted.split_sentence(gained),
)

# %%
outcomes = (
    "higher than before with",
    "lower with",
    "cannot be told apart from before with",
)
verdict = gained.at(domain="all").sentence(*outcomes, names="draft", within="estimator")
ctx.say(f"Mean of the domains: {verdict}. {accepted.split_sentence(gained)}")
assert (gained.frame["seed_low"] <= gained.frame["seed_high"]).all()

# %% [markdown]
# ### 3.1 The specialist
# At home in mathematics and reasoning. It must be compared with the own draft (above), and with the
# draft that spent as many steps on **all** domains: paired by prompt, seeds averaged.

# %%
versus = accepted.specialist_against(tried, trained, objectives[0])
ctx.table(versus, "specialist")

# %%
words = "more in", "less in", "neither more nor less that could be told in"
own = gained.at(draft=candidates.SPECIALIST, domain=domains).sentence(
    *words, within="estimator"
)
others = versus.at(domain=domains).sentence(*words, within="estimator")
ctx.say(f"Against the own draft the specialist accepts: {own}.")
ctx.say(f"Against {objectives[0]} on all domains: {others}.")

# %% [markdown]
# ## 4. Drafts that need no training: copying, and leaving early
# **Prompt lookup** has no weights. If the last three tokens (else two, else one) stood in the text
# before, it drafts what followed them the most recent time. Where nothing matches its confidence is
# nil, so that a stop rule drafts nothing. **Early exit** runs the target's own first layers and
# reads the next token off with the target's head, untrained: no memory beyond the target's. (Left
# out where the target is quantised, or of an architecture whose layers the kit does not run
# itself.)

# %%
tried.add(candidates.prompt_lookup(pair, settings))
exits = candidates.early_exits(pair, settings, exit_layers)
for early in exits:
    tried.add(early)

# %%
free = [candidates.OWN, candidates.LOOKUP, *(early.name for early in exits)]
levels = accepted.acceptance(tried, free)
ctx.table(levels.wide(["estimator", "draft"], "domain"), "free-drafts")

# %%
copies = accepted.copying(tried)
ctx.table(copies.wide("estimator", "domain"), "lookup")

# %%
gap = accepted.lookup_against_own(tried).at(domain=domains)
right = copies.at(domain="pooled", estimator=accepted.RIGHT)
either = copies.at(domain="pooled", estimator=accepted.EITHER)
ctx.say(
    f"Against the own draft, prompt lookup accepts at T = 0 {gap.sentence(*words)}: {gap}."
)
ctx.say(f"It was right in {right} of the positions where something matched.")
ctx.say(f"It or the own draft was right in {either} of all positions.")
alone = levels.at(estimator="hit[1]", domain="pooled", draft=free[:2])
assert either.value >= alone.frame["estimate"].max()

# %% [markdown]
# ## 5. Which draft?
# The article's criteria, measured. **c** is the time of a draft pass in target passes on this
# machine, both in float32; **v(n)** is that of a target pass over n tokens, and **o** what the loop
# around them takes for each block, in the same unit. A block with gamma drafted tokens costs
# gamma c + v(gamma + 1) + o. For a quantised draft, c is the time of the unpacked copy, **not that
# of a 4-bit kernel**: it does the target's arithmetic, so c is near 1. Where a pass waits for its
# weights to be read (large models, few tokens a pass), bytes are what counts: the columns
# `by_bytes` take c = stored bytes of the draft over those of the target (a model in float32 counts
# as if in 16 bits), v = 1, o = 0. They are a **bound, not a measurement**.
#
# The speed-up is predicted from the replayed chains of all prompts at T = 0, at each draft's own
# best gamma (chosen on the same prompts: slightly flattering). Intervals resample prompts; gamma
# and costs are held fixed in them, so they leave out what choosing gamma adds. Of drafts with
# several seeds, the first.

# %%
timed = speed.timed_prompts(
    tried, timed_prompts_per_domain, timed_tokens, timed_repeats
)
costs = speed.measured_costs(tried, timed, max_gamma, pass_repeats)
drafts = speed.first_seeds(tried)
price = speed.pass_costs(drafts, timed.context, 3 * pass_repeats)

# %%
table = speed.compared(tried, drafts, price, costs, range(1, max_gamma + 1))
ctx.export(table[speed.DRAFTS_TABLE], "drafts")
ctx.export(table[speed.SPEED_TABLE], "speed")
notebook.show_table(
    table[["draft", "weight_bytes", "c", "hit[1]", "alpha", "gamma", "speedup"]]
)

# %% [markdown]
# Prompt lookup need not draft everywhere: with a stop rule it drafts only where something matches.

# %%
chains = tried.lookup_chains(min(6, max_gamma))
paid = speed.with_c(costs, price[candidates.LOOKUP])
stopped = speed.stopped_chain(chains, paid, settings.max_new_tokens)
ctx.say(
    f"This machine, this minute: a target pass takes {costs.target_ms:.2f} ms, "
    f"v(5) = {costs.v(5):.2f}, o = {costs.overhead:.2f}. Prompt lookup that drafts only where "
    f"something matches, at most {stopped['gamma']} tokens, is predicted to reach "
    f"{stopped['speedup']:.2f} [{stopped['speedup_low']:.2f}, {stopped['speedup_high']:.2f}]."
)
assert (table["speedup"] > 0).all()

# %% [markdown]
# Which drafts are beaten, by the estimates, by another that costs no more and accepts no less? The
# others are the *front*: what to choose from, whatever a pass of the target costs. (Intervals that
# overlap leave open who is beaten.)

# %%
front = "; ".join(table["draft"][table["front"]])
ctx.save(
    speed.pareto_figure(table),
    "pareto",
    caption="Acceptance of the draft's best token against the price of a draft pass; bars: 95 %. "
    f"Not beaten in both (black line): {front}.",
)

# %% [markdown]
# ### For real
# Is every draft lossless, and how far can the predictions be trusted?

# %%
equal = speed.lossless(tried, drafts, timed, ("chain:4", "tree:3,2,8"))
ctx.say(
    f"**Lossless**: with {len(drafts)} drafts, a chain and a tree each, {equal['equal'].sum()} of "
    f"{equal['texts'].sum()} greedy texts equal the target's own token for token."
)
assert not pair.is_exact or (equal["equal"] == equal["texts"]).all(), (
    "same text, whatever drafts"
)

# %%
real = speed.measured(tried, table, timed, costs, chains, stopped)
ctx.table(real, "measured")

# %%
ctx.say(
    f"**Speed** of {len(timed.prompts)} texts decoded for real: {speed.measured_sentence(real)}"
)

# %% [markdown]
# Each draft was timed at another moment: compare a draft with its own prediction, not drafts with
# each other.
#
# ### The choice

# %%
most, most_words = speed.top(table, "hit[1]")
fast, fast_words = speed.top(table, "speedup")
light, light_words = speed.top(table, "speedup_by_bytes")

# %%
predicted = speed.speedups(table)
ctx.plot(
    predicted,
    x="draft",
    hue="machine",
    kind="bars",
    y="speed-up over plain decoding, at each draft's best gamma",
    height=0.6 + 0.27 * len(table),
    reference=1,
    limits=(0, None),
    slug="speed",
    caption=f"Predicted speed-up of every draft tried. Fastest here: {fast['draft']}; where bytes "
    f"are time: {light['draft']}.",
)

# %%
ctx.say(f"**Agrees most**: {most_words}, hit[1] {most['hit[1]']:.3f}.")
ctx.say(
    f"**Fastest on this machine of the chains without a stop rule**, as predicted: {fast_words}, "
    f"{predicted.at(draft=fast['draft'], machine=speed.HERE)} at gamma {fast['gamma']}. Prompt "
    f"lookup with its stop rule {speed.stopped_verdict(stopped, fast)}."
)
ctx.say(
    f"**Fastest where bytes are time**: {light_words}, {light['speedup_by_bytes']:.2f} at gamma "
    f"{light['gamma_by_bytes']}. Not beaten in both price and acceptance: {front}."
)

# %%
small = speed.small_draft_hit(table)
ctx.say(
    f"The article's small draft should reach {article_small:.2f}; here: hit[1] {small:.3f}."
)

# %%
main = gained.at(draft=objectives[0], domain="all")
ctx.record(
    agrees_most=most["draft"],
    fastest_without_stop_rule=fast_words,
    fastest_by_bytes=light_words,
    speedup_without_stop_rule=float(fast["speedup"]),
    speedup_stopped_lookup=float(stopped["speedup"]),
    small_draft_hit=small,
    distilled_hit=main.at(estimator="hit[1]").value,
    distilled_alpha=main.at(estimator="alpha").value,
    lossless_texts=int(equal["equal"].sum()),
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
# passes: 0.90. A draft as dear as the target can never gain, however often it is right. For a
# speed-up of 2: 4.52 / 2 = 2.26 passes a block, less 1 for the target, over 4 draft passes: c =
# 0.32.</details>
#
# 2. Set `steps` to 15, then to 600 (`make reproduce NOTEBOOKS=08 PARAMETERS="steps=600"`). Which of
#    the two keeps rising: acceptance on held-out training prompts, or on those that drafts are
#    judged on?
#
# <details><summary>What happens</summary>The first, slowly: the training prompts come from
# templates, and a draft goes on learning their texts. What carries over to other prompts is less;
# it levels off sooner, and may even fall again. A few steps move alpha before they move hit[1]:
# probabilities shift first, the best token changes later.</details>
#
# 3. Let prompt lookup look for one token only, in a new cell:
#    `tried.add(candidates.prompt_lookup(pair, settings, longest=1))`, then compare
#    `accepted.copying(tried)` with `accepted.copying(tried, "prompt lookup of 1")`. Does it match
#    more often? Is it right more often?
#
# <details><summary>What happens</summary>It matches in exactly as many positions: a match of three
# tokens is also one of a single token. It is right less often, because a single token says less
# about what follows; the recency of the match is all that is left.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above. Agreement with the target and speed are different goals: the
#   draft that agrees most is rarely the one that is worth its price, and the price depends on the
#   machine.
# * What this does not show: a 4-bit kernel's time (the bound stands in for it), large models (whose
#   text repeats itself less, so that lookup gains less, and whose quantised copies are closer to
#   them), adapters, drafts trained from their own samples (on-policy), trained exits, or heads on
#   the target's states as in Medusa and EAGLE. Three seeds show a spread, they do not measure it
#   well; one seed shows none. The gamma of each draft was chosen on the prompts it is judged on,
#   and total variation was made the objective with all seeds after a first look at these prompts
#   (the other reason: 1 - total variation is `alpha`).
# * Next: notebook 09 spends a budget over domains and texts.

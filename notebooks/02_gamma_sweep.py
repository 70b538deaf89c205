# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 2. How many draft tokens should be proposed?
#
# **Answer.** As many as pay for themselves: each further draft token costs the same and is accepted
# at most as often as the one before it, so the speed-up has a peak. Where the peak lies is computed
# in section 6 for each domain, with how sure it is; it moves with the cost of a draft pass, which
# is **assumed** here and measured in notebook 10. The picture shows what does not depend on costs:
# `block_efficiency`, the tokens per target pass.
#
# ![Tokens per target pass against gamma](../figures/smollm/02/block-efficiency.png)
#
# *Runs on* any machine · *minutes* about one on 2 cores · *reads* the runs `greedy` (temperature T
# = 0) and `sampled` (T = 1) of the profile, for section 8 also `sampled-0.3`, `sampled-0.7` (text
# at those temperatures) and two more seeds at T = 1, recorded if they are not there · *writes*
# `figures/<profile>/02/`.

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

from speclab import cost, prompts, replay, runs
from speclab.models import pairs
from speclab.show import notebook
from speclab.analysis import loops
from speclab.show.estimates import Estimates
from speclab.explore import page
from speclab.studies import gamma_sweep as study

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
largest_gamma: int = 16  # 1 to 64; every gamma from 1 to this is replayed
gamma: int = 4  # 1 to largest_gamma; the one that the sentences below speak of
decoded_gammas: list = [1, 2, 4, 8, 16]  # 1 to 64; these are decoded as well, for real,
decoded_prompts: int = 2  # 1 to 1000; with so many prompts a domain
# c, time of a draft pass over time of a target pass: an assumption (the article's), not a
# measurement
cost_ratio: float = 0.05  # 0 to 10
# 0.29: llama.cpp, TinyLlama and Llama-2-7B, both in half precision (the paper's target is 4-bit,
# its c is not known)
other_cost_ratios: list = [0.02, 0.1, 0.29]  # 0 to 10
# the article's times of a target pass and of a draft pass, for its own rule
target_ms: float = 100.0  # 0.001 to 1000000
draft_ms: float = 5.0  # 0 to 1000000
# runs by temperature (section 8), and runs at T = 1 that differ in their seed only
temperatures: list = [0.3, 0.7]  # one of 0.3, 0.7
other_seeds: list = [
    "sampled-seed-1",
    "sampled-seed-2",
]  # one of sampled-seed-1, sampled-seed-2
# the article's gammas for mathematical proofs and exploratory text, by our nearest domain
article: dict = {"math": [4, 8], "chat": [2, 4]}  # 1 to 64

# %% [markdown]
# Two texts of the target are studied for every prompt. At temperature **T = 0** the target writes
# its most probable token each time (greedy text); at **T = 1** it draws each token from its own
# distribution (sampled text). p is the target's distribution of the next token, q the draft's.

# %%
ctx = notebook.start("02_gamma_sweep", profile, overrides)
# this one first: where both have to be recorded, notebook 01 records the other at the same time
at_1 = runs.load_or_record(ctx.profile, "sampled")
at_0 = runs.load_or_record(ctx.profile.replace(temperature=0.0), "greedy")
recorded = {"T = 0": at_0, "T = 1": at_1}

# %%
gammas = range(1, largest_gamma + 1)
shown_gammas = sorted({1, 2, 4, 8, 16, gamma, largest_gamma} & set(gammas))

# %% [markdown]
# ## 1. What gamma does to one text
# The draft proposes gamma tokens in a row; one pass of the target checks them all. The target keeps
# the longest run that agrees with it, and adds one token of its own: the **recovered** token where
# the draft went wrong, or a **bonus** token where all were right. That is one **block**. The text
# is the target's own whatever gamma is; what gamma changes is where the blocks are cut, and so how
# many target passes the text takes and how many drafts are thrown away.
#
# The recorder stored, at each position of the target's text, how the draft ranked the target's
# token. At T = 0 a draft token is accepted where that rank is 0, so the blocks of every gamma can
# be read off without running a model: that is the **replay**.

# %%
trace = recorded["T = 0"].trace
blocks = {g: replay.replay(trace, g) for g in gammas}

# %% [markdown]
# The picture replays one text: among the longest ones, the one whose tokens per pass are in the
# middle.

# %%
chosen = study.middle_text(blocks[gamma])
picture = study.draw_text({g: blocks[g] for g in shown_gammas}, chosen)

# %%
passes = {g: int((rows["prompt_id"] == chosen).sum()) for g, rows in blocks.items()}
caption = (
    f"The text of prompt {chosen} at T = 0, a cell a token. With gamma = 1 it takes {passes[1]} "
    f"target passes, with gamma = {gamma} {passes[gamma]}, with gamma = {largest_gamma} "
    f"{passes[largest_gamma]}."
)
ctx.save(picture, "one-text", caption)

# %% [markdown]
# It is one text, whatever gamma: the blocks of every gamma emit as many tokens for each prompt.

# %%
lengths = trace.groupby("prompt_id", sort=False).size()
assert all(study.text_lengths(rows).equals(lengths) for rows in blocks.values())

# %% [markdown]
# ## 2. Tokens per target pass
# `block_efficiency` counts the tokens that one target pass yields. We replay the recorded texts for
# every gamma: no model runs. At T = 0 the replay counts what a decoder would count (greedy rule).
# At T = 1 the rule is rejection: the draft's tokens are drawn from q and kept with probability
# min(1, p/q); the replay averages over the draws exactly.
#
# Each number comes with a 95 % interval that **resamples prompts**: draw as many prompts as there
# are, with replacement, compute the number again, 2,000 times, and leave out the lowest and the
# highest 2.5 % (a little less where prompts are few: notebook 03, section 9). The prompt is the
# unit because the tokens of one text are not independent.

# %%
frames = study.replay_both(recorded, largest_gamma)
curves = study.sweep_curves(frames, largest_gamma, cost_ratio)
study.write_curves(curves, ctx.figures / "sweep.csv")  # every quantity at every gamma

# %%
tau = curves.at(quantity="block_efficiency", average="visited")
shown = tau.at(gamma=shown_gammas)
ctx.table(shown.wide(["temperature", "gamma"], "domain"), "block-efficiency")

# %% [markdown]
# More drafting never costs tokens, but each further token brings less:

# %%
last = tau.at(gamma=largest_gamma)
caption = (
    f"Tokens per target pass by gamma, replayed; bands: 95 %, prompts resampled. At gamma = "
    f"{largest_gamma} the domains reach {last.span()}."
)
ctx.plot(
    tau,
    "gamma",
    "block-efficiency",
    caption,
    columns="temperature",
    y="block_efficiency",
)

# %%
at_gamma = tau.at(gamma=gamma)
ctx.say(
    f"Tokens of a pass with gamma = {gamma}: {at_gamma.listed(within='temperature')}."
)
ctx.say(
    f"Half of what {largest_gamma} draft tokens add to plain decoding's one token per pass is "
    f"there with a gamma of … {study.half_way(tau)}."
)

# %%
everywhere = curves.at(quantity="block_efficiency")
most = everywhere.frame["gamma"] + 1
assert everywhere.never_falls("gamma"), "a longer draft never costs a decoder a token"
assert everywhere.frame["estimate"].between(1 - 1e-9, most + 1e-9).all()

# %% [markdown]
# ### Where does a block begin?
# A decoder starts a block where the last one ended (**visited blocks**); that is what was shown. We
# can also let **every position** count once as a possible start. The first is what a decoder gets,
# the second what a start picked at random would give; how far are they apart?

# %%
gap = study.every_minus_visited(frames, largest_gamma, gamma)
ctx.export(gap, "every-minus-visited")
notebook.show_table(gap.wide("temperature", "domain"))

# %%
verdict = gap.sentence(
    "it is higher in",
    "it is lower in",
    "it cannot be told apart in",
    within="temperature",
)
ctx.say(
    f"The average over every position against visited blocks, gamma = {gamma}. {verdict}."
)

# %% [markdown]
# ## 3. Decoded, not only replayed
# A replay is arithmetic on a recorded text. Here the decoder does it: both models, their caches,
# one target pass a block, with some of the prompts and some gammas. At T = 0 the text is the same,
# so the counts must be the same, prompt by prompt. At T = 1 the decoder draws new texts; the replay
# gives the expectation over the draft's draws on the recorded ones, so both agree in the mean and
# not to the token.

# %%
settings = ctx.profile
pair = pairs.load_pair(settings)
some = prompts.load_prompts(settings.prompts, decoded_prompts, settings.domains)
encoded = prompts.encode_prompts(
    pair.tokenizer, some, settings.max_prompt_tokens, settings.template
)

# %%
few = [g for g in decoded_gammas if g <= largest_gamma]
counted = study.decoded_beside_replayed(
    pair, encoded, recorded, few, settings.max_new_tokens, settings.seed
)
ctx.table(counted, "decoded")

# %%
caption = (
    f"Tokens per target pass of the same {len(encoded)} prompts: the replay's line and the "
    "decoder's counts with their 95 % intervals."
)
ctx.plot(
    study.two_counts(counted),
    "gamma",
    "decoded",
    caption,
    hue="made",
    columns="temperature",
    y="block_efficiency",
    dots=["decoded"],
)

# %%
cold = counted[counted["temperature"] == "T = 0"]
ctx.say(
    f"**T = 0:** blocks or tokens differ from the replay's in {cold['unequal'].sum()} of "
    f"{cold['prompts'].sum()} decodings (prompts × gammas)."
)
assert not pair.is_exact or not cold["unequal"].any(), "greedy: decoded = replayed"

# %%
off = Estimates.of(counted, "difference", ["temperature", "gamma"]).at(
    temperature="T = 1"
)
verdict = off.sentence(
    "above the replay at", "below it at", "not to be told apart at", names="gamma"
)
ctx.say(
    f"**T = 1:** the decoder's tokens per pass are {verdict} (the gammas share prompts)."
)

# %% [markdown]
# ## 4. Why the i.i.d. formula misses
# If every draft token were accepted with probability alpha, independently of all others
# (**i.i.d.**:
# independent and identically distributed), a pass would give (1 - alpha^(gamma+1)) / (1 - alpha)
# tokens: the dashed line. alpha is measured on the same texts: the share of positions where the
# draft's best token is the target's (`hit[1]`) at T = 0, the mean overlap of p and q (`alpha`) at
# T = 1. The formula can miss for three reasons, and two of them can be computed apart:
#
# * **The text ends.** The last block is cut, and a text of one token is one block of one token,
#   whatever the draft is worth. `from_text_end`: i.i.d. acceptance replayed over texts of these
#   lengths, minus the formula.
# * **Acceptance comes in runs.** `lag1` is the correlation of acceptance at neighbouring positions.
#   If it is positive, a rejection makes the next one likelier, and a rejection is where a block
#   starts. `from_lag1`: what a chain with this one correlation gives (the orange line of the
#   picture), minus i.i.d.
# * **The rest**: prompts that differ (an easy one has few blocks, so hard ones weigh more) and
#   memory beyond one position.

# %%
ctx.plot(
    study.predictions(curves),
    "gamma",
    "predicted",
    "Tokens per target pass: replayed (black; the band is the 95 % interval of visited blocks) and "
    "predicted from the mean acceptance, without and with the correlation of neighbours.",
    hue="curve",
    rows="temperature",
    columns="domain",
    y="block_efficiency",
    share_y="row",
    looks=study.LOOKS,
)

# %%
why = study.gap_parts(frames, recorded, largest_gamma, gamma)
ctx.export(why.rename(columns={"gap": "replay_minus_iid"}), "why-not-iid")

# %%
ctx.say(
    f"At gamma = {gamma}, visited blocks; the gap and its parts in tokens per target pass:"
)
parts = ["gap", "from_text_end", "from_lag1", "rest"]
notebook.show_table(why[["temperature", "domain", "alpha", "lag1", *parts]], 2)

# %%
keys = ["temperature", "domain"]
missed = Estimates.of(why, "gap", keys)
verdict = missed.sentence(
    "higher in", "lower in", "not to be told apart in", within="temperature"
)
ctx.say(f"Against the i.i.d. formula the replay is … {verdict}.")

# %%
lag1 = Estimates.of(why, "lag1", keys)
verdict = lag1.sentence(
    "positive in", "negative in", "not to be told apart from 0 in", within="temperature"
)
ctx.say(f"The lag-1 correlation is … {verdict}.")

# %%
ctx.say(f"In the mean of the domains the gap is … {study.largest_part(why)}.")
assert (why["from_text_end"] < 1e-9).all(), "an end can only cut a block short"
assert (why["from_lag1"] * why["lag1"].fillna(0) < 1e-9).all(), "runs cost tokens"

# %% [markdown]
# ## 5. How many drafts are thrown away
# `draft_utilisation` = accepted draft tokens / drafted ones. All tokens behind a rejection are
# lost, so a longer draft wastes more. vLLM calls it the draft acceptance rate; it depends on gamma
# and is not alpha.

# %%
used = curves.at(quantity="draft_utilisation", average="visited")
first, last = used.at(gamma=1), used.at(gamma=largest_gamma)
caption = (
    f"Share of the draft tokens that are kept, by gamma: {first.span()} with gamma = 1, "
    f"{last.span()} with gamma = {largest_gamma}."
)
ctx.plot(
    used,
    "gamma",
    "draft-utilisation",
    caption,
    columns="temperature",
    y="draft_utilisation",
    limits=(0, 1),
)

# %%
for g in sorted({1, gamma, largest_gamma}):
    ctx.say(f"At gamma = {g}, {used.at(gamma=g).listed(within='temperature')}.")
assert used.lies_within(0, 1)

# %% [markdown]
# ## 6. Estimated speed-up, and the best gamma
# Time of a block with the draft: gamma draft passes and one target pass, gamma c + 1 target passes;
# without it every token costs one. So the **standard** estimate is block_efficiency / (gamma c + 1)
# (Leviathan et al., arXiv:2211.17192). It takes a target pass over gamma + 1 tokens to cost as much
# as over one, and a loop that costs nothing. c is a parameter here. It is an estimate: wall-clock
# time that was measured, with the decoder at work, is in notebook 10.

# %%
speed = curves.at(quantity="speedup", average="visited")
peaks = speed.highest(["temperature", "domain"])
caption = (
    f"Estimated speed-up over plain decoding by gamma, at an assumed c = {cost_ratio:g}; bands: 95 "
    f"%, prompts resampled. The peaks reach {peaks.span()}."
)
ctx.plot(
    speed, "gamma", "speed-up", caption, columns="temperature", y="speedup", reference=1
)

# %%
# In a notebook that somebody has open: drag gamma. Headless the picture above stands for it.
if notebook.is_open():
    study.slider(blocks, chosen, speed.at(temperature="T = 0"), gamma)

# %%
# Tokens per pass of every recorded text beside the domains', for any gamma or tree, without a
# kernel. (A headless run shows the pictures above only.)
page.show("gamma", runs=[*recorded.values()])

# %% [markdown]
# ### Which gamma is the fastest, and how sure is that?
# Resample the prompts and look each time which gamma is the fastest: its **share** of the resamples
# says how sure the choice is.

# %%
share = study.best_shares(frames, largest_gamma, cost_ratio)
best = study.best_by_domain(share, article)
other = study.at_other_costs(frames, largest_gamma, other_cost_ratios)
ctx.export(best.join(other), "best-gamma")

# %%
caption = (
    f"How often each gamma is the fastest among resamples of the prompts, assumed c = "
    f"{cost_ratio:g}. The best gammas are {best['best'].min()} to {best['best'].max()}."
)
ctx.save(study.draw_shares(share, article), "best-gamma", caption)

# %%
chosen_gammas = Estimates.of(best, "best", keys, digits=0)
ctx.say(
    f"Best gamma at c = {cost_ratio:g} [and the range of 95 % of the resamples]: "
    f"{chosen_gammas.listed(within='temperature')}. {study.edges(best, largest_gamma)}"
)
ctx.say(
    f"Estimated speed-up there, that gamma held fixed in the resamples: "
    f"{peaks.listed(within='temperature')}."
)
assert best["best"].between(best["as_good_low"], best["as_good_high"]).all()
assert np.allclose(share.groupby(keys)["share_best"].sum(), 1)

# %% [markdown]
# With another cost of a draft pass the best gamma moves. Some gammas cannot be told from the best
# (`as_good_low` to `as_good_high`: the interval of what they are behind reaches 0; no margin says
# that they are as fast):

# %%
as_good = best[[*keys, "best", "as_good_low", "as_good_high"]]
notebook.show_table(as_good.join(other))

# %% [markdown]
# ### Does the article's advice hold?
# The article names ranges of gamma by kind of text (the parameter `article`; the orange frames).

# %%
ctx.say(study.article_verdicts(best))
if {"math", "chat"} <= set(best["domain"]):
    ctx.say(
        f"The best gamma of math against that of chat. {study.larger(share, 'math', 'chat')}."
    )

# %% [markdown]
# ### The article's rule
# The article estimates the speed-up as (e T) / (t e + T), with T and t the times of a target and of
# a draft pass, and e = alpha gamma accepted tokens (its best case: e = gamma). It counts no bonus
# token, and charges only for drafts that are accepted. Here it is on the article's own example,
# alpha = 0.85, beside the standard model.

# %%
rules = study.two_rules(gammas, 0.85, target_ms, draft_ms)
ctx.plot(
    rules,
    "gamma",
    "rules",
    f"Two rules on one example (alpha 0.85, T = {target_ms:g} ms, t = {draft_ms:g} ms): the "
    "article's has no peak, so it cannot choose a gamma.",
    hue="rule",
    y="speedup",
    height=2.0,
)
assert rules.at(rule="the article's rule").never_falls("gamma")

# %%
typical, best_case = (
    cost.speedup_article(e, target_ms, draft_ms) for e in (0.85 * 4, 4)
)
c = draft_ms / target_ms
ctx.say(
    f"It rises with every gamma, whatever alpha, towards T / t = {target_ms / draft_ms:g}. With "
    f"gamma = 4 it gives {typical:.2f}, and {best_case:.2f} in its best case; the standard model "
    f"gives {cost.speedup_iid(0.85, 4, c):.2f}, and {cost.speedup_standard(5, 4, c):.2f} if "
    "everything is accepted."
)

# %% [markdown]
# ## 7. Do loops carry the result?
# A small model's greedy text runs into loops. A draft that copies them looks good for a reason that
# has nothing to do with language: what is measured there is loops. A position *repeats* when its
# token ends a run of four tokens which the same text has had before. So the main numbers of T = 0
# are given twice more: *outside loops*, from the blocks of the same replay whose first token does
# not repeat, and at T = 1. (A loop mostly lasts, so what is outside lies early in the texts.)

# %%
repeated = loops.share({text: run.trace for text, run in recorded.items()})
ctx.export(repeated, "loop-share")
notebook.show_table(repeated.wide("temperature", "domain"))
ctx.say(loops.said(repeated))

# %%
texts = study.chains_beside_loops(frames, recorded, largest_gamma)
beside = study.loop_numbers(texts, largest_gamma, gamma, cost_ratio)
ctx.export(loops.in_rows(beside), "loops")
notebook.show_table(loops.texts_in_cells(beside))

# %%
tokens, best_gammas = beside.values()
verdict = loops.change_in_words(f"Tokens per pass at gamma = {gamma}", tokens)
ctx.plot(
    study.loop_curves(texts, largest_gamma),
    "gamma",
    "loops",
    "Tokens per target pass of the whole greedy texts, of their blocks that begin outside loops, "
    f"and of the sampled texts. {verdict}",
    hue="text",
    columns="domain",
    y="block_efficiency",
)
ctx.say(study.same_choice(best_gammas))

# %% [markdown]
# ## 8. Between T = 0 and T = 1
# Does sampling lower acceptance, and the more the warmer the text is? A temperature T divides the
# logits of both models before the softmax: **p and q are those after the temperature**, as the
# verification rules need them. So at T = 0.3 both are sharper than at T = 1. What is drafted
# matters too:
#
# * **drawn tokens**: the chain draws from q, the rule is `rejection`;
# * **best tokens**: the chain takes the draft's best token each time, the rule is `point-mass`.
#
# At T = 0 both are the same chain, under the greedy rule. The texts differ with T (each is the
# target's own at that temperature), the prompts are the same.

# %%
texts_by_T = {0.0: recorded["T = 0"].trace}
for warmth in temperatures:
    texts_by_T[warmth] = runs.load_or_record(ctx.profile, f"sampled-{warmth}").trace
texts_by_T[1.0] = recorded["T = 1"].trace
chains_by_T = study.steps_between(texts_by_T, largest_gamma)

# %%
warmed = study.tau_by_temperature(chains_by_T, largest_gamma)
ctx.export(warmed, "between-temperatures")
shown = warmed.at(domain="all", gamma=shown_gammas)
notebook.show_table(shown.wide(["draft", "gamma"], "T"))

# %%
ctx.plot(
    warmed.at(gamma=gamma).without(domain="all"),
    "T",
    "between-temperatures",
    f"Tokens per target pass of chains of {gamma}, by the temperature of the text; p and q after "
    "that temperature. Bands: 95 %, prompts resampled. Left and right start from the same chain.",
    columns="draft",
    y="block_efficiency",
    x_label="T, temperature of the text (and of p and q)",
)

# %% [markdown]
# ### One drafted token
# At T > 0 a drawn token is accepted with the overlap of p and q (`alpha`), the draft's best token
# with its p (`top_mass[1]`). The last rows count instead how often the text's token was the draft's
# best (`hit[1]`): the same expectation as `top_mass[1]`, with the text's chance in it.

# %%
one = study.token_by_temperature(texts_by_T)
ctx.table(one.wide(["draft", "T"], "domain"), "one-token-by-temperature")

# %% [markdown]
# ### Does it fall at every step?
# The change from each temperature to the next, prompts paired (drawn together in the resamples).
# Part of a fall may be the loops', which a warmer text leaves, so positions outside loops are asked
# by themselves:

# %%
changes = study.steps(texts_by_T, chains_by_T, largest_gamma, gamma)
ctx.table(changes.wide(["quantity", "draft", "step"], "domain"), "temperature-steps")

# %%
for quantity, part in changes.groups("quantity"):
    ctx.say(f"As T rises, `{quantity}` of\n\n{study.falls_with_temperature(part)}")

# %%
looped = loops.share({f"T = {T:g}": text for T, text in texts_by_T.items()})
ctx.say(
    f"Share of repeated positions, mean of the domains: "
    f"{looped.at(domain='all').listed('temperature')}."
)

# %% [markdown]
# ### Would another seed say something else?
# A sampled text is one draw. The same prompts were sampled with other seeds, so that the `spread`
# of the seeds' values can stand beside the `width` of the interval that one seed gives. Resampling
# prompts resamples their draws with them, so that width should hold the spread. `pooled` takes all
# texts together, whole prompts resampled; `narrower` says how much that helps: near 1 if the
# prompts make an estimate unsure, near 1/√seeds if the draw of the texts does.

# %%
draws = {"sampled": recorded["T = 1"].trace}
draws |= {kind: runs.load_or_record(ctx.profile, kind).trace for kind in other_seeds}
seeds = study.seed_spread(draws, largest_gamma, gamma)
ctx.table(seeds, "seeds")

# %%
ctx.say(study.seeds_in_words(seeds, len(draws)))

# %%
ctx.record(gamma=gamma, cost_ratio=cost_ratio, **study.numbers(at_gamma, best, why))

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: the draft is right at 3 positions, wrong at the next, right at 3, wrong, and so on
#    without end. How many tokens per pass do gamma = 3, 4 and 8 give, and what does the i.i.d.
#    formula say for gamma = 3?
#
# <details><summary>What happens</summary>
# Each block keeps 3 drafts, and its fourth token is the target's own: a bonus token at gamma = 3, a
# recovered one at gamma = 4 and 8. So it is always 4 tokens per pass, and a draft longer than 3
# buys nothing. The formula with alpha = 3/4 says (1 - 0.75⁴)/0.25 = 2.73. Here the rejections stand
# as far apart as they can (a negative lag-1 correlation): independence is the wrong picture, in the
# other direction.</details>
#
# 2. Set `cost_ratio` to 0.29, which was measured for TinyLlama and Llama-2-7B in half precision.
#    Where do the peaks go, and does the first picture change?
#
# <details><summary>What happens</summary>
# The peaks move to smaller gamma, as the column for 0.29 of section 6 says, and the longest drafts
# may
# cost more than they bring. `block_efficiency` does not change: no cost enters it.</details>
#
# 3. In a new cell take every position for visited blocks: `wrong = {(text, "visited"): frames[text,
#    "every"] for text in recorded}`, then `study.best_by_domain(study.best_shares(wrong,
#    largest_gamma,
#    cost_ratio), article)`. Do the best gammas move?
#
# <details><summary>What happens</summary>
# Where every position gives the higher average, and more so for long drafts, the best gamma moves
# up. That is a mistake to avoid: a decoder has no such starts, it begins behind its own
# rejections.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above; section 7 says what of them loops carry, section 8 what a
#   temperature changes. Tokens per pass never fall with gamma; the estimated speed-up has a peak,
#   and where it lies depends on c (the table's last columns) and, where the ranges differ, on the
#   domain.
# * What this does not show: time. c is assumed, a target pass over gamma + 1 tokens is taken to
#   cost what one token costs, and the loop is free; notebook 10 measures all three, and the speed
#   of the decoder itself. The best gammas are for these prompts and for texts of this length: a
#   text's end can only lower a curve.
# * Next: notebook 03 asks how acceptance differs between the domains, and what 'acceptance' is.

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
# Each further draft token costs the same and is accepted at most as often as the one before it.
# Tokens per target pass therefore grow more and more slowly with gamma, the number of draft tokens,
# while the cost grows linearly, so the speed-up has a maximum. Its position depends on c, the cost
# of a draft pass, which is **assumed** here; notebook 09 chooses at measured costs. The picture
# shows what does not depend on costs: `block_efficiency`, the tokens per target pass.
#
# ![Tokens per target pass against gamma](../figures/smollm/02/block-efficiency.png)
#
# *Runs on* any machine · *minutes* about two on 2 cores · *reads* the runs `greedy` (temperature T
# = 0), `sampled`, `sampled-seed-1` and `sampled-seed-2` (the profile's temperature, by default 1;
# three seeds), and at both temperatures those of the other prompts that the profile names
# (`other_prompts`), recorded if they are not there · *writes* `figures/<profile>/02/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
largest_gamma: int = 16  # 1 to 64; every gamma from 1 to this is replayed
gamma: int = 4  # 1 to largest_gamma; the one that the sentences below speak of
decoded_gammas: list = [1, 2, 4, 8, 16]  # 1 to 64; these are decoded as well, for real,
decoded_prompts: int = 2  # 2 to 1000; this many prompts per domain (5 in all at least)
# c, time of a draft pass over time of a target pass: an assumption, not a measurement
cost_ratio: float = 0.05  # 0 to 10
# 0.29: llama.cpp, TinyLlama and Llama-2-7B, both in half precision
other_cost_ratios: list = [0.02, 0.1, 0.2, 0.29]  # 0 to 10

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Goes to the root of the kit, which it clones from SPECLAB_REPO where there is none.
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
import pandas as pd

from speclab import replay, runs, stats
from speclab.analysis import prompt_sets
from speclab.analysis.texts import SEEDS, Text
from speclab.estimates import Estimates, named, stack
from speclab.explore import page
from speclab.models import pairs
from speclab.show import drawings, notebook
from speclab.studies import gamma_sweep as study

RUNS = ["greedy", "seeds", "others", "others-sampled"]

# %% [markdown]
# Texts of the target are studied for every prompt. At temperature **T = 0** the target writes its
# most probable token each time (greedy text). At the profile's temperature (by default 1) it draws
# each token from its own distribution (sampled text; three texts per prompt, of three seeds). p is
# the target's distribution of the next token, q the draft's.

# %%
ctx = notebook.start("02_gamma_sweep", profile, overrides)
# these first: where all have to be recorded, notebook 01 records the greedy one at the same time
sampled_runs = [runs.load_or_record(ctx.profile, kind) for kind in SEEDS]
greedy_run = runs.load_or_record(ctx.profile, "greedy")
greedy, sampled = Text.of(greedy_run), Text.of(*sampled_runs)
texts = {text.name: text for text in (greedy, sampled)}
ctx.say(notebook.made_with(greedy.pair))

# %%
# every text replayed at every gamma: a row for each gamma, prompt and seed
gammas = range(1, largest_gamma + 1)
shown_gammas = sorted({1, 2, 4, 8, 16, gamma, largest_gamma} & set(gammas))
counts = {name: study.chain_counts(text, gammas) for name, text in texts.items()}
# emitted / blocks of the sample and of 2,000 resamples of its prompts: a frame for each gamma
tau = {name: study.by_gamma(own, study.TAU) for name, own in counts.items()}

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
# be read off without running a model: that is the **replay**. Of the longest texts we take the one
# whose tokens per pass are in the middle, and cut it by a loop over its ranks:

# %%
trace = greedy.trace
chosen = study.middle_text(replay.replay(trace, gamma))
mine = trace[trace["prompt_id"] == chosen]
ranks = mine["draft_rank"].to_numpy()

# %%
start, by_hand = 0, []
while start < len(ranks):
    drafted = ranks[start : start + gamma]
    accepted = int((drafted == 0).cumprod().sum())  # up to the first that misses
    emitted = min(accepted + 1, len(ranks) - start)  # and one of the target's own
    by_hand.append(emitted)
    start += emitted

# %%
blocks = {g: replay.replay(mine, g) for g in shown_gammas}
assert by_hand == blocks[gamma]["emitted"].tolist()
ctx.say(f"Tokens of its blocks with gamma = {gamma}: {', '.join(map(str, by_hand))}.")

# %%
passes_of = [f"{len(own)} at gamma {g}" for g, own in blocks.items()]
ctx.draw(
    drawings.draw_text,
    study.text_cells(blocks),
    "one-text",
    f"The text of prompt {chosen} at T = 0 under several draft lengths; each cell is a token. "
    f"Target passes: {named(passes_of)}.",
)

# %%
# Any recorded text and any gamma or tree, without a kernel. (A headless run shows the picture.)
page.show("gamma", runs=[greedy_run, sampled_runs[0]])

# %% [markdown]
# ## 2. Tokens per target pass
# `block_efficiency` is emitted tokens / blocks, the blocks being those of a decoder (**visited
# blocks**). At T = 0 the replay counts what a decoder would count (greedy rule). On sampled text
# the rule is rejection: the draft's tokens are drawn from q and kept with probability min(1, p/q);
# the replay averages over the draws exactly.
#
# Each number comes with a 95 % interval that **resamples prompts**: draw as many prompts as there
# are, with replacement (a prompt brings all its texts), compute the number again, 2,000 times, and
# leave out the lowest and the highest 2.5 %. The prompt is the unit because the tokens of one text
# are not independent.

# %%
passes = study.curves(tau)
shown = passes.at(gamma=shown_gammas)
wide = ["temperature", "gamma"], "domain"
ctx.export(passes, "block-efficiency", cells=passes.wide(*wide))
notebook.show_table(shown.wide(*wide))

# %%
last = passes.at(gamma=largest_gamma)
ctx.plot(
    passes,
    "gamma",
    "block-efficiency",
    f"Tokens per target pass by gamma, replayed; bands: 95 %, prompts resampled. At gamma = "
    f"{largest_gamma} these prompt sets reach {last.span()}.",
    columns="temperature",
    y="block_efficiency",
)

# %% [markdown]
# ### The prompts of a set differ
# Prompts within a set differ widely:

# %%
at_gamma = passes.at(gamma=gamma)
each = {}
for name, sums in counts.items():
    chains_of_gamma = sums[sums["gamma"] == gamma]
    prompts_of = chains_of_gamma.groupby(["domain", "prompt_id"], sort=False, as_index=False)
    totals = prompts_of[["emitted", "blocks"]].sum()
    each[name] = totals.assign(tau=totals["emitted"] / totals["blocks"])

# %%
panels = {name: (dots, at_gamma.at(temperature=name).frame) for name, dots in each.items()}
ctx.strips(
    panels,
    "tau",
    "tokens per target pass",
    "prompts",
    f"Tokens per target pass at gamma = {gamma}, one dot per prompt ({sampled.name}: its three "
    "texts together; dots of one set are spread upwards and downwards only to be seen). Dark: "
    "`block_efficiency` of the set with its 95 % interval.",
)

# %%
of_prompts = stack(each, "temperature").groupby(["temperature", "domain"], sort=False)
ends = of_prompts["tau"].agg(["min", "median", "max"]).reset_index()
ctx.table(ends, "spread-of-prompts", 1)

# %% [markdown]
# ### Other prompts
# A draft is trained on prompts of some form, and may do well on the form and not on the domain. So
# we ask the same of the other prompts that the profile names (`other_prompts`):

# %%
ctx.say(prompt_sets.described(ctx.profile))
sets = {name: prompt_sets.texts(ctx.profile, own) for name, own in texts.items()}
others = [which for which in sets[greedy.name] if which != prompt_sets.OWN]

# %%
if others:
    of_sets = {
        name: {
            which: study.by_gamma(study.chain_counts(text, gammas), study.TAU)
            for which, text in own.items()
        }
        for name, own in sets.items()
    }
    by_set = {name: prompt_sets.by_set(own, gamma) for name, own in of_sets.items()}
    by_set = Estimates.stacked(by_set, "temperature")
    ctx.table(by_set, "other-prompts", rows=60, cells=by_set.wide(["temperature", "set"], "domain"))
    for which in others:
        sizes = of_sets[greedy.name][which].prompts.sizes
        new = {name: size for name, size in sizes.items() if prompt_sets.is_new(which, name)}
        notebook.few_prompts(new, f", {which}")

# %%
if prompt_sets.UNWRAPPED in others:
    # compared, prompt by prompt: emitted / blocks at gamma
    words = prompt_sets.effect_of_words(
        sets[greedy.name], lambda text: (study.chain_counts(text, [gamma]), study.TAU)
    )
    ctx.export(words, "words-around")
    ctx.say(
        "The words around a problem change tokens per target pass, at "
        f"gamma {gamma} and T = 0, paired by prompt: {words.listed()}."
    )

# %% [markdown]
# ### Where does a block begin?
# A decoder starts a block where the last one ended. We can also let **every position** count once
# as a possible start: what a start picked at random would give. It is another number, not a
# decoder's:

# %%
gaps = {}
for name, text in texts.items():
    every = study.by_gamma(study.chain_counts(text, [gamma], "every"), study.TAU)
    gaps[name] = {gamma: every[gamma] - tau[name][gamma]}

# %%
gap = study.curves(tau, gaps)
ctx.export(gap, "every-minus-visited")
ctx.say(
    f"Tokens per target pass at gamma = {gamma}, averaged over every position, compared with the "
    f"blocks that a decoder visits. {gap.sentence(within='temperature')}."
)

# %% [markdown]
# ## 3. Decoded, not only replayed
# A replay is arithmetic on a recorded text. Here the decoder does it: both models, their caches,
# one target pass per block, with some of the prompts and some gammas. At T = 0 the text is the
# same, so the counts must be the same, prompt by prompt. At the profile's temperature the decoder
# draws new texts; the replay gives the expectation over the draft's draws on the recorded ones, so
# both agree in the mean and not to the token. Here the blocks of all these prompts are counted
# together, so that a domain counts by its blocks and not as much as any other.

# %%
settings = ctx.profile
pair = pairs.load_pair(settings)
ctx.say(notebook.made_with(greedy.pair, pair.facts))
encoded = study.first_prompts(runs.encoded_prompts(settings), decoded_prompts)

# %%
few = [g for g in decoded_gammas if g <= largest_gamma]
ids = [prompt.prompt_id for prompt in encoded]
decoded, replayed = {}, {}
for name, text in texts.items():
    decoded[name] = study.decode_chains(pair, encoded, few, text, settings)
    replayed[name] = counts[name].query("prompt_id in @ids")

# %%
beside = {name: study.beside(decoded[name], replayed[name]) for name in texts}
compared = Estimates.stacked(beside, "temperature")
ctx.table(compared, "decoded", rows=60, cells=compared.wide(["temperature", "gamma"], "made"))

# %%
counted = ["gamma", "prompt_id", "blocks", "emitted"]
by_decoder, by_replay = decoded[greedy.name], replayed[greedy.name]
unequal = len(by_decoder) - len(by_decoder.merge(by_replay, on=counted))
ctx.say(
    f"**{greedy.name}:** blocks or tokens differ from the replay's in {unequal} of "
    f"{len(by_decoder)} decodings (prompts × gammas)."
)
assert not pair.is_exact or not unequal, "greedy: decoded = replayed"

# %%
off = compared.at(temperature=sampled.name, made="difference")
words = "higher at gamma", "lower at gamma", "no significant difference at gamma"
ctx.say(
    f"**{sampled.name}:** the decoder's tokens per target pass, compared with the replay's: "
    f"{off.sentence(*words, names='gamma')} ({len(encoded)} prompts)."
)

# %% [markdown]
# ## 4. Why the i.i.d. formula misses
# If every draft token were accepted with probability alpha, independently of all others
# (**i.i.d.**), a pass would give (1 - alpha^(gamma+1)) / (1 - alpha) tokens. alpha is the mean
# acceptance of one token on the same texts: `hit[1]` at T = 0, the mean overlap of p and q
# (`alpha`) on sampled text. But acceptances cluster: a rejection makes another rejection more
# likely, and every block starts after one. The correlation of neighbouring positions, `lag1`, says
# how much.

# %%
one_token = {name: study.one_token(text) for name, text in texts.items()}
lag1 = {name: study.lag1(drawn) for name, drawn in one_token.items()}
lags = {name: one_token[name].table({"lag1": lag1[name]}, "formula") for name in texts}
lags = Estimates.stacked(lags, "temperature").without(domain=["all", "pooled"])

# %%
misses = {}
for name, drawn in one_token.items():
    alpha, own = drawn["alpha"], tau[name]
    # 1 + alpha + … + alpha^gamma: the quotient above, also where every token is accepted
    iid = {g: own[g] - sum(alpha**n for n in range(g + 1)) for g in gammas}
    misses[name, "replay minus i.i.d."] = drawn.table(iid, key="gamma")

# %%
missed = Estimates(stack(misses, ["temperature", "formula"]))
missed = missed.without(domain=["all", "pooled"])
ctx.plot(
    missed,
    "gamma",
    "formula-misses",
    "Tokens per target pass, replayed minus the i.i.d. formula's from the mean acceptance; 0: the "
    "formula is right. Bands: 95 %, prompts resampled.",
    columns="temperature",
    y="tokens per target pass,\nreplayed − predicted",
    reference=0,
)

# %%
missed_there = missed.at(gamma=gamma)
why = Estimates(pd.concat([lags.frame, missed_there.frame], ignore_index=True))
ctx.table(why, "why-not-iid", rows=60, cells=why.wide(["temperature", "formula"], "domain"))

# %%
verdict = missed_there.at(formula="replay minus i.i.d.").sentence(within="temperature")
ctx.say(f"Tokens per target pass at gamma = {gamma}, compared with the i.i.d. formula. {verdict}.")

# %% [markdown]
# The formula misses for two more reasons: a text's end cuts its last block short, and prompts
# differ (an easy one has few blocks, so that hard ones weigh more).
#
# ## 5. How many drafts are thrown away
# `draft_utilisation` = accepted draft tokens / drafted ones. All tokens after a rejection are
# lost, so a longer draft wastes more. vLLM calls it the draft acceptance rate; it depends on gamma
# and is not alpha.

# %%
used = study.curves({name: study.by_gamma(own, study.UTILISATION) for name, own in counts.items()})
ctx.plot(
    used,
    "gamma",
    "draft-utilisation",
    f"Share of the draft tokens that are kept, by gamma: {used.at(gamma=1).span()} with gamma = 1, "
    f"{used.at(gamma=largest_gamma).span()} with gamma = {largest_gamma}.",
    columns="temperature",
    y="draft_utilisation",
    limits=(0, 1),
)

# %% [markdown]
# ## 6. Estimated speed-up, and the best gamma
# Time of a block, in target passes over one token: gamma draft passes of c each, one target pass
# over gamma + 1 tokens, v, and the loop's own time, o. Without the draft every token costs one. So
# the speed-up is block_efficiency / (gamma c + v + o). The **standard** estimate (Leviathan et al.,
# arXiv:2211.17192) takes v = 1 and o = 0, and here c is assumed: wall-clock time that was measured,
# with the decoder at work, is in notebook 10.

# %%
speed = {name: study.speed_ups(own, gammas, cost_ratio) for name, own in tau.items()}
speed_up = study.curves(tau, speed)
peaks = speed_up.highest(["temperature", "domain"])
ctx.plot(
    speed_up,
    "gamma",
    "speed-up",
    f"Estimated speed-up over plain decoding by gamma, at an assumed c = {cost_ratio:g}; bands: 95 "
    f"%, prompts resampled. The peaks reach {peaks.span()}.",
    columns="temperature",
    y="speedup",
    reference=1,
)

# %% [markdown]
# ### Which gamma is the fastest?
# At several costs of a draft pass: the best gamma, and the range of 95 % of the choices when the
# prompts are resampled and the fastest gamma is looked up again each time. An expensive draft
# should propose less. Gammas from `as_good_low` to `as_good_high` (`02/best-gamma.csv`) are not
# significantly slower than the best:

# %%
costs = sorted({cost_ratio, *other_cost_ratios})
best = study.best_by_cost(tau, gammas, costs)
ctx.export(best, "best-gamma")
chosen_gammas = Estimates.of(best, "best", ["temperature", "c", "domain"], digits=0)
notebook.show_table(chosen_gammas.wide(["temperature", "c"], "domain"), 2)

# %% [markdown]
# A best gamma of 0 means that plain decoding is the fastest; one at the end of the sweep may lie
# beyond it.

# %%
ctx.say(
    f"Estimated speed-up at the best gamma (c = {cost_ratio:g}; gamma is not chosen again in the "
    f"resamples): {peaks.listed(within='temperature')}."
)

# %% [markdown]
# The same on the other prompts, at the assumed c:

# %%
if others:
    best_of_sets = {}
    for name, own in of_sets.items():
        best = study.best_by_cost(own, gammas, [cost_ratio])
        best = best.rename(columns={"temperature": "set"})
        new = [prompt_sets.is_new(row.set, row.domain) for row in best.itertuples()]
        best_of_sets[name] = best[new]
    keys = ["temperature", "set"]
    best_of_sets = stack(best_of_sets, "temperature")
    best_of_sets = Estimates.of(best_of_sets, "best", [*keys, "domain"], digits=0)
    ctx.table(
        best_of_sets, "best-gamma-other-prompts", rows=60, cells=best_of_sets.wide(keys, "domain")
    )
else:
    ctx.say("The profile names no other prompts.")

# %%
tables = {"block_efficiency": passes, "draft_utilisation": used, "speedup": speed_up}
ctx.export(Estimates.stacked(tables, "quantity"), "sweep")
judged = stats.judged_domains(trace)
fastest = chosen_gammas.at(c=cost_ratio, temperature=greedy.name, domain=judged)
by_domain = ", depending on the domain" if fastest.frame["estimate"].nunique() > 1 else ""
elsewhere = "No other prompts were tested."
if others:
    there = best_of_sets.at(temperature=greedy.name, set=others)
    elsewhere = f"On other prompts it is {there.span()}."
ctx.answer(
    f"At an assumed c of {cost_ratio:g} the best gamma is {fastest.span()}{by_domain} "
    f"({greedy.name}). {elsewhere} Notebook 09 chooses at measured costs."
)

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: the draft is right at 3 positions, wrong at the next, right at 3, wrong, and so on
#    without end. How many tokens per pass do gamma = 3, 4 and 8 give, and what does the i.i.d.
#    formula say for gamma = 3?
#
# <details><summary>What happens</summary>
# Each block keeps 3 drafts, and its fourth token is the target's own: a bonus token at gamma = 3, a
# recovered one at gamma = 4 and 8. So it is always 4 tokens per pass, and a draft longer than 3
# buys nothing. The formula with alpha = 3/4 says (1 - 0.75⁴)/0.25 = 2.73: here the rejections stand
# as far apart as they can (a negative lag-1 correlation).</details>
#
# 2. Set `cost_ratio` to 0.29, which was measured for TinyLlama and Llama-2-7B in half precision.
#    Where do the peaks go, and does the first picture change?
#
# <details><summary>What happens</summary>
# The peaks move to smaller gamma, as the table of section 6 says, and the longest drafts may cost
# more than they bring. `block_efficiency` does not change: no cost enters it.</details>
#
# 3. In a new cell take every position for visited blocks: `every = {name: study.by_gamma(
#    study.chain_counts(text, gammas, "every"), study.TAU) for name, text in texts.items()}`, then
#    `study.best_by_cost(every, gammas, [cost_ratio])`. Do the best gammas move?
#
# <details><summary>What happens</summary>
# Where every position gives the higher average, and more so for long drafts, the best gamma moves
# up. That is a mistake to avoid: a decoder has no such starts, it begins after its own
# rejections.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: tokens per pass never fall with gamma; the estimated speed-up has a peak, which
#   moves with c and, where the ranges differ, with the prompt set; single prompts of a set lie far
#   apart.
# * What this does not show: time (c is assumed, v = 1, o = 0: notebook 10), longer texts (a text's
#   end can only lower a curve), and what loops, other temperatures and seeds change (notebook 13).
# * Next: notebook 03 asks how acceptance differs between these prompt sets, and what 'acceptance'
#   is.

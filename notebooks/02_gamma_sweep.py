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
# The number of draft tokens that are proposed in a row is called **gamma**. Each further draft
# token costs the same time, but it is accepted at most as often as the token before it. Tokens per
# target pass therefore grow more and more slowly with gamma, while the cost grows linearly. So the
# speed-up has a maximum. Its position depends on c, the time of a draft pass divided by the time of
# a target pass. We **assume** c here, and notebook 10 measures it. The picture shows the
# part that does not depend on c, the number of tokens per target pass (`block_efficiency`).
#
# ![Tokens per target pass by gamma](../figures/smollm/02/block-efficiency.png)
#
# *Runs on* any machine · *time* about two minutes on 2 cores · *reads* the runs below, recorded if
# missing · *writes* `figures/<profile>/02/`.
#
# * `greedy`: temperature T = 0
# * `sampled`, `sampled-seed-1`, `sampled-seed-2`: the profile's temperature, by default 1
# * runs of the other prompts that the profile names (`other_prompts`)

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
largest_gamma: int = 16  # 1 to 64; every gamma from 1 to this number is replayed
gamma: int = 4  # 1 to largest_gamma; the gamma of most sentences and tables below
decoded_gammas: list = [1, 2, 4, 8, 16]  # 1 to 64; section 3 runs the decoder with these values
decoded_prompts: int = 2  # 2 to 1000; prompts per domain in section 3 (at least 5 in all)
# c, time of a draft pass divided by the time of a target pass (assumed, not measured)
cost_ratio: float = 0.05  # 0 to 10
# 0.29 was measured with llama.cpp for TinyLlama and Llama-2-7B in half precision
other_cost_ratios: list = [0.02, 0.1, 0.2, 0.29]  # 0 to 10

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
import pandas as pd

from speclab import replay, runs, stats
from speclab.analysis import prompt_sets
from speclab.analysis.texts import SEEDS, Text
from speclab.estimates import Estimates, counted, stack
from speclab.explore import page
from speclab.models import pairs
from speclab.show import drawings, notebook
from speclab.studies import gamma_sweep as study

RUNS = ["greedy", "seeds", "others", "others-sampled"]

# %% [markdown]
# For every prompt we study texts that the target wrote. At temperature **T = 0** the target always
# writes its most likely token (greedy text). At the profile's temperature (by default 1) it draws
# each token from its own distribution (sampled text). Each prompt has one greedy text and three
# sampled texts, drawn with three seeds. As before, p is the target's distribution of the next token
# and q the draft's.

# %%
ctx = notebook.start("02_gamma_sweep", profile, overrides)
# the sampled runs first, since notebook 01 may be recording the greedy run at the same time
sampled_runs = [runs.load_or_record(ctx.profile, kind) for kind in SEEDS]
greedy_run = runs.load_or_record(ctx.profile, "greedy")
greedy, sampled = Text.of(greedy_run), Text.of(*sampled_runs)
texts = {text.name: text for text in (greedy, sampled)}
ctx.say(notebook.made_with(greedy.pair))

# %%
# every text replayed at every gamma: one row for each gamma, prompt and seed
gammas = range(1, largest_gamma + 1)
shown_gammas = sorted({1, 2, 4, 8, 16, gamma, largest_gamma} & set(gammas))
counts = {name: study.chain_counts(text, gammas) for name, text in texts.items()}
# emitted / blocks of the sample and of 2,000 resamples of its prompts: one frame for each gamma
tau = {name: study.by_gamma(own, study.TAU) for name, own in counts.items()}

# %% [markdown]
# ## 1. What gamma does to one text
# The draft proposes gamma tokens in a row, and one target pass checks all of them. The target
# accepts tokens up to the first wrong one. It replaces that token by its own **recovered** token.
# If no token is wrong, it adds a **bonus** token. All this is one **block**. The text does not
# depend on gamma. But gamma decides where the blocks end, how many target passes the text takes and
# how many draft tokens are wasted.
#
# For each position of the text the recorder stored the rank of the target's token in the draft's
# order. At T = 0 a draft token is accepted if this rank is 0. So we can find the blocks for any
# gamma without running a model. This is called **replay**. (The ranks of a trained head depend on
# where a block begins, so the recorder stored the ranks of the next tokens for every beginning.)
# Among the longest texts we take the one with the median number of tokens per target pass. The loop
# below divides it into blocks.

# %%
trace = greedy.trace
chosen = study.middle_text(replay.replay(trace, gamma))
mine = trace[trace["prompt_id"] == chosen]
ahead = replay.ranks_ahead(mine, gamma)  # of the next tokens, if a block begins at a position

# %% tags=["by-hand"]
start, by_hand = 0, []
while start < len(ahead):
    is_right = ahead[start] == 0  # each of the gamma drafted tokens
    accepted = int(is_right.cumprod().sum())  # up to the first wrong token
    tokens_left = len(ahead) - start
    emitted = min(accepted + 1, tokens_left)  # the accepted tokens and one of the target's own
    by_hand.append(emitted)
    start += emitted

# %%
blocks = {g: replay.replay(mine, g) for g in shown_gammas}
assert by_hand == blocks[gamma]["emitted"].tolist()
ctx.say(f"With gamma = {gamma}, the {sum(by_hand)} tokens form {counted(len(by_hand), 'block')}.")

# %%
cells = study.text_cells(blocks)
ctx.draw(
    drawings.draw_text,
    cells,
    "one-text",
    f"The same text (prompt {chosen}, T = 0) at several values of gamma. Each cell is a token. A "
    "dark cell is the target's own token and ends a block.",
    study.saved_and_wasted(cells),
)

# %%
# Any recorded text with any gamma or tree. (A headless run shows only the picture above.)
page.show("gamma", runs=[greedy_run, sampled_runs[0]])

# %% [markdown]
# ## 2. Tokens per target pass
# The number of tokens per target pass is the number of emitted tokens divided by the number of
# blocks. We count the blocks that a decoder would start (**visited blocks**). At T = 0 the replay
# gives exactly the decoder's counts. For sampled text the draft's tokens are drawn from q and
# accepted with probability min(1, p/q). There the replay gives the expected counts, averaged over
# all possible draws of the draft.
#
# Each number has a 95 % interval. We draw as many prompts as there are, with replacement, and
# compute the number again. After 2,000 repetitions we leave out a little less than 2.5 % at each
# end (notebook 13). We **resample prompts** and not tokens, because the tokens of one text are not
# independent.

# %%
passes = study.curves(tau)
shown = passes.at(gamma=shown_gammas)
wide = ["temperature", "gamma"], "domain"
ctx.export(passes, "block-efficiency", cells=passes.wide(*wide))
notebook.show_table(shown.wide(*wide))

# %%
ctx.plot(
    passes,
    "gamma",
    "block-efficiency",
    "Tokens per target pass (`block_efficiency`) by gamma, replayed. The curves flatten as gamma "
    "grows. Bands: 95 % intervals.",
    title=study.flattening(passes, largest_gamma),
    columns="temperature",
    y="tokens per target pass",
)

# %% [markdown]
# ### The prompts of a domain differ
# The next figure shows each prompt as a dot.

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
of_prompts = stack(each, "temperature").groupby(["temperature", "domain"], sort=False)
ends = of_prompts["tau"].agg(["min", "median", "max"]).reset_index()
widest = (ends["max"] - ends["min"]).max()
ctx.strips(
    panels,
    "tau",
    "tokens per target pass",
    "prompts",
    f"Tokens per target pass at gamma = {gamma}. Each dot is one prompt (at {sampled.name} its "
    "three texts together). The dark mark is the domain's tokens divided by its passes, with its "
    "95 % interval. Prompts with many passes count more.",
    f"Prompts of one domain differ by up to {widest:.1f} tokens per target pass",
)

# %%
ctx.table(ends, "spread-of-prompts", 1)

# %% [markdown]
# ### Other prompts
# The draft may do well because of the format of the prompts and not because of their domain. A
# profile can name other prompts (`other_prompts`), on which we then repeat the measurement.

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
    ctx.table(by_set, "other-prompts", most=60, cells=by_set.wide(["temperature", "set"], "domain"))
    for which in others:
        sizes = of_sets[greedy.name][which].prompts.sizes
        new = {name: size for name, size in sizes.items() if prompt_sets.is_new(which, name)}
        notebook.few_prompts(new, f", {which}")

# %%
if prompt_sets.UNWRAPPED in others:
    words = prompt_sets.effect_of_words(
        sets[greedy.name], lambda text: (study.chain_counts(text, [gamma]), study.TAU)
    )
    ctx.export(words, "words-around")
    ctx.say(
        "The wrapper is the text around each problem. Tokens per target pass with it minus without "
        f"it: {words.in_units('')} (gamma = {gamma}, T = 0, the same problems)."
    )

# %% [markdown]
# ### Where does a block begin?
# A decoder starts each block where the last block ended. We could also count **every position**
# once as a possible start. This gives another number, which describes no decoder.

# %%
gaps = {}
for name, text in texts.items():
    every = study.by_gamma(study.chain_counts(text, [gamma], "every"), study.TAU)
    gaps[name] = {gamma: every[gamma] - tau[name][gamma]}

# %%
gap = study.curves(tau, gaps)
ctx.export(gap, "every-minus-visited")
ctx.say(
    "We average tokens per target pass over every position and compare with visited blocks "
    f"(gamma = {gamma}). {gap.sentence(*study.EVERY_POSITION, within='temperature')}."
)

# %% [markdown]
# ## 3. Decoding, not only replay
# A replay is a calculation on a recorded text. In this section the decoder runs both models, for a
# few prompts and some values of gamma. At T = 0 the text is the same, so the counts must be the
# same for each prompt. At the profile's temperature the decoder draws new texts, so its counts
# agree with the replay only on average. All prompts are counted together here.

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
ctx.table(compared, "decoded", most=60, cells=compared.wide(["temperature", "gamma"], "made"))

# %%
counts_of = ["gamma", "prompt_id", "blocks", "emitted"]
by_decoder, by_replay = decoded[greedy.name], replayed[greedy.name]
unequal = len(by_decoder) - len(by_decoder.merge(by_replay, on=counts_of))
ctx.say(study.agreement_in_words(unequal, len(ids), len(few)))
assert not pair.is_exact or not unequal, "greedy: decoded = replayed"

# %%
off = compared.at(temperature=sampled.name, made="difference")
ctx.say(
    f"At {sampled.name} we compare the decoder's tokens per target pass with the replay's "
    f"({len(encoded)} prompts). {study.decoded_in_words(off)}."
)

# %% [markdown]
# ## 4. Why the i.i.d. formula misses
# Assume that every draft token is accepted with probability alpha, independently of all other
# tokens (**i.i.d.**). Then a target pass gives (1 − alpha^(gamma+1)) / (1 − alpha) tokens. At T = 0
# alpha is `hit[1]`. For sampled text alpha is the mean overlap of p and q. But acceptances may
# cluster: after a rejection another rejection may be more likely. Every block starts after a
# rejection or a bonus token. The correlation between neighbouring positions (`lag1`) measures
# whether acceptances cluster.

# %%
one_token = {name: study.one_token(text) for name, text in texts.items()}
lag1 = {name: study.lag1(drawn) for name, drawn in one_token.items()}
lags = {name: one_token[name].table({"lag1": lag1[name]}, "formula").frame for name in texts}
lags = Estimates.stacked(lags, "temperature").without(domain=["all", "pooled"])

# %%
misses = {}
for name, drawn in one_token.items():
    alpha, own = drawn["alpha"], tau[name]
    # 1 + alpha + … + alpha^gamma is the quotient above, and is defined for alpha = 1 too
    iid = {g: own[g] - sum(alpha**n for n in range(g + 1)) for g in gammas}
    misses[name, "replay minus i.i.d."] = drawn.table(iid, key="gamma").frame

# %%
missed = Estimates(stack(misses, ["temperature", "formula"]))
missed = missed.without(domain=["all", "pooled"])
ctx.plot(
    missed,
    "gamma",
    "formula-misses",
    "Replayed tokens per target pass minus the prediction of the i.i.d. formula, by gamma. Below "
    "the line the formula promises too many tokens per target pass. Bands: 95 % intervals.",
    title=study.largest_miss(missed),
    columns="temperature",
    y="difference in tokens\nper target pass",
    reference=0,
    reference_name="formula exact",
)

# %%
missed_there = missed.at(gamma=gamma)
why = Estimates(pd.concat([lags.frame, missed_there.frame], ignore_index=True))
ctx.table(why, "why-not-iid", most=60, cells=why.wide(["temperature", "formula"], "domain"))

# %%
verdict = missed_there.at(formula="replay minus i.i.d.")
verdict = verdict.sentence(*study.FORMULA_GIVES, within="temperature")
ctx.say(
    f"We compare the i.i.d. formula with the replayed tokens per target pass (gamma = {gamma}). "
    f"{verdict}."
)

# %% [markdown]
# The formula misses for two more reasons. The end of a text shortens its last block. Prompts
# differ, and hard prompts have more blocks and thus more weight. A trained head adds a third: its
# acceptance at a position also depends on where the block began.
#
# ## 5. How many draft tokens are wasted
# All draft tokens after a rejection are thrown away, so a longer draft wastes more. The share of
# draft tokens that are accepted is called `draft_utilisation` here, and draft acceptance rate in
# vLLM. It depends on gamma and is not alpha.

# %%
used = study.curves({name: study.by_gamma(own, study.UTILISATION) for name, own in counts.items()})
ctx.plot(
    used,
    "gamma",
    "draft-utilisation",
    "Share of the draft tokens that the target accepts (`draft_utilisation`), by gamma. The share "
    "falls as gamma grows. Bands: 95 % intervals.",
    title=study.used_at_most(used.at(gamma=largest_gamma), largest_gamma),
    columns="temperature",
    y="draft tokens accepted (%)",
    percent=True,
    limits=(0, 1),
)

# %% [markdown]
# ## 6. Estimated speed-up, and the best gamma
# A block takes gamma draft passes, one target pass over gamma + 1 tokens and the loop's own time o.
# With times in units of one target pass over one token, this is gamma · c + v + o. Without a draft
# every token takes one target pass. So the speed-up is tokens per target pass divided by
# gamma · c + v + o. The **standard estimate** (Leviathan et al., arXiv:2211.17192) sets v = 1 and
# o = 0. Notebook 10 measures the real time.

# %%
speed = {name: study.speed_ups(own, gammas, cost_ratio) for name, own in tau.items()}
speed_up = study.curves(tau, speed)
peaks = speed_up.highest(["temperature", "domain"]).in_units("x")
of_greedy = peaks.at(temperature=greedy.name).span()
ctx.plot(
    speed_up,
    "gamma",
    "speed-up",
    f"Estimated speed-up over plain decoding by gamma, for an assumed c of {cost_ratio:g}. Above "
    "the line drafting is faster. Bands: 95 % intervals.",
    title=f"With c = {cost_ratio:g} and the best gamma, the estimated speed-up is {of_greedy} "
    "(T = 0)",
    columns="temperature",
    y="estimated speed-up (x)",
    reference=1,
    reference_name="plain decoding",
)

# %% [markdown]
# ### Which gamma is the fastest?
# The table shows the best gamma for several values of c. For the interval of the best gamma we
# resample the prompts and choose the fastest gamma again each time. The file `02/best-gamma.csv`
# also has the range of gammas that are not significantly slower than the best (`as_good_low` to
# `as_good_high`).

# %%
costs = sorted({cost_ratio, *other_cost_ratios})
best = study.best_by_cost(tau, gammas, costs)
ctx.export(best, "best-gamma")
chosen_gammas = Estimates.of(best, "best", ["temperature", "c", "domain"], digits=0)
notebook.show_table(chosen_gammas.wide(["temperature", "c"], "domain"), 2)

# %% [markdown]
# A best gamma of 0 means that plain decoding is the fastest. If the best gamma is the largest gamma
# of this notebook, an even larger gamma may be better.

# %% [markdown]
# The next table shows the highest estimated speed-up over all gammas, for the assumed c. For these
# intervals gamma is not chosen again.

# %%
notebook.show_table(peaks.wide("temperature", "domain"))

# %%
if others:
    ctx.say("The next table shows the best gamma on the other prompts, for the assumed c.")
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
        best_of_sets, "best-gamma-other-prompts", most=60, cells=best_of_sets.wide(keys, "domain")
    )

# %%
tables = {"block_efficiency": passes, "draft_utilisation": used, "speedup": speed_up}
ctx.export(Estimates.stacked(tables, "quantity"), "sweep")
judged = stats.judged_domains(trace)
fastest = chosen_gammas.at(c=cost_ratio, temperature=greedy.name, domain=judged)
there = best_of_sets.at(temperature=greedy.name, set=others) if others else None
mean = passes.at(temperature=greedy.name, gamma=gamma).frame["estimate"].mean()
ctx.record(headline=f"**{mean:.1f}** tokens per target pass with {gamma} drafted tokens")
ctx.answer(study.best_in_words(fastest, cost_ratio, there))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: the draft is right at 3 positions, wrong at the next position, and so on without end.
#    How many tokens per target pass do gamma = 3, 4 and 8 give? What does the i.i.d. formula say
#    for gamma = 3?
#
# <details><summary>What happens</summary>
# Each block accepts 3 draft tokens and adds a fourth token. The fourth token is a bonus token at
# gamma = 3 and a recovered token at gamma = 4 and 8. So every target pass gives 4 tokens, and a
# draft longer than 3 gains nothing. The formula with alpha = 3/4 says (1 − 0.75⁴)/0.25 = 2.73. It
# is too low here, because the rejections are spread evenly.</details>
#
# 2. Set `cost_ratio` to 0.29, which was measured for TinyLlama and Llama-2-7B in half precision.
#    Where do the maxima move, and does the first picture change?
#
# <details><summary>What happens</summary>
# The maxima move to smaller gamma, as the table of section 6 shows. The longest drafts may even be
# slower than plain decoding. Tokens per target pass do not change, because they do not depend on c.
# </details>
#
# 3. Use every position instead of visited blocks. In a new cell compute `every = {name:
#    study.by_gamma(study.chain_counts(text, gammas, "every"), study.TAU) for name, text in
#    texts.items()}`, then `study.best_by_cost(every, gammas, [cost_ratio])`. Do the best gammas
#    move?
#
# <details><summary>What happens</summary>
# If every position gives a higher average, above all for long drafts, the best gamma becomes
# larger. This would be a mistake, because a decoder's blocks do not begin at every
# position.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: tokens per target pass never fall as gamma grows. The estimated speed-up has a
#   maximum, whose position depends on c. Prompts of the same domain differ widely.
# * What this does not show: time, because c is assumed (notebook 10 measures it). Longer texts,
#   loops and other temperatures follow in notebook 13.
# * Next: notebook 03 asks how acceptance differs between the domains, and what acceptance is.

# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 13. How sure can we be?
#
# Every number of this kit depends on the prompts, the seed, the temperature, the length of the
# texts, and on whether the draft was trained on such prompts. This notebook measures each of these:
# how far the intervals can be trusted, what a number of prompts can show, and which numbers would
# change in another study.
#
# ![Share of repeated positions by their position in the text](../figures/smollm/13/length.png)
#
# *Runs on* any machine · *minutes* about one on 2 cores · *reads* the runs `greedy` (temperature
# T = 0), `sampled`, `sampled-seed-1` and `sampled-seed-2` (the profile's temperature, by default 1;
# three seeds), `sampled-0.3` and `sampled-0.7` (T = 0.3 and 0.7), recorded if they are not there,
# `long` where it was recorded, and the simulated studies of `data/coverage` · *writes*
# `figures/<profile>/13/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# two domains differ significantly when Holm's p-value is below this
level: float = 0.05  # 0.0001 to 0.5
# power: the probability with which a study should find a difference that is there
likely: float = 0.8  # 0.5 to 0.999
# shorter texts, to see what the numbers owe to the length
new_tokens: list = [16, 32, 64]  # 1 to 65536
# length of the drafted chain
gamma: int = 4  # 1 to 64

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
from math import comb

import numpy as np
import pandas as pd
from scipy.stats import nct, t

from speclab import runs, score, stats
from speclab.analysis import association, bins, power, prompt_sets, published
from speclab.analysis.texts import SEEDS, Text
from speclab.copying import repeats
from speclab.estimates import Estimates, named
from speclab.show import notebook
from speclab.studies import how_sure as study

RUNS = ["greedy", "seeds", "other-temperatures"]

# %%
ctx = notebook.start("13_how_sure", profile, overrides)
greedy = Text.recorded(ctx.profile, "greedy")
sampled = Text.recorded(ctx.profile, *SEEDS)
ctx.say(notebook.made_with(greedy.pair))

# %%
domains = list(score.domains_in(greedy.trace))
mean = "mean of the domains" if len(domains) > 1 else domains[0]
unshown = [score.POOLED] if len(domains) > 1 else [score.POOLED, score.ALL]
judged = stats.judged_domains(greedy.trace)  # of which an interval or a test says something
prompts = greedy.trace.groupby("domain")["prompt_id"].nunique()
sizes = prompts[judged].tolist()
count = min(sizes)
longest = ctx.profile.max_new_tokens

# %% [markdown]
# ## 1. Does a 95 % interval contain the true value in 95 of 100 studies?
# Here the true value is known: we take a recorded run's prompts as the population. A simulated
# study draws a few of them per domain, with replacement, and makes its interval. The share of
# studies whose interval contains the number of all prompts is the *coverage*. Four ways to make an
# interval from the same resamples:
#
# | method | bounds |
# | --- | --- |
# | percentile | the middle 95 % of the resamples |
# | expanded percentile | a little more than that, as a t interval is wider than a normal one |
# | BCa | other quantiles, corrected for bias and for a spread that grows with the number |
# | bootstrap-t | the number and its standard error, with quantiles of t that are resampled, too |
#
# The kit's intervals are *expanded percentile* ones (Hesterberg 2015). (Simulated once, on `smollm`
# and `tiny`: `data/coverage/prepare.py`. For another pair we show the simulation of `smollm`.)

# %%
simulated, covered = study.coverage_of(ctx.profile.name)
ctx.export(covered, "coverage-simulated")
percent = covered.rename(columns={"coverage": "estimate"})
percent[["estimate", "low", "high"]] *= 100
lowest = percent["estimate"].min()

# %%
keys = ["estimator", "method", "n_prompts"]
ctx.plot(
    Estimates(percent[[*keys, "estimate", "low", "high"]]),
    x="n_prompts",
    hue="method",
    columns="estimator",
    kind="points",
    reference=95,
    limits=(min(lowest, 80) - 2, 101),
    y="coverage, % of studies",
    x_label="prompts per domain",
    slug="coverage",
    caption="Share of simulated studies whose 95 % interval contains the true value, by prompts "
    f"per domain and method. The lowest is {lowest:.0f} %; the line is the promised 95 %. Bars: "
    f"Monte-Carlo error of {covered['studies'].min()} studies or more.",
)

# %%
used = Estimates(percent[percent["used"]], digits=0)
of_size = {size: part.span() for size, part in used.groups("n_prompts")}
held = [f"{size}: {shares} %" for size, shares in of_size.items()]
ctx.say(
    f"**Our intervals covered the true value** (pair {simulated}; prompts per domain: share of "
    f"simulated studies) in {'; '.join(held)}. Below {stats.FEW_PROMPTS} prompts per domain the "
    f"notebooks warn; below {stats.MIN_PROMPTS} they give no interval. The simulation resamples "
    "recorded prompts, so rare prompts are missing and true coverage may be lower."
)

# %%
own_coverage = study.coverage_at(used, sizes)
fewer = [name for name in domains if name not in judged]
ctx.say(
    f"This study has {study.sizes_in_words(sizes)}. At such sizes the intervals cover the true "
    f"value in {own_coverage} % of simulated studies."
    + (f" There is no interval for {named(fewer)}." if fewer else "")
)

# %%
for source, few in study.small_sets(ctx.profile, domains).items():
    ctx.say(
        f"**Few prompts in {prompt_sets.set_name(source)}**: "
        f"{named([f'{domain} {size}' for domain, size in few.items()])}. At such sizes intervals "
        f"cover the true value in {study.coverage_at(used, few.values())} % of simulated studies, "
        "and they are wide: read *inconclusive* there as too few prompts."
    )

# %% [markdown]
# ## 2. How many prompts would be enough?
# The **power** of a study is the probability that its test finds a true difference. A study is
# planned for a power of 0.8 or so (the parameter `likely`). The difference of two means of n
# prompts each has the standard error √((s₁² + s₂²)/n), where s is the standard deviation between
# the prompts of one domain. Student's test needs a difference beyond the quantile of its level, at
# the first and strictest step of Holm's correction. Where there is a true difference, its statistic
# follows the noncentral t distribution. Here n is the number of prompts of the smallest domain that
# has 5 or more.

# %%
compares = ctx.compares(judged)
tests = comb(len(judged), 2)
means = greedy.trace.groupby(["domain", "prompt_id"])["hit"].mean()

# %%
if compares:
    first, second = judged[:2]
    error = np.sqrt((means[first].var() + means[second].var()) / count)
    free, true = 2 * (count - 1), 0.05  # degrees of freedom; a difference of 0.05
    limit = t.isf(level / tests / 2, free)
    by_hand = nct.sf(limit, free, true / error) + nct.cdf(-limit, free, true / error)

# %%
if compares and error > 0:  # else the prompts do not differ, and there is nothing to plan with
    rows = means.reset_index()
    design = power.between(rows, score.mean_of("hit", "hit[1]"), first, second)
    assert np.isclose(by_hand, design.power(true, count, level / tests), rtol=1e-4)

# %% [markdown]
# (By hand every prompt counts equally; the kit's function handles ratios of sums, too.) So what can
# this study find? `least` is the smallest true difference between two domains that its prompts find
# with the probability `likely`. Domains of unequal sizes count with the standard error of both and
# with the `prompts` of the smaller one.

# %%
asked = {text.acceptance.name: text.accepted() for text in (greedy, sampled)}
asked["block_efficiency"] = study.of_blocks(greedy.tree(ctx.profile.tree))
found_by_us = {}
if compares:
    found_by_us = {name: power.detectable(*one, likely, level) for name, one in asked.items()}
    ctx.table(pd.concat(found_by_us.values(), ignore_index=True), "detectable")
for rows in found_by_us.values():
    ctx.say(f"* {study.detectable_in_words(rows, likely)}")

# %% [markdown]
# Where the domains are the paper's: with which probability would a study of n prompts per domain
# (the paper had 50) find each of the paper's differences, if prompts differed as much as they do
# here? The differences are those of Table I, and of Table II read as tokens per target pass.
# `needed`: the prompts per domain for a power of `likely`.

# %%
paper = pd.concat([published.published(table) for table in ("I", "II")])
paper = paper.pivot(index="domain", columns="quantity", values="published")
in_paper = set(judged) <= set(paper.index)

# %%
parts = {}
if compares and in_paper:
    parts = {
        name: power.every_pair(*question, paper.loc[judged, column], count, likely, level)
        for name, question, column in (
            ("published_alpha", (greedy.nodes, score.published_alpha), "alpha_mean"),
            ("block_efficiency", asked["block_efficiency"], "expected_accepted_length"),
        )
    }
    ctx.table(pd.concat(parts.values(), ignore_index=True), "power")
for name, rows in parts.items():
    ctx.say(f"* `{name}`: {study.power_in_words(rows, count)}")
if not in_paper:
    ctx.say("The paper does not have these domains.")

# %% [markdown]
# ## 3. Would another seed change the numbers?
# A sampled text is one draw. The same prompts were sampled with three seeds:

# %%
asked = {
    f"seed {seed}": (rows, score.alpha) for seed, rows in sampled.trace.groupby("seed", sort=False)
}
draws = stats.jointly(asked | {"three seeds": (sampled.trace, score.alpha)})
alphas = Estimates(draws.table(key="texts"), digits=3).at(domain=score.ALL)

# %% [markdown]
# The uniforms that draw a text belong to its prompt and its seed. So each prompt's text is drawn
# independently, and an interval over resampled prompts includes the draw of its seed. The seeds are
# then interchangeable: if we shuffle the three texts within each prompt, the three numbers should
# differ about as much as before. How often do they differ as much or more?

# %%
texts = sampled.trace.groupby(["domain", "prompt_id", "seed"])["overlap"].agg(["sum", "size"])
totals = texts.unstack("seed")
number = totals.index.get_level_values("domain").factorize()[0]
firsts = np.flatnonzero(np.diff(number, prepend=-1))  # of the prompts of a domain
totals = totals.to_numpy().reshape(len(totals), 2, -1)  # prompts, (sum, tokens), seeds


# %%
def spread(order: np.ndarray) -> float:
    """Standard deviation of the seeds' alpha (means of the domains), texts in another order."""
    texts = np.take_along_axis(totals, order[:, None], axis=2)
    overlap, tokens = np.moveaxis(np.add.reduceat(texts, firsts), 1, 0)
    return (overlap / tokens).mean(axis=0).std()


# %%
rng = np.random.default_rng(0)
as_drawn = np.tile(np.arange(totals.shape[2]), (len(totals), 1))
shuffled = np.array([spread(rng.permuted(as_drawn, axis=1)) for _ in range(5000)])
p_seeds = (1 + np.sum(shuffled >= spread(as_drawn) - 1e-12)) / 5001

# %%
why = (
    "The draw alone rarely makes such differences: they are chance, or something that we do not "
    "know."
    if p_seeds < level
    else "The seeds do not differ significantly."
)
ctx.say(
    f"**Seeds.** `alpha` at {sampled.name}, {mean}: {alphas.listed('texts')}. Shuffling the seeds "
    f"within each prompt gives p = {p_seeds:.3f}. {why} We pool three seeds of sampled text."
)

# %% [markdown]
# ## 4. Between the temperatures
# A temperature T divides the logits of both models before the softmax, which gives p and q: at T =
# 0.3 both are sharper than at T = 1. The prompts are the same, the texts are the target's own at
# each temperature: T = 0, 0.3, 0.7 and the profile's. At T = 0 acceptance of one drafted token is
# `hit[1]`, above it `alpha` of a drawn token; chains are drafted by the same rule.

# %%
others = {0.3: "sampled-0.3", 0.7: "sampled-0.7"}
others.pop(sampled.temperature, None)  # it is there already, with three seeds
warm = [greedy, sampled, *(Text.recorded(ctx.profile, kind) for kind in others.values())]
warm.sort(key=lambda text: text.temperature)
per_pass = f"tokens per target pass, gamma {gamma}"
asked = {
    "acceptance": {text.temperature: text.accepted() for text in warm},
    per_pass: {text.temperature: study.of_blocks(text.chain(gamma)) for text in warm},
}

# %%
tables = {name: stats.jointly(each).table(key="T") for name, each in asked.items()}
found = Estimates.stacked(tables, "quantity", digits=3)
of_one = found.at(domain=score.ALL, quantity="acceptance")

# %%
ctx.plot(
    found.without(domain=[score.ALL, score.POOLED]),
    x="T",
    columns="quantity",
    share_y=False,
    y="",
    x_label="T, temperature of the text (and of p and q)",
    slug="temperatures",
    caption=f"Acceptance of one drafted token and tokens per target pass of chains of {gamma}, by "
    f"the temperature of the text. Acceptance ({mean}) by T: {of_one.listed('T')}. Bands: 95 % "
    "intervals.",
)

# %% [markdown]
# ## 5. What does the length of the texts decide?
# The beginning of a text does not depend on where it is cut, so we know exactly what a study with
# shorter texts would have found. Small models' greedy texts run into loops, which a draft copies: a
# position *repeats* when its token ends a run of four tokens that occurred earlier in the same
# text. Where longer texts of some of the prompts were recorded (the kind of run `long`), we use
# them.

# %%
rows = greedy.trace[greedy.trace["prompt_id"] == greedy.trace["prompt_id"].iloc[0]]
tokens = rows["token"].tolist()
fours = list(zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False))
again = [four in fours[:end] for end, four in enumerate(fours)]
assert again == repeats(rows).tolist()[3:]

# %%
recorded = runs.recorded_run(ctx.profile, "long")
lasting = Text.of(recorded) if recorded else greedy
marked, sampled, lasting = (
    text.with_columns(repeats=repeats(text.trace)) for text in (greedy, sampled, lasting)
)

# %%
most = int(lasting.trace["position"].max()) + 1
shorter = [n for n in sorted({*new_tokens, longest}) if n < most]
sizes_of_texts = [*(shorter or [max(most // 2, 1)]), most]  # at least two lengths
cut = {f"{n} tokens": lasting.cut(n) for n in sizes_of_texts}

# %%
repeated = score.mean_of("repeats")
asked = {
    "hit[1]": {n: text.accepted() for n, text in cut.items()},
    "share in loops": {n: (text.trace, repeated) for n, text in cut.items()},
    per_pass: {n: study.of_blocks(text.chain(gamma)) for n, text in cut.items()},
}

# %%
draws = {quantity: stats.jointly(each) for quantity, each in asked.items()}
by_length = {quantity: each.table(key="length") for quantity, each in draws.items()}
by_length = Estimates.stacked(by_length, "quantity").without(domain=unshown)
notebook.show_table(by_length.wide(["quantity", "length"], "domain"))

# %%
width, looping = max(longest // 8, 1), {}  # tokens that are taken together
for text in (lasting, sampled):
    middle = text.trace["position"] // width * width + width / 2
    rows = text.trace.assign(position=middle)
    looping[text.name] = bins.group_means(rows, "repeats", "position")

# %%
looping = Estimates.stacked(looping, "text").without(domain=score.POOLED)
of_greedy = looping.at(text=greedy.name)
at_the_end = of_greedy.at(position=of_greedy.frame["position"].max())

# %%
ctx.plot(
    looping,
    x="position",
    columns="text",
    limits=(0, None),
    y="share of positions that repeat",
    slug="length",
    caption=f"Share of the positions that repeat, by position, in greedy texts of {most} tokens "
    f"and sampled texts of {longest}. At the end of the greedy texts: {at_the_end.listed()}.",
)

# %%
share = {text.name: (text.trace, repeated) for text in (marked, sampled)}
in_loops = Estimates(stats.jointly(share).table(key="temperature"), digits=3)
in_loops = in_loops.at(domain=score.ALL)

# %%
*_, short, whole_text = cut
changes = {
    quantity: each.table({"change": each[whole_text] - each[short]})
    for quantity, each in draws.items()
}
changes = Estimates.stacked(changes, "quantity", digits=3).without(domain=unshown)

# %%
ctx.say(
    f"**Share of positions in loops** (texts of {longest} tokens, {mean}): "
    f"{in_loops.listed('temperature')}. **From {short} to {whole_text}** "
    f"({lasting.trace['prompt_id'].nunique()} prompts) the share in greedy texts changes by "
    f"{changes.at(quantity='share in loops').listed()}. The tokens per target pass of a chain of "
    f"{gamma} change by {changes.at(quantity=per_pass).listed()}."
)
if not recorded:
    ctx.say(
        "Longer texts were not recorded. To record some: "
        f"`python -m speclab record --profile {profile} --kind long`."
    )

# %% [markdown]
# ## 6. Had the draft seen these prompts?
# A draft that was trained on prompts like those of the test looks better than it is. `seen` is the
# largest share of a prompt's three-word sequences that occur in one training prompt (without the
# words around every problem of a domain). Only the composed training prompts can be made again. The
# rest of the draft's training set is not in the kit, so `seen` is a lower bound.

# %%
trained_on = study.composed_prompts(ctx.profile)
if trained_on:
    seen = study.seen(ctx.profile, trained_on)
    ctx.export(seen.sort_values("seen", ascending=False), "seen")
else:
    ctx.say(f"What the draft of `{ctx.profile.name}` was trained on is not known here.")

# %%
if trained_on:
    hits = greedy.trace.groupby("prompt_id")["hit"].mean()
    rho = association.correlations(seen.join(hits, on="prompt_id"), "seen", "hit")
    rho, nearest = Estimates(rho), seen.nlargest(1, "seen").iloc[0]

# %%
if trained_on:
    ctx.say(
        f"**Seen.** At most {100 * nearest['seen']:.0f} % of a prompt (`{nearest['prompt_id']}`) "
        f"occurs in one training prompt. Prompts that share half or more: "
        f"{(seen['seen'] >= 0.5).sum()} of {len(seen)}. Spearman's correlation of `seen` with "
        f"`hit[1]` within a domain is {rho.sentence(*study.HIT_MORE)}: {rho.listed()}. We cannot "
        "separate a similar form from having been seen, since both come from templates."
    )

# %%
planned = f"Only one domain has {stats.MIN_PROMPTS} prompts or more: nothing to compare."
if parts:
    planned = study.power_in_words(parts["published_alpha"], count)
elif compares:
    planned = study.detectable_in_words(found_by_us[greedy.acceptance.name], likely)
looped = in_loops.at(temperature=greedy.name).value
ctx.answer(
    f"With {study.sizes_in_words(sizes)} our 95 % intervals cover the true value in "
    f"{own_coverage} % of simulated studies. {planned} {100 * looped:.1f} % of greedy positions "
    "are in loops."
)

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: a study of 50 prompts finds a difference with probability 0.8. How many prompts find
#    half the difference as surely?
#
# <details><summary>What happens</summary>
# 200: the standard error falls with the square root of the prompts, so half the difference needs
# four times as many. More tokens of the same prompts do not help as much: the spread between
# prompts stays.</details>
#
# 2. Take the marks of section 5 with runs of 8 tokens, `repeats(greedy.trace, 8)`. Do more
#    positions repeat, or fewer?
#
# <details><summary>What happens</summary>
# Fewer: a repeated run of eight ends in a repeated run of four, but not the other way
# round.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above. The number of prompts limits what a study can show. An
#   interval over prompts includes the draw of the texts, but not their length.
# * What this does not show: other prompts than these sets, longer texts, another draft's training
#   set; what a router gains (notebook 09).
# * Next: notebook 03 and the others read their intervals this way; notebook 11 asks which of the
#   paper's claims hold.

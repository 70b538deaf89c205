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
# Every number of this kit depends on the prompts, the seed, the temperature and the length of the
# texts. It also depends on whether the draft was trained on such prompts. How far can we trust the
# intervals? What can a given number of prompts show? Which numbers would change in another study?
# This notebook measures each of these.
#
# ![Share of repeated positions by their position in the text](../figures/smollm/13/length.png)
#
# *Runs on* any machine · *time* about a minute on 2 cores · *reads* the runs `greedy` (temperature
# T = 0), `sampled`, `sampled-seed-1` and `sampled-seed-2` (the profile's temperature, by default 1;
# three seeds), `sampled-0.3` and `sampled-0.7` (T = 0.3 and 0.7), which are recorded if they are
# missing, `long` if it was recorded, and the simulated studies in `data/coverage` · *writes*
# `figures/<profile>/13/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}
# two domains differ significantly if Holm's p-value is below this
level: float = 0.05  # 0.0001 to 0.5
# power: the probability with which a study should find a true difference
likely: float = 0.8  # 0.5 to 0.999
# lengths of shorter texts, to see how the numbers depend on the length
new_tokens: list = [16, 32, 64]  # 1 to 65536
# length of the drafted chain
gamma: int = 4  # 1 to 64

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
from math import comb

import numpy as np
import pandas as pd
from scipy.stats import nct, t

from speclab import runs, score, stats
from speclab.analysis import association, bins, power, published
from speclab.analysis.texts import SEEDS, Text
from speclab.copying import repeats
from speclab.estimates import Estimates, counted, named
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
judged = stats.judged_domains(greedy.trace)  # with enough prompts for an interval or a test
prompts = greedy.trace.groupby("domain")["prompt_id"].nunique()
sizes = prompts[judged].tolist()
count = min(sizes)
longest = ctx.profile.max_new_tokens

# %% [markdown]
# ## 1. Does a 95 % interval contain the true value in 95 of 100 studies?
# To know the true value, we take the prompts of a recorded run as the population. A simulated study
# draws a few of them per domain, with replacement, and computes its interval. The *coverage* is the
# share of studies whose interval contains the value of the population. We compare four methods that
# use the same resamples:
#
# | method | bounds |
# | --- | --- |
# | percentile | the middle 95 % of the resamples |
# | expanded percentile | a little more than 95 %, as a t interval is wider than a normal interval |
# | BCa | quantiles corrected for bias and for a spread that depends on the estimate |
# | bootstrap-t | the estimate ± its standard error times quantiles of t, from the resamples |
#
# The kit's intervals are *expanded percentile* intervals (Hesterberg 2015). The studies were
# simulated once for `smollm` and `tiny` (`data/coverage/prepare.py`). For another pair we show the
# simulation for `smollm`.

# %%
simulated, covered = study.coverage_of(ctx.profile.name)
ctx.export(covered, "coverage-simulated")
percent = covered.rename(columns={"coverage": "estimate"})
percent[["estimate", "low", "high"]] *= 100
lowest = percent["estimate"].min()

# %%
used = Estimates(percent[percent["used"]], digits=0)
keys = ["estimator", "method", "n_prompts"]
ctx.plot(
    Estimates(percent[[*keys, "estimate", "low", "high"]]),
    x="n_prompts",
    hue="method",
    columns="estimator",
    kind="points",
    looks=study.LOOKS,
    reference=95,
    reference_name="promised: 95 %",
    limits=(min(lowest, 80) - 2, 101),
    y="coverage (% of studies)",
    x_label="prompts per domain",
    slug="coverage",
    title=f"Our method (expanded percentile) covers the true value in {used.span()} % of studies",
    caption="Share of simulated studies whose 95 % interval contains the true value, by prompts "
    "per domain, method and estimator. Bars: 95 % intervals of the simulation, from at least "
    f"{covered['studies'].min()} studies each.",
)

# %%
ctx.say(
    f"Below {stats.FEW_PROMPTS} prompts per domain the notebooks warn, and below "
    f"{stats.MIN_PROMPTS} they give no interval. The simulation (pair "
    f"`{simulated}`) resamples recorded prompts. Rare prompts are missing from it, so the true "
    "coverage may be lower."
)

# %%
own_coverage = study.coverage_at(used, sizes)
fewer = [name for name in domains if name not in judged]
if fewer:
    ctx.say(f"There is no interval for {named(fewer)}.")

# %% [markdown]
# ## 2. How many prompts would be enough?
# The **power** of a study is the probability that its test finds a true difference. A study is
# usually planned for a power of about 0.8 (the parameter `likely`). The difference of two means of
# n prompts each has the standard error √((s₁² + s₂²)/n), where s is the standard deviation between
# the prompts of one domain. Student's test finds a difference if it exceeds the standard error
# times a quantile of t. Its level is the level of the first and strictest step of Holm's
# correction. For a true difference the test statistic has a noncentral t distribution. n is the
# number of prompts of the smallest domain with 5 prompts or more.

# %%
compares = ctx.compares(judged)
tests = comb(len(judged), 2)
means = greedy.trace.groupby(["domain", "prompt_id"])["hit"].mean()

# %% tags=["by-hand"]
if compares:
    first, second = judged[:2]
    error = np.sqrt((means[first].var() + means[second].var()) / count)  # standard error
    true = 0.05  # a true difference of 5 points
    free = 2 * (count - 1)  # degrees of freedom
    limit = t.isf(level / tests / 2, free)  # beyond it the test finds a difference
    by_hand = nct.sf(limit, free, true / error) + nct.cdf(-limit, free, true / error)
    print(f"power for a difference of 5 points between {first} and {second}: {by_hand:.2f}")

# %%
if compares and error > 0:  # else the prompts do not differ, and no study can be planned
    rows = means.reset_index()
    design = power.between(rows, score.mean_of("hit", "hit[1]"), first, second)
    assert np.isclose(by_hand, design.power(true, count, level / tests), rtol=1e-4)

# %% [markdown]
# What can this study find? `least` is the smallest true difference between two domains that its
# prompts find with the probability `likely`. The table has it for each pair of domains. For domains
# of different sizes, `prompts` is the size of the smaller domain, and the standard error uses both.

# %%
asked = {text.acceptance.name: text.accepted() for text in (greedy, sampled)}
asked["block_efficiency"] = study.of_blocks(greedy.tree(ctx.profile.tree))
planned = f"Only one domain has {stats.MIN_PROMPTS} prompts or more, so nothing is compared."
if compares:
    found_by_us = {name: power.detectable(*one, likely, level) for name, one in asked.items()}
    least = pd.concat(found_by_us.values(), ignore_index=True)
    pairs = least.assign(domains=least["first"] + " − " + least["second"])
    wide = pairs.pivot(index=["domains", "prompts"], columns="estimator", values="least")
    ctx.table(least, "detectable", 2, cells=wide.reset_index().rename_axis(columns=None))
    planned = study.detectable_in_words(found_by_us[greedy.acceptance.name], likely)
    ctx.say(planned)

# %% [markdown]
# If the domains are the paper's, we can plan a study of the paper's differences. How likely would a
# study of our size find each of them, if prompts differ as much as here? (The paper had 50 prompts
# per domain.) We take the differences from Table I, and from Table II as if they were tokens per
# target pass. `needed` is the number of prompts per domain for a power of `likely`.

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
    ctx.table(pd.concat(parts.values(), ignore_index=True), "power", 2)
    lines = [f"* {study.power_in_words(rows, name)}" for name, rows in parts.items()]
    ctx.say("\n".join(lines))
if not in_paper:
    ctx.say("The paper does not have these domains.")

# %% [markdown]
# ## 3. Would another seed change the numbers?
# A sampled text is one draw. We sampled the same prompts with three seeds.

# %%
asked = {
    f"seed {seed}": (rows, score.alpha) for seed, rows in sampled.trace.groupby("seed", sort=False)
}
draws = stats.jointly(asked | {"three seeds": (sampled.trace, score.alpha)})
alphas = draws.table(key="texts").at(domain=score.ALL).in_units("%", 1)
notebook.show_table(alphas.wide("domain", "texts"))

# %% [markdown]
# The table has `alpha` by seed. The random numbers that draw a text belong to its prompt and its
# seed, so each text is drawn independently. So intervals from resampled prompts also contain the
# chance of the draw. If the seed does not matter, shuffling the three texts within each prompt
# should change the three numbers about as much as they differ now. We shuffle the texts 5,000 times
# and count how often the numbers differ at least as much. A small p-value means a rare accident, or
# an effect that we do not know.

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
ctx.say(
    f"**Seeds** (`alpha` at {sampled.name}, {mean}). {study.seeds_in_words(p_seeds, level)} "
    "The other notebooks pool the three seeds of sampled text."
)

# %% [markdown]
# ## 4. How much does the temperature matter?
# The logits of both models are divided by the temperature T before the softmax, which gives p and
# q. At T = 0.3 both are sharper than at T = 1. The prompts are the same, and the texts are the
# target's own at each temperature: T = 0, 0.3, 0.7 and the profile's. Acceptance of one drafted
# token is `hit[1]` at T = 0, and `alpha` of a drawn token at the other temperatures.

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
tables = {name: stats.jointly(each).table(key="T").frame for name, each in asked.items()}
found = Estimates.stacked(tables, "quantity")
of_one = found.at(domain=score.ALL, quantity="acceptance").in_units("%")
(_, coldest), *_, (_, hottest) = of_one.groups("T")
ends = " and ".join(f"{one.span()} at T = {one.row.T:g}" for one in (coldest, hottest))

# %%
ctx.plot(
    found.without(domain=[score.ALL, score.POOLED]),
    x="T",
    columns="quantity",
    share_y=False,
    y="",
    x_label="temperature T",
    slug="temperatures",
    limits=(0, None),
    title=f"Acceptance of one drafted token is {ends}",
    caption="Left: acceptance of one drafted token. Right: tokens per target pass with chains of "
    f"{gamma} tokens. The title gives the mean of the domains. Bands: 95 % intervals.",
)

# %% [markdown]
# ## 5. How do the numbers depend on the length of the texts?
# The beginning of a text does not depend on where it is cut. So we know exactly what a study with
# shorter texts would have found. Greedy texts of small models run into loops, which a draft copies.
# A position is a **repeated position** if its token ends a sequence of four tokens that occurred
# earlier in the same text. If longer texts of some prompts were recorded (the kind of run `long`),
# we use them. The text with the most repeated positions shows how they are marked.

# %%
in_loops = repeats(greedy.trace).groupby(greedy.trace["prompt_id"]).sum()
prompt_id = in_loops.idxmax()

# %% tags=["by-hand"]
rows = greedy.trace[greedy.trace["prompt_id"] == prompt_id]
tokens = rows["token"].tolist()
fours = list(zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False))
again = [four in fours[:end] for end, four in enumerate(fours)]  # did it occur before?
print(f"{sum(again)} of {len(tokens)} positions are repeated in the text of {prompt_id}")

# %%
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
    "repeated positions": {n: (text.trace, repeated) for n, text in cut.items()},
    per_pass: {n: study.of_blocks(text.chain(gamma)) for n, text in cut.items()},
}

# %%
draws = {quantity: stats.jointly(each) for quantity, each in asked.items()}
by_length = {quantity: each.table(key="length").frame for quantity, each in draws.items()}
by_length = Estimates.stacked(by_length, "quantity").without(domain=unshown)
used_prompts = lasting.trace["prompt_id"].nunique()
ctx.say(f"The next table is about {counted(used_prompts, 'prompt')}.")
notebook.show_table(by_length.wide(["quantity", "length"], "domain"))

# %%
width, looping = max(longest // 8, 1), {}  # tokens per point
for text in (lasting, sampled):
    middle = text.trace["position"] // width * width + width / 2
    rows = text.trace.assign(position=middle)
    looping[text.name] = bins.group_means(rows, "repeats", "position")

# %%
looping = Estimates.stacked(looping, "text").without(domain=score.POOLED)
of_greedy = looping.at(text=greedy.name)
at_the_end = of_greedy.at(position=of_greedy.frame["position"].max()).in_units("%")

# %%
ctx.plot(
    looping,
    x="position",
    hue="text",
    columns="domain",
    limits=(0, 1),
    percent=True,
    looks={
        greedy.name: {"color": "#332288", "marker": "o", "linestyle": "-", "markersize": 2.5},
        sampled.name: {"color": "#882255", "marker": "s", "linestyle": "--", "markersize": 2.5},
    },
    height=2.1,
    y="repeated positions (%)",
    slug="length",
    title=f"At the end of greedy texts of {most} tokens, {at_the_end.span()} of positions are "
    "repeated",
    caption="Share of repeated positions, by position in the text, temperature and domain. "
    f"Sampled texts have {longest} tokens. Bands: 95 % intervals.",
)

# %%
share = {text.name: (text.trace, repeated) for text in (marked, sampled)}
in_loops = stats.jointly(share).table(key="temperature").in_units("%")
in_loops = in_loops.at(domain=score.ALL)
cold, hot = (in_loops.at(temperature=text.name) for text in (marked, sampled))

# %%
*_, short, whole_text = cut
shortest = next(iter(cut))
changes = {
    quantity: each.table({"change": each[whole_text] - each[short]}).frame
    for quantity, each in draws.items()
}
changes = Estimates.stacked(changes, "change").without(domain=unshown)

# %%
of_hits = draws["hit[1]"]
change = of_hits.table({"change": of_hits[whole_text] - of_hits[shortest]}).frame
change = Estimates(change).at(domain=score.ALL)
trend = change.tally("rises", "falls", "does not change significantly")
levels = of_hits.table(key="length").at(domain=score.ALL).in_units("%")
before, after = (levels.at(length=length).span() for length in (shortest, whole_text))

# %%
ctx.say(
    f"**Loops.** In texts of {longest} tokens, the share of repeated positions is "
    f"{cold} at {marked.name} and {hot} at {sampled.name} ({mean}, "
    f"{counted(prompts.sum(), 'prompt')})."
)

# %%
ctx.say(
    f"With longer texts `hit[1]` {trend} ({before} with {shortest}, {after} with {whole_text}). "
    f"The next table has the changes from {short} to {whole_text} (the same "
    f"{counted(used_prompts, 'prompt')})."
)
units = {"hit[1]": "points", "repeated positions": "points", per_pass: ""}
cells = [changes.at(change=name).in_units(units[name]).wide("change", "domain") for name in units]
notebook.show_table(pd.concat(cells, ignore_index=True))
if not recorded:
    ctx.say(
        "Longer texts were not recorded. To record some: "
        f"`python -m speclab record --profile {profile} --kind long`."
    )

# %% [markdown]
# ## 6. Had the draft seen these prompts?
# A draft that was trained on similar prompts looks better than it is. `seen` is the largest share
# of a prompt's three-word sequences that occur in one training prompt (without the wrapper around a
# problem). Of the training prompts we can rebuild only those that were made from templates. The
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
    rho = Estimates(rho)
    nearest = seen.nlargest(1, "seen").iloc[0]
    half = (seen["seen"] >= 0.5).sum()
    correlated = rho.sentence(*study.HIT_MORE).replace("; ", " and ")

# %%
if trained_on:
    ctx.say(
        f"**Seen.** The prompt with the highest `seen` is `{nearest['prompt_id']}`. A single "
        f"training prompt contains {100 * nearest['seen']:.0f} % of its three-word sequences. For "
        f"{half} of {counted(len(seen), 'prompt')}, `seen` is 50 % or more. For prompts with a "
        f"higher `seen`, `hit[1]` is {correlated} (Spearman's correlation "
        "within a domain). This need not come from seeing them. Prompts made from the same "
        "template also share a format, and we cannot separate the two."
    )
    numbers = {domain: str(one) for domain, one in rho.groups("domain")}
    notebook.show_table(pd.DataFrame({"Spearman, seen and hit[1]": numbers}))

# %%
if parts:
    planned = study.power_in_words(parts["published_alpha"], "published_alpha")
ctx.answer(study.coverage_in_words(sizes, own_coverage, planned))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: a study of 50 prompts finds a difference with a probability of 0.8. How many prompts
#    find half that difference with the same probability?
#
# <details><summary>What happens</summary>
# 200: the standard error falls with the square root of the number of prompts, so half the
# difference needs four times as many prompts. More tokens of the same prompts help less, because
# the spread between prompts stays.</details>
#
# 2. Take the marks of section 5 with sequences of 8 tokens, `repeats(greedy.trace, 8)`. Are there
#    more repeated positions, or fewer?
#
# <details><summary>What happens</summary>
# Fewer: a repeated sequence of eight ends in a repeated sequence of four, but not the other way
# round.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the number of prompts limits what a study can show. An interval over prompts
#   includes the draw of the texts, but not their length.
# * What this does not show: other prompts than these sets, texts longer than the recorded texts, or
#   another draft's training set.
# * Next: [03](03_domain_acceptance.ipynb) and the others read their intervals this way.
#   [11](11_paper_audit.ipynb) asks which of the paper's claims hold.

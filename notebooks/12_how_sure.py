# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 12. How sure can we be?

# %% tags=["parameters"]
profile: str = "smollm"  # the pair and its prompts: a name from notebooks/profiles, or a YAML file
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}
level: float = 0.05  # 0.0001 to 0.5; a difference is significant if Holm's p-value is below it
likely: float = 0.8  # 0.5 to 0.999; the power that a study should have

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
from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
from scipy.stats import alexandergovern, norm, t
from statsmodels.formula.api import ols
from statsmodels.stats.power import TTestIndPower

from speclab import replay, score, stats
from speclab.lab import bins, prompt_sets, variance_components
from speclab.lab.significance import holm
from speclab.lab.texts import Text
from speclab.estimates import Estimates, stack
from speclab.place import ROOT
from speclab.score import ALL, POOLED
from speclab.show import notebook

RUNS = ["greedy", "seeds", "others"]
READS = ["data/coverage/coverage.csv"]

# %%
ctx = notebook.start("12_how_sure", profile, overrides)
greedy = Text.recorded(ctx.profile, "greedy")
sampled = Text.sampled(ctx.profile)  # the same prompts at a temperature, several texts each
judged = stats.judged_domains(greedy.trace)  # with 5 prompts or more: these have intervals
prompts = greedy.trace.groupby("domain")["prompt_id"].nunique()[judged]

# %% [markdown]
# Every number of this kit comes from a sample of prompts. With other prompts of the same kind it
# would have been another number. A **95 % interval** says how far: in 95 of 100 studies, the
# interval should contain the value that all prompts of this kind would give. (A study may set
# another `level`.) How does the kit make its intervals, and are they right?
#
# ## 1. What is an interval?
# We cannot collect new prompts again and again, so we draw from those that we have (the
# *bootstrap*). One **resample** draws as many prompts as there are, with replacement: some occur
# twice, some never. Each resample gives the number once more. The interval leaves out the smallest
# and the largest of these numbers. The kit draws 2,000 resamples and keeps what lies between the
# quantiles
#
# $$\Phi\left(\pm\sqrt{\frac{n}{n-1}}\; t_{n-1}\right),$$
#
# where $n$ is the number of prompts, $t_{n-1}$ a quantile of Student's distribution (97.5 % for an
# interval of 95 %) and $\Phi$ the normal distribution. For many prompts that is the middle 95 %,
# for few prompts a little more (Hesterberg 2015). Here is the interval of one domain. `hit` says
# for each token of a greedy text whether the draft's best token was the target's.

# %% tags=["by-hand"]
rows = greedy.trace[greedy.trace["domain"] == judged[0]]
sums = rows.groupby("prompt_id")["hit"].agg(["sum", "size"])  # hits and tokens of each prompt
n = len(sums)
rng = np.random.default_rng([0, 0])
times = rng.multinomial(n, np.full(n, 1 / n), size=stats.RESAMPLES)  # how often each is drawn
resampled = times @ sums["sum"] / (times @ sums["size"])
quantiles = norm.cdf(np.sqrt(n / (n - 1)) * t.ppf(stats.tails(), n - 1))
low, high = np.quantile(resampled, quantiles)
print(f"{judged[0]}: {rows['hit'].mean():.3f} [{low:.3f}, {high:.3f}], {n} prompts")

# %%
by_kit = stats.by_domain(rows, score.mean_of("hit"), stats.RESAMPLES).at(domain=judged[0]).row
assert np.allclose([low, high], [by_kit.low, by_kit.high])

# %% [markdown]
# Why do we draw prompts and not tokens? Tokens of one text share its difficulty. If they were
# independent, each token would count as a new observation.

# %% tags=["by-hand"]
of_tokens = 2 * norm.ppf(stats.tails()[1]) * rows["hit"].astype(float).sem()
print(f"as if tokens were independent, the interval is {of_tokens:.3f} wide, not {high - low:.3f}")

# %% [markdown]
# An interval is about the mean of many prompts. One more prompt may lie far from it, and prompts of
# another kind farther still ([03](03_domain_acceptance.ipynb)).
#
# ## 2. Does an interval contain the true value?
# To know the true value, we take the prompts of a recorded run as all prompts there are. A
# simulated study draws a few of them per domain and computes its interval. The **coverage** is the
# share of studies whose interval contains the number of all prompts. All were simulated at 95 %.
# *Percentile* is the middle 95 % of the resamples; the kit's intervals are the *expanded
# percentile* of section 1. *BCa* corrects the quantiles for bias.

# %%
simulated = pd.read_csv(ROOT / READS[0], float_precision="round_trip")
has_own = (simulated["pair"] == ctx.profile.name).any()
pair = ctx.profile.name if has_own else "smollm"  # other pairs have no simulation of their own
simulated = simulated[simulated["pair"] == pair].rename(columns={"coverage": "estimate"})
simulated[stats.NUMBERS] *= 100
ctx.plot(
    simulated[["estimator", "method", "n_prompts", *stats.NUMBERS]],
    x="n_prompts",
    hue="method",
    columns="estimator",
    reference={"promised: 95 %": 95},
    limits=(None, 101),
    y="coverage (% of studies)",
    slug="coverage",
    title="Coverage of 95 % intervals by number of prompts",
    caption="Share of simulated studies whose interval contains the true value. A method is good "
    "where its curve lies on the line. Bands: intervals of the simulation.",
)

# %%
used = simulated[simulated["used"]]  # the kit's method
size = used.loc[used["n_prompts"] <= prompts.min(), "n_prompts"].max()  # the next smaller study
coverage = used.loc[used["n_prompts"] == size, "estimate"].min()
ctx.say(
    f"The studies were simulated with prompts of the pair `{pair}` (`data/coverage`). Below "
    f"{stats.FEW_PROMPTS} prompts per domain the kit warns, below {stats.MIN_PROMPTS} it gives no "
    "interval. Rare prompts are missing from a recorded run, so the true coverage may be lower."
)

# %% [markdown]
# ## 3. How many prompts does a difference need?
# The **power** of a study is the probability that its test finds a true difference. The kit's
# numbers are ratios of sums over prompts, $R = \sum a_i / \sum b_i$ (hits over tokens, tokens over
# target passes). What prompt $i$ adds to $R$ is its *influence*
#
# $$u_i = \frac{a_i - R\, b_i}{\bar b}, \qquad \text{standard error of } R = \frac{s}{\sqrt{n}},$$
#
# where $s$ is the standard deviation of $u_i$ between the prompts of a domain. A difference of two
# domains has the standard error $\sqrt{s_1^2/n_1 + s_2^2/n_2}$, and Student's test compares it with
# this error. The test has the level of the strictest step of Holm's correction for all pairs of
# domains (section 6).


# %%
def variances(rows, value):
    """Variance between prompts of the mean of a column, by domain."""
    sums = rows.groupby(["domain", "prompt_id"])[value].agg(["sum", "size"])
    by_domain = sums.groupby("domain")
    ratio = by_domain["sum"].transform("sum") / by_domain["size"].transform("sum")
    influence = (sums["sum"] - ratio * sums["size"]) / by_domain["size"].transform("mean")
    is_undefined = rows[value].isna().groupby(rows["domain"]).any()
    return influence.groupby("domain").var().mask(is_undefined)


nodes = greedy.nodes.assign(ratio=score.ratio(greedy.nodes))
between_prompts = {
    greedy.acceptance.name: variances(greedy.trace, greedy.value),
    "published_alpha": variances(nodes, "ratio"),
}

# %% [markdown]
# The resamples of section 1 should give nearly the same standard error.

# %% tags=["by-hand"]
error = np.sqrt(between_prompts[greedy.acceptance.name][judged[0]] / n)
print(f"standard error in {judged[0]}: {error:.4f}, of the resamples {resampled.std():.4f}")

# %% [markdown]
# What can this study find? The table has the smallest true difference between two domains, in
# points, that its prompts find with the probability `likely`: for the acceptance of the best token
# and for the paper's measure.

# %%
T_TEST = TTestIndPower()
pairs = list(combinations(judged, 2))
strict = level / comb(len(judged), 2) if pairs else level  # of Holm's first step


def least_difference(variance, first, second):
    """Smallest difference that the prompts of two domains find with the probability `likely`."""
    fewest = prompts[[first, second]].min()
    error = np.sqrt(variance[first] / prompts[first] + variance[second] / prompts[second])
    if not error > 1e-9:
        return np.nan  # all prompts are alike, or the number is undefined
    effect = T_TEST.solve_power(nobs1=fewest, alpha=strict, power=likely)  # in deviations
    return effect * error * np.sqrt(fewest / 2)


# %%
compares = ctx.compares(judged)
if compares:
    least = [
        (name, *pair, prompts[[*pair]].min(), least_difference(between_prompts[name], *pair))
        for name in between_prompts
        for pair in pairs
    ]
    least = pd.DataFrame(least, columns=["estimator", "first", "second", "prompts", "least"])
    points = least.assign(
        domains=least["first"] + " − " + least["second"], least=100 * least["least"]
    )
    ctx.table(
        least,
        "detectable",
        digits=1,
        cells=points.pivot(index="domains", columns="estimator", values="least"),
        caption="Least difference between two domains that this number of prompts shows, in points",
    )

# %% [markdown]
# Half the difference needs four times the prompts, since the standard error falls with $\sqrt{n}$.
# More tokens of the same prompts help little: the spread between prompts stays. The paper's
# differences of `published_alpha` are 1 to 5 points, from 50 prompts per domain.
#
# ## 4. Would another seed change the numbers?
# A sampled text is one draw, so we sampled each prompt with several seeds. The random numbers of a
# text belong to its prompt and its seed. An interval over prompts therefore contains the chance of
# the draw. We look at the acceptance of a drawn token (`alpha`), the mean of the domains.

# %%
by_seed = {
    f"seed {seed}": (rows, score.alpha) for seed, rows in sampled.trace.groupby("seed", sort=False)
}
draws = stats.jointly(by_seed | {"all seeds": (sampled.trace, score.alpha)})
alphas = draws.table(key="texts").at(domain=ALL).in_units("%", 1)
ctx.export(alphas, "seeds")
ctx.say(f"Acceptance of a drawn token: {alphas.listed('texts')}.")

# %% [markdown]
# If the seed does not matter, the texts of a prompt may change places. A **permutation test**
# shuffles them within each prompt, 5,000 times. The p-value is the share of shuffles in which the
# seeds' numbers differ at least as much as they do in fact. We know no reason why seeds would
# differ.

# %%
texts = sampled.trace.groupby(["domain", "prompt_id", "seed"])["overlap"].agg(["sum", "size"])
texts = texts.unstack("seed")
number = texts.index.get_level_values("domain").factorize()[0]
firsts = np.flatnonzero(np.diff(number, prepend=-1))  # the first prompt of each domain
totals = texts.to_numpy().reshape(len(texts), 2, -1)  # prompts, (sum, tokens), seeds


def spread(order):
    """Standard deviation of the seeds' alpha (mean of the domains), texts in another order."""
    moved = np.take_along_axis(totals, order[:, None], axis=2)
    overlap, tokens = np.moveaxis(np.add.reduceat(moved, firsts), 1, 0)
    return (overlap / tokens).mean(axis=0).std()


rng = np.random.default_rng(0)
as_drawn = np.tile(np.arange(totals.shape[2]), (len(totals), 1))
shuffled = np.array([spread(rng.permuted(as_drawn, axis=1)) for _ in range(5000)])
p_value = (1 + np.sum(shuffled >= spread(as_drawn) - 1e-12)) / 5001

# %%
pairs_of_seeds = [draws[one][ALL] - draws[other][ALL] for one, other in combinations(by_seed, 2)]
bounds = stats.bounds_of(np.transpose(pairs_of_seeds)[1:], draws.prompts.fewest)
verb = "differ" if p_value < level else "do not differ"
ctx.say(
    f"**The seeds {verb} significantly** (p = {p_value:.2g}). By the intervals of their "
    f"differences, two seeds are at most {100 * np.abs(bounds).max():.1f} points apart."
)

# %% [markdown]
# ## 5. Why do texts differ?

# %%
dots = greedy.trace.groupby(["domain", "prompt_id"], observed=True, sort=False)["hit"].mean()
numbers = stats.by_domain(greedy.trace, greedy.acceptance).without(domain=[ALL, POOLED]).frame
numbers[stats.NUMBERS] *= 100
ctx.strips(
    {"": (dots.mul(100).reset_index(), numbers)},
    "hit",
    "accepted tokens of the greedy text (%)",
    "prompts",
    title="Acceptance of the draft's best token by prompt",
    caption="Dots: prompts. Dark: the domain's number with its interval.",
)

# %% [markdown]
# Texts differ for three reasons, whose variances add up:
#
# $$\sigma^2 = \sigma^2_{\text{domain}} + \sigma^2_{\text{prompt}} + \sigma^2_{\text{draw}}.$$
#
# Domains have different levels, prompts differ from the level of their domain, and two sampled
# texts of a prompt differ by chance. The mean of $k$ texts still contains $1/k$ of the variance of
# the draw, and the level of a domain the chance of its few prompts, so we subtract both. Every
# domain counts equally. These are all our domains and not a sample of them, so we divide by their
# number.

# %% tags=["by-hand"]
if compares:
    rows = sampled.trace[sampled.trace["domain"].isin(judged)]
    texts = rows.groupby(["domain", "prompt_id", "seed"])["overlap"].mean().astype(float).unstack()
    of_prompts = texts.mean(axis=1).groupby("domain")
    draw = texts.var(axis=1).groupby("domain").mean()
    within = of_prompts.var() - draw / texts.shape[1]
    between = of_prompts.mean().var() - (of_prompts.var() / of_prompts.size()).mean()
    between *= (1 - 1 / len(judged)) / (1 - 1 / len(texts))  # these domains are all there are
    by_hand = pd.Series({"domain": between, "prompt": within.mean(), "draw": draw.mean()})
    by_hand = (by_hand / by_hand.sum()).clip(0, 1)
    print(", ".join(f"{name} {100 * share:.0f} %" for name, share in by_hand.items()))

# %%
if compares:
    of_texts = variance_components.shares(sampled.trace, "overlap")
    if by_hand.notna().all():  # else all texts are alike
        assert all(np.isclose(by_hand[name], of_texts[name].estimate) for name in of_texts)

# %% [markdown]
# The table has these shares for each set of prompts ([03](03_domain_acceptance.ipynb) describes the
# sets). Greedy texts have no draw, and only our own prompts have several sampled texts each.

# %%
others = prompt_sets.read(ctx.profile, greedy)
has_all = [
    name for name, each in others.items() if {*judged} <= {*stats.judged_domains(each.trace)}
]
if compares:
    shares = {}
    for name in has_all:
        rows = others[name].trace
        rows = rows[rows["domain"].isin(judged)]
        shares[greedy.name, name] = variance_components.shares(rows, greedy.value)
    shares[sampled.name, prompt_sets.OWN] = of_texts
    parts = {key: pd.DataFrame(map(vars, each.values()), [*each]) for key, each in shares.items()}
    reasons = stack(parts, ["temperature", "set", "part"]).drop(columns="n_prompts")
    reasons = Estimates(reasons).in_units("%")
    ctx.table(
        reasons,
        "why-texts-differ",
        rows=["temperature", "set"],
        columns="part",
        caption="Parts of the variance of acceptance between texts",
    )

# %% [markdown]
# ## 6. Which findings hold together?
# Whoever tests twenty things finds one by chance. So each notebook has at most two **primary
# outcomes**, and *Holm's correction* raises their p-values together: in 95 of 100 studies without
# any effect, none is significant. The list was written when the results of the pair `smollm` were
# known, so it binds only other pairs and later studies.
#
# Whether the domains differ otherwise on another set is one question about a linear model of the
# prompts' `hit`: domain, set, and both together. What is left is the difference between prompts,
# whose variance may depend on domain and set (HC3 standard errors; Long and Ervin 2000).


# %% tags=["by-hand"]
def of_prompts(rows):
    """hit of each prompt, in the compared domains."""
    rows = rows[rows["domain"].isin(judged)]
    return rows.groupby(["domain", "prompt_id"], sort=False)["hit"].mean()


p_values = {("12", "seeds differ"): p_value}
own = of_prompts(greedy.trace)
if compares:
    p_values["03", "domains differ"] = alexandergovern(*(own[d] for d in judged)).pvalue
with_new = [name for name in has_all if name != prompt_sets.UNWRAPPED]  # which has the same prompts
if compares and len(with_new) > 1:
    means = {name: of_prompts(others[name].trace) for name in (with_new[0], with_new[-1])}
    means = pd.concat(means, names=["set"]).reset_index()
    model = ols("hit ~ C(domain, Sum) * C(set, Sum)", means).fit(cov_type="HC3", use_t=True)
    terms = model.wald_test_terms(scalar=True).table["pvalue"]
    both = terms["C(domain, Sum):C(set, Sum)"]
    p_values["03", f"domains differ otherwise: {with_new[-1]}"] = both

# %% [markdown]
# The other outcomes are means of the domains. Each is divided by its standard error, from the
# resamples of section 1, and compared with Student's distribution for $n - 1$ degrees of freedom,
# where $n$ is the number of prompts in the smallest domain.


# %%
trace = greedy.trace[greedy.trace["domain"].isin(judged)]
chain = replace(greedy, trace=trace).chain
surer = bins.surer_pairs(bins.signals(trace), ["confidence"])
depth = greedy.nodes["depth"].max()
per_pass = score.ratio_of("emitted", "blocks")
by_depth = score.change(score.block_estimators()["accept_by_depth"])
draws = stats.jointly(
    {
        "gamma 4": (replay.prompt_sums(chain(4)), per_pass),
        "gamma 8": (replay.prompt_sums(chain(8)), per_pass),
        "depth": (replay.prompt_sums(chain(depth), "room"), by_depth),
        "auc": (surer, score.ratio_of("confidence", "pairs")),
        "hit": (trace, score.mean_of("hit")),
    }
)

# %%
speed_up = draws["gamma 8"][ALL] / 1.8 - draws["gamma 4"][ALL] / 1.4
outcomes = {
    ("02", "speed-up with 8 drafted tokens minus 4 (c = 0.1)"): speed_up,
    ("05", "AUC of the draft's confidence minus 0.5"): draws["auc"][ALL] - 0.5,
}
if depth > 1:
    outcomes["04", f"acceptance at depth {depth} minus depth 1"] = draws["depth"][ALL]
if compares:
    hit, first = draws["hit"][judged], trace.groupby("domain")["target_entropy"].mean().idxmax()
    others = hit.drop(columns=first).mean(axis=1, skipna=False)
    outcomes["06", f"hit of {first} (highest entropy) minus the others"] = hit[first] - others

# %%
rows = [(*key, np.nan, p) for key, p in p_values.items()]
n = draws.prompts.fewest
for key, values in outcomes.items():
    error = values[1:].std() * np.sqrt(n / (n - 1))
    p = 2 * t.sf(abs(values[0]) / error, n - 1) if error > 1e-12 else np.nan
    rows.append((*key, values[0], p))
primary = pd.DataFrame(rows, columns=["notebook", "outcome", "estimate", "p_value"])
primary = primary.sort_values("notebook", kind="stable", ignore_index=True)
primary["p_holm"] = holm(primary["p_value"].fillna(1))
primary["significant"] = primary["p_holm"] < level
ctx.table(
    primary,
    "primary-outcomes",
    digits=2,
    caption="The main question of each notebook, with Holm's correction over all of them",
)

# %%
kind = "an" if stats.LEVEL == 0.95 else "a 95 %"  # all were simulated so
answer = (
    f"With {prompts.min()} prompts per domain, {kind} interval contains the true value in "
    f"{coverage:.0f} of 100 simulated studies{'' if has_own else f' of `{pair}`'}."
)
largest = least.loc[least["estimator"] == greedy.acceptance.name, "least"].max() if compares else 0
if largest > 0:
    answer += f" A difference of {100 * largest:.0f} points between two domains is usually found."
ctx.answer(answer)

# %% [markdown]
# ## Try it
# This study finds a certain difference with a probability of 0.8. Set `likely = 0.95`. Does the
# difference that it finds grow by a little or by a half?
#
# <details><summary>Answer</summary>
# By about a quarter. With six pairs of domains, the difference must be 2.7 + 0.8 standard errors
# for a power of 0.8 and 2.7 + 1.6 for 0.95.</details>
#
# ## What this does not show
# Other prompts, longer texts, other models, and time, whose chance lies in the machine and not in
# the prompts ([10](10_wall_clock.ipynb)). Next: [13](13_public_runs.ipynb), where requests take the
# place of prompts.

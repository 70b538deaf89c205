# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 3. Does acceptance depend on the domain?

# %% tags=["parameters"]
# the pair and its prompts: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}
# the domains differ significantly if the p-value of their test is below this
level: float = 0.05  # 0.0001 to 0.5

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
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import alexandergovern, t

from speclab import replay, score, stats
from speclab.lab import prompt_sets, published
from speclab.lab.texts import Text
from speclab.estimates import Estimates
from speclab.score import ALL, POOLED
from speclab.show import notebook

RUNS = ["greedy", "seeds", "others"]
GAMMA = 4  # drafted tokens per pass, for the numbers of single prompts
MARGIN = 0.02  # a difference of 2 points or less counts as none

# %%
ctx = notebook.start("03_domain_acceptance", profile, overrides)
greedy = Text.recorded(ctx.profile, "greedy")  # T = 0: always the target's most likely token
sampled = Text.sampled(ctx.profile)  # tokens drawn at a temperature T, several texts each
sets = prompt_sets.read(ctx.profile, greedy)  # the profile's own prompts, then its other sets
domains = stats.judged_domains(greedy.trace)  # domains with at least five prompts

# %% [markdown]
# The [paper](https://arxiv.org/abs/2604.14682) says that a draft is accepted more often in some
# domains than in others. A domain comes with its prompts: a draft may be good at arithmetic, or
# only at prompts like those it was trained on. So we repeat the measurement on other prompts of the
# same domains.
#
# ## 1. The domains on several prompt sets
# We look at texts that the target wrote while it always took its most likely token (greedy text).
# The record of these texts is called **trace**. It has one row per position. `hit` says whether the
# draft's best token is the target's.

# %%
columns = ["prompt_id", "domain", "position", "token", "draft_rank", "hit"]
print(greedy.trace[columns].head(3).to_string(index=False))

# %% [markdown]
# A greedy decoder accepts the draft's best token where it is the target's best. With $p_t$ the
# target's and $q_t$ the draft's distribution at position $t$ of a text, the share of such positions
# is called `hit[1]`:
#
# $$\mathrm{hit}[1] = \frac{1}{n} \sum_{t=1}^{n} \mathbf{1}
#   \left[\arg\max_x q_t(x) = \arg\max_x p_t(x)\right].$$
#
# Every position counts once. A decoder starts most blocks right after a rejection, where the text
# is hard, so its first drafted tokens are accepted less often ([04](04_depth_profile.ipynb)).

# %% tags=["by-hand"]
is_best = greedy.trace["draft_rank"] == 0  # the draft's rank of the target's own token
by_hand = is_best.groupby(greedy.trace["domain"], sort=False).mean()
print(by_hand.round(2).to_string())

# %% [markdown]
# An interval says how much a number would change with other prompts of the same kind: we draw as
# many prompts as there are, with replacement, 2,000 times ([12](12_how_sure.ipynb)).

# %%
ctx.say(prompt_sets.described(ctx.profile))
HIT = score.mean_of("hit", "hit[1]")
by_set = {name: each.shown(stats.by_domain(each.trace, HIT)) for name, each in sets.items()}
by_set = Estimates.stacked(by_set, "set")
own = by_set.at(set=prompt_sets.OWN).frame.set_index("domain")["estimate"]
assert np.allclose(own, by_hand[own.index])
ctx.plot(
    by_set,
    x="set",
    kind="bars",
    limits=(0, 1),
    y="best token accepted (%)",
    slug="sets",
    title="Best token accepted, by domain and prompt set",
    caption="Share of positions where the draft's best token is the target's. Bars: intervals over "
    "prompts.",
)

# %% [markdown]
# ## 2. Is there a difference, and does it stay on other prompts?
# First the question whether there is any: `p_value` belongs to the hypothesis that all domains of a
# set have the same mean (Alexander and Govern's test over prompts; variances may differ). Then its
# size, for the two domains that are the highest and the lowest **on the own prompts**. They were
# chosen there, so there the difference tends to be too large. Last, how much smaller or larger it
# is on other prompts (`change`). A set that has other prompts is resampled by itself, and the
# smaller set decides how wide the interval is. With and without the wrapper a problem is the same,
# so both are drawn together. A domain in which a set has no new texts keeps its number.


# %%
def in_domains(each):
    """The positions of a set in the compared domains. Ids are its own unless prompts are shared."""
    rows = each.trace[each.trace["domain"].isin(domains)]
    if each.name in (prompt_sets.OWN, prompt_sets.UNWRAPPED):
        return rows
    return rows.assign(prompt_id=each.name + ": " + rows["prompt_id"])


def with_own(each):
    """hit[1] of a set and of the own prompts, and both sets' resamples."""
    rows = {"there": in_domains(each), "own": in_domains(sets[prompt_sets.OWN])}
    return stats.jointly({name: (frame, HIT) for name, frame in rows.items()}, same=False)


def spread_of(each):
    """The highest minus the lowest domain of the own prompts, its change from them, and the p-value
    of all domains.
    """
    per_prompt = in_domains(each).groupby(["domain", "prompt_id"], sort=False)["hit"].mean()
    test = alexandergovern(*(per_prompt[domain] for domain in domains))
    draws = stats.jointly({"there": (in_domains(each), HIT)})
    rows = {NAME: draws["there"][best] - draws["there"][worst]}
    table = draws.table(rows).frame.assign(p_value=test.pvalue)
    if each.name == prompt_sets.OWN:
        return table
    draws = with_own(each)
    moved = draws["there"] - draws["own"]
    change = draws.table({"change": moved[best] - moved[worst]}).frame
    return pd.concat([table, change], ignore_index=True)


# %%
differences = {}
if len(domains) > 1:
    best, worst = own[domains].idxmax(), own[domains].idxmin()
    NAME = f"{best} minus {worst}"
    for name, each in prompt_sets.complete_sets(sets).items():
        if (each.prompts[domains] >= stats.MIN_PROMPTS).all():
            differences[name] = spread_of(each)
    spreads = Estimates.stacked(differences, "set").in_units("points")
    shown = spreads.wide("set", "name").fillna("")
    shown["p_value"] = spreads.at(name=NAME).frame["p_value"]
    ctx.table(
        spreads, "spreads", cells=shown, caption="Highest minus lowest domain on each prompt set"
    )
else:
    ctx.say("There are no two domains with five prompts or more, so there is nothing to compare.")

# %% [markdown]
# What would one more prompt of the own kind give? The number of a single prompt is the tokens that
# a target pass emits with four drafted tokens. If its logarithm is normal in a domain, with the
# mean $m$ and the standard deviation $s$ of $n$ prompts, a new prompt lies with the probability of
# the level (95 %, if the study sets no other) in
#
# $$\exp\left(m \pm t_{n-1}\, s\, \sqrt{1 + 1/n}\right).$$
#
# This **prediction interval** is far wider than the interval of a mean. If other prompts were of
# the same kind, about this share of them would lie `inside`.


# %%
def tokens_per_pass(each):
    """Tokens per target pass of each prompt, by domain."""
    sums = replay.prompt_sums(each.text.chain(GAMMA)).set_index(["domain", "prompt_id"])
    return sums["emitted"] / sums["blocks"]


def for_a_new_prompt(numbers):
    """The prediction interval from the numbers of other prompts."""
    logs, n = np.log(numbers), len(numbers)
    width = t.ppf(stats.tails()[1], n - 1) * logs.std() * np.sqrt(1 + 1 / n)
    return np.exp([logs.mean() - width, logs.mean() + width])


of_own = tokens_per_pass(sets[prompt_sets.OWN])
expected = {domain: for_a_new_prompt(of_own[domain]) for domain in domains}

# %% [markdown]
# The table has each domain on the prompts of another set: how many there are, how much higher or
# lower `hit[1]` is than on the own prompts, and the share of the set's prompts inside the interval
# for a new own prompt. If one domain keeps its level where the others fall, the difference came
# with the prompts.

# %%
rows = []
for name, each in [*sets.items()][1:]:
    draws, there = with_own(each), tokens_per_pass(each)
    change = draws.table({"": draws["there"] - draws["own"]}).frame.set_index("domain")
    for domain in filter(each.new.__contains__, domains):
        least, most = expected[domain]
        place = {"set": name, "domain": domain, "prompts": each.prompts[domain]}
        inside = there[domain].between(least, most).mean()
        numbers = change.loc[domain, stats.NUMBERS].to_dict()
        rows.append(place | numbers | {"least": least, "most": most, "inside": inside})
if rows:
    changes = Estimates(pd.DataFrame(rows)).in_units("points")
    shown = changes.frame[["set", "domain", "prompts"]].assign(
        change=[stats.cell(*row, 0, "points") for row in changes.frame[stats.NUMBERS].to_numpy()],
        interval=[f"{row.least:.1f} to {row.most:.1f}" for row in changes.rows()],
        inside=[f"{100 * row.inside:.0f} %" for row in changes.rows()],
    )
    ctx.table(
        changes,
        "other-prompts",
        cells=shown.rename(
            columns={"change": "hit[1], change", "interval": "tokens per pass, new own prompt"}
        ),
        caption="Each domain on other prompts: change of the best token accepted, and the share of "
        "prompts inside the interval for a new prompt",
    )

# %% [markdown]
# ## 3. What does "acceptance" mean?
# Six quantities are called acceptance or stand for it. Three average $\min(1, p/q)$ over the nodes
# of a draft tree, as the paper does. That rule is lossless for tokens **drawn** from $q$. The nodes
# are the draft's **best** tokens, so no lossless decoder accepts them this way
# ([00](00_by_hand.ipynb)). *Exact* means that it is the acceptance of a lossless decoder.
#
# * `published_alpha`: mean of $\min(1, p/q)$ over all nodes of the tree
# * `best_path_ratio`: the same over the draft's best path
# * `published_length`: the paper's expected length (Eq. 3), the sum over depths of the product of
#   these means down to a depth
# * `hit[1]`, exact: best token accepted, greedy text
# * `alpha`, exact: a drawn token accepted, $\sum_x \min(p, q)$
# * `block_efficiency`, exact: tokens per target pass with this tree, greedy text

# %%
tree = replay.prompt_sums(greedy.tree(ctx.profile.tree))
SIX = {
    "published_alpha": (greedy.nodes, score.published_alpha),
    "best_path_ratio": (greedy.nodes, score.best_path_ratio),
    "published_length": (greedy.nodes, score.published_length),
    "hit[1]": (greedy.trace, HIT),
    "alpha": (sampled.trace, score.alpha),
    "block_efficiency": (tree, score.ratio_of("emitted", "blocks")),
}
ladder = {name: stats.by_domain(*question) for name, question in SIX.items()}
ladder = Estimates.stacked(ladder, "name").without(domain=[ALL, POOLED])
ctx.table(
    ladder,
    "ladder",
    rows="name",
    columns="domain",
    intervals=[],
    caption="Six definitions of acceptance by domain",
)

# %% [markdown]
# `alpha` is the acceptance of the rejection rule. Servers also use two other lossless rules for
# drawn tokens ([00](00_by_hand.ipynb)). **Exact match** accepts a token if the target draws the
# same one, which has probability $\sum_x q(x)\, p(x)$. This is the mean of $q$ over tokens that the
# target drew. **Block verification** accepts a chain together. The sampled texts decide the tokens
# per target pass of all three rules.

# %%
rules = {
    "rejection, drawn token": (sampled.trace, score.alpha),
    "exact match, drawn token": (sampled.trace, score.mean_of("q_token", "exact match")),
}
for rule in replay.DRAWN:
    of_seeds = sampled.trace.groupby("seed", sort=False)
    chains = pd.concat([replay.chain_sums(text, [GAMMA], rule) for _, text in of_seeds])
    rules[f"{rule}, tokens per pass"] = chains, score.ratio_of("emitted", "blocks")
by_rule = {name: stats.by_domain(*question) for name, question in rules.items()}
ctx.export(Estimates.stacked(by_rule, "name"), "rules")
drawn, matched, *per_pass = (estimator(frame) for frame, estimator in rules.values())
ctx.say(
    f"At {sampled.name} the rejection rule accepts a drawn token with probability {drawn:.2f}, "
    f"exact match with {matched:.2f}. With {GAMMA} drafted tokens, a target pass gives "
    f"{per_pass[0]:.2f} tokens by the rejection rule, {per_pass[1]:.2f} by block verification and "
    f"{per_pass[2]:.2f} by exact match."
)

# %% [markdown]
# ### A draft that is colder or hotter than the target
# If the draft draws at another temperature than the target, at $1/a$ of it, its probabilities are
#
# $$q_a(x) = \frac{q(x)^a}{Z}, \qquad Z = \sum_x q(x)^a .$$
#
# The trace has $q$ of the text's token and of the draft's best tokens, so nothing but $Z$ is
# unknown. All other tokens together have a probability $r$, and each at most $q_k$, that of the
# last of the best. For $a \geq 1$, the $m$ others add at most $r\, q_k^{a-1}$ to $Z$, and at least
# $r^a m^{1-a}$, which is their sum if all are alike. For $a < 1$ the bounds change places. At
# temperature 0 the draft's best token has the probability 1.


# %%
def q_bounds(trace, factor, others):
    """Bounds of q of the text's tokens, float64 (2, rows), if the draft draws at `factor` times the
    temperature. others: how many tokens the draft has besides its recorded best.
    """
    if factor == 0:
        return np.tile(trace["draft_rank"] == 0, (2, 1)).astype(float)
    a = 1 / factor
    best = np.stack(trace["top_draft_q"]).astype(float)
    least = best.min(axis=1)
    rest = np.where(least > 0, 1 - best.sum(axis=1), 0).clip(0)  # top-k may leave no others
    of_others = rest * np.where(least > 0, least, 1) ** (a - 1), rest**a * others ** (1 - a)
    z = (best**a).sum(axis=1) + np.sort(of_others, axis=0)[::-1]
    return (trace["q_token"].to_numpy(float) ** a / z).clip(max=1)


def rejection_blocks(q):
    """Sums of the rejection rule's blocks of GAMMA tokens, if the text's tokens have this q."""
    of_seeds = sampled.trace.assign(q_token=q).groupby("seed", sort=False)
    return pd.concat([replay.chain_sums(text, [GAMMA], "rejection") for _, text in of_seeds])


# %%
FACTORS = (0, 0.25, 0.5, 0.75, 1, 1.25)  # the draft's temperature, in the target's
PER_PASS = score.ratio_of("emitted", "blocks")
if sampled.by_start or ctx.profile.top_p < 1 or ctx.profile.min_p > 0:
    ctx.say(
        "Left out: a trace cannot say it here. Top-p and min-p would leave other tokens at another "
        "temperature, and a head's probabilities depend on where its block began. Record a run for "
        "each temperature instead."
    )
else:
    others = sampled.pair["draft"]["tokens_said"] - len(sampled.trace["top_draft_q"].iloc[0])
    by_bound = {"at least": {}, "at most": {}}
    for factor in FACTORS:
        q_of_text = q_bounds(sampled.trace, factor, others)
        for blocks, q in zip(by_bound.values(), q_of_text, strict=True):
            blocks[factor] = stats.by_domain(rejection_blocks(q), PER_PASS)
    tables = {bound: Estimates.stacked(each, "factor") for bound, each in by_bound.items()}
    ctx.plot(
        Estimates.stacked(tables, "bound").at(domain=ALL),
        x="factor",
        hue="bound",
        y="tokens per target pass",
        slug="draft-temperature",
        title="Tokens per target pass by the temperature of the draft",
        caption=f"The draft's temperature as a share of the target's, {GAMMA} drafted tokens, the "
        "rejection rule, mean of the domains. The true curve lies between the two. Bands: "
        "intervals over prompts.",
    )

# %% [markdown]
# The paper's Tables I to III beside this pair's numbers are in `table-1.csv` to `table-3.csv`. The
# entropies are in [06](06_chat_paradox.ipynb).

# %%
for number, slug in {"I": "table-1", "II": "table-2", "III": "table-3"}.items():
    table = published.comparison(number, greedy, tree=ctx.profile.tree)
    ctx.export(
        table.dropna(axis=1, how="all"),
        slug,
        cells=published.cells_of_table(table),
        caption="Tables of the paper, and the same quantities of this pair",
    )

# %% [markdown]
# ## 4. How far apart are the two models?
# Acceptance looks at one token. Two distances take all tokens at each position of the greedy texts:
#
# $$\mathrm{TV} = 1 - \sum_x \min(p, q), \qquad
#   \mathrm{KL} = \sum_x p(x) \ln \frac{p(x)}{q(x)} .$$
#
# TV (total variation) is the probability that a token drawn at such a position is rejected.
# (`alpha` above is of other texts: those drawn at a temperature.) KL is in nats. It would be
# infinite where a small vocabulary lacks a token, so $q$ has a floor (see GLOSSARY.md).

# %%
trace = {name: each.trace.assign(tv=1 - each.trace["overlap"]) for name, each in sets.items()}
apart = {}
for name, each in sets.items():
    questions = {"TV": (trace[name], score.mean_of("tv")), "KL": (trace[name], score.mean_of("kl"))}
    draws = stats.jointly(questions)
    apart[name] = each.shown(draws.table(key="distance")).drop(columns="note")
apart = Estimates.stacked(apart, "set")
ctx.table(
    apart,
    "distance",
    cells=apart.wide(["distance", "set"], "domain", []).fillna(""),
    caption="Distance of the draft's distribution from the target's",
)

# %%
WHAT = {  # what differs from the own prompts
    prompt_sets.UNWRAPPED: "the same problems",
    prompt_sets.SECOND: "other texts in another form",
    prompt_sets.ENGLISH: "other texts in another form",
}


def kind_of_change(row):
    """The verdict of a change; WITHIN: its interval lies inside the margin."""
    is_none = stats.verdict(row.low, row.high, (-MARGIN, MARGIN)) == stats.WITHIN
    return stats.WITHIN if is_none else stats.verdict(row.low, row.high)


# %%
answer = "We cannot compare: fewer than two domains have five prompts or more."
if differences:
    gap, other = spreads.at(set=prompt_sets.OWN, name=NAME).row, [*differences][-1]
    numbers = stats.jointly({"hit": (in_domains(sets[prompt_sets.OWN]), HIT)})["hit"]
    pairs = [numbers[one] - numbers[another] for one, another in combinations(domains, 2)]
    fewest = sets[prompt_sets.OWN].prompts[domains].min()
    most = 100 * np.abs(stats.bounds_of(np.transpose(pairs)[1:], fewest)).max()
    answer = f"No difference was found, but one of {most:.0f} points is possible."
    if np.isnan(gap.p_value):
        answer = "It cannot be tested on these prompts."
    elif gap.p_value < level:
        answer = f"The draft's best token is right {100 * gap.estimate:.0f} points more often"
        answer = f"{answer} in {best} (highest) than in {worst} (lowest)."
    elif most <= 100 * MARGIN:
        answer = f"No. Any two domains differ by at most {most:.1f} points."

# %%
if differences and gap.p_value < level:
    answer = f"Yes. {answer}"
if differences and gap.p_value < level and other != prompt_sets.OWN:
    change = spreads.at(set=other, name="change").row
    size = f"{100 * abs(change.estimate):.0f} points"
    ends = f"{100 * change.low:.0f} to {100 * change.high:.0f}".replace("-", "\N{MINUS SIGN}")
    THERE = {
        stats.BELOW: f"the difference is {size} smaller",
        stats.ABOVE: f"the difference is {size} larger",
        stats.WITHIN: f"the difference stays within {100 * MARGIN:.0f} points",
        stats.INCONCLUSIVE: f"the change is inconclusive ({ends} points)",
        stats.UNDEFINED: "its change cannot be said",
    }
    verdict = kind_of_change(change)
    if verdict == stats.BELOW:
        answer = answer.replace("Yes.", "Less than it seems.", 1)
    answer += f" On {sets[other].in_words}, {WHAT.get(other, 'other texts')}, {THERE[verdict]}."
ctx.answer(answer)

# %% [markdown]
# ## Try it
# By hand: the draft's two best tokens have $q$ = 0.5 and 0.4, and the target gives them $p$ = 0.6
# and 0.3. What is `published_alpha` of these two nodes? How likely is it that a decoder at T = 0
# accepts one of them, and at T = 1?
#
# <details><summary>Answer</summary>
# $\min(1, 0.6/0.5) = 1$ and $\min(1, 0.3/0.4) = 0.75$, so the mean is 0.875. At T = 0 the target's
# best token is one of the two, so one of them is accepted. At T = 1 one of the two is accepted with
# probability 0.6 + 0.3 = 0.9. One tree gives three different numbers.</details>
#
# ## What this does not show
# Why other prompts differ: they have other texts, another form, and no draft was trained on their
# form. Only a set that takes the wrapper away changes the form alone. Other pairs are in
# [13](13_public_runs.ipynb). This is one question of several: [12](12_how_sure.ipynb) corrects for
# their number.

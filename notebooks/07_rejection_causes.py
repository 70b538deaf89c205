# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 7. Which rejections cost most, and where was the right token?

# %% tags=["parameters"]
profile: str = "smollm"  # the pair and its prompts: a name from notebooks/profiles, or a YAML file
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}
gamma: int = 4  # 1 to 64; draft tokens in a row
ngram: int = 3  # 1 to 16; tokens of the longest run that prompt lookup looks for
cuts: list = [0.2, 0.4, 0.6, 0.8]  # 0.01 to 0.99; where section 3 cuts the confidences
smallest: float = 0.002  # 0 to 1; the share of each domain's positions that a class needs

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
from itertools import pairwise, product

import numpy as np
import pandas as pd

from speclab import copying, replay, score, stats
from speclab.study import runs
from speclab.lab import bins, prompt_sets, token_kinds
from speclab.lab.texts import Text
from speclab.estimates import Estimates
from speclab.models.folder import ModelFolder
from speclab.score import ALL, POOLED
from speclab.show import notebook, pictures

RUNS = ["greedy", "others"]

# %%
ctx = notebook.start("07_rejection_causes", profile, overrides)
text = Text.recorded(ctx.profile, "greedy")  # the target's own text, one row per position
domains = stats.judged_domains(text.trace)  # domains with at least five prompts
said = text.pair["draft"]["tokens_said"]  # size of the draft's vocabulary
tokenizer = ModelFolder.fetched(ctx.profile.target).tokenizer
strings = pictures.strings_of(tokenizer)  # the text of each token

# %% [markdown]
# A rejection ends a block, and every token that was drafted after it is lost. Before we improve a
# draft, or stop it in time, we want to know where it fails: at numbers, at the beginnings of words,
# where it is unsure, or where its vocabulary lacks the token? A class with half of all positions
# has about half of the rejections. So we ask what it costs more than equally many positions at
# random.
#
# ## 1. Which classes of positions are there?
# A position is **rejected** if the draft's best token is not the target's best, that is, if the
# target's token has a `draft_rank` above 0. Every position, rejected or not, has
# * a **kind**: what its token is (keywords and identifiers count as the start of a word);
# * a **confidence** of each model: the probability that the draft gives its best token
#   (`confidence`), and the target its own (`p_token`).
#
# Some tokens are outside the draft's vocabulary, so that they are always rejected.
#
# What counts as unsure would depend on where we cut a confidence. So the class *draft unsure* has
# no cut. A position belongs to it with a weight $w$ from 0 to 1: the share of the domain's
# positions at which the draft is at least as sure. *Target unsure* is the same for the target. Both
# classes are equally large.

# %%
UNSURE = {"draft unsure": "confidence", "target unsure": "p_token"}


def positions_of(trace):
    """The positions, with their weights in the classes without a cut."""
    positions = bins.signals(trace[trace["domain"].isin(domains)]).reset_index(drop=True)
    ranked = positions.groupby("domain")[[*UNSURE.values()]].rank(ascending=False, pct=True)
    return positions.assign(
        rejected=positions["draft_rank"] > 0,
        **{name: ranked[column] for name, column in UNSURE.items()},
    )


positions = positions_of(text.trace)
if not positions["rejected"].any():
    ctx.leave_out("needs rejections, and the draft is always right")
kinds = token_kinds.token_kinds(positions, strings).astype(str)
positions["kind"] = kinds.replace({"keyword": "word start", "identifier": "word start"})
shown = ["position", "kind", "draft_rank", "confidence", "p_token", *UNSURE]
notebook.show_table(positions[shown].head(2))

# %% [markdown]
# ## 2. What does a class cost beyond its size?
# We replay the text as if the draft had been right at every position of the class. This is exact
# for greedy text, because the text does not depend on the draft. A class $C$ then needs $B(C)$
# target passes for the $n$ tokens, and $C$ positions at random need $B(|C|)$ on average:
#
# $$\mathrm{excess}(C) = \frac{n}{B(C)} - \frac{n}{B(|C|)}
#   \quad \text{tokens per target pass.}$$
#
# An excess counts all rejections of a class together. A class may have more of them than others, or
# rejections that cost more each.

# %% tags=["by-hand"]
tokens = len(positions)


def tau_of(corrected):
    """Tokens per target pass if the draft is right at these positions."""
    ranks = positions["draft_rank"].mask(corrected, 0)
    return tokens / len(replay.replay(positions.assign(draft_rank=ranks), gamma))


rng = np.random.default_rng(0)
begins = positions["kind"] == "word start"
at_random = [tau_of(rng.permutation(begins)) for _ in range(20)]
by_hand = tau_of(begins) - np.mean(at_random)
print(f"as it is {tau_of(positions['rejected'] & False):.2f},")
print(f"right where a word begins {tau_of(begins):.2f},")
print(f"right at as many random positions {np.mean(at_random):.2f}: excess {by_hand:.2f}")

# %% [markdown]
# The kit needs no random draws. If each position is corrected with a probability, the expected
# number of passes is exact: a wrong draft is accepted with this probability. It is $w$ for a class
# with weights, and the same everywhere for positions at random (41 shares, interpolated).

# %%
SHARES = np.linspace(0, 1, 41)


def passes(positions, share):
    """Expected target passes of each prompt if positions are corrected with this probability."""
    chance = np.where(positions["rejected"], share, 1.0)
    blocks = replay.replay_sampled(positions.assign(p_token=1.0, q_token=chance), gamma)
    return blocks.groupby("prompt_id", sort=False)["weight"].sum()


def excess(sums):
    """From sums over prompts: tokens, positions of the class, passes, and passes at random."""
    tokens, inside, of_class, at_random = np.split(sums, [1, 2, 3], axis=-1)
    place = inside / tokens * (len(SHARES) - 1)
    step = np.minimum(place.astype(int), len(SHARES) - 2)
    fewer, more = (np.take_along_axis(at_random, step + i, -1) for i in (0, 1))
    found = tokens / of_class - tokens / (fewer + (place - step) * (more - fewer))
    return np.where(inside > 0, found, np.nan)  # undefined where no token is of the class


# %%
def excesses(positions, classes, value=excess):
    """The excess of each class (a column of weights) in every resample of prompts."""
    at_random = pd.concat([passes(positions, share) for share in SHARES], axis=1)
    prompts = positions.groupby("prompt_id", sort=False)["domain"].agg(["first", "size"])
    rows = prompts["first"].rename("domain").reset_index()
    questions = {}
    for name in classes:
        inside = classes[name].astype(float)
        size = inside.groupby(positions["prompt_id"], sort=False).sum()
        sums = [prompts["size"], size, passes(positions, inside), at_random]
        columns = pd.concat(sums, axis=1).loc[prompts.index].to_numpy(float)
        questions[name] = rows, score.Estimator("excess", lambda _, to=columns: to, value)
    return stats.jointly(questions)


def large(positions, classes):
    """Names of the classes that each domain has, so that all means are over the same domains."""
    shares = classes.astype(float).groupby(positions["domain"]).mean().min()
    return list(shares.index[shares >= smallest])


# %%
classes = pd.get_dummies(positions["kind"], prefix="kind", prefix_sep=": ", dtype=float)
classes = classes.join(positions[[*UNSURE]])
lacking = positions["draft_rank"] >= said
if lacking.any():
    classes["outside the draft's vocabulary"] = lacking.astype(float)
causes = excesses(positions, classes).table(key="class")
if begins.any():  # the draws by hand differ by chance
    kit = causes.at(domain=POOLED, **{"class": "kind: word start"})
    assert np.isclose(by_hand, kit.value, atol=max(np.ptp(at_random), 0.01))


# %%
shares = 100 * classes.groupby(positions["domain"]).mean().mean()
means = causes.at(domain=ALL, **{"class": large(positions, classes)}).wide("class", "domain")
sizes = means["class"].map(shares).round().astype(int)
means.insert(1, "share of positions (%)", sizes)
ctx.table(
    causes,
    "causes",
    cells=means.rename(columns={ALL: "excess"}),
    caption="Size and excess cost of the classes of positions, mean of the domains",
)

# %% [markdown]
# The table has the means of the domains, for classes that occur in every domain (`smallest`);
# `causes.csv` has each domain. No rule that stops at low confidence avoids a rejection where the
# draft is sure and wrong. Excesses do not add up: of two rejections close together both must be
# corrected before a block grows.
#
# ## 3. Is it the draft's confidence or the target's?
# We cut both confidences into parts. A cell of this grid is a class of positions that has a part of
# each. Cells differ in size, so we show the excess per tenth of all positions. No number of the
# answer depends on the cuts.


# %%
def per_tenth(sums):
    """The excess of a class divided by ten times its share of the positions."""
    tokens, inside = sums[..., :1], sums[..., 1:2]
    return score.divide(excess(sums), 10 * inside / tokens)


ends = [0, *sorted({*cuts}), 1]
parts = np.array([f"{low:g} to {high:g}" for low, high in pairwise(ends)])
draft, target = (parts[np.digitize(positions[name], ends[1:-1])] for name in UNSURE.values())
grid = pd.get_dummies([f"{i}; target {j}" for i, j in zip(draft, target, strict=True)])
if drawn := large(positions, grid):
    surface = excesses(positions, grid[drawn], per_tenth).table(key="cell").at(domain=ALL).frame
    every = [f"{i}; target {j}" for i, j in product(parts, parts)]  # in the order of the parts
    surface = surface.set_index("cell").reindex(every).reset_index()
    surface[["draft", "target"]] = surface["cell"].str.split("; ", expand=True)
    ctx.plot(
        surface,
        x="draft",
        hue="target",
        kind="points",
        reference={"": 0},
        y="excess per tenth of the positions\n(tokens per target pass)",
        x_label="draft's confidence",
        slug="surface",
        title="Excess cost of positions, by the confidence of both models",
        caption="Mean of the domains. Where the parts of the target's confidence lie together, the "
        "draft's confidence decides. Where one is missing, a domain has too few such positions. "
        "Bars: intervals over prompts.",
    )

# %% [markdown]
# ## 4. Where was the right token?
# If the draft's best token is wrong, the target's token may be the draft's second choice or its
# tenth. Its **rank** is 0 for the draft's best token and 1 for its second choice.

# %%
RANKS = ["1", "2", "3 to 4", "5 to 8", "9 to 64", "above 64"]
rank = pd.cut(positions["draft_rank"], [0, 1, 2, 4, 8, 64, np.inf], labels=RANKS)
rank = rank.cat.add_categories("never").mask(lacking, "never").cat.remove_unused_categories()
choices = pd.get_dummies(rank, dtype=float)
rows = positions.join(choices)
found = stats.jointly({name: (rows, score.ratio_of(name, "rejected")) for name in choices})
found = found.table(key="rank")
ctx.plot(
    found.at(domain=domains),
    x="rank",
    kind="points",
    limits=(0, None),
    y="share of the rejections (%)",
    x_label="rank of the right token under the draft",
    slug="rank-where-found",
    title="Where the right token was at a rejection",
    caption="Share of each domain's rejections by the rank of the target's token. Never: the "
    "draft's vocabulary lacks the token. Bars: intervals over prompts.",
)

# %% [markdown]
# **Prompt lookup** is another place to look, and it needs no model. It finds where the last tokens
# (at most `ngram`) occurred before in prompt and text, and proposes the token that followed. Any
# decoder could follow this rule: where the draft's confidence is below a threshold and lookup has a
# match, propose lookup's token. A proposal counts only if all before it were accepted, so lookup
# has then seen the true text, and the replay is exact.

# %%
encoded = runs.encoded_prompts(runs.of_kind(ctx.profile, "greedy"))
prompts = {prompt.prompt_id: prompt.ids for prompt in encoded}
copies = [
    copying.replayed(prompts[name], tokens, ngram, most=1)
    for name, tokens in positions.groupby("prompt_id", sort=False)["token"]
]
has_match, is_right = (np.concatenate(each) > 0 for each in zip(*copies, strict=True))

# %%
per_pass = score.ratio_of("emitted", "blocks")
questions = {0: (replay.prompt_sums(replay.replay(positions, gamma)), per_pass)}
for threshold in np.round(np.arange(0.1, 1.01, 0.1), 1):
    is_copied = has_match & (positions["confidence"] < threshold)
    ranks = positions["draft_rank"].mask(is_copied, (~is_right).astype(int))  # 0 is right
    blocks = replay.replay(positions.assign(draft_rank=ranks), gamma)
    questions[threshold] = replay.prompt_sums(blocks), per_pass
draws = stats.jointly(questions)
gains = {threshold: draws[threshold] - draws[0] for threshold in [*questions][1:]}
mixed = draws.table(gains, key="threshold").at(domain=domains)
ctx.plot(
    mixed,
    x="threshold",
    y="gain over the draft alone\n(tokens per target pass)",
    x_label="threshold of the draft's confidence",
    reference={"draft alone": 0},
    slug="lookup-where-unsure",
    title="What lookup gains where the draft is unsure",
    caption="Lookup's token is proposed where the draft's confidence is below the threshold and "
    "lookup has a match. Bands: intervals over prompts.",
)

# %% [markdown]
# ## 5. Do other prompts give the same result?
# The table has the mean of the domains on each set with new texts in all of them
# ([03](03_domain_acceptance.ipynb) describes the sets): the excess of *draft unsure* minus the
# excess of *target unsure*, and the shares of the rejections at which the draft's second choice was
# right, or its vocabulary lacks the token (never). `other-prompts.csv` and `other-ranks.csv` have
# each domain and all sets.

# %%
sets = prompt_sets.read(ctx.profile, text)
whole = [name for name, each in sets.items() if {*domains} <= {*each.new} and not each.is_part]
contrasts, ranks = {}, {}
for name, each in sets.items():
    new = each.trace[each.trace["domain"].isin(each.new)]
    if new["domain"].isin(domains).any():
        rows = positions_of(new)
        draws = excesses(rows, rows[[*UNSURE]])
        difference = draws["draft unsure"] - draws["target unsure"]
        is_there = {"second choice": rows["draft_rank"] == 1, "never": rows["draft_rank"] >= said}
        rows = rows.assign(**is_there)
        asked = {where: (rows, score.ratio_of(where, "rejected")) for where in is_there}
        dropped = [POOLED] if name in whole else [POOLED, ALL]
        contrasts[name] = draws.table({"difference": difference}).without(domain=dropped)
        ranks[name] = stats.jointly(asked).table(key="where").without(domain=dropped)

# %%
contrasts = Estimates.stacked(contrasts, "set")
ranks = Estimates.stacked(ranks, "set").in_units("%")
if said >= len(strings):  # a draft that has every token cannot lack one
    ranks = ranks.without(where="never")
ctx.export(ranks, "other-ranks")
cells = contrasts.at(domain=ALL).wide("set", "name")
cells = cells.merge(ranks.at(domain=ALL).wide("set", "where"))
ctx.table(
    contrasts,
    "other-prompts",
    cells=cells.rename(columns={"difference": "draft minus target unsure"}),
    caption="Excess where the draft is unsure minus where the target is, and where the right token "
    "was, by prompt set (mean of the domains)",
)

# %%
COST = {
    stats.ABOVE: "In all, rejections cost more where the draft is unsure than where the target is.",
    stats.BELOW: "In all, rejections cost more where the target is unsure than where the draft is.",
    stats.INCONCLUSIVE: "It is unclear whether rejections cost more where the draft or the target "
    "is unsure.",
    stats.UNDEFINED: "There are too few prompts to say which rejections cost most.",
}
last = whole[-1]  # own prompts, if no other set has new texts in every domain
verdicts = {contrasts.at(set=name, domain=ALL).verdict() for name in (prompt_sets.OWN, last)}
verdicts = verdicts - {stats.UNDEFINED} or verdicts
answer = COST[verdicts.pop() if len(verdicts) == 1 else stats.INCONCLUSIVE]
share = {
    (row.where, row.set): f"{100 * row.estimate:.0f} %"
    for row in ranks.at(domain=ALL).rows()
    if np.isfinite(row.estimate)
}
if own := share.get(("second choice", prompt_sets.OWN)):
    answer += f" At {own} the draft's second choice was right"
    other = last != prompt_sets.OWN and share.get(("second choice", last))
    answer += f" ({other} on {sets[last].in_words})." if other else "."
if own := share.get(("never", prompt_sets.OWN)):
    answer += f" At {own} its vocabulary lacks the token."
ctx.answer(answer)

# %% [markdown]
# ## Try it
# A text of ten tokens has the draft ranks 0 1 0 0 2 0 0 0 0 3. Which blocks does a chain of 4 make,
# and how many tokens per target pass is that? What is gained if the rank 1 were 0, or the rank 2?
#
# <details><summary>What happens</summary>
# The blocks are (0, 1), (2, 3, 4) and (5, 6, 7, 8, 9): 10 tokens in 3 passes, 3.33 per pass. With
# position 1 corrected the blocks are (0 to 4) and (5 to 9), 5 tokens per pass: the rank 2 is now at
# a bonus token. With only position 4 corrected they are (0, 1), (2 to 6) and (7, 8, 9), so nothing
# is gained.</details>

# %% [markdown]
# ## What this does not show
# A cause in the strict sense, except for tokens outside the draft's vocabulary: a number often
# stands where the target is unsure. The corrected draft is right at once and at no cost; a real
# better draft changes everywhere. Next:
# [08](08_better_drafts.ipynb), better drafts.

# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 2. How many tokens should the draft propose?

# %% tags=["parameters"]
# the pair and its prompts: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}
largest_gamma: int = 16  # 1 to 64; drafted tokens in a row, gamma, from 1 to this number
gamma: int = 4  # 1 to 64; the gamma of the example text and of the tables
# c, time of a draft pass divided by the time of a target pass (assumed, not measured)
cost_ratio: float = 0.1  # 0 to 10; the cost in the answer and on other prompts
other_cost_ratios: list = [0.05, 0.15]  # 0 to 10; further costs in section 3

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
import pandas as pd

from speclab.logs import passes
from speclab import replay, score, stats
from speclab.logs import log_gammas
from speclab.lab import prompt_sets
from speclab.lab.texts import Text
from speclab.study import runs, timing_runs
from speclab.cost import Costs
from speclab.estimates import Estimates
from speclab.score import ALL, POOLED
from speclab.show import figures, notebook, pictures

RUNS = ["greedy", "seeds", "others"]

# %%
ctx = notebook.start("02_gamma_sweep", profile, overrides)
greedy = Text.recorded(ctx.profile, "greedy")  # T = 0: always the target's most likely token
sampled = Text.sampled(ctx.profile)  # tokens drawn at a temperature T, several texts each
domains = list(score.domains_in(greedy.trace))
gammas = range(1, max(largest_gamma, gamma) + 1)
costs = sorted({cost_ratio, *other_cost_ratios})

# %% [markdown]
# The draft model proposes $\gamma$ tokens (gamma), and one pass of the target model checks them
# all. The target keeps the tokens before the first one that differs from its own choice, and adds
# one token itself. So a target pass gives between 1 and $\gamma + 1$ tokens. A larger $\gamma$
# gives more tokens per target pass and costs more draft passes. How long should the draft be?
#
# ## 1. One text, cut into blocks
# The target's text does not depend on $\gamma$ if it always takes its most likely token (greedy
# text). Only the division into target passes changes. While the draft is right, it reads the
# target's text. So its choice at each position, recorded once, is its choice in every block, and no
# model runs here. The record of a text is called **trace**. It has one row per position.
# `draft_rank` is the rank that the draft gave to the target's token, and 0 is the draft's best.

# %%
columns = ["prompt_id", "position", "token", "draft_rank", "q_token", "p_token"]
print(greedy.trace[columns].head(3).round(2).to_string(index=False))

# %% [markdown]
# A **block** is what one target pass gives: the accepted tokens and one of the target's own. This
# loop divides one text into blocks.

# %% tags=["by-hand"]
mine = greedy.trace[greedy.trace["prompt_id"] == greedy.trace["prompt_id"].iloc[0]]
ahead = replay.ranks_ahead(mine, gamma)  # the draft's ranks of the next gamma tokens
start, emitted = 0, []
while start < len(ahead):
    accepted = (ahead[start] == 0).cumprod().sum()  # up to the first that is not its best
    emitted.append(int(min(accepted + 1, len(ahead) - start)))  # and one of the target's own
    start += emitted[-1]
print(f"{len(ahead)} tokens in {len(emitted)} target passes with gamma = {gamma}: {emitted}")

# %%
assert emitted == replay.replay(mine, gamma)["emitted"].tolist()
shown = sorted({1, 2, 4, 8, 16, gamma, largest_gamma} & {*gammas})
blocks = pd.concat({g: replay.replay(mine, g) for g in shown}, names=["gamma"])
blocks = blocks.reset_index("gamma")[["gamma", "start", "accepted", "emitted", "drafted"]]


def draw_text(blocks: pd.DataFrame) -> figures.Figure:
    """One line per gamma: the accepted tokens of each block, and the target's own token."""
    line, names = pd.factorize("gamma " + blocks["gamma"].astype(str))
    figure, axes = figures.subplots(height=0.9 + 0.27 * len(names))
    end = blocks["start"] + blocks["accepted"]
    own = blocks["emitted"] - blocks["accepted"]  # 0 where the text ends within a block
    colour = pictures.LOOKS["accepted"].face
    labels = ("accepted draft tokens", "target's own token")
    axes.barh(line, blocks["accepted"], left=blocks["start"], color=colour, label=labels[0])
    axes.barh(line, own, left=end, color="#444444", edgecolor="white", label=labels[1])
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(False)
    axes.set_xlabel("position in the text (tokens)")
    return figure


# %%
ctx.draw(
    draw_text,
    blocks,
    "one-text",
    title="One text, cut into blocks by each gamma",
    caption="Each dark cell is the target's own token and ends a target pass. The fewer dark "
    "cells, the fewer target passes.",
)

# %% [markdown]
# ## 2. Tokens per target pass
# The mean number of tokens per target pass is
#
# $$\tau(\gamma) = \frac{\text{tokens emitted}}{\text{target passes}} .$$
#
# At a temperature $T$ above 0 the draft draws its tokens from its distribution $q$, and each is
# accepted with probability $\min(1, p/q)$, where $p$ is the target's. There the replay counts
# expected tokens ([00](00_by_hand.ipynb)). The textbook formula
# $(1 - \alpha^{\gamma + 1}) / (1 - \alpha)$ assumes that every token is accepted with the same
# probability $\alpha$, independently of the others. Accepted tokens come in streaks instead
# ([04](04_depth_profile.ipynb)), so we count.
#
# An interval says how much a number would change with other prompts of the same kind: we draw as
# many prompts as there are, with replacement, 2,000 times ([12](12_how_sure.ipynb)).

# %%
TAU = score.ratio_of("emitted", "blocks")


def tau_of(text):
    """Tokens per target pass for each gamma, over the same resamples of prompts."""
    sums = replay.sums_by_gamma(text.chain, gammas)
    return stats.jointly({g: (rows, TAU) for g, rows in sums.groupby("gamma")})


tau = {text.name: tau_of(text) for text in (greedy, sampled)}
curves = {name: draws.table(key="gamma") for name, draws in tau.items()}
curves = Estimates.stacked(curves, "temperature").without(domain=[ALL, POOLED])
ctx.plot(
    curves,
    x="gamma",
    columns="temperature",
    limits=(1, None),
    y="tokens per target pass",
    slug="block-efficiency",
    title="Tokens per target pass by gamma",
    caption="Where a curve is flat, more drafted tokens gain nothing. Bands: intervals over "
    "prompts.",
)
notebook.show_table(curves.at(gamma=gamma).wide(["temperature", "gamma"], "domain"))

# %% [markdown]
# ## 3. Which gamma is fastest?
# A draft pass costs $c$ target passes. A block then costs $\gamma c + 1$, if checking
# $\gamma + 1$ tokens takes as long as one token, and the speed-up over plain decoding is
#
# $$S(\gamma, c) = \frac{\tau(\gamma)}{\gamma c + 1} .$$
#
# Your $c$ depends on your machine, so here are several. *As measured* has the costs of timing runs
# ([10](10_wall_clock.ipynb)), if there are any of this pair. There a block costs
# $\gamma c + v(\gamma + 1) + o$: $v(n)$ is the time of a pass over $n$ tokens, and $o$ the time of
# the loop around the passes, both in target passes over one token. Where $v$ has a step, a curve
# has a dip.

# %%
MEASURED = "as measured"
found = timing_runs.costs_for(runs.load_or_record(ctx.profile, "greedy"))
price = {f"c = {c:g}": Costs.assumed(c) for c in costs}
if found.runs:
    price[MEASURED] = found.costs
    ctx.say(f"*As measured*: {found.source}")


# %%
def speed_of(draws):
    """Speed-up by cost, gamma and domain."""
    tables = {}
    for name, used in price.items():
        speed = {g: draws[g] / used.of_chain(g) for g in gammas}
        tables[name] = draws.table(speed, key="gamma")
    return Estimates.stacked(tables, "cost")


speed = speed_of(tau[greedy.name])
ctx.plot(
    speed.at(domain=domains),
    x="gamma",
    columns="cost",
    reference={"no drafting": 1},
    y="speed-up",
    slug="speed-up",
    title="Speed-up by gamma and by the cost of the draft",
    caption="Greedy text. Left of its top a draft is too short, right of it too long. Bands: "
    "intervals over prompts.",
)

# %% [markdown]
# The best gamma is where a curve has its top. It is 0, plain decoding, where no draft is faster.


# %%
def best_of(speed):
    """The best gamma and its speed-up by cost and domain."""
    keys = ["cost", "domain", "gamma"]
    by_gamma = speed.frame.set_index(keys)["estimate"].unstack(sort=False)
    by_gamma.insert(0, 0, 1.0)  # plain decoding
    return pd.DataFrame(
        {
            "best gamma": by_gamma.idxmax(axis=1),
            "speed-up": by_gamma.max(axis=1),
            f"speed-up with gamma = {gamma}": by_gamma[gamma],
        }
    )


best = best_of(speed)
of_domains = best.drop([ALL, POOLED], level="domain").reset_index()
ctx.table(
    of_domains,
    "best-gamma",
    digits=2,
    most=24,
    caption="Best gamma by relative cost of a draft pass and by domain",
)

# %% [markdown]
# Near its top a curve is flat. Far from it, drafting can be slower than plain decoding. The end of
# a text cuts its last block, which lowers $\tau$ a little, the more the larger $\gamma$ is.
#
# ## 4. Does it hold on other prompts?

# %%
ctx.say(prompt_sets.described(ctx.profile))
sets = prompt_sets.read(ctx.profile, greedy)
best_on = {name: best_of(speed_of(tau_of(each.text))) for name, each in sets.items()}
assumed = f"c = {cost_ratio:g}"
rows = {}
for name, each in sets.items():
    own = best_on[name].loc[assumed].loc[list(each.new)]  # in other domains its texts are not new
    rows[name] = own.assign(prompts=each.prompts)
elsewhere = pd.concat(rows, names=["set", "domain"]).reset_index()
ctx.table(
    elsewhere,
    "best-gamma-other-prompts",
    digits=2,
    most=24,
    caption="Best gamma on each prompt set",
)

# %% [markdown]
# ## 5. Which gamma does another page name, and why?
# The best gamma depends on the prompts, on the rule and on $c$. [14](14_your_log.ipynb) reads a log
# instead of a trace. A log does not say what follows a draft that was accepted in full, so that
# page estimates it. Here the log is our own blocks. For a decoder of yours the row with its prompts
# and its cost counts.

# %%
best_sampled = best_of(speed_of(tau[sampled.name]))
last = prompt_sets.last(sets)
log = passes.passes_of_replay(replay.replay(greedy.trace, gamma))
ways = {}
for name, used in price.items():
    spans = {}
    for each in (sets[prompt_sets.OWN], last):
        numbers = best_on[each.name].loc[name].loc[list(each.new), "best gamma"]
        ends = dict.fromkeys([numbers.min(), numbers.max()])
        spans[f"each domain by itself, {each.name}"] = " to ".join(map(str, ends))
    spans[f"all prompts together, {greedy.name}"] = best.loc[(name, POOLED), "best gamma"]
    spans[f"all prompts together, {sampled.name}"] = best_sampled.loc[(name, POOLED), "best gamma"]
    if not greedy.by_start:  # a log of a head says nothing about another gamma
        from_log = log_gammas.gamma_to_try(log, used, largest_gamma)
        spans[f"from a log with gamma = {gamma}"] = from_log[0]
    ways[name] = spans
ctx.table(
    pd.DataFrame(ways).rename_axis("best gamma for").reset_index(),
    "every-gamma",
    caption="Every gamma that the kit names, and for what it is the best",
)

# %%
said = []
for each in dict.fromkeys([prompt_sets.OWN, last.name]):
    ends = rows[each]["best gamma"].agg(["min", "max"]).astype(str)
    said.append(f"{' to '.join(dict.fromkeys(ends))} drafted tokens on {sets[each].in_words}")
ctx.answer(
    f"At the assumed costs, the domains are fastest with {' and with '.join(said)}. Near the best "
    "gamma speeds hardly differ."
)

# %% [markdown]
# ## Try it
# 1. Set `gamma = 1`. Which share of the gain of $\gamma = 4$ is left, and why so much?
#
# <details><summary>Answer</summary>
# Nearly half (on `smollm` 0.5 of 1.2 tokens per target pass). Every further token counts only where
# all earlier ones were right.</details>
#
# 2. A draft is right at three positions, wrong at the next, and so on without end. How many tokens
#    per target pass do $\gamma = 3$ and 8 give? What does the textbook formula say for
#    $\gamma = 3$?
#
# <details><summary>Answer</summary>
# Every target pass gives 4 tokens, so a draft longer than 3 gains nothing. The formula with
# $\alpha = 3/4$ says $(1 - 0.75^4) / 0.25 = 2.73$. It is too low, because the rejections are spread
# evenly.</details>
#
# ## What this does not show
# Trees ([09](09_budgets_and_routing.ipynb)), copied drafts ([08](08_better_drafts.ipynb)), and
# time: all numbers here are counts, and *as measured* divides them by measured costs. The best
# gamma was chosen on the prompts that it is shown for.

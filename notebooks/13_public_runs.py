# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 13. Does it hold for large models and other methods?
#
# This notebook puts the kit's pairs side by side, and reads what verification accepted in the runs
# of other people. The **atlas** comes with the kit: six methods on a target of 7 billion
# parameters, and targets of up to 70 billion. The records of SpecDecode-Bench
# ([arXiv:2601.11580](https://arxiv.org/abs/2601.11580), Llama-3.1-8B-Instruct) have to be fetched
# once with `python -m speclab fetch specdecode-bench` (9 MB). Without them sections 6 to 8 are left
# out.
#
# *Runs on* any machine · *minutes* one on 2 cores · *reads* `data/traces` and `data/atlas`, and the
# fetched files or those in SPECLAB_TRACES, whatever the profile · *writes* `figures/public/13/`.

# %% tags=["parameters"]
# a name from notebooks/profiles, or a YAML file; it does not change the public runs
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
pairs: list = ["smollm", "qwen-coder"]  # any; pairs with runs in data/traces
permutations: int = 2000  # 200 to 100000; of the prompts between the tasks
deepest: int = 8  # 3 to 16; the deepest depth of depth.csv
# gammas of the chains on Llama-3.1-8B
gammas: list = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20]  # 1 to 20
gamma: int = 5  # 1 to 20; drafted tokens of EAGLE together with copying

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
import numpy as np
import pandas as pd
import seaborn
from scipy.stats import rankdata

from speclab.logs import passes
from speclab import replay, score, stats
from speclab.logs import atlas
from speclab.lab import bins, choose, combined
from speclab.logs import specdecode_bench as traces
from speclab.lab.significance import holm
from speclab.copying import MOST
from speclab.cost import Costs
from speclab.estimates import Estimates, named, stack
from speclab.place import ROOT
from speclab.replay import prompt_sums
from speclab.score import ALL, POOLED
from speclab.show import figures, notebook
from speclab.study import runs
from speclab.lab.starts import replay_starts, sums_of_starts

RUNS = []

# %%
ctx = notebook.start("13_public_runs", profile, overrides)
answers = atlas.answers()

# %% [markdown]
# ## 1. Does it hold on the kit's own pairs?
# Two targets wrote texts to the same prompts at temperature 0. For `smollm` we trained the draft.
# For `qwen-coder` nobody did: the target of `smollm` drafts for Qwen2.5-Coder-1.5B-Instruct, which
# has another vocabulary. We ask four questions of each pair.
#
# * Is math easier to draft than chat ([02](02_gamma_sweep.ipynb))? We compare the tokens per target
#   pass with four drafted tokens.
# * Is the draft surer of accepted than of rejected tokens ([05](05_entropy_correlation.ipynb))? The
#   AUC says how often.
# * Is depth the cause if acceptance rises with it ([04](04_depth_profile.ipynb))? We compare third
#   tokens with first tokens of new blocks at the same places.
# * Is one setting for all enough ([09](09_budgets_and_routing.ipynb))? We cross-fit the gain of a
#   setting per domain. Here a draft pass costs a tenth of a target pass, and a target pass over
#   several tokens costs as much as over one.

# %%
recorded = {}
for pair in pairs:
    folder = ROOT / "data/traces" / pair / "greedy"
    if (folder / "manifest.json").is_file():
        recorded[pair] = runs.load_run(folder)
    else:
        ctx.say(f"`{pair}` is left out: `data/traces` has no greedy run of it.")

# %%
PLACE = ["prompt_id", "domain", "position"]


def third_tokens(run):
    """Third tokens that a greedy decoder tests. `change`: whether each is accepted (1 or 0), minus
    whether the first token of a new block at that place is.
    """
    blocks = replay.replay(run.trace, 3).query("remaining > 3 and survival_2 == 1")
    tested = run.nodes.query("best_path and depth == 3")
    tested = blocks.eval("position = start").merge(tested, on=PLACE)
    both = tested.merge(run.trace.eval("position = position - 2"), on=PLACE)
    return both.eval("change = 1 * (target_rank == 0) - hit")


def speeds_of(run):
    """Speed-up with one setting for all prompts (`one`) and with a setting per domain (`each`)."""
    limit = run.manifest["profile"]["max_new_tokens"]
    settings = choose.settings_up_to(8, 8)  # as 09
    counts = choose.block_counts(run.trace, settings, max_new_tokens=limit)
    costs = choose.prompt_costs(counts, settings, Costs.assumed(0.1))
    of_none = dict.fromkeys(costs.prompts["prompt_id"], choose.UNKNOWN)
    return choose.speeds({"one": choose.fit(costs, of_none), "each": choose.fit(costs)})


# %%
TOKENS, LEAD = "tokens per target pass", "math minus chat"
SURER, GAIN = "AUC of the draft's confidence", "gain of a setting per domain"
RISE, SAME = "depth 3 minus depth 1", "depth 3 minus new block"


def measured(run):
    """The five numbers of a pair by domain, over resamples of its prompts."""
    sums = prompt_sums(replay.replay(run.trace, 4))
    with_room = prompt_sums(replay.replay(run.trace, 3), "room")
    surer = bins.surer_pairs(bins.signals(run.trace), ["confidence"])
    questions = {
        TOKENS: (sums, score.ratio_of("emitted", "blocks")),
        SURER: (surer, score.ratio_of("confidence", "pairs")),
        "a": (with_room, score.block_estimators()["accept_by_depth"]),
    }
    draws, speed = stats.jointly(questions), speeds_of(run)
    lead = draws[TOKENS]["math"] - draws[TOKENS]["chat"]
    numbers = {
        TOKENS: draws[TOKENS].assign(**{LEAD: lead}),
        SURER: draws[SURER],
        RISE: draws["a[3]"] - draws["a[1]"],
        GAIN: speed["each"] / speed["one"] - 1,
    }
    same = stats.jointly({SAME: (third_tokens(run), score.mean_of("change"))})
    return pd.concat([draws.table(numbers, "number").frame, same.table(key="number").frame])


# %%
if recorded:
    of_pairs = {pair: measured(run) for pair, run in recorded.items()}
    of_pairs = Estimates.stacked(of_pairs, "pair").without(domain=POOLED)
    ctx.export(of_pairs, "pairs")
    ctx.plot(
        of_pairs.at(number=TOKENS).without(domain=[ALL, LEAD]),
        x="domain",
        hue="pair",
        kind="points",
        y=TOKENS,
        reference={"plain decoding": 1},
        slug="pairs-tokens",
        title="Tokens per target pass of each pair by domain",
        caption="Four drafted tokens. If the pairs agree, their points rise and fall together. "
        "Bars: intervals over prompts.",
    )

# %% [markdown]
# A finding **holds** if the whole interval lies in the region *holds if*, and does **not** if the
# whole interval lies outside. Else it is **open**. The regions come from `smollm`, so only other
# pairs test them.

# %%
COLUMNS = ["finding", "number", "domain", "holds if", "least", "most", "digits", "unit"]
FINDINGS = [
    ("math is easier than chat", TOKENS, LEAD, "lead above 0.1 tokens", 0.1, np.inf, 2, ""),
    ("the draft knows when it fails", SURER, ALL, "AUC above 60 %", 0.6, np.inf, 0, "%"),
    ("acceptance rises with depth", RISE, ALL, "rise above 0 points", 0, np.inf, 0, "points"),
    (
        "depth is not the cause",
        SAME,
        ALL,
        "within 1 point of a new block",
        -0.01,
        0.01,
        1,
        "points",
    ),
    ("one setting is enough", GAIN, ALL, "gain below 1 %", -np.inf, 0.01, 1, "%"),
]


def judged(of_pairs):
    """Each finding's number on each pair, whether it holds there, and both as a `cell`."""
    table = pd.DataFrame(FINDINGS, columns=COLUMNS).merge(of_pairs.frame, on=["number", "domain"])
    is_inside = table.eval("least <= low and high <= most")
    is_outside = table.eval("high < least or most < low")
    table["verdict"] = np.select([is_outside, is_inside], ["not", "holds"], "open")
    shown = table[[*stats.NUMBERS, "digits", "unit"]].itertuples(index=False)
    table["cell"] = [stats.cell(*numbers) for numbers in shown]
    table["cell"] += ", " + table["verdict"]
    return table


# %%
if recorded:
    findings = judged(of_pairs)
    page = findings.set_index(["finding", "holds if", "pair"])["cell"].unstack(sort=False)
    is_held = (findings["verdict"] == "holds").groupby(findings["finding"], sort=False).all()
    page["holds on all"] = is_held.to_numpy()
    ctx.table(
        findings[["finding", "number", "holds if", "pair", *stats.NUMBERS, "verdict"]],
        "what-holds",
        cells=page.reset_index(),
        caption="What holds on each pair and on all of them",
        is_wide=True,
    )

# %% [markdown]
# An ordinary draft reads only the text, also if its tokens are translated. So depth cannot be the
# cause, and a difference would be an error of the records. The answer does not count this row.
#
# ## 2. What is in the atlas?
# A row is an answer of a run: the tokens it emitted, the target passes it took, and how many
# drafted tokens each pass accepted. `atlas.runs()` lists the runs, and `data/atlas/README.md` names
# the sources. The **tokens per target pass** are all tokens over all passes; plain decoding has 1.
# Spec-Bench has six tasks of 80 prompts; its chat is MT-Bench. The runs of 2026 are of users' own
# cards, with 12 prompts each.

# %% tags=["by-hand"]
rows = answers[answers["run"] == "eagle"]
print(rows[["prompt_id", "domain", "turn", "tokens", "passes"]].head(2).to_string())
print("accepted:", rows["accepted"].iloc[0][:12], "…")
totals = atlas.group_tasks(rows).groupby("domain")[["tokens", "passes"]].sum()
by_hand = totals["tokens"] / totals["passes"]
print(by_hand.round(2).to_string())

# %% [markdown]
# All turns of a conversation count as one prompt. Intervals resample whole prompts within each
# task ([12](12_how_sure.ipynb)).

# %%
PER_PASS = score.ratio_of("tokens", "passes", "tokens per target pass")


def sums_of(run):
    """Tokens and target passes of each prompt of a run."""
    of_run = answers[answers["run"] == run].astype({"prompt_id": str, "domain": str})
    by_prompt = of_run.groupby(["prompt_id", "domain"], sort=False)
    return by_prompt[["tokens", "passes"]].sum().astype(float).reset_index()


# %%
facts = atlas.runs().query("method != 'plain'")
of_runs = {}
for row in facts.itertuples():
    rows = choose.choose_for_all(sums_of(row.run))  # 12 prompts are few in each category
    of_runs[row.run, row.method, row.target, row.set] = stats.by_domain(rows, PER_PASS).frame
of_runs = Estimates(stack(of_runs, ["run", "method", "target", "set"])).at(domain=POOLED)
ctx.export(of_runs.frame.drop(columns=["domain", "estimator"]), "runs")  # all runs together

# %% [markdown]
# ## 3. Does the task matter?
# Six methods ran on all of Spec-Bench with Vicuna-7B. SpS is a small draft model. EAGLE and Medusa
# train heads on the target. PLD copies from the text. Lookahead and Token Recycling reuse the
# target's own guesses. The figure divides a method's tokens per target pass on a task by the mean
# of its six tasks.

# %%
METHODS = {
    "EAGLE": "eagle",
    "Token Recycling": "recycling",
    "Medusa": "medusa",
    "SpS": "sps",
    "PLD": "pld",
    "Lookahead": "lookahead",
}
frames = {name: atlas.group_tasks(sums_of(run)) for name, run in METHODS.items()}
draws = stats.jointly({name: (frame, PER_PASS) for name, frame in frames.items()})
tasks = list(draws.prompts.domains)
levels = draws.table(key="method")
ctx.export(levels, "tokens-per-pass")
of_eagle = levels.at(method="EAGLE", domain=tasks).frame.set_index("domain")["estimate"]
assert np.allclose(of_eagle, by_hand[of_eagle.index])


# %%
def draw_cells(frame, label):
    """A cell per method and task: the estimate and its interval, blue above 1 and red below."""
    narrow = figures.is_narrow()
    cells = Estimates(frame).wide("method", "domain", [] if narrow else None).set_index("method")
    ratios = frame.pivot(index="method", columns="domain", values="estimate")
    figure, axes = figures.subplots(height=0.42 * len(cells) + 1.1)
    seaborn.heatmap(
        np.log(ratios.loc[cells.index, [*cells]]),
        annot=cells.replace(r" \[", "\n[", regex=True),  # the interval in a line of its own
        annot_kws={"color": "black", "size": "small" if narrow else "x-small"},
        fmt="",
        center=0,
        cmap="RdBu",
        alpha=0.5,
        cbar=False,
        ax=axes,
    )
    axes.tick_params(length=0)
    axes.grid(False)
    axes.set(xlabel=label, ylabel="")
    return figure


# %%
over_mean = {name: draws[name][tasks].div(draws[name][ALL], axis=0) for name in METHODS}
ctx.draw(
    draw_cells,
    draws.table(over_mean, "method"),
    "tasks",
    title="Tokens per target pass by task, relative to each method's mean",
    caption="Each row is divided by the method's mean over tasks. Blue is above this mean, red "
    "below it. A column of one colour is easy, or hard, for every method. Brackets: intervals.",
    label="task (1 = the method's mean over tasks)",
)

# %% [markdown]
# The best and the worst of six tasks differ even by chance. So we deal the prompts to the tasks at
# random, many times, and compare the ratio of best to worst with this ratio *by chance*. `p_holm`
# is its p-value, corrected for the number of methods.


# %%
def share_as_high(observed, by_chance):
    """One-sided p-value of a permutation test; the sample itself counts."""
    return (1 + (by_chance >= observed - 1e-12).sum()) / (1 + len(by_chance))


of_prompt = stats.resampling_of(frames["EAGLE"], 1)  # the methods have the same prompts
dealt = np.tile(of_prompt.domain, (permutations, 1))
dealt = np.random.default_rng([0, 3]).permuted(dealt, axis=1)
is_in = (dealt[..., None] == np.arange(len(tasks))).astype(float)
rows, facts_of = {}, {}
for name, frame in frames.items():
    totals = of_prompt.totals(frame[["tokens", "passes"]])
    tokens, blocks = (np.einsum("npd,p->nd", is_in, total) for total in totals.T)
    by_chance = (tokens / blocks).max(axis=1) / (tokens / blocks).min(axis=1)
    values = draws[name][tasks]
    best, worst = values.iloc[0].idxmax(), values.iloc[0].idxmin()
    rows[name] = ratio = values[best] / values[worst]
    p_value = share_as_high(ratio[0], by_chance)
    facts_of[name] = best, worst, by_chance.mean(), p_value

# %%
columns = ["highest", "lowest", "by_chance", "p_value"]
facts_of = pd.DataFrame(facts_of.values(), facts_of, columns).reset_index(drop=True)
spread = draws.table(rows, "method").frame.drop(columns="note").join(facts_of)
spread["p_holm"] = holm(spread["p_value"])
names = {"highest": "best task", "lowest": "worst task", "by_chance": "by chance"}
shown = Estimates(spread.assign(of="best over worst").rename(columns=names)).in_units("x")
ctx.table(
    spread,
    "spread",
    cells=shown.wide(["method", *names.values(), "p_holm"], "of"),
    caption="Best and worst task of each method",
)

# %% [markdown]
# ## 4. Do the methods share one order of the tasks?
# **Kendall's W** measures how far $m$ orders of $D$ tasks agree. With $R_t$ the sum of the ranks of
# task $t$ over the methods,
#
# $$W = \frac{12 \sum_t (R_t - \bar R)^2}{m^2 (D^3 - D)} .$$
#
# It is 1 if all orders are the same. Three things can raise it: one order of the tasks, chance, and
# the prompts, which the methods share. So we compare W with **unrelated orders**: each method keeps
# the effects of its tasks, but they are dealt to the tasks at random, for each method by itself.
# Prompts are resampled for all methods together. (Section 3 has rejected that no task matters.)


# %%
def kendalls_w(values):
    """Kendall's W of the orders of values (..., methods, tasks)."""
    methods, size = values.shape[-2:]
    sums = rankdata(values, axis=-1).sum(axis=-2)
    squares = ((sums - sums.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
    return 12 * squares / (methods**2 * (size**3 - size))


def unrelated_orders(values, rng):
    """As values (1 + n, methods, tasks) of a sample and of n resamples of its prompts, the n values
    that unrelated orders of the tasks would have.
    """
    of_prompts = values[1:] - values[0]
    effects = values[0] - values[0].mean(axis=-1, keepdims=True)
    noise = of_prompts.var(axis=0).mean(axis=-1, keepdims=True)
    # the effects that we see hold the noise of the prompts, too: without it they are smaller
    kept = 1 - noise / effects.var(axis=-1, ddof=1, keepdims=True)
    effects = effects * np.sqrt(kept.clip(0))
    return rng.permuted(np.broadcast_to(effects, of_prompts.shape), axis=-1) + of_prompts


# %%
def agreement(draws, tasks):
    """Kendall's W and the lowest sum of ranks, each with its p-value against unrelated orders."""
    values = np.log(np.stack([draws[name][tasks] for name in draws.values], axis=1))
    unrelated = unrelated_orders(values, np.random.default_rng([0, 4]))
    w, by_chance = kendalls_w(values[0]), kendalls_w(unrelated)
    sums, sums_by_chance = (rankdata(one, axis=-1).sum(axis=-2) for one in (values[0], unrelated))
    lowest = -sums_by_chance.min(axis=-1)
    return {
        "W": w,
        "unrelated": by_chance.mean(),
        "unrelated_95": np.quantile(by_chance, 0.95),
        "p_value": share_as_high(w, by_chance),
        "hardest": tasks[sums.argmin()],
        "p_hardest": share_as_high(-sums.min(), lowest),
    }


# %%
TARGETS = {
    "EAGLE, Vicuna-7B": "eagle",
    "REST, Vicuna-7B v1.5": "rest",
    "Medusa, Vicuna-13B": "medusa-13b",
    "Medusa, Vicuna-33B": "medusa-33b",
    "EAGLE, Llama-2-70B": "eagle-70b",
}
categories = atlas.sources()["mt_bench"]["categories"]
on_mt_bench = {name: sums_of(run) for name, run in TARGETS.items()}
of_targets = stats.jointly(
    {name: (rows[rows["domain"].isin(categories)], PER_PASS) for name, rows in on_mt_bench.items()}
)
orders = {"6 methods, 6 tasks": agreement(draws, tasks)}
hardest = orders["6 methods, 6 tasks"]["hardest"]
others = [task for task in tasks if task != hardest]
orders[f"6 methods, without {hardest}"] = agreement(draws, others)
orders["5 targets, 8 categories"] = agreement(of_targets, [*of_targets.prompts.domains])
orders = pd.DataFrame(orders).T.infer_objects().reset_index(names="compared")
titles = ["compared", "W", "unrelated: mean", "unrelated: 95 %", "p", "hardest", "p (hardest)"]
ctx.table(
    orders,
    "orders",
    cells=orders.set_axis(titles, axis=1),
    caption="Agreement of the orders of the tasks, compared with unrelated orders",
)

# %% [markdown]
# The last two columns ask only which task has the lowest sum of ranks. The last row compares five
# targets of 7 to 70 billion parameters, one method each, on the eight categories of MT-Bench (ten
# prompts each). REST copies from a datastore. Medusa's runs there are not lossless: they accept
# *typical* tokens.
#
# ## 5. Does acceptance rise with depth?
# How often is the token at a depth accepted if all tokens above it were? Only passes count whose
# draft and answer are long enough. In a tree any drafted token may continue the accepted path. A
# pass in which PLD finds nothing to copy counts as rejected at depth 1.


# %%
def accepted_by_depth(run):
    """Acceptance at each depth that the run drafts, up to `deepest`."""
    rows = atlas.group_tasks(atlas.passes_of(run))
    depths = range(1, min(deepest, int(rows["drafted"].max())) + 1)
    share = score.ratio_of("accepted", "reached")
    return stats.jointly({depth: (passes.depth_counts(rows, depth), share) for depth in depths})


at_depths, changes = {}, {}
for name, run in METHODS.items():
    of_depth = accepted_by_depth(run)
    at_depths[name] = of_depth.table(key="depth").at(domain=POOLED)
    change = (of_depth[3] - of_depth[1])[POOLED]
    changes[name] = of_depth.table({"change": change}, key="number")
at_depths = Estimates.stacked(at_depths, "method")
changes = Estimates.stacked(changes, "method")
ctx.plot(
    at_depths,
    x="depth",
    hue="method",
    limits=(0, 1),
    y="accepted (%)",
    slug="depth",
    title="Acceptance by depth of each method",
    caption="A line rises where long drafts stand at easy places, or where passes without a draft "
    "count as rejected at depth 1 (PLD, and Lookahead if it has no guess). Bands: intervals over "
    "prompts.",
)
ctx.export(changes, "depth-change")

# %% [markdown]
# Only drafts at easy places get deep ([04](04_depth_profile.ipynb)), which raises the numbers. The
# drafts of EAGLE, Medusa and Token Recycling are trees with fewer candidates at greater depth,
# which lowers them.
#
# ## 6. Llama-3.1-8B: tokens per target pass by request
# The authors ran four prompt sets at temperature 0: gsm8k (school maths), cnn (summaries),
# instructcoder (code edits) and sharegpt (chats). For each position of 1,410 texts they publish how
# many drafted tokens the target accepts in a block that begins there (`starts`), for **EAGLE** and
# for an n-gram **lookup**. So we can replay chains of up to 20 tokens exactly.

# %%
bench = traces.read_traces()
if bench:
    starts = {"EAGLE": bench.of(traces.EAGLE), "lookup": bench.of(traces.LOOKUP)}
    eagle = starts["EAGLE"]
    sets = list(score.domains_in(eagle))
    ran_away = bench.texts.loc[bench.texts["ran_away"], "prompt_id"]
    ctx.record(ran_away=len(ran_away))
else:
    ctx.say(f"**Sections 6 to 8 are left out.** {traces.ABSENT}")

# %% tags=["by-hand"]
if bench:
    text = eagle[eagle["prompt_id"] == eagle["prompt_id"].iloc[0]]
    print(text[["prompt_id", "position", "accepted", "remaining"]].head(2).to_string())
    accepted = text["accepted"].tolist()
    position, count = 0, 0
    while position < len(accepted):
        position += min(accepted[position], 3) + 1  # at gamma 3; one token is the target's own
        count += 1
    print(f"{len(text)} tokens in {count} target passes: {len(text) / count:.2f} per target pass")
    by_kit = sums_of_starts(text, [3])
    assert (by_kit["emitted"].item(), by_kit["blocks"].item()) == (len(text), count)

# %% [markdown]
# **By token**, all tokens of a set are divided by all its passes: the number of a server, which a
# few long texts decide. **By request**, every text's own ratio counts the same: the number that a
# user meets. The figure is by request; its CSV has both.

# %%
tables = {}
for proposer, rows in starts.items() if bench else ():
    sums = sums_of_starts(rows, gammas)
    sums["of_text"] = sums["emitted"] / sums["blocks"]
    has_ended = ~sums["prompt_id"].isin(ran_away)
    by_token = score.ratio_of("emitted", "blocks")
    for weight, (part, estimator) in {
        "by request": (sums, score.mean_of("of_text")),
        "by token": (sums, by_token),
        "by token, without runaway texts": (sums[has_ended], by_token),
    }.items():
        by_gamma = {number: (chain, estimator) for number, chain in part.groupby("gamma")}
        tables[proposer, weight] = stats.jointly(by_gamma).table(key="gamma").frame

# %%
if bench:
    per_pass = Estimates(stack(tables, ["proposer", "weight"]))
    ctx.plot(
        per_pass,
        x="gamma",
        only={"weight": ["by request"], "domain": sets},
        columns="proposer",
        y="tokens per target pass",
        reference={"plain decoding": 1},
        slug="llama-tokens-per-pass",
        title="Tokens per target pass of Llama-3.1-8B by gamma and prompt set",
        caption="Every request counts the same. Where a curve is flat, more drafted tokens gain "
        "nothing. Bands: intervals over prompts.",
    )
    at = {
        weight: per_pass.at(proposer="EAGLE", weight=weight, gamma=gammas[-1], domain=sets)
        for weight in ("by request", "by token")
    }
    by_request, by_token = (one.frame.set_index("domain")["estimate"] for one in at.values())
    apart = (by_request - by_token).idxmax()
    of_set = eagle.loc[eagle["domain"] == apart, "prompt_id"]
    runaways = of_set[of_set.isin(ran_away)]
    ctx.say(
        f"The two differ most in {apart}: at gamma {gammas[-1]} EAGLE has {by_request[apart]:.1f} "
        f"by request and {by_token[apart]:.1f} by token. {runaways.nunique()} of its "
        f"{of_set.nunique()} texts stopped only at the limit of {traces.TEXT_LIMIT:,} tokens, and "
        f"they hold {100 * len(runaways) / len(of_set):.0f} % of its tokens."
    )

# %% [markdown]
# ## 7. Llama-3.1-8B: what depth costs a head
# EAGLE drafts a deep token from its own guesses. A new block that begins at the same place has the
# target's states. With $a_d$ the acceptance at depth $d$ and $b_3$ that of the first token of a new
# block at the places of depth 3,
#
# $$a_3 - a_1 = (b_3 - a_1) + (a_3 - b_3) .$$
#
# The first difference is selection, the second the cost of depth. We count the passes of a decoder
# with chains of five tokens, without the texts that ran away.

# %%
if bench:
    ended = eagle[~eagle["prompt_id"].isin(ran_away)].reset_index(drop=True)
    ended["new_block"] = ended["accepted"].shift(-2, fill_value=0) > 0  # begins two tokens on
    visits = replay_starts(ended, 5)
    visits["first"] = visits["accepted"] > 0
    visits["third"] = visits["accepted"] > 2
    reached = visits[(visits["accepted"] >= 2) & (visits["remaining"] > 2)]
    of_depth = stats.jointly(
        {
            "a1": (visits, score.mean_of("first")),
            "b3": (reached, score.mean_of("new_block")),
            "a3": (reached, score.mean_of("third")),
        },
        same=False,
    )
    parts = {
        "depth 3 minus depth 1": of_depth["a3"] - of_depth["a1"],
        "selection": of_depth["b3"] - of_depth["a1"],
        "cost of depth": of_depth["a3"] - of_depth["b3"],
    }
    parts = of_depth.table(parts, "EAGLE").at(domain=sets).in_units("points", digits=1)
    ctx.table(
        parts,
        "llama-depth-parts",
        rows="EAGLE",
        columns="domain",
        caption="Parts of the change between depth 1 and depth 3",
    )

# %% [markdown]
# Drafts get deep where the text is easy, as with our pair, and a head loses most or all of it
# again.
#
# ## 8. Llama-3.1-8B: EAGLE and copies together
# Where at least $m$ of the last tokens occurred before, a block copies what followed them, up to 16
# tokens; elsewhere EAGLE drafts a chain. We fit $m$ on one half of each set's prompts and judge it
# on the other half. The **perfect choice** knows at each position which of the two gets further.
#
# EAGLE's records are of another run than the texts, so we keep only prompts whose two texts have
# the same length and did not run away.

# %%
if bench:
    kept = bench.texts[bench.texts["same_length"] & ~bench.texts["ran_away"]]
    columns = ["prompt_id", "prompt_token_ids", "generated_token_ids"]
    tokens = {name: pair for name, *pair in kept[columns].itertuples(index=False)}
    of_kept = eagle[eagle["prompt_id"].isin(tokens)].reset_index(drop=True)
    both = combined.add_copies(of_kept, tokens)

    # at each position the better of the two, as one proposer
    drafted = np.minimum(both["accepted"], gamma)
    better = both.assign(accepted=np.maximum(drafted, both["copied"]), limit=MOST)
    perfect = prompt_sums(replay_starts(better, MOST)).rename(columns={"blocks": "cost"})

    ways = combined.ways(both, gamma, folds=2)
    choices = {
        "EAGLE alone": ways[combined.DRAFT],
        "copying alone": ways[combined.COPIES],
        "both together": ways[combined.BOTH],
        "perfect choice": choose.Choice(perfect),
    }
    together = choose.speeds(choices).table(key="proposer")

# %%
if bench:
    ctx.plot(
        together,
        x="domain",
        only={"domain": sets},
        hue="proposer",
        kind="points",
        y="tokens per target pass",
        reference={"plain decoding": 1},
        slug="together",
        title="Tokens per target pass of EAGLE, of copying and of both together",
        caption="By prompt set, on the prompts whose two texts have the same length. EAGLE drafts "
        f"chains of {gamma}, a copy has up to {MOST} tokens. The perfect choice is the most that "
        "choosing between the two could reach. Bars: intervals.",
    )
    cost = {name: choices[name].judged.set_index("prompt_id")["cost"] for name in choices}
    saved = cost["EAGLE alone"] - cost["both together"]  # target passes of the same text
    tokens_of = eagle.groupby("prompt_id").size()
    lengths = tokens_of.groupby(tokens_of.index.isin(saved.index)).median()
    ctx.say(
        f"{len(saved):,} of {len(bench.texts):,} prompts are used. Half of their texts have more "
        f"than {lengths[True]:.0f} tokens, half of the others' more than {lengths[False]:.0f}. "
        f"Both together take fewer target passes than EAGLE alone for {(saved > 0).sum()} prompts, "
        f"as many for {(saved == 0).sum()} and more for {(saved < 0).sum()}."
    )

# %%
verdicts = stats.verdict(changes.frame["low"], changes.frame["high"])
matters = (spread["p_holm"] < 0.05).sum()
everywhere = matters == len(METHODS)
first, rest = orders["p_value"].iloc[:2] < 0.05
shared = "The methods share no order of the tasks"
if first and orders["p_hardest"].iloc[0] < 0.05:
    shared = f"Taken together, {hardest} is the hardest"
    shared += ", and they share the others' order" if rest else "; beyond that no order is shown"
elif first:
    shared = "They agree on the order of the tasks"
own = ""
if len(recorded) > 1:
    # an ordinary draft cannot break the one, and `smollm` set the limits
    could_fail = findings.query("finding != 'depth is not the cause' and pair != 'smollm'")
    is_held = (could_fail["verdict"] == "holds").groupby(could_fail["finding"]).all()
    where = named([f"`{pair}`" for pair in could_fail["pair"].unique()])
    own = f" Of our {len(is_held)} findings, {is_held.sum()} hold on {where}."
falls, rises = ((verdicts == side).sum() for side in (stats.BELOW, stats.ABOVE))
ctx.answer(
    f"{'Yes' if everywhere else 'In part'}. The task matters for {'all' if everywhere else matters}"
    f" methods tried. {shared}. Acceptance falls with depth for {falls} and rises for {rises}.{own}"
)

# %% [markdown]
# ## Try it
# Run `atlas.passes_of("medusa-33b")`. Why does it fail?
#
# <details><summary>Answer</summary>
# The source has totals per answer only. So tokens per target pass are exact, and nothing can be
# said by depth.</details>
#
# ## What this does not show
# Time: tokens per target pass are no speed-up. Sampling, the depth of newer targets, EAGLE's tree
# on Llama-3.1-8B, and other prompts. Next: [14](14_your_log.ipynb) reads a log of your own decoder.

# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 9. Does a setting per domain pay?

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
max_gamma: int = 8  # 1 to 64; the longest chain to choose from
budget: int = 8  # 1 to 64; nodes of the largest tree to choose from

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
import json
from dataclasses import replace

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import make_pipeline

from speclab import score, stats
from speclab.study import runs, timing_runs
from speclab.lab import choose, prompt_sets
from speclab.lab.choose import PLAIN_SETTING, UNKNOWN, Choice
from speclab.lab.prompt_sets import OWN
from speclab.lab.texts import Text
from speclab.estimates import Estimates, stack
from speclab.score import ALL, POOLED
from speclab.show import notebook

RUNS = ["greedy", "others"]

# %%
ctx = notebook.start("09_budgets_and_routing", profile, overrides)
base = ctx.profile.replace(temperature=0.0)
greedy = runs.load_or_record(base, "greedy")
sets = prompt_sets.read(ctx.profile, Text.recorded(base, "greedy"))
sets = prompt_sets.complete_sets(sets)
own, last = sets[OWN], prompt_sets.last(sets)

# %% [markdown]
# A longer draft gives more tokens per target pass and costs more. So the best length depends on how
# often the target accepts, and acceptance depends on the domain of a prompt. What would a server
# gain over one setting for all prompts if it chose for each?
#
# ## 1. What may be drafted, and what it costs
# A **setting** says what is drafted in every block: nothing (`plain`), a chain (`chain:3` is three
# tokens in a row), or a static tree (`tree:2,3,4` has two levels, up to three guesses per position
# and four nodes in all). A lossless text is the same under every setting. So we replay each setting
# on the recorded texts and count its blocks. `levels` are the tokens drafted in a row, which are
# fewer near the end of a text.

# %%
settings = choose.settings_up_to(max_gamma, budget)
limit = base.max_new_tokens
counts = {}  # by prompt set
for name, each in sets.items():
    counts[name] = choose.block_counts(each.trace, settings, max_new_tokens=limit)
counted = counts[OWN]
assert (counted.groupby("setting")["emitted"].sum() == len(own.trace)).all(), "the same text"
notebook.show_table(counted.iloc[[0, -1]], digits=0)

# %% [markdown]
# A block that drafts a chain of $\gamma$ tokens costs
#
# $$\gamma c + v(\gamma + 1) + o$$
#
# target passes over one token. $c$ is a draft pass, $v(n)$ a target pass over $n$ tokens, and $o$
# the time of the loop around them. A tree makes one draft pass per level. A block without a draft
# is a plain pass and costs 1. [10](10_wall_clock.ipynb) measures these costs on your machine.

# %%
found_costs = timing_runs.costs_for(greedy)
costs, of_runs = found_costs.costs, found_costs.runs
ctx.say(f"The costs are {found_costs.source}")
by_prompt = choose.prompt_costs(counted, settings, costs)

# %% [markdown]
# ## 2. What is the best setting of each domain?
# First by hand, for chains. The speed-up of a setting over plain decoding is the number of tokens
# divided by the cost of their blocks.

# %% tags=["by-hand"]
chains = counted[counted["setting"].str.startswith("chain:")]
speed_of = {}
for (domain, setting), rows in chains.groupby(["domain", "setting"], sort=False):
    gamma = rows["levels"]
    cost_of_block = gamma * costs.c() + costs.v(gamma + 1) + costs.overhead
    cost_of_block[gamma == 0] = 1  # a plain pass
    total_cost = (rows["blocks"] * cost_of_block).sum()
    speed_of[domain, setting] = rows["emitted"].sum() / total_cost

# %% tags=["by-hand"]
by_hand = pd.Series(speed_of).unstack(sort=False).rename_axis("domain")
best_chain = by_hand.idxmax(axis="columns")
notebook.show_table(by_hand.assign(best=best_chain).reset_index(), digits=2)

# %%
kit = choose.best_setting(by_prompt)  # all settings, with their resamples
alike = kit.pivot(index="domain", columns="setting", values="speedup")
assert np.allclose(by_hand, alike.loc[by_hand.index, by_hand.columns])

# %% [markdown]
# Now all settings. A setting looks too good on the prompts that chose it. So speed-ups are
# **cross-fitted**: each prompt is judged by the setting that was the fastest on other prompts of
# its domain. Every resample of the prompts chooses again. If the costs were measured, it also takes
# them from one of the timing runs, the same for all policies.


# %%
def speeds_of(choices, counted, n=stats.RESAMPLES):
    """Speed-up over plain decoding of each policy, over the same resamples of prompts."""
    speeds = choose.speeds(choices, n)
    factors = []  # by timing run and policy: speed-ups at the costs of one run over those of all
    for run_costs in of_runs:
        there = choose.prompt_costs(counted, settings, run_costs)
        judged = {name: Choice(there.judged(choice.settings)) for name, choice in choices.items()}
        again = choose.speeds(judged, n=1)
        factors.append({name: (again[name] / speeds[name]).iloc[0].to_numpy() for name in choices})
    if not factors:
        return speeds
    drawn = np.random.default_rng(4).integers(0, len(of_runs), n)  # the run of each resample
    values = {}
    for name in choices:
        factor = np.stack([each[name] for each in factors])[drawn]
        values[name] = speeds[name] * np.r_[np.ones((1, factor.shape[1])), factor]
    return replace(speeds, values=values)


# %%
speed = speeds_of({"own": choose.fit(by_prompt)}, counted).table(key="of").frame
best = choose.fastest_rows(kit).query("domain != @POOLED")
best["share_best"] = best["share_best"].where(best["n_prompts"] >= stats.MIN_PROMPTS)
advice = best[["domain", "setting", "share_best"]].merge(speed[["domain", *stats.NUMBERS]])
sides = pd.Series(stats.verdict(advice["low"], advice["high"], 1))
advice["speculate"] = sides.map({stats.ABOVE: "yes", stats.BELOW: "no"}).fillna("inconclusive")
advice.loc[advice["setting"] == PLAIN_SETTING, "speculate"] = "no"
if 0 < len(of_runs) < timing_runs.LEAST_RUNS:  # measured, but too seldom for a verdict
    advice["speculate"] = "too few timing runs"

# %%
names = {
    "setting": "best setting",
    "share_best": "how often best",
    "speculate": "faster than plain",
}
shown = Estimates(advice.assign(of="speed-up").rename(columns=names)).in_units("x")
ctx.table(
    advice,
    "recommendations",
    digits=2,
    cells=shown.wide(["domain", *names.values()], "of"),
    caption="The best setting of each domain. *How often best* is the share of resamples in which "
    "it is the fastest. Where it is small, several settings are about equally fast.",
)

# %% [markdown]
# ## 3. Does it pay to know the domain?
# * **One setting for all** is the best setting for all prompts together.
# * **A setting per domain** knows the true domain.
# * **The router** guesses the domain from the prompt's words. It is a logistic regression on counts
#   of words and of pairs of words.
# * **The oracle** gives each text its own best setting after the fact. No router can do better.

# %%
ONE, PER_DOMAIN, ROUTER = "one setting for all", "a setting per domain", "the router"
ORACLE = "the oracle"
several = ctx.compares(stats.judged_domains(own.trace))
# words and signs, and pairs of neighbours
words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2))
router = make_pipeline(words, LogisticRegression(class_weight="balanced", max_iter=1000))

# %% [markdown]
# The router learns from the profile's own prompts. Each of these is routed by a router that learned
# from the other four fifths of them, and prompts of other sets by one that learned from all.

# %%
prompts_of = {OWN: runs.profile_prompts(base)}
for source in runs.sets_asked(base, own.prompts.index):
    of_set = runs.of_kind(base, runs.kind_of_set(source))
    prompts_of[prompt_sets.set_name(source)] = runs.profile_prompts(of_set)
texts = {}  # by set and prompt_id
for name, each in sets.items():
    whole = prompts_of[prompt_sets.SECOND if each.is_part else name]
    texts[name] = {prompt.prompt_id: prompt.text for prompt in whole}

# %%
found = {}  # the route of each prompt, by set
if several:
    known = by_prompt.prompts  # prompt_id and domain, in the order of the costs
    learned = known["prompt_id"].map(texts[OWN]), known["domain"]
    fifths = PredefinedSplit(choose.fold_of(known["domain"].to_numpy(), 5))
    routes = cross_val_predict(router, *learned, cv=fifths)
    router.fit(*learned)
    for name, of_set in texts.items():
        found[name] = dict(zip(of_set, router.predict([*of_set.values()]), strict=True))
    found[OWN] = dict(zip(known["prompt_id"], routes, strict=True))
    for each in dict.fromkeys([OWN, last.name]):
        domain = sets[each].trace.drop_duplicates("prompt_id").set_index("prompt_id")["domain"]
        right = (domain.index.map(found[each]) == domain).mean()
        ctx.say(
            f"On {sets[each].in_words} the router finds the domain of {100 * right:.0f} % of the "
            "prompts."
        )

# %% [markdown]
# On the own prompts settings are cross-fitted. Other prompts get the settings that are best on the
# own prompts.


# %%
def choices_on(name, costs, n=stats.RESAMPLES):
    """What each policy chooses for the prompts of a set at these costs."""
    own_costs = choose.prompt_costs(counts[OWN], settings, costs)
    here = choose.prompt_costs(counts[name], settings, costs)
    ids = here.prompts["prompt_id"]
    routes = {ONE: dict.fromkeys(ids, UNKNOWN)}
    if several:
        routes[PER_DOMAIN] = dict(zip(ids, here.prompts["domain"], strict=True))
        routes[ROUTER] = found[name]
    if name == OWN:
        choices = {policy: choose.fit(here, route, n=n) for policy, route in routes.items()}
    else:
        best = choose.setting_by_domain(own_costs)
        chosen = {policy: {i: best[route[i]] for i in ids} for policy, route in routes.items()}
        choices = {policy: Choice(here.judged(setting)) for policy, setting in chosen.items()}
    return choices | {ORACLE: Choice(choose.choose_in_hindsight(here))}


def gains_over_one(speeds):
    """By how much each policy is faster than one setting for all, as a share."""
    others = [name for name in speeds.values if name != ONE]
    more = {name: speeds[name] / speeds[ONE] - 1 for name in others}
    return speeds.table(more, "policy").in_units("%", 1)


# %%
speeds = {name: speeds_of(choices_on(name, costs), counts[name]) for name in sets}
gains = gains_over_one(speeds[OWN]).without(domain=ALL)
ctx.plot(
    replace(gains, frame=gains.frame.replace({"domain": {POOLED: "all prompts"}})),
    x="domain",
    hue="policy",
    kind="points",
    y="gain in speed (%)",
    reference={"one setting for all": 0},
    slug="policies",
    title="Gain in speed of each policy over one setting for all",
    caption="Predicted from replayed blocks and their cost. Points above the line are faster than "
    "one setting for all. Bars: intervals.",
)

# %% [markdown]
# ## 4. Does it pay on other prompts?

# %%
ctx.say(prompt_sets.described(ctx.profile))
served = {}
for name, each in sets.items():
    table = speeds[name].table(key="policy").without(domain=POOLED)
    served[name] = table.frame[table.frame["domain"].isin([*each.new, ALL])]
served = Estimates.stacked(served, "set").in_units("x")
ctx.table(
    served,
    "other-prompts",
    cells=served.at(policy=[ONE, PER_DOMAIN]).wide(["set", "policy"], "domain"),
    caption="Predicted speed-up over plain decoding with settings that the own prompts chose. "
    "*all* is the mean of the domains.",
)

# %%
by_set = {name: gains_over_one(each).at(domain=ALL) for name, each in speeds.items()}
by_set = Estimates.stacked(by_set, "set").in_units("%", 1)
ctx.plot(
    by_set,
    x="set",
    hue="policy",
    kind="points",
    y="gain in speed (%)",
    reference={"one setting for all": 0},
    slug="other-gains",
    title="Gain in speed over one setting for all, by prompt set",
    caption="Mean of the domains. Below the line, the settings that the own prompts chose for a "
    "domain are slower than the one that they chose for all. Bars: intervals.",
)

# %% [markdown]
# ## 5. Does it pay at another cost of the draft?
# Every machine has another $c$. We multiply the cost of a draft pass and leave $v(n)$ and $o$ as
# they are. Every $c$ chooses its own settings.

# %%
FEWER = 500  # resamples for each c
by_cost = {}
for c in (0.01, 0.03, 0.1, 0.2, 0.4, 0.8):
    scaled = replace(costs, draft=tuple(c / costs.c() * np.array(costs.draft)))
    for name in dict.fromkeys([OWN, last.name]):
        at_c = choose.speeds(choices_on(name, scaled, FEWER), FEWER)
        by_cost[c, name] = gains_over_one(at_c).at(domain=ALL).frame
ctx.plot(
    Estimates(stack(by_cost, ["c", "set"])),
    x="c",
    hue="policy",
    columns="set",
    kind="points",
    y="gain in speed (%)",
    reference={"one setting for all": 0},
    slug="by-cost",
    title="Gain in speed over one setting for all, by the cost of a draft pass",
    caption="Mean of the domains. Where a draft is expensive, plain decoding is the best setting "
    "of more and more prompts. Bars: intervals over prompts.",
)
if several:
    of_domain = Estimates(stack(by_cost, ["c", "set"])).at(set=OWN, policy=PER_DOMAIN)
    most = of_domain.frame.set_index("c")["estimate"].idxmax()
    gain = of_domain.at(c=most).in_units("%", 1)
    ctx.say(f"Of these costs, a setting per domain gains most at c = {most:g}: {gain}.")

# %% [markdown]
# A verdict on speed needs the same sign at the costs of every timing run.

# %%
judged = {name: set() for name in (OWN, last.name)}  # verdicts at the costs of each timing run
for name, sides in judged.items():
    for run_costs in of_runs if several else ():
        at_run = choose.speeds(choices_on(name, run_costs, FEWER), FEWER)
        sides.add(gains_over_one(at_run).at(domain=ALL, policy=PER_DOMAIN).verdict())
if of_runs:
    draft_costs = [each.c() for each in of_runs]
    lowest, highest = min(draft_costs), max(draft_costs)
    ctx.say(f"Timing runs of this pair have c from {lowest:.3f} to {highest:.3f}.")

# %% [markdown]
# ## 6. Which tree is best?
# The static trees above branch everywhere alike. A tree may be any list of **paths**: `[0, 1]` is
# the draft's second best token after its best. Over the same block starts, the paths that were
# accepted most often are the tree with the most accepted tokens. So we count paths, for each number
# of levels up to `max_gamma` and of nodes up to `budget`.
#
# A tree looks too good on the texts that chose it. So the prompts are divided into two halves, and
# each half is judged by the paths that are fastest on the other half. They are compared with the
# setting of section 1 that is fastest on the other half.


# %%
def costs_on(rows, shapes):
    """What each of these shapes costs for the texts of these rows of a trace."""
    blocks = choose.block_counts(rows, shapes, max_new_tokens=limit)
    return choose.prompt_costs(blocks, shapes, costs)


def fastest_shape(rows, shapes):
    """The one of these shapes that is fastest for the texts of these rows, by its name."""
    spent = costs_on(rows, shapes)
    name = spent.settings[choose.fastest(1 / spent.cost.sum(axis=0))]
    return {name: shapes[name]}


def frequent_paths(rows):
    """Trees of the most frequent paths of these texts."""
    return choose.best_trees(rows, budget, max_gamma)


def shape_of_others(shapes_of):
    """The choice for each prompt if the other half of the prompts chooses the shape."""
    parts = []
    for mine in (0, 1):
        others = own.trace[half != mine]
        chosen = fastest_shape(others, shapes_of(others))
        parts.append(costs_on(own.trace[half == mine], chosen).judged(*chosen))
    return Choice(pd.concat(parts, ignore_index=True))


# %%
SETTING, PATHS = "best setting of section 1", "paths"
ways = {SETTING: lambda _: settings, PATHS: frequent_paths}
folds = choose.fold_of(by_prompt.prompts["domain"], 2)
half = own.trace["prompt_id"].map(dict(zip(by_prompt.prompts["prompt_id"], folds, strict=True)))
is_divided = half.nunique() == 2
if is_divided:
    by_way = {way: shape_of_others(shapes_of) for way, shapes_of in ways.items()}
    per_pass = score.ratio_of("emitted", "target_passes")
    passes = stats.jointly({way: (choice.judged, per_pass) for way, choice in by_way.items()})
    passes = passes.table(key="shape")
    of_way = choose.speeds(by_way)
    more = of_way.table({PATHS: of_way[PATHS] / of_way[SETTING] - 1}, "shape").in_units("%", 1)
    quantities = {"tokens per target pass": passes, "gain in speed": more}
    ctx.export(Estimates.stacked(quantities, "quantity"), "trees")
else:
    ctx.say("Left out: there is only one prompt, which has no halves.")

# %% [markdown]
# The intervals hold the choice and the costs fixed. `decode --shape paths:FILE` decodes with the
# tree in the file.

# %%
if is_divided:
    [tree] = fastest_shape(own.trace, frequent_paths(own.trace)).values()
    file = ctx.figures / "best-tree.json"
    file.write_text(json.dumps(tree.paths) + "\n", encoding="utf-8")
    place = f"{ctx.figures.parent.name}/{ctx.figures.name}/{file.name}"
    paths, setting = (passes.at(shape=way, domain=ALL).value for way in (PATHS, SETTING))
    ctx.say(
        f"In the mean of the domains, the paths give {paths:.2f} tokens per target pass, and the "
        f"best setting {setting:.2f}. The predicted gain in speed is {more.at(domain=ALL)}, and "
        f"over all prompts together {more.at(domain=POOLED)}. "
        f"`{place}` holds the paths that all prompts choose (size {tree.size}, depth "
        f"{tree.max_depth})."
    )

# %%
bound = by_set.at(set=OWN, policy=ORACLE)
answer = "There is only one domain with enough prompts."
if several:
    mine, other = (by_set.at(set=name, policy=PER_DOMAIN) for name in (OWN, last.name))
    here, there = mine.verdict(), other.verdict()
    said = {
        stats.ABOVE: "Yes. Knowing the domain makes decoding faster than one setting for all.",
        stats.BELOW: "No. With a setting per domain decoding is slower than with one for all.",
        stats.INCONCLUSIVE: "It is unclear. At these costs knowing the domain gains "
        f"{mine} over one setting for all.",
        stats.UNDEFINED: "These prompts are too few to say what knowing the domain gains.",
    }
    if mine.row.low == mine.row.high == 0:
        said[here] = "No. Every domain has the same best setting."
    slower = {stats.ABOVE: "faster", stats.BELOW: "slower"}
    if len(judged[OWN] & {*slower}) == 2 or (here in slower and len(judged[OWN]) > 1):
        answer = "It depends on costs: timing runs disagree whether a setting per domain is faster."
    elif here in slower and len(of_runs) < timing_runs.LEAST_RUNS:
        answer = "On this machine, in this hour: " + said[here].partition(". ")[2]
    else:
        answer = said[here]
    if there in slower and there != here:  # said if all timing runs agree
        agrees = len(of_runs) >= timing_runs.LEAST_RUNS and judged[last.name] == {there}
        answer += f" On {last.in_words} it {'is' if agrees else 'may be'} {slower[there]}."
answer += f" Knowing each prompt's best setting would gain {100 * bound.value:.0f} %."
ctx.answer(answer)

# %% [markdown]
# ## Try it
# Set `max_gamma = 1` and `budget = 1`, so that a prompt gets a chain of one token or nothing. What
# is left of the oracle's gain?
#
# <details><summary>Answer</summary>
# Little, unless the draft is expensive. With two settings to choose from, nearly every prompt wants
# the same one.</details>
#
# ## What this does not show
# Speeds are predicted from counts and costs; [10](10_wall_clock.ipynb) decodes and compares. A
# server has batches, which make drafts more expensive. The router learned from a few prompts in one
# form. For the options of another engine, run `python -m speclab export RUN --for ENGINE`.

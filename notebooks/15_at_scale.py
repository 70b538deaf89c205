# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 15. Does it hold at scale: another pair, on a GPU, 1,410 prompts?
#
# SpecDecode-Bench (arXiv:2601.11580) published what the kit is built for. Its authors ran
# Llama-3.1-8B-Instruct on an H100 at temperature 0. For every position of 1,410 texts they publish
# how many drafted tokens the target accepts in a block that begins there. One proposer is EAGLE, a
# trained head that drafts. The other is n-gram **lookup**, which copies what followed the last
# tokens earlier in the text. From these `starts` we replay chains of any length up to 20 exactly,
# without a model. First we reproduce their own eight speed-ups. The four sets are prompt sets, not
# domains: gsm8k (school maths), cnn (summaries), instructcoder (code edits), sharegpt (chats).
#
# ![EAGLE, copies, both, and the oracle](../figures/llama-3.1-8b/15/together.png)
#
# *Runs on* any machine · *minutes* two on 2 cores · *reads* SpecDecode-Bench's files (`python -m
# speclab fetch specdecode-bench`, 9 MB; or a folder that has them, in SPECLAB_TRACES), whatever the
# profile · *writes* `figures/llama-3.1-8b/15/`.

# %% tags=["parameters"]
# a name from notebooks/profiles, or a YAML file; the pair is the traces' own, whatever it says
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# drafted tokens of the chains that are compared; 3 among them
gammas: list = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20]  # 1 to 20
# of the chain that is drafted where nothing is copied, by tokens per target pass
gamma: int = 5  # 1 to 20
# of those from which the fastest is chosen, by time
tried: list = [1, 2, 3, 5, 8, 10]  # 1 to 20
# requests at once
batches: list = [1, 8, 64]  # 1 to 1024
# depths that are looked at
deepest: int = 6  # 3 to 20

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
import numpy as np
import pandas as pd

from speclab import copying, score, stats
from speclab.analysis import choose, claims, combined, significance
from speclab.analysis import specdecode_bench as traces
from speclab.estimates import Estimates, counted, named, stack
from speclab.show import notebook
from speclab.starts import replay_starts, sums_of_starts
from speclab.studies import at_scale as study

RUNS = []

# %%
ctx = notebook.start("15_at_scale", profile, overrides)
bench = study.traces_here()
bench.starts["hit"] = bench.starts["accepted"] > 0  # the first drafted token
proposers = {"EAGLE": bench.of(traces.EAGLE), "lookup": bench.of(traces.LOOKUP)}
eagle = proposers["EAGLE"]
sets = list(score.domains_in(eagle))

# %% [markdown]
# ## 1. First their own numbers
# Their simulator prices a block with **their** cost model, fitted on their H100. A target pass
# takes 5.886 ms + 21.0 µs per token + 39.3 ns per cached token. A whole draft of EAGLE takes
# 2.135 ms + 0.8 µs per token + 2.4 ns per cached token. Every step takes 1.207 ms more. A speed-up
# is the mean over texts of plain time over speculative time. A batch is one request repeated.
# `oracle` drafts exactly as many tokens as will be accepted. (Their simulator reads the lists one
# entry late and so counts the prompt's own pass as a block that drafted in vain. We read them that
# way once, here, to reproduce their numbers.)

# %%
published = pd.DataFrame(
    {1: [1.29, 1.81, 2.01, 2.13], 8: [1.28, 1.73, 1.86, 2.06]},
    index=["gamma 1", "gamma 3", "gamma 5", "oracle"],
)
late = traces.one_entry_late(eagle[eagle["domain"] == "gsm8k"])

# %%
chains = {f"gamma {n}": replay_starts(late, n) for n in (1, 3, 5)}
oracle = replay_starts(late, traces.LIMIT)
chains["oracle"] = oracle.assign(drafted=oracle["accepted"])

# %%
ours = {
    batch: {name: study.times(blocks, batch)["speedup"].mean() for name, blocks in chains.items()}
    for batch in published
}
ours = pd.DataFrame(ours)
assert (ours.round(2) == published).all(axis=None), "nothing else is asked"
eight = published.join(ours, lsuffix=" published", rsuffix=" ours")
ctx.table(eight.reset_index(names="gsm8k, EAGLE, batch"), "eight")

# %% [markdown]
# All eight agree to 0.01. What follows is the kit's own reading.
#
# ## 2. Tokens per target pass, by token and by request
# A text is cut into blocks. A block emits the accepted tokens, at most gamma, and one token more.
# The next block begins after them. Tokens per target pass are the text's tokens over its blocks. By
# hand, for one text and gamma 3:

# %%
text = eagle[eagle["prompt_id"] == eagle["prompt_id"].iloc[0]]
accepted, position, passes = text["accepted"].tolist(), 0, 0
while position < len(accepted):
    position += min(accepted[position], 3) + 1
    passes += 1
by_kit = sums_of_starts(text, [3])
assert (by_kit["emitted"].item(), by_kit["blocks"].item()) == (len(text), passes)

# %% [markdown]
# A set can be averaged in two ways. **By token**: all tokens of the set over all its blocks, so
# long texts count most. **By request**: the mean of the texts' own ratios, so every request counts
# the same. A text **ran away** when it was stopped at the limit of 8,192 tokens, in the published
# text or in EAGLE's list.

# %%
ran_away = bench.texts.loc[bench.texts["ran_away"], "prompt_id"]
is_runaway = eagle["prompt_id"].isin(ran_away)
share = is_runaway.groupby(eagle["domain"]).mean()
of_set = bench.texts.groupby("domain")["ran_away"].sum()
said = [f"{counted(of_set[name], 'text')} of {name}" for name in sets if of_set[name]]
ctx.record(ran_away=len(ran_away))
ctx.say(
    f"**{len(ran_away)} of {len(bench.texts):,} texts ran away**: {named(said)}. In "
    f"{share.idxmax()} they hold {share.max():.0%} of EAGLE's tokens."
)

# %% [markdown]
# Every interval here resamples whole prompts 2,000 times within their set (95 %).

# %%
of_all = study.per_pass(proposers, ran_away, gammas)
ctx.export(of_all, "tokens-per-pass")
per_pass = of_all.at(domain=sets)
at_3 = per_pass.at(gamma=3)

# %%
by_request = at_3.at(weight=study.BY_REQUEST)
ctx.plot(
    of_all,
    x="gamma",
    only={"weight": [study.BY_REQUEST], "domain": sets},
    columns="proposer",
    y="tokens per target pass",
    reference=1,
    slug="tokens-per-pass",
    caption="Tokens per target pass by gamma, every request weighted the same. At gamma 3 EAGLE "
    f"emits {by_request.at(proposer='EAGLE').span()} by set, lookup "
    f"{by_request.at(proposer='lookup').span()}. Bands: 95 % intervals.",
)
notebook.show_table(at_3.wide(["proposer", "weight"], "domain"))

# %% [markdown]
# By token a few runaway texts widen instructcoder's interval and lower EAGLE's value there. By
# request no single text counts for much.
#
# ## 3. Does the prompt set matter?
# `hit[1]` is the share of positions where the target accepts the first drafted token.

# %%
firsts = study.weighted(proposers, [1], "accepted", ran_away, "every")
of_all = {key: stats.by_domain(*first).drop(columns="estimator") for key, first in firsts.items()}
of_all = Estimates(stack(of_all, ["proposer", "weight"]), digits=3)
ctx.export(of_all, "hit")
hit = of_all.at(domain=sets)
notebook.show_table(hit.wide(["proposer", "weight"], "domain"))

# %% [markdown]
# Does a set differ from another one? We compare tokens per target pass at gamma 3. A permutation
# test moves whole prompts between two sets. Holm's correction covers the six pairs of a proposer
# under one weight, and *significant* means an adjusted p below 0.05. (The best set over the worst
# would be no test: a maximum over a minimum is at least 1 even where all sets are alike.)

# %%
emitted = study.weighted(proposers, [3], "emitted", ran_away)
tested = {key: significance.differences(*sums, n=2000) for key, sums in emitted.items()}
tested = stack(tested, ["proposer", "weight"])
tested["significant"] = tested["p_holm"] < 0.05

# %%
of_requests = tested[tested["weight"] == study.BY_REQUEST]
ctx.export(tested, "differences")
notebook.show_table(of_requests.drop(columns=["weight", "p_value"]))


# %%
def differ_from(best: str, weight: str) -> list[str]:
    """The sets from which `best` differs significantly in EAGLE's tokens per target pass."""
    rows = tested.query("proposer == 'EAGLE' and weight == @weight and significant")
    pairs = zip(rows["first"], rows["second"], strict=True)
    return [b if a == best else a for a, b in pairs if best in (a, b)]


# %%
top = by_request.at(proposer="EAGLE").highest("proposer")
best = top.frame["domain"].item()
said = [f"{weight}: {named(differ_from(best, weight))}" for weight in tested["weight"].unique()]
ctx.say(
    f"**EAGLE emits most on {best}** (by request). Sets that differ significantly from it: "
    f"{'; '.join(said)}."
)

# %% [markdown]
# ## 4. Depth
# At which depth is a drafted token accepted more often? Only easy positions get far, so two things
# mix: the **choice of positions**, and **depth itself**. A new block that begins at the very same
# position separates them: it needs no luck above. Texts that ran away are left out.

# %%
ended = {
    name: rows[~rows["prompt_id"].isin(ran_away)].reset_index(drop=True)
    for name, rows in proposers.items()
}

# %%
by_depth = {name: study.next_accepted(rows, deepest) for name, rows in ended.items()}
depths = {
    (name, depth): draws.table()
    for name, found in by_depth.items()
    for depth, draws in found.items()
}
depths = Estimates(stack(depths, ["proposer", "depth"]))
ctx.export(depths, "depth")

# %%
of_sets = depths.at(domain=sets)
last = of_sets.at(proposer="EAGLE", depth=deepest)
ctx.plot(
    depths,
    x="depth",
    only={"domain": sets},
    hue="name",
    rows="proposer",
    columns="domain",
    y="accepted",
    height=1.7,
    slug="depth",
    caption="Acceptance by depth, given that all shallower tokens were accepted. At depth "
    f"{deepest}: EAGLE {last.at(name=study.DEEPER).span()} by set, a new block at the same "
    f"positions {last.at(name=study.AFRESH).span()}. So the positions reached are easier, and "
    "depth itself lowers EAGLE's acceptance.",
)

# %% [markdown]
# From depth 1 to depth 3 EAGLE's acceptance changes by the sum of two parts (shares of 1):

# %%
third = by_depth["EAGLE"][3]
parts = {
    "depth 3 minus depth 1": third[study.DEEPER] - third[study.EVERYWHERE],
    "choice of positions": third[study.AFRESH] - third[study.EVERYWHERE],
    "depth itself": third[study.DEEPER] - third[study.AFRESH],
}
change = Estimates(third.table(parts, "EAGLE"), digits=3).at(domain=sets)
ctx.table(change, "depth-parts", rows=60, cells=change.wide("EAGLE", "domain"))

# %%
from_1_to_3 = change.at(EAGLE="depth 3 minus depth 1")
words = "rises in", "falls in", "does not change significantly in"
ctx.say(
    f"**From depth 1 to depth 3 EAGLE's acceptance** {from_1_to_3.sentence(*words)}. The choice of "
    f"positions changes it by {change.at(EAGLE='choice of positions').span()}, depth itself by "
    f"{change.at(EAGLE='depth itself').span()}."
)

# %% [markdown]
# ## 5. Texts that ran away repeat themselves
# A token *repeats* when it ends a run of four tokens that its own text has had before. Each dot is
# a text, each bar its set by token:

# %%
tokens = bench.texts.explode("generated_token_ids")
tokens = tokens.rename(columns={"generated_token_ids": "token"})
tokens["position"] = tokens.groupby("prompt_id").cumcount()
tokens["value"] = copying.repeats(tokens.astype({"token": int}))
panels = {"share that repeats": tokens, "EAGLE's hit[1]": eagle.assign(value=eagle["hit"])}
of_sets = stats.jointly({name: (rows, score.mean_of("value")) for name, rows in panels.items()})
of_sets = Estimates(of_sets.table()).at(domain=sets)

# %%
pictured = {}
for name, rows in panels.items():
    dots = rows.groupby(["prompt_id", "domain"])["value"].mean().reset_index()
    pictured[name] = dots, of_sets.at(name=name).frame

# %%
long_ones = tokens[tokens["prompt_id"].isin(ran_away)]
ctx.strips(
    pictured,
    "value",
    "share of a text's tokens",
    "loops",
    caption="Share of a text's tokens that repeat, and EAGLE's hit[1]. Each dot is a text, each "
    f"bar a set by token. In texts that ran away {long_ones['value'].mean():.0%} of the tokens "
    "repeat.",
)

# %%
without = at_3.at(weight=study.ENDED)
ctx.say(
    f"Without the {len(ran_away)} texts that ran away, EAGLE emits "
    f"{without.at(proposer='EAGLE').span()} tokens per target pass at gamma 3, lookup "
    f"{without.at(proposer='lookup').span()}. Most of the interval width came from them: they "
    "lower EAGLE and raise lookup, which copies a loop. The data do not show why EAGLE fails in "
    "them."
)

# %% [markdown]
# ## 6. Which gamma, at which batch size?
# Their price of EAGLE's draft does not depend on gamma: it was fitted to whole drafts of one
# length. If a head runs **once per token**, gamma tokens cost gamma times as much. The published
# numbers do not settle this, so we show both extremes. (Speed-ups are by request.)

# %%
speeds = study.speeds_by_gamma(bench, gammas, batches)
ctx.export(speeds, "speed")
mean = speeds.at(domain=score.ALL)
fastest = {}
for batch, part in mean.groups("batch"):
    for row in part.highest("reading").rows():
        fastest.setdefault(row.reading, []).append(f"{row.gamma} ({batch})")
said = [f"{reading} {', '.join(at)}" for reading, at in fastest.items()]

# %%
ctx.plot(
    speeds,
    x="gamma",
    only={"domain": [score.ALL]},
    hue="reading",
    columns="batch",
    y="speed-up (mean of the sets)",
    reference=1,
    slug="speed",
    caption="Predicted speed-up by gamma under their cost model, with EAGLE's draft paid once a "
    f"block or once per token. Best gamma: {'; '.join(said)}.",
)

# %% [markdown]
# (The best of eleven, chosen and judged on the same prompts, is slightly flattered.)
#
# ## 7. EAGLE and copies together
# We replay lookup here from the token ids: the longest suffix of at most 8 tokens that occurred
# before, at its most recent position, up to 16 tokens copied. Where at least m tokens match, a
# block **copies**; elsewhere EAGLE drafts a chain. m is fitted on one half of each set's prompts
# and judged on the other, both ways round, and again in every resample. The **oracle** knows at
# each position which of the two gets further.
#
# EAGLE's list is of another run, whose greedy text often parted from the published one. So only
# prompts count in which both have the same length and did not run away. That these are the same
# texts is likely, not proven.

# %%
alike = bench.texts[bench.texts["same_length"] & ~bench.texts["ran_away"]]
both = study.beside_copies(eagle, alike)

# %%
ways = combined.ways(both, gamma, folds=2)
ways["oracle"] = study.best_of_both(both, gamma)
together = Estimates(choose.speeds(ways).table(key="proposer"))
ctx.export(together, "together")
chosen = ways[combined.BOTH].judged.groupby("domain")["setting"].unique()
rules = "; ".join(f"{name} {' and '.join(chosen[name])}" for name in sets)

# %%
used = together.at(domain=sets)
mixed = used.at(proposer=combined.BOTH)
ctx.plot(
    together,
    x="domain",
    only={"domain": sets},
    hue="proposer",
    kind="points",
    y="tokens per target pass",
    x_label="",
    reference=1,
    slug="together",
    caption=f"Tokens per target pass, EAGLE with gamma {gamma}, on the {len(alike)} prompts whose "
    f"two texts have the same length. Both together: {mixed.listed()}. Bars: 95 % intervals.",
)
ctx.say(f"**Fitted** on either half: {rules}.")

# %% [markdown]
# Which prompts are these? Two greedy texts that never parted are mostly short ones:

# %%
sums = sums_of_starts(eagle, [gamma])
is_used = sums["prompt_id"].isin(alike["prompt_id"])
sums["prompts are"] = np.where(is_used, "used", "left out")
sums.loc[sums["prompt_id"].isin(ran_away), "prompts are"] = "ran away"
groups = sums.groupby(["domain", "prompts are"])
stands_for = groups[["emitted", "blocks"]].sum()
stands_for["prompts"] = groups.size()
stands_for["tokens per text"] = stands_for["emitted"] / stands_for["prompts"] + 1
stands_for["EAGLE alone"] = stands_for["emitted"] / stands_for["blocks"]
facts = stands_for[["prompts", "tokens per text", "EAGLE alone"]]
ctx.table(facts.reset_index(), "prompts-used", digits=2)

# %%
of_best = facts.loc[best]
here, elsewhere = of_best.loc["used"], of_best.loc["left out"]
ctx.say(
    f"{best}'s {mixed.at(domain=best)} stands for {here['prompts']:.0f} of "
    f"{of_best['prompts'].sum():.0f} prompts, with {here['tokens per text']:.0f} tokens per text. "
    f"The {elsewhere['prompts']:.0f} prompts left out (besides texts that ran away) have "
    f"{elsewhere['tokens per text']:.0f}. EAGLE alone emits {elsewhere['EAGLE alone']:.2f} tokens "
    f"per target pass there and {here['EAGLE alone']:.2f} on the prompts that are used."
)

# %% [markdown]
# A copy costs nothing to make, but checking it does: 17 tokens per request. So **by time** we fit
# everything again, under their cost model, for each price of EAGLE's draft and each batch size:
# gamma, m, and how many tokens are copied. EAGLE alone and copies alone are fitted in the same way,
# so that each is as fast as it can be. Where nothing differs, one interval of 20 excludes 0 by
# chance. (Not charged: EAGLE must read what was copied.)

# %%
gain = "both minus the better one alone"
in_time, fitted = {}, {}
for (price, batch), seconds in study.seconds_of_settings(both, tried, batches).items():
    key = f"once per {price}", f"batch {batch}"
    choices = study.fitted_in_time(seconds)
    speed = choose.speeds(choices)
    better = np.maximum(speed[combined.DRAFT], speed[combined.COPIES])
    numbers = speed.values | {gain: speed[combined.BOTH] - better}
    in_time[key] = speed.table(numbers, "proposer")
    shapes = choices[combined.BOTH].judged.groupby("domain")["setting"].unique()
    fitted[key] = shapes.map(" and ".join).rename("fitted").reset_index()

# %%
price = "EAGLE's price"
in_time = Estimates(stack(in_time, [price, "batch"])).at(domain=sets)
ctx.export(in_time, "together-in-time")
ctx.export(stack(fitted, [price, "batch"]), "fitted-in-time")
gains = in_time.at(proposer=gain)
ctx.plot(
    in_time,
    x="domain",
    only={"proposer": [*in_time.without(proposer=gain).frame["proposer"].unique()]},
    hue="proposer",
    rows=price,
    columns="batch",
    kind="bars",
    y="speed-up",
    x_label="",
    reference=1,
    height=2.2,
    slug="together-in-time",
    caption="Predicted speed-up by time, each point with its own fitted settings. EAGLE's price: "
    "once per block (above), once per token (below). Bars: 95 % intervals; the table compares the "
    "three on the same resamples.",
)
notebook.show_table(gains.wide([price, "batch"], "domain"))

# %%
is_faster = gains.frame["low"] > 0
cases = f"{is_faster.sum()} of {len(is_faster)} cases"
words = "faster in", "slower in", "no significant difference in"
said = [f"* {name}: {part.sentence(*words, within='batch')}" for name, part in gains.groups(price)]
ctx.say(
    f"**By time, both together are significantly faster than the better one alone in {cases}:**\n\n"
    + "\n".join(said)
)

# %% [markdown]
# ## 8. Which of the paper's claims hold here?
# These are the audit's claims (notebook 11) that the traces can decide, by its rule, for EAGLE,
# without texts that ran away. sharegpt stands for chat, instructcoder for code, gsm8k for math
# (nothing here is a reasoning set). `depth` is acceptance given all above, depth 3 minus depth 1.

# %%
names = {"sharegpt": "chat", "instructcoder": "code", "gsm8k": "math"}
own = ended["EAGLE"]
paper = own[own["domain"].isin(list(names))].replace({"domain": names})
mean_accepted = score.block_estimators()["mean_accepted"]
asked = {"level": (paper, study.FIRST_HIT), "length": (sums_of_starts(paper, [3]), mean_accepted)}
draws = stats.jointly(asked)
third = study.next_accepted(paper, 3)[3]

# %%
level = draws["level"]
measured = {
    "level": level,
    "gap": (level["chat"] - level["math"]).to_frame("chat - math"),
    "length": draws["length"],
    "depth": third[study.DEEPER] - third[study.EVERYWHERE],
}
measured = Estimates(draws.table(measured, "claim"))
measured = measured.without(domain=[score.ALL, score.POOLED])

# %%
evidence = {
    (claim, claims.AT_0): claims.rows_of(claim, rows.frame)
    for claim, rows in measured.groups("claim")
}
listed = claims.claims()
verdicts = claims.verdict_table(listed, claims.in_frame(listed, study.PAIR, evidence))
ctx.table(verdicts[["claim", "said", "measured", "verdict"]], "claims")

# %%
beaten = differ_from(best, study.BY_REQUEST)
than = (
    "each other prompt set"
    if len(beaten) == len(sets) - 1
    else named(beaten or ["none of the others"])
)
lookup = hit.at(proposer="lookup", weight=study.BY_REQUEST).frame
ends = lookup.sort_values("estimate").iloc[[0, -1]]
low, high = (f"{row.estimate:.2f} on {row.domain}" for row in ends.itertuples())
ctx.answer(
    f"On Llama-3.1-8B EAGLE emits {top.value:.2f} tokens per target pass on {best} (by request), "
    f"significantly more than on {than}. Lookup's `hit[1]` is {low} and {high}. By predicted "
    f"time, both together beat the better one alone in {cases}."
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. `gamma = 10` in the parameters: does what copies add to EAGLE grow or shrink?
#
# <details><summary>What happens</summary>
# It shrinks a little: where a copy goes on for long, a long chain of EAGLE's often does too. What
# copies save is the cost of drafting, which section 7 counts by time.</details>
#
# 2. `replay_starts(eagle, 21)`. Why is there no answer?
#
# <details><summary>What happens</summary>
# 20 drafted tokens per block were tried, so nobody knows what a 21st would have got. The error says
# so, because a chain of 21 that silently stops at 20 is another chain.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the average over tokens is an average over a few long texts, so weigh requests too.
#   Code edits are easiest for EAGLE and by far for lookup. EAGLE's acceptance does not rise from
#   depth 1 to depth 3: the positions reached are easier, and depth costs as much or more. Fitted by
#   time, two proposers together are mostly faster than the better one alone.
# * What this does not show: time was not measured here, it is their model's, on their machine; one
#   pair, temperature 0; EAGLE's chain, not its tree; whether texts of equal length are equal.
# * Next: notebook 10 decodes with a draft and copies together, for real.

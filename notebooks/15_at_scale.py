# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 15. What changes with a large pair on a GPU and 1,410 prompts?
#
# This page uses records that SpecDecode-Bench (arXiv:2601.11580) published. Its authors ran
# Llama-3.1-8B-Instruct on an H100 at temperature 0. For every position of 1,410 texts they publish
# how many drafted tokens the target accepts in a block that begins there. There are two proposers.
# **EAGLE** is a small network, trained to draft from the target's inner states. N-gram **lookup**
# copies what followed the last tokens earlier in the text. From these records (`starts`) we replay
# chains of up to 20 tokens exactly, without a model. The four sets are prompt sets, not domains:
# gsm8k (school maths), cnn (summaries), instructcoder (code edits) and sharegpt (chats).
#
# ![EAGLE, copying, both together and a perfect choice](../figures/llama-3.1-8b/15/together.png)
#
# *Runs on* any machine · *minutes* two on 2 cores · *reads* SpecDecode-Bench's files, whatever the
# profile (`python -m speclab fetch specdecode-bench`, 9 MB, or a folder named in SPECLAB_TRACES) ·
# *writes* `figures/llama-3.1-8b/15/`.

# %% tags=["parameters"]
# a name from notebooks/profiles, or a YAML file; it does not change the pair, which the traces fix
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# gammas of the chains that are compared; 3 must be among them
gammas: list = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20]  # 1 to 20
# gamma of EAGLE's chain together with copying, compared by tokens per target pass
gamma: int = 5  # 1 to 20
# gammas from which the fastest is chosen, compared by time
tried: list = [1, 2, 3, 5, 8, 10]  # 1 to 20
# batch sizes (requests at once)
batches: list = [1, 8, 64]  # 1 to 1024
# deepest depth that is compared
deepest: int = 6  # 3 to 20

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
import numpy as np
import pandas as pd

from speclab import copying, score, stats
from speclab.analysis import choose, claims, combined, own_pair, significance
from speclab.analysis import specdecode_bench as traces
from speclab.estimates import Estimates, stack
from speclab.show import drawings, notebook
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
# ## 1. Can we reproduce their speed-ups?
# Their simulator computes the time of a block from **their** cost model, which was fitted on their
# H100:
#
# | | fixed | per token | per cached token |
# | --- | --- | --- | --- |
# | target pass | 5.886 ms | 21.0 µs | 39.3 ns |
# | a whole draft of EAGLE | 2.135 ms | 0.8 µs | 2.4 ns |
# | loop, per step | 1.207 ms | | |
#
# A speed-up is the mean over texts of plain time divided by speculative time. In a batch all
# requests are the same. The **perfect length** drafts exactly as many tokens as the target will
# accept. Their simulator reads the records one position late, so it counts the prompt's own pass as
# a block in which every draft is rejected. We read the records in that way here only, to reproduce
# their numbers.

# %%
published = pd.DataFrame(
    {1: [1.29, 1.81, 2.01, 2.13], 8: [1.28, 1.73, 1.86, 2.06]},
    index=["gamma 1", "gamma 3", "gamma 5", "perfect length"],
)
late = traces.one_entry_late(eagle[eagle["domain"] == "gsm8k"])

# %%
chains = {f"gamma {n}": replay_starts(late, n) for n in (1, 3, 5)}
perfect = replay_starts(late, traces.LIMIT)
chains["perfect length"] = perfect.assign(drafted=perfect["accepted"])

# %%
ours = {
    batch: {name: study.times(blocks, batch)["speedup"].mean() for name, blocks in chains.items()}
    for batch in published
}
ours = pd.DataFrame(ours)
assert (ours.round(2) == published).all(axis=None)
eight = published.join(ours, lsuffix=" published", rsuffix=" ours")
eight = eight.reset_index(names="gsm8k, EAGLE, batch")
heads = {name: f"batch {name.replace(' ', ', ')}" for name in eight.columns[1:]}
ctx.table(eight, "eight", cells=eight.rename(columns=heads), digits=2)

# %% [markdown]
# All eight speed-ups agree to 0.01. From here on we read the records without that shift.
#
# ## 2. Tokens per target pass, by token and by request
# A text is cut into blocks. A block emits the accepted tokens, at most gamma, and one token more.
# The next block begins after them. Tokens per target pass are the text's tokens divided by its
# blocks.

# %% [markdown] tags=["by-hand"]
# **By hand:** we count the target passes of one text at gamma 3.

# %% tags=["by-hand"]
text = eagle[eagle["prompt_id"] == eagle["prompt_id"].iloc[0]]
accepted = text["accepted"].tolist()
position, passes = 0, 0
while position < len(accepted):
    kept = min(accepted[position], 3)  # drafted tokens that the target keeps
    position += kept + 1  # the target adds one token of its own
    passes += 1
print(f"{len(text)} tokens in {passes} target passes: {len(text) / passes:.2f} per target pass")

# %%
by_kit = sums_of_starts(text, [3])
assert (by_kit["emitted"].item(), by_kit["blocks"].item()) == (len(text), passes)

# %% [markdown]
# A set can be averaged in two ways. **By token** divides all tokens of the set by all its blocks,
# so long texts count most. **By request** is the mean of the texts' own ratios, so every request
# counts the same. A text **ran away** if the published run or EAGLE's run stopped only at the limit
# of 8,192 tokens.

# %%
ran_away = bench.texts.loc[bench.texts["ran_away"], "prompt_id"]
is_runaway = eagle["prompt_id"].isin(ran_away)
share = is_runaway.groupby(eagle["domain"]).mean()
of_set = bench.texts.groupby("domain")["ran_away"].sum()
ctx.record(ran_away=len(ran_away))
ctx.say(study.ran_away_in_words(of_set[sets], share, len(bench.texts)))

# %% [markdown]
# Intervals are 95 % intervals. We resample whole prompts 2,000 times within each set.

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
    reference_name="plain decoding",
    slug="tokens-per-pass",
    title=f"At gamma 3, EAGLE emits {by_request.at(proposer='EAGLE').span()} tokens per target "
    f"pass and lookup {by_request.at(proposer='lookup').span()}",
    caption="Tokens per target pass by gamma and prompt set, every request weighted the same. "
    "Curves flatten where longer drafts are mostly rejected. Bands: 95 % intervals. "
    "Black line: plain decoding, one token per target pass.",
)
notebook.show_table(at_3.wide(["proposer", "weight"], "domain"))

# %% [markdown]
# Averaged by token, a few runaway texts widen instructcoder's interval and lower EAGLE's value.
# Averaged by request, no single text counts for much.
#
# ## 3. Does the prompt set matter?
# The table shows the share of positions at which the target accepts the first drafted token
# (`hit[1]`).

# %%
firsts = study.weighted(proposers, [1], "accepted", ran_away, "every")
of_all = {
    key: stats.by_domain(*first).frame.drop(columns="estimator") for key, first in firsts.items()
}
of_all = Estimates(stack(of_all, ["proposer", "weight"]), digits=3)
ctx.export(of_all, "hit")
hit = of_all.at(domain=sets).in_units("%", digits=1)
notebook.show_table(hit.wide(["proposer", "weight"], "domain"))

# %% [markdown]
# Do the sets differ significantly in tokens per target pass at gamma 3? A permutation test moves
# whole prompts between two sets. Holm's correction covers the six pairs of a proposer, and
# *significant* means an adjusted p below 0.05.

# %%
emitted = study.weighted(proposers, [3], "emitted", ran_away)
tested = {key: significance.differences(*sums, n=2000) for key, sums in emitted.items()}
tested = stack(tested, ["proposer", "weight"])
tested["significant"] = tested["p_holm"] < 0.05

# %%
of_requests = tested[tested["weight"] == study.BY_REQUEST]
ctx.export(tested, "differences")
notebook.show_table(study.in_pairs(of_requests))
ctx.say("*One set minus the other, by request. A star marks a significant difference.*")

# %%
top = by_request.at(proposer="EAGLE").highest("proposer")
best = top.frame["domain"].item()
of_eagle = tested[tested["proposer"] == "EAGLE"]
said = []
for weight, rows in of_eagle.groupby("weight", sort=False):
    first = at_3.at(proposer="EAGLE", weight=weight).highest("proposer").row
    lead = study.more_than(study.beaten_by(rows, first.domain))
    said.append(f"* {weight}: on {first.domain} ({first.estimate:.2f}), {lead}")
question = "**On which set does EAGLE emit the most tokens per target pass (gamma 3)?**"
ctx.say("\n".join([f"{question}\n", *said]))

# %% [markdown]
# ## 4. Is a token accepted more often at greater depth?
# Two effects mix. **Selection:** only drafts at easy positions get deep. **Cost of depth:** EAGLE
# drafts a deep token from its own guesses instead of the target's states. A new block that begins
# at the same position separates the two effects, because its first token depends on no guess. Texts
# that ran away are left out.

# %%
ended = {
    name: rows[~rows["prompt_id"].isin(ran_away)].reset_index(drop=True)
    for name, rows in proposers.items()
}

# %%
by_depth = {name: study.next_accepted(rows, deepest) for name, rows in ended.items()}
depths = {
    (name, depth): draws.table().frame
    for name, found in by_depth.items()
    for depth, draws in found.items()
}
depths = Estimates(stack(depths, ["proposer", "depth"]))
ctx.export(depths, "depth")

# %%
deep = by_depth["EAGLE"][deepest]
cost_of_depth = {study.COST: deep[study.DEEPER] - deep[study.AFRESH]}
cost_of_depth = deep.table(cost_of_depth).at(domain=sets)
ctx.draw(
    drawings.draw_depth,
    depths,
    "depth",
    title=f"At depth {deepest}, the cost of depth changes EAGLE's acceptance by "
    f"{cost_of_depth.in_units('points').span()}",
    caption="EAGLE's acceptance by depth, given that all shallower tokens were accepted, and the "
    "acceptance of a new block's first token at the same positions. The shaded gap is the cost of "
    "depth. Thin line: a new block's first token at all positions. Bands: 95 % intervals.",
    sets=sets,
    names=[study.EVERYWHERE, study.AFRESH, study.DEEPER],
)

# %% [markdown]
# The change from depth 1 to depth 3 is the sum of the two effects.

# %%
third = by_depth["EAGLE"][3]
parts = {
    study.CHANGE: third[study.DEEPER] - third[study.EVERYWHERE],
    study.SELECTION: third[study.AFRESH] - third[study.EVERYWHERE],
    study.COST: third[study.DEEPER] - third[study.AFRESH],
}
change = third.table(parts, "EAGLE").at(domain=sets).in_units("points", digits=1)
ctx.table(change, "depth-parts", most=60, cells=change.wide("EAGLE", "domain"))

# %%
verbs = "rises", "falls", "does not change significantly"
trend = change.at(EAGLE=study.CHANGE).tally(*verbs, noun="set")
ctx.say(
    f"From depth 1 to depth 3 of EAGLE's drafts, acceptance {trend}. "
    f"Selection contributes {change.at(EAGLE=study.SELECTION).span()}, the cost of depth "
    f"{change.at(EAGLE=study.COST).span()}."
)

# %% [markdown]
# ### And a small pair?
# The kit's own pair (SmolLM2-135M) has a draft, which reads the text only, and a trained head,
# which drafts from its own states as EAGLE does. The table shows the share of tokens that are
# accepted at each depth, given that all shallower tokens were accepted (greedy text, mean of the
# prompt sets). Targets, prompts and text lengths differ, so only the course of a row compares.

# %%
own = own_pair.traces()
of_eagle = depths.at(proposer="EAGLE", name=study.DEEPER).frame
of_eagle = of_eagle.rename(columns={"proposer": "draft"}).drop(columns="name")
of_ours = [own_pair.at_depths(own, deepest, "every").frame] if own else []
of_pairs = Estimates(pd.concat([of_eagle, *of_ours])).at(domain="all").in_units("%")
heads = {depth: f"depth {depth}" for depth in range(1, deepest + 1)}
by_pair = of_pairs.wide("draft", "depth").rename(columns=heads)
ctx.table(of_pairs, "depth-own-pair", most=60, cells=by_pair)
ctx.say(own_pair.left_out(own) or "Notebook 18 compares our draft with our head.")

# %% [markdown]
# ## 5. Do texts that ran away repeat themselves?
# A token *repeats* when it ends a run of four tokens that occurred before in the same text.

# %%
tokens = bench.texts.explode("generated_token_ids")
tokens = tokens.rename(columns={"generated_token_ids": "token"})
tokens["position"] = tokens.groupby("prompt_id").cumcount()
tokens["value"] = copying.repeats(tokens.astype({"token": int}))
panels = {
    "tokens that repeat": tokens,
    "EAGLE: first token accepted": eagle.assign(value=eagle["hit"]),
}
of_sets = stats.jointly({name: (rows, score.mean_of("value")) for name, rows in panels.items()})
of_sets = of_sets.table().at(domain=sets)

# %%
pictured = {}
for name, rows in panels.items():
    dots = rows.groupby(["prompt_id", "domain"])["value"].mean().reset_index()
    pictured[name] = dots, of_sets.at(name=name).frame

# %%
by_text = tokens.groupby("prompt_id")["value"].mean()
ctx.strips(
    pictured,
    "value",
    "share of tokens, or of positions",
    "loops",
    title=f"In {(by_text > 0.5).sum()} of {len(by_text):,} texts most tokens repeat",
    caption="Share of a text's tokens that repeat, and share of positions at which EAGLE's first "
    "token is accepted (`hit[1]`). Each dot is a text. The dark mark is the mean of the set, by "
    "token, with its 95 % interval. Texts on the right of the first panel are loops.",
)

# %%
repeats = tokens.loc[tokens["prompt_id"].isin(ran_away), "value"].mean()
ctx.say(f"In texts that ran away, {100 * repeats:.0f} % of the tokens repeat.")

# %% [markdown]
# So these texts are loops. Lookup copies a loop, so its average by token rises (section 2). The
# data do not show why EAGLE fails in loops.

# %% [markdown]
# ## 6. Which gamma, at which batch size?
# In their cost model the time of EAGLE's draft does not depend on gamma, because the model was
# fitted to whole drafts of one length. If EAGLE's network runs **once per token**, gamma tokens
# cost gamma times as much. The published numbers do not settle this, so we show both extremes.
# Speed-ups are averaged by request.

# %%
speeds = study.speeds_by_gamma(bench, gammas, batches)
ctx.export(speeds, "speed")
mean = speeds.at(domain=score.ALL)
fastest = {}
for batch, part in mean.groups("batch"):
    for row in part.highest("reading").rows():
        fastest.setdefault(row.reading, {})[batch] = row.gamma

# %%
per_block, per_token = (fastest[reading][f"batch {batches[0]}"] for reading in study.EAGLES)
ctx.plot(
    speeds,
    x="gamma",
    only={"domain": [score.ALL]},
    hue="reading",
    columns="batch",
    y="speed-up (x, mean of the sets)",
    reference=1,
    reference_name="plain decoding",
    looks=study.predicted(study.READINGS),
    slug="speed",
    title=f"At batch {batches[0]}, EAGLE's best gamma is {per_block} if paid once per block, and "
    f"{per_token} if once per token",
    caption="Speed-up by gamma and batch size. Hollow marks are predicted by the authors' cost "
    "model, not measured. Two lines for EAGLE: its draft is paid once per block, or once per "
    "token. The peak is the best gamma. Bands: 95 % intervals.",
)
best_gammas = pd.DataFrame(fastest).T.rename_axis("best gamma").reset_index()
notebook.show_table(best_gammas)

# %% [markdown]
# The best of these gammas is chosen and judged on the same prompts, so its speed-up is slightly too
# high.
#
# ## 7. What do EAGLE and copying gain together?
# Here we do not use the authors' lookup but **copying**, our own rule, which we replay from the
# token ids. It takes the longest suffix of at most 8 tokens that occurred before, at its most
# recent position, and copies up to 16 tokens. *Both together*: where at least m tokens match, a
# block copies; elsewhere EAGLE drafts a chain. We fit m on one half of each set's prompts and judge
# it on the other half, in both directions and again in every resample. The **perfect choice** knows
# at each position which of the two gets further.
#
# EAGLE's records come from another run, and its greedy text often differs from the published text.
# So we keep only prompts whose two texts have the same length and did not run away. Texts of the
# same length are probably, but not provably, the same.

# %%
alike = bench.texts[bench.texts["same_length"] & ~bench.texts["ran_away"]]
both = study.beside_copies(eagle, alike)

# %%
ways = combined.ways(both, gamma, folds=2)
together = {study.WAYS[name]: choice for name, choice in ways.items()}
together[study.PERFECT] = study.best_of_both(both, gamma)
together = choose.speeds(together).table(key="proposer")
ctx.export(together, "together")
chosen = ways[combined.BOTH].judged.groupby("domain")["setting"].unique()
rules = pd.DataFrame({"fitted m": chosen[sets].map(study.fitted_leasts)})

# %%
used = together.at(domain=sets)
mixed = used.at(proposer=study.TOGETHER)
alone = used.at(proposer=study.ALONE)
ctx.plot(
    together,
    x="domain",
    only={"domain": sets},
    hue="proposer",
    kind="points",
    y="tokens per target pass",
    x_label="",
    reference=1,
    reference_name="plain decoding",
    slug="together",
    title=f"EAGLE with copying emits {mixed.span()} tokens per target pass, alone {alone.span()}",
    caption="Tokens per target pass by prompt set, for EAGLE alone, copying alone, both together, "
    f"and a perfect choice between the two. EAGLE drafts {gamma} tokens. We use only the "
    f"{len(alike)} prompts for which EAGLE's run and the published run gave texts of the same "
    "length. Bars: 95 % intervals.",
)
notebook.show_table(rules.T.rename_axis("both together").reset_index())
ctx.say("*The fitted m; two numbers if the two halves of the prompts differ.*")

# %% [markdown]
# Which prompts are used? The longer a text, the more likely the two runs diverge. So we use mostly
# short texts. Where EAGLE alone emits more on the prompts used than on those left out, the number
# of both together is probably too high for the whole set.

# %%
sums = sums_of_starts(eagle, [gamma])
is_used = sums["prompt_id"].isin(alike["prompt_id"])
sums["prompts are"] = np.where(is_used, "used", "left out")
sums.loc[sums["prompt_id"].isin(ran_away), "prompts are"] = "ran away"
groups = sums.groupby(["domain", "prompts are"])
by_use = groups[["emitted", "blocks"]].sum()
by_use["prompts"] = groups.size()
by_use["tokens per text"] = by_use["emitted"] / by_use["prompts"] + 1
by_use["EAGLE alone"] = by_use["emitted"] / by_use["blocks"]
facts = by_use[["prompts", "tokens per text", "EAGLE alone"]].reset_index()
length = "tokens per text"
shown = facts.round({length: 0}).astype({length: int})
ctx.table(facts, "prompts-used", digits=2, cells=shown)

# %% [markdown]
# A copy costs nothing to make, but the target has to check up to 17 tokens per request. So we fit
# everything again **by time**, under their cost model, for both prices of EAGLE's draft and each
# batch size. We fit gamma, m and the number of copied tokens. EAGLE alone and copying alone are
# fitted in the same way, so each is as fast as it can be. By chance, one interval in 20 excludes 0
# where there is no difference. We do not charge the time in which EAGLE reads what was copied.

# %%
gain = "both minus the better one alone"
in_time, fitted = {}, {}
for (price, batch), seconds in study.seconds_of_settings(both, tried, batches).items():
    key = f"once per {price}", f"batch {batch}"
    choices = study.fitted_in_time(seconds)
    speed = choose.speeds(choices)
    better = np.maximum(speed[combined.DRAFT], speed[combined.COPIES])
    numbers = speed.values | {gain: speed[combined.BOTH] - better}
    in_time[key] = speed.table(numbers, "proposer").frame
    shapes = choices[combined.BOTH].judged.groupby("domain")["setting"].unique()
    fitted[key] = shapes.map(" and ".join).rename("fitted").reset_index()

# %%
price = "EAGLE's price"
in_time = Estimates(stack(in_time, [price, "batch"])).at(domain=sets)
ctx.export(in_time, "together-in-time")
ctx.export(stack(fitted, [price, "batch"]), "fitted-in-time")
gains = in_time.at(proposer=gain)
is_faster = gains.frame["low"] > 0
ctx.plot(
    in_time,
    x="domain",
    only={"proposer": [gain]},
    hue=price,
    columns="batch",
    kind="points",
    y="gain in speed-up (x)",
    x_label="",
    reference=0,
    reference_name="no gain",
    looks=study.predicted(gains.frame[price].unique()),
    slug="together-in-time",
    title="EAGLE with copying is predicted to beat the better one alone in "
    f"{is_faster.sum()} of {len(is_faster)} cases",
    caption="Speed-up of both together minus the speed-up of the better one alone, by prompt set "
    "and batch size, each with its own fitted settings. Hollow marks are predicted by the authors' "
    "cost model, not measured. Two points per set: EAGLE's draft is paid once per block, or once "
    "per token. Bars: 95 % intervals.",
)
notebook.show_table(gains.wide([price, "batch"], "domain"))
ctx.say("*Speed-up of both together minus the speed-up of the better one alone, as drawn above.*")

# %% [markdown]
# ## 8. Which of the paper's claims hold here?
# We test the claims of notebook 11 that these records can decide, for EAGLE, without texts that ran
# away. sharegpt stands for chat, instructcoder for code and gsm8k for math; no set stands
# for reasoning. In the claim about depth, acceptance is conditional on all shallower tokens.

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
measured = draws.table(measured, "claim")
measured = measured.without(domain=[score.ALL, score.POOLED])

# %%
evidence = {
    (claim, claims.AT_0): claims.rows_of(claim, rows.frame)
    for claim, rows in measured.groups("claim")
}
listed = claims.claims()
verdicts = claims.verdict_table(listed, claims.in_frame(listed, study.PAIR, evidence))
shown = verdicts[["said", "measured", "verdict"]].rename(columns={"said": "claim"})
ctx.table(verdicts[["claim", "said", "measured", "verdict"]], "claims", cells=shown)

# %%
others = study.beaten_by(of_requests[of_requests["proposer"] == "EAGLE"], best)
where = f"(EAGLE, {study.CALLED[best]})"
ctx.record(
    headline=f"Another pair, {study.PAIR}: **{top.value:.2f}** tokens per target pass {where}"
)
ctx.answer(study.proposers_in_words(top, others, is_faster))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. Set `gamma = 10` in the parameters. Does the gain from copying grow or shrink?
#
# <details><summary>What happens</summary>
# It shrinks a little. Where a long copy is accepted, a long chain of EAGLE often is, too. Copies
# still save the cost of drafting, which section 7 counts by time.</details>
#
# 2. Run `replay_starts(eagle, 21)`. Why does it fail?
#
# <details><summary>What happens</summary>
# The authors tried 20 drafted tokens per block, so the fate of a 21st is unknown. The function says
# so instead of stopping at 20 silently.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: averages over tokens depend on a few long texts, so we also average over requests.
#   Code edits are the easiest set for EAGLE, and by far the easiest for lookup. EAGLE's acceptance
#   does not rise from depth 1 to depth 3, because the cost of depth cancels selection. By predicted
#   time, two proposers together are mostly faster than the better one.
# * What this does not show: measured time (the times come from the authors' model of their
#   machine), other pairs, temperatures above 0, and EAGLE's tree.
# * Next: [10](10_wall_clock.ipynb) decodes with a draft and copies together and measures the time.

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
# SpecDecode-Bench (arXiv:2601.11580) published what the kit is built for. Of Llama-3.1-8B-Instruct
# on an H100 they say, for every place in 1,410 texts at temperature 0, how many tokens of a block
# that begins there are accepted: once with EAGLE, a trained head that drafts, and once with n-gram
# **lookup**, which copies what followed the last tokens earlier on. From these `starts` chains of
# any length up to 20 are replayed exactly, without a model. First their own eight speed-ups must
# come out; only then anything else is asked. The four sets are prompt sets, not domains: gsm8k
# (school maths), cnn (summaries), instructcoder (edits of code), sharegpt (chats).
#
# ![Tokens a pass: EAGLE, copies, both, and the oracle](../figures/llama-3.1-8b/15/together.png)
#
# *Runs on* any machine · *minutes* two on 2 cores · *reads* SpecDecode-Bench's files (`python -m
# speclab fetch specdecode-bench`, 9 MB; or a folder that has them, in SPECLAB_TRACES), whatever the
# profile · *writes* `figures/llama-3.1-8b/15/`.

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Colab and Kaggle: fetches the kit and installs what is missing. In a checkout it only moves to the
# repository's root.
import os, shutil, subprocess, sys
from pathlib import Path

here, kit, is_kit = (
    Path.cwd(),
    Path("speclab-kit").resolve(),
    "speclab/show/notebook.py",
)
root = next((p for p in (here, *here.parents, kit) if (p / is_kit).is_file()), None)
origin = "here already; remove it to fetch another"
if root is None:
    address, half = os.environ.get("SPECLAB_REPO"), Path("speclab-kit.half").resolve()
    attached = min(Path("/kaggle/input").rglob(is_kit), default=None)
    why = "set SPECLAB_REPO to the kit's git address, or attach the kit as a data set"
    shutil.rmtree(half, ignore_errors=True)
    if address:  # wins over what is attached
        os.environ["GIT_TERMINAL_PROMPT"], origin = "0", f"from {address}"
        git = ["git", "clone", "--depth", "1", address, str(half)]
        said = subprocess.run(git, capture_output=True, text=True).stderr
        said = said.partition("fatal: ")[2].split("\n")[0] or "no kit is there"
        why = f"SPECLAB_REPO={address}: {said}"
    elif attached:  # read-only; the copy is not
        origin = f"from {attached.parents[2]}"
        shutil.copytree(attached.parents[2], half, copy_function=shutil.copyfile)
        for folder, *_ in os.walk(half):
            os.chmod(folder, 0o755)
    if kit.exists():
        why = f"{kit} is in the way, remove it"
    if kit.exists() or not (half / is_kit).is_file():
        shutil.rmtree(half, ignore_errors=True)
        raise SystemExit(f"No kit here: {why}.")
    root = half.rename(kit)
os.chdir(root)
sys.path.insert(0, str(root))
if root == kit:
    from speclab.show.notebook import install_missing

    about = Path("pyproject.toml").read_text(encoding="utf-8")
    version = about.partition('version = "')[2].partition('"')[0]
    print(f"speclab {version} in {root}, {origin}")
    install_missing(root)

# %% jupyter={"source_hidden": true}
from functools import partial

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import bins, choose, claims, combined, loops, significance
from speclab.analysis import specdecode_bench as traces
from speclab.analysis import specdecode_cost as cost
from speclab.show import figures, notebook
from speclab.show.estimates import Estimates, stack
from speclab.starts import replay_starts, sums_of_starts
from speclab.studies import at_scale as study

# %% tags=["parameters"]
# a name from notebooks/profiles, or a YAML file; the pair is the traces' own, whatever it says
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# drafted tokens of the chains that are compared; 3 among them
gammas: list = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20]  # 1 to 20
# of the chain that is drafted where nothing is copied
gamma: int = 5  # 1 to 20
# requests at once
batches: list = [1, 8, 64]  # 1 to 1024
# depths that are looked at
deepest: int = 6  # 3 to 20

# %%
ctx = notebook.start("15_at_scale", profile, overrides)
bench = study.traces_here()
bench.starts["hit"] = bench.starts["accepted"] > 0  # the first drafted token
proposers = {"EAGLE": bench.of(traces.EAGLE), "lookup": bench.of(traces.LOOKUP)}
eagle = proposers["EAGLE"]
sets = list(score.domains_in(eagle))

# %% [markdown]
# ## 1. First their own numbers
# Their simulator prices a block with **their** cost model, fitted on their H100: a pass of the
# target takes 5.886 ms + 21.0 µs a token + 39.3 ns a cached token, a whole draft of EAGLE 2.135 ms
# + 0.8 µs a token + 2.4 ns a cached token, every step 1.207 ms more. A speed-up is the mean over
# texts of plain time over speculative time; a batch is one request repeated; `oracle` drafts just
# as many tokens as will be accepted. (Their simulator reads the lists one entry late, which counts
# the prompt's own pass as a block that drafted in vain. Here they are read so once, to get their
# numbers, and never again.)

# %%
published = pd.DataFrame(
    {1: [1.29, 1.81, 2.01, 2.13], 8: [1.28, 1.73, 1.86, 2.06]},
    index=["gamma 1", "gamma 3", "gamma 5", "oracle"],
)
late = traces.one_entry_late(eagle[eagle["domain"] == "gsm8k"])

# %%
chains = {f"gamma {n}": replay_starts(late, n) for n in (1, 3, 5)}
chains["oracle"] = cost.with_oracle_length(replay_starts(late, traces.LIMIT))

# %%
ours = {
    batch: {
        name: cost.times(blocks, batch)["speedup"].mean()
        for name, blocks in chains.items()
    }
    for batch in published
}
ours = pd.DataFrame(ours)
assert (ours.round(2) == published).all(axis=None), "nothing else is asked"
eight = published.join(ours, lsuffix=" published", rsuffix=" ours")
ctx.table(eight.reset_index(names="gsm8k, EAGLE, batch"), "eight")

# %% [markdown]
# All eight agree to 0.01. What follows is the kit's own reading.
#
# ## 2. Tokens a pass
# A text is cut into blocks: a block emits what is accepted at its place, at most gamma, and one
# token more; the next begins behind it. Tokens a pass are the text's tokens over its blocks. By
# hand, for one text and gamma 3:

# %%
text = eagle[eagle["prompt_id"] == eagle["prompt_id"].iloc[0]]
accepted, place, passes = text["accepted"].tolist(), 0, 0
while place < len(accepted):
    place += min(accepted[place], 3) + 1
    passes += 1
assert np.isclose(len(text) / passes, study.PER_PASS(sums_of_starts(text, [3])))

# %% [markdown]
# Every interval here resamples whole prompts 2,000 times within their set (95 %).

# %%
of_all = study.per_pass(proposers, gammas)
ctx.export(of_all, "tokens-a-pass")
per_pass = of_all.at(domain=sets)

# %%
at_3 = per_pass.at(gamma=3)
ctx.plot(
    per_pass,
    x="gamma",
    columns="proposer",
    y="tokens a target pass",
    reference=1,
    slug="tokens-a-pass",
    caption="Tokens a target pass by gamma: at gamma 3 EAGLE has "
    f"{at_3.at(proposer='EAGLE').span()} by set, lookup {at_3.at(proposer='lookup').span()}. "
    "Bands: 95 %.",
)
notebook.show_table(at_3.wide("proposer", "domain"))

# %% [markdown]
# ## 3. Does the prompt set matter?
# `hit[1]`, the share of places where the first drafted token is accepted, and the differences
# between sets: permutation tests that move whole prompts, Holm's correction over the six pairs of
# each proposer.

# %%
hits = stats.jointly(
    {name: (rows, study.FIRST_HIT) for name, rows in proposers.items()}
)
of_all = Estimates(hits.table(key="proposer"), digits=3)
ctx.export(of_all, "hit")
hit = of_all.at(domain=sets)
notebook.show_table(hit.wide("proposer", "domain"))

# %%
tested = {
    name: significance.differences(rows, study.FIRST_HIT)
    for name, rows in proposers.items()
}
tested = stack(tested, "proposer")
ctx.table(tested, "differences")

# %%
spread = {
    name: hits[name][sets].max(axis=1) / hits[name][sets].min(axis=1)
    for name in proposers
}
spread = Estimates(hits.table(spread, "proposer"))
ctx.say(f"**The best set over the worst**: {spread.listed('proposer')}.")

# %% [markdown]
# ## 4. Depth, place, prompt length
# Given that all above was accepted, EAGLE's acceptance rises with depth. Is it the depth, or do
# only easy places get so far? A new block that begins at the very same place answers: it needs no
# luck above. By hand at depth 3, over all places (`shift`: the start two tokens on):

# %%
so_far = (eagle["accepted"] >= 2) & (eagle["remaining"] > 2)
deeper = (eagle["accepted"][so_far] >= 3).mean()
afresh = (eagle["accepted"].shift(-2)[so_far] > 0).mean()

# %%
depths = study.down_to(proposers, deepest)
ctx.export(depths, "depth")
kit = depths.at(proposer="EAGLE", depth=3, domain=score.POOLED)
kit = kit.at(name=[study.AFRESH, study.DEEPER])
assert np.allclose(kit.frame["estimate"], [afresh, deeper])

# %%
depths = depths.at(domain=sets)
last = depths.at(proposer="EAGLE", depth=deepest)
ctx.plot(
    depths,
    x="depth",
    hue="name",
    rows="proposer",
    columns="domain",
    y="accepted",
    height=1.7,
    slug="depth",
    caption=f"Acceptance at a depth, given all above. At depth {deepest} EAGLE has "
    f"{last.at(name=study.DEEPER).span()} by set, a new block at the same places "
    f"{last.at(name=study.AFRESH).span()}: what rises is the choice of places, and depth itself "
    "costs EAGLE some.",
)

# %%
along, lengths = {}, {}
for name, rows in proposers.items():
    place = pd.cut(rows["position"] + 1, study.EDGES, right=False, labels=study.PLACES)
    along[name] = bins.group_means(rows.assign(tokens=place), "hit", "tokens")
    median = rows.groupby("domain")["prompt_tokens"].transform("median")
    half = np.where(rows["prompt_tokens"] > median, "longer", "shorter")
    lengths[name] = bins.group_means(rows.assign(prompts=half), "hit", "prompts")

# %%
along = Estimates.stacked(along, "proposer").at(domain=sets)
lengths = Estimates.stacked(lengths, "proposer").at(domain=sets)
ctx.export(along, "place")
ctx.plot(
    along,
    x="tokens",
    columns="proposer",
    kind="points",
    y="hit[1]",
    x_label="place in the text (tokens)",
    slug="place",
    caption="hit[1] by the place in the text, with 95 % intervals. The last bin belongs to the few "
    "long texts of section 5.",
)

# %%
notebook.show_table(lengths.wide(["proposer", "prompts"], "domain"))

# %% [markdown]
# hit[1] where the prompt is longer than the median place's of its set, and where it is shorter.
#
# ## 5. Long texts that say the same again
# Instructcoder's intervals are wide. A token *repeats* when it ends a run of four tokens that its
# own text has had before; texts were stopped at a length that the longest have. Each dot is a
# prompt, each bar its set's own number, over tokens:

# %%
tokens = study.tokens_of(bench.texts)
tokens["value"] = loops.repeats(tokens)
panels = {
    "share that repeats": tokens,
    "EAGLE's hit[1]": eagle.assign(value=eagle["hit"]),
}
of_sets = stats.jointly(
    {name: (rows, score.mean_of("value")) for name, rows in panels.items()}
)
of_sets = Estimates(of_sets.table()).at(domain=sets)

# %%
pictured = {}
for name, rows in panels.items():
    dots = rows.groupby(["prompt_id", "domain"])["value"].mean().reset_index()
    pictured[name] = dots, of_sets.at(name=name).frame

# %%
listed = bench.starts.groupby("prompt_id")["position"].max() + 1
longest = listed.max()
stopped = listed.index[listed == longest]
ctx.save(
    figures.strips(pictured, "value", "share of a text's tokens"),
    "loops",
    caption="A dot a prompt, a bar a set. Over tokens "
    f"{of_sets.at(name='share that repeats').listed()} repeats.",
)

# %%
ended = {
    name: rows[~rows["prompt_id"].isin(stopped)] for name, rows in proposers.items()
}
without = study.per_pass(ended, [3]).at(domain=sets)
ctx.say(
    f"Tokens a pass at gamma 3 without the {len(stopped)} prompts whose text or list was stopped "
    f"at {longest} tokens: {without.listed(within='proposer')}. They make most of the width: they "
    "move EAGLE down and lookup, which copies a loop, up. Why EAGLE fails in them these columns do "
    "not say."
)

# %% [markdown]
# ## 6. Which gamma, at which batch size?
# Their price of EAGLE's draft does not depend on gamma: it was fitted to whole drafts of one
# length. If a head runs **once a token**, gamma tokens cost gamma times as much. Nobody can tell
# from the published numbers, so both readings are shown; the truth should lie between.

# %%
speeds = study.speeds_by_gamma(bench, gammas, batches)
ctx.export(speeds, "speed")
mean = speeds.at(domain=score.ALL)
best = []
for batch, part in mean.groups("batch"):
    rows = part.highest("reading").rows()
    best.append(f"{batch}: " + ", ".join(f"{row.reading} {row.gamma}" for row in rows))

# %%
ctx.plot(
    mean,
    x="gamma",
    hue="reading",
    columns="batch",
    y="speed-up (mean of the sets)",
    reference=1,
    slug="speed",
    caption="Predicted speed-up over plain decoding by gamma, under their cost model and two "
    f"readings of the draft's price. The best gamma: {'; '.join(best)}.",
)

# %% [markdown]
# (The best of eleven, chosen and judged on the same prompts: a little flattered.)
#
# ## 7. EAGLE and copies together
# Lookup is replayed here from the token ids: the longest suffix of at most 8 tokens that stood
# before, at its most recent place, up to 16 tokens copied. Where at least m tokens match a block
# **copies**, elsewhere EAGLE drafts a chain. m is fitted on one half of each set's prompts and
# judged on the other, both ways round, and again in every resample. The **oracle** knows at each
# place which of the two gets further.
#
# EAGLE's list is of another run, whose greedy text often parted from the published one. So only
# prompts count in which both have the same length and were not stopped; that these are the same
# texts is likely, not proven.

# %%
alike = bench.texts[bench.texts["same_length"]]
lined_up = alike[~alike["prompt_id"].isin(stopped)]
both = study.beside_copies(eagle, lined_up)

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
    used,
    x="domain",
    hue="proposer",
    kind="points",
    y="tokens a target pass",
    x_label="",
    reference=1,
    slug="together",
    caption=f"Tokens a pass, EAGLE with gamma {gamma}. Both together: {mixed.listed()}. "
    f"{both['prompt_id'].nunique()} prompts.",
)
ctx.say(f"**Fitted** on either half: {rules}.")

# %% [markdown]
# A copy is free to make and not to check: 17 tokens a request. So m is fitted again **by time**,
# under their cost model at each batch size. (Not charged: EAGLE must read what was copied.)

# %%
in_time, gain = {}, "both less the better one"
for price in ("block", "token"):
    for batch in batches:
        found = choose.speeds(study.ways_in_time(both, gamma, batch, price))
        better = np.maximum(found[combined.DRAFT], found[combined.COPIES])
        numbers = found.values | {gain: found[combined.BOTH] - better}
        key = f"once a {price}", f"batch {batch}"
        in_time[key] = found.table(numbers, "proposer")

# %%
readings = "EAGLE's price"
in_time = Estimates(stack(in_time, [readings, "batch"])).at(domain=sets)
ctx.export(in_time, "together-in-time")
gains = in_time.at(proposer=gain)
ctx.plot(
    in_time.without(proposer=gain),
    x="domain",
    hue="proposer",
    rows=readings,
    columns="batch",
    kind="bars",
    y="speed-up",
    x_label="",
    reference=1,
    height=2.2,
    slug="together-in-time",
    caption="Predicted speed-up by time, with 95 % intervals. EAGLE's price: once a block (above), "
    "once a token (below).",
)

# %%
words = "faster in", "slower in", "no significant difference in"
said = [
    f"* {name}: {part.sentence(*words, within='batch')}"
    for name, part in gains.groups(readings)
]
ctx.say(
    "**Both compared with the better of the two alone**, by EAGLE's price:\n\n"
    + "\n".join(said)
)

# %% [markdown]
# ## 8. Which of the paper's claims hold here?
# Those of the audit (notebook 11) that these columns can decide, by its rule, for EAGLE: sharegpt
# stands for chat, instructcoder for code, gsm8k for math (nothing here is a reasoning set). `depth`
# is acceptance given all above, at depth 3 less depth 1. (Orders and places: sections 3 and 4.)

# %%
names = {"sharegpt": "chat", "instructcoder": "code", "gsm8k": "math"}
paper = eagle[eagle["domain"].isin(list(names))].replace({"domain": names})
mean_accepted = score.block_estimators()["mean_accepted"]
asked = {
    "level": (paper, study.FIRST_HIT),
    "length": (sums_of_starts(paper, [3]), mean_accepted),
}
draws = stats.jointly(asked)
by_depth = study.next_accepted(paper, 3)

# %%
level = draws["level"]
measured = {
    "level": level,
    "gap": (level["chat"] - level["math"]).to_frame("chat - math"),
    "length": draws["length"],
    "depth": by_depth[3][study.DEEPER] - by_depth[1][study.DEEPER],
}
measured = Estimates(draws.table(measured, "claim"))
measured = measured.without(domain=[score.ALL, score.POOLED])

# %%
evidence = {
    (claim, claims.AT_0): partial(claims.rows_of, claim, rows.frame)
    for claim, rows in measured.groups("claim")
}
listed = claims.claims()
verdicts = claims.verdict_table(listed, claims.in_frame(listed, study.PAIR, evidence))
ctx.table(verdicts[["claim", "said", "measured", "verdict"]], "claims")

# %%
by_code = "instructcoder"
ctx.answer(
    f"On {study.PAIR} the prompt set hardly matters to EAGLE and decides about lookup: the best "
    f"set's hit[1] is {spread.at(proposer='EAGLE')} times the worst's with EAGLE, "
    f"{spread.at(proposer='lookup')} times with lookup. Where its texts ended, both together reach "
    f"{mixed.at(domain=by_code)} tokens a pass on {by_code}, where EAGLE alone has "
    f"{used.at(proposer=combined.DRAFT, domain=by_code)}."
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. `gamma = 10` in the parameters: does what copies add to EAGLE grow or shrink?
#
# <details><summary>What happens</summary>
# It shrinks a little: where a copy goes on for long, a long chain of EAGLE's often does too. What
# copies save is the price of drafting, which section 7 counts by time.</details>
#
# 2. `study.per_pass(proposers, [21])`. Why is there no answer?
#
# <details><summary>What happens</summary>
# 20 drafted tokens a block were tried, so nobody knows what a 21st would have got: an error says
# so, because a chain of 21 that silently stops at 20 is another chain.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: what one prompt set says about a draft need not hold for another kind of draft: the
#   trained head is nearly blind to the set, copies live by it. Acceptance that rises with depth is
#   a choice of places. Two proposers together get much of what an oracle would, where texts repeat
#   their prompts; at large batches checking long copies eats the gain.
# * What this does not show: time was not measured here, it is their model's, on their machine; one
#   pair, temperature 0; EAGLE's chain, not its tree; whether texts of equal length are equal.
# * Next: notebook 10 decodes with a draft and copies together, for real.

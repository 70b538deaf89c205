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
# two sets are told apart when Holm's p-value is below this
level: float = 0.05  # 0.0001 to 0.5

# %%
ctx = notebook.start("15_at_scale", profile, overrides)
bench = study.traces_here()
proposers = {
    name: bench.of(proposer).assign(hit=lambda rows: rows["accepted"] > 0)
    for name, proposer in {"EAGLE": traces.EAGLE, "lookup": traces.LOOKUP}.items()
}
eagle, lookup = proposers.values()
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
ours = {}
for batch in published:
    found = {
        name: (cost.times(blocks, batch), score.mean_of("speedup"))
        for name, blocks in chains.items()
    }
    ours[batch] = stats.jointly(found).table()
ours = Estimates.stacked(ours, "batch").at(domain="gsm8k")

# %%
exact = ours.frame.pivot(index="name", columns="batch", values="estimate")
assert (exact.round(2) == published).all(axis=None), "nothing else is asked"
eight = ours.wide("name", "batch").set_index("name").add_prefix("ours, batch ")
eight = published.add_prefix("published, batch ").join(eight)
ctx.table(eight.reset_index(names="gsm8k, EAGLE"), "eight", digits=2)

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
draws = {name: study.per_pass(rows, gammas) for name, rows in proposers.items()}
tables = {name: found.table(key="gamma") for name, found in draws.items()}
of_all = Estimates.stacked(tables, "proposer")
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
by_hand = eagle.groupby("domain")["hit"].mean()
assert np.allclose(by_hand[sets], hit.at(proposer="EAGLE").frame["estimate"])

# %%
tested = {
    name: significance.differences(rows, study.FIRST_HIT)
    for name, rows in proposers.items()
}
tested = stack(tested, "proposer").rename(columns={"difference": "estimate"})
tested.insert(1, "pair", tested.pop("first") + " - " + tested.pop("second"))
apart = Estimates(tested)
ctx.export(apart, "differences")

# %%
ctx.plot(
    apart,
    x="pair",
    hue="proposer",
    kind="bars",
    height=2.6,
    reference=0,
    x_label="",
    y="difference in hit[1]",
    slug="differences",
    caption="Differences in hit[1] between the sets, with 95 % intervals: EAGLE's are "
    f"{apart.at(proposer='EAGLE').span()}, lookup's {apart.at(proposer='lookup').span()}.",
)

# %%
spread = {
    name: hits[name][sets].max(axis=1) / hits[name][sets].min(axis=1)
    for name in proposers
}
spread = Estimates(hits.table(spread, "proposer"))
found = tested[tested["p_holm"] < level].groupby("proposer").size()
told = ", ".join(f"{name} {found.get(name, 0)} of 6" for name in proposers)

# %%
ctx.say(
    f"**The best set over the worst**: {spread.listed('proposer')}. **Pairs told apart** (Holm's p "
    f"below {level:g}): {told}."
)

# %% [markdown]
# ## 4. Depth, place, prompt length
# Given that all above was accepted, EAGLE's acceptance rises with depth. Is it the depth, or do
# only easy places get so far? A new block that begins at the very same place answers: it needs no
# luck above. By hand at depth 3 (`shift`: the start two tokens on):

# %%
so_far = (eagle["accepted"] >= 2) & (eagle["remaining"] > 2)
deeper = (eagle["accepted"] >= 3)[so_far].groupby(eagle["domain"]).mean()
afresh = eagle["hit"].shift(-2)[so_far].astype(float).groupby(eagle["domain"]).mean()

# %%
depths = {}
for name, rows in proposers.items():
    found = study.next_accepted(rows, deepest)
    tables = {depth: one.table() for depth, one in found.items()}
    depths[name] = Estimates.stacked(tables, "depth")
depths = Estimates.stacked(depths, "proposer").at(domain=sets)
ctx.export(depths, "depth")

# %%
kit = depths.at(proposer="EAGLE", depth=3)
for name, by_hand in {study.DEEPER: deeper, study.AFRESH: afresh}.items():
    assert np.allclose(by_hand[sets], kit.at(name=name).frame["estimate"])

# %%
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
    f"{last.at(name=study.AFRESH).span()}, one at every place "
    f"{last.at(name=study.EVERYWHERE).span()}: what rises is the choice of places, and depth "
    "itself costs EAGLE some.",
)

# %%
edges = [*study.PLACES.values(), np.inf]
along = {}
for name, rows in proposers.items():
    place = pd.cut(rows["position"] + 1, edges, right=False, labels=list(study.PLACES))
    along[name] = bins.group_means(rows.assign(tokens=place), "hit", "tokens")
along = Estimates.stacked(along, "proposer").at(domain=sets)
ctx.export(along, "place")

# %%
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
lengths = {}
for name, rows in proposers.items():
    median = rows.groupby("domain")["prompt_tokens"].transform("median")
    is_long = rows["prompt_tokens"] > median
    halves = {
        "long": (rows[is_long], study.FIRST_HIT),
        "short": (rows[~is_long], study.FIRST_HIT),
    }
    draw = stats.jointly(halves, same=False)
    more = {"long - short": (draw["long"] - draw["short"])[sets]}
    lengths[name] = draw.table(more)

# %%
lengths = Estimates.stacked(lengths, "proposer")
ctx.export(lengths, "prompt-length")
ctx.say(
    "**Prompt length, within sets**: hit[1] at the half of the places with the longer prompts, "
    f"less the others: {lengths.listed(within='proposer')}."
)

# %% [markdown]
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
dots = {
    name: rows.groupby(["prompt_id", "domain"])["value"].mean().reset_index()
    for name, rows in panels.items()
}

# %%
looping = stats.jointly(
    {n: (rows, score.mean_of("value")) for n, rows in panels.items()}
)
looping = Estimates(looping.table()).at(domain=sets)
ctx.export(looping, "loops")

# %%
size = tokens.groupby("prompt_id").size()
longest = size.max()
pictured = {name: (dots[name], looping.at(name=name).frame) for name in panels}
ctx.save(
    figures.strips(pictured, "value", "share of a text's tokens"),
    "loops",
    caption=f"A dot a prompt, a bar a set. {(size == longest).sum()} of {len(size)} texts were "
    f"stopped at {longest} tokens; over tokens "
    f"{looping.at(name='share that repeats').listed()} repeats.",
)

# %%
listed = bench.starts.groupby("prompt_id")["position"].max() + 1
stopped = listed.index[listed >= longest]
with_and_without = {}
for name, rows in proposers.items():
    ended = rows[~rows["prompt_id"].isin(stopped)]
    found = {"all texts": rows, "those that ended": ended}
    for what, part in found.items():
        with_and_without[name, what] = study.per_pass(part, [3]).table()

# %%
columns = ["proposer", "texts"]
without = Estimates(stack(with_and_without, columns)).at(domain=sets)
ctx.table(without.wide(columns, "domain"), "without-stopped")
ctx.say(
    f"Tokens a pass at gamma 3. The {len(stopped)} prompts whose text or list was stopped make "
    "most of the width: they move EAGLE down and lookup, which copies a loop, up. Why EAGLE fails "
    "in them these columns do not say."
)

# %% [markdown]
# ## 6. Which gamma, at which batch size?
# Their price of EAGLE's draft does not depend on gamma: it was fitted to whole drafts of one
# length. If a head runs **once a token**, gamma tokens cost gamma times as much. Nobody can tell
# from the published numbers, so both readings are shown; the truth should lie between.

# %%
speeds = {batch: study.speeds_by_gamma(bench, gammas, batch) for batch in batches}
tables = {
    (batch, name): found.table(key="gamma")
    for batch, of_batch in speeds.items()
    for name, found in of_batch.items()
}
speeds = Estimates(stack(tables, ["batch", "reading"]))
ctx.export(speeds, "speed")

# %%
mean = speeds.at(domain=score.ALL).frame
shown = Estimates(mean.assign(batch="batch " + mean["batch"].astype(str)))
best = []
for batch, part in shown.groups("batch"):
    rows = part.highest("reading").rows()
    best.append(f"{batch}: " + ", ".join(f"{row.reading} {row.gamma}" for row in rows))

# %%
ctx.plot(
    shown,
    x="gamma",
    hue="reading",
    columns="batch",
    y="speed-up (mean of the sets)",
    reference=1,
    slug="speed",
    caption="Predicted speed-up over plain decoding by gamma, under their cost model and two "
    f"readings of the draft's price. The best gamma: {'; '.join(best)}.",
)

# %%
keys = ["batch", "reading"]
of_sets = speeds.at(domain=sets).frame
top = of_sets.groupby([*keys, "domain"], sort=False)["estimate"].idxmax()
top = of_sets.loc[top]
cells = Estimates(top).wide(keys, "domain").set_index(keys)
numbers = top.pivot(index=keys, columns="domain", values="gamma").loc[cells.index]
table = (numbers.astype(str) + ": " + cells).rename_axis(columns=None)
ctx.table(table.reset_index(), "best-gamma")

# %% [markdown]
# The best gamma of each set, and its speed-up. (The best of eleven, chosen and judged on the same
# prompts: a little flattered.)
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
# texts is likely, not proven. As a control: with the stopped texts too.

# %%
alike = bench.texts[bench.texts["same_length"]]
lined_up = alike[~alike["prompt_id"].isin(stopped)]
both = study.beside_copies(eagle, lined_up)
prompts = both.groupby("domain")["prompt_id"].nunique()

# %%
ways = {
    name: combined.ways(rows, gamma, folds=2)
    | {"oracle": study.best_of_both(rows, gamma)}
    for name, rows in {
        "ended": both,
        "with stopped texts": study.beside_copies(eagle, alike),
    }.items()
}
together = {
    name: choose.speeds(way).table(key="proposer") for name, way in ways.items()
}
together = Estimates.stacked(together, "texts")

# %%
chosen = ways["ended"][combined.BOTH].judged.groupby("domain")["setting"].unique()
rules = "; ".join(f"{name} {' and '.join(chosen[name])}" for name in sets)
used = together.at(texts="ended", domain=sets)
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
    f"Prompts: {', '.join(f'{name} {count}' for name, count in prompts.items())}.",
)
every = study.per_pass(eagle[~eagle["prompt_id"].isin(stopped)], [gamma]).table()
ctx.say(
    f"**Fitted** on either half: {rules}. These prompts are no random part: on all whose texts "
    f"ended EAGLE alone has {Estimates(every).at(domain=sets).listed()}."
)

# %%
ctx.export(together, "together")
notebook.show_table(together.at(domain=sets).wide(["texts", "proposer"], "domain"))

# %% [markdown]
# A copy is free to make and not to check: 17 tokens a request. So m is fitted again **by time**,
# under their cost model at each batch size. (Not charged: EAGLE must read what was copied.)

# %%
in_time, gains = {}, {}
for batch in batches:
    for price in ("block", "token"):
        found = choose.speeds(study.ways_in_time(both, gamma, batch, price))
        better = np.maximum(found[combined.DRAFT], found[combined.COPIES])
        more = {
            "draft alone": found[combined.BOTH] - found[combined.DRAFT],
            "the better one": found[combined.BOTH] - better,
        }
        key = f"once a {price}", f"batch {batch}"
        in_time[key] = found.table(key="proposer")
        gains[key] = found.table(more, "both less")

# %%
keys = ["EAGLE's price", "batch"]
in_time = Estimates(stack(in_time, keys)).at(domain=sets)
gains = Estimates(stack(gains, keys)).at(domain=sets)
ctx.export(in_time, "together-in-time")
ctx.export(gains, "gains-in-time")
over_better = gains.at(**{"both less": "the better one"})
ctx.plot(
    in_time,
    x="domain",
    hue="proposer",
    rows="EAGLE's price",
    columns="batch",
    kind="bars",
    y="speed-up",
    x_label="",
    reference=1,
    height=2.2,
    slug="together-in-time",
    caption="Predicted speed-up by time, EAGLE's price once a block (above) and once a token "
    f"(below). Both less EAGLE alone, once a block: "
    f"{gains.at(**{keys[0]: 'once a block', 'both less': 'draft alone'}).listed(within='batch')}.",
)

# %%
words = "faster in", "slower in", "not to be told apart in"
said = [
    f"* {price}: {part.sentence(*words, within='batch')}"
    for price, part in over_better.groups(keys[0])
]
ctx.say(
    "**Both beside the better of the two alone**, EAGLE's draft priced:\n\n"
    + "\n".join(said)
)

# %% [markdown]
# ## 8. Which of the paper's claims hold here?
# Those of the audit (notebook 11) that these columns can decide, by its rule, for EAGLE: sharegpt
# stands for chat, instructcoder for code, gsm8k for math (nothing here is a reasoning set). `depth`
# is acceptance given all above, at depth 3 less depth 1.

# %%
names = {"sharegpt": "chat", "instructcoder": "code", "gsm8k": "math"}
paper = eagle[eagle["domain"].isin(list(names))].replace({"domain": names})
paper_hits = stats.jointly({"hit[1]": (paper, study.FIRST_HIT)})
each = paper_hits["hit[1]"]
steps = {
    f"{one} - {other}": each[one] - each[other]
    for one, other in [("chat", "code"), ("code", "math")]
}

# %%
found = study.next_accepted(paper, 3)
rise = found[3][study.DEEPER] - found[1][study.DEEPER]
of_text = paper.groupby("prompt_id")["position"].transform("max") // score.POSITION_BIN
bin_of = paper["position"] // score.POSITION_BIN
bins_asked = {
    n: (paper[(bin_of == n) & (of_text > 0)], study.FIRST_HIT) for n in (0, 1)
}
late = stats.jointly(bins_asked)
mean_accepted = score.block_estimators()["mean_accepted"]
chained = stats.jointly({"": (sums_of_starts(paper, [3]), mean_accepted)})

# %%
domains = list(names.values())
evidence = {
    "level": paper_hits.table({"hit[1]": each[domains]}),
    "gap": paper_hits.table({"chat - math": each["chat"] - each["math"]}, "domain"),
    "order": paper_hits.table(steps, "domain"),
    "length": chained.table({"mean_accepted": chained[""][domains]}),
    "depth": paper_hits.table({"rise": rise[domains]}),
    "position": late.table({"late - early": (late[1] - late[0])[domains]}),
}

# %%
asked = {
    (name, claims.AT_0): partial(claims.rows_of, name, table)
    for name, table in evidence.items()
}
listed = claims.claims()
verdicts = claims.verdict_table(listed, claims.in_frame(listed, study.PAIR, asked))
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
# 2. `study.per_pass(eagle, [21])`. Why is there no answer?
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

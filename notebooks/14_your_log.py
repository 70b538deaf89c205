# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 14. What does your log say, and which gamma should you try?

# %% tags=["parameters"]
# a name from notebooks/profiles, or a YAML file; it names the folder of the figures, nothing else
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# the log: a file of a server, or a folder that `python -m speclab log` wrote
log: str = "data/logs/smollm.jsonl.gz"  # any; a path, seen from the kit's folder
# JSON lines with prompt_id and domain, for logs that name no domain
prompts: str = ""  # any; a path, or "" for the domains of the log
# one run of a file with several, as `python -m speclab log` names it; "" for all
part: str = ""  # any
# tokens per draft, for logs that do not say it: a number such as "5", or "heuristic" for
# transformers' schedule
drafted: str = ""  # any; "" if the log says it, or nobody knows
# what drafted; other gammas have bounds for chains of a draft model only
drafts: str = "as the log says"  # one of as the log says, draft model, heads, copies, trees
temperature: float = 0.0  # 0 to 10; of the log's requests
# a second log of the same prompts, from before a change or with another K or temperature
second: str = ""  # any; a path, or "" for none
second_temperature: float = 0.0  # 0 to 10; at most `temperature`
# c, time of a draft pass divided by the time of a target pass (assumed, not measured)
c: float = 0.05  # 0 to 10
# v(n), time of a target pass over n tokens divided by the time over one, as {"8": 1.1, "64": 2.0};
# between these n it is interpolated
v: dict = {}  # 0.01 to 1000; n from 2 on; {} means 1 for every n
gammas: list = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16]  # 1 to 64
deepest: int = 8  # 1 to 64; the deepest depth that is shown
# the engine whose options end the page
engine: str = "vllm"  # one of vllm, sglang, llama.cpp, transformers, tensorrt-llm
# requests that are read closely; of a longer log evenly spaced ones
most_requests: int = 5000  # 15 to 1000000

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

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.lab import choose, significance
from speclab.logs import log_gammas, log_summary, logs, why
from speclab.logs.log_gammas import KNOWN, LOGGED, OPEN, PER_PASS, SLOWER, TIED, TOO_FEW, TRY
from speclab.logs.log_summary import EVERY
from speclab.cost import Costs
from speclab.estimates import Estimates, cell, counted, stack
from speclab.cli import export
from speclab.logs.passes import depth_counts
from speclab.logs.readers import MODEL, SETTINGS
from speclab.place import ROOT
from speclab.show import figures, notebook

RUNS = []

# %% [markdown]
# A server that decodes speculatively can log what its target accepts. `data/engines/README.md` says
# which logs this page reads, and where they are. What a log decides depends on its level.
#
# * **Counts per pass** decide all that follows.
# * **A histogram per request** has no order of the passes: the bounds for another gamma are wider.
# * **Totals per request** decide tokens per target pass only.
# * **Lines of a server** count passes with a draft, and depths if they have positions.
# * **Means of settings** have no intervals; some have depths.

# %%
ctx = notebook.start("14_your_log", profile, overrides)
options = {"prompts": ROOT / prompts if prompts else "", "drafted": drafted, "part": part}
whole = logs.opened(ROOT / log, **options)
sums, passes = whole.sums, whole.passes  # one row per request, one row per target pass
is_ordered = passes is not None and "blocks" not in passes  # else a row is a kind of pass
if len(sums) > most_requests:
    rows = np.linspace(0, len(sums) - 1, most_requests).astype(int)
    kept = sums["prompt_id"].iloc[rows]
    sums = sums[sums["prompt_id"].isin(kept)].reset_index(drop=True)
    if passes is not None:
        passes = passes[passes["prompt_id"].isin(kept)].reset_index(drop=True)
read = replace(whole, passes=passes, sums=sums)
judged = stats.judged_domains(sums)  # with enough requests for an interval
ctx.say(
    f"The log (format {whole.format}) has {log_summary.size_of(whole)}. This page reads "
    f"{log_summary.size_of(read)}."
)
if whole.notes:
    ctx.say(" ".join(whole.notes))
what = log_summary.INTERVALS[whole.about].format(level=100 * stats.LEVEL)
ctx.say(what.rstrip(":") + ".")
notebook.few_prompts(sums["domain"].value_counts(sort=False).to_dict())

# %% [markdown]
# ## 1. Tokens per target pass
# A target pass emits the accepted draft tokens and one token of the target's own. Plain decoding
# has one token per target pass.
#
# $$\tau = \frac{\text{tokens emitted}}{\text{target passes}}$$
#
# Intervals resample requests ([12](12_how_sure.ipynb)); a request's turns count together. If a log
# names no domain, the parameter `prompts` can.
#
# **By token**, long answers count more: this is the server's number. **By request**, the mean of
# each answer's own $\tau$, it is the number that a user meets.

# %% tags=["by-hand"]
first = sums.iloc[0]
by_hand = first["emitted"] / first["blocks"]
print(f"{first['emitted']:.10g} / {first['blocks']:.10g} = {by_hand:.2f} tokens per target pass")

# %%
per_pass = log_summary.tokens_per_pass(sums)
listed = per_pass if whole.about != SETTINGS else per_pass.without(domain=EVERY)
counts = {f"{whole.about}s": listed.frame["n_prompts"]}
cells = listed.wide("domain", "estimator").assign(**counts)
ctx.table(
    listed, "tokens-per-pass", most=30, cells=cells, caption="Tokens per target pass by domain"
)

# %%
MOST_DOTS = 300  # per domain, drawn at random
tau = per_pass.at(domain=EVERY).value
dots = sums[["prompt_id", "domain"]].assign(of_request=sums["emitted"] / sums["blocks"])
assert dots["of_request"].iloc[0] == by_hand
said = f"By token it is {tau:.2f}, by {whole.about} {dots['of_request'].mean():.2f}."
if is_ordered and passes["drafted"].notna().all():
    uncut = passes[passes["remaining"] > passes["drafted"].max()]
    if len(uncut):
        lost = 100 * (1 - tau * len(uncut) / uncut["emitted"].sum())
        if lost > 0:
            said += f" An answer's end cuts its last draft, which lowers the first by {lost:.1f} %."
ctx.say(said)
mixed = dots.sample(frac=1, random_state=0)
dots = mixed[mixed.groupby("domain").cumcount() < MOST_DOTS].sort_index()
ctx.strips(
    {f"{whole.about}s": (dots, per_pass.without(domain=EVERY).frame)},
    "of_request",
    "tokens per target pass",
    "requests",
    title=f"Tokens per target pass of each {whole.about}",
    caption=f"Dots: {whole.about}s, at most {MOST_DOTS} per domain. Dark: the domain's tokens "
    "divided by its passes, with the interval.",
)

# %% [markdown]
# Do the domains differ? A permutation test moves whole requests between two domains, with Holm's
# correction for all pairs.

# %%
LEVEL = 0.05
if len(judged) > 1:
    tests = significance.differences(sums, PER_PASS, n=2000)
    ctx.export(tests, "differences")
    significant = (tests["p_holm"] < LEVEL).sum()
    ctx.say(f"{significant} of {len(tests)} pairs of domains differ significantly.")
else:
    ctx.say("Fewer than two domains have five requests, so no domains are compared.")

# %% [markdown]
# ## 2. Acceptance by depth
# Depth 1 is the first token of a draft. The first panel asks how often the token at a depth is
# accepted, if all tokens above it were. If it rises, deep tokens are not easy: only drafts at easy
# positions get deep ([04](04_depth_profile.ipynb)). The figure has the six domains with the most
# requests. If a log names no draft length, every pass counts as having a token at every depth.

# %%
GIVEN, REACHED = "accepted, if all above were", "passes that accept this depth"
questions = {}
if passes is None:
    ctx.say(log_summary.TOTALS)
else:
    requests = passes.groupby("domain")["prompt_id"].nunique()
    is_judged = requests.index.isin(stats.judged_domains(passes)) | (whole.about == SETTINGS)
    largest = requests[is_judged].nlargest(6).index
    shown = passes[passes["domain"].isin(largest)]
    if shown.empty:
        shown = passes.assign(domain=EVERY)
    for depth in range(1, min(deepest, max(shown["accepted"].max(), 1)) + 1):
        counts = depth_counts(shown, depth)
        questions[GIVEN, depth] = counts, score.ratio_of("accepted", "reached")
        questions[REACHED, depth] = counts, score.ratio_of("accepted", "passes")

# %%
if passes is not None:
    draws = stats.jointly(questions)
    by_depth = {key: draws.table({"": draws[key]}).frame.drop(columns="name") for key in questions}
    by_depth = stack(by_depth, ["panel", "depth"])
    known = by_depth.dropna(subset="low")  # too few passes reach the other depths
    ctx.plot(
        Estimates(by_depth if known.empty else known.reset_index(drop=True)),
        x="depth",
        columns="panel",
        only={"domain": shown["domain"].unique().tolist()},
        y="share (%)",
        limits=(0, 1),
        slug="depth",
        title="Acceptance by depth of the draft",
        caption="First panel: of the tokens whose drafts were right so far. Second panel: of all "
        "target passes. Bands: intervals over requests.",
    )

# %% [markdown]
# ## 3. Does acceptance depend on the length of the context?
# The context of a target pass is the prompt and the answer so far. Without the order of the passes
# only the prompt's length is known. If acceptance breaks at one length, the draft may end there. If
# it falls slowly, the draft may be trained on short texts.

# %%
EDGES = np.array([0, *(4**n for n in range(2, 11))])  # tokens
known = sums.assign(length=sums["context"])
if is_ordered:
    prompt = passes["prompt_id"].map(sums.set_index("prompt_id")["context"])
    known = passes.assign(blocks=1, length=passes["start"] + prompt.fillna(0))
known = known.dropna(subset="length").assign(domain=EVERY)
bins = np.digitize(known["length"], EDGES)
found = {
    f"{EDGES[i - 1]:,} to {EDGES[i] - 1:,}": log_summary.tokens_per_pass(known[bins == i])
    for i in range(1, len(EDGES))
    if (bins == i).any()
}
if len(found) < 2:
    ctx.say("The log does not have target passes at different lengths of the context.")
else:
    by_length = stack({name: table.frame.tail(1) for name, table in found.items()}, "context")
    ctx.export(by_length, "context")
    ends = [
        f"{cell(row.estimate, row.low, row.high, 2)} at {row.context} tokens"
        for row in by_length.iloc[[0, -1]].itertuples()
    ]
    ctx.say(f"Tokens per target pass by tokens before the pass: {ends[0]}, and {ends[1]}.")
    if is_ordered and prompt.isna().all():
        ctx.say("The log does not say how long the prompts were, so only the answers count here.")

# %% [markdown]
# ## 4. Why is acceptance low?
# Users met eight shapes of low acceptance, and a thread names a cause for each. A rule divides the
# share of accepted tokens in one part of the log by the share in another part. A shape fits if this
# ratio is under the limit with its whole interval. The first shape that fits is named. It says what
# the log *looks like*, not what is wrong.
#
# * **Positions** need a draft length, and a histogram or counts per pass.
# * **Contexts** need position 1 at two lengths, one of them four times the other.
# * **Two logs** need the parameter `second`: a log of the same prompts at T = 0, from before a
#   change, or of a smaller K.
#
# `data/logs/README.md` says how we tuned the rules and counted false alarms.

# %%
counts = why.counts_of(read)
if drafts == "trees":  # their drafted tokens are nodes, which are no positions
    counts = counts[:1]
other = why.counts_of(logs.opened(ROOT / second)) if second else None
shapes = why.explain(counts, other, second_temperature < temperature)
shapes["ratio"] = shapes["estimate"].map("{:.2f}".format).where(shapes["estimate"].notna(), "")
shapes["verdict"] = np.select([shapes["fits"], shapes["ratio"] != ""], ["yes", "no"], "cannot say")
ORDER = ["shape", "compared", "ratio", "limit", "verdict", "cause", "thread"]
names = {"compared": "rule", "verdict": "does it fit?", "cause": "usual cause"}
if read.is_mixed:
    ctx.say("The log mixes runs or settings, which have no common shape; read one run alone.")
else:
    ctx.table(
        shapes[ORDER[:5]],
        "shapes",
        cells=shapes[ORDER].rename(columns=names),
        caption="Shapes of low acceptance, and what the log says of each",
    )
    for line in why.shape_lines(shapes):
        ctx.say(line)

# %% [markdown]
# ### Position 1 is higher at K = 1 than at K = 8: no fault
# After a rejection the text is hard, as these lines count. At a large K more blocks begin there, so
# position 1 is lower. One model had 83 % at K = 1 and 76 % at K = 8, with 1.8 and 4.5 tokens per
# target pass (vllm #48892).

# %% tags=["by-hand"]
if passes is not None and "blocks" not in passes and passes["drafted"].notna().all():
    is_rejected = (passes["accepted"] < passes["drafted"]).shift()
    later = passes[passes["step"] > 0]
    for value, name in ((True, "a rejection"), (False, "a full draft")):
        rows = later[is_rejected[later.index] == value]
        print(f"after {name}: {(rows['accepted'] > 0).sum()} of {len(rows)} accept position 1")

# %% [markdown]
# ## 5. Does acceptance drift along the log?
# Requests are in the order of the log. We compare the last third with the first third by a
# permutation test, for all requests and within each domain that has 15 requests. If all requests
# change and no domain does, the mix of domains has changed.

# %%
groups = {EVERY: sums} if whole.about != SETTINGS else {}
if groups and sums["domain"].nunique() > 1:
    groups |= {domain: sums[sums["domain"] == domain] for domain in score.domains_in(sums)}
drift = {}
for name, rows in groups.items():
    third = np.arange(len(rows)) * 3 // len(rows)
    ends = [rows[third == 2].assign(domain="last"), rows[third == 0].assign(domain="first")]
    if len(rows) >= 3 * stats.MIN_PROMPTS:
        drift[name] = significance.differences(pd.concat(ends), PER_PASS, n=2000)

# %%
if not drift:
    ctx.say(f"The log has {counted(len(sums), whole.about)}, and thirds of requests need 15.")
else:
    tests = stack(drift, "name").drop(columns=["first", "second"])
    of_domains = tests["name"] != EVERY
    if of_domains.any():
        tests.loc[of_domains, "p_holm"] = significance.holm(tests.loc[of_domains, "p_value"])
    change = [cell(row.difference, row.low, row.high, 2) for row in tests.itertuples()]
    cells = pd.DataFrame({"requests": tests["name"], "last third minus first": change})
    ctx.table(
        tests,
        "drift",
        cells=cells.assign(p=tests["p_holm"]),
        caption="Last third of the requests minus the first",
    )

# %% [markdown]
# ## 6. Which gamma should you try?
# At T = 0 an accepted token is a **hit** of the draft, and the token after a rejection is a
# **miss**. Both would be so under any gamma. Only the token after a fully accepted draft is
# unknown. If all unknown tokens are misses, another gamma has its fewest tokens per target pass; if
# all are hits, its most. These **bounds** are hard. At the log's own gamma they are equal.
#
# A gamma is **known** by its lower bound. The bounds of a longer draft are wide, so each gamma has
# an **estimate** between its bounds, from the two panels above. If the log drafts $g$ tokens, a
# share $s_d$ of its passes accepts depth $d$, and the token at depth $g$ is accepted with
# probability $a_g$ if all above it were, then for $\gamma > g$
#
# $$\tau(\gamma) = \tau(g) + s_g (a_g + a_g^2 + \ldots + a_g^{\gamma - g}) .$$
#
# For $\gamma < g$ the $s_d$ of the depths from $\gamma + 1$ to $g$ are taken away. If the lengths
# of the drafts vary, the lower bound stands for the estimate. The gamma **to try** has the highest
# estimate, if this gains 0.5 % or more over what is known. In 24 trials on the recorded run of
# `smollm` the known gamma was up to 24 % slower than the fastest, and the gamma to try up to 2 %.
# We chose the 0.5 % on these trials, so 2 % is a little optimistic.
#
# All this holds for chains of a draft model at T = 0, whose guess does not depend on where its
# block began. It does not hold for EAGLE and other heads, nor for copies (prompt lookup). Few logs
# say what drafted; the parameters `drafts` and `temperature` can. A server does not say when its
# passes without a draft were, so with these the bounds are approximate. Without the order of the
# passes the upper bound is higher, unless $\gamma + 1$ divides $g + 1$.

# %%
of_log = drafts == "as the log says"
drafted_by = (whole.drafts if of_log else drafts) or MODEL
reason = log_gammas.why_no_bounds(passes, drafted_by, temperature)
if whole.about == SETTINGS:
    reason = f"Each setting is one number. {log_gammas.NO_OTHER}"
is_sure = not of_log or whole.drafts  # else all that follows has an "if"
if reason or not is_sure:
    ctx.say(reason or "The log does not say what drafted. We take it to be a draft model.")

# %% [markdown]
# The positions of the first answer: `h` for a hit, `m` for a miss, `?` for unknown.

# %% tags=["by-hand"]
if not reason and not is_ordered:
    print("The log has no order of its passes.")
elif not reason:
    of_first = passes[passes["prompt_id"] == passes["prompt_id"].iloc[0]]
    text = ""
    for one in of_first[of_first["turn"] == 0].itertuples():
        last = "m" if one.accepted < one.drafted else "?"
        positions = "h" * one.accepted + last
        text += positions[: one.emitted]  # no token after the end of the answer
    print(text[:80])

# %% [markdown]
# A block of $\gamma$ tokens costs $\gamma c + v(\gamma + 1)$ target passes over one token. The
# estimated speed-up is
#
# $$S(\gamma) = \frac{\tau(\gamma)}{\gamma c + v(\gamma + 1)} .$$
#
# Here $c$ and $v$ are assumed; [10](10_wall_clock.ipynb) measures them for a pair on your machine.
# A gamma whose target pass has no `v` is left out.

# %%
table = None
if not reason:
    ratios = {1: 1.0} | {int(n): float(ratio) for n, ratio in v.items()}
    sizes = tuple(sorted(ratios))
    costs = Costs(1.0, sizes, (c,) * len(sizes), tuple(ratios[n] for n in sizes))
    costs = costs if v else Costs.assumed(c)
    own_gamma = log_gammas.own_gamma(passes)  # None: the drafts have no fixed length
    known = {gamma for gamma in gammas if gamma < costs.sizes[-1]}  # whose pass has a v
    tried = sorted(known | {own_gamma or gammas[0]})
    every = choose.choose_for_all(passes)
    speed = log_gammas.bounded_speeds(every, tried, costs)
    table = log_gammas.bounds(speed)


# %%
COLOURS = {
    KNOWN: "#009E73",
    TRY: "#D55E00",
    OPEN: "#E69F00",
    TIED: "#56B4E9",
    TOO_FEW: "#56B4E9",
    SLOWER: "#8A8A8A",
}


def draw_bounds(frame):
    """Bounds as thick bars (flat where they are equal), their interval as thin lines."""
    figure, axes = figures.subplots(height=2.9)
    for verdict, colour in COLOURS.items():
        rows = frame[frame["verdict"] == verdict]
        if rows.empty:
            continue
        axes.vlines(rows.index, rows["low"], rows["high"], color=colour, linewidth=1.2)
        axes.vlines(rows.index, rows["least"], rows["most"], color=colour, linewidth=7, alpha=0.45)
        for end in ("least", "most"):
            axes.plot(rows.index, rows[end], "_", color=colour, markersize=11, markeredgewidth=2)
        axes.plot([], [], color=colour, linewidth=7, alpha=0.6, label=verdict)
    axes.plot(frame.index, frame["estimate"], "D", color="black", markersize=3, label="estimate")
    axes.axhline(1, color="black", linewidth=0.7, label="plain decoding")
    names = {"0": "plain", str(own_gamma): f"{own_gamma}\n(log)"}
    axes.set_xticks(frame.index, [names.get(gamma, gamma) for gamma in frame["gamma"].astype(str)])
    axes.grid(axis="x", visible=False)
    axes.set(xlabel="gamma (draft tokens proposed)", ylabel="estimated speed-up (x)")
    return figure


# %%
if not reason:
    ctx.draw(
        draw_bounds,
        table,
        "bounds",
        title="Bounds of the estimated speed-up by gamma",
        caption="Thick bars: from the lower to the upper bound. Thin lines: their interval. "
        "Diamonds: the estimate. A gamma is undecided if its upper bound is above the highest "
        "lower bound.",
    )

# %% [markdown]
# A log made with the gamma to try decides. Both gammas are chosen and judged on the same requests,
# so their speed-ups are slightly too high. The table makes the same choice in each domain.

# %%
if not reason and len(judged) > 1:
    each = speed if every is passes else log_gammas.bounded_speeds(passes, tried, costs)
    rows = []
    for domain in judged:
        of_domain = log_gammas.bounds(each, domain)
        known, tried = log_gammas.known_and_tried(of_domain)
        least = cell(known["least"], known["low"], known["least_high"], 2, "x")
        ends = f"{tried['least']:.2f}x to {tried['most']:.2f}x"
        to_try = str(tried["gamma"]), f"{tried['estimate']:.2f}x", ends
        rows.append((domain, str(known["gamma"]), least, *to_try))
    names = ["domain", "known gamma", "at least", "gamma to try", "estimate", "bounds"]
    ctx.table(
        pd.DataFrame(rows, columns=names),
        "gamma-by-domain",
        most=30,
        caption="The known gamma and the gamma to try by domain, with their speed-ups",
    )

# %% [markdown]
# ## 7. The options for your server
# These lines make a server draft the gamma to try, with your models for TARGET and DRAFT. The
# parameter `engine` names another engine.

# %%
NAMES = {0: "plain decoding", LOGGED: "drafting as logged"}
gamma = LOGGED
if table is not None:
    known, tried = log_gammas.known_and_tried(table)
    gamma = tried["gamma"]
if gamma in NAMES:
    ctx.say(f"There are no options to print for {NAMES[gamma]}.")
else:
    print(export.commands_of_log(engine, int(gamma)))

# %%
answer = f"In the log a target pass gives {tau:.1f} tokens. "
if whole.about == SETTINGS:
    ends = listed.frame["estimate"].min(), listed.frame["estimate"].max()
    answer = f"In the log's settings a target pass gives {ends[0]:.1f} to {ends[1]:.1f} tokens. "
if table is None:
    answer += "The log cannot say which other gamma would be faster."
else:
    at_least = "at least " if known["most"] > known["least"] + 1e-9 else ""
    name = NAMES.get(known["gamma"], f"gamma {known['gamma']}")
    answer += "At the assumed costs" + ", if a draft model drafted," * (not is_sure)
    answer += f" {name} gives {at_least}{known['least']:.2f}x, and "
    name = NAMES.get(tried["gamma"], f"gamma {tried['gamma']}")
    is_known = known["gamma"] == tried["gamma"]
    answer += "no other is estimated to be clearly faster" if is_known else f"{name} is to be tried"
    undecided = (table["verdict"] == log_gammas.OPEN).sum()
    answer += f" ({undecided} are undecided)." if undecided else "."
ctx.answer(answer)

# %% [markdown]
# ## Try it
# Set `gammas` to `[4]` and `c` to 0.29. Does the log still recommend drafting?
#
# <details><summary>Answer</summary>
# At c = 0.29 a block of four tokens costs 2.16 target passes. The log decides its own gamma
# exactly, so one division answers the question: tokens per target pass divided by 2.16.</details>
#
# ## What this does not show
# Time: c and v are assumed, and a busy server has other costs ([10](10_wall_clock.ipynb)). Requests
# are taken to be independent of each other.

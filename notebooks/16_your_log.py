# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 16. What does your log say, and which gamma should you try?
#
# A server that decodes speculatively can log what its target accepts. This page reads such a log:
# of vLLM, AIPerf, SGLang, Spec-Bench, EAGLE or this kit (`data/engines/README.md` says where their
# numbers are). It shows **tokens per target pass** by domain and request, acceptance by depth, and
# whether acceptance drifts along the log. Then it asks which gamma to try next. Every number has a
# 95 % interval, and the unit is the request.
#
# ![Bounds of the speed-up by gamma](../figures/smollm/16/bounds.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the log that `log` names,
# by default one of this kit's decoder · *writes* `figures/<profile>/16/`.
#
# What a log decides depends on how it was made.
#
# | the log has | exact | bounds | nothing |
# | --- | --- | --- | --- |
# | totals per request | tokens per target pass | | depth, other gammas |
# | counts per pass, any drafts | the same, and acceptance by depth | | other gammas |
# | counts per pass, chains of a draft model, T = 0 | the same, and its own gamma | other gammas | |
#
# The last line needs a draft model whose guess does not depend on where its block began. EAGLE,
# Medusa and other heads are not such drafts. Copies (prompt lookup, n-grams) are not either.

# %% tags=["parameters"]
# a name from notebooks/profiles, or a YAML file; it names the folder of the figures, nothing else
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# the log: a file of a server, or a folder that `python -m speclab log` wrote
log: str = "data/logs/smollm.jsonl.gz"  # any; a path, seen from the kit's folder
# JSON lines with prompt_id and domain, for logs that name no domain
prompts: str = ""  # any; a path, or "" for the domains of the log
# tokens per draft, for logs that do not say it: a number such as "5", or "heuristic" for
# transformers' schedule
drafted: str = ""  # any; "" if the log says it, or nobody knows
# what drafted; other gammas have bounds for chains of a draft model only
drafts: str = "draft model"  # one of draft model, heads, copies, trees
temperature: float = 0.0  # 0 to 10; of the log's requests
# c, time of a draft pass divided by the time of a target pass (assumed, not measured)
c: float = 0.05  # 0 to 10
# v(n), time of a target pass over n tokens divided by the time over one, as {"8": 1.1, "64": 2.0};
# between these n it is interpolated
v: dict = {}  # 0.01 to 1000; n from 2 on; {} means 1 for every n
gammas: list = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16]  # 1 to 64
deepest: int = 8  # 1 to 64; the deepest depth that is shown
parts: int = 6  # 3 to 50; parts of the log in the figure of drift
# the engine whose options end the page
engine: str = "vllm"  # one of vllm, sglang, llama.cpp, transformers, tensorrt-llm
# requests that are read closely; of a longer log evenly spaced ones
most_requests: int = 5000  # 15 to 1000000

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
from speclab.analysis import choose, log_gammas, log_summary, logs, significance
from speclab.ops import export
from speclab.place import ROOT
from speclab.show import drawings, notebook
from speclab.studies import your_log as study
from speclab import stats

RUNS = []
READS = ["{log}", "{prompts}", "data/logs/smollm.jsonl.gz"]

# %%
ctx = notebook.start("16_your_log", profile, overrides)
whole = logs.opened(ROOT / log, prompts=ROOT / prompts if prompts else "", drafted=drafted)
own = study.thinned(whole, most_requests)
sums, passes = own.sums, own.passes
ctx.say(study.log_in_words(whole, own))
notebook.few_prompts(sums["domain"].value_counts(sort=False).to_dict())

# %% [markdown]
# ## 1. Tokens per target pass
# A target pass emits the accepted draft tokens and one token of the target's own. Plain decoding
# has one token per target pass. A request's turns count together.

# %% [markdown] tags=["by-hand"]
# **By hand:** the first request of the log.

# %% tags=["by-hand"]
first = sums.iloc[0]
by_hand = first["emitted"] / first["blocks"]
print(f"{first['emitted']:.0f} tokens / {first['blocks']:.0f} target passes = {by_hand:.2f}")

# %%
per_pass = log_summary.tokens_per_pass(sums)
dots = study.dots(sums)
assert dots["of_request"].get(0, by_hand) == by_hand  # of many requests some are drawn
of_all = per_pass.at(domain=study.EVERY)
of_domains = per_pass.without(domain=study.EVERY)
ctx.table(per_pass, "tokens-per-pass", most=30, cells=per_pass.wide("domain", "estimator"))

# %%
ctx.strips(
    {"requests": (dots, of_domains.frame)},
    "of_request",
    "tokens per target pass",
    "requests",
    "Tokens per target pass of each request (dots), and of each domain (dark mark: its tokens "
    f"divided by its passes, with its 95 % interval). At most {study.MOST_DOTS} requests per "
    "domain are drawn.",
    study.spread_in_words(sums),
)

# %% [markdown]
# Do the domains differ? A permutation test moves whole requests between two domains. Holm's
# correction covers all pairs, and *significant* means an adjusted p below 0.05.

# %%
judged = stats.judged_domains(sums)
if len(judged) > 1:
    tests = significance.differences(sums, log_gammas.PER_PASS, n=2000)
    tests = significance.with_signs(tests, study.LEVEL)
    ctx.export(tests, "differences")
    ctx.say(study.differences_in_words(tests))
else:
    ctx.say(study.ONE_GROUP)

# %% [markdown]
# ## 2. Acceptance by depth
# Depth 1 is the first token of a draft. The first panel asks how often the token at a depth is
# accepted, if all tokens above it were. The second panel shows how many passes accept so deep a
# token. A rising first panel does not mean that deep tokens are easy: only drafts at easy positions
# get deep (notebook 04).

# %%
if passes is None:
    ctx.say(log_gammas.NO_PASSES)
else:
    by_depth = study.acceptance_by_depth(study.grouped(passes), deepest)
    depths = study.depths_table(by_depth)
    change = study.depth_change(by_depth)
    ctx.plot(
        depths,
        "depth",
        "depth",
        "First panel: share of draft tokens that are accepted at a depth, if all tokens above "
        "were. Second panel: share of target passes that accept a token at this depth. Bands: 95 % "
        "intervals." + study.shown_in_words(passes),
        only={"domain": passes["domain"].unique().tolist() + [study.EVERY]},
        columns="panel",
        title=study.depth_in_title(change),
        y="share (%)",
        percent=True,
        limits=(0, 1),
    )

# %%
if passes is not None:
    ctx.say(study.drafted_in_words(passes))

# %% [markdown]
# ## 3. Does acceptance drift along the log?
# Requests are in the order of the log. We compare the last third of the requests with the first
# third by a permutation test, for all requests and within each domain. A difference of all requests
# need not be a drift: the mix of domains may have changed.

# %%
tests = study.drift(sums)
if tests.empty:
    ctx.say(study.too_short(len(sums)))
else:
    along = study.bands(sums, parts)
    ctx.export(tests, "drift")
    ctx.say(study.drift_in_words(tests, study.mix_change(sums)))
    ctx.plot(
        along,
        "place",
        "along",
        "Tokens per target pass in parts of the log, from its first request (0 %) to its last. "
        "Flat lines mean no drift. Bands: 95 % intervals over the requests of a part."
        + study.shown_in_words(sums),
        hue="group",
        columns="panel",
        title=study.drift_in_title(tests),
        y="tokens per target pass",
        x_label="position among the requests (%)",
    )

# %% [markdown]
# ## 4. Which gamma should you try?
# At T = 0 an accepted token is a **hit** of the draft, and the token after a rejection is a
# **miss**. Both would be so under any gamma. Only the token after a fully accepted draft is
# unknown. If all unknown tokens are misses, another gamma has its fewest tokens per target pass; if
# all are hits, its most. These **bounds** are hard. At the log's own gamma they are equal.
#
# This holds for chains of a draft model at T = 0. A log does not show what drafted, so the
# parameters `drafts` and `temperature` say it.

# %%
made_by = log_gammas.OF_FORMAT.get(own.format, drafts)  # some formats say what drafted
reason = log_gammas.why_no_bounds(passes, made_by, temperature)
if reason:
    ctx.say(reason)

# %% [markdown] tags=["by-hand"]
# **By hand:** the positions of the first answer, `h` for a hit, `m` for a miss, `?` for unknown.

# %% tags=["by-hand"]
text = ""
if not reason:
    of_first = passes[passes["prompt_id"] == passes["prompt_id"].iloc[0]]
    for one in of_first[of_first["turn"] == 0].itertuples():
        last = "m" if one.accepted < one.drafted else "?"
        positions = "h" * one.accepted + last
        text += positions[: one.emitted]  # no token after the end of the answer
    print(text[:80])

# %% [markdown]
# A block of gamma tokens costs gamma · c + v(gamma + 1) target passes over one token. The
# **estimated speed-up** is tokens per target pass divided by this cost. c and v are assumed here;
# notebooks 09 and 10 measure them for a pair on your machine.

# %%
if not reason:
    costs = study.assumed_costs(c, v)
    own_gamma = log_gammas.own_gamma(passes)
    tried = study.gammas_covered(gammas, passes, costs)
    in_use = study.gammas_in_use(gammas, tried, own_gamma)
    ctx.say(in_use + study.without_draft_in_words(own))

# %%
table = None
if not reason:
    every = choose.of_all_prompts(passes)
    speed = log_gammas.bounded_speeds(every, tried, costs)
    table = log_gammas.bounds(speed)
    ctx.draw(
        drawings.draw_bounds,
        table,
        "bounds",
        "Estimated speed-up by gamma, all requests together. Thick bars: from the lower to the "
        "upper bound. Thin lines: their 95 % interval. A gamma is undecided if its upper bound is "
        "above the highest lower bound.",
        study.bounds_in_title(table),
        verdicts=study.VERDICTS,
        own=own_gamma,
    )

# %% [markdown]
# The gamma to try has the highest lower bound. It is chosen and judged on the same requests, so its
# speed-up is slightly too high. To decide between gammas whose bounds overlap, log one more run
# with a longer draft. The next table makes the same choice in each domain.

# %%
if not reason and len(judged) > 1:
    each = speed if every is passes else log_gammas.bounded_speeds(passes, tried, costs)
    of_domain = {domain: log_gammas.bounds(each, domain) for domain in judged}
    ctx.table(study.by_domain_table(of_domain), "gamma-by-domain", most=30)

# %% [markdown]
# ## 5. The options for your server
# These lines make a server draft the gamma to try. A log names no models, so TARGET and DRAFT stand
# for yours. For other engines use `python -m speclab export FOLDER --for ENGINE --c 0.05` with the
# folder of a log.

# %%
gamma = study.gamma_to_set(table)
ctx.say(study.options_in_words(table))
if gamma:
    print(export.commands_of_log(every, engine, gamma))

# %%
ctx.record(tokens_per_pass=of_all.value)
ctx.answer(study.answer_in_words(of_all, c, table))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. Set `gammas` to `[4]` and `c` to 0.29. Does the log still recommend drafting?
#
# <details><summary>What happens</summary>
# At c = 0.29 a block of four tokens costs 2.16 target passes. The log decides its own gamma
# exactly, so one division answers the question: tokens per target pass divided by 2.16.</details>
#
# 2. Read the log as if heads had drafted (`drafts = "heads"`). What is left of section 4?
#
# <details><summary>What happens</summary>
# One sentence. A head's guess at a position depends on where its block began, so the log says
# nothing about blocks that begin elsewhere.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: a log of counts per pass gives acceptance by domain and depth with intervals. For
#   chains of a draft model it also bounds every other gamma.
# * What this does not show: time. c and v are assumed, and a busy server has other costs (notebook
#   14). Requests are taken to be independent of each other.
# * Next: log your own server and read it here (README.md, *Your own log*).

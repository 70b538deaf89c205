# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 11. Which claims of the paper and the article hold?

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# further pairs to judge, from recorded or shipped runs; [] for none
beside: list = ["tiny", "smollm"]  # any

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
import yaml
from scipy.special import ndtri

from speclab import replay, score, stats
from speclab.lab import association, prompt_sets, published, variance_components
from speclab.lab.prompt_sets import OWN
from speclab.lab.texts import Text
from speclab.lab.token_kinds import token_kinds
from speclab.models.folder import ModelFolder
from speclab.estimates import named
from speclab.study.profiles import ROOT, load_profile
from speclab.plain import DOMAINS
from speclab.show import notebook
from speclab.show.pictures import strings_of

READS = ["data/paper/claims.yaml", "{beside}"]  # the second: the profiles that `beside` names
RUNS = ["greedy", "sampled", "others", "others-sampled"]

ctx = notebook.start("11_paper_audit", profile, overrides)
name = ctx.profile.name

# %% [markdown]
# A paper measured acceptance by domain for one pair of models, and an article gives advice on how
# much to draft. Do their claims hold for other pairs and other prompts?
#
# A claim is a **number** and a **region** in which the number has to lie. Where the source names no
# region, its edges are ours (`margin` in `data/paper/claims.yaml`). Only a claim about a
# **direction** should hold for every pair. A **level** was measured on the paper's pair, and
# another pair may differ.

# %%
listed = pd.DataFrame(yaml.safe_load((ROOT / READS[0]).read_text("utf-8"))).set_index("id")
listed = listed.rename(columns={"claim": "said"})
others = [other for other in beside if other != name]  # they are read as they are shipped
profiles = {name: ctx.profile} | {
    other: load_profile(other).replace(recorded=()) for other in others
}


def texts_of(of):
    """The greedy and sampled texts of a pair on each prompt set whose texts are all new."""
    at_1 = of.replace(temperature=1.0)  # what the paper says of sampling is about T = 1
    texts = (Text.recorded(at_1, kind) for kind in ("greedy", "sampled"))
    greedy, sampled = (prompt_sets.texts(at_1, text) for text in texts)
    sets = prompt_sets.complete_sets(greedy)
    return {key: (sets[key], sampled[key]) for key in sets if key not in prompt_sets.NEW}


texts = {pair: texts_of(of) for pair, of in profiles.items()}
greedy = texts[name][OWN][0]
if len(stats.judged_domains(greedy.trace)) < len(DOMAINS):
    ctx.leave_out("needs five prompts or more in each domain")

# %% [markdown]
# ## 1. One claim by hand
# The claim is that acceptance is higher in chat than in math. At T = 0 a lossless decoder accepts
# the draft's best token where it is the target's best (`hit`), so the number is the difference of
# two shares of positions. Its interval comes from resampled prompts ([12](12_how_sure.ipynb)). The
# claim **holds** if the interval lies in the region (here: above 0), **fails** if it lies outside,
# and is **inconclusive** otherwise.

# %% tags=["by-hand"]
hits = greedy.trace.groupby(["domain", "prompt_id"])["hit"].agg(["sum", "size"])
share, redrawn = {}, {}
for domain in ("math", "chat"):
    prompts = hits.loc[domain]
    n = len(prompts)
    rng = np.random.default_rng([0, DOMAINS.index(domain)])
    times = rng.multinomial(n, np.full(n, 1 / n), size=2000)  # how often each prompt is drawn
    share[domain] = prompts["sum"].sum() / prompts["size"].sum()
    redrawn[domain] = times @ prompts["sum"] / (times @ prompts["size"])

fewest = hits.groupby("domain").size().min()
by_hand = share["chat"] - share["math"]
interval = np.quantile(redrawn["chat"] - redrawn["math"], stats.levels_of(fewest))
print(stats.cell(by_hand, *interval, 0, "points"))

# %% [markdown]
# **Several rows.** A claim about all domains holds only if the interval of every row lies in its
# region, which needs no correction. It fails if the interval of one row lies outside after it is
# widened for the number of rows (Bonferroni).


# %%
def judge(rows):
    """The verdict on rows with estimate, low, high and their region least, most (both excluded)."""
    inside = (rows["low"] > rows["least"]) & (rows["high"] < rows["most"])
    if inside.all():
        return "holds"
    tail = stats.tails()[0]
    longer = ndtri(tail / len(rows)) / ndtri(tail)  # 1 for a single row
    low = rows["estimate"] - longer * (rows["estimate"] - rows["low"])
    high = rows["estimate"] + longer * (rows["high"] - rows["estimate"])
    outside = (high <= rows["least"]) | (low >= rows["most"])
    return "fails" if outside.any() else "inconclusive"


# %% [markdown]
# ## 2. What is measured for each claim
# Everything at T = 0, on greedy text, by what is exact for a lossless decoder. Only the claim about
# sampling needs a second text, at T = 1.

# %%
HIT = score.mean_of("hit", "acceptance")
ENTROPY = score.mean_of("target_entropy", "entropy")
CHAT_FIRST = [("chat", "code"), ("chat", "reasoning"), ("chat", "math")]
FALLING = [("chat", "code"), ("code", "reasoning"), ("reasoning", "math")]


def each(rows, estimator):
    """A number in each domain."""
    return stats.by_domain(rows, estimator).without(domain=[score.ALL, score.POOLED]).frame


def gaps(rows, estimators, *pairs):
    """Numbers in one domain minus the same numbers in another, for each pair of domains."""
    draws = stats.jointly({each.name: (rows, each) for each in estimators})
    parts = []
    for number, of in draws.values.items():
        changes = {f"{one} - {other}": of[one] - of[other] for one, other in pairs}
        parts.append(draws.table(changes, key="row").frame.assign(number=number))
    return pd.concat(parts)


def split(rows, is_first):
    """Acceptance on some of the positions minus acceptance on the others, over all domains."""
    sides = {"first": rows[is_first], "second": rows[~is_first]}
    draws = stats.jointly({side: (part, HIT) for side, part in sides.items()}, same=False)
    change = draws["first"] - draws["second"]
    return draws.table({"pooled": change[score.POOLED]}, key="row").frame


# %%
BLOCKS = score.block_estimators()


def by_depth(text, gamma):
    """Acceptance at the last depth minus at depth 1, given that all earlier tokens were accepted,
    over blocks with room for the whole chain.
    """
    sums = replay.prompt_sums(text.chain(gamma), "room")
    return each(sums, score.change(BLOCKS["accept_by_depth"]))


def task_minus_depth(text):
    """Of the variance of "accepted" over the tested tokens, the share between domains minus the
    share between depths.
    """
    sums = replay.prompt_sums(text.chain(3), "room")
    prompts = stats.resampling_of(sums)
    reached = sums[["blocks", "survival_1", "survival_2", "survival_3"]].to_numpy()
    reached = prompts.resampled(prompts.totals(reached))  # (resamples, domains, depths)
    tested, kept = reached[..., :-1], reached[..., 1:]
    by_domain, by_depth = (
        score.divide(kept.sum(other) ** 2, tested.sum(other)).sum(1) for other in (2, 1)
    )
    count, total = tested.sum((1, 2)), kept.sum((1, 2))
    spread = total - score.divide(total**2, count)
    draws = score.divide(by_domain - by_depth, spread)
    found = stats.Interval.of(draws, prompts, "the share of variance")
    return pd.DataFrame([vars(found) | {"row": "all"}])


def accepted(text, tree):
    """Accepted tokens per target pass: rows and estimator."""
    return replay.prompt_sums(text.tree(tree)), BLOCKS["mean_accepted"]


# %%
def compared(first, second, how):
    """Two numbers (rows and estimator), divided or subtracted in each domain."""
    draws = stats.jointly({"first": first, "second": second})
    change = how(draws["first"], draws["second"])[[*DOMAINS]]
    return draws.table({"": change}).frame


def late_minus_early(trace):
    """Acceptance from position 32 on (the paper's second bin) minus before, in texts that get
    there.
    """
    last = trace.groupby("prompt_id")["position"].transform("max")
    rows = trace[last >= published.POSITION_BIN]
    return split(rows, rows["position"] >= published.POSITION_BIN)


def between_domains(trace):
    """Share of the variance between texts that lies between domains."""
    found = variance_components.shares(trace, "hit")["domain"]
    return pd.DataFrame([vars(found) | {"row": "domain"}])


def numbers_minus_others(trace, strings):
    """In math, acceptance of tokens that are numbers minus acceptance of all others."""
    rows = trace[trace["domain"] == "math"]
    return split(rows, token_kinds(rows, strings) == "number")


# %%
def measured(of, text, sampled):
    """What is measured for each claim on a pair's texts: a function and its arguments."""
    trace = text.trace
    at_0, at_1 = (accepted(one, of.tree) for one in (text, sampled))
    entropy = trace["target_entropy"]
    three_quarters = entropy.groupby(trace["domain"]).transform("quantile", 0.75)
    strings = strings_of(ModelFolder.fetched(of.target).tokenizer)
    return {
        "level small-draft": (each, trace, HIT),
        "gap": (gaps, trace, [HIT], ("chat", "math")),
        "order": (gaps, trace, [HIT], *FALLING),
        "paradox": (gaps, trace, [ENTROPY, HIT], *CHAT_FIRST),
        "lexical": (gaps, trace[entropy > entropy.median()], [HIT], *CHAT_FIRST),
        "numeric": (numbers_minus_others, trace, strings),
        "orthogonal": (association.correlations, trace, "target_entropy", "draft_entropy"),
        "task-depth": (task_minus_depth, text),
        "task-first": (between_domains, trace),
        "length": (each, *at_0),
        # the paper's E[L], from the means of min(1, p/q) over all nodes, by accepted tokens
        "eq3": (compared, (text.nodes, score.published_length), at_0, np.divide),
        "depth": (by_depth, text, 3),
        "long-chains": (by_depth, text, 8),
        "position": (late_minus_early, trace),
        "entropy-sign entropy-weak": (association.correlations, trace, "target_entropy", "hit"),
        "entropy-needed": (each, trace[entropy >= three_quarters], HIT),
        "temperature": (compared, at_1, at_0, np.subtract),
    }


# %%
WHERE = ["claim", "pair", "prompts"]
parts = []
for pair, sets in texts.items():
    for prompts, both in sets.items():
        sizes = both[0].trace.groupby("domain")["prompt_id"].nunique()
        for ids, (number, *arguments) in measured(profiles[pair], *both).items():
            try:
                rows = number(*arguments)
            except ValueError as error:  # these texts cannot answer
                rows = pd.DataFrame({"row": "", "estimate": [np.nan], "note": str(error)})
            rows = rows.rename(columns={"domain": "row", "estimator": "number"})
            where = {"pair": pair, "prompts": prompts, "fewest": sizes.min()}
            parts += [rows.assign(claim=claim, **where) for claim in ids.split()]
for claim, values in listed["values"].dropna().items():  # exact numbers, which need no pair
    rows = pd.DataFrame(values, columns=["number", "row", "estimate"])
    ends = {"low": rows["estimate"], "high": rows["estimate"]}
    parts.append(rows.assign(claim=claim, pair="none", prompts="none", **ends))

COLUMNS = [*WHERE, "number", "row", "estimate", "low", "high", "note", "fewest"]
evidence = pd.concat(parts, ignore_index=True)[COLUMNS]
regions = listed.loc[evidence["claim"], "region"]
evidence[["least", "most"]] = [
    region[row] if isinstance(region, dict) else region
    for region, row in zip(regions, evidence["row"], strict=True)
]
ctx.export(evidence, "evidence")

# %% tags=["by-hand"]
gap = evidence[evidence["claim"] == "gap"].set_index(["pair", "prompts"])
assert np.allclose(gap.loc[[(name, OWN)], ["estimate", "low", "high"]], [[by_hand, *interval]])

# %% [markdown]
# ## 3. Which claims hold?
# A verdict is for a pair's own prompts, at least 20 per domain. A level *agrees* or *differs*.
# `verdicts.csv` has the numbers on other prompts, and the claims that state the same fact as one of
# these or a condition that this pair may not meet.


# %%
def summary(rows):
    """The least and the greatest number, and the outermost bounds: '0.35 to 0.72 [0.32, 0.74]'."""
    parts = []
    has_regions = rows["least"].nunique() > 1  # each domain has its own
    labels = rows["row"] if has_regions else rows["number"].fillna("")
    known = rows.dropna(subset="estimate").groupby(labels, sort=False)
    for label, part in known:
        ends = [*part["estimate"].agg(["min", "max"]), part["low"].min(), part["high"].max()]
        least, most, low, high = (f"{end:.2g}" for end in ends)
        text = least if least == most else f"{least} to {most}"
        text += f" [{low}, {high}]" if (part["low"] < part["high"]).any() else ""
        parts.append(f"{label} {text}" if len(known) > 1 else text)
    return "; ".join(parts).replace("-", "\N{MINUS SIGN}")


WORDS = {  # instead of holds and fails
    "level": {"holds": "agrees", "fails": "differs"},
    "defect": {"fails": "defect"},
    "conditional": dict.fromkeys(["holds", "fails", "inconclusive"], "not judged"),
}


def verdict(rows):
    """The verdict on the claim of these rows."""
    if rows["estimate"].isna().all():
        return "not tested"
    if rows["fewest"].min() < stats.FEW_PROMPTS:
        return "too few prompts"
    judged = judge(rows)
    kind = listed.at[rows["claim"].iloc[0], "kind"]
    return WORDS.get(kind, {}).get(judged, judged)


# %%
verdicts = pd.DataFrame(
    [[*keys, summary(rows), verdict(rows)] for keys, rows in evidence.groupby(WHERE, sort=False)],
    columns=[*WHERE, "measured", "verdict"],
)
said = listed[["kind", "said", "number"]]
verdicts = verdicts.merge(said, left_on="claim", right_index=True)
own = verdicts[verdicts["prompts"] == OWN]
here = own[own["pair"] == name].set_index("claim")
of_pairs = own.pivot(index="claim", columns="pair", values="verdict")[[*profiles]]
cells = here[["kind", "said", "number", "measured"]].join(of_pairs.add_prefix("verdict: "))
cells = cells[~cells["kind"].isin(["same fact", "conditional"])].replace("none given", "")
cells = cells.rename(columns={"said": "claim", "number": "printed", "measured": name})
ctx.table(
    verdicts,
    "verdicts",
    cells=cells.sort_values("kind", kind="stable", ignore_index=True),
    most=len(cells),
    caption="Claims of the paper and the article: the printed number, this pair's number (least "
    "and greatest over rows, with the outermost bounds of their intervals), and the verdicts.",
)
ctx.say(
    f"{listed['untested'].count()} other claims are not judged here. The column `untested` of "
    "`data/paper/claims.yaml` says why. Notebooks 02, 08, 09 and 10 ask about most of them."
)

# %% [markdown]
# A part of the gap between chat and math can be the form of the prompts, so here is the first claim
# on other prompts. ([03](03_domain_acceptance.ipynb) also asks it of those in English alone.)

# %%
ctx.plot(
    gap.reset_index(),
    x="pair",
    hue="prompts",
    kind="bars",
    reference={"": 0},
    y="chat minus math (points)",
    slug="chat-minus-math",
    title="Acceptance in chat minus acceptance in math",
    caption="Right of the line, chat would be accepted more often than math, as the paper says. "
    "Bars: intervals over prompts.",
)

# %% [markdown]
# ## 4. Which claims need no pair?
# A *defect* is a fault in the authors' code or in the article's pseudo-code. Its size is a number
# that should be 0. *Total variation* is half the sum of the absolute differences of two
# distributions.

# %%
free = verdicts[verdicts["pair"] == "none"].drop(columns="number")
free = free.merge(evidence[["claim", "number"]].drop_duplicates("claim"), on="claim")
free = free[["said", "number", "measured", "verdict"]]
notebook.show_table(free.rename(columns={"said": "claim"}))

# %% [markdown]
# Why can drafting pay below one accepted token per pass? A block emits one token more than the
# target accepts. With $\gamma$ drafted tokens, each of which costs $c$ target passes, drafting pays
# if
#
# $$\frac{1 + E[L]}{\gamma c + 1} > 1 \Leftrightarrow E[L] > \gamma c.$$
#
# ## 5. What did we change after seeing numbers?
# Regions and estimators were written, and changed, while recorded runs were there to be seen. So no
# verdict is a test of a forecast.

# %%
rows = listed.set_index("said")["changed"].dropna().explode()
names = ["November 2026", "change", "before", "after"]
changes = pd.DataFrame([*rows], rows.index.rename("claim"), names).reset_index()
ORDER = {"fails": -1, "differs": -1, "inconclusive": 0, "holds": 1, "agrees": 1}
numbers = changes[["before", "after"]].apply(lambda words: words.str.split().str[0].map(ORDER))
turned = changes[(numbers["after"] - numbers["before"]).abs() > 0]  # other words are no verdicts
ctx.say(
    f"`11/changes.csv` lists all {len(changes)} changes, with the verdict on `smollm` before and "
    f"after each. {len(turned)} of them turned a verdict:"
)
ctx.table(
    changes, "changes", cells=turned.reset_index(drop=True), caption="Changes that turned a verdict"
)

# %%
directions = here.loc[here["kind"] == "direction", "verdict"]
held, failed = ((directions == word).sum() for word in ("holds", "fails"))
points = f"{100 * abs(by_hand):.0f} points"
signs = np.sign(gap.loc[name, ["low", "high"]])  # on each prompt set
is_same = (signs == np.sign(by_hand)).all(axis=1)
elsewhere = [prompt_sets.IN_WORDS.get(each, each) for each in is_same.index[is_same] if each != OWN]
too = f", and on {named(elsewhere)} too" if elsewhere else ""
FIRST = {
    "holds": f"The main one does: acceptance is {points} higher in chat than in math{too}.",
    "fails": f"Not the main one: acceptance is {points} lower in chat than in math{too}.",
    "inconclusive": "The main one is inconclusive: chat and math are not significantly different.",
}
answer = FIRST.get(directions["gap"], "These prompts are too few for a verdict.")
if held + failed:
    answer += (
        f" For `{name}`, these prompts agree with {held} of {len(directions)} claims about "
        f"directions and disagree with {failed}."
    )
ctx.answer(answer)

# %% [markdown]
# ## What this does not show
# * Anything about the paper's own pair: the records of its run (`make author-records`) are no part
#   of the kit. A few pairs cannot prove a direction for all.
# * The paper's own way to measure, and T = 1: [03](03_domain_acceptance.ipynb) to
#   [06](06_chat_paradox.ipynb).
#
# ## Try it
# Set `overrides = {"prompts_per_domain": 25}`. Do verdicts reverse?
#
# <details><summary>What happens</summary>
# Intervals become wider by about the square root of 2, so some verdicts become
# inconclusive.</details>

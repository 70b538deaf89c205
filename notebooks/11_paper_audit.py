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
from speclab.study.profiles import ROOT, load_profile
from speclab.study.prompts import DOMAINS
from speclab.estimates import named
from speclab.show import notebook, tables
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
profiles = {name: ctx.profile}
for other in beside:
    if other not in profiles:  # another pair is read as it is shipped
        profiles[other] = load_profile(other).replace(recorded=())


def texts_of(of):
    """The greedy and sampled texts of a pair on each prompt set whose texts are all new."""
    at_1 = of.replace(temperature=1.0)  # what the paper says of sampling is about T = 1
    greedy, sampled = (Text.recorded(at_1, kind) for kind in ("greedy", "sampled"))
    sampled = prompt_sets.texts(at_1, sampled)
    sets = prompt_sets.with_all_domains(prompt_sets.texts(at_1, greedy))
    return {
        prompts: (text, sampled[prompts])
        for prompts, text in sets.items()
        if prompts not in prompt_sets.NEW
    }


texts = {pair: texts_of(of) for pair, of in profiles.items()}
greedy = texts[name][OWN][0]
if len(stats.judged_domains(greedy.trace)) < len(DOMAINS):
    ctx.leave_out("needs five prompts or more in each domain")

# %% [markdown]
# ## 1. One claim by hand
# The claim is that acceptance is higher in chat than in math. At T = 0 a lossless decoder accepts
# the draft's best token where it is the target's best (`hit`), so the number is the difference of
# two shares of positions:
#
# $$\mathrm{hit}_{\text{chat}} - \mathrm{hit}_{\text{math}}.$$
#
# We resample whole prompts within each domain 2,000 times, each prompt with all its positions. The
# interval is the middle 95 % of the resampled differences, a little widened for the number of
# prompts (`stats.levels_of`, [12](12_how_sure.ipynb)). The claim **holds** if the interval lies in
# the region (here: above 0), **fails** if it lies outside, and is **inconclusive** otherwise.

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
    longer = ndtri(0.025 / len(rows)) / ndtri(0.025)  # 1 for a single row
    low = rows["estimate"] - longer * (rows["estimate"] - rows["low"])
    high = rows["estimate"] + longer * (rows["high"] - rows["estimate"])
    outside = (high <= rows["least"]) | (low >= rows["most"])
    return "fails" if outside.any() else "inconclusive"


# %% [markdown]
# ## 2. What is measured for each claim
# Everything at T = 0, on greedy text, by what is exact for a lossless decoder. Only the claim about
# sampling needs a second text, at T = 1. Differences use the same resampled prompts on both sides.

# %%
HIT = score.mean_of("hit", "acceptance")
ENTROPY = score.mean_of("target_entropy", "entropy")
CHAT_FIRST = [("chat", "code"), ("chat", "reasoning"), ("chat", "math")]
FALLING = [("chat", "code"), ("code", "reasoning"), ("reasoning", "math")]


def each(rows, estimator):
    """A number in each domain."""
    table = stats.by_domain(rows, estimator).without(domain=[score.ALL, score.POOLED])
    return table.frame.rename(columns={"domain": "row", "estimator": "number"})


def gaps(rows, estimator, *pairs):
    """A number in one domain minus that number in another, for each pair of domains."""
    draws = stats.jointly({"number": (rows, estimator)})
    of = draws["number"]
    changes = {f"{one} - {other}": of[one] - of[other] for one, other in pairs}
    return draws.table(changes, key="row").frame.assign(number=estimator.name)


def entropy_and_acceptance(rows):
    """Chat minus each other domain, in both."""
    return pd.concat(gaps(rows, number, *CHAT_FIRST) for number in (ENTROPY, HIT))


def split(rows, is_first):
    """Acceptance on some of the positions minus acceptance on the others, over all domains."""
    sides = {"first": rows[is_first], "second": rows[~is_first]}
    draws = stats.jointly({side: (part, HIT) for side, part in sides.items()}, same=False)
    change = draws["first"] - draws["second"]
    return draws.table({"all": change[score.POOLED]}, key="row").frame


def correlation(rows, column):
    """The rank correlation of the target's entropy with a column, in each domain."""
    table = association.correlations(rows, "target_entropy", column)
    return table.rename(columns={"domain": "row"})


# %% [markdown]
# **Blocks**: what the decoder tests and accepts per target pass, in blocks that it visits. Depth
# against task compares two shares of the variance of "accepted" over the tested tokens: between
# domains and between depths. With $k_g$ of $t_g$ tokens accepted in group $g$, and $k$ of $t$ in
# all, a share is
#
# $$\frac{\sum_g k_g^2 / t_g - k^2 / t}{k - k^2 / t}.$$


# %%
BLOCKS = score.block_estimators()


def by_depth(text, gamma):
    """Acceptance at the last depth minus at depth 1, given that all earlier tokens were accepted,
    over blocks with room for the whole chain.
    """
    sums = replay.prompt_sums(text.chain(gamma), "room")
    return each(sums, score.change(BLOCKS["accept_by_depth"]))


def task_minus_depth(text):
    """The share of variance between domains minus the share between depths."""
    sums = replay.prompt_sums(text.chain(3), "room")
    prompts = stats.resampling_of(sums)
    reached = sums[["blocks", "survival_1", "survival_2", "survival_3"]].to_numpy()
    reached = prompts.resampled(prompts.totals(reached))  # (resamples, domains, depths)
    tested, kept = reached[..., :-1], reached[..., 1:]
    between = {}
    for factor, other in {"domain": 2, "depth": 1}.items():
        between[factor] = score.divide(kept.sum(other) ** 2, tested.sum(other)).sum(1)
    count, total = tested.sum((1, 2)), kept.sum((1, 2))
    spread = total - score.divide(total**2, count)
    draws = score.divide(between["domain"] - between["depth"], spread)
    found = stats.Interval.of(draws, prompts, "the share of variance")
    return pd.DataFrame([vars(found) | {"row": "all"}])


def accepted(text, tree):
    """Accepted tokens per target pass: rows and estimator."""
    return replay.prompt_sums(text.tree(tree)), BLOCKS["mean_accepted"]


# %%
def formula_over_blocks(text, tree):
    """The paper's E[L], from the means of min(1, p/q) over all nodes, by accepted tokens."""
    numbers = {"E[L]": (text.nodes, score.published_length), "exact": accepted(text, tree)}
    draws = stats.jointly(numbers)
    ratio = draws["E[L]"][[*DOMAINS]] / draws["exact"][[*DOMAINS]]
    return draws.table({"": ratio}).frame.rename(columns={"domain": "row"})


def sampled_minus_greedy(text, sampled, tree):
    """Accepted tokens per target pass at T = 1 minus at T = 0."""
    draws = stats.jointly({1: accepted(sampled, tree), 0: accepted(text, tree)})
    change = draws[1][[*DOMAINS]] - draws[0][[*DOMAINS]]
    return draws.table({"": change}).frame.rename(columns={"domain": "row"})


def late_minus_early(trace):
    """Acceptance from position 32 on (the paper's second bin) minus before, in texts that get
    there.
    """
    is_late = trace["position"] >= published.POSITION_BIN
    reaches = trace["prompt_id"].isin(trace["prompt_id"][is_late])
    return split(trace[reaches], is_late[reaches])


def between_domains(trace):
    """Share of the variance between texts that lies between domains."""
    found = variance_components.shares(trace, "hit")["domain"]
    return pd.DataFrame([vars(found) | {"row": "domain"}])


# %%
def numbers_minus_others(trace, strings):
    """In math, acceptance of tokens that are numbers minus acceptance of all others."""
    rows = trace[trace["domain"] == "math"]
    return split(rows, token_kinds(rows, strings) == "number")


def measured(of, text, sampled):
    """What is measured for each claim on a pair's texts: a function and its arguments."""
    trace, tree = text.trace, of.tree
    entropy = trace["target_entropy"]
    three_quarters = entropy.groupby(trace["domain"]).transform("quantile", 0.75)
    strings = strings_of(ModelFolder.fetched(of.target, weights=False).tokenizer)
    return {
        "level small-draft": (each, trace, HIT),
        "gap": (gaps, trace, HIT, ("chat", "math")),
        "order": (gaps, trace, HIT, *FALLING),
        "paradox": (entropy_and_acceptance, trace),
        "lexical": (gaps, trace[entropy > entropy.median()], HIT, *CHAT_FIRST),
        "numeric": (numbers_minus_others, trace, strings),
        "orthogonal": (correlation, trace, "draft_entropy"),
        "task-depth": (task_minus_depth, text),
        "task-first": (between_domains, trace),
        "length": (each, *accepted(text, tree)),
        "eq3": (formula_over_blocks, text, tree),
        "depth": (by_depth, text, 3),
        "long-chains": (by_depth, text, 8),
        "position": (late_minus_early, trace),
        "entropy-sign entropy-weak": (correlation, trace, "hit"),
        "entropy-needed": (each, trace[entropy >= three_quarters], HIT),
        "temperature": (sampled_minus_greedy, text, sampled, tree),
    }


# %% [markdown]
# Claims that need no pair have exact numbers, from formulas, the authors' code and log, and the
# article's example.

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
            where = {"pair": pair, "prompts": prompts, "fewest": sizes.min()}
            parts += [rows.assign(claim=claim, **where) for claim in ids.split()]
for claim, values in listed["values"].dropna().items():
    rows = pd.DataFrame(values, columns=["number", "row", "estimate"])
    ends = {"low": rows["estimate"], "high": rows["estimate"]}
    parts.append(rows.assign(claim=claim, pair="none", prompts="none", **ends))

COLUMNS = [*WHERE, "number", "row", "estimate", "low", "high", "note", "fewest"]
evidence = pd.concat(parts, ignore_index=True)[COLUMNS]
regions = listed.loc[evidence["claim"], "region"]
edges = [
    region[row] if isinstance(region, dict) else region
    for region, row in zip(regions, evidence["row"], strict=True)
]
evidence[["least", "most"]] = edges
ctx.export(evidence, "evidence")

# %% tags=["by-hand"]
gap = evidence[evidence["claim"] == "gap"].set_index(["pair", "prompts"])
assert np.allclose(gap.loc[[(name, OWN)], ["estimate", "low", "high"]], [[by_hand, *interval]])

# %% [markdown]
# ## 3. Which claims hold?
# A verdict is for a pair's own prompts, at least 20 per domain. A level *agrees* or *differs*. A
# *conditional* claim is not judged, because this pair may not meet its condition. Several claims
# about the *same fact* count once.


# %%
def summary(rows):
    """The least and the greatest number, and the outermost bounds: '0.35 to 0.72 [0.32, 0.74]'."""
    parts = []
    has_regions = isinstance(listed.at[rows["claim"].iloc[0], "region"], dict)
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
of_pairs = verdicts[verdicts["prompts"] == OWN].pivot(index="claim", columns="pair")
here = of_pairs.xs(name, axis=1, level="pair")
cells = said.reindex([claim for claim in listed.index if claim in here.index])
cells = cells.rename(columns={"said": "claim", "number": "printed"})
cells[name] = here["measured"]
for prompts in [*texts[name]][1:]:
    elsewhere = verdicts[(verdicts["pair"] == name) & (verdicts["prompts"] == prompts)]
    cells[prompts] = elsewhere.set_index("claim")["measured"]
for pair in profiles:
    cells[f"verdict: {pair}"] = of_pairs["verdict", pair]
ctx.table(
    verdicts,
    "verdicts",
    cells=cells.reset_index(drop=True),
    most=len(cells),
    caption="Claims of the paper and the article: the printed number, this pair's number (least "
    "and greatest over rows, with the outermost bounds of their intervals), and the verdicts.",
)

# %% [markdown]
# Part of such a gap can be the form of the prompts ([03](03_domain_acceptance.ipynb)), so here is
# the first claim on other prompts. [04](04_depth_profile.ipynb) explains what depth has to do with
# acceptance.

# %%
paper = {"pair": "the paper's pair", "prompts": OWN}
paper["estimate"] = float(listed.at["gap", "number"])
ctx.plot(
    pd.concat([gap.reset_index(), pd.DataFrame([paper])], ignore_index=True),
    x="pair",
    hue="prompts",
    kind="points",
    reference=0,
    percent=True,
    y="chat minus math (points)",
    x_label="",
    slug="chat-minus-math",
    title="Acceptance in chat minus acceptance in math",
    caption="Above the line, chat is accepted more often than math, as the paper prints. The "
    "paper's own measure is another one. Bars: intervals over prompts.",
)

# %%
untested = listed["untested"].dropna()
lines = [
    f"* {named([f'“{claim}”' for claim in listed.loc[claims, 'said']])}: {reason}"
    for reason, claims in untested.groupby(untested, sort=False).groups.items()
]
ctx.say("\n".join(["**Not judged here:**\n", *lines]))

# %% [markdown]
# ## 4. Which claims need no pair?
# A *defect* is a fault in the authors' code or in the article's pseudo-code. Its size is a number
# that should be 0. *Total variation* is half the sum of the absolute differences of two
# distributions.

# %%
free = verdicts[verdicts["pair"] == "none"].set_index("claim")
first = evidence.groupby("claim")["number"].first()
free = free.assign(number=first)[["said", "number", "measured", "verdict"]]
notebook.show_table(free.rename(columns={"said": "claim"}).reset_index(drop=True))

# %% [markdown]
# **Must the target accept more than one token per pass before drafting pays?** No. A block emits
# one token more than the target accepts. With a chain of $\gamma$ drafted tokens, each of which
# costs $c$ target passes, drafting pays as soon as more than $\gamma c$ tokens are accepted on
# average:
#
# $$\frac{1 + E[L]}{\gamma c + 1} > 1 \Leftrightarrow E[L] > \gamma c.$$
#
# ## 5. What did we change after seeing numbers?
# Regions and estimators were written, and changed, while recorded runs were there to be seen. So no
# verdict is a test of a forecast. Here is every change, with the verdict on `smollm` before and
# after it.

# %%
changes = pd.DataFrame(
    [
        [said, *row]
        for said, rows in listed.set_index("said")["changed"].dropna().items()
        for row in rows
    ],
    columns=["claim", "November 2026", "change", "before", "after"],
)
summary_line = f"<summary>{len(changes)} changes</summary>"
ctx.say(f"<details>{summary_line}\n\n{tables.markdown(changes)}\n\n</details>")

# %%
directions = here.loc[here["kind"] == "direction", "verdict"]
held, failed = ((directions == word).sum() for word in ("holds", "fails"))
points = f"{100 * abs(by_hand):.0f} points"
elsewhere = gap.loc[[name], ["low", "high"]].drop((name, OWN))
is_same = len(elsewhere) and (np.sign(elsewhere) == np.sign(by_hand)).all(axis=None)
too = ", and on other prompts too" if is_same else ""
FIRST = {
    "holds": f"The main one does: acceptance is {points} higher in chat than in math{too}.",
    "fails": f"Not the main one: acceptance is {points} lower in chat than in math{too}.",
    "inconclusive": "The main one is inconclusive: chat and math are not significantly different.",
}
answer = FIRST.get(directions["gap"], "These prompts are too few for a verdict.")
if held + failed:
    answer += (
        f" For `{name}`, these prompts confirm {held} of {len(directions)} claims about directions "
        f"and refute {failed}."
    )
ctx.answer(answer)

# %% [markdown]
# ## What this does not show
# * Anything about the paper's own pair: the records of its run (`make author-records`) are no part
#   of the kit. A few pairs cannot prove a direction for all.
# * The paper's own way to measure, which belongs to no lossless decoder, and T = 1:
#   [03](03_domain_acceptance.ipynb) to [06](06_chat_paradox.ipynb).
# * One failing domain makes a claim fail, and the regions are ours where the source names none.
#
# ## Try it
# Set `overrides = {"prompts_per_domain": 25}`. Do verdicts reverse, or become inconclusive?
#
# <details><summary>What happens</summary>
# Intervals become wider by about the square root of 2, so some verdicts become inconclusive. A
# verdict that reversed would have been wrong by chance.</details>

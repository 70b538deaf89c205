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
# values of c, the cost of a draft pass in target passes
cs: list = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.29, 0.4, 0.5, 0.7, 1.0]  # 0.0001 to 10
# slopes of v(n) = 1 + slope (n - 1), the cost of a target pass over n tokens
slopes: list = [0.0, 0.1]  # 0 to 10
# folder of the authors' records; empty: $SPECLAB_AUTHOR_RECORDS, else data/runs/author-records
author_records: str = ""  # any

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Goes to the root of the kit: around this folder, or where this kernel has it. If the kit is
# missing, it is cloned from SPECLAB_REPO.
# On Colab and Kaggle it installs missing packages: `python -m speclab hosted install`.
import importlib.util, os, pathlib, subprocess, sys

places = [here := pathlib.Path.cwd(), *here.parents, here / "speclab-kit"]
if origin := getattr(importlib.util.find_spec("speclab"), "origin", None):
    places.append(pathlib.Path(origin).parents[1])
kit = next((place for place in places if (place / "speclab/study").is_dir()), places[-1])
if not kit.exists() and (address := os.environ.get("SPECLAB_REPO")):
    subprocess.run(["git", "clone", "--depth=1", address, kit])
if not (kit / "speclab/study").is_dir():
    sys.exit(f"{kit} holds no kit: clone it, or set SPECLAB_REPO to its address")
if str(kit) not in sys.path:
    sys.path.insert(0, str(kit))
from speclab.cli import hosted

hosted.prepare()

# %% jupyter={"source_hidden": true}
from itertools import product

import numpy as np
import pandas as pd

from speclab import cost, replay, score, stats
from speclab.lab import association, bins, choose, claims
from speclab.logs import author_records as authors
from speclab.lab import prompt_sets, published, variance_components
from speclab.lab.claims import AT_0, AT_1, FAILS, FORM, HOLDS, KEYS, PUBLISHED, SOURCES
from speclab.lab.prompt_sets import OWN
from speclab.lab.texts import Text
from speclab.lab.token_kinds import token_kinds
from speclab.estimates import stack
from speclab.models.folder import ModelFolder
from speclab.study.profiles import load_profile
from speclab.study.prompts import DOMAINS
from speclab.show import notebook
from speclab.show.pictures import strings_of
from speclab.tree import chain

READS = ["{beside}", "{author_records}"]  # the profiles and the folder that parameters name
RUNS = ["greedy", "sampled", "others", "others-sampled"]

ctx = notebook.start("11_paper_audit", profile, overrides)
name = ctx.profile.name

# %% [markdown]
# A paper measured acceptance by domain for one pair of models, and an article gives advice on how
# much to draft. Do their claims hold for other pairs and other prompts?
#
# A claim is a **number** and a **region** in which the number has to lie. We wrote both down before
# any run was measured. Where the source names no region, the margin is ours. `fact` is the claim
# that says the same: we judge both, and count them once, as one **statement**.

# %%
listed = claims.claims()
first = pd.DataFrame([vars(claim) for claim in listed.values()]).head(3)
notebook.show_table(first[["id", "fact", "claim", "number", "region"]])

# %% [markdown]
# The texts of each pair: greedy (T = 0) and sampled at T = 1, on its own prompts and on other sets.

# %%
profiles = {name: ctx.profile}
for other in beside:
    if other not in profiles:  # another pair is read as it is shipped
        profiles[other] = load_profile(other).replace(recorded=())


def read_texts(of):
    """A pair's texts by temperature and prompt set; tokens that are numbers are marked."""
    at_1 = of.replace(temperature=1.0)  # the claims are about T = 1
    strings = strings_of(ModelFolder.fetched(of.target, weights=False).tokenizer)
    texts = {}
    for way, kind in {AT_0: "greedy", AT_1: "sampled"}.items():
        texts[way] = prompt_sets.texts(at_1, Text.recorded(at_1, kind))
        texts[way].pop(prompt_sets.ENGLISH, None)  # a part of the second set
        for prompts, text in texts[way].items():
            is_number = token_kinds(text.trace, strings) == "number"
            texts[way][prompts] = text.with_columns(is_number=is_number)
    return texts


texts = {pair: read_texts(of) for pair, of in profiles.items()}
trace = texts[name][AT_0][OWN].trace
notebook.show_table(trace[["prompt_id", "domain", "position", "token", "hit"]].head(2))

# %% [markdown]
# ## 1. One claim by hand
# The claim is that acceptance is higher in chat than in math. At T = 0 a lossless decoder accepts
# the draft's best token where it is the target's best (`hit`), so the number is the difference of
# two shares:
#
# $$\mathrm{hit}_{\text{chat}} - \mathrm{hit}_{\text{math}}.$$
#
# We resample whole prompts within each domain 2,000 times, each prompt with all its positions. The
# interval is the middle 95 % of the resampled differences. It is a little wider than that, because
# the prompts of a sample vary less about their own mean than about the true mean
# (`stats.levels_of`, [12](12_how_sure.ipynb)).

# %% tags=["by-hand"]
hits = trace.groupby(["domain", "prompt_id"])["hit"].agg(["sum", "size"])
fewest = min(len(hits.loc[domain]) for domain in ("math", "chat"))
if fewest < stats.MIN_PROMPTS:
    ctx.leave_out("needs five prompts or more in math and in chat")
share, redrawn = {}, {}
for number, domain in enumerate(["math", "chat"]):
    of_prompts = hits.loc[domain]
    n = len(of_prompts)
    rng = np.random.default_rng([0, number])
    times = rng.multinomial(n, np.full(n, 1 / n), size=2000)  # how often each prompt is drawn
    share[domain] = of_prompts["sum"].sum() / of_prompts["size"].sum()
    redrawn[domain] = times @ of_prompts["sum"] / (times @ of_prompts["size"])

estimate = share["chat"] - share["math"]
low, high = np.quantile(redrawn["chat"] - redrawn["math"], stats.levels_of(fewest))
by_hand = HOLDS if low > 0 else FAILS if high <= 0 else claims.UNDECIDED
print(f"{stats.cell(estimate, low, high, 0, 'points')}, region above 0: {by_hand}")

# %% [markdown]
# **The rule for several rows** (domains, differences). With row $i$'s 95 % interval
# $[l_i, u_i]$, its region $R_i$, and the interval $[\tilde l_i, \tilde u_i]$ widened for the number
# of rows (Bonferroni), a claim
#
# $$\mathbf{holds} \text{ if } [l_i, u_i] \subset R_i \text{ for every } i, \qquad
#   \mathbf{fails} \text{ if } [\tilde l_i, \tilde u_i] \cap R_i = \emptyset \text{ for some } i.$$
#
# Otherwise it is **inconclusive**: an interval that includes 0 does not show that there is no
# effect. A claim of equality therefore has a margin.
#
# ## 2. What is measured for each claim
# Tools for rows of numbers: a number in each domain, and one number minus another, both over the
# same resampled prompts.


# %%
def rows_from(estimator, draws, numbers):
    """Rows of evidence; a number without an interval counts as not measured."""
    if isinstance(numbers, pd.DataFrame):  # without the means of the domains
        numbers = numbers.drop(columns=[score.ALL, score.POOLED], errors="ignore")
    table = draws.table({"": pd.DataFrame(numbers)}).frame
    table["estimate"] = table["estimate"].where(table["note"] == "")
    return claims.rows_of(estimator, table)


def each(rows, estimator):
    """A number in each domain."""
    draws = stats.jointly({"": (rows, estimator)})
    return rows_from(estimator.name, draws, draws[""])


def minus(label, row, first, second):
    """A number over all domains together minus another one; each is (rows, estimator)."""
    draws = stats.jointly({"first": first, "second": second}, same=False)
    change = draws["first"] - draws["second"]
    return rows_from(label, draws, {row: change[score.POOLED]})


# %%
def gaps(rows, estimator, *pairs):
    """A number in one domain minus that number in another, for each pair of domains."""
    parts = []
    for pair in pairs:
        score.domains_in(rows, pair)  # ValueError if one is missing
        sides = [(rows[rows["domain"] == domain], estimator) for domain in pair]
        parts.append(minus(estimator.name, " - ".join(pair), *sides))
    return pd.concat(parts)


def split(rows, estimator, is_first, label, row):
    """A number on some of the rows minus that number on the others."""
    sides = (rows[is_first], estimator), (rows[~is_first], estimator)
    return minus(f"{estimator.name}, {label}", row, *sides)


def correlation(rows, value, other, method, label):
    """A correlation in each domain."""
    table = association.correlations(rows, other, value, method)
    return claims.rows_of(f"{method.title()} of {label} and {other}", table)


# %% [markdown]
# **Task and depth.** The share of a variance that lies between the groups $g$ of a factor (domains,
# or depths) is
#
# $$\frac{\sum_g n_g (\bar y_g - \bar y)^2}{\sum_i (y_i - \bar y)^2}.$$
#
# On the decoder's side $y$ is whether a drafted token is accepted, over the tokens that the decoder
# tests: those whose predecessors in the block were all accepted.


# %%
def share_between(rows, value, factor):
    """Share of a column's variance between the groups of a factor, from sums over rows."""
    in_each = bins.in_levels(value, factor, sorted(rows[factor].unique()))

    def columns(frame):
        return np.column_stack([in_each(frame), score.column_of(frame, value) ** 2])

    def share(totals):
        sums, counts = np.split(totals[..., :-1], 2, axis=-1)
        of_mean = score.divide(sums.sum(-1) ** 2, counts.sum(-1))
        of_groups = np.nansum(score.divide(sums**2, counts), axis=-1)
        return score.divide(of_groups - of_mean, totals[..., -1] - of_mean)[..., None]

    return score.Estimator(factor, columns, share)


def task_minus_depth(rows, value):
    """Share of the variance between domains minus the share between depths."""
    if rows["domain"].nunique() < 2:
        raise ValueError("one domain only: a share of variance between domains needs two")
    sides = [(rows, share_between(rows, value, factor)) for factor in ("domain", "depth")]
    return minus("share of domain - share of depth", "all", *sides)


# %%
def tested_tokens(text):
    """One row for each drafted token that a decoder with chains of 3 tests."""
    blocks = text.tree(chain(3))
    most = blocks[["drafted", "remaining"]].min(axis=1)  # fewer at the end of a text
    parts = []
    for depth in (1, 2, 3):
        tested = blocks[(blocks["accepted"] >= depth - 1) & (most >= depth)]
        parts.append(tested.assign(depth=depth, kept=tested["accepted"] >= depth))
    return pd.concat(parts)


def variance_of_texts(text):
    """Shares of the variance between texts: between domains, and between prompts within them."""
    shares = variance_components.shares(text.trace, text.value)
    table = pd.DataFrame(map(vars, shares.values())).assign(domain=list(shares))
    label = f"share of the variance between texts, {text.acceptance.name}"
    return claims.rows_of(label, table)


# %% [markdown]
# **Which positions.** The target is unsure where its entropy is high.


# %%
def unsure_half(trace):
    """Positions whose entropy is above the median of all domains."""
    entropy = trace["target_entropy"]
    return trace[entropy > entropy.median()]


def unsure_quarter(trace):
    """The quarter of each domain's positions with the highest entropy."""
    domains = trace.groupby("domain", observed=True)
    edge = domains["target_entropy"].transform("quantile", 0.75)
    return trace[trace["target_entropy"] >= edge]


def late_minus_early(rows, estimator, row):
    """A number from position 32 on (the paper's second bin) minus before, where texts get there."""
    is_late = rows["position"] >= published.POSITION_BIN
    return split(rows, estimator, is_late, "late - early", row)


def long_texts(trace):
    """Positions of the prompts whose texts reach position 32."""
    longest = trace.groupby("prompt_id")["position"].transform("max")
    rows = trace[longest >= published.POSITION_BIN]
    return score.require(rows, ["domain"], "positions from 32 on, their prompts")


def trees(text):
    """The nodes of a text's trees."""
    if text.nodes["node"].max() == 1:
        raise ValueError("these texts were recorded without draft trees")
    return text.nodes


# %% [markdown]
# **As published**: the paper's own procedure, on the draft trees of greedy text. Its acceptance
# $\alpha$ is the mean of $\min(1, p/q)$ over all nodes; its $E[L]$ follows from these means
# ([03](03_domain_acceptance.ipynb)).

# %%
CHAT_FIRST = [("chat", "code"), ("chat", "reasoning"), ("chat", "math")]
FALLING = [("chat", "code"), ("code", "reasoning"), ("reasoning", "math")]
ENTROPY, ALPHA = score.mean_of("target_entropy", "target_entropy"), score.published_alpha


def paradox(rows, acceptance):
    """Chat minus each other domain, in entropy and in acceptance."""
    return pd.concat([gaps(rows, number, *CHAT_FIRST) for number in (ENTROPY, acceptance)])


def late_nodes(nodes, depth):
    """The paper's acceptance at one depth, late minus early."""
    rows = nodes[nodes["depth"] == depth]
    return late_minus_early(rows, ALPHA, f"nodes at depth {depth}")


BY_PAPER = {  # claims: what is measured for them
    "level": lambda nodes: each(nodes, ALPHA),
    "gap": lambda nodes: gaps(nodes, ALPHA, ("chat", "math")),
    "order": lambda nodes: gaps(nodes, ALPHA, *FALLING),
    "paradox": lambda nodes: paradox(nodes, ALPHA),
    "task-depth": lambda nodes: task_minus_depth(nodes, "ratio"),
    "length": lambda nodes: each(nodes, score.published_length),
    "depth": lambda nodes: each(nodes, score.change(score.ratio_by_depth)),
    "position": lambda nodes: pd.concat([late_nodes(nodes, 1), late_nodes(nodes, 3)]),
    "depth-2": lambda nodes: late_nodes(nodes, 2),
    "entropy-sign entropy-weak": lambda nodes: correlation(
        nodes, "ratio", "target_entropy", "pearson", "ratio"
    ),
}

# %% [markdown]
# **Exact for a lossless decoder**, at T = 0 and at T = 1, each on text of its temperature.
# Acceptance of one drafted token is `hit` at T = 0 and $\sum_x \min(p, q)$ at T = 1. At T = 1 the
# pair's tree is verified by the point-mass rule.


# %%
def numbers_minus_others(rows, text):
    return split(rows, text.acceptance, rows["is_number"], "numbers - others", "math")


EXACT = {
    "level small-draft": lambda text: each(text.trace, text.acceptance),
    "gap": lambda text: gaps(text.trace, text.acceptance, ("chat", "math")),
    "order": lambda text: gaps(text.trace, text.acceptance, *FALLING),
    "paradox": lambda text: paradox(text.trace, text.acceptance),
    "lexical": lambda text: gaps(unsure_half(text.trace), text.acceptance, *CHAT_FIRST),
    "numeric": lambda text: numbers_minus_others(text.trace.query("domain == 'math'"), text),
    "orthogonal": lambda text: correlation(
        text.trace, "draft_entropy", "target_entropy", "spearman", "draft_entropy"
    ),
    "task-depth": lambda text: task_minus_depth(tested_tokens(text), "kept"),
    "task-first": variance_of_texts,
    "position": lambda text: late_minus_early(
        long_texts(text.trace), text.acceptance, "long texts"
    ),
    "entropy-sign entropy-weak": lambda text: correlation(
        text.trace, text.value, "target_entropy", "spearman", "acceptance"
    ),
    "entropy-needed": lambda text: each(unsure_quarter(text.trace), text.acceptance),
}

# %% [markdown]
# **Blocks of a decoder**: accepted tokens per target pass, and acceptance by depth given that all
# earlier tokens were accepted.

# %%
OF_BLOCKS = score.block_estimators()
ACCEPTED = OF_BLOCKS["mean_accepted"]


def blocks_of(text, tree):
    return replay.prompt_sums(text.tree(tree))


def paper_over_exact(text, tree):
    """The paper's E[L] divided by the accepted tokens per target pass."""
    numbers = {"E[L]": (trees(text), score.published_length)}
    draws = stats.jointly(numbers | {"exact": (blocks_of(text, tree), ACCEPTED)})
    return rows_from("published_length / mean_accepted", draws, draws["E[L]"] / draws["exact"])


def sampled_minus_greedy(greedy, sampled, tree):
    """Accepted tokens per target pass at T = 1 minus at T = 0, on the same prompts."""
    numbers = {text.name: (blocks_of(text, tree), ACCEPTED) for text in (greedy, sampled)}
    draws = stats.jointly(numbers)
    label = f"mean_accepted, {sampled.name} - {greedy.name}"
    return rows_from(label, draws, draws[sampled.name] - draws[greedy.name])


def by_depth(text, tree):
    """Acceptance along the tree's best path, at the last depth minus at depth 1."""
    return each(trees(text), score.change(score.best_path_accept_by_depth(text.rule)))


def along_chain(text, tree):
    """The same along a chain of 8, over blocks with room for it."""
    sums = replay.prompt_sums(text.chain(8), ends="room")
    return each(sums, score.change(OF_BLOCKS["accept_by_depth"]))


DECODING = {
    "length": lambda text, tree: each(blocks_of(text, tree), ACCEPTED),
    "eq3": paper_over_exact,
    "depth": by_depth,
    "long-chains": along_chain,
}

# %% [markdown]
# **Speed.** With $c$ the cost of a draft pass and $v(n)$ the cost of a target pass over $n$ tokens,
# both in target passes over one token, a chain of $\gamma$ that emits $\tau_\gamma$ tokens per
# target pass is
#
# $$S_\gamma = \frac{\tau_\gamma}{\gamma c + v(\gamma + 1)}$$
#
# times as fast as plain decoding. The paper names neither $c$ nor $v$. (For its two models,
# $c = 0.29$ is often quoted. That is for both in f16, but the paper's target is in 4 bit.) So each
# claim about speed gets a verdict at every $c$, with constant and with rising $v$. The best gamma
# is chosen again in every resample.

# %%
GAMMAS = range(1, 17)  # from which the best gamma is chosen


def speed_claims(draws, c, slope):
    """By claim at one cost: the name of its number, and the number's draws."""
    costs = {gamma: cost.block_cost(gamma, c, 1 + slope * gamma) for gamma in GAMMAS}
    speed = {gamma: draws[gamma] / costs[gamma] for gamma in GAMMAS}
    best = {}
    for domain in ("math", "chat"):
        speeds = pd.DataFrame({gamma: each[domain] for gamma, each in speed.items()})
        speeds.insert(0, 0, 1.0)  # gamma 0: plain decoding
        best[domain] = pd.Series(choose.fastest(speeds))
    accepted = 4 * draws["acceptance"]  # the article's e, for gamma 4
    by_rule = accepted / (accepted * c + 1)
    return {
        "routing": ("speed-up, chain of 3", speed[3][["math", "code"]]),
        "gamma-contrast": ("best gamma, difference", {"math - chat": best["math"] - best["chat"]}),
        "gamma-proofs": ("best gamma", {"math": best["math"]}),
        "gamma-open": ("best gamma", {"chat": best["chat"]}),
        "rule": ("rule / replay, chain of 4", by_rule / speed[4]),
    }


# %%
def gain_per_domain(chains, c, slope):
    """How much faster one gamma per domain is than one for all, as a share, cross-fitted."""
    gamma = chains.index.get_level_values("setting")
    spent = cost.block_cost(gamma, c, 1 + slope * gamma) * chains["blocks"]
    gain = choose.gain(choose.PromptCosts(chains.assign(cost=spent)))
    return pd.DataFrame([vars(gain) | {"domain": "all"}])


def of_speed(text):
    """The claims about speed on a text, at every cost."""
    chains = {gamma: replay.prompt_sums(text.chain(gamma)) for gamma in GAMMAS}
    per_pass = score.ratio_of("emitted", "blocks")
    asked = {gamma: (rows, per_pass) for gamma, rows in chains.items()}
    draws = stats.jointly(asked | {"acceptance": (text.trace, text.acceptance)})
    stacked = stack(chains, "setting").set_index(["setting", "prompt_id", "domain"]).sort_index()
    gain, rule = "gain of one gamma per domain", f", {text.chain_rule} rule"
    parts = []
    for c, slope in product(cs, slopes):
        found = {"budgets": claims.rows_of(gain + rule, gain_per_domain(stacked, c, slope))}
        for claim, (label, numbers) in speed_claims(draws, c, slope).items():
            found[claim] = rows_from(label + rule, draws, numbers)
        parts.append(stack(found, "claim").assign(c=c, slope=slope))
    by_claim = pd.concat(parts).groupby("claim")
    return {(claim, text.name): rows for claim, rows in by_claim}


# %% [markdown]
# Now every claim is measured on every text. If a text cannot answer (no trees, a missing domain, a
# constant column), the row of evidence is empty and says why.


# %%
def attempt(number, *arguments):
    """The rows of evidence, or one row with the reason why there are none."""
    try:
        return number(*arguments)
    except ValueError as error:
        return pd.DataFrame({"estimator": "", "row": "", "note": [str(error)]})


def measured(numbers, way, *arguments):
    """Evidence by claim and way to measure; claims that share a number share a key."""
    found = {}
    for names, number in numbers.items():
        rows = attempt(number, *arguments)
        found |= {(claim, way): rows for claim in names.split()}
    return found


# %%
def evidence_of(tree, greedy, sampled):
    """Every claim on the texts of one prompt set."""
    found = {}
    for text in (greedy, sampled):
        found |= measured(EXACT, text.name, text)
        found |= measured(DECODING, text.name, text, tree)
        found |= of_speed(text)
    rows = attempt(sampled_minus_greedy, greedy, sampled, tree)
    return found | {("temperature", AT_1): rows}


parts, sizes = [], {}
for pair, of_pair in texts.items():
    greedy = of_pair[AT_0][OWN]
    sizes[pair] = greedy.trace.groupby("domain")["prompt_id"].nunique().min()
    if greedy.nodes["node"].max() > 1:  # recorded with trees
        found = measured(BY_PAPER, PUBLISHED, greedy.nodes)
        parts.append(claims.in_frame(listed, pair, found))
    for prompts, text in of_pair[AT_0].items():
        found = evidence_of(profiles[pair].tree, text, of_pair[AT_1][prompts])
        parts.append(claims.in_frame(listed, pair, found, prompts))

# %% [markdown]
# The authors' records of the paper's run, if they are here, are another pair, which can be measured
# as published only. We leave out nodes whose probability is missing. Claims that need no pair are
# decided by exact numbers, which follow from formulas, the authors' code and log, and the article's
# example.

# %%
for run, nodes in authors.read_records(author_records).items():
    if nodes["domain"].nunique() == len(DOMAINS):  # the other runs have code only
        known = nodes.dropna(subset=["target_prob", "target_entropy"])
        found = measured(BY_PAPER, PUBLISHED, known)
        parts.append(claims.in_frame(listed, f"authors' {run}", found))

exact = {}
for claim in listed.values():
    values = pd.DataFrame(claim.values, columns=["estimator", "row", "estimate"])
    if len(values):
        exact[claim.id, SOURCES] = values.assign(low=values["estimate"], high=values["estimate"])
evidence = pd.concat([claims.in_frame(listed, SOURCES, exact), *parts], ignore_index=True)
verdicts = claims.verdict_table(listed, evidence, sizes)
ctx.export(evidence, "evidence")
ctx.export(verdicts, "verdicts")

# %% tags=["by-hand"]
gap = evidence.set_index(KEYS).loc[[("gap", name, AT_0, OWN)]]
assert np.allclose(gap[["estimate", "low", "high"]], [[estimate, low, high]])
assert by_hand == claims.judge(gap)

# %% [markdown]
# ## 3. Which claims hold, and which fail?
# One row for each statement, at T = 0 and on each pair's own prompts. *Holds on own prompts only*:
# it fails on another prompt set.

# %%
own = verdicts[(verdicts["prompts"] == OWN) & (verdicts["claim"] == verdicts["fact"])]
own = own[(own["asked"] == AT_0) | (own["claim"] == "temperature")]
by_pair = own.pivot(index="claim", columns="pair", values="verdict")[list(profiles)]
here = own[own["pair"] == name].set_index("claim")
order = [claim for claim in listed if claim in here.index]
shown = here.loc[order, ["said"]].rename(columns={"said": "claim"})
shown["printed"] = [listed[claim].number for claim in order]
shown[f"{name}, T = 0"] = here.loc[order, "measured"]
ctx.table(
    own,
    "statements",
    cells=shown.join(by_pair).reset_index(drop=True),
    most=len(shown),
    caption="Statements of the paper and the article: the number that they print, this pair's "
    "number (least and greatest over rows, with the outermost bounds of their intervals), and the "
    "verdict on each pair.",
)

# %% [markdown]
# `verdicts.csv` has all verdicts: also as published, at T = 1 and on other prompt sets. Sets with
# few prompts have wide intervals, and many of their verdicts are inconclusive.

# %%
untested = [f"* “{claim.claim}”: {claim.untested}" for claim in listed.values() if claim.untested]
ctx.say("\n".join(["**Not tested here:**\n", *untested]))

# %% [markdown]
# ## 4. At which costs do claims about speed hold?
# Each $c$ is tested separately. With this many tests, an isolated $c$ means nothing. A range of
# neighbouring values does.

# %%
PANELS = {
    "routing": "speed-up, chain of 3",
    "gamma-proofs": "best gamma",
    "gamma-open": "best gamma",
}
speeds = evidence[evidence["claim"].isin([*PANELS]) & (evidence["slope"] == slopes[0])]
speeds = speeds[(speeds[KEYS[1:]] == [name, AT_0, OWN]).all(axis=1)]
speeds = speeds.assign(panel=speeds["claim"].map(PANELS), domain=speeds["row"])
ctx.plot(
    speeds[["panel", "domain", "c", "estimate", "low", "high"]],
    x="c",
    columns="panel",
    share_y=False,
    x_label="c (draft pass / target pass)",
    y="",
    slug="costs",
    title="Speed-up of a chain of 3, and the best gamma, by the cost of a draft pass",
    caption="Drafting is cheap on the left and expensive on the right. A speed-up above 1 gains "
    "time. A best gamma of 0 is plain decoding. Bands: intervals over prompts.",
)

# %% [markdown]
# `verdicts.csv` lists the values of $c$ at which each claim holds and fails for every slope of $v$.
#
# ## 5. Which claims need no pair?
# A *defect* is not a claim but a fault in the authors' code or in the article's pseudo-code. Its
# size is a number that should be 0. *Total variation* is half the sum of the absolute differences
# of two distributions. The numbers follow from formulas, from a table of three words, and from the
# authors' code and log.

# %%
free = verdicts[verdicts["pair"] == SOURCES].rename(columns={"estimator": "number"})
notebook.show_table(free[["said", "number", "measured", "verdict"]])

# %% [markdown]
# **Must the target accept more than one token per pass before drafting pays?** No. A block emits
# one token more than the target accepts. With a chain of $\gamma$ and $v = 1$, drafting pays as
# soon as more than $\gamma c$ tokens are accepted on average:
#
# $$\frac{1 + E[L]}{\gamma c + 1} > 1 \Leftrightarrow E[L] > \gamma c.$$

# %%
at_0 = here.loc[here["asked"] == AT_0, "verdict"]
held = at_0.isin([HOLDS, FORM]).sum()
failed = at_0.isin([FAILS, claims.NO_CONDITION]).sum()
paper, ours = (f"{100 * float(x):+.0f}" for x in (listed["gap"].number, estimate))
answer = f"These prompts decide none of the statements for `{name}`."
if held + failed:
    answer = (
        f"For `{name}`, {failed} of the {held + failed} statements that these prompts decide fail. "
        f"Acceptance in chat minus acceptance in math is {ours} points. The paper prints {paper}."
    )
ctx.answer(answer.replace("-", "\N{MINUS SIGN}"))

# %% [markdown]
# ## What this does not show
# * Anything about the paper's own pair, unless its records are here (`make author-records`) or the
#   profile is `paper`. A claim about a number is about one pair and need not hold for another. A
#   claim about a direction should hold for all pairs, but a few pairs cannot prove it.
# * One failing domain makes a claim fail, and the regions are ours where the source names none.
# * At T = 1 each prompt has one text, so sampling noise counts as a difference between prompts.
#
# [03](03_domain_acceptance.ipynb) to [06](06_entropy_paradox.ipynb) examine domains, depth, entropy
# and chat one by one.
#
# ## Try it
# Set `overrides = {"prompts_per_domain": 25}`. Do verdicts reverse, or become inconclusive?
#
# <details><summary>What happens</summary>
# Intervals become wider by about the square root of 2, so some verdicts become inconclusive. A
# verdict that reversed would have been wrong by chance.</details>

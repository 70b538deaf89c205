# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 11. What is left of the paper and the article, claim by claim?
#
# A paper measured acceptance by domain for one pair of models, an article gives advice on how much
# to draft. Which of their sentences would somebody find again who measures other pairs, with a
# number that is exact for a lossless decoder and an interval whose unit is the prompt? Each claim
# is here a number and a region in which that number would have to lie, both written down in
# `data/paper/claims.yaml` before any run was asked; a verdict follows from the interval.
#
# ![Five claims, numbers and regions](../figures/smollm/11/claims.png)
#
# *Runs on* any machine · *minutes* about one on 2 cores · *reads* the runs `greedy`, `sampled`
# (three seeds), `sampled-0.3` and `sampled-0.7` of the profile and of the pairs beside it, the
# tables of notebooks 08 and 10 where they have run, and the authors' public records if they are
# there (`make author-records`) · *writes* `figures/<profile>/11/`.

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
from dataclasses import replace

import numpy as np
import pandas as pd

from speclab import stats
from speclab.analysis import claims, published
from speclab.show import notebook
from speclab.show.estimates import named
from speclab.models.pairs import load_tokenizer, model_folder
from speclab.prompts import DOMAINS
from speclab.show.pictures import strings_of
from speclab.studies.paper_audit import (
    author_records as authors,
    formulas,
    measures,
    pictures,
)

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# pairs that stand beside it, as they are recorded or shipped; [] for none
beside: list = ["tiny", "smollm"]  # any
# c, a draft pass in target passes, at which speed is asked, and slopes of v(n) = 1 + slope (n - 1)
cs: list = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.29, 0.4, 0.5, 0.7, 1.0]  # 0.0001 to 10
slopes: list = [0.0, 0.1]  # 0 to 10
article_cost: float = 0.05  # 0.0001 to 10; c of the article's example: 5 ms / 100 ms
# folder of the authors' records; empty: $SPECLAB_AUTHOR_RECORDS, else data/runs/author-records
author_records: str = ""  # any

# %%
ctx = notebook.start("11_paper_audit", profile, overrides)
listed = claims.claims()
grid = [(c, slope) for slope in slopes for c in cs]
records = authors.read(author_records or None)

# %%
pairs = {}
for name, pair in measures.pairs_beside(ctx.profile, beside).items():
    strings = strings_of(load_tokenizer(model_folder(pair.profile.target)))
    pairs[name] = replace(
        pair,
        greedy=measures.with_numbers(pair.greedy, strings),
        sampled=measures.with_numbers(pair.sampled, strings),
    )

# %%
found = [measures.of_sources(listed)]
for name, pair in pairs.items():
    tables = measures.exported(measures.places_of(name, ctx.figures.parents[1]))
    found.append(measures.evidence(pair, listed, grid, tables))

# %%
whole = {run: one for run, one in records.items() if one.domains == len(DOMAINS)}
for run, one in whole.items():
    asked = measures.as_published(one.text, listed)
    found.append(claims.in_frame(listed, f"authors' {run}", asked))
found = pd.concat(found, ignore_index=True)

# %%
prompts = {name: pair.smallest_domain for name, pair in pairs.items()}
prompts |= {f"authors' {run}": one.smallest_domain for run, one in whole.items()}
verdicts = claims.verdict_table(listed, found, prompts)
beyond = f"Measured on {' and '.join(pairs)}; nothing here is of the paper's own pair"
ctx.export(found, "evidence")
ctx.export(verdicts, "verdicts")

# %% [markdown]
# ## 1. The verdicts
# It holds (✓), does not hold (✗), cannot be told (?), depends on c (c), too few prompts (few), or
# nothing here answers it (–). *As published* is the paper's own procedure on greedy text. *T = 0*
# and *T = 1* are exact for a lossless decoder, each on text of its temperature: one drafted token
# is `hit[1]` or `alpha`; chains at T = 1 are drawn tokens (rejection rule); of the paper's tree,
# whose tokens are the draft's best, it is what the point-mass rule accepts. T = 1 rests on three
# seeds, the trees there on the first.

# %%
notebook.show_table(claims.signs_beside(verdicts))

# %%
of_pairs = verdicts[verdicts["pair"].isin(pairs)].set_index("asked")
for asked in (claims.AT_0, claims.AT_1):
    wide = of_pairs.loc[asked].pivot(index="claim", columns="pair", values="verdict")
    for verdict in (claims.HOLDS, claims.FAILS):
        alike = wide.index[(wide == verdict).all(axis=1)]
        ctx.say(f"* {asked}, {named(list(pairs))}, {verdict}: {named(list(alike))}.")

# %% [markdown]
# The rule for a claim of several rows (domains, differences): it **holds** if *every* row's 95 %
# interval lies in the region (an intersection-union test: no correction is needed). It **does not
# hold** if *one* row's interval, widened for so many rows (Bonferroni), lies outside. Else it
# **cannot be told**: an interval that merely reaches 0 shows no absence of an effect, and a claim
# of equality has a margin. A level (0.5) belongs to a pair and need not carry over; a direction is
# meant to, but two pairs cannot show that it does.
#
# What could not be asked:

# %%
missing = found[found["estimate"].isna()].drop_duplicates(["claim", "pair", "note"])
lines = [f"* {row.claim} ({row.pair}): {row.note}" for row in missing.itertuples()]
lines += [f"* {one.id}: {one.untested}" for one in listed.values() if one.untested]
ctx.say("\n".join(lines))

# %% [markdown]
# ## 2. One claim by hand
# *Acceptance is higher in chat than in math*, at T = 0: the estimate is the difference of the two
# domains' `hit[1]`. Whole prompts are drawn anew within each domain, 2,000 times, each with all of
# its positions. The interval is the middle 95 % of what comes out, a little wider, since the
# prompts of a sample vary less about their own mean than about the truth (`stats.levels_of`).

# %%
own = pairs[ctx.profile.name]
hits = own.greedy.trace.groupby(["domain", "prompt_id"])["hit"].agg(["sum", "size"])
redrawn = {}
for number, domain in enumerate(["math", "chat"]):
    of_prompts = hits.loc[domain]
    rng, n = np.random.default_rng([0, number]), len(of_prompts)
    # how often each prompt is drawn
    times = rng.multinomial(n, np.full(n, 1 / n), size=2000)
    redrawn[domain] = times @ of_prompts["sum"] / (times @ of_prompts["size"])

# %%
by_domain = own.greedy.trace.groupby("domain")["hit"].mean()
estimate = by_domain["chat"] - by_domain["math"]
low, high = np.quantile(redrawn["chat"] - redrawn["math"], stats.levels_of(n))
least, most = listed["gap"].bounds("chat - math")

# %%
if least < low and high < most:
    verdict = claims.HOLDS
elif high <= least or most <= low:
    verdict = claims.FAILS
else:
    verdict = claims.UNKNOWN

# %%
ctx.say(
    f"hit[1] of chat less math on {ctx.profile.name}: {estimate:.3f} [{low:.3f}, {high:.3f}]; the "
    f"region is {listed['gap'].region_said()}: it **{verdict}**. The paper prints "
    f"{listed['gap'].number}."
)

# %%
at = {"claim": "gap", "pair": ctx.profile.name, "asked": claims.AT_0}
of_kit = found.loc[(found[list(at)] == pd.Series(at)).all(axis=1)].iloc[0]
assert np.allclose(
    [estimate, low, high], of_kit[["estimate", "low", "high"]].astype(float)
)
assert verdict == claims.judge(of_kit.to_frame().T.infer_objects())

# %% [markdown]
# From here on `measures.evaluate` does this for every claim: `claims.yaml` names the rows, the
# estimator and the contrast, and the verdict follows.

# %% [markdown]
# ## 3. Five claims, drawn large

# %%
shown = {
    "level": "acceptance of a drafted token (share)",
    "gap": "acceptance in chat less that in math (share)",
    "length": "accepted tokens per target pass",
    "depth": "acceptance at depth 3 less that at depth 1 (share)",
    "entropy-sign": "correlation with the target's entropy",
}
printed = claims.printed()
ctx.save(
    pictures.large(shown, listed, found[found["pair"].isin(pairs)], verdicts, printed),
    "claims",
    caption="Five claims: the paper's own numbers, and each pair's with 95 % intervals, as "
    "published and by what is exact; the region in which the claim holds (green, or dashed edges "
    f"where it is another for each domain), and the verdict's mark. {beyond}.",
)

# %% [markdown]
# ## 4. At which c do claims about speed turn?
# A claim about speed is one about c, the cost of a draft pass, and about v, what the target's pass
# over several tokens costs. The paper names neither, and 0.29, often quoted for its models, is of
# both in f16 where its target is in 4 bit. So each is asked at every c, with v free and rising; the
# best gamma is chosen again in every resample. Each c is judged by itself: of so many looks an
# island of one c is no finding, a stretch is.

# %%
ctx.save(
    pictures.by_c(listed, found, slopes),
    "costs",
    caption=f"Verdicts on what depends on cost, along c. {beyond}.",
)

# %% [markdown]
# ## 5. What needs no pair
# Formulas, the authors' code and log, the article's example; and defects, which claim nothing: what
# is wrong in a procedure, and what that costs (a number that would be 0; *total variation* is half
# the sum of the differences of two distributions). *commitment* is 0 by construction: given an
# accepted prefix a token drafted deeper is the token that would be drafted first there, so that
# what rises with depth is which places are reached.

# %%
free = verdicts[verdicts["pair"] == claims.SOURCES]
notebook.show_table(free[["claim", "said", "estimator", "measured", "verdict"]])

# %%
depth = formulas.PAPER_DEPTH
lengths = published.published("II").set_index("domain")["published"]
ends = lengths / depth  # c at which depth c = E[L]: one token more than is accepted
assert np.isclose(formulas.break_even_cost(1 + lengths["math"], depth), ends["math"])

# %%
ctx.say(
    "**Is E[L] > 1 needed for a speed-up?** Plain decoding gives one token a target pass, a tree "
    f"one more than it gets accepted: at depth {depth} and v = 1 it pays from {depth} c accepted "
    f"tokens, {depth * article_cost:.2f} at c = {article_cost:g}. Read so, the paper's own lengths "
    f"pay up to c = {ends['math']:.2f} in math and "
    f"{ends['chat']:.2f} in chat: whether to speculate is a question of c, not of E[L] = 1."
)

# %% [markdown]
# ## 6. The authors' public records
# Their code took the probability of padded half-precision rows as it came: some are NaN, and
# Python's `min(1.0, nan)` is 1.0, so that a missing number was averaged as a sure acceptance. Their
# usable nodes are one more text, asked as published above; they hold neither the trace nor the
# target's own ranks, so that nothing exact can be asked.

# %%
if records:
    facts = authors.facts(records)
    ctx.table(facts, "author-records")
if authors.FINAL not in records:
    ctx.say(
        f"The records of the paper's own run ({authors.FINAL}) are not here: `{authors.TARGET}` "
        "fetches them, and the table of section 1 then has a column for the paper's own pair."
    )

# %%
of_pair = verdicts[verdicts["pair"] == ctx.profile.name].set_index(["asked", "claim"])
tally = {}
for asked in (claims.PUBLISHED, claims.AT_0, claims.AT_1):
    tally[asked] = f"{claims.tally(of_pair.loc[asked, 'verdict'])} ({asked})"
gaps = of_pair.xs("gap", level="claim")["measured"]

# %%
ctx.answer(
    f"Of the claims that a pair can decide, on `{ctx.profile.name}` {'; '.join(tally.values())}. "
    f"Acceptance in chat minus acceptance in math is {listed['gap'].number} in the paper. Here it "
    f"is {gaps['T = 0']} at T = 0 and {gaps['T = 1']} at T = 1."
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. Which verdicts can change where `slopes = [0.0, 0.3]`, and which cannot?
#
# <details><summary>What happens</summary>
# Only what depends on cost: with a dear verification the ranges of c at which drafting pays shrink,
# and the best gammas fall. No estimate of acceptance knows c or v.</details>
#
# 2. Run it with `overrides = {"prompts_per_domain": 25}`. Do verdicts turn round, or do they fade?
#
# <details><summary>What happens</summary>
# Intervals widen by about the square root of 2, so that some of *holds* and *does not hold* fade
# into *cannot be told*. A verdict that turned round would have rested on luck.</details>
#
# 3. Write a claim of your own into `data/paper/claims.yaml`, with its region, before you look at
#    any number: which rows, which estimator, which contrast?

# %% [markdown]
# ## What this does not show, what is next
# * Nothing of the paper's pair, unless its records are here or the profile is `paper`. Two small
#   pairs that agree are two pairs, and *domains* are here four prompt sets. A claim of several rows
#   falls with one of them. The regions are ours where the source names no number.
# * Notebooks [03](03_domain_acceptance.ipynb) to [06](06_chat_paradox.ipynb) go through domains,
#   depth, entropy and chat one by one, [08](08_better_drafts.ipynb) makes the
#   self-draft, [09](09_budgets_and_routing.ipynb) asks for budgets, [10](10_wall_clock.ipynb)
#   measures speed.

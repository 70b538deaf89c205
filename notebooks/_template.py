# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # NN. Which question does this notebook answer?
#
# One paragraph says why we ask, and under which estimator (in words, then its name from GLOSSARY.md
# in brackets). `ctx.answer` in the last code cell computes the answer and fills the first output.
#
# ![The figure that carries the answer](../figures/smollm/NN/slug.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the run `greedy` of the
# profile (recorded if it is missing) · *writes* `figures/<profile>/NN/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
largest_gamma: int = 16  # 1 to 64; the allowed values come first, then the meaning

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

from speclab import runs, stats
from speclab.analysis.texts import Text
from speclab.show import notebook

# Declare here which kinds of run the cells need (speclab/runs.py, and speclab/ops/run_plan.py for
# `seeds`, `others` and more). `python -m speclab plan` reads this list.
RUNS = ["greedy"]
# Declare here which files the cells read, from data/ and from other notebooks' tables.
# READS = ["data/paper", "08/self-drafts.csv"]

# %%
ctx = notebook.start("NN_name", profile, overrides)
at_0 = ctx.profile.replace(temperature=0.0)
text = Text.of(runs.load_or_record(at_0, "greedy"))

# %% [markdown]
# ## A sub-question
# One or two sentences say what is computed, from which records, and what would surprise us. They do
# not announce code that the page hides.

# %%
found = stats.by_domain(text.trace, text.acceptance).in_units("%")
ctx.table(found, "acceptance", cells=found.wide("estimator", "domain"))

# %% [markdown]
# A cell with the tag `by-hand` computes a number step by step for the reader. The page shows its
# code.

# %% tags=["by-hand"]
trace = text.trace
is_accepted = trace["draft_rank"] == 0
by_hand = is_accepted.groupby(trace["domain"]).mean()

# %%
each = found.at(domain=list(ctx.profile.domains))
assert np.allclose(by_hand[each.frame["domain"]], each.frame["estimate"])

# %%
ctx.plot(
    each,
    "domain",
    "slug",
    "Share of positions at which the draft's best token is accepted (`hit[1]`, T = 0), by domain. "
    "Bars: 95 % intervals.",
    title=f"The draft's best token is accepted at {each.span()} of the positions",
    kind="points",
    y="accepted share of positions",
)

# %%
ctx.record(largest_hit=float(each.frame["estimate"].max()))
ctx.answer(
    f"The draft's best token is accepted at {each.span()} of the positions, depending on the "
    f"domain (`{ctx.profile.name}`, T = 0)."
)

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# <details><summary>What happens</summary>The answer, and why.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: one or two sentences without numbers.
# * What this does not show: …
# * Next: the notebook that goes on from here.

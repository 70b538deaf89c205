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
# **Answer.** One sentence without a typed number: the sentence with the number is computed below,
# and this one says where. (Which estimator is meant: a name from GLOSSARY.md.)
#
# ![The figure that carries the answer](../figures/tiny/NN_slug.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the run `greedy` of the
# profile (recorded if it is not there) · *writes* `figures/<profile>/NN_*`.

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Colab and Kaggle: fetches the kit and installs what is missing. In a checkout it only moves to the
# repository's root.
import os, shutil, subprocess, sys
from pathlib import Path

fetched, here = Path("speclab-kit").resolve(), Path.cwd()
root = next(
    (
        p
        for p in (here, *here.parents, fetched)
        if (p / "speclab" / "notebook.py").is_file()
    ),
    None,
)
if root is None:
    attached = next(
        Path("/kaggle/input").rglob("speclab/notebook.py"), None
    )  # the kit as an attached data set: read-only, so copied
    if attached:
        shutil.copytree(attached.parents[1], fetched)
    elif not os.environ.get("SPECLAB_REPO"):  # the kit has no public address yet
        raise SystemExit(
            "No checkout here: set SPECLAB_REPO to the kit's git address, "
            "or attach the kit as a data set."
        )
    else:
        subprocess.run(
            ["git", "clone", "--depth", "1", os.environ["SPECLAB_REPO"], str(fetched)],
            check=True,
        )
    root = fetched
os.chdir(root)
sys.path.insert(0, str(root))
if root == fetched:
    from speclab.notebook import install_missing

    install_missing(root)

# %%
from speclab import figures, notebook, runs
from speclab.analysis import rungs

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "tiny"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}

# %%
ctx = notebook.start("NN_name", profile, overrides)
run = runs.load_or_record(ctx.profile, "greedy")

# %% [markdown]
# ## A sub-question
# One or two sentences: what is computed, on which records, and what would surprise us.

# %%
table = rungs.ladder(run)
ctx.table(table, "ladder")

# %%
fig, ax = figures.subplots(width=figures.ONE_COLUMN)
table.T.plot.bar(ax=ax)
ax.set(xlabel="domain", ylabel="probability or tokens (see the table)")
ctx.save(fig, "slug")

# %%
best = table.loc["alpha"].idxmax()
notebook.say(f"`alpha` is highest in **{best}**: {table.loc['alpha', best]:.2f}.")
assert table.loc["alpha"].between(0, 1).all()

# %%
ctx.record(highest_alpha=float(table.loc["alpha", best]), highest_alpha_domain=best)

# %% [markdown]
# ## Try it
# Change one thing and say beforehand what will happen.
#
# <details><summary>What happens</summary>The answer, and why.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above.
# * What this does not show: …
# * Next: the notebook that goes on from here.

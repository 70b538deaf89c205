# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 6. Does the domain with the highest entropy have the highest acceptance?

# %% tags=["parameters"]
profile: str = "smollm"  # the pair and its prompts: a name from notebooks/profiles, or a YAML file
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}
domain: str = ""  # any; the domain to ask about (empty: the one with the highest target entropy)
n_bins: int = 8  # 2 to 100; quantile bins of entropy and of token frequency

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
import textwrap

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.lab import bins, prompt_sets, published, token_kinds
from speclab.lab.texts import Text
from speclab.estimates import Estimates, counted
from speclab.models.folder import ModelFolder
from speclab.show import figures, notebook, pictures

RUNS = ["greedy", "others"]

# %%
ctx = notebook.start("06_chat_paradox", profile, overrides)
text = Text.recorded(ctx.profile, "greedy")  # the target's own text, with a draft tree per position
domains = stats.judged_domains(text.trace)  # domains with at least five prompts
trace = text.trace[text.trace["domain"].isin(domains)]
has_others = ctx.compares(domains)  # with one domain alone the figure is drawn and nothing compared

# %% [markdown]
# One expects a draft to fail where the target is unsure. The paper found the opposite for its
# conversations: they had the highest target entropy **and** the highest acceptance. Is there such a
# paradox for this pair of models, and what explains the acceptance of that domain?
#
# ## 1. Is there a paradox?
# Every position of the target's greedy text has two numbers: the **entropy** of the target's
# distribution $p$ in nats, and whether the draft's best token is the target's best (`hit`):
#
# $$H(p) = -\sum_x p(x) \ln p(x), \qquad
#   \mathrm{hit} = \mathbf{1}\left[\arg\max_x q(x) = \arg\max_x p(x)\right].$$
#
# The **contrast** of a domain is its mean minus the mean of the other domains' means.

# %% tags=["by-hand"]
means = trace.groupby("domain")[["target_entropy", "hit"]].mean()
domain = domain or means["target_entropy"].idxmax()
if domain not in domains:
    raise ValueError(f"domain={domain!r}: choose one of {', '.join(domains)}")
by_hand = means.loc[domain] - means.drop(domain).mean()
notebook.show_table(means.loc[domains], digits=2)


# %%
others = [name for name in domains if name != domain]
COLUMNS = {"entropy": "target_entropy", "hit": "hit"}


def contrasts_of(trace):
    """The domain minus the mean of the others, and minus the highest of the others."""
    draws = stats.jointly({name: (trace, score.mean_of(c)) for name, c in COLUMNS.items()})
    rows = {}
    for name in COLUMNS:
        numbers = draws[name]
        mean = numbers[others].mean(axis=1, skipna=False)
        highest = numbers[others].max(axis=1, skipna=False)
        rows[f"{name} minus the mean of the others"] = numbers[domain] - mean
        rows[f"{name} minus the highest of the others"] = numbers[domain] - highest
    return draws.table(rows)


contrasts = contrasts_of(trace)
at = {row.name: row for row in contrasts.rows()}
kit = at["hit minus the mean of the others"].estimate
assert np.isclose(by_hand["hit"], kit, equal_nan=True)
if has_others:
    ctx.table(
        contrasts,
        "contrasts",
        cells=contrasts.frame[["name", "estimate", "low", "high"]],
        caption="The domain compared with the others",
    )

# %% [markdown]
# A paradox needs both numbers to be above the highest of the other domains. If either is below the
# mean of the others, the domain cannot be the highest, and there is no paradox.
#
# The figure has this pair by `hit`, and by the paper's measure: the mean of $\min(1, p/q)$ over all
# nodes of a draft tree. For the paper's own domains it also has the paper's pair.

# %%
table_1 = published.comparison("I", text, text.rule)
ctx.export(
    table_1.dropna(axis=1, how="all"),
    "table-1",
    cells=published.cells_of_table(table_1),
    caption="Entropy and acceptance by domain: the paper and this pair",
)
PANELS = {  # estimate, low, high in that table; the paper prints no intervals
    "paper's pair, paper's measure": ["published", "published", "published"],
    "this pair, paper's measure": ["ours_as_published", "ours_low", "ours_high"],
    "this pair, hit": ["corrected", "low", "high"],
}
quantity = table_1["quantity"].map({"alpha_mean": "acceptance", "target_entropy_mean": "entropy"})
base = table_1.assign(quantity=quantity)[table_1["domain"].isin(domains)]
columns = ["domain", "quantity", "estimate", "low", "high"]
points = {
    panel: base[["domain", "quantity", *numbers]].set_axis(columns, axis=1)
    for panel, numbers in PANELS.items()
}
points = pd.concat(points, names=["panel"]).reset_index("panel").dropna(subset="estimate")


# %%
def draw_entropy_and_acceptance(points):
    """A panel for each pair and measure, a point with its two intervals for each domain."""
    panels = list(points["panel"].unique())
    figure, grid = figures.row_of_panels(len(panels), 2.7, sharex=True, sharey=True)
    numbers = points.set_index(["panel", "domain", "quantity"])[["estimate", "low", "high"]]
    middle = points.loc[points["quantity"] == "entropy", "estimate"].agg(["min", "max"]).mean()
    for axes, panel in zip(grid, panels, strict=True):
        for name, look in figures.looks_of(domains).items():
            x, y = (numbers.loc[panel, name, what] for what in ("entropy", "acceptance"))
            axes.plot(x[1:], [y["estimate"]] * 2, color=look["color"])
            axes.plot([x["estimate"]] * 2, y[1:], color=look["color"])
            axes.plot(x["estimate"], y["estimate"], **look | {"linestyle": "none"})
        # the name of the domain that is asked about stands at its point, on the inner side
        x, y = (numbers.loc[panel, domain, what] for what in ("entropy", "acceptance"))
        side, shift = ("right", -5) if x["estimate"] > middle else ("left", 5)
        spot = {"xytext": (shift, 5), "textcoords": "offset points", "ha": side, "weight": "bold"}
        axes.annotate(textwrap.fill(domain, 20), (x["estimate"], y["estimate"]), **spot)
        axes.set(title=panel)
    grid[0].margins(0.2, 0.1)
    figure.supxlabel("target entropy (nats)")
    figure.supylabel("acceptance")
    return figure


# %%
ctx.draw(
    draw_entropy_and_acceptance,
    points,
    "entropy-and-acceptance",
    title="Acceptance and entropy of each domain",
    caption="A paradox is a domain at the top right. The paper's measure averages entropy over the "
    "nodes of trees too, `hit` over positions. Lines: intervals over prompts.",
)
if has_others:
    measures = base[base["quantity"] == "acceptance"].set_index("domain")
    highest = measures[["ours_as_published", "corrected"]].idxmax()
    ctx.say("Highest acceptance by the paper's measure: {}, by `hit`: {}.".format(*highest))

# %% [markdown]
# ## 2. What explains the domain's acceptance?
# Its tokens may be of another kind. We hold one property of the tokens fixed at a time: we cut all
# positions into levels $b$ of the property, give every domain the same mix $w_b$ of levels, and
# compare only what happens within levels (*direct standardisation*):
#
# $$\bar h_{\text{domain}} = \sum_b w_b \, \bar h_{\text{domain},\, b}.$$
#
# The part of the contrast that disappears can be attributed to the property only if nothing else
# changes along with it. Properties overlap, so the parts do not add up. Levels that do not occur in
# five prompts of every domain are left out.

# %%
tokenizer = ModelFolder.fetched(ctx.profile.target).tokenizer
kinds = token_kinds.token_kinds(trace, pictures.strings_of(tokenizer)).astype(str)

# how common a token is among the tokens of all other prompts
in_prompt = trace.groupby(["prompt_id", "token"])["token"].transform("size")
in_all = trace.groupby("token")["token"].transform("size")
length = trace.groupby("prompt_id")["token"].transform("size")
trace = trace.assign(
    kind=kinds.replace({"keyword": "word start", "identifier": "word start"}),
    frequency=(in_all - in_prompt) / (len(trace) - length),
    said=trace["draft_rank"] < text.pair["draft"]["tokens_said"],  # in the draft's vocabulary
)
trace["entropy_bin"] = bins.quantile_bins(trace, "target_entropy", n_bins)
trace["frequency_bin"] = bins.quantile_bins(trace, "frequency", n_bins)
LEVELS = {
    "entropy": "entropy_bin",
    "token frequency": "frequency_bin",
    "kind of token": "kind",
    "inside the draft's vocabulary": "said",
}


# %%
def held_fixed(level):
    """Contrast of `hit` before and after every domain has the same mix of levels."""
    prompts = trace.groupby([level, "domain"])["prompt_id"].nunique().unstack(fill_value=0)
    common = prompts.index[(prompts >= stats.MIN_PROMPTS).all(axis=1)]
    if len(common) < 2:  # nothing that could be mixed otherwise
        return None
    rows = trace[trace[level].isin(common)]
    mix = rows[level].value_counts(normalize=True)
    sums_by_level = bins.cut_levels(
        "hit", level, list(mix.index)
    )  # hits and positions of each level

    def equal_mix(sums):
        """Means within the levels, weighted by the mix of all positions."""
        return score.quotient(sums) @ mix.to_numpy()[:, None]

    equal = score.Estimator("after", sums_by_level, equal_mix)
    draws = stats.jointly({"before": (rows, score.mean_of("hit")), "after": (rows, equal)})
    before, after = (
        draws[stage][domain] - draws[stage][others].mean(axis=1, skipna=False)
        for stage in ("before", "after")
    )
    return draws.table({"after": after, "part that disappears": before - after}, key="stage")


# %%
tables = {name: held_fixed(level) for name, level in LEVELS.items() if has_others}
tables = {name: table for name, table in tables.items() if table}
if tables:
    held = Estimates.stacked(tables, "held fixed").in_units("points")
    ctx.table(
        held,
        "held-fixed",
        rows="held fixed",
        columns="stage",
        caption="Contrast of the domain with one property held fixed",
    )
if "entropy" in tables:
    is_fixed = {"held fixed": "entropy", "stage": "after"}
    as_it_is = contrasts.at(name="hit minus the mean of the others").in_units("points")
    ctx.say(f"With entropy held fixed the contrast is {held.at(**is_fixed)}, else {as_it_is}.")

# %% tags=["by-hand"]
# the same by hand for entropy, over all levels
in_bin = trace.groupby(["domain", "entropy_bin"])["hit"].mean().unstack()
equal = (in_bin * trace["entropy_bin"].value_counts(normalize=True)).sum(axis=1, skipna=False)
print(equal[domains].round(2).to_string())
counts = trace.groupby(["entropy_bin", "domain"])["prompt_id"].nunique().unstack(fill_value=0)
if "entropy" in tables and counts.min(axis=None) >= stats.MIN_PROMPTS:  # else levels are left out
    after = held.at(**{"held fixed": "entropy", "stage": "after"}).value
    assert np.isclose(equal[domain] - equal[others].mean(), after)

# %% [markdown]
# ## 3. Does it hold on other prompts?
# The contrasts (minus the mean of the others) on each set of prompts, entropy in nats. A set
# without new prompts in a domain has that domain's own texts.

# %%
ctx.say(prompt_sets.described(ctx.profile))
sets = prompt_sets.complete_sets(prompt_sets.read(ctx.profile, text))
tables = {
    name: contrasts_of(each.trace[each.trace["domain"].isin(domains)])
    for name, each in sets.items()
}
elsewhere = Estimates.stacked(tables, "set")
elsewhere = elsewhere.at(name=[name for name in at if name.endswith("mean of the others")])
if has_others:
    ctx.table(
        elsewhere,
        "other-prompts",
        rows="set",
        columns="name",
        caption="The domain compared with the mean of the others, by prompt set",
    )


# %%
def compared(row):
    """A contrast of acceptance in words, as '30 points below', with its doubt."""
    if np.isnan(row.estimate):
        return stats.UNDEFINED
    points = round(100 * abs(row.estimate))
    size = counted(points, "point") if points else "less than 1 point"
    side = "above" if row.estimate > 0 else "below"
    is_clear = stats.verdict(row.low, row.high) in (stats.ABOVE, stats.BELOW)
    return f"{size} {side}" + ("" if is_clear else " (not clear)")


def on_both(of):
    """The verdicts on entropy and acceptance against the mean or the highest of the others."""
    rows = (at[f"{name} minus the {of} of the others"] for name in COLUMNS)
    return [stats.verdict(row.low, row.high) for row in rows]


# %%
level, lead = on_both("mean"), on_both("highest")
is_highest = lead == [stats.ABOVE, stats.ABOVE]
verdict = "No" if stats.BELOW in level else "Yes" if is_highest else "It is open"
has = {stats.ABOVE: "has"}.get(lead[0], "may have")  # it was chosen as the highest of several
has = {stats.BELOW: "does not have"}.get(level[0], has)
numbers = [f"{compared(at['hit minus the mean of the others'])} the others' mean"]
named = [prompt_sets.last(sets), *(each for each in sets.values() if each.is_part)]
for each in named[named[0].name == prompt_sets.OWN :]:  # the last other set, and its part
    there = elsewhere.at(set=each.name, name="hit minus the mean of the others")
    numbers.append(f"on {each.in_words} {compared(there.row)}")
answer = f"{verdict}. {domain[:1].upper()}{domain[1:]} {has} the highest entropy."
answer += f" Its acceptance is {', '.join(numbers)}."
if stats.UNDEFINED in level:
    answer = "There are too few prompts to say."
ctx.answer(answer if has_others else "There is one domain, so there is nothing to compare.")

# %% [markdown]
# ## Try it
# In two domains the draft is right at 9 of 10 easy positions and at 5 of 10 hard ones. Eight of ten
# positions are easy in one domain, two of ten in the other. What is the contrast, and what is left
# of it if both have the same mix?
#
# <details><summary>What happens</summary>
# The means are 0.8 · 0.9 + 0.2 · 0.5 = 0.82 and 0.2 · 0.9 + 0.8 · 0.5 = 0.58, so the contrast is 24
# points. With the same mix both have the same mean, whatever the mix: nothing is left.</details>

# %% [markdown]
# ## What this does not show
# The parts of section 2 are associations: entropy, frequency and kind change together. The paper
# gave plain text to an instruction-tuned target. That may be a cause, too, and its tables cannot
# separate it.
# Next: [07](07_rejection_causes.ipynb), which rejections cost most.

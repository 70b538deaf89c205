# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 7. What causes rejections, and which cause costs most?
#
# **Answer.** The verdict for the pair at hand is the computed sentence of section 9; the picture is
# that of the kit's own small pair. Left: what the rejected positions are, and how often such
# positions occur at all. Right: how many tokens per target pass would be won if a draft were never
# wrong there, beside the gain from as many rejections picked at random. Where the two marks on the
# left agree, a class holds its rejections only because so many positions are of it; classes in bold
# are rejected more often than other positions are. Where the two marks on the right differ, its
# rejections stand where they hurt more, or less, than others. `since` is left out of the comparison
# with random, and never bold: what follows a rejection opens a block and costs more even if
# rejections are independent.
#
# ![Share of the rejections and tokens per target pass that each cause costs](../figures/tiny/07_top-causes.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the run `greedy` (T = 0) of
# the profile, recorded if it is not there, and the profile's prompts · *writes*
# `figures/<profile>/07_*`.

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Colab and Kaggle: fetches the kit and installs what is missing. In a checkout it only moves to the
# repository's root.
import os, shutil, subprocess, sys
from pathlib import Path

fetched, here = Path("speclab-kit").resolve(), Path.cwd()
root = next(
    (p for p in (here, *here.parents, fetched) if (p / "speclab" / "notebook.py").is_file()), None
)
if root is None:
    attached = next(
        Path("/kaggle/input").rglob("speclab/notebook.py"), None
    )  # the kit as an attached data set: read-only, so copied
    if attached:
        shutil.copytree(attached.parents[1], fetched)
    elif not os.environ.get("SPECLAB_REPO"):  # the kit has no public address yet
        raise SystemExit(
            "No checkout here: set SPECLAB_REPO to the kit's git address, or attach the kit as a data set."
        )
    else:
        subprocess.run(
            ["git", "clone", "--depth", "1", os.environ["SPECLAB_REPO"], str(fetched)], check=True
        )
    root = fetched
os.chdir(root)
sys.path.insert(0, str(root))
if root == fetched:
    from speclab.notebook import install_missing

    install_missing(root)

# %%
import pandas as pd
from IPython.display import HTML, display

from speclab.analysis import bins
from speclab import files
from speclab import (
    estimates as explain,
    figures,
    notebook,
    pairs,
    prompts,
    replay,
    runs,
    score,
    stats,
)
from speclab.studies import rejection_causes as causes
from speclab.estimates import direction
from speclab.score import POOLED

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "tiny"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
gamma: int = 4  # draft tokens in a row
# a model is sure if its best token has this probability: above 0.5 no other token can have as much
sure: float = 0.5
ngram: int = 3  # longest run of tokens that prompt lookup looks for
picks: int = 10  # random picks that each cause is compared with
smallest: float = 0.02  # a cause is drawn if it is this share of the rejections
cases: int = 2  # worst cases shown of each domain

# %%
ctx = notebook.start("07_rejection_causes", profile, overrides)
trace = causes.greedy_trace(runs.load_or_record(ctx.profile, "greedy"))
tokenizer = pairs.load_tokenizer(pairs.model_folder(ctx.profile.target))
asked = prompts.load_prompts(
    ctx.profile.prompts, ctx.profile.prompts_per_domain, ctx.profile.domains
)
asked = prompts.encode_prompts(
    tokenizer, asked, ctx.profile.max_prompt_tokens, ctx.profile.template
)
strings, prompt_tokens = (
    causes.strings_of(tokenizer),
    {prompt.prompt_id: prompt.ids for prompt in asked},
)
frame = causes.label(trace, strings, prompt_tokens, sure, ngram)
members, met = causes.flags(frame), causes.met(frame, gamma)
domains, total = list(score.domains_in(frame)), int(frame["rejected"].sum())
rate = stats.by_domain(frame, score.mean_of("rejected")).set_index("domain")


def percent(row, digits: int = 0) -> str:
    """A share with its interval, in percent."""
    low, high = (f"{100 * end:.{digits}f}" for end in (row.low, row.high))
    return (
        "undefined"
        if pd.isna(row.estimate)
        else f"{100 * row.estimate:.{digits}f} % [{low}, {high}]"
    )


notebook.say(
    f"{total:,} of {len(frame):,} positions of {frame['prompt_id'].nunique()} greedy texts are rejected, "
    + ", ".join(f"{percent(rate.loc[d])} in {d}" for d in domains)
    + f". A chain of gamma = {gamma} meets {len(met):,} of them; the others "
    "fall where the bonus token stands, which is the target's own."
    + ("" if total else " **Nothing is rejected: there is no cause.**")
)

# %% [markdown]
# ## 1. Labels
# A position is **rejected** if the draft's best token is not the target's (`draft_rank` above 0;
# its share is 1 − `hit[1]`). Every position of the text gets one label of each family, rejected or
# not, so that the share of a class among the rejections can be set beside its share among all
# positions. A class is written `family: class`.
#
# | family | the position's token … |
# | --- | --- |
# | `kind` | what it is (`speclab.analysis.token_kinds`); a `name` begins with a capital letter inside a sentence of prose |
# | `begins` | the first one of the continuation (`text`), the first that can be seen of a `line`, or of a `sentence` |
# | `state` | which model gave its own best token a probability of `sure` or more |
# | `lookup` | what prompt lookup would have proposed: the `right` token, a `wrong` one, `no match` |
# | `since` | positions since the last rejection (`right after` one: 1) |
# | `place`, `context` | position in the continuation; with the prompt's tokens added |
# | `found` | rank of the target's token under the draft, of rejected positions only |
#
# *Both sure* and *only draft sure*, rejected: the draft was sure and wrong. Prompt lookup proposes
# what followed the latest occurrence of the last `ngram` tokens (or, if there is none, of fewer) in
# prompt and text so far; it needs no model.
#
# What a class costs is a **counterfactual replay**: the same text once more, as if the draft had
# been right at every position of the class, and everything else unchanged. At T = 0 this is exact,
# since the text does not depend on the draft. The *gain* is `block_efficiency` (tokens per target
# pass, blocks as a decoder visits them) with this less `block_efficiency` without it. Intervals (95
# %) resample prompts, the same in both. *Random* is the same for as many rejections of the same
# domains picked at random; the row `every` is a draft that is right everywhere.

# %%
often, whole = causes.shares(frame, members), members.assign(every=True)
chain, tree = (
    causes.gains(frame, whole, gamma, draws=picks),
    causes.gains(frame, whole, ctx.profile.tree),
)
found = pd.concat([often, chain, tree.assign(quantity="gain, tree")], ignore_index=True)
files.export(found, ctx.figures, f"{ctx.number}_causes-values")
pooled = found[found["domain"] == POOLED]
value = pooled.pivot(index="cause", columns="quantity", values="estimate").loc[list(whole)]
met_with = pooled[pooled["cause"].map(value["positions"]).fillna(1) > 0]
met_with = met_with[
    ~met_with["cause"].str.startswith("since") | (met_with["quantity"] != "random")
]  # section 2 says why
ctx.table(
    explain.wide(
        met_with[~met_with["quantity"].isin(["excess", "surplus"])], ["cause"], "quantity"
    ).fillna(""),
    "causes",
)
for quantity in ("share", "gain"):
    files.export(
        explain.wide(found[found["quantity"] == quantity], ["cause"], "domain"),
        ctx.figures,
        f"{ctx.number}_{quantity}-by-domain",
    )
family = value.index.to_series().str.split(":").str[0]
for name in causes.FAMILIES:
    assert not total or abs(value.loc[family == name, "share"].sum() - 1) < 1e-9
assert (value["gain"] > -1e-12).all(), "being right more often costs a chain nothing"

# %% [markdown]
# ## 2. Which classes hold the rejections, and which cost most?
# Drawn are classes that hold at least `smallest` of the rejections, or the most of their family,
# the dearest of each family first, without *nothing*, *no match* and *none yet*. Only a class that
# is rejected more often than other positions (its share of the rejections less its share of the
# positions is above 0 with its whole interval; in bold) will be called a **cause** below: any other
# class holds rejections as any sample of positions would. `since` is left out of the comparison
# with random, and is never called a cause: what follows a rejection opens a block and costs more
# even if rejections are independent. Whether one rejection follows another is the question of
# section 7.

# %%
rows, kinds = pooled.set_index(["quantity", "cause"]).sort_index(), value[family == "kind"]
FAMILIES = ["kind", "begins", "state", "lookup", "since"]
named = (
    value.assign(family=pd.Categorical(family, FAMILIES, ordered=True))
    .dropna(subset="family")
    .drop(index=list(causes.REST))
)
top = named.groupby("family", observed=True)["share"].transform("max")
shown = named[(named["share"].fillna(1) >= smallest) | (named["share"] == top)]
order, tested = (
    list(shown.sort_values(["family", "gain"], ascending=[True, False]).index),
    named[named["family"] != "since"],
)
causing = [cause for cause in tested.index if rows.loc[("excess", cause)].low > 0]
dear = (tested.loc[causing] if causing else tested).sort_values("gain", ascending=False)
drawn = pooled[pooled["cause"].isin(order)].sort_values(
    "cause", key=lambda names: names.map(order.index), kind="stable"
)
words = {
    "share": "of rejections",
    "positions": "of all positions",
    "gain": "this class",
    "random": "as many at random",
}
drawn = drawn[drawn["cause"].isin(tested.index) | (drawn["quantity"] != "random")].assign(
    marks=drawn["quantity"].map(words)
)
fig, axes = figures.subplots(1, 2, height=1 + 0.21 * len(order), sharey=True)
for ax, pair, label in zip(
    axes,
    (("share", "positions"), ("gain", "random")),
    ("share", "tokens per target pass won"),
    strict=True,
):
    marks = pd.concat([drawn[drawn["quantity"] == quantity] for quantity in pair])
    figures.interval_bars(marks, ax, "cause", hue="marks", horizontal=True)
    ax.set(xlabel=label, xlim=(0, None), ylim=(len(order) - 0.5, -0.5))
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1),
        ncols=2,
        columnspacing=0.8,
        handletextpad=0.2,
        borderaxespad=0,
    )
    for place in range(1, len(order)):
        if family[order[place]] != family[order[place - 1]]:
            ax.axhline(place - 0.5, color="#8A8A8A", linewidth=0.6)
for text in axes[0].get_yticklabels():
    text.set_weight("bold" if text.get_text() in causing else "normal")
ctx.save(fig, "top-causes")


# %%
def largest(part: pd.DataFrame, form=percent) -> str:
    """The class of the largest number (a share of the rejections, a gain), and those whose
    intervals overlap with its own.
    """
    first, *others = part.sort_values("estimate", ascending=False).itertuples()
    if pd.isna(first.estimate):
        return "undefined"
    near = ", ".join(f"`{row.cause}` ({form(row)})" for row in others if row.high >= first.low)
    return f"`{first.cause}` ({form(first)}" + (
        f"; it cannot be told apart from {near}: the intervals overlap)" if near else ")"
    )


def tokens(row) -> str:
    """Tokens per target pass with their interval."""
    return f"{row.estimate:.2f} [{row.low:.2f}, {row.high:.2f}]"


most, dearest = (
    kinds["share"].fillna(0).idxmax(),
    largest(rows.loc["gain"].loc[list(kinds.index)].reset_index(), tokens),
)
hardest = kinds.loc[kinds.index.isin(order), "rate"].idxmax()
held = {
    name: pooled[(pooled["quantity"] == "share") & pooled["cause"].str.startswith(name)]
    for name in ("kind", "state")
}
notebook.say(
    f"**Kinds.** The largest share of the rejections is {largest(held['kind'])}; `{most}` is {percent(rows.loc[('positions', most)])} of "
    f"all positions. The kind that costs most, in tokens per target pass, is {dearest}. Of those drawn the kind most often rejected is "
    f"`{hardest}`, at {percent(rows.loc[('rate', hardest)])} of its positions."
)
sides = {
    "excess": ("Rejected more often than other positions are", "less often"),
    "surplus": ("Costs more than as many at random", "less"),
}
for quantity, (above, below) in sides.items():
    told = {
        side: [
            f"`{cause}`"
            for cause in order
            if cause in tested.index
            and direction(rows.loc[(quantity, cause)], "+", "-", "0") == side
        ]
        for side in "+-0"
    }
    notebook.say(
        f"* {above}: {', '.join(told['+']) or 'none'}; {below}: {', '.join(told['-']) or 'none'}; the other {len(told['0'])} "
        "cannot be told apart."
    )

# %% [markdown]
# ## 3. Is it the same in all domains, and at all places?
# Above, the share of each domain's rejections that is of a kind; below, how often a position is
# rejected by its place in the continuation and by the length of its context (prompt and
# continuation). Classes met in fewer than five prompts of a domain have no point below.

# %%
fig, ax = figures.subplots(height=2.6)
by_kind = often[
    (often["quantity"] == "share")
    & often["cause"].isin(kinds.index)
    & often["domain"].isin(domains)
]
by_kind = by_kind.assign(kind=by_kind["cause"].str.removeprefix("kind: ").str.replace(" ", "\n"))
figures.interval_bars(
    by_kind[by_kind["cause"].isin(order)].replace({"estimate": {0: float("nan")}}), ax, "kind"
)
ax.set(xlabel="kind of token", ylabel="share of the domain's\nrejections", ylim=(0, None))
figures.legend_above(fig, ax)
ctx.save(fig, "kinds-by-domain")
fig, axes = figures.subplots(1, 2, height=2.4, sharey=True)
for ax, name, label in zip(
    axes, ("place", "context"), ("position in the continuation", "tokens of context"), strict=True
):
    rates = (
        bins.group_means(frame, "rejected", name).astype({name: str}).set_index([name, "domain"])
    )
    levels = [level for level in causes.FAMILIES[name] if level in rates.index]
    figures.interval_bars(
        rates.reindex(
            pd.MultiIndex.from_product([levels, domains], names=rates.index.names)
        ).reset_index(),
        ax,
        name,
    )
    ax.set(xlabel=label, ylim=(0, None))
axes[0].set_ylabel("share rejected")
figures.legend_above(fig, axes[0])
ctx.save(fig, "rate-by-place")
notebook.say(
    "**The largest share of the rejections** is, "
    + "; ".join(f"in {d}, {largest(by_kind[by_kind['domain'] == d])}" for d in domains)
    + f". **The first token** of a continuation is rejected in {percent(rows.loc[('rate', 'place: 0')])} of the texts, the next three at "
    f"{percent(rows.loc[('rate', 'place: 1-3')])} of their positions: a draft that was right there "
    f"would gain {value.loc['place: 0', 'gain']:.3f} and {value.loc['place: 1-3', 'gain']:.3f} tokens per target pass."
)

# %% [markdown]
# ## 4. Do the gains add?
# No. A rejection ends a block; with two rejections near each other, mending one alone only moves
# the end to the other, and mending both does more than the sum. Classes of two families overlap:
# they share rejections, which pulls the other way.

# %%
first = tested.assign(causing=tested.index.isin(causing)).sort_values(
    ["causing", "gain"], ascending=False
)
two = list(first.drop_duplicates("family").index[:2])
sets = {"together": causes.pick(members, two)}
both = causes.gains(frame, pd.DataFrame(sets), gamma).set_index("domain").loc[POOLED]
every, tree_every = rows.loc[("gain", "every")], rows.loc[("gain, tree", "every")]
notebook.say(
    f"**Two that overlap.** `{two[0]}` alone gains {value.loc[two[0], 'gain']:.2f} tokens per target pass, `{two[1]}` alone "
    f"{value.loc[two[1], 'gain']:.2f}: the sum is {value.loc[two, 'gain'].sum():.2f}, both together gain {both.estimate:.2f} "
    f"[{both.low:.2f}, {both.high:.2f}]. **All kinds.** One at a time they add up to {kinds['gain'].sum():.2f}; all at once they gain "
    f"{every.estimate:.2f} [{every.low:.2f}, {every.high:.2f}]: a perfect draft, gamma + 1 tokens per pass, less at the ends of texts."
)
own, tree_own = (
    largest(rows.loc[quantity].loc[list(dear.index)].reset_index(), tokens)
    for quantity in ("gain", "gain, tree")
)
notebook.say(
    f"**On the profile's tree** ({ctx.profile.tree.size} nodes, depth {ctx.profile.tree.max_depth}) the dearest "
    f"{'cause' if causing else 'class (none is a cause)'}, in tokens per target pass, is {tree_own}; on the chain it is {own}. A perfect "
    f"draft would gain {tree_every.estimate:.2f} on the tree, where it gains {every.estimate:.2f} on the chain."
)
perfect = replay.replay(causes.counterfactual(frame, members.any(axis=1).to_numpy()), gamma)
assert (perfect["emitted"] == perfect["remaining"].clip(upper=gamma + 1)).all(), (
    "all classes at once: every block is full"
)

# %% [markdown]
# ## 5. Where would the target's token have been found?
# Left: the rank of the target's token under the draft, over all rejections. Right: what wider trees
# of the same depth win. *Siblings* keeps the best path and puts the next best tokens beside it,
# width times gamma nodes in all: it saves the rejection that ends the block, then its path ends
# too. *Full* has that many children at every node: so many nodes that, from width 3 on, it is a
# ceiling and no proposal. Another place to look is the prompt and the text so far, which costs no
# draft model at all: the family `lookup`.

# %%
ranks = often[
    (often["quantity"] == "share")
    & often["cause"].str.startswith("found")
    & often["domain"].isin(domains)
]
ranks = ranks.assign(rank=ranks["cause"].str.removeprefix("found: ").str.replace(" ", "\n"))
wider = causes.wider(frame, gamma)
files.export(wider, ctx.figures, f"{ctx.number}_wider-trees")
curve = wider[wider["domain"] == POOLED].assign(
    place=lambda found: found["width"].rank(method="dense") - 1
)
fig, (left, right) = figures.subplots(1, 2, height=2.7, width_ratios=[1.35, 1])
if total:
    figures.interval_bars(ranks, left, "rank")
left.set(xlabel="found at", ylabel="share of the domain's rejections", ylim=(0, None))
figures.lines_with_bands(curve, right, "place", hue="shape")
right.set_xticks(range(curve["width"].nunique()), labels=sorted(set(curve["width"])))
right.set(
    xlabel="children of a node (width)",
    ylabel="gain on the chain,\ntokens per target pass",
    ylim=(0, None),
)
right.legend(loc="upper left")
fig.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=4)
ctx.save(fig, "rank-where-found")
second, looked, at = (
    rows.loc[("share", "found: rank 1")],
    rows.loc[("share", "lookup: right")],
    curve.set_index(["shape", "width"]),
)
one, eight = at.loc[("siblings", 2)], at.loc[("siblings", 9)]
notebook.say(
    f"**The draft's second choice** is the target's token in {percent(second)} of the rejections. One sibling at each depth wins "
    f"{one.estimate:.2f} [{one.low:.2f}, {one.high:.2f}] tokens per target pass with {2 * gamma} nodes instead of {gamma}, eight siblings "
    f"{eight.estimate:.2f} [{eight.low:.2f}, {eight.high:.2f}] with {9 * gamma}. **Prompt lookup** has the token at "
    f"{percent(rows.loc[('positions', 'lookup: right')])} of all positions (the draft at {100 - 100 * total / len(frame):.0f} %) and in "
    f"{percent(looked)} of the rejections; a rule that always knew which of the two to trust would gain "
    f"{value.loc['lookup: right', 'gain']:.2f} tokens per target pass."
)

# %% [markdown]
# ## 6. Who was sure?
# Left: each rejection by what the two models thought of their own best token: the draft of the
# token that it proposed, the target of the one that it wrote. *Only target sure* is what a better
# draft can mend. *Both unsure* is where the target has no clear favourite: another token would have
# been nearly as good to it, but a lossless decoder may not take it. *Both sure* and *only draft
# sure* are a draft that is sure and wrong, which no rule that stops at low confidence can see
# coming. Right: how often such positions are rejected, beside what the draft's confidence promised
# (1 − q on average). Above its promise, the draft was too sure (notebook 05 has the whole
# reliability diagram). The line between sure and unsure is `sure`: from a probability of 0.5 on no
# other token can have more.

# %%
frame["promised"], frame["gap"] = (
    1 - frame["confidence"],
    frame["rejected"] - (1 - frame["confidence"]),
)
means = {name: bins.group_means(frame, name, "state") for name in ("rejected", "promised", "gap")}
states = pd.concat([rows.assign(what=name) for name, rows in means.items()], ignore_index=True)
ctx.table(explain.wide(states, ["what", "domain"], "state").fillna("too few"), "states")
fig, (left, right) = figures.subplots(1, 2, height=3.3)
missed = frame[frame["rejected"] > 0]
left.plot(
    missed["confidence"],
    missed["p_token"],
    ".",
    markersize=2,
    alpha=0.35,
    color="#444444",
    rasterized=True,
)
left.axvline(sure, color="black", linewidth=0.8)
left.axhline(sure, color="black", linewidth=0.8)
corners = {
    "both sure": (0.99, 1.09),
    "only target sure": (0.01, 1.09),
    "only draft sure": (0.99, -0.09),
    "both unsure": (0.01, -0.09),
}
for name, (x, y) in corners.items():
    text = f"{name}: {100 * value.loc[f'state: {name}', 'share']:.0f} %"
    left.text(x, y, text, ha="left" if x < 0.5 else "right", va="bottom" if y < 0.5 else "top")
left.set(
    xlabel="draft's q of its own best token",
    ylabel="target's p of its own best token",
    xlim=(0, 1),
    ylim=(-0.1, 1.1),
)
left.set_yticks([0, 0.25, 0.5, 0.75, 1])
told = states[(states["domain"] == POOLED) & (states["what"] != "gap")].replace(
    {"what": {"promised": "promised (1 − q)"}}
)
figures.interval_bars(
    told.assign(state=told["state"].astype(str).str.replace(" ", "\n")), right, "state", hue="what"
)
right.set(ylabel="share of positions rejected", ylim=(0, None))
right.legend(
    loc="lower left",
    bbox_to_anchor=(-0.02, 1),
    ncols=2,
    columnspacing=0.8,
    handletextpad=0.2,
    borderaxespad=0,
)
ctx.save(fig, "who-was-sure")

# %%
biggest = value.loc[family == "state", "share"].fillna(0).idxmax()
gaps = states[(states["domain"] == POOLED) & (states["what"] == "gap")].rename(
    columns={"state": "name"}
)
notebook.say(
    f"**The largest share of the rejections** is {largest(held['state'])}. Both models were sure, and the draft wrong, in "
    f"{percent(rows.loc[('share', 'state: both sure')])} of them; only the draft was sure in "
    f"{percent(rows.loc[('share', 'state: only draft sure')])}. **Its promise:** the draft is rejected "
    + explain.by_direction(
        gaps,
        "more often than its confidence says in",
        "less often than its confidence says in",
        "as often as it says, as far as can be told, in",
        names="name",
    )
    + " (all domains together)."
)

# %% [markdown]
# ## 7. Do rejections come in bursts?
# The *hazard* is the chance that a position is rejected, by its distance to the last rejection. If
# rejections were independent and equally likely everywhere, the distances would be geometric and
# the hazard flat (dotted). A hazard that starts above that line and falls means bursts. But texts
# that differ in difficulty do the same without any burst: most of what is right after a rejection
# is in hard texts. The dashed line shows how much: the same texts, each with its positions in
# random order.

# %%
hazard = causes.hazard(frame, longest=8)
if total:
    files.export(hazard, ctx.figures, f"{ctx.number}_hazard")
fig, axes = figures.subplots(1, len(domains), height=2.4, sharey=True, squeeze=False)
for ax, name in zip(axes[0], domains, strict=True):
    part = hazard[hazard["domain"] == name].astype({"distance": int})
    if len(part):
        figures.lines_with_bands(part, ax, "distance")
    ax.plot(
        part["distance"], part["shuffled"], "--", color="black", linewidth=1, label="texts shuffled"
    )
    ax.plot(
        part["distance"],
        part["geometric"],
        ":",
        color="black",
        linewidth=1,
        label="geometric, same mean",
    )
    ax.set(title=name)
axes[0, 0].set_ylim(0, None)
fig.supxlabel("positions since the last rejection", fontsize=8)
axes[0, 0].set_ylabel("share rejected")
handles, labels = axes[0, 0].get_legend_handles_labels()
fig.legend(handles[1:], labels[1:], loc="outside upper center", ncols=2)
ctx.save(fig, "hazard")
right_after = hazard[hazard["distance"] == 1].set_index("domain", drop=False)
references = {
    "geometric": "independent, equally likely rejections",
    "shuffled": "the same texts shuffled",
}
for against, name in references.items() if total else ():
    apart = right_after.assign(
        low=right_after["low"] - right_after[against],
        high=right_after["high"] - right_after[against],
    )
    whole_run = right_after[right_after["domain"] == POOLED]
    overall = "".join(
        f" (all together {percent(row)} against {100 * getattr(row, against):.0f} %)"
        for row in whole_run.itertuples()
    )
    notebook.say(
        f"* Right after a rejection, against {name}{overall}: the next is rejected "
        + explain.by_direction(
            apart[apart["domain"] != POOLED],
            "more often in",
            "less often in",
            "about as often, as far as can be told, in",
        )
        + "."
    )

# %% [markdown]
# ## 8. The dearest single cases
# A block that is cut loses the draft tokens that would have been kept from the cut on: *lost*
# counts them, gamma at most. Of the rejections that lose most, these are the ones where the target
# was surest of what the draft thought least likely (p log(p/q) of the target's token, its part of
# KL(p‖q)), one per text, `cases` of each domain. *context* ends at the position (▮); ⏎ is a line
# end, ␣ a space; *its q* and *its p* are what draft and target gave the draft's token; *p*, *q* and
# *rank* are of the target's token.

# %%
chosen = causes.worst(frame, gamma, cases)
texts = causes.as_text(chosen, frame, strings, prompt_tokens)
display(HTML(causes.as_html(texts)))
lost = met["lost"].value_counts(normalize=True).sort_index()
notebook.say(
    "Of the rejections that a chain meets, "
    + ", ".join(f"{100 * share:.0f} % lose {count}" for count, share in lost.items())
    + (f": {met['lost'].mean():.2f} draft tokens on average." if total else "none.")
)
assert texts["lost"].is_monotonic_decreasing or texts.empty

# %% [markdown]
# ## 9. Verdict

# %%
winner = dear.index[0]
won, far = (
    rows.loc[("gain", winner)],
    direction(rows.loc[("surplus", winner)], "more than", "less than", "not to be told apart from"),
)
each = ", ".join(
    f"`{cause}` {tokens(rows.loc[('gain', cause)])}"
    for cause in dear.drop_duplicates("family").index[1:]
)
most_text = f"by kind {largest(held['kind'])}, by state {largest(held['state'])}"
cost_text = (
    f"The cause that costs most, in tokens per target pass, is {own}: a chain of gamma = {gamma} that was never rejected at "
    f"`{winner}` would emit {won.estimate:.2f} more; that is {far} what as many rejections at random cost "
    f"({value.loc[winner, 'random']:.2f}). The dearest of the other families: {each or 'none'}."
)
notebook.say(
    "**Verdict.** "
    + (
        f"The largest share of the rejections here is, {most_text}. "
        if total
        else "Nothing is rejected. "
    )
    + (
        cost_text
        if causing
        else "No class is rejected more often than other positions: no cause can be named."
    )
)
ctx.record(
    rejected_share=float(rate.loc[POOLED, "estimate"]),
    rejections=total,
    met=len(met),
    most_kind=most,
    most_state=biggest,
    dearest=winner if causing else "none",
    gain_dearest=float(value.loc[winner, "gain"]),
    gain_every=float(value.loc["every", "gain"]),
    lookup_right_of_rejections=looked.estimate,
    **{
        f"share_{cause.replace(': ', '_').replace(' ', '_')}": float(value.loc[cause, "share"])
        for cause in order
    },
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: a text of ten tokens has the draft ranks 0 1 0 0 2 0 0 0 0 3. Which blocks does a
#    chain of gamma = 4 make, how many tokens per target pass is that, and what is won if the rank 1
#    were 0, or the rank 2, or the rank 3?
#
# <details><summary>What happens</summary>Blocks (0, 1), (2, 3, 4) and (5, 6, 7, 8, 9): 10 tokens in 3 passes, 3.33; the last rank 3
# stands where the bonus token does and is never met. With position 1 mended the blocks are (0 to 4)
# and (5 to 9), 5 tokens per pass: the rank 2 has become a bonus token's. With position 4 mended
# alone they are (0, 1), (2 to 6), (7, 8, 9): 3 passes as before, nothing is won. Position 9:
# nothing.</details>
#
# 2. Mend the numbers and the words at once: `two = ["kind: number", "kind: word start"]` in section
#    4. More or less than the sum?
#
# <details><summary>What happens</summary>These classes do not overlap, so they share no rejection, and where a number stands near a word a
# block needs both: the gain together is at least about the sum. Classes of two families overlap,
# and there it is mostly less.</details>
#
# 3. Set `gamma = 1`, then `gamma = 8`. What happens to *surplus* (gain less random) of `since:
#    right after`, and why? (The table `07_causes-values` has it.)
#
# <details><summary>What happens</summary>With gamma = 1 each block tries one token, and what was rejected before matters little. With
# a long draft, a rejection that follows another makes a block of a single token, the least that
# there is: mending it is worth more than mending one that ends a long block. This is so even if
# rejections are independent, so `since` is left out above.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above. The rejections by class, what each class costs, where the
#   right token would have been found.
# * What this does not show: a cause in the strict sense. Classes go together (a number is often
#   where the target is unsure), and gains of overlapping classes do not add. The counterfactual
#   draft is right at once and for nothing; a real better draft changes everywhere. `since` is taken
#   from the text as it was: with fewer rejections, other positions would follow one. Kinds are told
#   from the tokens' text alone. T = 0 only: at T > 0 a rejection is a matter of chance (`alpha`).
#   Intervals are 95 % each, not all at once.
# * Next: notebook 08 makes better drafts; notebook 09 stops drafting where the draft is not sure.

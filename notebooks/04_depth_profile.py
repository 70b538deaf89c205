# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 4. Does acceptance rise with depth?
#
# **Answer.** As published (`published_alpha` by depth) the question cannot be answered, because the
# profile mixes kinds of node: two ranks at every depth, and at depth 2, but not at depths 1 and 3,
# nodes under the draft's second choice. What the cut does to it is computed in section 3; what is
# left of a rise when the kind is held fixed is computed in section 2, for each domain with its
# interval; and what a decoder gains from depth, the chance to get that far (`survival_by_depth`),
# can only fall (section 4).
#
# ![Change of each estimator from depth 1 to the deepest level, by domain](../figures/tiny/04_change.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the runs `greedy` (the
# paper's tree, temperature T = 0), `balanced` (T = 0, the same tree without the cut) and `sampled`
# (T = 1), recorded if they are not there · *writes* `figures/<profile>/04_*`.

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
import numpy as np
import pandas as pd
from statsmodels.stats.multitest import multipletests

from speclab import figures, notebook, replay, runs, score, stats
from speclab.analysis import rungs, significance
from speclab.analysis import published as paper
from speclab.estimates import by_direction
from speclab.tree import static_tree

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "tiny"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
bandwidth: float = 4.0  # tokens: standard deviation of the weights in the position curves
level: float = 0.05  # a position effect is called found when Holm's p-value is below this

# %%
ctx = notebook.start("04_depth_profile", profile, overrides)
cut, full = (
    runs.load_or_record(ctx.profile.replace(temperature=0.0), kind)
    for kind in ("greedy", "balanced")
)
warm = runs.load_or_record(ctx.profile, "sampled")
domains = list(score.domains_in(cut.nodes))
deepest = int(cut.nodes["depth"].max())
shapes = [" + ".join(map(str, run.nodes.groupby("depth")["node"].nunique())) for run in (cut, full)]
notebook.say(
    f"Nodes by depth: **{shapes[0]}** in the paper's tree (run `greedy`), **{shapes[1]}** without the cut (run `balanced`)."
)
assert cut.trace["token"].equals(full.trace["token"]), (
    "the text does not depend on the tree: both runs are the target's greedy text"
)


def verdict(rows: pd.DataFrame) -> str:
    """In which domains the difference is above 0, below 0, or has 0 in its interval."""
    return by_direction(
        rows[rows["domain"].isin(domains)], "higher in", "lower in", "cannot be told apart in"
    )


# %% [markdown]
# ## 1. The paper's Tables IV and V, on this pair
# At every position of the target's own text a small tree of draft tokens was hung: at the paper's
# settings 2 tokens, then 2 after each of them, then only 2 more, because a budget of 8 nodes cuts
# the rest. Table IV is the mean of min(1, p/q) at each depth (`published_alpha` by depth; p:
# target's, q: draft's probability of the node's token), Table V the same for tokens 1-32 (bin 0)
# and 33-64 (bin 1) of the text, all domains together. In the tables `published` is the paper's
# number (Llama-2-7B and TinyLlama), `ours_as_published` the same procedure on this pair, and
# `corrected` the same mean along the best path, where every token is the draft's best, so that rank
# is held fixed. The intervals are 95 % and resample prompts.

# %%
late = (
    cut.nodes[cut.nodes["position"] >= score.POSITION_BIN].groupby("domain")["prompt_id"].nunique()
)
names = ["IV", "V"] if len(late) and late.min() >= stats.MIN_PROMPTS else ["IV"]
tables = {name: paper.comparison(name, cut) for name in names}
for number, (name, frame) in zip((4, 5), tables.items(), strict=False):
    notebook.say(f"**Table {name}**")
    ctx.table(frame.dropna(axis=1, how="all"), f"table-{number}")
reach = ", ".join(f"{d} {late.get(d, 0)}" for d in domains)
notebook.say(
    f"Prompts whose text is longer than {score.POSITION_BIN} tokens: {reach}. "
    + (
        "Bin 1 of Table V holds these alone, so a short-lived domain weighs less in it."
        if "V" in tables
        else f"Table V needs {stats.MIN_PROMPTS} of every domain that has any, so it is left out."
    )
)
assert tables["IV"]["ours_as_published"].between(0, 1).all()

# %% [markdown]
# ## 2. The profile as published, and with the kind of node held fixed
# At every depth half of the nodes are their parent's best child (rank 0) and half its second (rank
# 1). What changes with depth is the branch above them: in the paper's tree half of the nodes at
# depth 2 hang under the draft's second choice, and none at depth 3. Without the cut (run
# `balanced`) the share of unlikely branches grows with depth instead. Like is compared with like
# only under the best path: its own nodes (`best_path_alpha`, rank 0 at every depth) and their
# second siblings (rank 1). The last rows of the picture ask what a decoder asks of the complete
# tree (`accept_by_depth`): given that a node was accepted, is one of its children? At T = 0 that is
# read from the nodes (greedy rule), at T = 1 from the text sampled from the target (point-mass
# rule, replayed; starts with room for the whole tree).


# %%
def by_depth(frame: pd.DataFrame, estimator: score.Estimator, name: str) -> pd.DataFrame:
    """Estimates of a family with members by depth, prompt-clustered intervals, and the columns
    `depth` and `name`.
    """
    rows = stats.by_domain(frame, estimator)
    return rows.assign(
        depth=rows["estimator"].str.extract(r"\[(\d+)\]", expand=False).astype(int), name=name
    )


def change(family: score.Estimator) -> score.Estimator:
    """The family's last member less its first: every resample of prompts draws both, so the
    difference is paired.
    """
    return score.Estimator(
        "change", family.columns, lambda t: family.value(t)[..., -1:] - family.value(t)[..., :1]
    )


on_path = set(cut.nodes.loc[cut.nodes["best_path"], "node"]) | {0}
second = cut.nodes[cut.nodes["parent"].isin(on_path) & (cut.nodes["rank"] == 1)]
paper_rows = (
    paper.published("IV")
    .rename(columns={"published": "estimate"})
    .assign(low=float("nan"), high=float("nan"))
)
complete = replay.replay(warm.trace, static_tree(ctx.profile.depth, ctx.profile.branches), "every")
asked = {
    f"published_alpha, {shapes[0]}": (cut.nodes, score.alpha_by_depth),
    f"published_alpha, {shapes[1]}": (full.nodes, score.alpha_by_depth),
    "best_path_alpha (rank 0)": (cut.nodes, score.best_path_by_depth),
    "best path's second child (rank 1)": (second, score.alpha_by_depth),
    f"published_alpha, {shapes[0]}, T = 1": (warm.nodes, score.alpha_by_depth),
    "best_path_alpha (rank 0), T = 1": (warm.nodes, score.best_path_by_depth),
    f"accept_by_depth, {shapes[1]}": (full.nodes, score.tree_estimators()["accept_by_depth"]),
    f"accept_by_depth, {shapes[1]}, T = 1": (
        replay.prompt_sums(complete, "room"),
        score.block_estimators()["accept_by_depth"],
    ),
}
profiles = pd.concat(
    [by_depth(*question, name) for name, question in asked.items()], ignore_index=True
)
ctx.table(profiles[["name", "domain", "depth", "estimate", "low", "high"]], "profiles")
changes = pd.concat(
    [
        stats.by_domain(frame, change(family)).assign(name=name)
        for name, (frame, family) in asked.items()
    ]
)
ctx.table(
    changes[["name", "domain", "estimate", "low", "high", "n_prompts"]].reset_index(drop=True),
    "change",
)

# %%
drawn = {"published_alpha, the paper": paper_rows} | {
    name: profiles[profiles["name"] == name] for name in list(asked)[:3]
}
fig, axes = figures.subplots(1, len(drawn), height=2.5, sharey=True)
for axis, (name, rows) in zip(axes, drawn.items(), strict=True):
    rows = rows[rows["domain"].isin(domains)].sort_values(
        "domain", key=lambda column: column.map(domains.index), kind="stable"
    )
    figures.lines_with_bands(rows.astype({"depth": int}), axis, x="depth")
    axis.set(
        title=name.replace(", ", ",\n").replace(" (", "\n("),
        xlabel="depth",
        xticks=range(1, deepest + 1),
    )
axes[0].set(ylabel="mean of min(1, p/q)")
figures.legend_above(fig, axes[1])
ctx.save(fig, "depth-profile")
in_paper = paper_rows.pivot(index="domain", columns="depth", values="estimate").loc[domains]
in_paper = (
    (in_paper[3] - in_paper[1])
    .rename("estimate")
    .reset_index()
    .assign(name="published_alpha, the paper")
)
fig, ax = figures.subplots(height=4.0)
figures.interval_bars(
    pd.concat([in_paper, changes[changes["domain"].isin(domains)].dropna(subset="low")]),
    ax,
    "name",
    horizontal=True,
)
ax.axvline(0, color="black", linewidth=0.6)
for row in range(1, len(asked) + 1, 2):
    ax.axhspan(row - 0.5, row + 0.5, color="#f2f2f2", zorder=0)
ax.set(
    xlabel=f"change from depth 1 to depth {deepest}" + ("" if deepest == 3 else " (the paper: 3)"),
    ylim=(len(asked) + 0.5, -0.5),
)
figures.legend_above(fig, ax)
ctx.save(fig, "change")
lines = []
for name, rows in changes.groupby("name", sort=False):
    mean, low, high = rows.set_index("domain").loc[score.ALL, ["estimate", "low", "high"]]
    average = f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]" if low == low else "undefined"
    lines.append(f"\n* `{name}`: {verdict(rows)}; mean of domains {average}.")
notebook.say(
    "**The deepest level beside depth 1** (95 % intervals of the paired difference, each domain by itself):\n"
    + "".join(lines)
)

# %% [markdown]
# ## 3. What the cut does to the mean
# The same nodes, sorted by where they hang: under the best path (or the root), or under any other
# branch. The published mean at a depth is a mixture of the two, and the budget sets the mixture: in
# the paper's tree the share of other branches is 0 at depth 1, a half at depth 2 and 0 again at
# depth 3. A profile can bend without acceptance changing at all. Depths 1 and 3 of that tree are
# mixed alike, both ranks half and half under the best path: between these two the cut makes no
# difference, the mean over ranks may.

# %%
inside = full.nodes["parent"].isin(on_path)
mixed = {
    "under the best path": full.nodes[inside],
    "under other branches": full.nodes[~inside],
    f"all nodes, {shapes[0]}": cut.nodes,
    f"all nodes, {shapes[1]}": full.nodes,
}
mixtures = pd.concat(
    [by_depth(rows, score.alpha_by_depth, name) for name, rows in mixed.items() if len(rows)]
)
means = mixtures[mixtures["domain"] == score.ALL].dropna(subset="estimate").reset_index(drop=True)
means.loc[means["name"].str.startswith("all nodes"), ["low", "high"]] = float(
    "nan"
)  # bands for the two parts only
fig, ax = figures.subplots(width=figures.ONE_COLUMN, height=3.0)
figures.lines_with_bands(means, ax, x="depth", hue="name")
ax.set(xlabel="depth", ylabel="mean of min(1, p/q), mean of domains", xticks=range(1, deepest + 1))
fig.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=2)
ctx.save(fig, "mixture")
curves = means.pivot(index="depth", columns="name", values="estimate")
other = pd.DataFrame(
    {
        f"other branches, {shape}": run.nodes.assign(other=~run.nodes["parent"].isin(on_path))
        .groupby("depth")["other"]
        .mean()
        for shape, run in zip(shapes, (cut, full), strict=True)
    }
)
ctx.table(other.join(curves), "mixture")
for shape in shapes:
    weight = other[f"other branches, {shape}"]
    rebuilt = (1 - weight) * curves["under the best path"] + (
        weight * curves.get("under other branches", 0.0)
    ).fillna(0.0)
    assert (rebuilt - curves[f"all nodes, {shape}"]).abs().max() < 1e-4, (
        "the mean is this mixture (float32: two runs)"
    )

# %%
same = cut.nodes["depth"] == deepest
gap = significance.paired_difference(
    full.nodes[full.nodes["depth"] == deepest], cut.nodes[same], score.published_alpha
)
notebook.say(
    f"At depth {deepest} the complete tree's `published_alpha` minus the cut tree's, on the same texts, pooled over nodes: "
    f"**{gap}**: the cut by itself "
    + (
        "cannot be seen to move"
        if gap.low <= 0 <= gap.high
        else "lowers"
        if gap.low > 0
        else "raises"
    )
    + " the number at the deepest level. Under the best path the mean of domains goes "
    + " → ".join(f"{value:.3f}" for value in curves["under the best path"].dropna())
    + (
        ", under other branches "
        + " → ".join(f"{value:.3f}" for value in curves["under other branches"].dropna())
        if "under other branches" in curves
        else ""
    )
    + "."
)

# %% [markdown]
# ## 4. Given that the parent was accepted
# A decoder reaches depth 2 only where depth 1 was accepted, and such places may be easier than the
# average. So ask three questions of the best path alone, a chain. At T = 0 its token is accepted if
# it is the target's most likely one (greedy rule, greedy text), at T = 1 with the target's
# probability p of it (point-mass rule, sampled text): (a) how often that is so at a depth, whatever
# happened above (unconditional, as in all means so far); (b) how often it is so where the parent
# was accepted (`accept_by_depth`); and (c) how often a block gets that far at all
# (`survival_by_depth`), the only one that counts tokens.

# %%
given = score.Estimator("given", lambda f: f[["accepted", "reached"]].to_numpy(float), score.quotient)
gain = score.Estimator(
    "gain",
    lambda f: f[["accepted", "reached", "own", "one"]].to_numpy(float),
    lambda t: score.divide(t[..., :1], t[..., 1:2]) - score.divide(t[..., 2:3], t[..., 3:]),
)
questions = {
    "unconditional": score.mean_of("own"),
    "accept_by_depth": given,
    "survival_by_depth": score.mean_of("accepted"),
    "accept_by_depth - unconditional": gain,
}
parts, chains = [], {"T = 0": (cut.nodes, "greedy"), "T = 1": (warm.nodes, "point-mass")}
for text, (nodes, rule) in chains.items():
    chain = nodes[nodes["best_path"]].assign(one=1.0)
    chain["own"] = chain["target_prob"] if text == "T = 1" else chain["target_rank"] == 0
    chain["accepted"] = score.reach(chain, rule)
    chain["reached"] = chain.groupby(["prompt_id", "position"])["accepted"].shift(fill_value=1.0)
    parts += [
        stats.by_domain(rows, estimator).assign(text=text, name=name, depth=d)
        for name, estimator in questions.items()
        for d, rows in chain.groupby("depth")
    ]
    counted = score.point_estimates(chain, score.tree_estimators(rule)["accept_by_depth"])[
        domains
    ].to_numpy()
    shown = np.array(
        [row["estimate"][row["domain"].isin(domains)] for row in parts[-3 * deepest : -2 * deepest]]
    )
    assert np.nanmax(np.abs(counted - shown)) < 1e-9, (
        "the same conditional shares, counted by the ladder's own estimator"
    )
steps = pd.concat(parts, ignore_index=True)
steps = steps[steps["domain"].isin(domains)].reset_index(drop=True)
ctx.table(steps[["text", "name", "depth", "domain", "estimate", "low", "high"]], "conditional")
survival = (
    steps[steps["name"] == "survival_by_depth"]
    .set_index(["text", "domain", "depth"])["estimate"]
    .unstack()
)
assert (survival.diff(axis=1).iloc[:, 1:] <= 1e-12).all().all(), (
    "a block that gets to a depth has been at the one above"
)

# %%
fig, axes = figures.subplots(len(chains), 3, height=4.2, sharex=True, sharey=True)
for line, text in zip(axes, chains, strict=True):
    for axis, letter, name in zip(line, "abc", questions, strict=False):
        figures.lines_with_bands(
            steps[(steps["name"] == name) & (steps["text"] == text)], axis, x="depth"
        )
        axis.set(title=f"({letter}) {name}, {text}", ylim=(-0.03, 1.03))
    line[0].set(ylabel=f"share, {text}")
for axis in axes[-1]:
    axis.set(xlabel="depth, best path")
figures.legend_above(fig, axes[0, 0])
ctx.save(fig, "conditional")
lines = []
for text in chains:
    for d in range(2, deepest + 1):
        rows = steps[
            (steps["name"] == "accept_by_depth - unconditional")
            & (steps["depth"] == d)
            & (steps["text"] == text)
        ]
        lines.append(f"\n* {text}, depth {d}: {verdict(rows)}.")
    ends = survival.loc[text]
    lines.append(
        f"\n* {text}, blocks whose best path is accepted down to depth 1, and down to depth {deepest}: "
        + ", ".join(f"{d} {ends.loc[d, 1]:.2f} and {ends.loc[d, deepest]:.2f}" for d in domains)
        + "."
    )
notebook.say(
    "**Acceptance where the parent was accepted, beside acceptance everywhere** (95 % intervals of the difference, each domain by "
    "itself):\n" + "".join(lines)
)

# %% [markdown]
# ## 5. Depth and position together
# The paper's heat maps: `published_alpha` by depth and bin of positions, for each domain and for
# all (pooled over nodes, as in Table V). Below them the same for the best path. One colour scale
# for both: equal colours are equal numbers. Blank: no text was that long.

# %%
longest = int(cut.nodes["position"].max()) + 1
size = max(ctx.profile.position_bin, -(-longest // 4))
groups, bins = [*domains, score.ALL], range(-(-longest // size))
maps = {}
for name, nodes in {
    "published_alpha": cut.nodes,
    "best_path_alpha": cut.nodes[cut.nodes["best_path"]],
}.items():
    both = pd.concat([nodes, nodes.assign(domain=score.ALL)])
    cells = rungs.cells(both, ["domain", "depth", "bin"], size).pivot(
        index="depth", columns=["domain", "bin"], values="alpha_mean"
    )
    maps[name] = cells.reindex(
        columns=pd.MultiIndex.from_product([groups, bins], names=["domain", "bin"])
    )
ctx.table(
    pd.concat(maps, names=["estimator"])
    .stack(["domain", "bin"], future_stack=True)
    .rename("alpha_mean")
    .reset_index(),
    "heat-map",
)
low, high = (
    float(
        function(map.min().min() if function is min else map.max().max() for map in maps.values())
    )
    for function in (min, max)
)
fig, axes = figures.subplots(len(maps), 1, height=3.4)
for axis, (name, cells) in zip(axes, maps.items(), strict=True):
    figures.heatmap(
        cells.set_axis(
            [f"{b * size + 1}-{min((b + 1) * size, longest)}" for _, b in cells], axis=1
        ),
        axis,
        name,
        3,
        low,
        high,
    )
    for place, group in enumerate(groups):
        axis.axvline(place * len(bins), color="white", linewidth=5)
        axis.text((place + 0.5) * len(bins), -0.1, group, ha="center", va="bottom")
    axis.set(xlabel="", ylabel="depth")
axes[-1].set(xlabel="tokens of the text")
ctx.save(fig, "heat-map")
spread = {name: (cells.loc[deepest] - cells.loc[1]).abs().max() for name, cells in maps.items()}
notebook.say(
    "The largest difference between depth 1 and the deepest level in any one bin: "
    + ", ".join(f"`{name}` {value:.3f}" for name, value in spread.items())
    + ". A map has no intervals: for those see sections 2 and 6."
)
assert 0 <= low <= high <= 1

# %% [markdown]
# ## 6. Along the text
# The same question for position alone, for three estimators: `published_alpha`, `alpha` (overlap,
# the acceptance of one sampled draft token) and `hit[1]` (T = 0: the draft's best token is the
# target's). The curves are smooth: at each token a mean over all positions, weighted by a normal
# curve around it (`bandwidth`: its standard deviation in tokens), with a prompt-clustered interval
# as a band. The crosses are the means of the bins of section 5, all domains together. A domain's
# curve ends where fewer than five of its texts go on. Late positions hold only the prompts with
# long texts, so a curve may move because its prompts change; the test below compares tokens 33-64
# with tokens 1-32 of the same prompts only.

# %%
trace = cut.trace.assign(hit=cut.trace["draft_rank"] == 0)
tested = {
    "published_alpha": (cut.nodes, score.published_alpha),
    "alpha": (trace, score.overlap_alpha),
}
tested["hit[1]"] = (trace, score.mean_of("hit"))
grid = np.arange(0, longest, 4)


def smooth(frame: pd.DataFrame, estimator: score.Estimator, name: str) -> pd.DataFrame:
    """The estimator (a mean over rows) in a normal window around every token of the grid, with
    intervals, where texts go on.
    """

    def columns(rows: pd.DataFrame) -> np.ndarray:
        window = np.exp(-((rows["position"].to_numpy()[:, None] - grid) ** 2) / (2 * bandwidth**2))
        return np.hstack([window * estimator.columns(rows)[:, :1], window])

    found = stats.by_domain(frame, score.Estimator(name, columns, score.quotient, scalar=False))
    ends = (
        frame.groupby(["domain", "prompt_id"])["position"]
        .max()
        .groupby("domain")
        .nlargest(stats.MIN_PROMPTS)
        .groupby(level=0)
        .min()
    )
    found = found.assign(name=name, token=np.tile(grid, len(found) // len(grid)) + 1)
    return found[found["token"] - 1 <= found["domain"].map(ends)]


along = pd.concat([smooth(*question, name) for name, question in tested.items()], ignore_index=True)
fig, axes = figures.subplots(1, len(tested), height=2.8, sharey=True)
for axis, (name, rows) in zip(axes, along.groupby("name", sort=False), strict=True):
    figures.lines_with_bands(rows, axis, x="token")
    bins = {
        place: tested[name][1](part)
        for place, part in tested[name][0].groupby(tested[name][0]["position"] // size)
    }
    axis.plot(
        [(place + 0.5) * size for place in bins],
        list(bins.values()),
        "x",
        color="black",
        ms=6,
        label="bins, all domains",
        zorder=4,
    )
    axis.set(
        title=f"{name}, T = 0" if "hit" in name else name,
        xlabel="token of the text",
        xlim=(0, None),
    )
axes[0].set(
    ylabel="mean around the token",
    ylim=(max(0, along["low"].min() - 0.05), min(1, along["high"].max() + 0.05)),
)
figures.legend_above(fig, axes[0])
ctx.save(fig, "position")
assert along["estimate"].between(0, 1).all()

# %%
found = []
for name, (frame, estimator) in tested.items():
    halves = [frame[frame["position"] // score.POSITION_BIN == b] for b in (0, 1)]
    for domain in domains:
        late_rows = halves[1][halves[1]["domain"] == domain]
        early_rows = halves[0][halves[0]["prompt_id"].isin(late_rows["prompt_id"])]
        if late_rows["prompt_id"].nunique() >= stats.MIN_PROMPTS:
            found.append(
                {"estimator": name, "domain": domain}
                | vars(significance.paired_difference(late_rows, early_rows, estimator))
            )
effects = pd.DataFrame(found)
if len(effects):
    effects["p_holm"] = multipletests(effects["p_value"], method="holm")[1]
    ctx.table(effects, "position-effect", digits=4)
    sure = effects[effects["p_holm"] < level]
    notebook.say(
        f"**Tokens 33-64 less tokens 1-32**, the same prompts, {len(effects)} tests, Holm's p below {level:g}: "
        + (
            "; ".join(
                f"`{r.estimator}` {'rises' if r.estimate > 0 else 'falls'} in {r.domain} by {abs(r.estimate):.3f} [{r.low:+.3f}, {r.high:+.3f}]"
                for r in sure.itertuples()
            )
            or "no position effect can be told from 0"
        )
        + "."
    )
else:
    sure = effects
    notebook.say(
        f"No domain has {stats.MIN_PROMPTS} texts of more than {score.POSITION_BIN} tokens: the question has no answer here."
    )
assert len(sure) <= len(effects)

# %%
pooled = changes[changes["domain"] == score.ALL].set_index("name")
ctx.record(
    change_published_alpha=float(pooled["estimate"].iloc[0]),
    change_published_low=float(pooled["low"].iloc[0]),
    change_published_high=float(pooled["high"].iloc[0]),
    change_best_path=float(pooled.loc["best_path_alpha (rank 0)", "estimate"]),
    change_best_path_low=float(pooled.loc["best_path_alpha (rank 0)", "low"]),
    change_best_path_high=float(pooled.loc["best_path_alpha (rank 0)", "high"]),
    complete_less_cut=gap.estimate,
    complete_less_cut_low=gap.low,
    complete_less_cut_high=gap.high,
    position_effects_tested=len(effects),
    position_effects_found=len(sure),
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: nodes under the best path are worth 0.6 at every depth and nodes under other branches
#    0.4. What is `published_alpha` at depths 1, 2, 3 of the tree 2 + 4 + 2? And of 2 + 4 + 8?
#
# <details><summary>What happens</summary>0.6, 0.5, 0.6 in the cut tree: down and up again, though nothing depends on depth. In the complete
# tree the other branches have 0, 1/2 and 3/4 of the nodes: 0.6, 0.5, 0.45, a steady fall. Two
# trees, two 'effects of depth', and neither is an effect of depth.</details>
#
# 2. In section 4 keep the draft's second choices only: `chain = cut.nodes[cut.nodes["rank"] == 1]`.
#    Why does `score.reach` refuse them?
#
# <details><summary>What happens</summary>A node counts as accepted only with all its ancestors, and the best-path parents of the deeper
# nodes are not among the rows: an error names the orphans, because a silent answer would be about
# another tree.</details>
#
# 3. Set `bandwidth` to 1. What happens to the bands of section 6?
#
# <details><summary>What happens</summary>Each window holds a quarter of the positions but as many prompts. The bands grow, but by less than
# the factor 2 that independent tokens would give, as far as a prompt's own level is what
# varies.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above. A mean over a tree's nodes follows the tree's shape; depth by
#   itself is asked with rank and branch held fixed, and what a decoder has from depth is survival.
# * What this does not show: other trees than these two; sampled children; longer texts; that the
#   paper's own rise is none: its two ranks were not published apart (nor the records of its final
#   run).
# * Next: notebook 05 asks what entropy has to do with acceptance.

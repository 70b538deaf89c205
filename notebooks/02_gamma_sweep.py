# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 2. How many draft tokens should be proposed?
#
# **Answer.** As many as pay for themselves: each further draft token costs the same and is kept at
# most as often as the one before it, so the speed-up has a peak. Where the peak lies is computed in
# section 6 for each domain, with how sure it is; it moves with the cost of a draft pass, which is
# **assumed** here and measured in notebook 10. The picture shows what does not depend on costs:
# `block_efficiency`, the tokens per target pass.
#
# ![Tokens per target pass against gamma, replayed and predicted from the mean acceptance](../figures/tiny/02_block-efficiency.png)
#
# *Runs on* any machine · *minutes* about one on 2 cores · *reads* the runs `greedy` (temperature T
# = 0) and `sampled` (T = 1) of the profile, recorded if they are not there · *writes*
# `figures/<profile>/02_*`.

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

from speclab import (
    estimates as explain,
    cost,
    figures,
    notebook,
    pairs,
    prompts,
    replay,
    runs,
    score,
)
from speclab.analysis import significance
from speclab.analysis import sweep
from speclab.sampling import Sampling
from speclab.studies import gamma_sweep as study

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "tiny"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
largest_gamma: int = 16  # every gamma from 1 to this is replayed
gamma: int = 4  # the one that the sentences below speak of
decoded_gammas: list = [1, 2, 4, 8, 16]  # these are decoded as well, for real,
decoded_prompts: int = 4  # with so many prompts a domain
# c, time of a draft pass over time of a target pass: an assumption (the article's), not a
# measurement
cost_ratio: float = 0.05
other_cost_ratios: list = [
    0.02,
    0.1,
    0.29,
]  # 0.29: llama.cpp, TinyLlama and Llama-2-7B in half precision
# the article's times of a target pass and of a draft pass, for its own rule
target_ms: float = 100.0
draft_ms: float = 5.0
article: dict = {
    "math": [4, 8],
    "chat": [2, 4],
}  # the article's gammas for mathematical proofs and exploratory text, by our nearest domain

# %%
ctx = notebook.start("02_gamma_sweep", profile, overrides)
recorded = {
    "T = 0": runs.load_or_record(ctx.profile.replace(temperature=0.0), "greedy"),
    "T = 1": runs.load_or_record(ctx.profile, "sampled"),
}
rules, gammas = {"T = 0": "greedy", "T = 1": "rejection"}, range(1, largest_gamma + 1)
known = {starts: sweep.estimators(largest_gamma, cost_ratio, starts) for starts in replay.STARTS}
frames = {}  # (text, average): one row a prompt
for text, run in recorded.items():
    at = sweep.positions(run.trace, rules[text])
    for starts in replay.STARTS:
        frames[text, starts] = sweep.per_prompt(
            replay.chain_sums(run.trace, gammas, rules[text], starts), at
        )
curves = [
    sweep.by_gamma(frame, known[starts]).assign(temperature=text, average=starts)
    for (text, starts), frame in frames.items()
]
domains = list(score.domains_in(recorded["T = 0"].trace))
curves = pd.concat(curves, ignore_index=True).query("domain in @domains")
ticks = [1, *range(4, largest_gamma + 1, 4)]
shown = sorted(g for g in {1, 2, 4, 8, 16, gamma, largest_gamma} if g <= largest_gamma)


def of(quantity: str, text: str = "", average: str = "visited", at=gammas) -> pd.DataFrame:
    """Estimates with intervals of one quantity: of one text or of both, at some gammas."""
    rows = curves[
        (curves["quantity"] == quantity) & (curves["average"] == average) & curves["gamma"].isin(at)
    ]
    return rows[rows["temperature"].str.startswith(text)]


def listed(rows: pd.DataFrame, digits: int = 2) -> str:
    """Estimates with intervals by domain, as text."""
    return ", ".join(
        f"{r.domain} {r.estimate:.{digits}f} [{r.low:.{digits}f}, {r.high:.{digits}f}]"
        for r in rows.itertuples()
    )


# %% [markdown]
# ## 1. What gamma does to one text
# The draft proposes gamma tokens in a row; one pass of the target checks them all. The target keeps
# the longest run that agrees with it, and adds one token of its own: the **recovered** token where
# the draft went wrong, or a **bonus** token where all were right. That is one **block**. The text
# is the target's own whatever gamma is; what gamma changes is where the blocks are cut, and so how
# many target passes the text takes and how many drafts are thrown away.
#
# The recorder stored, at each position of the target's text, how the draft ranked the target's
# token. At T = 0 a draft token is accepted where that rank is 0, so the blocks of every gamma can
# be read off without running a model: that is the **replay**. The picture replays one text: among
# the longest ones, the one whose tokens per pass are in the middle.

# %%
trace = recorded["T = 0"].trace
sizes = trace.groupby("prompt_id", sort=False).size()
blocks = {g: replay.replay(trace, g) for g in gammas}
sums = (
    replay.prompt_sums(blocks[gamma]).set_index("prompt_id").loc[sizes.index[sizes == sizes.max()]]
)
tau = (sums["emitted"] / sums["blocks"]).sort_values(kind="stable")
chosen = tau.index[(len(tau) - 1) // 2]


def strip(axes, g: int, row: float) -> str:
    """The chosen text, a cell a token: blue = drafted and kept, black = the target's own, which
    ends a block; returns it in words.
    """
    rows = blocks[g][blocks[g]["prompt_id"] == chosen]
    own = rows[~rows["truncated"]]
    shape = {"yrange": (row - 0.36, 0.72), "linewidth": 0}
    axes.broken_barh(
        [(t + 0.1, 0.8) for t in range(rows["emitted"].sum())],
        color=figures.OTHER_COLOURS[2],
        **shape,
    )
    axes.broken_barh(
        [(t + 0.1, 0.8) for t in own["start"] + own["accepted"]], color="black", **shape
    )
    tokens, kept, drafted = rows["emitted"].mean(), rows["accepted"].sum(), rows["drafted"].sum()
    return f"{len(rows)} passes · {tokens:.2f} tokens each · {kept} of {drafted} drafts kept"


fig, ax = figures.subplots(height=0.9 + 0.27 * len(shown))
for row, g in enumerate(shown):
    ax.text(1.01, row, strip(ax, g, row), transform=ax.get_yaxis_transform(), va="center")
ax.set(
    yticks=range(len(shown)),
    yticklabels=[f"gamma {g}" for g in shown],
    ylim=(len(shown) - 0.5, -0.5),
    xlim=(0, sizes.max()),
)
ax.set(xlabel="position in the target's text (tokens)")
ax.set(title="blue: a draft that was kept · black: the target's own token, which ends a pass")
ax.grid(False)
ctx.save(fig, "one-text")
assert all(
    rows.groupby("prompt_id", sort=False)["emitted"].sum().equals(sizes) for rows in blocks.values()
), "one text, whatever gamma"

# %% [markdown]
# ## 2. Tokens per target pass
# `block_efficiency` = emitted tokens per target pass. At T = 0 the replay counts what a decoder
# would count (greedy rule). At T = 1 the text was sampled from the target and the rule is
# rejection: the draft's tokens are drawn from q and kept with probability min(1, p/q); the replay
# averages over the draws exactly. All intervals are 95 % and resample prompts.
#
# There are two ways to average. A decoder starts a block where the last one ended: **visited
# blocks**. Or each position counts once as a possible start: **every position**. Both are drawn,
# since they answer different questions: the first is what a decoder gets, the second what a start
# picked at random would give. The second table is their difference. The black and the orange line
# are the subject of section 4.

# %%
ctx.table(
    explain.wide(of("block_efficiency", at=shown), ["temperature", "gamma"], "domain"),
    "block-efficiency",
)
curves.to_csv(
    ctx.figures / f"{ctx.number}_sweep.csv", index=False, float_format="%.5g"
)  # every quantity at every gamma
drawn = {  # quantity, average: how it is drawn
    ("block_efficiency", "visited"): {"label": "replay, visited blocks", "markersize": 3},
    ("block_efficiency", "every"): {
        "label": "replay, every position",
        "linewidth": 0.9,
        "linestyle": ":",
    },
    ("iid", "visited"): {
        "label": "i.i.d. formula",
        "color": "black",
        "linewidth": 0.9,
        "linestyle": "--",
    },
    ("markov", "visited"): {
        "label": "… with the lag-1 correlation",
        "color": figures.OTHER_COLOURS[1],
        "linewidth": 1.2,
    },
}
fig, axes = figures.subplots(2, len(domains), height=4.2, sharex=True, sharey="row", squeeze=False)
for line, text in zip(axes, recorded, strict=True):
    for ax, domain in zip(line, domains, strict=True):
        own = {"color": figures.DOMAIN_COLOURS.get(domain, "black")}
        for (quantity, average), style in drawn.items():
            rows = of(quantity, text, average).query("domain == @domain")
            ax.plot(rows["gamma"], rows["estimate"], **own | style)
            if style["label"] == "replay, visited blocks":
                ax.fill_between(
                    rows["gamma"], rows["low"], rows["high"], alpha=0.2, linewidth=0, **own
                )
        ax.set(title=f"{domain}, {text}", xticks=ticks)
    line[0].set(ylabel="block_efficiency\n(tokens per target pass)")
fig.supxlabel("gamma (draft tokens proposed)", fontsize=8)
figures.legend_above(fig, axes[0, 0])
ctx.save(fig, "block-efficiency")

# %%
twice = []
for text in recorded:
    every, visited = (
        frames[text, starts].set_index("domain", drop=False) for starts in ("every", "visited")
    )
    for domain in domains:
        tau = score.member(known["visited"]["block_efficiency"], gamma)
        twice.append(
            {"temperature": text, "domain": domain}
            | vars(significance.paired_difference(every.loc[domain], visited.loc[domain], tau))
        )
twice = pd.DataFrame(twice).drop(
    columns="p_value"
)  # a test by swapping needs as many blocks on both sides
notebook.say(f"Every position minus visited blocks, at gamma = {gamma}:")
ctx.table(twice, "every-minus-visited")
for text in recorded:
    tau = of("block_efficiency", text).pivot(index="gamma", columns="domain", values="estimate")[
        domains
    ]
    reached = (tau - 1 >= (tau.loc[largest_gamma] - 1) / 2) & (tau.loc[largest_gamma] > 1)
    first = [
        f"{reached[d].idxmax() if reached[d].any() else 'none (nothing is added)'} in {d}"
        for d in domains
    ]
    rows = twice[twice["temperature"] == text]
    notebook.say(
        f"**{text}.** `block_efficiency` at gamma = {gamma}, visited blocks: {listed(of('block_efficiency', text, at=[gamma]))}. Half of "
        f"what {largest_gamma} draft tokens add to plain decoding's one token per pass is there with gamma = "
        f"{', '.join(first)}. The average over every position "
        + explain.by_direction(
            rows, "is higher in", "is lower in", "cannot be told apart from it in"
        )
        + "."
    )
    for average in replay.STARTS:
        tau = of("block_efficiency", text, average).pivot(
            index="gamma", columns="domain", values="estimate"
        )
        assert (tau.diff().dropna() > -1e-9).all(axis=None), (
            "a longer draft never costs a decoder a token"
        )
        assert (tau >= 1 - 1e-9).all(axis=None) and (tau.sub(tau.index + 1, axis=0) < 1e-9).all(
            axis=None
        )

# %% [markdown]
# ## 3. Decoded, not only replayed
# A replay is arithmetic on a recorded text. Here the decoder does it: both models, their caches,
# one target pass a block, with some of the prompts and some gammas. At T = 0 the text is the same,
# so the counts must be the same, prompt by prompt. At T = 1 the decoder draws new texts; the replay
# gives the expectation over the draft's draws on the recorded ones, so both agree in the mean and
# not to the token.

# %%
pair, some = (
    pairs.load_pair(ctx.profile),
    prompts.load_prompts(ctx.profile.prompts, decoded_prompts, ctx.profile.domains),
)
encoded = prompts.encode_prompts(
    pair.tokenizer, some, ctx.profile.max_prompt_tokens, ctx.profile.template
)
ids, few, real = (
    [p.prompt_id for p in encoded],
    [g for g in decoded_gammas if g <= largest_gamma],
    {},
)
fig, axes = figures.subplots(1, 2, height=2.4, sharey=True)
for ax, (text, run) in zip(axes, recorded.items(), strict=True):
    warm, same = Sampling(float(text == "T = 1")), run.trace.query("prompt_id in @ids")
    own = study.decoded_sweep(
        pair, encoded, few, rules[text], warm, ctx.profile.max_new_tokens, ctx.profile.seed
    )
    rows = real[text] = sweep.beside(own, replay.chain_sums(same, few, rules[text]))
    line = replay.rates(replay.chain_sums(same.assign(domain="all"), gammas, rules[text]))
    ax.plot(line["gamma"], line["block_efficiency"], color="black", linewidth=1, label="replayed")
    bars = [rows["decoded"] - rows["low"], rows["high"] - rows["decoded"]]
    ax.errorbar(
        rows["gamma"],
        rows["decoded"],
        bars,
        fmt="o",
        color=figures.OTHER_COLOURS[2],
        markersize=4,
        label="decoded, 95 % interval",
    )
    ax.set(
        title=f"{text}, the same {len(ids)} prompts",
        xlabel="gamma (draft tokens proposed)",
        xticks=ticks,
    )
axes[0].set(ylabel="block_efficiency\n(tokens per target pass)")
figures.legend_above(fig, axes[0])
ctx.save(fig, "decoded")
ctx.table(
    pd.concat(real, names=["temperature"])
    .reset_index("temperature")
    .set_index(["temperature", "gamma"]),
    "decoded",
)
cold, off = real["T = 0"], real["T = 1"].query("difference_low > 0 or difference_high < 0")["gamma"]
exact = (str(pair.target.dtype), pair.target.device.type) == (
    "torch.float32",
    "cpu",
)  # elsewhere a near tie may fall the other way
notebook.say(
    f"**T = 0:** in {cold['prompts'].sum() - cold['unequal'].sum()} of {cold['prompts'].sum()} decodings (prompts x gammas) "
    "blocks and tokens are those of the replay. **T = 1:** the interval of decoded minus replayed leaves 0 out "
    + (
        f"at gamma = {', '.join(map(str, off))} (the gammas share prompts)."
        if len(off)
        else "at no gamma."
    )
)
assert not exact or not cold["unequal"].any(), (
    "greedy: decoded = replayed, for every prompt and gamma"
)

# %% [markdown]
# ## 4. Why the i.i.d. formula misses
# If every draft token were accepted with probability alpha, independently, a pass would give (1 -
# alpha^(gamma+1)) / (1 - alpha) tokens: the dashed line. alpha is measured on the same texts: the
# share of positions where the draft's best token is the target's (`hit[1]`) at T = 0, the mean
# overlap of p and q (`alpha`) at T = 1. The formula can miss for three reasons, and two of them can
# be computed apart:
#
# * **The text ends.** The last block is cut, and a text of one token is one block of one token,
#   whatever the draft is worth. `from_text_end`: i.i.d. acceptance replayed over texts of these
#   lengths, minus the formula.
# * **Acceptance comes in runs.** `lag1` is the correlation of acceptance at neighbouring positions.
#   If it is positive, a rejection makes the next one likelier, and a rejection is where a block
#   starts. `from_lag1`: what a chain with this one correlation gives (the orange line of the
#   picture), minus i.i.d.
# * **The rest**: prompts that differ (an easy one has few blocks, so hard ones weigh more) and
#   memory beyond one position.

# %%
parts = {
    text: sweep.gap_parts(frames[text, "visited"], known["visited"], run.trace, gamma)
    for text, run in recorded.items()
}
why = pd.concat(parts, names=["temperature"]).reset_index("temperature")
notebook.say(
    f"At gamma = {gamma}, visited blocks; the gap and its parts in tokens per target pass:"
)
ctx.table(
    why.set_index(["temperature", "domain"]).rename(columns={"low": "gap_low", "high": "gap_high"}),
    "why-not-iid",
)
for text, rows in why.groupby("temperature", sort=False):
    lags = rows.assign(low=rows["lag1_low"], high=rows["lag1_high"])
    mean = rows[["replay_minus_iid", "from_text_end", "from_lag1", "rest"]].mean()
    notebook.say(
        f"**{text}**, gamma = {gamma}. Against the i.i.d. formula the replay "
        + explain.by_direction(rows, "is higher in", "is lower in", "cannot be told apart in")
        + ". The lag-1 correlation "
        + explain.by_direction(
            lags, "is positive in", "is negative in", "cannot be told apart from 0 in"
        )
        + ". In the mean of the "
        f"domains the gap is {mean['replay_minus_iid']:+.2f} tokens per pass: {mean['from_text_end']:+.2f} from the text's end, "
        f"{mean['from_lag1']:+.2f} from the lag-1 correlation, {mean['rest']:+.2f} from the rest. The largest of the three is "
        f"`{rows[['from_text_end', 'from_lag1', 'rest']].abs().mean().idxmax()}` (mean size over the domains)."
    )
assert (why["from_text_end"] < 1e-9).all(), "an end can only cut a block short"
assert ((why["from_lag1"] < 1e-9) | ~(why["lag1"] > 0)).all() and (
    (why["from_lag1"] > -1e-9) | ~(why["lag1"] < 0)
).all()

# %% [markdown]
# ## 5. How many drafts are thrown away
# `draft_utilisation` = accepted draft tokens / drafted ones. All tokens behind a rejection are
# lost, so a longer draft wastes more. vLLM calls it the draft acceptance rate; it depends on gamma
# and is not alpha.

# %%
fig, axes = figures.subplots(1, 2, height=2.3, sharey=True)
for ax, text in zip(axes, recorded, strict=True):
    figures.lines_with_bands(of("draft_utilisation", text), ax, x="gamma")
    ax.set(
        title=f"{text}, visited blocks",
        xlabel="gamma (draft tokens proposed)",
        ylim=(0, 1),
        xticks=ticks,
    )
axes[0].set(ylabel="draft_utilisation\n(accepted / drafted)")
figures.legend_above(fig, axes[0])
ctx.save(fig, "draft-utilisation")
for text in recorded:
    few = {
        g: listed(of("draft_utilisation", text, at=[g])) for g in sorted({1, gamma, largest_gamma})
    }
    notebook.say(
        f"**{text}**, `draft_utilisation`: "
        + "; ".join(f"at gamma = {g} {values}" for g, values in few.items())
        + "."
    )
assert of("draft_utilisation")["estimate"].between(0, 1).all()

# %% [markdown]
# ## 6. Estimated speed-up, and the best gamma
# Time of a block with the draft: gamma draft passes and one target pass, gamma c + 1 target passes;
# without it every token costs one. So the **standard** estimate is block_efficiency / (gamma c + 1)
# (Leviathan et al., arXiv:2211.17192). It takes a target pass over gamma + 1 tokens to cost as much
# as over one, and a loop that costs nothing. c is a parameter here.
#
# The **article's** rule is (e T) / (t e + T) with T and t the times of a target and of a draft
# pass, and e = alpha gamma accepted tokens (its best case: e = gamma). It counts no bonus token,
# and charges only for drafts that are accepted.
#
# Both are estimates. Wall-clock time that was measured, with the decoder at work, is in notebook
# 10.

# %%
fig, axes = figures.subplots(2, len(domains), height=4.2, sharex=True, sharey="row", squeeze=False)
for line, text in zip(axes, recorded, strict=True):
    for ax, domain in zip(line, domains, strict=True):
        rows = of("speedup", text).query("domain == @domain")
        figures.lines_with_bands(rows, ax, x="gamma")
        alpha = parts[text].set_index("domain")["alpha"][domain]
        rule = cost.speedup_article(max(alpha, 1e-9) * pd.Series(gammas), target_ms, draft_ms)
        ax.plot(
            gammas,
            rule,
            color="black",
            linestyle=(0, (1, 1.5)),
            linewidth=1,
            label="article's rule",
        )
        peak = rows.loc[rows["estimate"].idxmax()]
        ax.plot(peak["gamma"], peak["estimate"], "*", color="black", markersize=9, zorder=5)
        ax.axhline(1, color="black", linewidth=0.6)
        if domain in article:
            ax.axvspan(
                article[domain][0] - 0.5, article[domain][1] + 0.5, color="#e4e4e4", zorder=0
            )
        ax.set(title=f"{domain}, {text}", xticks=ticks)
    top = of("speedup", text)["high"].max()
    line[0].set(ylim=(min(0.8, of("speedup", text)["low"].min()), 1 + 1.15 * max(top - 1, 0.2)))
    line[0].set(ylabel=f"estimated speed-up\n(assumed c = {cost_ratio:g})")
fig.supxlabel("gamma (draft tokens proposed)", fontsize=8)
fig.suptitle(
    "coloured: standard estimate (star: its peak) · dotted: the article's rule · grey: the article's gamma",
    fontsize=8,
)
ctx.save(fig, "speed-up")

# %%
# In a notebook that somebody has open: drag gamma. Headless (SPECLAB_OUT is set) the picture above
# stands for it.
if "SPECLAB_OUT" not in os.environ:
    from ipywidgets import IntSlider, interact

    def at_gamma(g: int) -> None:
        """The chosen text at one gamma, and what all texts give there."""
        _, axes = figures.subplots(2, 1, height=2.9, height_ratios=[1, 3])
        axes[0].set(title=f"gamma = {g}, one text at T = 0: {strip(axes[0], g, 0)}")
        axes[0].set(yticks=[], xlim=(0, sizes.max()))
        figures.lines_with_bands(of("speedup", "T = 0"), axes[1], x="gamma")
        axes[1].axvline(g, color="black", linewidth=0.8)
        axes[1].set(xlabel="gamma (draft tokens proposed)", ylabel="estimated speed-up")
        axes[1].set(
            title=f"estimated speed-up of all texts: {listed(of('speedup', 'T = 0', at=[g]))}"
        )
        axes[1].legend(loc="center left", bbox_to_anchor=(1, 0.5))

    interact(at_gamma, g=IntSlider(gamma, 1, largest_gamma, description="gamma"))


# %%
share = {
    text: sweep.best_gamma(frames[text, "visited"], known["visited"]["speedup"])
    for text in recorded
}
best = pd.concat(
    [sweep.choices(table).assign(temperature=text) for text, table in share.items()],
    ignore_index=True,
)
best["row"] = best["temperature"] + ", " + best["domain"]
best["article"] = best["domain"].map({d: "{}-{}".format(*limits) for d, limits in article.items()})
whole = pd.concat(
    [table.assign(row=text + ", " + table["domain"]) for text, table in share.items()]
)
limits = whole["domain"].map(lambda d: article.get(d, [1, 0]))
inside = whole["gamma"].between(limits.str[0], limits.str[1])
best["share_in_article"] = best["row"].map(whole[inside].groupby("row")["share_best"].sum())
for c in other_cost_ratios:
    tools = sweep.estimators(largest_gamma, c)
    found = pd.concat(
        [
            sweep.choices(sweep.best_gamma(frames[text, "visited"], tools["speedup"]))
            for text in recorded
        ],
        ignore_index=True,
    )
    best[f"best_at_c_{c:g}"] = [
        f"{b} ({low}-{high})"
        for b, low, high in found[["best", "best_low", "best_high"]].to_numpy()
    ]
ctx.table(best.drop(columns="row").set_index(["temperature", "domain"]), "best-gamma")
fig, ax = figures.subplots(height=0.9 + 0.24 * len(best))
grid = whole.pivot(index="row", columns="gamma", values="share_best").loc[best["row"]]
figures.heatmap(grid.where(grid >= 0.005), ax, "share of resamples", low=0, high=1)
ax.set(xlabel="gamma (0: plain decoding)", ylabel="")
ax.set(
    title=f"how often each gamma is the fastest, assumed c = {cost_ratio:g} (frame: the article's gamma)"
)
for row, limits in enumerate(best["domain"].map(article)):
    if isinstance(limits, list):
        frame = {
            "facecolor": "none",
            "edgecolor": figures.OTHER_COLOURS[1],
            "linewidth": 2,
            "clip_on": False,
        }
        ax.broken_barh([(limits[0], limits[1] - limits[0] + 1)], (row, 1), **frame)
ctx.save(fig, "best-gamma")


# %%
def span(low: int, high: int) -> str:
    """A range of gammas in words."""
    return f"{low}" if low == high else f"{low} to {high}"


for text, rows in best.groupby("temperature", sort=False):
    table = share[text].pivot(index="gamma", columns="domain", values="share_best")
    peaks = [
        of("speedup", text, at=[r.best]).query("domain == @r.domain")
        for r in rows.itertuples()
        if r.best
    ]
    notebook.say(
        f"**{text}, assumed c = {cost_ratio:g}.** Best gamma (and the range of 95 % of the resamples): "
        + ", ".join(
            f"{r.domain} **{r.best}** ({span(r.best_low, r.best_high)})" for r in rows.itertuples()
        )
        + f". Estimated speed-up there: {', '.join(map(listed, peaks)) or 'none'}. As good, as far as these prompts can tell: "
        + ", ".join(f"{r.domain} {span(r.as_good_low, r.as_good_high)}" for r in rows.itertuples())
        + "."
        + (
            " A best gamma of 0 means that plain decoding is the fastest."
            if (rows["best"] == 0).any()
            else ""
        )
        + (
            " A best gamma at the end of the sweep may lie beyond it."
            if (rows["best"] == largest_gamma).any()
            else ""
        )
    )
    for r in rows.dropna(subset="share_in_article").itertuples():
        verdict = (
            "holds"
            if r.share_in_article >= 0.95
            else "does not hold"
            if r.share_in_article <= 0.05
            else "is not decided"
        )
        claim = (
            f"The article's gamma for {r.domain}, {r.article}, {verdict} on these texts at this c"
        )
        notebook.say(
            f"{claim}: the best gamma is in that range in {r.share_in_article:.0%} of the resamples."
        )
    if {"math", "chat"} <= set(table):
        more = sum(table.loc[g, "math"] * table.loc[: g - 1, "chat"].sum() for g in table.index)
        same = (table["math"] * table["chat"]).sum()
        notebook.say(
            f"The best gamma is larger for math than for chat in {more:.0%} of the resamples and the same in {same:.0%}."
        )
    assert (
        np.allclose(table.sum(), 1)
        and rows["best"].between(rows["as_good_low"], rows["as_good_high"]).all()
    )

# %%
c, rule = draft_ms / target_ms, cost.speedup_article(0.85 * np.array(gammas), target_ms, draft_ms)
notebook.say(
    f"**The article's rule has no peak.** It rises with every gamma, whatever alpha, towards T / t = {target_ms / draft_ms:g}, so it "
    f"cannot choose one. On the article's own example (alpha 0.85, gamma 4, T = {target_ms:g} ms, t = {draft_ms:g} ms) it gives "
    f"{cost.speedup_article(0.85 * 4, target_ms, draft_ms):.2f}, and {cost.speedup_article(4, target_ms, draft_ms):.2f} in its best case; "
    f"the standard model gives {cost.speedup_iid(0.85, 4, c):.2f}, and {cost.speedup_standard(5, 4, c):.2f} if everything is accepted."
)
assert (np.diff(rule) > 0).all()
short = {"temperature": {"T = 0": "t0", "T = 1": "t1"}}
ctx.record(
    gamma=gamma,
    cost_ratio=cost_ratio,
    **{
        f"block_efficiency_{r.domain}_{r.temperature}": r.estimate
        for r in of("block_efficiency", at=[gamma]).replace(short).itertuples()
    },
    **{f"best_gamma_{r.domain}_{r.temperature}": r.best for r in best.replace(short).itertuples()},
    **{
        f"lag1_{r.domain}_{r.temperature}": r.lag1
        for r in why.dropna(subset="lag1").replace(short).itertuples()
    },
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: the draft is right at 3 positions, wrong at the next, right at 3, wrong, and so on
#    without end. How many tokens per pass do gamma = 3, 4 and 8 give, and what does the i.i.d.
#    formula say for gamma = 3?
#
# <details><summary>What happens</summary>Each block keeps 3 drafts, and its fourth token is the target's own: a bonus token at gamma = 3, a
# recovered one at gamma = 4 and 8. So it is always 4 tokens per pass, and a draft longer than 3
# buys nothing. The formula with alpha = 3/4 says (1 - 0.75⁴)/0.25 = 2.73. Here the rejections stand
# as far apart as they can (a negative lag-1 correlation): independence is the wrong picture, in the
# other direction.</details>
#
# 2. Set `cost_ratio` to 0.29, which was measured for TinyLlama and Llama-2-7B in half precision.
#    Where do the peaks go, and does the first picture change?
#
# <details><summary>What happens</summary>The peaks move to smaller gamma, as the table's column for 0.29 says, and the longest drafts may
# cost more than they bring. `block_efficiency` does not change: no cost enters it.</details>
#
# 3. In section 6, take `frames[text, "every"]` instead of `frames[text, "visited"]`. Do the best
#    gammas move?
#
# <details><summary>What happens</summary>Where every position gives the higher average, and more so for long drafts, the best gamma moves
# up. That is a mistake to avoid: a decoder has no such starts, it begins behind its own
# rejections.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above. Tokens per pass never fall with gamma; the estimated speed-up
#   has a peak, and where it lies depends on c (the table's last columns) and, where the table's
#   ranges differ, on the domain.
# * What this does not show: time. c is assumed, a target pass over gamma + 1 tokens is taken to
#   cost what one token costs, and the loop is free; notebook 10 measures all three, and the speed
#   of the decoder itself. The best gammas are for these prompts and for texts of this length: a
#   text's end can only lower a curve.
# * Next: notebook 03 asks how acceptance differs between the domains, and what 'acceptance' is.

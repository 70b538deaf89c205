# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 6. Is chat really the easiest domain, although its entropy is highest?
#
# **Answer.** The verdict for the pair at hand is the computed sentence at the end of section 4; the
# picture shows the question and, for the kit's own small pair, the answer. In the paper (left) chat
# stands highest and furthest right: the highest mean of min(1, p/q) and the highest target entropy,
# while in each domain acceptance falls with entropy. Beside it the same procedure on this pair
# (`published_alpha`), and the acceptance of one sampled draft token (`alpha`, at the positions of
# the greedy text) against the entropy of that text.
#
# ![Entropy and acceptance of four domains: in the paper and on this pair](../figures/tiny/06_entropy-and-acceptance.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the runs `greedy` (T = 0),
# `chat-template` (the same prompts in the target's chat format) and `sampled` (T = 1) of the
# profile, recorded if they are not there · *writes* `figures/<profile>/06_*`.

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

from speclab.studies import chat_paradox
from speclab.analysis import significance
from speclab.analysis import bins as binned
from speclab import files
from speclab import estimates as explain, figures, notebook, pairs, runs, score
from speclab.analysis import published as paper, token_kinds as tokens
from speclab.estimates import direction

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "tiny"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
domain: str = "chat"  # the domain that is set against the mean of the others
bins: int = 8  # quantile bins of target entropy and of token frequency when domains are matched

# %%
ctx = notebook.start("06_chat_paradox", profile, overrides)
greedy, template, sampled = (
    runs.load_or_record(ctx.profile, kind) for kind in ("greedy", "chat-template", "sampled")
)
nodes, trace = greedy.nodes.assign(alpha=score.alpha(greedy.nodes)), greedy.trace.copy()
domains = list(score.domains_in(nodes, [domain]))
others = [name for name in domains if name != domain]
WORDS = ("above", "below", "not to be told apart from")


def signed(interval) -> str:
    """An interval as text, with signs."""
    return f"{interval.estimate:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def state(entropy: chat_paradox.Contrast, acceptance: chat_paradox.Contrast) -> str:
    """What the resamples say: a paradox needs the domain to be highest in entropy and in
    acceptance.
    """
    shares = [entropy.share_highest, acceptance.share_highest]
    if min(shares) > 0.975:
        return "there is a paradox"
    return (
        "there is no paradox"
        if min(shares) < 0.025
        else "whether there is a paradox cannot be told"
    )


# %% [markdown]
# ## 1. Is there a paradox on this pair at all?
# Two things make the paradox: of all domains this one has the highest target entropy, and the
# highest acceptance. (Notebook 05 has the third: whether acceptance falls as entropy rises.) The
# paradox is said to be there if the domain is highest in both in more than 97.5 % of 2,000
# resamples of the prompts, not to be there if it is so in one of them in fewer than 2.5 %. How far
# from the others it stands is written as one number, the **contrast**: the domain's value minus the
# mean of the other domains' values, with a 95 % interval.
#
# In the table, `published` is the paper's number (Llama-2-7B and TinyLlama), `ours_as_published`
# the same procedure on this pair over all nodes of the draft trees, `corrected` the estimator named
# beside it, over the positions of the target's own text.

# %%
table = paper.comparison("I", greedy)
table = table[table["quantity"].isin(["alpha_mean", "target_entropy_mean"])]
ctx.table(table.drop(columns=["depth", "bin"]).reset_index(drop=True), "table-1")
acceptance, entropy = (
    table[table["quantity"] == name].set_index("domain").loc[domains]
    for name in ("alpha_mean", "target_entropy_mean")
)
BY_ALPHA = "by alpha, on the greedy text"
panels = {
    "the paper": ["published"] * 3,
    "this pair, as published": paper.OURS,
    BY_ALPHA: ["corrected", "low", "high"],
}
fig, axes = figures.subplots(1, 3, height=2.7)
for ax, (title, columns) in zip(axes, panels.items(), strict=True):
    for name in domains:
        (x, x_low, x_high), (y, y_low, y_high) = (
            entropy.loc[name, columns],
            acceptance.loc[name, columns],
        )
        reach = (
            {"xerr": [[x - x_low], [x_high - x]], "yerr": [[y - y_low], [y_high - y]]}
            if title != "the paper"
            else {}
        )
        ax.errorbar(
            x,
            y,
            **reach,
            capsize=2,
            elinewidth=1.2,
            label=name,
            **figures.style_of(name) | {"linestyle": "none"},
        )
    at = (entropy.loc[domain, columns[0]], acceptance.loc[domain, columns[0]])
    ax.annotate(
        domain,
        at,
        (5, 5),
        textcoords="offset points",
        color=figures.DOMAIN_COLOURS[domain],
        weight="bold",
    )
    ax.margins(0.3, 0.15)
    ax.set(title=title, xlabel="mean target entropy, nats")
for ax, label in zip(axes, ["published_alpha", "published_alpha", "alpha"], strict=True):
    ax.set_ylabel(label)
figures.legend_above(fig, axes[1])
ctx.save(fig, "entropy-and-acceptance")
assert acceptance[["ours_as_published", "corrected"]].stack().between(0, 1).all()

# %%
mean_entropy = score.mean_of("target_entropy")
entropy_nodes, entropy_text = (
    chat_paradox.contrast(frame, mean_entropy, domain) for frame in (nodes, trace)
)
lead_published, lead_exact = (
    chat_paradox.contrast(nodes, score.published_alpha, domain),
    chat_paradox.contrast(trace, score.overlap_alpha, domain),
)
of_paper = {"entropy": entropy["published"], "alpha": acceptance["published"]}
printed = {name: values[domain] - values[others].mean() for name, values in of_paper.items()}
notebook.say(
    f"**The paper.** {domain} has {printed['entropy']:+.3f} nats of entropy and {printed['alpha']:+.3f} of `published_alpha` against the "
    f"mean of the other {len(others)} domains."
)
views = [
    ("the paper's procedure", entropy_nodes, "published_alpha", lead_published),
    (BY_ALPHA, entropy_text, "alpha", lead_exact),
]
for how, nats, name, lead in views:
    notebook.say(
        f"**This pair, {how}: {state(nats, lead)}.** Entropy {signed(nats)} nats, the highest of all in "
        f"{100 * nats.share_highest:.0f} % of the resamples; `{name}` {signed(lead)}, the highest in {100 * lead.share_highest:.0f} %."
    )
assert (
    abs(
        lead_exact.estimate
        - (acceptance.loc[domain, "corrected"] - acceptance.loc[others, "corrected"].mean())
    )
    < 1e-9
)

# %% [markdown]
# ## 2. Under which estimator?
# The same contrast for every rung of the ladder (GLOSSARY.md). The rungs of T = 0 come from the
# target's greedy text; those of T = 1 from text sampled from it, with the point-mass rule for the
# tree. The number at the right edge is the share of resamples in which the domain is the highest of
# all: 25 % would be a draw between four.

# %%
ladder = pd.concat(
    [
        chat_paradox.ladder_contrasts(greedy, domain).assign(text="T = 0"),
        chat_paradox.ladder_contrasts(sampled, domain, "point-mass").assign(text="T = 1"),
    ],
    ignore_index=True,
)
files.export(ladder, ctx.figures, f"{ctx.number}_ladder-contrasts-values")
ctx.table(explain.wide(ladder, ["estimator"], "text", digits=3), "ladder-contrasts")
zero = [
    "published_alpha",
    "alpha_by_rank[0]",
    "alpha_by_rank[1]",
    "best_path_alpha",
    "alpha",
    "hit[1]",
    "hit[2]",
]
shown = ladder[
    (
        (ladder["text"] == "T = 0")
        & ladder["estimator"].isin([*zero, "published_length", "mean_accepted"])
    )
    | (
        (ladder["text"] == "T = 1")
        & ladder["estimator"].isin(["alpha", "top_mass[1]", "top_mass[2]", "mean_accepted"])
    )
]
shown = shown.assign(rung=shown["estimator"] + ", " + shown["text"]).dropna(subset="estimate")
length = paper.published("II").set_index("domain")["published"]
crosses = {
    "published_alpha, T = 0": printed["alpha"],
    "published_length, T = 0": length[domain] - length[others].mean(),
}
in_tokens, cross = (
    shown["estimator"].isin(["published_length", "mean_accepted"]),
    figures.style_of("published") | {"linestyle": "none"},
)
fig, axes = figures.subplots(
    2, 1, height=4.2, height_ratios=[max((~in_tokens).sum(), 1), max(in_tokens.sum(), 1)]
)
for ax, rows, unit in zip(
    axes,
    (shown[~in_tokens], shown[in_tokens]),
    ("share of tokens", "tokens per target pass"),
    strict=True,
):
    figures.interval_bars(rows.assign(pair="this pair"), ax, "rung", hue="pair", horizontal=True)
    for place, row in enumerate(rows.itertuples()):
        ax.annotate(
            f"{100 * row.share_highest:.0f} %",
            (1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
        )
        ax.plot(crosses.get(row.rung, float("nan")), place, **cross, label="the paper", zorder=4)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set(xlabel=f"{domain} − mean of the other domains, {unit}", ylim=(len(rows) - 0.5, -0.5))
axes[0].annotate("highest", (1.01, 1.02), xycoords="axes fraction")
handles = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
fig.legend(handles.values(), handles, loc="outside upper center", ncols=2)
ctx.save(fig, "ladder-contrasts")
assert ladder["share_highest"].dropna().between(0, 1).all()

# %%
sides = {
    word: [f"`{row.rung}`" for row in shown.itertuples() if direction(row, *WORDS) == word]
    for word in WORDS
}
notebook.say(
    f"Of {len(shown)} rungs, "
    + "; ".join(
        f"{len(rungs)} put {domain} **{word}** the other domains ({', '.join(rungs)})"
        for word, rungs in sides.items()
        if rungs
    )
    + "."
)
mix = nodes.groupby("domain")["rank"].value_counts(normalize=True).unstack(fill_value=0.0)
by_rank = {
    rank: chat_paradox.contrast(nodes, score.member(score.alpha_by_rank, rank), domain).estimate
    for rank in mix
}
notebook.say(
    f"**Ranks.** The share of rank-0 nodes differs between domains by {mix[0].max() - mix[0].min():.3f} at most. The contrast of "
    f"`published_alpha`, {lead_published.estimate:+.3f}, is made of "
    + ", ".join(
        f"{mix[rank].mean() * value:+.3f} from rank {rank}" for rank, value in by_rank.items()
    )
    + " (each rank's own contrast times its share of nodes)."
)
if (mix.max() - mix.min()).max() < 1e-9:
    assert (
        abs(
            sum(mix[rank].mean() * value for rank, value in by_rank.items())
            - lead_published.estimate
        )
        < 1e-9
    )

# %% [markdown]
# ## 3. What kinds of token is each domain made of?
# A domain may be easy because of what it is made of: the second half of a word may be easier to
# guess than the first. Each token of the target's text gets a kind (`speclab.analysis.token_kinds`;
# what begins a word, a name or a keyword is one kind, so that code and prose can be compared), and
# a frequency: its share among the tokens of all *other* prompts. Kinds with rows of fewer than five
# prompts in a domain have no point.

# %%
tokenizer = pairs.load_tokenizer(pairs.model_folder(ctx.profile.target))
pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
marked = (
    sum(piece.startswith("\u2581") for piece in pieces) > len(pieces) // 10
)  # SentencePiece: pieces keep the space, decode does not
strings = pieces if marked else [tokenizer.decode([token]) for token in range(len(tokenizer))]
trace["kind"] = tokens.token_kinds(tokens.classify(trace, strings))
trace["frequency"] = binned.frequency_elsewhere(trace)
kinds = binned.group_means(trace, "overlap", "kind")
parts = trace.groupby("domain")["kind"].value_counts(normalize=True).rename("share").reset_index()
kinds = kinds.merge(parts, on=["domain", "kind"], how="left")
order = trace["kind"].value_counts().index.tolist()
kinds = kinds.sort_values(
    ["domain", "kind"],
    key=lambda names: names.map([*domains, score.POOLED, *order].index),
    kind="stable",
)
files.export(kinds.reset_index(drop=True), ctx.figures, f"{ctx.number}_token-kinds-values")
ctx.table(explain.wide(kinds, ["kind"], "domain").fillna("too few"), "token-kinds")

# %%
own = kinds[kinds["domain"].isin(domains)]
fig, (above, below) = figures.subplots(2, 1, height=3.8, sharex=True, height_ratios=[2, 1])
figures.interval_bars(own, above, "kind")
figures.interval_bars(
    own.assign(none=float("nan")), below, "kind", y="share", low="none", high="none"
)
above.set(ylabel="alpha (mean overlap)", xlim=(-0.5, own["kind"].nunique() - 0.5))
below.set(ylabel="share of\npositions", xlabel="kind of token", ylim=(0, None))
figures.legend_above(fig, above)
ctx.save(fig, "token-kinds")
top = own[own["domain"] == domain].sort_values("share", ascending=False)
common = trace.groupby("domain")["frequency"].mean()
notebook.say(
    f"The most frequent kinds in {domain}: "
    + ", ".join(
        f"{row.kind} ({100 * row.share:.0f} % of the positions, `alpha` {row.estimate:.2f} [{row.low:.2f}, {row.high:.2f}])"
        for row in top.head(3).itertuples()
    )
    + ". A token is, on average, this share of the tokens of the other prompts: "
    + ", ".join(f"{name} {100 * common[name]:.1f} %" for name in domains)
    + "."
)
assert (parts.groupby("domain")["share"].sum() - 1).abs().max() < 1e-9

# %% [markdown]
# ## 4. What explains the contrast? One thing at a time held fixed
# | held fixed | how |
# | --- | --- |
# | estimator | `alpha` instead of `published_alpha`: acceptance of one sampled token at the same positions |
# | rank 0 only | `published_alpha` over the draft's best children only |
# | rank mix, entropy, token kind, token frequency | *direct standardisation*: the means if every domain had the same mix of them |
# | prompt format | the same prompts in the target's chat template instead of plain text; prompts are resampled in pairs |
#
# The common mix is that of all domains together. `before` and `after` are contrasts as above,
# `change` their difference on the same resamples. Matching needs levels that every domain has (rows
# of five prompts or more); `least_kept` is the smallest share of a domain's rows in such levels,
# and `before` is computed on these rows, so that a change is not one of rows. Something explains
# the contrast if holding it fixed changes it towards 0.

# %%
nodes["entropy_bin"], trace["entropy_bin"] = (
    binned.quantile_bins(frame, "target_entropy", bins) for frame in (nodes, trace)
)
trace["frequency_bin"] = binned.quantile_bins(trace, "frequency", bins)
published, exact = (nodes, score.published_alpha), (trace, score.overlap_alpha)
tried = {
    "published_alpha: estimator": (nodes, lambda: (published, exact)),
    "published_alpha: rank mix": (nodes, lambda: binned.matched(nodes, "alpha", "rank")),
    "published_alpha: rank 0 only": (
        nodes,
        lambda: (published, (nodes, score.member(score.alpha_by_rank, 0))),
    ),
    "published_alpha: entropy": (nodes, lambda: binned.matched(nodes, "alpha", "entropy_bin")),
    "published_alpha: prompt format": (
        nodes,
        lambda: (published, (template.nodes, score.published_alpha)),
    ),
    "alpha: entropy": (trace, lambda: binned.matched(trace, "overlap", "entropy_bin")),
    "alpha: token kind": (trace, lambda: binned.matched(trace, "overlap", "kind")),
    "alpha: token frequency": (trace, lambda: binned.matched(trace, "overlap", "frequency_bin")),
    "alpha: prompt format": (trace, lambda: (exact, (template.trace, score.overlap_alpha))),
}
found = pd.concat(
    [
        chat_paradox.explained(both, domain).assign(held_fixed=name)
        for name, (_, both) in tried.items()
    ],
    ignore_index=True,
)
found = found.round(9).replace(
    -0.0, 0.0
)  # a change that cannot be (equal rank mixes) is 0, not a rounding error with a sign
wide = explain.wide(found, ["held_fixed"], "stage", digits=3)
wide["least_kept"] = [chat_paradox.least_kept(both, whole) for whole, both in tried.values()]
files.export(found, ctx.figures, f"{ctx.number}_explanations-values")
ctx.table(wide, "explanations")
for row in found[(found["stage"] == "change") & (found["note"] != "")].itertuples():
    notebook.say(f"* {row.held_fixed}: {row.note}")

# %%
drawn = found.dropna(subset="estimate")
fig, (left, right) = figures.subplots(1, 2, height=3.6, sharey=True, width_ratios=[1.3, 1])
figures.interval_bars(
    drawn[drawn["stage"] != "change"], left, "held_fixed", hue="stage", horizontal=True
)
figures.interval_bars(
    drawn[drawn["stage"] == "change"], right, "held_fixed", hue="stage", horizontal=True
)
for ax in (left, right):
    ax.axvline(0, color="black", linewidth=0.8)
left.axvline(
    printed["alpha"],
    **figures.style_of("published") | {"marker": ""},
    label="published_alpha in the paper",
    linewidth=1,
)
left.locator_params(axis="x", nbins=6)
left.set(title="before and after", xlabel=f"{domain} − mean of the other domains")
right.set(title="change", xlabel="after − before")
figures.legend_above(fig, left)
ctx.save(fig, "explanations")
points = found.pivot(index="held_fixed", columns="stage", values="estimate")
assert (points["after"] - points["before"] - points["change"]).abs().dropna().max() < 1e-8

# %%
first, after, change = (
    found[found["stage"] == stage].set_index("held_fixed")
    for stage in ("before", "after", "change")
)
share = wide.set_index("held_fixed")["least_kept"]
short = {
    n: n.split(": ")[1]
    + (f", on {100 * share[n]:.0f} % of the rows or more" if share[n] < 1 else "")
    for n in change.index
}
for _, spread, estimator, lead in views:
    mine = change[change.index.str.startswith(f"{estimator}:")]
    moved = [name for name, row in mine.iterrows() if row["low"] > 0 or row["high"] < 0]
    still = [
        name for name, row in mine.iterrows() if name not in moved and row["low"] <= row["high"]
    ]
    mute = [short[name] for name in mine.index if name not in moved + still]
    moves = [
        f"{short[name]} ({first.loc[name, 'estimate']:+.3f} becomes {after.loc[name, 'estimate']:+.3f}, change "
        f"{signed(change.loc[name])}; then {domain} is {direction(after.loc[name], *WORDS)} the others)"
        for name in moved
    ]
    stays = [f"{short[name]} (change {signed(change.loc[name])})" for name in still]
    notebook.say(
        f"**Verdict under `{estimator}`: {state(spread, lead)}.** {domain} is {direction(lead, *WORDS)} the others ({signed(lead)}). "
        + (f"What moves this contrast: {'; '.join(moves)}. " if moved else "")
        + (f"What does not move it, as far as can be told: {', '.join(stays)}. " if stays else "")
        + (f"What the domains cannot be matched on: {', '.join(mute)}." if mute else "")
    )
shares = {name: lead.share_highest for _, _, name, lead in views}
answers = {
    name: "yes" if share > 0.975 else "no" if share < 0.025 else "cannot be told"
    for name, share in shares.items()
}
said = "; ".join(f"by `{name}`: {text}" for name, text in answers.items())
notebook.say(
    f"**Is {domain} the easiest domain on this pair?** {said[0].upper()}{said[1:]}, both on the greedy text."
    + "".join(
        f" On text sampled at T = 1 the contrast of `alpha` is {signed(row)} (section 2): {domain} is {direction(row, *WORDS)} the others."
        for row in shown[shown["rung"] == "alpha, T = 1"].itertuples()
    )
)
assert len(change) == len(tried)

# %%
candidates = {
    "the estimator": ["estimator"],
    "the rank mix": ["rank mix", "rank 0 only"],
    "the entropy distribution": ["entropy"],
    "the prompt format": ["prompt format"],
    "lexical predictability": ["token kind", "token frequency"],
}


def effect(name: str) -> str:
    """What holding one thing fixed does to the contrast."""
    row, nearer = (
        change.loc[name],
        abs(after.loc[name, "estimate"]) < abs(first.loc[name, "estimate"]),
    )
    if row["low"] > 0 or row["high"] < 0:
        return "moves it towards 0" if nearer else "moves it away from 0"
    return "has no effect that can be told" if row["low"] <= row["high"] else "cannot be tested"


tests = [
    (what, name)
    for what, held in candidates.items()
    for name in change.index
    if name.split(": ")[1] in held
]
moves = change[["estimate", "low", "high"]].rename(columns={"estimate": "change"})
verdicts = pd.DataFrame(
    [
        {"explanation": what, "test": name, "verdict": effect(name)} | moves.loc[name].to_dict()
        for what, name in tests
    ]
)
ctx.table(verdicts, "verdicts")
said = [
    f"\n* **{what}**: "
    + "; ".join(
        f"`{row.test}` {row.verdict} ({row.change:+.3f} [{row.low:+.3f}, {row.high:+.3f}])"
        for row in rows.itertuples()
    )
    for what, rows in verdicts.groupby("explanation", sort=False)
]
notebook.say(
    f"**The five candidate explanations of {domain}'s place, each by itself** (change of the contrast; "
    f"whether there is a paradox to explain is said above):\n" + "".join(said)
)
assert len(verdicts) == len(tried), "every test belongs to one of the five"

# %% [markdown]
# ## 5. Prompt format, domain by domain
# The paper gave a chat-tuned target its prompts as plain text. The same prompts in the target's
# chat template make another text: the difference template minus plain is paired by prompt, its
# interval resamples the pairs.

# %%
sources = {
    "published_alpha": (template.nodes, nodes, score.published_alpha),
    "alpha": (template.trace, trace, score.overlap_alpha),
}
rows = []
for estimator, (with_template, plain, what) in sources.items():
    for name in domains:
        one, two = (frame[frame["domain"] == name] for frame in (with_template, plain))
        tokens_each = (
            len(template.trace[template.trace["domain"] == name]) / one["prompt_id"].nunique()
        )
        rows.append(
            {"domain": name, "estimator": estimator}
            | explain.attempt(significance.paired_difference, one, two, what)
            | {
                "tokens_plain": (trace["domain"] == name).sum() / two["prompt_id"].nunique(),
                "tokens_template": tokens_each,
            }
        )
formats = pd.DataFrame(rows)
ctx.table(formats if formats["note"].any() else formats.drop(columns="note"), "template")
fig, ax = figures.subplots(width=figures.ONE_COLUMN, height=2.6)
figures.interval_bars(formats.dropna(subset="estimate"), ax, "domain", hue="estimator")
ax.axhline(0, color="black", linewidth=0.8)
ax.set(xlabel="domain", ylabel="chat template − plain text")
figures.legend_above(fig, ax)
ctx.save(fig, "template")
words = ("higher with the template in", "lower with the template in", "not to be told apart in")
notebook.say(
    " ".join(
        f"`{name}` is {explain.by_direction(part, *words)}."
        for name, part in formats.groupby("estimator", sort=False)
    )
)
ctx.record(
    contrast_published_alpha=lead_published.estimate,
    contrast_alpha=lead_exact.estimate,
    contrast_entropy_nodes=entropy_nodes.estimate,
    contrast_entropy_text=entropy_text.estimate,
    share_highest_published_alpha=lead_published.share_highest,
    share_highest_alpha=lead_exact.share_highest,
    state_published_alpha=state(entropy_nodes, lead_published),
    state_alpha=state(entropy_text, lead_exact),
    **{
        f"change_{name.replace(': ', '_').replace(' ', '_')}": float(value)
        for name, value in change["estimate"].dropna().items()
    },
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: domain A has 3 sure positions with overlap 0.9 and 1 unsure one with 0.5; domain B has
#    1 sure one with 0.8 and 3 unsure ones with 0.4. Which domain is easier, by how much, and what
#    is left if both had half of each?
#
# <details><summary>What happens</summary>A: (3 · 0.9 + 0.5)/4 = 0.8; B: (0.8 + 3 · 0.4)/4 = 0.5; A leads by 0.3. At equal halves A has
# 0.7 and B 0.6: a lead of 0.1. Two thirds of the lead was the mix of entropies, one third is
# something else.</details>
#
# 2. Run the notebook with `domain = "code"`. Is there a "code paradox"?
#
# <details><summary>What happens</summary>The sentences are the same with other numbers: a contrast can be asked of any domain. The four
# contrasts of one estimator add up to 0, so some domain is always above and another below; an
# interval says whether that means anything.</details>
#
# 3. Match on entropy with `bins = 2`, then with `bins = 20`. What happens to `after`, and what to
#    `least_kept`?
#
# <details><summary>What happens</summary>Two bins match little: within a half, domains still differ in entropy, so `after` mostly stays
# nearer to `before`. Twenty match closely, but bins that a domain lacks drop out: `least_kept` can
# fall. That is the price of matching.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences of sections 1 and 4. Whether a domain is 'easy' belongs to an
#   estimator, to a mix of ranks, entropies and tokens, and to a prompt format.
# * What this does not show: a cause. Things are held fixed one at a time, and entropy, kind and
#   frequency of a token go together, so their changes must not be added. The target's own text
#   decides both entropy and token: matching on them also removes what the domain does *through*
#   them. The template changes the text, not only its format. Intervals are 95 % each, not all at
#   once.
# * Next: notebook 07 looks at single rejections and their causes; notebook 11 takes the paper's
#   claims one by one.

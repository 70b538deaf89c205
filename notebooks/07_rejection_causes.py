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
# A rejection ends a block, and every token that was drafted behind it is lost. Before a draft is
# made better (notebook 08) or stopped in time (09), it is worth knowing where it fails: at numbers,
# at the first word of a sentence, where it is unsure of itself, where its vocabulary lacks the
# token? And a class of positions that holds many rejections need not be the one that costs most.
#
# ![Share of the rejections and what each class costs](../figures/smollm/07/top-causes.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the runs `greedy` (T = 0),
# `sampled`, `sampled-seed-1` and `sampled-seed-2` (T = 1) of the profile, recorded if they are not
# there, and the profile's prompts · *writes* `figures/<profile>/07/`.

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
import numpy as np

from speclab import prompts, replay, runs, score, stats
from speclab.analysis import loops
from speclab.analysis.texts import SEEDS, Text
from speclab.models import pairs
from speclab.score import POOLED
from speclab.show import notebook, pictures
from speclab.show.estimates import Estimates
from speclab.studies import rejection_causes as study

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
gamma: int = 4  # 1 to 64; draft tokens in a row
# a model is sure if its best token has this probability: above 0.5 no other token can have as much
sure: float = 0.5  # 0.5 to 1
ngram: int = 3  # 1 to 16; longest run of tokens that prompt lookup looks for
smallest: float = 0.02  # 0 to 1; a class is drawn if it is this share of the rejections

# %%
ctx = notebook.start("07_rejection_causes", profile, overrides)
greedy = Text.recorded(ctx.profile, "greedy")
sampled = Text.recorded(ctx.profile, *SEEDS)
run = runs.load_or_record(ctx.profile.replace(temperature=0.0), "greedy")
can_say = run.manifest["pair"]["draft"]["tokens_said"]

# %%
p = ctx.profile
tokenizer = pairs.load_tokenizer(pairs.model_folder(p.target))
strings = pictures.strings_of(tokenizer)
texts = runs.profile_prompts(p)

# %%
encoded = prompts.encode_prompts(tokenizer, texts, p.max_prompt_tokens, p.template)
prompt_tokens = {prompt.prompt_id: prompt.ids for prompt in encoded}

# %% [markdown]
# ## 1. Labels
# A position is **rejected** if the draft's best token is not the target's (`draft_rank` above 0;
# its share is 1 − `hit[1]`). Every position of the text gets one label of each family, rejected or
# not, so that the share of a class among the rejections can be set beside its share among all
# positions. A class is written `family: class`.
#
# | family | the position's token … |
# | --- | --- |
# | `kind` | what it is (`token_kinds`); a `name` has a capital letter inside a sentence |
# | `begins` | the first of the continuation (`text`), or of a `line` or `sentence` (seen) |
# | `state` | which model gave its own best token a probability of `sure` or more |
# | `lookup` | what prompt lookup proposes: the `right` token, a `wrong` one, `no match` |
# | `found` | rank of the target's token under the draft, of rejected positions only |
#
# A draft with a trimmed output layer **can never say** the tokens that it lacks: there it is
# rejected for certain (`found: never`). Prompt lookup proposes what followed the latest occurrence
# of the last `ngram` tokens (or, if there is none, of fewer) in prompt and text so far; it needs no
# model. How a rejection gets its class, and what share of the rejections has it, by hand:

# %%
trace = greedy.trace
rejected = trace["draft_rank"] > 0
target_sure = trace["p_token"] >= sure
draft_sure = trace["top_draft_q"].str[0] >= sure

# %%
by_hand = (target_sure & ~draft_sure)[rejected].mean()  # state: only target sure
total = int(rejected.sum())

# %%
frame = study.label(greedy, strings, prompt_tokens, can_say, sure, ngram)
members = study.flags(frame)
often = study.shares(frame, members)
domains = list(score.domains_in(frame))

# %%
share = Estimates(often).at(quantity="share")
known = share.at(cause="state: only target sure", domain=POOLED).value
assert not total or np.isclose(by_hand, known)

# %%
mean = score.mean_of("rejected")
rate = stats.by_domain(frame, mean)
ctx.say(
    f"The draft's token is rejected at {total:,} of {len(frame):,} positions. Share by domain: "
    f"{Estimates(rate).at(domain=domains).listed()}. A text has at most {p.max_new_tokens} tokens."
)

# %% [markdown]
# ## 2. Which classes hold the rejections, and which cost most?
# What a class costs is a **counterfactual replay**: the same text once more, as if the draft had
# been right at every position of the class, and everything else unchanged. At T = 0 (the likeliest
# token is always taken) this is exact, since the text does not depend on the draft. The **gain** is
# `block_efficiency` (tokens per target pass, blocks as a decoder visits them) with this less
# `block_efficiency` without it:

# %%
rank = frame["draft_rank"].mask(frame["kind"] == "word start", 0)
mended = frame.assign(draft_rank=rank)

# %%
before, after = (replay.replay(rows, gamma) for rows in (frame, mended))
by_hand = after["emitted"].sum() / len(after) - before["emitted"].sum() / len(before)

# %%
costs = study.gains(frame, members.assign(every=True), gamma)
causes = Estimates.stacked({"often": often, "costs": costs}, "part")
gain = causes.at(quantity="gain")

# %%
assert np.isclose(by_hand, gain.at(cause="kind: word start", domain=POOLED).value)
assert gain.frame["estimate"].min() > -1e-12, "being right more often costs nothing"

# %% [markdown]
# Intervals (95 %) **resample prompts**: as many as there are get drawn anew, 2,000 times, the same
# in both replays. The row `every` is a draft that is right everywhere. A class with a star is
# rejected more often than other positions (its share of the rejections less its share of the
# positions is above 0 with its whole interval); only these are called **causes** below: any other
# class holds rejections as any sample of positions would.

# %%
ctx.export(causes.frame.drop(columns="part"), "causes-values")
pooled = causes.at(domain=POOLED)
ranking = study.ranking(pooled, smallest)
drawn = ranking[ranking["drawn"]]

# %%
bars = pooled.at(quantity=["share", "positions", "gain"], cause=list(drawn.index)).frame
of_gain = bars["quantity"] == "gain"
bars["panel"] = np.where(of_gain, "gain, tokens per target pass", "share of the …")
bars["mark"] = bars["quantity"].replace({"share": "rejections"})

# %%
bars["place"] = bars["cause"].map(drawn.index.get_loc)
bars = bars.sort_values("place", kind="stable").drop(columns="place")
bars["cause"] += bars["cause"].map(drawn["is_cause"]).map({True: " *", False: ""})

# %%
kinds = study.of_family(pooled.at(quantity="share"), "kind")
ctx.plot(
    Estimates(bars),
    x="cause",
    hue="mark",
    columns="panel",
    kind="bars",
    y=" ",
    x_label=" ",
    height=0.24 * len(drawn),
    reference=0,
    share_y=False,
    slug="top-causes",
    caption="Left: share of rejections and share of all positions, by class. Right: tokens per "
    f"target pass gained if the draft were never wrong there (gamma = {gamma}). Star: rejected "
    f"more often than other positions. Kinds with most rejections: {study.largest(kinds)}.",
)

# %% [markdown]
# **Who was sure?** The line between sure and unsure is `sure`: from a probability of 0.5 on no
# other token can have more. *Only target sure* and *both unsure* are both what a better draft can
# mend: at T = 0 the target's favourite counts, however slight its lead, though a slight lead is
# harder to learn. *Both sure* and *only draft sure* are a draft that is sure and wrong, which no
# rule that stops at low confidence can see coming. `found: never` is mended by no training, only by
# a larger output layer. Gains do not add: two rejections near each other must both be mended before
# a block grows, and classes of two families share rejections.

# %% [markdown]
# ## 3. Is it the same in all four prompt sets?

# %%
each = share.at(domain=domains)
by_kind = study.of_family(each.at(cause=list(drawn.index)), "kind")
ctx.plot(
    by_kind,
    x="name",
    kind="points",
    y="share of the\nset's rejections",
    x_label="kind of token",
    slug="kinds-by-domain",
    caption="Share of each set's rejections by kind of token.",
)

# %% [markdown]
# ## 4. Where would the target's token have been found?
# If the draft's best token is wrong, the target's may be its second, or its tenth: the **rank**. Or
# it is a token that this draft can never say.

# %%
by_rank = study.of_family(each, "found")
never = by_rank.at(name="never")
has_never = never.frame["estimate"].gt(0).any()
lost = gain.at(cause=study.NEVER, domain=POOLED)
said = "This draft's vocabulary has every token"
if has_never:
    said = f"Never: {never.listed()}. These cost {lost} tokens per target pass"

# %%
ctx.plot(
    by_rank if has_never else by_rank.without(name="never"),
    x="name",
    kind="points",
    y="share of the\nset's rejections",
    x_label="found at",
    slug="rank-where-found",
    caption="Rank of the target's token under the draft, of rejected positions. The draft's second "
    f"choice: {by_rank.at(name='rank 1').listed()}. {said}.",
)

# %% [markdown]
# Another place to look is the prompt and the text so far, which costs no draft model at all: prompt
# lookup. A rule that any decoder could follow: where the draft's confidence (q of its best token)
# is under a threshold and lookup has a match, propose what lookup found. (In a chain a proposal
# counts only if all before it were accepted, so lookup sees the text as it is, and the replay is
# exact.)

# %%
right, matches = frame["lookup"] == "right", frame["lookup"] != "no match"
confidence, rank = frame["confidence"], frame["draft_rank"]
thresholds = np.round(np.arange(0.1, 1.01, 0.1), 1)
ranks = {  # what counts is whether the proposal is right (0) or wrong
    threshold: np.where(matches & (confidence < threshold), ~right, rank)
    for threshold in thresholds
}

# %%
mixed = Estimates(study.tokens_gained(frame, gamma, ranks)).at(domain=domains)
ctx.export(mixed, "lookup-where-unsure")

# %%
at_sure = thresholds[np.abs(thresholds - sure).argmin()]
ctx.plot(
    mixed,
    x="cause",
    y="gain on the draft alone,\ntokens per target pass",
    x_label="lookup's token where the draft's confidence is under",
    reference=0,
    slug="lookup-where-unsure",
    caption="Draft plus lookup where the draft is unsure, minus the draft alone (gamma = "
    f"{gamma}). At a threshold of {at_sure:g}: {mixed.at(cause=at_sure).listed()}.",
)

# %% [markdown]
# ## 5. Outside loops, and at T = 1
# Greedy text runs into loops, and what a draft does there says little about language (notebook 13).
# A position lies *outside loops* unless its token ends a run of four tokens that the same text has
# had before. At T = 1 (three seeds) a position counts as rejected where the sampled token is not
# the draft's best: the point-mass rule, exact for a drafted token that is not drawn.

# %%
outside = ~loops.repeats(frame)
at_1 = study.label(sampled, strings, prompt_tokens, can_say, sure, ngram)
parts = {
    "T = 0": often,
    "T = 0 outside loops": study.shares(frame[outside], members[outside]),
    "T = 1": study.shares(at_1, study.flags(at_1)),
}

# %%
beside = Estimates.stacked(parts, "text").at(quantity="share", domain=POOLED)

# %%
frames = {"T = 0": frame, "T = 0 outside loops": frame[outside], "T = 1": at_1}
rates = {text: stats.by_domain(rows, mean) for text, rows in frames.items()}
rates = Estimates.stacked(rates, "text").at(domain=POOLED)

# %%
classes = [name for name in drawn.index if not name.startswith("state: ")]

# %%
ctx.plot(
    beside.at(cause=classes),
    x="cause",
    hue="text",
    kind="bars",
    y="share of the rejections",
    x_label=" ",
    height=0.25 * len(classes),
    reference=0,
    slug="loops",
    caption="Share of the rejections of each class, in the greedy texts, outside loops there, and "
    f"in sampled texts. Share of positions rejected: {rates.listed('text')}. "
    f"{1 - outside.mean():.0%} of the greedy positions are in loops (texts of at most "
    f"{p.max_new_tokens} tokens).",
)

# %%
found = ranking[ranking["is_cause"]].sort_values("gain", ascending=False)
part, worth = share.at(domain=POOLED), gain.at(domain=POOLED)
verdict = study.dearest(part, worth, list(found.index))
if has_never:
    verdict += (
        f" Tokens outside the draft's vocabulary are {part.at(cause=study.NEVER)} of the "
        f"rejections and cost {lost} tokens per target pass."
    )
ctx.answer(f"On `{p.name}` (T = 0, gamma = {gamma}) {verdict}")

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: a text of ten tokens has the draft ranks 0 1 0 0 2 0 0 0 0 3. Which blocks does a
#    chain of gamma = 4 make, how many tokens per target pass is that, and what is won if the rank 1
#    were 0, or the rank 2, or the rank 3?
#
# <details><summary>What happens</summary>
# Blocks (0, 1), (2, 3, 4) and (5, 6, 7, 8, 9): 10 tokens in 3 passes, 3.33; the last rank 3 stands
# where the bonus token does and is never met. With position 1 mended the blocks are (0 to 4) and (5
# to 9), 5 tokens per pass: the rank 2 has become a bonus token's. With position 4 mended alone they
# are (0, 1), (2 to 6), (7, 8, 9): 3 passes as before, nothing is won. Position 9:
# nothing.</details>
# %% [markdown]
# ## What this does not show, what is next
# * A cause in the strict sense, but for the tokens never said. Classes go together (a number is
#   often where the target is unsure), and gains of overlapping classes do not add. The
#   counterfactual draft is right at once and for nothing; a real better draft changes everywhere.
#   Kinds are told from the tokens' text alone.
# * What a class costs at T = 1, where a rejection is a matter of chance (`alpha`), and in longer
#   texts. Intervals are 95 % each, not all at once; the classes that are drawn were not chosen
#   beforehand.
# * Next: notebook 08 makes better drafts; notebook 09 stops drafting where the draft is not sure.

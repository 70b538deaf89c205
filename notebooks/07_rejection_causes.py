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
# left agree, a class holds its rejections only because so many positions are of it; classes with a
# star are rejected more often than other positions are. Where the two marks on the right differ,
# its rejections stand where they hurt more, or less, than others. `since` is left out of the
# comparison with random, and never has a star: what follows a rejection opens a block and costs
# more even if rejections are independent.
#
# ![Share of the rejections and what each cause costs](../figures/smollm/07/top-causes.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the runs `greedy` (T = 0) and
# `sampled` (T = 1) of the profile, recorded if they are not there, and the profile's prompts ·
# *writes* `figures/<profile>/07/`.

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
from IPython.display import HTML, display

from speclab import prompts, replay, runs, score, stats
from speclab.models import pairs
from speclab.show import notebook, pictures
from speclab.analysis import loops
from speclab.score import POOLED
from speclab.studies import rejection_causes as study

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
gamma: int = 4  # 1 to 64; draft tokens in a row
# a model is sure if its best token has this probability: above 0.5 no other token can have as much
sure: float = 0.5  # 0.5 to 1
ngram: int = 3  # 1 to 16; longest run of tokens that prompt lookup looks for
picks: int = 10  # 1 to 1000; random picks that each cause is compared with
smallest: float = 0.02  # 0 to 1; a cause is drawn if it is this share of the rejections
cases: int = 2  # 1 to 100; worst cases shown of each domain

# %%
ctx = notebook.start("07_rejection_causes", profile, overrides)
trace = study.greedy_trace(runs.load_or_record(ctx.profile, "greedy"))
tokenizer = pairs.load_tokenizer(pairs.model_folder(ctx.profile.target))
strings = pictures.strings_of(tokenizer)

# %%
p = ctx.profile
texts = runs.profile_prompts(p)
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
# | `since` | positions since the last rejection (`right after` one: 1) |
# | `place`, `context` | position in the continuation; with the prompt's tokens added |
# | `found` | rank of the target's token under the draft, of rejected positions only |
#
# *Both sure* and *only draft sure*, rejected: the draft was sure and wrong. Prompt lookup proposes
# what followed the latest occurrence of the last `ngram` tokens (or, if there is none, of fewer) in
# prompt and text so far; it needs no model.

# %%
frame = study.label(trace, strings, prompt_tokens, sure, ngram)
members, met = study.flags(frame), study.met(frame, gamma)
domains, total = list(score.domains_in(frame)), int(frame["rejected"].sum())

# %%
rate = stats.by_domain(frame, score.mean_of("rejected"))
ctx.say(
    f"{total:,} of {len(frame):,} positions are rejected: a share of "
    f"{study.Estimates(rate).at(domain=domains).listed()}. A chain of gamma = {gamma} meets "
    f"{len(met):,} of them; the others fall where the bonus token stands."
)

# %% [markdown]
# What a class costs is a **counterfactual replay**: the same text once more, as if the draft had
# been right at every position of the class, and everything else unchanged. At T = 0 (the likeliest
# token is always taken) this is exact, since the text does not depend on the draft. The **gain** is
# `block_efficiency` (tokens per target pass, blocks as a decoder visits them) with this less
# `block_efficiency` without it. Intervals (95 %) **resample prompts**: as many as there are get
# drawn anew, 2,000 times, the same in both replays. *Random* is the same for as many rejections of
# the same domains picked at random; the row `every` is a draft that is right everywhere.

# %%
whole = members.assign(every=True)
often = study.shares(frame, members)
chain = study.gains(frame, whole, gamma, draws=picks)
tree = study.gains(frame, whole, ctx.profile.tree)

# %%
causes = study.causes_of(often, chain, tree)
ctx.export(causes, "causes-values")
ctx.table(study.overview(causes), "causes")

# %%
for quantity in ("share", "gain"):
    ctx.export(
        causes.at(quantity=quantity).wide("cause", "domain"), f"{quantity}-by-domain"
    )

# %%
pooled = causes.at(domain=POOLED)
share, gain = pooled.at(quantity="share"), pooled.at(quantity="gain")
for family in study.FAMILIES:
    of_one = study.of_family(share, family).frame["estimate"].sum()
    assert not total or abs(of_one - 1) < 1e-9
assert (gain.frame["estimate"] > -1e-12).all(), (
    "being right more often costs a chain nothing"
)

# %% [markdown]
# ## 2. Which classes hold the rejections, and which cost most?
# Drawn are classes that hold at least `smallest` of the rejections, or the most of their family,
# the dearest of each family first, without *nothing*, *no match* and *none yet*. Only a class that
# is rejected more often than other positions (its share of the rejections less its share of the
# positions is above 0 with its whole interval; with a star) will be called a **cause** below: any
# other class holds rejections as any sample of positions would. `since` is left out of the
# comparison with random, and is never called a cause: what follows a rejection opens a block and
# costs more even if rejections are independent. Whether one rejection follows another is the
# question of section 7.

# %%
ranking = study.ranking(causes, smallest)
drawn = ranking[ranking["drawn"]]
tested = list(drawn.index[drawn["tested"]])

# %%
kinds = study.of_family(share, "kind")
ctx.plot(
    study.top_causes(causes, ranking),
    x="cause",
    hue="mark",
    columns="panel",
    kind="bars",
    y="share, or tokens per target pass",
    x_label=" ",
    height=0.2 * len(drawn),
    reference=0,
    slug="top-causes",
    caption="Left, what the rejected positions are, and how often such positions occur; right, "
    "what is won if a draft is never wrong there, and by as many rejections picked at random. "
    f"Star: rejected more often than others. By kind the largest share is {study.largest(kinds)}.",
)

# %%
costs = study.of_family(gain, "kind")
rates = study.of_family(pooled.at(quantity="rate"), "kind").at(cause=tested)
ctx.say(
    f"The kind that costs most, in tokens per target pass, is {study.largest(costs)}. Of the kinds "
    f"drawn the most often rejected is {study.largest(rates)}, as a share of its positions."
)

# %%
compared = pooled.at(cause=tested)
excess, surplus = (compared.at(quantity=name) for name in ("excess", "surplus"))
ctx.say(f"* These {excess.sentence(*study.MORE_REJECTED, names='cause')}.")
ctx.say(f"* These {surplus.sentence(*study.COSTS_MORE, names='cause')}.")

# %% [markdown]
# ## 3. Is it the same in all domains, and at all places?

# %%
each = causes.at(quantity="share", domain=domains)
by_kind = study.of_family(each.at(cause=list(drawn.index)), "kind")
first = [f"{name}: {study.largest(rows)}" for name, rows in by_kind.groups("domain")]
ctx.plot(
    by_kind,
    x="name",
    kind="points",
    y="share of the\ndomain's rejections",
    x_label="kind of token",
    slug="kinds-by-domain",
    caption=f"Share of each domain's rejections by kind of token. The largest: {'; '.join(first)}.",
)

# %% [markdown]
# How often is a position rejected, by its place in the continuation and by the length of its
# context (prompt and continuation)? Classes met in fewer than five prompts of a domain have no
# point.

# %%
rate = pooled.at(quantity="rate")
ctx.plot(
    study.rejected_by(frame, "place"),
    x="place",
    kind="points",
    y="share rejected",
    x_label="position in the continuation",
    slug="rate-by-place",
    caption="Share of positions rejected, by place: of the first token of a continuation "
    f"{rate.at(cause='place: 0')}, of the next three {rate.at(cause='place: 1-3')}.",
)

# %%
by_length = study.of_family(rate, "context").defined()
ctx.plot(
    study.rejected_by(frame, "context"),
    x="context",
    kind="points",
    y="share rejected",
    x_label="tokens of context",
    slug="rate-by-context",
    caption=f"Share of positions rejected, by length of context: {by_length.listed('name')}.",
)

# %%
first, next_three = gain.at(cause="place: 0"), gain.at(cause="place: 1-3")
ctx.say(
    f"A draft that was right at the first token would gain {first} tokens per target pass, at the "
    f"next three {next_three}."
)

# %% [markdown]
# ## 4. Do the gains add?
# No. A rejection ends a block; with two rejections near each other, mending one alone only moves
# the end to the other, and mending both does more than the sum. Classes of two families overlap:
# they share rejections, which pulls the other way.

# %%
two = study.two_of_two_families(ranking)
together = members[two].any(axis=1).to_frame("together")
both = study.Estimates(study.gains(frame, together, gamma)).at(domain=POOLED)
apart = gain.at(cause=two)
ctx.say(
    f"**Two that overlap.** Alone they gain {apart}, {apart.frame['estimate'].sum():.2f} in all; "
    f"both together gain {both}."
)

# %%
ctx.say(
    f"**All kinds.** One at a time they add up to {costs.frame['estimate'].sum():.2f}; all at once "
    f"they gain {gain.at(cause='every')}: a perfect draft, gamma + 1 tokens per pass, less at the "
    "ends of texts."
)
perfect = replay.replay(study.counterfactual(frame, members.any(axis=1)), gamma)
assert (perfect["emitted"] == perfect["remaining"].clip(upper=gamma + 1)).all()

# %%
dear = study.dearest(ranking)
on_tree = pooled.at(quantity="gain, tree")
ctx.say(
    f"**On the profile's tree** ({p.tree.size} nodes, depth {p.tree.max_depth}) the dearest "
    f"class is {study.largest(on_tree.at(cause=list(dear.index)))}. A perfect draft "
    f"would gain {on_tree.at(cause='every')}."
)

# %% [markdown]
# ## 5. Where would the target's token have been found?
# If the draft's best token is wrong, the target's may be its second, or its tenth: the **rank**.

# %%
second = share.at(cause="found: rank 1")
ctx.plot(
    study.of_family(each, "found"),
    x="name",
    kind="points",
    y="share of the\ndomain's rejections",
    x_label="found at",
    slug="rank-where-found",
    caption="Rank of the target's token under the draft, of rejected positions: the draft's second "
    f"choice in a share of {second}.",
)

# %% [markdown]
# What do wider trees of the same depth win? *Siblings* keeps the best path and puts the next best
# tokens beside it, width times gamma nodes in all: it saves the rejection that ends the block, then
# its path ends too. *Full* has that many children at every node: so many nodes that, from width 3
# on, it is a ceiling and no proposal.

# %%
wider = study.wider(frame, gamma)
ctx.export(wider, "wider-trees")
saved = wider.at(domain=POOLED)
siblings = saved.at(shape="siblings")
ctx.plot(
    saved,
    x="width",
    hue="shape",
    kind="points",
    y="gain on the chain,\ntokens per target pass",
    x_label="children of a node (width)",
    slug="wider-trees",
    caption=f"What wider trees win. One sibling at each depth ({2 * gamma} nodes, not {gamma}) "
    f"wins {siblings.at(width=2)} tokens per target pass, eight win {siblings.at(width=9)}.",
)

# %% [markdown]
# Another place to look is the prompt and the text so far, which costs no draft model at all: the
# family `lookup`.

# %%
right = pooled.at(cause="lookup: right")
looked = right.at(quantity="share")
ctx.say(
    f"**Prompt lookup** has the token at a share of {right.at(quantity='positions')} of all "
    f"positions (the draft at {1 - total / len(frame):.2f}) and of {looked} of the rejections; a "
    "rule that always knew which of the two to trust would gain "
    f"{right.at(quantity='gain')} tokens per target pass."
)

# %% [markdown]
# ## 6. Who was sure?
# Each rejection by what the two models thought of their own best token: the draft of the token that
# it proposed, the target of the one that it wrote. *Only target sure* is what a better draft can
# mend. *Both unsure* is where the target has no clear favourite: another token would have been
# nearly as good to it, but a lossless decoder may not take it. *Both sure* and *only draft sure*
# are a draft that is sure and wrong, which no rule that stops at low confidence can see coming. The
# line between sure and unsure is `sure`: from a probability of 0.5 on no other token can have more.

# %%
states = study.of_family(share, "state")
ctx.save(
    study.who_was_sure(frame, sure),
    "who-was-sure",
    caption="Every rejection: what the target gave the token that it wrote against what the draft "
    f"gave the token that it proposed. Shares: {states.listed('name')}.",
)

# %% [markdown]
# How often are such positions rejected, beside what the draft's confidence promised (1 − q on
# average)? Above its promise, the draft was too sure (notebook 05 has the whole reliability
# diagram).

# %%
promises = study.promises(frame)
ctx.table(promises.wide(["what", "domain"], "state").fillna("too few"), "states")

# %%
overall = promises.at(domain=POOLED)
gap = overall.at(what="gap").sentence(*study.PROMISE, names="state")
ctx.plot(
    overall.without(what="gap"),
    x="state",
    hue="what",
    kind="points",
    y="share of positions",
    slug="promises",
    caption=f"Rejected, and promised by the draft's confidence: it is rejected {gap}.",
)

# %% [markdown]
# ## 7. Do rejections come in bursts?
# The **hazard** is the chance that a position is rejected, by its distance to the last rejection.
# If rejections were independent and equally likely everywhere, the hazard would be flat (the
# distances would follow a *geometric* distribution, as the throws of a die between two sixes do). A
# hazard that starts above that line and falls means bursts. But texts that differ in difficulty do
# the same without any burst: most of what is right after a rejection is in hard texts. The line
# *texts shuffled* shows how much: the same texts, each with its positions in random order.

# %%
if total:
    hazard = study.hazard(frame, longest=8)
    ctx.export(hazard, "hazard")
    right_after = hazard.at(distance=1)

# %%
if total:
    ctx.plot(
        study.hazard_lines(hazard),
        x="distance",
        hue="line",
        columns="domain",
        y="share rejected",
        x_label="since the last",
        limits=(0, None),
        slug="hazard",
        caption="Share rejected by the number of positions since the last rejection; right after "
        f"one: {right_after}.",
    )

# %%
for reference in ("geometric", "shuffled") if total else ():
    apart = study.after_one(hazard, reference).without(domain=POOLED)
    ctx.say(
        f"* Right after a rejection, against `{reference}`: the next is rejected "
        f"{apart.sentence(*study.AFTER_ONE)}."
    )

# %% [markdown]
# ## 8. The dearest single cases
# A block that is cut loses the draft tokens that would have been kept from the cut on: *lost*
# counts them, gamma at most. Of the rejections that lose most, these are the ones where the target
# was surest of what the draft thought least likely (p log(p/q) of the target's token, its part of
# the Kullback-Leibler divergence KL(p‖q), which says how far q is from p). One per text, `cases` of
# each domain. *context* ends at the position (▮); ⏎ is a line end, ␣ a space; *its q* and *its p*
# are what draft and target gave the draft's token; *p*, *q* and *rank* are of the target's token.

# %%
chosen = study.worst(frame, gamma, cases)
texts = study.as_text(chosen, frame, strings, prompt_tokens)
display(HTML(study.cases_as_html(texts)))
assert texts["lost"].is_monotonic_decreasing or texts.empty

# %%
lost = met["lost"].value_counts(normalize=True).sort_index()
ctx.say(
    f"Shares of the rejections met that lose 1, 2, … draft tokens: "
    f"{', '.join(lost.map('{:.0%}'.format))}."
)

# %% [markdown]
# ## 9. Verdict

# %%
ctx.say(
    f"**Verdict.** The largest share of the rejections: of the kinds {study.largest(kinds)}, of "
    f"the states {study.largest(states)}. {study.cost_verdict(causes, ranking)}"
)

# %% [markdown]
# The dearest of each family, in tokens per target pass:

# %%
columns = ["share", "positions", "gain", "random"]
notebook.show_table(dear.drop_duplicates("family")[columns])

# %% [markdown]
# ## 10. Do loops carry the verdict?
# Greedy text runs into loops, and what a draft does there says little about language (notebook 02,
# section 7). A position *repeats* when its token ends a run of four tokens that the same text has
# had before; the others lie *outside loops*.

# %%
at_1 = study.sampled_trace(runs.load_or_record(ctx.profile, "sampled"))
repeated = loops.share({"T = 0": trace, "T = 1": at_1})
ctx.export(repeated, "loop-share")
notebook.show_table(repeated.wide("temperature", "domain"))
ctx.say(loops.said(repeated))
ctx.say(study.in_loops_said(study.in_loops(frame, gamma, picks)))

# %% [markdown]
# Outside loops: shares are of the rejections at positions outside, gains are counted over the
# blocks whose first token lies outside. At T = 1 a position counts as rejected where the sampled
# token is not the draft's best (the point-mass rule, exact for a drafted token that is not drawn);
# `state` has no label there.

# %%
sampled = study.label(at_1, strings, prompt_tokens, sure, ngram)
outside = loops.outside(frame, trace)
rejected = loops.side_by_side(frame, outside, sampled, score.mean_of("rejected"))
beside = study.causes_beside_loops(causes, frame, sampled, tested, gamma)
ctx.export(beside, "loops")
ctx.say(loops.change_in_words("Share of the positions rejected", rejected))

# %%
by_text = beside.at(domain=POOLED)
of_share, of_gain = (by_text.at(quantity=name) for name in ("share", "gain"))
kinds_drawn = [name for name in tested if name.startswith("kind: ")]
ctx.plot(
    by_text,
    x="cause",
    hue="text",
    columns="quantity",
    kind="bars",
    y="share of rejections, or tokens per target pass",
    x_label=" ",
    height=0.25 * len(tested),
    reference=0,
    slug="loops",
    caption="Share of the rejections and gain of each class, in the whole greedy texts, outside "
    "loops, and at T = 1. The kind with the largest share: "
    f"{study.largest_by_text(of_share, kinds_drawn)}.",
)
ctx.say(f"Dearest of the classes: {study.largest_by_text(of_gain, tested)}.")

# %%
most = [
    rows.frame.fillna(0).set_index("cause")["estimate"].idxmax()
    for rows in (kinds, states)
]
names = "share_" + drawn.index.str.replace(": ", "_").str.replace(" ", "_")
ctx.record(
    rejected_share=float(frame["rejected"].mean()),
    rejections=total,
    met=len(met),
    most_kind=most[0],
    most_state=most[1],
    dearest=dear.index[0] if ranking["is_cause"].any() else "none",
    gain_dearest=float(dear["gain"].iloc[0]),
    gain_every=gain.at(cause="every").value,
    lookup_right_of_rejections=looked.value,
    **dict(zip(names, drawn["share"], strict=True)),
)

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
#
# 2. Mend the numbers and the words at once: `two = ["kind: number", "kind: word start"]` in section
#    4. More or less than the sum?
#
# <details><summary>What happens</summary>
# These classes do not overlap, so they share no rejection, and where a number stands near a word a
# block needs both: the gain together is at least about the sum. Classes of two families overlap,
# and there it is mostly less.</details>
#
# 3. Set `gamma = 1`, then `gamma = 8`. What happens to *surplus* (gain less random) of `since:
#    right after`, and why? (The table `07_causes-values` has it.)
#
# <details><summary>What happens</summary>
# With gamma = 1 each block tries one token, and what was rejected before matters little. With a
# long draft, a rejection that follows another makes a block of a single token, the least that there
# is: mending it is worth more than mending one that ends a long block. This is so even if
# rejections are independent, so `since` is left out above.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above; section 10 says what of them loops carry. The rejections by
#   class, what each class costs, where the right token would have been found.
# * What this does not show: a cause in the strict sense. Classes go together (a number is often
#   where the target is unsure), and gains of overlapping classes do not add. The counterfactual
#   draft is right at once and for nothing; a real better draft changes everywhere. `since` is taken
#   from the text as it was: with fewer rejections, other positions would follow one. Kinds are told
#   from the tokens' text alone. T = 0 only: at T > 0 a rejection is a matter of chance (`alpha`).
#   Intervals are 95 % each, not all at once.
# * Next: notebook 08 makes better drafts; notebook 09 stops drafting where the draft is not sure.

# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 13. How sure can we be?
#
# Every number of this kit comes from some prompts, a seed, a temperature, texts of some length, and
# prompts that the draft may or may not have met before. This notebook asks what each of these
# decides: how far the intervals can be trusted, what so many prompts can show, and what would be
# another number if the study had been done otherwise.
#
# ![Share of repeated positions by their place in the text](../figures/smollm/13/length.png)
#
# *Runs on* any machine · *minutes* about one on 2 cores · *reads* the runs `greedy` (T = 0),
# `sampled-0.3`, `sampled-0.7`, `sampled`, `sampled-seed-1` and `sampled-seed-2` of the profile,
# recorded if they are not there, and the simulated studies of `data/coverage` · *writes*
# `figures/<profile>/13/`.

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
import pandas as pd
from scipy.stats import friedmanchisquare, norm

from speclab import replay, runs, score, stats
from speclab.analysis import association, loops, power, published, significance
from speclab.analysis.texts import Text
from speclab.show import notebook
from speclab.show.estimates import Estimates, per_domain
from speclab.studies import how_sure as study

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# two domains are told apart when Holm's p-value is below this
level: float = 0.05  # 0.0001 to 0.5
# power: the probability with which a study should find a difference that is there
likely: float = 0.8  # 0.5 to 0.999
# prompts a domain of the studies that are drawn again to check the power
redrawn_prompts: list = [10, 25, 50]  # 5 to 100000
# shorter texts, to see what the numbers owe to the length
new_tokens: list = [16, 32]  # 1 to 65536
# length of the drafted chain
gamma: int = 4  # 1 to 64

# %%
ctx = notebook.start("13_how_sure", profile, overrides)
greedy = runs.load_or_record(ctx.profile.replace(temperature=0.0), "greedy")
kinds = {0.3: "sampled-0.3", 0.7: "sampled-0.7", 1.0: "sampled"}
sampled = {T: runs.load_or_record(ctx.profile, kind) for T, kind in kinds.items()}
seeds = [runs.load_or_record(ctx.profile, f"sampled-seed-{n}") for n in (1, 2)]
at_0, at_1 = Text.of(greedy), Text.of(sampled[1.0], *seeds)
domains = list(score.domains_in(at_0.trace))
count = at_0.trace.groupby("domain")["prompt_id"].nunique().min()
longest = ctx.profile.max_new_tokens

# %% [markdown]
# ## 1. Does a 95 % interval hold the truth in 95 of 100 studies?
# Here the truth is known: let a recorded run's prompts be all that there are. A simulated study
# draws a few of them a domain, with replacement, and makes its interval; how many hold the number
# of all prompts is its *coverage*. Four ways to make an interval from the same resamples:
#
# | method | bounds |
# | --- | --- |
# | percentile | the middle 95 % of the resamples |
# | expanded percentile | a little more than that, as a t interval is wider than a normal one |
# | BCa | other quantiles, corrected for bias and for a spread that grows with the number |
# | bootstrap-t | the number and its standard error, with quantiles of t that are resampled, too |
#
# The kit's intervals are *expanded percentile* ones (Hesterberg 2015); those of a design effect,
# which is a ratio of variances and very skewed, *bootstrap-t*. (Simulated once, on `smollm` and
# `tiny`: `data/coverage/prepare.py`; another pair is shown that of `smollm`.)

# %%
simulated, covered = study.coverage_of(ctx.profile.name)
ctx.export(covered, "coverage")
percent = covered.assign(**(100 * covered[["coverage", "low", "high"]]))
percent = percent.rename(columns={"coverage": "estimate"})
keys = ["estimator", "method", "n_prompts"]
ctx.plot(
    Estimates(percent[[*keys, "estimate", "low", "high"]]),
    x="n_prompts",
    hue="method",
    columns="estimator",
    kind="points",
    reference=95,
    limits=(min(percent["estimate"].min(), 80) - 2, 101),
    y="truth held, % of studies",
    x_label="prompts a domain",
    slug="coverage",
    caption="How many of the simulated studies' intervals hold the truth, by prompts a domain "
    f"(bars: Monte-Carlo error, {covered['studies'].min()} studies or more; line: the promised "
    f"95 %). The lowest is {percent['estimate'].min():.0f} %.",
)

# %%
own = percent[percent["used"]].groupby("n_prompts")["estimate"].agg(["min", "max"])
held = [f"{size}: {low:.0f} to {high:.0f} %" for size, low, high in own.itertuples()]
ctx.say(
    f"**The kit's own intervals held the truth** by prompts a domain (pair {simulated}) in "
    f"{'; '.join(held)} of the studies. Below {stats.FEW_PROMPTS} prompts a domain the notebooks "
    f"say so at their start; below {stats.MIN_PROMPTS} no interval is given. A study drawn from "
    "recorded prompts never meets one that is stranger than these: where such matter, true "
    "coverage is lower."
)

# %% [markdown]
# ## 2. How many prompts would be enough?
# The **power** of a study is the probability that its test finds a true difference; a study is
# planned so that it is 0.8 or so (the parameter `likely`). Two means of n prompts each have a
# difference with standard error √((s₁² + s₂²)/n), s the standard deviation between prompts of one
# domain; the test needs a difference beyond the quantile of its level, at the first and strictest
# step of Holm's correction:


# %%
def power_by_hand(frame, first, second, difference, prompts, tests):
    means = frame.groupby(["domain", "prompt_id"])["hit"].mean()
    error = np.sqrt((means[first].var() + means[second].var()) / prompts)
    limit = norm.isf(level / tests / 2)
    return norm.sf(limit - difference / error) + norm.cdf(-limit - difference / error)


first, second = domains[:2]
whole = at_0.trace.groupby("prompt_id").filter(lambda text: len(text) == longest)
hit_1 = score.mean_of("hit", "hit[1]")
design = power.between(whole, hit_1, first, second)
assert np.isclose(
    design.power(0.05, 50, level, 6),
    power_by_hand(whole, first, second, 0.05, 50, 6),
    rtol=1e-4,
)

# %% [markdown]
# (Of texts of one length, where a mean of positions is a mean of prompts; the kit's function knows
# ratios, too.) What would 50 prompts a domain, as the paper had, find of the paper's differences,
# if prompts differed as they do here? The differences are those of Table I, and of Table II read as
# tokens per target pass:

# %%
asked = {
    "published_alpha": (at_0.hung, score.published_alpha),
    "block_efficiency": study.tokens_per_pass(at_0, ctx.profile.tree),
}
paper = pd.concat([published.published(table) for table in ("I", "II")])
paper = paper.pivot(index="domain", columns="quantity", values="published").loc[domains]
paper = {
    "published_alpha": paper["alpha_mean"],
    "block_efficiency": paper["expected_accepted_length"],
}
parts = [
    power.every_pair(*asked[name], values, 50, likely, level)
    for name, values in paper.items()
]
plans = pd.concat(parts, ignore_index=True)
ctx.table(plans, "power")

# %%
family = len(plans) // len(parts)
for name, rows in plans.groupby("estimator", sort=False):
    enough, least = (
        (rows["needed"] <= 50).sum(),
        rows.loc[rows["difference"].abs().idxmin()],
    )
    ctx.say(
        f"* `{name}`: 50 prompts a domain find a difference of {rows['detectable'].min():.3f} to "
        f"{rows['detectable'].max():.3f} with probability {likely:g}, by pair of domains: enough "
        f"for {enough} of the paper's {len(rows)}. Its smallest, {abs(least['difference']):.3f} "
        f"({least['first']}, {least['second']}), needs {least['needed']:,} "
        f"[{least['needed_low']:,}, {least['needed_high']:,}]."
    )

# %% [markdown]
# Need we believe the formula? The permutation test of notebook 03 itself is run on studies redrawn
# from this run's prompts, for two domains whose difference here is neither always found nor never:

# %%
redrawn = study.redrawn(asked, redrawn_prompts, level, family)
ctx.table(redrawn, "redrawn")
one_of = redrawn.groupby("estimator", sort=False)[["first", "second"]].first()
designs = {
    name: power.between(*asked[name], *pair)
    for name, pair in zip(one_of.index, one_of.to_numpy(), strict=True)
}
off = (
    (redrawn["found"] - redrawn["formula"])
    .groupby(redrawn["prompts"])
    .agg(["min", "max"])
)
said = [
    f"{row.min:+.2f} to {row.max:+.2f} with {row.Index} prompts"
    for row in off.itertuples()
]
ctx.save(
    study.power_picture(designs, redrawn, plans, level, family),
    "power",
    caption="Power by true difference and prompts a domain: the formula (lines) and the test "
    "itself on redrawn studies (circles); dotted lines stand at the differences between the "
    "paper's domains. The test's power less the formula's: "
    f"{'; '.join(said)}.",
)

# %% [markdown]
# ## 3. Would another seed say something else?
# A sampled text is one draw. The same prompts were sampled with three seeds:

# %%
by_seed = {
    f"seed {seed}": (at_1.where(at_1.trace["seed"] == seed).positions, score.alpha)
    for seed in at_1.trace["seed"].unique()
}
draws = stats.jointly(by_seed | {"three seeds": (at_1.positions, score.alpha)})
alphas = Estimates(draws.table(key="texts"), digits=3)
ctx.export(alphas, "seeds")
notebook.show_table(alphas.without(domain=score.POOLED).wide("texts", "domain"))

# %%
of_prompts = at_1.trace.groupby(["prompt_id", "seed"])["overlap"].mean().unstack()
p_seed = friedmanchisquare(*of_prompts.to_numpy().T).pvalue
away = {name: (draws[name] - draws["three seeds"])[[score.ALL]] for name in by_seed}
moved = Estimates(draws.table(away, key="texts"), digits=3)
ctx.say(
    f"**Seeds.** Against the three together, the mean of the domains moves by "
    f"{moved.listed('texts')} (prompts paired); Friedman's test over prompts, whether seeds differ "
    f"at all: p = {p_seed:.3f}. The interval of one seed's prompts cannot see this. So `alpha` at "
    f"T = 1 rests on the three: {alphas.at(texts='three seeds', domain=score.ALL)} in the mean of "
    "the domains."
)

# %% [markdown]
# ## 4. Between T = 0 and T = 1
# A temperature T divides the logits of both models before the softmax, and p and q are those after
# it: at T = 0.3 both are sharper than at T = 1. The prompts are the same, the texts are the
# target's own at each temperature. At T = 0 acceptance of one drafted token is `hit[1]`, above it
# `alpha` of a drawn one; chains are drafted by the same rule.

# %%
warm = (
    {"0": at_0} | {f"{T:g}": Text.of(run) for T, run in sampled.items()} | {"1": at_1}
)
draws, found = study.by_text(warm, gamma, "T")
found = Estimates(found.frame.astype({"T": float}), digits=3)
ctx.export(found, "temperatures")
ctx.plot(
    found.without(domain=[score.ALL, score.POOLED]),
    x="T",
    columns="quantity",
    share_y=False,
    y="",
    x_label="T, temperature of the text (and of p and q)",
    slug="temperatures",
    caption=f"Acceptance of one drafted token and tokens per pass of chains of {gamma}, by the "
    "temperature of the text. Bands: 95 %, prompts resampled.",
)

# %%
for quantity, one in draws.items():
    steps = {
        f"T = {cold} to {hot}": (one[hot] - one[cold])[domains]
        for cold, hot in zip(list(warm)[:-1], list(warm)[1:], strict=True)
    }
    steps = Estimates(one.table(steps, key="step"), digits=3)
    said = steps.sentence(
        "rises in", "falls in", "cannot be told from 0 in", within="step"
    )
    ctx.say(f"**{quantity}.** {said}.")

# %% [markdown]
# ## 5. What does the length of the texts decide?
# A text is read from its beginning, and its beginning does not depend on where it is cut: so what a
# study with shorter texts would have found is known exactly. Small models' greedy texts run into
# loops, which a draft copies: a position *repeats* when its token ends a run of four tokens that
# the same text has had before. *Outside loops* is what does not repeat.

# %%
text = at_0.trace[at_0.trace["prompt_id"] == at_0.trace["prompt_id"].iloc[0]]
tokens, before = text.sort_values("position")["token"].tolist(), set()
again = []
for end in range(len(tokens)):
    run = tuple(tokens[end - 3 : end + 1])
    again.append(len(run) == 4 and run in before)
    before.add(run)
assert again == loops.repeats(text).tolist()

# %%
sizes = sorted({*(n for n in new_tokens if n < longest), longest})
cut = {f"{n} tokens": at_0.cut(n) for n in sizes}
parts = {"hit[1]": {}, "hit[1] outside loops": {}, "share in loops": {}}
parts[f"tokens per pass, gamma {gamma}"] = {}
for name, one in cut.items():
    repeats = loops.repeats(one.trace)
    outside = one.where(~repeats)
    marked = one.trace.assign(repeats=repeats)
    parts["hit[1]"][name] = one.positions, one.acceptance
    parts["hit[1] outside loops"][name] = outside.positions, one.acceptance
    parts["share in loops"][name] = marked, score.mean_of("repeats")
    parts[f"tokens per pass, gamma {gamma}"][name] = study.tokens_per_pass(one, gamma)
draws = {quantity: stats.jointly(asked) for quantity, asked in parts.items()}
by_length = {quantity: one.table(key="length") for quantity, one in draws.items()}
by_length = Estimates.stacked(by_length, "quantity")
ctx.export(by_length, "length-values")
notebook.show_table(
    by_length.without(domain=score.POOLED).wide(["quantity", "length"], "domain")
)

# %%
looping = study.loops_by_position({"T = 0": at_0, "T = 1": at_1})
ctx.plot(
    looping,
    x="position",
    columns="text",
    limits=(0, None),
    y="share of positions that repeat",
    slug="length",
    caption=f"Share of the positions that repeat, by their place in texts of {longest} tokens: at "
    "the end of the greedy ones "
    f"{looping.at(text='T = 0', position=looping.frame['position'].max()).listed()}.",
)

# %%
share = {"T = 0": at_0, "T = 1": at_1}
share = {
    name: (one.trace.assign(repeats=loops.repeats(one.trace)), score.mean_of("repeats"))
    for name, one in share.items()
}
in_loops = Estimates(stats.jointly(share).table(key="temperature"), digits=3)
ctx.export(in_loops.without(domain=score.POOLED), "loop-share")
half, most = list(cut)[-2:]
lost = {
    quantity: Estimates(one.table({"": one[most] - one[half]}), digits=3).at(
        domain=domains
    )
    for quantity, one in draws.items()
}
ctx.say(
    f"**In texts of {longest} tokens** this share of the positions repeats (mean of the domains): "
    f"{in_loops.at(domain=score.ALL).listed('temperature')}. From {half} to {most} the tokens per "
    f"pass of a chain of {gamma} change by {lost[f'tokens per pass, gamma {gamma}'].listed()}, and "
    f"`hit[1]` outside loops by {lost['hit[1] outside loops'].listed()}. So every number here "
    f"belongs to texts of {longest} tokens: longer ones were not recorded, and what they would "
    "give cannot be told from these."
)

# %% [markdown]
# Do loops carry the differences between the domains?

# %%
outside = at_0.where(~loops.repeats(at_0.trace))
tested = {"whole texts": at_0.positions, "outside loops": outside.positions}
tested = {
    name: significance.differences(frame, at_0.acceptance)
    for name, frame in tested.items()
}
apart = {name: one["p_holm"] < level for name, one in tested.items()}
same = (
    tested["whole texts"]["difference"] * tested["outside loops"]["difference"] > 0
).all()
ctx.say(
    f"By `hit[1]` {apart['whole texts'].sum()} of {family} pairs of domains are told apart on the "
    f"whole greedy texts, {apart['outside loops'].sum()} outside loops, "
    f"{'each in the same direction' if same else 'not all in the same direction'}."
)

# %% [markdown]
# ## 6. Other settings of the study
# A text's end cuts its last block. At T = 0 the recorded trees look past the end, so what the cut
# takes is known exactly. And the prompts can be long or short: their thirds by characters, within
# each domain.

# %%
per_block = score.block_estimators()["block_efficiency"]
tree = ctx.profile.tree
ends = {
    "as counted": (replay.prompt_sums(at_0.blocks(tree)), per_block),
    "had the texts gone on": (study.uncut(at_0, tree), per_block),
}
draws = stats.jointly(ends)
gain = {"more": draws["had the texts gone on"] - draws["as counted"]}
gain = Estimates(draws.table(gain)).at(domain=score.ALL)
ended = Estimates(draws.table(key="end"))
ctx.export(ended, "last-block")
ended = ended.at(domain=score.ALL)
ctx.say(
    f"**The end of a text.** Tokens per pass of the recorded tree, mean of the domains: "
    f"{ended.listed('end')}; {gain} more."
)

# %%
texts = runs.profile_prompts(ctx.profile)
long = pd.Series({p.prompt_id: len(p.text) for p in texts}, name="characters")
ids = at_0.trace[["prompt_id", "domain"]].drop_duplicates().join(long, on="prompt_id")
rank = ids.groupby("domain")["characters"].rank(method="first", pct=True)
third = dict(zip(ids["prompt_id"], np.ceil(3 * rank).astype(int), strict=True))
names = {1: "short prompts", 2: "middling prompts", 3: "long prompts"}
if count >= 3 * stats.MIN_PROMPTS:
    at = at_0.trace["prompt_id"].map(third)
    asked = {name: (at_0.trace[at == n], at_0.acceptance) for n, name in names.items()}
    draws = stats.jointly(asked, same=False)
    change = {name: draws[name] - draws["short prompts"] for name in list(asked)[1:]}
    change = Estimates(draws.table(change, key="prompts"), digits=3).at(
        domain=score.ALL
    )
    ctx.export(Estimates(draws.table(key="prompts")), "prompt-length")
    ctx.say(
        "**Prompt length.** `hit[1]` against short prompts, mean of the domains: "
        f"{change.listed('prompts')}."
    )
else:
    ctx.say(f"Thirds of {count} prompts a domain are too few for an interval.")

# %% [markdown]
# ## 7. Had the draft seen these prompts?
# A draft that was trained on prompts like those it is judged on looks better than it is. `seen` is
# the largest share of a prompt's runs of three words that one training prompt holds (the words that
# stand around every problem of a domain left out). Only the composed training prompts can be made
# again; what else the draft was trained on is not in the kit, so `seen` is a lower bound.

# %%
trained_on = study.composed_prompts(ctx.profile)
if trained_on is None:
    ctx.say(
        f"Which prompts the draft of `{ctx.profile.name}` was trained on is not known here: what "
        "it had seen cannot be said."
    )
else:
    met = study.seen(ctx.profile, trained_on)
    hits = at_0.trace.groupby("prompt_id")["hit"].mean().rename("hit[1]")
    met = met.join(hits, on="prompt_id")
    ctx.export(met.sort_values("seen", ascending=False), "seen")
    rho = per_domain(met, lambda rows: association.correlation(rows, "seen", "hit[1]"))
    rho = Estimates(rho[["domain", "estimate", "low", "high"]])
    nearest = met.loc[met["seen"].idxmax()]
    spread = met.groupby("domain", sort=False)["seen"].agg(["median", "max"])
    notebook.show_table(spread.reset_index(), 2)
    words = "is hit more often in", "is hit less often in", "cannot be told from 0 in"
    ctx.say(
        f"**Seen.** At most {100 * nearest['seen']:.0f} % of a prompt (`{nearest['prompt_id']}`); "
        f"{(met['seen'] >= 0.5).sum()} of {len(met)} prompts share half or more. Spearman's "
        f"correlation of `seen` with `hit[1]` within a domain: {rho.listed()}; "
        f"what is more like a training prompt {rho.sentence(*words)}. "
        "Likeness in form and having been seen are one here: both come from templates."
    )

# %%
at_all = in_loops.at(temperature="T = 0", domain=score.ALL)
paper = plans[plans["estimator"] == "published_alpha"]
ctx.record(
    detectable_published_alpha=float(paper["detectable"].max()),
    paper_pairs_enough=int((paper["needed"] <= 50).sum()),
    seed_p_value=float(p_seed),
    loops=at_all.value,
    new_tokens=longest,
)
few = own[own.index <= count].iloc[-1]
ctx.answer(
    f"With {count} prompts a domain on `{ctx.profile.name}`, 95 % intervals hold the truth in "
    f"{few['min']:.0f} to {few['max']:.0f} % of simulated studies; of the paper's {len(paper)} "
    f"differences between domains 50 prompts would find {(paper['needed'] <= 50).sum()} with "
    f"probability {likely:g}. All of it is of texts of {longest} tokens ({at_all} of the greedy "
    "positions in loops), and what longer ones would give is not known."
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: a study of 50 prompts finds a difference with probability 0.8. How many prompts find
#    half the difference as surely?
#
# <details><summary>What happens</summary>
# 200: the standard error falls with the square root of the prompts, so half the difference needs
# four times as many. More tokens of the same prompts do not help as much: the spread between
# prompts stays.</details>
#
# 2. Take the marks of section 5 with runs of 8 tokens, `loops.repeats(at_0.trace, 8)`. Do more
#    positions repeat, or fewer?
#
# <details><summary>What happens</summary>
# Fewer: a run of eight that was said before ends in a run of four that was said before, but not the
# other way round.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above. Prompts decide what can be told; what the seed and the length
#   of the texts change stands in no interval of resampled prompts.
# * What this does not show: other prompts than these sets, longer texts, another draft's training
#   set; what a router's probabilities are worth (notebook 09).
# * Next: notebook 03 and the others read their intervals this way; notebook 11 asks which of the
#   paper's claims hold.

# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 6. Does the domain with the highest entropy also have the highest acceptance?
#
# In the paper the domain with the highest target entropy also has the highest mean of min(1, p/q).
# Yet within each domain acceptance falls as entropy rises (notebook 05). So the draft seems to do
# best where the target is most undecided. Does this hold for this pair, and by which measure of
# acceptance? How much of a domain's difference from the others remains if entropy, kind of token or
# the draft's vocabulary is held fixed?
#
# ![Entropy and acceptance of each domain](../figures/smollm/06/entropy-and-acceptance.png)
#
# *Runs on* any machine · *time* under a minute on 2 cores · *reads* the runs `greedy` (T = 0) and
# `sampled` (three seeds), the greedy run in the other prompt format, and both runs for each other
# prompt set. Missing runs are recorded first. · *writes* `figures/<profile>/06/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# the domain that is compared with the mean of the others; "": the one with the highest entropy
domain: str = ""  # any
# quantile bins of target entropy and of token frequency, held fixed in section 3
bins: int = 8  # 2 to 100

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
import pandas as pd

from speclab import score, stats
from speclab.analysis import prompt_sets, published, significance
from speclab.analysis.texts import PAPER, SEEDS, Text
from speclab.estimates import Estimates, counted, named
from speclab.models.folder import ModelFolder
from speclab.show import drawings, notebook, pictures
from speclab.studies import entropy_paradox as study

RUNS = ["greedy", "seeds", "other-format", "others", "others-sampled"]

# %%
ctx = notebook.start("06_entropy_paradox", profile, overrides)
own_format = ctx.profile.template
greedy = Text.recorded(ctx.profile, "greedy")
other, why_not = study.in_other_format(ctx.profile)
sampled = Text.recorded(ctx.profile, *SEEDS)
ctx.say(notebook.made_with(greedy.pair))

# %%
domains = list(score.domains_in(greedy.trace))
compared = stats.judged_domains(greedy.trace)
if few := [name for name in domains if name not in compared]:
    ctx.say(f"We leave out {named(few)}: an interval needs {stats.MIN_PROMPTS} prompts or more.")

# %%
# domains are compared on these texts
cold, warm = (study.of_domains(text, compared) for text in (greedy, sampled))
domain = study.asked_domain(domain, cold)
others = [name for name in compared if name != domain]
if others:
    ctx.say(
        f"We compare **{domain}** with {named(others)}. (Set the parameter `domain` to compare "
        "another domain.)"
    )

# %%
seeds = sampled.trace["seed"].nunique()
ctx.say(
    f"The target reads the prompts {study.FORMATS[own_format]}. Each has "
    f"{counted(seeds, 'text')} at {sampled.name}."
)

# %% [markdown]
# ## 1. Is there a paradox on this pair?
# We call it a paradox if one domain has both the highest target entropy (in nats) and the highest
# acceptance. The **contrast** of a domain is its value minus the mean of the other domains' values.
# We compute it by hand for acceptance at T = 0, where `hit` is 1 if the draft's best token is the
# target's best.

# %% tags=["by-hand"]
by_domain = cold.trace.groupby("domain")["hit"].mean()
mean_of_others = by_domain.drop(domain).mean()
by_hand = by_domain[domain] - mean_of_others

# %%
if ctx.compares(compared):
    leads = study.leads([cold, warm], domain)
    acceptance = leads.at(quantity="acceptance").in_units("points")
    as_published, at_0, at_1 = (part for _, part in acceptance.groups("view"))
    assert np.isclose(by_hand, at_0.value)
    ctx.say(f"The contrast of {domain} is {at_0}.")

# %% [markdown]
# For its 95 % interval we **resample the prompts**: we draw as many prompts of each domain as there
# are, with replacement, 2,000 times. There is a paradox if the domain has the highest entropy, and
# also the highest acceptance, in more than 97.5 % of these resamples. There is no paradox if it has
# the highest entropy, or the highest acceptance, in fewer than 2.5 %. Otherwise the result is
# inconclusive.
#
# We measure acceptance in three ways. The **paper's measure** is the mean of min(1, p/q) over all
# nodes of the draft trees (`published_alpha`); no decoder accepts tokens at that rate. The other
# two are exact. On greedy text (T = 0) the draft's **best token** is accepted if it is the target's
# best (`hit[1]`). On sampled text we take the acceptance of one **drawn token** (`alpha`).

# %%
if others:
    parts = [leads.at(quantity="entropy"), acceptance]
    cells = parts[0].wide("view", "quantity").merge(parts[1].wide("view", "quantity"), on="view")
    cells.columns = ["view", "contrast in entropy (nats)", "contrast in acceptance"]
    shares = leads.frame["share_highest"].to_numpy().reshape(-1, 2)
    cells[["share of resamples with the highest entropy", "with the highest acceptance"]] = shares
    cells["paradox"] = [study.is_highest(share) for share in shares.min(axis=1)]
    ctx.table(leads, "paradox", 2, cells=cells)

# %%
tables = [published.comparison("I", text, text.rule) for text in (greedy, sampled)]
in_paper = tables[0]["published"].notna().any()
ctx.export(tables[0].dropna(axis=1, how="all"), "table-1")

# %%
caption = (
    "Mean target entropy (across) and acceptance (up) of each domain, by measure of acceptance. "
    "Lines through a point are 95 % intervals."
)
if others:
    caption += (
        f" The contrast of {domain} in acceptance is {at_0} for the {greedy.token} and {at_1} for "
        f"the {sampled.token}."
    )
if others and in_paper:
    printed = tables[0].pivot(index="domain", columns="quantity", values="published")
    printed = printed.loc[compared, "alpha_mean"]
    in_points = 100 * (printed[domain] - printed.drop(index=domain).mean())
    caption += (
        f" By the paper's measure it is {in_points:+.0f} points in the paper and "
        f"{as_published.span()} here."
    ).replace("-", "−")

# %%
ctx.draw(
    drawings.draw_entropy_and_acceptance,
    study.entropy_and_acceptance(*tables, [greedy, sampled]),
    "entropy-and-acceptance",
    domain=domain,
    title=study.highest_in_title(cold),
    caption=caption,
)

# %% [markdown]
# ## 2. Which kinds of token does each domain consist of?
# A domain may be easy because of its tokens: the second half of a word may be easier to guess than
# the first. Each token of the target's text therefore gets a **kind**
# (`speclab.analysis.token_kinds`). All tokens that begin a word, a name or a keyword have the same
# kind, `word start`, so that programs and prose can be compared. Each token also gets a
# **frequency**, its share among the tokens of all *other* prompts.
#
# If the draft's output layer is trimmed, the draft can never propose the tokens **outside its
# vocabulary**. There q = 0, and the draft is always rejected. We show no acceptance for a kind that
# occurs in fewer than five prompts of a domain.

# %%
tokenizer = ModelFolder.fetched(ctx.profile.target, weights=False).tokenizer
strings = pictures.strings_of(tokenizer)

# %%
can_say = greedy.pair["draft"]["tokens_said"]
greedy, sampled = (study.with_tokens(text, strings, can_say, bins) for text in (greedy, sampled))
cold, warm = (study.of_domains(text, compared) for text in (greedy, sampled))

# %%
kinds, kinds_sampled = study.by_kind(greedy), study.by_kind(sampled)
shares = study.shares_of_kinds(greedy)
ctx.export(kinds, "token-kinds-values")
ctx.export(kinds_sampled, "token-kinds-values-sampled")

# %%
panels = {
    "share of positions": shares,
    f"acceptance, {greedy.token}": kinds,
}
panels = {panel: rows.without(domain=score.POOLED) for panel, rows in panels.items()}
in_figure = study.frequent(shares.at(domain=domains))

# %%
ctx.plot(
    Estimates.stacked(panels, "panel"),
    x="kind",
    only={"kind": in_figure},
    columns="panel",
    kind="bars",
    x_label="",
    y="share",
    limits=(0, 1),
    height=3.2,
    slug="token-kinds",
    title=study.most_frequent(shares.at(domain=domains), domain),
    caption="Share of the positions of the greedy text (left) and acceptance (right), by kind of "
    "token and domain. A domain has low acceptance if its frequent kinds of token have low "
    "acceptance. Bars: 95 % intervals. Kinds below "
    f"{100 * study.FREQUENT:g} % in every domain are not shown. The acceptance of the "
    f"{sampled.token} is in `token-kinds-values-sampled.csv`.",
)

# %%
greedy, cold = (
    text.with_columns(outside=1 - text.trace["said"], rejected=~text.trace["hit"])
    for text in (greedy, cold)
)

# %%
asked = {"frequency elsewhere": score.mean_of("frequency")}
if greedy.trace["outside"].any():
    asked["outside the draft's vocabulary, of tokens"] = score.mean_of("outside")
    asked["of rejections"] = score.ratio_of("outside", "rejected")

# %%
draws = stats.jointly({name: (greedy.trace, of) for name, of in asked.items()})
tokens = draws.table().at(domain=domains).in_units("%", 1)
ctx.table(tokens, "tokens", most=60, cells=tokens.wide("domain", "name"))

# %% [markdown]
# ## 3. What explains the contrast?
# We change one thing, or hold one thing fixed, at a time.
#
# | changed or held fixed | how |
# | --- | --- |
# | exact measure | the best token's acceptance in place of the paper's measure (T = 0) |
# | rank 0 only | the paper's measure over the draft's best children only |
# | entropy, token kind, token frequency | *direct standardisation*, below |
# | draft vocabulary | the acceptance of only those tokens that the draft can propose |
#
# **Direct standardisation** computes a domain's mean for another mix of positions. Take entropy: we
# cut all positions into *quantile bins* of entropy, which hold equally many positions. Then we
# weight a domain's mean in each bin by the share of *all* positions that lie in this bin. So the
# domains differ only in their means within bins. We use only bins in which every domain has
# positions from at least five prompts, both for `before` and for `after`. We compute it by hand for
# entropy and acceptance at T = 0.

# %% tags=["by-hand"]
mean_in_bin = cold.trace.groupby(["domain", "entropy_bin"])["hit"].mean().unstack()
mix_of_all = cold.trace["entropy_bin"].value_counts(normalize=True)
at_equal_mix = (mean_in_bin * mix_of_all).sum(axis=1, skipna=False)
by_hand = at_equal_mix[domain] - at_equal_mix.drop(domain).mean()

# %%
if others:
    tests = study.held_fixed(cold, warm, bins)
    found = study.explanations(tests, domain)
    change = found.at(stage="change")
    at_equal = found.at(measure=cold.token, held_fixed="entropy").in_units("points")
    before, after = (at_equal.at(stage=stage) for stage in ("before", "after"))
    if np.isclose(before.value, at_0.value):  # every domain has all bins
        assert np.isclose(by_hand, after.value)
    if len(after.known):
        ctx.say(f"The contrast of {domain} is {before}. With entropy held fixed it is {after}.")

# %% [markdown]
# `before` and `after` are contrasts; `change` is their difference on the same resamples. A factor
# explains part of the contrast if holding it fixed moves the contrast towards 0.

# %%
if others:
    cells = found.in_units("points").wide(["measure", "held_fixed"], "stage")
    cells = cells.rename(columns={"held_fixed": "changed or held fixed"})
    ctx.table(found, "explanations", most=60, cells=cells)
    for row in change.rows():
        if row.note:
            ctx.say(f"* {row.measure}, {row.held_fixed}: {row.note}.")

# %%
if others:
    of_best_token = found.at(measure=cold.token)

# %%
held_fixed = [*change.known["held_fixed"].unique()] if others else []
if held_fixed:
    ctx.plot(
        found,
        x="held_fixed",
        only={"stage": ["change"], "held_fixed": held_fixed},
        hue="measure",
        kind="bars",
        y=f"change in the contrast of {domain} (points)",
        percent=True,
        x_label="changed or held fixed",
        height=2.6,
        reference=0,
        reference_name="no change",
        slug="explanations",
        title=study.moves_in_title(of_best_token, domain),
        caption=f"Change in the contrast of {domain} when one factor is changed or held fixed, by "
        "factor and measure of acceptance. The title is about the best token. A change explains "
        "part of a contrast if it has the opposite sign. Bars: 95 % intervals.",
    )

# %%
fixed = change.at(measure=cold.token).known["held_fixed"] if others else []
if len(fixed) > 1:
    stages = {what: study.staged(tests[cold.token, what], domain)[1] for what in fixed}
    changes = pd.DataFrame({what: of["change"] for what, of in stages.items()})
    of_hits = stats.jointly({cold.token: cold.accepted()})
    most, leads_of = study.leads_of_change(changes)
    leads_of = of_hits.table(leads_of, "held_fixed")
    ctx.say(study.compared_changes(most, leads_of))

# %% [markdown]
# ## 4. The same prompts in the other format
# The paper gave plain text to an instruction-tuned target. With the target's chat template the same
# prompts lead to another text. A draft that was trained on one format may do worse in the other. We
# subtract the acceptance with plain text from the acceptance with the template, for the same
# prompts. For the interval we resample the prompts.

# %%
if other is None:
    in_other = study.FORMATS["chat" if own_format == "none" else "none"]
    ctx.say(f"The target cannot read these prompts {in_other}: {why_not}.")
else:
    plain, template = (greedy, other) if own_format == "none" else (other, greedy)
    frames = {
        PAPER: (template.nodes, plain.nodes, score.published_alpha),
        greedy.token: (template.trace, plain.trace, plain.acceptance),
    }
    paired = {name: significance.paired_by_domain(*one) for name, one in frames.items()}
    formats = Estimates.stacked(paired, "measure").without(domain=score.POOLED)
    ctx.export(formats, "template")

# %%
if other:
    exact = formats.at(measure=greedy.token).in_units("points")
    ctx.plot(
        formats,
        x="domain",
        hue="measure",
        kind="points",
        x_label="",
        y="chat template minus plain text\n(points of acceptance)",
        percent=True,
        reference=0,
        reference_name="no difference",
        slug="template",
        title="With the chat template, acceptance of the best token "
        f"{exact.tally(*study.TEMPLATE)}",
        caption="Acceptance with the chat template minus acceptance with plain text at T = 0, by "
        f"domain and measure. For the best token the difference is {exact.span()}. Bars: 95 % "
        "intervals.",
    )

# %%
if other and others:
    both = {"with plain text": plain, "with the chat template": template}
    questions = {name: study.of_domains(text, compared).accepted() for name, text in both.items()}
    in_format = study.contrasts(questions, domain, "format").in_units("points")
    by_format = [f"{rows} {name}" for name, rows in in_format.groups("format")]
    ctx.say(f"The contrast of {domain} (best token, T = 0) is {named(by_format)}.")

# %% [markdown]
# ## 5. Other prompts
# We compute the same contrasts on other prompts (`other_prompts` in the profile, the study's
# settings file). Best token and entropy are measured at T = 0, the drawn token on sampled text. One
# easy domain can raise the mean of the others. So one panel leaves out the domain that has, of the
# others, the highest acceptance on our own prompts.

# %%
ctx.say(prompt_sets.described(ctx.profile))
of_greedy, of_sampled = (prompt_sets.texts(ctx.profile, own) for own in (cold, warm))
sets = [name for name in of_greedy if name != prompt_sets.OWN]
for name in [name for name in sets if name != prompt_sets.ENGLISH]:  # a part of another
    prompts = of_greedy[name].trace.groupby("domain", sort=False)["prompt_id"].nunique()
    notebook.few_prompts(prompts, f", {name}")

# %%
questions = {greedy.token: (of_greedy, greedy.acceptance, "")}
if len(others) > 1:
    easiest = by_domain.drop(domain).idxmax()
    questions[f"{greedy.token}, without {easiest}"] = (of_greedy, greedy.acceptance, easiest)
questions[sampled.token] = (of_sampled, sampled.acceptance, "")
questions["entropy (nats)"] = (of_greedy, score.mean_of("target_entropy"), "")

# %%
if others and sets:
    elsewhere = study.on_sets(questions, domain)
    ctx.export(elsewhere, "other-prompts")
    of_best = elsewhere.at(quantity=greedy.token).in_units("points")

# %%
if others and sets:
    ctx.plot(
        elsewhere,
        x="set",
        only={"set": [*elsewhere.known["set"].unique()]},
        columns="quantity",
        kind="bars",
        x_label="",
        y=f"{domain} minus the mean of the others (share accepted, or nats)",
        share_y=False,
        height=1.6,
        reference=0,
        reference_name="no difference",
        slug="other-prompts",
        title=f"Best token: the contrast of {domain} is {of_best.span()}, "
        "depending on the prompt set",
        caption=f"Contrast of {domain} on each prompt set, in acceptance (share accepted) and, in "
        "the last panel, in entropy. Each panel has its own scale. Bars: 95 % intervals.",
    )

# %%
if others and sets:
    both = elsewhere.at(quantity=[greedy.token, "entropy (nats)"]).frame
    least = both.groupby("set", sort=False)["highest"].min()
    ctx.say(study.paradoxes(least.map(study.is_highest)))

# %%
if others:
    there = "No other prompts were tested."
    if sets:
        there = study.elsewhere_in_words(of_best)
    entropy = leads.at(quantity="entropy", view=greedy.token)
    verdict = study.paradox_in_words(at_0, entropy, domain, greedy.name)
    ctx.answer(f"{verdict} {there} {study.moves_in_words(of_best_token)}")
else:
    ctx.answer(study.without_comparison(domain, exact if other else None))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: domain A has 3 sure positions with overlap 0.9 and 1 unsure position with 0.5. Domain
#    B has 1 sure position with 0.8 and 3 unsure positions with 0.4. Which domain is easier, and by
#    how much? What remains if both had half of each?
#
# <details><summary>What happens</summary>
# A has (3 · 0.9 + 0.5)/4 = 0.8, B has (0.8 + 3 · 0.4)/4 = 0.5. A is ahead by 0.3. With equal halves
# A has 0.7 and B has 0.6, a lead of 0.1. Two thirds of the lead came from the mix of entropies, one
# third from something else.</details>
#
# 2. Run the notebook with another of your domains, as `domain = "…"`. Is there a paradox too?
#
# <details><summary>What happens</summary>
# The sentences are the same with other numbers, because any domain has a contrast. The contrasts of
# one measure add up to 0 over the domains, so some domain is always above and another below. The
# interval says whether this means anything.</details>
#
# 3. Hold entropy fixed with `bins = 2`, then with `bins = 20`. What happens to `after`?
#
# <details><summary>What happens</summary>
# Two bins hold little fixed: domains still differ in entropy within a half, so `after` mostly stays
# closer to `before`. Twenty bins hold entropy fixed more exactly, but bins that a domain lacks are
# dropped with their positions.</details>

# %% [markdown]
# ## What this does not show, what is next
# * A cause. We hold one thing fixed at a time, but entropy, kind and frequency of a token go
#   together, so their changes must not be added. The target's own text decides both entropy and
#   token. Holding them fixed also removes the part of a domain's difference that works *through*
#   them. Only tokens outside the
#   draft's vocabulary are certain to be rejected because of the draft.
# * A property of a domain in general. These are particular prompts. Sections 4 and 5 show how much
#   the result depends on format and wording. Each interval by itself contains the true value in
#   95 % of cases. That all of them do so at once is less likely.
# * Next: notebook 07 looks at single rejections and their causes. Notebook 11 tests the paper's
#   claims one by one.

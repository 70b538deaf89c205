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
# picture shows the question and the answer (in a page that was run, for its own pair; in the
# source, for the kit's small one). In the paper (left) chat stands highest and furthest right: the
# highest mean of min(1, p/q) and the highest target entropy, while in each domain acceptance falls
# with entropy. Beside it the same procedure on this pair (`published_alpha`), and the exact
# acceptance of one draft token at either temperature, each on its own text and against that text's
# entropy: `hit[1]` (T = 0, greedy text) and `alpha` (T = 1, sampled text).
#
# ![Entropy and acceptance of four domains](../figures/smollm/06/entropy-and-acceptance.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores, once the runs are there · *reads* the
# runs `greedy` (T = 0), `sampled` (T = 1) and the same prompts in the other format
# (`chat-template`; where the profile gives its prompts in the target's chat template,
# `plain-template`) of the profile, recorded if they are not there · *writes*
# `figures/<profile>/06/`.

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
from speclab import runs, score
from speclab.models import pairs
from speclab.show import notebook, pictures
from speclab.analysis import published
from speclab.studies import chat_paradox as study

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# the domain that is set against the mean of the others
domain: str = "chat"  # one of code, math, reasoning, chat
# quantile bins of target entropy and of token frequency when domains are matched
bins: int = 8  # 2 to 100

# %%
ctx = notebook.start("06_chat_paradox", profile, overrides)
greedy = runs.load_or_record(ctx.profile, "greedy")
sampled = runs.load_or_record(ctx.profile, "sampled")
own_format = ctx.profile.template
other = runs.load_or_record(ctx.profile, study.OTHERWISE[own_format])

# %%
nodes = greedy.nodes.assign(ratio=score.ratio(greedy.nodes))
domains = list(score.domains_in(nodes, [domain]))
ctx.say(
    f"{domain} is set against {', '.join(name for name in domains if name != domain)}. "
    f"{study.formats_said(own_format)}"
)

# %% [markdown]
# ## 1. Is there a paradox on this pair at all?
# Two things make the paradox: of all domains this one has the highest target entropy (the target is
# most undecided there; the unit is the nat, notebook 05), and the highest acceptance. (Notebook 05
# has the third: whether acceptance falls as entropy rises.) How far from the others a domain stands
# is written as one number, the **contrast**: its value minus the mean of the other domains' values.
#
# Its 95 % interval, as every interval here, **resamples prompts**: as many prompts of each domain
# as there are get drawn anew, some twice and some never, 2,000 times. The paradox is said to be
# there if the domain is highest in both, entropy and acceptance, in more than 97.5 % of these
# resamples, and not to be there if it is so in one of them in fewer than 2.5 %.
#
# In the table, `published` is the paper's number, `ours_as_published` the same procedure on this
# pair over all nodes of the draft trees, `corrected` the estimator named beside it, over the
# positions of the target's own text: greedy text first (T = 0), then sampled text (T = 1).

# %%
asked = ["alpha_mean", "target_entropy_mean"]
table, table_sampled = (
    whole[whole["quantity"].isin(asked)].reset_index(drop=True)
    for whole in (
        published.comparison("I", greedy),
        published.comparison("I", sampled, rule="point-mass"),
    )
)
ctx.export(table.drop(columns=["depth", "bin"]), "table-1")
notebook.show_table(published.in_cells(table))

# %%
ctx.export(table_sampled.drop(columns=["depth", "bin"]), "table-1-sampled")
notebook.show_table(published.in_cells(table_sampled))

# %%
leads = study.leads(greedy, sampled, domain)
for view, two in leads.groups("view"):
    ctx.say(f"* This pair, by {view}: {study.lead_sentence(two)}.")

# %%
printed = study.printed_leads(domain, domains)
ctx.save(
    study.entropy_and_acceptance(table, table_sampled, domains, domain),
    "entropy-and-acceptance",
    caption="Entropy and acceptance of each domain, in the paper and on this pair. In the paper "
    f"{domain} has {printed['entropy']:+.2f} nats and {printed['published_alpha']:+.3f} against "
    "the mean of the others; "
    f"here, by its procedure, {study.state(leads.at(view=study.AS_PUBLISHED))}; by hit[1] at T = 0 "
    f"{study.state(leads.at(view=study.AT_0))}; by alpha at T = 1 "
    f"{study.state(leads.at(view=study.AT_1))}.",
)

# %% [markdown]
# ## 2. Under which estimator?
# The same contrast for every rung of the ladder of estimators (GLOSSARY.md). The rungs of
# temperature T = 0 (the likeliest token is always taken) come from the target's greedy text (in the
# exported table `alpha` and `top_mass` of that text are T = 1 rules on greedy text, and the
# acceptance of no decoder); those of T = 1 from text sampled from its distribution p, where a
# tree's tokens are accepted under the *point-mass* rule: proposed for certain, not drawn.

# %%
ladder = study.ladders(greedy, sampled, domain)
ctx.export(ladder, "ladder-contrasts-values")
ctx.table(ladder.wide("estimator", "text"), "ladder-contrasts", rows=20)

# %% [markdown]
# Behind each rung drawn stands the share of resamples in which the domain is the highest of all:
# 25 % would be a draw between four.

# %%
rungs = study.rungs_drawn(ladder, printed)
ours = rungs.at(pair="this pair").defined()
ctx.plot(
    rungs,
    x="rung",
    hue="pair",
    columns="unit",
    kind="bars",
    y=f"{domain} − mean of the others",
    x_label="",
    height=2.8,
    reference=0,
    share_y=False,
    slug="ladder-contrasts",
    caption=f"The contrast of {domain} under each estimator, and the share of resamples in which "
    f"it is the highest; crosses: the paper. From {ours.span()} here.",
)

# %%
ctx.say(f"{domain} {ours.sentence(*study.ABOVE_OR_BELOW, names='rung')}.")

# %% [markdown]
# `published_alpha` mixes ranks: the draft's best children (rank 0), its second-best, and so on.
# Each rank's own contrast, times its share of the nodes, is its part of the whole:

# %%
parts = study.rank_parts(nodes, domain)
lead = leads.at(quantity="published_alpha").value
notebook.show_table(parts)
assert abs(parts["part"].sum() - lead) < 1e-9 or parts["spread_of_share"].max() > 1e-9

# %% [markdown]
# ## 3. What kinds of token is each domain made of?
# A domain may be easy because of what it is made of: the second half of a word may be easier to
# guess than the first. Each token of the target's text gets a kind (`speclab.analysis.token_kinds`;
# what begins a word, a name or a keyword is one kind, so that code and prose can be compared), and
# a frequency: its share among the tokens of all *other* prompts. Kinds with rows of fewer than five
# prompts in a domain have no point.

# %%
tokenizer = pairs.load_tokenizer(pairs.model_folder(ctx.profile.target))
strings = pictures.strings_of(tokenizer)
trace, sampled_trace = (
    study.with_tokens(run.trace, strings) for run in (greedy, sampled)
)

# %%
kinds = study.by_kind(trace, "hit")
kinds_at_1 = study.by_kind(sampled_trace, "overlap")
ctx.export(kinds, "token-kinds-values")
ctx.export(kinds_at_1, "token-kinds-values-sampled")
ctx.table(kinds.wide("kind", "domain").fillna("too few"), "token-kinds")

# %%
own = kinds.at(domain=domain).frame.sort_values("share", ascending=False)
most = own.iloc[0]
ctx.plot(
    study.kinds_drawn(kinds, kinds_at_1),
    x="kind",
    rows="panel",
    kind="points",
    y="",
    share_y=False,
    height=1.7,
    slug="token-kinds",
    caption="Acceptance of one draft token by kind of token, at T = 0 (greedy text) and T = 1 "
    "(sampled text), and how often the greedy text meets a kind. Its most frequent kind in "
    f"{domain} is {most['kind']}: {most['share']:.0%} of the positions.",
)

# %%
common = trace.groupby("domain")["frequency"].mean().map("{:.1%}".format)
ctx.say(
    "A token is, on average, this share of the tokens of the other prompts: "
    f"{', '.join(common.index + ' ' + common)}."
)

# %% [markdown]
# ## 4. What explains the contrast? One thing at a time held fixed
# | held fixed | how |
# | --- | --- |
# | estimator | `hit[1]` instead of `published_alpha`, at the same positions (T = 0) |
# | rank 0 only | `published_alpha` over the draft's best children only |
# | rank mix, entropy, token kind, token frequency | *direct standardisation*, below |
# | prompt format | the same prompts in the other format (section 5), in pairs (T = 0) |
#
# Entropy and the tokens are held fixed at either temperature on its own text: `hit[1]` on greedy
# text, `alpha` on sampled text. The rows of `published_alpha` ask what made the published number;
# they are no acceptance.
#
# **Direct standardisation** asks what a domain's mean would be if it had another mix: its mean in
# each bin of entropy, say, weighted not by how often the domain meets that bin but by how often all
# domains together do. Then the domains differ in the means within bins only. Bins are *quantile
# bins*: they hold equally many positions. Matching needs levels that every domain has (rows of five
# prompts or more); `least_kept` is the smallest share of a domain's rows in such levels, and
# `before` is computed on these rows, so that a change is not one of rows.
#
# `before` and `after` are contrasts as above, `change` their difference on the same resamples.
# Something explains the contrast if holding it fixed changes it towards 0.

# %%
tests = study.tests_of(nodes, trace, sampled_trace, other, bins)
found = study.explanations(tests, domain)
ctx.export(found, "explanations-values")

# %%
wide = found.wide("held_fixed", "stage")
wide["least_kept"] = [study.least_kept(pair, whole) for whole, pair in tests.values()]
ctx.table(wide, "explanations")

# %%
change = found.at(stage="change")
for row in change.rows():
    if row.note:
        ctx.say(f"* {row.held_fixed}: {row.note}")

# %%
ctx.plot(
    study.stages_drawn(found),
    x="held_fixed",
    hue="stage",
    rows="panel",
    kind="bars",
    y=f"{domain} − mean of the other domains",
    x_label="held fixed",
    reference=0,
    slug="explanations",
    caption=f"The contrast of {domain} before and after one thing is held fixed, and its change "
    f"({change.span()}); the paper's own contrast is {printed['published_alpha']:+.3f}.",
)

# %%
points = found.frame.pivot(index="held_fixed", columns="stage", values="estimate")
apart = points["after"] - points["before"] - points["change"]
assert apart.abs().max() < 1e-8

# %% [markdown]
# The five candidate explanations of the paradox, each by itself:

# %%
verdicts = study.effects(found)
ctx.table(verdicts, "verdicts")
assert len(verdicts) == len(tests), "every test belongs to one of the five"

# %%
for view, two in leads.groups("view"):
    estimator = two.frame["quantity"].iloc[-1]
    moves = study.about(change, estimator).sentence(
        *study.RISES_OR_FALLS, names="held_fixed"
    )
    ctx.say(
        f"**Verdict by {view}: {study.state(two)}.** The contrast of `{estimator}` {moves}."
    )

# %%
shares = leads.without(quantity="entropy").frame.set_index("quantity")["share_highest"]
answers = shares.map(study.is_highest)
ctx.say(
    f"**Is {domain} the easiest domain on this pair?** At T = 0, by `hit[1]` on greedy text: "
    f"{answers['hit[1]']}; at T = 1, by `alpha` on sampled text: {answers['alpha']}. By the "
    f"paper's procedure (`published_alpha`, no decoder's acceptance): {answers['published_alpha']}."
)

# %% [markdown]
# ## 5. Prompt format, domain by domain
# The paper gave a chat-tuned target its prompts as plain text. The same prompts in the target's
# chat template make another text. Whichever of the two formats the profile has, the difference is
# template minus plain, paired by prompt; its interval resamples the pairs.

# %%
plain, template = study.plain_first(own_format, greedy, other)
formats = study.formats(plain, template)
ctx.table(study.without_empty_notes(formats), "template")

# %%
ctx.say(study.lengths_said(formats))

# %%
ctx.plot(
    formats.defined(),
    x="domain",
    hue="estimator",
    kind="points",
    y="chat template − plain text",
    reference=0,
    slug="template",
    caption="What the chat template changes at T = 0, paired by prompt: "
    f"{formats.sentence(*study.WITH_TEMPLATE, within='estimator')}.",
)

# %%
state = [study.state(two) for _, two in leads.groups("view")]
moved = change.defined().frame
names = "change_" + moved["held_fixed"].str.replace(r"[\[\]]", "", regex=True)
names = names.str.replace(": ", "_").str.replace(" ", "_")
ctx.record(
    contrast_published_alpha=lead,
    contrast_hit1=leads.at(quantity="hit[1]").value,
    contrast_alpha=leads.at(quantity="alpha").value,
    contrast_entropy_nodes=leads.at(quantity="entropy", view=study.AS_PUBLISHED).value,
    contrast_entropy_text=leads.at(quantity="entropy", view=study.AT_0).value,
    share_highest_published_alpha=shares["published_alpha"].item(),
    share_highest_hit1=shares["hit[1]"].item(),
    share_highest_alpha=shares["alpha"].item(),
    state_published_alpha=state[0],
    state_hit1=state[1],
    state_alpha=state[2],
    **dict(zip(names, moved["estimate"], strict=True)),
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: domain A has 3 sure positions with overlap 0.9 and 1 unsure one with 0.5; domain B has
#    1 sure one with 0.8 and 3 unsure ones with 0.4. Which domain is easier, by how much, and what
#    is left if both had half of each?
#
# <details><summary>What happens</summary>
# A: (3 · 0.9 + 0.5)/4 = 0.8; B: (0.8 + 3 · 0.4)/4 = 0.5; A leads by 0.3. At equal halves A has 0.7
# and B 0.6: a lead of 0.1. Two thirds of the lead was the mix of entropies, one third is something
# else.</details>
#
# 2. Run the notebook with `domain = "code"`. Is there a "code paradox"?
#
# <details><summary>What happens</summary>
# The sentences are the same with other numbers: a contrast can be asked of any domain. The four
# contrasts of one estimator add up to 0, so some domain is always above and another below; an
# interval says whether that means anything.</details>
#
# 3. Match on entropy with `bins = 2`, then with `bins = 20`. What happens to `after`, and what to
#    `least_kept`?
#
# <details><summary>What happens</summary>
# Two bins match little: within a half, domains still differ in entropy, so `after` mostly stays
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

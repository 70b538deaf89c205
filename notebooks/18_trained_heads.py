# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 18. What do a target's hidden states buy a draft?
#
# The drafts that servers run are mostly **heads**: small networks that read the target's hidden
# states (EAGLE-3, arXiv:2503.01840). We trained two for our pair's target, with about the minutes
# and the tokens that its own draft had. Are they accepted more often, at which depth, and are they
# faster? And how much do their training prompts decide?
#
# ![Acceptance of a block's first token by domain](../figures/smollm/18/first-token.png)
#
# *Runs on* a CPU, 4 GB · *time* about two minutes on 2 cores · *reads* `data/traces/smollm`,
# `data/traces/smollm-head` and `data/traces/smollm-head-other` · *decodes* with the extra `heads`
# and the weights of smollm; without them the measured part is left out · *writes*
# `figures/<profile>/18/`.

# %% tags=["parameters"]
# the pair whose heads were recorded
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change
largest_gamma: int = 10  # 2 to 16; the longest chain that is replayed
deepest: int = 6  # 2 to 16; the deepest drafted token whose acceptance is shown
decoded_gamma: int = 4  # 1 to 16; the chain that is decoded for real
dynamic: list = [5, 4, 12]  # 1 to 64; depth, branches and budget of EAGLE-2's tree
prompts_per_domain_timed: int = 2  # 1 to 50
new_tokens: int = 24  # 2 to 64
rounds: int = 2  # 2 to 20; each times all passes and all texts once
pass_repeats: int = 7  # 3 to 100
pass_tries: int = 4  # 1 to 20
level: float = 0.05  # 0.0001 to 0.5; of Holm's p-values

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
from speclab import cost, score, tree
from speclab.analysis.prompt_sets import OWN, SECOND
from speclab.estimates import Estimates, counted, stack
from speclab.models import pairs, timing
from speclab.models.folder import ModelFolder
from speclab.profiles import with_head
from speclab.shapes import Shape
from speclab.show import notebook
from speclab.studies import trained_heads as study
from speclab.studies.trained_heads import DRAFT, FORM, HEAD, MIXED

RUNS = []
READS = [
    "smollm-head",
    "data/traces/smollm",
    "data/traces/smollm-head",
    "data/traces/smollm-head-other",
    "data/pairs/smollm/head",
]

# %%
ctx = notebook.start("18_trained_heads", profile, overrides)
texts = study.heads_of(ctx.profile)
greedy, sampled = texts.values()
trained, card = study.trained()
mixed, form = trained[MIXED], trained[FORM]
unshown = [score.POOLED]
looks = study.in_words(trained)


def called(table):
    """A table with the heads' names."""
    return Estimates(table.frame.replace({"drafter": looks}), table.digits, table.unit)


# %% [markdown]
# ## 1. Two heads and a draft
# **The draft** is a language model of its own: four layers of width 256. It reads the text only.
# **A head** is one decoder layer as wide as the target. At a token of the text it reads the token
# and the outputs of three of the target's layers at the token before. At a drafted token the target
# has not run yet, so the head reads its own last state instead. All three output the same part of
# the target's tokens.
#
# The two heads differ in their training prompts only. The target wrote the texts.
#
# * **form**: prompts in the format of the kit's own (`data/prompts`).
# * **mixed**: half of these. The other half has no format: people's instructions, and bare
#   problems of code, math and reasoning.

# %%
size = {name: ModelFolder(path).bytes / 1e6 for name, path in study.folders().items()}
shipped = next(name for name, drafter in trained.items() if drafter == HEAD)
rows = study.training_table(card)
ctx.table(rows, "training", digits=3)
ctx.say(
    f"The pair ships the head **{shipped}** (`data/pairs/smollm/head`, {size[HEAD]:.1f} MB; the "
    f"draft has {size[DRAFT]:.1f} MB). Its first token is accepted most often on the second prompt "
    "set (section 6 has the difference). The other head comes as recorded traces."
)

# %%
covered = study.coverage(greedy).without(domain=[score.ALL, *unshown])
ctx.table(covered, "coverage", cells=covered.wide("prompts", "domain"))
ctx.say(
    f"The tokens that all three can output are {covered.span()} of the target's greedy "
    "tokens, depending on domain and prompt set. No drafter can be right about the others."
)

# %% [markdown]
# ## 2. Is the first drafted token accepted more often?
# All three are asked along the same recorded texts: of the kit's prompts, of the same prompts
# without the words around each problem, and of a second set in no format (`data/second_prompts`).
# The first token of a block is drafted from the target's hidden states, so a head should do best
# there.

# %%
hits = study.first_tokens(greedy)
first = study.first_token_table(hits)
ctx.export(first, "first-token-all")
gain = study.gains(hits)
over_draft = gain.at(domain=score.ALL)
ctx.plot(
    called(first.without(domain=unshown)),
    x="domain",
    hue="drafter",
    columns="prompts",
    kind="points",
    percent=True,
    y="accepted first tokens (%)",
    slug="first-token",
    title=f"The head's first token gains {over_draft.at(prompts=OWN)} over the draft's ({OWN})",
    caption="Share of positions at which the first token of a block is accepted at T = 0, by "
    "domain, prompt set and drafter. `all` is the mean of the domains. Bars: 95 % intervals.",
)

# %%
ctx.say(
    "Against the draft, the head's first token is "
    + over_draft.sentence(
        "accepted more often on",
        "accepted less often on",
        "accepted neither more nor less often on",
        names="prompts",
    )
    + f": {over_draft.listed('prompts')} (mean of the domains)."
)
by_domain = gain.without(domain=unshown)
ctx.table(by_domain, "gain", cells=by_domain.wide("prompts", "domain"))

# %% [markdown]
# ## 3. What happens deeper in a block?
# After the first token a head reads its own states, which only imitate the target's. An ordinary
# draft reads the text at every depth. Its acceptance, given that all earlier tokens were accepted,
# rises with depth, because blocks that get deep are at easy positions (notebook 04). A head is at
# the same easy positions, but it no longer sees the target's states.

# %%
deep = study.accepted_deep(greedy, deepest)
depths = study.depth_table(deep)
ctx.export(depths, "depth-all")
mean = depths.at(domain=score.ALL)
from_first = study.rises(deep, deepest)
ctx.plot(
    called(mean),
    x="depth",
    hue="drafter",
    columns="prompts",
    percent=True,
    y="accepted, given all above (%)",
    slug="depth",
    title=study.course_in_words(from_first.at(prompts=OWN), deepest),
    caption="Acceptance of the token at each depth of a block at T = 0, given that all earlier "
    "tokens of the block were accepted. Every position counts as a start, if the text reaches this "
    "depth. Mean of the domains. Bands: 95 % intervals.",
)

# %% [markdown]
# ## 4. Tokens per target pass
# Chains of `gamma` tokens are replayed from what was recorded at each start, over the blocks that a
# decoder visits. At T = 0 that is exact for every gamma up to 16. On sampled text it is exact too:
# the tokens, divided by the expected number of blocks under the rejection rule. The other head was
# recorded at T = 0 only.

# %%
gammas = range(1, largest_gamma + 1)
passes = {name: study.chains_by_gamma(own, gammas) for name, own in texts.items()}
tables = {name: study.chain_table(draws) for name, draws in passes.items()}
tau = Estimates.stacked(tables, "temperature")
ctx.export(tau, "tokens-per-pass-all")
cold, warm = passes.values()
ctx.plot(
    called(tau.at(domain=score.ALL)),
    x="gamma",
    hue="drafter",
    rows="temperature",
    columns="prompts",
    y="tokens per target pass",
    slug="tokens-per-pass",
    height=1.9,
    title=study.longest_in_words(tau, largest_gamma),
    caption="Tokens per target pass of drafted chains by gamma, drafter, prompt set and "
    "temperature; mean of the domains. Bands: 95 % intervals.",
)

# %% [markdown]
# ## 5. What does it cost, and is it faster?
# **c** is the time of a draft pass over one token, in target passes over one token. A head has one
# layer, but a wide one, and the same number of output tokens at more than twice the width. We time
# the passes of both pairs here, and decode a few prompts of each set plainly and with each drafter.
# *Dynamic tree* is the tree that EAGLE-2 grows: each block keeps the nodes of the highest
# probability.

# %%
settings = ctx.profile.replace(temperature=0.0)
of_head = with_head(settings)
why_not = study.cannot_decode(settings, of_head)
measured, again = {}, {}
shapes = {
    "chain": Shape(tree.chain(decoded_gamma)),
    "dynamic": Shape(None, None, *dynamic),
}
shown = {
    "chain": f"chain of {decoded_gamma}",
    "dynamic": f"dynamic tree ({counted(dynamic[-1], 'node')})",
}

# %% tags=["timed"]
if not why_not:
    timed = study.timed_prompts(settings, prompts_per_domain_timed)
    loaded = {DRAFT: pairs.load_pair(settings), HEAD: pairs.load_pair(of_head)}
    sizes = (1, 2, 3, 4, 5, 6, 8, 12, 17)
    clocks, speeds = timing.measured_together(
        loaded, timed, shapes, new_tokens, sizes, 128, pass_repeats, rounds, pass_tries
    )
    for drafter, pair in loaded.items():
        unlike = study.check_decoded(speeds[drafter], greedy[drafter], shapes, new_tokens)
        assert not pair.is_exact or not unlike, "same text, same blocks as the replay"
    measured = {drafter: clock.costs for drafter, clock in clocks.items()}
    again = {drafter: [clock.costs, *clock.resampled()] for drafter, clock in clocks.items()}

# %%
stamps = {name: cost.stamp(costs) for name, costs in measured.items()}
stamp = next((text for text in stamps.values() if text), "")
if why_not:
    ctx.say(f"Nothing was decoded here: {why_not}. The costs of the card are used instead.")
    measured = study.costs_of_card(card)
notebook.show_table(study.cost_table(measured, decoded_gamma))
ctx.say(
    f"A draft pass costs c = {measured[DRAFT].c():.3f} for the draft and "
    f"c = {measured[HEAD].c():.3f} for the head. o is what a block takes beyond its passes. For "
    "the head this includes reading the accepted tokens again with the target's states."
)

# %%
best = study.best_speeds(cold, measured, gammas, again)
predicted = study.speed_table(best, cold)
ratios = study.ratios_of_speed(best, cold)
alike = dict.fromkeys((DRAFT, HEAD), measured[DRAFT])
equal = study.ratios_of_speed(study.best_speeds(cold, alike, gammas), cold)
ctx.table(predicted, "predicted", cells=predicted.wide(["prompts", "gamma"], "drafter"))
ctx.say(
    "**At equal cost**, if a block of the head cost what a block of the draft costs, the head "
    f"would have these multiples of the draft's speed-up: {equal.listed('prompts')}. **At the "
    f"measured costs** it is {study.faster_in_words(ratios)}: {ratios.listed('prompts')}. "
    "Both use each drafter's best gamma. The intervals are over prompts"
    + (", and the second ones also over the timed passes and blocks." if again else ".")
)

# %%
if not why_not:
    decoded = study.measured_gain(speeds, shown)
    ctx.plot(
        decoded,
        x="shape",
        hue="drafter",
        columns="prompts",
        kind="points",
        reference=1,
        reference_name="plain decoding",
        y="measured speed-up",
        x_label="shape of a block",
        slug="measured",
        title=study.chains_in_words(decoded),
        caption=f"Measured speed-up over plain decoding, {counted(len(timed[OWN]), 'prompt')} of "
        f"the kit's and {counted(len(timed[SECOND]), 'prompt')} of the second set, up to "
        f"{new_tokens} tokens each, T = 0. Bars: 95 % intervals over prompts.",
        stamp=stamp,
    )
    notebook.show_table(study.decoded_rates(speeds, shown))

# %%
if not why_not:
    ctx.say(
        "Every decoded text is the target's own, and every chain has the blocks of its replay: "
        f"{study.checked_in_words(timed, measured)}."
    )

# %% [markdown]
# ## 6. What do the training prompts decide?
# Both heads had the same number of prompts, texts and steps. So what differs between them is due
# to the prompts, and to chance. To see chance we trained both again with other seeds, which change
# the start weights and the order of the texts. Of these heads the kit has the accepted first tokens
# of each prompt (`data/pairs/smollm/head/seeds.csv`). Does the mixed set help where prompts have no
# format, and does the order of the domains follow the training set?

# %%
accepted = study.accepted_by_seed(greedy, mixed, form)
changes = study.changes_by_seed(accepted)
changed = changes[study.MEAN]
ctx.plot(
    changed.without(domain=unshown),
    x="domain",
    hue="on",
    kind="points",
    reference=0,
    reference_name="no difference",
    percent=True,
    y="mixed minus form (points)",
    slug="training-prompts",
    title=study.changes_in_words(changed),
    caption="Acceptance of the first token (T = 0) of heads trained on mixed prompts, minus that "
    "of heads trained on prompts in the kit's format, on own prompts and on the second set. "
    "`interaction`: second set minus own prompts. "
    f"Mean of {counted(len(changes) - 1, 'seed')}. Bars: 95 % intervals over prompts and seeds.",
)

# %%
by_seed = study.seed_table(changes)
ctx.table(by_seed, "seeds", cells=by_seed.wide("seed", "on"))
interaction = changed.at(on="interaction", domain=score.ALL)
ctx.say(f"{study.help_in_words(interaction)} {study.seeds_in_words(by_seed)}")

# %%
hits_of_seeds = study.hits_by_seed(accepted)
ctx.table(hits_of_seeds, "hits-by-seed", digits=1)

# %%
orders = study.domain_orders(first, accepted)
ctx.table(orders, "orders")
tests = stack(
    {name: study.pairs_that_change(accepted, name, level) for name in greedy[DRAFT]}, "prompts"
)
changed_pairs = Estimates(tests.rename(columns={"difference": "estimate"})).in_units("points", 1)
ctx.table(tests, "pairs", cells=changed_pairs.wide("pair", "prompts"))
ctx.say(
    f"{study.follow_in_words(orders, tests)} The table shows by how much it changes the difference "
    "between two domains (mean of the seeds). Its tests and intervals cover prompts, not seeds. "
    "Prompts of code and chat have no wrapper, so they are the same on own prompts and on prompts "
    "without wrapper."
)

# %% [markdown]
# ## 7. What we had expected
# The numbers below were written down before training (`data/pairs/smollm/head/expected.md`).

# %%
said = study.expected()
found = study.came(hits, cold, 4, mixed, form)
compared = study.beside_expected(said, found)
ctx.table(compared, "expected", most=20)
ctx.say(f"{study.hits_in_words(compared)} {study.seeds_expected_in_words(hits_of_seeds, by_seed)}")

# %%
own_tau = {d: cold[OWN][d, decoded_gamma][score.ALL].iloc[0] for d in (DRAFT, HEAD)}
ctx.record(
    c_draft=measured[DRAFT].c(),
    c_head=measured[HEAD].c(),
    at_equal_cost=equal.at(prompts=OWN).value,
    tokens_draft=float(own_tau[DRAFT]),
    tokens_head=float(own_tau[HEAD]),
    hit_head=float(hits[OWN][HEAD][score.ALL].iloc[0]),
    hit_draft=float(hits[OWN][DRAFT][score.ALL].iloc[0]),
    interaction=interaction.value,
)
ctx.answer(study.answer(over_draft, ratios))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell: how would the head do if drafting were free?

# %%
free = study.free_of_charge(cold, measured[HEAD], gammas)
ctx.say(f"With c = 0 the head would reach {free.listed('prompts')}.")

# %% [markdown]
# <details><summary>What happens</summary>Even a free draft is limited by what the target accepts.
# The distance to the speed-ups above is what the head's passes cost.</details>
#
# ## What we saw, what this does not show, what is next
# * What we saw: what a head of the same budget gains and loses against a draft of its own, by
#   prompts and by depth, and that its training prompts decide a part of it.
# * What this does not show: heads of large models. There one layer costs a hundredth of the target,
#   and training lasts a thousand times longer. The draft has one seed and each head three, and the
#   target has 135 million parameters.
# * Next: notebook 15 has EAGLE on Llama-3.1-8B, notebook 17 public runs of several methods.

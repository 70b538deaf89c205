# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 8. Can a better draft be made, and which draft is best?
#
# A better draft can mean two things: it agrees with the target more often, or it makes decoding
# faster. The target itself, stored in fewer bits, agrees most often but is expensive. A copy from
# the text so far costs nothing but agrees less.
#
# *Runs on* any machine (a 4-bit copy that does not come with the kit needs the extra `gptq`) ·
# *minutes* about two on 2 cores, half of one later · *reads* greedy runs, `data/drafts`, the card
# of the pair · *writes* `figures/<profile>/08/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# bits per weight of the target's quantised copies; [0]: no copy
bit_widths: list = [8, 4, 3]  # one of 0, 2, 3, 4, 8
calibration_rows: int = 32  # 1 to 10000; texts of the target that GPTQ is calibrated on
# composed prompts from which the calibration texts start
calibration_prompts_per_domain: int = 100  # 1 to 10000
calibration_seed: int = 0  # 0 to 4294967295; seed of these prompts
# prompts that judge the drafts, evenly spaced among those that chose no training; 0: all of these
judged_prompts_per_domain: int = 0  # 0 to 100000
exit_layers: list = [2, 4]  # 1 to 1000; how many layers of the target make an early-exit draft
max_gamma: int = 16  # 1 to 16; chains of 1 to this many tokens are compared
measure: bool = False  # one of True, False; time the passes of each draft, on an idle machine

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# The kit is around this folder or in the environment, else SPECLAB_REPO is cloned and installed.
import importlib.util, os, subprocess, sys

kit = next((p for p in (".", "..") if os.path.isdir(f"{p}/speclab/cli")), "speclab-kit")
if not os.path.exists(kit) and not importlib.util.find_spec("speclab"):
    subprocess.run(["git", "clone", "--depth=1", os.environ["SPECLAB_REPO"], kit], check=True)
sys.path.insert(0, os.path.abspath(kit))
from speclab.cli import hosted

hosted.prepare()

# %% jupyter={"source_hidden": true}
from bisect import bisect_left
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import stdtrit
from statsmodels.stats.power import TTestPower

from speclab import cost, replay, score, stats
from speclab.study import runs
from speclab.study.pairs import load_pair
from speclab.lab import combined, prompt_sets, starts
from speclab.lab.prompt_sets import OWN, SECOND, UNWRAPPED
from speclab.lab.texts import Text
from speclab.drafts import candidates, quantise, shipped
from speclab.estimates import Estimates, stack
from speclab.models import timing as stopwatch
from speclab.plain import read_json
from speclab.study.profiles import ROOT, with_head
from speclab.study.prompts import decoded_prompts
from speclab.score import ALL, POOLED
from speclab.shapes import parse_shape
from speclab.show import notebook

RUNS = ["greedy", "others"]
READS = [
    "smollm-head",
    "data/traces/smollm-head",
    "data/traces/smollm-head-other",
    "data/pairs/smollm/head",
]

# %% [markdown]
# ## 1. The drafts
# * **own draft**: the small model of the pair.
# * **further drafts**: those that the profile lists (`drafts`), by the names of their folders.
# * **INT4 self-draft**: the target in 4 bits per weight, rounded by GPTQ so that the outputs of its
#   layers change little on some of its own texts. (The targets of `smollm` and `qwen-coder` hold
#   4-bit values already.)
# * **forward-kl draft** and others: the pair's own draft, trained further (section 4).
# * **trained head**: one layer that also reads the target's hidden states (*mixed* of section 5).
# * **early exit**: the target's own first layers, then its output layer, untrained.
# * **prompt lookup**: no model. It copies what followed the last tokens (eight at most) where they
#   occurred before, else it drafts nothing.
#
# All propose tokens along the **same texts**.

# %%
ctx = notebook.start("08_better_drafts", profile, overrides, judged_prompts_per_domain)
settings = ctx.profile
pair = load_pair(settings)
sets = prompt_sets.read(settings, Text.recorded(settings, "greedy"))
sets = {name: s for name, s in prompt_sets.complete_sets(sets).items() if not s.is_part}
domains = list(score.domains_in(sets[OWN].trace))
ctx.say(prompt_sets.described(settings))

# %% [markdown]
# A trace has one row for each position of a text, with the draft's rank of the target's token.
# `hit` says whether the draft's best token is the target's.


# %%
def others(asked, chose):
    """The prompts of each domain after its first `chose`; its last five if fewer are left."""
    left = []
    for domain in dict.fromkeys(prompt.domain for prompt in asked):
        own = [prompt for prompt in asked if prompt.domain == domain]
        left += own[max(min(chose, len(own) - stats.MIN_PROMPTS), 0) :]
    return left


def texts_of(trace, prompts):
    """The rows of the texts of these prompts."""
    ids = [prompt.prompt_id for prompt in prompts]
    return trace[trace["prompt_id"].isin(ids)].reset_index(drop=True)


# %%
OWN_DRAFT, HEAD, LOOKUP = "own draft", "trained head", "prompt lookup"
kinds = {prompt_sets.set_name(source): runs.kind_of_set(source) for source in settings.others}
kinds = {name: kinds.get(name, "greedy") for name in sets}  # the kind of run of each set
prompts, texts, traces = {}, {}, {}  # by set: token ids by prompt, and traces by draft
unseen_texts = {}  # the trace of all prompts that chose nothing
for name, each in sets.items():
    asked = runs.encoded_prompts(runs.of_kind(settings, kinds[name]))
    is_own = name in (OWN, UNWRAPPED)  # the prompts without wrapper are the own ones
    unseen = judges = others(asked, settings.notes.chose if is_own else 0)
    if judged_prompts_per_domain:
        skipped = settings.notes.decoded_from if is_own else 0
        judges = decoded_prompts(asked, judged_prompts_per_domain, skipped)
    if name == OWN:
        probed = decoded_prompts(judges, 1, 0)  # decoded where drafts are timed
    prompts[name] = {prompt.prompt_id: prompt.ids for prompt in judges}
    unseen_texts[name] = texts_of(each.trace, unseen)
    traces[name] = {OWN_DRAFT: (rows := texts_of(each.trace, judges))}
    texts[name] = rows.groupby("prompt_id", sort=False)["token"].agg(tuple).to_dict()
facts = {OWN_DRAFT: pair.facts["draft"]}  # the size of each draft
costs = {}  # measured, of each draft

# %% [markdown]
# ### Drafts that run now, and drafts that were recorded
# Each draft runs once along the recorded texts. The target writes nothing again. With `measure`,
# the passes of each draft that runs are timed, by turns with passes of the target.


# %%
def time_passes(label, pair):
    """Measure what a block costs: passes of up to max_gamma + 1 tokens, and a few decoded texts for
    the loop's own time.
    """
    sizes = {n for n in stopwatch.SIZES if n <= max_gamma} | {max_gamma + 1}
    shapes = {name: parse_shape(name) for name in {"chain:1", f"chain:{max_gamma}"}}
    new, context = min(32, settings.max_new_tokens), max(len(prompt.ids) for prompt in probed)
    clock = stopwatch.measured(pair, probed, shapes, new, tuple(sorted(sizes)), context, 7, 3)
    costs[label] = clock.costs


# %%
def add(label, one, is_timed=True):
    """Let a draft propose along the texts (a second call reads what it proposed)."""
    facts[label] = one.pair.facts["draft"]
    if measure and is_timed:
        time_passes(label, one.pair)
    for name, kind in kinds.items():
        trace = candidates.proposed(one, settings, kind, texts[name])
        traces[name][label] = score.with_hits(trace)


def add_recorded(label, its_facts, by_kind):
    """Take the proposals of a recorded draft, for the sets along whose texts it was recorded."""
    for name, kind in kinds.items():
        rows = by_kind.get(kind, traces[name][OWN_DRAFT][:0])
        rows = rows[rows["prompt_id"].isin(texts[name])].reset_index(drop=True)
        if rows.groupby("prompt_id")["token"].agg(tuple).to_dict() == texts[name]:
            traces[name][label] = score.with_hits(rows)
            facts[label] = its_facts


if measure:
    time_passes(OWN_DRAFT, pair)

# %% [markdown]
# **Further drafts.** A name has as many parts of the path as make it unique, also beside the own
# draft's.

# %%
parts = [Path(spec.path).parts for spec in settings.drafts]
ends = (["/".join(part[-count:]) for part in parts] for count in range(1, 1000))
names = next(names for names in ends if len({"draft", *names}) > len(names))
for label, spec in zip(names, settings.drafts, strict=True):
    add(label, candidates.load_candidate("further draft", pair, settings, spec))

# %% [markdown]
# **The target in fewer bits.** We judge a float32 copy with exactly the quantised weights, because
# packed kernels on a CPU round differently for every shape of pass.

# %%
calibration = quantise.calibration_of(
    pair, settings, calibration_prompts_per_domain, calibration_seed, calibration_rows
)
folder = pair.target.folder.path
for bits in filter(None, bit_widths):
    label = f"INT{bits} self-draft"
    if copy := shipped.recorded_draft(*quantise.made_of(folder, calibration, bits)):
        size = {"weight_bytes": copy.weight_bytes}
        add_recorded(label, pair.facts["target"] | size, copy.traces)
    if label in facts:
        continue
    if reason := quantise.obstacle(pair):
        ctx.say(f"There is no {label} here: {reason}.")
    else:
        made = quantise.quantised_copy(folder, candidates.WORK, calibration, bits)
        spec = replace(settings.draft, path=str(made.plain), revision=None)
        # its passes would be those of the float32 copy
        add(label, candidates.load_candidate(label, pair, settings, spec), is_timed=False)
        facts[label] = facts[label] | {"weight_bytes": made.weight_bytes}

# %% [markdown]
# **Further training, a trained head, and early exit.** Of several seeds we take the first.

# %%
for made in shipped.shipped_drafts(pair):
    label = f"{made.family} draft"
    if label not in facts:
        spec = replace(settings.draft, path=str(made.folder), revision=None)
        add(label, candidates.load_candidate(made.name, pair, settings, spec))

of_head = with_head(settings)
head_runs = {name: of_head and runs.recorded_run(of_head, kind) for name, kind in kinds.items()}
if all(head_runs.values()):
    by_kind = {kinds[name]: run.trace for name, run in head_runs.items()}
    add_recorded(HEAD, head_runs[OWN].manifest["pair"]["draft"], by_kind)

if getattr(pair.target.body, "lean", False):  # the kit runs the target's layers itself
    for layers in exit_layers:
        early = candidates.first_layers(pair, settings, layers)
        add(f"early exit after {layers} layers", early)

# %% [markdown]
# **Prompt lookup.**

# %%
facts[LOOKUP] = {"parameters": 0, "weight_bytes": 0}
for name in sets:
    tokens = {i: (prompts[name][i], text) for i, text in texts[name].items()}
    places = combined.starts_of_trace(traces[name][OWN_DRAFT], LOOKUP)
    copies = combined.add_copies(places, tokens)
    traces[name][LOOKUP] = copies.assign(hit=copies["copied"] > 0)  # of the first copied token

# %% [markdown]
# ## 2. Which draft is best?
# A greedy decoder accepts drafted tokens up to the first one that is not the target's, and the
# target adds one token. So its speed without the cost of drafting is the number of **tokens per
# target pass**,
#
# $$\tau_\gamma = \frac{\text{tokens of the texts}}{\text{target passes with chains of }
#   \gamma \text{ drafted tokens}} .$$
#
# By hand, for the pair's own draft and one gamma:

# %% tags=["by-hand"]
gamma, blocks = min(3, max_gamma), 0
trace = traces[OWN][OWN_DRAFT]
for _, text in trace.groupby("prompt_id"):
    # draft ranks of the next gamma tokens, if a block begins at a position
    ahead = replay.ranks_ahead(text, gamma)
    position = 0
    while position < len(ahead):
        drafted = ahead[position] == 0  # is each drafted token right?
        accepted = [*drafted, False].index(False)  # tokens before the first wrong one
        position += accepted + 1  # the target adds one
        blocks += 1
by_hand = len(trace) / blocks
print(round(by_hand, 2), "tokens per target pass")

# %% [markdown]
# The same for every draft, gamma and prompt set:

# %%
TAU = score.ratio_of("emitted", "blocks")
gammas = range(1, max_gamma + 1)


def blocks_of(trace, gamma):
    """The blocks of a decoder with chains of a draft, or with copies of up to gamma tokens."""
    if "copied" in trace:
        copies = combined.planned(trace, gamma=0, least=1, most=gamma)
        return starts.replay_starts(copies, copies["drafted"].to_numpy())
    return replay.replay(trace, gamma)


draws, tables = {}, {}
for name in sets:
    asked = {}  # a recorded draft may lack the texts of a set
    for label, trace in traces[name].items():
        for g in gammas:
            asked[label, g] = replay.prompt_sums(blocks_of(trace, g)), TAU
    draws[name] = stats.jointly(asked)
    for label in traces[name]:
        of_gamma = {g: draws[name][label, g][ALL] for g in gammas}
        tables[name, label] = draws[name].table(of_gamma, key="gamma").frame
assert np.isclose(draws[OWN][OWN_DRAFT, gamma][POOLED].iloc[0], by_hand)

# %%
ctx.plot(
    Estimates(stack(tables, ["set", "draft"])),
    x="gamma",
    hue="draft",
    columns="set",
    y="tokens per target pass",
    slug="tokens-per-pass",
    title="Tokens per target pass by gamma, draft and prompt set",
    caption="Mean of the domains, greedy decoding. A draft with a higher curve agrees more often, "
    "whatever it costs. A recorded draft is missing where it was not recorded. Bands: intervals "
    "over prompts.",
)

# %% [markdown]
# Now the cost. With $c$ the time of a draft pass in target passes, the speed-up over plain decoding
# is
#
# $$S = \frac{\tau_\gamma}{1 + \gamma c} .$$
#
# Where a pass waits for its weights to be read, as in large models, $c$ is the draft's share of the
# target's bytes. The last column takes $c$ so, at the draft's best gamma. **This is a bound, not a
# measurement**, and slightly flattered: the same prompts chose the gamma.


# %%
def stored(of):
    """Bytes that a pass reads: wider weights than two bytes would not be served as they are."""
    return min(of["weight_bytes"], 2 * of["parameters"])


HIT = score.mean_of("hit")
hits_of, first = {}, {}
for name in sets:
    asked = {label: (trace, HIT) for label, trace in traces[name].items()}
    hits_of[name] = stats.jointly(asked)
    first[name] = hits_of[name].table(key="draft")
first = Estimates.stacked(first, "set").without(domain=POOLED)
ctx.export(first, "first-token")

rows = []
for label in traces[OWN]:
    share = stored(facts[label]) / stored(pair.facts["target"])
    speeds = {g: draws[OWN][label, g][ALL] / (1 + g * share) for g in gammas}
    best = max(speeds, key=lambda g: speeds[g].iloc[0])
    speed = draws[OWN].table({label: speeds[best]}, key="draft").frame
    rows.append(speed.assign(of_target_bytes=share, gamma=best))
bounds = pd.concat(rows, ignore_index=True)

# %%
cells = first.at(domain=ALL).in_units("%").wide("draft", "set")
cells["% of the target's bytes"] = 100 * bounds["of_target_bytes"]
cells["gamma"] = bounds["gamma"]
cells["speed-up if bytes were time"] = bounds["estimate"].map("{:.2f}x".format)
ctx.table(
    bounds,
    "drafts",
    cells=cells,
    digits=0,
    caption="Size, best token accepted by prompt set (mean of the domains), and the bound on the "
    "speed-up of every draft.",
)

# %% [markdown]
# ### What does each draft cost here, and how fast is it?
# A block costs $\gamma c + v(\gamma + 1) + o$ target passes ([10](10_wall_clock.ipynb)). With
# `measure`, all three are measured for each draft whose weights run here. $v$ and $o$ do not depend
# on the draft, so we take the medians of all drafts.

# %%
if measure:
    speeds, rows = {}, []
    verify = tuple(np.median([its.verify for its in costs.values()], axis=0).tolist())
    overhead = float(np.median([its.overhead for its in costs.values()]))
    for label, its in costs.items():
        block = replace(its, verify=verify, overhead=overhead)
        by_gamma = {g: draws[OWN][label, g][ALL] / block.of_chain(g) for g in gammas}
        best = max(by_gamma, key=lambda g: by_gamma[g].iloc[0])
        speeds[label] = by_gamma[best]
        rows.append([label, its.c(), best, "unreliable" if cost.disturbed(its) else ""])
    ahead = {label: speed - speeds[OWN_DRAFT] for label, speed in speeds.items()}
    numbers = {"speed-up": speeds, "minus own draft's": ahead}
    measured = {name: draws[OWN].table(each, key="draft") for name, each in numbers.items()}
    measured = Estimates.stacked(measured, "quantity").in_units("x")
    parts = pd.DataFrame(rows, columns=["draft", "c", "gamma", "timing"])
    ctx.table(
        measured.frame.merge(parts),
        "measured",
        digits=2,
        cells=parts.merge(measured.wide("draft", "quantity")),
        caption="c as measured in this run, on this machine, and the gamma that is then fastest. "
        "Predicted speed-up over plain decoding. Intervals are over the same prompts and leave out "
        "the timing: where drafts of one size differ in c, that is the error of the clock.",
    )
else:
    ctx.say(
        "No pass was timed in this run. "
        '`make reproduce NOTEBOOKS=08 PARAMETERS="measure=true"` does it, on an idle machine.'
    )

# %% [markdown]
# ### How many prompts show a difference between two drafts?
# Both drafts read the same texts, so the difference has a standard error from the same resamples of
# prompts. With $n$ times the prompts it is $\sqrt{n}$ times smaller. From it follows the least
# number of prompts with which a paired t test at the level of 5 % finds a true difference with a
# probability of 80 % (as in [12](12_how_sure.ipynb); Cohen 1988, *Statistical Power Analysis for
# the Behavioral Sciences*, chapter 2).

# %%
LIKELY, POINTS, MOST = 0.8, 0.03, 1_000_000


def prompts_needed(gap, n, difference):
    """Prompts per domain, at least 5, with which a paired t test finds a true difference with the
    probability LIKELY; NaN for none up to MOST. gap: the difference in the sample, of n prompts per
    domain, then in its resamples.
    """
    if n < stats.MIN_PROMPTS or gap[1:].std() < 1e-12:
        return np.nan
    # of one prompt per domain; resamples divide a variance by n and not by n - 1
    deviation = np.std(gap[1:]) * n / np.sqrt(n - 1)
    effect = min(abs(difference) / deviation, 5)  # beyond it the power is 1
    power = TTestPower().power
    sizes = range(stats.MIN_PROMPTS, MOST)
    place = bisect_left(sizes, LIKELY, key=lambda size: power(effect, size, 0.05))
    return sizes[place] if place < len(sizes) else np.nan


# %%
gaps, needed, n = {}, [], hits_of[OWN].prompts.fewest
for base, other in combinations(traces[OWN], 2):
    gap = hits_of[OWN][other][ALL] - hits_of[OWN][base][ALL]
    gaps[f"{other} minus {base}"] = gap
    needed.append([n, prompts_needed(gap, n, gap[0]), prompts_needed(gap, n, POINTS)])
needed = pd.DataFrame(needed, columns=["prompts", "needed for this", "needed for 3 points"])
gaps = hits_of[OWN].table(gaps, key="drafts").in_units("points", 1)
differ = gaps.frame.assign(quantity="difference")
ctx.table(
    gaps.frame.drop(columns=["n_prompts", "note"]).join(needed),
    "prompts-needed",
    digits=0,
    most=8,
    cells=replace(gaps, frame=differ).wide("drafts", "quantity").join(needed),
    caption="Best token accepted, paired difference of two drafts on our own prompts (mean of the "
    "domains), and the prompts per domain that find a difference with a probability of 80 %: one "
    "as large as the difference seen, which is itself uncertain, or one of 3 points.",
)

# %% [markdown]
# ## 3. Is the quantised target a good draft of itself?
# The first advice of the article (*Speculative Decoding for Reasoning*, see
# [00](00_by_hand.ipynb)) is to draft with the target itself in 4 bits, which is accepted "93 %
# typically". It does not say what it counts. Compare the INT4 self-draft in the table above, if
# this pair has one. The table counts best tokens.
#
# ## 4. Does training on the target's own text help?
# The article's second advice, and DistillSpec's (arXiv:2310.08461): a draft need not know the
# language, it only has to know the target. The target continues prompts that judge no draft, and
# the draft learns these texts: their tokens (`sequence`), or the target's whole distribution, by a
# divergence (`forward-kl`, `reverse-kl`, `total-variation`). A *specialist* learned some domains
# only. The table above has the drafts of this pair that were trained so, if any. The card of a pair
# may have the log of its own draft's training.

# %%
card = pair.draft.folder.path.parent / "card.json"
# a head, or a target that drafts for another one, lies beside the card of another draft
has_log = card.is_file() and pair.draft.folder.path.name == "draft"
phases = read_json(card, "`git checkout` brings it back").get("training") if has_log else None
if phases:
    *_, before, last = phases.values()
    log = pd.DataFrame([before[-1], *last])  # step 0 is the end of the phase before
    columns = {ALL: "hit"} | {domain: f"{domain} hit" for domain in domains}
    curves = {domain: log[column] for domain, column in columns.items() if column in log}
    ctx.plot(
        Estimates.exact("domain", curves, "steps", [0, *(log["step"][1:] + 1)]),
        x="steps",
        y="best token accepted (%)",
        slug="learning-curve",
        title="Acceptance of the pair's own draft during its training",
        caption="Acceptance by training steps, on own prompts that the rest of this page leaves "
        "out, so its end is too high. The first point is the draft before this phase. The "
        "learning rate falls to zero over the last steps.",
    )

# %%
level = stats.by_domain(unseen_texts[OWN], HIT).at(domain=ALL).in_units("%", 1)
ctx.say(
    f"On the {level.row.n_prompts} own prompts that judge here, the best token of the pair's own "
    f"draft is accepted {level} (mean of the domains)."
)

# %% [markdown]
# ## 5. What do the target's hidden states buy?
# The drafts that servers run are mostly **heads** as EAGLE-3's (arXiv:2503.01840): one decoder
# layer as wide as the target. At a token of the text it reads the token and the outputs of three of
# the target's layers at the token before. Deeper in a block the target has not run yet, so the head
# reads its own last state instead.
#
# The kit has two heads of `smollm`. *Form* learned from prompts in the format of the kit's own, as
# the draft did. For *mixed*, half of the prompts had no format. Compare like with like: *form* with
# the draft. The second prompt set chose *mixed* for shipping, so its number there is slightly too
# high.

# %%
FORM, MIXED = "form", "mixed"
accepted = {}  # accepted first tokens by prompt
if has_head := HEAD in traces[OWN] and of_head.traces == READS[1]:
    card, further = (ROOT / READS[3] / name for name in ("card.json", "seeds.csv"))
    facts_of, further = read_json(card, "`git checkout` it"), pd.read_csv(further)
    for name, mine in unseen_texts.items():
        form = runs.load_run(ROOT / READS[2] / kinds[name]).trace
        counts = {}
        for label, trace in {OWN_DRAFT: mine, MIXED: head_runs[name].trace, FORM: form}.items():
            by_prompt = trace.groupby(["domain", "prompt_id"], sort=False)["hit"]
            counts[label, 0] = by_prompt.agg(tokens="size", accepted="sum").reset_index()
        rows = stack(counts, ["head", "seed"])
        rows = pd.concat([rows, further[further["kind"] == kinds[name]]])
        accepted[name] = rows[rows["prompt_id"].isin(mine["prompt_id"])]
else:
    ctx.say("Left out: sections 5 and 6 are about the recorded heads of `smollm`.")

# %% [markdown]
# The interval of a difference covers prompts and seeds: to each resample of prompts we add the
# error of two means over seeds, by Student's t. It does not cover the training of the draft and of
# the ablation below, which have one seed.


# %%
def difference(base, other):
    """Other minus base, means over seeds. Both are shares [seeds, 1 + resamples, domains]."""
    gap = other.mean(axis=0) - base.mean(axis=0)
    if several := [one for one in (base, other) if len(one) > 1]:
        variance = sum(one[:, 0].var(axis=0, ddof=1) / len(one) for one in several)
        resamples, freedom = len(gap) - 1, sum(len(one) - 1 for one in several)
        t = stdtrit(freedom, (0.5 + np.arange(resamples)) / resamples)
        gap[1:] += np.random.default_rng(7).permutation(t)[:, None] * np.sqrt(variance)
    return pd.DataFrame(gap, columns=[*domains, ALL, POOLED])


def against(base, key, counts):
    """First tokens accepted minus those of `base`: estimates, cells, draws and shares by set."""
    gains, draws, hits, share = {}, {}, {}, score.ratio_of("accepted", "tokens")
    for name, rows in counts.items():
        groups = rows.groupby([key, "seed"], sort=False)
        draws[name] = stats.jointly({of: (own, share) for of, own in groups})
        hits[name] = {
            one: np.stack([draw for (of, _), draw in draws[name].values.items() if of == one])
            for one in rows[key].unique()
        }
        more = {one: difference(hits[name][base], own) for one, own in hits[name].items()}
        del more[base]
        gains[name] = sets[name].shown(draws[name].table(more, key), ALL)
    gains = Estimates.stacked(gains, "prompts").in_units("points", 1)
    levels = pd.Series({one: 100 * own[:, 0, -2].mean() for one, own in hits[OWN].items()})
    cells = gains.at(domain=ALL).wide(key, "prompts").set_index(key)
    cells = cells.reindex(levels.index).fillna("")
    cells.insert(0, "accepted (%)", levels)
    return gains, cells, draws, hits


# %%
if has_head:
    gains, cells, draws, hits = against(OWN_DRAFT, "head", accepted)
    cells = pd.DataFrame(facts_of["trained"]).T.drop(columns="on target's texts").join(cells)
    ctx.table(
        gains,
        "gain",
        cells=cells.rename_axis("draft").reset_index(),
        digits=1,
        caption="How the draft and the heads were trained, and how many of their first tokens are "
        "accepted on our own prompts (mean of the domains and seeds). Last columns: minus the "
        "draft.",
        is_wide=True,
    )

# %% [markdown]
# A head gains, but this table cannot say why. An **ablation** can. We trained the head *form* three
# more times and only changed what it reads: the states of the token before (*own*), those of eight
# tokens earlier (*earlier*), or zeros (*none*). The training is short and has one seed, so compare
# the rows with each other and not with the table above. A long training may give other numbers.

# %%
if has_head:
    ablation, counts = pd.read_csv(ROOT / READS[3] / "ablation.csv"), {}
    for name in (n for n in (OWN, SECOND) if n in accepted):
        is_here = ablation["prompt_id"].isin(accepted[name]["prompt_id"])
        counts[name] = ablation[is_here & (ablation["kind"] == kinds[name])]
    states, cells, *_ = against("none", "reads", counts)
    ctx.table(
        states,
        "hidden-states",
        cells=cells.rename_axis("reads").reset_index(),
        digits=1,
        caption="First tokens accepted of a shortly trained head that reads the target's states, "
        "those of eight tokens earlier, or none (mean of the domains). Last columns: minus none.",
    )

# %% [markdown]
# ## 6. Does each head do better on prompts like its own?
# The *interaction* is what *mixed* gains over *form* on the second prompt set, minus what it gains
# on our own.

# %%
if has_head and SECOND in sets:
    # the resamples of both sets are drawn apart
    apart = [0, *(1 + np.random.default_rng(11).permutation(stats.RESAMPLES))]
    form, mixed = (hits[SECOND][head][:, apart] - hits[OWN][head] for head in (FORM, MIXED))
    smaller = min((draws[OWN], draws[SECOND]), key=lambda own: own.prompts.fewest)
    between = smaller.table({"interaction": difference(form, mixed)}).in_units("points", 1)
    seen, (least, most) = between.at(domain=ALL), facts_of["expected"]["interaction"]
    held = "held" if least <= 100 * seen.value <= most else "failed"
    ctx.say(
        f"Before the training we forecast an interaction of {least} to {most} points "
        f"(`{READS[3]}/expected.md`). The forecast {held}: it is {seen}."
    )

# %%
agrees = first.at(set=OWN, domain=ALL).frame.set_index("draft")["estimate"]
called = {OWN_DRAFT: "the pair's own draft", LOOKUP: LOOKUP} | {one: f"`{one}`" for one in names}
by, predicted = "the bytes read", bounds
if measure and not any(map(cost.disturbed, costs.values())):
    by, predicted = "passes timed here", measured.at(quantity="speed-up").frame
predicted = predicted.set_index("draft")
speed_of = predicted["estimate"]
most, fastest = (called.get(each.idxmax(), f"the {each.idxmax()}") for each in (agrees, speed_of))
close = (predicted["high"] > speed_of.max()).drop(speed_of.idxmax()).sum()
close = "; others may be as fast" if close else ""
answer = (
    f"Of these drafts, {most} agrees most often ({100 * agrees.max():.0f} %). "
    f"By {by}, {fastest} would be fastest ({speed_of.max():.1f}x{close})."
)
if has_head:
    bought = states.at(prompts=OWN, reads="own", domain=ALL)
    verbs = {stats.ABOVE: "raised", stats.BELOW: "lowered"}
    verb = verbs.get(bought.verdict(), "did not clearly change")
    answer += " In one short training, hidden states "
    answer += f"{verb} a head's acceptance ({100 * bought.value:+.0f} points)."
ctx.answer(answer)

# %% [markdown]
# ## Try it
# Without a computer: a self-draft is accepted at 95 % of positions, with c = 1. What is the
# speed-up at gamma 1, and at gamma 4?
#
# <details><summary>Answer</summary>At gamma 1 a block emits 1.95 tokens and costs 2 target passes:
# 0.98. At gamma 4, with independent acceptances, it emits (1 - 0.95^5) / 0.05 = 4.52 tokens for 5
# passes: 0.90. A draft as expensive as the target can never gain.</details>
#
# ## What this does not show
# Time, also of a 4-bit kernel ([10](10_wall_clock.ipynb) measures). Large models, where one layer
# costs a hundredth of the target and texts repeat themselves less ([13](13_public_runs.ipynb)).
# Adapters, drafts trained on their own samples, trained exits.

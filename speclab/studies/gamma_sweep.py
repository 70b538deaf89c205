"""Notebook 02: tokens per target pass, wasted drafts and estimated speed-up for every gamma, of a
greedy text (T = 0) and of a sampled one (T = 1), replayed and decoded.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd

from speclab import cost, replay, score, stats
from speclab.analysis import loops, significance, sweep
from speclab.decode import decode_prompt
from speclab.draft import Shape
from speclab.models.pairs import Pair
from speclab.prompts import EncodedPrompt
from speclab.runs import Run
from speclab.sampling import Sampling
from speclab.show import figures, notebook
from speclab.show.estimates import NUMBERS, Estimates, stack, without_interval
from speclab.tree import chain

RULES = {
    "T = 0": "greedy",
    "T = 1": "rejection",
}  # how a draft token is verified in each text
KEYS = ["quantity", "temperature", "average", "domain", "gamma"]
CURVES = {  # drawn together: (quantity, average) of each, and its look
    "replay, visited blocks": ("block_efficiency", "visited", "black", "-"),
    "replay, every position": ("block_efficiency", "every", "black", ":"),
    "i.i.d. formula": ("iid", "visited", "#0072B2", "--"),
    "with the lag-1 correlation": ("markov", "visited", "#E69F00", "-"),
}
LOOKS = {
    name: {"marker": "", "linewidth": 1.1, "color": colour, "linestyle": line}
    for name, (*_, colour, line) in CURVES.items()
}
BEST = "best gamma"
BESIDE = ["gamma", "decoded", "low", "high", "replayed", "difference"]
BESIDE += ["difference_low", "difference_high", "prompts", "unequal"]

# chains by what is drafted, and the rule that verifies it at T > 0
DRAFTS = {"drawn tokens": "rejection", "best tokens": "point-mass"}
COUNTED = "best token, counted"  # hit[1]: whether the text's token is the draft's best
GOT = score.mean_of("got")
TOKEN, TOKEN_OUTSIDE = "one token", "one token, outside loops"

Frames = dict[tuple[str, str], pd.DataFrame]  # by text and average: one row a prompt


# ---- one text ------------------------------------------------------------------------------------


def middle_text(blocks: pd.DataFrame) -> str:
    """The prompt whose text is the one to show: of the longest texts the one with the middle number
    of tokens per pass.
    """
    sums = replay.prompt_sums(blocks).set_index("prompt_id")
    longest = sums[sums["emitted"] == sums["emitted"].max()]
    ordered = longest.sort_values("blocks", ascending=False, kind="stable")
    return ordered.index[(len(ordered) - 1) // 2]


def text_lengths(blocks: pd.DataFrame) -> pd.Series:
    """Tokens of each prompt's text, as its blocks emit them."""
    return blocks.groupby("prompt_id", sort=False)["emitted"].sum()


def draw_text(blocks: Mapping[int, pd.DataFrame], prompt: str) -> figures.Figure:
    """One text as the blocks of each gamma cut it: a line a gamma, a cell a token."""
    length = text_lengths(next(iter(blocks.values())))[prompt]
    drafted, labels = np.ones((len(blocks), length)), []
    for line, (gamma, rows) in zip(drafted, blocks.items(), strict=True):
        mine = rows[rows["prompt_id"] == prompt]
        ended = mine[~mine["truncated"]]
        line[ended["start"] + ended["accepted"]] = 0  # the target's own token
        kept, tried = mine["accepted"].sum(), mine["drafted"].sum()
        labels.append(
            f"gamma {gamma}: {len(mine)} passes, {kept} of {tried} drafts kept"
        )
    figure, axes = figures.subplots(height=0.8 + 0.27 * len(blocks))
    axes.pcolormesh(drafted, cmap="Blues_r", vmax=1.6, edgecolors="white", linewidth=2)
    axes.set_yticks(np.arange(len(blocks)) + 0.5, labels)
    axes.invert_yaxis()
    axes.set(
        xlabel=figures.AXIS_LABELS["position"],
        title="light: a draft that was kept · dark: the target's own token, which ends a pass",
    )
    return figure


def slider(
    blocks: Mapping[int, pd.DataFrame], prompt: str, speed: Estimates, gamma: int
) -> None:
    """In a notebook that somebody has open: drag gamma, and see one text and the estimated speed-up
    (by gamma and domain) of all texts there.
    """
    from ipywidgets import IntSlider, interact

    def at_gamma(g: int) -> figures.Figure:
        notebook.say(
            f"Estimated speed-up at gamma = {g}: {speed.at(gamma=g).listed()}."
        )
        return draw_text({g: blocks[g]}, prompt)

    interact(at_gamma, g=IntSlider(gamma, 1, max(blocks), description="gamma"))


# ---- every gamma ---------------------------------------------------------------------------------


def replay_both(recorded: Mapping[str, Run], largest: int) -> Frames:
    """Both texts replayed at gamma = 1..largest with both averages: `sweep.replayed` by (text,
    average).
    """
    return {
        (text, starts): sweep.replayed(run.trace, largest, RULES[text], starts)
        for text, run in recorded.items()
        for starts in replay.STARTS
    }


def tau_of(largest: int) -> score.Estimator:
    """`block_efficiency` by gamma = 1..largest, of a `sweep.replayed`."""
    return sweep.estimators(largest, 0.0)["block_efficiency"]


def curves_of(frame: pd.DataFrame, known: dict[str, score.Estimator]) -> pd.DataFrame:
    """`sweep.by_gamma` without the means over domains."""
    table = sweep.by_gamma(frame, known)
    return table[table["domain"].isin(frame["domain"])]


def sweep_curves(frames: Frames, largest: int, c: float) -> Estimates:
    """Every quantity of `sweep.by_gamma` with its interval, by temperature, average, domain and
    gamma; `c` is the assumed draft pass / target pass.
    """
    parts = {
        (text, starts): curves_of(frame, sweep.estimators(largest, c, starts))
        for (text, starts), frame in frames.items()
    }
    rows = stack(parts, ["temperature", "average"])
    return Estimates(rows[[*KEYS, *rows.columns.drop(KEYS)]])


def write_curves(curves: Estimates, path: Path) -> None:
    """All of `curves` as a CSV file of five significant digits."""
    last = ["temperature", "average"]
    columns = [*curves.frame.columns.drop(last), *last]
    curves.frame.to_csv(path, columns=columns, index=False, float_format="%.5g")


def half_way(tau: Estimates) -> str:
    """The least gamma with half of what the longest draft adds to plain decoding's one token a
    pass, in words: 'T = 0: 2 in code, 3 in math. T = 1: none in chat'.
    """
    said = []
    for text, part in tau.groups("temperature"):
        found = []
        for domain, own in part.groups("domain"):
            gain = own.frame.set_index("gamma")["estimate"] - 1
            enough = gain >= gain.iloc[-1] / 2
            found.append(
                f"{enough.idxmax() if gain.iloc[-1] > 0 else 'none'} in {domain}"
            )
        said.append(f"{text}: {', '.join(found)}")
    return ". ".join(said)


def paired(
    first: pd.DataFrame,
    second: pd.DataFrame,
    estimator: score.Estimator,
    *more: str,
) -> pd.DataFrame:
    """`paired_difference` (first - second) of each domain, and of those in `more`: domain,
    estimate, low, high, n_prompts.
    """
    rows = []
    for domain in (*score.domains_in(first), *more):
        both = [
            frame if domain == score.POOLED else frame[frame["domain"] == domain]
            for frame in (first, second)
        ]
        found = significance.paired_difference(*both, estimator, n=1)
        rows.append({"domain": domain} | vars(found))
    return pd.DataFrame(rows).drop(columns="p_value")


def every_minus_visited(frames: Frames, largest: int, gamma: int) -> Estimates:
    """`block_efficiency` averaged over every position minus that over visited blocks, by
    temperature and domain, prompts paired.

    Without a p-value: a test by swapping needs as many blocks on both sides.
    """
    tau = score.member(tau_of(largest), gamma)
    parts = {
        text: paired(frames[text, "every"], frames[text, "visited"], tau)
        for text in RULES
    }
    return Estimates.stacked(parts, "temperature")


# ---- decoded, not only replayed ------------------------------------------------------------------


def decoded_sweep(
    pair: Pair,
    prompts: Sequence[EncodedPrompt],
    gammas: Sequence[int],
    text: str,
    max_new_tokens: int,
    seed: int = 0,
) -> pd.DataFrame:
    """The columns of `replay.chain_sums`, counted by the decoder: a row for each gamma and prompt,
    with chains at the temperature of `text` (a key of RULES).
    """
    sampling, rows = Sampling(float(text == "T = 1")), []
    for gamma, prompt in product(gammas, prompts):
        shape = Shape(chain(gamma))
        made = decode_prompt(
            pair, prompt, RULES[text], shape, sampling, max_new_tokens, seed
        )
        counts = {
            "blocks": made.target_passes,
            "drafted": sum(step.drafted for step in made.steps),
            "accepted": sum(step.accepted for step in made.steps),
            "emitted": len(made.token_ids),
        }
        whose = {"prompt_id": prompt.prompt_id, "domain": prompt.domain}
        rows.append({"gamma": gamma} | whose | counts)
    return pd.DataFrame(rows)


def decoded_beside(decoded: pd.DataFrame, replayed: pd.DataFrame) -> pd.DataFrame:
    """`block_efficiency` counted by a decoder beside the replay's on the same prompts, one row a
    gamma, prompts of all domains together.

    Both have gamma, prompt_id, blocks, emitted. Columns: gamma, decoded (low, high), replayed,
    difference = decoded - replayed (difference_low, difference_high; prompts paired), prompts,
    unequal (prompts whose blocks or tokens differ). ValueError if the prompts differ.
    """
    assert set(decoded["gamma"]) == set(replayed["gamma"]), (
        "decoded and replayed gammas differ"
    )
    tau = score.block_estimators()["block_efficiency"]
    counts, rows = ["blocks", "drafted", "accepted", "emitted"], []
    for gamma, real in decoded.groupby("gamma"):
        real, read = (
            frame.set_index("prompt_id")[counts]
            for frame in (real, replayed[replayed["gamma"] == gamma])
        )
        both = real.reset_index(), read.reset_index()
        own = stats.bootstrap(both[0], tau)
        gap = significance.paired_difference(*both, tau, n=1)
        off = (real - read)[["blocks", "emitted"]].abs()
        unequal = (off > 1e-9).any(axis=1).sum()
        made = gamma, own.estimate, own.low, own.high, tau(read)
        rows.append((*made, gap.estimate, gap.low, gap.high, len(real), unequal))
    return pd.DataFrame(rows, columns=BESIDE)


def decoded_beside_replayed(
    pair: Pair,
    prompts: Sequence[EncodedPrompt],
    recorded: Mapping[str, Run],
    gammas: Sequence[int],
    max_new_tokens: int,
    seed: int,
) -> pd.DataFrame:
    """`decoded_beside` of both texts: temperature, then its columns."""
    ids, parts = [prompt.prompt_id for prompt in prompts], {}
    for text, run in recorded.items():
        same = run.trace[run.trace["prompt_id"].isin(ids)]
        own = decoded_sweep(pair, prompts, gammas, text, max_new_tokens, seed)
        parts[text] = decoded_beside(own, replay.chain_sums(same, gammas, RULES[text]))
    return stack(parts, "temperature")


def two_counts(table: pd.DataFrame) -> Estimates:
    """The replay's and the decoder's tokens per pass of `decoded_beside_replayed`, by the key
    `made`.
    """
    columns = ["temperature", "gamma", "decoded", "low", "high"]
    counted = table[columns].rename(columns={"decoded": "estimate"})
    read = without_interval(counted, table["replayed"])
    return Estimates.stacked({"replayed": read, "decoded": counted}, "made")


# ---- why the i.i.d. formula misses ---------------------------------------------------------------


def predictions(known: Estimates) -> Estimates:
    """The curves of `block_efficiency`, replayed and predicted (CURVES), in one table with the key
    `curve`; only the replay of visited blocks keeps its interval.
    """
    parts = {}
    for name, (quantity, average, *_) in CURVES.items():
        rows = known.at(quantity=quantity, average=average).frame
        parts[name] = without_interval(rows, rows["estimate"]) if parts else rows
    return Estimates.stacked(parts, "curve")


def gap_parts(
    frames: Frames, recorded: Mapping[str, Run], largest: int, gamma: int
) -> pd.DataFrame:
    """Why block efficiency is not what the i.i.d. formula says, by temperature and domain, at one
    gamma, visited blocks.

    gap = replay minus formula = from_text_end (i.i.d. acceptance replayed over texts of the trace's
    lengths, minus the formula) + from_lag1 (formula of the Markov chain minus i.i.d.) + rest
    (prompts that differ, longer memory). Beside them alpha and lag1; `_low`, `_high`: intervals.
    """
    known, parts = sweep.estimators(largest, 0.0), {}
    gap, iid, markov = (
        score.member(known[name], gamma) for name in ("minus_iid", "iid", "markov")
    )
    shown = {"alpha": known["alpha"], "lag1": known["lag1"], "gap": gap}
    for text, run in recorded.items():
        frame = frames[text, "visited"]
        table = pd.DataFrame(index=pd.Index(score.domains_in(frame), name="domain"))
        for name, estimator in shown.items():
            found = stats.by_domain(frame, estimator).set_index("domain")
            table[[name, f"{name}_low", f"{name}_high"]] = found[NUMBERS]
        independent, chain = (
            stats.by_domain(frame, one).set_index("domain")["estimate"]
            for one in (iid, markov)
        )
        chance = run.trace["domain"].map(table["alpha"])  # of acceptance, everywhere
        alike = run.trace.assign(p_token=1.0, q_token=chance)
        replayed = replay.chain_sums(alike, [gamma], "rejection").groupby("domain")
        sums = replayed[["emitted", "blocks"]].sum()
        table["from_text_end"] = sums["emitted"] / sums["blocks"] - independent
        table["from_lag1"] = chain - independent
        table["rest"] = table["gap"] - table["from_text_end"] - table["from_lag1"]
        parts[text] = table.reset_index()
    return stack(parts, "temperature")


def largest_part(parts: pd.DataFrame) -> str:
    """The gap and its three parts in the mean of the domains, in words, for each temperature."""
    names, said = ["from_text_end", "from_lag1", "rest"], []
    for text, rows in parts.groupby("temperature", sort=False):
        gap, *means = rows[["gap", *names]].mean()
        pairs = zip(means, names, strict=True)
        sums = ", ".join(f"{mean:+.2f} `{name}`" for mean, name in pairs)
        most = rows[names].abs().mean().idxmax()
        said.append(f"{text}: {gap:+.2f} = {sums}; the largest is `{most}`")
    return ". ".join(said)


# ---- the best gamma ------------------------------------------------------------------------------


def two_rules(
    gammas: Sequence[int], alpha: float, target_ms: float, draft_ms: float
) -> Estimates:
    """The article's rule and the standard model (i.i.d.) of one alpha and one pair of times, by
    gamma and the key `rule`.
    """
    g = np.asarray(gammas)
    lines = {
        "the article's rule": cost.speedup_article(alpha * g, target_ms, draft_ms),
        "standard model": cost.speedup_iid(alpha, g, draft_ms / target_ms),
    }
    return Estimates.exact("rule", lines, "gamma", g)


def best_shares(frames: Frames, largest: int, c: float) -> pd.DataFrame:
    """`sweep.best_gamma` of both texts at an assumed c: temperature, domain, gamma, speedup,
    share_best, …
    """
    speedup = sweep.estimators(largest, c)["speedup"]
    parts = {text: sweep.best_gamma(frames[text, "visited"], speedup) for text in RULES}
    return stack(parts, "temperature")


def best_by_domain(
    share: pd.DataFrame, article: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """`sweep.choices` of `best_shares`, a row for each temperature and domain, with the article's
    range of gamma and the share of the resamples whose best gamma lies in it (NaN where it gives
    none).
    """
    parts = {text: sweep.choices(rows) for text, rows in share.groupby("temperature")}
    ranges = {domain: f"{low}-{high}" for domain, (low, high) in article.items()}
    best = stack(parts, "temperature")
    best["article"] = best["domain"].map(ranges)
    low, high = (
        share["domain"].map({domain: ends[i] for domain, ends in article.items()})
        for i in (0, 1)
    )
    inside = share[share["gamma"].between(low, high)]
    sums = inside.groupby(["temperature", "domain"])["share_best"].sum()
    return best.join(sums.rename("share_in_article"), on=["temperature", "domain"])


def at_other_costs(
    frames: Frames, largest: int, costs: Sequence[float]
) -> pd.DataFrame:
    """The best gamma and the range of 95 % of the resamples, as '5 (4-6)', a column for each c."""
    cells = {}
    for c in costs:
        best = best_by_domain(best_shares(frames, largest, c), {})
        cells[f"best_at_c_{c:g}"] = [
            f"{row.best} ({row.best_low}-{row.best_high})" for row in best.itertuples()
        ]
    return pd.DataFrame(cells)


def draw_shares(
    share: pd.DataFrame, article: Mapping[str, Sequence[int]]
) -> figures.Figure:
    """How often each gamma is the fastest, a line for each temperature and domain; the article's
    gammas are framed.
    """
    keys = ["temperature", "domain"]
    grid = share.pivot(index=keys, columns="gamma", values="share_best")
    grid = grid.loc[share.set_index(keys).index.unique()]
    shown = grid.where(grid >= 0.005).set_axis(grid.index.map(", ".join))
    figure, axes = figures.subplots(height=0.9 + 0.24 * len(grid))
    figures.heatmap(shown, axes, "share of resamples", low=0, high=1)
    orange = figures.OTHER_COLOURS[1]
    frame = {"facecolor": "none", "edgecolor": orange, "linewidth": 2}
    for row, (_, domain) in enumerate(grid.index):
        if domain in article:
            low, high = article[domain]
            axes.broken_barh([(low, high - low + 1)], (row, 1), clip_on=False, **frame)
    axes.set(xlabel="gamma (0: plain decoding; frame: the article's gamma)", ylabel="")
    return figure


def edges(best: pd.DataFrame, largest: int) -> str:
    """What a best gamma at either end of the sweep means, in words; empty where there is none."""
    said = []
    if (best["best"] == 0).any():
        said.append("A best gamma of 0 means that plain decoding is the fastest.")
    if (best["best"] == largest).any():
        said.append("A best gamma at the end of the sweep may lie beyond it.")
    return " ".join(said)


def article_verdicts(best: pd.DataFrame) -> str:
    """Does the article's range of gamma hold on these texts at this c? A list of sentences."""
    said = []
    for row in best.dropna(subset="share_in_article").itertuples():
        verdict = "is not decided"
        if row.share_in_article >= 0.95:
            verdict = "holds"
        if row.share_in_article <= 0.05:
            verdict = "does not hold"
        said.append(
            f"* {row.temperature}, {row.domain}: the article's {row.article} {verdict} "
            f"(the best gamma is in it in {row.share_in_article:.0%} of the resamples)"
        )
    return "\n".join(said)


def larger(share: pd.DataFrame, first: str, second: str) -> str:
    """How often the first domain's best gamma is above the second's, and the same, over resamples
    of both, in words.
    """
    said = []
    for text, rows in share.groupby("temperature"):
        wide = rows.pivot(index="gamma", columns="domain", values="share_best")
        both = np.outer(
            wide[first], wide[second]
        )  # [gamma of the first, gamma of the second]
        above, same = np.tril(both, -1).sum(), np.trace(both)
        said.append(
            f"{text}: larger in {above:.0%} of the resamples, the same in {same:.0%}"
        )
    return "; ".join(said)


# ---- loops ---------------------------------------------------------------------------------------


def chains_beside_loops(
    frames: Frames, recorded: Mapping[str, Run], largest: int
) -> dict[str, pd.DataFrame]:
    """One row a prompt, visited blocks, of the greedy texts, of what lies outside loops there (the
    blocks that begin outside), and of the sampled texts.
    """
    return {
        loops.WHOLE: frames["T = 0", "visited"],
        loops.OUTSIDE: loops.outside_per_prompt(recorded["T = 0"].trace, largest),
        loops.SAMPLED: frames["T = 1", "visited"],
    }


def loop_curves(texts: Mapping[str, pd.DataFrame], largest: int) -> Estimates:
    """`block_efficiency` by text, domain and gamma."""
    known = {"block_efficiency": tau_of(largest)}
    parts = {text: curves_of(frame, known) for text, frame in texts.items()}
    return Estimates(stack(parts, "text")[["text", "domain", "gamma", *NUMBERS]])


def loop_numbers(
    texts: Mapping[str, pd.DataFrame], largest: int, gamma: int, c: float
) -> dict[str, Estimates]:
    """The main numbers of `chains_beside_loops` by text and domain: `block_efficiency[gamma]` (as
    of `loops.side_by_side`), and at an assumed c the best gamma, whose interval holds 95 % of the
    resamples' choices.
    """
    tau, speedup = (
        score.member(tau_of(largest), gamma),
        sweep.estimators(largest, c)["speedup"],
    )
    best = {
        text: sweep.choices(sweep.best_gamma(frame, speedup))
        for text, frame in texts.items()
    }
    return {
        tau.name: loops.side_by_side(*texts.values(), tau),
        BEST: Estimates.of(stack(best, "text"), "best", ["text", "domain"], digits=0),
    }


def same_choice(best: Estimates) -> str:
    """Is the best gamma of each domain, on these prompts, another outside loops? In words."""
    greedy = {text: best.at(text=text).rows() for text in (loops.WHOLE, loops.OUTSIDE)}
    moved = [
        f"{whole.domain} ({whole.estimate:.0f} becomes {outside.estimate:.0f})"
        for whole, outside in zip(*greedy.values(), strict=True)
        if whole.estimate != outside.estimate
    ]
    if moved:
        return f"On these prompts the best gamma is another outside loops in {', '.join(moved)}."
    return (
        "On these prompts the best gamma is the same number outside loops in every domain; the "
        "table's ranges say how sure each is."
    )


# ---- between T = 0 and T = 1, and other seeds ----------------------------------------------------


def steps_between(texts: Mapping[float, pd.DataFrame], largest: int) -> dict:
    """One row a prompt (`sweep.replayed`, visited blocks) by (draft, T): chains of drawn tokens and
    of the draft's best tokens over the text of each temperature; at T = 0 they are the same chain.

    texts: traces by T; p and q are those after the temperature.
    """
    return {
        (draft, T): sweep.replayed(trace, largest, rule if T else "greedy")
        for draft, rule in DRAFTS.items()
        for T, trace in texts.items()
    }


def one_token(trace: pd.DataFrame, T: float, draft: str) -> pd.DataFrame:
    """The trace with `got`, the chance that one drafted token is accepted, exact at each position:
    drawn from q its `overlap`, the draft's best its p; at T = 0 both are whether the draft's best
    is the target's token.
    """
    if T == 0 or draft == COUNTED:
        return trace.assign(got=(trace["draft_rank"] == 0).astype(float))
    if DRAFTS[draft] == "rejection":
        return trace.assign(got=trace["overlap"].astype(float))
    return trace.assign(got=[float(p[0]) for p in trace["top_draft_p"]])


def tau_by_temperature(
    frames: Mapping[tuple[str, float], pd.DataFrame], largest: int
) -> Estimates:
    """`block_efficiency` of `steps_between`: draft, T, domain (and `all`, their mean), gamma."""
    known = {"block_efficiency": tau_of(largest)}
    parts = {key: sweep.by_gamma(frame, known) for key, frame in frames.items()}
    rows = stack(parts, ["draft", "T"])[["draft", "T", "domain", "gamma", *NUMBERS]]
    return Estimates(rows).without(domain=score.POOLED)


def token_by_temperature(texts: Mapping[float, pd.DataFrame]) -> Estimates:
    """Mean of `one_token`: draft, T, domain (and `all`). A drawn token: alpha; the best one:
    top_mass[1], and counted on the text (hit[1]).
    """
    parts = {
        (draft, T): stats.by_domain(one_token(trace, T, draft), GOT)
        for draft in (*DRAFTS, COUNTED)
        for T, trace in texts.items()
    }
    rows = stack(parts, ["draft", "T"])[["draft", "T", "domain", *NUMBERS]]
    return Estimates(rows, digits=3).without(domain=score.POOLED)


def steps(
    texts: Mapping[float, pd.DataFrame],
    frames: Mapping[tuple[str, float], pd.DataFrame],
    largest: int,
    gamma: int,
) -> Estimates:
    """Change from each temperature to the next, prompts paired: quantity (one token, at all
    positions and at those outside loops; tokens per pass at gamma), draft, step, domain (and pooled
    over all prompts).
    """
    tau, parts = score.member(tau_of(largest), gamma), {}
    for draft in DRAFTS:
        tokens = {T: one_token(trace, T, draft) for T, trace in texts.items()}
        outside = {T: loops.outside(one, one) for T, one in tokens.items()}
        passes = {T: frames[draft, T] for T in texts}
        asked = {TOKEN: tokens, TOKEN_OUTSIDE: outside, tau.name: passes}
        for colder, warmer in pairwise(sorted(texts)):
            step = f"T = {colder:g} to {warmer:g}"
            for name, own in asked.items():
                estimator = tau if own is passes else GOT
                parts[name, draft, step] = paired(
                    own[warmer], own[colder], estimator, score.POOLED
                )
    return Estimates(stack(parts, ["quantity", "draft", "step"]), digits=3)


def falls_with_temperature(changes: Estimates) -> str:
    """Does it fall with T at every step? In words, of one quantity, by draft: the domains in which
    every step's interval lies below 0, in which one lies above, in which some can be told and in
    which none can.
    """
    said = []
    for draft, part in changes.groups("draft"):
        words: dict[str, list[str]] = {}
        for domain, own in part.groups("domain"):
            below, above = own.frame["high"] < 0, own.frame["low"] > 0
            word = "changes at no step that can be told in"
            if above.any():
                word = "rises at some step in"
            elif below.all():
                word = "falls at every step in"
            elif below.any():
                word = "falls at some steps, and the others cannot be told, in"
            words.setdefault(word, []).append(domain)
        each = "; ".join(f"{word} {', '.join(who)}" for word, who in words.items())
        said.append(f"* {draft}: {each}")
    return "\n".join(said)


def seed_spread(
    traces: Mapping[str, pd.DataFrame], largest: int, gamma: int
) -> pd.DataFrame:
    """What another seed of the text changes, beside what other prompts would: quantity (alpha;
    block_efficiency of drawn chains), domain (and all), its value for each seed, spread (largest
    less smallest), width (of the interval of one seed, their mean), pooled, low, high (all seeds
    together, prompts resampled with all their texts) and narrower (width of that over width).

    narrower is near 1 where prompts make an estimate unsure, near 1 / sqrt(seeds) where the draw of
    the text does.
    """
    tau = score.member(tau_of(largest), gamma)
    alike = {
        name: sweep.replayed(t, largest, "rejection") for name, t in traces.items()
    }
    parts = {}
    for estimator, frames in ((score.alpha, traces), (tau, alike)):
        whole, *each = (
            stats.by_domain(frame, estimator).set_index("domain")[NUMBERS]
            for frame in (pd.concat(frames.values()), *frames.values())
        )
        table = pd.DataFrame(
            {n: one["estimate"] for n, one in zip(frames, each, strict=True)}
        )
        width = sum(one["high"] - one["low"] for one in each) / len(each)
        table["spread"] = table.max(axis=1) - table.min(axis=1)
        table[["width", "pooled", "low", "high"]] = whole.assign(width=width)[
            ["width", *NUMBERS]
        ]
        table["narrower"] = score.divide(whole["high"] - whole["low"], width)
        parts[estimator.name] = table.drop(index=score.POOLED).reset_index()
    return stack(parts, "quantity")


def seeds_in_words(seeds: pd.DataFrame, count: int) -> str:
    """`seed_spread` in a sentence for each quantity: is the spread within one seed's width?"""
    said = []
    for quantity, rows in seeds.groupby("quantity", sort=False):
        mean = rows["domain"] == score.ALL
        (whole,) = rows[mean].itertuples()
        wide = rows[~mean & (rows["spread"] > rows["width"])]["domain"]
        within = (
            "in every domain the spread lies within the width of one seed's interval"
        )
        if len(wide):
            within = (
                f"the spread is wider than one seed's interval in {', '.join(wide)}"
            )
        said.append(
            f"* `{quantity}`, mean of the domains: the {count} seeds lie {whole.spread:.3f} "
            f"apart, where one seed's interval is {whole.width:.3f} wide; {within}. Pooled: "
            f"{whole.pooled:.3f} [{whole.low:.3f}, {whole.high:.3f}], "
            f"{whole.narrower:.2f} as wide (1 if prompts were all of the doubt, "
            f"{count**-0.5:.2f} if the draw of the texts were)"
        )
    return "\n".join(said)


def numbers(
    tau: Estimates, best: pd.DataFrame, parts: pd.DataFrame
) -> dict[str, float]:
    """The notebook's main numbers by name: tokens per pass at one gamma, best gammas, lag-1
    correlations.
    """
    columns = {
        "block_efficiency": tau.frame.set_index(["domain", "temperature"])["estimate"],
        "best_gamma": best.set_index(["domain", "temperature"])["best"],
        "lag1": parts.set_index(["domain", "temperature"])["lag1"].dropna(),
    }
    return {
        f"{name}_{domain}_{text.replace('T = ', 't')}": value
        for name, column in columns.items()
        for (domain, text), value in column.items()
    }

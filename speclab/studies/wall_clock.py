"""Notebook 10: the price of a block in measured times, the speed of real decoding beside what the
price predicts, and what limits it.

Prices are in units of a target pass over one token; the times come from `analysis.timing`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from speclab import cost, replay, stats
from speclab.analysis.choose import fastest
from speclab.cost import Costs
from speclab.decode import decode_prompt
from speclab.draft import Shape
from speclab.models import timing
from speclab.models.pairs import Pair
from speclab.prompts import EncodedPrompt
from speclab.record import record_prompt
from speclab.sampling import Sampling
from speclab.score import Estimator, divide, ratio_of
from speclab.show import estimates, figures
from speclab.show.estimates import NUMBERS, Estimates, stack, without_interval
from speclab.tree import chain

SPANS = {"draft passes": "#56B4E9", "target pass": "#444444", "loop": "#E69F00"}
IDEAL = {  # looks of the two ideals beside the measured passes
    "v = 1": {"marker": "", "color": "black", "linestyle": "-", "linewidth": 0.8},
    "v = n": {"marker": "", "color": "black", "linestyle": ":", "linewidth": 0.8},
}
SHOWN = [
    "method",
    "block_efficiency",
    "speedup",
    "low",
    "high",
    "predicted",
    "share_of_predicted",
]


def first_of_each(
    encoded: Sequence[EncodedPrompt], domains: Sequence[str], count: int
) -> list[EncodedPrompt]:
    """The first `count` prompts of each domain."""
    chosen = []
    for domain in domains:
        chosen += [prompt for prompt in encoded if prompt.domain == domain][:count]
    return chosen


def ratio(frame: pd.DataFrame, over: str, under: str) -> stats.Interval:
    """Ratio of the sums of two columns with its 95 % interval, prompts of all domains resampled
    together: those of one domain are too few.
    """
    rows = frame.drop(columns="domain", errors="ignore")
    return stats.bootstrap(rows, ratio_of(over, under))


# ---- the price of a block ------------------------------------------------------------------------


def pass_table(times: pd.DataFrame, costs: Costs) -> pd.DataFrame:
    """n, c(n), v(n), and milliseconds of both models' passes over n tokens: median, quartiles."""
    table = pd.DataFrame({"n": costs.sizes, "c(n)": costs.draft, "v(n)": costs.verify})
    by_model = timing.quartiles(times).set_index("model")
    for model in ("target", "draft"):
        found = by_model.loc[model, ["ms", "low", "high"]].add_prefix(f"{model}_")
        table[list(found)] = found.to_numpy()
    return table


def pass_curves(times: pd.DataFrame, costs: Costs) -> Estimates:
    """Times of passes by n and the key `pass`, in two units: ms, and target passes over one token
    (there v(n), c(n), and what v = 1 and v = n would be).
    """
    ms = timing.quartiles(times).rename(columns={"model": "pass", "ms": "estimate"})
    ratios = ms.assign(**(ms[NUMBERS] / costs.target_ms))
    lines = {"v = 1": 1.0, "v = n": np.array(costs.sizes, float)}
    ideal = Estimates.exact("pass", lines, "n", costs.sizes).frame
    units = {"ms": ms, "target passes over one token": pd.concat([ratios, ideal])}
    return Estimates.stacked(units, "unit")


def flat_up_to(costs: Costs, most: float = 1.25) -> int:
    """The largest measured n up to which every target pass costs at most `most` times one over one
    token.
    """
    dear = [n for n in costs.sizes if costs.v(n) > most]
    return max(n for n in costs.sizes if not dear or n < dear[0])


def block_parts(
    shapes: Mapping[str, Shape], costs: Costs, stopped: pd.DataFrame | None = None
) -> pd.DataFrame:
    """What a block of each shape costs in target passes: method, then SPANS.

    stopped: sums of a stopping rule (`stopping.totals`); its blocks make as many draft passes as
    these say in the mean. A dynamic tree (EAGLE-2's) takes a root pass, then levels of `branches`.
    """
    rows = []
    for name, shape in shapes.items():
        if shape.tree is None:
            draft = costs.c() + (shape.depth - 1) * costs.c(shape.branches)
            target = costs.v(shape.budget + 1)
        elif shape.stop and stopped is not None:
            blocks = stopped["blocks"].sum()
            draft = stopped["passes"].sum() * costs.c() / blocks
            target = stopped["cost"].sum() / blocks - costs.overhead - draft
        else:
            target = costs.v(shape.tree.size + 1)
            draft = costs.of_block(shape.tree) - target - costs.overhead
        rows.append((name, draft, target, costs.overhead))
    return pd.DataFrame(rows, columns=["method", *SPANS])


def draw_blocks(
    parts: pd.DataFrame, measured: pd.Series | None = None
) -> figures.Figure:
    """One block's time of each shape as spans: its draft passes, its target pass, the loop; a mark
    where the measured time of a block ends (target passes, in the order of `parts`).
    """
    figure, axes = figures.subplots(height=1.0 + 0.25 * len(parts))
    ends = np.zeros(len(parts))
    for name, colour in SPANS.items():
        axes.barh(parts["method"], parts[name], left=ends, color=colour, label=name)
        ends = ends + parts[name]
    if measured is not None:
        axes.plot(measured, parts["method"], "k|", markersize=12, label="measured")
    axes.axvline(1, color="black", linewidth=0.7)
    axes.set(
        xlabel="time of one block, in target passes over one token (1: plain decoding)"
    )
    axes.invert_yaxis()
    figures.legend_above(figure, axes)
    return figure


# ---- decoding, replayed and timed ----------------------------------------------------------------


def replayed_counts(
    trace: pd.DataFrame, shapes: Mapping[str, Shape]
) -> dict[str, pd.DataFrame]:
    """Sums over the blocks of each static shape without a stopping rule, one row a prompt."""
    return {
        name: replay.prompt_sums(replay.replay(trace, shape.tree))
        for name, shape in shapes.items()
        if shape.tree and not shape.stop
    }


def unlike(speeds: pd.DataFrame, counts: Mapping[str, pd.DataFrame]) -> int:
    """Timed decodings (`timing.decoded_speed`) whose tokens or blocks are not the replayed ones."""
    names = {"emitted": "tokens_replayed", "blocks": "blocks_replayed"}
    replayed = stack(counts, "method")[["method", "prompt_id", *names]]
    both = speeds.merge(replayed.rename(columns=names), on=["method", "prompt_id"])
    pairs = [both[name] != both[f"{name}_replayed"] for name in ("tokens", "blocks")]
    return int((pairs[0] | pairs[1]).sum())


def unlike_texts(speeds: pd.DataFrame, trace: pd.DataFrame) -> int:
    """How many of the timed texts (`timing.decoded_speed`) are not the recorded greedy text."""
    recorded = trace.groupby("prompt_id")["token"].agg(tuple)
    return int((speeds["text"] != speeds["prompt_id"].map(recorded)).sum())


def medians(speeds: pd.DataFrame) -> pd.DataFrame:
    """Medians over the repeats of `timing.decoded_speed`, one row a method and prompt, with the
    time of plain decoding beside (plain_s).
    """
    keys = ["method", "prompt_id", "domain"]
    groups = speeds.groupby(keys, sort=False, as_index=False)
    each = groups[["tokens", "blocks", "time_s"]].median()
    plain = each[each["method"] == "plain"].set_index("prompt_id")["time_s"]
    return each.assign(plain_s=each["prompt_id"].map(plain))


def speed_table(each: pd.DataFrame, parts: pd.DataFrame, costs: Costs) -> pd.DataFrame:
    """Measured beside predicted, a row for each method of `medians`, plain first.

    predicted = block_efficiency / price of a block (`block_parts`). block_cost, in target passes:
    measured, then predicted. share_without_o: of the speed-up that a loop without cost would have.
    """
    groups = each.groupby("method", sort=False)
    sums = groups[["tokens", "blocks", "time_s"]].sum()
    loop = parts.set_index("method")["loop"].reindex(sums.index, fill_value=0.0)
    spans = parts.set_index("method")[[*SPANS]].sum(axis=1)
    price = spans.reindex(sums.index, fill_value=1.0)  # plain: one target pass
    numbers = [
        (ratio(part, "tokens", "blocks"), ratio(part, "plain_s", "time_s"))
        for _, part in groups
    ]
    table = pd.DataFrame({"tokens_per_s": sums["tokens"] / sums["time_s"]})
    columns = ["block_efficiency", "tau_low", "tau_high", "speedup", "low", "high"]
    table[columns] = [
        (tau.estimate, tau.low, tau.high, gain.estimate, gain.low, gain.high)
        for tau, gain in numbers
    ]
    table["predicted"] = table["block_efficiency"] / price
    table["block_cost"] = 1e3 * sums["time_s"] / sums["blocks"] / costs.target_ms
    table["block_cost_predicted"] = price
    table["share_of_predicted"] = table["speedup"] / table["predicted"]
    table["share_without_o"] = table["share_of_predicted"] * (1 - loop / price)
    return table.reset_index()


def disturbed(plain: float, most: float = 1.25) -> str:
    """A warning where plain decoding did not take about one target pass a token: the clock was
    another one when passes were timed alone; '' where it did.
    """
    if 1 / most <= plain <= most:
        return ""
    return (
        "**The clock was disturbed**: a pass did not take then what it took in section 1. Measured "
        "speed-ups are of one run and stand; compare them with predictions on a quiet machine."
    )


def measured_gains(table: pd.DataFrame) -> Estimates:
    """The measured speed-ups of `speed_table` with their intervals, by method, without plain."""
    numbers = table[["method", "speedup", "low", "high"]]
    return Estimates(numbers.set_axis(["method", *NUMBERS], axis=1)).without(
        method="plain"
    )


def speed_bars(table: pd.DataFrame) -> Estimates:
    """`speed_table` without plain, to be drawn: quantity (tokens per target pass, speed-up), made
    (measured, predicted), method.
    """
    drafted = table[table["method"] != "plain"]
    tau = drafted[["method", "block_efficiency", "tau_low", "tau_high"]]
    predicted = without_interval(drafted[["method"]], drafted["predicted"])
    speed = "speed-up over plain decoding"
    parts = {
        ("tokens per target pass", "measured"): tau.set_axis(
            ["method", *NUMBERS], axis=1
        ),
        (speed, "measured"): measured_gains(table).frame,
        (speed, "predicted"): predicted,
    }
    return Estimates(stack(parts, ["quantity", "made"]))


def speed_by_domain(each: pd.DataFrame, domains: Sequence[str]) -> pd.DataFrame:
    """Measured speed-up of each method in each domain (too few prompts for intervals)."""
    sums = each.groupby(["method", "domain"], sort=False)[["plain_s", "time_s"]].sum()
    gain = (sums["plain_s"] / sums["time_s"]).unstack(sort=False)[list(domains)]
    return gain.rename_axis(columns=None).reset_index()


def what_was_drafted(compared: pd.DataFrame) -> pd.DataFrame:
    """What each method of `stopping.compare_rules` drafts in each domain: medians of its fitted
    settings, drafted_per_block, block_efficiency, draft_utilisation.
    """
    groups = compared.groupby(["method", "domain"], sort=False)
    table = groups[["limit", "threshold"]].median().add_prefix("median_")
    sums = groups[["blocks", "drafted", "accepted", "emitted"]].sum()
    table["drafted_per_block"] = sums["drafted"] / sums["blocks"]
    table["block_efficiency"] = sums["emitted"] / sums["blocks"]
    table["draft_utilisation"] = divide(sums["accepted"], sums["drafted"])
    return table.reset_index()


# ---- formulas ------------------------------------------------------------------------------------


def needed_alpha(gamma: int, c: float, verify: float, overhead: float) -> float:
    """`cost.break_even_alpha`, infinite where even alpha = 1 is too little."""
    need = cost.break_even_block_efficiency(gamma, c, verify, overhead)
    if need > gamma + 1:
        return np.inf
    return cost.break_even_alpha(gamma, c, verify, overhead)


def needed_here(costs: Costs, gammas: Sequence[int]) -> str:
    """The break-even alpha of each gamma at the measured costs, in words."""
    said = []
    for g in gammas:
        alpha = needed_alpha(g, costs.c(), costs.v(g + 1), costs.overhead)
        shown = f"{alpha:.2f}" if np.isfinite(alpha) else "out of reach"
        said.append(f"{shown} at gamma {g}")
    return ", ".join(said)


def break_even_lines(costs: Costs, hit: Estimates, gammas: Sequence[int]) -> Estimates:
    """For each c the alpha at which speculation neither gains nor loses, by `costs` (the textbook's
    v = 1 and o = 0; as measured) and gamma; and the points of `hit` (by domain), drawn side by side
    at the measured c.
    """
    textbook = replace(costs, verify=(1.0,) * len(costs.sizes), overhead=0.0)
    titles = {"v = 1, o = 0: the textbook": textbook, "v, o as measured": costs}
    c, places = np.linspace(0, 1, 61), np.arange(len(hit.frame))
    points = hit.frame.rename(columns={"domain": "series"})
    points["c"] = costs.c() + 0.014 * (places - places.mean())
    parts = {}
    for title, used in titles.items():
        lines = {
            f"gamma {g}": [needed_alpha(g, x, used.v(g + 1), used.overhead) for x in c]
            for g in gammas
        }
        needed = Estimates.exact("series", lines, "c", c).frame
        needed = needed[np.isfinite(needed["estimate"])]
        parts[title] = pd.concat([needed, points])
    return Estimates(stack(parts, "costs")[["costs", "series", "c", *NUMBERS]])


def worked_example(
    given: tuple[float, int, float, float], alpha: float, tau: float, costs: Costs
) -> pd.DataFrame:
    """The article's rule and the standard model on the article's example (`given`: alpha, gamma,
    target_ms, draft_ms), and on this pair at the same gamma: its alpha, its tokens per pass tau,
    its costs.
    """
    a, g, *ms = given
    c, here = ms[1] / ms[0], costs.c()
    ours = costs.target_ms, here * costs.target_ms
    best = [cost.speedup_article(g, *times) for times in (ms, ours)]
    typical = [
        cost.speedup_article(a * g, *ms),
        cost.speedup_article(max(alpha, 1e-9) * g, *ours),
    ]
    iid = cost.speedup_iid(a, g, c), cost.speedup_iid(alpha, g, here)
    whole = [cost.speedup_standard(g + 1, g, ratio) for ratio in (c, here)]
    replayed = cost.speedup_standard(tau, g, here)
    priced = cost.speedup_standard(tau, g, here, costs.v(g + 1), costs.overhead)
    rows = [
        ("article, best case", "e T / (t e + T), e = gamma", *best),
        ("article, typical case", "the same, e = alpha gamma", *typical),
        ("article, as it prints the typical case", "340 / 112", 340 / 112, np.nan),
        ("standard, i.i.d.", "(1 - a^(g+1)) / ((1 - a)(g c + 1))", *iid),
        ("standard, all accepted", "(g + 1) / (g c + 1)", *whole),
        ("standard, replayed tokens per pass", "tau / (g c + 1)", np.nan, replayed),
        ("and v and o as measured", "tau / (g c + v(g + 1) + o)", np.nan, priced),
    ]
    return pd.DataFrame(
        rows, columns=["rule", "formula", "article's example", "this pair here"]
    )


# ---- what limits speed ---------------------------------------------------------------------------


def counterfactuals(costs: Costs) -> dict[str, Costs]:
    """The measured costs, and the same with one term of the model made ideal: c = 0, v = 1, o = 0,
    then all three.
    """
    free = {"draft": (0.0,) * len(costs.sizes)}
    flat = {"verify": (1.0,) * len(costs.sizes)}
    lean = {"overhead": 0.0}
    return {
        "as measured": costs,
        "free draft (c = 0)": replace(costs, **free),
        "free verification (v = 1)": replace(costs, **flat),
        "lean loop (o = 0)": replace(costs, **lean),
        "all three": replace(costs, **free, **flat, **lean),
    }


def tokens_per_pass(trace: pd.DataFrame, gammas: Sequence[int]) -> pd.DataFrame:
    """Replayed `block_efficiency` at T = 0 of the prompts of all domains, index gamma: estimate,
    low, high.
    """
    sums = replay.chain_sums(trace, gammas)
    rows = {
        g: vars(ratio(part, "emitted", "blocks")) for g, part in sums.groupby("gamma")
    }
    return pd.DataFrame(rows).T.rename_axis("gamma")


def limits(taus: pd.DataFrame, costs: Costs) -> pd.DataFrame:
    """Predicted speed-up of chains with one term made ideal at a time: made ideal, same gamma (the
    one that is best as measured; low, high), own best, gamma (the one that is best then).
    """
    gammas, tau = taus.index, taus["estimate"]
    grid = pd.DataFrame(
        {
            name: tau / [used.of_block(chain(g)) for g in gammas]
            for name, used in counterfactuals(costs).items()
        }
    )
    grid["draft always right"] = (gammas + 1) / [
        costs.of_block(chain(g)) for g in gammas
    ]
    best = pd.Series(gammas[fastest(grid.T)], index=grid.columns)
    now = best["as measured"]
    table = pd.DataFrame(
        {"same gamma": grid.loc[now], "own best": grid.max(), "gamma": best}
    )
    for end in ("low", "high"):
        table[end] = table["same gamma"] * taus.loc[now, end] / tau[now]
    table.loc["draft always right", ["low", "high"]] = np.nan
    return table.rename_axis("made ideal").reset_index()


def limit_bars(table: pd.DataFrame) -> Estimates:
    """`limits`, to be drawn: at (the gamma that is best as measured, its own best), what."""
    gamma = table["gamma"].astype(str)
    labels = table["made ideal"] + ", best gamma " + gamma
    numbers = table[["same gamma", "low", "high"]].set_axis(NUMBERS, axis=1)
    own = pd.concat([labels.rename("what"), numbers], axis=1)
    free = without_interval(own, table["own best"])
    parts = {
        f"at gamma {gamma[0]}, the best as measured": own,
        "at its own best gamma": free,
    }
    return Estimates.stacked(parts, "at")


def helps(table: pd.DataFrame) -> pd.Series:
    """What each single change would add to the speed-up at the gamma that is best as measured, the
    largest first.
    """
    gain = table.set_index("made ideal")["same gamma"]
    added = (gain - gain["as measured"]).drop(["as measured", "all three"])
    return added.sort_values(ascending=False)


# ---- sampling ------------------------------------------------------------------------------------


def sampled(
    pair: Pair,
    prompts: Sequence[EncodedPrompt],
    gamma: int,
    new_tokens: int,
    seeds: int,
) -> pd.DataFrame:
    """Chains decoded at T = 1, and what the replay expects of the very same texts, a row a text:
    prompt_id, emitted, decoded (target passes), blocks (expected).
    """
    warm, shape, parts, passes = Sampling(1.0), Shape(chain(gamma)), [], {}
    for seed, prompt in product(range(seeds), prompts):
        text = f"{prompt.prompt_id}, seed {seed}"
        made = decode_prompt(pair, prompt, "rejection", shape, warm, new_tokens, seed)
        scored = record_prompt(pair, prompt, made.token_ids, chain(1), warm).trace
        names = ("position", "token", "target_top", "p_token", "q_token")
        rows = pd.DataFrame({name: scored[name] for name in names})
        parts.append(rows.assign(prompt_id=text, domain=prompt.domain))
        passes[text] = {"prompt_id": prompt.prompt_id, "decoded": made.target_passes}
    texts = pd.concat(parts, ignore_index=True)
    sums = replay.prompt_sums(replay.replay_sampled(texts, gamma))
    counted = pd.DataFrame.from_dict(passes, orient="index")
    return sums.rename(columns={"prompt_id": "text"}).join(counted, on="text")


def against_chance(gap: pd.Series) -> str:
    """What a difference of decoded and expected is, by its interval (low, high)."""
    return estimates.direction(
        gap,
        "more than chance allows",
        "less than chance allows",
        "within what chance allows",
    )


def sampled_table(made: pd.DataFrame, kept: pd.DataFrame) -> pd.DataFrame:
    """Tokens per pass of `sampled`, decoded and expected, their difference, and the expectation on
    the recorded sampled texts (`kept`: sums of their replay), with intervals.
    """
    gap = Estimator(
        "gap",
        lambda f: f[["emitted", "decoded", "blocks"]].to_numpy(float),
        lambda t: t[..., :1] / t[..., 1:2] - t[..., :1] / t[..., 2:],
    )
    told = {
        "decoded": ratio(made, "emitted", "decoded"),
        "expected, the same texts": ratio(made, "emitted", "blocks"),
        "decoded - expected": stats.bootstrap(made.drop(columns="domain"), gap),
        "expected, the recorded texts": ratio(kept, "emitted", "blocks"),
    }
    return pd.DataFrame(
        [vars(found) for found in told.values()], pd.Index(told, name="what")
    )

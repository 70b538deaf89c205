"""Notebook 10: the price of a block in measured times, the speed of real decoding beside what the
price predicts, and what limits it.

Prices are in units of a target pass over one token; the times come from `analysis.timing`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from speclab.show.estimates import Estimates, stack
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
    for model in ("target", "draft"):
        for name in ("ms", "low", "high"):
            column = timing.quartiles(times).set_index("model").loc[model, name]
            table[f"{model}_{name}"] = column.to_numpy()
    return table


def pass_curves(times: pd.DataFrame, costs: Costs) -> Estimates:
    """Times of passes by n and the key `pass`, in two units: ms, and target passes over one token
    (there v(n), c(n), and what v = 1 and v = n would be).
    """
    ms = timing.quartiles(times).rename(columns={"model": "pass", "ms": "estimate"})
    numbers = ["estimate", "low", "high"]
    ratios = ms.assign(**(ms[numbers] / costs.target_ms))
    lines = {"v = 1": np.ones(len(costs.sizes)), "v = n": np.array(costs.sizes, float)}
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
    static = {name: s.tree for name, s in shapes.items() if s.tree and not s.stop}
    return {
        name: replay.prompt_sums(replay.replay(trace, t)) for name, t in static.items()
    }


def unlike(speeds: pd.DataFrame, counts: Mapping[str, pd.DataFrame]) -> int:
    """Timed decodings (`timing.decoded_speed`) whose tokens or blocks are not the replayed ones."""
    replayed = stack(counts, "method")[["method", "prompt_id", "emitted", "blocks"]]
    both = speeds.merge(
        replayed, on=["method", "prompt_id"], suffixes=("", "_replayed")
    )
    differ = (both["tokens"] != both["emitted"]) | (
        both["blocks"] != both["blocks_replayed"]
    )
    return int(differ.sum())


def unlike_texts(speeds: pd.DataFrame, trace: pd.DataFrame) -> int:
    """How many of the timed texts (`timing.decoded_speed`) are not the recorded greedy text."""
    recorded = trace.groupby("prompt_id")["token"].agg(tuple)
    return int((speeds["text"] != speeds["prompt_id"].map(recorded)).sum())


def medians(speeds: pd.DataFrame) -> pd.DataFrame:
    """Medians over the repeats of `timing.decoded_speed`, one row a method and prompt, with the
    time of plain decoding beside (plain_s).
    """
    keys = ["method", "prompt_id", "domain"]
    each = (
        speeds.groupby(keys, sort=False)[["tokens", "blocks", "time_s"]]
        .median()
        .reset_index()
    )
    plain = each[each["method"] == "plain"].set_index("prompt_id")["time_s"]
    return each.assign(plain_s=each["prompt_id"].map(plain))


def speed_table(each: pd.DataFrame, parts: pd.DataFrame, costs: Costs) -> pd.DataFrame:
    """Measured beside predicted, a row for each method of `medians`, plain first.

    predicted = block_efficiency / price of a block (`block_parts`). block_cost, in target passes:
    measured, then predicted. share_without_o: of the speed-up that a loop without cost would have.
    """
    price = {"plain": 1.0} | dict(
        zip(parts["method"], parts[[*SPANS]].sum(axis=1), strict=True)
    )
    rows = []
    for name, part in each.groupby("method", sort=False):
        seconds, blocks = part["time_s"].sum(), part["blocks"].sum()
        gain, tau = ratio(part, "plain_s", "time_s"), ratio(part, "tokens", "blocks")
        rows.append(
            {
                "method": name,
                "tokens_per_s": part["tokens"].sum() / seconds,
                "block_efficiency": tau.estimate,
                "tau_low": tau.low,
                "tau_high": tau.high,
                "speedup": gain.estimate,
                "low": gain.low,
                "high": gain.high,
                "predicted": tau.estimate / price[name],
                "block_cost": 1e3 * seconds / blocks / costs.target_ms,
                "block_cost_predicted": price[name],
            }
        )
    table = pd.DataFrame(rows)
    loop = np.where(table["method"] == "plain", 0.0, costs.overhead)
    table["share_of_predicted"] = table["speedup"] / table["predicted"]
    without = 1 - loop / table["block_cost_predicted"]
    return table.assign(share_without_o=table["share_of_predicted"] * without)


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
    names = {"speedup": "estimate"}
    drafted = (
        table[table["method"] != "plain"].rename(columns=names).reset_index(drop=True)
    )
    return Estimates(drafted[["method", "estimate", "low", "high"]])


def speed_bars(table: pd.DataFrame) -> Estimates:
    """`speed_table` without plain, to be drawn: quantity (tokens per target pass, speed-up), made
    (measured, predicted), method.
    """
    drafted = table[table["method"] != "plain"]
    gain = measured_gains(table).frame.assign(made="measured")
    tau = drafted[["method", "block_efficiency", "tau_low", "tau_high"]]
    tau = tau.set_axis(["method", "estimate", "low", "high"], axis=1).assign(
        made="measured"
    )
    lines = {"predicted": drafted["predicted"]}
    predicted = Estimates.exact("made", lines, "method", drafted["method"]).frame
    speed = pd.concat([gain, predicted])
    found = stack(
        {"tokens per target pass": tau, "speed-up over plain decoding": speed},
        "quantity",
    )
    return Estimates(found[["quantity", "made", "method", "estimate", "low", "high"]])


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
    found = {
        g: needed_alpha(g, costs.c(), costs.v(g + 1), costs.overhead) for g in gammas
    }
    said = {
        g: f"{a:.2f}" if np.isfinite(a) else "out of reach" for g, a in found.items()
    }
    return ", ".join(f"{alpha} at gamma {g}" for g, alpha in said.items())


def break_even_lines(costs: Costs, hit: Estimates, gammas: Sequence[int]) -> Estimates:
    """For each c the alpha at which speculation neither gains nor loses, by `costs` (the textbook's
    v = 1 and o = 0; as measured) and gamma; and the points of `hit` (by domain), drawn side by side
    at the measured c.
    """
    c, rows = np.linspace(0, 1, 61), []
    textbook = replace(costs, verify=(1.0,) * len(costs.sizes), overhead=0.0)
    places = np.arange(len(hit.frame)) - (len(hit.frame) - 1) / 2
    points = hit.frame.rename(columns={"domain": "series"}).assign(
        c=costs.c() + 0.014 * places
    )
    for title, used in {
        "v = 1, o = 0: the textbook": textbook,
        "v, o as measured": costs,
    }.items():
        lines = {
            f"gamma {g}": [needed_alpha(g, x, used.v(g + 1), used.overhead) for x in c]
            for g in gammas
        }
        needed = Estimates.exact("series", lines, "c", c).frame
        rows += [needed[np.isfinite(needed["estimate"])].assign(costs=title)]
        rows += [points.assign(costs=title)]
    keys = ["costs", "series", "c", "estimate", "low", "high"]
    return Estimates(pd.concat(rows, ignore_index=True)[keys])


def worked_example(
    given: tuple[float, int, float, float], alpha: float, tau: float, costs: Costs
) -> pd.DataFrame:
    """The article's rule and the standard model on the article's example (`given`: alpha, gamma,
    target_ms, draft_ms), and on this pair at the same gamma: its alpha, its tokens per pass tau,
    its costs.
    """
    a, g, target_ms, draft_ms = given
    c, here, ms = draft_ms / target_ms, costs.c(), costs.target_ms
    article, standard, iid = (
        cost.speedup_article,
        cost.speedup_standard,
        cost.speedup_iid,
    )
    typical = (
        article(a * g, target_ms, draft_ms),
        article(max(alpha, 1e-9) * g, ms, here * ms),
    )
    best = article(g, target_ms, draft_ms), article(g, ms, here * ms)
    whole = standard(g + 1, g, c), standard(g + 1, g, here)
    priced = standard(tau, g, here, costs.v(g + 1), costs.overhead)
    rows = [
        ("article, best case", "e T / (t e + T), e = gamma", *best),
        ("article, typical case", "the same, e = alpha gamma", *typical),
        ("article, as it prints the typical case", "340 / 112", 340 / 112, np.nan),
        (
            "standard, i.i.d.",
            "(1 - a^(g+1)) / ((1 - a)(g c + 1))",
            iid(a, g, c),
            iid(alpha, g, here),
        ),
        ("standard, all accepted", "(g + 1) / (g c + 1)", *whole),
        (
            "standard, replayed tokens per pass",
            "tau / (g c + 1)",
            np.nan,
            standard(tau, g, here),
        ),
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
    size = len(costs.sizes)
    free = {"draft": (0.0,) * size}
    flat = {"verify": (1.0,) * size}
    lean = {"overhead": 0.0}
    changes = {
        "as measured": {},
        "free draft (c = 0)": free,
        "free verification (v = 1)": flat,
        "lean loop (o = 0)": lean,
        "all three": free | flat | lean,
    }
    return {name: replace(costs, **change) for name, change in changes.items()}


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
    grid = pd.DataFrame(index=taus.index)
    for name, used in counterfactuals(costs).items():
        grid[name] = taus["estimate"] / [used.of_block(chain(g)) for g in taus.index]
    grid["draft always right"] = [
        (g + 1) / costs.of_block(chain(g)) for g in taus.index
    ]
    best = pd.Series(taus.index[fastest(grid.T)], index=grid.columns)
    now = best["as measured"]
    table = pd.DataFrame(
        {"same gamma": grid.loc[now], "own best": grid.max(), "gamma": best}
    )
    for end in ("low", "high"):
        table[end] = (
            table["same gamma"] * taus.loc[now, end] / taus.loc[now, "estimate"]
        )
    table.loc["draft always right", ["low", "high"]] = np.nan
    return table.rename_axis("made ideal").reset_index()


def limit_bars(table: pd.DataFrame) -> Estimates:
    """`limits`, to be drawn: at (the gamma that is best as measured, its own best), what."""
    labels = [f"{row[0]}, best gamma {row[3]}" for row in table.itertuples(index=False)]
    own = table.assign(what=labels)[["what", "same gamma", "low", "high"]]
    own = own.rename(columns={"same gamma": "estimate"})
    free = pd.DataFrame({"what": labels, "estimate": table["own best"], "low": np.nan})
    gamma = table["gamma"].iloc[0]
    names = {
        f"at gamma {gamma}, the best as measured": own,
        "at its own best gamma": free,
    }
    return Estimates.stacked(
        {name: part.reindex(own.columns, axis=1) for name, part in names.items()}, "at"
    )


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
    warm, parts, passes = Sampling(1.0), [], {}
    for seed in range(seeds):
        for prompt in prompts:
            shape, text = Shape(chain(gamma)), f"{prompt.prompt_id}, seed {seed}"
            made = decode_prompt(
                pair, prompt, "rejection", shape, warm, new_tokens, seed
            )
            scored = record_prompt(pair, prompt, made.token_ids, chain(1), warm).trace
            names = ("position", "token", "target_top", "p_token", "q_token")
            rows = pd.DataFrame({name: scored[name] for name in names})
            parts.append(rows.assign(prompt_id=text, domain=prompt.domain))
            passes[text] = (prompt.prompt_id, made.target_passes)
    sums = replay.prompt_sums(
        replay.replay_sampled(pd.concat(parts, ignore_index=True), gamma)
    )
    counted = pd.DataFrame(passes, index=["prompt_id", "decoded"]).T.astype(
        {"decoded": int}
    )
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

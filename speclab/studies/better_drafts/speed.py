"""What a draft is worth: its price, the fastest chain with it, and how fast that is for real."""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from speclab import replay, score, stats
from speclab.analysis import choose, stopping
from speclab.cost import Costs
from speclab.decode import decode_prompt
from speclab.draft import Shape, StopRule, parse_shape
from speclab.models import timing
from speclab.prompts import EncodedPrompt
from speclab.sampling import Sampling
from speclab.show import estimates, figures
from speclab.show.estimates import Estimates
from speclab.stats import Interval
from speclab.studies.better_drafts.candidates import (
    ALPHA,
    HIT,
    INT4,
    LOOKUP,
    OWN,
    Candidate,
    Tried,
    encoded_prompts,
    stored_bits,
)
from speclab.tree import chain

CONFIDENT = StopRule("confidence", 0.5)  # draft nothing where nothing matched
HERE, BY_BYTES = "this machine, predicted", "where bytes are time (a bound)"
# columns of `compared` that go into the tables `drafts` and `speed`
SHAPE = ["parameters", "layers", "heads"]
WEIGHED = ["bits", "weight_bytes", "of_target_bytes", "c", "hit[1]", "alpha", "front"]
SPEEDS = [
    "speedup",
    "speedup_low",
    "speedup_high",
    "gamma_by_bytes",
    "speedup_by_bytes",
]
DRAFTS_TABLE = ["draft", *SHAPE, *WEIGHED]
SPEED_TABLE = ["draft", "gamma", "block_efficiency", *SPEEDS]


# ---- what is timed -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Timed:
    """Prompts that are decoded for real, at most `new_tokens` each, `repeats` times where they are
    timed, and the length of `context` at which single passes are timed.
    """

    prompts: list[EncodedPrompt]
    new_tokens: int
    context: int
    repeats: int = 2


def timed_prompts(
    tried: Tried, per_domain: int, new_tokens: int, repeats: int = 2
) -> Timed:
    """The first prompts of each domain; context: a median prompt with half a continuation."""
    profile, encoded = tried.profile, encoded_prompts(tried.pair, tried.profile)
    chosen = []
    for domain in tried.domains:
        chosen += [prompt for prompt in encoded if prompt.domain == domain][:per_domain]
    median = int(np.median([len(p.ids) for p in encoded]))
    context = median + profile.max_new_tokens // 2
    return Timed(chosen, min(new_tokens, profile.max_new_tokens), context, repeats)


def measured_costs(tried: Tried, timed: Timed, max_gamma: int, repeats: int) -> Costs:
    """Costs of this machine with the own draft; the overhead is the median over texts decoded with
    a chain of 4, once more than they are timed.
    """
    four, sizes = Shape(chain(4)), tuple(range(1, max(max_gamma, 4) + 2))
    costs = timing.costs_of(
        timing.pass_times(tried.pair, sizes, timed.context, repeats)
    )
    overheads = []
    for prompt in (timed.repeats + 1) * timed.prompts:
        made = decode_prompt(
            tried.pair, prompt, "greedy", four, Sampling(), timed.new_tokens
        )
        overheads.append(timing.measured_overhead([made], four, costs))
    return dataclasses.replace(costs, overhead=float(np.median(overheads)))


def pass_costs(
    candidates: Iterable[Candidate], context: int = 128, repeats: int = 15
) -> dict[str, float]:
    """c of each candidate on this machine: median draft pass over median target pass, both measured
    in one run in random orders.

    Drafts of one architecture do the same work, whatever their weights: the first is measured for
    all, so that noise ranks none of them.
    """
    measured: dict[tuple, float] = {}
    prices = {}
    for one in candidates:
        facts, draft = one.pair.facts["draft"], one.pair.draft
        size = facts["parameters"], facts["layers"], facts["heads"]
        work = (*size, draft.dtype, draft.kernel)
        if work not in measured:
            times = timing.pass_times(one.pair, (1,), context, repeats)
            measured[work] = timing.costs_of(times).c()
        prices[one.name] = measured[work]
    return prices


def with_c(costs: Costs, c: float) -> Costs:
    """The costs of the same target with another draft."""
    return dataclasses.replace(costs, draft=(c,) * len(costs.sizes))


def by_bytes(one: Candidate) -> Costs:
    """A machine on which a pass costs the bytes of its weights: c = their ratio, v = 1, o = 0.

    A bound, not a measurement.
    """
    c = share_of_bytes(one)
    return Costs(1.0, (1, 64), (c, c), (1.0, 1.0))


def share_of_bytes(one: Candidate) -> float:
    """Stored bytes of a draft over those of its target, a model in float32 as if in 16 bits: what
    is wider would not be served so.
    """
    target = one.pair.facts["target"]
    bits = stored_bits(one.pair.target, target)
    whole = served_bytes(target["weight_bytes"], bits)
    return served_bytes(one.weight_bytes, one.bits) / whole


def served_bytes(stored: int, bits: int) -> float:
    """Bytes of weights that are stored in `bits` bits, in 16 where these are more."""
    return stored * min(1.0, 16 / bits) if bits else stored


# ---- the fastest chain ---------------------------------------------------------------------------


def fastest_chain(
    trace: pd.DataFrame,
    costs: Costs,
    gammas: Iterable[int] = range(1, 17),
    end: str = "",
) -> dict[str, float | int]:
    """The chain of a trace at T = 0 that `costs` predict to be fastest: gamma, block_efficiency and
    speedup, the latter two with _low and _high; all names with `end`.

    Visited blocks of all texts. Intervals resample prompts within domains; gamma and costs stand.
    """
    sums = replay.chain_sums(trace, gammas)
    price = {gamma: costs.of_block(chain(gamma)) for gamma in sums["gamma"].unique()}
    return _fastest(sums.assign(cost=sums["blocks"] * sums["gamma"].map(price)), end)


def stopped_chain(
    nodes: pd.DataFrame,
    costs: Costs,
    max_new_tokens: int,
    limits: Iterable[int] | None = None,
) -> dict[str, float | int]:
    """As `fastest_chain`, for chains that stop by the rule CONFIDENT; from `nodes` of a run of
    chains.

    limits: the longest chain a block may have, each is tried (None: up to the recorded length); the
    best one is `gamma`.
    """
    at = stopping.chains(nodes, max_new_tokens)
    sums = []
    for limit in limits or range(1, at.depth + 1):
        rule = stopping.stopped(at, CONFIDENT.measure, CONFIDENT.threshold, limit)
        sums.append(stopping.totals(at, rule, costs).assign(gamma=limit))
    return _fastest(pd.concat(sums))


def _fastest(sums: pd.DataFrame, end: str = "") -> dict[str, float | int]:
    """From emitted, blocks and cost of each prompt and gamma."""
    total = sums.groupby("gamma")[["emitted", "cost"]].sum()
    best = total.index[choose.fastest(total["emitted"] / total["cost"])]
    rows = sums[sums["gamma"] == best]
    tokens = stats.bootstrap(rows, score.ratio_of("emitted", "blocks"))
    speedup = stats.bootstrap(rows, score.ratio_of("emitted", "cost"))
    head = {f"gamma{end}": int(best)} | _fields(f"block_efficiency{end}", tokens)
    return head | _fields(f"speedup{end}", speedup)


def _fields(name: str, interval: Interval) -> dict[str, float]:
    ends = {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return {name: interval.estimate} | ends


# ---- the table -----------------------------------------------------------------------------------


def first_seeds(tried: Tried) -> list[Candidate]:
    """The drafts of the table: of a family with several seeds, the first seed."""
    first: dict[str, Candidate] = {}
    for name, one in tried.candidates.items():
        first.setdefault(short_name(name), one)
    return list(first.values())


def short_name(name: str) -> str:
    """A draft's name in tables and figures."""
    return name.split(", seed")[0].replace("target's first", "first")


def weight_facts(one: Candidate) -> dict:
    """What the article asks of a draft: parameters, layers, heads, bits, weight_bytes, and both as
    shares of the target's.
    """
    draft, target = one.pair.facts["draft"], one.pair.facts["target"]
    return {name: draft[name] for name in SHAPE} | {
        "bits": one.bits,
        "weight_bytes": one.weight_bytes,
        "of_target_parameters": draft["parameters"] / target["parameters"],
        "of_target_bytes": share_of_bytes(one),
    }


def compared(
    tried: Tried,
    drafts: Iterable[Candidate],
    price: Mapping[str, float],
    costs: Costs,
    gammas: Iterable[int] = range(1, 17),
) -> pd.DataFrame:
    """The selection table, a row a draft: name, draft (its `short_name`), `weight_facts`, c (from
    `price`), hit[1] and alpha with low and high, `fastest_chain` at the measured costs and at
    `by_bytes` (names with that end), and `front`: not beaten in both c and hit[1].

    Acceptance is pooled over positions of all domains.
    """
    gammas, rows = list(gammas), []
    for one in drafts:
        greedy, sampled = (
            tried.trace(one.name, kind) for kind in ("greedy", "sampled")
        )
        row = {"name": one.name, "draft": short_name(one.name)} | weight_facts(one)
        row["c"] = price[one.name]
        row |= _fields(HIT.name, stats.bootstrap(greedy, HIT))
        row |= _fields(ALPHA.name, stats.bootstrap(sampled, ALPHA))
        row |= fastest_chain(greedy, with_c(costs, price[one.name]), gammas)
        rows.append(row | fastest_chain(greedy, by_bytes(one), gammas, "_by_bytes"))
    table = pd.DataFrame(rows)
    return table.assign(front=pareto(table["c"], table[HIT.name]))


def pareto(cost: Iterable[float], value: Iterable[float]) -> np.ndarray:
    """bool: True where no other point costs less or as much and is worth more or as much, one of
    the two strictly.
    """
    points = list(zip(cost, value, strict=True))
    assert np.isfinite(points).all()
    beaten = [
        any(c <= x and v >= y and (c, v) != (x, y) for c, v in points)
        for x, y in points
    ]
    return ~np.array(beaten)


def speedups(table: pd.DataFrame) -> Estimates:
    """Predicted speed-ups, the fastest draft first: machine, draft, estimate, low, high."""
    ordered = table.sort_values("speedup", ascending=False)
    machines = {HERE: "speedup", BY_BYTES: "speedup_by_bytes"}
    parts = {
        name: Estimates.of(ordered, of, ["draft"]) for name, of in machines.items()
    }
    return Estimates.stacked(parts, "machine")


# ---- decoded for real ----------------------------------------------------------------------------


def lossless(
    tried: Tried, drafts: Iterable[Candidate], timed: Timed, shapes: Iterable[str]
) -> pd.DataFrame:
    """Greedy decoding of a prompt a domain with every draft and shape against the target's own
    texts: draft, shape, texts, equal, block_efficiency.
    """
    known = tried.texts["greedy"]
    by_domain = {prompt.domain: prompt for prompt in reversed(timed.prompts)}
    rows = []
    for one in drafts:
        for name in shapes:
            shape, new = parse_shape(name), timed.new_tokens
            made = [
                decode_prompt(one.pair, p, "greedy", shape, Sampling(), new)
                for p in by_domain.values()
            ]
            equal = sum(m.token_ids == known[m.prompt_id][:new] for m in made)
            passes = sum(m.target_passes for m in made)
            tau = sum(len(m.token_ids) for m in made) / passes
            rows.append((one.name, name, len(made), equal, tau))
    return pd.DataFrame(
        rows, columns=["draft", "shape", "texts", "equal", "block_efficiency"]
    )


def decoded_speedup(
    one: Candidate, timed: Timed, gamma: int, stop: StopRule | None = None
) -> dict[str, float]:
    """Speed-up over plain decoding of a chain of gamma on the timed prompts, for real: measured,
    with low and high (medians of the repeats).
    """
    shapes = {"chain": Shape(chain(gamma), stop)}
    times = timing.decoded_speed(
        one.pair, timed.prompts, shapes, timed.new_tokens, timed.repeats
    )
    each = (
        times.groupby(["method", "prompt_id"])["time_s"]
        .median()
        .unstack("method")
        .reset_index()
    )
    speedup = stats.bootstrap(each, score.ratio_of("plain", "chain"))
    return _fields("measured", speedup)


def measured(
    tried: Tried,
    table: pd.DataFrame,
    timed: Timed,
    costs: Costs,
    chains: pd.DataFrame,
    stopped: Mapping,
) -> pd.DataFrame:
    """A draft of each kind decoded for real, at its best gamma: draft, gamma, predicted (for these
    texts), measured, measured_low, measured_high.

    chains, stopped: prompt lookup's nodes and its best `stopped_chain`; it is decoded with its stop
    rule.
    """
    rows = table.set_index("name")
    trained = [name for name in rows.index if name.startswith("distilled")][:1]
    early = [name for name in rows.index if name.startswith("target's first")][-1:]
    found = []
    for name in [OWN, *trained, INT4, LOOKUP, *early]:
        if name not in rows.index:
            continue
        row, paid = rows.loc[name], with_c(costs, rows.loc[name, "c"])
        words, gamma, stop = row["draft"], int(row["gamma"]), None
        if name == LOOKUP:
            words, gamma, stop = f"{words}, stop rule", stopped["gamma"], CONFIDENT
            nodes = _first_tokens(chains, timed)
            forecast = stopped_chain(nodes, paid, timed.new_tokens, limits=[gamma])
        else:
            trace = _first_tokens(tried.trace(name, "greedy"), timed)
            forecast = fastest_chain(trace, paid, [gamma])
        head = {"draft": words, "gamma": gamma, "predicted": forecast["speedup"]}
        one = tried.candidates[name]
        found.append(head | decoded_speedup(one, timed, gamma, stop=stop))
    return pd.DataFrame(found)


def _first_tokens(frame: pd.DataFrame, timed: Timed) -> pd.DataFrame:
    """The rows of what is timed; as one domain, which has prompts enough for an interval."""
    ids = [prompt.prompt_id for prompt in timed.prompts]
    within = frame["prompt_id"].isin(ids) & (frame["position"] < timed.new_tokens)
    return frame[within].assign(domain="any")


# ---- in words ------------------------------------------------------------------------------------


def measured_sentence(real: pd.DataFrame) -> str:
    """Measured beside predicted speed-ups, and what the share of the two says of the clock."""
    each = [
        f"{r.draft} {r.measured:.2f} [{r.measured_low:.2f}, {r.measured_high:.2f}] "
        f"(predicted for these texts: {r.predicted:.2f})"
        for r in real.itertuples()
    ]
    share = (real["measured"] / real["predicted"]).median()
    why = ""
    if share < 0.95:
        why = (
            "Passes were timed with both models in turn; plain decoding runs one alone, with the "
            "processor's caches to itself (notebook 10)."
        )
    elif share >= 1.05:
        why = "More than predicted: the clock was disturbed; run this again on a quiet machine."
    reached = f"Real speed is {100 * share:.0f} % of the predicted one (median)."
    return f"{'; '.join(each)}. {reached} {why}"


def top(table: pd.DataFrame, name: str) -> tuple[pd.Series, str]:
    """The best row of the table by a column, and its draft with those whose intervals overlap."""
    best = table.iloc[choose.fastest(table[name])]
    overlap = table[f"{name}_high"] >= best[f"{name}_low"]
    near = "; ".join(table["draft"][overlap & (table.index != best.name)])
    if not near:
        return best, best["draft"]
    words = (
        f"{best['draft']} (cannot be told apart from it, the intervals overlap: {near})"
    )
    return best, words


def stopped_verdict(stopped: Mapping, fast: pd.Series) -> str:
    """How prompt lookup with its stop rule compares with the fastest chain without one."""
    ends = {
        "low": stopped["speedup_low"] - fast["speedup_high"],
        "high": stopped["speedup_high"] - fast["speedup_low"],
    }
    return estimates.direction(
        pd.Series(ends),
        "is faster still",
        "is slower",
        "cannot be told apart from that",
    )


def small_draft_hit(table: pd.DataFrame) -> float:
    """The best hit[1] of a draft with weights of its own, less than half the target's."""
    small = (table["bits"] > 0) & (table["of_target_parameters"] < 0.5)
    return float(table.loc[small, HIT.name].max())


# ---- drawn ---------------------------------------------------------------------------------------


def apart(values: np.ndarray, gap: float) -> np.ndarray:
    """Places for the labels of ascending values: at least a gap apart, as near to the values as
    that allows.
    """
    steps = gap * np.arange(len(values))
    return isotonic_regression(values - steps).x + steps


def pareto_figure(table: pd.DataFrame) -> "figures.Figure":
    """Acceptance against the price of a draft pass: every draft a named point, a line through those
    that no other beats in both.
    """
    figure, axes = figures.subplots(height=3.6)
    hit, widest = table["hit[1]"], table["c"].max()
    reach = np.clip([hit - table["hit[1]_low"], table["hit[1]_high"] - hit], 0, None)
    grey = {"color": "#8A8A8A", "ecolor": "#C8C8C8", "capsize": 2}
    axes.errorbar(table["c"], hit, yerr=reach, fmt="o", **grey)
    front = table[table["front"]].sort_values("c")
    axes.step(
        front["c"],
        front["hit[1]"],
        where="post",
        color="black",
        linewidth=1,
        marker="o",
        zorder=3,
    )
    gap = 0.05 * np.ptp(axes.get_ylim())
    by_price = table.sort_values("c")
    # points of nearly one price have their labels in one column
    column = (by_price["c"].diff() > 0.12 * widest).cumsum()
    for _, rows in by_price.sort_values("hit[1]").groupby(column):
        across = rows["c"].max() + 0.05 * widest
        for row, up in zip(rows.itertuples(), apart(rows["hit[1]"], gap), strict=True):
            _name(axes, row.draft, (row.c, hit[row.Index]), (across, up), row.front)
    axes.set(
        xlim=(0, 1.25 * widest),
        ylabel="hit[1], domains pooled",
        xlabel="c: time of a draft pass, in target passes (measured here, float32)",
    )
    return figure


def _name(axes, text: str, point: tuple, place: tuple, front: bool) -> None:
    """A label with a thin line from its left edge to its point."""
    line = {
        "arrowstyle": "-",
        "color": "#8A8A8A",
        "linewidth": 0.5,
        "shrinkA": 0,
        "shrinkB": 3,
    }
    axes.annotate(
        text,
        point,
        place,
        va="center",
        weight="bold" if front else "normal",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        arrowprops=line | {"relpos": (0, 0.5)},
    )

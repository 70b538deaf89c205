"""Is synthetic acceptance fair? Engines are benchmarked with acceptance that is made up from a mean
number of accepted tokens. We serve the same requests with such acceptance and with real passes
(notebook 14).

* FIXED, the schedule of least variance: vLLM's `synthetic_acceptance_length`, SGLang's
  SGLANG_SIMULATE_ACC_LEN and ATOM's `--spec-decode-acceptance-length`. A mean of 2.7 accepted
  tokens is two always and a third with probability 0.7.
* DRAWN, one probability of acceptance at every depth, independent of all else (Modular's
  `SyntheticRunner`).
* SHUFFLED, passes drawn from all real passes. Only the differences between requests are gone.

All have the mean of the real passes, and the requests keep the lengths of their answers. The mean
leaves out passes that the end of an answer may shorten (`replay.prompt_sums`, ends="room"). A
prompt is a request, and its turns follow each other.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from speclab import passes, replay, stats
from speclab.analysis import claims
from speclab.estimates import Estimates, stack
from speclab.plain import Array
from speclab.score import POOLED, Estimator, block_estimators, divide
from speclab.studies.budgets_and_routing import serving

FIXED, DRAWN, SHUFFLED = "fixed schedule", "independent draws", "shuffled passes"
EQUAL, RECORDED = "answers of equal length", "recorded lengths"
THROUGHPUT = "throughput"
LATE = "95th-percentile latency"
CLOSE = 0.02  # a throughput within this share of the real one counts as right
METRICS = [THROUGHPUT, "median latency", LATE]
SURVIVAL = block_estimators()["survival_by_depth"]


# ---- acceptance from a mean ----------------------------------------------------------------------


def survivals(sums: pd.DataFrame) -> dict[str, Array]:
    """How often at least 1, 2, … tokens are accepted, [longest] by kind of synthetic acceptance,
    all with the same sum, the mean accepted tokens of `sums` (`replay.prompt_sums`).
    """
    real = np.asarray(SURVIVAL(sums))
    mean = real.sum()
    depth = np.arange(1, len(real) + 1)
    fixed = np.clip(mean + 1 - depth, 0.0, 1.0)
    probability = brentq(lambda p: (p**depth).sum() - mean, 0.0, 1.0)
    return {FIXED: fixed, DRAWN: probability**depth, SHUFFLED: real}


def passes_needed(tokens: Array, survival: Array, rng: np.random.Generator) -> Array:
    """Passes that answers of this many `tokens` [answers] need, int [answers], if each pass accepts
    tokens by `survival` [longest], independently.
    """
    coins = rng.random((len(tokens), tokens.max()))
    accepted = np.searchsorted(-survival, -coins)
    ends = (accepted + 1).cumsum(axis=1)
    return 1 + np.count_nonzero(ends < tokens[:, None], axis=1)


def variance_ratio(totals: Array) -> Array:
    """Variance of the accepted tokens of a real pass over those of FIXED, [..., 1], from the totals
    of SURVIVAL.
    """
    survival = SURVIVAL.value(totals)
    twice = 2 * np.arange(survival.shape[-1]) + 1
    mean = survival.sum(axis=-1, keepdims=True)
    squares = (twice * survival).sum(axis=-1, keepdims=True)
    third = mean % 1
    return divide(squares - mean**2, third * (1 - third))


VARIANCE = Estimator("variance", SURVIVAL.columns, variance_ratio)


# ---- the server ----------------------------------------------------------------------------------


def finish_in_slots(arrival: Array, service: Array, slots: int) -> Array:
    """When each request is done on a server that decodes up to `slots` requests at once, begun in
    order of arrival; arrays [..., requests], arrivals ascending.
    """
    done = np.empty(np.broadcast_shapes(arrival.shape, service.shape))
    free_from = np.zeros((*done.shape[:-1], slots))
    for number in range(done.shape[-1]):
        slot = free_from.argmin(axis=-1)[..., None]
        is_free = np.take_along_axis(free_from, slot, axis=-1)
        begins = np.maximum(is_free, arrival[..., [number]])
        ends = begins + service[..., [number]]
        np.put_along_axis(free_from, slot, ends, axis=-1)
        done[..., number] = ends[..., 0]
    return done


def needed_by_kind(log: pd.DataFrame, kinds: Mapping[str, Array], streams: int) -> Array:
    """Passes of each prompt, ordered by id, [streams, 1 + kinds, prompts]: the real ones first,
    then each kind's, made for every stream.
    """
    answers = log.groupby(["prompt_id", "turn"])["emitted"].agg(["sum", "size"])
    prompt, _ = pd.factorize(answers.index.get_level_values("prompt_id"))
    tokens = answers["sum"].to_numpy()
    rng = np.random.default_rng(0)
    by_stream = []
    for _ in range(streams):
        made = [passes_needed(tokens, survival, rng) for survival in kinds.values()]
        by_stream.append([np.bincount(prompt, row) for row in (answers["size"], *made)])
    return np.array(by_stream)


def over_real(
    log: pd.DataFrame,
    batches: Sequence[int],
    load: float,
    requests: int,
    streams: int,
    n: int = 250,
) -> pd.DataFrame:
    """Synthetic over real METRICS of a server of up to `batch` requests at once: batch, then as of
    `Draws.table` acceptance, metric, estimate, low, high, … `log`: a frame of `passes`; each
    request is served equally often, and every pass takes equally long.

    Throughput: tokens per pass of work. Latency includes waiting, and is a mean over `streams` of
    this many `requests`. load: share of the time that real passes keep the server busy. Load and
    mean acceptance are those of each resample. ValueError if no pass has room.
    """
    room = replay.prompt_sums(passes.as_blocks(log), ends="room").sort_values("prompt_id")
    if not room["blocks"].any():
        raise ValueError("passes: every pass may be cut by the end of its answer; take longer ones")
    kinds = survivals(room)
    needed = needed_by_kind(log, kinds, streams)
    tokens = log.groupby("prompt_id")["emitted"].sum().to_numpy()
    prompts = stats.resampling_of(room, n)
    weights = prompts.weights
    blocks, accepted = (weights @ room[name].to_numpy() for name in ("blocks", "accepted"))
    mean = 1 + accepted / blocks
    scale = np.stack([np.ones(1 + n), *[mean[0] / mean] * len(kinds)])
    work = needed.mean(axis=0) @ weights.T * scale
    gap = work[0] / weights.sum(axis=1) / load
    tables = {}
    for slots in batches:
        latency = latencies(needed, scale, weights, gap / slots, requests, slots)
        numbers = np.stack([weights @ tokens / work, *latency], axis=-1)
        ratios = numbers[1:] / numbers[0]
        frames = [pd.DataFrame(rows, columns=METRICS) for rows in ratios]
        draws = stats.Draws(dict(zip(kinds, frames, strict=True)), prompts, {})
        tables[slots] = draws.table(key="acceptance").frame.rename(columns={"domain": "metric"})
    return stack(tables, "batch")


def latencies(
    needed: Array, scale: Array, weights: Array, gap: Array, requests: int, slots: int
) -> Array:
    """Median and 95th-percentile latency, [2, kinds, rows], the mean over streams. needed:
    [streams, kinds, prompts], times `scale` [kinds, rows]; weights: of prompts, [rows, prompts];
    gap: mean time between arrivals, [rows].
    """
    by_stream = []
    for number, of_prompt in enumerate(needed):
        rng = np.random.default_rng([0, number])
        which, arrival = serving.draw(weights, gap[:, None], requests, rng)
        service = of_prompt[:, which] * scale[..., None]
        latency = finish_in_slots(arrival, service, slots) - arrival
        by_stream.append(np.quantile(latency, [0.5, 0.95], axis=-1))
    return np.mean(by_stream, axis=0)


# ---- of several runs -----------------------------------------------------------------------------


def of_equal_length(log: pd.DataFrame) -> pd.DataFrame:
    """The passes of the first answers of the requests that reach their median length, cut there."""
    first = log[log["turn"] == 0]
    tokens = first.groupby("prompt_id")["emitted"].sum()
    length = int(tokens.median())
    reaches = first["prompt_id"].map(tokens) >= length
    kept = first[reaches & (first["start"] < length)]
    room = length - kept["start"]
    counts = {name: np.minimum(kept[name], room) for name in ("accepted", "emitted")}
    return kept.assign(remaining=room, **counts)


def of_logs(
    logs: Mapping[str, pd.DataFrame], batches: Sequence[int], *stream: float
) -> tuple[Estimates, Estimates]:
    """`over_real` by length of the answers (EQUAL or RECORDED) and run (a name of `logs`), and the
    variance of a real pass over that of FIXED by run; stream: load, requests and streams.
    """
    parts, varied = {}, {}
    for run, log in logs.items():
        parts[EQUAL, run] = over_real(of_equal_length(log), batches, *stream)
        parts[RECORDED, run] = over_real(log, batches, *stream)
        room = replay.prompt_sums(passes.as_blocks(log), ends="room")
        varied[run] = stats.by_domain(room, VARIANCE).frame
    ratios = Estimates(stack(parts, ["answers", "run"])).in_units("x")
    pooled = Estimates.stacked(varied, "run").at(domain=POOLED)
    return ratios, pooled.in_units("x", 0)


def fairness_in_words(ratios: Estimates, varied: Estimates) -> str:
    """What the fixed schedule gets right and wrong in the largest batch, as sentences; arguments:
    see `of_logs`. The intervals of latency are widened for their number (`claims.widened`).
    """
    batch = ratios.frame["batch"].max()
    shown = ratios.at(batch=batch)
    fixed = shown.at(acceptance=FIXED)
    rate, late = fixed.at(metric=THROUGHPUT), fixed.at(metric=LATE)
    low, high = claims.widened(late.frame)
    late = Estimates(late.frame.assign(low=low, high=high))
    region = (1 - CLOSE, 1 + CLOSE)
    is_close = stats.verdict(rate.frame["low"], rate.frame["high"], region) == stats.WITHIN
    how = "lies within" if is_close.all() else "may be off by more than"
    words = "too high for", "too low for", "not significantly different for", "run"
    equal, recorded = (late.at(answers=name).sentence(*words, than=1) for name in (EQUAL, RECORDED))
    shuffled = shown.at(acceptance=SHUFFLED, metric=LATE, answers=EQUAL)
    return (
        f"With the fixed schedule throughput {how} {100 * CLOSE:.0f} % of the real throughput. At "
        f"batch {batch} with {EQUAL}, its 95th-percentile latency is {equal}. With {RECORDED} it "
        f"is {recorded} (Bonferroni). A real pass has {varied.span()} the variance of a scheduled "
        f"pass. Shuffled passes have the real variance, and with {EQUAL} they give "
        f"{shuffled.span()} of the real latency."
    )

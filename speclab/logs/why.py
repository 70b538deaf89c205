"""Why is acceptance low? Which known shapes the acceptance of a log looks like.

Users met SHAPES in threads about engines, and each thread names a cause. A shape is a rule over
counts of requests (or of blocks of lines), with a margin. It says what a log looks like, not what
is wrong, and what to check next. Several shapes may fit. `tests/test_why.py` plants the faults, and
counts the false alarms over healthy logs.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile

import numpy as np
import pandas as pd

from speclab import stats
from speclab.estimates import NUMBERS
from speclab.logs.log_gammas import PER_PASS
from speclab.logs.log_summary import EVERY
from speclab.logs.logs import Log
from speclab.logs.passes import depth_counts
from speclab.score import Estimator, ratio_of

FITS, DIFFERS, OPEN = "looks like it", "no", "cannot say"
LEAST = 60  # passes that must reach a position, or be in a part of the contexts
RARE = 6  # what was counted so often at most counts as counted so often (rule of three, doubled)
NOTHING, CLIFF = 0.05, 0.25  # a share that is nothing; such a part of the position before
PARTS, BREAK = 12, 0.75  # of the contexts; such a part of the share before
SLOW, RANGE = 0.85, 4  # such a part of the share in contexts that are RANGE times shorter
EXACT = 0.6  # such a part of position 1 at T = 0
LOW, LITTLE = 0.75, 0.98  # between such parts of what another log has
NO_POSITIONS = "needs a histogram or counts per pass, and draft lengths (--drafted)"
NO_CONTEXT = f"needs {PARTS * LEAST} passes with their counts, and prompt lengths"
NO_OTHER = "needs a second log, of the same prompts with counts by position (log A B)"
NO_EXACT = "needs the temperature, and a second log at T = 0 (log A B)"
UNKNOWN = -1.0  # temperature
SHARE = ratio_of("accepted", "reached", "share")
SHAPES = [
    (
        "1.00 tokens per pass, no position accepts",
        "wrong hidden states, layers or vocabulary map",
        "which layers the draft reads, after which token, and how its tokens map to the target's",
        "tokenspeed #526",
    ),
    (
        "position 1 fair, then nothing",
        "wrong block positions, mask or anchor",
        "what the draft sees from the second token of a block on, and at which position",
        "speculators #613",
    ),
    (
        "some positions good, then nothing",
        "K is above what the head drafts",
        "for how many tokens the head was trained; K of a tree counts nodes, which is no fault",
        "AEON-7 #6, vllm-ascend #9290",
    ),
    (
        "breaks at one context length",
        "maximum length, YaRN or sliding window",
        "whether the settings that extend the target's context also reach the draft",
        "vllm #58080, AEON-7 #6",
    ),
    (
        "falls slowly with the context",
        "draft trained on short texts",
        "the same prompts cut to a quarter, because long prompts may differ in other ways",
        "vllm #47602",
    ),
    (
        "fair at T = 0, little above",
        "exact match with what the target draws",
        "whether the engine accepts by the ratio of probabilities at T > 0",
        "omlx #3370",
    ),
    (
        "all positions a little low",
        "one layer off, or a quantised target",
        "which layers the draft reads, and the number formats of weights and cache",
        "vllm #14649",
    ),
    (
        "position 1 higher at a smaller K",
        "no fault: other blocks are visited",
        "nothing; compare tokens per target pass",
        "vllm #48892",
    ),
]
Said = tuple[str, str]  # FITS, DIFFERS or OPEN, and the numbers or what is missing


def explain(log: Log, other: Log | None = None, temperatures: Sequence[float] = ()) -> pd.DataFrame:
    """Which of SHAPES a log looks like: shape, cause, check, thread, verdict and numbers.

    other: a log of the same prompts with another setting, or from before. temperatures: of the log
    and of the other, as far as they are known.
    """
    said = [_in_all(log)]
    said += [*_by_position(log)] or 2 * [(OPEN, NO_POSITIONS)]
    said += [*_by_context(log)] or 2 * [(OPEN, NO_CONTEXT)]
    fits = [verdict == FITS for verdict, _ in said]
    said += _by_other(log, other, [*temperatures, UNKNOWN, UNKNOWN], fits)
    shapes = pd.DataFrame(SHAPES, columns=["shape", "cause", "check", "thread"])
    return shapes.join(pd.DataFrame(said, columns=["verdict", "numbers"]))


def ratio(
    rows: pd.DataFrame, others: pd.DataFrame, estimator: Estimator = SHARE
) -> tuple[float, float, float]:
    """A number of some rows divided by that of others, and the low and the high end of its 95 %
    interval over requests (NaN for fewer than 5). The high end is at least what RARE more tokens
    would give.
    """
    frames = {name: frame.assign(domain=EVERY) for name, frame in enumerate((rows, others))}
    draws = stats.jointly({name: (frames[name], estimator) for name in frames}, same=False)
    table = draws.table({"": draws[0][EVERY] / draws[1][EVERY]}).frame
    ((estimate, low, high),) = table[NUMBERS].to_numpy()
    rare = RARE / estimator.columns(rows)[:, 1].sum() / estimator(others)
    return estimate, low, np.fmax(high, estimate + rare)


def collapse(parts: Iterable[pd.DataFrame], factor: float) -> int:
    """How many parts there are before one collapses: before the first whose SHARE is surely below
    `factor` times that of the part before it. 0: none collapses.
    """
    for good, (before, after) in enumerate(pairwise(parts), 1):
        if SHARE(before) > NOTHING and ratio(after, before)[2] < factor:
            return good
    return 0


def lines_of(shapes: pd.DataFrame) -> Iterator[str]:
    """What `explain` says, as lines."""
    yield "Why is acceptance low? The log, and shapes that users met, each with a usual cause:"
    for row in shapes.itertuples():
        yield f"  {row.shape}: {row.verdict} ({row.numbers})"
        if row.verdict == FITS:
            yield f"    Usual cause: {row.cause} ({row.thread}). Check {row.check}."


def _verdict(fits: object, is_known: object = True) -> str:
    return FITS if fits else DIFFERS if is_known else OPEN


def _percent(rows: pd.DataFrame) -> str:
    return f"{100 * SHARE(rows):.0f} %"


def _in_all(log: Log) -> Said:
    """The shape of a log that accepts nothing, which totals show. Passes may have no draft, and
    there are at most as many drafts as drafted tokens.
    """
    rows = log.sums.assign(reached=log.sums[["blocks", "drafted"]].min(axis=1))
    every = rows.assign(accepted=rows["reached"])
    numbers = f"{PER_PASS(log.sums):.2f} tokens per target pass"
    return _verdict(collapse([every, rows], NOTHING), SHARE(rows) > NOTHING), numbers


def _by_position(log: Log) -> Iterator[Said]:
    """The shapes along the positions of a draft; none if the log does not say its length."""
    frame = log.passes
    if frame is None or frame["drafted"].isna().any():
        return
    places = range(1, int(frame["drafted"].max()) + 1)
    counts = (depth_counts(frame, place) for place in places)
    parts = [*takewhile(lambda rows: rows["reached"].sum() >= LEAST, counts)]
    good = collapse(parts, CLIFF)
    shares = ", ".join(map(_percent, parts)) or "none"
    numbers = f"accepted by position ({LEAST} passes or more): {shares}"
    yield _verdict(good == 1, len(parts) > 1), numbers
    yield _verdict(good > 1, len(parts) > 2), numbers


def _by_context(log: Log) -> Iterator[Said]:
    """The shapes of position 1 along the context, in PARTS with as many passes; none if a part has
    fewer than 5 requests, or the log does not say the context.
    """
    frame, sums = log.passes, log.sums.set_index("prompt_id")
    if frame is None or "context" not in sums or len(frame) < PARTS * LEAST:
        return
    frame = frame[frame["drafted"] != 0]
    place, many = frame["start"] + frame["prompt_id"].map(sums["context"]), frame.get("blocks", 1)
    rows = frame.assign(place=place, reached=many, accepted=(frame["accepted"] > 0) * many)
    part = np.ceil(place.rank(method="first", pct=True) * PARTS)
    parts = [of_part for _, of_part in rows.groupby(part)]
    if min((rows["prompt_id"].nunique() for rows in parts), default=0) < stats.MIN_PROMPTS:
        return
    # a break lies within one part, so that the parts around it differ
    threes = zip(parts, parts[1:], parts[2:], strict=False)
    breaks = [rows for before, rows, after in threes if collapse([before, after], BREAK)]
    first, last = rows[part <= PARTS / 3], rows[part > PARTS * 2 / 3]
    start, end = (rows["place"].median() for rows in (first, last))
    numbers = f"{_percent(first)} around token {start:,.0f}, {_percent(last)} around {end:,.0f}"
    if breaks:
        numbers += f", break near {breaks[0]['place'].median():,.0f}"
    is_wide = end >= RANGE * start
    yield _verdict(breaks), numbers
    yield _verdict(not breaks and is_wide and collapse([first, last], SLOW), is_wide), numbers


def _by_other(
    log: Log, other: Log | None, temperatures: Sequence[float], fits: Sequence[bool]
) -> Iterator[Said]:
    """The shapes that two logs show on their shared requests. fits: whether the log looks like the
    shapes before; what is low in one place is not low evenly.
    """
    (t, t_other, *_), is_nothing = temperatures, fits[0]
    frames = [
        depth_counts(one.passes, 1)
        .merge(one.sums[["prompt_id", "emitted", "blocks"]])
        .assign(longest=one.passes["drafted"].max())
        for one in (log, other)
        if one is not None and one.passes is not None
    ]
    shared = frames[0][frames[0]["prompt_id"].isin(frames[-1]["prompt_id"])] if frames else ()
    if len(frames) < 2 or len(shared) < stats.MIN_PROMPTS:
        yield _verdict(t > 0 and is_nothing, t == 0), f"T = {t:g}" if t >= 0 else NO_EXACT
        yield from 2 * [(OPEN, NO_OTHER)]
        return
    others = frames[1][frames[1]["prompt_id"].isin(shared["prompt_id"])]
    tokens, _, most = ratio(shared, others, PER_PASS)
    first, low, high = ratio(shared, others)
    numbers = f"{tokens:.2f} times the tokens per target pass, position 1 {first:.2f} times"
    is_exact = is_nothing or (t_other == 0 and high < EXACT)
    yield _verdict(t > 0 and is_exact, t == 0 or t_other == 0), numbers
    more = shared["longest"].iloc[0] - others["longest"].iloc[0]
    is_same = more == 0 and t == t_other
    is_low = tokens > LOW and most < LITTLE and high < 1
    yield _verdict(is_same and is_low and not any(fits), is_same), numbers
    is_higher = high < 1 if more > 0 else low > 1
    yield _verdict(abs(more) > 0 and is_higher, abs(more) > 0), numbers

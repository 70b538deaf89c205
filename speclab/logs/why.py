"""Why is acceptance low? Which known shape the acceptance of a log looks like.

Users met the shapes in threads about engines, and each thread names a cause. A shape has a rule:
the share of accepted tokens in some rows of the log, divided by the share in others, is surely
under a limit. The first rule that fits names the shape. It says what a log looks like, not what is
wrong. `tests/test_why.py` plants the faults and counts false alarms.

The rules read `Counts`, which every kind of log can give. They are frames of prompt_id, reached and
accepted: the first of the drafts with all their accepted tokens, then one for each depth that the
log knows. At a depth, a token is reached if the target accepted all drafted tokens before it. These
frames have a row for each request and `context`: log2 of the tokens before the draft, rounded down
(-1: unknown).
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pandas as pd

from speclab import stats
from speclab.logs.log_summary import EVERY
from speclab.logs.logs import Log
from speclab.logs.passes import depth_counts
from speclab.logs.readers import SETTINGS
from speclab.score import POOLED, ratio_of

SHARE = ratio_of("accepted", "reached")
LEAST = 60  # drafts or tokens that each share of a rule must count

EXACT = "fair at T = 0, little above"
NO_TOKEN = "1.00 tokens per pass, no position accepts"
ONE_TOKEN = "position 1 fair, then nothing"
FEW_TOKENS = "some positions good, then nothing"
BREAK = "breaks at one context length"
FALL = "falls slowly with the context"
LOW = "all positions a little low"
SMALL_K = "position 1 higher at a smaller K"
Counts = list[pd.DataFrame]
COLUMNS = ["shape", "limit", "compared", "cause", "check", "thread"]
RULES = [
    (
        EXACT,
        0.6,
        "position 1 / in a second log at T = 0",
        "exact match with what the target draws",
        "whether the engine accepts by the ratio of probabilities at T > 0",
        "omlx #3370",
    ),
    (
        NO_TOKEN,
        0.05,
        "accepted tokens / drafts",
        "wrong hidden states, layers or vocabulary map",
        "which layers the draft reads, after which token, and how its tokens map to the target's",
        "tokenspeed #526",
    ),
    (
        ONE_TOKEN,
        0.25,
        "position 2 / position 1",
        "wrong block positions, mask or anchor",
        "what the draft sees from the second token of a block on, and at which position",
        "speculators #613",
    ),
    (
        FEW_TOKENS,
        0.25,
        "a later position / the position before",
        "K is above what the head drafts",
        "for how many tokens the head was trained; K of a tree counts nodes, which is no fault",
        "AEON-7 #6, vllm-ascend #9290",
    ),
    (
        BREAK,
        0.5,
        "position 1 / at a quarter of the context",
        "maximum length, YaRN or sliding window",
        "whether the settings that extend the target's context also reach the draft",
        "vllm #58080, AEON-7 #6",
    ),
    (
        FALL,
        0.85,
        "position 1 / at shorter contexts",
        "draft trained on short texts",
        "the same prompts cut to a quarter, because long prompts may differ in other ways",
        "vllm #47602",
    ),
    (
        LOW,
        0.97,
        "accepted tokens per draft / in a second log of the same K and T",
        "one layer off, or a quantised target",
        "which layers the draft reads, and the number formats of weights and cache",
        "vllm #14649",
    ),
    (
        SMALL_K,
        1.0,
        "position 1 / in a second log of a smaller K",
        "no fault: other blocks are visited",
        "nothing; compare tokens per target pass",
        "vllm #48892",
    ),
]


def counts_of(log: Log) -> Counts:
    """The counts of a log; only of drafts if it does not say how long they were."""
    sums, passes = log.sums, log.passes
    # passes may have no draft, and there are at most as many drafts as drafted tokens
    drafts = sums[["blocks", "drafted"]].min(axis=1)
    counts = [sums.assign(domain=EVERY, reached=drafts)]
    if passes is not None and passes["drafted"].notna().all():
        prompt = passes["prompt_id"].map(sums.set_index("prompt_id").get("context", {}))
        tokens = prompt + passes["start"]
        doublings = np.log2(tokens + 1) // 1
        by_context = passes.assign(domain=doublings.fillna(-1))  # counted as a domain is
        for depth in range(1, int(passes["drafted"].max()) + 1):
            rows = depth_counts(by_context, depth)
            counts.append(rows.assign(context=rows["domain"], domain=EVERY))
    return counts


def explain(counts: Counts, other: Counts | None = None, is_cold: bool = False) -> pd.DataFrame:
    """Which shape a log looks like: RULES, where (the place that decides), the ratio of the shares
    (estimate, NaN if the log cannot say; high, the upper end of its interval over requests, or
    twice the estimate for fewer than 5 requests) and whether the shape fits.

    other: counts of the same prompts with another setting, or from before. is_cold: the other log
    was made at T = 0, and this one above.
    """
    found = []
    for shape, where, rows, base in _pairs(counts, other, is_cold):
        if min(rows["reached"].sum(), base["reached"].sum()) >= LEAST:
            questions = {"rows": (rows, SHARE), "base": (base, SHARE)}
            draws = stats.jointly(questions, same=False)
            quotient = draws["rows"][POOLED] / draws["base"][POOLED]
            ratio = draws.table({"": quotient}).frame.iloc[0]
            high = ratio["high"] if ratio["high"] > 0 else 2 * ratio["estimate"]
            found.append((shape, where, ratio["estimate"], high))
    # of a shape's places the one with the lowest upper end decides
    ratios = pd.DataFrame(found, columns=["shape", "where", "estimate", "high"])
    ratios = ratios.sort_values("high").drop_duplicates("shape")
    rules = pd.DataFrame(RULES, columns=COLUMNS)
    table = rules.merge(ratios, "left", on="shape")
    fits = table["high"] < table["limit"]
    first = fits.cumsum() == 1
    return table.assign(fits=fits & first)


def explain_log(log: Log, other: Log | None = None) -> Iterable[str]:
    """What `explain` says of a log, in sentences. A mixture has a shape of its own, so it has none
    of its runs' shapes.
    """
    if log.about == SETTINGS:
        return ["Each setting is one number, which has no shape."]
    if log.is_mixed:
        return ["The log mixes runs, so it has no shape; --part names one run."]
    return shape_lines(explain(counts_of(log), other and counts_of(other)))


def shape_lines(shapes: pd.DataFrame) -> Iterator[str]:
    """What `explain` says, in sentences."""
    fits = shapes[shapes["fits"]]
    for row in fits.itertuples():
        yield f"The log looks like this shape: {row.shape} ({row.where} decides)."
        yield f"The usual cause is {row.cause} ({row.thread}). Check {row.check}."
    if fits.empty:
        yield "The log looks like no known shape of low acceptance."


def _pairs(
    counts: Counts, other: Counts | None, is_cold: bool
) -> Iterator[tuple[str, str, pd.DataFrame, pd.DataFrame]]:
    """What the rules compare: the shape, the place, some rows, and the rows that divide them."""
    drafts, *depths = counts
    yield NO_TOKEN, "all drafts", drafts, drafts.assign(accepted=drafts["reached"])
    for depth, (before, after) in enumerate(pairwise(depths), 2):
        shape = ONE_TOKEN if depth == 2 else FEW_TOKENS
        yield shape, f"position {depth}", after, before
    # position 1 around each context length
    for first in depths[:1]:
        place = first["context"]
        for middle in place.unique():
            where = f"{2**middle:,.0f} tokens of context"
            before, after = middle - 1, middle + 1
            yield BREAK, where, first[place == after], first[place == before]
            yield FALL, where, first[place >= after], first[place.between(0, before)]
    # the requests that both logs have
    if other is not None:
        shape = EXACT if is_cold else LOW
        if len(counts) > len(other):
            shape = SMALL_K
        by_depth = [*zip(counts, other, strict=False)]
        for rows, base in by_depth[shape != LOW :][:1]:
            in_both = rows["prompt_id"].isin(base["prompt_id"])
            in_first = base["prompt_id"].isin(rows["prompt_id"])
            yield shape, "prompts of both logs", rows[in_both], base[in_first]

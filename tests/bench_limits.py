"""The limits half of `make bench`: where the time of a decoding block and of a recorded prompt
goes, and which share of what this machine's products and copies allow both reach.

Limits are measured in the same run, before and after what is held against them: floating-point
operations a second of a square product in float32, bytes a second of a copy (read and written).
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

if TYPE_CHECKING:
    from speclab.models.pairs import Pair
    from speclab.prompts import EncodedPrompt

SQUARE, COPIED = 1024, 1 << 26  # side of the square product; numbers that are copied
GAMMA = 4  # of the chain that is held against others
PASS_TOKENS, CONTEXT = (1, 5), 128  # of the target passes held against the copies


# ---- what the machine can do ---------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """Operations a second of a square product, bytes a second of a copy."""

    operations: float
    bytes: float


def _seconds(work: Callable[[], Any], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)


def limits(repeats: int = 9) -> Limits:
    """What this machine does now, medians."""
    square = torch.ones(SQUARE, SQUARE)
    source = torch.ones(COPIED)
    copy = torch.empty_like(source)
    product_s = _seconds(lambda: square @ square, 3 * repeats)
    copy_s = _seconds(lambda: copy.copy_(source), repeats)
    return Limits(2 * SQUARE**3 / product_s, 2 * source.nbytes / copy_s)


def _mean(before: Limits, after: Limits) -> Limits:
    return Limits(
        (before.operations + after.operations) / 2, (before.bytes + after.bytes) / 2
    )


# ---- what is done --------------------------------------------------------------------------------


@dataclass
class Counted:
    """Work of the projections that ran: operations, and bytes of the weights they read."""

    operations: int = 0
    bytes: int = 0


@contextlib.contextmanager
def counted() -> Iterator[Counted]:
    """Counts what the kit's projections do in a block; attention is not counted."""
    from speclab.models.model import Projection

    found, plain = Counted(), Projection.__call__

    def call(self: Projection, x: torch.Tensor) -> torch.Tensor:
        rows = x.numel() // x.shape[-1]
        found.operations += 2 * rows * self.weight.numel()
        found.bytes += self.weight.nbytes
        return plain(self, x)

    Projection.__call__ = call
    try:
        yield found
    finally:
        Projection.__call__ = plain


PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "mkldnn::_linear_pointwise")
ATTENTION = ("aten::_scaled_dot_product_flash_attention_for_cpu",)


def shares(work: Callable[[], Any]) -> dict[str, float]:
    """Shares of the time of `work`: products, attention, torch's other operators, and what lies
    between them (Python). By torch's profiler, which adds to the last two.
    """
    from torch.profiler import ProfilerActivity, profile

    work()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        began = time.perf_counter()
        work()
        spent = 1e6 * (time.perf_counter() - began)
    times = {"products": 0.0, "attention": 0.0, "other operators": 0.0}
    for event in seen.key_averages():
        kind = "other operators"
        if event.key in PRODUCTS:
            kind = "products"
        elif event.key in ATTENTION:
            kind = "attention"
        times[kind] += event.self_cpu_time_total
    times["between operators"] = max(0.0, spent - sum(times.values()))
    return {kind: value / spent for kind, value in times.items()}


# ---- held against each other ---------------------------------------------------------------------


def _held(
    what: str, tokens: int, unit: str, work: Callable[[], Any], repeats: int
) -> dict:
    """What `work` reaches of the machine's limit of `unit` (GFLOP/s: operations of products; GB/s:
    bytes of the weights they read), measured before and after it, and where its time goes.
    """
    with counted() as done:
        work()
    before = limits()
    spent = _seconds(work, repeats)
    limit = _mean(before, limits())
    kind = "operations" if unit == "GFLOP/s" else "bytes"
    rate, most = getattr(done, kind) / spent, getattr(limit, kind)
    return {
        "what": what,
        "tokens": tokens,
        "reached": rate / 1e9,
        "limit": most / 1e9,
        "unit": unit,
        "share": rate / most,
        **shares(work),
    }


def recorder_share(pair: "Pair", prompts: "list[EncodedPrompt]", new: int) -> dict:
    """The recorder over given texts of `new` tokens, held against the limit of operations."""
    from speclab.record import generate, record_prompt
    from speclab.sampling import Sampling
    from speclab.tree import static_tree

    texts = generate(pair.target, prompts, new, frozenset(), Sampling(), 0)
    tree = static_tree(3, 2, 8)

    def work() -> None:
        for prompt, text in zip(prompts, texts, strict=True):
            record_prompt(pair, prompt, text, tree, Sampling())

    return _held("recorder", new, "GFLOP/s", work, 3)


def pass_share(pair: "Pair", tokens: int) -> dict:
    """A target pass over so many tokens, held against the limit of copies."""
    model, ids = pair.target, torch.arange(5, 5 + CONTEXT)[None]
    cache = model.cache(CONTEXT + tokens)
    model.forward(ids, cache)

    def work() -> None:
        model.logits(model.forward(ids[:, :tokens], cache))
        cache.crop(CONTEXT)

    return _held("target pass", tokens, "GB/s", work, 31)


def reached(pair: "Pair", prompts: "list[EncodedPrompt]", new: int) -> list[dict]:
    """What target passes and the recorder of a pair reach of the machine's limits."""
    passes = [pass_share(pair, tokens) for tokens in PASS_TOKENS]
    return [*passes, recorder_share(pair, prompts, new)]


# ---- the loop ------------------------------------------------------------------------------------


@dataclass
class Watch:
    """Seconds by name, of calls that are watched; a call within another counts for itself only."""

    seconds: dict[str, float] = field(default_factory=dict)
    _inner: list[float] = field(default_factory=list)

    def watched(self, name: str, call: Callable) -> Callable:
        """The call, timed."""

        def timed(*given: Any, **named: Any) -> Any:
            self._inner.append(0.0)
            began = time.perf_counter()
            try:
                return call(*given, **named)
            finally:
                spent = time.perf_counter() - began
                own = spent - self._inner.pop()
                self.seconds[name] = self.seconds.get(name, 0.0) + own
                if self._inner:
                    self._inner[-1] += spent

        return timed


@contextlib.contextmanager
def _replaced(places: list[tuple[Any, str, Callable]]) -> Iterator[None]:
    before = [(place, name, getattr(place, name)) for place, name, _ in places]
    for place, name, call in places:
        setattr(place, name, call)
    try:
        yield
    finally:
        for place, name, call in before:
            setattr(place, name, call)


def loop_table(
    pair: "Pair", prompts: "list[EncodedPrompt]", shape: str, new: int
) -> pd.DataFrame:
    """Where the time of a block goes: part, ms a block, and in target passes over one token."""
    from speclab import decode as loop
    from speclab.draft import parse_shape
    from speclab.models.model import KVCache
    from speclab.models.timing import costs_of, pass_times
    from speclab.sampling import Sampling

    watch = Watch()
    places = [
        (pair.target, "forward", watch.watched("target pass", pair.target.forward)),
        (pair.target, "logits", watch.watched("target pass", pair.target.logits)),
        (pair.draft, "forward", watch.watched("draft passes", pair.draft.forward)),
        (pair.draft, "logits", watch.watched("draft passes", pair.draft.logits)),
        (loop, "propose", watch.watched("drafting, without its passes", loop.propose)),
        (loop, "score_tree", watch.watched("verification", loop.score_tree)),
        (loop, "_verdict", watch.watched("verification", loop._verdict)),
        (KVCache, "keep", watch.watched("cache rolled back", KVCache.keep)),
    ]
    drafted = parse_shape(shape)

    def decoded(prompt: "EncodedPrompt") -> tuple[int, float]:
        caches = loop.prefill(pair, prompt.ids, new + drafted.room)
        watch.seconds.clear()
        began = time.perf_counter()
        given = pair, prompt.ids, "greedy", drafted, Sampling(), new, None, caches
        blocks = sum(1 for _ in loop.decode(*given))
        return blocks, time.perf_counter() - began

    found, count, whole = {}, 0, 0.0
    with _replaced(places):
        decoded(prompts[0])
        for prompt in prompts:
            blocks, spent = decoded(prompt)
            count, whole = count + blocks, whole + spent
            for name, seconds in watch.seconds.items():
                found[name] = found.get(name, 0.0) + seconds
    found["the loop between them"] = whole - sum(found.values())
    one = costs_of(pass_times(pair, sizes=(1,), repeats=15)).target_ms
    table = pd.DataFrame({"part": list(found), "ms": list(found.values())})
    table["ms"] *= 1e3 / count
    return table.assign(target_passes=table["ms"] / one)


# ---- bars ----------------------------------------------------------------------------------------

# what the kit wants to reach, by pair: over transformers' assisted generation at the same gamma
ASSISTED = {"tiny": 1.6, "smollm": 1.3}
OVERHEAD = {"tiny": 0.2}  # target passes that the loop takes a block, at most
RECORDER = {"smollm": 0.5}  # share of the limit of operations
PASS = {
    "tiny": 0.7,
    "smollm": 0.7,
}  # share of the limit of copies, a pass over one token


def bars(found: dict[str, Any]) -> pd.DataFrame:
    """What `make bench` found beside what the kit wants to reach: pair, what, measured, bar,
    is_reached. found: as of `bench_decode.main`.
    """
    rows = []

    def held(pair: str, what: str, measured: float, bar: float, above: bool = True):
        reached = measured >= bar if above else measured <= bar
        rows.append((pair, what, measured, bar, reached))

    for pair, methods in found["decoder"].items():
        chains = [row for row in methods if row["method"] == f"own chain:{GAMMA}"]
        for row in chains if pair in ASSISTED else ():
            what = f"own chain:{GAMMA} over assisted:{GAMMA}"
            held(pair, what, row["ratio_to_assisted"], ASSISTED[pair])
            held(pair, f"own chain:{GAMMA} over own plain", row["ratio_to_plain"], 1.0)
        for row in found["limits"][pair]:
            if row["what"] == "recorder" and pair in RECORDER:
                held(
                    pair, "recorder, share of operations", row["share"], RECORDER[pair]
                )
            if row["what"] == "target pass" and row["tokens"] == 1 and pair in PASS:
                held(pair, "target pass, share of copies", row["share"], PASS[pair])
        if pair in OVERHEAD:
            o = found["overhead"][pair]
            held(pair, "loop, target passes a block", o, OVERHEAD[pair], above=False)
    columns = ["pair", "what", "measured", "bar", "is_reached"]
    return pd.DataFrame(rows, columns=columns)

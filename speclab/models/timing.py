"""What passes cost on this machine: c, v(n) and the decoder's own overhead, measured with warm-up,
synchronisation and swapped orders.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import torch

from speclab.cost import Costs
from speclab.decode import Decoded, decode_prompt, prefill
from speclab.draft import PLAIN, Shape
from speclab.models.model import KVCache, LanguageModel, timed
from speclab.models.pairs import Pair
from speclab.prompts import EncodedPrompt
from speclab.record import generate
from speclab.sampling import Sampling
from speclab.tree import chain

SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 48, 64)


def _passes(
    model: LanguageModel, sizes: Sequence[int], context: int
) -> Iterator[Callable[[], None]]:
    """For each n of `sizes` a pass over n tokens behind `context` cached ones, the same for all,
    with the logits of all n.
    """
    longest = max(sizes)
    cache = model.cache(context + longest)
    tokens = torch.arange(5, 5 + max(context, longest))[None] % model.vocab
    model.forward(tokens[:, :context], cache)

    def work(n: int) -> None:
        model.logits(model.forward(tokens[:, :n], cache))
        cache.crop(context)

    return (partial(work, n) for n in sizes)


def pass_times(
    pair: Pair, sizes: tuple[int, ...] = SIZES, context: int = 128, repeats: int = 21
) -> pd.DataFrame:
    """Milliseconds of passes of both models, one row a repeat: model, n, repeat, ms.

    Every repeat runs all cases in a new random order: in a fixed one a case always meets the same
    cold or warm cache.
    """
    models = {"target": pair.target, "draft": pair.draft}
    cases = [
        (name, n, model.device, work)
        for name, model in models.items()
        for n, work in zip(sizes, _passes(model, sizes, context), strict=True)
    ]
    for *_, work in cases:
        work(), work()
    rows, rng = [], np.random.default_rng(0)
    for repeat in range(repeats):
        for i in rng.permutation(len(cases)):
            name, n, device, work = cases[i]
            rows.append((name, n, repeat, 1e3 * timed(work, device)))
    return pd.DataFrame(rows, columns=["model", "n", "repeat", "ms"])


def costs_of(times: pd.DataFrame) -> Costs:
    """Medians of `pass_times` as Costs."""
    median = times.groupby(["n", "model"])["ms"].median().unstack()
    one = float(median["target"].iloc[0])
    draft, verify = (
        tuple((median[model] / one).tolist()) for model in ("draft", "target")
    )
    return Costs(one, tuple(map(int, median.index)), draft, verify)


def decoded_speed(
    pair: Pair,
    prompts: list[EncodedPrompt],
    shapes: dict[str, Shape],
    max_new_tokens: int,
    repeats: int = 3,
) -> pd.DataFrame:
    """Tokens per second of plain and speculative greedy decoding on the same prompts, in one run,
    the order swapped from prompt to prompt and from repeat to repeat.

    Columns: method, repeat, prompt_id, domain, text (token ids), tokens, blocks, time_s (the
    prefill left out).
    """
    columns = ["method", "repeat", "prompt_id", "domain", "text", "blocks", "time_s"]
    rows, methods = [], ["plain", *shapes]
    for name in methods:  # warm-up
        _run_one(pair, prompts[0], shapes.get(name, PLAIN), min(8, max_new_tokens))
    room = max_new_tokens + max(shape.room for shape in shapes.values())
    for repeat, (number, prompt) in product(range(repeats), enumerate(prompts)):
        caches = prefill(pair, prompt.ids, room)  # the same for all methods
        for name in methods[:: 1 if (repeat + number) % 2 == 0 else -1]:
            shape = shapes.get(name, PLAIN)
            counted = _run_one(pair, prompt, shape, max_new_tokens, caches)
            rows.append((name, repeat, prompt.prompt_id, prompt.domain, *counted))
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(tokens=frame["text"].map(len))


def medians(speeds: pd.DataFrame) -> pd.DataFrame:
    """Medians over the repeats of `decoded_speed`, one row a method and prompt: method, prompt_id,
    domain, tokens, blocks, time_s, and the time of plain decoding beside (plain_s).
    """
    keys = ["method", "prompt_id", "domain"]
    groups = speeds.groupby(keys, sort=False, as_index=False)
    each = groups[["tokens", "blocks", "time_s"]].median()
    plain = each[each["method"] == "plain"].set_index("prompt_id")["time_s"]
    return each.assign(plain_s=each["prompt_id"].map(plain))


def _run_one(
    pair: Pair,
    prompt: EncodedPrompt,
    shape: Shape,
    new: int,
    caches: tuple[KVCache, KVCache] | None = None,
) -> tuple[tuple[int, ...], int, float]:
    """The text, its blocks, and the seconds behind the prefill; of PLAIN in the loop of
    `record.generate`, whose prefill is timed alone.
    """
    if shape.size:
        found = decode_prompt(
            pair, prompt, "greedy", shape, Sampling(), new, caches=caches
        )
        return found.token_ids, found.target_passes, found.time_s - found.prefill_time_s
    target, texts = pair.target, []
    ids = torch.tensor([prompt.ids])
    cache = target.cache(len(prompt.ids) + new)
    before = timed(lambda: target.forward(ids, cache), target.device)
    asked = target, [prompt], new, pair.stop_ids, Sampling(), 0
    seconds = timed(lambda: texts.extend(generate(*asked)), target.device)
    return texts[0], len(texts[0]), seconds - before


def with_median_loop(costs: Costs, decoded: list[Decoded], shape: Shape) -> Costs:
    """The costs with the loop's own time a block: what the blocks of a text took beyond the passes
    they made (0 when it drowns in the noise), the median over texts decoded with `shape`.
    """
    passes = costs.of_block(shape.tree) - costs.overhead
    blocks_ms = [
        1e3 * (text.time_s - text.prefill_time_s) / text.target_passes
        for text in decoded
    ]
    loops = np.maximum(0.0, np.divide(blocks_ms, costs.target_ms) - passes)
    return replace(costs, overhead=float(np.median(loops)))


def measured_costs(
    pair: Pair,
    prompts: list[EncodedPrompt],
    new_tokens: int,
    sizes: tuple[int, ...] = SIZES,
    context: int = 128,
    repeats: int = 21,
) -> Costs:
    """Costs of this machine, with the loop's own time of a chain of 4, from texts of these prompts
    that are decoded for it.
    """
    four = Shape(chain(4))
    texts = [
        decode_prompt(pair, prompt, "greedy", four, Sampling(), new_tokens)
        for prompt in prompts
    ]
    times = pass_times(pair, sizes, context, repeats)
    return with_median_loop(costs_of(times), texts, four)


def quartiles(times: pd.DataFrame) -> pd.DataFrame:
    """Median and quartiles of each case of `pass_times`: model, n, ms, low, high."""
    found = times.groupby(["model", "n"])["ms"].quantile([0.5, 0.25, 0.75]).unstack()
    return found.set_axis(["ms", "low", "high"], axis=1).reset_index()


def spread(times: pd.DataFrame) -> float:
    """Largest quartile range of a case, relative to its median: how far to trust the ratios."""
    found = quartiles(times)
    return float(((found["high"] - found["low"]) / found["ms"]).max())

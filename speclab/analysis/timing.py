"""What passes cost on this machine: c, v(n) and the decoder's own overhead, measured with warm-up,
synchronisation and swapped orders.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch

from speclab.cost import Costs
from speclab.decode import Decoded, decode_prompt
from speclab.draft import PLAIN, Shape
from speclab.model import LanguageModel, timed
from speclab.pairs import Pair
from speclab.prompts import EncodedPrompt
from speclab.record import generate
from speclab.sampling import Sampling
from speclab.tree import chain

SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 48, 64)


def _one_pass(model: LanguageModel, n: int, context: int) -> Callable[[], object]:
    """A pass over n tokens behind `context` cached ones, with the logits of all n."""
    cache, tokens = (
        model.cache(context + 2 * n),
        torch.arange(5, 5 + max(context, n))[None] % model.vocab,
    )
    model.forward(tokens[:, :context], cache)

    def work() -> None:
        model.logits(model.forward(tokens[:, :n], cache))
        cache.crop(context)

    return work


def pass_times(
    pair: Pair, sizes: tuple[int, ...] = SIZES, context: int = 128, repeats: int = 21
) -> pd.DataFrame:
    """Milliseconds of passes of both models, one row a repeat: model, n, repeat, ms.

    Every repeat runs all cases in a new random order: in a fixed one a case always meets the same
    cold or warm cache.
    """
    models = {"target": pair.target, "draft": pair.draft}
    cases = [
        (name, n, m.device, _one_pass(m, n, context)) for name, m in models.items() for n in sizes
    ]
    for *_, work in cases:
        work(), work()
    rows, rng = [], np.random.default_rng(0)
    for repeat in range(repeats):
        for i in rng.permutation(len(cases)):
            name, n, device, work = cases[i]
            rows.append((name, n, repeat, 1e3 * timed(work, device)))
    return pd.DataFrame(rows, columns=["model", "n", "repeat", "ms"])


def costs_of(times: pd.DataFrame, overhead: float = 0.0) -> Costs:
    """Medians of `pass_times` as Costs."""
    median = times.groupby(["model", "n"])["ms"].median()
    one = median["target", 1]
    sizes = tuple(int(n) for n in median["target"].index)
    return Costs(
        float(one),
        sizes,
        tuple((median["draft"] / one).tolist()),
        tuple((median["target"] / one).tolist()),
        overhead,
    )


def measured_overhead(decoded: list[Decoded], shape: Shape, costs: Costs) -> float:
    """The loop's own time a block, in target passes: what blocks took beyond the passes they made;
    0 when it drowns in the noise.
    """
    blocks = sum(d.target_passes for d in decoded)
    spent = sum(d.time_s - d.prefill_time_s for d in decoded) * 1e3 / costs.target_ms
    return max(0.0, spent / blocks - (costs.of_block(shape.tree) - costs.overhead))


def plain_time(pair: Pair, prompt: EncodedPrompt, max_new_tokens: int) -> tuple[float, int]:
    """Seconds of plain greedy decoding behind the prefill, and the tokens it gave: the loop of
    `record.generate`, one prompt.
    """
    prefill = timed(
        lambda: pair.target.forward(
            torch.tensor([prompt.ids]), pair.target.cache(len(prompt.ids) + max_new_tokens)
        ),
        pair.target.device,
    )
    texts: list[tuple[int, ...]] = []
    spent = timed(
        lambda: texts.extend(
            generate(pair.target, [prompt], max_new_tokens, pair.stop_ids, Sampling(), 0)
        ),
        pair.target.device,
    )
    return spent - prefill, len(texts[0])


def decoded_speed(
    pair: Pair,
    prompts: list[EncodedPrompt],
    shapes: dict[str, Shape],
    max_new_tokens: int,
    repeats: int = 3,
) -> pd.DataFrame:
    """Tokens per second of plain and speculative greedy decoding on the same prompts, in one run,
    orders swapped.

    Columns: method, repeat, prompt_id, domain, tokens, blocks, time_s (the prefill left out).
    """
    rows, methods = [], ["plain", *shapes]
    for name in methods:
        _run_one(pair, prompts[0], shapes.get(name, PLAIN), min(8, max_new_tokens))  # warm-up
    for repeat in range(repeats):
        for prompt in prompts:
            for name in methods[:: 1 if repeat % 2 == 0 else -1]:
                rows.append(
                    (
                        name,
                        repeat,
                        prompt.prompt_id,
                        prompt.domain,
                        *_run_one(pair, prompt, shapes.get(name, PLAIN), max_new_tokens),
                    )
                )
    return pd.DataFrame(
        rows, columns=["method", "repeat", "prompt_id", "domain", "tokens", "blocks", "time_s"]
    )


def _run_one(
    pair: Pair, prompt: EncodedPrompt, shape: Shape, max_new_tokens: int
) -> tuple[int, int, float]:
    if not shape.size:
        seconds, tokens = plain_time(pair, prompt, max_new_tokens)
        return tokens, tokens, seconds
    found = decode_prompt(pair, prompt, "greedy", shape, Sampling(), max_new_tokens)
    return len(found.token_ids), found.target_passes, found.time_s - found.prefill_time_s


def measure_costs(
    pair: Pair,
    prompts: list[EncodedPrompt],
    sizes: tuple[int, ...] = SIZES,
    context: int = 128,
    repeats: int = 21,
) -> Costs:
    """Costs of this machine and pair, the overhead from decoding `prompts` with a chain of 4."""
    costs, shape = costs_of(pass_times(pair, sizes, context, repeats)), Shape(chain(4))
    decoded = [decode_prompt(pair, p, "greedy", shape, Sampling(), 32) for p in prompts]
    overhead = measured_overhead(decoded, shape, costs)
    return Costs(costs.target_ms, costs.sizes, costs.draft, costs.verify, overhead)


def quartiles(times: pd.DataFrame) -> pd.DataFrame:
    """Median and quartiles of each case of `pass_times`: model, n, ms, low, high."""
    grouped = times.groupby(["model", "n"], sort=True)["ms"].quantile([0.25, 0.5, 0.75]).unstack()
    return grouped.rename(columns={0.25: "low", 0.5: "ms", 0.75: "high"}).reset_index()[
        ["model", "n", "ms", "low", "high"]
    ]


def spread(times: pd.DataFrame) -> float:
    """Largest quartile range of a case, relative to its median: how far to trust the ratios."""
    q = quartiles(times)
    return float(((q["high"] - q["low"]) / q["ms"]).max()) if len(q) else float(np.nan)

"""What passes cost on this machine: c, v(n) and the decoder's own overhead, measured with warm-up,
synchronisation and swapped orders.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import torch

from speclab.cost import Costs, disturbed
from speclab.decode import decode_prompt, prefill
from speclab.draft import NO_DRAFT, Shape
from speclab.models.model import KVCache, LanguageModel, timed
from speclab.models.pairs import Pair
from speclab.prompts import EncodedPrompt
from speclab.sampling import Sampling, check_finite, rank_key
from speclab.stats import RESAMPLES, resampling_of

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
    draft, verify = (tuple((median[model] / one).tolist()) for model in ("draft", "target"))
    return Costs(one, tuple(map(int, median.index)), draft, verify)


def decoded_speed(
    pair: Pair,
    prompts: list[EncodedPrompt],
    shapes: Mapping[str, Shape],
    max_new_tokens: int,
    repeats: int = 3,
) -> pd.DataFrame:
    """Seconds of plain and speculative greedy decoding of the same prompts, in one run, the order
    swapped from prompt to prompt and from repeat to repeat.

    Columns: method, repeat, prompt_id, domain, text (token ids), tokens, blocks, time_s. Every
    method begins behind the same prefill, of the prompt but its last token, and is timed from there
    to the last token of the text: plain decoding makes one pass for each token.
    """
    columns = ["method", "repeat", "prompt_id", "domain", "text", "blocks", "time_s"]
    rows, methods = [], ["plain", *shapes]
    room = max_new_tokens + max(shape.room for shape in shapes.values())
    caches = prefill(pair, prompts[0].ids, room)
    for name in methods:  # warm-up
        few = min(8, max_new_tokens)
        _run_one(pair, prompts[0], shapes.get(name, NO_DRAFT), few, caches)
    for repeat, (number, prompt) in product(range(repeats), enumerate(prompts)):
        caches = prefill(pair, prompt.ids, room)  # the same for all methods
        for name in methods[:: 1 if (repeat + number) % 2 == 0 else -1]:
            shape = shapes.get(name, NO_DRAFT)
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


def drawn_seconds(speeds: pd.DataFrame, n: int = RESAMPLES) -> pd.DataFrame:
    """Seconds of all prompts of `decoded_speed` together, a column for each method: row 0 from the
    medians of each prompt's repeats, then n rows in each of which the prompts are resampled and the
    repeats too.

    Resampled prompts hold the noise of single texts. What the machine does otherwise from one
    repeat of all texts to the next is in none of them, so repeats are drawn as a whole: of r
    repeats r - 1 with replacement, whose medians count. That varies as much as a mean of r does
    (more where the noise is of single texts only). One repeat shows nothing of the clock.
    """
    keys = ["prompt_id", "repeat", "method"]
    wide = speeds.set_index(keys)["time_s"].unstack("method")
    repeats = speeds["repeat"].nunique()
    seconds = wide.to_numpy().reshape(-1, repeats, wide.shape[1])
    prompts = resampling_of(speeds[["prompt_id"]], n)  # in the order of their ids too
    rng = np.random.default_rng(5)
    total = [np.median(seconds, axis=1).sum(axis=0)]
    for weight in prompts.weights[1:]:
        drawn = rng.integers(0, repeats, max(repeats - 1, 1))
        total.append(weight @ np.median(seconds[:, drawn], axis=1))
    return pd.DataFrame(total, columns=wide.columns)


def _run_one(
    pair: Pair, prompt: EncodedPrompt, shape: Shape, new: int, caches: tuple[KVCache, KVCache]
) -> tuple[tuple[int, ...], int, float]:
    """The text, its target passes, and the seconds behind the prefill."""
    if shape.size:
        found = decode_prompt(pair, prompt, "greedy", shape, Sampling(), new, caches=caches)
        return found.token_ids, found.target_passes, found.time_s - found.prefill_time_s
    text: list[int] = []
    target, cache = pair.target, caches[0]
    cache.crop(len(prompt.ids) - 1)

    def plainly() -> None:
        """The shortest loop there is: a baseline is as fast as it can be."""
        last = prompt.ids[-1]
        while len(text) < new and last not in (pair.stop_ids if text else ()):
            hidden = target.forward(torch.tensor([[last]]), cache)
            logits = target.logits(hidden[:, -1])
            check_finite(logits, "target")
            last = int(rank_key(logits).argmax(-1))
            text.append(last)

    seconds = timed(plainly, target.device)
    return tuple(text), len(text), seconds


# ---- the prices of a machine ---------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """The prices of a machine as two rounds of timed passes and the texts decoded between them show
    them: `costs` of both rounds together.

    rounds: `pass_times` of each; blocks: `in_plain_tokens` of the decoded texts; shapes: by method.
    """

    rounds: tuple[pd.DataFrame, pd.DataFrame]
    blocks: pd.DataFrame
    shapes: Mapping[str, Shape]

    @property
    def times(self) -> pd.DataFrame:
        """All timed passes."""
        return pd.concat(self.rounds, ignore_index=True)

    @property
    def costs(self) -> Costs:
        """Medians of both rounds with the loop's own time; `drift`: by how much the price of a
        block of any of the shapes differs between the rounds, or by how much less a decoded block
        took than its passes alone, whichever is more.
        """
        alone = [costs_of(one) for one in self.rounds]
        trees = [shape.tree for shape in self.shapes.values()]
        first, second = (np.array([one.of_block(t) for t in trees]) for one in alone)
        found, least = with_loop(costs_of(self.times), self.blocks, self.shapes)
        change = np.abs(second / first - 1).max()
        return replace(found, drift=float(max(change, -least)))

    def resampled(self, n: int = 100) -> list[Costs]:
        """The prices n times again: one of the two rounds, its repeats drawn with replacement, and
        the decoded prompts too. (Of two rounds one is drawn: so the variance is that of a mean of
        two.)
        """
        rng = np.random.default_rng(3)
        blocks = self.blocks.set_index("prompt_id")
        ids = blocks.index.unique()
        found = []
        for number in rng.integers(0, 2, n):
            by_repeat = self.rounds[number].set_index("repeat")
            repeats = by_repeat.index.unique()
            times = by_repeat.loc[rng.choice(repeats, len(repeats))]
            of_texts = blocks.loc[rng.choice(ids, len(ids))]
            found.append(with_loop(costs_of(times), of_texts, self.shapes)[0])
        return found


def measured(
    pair: Pair,
    prompts: list[EncodedPrompt],
    shapes: Mapping[str, Shape],
    new_tokens: int,
    sizes: tuple[int, ...] = SIZES,
    context: int = 128,
    repeats: int = 21,
    tries: int = 1,
) -> Measured:
    """The prices of this machine: passes are timed, `prompts` decoded with `shapes` for the loop's
    own time, and passes timed once more. While the clock is disturbed (`cost.disturbed`) up to
    `tries` - 1 further rounds follow, and the last two count.

    This looks at the clock only, never at what the prices lead to.
    """
    timed_once = partial(pass_times, pair, sizes, context, repeats)
    before = timed_once()
    speeds = decoded_speed(pair, prompts, shapes, new_tokens, repeats=1)
    for _ in range(tries):
        after = timed_once()
        found = Measured((before, after), in_plain_tokens(speeds), shapes)
        if not disturbed(found.costs):
            break
        before = after
    return found


def in_plain_tokens(speeds: pd.DataFrame) -> pd.DataFrame:
    """What a block took in each text of `decoded_speed`, in plain tokens of the same text: method,
    prompt_id, block.
    """
    each = medians(speeds).query("method != 'plain'")
    token_s = each["plain_s"] / each["tokens"]
    block_s = each["time_s"] / each["blocks"]
    return each[["method", "prompt_id"]].assign(block=block_s / token_s)


def with_loop(
    costs: Costs, blocks: pd.DataFrame, shapes: Mapping[str, Shape]
) -> tuple[Costs, float]:
    """c and v of `costs` with the loop's own time, from `in_plain_tokens` of texts decoded with
    `shapes`: what a block took beyond its passes, the median over texts and shapes, chains and
    trees apart. Also the lesser of the two medians, which may be below 0, where the loop is 0.

    So the price of a block is relative to what plain decoding takes, its own loop included. A kind
    of shape that was not decoded has no loop.
    """
    bare = replace(costs, overhead=0.0, tree_overhead=None)
    passes = {name: bare.of_block(shape.tree) for name, shape in shapes.items()}
    is_chain = {name: shape.tree.is_chain for name, shape in shapes.items()}
    beyond = blocks["block"] - blocks["method"].map(passes)
    loops = beyond.groupby(blocks["method"].map(is_chain)).median()
    chain, branched = loops.clip(lower=0.0).reindex([True, False], fill_value=0.0)
    return replace(costs, overhead=chain, tree_overhead=branched), float(loops.min())


def quartiles(times: pd.DataFrame) -> pd.DataFrame:
    """Median and quartiles of each case of `pass_times`: model, n, ms, low, high."""
    found = times.groupby(["model", "n"])["ms"].quantile([0.5, 0.25, 0.75]).unstack()
    return found.set_axis(["ms", "low", "high"], axis=1).reset_index()

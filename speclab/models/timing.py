"""What passes cost on this machine: c, v(n) and the decoder's own overhead, measured with warm-up,
synchronisation and swapped orders.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from speclab.cost import Costs, disturbed
from speclab.decode import decode_prompt, prefill
from speclab.model import KVCache, LanguageModel, Pair, over_trunk, wait_for
from speclab.plain import EncodedPrompt
from speclab.sampling import Sampling, check_finite, rank_key
from speclab.shapes import NO_DRAFT, Shape
from speclab.stats import bounds_of, resampling_of

GREEDY, PLAIN = Sampling(), "plain"
SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 48, 64)


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that `work` takes, with the device's queue empty before and after."""
    wait_for(device)
    began = time.perf_counter()
    work()
    wait_for(device)
    return time.perf_counter() - began


def _pass(model: LanguageModel, cache: KVCache, tokens: Tensor) -> None:
    """A pass over tokens [n] after the cached ones, with all their logits: each after the one
    before, and for a head each after the cached ones, as it drafts a level of a tree.
    """
    context = cache.length
    visible = None
    if model.by_start:
        visible = over_trunk(context, torch.eye(len(tokens), dtype=torch.bool))
    hidden = model.forward(tokens[None], cache, visible=visible)
    model.logits(hidden)
    cache.crop(context)


def pass_times(
    pair: Pair, sizes: tuple[int, ...] = SIZES, context: int = 128, repeats: int = 21
) -> pd.DataFrame:
    """Milliseconds of passes of both models, one row per case and repeat: model, n, repeat, ms.

    Every repeat runs all cases in a new random order: in a fixed order a case would always meet the
    same cold or warm cache.
    """
    # a text of tokens in a row, and the passes over it
    longest = max(sizes)
    count = max(context + 1, longest)
    tokens = torch.arange(5, 5 + count) % pair.vocab
    text = tokens[: context + 1].tolist()
    caches = prefill(pair, tuple(text), longest)
    models = zip(("target", "draft"), (pair.target, pair.draft), caches, strict=True)
    cases = [
        (name, n, model.device, partial(_pass, model, cache, tokens[:n]))
        for name, model, cache in models
        for n in sizes
    ]
    for *_, work in cases:  # warm-up
        work(), work()
    rows = []
    rng = np.random.default_rng(0)
    for repeat in range(repeats):
        for i in rng.permutation(len(cases)):
            name, n, device, work = cases[i]
            rows.append((name, n, repeat, 1e3 * timed(work, device)))
    return pd.DataFrame(rows, columns=["model", "n", "repeat", "ms"])


def costs_of(times: pd.DataFrame) -> Costs:
    """Medians of `pass_times` as Costs."""
    median = times.groupby(["n", "model"])["ms"].median().unstack()
    one = float(median["target"].iloc[0])
    ratios = median / one
    return Costs(one, tuple(median.index), tuple(ratios["draft"]), tuple(ratios["target"]))


def decoded_speed(
    pair: Pair,
    prompts: Sequence[EncodedPrompt],
    shapes: Mapping[str, Shape],
    max_new_tokens: int,
    repeats: int,
) -> pd.DataFrame:
    """Every prompt decoded greedily with every shape and plainly (the method "plain"), after a
    warm-up: a row per repeat, prompt and method, the order of the methods swapped from prompt to
    prompt and from repeat to repeat.

    Columns: method, repeat, prompt_id, domain, text (token ids), tokens, blocks, time_s.
    Every method begins after the same prefill, of the prompt but its last token, and is
    timed from there to the last token of the text.
    """
    rows = []
    methods = {PLAIN: NO_DRAFT} | dict(shapes)
    room = max_new_tokens + max(shape.room for shape in methods.values())
    turns = product(range(-1, repeats), enumerate(prompts))  # repeat -1 warms up
    for repeat, (number, prompt) in turns:
        if repeat < 0 < number:
            continue
        new = max_new_tokens if repeat >= 0 else min(8, max_new_tokens)
        caches = prefill(pair, prompt.ids, room)  # the same for all methods
        order = [*methods]
        if (repeat + number) % 2:
            order.reverse()
        for method in order:
            if method == PLAIN:
                text, seconds = _plain_text(pair, prompt, new, caches[0])
                blocks = len(text)
            else:
                how = "greedy", methods[method], GREEDY, new, 0, caches
                made = decode_prompt(pair, prompt, *how)
                text, blocks = made.token_ids, made.target_passes
                seconds = made.time_s - made.prefill_time_s
            row = {
                "method": method,
                "repeat": repeat,
                "prompt_id": prompt.prompt_id,
                "domain": prompt.domain,
                "text": text,
                "tokens": len(text),
                "blocks": blocks,
                "time_s": seconds,
            }
            rows.append(row)
    return pd.DataFrame(rows).query("repeat >= 0").reset_index(drop=True)


def _plain_text(
    pair: Pair, prompt: EncodedPrompt, new: int, cache: KVCache
) -> tuple[tuple[int, ...], float]:
    """A text of plain decoding and its seconds, in the shortest loop there is, so that the baseline
    is fast.
    """
    text: list[int] = []
    target = pair.target
    cache.crop(len(prompt.ids) - 1)

    def plainly() -> None:
        last = prompt.ids[-1]
        while len(text) < new and last not in (pair.stop_ids if text else ()):
            hidden = target.forward(torch.tensor([[last]]), cache)
            logits = target.logits(hidden[:, -1])
            check_finite(logits, "target")
            last = int(rank_key(logits).argmax(-1))
            text.append(last)

    seconds = timed(plainly, target.device)
    return tuple(text), seconds


def medians(speeds: pd.DataFrame) -> pd.DataFrame:
    """Medians over the repeats of `decoded_speed`, one row per method and prompt: method,
    prompt_id, domain, tokens, blocks, time_s, and the time of plain decoding (plain_s).
    """
    keys = ["method", "prompt_id", "domain"]
    groups = speeds.groupby(keys, sort=False, as_index=False)
    each = groups[["tokens", "blocks", "time_s"]].median()
    plain = each[each["method"] == PLAIN].set_index("prompt_id")["time_s"]
    return each.assign(plain_s=each["prompt_id"].map(plain))


def drawn_seconds(speeds: pd.DataFrame) -> pd.DataFrame:
    """Seconds of all prompts of `decoded_speed` together, a column for each method: row 0 from the
    medians of each prompt's repeats, then RESAMPLES rows in each of which the prompts are resampled
    and the repeats too.

    Resampled prompts cover the timing noise of single texts. They do not cover what changes on the
    machine from one repeat of all texts to the next, so whole repeats are drawn too: of r repeats
    r - 1 with replacement, whose medians count. Their variance is that of a mean of r repeats (more
    where the noise is of single texts only). One repeat says nothing about the machine.
    """
    keys = ["prompt_id", "repeat", "method"]
    wide = speeds.set_index(keys)["time_s"].unstack("method")
    repeats = speeds["repeat"].nunique()
    seconds = wide.to_numpy().reshape(-1, repeats, wide.shape[1])
    prompts = resampling_of(speeds[["prompt_id"]])  # in the order of their ids too
    rng = np.random.default_rng(5)
    total = [np.median(seconds, axis=1).sum(axis=0)]
    for weight in prompts.weights[1:]:
        drawn = rng.integers(0, repeats, max(repeats - 1, 1))
        of_prompts = np.median(seconds[:, drawn], axis=1)
        total.append(weight @ of_prompts)
    return pd.DataFrame(total, columns=wide.columns)


def intervals(draws: pd.DataFrame, key: str, n_prompts: int) -> pd.DataFrame:
    """The columns of `drawn_seconds`, or what was made of them (row 0 the sample, then resamples):
    `key`, estimate, low and high, intervals over this many prompts.
    """
    low, high = bounds_of(draws.to_numpy()[1:], n_prompts)
    numbers = {"estimate": draws.iloc[0].to_numpy(), "low": low, "high": high}
    return pd.DataFrame({key: list(draws)} | numbers)


# ---- the costs of a machine ----------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """The costs of a machine, from two or more rounds of timed passes and the texts that were
    decoded between the rounds: `costs` are those of all rounds together.

    rounds: `pass_times` of each; blocks: `scale_to_plain` of the decoded texts; shapes: by method.
    """

    rounds: tuple[pd.DataFrame, ...]
    blocks: pd.DataFrame
    shapes: Mapping[str, Shape]

    @property
    def times(self) -> pd.DataFrame:
        """All timed passes."""
        return pd.concat(self.rounds, ignore_index=True)

    @property
    def costs(self) -> Costs:
        """Medians of all rounds with the loop's own time; `drift`: by how much the cost of a block
        of any of the shapes differs from that of the first round, or by how much less a decoded
        block took than its passes alone, whichever is more.
        """
        first, *later = (bare_costs(costs_of(times), self.shapes) for times in self.rounds)
        costs, least = add_loop(costs_of(self.times), self.blocks, self.shapes)
        changes = [(each / first - 1).abs().max() for each in later]
        drift = max(*changes, -least)
        return replace(costs, drift=float(drift))

    @property
    def by_round(self) -> tuple[Costs, ...]:
        """The costs of each round by itself, with the loop's own time."""
        each = (add_loop(costs_of(times), self.blocks, self.shapes) for times in self.rounds)
        return tuple(costs for costs, _ in each)


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
    """The costs of this machine: passes are timed, `prompts` decoded with `shapes` for the loop's
    own time, and passes timed once more. While timing is unreliable (`cost.disturbed`) up to
    `tries` - 1 further rounds follow, and the last two count.

    This looks at the timing only, never at what the costs lead to.
    """
    timed_once = partial(pass_times, pair, sizes, context, repeats)
    before = timed_once()
    speeds = decoded_speed(pair, prompts, shapes, new_tokens, repeats=1)
    for _ in range(tries):
        after = timed_once()
        rounds = Measured((before, after), scale_to_plain(speeds), shapes)
        if not disturbed(rounds.costs):
            break
        before = after
    return rounds


def scale_to_plain(speeds: pd.DataFrame) -> pd.DataFrame:
    """Time per block in each text of `decoded_speed`, in units of the time per token of plain
    decoding of the same text: method, prompt_id, block.
    """
    each = medians(speeds).query("method != 'plain'")
    token_s = each["plain_s"] / each["tokens"]
    block_s = each["time_s"] / each["blocks"]
    return each[["method", "prompt_id"]].assign(block=block_s / token_s)


def add_loop(
    costs: Costs, blocks: pd.DataFrame, shapes: Mapping[str, Shape]
) -> tuple[Costs, float]:
    """c and v of `costs` with the loop's own time, from `scale_to_plain` of texts decoded with
    `shapes`: what a block took beyond its passes, as the median over texts and shapes, for chains
    and for trees. Also the lesser of the two medians; where it is below 0, the loop's time is 0.

    So the cost of a block is relative to plain decoding with its own loop. A kind of shape that was
    not decoded has a loop time of 0.
    """
    is_chain = {name: shape.is_chain for name, shape in shapes.items()}
    beyond = blocks["block"] - blocks["method"].map(bare_costs(costs, shapes))
    loops = beyond.groupby(blocks["method"].map(is_chain)).median()
    chain, branched = loops.clip(lower=0.0).reindex([True, False], fill_value=0.0)
    return replace(costs, overhead=chain, tree_overhead=branched), float(loops.min())


def bare_costs(costs: Costs, shapes: Mapping[str, Shape]) -> pd.Series:
    """The cost of the passes of a block of each static shape, without the loop."""
    bare = replace(costs, overhead=0.0, tree_overhead=None)
    return pd.Series({name: bare.of_block(shape.tree) for name, shape in shapes.items()})

"""`make bench`: speed on this machine, measured in one run and printed as ratios.

1. The recorder against the literal procedure, nodes per second; the literal procedure is timed on
   steps spread over a text.
2. Decoding: plain, transformers' assisted, own chain and own tree on the same prompts, spread over
   those behind the first eight (which are easier), orders swapped from repeat to repeat. Ratios are
   medians over prompts of per-prompt ratios to plain greedy decoding by our own loop, with whose
   text all others are compared. Two pairs: tiny, and smollm, where its weights are.
3. What a target pass over one token and the recorder reach of this machine's limits: a read of all
   weights that the pass uses, on one thread and on two; floating-point operations a second of a
   square product.

All of it goes into build/bench.json, from which tables of README.md are written.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import literal
import pandas as pd
import torch
from toy import plain, record_block

from speclab.cost import disturbed
from speclab.decode import decode_prompt
from speclab.models import timing
from speclab.models.folder import ModelsMissing
from speclab.models.model import Projection
from speclab.models.pairs import Pair, load_pair
from speclab.profiles import ROOT, load_profile
from speclab.prompts import EncodedPrompt, decoded_prompts, encode_prompts, load_prompts
from speclab.record import generate, record_prompt
from speclab.sampling import Sampling
from speclab.shapes import Shape, parse_shape
from speclab.show.notebook import quiet
from speclab.tree import chain, static_tree

GREEDY = Sampling()
TREE = (3, 2, 8)  # depth, branches, budget: the paper's
PROMPTS = list[EncodedPrompt]

# ---- the recorder and the literal procedure ------------------------------------------------------

CASES = ((64, 64), (64, 512), (256, 64), (256, 512))  # new tokens, prompt tokens
BLOCK = 10  # prompts the recorder takes at once, as in a run
STEPS = 16  # of a text, that the literal procedure is timed on


def prompts_of_length(pair, length, count):
    """Prompts of exactly `length` tokens, cut from the project's own."""
    texts = [pair.tokenizer(prompt.text) for prompt in load_prompts("project", 50)]
    tokens = [token for text in texts for token in text["input_ids"][1:]]
    found = []
    for i in range(count):
        part = tokens[i * 600 : i * 600 + length - 1]
        ids = (pair.tokenizer.bos_token_id, *part)
        found.append(EncodedPrompt(f"bench-{i}", "code", ids, 0))
    return found


def recorder_speed(pair, new, length):
    """Node records a second."""
    prompts = prompts_of_length(pair, length, BLOCK)
    given = static_tree(*TREE), GREEDY, new, 0, 2048
    record_block(pair, prompts[:1], *given)
    began = time.perf_counter()
    found = record_block(pair, prompts, *given)
    seconds = time.perf_counter() - began
    return sum(len(one.nodes["node"]) for one in found) / seconds


def literal_speed(pair, new, length):
    """The same of the literal procedure, on STEPS steps of a text."""
    (prompt,) = prompts_of_length(pair, length, 1)
    text = plain(pair, prompt, new)
    stride = new // STEPS

    def nodes_at(step):
        context = prompt.ids + text[:step]
        rows, _ = literal.measure(pair.target, pair.draft, context, 1, frozenset(), *TREE)
        return len(rows)

    nodes_at(0)
    began = time.perf_counter()
    nodes = sum(nodes_at(step) for step in range(stride // 2, new, stride))
    return nodes / (time.perf_counter() - began)


def recorder_rows(pair):
    """All cases: nodes per second of both, and their ratio."""
    rows = [
        (new, length, literal_speed(pair, new, length), recorder_speed(pair, new, length))
        for new, length in CASES
    ]
    columns = ["new_tokens", "prompt_tokens", "literal_nodes_per_s", "recorder_nodes_per_s"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(ratio=table["recorder_nodes_per_s"] / table["literal_nodes_per_s"])


# ---- decoding -----------------------------------------------------------------------------------

GAMMA, LONGEST = 4, 3  # draft tokens; longest n-gram that prompt lookup looks for
BOTH = f"chain:{GAMMA}+lookup:2"  # copies where two tokens match, else drafts
PLAIN = "own plain greedy"


@dataclass(frozen=True)
class Made:
    """A text: its tokens, the target passes it took where they are known, and its seconds, prefill
    included (so that all methods are alike).
    """

    ids: tuple[int, ...]
    blocks: int | None
    time_s: float


Method = Callable[[Pair, EncodedPrompt, int], Made]


def of_library(pair, prompt, new, **settings):
    """transformers' greedy generation: no sampling defaults, no stop token, and no padding: an
    assistant leaves out what looks like it (of tiny, <s>).
    """
    ids, began = torch.tensor([prompt.ids]), time.perf_counter()
    out = pair.target.network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new,
        do_sample=False,
        eos_token_id=None,
        use_cache=True,
        **settings,
    )
    seconds = time.perf_counter() - began
    return Made(tuple(out[0, ids.shape[1] :].tolist()), None, seconds)


def assisted(gamma):
    """transformers' assisted generation at a constant gamma."""

    def method(pair, prompt, new):
        config = pair.draft.network.generation_config
        config.num_assistant_tokens = gamma
        config.num_assistant_tokens_schedule = "constant"
        config.assistant_confidence_threshold = 0.0
        return of_library(pair, prompt, new, assistant_model=pair.draft.network)

    return method


def library_lookup(gamma):
    """transformers' prompt lookup."""
    settings = {"prompt_lookup_num_tokens": gamma, "max_matching_ngram_size": LONGEST}
    return lambda pair, prompt, new: of_library(pair, prompt, new, **settings)


def own_plain(pair, prompt, new):
    """The kit's plain greedy loop."""
    began = time.perf_counter()
    text = plain(pair, prompt, new)
    return Made(text, len(text), time.perf_counter() - began)


def own(shape):
    """The kit's decoder."""

    def method(pair, prompt, new):
        found = decode_prompt(pair, prompt, "greedy", shape, GREEDY, new)
        return Made(found.token_ids, found.target_passes, found.time_s)

    return method


def methods_at(gamma):
    """What is compared on every pair."""
    return {
        PLAIN: own_plain,
        "transformers greedy": of_library,
        f"transformers assisted:{gamma}": assisted(gamma),
        f"own chain:{gamma}": own(Shape(chain(gamma))),
        "own tree:3,2,8": own(Shape(static_tree(*TREE))),
    }


LOOKUPS = {
    "transformers prompt lookup:4": library_lookup(4),
    "own lookup:2": own(parse_shape("lookup:2")),
    f"own {BOTH}": own(parse_shape(BOTH)),
}


@dataclass(frozen=True)
class Case:
    """A pair, what is compared on it, prompts a domain, repeats, new tokens, and their template."""

    name: str
    pair: Pair
    methods: dict[str, Method]
    per_domain: int
    repeats: int
    new: int = 64
    template: str = "none"

    def encoded(self):
        """The prompts that are decoded."""
        prompts = decoded_prompts(load_prompts("project", 50), self.per_domain, first=8)
        return encode_prompts(self.pair.tokenizer, prompts, 256, self.template)


def cases():
    """The pairs, without stop tokens; the real one is left out where its weights are not there."""
    yield Case("tiny", endless("tiny"), methods_at(GAMMA), 2, 3)
    try:
        real = endless("smollm")
    except ModelsMissing as error:
        print(f"\nsmollm is left out: {error}")
        return
    methods = methods_at(2) | methods_at(GAMMA) | LOOKUPS
    template = load_profile("smollm").template
    yield Case("smollm", real, methods, 1, 2, 48, template)


def endless(profile):
    """The pair of a profile on the CPU, without stop tokens."""
    pair = load_pair(load_profile(profile, {"device": "cpu"}))
    return dataclasses.replace(pair, stop_ids=frozenset())


# ---- decoding: measured and predicted ------------------------------------------------------------


def measure(pair, prompts, methods, new, repeats):
    """One row a method, prompt and repeat: tokens, blocks, seconds, and whether the text is that
    of the kit's plain loop.
    """
    for work in methods.values():
        work(pair, prompts[0], min(new, 8))
    rows, texts = [], {p.prompt_id: own_plain(pair, p, new).ids for p in prompts}
    for repeat in range(repeats):
        for prompt in prompts:
            for name in list(methods)[:: 1 if repeat % 2 == 0 else -1]:
                made = methods[name](pair, prompt, new)
                same = made.ids == texts[prompt.prompt_id]
                row = (name, prompt.prompt_id, repeat, len(made.ids), made.blocks)
                rows.append((*row, made.time_s, same))
    columns = ["method", "prompt_id", "repeat", "tokens", "blocks", "time_s", "same"]
    return pd.DataFrame(rows, columns=columns)


def summary(costs, found):
    """One row a method: tokens per second, ratio to plain and, of the kit's chains, to the
    library's assisted generation, share of texts equal to plain, block efficiency, and of static
    shapes the share reached of the ratio that passes alone predict.
    """
    found = found.assign(rate=found.tokens / found.time_s)
    rate = found.groupby(["method", "prompt_id"], sort=False).rate.median().unstack(0)
    table = pd.DataFrame(
        {
            "tokens_per_s": rate.median(),
            "ratio_to_plain": rate.div(rate[PLAIN], axis=0).median(),
            "same_text": found.groupby("method").same.mean(),
        }
    )
    for name, rows in found[found.method.str.startswith("own ")].groupby("method"):
        shape = name.removeprefix("own ")
        library = name.replace("own chain", "transformers assisted")
        if library in rate and library != name:
            ratio = (rate[name] / rate[library]).median()
            table.loc[name, "ratio_to_assisted"] = ratio
        if name == PLAIN:
            continue
        efficiency = rows.tokens.sum() / rows.blocks.sum()
        table.loc[name, "block_efficiency"] = efficiency
        if shape.startswith(("chain", "tree")) and shape != BOTH:
            passes = costs.of_block(parse_shape(shape).tree) - costs.overhead
            reached = table.loc[name, "ratio_to_plain"] * passes / efficiency
            table.loc[name, "share_reached"] = reached
    return table.loc[list(dict.fromkeys(found.method))]


# ---- the machine's limits ------------------------------------------------------------------------

SQUARE, CONTEXT = 1024, 128  # side of the square product; tokens in the cache
THREADS = (1, 2)


def seconds_of(work, repeats):
    """Median seconds of a call, after one that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)


@contextlib.contextmanager
def used():
    """(rows, weight) of each product of the kit's projections in a block; attention is left out."""
    found, honest = [], Projection.__call__

    def call(self, x):
        found.append((x.numel() // x.shape[-1], self.weight))
        return honest(self, x)

    Projection.__call__ = call
    try:
        yield found
    finally:
        Projection.__call__ = honest


def token_share(pair, threads):
    """A target pass over one token beside a read of all weights that it uses, on so many threads:
    share = seconds of the read over those of the pass.
    """
    model, ids = pair.target, torch.arange(5, 6 + CONTEXT)[None] % pair.vocab
    cache = model.cache(CONTEXT + 1)
    model.forward(ids[:, :-1], cache)

    def work():
        model.logits(model.forward(ids[:, -1:], cache))
        cache.crop(CONTEXT)

    with used() as products:
        work()
    weights = [weight for _, weight in products]
    torch.set_num_threads(threads)
    read_s = seconds_of(lambda: [weight.sum() for weight in weights], 9)
    pass_s = seconds_of(work, 9)
    torch.set_num_threads(max(THREADS))
    row = {"what": "one token", "threads": threads, "share": read_s / pass_s}
    return row | {"read_ms": 1e3 * read_s, "pass_ms": 1e3 * pass_s}


def recorder_share(pair, prompts, new):
    """The recorder over given texts of `new` tokens: its operations a second over those of a square
    product, measured before and after it.
    """
    texts = generate(pair.target, prompts, new, frozenset(), GREEDY, 0)
    tree, square = static_tree(*TREE), torch.ones(SQUARE, SQUARE)

    def work():
        for prompt, text in zip(prompts, texts, strict=True):
            record_prompt(pair, prompt, text, tree, GREEDY)

    with used() as products:
        work()
    done = sum(2 * rows * weight.numel() for rows, weight in products)
    before = seconds_of(lambda: square @ square, 27)
    spent = seconds_of(work, 9)
    after = seconds_of(lambda: square @ square, 27)
    limit = 2 * SQUARE**3 / ((before + after) / 2)
    row = {"what": "recorder", "threads": torch.get_num_threads()}
    return row | {"share": done / spent / limit}


# what the kit wants to reach, by what is measured and pair
BARS = {
    f"own chain:{GAMMA} over assisted:{GAMMA}": {"tiny": 1.6, "smollm": 1.3},
    f"own chain:{GAMMA} over own plain": {"tiny": 1.0, "smollm": 1.0},
    "one token, 2 threads, share of a read": {"smollm": 0.5},
    "recorder, share of operations": {"smollm": 0.5},
    "loop, target passes a block": {"tiny": 0.2},
}
AT_MOST = ("loop, target passes a block",)


def bars(found):
    """What was found beside what the kit wants to reach: pair, what, measured, bar, is_reached."""
    rows = []
    for pair, methods in found["decoder"].items():
        chains = {row["method"]: row for row in methods}[f"own chain:{GAMMA}"]
        shares = {(r["what"], r["threads"]): r["share"] for r in found["limits"][pair]}
        there = (
            chains["ratio_to_assisted"],
            chains["ratio_to_plain"],
            shares["one token", 2],
            shares["recorder", 2],
            found["overhead"][pair],
        )
        for (what, wanted), measured in zip(BARS.items(), there, strict=True):
            rows.append((pair, what, measured, wanted.get(pair)))
    table = pd.DataFrame(rows, columns=["pair", "what", "measured", "bar"]).dropna()
    over, most = table["measured"] - table["bar"], table["what"].isin(AT_MOST)
    return table.assign(is_reached=over.where(~most, -over) >= 0)


# ---- all of it -----------------------------------------------------------------------------------


def show(table):
    """Print a table; its rows for JSON (what is not defined is null, not NaN)."""
    print(table.to_string(float_format="%.2f", na_rep="", index=False), flush=True)
    return json.loads(table.to_json(orient="records"))


def decoding():
    """By pair: `decoder`, `limits` (rows), `overhead` (the loop's own time in target passes)."""
    found: dict[str, dict] = {"decoder": {}, "limits": {}, "overhead": {}}
    for case in cases():
        pair, prompts = case.pair, case.encoded()
        print(
            f"\ndecoding, {case.name}: greedy, {case.new} new tokens, {len(prompts)} prompts, CPU "
            f"float32, {torch.get_num_threads()} threads"
        )
        made = measure(pair, prompts, case.methods, case.new, case.repeats)
        four, sizes = {"chain:4": Shape(chain(4))}, (1, 2, 3, 4, 5, 8, 9)
        costs = timing.measured(pair, prompts[:4], four, 32, sizes).costs
        shares = [token_share(pair, threads) for threads in THREADS]
        shares.append(recorder_share(pair, prompts, case.new))
        table = summary(costs, made).reset_index(names="method")
        found["decoder"][case.name] = show(table)
        found["limits"][case.name] = show(pd.DataFrame(shares))
        found["overhead"][case.name] = costs.overhead
        passes = ", ".join(f"v({n}) = {costs.v(n):.2f}" for n in (3, 5, 9))
        print(f"c = {costs.c():.3f}, {passes}, o = {costs.overhead:.2f}", flush=True)
        if refused := disturbed(costs):
            print(refused)
    return found


def main():
    """Everything, into build/bench.json."""
    quiet()
    torch.set_num_threads(2)
    print("recorder and literal procedure, tiny, CPU float32, 2 threads")
    found: dict[str, Any] = {"recorder": show(recorder_rows(endless("tiny")))}
    found |= decoding()
    print()
    found["bars"] = show(bars(found))
    place = ROOT / "build" / "bench.json"
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""`make bench`: measure speed on this machine in one run and print it as ratios.

1. The recorder against the literal procedure, in nodes per second. The literal procedure is timed
   on steps spread over a text.
2. Decoding: plain, transformers' assisted generation, our chain and our tree on the same prompts.
   The prompts are spread over all but the first eight (which are easier). The order of methods is
   reversed in every other repeat. Ratios are medians over prompts of per-prompt ratios to our own
   plain greedy loop, with whose text all other texts are compared. Two pairs: tiny, and smollm if
   its weights are present.
3. How close a target pass over one token and the recorder come to this machine's limits. The
   limits are a read of all weights that the pass uses, on one thread and on two, and the
   floating-point operations per second of a square matrix product.
4. Reading a large log (`log_bench`): seconds and peak memory, with their goals.

All results are written to build/bench.json, from which the tables of
tests/tools/README.md are made.
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
import log_bench
import pandas as pd
import torch
from toy import plain, record_block

from speclab.cost import disturbed
from speclab.decode import decode_prompt
from speclab.model import Pair
from speclab.models import timing
from speclab.models.hub import ModelsMissing
from speclab.models.model import Projection
from speclab.plain import EncodedPrompt
from speclab.record import generate, record_prompts
from speclab.sampling import Sampling
from speclab.shapes import Shape, parse_shape
from speclab.show.notebook import quiet
from speclab.study.pairs import load_pair
from speclab.study.profiles import ROOT, load_profile
from speclab.study.prompts import decoded_prompts, encode_prompts, load_prompts
from speclab.tree import chain, static_tree

GREEDY = Sampling()
TREE = (3, 2, 8)  # depth, branches, budget: the paper's
PROMPTS = list[EncodedPrompt]

# ---- the recorder and the literal procedure ------------------------------------------------------

CASES = ((64, 64), (64, 512), (256, 64), (256, 512))  # new tokens, prompt tokens
BLOCK = 10  # prompts that the recorder takes at once, as in a run
STEPS = 16  # steps of a text on which the literal procedure is timed


def prompts_of_length(pair, length, count):
    """Prompts of exactly `length` tokens, cut from the kit's own prompts."""
    texts = [pair.tokenizer(prompt.text) for prompt in load_prompts("project", 50)]
    tokens = [token for text in texts for token in text["input_ids"][1:]]
    found = []
    for i in range(count):
        part = tokens[i * 600 : i * 600 + length - 1]
        ids = (pair.tokenizer.bos_token_id, *part)
        found.append(EncodedPrompt(f"bench-{i}", "code", ids, 0))
    return found


def recorder_speed(pair, new, length):
    """Node records per second of the recorder."""
    prompts = prompts_of_length(pair, length, BLOCK)
    given = static_tree(*TREE), GREEDY, new, 0, 2048
    record_block(pair, prompts[:1], *given)
    began = time.perf_counter()
    found = record_block(pair, prompts, *given)
    seconds = time.perf_counter() - began
    return sum(len(one.nodes["node"]) for one in found) / seconds


def literal_speed(pair, new, length):
    """Node records per second of the literal procedure, on STEPS steps of a text."""
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
    """For all cases, nodes per second of both and their ratio."""
    rows = [
        (new, length, literal_speed(pair, new, length), recorder_speed(pair, new, length))
        for new, length in CASES
    ]
    columns = ["new_tokens", "prompt_tokens", "literal_nodes_per_s", "recorder_nodes_per_s"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(ratio=table["recorder_nodes_per_s"] / table["literal_nodes_per_s"])


# ---- decoding -----------------------------------------------------------------------------------

GAMMA, LONGEST = 4, 3  # draft tokens; longest n-gram of prompt lookup
BOTH = f"chain:{GAMMA}+lookup:2"  # copies if two tokens match, else drafts
PLAIN = "own plain greedy"


@dataclass(frozen=True)
class Made:
    """A decoded text: its tokens, its target passes if known, and its seconds, prefill included so
    that all methods are comparable.
    """

    ids: tuple[int, ...]
    blocks: int | None
    time_s: float


Method = Callable[[Pair, EncodedPrompt, int], Made]


def of_library(pair, prompt, new, **settings):
    """transformers' greedy generation, without sampling defaults, stop token or padding. (An
    assistant drops tokens that look like padding, such as <s> of tiny.)
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
    """transformers' assisted generation with a constant gamma."""

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
    """The kit's decoder with a shape."""

    def method(pair, prompt, new):
        found = decode_prompt(pair, prompt, "greedy", shape, GREEDY, new)
        return Made(found.token_ids, found.target_passes, found.time_s)

    return method


def methods_at(gamma):
    """The methods compared on every pair."""
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
    """A pair, its methods, prompts per domain, repeats, new tokens, and the prompts' template."""

    name: str
    pair: Pair
    methods: dict[str, Method]
    per_domain: int
    repeats: int
    new: int = 64
    template: str = "none"

    def encoded(self):
        """The prompts to decode."""
        prompts = decoded_prompts(load_prompts("project", 50), self.per_domain, first=8)
        return encode_prompts(self.pair.tokenizer, prompts, 256, self.template)


def cases():
    """The pairs, without stop tokens. smollm is skipped if its weights are missing."""
    yield Case("tiny", endless("tiny"), methods_at(GAMMA), 2, 3)
    try:
        real = endless("smollm")
    except ModelsMissing as error:
        print(f"\nsmollm is skipped: {error}")
        return
    methods = methods_at(2) | methods_at(GAMMA) | LOOKUPS
    template = load_profile("smollm").template
    yield Case("smollm", real, methods, 1, 2, 48, template)


def endless(profile, **changes):
    """The pair of a profile on the CPU, without stop tokens."""
    pair = load_pair(load_profile(profile, {"device": "cpu"} | changes))
    return dataclasses.replace(pair, stop_ids=frozenset())


# ---- decoding: measured and predicted ------------------------------------------------------------


def measure(pair, prompts, methods, new, repeats):
    """One row per method, prompt and repeat: tokens, blocks, seconds, and whether the text equals
    that of the kit's plain loop.
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
    """One row per method: tokens per second, ratio to plain, share of texts equal to plain, and
    block efficiency. The kit's chains also have the ratio to transformers' assisted generation.
    Static shapes also have the measured ratio as a share of the ratio that passes alone predict.
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
    """Median seconds of a call, after one uncounted call."""
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)


@contextlib.contextmanager
def used():
    """(rows, weight) of each product of the kit's projections inside the context; attention is not
    counted.
    """
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
    """A target pass over one token compared with a read of all weights that it uses, on this number
    of threads. share: seconds of the read divided by seconds of the pass.
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
    """The recorder over given texts of `new` tokens: its operations per second divided by those of
    a square matrix product, which is timed before and after it.
    """
    texts = generate(pair.target, prompts, new, frozenset(), GREEDY, 0)
    tree, square = static_tree(*TREE), torch.ones(SQUARE, SQUARE)

    def work():
        for prompt, text in zip(prompts, texts, strict=True):
            record_prompts(pair, [prompt], [text], tree, GREEDY)

    with used() as products:
        work()
    done = sum(2 * rows * weight.numel() for rows, weight in products)
    before = seconds_of(lambda: square @ square, 27)
    spent = seconds_of(work, 9)
    after = seconds_of(lambda: square @ square, 27)
    limit = 2 * SQUARE**3 / ((before + after) / 2)
    row = {"what": "recorder", "threads": torch.get_num_threads()}
    return row | {"share": done / spent / limit}


# goals, by quantity and pair
BARS = {
    f"own chain:{GAMMA} over assisted:{GAMMA}": {"tiny": 1.6, "smollm": 1.3},
    f"own chain:{GAMMA} over own plain": {"tiny": 1.0, "smollm": 1.0},
    "one token, 2 threads, share of a read": {"smollm": 0.5},
    "recorder, share of operations": {"smollm": 0.5},
    "loop, target passes per block": {"tiny": 0.2},
}
AT_MOST = ("loop, target passes per block",)


def bars(found):
    """Measured values and goals: pair, what, measured, bar, is_reached."""
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


# ---- all benchmarks ------------------------------------------------------------------------------


def show(table):
    """Print a table, and return its rows for JSON (undefined values are null, not NaN)."""
    print(table.to_string(float_format="%.2f", na_rep="", index=False), flush=True)
    return json.loads(table.to_json(orient="records"))


def decoding():
    """By pair: `decoder` and `limits` (rows), and `overhead` (time of the loop itself, in target
    passes).
    """
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
    """Run all benchmarks and write build/bench.json."""
    quiet()
    torch.set_num_threads(2)
    print("recorder and literal procedure, tiny, CPU float32, 2 threads")
    found: dict[str, Any] = {"recorder": show(recorder_rows(endless("tiny")))}
    found |= decoding()
    print()
    found["bars"] = show(bars(found))
    print("\nreading a log of vLLM, detailed")
    found["log"] = show(pd.DataFrame([log_bench.measured()]))
    place = ROOT / "build" / "bench.json"
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

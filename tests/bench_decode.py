"""The decoding half of `make bench`: plain, transformers' assisted, own chain and own tree on the
same prompts, in one run.

Three pairs: the tiny one; about 110M / 20M parameters of random weights, where passes dominate (the
draft is the target's first two layers and head, and the target's further layers are scaled down, so
that both agree about as often as the tiny pair; the text means nothing); and the real one, smollm,
where its weights are there. Order swapped from repeat to repeat; ratios are medians over prompts of
per-prompt ratios to plain greedy decoding by our own loop, whose text all others are compared
with.
"""

import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import linear

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).parent)]
if TYPE_CHECKING:
    from speclab.models.pairs import Pair
    from speclab.prompts import EncodedPrompt

GAMMA, LONGEST = 4, 3  # draft tokens; longest n-gram that prompt lookup looks for
PLAIN = "own plain greedy"
# scale of what the target's layers behind the draft's add to the residual stream: tokens per pass
# as on the tiny pair
QUIET = 0.05


def large_pair(folder: Path):
    """A random pair whose draft is the target's first two layers: 112M and 20M parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from speclab.models.pairs import load_pair
    from speclab.profiles import ROOT, ModelSpec, Profile

    torch.manual_seed(0)
    shape = {
        "vocab_size": 4096,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "max_position_embeddings": 1024,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
    }
    target = LlamaForCausalLM(LlamaConfig(num_hidden_layers=15, **shape))
    draft = LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, **shape))
    for layer in target.model.layers[2:]:
        layer.self_attn.o_proj.weight.data.mul_(QUIET)
        layer.mlp.down_proj.weight.data.mul_(QUIET)
    draft.load_state_dict(
        {k: v for k, v in target.state_dict().items() if k in draft.state_dict()}
    )
    from speclab.models.pairs import load_tokenizer

    for name, model in (("target", target), ("draft", draft)):
        model.save_pretrained(folder / name)
        load_tokenizer(ROOT / "data/pairs/tiny/target").save_pretrained(folder / name)
    return load_pair(
        Profile(
            "large",
            *(ModelSpec(str(folder / n), device="cpu") for n in ("target", "draft")),
            max_prompt_tokens=256,
        )
    )


@dataclass(frozen=True)
class Made:
    """A text: its tokens, the target passes it took where they are known, and its seconds, prefill
    included (so that all methods are alike).
    """

    ids: tuple[int, ...]
    blocks: int | None
    time_s: float


Method = Callable[["Pair", "EncodedPrompt", int], Made]


def _library(pair, prompt, new: int, **settings) -> Made:
    """transformers' generation in the very loop of the plain one: no sampling defaults, no stop
    token.
    """
    ids, began = torch.tensor([prompt.ids]), time.perf_counter()
    out = pair.target.network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        use_cache=True,
        **settings,
    )
    seconds = time.perf_counter() - began
    return Made(tuple(out[0, ids.shape[1] :].tolist()), None, seconds)


def library_greedy(pair, prompt, new: int) -> Made:
    """transformers' plain greedy generation."""
    return _library(pair, prompt, new)


def assisted(gamma: int) -> Method:
    """transformers' assisted generation at a constant gamma."""

    def method(pair, prompt, new: int) -> Made:
        config = pair.draft.network.generation_config
        config.num_assistant_tokens = gamma
        config.num_assistant_tokens_schedule = "constant"
        config.assistant_confidence_threshold = 0.0
        return _library(pair, prompt, new, assistant_model=pair.draft.network)

    return method


def library_lookup(gamma: int) -> Method:
    """transformers' prompt lookup."""
    settings = {"prompt_lookup_num_tokens": gamma, "max_matching_ngram_size": LONGEST}
    return lambda pair, prompt, new: _library(pair, prompt, new, **settings)


def own(shape: str) -> Method:
    """The kit's decoder."""
    from speclab.draft import parse_shape

    return lambda pair, prompt, new: _own(pair, prompt, parse_shape(shape), new)


def own_lookup(gamma: int) -> Method:
    """The kit's decoder with prompt lookup as its draft, which proposes only what it found."""
    from speclab.draft import Shape, StopRule
    from speclab.drafts.lookup import with_lookup
    from speclab.tree import chain

    shape = Shape(chain(gamma), StopRule("confidence", 0.5))
    return lambda pair, *rest: _own(with_lookup(pair, LONGEST), rest[0], shape, rest[1])


def _own(pair, prompt, shape, new: int) -> Made:
    from speclab.decode import decode_prompt
    from speclab.sampling import Sampling

    found = decode_prompt(pair, prompt, "greedy", shape, Sampling(), new)
    return Made(found.token_ids, found.target_passes, found.time_s)


def own_plain(pair, prompt, new: int) -> Made:
    """The kit's plain greedy loop."""
    from speclab.record import generate
    from speclab.sampling import Sampling

    began = time.perf_counter()
    (text,) = generate(pair.target, [prompt], new, frozenset(), Sampling(), 0)
    return Made(text, len(text), time.perf_counter() - began)


@dataclass(frozen=True)
class Case:
    """A pair, what is compared on it, prompts a domain, repeats, new tokens, and their template."""

    name: str
    pair: "Pair"
    methods: dict[str, Method]
    per_domain: int
    repeats: int
    new: int = 64
    template: str = "none"


def methods_at(gamma: int) -> dict[str, Method]:
    """What is compared on the small pairs."""
    return {
        PLAIN: own_plain,
        "transformers greedy": library_greedy,
        f"transformers assisted:{gamma}": assisted(gamma),
        **{f"own {shape}": own(shape) for shape in (f"chain:{gamma}", "tree:3,2,8")},
    }


def methods_of_smollm() -> dict[str, Method]:
    """What is compared on a real pair: two gammas, and drafts without a model."""
    return (
        methods_at(2)
        | methods_at(4)
        | {
            "transformers prompt lookup:4": library_lookup(4),
            "own prompt lookup:4": own_lookup(4),
        }
    )


def measure(pair, prompts, methods, new: int, repeats: int) -> pd.DataFrame:
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


def summary(costs, found: pd.DataFrame) -> pd.DataFrame:
    """Tokens per second, ratio to plain and, of the kit's chains, to the library's assisted
    generation, share of texts equal to plain, block efficiency, predicted ratio and the share of it
    reached, one row a method.
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
    for name in [n for n in table.index if n.startswith(("own chain", "own tree"))]:
        _predict(table, name, found[found.method == name], costs)
    lookup = found[found.method.str.startswith("own prompt lookup")]
    for name, rows in lookup.groupby("method"):
        table.loc[name, "block_efficiency"] = rows.tokens.sum() / rows.blocks.sum()
    for name, library in _of_the_library(rate).items():
        table.loc[name, "ratio_to_assisted"] = (rate[name] / rate[library]).median()
    return table.loc[list(dict.fromkeys(found.method))]


def _costs(pair, prompts):
    """Costs of the pair's passes, with the decoder's own time a block."""
    from speclab.decode import decode_prompt
    from speclab.draft import parse_shape
    from speclab.models import timing
    from speclab.sampling import Sampling

    four = parse_shape("chain:4")
    texts = [
        decode_prompt(pair, p, "greedy", four, Sampling(), 32) for p in prompts[:4]
    ]
    times = timing.pass_times(pair, sizes=(1, 2, 3, 4, 5, 8, 9), repeats=15)
    return timing.with_median_loop(timing.costs_of(times), texts, four)


def _predict(table: pd.DataFrame, name: str, rows: pd.DataFrame, costs) -> None:
    """Block efficiency of a shape, the ratio its passes predict, and the share of it reached."""
    from speclab.draft import parse_shape

    efficiency = rows.tokens.sum() / rows.blocks.sum()
    block = costs.of_block(parse_shape(name.removeprefix("own ")).tree)
    ideal = efficiency / (block - costs.overhead)
    table.loc[name, "block_efficiency"] = efficiency
    table.loc[name, "predicted"] = efficiency / block
    table.loc[name, "ideal_without_overhead"] = ideal
    table.loc[name, "share_reached"] = table.loc[name, "ratio_to_plain"] / ideal


def _of_the_library(rate: pd.DataFrame) -> dict[str, str]:
    """To each own chain transformers' assisted generation at its gamma, where both were timed."""
    chains = [name for name in rate if name.startswith("own chain")]
    pairs = {
        name: name.replace("own chain", "transformers assisted") for name in chains
    }
    return {name: library for name, library in pairs.items() if library in rate}


def heads(pair) -> dict[str, float]:
    """Milliseconds of a draft pass over one token (medians, orders swapped), and of the target's:
    with the trimmed head, and with one that says every token (its embedding's rows, as a tied head
    has).
    """
    from speclab.models import timing

    head = torch.nn.Linear(1, 1, bias=False).requires_grad_(False)
    head.weight.data = pair.draft.network.get_input_embeddings().weight.data
    whole = dataclasses.replace(pair.draft, head=head)
    found = {}
    for name, draft in (("trimmed", pair.draft), ("whole", whole)):
        other = dataclasses.replace(pair, draft=draft)
        times = timing.pass_times(other, sizes=(1,), repeats=41)
        median = times.groupby("model").ms.median()
        found[f"{name}_draft_ms"] = float(median["draft"])
        found[f"{name}_c"] = float(median["draft"] / median["target"])
    said = {"tokens_said": pair.draft.tokens_said, "vocabulary": pair.vocab}
    return found | said


SHAPES = ((960, 576), (3072, 576), (49152, 576))  # smollm's widest matrices, [out, in]
ROWS = (1, 2, 3, 5, 9, 33, 256)


def products() -> list[dict]:
    """Milliseconds of `model.Projection` and of torch's `linear` on some rows, medians of swapped
    repeats over as many matrices as no cache holds: out, rows, projection_ms, linear_ms.
    """
    from speclab.models.model import Projection

    rows = []
    for out, width in SHAPES:
        weights = [torch.randn(out, width) for _ in range(max(1, 40_000 // out))]
        ways = {
            "projection": [Projection(weight) for weight in weights],
            "linear": [partial(linear, weight=weight) for weight in weights],
        }
        for count in ROWS:
            x = torch.randn(1, count, width)
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(7):
                for name, products_of in ways.items():
                    began = time.perf_counter()
                    for product in products_of:
                        product(x)
                    spent = time.perf_counter() - began
                    times[name].append(1e3 * spent / len(weights))
            medians = {f"{name}_ms": float(np.median(times[name])) for name in ways}
            rows.append({"out": out, "rows": count} | medians)
    return rows


def cases(folder: Path) -> Iterator[Case]:
    """The pairs; the random one lies in `folder`, the real one is left out where its weights are
    not there.
    """
    from speclab.models.pairs import ModelsMissing, load_pair
    from speclab.profiles import load_profile

    profile = load_profile("tiny", {"device": "cpu"})
    yield Case("tiny", load_pair(profile), methods_at(GAMMA), 2, 3)
    # minutes: its passes take 10 times as long
    large = large_pair(folder)
    yield Case("112M / 20M random weights", large, methods_at(GAMMA), 1, 2)
    profile = load_profile("smollm", {"device": "cpu"})
    try:
        real = load_pair(profile)
    except ModelsMissing as error:
        print(f"\nsmollm is left out: {error}")
    else:
        yield Case("smollm", real, methods_of_smollm(), 1, 2, 48, profile.template)


def as_rows(table: pd.DataFrame) -> list[dict]:
    """Rows of a table for JSON: what is not defined is null, not NaN."""
    return json.loads(table.to_json(orient="records"))


def in_words(costs) -> str:
    """The costs of a pair's passes in a line."""
    shown = [f"v({n}) = {costs.v(n):.2f}" for n in (3, 5, 9)]
    return f"c = {costs.c():.3f}, {', '.join(shown)}, o = {costs.overhead:.2f}"


def main() -> dict[str, dict]:
    """All pairs: under `decoder` their summaries as rows, by pair, under `overhead` the loop's own
    time a block in target passes, under `loop` where a block's time goes, under `limits` what is
    reached of the machine's, under `heads` what a trimmed head saves, and under `products` what the
    kit's projection does.
    """
    import bench_limits

    from speclab.prompts import encode_prompts, load_prompts
    from speclab.show.notebook import quiet

    quiet()
    torch.set_num_threads(2)
    found: dict[str, Any] = {
        name: {} for name in ("decoder", "overhead", "loop", "limits", "heads")
    }
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(Path(folder)):
            pair = dataclasses.replace(case.pair, stop_ids=frozenset())
            prompts = load_prompts("project", case.per_domain)
            encoded = encode_prompts(pair.tokenizer, prompts, 256, case.template)
            print(
                f"\ndecoding, {case.name} pair, greedy, {case.new} new tokens, {len(prompts)} "
                f"prompts, CPU float32, {torch.get_num_threads()} threads"
            )
            made = measure(pair, encoded, case.methods, case.new, case.repeats)
            costs = _costs(pair, encoded)
            table = summary(costs, made).reset_index(names="method")
            loop = bench_limits.loop_table(pair, encoded, f"chain:{GAMMA}", case.new)
            limits = pd.DataFrame(bench_limits.reached(pair, encoded, case.new))
            for shown in (table, loop, limits):
                print(shown.to_string(float_format="%.2f", na_rep="", index=False))
            print(in_words(costs), flush=True)
            found["decoder"][case.name] = as_rows(table)
            found["loop"][case.name] = as_rows(loop)
            found["limits"][case.name] = as_rows(limits)
            found["overhead"][case.name] = costs.overhead
            if pair.draft.tokens_said < pair.vocab:
                found["heads"][case.name] = heads(pair)
                print(json.dumps(found["heads"][case.name]))
    found["products"] = products()
    print(pd.DataFrame(found["products"]).to_string(float_format="%.3f", index=False))
    return found


if __name__ == "__main__":
    main()

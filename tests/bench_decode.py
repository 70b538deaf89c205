"""The decoding half of `make bench`: plain, transformers' assisted, own chain and own tree on the
same prompts, in one run.

Two pairs: the tiny one, and about 110M / 20M parameters of random weights, where passes dominate
(the draft is the target's first two layers and head, and the target's further layers are scaled
down, so that both agree about as often as the tiny pair; the text means nothing). Order swapped
from repeat to repeat; ratios are medians over prompts of per-prompt ratios to plain greedy decoding
by our own loop.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch

GAMMA, NEW = 4, 64
# scale of what the target's layers behind the draft's add to the residual stream: tokens per pass
# as on the tiny pair
QUIET = 0.05


def large_pair(folder: Path):
    """A random pair whose draft is the target's first two layers: 112M and 20M parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from speclab.pairs import load_pair
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
    from speclab.pairs import load_tokenizer

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


def assisted(pair, prompt, new: int) -> tuple[int, int, float]:
    """transformers' assisted generation at a constant gamma: tokens, target passes, seconds behind
    the prefill.
    """
    import time

    config = pair.draft.network.generation_config
    (
        config.num_assistant_tokens,
        config.num_assistant_tokens_schedule,
        config.assistant_confidence_threshold,
    ) = GAMMA, "constant", 0.0
    ids, began = torch.tensor([prompt.ids]), time.perf_counter()
    # the very loop of plain generation: no sampling defaults, no stop token
    out = pair.target.network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        assistant_model=pair.draft.network,
        max_new_tokens=new,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        use_cache=True,
    )
    return out.shape[1] - ids.shape[1], 0, time.perf_counter() - began


def library_greedy(pair, prompt, new: int) -> tuple[int, int, float]:
    """transformers' plain greedy generation: tokens, passes, seconds (prefill included, as for
    `assisted`).
    """
    import time

    ids, began = torch.tensor([prompt.ids]), time.perf_counter()
    out = pair.target.network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        use_cache=True,
    )
    return (
        out.shape[1] - ids.shape[1],
        out.shape[1] - ids.shape[1],
        time.perf_counter() - began,
    )


def _own(pair, prompt, shape, new: int) -> tuple[int, int, float]:
    from speclab.decode import decode_prompt
    from speclab.sampling import Sampling

    found = decode_prompt(pair, prompt, "greedy", shape, Sampling(), new)
    return len(found.token_ids), found.target_passes, found.time_s


def _plain(pair, prompt, new: int) -> tuple[int, int, float]:
    import time

    from speclab.record import generate
    from speclab.sampling import Sampling

    began = time.perf_counter()
    (text,) = generate(pair.target, [prompt], new, frozenset(), Sampling(), 0)
    return len(text), len(text), time.perf_counter() - began


def measure(pair, prompts, repeats: int) -> pd.DataFrame:
    """One row a method, prompt and repeat: tokens, blocks, seconds (prefill included everywhere, so
    that all are alike).
    """
    from speclab.draft import parse_shape

    shapes = {
        f"own chain:{GAMMA}": parse_shape(f"chain:{GAMMA}"),
        "own tree:3,2,8": parse_shape("tree:3,2,8"),
    }
    methods = {
        "own plain greedy": lambda p: _plain(pair, p, NEW),
        "transformers greedy": lambda p: library_greedy(pair, p, NEW),
        f"transformers assisted:{GAMMA}": lambda p: assisted(pair, p, NEW),
        **{
            name: lambda p, s=shape: _own(pair, p, s, NEW)
            for name, shape in shapes.items()
        },
    }
    for work in methods.values():
        work(prompts[0])
    rows = []
    for repeat in range(repeats):
        for prompt in prompts:
            for name in list(methods)[:: 1 if repeat % 2 == 0 else -1]:
                rows.append((name, prompt.prompt_id, repeat, *methods[name](prompt)))
    return pd.DataFrame(
        rows, columns=["method", "prompt_id", "repeat", "tokens", "blocks", "time_s"]
    )


def summary(pair, found: pd.DataFrame, prompts) -> pd.DataFrame:
    """Tokens per second, ratio to plain, block efficiency, predicted ratio and the share of it
    reached, one row a method.
    """
    from speclab.analysis import timing
    from speclab.decode import decode_prompt
    from speclab.draft import parse_shape
    from speclab.sampling import Sampling

    four = parse_shape("chain:4")
    texts = [
        decode_prompt(pair, p, "greedy", four, Sampling(), 32) for p in prompts[:4]
    ]
    times = timing.pass_times(pair, sizes=(1, 2, 4, 5, 8, 9), repeats=15)
    costs = timing.with_median_loop(timing.costs_of(times), texts, four)
    found = found.assign(rate=found.tokens / found.time_s)
    rate = found.groupby(["method", "prompt_id"], sort=False).rate.median().unstack(0)
    table = pd.DataFrame(
        {
            "tokens_per_s": rate.median(),
            "ratio_to_plain": rate.div(rate["own plain greedy"], axis=0).median(),
        }
    )
    for name in [n for n in table.index if n.startswith("own ") and ":" in n]:
        rows = found[found.method == name]
        table.loc[name, "block_efficiency"] = rows.tokens.sum() / rows.blocks.sum()
        block = costs.of_block(parse_shape(name.removeprefix("own ")).tree)
        table.loc[name, "predicted"] = table.loc[name, "block_efficiency"] / block
        table.loc[name, "ideal_without_overhead"] = table.loc[
            name, "block_efficiency"
        ] / (block - costs.overhead)
        table.loc[name, "share_reached"] = (
            table.loc[name, "ratio_to_plain"]
            / table.loc[name, "ideal_without_overhead"]
        )
    own, library = rate[f"own chain:{GAMMA}"], rate[f"transformers assisted:{GAMMA}"]
    print(
        f"own chain against transformers' assisted generation: {np.median(own / library):.2f}x; "
        f"c = {costs.c():.3f}, v({GAMMA + 1}) = {costs.v(GAMMA + 1):.2f}, o = {costs.overhead:.2f}"
    )
    return table.loc[list(dict.fromkeys(found.method))]


def main() -> dict[str, list[dict]]:
    """Both pairs; returns their summaries as rows, by pair."""
    import dataclasses
    import json

    from speclab.notebook import quiet
    from speclab.pairs import load_pair
    from speclab.profiles import load_profile
    from speclab.prompts import encode_prompts, load_prompts

    quiet()
    torch.set_num_threads(2)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, per_domain, repeats, load in (
            ("tiny", 2, 3, lambda: load_pair(load_profile("tiny", {"device": "cpu"}))),
            (
                "112M / 20M random weights",
                1,
                2,
                lambda: large_pair(Path(folder)),
            ),  # minutes: its passes take 10 times as long
        ):
            pair = dataclasses.replace(load(), stop_ids=frozenset())
            prompts = encode_prompts(
                pair.tokenizer, load_prompts("project", per_domain), 256
            )
            print(
                f"\ndecoding, {name} pair, greedy, {NEW} new tokens, {len(prompts)} prompts, "
                f"CPU float32, {torch.get_num_threads()} threads"
            )
            table = summary(pair, measure(pair, prompts, repeats), prompts)
            print(table.to_string(float_format="%.2f", na_rep=""), flush=True)
            rows = table.reset_index(names="method").to_json(orient="records")
            results[name] = json.loads(rows)  # what is not defined is null, not NaN
    return results


if __name__ == "__main__":
    sys.path[:0] = [
        str(Path(__file__).resolve().parents[1]),
        str(Path(__file__).parent),
    ]
    main()

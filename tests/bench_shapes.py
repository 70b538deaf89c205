"""`make bench-shapes`: the recorder at the real shapes with random weights, against the plan of
`speclab.ops.plan`.

TinyLlama as the draft and Llama-2-7B's width as the target, in bfloat16 on a CPU (float16 on a GPU:
`--device cuda:0 --layers 32 --prompts 200 --prompt-tokens 512 --new 64 --block 20` is the paper's
whole measurement, unquantised). A CPU gets LAYERS of the target's 32 layers, so that a small
machine holds it; time and memory of the body go with the layers. Random weights change neither.
Prints seconds and peak bytes of each stage beside what the plan says from this machine's speed,
then the estimate for a T4.
"""

import argparse
import dataclasses
import sys
import threading
import time
from pathlib import Path

import psutil
import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
LAYERS = 6  # 3.0 GB in 16 bit with the embeddings


class Peak:
    """Peak of memory in a `with` block, in bytes: of the process (sampled), or of the GPU's
    allocator; and its seconds.
    """

    def __init__(self, device: torch.device):
        self.device, self.bytes, self.done = device, 0, False

    def _sample(self) -> None:
        process = psutil.Process()
        while not self.done:
            self.bytes = max(self.bytes, process.memory_info().rss)
            time.sleep(0.002)

    def __enter__(self):
        self.began = time.perf_counter()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            self.thread = threading.Thread(target=self._sample)
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.done = True
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            self.bytes = torch.cuda.max_memory_allocated(self.device)
        else:
            self.thread.join()
        self.seconds = time.perf_counter() - self.began


def now_bytes(device: torch.device) -> int:
    """Memory in use: of the process, or of the GPU's allocator."""
    return (
        torch.cuda.memory_allocated(device)
        if device.type == "cuda"
        else psutil.Process().memory_info().rss
    )


def random_model(config: dict, layers: int, device: torch.device, dtype: torch.dtype):
    """A LanguageModel of a published configuration with small random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.initialization import no_init_weights

    from speclab.models.lean import LeanBody
    from speclab.models.model import LanguageModel

    sizes = {
        name: value
        for name, value in config.items()
        if name not in ("model_type", "quantization_config", "num_hidden_layers")
    }
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    with no_init_weights(), device:
        network = (
            LlamaForCausalLM(
                LlamaConfig(
                    **sizes, num_hidden_layers=layers, attn_implementation="sdpa"
                )
            )
            .eval()
            .requires_grad_(False)
        )
    torch.set_default_dtype(before)
    generator = torch.Generator(device).manual_seed(0)
    for weight in network.parameters():
        weight.data.fill_(1) if weight.dim() == 1 else weight.data.uniform_(
            -0.03, 0.03, generator=generator
        )
    head = network.get_output_embeddings()
    return LanguageModel(LeanBody(network), head, head.out_features, dtype, device)


def build(layers: int, device: torch.device):
    """The random pair, and both models as the plan holds them."""
    from speclab.models.pairs import Pair
    from speclab.ops.plan import Held, shape_of
    from speclab.profiles import load_profile

    dtype, notes = (
        torch.bfloat16 if device.type == "cpu" else torch.float16,
        load_profile("paper").notes,
    )
    models, held = [], []
    for which in ("target", "draft"):
        config = notes[f"{which}_config"]
        shape = dataclasses.replace(shape_of(config), bits=None)
        shape = (
            dataclasses.replace(shape, layers=layers) if which == "target" else shape
        )
        models.append(random_model(config, shape.layers, device, dtype))
        held.append(Held(shape, dtype.itemsize, str(device)))
    return Pair(*models, None, frozenset(), {}), held


def made(pair, prompts: list, new: int, block: int) -> list:
    """Continuations of all prompts, a block at a time."""
    from speclab.record import generate
    from speclab.sampling import Sampling

    blocks = [prompts[i : i + block] for i in range(0, len(prompts), block)]
    return [
        text
        for part in blocks
        for text in generate(pair.target, part, new, frozenset(), Sampling(), 0)
    ]


def recorded(pair, prompts: list, texts: list, profile) -> int:
    """Node records of all prompts over their texts."""
    from speclab.record import record_prompt
    from speclab.sampling import Sampling

    found = [
        record_prompt(pair, p, t, profile.tree, Sampling(), profile.max_packed_tokens)
        for p, t in zip(prompts, texts, strict=True)
    ]
    return sum(len(r.nodes["node"]) for r in found)


def options() -> argparse.Namespace:
    """The command line."""
    top = argparse.ArgumentParser("bench_shapes")
    for name, default in (
        ("layers", LAYERS),
        ("prompts", 4),
        ("prompt-tokens", 256),
        ("new", 16),
        ("block", 4),
    ):
        top.add_argument(f"--{name}", type=int, default=default)
    top.add_argument("--device", default="cpu")
    return top.parse_args()


class Table:
    """Measured beside planned, a line a stage; memory is what is used beside the weights."""

    def __init__(self, profile, held: list, speed, loaded: int):
        from speclab.ops import plan as memory

        self.stages, self.speed, self.loaded = (
            memory.stages(profile, *held),
            speed,
            loaded,
        )
        self.needs = {
            n.stage: n.total - n.parts["weights"] - n.parts.get("context", 0)
            for n in memory.plan(profile, *held)
        }
        print(
            f"{'stage':10} {'seconds':>9} {'planned':>9} {'ratio':>6} {'GB':>9} {'planned':>9} "
            f"{'ratio':>6}"
        )

    def line(self, name: str, peak: Peak, *stages: str) -> None:
        """One measured block against the stages that it covers."""
        planned_s, used = (
            sum(s.seconds(self.speed) for s in self.stages if s.name in stages),
            peak.bytes - self.loaded,
        )
        need = self.needs["record" if name == "record" else "generate"]
        times = f"{peak.seconds:9.2f} {planned_s:9.2f} {peak.seconds / planned_s:6.2f}"
        print(
            f"{name:10} {times} {used / 1e9:9.2f} {need / 1e9:9.2f} {used / need:6.2f}",
            flush=True,
        )


def main() -> None:
    """Build, record, compare."""
    from speclab.ops.probe import measured_speed
    from speclab.profiles import load_profile
    from speclab.prompts import EncodedPrompt

    args = options()
    device, limits = (
        torch.device(args.device),
        {"block_prompts": args.block, "max_prompt_tokens": args.prompt_tokens},
    )
    profile = load_profile("paper").replace(
        prompts_per_domain=args.prompts,
        domains=("code",),
        max_new_tokens=args.new,
        **limits,
    )
    pair, held = build(args.layers, device)
    ids = torch.randint(
        3,
        32000,
        (args.prompts, args.prompt_tokens),
        generator=torch.Generator().manual_seed(1),
    ).tolist()
    prompts = [
        EncodedPrompt(f"p{i}", "code", tuple(row), 0) for i, row in enumerate(ids)
    ]
    short = [EncodedPrompt("warm-up", "code", prompts[0].ids[:8], 0)]
    recorded(pair, short, made(pair, short, 2, 1), profile)
    speed = measured_speed(str(device), pair.target.dtype)
    loaded = now_bytes(device)
    print(
        f"{device}, {torch.get_num_threads()} threads, {pair.target.dtype}, {args.layers} of 32 "
        "layers of the target"
    )
    print(
        f"{speed.flops_per_s / 1e9:.0f} GFLOP/s, {speed.bytes_per_s / 1e9:.1f} GB/s (measured now)"
    )
    print(
        f"weights {sum(h.shape.weight_bytes(h.itemsize) for h in held) / 1e9:.2f} GB planned, "
        f"process with them {loaded / 1e9:.2f} GB"
    )
    table = Table(profile, held, speed, loaded)
    with Peak(device) as prefill:
        made(pair, prompts, 1, args.block)
    table.line("prefill", prefill, "prefill")
    with Peak(device) as generated:
        texts = made(pair, prompts, args.new, args.block)
    table.line("generate", generated, "prefill", "decode")
    with Peak(device) as scored:
        rows = recorded(pair, prompts, texts, profile)
    table.line("record", scored, "trunk", "tree", "logits")
    after = measured_speed(
        str(device), pair.target.dtype
    )  # neighbours on the machine show here
    print(
        f"{rows} node records in {generated.seconds + scored.seconds:.1f} s; speed at the end "
        f"{after.flops_per_s / 1e9:.0f} GFLOP/s"
    )


if __name__ == "__main__":
    main()

"""`make bench-shapes`: the recorder at the real shapes with random weights, against
`speclab.ops.plan`.

TinyLlama as the draft and Llama-2-7B's width as the target, in bfloat16 on a CPU (float16 on a GPU:
`--device cuda:0 --layers 32 --prompts 200 --prompt-tokens 512 --new 64 --block 20` is the paper's
whole measurement, unquantised). A CPU gets LAYERS of the target's 32 layers, so that a small
machine holds it; time and memory of the body go with the layers. Random weights change neither.
Prints minutes and bytes beside the weights, measured and as the plan says from this machine's
speed, and seconds and peak bytes of writing the texts and of recording them.
"""

import argparse
import dataclasses
import json
import sys
import threading
import time
from pathlib import Path

import psutil
import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
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


def main() -> None:
    """Record as much as is asked for, and print measured and planned."""
    import gpu_measure

    whole = gpu_measure.WHOLE
    small = {
        "layers": LAYERS,
        "prompts": 4,
        "block": 4,
        "prompt_tokens": 256,
        "new": 16,
    }
    top = argparse.ArgumentParser("bench_shapes")
    for name, default in (dataclasses.asdict(whole) | small).items():
        top.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    top.add_argument("--device", default="cpu")
    given = vars(top.parse_args())
    device = given.pop("device")
    said, facts = gpu_measure.at_size(gpu_measure.Size(**given), device)
    print(f"{said}\n{json.dumps(facts, indent=1)}")


if __name__ == "__main__":
    main()

"""What `make gpu-check` measures: what passes cost, and recording at the paper's shapes with random
weights. Needs neither pandas nor scipy; `speclab.models.timing` is the notebooks' own way.
"""

import dataclasses
import gc
from collections.abc import Callable
from statistics import median

import torch
from bench_shapes import Peak, made, now_bytes, random_model, recorded

from speclab.decode import decode_prompt
from speclab.draft import PLAIN, parse_shape
from speclab.models.model import LanguageModel, timed
from speclab.models.pairs import Pair, free_bytes
from speclab.ops import plan
from speclab.profiles import load_profile
from speclab.prompts import EncodedPrompt, encode_prompts, load_prompts
from speclab.sampling import Sampling

SIZES = (1, 2, 3, 5, 9, 17)  # tokens of a pass: a root, and a draft of a power of 2
MORE_SIZES = (33, 65, 129)  # on a GPU
BEHIND = 128  # cached tokens behind which passes are timed
REPEATS = 7
DOMAINS = ("code", "chat")  # whose first prompt is decoded for its time
NEW = 24  # tokens of it
PAPER_S = 150  # that recording at the paper's shapes may take on a GPU


# ---- what passes cost ----------------------------------------------------------------------------


def one_pass(model: LanguageModel, tokens: int) -> Callable[[], None]:
    """A pass over `tokens`, with the logits of all."""
    cache = model.cache(BEHIND + 2 * tokens)
    ids = torch.arange(5, 5 + max(BEHIND, tokens))[None] % model.vocab
    model.forward(ids[:, :BEHIND], cache)

    def work() -> None:
        model.logits(model.forward(ids[:, :tokens], cache))
        cache.crop(BEHIND)

    return work


def pass_ms(cases: list[tuple[LanguageModel, int]]) -> list[float]:
    """Median milliseconds of a pass of each case (a model, and tokens); every repeat runs all
    cases, so that what else the machine does meets all alike.
    """
    works = [(one_pass(model, tokens), model.device) for model, tokens in cases]
    for work, _ in works:
        work()
    times = [[timed(work, device) for work, device in works] for _ in range(REPEATS)]
    return [1e3 * median(column) for column in zip(*times, strict=True)]


def tokens_per_s(pair: Pair, shape_name: str) -> float:
    """Tokens per second of greedy decoding without the prefill: the median over DOMAINS."""
    shape = PLAIN if shape_name == "plain" else parse_shape(shape_name)
    prompts = encode_prompts(
        pair.tokenizer, load_prompts("project", 1, DOMAINS), BEHIND
    )
    rates = []
    for prompt in prompts:
        decode_prompt(pair, prompt, "greedy", shape, Sampling(), 4)
        found = decode_prompt(pair, prompt, "greedy", shape, Sampling(), NEW)
        rates.append(len(found.token_ids) / (found.time_s - found.prefill_time_s))
    return median(rates)


def costs(pair: Pair) -> dict:
    """c, v(n) and tokens per second of a pair."""
    sizes = SIZES + (MORE_SIZES if pair.target.device.type == "cuda" else ())
    cases = [(pair.draft, 1), *((pair.target, n) for n in sizes)]
    draft, *times = pass_ms(cases)
    target = dict(zip(sizes, times, strict=True))
    return {
        "dtype": str(pair.target.dtype).removeprefix("torch."),
        "target_ms": target[1],
        "draft_ms": draft,
        "c": draft / target[1],
        "v": {str(n): ms / target[1] for n, ms in target.items()},
        "tokens_per_s": {
            name: tokens_per_s(pair, name) for name in ("plain", "chain:4")
        },
    }


def costs_said(found: dict) -> str:
    """In a few words."""
    speed = found["tokens_per_s"]
    return (
        f"{found['dtype']}, target pass {found['target_ms']:.2f} ms, c = {found['c']:.2f}, "
        f"v(5) = {found['v']['5']:.2f}, v(17) = {found['v']['17']:.2f}, "
        f"{speed['plain']:.0f} tokens/s plain, {speed['chain:4']:.0f} with chain:4"
    )


# ---- the paper's shapes --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Size:
    """How much of the paper's measurement is recorded: layers of both models, and its prompts."""

    layers: int
    draft_layers: int
    prompts: int
    block: int
    prompt_tokens: int
    new: int

    @property
    def said(self) -> str:
        """In a few words."""
        return (
            f"{self.layers} of 32 and {self.draft_layers} of 22 layers, {self.prompts} of 200 "
            f"prompts of {self.prompt_tokens} tokens, {self.new} new, {self.block} at a time"
        )


ON_A_CPU = Size(1, 1, 2, 2, 64, 8)
WHOLE = Size(32, 22, 200, 20, 512, 64)


def profile_of(size: Size):
    """The paper's profile with that much of it."""
    return load_profile("paper").replace(
        prompts_per_domain=size.prompts,
        domains=("code",),
        block_prompts=size.block,
        max_prompt_tokens=size.prompt_tokens,
        max_new_tokens=size.new,
    )


def planned_of(size: Size, device: str, dtype: torch.dtype) -> plan.Planned:
    """Both models as the plan holds them, unquantised."""
    notes, layers = load_profile("paper").notes, (size.layers, size.draft_layers)
    found = []
    for which, count in zip(("target", "draft"), layers, strict=True):
        changes = {"num_hidden_layers": count, "quantization_config": None}
        config = notes[f"{which}_config"] | changes
        name = str(dtype).removeprefix("torch.")
        found.append(plan.held(config, name, device))
    return plan.Planned(*found)


def size_that_fits(device: str, dtype: torch.dtype) -> Size:
    """As much of the whole as fits the device: first fewer prompts at a time, then fewer layers."""
    free = 0.95 * free_bytes(torch.device(device))
    for layers in (32, 24, 16, 8, 4):
        for block in (20, 10, 4, 1):
            size = dataclasses.replace(WHOLE, layers=layers, block=block)
            planned = planned_of(size, device, dtype)
            if max(plan.planned_bytes(profile_of(size), planned).values()) <= free:
                return size
    raise ValueError(f"{device}: {free / 1e9:.1f} GB are free, too few for 4 layers")


def prompts_in_time(size: Size, planned: plan.Planned, speed: plan.Speed) -> int:
    """So many prompts, in whole blocks, as the plan gives PAPER_S seconds."""
    longest = plan.planned_minutes(profile_of(size), planned, speed)[1]
    blocks = int(size.prompts * PAPER_S / 60 / longest) // size.block
    return min(size.prompts, size.block * max(1, blocks))


def build(size: Size, device: torch.device, dtype: torch.dtype) -> Pair:
    """The pair of these shapes with random weights."""
    notes = load_profile("paper").notes
    target = random_model(notes["target_config"], size.layers, device, dtype)
    draft = random_model(notes["draft_config"], size.draft_layers, device, dtype)
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what joining projections has left over
    return Pair(target, draft, None, frozenset(), {})


def random_prompts(size: Size) -> list[EncodedPrompt]:
    """Prompts of random tokens."""
    generator = torch.Generator().manual_seed(1)
    shape = (size.prompts, size.prompt_tokens)
    ids = torch.randint(3, 32_000, shape, generator=generator).tolist()
    return [EncodedPrompt(f"p{i}", "code", tuple(row), 0) for i, row in enumerate(ids)]


def paper_shapes(device_name: str) -> tuple[str, dict]:
    """`at_size` for as much of the paper's measurement as a device takes."""
    size = ON_A_CPU
    if torch.device(device_name).type == "cuda":
        size = size_that_fits(device_name, torch.float16)
    return at_size(size, device_name, in_time=True)


def at_size(size: Size, device_name: str, in_time: bool = False) -> tuple[str, dict]:
    """Recording at the paper's shapes: in words, and as facts (seconds and peak bytes of writing
    and of recording, the plan's of both, and the minutes of all 200 prompts). in_time: on a GPU
    only so many prompts as PAPER_S allows.
    """
    device = torch.device(device_name)
    dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
    held = planned_of(size, device_name, dtype)
    pair = build(size, device, dtype)
    short = [EncodedPrompt("warm-up", "code", tuple(range(3, 11)), 0)]
    recorded(pair, short, made(pair, short, 2, 1), profile_of(size))
    speed = plan.measured_speed(device_name, dtype)
    if in_time and device.type == "cuda":
        size = dataclasses.replace(size, prompts=prompts_in_time(size, held, speed))
    profile, prompts = profile_of(size), random_prompts(size)
    gc.collect()
    loaded = now_bytes(device)
    with Peak(device) as writing:
        texts = made(pair, prompts, size.new, size.block)
    with Peak(device) as recording:
        rows = recorded(pair, prompts, texts, profile)
    weights = sum(model.loaded for model in held)
    needed = sum(plan.planned_bytes(profile, held).values()) - weights
    facts = {
        "part": size.said,
        "dtype": str(dtype).removeprefix("torch."),
        "flops_per_s": speed.flops_per_s,
        "bytes_per_s": speed.bytes_per_s,
        "weights_bytes": weights,
        "loaded_bytes": loaded,
        "node_records": rows,
        "planned_beside_weights_bytes": needed,
    }
    measured = {"write": writing, "record": recording}
    for name, peak in measured.items():
        facts[name] = {
            "time_s": peak.seconds,
            "peak_bytes": peak.bytes,
            "beside_weights_bytes": peak.bytes - loaded,
        }
    taken = writing.seconds + recording.seconds
    expected = 60 * plan.planned_minutes(profile, held, speed)[1]
    facts["time_s"], facts["planned_s"] = taken, expected
    words = f"{facts['dtype']}, {size.said}: {taken / 60:.2f} min, planned {expected / 60:.2f}"
    if size.prompts < WHOLE.prompts and device.type == "cuda":
        facts["whole_minutes"] = taken / 60 * WHOLE.prompts / size.prompts
        words += f" ({facts['whole_minutes']:.1f} for all 200 prompts)"
    most = max(peak.bytes for peak in measured.values()) - loaded
    words += f"; beside the weights {most / 1e9:.3g} GB, planned {needed / 1e9:.3g}"
    return words, facts

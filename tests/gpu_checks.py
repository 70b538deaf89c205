"""The checks of `make gpu-check`, a function each, in the order in which they run: cheap ones
first.

A check takes Settings and returns what it found; it raises Skipped with a reason where this machine
cannot run it. None of them needs more than torch, transformers and what these bring along.
"""

import contextlib
import dataclasses
import io
import multiprocessing
import os
import platform
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import gpu_compare
import torch
from gpu_compare import Compared
from gpu_stand_ins import STAND_INS

from speclab.decode import decode_prompt
from speclab.draft import parse_shape
from speclab.models.pairs import Pair, load_pair
from speclab.profiles import ROOT, Profile, load_profile
from speclab.prompts import EncodedPrompt, encode_prompts, load_prompts
from speclab.record import Job, Recorded, Worker, generate, record_prompt
from speclab.sampling import Sampling
from speclab.tree import static_tree

GREEDY = Sampling()
LONGEST = 128  # tokens of a prompt
SHAPES = ("chain:4", "tree:3,2,8", "dynamic:4,4,8")
SAMPLED = (
    ("rejection", "chain:4"),
    ("point-mass", "tree:3,2,8"),
    ("without-replacement", "tree:3,2,8"),
)
NEEDED = ("torch", "transformers", "safetensors", "tokenizers", "numpy")
EXTRA = ("gptqmodel", "pandas", "pyarrow", "scipy", "psutil", "pydantic")


class Skipped(Exception):
    """Why a check cannot run here."""


@dataclass(frozen=True)
class Settings:
    """Where the checks run, in which number formats, and how much: prompts a domain, new tokens of
    a text that the literal procedure follows (it is slow), new tokens of a decoded text.
    """

    device: str
    formats: tuple[str, ...]
    prompts: int
    literal_tokens: int
    tokens: int

    @property
    def on_cuda(self) -> bool:
        """True on a CUDA device."""
        return self.device.startswith("cuda")


@dataclass(frozen=True)
class Outcome:
    """What a check found: its status (passed, reported, failed), in a sentence, and as facts."""

    status: str
    said: str
    facts: dict


def needs_cuda(settings: Settings, what: str) -> None:
    """Skipped on a CPU."""
    if not settings.on_cuda:
        raise Skipped(f"{what} needs a CUDA device")


def worst(statuses: list[str]) -> str:
    """The worst of several statuses."""
    order = ("passed", "reported", "failed")
    return max(statuses, key=order.index, default="passed")


# ---- what all checks share -----------------------------------------------------------------------


def number_formats(device: str) -> list[str]:
    """float32, float16, and bfloat16 but on GPUs that emulate it (NVIDIA's before Ampere)."""
    formats = ["float32", "float16", "bfloat16"]
    if device == "cpu" or torch.version.hip:
        return formats
    # torch.cuda.is_bf16_supported would ask the current device
    native = torch.cuda.get_device_properties(device).major >= 8
    return formats if native else formats[:2]


def tiny_profile(**overrides: Any) -> Profile:
    """The profile of the pair that lies in the repository."""
    return load_profile("tiny", {"max_prompt_tokens": LONGEST} | overrides)


def some_prompts(pair: Pair, count: int) -> list[EncodedPrompt]:
    """The first `count` prompts of every domain."""
    return encode_prompts(pair.tokenizer, load_prompts("project", count), LONGEST)


def greedy_text(pair: Pair, prompt: EncodedPrompt, tokens: int) -> tuple[int, ...]:
    """The target's own text behind a prompt, written alone."""
    (text,) = generate(pair.target, [prompt], tokens, pair.stop_ids, GREEDY, 0)
    return text


def recorded(
    pair: Pair, prompt: EncodedPrompt, text: tuple[int, ...], packed: int = 2048
) -> Recorded:
    """The record of one prompt over a text."""
    tree = static_tree(*gpu_compare.TREE)
    return record_prompt(pair, prompt, text, tree, GREEDY, packed)


def outcome_by_format(found: dict[str, Compared]) -> Outcome:
    """One comparison for each number format, as an outcome."""
    statuses = {
        name: one.status(getattr(torch, name.split()[0])) for name, one in found.items()
    }
    facts = {
        name: {"status": statuses[name]} | one.facts() for name, one in found.items()
    }
    said = "; ".join(f"{name}: {one.said()}" for name, one in found.items())
    return Outcome(worst(list(statuses.values())), said, facts)


# ---- the machine ---------------------------------------------------------------------------------


def _driver() -> str | None:
    """Version of NVIDIA's driver, as nvidia-smi tells it."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.split("\n")
    return lines[0].strip() if done.returncode == 0 else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def machine(settings: Settings) -> Outcome:
    """Device, driver, versions. A device named `auto` is chosen here: `facts["device"]`."""
    device = settings.device
    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    place = torch.device(device)
    if place.type == "cuda":
        device = f"cuda:{place.index or 0}"
    there = torch.cuda.device_count()
    if place.type == "cuda" and (place.index or 0) >= there:
        raise ValueError(
            f"--device {device}: torch sees {there} CUDA devices here; name another, or cpu"
        )
    facts: dict[str, Any] = {
        "device": device,
        "name": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _version(name) for name in NEEDED},
        "other_packages": {name: _version(name) for name in EXTRA},
        "stand_ins": STAND_INS,
        "torch_cuda": torch.version.cuda or torch.version.hip,
        "formats": number_formats(device),
    }
    if place.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        free, total = torch.cuda.mem_get_info(device)
        facts |= {
            "name": about.name,
            "capability": f"{about.major}.{about.minor}",
            "multiprocessors": about.multi_processor_count,
            "total_bytes": total,
            "free_bytes": free,
            "driver": _driver(),
        }
    said = f"{device}: {facts['name']}, torch {facts['packages']['torch']}"
    if STAND_INS:
        said += f"; stand-ins for {' and '.join(STAND_INS)}"
    return Outcome("passed", said, facts)


# ---- equality ------------------------------------------------------------------------------------


def pairs(settings: Settings) -> Outcome:
    """The pair on the device, and with the draft (and then the target) on the CPU, records what it
    records on the CPU.
    """
    needs_cuda(settings, "a pair on it, or on it and the CPU,")
    here = load_pair(tiny_profile(device="cpu"))
    prompts = some_prompts(here, 1)
    texts = [greedy_text(here, prompt, settings.tokens) for prompt in prompts]
    expected = [
        gpu_compare.rows_of(recorded(here, prompt, text))
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    places = {
        f"float32 {target}, {draft}": {"target.device": target, "draft.device": draft}
        for target, draft in (
            (settings.device, settings.device),
            (settings.device, "cpu"),
            ("cpu", settings.device),
        )
    }
    found = {}
    for name, where in places.items():
        pair = load_pair(tiny_profile(dtype="float32", **where))
        found[name] = Compared()
        for prompt, text, rows in zip(prompts, texts, expected, strict=True):
            ours = gpu_compare.rows_of(recorded(pair, prompt, text))
            one = gpu_compare.compare_rows(pair, prompt, text, ours, rows)
            found[name].add(one)
    outcome = outcome_by_format(found)
    chosen = load_pair(tiny_profile(device=settings.device))  # dtype: auto
    facts = outcome.facts | {"auto": chosen.facts}
    return dataclasses.replace(outcome, facts=facts)


def packing(settings: Settings) -> Outcome:
    """A record made in one pass a level equals those made a few nodes, or one tree, at a time."""
    found = {}
    for name in settings.formats:
        pair = load_pair(tiny_profile(device=settings.device, dtype=name))
        found[name] = Compared()
        for prompt in some_prompts(pair, 1):
            text = greedy_text(pair, prompt, settings.tokens)
            whole = gpu_compare.rows_of(recorded(pair, prompt, text))
            for packed in (1, 30):
                ours = gpu_compare.rows_of(recorded(pair, prompt, text, packed))
                one = gpu_compare.compare_rows(pair, prompt, text, ours, whole)
                found[name].add(one)
    return outcome_by_format(found)


def recorder(settings: Settings) -> Outcome:
    """The recorder equals the literal procedure, and the target's text the one that it writes."""
    found = {}
    for name in settings.formats:
        pair = load_pair(tiny_profile(device=settings.device, dtype=name))
        found[name] = against_literal(pair, settings)
    return outcome_by_format(found)


def against_literal(pair: Pair, settings: Settings) -> Compared:
    """Records of some prompts against the literal procedure along the same texts."""
    found = Compared()
    for prompt in some_prompts(pair, settings.prompts):
        text = greedy_text(pair, prompt, settings.literal_tokens)
        theirs, tokens = gpu_compare.literal_rows(pair, prompt, text)
        ours = gpu_compare.rows_of(recorded(pair, prompt, text))
        found.add(gpu_compare.compare_rows(pair, prompt, text, ours, theirs))
        found.add(gpu_compare.compare_tokens(pair, prompt, text, tokens))
    return found


def text(settings: Settings) -> Outcome:
    """Greedy speculative text equals plain greedy text: chains, static and dynamic trees."""
    found = {}
    for name in settings.formats:
        pair = load_pair(tiny_profile(device=settings.device, dtype=name))
        found[name] = Compared()
        for prompt in some_prompts(pair, settings.prompts):
            plain = greedy_text(pair, prompt, settings.tokens)
            for shape in SHAPES:
                made = decode_prompt(
                    pair, prompt, "greedy", parse_shape(shape), GREEDY, settings.tokens
                )
                one = gpu_compare.compare_texts(pair, prompt, made.token_ids, plain)
                found[name].add(one)
    return outcome_by_format(found)


def sampling(settings: Settings) -> Outcome:
    """Text sampled on the device, by each lossless rule, is that of the CPU with the same random
    numbers.
    """
    needs_cuda(settings, "sampled text against the CPU's")
    warm, facts, statuses = Sampling(1.0), {}, []
    pairs_by_place = {
        place: load_pair(tiny_profile(device=place, dtype="float32"))
        for place in ("cpu", settings.device)
    }
    prompts = some_prompts(pairs_by_place["cpu"], 1)
    for rule, shape in SAMPLED:
        texts = {
            place: [
                decode_prompt(
                    pair, prompt, rule, parse_shape(shape), warm, settings.tokens, 7
                ).token_ids
                for prompt in prompts
            ]
            for place, pair in pairs_by_place.items()
        }
        equal = sum(one == other for one, other in zip(*texts.values(), strict=True))
        facts[f"{rule} {shape}"] = {"texts": len(prompts), "equal": equal}
        # a random number may fall between two roundings: then a text parts, not most of them
        share = equal / len(prompts)
        statuses.append("passed" if share == 1 else "reported" if share else "failed")
    said = "; ".join(
        f"{name}: {one['equal']} of {one['texts']} texts equal"
        for name, one in facts.items()
    )
    return Outcome(worst(statuses), said, facts)


def gptq(settings: Settings) -> Outcome:
    """The 4-bit target of the tiny pair runs, and the recorder equals the literal procedure."""
    if find_spec("gptqmodel") is None:
        raise Skipped("gptqmodel is not installed")
    quantised = {"path": "data/pairs/tiny/target-gptq", "device": settings.device}
    profile = tiny_profile(target=quantised, **{"draft.device": settings.device})
    pair = load_pair(profile)
    found = against_literal(pair, settings)
    facts = {"pair": pair.facts} | found.facts()
    # its scales are float16, and kernels round to them whatever the number format
    status = found.status(torch.float16)
    said = f"kernel {pair.target.kernel}, {pair.target.dtype}: {found.said()}"
    return Outcome(status, said, facts)


# ---- processes and memory ------------------------------------------------------------------------


_TOGETHER: list[Any] = []  # of a worker process: where it waits for the other


def _meet(barrier: Any) -> None:
    _TOGETHER.append(barrier)


def _record_part(job: Job, device: str, index: int) -> tuple[list[Recorded], dict]:
    """A block recorded in a process of its own, both processes at the same time; and when."""
    worker = Worker(job, device)
    worker.record(index)  # loads the pair
    _TOGETHER[0].wait(120)
    began = time.time()
    done = worker.record(index)
    times = {"began": began, "ended": time.time()}
    facts = {"pid": os.getpid(), "peak_bytes": done.facts["peak_bytes"]}
    return done.recorded, facts | times


def processes(settings: Settings) -> Outcome:
    """Two processes, a pair each on the same device, record a part each: the same as one does."""
    profile = tiny_profile(device=settings.device, max_new_tokens=settings.tokens)
    pair = load_pair(profile)
    prompts = some_prompts(pair, 2)
    half = len(prompts) // 2
    blocks = tuple(prompts[:half]), tuple(prompts[half:])
    job = Job(profile, blocks, None, torch.get_num_threads())
    alone = Worker(job, pair=pair)
    expected = [alone.record(index).recorded for index in (0, 1)]
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(2)
    with ProcessPoolExecutor(2, spawn, _meet, (barrier,)) as pool:
        asked = [
            pool.submit(_record_part, job, settings.device, index) for index in (0, 1)
        ]
        done = [one.result() for one in asked]
    found, same = Compared(), 0
    for block, theirs, (ours, _) in zip(job.blocks, expected, done, strict=True):
        for prompt, one, other in zip(block, ours, theirs, strict=True):
            same += _same_bits(one, other)
            found.add(_compare_recorded(pair, prompt, one, other))
    facts = {"prompts": len(prompts), "equal_to_the_bit": same}
    facts |= {"processes": [facts_of for _, facts_of in done]} | found.facts()
    said = f"{same} of {len(prompts)} prompts equal to the bit; {found.said()}"
    return Outcome(found.status(pair.target.dtype), said, facts)


def _same_bits(one: Recorded, other: Recorded) -> bool:
    tables = ((one.trace, other.trace), (one.nodes, other.nodes))
    return one.continuation == other.continuation and all(
        bool((left[name] == right[name]).all())
        for left, right in tables
        for name in left
    )


def _compare_recorded(
    pair: Pair, prompt: EncodedPrompt, one: Recorded, other: Recorded
) -> Compared:
    """Two records that wrote their texts themselves: the texts, and the nodes where they are the
    same.
    """
    found = gpu_compare.compare_texts(
        pair, prompt, one.continuation, other.continuation
    )
    if not found.differences:
        ours, theirs = gpu_compare.rows_of(one), gpu_compare.rows_of(other)
        found.add(
            gpu_compare.compare_rows(pair, prompt, one.continuation, ours, theirs)
        )
    return found


# of a pair whose texts and whose trees both take hundreds of megabytes
WIDE = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 32_000,
    "max_position_embeddings": 1024,
}


def halving(settings: Settings) -> Outcome:
    """Where the device's memory ends, the recorder goes on with half, and the records are the same:
    memory is limited to less than the whole block needs.
    """
    needs_cuda(settings, "halving a block that does not fit")
    from bench_shapes import random_model

    place = torch.device(settings.device)
    target, draft = (
        random_model(WIDE, layers, place, torch.float32) for layers in (2, 1)
    )
    pair = Pair(target, draft, None, frozenset(), {})
    ids = torch.randint(
        3, 32_000, (64, 256), generator=torch.Generator().manual_seed(1)
    )
    prompts = tuple(
        EncodedPrompt(f"p{i}", "code", tuple(row), 0)
        for i, row in enumerate(ids.tolist())
    )
    profile = load_profile("paper").replace(
        max_prompt_tokens=256, max_new_tokens=64, max_packed_tokens=384
    )
    job = Job(profile, (prompts,))
    warm = generate(target, list(prompts[:1]), 2, frozenset(), GREEDY, 0)
    recorded(pair, prompts[0], warm[0])  # the libraries' own workspaces are there now
    with _Peak(place) as writing:
        generate(target, list(prompts), 64, frozenset(), GREEDY, 0)
    free = Worker(job, pair=pair).record(0).recorded
    with _Peak(place) as recording:
        recorded(pair, prompts[0], free[0].continuation, 384)
    # less than either needs, more than the smallest parts do
    room = int(0.75 * min(writing.bytes, recording.bytes))
    torch.cuda.empty_cache()
    limit = torch.cuda.memory_reserved(place) + room
    total = torch.cuda.get_device_properties(place).total_memory
    limited, said = Worker(job, pair=pair), io.StringIO()
    torch.cuda.set_per_process_memory_fraction(limit / total, place)
    try:
        with contextlib.redirect_stderr(said):
            tight = limited.record(0).recorded
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, place)
    found = Compared()
    for prompt, one, other in zip(prompts, tight, free, strict=True):
        found.add(_compare_recorded(pair, prompt, one, other))
    lines = said.getvalue().splitlines()
    halved = {
        "prompts": any("prompts at once" in line for line in lines),
        "nodes": any("max_packed_tokens=" in line for line in lines),
    }
    facts = {
        "texts_bytes": writing.bytes,
        "record_bytes": recording.bytes,
        "allowed_bytes": room,
        "halved": halved,
        "said": lines,
        "max_packed_tokens": limited.packed,
    } | found.facts()
    status = found.status(torch.float32) if all(halved.values()) else "failed"
    words = [name for name, yes in halved.items() if yes]
    return Outcome(
        status,
        f"{room / 1e6:.0f} MB for {writing.bytes / 1e6:.0f} and {recording.bytes / 1e6:.0f}: "
        f"halved {' and '.join(words) or 'nothing'}; {found.said()}",
        facts,
    )


class _Peak:
    """Most bytes that tensors took in a `with` block, beside those that were there."""

    def __init__(self, place: torch.device):
        self.place, self.bytes = place, 0

    def __enter__(self) -> "_Peak":
        torch.cuda.synchronize(self.place)
        torch.cuda.reset_peak_memory_stats(self.place)
        self.before = torch.cuda.memory_allocated(self.place)
        return self

    def __exit__(self, *_: Any) -> None:
        torch.cuda.synchronize(self.place)
        self.bytes = torch.cuda.max_memory_allocated(self.place) - self.before


# ---- time ----------------------------------------------------------------------------------------


def timing(settings: Settings) -> Outcome:
    """What passes cost: c (a draft pass over a target pass), v(n) (a pass over n tokens over 1)."""
    import gpu_measure

    facts = {"tiny": gpu_measure.costs(load_pair(tiny_profile(device=settings.device)))}
    weights = ROOT / "data/pairs/smollm/target/model.safetensors"
    if weights.is_file():
        profile = load_profile("smollm", {"device": settings.device})
        facts["smollm"] = gpu_measure.costs(load_pair(profile))
    else:
        facts["smollm"] = "skipped: its weights are not here (make pair PROFILE=smollm)"
    said = "; ".join(
        f"{name}: {gpu_measure.costs_said(one)}" if isinstance(one, dict) else one
        for name, one in facts.items()
    )
    return Outcome("passed", said, facts)


def shapes(settings: Settings) -> Outcome:
    """The paper's shapes with random weights: minutes and peak memory against the plan."""
    import gpu_measure

    said, facts = gpu_measure.paper_shapes(settings.device)
    return Outcome("passed", said, facts)


CHECKS = {
    check.__name__: check
    for check in (
        machine,
        pairs,
        packing,
        text,
        sampling,
        recorder,
        gptq,
        processes,
        halving,
        timing,
        shapes,
    )
}


def judged(name: str, settings: Settings) -> dict:
    """One check, whatever comes of it: name, status, what was found, seconds, facts."""
    began = time.perf_counter()
    try:
        found = CHECKS[name](settings)
    except Skipped as reason:
        found = Outcome("skipped", str(reason), {})
    except Exception as error:
        import traceback

        lines = traceback.format_exc().splitlines()[-30:]
        first = (str(error).splitlines() or [""])[0]
        found = Outcome(
            "failed", f"{type(error).__name__}: {first}", {"traceback": lines}
        )
    return {
        "name": name,
        "status": found.status,
        "said": found.said,
        "time_s": round(time.perf_counter() - began, 3),
        "facts": found.facts,
    }

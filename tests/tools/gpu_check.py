"""`make gpu-check`: check the kit on a CUDA device, in one command.

It needs the kit's own packages and installs nothing. The check of gptqmodel is skipped if the
package is missing. Every check runs in its own process, so a check that breaks the device, runs out
of memory or hangs does not affect the others. The JSON file is rewritten after each check. Without
a CUDA device, the checks that can run on a CPU do so.
"""

import argparse
import contextlib
import gc
import io
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib import metadata
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import literal
import numpy as np
import psutil
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from toy import plain as greedy_text
from toy import table_of
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.initialization import no_init_weights

from speclab.cli import doctor
from speclab.decode import decode_prompt
from speclab.model import Pair
from speclab.models.lean import LeanBody
from speclab.models.model import Network
from speclab.models.pairs import parameter_count
from speclab.plain import EncodedPrompt
from speclab.record import generate, record_prompts
from speclab.sampling import Sampling
from speclab.shapes import parse_shape
from speclab.study.pairs import load_pair
from speclab.study.profiles import MODELS, ROOT, load_profile
from speclab.study.prompts import encode_prompts, load_prompts
from speclab.study.recording import Job, Worker
from speclab.tree import static_tree

LIMIT_S = 1200  # time limit of one check
GREEDY = Sampling()
TREE = (3, 2, 8)  # depth, branches, budget: the paper's
LONGEST = 128  # most tokens of a prompt
SHAPES = ("chain:4", "tree:3,2,8", "dynamic:4,4,8")
SAMPLED = (
    ("rejection", "chain:4"),
    ("point-mass", "tree:3,2,8"),
    ("without-replacement", "tree:3,2,8"),
)
PACKAGES = ("torch", "transformers", "gptqmodel", "numpy", "pandas", "pydantic")


class Skipped(Exception):
    """The reason why a check cannot run on this machine."""


@dataclass(frozen=True)
class Settings:
    """Where and how the checks run.

    device: `auto` is the first CUDA device, else the CPU. literal_tokens: new tokens of a text that
    the slow literal procedure follows. tokens: new tokens of a decoded text. formats: number
    formats. None chooses by device.
    """

    device: str = "auto"
    literal_tokens: int | None = None
    tokens: int | None = None
    formats: tuple[str, ...] = ()

    @property
    def on_cuda(self):
        """True on a CUDA device."""
        return self.device.startswith("cuda")

    @property
    def prompts(self):
        """Prompts per domain."""
        return 2 if self.on_cuda else 1

    def on(self, device, formats):
        """These settings with every value set, for a device and its number formats."""
        usual = (2, 12) if device == "cpu" else (24, 64)
        literal_tokens = self.literal_tokens or usual[0]
        return Settings(device, literal_tokens, self.tokens or usual[1], formats)


@dataclass(frozen=True)
class Outcome:
    """The result of a check: its status (passed, reported or failed), a sentence, and facts."""

    status: str
    said: str
    facts: dict


# ---- comparisons ---------------------------------------------------------------------------------

PLACES = ("position", "node", "parent", "depth", "rank", "best_path")
NUMBERS = ("draft_prob", "target_prob", "draft_entropy", "target_entropy")
# largest difference that rounding explains, by number format, for a margin (logits), a probability
# or an entropy (nats). The tiny pair on a CPU shows 6e-6, 0.01 and 0.08; a wrong mask gives at
# least 1.4 in each format
ROUNDING = {torch.float32: 1e-4, torch.float16: 0.06, torch.bfloat16: 0.5}


@dataclass(frozen=True)
class Difference:
    """A choice that differs: another drafted token, another rank or another token of the text
    (`what`). `margin` is the difference between the model's logits of the two choices.
    """

    what: str
    prompt_id: str
    position: int
    margin: float


@dataclass
class Compared:
    """The result of a comparison: `rows` in all, of which `unread` are below a differing drafted
    token (they are not compared), the largest `gap` between two numbers, and the differences.
    """

    rows: int = 0
    unread: int = 0
    gap: float = 0.0
    differences: list[Difference] = field(default_factory=list)

    def differ(self, what, prompt, position, margin):
        """Add one difference."""
        self.differences.append(Difference(what, prompt.prompt_id, position, margin))

    def add(self, other):
        """Add the result for another prompt."""
        self.rows += other.rows
        self.unread += other.unread
        self.gap = float(np.max([self.gap, other.gap]))  # np.max keeps NaN
        self.differences += other.differences

    @property
    def margin(self):
        """The largest margin of a difference; 0 without differences."""
        return float(np.max([0.0, *(one.margin for one in self.differences)]))

    def status(self, dtype):
        """`passed`: all choices are equal. `reported`: rounding explains the differences. `failed`:
        it does not, or two numbers differ by more than rounding explains.
        """
        # a comparison with NaN is False, so NaN fails too
        if not (self.margin <= ROUNDING[dtype] and self.gap <= ROUNDING[dtype]):
            return "failed"
        return "reported" if self.differences else "passed"

    def said(self):
        """The result in a few words."""
        return (
            f"{self.rows} rows, {len(self.differences)} differences (margin {self.margin:.2g} "
            f"logits), numbers within {self.gap:.1g}"
        )

    def facts(self):
        """The result as JSON data. Of many differences, only those with the largest margins are
        listed.
        """
        largest = sorted(self.differences, key=lambda one: -one.margin)[:20]
        return {
            "rows": self.rows,
            "rows_below_another_token": self.unread,
            "largest_number_gap": self.gap,
            "differences": dict(Counter(one.what for one in self.differences)),
            "largest": [asdict(one) for one in largest],
        }


def rows_of(recorded):
    """Node records as a list of rows."""
    return table_of(recorded.nodes).to_dict("records")


def literal_rows(pair, prompt, text):
    """The literal procedure along a given text: its node records, and the token that it would
    choose at each position.
    """
    rows, tokens = [], []
    for position in range(len(text)):
        context = prompt.ids + text[:position]
        found, (token,) = literal.measure(pair.target, pair.draft, context, 1, frozenset(), *TREE)
        rows += [row | {"position": position} for row in found]
        tokens.append(token)
    return rows, tokens


def logits_at(model, context):
    """Logits after a context, from one full pass without a cache."""
    return literal.full_logits(model, [context])[0, -1]


def apart(model, context, one, other):
    """Difference between the logits of two tokens after a context."""
    logits = logits_at(model, context)
    return float(abs(logits[one] - logits[other]))


def compare_rows(pair, prompt, text, ours, theirs):
    """Compare two node records of the same text."""
    found = Compared(rows=len(ours))
    paths: dict[tuple[int, int], tuple[int, ...] | None] = {}  # None: the tokens differ
    for our, their in zip(ours, theirs, strict=True):
        for name in PLACES:
            if our[name] != their[name]:
                raise ValueError(f"{name}: {our[name]}, not {their[name]}")
        position = our["position"]
        above = paths.get((position, our["parent"]), ())
        same = above is not None and our["token"] == their["token"]
        paths[position, our["node"]] = (*above, our["token"]) if same else None
        if above is None:
            found.unread += 1
            continue
        context = [*prompt.ids, *text[:position], *above]
        if not same:
            margin = apart(pair.draft, context, our["token"], their["token"])
            found.differ("drafted token", prompt, position, margin)
            continue
        gaps = [abs(our[name] - their[name]) for name in NUMBERS]
        found.gap = float(np.max([found.gap, *gaps]))
        if our["target_rank"] != their["target_rank"]:
            logits = logits_at(pair.target, context)
            crossed = literal.best_tokens(logits, len(logits))[our["target_rank"]]
            margin = float(abs(logits[our["token"]] - logits[crossed]))
            found.differ("target rank", prompt, position, margin)
    return found


def compare_tokens(pair, prompt, text, tokens, up_to_the_first=False):
    """Compare a text with the tokens that the target would choose along it. With `up_to_the_first`,
    compare a greedy text with the plain text up to the first difference. If one text ends earlier,
    that difference has no margin.
    """
    found = Compared(rows=len(tokens))
    for position, (our, their) in enumerate(zip_longest(text, tokens)):
        if our == their:
            continue
        margin = float("nan")
        if our is not None and their is not None:
            context = [*prompt.ids, *text[:position]]
            margin = apart(pair.target, context, our, their)
        found.differ("token of the text", prompt, position, margin)
        if up_to_the_first:
            break
    return found


def compare_recorded(pair, prompt, one, other):
    """Compare two records of one prompt that generated their own texts: the texts, and the nodes if
    the texts are equal.
    """
    text, theirs = (tuple(made.trace["token"].tolist()) for made in (one, other))
    found = compare_tokens(pair, prompt, text, theirs, True)
    if not found.differences:
        found.add(compare_rows(pair, prompt, text, rows_of(one), rows_of(other)))
    return found


# ---- shared by all checks ------------------------------------------------------------------------


def needs_cuda(settings, what):
    """Raise Skipped on a CPU."""
    if not settings.on_cuda:
        raise Skipped(f"{what} needs a CUDA device")


def worst(statuses):
    """The worst of several statuses."""
    order = ("passed", "reported", "failed")
    return max(statuses, key=order.index, default="passed")


def number_formats(device):
    """float32, float16 and bfloat16; without bfloat16 on GPUs that emulate it (NVIDIA before
    Ampere).
    """
    formats = ["float32", "float16", "bfloat16"]
    if device == "cpu" or torch.version.hip:
        return formats
    # torch.cuda.is_bf16_supported would test the current device
    native = torch.cuda.get_device_properties(device).major >= 8
    return formats if native else formats[:2]


def tiny_profile(**overrides):
    """The profile of the pair in the repository."""
    return load_profile("tiny", {"max_prompt_tokens": LONGEST} | overrides)


def some_prompts(pair, count):
    """The first `count` prompts of every domain."""
    return encode_prompts(pair.tokenizer, load_prompts("project", count), LONGEST)


def recorded(pair, prompt, text, packed=2048):
    """The record of one prompt over a text."""
    return record_prompts(pair, [prompt], [text], static_tree(*TREE), GREEDY, packed)[0]


def by_format(compare):
    """Turn a comparison into a check that runs it on the tiny pair in each number format."""

    def check(settings):
        found = {name: Compared() for name in settings.formats}
        for name, one in found.items():
            profile = tiny_profile(device=settings.device, dtype=name)
            compare(settings, load_pair(profile), one)
        return outcome_of(found)

    return check


def outcome_of(found):
    """The outcome of named comparisons. Each name begins with the number format."""
    facts = {}
    for name, one in found.items():
        status = one.status(getattr(torch, name.split()[0]))
        facts[name] = {"status": status} | one.facts()
    said = "; ".join(f"{name}: {one.said()}" for name, one in found.items())
    return Outcome(worst(one["status"] for one in facts.values()), said, facts)


@contextlib.contextmanager
def peak(place):
    """Measures a `with` block. `seconds`: its duration. `bytes`: its peak memory minus the memory
    at its start, from the process (sampled) or from the GPU's allocator.
    """
    on_cuda, done = place.type == "cuda", threading.Event()

    def now():
        if on_cuda:
            return torch.cuda.memory_allocated(place)
        return psutil.Process().memory_info().rss

    def sample():
        while not (on_cuda or done.wait(0.002)):
            sizes.append(now())

    found, sizes, sampler = SimpleNamespace(), [now()], threading.Thread(target=sample)
    sampler.start()
    if on_cuda:
        torch.cuda.reset_peak_memory_stats(place)
    began = time.perf_counter()
    try:
        yield found
    finally:
        done.set()
        sampler.join()
    if on_cuda:
        torch.cuda.synchronize(place)
        sizes.append(torch.cuda.max_memory_allocated(place))
    found.seconds = time.perf_counter() - began
    found.bytes = max(sizes) - sizes[0]


# ---- the checks, cheap ones first ----------------------------------------------------------------


def machine(settings):
    """Device and versions. `auto` is resolved here to `facts["device"]`."""
    device = settings.device
    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    place, there = torch.device(device), torch.cuda.device_count()
    packages = {name: metadata.version(name) for name in PACKAGES if find_spec(name)}
    facts: dict[str, Any] = {
        "device": device,
        "name": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "packages": packages,
        "torch_cuda": torch.version.cuda or torch.version.hip,
    }
    if place.type == "cuda":
        if (place.index or 0) >= there:
            raise ValueError(
                f"--device {device}: torch sees {there} CUDA devices; choose another, or cpu"
            )
        about = torch.cuda.get_device_properties(device)
        free, total = torch.cuda.mem_get_info(device)
        facts |= {"name": about.name, "capability": f"{about.major}.{about.minor}"}
        facts |= {"total_bytes": total, "free_bytes": free}
    facts["formats"] = number_formats(device)
    said = f"{device}: {facts['name']}, torch {packages['torch']}"
    return Outcome("passed", said, facts)


def pairs(settings):
    """Does a pair on the device, or split between device and CPU, give the same records as on the
    CPU?
    """
    needs_cuda(settings, "a pair on it, or on it and the CPU,")
    here = load_pair(tiny_profile(device="cpu"))
    prompts = some_prompts(here, 1)
    texts = [greedy_text(here, prompt, settings.tokens) for prompt in prompts]
    both = zip(prompts, texts, strict=True)
    expected = [rows_of(recorded(here, prompt, text)) for prompt, text in both]
    found = {}
    places = (settings.device, settings.device), (settings.device, "cpu")
    for target, draft in (*places, ("cpu", settings.device)):
        where = {"target.device": target, "draft.device": draft}
        pair = load_pair(tiny_profile(dtype="float32", **where))
        one = found[f"float32 {target}, {draft}"] = Compared()
        for prompt, text, rows in zip(prompts, texts, expected, strict=True):
            ours = rows_of(recorded(pair, prompt, text))
            one.add(compare_rows(pair, prompt, text, ours, rows))
    return outcome_of(found)


@by_format
def packing(settings, pair, found):
    """Does recording all nodes at once give the same records as recording a few at a time?"""
    for prompt in some_prompts(pair, 1):
        text = greedy_text(pair, prompt, settings.tokens)
        whole = rows_of(recorded(pair, prompt, text))
        for packed in (1, 30):
            ours = rows_of(recorded(pair, prompt, text, packed))
            found.add(compare_rows(pair, prompt, text, ours, whole))


@by_format
def text(settings, pair, found):
    """Is the greedy text of chains, static and dynamic trees the text of plain decoding?"""
    new = settings.tokens
    for prompt in some_prompts(pair, settings.prompts):
        plain = greedy_text(pair, prompt, new)
        for shape in map(parse_shape, SHAPES):
            made = decode_prompt(pair, prompt, "greedy", shape, GREEDY, new)
            found.add(compare_tokens(pair, prompt, made.token_ids, plain, True))


def sampling(settings):
    """Is the sampled text on the device the same as on the CPU, with the same random numbers?"""
    needs_cuda(settings, "sampled text against the CPU's")
    warm, facts, statuses = Sampling(1.0), {}, []
    places = ("cpu", settings.device)
    both = [load_pair(tiny_profile(device=at, dtype="float32")) for at in places]
    prompts = some_prompts(both[0], 1)
    for rule, name in SAMPLED:
        given = rule, parse_shape(name), warm, settings.tokens, 7
        equal = 0
        for prompt in prompts:
            made = [decode_prompt(pair, prompt, *given).token_ids for pair in both]
            equal += made[0] == made[1]
        facts[f"{rule} {name}"] = f"{equal} of {len(prompts)} texts equal"
        # a random number may fall between two roundings; then one text differs, not most of them
        all_equal = "passed" if equal == len(prompts) else "reported"
        statuses.append(all_equal if equal else "failed")
    said = "; ".join(f"{name}: {words}" for name, words in facts.items())
    return Outcome(worst(statuses), said, facts)


def against_literal(settings, pair, found):
    """Does the recorder give the records of the literal procedure along the same texts?"""
    for prompt in some_prompts(pair, settings.prompts):
        text = greedy_text(pair, prompt, settings.literal_tokens)
        theirs, tokens = literal_rows(pair, prompt, text)
        ours = rows_of(recorded(pair, prompt, text))
        found.add(compare_rows(pair, prompt, text, ours, theirs))
        found.add(compare_tokens(pair, prompt, text, tokens))


recorder = by_format(against_literal)


BACKENDS = ("triton", "auto")  # the backend of the profiles, and the default


def gptq(settings):
    """Does the 4-bit target run with each backend, and does its record equal the literal one?"""
    if find_spec("gptqmodel") is None:
        raise Skipped("gptqmodel is not installed")
    found = {backend: _quantised(settings, backend) for backend in BACKENDS}
    said = "; ".join(f"{backend}: {one.said}" for backend, one in found.items())
    facts = {backend: asdict(one) for backend, one in found.items()}
    statuses = [one.status for one in found.values() if one.status != "skipped"]
    return Outcome(worst(statuses), said, facts)


def _quantised(settings, backend):
    if backend == "triton" and not settings.on_cuda:
        return Outcome("skipped", "skipped: it needs a CUDA device", {})
    quantised = {"path": "data/pairs/tiny/target-gptq", "device": settings.device}
    quantised["backend"] = backend
    profile = tiny_profile(target=quantised, **{"draft.device": settings.device})
    pair, found = load_pair(profile), Compared()
    against_literal(settings, pair, found)
    # its scales are float16, so kernels round to float16 whatever the number format
    status = found.status(torch.float16)
    said = f"kernel {pair.target.kernel}, {pair.target.dtype}: {found.said()}"
    return Outcome(status, said, {"pair": pair.facts} | found.facts())


def waits(settings):
    """How often does the host wait for the device per block, and at which lines?"""
    needs_cuda(settings, "counting waits")
    pair, facts = load_pair(tiny_profile(device=settings.device)), {}
    (prompt, *_) = some_prompts(pair, 1)
    for name in SHAPES:
        given = pair, prompt, "greedy", parse_shape(name), GREEDY, settings.tokens
        blocks = len(decode_prompt(*given).steps)  # warm-up
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                decode_prompt(*given)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        own = [one for one in caught if "synchronizing" in str(one.message)]
        lines = Counter(f"{Path(one.filename).name}:{one.lineno}" for one in own)
        facts[name] = {"per_block": len(own) / blocks, "lines": dict(lines)}
    each = (f"{name} {one['per_block']:.1f}" for name, one in facts.items())
    return Outcome("passed", f"waits per block, uploads included: {', '.join(each)}", facts)


def attention(settings):
    """Does a kernel other than `math` run the pair's passes, over one token and over a tree?"""
    needs_cuda(settings, "asking for the kernel of attention")
    pair = load_pair(tiny_profile(device=settings.device))
    kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    facts = {}
    for which in MODELS:
        model = getattr(pair, which)
        for n in (1, 9):
            tokens = torch.arange(5, 5 + n)[None]
            with sdpa_kernel(kernels):  # raises if only `math` could run
                try:
                    model.forward(tokens, model.cache())
                    facts[f"{which}, {n} tokens"] = "fused"
                except RuntimeError as error:
                    facts[f"{which}, {n} tokens"] = f"math: {error}".splitlines()[0]
    fused = all(words == "fused" for words in facts.values())
    said = "; ".join(f"{name}: {words}" for name, words in facts.items())
    return Outcome("passed" if fused else "failed", said, facts)


_TOGETHER: list[Any] = []  # the barrier of a worker process, where it waits for the other


def _meet(barrier):
    """Initialise a worker. (The list's own `append` would be sent with a copy of the list.)"""
    _TOGETHER.append(barrier)


def _record_part(job, device, index):
    """Record a block in its own process, while the other process records too."""
    worker = Worker(job, device)
    worker.record(index)  # loads the pair
    _TOGETHER[0].wait(120)
    return worker.record(index).recorded


def processes(settings):
    """Do two pairs in two processes on the device give the records of a single process?"""
    profile = tiny_profile(device=settings.device, max_new_tokens=settings.tokens)
    pair = load_pair(profile)
    prompts = some_prompts(pair, 2)
    half = len(prompts) // 2
    blocks = tuple(prompts[:half]), tuple(prompts[half:])
    job = Job(profile, blocks, None, torch.get_num_threads())
    alone, spawn = Worker(job, pair=pair), multiprocessing.get_context("spawn")
    barrier = (spawn.Barrier(2),)
    with ProcessPoolExecutor(2, spawn, _meet, barrier) as pool:
        asked = [pool.submit(_record_part, job, settings.device, i) for i in (0, 1)]
        done = [one.result() for one in asked]
    found = Compared()
    for index, block in enumerate(blocks):
        both = zip(block, alone.record(index).recorded, done[index], strict=True)
        for prompt, one, other in both:
            found.add(compare_recorded(pair, prompt, one, other))
    return Outcome(found.status(pair.target.computes), found.said(), found.facts())


# a pair whose texts and trees both take hundreds of megabytes
WIDE = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 32_000,
    "max_position_embeddings": 1024,
}
NOT_OF_A_LLAMA = ("model_type", "quantization_config", "num_hidden_layers")


def random_model(config, layers, place, dtype):
    """A model with a published configuration and small random weights."""
    sizes = {name: v for name, v in config.items() if name not in NOT_OF_A_LLAMA}
    shape = LlamaConfig(**sizes, num_hidden_layers=layers, attn_implementation="sdpa")
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    with no_init_weights(), place:
        network = LlamaForCausalLM(shape).eval().requires_grad_(False)
    torch.set_default_dtype(before)
    generator = torch.Generator(place).manual_seed(0)
    for weight in network.parameters():
        if weight.dim() == 1:
            weight.data.fill_(1)
        else:
            weight.data.uniform_(-0.03, 0.03, generator=generator)
    head = network.get_output_embeddings()
    return Network(LeanBody(network), head, head.out_features, dtype, place)


def random_prompts(count, length):
    """Prompts of random tokens."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 32_000, (count, length), generator=generator).tolist()
    rows = enumerate(ids)
    return tuple(EncodedPrompt(f"p{i}", "code", tuple(row), 0) for i, row in rows)


def halving(settings):
    """When memory runs out, does the recorder continue with half, and with the same records?"""
    needs_cuda(settings, "halving a block that does not fit")
    place = torch.device(settings.device)
    models = [random_model(WIDE, layers, place, torch.float32) for layers in (2, 1)]
    pair, prompts = Pair(*models, None, frozenset(), {}), random_prompts(64, 256)
    limits = {"max_prompt_tokens": 256, "max_new_tokens": 64, "max_packed_tokens": 384}
    job = Job(load_profile("paper").replace(**limits), (prompts,))
    warm = generate(pair.target, list(prompts[:1]), 2, frozenset(), GREEDY, 0)
    recorded(pair, prompts[0], warm[0])  # allocates the libraries' workspaces
    with peak(place) as writing:
        generate(pair.target, list(prompts), 64, frozenset(), GREEDY, 0)
    free = Worker(job, pair=pair).record(0).recorded
    with peak(place) as recording:
        recorded(pair, prompts[0], free[0].trace["token"].tolist(), 384)
    # less than either step needs, more than the smallest parts need
    room = int(0.75 * min(writing.bytes, recording.bytes))
    torch.cuda.empty_cache()
    limit = torch.cuda.memory_reserved(place) + room
    total = torch.cuda.get_device_properties(place).total_memory
    said = io.StringIO()
    torch.cuda.set_per_process_memory_fraction(limit / total, place)
    try:
        with contextlib.redirect_stderr(said):
            tight = Worker(job, pair=pair).record(0).recorded
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, place)
    found = Compared()
    for prompt, one, other in zip(prompts, tight, free, strict=True):
        found.add(compare_recorded(pair, prompt, one, other))
    lines = said.getvalue()
    halved = "block_prompts=" in lines and "max_packed_tokens=" in lines
    status = found.status(torch.float32) if halved else "failed"
    sizes = {"texts": writing.bytes, "record": recording.bytes, "allowed": room}
    words = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in sizes.items())
    facts = sizes | found.facts() | {"said": lines.splitlines()}
    return Outcome(status, f"{words}: {found.said()}", facts)


# layers of both models, and limits: enough for minutes on a T4, and less on a CPU
ON_CUDA = 8, {"prompts_per_domain": 20, "max_prompt_tokens": 512, "max_new_tokens": 64}
ON_A_CPU = 1, {"prompts_per_domain": 2, "max_prompt_tokens": 64, "max_new_tokens": 8}


def shapes(settings):
    """How does the memory of recording at the paper's shapes compare with `doctor`'s estimate?"""
    place = torch.device(settings.device)
    dtype = torch.float16 if settings.on_cuda else torch.bfloat16
    layers, limits = ON_CUDA if settings.on_cuda else ON_A_CPU
    profile = load_profile("paper").replace(domains=("code",), **limits)
    changes = {"num_hidden_layers": layers, "quantization_config": None}
    configs = [getattr(profile.notes, f"{which}_config") | changes for which in MODELS]
    name = str(dtype).removeprefix("torch.")
    models = [random_model(config, layers, place, dtype) for config in configs]
    pair = Pair(*models, None, frozenset(), {})
    prompts = random_prompts(profile.prompts_per_domain, profile.max_prompt_tokens)
    size = profile.block_prompts
    blocks = tuple(prompts[i : i + size] for i in range(0, len(prompts), size))
    worker = Worker(Job(profile, blocks), pair=pair)
    gc.collect()
    with peak(place) as used:
        for index in range(len(blocks)):
            worker.record(index)
    weights = dtype.itemsize * sum(parameter_count(model.network) for model in models)
    beside = (doctor.BESIDE_WEIGHTS - 1) * weights + doctor.OF_PROCESS
    facts = {"layers": layers, "dtype": name, "minutes": used.seconds / 60} | limits
    facts |= {"beside_weights_bytes": used.bytes, "planned_bytes": beside}
    said = (
        f"{layers} layers, {len(prompts)} prompts: {used.seconds / 60:.2f} min; without the "
        f"weights {used.bytes / 1e9:.3g} GB, planned {beside / 1e9:.3g}"
    )
    return Outcome("passed", said, facts)


CHECKS = {
    "machine": machine,
    "pairs": pairs,
    "packing": packing,
    "text": text,
    "sampling": sampling,
    "recorder": recorder,
    "gptq": gptq,
    "waits": waits,
    "attention": attention,
    "processes": processes,
    "halving": halving,
    "shapes": shapes,
}

ASKED = [name for name in CHECKS if name != "machine"]


def judged(name, settings):
    """Run one check, whatever happens: name, status, result, seconds, facts."""
    began = time.perf_counter()
    try:
        found = CHECKS[name](settings)
    except Skipped as reason:
        found = Outcome("skipped", str(reason), {})
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        lines = traceback.format_exc().splitlines()[-30:]
        said = f"{type(error).__name__}: {first}"
        found = Outcome("failed", said, {"traceback": lines})
    return told(name, time.perf_counter() - began, found)


def told(name, seconds, found):
    """A check's name, seconds and outcome as JSON data."""
    return {"name": name, "time_s": round(seconds, 3)} | asdict(found)


# ---- one check, in its own process ---------------------------------------------------------------


def in_child(name, settings):
    """The result of a check in its own process. A process that dies or exceeds LIMIT_S fails."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        asked = json.dumps(asdict(settings))
        command = [sys.executable, __file__, "--child", name, asked, str(result)]
        code, output = _ended(command)
        if result.is_file():
            return json.loads(result.read_text(encoding="utf-8"))
    seconds = time.monotonic() - began
    why = f"its process ended by signal {-code}" if code < 0 else f"exit status {code}"
    if seconds > LIMIT_S:
        why = f"it took longer than {LIMIT_S} s"
    found = Outcome("failed", why, {"output": output.splitlines()[-30:]})
    return told(name, seconds, found)


def _ended(command):
    """Exit status and output of a command. After LIMIT_S or Ctrl-C it is stopped with all its child
    processes.
    """
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    child = subprocess.Popen(command, cwd=ROOT, env=os.environ | quiet, **pipes)
    try:
        output, _ = child.communicate(timeout=LIMIT_S)
    except BaseException as error:
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(child.pid).children(recursive=True)
            for process in (*started, child):
                process.kill()
        output, _ = child.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
    return child.returncode, output


# ---- results -------------------------------------------------------------------------------------


def save(results, out):
    """Write the JSON file with the number of checks by status."""
    counted = Counter(one["status"] for one in results["checks"])
    said = ", ".join(f"{count} {status}" for status, count in counted.items())
    if results["machine"]["facts"].get("device") == "cpu":
        said = f"no CUDA device: ran on the CPU: {said}"
    results["summary"] = said + ("; stopped" if results["stopped"] else "")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def options(arguments=None):
    """The command line."""
    top = argparse.ArgumentParser("gpu-check", description=__doc__.split("\n")[0])
    add = top.add_argument
    add("--device", default="auto", help="cuda:0, cuda:1, … or cpu; auto: the first GPU")
    add("--only", nargs="+", choices=ASKED, metavar="CHECK", help=", ".join(ASKED))
    add("--out", type=Path, default=ROOT / "build" / "gpu-check.json", help="a .json file")
    add("--tokens", type=int, help="new tokens of a text")
    add("--literal-tokens", type=int, help="new tokens that the literal procedure follows")
    add("--child", nargs=3, help=argparse.SUPPRESS)
    return top.parse_args(arguments)


def main(arguments=None, run=in_child):
    """Run all checks, or those of --only. Returns 0, 1 if a check failed, or 130 if stopped."""
    given = options(arguments)
    if given.child:
        name, settings, out = given.child
        found = judged(name, Settings(**json.loads(settings)))
        Path(out).write_text(json.dumps(found), encoding="utf-8")
        return 0
    asked = Settings(given.device, given.literal_tokens, given.tokens)
    about = run("machine", asked)
    print(about["said"], flush=True)
    if about["status"] == "failed":
        return 1
    asked = asked.on(about["facts"]["device"], about["facts"]["formats"])
    results = {"machine": about, "checks": [], "stopped": True}
    try:
        for name in given.only or ASKED:
            found = run(name, asked)
            results["checks"].append(found)
            save(results, given.out)
            said = f"{found['status']:9} {found['time_s']:6.1f} s  {found['said']}"
            print(f"{name:10} {said}", flush=True)
        results["stopped"] = False
    except KeyboardInterrupt:
        return 130
    finally:
        save(results, given.out)
        print(f"{results['summary']}\n{given.out}")
    return int(any(one["status"] == "failed" for one in results["checks"]))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no check is left running
    sys.exit(main())

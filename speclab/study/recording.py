"""Blocks of prompts: the unit of work, checkpoint and distribution of a recording. One worker, or
several on devices or machines (cli/workers.py), record the blocks of a job in any order.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import psutil
import torch

from speclab.model import Pair
from speclab.plain import EncodedPrompt, Facts, Texts, notice
from speclab.record import Passes, Recorded, generate, record_prompts
from speclab.study.pairs import load_pair
from speclab.study.profiles import MODELS, Profile

SMALLEST = 8  # fewest packed tokens; if these do not fit into memory either, it is an error
# prompts whose texts a CPU writes at once, because each step reads all weights from memory; more
# than 32 rows are padded to 64 (models.model.Projection)
WRITTEN = 32


@dataclass(frozen=True)
class Done:
    """A finished block: its number, the records of its prompts, and facts for the manifest."""

    index: int
    recorded: list[Recorded]
    facts: Facts


@dataclass(frozen=True)
class Job:
    """The input of a worker.

    blocks: encoded prompts. texts: continuations from another run, by prompt_id, or None. threads:
    of a worker; as in the process that makes the job.
    """

    profile: Profile
    blocks: tuple[tuple[EncodedPrompt, ...], ...]
    texts: Texts | None = None
    threads: int = field(default_factory=torch.get_num_threads)


def peak_bytes() -> dict[str, int]:
    """Peak memory of this process, and of its models on each GPU, in bytes."""
    if sys.platform == "win32":
        peak = psutil.Process().memory_info().peak_wset
    else:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    of_gpus = {
        f"cuda:{index}": torch.cuda.max_memory_allocated(index)
        for index in range(torch.cuda.device_count())
    }
    return {"process": peak} | of_gpus


@dataclass
class Worker:
    """Holds a job and, from its first block on, the pair (both models on `device`, if given).

    As a Ray actor, a killed worker is restarted and repeats its block. ahead: whether texts of the
    next blocks are written together with those of a block, because this worker records them too.
    """

    job: Job
    device: str | None = None
    pair: Pair | None = None
    ahead: bool = False

    def __post_init__(self) -> None:
        # packed nodes, and in how many parts texts are written; less at once when memory runs out
        self.packed = self.job.profile.max_packed_tokens
        self.parts = 1
        self.texts = dict(self.job.texts or {})
        self.passes = Passes()

    def _write(self, pair: Pair, index: int) -> None:
        """Write the texts of a block, on a CPU with those of the other blocks of its group. Groups
        have fixed limits, so an interrupted recording writes the same texts again.
        """
        blocks = self.job.blocks
        profile = self.job.profile
        is_ahead = self.ahead and pair.target.device.type == "cpu"
        size = max(1, WRITTEN // len(blocks[0])) if is_ahead else 1
        first = index - index % size
        group = blocks[first : first + size]
        prompts = [prompt for block in group for prompt in block]
        limits = profile.max_new_tokens, pair.stop_ids, profile.sampling, profile.seed
        few = math.ceil(len(prompts) / self.parts)
        self.passes.clear()
        texts = []
        for start in range(0, len(prompts), few):
            part = prompts[start : start + few]
            texts += generate(pair.target, part, *limits, self.passes)
        self.texts = {one.prompt_id: text for one, text in zip(prompts, texts, strict=True)}

    def record(self, index: int) -> Done:
        """Record one block: its texts, then the records of each prompt. When memory runs out, half
        as much is done at once, a notice is printed, and the block starts again.
        """
        block, profile = self.job.blocks[index], self.job.profile
        if self.pair is None:  # loaded with the first block
            torch.set_num_threads(self.job.threads)
            there = {"device": self.device} if self.device else {}
            specs = {name: replace(getattr(profile, name), **there) for name in MODELS}
            self.pair = load_pair(profile.replace(**specs))
        began = time.perf_counter()
        while True:
            try:
                if block[0].prompt_id not in self.texts:
                    self._write(self.pair, index)
                texts = [self.texts[prompt.prompt_id] for prompt in block]
                how = profile.tree, profile.sampling, self.packed, self.passes
                recorded = record_prompts(self.pair, block, texts, *how)
                break
            except torch.OutOfMemoryError:
                if self.packed <= SMALLEST:
                    raise
            # after the except block, because the error keeps the tensors in memory
            self.passes.clear()
            torch.cuda.empty_cache()
            self.packed = max(self.packed // 2, SMALLEST)
            self.parts *= 2
            notice(
                f"out of memory: continuing with max_packed_tokens={self.packed}, and writing "
                f"texts in {self.parts} parts"
            )
        facts = {
            "time_s": time.perf_counter() - began,
            "pair": self.pair.facts,
            "peak_bytes": peak_bytes(),
            "max_packed_tokens": self.packed,
        }
        return Done(index, recorded, facts)


Engine = Callable[[Job, list[int]], Iterator[Done]]

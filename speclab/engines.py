"""Engines: who runs the blocks of a recording. In this process, in one process a device, or on actors of a Ray cluster.

Every engine runs the same `Job.record` and hands the records back to the one process that writes part files, so that no shared file
system is needed and the bytes on disk do not depend on the engine. An engine is a function of (job, block numbers) that yields
`Done` as blocks are finished, in any order.
"""

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from speclab.memory import packed_tokens_for
from speclab.parts import RunError
from speclab.profiles import ModelSpec, Profile
from speclab.prompts import EncodedPrompt

LOST = "a worker died ({error}); finished blocks are kept, the same command goes on from there"


@dataclass(frozen=True)
class Done:
    """A finished block: its number, the records of its prompts, and facts for the manifest."""

    index: int
    recorded: list
    facts: dict


@dataclass(frozen=True)
class Job:
    """What a worker needs: the profile, the blocks of encoded prompts, texts that another run holds (by prompt_id) or None, and the
    threads of a worker (None: as it finds them)."""

    profile: Profile
    blocks: tuple[tuple[EncodedPrompt, ...], ...]
    texts: dict | None = None
    threads: int | None = None

    def load(self, device: str | None = None) -> Any:
        """The pair of the profile, both models on `device` if one is given."""
        import torch

        from speclab.pairs import load_pair

        if self.threads:
            torch.set_num_threads(self.threads)
        models = {name: replace(getattr(self.profile, name), device=device) for name in ("target", "draft")} if device else {}
        return load_pair(self.profile.replace(**models))

    def record(self, pair: Any, index: int, packed: int | None = None) -> Done:
        """Record one block, `packed` nodes at a time (None: as the profile says; an earlier block may have had to go lower)."""
        from speclab.sampling import Sampling

        began, profile = time.perf_counter(), self.profile
        sampling = Sampling(profile.temperature, profile.top_k, profile.top_p)
        packed = packed or profile.max_packed_tokens
        recorded, packed = record_or_halve(pair, list(self.blocks[index]), profile, sampling, self.texts, packed)
        facts = {"time_s": time.perf_counter() - began, "pair": pair.facts, "peak_bytes": peak_bytes(), "max_packed_tokens": packed}
        return Done(index, recorded, facts)


def record_or_halve(
    pair: Any, block: list[EncodedPrompt], profile: Profile, sampling: Any, texts: dict | None, packed: int
) -> tuple[list, int]:
    """`record_block` and the packing it ran with; out of memory halves the packing, says so and goes on.

    So does writing the texts with the prompts that are written together: a text does not depend on its neighbours.
    """
    import torch

    from speclab.record import record_block

    texts = texts if texts is not None else _texts_or_halve(pair, block, profile, sampling)
    while True:
        try:
            made = record_block(pair, block, profile.tree, sampling, profile.max_new_tokens, profile.seed, packed, texts)
            return made, packed
        except torch.OutOfMemoryError:
            if packed <= 8:
                raise
            packed //= 2
        torch.cuda.empty_cache()  # after the except block: the error holds the tensors that did not fit
        print(f"out of memory: going on with max_packed_tokens={packed}", file=sys.stderr)


def _texts_or_halve(pair: Any, block: list[EncodedPrompt], profile: Profile, sampling: Any) -> dict[str, tuple[int, ...]]:
    import torch

    from speclab.record import generate

    try:
        made = generate(pair.target, block, profile.max_new_tokens, pair.stop_ids, sampling, profile.seed)
        return {p.prompt_id: text for p, text in zip(block, made, strict=True)}
    except torch.OutOfMemoryError:
        if len(block) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(block) // 2
    print(f"out of memory: going on with {half} prompts at once (block_prompts={half} says so from the start)", file=sys.stderr)
    return _texts_or_halve(pair, block[:half], profile, sampling) | _texts_or_halve(pair, block[half:], profile, sampling)


def peak_bytes() -> dict[str, int]:
    """Most memory this process has held, and its models on each GPU."""
    import resource

    import torch

    peaks = {f"cuda:{i}": torch.cuda.max_memory_allocated(i) for i in range(torch.cuda.device_count())}
    return {"process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)} | peaks


class Worker:
    """Holds a job and, from its first block on, the pair. As a Ray actor a killed one is started again and its block done anew."""

    def __init__(self, job: Job, device: str | None = None, pair: Any = None):
        self.job, self.device, self.pair, self.packed = job, device, pair, None

    def record(self, index: int) -> Done:
        """One block."""
        self.pair = self.pair or self.job.load(self.device)
        self.packed = self.packed or packed_tokens_for(self.pair, self.job.profile)
        done = self.job.record(self.pair, index, self.packed)
        self.packed = done.facts["max_packed_tokens"]
        return done


Engine = Callable[[Job, list[int]], Iterator[Done]]


def worker_threads() -> int | None:
    """Threads of this process, for workers that should compute as it does; None where torch is not loaded."""
    return sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None


# ---- in this process -------------------------------------------------------------------------------------------------


def in_process(job: Job, indices: list[int], pair: Any = None) -> Iterator[Done]:
    """One block after another with one pair, loaded here if it is not given."""
    worker = Worker(job, pair=pair)
    yield from map(worker.record, indices)


# ---- one process a device --------------------------------------------------------------------------------------------


_HERE: list[Worker] = []  # the worker of a worker process


def _start(job: Job, device: str) -> None:
    from speclab.notebook import quiet

    quiet()
    _HERE.append(Worker(job, device))


def _work(index: int) -> Done:
    return _HERE[0].record(index)


def on_devices(job: Job, indices: list[int], devices: list[str]) -> Iterator[Done]:
    """One process and one pair a device (`cuda:0`, `cuda:1`, …; `cpu` may be named several times), blocks to whichever is free."""
    import multiprocessing

    spawn, left, running = multiprocessing.get_context("spawn"), list(indices), {}
    pools = [ProcessPoolExecutor(1, spawn, _start, (job, device)) for device in devices[: len(indices)]]
    try:
        for pool in pools:
            running[pool.submit(_work, left.pop(0))] = pool
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                pool = running.pop(future)
                if left:
                    running[pool.submit(_work, left.pop(0))] = pool
                yield future.result()
    except BrokenProcessPool as error:
        raise RunError(LOST.format(error=error)) from error
    finally:
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)


# ---- a Ray cluster ---------------------------------------------------------------------------------------------------


def on_ray(job: Job, indices: list[int], workers: int | None = None) -> Iterator[Done]:
    """`workers` actors on the cluster that RAY_ADDRESS names, or on one started here for the call; None: one a GPU, else one a CPU."""
    try:
        import ray
    except ImportError as error:
        raise ValueError("engine 'ray' needs the package ray: pip install 'ray>=2.60,<3'") from error
    started = not ray.is_initialized()
    if started:
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        have = ray.cluster_resources()
        gpus, cpus = int(have.get("GPU", 0)), int(have.get("CPU", 1))
        count = min(workers or gpus or cpus, len(indices))
        if count > cpus or (gpus and count > gpus):
            raise ValueError(f"workers={count}: the cluster has {cpus} CPUs and {gpus} GPUs; one each is needed (workers share none)")
        remote = ray.remote(num_cpus=1, num_gpus=1 if gpus else 0, max_restarts=3, max_task_retries=3)(Worker)
        shared = ray.put(job)
        yield from _served([remote.remote(shared) for _ in range(count)], list(indices))
    finally:
        if started:
            ray.shutdown()


def _served(actors: list, left: list[int]) -> Iterator[Done]:
    """Blocks to whichever actor is free; an actor's own error is raised as it was there."""
    import ray

    running = {actor.record.remote(left.pop(0)): actor for actor in actors}
    while running:
        (ready,), _ = ray.wait(list(running), num_returns=1)
        actor = running.pop(ready)
        try:
            done = ray.get(ready)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise RunError(LOST.format(error=type(error).__name__)) from error
        if left:
            running[actor.record.remote(left.pop(0))] = actor
        yield done


def engine_of(name: str, devices: list[str], workers: int | None) -> Engine | None:
    """The engine of the command line's options; None: this process. ValueError for what does not go together."""
    if name not in ("local", "ray"):
        raise ValueError(f"engine={name!r}: allowed are local and ray")
    if (devices and name == "ray") or (workers is not None and name == "local"):
        raise ValueError("--devices goes with --engine local, --workers with --engine ray")
    for device in devices:
        ModelSpec("any", device=device)  # ValueError for a device that is none, before anything is loaded
    if workers is not None and workers < 1:
        raise ValueError(f"workers={workers}: allowed are whole numbers from 1")
    return partial(on_ray, workers=workers) if name == "ray" else partial(on_devices, devices=devices) if devices else None

"""Engines: they run the blocks of a recording in this process, in one process per device, or on
actors of a Ray cluster.

Every engine runs the same `Job.record` and returns the records to the one process that writes part
files. So no shared file system is needed, and the bytes on disk do not depend on the engine. An
engine is a function of (job, block numbers) that yields `Done` when a block is finished, in any
order.
"""

import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from functools import partial
from io import StringIO
from typing import Any

from speclab.models.pairs import device_of
from speclab.plain import ModelSpec
from speclab.study.recording import Done, Engine, Job, Worker
from speclab.study.runs import RunError

LOST = "a worker died ({error}). Finished blocks are kept; run the same command again to continue"


# ---- one process per device ----------------------------------------------------------------------


_HERE: list[Worker] = []  # the worker of a worker process


def _start(job: Job, devices: Any) -> None:
    from speclab.show.notebook import quiet

    quiet()
    sys.stdout = StringIO()  # the main process says what the kit leaves out
    _HERE.append(Worker(job, devices.get()))


def _work(index: int) -> Done:
    return _HERE[0].record(index)


def record_on_devices(job: Job, indices: list[int], devices: Sequence[str]) -> Iterator[Done]:
    """One process with one pair per device (`cuda:0`, `cuda:1`, …; `cpu` may be named several
    times). A free process takes the next block.
    """
    spawn = multiprocessing.get_context("spawn")
    waiting = spawn.SimpleQueue()  # every process takes one device as it starts
    for device in devices:
        waiting.put(device)
    pool = ProcessPoolExecutor(len(devices), spawn, _start, (job, waiting))
    try:
        for done in as_completed([pool.submit(_work, index) for index in indices]):
            yield done.result()
    except BrokenProcessPool as error:
        raise RunError(LOST.format(error=error)) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


# ---- a Ray cluster -------------------------------------------------------------------------------


def record_on_ray(job: Job, indices: list[int], workers: int | None = None) -> Iterator[Done]:
    """At most `workers` actors on the cluster at RAY_ADDRESS, or on a cluster that is started for
    this call: one per GPU, or one per CPU without GPUs. An actor's own error is raised unchanged.
    """
    import ray
    from ray.util import ActorPool

    quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
    with nullcontext() if ray.is_initialized() else ray.init(**quiet):
        have = ray.cluster_resources()
        needs = {"num_gpus": 1} if have.get("GPU") else {"num_cpus": 1}
        most = int(have.get("GPU") or have["CPU"])
        actor = ray.remote(**needs, max_restarts=3, max_task_retries=3)(Worker)
        shared = ray.put(job)
        count = min(workers or most, most, len(indices))
        pool = ActorPool([actor.remote(shared) for _ in range(count)])
        try:
            yield from pool.map_unordered(lambda one, index: one.record.remote(index), indices)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise RunError(LOST.format(error=type(error).__name__)) from error


def engine_of(name: str, devices: Sequence[str], workers: int | None) -> Engine | None:
    """The engine of the command line's options; None: this process. ValueError for options that
    exclude each other, ImportError without Ray.
    """
    if (devices and name == "ray") or (workers is not None and name == "local"):
        raise ValueError("--devices needs --engine local, and --workers needs --engine ray")
    for device in devices:  # before anything is loaded or written
        device_of(ModelSpec("any", device=device))
    if name == "ray":
        import ray  # noqa: F401

        return partial(record_on_ray, workers=workers)
    return partial(record_on_devices, devices=devices) if devices else None

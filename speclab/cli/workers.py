"""Engines: they run the blocks of a recording in this process, in one process per device, or on
actors of a Ray cluster.

Every engine runs the same `Job.record` and returns the records to the one process that writes part
files. So no shared file system is needed, and the bytes on disk do not depend on the engine. An
engine is a function of (job, block numbers) that yields `Done` when a block is finished, in any
order.
"""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec
from io import StringIO
from typing import Any

from speclab.models.pairs import device_of
from speclab.plain import ModelSpec
from speclab.record import Done, Engine, Job, Worker
from speclab.study.runs import RunError

NO_RAY = "engine 'ray' needs the package ray; run `pip install 'ray>=2.60,<3'`"
LOST = "a worker died ({error}). Finished blocks are kept; run the same command again to continue"


# ---- one process per device ----------------------------------------------------------------------


_HERE: list[Worker] = []  # the worker of a worker process


def _start(job: Job, devices: Any) -> None:
    from speclab.show.notebook import quiet

    quiet()
    _HERE.append(Worker(job, devices.get()))


def _work(index: int) -> Done:
    with redirect_stdout(StringIO()):  # the main process has said what the kit leaves out
        return _HERE[0].record(index)


def on_devices(job: Job, indices: list[int], devices: Sequence[str]) -> Iterator[Done]:
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


def on_ray(job: Job, indices: list[int], workers: int | None = None) -> Iterator[Done]:
    """`workers` actors on the cluster at RAY_ADDRESS, or on a cluster that is started for this
    call. None: one per GPU, or one per CPU without GPUs. An actor's own error is raised unchanged.
    """
    import ray
    from ray.util import ActorPool

    started = not ray.is_initialized()
    if started:
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        # one worker per GPU, or per core on machines without a GPU
        have = ray.cluster_resources()
        gpus, cpus = int(have.get("GPU", 0)), int(have.get("CPU", 1))
        count = min(workers or gpus or cpus, len(indices))
        if count > cpus or (gpus and count > gpus):
            raise ValueError(
                f"workers={count} is too many: the cluster has {cpus} CPUs and {gpus} GPUs, and "
                "each worker needs its own; lower --workers"
            )
        needs = {"num_cpus": 1, "num_gpus": 1 if gpus else 0}
        actor = ray.remote(**needs, max_restarts=3, max_task_retries=3)(Worker)
        shared = ray.put(job)
        pool = ActorPool([actor.remote(shared) for _ in range(count)])
        yield from pool.map_unordered(lambda worker, index: worker.record.remote(index), indices)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise RunError(LOST.format(error=type(error).__name__)) from error
    finally:
        if started:
            ray.shutdown()


def engine_of(name: str, devices: Sequence[str], workers: int | None) -> Engine | None:
    """The engine of the command line's options; None: this process. ValueError for options that
    exclude each other.
    """
    if (devices and name == "ray") or (workers is not None and name == "local"):
        raise ValueError("--devices needs --engine local, and --workers needs --engine ray")
    for device in devices:  # before anything is loaded or written
        device_of(ModelSpec("any", device=device))
    if name == "ray":
        if not find_spec("ray"):
            raise ValueError(NO_RAY)
        return partial(on_ray, workers=workers)
    return partial(on_devices, devices=devices) if devices else None

"""What is there: facts about this machine for `doctor`.

Looks only: downloads nothing, loads no weights, waits for nobody for long.
"""

import contextlib
import io
import os
import re
import shutil
import sys
import tomllib
import urllib.request
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from statistics import mean, median
from typing import Any

from packaging.requirements import Requirement

from speclab.ops.plan import Speed, held
from speclab.plain import read_json
from speclab.profiles import ROOT, ModelSpec, Profile
from speclab.prompts import HUB_SETS, MIRROR, Prompt, load_prompts
from speclab.show.notebook import cores_of_this_process, limit_threads, quiet

COMMIT = re.compile(r"[0-9a-f]{40}")
ASK_S = 3  # seconds that the hub has to answer
# of a bare product's speed that a whole pass reaches (tests/bench_shapes.py: 1.22 to 1.29 times its
# time, CPU alone)
SUSTAINED = 0.8


@dataclass(frozen=True)
class Gpu:
    """A GPU: its name, compute capability, and bytes of memory."""

    name: str
    capability: tuple[int, int]
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Found:
    """A model on this machine: `where` ('folder', 'cache', or '' for nowhere), its config.json,
    whether all its weights are there, bytes of those that `make pair` has yet to make, and what is
    broken of it (a line that ends with what to do).
    """

    where: str = ""
    config: dict | None = None
    whole: bool = False
    to_make: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Machine:
    """Facts about a machine; bytes are free ones.

    `kernels`: by model path, the class that GPTQModel itself would take.
    """

    python: tuple[int, int]
    packages: dict[str, str]
    gpus: tuple[Gpu, ...] = ()
    ram_bytes: int = 0
    disk_bytes: int = 0
    hub: bool = False
    nvcc: bool = False
    models: dict[str, Found] = field(default_factory=dict)
    datasets: frozenset[str] = frozenset()
    mirror: bool = False  # SPECLAB_DATASETS is set: data sets come from there alone
    kernels: dict[str, str] = field(default_factory=dict)
    cores: int = 1
    threads: int = 1
    speed: Speed | None = None
    prompt_chars: float = (
        0.0  # mean length of the prompts; 0 where they are not here yet
    )
    prompts_problem: str = ""  # why they cannot be read
    # by kind of run: "recorded", "shipped", "" (nowhere), or why it cannot be read; {}: not known
    runs: dict[str, str] = field(default_factory=dict)


def requirements(quantised: bool, to_make: bool = False) -> list[Requirement]:
    """What pyproject.toml asks for, with the extra `gptq` for a quantised model and `smollm` for
    weights that are to be made.
    """
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    extras = {"gptq": quantised, "smollm": to_make}
    wanted = [project["optional-dependencies"][name] for name in extras if extras[name]]
    return [Requirement(need) for need in sum(wanted, project["dependencies"])]


def _packages() -> dict[str, str]:
    found = {}
    for need in requirements(True, True):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[need.name] = metadata.version(need.name)
    return found


def _gpus() -> tuple[Gpu, ...]:
    import torch

    found = []
    for index in range(torch.cuda.device_count()):
        name, capability = (
            torch.cuda.get_device_name(index),
            torch.cuda.get_device_capability(index),
        )
        found.append(Gpu(name, capability, *torch.cuda.mem_get_info(index)))
    return tuple(found)


def _whole(folder: Path) -> bool:
    """All weight files are there: those that an index names, else any."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        from speclab.models.pairs import MEND

        named = read_json(index, MEND).get("weight_map")
        if not isinstance(named, dict):
            raise ValueError(f"{index} names no weights; {MEND}")
        return all((folder / str(name)).is_file() for name in named.values())
    return any(folder.glob("*.safetensors"))


def _cached(spec: ModelSpec) -> Path | None:
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(spec.path, revision=spec.revision, local_files_only=True)
        )
    # not cached, or not an id of the hub: each version of the client raises something else
    except Exception:
        return None


def find_model(spec: ModelSpec) -> Found:
    """Where `pairs.model_folder` would find a model without downloading it, and its config.json."""
    from speclab.models.pairs import MEND, check_folder, local_folder
    from speclab.ops.pair import source_of  # pandas: measured_speed does without

    folder = local_folder(spec)
    where, folder = ("folder", folder) if folder else ("cache", _cached(spec))
    if folder is None or not (folder / "config.json").is_file():
        return Found()
    config = None
    try:
        config = read_json(folder / "config.json", MEND)
        extra = folder / "quantize_config.json"
        if "quantization_config" not in config and extra.is_file():
            config["quantization_config"] = read_json(extra, MEND)
        whole, source = _whole(folder), source_of(folder)
        check_folder(folder)
    except ValueError as error:
        return Found(where, config, problem=str(error))
    return Found(where, config, whole, source.size if source and not whole else 0)


def _hub_answers() -> bool:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        with urllib.request.urlopen(
            urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=ASK_S
        ):
            return True
    except OSError:
        return False


def _datasets() -> frozenset[str]:
    """The paper's data sets that are under SPECLAB_DATASETS, or without it in the hub's cache."""
    from huggingface_hub import constants

    mirror = os.environ.get(MIRROR)
    if mirror:
        return frozenset(
            s.name for s in HUB_SETS.values() if (Path(mirror) / s.name).is_dir()
        )
    cache = Path(constants.HF_HUB_CACHE)
    return frozenset(
        s.name
        for s in HUB_SETS.values()
        if (cache / f"datasets--{s.name.replace('/', '--')}" / "snapshots").is_dir()
    )


def gptq_kernel(config: dict, spec: ModelSpec, device: str) -> str:
    """Name of the kernel class that GPTQModel selects for a quantised config.json on a device; ''
    where it cannot be asked.
    """
    try:
        import torch
        from gptqmodel import BACKEND
        from gptqmodel.utils.importer import select_quant_linear

        asked = config["quantization_config"]
        half = spec.dtype in ("float16", "bfloat16")
        layer = select_quant_linear(
            bits=asked["bits"],
            group_size=asked["group_size"],
            desc_act=asked.get("desc_act", False),
            sym=asked.get("sym", True),
            device=torch.device(device),
            backend=BACKEND.AUTO
            if spec.backend == "auto"
            else BACKEND(f"gptq_{spec.backend}"),
            pack_dtype=torch.int32,
            dtype=getattr(torch, spec.dtype) if half else None,
        )
        return layer.__name__
    except (
        Exception
    ):  # not installed, or no kernel of that name works here: the doctor then reasons
        return ""


def _kernels(profile: Profile, models: dict[str, Found], gpus: int) -> dict[str, str]:
    found = {}
    for spec in (profile.target, profile.draft):
        config = models[spec.path].config
        if config and "quantization_config" in config:
            try:
                device = held(spec, config, gpus).device
            except ValueError:  # the doctor has a line for it
                continue
            if device == "cpu" or int(device.partition(":")[2]) < gpus:
                found[spec.path] = gptq_kernel(config, spec, device)
    return {path: kernel for path, kernel in found.items() if kernel}


def measured_speed(device: str, dtype: Any = None) -> Speed:
    """What this device sustains in `dtype` (default: float32 on a CPU, float16 on a GPU), timed for
    a fraction of a second.

    Operations from a square matrix product; bytes from a matrix times one row, which is what
    decoding does; SUSTAINED of both.
    """
    import torch

    from speclab.models.model import timed

    place, n = torch.device(device), 1024 if device == "cpu" else 4096
    dtype = dtype or (torch.float32 if device == "cpu" else torch.float16)
    square, large = (
        torch.ones(size, size, device=place, dtype=dtype) for size in (n, 8192)
    )
    product, row = (
        (lambda: square @ square),
        (lambda: torch.nn.functional.linear(large[:1], large)),
    )
    for work in (product, row):
        work()
    times = [median(timed(work, place) for _ in range(7)) for work in (product, row)]
    rates = SUSTAINED * 2 * n**3 / times[0], SUSTAINED * large.nbytes / times[1]
    return Speed(*rates, 0.2e-3 if device == "cpu" else Speed.layer_s)


def _prompts(profile: Profile) -> tuple[list[Prompt], str]:
    """The profile's prompts, or why they cannot be read; the paper's would be fetched: none."""
    if profile.prompts == "paper":
        return [], ""
    try:
        asked = profile.prompts_per_domain, profile.domains
        return load_prompts(profile.prompts, *asked), ""
    except ValueError as error:
        return [], str(error)


def _runs(profile: Profile, prompts: list[Prompt]) -> dict[str, str]:
    """By kind, where its run can be read without models; {} where its key is not known, as the
    models or the prompts are not here.
    """
    from speclab import runs
    from speclab.models.pairs import local_folder

    specs = (profile.target, profile.draft)
    known = [local_folder(s) or COMMIT.fullmatch(s.revision or "") for s in specs]
    if not all(known) or not prompts:
        return {}
    found = {}
    for kind in runs.KINDS:
        try:
            found[kind] = _run(profile, kind)
        except (runs.RunError, ValueError) as error:
            found[kind] = str(error)
    return found


def _run(profile: Profile, kind: str) -> str:
    from speclab import runs

    run = runs.recorded_run(profile, kind)
    if run is None:
        return ""
    return "recorded" if run.folder.is_relative_to(runs.RUNS) else "shipped"


def _disk() -> int:
    from huggingface_hub import constants

    place = Path(constants.HF_HUB_CACHE)
    place = next(p for p in (place, *place.parents) if p.exists())
    return min(shutil.disk_usage(p).free for p in (place, ROOT))


def probe(profile: Profile) -> Machine:
    """The facts of this machine that a profile depends on."""
    import psutil

    quiet()
    threads = limit_threads()
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):  # notices of the libraries
        gpus, models = (
            _gpus(),
            {spec.path: find_model(spec) for spec in (profile.target, profile.draft)},
        )
        kernels = _kernels(profile, models, len(gpus))
    datasets, (prompts, prompts_problem) = _datasets(), _prompts(profile)
    away = not all(found.whole or found.to_make for found in models.values()) or (
        profile.prompts == "paper" and len(datasets) < len(HUB_SETS)
    )
    device = {"auto": "cuda:0" if gpus else "cpu", "cuda": "cuda:0"}.get(
        profile.target.device, profile.target.device
    )
    here = device == "cpu" or int(device.partition(":")[2]) < len(gpus)
    return Machine(
        python=sys.version_info[:2],
        packages=_packages(),
        gpus=gpus,
        ram_bytes=psutil.virtual_memory().available,
        disk_bytes=_disk(),
        hub=away and _hub_answers(),
        nvcc=shutil.which("nvcc") is not None,
        models=models,
        datasets=datasets,
        mirror=bool(os.environ.get(MIRROR)),
        kernels=kernels,
        cores=cores_of_this_process(),
        threads=threads,
        speed=measured_speed(device) if here else None,
        prompt_chars=mean(len(p.text) for p in prompts) if prompts else 0.0,
        prompts_problem=prompts_problem,
        runs=_runs(profile, prompts),
    )

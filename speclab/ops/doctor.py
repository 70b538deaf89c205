"""`make doctor PROFILE=t4`: one page that says whether a profile runs here, a line a question: ok,
or what to do. Downloads nothing and loads no weights.

`probe` looks at the machine, `examine` makes the lines; bytes and minutes are `plan`'s.
"""

import contextlib
import dataclasses
import io
import os
import platform
import shutil
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import mean

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from speclab import runs
from speclab.ops.pair import source_of
from speclab.ops.plan import (
    MEND,
    T4,
    USUAL_TOKENS,
    Speed,
    cached,
    config_of,
    device_of,
    folder_of,
    measured_speed,
    planned_bytes,
    planned_minutes,
    planned_pair,
)
from speclab.plain import read_json
from speclab.profiles import MODELS, ROOT, Profile
from speclab.prompts import HUB_SETS, MIRROR, Prompt
from speclab.runs import RunError
from speclab.show.notebook import limit_threads, quiet

FIGURES = ROOT / "figures"
ASK_S = 3  # seconds that the hub has to answer
SPARE_BYTES = 1_000_000_000  # room on the disk for runs, figures and caches
CHARS_PER_TOKEN = 3  # of English and code, rather few


@dataclass(frozen=True)
class Line:
    """One answer; `do` says what has to be done, and is empty when all is well."""

    subject: str
    text: str
    do: str = ""

    def __str__(self) -> str:
        if self.do:
            return f"do  {self.subject}: {self.text}\n    -> {self.do}"
        return f"ok  {self.subject}: {self.text}"


def _complaint(subject: str, error: Exception, do: str = "mend it") -> Line:
    """A line of an error, whose message may end with what to do."""
    text, _, own = str(error).partition("; ")
    return Line(subject, text, own or do)


# ---- the machine ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """Facts about a machine: free bytes by device (cpu, cuda:0, …), names of its GPUs, free bytes
    of the disk, whether the hub answers, and the speed of the target's device.
    """

    free: Mapping[str, int]
    gpus: tuple[str, ...]
    disk_bytes: int
    hub: bool
    speed: Speed | None  # None where that device is not there


def probe(profile: Profile) -> Machine:
    """The facts of this machine that a profile depends on."""
    import psutil
    from huggingface_hub import constants
    from torch import cuda

    limit_threads()
    gpus = range(cuda.device_count())
    free = {f"cuda:{i}": cuda.mem_get_info(i)[0] for i in gpus}
    free["cpu"] = psutil.virtual_memory().available
    device = device_of(profile.target, len(gpus))
    return Machine(
        free,
        tuple(cuda.get_device_name(i) for i in gpus),
        shutil.disk_usage(ROOT).free,
        not constants.HF_HUB_OFFLINE and _answers(constants.ENDPOINT),
        measured_speed(device) if device in free else None,
    )


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=ASK_S):
            return True
    except OSError:
        return False


# ---- lines ---------------------------------------------------------------------------------------


def check_packages(profile: Profile) -> Iterator[Line]:
    """Python and the packages are in the ranges of pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project, python = tomllib.loads(text)["project"], platform.python_version()
    allowed = project["requires-python"]
    do = "" if python in SpecifierSet(allowed) else f"use Python {allowed}"
    yield Line("Python", python, do)
    needs = project["dependencies"]
    if any(quantised(profile, which) for which in MODELS):
        needs = needs + project["optional-dependencies"]["gptq"]
    lacking = []
    for need in map(Requirement, needs):
        try:
            have = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            have = "missing"
        if have == "missing" or not need.specifier.contains(have, prereleases=True):
            lacking.append(Line(need.name, have, f"pip install '{need}'"))
    yield from lacking or [Line("packages", f"all {len(needs)} are in range")]


def quantised(profile: Profile, which: str) -> bool:
    """Whether a model is quantised, as far as that is known."""
    try:
        return bool(config_of(profile, which).get("quantization_config"))
    except ValueError:  # a line of the model says it
        return False


def check_device(profile: Profile, which: str, machine: Machine) -> Line:
    """A model's device is there, and its kernel works on it."""
    spec = getattr(profile, which)
    device, backend = device_of(spec, len(machine.gpus)), spec.backend
    subject = f"{which} on {device}"
    if device not in machine.free:
        do = "turn a GPU on, --set device=cuda:0 (both models on one GPU), or --profile tiny"
        return Line(subject, f"this machine has {len(machine.gpus)} GPUs", do)
    text, do = f"{machine.free[device] / 1e9:.1f} GB free", ""
    if device == "cpu" and spec.dtype in ("float16", "bfloat16"):
        do = "half precision is slow on a CPU: --set dtype=float32"
    if quantised(profile, which):
        text += f", 4-bit kernel: {backend}"
        if device == "cpu" and backend in ("triton", "marlin"):
            do = f"{backend} needs a GPU: --set backend=torch"
        elif (
            device != "cpu"
            and backend in ("auto", "marlin")
            and not shutil.which("nvcc")
        ):
            do = "Marlin is compiled on first use and nvcc is not here: --set backend=triton"
    return Line(subject, text, do)


def check_model(profile: Profile, which: str, machine: Machine) -> Line:
    """A model is here, whole, or can be made or fetched."""
    from speclab.models.pairs import check_folder

    spec = getattr(profile, which)
    subject, folder = f"{which} {spec.path}", folder_of(spec)
    if folder is None:
        return _away(subject, spec.path, machine, "SPECLAB_MODELS")
    try:
        check_folder(folder)
        source, there = source_of(folder), _has_all_weights(folder)
    except ValueError as error:
        return _complaint(subject, error)
    if there:
        return Line(subject, "is here")
    do = f"make pair PROFILE={profile.name}" if source else MEND
    return Line(subject, "its weights are not here", do)


def _away(subject: str, name: str, machine: Machine, variable: str) -> Line:
    """Of a model or data set that is not here."""
    if machine.hub and name.count("/") == 1:
        return Line(subject, "will be fetched from the hub")
    do = f"turn internet on, or attach it and set {variable}"
    return Line(subject, "not here, and not to be had from the hub", do)


def _has_all_weights(folder: Path) -> bool:
    """All weight files are there: those that an index names, else any."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return any(folder.glob("*.safetensors"))
    named = read_json(index, MEND).get("weight_map", {})
    return all((folder / name).is_file() for name in named.values())


def check_tokenizers(profile: Profile) -> Iterator[Line]:
    """Both tokenizers agree on the ids that the models share; no line where one is not here."""
    from speclab.models.pairs import check_vocabularies, load_tokenizer

    folders = [folder_of(spec) for spec in (profile.target, profile.draft)]
    if all(folders):
        try:
            sizes = [config_of(profile, which).get("vocab_size", 0) for which in MODELS]
            shared = check_vocabularies(*map(load_tokenizer, folders), sizes)
            yield Line("tokenizers", f"agree on all {shared} ids")
        except ValueError as error:
            yield _complaint("tokenizers", error, "use a draft of the target's family")


def check_prompts(
    profile: Profile, prompts: list[Prompt], machine: Machine
) -> Iterator[Line]:
    """The paper's data sets are here or can be fetched; prompts of files were read."""
    if prompts:
        yield Line("prompts", f"{len(prompts)} of {profile.prompts}")
    elif profile.prompts == "paper":
        for hub_set in HUB_SETS.values():
            subject, mirror = f"data set {hub_set.name}", os.environ.get(MIRROR)
            there = cached(hub_set.name, hub_set.revision, "dataset")
            if mirror:  # data sets come from there alone
                machine = dataclasses.replace(machine, hub=False)
                there = (Path(mirror) / hub_set.name).is_dir()
            away = _away(subject, hub_set.name, machine, MIRROR)
            yield Line(subject, "is here") if there else away


def check_runs(profile: Profile, prompts: list[Prompt]) -> Iterator[Line]:
    """Which kinds of runs can be read without the models, and which are yet to be recorded; a line
    for each trace that is damaged.
    """
    from speclab.models.pairs import local_folder

    pair = profile.target, profile.draft
    named = [local_folder(spec) or len(spec.revision or "") == 40 for spec in pair]
    if not prompts or not all(named):  # asking for a run would download something
        yield Line("runs", "not known before models and prompts are here")
        return
    kinds = {"runs read without the models": [], "runs to be recorded": []}
    there, lacking = kinds.values()
    for kind in runs.KINDS:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                (there if runs.recorded_run(profile, kind) else lacking).append(kind)
        except (RunError, ValueError) as error:
            yield _complaint(f"run {kind}", error)
    yield from (Line(said, ", ".join(found)) for said, found in kinds.items() if found)


def check_writable() -> Iterator[Line]:
    """Runs and figures can be written."""
    for place in (runs.RUNS, FIGURES):
        near = next(p for p in (place, *place.parents) if p.exists() or p.is_symlink())
        try:
            with tempfile.TemporaryFile(dir=near):
                yield Line(place.name, "can be written")
        except OSError as error:
            text, do = (
                f"cannot write {place} ({error.strerror})",
                "make it a folder of yours",
            )
            yield Line(place.name, text, do)


def check_plan(
    profile: Profile, machine: Machine, prompts: list[Prompt]
) -> Iterator[Line]:
    """Bytes on disk and on each device against what is free there, and minutes."""
    try:
        pair = planned_pair(profile, len(machine.gpus))
    except ValueError as error:
        yield Line("memory and minutes", f"not known: {error}")
        return
    specs, fetched = (profile.target, profile.draft), SPARE_BYTES
    for model, spec in zip(pair, specs, strict=True):
        fetched += 0 if folder_of(spec) else model.stored
    do = "free space, or set HF_HOME to a larger disk"
    yield _room("disk", fetched, machine.disk_bytes, do)
    do = "--set block_prompts=<fewer>, shorter prompts, 4 bit, or a smaller pair"
    for device, need in planned_bytes(profile, pair).items():
        free = machine.free.get(device)  # None: the line of the device says what to do
        yield _room(f"memory of {device}", need, free, do)
    speed, source = machine.speed, "this machine's speed, measured now"
    if pair[0].device != "cpu" and (not machine.gpus or "T4" in machine.gpus[0]):
        speed, source = T4, "a T4's usual speed"
    if speed is None:
        yield Line("minutes", "not known: the machine's speed was not measured")
        return
    chars = [len(prompt.text) for prompt in prompts]
    usual = mean(chars) / CHARS_PER_TOKEN if chars else USUAL_TOKENS
    low, high = planned_minutes(profile, pair, speed, usual)
    yield Line("minutes", f"{low:.1f} to {high:.1f} to record all prompts, by {source}")


def _room(subject: str, need: int, free: int | None, do: str) -> Line:
    if free is None:
        return Line(subject, f"{need / 1e9:.1f} GB needed")
    text = f"{need / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free"
    return Line(subject, text, "" if need <= free else do)


# ---- the page ------------------------------------------------------------------------------------


def examine(profile: Profile, machine: Machine) -> list[Line]:
    """Every line about a profile on a machine."""
    prompts, broken = [], []
    if profile.prompts != "paper":  # those would be downloaded
        try:
            prompts = runs.profile_prompts(profile)
        except ValueError as error:
            do = "mend it, or change prompts or prompts_per_domain"
            broken = [_complaint("prompts", error, do)]
    return [
        *check_packages(profile),
        *(check_device(profile, which, machine) for which in MODELS),
        *(check_model(profile, which, machine) for which in MODELS),
        *check_tokenizers(profile),
        *(broken or check_prompts(profile, prompts, machine)),
        *check_runs(profile, prompts),
        *check_writable(),
        *check_plan(profile, machine, prompts),
    ]


def report(profile: Profile) -> tuple[str, int]:
    """The lines about a profile on this machine as text, and how many of them ask for something."""
    quiet()
    with contextlib.redirect_stderr(io.StringIO()):  # notices of the libraries
        lines = examine(profile, probe(profile))
    todo = sum(1 for line in lines if line.do)
    verdict = f"{todo} to do" if todo else "all is well"
    return "\n".join([*map(str, lines), "", f"{profile.name}: {verdict}"]), todo

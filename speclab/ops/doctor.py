"""`make doctor PROFILE=t4`: one page that says whether a profile runs here, a line a question: ok,
or what to do. Downloads nothing and loads no weights.

A question is a function that returns what is well, or raises a ValueError 'what is not; what to
do'. Bytes and minutes are `plan`'s.
"""

import contextlib
import io
import os
import tomllib
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from speclab import runs
from speclab.ops import plan
from speclab.profiles import MODELS, ROOT, ModelSpec, Profile
from speclab.prompts import HUB_SETS, MIRROR
from speclab.show.notebook import limit_threads, quiet

FIGURES = ROOT / "figures"
ASK_S = 3  # seconds that the hub has to answer
UNKNOWN = "not known before models and prompts are here"


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


def answered(subject: str, question: Callable[..., str], *about: Any) -> Line:
    """The line of a question."""
    try:
        return Line(subject, question(*about))
    except (runs.RunError, ValueError) as error:
        text, _, do = str(error).partition("; ")
        return Line(subject, text, do or "mend it")


def _hub_answers() -> bool:
    from huggingface_hub import constants

    try:
        with urllib.request.urlopen(constants.ENDPOINT, timeout=ASK_S):
            return not constants.HF_HUB_OFFLINE
    except OSError:
        return False


# ---- questions -----------------------------------------------------------------------------------


def packages(profile: Profile) -> str:
    """Are the packages in the ranges of pyproject.toml?"""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    needs = project["dependencies"]
    if "quantization_config" in profile.notes.get("target_config", {}):
        needs = needs + project["optional-dependencies"]["gptq"]
    if lacking := [f"'{need}'" for need in needs if not _in_range(Requirement(need))]:
        raise ValueError(f"{len(lacking)} are lacking; pip install {' '.join(lacking)}")
    return f"all {len(needs)} are in range"


def _in_range(need: Requirement) -> bool:
    try:
        have = version(need.name)
    except PackageNotFoundError:
        return False
    return need.specifier.contains(have, prereleases=True)


def memory(need: int, free: int | None) -> str:
    """Is the device there, with as many bytes free as the recording needs?"""
    needed = f"{need / 1e9:.1f} GB needed"
    if free is None:
        raise ValueError(
            f"{needed}, not on this machine; turn a GPU on, --set device=cuda:0 (one GPU for "
            "both), or --profile tiny"
        )
    text = f"{needed}, {free / 1e9:.1f} GB free"
    if need > free:
        raise ValueError(
            f"{text}; --set block_prompts=<fewer>, shorter prompts, 4 bit, or a smaller pair"
        )
    return text


def model(spec: ModelSpec, hub: bool) -> str:
    """Is a model here, whole, or can it be made or fetched?"""
    from speclab.models.pairs import check_folder, weight_bytes

    folder = plan.folder_of(spec)
    if folder is None:
        return _away(spec.path, hub, "SPECLAB_MODELS")
    check_folder(folder)
    weight_bytes(folder)
    return "is here"


def _away(name: str, hub: bool, variable: str) -> str:
    if hub and name.count("/") == 1:
        return "will be fetched from the hub"
    raise ValueError(
        "not here, and not to be had from the hub; turn internet on, or attach it and set "
        f"{variable}"
    )


def tokenizers(profile: Profile) -> str:
    """Do both tokenizers agree on the ids that the models share?"""
    from speclab.models.pairs import check_vocabularies, load_tokenizer

    folders = [plan.folder_of(spec) for spec in (profile.target, profile.draft)]
    if not all(folders):
        return UNKNOWN
    sizes = [plan.config_of(profile, name)["vocab_size"] for name in MODELS]
    shared = check_vocabularies(*map(load_tokenizer, folders), sizes)
    return f"agree on all {shared} ids"


def prompts(profile: Profile) -> str:
    """Can the prompts of files be read?"""
    return f"{len(runs.profile_prompts(profile))} of {profile.prompts}"


def data_set(name: str, revision: str, hub: bool) -> str:
    """Is one of the paper's data sets here, or can it be fetched?"""
    mirror = os.environ.get(MIRROR)  # where it is set, data sets come from there alone
    there = (
        Path(mirror, name).is_dir()
        if mirror
        else plan.cached(name, revision, "dataset")
    )
    return "is here" if there else _away(name, hub and not mirror, MIRROR)


def recorded(profile: Profile) -> str:
    """Which kinds of runs can be read without the models?"""
    from speclab.models.pairs import local_folder

    pair = profile.target, profile.draft
    named = [local_folder(spec) or len(spec.revision or "") == 40 for spec in pair]
    if profile.prompts == "paper" or not all(named):  # to ask would download something
        return UNKNOWN
    there = [kind for kind in runs.KINDS if runs.recorded_run(profile, kind)]
    return f"read without the models: {', '.join(there) or 'none'}"


def writable(place: Path) -> str:
    """Can runs, or figures, be written?"""
    near = next(path for path in (place, *place.parents) if path.exists())
    if not near.is_dir() or not os.access(near, os.W_OK):
        raise ValueError(f"{place} cannot be written; make it a folder of yours")
    return "can be written"


def minutes(profile: Profile, pair: plan.Planned, speed: plan.Speed | None) -> str:
    """How long does a recording take?"""
    low, high = plan.planned_minutes(profile, pair, speed or plan.T4)
    whose = "this machine's speed" if speed else "a T4's usual speed"
    return f"{low:.1f} to {high:.1f} to record all prompts, by {whose}"


# ---- the page ------------------------------------------------------------------------------------


def examine(
    profile: Profile, free: Mapping[str, int], hub: bool, speed: plan.Speed | None
) -> Iterator[Line]:
    """Every line about a profile on a machine: `free` bytes by device (cpu, cuda:0, …), whether the
    hub answers, and the speed of the target's device (None where that is not there).
    """
    yield answered("packages", packages, profile)
    for spec in (profile.target, profile.draft):
        yield answered(f"model {spec.path}", model, spec, hub)
    yield answered("tokenizers", tokenizers, profile)
    if profile.prompts == "paper":
        for one in HUB_SETS.values():
            yield answered(
                f"data set {one.name}", data_set, one.name, one.revision, hub
            )
    else:
        yield answered("prompts", prompts, profile)
    yield answered("runs", recorded, profile)
    for place in (runs.RUNS, FIGURES):
        yield answered(f"folder {place.name}", writable, place)
    try:
        pair = plan.planned_pair(profile, len(free) - 1)
    except ValueError as error:
        yield Line("memory and minutes", f"not known: {error}")
        return
    for device, need in plan.planned_bytes(profile, pair).items():
        yield answered(f"memory of {device}", memory, need, free.get(device))
    yield Line("minutes", minutes(profile, pair, speed))


def report(profile: Profile) -> tuple[str, int]:
    """The lines about a profile on this machine as text, and how many of them ask for something."""
    import torch

    from speclab.models.pairs import free_bytes

    quiet()
    limit_threads()
    gpus = torch.cuda.device_count()
    devices = ["cpu", *(f"cuda:{i}" for i in range(gpus))]
    free = {device: free_bytes(torch.device(device)) for device in devices}
    device = plan.planned_device(profile.target, gpus)
    with contextlib.redirect_stderr(io.StringIO()):  # notices of the libraries
        speed = plan.measured_speed(device) if device in free else None
        lines = list(examine(profile, free, _hub_answers(), speed))
    todo = sum(1 for line in lines if line.do)
    verdict = f"{todo} to do" if todo else "all is well"
    return "\n".join([*map(str, lines), "", f"{profile.name}: {verdict}"]), todo

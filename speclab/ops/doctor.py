"""`python -m speclab doctor --profile t4`: will this profile run here?

A line a question, ok or what to do; downloads nothing.

`machine.probe` looks at the machine, `examine` is a pure function of what it found.
"""

import textwrap
from dataclasses import dataclass

from speclab.ops import plan
from speclab.ops.pair import SPARE
from speclab.ops.plan import Held
from speclab.ops.probe import Found, Machine, probe, requirements
from speclab.profiles import ModelSpec, Profile
from speclab.prompts import HUB_SETS, MIRROR

CHARS_PER_TOKEN = 3  # of English and code, rather few
SWITCH = (
    "turn one on (Kaggle: Settings, Accelerator, GPU T4 x2; Colab: Runtime, Change runtime type), "
    "or --profile tiny"
)
# of the paper's data sets at the revisions of HUB_SETS
PAPER_ROWS = {"code": 164, "math": 1187, "reasoning": 1319, "chat": 207_865}
SPARE_BYTES = 1_000_000_000  # room on the disk for runs, figures and caches


WIDTH = 60  # a phone held upright


@dataclass(frozen=True)
class Line:
    """One answer; `do` says what has to be done, and is empty when all is well."""

    subject: str
    text: str
    do: str = ""

    def __str__(self) -> str:
        head = textwrap.fill(
            f"{'do' if self.do else 'ok'}  {self.subject}: {self.text}",
            WIDTH,
            subsequent_indent=" " * 4,
        )
        return head + (
            "\n"
            + textwrap.fill(
                f"-> {self.do}",
                WIDTH,
                initial_indent=" " * 4,
                subsequent_indent=" " * 7,
            )
            if self.do
            else ""
        )


def python_line(version: tuple[int, int]) -> Line:
    """Python 3.11 to 3.13."""
    good = (3, 11) <= version <= (3, 13)
    do = "" if good else "use Python 3.11, 3.12 or 3.13"
    return Line("Python", ".".join(map(str, version)), do)


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


# ---- what is asked -------------------------------------------------------------------------------


def _specs(profile: Profile) -> dict[str, ModelSpec]:
    return {"target": profile.target, "draft": profile.draft}


def _config(profile: Profile, machine: Machine, which: str) -> dict | None:
    """The model's config.json, else what the profile's notes say of it."""
    found = machine.models.get(_specs(profile)[which].path, Found())
    return found.config or profile.notes.get(f"{which}_config")


def _quantised(profile: Profile, machine: Machine) -> list[str]:
    return [
        which
        for which in _specs(profile)
        if "quantization_config" in (_config(profile, machine, which) or {})
    ]


def _held(profile: Profile, machine: Machine) -> tuple[Held, Held] | None:
    """Both models as the plan holds them; None where it cannot: `_unknown` says why."""
    return None if _unknown(profile, machine) else _planned(profile, machine)


def _planned(profile: Profile, machine: Machine) -> tuple[Held, ...]:
    return tuple(
        plan.held(spec, _config(profile, machine, which), len(machine.gpus))
        for which, spec in _specs(profile).items()
    )


def _unknown(profile: Profile, machine: Machine) -> str:
    """Why nothing can be planned; "" where it can."""
    if not all(_config(profile, machine, which) for which in _specs(profile)):
        return "not known before config.json is here"
    try:
        _planned(profile, machine)
    except ValueError as error:
        return f"not known: {error}"
    return ""


def _complaint(subject: str, said: str) -> Line:
    """A line of a message that ends with what to do."""
    text, _, do = said.partition("; ")
    return Line(subject, text, do or "mend it")


# ---- lines ---------------------------------------------------------------------------------------


def check_python(machine: Machine) -> list[Line]:
    """Python 3.11 to 3.13."""
    return [python_line(machine.python)]


def check_packages(profile: Profile, machine: Machine) -> list[Line]:
    """One line if all ranges of pyproject.toml hold, else one for each package that is missing or
    outside.
    """
    to_make = any(found.to_make for found in machine.models.values())
    lines, wanted = [], requirements(bool(_quantised(profile, machine)), to_make)
    for need in wanted:
        have = machine.packages.get(need.name)
        if have is None or not need.specifier.contains(have, prereleases=True):
            lines.append(Line(need.name, have or "missing", f"pip install '{need}'"))
    main = ", ".join(
        f"{n} {machine.packages[n]}"
        for n in ("torch", "transformers", "gptqmodel")
        if n in machine.packages
    )
    return lines or [Line("packages", f"all {len(wanted)} in range ({main})")]


def _device_line(which: str, spec: ModelSpec, machine: Machine) -> Line:
    device = (
        spec.device if spec.device != "auto" else ("cuda:0" if machine.gpus else "cpu")
    )
    subject, index = f"{which} on {device}", int(device.partition(":")[2] or 0)
    if device == "cpu":
        slow = spec.dtype in ("float16", "bfloat16")
        return Line(
            subject,
            f"{_gb(machine.ram_bytes)} free",
            "half precision is slow on a CPU: --set dtype=float32" if slow else "",
        )
    if index >= len(machine.gpus):
        here = f"this machine has {len(machine.gpus)} GPUs"
        if machine.gpus:
            return Line(
                subject,
                here,
                "--set device=cuda:0 (both models on one GPU), or take a machine with more",
            )
        return Line(subject, here, SWITCH)
    gpu = machine.gpus[index]
    major, minor = gpu.capability
    memory_text = f"{_gb(gpu.free_bytes)} of {_gb(gpu.total_bytes)} free"
    text = f"{gpu.name}, capability {major}.{minor}, {memory_text}"
    if gpu.capability < (8, 0):
        old = (
            "it has no bfloat16: --set dtype=float16"
            if spec.dtype == "bfloat16"
            else ""
        )
        return Line(
            subject,
            f"{text}; no bfloat16, no FlashAttention-2 (neither is used)"
            if not old
            else text,
            old,
        )
    return Line(subject, text)


def check_devices(profile: Profile, machine: Machine) -> list[Line]:
    """The device of each model is there and takes its dtype."""
    return [
        _device_line(which, spec, machine) for which, spec in _specs(profile).items()
    ]


def check_models(profile: Profile, machine: Machine) -> list[Line]:
    """Each model is in a folder, in the hub's cache, or can be fetched; revisions that are not
    pinned are said.
    """
    lines = []
    for which, spec in _specs(profile).items():
        found, subject = machine.models.get(spec.path, Found()), f"{which} {spec.path}"
        loose = (
            "" if spec.revision or found.where == "folder" else "; revision not pinned"
        )
        if found.problem:
            lines.append(_complaint(subject, found.problem))
        elif found.where and found.whole:
            lines.append(
                Line(
                    subject,
                    f"in a {found.where}{loose}"
                    if found.where == "folder"
                    else f"in the hub's cache{loose}",
                )
            )
        elif found.to_make:
            text = f"its weights are yet to be made ({_gb(found.to_make)}, once)"
            do = f"make pair PROFILE={profile.name}"
            lines.append(Line(subject, text, do))
        elif found.where == "folder":
            lines.append(
                Line(
                    subject,
                    "weights are missing or cut",
                    "copy its *.safetensors again, all that its index names",
                )
            )
        elif machine.hub and spec.path.count("/") == 1:
            lines.append(Line(subject, f"will be fetched from the hub{loose}"))
        else:
            lines.append(
                Line(
                    subject,
                    "not here, and the hub is out of reach",
                    "turn internet on, or attach it and set SPECLAB_MODELS",
                )
            )
    return lines


def check_prompts(profile: Profile, machine: Machine) -> list[Line]:
    """The paper's data sets are in a folder, in the cache, or can be fetched; other prompts are
    files.
    """
    if profile.prompts == "paper":
        few = [d for d in profile.domains if PAPER_ROWS[d] < profile.prompts_per_domain]
        if few:
            has = ", ".join(f"{domain} {PAPER_ROWS[domain]}" for domain in few)
            most = min(PAPER_ROWS[domain] for domain in few)
            asked = f"{profile.prompts_per_domain} a domain are asked, there are {has}"
            return [Line("prompts", asked, f"--set prompts_per_domain={most}")]
        missing = [s.name for s in HUB_SETS.values() if s.name not in machine.datasets]
        if not missing:
            return [Line("prompts", "the paper's four data sets are here")]
        if machine.hub and not machine.mirror:
            return [
                Line(
                    "prompts",
                    f"{len(missing)} of the paper's data sets will be fetched from the hub",
                )
            ]
        return [
            Line(
                "prompts",
                f"not here: {', '.join(missing)}",
                f"turn internet on, or attach copies and set {MIRROR}",
            )
        ]
    if machine.prompts_problem:
        do = "mend it, or change prompts or prompts_per_domain (--set, or the profile)"
        return [Line("prompts", machine.prompts_problem, do)]
    return [Line("prompts", f"{profile.prompts}, as many as are asked")]


def check_runs(profile: Profile, machine: Machine) -> list[Line]:
    """Which kinds of runs can be read without the models, which are yet to be recorded, and which
    are damaged.
    """
    words = {
        "shipped": "read without the models (shipped traces)",
        "recorded": "read without the models (recorded here)",
        "": "yet to be recorded",
    }
    by_place: dict[str, list[str]] = {}
    for place in (*words, *machine.runs.values()):
        by_place[place] = [k for k, where in machine.runs.items() if where == place]
    said = [f"{words[p]}: {', '.join(by_place[p])}" for p in words if by_place[p]]
    broken = [
        _complaint(f"runs {', '.join(kinds)}", problem)
        for problem, kinds in by_place.items()
        if problem not in words
    ]
    if not machine.runs:
        said = ["not known before models and prompts are here"]
    return [Line("runs", "; ".join(said)) for _ in said[:1]] + broken


def check_disk(profile: Profile, machine: Machine) -> list[Line]:
    """Room for what will be fetched or made, and some for runs."""
    need, models = SPARE_BYTES, _held(profile, machine)
    if models:
        for spec, model in zip(_specs(profile).values(), models, strict=True):
            found = machine.models.get(spec.path, Found())
            need += 0 if found.where else model.shape.weight_bytes(2)
            need += int(SPARE * found.to_make)
    do = (
        ""
        if machine.disk_bytes >= need
        else "free space, or set HF_HOME to a larger disk"
    )
    return [Line("disk", f"{_gb(machine.disk_bytes)} free, {_gb(need)} needed", do)]


def kernel_by_rule(backend: str, capability: tuple[int, int] | None) -> str:
    """The kernel that GPTQModel 7.6 picks for 4-bit weights, reasoned; `capability` None is a CPU.

    From its table of priorities (Marlin 90, ExLlamaV2 80, Triton 40): Marlin from capability 7.5
    on.
    """
    if backend != "auto":
        return backend
    return (
        "torch"
        if capability is None
        else "marlin"
        if capability >= (7, 5)
        else "exllama_v2"
    )


def check_kernels(profile: Profile, machine: Machine) -> list[Line]:
    """Which GPTQ kernel a quantised model gets, and whether it can work here."""
    lines, models = [], _held(profile, machine)
    for which in _quantised(profile, machine) if models else []:
        spec, device = (
            _specs(profile)[which],
            models[0 if which == "target" else 1].device,
        )
        index = int(device.partition(":")[2] or 0)
        gpu = (
            machine.gpus[index]
            if device != "cpu" and index < len(machine.gpus)
            else None
        )
        own = machine.kernels.get(spec.path)
        kernel = own or kernel_by_rule(
            spec.backend,
            (7, 5) if gpu is None and device != "cpu" else gpu and gpu.capability,
        )
        do = ""
        if "marlin" in kernel.lower() and not machine.nvcc:
            do = (
                "it is compiled on first use and nvcc is not here: --set backend=triton"
            )
        if device == "cpu" and spec.backend in ("triton", "marlin"):
            do = f"{spec.backend} needs a GPU: --set backend=torch"
        note = (
            "; unpacks all weights at every pass"
            if any(k in kernel.lower() for k in ("torch", "triton"))
            else ""
        )
        if "triton" in kernel.lower() and gpu and gpu.capability < (8, 0):
            note += "; Triton promises 8.0 and up: if it fails here, backend=marlin or torch"
        lines.append(
            Line(
                f"kernel of the {which}",
                f"{kernel} ({'GPTQModel says so' if own else 'reasoned'}){note}",
                do,
            )
        )
    return lines


def _smaller_block(
    profile: Profile, models: tuple[Held, Held], free: dict[str, int]
) -> str:
    for size in range(profile.block_prompts - 1, 0, -1):
        peaks = plan.peaks(plan.plan(profile.replace(block_prompts=size), *models))
        if all(need.total <= free[device] for device, need in peaks.items()):
            return f"--set block_prompts={size}"
    return "a smaller pair, 4 bit, shorter prompts, or a model a GPU (profile paper)"


def check_memory(profile: Profile, machine: Machine) -> list[Line]:
    """The plan of `memory` against what is free on each device."""
    models = _held(profile, machine)
    if models is None:
        return [Line("memory", _unknown(profile, machine))]
    free = {f"cuda:{i}": gpu.free_bytes for i, gpu in enumerate(machine.gpus)} | {
        "cpu": machine.ram_bytes
    }
    peaks = plan.peaks(plan.plan(profile, *models))
    if not all(device in free for device in peaks):
        return [
            Line(
                "memory",
                "; ".join(f"{d} needs {_gb(n.total)}" for d, n in peaks.items())
                + " (see devices)",
            )
        ]
    fits = all(need.total <= free[device] for device, need in peaks.items())
    advice, lines = "" if fits else _smaller_block(profile, models, free), []
    for device, need in peaks.items():
        parts = ", ".join(
            f"{name} {_gb(size)}" for name, size in need.parts.items() if size > 5e7
        )
        text = (
            f"needs {_gb(need.total)} at most, in {need.stage} ({parts}); "
            f"{_gb(free[device])} free"
        )
        lines.append(
            Line(
                f"memory of {device}",
                text,
                "" if need.total <= free[device] else advice,
            )
        )
    return lines


def check_time(profile: Profile, machine: Machine) -> list[Line]:
    """Minutes that recording takes, reasoned: at this machine's speed as measured just now; at a
    T4's where that is here, or none is.
    """
    models = _held(profile, machine)
    if models is None:
        return [Line("time", _unknown(profile, machine))]
    on_gpu = models[0].device != "cpu"
    if on_gpu and (not machine.gpus or "T4" in machine.gpus[0].name):
        speed, source = plan.T4, "a T4's usual speed"
    elif machine.speed:
        speed, source = machine.speed, "this machine's speed, measured now"
    else:
        return [Line("time", "not known: the machine's speed was not measured")]
    most = plan.seconds(profile, *models, speed) / 60
    likely = min(profile.max_prompt_tokens, machine.prompt_chars / CHARS_PER_TOKEN)
    text = (
        f"about {plan.seconds(profile, *models, speed, likely) / 60:.1f} min to record, "
        if likely
        else ""
    )
    longest = profile.max_prompt_tokens
    limit = f"{most:.1f} if every prompt had {longest} tokens and no text ended early"
    return [
        Line(
            "time",
            f"{text}{limit} (reasoned from {source}; downloads and loading left out)",
        )
    ]


def check_threads(machine: Machine) -> list[Line]:
    """No more threads than cores."""
    many = machine.threads > machine.cores
    return [
        Line(
            "threads",
            f"{machine.threads} on {machine.cores} cores",
            f"export OMP_NUM_THREADS={machine.cores}" if many else "",
        )
    ]


def examine(profile: Profile, machine: Machine) -> list[Line]:
    """Every line about a profile on a machine."""
    checks = (
        check_packages,
        check_devices,
        check_models,
        check_prompts,
        check_runs,
        check_disk,
        check_kernels,
        check_memory,
        check_time,
    )
    return (
        check_python(machine)
        + [line for check in checks for line in check(profile, machine)]
        + check_threads(machine)
    )


def report(profile: Profile) -> tuple[str, int]:
    """The lines about a profile on this machine as text, and how many of them ask for something."""
    lines = examine(profile, probe(profile))
    todo = sum(1 for line in lines if line.do)
    verdict = (
        f"{todo} of {len(lines)} lines have something to do" if todo else "all is well"
    )
    text = "\n".join(str(line) for line in lines)
    return f"{text}\n\n{profile.name}: {verdict}", todo

"""`make doctor PROFILE=t4`: one page that says whether a profile runs on this machine. Each
question has a line: ok, or what to do. It loads no weights, and downloads at most the config.json
of models.

A question is a function that returns what is fine, or raises a ValueError 'what is wrong; what to
do'. Bytes are computed by `plan`.
"""

import contextlib
import io
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from speclab.cli import plan
from speclab.cli.hosted import lacking
from speclab.cli.run_plan import can_be_told
from speclab.models import hub
from speclab.models.folder import MEND, ModelFolder, cached
from speclab.place import folder_of
from speclab.plain import ModelSpec, one_line, shown
from speclab.show.notebook import limit_threads, quiet
from speclab.study import runs
from speclab.study.pairs import left_out_in_words, read_by_target
from speclab.study.profiles import MODELS, Profile
from speclab.study.prompts import HUB_SETS, MIRROR

ASK_S = 3  # seconds that the hub has to answer
UNKNOWN = "unknown until models and prompts are on this machine"


def answered(subject: str, question: Callable[..., str], *about: Any) -> str:
    """The line of a question: `ok` with what is fine, or `do` with what has to be done."""
    try:
        return f"ok  {shown(subject)}: {shown(question(*about))}"
    except Exception as error:  # libraries raise whatever they like at a file of others
        known = isinstance(error, runs.RunError | ValueError)
        said = error if known else f"{type(error).__name__}: {error}; {MEND}"
        text, _, do = shown(one_line(said)).partition("; ")
        return f"do  {shown(subject)}: {text}\n    -> {do or 'fix it'}"


# ---- questions -----------------------------------------------------------------------------------


def packages(profile: Profile) -> str:
    """Are the packages in the ranges of pyproject.toml?"""
    quantised = "quantization_config" in profile.notes.target_config
    has_head = plan.OF_HEAD in plan.known_config(profile, "draft")
    missing = lacking() + lacking("gptq") * quantised + lacking("heads") * has_head
    if missing:
        options = " --gptq" * quantised + " --heads" * has_head
        command = "python -m speclab hosted install" + options
        raise ValueError(f"missing or out of range: {', '.join(missing)}; run `{command}`")
    return "all fit"


def model(spec: ModelSpec, answers: bool) -> str:
    """Is a model complete on this machine, or can it be made or downloaded?"""
    folder = ModelFolder.local(spec) or ModelFolder.whole(spec)
    if folder is None:
        said = _away(spec.path, answers, "SPECLAB_MODELS")
        return f"{said}, {hub.size(spec) / 1e9:.2f} GB"  # a gated model says so here
    folder.check()
    return f"on this machine, {folder.bytes / 1e9:.2f} GB"


def network(profile: Profile, which: str, answers: bool) -> str:
    """Can the kit use the model that a config.json describes, and for contexts of this length?"""
    if plan.known_config(profile, which) or answers:
        with contextlib.suppress(hub.ModelsMissing):  # the line of the model says it
            return plan.model_line(profile, which, answers)
    return UNKNOWN


def data_set(name: str, revision: str, answers: bool) -> str:
    """Is one of the paper's data sets on this machine, or can it be downloaded?"""
    if mirror := folder_of(MIRROR):  # data sets come from there alone
        there, answers = (mirror / name).is_dir(), False
    else:
        there = bool(cached(name, revision, "dataset"))
    return "on this machine" if there else _away(name, answers, MIRROR)


def _away(name: str, answers: bool, variable: str) -> str:
    if answers and name.count("/") == 1:
        return "will be downloaded from the hub"
    raise ValueError(
        "not on this machine, and the hub does not answer; turn internet on, or attach it and set "
        f"{variable}"
    )


def tokenizers(profile: Profile) -> str:
    """Do both tokenizers agree on the ids that the models share? A head has the target's."""
    from speclab.models.pairs import check_vocabularies

    target, draft = (ModelFolder.whole(getattr(profile, name)) for name in MODELS)
    if not (target and draft):
        return UNKNOWN
    if draft.is_head:
        sizes = target.text.vocab_size, draft.config[plan.OF_HEAD]["vocab_size"]
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"the target has {sizes[0]:,} ids, but the head was made for a target with "
                f"{sizes[1]:,}; use a head that was trained for this target"
            )
        said = draft.config["draft_vocab_size"]
        return f"the head uses the target's {sizes[0]:,} ids, and outputs {said:,}"
    sizes = target.text.vocab_size, draft.text.vocab_size
    shared = check_vocabularies(target.tokenizer, draft.tokenizer, sizes)
    return f"agree on all {shared:,} ids"


def prompts(profile: Profile) -> str:
    """Can the prompts of files be read, and the target's tokenizer and template take them?"""
    known = runs.profile_prompts(profile)
    if ModelFolder.whole(profile.target):
        read_by_target(profile, known)
    return f"{len(known)} in {profile.prompts}"


def generation(profile: Profile) -> str:
    """Does the target ask for settings of generation that the kit leaves out?"""
    if not ModelFolder.whole(profile.target):
        return UNKNOWN
    sampled = profile.replace(temperature=profile.sampled_temperature)
    return left_out_in_words(sampled) or "nothing that would change the texts is left out"


def recorded(profile: Profile) -> str:
    """Which kinds of runs can be read without the models?"""
    if not can_be_told(profile):
        return UNKNOWN
    kinds = []
    for kind in runs.kinds_of(profile):
        with contextlib.suppress(ValueError):  # the line of prompts or tokenizers says it
            if runs.recorded_run(profile, kind):
                kinds.append(kind)
    return f"readable without the models: {', '.join(kinds) or 'none'}"


def memory(need: int, free: int | None) -> str:
    """Does the device exist, and has it the free bytes that the recording needs at most?"""
    needed = f"at most {need / 1e9:.1f} GB needed (a coarse estimate)"
    if free is None:
        raise ValueError(
            f"{needed}, but this machine has no such device; turn a GPU on, use one GPU for both "
            "models (--set device=cuda:0), or use --profile tiny"
        )
    text = f"{needed}, {free / 1e9:.1f} GB free"
    if need > free:
        raise ValueError(
            f"{text}; lower block_prompts (--set), or use shorter prompts, 4 bit or a smaller pair"
        )
    return text


def gpu(device: str) -> str:
    """Does torch have kernels for this GPU?"""
    import torch

    about = torch.cuda.get_device_properties(device)
    said = f"{about.name}, compute capability {about.major}.{about.minor}"
    try:
        torch.ones(1, device=device).sum().item()
    except RuntimeError as error:
        kernels = ", ".join(torch.cuda.get_arch_list())
        raise ValueError(
            f"{said}, but this torch has kernels for {kernels} only ({error}); choose another GPU "
            "(on Kaggle: GPU T4 x2)"
        ) from None
    return f"{said}, {about.total_memory / 1e9:.1f} GB"


# ---- the page ------------------------------------------------------------------------------------


def examine(profile: Profile, free: Mapping[str, int], answers: bool) -> Iterator[str]:
    """Every line about a profile on a machine: `free` bytes by device (cpu, cuda:0, …), and whether
    the hub `answers`.
    """
    yield answered("packages", packages, profile)
    for spec in (profile.target, profile.draft):
        yield answered(f"model {spec.path}", model, spec, answers)
    for which in MODELS:
        yield answered(which, network, profile, which, answers)
    yield answered("tokenizers", tokenizers, profile)
    if profile.prompts in HUB_SETS:
        for hub_set in HUB_SETS[profile.prompts].values():
            name = hub_set.name
            yield answered(f"data set {name}", data_set, name, hub_set.revision, answers)
    else:
        yield answered("prompts", prompts, profile)
    yield answered("generation", generation, profile)
    yield answered("runs", recorded, profile)
    try:
        pair = plan.planned_pair(profile, len(free) - 1, answers)
        needed = plan.planned_bytes(profile, pair)
    except Exception as error:
        yield f"ok  memory: unknown ({shown(error)})"
        return
    for device, need in needed.items():
        yield answered(f"memory of {device}", memory, need, free.get(device))
    if on_host := [held.on_host for held in pair if held.device != "cpu"]:
        yield answered("memory to load the models", memory, max(on_host), free["cpu"])


def report(profile: Profile) -> tuple[str, int]:
    """The lines about a profile on this machine as text, and how many ask for something."""
    import torch

    from speclab.models.pairs import free_bytes

    quiet()
    limit_threads()
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    free = {device: free_bytes(torch.device(device)) for device in ("cpu", *gpus)}
    lines = [answered(f"GPU {device}", gpu, device) for device in gpus]
    with contextlib.redirect_stderr(io.StringIO()):  # notices of the libraries
        lines += examine(profile, free, _hub_answers())
    todo = sum(line.startswith("do") for line in lines)
    verdict = f"{todo} to do" if todo else "ready"
    return "\n".join([*lines, "", f"{profile.name}: {verdict}"]), todo


def _hub_answers() -> bool:
    from huggingface_hub import constants

    try:
        with urllib.request.urlopen(constants.ENDPOINT, timeout=ASK_S):
            return not constants.HF_HUB_OFFLINE
    except OSError:
        return False

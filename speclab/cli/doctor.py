"""`make doctor PROFILE=t4`: a table that says whether a profile runs on this machine. Each question
has a row: ok, or what to do. It loads no weights, and downloads at most settings and tokenizers.

A question is a function that returns what is fine, or raises a ValueError 'what is wrong; what to
do'.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib import import_module
from importlib.metadata import version
from io import StringIO
from typing import Any

from speclab.cli.hosted import lacking, missing_package
from speclab.models import hub
from speclab.models.folder import ModelFolder, check_torchvision
from speclab.models.support import check_spec
from speclab.plain import one_line
from speclab.show.notebook import limit_threads, quiet
from speclab.study.profiles import MODELS, ROOT, Profile

# what recording takes about: bytes for each byte of weights, and bytes of the process
BESIDE_WEIGHTS, OF_PROCESS = 1.3, 1.5e9
LEAST_DISK = 1e9  # bytes


def answer(subject: str, question: Callable[..., str], *about: Any) -> str:
    """The row of a question: `ok` and what is fine, or `do` and what is wrong and to be done."""
    try:
        return f"ok  {subject}: {one_line(question(*about))}"
    except ImportError as error:
        said = missing_package(error)
    except Exception as error:  # libraries raise whatever they like at a file of others
        said = str(error) if isinstance(error, ValueError) else repr(error)
    wrong, _, cure = one_line(said).partition("; ")
    return f"do  {subject}: {wrong}\n    -> {cure or 'correct it'}"


# ---- questions -----------------------------------------------------------------------------------


def packages() -> str:
    """Are the kit's packages in their ranges? Also how much `pip check` says, which may be about
    packages that the kit does not use.
    """
    check_torchvision()
    if missing := lacking() + lacking("models"):
        raise ValueError(
            f"missing or out of range: {', '.join(missing)}; run `python -m speclab hosted install`"
        )
    command = [sys.executable, "-m", "pip", "check"]
    done = subprocess.run(command, capture_output=True, text=True)
    remarks = len(done.stdout.splitlines()) * bool(done.returncode)
    return f"torch {version('torch')}; pip check has {remarks} remarks"


def gpu(device: str) -> str:
    """Does torch have kernels for this GPU?"""
    import torch

    about = torch.cuda.get_device_properties(device)
    said = f"{about.name}, compute capability {about.major}.{about.minor}"
    try:
        torch.ones(1, device=device).sum().item()
    except RuntimeError as error:
        raise ValueError(
            f"{said}, but this torch has no kernels for it ({error}); choose another GPU (on "
            "Kaggle: GPU T4 x2)"
        ) from None
    return said


def model(profile: Profile, which: str) -> str:
    """Can the kit use a model, is it on this machine or on the hub, and has its device room? The
    memory is estimated from the size of its files.
    """
    from speclab.models.pairs import device_of, free_bytes

    spec = profile.models[which]
    folder = check_spec(spec, profile.positions, which)
    if folder.quantised:
        import_module("gptqmodel")
    if folder.is_head:
        import_module("speculators")

    # where its weights are
    if is_here := folder.has_weights:
        folder.check()
    size = folder.bytes if is_here else hub.size(spec)
    where = "on this machine" if is_here else "will be downloaded from the hub"

    # the memory of its device
    device = device_of(spec)
    need, free = BESIDE_WEIGHTS * size + OF_PROCESS, free_bytes(device)
    said = (
        f"{spec.path} {where}, {size / 1e6:,.1f} MB. Recording needs about {need / 1e9:.1f} GB "
        f"(a coarse estimate), {free / 1e9:.1f} GB are free on {device}"
    )
    if need > free:
        raise ValueError(f"{said}; use another device, 4 bit or a smaller pair (--profile tiny)")
    return said


def shared_tokens(profile: Profile) -> str:
    """Which tokens can the draft propose? Tokenizers and settings say it."""
    from speclab.models.vocabularies import spelling_of

    target, draft = (ModelFolder.fetched(getattr(profile, m)) for m in MODELS)
    if draft.is_head:
        return "a trained head has its target's"
    size, own = target.text.vocab_size, draft.text.vocab_size
    found = spelling_of(target.tokenizer, draft.tokenizer, (size, own))
    if found is None:
        return f"both models share {min(size, own):,} ids"
    common = len(found[1])
    return f"the draft can propose {common:,} of the target's {size:,} tokens (two vocabularies)"


def disk() -> str:
    """Is there room for runs?"""
    free = shutil.disk_usage(ROOT).free
    if free < LEAST_DISK:
        raise ValueError(f"{free / 1e9:.1f} GB free in {ROOT}; make room for runs")
    return f"{free / 1e9:.1f} GB free for runs"


# ---- the table -----------------------------------------------------------------------------------


def report(profile: Profile) -> tuple[str, int]:
    """The table about a profile on this machine as text, and how many rows ask for something."""
    import torch

    quiet()
    limit_threads()
    with redirect_stderr(StringIO()):  # notices of the libraries
        gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        rows = [answer("packages", packages), *(answer(name, gpu, name) for name in gpus)]
        rows += [answer(which, model, profile, which) for which in profile.models]
        rows += [answer("vocabularies", shared_tokens, profile), answer("disk", disk)]
    todo = sum(row.startswith("do") for row in rows)
    verdict = f"{todo} to do" if todo else "ready"
    return "\n".join([*rows, "", f"{profile.name}: {verdict}"]), todo

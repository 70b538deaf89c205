"""GPTQ with GPTQModel: a model folder in, a 2- to 8-bit model folder out, loaded by the same code
as any GPTQ model of the hub.

`quantised_copy` makes both forms of a quantised draft: the packed one, which says what it weighs,
and one of the same weights unpacked to float32. On a CPU the kernels of packed layers compute in
bfloat16 and round otherwise for every shape of pass; the unpacked copy has no such noise, so
acceptance is measured with it. Its time is that of a float32 model, not of a 4-bit kernel.
"""

import contextlib
import hashlib
import importlib.util
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from filelock import FileLock

os.environ.setdefault(
    "GPTQMODEL_CPU_WORKERS", "2"
)  # its pool asks for two workers also where there is one core

BITS = (2, 3, 4, 8)


@dataclass(frozen=True)
class QuantisedCopy:
    """A quantised model on disk: `packed` (GPTQ), `plain` (the same weights in float32), and the
    packed file's `weight_bytes`.
    """

    packed: Path
    plain: Path
    bits: int
    weight_bytes: int


def available() -> bool:
    """True where GPTQModel, an optional extra, is installed."""
    return importlib.util.find_spec("gptqmodel") is not None


def _checked(calibration: list[list[int]], bits: int, group_size: int) -> None:
    if bits not in BITS:
        raise ValueError(f"bits={bits}: GPTQ takes {', '.join(map(str, BITS))}")
    if group_size != -1 and group_size < 1:
        raise ValueError(
            f"group_size={group_size}: allowed are -1 (a whole row) and whole numbers from 1 that divide a layer's inputs"
        )
    if not calibration:
        raise ValueError("calibration is empty: GPTQ needs some rows of tokens")
    if not available():
        raise ValueError(
            'gptqmodel is not installed: pip install "speclab[gptq]" (or go on without quantised models)'
        )


@contextlib.contextmanager
def _scratch() -> Iterator[None]:
    """A place where GPTQModel does no harm: a working folder for its ./logs, nobody to hear its
    banners, the root logger as it was.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(stack.enter_context(tempfile.TemporaryDirectory())))
        nobody = stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(contextlib.redirect_stdout(nobody))
        stack.enter_context(contextlib.redirect_stderr(nobody))
        try:
            yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)


def quantise(
    folder: Path, out: Path, calibration: list[list[int]], bits: int = 4, group_size: int = 64
) -> None:
    """Quantise the linear layers of the model in `folder` to `bits`, calibrated on token rows, and
    save it with its tokenizer in `out`.

    Raises ValueError for a bit width or group size GPTQ does not take, without calibration rows, or
    without GPTQModel.
    """
    _checked(calibration, bits, group_size)
    folder, out = Path(folder).resolve(), Path(out).resolve()
    rows = [
        {
            "input_ids": torch.tensor([row]),
            "attention_mask": torch.ones(1, len(row), dtype=torch.long),
        }
        for row in calibration
    ]
    with _scratch():
        from gptqmodel import BACKEND, GPTQModel, QuantizeConfig

        model = GPTQModel.load(
            str(folder),
            QuantizeConfig(bits=bits, group_size=group_size, offload_to_disk=False),
            device="cpu",
            trust_remote_code=False,
        )
        model.quantize(rows, batch_size=1, backend=BACKEND.TORCH)
        model.save(str(out))


def dequantise(packed: Path, out: Path) -> None:
    """Write the GPTQ model in `packed` to `out` with float32 weights: scale times (code - zero),
    computed in float32, so exactly equal.
    """
    packed, out = Path(packed).resolve(), Path(out).resolve()
    with _scratch():
        from gptqmodel.utils.model_dequant import dequantize_model

        dequantize_model(packed, out, target_dtype=torch.float32)
    for stale in (
        "quantize_config.json",
        "quant_log.csv",
    ):  # the copy is no quantised model any more
        (out / stale).unlink(missing_ok=True)


def quantised_copy(
    folder: Path, work: Path, calibration: list[list[int]], bits: int = 4, group_size: int = 64
) -> QuantisedCopy:
    """The model in `folder` quantised and unpacked, under `work`; made once for the same weights,
    rows, bits, group size and library.

    A call that was killed leaves nothing that would be taken for a finished copy. ValueError as
    `quantise`.
    """
    from speclab.runs import weights_digest

    _checked(calibration, bits, group_size)
    settings = [weights_digest(Path(folder)), calibration, bits, group_size, version("gptqmodel")]
    place = (
        Path(work) / f"int{bits}-{hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]}"
    )
    with _finished(place) as partial:
        if partial:
            quantise(folder, partial / "packed", calibration, bits, group_size)
            dequantise(partial / "packed", partial / "plain")
    return QuantisedCopy(place / "packed", place / "plain", bits, _weight_bytes(place / "packed"))


def unpacked(packed: Path, work: Path) -> QuantisedCopy:
    """A GPTQ model that is there already, and its float32 copy under `work`, made once for the same
    weights.
    """
    from speclab.runs import weights_digest

    packed = Path(packed)
    place = Path(work) / f"plain-{weights_digest(packed)[:16]}"
    with _finished(place) as partial:
        if partial:
            dequantise(packed, partial / "plain")
    bits = json.loads((packed / "config.json").read_text())["quantization_config"]["bits"]
    return QuantisedCopy(packed, place / "plain", bits, _weight_bytes(packed))


@contextlib.contextmanager
def _finished(place: Path) -> Iterator[Path | None]:
    """None where `place` is there; else a folder to fill, which gets that name when it is done."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(
        place.with_name(f".{place.name}.lock")
    ):  # a second process waits, and finds it finished
        if place.is_dir():
            yield None
            return
        partial = place.with_name(f".{place.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        partial.rename(place)


def _weight_bytes(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.glob("*.safetensors"))

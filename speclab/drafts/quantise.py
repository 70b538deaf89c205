"""GPTQ with GPTQModel: a model folder in, a 2- to 8-bit model folder out, loaded by the same code
as any GPTQ model of the hub.

`quantised_copy` makes both forms of a quantised draft: the packed one, which says what it weighs,
and one of the same weights unpacked to float32. On a CPU the kernels of packed layers compute in
bfloat16 and round otherwise for every shape of pass; the unpacked copy has no such noise, so
acceptance is measured with it. Its time is that of a float32 model, not of a 4-bit kernel.
"""

import contextlib
import importlib.util
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from speclab.drafts.texts import hash_of
from speclab.runs import locked, weights_digest

# its pool asks for two workers also where there is one core
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")


GROUP = 64  # inputs that share a scale


@dataclass(frozen=True)
class QuantisedCopy:
    """A quantised model on disk: `packed` (GPTQ), `plain` (the same weights in float32)."""

    packed: Path
    plain: Path

    @property
    def weight_bytes(self) -> int:
        """Of the packed files."""
        return sum(file.stat().st_size for file in self.packed.glob("*.safetensors"))


def available() -> bool:
    """True where GPTQModel, an optional extra, is installed."""
    return importlib.util.find_spec("gptqmodel") is not None


@contextlib.contextmanager
def _scratch() -> Iterator[None]:
    """A place where GPTQModel does no harm: a working folder for its ./logs, nobody to hear its
    banners, the root logger as it was.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        open(os.devnull, "w") as nobody,
        contextlib.redirect_stdout(nobody),
        contextlib.redirect_stderr(nobody),
    ):
        try:
            yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)


def quantise(
    folder: Path,
    out: Path,
    calibration: list[list[int]],
    bits: int = 4,
) -> None:
    """Quantise the linear layers of the model in `folder` to `bits`, calibrated on token rows, and
    save it with its tokenizer in `out`. ValueError for what GPTQ does not take.
    """
    folder, out = folder.resolve(), out.resolve()
    tokens = [torch.tensor([row]) for row in calibration]
    rows = [{"input_ids": t, "attention_mask": torch.ones_like(t)} for t in tokens]
    with _scratch():
        from gptqmodel import BACKEND, GPTQModel, QuantizeConfig

        config = QuantizeConfig(bits=bits, group_size=GROUP, offload_to_disk=False)
        options = {"device": "cpu", "trust_remote_code": False}
        model = GPTQModel.load(str(folder), config, **options)
        model.quantize(rows, batch_size=1, backend=BACKEND.TORCH)
        model.save(str(out))


def dequantise(packed: Path, out: Path) -> None:
    """Write the GPTQ model in `packed` to `out` with float32 weights: scale times (code - zero),
    computed in float32, so exactly equal.
    """
    packed, out = packed.resolve(), out.resolve()
    with _scratch():
        from gptqmodel.utils.model_dequant import dequantize_model

        dequantize_model(packed, out, target_dtype=torch.float32)
    for stale in ("quantize_config.json", "quant_log.csv"):  # it is quantised no more
        (out / stale).unlink(missing_ok=True)


def quantised_copy(
    folder: Path, work: Path, calibration: list[list[int]], bits: int = 4
) -> QuantisedCopy:
    """The model in `folder` quantised and unpacked, under `work`; made once for the same weights,
    rows, bits and library.

    A call that was killed leaves nothing that would be taken for a finished copy. ValueError as
    `quantise`.
    """
    weights, library = weights_digest(folder), version("gptqmodel")
    digest = hash_of(weights, calibration, bits, GROUP, library)

    place = work / f"int{bits}-{digest}"
    copied = QuantisedCopy(place / "packed", place / "plain")
    with locked(work):  # a second process waits, and finds it finished
        if not place.is_dir():
            part = QuantisedCopy(
                *(work / f"{place.name}.part" / n for n in ("packed", "plain"))
            )
            shutil.rmtree(part.packed.parent, ignore_errors=True)
            part.packed.parent.mkdir()
            quantise(folder, part.packed, calibration, bits)
            dequantise(part.packed, part.plain)
            part.packed.parent.rename(place)
    return copied

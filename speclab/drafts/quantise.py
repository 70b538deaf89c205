"""GPTQ with GPTQModel: a model folder in, a 2- to 8-bit model folder out, loaded by the same code
as any GPTQ model of the hub.

`quantised_copy` makes both forms of a quantised draft: the packed one, which says what it weighs,
and one of the same weights unpacked to float32. On a CPU the kernels of packed layers compute in
bfloat16 and round otherwise for every shape of pass; the unpacked copy has no such noise, so
acceptance is measured with it. Its time is that of a float32 model, not of a 4-bit kernel.
"""

import contextlib
import importlib.util
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from speclab.drafts.texts import hash_of
from speclab.runs import locked, weights_digest, written

# its pool asks for two workers also where there is one core
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")


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
    group_size: int = 64,
) -> None:
    """Quantise the linear layers of the model in `folder` to `bits`, calibrated on token rows, and
    save it with its tokenizer in `out`.

    ValueError without calibration rows, and for what GPTQ does not take.
    """
    if not calibration:
        raise ValueError("calibration is empty: GPTQ needs some rows of tokens")
    folder, out = Path(folder).resolve(), Path(out).resolve()
    rows = []
    for row in calibration:
        ids = torch.tensor([row])
        rows.append({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    with _scratch():
        from gptqmodel import BACKEND, GPTQModel, QuantizeConfig

        config = QuantizeConfig(bits=bits, group_size=group_size, offload_to_disk=False)
        options = {"device": "cpu", "trust_remote_code": False}
        model = GPTQModel.load(str(folder), config, **options)
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
    for stale in ("quantize_config.json", "quant_log.csv"):  # it is quantised no more
        (out / stale).unlink(missing_ok=True)


def quantised_copy(
    folder: Path,
    work: Path,
    calibration: list[list[int]],
    bits: int = 4,
    group_size: int = 64,
) -> QuantisedCopy:
    """The model in `folder` quantised and unpacked, under `work`; made once for the same weights,
    rows, bits, group size and library.

    A call that was killed leaves nothing that would be taken for a finished copy. ValueError as
    `quantise`.
    """
    weights, library = weights_digest(Path(folder)), version("gptqmodel")
    digest = hash_of(weights, calibration, bits, group_size, library)
    place = Path(work) / f"int{bits}-{digest}"

    def make(part: Path) -> None:
        quantise(folder, part / "packed", calibration, bits, group_size)
        dequantise(part / "packed", part / "plain")

    _once(place, make)
    return _copy(place / "packed", place / "plain")


def unpacked(packed: Path, work: Path) -> QuantisedCopy:
    """A GPTQ model that is there already, and its float32 copy under `work`, made once for the same
    weights.
    """
    packed = Path(packed)
    place = Path(work) / f"plain-{weights_digest(packed)[:16]}"
    _once(place, lambda part: dequantise(packed, part / "plain"))
    return _copy(packed, place / "plain")


def _once(place: Path, make: Callable[[Path], None]) -> None:
    """`place`, a folder that `make` fills, where it is not there yet; one process at a time, and a
    killed one leaves nothing of that name.
    """

    def afresh(part: Path) -> None:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        make(part)

    with locked(place.parent):  # a second process waits, and finds it finished
        if not place.is_dir():
            written(place, afresh)


def _copy(packed: Path, plain: Path) -> QuantisedCopy:
    config = json.loads((packed / "config.json").read_text())
    size = sum(file.stat().st_size for file in packed.glob("*.safetensors"))
    return QuantisedCopy(packed, plain, config["quantization_config"]["bits"], size)

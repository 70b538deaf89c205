"""GPTQ with GPTQModel: a model folder in, a 2- to 8-bit model folder out, loaded by the same code as any GPTQ model of the hub."""

import contextlib
import os
import tempfile
from pathlib import Path

import torch

os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")  # its pool asks for two workers also where there is one core

BITS = (2, 3, 4, 8)


def quantise(folder: Path, out: Path, calibration: list[list[int]], bits: int = 4, group_size: int = 64) -> None:
    """Quantise the linear layers of the model in `folder` to `bits`, calibrated on token rows, and save it with its tokenizer in `out`.

    Raises ValueError for a bit width GPTQ does not take, or without calibration rows.
    """
    if bits not in BITS:
        raise ValueError(f"bits={bits}: GPTQ takes {', '.join(map(str, BITS))}")
    if not calibration:
        raise ValueError("calibration is empty: GPTQ needs some rows of tokens")
    from gptqmodel import BACKEND, GPTQModel, QuantizeConfig

    folder, out = Path(folder).resolve(), Path(out).resolve()
    rows = [{"input_ids": torch.tensor([row]), "attention_mask": torch.ones(1, len(row), dtype=torch.long)} for row in calibration]
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):  # it leaves ./logs in the working folder
        model = GPTQModel.load(
            str(folder), QuantizeConfig(bits=bits, group_size=group_size, offload_to_disk=False), device="cpu", trust_remote_code=False
        )
        model.quantize(rows, batch_size=1, backend=BACKEND.TORCH)
        model.save(str(out))

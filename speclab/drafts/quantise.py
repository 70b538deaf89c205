"""GPTQ with GPTQModel: a model folder in, a 2- to 8-bit model folder out, loaded by the same code
as any GPTQ model of the hub.

`quantised_copy` makes both forms of a quantised draft: a packed copy, whose files give its size,
and a copy of the same weights unpacked to float32. On a CPU the kernels of packed layers compute in
bfloat16 and round otherwise for every shape of pass; the unpacked copy has no such noise, so
acceptance is measured with it. Its time is that of a float32 model, not of a 4-bit kernel.
"""

import contextlib
import importlib.util
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from speclab.drafts.shipped import name_of
from speclab.model import Pair
from speclab.models.folder import ModelFolder
from speclab.plain import EncodedPrompt
from speclab.record import generate
from speclab.sampling import Sampling
from speclab.study.profiles import Profile
from speclab.study.prompts import encode_prompts, training_prompts
from speclab.study.runs import locked

# its pool asks for two workers also where there is one core
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")

GROUP = 64  # inputs that share a scale
TOGETHER = 32  # calibration texts that the target continues in one batch


@dataclass(frozen=True)
class QuantisedCopy:
    """A quantised model on disk: `packed` (GPTQ), `plain` (the same weights in float32)."""

    packed: Path
    plain: Path

    @property
    def weight_bytes(self) -> int:
        """Of the packed files."""
        return sum(file.stat().st_size for file in self.packed.glob("*.safetensors"))


@dataclass(frozen=True)
class Calibration:
    """Text that GPTQ is calibrated on. facts: what decides it, as plain values; rows: the token ids
    of each text, computed when a copy is made.
    """

    facts: Any
    rows: Callable[[], list[list[int]]]


def calibration_of(
    pair: Pair, profile: Profile, per_domain: int, seed: int, count: int
) -> Calibration:
    """The target's greedy continuations of `count` prompts of all lengths, shortest first, from
    `per_domain` composed prompts of each domain; no draft is judged on them. ValueError for more
    than there are.
    """
    composed = training_prompts(per_domain, seed)
    if not 1 <= count <= len(composed):
        raise ValueError(
            f"calibration_rows={count}: allowed are 1 to {len(composed)}; for more rows raise "
            "calibration_prompts_per_domain"
        )
    limits = profile.max_prompt_tokens, profile.template
    given = profile.system, profile.template_arguments
    encoded = encode_prompts(pair.tokenizer, composed, *limits, True, *given)
    by_length = sorted(encoded, key=lambda prompt: len(prompt.ids))
    step = len(by_length) // count
    prompts, new_tokens = by_length[::step][:count], profile.max_new_tokens
    facts = [new_tokens, [prompt.ids for prompt in prompts]]
    return Calibration(facts, partial(_continued, pair, prompts, new_tokens))


def _continued(pair: Pair, prompts: Sequence[EncodedPrompt], new_tokens: int) -> list[list[int]]:
    """Each prompt with the target's greedy continuation, as token ids."""
    rows = []
    for start in range(0, len(prompts), TOGETHER):
        block = prompts[start : start + TOGETHER]
        texts = generate(pair.target, block, new_tokens, pair.stop_ids, Sampling(), 0)
        rows += [[*prompt.ids, *text] for prompt, text in zip(block, texts, strict=True)]
    return rows


def available() -> bool:
    """True where GPTQModel, an optional extra, is installed."""
    return importlib.util.find_spec("gptqmodel") is not None


def obstacle(pair: Pair) -> str:
    """Why no copy of a pair's target can be made here; '' where one can."""
    if pair.target.quantised:
        return "the target is quantised already"
    return "" if available() else "GPTQModel is not installed"


def made_of(folder: Path, calibration: Calibration, bits: int) -> tuple[str, list]:
    """What decides the weights of a copy of the model in `folder`, apart from the library: a label
    and facts, from which `shipped.name_of` makes a name.
    """
    return f"int{bits}", [ModelFolder(folder).digest, calibration.facts, bits, GROUP]


def quantise(folder: Path, out: QuantisedCopy, calibration: list[list[int]], bits: int) -> None:
    """Quantise the linear layers of the model in `folder` to `bits`, calibrated on token rows, and
    save it with its tokenizer; then with weights unpacked to float32: scale times (code - zero),
    computed in float32, so exactly equal. ValueError for what GPTQ does not take.
    """
    folder, packed, plain = (path.resolve() for path in (folder, out.packed, out.plain))
    tokens = [torch.tensor([row]) for row in calibration]
    rows = [{"input_ids": t, "attention_mask": torch.ones_like(t)} for t in tokens]
    with (
        tempfile.TemporaryDirectory() as place,
        contextlib.chdir(place),  # for its ./logs
        open(os.devnull, "w") as nobody,  # hears its banners and tables
        contextlib.redirect_stdout(nobody),
        contextlib.redirect_stderr(nobody),
    ):
        logging.disable()  # its process has no other notices
        from gptqmodel import BACKEND, GPTQModel, QuantizeConfig
        from gptqmodel.utils.model_dequant import dequantize_model

        config = QuantizeConfig(bits=bits, group_size=GROUP, offload_to_disk=False)
        options = {"device": "cpu", "trust_remote_code": False}
        model = GPTQModel.load(str(folder), config, **options)
        model.quantize(rows, batch_size=1, backend=BACKEND.TORCH)
        model.save(str(packed))
        dequantize_model(packed, plain, target_dtype=torch.float32)
    for stale in ("quantize_config.json", "quant_log.csv"):  # it is quantised no more
        (plain / stale).unlink(missing_ok=True)


def _alone(work: Callable, *arguments: Any) -> None:
    """Do it in a process of its own, whose end frees what GPTQModel leaves in memory."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        process.submit(work, *arguments).result()


def quantised_copy(folder: Path, work: Path, calibration: Calibration, bits: int) -> QuantisedCopy:
    """The model in `folder` quantised and unpacked, under `work`; made once for the same weights,
    calibration, bits and library.

    A killed call leaves nothing that would be taken for a finished copy. ValueError as in
    `quantise`.
    """
    label, facts = made_of(folder, calibration, bits)
    place = work / name_of(label, *facts, version("gptqmodel"))
    copied = QuantisedCopy(place / "packed", place / "plain")
    with locked(work):  # a second process waits, and finds it finished
        if not place.is_dir():
            part = work / "part"
            shutil.rmtree(part, ignore_errors=True)  # of a killed call
            part.mkdir()
            made = QuantisedCopy(part / "packed", part / "plain")
            _alone(quantise, folder, made, calibration.rows(), bits)
            part.rename(place)
    return copied

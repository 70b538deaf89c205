"""The training loop: Muon for matrices, AdamW for the rest. It can be interrupted at any time.

A model is any module with parameters; a batch is given by its number. A checkpoint is one
safetensors file with weights and optimiser state in float32; its header has the log and the
settings. A batch depends only on its number, so a resumed run ends with the same weights.
"""

import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch.optim import Optimizer
from tqdm import trange

from speclab.models.folder import tensor_shapes
from speclab.study.runs import RunError, written


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run. Lengths are in tokens; learning rates are the peak values."""

    steps: int
    batch: int = 8
    context: int = 512
    lr_matrix: float = 3e-3
    lr_other: float = 3e-3
    warmup_steps: int = 50
    decay_share: float = 0.4
    checkpoint_every: int = 200
    seed: int = 0


# ---- packed text --------------------------------------------------------------------------------


class Stream:
    """Packed tokens as rows of `context + 1`. The order is a permutation that depends on (seed,
    epoch).
    """

    def __init__(self, tokens: np.ndarray, config: TrainConfig):
        self.tokens, self.config = tokens, config
        self.rows = (len(tokens) - 1) // config.context
        if self.rows < 1:
            raise ValueError(
                f"training set of {len(tokens)} tokens: one row needs {config.context + 1}"
            )

    def _row(self, index: int) -> np.ndarray:
        epoch, place = divmod(index, self.rows)
        order = np.random.default_rng([self.config.seed, epoch]).permutation(self.rows)
        start = order[place] * self.config.context
        return self.tokens[start : start + self.config.context + 1]

    def batch(self, step: int) -> torch.Tensor:
        """The rows of one step, int64 (batch, context + 1)."""
        first = step * self.config.batch
        rows = [self._row(index) for index in range(first, first + self.config.batch)]
        return torch.from_numpy(np.stack(rows).astype(np.int64))


# ---- optimisers and their rate -------------------------------------------------------------------


def learning_rate_scale(step: int, config: TrainConfig) -> float:
    """Warm-up, plateau, then linear decay to zero over the last `decay_share` of the steps."""
    left = (config.steps - step) / max(1, config.decay_share * config.steps)
    return min(1.0, (step + 1) / config.warmup_steps, left)


def _learned(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def optimizers(model: torch.nn.Module, config: TrainConfig) -> dict[str, Optimizer]:
    """Muon for the matrices of the blocks; AdamW for embeddings, head and norms."""
    matrices, rest = [], []
    for name, p in _learned(model).items():
        is_matrix = p.ndim == 2 and "embed" not in name and "lm_head" not in name
        (matrices if is_matrix else rest).append(p)
    adamw, muon = torch.optim.AdamW, torch.optim.Muon
    return {
        "adamw": adamw(rest, config.lr_other, (0.9, 0.95), weight_decay=0.0),
        "muon": muon(matrices, config.lr_matrix, weight_decay=0.0),
    }


# ---- checkpoints ---------------------------------------------------------------------------------

FILE = "checkpoint.safetensors"
START_AGAIN = "remove its folder to start again, or choose another"


def save_checkpoint(
    folder: Path, model: torch.nn.Module, opts: dict[str, Optimizer], facts: dict
) -> None:
    """Write the trained weights, the optimiser state, and the facts for `load_checkpoint`."""
    tensors = {f"model.{name}": p.detach() for name, p in _learned(model).items()}
    for kind, opt in opts.items():
        for index, state in opt.state_dict()["state"].items():
            for key, value in state.items():
                tensors[f"{kind}.{index}.{key}"] = value
    head = {name: json.dumps(fact) for name, fact in facts.items()}

    def save(path: Path) -> None:
        try:
            save_file(tensors, path, head)
        except SafetensorError as error:  # this library's error for a full disk
            raise OSError(str(error)) from error

    written(folder / FILE, save)


def load_checkpoint(
    folder: Path, model: torch.nn.Module, opts: dict[str, Optimizer], settings: dict
) -> dict:
    """Restore model and optimisers in place. Returns the facts of the checkpoint, {} if there is no
    checkpoint. Raises RunError if it belongs to a training with other `settings`, ValueError if it
    is damaged.
    """
    path = folder / FILE
    if not path.exists():
        return {}
    tensor_shapes(path, START_AGAIN)
    with safe_open(path, "pt") as opened:
        facts = {name: json.loads(fact) for name, fact in opened.metadata().items()}
    if other := dict(facts["settings"].items() ^ settings.items()):
        names = ", ".join(sorted(other))
        raise RunError(f"{path} belongs to a training with another {names}; {START_AGAIN}")
    tensors = load_file(path)
    with torch.no_grad():
        for name, p in _learned(model).items():
            p.copy_(tensors.pop(f"model.{name}"))
    states = {kind: defaultdict(dict) for kind in opts}
    for name, value in tensors.items():
        kind, index, key = name.split(".", 2)
        states[kind][int(index)][key] = value
    for kind, opt in opts.items():
        opt.load_state_dict(opt.state_dict() | {"state": states[kind]})
    return facts


# ---- the loop ------------------------------------------------------------------------------------


def optimise(
    model: torch.nn.Module,
    batch: Callable[[int], Any],
    config: TrainConfig,
    folder: Path,
    loss: Callable[[torch.nn.Module, Any, int], torch.Tensor],
    measure: Callable[[torch.nn.Module], dict[str, float]],
    label: str = "train",
    about: dict | None = None,
) -> list[dict]:
    """Train `model` in place on `loss(model, batch(number), step)` and return the log.

    The log has one row per checkpoint: step, minutes, loss, and the values of `measure(model)`.
    about: further facts that identify the training, such as a digest of its text. Raises RunError
    for a checkpoint with other settings or another `about`, FloatingPointError if a loss is not
    finite, and OSError if a checkpoint cannot be written. The last good checkpoint is kept.
    """
    opts = optimizers(model, config)
    settings = asdict(config) | (about or {})
    del settings["checkpoint_every"]  # changes no weight
    facts = load_checkpoint(folder, model, opts, settings)
    start, log = facts.get("step", -1) + 1, facts.get("log", [])
    before = log[-1]["minutes"] if log else 0
    began, running = time.perf_counter() - 60 * before, []
    bar = trange(start, config.steps, desc=label, mininterval=5)
    for step in bar:
        for opt in opts.values():
            peak = opt.defaults["lr"]
            opt.param_groups[0]["lr"] = peak * learning_rate_scale(step, config)
        value = loss(model, batch(step), step)
        running.append(value.item())
        if not math.isfinite(running[-1]):
            raise FloatingPointError(
                f"{label}: loss {running[-1]} at step {step}; the last good checkpoint, if any, is "
                f"in {folder}; lower the learning rate"
            )
        value.backward()
        for opt in opts.values():
            opt.step()
            opt.zero_grad(set_to_none=True)
        if (step + 1) % config.checkpoint_every == 0 or step + 1 == config.steps:
            minutes = round((time.perf_counter() - began) / 60, 2)
            row = {"step": step, "minutes": minutes, "loss": float(np.mean(running))}
            log.append(row | measure(model))
            running = []
            facts = {"step": step, "log": log, "settings": settings}
            save_checkpoint(folder, model, opts, facts)
            bar.set_postfix(loss=f"{row['loss']:.2f}")
    return log


# ---- model cards ---------------------------------------------------------------------------------

NUMBERS = re.compile(r"(<!-- numbers\b[^>]*-->\n).*(<!-- /numbers -->)", re.DOTALL)


def fill_card(page: Path, numbers: str) -> None:
    """Replace what stands between the marks of a model card. A missing card is not written."""
    if page.is_file():
        text = page.read_text(encoding="utf-8")
        filled = NUMBERS.sub(lambda m: f"{m[1]}{numbers}\n{m[2]}", text)
        written(page, lambda path: path.write_text(filled, encoding="utf-8"))

"""The training loop: Muon for matrices, AdamW for the rest, safe to kill.

Knows a model only as a module with parameters, and batches by their number. A checkpoint is one
file (trained weights, optimiser state, log, settings); a batch depends on its number alone, so that
a resumed run goes on as if undisturbed.
"""

import io
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer
from tqdm import trange

from speclab.runs import RunError, written


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one training run. Lengths in tokens, learning rates at their peak."""

    steps: int
    batch: int = 8
    context: int = 512
    lr_matrix: float = 3e-3
    lr_other: float = 3e-3
    warmup_steps: int = 50
    decay_share: float = 0.4
    checkpoint_every: int = 200
    seed: int = 0

    def __post_init__(self):
        for name in ("steps", "batch", "warmup_steps", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: allowed are 1 and up")


# ---- optimisers and their rate -------------------------------------------------------------------


def learning_rate_scale(step: int, config: TrainConfig) -> float:
    """Warm-up, plateau, linear decay to zero over the last `decay_share` of the steps."""
    left = (config.steps - step) / max(1, config.decay_share * config.steps)
    return min(1.0, (step + 1) / config.warmup_steps, left)


def _learned(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _is_matrix(name: str, weights: torch.Tensor) -> bool:
    elsewhere = ("embed", "lm_head")
    return weights.ndim == 2 and not any(word in name for word in elsewhere)


def optimizers(model: torch.nn.Module, config: TrainConfig) -> dict[str, Optimizer]:
    """Muon on the matrices of the blocks, AdamW on embeddings, head and norms."""
    matrices, rest = [], []
    for name, p in _learned(model).items():
        (matrices if _is_matrix(name, p) else rest).append(p)
    adam, muon = torch.optim.AdamW, torch.optim.Muon
    opts = {}
    if rest:
        opts["adamw"] = adam(rest, config.lr_other, (0.9, 0.95), weight_decay=0.0)
    if matrices:
        opts["muon"] = muon(matrices, config.lr_matrix, weight_decay=0.0)
    return opts


# ---- checkpoints ---------------------------------------------------------------------------------

FILE = "checkpoint.pt"
ANEW = "remove its folder to start anew, or choose another"


def save_checkpoint(folder: Path, kept: dict) -> None:
    """Write weights, optimiser state and facts, as `load_checkpoint` gives them back."""
    content = io.BytesIO()
    torch.save(kept, content)
    written(folder / FILE, lambda part: part.write_bytes(content.getvalue()))


def load_checkpoint(folder: Path, settings: dict) -> dict:
    """What was kept; {} when there is no checkpoint. Tensors and plain values only.

    RunError: it was trained with other `settings`.
    """
    path = folder / FILE
    if not path.exists():
        return {}
    kept = torch.load(path, weights_only=True)
    kept |= json.loads(kept["facts"])  # numbers of any kind, as text
    if other := dict(kept["settings"].items() ^ settings.items()):
        names = ", ".join(sorted(other))
        raise RunError(f"{path} is of a training with another {names}; {ANEW}")
    return kept


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

    One row of the log a checkpoint: step, minutes,
    loss, what `measure(model)` gives. about: what else makes a training another one (as a digest of
    its text): like the settings of `config` it must be the same in a checkpoint that is gone on
    from (RunError).
    Raises FloatingPointError at a loss that is not finite, and RunError when a checkpoint cannot be
    written; the last good checkpoint stays.
    """
    opts = optimizers(model, config)
    learned = _learned(model)
    settings = asdict(config) | (about or {})
    del settings["checkpoint_every"]  # changes no weight
    kept = load_checkpoint(folder, settings)
    start, log = kept.get("step", -1) + 1, kept.get("log", [])
    if kept:
        with torch.no_grad():
            for name, p in learned.items():
                p.copy_(kept["model"][name])
        for kind, opt in opts.items():
            opt.load_state_dict(kept["opts"][kind])
    before = log[-1]["minutes"] if log else 0
    began, running = time.perf_counter() - 60 * before, []
    bar = trange(
        start,
        config.steps,
        initial=start,
        total=config.steps,
        desc=label,
        mininterval=5,
    )
    for step in bar:
        for opt in opts.values():
            peak = opt.defaults["lr"]
            opt.param_groups[0]["lr"] = peak * learning_rate_scale(step, config)
        value = loss(model, batch(step), step)
        running.append(value.item())
        if not math.isfinite(running[-1]):
            raise FloatingPointError(
                f"{label}: step {step}: loss {running[-1]}; the last good checkpoint, if one was "
                f"due, is in {folder}; lower the learning rate"
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
            facts = json.dumps({"step": step, "log": log, "settings": settings})
            weights = {name: p.detach() for name, p in learned.items()}
            states = {kind: opt.state_dict() for kind, opt in opts.items()}
            save_checkpoint(folder, {"facts": facts, "model": weights, "opts": states})
            bar.set_postfix(loss=f"{row['loss']:.2f}")
    return log

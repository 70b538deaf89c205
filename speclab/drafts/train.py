"""The training loop: Muon for matrices, AdamW for the rest, safe to kill.

Knows a model only as a module with parameters, and batches by their number. Checkpoints are
safetensors (weights and optimiser state, float32) beside a JSON log; a batch depends on its number
alone, so that a resumed run goes on as if undisturbed.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from tqdm import trange

from speclab.models.pairs import check_tensors
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
    accumulate: int = 1  # batches a step

    def __post_init__(self):
        for name in (
            "steps",
            "batch",
            "context",
            "checkpoint_every",
            "accumulate",
            "warmup_steps",
        ):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name}={getattr(self, name)}: allowed are whole numbers from 1"
                )
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: allowed are whole numbers from 0")


# ---- optimisers and their rate -------------------------------------------------------------------


def learning_rate_scale(step: int, config: TrainConfig) -> float:
    """Warm-up, plateau, linear decay to zero over the last `decay_share` of the steps."""
    left = (config.steps - step) / max(1, config.decay_share * config.steps)
    return min(1.0, (step + 1) / config.warmup_steps, left)


def _is_matrix(name: str, weights: torch.Tensor) -> bool:
    return weights.ndim == 2 and not any(
        word in name for word in ("embed", "lm_head", "lora_")
    )


def optimizers(
    model: torch.nn.Module, config: TrainConfig
) -> dict[str, torch.optim.Optimizer]:
    """Muon on the matrices of the blocks, AdamW on embeddings, norms and adapters."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in named if _is_matrix(name, p)]
    rest = [p for name, p in named if not _is_matrix(name, p)]
    opts = {}
    if rest:
        opts["adamw"] = torch.optim.AdamW(
            rest, lr=config.lr_other, betas=(0.9, 0.95), weight_decay=0.0
        )
    if matrices:
        opts["muon"] = torch.optim.Muon(matrices, lr=config.lr_matrix, weight_decay=0.0)
    return opts


def _set_rates(
    opts: dict[str, torch.optim.Optimizer], step: int, config: TrainConfig
) -> None:
    peaks = {"muon": config.lr_matrix, "adamw": config.lr_other}
    for kind, opt in opts.items():
        opt.param_groups[0]["lr"] = peaks[kind] * learning_rate_scale(step, config)


# ---- checkpoints ---------------------------------------------------------------------------------

ANEW = "remove its folder to start anew, or choose another"


def _learned(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    return {
        f"model.{name}": p for name, p in model.named_parameters() if p.requires_grad
    }


def _save(tensors: dict[str, torch.Tensor], facts: dict[str, str], path: Path) -> None:
    try:
        save_file(tensors, path, facts)
    except SafetensorError as error:  # a full disk, as this library says it
        raise OSError(str(error)) from error


def save_checkpoint(
    folder: Path,
    step: int,
    model: torch.nn.Module,
    opts: dict,
    log: list[dict],
    scale: dict | None = None,
    settings: dict | None = None,
) -> None:
    """Write trained weights, optimiser state and log; RunError when there is no room for it.

    The log stands in the checkpoint too, so that a call killed between the files finds both of one
    step. scale: state of a GradScaler. settings: what `load_checkpoint` compares.
    """
    tensors = {name: p.detach().clone() for name, p in _learned(model).items()}
    for kind, opt in opts.items():
        for index, state in opt.state_dict()["state"].items():
            for key, value in state.items():
                tensors[f"{kind}.{index}.{key}"] = torch.as_tensor(value).contiguous()
    facts = {
        "step": str(step),
        "log": json.dumps(log),
        "scale": json.dumps(scale or {}),
        "settings": json.dumps(settings or {}),
    }
    kept = f"This was the checkpoint of step {step}, the last good one stays"
    written(
        folder / "checkpoint.safetensors",
        lambda path: _save(tensors, facts, path),
        kept,
    )
    written(
        folder / "log.json",
        lambda path: path.write_text(json.dumps(log, indent=1)),
        kept,
    )


def load_checkpoint(
    folder: Path,
    model: torch.nn.Module,
    opts: dict,
    settings: dict | None = None,
) -> tuple[int, list[dict], dict]:
    """Restore model and optimisers in place; returns the next step, the log and a GradScaler's
    state (0, [] and {} when there is none).

    RunError: the checkpoint was trained with other `settings`. ValueError: it is damaged, or of
    another model. Both name the file and what differs.
    """
    path = folder / "checkpoint.safetensors"
    if not path.exists():
        return 0, [], {}
    check_tensors(path, ANEW)
    try:
        with safe_open(path, "pt") as opened:
            facts = opened.metadata()
        reached, log = int(facts["step"]) + 1, json.loads(facts["log"])
        scale, there = (
            json.loads(facts["scale"]),
            json.loads(facts.get("settings", "{}")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no checkpoint ({error!r}); {ANEW}") from None
    _check_settings(path, there, settings or {})
    try:
        _restore(load_file(path), model, opts)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{path} is of another model ({said}); {ANEW}") from None
    return reached, log, scale


def _check_settings(path: Path, there: dict, asked: dict) -> None:
    """RunError where a checkpoint says that it was trained with other settings."""
    if asked and not there:
        print(f"{path} does not say its settings: going on from it", file=sys.stderr)
        return
    words = [
        f"{name} is {there.get(name)} there, {value} is asked"
        for name, value in asked.items()
        if there.get(name) != value
    ]
    if words:
        raise RunError(f"{path} is of another training ({'; '.join(words)}); {ANEW}")


def _restore(
    tensors: dict[str, torch.Tensor], model: torch.nn.Module, opts: dict
) -> None:
    """Copy a checkpoint's tensors into model and optimisers."""
    with torch.no_grad():
        for name, p in _learned(model).items():
            p.copy_(tensors.pop(name))
    states: dict[str, dict] = {kind: {} for kind in opts}
    for name, value in tensors.items():
        kind, index, key = name.split(".", 2)
        states[kind].setdefault(int(index), {})[key] = value
    for kind, opt in opts.items():
        groups = opt.state_dict()["param_groups"]
        opt.load_state_dict({"state": states[kind], "param_groups": groups})


# ---- the loop ------------------------------------------------------------------------------------


def optimise(
    model: torch.nn.Module,
    batch: Callable[[int], Any],
    config: TrainConfig,
    folder: Path,
    loss: Callable[[torch.nn.Module, Any, int], torch.Tensor],
    measure: Callable[[torch.nn.Module], dict[str, float]],
    label: str = "train",
    scaled: bool = False,
    about: dict | None = None,
) -> list[dict]:
    """Train `model` in place on `loss(model, batch(number), step)` and return the log.

    A step takes the mean of `accumulate` batches. One row of the log a checkpoint: step, minutes,
    loss, what `measure(model)` gives. scaled: scale gradients, for float16 on a GPU. about: what
    else makes a training another one (as a digest of its text): like the settings of `config` it
    must be the same in a checkpoint that is gone on from (RunError).
    Raises FloatingPointError at a loss that is not finite, and RunError when a checkpoint cannot be
    written; the last good checkpoint stays.
    """
    opts = optimizers(model, config)
    device = next(model.parameters()).device.type
    scaler = torch.amp.GradScaler(device, enabled=scaled)
    settings = asdict(config) | (about or {})
    del settings["checkpoint_every"]  # changes no weight
    start, log, scale = load_checkpoint(folder, model, opts, settings)
    scaler.load_state_dict(scale or scaler.state_dict())
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
        _set_rates(opts, step, config)
        for number in range(step * config.accumulate, (step + 1) * config.accumulate):
            value = loss(model, batch(number), step)
            running.append(value.item())
            if not math.isfinite(running[-1]):
                raise FloatingPointError(
                    f"{label}: step {step}, batch {number}: loss {running[-1]}; last good "
                    f"checkpoint in {folder}, if one was due; lower the learning rate"
                )
            scaler.scale(value / config.accumulate).backward()
        for opt in opts.values():
            scaler.step(opt)
            opt.zero_grad(set_to_none=True)
        scaler.update()
        if (step + 1) % config.checkpoint_every == 0 or step + 1 == config.steps:
            minutes = round((time.perf_counter() - began) / 60, 2)
            row = {"step": step, "minutes": minutes, "loss": float(np.mean(running))}
            log.append(row | measure(model))
            running = []
            state = scaler.state_dict()
            save_checkpoint(folder, step, model, opts, log, state, settings)
            bar.set_postfix(loss=f"{row['loss']:.2f}")
    return log

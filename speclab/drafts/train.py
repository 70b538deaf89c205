"""The training loop: next-token cross-entropy on packed text, Muon for matrices, AdamW for the
rest, safe to kill.

Knows a model only as `model(input_ids).logits` with parameters. Checkpoints are safetensors
(weights and optimiser state, float32) beside a JSON log; batches depend on (seed, step) alone, so a
resumed run goes on as if undisturbed.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from speclab.files import RunError


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
        for name in ("steps", "batch", "context", "checkpoint_every", "accumulate", "warmup_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: allowed are whole numbers from 1")


class Stream:
    """Packed tokens as shuffled rows of `context + 1`; row order is a permutation of (seed, epoch)."""

    def __init__(self, tokens: np.ndarray, config: TrainConfig):
        self.tokens, self.config = tokens, config
        self.rows = (len(tokens) - 1) // config.context
        if self.rows < 1:
            raise ValueError(
                f"training set of {len(tokens)} tokens: at least {config.context + 1} are needed for one row"
            )

    def batch(self, step: int) -> torch.Tensor:
        """Rows of one step, int64 (batch, context + 1)."""
        size, context = self.config.batch, self.config.context
        rows = [divmod(index, self.rows) for index in range(step * size, (step + 1) * size)]
        picked = [
            np.random.default_rng([self.config.seed, epoch]).permutation(self.rows)[i]
            for epoch, i in rows
        ]
        return torch.from_numpy(
            np.stack([self.tokens[r * context : (r + 1) * context + 1] for r in picked]).astype(
                np.int64
            )
        )


def learning_rate_scale(step: int, config: TrainConfig) -> float:
    """Warm-up, plateau, linear decay to zero over the last `decay_share` of the steps."""
    left = (config.steps - step) / max(1, config.decay_share * config.steps)
    return min(1.0, (step + 1) / config.warmup_steps, left)


def optimizers(model: torch.nn.Module, config: TrainConfig) -> dict[str, torch.optim.Optimizer]:
    """Muon on the two-dimensional weights of the blocks, AdamW on embeddings, norms and adapters."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [
        p
        for name, p in named
        if p.ndim == 2 and not any(word in name for word in ("embed", "lm_head", "lora_"))
    ]
    rest = [p for _, p in named if not any(p is m for m in matrices)]
    found = (
        {"adamw": torch.optim.AdamW(rest, lr=config.lr_other, betas=(0.9, 0.95), weight_decay=0.0)}
        if rest
        else {}
    )
    if matrices:
        found["muon"] = torch.optim.Muon(matrices, lr=config.lr_matrix, weight_decay=0.0)
    return found


def _flat_state(opts: dict[str, torch.optim.Optimizer]) -> dict[str, torch.Tensor]:
    return {
        f"{kind}.{index}.{key}": torch.as_tensor(value).contiguous()
        for kind, opt in opts.items()
        for index, state in opt.state_dict()["state"].items()
        for key, value in state.items()
    }


def save_checkpoint(
    folder: Path,
    step: int,
    model: torch.nn.Module,
    opts: dict,
    log: list[dict],
    scale: dict | None = None,
) -> None:
    """Write trained weights, optimiser state and log, each file to a temporary name first; RunError
    when there is no room for it.

    The log stands in the checkpoint too, so that a call killed between the files finds both of one
    step. scale: state of a GradScaler.
    """
    tensors = {
        f"model.{name}": p.detach().clone()
        for name, p in model.named_parameters()
        if p.requires_grad
    } | _flat_state(opts)
    facts = {"step": str(step), "log": json.dumps(log), "scale": json.dumps(scale or {})}
    for name, write in (
        ("checkpoint.safetensors", lambda p: save_file(tensors, p, facts)),
        ("log.json", lambda p: p.write_text(json.dumps(log, indent=1))),
    ):
        temporary = folder / (name + ".tmp")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write(temporary)
            temporary.replace(folder / name)
        except (OSError, SafetensorError) as error:
            with contextlib.suppress(OSError):
                temporary.unlink()  # half a file would take the room that the user makes
            raise RunError(
                f"cannot write the checkpoint of step {step} to {folder}: {error}. The last good one stays; free space, then run again"
            ) from error


def load_checkpoint(
    folder: Path, model: torch.nn.Module, opts: dict
) -> tuple[int, list[dict], dict]:
    """Restore model and optimisers in place; returns the next step, the log and a GradScaler's
    state (0, [] and {} when there is none).
    """
    path = folder / "checkpoint.safetensors"
    if not path.exists():
        return 0, [], {}
    with safe_open(path, "pt") as opened:
        facts = opened.metadata()
    tensors = load_file(path)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.requires_grad:
                p.copy_(tensors[f"model.{name}"])
    for kind, opt in opts.items():
        state: dict[int, dict] = {}
        for name, value in tensors.items():
            if name.startswith(kind + "."):
                _, index, key = name.split(".", 2)
                state.setdefault(int(index), {})[key] = value
        opt.load_state_dict({"state": state, "param_groups": opt.state_dict()["param_groups"]})
    return int(facts["step"]) + 1, json.loads(facts["log"]), json.loads(facts["scale"])


def next_token_loss(
    model: torch.nn.Module, rows: torch.Tensor, ignored: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean cross-entropy in nats of rows (batch, context + 1), in bfloat16 autocast; ignored: bool
    (batch, context), labels left out.
    """
    with torch.autocast(rows.device.type, dtype=torch.bfloat16):
        logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    labels = rows[:, 1:] if ignored is None else rows[:, 1:].masked_fill(ignored, -100)
    return cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


@torch.no_grad()
def evaluate(model: torch.nn.Module, held_out: dict[str, torch.Tensor]) -> dict[str, float]:
    """Held-out loss per domain, nats per token."""
    return {domain: float(next_token_loss(model, rows)) for domain, rows in held_out.items()}


def _set_rates(opts: dict[str, torch.optim.Optimizer], step: int, config: TrainConfig) -> None:
    for kind, opt in opts.items():
        opt.param_groups[0]["lr"] = {"muon": config.lr_matrix, "adamw": config.lr_other}[
            kind
        ] * learning_rate_scale(step, config)


def _check_finite(value: float, where: str, folder: Path) -> None:
    if not math.isfinite(value):
        raise FloatingPointError(
            f"{where}: loss {value}; last good checkpoint in {folder}, if one was due; lower the learning rate"
        )


def fit(
    model: torch.nn.Module,
    batch: Callable[[int], Any],
    config: TrainConfig,
    folder: Path,
    held_out: Any,
    loss: Callable = lambda model, rows, step: next_token_loss(model, rows),
    label: str = "train",
    evaluate: Callable[[torch.nn.Module, Any], dict[str, float]] = evaluate,
    scaled: bool = False,
) -> list[dict]:
    """Train `model` in place on `loss(model, batch(number), step)` and return the log.

    A step takes the mean of `accumulate` batches. One row of the log a checkpoint: step, minutes,
    loss, what `evaluate(model, held_out)` gives. scaled: scale gradients, for float16 on a GPU.
    Raises FloatingPointError at a loss that is not finite, and RunError when a checkpoint cannot be
    written; the last good checkpoint stays.
    """
    opts, device = optimizers(model, config), next(model.parameters()).device.type
    scaler = torch.amp.GradScaler(device, enabled=scaled)
    start, log, scale = load_checkpoint(folder, model, opts)
    scaler.load_state_dict(scale or scaler.state_dict())
    began, running = time.perf_counter() - 60 * (log[-1]["minutes"] if log else 0), []
    for step in (
        bar := tqdm(
            range(start, config.steps), initial=start, total=config.steps, desc=label, mininterval=5
        )
    ):
        _set_rates(opts, step, config)
        for number in range(step * config.accumulate, (step + 1) * config.accumulate):
            value = loss(model, batch(number), step)
            _check_finite(value.item(), f"{label}: step {step}, batch {number}", folder)
            scaler.scale(value / config.accumulate).backward()
            running.append(value.item())
        for opt in opts.values():
            scaler.step(opt)
            opt.zero_grad(set_to_none=True)
        scaler.update()
        if (step + 1) % config.checkpoint_every == 0 or step + 1 == config.steps:
            minutes = (time.perf_counter() - began) / 60
            log.append(
                {"step": step, "minutes": round(minutes, 2), "loss": float(np.mean(running))}
                | evaluate(model, held_out)
            )
            running = []
            save_checkpoint(folder, step, model, opts, log, scaler.state_dict())
            bar.set_postfix(
                {
                    k: f"{v:.2f}"
                    for k, v in log[-1].items()
                    if k not in ("step", "minutes") and " " not in k
                }
            )
    return log

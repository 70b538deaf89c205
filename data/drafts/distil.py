"""Distillation: train a draft on its target's text, and measure its acceptance.

Sequence-level training uses cross-entropy on the target's text. Token-level training uses its
distributions: forward KL, reverse KL or total variation (DistillSpec, arXiv:2310.08461). A trained
draft is a folder in Hugging Face layout, so `pairs.load_pair` can load it. The folder's name ends
with a hash of all settings. A finished draft is not trained again, and an interrupted training
continues from its last checkpoint.
"""

import copy
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax
from torch.nn.utils.rnn import pad_sequence

from data.drafts.texts import Example, TrainingText
from data.drafts.train import TrainConfig, optimise
from speclab.drafts.shipped import FACTS, name_of
from speclab.model import Pair
from speclab.models.folder import ModelFolder
from speclab.models.trimmed import EMBEDDING
from speclab.sampling import rank_key
from speclab.study.profiles import ROOT
from speclab.study.runs import locked, read_facts, write_facts

JUDGED = 16  # held-out texts per pass

# ---- 1. objectives -------------------------------------------------------------------------------

UNSAID = -100  # the label that cross-entropy ignores


def _sequence(p: Tensor, q: Tensor, token: Tensor) -> Tensor:
    said = q.detach().gather(-1, token[:, None])[:, 0].isfinite()
    label = token.where(said, UNSAID)
    return cross_entropy(q, label, reduction="none")


def _forward_kl(p: Tensor, q: Tensor, token: Tensor) -> Tensor:
    unsaid = p.detach().isneginf() | q.detach().isneginf()
    log_p, log_q = (
        log_softmax(x.masked_fill(unsaid, -torch.inf), -1).masked_fill(unsaid, 0.0) for x in (p, q)
    )
    return kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)


def _total_variation(p: Tensor, q: Tensor, token: Tensor) -> Tensor:
    return 0.5 * (p.softmax(-1) - q.softmax(-1)).abs().sum(-1)


# (p logits [n, vocab], q logits [n, vocab], the target's token [n]) -> [n]; in nats except total
# variation. One minus total variation is `overlap`, the acceptance of a sampled token.
# A draft with a trimmed vocabulary has q logits of -inf. `sequence` is 0 where such a draft cannot
# output the token. A KL divergence would be infinite, so it compares p and q over the tokens that
# both can output. Total variation compares them over all tokens.
OBJECTIVES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "sequence": _sequence,
    "forward-kl": _forward_kl,
    "reverse-kl": lambda p, q, token: _forward_kl(q, p, token),
    "total-variation": _total_variation,
}


# ---- 2. batches ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Texts side by side: tokens [B, L] (padded on the right), and `learned` bool [B, L], the
    positions used for training. hidden [n, d] and token [n] belong to these positions.
    """

    tokens: Tensor
    learned: Tensor
    hidden: Tensor
    token: Tensor


def collate(rows: Sequence[Example]) -> Batch:
    """A batch of texts. The last token of a text serves only as a label."""
    read = [torch.from_numpy(row.tokens[:-1]).long() for row in rows]
    learned = [torch.arange(len(row.tokens) - 1) >= row.first for row in rows]
    predicted = np.concatenate([row.tokens[row.first + 1 :] for row in rows])
    hidden = np.concatenate([row.hidden for row in rows])
    return Batch(
        pad_sequence(read, batch_first=True),
        pad_sequence(learned, batch_first=True),
        torch.from_numpy(hidden),
        torch.from_numpy(predicted).long(),
    )


def draws_of(step: int, lengths: Sequence[int], size: int, seed: int = 0) -> np.ndarray:
    """Indices of the texts in a step's batch, of similar length. The choice and order depend only
    on (seed, epoch).
    """
    per_epoch = -(-len(lengths) // size)
    epoch, place = divmod(step, per_epoch)
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    # similar lengths together, for little padding
    order = order[np.argsort(np.array(lengths)[order] // 16, kind="stable")]
    first = size * rng.permutation(per_epoch)[place]
    return order[first : first + size]


# ---- 3. training ---------------------------------------------------------------------------------


def both_logits(pair: Pair, network: Any, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """(p logits [n, vocab], q logits [n, vocab], token [n]) at the learned positions, float32 on
    the draft's device. Drafts are always trained in float32.
    """
    device, target = pair.draft.device, pair.target
    with torch.no_grad():
        p = target.head(batch.hidden.to(target.device, target.dtype))
    tokens = batch.tokens.to(device)
    states = network.base_model(input_ids=tokens, use_cache=False).last_hidden_state
    q = network.get_output_embeddings()(states[batch.learned.to(device)])
    p, q = (logits[..., : pair.vocab].float().to(device) for logits in (p, q))
    return p, q, batch.token.to(device)


def distillation_loss(pair: Pair, network: Any, batch: Batch, objective: str) -> Tensor:
    """Mean of the objective over the learned positions of a batch."""
    return OBJECTIVES[objective](*both_logits(pair, network, batch)).mean()


@torch.no_grad()
def held_out_means(
    pair: Pair, network: Any, rows: Sequence[Example], objective: str
) -> dict[str, float]:
    """Means over the learned positions of held-out texts, averaged within each domain and then over
    domains: `objective`, `overlap` (on sampled text) and `hit[1]` (on greedy text), if such text
    exists.
    """
    parts = []
    for i in range(0, len(rows), JUDGED):
        chosen = rows[i : i + JUDGED]
        p, q, token = both_logits(pair, network, collate(chosen))
        tokens = [len(row.hidden) for row in chosen]
        columns = {
            "domain": np.repeat([row.domain for row in chosen], tokens),
            "greedy": np.repeat([row.kind == "greedy" for row in chosen], tokens),
            "objective": OBJECTIVES[objective](p, q, token).cpu(),
            "overlap": 1 - _total_variation(p, q, token).cpu(),
            "hit[1]": (rank_key(q).argmax(-1) == token).float().cpu(),
        }
        parts.append(pd.DataFrame(columns))
    judged = pd.concat(parts)
    greedy = judged.pop("greedy")
    judged["overlap"] = judged["overlap"].mask(greedy)
    judged["hit[1]"] = judged["hit[1]"].where(greedy)
    return judged.groupby("domain").mean().mean().dropna().to_dict()


@dataclass(frozen=True)
class TrainedDraft:
    """A trained draft on disk: `folder` (Hugging Face layout), `facts` (settings, texts, minutes)
    and its learning curve.
    """

    folder: Path
    facts: dict

    @property
    def curve(self) -> pd.DataFrame:
        """One row per checkpoint, starting before training: steps done, minutes, training loss, and
        `held_out_means`.
        """
        return pd.DataFrame(self.facts["curve"])


def distil(
    text: TrainingText, objective: str, config: TrainConfig, label: str, base: Path
) -> TrainedDraft:
    """Train the draft of the text's pair on its target's text, and save it as `base`/<label>-<key>.
    A finished draft is read; an interrupted training continues.

    objective: one of OBJECTIVES. config: `batch` counts texts; `context` is not used. Raises
    ValueError for an unknown objective or without texts, FloatingPointError if a loss is not
    finite, and OSError if the disk is full; the last good checkpoint is kept. Raises Damaged if a
    file of a finished draft has changed.
    """
    if objective not in OBJECTIVES:
        allowed = ", ".join(OBJECTIVES)
        raise ValueError(f"objective={objective!r}: allowed are {allowed}")
    settings = _settings(text, objective, config)
    folder = base / name_of(label, settings)
    if not (folder / FACTS).is_file():
        if not text.split()[0]:
            raise ValueError("no texts to train on: add prompts, or choose other domains")
        with locked(folder):  # a second process waits, then reads the finished draft
            if not (folder / FACTS).is_file():
                _train(text, objective, config, label, folder, settings)
    done = read_facts(folder / FACTS, "remove it to train the draft again")
    return TrainedDraft(folder, done)


def _train(
    text: TrainingText,
    objective: str,
    config: TrainConfig,
    label: str,
    folder: Path,
    settings: dict,
) -> None:
    """Train in `folder`. The facts are written last."""
    pair = text.pair
    trained_on, held_out = text.split()
    lengths = [len(row.tokens) for row in trained_on]
    measure = partial(held_out_means, pair, rows=held_out, objective=objective)

    def batch(step: int) -> Batch:
        numbers = draws_of(step, lengths, config.batch, config.seed)
        return collate([trained_on[i] for i in numbers])

    def loss(network: Any, batch: Batch, step: int) -> Tensor:
        return distillation_loss(pair, network, batch, objective)

    network = _trainable(pair)
    before = {"step": 0, "minutes": 0.0, "loss": None} | measure(pair.draft.network)
    checkpoint = folder / "checkpoint"
    log = optimise(network, batch, config, checkpoint, loss, measure, label)
    _export(network, pair, folder)
    facts = settings | {
        "texts": len(trained_on),
        "tokens": sum(len(row.hidden) for row in trained_on),
        "minutes": log[-1]["minutes"],
        "curve": [before, *(row | {"step": row["step"] + 1} for row in log)],
    }
    write_facts(folder / FACTS, facts, [*folder.glob("[a-z]*.*")])
    shutil.rmtree(checkpoint)


def _settings(text: TrainingText, objective: str, config: TrainConfig) -> dict:
    """All settings that change the weights of a trained draft."""
    return {
        "objective": objective,
        # lora_rank and accumulate have no effect; the names of shipped drafts contain them
        "lora_rank": 0,
        "config": asdict(config) | {"accumulate": 1},
        "text": text.key,
        "draft": text.pair.draft.folder.digest,
    }


def _trainable(pair: Pair) -> Any:
    """A trainable float32 copy of the draft. Half precision is too coarse for updates by AdamW or
    Muon.
    """
    network = copy.deepcopy(pair.draft.network)
    for p in network.parameters():
        p.data = p.data.clone()  # the decoder's fused projections share memory
    if pair.draft.folder.base:
        _learn_kept_only(network)
    return network.float().requires_grad_(True).train()


def _export(network: Any, pair: Pair, folder: Path) -> None:
    """Write half-precision weights, configuration and tokenizer in Hugging Face layout. For a draft
    of the kit, a path to its tokenizer is written instead. A draft with a trimmed vocabulary keeps
    its format.
    """
    own = pair.draft.folder
    if own.trimmed:
        _save_trimmed(own, network, folder)
    else:
        if own.path.resolve().is_relative_to(ROOT):
            place = os.path.relpath(own.path.resolve(), folder.resolve())
            network.config.tokenizer_of = place
        network.to(torch.float16).save_pretrained(folder, safe_serialization=True)
    made = ModelFolder(folder)
    if made.reader == made:
        own.tokenizer.save_pretrained(folder)


def _learn_kept_only(network: Any) -> None:
    """Block gradients to the embeddings of tokens that the draft cannot output. In a combined
    embedding, these rows belong to the other model.
    """
    rows, kept = network.get_input_embeddings().weight, network.lm_head.kept
    own = torch.zeros(len(rows), 1, device=rows.device).index_fill_(0, kept, 1.0)
    rows.requires_grad_(True)
    rows.register_hook(lambda gradient: gradient * own)


def _save_trimmed(like: ModelFolder, network: Any, folder: Path) -> None:
    """Write a network that was trained from the trimmed draft `like`, in the same format and in
    float16. `embed_map` is unchanged (see `_learn_kept_only`).
    """
    config = dict(like.config)
    was = load_file(like.path / "model.safetensors")
    weights = {
        name: value.half().contiguous() if value.is_floating_point() else value
        for name, value in network.state_dict().items()
    }
    kept = weights.pop("lm_head.kept")
    if "embed_map" in was:
        weights["embed_kept"] = weights.pop(EMBEDDING)[kept]
        weights["embed_map"] = was["embed_map"]
    if base := like.base:
        config["embedding_of"] = os.path.relpath(base.path.resolve(), folder.resolve())
    save_file(weights | {"kept": kept}, folder / "model.safetensors")
    text = json.dumps(config, indent=1)
    (folder / "config.json").write_text(text, encoding="utf-8")

"""Better drafts: a draft distilled on the target's own text, and its acceptance before and after.

Sequence-level (cross-entropy on the target's text) or token-level on its distributions (forward KL,
reverse KL, total variation; DistillSpec, arXiv:2310.08461). A trained draft stands in a folder
named by a hash of all that changes it, in Hugging Face layout, so that `pairs.load_pair` loads it;
a finished one is used again, a killed training goes on from its last checkpoint.
"""

import copy
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from speclab import score
from speclab.drafts.texts import FOLDER, Text, TrainingText, hash_of
from speclab.drafts.texts import (
    TextConfig as TextConfig,
)  # with the next, so that a notebook needs this module only
from speclab.drafts.texts import continuations as continuations
from speclab.drafts.train import TrainConfig, fit
from speclab.files import RunError, locked, written
from speclab.pairs import Pair, load_tokenizer
from speclab.profiles import ROOT, ModelSpec
from speclab.runs import Run, weights_digest
from speclab.sampling import rank_key
from speclab.stats import BOUNDS, RESAMPLES, prompts_of

SPECIALTY = ("math", "reasoning")


# ---- 1. objectives -------------------------------------------------------------------------------


def _sequence(p: Tensor, q: Tensor, token: Tensor) -> Tensor:
    return cross_entropy(q, token, reduction="none")


def _forward_kl(p: Tensor, q: Tensor, token: Tensor) -> Tensor:
    return kl_div(log_softmax(q, -1), log_softmax(p, -1), reduction="none", log_target=True).sum(-1)


def _reverse_kl(p: Tensor, q: Tensor, token: Tensor) -> Tensor:
    return _forward_kl(q, p, token)


def _total_variation(p: Tensor, q: Tensor, token: Tensor) -> Tensor:
    return 0.5 * (p.softmax(-1) - q.softmax(-1)).abs().sum(-1)


# (p logits [n, vocab], q logits [n, vocab], the target's token [n]) -> [n]; nats but for total
# variation. One minus total variation is `overlap`, the acceptance of a sampled token: the one
# objective that is what it is judged by.
OBJECTIVES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "sequence": _sequence,
    "forward-kl": _forward_kl,
    "reverse-kl": _reverse_kl,
    "total-variation": _total_variation,
}


# ---- 2. batches ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Texts side by side: tokens [B, L] (padded right), `learned` bool [B, L]: positions trained
    on; hidden [n, d] and token [n] there.
    """

    tokens: Tensor
    learned: Tensor
    hidden: Tensor
    token: Tensor


def collate(rows: Sequence[Text]) -> Batch:
    """A batch of texts. The last token of a text is predicted, never read."""
    longest = max(len(r.tokens) for r in rows) - 1
    tokens, learned = (
        torch.zeros(len(rows), longest, dtype=torch.long),
        torch.zeros(len(rows), longest, dtype=torch.bool),
    )
    for i, row in enumerate(rows):
        tokens[i, : len(row.tokens) - 1] = torch.from_numpy(row.tokens[:-1].astype(np.int64))
        learned[i, row.first : len(row.tokens) - 1] = True
    token = torch.from_numpy(
        np.concatenate([r.tokens[r.first + 1 :] for r in rows]).astype(np.int64)
    )
    hidden = torch.from_numpy(np.concatenate([r.hidden for r in rows]))
    return Batch(tokens, learned, hidden, token)


class Batches:
    """Batches of texts of like length; which texts and in which order depends on (seed, epoch)
    alone.
    """

    def __init__(self, rows: Sequence[Text], size: int, seed: int):
        if not rows:
            raise ValueError("training set of no rows: give more prompts, or other domains")
        self.rows, self.size, self.seed = rows, size, seed
        self.lengths = np.array([len(r.tokens) for r in rows])
        self.per_epoch = -(-len(rows) // size)

    def indices(self, step: int) -> np.ndarray:
        """Numbers of the texts of one step."""
        epoch, place = divmod(step, self.per_epoch)
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.rows))
        order = order[
            np.argsort(self.lengths[order] // 16, kind="stable")
        ]  # like lengths together: little padding
        return np.split(order, range(self.size, len(order), self.size))[
            rng.permutation(self.per_epoch)[place]
        ]

    def __call__(self, step: int) -> Batch:
        return collate([self.rows[i] for i in self.indices(step)])


# ---- 3. training ---------------------------------------------------------------------------------


def autocast(device: torch.device) -> Any:
    """float32 on a CPU; bfloat16 where a GPU has it in hardware, else float16 (whose gradients
    `fit` scales).
    """
    return nullcontext() if device.type == "cpu" else torch.autocast(device.type, dtype=_half())


def _half() -> torch.dtype:
    # a T4 says yes to the plain question: it emulates bfloat16, slowly
    return (
        torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    )


def both_logits(pair: Pair, network: Any, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """(p logits [n, vocab], q logits [n, vocab], token [n]) of the learned positions, float32 on
    the draft's device.
    """
    device = pair.draft.device
    with torch.no_grad():
        p = (
            pair.target.head(batch.hidden.to(pair.target.device, pair.target.dtype))[
                ..., : pair.vocab
            ]
            .float()
            .to(device)
        )
    with autocast(device):
        states = network.base_model(
            input_ids=batch.tokens.to(device), use_cache=False
        ).last_hidden_state
        q = network.get_output_embeddings()(states[batch.learned.to(device)])[
            ..., : pair.vocab
        ].float()
    return p, q, batch.token.to(device)


@torch.no_grad()
def evaluate(
    pair: Pair, network: Any, rows: Sequence[Text], objective: str, size: int = 16
) -> dict[str, float]:
    """Means over the learned positions of held-out texts: the objective; `overlap` (on sampled
    text) and `hit[1]` (on greedy text).

    Named `objective`, `overlap`, `hit[1]` (means of the domains' values), and `<domain> overlap`
    and so on; absent without such text.
    """
    found: dict[tuple[str, str], list[Tensor]] = {}
    for domain in dict.fromkeys(r.domain for r in rows):
        for kind in ("greedy", "sampled"):
            chosen = [r for r in rows if r.domain == domain and r.kind == kind]
            for i in range(0, len(chosen), size):
                p, q, token = both_logits(pair, network, collate(chosen[i : i + size]))
                found.setdefault((domain, "objective"), []).append(
                    OBJECTIVES[objective](p, q, token)
                )
                value = (
                    1 - _total_variation(p, q, token)
                    if kind == "sampled"
                    else (rank_key(q).argmax(-1) == token).float()
                )
                found.setdefault((domain, "overlap" if kind == "sampled" else "hit[1]"), []).append(
                    value
                )
    each = {key: float(torch.cat(values).mean()) for key, values in found.items()}
    names = dict.fromkeys(name for _, name in each)
    means = {name: float(np.mean([v for (_, n), v in each.items() if n == name])) for name in names}
    return means | {f"{domain} {name}": value for (domain, name), value in each.items()}


@dataclass(frozen=True)
class TrainedDraft:
    """A trained draft on disk: `folder` (Hugging Face layout), `facts` (settings, texts, minutes),
    and its learning curve.
    """

    folder: Path
    facts: dict

    @property
    def spec(self) -> ModelSpec:
        """For `profile.replace(draft=...)`."""
        return ModelSpec(
            str(self.folder.relative_to(ROOT) if self.folder.is_relative_to(ROOT) else self.folder)
        )

    @property
    def curve(self) -> pd.DataFrame:
        """A row a checkpoint, the first before training: steps done, minutes, training loss, and
        `evaluate` of the held-out texts.
        """
        return pd.DataFrame(self.facts["curve"])


def distil(
    pair: Pair,
    text: TrainingText,
    objective: str,
    config: TrainConfig,
    base: Path = FOLDER,
    lora_rank: int = 0,
    gradient_checkpointing: bool = False,
    label: str = "",
) -> TrainedDraft:
    """Train the pair's draft on the target's text and keep it as `base`/<key>; a finished one is
    used again, a killed one goes on.

    objective: one of OBJECTIVES. config: `batch` counts texts, `context` is not used. lora_rank: 0
    updates all weights; else adapters of that rank on every linear layer (needs `peft`), merged at
    the end. ValueError: unknown objective, no texts, texts of another target; FloatingPointError: a
    loss that is not finite; RunError: no space. After both the last good checkpoint stays.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective={objective!r}: allowed are {', '.join(OBJECTIVES)}")
    if text.rows and text.target != weights_digest(pair.target.folder):
        raise ValueError(
            "text: another target wrote it; make it with continuations(pair, ...) of this pair"
        )
    draft = weights_digest(pair.draft.folder)
    settings = {
        "objective": objective,
        "lora_rank": lora_rank,
        "config": asdict(config),
        "text": text.key,
        "draft": draft,
    }
    folder = base / f"{objective}-{hash_of(settings)}"
    Batches(
        text.split()[0], config.batch, config.seed
    )  # ValueError for no texts before anything is written
    with locked(folder):  # a second process waits, and finds it finished
        if not (folder / "facts.json").is_file():
            trainable = _trainable(pair, lora_rank, gradient_checkpointing, config.seed)
            facts = settings | _trained(pair, text, objective, config, folder, trainable, label)
            written(folder / "facts.json", lambda p: p.write_text(json.dumps(facts, indent=1)))
            shutil.rmtree(folder / "checkpoint")
    return TrainedDraft(folder, json.loads((folder / "facts.json").read_text()))


def _trained(
    pair: Pair,
    text: TrainingText,
    objective: str,
    config: TrainConfig,
    folder: Path,
    trainable: tuple,
    label: str,
) -> dict:
    """Train, export into `folder`, and return what `facts` says of it."""
    (network, finish), (trained, held_out) = trainable, text.split()
    batches = Batches(trained, config.batch, config.seed)

    def measure(network: Any, rows: Sequence[Text]) -> dict[str, float]:
        return evaluate(pair, network, rows, objective)

    def loss(network: Any, batch: Batch, step: int) -> Tensor:
        return distillation_loss(pair, network, batch, objective)

    before = {"step": 0, "minutes": 0.0, "loss": None} | measure(pair.draft.network, held_out)
    scaled = pair.draft.device.type != "cpu" and _half() == torch.float16
    log = fit(
        network,
        batches,
        config,
        folder / "checkpoint",
        held_out,
        loss,
        label or objective,
        measure,
        scaled,
    )
    _export(finish(), pair, folder)
    size = {
        "texts": len(trained),
        "tokens": sum(len(r.hidden) for r in trained),
        "minutes": log[-1]["minutes"],
    }
    return size | {"curve": [before, *({**row, "step": row["step"] + 1} for row in log)]}


def specialist(
    pair: Pair,
    text: TrainingText,
    objective: str,
    config: TrainConfig,
    base: Path = FOLDER,
    domains: Sequence[str] = SPECIALTY,
    **options: Any,
) -> TrainedDraft:
    """`distil` on the texts of some domains only, by default mathematics and reasoning; options:
    the rest of `distil`'s.
    """
    return distil(
        pair,
        text.only(domains),
        objective,
        config,
        base,
        **{"label": f"specialist {objective}"} | options,
    )


def distillation_loss(pair: Pair, network: Any, batch: Batch, objective: str) -> Tensor:
    """Mean of the objective over the learned positions of a batch."""
    return OBJECTIVES[objective](*both_logits(pair, network, batch)).mean()


def _trainable(
    pair: Pair, lora_rank: int, gradient_checkpointing: bool, seed: int
) -> tuple[Any, Callable[[], Any]]:
    """A copy of the draft whose weights can be trained, and a function that gives it back as a
    plain network.
    """
    network = copy.deepcopy(pair.draft.network)
    for p in network.parameters():
        p.data = p.data.clone()  # the decoder's fused projections share memory
    if lora_rank:
        torch.manual_seed(seed)  # adapters start at random
        finish = _with_adapters(network, lora_rank)
    else:
        finish = (
            network.float().requires_grad_(True).float
        )  # an update by AdamW or Muon is too small for half precision
    if gradient_checkpointing:
        network.gradient_checkpointing_enable()
        network.enable_input_require_grads()
    return network.train(), finish


def _with_adapters(network: Any, rank: int) -> Callable[[], Any]:
    """LoRA on every linear layer of the blocks, in place; returns what merges it."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ImportError(
            f"lora_rank={rank} needs peft: pip install peft, or take lora_rank=0 for a full update"
        ) from error
    wrapped = get_peft_model(
        network, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    )
    return wrapped.merge_and_unload


def _export(network: Any, pair: Pair, folder: Path) -> None:
    """Half-precision safetensors, configuration and the draft's tokenizer in Hugging Face layout."""
    try:
        network.to(torch.float16).save_pretrained(folder, safe_serialization=True)
        load_tokenizer(pair.draft.folder).save_pretrained(folder)
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"cannot write {folder}: {error}. The last checkpoint is kept; free space, then run again"
        ) from error


# ---- 4. before and after -------------------------------------------------------------------------


def gains(
    before: Run, after: Sequence[Run], estimator: score.Estimator, n: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """What training changed, by domain, with intervals over prompts and training seeds.

    after: one run a seed, over the text of `before`. estimator: of the trace, as
    `score.mean_of("overlap", "alpha")`; a family gives its first member (`score.hit`: hit[1]).

    Columns: domain (and `all`, `pooled`), before, after, difference (mean over seeds), low, high,
    seed_low, seed_high (the smallest and largest difference of a single seed), n_prompts, n_seeds.
    The bootstrap has two levels: each resample draws prompts within the domain (the same for all
    runs, so that they are paired) and seeds. Three seeds show their spread; they do not measure it
    well.
    """
    frames = [before.trace, *(run.trace for run in after)]
    ids = [sorted(set(f["prompt_id"])) for f in frames]
    if not after or any(i != ids[0] for i in ids):
        raise ValueError(
            "after: runs over the prompts of `before` are needed; record them with selection.recorded"
        )
    prompts = prompts_of(frames[0], n, seed)
    values = [
        score.across(
            estimator.value, prompts.resampled(prompts_of(f, 1).totals(estimator.columns(f)))
        )[..., 0]
        for f in frames
    ]
    difference = np.stack(values[1:]) - values[0]  # (seeds, 1 + n, domains + 2)
    picks = np.random.default_rng([seed, 3]).multinomial(
        len(after), np.full(len(after), 1 / len(after)), size=n
    ) / len(after)
    drawn = np.einsum("ns,snd->nd", picks, difference[:, 1:])
    point, counts = difference[:, 0], np.bincount(prompts.domain)
    after_training = np.mean([v[0] for v in values[1:]], axis=0)
    columns = [
        values[0][0],
        after_training,
        point.mean(axis=0),
        *np.quantile(drawn, BOUNDS, axis=0),
        point.min(axis=0),
        point.max(axis=0),
    ]
    table = pd.DataFrame(
        np.stack(columns, axis=1),
        columns=["before", "after", "difference", "low", "high", "seed_low", "seed_high"],
    )
    table.insert(0, "domain", [*prompts.domains, score.ALL, score.POOLED])
    return table.assign(n_prompts=[*counts, counts.sum(), counts.sum()], n_seeds=len(after))

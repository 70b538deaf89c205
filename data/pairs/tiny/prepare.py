"""`make tiny-pair`: train the tokenizer, target and draft of the profile `tiny` from scratch, with
one seed.
"""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from data.corpus import ASSISTANT, END, USER, Document, documents
from data.drafts.train import Stream, TrainConfig, fill_card, optimise
from speclab.drafts.quantise import QuantisedCopy, quantise
from speclab.study.runs import RunError

VOCABULARY = 4096
CALIBRATION_ROWS = 64
STEPS = {"draft": 2000, "target": 2000}
# From this step on, the token that ends a user's turn is not learned. Models that learned it ended
# plain prompts with the same words at once. We noticed this after 1,200 steps of the committed
# target.
MASK_FROM = {"draft": 0, "target": 1200}
SIZES = {
    "target": {
        "hidden_size": 256,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "intermediate_size": 768,
    },
    "draft": {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 384,
    },
}
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SPLIT = r"""\d| ?[A-Za-z]+|\n+| +(?=\S)|\s+| ?[^\sA-Za-z\d]+"""


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE of 4,096 tokens, with one token per digit and a BOS token like Llama's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", END, USER, ASSISTANT]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 0)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token=END,
        additional_special_tokens=special[2:],
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def encode(tokenizer: PreTrainedTokenizerFast, docs: list[Document]) -> np.ndarray:
    """All documents as one uint16 sequence, each as `<s> text </s>`."""
    ids = tokenizer([d.text for d in docs])["input_ids"]
    end = tokenizer.eos_token_id
    return np.concatenate(
        [np.array(i if i[-1] == end else [*i, end], dtype=np.uint16) for i in ids]
    )


def new_model(name: str, tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """A randomly initialised Llama with the size of the tiny pair's `target` or `draft`."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            rope_theta=10000.0,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            initializer_range=0.02,
            **SIZES[name],
        )
    )


def held_out_rows(
    tokenizer: PreTrainedTokenizerFast, docs: list[Document], config: TrainConfig
) -> dict[str, torch.Tensor]:
    """Up to 16 rows of held-out text per domain, int64 (rows, context + 1)."""
    rows, length = {}, config.context
    for domain in dict.fromkeys(d.domain for d in docs):
        kept = [d for d in docs if d.held_out and d.domain == domain]
        tokens = torch.from_numpy(encode(tokenizer, kept).astype(np.int64))
        rows[domain] = tokens.unfold(0, length + 1, length)[:16].clone()
    return rows


# ---- training ------------------------------------------------------------------------------------


def next_token_loss(
    model: torch.nn.Module, rows: torch.Tensor, ignored: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean cross-entropy in nats of rows (batch, context + 1), in bfloat16 autocast. ignored: bool
    (batch, context), labels without loss.
    """
    with torch.autocast(rows.device.type, dtype=torch.bfloat16):
        logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    labels = rows[:, 1:] if ignored is None else rows[:, 1:].masked_fill(ignored, -100)
    return cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


@torch.no_grad()
def losses(model: torch.nn.Module, held_out: dict[str, torch.Tensor]) -> dict[str, float]:
    """Held-out loss per domain, nats per token."""
    return {domain: float(next_token_loss(model, rows)) for domain, rows in held_out.items()}


def turn_loss(tokenizer: PreTrainedTokenizerFast, mask_from: int) -> Callable:
    """A loss(model, rows, step) that ignores, from step `mask_from` on, the token that ends a
    user's turn, because it is always part of the prompt.
    """
    end, assistant = tokenizer.convert_tokens_to_ids([END, ASSISTANT])

    def loss(model: LlamaForCausalLM, rows: torch.Tensor, step: int) -> torch.Tensor:
        ignored = torch.zeros_like(rows[:, 1:], dtype=torch.bool)
        ignored[:, :-1] = (rows[:, 1:-1] == end) & (rows[:, 2:] == assistant)
        return next_token_loss(model, rows, ignored if step >= mask_from else None)

    return loss


def export(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write half-precision safetensors, configuration and tokenizer in Hugging Face layout."""
    try:
        model.to(torch.float16).save_pretrained(folder, safe_serialization=True)
        tokenizer.save_pretrained(folder)
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"cannot write {folder}: {error}. The last checkpoint is kept; free space, then run "
            "again"
        ) from error


def _tokenizer(work: Path, docs: list[Document]) -> PreTrainedTokenizerFast:
    """A tokenizer of the training text; every call gives the same one, within seconds."""
    texts = [d.text for d in docs if not d.held_out][::4]
    train_tokenizer(texts).save_pretrained(work / "tokenizer")
    return PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")


def build_tiny_pair(
    data: Path, out: Path, work: Path, steps: int | None = None, seed: int = 0
) -> pd.DataFrame:
    """Train tokenizer, draft and target, quantise the target, and write the model card. The pair is
    written to `out`.

    Checkpoints are in `work`, and an interrupted call continues from the last one. steps: None
    means STEPS. Returns the held-out losses in nats per token. Raises RunError for a checkpoint
    with other steps, seed or text.
    """
    rates = {"lr_matrix": 1e-2, "lr_other": 5e-3}
    configs = {
        name: TrainConfig(steps=count if steps is None else steps, seed=seed, **rates)
        for name, count in STEPS.items()
    }
    config = configs["target"]
    docs = documents(data, seed)
    for folder in (work, out):  # before hours of training
        folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(work, docs)
    stream = Stream(encode(tokenizer, [d for d in docs if not d.held_out]), config)
    about = {"text": hashlib.sha256(stream.tokens.tobytes()).hexdigest()[:16]}
    rows, logs = held_out_rows(tokenizer, docs, config), {}
    for name in ("draft", "target"):
        model = new_model(name, tokenizer, seed)
        loss, measure = (turn_loss(tokenizer, MASK_FROM[name]), partial(losses, held_out=rows))
        folder, label = work / name, f"tiny {name}"
        logs[name] = optimise(
            model, stream.batch, configs[name], folder, loss, measure, label, about=about
        )
        export(model, tokenizer, out / name)
    calibration = [stream.batch(step)[0].tolist() for step in range(CALIBRATION_ROWS)]
    copied = QuantisedCopy(out / "target-gptq", work / "target-unpacked")
    quantise(out / "target", copied, calibration, bits=4)
    facts = {
        "seed": seed,
        "steps": {name: c.steps for name, c in configs.items()},
        "tokens_per_step": config.batch * config.context,
        "corpus_tokens": len(stream.tokens),
        "documents": dict(Counter(d.domain for d in docs)),
        "minutes": {name: log[-1]["minutes"] for name, log in logs.items()},
        "log": logs,
    }
    (out / "training.json").write_text(json.dumps(facts, indent=1) + "\n")
    last = pd.DataFrame({name: log[-1] for name, log in logs.items()})
    table = last.drop(index=["step", "minutes", "loss"])
    table = table.rename_axis("held-out loss, nats per token")
    fill_card(out / "README.md", numbers_of_card(table, facts))
    return table


def numbers_of_card(losses: pd.DataFrame, facts: dict) -> str:
    """The numbers of the model card, in Markdown."""
    names = [losses.index.name, *losses]
    cells = [[domain, *map("{:.2f}".format, row)] for domain, row in losses.iterrows()]
    lines = [f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *cells)]
    lines.append("")
    for name in losses:
        steps, minutes = facts["steps"][name], facts["minutes"][name]
        per_step = facts["tokens_per_step"]
        lines.append(f"{name}: {steps} steps of {per_step} tokens, {minutes:.0f} minutes.")
    tokens, documents = facts["corpus_tokens"], sum(facts["documents"].values())
    lines.append(f"The text has {tokens} training tokens in {documents} documents.")
    return "\n".join(lines)


@click.command()
@click.option("--data", type=Path, required=True, help="folder with train/ and hub_mirror/")
@click.option("--out", type=Path, default=Path("data/pairs/tiny"), show_default=True)
@click.option(
    "--work",
    type=Path,
    default=Path("build/tiny-pair"),
    show_default=True,
    help="checkpoints; an interrupted run continues from here",
)
@click.option(
    "--steps", type=int, help="per model (default: as for the committed pair; fewer are worse)"
)
@click.option("--seed", type=int, default=0, show_default=True)
def main(data: Path, out: Path, work: Path, steps: int | None, seed: int) -> None:
    """Train the tiny pair again from its text."""
    try:
        table = build_tiny_pair(data, out, work, steps, seed)
    except (ValueError, OSError, RunError, FloatingPointError) as error:
        print(f"speclab: {error}", file=sys.stderr)
        sys.exit(2)
    print(table.to_string(float_format="%.3f"))


if __name__ == "__main__":
    main()

"""Text on which a draft is trained: the target's own continuations of training prompts, greedy and
sampled, with its hidden states.

The hidden states times the target's head give its distributions. They take d numbers per token
instead of one number per vocabulary entry. The text is generated when its rows are first read, so a
finished draft needs no text. Each batch is a file in a folder whose name is a hash of all settings.
After an interruption, finished batches are read and the next batch follows.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from speclab.model import Pair
from speclab.plain import EncodedPrompt, digest_of
from speclab.record import generate
from speclab.sampling import Sampling
from speclab.study.profiles import ROOT
from speclab.study.prompts import Prompt, encode_prompts, prompts_digest
from speclab.study.runs import locked, written

FOLDER = ROOT / "data" / "runs" / "drafts"
# one training prompt in 10 (at most 16 per domain) is held out for the learning curve
HELD_OUT, HELD_OUT_PROMPTS = 10, 16


@dataclass(frozen=True)
class TextConfig:
    """What the target generates for each training prompt: one greedy text, and `samples` texts
    sampled at T = 1. Lengths are in tokens.
    """

    max_prompt_tokens: int = 512
    max_new_tokens: int = 64
    samples: int = 1
    template: str = "none"
    batch: int = 32


@dataclass(frozen=True)
class Example:
    """One continued prompt.

    tokens: prompt and continuation, int32 [n]. first: training uses the positions from here on.
    hidden: float16 [n - 1 - first, d], the target's states that predict tokens[first + 1:]. kind:
    "greedy" or "sampled".
    """

    prompt_id: str
    domain: str
    kind: str
    first: int
    tokens: np.ndarray
    hidden: np.ndarray


@dataclass(frozen=True)
class TrainingText:
    """A target's continuations of training prompts, with the hidden states that give its
    distributions. They are written to `base` when `rows` are first read.

    domains: of the rows.
    """

    pair: Pair
    prompts: tuple[Prompt, ...]
    config: TextConfig
    base: Path
    domains: tuple[str, ...]

    @property
    def key(self) -> str:
        """Hash of all settings of the rows. It needs no text."""
        return digest_of([self._written, sorted(self.domains)])[:16]

    @property
    def _written(self) -> str:
        # constants that are part of the names of shipped drafts
        always = {"greedy": True, "prompt_loss": False, "seed": 0}
        config = asdict(self.config) | always
        facts = [self.pair.target.folder.digest, prompts_digest(self.prompts), config]
        if self.config.template != "none":  # the template is part of the tokenizer's settings
            facts.append([prompt.ids for prompt in self._encoded()])
        return digest_of(facts)[:16]

    @cached_property
    def rows(self) -> tuple[Example, ...]:
        """The texts, greedy ones first, and within a kind the shorter prompts first. After an
        interruption the next batch follows. Raises RunError if the folder cannot be written.
        """
        config, encoded = self.config, self._encoded()
        variants = [("greedy", Sampling(), 0)]
        variants += [("sampled", Sampling(1.0), seed) for seed in range(config.samples)]
        folder, rows = self.base / f"text-{self._written}", []
        with locked(folder):  # a second process waits, then reads the finished files
            for number, (kind, *drawn) in enumerate(tqdm(variants, "target's text")):
                for start in range(0, len(encoded), config.batch):
                    block = encoded[start : start + config.batch]
                    index = start // config.batch
                    path = folder / f"{number:02d}-{index:05d}-texts.safetensors"
                    if not path.is_file():
                        made = _continued(self.pair, block, config, *drawn)
                        written(path, partial(save_file, made))
                    made = load_file(path)
                    for place, prompt in enumerate(block):
                        about = prompt.prompt_id, prompt.domain, kind
                        parts = made[f"{place} tokens"], made[f"{place} hidden"]
                        rows.append(Example(*about, len(prompt.ids) - 1, *parts))
        return tuple(row for row in rows if row.domain in self.domains)

    def _encoded(self) -> list[EncodedPrompt]:
        """The prompts, shortest first, so that batches need little padding."""
        longest, template = self.config.max_prompt_tokens, self.config.template
        encoded = encode_prompts(self.pair.tokenizer, self.prompts, longest, template)
        return sorted(encoded, key=lambda prompt: len(prompt.ids))

    def only(self, domains: Sequence[str]) -> "TrainingText":
        """The texts of some of the domains."""
        return replace(self, domains=tuple(d for d in self.domains if d in domains))

    def split(self) -> tuple[list[Example], list[Example]]:
        """(trained on, held out). Of each domain, one prompt in HELD_OUT (at most HELD_OUT_PROMPTS)
        is held out with all its texts, chosen by a hash.
        """
        held_out = []
        for domain in self.domains:
            ids = {row.prompt_id for row in self.rows if row.domain == domain}
            ids = sorted(ids, key=lambda name: hashlib.sha256(name.encode()).digest())
            count = min(HELD_OUT_PROMPTS, -(-(len(ids) - 1) // HELD_OUT))
            held_out += ids[:count]
        parts: tuple[list[Example], list[Example]] = [], []
        for row in self.rows:
            parts[row.prompt_id in held_out].append(row)
        return parts


def continuations(
    pair: Pair, prompts: Sequence[Prompt], config: TextConfig, base: Path = FOLDER
) -> TrainingText:
    """The text that the pair's target generates for training prompts. Nothing is generated yet.

    prompts: from `training_prompts`, or from your own file with `prompts.read_prompts`; never
    prompts on which the draft is tested. Disk and memory: 2d bytes per trained token (d: the
    target's width). Raises ValueError if the lengths exceed the pair's positions.
    """
    context = config.max_prompt_tokens + config.max_new_tokens
    limit = min(pair.target.positions, pair.draft.positions)
    if context > limit:
        raise ValueError(
            f"max_prompt_tokens + max_new_tokens = {context}: the pair has {limit} positions"
        )
    domains = tuple({prompt.domain: None for prompt in prompts})
    return TrainingText(pair, tuple(prompts), config, base, domains)


def _continued(
    pair: Pair, block: list[EncodedPrompt], config: TextConfig, sampling: Sampling, seed: int
) -> dict[str, np.ndarray]:
    """`tokens` and `hidden` of each text of a batch, as in `Example`, by the text's number and this
    name.
    """
    new, stops = config.max_new_tokens, pair.stop_ids
    made = generate(pair.target, block, new, stops, sampling, seed)
    texts = [torch.tensor([*p.ids, *text]) for p, text in zip(block, made, strict=True)]
    # padding is on the right, where no token attends to it
    tokens = pad_sequence(texts, batch_first=True)
    hidden = pair.target.forward(tokens[:, :-1], pair.target.cache(tokens.shape[1]))
    found = {}
    for place, (prompt, text) in enumerate(zip(block, texts, strict=True)):
        kept = hidden[place, len(prompt.ids) - 1 : len(text) - 1]
        found[f"{place} tokens"] = text.int().numpy()
        found[f"{place} hidden"] = kept.to("cpu", torch.float16).contiguous().numpy()
    return found

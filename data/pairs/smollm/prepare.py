"""Train the draft of the pair `smollm`: its target writes texts, and a narrow Llama learns from
them.

Run `python -m data.pairs.smollm.prepare STEP --work WORK [--data DATA]` in the root of the kit
after `make pair PROFILE=smollm`, with the steps in the order of STEPS. DATA contains `train/` and
`hub_mirror/` (the card names the sources). All results are written to WORK. A step reads the files
of the steps before it, and writes its own files first under a temporary name. An interrupted step
continues when called again. There is one seed, and all files are safetensors. `card` writes this
folder's card.json and README.md from the shipped traces.
"""

import argparse
import hashlib
import json
import random
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save as packed_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding, linear
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaModel

from data.corpus import benchmark_ngrams, code_rows, math_rows, read_jsonl, reasoning_rows
from data.drafts.train import FILE, Stream, TrainConfig, fill_card, optimise
from data.training_prompts.compose import ngrams, shingles, training_prompts
from speclab.estimates import stack
from speclab.models.folder import ModelFolder, tensor_shapes
from speclab.models.timing import pass_times
from speclab.models.trimmed import base_embedding
from speclab.plain import DOMAINS, read_json
from speclab.score import mean_of
from speclab.stats import by_domain
from speclab.study.pairs import load_pair
from speclab.study.profiles import load_profile
from speclab.study.prompts import PROJECT_PROMPTS, read_prompts
from speclab.study.runs import RunError, load_or_record, written

HERE = Path(__file__).parent
TARGET = HERE / "target"
VOCABULARY = 49152
SEED = 0


def write_json(path: Path, content: object) -> None:
    """Write `content` as an indented JSON file."""
    written(path, lambda p: p.write_text(json.dumps(content, indent=1) + "\n"))


def settled(path: Path, content: bytes, later: str) -> None:
    """Write the file of a step. Raises ValueError if the file exists with other content and a later
    step has already used it. The later step's files match `later` in the same folder; they would
    not fit the new content.
    """
    if path.is_file() and path.read_bytes() != content and any(path.parent.glob(later)):
        raise ValueError(
            f"{path} would change, and {path.parent / later} was made from it: choose another "
            f"--work, or remove {later}"
        )
    written(path, lambda p: p.write_bytes(content))


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by an earlier step. Raises ValueError if it is missing or truncated."""
    if not path.is_file():
        raise ValueError(f"{path} is missing: run the steps before this one first")
    tensor_shapes(path, "remove it, then run the step that writes it again")
    return load_arrays(path)


def digest(*arrays: np.ndarray) -> str:
    """A short hash of the content of some arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]


def target_tokenizer():
    """The target's tokenizer, with its chat template."""
    return ModelFolder(TARGET).tokenizer


# ---- prompts: the target's training prompts ------------------------------------------------------

PROMPT_TOKENS = 256  # longer training prompts are excluded
ROWS = 48  # prompts per batch of the writer
COMPOSED = {"code": 600, "math": 600, "reasoning": 600, "chat": 1800}  # from training_prompts
MOST_CHATS = {  # most prompts per source of chats, so that no narrow source dominates
    "chat_justeval_outputs.jsonl.gz": 2000,
    "chat_oasst_en100.jsonl.gz": 500,
    "chat_taskmaster4_quarter.jsonl": 60,
    "chat_topical_chat.jsonl.gz": 500,
    "ultrachat": 500,
}


def chat_rows(data: Path) -> dict[str, list[list[dict]]]:
    """Conversations by source, each a list of {role, content}; of ultrachat only the first turn."""
    talks = {}
    for source in MOST_CHATS:
        if source != "ultrachat":
            talks[source] = [
                row["messages"] for row in read_jsonl(data / "train" / source, messages=list)
            ]
    mirror = data / "hub_mirror" / "HuggingFaceH4" / "ultrachat_200k" / "default"
    first_turns = read_jsonl(mirror / "train_sft.jsonl.gz", messages=list)
    talks["ultrachat"] = [row["messages"][:1] for row in first_turns]
    return talks


def shingles_judged(data: Path) -> set[tuple[str, ...]]:
    """The 13-word sequences that no training row may contain: from benchmark tests and the kit's
    prompts.
    """
    own = set().union(*(shingles(prompt.text) for prompt in read_prompts(PROJECT_PROMPTS)))
    return own | benchmark_ngrams(data / "hub_mirror")


def training_questions(data: Path) -> dict[str, list[str]]:
    """Prompts by domain in random order, from the data sets' train splits and from composed
    prompts.
    """
    judged, rng = shingles_judged(data), random.Random(SEED)
    texts = {}
    for domain, rows in (("math", math_rows), ("reasoning", reasoning_rows), ("code", code_rows)):
        kept = [prompt for key, prompt, _ in rows(data / "train") if not ngrams(key) & judged]
        texts[domain] = kept
    texts["chat"] = []
    for source, talks in chat_rows(data).items():
        first = list(dict.fromkeys(talk[0]["content"].strip() for talk in talks))
        first = [text for text in first if not ngrams(text) & judged]
        texts["chat"] += rng.sample(first, min(MOST_CHATS[source], len(first)))
    for domain in DOMAINS:
        texts[domain] += [p.text for p in training_prompts(COMPOSED[domain], SEED, [domain])]
        texts[domain] = list(dict.fromkeys(texts[domain]))
        rng.shuffle(texts[domain])
    return texts


def chat_ids(tokenizer, text: str) -> list[int]:
    """Token ids of a user's message in the target's template, up to the start of the assistant's
    turn.
    """
    message = {"role": "user", "content": text}
    return tokenizer.apply_chat_template([message], add_generation_prompt=True, return_dict=False)


def batches_of(prompts: list[list[int]]) -> list[list[list[int]]]:
    """Batches of ROWS prompts of similar length, in random order within every eight batches."""
    batches = []
    for start in range(0, len(prompts), 8 * ROWS):
        window = sorted(prompts[start : start + 8 * ROWS], key=len)
        block = [window[i : i + ROWS] for i in range(0, len(window), ROWS)]
        random.Random(start).shuffle(block)
        batches += block
    return batches


def prompts(args: argparse.Namespace) -> None:
    """Write `prompts.json`: [domain, batch of token ids], with the domains in turn."""
    tokenizer, by_domain = target_tokenizer(), {}
    for domain, texts in training_questions(args.data).items():
        ids = [chat_ids(tokenizer, text) for text in texts]
        short = [i for i in ids if len(i) <= PROMPT_TOKENS]
        by_domain[domain] = batches_of(short)
        print(domain, len(texts), "prompts,", len(short), "short enough")
    order = []
    for number in range(max(map(len, by_domain.values()))):
        for domain in DOMAINS:
            order += [(domain, batch) for batch in by_domain[domain][number : number + 1]]
    content = json.dumps(order).encode()
    settled(args.work / "prompts.json", content, "shards/*.safetensors")


# ---- write: the target's answers -----------------------------------------------------------------

NEW_TOKENS = 64
TOP = 64  # number of the target's log-probabilities that are kept


class Writer:
    """The target, which continues prompts. bfloat16 is fastest.

    taps: numbers of layers whose outputs `write` also returns (1: the first layer's).
    """

    def __init__(self, folder: Path, dtype: torch.dtype = torch.bfloat16, taps: tuple = ()):
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, use_safetensors=True)
        self.network, self.taps = network.eval(), taps

    def _features(self, hidden: tuple[Tensor, ...]) -> Tensor:
        """The outputs of `taps` in one pass, [rows, n, taps x d]."""
        return torch.cat([hidden[tap] for tap in self.taps], -1)

    @torch.inference_mode()
    def read(self, text: list[int]) -> Tensor:
        """The features [n, taps x d] of a text."""
        made = self.network.model(torch.tensor([text]), output_hidden_states=True)
        return self._features(made.hidden_states)[0]

    @torch.inference_mode()
    def write(self, ids: list[list[int]], stop: int, seed: int) -> dict[str, np.ndarray]:
        """Continue each prompt twice, by NEW_TOKENS or to `stop`: greedily, and sampled at T = 1.

        The texts are concatenated, greedy texts first: tokens; length, and first (the first new
        token) of each text; top_ids and top_logp [new tokens, TOP]; and the states [new tokens, d]
        that predict them. With taps also `features`, float16 [tokens - 1 of each text, taps x d].
        """
        parts = [self._written(ids, stop, sampled, seed) for sampled in (False, True)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _written(
        self, ids: list[list[int]], stop: int, sampled: bool, seed: int
    ) -> dict[str, np.ndarray]:
        """One text per prompt, as of `write`."""
        # prompts end in the same column
        rows = [torch.tensor(prompt) for prompt in ids]
        tokens = pad_sequence(rows, True, stop, "left")
        seen = pad_sequence([torch.ones_like(row) for row in rows], True, 0, "left")
        torch.manual_seed(seed)
        made = self.network.generate(
            tokens,
            attention_mask=seen,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=stop,
            pad_token_id=stop,
            return_dict_in_generate=True,
            output_logits=True,
            output_hidden_states=True,
            **({"do_sample": True, "top_k": 0, "top_p": 1.0} if sampled else {"do_sample": False}),
        )
        # a text ends with its first stop token; what follows is padding
        said = made.sequences[:, tokens.shape[1] :]
        live = (said == stop).cumsum(1) - (said == stop).int() == 0
        texts = [prompt + row[on].tolist() for prompt, row, on in zip(ids, said, live, strict=True)]
        logp = torch.stack(made.logits, 1)[live].float().log_softmax(-1)
        top = logp.topk(TOP)
        states = torch.stack([hidden[-1][:, -1] for hidden in made.hidden_states], 1)
        arrays = {
            "tokens": np.concatenate([np.array(text, np.uint16) for text in texts]),
            "length": np.array([len(text) for text in texts], np.int32),
            "first": np.array([len(prompt) for prompt in ids], np.int32),
            "top_ids": top.indices.numpy().astype(np.uint16),
            "top_logp": top.values.half().numpy(),
            "states": states[live].float().numpy(),
        }
        if self.taps:
            read = torch.cat([self._features(hidden) for hidden in made.hidden_states], 1)
            starts = [tokens.shape[1] - len(prompt) for prompt in ids]
            own = [
                row[start : start + len(text) - 1]
                for row, start, text in zip(read, starts, texts, strict=True)
            ]
            arrays["features"] = torch.cat(own).half().numpy()
        return arrays


def write(args: argparse.Namespace) -> None:
    """Write `shards/`: the target's text, one file per batch of prompts, until `--minutes` have
    passed.
    """
    order = read_json(args.work / "prompts.json", "run the step `prompts`", list)
    writer, stop = (Writer(TARGET), target_tokenizer().eos_token_id)
    began = time.time()
    for number, (domain, ids) in enumerate(order):
        path = args.work / "shards" / f"{number:04d}-{domain}.safetensors"
        if path.is_file():
            continue
        if time.time() - began > 60 * args.minutes:
            break
        used = time.process_time()
        arrays = writer.write(ids, stop, seed=number)
        del arrays["states"]
        written(path, lambda p, arrays=arrays: save_arrays(arrays, p))
        used = time.process_time() - used
        print(path.name, len(arrays["top_ids"]), f"tokens, {used:.0f} core seconds", flush=True)


# ---- text, vocabulary: the draft's first training text, and its output tokens --------------------

SHARE_OF_CHATS = {"chat_topical_chat.jsonl.gz": 0.25, "chat_taskmaster4_quarter.jsonl": 0.2}
PROSE_CHARS = 1500  # characters from each file
FENCED = 0.5  # share of the answers with code that get a fence
KEPT = 10240
OWN_WEIGHT = 10  # weight of a token that the target wrote
PRIOR = 300_000  # each token also gets PRIOR / (id + 100), because low ids are frequent tokens


def conversations(data: Path) -> list[tuple[str, list[dict]]]:
    """(domain, turns) of all permissively licensed text in random order. Rows that overlap with a
    test prompt are excluded.
    """
    judged, rng, talks = shingles_judged(data), random.Random(SEED), []
    for domain, rows in (("math", math_rows), ("reasoning", reasoning_rows), ("code", code_rows)):
        for key, prompt, answer in rows(data / "train"):
            if ngrams(key) & judged:
                continue
            answer = answer.strip("\n")
            if domain == "code":  # the target repeats the given head, often in a fence
                answer = prompt + answer
                if rng.random() < FENCED:
                    answer = f"```python\n{answer}\n```"
            turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
            talks.append((domain, turns))
    for source, found in chat_rows(data).items():
        found = [t for t in found if len(t) > 1 and not ngrams(t[0]["content"]) & judged]
        taken = rng.sample(found, int(SHARE_OF_CHATS.get(source, 1) * len(found)))
        talks += [("chat", turns) for turns in taken]
    for row in read_jsonl(data / "train" / "prose_technical.jsonl.gz", text=str):
        talks.append(("prose", [{"role": "assistant", "content": row["text"][:PROSE_CHARS]}]))
    rng.shuffle(talks)
    return talks


def text(args: argparse.Namespace) -> None:
    """Write `text.safetensors`: the permissively licensed text in the target's chat format as one
    uint16 sequence.
    """
    tokenizer, talks = target_tokenizer(), conversations(args.data)
    marked = []
    for _, turns in talks:
        parts = [f"<|im_start|>{t['role']}\n{t['content']}<|im_end|>\n" for t in turns]
        marked.append("".join(parts))
    ids = tokenizer(marked)["input_ids"]
    stream = np.concatenate([np.array(one, np.uint16) for one in ids])
    for domain in (*DOMAINS, "prose"):
        total = sum(len(i) for (d, _), i in zip(talks, ids, strict=True) if d == domain)
        print(domain, total, "tokens")
    content = packed_arrays({"tokens": stream})
    settled(args.work / "text.safetensors", content, "kept.safetensors")


def split_texts(arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The texts of one of the writer's files, prompt and answer."""
    return np.split(arrays["tokens"], np.cumsum(arrays["length"])[:-1])


def answers(arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The answers without their prompts."""
    pairs = zip(split_texts(arrays), arrays["first"], strict=True)
    return [text[first:] for text, first in pairs]


def vocabulary(args: argparse.Namespace) -> None:
    """Write `kept.safetensors`: the KEPT tokens with the largest weight, in order of id, for the
    draft's head.
    """
    path = args.work / "kept.safetensors"
    if path.is_file():
        return
    stream = arrays_of(args.work / "text.safetensors")["tokens"]
    weight = np.bincount(stream, minlength=VOCABULARY) + PRIOR / (np.arange(VOCABULARY) + 100)
    for shard in sorted((args.work / "shards").glob("*.safetensors")):
        own = np.concatenate(answers(arrays_of(shard)))
        weight += OWN_WEIGHT * np.bincount(own, minlength=VOCABULARY)
    weight[:3] = np.inf  # end of text, start and end of a turn
    best = np.argsort(-weight, kind="stable")[:KEPT]
    written(path, lambda p: save_arrays({"kept": np.sort(best).astype(np.int32)}, p))


# ---- train: the draft ----------------------------------------------------------------------------

SHAPE = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 768,
    "max_position_embeddings": 2048,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "rms_norm_eps": 1e-5,
}
NO_EMBEDDING = {"vocab_size": 1, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


class Draft(torch.nn.Module):
    """A narrow Llama that reads all of the target's tokens and outputs the kept ones.

    The embedding of a kept token is its row of `embed_kept`; of any other token it is the target's
    row times `embed_map`. The map is initialised with the leading singular vectors of the target's
    kept rows; the kept rows and the head with those rows times the map.
    """

    def __init__(self, target_embed: Tensor, kept: Tensor):
        super().__init__()
        place = torch.full((len(target_embed),), -1)
        place[kept] = torch.arange(len(kept))
        self.register_buffer("target_embed", target_embed, persistent=False)
        self.register_buffer("kept", kept, persistent=False)
        self.register_buffer("place", place, persistent=False)
        torch.manual_seed(SEED)
        self.body = LlamaModel(LlamaConfig(**SHAPE, **NO_EMBEDDING))
        self.body.embed_tokens.weight.requires_grad_(False)
        rows = target_embed[kept]
        vectors = torch.linalg.svd(rows, full_matrices=False).Vh[: SHAPE["hidden_size"]].T
        self.embed_map = torch.nn.Parameter(vectors.clone())
        self.embed_kept = torch.nn.Parameter(rows @ vectors)
        self.lm_head = torch.nn.Parameter(rows @ vectors)
        with torch.no_grad():  # logits then start with a standard deviation of about one
            self.body.norm.weight.fill_(1 / float(self.lm_head.norm(dim=1).mean()))

    def states(self, tokens: Tensor) -> Tensor:
        """Last states [rows, n, d] for the target's token ids [rows, n]."""
        place = self.place[tokens]
        other = place < 0
        read = embedding(place.clamp(min=0), self.embed_kept)
        mapped = self.target_embed[tokens[other]] @ self.embed_map
        read = read.masked_scatter(other[..., None], mapped.to(read.dtype))
        return self.body(inputs_embeds=read, use_cache=False).last_hidden_state

    def logits(self, states: Tensor) -> Tensor:
        """Logits of the kept tokens, float32 [..., KEPT]."""
        return linear(states, self.lm_head).float()


def new_draft(work: Path) -> Draft:
    """The draft before training."""
    kept = torch.from_numpy(arrays_of(work / "kept.safetensors")["kept"]).long()
    return Draft(base_embedding(ModelFolder(TARGET)).float(), kept)


def text_loss(draft: Draft, rows: Tensor) -> Tensor:
    """Next-token cross-entropy of packed rows, ignoring labels outside the draft's vocabulary."""
    logits = draft.logits(draft.states(rows[:, :-1]))
    labels = draft.place[rows[:, 1:]]
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)


def own_loss(draft: Draft, batch: dict[str, Tensor]) -> Tensor:
    """Cross-entropy to the target's distribution (its TOP tokens, as far as they are kept) on its
    own text.
    """
    states = draft.states(batch["tokens"])[batch["learned"]]
    log_q = draft.logits(states).log_softmax(-1)
    place = draft.place[batch["top_ids"]]
    p = batch["top_logp"].exp().masked_fill(place < 0, 0)
    return -(p * log_q.gather(-1, place.clamp(min=0))).sum(-1).mean()


def loss_of(draft: Draft, batch: Tensor | dict[str, Tensor], step: int) -> Tensor:
    """The loss of either kind of batch, in bfloat16 autocast."""
    loss = own_loss if isinstance(batch, dict) else text_loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return loss(draft, batch)


class OwnText:
    """Batches of `size` texts by the target, of similar length, in an order from (seed, epoch)."""

    def __init__(self, files: list[Path], size: int):
        self.texts = []
        for path in files:
            arrays = arrays_of(path)
            ends = np.cumsum(arrays["length"] - arrays["first"])[:-1]
            tops = np.split(arrays["top_ids"], ends), np.split(arrays["top_logp"], ends)
            self.texts += zip(split_texts(arrays), arrays["first"], *tops, strict=True)
        self.length = np.array([len(text[0]) for text in self.texts])
        self.per_epoch = len(self.texts) // size

    def batch(self, number: int) -> dict[str, Tensor]:
        """tokens and learned (bool) [size, n], padded on the right; top_ids and top_logp [learned,
        TOP].
        """
        epoch, place = divmod(number, self.per_epoch)
        rng = np.random.default_rng([SEED, epoch])
        order = rng.permutation(len(self.texts))
        order = order[np.argsort(self.length[order] // 16, kind="stable")]
        number = rng.permutation(self.per_epoch)[place]
        chosen = [self.texts[i] for i in np.array_split(order, self.per_epoch)[number]]

        longest = max(len(text) for text, *_ in chosen) - 1
        tokens = torch.zeros(len(chosen), longest, dtype=torch.long)
        learned = torch.zeros(len(chosen), longest, dtype=torch.bool)
        for row, (text, first, *_) in enumerate(chosen):
            tokens[row, : len(text) - 1] = torch.from_numpy(text[:-1].astype(np.int64))
            learned[row, first - 1 : len(text) - 1] = True
        top_ids = np.concatenate([ids for *_, ids, _ in chosen]).astype(np.int64)
        top_logp = np.concatenate([logp for *_, logp in chosen]).astype(np.float32)
        return {
            "tokens": tokens,
            "learned": learned,
            "top_ids": torch.from_numpy(top_ids),
            "top_logp": torch.from_numpy(top_logp),
        }


OWN_TEXTS = 24  # per batch
COMMON = {"batch": 8, "context": 256, "lr_matrix": 0.01, "lr_other": 2e-3, "seed": SEED}
PHASES = {  # the second phase starts from the weights of the first
    "learn": TrainConfig(
        steps=300, decay_share=0.0, warmup_steps=50, checkpoint_every=100, **COMMON
    ),
    "distil": TrainConfig(
        steps=840, decay_share=0.3, warmup_steps=20, checkpoint_every=120, **COMMON
    ),
}
OWN_OF_FOUR = {"learn": 0, "distil": 3}  # batches of the target's text in every four
SKIP = {"learn": 0, "distil": 300}  # batches of the other text that an earlier phase used


def weights_of(folder: Path) -> dict[str, Tensor]:
    """The draft's weights in a checkpoint of data.drafts.train."""
    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"{path} is missing: run `train {folder.name}` first")
    tensor_shapes(path, f"run `train {folder.name}` again")
    learned = {k: v for k, v in load_file(path).items() if k.startswith("model.")}
    return {name.removeprefix("model."): value for name, value in learned.items()}


def shards_at_start(work: Path, phase: str) -> list[Path]:
    """The target's text at the start of the phase, so that a second call reads the same text."""
    listed = work / phase / "shards.json"
    if not listed.is_file():
        write_json(listed, sorted(path.name for path in (work / "shards").glob("*.safetensors")))
    return [work / "shards" / name for name in read_json(listed, "remove it", list)]


def train(args: argparse.Namespace) -> None:
    """Train one of PHASES. An interrupted call continues from its last checkpoint."""
    phase, names, draft = args.phase, list(PHASES), new_draft(args.work)
    config, share = PHASES[phase], OWN_OF_FOUR[phase]
    if phase != names[0]:
        before = names[names.index(phase) - 1]
        draft.load_state_dict(weights_of(args.work / before), strict=False)
    stream = arrays_of(args.work / "text.safetensors")["tokens"]
    about = {"text": digest(stream), "kept": digest(draft.kept.numpy())}
    if phase != names[0]:
        about[names[0]] = digest(*(p.detach().numpy() for p in draft.parameters()))
    packed = Stream(stream, config)
    own = OwnText(shards_at_start(args.work, phase), OWN_TEXTS) if share else None

    def batch(number: int) -> Tensor | dict[str, Tensor]:
        """Of every four batches, `share` are the target's text."""
        own_before = number * share // 4
        if (number + 1) * share // 4 > own_before:
            return own.batch(own_before)
        return packed.batch(SKIP[phase] + number - own_before)

    texts = arrays_of(args.work / "look.safetensors")

    folder = args.work / phase
    measure = partial(judge, texts=texts)
    log = optimise(draft, batch, config, folder, loss_of, measure, phase, about=about)
    write_json(folder / "log.json", log)


# ---- look, judged: the text on which the draft is tested -----------------------------------------


def judged_text(args: argparse.Namespace, per_domain: int, path: Path) -> None:
    """Write the float32 target's text after the kit's first prompts of each domain, in the writer's
    format, with prompt, domain and sampled (0 or 1) of each text.
    """
    if path.is_file():
        return
    tokenizer, writer = (target_tokenizer(), Writer(TARGET, torch.float32))
    known, parts = read_prompts(PROJECT_PROMPTS), []
    for number, domain in enumerate(DOMAINS):
        mine = [prompt.text for prompt in known if prompt.domain == domain][:per_domain]
        for start in range(0, len(mine), ROWS // 2):
            ids = [chat_ids(tokenizer, text) for text in mine[start : start + ROWS // 2]]
            made = writer.write(ids, tokenizer.eos_token_id, seed=start)
            del made["top_ids"], made["top_logp"]
            made["prompt"] = np.tile(np.arange(start, start + len(ids), dtype=np.int32), 2)
            made["domain"] = np.full(2 * len(ids), number, np.int32)
            made["sampled"] = np.repeat(np.array([0, 1], np.int32), len(ids))
            parts.append(made)
    joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    written(path, lambda p: save_arrays(joined, p))


def look(args: argparse.Namespace) -> None:
    """Text of eight prompts per domain, for the learning curve."""
    judged_text(args, 8, args.work / "look.safetensors")


@torch.no_grad()
def positions(draft: Draft, texts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Values per tested position: domain, sampled, hit (whether the draft's best token is the
    text's), and alpha = sum of min(p, q).
    """
    said = answers(texts)
    states = np.split(texts["states"], np.cumsum([len(s) for s in said])[:-1])
    found: dict[str, list[np.ndarray]] = {"hit": [], "alpha": []}
    for text, first, state, answer in zip(
        split_texts(texts), texts["first"], states, said, strict=True
    ):
        tokens = torch.from_numpy(text[None, :-1].astype(np.int64))
        token = torch.from_numpy(answer.astype(np.int64))
        q = draft.logits(draft.states(tokens)[0, first - 1 :]).softmax(-1)
        p = linear(torch.from_numpy(state), draft.target_embed).softmax(-1)
        found["hit"].append((draft.kept[q.argmax(-1)] == token).numpy())
        found["alpha"].append(torch.minimum(p[:, draft.kept], q).sum(-1).numpy())
    values = {key: np.concatenate(parts).astype(float) for key, parts in found.items()}
    counts = [len(s) for s in said]
    return values | {key: np.repeat(texts[key], counts) for key in ("domain", "sampled")}


def judge(draft: Draft, texts: dict[str, np.ndarray]) -> dict[str, float]:
    """hit[1] on greedy text and alpha on sampled text: the mean of the domains, and each domain."""
    rows, found = positions(draft, texts), {}
    for name, sampled in (("hit", 0), ("alpha", 1)):
        each = {}
        for number, domain in enumerate(DOMAINS):
            mine = (rows["domain"] == number) & (rows["sampled"] == sampled)
            each[f"{domain} {name}"] = round(float(rows[name][mine].mean()), 3)
        found |= {name: round(float(np.mean(list(each.values()))), 4)} | each
    return found


# ---- export: the shipped draft -------------------------------------------------------------------


def export(args: argparse.Namespace) -> None:
    """Write `export/draft`: configuration, half-precision weights and the kept ids, without the
    target's embeddings.
    """
    weights = {}
    for name, value in weights_of(args.work / args.phase).items():
        if not name.startswith("body.embed_tokens"):
            weights[name.replace("body.", "model.")] = value.half().contiguous()
    weights["lm_head.weight"] = weights.pop("lm_head")
    weights["kept"] = torch.from_numpy(arrays_of(args.work / "kept.safetensors")["kept"])
    config = LlamaConfig(
        **SHAPE,
        vocab_size=VOCABULARY,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        tie_word_embeddings=False,
        architectures=["LlamaForCausalLM"],
    )
    folder = args.work / "export" / "draft"
    path = folder / "model.safetensors"
    written(path, lambda p: save_file(weights, p, {"format": "pt"}))
    facts = {"kept_tokens": len(weights["kept"]), "embedding_of": "../target"}
    facts |= config.to_diff_dict() | {"dtype": "float16"}
    write_json(folder / "config.json", dict(sorted(facts.items())))
    print(path.stat().st_size, "bytes")


# ---- card: the numbers of the shipped draft ------------------------------------------------------

ROWS_OF_CARD = {  # rows of the card: kind of run, column
    "hit[1], greedy text": ("greedy", "hit"),
    "alpha, greedy text (p and q at T = 1)": ("greedy", "overlap"),
    "alpha, text sampled at T = 1": ("sampled", "overlap"),
    "hit[1], text sampled at T = 1": ("sampled", "hit"),
    "greedy tokens in the draft's vocabulary": ("greedy", "said"),
    "sampled tokens in the draft's vocabulary": ("sampled", "said"),
}


def acceptance() -> pd.DataFrame:
    """ROWS_OF_CARD by domain and `all` (the mean of the domains): row, domain, estimate, low, high,
    n_prompts. The numbers come from the recorded runs of all prompts of the profile.
    """
    profile, parts = load_profile("smollm"), {}
    for name, (kind, column) in ROWS_OF_CARD.items():
        run = load_or_record(profile, kind)
        says = run.manifest["pair"]["draft"]["tokens_said"]
        rank = run.trace["draft_rank"]
        trace = run.trace.assign(hit=rank == 0, said=rank < says)
        parts[name] = by_domain(trace, mean_of(column)).frame.query("domain != @POOLED")
    return stack(parts, "row")


def learning(work: Path) -> dict[str, list[dict]]:
    """The log of each phase's checkpoints."""
    logs = {phase: work / phase / "log.json" for phase in PHASES}
    return {k: json.loads(v.read_text()) for k, v in logs.items() if v.is_file()}


def milliseconds() -> dict[str, float]:
    """Median time of a pass over one token after 128 others with its logits, for both models."""
    times = pass_times(load_pair(load_profile("smollm")), sizes=(1,))
    return times.groupby("model")["ms"].median().round(3).to_dict()


def card(args: argparse.Namespace) -> None:
    """Write card.json and the numbers of README.md in this folder."""
    found, ms = acceptance(), milliseconds()
    table = {}
    for name, rows in found.groupby("row", sort=False):
        values = rows.set_index("domain")[["estimate", "low", "high"]].round(4)
        table[name] = values.T.to_dict("list")
    content = {
        "estimates": table,
        "prompts": int(found["n_prompts"].max()),
        "training": learning(args.work),
        "milliseconds per pass, one thread": ms,
    }
    write_json(HERE / "card.json", content)
    fill_card(HERE / "README.md", numbers(content))


def numbers(content: dict) -> str:
    """The card's table and its pass times, in Markdown."""
    names = ["all", *DOMAINS]
    lines = ["| | mean of domains | " + " | ".join(DOMAINS) + " |"]
    lines.append("| --- " * (len(names) + 1) + "|")
    for row, values in content["estimates"].items():
        cells = ["{:.3f} ({:.3f} to {:.3f})".format(*values[name]) for name in names]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    ms = content["milliseconds per pass, one thread"]
    lines.append("")
    lines.append(
        f"Means over {content['prompts']} prompts, with 95 % intervals (prompts resampled within "
        f"their domain). A pass over one token on one thread takes {ms['draft']:.2f} ms for the "
        f"draft and {ms['target']:.2f} ms for the target."
    )
    return "\n".join(lines)


ORDER = (prompts, write, text, vocabulary, look, train, export, card)
STEPS = {step.__name__: step for step in ORDER}


def main() -> None:
    """Run one step of STEPS."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("phase", nargs="?", choices=PHASES, help="for train and export")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="for prompts and text")
    parser.add_argument("--minutes", type=float, default=1e9, help="for write")
    args = parser.parse_args()
    if args.step in ("train", "export") and args.phase is None:
        parser.error(f"{args.step} needs a phase: {' or '.join(PHASES)}")
    if args.step in ("prompts", "text") and args.data is None:
        parser.error(f"{args.step} needs --data")
    torch.set_num_threads(1)
    try:
        _ = ModelFolder(TARGET).bytes  # raises if the weights are missing
        ModelFolder(TARGET).check()
        STEPS[args.step](args)
    except (ValueError, OSError, RunError, FloatingPointError) as error:
        print(f"speclab: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

"""Train two EAGLE-3 heads for the pair `smollm`, with one budget and two sets of prompts.

Run `python -m data.pairs.smollm.prepare_head STEP --work WORK [--data DATA]` in the root of the kit
after `make pair PROFILE=smollm`, with the steps in the order of STEPS. DATA is as for `prepare`.
All results are written to WORK. An interrupted step continues when called again. `write` may run in
several processes, each with its own `--part`.

`form`: prompts in the format of the kit's own prompts. `mixed`: half of these, and as many prompts
in no format (people's instructions and bare problems). Both sets have the same number of prompts.
The heads are networks of the library speculators (EAGLE-3, arXiv:2503.01840).
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import safe_open
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from speculators.config import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig
from torch import Tensor
from transformers import DynamicCache, LlamaConfig

from data.corpus import math_rows, read_jsonl, reasoning_rows
from data.drafts.train import FILE, TrainConfig, optimise
from data.pairs.smollm.prepare import (
    COMMON,
    HERE,
    OWN_OF_FOUR,
    PHASES,
    PROMPT_TOKENS,
    SEED,
    TARGET,
    VOCABULARY,
    Writer,
    arrays_of,
    batches_of,
    chat_ids,
    digest,
    settled,
    shingles_judged,
    split_texts,
    target_tokenizer,
    training_questions,
    write_json,
)
from data.training_prompts.compose import ngrams, shingles, training_prompts
from speclab.cli.pack import pack
from speclab.models.folder import ModelFolder
from speclab.models.head import layers, normed_features
from speclab.models.trimmed import base_embedding
from speclab.plain import DOMAINS, ModelSpec, read_json
from speclab.score import with_hits
from speclab.study.pairs import load_pair
from speclab.study.profiles import ROOT, load_profile
from speclab.study.prompts import PROJECT_PROMPTS, SECOND_PROMPTS, read_prompts
from speclab.study.runs import (
    encoded_prompts,
    load_run,
    of_kind,
    record_run,
    texts_of,
    written,
)

LAYERS = (15, 21, 27)  # N/2, 0.7 N and N - 3 of the target's 30 layers
BATCHES = 18  # batches of prompts per domain in `form`
HALF = 4 * BATCHES // 2  # batches of either half of `mixed`
SETS = ("form", "mixed")
TOKENS_OF_DRAFT = 425_297  # of the target's, that the draft learned from


# ---- prompts -------------------------------------------------------------------------------------


def formed_questions(data: Path) -> dict[str, list[str]]:
    """Prompts by domain in the format of the kit's prompts, in random order. Chat has composed
    prompts only.
    """
    texts = training_questions(data)
    texts["chat"] = [p.text for p in training_prompts(1800, SEED, ["chat"])]
    random.Random(SEED).shuffle(texts["chat"])
    return texts


def free_questions(data: Path) -> list[str]:
    """Prompts in no format, in random order: people's instructions, and problems of code, math and
    reasoning without the words that the kit puts around them.
    """
    judged = shingles_judged(data)
    second = [p.text for p in read_prompts(SECOND_PROMPTS)]
    judged |= set().union(*(shingles(text) for text in second))
    train, found = data / "train", []
    for name in ("chat_justeval_outputs.jsonl.gz", "chat_oasst_en100.jsonl.gz"):
        rows = read_jsonl(train / name, messages=list)
        found += [row["messages"][0]["content"].strip() for row in rows]
    mirror = data / "hub_mirror" / "HuggingFaceH4" / "ultrachat_200k" / "default"
    rows = read_jsonl(mirror / "train_sft.jsonl.gz", messages=list)
    found += [row["messages"][0]["content"].strip() for row in rows]
    rng = random.Random(SEED)
    coding = read_jsonl(train / "mbpp_train_val_prompt.jsonl", text=str)
    bare = [
        [row["text"] for row in coding],
        [key for key, _, _ in math_rows(train)],
        [key for key, _, _ in reasoning_rows(train)],
    ]
    for problems in bare:
        found += rng.sample(problems, 280)
    found = [text for text in dict.fromkeys(found) if not ngrams(text) & judged]
    rng.shuffle(found)
    return found


def prompts(args: argparse.Namespace) -> None:
    """Write `prompts.json`: [name, batch of token ids], first `form` with the domains in turn, then
    the half of `mixed` that has no format.
    """
    tokenizer = target_tokenizer()

    def batched(texts: list[str], most: int) -> list[list[list[int]]]:
        """The first batches of the texts that are short enough."""
        ids = [chat_ids(tokenizer, text) for text in texts]
        short = [i for i in ids if len(i) <= PROMPT_TOKENS]
        batches = [batch for batch in batches_of(short) if len(batch) == 48]
        print(len(texts), "prompts,", len(short), "short enough,", len(batches), "batches")
        if len(batches) < most:
            raise ValueError(f"{len(batches)} batches of prompts, {most} are needed")
        return batches[:most]

    formed = {
        domain: batched(texts, BATCHES) for domain, texts in formed_questions(args.data).items()
    }
    order = [(domain, formed[domain][number]) for number in range(BATCHES) for domain in DOMAINS]
    order += [("free", batch) for batch in batched(free_questions(args.data), HALF)]
    settled(args.work / "prompts.json", json.dumps(order).encode(), "shards/*.safetensors")


# ---- write: the target's answers with its features -----------------------------------------------


def shard_of(work: Path, number: int) -> Path:
    """The file of a batch of prompts."""
    return work / "shards" / f"{number:04d}.safetensors"


def write(args: argparse.Namespace) -> None:
    """Write `shards/`: the target's text with the outputs of LAYERS, one file per batch."""
    order = read_json(args.work / "prompts.json", "run the step `prompts`", list)
    writer, stop = Writer(TARGET, taps=LAYERS), target_tokenizer().eos_token_id
    part, parts = map(int, args.part.split("/"))
    for number, (name, ids) in enumerate(order):
        path = shard_of(args.work, number)
        if path.is_file() or number % parts != part:
            continue
        used = time.process_time()
        arrays = writer.write(ids, stop, seed=number)
        del arrays["states"]
        written(path, lambda p, arrays=arrays: save_arrays(arrays, p))
        used = time.process_time() - used
        most = float(np.abs(arrays["features"]).max())
        print(
            path.name, name, len(arrays["top_ids"]), f"tokens, {used:.0f} s, {most:.0f}", flush=True
        )


# ---- train ---------------------------------------------------------------------------------------

WIDTH_OF_MLP = 896  # with the whole width (1,536) the file would be larger than 20 MB
OF_LAYER = (  # settings that the head's layer shares with the target's layers
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "vocab_size",
    "max_position_embeddings",
    "rope_parameters",
    "hidden_act",
    "attention_bias",
)
STEPS_AHEAD = 3  # unrolled steps
FADE = 0.8  # weight of a step over that of the step before
TEXTS = 24  # per batch, as for the draft
TRAINING = TrainConfig(
    steps=360,  # 1.25 times the set, about as long as the draft was trained
    batch=TEXTS,
    context=0,
    lr_matrix=0.01,
    lr_other=2e-3,
    warmup_steps=20,
    decay_share=0.4,
    checkpoint_every=40,
    seed=SEED,
)


def unrolled(network: Any, features: Tensor, tokens: Tensor, steps: int) -> Iterator[Tensor]:
    """Final states [batch, n, d] of a head for drafted tokens 1, 2, ..., `steps` of the block that
    begins at each position, if the block's tokens are the text's own (speculators' training
    forward, without its loss).

    features: [batch, n, layers x d] of tokens 0 .. n - 1 of a text. tokens: int64 [batch, n],
    tokens 1 .. n. Row t of step k gives the distribution of token t + 1 + k, counted from k = 1.
    Each row sees the text up to its own token, and its own earlier steps.
    """
    count = tokens.shape[1]
    sees = torch.ones(count, count, dtype=torch.bool, device=tokens.device).tril()
    own = torch.eye(count, dtype=torch.bool, device=tokens.device)
    places = 1 + torch.arange(count, device=tokens.device)[None]
    cache = DynamicCache()
    states = network.fc(normed_features(network, features))
    for step in range(steps):
        words = network.embed_tokens(tokens)
        states = layers(network, words, states, cache, places + step, sees[None, None])
        read = network.norm(states)
        yield read
        if network.config.norm_output:
            states = read
        tokens = torch.nn.functional.pad(tokens[:, 1:], (0, 1))
        sees = torch.cat([sees, own], 1)


def named(name: str, seed: int) -> str:
    """The folder of a head: its set of prompts, and its seed if that is not SEED."""
    return name if seed == SEED else f"{name}-{seed}"


def kept_tokens() -> Tensor:
    """The output vocabulary of the shipped draft, which the heads share."""
    return load_file(HERE / "draft" / "model.safetensors")["kept"].long()


def new_head(kept: Tensor, seed: int = SEED) -> Eagle3DraftModel:
    """A head before training: its output layer has the target's rows, all else is random."""
    torch.manual_seed(seed)
    config = ModelFolder(TARGET).config
    layer = LlamaConfig(
        **{name: config[name] for name in OF_LAYER if name in config},
        intermediate_size=WIDTH_OF_MLP,
        num_hidden_layers=1,
        attn_implementation="sdpa",
    )
    proposal = GreedyTokenProposalConfig(speculative_tokens=STEPS_AHEAD)
    verifier = VerifierConfig(name_or_path=None, architectures=config["architectures"])
    network = Eagle3DraftModel(
        Eagle3SpeculatorConfig(
            transformer_layer_config=layer,
            draft_vocab_size=len(kept),
            norm_before_residual=True,
            fc_norm=True,
            eagle_aux_hidden_state_layer_ids=list(LAYERS),
            speculators_config=SpeculatorsConfig(
                algorithm="eagle3",
                proposal_methods=[proposal],
                default_proposal_method="greedy",
                verifier=verifier,
            ),
        )
    ).float()
    said = torch.zeros(VOCABULARY, dtype=torch.bool)
    said[kept] = True
    network.load_vocab_mappings(said, kept - torch.arange(len(kept)))
    rows = base_embedding(ModelFolder(TARGET)).float()
    with torch.no_grad():
        network.embed_tokens.weight.copy_(rows)
        network.lm_head.weight.copy_(rows[kept])
        # logits then start with a standard deviation of about one, as the draft's do
        network.norm.weight.fill_(1 / float(rows[kept].norm(dim=1).mean()))
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    for frozen in (network.embed_tokens, network.verifier_lm_head, network.verifier_norm):
        frozen.weight.requires_grad_(False)
    return network


class Texts:
    """The target's texts of a set with their features, in batches of TEXTS of similar length. The
    seed decides the order.
    """

    def __init__(self, work: Path, name: str, seed: int = SEED, shards: int | None = None):
        self.seed = seed
        order = read_json(work / "prompts.json", "run the step `prompts`", list)
        half = range(len(order) - HALF, len(order))
        numbers = range(len(order) - HALF) if name == "form" else [*range(HALF), *half]
        self.files = []  # of the first `shards`; None: of all
        self.where = []  # file, length, first new token, row of tokens, of features, of answers
        for number in numbers[:shards]:
            path = shard_of(work, number)
            if not path.is_file():
                raise ValueError(f"{path} is missing: run `write` first")
            opened = safe_open(path, "np")
            names = ("tokens", "length", "first", "top_ids", "top_logp")
            file = {name: opened.get_tensor(name) for name in names}
            self.files.append(file)
            length, first = file["length"], file["first"]
            starts = [np.cumsum(x) - x for x in (length, length - 1, length - first)]
            self.where += zip([file] * len(length), length, first, *starts, strict=True)
            file["features"] = opened.get_slice("features")  # read text by text
        self.length = np.array([length for _, length, *_ in self.where])
        self.batches = len(self.where) // TEXTS

    def batch(self, number: int) -> dict[str, Tensor]:
        """tokens, int64 [TEXTS, n + 1] and features [TEXTS, n, 3 d], padded on the right; for each
        step a mask of rows `learned` [TEXTS, n] and the rows of top_ids, top_logp that they learn.
        """
        epoch, place = divmod(number, self.batches)
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.where))
        order = order[np.argsort(self.length[order] // 16, kind="stable")]
        number = rng.permutation(self.batches)[place]
        chosen = [self.where[i] for i in np.array_split(order, self.batches)[number]]
        longest = max(length for _, length, *_ in chosen)
        tokens = torch.zeros(len(chosen), longest, dtype=torch.long)
        features = torch.zeros(len(chosen), longest - 1, len(LAYERS) * 576)
        learned = torch.zeros(STEPS_AHEAD, len(chosen), longest - 1, dtype=torch.bool)
        ids, logp = [], []
        for row, (file, length, first, token, feature, answer) in enumerate(chosen):
            text = file["tokens"][token : token + length].astype(np.int64)
            tokens[row, :length] = torch.from_numpy(text)
            read = file["features"][feature : feature + length - 1]
            features[row, : length - 1] = torch.from_numpy(read)
            ids.append(file["top_ids"][answer : answer + length - first].astype(np.int64))
            logp.append(file["top_logp"][answer : answer + length - first].astype(np.float32))
            for step in range(STEPS_AHEAD):
                learned[step, row, first - 2 : max(first - 2, length - 2 - step)] = True
        later = [np.concatenate([part[step:] for part in ids]) for step in range(STEPS_AHEAD)]
        chance = [np.concatenate([part[step:] for part in logp]) for step in range(STEPS_AHEAD)]
        return {
            "tokens": tokens,
            "features": features,
            "learned": learned,
            "top_ids": [torch.from_numpy(part) for part in later],
            "top_logp": [torch.from_numpy(part) for part in chance],
        }


def loss_of(network: Eagle3DraftModel, batch: dict, place: Tensor) -> Tensor:
    """Cross-entropy to the target's distribution (its top tokens, as far as they are kept) on its
    own text, for each unrolled step that `learned` has, weighted by FADE to the power of the step.
    """
    total = torch.zeros(())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ahead = len(batch["learned"])
        steps = unrolled(network, batch["features"], batch["tokens"][:, 1:], ahead)
        for step, states in enumerate(steps):
            logits = network.lm_head(states[batch["learned"][step]]).float()
            at = place[batch["top_ids"][step]]
            p = batch["top_logp"][step].exp().masked_fill(at < 0, 0)
            log_q = logits.log_softmax(-1).gather(-1, at.clamp(min=0))
            total = total - FADE**step * (p * log_q).sum(-1).mean()
    return total


def train(args: argparse.Namespace) -> None:
    """Train the head of a set. An interrupted call continues from its last checkpoint."""
    kept = kept_tokens()
    place = torch.full((VOCABULARY,), -1)
    place[kept] = torch.arange(len(kept))
    network, texts = new_head(kept, args.seed), Texts(args.work, args.set, args.seed)
    folder = args.work / named(args.set, args.seed)
    held = arrays_of(args.work / "look.safetensors")
    about = {"set": args.set, "texts": digest(*(file["tokens"] for file in texts.files))}
    log = optimise(
        network,
        texts.batch,
        replace(TRAINING, seed=args.seed),
        folder,
        lambda network, batch, _: loss_of(network, batch, place),
        partial(judge, held=held),
        folder.name,
        about=about,
    )
    write_json(folder / "log.json", log)


# ---- ablate: what the hidden states buy ----------------------------------------------------------

READS = ("own", "earlier", "none")  # the states of the token before, of LAG tokens before it; zeros
LAG = 8
SHARDS = 20  # of `form`, five per domain
SHORT = replace(TRAINING, steps=100, checkpoint_every=20)  # 1.25 times these texts


def as_read(features: Tensor, reads: str) -> Tensor:
    """The features [rows, n, width] that a head of READS gets in place of its own."""
    if reads == "own":
        return features
    kept = torch.zeros_like(features)
    if reads == "earlier":
        kept[:, LAG:] = features[:, :-LAG]
    return kept


def ablate(args: argparse.Namespace) -> None:
    """Train the head of the set `form` shortly, on first tokens of blocks, with the features of
    `--reads`. All three have the same start weights, texts, order and steps.
    """
    kept = kept_tokens()
    place = torch.full((VOCABULARY,), -1)
    place[kept] = torch.arange(len(kept))
    texts = Texts(args.work, "form", args.seed, SHARDS)

    def batch(number: int) -> dict:
        """A batch whose learned rows are those of the first unrolled step."""
        made = texts.batch(number)
        read = as_read(made["features"], args.reads)
        return made | {"features": read, "learned": made["learned"][:1]}

    about = {"reads": args.reads, "texts": digest(*(file["tokens"] for file in texts.files))}
    folder = args.work / f"reads-{named(args.reads, args.seed)}"
    log = optimise(
        new_head(kept, args.seed),
        batch,
        replace(SHORT, seed=args.seed),
        folder,
        lambda network, batch, _: loss_of(network, batch, place),
        lambda _: {},
        folder.name,
        about=about,
    )
    write_json(folder / "log.json", log)


@torch.no_grad()
def first_tokens(network: Eagle3DraftModel, reads: str, text: list[int], features: Tensor) -> list:
    """Its first drafted token after each token of a text but the first, [n - 1]."""
    read = as_read(features[None, :-1], reads)
    states = next(unrolled(network, read, torch.tensor([text])[:, 1:], 1))
    return torch.nonzero(network.t2d)[:, 0][network.lm_head(states[0]).argmax(-1)].tolist()


def ablation(args: argparse.Namespace) -> None:
    """Write `head/ablation.csv` and the card's `ablation`: of the heads of `ablate`, how many first
    tokens of each prompt are accepted along the greedy texts of the shipped runs of smollm.
    """
    heads = {}
    for path in sorted(args.work.glob(f"reads-*/{FILE}")):
        reads, _, seed = path.parent.name.removeprefix("reads-").partition("-")
        heads[int(seed or SEED), reads] = learned_head(path)
    writer, own, rows = Writer(TARGET, torch.float32, LAYERS), load_profile("smollm"), []
    for kind in ("greedy", "second"):
        texts = texts_of(load_run(ROOT / "data/traces/smollm" / kind))
        for prompt in encoded_prompts(of_kind(own, kind)):
            text = [*prompt.ids, *texts[prompt.prompt_id]]
            features, first = writer.read(text), len(prompt.ids)
            about = {"kind": kind, "domain": prompt.domain, "prompt_id": prompt.prompt_id}
            for (seed, reads), network in heads.items():
                drafted = first_tokens(network, reads, text, features)[first - 2 : -1]
                hits = sum(a == b for a, b in zip(drafted, text[first:], strict=True))
                counts = {"tokens": len(text) - first, "accepted": hits}
                rows.append({"seed": seed, "reads": reads} | about | counts)
        print(kind, "judged", flush=True)
    rows = pd.DataFrame(rows).sort_values(["seed", "reads"], kind="stable")
    rows.to_csv(HERE / "head" / "ablation.csv", index=False)
    texts = Texts(args.work, "form", shards=SHARDS)
    card = read_json(HERE / "head" / "card.json", "run `card` first", dict)
    card["ablation"] = {
        "set": "form",
        "prompts": len(texts.where) // 2,
        "texts": len(texts.where),
        "tokens": sum(len(file["top_ids"]) for file in texts.files),
        "steps": SHORT.steps,
        "earlier": LAG,
    }
    write_json(HERE / "head" / "card.json", card)


# ---- look: text for the learning curve -----------------------------------------------------------


def look(args: argparse.Namespace) -> None:
    """Write the float32 target's greedy text after eight of the kit's prompts of each domain, on
    which the learning curve is measured.
    """
    known, writer = read_prompts(PROJECT_PROMPTS), Writer(TARGET, torch.float32, LAYERS)
    tokenizer, ids = target_tokenizer(), []
    for domain in DOMAINS:
        mine = [prompt.text for prompt in known if prompt.domain == domain][:8]
        ids += [chat_ids(tokenizer, text) for text in mine]
    made = writer.write(ids, tokenizer.eos_token_id, seed=0)
    written(args.work / "look.safetensors", lambda p: save_arrays(made, p))


@torch.no_grad()
def judge(network: Eagle3DraftModel, held: dict[str, np.ndarray]) -> dict[str, float]:
    """The share of positions where the head's first, second, ... fifth token in a row is the
    text's, given that all before were, on the greedy half of the held text.
    """
    kept = torch.nonzero(network.t2d)[:, 0]
    features = np.split(held["features"], np.cumsum(held["length"] - 1)[:-1])
    right: list[list[Tensor]] = [[] for _ in range(5)]
    texts = list(zip(split_texts(held), held["first"], features, strict=True))
    for text, first, read in texts[: len(texts) // 2]:
        tokens = torch.from_numpy(text.astype(np.int64))
        given = torch.ones(len(text), dtype=torch.bool)
        features_of = torch.from_numpy(read.astype(np.float32))[None]
        steps = unrolled(network, features_of, tokens[None, 1:], 5)
        for step, states in enumerate(steps):
            rows = slice(first - 2, len(text) - 2 - step)
            guess = kept[network.lm_head(states[0, rows]).argmax(-1)]
            hit = guess == tokens[first + step :]
            given = given[: len(hit)]
            right[step].append(hit[given])
            given = given & hit
    shares = [float(torch.cat(hits).float().mean()) for hits in right]
    return {f"right {step}": round(share, 4) for step, share in enumerate(shares, 1)}


# ---- export: the shipped heads -------------------------------------------------------------------

HUB_TARGET = "HuggingFaceTB/SmolLM2-135M-Instruct"  # servers load the target by this name


def saved(network: Eagle3DraftModel, folder: Path) -> None:
    """Write a head in the library's format, in float16, without the target's weights."""
    weights = {}
    for name, value in network.state_dict().items():
        if name.startswith(("embed_tokens", "verifier")):
            continue
        is_weight = value.is_floating_point()
        weights[name] = (value.half() if is_weight else value).contiguous()
    path = folder / "model.safetensors"
    written(path, lambda p: save_file(weights, p, {"format": "pt"}))
    config = network.config
    config.speculators_config.verifier.name_or_path = HUB_TARGET
    facts = config.to_dict()
    facts["transformer_layer_config"]["dtype"] = "float16"
    facts["dtype"] = "float16"
    write_json(folder / "config.json", dict(sorted(facts.items())))
    print(path.stat().st_size, "bytes")


def learned_head(path: Path) -> Eagle3DraftModel:
    """The head of a checkpoint."""
    network, weights = new_head(kept_tokens()), load_file(path)
    learned = {k.removeprefix("model."): v for k, v in weights.items() if k.startswith("model.")}
    network.load_state_dict(learned, strict=False)
    return network


def export(args: argparse.Namespace) -> None:
    """Write `export/SET`, the head of a set after its last checkpoint."""
    name = named(args.set, args.seed)
    saved(learned_head(args.work / name / FILE), args.work / "export" / name)


# ---- card ----------------------------------------------------------------------------------------

KINDS = ("greedy", "unwrapped", "second")
ALONE = {"depth": 1, "branches": 1, "budget": 1}  # one node per position, for the other head


def record(args: argparse.Namespace) -> None:
    """Record a head along the texts of the shipped runs of smollm, into `runs/SET/KIND`: the kinds
    of KINDS, or with `--shipped` also those of sampled text, with the profile's tree.
    """
    pair = load_profile("smollm")
    own = pair.replace(name="smollm-head", draft=ModelSpec(str(args.folder)))
    kinds = (*KINDS, *(f"{kind}-sampled" for kind in KINDS[1:]), "sampled")
    loaded = load_pair(own)
    for kind in kinds if args.shipped else KINDS:
        asked = of_kind(own, kind)
        if not args.shipped:
            asked = asked.replace(**ALONE)
        texts = texts_of(load_run(ROOT / "data/traces/smollm" / kind))
        folder = args.work / "runs" / named(args.set, args.seed) / kind
        record_run(asked, folder, loaded, texts, kind=kind)


def hit_on_second(work: Path, name: str) -> float:
    """hit[1] on the second set, mean of the domains."""
    trace = with_hits(load_run(work / "runs" / name / "second").trace)
    return float(trace.groupby("domain")["hit"].mean().mean())


EXPECTED = {"interaction": [3, 9]}  # points, as written in expected.md before the training
STARTS = {"draft": "the target's rows, projected to 256", "head": "the target's rows"}
READ_PROMPTS = {  # in the format of the kit's prompts, except where it is said
    "own draft": "code, math, reasoning; composed and people's chat",
    "form": "code, math, reasoning; composed chat",
    "mixed": "half of form's; half in no format",
}


def trained(heads: dict[str, dict]) -> dict[str, dict]:
    """How the trainings of the draft and of both heads differ, with column names for notebook 08.

    The draft's numbers are those of `prepare` (README.md): its phases, batches and text.
    """
    own = sum(phase.steps * OWN_OF_FOUR[name] // 4 for name, phase in PHASES.items())
    steps = sum(phase.steps for phase in PHASES.values())
    other = (steps - own) * COMMON["batch"] * COMMON["context"]
    draft = {"steps": steps, "on target's texts": own, "target's tokens": TOKENS_OF_DRAFT}
    rows = {"own draft": draft | {"other tokens": other, "output layer starts as": STARTS["draft"]}}
    for name, head in heads.items():
        read = {"steps": head["steps"], "on target's texts": head["steps"]}
        read |= {"target's tokens": head["tokens"], "other tokens": 0}
        rows[name] = read | {"output layer starts as": STARTS["head"]}
    return {name: row | {"prompts": READ_PROMPTS[name]} for name, row in rows.items()}


def card(args: argparse.Namespace) -> None:
    """Write the card of both heads into this folder's `head/card.json`. The head with the larger
    hit[1] on the second set is shipped.
    """
    hits = {name: hit_on_second(args.work, name) for name in SETS}
    heads = {}
    for name in SETS:
        texts = Texts(args.work, name)
        new = sum(len(file["top_ids"]) for file in texts.files)
        log = read_json(args.work / name / "log.json", "run `train` first", list)
        heads[name] = {
            "prompts": len(texts.where) // 2,
            "texts": len(texts.where),
            "tokens": new,
            "steps": TRAINING.steps,
            "second": round(hits[name], 4),
            "log": log,
        }
    shipped = max(SETS, key=lambda name: hits[name])
    made = {"shipped": shipped, "heads": heads}
    made |= {"trained": trained(heads), "expected": EXPECTED}
    write_json(HERE / "head" / "card.json", made)


def seeds(args: argparse.Namespace) -> None:
    """Write `head/seeds.csv`: of the heads with further seeds, how many first tokens of each prompt
    are accepted in the runs that `record` made.
    """
    parts = {}
    for folder in sorted((args.work / "runs").glob("*-*/*")):
        name, seed = folder.parent.name.split("-")
        trace = with_hits(load_run(folder).trace)
        by_prompt = trace.groupby(["domain", "prompt_id"], sort=False)["hit"]
        sums = by_prompt.agg(tokens="size", accepted="sum").reset_index()
        parts[int(seed), name, folder.name] = sums
    rows = pd.concat(parts, names=["seed", "head", "kind"]).reset_index(level=[0, 1, 2])
    rows.to_csv(HERE / "head" / "seeds.csv", index=False)


def ship(args: argparse.Namespace) -> None:
    """Pack the runs of both heads into data/traces: with all kinds for the shipped head."""
    shipped = read_json(HERE / "head" / "card.json", "run `card` first", dict)["shipped"]
    for name in SETS:
        is_shipped = name == shipped
        folder = ROOT / "data" / "traces" / ("smollm-head" if is_shipped else "smollm-head-other")
        for path in sorted((args.work / "runs" / name).iterdir()):
            run = load_run(path)
            if not is_shipped:  # its weights are not in the repository
                profile = run.manifest["profile"]
                what = f"an EAGLE-3 head of the same target, trained on the prompts {name}"
                profile |= {"name": folder.name, "description": what}
                for facts in (profile, run.manifest["pair"]):
                    facts["draft"]["path"] = f"a head trained on the set {name}, not shipped"
            pack(run, folder / path.name, licence=load_profile("smollm").notes.licence)


STEPS = (prompts, write, look, train, export, record, card, ship, seeds, ablate, ablation)


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=[step.__name__ for step in STEPS])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="training text (prompts)")
    parser.add_argument("--part", default="0/1", help="of the batches, as 0/2 and 1/2 (write)")
    parser.add_argument("--set", choices=SETS, help="of training prompts (train, export, record)")
    parser.add_argument("--seed", type=int, default=SEED, help="of a head (train, ablate, ...)")
    parser.add_argument("--reads", choices=READS, default=READS[0], help="features (ablate)")
    parser.add_argument("--folder", type=Path, help="of a head (record)")
    parser.add_argument("--shipped", action="store_true", help="record all kinds of run (record)")
    args = parser.parse_args()
    if args.step == "prompts" and not args.data:
        parser.error("prompts needs --data: the folder of the training text")
    if args.step in ("train", "export", "record") and not args.set:
        parser.error(f"{args.step} needs --set: {' or '.join(SETS)}")
    if args.step == "record" and not args.folder:
        parser.error("record needs --folder: the folder of a head")
    {step.__name__: step for step in STEPS}[args.step](args)


if __name__ == "__main__":
    main()

"""The drafts that are tried (loaded, quantised, trained, copying, leaving early) and their traces.

Traces are kept under data/runs/drafts by everything that changes their numbers: a second call reads
them.
"""

import copy
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from speclab import runs, score
from speclab.drafts import distil, lookup, quantise
from speclab.drafts.distil import SHIPPED, TrainedDraft
from speclab.drafts.prompts import training_prompts
from speclab.drafts.texts import FOLDER, TextConfig, TrainingText, continuations
from speclab.drafts.train import TrainConfig
from speclab.models.model import KVCache, LanguageModel
from speclab.models.pairs import (
    Pair,
    check_vocabularies,
    load_model,
    load_tokenizer,
    model_facts,
    parameter_count,
)
from speclab.profiles import ROOT, ModelSpec, Profile
from speclab.prompts import EncodedPrompt, encode_prompts
from speclab.record import generate, reduced
from speclab.runs import locked, written
from speclab.sampling import Sampling, probabilities, rank_key, rank_of

WORK = FOLDER
OWN, INT4, LOOKUP, SPECIALIST = (
    "own draft",
    "INT4 self-draft",
    "prompt lookup",
    "specialist",
)
SPECIALTY = ("math", "reasoning")  # where the specialist is at home
# acceptance of the draft's best token at T = 0, and of a sampled one at T = 1
HIT = score.Estimator(
    "hit[1]",
    lambda rows: np.column_stack([rows["draft_rank"] == 0, np.ones(len(rows))]).astype(
        float
    ),
    score.quotient,
)
ALPHA = score.alpha
ESTIMATORS = {"greedy": HIT, "sampled": ALPHA}  # what is read from a run of each kind


@dataclass(frozen=True)
class Candidate:
    """A draft that is tried: the `pair` with it as draft, the `spec` its weights come from, and
    what it is stored as.

    bits: of a weight of its matrices (0: it has none); weight_bytes: what a pass has to read, in
    the form it is stored in. `name` is part of the name of its traces: give drafts that share a
    spec (prompt lookup, first layers) names that tell their settings.
    """

    name: str
    pair: Pair
    spec: ModelSpec
    bits: int
    weight_bytes: int


def candidate(
    name: str,
    pair: Pair,
    profile: Profile,
    path: Path | str,
    bits: int = 0,
    weight_bytes: int = 0,
) -> Candidate:
    """The model in `path` as a draft of the pair's target; `bits` and `weight_bytes` default to its
    files'.

    Raises ValueError if its tokenizer is not the target's.
    """
    path = Path(path)
    if path.is_relative_to(
        ROOT
    ):  # so that the keys of its runs are those of another machine
        path = path.relative_to(ROOT)
    spec = replace(profile.draft, path=str(path), revision=None)
    draft = load_model(
        spec, profile.max_prompt_tokens + profile.max_new_tokens + profile.depth
    )
    sizes = pair.vocab, draft.vocab
    draft.vocab = check_vocabularies(
        pair.tokenizer, load_tokenizer(draft.folder), sizes
    )
    facts = model_facts(spec, draft)
    size = weight_bytes or facts["weight_bytes"]
    bits = bits or stored_bits(draft, facts)
    return Candidate(name, _with_draft(pair, draft, facts), spec, bits, size)


def stored_bits(model: LanguageModel, facts: Mapping) -> int:
    """Bits of a weight in a model's files, in the mean. (Parameters do not tell them: a trimmed
    draft stores a part of its embedding.)
    """
    if model.quantised:  # many weights are packed into one number
        return int(8 * facts["weight_bytes"] / facts["parameters"])
    count = size = 0
    for file in model.folder.glob("*.safetensors"):
        with file.open("rb") as content:
            header = json.loads(content.read(int.from_bytes(content.read(8), "little")))
        for name, tensor in header.items():
            if name != "__metadata__":
                count += math.prod(tensor["shape"])
                size += tensor["data_offsets"][1] - tensor["data_offsets"][0]
    return 8 * size // count


def _with_draft(pair: Pair, draft: LanguageModel, facts: dict) -> Pair:
    return replace(pair, draft=draft, facts=pair.facts | {"draft": facts})


def first_layers(pair: Pair, profile: Profile, layers: int) -> Candidate:
    """The target's own first layers, with its last norm and head, as a draft (early exit,
    untrained); nothing is loaded or copied.

    The target's body is that of `speclab.models.lean`. ValueError: it has no layers to leave out.
    """
    target, body = pair.target, copy.copy(pair.target.body)
    if not 1 <= layers < len(body.layers):
        raise ValueError(
            f"layers={layers}: a target of more layers than that is needed; this one has "
            f"{len(body.layers)}"
        )
    body.layers = body.layers[:layers]
    draft = LanguageModel(
        body, target.head, target.vocab, target.dtype, target.device, target.kernel
    )
    left_out = target.network.model.layers[layers:].parameters()
    whole, facts = parameter_count(target.network), pair.facts["target"]
    parameters = whole - sum(weights.numel() for weights in left_out)
    size = round(facts["weight_bytes"] * parameters / whole)
    facts = facts | {"layers": layers, "parameters": parameters, "weight_bytes": size}
    name = f"target's first {layers} layers"
    bits = int(8 * size / parameters)
    return Candidate(name, _with_draft(pair, draft, facts), profile.target, bits, size)


def early_exits(pair: Pair, profile: Profile, layers: Sequence[int]) -> list[Candidate]:
    """`first_layers` of each number of layers; none where the kit does not run the target's layers
    itself.
    """
    lean = getattr(pair.target.body, "lean", False)
    return [first_layers(pair, profile, number) for number in layers] if lean else []


def prompt_lookup(pair: Pair, profile: Profile, longest: int = 3) -> Candidate:
    """Prompt lookup for up to `longest` tokens as a draft: no weights, no bits."""
    name = LOOKUP if longest == 3 else f"{LOOKUP} of {longest}"
    return Candidate(name, lookup.with_lookup(pair, longest), profile.draft, 0, 0)


# ---- traces --------------------------------------------------------------------------------------


class Remembered:
    """A target that runs each whole text once and remembers its hidden states, for drafts that are
    judged one after another.
    """

    def __init__(self, model: LanguageModel):
        self._model, self._kept = model, {}

    def __getattr__(self, name: str):
        return getattr(self._model, name)

    def forward(self, tokens: Tensor, cache: KVCache) -> Tensor:
        """As the model's, for whole texts only: not behind a cache, and without a mask."""
        assert not cache.length, "whole texts only: else take the model itself"
        key = tuple(tokens.flatten().tolist())
        if key not in self._kept:
            self._kept[key] = self._model.forward(tokens, cache).to("cpu")
        return self._kept[key].to(self._model.device)


def judged(
    one: Candidate,
    profile: Profile,
    kind: str,
    texts: Mapping[str, tuple[int, ...]] | None,
    target: LanguageModel | Remembered | None = None,
    label: str = "",
) -> pd.DataFrame:
    """What a candidate says along the texts of a run of `kind` (`runs.texts_of`), a row a position:
    prompt_id, domain, position, token, draft_rank, draft_top, confidence (q of its best token), and
    where a target is given target_top and overlap. All as a run records them; made once.

    texts None: the candidate's target writes them. label: says so where they are not its own.
    """
    small = runs.of_kind(profile, kind).replace(draft=one.spec)
    words = re.findall(r"[a-z0-9]+", f"{one.name} {label}".lower())
    path = WORK / kind / f"{'-'.join(words)}-{runs.run_key(small)}.parquet"
    with locked(path.parent):  # a second process waits, and finds it there
        if path.is_file():
            return pd.read_parquet(path, page_checksum_verification=True)
        sampling = Sampling(small.temperature, small.top_k, small.top_p)
        encoded = encoded_prompts(one.pair, small)
        texts = texts or _own_texts(one.pair, small, encoded, sampling)
        parts = [
            _along(one.pair, p, texts[p.prompt_id], sampling, target) for p in encoded
        ]
        trace = pd.concat(parts, ignore_index=True)
        assert np.isfinite(trace["confidence"]).all(), f"{one.name} gives no numbers"
        options = {"index": False, "write_page_checksum": True}
        written(path, lambda part: trace.to_parquet(part, **options))
    return trace


def encoded_prompts(pair: Pair, profile: Profile) -> list[EncodedPrompt]:
    """The prompts of a profile as the pair reads them."""
    known, longest = runs.profile_prompts(profile), profile.max_prompt_tokens
    return encode_prompts(pair.tokenizer, known, longest, profile.template)


def _own_texts(
    pair: Pair, profile: Profile, encoded: list[EncodedPrompt], sampling: Sampling
) -> dict[str, tuple[int, ...]]:
    """What the pair's target writes, in the blocks of a run: in others a near tie may fall the
    other way.
    """
    texts, size = {}, profile.block_prompts
    for start in range(0, len(encoded), size):
        block, new = encoded[start : start + size], profile.max_new_tokens
        made = generate(pair.target, block, new, pair.stop_ids, sampling, profile.seed)
        texts |= {p.prompt_id: text for p, text in zip(block, made, strict=True)}
    return texts


@torch.inference_mode()
def _along(
    pair: Pair,
    prompt: EncodedPrompt,
    text: tuple[int, ...],
    sampling: Sampling,
    target: LanguageModel | Remembered | None,
) -> pd.DataFrame:
    """The columns of `judged` for one text."""
    tokens, said = torch.tensor([[*prompt.ids, *text[:-1]]]), torch.tensor(text)
    models = [pair.draft, target] if target else [pair.draft]
    hidden = [
        model.forward(tokens, model.cache(tokens.shape[1]))[0, len(prompt.ids) - 1 :]
        for model in models
    ]

    def columns(part: slice) -> dict[str, Tensor]:
        logits = [
            model.logits(rows[part]).cpu()
            for model, rows in zip(models, hidden, strict=True)
        ]
        key, q = rank_key(logits[0]), probabilities(logits[0], sampling)
        found = {
            "token": said[part],
            "draft_rank": rank_of(key, said[part]),
            "draft_top": key.argmax(-1),
            "confidence": q.max(-1).values,
        }
        for of_target in logits[1:]:
            p = probabilities(of_target, sampling)
            found["target_top"] = rank_key(of_target).argmax(-1)
            found["overlap"] = torch.minimum(p, q).sum(-1).clamp(max=1)
        return found

    who = {"prompt_id": prompt.prompt_id, "domain": prompt.domain}
    found = reduced(len(text), columns)
    numbers = {name: values.numpy() for name, values in found.items()}
    return pd.DataFrame(who | {"position": range(len(text))} | numbers)


class Tried:
    """The drafts tried so far on the target's texts at T = 0 and at T = 1; the pair's own draft is
    the first.

    per_domain: prompts of each domain that drafts are judged on, the profile's first; 0: all.
    candidates: by name; texts: token ids by kind of run and prompt.
    """

    def __init__(self, profile: Profile, pair: Pair, per_domain: int = 0):
        # recorded whole, the part is taken: no run is made for fewer prompts
        own = {kind: runs.load_or_record(profile, kind) for kind in ESTIMATORS}
        known = profile.prompts_per_domain
        judged = min(per_domain or known, known)
        self.profile = profile.replace(prompts_per_domain=judged)
        self.pair, self.recorded = pair, own["greedy"].manifest["prompts"]
        self.candidates = {OWN: candidate(OWN, pair, profile, profile.draft.path)}
        ids = [prompt.prompt_id for prompt in runs.profile_prompts(self.profile)]
        self._traces, self.texts = {}, {}
        for kind, run in own.items():
            rows, texts = run.trace, runs.texts_of(run)
            judged_rows = rows[rows["prompt_id"].isin(ids)].reset_index(drop=True)
            self._traces[kind] = {OWN: judged_rows}
            self.texts[kind] = {prompt_id: texts[prompt_id] for prompt_id in ids}
        # The target runs each text once, whatever drafts follow. Of greedy text it is not asked:
        # the text is its best tokens.
        self._targets = {"greedy": None, "sampled": Remembered(pair.target)}

    @property
    def domains(self) -> list[str]:
        """Domains of the prompts that drafts are judged on."""
        return list(score.domains_in(self.trace(OWN, "greedy")))

    def add(self, one: Candidate) -> None:
        """Try a draft: judge it on the texts of both runs."""
        self.candidates[one.name] = one
        for kind in ESTIMATORS:
            target, texts = self._targets[kind], self.texts[kind]
            trace = judged(one, self.profile, kind, texts, target)
            self._traces[kind][one.name] = trace

    def trace(self, name: str, kind: str) -> pd.DataFrame:
        """The trace of a draft over the texts of a kind of run."""
        return self._traces[kind][name]

    def lookup_chains(self, gamma: int) -> pd.DataFrame:
        """Nodes of prompt lookup's chains of gamma tokens along the greedy texts, as `stopping`
        reads them.
        """
        texts, parts = self.texts["greedy"], []
        for prompt in encoded_prompts(self.pair, self.profile):
            nodes = lookup.chains_along(
                prompt.ids, texts[prompt.prompt_id], gamma, self.pair.vocab
            )
            parts.append(nodes.assign(prompt_id=prompt.prompt_id, domain=prompt.domain))
        return pd.concat(parts, ignore_index=True)


# ---- drafts that are made ------------------------------------------------------------------------


def training_text(
    pair: Pair, profile: Profile, prompts_per_domain: int, seed: int = 0
) -> TrainingText:
    """What the target writes for prompts that no draft is judged on; seed: of these prompts."""
    config = TextConfig(
        profile.max_prompt_tokens, profile.max_new_tokens, template=profile.template
    )
    known = training_prompts(prompts_per_domain, seed)
    return continuations(pair, known, config)


def no_copy(pair: Pair) -> str:
    """Why no quantised copy of the target can be made here; '' where it can."""
    if pair.target.quantised:
        return "the target is quantised already"
    return "" if quantise.available() else "GPTQModel is not installed"


def quantised_draft(
    tried: Tried, text: TrainingText, bits: int, rows: int
) -> Candidate:
    """The target in `bits` bits as its own draft, calibrated on some `rows` of its greedy text."""
    calibration = [row.tokens.tolist() for row in text.sample(rows).rows]
    made = quantise.quantised_copy(tried.pair.target.folder, WORK, calibration, bits)
    name = f"INT{bits} self-draft"
    return candidate(
        name, tried.pair, tried.profile, made.plain, bits, made.weight_bytes
    )


class Training(NamedTuple):
    """One draft that is trained: its family (an objective, or the specialist) and name, what it
    learns, and from which text.
    """

    family: str
    name: str
    objective: str
    text: TrainingText
    config: TrainConfig


def train_config(steps: int, batch: int, learning_rate: float) -> TrainConfig:
    """Steps of `batch` texts; a fifteenth of them warms up, five times the draft is measured."""
    return TrainConfig(
        steps=steps,
        batch=batch,
        lr_matrix=learning_rate,
        lr_other=learning_rate,
        warmup_steps=max(1, steps // 15),
        checkpoint_every=max(1, steps // 5),
    )


def trainings(
    text: TrainingText,
    objectives: Sequence[str],
    seeds: Sequence[int],
    config: TrainConfig,
) -> Iterator[Training]:
    """The first objective and the specialist, which learns SPECIALTY only and the same objective,
    with every seed; the other objectives with the first.
    """
    first = objectives[0]
    for family in objectives:
        for seed in seeds if family == first else seeds[:1]:
            name = f"distilled, {family}, seed {seed}"
            yield Training(family, name, family, text, replace(config, seed=seed))
    for seed in seeds:
        settings, rows = replace(config, seed=seed), text.only(SPECIALTY)
        name = f"{SPECIALIST}, seed {seed}"
        yield Training(SPECIALIST, name, first, rows, settings)


def train(
    tried: Tried, trainings: Iterable[Training], retrain: bool = False
) -> dict[str, dict[str, TrainedDraft]]:
    """Trained drafts, tried: by family and by name. Those that come with the kit are read, unless
    `retrain`.
    """
    families: dict[str, dict[str, TrainedDraft]] = {}
    shipped = None if retrain else SHIPPED
    for family, name, objective, text, config in trainings:
        made = distil.distil(text, objective, config, WORK, label=name, shipped=shipped)
        tried.add(candidate(name, tried.pair, tried.profile, made.folder))
        families.setdefault(family, {})[name] = made
    return families

"""The drafts that are tried (loaded, quantised, trained, copying, leaving early) and their traces.

Traces are kept under data/runs/drafts by everything that changes their numbers: a second call reads
them.
"""

import copy
import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor

from speclab import runs, score
from speclab.drafts import distil, lookup, quantise
from speclab.drafts.distil import TrainedDraft
from speclab.drafts.prompts import training_prompts
from speclab.drafts.texts import FOLDER, TextConfig, TrainingText, continuations
from speclab.drafts.train import TrainConfig
from speclab.model import KVCache, LanguageModel
from speclab.pairs import (
    Pair,
    check_vocabularies,
    load_model,
    load_tokenizer,
    model_facts,
    parameter_count,
)
from speclab.profiles import ROOT, ModelSpec, Profile

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
ALPHA = score.overlap_alpha
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

    Raises ValueError if its tokenizer is not the target's, or it lacks ids that the pair shares.
    """
    path = Path(path)
    if path.is_relative_to(
        ROOT
    ):  # so that the keys of its runs are those of another machine
        path = path.relative_to(ROOT)
    spec = dataclasses.replace(profile.draft, path=str(path), revision=None)
    draft = load_model(
        spec, profile.max_prompt_tokens + profile.max_new_tokens + profile.depth
    )
    sizes = pair.vocab, draft.vocab
    draft.vocab = check_vocabularies(
        pair.tokenizer, load_tokenizer(draft.folder), sizes
    )
    if draft.vocab < pair.vocab:
        raise ValueError(
            f"draft {name!r} has {draft.vocab} token ids, the pair shares {pair.vocab}: use a "
            "draft of the target's vocabulary"
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
    return dataclasses.replace(pair, draft=draft, facts=pair.facts | {"draft": facts})


def first_layers(pair: Pair, profile: Profile, layers: int) -> Candidate:
    """The target's own first layers, with its last norm and head, as a draft (early exit,
    untrained); nothing is loaded or copied.

    ValueError where the target's body is not `speclab.lean`'s, or has no layers to leave out.
    """
    target, body = pair.target, copy.copy(pair.target.body)
    if not getattr(body, "lean", False) or not 1 <= layers < len(body.layers):
        raise ValueError(
            f"layers={layers}: a lean target of more layers than that is needed; this one has "
            f"{target.network.config.num_hidden_layers}"
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

    def forward(
        self,
        tokens: Tensor,
        cache: KVCache,
        positions: Tensor | None = None,
        visible: Tensor | None = None,
    ) -> Tensor:
        """As the model's, for whole texts only: not behind a cache, and without a mask."""
        whole = not cache.length and positions is None and visible is None
        assert whole, (
            "whole texts only: record with a chain of one token, or take the model itself"
        )
        key = tuple(tokens.flatten().tolist())
        if key not in self._kept:
            self._kept[key] = self._model.forward(tokens, cache).to("cpu")
        return self._kept[key].to(self._model.device)


def recorded(
    tried: Candidate,
    profile: Profile,
    kind: str,
    texts: Mapping[str, tuple[int, ...]] | None,
    label: str = "",
    target: Remembered | None = None,
    gamma: int = 1,
) -> runs.Run:
    """The candidate's run over the target's texts of a run of `kind` (`runs.texts_of`): its trace,
    and chains of gamma. Recorded once.

    texts None: the candidate's target writes them. label: says so where they are not its own.
    target: it as `Remembered`, which is faster and does for chains of one token.
    """
    small = runs.of_kind(profile, kind)
    small = small.replace(draft=tried.spec, depth=gamma, branches=1, budget=gamma)
    words = re.findall(r"[a-z0-9]+", f"{tried.name} {label} {kind}".lower())
    folder = WORK / f"{'-'.join(words)}-{runs.run_key(small)}"
    if found := runs.whole_run(folder):
        return found
    pair = dataclasses.replace(tried.pair, target=target or tried.pair.target)
    return runs.record_run(small, folder, pair=pair, progress=iter, texts=texts)


class Tried:
    """The drafts tried so far on the target's texts at T = 0 and at T = 1; the pair's own draft is
    the first.

    per_domain: prompts of each domain that drafts are judged on, the profile's first; 0: all.
    candidates: by name; texts: token ids by kind of run and prompt.
    """

    def __init__(self, profile: Profile, pair: Pair, per_domain: int = 0):
        # recorded whole, the part is taken: no run is made for fewer prompts
        own = {kind: runs.load_or_record(profile, kind) for kind in ESTIMATORS}
        judged = min(
            per_domain or profile.prompts_per_domain, profile.prompts_per_domain
        )
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
        # the target runs each text once, whatever drafts follow
        self._targets = {kind: Remembered(pair.target) for kind in ESTIMATORS}

    @property
    def domains(self) -> list[str]:
        """Domains of the prompts that drafts are judged on."""
        return list(score.domains_in(self.trace(OWN, "greedy")))

    def add(self, one: Candidate) -> None:
        """Try a draft: record it over the texts of both runs."""
        self.candidates[one.name] = one
        for kind, by_name in self._traces.items():
            target, texts = self._targets[kind], self.texts[kind]
            run = recorded(one, self.profile, kind, texts, target=target)
            by_name[one.name] = run.trace

    def trace(self, name: str, kind: str) -> pd.DataFrame:
        """The trace of a draft over the texts of a kind of run."""
        return self._traces[kind][name]

    def lookup_chains(self, gamma: int) -> pd.DataFrame:
        """Nodes of prompt lookup's chains of gamma tokens over the greedy texts."""
        one, texts = self.candidates[LOOKUP], self.texts["greedy"]
        return recorded(one, self.profile, "greedy", texts, "chain", gamma=gamma).nodes


# ---- drafts that are made ------------------------------------------------------------------------


def training_text(tried: Tried, prompts_per_domain: int, seed: int = 0) -> TrainingText:
    """What the target writes for prompts that no draft is judged on; seed: of these prompts."""
    profile = tried.profile
    config = TextConfig(
        profile.max_prompt_tokens, profile.max_new_tokens, template=profile.template
    )
    known = training_prompts(prompts_per_domain, seed)
    return continuations(tried.pair, known, config)


def no_copy(pair: Pair) -> str:
    """Why no quantised copy of the target can be made here; '' where it can."""
    if pair.target.quantised:
        return "the target is quantised already"
    return "" if quantise.available() else "GPTQModel is not installed"


def quantised_draft(
    tried: Tried, text: TrainingText, bits: int, rows: int
) -> Candidate:
    """The target in `bits` bits as its own draft, calibrated on some `rows` of its greedy text."""
    greedy = [row.tokens.tolist() for row in text.rows if row.kind == "greedy"]
    calibration = greedy[:: max(1, len(greedy) // rows)][:rows]
    made = quantise.quantised_copy(tried.pair.target.folder, WORK, calibration, bits)
    name = f"INT{bits} self-draft"
    return candidate(
        name, tried.pair, tried.profile, made.plain, made.bits, made.weight_bytes
    )


def train(
    tried: Tried,
    text: TrainingText,
    objectives: Sequence[str],
    seeds: Sequence[int],
    config: TrainConfig,
) -> dict[str, dict[str, TrainedDraft]]:
    """Drafts trained on the target's text and tried: by family (an objective, or the specialist)
    and by name.

    The first objective and the specialist, which learns SPECIALTY only and the same objective, are
    trained with every seed, the others with the first.
    """
    families = {}
    for family in [*objectives, SPECIALIST]:
        special = family == SPECIALIST
        objective = objectives[0] if special else family
        rows = text.only(SPECIALTY) if special else text
        words = family if special else f"distilled, {family}"
        families[family] = {}
        for seed in seeds if objective == objectives[0] else seeds[:1]:
            name, seeded = (
                f"{words}, seed {seed}",
                dataclasses.replace(config, seed=seed),
            )
            made = distil.distil(tried.pair, rows, objective, seeded, label=name)
            tried.add(candidate(name, tried.pair, tried.profile, made.folder))
            families[family][name] = made
    return families

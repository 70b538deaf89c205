"""The drafts that are tried (loaded, quantised, trained, copying, leaving early) and their traces.

Traces are kept under data/runs/drafts by everything that changes their numbers: a second call reads
them. The self-draft in 4 bits of `smollm` is recorded and comes with the kit (data/drafts).
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from speclab import copying, runs, score
from speclab.drafts import quantise, shipped
from speclab.drafts.shipped import TrainedDraft, name_of, shipped_drafts
from speclab.manifest import OF_BLOCKS
from speclab.models import head
from speclab.models.folder import ModelFolder
from speclab.models.model import LanguageModel
from speclab.models.pairs import (
    Pair,
    check_vocabularies,
    device_of,
    load_model,
    model_facts,
    parameter_count,
)
from speclab.profiles import ROOT, ModelSpec, Profile, with_head
from speclab.prompts import (
    EncodedPrompt,
    decoded_prompts,
    encode_prompts,
    training_prompts,
)
from speclab.record import generate, record_prompt
from speclab.runs import locked, written
from speclab.sampling import Sampling, probabilities
from speclab.tree import PLAIN

READS = ["smollm-head"]  # the profile of a pair's trained head (`trained_head`)
WORK = runs.RUNS / "drafts"
Families = dict[str, dict[str, TrainedDraft]]  # by family and by name
Texts = Mapping[str, tuple[int, ...]]  # token ids by prompt_id
OWN, INT4, LOOKUP = "own draft", "INT4 self-draft", "prompt lookup"
HEAD = "trained head"
SPECIALIST = "specialist"  # the family that learned some domains only
CALIBRATED_TOGETHER = 32  # calibration texts that the target continues in one batch
# acceptance of the draft's best token at T = 0, and of a sampled one of sampled text
HIT = score.mean_of("hit", "hit[1]")
ESTIMATORS = {"greedy": HIT, "sampled": score.alpha}  # of a run of each kind
COLUMNS = ("position", "token", "draft_rank", "target_top", "overlap")


@dataclass(frozen=True)
class Candidate:
    """A draft that is tried: `load` gives the pair with it as draft, described by `facts` (as in a
    manifest); `spec`: where its weights come from.

    The caller of `load` drops the pair again, so that one large draft at a time is in memory. A
    recorded draft has its `traces`, by kind of run, and no weights: `load` is None. weight_bytes:
    what a pass has to read, in the stored form. `name` is part of the name of its traces, so drafts
    that share a spec (first layers) need names that tell their settings.
    """

    name: str
    load: Callable[[], Pair] | None
    facts: dict
    spec: ModelSpec
    weight_bytes: int
    traces: Mapping[str, pd.DataFrame] = field(default_factory=dict)


def _of_pair(name: str, pair: Pair, spec: ModelSpec) -> Candidate:
    """The draft of a pair that is in memory."""
    size = pair.facts["draft"]["weight_bytes"]
    return Candidate(name, lambda: pair, pair.facts, spec, size)


def candidate(
    name: str, pair: Pair, profile: Profile, path: Path, weight_bytes: int = 0
) -> Candidate:
    """The model in `path` as a draft of the pair's target; `weight_bytes` defaults to its files'.

    Raises ValueError if its tokenizer is not the target's.
    """
    if path.is_relative_to(ROOT):
        # so that the keys of its runs are those of another machine
        path = path.relative_to(ROOT)
    spec = replace(profile.draft, path=str(path), revision=None)
    load = partial(_loaded, pair, spec, profile)
    facts = load().facts
    return Candidate(name, load, facts, spec, weight_bytes or facts["draft"]["weight_bytes"])


def _loaded(pair: Pair, spec: ModelSpec, profile: Profile) -> Pair:
    draft = load_model(spec, profile.positions)
    known, sizes = draft.folder.tokenizer, (pair.vocab, draft.vocab)
    draft.vocab = check_vocabularies(pair.tokenizer, known, sizes)
    return _with_draft(pair, draft, model_facts(spec, draft))


def _with_draft(pair: Pair, draft: LanguageModel, facts: dict) -> Pair:
    return replace(pair, draft=draft, facts=pair.facts | {"draft": facts})


def early_exit(pair: Pair, profile: Profile, layers: int) -> Candidate:
    """The target's own first layers, with its last norm and head, as an untrained draft; nothing
    is loaded or copied.

    The target's body is a `speclab.models.lean` body. ValueError: it has no layers to leave out.
    """
    target, body = pair.target, copy.copy(pair.target.body)
    if not 1 <= layers < len(body.layers):
        raise ValueError(
            f"layers={layers}: the target has {len(body.layers)} layers; exit_layers must be at "
            "least 1 and below that"
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
    leaving = _with_draft(pair, draft, facts)
    return _of_pair(f"target's first {layers} layers", leaving, profile.target)


def trained_head(tried: "Tried") -> Candidate | None:
    """A trained head on the states of the pair's target: the draft of the profile NAME-head, where
    NAME is the tried profile, with its recorded runs. None where the profile, the head, its library
    or its runs along the tried texts are missing.
    """
    profile = with_head(tried.profile)
    folder = ModelFolder.whole(profile.draft) if profile else None
    if profile is None or folder is None or head.unreadable(folder):
        return None
    recorded = {kind: runs.recorded_run(profile, kind) for kind in ESTIMATORS}
    traces = {kind: run.trace for kind, run in recorded.items() if run}
    if len(traces) < len(ESTIMATORS) or not _spoken(traces, tried.texts):
        return None
    facts = tried.pair.facts | {"draft": recorded["greedy"].manifest["pair"]["draft"]}
    load = partial(_with_head, tried.pair, profile.draft)
    return Candidate(HEAD, load, facts, profile.draft, facts["draft"]["weight_bytes"], traces)


def _with_head(pair: Pair, spec: ModelSpec) -> Pair:
    """The pair with a head as draft. Only passes of this target keep the states that it reads."""
    target = copy.copy(pair.target)
    dtype = getattr(torch, spec.dtype_on(target.device.type))
    draft = head.load_head(spec, target, dtype)
    draft.vocab = pair.vocab
    both = replace(pair, target=target)
    return _with_draft(both, draft, model_facts(spec, draft))


def prompt_lookup(tried: "Tried") -> Candidate:
    """Prompt lookup (`speclab.copying`) as a draft: the copied tokens along the texts; no weights
    and no draft pass.
    """
    nothing = dict.fromkeys(("parameters", "weight_bytes", "layers", "heads"), 0)
    facts = tried.pair.facts | {"draft": nothing | {"kernel": LOOKUP}}
    traces = {kind: tried.copies(kind) for kind in ESTIMATORS}
    return Candidate(LOOKUP, None, facts, tried.profile.draft, 0, traces)


# ---- traces --------------------------------------------------------------------------------------


def judged(one: Candidate, profile: Profile, kind: str, texts: Texts) -> pd.DataFrame:
    """What a candidate proposes along `texts` of a run of `kind`, as a run records it, one row per
    position: prompt_id, domain, COLUMNS, and OF_BLOCKS for a head. Made once and kept.
    """
    if one.traces:
        trace = one.traces[kind]
        return trace[trace["prompt_id"].isin(list(texts))].reset_index(drop=True)
    small = runs.of_kind(profile, kind).replace(draft=one.spec)
    formats = [spec.dtype_on(device_of(spec).type) for spec in (small.target, small.draft)]
    name = name_of(one.name, runs.run_key(small), formats, list(texts))
    path = WORK / kind / f"{name}.parquet"
    with locked(path.parent):  # a second process waits, and finds it there
        if path.is_file():
            return pd.read_parquet(path, page_checksum_verification=True)
        trace = trace_along(one.load(), small, texts)
        options = {"index": False, "write_page_checksum": True}
        written(path, lambda part: trace.to_parquet(part, **options))
    return trace


def trace_along(pair: Pair, profile: Profile, texts: Texts) -> pd.DataFrame:
    """The trace of `judged` along the texts of a profile's run, recorded again."""
    parts = []
    for prompt in runs.encoded_prompts(profile):
        if prompt.prompt_id in texts:
            text = texts[prompt.prompt_id]
            recorded = record_prompt(pair, prompt, text, PLAIN, profile.sampling).trace
            names = {"prompt_id": prompt.prompt_id, "domain": prompt.domain}
            kept = [*COLUMNS, *(name for name in OF_BLOCKS if name in recorded)]
            columns = {name: recorded[name] for name in kept}
            parts.append(pd.DataFrame(names | columns))
    return pd.concat(parts, ignore_index=True)


class Tried:
    """The drafts tried so far on the target's texts at T = 0 and at the profile's temperature; the
    pair's own draft is the first.

    per_domain: prompts of each domain that drafts are judged on (`prompts.decoded_prompts`); 0:
    all. prompts: these prompts, encoded; candidates: by name; texts: token ids by kind of run and
    prompt.
    """

    def __init__(self, profile: Profile, pair: Pair, per_domain: int = 0):
        # recorded whole, the part is taken: no run is made for fewer prompts
        own = {kind: runs.load_or_record(profile, kind) for kind in ESTIMATORS}
        every = runs.encoded_prompts(profile)
        self.profile, self.pair, self.recorded = profile, pair, len(every)
        first = profile.notes.decoded_from
        self.prompts = decoded_prompts(every, per_domain, first) if per_domain else every
        self.candidates = {OWN: _of_pair(OWN, pair, profile.draft)}
        ids = [prompt.prompt_id for prompt in self.prompts]
        self._traces, self.texts = {}, {}
        for kind, run in own.items():
            rows, texts = run.trace, runs.texts_of(run)
            judged_rows = rows[rows["prompt_id"].isin(ids)].reset_index(drop=True)
            self._traces[kind] = {OWN: judged_rows}
            self.texts[kind] = {prompt_id: texts[prompt_id] for prompt_id in ids}

    @property
    def domains(self) -> list[str]:
        """Domains of the prompts that drafts are judged on."""
        return list(score.domains_in(self.trace(OWN, "greedy")))

    def add(self, one: Candidate) -> None:
        """Try a draft: judge it on the texts of both runs."""
        self.candidates[one.name] = one
        for kind in ESTIMATORS:
            trace = judged(one, self.profile, kind, self.texts[kind])
            self._traces[kind][one.name] = score.with_hits(trace)

    def trace(self, name: str, kind: str) -> pd.DataFrame:
        """The trace of a draft over the texts of a kind of run, with `hit`."""
        return self._traces[kind][name]

    def copies(self, kind: str) -> pd.DataFrame:
        """The trace of the first token that a block would copy at each position of the texts of a
        kind of run; `overlap` is its p, the exact acceptance of a copy, and 0 where nothing
        matches.
        """
        profile, target = runs.of_kind(self.profile, kind), self.pair.target
        parts = []
        for prompt in self.prompts:
            text = np.array(self.texts[kind][prompt.prompt_id])
            ids = np.append(prompt.ids, text)
            start = np.arange(len(prompt.ids), len(ids))
            matched, place = (column[start] for column in copying.matches(ids))
            copied = ids[place]
            is_match = matched > 0
            trunk = torch.from_numpy(ids[None, :-1])
            hidden = target.forward(trunk, target.cache())[0, start - 1]
            p = probabilities(target.logits(hidden), profile.sampling).cpu()
            overlap = p.numpy()[np.arange(len(text)), copied]
            is_right = is_match & (copied == text)
            columns = {
                "prompt_id": prompt.prompt_id,
                "domain": prompt.domain,
                "position": np.arange(len(text)),
                "token": text,
                "draft_rank": np.where(is_right, 0, 1),
                "overlap": np.where(is_match, overlap, 0.0),
            }
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts, ignore_index=True)


# ---- quantised and trained drafts ----------------------------------------------------------------


def calibration_prompts(
    pair: Pair, profile: Profile, per_domain: int, seed: int, count: int
) -> list[EncodedPrompt]:
    """`count` prompts of all lengths, shortest first, from `per_domain` composed prompts of each
    domain; no draft is judged on them. ValueError for more than there are.
    """
    composed = training_prompts(per_domain, seed)
    if not 1 <= count <= len(composed):
        raise ValueError(
            f"calibration_rows={count}: allowed are 1 to {len(composed)}; for more rows raise "
            "calibration_prompts_per_domain"
        )
    limits = profile.max_prompt_tokens, profile.template
    encoded = encode_prompts(pair.tokenizer, composed, *limits, truncate=True)
    by_length = sorted(encoded, key=lambda prompt: len(prompt.ids))
    step = len(by_length) // count
    return by_length[::step][:count]


def greedy_texts(pair: Pair, prompts: Sequence[EncodedPrompt], new_tokens: int) -> list[list[int]]:
    """Each prompt with the target's greedy continuation, as token ids."""
    texts = []
    for start in range(0, len(prompts), CALIBRATED_TOGETHER):
        block = prompts[start : start + CALIBRATED_TOGETHER]
        made = generate(pair.target, block, new_tokens, pair.stop_ids, Sampling(), 0)
        texts += [[*prompt.ids, *text] for prompt, text in zip(block, made, strict=True)]
    return texts


def calibration_text(
    pair: Pair, profile: Profile, prompts: Sequence[EncodedPrompt]
) -> quantise.Calibration:
    """GPTQ's text: the target's greedy continuations of `prompts`."""
    facts = [profile.max_new_tokens, [prompt.ids for prompt in prompts]]
    rows = partial(greedy_texts, pair, prompts, profile.max_new_tokens)
    return quantise.Calibration(facts, rows)


def self_draft(tried: Tried, prompts: Sequence[EncodedPrompt], bits: int) -> Candidate | None:
    """The target in `bits` bits as its own draft, calibrated on its greedy text after `prompts`:
    the recorded copy that comes with the kit, else a copy that GPTQ makes; None where neither is
    possible (`quantise.obstacle`).
    """
    pair, profile = tried.pair, tried.profile
    folder, text = pair.target.folder.path, calibration_text(pair, profile, prompts)
    name = f"INT{bits} self-draft"
    recorded = shipped.recorded_draft(*quantise.made_of(folder, text, bits))
    if recorded and _spoken(recorded.traces, tried.texts):
        size = recorded.weight_bytes
        # its float32 copy does the work of the target
        facts = pair.facts["target"] | {"weight_bytes": size}
        both = pair.facts | {"draft": facts}
        return Candidate(name, None, both, profile.target, size, recorded.traces)
    if quantise.obstacle(pair):
        return None
    made = quantise.quantised_copy(folder, WORK, text, bits)
    return candidate(name, pair, profile, made.plain, made.weight_bytes)


def _spoken(traces: Mapping[str, pd.DataFrame], texts: Mapping[str, Texts]) -> bool:
    """Whether recorded traces are along these texts, by kind of run."""
    for kind, known in texts.items():
        tokens = traces[kind].groupby("prompt_id")["token"].agg(tuple)
        if any(tokens.get(prompt_id) != text for prompt_id, text in known.items()):
            return False
    return True


def trained_drafts(tried: Tried) -> Families:
    """The trained drafts of the pair that come with the kit, tried; by family and by name."""
    families: Families = {}
    for made in shipped_drafts(tried.pair):
        tried.add(candidate(made.name, tried.pair, tried.profile, made.folder))
        families.setdefault(made.family, {})[made.name] = made
    return families

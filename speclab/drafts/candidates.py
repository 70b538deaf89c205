"""Drafts that are tried on a target's recorded texts: a model in a folder, and the target's own
first layers.

`proposed` gives what a draft proposes along these texts, as a run records it. Traces are kept under
data/runs/drafts by everything that changes their numbers, so that a second call reads them.
"""

import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd
import torch

from speclab.drafts.shipped import name_of
from speclab.model import Pair
from speclab.models.model import Network
from speclab.models.pairs import (
    device_of,
    joined,
    load_model,
    model_facts,
    parameter_count,
)
from speclab.plain import ModelSpec, Texts
from speclab.sampling import check_finite, rank_key, rank_of
from speclab.study import runs
from speclab.study.profiles import Profile

WORK = runs.RUNS / "drafts"


@dataclass(frozen=True)
class Candidate:
    """A draft that is tried: `pair` has it as draft, `spec` says where its weights come from. Two
    drafts of one spec (first layers) need different names, which are part of their traces' names.
    """

    name: str
    spec: ModelSpec
    pair: Pair


def load_candidate(name: str, pair: Pair, profile: Profile, spec: ModelSpec) -> Candidate:
    """A model as a draft of the pair's target. ValueError for a head, and as of `joined`."""
    target: Any = copy.copy(pair.target)
    draft = load_model(spec, profile.positions)
    facts = pair.facts | {"draft": model_facts(spec, draft)}
    # cut to the ids that these two share: the pair's own draft may leave fewer, or more
    every = target.network.get_output_embeddings().out_features
    drafting = joined(draft, facts, (pair.tokenizer, draft.folder.tokenizer), every)
    target.vocab = drafting.vocab
    return Candidate(name, spec, replace(pair, target=target, draft=drafting, facts=facts))


def first_layers(pair: Pair, profile: Profile, layers: int) -> Candidate:
    """The target's own first layers, with its last norm and head, as an untrained draft; nothing
    is loaded or copied.

    The target's body is a `speclab.models.lean` body. ValueError: it has no layers to leave out.
    """
    target: Any = pair.target
    body = copy.copy(target.body)
    if not 1 <= layers < len(body.layers):
        raise ValueError(
            f"layers={layers}: the target has {len(body.layers)} layers; exit_layers must be at "
            "least 1 and below that"
        )
    body.layers = body.layers[:layers]
    draft = Network(body, target.head, target.vocab, target.dtype, target.device, target.kernel)
    left_out = target.network.model.layers[layers:].parameters()
    whole, facts = parameter_count(target.network), pair.facts["target"]
    parameters = whole - sum(weights.numel() for weights in left_out)
    size = round(facts["weight_bytes"] * parameters / whole)
    facts = facts | {"layers": layers, "parameters": parameters, "weight_bytes": size}
    both = replace(pair, draft=draft, facts=pair.facts | {"draft": facts})
    return Candidate(f"target's first {layers} layers", profile.target, both)


def proposed(one: Candidate, profile: Profile, kind: str, texts: Texts) -> pd.DataFrame:
    """The ranks of a draft along `texts` of a run of `kind`, as a run records them, one row per
    position: prompt_id, domain, position, token, draft_rank. Recorded once and kept.
    """
    small = runs.of_kind(profile, kind).replace(draft=one.spec, drafts=())
    formats = [spec.dtype_on(device_of(spec).type) for spec in (small.target, small.draft)]
    name = name_of(one.name, runs.run_key(small), formats, list(texts))
    path = WORK / kind / f"{name}.parquet"
    with runs.locked(path.parent):  # a second process waits, and finds it there
        if path.is_file():
            return pd.read_parquet(path, page_checksum_verification=True)
        trace = trace_along(one.pair, small, texts)
        write = partial(trace.to_parquet, index=False, write_page_checksum=True)
        runs.written(path, write)
    return trace


def trace_along(pair: Pair, profile: Profile, texts: Texts) -> pd.DataFrame:
    """The trace of `proposed` along the texts of a profile's run. The texts are known, so the draft
    runs alone. ValueError for ids outside the shared vocabulary. NonFiniteProbability.
    """
    draft, parts = pair.draft, []
    asked = (prompt for prompt in runs.encoded_prompts(profile) if prompt.prompt_id in texts)
    for prompt in asked:
        text = texts[prompt.prompt_id]
        tokens = (*prompt.ids, *text)
        draft.check_ids(tokens)
        hidden = draft.forward(torch.tensor([tokens[:-1]]), draft.cache(len(tokens)))
        logits = draft.logits(hidden[0, -len(text) :])  # the last states predict the text
        check_finite(logits, "draft")
        ranks = rank_of(rank_key(logits), torch.tensor(text, device=logits.device))
        columns = {
            "position": range(len(text)),
            "token": text,
            # a token that the draft cannot output comes after all that it can
            "draft_rank": ranks.clamp(max=draft.tokens_said).cpu(),
            "prompt_id": prompt.prompt_id,
            "domain": prompt.domain,
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)

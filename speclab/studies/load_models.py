"""Notebook 01: a draft/target pair as tables and pictures: the two models, their tokens, one
drafted tree, and the overlap of two distributions.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from speclab.drafts import quantise
from speclab.estimates import counted
from speclab.models import pairs
from speclab.models.model import LanguageModel
from speclab.profiles import ROOT, ModelSpec
from speclab.show.pictures import visible
from speclab.tree import Tree

LEAST_SHOWN = 0.02  # the least probability of a bar in section 5
READS = ["{target}-gptq"]  # the 4-bit copy of the target, if there is one


# ---- the models ----------------------------------------------------------------------------------


Loaded = tuple[Mapping[str, Any], LanguageModel]  # the facts of a manifest, and the model


def models(pair: pairs.Pair, four_bit: Loaded | None = None) -> pd.DataFrame:
    """What the two models are and how much memory they need. Index model; columns parameters,
    layers, width, heads, dtype, device, kernel, disk_mb, memory_mb, kv_kb (keys and values of one
    token of context). `four_bit`: a quantised copy of the target.
    """
    loaded = {name: (pair.facts[name], getattr(pair, name)) for name in ("target", "draft")}
    if four_bit:
        loaded["target, 4 bit"] = four_bit
    rows = {name: _model(facts, model) for name, (facts, model) in loaded.items()}
    return pd.DataFrame(rows).T.rename_axis("model")


def _model(facts: Mapping[str, Any], model: LanguageModel) -> dict[str, Any]:
    tensors = [*model.network.parameters(), *model.network.buffers()]
    cache = model.cache(1)
    model.forward(torch.zeros(1, 1, dtype=torch.long), cache)
    cached = [keys_or_values for layer in cache.layers.values() for keys_or_values in layer]
    names = ("layers", "width", "heads", "dtype", "device", "kernel")
    return {
        "parameters": f"{facts['parameters']:,}",
        **{name: facts[name] for name in names},
        "disk_mb": facts["weight_bytes"] / 1e6,
        "memory_mb": _bytes(tensors) / 1e6,
        "kv_kb": _bytes(cached) / 1e3,
    }


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def four_bit_copy(spec: ModelSpec) -> Loaded | None:
    """The 4-bit copy of a target, None if it is missing, or GPTQModel is."""
    path = spec.path + "-gptq"
    if not (ROOT / path / "config.json").is_file() or not quantise.available():
        return None
    spec = dataclasses.replace(spec, path=path)
    model = pairs.load_model(spec)
    return pairs.model_facts(spec, model), model


def vocabulary_in_words(size: Mapping[str, int], vocab: int, output: int, outside: float) -> str:
    """How large the two models are, and how many of the `vocab` tokens the draft can `output`;
    outside: the share of the recorded tokens that it cannot.
    """
    ratio = size["target"] / size["draft"]
    return (
        f"The target has **{ratio:.1f} times** the parameters of the draft. The draft can output "
        f"{output:,} of the {vocab:,} tokens of the vocabulary. They make up "
        f"{100 * (1 - outside):.1f} % of the recorded texts."
    )


# ---- tokens and texts ----------------------------------------------------------------------------


def visible_pieces(tokenizer, ids: Iterable[int]) -> list[str]:
    """Each token's text as a reader can see it."""
    return [visible(tokenizer.decode([int(i)])) for i in ids]


def listed(tokenizer, ids: Iterable[int]) -> str:
    """Tokens in a sentence, as Markdown code (even if a token contains a backtick)."""
    pieces = (f"`` {piece} ``" for piece in visible_pieces(tokenizer, ids))
    return ", ".join(pieces) or "none"


# ---- one tree ------------------------------------------------------------------------------------


def wanted_tree(nodes: pd.DataFrame, tree: Tree, wanted: int, blank: Sequence[int]) -> tuple:
    """(prompt_id, position) of the first tree without `blank` tokens in which the target accepts
    `wanted` tokens and rejects the next. If there is no such tree, it is the first tree with the
    most accepted tokens. `nodes` has a column `accepted` (`score.reach`).
    """
    trees = nodes.assign(last=nodes["node"] * nodes["accepted"], blank=nodes["token"].isin(blank))
    trees = trees.groupby(["prompt_id", "position"], sort=False)
    trees = trees.agg({"accepted": "sum", "last": "max", "blank": "any"})
    rejects = trees["last"].isin(tree.parent)  # the last accepted node has children
    fits = (trees["accepted"] == wanted) & rejects & ~trees["blank"]
    return fits.idxmax() if fits.any() else trees["accepted"].idxmax()


def node_table(nodes: pd.DataFrame) -> pd.DataFrame:
    """The nodes of a tree as a table: index node; parent, depth, rank, token, q, p, target_rank,
    ratio, accepted. `nodes` has columns `text` and `ratio` = min(1, p/q).
    """
    names = {"text": "token", "draft_prob": "q", "target_prob": "p"}
    columns = ["parent", "depth", "rank", *names, "target_rank", "ratio", "accepted"]
    shown = nodes.set_index("node")[columns]
    pieces = shown["text"].map(visible)
    return shown.assign(text=pieces).rename(columns=names)


def tree_in_words(accepted: int, drafted: int, kept: str, own: str) -> str:
    """What the target accepts of a tree, and how many tokens the pass gives; kept, own: the
    accepted tokens and the target's own token, "" if the text ends before it.
    """
    tokens = counted(accepted + bool(own), "token")
    says = f"The greedy target accepts **{accepted}** of the {drafted} drafted tokens"
    says += f" ({kept})" if accepted else ""
    says += f" and adds its own token {own}." if own else ", and the text ends there."
    return f"{says} This target pass gives **{tokens}**, and a pass of plain decoding gives one."


# ---- p, q, overlap -------------------------------------------------------------------------------


def near_overlap(trace: pd.DataFrame, wanted: float) -> pd.Series:
    """The position to show, a row of a trace. Among the positions whose overlap is within 0.02 of
    `wanted` (or nearest to it), it is the position with the most overlap at the draft's second
    choice.
    """
    off = (trace["overlap"] - wanted).abs()
    near = trace[off <= max(0.02, off.min())]
    q, p = np.stack(near["top_draft_q"]), np.stack(near["top_draft_p"])
    shared = np.minimum(q, p)
    second = shared[:, 1].argmax()
    return near.iloc[second]


def favourites(position: pd.Series, tokenizer: Any) -> pd.DataFrame:
    """q and p of the draft's best tokens at a position of a trace, and of all other tokens
    together. From the third on, tokens with less than LEAST_SHOWN are among the others. Index
    `token`, as a reader sees it; `shared` is the sum of min(p, q).
    """
    q, p = (np.asarray(position[name], float) for name in ("top_draft_q", "top_draft_p"))
    names = visible_pieces(tokenizer, position["top_draft_ids"])
    table = pd.DataFrame({"q": q, "p": p, "shared": np.minimum(p, q)}, index=names)
    is_shown = (np.maximum(p, q) >= LEAST_SHOWN) | (np.arange(len(table)) < 2)
    table = table[is_shown]
    whole = pd.Series({"q": 1.0, "p": 1.0, "shared": position["overlap"]})
    others = (whole - table.sum()).clip(lower=0)
    return pd.concat([table, others.rename("all others").to_frame().T]).rename_axis("token")


def pair_in_words(
    size: Mapping[str, int], accepted: int, drafted: int, tokens: int, passes: int
) -> str:
    """The answer of notebook 01; tokens, passes: of the whole text."""
    ratio = size["target"] / size["draft"]
    return (
        f"In a pair, a small draft proposes tokens, and a target {ratio:.1f} times as large "
        f"accepts or rejects them. The target accepts {accepted} of the example tree's "
        f"{counted(drafted, 'token')}. With such trees, a text of {counted(tokens, 'token')} takes "
        f"{counted(passes, 'target pass')} instead of {tokens}."
    )

"""Notebook 01: a draft/target pair as tables and pictures: the two models, their tokens, one
drafted tree, and the overlap of two distributions.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import torch

from speclab.models import pairs
from speclab.models.model import LanguageModel
from speclab.profiles import ROOT
from speclab.sampling import Sampling
from speclab.show import figures
from speclab.tree import Tree

GREEDY = Sampling()
READS = ["{target}-gptq"]  # the 4-bit copy beside the target, where there is one


# ---- the models ----------------------------------------------------------------------------------


def models(pair: pairs.Pair, four_bit: tuple | None = None) -> pd.DataFrame:
    """What the two models are and take: index model; parameters, layers, width, heads, dtype,
    device, kernel, disk_mb, memory_mb, kv_kb (keys and values of one token of context). `four_bit`:
    facts and model of a quantised copy of the target.
    """
    rows = {
        "target": _model(pair.facts["target"], pair.target),
        "draft": _model(pair.facts["draft"], pair.draft),
    }
    if four_bit:
        rows["target, 4 bit"] = _model(*four_bit)
    return pd.DataFrame(rows).T.rename_axis("model")


def _model(facts: Mapping, model) -> dict:
    network = model.network
    tensors = [*network.parameters(), *network.buffers()]
    held = sum(tensor.nbytes for tensor in tensors)
    # GPT-2 and NeoX name neither: each head has keys of its own, of width / heads
    kv_heads = getattr(network.config, "num_key_value_heads", None) or facts["heads"]
    head_dim = getattr(network.config, "head_dim", None)
    head_dim = head_dim or facts["width"] // facts["heads"]
    cached = 2 * facts["layers"] * kv_heads * head_dim * model.dtype.itemsize
    kept = ("layers", "width", "heads", "dtype", "device", "kernel")
    return {
        "parameters": f"{facts['parameters']:,}",
        **{name: facts[name] for name in kept},
        "disk_mb": facts["weight_bytes"] / 1e6,
        "memory_mb": held / 1e6,
        "kv_kb": cached / 1e3,
    }


def four_bit_copy(spec) -> tuple | None:
    """Facts and model of the 4-bit copy that stands beside a target, None where there is none."""
    path = spec.path + "-gptq"
    if not (ROOT / path / "config.json").is_file():
        return None
    spec = dataclasses.replace(spec, path=path)
    model = pairs.load_model(spec)
    return pairs.model_facts(spec, model), model


# ---- tokens and texts ----------------------------------------------------------------------------


def visible_pieces(tokenizer, ids: Iterable[int]) -> list[str]:
    """Each token's text as a reader can see it."""
    return [figures.visible(tokenizer.decode([int(i)])) for i in ids]


def listed(tokenizer, ids: Iterable[int]) -> str:
    """Tokens in a sentence, as Markdown code (also where one holds the mark of code)."""
    pieces = (f"`` {piece} ``" for piece in visible_pieces(tokenizer, ids))
    return ", ".join(pieces) or "none"


# ---- one tree ------------------------------------------------------------------------------------


def wanted_tree(nodes: pd.DataFrame, tree: Tree, wanted: int, blank: Sequence[int]) -> tuple:
    """(prompt_id, position) of the first tree of which the target accepts `wanted` tokens and then
    rejects what the draft put below them, without `blank` tokens; where there is none, of the first
    with the most accepted tokens. `nodes` has `accepted` (`score.reach`).
    """
    trees = nodes.assign(last=nodes["node"] * nodes["accepted"], blank=nodes["token"].isin(blank))
    trees = trees.groupby(["prompt_id", "position"], sort=False)
    trees = trees.agg({"accepted": "sum", "last": "max", "blank": "any"})
    rejects = trees["last"].isin(tree.parent)  # there was something below to reject
    found = trees[(trees["accepted"] == wanted) & rejects & ~trees["blank"]]
    return found.index[0] if len(found) else trees["accepted"].idxmax()


def node_table(nodes: pd.DataFrame) -> pd.DataFrame:
    """The nodes of a tree, which have `text` and `ratio` = min(1, p/q), as a table: index node;
    parent, depth, rank, token, q, p, target_rank, ratio, accepted.
    """
    names = {"text": "token", "draft_prob": "q", "target_prob": "p"}
    columns = ["parent", "depth", "rank", *names, "target_rank", "ratio", "accepted"]
    shown = nodes.set_index("node")[columns]
    pieces = shown["text"].map(figures.visible)
    return shown.assign(text=pieces).rename(columns=names)


# ---- p, q, overlap -------------------------------------------------------------------------------


def place_of_overlap(trace: pd.DataFrame, wanted: float) -> tuple[str, int]:
    """(prompt_id, position) to show: of the positions whose overlap is within 0.02 of `wanted` (or
    the nearest one) that where the draft's second choice is shared most.
    """
    off = (trace["overlap"] - wanted).abs()
    near = trace[off <= max(0.02, off.min())]
    shared = [
        min(q[1], p[1]) for q, p in zip(near["top_draft_q"], near["top_draft_p"], strict=True)
    ]
    most = int(np.argmax(shared))
    found = near.iloc[most]
    return found["prompt_id"], int(found["position"])


def next_token(model: LanguageModel, ids: Sequence[int]) -> np.ndarray:
    """Distribution of the token after `ids`, float64 [vocab]."""
    hidden = model.forward(torch.tensor([ids]), model.cache())
    logits = model.logits(hidden[0, -1]).double()
    return torch.softmax(logits, -1).cpu().numpy()


def favourites(p: np.ndarray, q: np.ndarray, tokenizer, count: int = 8) -> pd.DataFrame:
    """q and p of the draft's `count` best tokens and of all others together: index the token as a
    reader sees it. `shared` is the sum of min(p, q).
    """
    best = np.argsort(-q)[:count]
    table = pd.DataFrame({"q": q, "p": p, "shared": np.minimum(p, q)})
    others = table.drop(index=best).sum().rename("all others")
    shown = table.loc[best].set_axis(visible_pieces(tokenizer, best))
    return pd.concat([shown, others.to_frame().T])


def overlap_figure(table: pd.DataFrame) -> figures.Figure:
    """`favourites` as bars: what both give, and what only one of them gives."""
    shared = table["shared"]
    parts = pd.DataFrame(
        {
            "both: min(p, q), the overlap": shared,
            "draft alone: rejected": table["q"] - shared,
            "target alone: recovered": table["p"] - shared,
        }
    )
    figure, axes = figures.subplots(height=2.8)
    colours = ["#999999", "#56B4E9", "#E69F00"]
    parts.plot.barh(stacked=True, ax=axes, color=colours, width=0.8, legend=False)
    axes.set_yticks(range(len(table)), table.index, family="DejaVu Sans Mono")
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(
        xlim=(0, None),
        xlabel="probability of the next token",
        ylabel="the draft's favourites, best on top",
    )
    figures.legend_above(figure, axes)
    return figure

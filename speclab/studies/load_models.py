"""Notebook 01: a draft/target pair as tables and pictures: the two models, their tokens, one
drafted tree, and the overlap of two distributions.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from speclab import score
from speclab.models import pairs
from speclab.profiles import ROOT
from speclab.prompts import EncodedPrompt, Prompt
from speclab.record import record_prompt
from speclab.sampling import Sampling
from speclab.show import figures
from speclab.tree import Tree

GREEDY = Sampling()
SHOWN = 400  # characters of a prompt that are shown


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
    held = sum(tensor.nbytes for tensor in [*network.parameters(), *network.buffers()])
    head = facts["width"] / facts["heads"]
    cached = (
        2
        * facts["layers"]
        * head
        * network.config.num_key_value_heads
        * model.dtype.itemsize
    )
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


def four_bit_sentence(models: pd.DataFrame) -> str:
    """How the 4-bit copy runs and what it takes, or that there is none."""
    if "target, 4 bit" not in models.index:
        return "There is no 4-bit copy of the target, so none is shown."
    copy, target = models.loc["target, 4 bit"], models.loc["target"]
    share = copy["memory_mb"] / target["memory_mb"]
    return (
        f"The 4-bit copy's layers run as `{copy['kernel']}`; in memory it takes {share:.0%} of "
        "what the target takes."
    )


def said_by_draft(said: int, vocab: int, trace: pd.DataFrame) -> str:
    """How many tokens of the vocabulary a draft can say, and of a trimmed one how many of the
    recorded text's tokens it cannot.
    """
    if said >= vocab:
        return f"The draft can say all {vocab:,} of them."
    unsaid = (trace["draft_rank"] >= said).mean()
    return (
        f"The draft reads all of them, but can say **{said:,}** only: its output layer is trimmed "
        "to tokens that the target writes often, which makes it faster. All others have q = 0: "
        "they are never drafted, and the text is the target's all the same, since the target puts "
        f"in what is missing ({unsaid:.1%} of the recorded tokens). One column of the records "
        "says nothing about such a draft: `kl`, which is infinite where q = 0 and p is not (a "
        "floor under q is all that keeps it finite). Read `overlap` instead."
    )


# ---- tokens and texts ----------------------------------------------------------------------------


def visible_pieces(tokenizer, ids: Iterable[int]) -> list[str]:
    """Each token's text as a reader can see it."""
    return [figures.visible(tokenizer.decode([int(i)])) for i in ids]


def listed(tokenizer, ids: Iterable[int]) -> str:
    """Tokens in a sentence."""
    return ", ".join(map(_as_code, visible_pieces(tokenizer, ids))) or "none"


def _as_code(piece: str) -> str:
    """A piece as Markdown code, also where it holds the mark of code."""
    return f"`` {piece} ``" if "`" in piece else f"`{piece}`"


def lengths_by_domain(
    tokenizer, prompts: Sequence[Prompt], encoded: Sequence[EncodedPrompt]
) -> pd.DataFrame:
    """By domain: prompts, shortest and longest in tokens, prompts_cut, and characters_per_token of
    the user's words (without a template).
    """
    frame = pd.DataFrame(
        {
            "domain": [prompt.domain for prompt in prompts],
            "characters": [len(prompt.text) for prompt in prompts],
            "words": [len(tokenizer(prompt.text)["input_ids"]) for prompt in prompts],
            "tokens": [len(one.ids) for one in encoded],
            "cut": [one.cut > 0 for one in encoded],
        }
    )
    domains = frame.groupby("domain", sort=False)
    table = domains.agg(
        prompts=("tokens", "size"),
        shortest=("tokens", "min"),
        longest=("tokens", "max"),
        prompts_cut=("cut", "sum"),
    )
    return table.assign(
        characters_per_token=domains["characters"].sum() / domains["words"].sum()
    )


def first_of_each_domain(encoded: Sequence[EncodedPrompt]) -> list[EncodedPrompt]:
    """The first prompt of each domain, domains in order."""
    first = {}
    for prompt in encoded:
        first.setdefault(prompt.domain, prompt)
    return list(first.values())


def as_given(tokenizer, prompt: EncodedPrompt, template: str) -> str:
    """What the models get for a prompt, its marks too, as Markdown."""
    around = {
        "none": "The profile's `template` is none: a prompt is given as it is.",
        "chat": "The profile's `template` is chat: the target's own chat template stands around "
        "the user's words, with the marks that this model was trained on, and the answer begins "
        "where it ends.",
    }[template]
    return (
        f"{around} Prompt `{prompt.prompt_id}`, {len(prompt.ids)} tokens:\n\n"
        f"~~~~text\n{tokenizer.decode(prompt.ids)}\n~~~~"
    )


def continuation(
    pair: pairs.Pair, prompt: EncodedPrompt, words: str, text: Sequence[int]
) -> str:
    """The end of a prompt's `words` (the user's, without a template), ▌, and what the target wrote,
    as Markdown. Of a prompt that was cut, what the models got is shown.
    """
    end = "ended by the target" if text[-1] in pair.stop_ids else "stopped at the limit"
    given = pair.tokenizer.decode(prompt.ids)
    shown = words if words in given else given
    gap = "" if given.endswith(shown) else "\n"
    written = pair.tokenizer.decode(text, skip_special_tokens=True)
    return (
        f"**{prompt.domain}**, prompt `{prompt.prompt_id}` of {len(prompt.ids)} tokens; "
        f"{len(text)} new tokens, {end}\n\n~~~~text\n"
        f"{ending(shown)}{gap}▌{written}\n~~~~"
    )


def ending(text: str, longest: int = SHOWN) -> str:
    """The last `longest` characters of a text or fewer, from where a line or else a word begins."""
    if len(text) <= longest:
        return text
    end = text[-longest:]
    for mark in ("\n", " "):
        _, found, rest = end.partition(mark)
        if len(rest) > longest / 2:
            return f"…{found}{rest}"
    return f"…{end}"


# ---- one tree ------------------------------------------------------------------------------------


def wanted_tree(
    nodes: pd.DataFrame, tree: Tree, wanted: int, blank: Sequence[int]
) -> tuple:
    """(prompt_id, position) of the first tree of which the target accepts `wanted` tokens and then
    rejects what the draft put below them, without `blank` tokens; where there is none, of the first
    with the most accepted tokens. `nodes` has `accepted` (`score.reach`).
    """
    trees = nodes.assign(
        last=nodes["node"] * nodes["accepted"], blank=nodes["token"].isin(blank)
    )
    trees = trees.groupby(["prompt_id", "position"], sort=False)
    trees = trees.agg({"accepted": "sum", "last": "max", "blank": "any"})
    rejects = trees["last"].isin(tree.parent)  # there was something below to reject
    found = trees[(trees["accepted"] == wanted) & rejects & ~trees["blank"]]
    return found.index[0] if len(found) else trees["accepted"].idxmax()


def scored_anew(
    pair: pairs.Pair,
    tree: Tree,
    stored: pd.DataFrame,
    prompt: EncodedPrompt,
    text: tuple[int, ...],
) -> pd.DataFrame:
    """The nodes of one tree of a prompt's recorded text, scored anew and compared with the `stored`
    ones (which have `accepted`); with `text`, `accepted` and `ratio` = min(1, p/q).
    """
    recorded = pd.DataFrame(record_prompt(pair, prompt, text, tree, GREEDY).nodes)
    again = recorded[recorded["position"] == stored["position"].iloc[0]].set_index(
        stored.index
    )
    assert (again["token"] == stored["token"]).all()
    both = ["draft_prob", "target_prob"]
    gap = (again[both] - stored[both]).abs().to_numpy().max()
    assert gap < (1e-4 if pair.is_exact else 0.05)
    return again.assign(
        accepted=stored["accepted"] == 1,
        ratio=score.ratio(again),
        text=[pair.tokenizer.decode([token]) for token in again["token"]],
    )


def tree_figure(tree: Tree, nodes: pd.DataFrame, context: str) -> figures.Figure:
    """The tree with both models' probabilities and the accepted path (of `scored_anew`)."""
    draft, target = [1, *nodes["draft_prob"]], [1, *nodes["target_prob"]]
    labels, accepted = [context, *nodes["text"]], [True, *nodes["accepted"]]
    return figures.draw_tree(tree, labels, draft, target, accepted)


def node_table(nodes: pd.DataFrame) -> pd.DataFrame:
    """The nodes: index node; parent, depth, rank, token, q, p, target_rank, ratio, accepted."""
    names = {"text": "token", "draft_prob": "q", "target_prob": "p"}
    columns = ["parent", "depth", "rank", *names, "target_rank", "ratio", "accepted"]
    shown = nodes.set_index("node")[columns]
    return shown.assign(text=shown["text"].map(figures.visible)).rename(columns=names)


# ---- p, q, overlap -------------------------------------------------------------------------------


def distributions(position: pd.Series, tokenizer) -> pd.DataFrame:
    """p, q and the smaller of both for the draft's favourites at a position of the trace, and for
    all others together: index the token as a reader sees it.
    """
    table = pd.DataFrame({"q": position["top_draft_q"], "p": position["top_draft_p"]})
    table = table.set_index(
        pd.Index(visible_pieces(tokenizer, position["top_draft_ids"]))
    )
    table["smaller"] = table.min(axis=1)
    whole = pd.Series({"q": 1.0, "p": 1.0, "smaller": position["overlap"]})
    others = (whole - table.sum()).rename("all others")
    return pd.concat([table, others.to_frame().T]).clip(lower=0)


def overlap_figure(table: pd.DataFrame) -> figures.Figure:
    """p and q as bars, what they share hatched."""
    figure, axes = figures.subplots(width=figures.ONE_COLUMN, height=2.9)
    place = np.arange(len(table))
    axes.barh(place - 0.19, table["q"], height=0.36, color="#56B4E9", label="q (draft)")
    axes.barh(
        place + 0.19, table["p"], height=0.36, color="#E69F00", label="p (target)"
    )
    hatched = {
        "facecolor": "none",
        "edgecolor": "black",
        "hatch": "//////",
        "linewidth": 0,
    }
    axes.barh(place, table["smaller"], height=0.74, label="min(p, q)", **hatched)
    axes.set_yticks(place, table.index, family="DejaVu Sans Mono")
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(
        xlabel="probability of the next token (depth 1)",
        ylabel="the draft's favourites, best on top",
    )
    axes.legend(loc="center right")
    return figure


# ---- the run -------------------------------------------------------------------------------------


def manifest(facts: Mapping, tree: Tree, models: pd.DataFrame) -> pd.DataFrame:
    """What a run recorded, on what, and in what time: index fact; value. `facts`: its manifest."""
    rows, seconds = facts["rows"], facts["time_s"]
    levels = (str(len(tree.level(depth))) for depth in range(1, tree.max_depth + 1))
    peaks = (f"{name} {size / 1e6:,.0f}" for name, size in facts["peak_bytes"].items())
    libraries = (
        f"{name} {facts['libraries'][name]}" for name in ("torch", "transformers")
    )
    weights = models["memory_mb"]
    longest = facts["profile"]["max_prompt_tokens"]
    values = {
        "prompts": f"{facts['prompts']} ({facts['prompts_cut']} cut to {longest} tokens)",
        "template": facts["profile"]["template"],
        "positions (rows of trace)": f"{rows['trace']:,}",
        "drafted nodes (rows of nodes)": f"{rows['nodes']:,}",
        "tree": " + ".join(levels) + " nodes",
        "seconds": f"{seconds:.0f}",
        "nodes per second": f"{rows['nodes'] / seconds:,.0f}",
        "peak memory (MB)": ", ".join(peaks),
        "weights in memory (MB)": f"target {weights['target']:.1f}, draft {weights['draft']:.1f}",
        "libraries": ", ".join(libraries),
        "key": facts["key"],
    }
    return pd.Series(values, name="value").rename_axis("fact").to_frame()

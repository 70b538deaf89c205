"""A prompt that somebody types (notebooks 01 and 12): the text, a block at a time, so that it can
be shown as it comes; whether plain decoding of the same prompt gives it too; the draft of any block
with both models' probabilities; and the cell where one types. (What runs too long, the kernel's
interrupt stops.)
"""

import html
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from IPython.display import Markdown, display
from ipywidgets import (
    HTML,
    BoundedFloatText,
    BoundedIntText,
    Combobox,
    Dropdown,
    Textarea,
    VBox,
    interactive,
)

from speclab.decode import LOSSLESS, LanguageModel, Pair, Step, decode, score_tree
from speclab.profiles import Profile
from speclab.prompts import Prompt, encode_prompts
from speclab.sampling import Sampling, probabilities
from speclab.shapes import NO_DRAFT, parse_shape
from speclab.show import drawings, pictures, redraw

SHAPES = ("chain:2", "chain:4", "chain:8", "tree:3,2,8", "dynamic:4,4,8", "plain")
START = {  # what the cell's fields hold at first
    "rule": "greedy",
    "shape": "chain:4",
    "temperature": 0.0,
    "new_tokens": 64,
    "seed": 0,
}
Request = dict[str, Any]  # arguments of `decode`: all but the pair and the source of uniforms

# ---- the text ------------------------------------------------------------------------------------


def request(
    pair: Pair,
    profile: Profile,
    prompt: str,
    rule: str,
    shape: str,
    temperature: float,
    new_tokens: int,
) -> Request:
    """What somebody asks for, encoded by the profile's template, with its top_k and top_p.

    shape: as of `parse_shape`. Raises ValueError for an empty or too long prompt; what else
    does not go together `decode` refuses.
    """
    if not prompt.strip():
        raise ValueError("The prompt is empty: type a few words.")
    drafted = parse_shape(shape)
    positions = min(pair.target.positions, pair.draft.positions)
    room = positions - new_tokens - drafted.room
    longest = max(1, min(profile.max_prompt_tokens, room))
    words = [Prompt("typed", "", prompt)]
    [encoded] = encode_prompts(pair.tokenizer, words, sys.maxsize, profile.template)
    if len(encoded.ids) > longest:
        raise ValueError(
            f"The prompt is too long: {len(encoded.ids)} tokens, and {longest} fit with "
            f"{new_tokens} new ones. Shorten it."
        )
    return {
        "prompt_ids": encoded.ids,
        "rule": rule,
        "shape": drafted,
        "sampling": Sampling(temperature, profile.top_k, profile.top_p),
        "max_new_tokens": new_tokens,
    }


def blocks(pair: Pair, request: Request, seed: int) -> Iterator[Step]:
    """The text, a block at a time; a sampled text belongs to its seed. Whoever takes no more of
    them has stopped it.
    """
    return decode(pair, **request, rng=np.random.default_rng(seed))


def plain_text(pair: Pair, request: Request, seed: int) -> tuple[int, ...]:
    """The token ids of plain decoding, which drafts nothing."""
    return tokens_in(blocks(pair, request | {"shape": NO_DRAFT}, seed))


def tokens_in(steps: Iterable[Step]) -> tuple[int, ...]:
    """All token ids of a text, the stop token included."""
    return tuple(token for step in steps for token in step.tokens)


def plain_in_words(sampling: Sampling, text: tuple[int, ...], plain: tuple[int, ...]) -> str:
    """Whether a text and plain decoding's, both as token ids, are the same."""
    if text == plain:
        return "Plain decoding gives the same text, token for token."
    if sampling.greedy:
        return "Plain decoding differs from where two tokens are almost equally likely."
    return "Plain decoding draws another text from the same distribution, the target's."


# ---- the draft of a block ------------------------------------------------------------------------


def block_probabilities(
    pair: Pair, request: Request, steps: Sequence[Step], number: int
) -> tuple[np.ndarray, np.ndarray, float | None]:
    """q and p of each drafted token of block `number` (from 0) after its parents, float64 [N + 1]
    each (the root's is 1), and p of the token that the target added after the accepted ones (None
    where the text ended before): by one pass of each model over the block's context and one over
    its draft. At temperature 0 they are those at temperature 1.
    """
    step = steps[number]
    context = [*request["prompt_ids"], *tokens_in(steps[:number])]
    tree, tokens = step.draft.tree, step.draft.tokens

    def after(model: LanguageModel) -> torch.Tensor:
        """Its distributions after the root and every drafted node, [N + 1, vocab]."""
        cache = model.cache(len(context) + step.drafted)
        if len(context) > 1:
            model.forward(torch.tensor([context[:-1]]), cache)
        logits = score_tree(model, cache, context, tree, tokens)
        return probabilities(logits, request["sampling"]).cpu().double()

    p_rows, q_rows = after(pair.target), after(pair.draft)
    parents, children = tree.parent[1:], tokens[1:]
    q, p = (np.append(1.0, rows[parents, children].numpy()) for rows in (q_rows, p_rows))
    last = [0, *step.draft.path][-1]
    added = float(p_rows[last, step.tokens[-1]]) if step.kind != "cut" else None
    return q, p, added


def draw_block(
    pair: Pair, request: Request, steps: Sequence[Step], number: int, strings: Sequence[str]
) -> tuple[pd.DataFrame, str]:
    """The draft of block `number` (from 0) as data of a picture (`redraw.tree_frame`), and in words
    what became of it (there the first block is 1); `strings[id]`: the text of token id.
    """
    step = steps[number]
    q, p, added = block_probabilities(pair, request, steps, number)
    context = [*request["prompt_ids"], *tokens_in(steps[:number])]
    root = "".join(strings[token] for token in context[-8:])
    labels = [root, *(strings[token] for token in step.draft.tokens[1:])]
    accepted = np.isin(np.arange(len(p)), [0, *step.draft.path])
    frame = redraw.tree_frame(step.draft.tree, labels, q, p, accepted)
    kept = f"Block {number + 1}: {step.accepted} of {step.drafted} drafted tokens kept"
    if added is None:
        return frame, f"{kept}; the text ends there."
    token = pictures.visible(strings[step.tokens[-1]])
    return frame, f"{kept}; the target added {token} (p {added:.2f}), {step.kind}."


def telling_block(steps: Sequence[Step]) -> int:
    """The first block, of those where the target kept something and put in its own for the rest,
    with the most kept tokens; where there is none, the first with the most kept tokens.
    """
    ranks = [(s.accepted > 0 and s.kind == "recovered", s.accepted) for s in steps]
    return ranks.index(max(ranks))


# ---- the cell ------------------------------------------------------------------------------------


def prompt_cell(pair: Pair, profile: Profile, prompt: str, **asked) -> VBox:
    """Fields, a button, and what it brings, as a widget to display; what the fields hold at first
    is as of START. `block`: whose draft is drawn, from 1; 0 takes the telling one.
    """
    fields = {  # by the names that `request` has for them
        "prompt": Textarea(placeholder="Type a prompt.", rows=3),
        "rule": Dropdown(options=LOSSLESS),
        "temperature": BoundedFloatText(min=0, max=10, step=0.1),
        "shape": Combobox(options=SHAPES),
        "new_tokens": BoundedIntText(min=1, max=256),
        "seed": BoundedIntText(min=0, max=2**31 - 1),
    }
    first = START | asked | {"prompt": prompt}
    for name, field in fields.items():
        field.value = first[name]
    strings, shown = pictures.strings_of(pair.tokenizer), HTML()

    def write(block: int, seed: int, **typed) -> None:
        """The text as it comes, whether plain decoding gives it too, and the draft of a block."""
        shown.value = ""
        steps: list[Step] = []
        try:
            wanted = request(pair, profile, **typed)
            for step in blocks(pair, wanted, seed):
                steps.append(step)
                shown.value = pictures.as_html(steps, strings)
        except ValueError as error:
            shown.value = f'<b role="alert">{html.escape(str(error))}</b>'
            return
        plain = plain_text(pair, wanted, seed)
        compared = plain_in_words(wanted["sampling"], tokens_in(steps), plain)
        number = min(block, len(steps)) - 1 if block else telling_block(steps)
        frame, words = draw_block(pair, wanted, steps, number, strings)
        display(Markdown(compared))
        display(Markdown(words))
        if steps[number].drafted:
            display(redraw.draw_styled(partial(drawings.draw_tree, frame)))

    pressed = {"manual": True, "manual_name": "Decode"}
    block = BoundedIntText(min=0, max=256)
    box = interactive(write, pressed, **fields, block=block)
    return VBox((shown, box), _dom_classes=("speclab-cell",))

"""A prompt that somebody types (notebooks 01 and 12).

The module gives the text block by block, so that a page can show it as it is written. It compares
the text with plain decoding, gives the draft of any block with both models' probabilities, and has
the cell to type in. The kernel's interrupt stops a text that takes too long.
"""

import html
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
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

from speclab.decode import LOSSLESS, Pair, Step, decode, logits_by_level, prefill, score_tree
from speclab.estimates import counted
from speclab.profiles import Profile
from speclab.prompts import Prompt, encode_prompts
from speclab.sampling import Sampling, probabilities
from speclab.shapes import NO_DRAFT, parse_shape
from speclab.show import drawings, pictures, redraw

SHAPES = ("chain:2", "chain:4", "chain:8", "tree:3,2,8", "dynamic:4,4,8", "plain")
START = {  # the first values of the cell's fields
    "rule": "greedy",
    "shape": "chain:4",
    "temperature": 0.0,
    "new_tokens": 64,
    "seed": 0,
}
Request = dict[str, Any]  # arguments of `decode` except the pair and the source of uniforms

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
    """The arguments of `decode` for a typed prompt, encoded with the profile's template, with its
    top_k and top_p.

    shape: as in `parse_shape`. Raises ValueError for an empty prompt or a prompt that is too long.
    `decode` refuses other arguments that do not fit together.
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
            f"The prompt is too long: it has {len(encoded.ids)} tokens, and {longest} fit with "
            f"{new_tokens} new tokens. Shorten the prompt."
        )
    return {
        "prompt_ids": encoded.ids,
        "rule": rule,
        "shape": drafted,
        "sampling": Sampling(temperature, profile.top_k, profile.top_p),
        "max_new_tokens": new_tokens,
    }


def blocks(pair: Pair, request: Request, seed: int) -> Iterator[Step]:
    """The text, block by block. The seed decides a sampled text. A caller that takes no further
    block stops the decoder.
    """
    return decode(pair, **request, rng=np.random.default_rng(seed))


def plain_text(pair: Pair, request: Request, seed: int) -> tuple[int, ...]:
    """The token ids of plain decoding, without a draft."""
    return tokens_in(blocks(pair, request | {"shape": NO_DRAFT}, seed))


def tokens_in(steps: Iterable[Step]) -> tuple[int, ...]:
    """All token ids of a text, the stop token included."""
    return tuple(token for step in steps for token in step.tokens)


def plain_in_words(sampling: Sampling, text: tuple[int, ...], plain: tuple[int, ...]) -> str:
    """Whether a text is the text of plain decoding; both are token ids."""
    if text == plain:
        return "Plain decoding gives the same text, token for token."
    if sampling.greedy:
        return (
            "Plain decoding gives another text, because two tokens were almost equally likely and "
            "rounding decided between them."
        )
    return "Plain decoding draws another text from the same distribution, the target's."


# ---- the draft of a block ------------------------------------------------------------------------


def block_probabilities(
    pair: Pair, request: Request, steps: Sequence[Step], number: int
) -> tuple[np.ndarray, np.ndarray, float | None]:
    """q and p of each drafted token of block `number` (from 0), float64 [N + 1] each (1 for the
    root), and p of the token that the target added (None if the text ended before).

    Each model makes one pass over the block's context and one pass over its draft (a trained head
    one per depth). At temperature 0 the probabilities are those at temperature 1.
    """
    step = steps[number]
    context = [*request["prompt_ids"], *tokens_in(steps[:number])]
    tree, tokens = step.draft.tree, step.draft.tokens
    target, draft = prefill(pair, tuple(context), step.drafted)
    of_nodes = partial(score_tree, context=context, tree=tree, tokens=tokens)
    by_level = partial(logits_by_level, context=context, tree=tree, tokens=tokens)
    q_logits = (by_level if pair.draft.by_start else of_nodes)(pair.draft, draft)
    p_rows, q_rows = (
        probabilities(logits, request["sampling"]).cpu().double()
        for logits in (of_nodes(pair.target, target), q_logits)
    )
    parents, children = tree.parent[1:], tokens[1:]
    q, p = (np.append(1.0, rows[parents, children].numpy()) for rows in (q_rows, p_rows))
    last = [0, *step.draft.path][-1]
    added = float(p_rows[last, step.tokens[-1]]) if step.kind != "cut" else None
    return q, p, added


def draw_block(
    pair: Pair, request: Request, steps: Sequence[Step], number: int, strings: Sequence[str]
) -> tuple[pd.DataFrame, str, str]:
    """The draft of block `number` (from 0) as data of a picture (`redraw.tree_frame`), its title,
    and a sentence about the token that the target added. `strings[id]`: the text of token id.
    """
    step = steps[number]
    q, p, added = block_probabilities(pair, request, steps, number)
    context = [*request["prompt_ids"], *tokens_in(steps[:number])]
    root = "".join(strings[token] for token in context[-8:])
    labels = [root, *(strings[token] for token in step.draft.tokens[1:])]
    accepted = np.isin(np.arange(len(p)), [0, *step.draft.path])
    frame = redraw.tree_frame(step.draft.tree, labels, q, p, accepted)
    drafted = counted(step.drafted, "drafted token")
    title = f"In block {number + 1} the target accepts {step.accepted} of {drafted}"
    if not step.drafted:
        title = f"In block {number + 1} nothing is drafted"
    if added is None:
        return frame, title, "The text ends there."
    token = pictures.visible(strings[step.tokens[-1]])
    return frame, title, f"The target adds the {step.kind} token {token} (p = {added:.2f})."


def telling_block(steps: Sequence[Step]) -> int:
    """The block to show. Among the blocks with an accepted and a recovered token it is the first
    with the most accepted tokens. If there is no such block, it is the first with the most accepted
    tokens.
    """
    ranks = [(s.accepted > 0 and s.kind == "recovered", s.accepted) for s in steps]
    return ranks.index(max(ranks))


def passes_in_words(tokens: int, passes: int) -> str:
    """The answer of notebook 12, for a text of this many tokens and target passes."""
    return (
        f"For the example prompt a target pass gives {tokens / passes:.2f} tokens on average. The "
        f"text has {counted(tokens, 'token')} and takes {counted(passes, 'target pass')}. Other "
        "prompts give other numbers."
    )


# ---- the cell ------------------------------------------------------------------------------------


def prompt_cell(pair: Pair, profile: Profile, prompt: str, **asked) -> VBox:
    """Fields, a button and its output, as a widget to display. The fields begin with START. The
    field `block` names the block whose draft is drawn, from 1; 0 means `telling_block`.
    """
    fields = {  # by the names of the arguments of `request`
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
        """The text as it is written, the comparison with plain decoding, and a block's draft."""
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
        frame, title, result = draw_block(pair, wanted, steps, number, strings)
        display(Markdown(compared))
        display(Markdown(f"{title}. {result}"))
        if steps[number].drafted:
            display(redraw.draw_styled(partial(drawings.draw_tree, frame)))

    pressed = {"manual": True, "manual_name": "Decode"}
    block = BoundedIntText(min=0, max=256)
    box = interactive(write, pressed, **fields, block=block)
    return VBox((shown, box), _dom_classes=("speclab-cell",))

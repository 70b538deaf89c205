"""A prompt that somebody types (notebooks 01 and 12): the text, a block at a time, so that it can
be shown as it comes; whether plain decoding of the same prompt gives it too; the draft of any block
with both models' probabilities; and the cell where one types. (What runs too long, the kernel's
interrupt stops.)
"""

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
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
from speclab.draft import PLAIN, Shape, parse_shape
from speclab.profiles import Profile
from speclab.prompts import Prompt, encode_prompts
from speclab.sampling import Sampling, probabilities
from speclab.show import figures, pictures

SHAPES = ("chain:2", "chain:4", "chain:8", "tree:3,2,8", "dynamic:4,4,8", "plain")
START = {  # what the cell's fields hold at first
    "rule": "greedy",
    "shape": "chain:4",
    "temperature": 0.0,
    "new_tokens": 64,
    "seed": 0,
}

# ---- the text ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A prompt, encoded, and how it shall go on. A sampled text belongs to its `seed`."""

    ids: tuple[int, ...]
    rule: str
    shape: Shape
    sampling: Sampling
    new_tokens: int
    seed: int = 0

    def steps(self, pair: Pair) -> Iterator[Step]:
        """The text, a block at a time. Whoever takes no more of them has stopped it."""
        rng = np.random.default_rng(self.seed)
        rules = self.rule, self.shape, self.sampling
        return decode(pair, self.ids, *rules, self.new_tokens, rng)

    def plain(self, pair: Pair) -> tuple[int, ...]:
        """The token ids of plain decoding, which drafts nothing."""
        return tokens_in(replace(self, shape=PLAIN).steps(pair))


def tokens_in(steps: Iterable[Step]) -> tuple[int, ...]:
    """All token ids of a text, the stop token included."""
    return tuple(token for step in steps for token in step.tokens)


def request(
    pair: Pair,
    profile: Profile,
    prompt: str,
    rule: str,
    shape: str,
    temperature: float,
    new_tokens: int,
    seed: int,
) -> Request:
    """What somebody asks for, encoded by the profile's template, with its top_k and top_p.

    shape: as of `parse_shape`. Raises ValueError for an empty or too long prompt; what else
    does not go together `decode` refuses.
    """
    if not prompt.strip():
        raise ValueError("The prompt is empty: type a few words.")
    drafted = parse_shape(shape)
    sampling = Sampling(temperature, profile.top_k, profile.top_p)
    room = min(pair.target.positions, pair.draft.positions) - new_tokens - drafted.room
    longest = max(1, min(profile.max_prompt_tokens, room))
    words = [Prompt("typed", "", prompt)]
    [encoded] = encode_prompts(pair.tokenizer, words, longest, profile.template)
    if encoded.cut:
        raise ValueError(
            f"The prompt is too long: {len(encoded.ids) + encoded.cut} tokens, and {longest} fit "
            f"with {new_tokens} new ones. Shorten it."
        )
    return Request(encoded.ids, rule, drafted, sampling, new_tokens, seed)


def plain_in_words(asked: Request, text: tuple[int, ...], plain: tuple[int, ...]) -> str:
    """Whether a text and plain decoding's, both as token ids, are the same."""
    if text == plain:
        return "Plain decoding gives the same text, token for token."
    if asked.sampling.greedy:
        return "Plain decoding differs from where two tokens are almost equally likely."
    return "Plain decoding draws another text from the same distribution, the target's."


# ---- the draft of a block ------------------------------------------------------------------------


@dataclass(frozen=True)
class DraftedBlock:
    """A block's draft, looked at: q and p of each drafted token behind its parents (float64 [N +
    1], the root's is 1); `own_p`: p of the token that the target put behind the accepted ones, None
    where the text ended before.
    """

    step: Step
    context: list[int]
    q: np.ndarray
    p: np.ndarray
    own_p: float | None


def drafted_block(pair: Pair, asked: Request, steps: Sequence[Step], number: int) -> DraftedBlock:
    """Both models' probabilities in block `number` (from 0), by one pass of each over its context
    and one over its draft. At temperature 0 they are those at temperature 1.
    """
    step = steps[number]
    context = [*asked.ids, *tokens_in(steps[:number])]
    tree, tokens = step.draft.tree, step.draft.tokens

    def after(model: LanguageModel) -> torch.Tensor:
        """Its distributions after the root and every drafted node, [N + 1, vocab]."""
        cache = model.cache(len(context) + step.drafted)
        if len(context) > 1:
            model.forward(torch.tensor([context[:-1]]), cache)
        logits = score_tree(model, cache, context, tree, tokens)
        return probabilities(logits, asked.sampling).cpu().double()

    def of_nodes(rows: torch.Tensor) -> np.ndarray:
        return np.append(1.0, rows[tree.parent[1:], tokens[1:]].numpy())

    p, q = after(pair.target), after(pair.draft)
    last = [0, *step.draft.path][-1]
    own = float(p[last, step.tokens[-1]]) if step.kind != "cut" else None
    return DraftedBlock(step, context, of_nodes(q), of_nodes(p), own)


def draw_block(drafted: DraftedBlock, strings: Sequence[str]) -> figures.Figure:
    """The tree as a picture; `strings[id]`: the text of token id."""
    draft = drafted.step.draft
    context = "".join(strings[token] for token in drafted.context[-8:])
    labels = [context, *(strings[token] for token in draft.tokens[1:])]
    accepted = np.isin(np.arange(len(drafted.p)), [0, *draft.path])
    return figures.draw_tree(draft.tree, labels, drafted.q, drafted.p, accepted)


def block_in_words(drafted: DraftedBlock, number: int, strings: Sequence[str]) -> str:
    """What became of a block's draft; `number` from 0, said from 1."""
    step = drafted.step
    kept = f"Block {number + 1}: {step.accepted} of {step.drafted} drafted tokens kept"
    if drafted.own_p is None:
        return f"{kept}; the text ends there."
    own = figures.visible(strings[step.tokens[-1]])
    return f"{kept}; the target added {own} (p {drafted.own_p:.2f}), {step.kind}."


def telling_block(steps: Sequence[Step]) -> int:
    """The first block, of those where the target kept something and put in its own for the rest,
    with the most kept tokens; where there is none, the first with the most kept tokens.
    """
    worth = [(s.accepted > 0 and s.kind == "recovered", s.accepted) for s in steps]
    return worth.index(max(worth))


# ---- the cell ------------------------------------------------------------------------------------


def prompt_cell(pair: Pair, profile: Profile, prompt: str, **asked) -> VBox:
    """Fields, a button, and what it brings, as a widget to display; what the fields hold at first
    is as of `request`. `block`: whose draft is drawn, from 1; 0 takes the telling one.
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

    def write(block: int, **typed) -> None:
        """The text as it comes, whether plain decoding gives it too, and the draft of a block."""
        shown.value = ""
        steps: list[Step] = []
        try:
            wanted = request(pair, profile, **typed)
            for step in wanted.steps(pair):
                steps.append(step)
                shown.value = pictures.as_html(steps, strings)
        except ValueError as error:
            shown.value = f'<b role="alert">{html.escape(str(error))}</b>'
            return
        plain = wanted.plain(pair)
        display(Markdown(plain_in_words(wanted, tokens_in(steps), plain)))
        number = min(block, len(steps)) - 1 if block else telling_block(steps)
        drafted = drafted_block(pair, wanted, steps, number)
        display(Markdown(block_in_words(drafted, number, strings)))
        if drafted.step.drafted:
            display(draw_block(drafted, strings))

    pressed = {"manual": True, "manual_name": "Decode"}
    block = BoundedIntText(min=0, max=256)
    box = interactive(write, pressed, **fields, block=block)
    return VBox((shown, box), _dom_classes=("speclab-cell",))

"""A prompt that somebody types (notebooks 01 and 12): the text, a block at a time, so that it can
be shown as it comes; plain decoding of the same prompt beside it; the draft of any block with both
models' probabilities; and the cell where one types. (What runs too long, the kernel's interrupt
stops.)
"""

import html
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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

from speclab.decode import (
    LOSSLESS,
    LanguageModel,
    Pair,
    Step,
    decode,
    prefill,
    score_tree,
    wait_for,
)
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

    @property
    def plain(self) -> "Request":
        """The same without a draft."""
        return replace(self, shape=PLAIN)


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


@dataclass(frozen=True)
class Answer:
    """A text as far as it is written: what each target pass gave, how many draft passes were made,
    and the seconds behind the prompt's own pass.
    """

    request: Request
    steps: tuple[Step, ...]
    draft_passes: int
    time_s: float

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens, the stop token included."""
        return tuple(token for step in self.steps for token in step.tokens)

    @property
    def block_efficiency(self) -> float:
        """Emitted tokens per target pass."""
        return len(self.token_ids) / len(self.steps)

    @property
    def tokens_per_second(self) -> float:
        """Behind the prompt's own pass."""
        return len(self.token_ids) / self.time_s


def as_it_comes(pair: Pair, asked: Request) -> Iterator[Answer]:
    """The text after each of its blocks. Whoever asks for no more has stopped it."""
    shape, new, rng = asked.shape, asked.new_tokens, np.random.default_rng(asked.seed)
    caches = prefill(pair, asked.ids, new + shape.room)
    made = decode(pair, asked.ids, asked.rule, shape, asked.sampling, new, rng, caches)
    wait_for(pair.target.device)  # else the first block is charged for the prompt
    text = Answer(asked, (), 0, 0.0)
    while True:
        began, before = time.perf_counter(), pair.draft.passes
        if (step := next(made, None)) is None:
            return
        spent = text.time_s + time.perf_counter() - began
        passes = text.draft_passes + pair.draft.passes - before
        text = Answer(asked, (*text.steps, step), passes, spent)
        yield text


def answer_of(pair: Pair, asked: Request) -> Answer:
    """The text at once."""
    *_, whole = as_it_comes(pair, asked)
    return whole


# ---- beside plain decoding -----------------------------------------------------------------------


def beside_plain(text: Answer, plain: Answer) -> pd.DataFrame:
    """Passes, tokens per pass and times of a text and of plain decoding: index `decoding`."""
    rows = [
        {
            "tokens": len(one.token_ids),
            "target_passes": len(one.steps),
            "draft_passes": one.draft_passes,
            "block_efficiency": one.block_efficiency,
            "time_s": one.time_s,
            "tokens_per_s": one.tokens_per_second,
        }
        for one in (text, plain)
    ]
    return pd.DataFrame(rows, pd.Index(["with the draft", "plain"], name="decoding"))


def passes_in_words(text: Answer) -> str:
    """Tokens, passes and tokens per pass, as Markdown without a link."""
    return (
        f"{len(text.token_ids)} tokens in {len(text.steps)} target passes: "
        f"**{text.block_efficiency:.2f} tokens per pass**."
    )


def speed_in_words(text: Answer, plain: Answer) -> str:
    """How fast that was against plain decoding, and whether the texts are the same."""
    ratio = text.tokens_per_second / plain.tokens_per_second
    same = "Both texts are the same, token for token."
    if text.token_ids != plain.token_ids:
        same = "The texts differ: two draws from one distribution, the target's."
        if text.request.sampling.greedy:
            same = "The texts part where two tokens were all but equally likely."
    return (
        f"{text.tokens_per_second:.1f} tokens a second, against "
        f"{plain.tokens_per_second:.1f}: **{ratio:.2f} times as fast as plain decoding**, measured "
        f"once. {same}"
    )


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


def drafted_block(pair: Pair, text: Answer, number: int) -> DraftedBlock:
    """Both models' probabilities in block `number` (from 0), by one pass of each over its context
    and one over its draft. At temperature 0 they are those at temperature 1.
    """
    step, asked = text.steps[number], text.request
    before = replace(text, steps=text.steps[:number]).token_ids
    context, tree, tokens = [*asked.ids, *before], step.draft.tree, step.draft.tokens

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


def telling_block(text: Answer) -> int:
    """The first block, of those where the target kept something and put in its own for the rest,
    with the most kept tokens; where there is none, the first with the most kept tokens.
    """
    worth = [(s.accepted > 0 and s.kind == "recovered", s.accepted) for s in text.steps]
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
        """The text as it comes, plain decoding beside it, and the draft of a block."""
        shown.value = ""
        try:
            wanted = request(pair, profile, **typed)
            for text in as_it_comes(pair, wanted):
                shown.value = pictures.as_html(text.steps, strings)
        except ValueError as error:
            shown.value = f'<b role="alert">{html.escape(str(error))}</b>'
            return
        plain = answer_of(pair, wanted.plain)
        display(Markdown(passes_in_words(text) + " " + speed_in_words(text, plain)))
        display(beside_plain(text, plain).round(2))
        number = min(block, len(text.steps)) - 1 if block else telling_block(text)
        drafted = drafted_block(pair, text, number)
        display(Markdown(block_in_words(drafted, number, strings)))
        if drafted.step.drafted:
            display(draw_block(drafted, strings))

    pressed = {"manual": True, "manual_name": "Decode"}
    block = BoundedIntText(min=0, max=256)
    box = interactive(write, pressed, **fields, block=block)
    return VBox((shown, box), _dom_classes=("speclab-cell",))

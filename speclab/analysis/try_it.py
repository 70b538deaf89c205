"""A prompt that somebody types (notebooks 01 and 12): the text, a block at a time, so that it can
be shown as it comes and stopped between two blocks; plain decoding of the same prompt beside it;
the draft of any block with both models' probabilities; and the cell where one types, in which a
click on a token shows the draft of its block.

The cell decodes in a thread. A kernel handles one message after the other: were the text written by
the button's own handler, a click on Stop would wait in the queue until nothing is left to stop.
torch lets other threads run while it computes, so the click comes through at once, and the thread
looks at it between two blocks, where nothing is half done.
"""

import html
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO

import numpy as np
import pandas as pd
import torch
from ipywidgets import (
    HTML,
    BoundedFloatText,
    BoundedIntText,
    Box,
    Button,
    Combobox,
    Dropdown,
    Image,
    Textarea,
    VBox,
    Widget,
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
ABOUT_SHAPES = (
    "<code>chain:4</code> drafts four tokens in a row, <code>tree:3,2,8</code> a tree of depth 3 "
    "with 2 branches and at most 8 tokens, <code>dynamic:4,4,8</code> the 8 likeliest of a deeper "
    "one, <code>plain</code> nothing. At temperature 0 the rule is <code>greedy</code>."
)
START = {  # what the cell's fields hold at first
    "rule": "greedy",
    "shape": "chain:4",
    "temperature": 0.0,
    "new_tokens": 64,
    "seed": 0,
}
ASK = "click on a token for the draft of its block"

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
    """Fields, buttons, and what they bring, as a widget to display; what the fields hold at first
    is as of `request`.
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
        field.description = name.replace("_", " ")
        field.style.description_width = "initial"
    press = Button(description="Decode", button_style="primary")
    stop = Button(description="Stop", disabled=True)
    status, problem, legend, result = HTML(), HTML(), HTML(), HTML()
    tokens, tree = _box("text"), VBox(_dom_classes=("speclab-scroll",))
    outcome = VBox((tokens, legend, result, tree))
    outcome.layout.display = "none"
    strings = pictures.strings_of(pair.tokenizer)
    stopping = threading.Event()
    texts: list[Answer] = []  # the one that is shown, as far as it is written

    def show_draft(number: int) -> None:
        """The draft of block `number`: its words and its tree; its tokens are marked."""
        for button in tokens.children:
            of_block = f"speclab-block-{number}" in button._dom_classes
            mark = button.add_class if of_block else button.remove_class
            mark("speclab-chosen")
        drafted = drafted_block(pair, texts[-1], number)
        words = block_in_words(drafted, number, strings)
        tree.children = [HTML(html.escape(words))]
        if drafted.step.drafted:
            tree.children += (_picture(draw_block(drafted, strings)),)

    def choose(number: int) -> None:
        """A click on a token of block `number`; nothing while the models are at work."""
        if not press.disabled:
            show_draft(number)

    def show_block(text: Answer) -> None:
        """The tokens of the last block, behind the others."""
        texts.append(text)
        shown, number = pictures.pieces(text.steps, strings), len(text.steps) - 1
        for piece in shown:
            if piece.block == number:
                tokens.children += _token(piece, text.steps[number], choose)
        legend.value = f"{pictures.legend(shown)} · {ASK}"
        outcome.layout.display = "flex"

    def until_stopped(asked: Request, what: str = "") -> Iterator[Answer]:
        """A text after each of its blocks; Stop ends it behind the block at work."""
        for text in as_it_comes(pair, asked):
            count = len(text.token_ids)
            status.value = f"{what}{count} of {asked.new_tokens} tokens"
            yield text
            if stopping.is_set():
                status.value = f"{what}stopped after {count} tokens"
                return

    def write(asked: Request) -> None:
        """The text, then plain decoding of the same prompt."""
        for text in until_stopped(asked):
            show_block(text)
        result.value = _as_html(passes_in_words(text))
        if asked.shape.size and not stopping.is_set():
            *_, plain = until_stopped(asked.plain, "plain decoding, to compare: ")
            if not stopping.is_set():
                result.value += _as_html(speed_in_words(text, plain))
                table = beside_plain(text, plain).rename_axis(None)
                result.value += table.to_html(border=0, float_format="{:.2f}".format)
        if not stopping.is_set():
            status.value = f"done: {len(text.token_ids)} tokens"

    def work() -> None:
        """What the thread does. Whatever goes wrong is said in place, and the cell can be used
        again.
        """
        try:
            typed = {name: field.value for name, field in fields.items()}
            write(request(pair, profile, **typed))
            show_draft(telling_block(texts[-1]))
        except Exception as error:
            said = html.escape(str(error) or repr(error))
            problem.value = f'<div role="alert" class="speclab-problem">{said}</div>'
        press.disabled, stop.disabled = False, True

    def pressed(_button: Button) -> None:
        """Forget the text before, write in a thread."""
        for piece in (problem, status, legend, result):
            piece.value = ""
        tokens.children, tree.children = (), ()
        outcome.layout.display = "none"
        stopping.clear()
        press.disabled, stop.disabled = True, False
        threading.Thread(target=work, daemon=True).start()

    press.on_click(pressed)
    stop.on_click(lambda _: stopping.set())
    words, *others = fields.values()
    about = HTML(f'<div class="speclab-about">{ABOUT_SHAPES}</div>')
    buttons = _box("row", press, stop, status)
    rows = [HTML(STYLE), words, _box("row", *others), about, buttons, problem, outcome]
    return VBox(rows, _dom_classes=("speclab-cell",))


def _box(kind: str, *children: Widget) -> Box:
    return Box(children, _dom_classes=(f"speclab-{kind}",))


def _token(
    piece: pictures.Piece, step: Step, choose: Callable[[int], None]
) -> tuple[Widget, ...]:
    """A token is a button, which can be clicked and reached by the keyboard everywhere and needs no
    script of ours in the page; behind one that ends a line, a break.
    """
    names = ["token", piece.kind, f"block-{piece.block}"]
    if not piece.place:
        names.append("first")
    button = Button(
        description=pictures.marked(piece.text) or "\N{NO-BREAK SPACE}",
        tooltip=pictures.hint(piece, step),
        _dom_classes=[f"speclab-{name}" for name in names],
    )
    button.on_click(lambda _: choose(piece.block))
    return (button, _box("break")) if piece.text.endswith("\n") else (button,)


def _as_html(markdown: str) -> str:
    """Sentences with ** as HTML."""
    return re.sub(r"\*\*(.*?)\*\*", r"<b>\1</b>", html.escape(markdown)) + " "


def _picture(figure: figures.Figure) -> Image:
    written = BytesIO()
    figure.savefig(written, format="png")
    width = round(110 * figure.get_size_inches()[0])
    return Image(value=written.getvalue(), format="png", width=width)


LOOK = (
    ".speclab-token.speclab-{kind} {{ background: {face}; color: #000; font-weight: {weight}; "
    "border: {border:g}px {line} {edge}; }}"
)
LOOKS = "\n".join(
    LOOK.format(kind=kind, border=max(look.width, 1), **vars(look))
    for kind, look in pictures.LOOKS.items()
)
STYLE = f"""<style>
.speclab-cell {{ max-width: 920px; }}
.speclab-cell .widget-html-content {{ line-height: 1.55; overflow-wrap: anywhere; }}
.speclab-cell .widget-textarea {{ width: calc(100% - 4px); }}
.speclab-cell .widget-textarea textarea {{ font-size: 14px; line-height: 1.5; padding: 6px 9px; }}
.speclab-row.widget-box {{ flex-flow: row wrap; align-items: center; gap: 2px 14px; }}
.speclab-row .widget-inline-hbox {{ width: auto; }}
.speclab-row .widget-text input {{ width: 7.5rem; }}
.speclab-row .widget-text input[type="number"] {{ width: 4.2rem; }}
.speclab-about {{ opacity: 0.75; font-size: 12px; }}
.speclab-problem {{ border-left: 3px solid #D55E00; padding: 4px 10px; margin: 4px 0; }}
.speclab-text.widget-box {{
  display: block; max-height: 340px; overflow-y: auto; padding: 8px 10px; margin-top: 8px;
  border: 1px solid rgba(127, 127, 127, 0.35); border-radius: 6px;
}}
.speclab-token.jupyter-button {{
  width: auto; height: auto; min-width: 0; padding: 0 2px; margin: 2px 1px; position: relative;
  font: 13px/1.6 "DejaVu Sans Mono", Menlo, Consolas, monospace;
  max-width: 100%; white-space: pre-wrap; overflow-wrap: anywhere; text-align: left;
  border-radius: 3px; box-shadow: none; overflow: visible; unicode-bidi: isolate;
}}
.speclab-token.speclab-first {{ margin-left: 13px; }}
.speclab-token.speclab-first::before {{
  content: ""; position: absolute; left: -9px; top: 1px; bottom: 1px; width: 3px;
  background: #7F7F7F;
}}
.speclab-token.speclab-chosen {{ outline: 2px solid var(--jp-brand-color1, #0072B2) !important; }}
.speclab-break.widget-box {{ display: block; height: 0; }}
.speclab-cell table {{ margin: 8px 0; border-collapse: collapse; }}
.speclab-cell :is(th, td) {{ padding: 1px 0 1px 20px; text-align: right; }}
.speclab-cell :is(th, td):first-child {{ padding-left: 0; text-align: left; }}
.speclab-cell td {{ font-variant-numeric: tabular-nums; }}
.speclab-scroll {{ overflow: auto; max-height: 520px; margin-top: 8px; }}
.speclab-scroll img {{ max-width: none; border-radius: 6px; align-self: start; }}
{LOOKS}
</style>"""

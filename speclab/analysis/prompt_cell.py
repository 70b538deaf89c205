"""The cell where you type (notebooks 01 and 12): a prompt, rule, shape, temperature and number of
new tokens. A button decodes, the tokens come block by block, and a click on one shows the draft of
its block.

Decoding runs in a thread. A kernel handles one message after the other: were the text written by
the button's own handler, a click on Stop would wait in the queue until nothing is left to stop.
torch lets other threads run while it computes, so the click comes through at once, and the thread
looks at it between two blocks, where nothing is half done.
"""

import html
import re
import threading
from collections.abc import Callable, Iterator
from io import BytesIO

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

from speclab.analysis import try_it
from speclab.analysis.try_it import Answer, Request
from speclab.decode import LOSSLESS, Pair, Step
from speclab.profiles import Profile
from speclab.show import pictures
from speclab.show.figures import Figure

SHAPES = ("chain:2", "chain:4", "chain:8", "tree:3,2,8", "dynamic:4,4,8", "plain")
ABOUT_SHAPES = (
    "<code>chain:4</code> drafts four tokens in a row, <code>tree:3,2,8</code> a tree of depth 3 "
    "with 2 branches and at most 8 tokens, <code>dynamic:4,4,8</code> the 8 likeliest of a deeper "
    "one, <code>plain</code> nothing. At temperature 0 the rule is <code>greedy</code>."
)
ASK = "click on a token for the draft of its block"
PROBLEM = '<div role="alert" class="speclab-problem">{}</div>'


def prompt_cell(
    pair: Pair,
    profile: Profile,
    prompt: str = "",
    rule: str = "greedy",
    shape: str = "chain:4",
    temperature: float = 0.0,
    new_tokens: int = 64,
    seed: int = 0,
) -> VBox:
    """Fields, buttons, and what they bring, as a widget to display."""
    fields = {  # by the names that `try_it.request` has for them
        "prompt": Textarea(prompt, placeholder="Type a prompt.", rows=3),
        "rule": Dropdown(options=LOSSLESS, value=rule),
        "temperature": BoundedFloatText(temperature, min=0, max=10, step=0.1),
        "shape": Combobox(value=shape, options=SHAPES),
        "new_tokens": BoundedIntText(new_tokens, min=1, max=256),
        "seed": BoundedIntText(seed, min=0, max=2**31 - 1),
    }
    for name, field in fields.items():
        field.description = name.replace("_", " ")
        field.style.description_width = "initial"
    decode = Button(description="Decode", button_style="primary")
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
        drafted = try_it.drafted_block(pair, texts[-1], number)
        words = try_it.block_in_words(drafted, number, strings)
        tree.children = [HTML(html.escape(words))]
        if drafted.step.drafted:
            tree.children += (_picture(try_it.draw_block(drafted, strings)),)

    def choose(number: int) -> None:
        """A click on a token of block `number`; nothing while the models are at work."""
        if not decode.disabled:
            show_draft(number)

    def show_block(text: Answer) -> None:
        """The tokens of the last block, behind the others."""
        texts.append(text)
        shown, number = pictures.pieces(text.steps, strings), len(text.blocks) - 1
        for piece in shown:
            if piece.block == number:
                tokens.children += _token(piece, text.steps[number], choose)
        legend.value = f"{pictures.legend(shown)} · {ASK}"
        outcome.layout.display = "flex"

    def until_stopped(asked: Request, what: str = "") -> Iterator[Answer]:
        """A text after each of its blocks; Stop ends it behind the block at work."""
        for text in try_it.as_it_comes(pair, asked):
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
        result.value = _as_html(try_it.passes_in_words(text))
        if asked.shape.size and not stopping.is_set():
            *_, plain = until_stopped(asked.plain, "plain decoding, to compare: ")
            if not stopping.is_set():
                result.value += _as_html(try_it.speed_in_words(text, plain))
                table = try_it.beside_plain(text, plain).rename_axis(None)
                result.value += table.to_html(border=0, float_format="{:.2f}".format)
        if not stopping.is_set():
            status.value = f"done: {len(text.token_ids)} tokens"

    def work() -> None:
        """What the thread does. Whatever goes wrong is said in place, and the cell can be used
        again.
        """
        try:
            typed = {name: field.value for name, field in fields.items()}
            write(try_it.request(pair, profile, **typed))
            show_draft(try_it.telling_block(texts[-1]))
        except Exception as error:
            said = str(error) if isinstance(error, ValueError) else repr(error)
            problem.value = PROBLEM.format(html.escape(said))
        decode.disabled, stop.disabled = False, True

    def pressed(_button: Button) -> None:
        """Forget the text before, write in a thread."""
        for piece in (problem, status, legend, result):
            piece.value = ""
        tokens.children, tree.children = (), ()
        outcome.layout.display = "none"
        stopping.clear()
        decode.disabled, stop.disabled = True, False
        threading.Thread(target=work, daemon=True).start()

    decode.on_click(pressed)
    stop.on_click(lambda _: stopping.set())
    first, *others = fields.values()
    rows = [
        HTML(STYLE),
        first,
        _box("row", *others),
        HTML(f'<div class="speclab-about">{ABOUT_SHAPES}</div>'),
        _box("row", decode, stop, status),
        problem,
        outcome,
    ]
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


def _picture(figure: Figure) -> Image:
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

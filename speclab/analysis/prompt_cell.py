"""The cell where you type (notebooks 01 and 12): a prompt, rule, shape, temperature and number of
new tokens. A button decodes, the tokens come block by block, and a click on one shows the draft of
its block.
"""

import base64
import html
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO

from ipywidgets import (
    HTML,
    BoundedFloatText,
    BoundedIntText,
    Box,
    Button,
    ButtonStyle,
    Combobox,
    Dropdown,
    IntProgress,
    Layout,
    Textarea,
    VBox,
)

from speclab.analysis import try_it
from speclab.analysis.try_it import Answer, Request
from speclab.decode import LOSSLESS, Pair
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


class PromptCell:
    """Fields, buttons, and what they bring; `box` is the widget to display.

    Decoding runs in a thread. A kernel handles one message after the other: were the text written
    by the button's own handler, a click on Stop would wait in the queue until nothing is left to
    stop. torch lets other threads run while it computes, so the click comes through at once, and
    the thread looks at `stopping` between two blocks, where nothing is half done.
    """

    def __init__(
        self,
        pair: Pair,
        profile: Profile,
        prompt: str = "",
        rule: str = "greedy",
        shape: str = "chain:4",
        temperature: float = 0.0,
        new_tokens: int = 64,
        seed: int = 0,
    ):
        self.pair, self.profile = pair, profile
        self.strings = pictures.strings_of(pair.tokenizer)
        self.text: Answer | None = None  # the one that is shown
        self.chosen: int | None = None  # the block whose draft is wanted
        self.worker: threading.Thread | None = None
        self.stopping = threading.Event()

        self.prompt = _described(
            Textarea(prompt, placeholder="Type a prompt.", rows=3), "prompt"
        )
        self.rule = _described(Dropdown(options=LOSSLESS, value=rule), "rule")
        self.shape = _described(Combobox(value=shape, options=SHAPES), "shape")
        self.temperature = _described(
            BoundedFloatText(temperature, min=0, max=10, step=0.1), "temperature"
        )
        self.new_tokens = _described(
            BoundedIntText(new_tokens, min=1, max=try_it.LONGEST), "new tokens"
        )
        self.seed = _described(BoundedIntText(seed, min=0, max=2**31 - 1), "seed")
        self.decode = Button(description="Decode", button_style="primary")
        self.stop = Button(description="Stop")
        self.progress = IntProgress(0)
        self.status, self.problem = HTML(), HTML()

        self.tokens = Box(_dom_classes=("speclab-text",))
        self.buttons: list[tuple[int, Button]] = []  # a token's, with its block
        self.legend, self.result, self.tree = HTML(), HTML(), HTML()
        self.shared = {"layout": Layout(), "style": ButtonStyle()}
        self.box = self._laid_out()
        self._forget()
        self._busy(False)

        self.decode.on_click(self._pressed)
        self.stop.on_click(lambda _: self.stopping.set())
        for field in (self.rule, self.shape, self.temperature):
            field.observe(self._settings_changed, "value")
        self._settings_changed()

    def _laid_out(self) -> VBox:
        fields = (self.rule, self.temperature, self.shape, self.new_tokens, self.seed)
        buttons = (self.decode, self.stop, self.progress, self.status)
        outcome = (self.tokens, self.legend, self.result, self.tree)
        self.outcome = VBox(outcome)
        rows = [
            HTML(STYLE),
            self.prompt,
            Box(fields, _dom_classes=("speclab-row",)),
            HTML(f'<div class="speclab-about">{ABOUT_SHAPES}</div>'),
            Box(buttons, _dom_classes=("speclab-row",)),
            self.problem,
            self.outcome,
        ]
        return VBox(rows, _dom_classes=("speclab-cell",))

    # ---- what somebody does ----------------------------------------------------------------------

    def _settings_changed(self, _change: object = None) -> None:
        """Say at once what does not go together."""
        self.seed.disabled = self.temperature.value == 0
        self.problem.value = ""
        with self._problems_shown():
            try_it.settings(
                self.profile, self.rule.value, self.shape.value, self.temperature.value
            )

    def _pressed(self, _button: Button) -> None:
        """Decode: check what was typed, then write in a thread."""
        self._forget()
        with self._problems_shown():
            asked = try_it.request(
                self.pair,
                self.profile,
                self.prompt.value,
                self.rule.value,
                self.shape.value,
                self.temperature.value,
                self.new_tokens.value,
                self.seed.value,
            )
            self.stopping.clear()
            self._busy(True)
            self.worker = threading.Thread(
                target=self._write, args=(asked,), daemon=True
            )
            self.worker.start()

    def _choose(self, number: int) -> None:
        """A click on a token of block `number`; while the models are at work, for later."""
        self.chosen = number
        if not self.decode.disabled:
            with self._problems_shown():
                self._show_draft(number)

    # ---- in the thread ---------------------------------------------------------------------------

    def _write(self, asked: Request) -> None:
        """The text, then plain decoding of the same prompt, then the draft of one block."""
        try:
            with self._problems_shown():
                self._write_both(asked)
        finally:
            self._busy(False)

    def _write_both(self, asked: Request) -> None:
        text = self._written(asked, "", self._show_block)
        self._say_result(try_it.passes_in_words(text))
        if text.ended and asked.shape.size:
            plain = self._written(asked.plain, "plain decoding, to compare: ")
            if plain.ended:
                self._compare(text, plain)
        if self.chosen is None:
            self.chosen = try_it.telling_block(text)
        self._show_draft(self.chosen)

    def _written(
        self, asked: Request, what: str, seen: Callable[[Answer], None] | None = None
    ) -> Answer:
        """A text, with its progress; cut where somebody pressed Stop."""
        text = Answer(asked, ())
        self.progress.value, self.progress.max = 0, asked.new_tokens
        for block in self._until_stopped(try_it.blocks_as_they_come(self.pair, asked)):
            text = Answer(asked, (*text.blocks, block))
            count = len(text.token_ids)
            self.progress.value = count
            self.status.value = f"{what}{count} of {asked.new_tokens} tokens"
            if seen:
                seen(text)
        if self.stopping.is_set():
            self.status.value = f"{what}stopped after {len(text.token_ids)} tokens"
            return Answer(asked, text.blocks, ended=False)
        self.progress.value = asked.new_tokens
        return text

    def _until_stopped(self, blocks: Iterator) -> Iterator:
        for block in blocks:
            yield block
            if self.stopping.is_set():
                return

    # ---- what is shown ---------------------------------------------------------------------------

    @contextmanager
    def _problems_shown(self) -> Iterator[None]:
        """Whatever goes wrong is said in place, and the cell can be used again."""
        try:
            yield
        except Exception as error:
            known = isinstance(error, ValueError)
            said = str(error) if known else f"{type(error).__name__}: {error}"
            self.problem.value = PROBLEM.format(html.escape(said))

    def _busy(self, busy: bool) -> None:
        self.decode.disabled, self.stop.disabled = busy, not busy
        self.progress.layout.display = None if busy else "none"

    def _forget(self) -> None:
        """Nothing is shown of an earlier text."""
        self.text = self.chosen = None
        self.buttons, self.tokens.children = [], ()
        for piece in (self.problem, self.status, self.legend, self.result, self.tree):
            piece.value = ""
        self.outcome.layout.display = "none"

    def _show_block(self, text: Answer) -> None:
        """The tokens of the last block, behind the others."""
        self.text, number = text, len(text.blocks) - 1
        shown = pictures.pieces(text.steps, self.strings)
        new = [piece for piece in shown if piece.block == number]
        self.tokens.children += tuple(part for p in new for part in self._token(p))
        self.legend.value = f"<div>{pictures.legend(shown)} · {ASK}</div>"
        self.outcome.layout.display = "flex"

    def _token(self, piece: pictures.Piece) -> list[Button | Box]:
        """A token is a button, which can be clicked and reached by the keyboard everywhere and
        needs no script of ours in the page; behind one that ends a line, a break.
        """
        first = () if piece.place else ("speclab-first",)
        button = Button(
            description=pictures.marked(piece.text) or "\N{NO-BREAK SPACE}",
            tooltip=pictures.hint(piece, self.text.steps[piece.block]),
            _dom_classes=("speclab-token", f"speclab-{piece.kind}", *first),
            **self.shared,
        )
        button.on_click(lambda _: self._choose(piece.block))
        self.buttons.append((piece.block, button))
        ends_line = piece.text.endswith("\n")
        return [button, Box(_dom_classes=("speclab-break",))] if ends_line else [button]

    def _say_result(self, words: str, table: str = "") -> None:
        self.result.value = f"<div>{_bold(words)}</div>{table}"

    def _compare(self, text: Answer, plain: Answer) -> None:
        passes = try_it.passes_in_words(text)
        speed = try_it.speed_in_words(text, plain)
        table = try_it.beside_plain(text, plain).rename_axis(None)
        rows = table.to_html(border=0, float_format="{:.2f}".format)
        self._say_result(f"{passes} {speed}", rows)
        self.status.value = f"done: {len(text.token_ids)} tokens"

    def _show_draft(self, number: int) -> None:
        """The draft of a block: its words and its tree; the block's tokens are marked."""
        for block, button in self.buttons:
            mark = button.add_class if block == number else button.remove_class
            mark("speclab-chosen")
        drafted = try_it.drafted_block(self.pair, self.text, number)
        words = html.escape(try_it.block_in_words(drafted, number, self.strings))
        picture = ""
        if drafted.step.drafted:
            picture = _as_picture(try_it.draw_block(drafted, self.strings), words)
        self.tree.value = f"<div>{words}</div>{picture}"


def _described(field: Dropdown, words: str) -> Dropdown:
    """A field with its name before it, as wide as the name."""
    field.description, field.style.description_width = words, "initial"
    return field


def _bold(markdown: str) -> str:
    """A sentence with ** as HTML."""
    parts = html.escape(markdown).split("**")
    return "".join(f"<b>{p}</b>" if i % 2 else p for i, p in enumerate(parts))


def _as_picture(figure: Figure, words: str) -> str:
    """A figure inside a piece of HTML; `words` (escaped) are its text for those who cannot see
    it.
    """
    written = BytesIO()
    figure.savefig(written, format="png")
    data = base64.b64encode(written.getvalue()).decode()
    width = round(110 * figure.get_size_inches()[0])
    return (
        f'<div class="speclab-scroll"><img alt="{words}" width="{width}" '
        f'src="data:image/png;base64,{data}"></div>'
    )


PROBLEM = '<div role="alert" class="speclab-problem">{}</div>'
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
.speclab-row .widget-hprogress {{ width: 12rem; }}
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
.speclab-scroll img {{ max-width: none; border-radius: 6px; }}
{LOOKS}
</style>"""

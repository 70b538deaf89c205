"""The token view: which tokens of a continuation were accepted, recovered or a bonus, as HTML and
as places for a picture.

Takes the steps of `speclab.decode` (anything with `tokens`, `accepted`, `drafted` and `kind`) and
the texts of token ids. Pure text work: knows no model, no figure; `figures.draw_tokens` draws a
`Layout`. Colours are Okabe and Ito's; border and weight say the same in grey.
"""

import html
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from speclab.decode import Step

MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "⏎"}
UNSEEN = (
    "Cc",
    "Cf",
    "Cs",
    "Zl",
    "Zp",
)  # Unicode's categories of controls, of marks that change the direction of text, of line ends


@dataclass(frozen=True)
class Look:
    """How a kind of token looks: colours of box and border, the border's line (CSS and matplotlib
    know the same names), bold or not.
    """

    face: str
    edge: str
    line: str
    width: float  # of the border, points or pixels
    weight: str


LOOKS = {
    "accepted": Look("#BFE6D9", "#00543D", "solid", 0.6, "normal"),
    "recovered": Look("#E69F00", "#000000", "solid", 1.2, "bold"),
    "bonus": Look("#56B4E9", "#000000", "dashed", 1.2, "normal"),
}


@dataclass(frozen=True)
class Piece:
    """A token of the continuation: its text as it is, its kind (a key of LOOKS), and where it
    stands: block from 0, place in it from 0.
    """

    token: int
    text: str
    kind: str
    block: int
    place: int


@dataclass(frozen=True)
class Box:
    """A piece's place in monospace cells: `row` and `column` from 0, `width` cells, its padding of
    one included; white space marked.
    """

    piece: Piece
    text: str
    row: int
    column: int
    width: int


@dataclass(frozen=True)
class Layout:
    """Boxes in reading order on lines of `columns` cells."""

    boxes: tuple[Box, ...]
    columns: int

    @property
    def rows(self) -> int:
        """Lines used."""
        return self.boxes[-1].row + 1


def marked(text: str) -> str:
    """Text with white space as signs that can be seen, and every other character of UNSEEN as
    U+FFFD.
    """
    return "".join(
        MARKS.get(c) or ("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in UNSEEN else c)
        for c in text
    )


def pieces(steps: Sequence["Step"], token_strings: Sequence[str]) -> list[Piece]:
    """Every token of the continuation in order.

    `token_strings[id]` is the text of token id, white space kept.

    The first `accepted` tokens of a step are accepted, the one behind them is the step's `kind`.
    Raises ValueError for no steps, an unknown kind, more accepted tokens than there are, and an id
    without a text.
    """
    if not steps:
        raise ValueError("steps is empty: nothing was decoded, so there is nothing to show")
    found = []
    for block, step in enumerate(steps):
        kinds = ["accepted"] * step.accepted + [step.kind] * (len(step.tokens) - step.accepted)
        if (
            len(kinds) != len(step.tokens)
            or len(step.tokens) > step.accepted + 1
            or not set(kinds) <= set(LOOKS)
        ):
            raise ValueError(
                f"step {block} is {step}: needed are `accepted` tokens and at most one behind them, recovered or bonus"
            )
        for place, (token, kind) in enumerate(zip(step.tokens, kinds, strict=True)):
            if not 0 <= token < len(token_strings):
                raise ValueError(
                    f"step {block} has token {token}; token_strings has {len(token_strings)} entries: give one text per id"
                )
            found.append(Piece(int(token), token_strings[token], kind, block, place))
    return found


def counts(shown: Sequence[Piece]) -> dict[str, int]:
    """How many tokens there are of each kind, in the order of LOOKS."""
    return {kind: sum(piece.kind == kind for piece in shown) for kind in LOOKS}


# ---- HTML ----------------------------------------------------------------------------------------


def _styled(text: str, kind: str, title: str = "") -> str:
    look = LOOKS[kind]
    style = (
        f"display:inline-block;background:{look.face};color:#000;border:{max(look.width, 1):g}px {look.line} {look.edge};"
        f"font-weight:{look.weight};border-radius:3px;padding:0 1px;margin:1px;white-space:pre;unicode-bidi:isolate"
    )
    hint = f' title="{html.escape(title)}"' if title else ""
    return f'<span style="{style}"{hint}>{html.escape(text) or "&nbsp;"}</span>'


def _token(piece: Piece, step: "Step") -> str:
    told = f"block {piece.block + 1}, {piece.kind}; {step.accepted} of {step.drafted} drafted tokens accepted; id {piece.token}"
    return _styled(marked(piece.text), piece.kind, told) + (
        "<br>" if piece.text.endswith("\n") else ""
    )


def as_html(steps: Sequence["Step"], token_strings: Sequence[str]) -> str:
    """The continuation as a fragment of HTML: a coloured box per token, a bar before each block, a
    title on every box, a legend.

    Everything is inside: no script, no style sheet, no request; texts are escaped. Errors as
    `pieces`.
    """
    shown = pieces(steps, token_strings)
    bar = '<span style="display:inline-block;border-left:3px solid #7F7F7F;height:1em;margin:0 2px 0 5px;vertical-align:middle"></span>'
    body = "".join(
        ("" if piece.place else bar) + _token(piece, steps[piece.block]) for piece in shown
    )
    legend = " ".join(f"{_styled(kind, kind)} {count}" for kind, count in counts(shown).items())
    passes = f"{len(shown)} tokens in {len(steps)} target passes ({len(shown) / len(steps):.2f} tokens per pass)"
    style = "font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:13px;line-height:1.7;overflow-wrap:anywhere"
    return f'<div style="{style}"><div>{body}</div><div style="margin-top:6px">{legend} {bar} a block begins · {passes}</div></div>'


# ---- places for a picture ------------------------------------------------------------------------


def _cells(text: str) -> int:
    """Monospace cells that a text takes: none for a combining mark, two for a wide East Asian
    character.
    """
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def _clipped(text: str, columns: int) -> str:
    while _cells(text) > columns:
        text = text[:-2] + "…"
    return text


def _places(shown: Sequence[Piece], columns: int) -> Iterator[Box]:
    row = column = 0
    for piece in shown:
        text = _clipped(marked(piece.text), columns - 1)
        width = _cells(text) + 1
        column += 1 if column and not piece.place else 0  # a gap before a block
        if column + width > columns:
            row, column = row + 1, 0
        yield Box(piece, text, row, column, width)
        row, column = (row + 1, 0) if piece.text.endswith("\n") else (row, column + width)


def layout(steps: Sequence["Step"], token_strings: Sequence[str], columns: int = 100) -> Layout:
    """Places of all tokens on lines of `columns` cells, for `figures.draw_tokens`: one cell before
    a block, a new line behind a line end and where a token does not fit; a token longer than a line
    is cut. Errors as `pieces`, and ValueError for columns below 10.
    """
    if columns < 10:
        raise ValueError(
            f"columns={columns}: allowed are 10 or more; 100 fills two columns of a paper at 8 points"
        )
    return Layout(tuple(_places(pieces(steps, token_strings), columns)), columns)

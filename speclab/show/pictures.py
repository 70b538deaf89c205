"""The token view: which tokens of a continuation were accepted, recovered or a bonus, as HTML.

Takes the steps of `speclab.decode` (anything with `tokens`, `accepted`, `drafted` and `kind`) and
the texts of token ids. Pure text work: knows no model, no figure. Colours are Okabe and
Ito's; border and weight say the same in grey.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from speclab.decode import Step

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a byte in a SentencePiece vocabulary
MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "⏎"}
# Unicode's categories of controls, of marks that change the direction of text, of line ends
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
BAR = (
    '<span style="display:inline-block;border-left:3px solid #7F7F7F;height:1em;'
    'margin:0 2px 0 5px;vertical-align:middle"></span>'
)
BOX = (
    "display:inline-block;background:{face};color:#000;border:{border:g}px {line} {edge};"
    "font-weight:{weight};border-radius:3px;padding:0 1px;margin:1px;white-space:pre;"
    "unicode-bidi:isolate"
)
PAGE = (
    "font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:13px;line-height:1.7;"
    "overflow-wrap:anywhere"
)


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


def marked(text: str) -> str:
    """Text with white space as signs that can be seen, and every other character of UNSEEN as
    U+FFFD.
    """
    shown = {c: "\N{REPLACEMENT CHARACTER}" for c in text if category(c) in UNSEEN}
    return text.translate(str.maketrans(shown | MARKS))


def pieces(steps: Sequence["Step"], token_strings: Sequence[str]) -> list[Piece]:
    """Every token of the continuation in order.

    `token_strings[id]` is the text of token id, white space kept. The first `accepted` tokens of a
    step are accepted, the one behind them is the step's `kind`.
    """
    found = []
    for block, step in enumerate(steps):
        for place, token in enumerate(step.tokens):
            kind = "accepted" if place < step.accepted else step.kind
            assert kind in LOOKS, f"step {block} is {step}"
            found.append(Piece(int(token), token_strings[token], kind, block, place))
    return found


def counts(shown: Sequence[Piece]) -> dict[str, int]:
    """How many tokens there are of each kind, in the order of LOOKS."""
    return {kind: sum(piece.kind == kind for piece in shown) for kind in LOOKS}


# ---- HTML ----------------------------------------------------------------------------------------


def _span(text: str, kind: str, title: str = "") -> str:
    look = LOOKS[kind]
    style = BOX.format(border=max(look.width, 1), **vars(look))
    hint = f' title="{html.escape(title)}"' if title else ""
    return f'<span style="{style}"{hint}>{html.escape(text) or "&nbsp;"}</span>'


def hint(piece: Piece, step: "Step") -> str:
    """What stands on a token that is pointed at; `step` is its block."""
    return (
        f"block {piece.block + 1}, {piece.kind}; "
        f"{step.accepted} of {step.drafted} drafted tokens accepted; id {piece.token}"
    )


def legend(shown: Sequence[Piece]) -> str:
    """What the boxes mean and how many there are of each kind, as a fragment of HTML."""
    kinds = " ".join(f"{_span(kind, kind)} {count}" for kind, count in counts(shown).items())
    return f"{kinds} {BAR} a block begins"


def as_html(steps: Sequence["Step"], token_strings: Sequence[str]) -> str:
    """The continuation as a fragment of HTML: a coloured box per token, a bar before each block, a
    hint on every box, a legend.

    Everything is inside: no script, no style sheet, no request; texts are escaped.
    """
    shown = pieces(steps, token_strings)
    body = ""
    for piece in shown:
        title = hint(piece, steps[piece.block])
        body += "" if piece.place else BAR
        body += _span(marked(piece.text), piece.kind, title)
        body += "<br>" if piece.text.endswith("\n") else ""
    passes = (
        f"{len(shown)} tokens in {len(steps)} target passes "
        f"({len(shown) / len(steps):.2f} tokens per pass)"
    )
    return (
        f'<div style="{PAGE}"><div>{body}</div>'
        f'<div style="margin-top:6px">{legend(shown)} · {passes}</div></div>'
    )


def strings_of(tokenizer) -> list[str]:
    """The text of every token id, white space kept: decoded, or the pieces of a SentencePiece
    vocabulary (whose decoder drops spaces) with their marks for space and bytes undone.
    """
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    marked = sum(piece.startswith("\u2581") for piece in pieces)
    if marked <= len(pieces) // 10:
        return [tokenizer.decode([token]) for token in range(len(pieces))]
    return [_BYTE.sub(_byte, piece).replace("\u2581", " ") for piece in pieces]


def _byte(match: re.Match) -> str:
    return bytes.fromhex(match[1]).decode("ascii", "replace")

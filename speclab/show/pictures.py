"""The token view: which tokens of a continuation were accepted, recovered or bonus tokens, as HTML.

It takes the steps of `speclab.decode` (anything with `tokens`, `accepted`, `drafted` and `kind`)
and the texts of token ids. It knows no model and no figure. The colours come from Okabe and Ito.
Borders and weights distinguish the same kinds in grey.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import category

from speclab.estimates import counted

if TYPE_CHECKING:
    from speclab.decode import Step

WIDEST = 14  # characters of a token in a table or a tree, at most
SPACE = "\u2581"  # in a SentencePiece vocabulary
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a byte there
MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "⏎"}
# Unicode's categories of controls, of marks that change the direction of text, and of line ends
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
BAR = (
    '<span style="display:inline-block;border-left:3px solid #7F7F7F;height:1em;'
    'margin:0 2px 0 5px;vertical-align:middle"></span>'
)
BOX = (
    "display:inline-block;background:{face};color:#000;border:{width:g}px {line} {edge};"
    "font-weight:{weight};border-radius:3px;padding:0 1px;margin:1px;white-space:pre;"
    "unicode-bidi:isolate"
)
TOKEN = re.compile(r'<span style="[^"]*" title="block \d+, (\w+);[^"]*">(.*?)</span>')
MARKDOWN_LEGEND = (
    "Accepted tokens are plain, **recovered** tokens bold, *bonus* tokens in italics. "
    "Each ┃ begins a block."
)
PAGE = (
    "font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:13px;line-height:1.7;"
    "overflow-wrap:anywhere"
)


@dataclass(frozen=True)
class Look:
    """How a kind of token looks: the colours of its box and border, the line of the border, and the
    weight of the text.
    """

    face: str
    edge: str
    line: str
    width: float  # of the border, pixels
    weight: str


LOOKS = {
    "accepted": Look("#BFE6D9", "#00543D", "solid", 1.0, "normal"),
    "recovered": Look("#E69F00", "#000000", "solid", 1.2, "bold"),
    "bonus": Look("#56B4E9", "#000000", "dashed", 1.2, "normal"),
}


def marked(text: str) -> str:
    """Text with visible signs for white space and U+FFFD for every other character of UNSEEN."""
    shown = {c: "\N{REPLACEMENT CHARACTER}" for c in text if category(c) in UNSEEN}
    return text.translate(str.maketrans(shown | MARKS))


def visible(text: str, most: int = WIDEST) -> str:
    """A token or a piece of text as a reader can see it: spaces, tabs and line ends are marked, and
    only the last `most` characters are shown.
    """
    text = marked(text)
    if len(text) <= most:
        return text
    return "…" + text[1 - most :]


# ---- HTML ----------------------------------------------------------------------------------------


def _box(text: str, kind: str, title: str = "") -> str:
    style = BOX.format(**vars(LOOKS[kind]))
    hint = f' title="{html.escape(title)}"' if title else ""
    content = html.escape(text) or "&nbsp;"
    return f'<span style="{style}"{hint}>{content}</span>'


def render_html(steps: Sequence["Step"], token_strings: Sequence[str]) -> str:
    """The continuation as a fragment of HTML: a coloured box per token, a bar before each block, a
    hint on every box, and a legend.

    `token_strings[id]` is the text of token id, with its white space. The first `accepted` tokens
    of a step are accepted, and the token after them has the step's `kind`. The fragment needs no
    script, style sheet or request. Texts are escaped.
    """
    counts = dict.fromkeys(LOOKS, 0)
    body = ""
    for block, step in enumerate(steps, 1):
        body += BAR
        accepted = f"{step.accepted} of {step.drafted} drafted tokens accepted"
        for place, token in enumerate(step.tokens):
            kind = "accepted" if place < step.accepted else step.kind
            counts[kind] += 1
            text = token_strings[token]
            hint = f"block {block}, {kind}; {accepted}; id {token}"
            body += _box(marked(text), kind, hint)
            body += "<br>" if text.endswith("\n") else ""
    kinds = [f"{_box(kind, kind)} {count}" for kind, count in counts.items()]
    legend = f"{' '.join(kinds)} {BAR} start of a block"
    tokens = sum(counts.values())
    made = f"{counted(tokens, 'token')} in {counted(len(steps), 'target pass')}"
    per_pass = f"{tokens / len(steps):.2f} tokens per target pass"
    below = f'<div style="margin-top:6px">{legend} · {made} · {per_pass}</div>'
    return f'<div style="{PAGE}"><div>{body}</div>{below}</div>'


def render_markdown(page: str) -> str:
    """What `render_html` wrote as Markdown, for sites without colours; other HTML as it stands."""
    body, mark, below = page.partition('<div style="margin-top')
    if not mark:
        return page
    blocks = [TOKEN.sub(_as_code, block) for block in body.split(BAR)]
    tokens = re.sub("<[^>]*>", "", "┃ ".join(blocks))
    _, _, numbers = below.removesuffix("</div></div>").partition(" · ")
    return f"{html.unescape(tokens)}\n\n{MARKDOWN_LEGEND} {numbers}."


def _as_code(match: re.Match) -> str:
    """A box as code, within ticks enough for those in it."""
    kind, text = match.groups()
    longest = max(re.findall("`*", text), key=len)
    ticks = f"{longest}`"
    pad = " " * ("`" in text)
    mark = {"recovered": "**", "bonus": "*"}.get(kind, "")
    return f"{mark}{ticks}{pad}{text}{pad}{ticks}{mark} "


def strings_of(tokenizer) -> list[str]:
    """The text of every token id, with its white space. The decoder of a SentencePiece vocabulary
    drops spaces, so there the pieces are used, and their marks for space and bytes are undone.
    """
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    begin_words = sum(piece.startswith(SPACE) for piece in pieces)
    if begin_words <= len(pieces) // 10:
        return [tokenizer.decode([token]) for token in range(len(pieces))]
    return [_BYTE.sub(_byte, piece).replace(SPACE, " ") for piece in pieces]


def _byte(match: re.Match) -> str:
    return bytes.fromhex(match[1]).decode("ascii", "replace")

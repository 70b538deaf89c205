"""What kind of token it is: a class for every decoded token, so that acceptance can be split by it
(notebooks 06 and 07).

Each token has exactly one class, the first that applies, in the order of `CLASSES`:

| class | the token |
| --- | --- |
| special | is the tokenizer's own mark (`<|endoftext|>`, `</s>`, `[PAD]`) |
| newline, space | is white space only, with or without a line break |
| keyword | code: is a Python keyword, whole (no part of a longer name) |
| word_inside | goes on with the word or name right before it (`ing`, code: `_id`, `2` of `x2`; prose: `'s`) |
| identifier | code: begins a name; word_start: prose: begins a word |
| number | begins with a digit, or code: goes on with a number (`e5` of `1e5`) |
| operator | begins with an operator of its domain |
| punctuation | begins with any other punctuation, bracket, quote or currency sign |
| other | is anything else: part of a character, emoji, control characters, nothing |

White space at the ends does not count, so a token is judged by its first visible character. Code
means the domain "code", all else is prose. Not known here: comments and strings in code are classed
as code, and a minus from a dash by their surroundings only.
"""

import keyword
import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import pandas as pd

CLASSES = (
    "special",
    "newline",
    "space",
    "keyword",
    "word_inside",
    "identifier",
    "word_start",
    "number",
    "operator",
    "punctuation",
    "other",
)
_SPECIAL = re.compile(
    r"<\|[^|]*\|>|</?(s|unk|pad|bos|eos|mask)>|\[/?(PAD|UNK|CLS|SEP|MASK|INST|BOS|EOS)\]",
    re.IGNORECASE,
)
_CODE_OPERATORS = frozenset("+-*/%=<>!&|^~@")
_PROSE_OPERATORS = frozenset("+=<>^\N{MIDDLE DOT}")  # and the mathematical signs outside ASCII
_FORMULA_OPERATORS = _PROSE_OPERATORS | frozenset(
    "-*/"
)  # elsewhere in prose these are dashes, bullets and 'and/or'
_FORMULA_DOMAINS = ("math", "reasoning")
_BEFORE = 32  # characters of text before a token that can matter: the name it may go on with
_APOSTROPHES = ("'", "\N{RIGHT SINGLE QUOTATION MARK}")
_CONTRACTION = re.compile(r"['\N{RIGHT SINGLE QUOTATION MARK}][A-Za-z]{1,3}")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def token_class(text: str, previous_text: str = "", next_text: str = "", domain: str = "") -> str:
    """Class (one of CLASSES) of the decoded token `text` after `previous_text` (any length; "" =
    start of a text).

    `next_text` only tells a keyword from the first piece of a longer name (" for" + "mat").
    `domain` "code" asks for code, "math" and "reasoning" take - * / for operators, any other value
    is plain prose.
    """
    core, before = text.strip(), "" if text[:1].isspace() else previous_text
    if _SPECIAL.fullmatch(core):
        return "special"
    if not core:
        return "other" if not text else "newline" if "\n" in text or "\r" in text else "space"
    if domain == "code":
        if re.match(r"\w", core):
            return _name(core, before, "" if text[-1].isspace() else next_text)
    elif _ends_in_word(before) and (_letter(core[0]) or _CONTRACTION.fullmatch(core)):
        return "word_inside"
    elif _letter(core[0]):
        return "word_start"
    return "number" if core[0].isnumeric() else _symbol(core, before, domain)


def classify(trace: pd.DataFrame, token_strings: Sequence[str]) -> pd.Series:
    """Class of every row of a trace: a categorical Series "token_class" (categories CLASSES) on the
    trace's index.

    `token_strings[id]` is the text of token id, white space kept: [tokenizer.decode([i]) for i in
    range(len(tokenizer))], or the pieces of a SentencePiece vocabulary (their U+2581 and <0x0A> are
    understood; its decode([i]) would drop the space). Rows may be in any order; the first token of
    a text is taken to follow white space. Raises ValueError for an empty trace, missing columns, an
    id without a string, and byte-level pieces that were not decoded.
    """
    missing = [name for name in ("prompt_id", "domain", "position", "token") if name not in trace]
    if missing or trace.empty:
        raise ValueError(
            f"trace lacks the columns {missing}"
            if missing
            else "trace is empty: record at least one prompt"
        )
    token, strings = trace["token"].to_numpy(), plain(token_strings)
    if token.min() < 0 or token.max() >= len(strings):
        raise ValueError(
            f"trace has token ids {token.min()} to {token.max()}, token_strings has {len(strings)} entries: give one per id"
        )
    prompt = pd.factorize(trace["prompt_id"])[0]
    order = np.lexsort((trace["position"].to_numpy(), prompt))
    domain = trace["domain"].astype(str).to_numpy()
    found = np.empty(len(trace), dtype=object)
    before = ""
    for row, following in zip(order, [*order[1:], None], strict=True):
        text, same = strings[token[row]], following is not None and prompt[following] == prompt[row]
        found[row] = token_class(
            text, before, strings[token[following]] if same else "", domain[row]
        )
        before = (before + text)[-_BEFORE:] if same else ""
    return pd.Series(
        pd.Categorical(found, categories=CLASSES), index=trace.index, name="token_class"
    )


def _name(core: str, before: str, after: str) -> str:
    """Class of a piece of code that begins with a letter, digit or underscore, by the name or
    number it goes on with, if any.
    """
    run = re.search(r"\w*\Z", before).group() or core
    if run[0].isnumeric():
        return "number"
    if run is not core:
        return "word_inside"
    return "keyword" if core in keyword.kwlist and not re.match(r"\w", after) else "identifier"


def _symbol(core: str, before: str, domain: str) -> str:
    operators = (
        _CODE_OPERATORS
        if domain == "code"
        else _FORMULA_OPERATORS
        if domain in _FORMULA_DOMAINS
        else _PROSE_OPERATORS
    )
    hyphen = core == "-" and domain != "code" and before and _letter(before[-1])
    kind = unicodedata.category(core[0])
    if (
        (core[0] in operators and not hyphen)
        or core.startswith((":=", "!=", "->"))
        or (kind == "Sm" and not core[0].isascii())
    ):
        return "operator"
    return "punctuation" if kind[0] == "P" or kind in ("Sc", "Sk", "Sm") else "other"


def _ends_in_word(before: str) -> bool:
    """True after a letter, or after a letter and an apostrophe ("don'" + "t")."""
    stem = before[:-1] if before.endswith(_APOSTROPHES) else before
    return bool(stem) and _letter(stem[-1])


def _letter(character: str) -> bool:
    return character.isalpha() or unicodedata.category(character)[0] == "M"


def plain(token_strings: Sequence[str]) -> list[str]:
    """Token strings as text; SentencePiece's marks for space and bytes undone."""
    strings = list(token_strings)
    if any(not isinstance(text, str) for text in strings):
        raise ValueError(
            "token_strings must hold one str per token id: [tokenizer.decode([i]) for i in range(len(tokenizer))]"
        )
    if (
        sum(text.startswith("\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}") for text in strings)
        > len(strings) // 10
    ):
        raise ValueError(
            "token_strings are raw byte-level pieces; decode them: [tokenizer.decode([i]) for i in range(len(tokenizer))]"
        )
    return [_BYTE.sub(_byte, text).replace("\u2581", " ") for text in strings]


def _byte(match: re.Match) -> str:
    value = int(match.group(1), 16)
    return chr(value) if value < 128 else "\N{REPLACEMENT CHARACTER}"


# One name for what begins a word, in code and in prose, so that all domains have rows of every
# kind.
KINDS = {
    "keyword": "word start",
    "identifier": "word start",
    "word_start": "word start",
    "word_inside": "word inside",
    "number": "number",
    "operator": "operator",
    "punctuation": "punctuation",
    "newline": "white space",
    "space": "white space",
    "special": "end of text",
    "other": "other",
}


def token_kinds(token_class: pd.Series) -> pd.Series:
    """`tokens.classify`'s classes as KINDS, the same in code and in prose.

    ValueError for a class that has no kind.
    """
    unknown = sorted(set(token_class.astype(str)) - set(KINDS))
    if unknown:
        raise ValueError(f"token_class holds {unknown}; known are {', '.join(KINDS)}")
    return token_class.astype(str).map(KINDS).rename("token_kind")

"""The kind of each token of a text, so that acceptance can be split by kind (notebooks 06 and 07).

Each token has exactly one kind, the first that applies, in the order of `KINDS`:

| kind | the token |
| --- | --- |
| end of text | is the tokenizer's own mark (`<|endoftext|>`, `</s>`, `[PAD]`) |
| white space | is white space only, with or without a line break |
| keyword | code: is a Python keyword, whole (no part of a longer name) |
| word inside | goes on with the word or name before it (`ing`, code: `_id`, `2` of `x2`) |
| identifier | code: begins a name |
| word start | prose: begins a word |
| number | begins with a digit, or code: goes on with a number (`e5` of `1e5`) |
| operator | begins with an operator of its domain |
| punctuation | begins with any other punctuation, bracket, quote or currency sign |
| other | is anything else: part of a character, emoji, control characters, nothing |

White space at the ends does not count, so a token is judged by its first visible character. Code
is the domain "code"; if a text begins with a fence (```), code is what is inside fences. All else
is prose. "code", "math" and "reasoning" are names of the kit's own domains. A category with another
name is plain prose, and one that somebody calls "code" is read as code. Two limits: comments and
strings in code count as code, and only its surroundings distinguish a minus from a dash.
"""

import itertools
import keyword
import re
import unicodedata
from collections.abc import Sequence

import pandas as pd

from speclab.score import require

KINDS = (
    "end of text",
    "white space",
    "keyword",
    "word inside",
    "identifier",
    "word start",
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
# elsewhere in prose these are dashes, bullets and 'and/or'
_FORMULA_OPERATORS = _PROSE_OPERATORS | frozenset("-*/")
_OPERATORS = {"code": _CODE_OPERATORS, "math": _FORMULA_OPERATORS, "reasoning": _FORMULA_OPERATORS}
FENCE = "```"  # around code in a chat model's text
BEFORE = 32  # characters of text before a token that can matter: the name it may go on with
_APOSTROPHES = ("'", "\N{RIGHT SINGLE QUOTATION MARK}")
_CONTRACTION = re.compile(r"['\N{RIGHT SINGLE QUOTATION MARK}][A-Za-z]{1,3}")


def token_kind(text: str, previous_text: str = "", next_text: str = "", domain: str = "") -> str:
    """Kind (one of KINDS) of the decoded token `text` after `previous_text` (any length; "" at the
    start of a text).

    `next_text` only distinguishes a keyword from the first piece of a longer name (" for" + "mat").
    In the domain "code" the text is code; in "math" and "reasoning" - * / are operators; in any
    other domain it is plain prose.
    """
    core = text.strip()
    before = "" if text[:1].isspace() else previous_text
    if _SPECIAL.fullmatch(core):
        return "end of text"
    if not core:
        return "white space" if text else "other"
    if domain == "code":
        if re.match(r"\w", core):
            return _name(core, before, "" if text[-1].isspace() else next_text)
    elif _ends_in_word(before) and (_letter(core[0]) or _CONTRACTION.fullmatch(core)):
        return "word inside"
    elif _letter(core[0]):
        return "word start"
    if core[0].isnumeric():
        return "number"
    return _symbol(core, before, domain)


def token_kinds(trace: pd.DataFrame, strings: Sequence[str]) -> pd.Series:
    """Kind of every row of a trace (rows in any order): a categorical Series "token_kind" with the
    categories KINDS.

    strings[id] is the text of token id (`pictures.strings_of`). The first token of a text counts as
    if it followed white space. A prompt has one text, or one per `seed`. ValueError for an empty
    trace and for missing columns.
    """
    require(trace, ["prompt_id", "domain", "position", "token"], "trace")
    text = [name for name in ("prompt_id", "seed") if name in trace]
    kinds = pd.Series(index=trace.index, dtype=object, name="token_kind")
    ordered = trace.sort_values("position")
    for _, rows in ordered.groupby(text, sort=False):
        texts = [strings[token] for token in rows["token"]]
        domains = _domains(texts, rows["domain"].iloc[0])
        before = ""
        found = []
        for text, following, domain in zip(texts, [*texts[1:], ""], domains, strict=True):
            found.append(token_kind(text, before, following, domain))
            before = (before + text)[-BEFORE:]
        kinds[rows.index] = found
    return kinds.astype(pd.CategoricalDtype(KINDS))


def _domains(texts: Sequence[str], domain: str) -> list[str]:
    """The domain of each token of a text. Code that begins with a fence is code inside fences only,
    and prose ("") outside.
    """
    whole = "".join(texts)
    if domain != "code" or not whole.lstrip().startswith(FENCE):
        return [domain] * len(texts)
    ends = itertools.accumulate(map(len, texts))
    return ["code" if whole[:end].count(FENCE) % 2 else "" for end in ends]


def _name(core: str, before: str, after: str) -> str:
    """Kind of a piece of code that begins with a letter, digit or underscore. It depends on the
    name or number that the piece continues, if any.
    """
    goes_on_with = re.search(r"\w*\Z", before).group()
    if (goes_on_with or core)[0].isnumeric():
        return "number"
    doubled = len(core) == 1 and goes_on_with == core  # `x` right after `x` counts as a new name
    if goes_on_with and not doubled:
        return "word inside"
    is_whole = not re.match(r"\w", after)
    if is_whole and keyword.iskeyword(core):
        return "keyword"
    return "identifier"


def _symbol(core: str, before: str, domain: str) -> str:
    operators = _OPERATORS.get(domain, _PROSE_OPERATORS)
    category = unicodedata.category(core[0])
    is_hyphen = core == "-" and domain != "code" and before and _letter(before[-1])
    if core[0] in operators and not is_hyphen:
        return "operator"
    if core.startswith((":=", "!=", "->")) or (category == "Sm" and not core[0].isascii()):
        return "operator"
    if category[0] == "P" or category in ("Sc", "Sk", "Sm"):
        return "punctuation"
    return "other"


def _ends_in_word(before: str) -> bool:
    """True after a letter, or after a letter and an apostrophe ("don'" + "t")."""
    stem = before[:-1] if before.endswith(_APOSTROPHES) else before
    return bool(stem) and _letter(stem[-1])


def _letter(character: str) -> bool:
    return character.isalpha() or unicodedata.category(character)[0] == "M"

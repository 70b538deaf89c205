"""Kinds of token by hand, on whole lines of code and prose, and as properties."""

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from speclab.lab.token_kinds import KINDS, token_kind, token_kinds
from speclab.show.pictures import strings_of

SHORT = {
    "K": "keyword",
    "I": "identifier",
    "i": "word inside",
    "w": "word start",
    "#": "number",
    "o": "operator",
    "p": "punctuation",
    "s": "white space",
    "S": "end of text",
    "?": "other",
}

BAR = "\N{BROKEN BAR}"  # between tokens; the kinds are listed in SHORT
MADE = [
    (
        "code",
        "def¦ add¦_two¦(¦x¦2¦,¦ _¦y¦)¦ ->¦ int¦:¦\n    ¦return¦ ¦x¦2¦ **¦ -¦1¦e¦"
        "5¦ if¦ not¦ self¦.¦is¦<|endoftext|>",
        "KIipIipIipoIpsKsIioo###KKIpKS",
    ),
    (
        "code",
        " for¦mat¦(¦for¦ in¦dex¦ in¦ range¦((¦0¦x1F¦ !=¦ None¦):\n¦\t\t¦'¦t¦'¦ %¦ 5¦%",
        "IipKIiKIp##oKpspIpo#o",
    ),
    (
        "chat",
        "I¦ don¦'t¦ think¦ing¦ for¦ a¦ well¦-¦known¦ 3¦rd¦!¦ *¦ and¦/¦or¦\n\n¦-¦"
        " $¦5¦%¦\U0001f642¦\ufffd¦¦</s>",
        "wwiwiwwwpw#wppwpwspp#p???S",
    ),
    (
        "math",
        "2¦x¦ -¦ 3¦ =¦ -¦7¦ so¦ two¦-¦step¦ \\¦frac¦{¦1¦}{¦2¦}¦ *¦ x¦^¦2¦ \u2264¦ \u2212¦\u00bd",
        "#wo#oo#wwpwpwp#p#powo#oo#",
    ),
]
LINES = [
    (domain, list(zip(tokens.split(BAR), kinds, strict=True))) for domain, tokens, kinds in MADE
]


def trace_of(lines):
    strings = sorted({text for _, line in lines for text, _ in line})
    parts = [
        pd.DataFrame(
            {
                "prompt_id": f"p{i}",
                "domain": domain,
                "position": range(len(line)),
                "token": [strings.index(text) for text, _ in line],
            }
        )
        for i, (domain, line) in enumerate(lines)
    ]
    return pd.concat(parts, ignore_index=True), strings


def test_whole_lines_by_hand():
    trace, strings = trace_of(LINES)
    found = token_kinds(trace, strings)
    wanted = [SHORT[mark] for _, line in LINES for _, mark in line]
    assert found.tolist() == wanted
    assert set(found) == set(KINDS) and tuple(found.cat.categories) == KINDS


def test_context_decides():
    for previous, text, following, domain, expected in [
        ("", "ing", "", "", "w"),
        ("think ", "ing", "", "", "w"),
        ("think", " ing", "", "", "w"),
        ("think", "ing", "", "", "i"),
        ("x", " in", "put", "code", "I"),
        ("x", " in", " put", "code", "K"),
        ("x", " in ", "put", "code", "K"),
        ("dog", "'s", "", "", "i"),
        ("dog ", "'s", "", "", "p"),
        ("dog'", "s", "", "", "i"),
        ("the '", "dog", "", "", "w"),
        ("'", "dog", "", "", "w"),
    ]:
        found = token_kind(text, previous, following, domain)
        assert found == SHORT[expected], (previous, text, following)


def test_texts_of_one_prompt_are_told_apart_by_their_seed():
    trace, strings = trace_of(LINES[:1])
    twice = pd.concat([trace.assign(seed=1), trace.assign(seed=2)], ignore_index=True)
    kinds = token_kinds(twice.sample(frac=1, random_state=0), strings)
    assert kinds.sort_index().tolist() == token_kinds(trace, strings).tolist() * 2


class Tokenizer:
    """Pieces and a decoder, as the two kinds of tokenizer have them."""

    def __init__(self, pieces, decoded):
        self.pieces, self.decoded = pieces, decoded

    def __len__(self):
        return len(self.pieces)

    def convert_ids_to_tokens(self, ids):
        return [self.pieces[i] for i in ids]

    def decode(self, ids):
        return "".join(self.decoded[i] for i in ids)


def test_strings_keep_their_spaces_in_both_kinds_of_vocabulary():
    pieces = Tokenizer(["\u2581the", "\u2581a", "<0x0A>", "ly"], ["the", "a", "\n", "ly"])
    assert strings_of(pieces) == [" the", " a", "\n", "ly"]
    bytes_ = Tokenizer(["\u0120the", "\u010a", "ly"], [" the", "\n", "ly"])
    assert strings_of(bytes_) == [" the", "\n", "ly"]


@settings(max_examples=80)
@given(
    st.text(max_size=6),
    st.text(max_size=6),
    st.text(max_size=3),
    st.sampled_from(["code", "math", "chat", ""]),
)
def test_every_string_has_one_class(text, previous, following, domain):
    found = token_kind(text, previous, following, domain)
    assert found in KINDS
    assert (found == "white space") == (text != "" and not text.strip())
    assert found not in ("keyword", "identifier") or domain == "code"
    assert found != "word start" or domain != "code"
    if not text[:1].isspace():  # a space ends the word before it
        assert token_kind(" " + text, previous, following, domain) != "word inside"


def test_what_is_said_around_fenced_code_is_prose():
    texts = "```¦python¦\n¦for¦ x¦\n¦```¦\n¦Here¦ for¦ once".split(BAR)
    rows = range(len(texts))
    fenced = pd.DataFrame({"position": rows, "token": rows})
    fenced = fenced.assign(prompt_id="a", domain="code")
    kinds = token_kinds(fenced, texts)
    assert kinds[3] == "keyword" and kinds[4] == "identifier"
    assert kinds[8:].tolist() == ["word start"] * 3, "prose after the closing fence"
    bare = token_kinds(fenced[fenced["position"] > 0], texts)
    assert bare[3] == bare[9] == "keyword", "no fence at the start: all is code"

"""Two vocabularies: which tokens target and draft have in common, and how the draft reads the rest.

Tokenizers say it without weights, so neither torch nor transformers is imported.
"""

import json
from typing import Any

BYTE_LEVEL, SENTENCE_PIECE = "byte-level BPE", "SentencePiece"
Spelling = tuple[tuple[int, ...], ...]  # the draft's ids of each of the target's tokens


def kind_of(tokenizer: Any, which: str) -> str:
    """How a tokenizer's tokens stand for bytes. ValueError for a kind that cannot be translated."""
    decoder = json.dumps(json.loads(tokenizer.backend_tokenizer.to_str())["decoder"])
    if '"ByteLevel"' in decoder:
        return BYTE_LEVEL
    if '"ByteFallback"' in decoder or '"Metaspace"' in decoder:
        return SENTENCE_PIECE
    raise ValueError(
        f"target and draft have different vocabularies, and the {which}'s tokenizer is neither "
        "byte-level BPE nor SentencePiece, so its tokens cannot be compared by their bytes; use a "
        "draft of the target's family"
    )


def tokens_of(tokenizer: Any, kind: str) -> tuple[dict[str, int], dict[str, int]]:
    """Ids by token, as the tokenizer's model writes tokens; ids of special tokens by their text."""
    ordinary: dict[str, int] = {}
    special: dict[str, int] = {}
    added = tokenizer.added_tokens_decoder
    for token, place in tokenizer.get_vocab().items():
        if place not in added:
            ordinary[token] = place
        elif added[place].special:
            special[token] = place
        else:  # an added word stands in the vocabulary as text
            ordinary.setdefault(in_bytes(token) if kind == BYTE_LEVEL else token, place)
    return ordinary, special


def in_bytes(text: str) -> str:
    """A text in the alphabet of byte-level BPE, one character per byte."""
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return "".join(part for part, _ in split.pre_tokenize_str(text))


def spelling_of(
    target: Any, draft: Any, sizes: tuple[int, int]
) -> tuple[Spelling, dict[int, int]] | None:
    """The draft's ids of each of the target's ids, and the draft's id of each common token by the
    target's id. None for one vocabulary: the tokenizers agree in all ids that both models have.
    sizes: how many ids each model has.

    Special tokens are common if their text is. What the draft cannot spell (a special token that it
    lacks, an id without a token) is spelled as its end of text. ValueError for tokenizers of two
    kinds, and without a common token.
    """
    differ = target.get_vocab().items() ^ draft.get_vocab().items()
    if all(place >= min(sizes) for _, place in differ):
        return None
    kind = kind_of(target, "target")
    other = kind_of(draft, "draft")
    if kind != other:
        raise ValueError(
            f"the target's tokenizer is {kind}, the draft's {other}: their tokens cannot be "
            "compared by their bytes; use a draft of the target's kind"
        )
    # tokens that both have; a tokenizer can name ids that its model lacks
    ordinary, special = tokens_of(target, kind)
    common = {}
    for tokens, ids in zip((ordinary, special), tokens_of(draft, kind), strict=True):
        for token, place in tokens.items():
            own = ids.get(token, sizes[1])
            if place < sizes[0] and own < sizes[1]:
                common[place] = own
    if not common:
        raise ValueError(
            "target and draft have no token in common, so the draft can propose nothing; use a "
            "draft of the target's family"
        )
    # the others are spelled with several of the draft's ids
    nothing = (draft.eos_token_id or 0,)
    spelled: list[tuple[int, ...]] = [nothing] * sizes[0]
    spell = draft.backend_tokenizer.model.tokenize
    for token, place in ordinary.items():
        if place < sizes[0]:  # bytes that the draft lacks are left out, as its tokenizer does
            pieces = [piece.id for piece in spell(token) if piece.id < sizes[1]]
            spelled[place] = tuple(pieces) or spelled[place]
    for place, own in common.items():
        spelled[place] = (own,)
    return tuple(spelled), common

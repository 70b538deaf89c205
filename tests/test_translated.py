"""A draft with another vocabulary: lossless whatever the two vocabularies share, replayed exactly,
and read as its own tokens in one pass.
"""

import itertools
from types import SimpleNamespace

import pytest
import torch
from cells import run_cells
from conftest import refuses
from test_decode import (
    DRAWS,
    REPEATING,
    SHAPES,
    assert_equal_to_plain_and_replay,
    assert_plain,
    assert_samples_the_target,
    prompt_of,
)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from toy import WORDS, toy_model
from transformers import PreTrainedTokenizerFast

from speclab.estimates import counted
from speclab.model import Pair
from speclab.models import vocabularies
from speclab.models.folder import ModelFolder
from speclab.models.translated import TranslatedModel
from speclab.models.vocabularies import spelling_of
from speclab.shapes import Shape, parse_shape
from speclab.show import pictures
from speclab.study.profiles import load_profile
from speclab.tree import chain

# the draft's ids of the target's ten words: half of them common, the others in one to three pieces
IN_PART = {2: 4, 3: 5, 5: 0, 7: 1, 8: 8}
OTHERS = {0: (2, 3), 1: (6,), 4: (2, 6, 3), 6: (7, 9), 9: (9,)}
ALL = {word: (word + 3) % WORDS for word in range(WORDS)}
ONE = {4: 6}
SHARED = {"in part": IN_PART, "all": ALL, "one": ONE}


def draft_of(common, inner=None):
    """A toy draft whose own ids of the common words are `common`."""
    inner = inner or toy_model(1, 1.0)
    spelled = [OTHERS.get(word, (3, 1)) for word in range(WORDS)]
    for word, own in common.items():
        spelled[word] = (own,)
    return TranslatedModel(inner, tuple(spelled), common)


def pair_of(common, stop=9, inner=None):
    """The toy target with such a draft."""
    return Pair(toy_model(), draft_of(common, inner), None, frozenset({stop}), {})


def logits_by_hand(draft, text):
    """The draft's logits after a text, from its own tokens alone, in one pass without a cache."""
    own = [piece for word in text for piece in draft.spelled[word]]
    inner = draft.inner
    said = inner.logits(inner.forward(torch.tensor([own]), inner.cache())[0, -1])
    logits = torch.full((WORDS,), -torch.inf)
    for word, place in zip(draft.kept.tolist(), draft.own.tolist(), strict=True):
        logits[word] = said[place]
    return logits


# ---- what the draft reads ------------------------------------------------------------------------


def test_a_text_is_read_as_its_own_tokens_whole_in_parts_and_rolled_back():
    draft, text = draft_of(IN_PART), (3, 0, 4, 4, 7, 6, 2, 1)
    wanted = [logits_by_hand(draft, text[: at + 1]) for at in range(len(text))]
    cache = draft.cache(1)
    whole = draft.logits(draft.forward(torch.tensor([text]), cache)[0])
    assert torch.equal(whole, torch.stack(wanted)) and cache.length == len(text)
    cache.crop(2)
    for at in range(2, len(text)):
        assert torch.equal(
            draft.logits(draft.forward(torch.tensor([[text[at]]]), cache)[0, 0]), wanted[at]
        )


def test_a_packed_tree_is_read_as_its_paths():
    """Nodes of several pieces too, which no draft proposes but a mask must carry."""
    draft, text = draft_of(IN_PART), (3, 0, 4)
    for words in ((2, 7, 8, 3), (4, 0, 6, 2)):
        cache = draft.cache(1)
        draft.forward(torch.tensor([text]), cache)
        sees = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]).bool()
        visible = torch.cat([torch.ones(4, 3, dtype=torch.bool), sees], 1)
        hidden = draft.forward(torch.tensor([words]), cache, torch.tensor([3, 3, 4, 4]), visible)
        paths = [(0,), (1,), (0, 2), (1, 3)]
        for row, path in enumerate(paths):
            wanted = logits_by_hand(draft, (*text, *(words[node] for node in path)))
            assert torch.equal(draft.logits(hidden[0, row]), wanted), (words, path)
        cache.keep(3, [4, 6])  # the second path
        after = draft.logits(draft.forward(torch.tensor([[2]]), cache)[0, 0])
        assert torch.equal(after, logits_by_hand(draft, (*text, words[1], words[3], 2)))


def test_a_text_longer_than_the_drafts_positions_is_refused():
    draft = draft_of(IN_PART)
    draft.positions = 5
    with refuses("6 tokens.*exceeds the 5 positions"):
        draft.forward(torch.tensor([[4, 4]]), draft.cache())


# ---- lossless ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("common", SHARED)
def test_greedy_text_is_the_targets(common, shape):
    pair, shape = pair_of(SHARED[common]), parse_shape(shape)
    if shape.tree is None or shape.tree.width.max() <= len(SHARED[common]):
        for ids in ((1, 2, 3, 4), (5,), (8, 0)):
            assert_plain(pair, prompt_of(ids), shape, 20)


@pytest.mark.parametrize("stop", [-1, 9])
def test_decoder_and_replay_agree(stop):
    assert_equal_to_plain_and_replay(pair_of(IN_PART, stop), *REPEATING)


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize(
    ("rule", "shape"),
    [("rejection", "chain:3"), ("point-mass", "tree:2,2"), ("without-replacement", "tree:2,2")],
)
@pytest.mark.parametrize("common", ["in part", "all"])
def test_sampled_text_follows_the_target(common, rule, shape, draws):
    assert_samples_the_target(pair_of(SHARED[common], stop=-1), (1, 2), rule, shape, draws)


def test_a_shifted_map_is_accepted_less_and_stays_lossless():
    """The same network with its words in another order: the right map gives the target's own
    numbers, so all is accepted.
    """
    same, right = toy_model(0, 0.0), {word: word for word in range(WORDS)}
    shifted = {word: (word + 1) % WORDS for word in range(WORDS)}
    rates = []
    for common in (right, shifted):
        made = assert_plain(pair_of(common, -1, same), prompt_of((1, 2, 3)), Shape(chain(4)), 40)
        rates.append(len(made.token_ids) / made.target_passes)
    assert rates[0] == 5 > 2 > rates[1]


# ---- two vocabularies ----------------------------------------------------------------------------


def byte_level(words, special):
    """A byte-level tokenizer whose tokens are single bytes and `words`, without merges for more."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: place for place, token in enumerate([*alphabet, *words])}
    merges = [
        (word[:at], word[at:])
        for word in words
        for at in range(1, len(word))
        if word[:at] in vocab and word[at:] in vocab
    ]
    made = Tokenizer(models.BPE(vocab, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token=special[0],
        additional_special_tokens=[*special[1:]],
    )


TARGET = byte_level(["th", "the", "Ġthe", "ing", "Ã¤", "in"], ("<end>", "<user>", "<image>"))
DRAFT = byte_level(["in", "Ġt", "th"], ("<end>", "<user>"))


def test_common_tokens_are_equal_bytes_and_special_tokens_equal_text():
    spelled, common = spelling_of(TARGET, DRAFT, (len(TARGET) + 2, len(DRAFT)))
    ids, own = TARGET.get_vocab(), DRAFT.get_vocab()
    for token in ("th", "in", "a", "Ã", "<end>", "<user>"):  # Ã: half of a character
        assert common[ids[token]] == own[token] and spelled[ids[token]] == (own[token],)
    for token, pieces in {
        "the": ("th", "e"),
        "Ġthe": ("Ġt", "h", "e"),
        "ing": ("in", "g"),
        "Ã¤": ("Ã", "¤"),  # the two bytes of ä
        "<image>": ("<end>",),  # nothing that the draft can say
    }.items():
        assert ids[token] not in common
        assert spelled[ids[token]] == tuple(own[piece] for piece in pieces), token
    assert spelled[-1] == spelled[-2] == (own["<end>"],), "ids without a token"


def sentence_piece(words):
    """A tokenizer with SentencePiece's decoder."""
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    vocab = {token: place for place, token in enumerate(names)}
    made = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<unk>")


def test_sentence_piece_goes_with_sentence_piece_alone():
    target, draft = sentence_piece(["▁", "a", "▁a", "ä"]), sentence_piece(["a", "▁"])
    spelled, common = spelling_of(target, draft, (len(target), len(draft)))
    ids, own = target.get_vocab(), draft.get_vocab()
    assert common[ids["a"]] == own["a"]
    assert spelled[ids["▁a"]] == (own["▁"], own["a"])
    assert spelled[ids["ä"]] == (own["<0xC3>"], own["<0xA4>"])
    with refuses("target's tokenizer is SentencePiece, the draft's byte"):
        spelling_of(target, DRAFT, (len(target), len(DRAFT)))


def words_of(words):
    """A byte-level tokenizer of these tokens alone."""
    vocab = {word: place for place, word in enumerate(words)}
    made = Tokenizer(models.BPE(vocab, []))
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def test_two_vocabularies_without_a_common_token_are_refused():
    other = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, "a")), eos_token="a"
    )
    with refuses("neither byte-level BPE nor SentencePiece"):
        spelling_of(TARGET, other, (4, 4))
    with refuses("no token in common"):
        spelling_of(words_of(["a", "b"]), words_of(["c"]), (4, 4))


def test_tokenizers_that_differ_only_in_ids_of_one_model_have_one_vocabulary():
    one, longer, other = words_of(["a", "b"]), words_of(["a", "b", "c"]), words_of(["b", "a"])
    assert spelling_of(one, longer, (2, 3)) is None is spelling_of(longer, one, (8, 2))
    spelled, common = spelling_of(one, other, (2, 2))
    assert spelled == ((1,), (0,)) and common == {0: 1, 1: 0}


# ---- what a reader of 01 sees --------------------------------------------------------------------

SENTENCE = "Solving 7x - 15 is unbelievably simple, größe 名前 🙂"


def reading_of(name):
    """The table of section 2 for a pair."""
    profile, shown = load_profile(name), []
    names = {"settings": profile, "sample_text": SENTENCE, "ModelFolder": ModelFolder}
    names |= {"vocabularies": vocabularies, "pictures": pictures, "counted": counted}
    names["notebook"] = SimpleNamespace(show_table=shown.append)
    return shown, run_cells("01", "both_specs", "both_specs", profile, **names)


def test_01_shows_how_a_draft_reads_the_targets_tokens():
    [table], names = reading_of("qwen-coder")
    target, own = names["tokenizer"], names["own"]
    numbers = [[int(one) for one in cell.split(", ")] for cell in table["its numbers"]]
    assert own.decode([*itertools.chain(*numbers)]) == SENTENCE
    for token, common, pieces in zip(table["number"], table["common"], numbers, strict=True):
        assert common == (target.convert_ids_to_tokens(token) in own.get_vocab())
        assert (len(pieces) == 1) == common, "here no other token is one of the draft's"
    assert {*table["common"]} == {True, False}


@pytest.mark.parametrize("name", ["tiny", "smollm-head"])
def test_01_shows_one_vocabulary_once(name):
    [table], _ = reading_of(name)
    assert [*table] == ["token", "number"]

"""A prompt that a user types: rejected input, its text and plain decoding's, the draft of a block,
and the interactive cell without a browser.
"""

import pytest
from test_decode import prompt_of
from toy import plain

from speclab.analysis import try_it
from speclab.decode import Step
from speclab.profiles import load_profile
from speclab.record import record_prompt
from speclab.sampling import Sampling
from speclab.show import pictures
from speclab.tree import chain

PROMPT = "How many apples are left if Tom has 12 apples and eats 5?"
TINY = load_profile("tiny")
SEED = 0


def request(pair, prompt=PROMPT, **changes):
    fields = try_it.START | {"new_tokens": 12, "prompt": prompt} | changes
    fields.pop("seed")
    return try_it.request(pair, TINY, **fields)


def blocks(pair, request):
    return list(try_it.blocks(pair, request, SEED))


@pytest.fixture(scope="module")
def greedy(tiny_pair):
    """A greedy text, by its blocks."""
    return blocks(tiny_pair, request(tiny_pair))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompt": " \n\t"}, "The prompt is empty"),
        ({"prompt": "apple " * 600}, r"too long: it has 1?\d+ tokens, and 512 fit with 12"),
        ({"shape": "chain"}, "shape='chain': allowed are plain, chain:GAMMA"),
        ({"rule": "rejection"}, "greedy needs temperature 0"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(tiny_pair, changes, said):
    with pytest.raises(ValueError, match=said):
        blocks(tiny_pair, request(tiny_pair, **changes))


@pytest.mark.parametrize("shape", ["tree:3,2,8", "plain"])
def test_a_greedy_text_is_the_targets(tiny_pair, shape):
    wanted = request(tiny_pair, shape=shape)
    text = try_it.tokens_in(blocks(tiny_pair, wanted))
    alone = plain(tiny_pair, prompt_of(wanted["prompt_ids"]), 12)
    assert text == alone == try_it.plain_text(tiny_pair, wanted, SEED)


def test_a_text_is_compared_with_plain_decoding():
    """The same, another draw, and a greedy text that half precision turns: three sentences."""
    texts = (Sampling(0.0), (1, 2)), (Sampling(0.0), (1, 3)), (Sampling(1.0), (1, 3))
    sentences = [try_it.plain_in_words(how, (1, 2), plain) for how, plain in texts]
    assert len({*sentences}) == 3
    assert try_it.plain_in_words(Sampling(1.0), (1, 2), (1, 2)) == sentences[0]


# ---- the draft of a block ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": "dynamic:4,4,8"},
        {"rule": "without-replacement", "temperature": 0.7, "shape": "tree:2,2"},
    ],
)
def test_every_blocks_draft_can_be_looked_at(tiny_pair, changes):
    wanted = request(tiny_pair, **changes)
    steps = blocks(tiny_pair, wanted)
    strings = [str(i) for i in range(tiny_pair.vocab)]
    for number, step in enumerate(steps):
        q, p, added = try_it.block_probabilities(tiny_pair, wanted, steps, number)
        assert len(p) == len(q) == step.drafted + 1
        assert (q > 0).all() and (p >= 0).all()
        assert (added is None) == (step.kind == "cut")
    _, title, _ = try_it.draw_block(tiny_pair, wanted, steps, number, strings)
    kept = f"In block {number + 1} the target accepts {step.accepted} of {step.drafted} drafted"
    assert title.startswith(kept)


def test_its_probabilities_are_those_that_the_recorder_finds(tiny_pair, greedy):
    """At temperature 0, along the text: the trace has p of the text's own tokens."""
    wanted = request(tiny_pair)
    prompt, text = prompt_of(wanted["prompt_ids"]), try_it.tokens_in(greedy)
    trace = record_prompt(tiny_pair, prompt, text, chain(1), Sampling()).trace
    start = 0
    for number, step in enumerate(greedy):
        q, p, added = try_it.block_probabilities(tiny_pair, wanted, greedy, number)
        end, path = start + step.accepted, list(step.draft.path)
        assert p[path] == pytest.approx(trace["p_token"][start:end], abs=1e-5)
        assert q[path] == pytest.approx(trace["q_token"][start:end], abs=1e-5)
        if added is not None:
            assert added == pytest.approx(trace["p_token"][end], abs=1e-5)
        start += len(step.tokens)


def test_the_telling_block_has_both():
    def telling(*kinds):
        steps = [Step((1,) * (kept + 1), kept, 4, kind) for kept, kind in kinds]
        return try_it.telling_block(steps)

    r, b = "recovered", "bonus"
    assert telling((0, r), (4, b), (1, r), (2, r), (2, r)) == 3
    assert telling((0, r), (3, b), (4, b)) == 2


# ---- the cell ------------------------------------------------------------------------------------


@pytest.fixture
def cell(tiny_pair):
    """The cell on the tiny pair: what is shown, and by their names fields and button."""
    shown, box = try_it.prompt_cell(tiny_pair, TINY, PROMPT, new_tokens=12).children
    return shown, {part.description: part for part in box.children[:-1]}


def test_a_press_shows_text_numbers_and_the_draft_of_a_block(cell, tiny_pair, greedy, capsys):
    shown, parts = cell
    assert not shown.value, "nothing is decoded before somebody asks"
    parts["Decode"].click()
    strings = pictures.strings_of(tiny_pair.tokenizer)
    assert shown.value == pictures.as_html(greedy, strings)
    written = capsys.readouterr().out
    assert written.count("Markdown object") == 2 and "Figure(" in written


def test_a_problem_is_said_in_place_and_the_cell_stays_alive(cell):
    shown, parts = cell
    before = parts["shape"].value
    parts["shape"].value = "<b>"
    parts["Decode"].click()
    assert "shape=&#x27;&lt;b&gt;&#x27;: allowed are" in shown.value
    parts["shape"].value = before
    parts["Decode"].click()
    assert "tokens per target pass" in shown.value and "alert" not in shown.value

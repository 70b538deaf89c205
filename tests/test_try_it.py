"""A prompt that somebody types: what is refused, the text and plain decoding's, the draft of a
block; and the cell, pressed without a browser.
"""

import pytest
from test_decode import prompt_of
from toy import plain

from speclab.studies import try_it
from speclab.decode import Step
from speclab.draft import parse_shape
from speclab.profiles import load_profile
from speclab.record import record_prompt
from speclab.sampling import Sampling
from speclab.show import pictures
from speclab.tree import chain

PROMPT = "How many apples are left if Tom has 12 apples and eats 5?"
TINY = load_profile("tiny")
WARM = {"rule": "rejection", "temperature": 1.0}


def request(pair, prompt=PROMPT, **changes):
    asked = try_it.START | {"new_tokens": 12} | changes
    return try_it.request(pair, TINY, **{"prompt": prompt} | asked)


@pytest.fixture(scope="module")
def greedy(tiny_pair):
    """A greedy text, by its blocks."""
    return list(request(tiny_pair).steps(tiny_pair))


# ---- what is asked -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompt": " \n\t"}, "The prompt is empty"),
        ({"prompt": "apple " * 600}, r"too long: 1?\d+ tokens, and 512 fit with 12"),
        ({"shape": "chain"}, "shape='chain': allowed are plain, chain:GAMMA"),
        ({"rule": "rejection"}, "greedy goes with temperature 0"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(tiny_pair, changes, said):
    with pytest.raises(ValueError, match=said):
        list(request(tiny_pair, **changes).steps(tiny_pair))


# ---- the text ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["tree:3,2,8", "plain"])
def test_a_greedy_text_is_the_targets(tiny_pair, shape):
    asked = request(tiny_pair, shape=shape)
    text = try_it.tokens_in(asked.steps(tiny_pair))
    alone = plain(tiny_pair, prompt_of(asked.ids), 12)
    assert text == alone == asked.plain(tiny_pair)


def test_a_text_is_compared_with_plain_decoding():
    """The same, another draw, and a greedy text that half precision turns: three sentences."""
    greedy, warm = (
        try_it.Request((1,), rule, parse_shape("chain:4"), Sampling(t), 64)
        for rule, t in (("greedy", 0.0), ("rejection", 1.0))
    )
    pairs = (greedy, (1, 2)), (greedy, (1, 3)), (warm, (1, 2)), (warm, (1, 3))
    same, turned, *drawn = (try_it.plain_in_words(asked, (1, 2), plain) for asked, plain in pairs)
    assert drawn[0] == same
    assert len({same, turned, drawn[1]}) == 3


def made(kinds):
    """Blocks that kept so many of four drafted tokens, each of a kind."""
    return [Step((1,) * (kept + 1), kept, 4, kind) for kept, kind in kinds]


# ---- the draft of a block ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": "dynamic:4,4,8"},
        {"rule": "without-replacement", "temperature": 0.7, "shape": "tree:2,2"},
    ],
)
def test_every_blocks_draft_can_be_looked_at(tiny_pair, changes):
    asked = request(tiny_pair, **changes)
    steps = list(asked.steps(tiny_pair))
    strings = [str(i) for i in range(tiny_pair.vocab)]
    for number, step in enumerate(steps):
        drafted = try_it.drafted_block(tiny_pair, asked, steps, number)
        assert len(drafted.p) == len(drafted.q) == step.drafted + 1
        assert (drafted.q > 0).all() and (drafted.p >= 0).all()
        assert (drafted.own_p is None) == (step.kind == "cut")
    try_it.draw_block(drafted, strings)


def test_its_probabilities_are_those_that_the_recorder_finds(tiny_pair, greedy):
    """At temperature 0, along the text: the trace has p of the text's own tokens."""
    asked = request(tiny_pair)
    prompt, text = prompt_of(asked.ids), try_it.tokens_in(greedy)
    trace = record_prompt(tiny_pair, prompt, text, chain(1), Sampling()).trace
    at = 0
    for number, step in enumerate(greedy):
        drafted = try_it.drafted_block(tiny_pair, asked, greedy, number)
        end, path = at + step.accepted, list(step.draft.path)
        assert drafted.p[path] == pytest.approx(trace["p_token"][at:end], abs=1e-5)
        assert drafted.q[path] == pytest.approx(trace["q_token"][at:end], abs=1e-5)
        if drafted.own_p is not None:
            assert drafted.own_p == pytest.approx(trace["p_token"][end], abs=1e-5)
        at += len(step.tokens)


def test_the_telling_block_has_both():
    r, b = "recovered", "bonus"
    both = made([(0, r), (4, b), (1, r), (2, r), (2, r)])
    assert try_it.telling_block(both) == 3
    assert try_it.telling_block(made([(0, r), (3, b), (4, b)])) == 2


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
    assert "tokens per pass" in shown.value and "alert" not in shown.value

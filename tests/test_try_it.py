"""A prompt that somebody types: what is refused, the text and plain decoding beside it, the draft
of a block; and the cell with its buttons, driven without a browser.
"""

import threading
from dataclasses import replace

import numpy as np
import pytest

from speclab.analysis import try_it
from speclab.analysis.prompt_cell import PromptCell
from speclab.decode import Drafted, Step
from speclab.draft import parse_shape
from speclab.profiles import load_profile
from speclab.record import generate, record_prompt
from speclab.sampling import Sampling
from speclab.tree import chain
from tests.test_decode import prompt_of

PROMPT = "How many apples are left if Tom has 12 apples and eats 5?"
TINY = load_profile("tiny")
WAIT = 120


def request(pair, prompt=PROMPT, **changes):
    return try_it.request(pair, TINY, prompt, **{"new_tokens": 20} | changes)


# ---- what is asked -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompt": ""}, "The prompt is empty"),
        ({"prompt": " \n\t"}, "The prompt is empty"),
        (
            {"prompt": "apple " * 600},
            r"too long: 1?\d+ tokens, and 512 fit with 20 new",
        ),
        ({"new_tokens": 0}, "new tokens: 0 is not from 1 to 256"),
        ({"new_tokens": 257}, "new tokens: 257 is not from 1 to 256"),
        ({"seed": -1}, "seed: -1 is below 0"),
        ({"shape": "chain"}, "shape='chain': allowed are plain, chain:GAMMA"),
        ({"shape": "chain:0"}, "gamma=0"),
        ({"shape": "tree:6,3"}, "1092 tokens a block, and 64 are the most here"),
        ({"shape": "dynamic:9,8,60"}, "72 tokens a block, and 64 are the most"),
        ({"rule": "ratio"}, "rule='ratio': lossless rules are greedy"),
        ({"rule": "rejection"}, "greedy goes with temperature 0"),
        ({"temperature": 0.5}, "greedy goes with temperature 0"),
        ({"temperature": -1.0}, "temperature 0 or 0.0001 to 10"),
        ({"temperature": float("nan")}, "temperature 0 or 0.0001 to 10"),
        (
            {"rule": "rejection", "temperature": 1.0, "shape": "tree:2,2"},
            "takes a chain of sampled tokens",
        ),
        (
            {
                "rule": "without-replacement",
                "temperature": 1.0,
                "shape": "dynamic:2,2,3",
            },
            "takes a static tree",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(tiny_pair, changes, said):
    with pytest.raises(ValueError, match=said):
        request(tiny_pair, **changes)


def test_the_longest_prompt_fits_and_one_token_more_does_not(tiny_pair):
    word = "a"
    count = next(n for n in range(1, 600) if _tokens(tiny_pair, word * n) == 512)
    assert len(request(tiny_pair, word * count).ids) == 512
    over = next(n for n in range(count, 600) if _tokens(tiny_pair, word * n) == 513)
    with pytest.raises(ValueError, match="513 tokens, and 512 fit"):
        request(tiny_pair, word * over)


def _tokens(pair, text):
    return len(pair.tokenizer(text)["input_ids"])


def test_the_models_context_bounds_a_prompt_too(random_pair, random_profile):
    """The random pair has 2,048 places or fewer; a profile that allows more does not help."""
    most = random_pair.target.network.config.max_position_embeddings
    allows = random_profile.replace(max_prompt_tokens=100_000)
    with pytest.raises(ValueError, match=f"and {most - 20 - 6} fit"):
        try_it.request(random_pair, allows, "a " * (most + 1), new_tokens=20)


# ---- the text ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["chain:4", "tree:3,2,8", "dynamic:4,4,8", "plain"])
def test_a_greedy_text_is_the_targets(tiny_pair, shape):
    asked = request(tiny_pair, shape=shape)
    text = try_it.answer_of(tiny_pair, asked)
    prompt = prompt_of(asked.ids)
    [alone] = generate(
        tiny_pair.target, [prompt], 20, tiny_pair.stop_ids, Sampling(), 0
    )
    assert text.token_ids == alone
    assert text.ended and text.time_s > 0
    assert text.block_efficiency == len(alone) / len(text.blocks)


def test_passes_of_the_draft_are_those_of_the_text(tiny_pair):
    text = try_it.answer_of(tiny_pair, request(tiny_pair))
    drafted = [block.step.drafted for block in text.blocks]
    assert [block.draft_passes for block in text.blocks] == drafted, "a chain's"
    assert try_it.answer_of(tiny_pair, request(tiny_pair).plain).draft_passes == 0


def test_a_sampled_text_belongs_to_its_seed(tiny_pair):
    warm = {"rule": "rejection", "temperature": 1.0}
    texts = [
        try_it.answer_of(tiny_pair, request(tiny_pair, seed=seed, **warm)).token_ids
        for seed in (0, 0, 1)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_a_prompt_of_one_token(tiny_pair):
    asked = replace(request(tiny_pair), ids=(5,))
    text = try_it.answer_of(tiny_pair, asked)
    drafted = try_it.drafted_block(tiny_pair, text, 0)
    assert drafted.context == [5] and np.isfinite(drafted.p).all()


# ---- words ---------------------------------------------------------------------------------------


def made(blocks, seconds, greedy=True):
    """A text of blocks of so many tokens each, in so many seconds."""
    sampling = Sampling() if greedy else Sampling(1.0)
    asked = try_it.Request((1,), "greedy", parse_shape("chain:4"), sampling, 64)
    steps, at = [], 0
    for size in blocks:
        tokens = tuple(range(at, at + size))
        steps.append(Step(tokens, size - 1, 4, "recovered"))
        at += size
    one = seconds / len(blocks)
    return try_it.Answer(asked, tuple(try_it.Block(step, 4, one) for step in steps))


def test_words_about_passes():
    assert try_it.passes_in_words(made([3, 2, 1], 1)) == (
        "6 tokens in 3 target passes: **2.00 tokens per pass**."
    )
    assert try_it.passes_in_words(made([1], 1)) == (
        "1 token in 1 target pass: **1.00 tokens per pass**."
    )


def test_words_about_speed():
    quick, slow = made([3, 3], 1.0), made([1] * 6, 3.0)
    said = try_it.speed_in_words(quick, slow)
    assert said == (
        "6.0 tokens a second, against 2.0: **3.00 times as fast as plain decoding**, measured "
        "once. Both texts are the same, token for token."
    )
    said = try_it.speed_in_words(slow, quick)
    assert "**slower than plain decoding** (0.33 of its speed)" in said


def test_words_about_the_two_texts():
    other = made([3, 3], 1.0)
    last = replace(other.blocks[-1], step=Step((3, 4, 9), 2, 4, "recovered"))
    parted = replace(other, blocks=(other.blocks[0], last))
    assert "part at token 6" in try_it.speed_in_words(parted, other)
    shorter = replace(other, blocks=other.blocks[:1])
    assert "part at token 4" in try_it.speed_in_words(shorter, other)
    warm = made([3, 3], 1.0, greedy=False)
    assert "two draws from one distribution" in try_it.speed_in_words(warm, warm)


def test_comparison_by_hand():
    table = try_it.beside_plain(made([3, 3], 2.0), made([1] * 6, 3.0))
    assert table.loc["with the draft"].tolist() == [6, 2, 8, 3.0, 2.0, 3.0]
    assert table["tokens_per_s"].tolist() == [3.0, 2.0]


# ---- the draft of a block ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "temperature", "shape"),
    [
        ("greedy", 0.0, "chain:4"),
        ("greedy", 0.0, "tree:3,2,8"),
        ("greedy", 0.0, "dynamic:4,4,8"),
        ("rejection", 0.7, "chain:4"),
        ("without-replacement", 1.0, "tree:2,2"),
    ],
)
def test_every_blocks_draft_can_be_looked_at(tiny_pair, rule, temperature, shape):
    asked = request(tiny_pair, rule=rule, temperature=temperature, shape=shape)
    text = try_it.answer_of(tiny_pair, asked)
    strings = [str(i) for i in range(tiny_pair.vocab)]
    for number, block in enumerate(text.blocks):
        step, draft = block.step, block.step.draft
        drafted = try_it.drafted_block(tiny_pair, text, number)
        assert drafted.accepted.sum() == step.accepted + 1, "and the root"
        assert draft.tokens[list(draft.path)].tolist() == list(
            step.tokens[: step.accepted]
        )
        assert len(drafted.p) == len(drafted.q) == step.drafted + 1
        assert (drafted.q > 0).all() and (drafted.p >= 0).all()
        assert (drafted.own_p is None) == (step.kind == "cut")
        words = try_it.block_in_words(drafted, number, strings)
        assert words.startswith(f"Block {number + 1}: {step.accepted} of ")
    try_it.draw_block(drafted, strings)


def test_its_probabilities_are_those_that_the_recorder_finds(tiny_pair):
    """At temperature 0, along the text: the trace has p of the text's own tokens."""
    text = try_it.answer_of(tiny_pair, request(tiny_pair))
    prompt = prompt_of(text.request.ids)
    trace = record_prompt(tiny_pair, prompt, text.token_ids, chain(1), Sampling()).trace
    at = 0
    for number, block in enumerate(text.blocks):
        drafted, step = try_it.drafted_block(tiny_pair, text, number), block.step
        end = at + step.accepted
        path = list(step.draft.path)
        assert drafted.p[path] == pytest.approx(trace["p_token"][at:end], abs=1e-5)
        assert drafted.q[path] == pytest.approx(trace["q_token"][at:end], abs=1e-5)
        if drafted.own_p is not None:
            assert drafted.own_p == pytest.approx(trace["p_token"][end], abs=1e-5)
        at += len(step.tokens)


def test_words_about_a_block():
    draft = Drafted(chain(4), np.arange(5), (1, 2))
    step = Step((1, 2, 3), 2, 4, "recovered", draft)
    ones = np.ones(5)
    drafted = try_it.DraftedBlock(step, [1], ones, ones, ones > 0, 0.25)
    strings = [" a", " b", " c", " d"]
    assert try_it.block_in_words(drafted, 0, strings) == (
        "Block 1: 2 of 4 drafted tokens kept; the target added ␣d (p 0.25) in place of what it "
        "rejected."
    )
    bonus = replace(drafted, step=replace(step, kind="bonus", drafted=1))
    assert "2 of 1 drafted token kept" in try_it.block_in_words(bonus, 0, strings)
    assert "as a bonus" in try_it.block_in_words(bonus, 0, strings)
    cut = replace(drafted, step=replace(step, kind="cut"), own_p=None)
    assert try_it.block_in_words(cut, 0, strings).endswith("kept; the text ends there.")


def test_the_telling_block_has_both():
    def of(*kinds):
        steps = [Step((1,) * (kept + 1), kept, 4, kind) for kept, kind in kinds]
        return replace(made([1], 1), blocks=[try_it.Block(s, 4, 1.0) for s in steps])

    r, b = "recovered", "bonus"
    assert try_it.telling_block(of((0, r), (4, b), (1, r), (2, r), (2, r))) == 3
    assert try_it.telling_block(of((0, r), (3, b), (4, b))) == 2
    assert try_it.telling_block(of((0, r), (0, r))) == 0


# ---- the cell ------------------------------------------------------------------------------------


@pytest.fixture
def cell(tiny_pair):
    """The cell on the tiny pair; its thread has ended when the test has."""
    made = PromptCell(tiny_pair, TINY, PROMPT, new_tokens=20)
    yield made
    made.stopping.set()
    if made.worker:
        made.worker.join(WAIT)


def press(cell):
    """Press Decode and wait for the end."""
    cell.decode.click()
    if cell.worker:
        cell.worker.join(WAIT)
        assert not cell.worker.is_alive()


def words_of(cell):
    return "".join(button.description for _, button in cell.buttons)


def marked_blocks(cell):
    return {n for n, b in cell.buttons if "speclab-chosen" in b._dom_classes}


def test_nothing_is_shown_before_the_button_is_pressed(cell):
    assert cell.outcome.layout.display == "none" and not cell.problem.value
    assert cell.stop.disabled and not cell.decode.disabled and cell.worker is None


def test_a_press_shows_text_numbers_and_the_draft_of_a_block(cell, tiny_pair):
    press(cell)
    text = try_it.answer_of(tiny_pair, request(tiny_pair))
    assert cell.text.token_ids == text.token_ids
    assert len(cell.buttons) == len(text.token_ids) and "A:␣He␣has" in words_of(cell)
    kinds = [b._dom_classes[1] for _, b in cell.buttons]
    assert kinds.count("speclab-accepted") == sum(s.accepted for s in text.steps)
    starts = [n for n, b in cell.buttons if "speclab-first" in b._dom_classes]
    assert starts == list(range(len(text.blocks)))
    assert f"<b>{text.block_efficiency:.2f} tokens per pass</b>" in cell.result.value
    assert "with the draft" in cell.result.value and "plain" in cell.result.value
    assert "the same, token for token" in cell.result.value
    assert "<img alt" in cell.tree.value and len(marked_blocks(cell)) == 1
    assert cell.outcome.layout.display == "flex" and not cell.problem.value
    assert cell.stop.disabled and not cell.decode.disabled


def test_a_click_on_a_token_shows_the_draft_of_its_block(cell):
    press(cell)
    for block in (2, 0):
        button = next(b for n, b in cell.buttons if n == block)
        button.click()
        assert f"Block {block + 1}: " in cell.tree.value
        assert marked_blocks(cell) == {block}


def test_a_plain_text_has_no_tree_and_no_comparison(cell):
    cell.shape.value = "plain"
    press(cell)
    assert "<b>1.00 tokens per pass</b>" in cell.result.value
    assert "<table" not in cell.result.value and "<img" not in cell.tree.value
    assert "0 of 0 drafted tokens kept" in cell.tree.value


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("prompt", "  ", "The prompt is empty"),
        ("prompt", "apple " * 600, "The prompt is too long"),
        ("shape", "<b>", "shape=&#x27;&lt;b&gt;&#x27;: allowed are"),
        ("temperature", 1.0, "greedy goes with temperature 0"),
        ("rule", "rejection", "greedy goes with temperature 0"),
    ],
)
def test_a_problem_is_said_in_place_and_the_cell_stays_alive(cell, field, value, said):
    before = getattr(cell, field).value
    getattr(cell, field).value = value
    press(cell)
    assert said in cell.problem.value and 'role="alert"' in cell.problem.value
    assert cell.worker is None and not cell.buttons
    getattr(cell, field).value = before
    press(cell)
    assert not cell.problem.value and cell.buttons


def test_what_does_not_go_together_is_said_before_the_button_is_pressed(cell):
    cell.temperature.value = 1.0
    assert "greedy goes with temperature 0" in cell.problem.value
    assert not cell.seed.disabled
    cell.rule.value = "rejection"
    assert not cell.problem.value
    cell.shape.value = "tree:2,2"
    assert "takes a chain" in cell.problem.value
    cell.rule.value = "point-mass"
    assert not cell.problem.value


def test_an_error_of_the_models_is_said_and_leaves_the_cell_alive(cell, monkeypatch):
    def broken(pair, asked):
        raise RuntimeError("out of <memory>")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(try_it, "blocks_as_they_come", broken)
        press(cell)
    assert "RuntimeError: out of &lt;memory&gt;" in cell.problem.value
    assert not cell.decode.disabled and cell.stop.disabled
    press(cell)
    assert cell.buttons and not cell.problem.value


class Slowly:
    """`try_it.blocks_as_they_come`, of which each block waits until it is let through."""

    def __init__(self):
        self.real, self.gate = try_it.blocks_as_they_come, threading.Semaphore(0)
        self.given = threading.Semaphore(0)

    def __call__(self, pair, asked):
        for block in self.real(pair, asked):
            self.given.release()
            assert self.gate.acquire(timeout=WAIT)
            yield block

    def let(self, count):
        """`count` blocks through, and the next one is waiting."""
        self.gate.release(count)
        for _ in range(count):
            assert self.given.acquire(timeout=WAIT)


@pytest.fixture
def slowly(monkeypatch):
    """Decoding that goes on when the test says so."""
    made = Slowly()
    monkeypatch.setattr(try_it, "blocks_as_they_come", made)
    yield made
    made.gate.release(1000)


def test_stop_ends_the_text_behind_the_block_at_work(cell, slowly):
    cell.decode.click()
    assert slowly.given.acquire(timeout=WAIT)
    slowly.let(2)
    assert cell.decode.disabled and not cell.stop.disabled
    assert len({n for n, _ in cell.buttons}) == 2, "two blocks are shown already"
    assert cell.status.value == f"{len(cell.buttons)} of 20 tokens"
    cell.stop.click()
    slowly.gate.release()
    cell.worker.join(WAIT)
    assert len(cell.text.blocks) == 3 and not cell.decode.disabled
    assert cell.status.value == f"stopped after {len(cell.buttons)} tokens"
    assert "tokens per pass" in cell.result.value and "<table" not in cell.result.value
    slowly.gate.release(1000)
    press(cell)
    assert "<table" in cell.result.value, "and the next press goes to the end"


def test_stop_before_the_first_block(cell, slowly):
    cell.decode.click()
    assert slowly.given.acquire(timeout=WAIT)
    cell.stop.click()
    slowly.gate.release()
    cell.worker.join(WAIT)
    assert len(cell.text.blocks) == 1, "the block at work is shown, and no other"


def test_stop_while_plain_decoding_leaves_the_text(cell, slowly):
    count = len(
        try_it.Answer(None, tuple(slowly.real(cell.pair, request(cell.pair)))).blocks
    )
    cell.decode.click()
    assert slowly.given.acquire(timeout=WAIT)
    slowly.let(count + 2)
    cell.stop.click()
    slowly.gate.release()
    cell.worker.join(WAIT)
    assert cell.text.ended and len(cell.text.blocks) == count
    assert cell.status.value == "plain decoding, to compare: stopped after 3 tokens"
    assert "<table" not in cell.result.value and "<img" in cell.tree.value


def test_a_click_on_a_token_while_the_models_work_is_kept_for_later(cell, slowly):
    cell.decode.click()
    assert slowly.given.acquire(timeout=WAIT)
    slowly.let(2)
    next(b for n, b in cell.buttons if n == 1).click()
    assert cell.tree.value == ""
    slowly.gate.release(1000)
    cell.worker.join(WAIT)
    assert "Block 2: " in cell.tree.value and marked_blocks(cell) == {1}


def test_texts_of_tokens_are_no_markup(cell):
    cell.strings = ["<script>alert(1)</script>\u202e"] * len(cell.strings)
    press(cell)
    assert "<script>" not in cell.tree.value + cell.legend.value + cell.result.value
    assert all("\u202e" not in button.description for _, button in cell.buttons)
    assert not cell.problem.value

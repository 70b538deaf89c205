"""Training prompts: all are different, a seed reproduces them, none is a test prompt, and their
examples are correct.
"""

import hashlib
import json

import pytest

from data.training_prompts.compose import training_prompts
from speclab.study import prompts
from speclab.study.prompts import PROJECT_PROMPTS, read_prompts


def test_a_judged_prompt_would_be_found_and_is_left_out(monkeypatch):
    chats = [p.text for p in read_prompts(PROJECT_PROMPTS) if p.domain == "chat"]
    judged = next(text for text in chats if len(text.split()) > 20)
    drawn = ["Hello <there>!", "Oh, " + judged]
    monkeypatch.setattr(
        "data.training_prompts.compose.composed", lambda domain, rng: rng.choice(drawn)
    )
    assert [p.text for p in training_prompts(1, 0, ["chat"])] == ["Hello <there>!"]
    with pytest.raises(ValueError, match="give only 1 prompts of chat; choose a smaller number"):
        training_prompts(2, 0, ["chat"])


@pytest.mark.parametrize("seed", [0, 1])
def test_the_prompts_that_are_shipped_are_those_of_their_seed(seed):
    assert prompts.training_prompts(100, seed) == training_prompts(100, seed)


def test_the_prompts_of_a_seed_are_those_that_kept_drafts_were_trained_on():
    """Trained drafts are kept by their texts: another prompt or order trains them again."""
    listed = [[p.prompt_id, p.domain, p.text] for p in prompts.training_prompts(100)]
    digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()
    assert digest[:16] == "57d94b1959ed58b3"

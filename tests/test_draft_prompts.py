"""Training prompts: all different, the same again from a seed, none of the judged ones, examples
that are true.
"""

import doctest
import hashlib
import json
import re

import pytest

from speclab.drafts.prompts import (
    ACTIONS,
    NUMBERS,
    STRINGS,
    training_prompts,
)
from speclab.prompts import (
    MATH_PROMPT,
    PROJECT_PROMPTS,
    REASONING_PROMPT,
    read_prompts,
)

PROMPTS = training_prompts(200)
WRAPPERS = [wrapper.split("{}") for wrapper in (MATH_PROMPT, REASONING_PROMPT)]


def words(text):
    """All runs of 13 words of a prompt without its wrapper, written another way than the
    generator's.
    """
    for head, tail in WRAPPERS:
        text = text.removeprefix(head).removesuffix(tail)
    found = re.findall(r"[a-z0-9]+", text.lower())
    return {" ".join(found[i : i + 13]) for i in range(max(1, len(found) - 12))}


def test_no_prompt_shares_thirteen_words_in_a_row_with_one_that_drafts_are_judged_on():
    judged = set().union(*(words(p.text) for p in read_prompts(PROJECT_PROMPTS)))
    several = PROMPTS + training_prompts(200, 1) + training_prompts(200, 7)
    assert not [p.text for p in several if words(p.text) & judged]


def test_a_judged_prompt_would_be_found_and_is_left_out(monkeypatch):
    chats = [p.text for p in read_prompts(PROJECT_PROMPTS) if p.domain == "chat"]
    judged = next(text for text in chats if len(text.split()) > 20)
    drawn = ["Hello <there>!", "Oh, " + judged]
    monkeypatch.setattr(
        "speclab.drafts.prompts.composed", lambda domain, rng: rng.choice(drawn)
    )
    assert [p.text for p in training_prompts(1, 0, ["chat"])] == ["Hello <there>!"]
    with pytest.raises(ValueError, match="give only 1 prompts of chat; ask for fewer"):
        training_prompts(2, 0, ["chat"])


def test_a_larger_set_keeps_the_prompts_and_another_seed_gives_others():
    few, more = training_prompts(20, 3), training_prompts(50, 3)
    ids = {prompt.prompt_id for prompt in few}
    assert [prompt for prompt in more if prompt.prompt_id in ids] == few
    other = {p.text for p in training_prompts(20, 4)}
    assert len(other & {p.text for p in few}) < 20


def test_the_prompts_of_a_seed_are_those_that_kept_drafts_were_trained_on():
    """Trained drafts are kept by their texts: another prompt or order trains them anew."""
    listed = [[p.prompt_id, p.domain, p.text] for p in training_prompts(100)]
    digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()
    assert digest[:16] == "57d94b1959ed58b3"


def test_the_examples_in_a_stub_are_true():
    """Every stub gets the body that its name promises, and its docstring is run as a doctest."""
    for text in [p.text for p in PROMPTS if p.domain == "code"]:
        name, arg, kind = re.match(r"def (\w+)\((\w+): list\[(\w+)\]\)", text).groups()
        table = NUMBERS if kind == "int" else STRINGS
        longest_first = sorted(table, key=len, reverse=True)
        quality = next(q for q in longest_first if re.search(rf"(^|_){q}(_|$)", name))
        first, *_, last = name.split("_")
        action = first if first in ACTIONS else last
        scope = {"keep": table[quality], "act": ACTIONS[action]}
        exec(text + f"    return act([x for x in {arg} if keep(x)])\n", scope)
        example = doctest.DocTestFinder().find(scope[name], name, globs=scope)[0]
        result = doctest.DocTestRunner(verbose=False).run(example)
        assert result.attempted and not result.failed, text

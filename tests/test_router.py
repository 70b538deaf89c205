"""Routing: removal of the format by hand, the committed router and its file, training on made-up
text.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from test_faults import turned

from data.routing import prepare
from speclab.analysis.choose import UNKNOWN
from speclab.analysis.router import load_router, weights_of
from speclab.prompts import DOMAINS, MATH_PROMPT, REASONING_PROMPT, load_prompts

PROSE = (  # of none of the four domains
    "The old lighthouse stood at the end of the pier, and gulls circled above it all afternoon.",
    "Parliament passed the fisheries bill on Tuesday after a debate that lasted into the night.",
    "Rivers carry sediment from the mountains to the sea, where it settles in fertile deltas.",
    "She folded the letter, set it beside the lamp, and listened to the rain against the shutters.",
    "The orchestra opened its season with a symphony not heard in the city for decades.",
    "Frost came early that year, and the vineyards along the valley lost half of their harvest.",
)


@pytest.fixture(scope="module")
def router():
    return load_router()


# ---- form ----------------------------------------------------------------------------------------


def test_form_is_stripped_and_what_is_left_is_the_task():
    head = "import re\n\ndef f(a: int) -> int:\n"
    one = head + '    """Add one\n    to a.\n\n    >>> f(1)\n    2\n    """\n'
    two = "def f(a):\n    '''\n    Add two.\n    Args:\n        a: a number\n    '''\n"
    for text, task in {
        MATH_PROMPT.format("Find $x$."): "Find $x$.",
        REASONING_PROMPT.format("How many?"): "How many?",
        "How are you?": "How are you?",
        one: "Add one to a.",
        two: "Add two.",
        'def f(a):\n    """Unclosed text': "Unclosed text",
        # nothing else is there to go by
        "def f(a):\n    return a": "def f(a):\n    return a",
    }.items():
        assert prepare.strip_form(text) == task


# ---- the committed router ------------------------------------------------------------------------


def test_the_router_knows_the_projects_prompts_with_and_without_form(router):
    """Never trained on.

    The card's held-out numbers are of other text; these are lower bounds, with room.
    """
    for bare, least in ((False, 0.95), (True, 0.9)):
        texts = pd.DataFrame(load_prompts("project", 50))
        if bare:
            texts["text"] = texts["text"].map(prepare.strip_form)
        found = prepare.routed(texts, router)
        assert found["correct"].mean() >= least
        assert ((found["route"] != found["domain"]) & (found["route"] != UNKNOWN)).mean() <= 0.02, (
            "unsure is better than wrong"
        )


def test_open_set_prose_is_less_sure_and_mostly_refused(router):
    texts = [prompt.text for prompt in load_prompts("project", 50)]
    sure = router.guesses([*texts, *PROSE])["confidence"]
    assert roc_auc_score(np.arange(len(sure)) < len(texts), sure) > 0.85
    routes = router.routes(PROSE)
    assert routes.count(UNKNOWN) >= 4
    assert UNKNOWN not in replace(router, threshold=0.0).routes(PROSE)
    assert set(replace(router, threshold=1.01).routes(PROSE)) == {UNKNOWN}


# ---- training on made-up text --------------------------------------------------------------------

WORDS = {
    "code": "list sort parse index",
    "math": "equation root slope angle",
    "reasoning": "apples each bought left",
    "chat": "weekend film hello coffee",
}


def made_up(n=40, seed=0):
    rng, rows = np.random.default_rng(seed), []
    for domain, words in WORDS.items():
        for i in range(n):
            text = " ".join(rng.choice(words.split(), 4))
            rows.append((f"{domain}-{i}", domain, f"{domain}: {text}", text, i % 5 == 0))
    return pd.DataFrame(rows, columns=["prompt_id", "domain", "text", "bare", "held_out"])


def test_training_learns_and_a_saved_router_is_the_same(tmp_path):
    router = prepare.train(made_up())
    texts = [*WORDS.values(), "coffee film"]
    assert replace(router, threshold=0.0).routes(texts) == [*DOMAINS, "chat"]
    assert 0 < router.threshold < 1
    prepare.save(router, tmp_path)
    read = load_router(tmp_path)
    expected = router.model.predict_proba(texts)
    assert read.model.predict_proba(texts) == pytest.approx(expected, abs=5e-3)
    assert (read.threshold, read.card["C"]) == (router.threshold, router.card["C"])


def test_leaks_are_left_out_and_prose_is_never_trained_on(monkeypatch):
    leaked = "one two three four five six seven eight nine ten eleven twelve thirteen"
    sources = [(domain, 40, own["text"].tolist()) for domain, own in made_up().groupby("domain")]
    sources += [("math", 40, [f"{leaked} apples"]), (UNKNOWN, 40, PROSE)]
    monkeypatch.setattr(prepare, "_sources", lambda folder: iter(sources))
    benchmark = prepare.ngrams(leaked)
    monkeypatch.setattr(prepare.corpus, "benchmark_ngrams", lambda folder: benchmark)
    rows = prepare.training_prompts("")
    assert not rows["text"].str.contains("thirteen").any()
    is_prose = rows["domain"] == UNKNOWN
    assert is_prose.sum() == len(PROSE)
    other = rows.assign(text=rows["text"].mask(is_prose, "x"))
    weights = [weights_of(prepare.train(part).model)["weight"] for part in (rows, other)]
    assert np.array_equal(*weights)


# ---- bad input -----------------------------------------------------------------------------------


def test_a_damaged_router_is_refused(router, tmp_path):
    prepare.save(router, tmp_path)
    path = tmp_path / "router.safetensors"
    path.write_bytes(turned(path.read_bytes(), -10))
    with pytest.raises(ValueError, match="is damaged: its SHA-256"):
        load_router(tmp_path)


def test_a_card_names_the_domains_of_its_weights(router, tmp_path):
    assert router.domains == DOMAINS
    prepare.save(replace(router, domains=DOMAINS[:3]), tmp_path)
    with pytest.raises(ValueError, match="has 4 domains, and its card.json names 3"):
        load_router(tmp_path)

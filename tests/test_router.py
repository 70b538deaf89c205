"""Routing: form by hand, the committed router and its file, training on made-up text."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from test_faults import turned

from data.routing import prepare
from speclab.analysis import router as routers
from speclab.analysis.choose import UNKNOWN
from speclab.analysis.router import load_router
from speclab.prompts import DOMAINS, MATH_PROMPT, REASONING_PROMPT, load_prompts


def write_training_text(folder, leaked, chats, reasoning, math, code, mbpp, prose):
    """A DATA folder of these rows; the test split of GSM8K holds `leaked`."""
    train = {
        "gsm8k_main_train.jsonl.gz": reasoning,
        "hendrycks_math_all_train.jsonl.gz": math,
        "code_python_permissive.jsonl.gz": code,
        "mbpp_train_val_prompt.jsonl": mbpp,
        "prose_technical.jsonl.gz": prose,
    }
    humaneval = "openai/openai_humaneval/openai_humaneval/test.jsonl.gz"
    mirror = {
        "openai/gsm8k/main/test.jsonl.gz": [{"question": leaked}],
        humaneval: [{"prompt": "def nothing(): pass"}],
        "EleutherAI/hendrycks_math/algebra/test.jsonl.gz": [{"problem": "x"}],
    }
    for part, files in (("train", train | chats), ("hub_mirror", mirror)):
        for name, rows in files.items():
            write(folder / part / name, rows)
    return folder


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt") as out:
        out.write("\n".join(map(json.dumps, rows)))


PROSE = (  # of none of the four domains
    "The old lighthouse stood at the end of the pier, and gulls circled above it all afternoon.",
    "Parliament passed the fisheries bill on Tuesday after a debate that lasted into the night.",
    "Rivers carry sediment from the mountains to the sea, where it settles in fertile deltas.",
    "She folded the letter, set it beside the lamp, and listened to the rain against the shutters.",
    "The orchestra opened its season with a symphony not heard in the city for decades.",
    "Frost came early that year, and the vineyards along the valley lost half of their harvest.",
    "Medieval guilds regulated prices, trained apprentices and guarded their secrets.",
    "The museum's new wing houses ceramics, textiles and a collection of maritime paintings.",
    "Glaciers in the northern ranges have retreated steadily since the middle of the last century.",
    "He had never liked the harbour at dawn, with its smell of tar and its silent, waiting boats.",
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
    assert routes.count(UNKNOWN) >= 7
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
    # as scikit-learn's is, column by column
    turned = replace(router, weight=np.asfortranarray(router.weight))
    prepare.save(turned, tmp_path)
    read = load_router(tmp_path)
    expected = router.probabilities(texts)
    assert read.probabilities(texts) == pytest.approx(expected, abs=5e-3)
    assert (read.threshold, read.card["C"]) == (router.threshold, router.card["C"])


def test_probabilities_are_those_of_the_scikit_learn_pipeline():
    rows = made_up()
    hashed = HashingVectorizer(
        token_pattern=routers.TOKENS,
        ngram_range=(1, 2),
        n_features=routers.FEATURES,
        alternate_sign=False,
        norm=None,
    )
    fitted = LogisticRegression(C=10.0, class_weight="balanced", max_iter=2000)
    pipeline = make_pipeline(hashed, TfidfTransformer(), fitted)
    kept = rows[~rows["held_out"]]
    both = pd.concat([kept.assign(text=kept[name]) for name in ("text", "bare")])
    both = both.drop_duplicates(["prompt_id", "text"])
    pipeline.fit(both["text"], pd.Categorical(both["domain"], DOMAINS).codes)
    assert prepare.train(rows, cs=(10.0,)).probabilities(PROSE) == pytest.approx(
        pipeline.predict_proba(PROSE), abs=1e-6
    )


@pytest.fixture
def data(tmp_path):
    """A folder laid out like the training text, made up."""
    leaked = "one two three four five six seven eight nine ten eleven twelve thirteen apples"
    numbers = range(60)
    asked = [leaked, *(f"Ann has {n} apples. How many are left?" for n in numbers)]
    answered = [{"question": q, "answer": "1\n#### 1"} for q in asked]
    problems = [f"Find the root of $x = {n}$." for n in numbers]
    solved = [{"problem": problem, "solution": "s"} for problem in problems]
    source = (
        "def f{n}(start):\n"
        '    """Sort the list and parse its index {n} with all of the care that it needs."""\n'
        "    value = start\n    value += 40 * start\n    return value\n"
    )
    sources = [{"content": source.format(n=n)} for n in numbers]
    chats = {}
    for name in prepare.CHATS:
        words = [f"Hello {name} {n}, how is the film?" for n in range(30)]
        turns = [[{"role": "user", "content": said}] for said in words]
        chats[name] = [{"messages": turn} for turn in turns]
    quiet = "The harbour was quiet that morning, and boat {} lay waiting there for the tide to "
    harbour = quiet + "turn."
    prose = [*map(harbour.format, range(9)), "this = code; " * 20]
    prose = [{"text": "\n\n".join(prose)}]
    rows = answered, solved, sources, [], prose
    return write_training_text(tmp_path, leaked, chats, *rows)


def test_training_text_is_read_leaks_left_out_and_prose_never_trained_on(data):
    found = prepare.training_prompts(data)
    counts = found["domain"].value_counts().to_dict()
    assert counts == {"chat": 120, "code": 60, "math": 60, "reasoning": 60, UNKNOWN: 9}
    assert not found["text"].str.contains("thirteen").any(), "it leaked"
    for domain, words in (("reasoning", "Ann has"), ("code", "Sort the list")):
        own = found.loc[found["domain"] == domain, "bare"]
        assert own.str.startswith(words).all()
    router = prepare.train(found)
    changed = found.assign(text=found["text"].where(found["domain"] != UNKNOWN, "x"))
    assert (prepare.train(changed).weight == router.weight).all()


# ---- bad input -----------------------------------------------------------------------------------


def test_a_damaged_router_is_refused(router, tmp_path):
    prepare.save(router, tmp_path)
    path = tmp_path / "router.safetensors"
    path.write_bytes(turned(path.read_bytes(), -10))
    with pytest.raises(ValueError, match="is damaged: its SHA-256"):
        load_router(tmp_path)

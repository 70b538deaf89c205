"""Training text of the pairs: shingles, rows of test splits that are left out, formats."""

import gzip
import json

import pytest

from data import corpus
from data.corpus import documents
from data.routing.prepare import CHATS
from speclab.drafts.prompts import ngrams


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


@pytest.fixture
def data(tmp_path):
    """A small DATA folder: two rows a source, one of them in a test split."""
    leaked = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    fresh = "how many apples are left when nine of the twenty are eaten by the two of us today"
    function = 'def add(a, b):\n    """Add two numbers and return their sum, whatever they are, as '
    function += 'long as they can be added."""\n'
    function += "    total = a + b\n    return total  # the sum of both numbers\n"
    leaks = {"problem": "Say, " + leaked, "solution": "x"}
    answer = "20 - 9 = <<20-9=11>>11 apples.\n#### 11"
    tabs = "def add(a, b):\r\n\treturn a + b"
    turns = [("user", "Hi there"), ("assistant", "Hello!")]
    chat = [{"messages": [{"role": role, "content": said} for role, said in turns]}]
    return write_training_text(
        tmp_path,
        leaked,
        dict.fromkeys(CHATS, chat),
        reasoning=[{"question": fresh, "answer": answer}],
        math=[leaks, {"problem": fresh, "solution": "It is 11."}],
        code=[{"content": function}],
        mbpp=[{"text": "Write a function to add.", "code": tabs}],
        prose=[{"path": "a", "text": "Some prose."}],
    )


def test_shingles_ignore_case_and_punctuation():
    words = "a b c d e f g h i j k l m n"
    assert (
        len(ngrams(words)) == 2
        and ngrams(words.upper().replace(" ", ", ")) == ngrams(words)
        and ngrams("two words") == {("two", "words")}
    )


def test_rows_that_share_a_shingle_with_a_test_split_are_left_out(data):
    assert [d.domain for d in documents(data)].count("math") == 1


def test_documents_stand_in_the_formats_the_kit_prompts_with(data, monkeypatch):
    monkeypatch.setattr(corpus, "TEMPLATE_SHARE", 0)
    plain = {d.domain: d.text for d in reversed(documents(data))}
    assert plain["reasoning"].startswith(
        "Show your reasoning step by step.\nQ: how many"
    ) and plain["reasoning"].endswith("\nA: 20 - 9 = 11 apples.\nThe answer is 11.")
    assert plain["math"].endswith("\nSolution: It is 11.") and plain["code"].startswith(
        'def add(a, b):\n    """Add two'
    )
    assert "\r" not in "".join(plain.values()) and "<<" not in plain["reasoning"]
    monkeypatch.setattr(corpus, "TEMPLATE_SHARE", 1)
    chat = {d.domain: d.text for d in documents(data)}
    assert chat["math"].startswith("<|user|>Solve as a math") and chat["math"].endswith(
        "</s><|assistant|>It is 11.</s>"
    )


def test_without_the_test_splits_nothing_is_trained_on(data):
    (data / "hub_mirror/openai/gsm8k/main/test.jsonl.gz").unlink()
    with pytest.raises(
        FileNotFoundError, match="DATA must hold train/ and hub_mirror/"
    ):
        documents(data)

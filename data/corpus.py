"""Training text of the tiny pair: permissively licensed documents of four domains and prose,
without overlap with test sets.

It reads the JSON-lines files in DATA/train (see the pair's data card) and the benchmark test splits
in DATA/hub_mirror. It yields documents in exactly the prompt formats that the kit studies. It uses
no model.
"""

import ast
import gzip
import hashlib
import random
import re
import textwrap
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.training_prompts.compose import ngrams
from speclab.plain import parse_json
from speclab.study.prompts import MATH_PROMPT, REASONING_PROMPT

TEST_SPLITS = {
    "openai/gsm8k/main/test.jsonl.gz": "question",
    "openai/openai_humaneval/openai_humaneval/test.jsonl.gz": "prompt",
    "EleutherAI/hendrycks_math/*/test.jsonl.gz": "problem",
}
PROSE_CHARS = 2000  # characters of general English from each file
TEMPLATE_SHARE = 0.3  # share of documents written as chat turns instead of plain text
USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "</s>"


@dataclass(frozen=True)
class Document:
    """A training document: its domain, its text, and whether it is held out for evaluation."""

    domain: str
    text: str
    held_out: bool


def read_jsonl(path: Path, /, **fields: type) -> Iterator[dict]:
    """Rows of a .jsonl or .jsonl.gz file. Each must have `fields` of these types.

    Raises ValueError (with file and row) for other rows and for a truncated file, and
    FileNotFoundError.
    """
    opener, number = gzip.open if path.suffix == ".gz" else open, 0
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                number += 1
                row = parse_json(line)
                _check_fields(row, fields)
                yield row
    except FileNotFoundError:
        raise
    except (ValueError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path}, row {number}: {error}; fetch the training text again") from None


def _check_fields(row: Any, fields: dict[str, type]) -> None:
    for name, kind in fields.items():
        if not isinstance(row, dict) or not isinstance(row.get(name), kind):
            raise ValueError(f"{name} is missing, or not a {kind.__name__}")


def benchmark_ngrams(mirror: Path) -> set[tuple[str, ...]]:
    """The 13-word sequences of every benchmark test row on which the kit may be tested. Raises
    FileNotFoundError if a split is missing.
    """
    seen: set[tuple[str, ...]] = set()
    for pattern, field in TEST_SPLITS.items():
        files = sorted(mirror.glob(pattern))
        if not files:
            raise FileNotFoundError(
                f"no test split {pattern} in {mirror}: DATA must contain train/ and hub_mirror/"
            )
        for row in (row for file in files for row in read_jsonl(file, **{field: str})):
            seen |= ngrams(row[field])
    return seen


def _turns(messages: list[tuple[str, str]], as_chat: bool) -> str:
    if not as_chat:
        return "\n".join(content for _, content in messages)
    return "".join(
        f"{USER if role == 'user' else ASSISTANT}{content}{END}" for role, content in messages
    )


def math_rows(folder: Path) -> Iterator[tuple[str, str, str]]:
    """MATH's training problems: key, prompt, solution."""
    for row in read_jsonl(folder / "hendrycks_math_all_train.jsonl.gz", problem=str, solution=str):
        yield row["problem"], MATH_PROMPT.format(row["problem"]), row["solution"]


def reasoning_rows(folder: Path) -> Iterator[tuple[str, str, str]]:
    """GSM8K's training problems: key, prompt, steps and answer."""
    for row in read_jsonl(folder / "gsm8k_main_train.jsonl.gz", question=str, answer=str):
        steps, answer = re.sub(r"<<.*?>>", "", row["answer"]).split("\n#### ")
        yield (
            row["question"],
            REASONING_PROMPT.format(row["question"]),
            f"{steps}\nThe answer is {answer}.",
        )


def _functions(source: str) -> Iterator[tuple[str, str]]:
    """Every documented function of a file as (signature with docstring, body)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) and len(node.body) > 1:
            own = "\n".join(source.split("\n")[node.lineno - 1 : node.end_lineno])
            lines = textwrap.dedent(own).split("\n")
            split = node.body[0].end_lineno - node.lineno + 1
            head, body = "\n".join(lines[:split]), "\n".join(lines[split:])
            if 150 < len(head) + len(body) < 2500 and len(body) > 40:
                yield head + "\n", body


def code_rows(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Documented functions: key, head with its docstring, body."""
    for row in read_jsonl(folder / "code_python_permissive.jsonl.gz", content=str):
        for head, body in _functions(row["content"]):
            yield head, head, body
    for row in read_jsonl(folder / "mbpp_train_val_prompt.jsonl", text=str, code=str):
        code = row["code"].replace("\r", "").replace("\t", "    ")
        head, colon, body = code.partition(":\n") if code.startswith("def ") else ("", "", "")
        if colon:
            indent = re.match(r" *", body).group() or "    "
            yield row["text"], f'{head}:\n{indent}"""{row["text"]}"""\n', body


def _chat(folder: Path, rng: random.Random) -> Iterator[list[tuple[str, str]]]:
    shares = {
        "chat_justeval_outputs.jsonl.gz": 1,
        "chat_oasst_en100.jsonl.gz": 1,
        "chat_taskmaster4_quarter.jsonl": 1,
        "chat_topical_chat.jsonl.gz": 0.5,
    }
    for name, share in shares.items():
        for row in read_jsonl(folder / name, messages=list):
            if rng.random() < share:
                yield [(m["role"], m["content"].strip()) for m in row["messages"]]


def _held_out(key: str) -> bool:
    """True for two documents in a hundred, chosen by their content, so that the split does not
    depend on the order.
    """
    return int(hashlib.sha256(key.encode()).hexdigest(), 16) % 50 == 0


def documents(data: Path, seed: int = 0) -> list[Document]:
    """All training documents in DATA, as plain text or as chat turns. Rows that overlap with a test
    split are excluded.
    """
    rng, folder = random.Random(seed), Path(data) / "train"
    seen = benchmark_ngrams(Path(data) / "hub_mirror")
    found = []
    for domain, source in (("math", math_rows), ("reasoning", reasoning_rows), ("code", code_rows)):
        for key, prompt, answer in source(folder):
            if not ngrams(key) & seen:
                text = prompt + ("" if prompt.endswith("\n") else " ") + answer
                if rng.random() < TEMPLATE_SHARE:
                    turns = [("user", prompt), ("assistant", answer.strip("\n"))]
                    text = _turns(turns, True)
                found.append(Document(domain, text, _held_out(key)))
    for messages in _chat(folder, rng):
        if not ngrams(messages[0][1]) & seen:
            text = _turns(messages, rng.random() < 0.5)
            found.append(Document("chat", text, _held_out(messages[0][1])))
    for row in read_jsonl(folder / "prose_technical.jsonl.gz", text=str, path=str):
        found.append(Document("prose", row["text"][:PROSE_CHARS], _held_out(row["path"])))
    return found

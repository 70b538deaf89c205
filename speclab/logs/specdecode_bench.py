"""The traces of SpecDecode-Bench (arXiv:2601.11580), fetched, checked and read as `starts`:
Llama-3.1-8B-Instruct on an H100, four prompt sets, and what the target accepts of EAGLE and of an
n-gram lookup.

Each line of a file is a prompt: `id`, `prompt_token_ids`, `generated_token_ids`, and `acc_len` for
each proposer. Entry i of `acc_len` is the number of tokens that a block emits if its first token is
token i of the text: accepted + 1, up to 21. Their paper and code do not say the following:

* Entry 0 is 1 in every list, because the first token comes with the prompt's own pass and no block
  begins there. So starts begin at position 1. (Their simulator takes entry i for the block that
  begins at i + 1, and so counts that 1 as a block whose whole draft is rejected.)
* EAGLE's list comes from **another run**. In 677 of 1,410 prompts it is shorter or longer than the
  text, by up to 7,615 tokens, so the two greedy texts diverged at a position that is not recorded.
  The n-gram list always fits the text. Hence a proposer's text ends where its own list ends, and
  two proposers can be compared position by position only in prompts with `same_length`. (That is
  necessary for equal texts, and no proof: texts that were stopped at 8,192 tokens have the same
  length anyway.)
* Ten prompts **ran away**: their text or EAGLE's list was stopped at 8,192 tokens (TEXT_LIMIT). The
  five of instructcoder hold 28 % of EAGLE's tokens there, and lower its mean over tokens.
* An entry may count tokens after the text's end: `accepted` is cut there.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from speclab.logs.fetch import Published, decompressed
from speclab.place import folder_of
from speclab.plain import STRICT, checked, parse_json
from speclab.study.runs import PLACE, RUNS, written

COMMIT = "2fdccbd61b62be339fb85fd90caf43f5e8392aa6"
REPOSITORY = "SpecDecode-Bench/simulator"
EAGLE, LOOKUP = "eagle", "n-gram"
LIMIT = 20  # drafted tokens that were tried per block
TEXT_LIMIT = 8192  # tokens at which texts were stopped
READS = ["data/runs/specdecode-bench", "$SPECLAB_RUNS/specdecode-bench"]
SOURCE = Published(
    f"https://raw.githubusercontent.com/{REPOSITORY}/{COMMIT}/data/llama3.1-8B/",
    {
        "combined_gsm8k.jsonl": "6d6bfb9993f4a540ff73cb330bdd4348dc3e6a6c77a111d3e35b96caf83c26f1",
        "combined_cnn.jsonl": "90637b8cb4c410b3de6cdf2898ef1104d41b0fc5bff5e8692a6bfc836101899b",
        "combined_instructcoder.jsonl": (
            "cfd6b6b156076a704f7aff0f060920bb7c5e4c3b80ef32efbe858b62d85cd910"
        ),
        "combined_sharegpt.jsonl": (
            "748df2df1e89b986009aad1a42fee604b1fe57558b690aef0da7d9c7b9708b75"
        ),
    },
    lambda content: hashlib.sha256(content).hexdigest(),
    RUNS / "specdecode-bench",
    "python -m speclab fetch specdecode-bench",
    PLACE,
)
ABSENT = (
    f"The traces of SpecDecode-Bench are not here: run `{SOURCE.again}` to fetch them (9 MB). "
    f"Without a network, set {PLACE} to a folder that holds {', '.join(SOURCE.files)} (or these "
    "files as .gz)."
)


@dataclass(frozen=True)
class SpecDecodeBench:
    """`starts` of both proposers (proposer "eagle" and "n-gram"; `lab.starts`), and `texts`,
    one row per prompt: prompt_id, domain (the prompt set), prompt_token_ids and
    generated_token_ids (int arrays), same_length (EAGLE's list is as long as the text), and
    ran_away (the text or EAGLE's list was stopped at TEXT_LIMIT).
    """

    starts: pd.DataFrame
    texts: pd.DataFrame

    def of(self, proposer: str) -> pd.DataFrame:
        """The starts of one proposer, as `replay_starts` takes them."""
        return self.starts[self.starts["proposer"] == proposer].reset_index(drop=True)


# ---- one file ------------------------------------------------------------------------------------

Ids = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


Entries = Annotated[list[Annotated[int, Field(ge=1, le=LIMIT + 1)]], Field(min_length=1)]
Lengths = Annotated[dict[Literal["acc_len"], Entries], Field(min_length=1)]


@checked_dataclass(frozen=True, config=STRICT)
class _Line:
    """A prompt as the files store it."""

    id: str
    prompt_token_ids: Ids
    generated_token_ids: Ids
    acc_eagle: Lengths
    acc_ngram: Lengths


def _lines(path: Path, content: bytes) -> list[_Line]:
    """The prompts of a file. ValueError, with the file and the line, if a line is wrong."""
    found = []
    for number, text in enumerate(content.splitlines(), 1):
        where = f"{path}, line {number}"
        try:
            values = parse_json(text)
        except ValueError as error:
            raise ValueError(f"{where} is cut or not JSON ({error}): fetch it again") from None
        line = checked(_Line, values, where)
        entries = len(line.acc_ngram["acc_len"])
        tokens = len(line.generated_token_ids)
        if entries != tokens:
            raise ValueError(
                f"{where}: acc_ngram.acc_len has {entries} entries for a text of {tokens} tokens; "
                "it needs one entry per token"
            )
        found.append(line)
    return found


def _starts_of(lines: list[_Line], domain: str, proposer: str) -> pd.DataFrame:
    field = {EAGLE: "acc_eagle", LOOKUP: "acc_ngram"}[proposer]
    lists = [np.array(getattr(line, field)["acc_len"]) for line in lines]
    names = [f"{domain}-{line.id}" for line in lines]
    prompt_tokens = [len(line.prompt_token_ids) for line in lines]
    counts = [len(entries) - 1 for entries in lists]  # no block begins at 0
    remaining = np.concatenate([np.arange(count, 0, -1) for count in counts])
    accepted = np.concatenate([entries[1:] for entries in lists]) - 1
    known = {"domain": domain, "proposer": proposer, "limit": LIMIT}
    by_text = pd.DataFrame({"prompt_id": names, "prompt_tokens": prompt_tokens, "count": counts})
    starts = by_text.loc[by_text.index.repeat(counts)].reset_index(drop=True)
    starts["position"] = starts.pop("count") + 1 - remaining
    starts["accepted"] = np.minimum(accepted, remaining)
    starts["remaining"] = remaining
    return starts.assign(**known)


def _texts_of(lines: list[_Line], domain: str) -> pd.DataFrame:
    rows = []
    for line in lines:
        prompt, text = np.array(line.prompt_token_ids), np.array(line.generated_token_ids)
        eagles = len(line.acc_eagle["acc_len"])
        ran_away = max(eagles, len(text)) >= TEXT_LIMIT
        rows.append((f"{domain}-{line.id}", prompt, text, eagles == len(text), ran_away))
    columns = ["prompt_id", "prompt_token_ids", "generated_token_ids", "same_length", "ran_away"]
    return pd.DataFrame(rows, columns=columns).assign(domain=domain)


# ---- a folder ------------------------------------------------------------------------------------


def _files(folder: Path | str) -> dict[str, Path]:
    """The files of SOURCE that a folder has, by name, plain or as .gz."""
    return {
        name: path
        for name in SOURCE.files
        for path in (Path(folder, f"{name}.gz"), Path(folder, name))
        if path.is_file()
    }


def read_traces(folder: Path | str | None = None) -> SpecDecodeBench | None:
    """The traces in `folder`, else in $SPECLAB_TRACES if it has any of them, else in
    data/runs/specdecode-bench. None if there are none (show ABSENT).

    Files are .jsonl or .jsonl.gz; a set whose file is missing is left out. ValueError, with the
    file and the line, for a line that is cut, a missing field, an entry outside 1..21, or an n-gram
    list that does not fit its text; and for a file that is not the published one.
    """
    places = [folder] if folder else [folder_of(PLACE), SOURCE.folder]
    found = map(_files, filter(None, places))
    files = next(filter(None, found), None)
    if files is None:
        return None
    starts, texts = [], []
    for name, path in sorted(files.items()):
        content = decompressed(path)
        lines = _lines(path, content)
        SOURCE.check(path, content, name)
        domain = name.removeprefix("combined_").removesuffix(".jsonl")
        starts += [_starts_of(lines, domain, proposer) for proposer in (EAGLE, LOOKUP)]
        texts.append(_texts_of(lines, domain))
    return SpecDecodeBench(
        pd.concat(starts, ignore_index=True), pd.concat(texts, ignore_index=True)
    )


def fetch(out: Path | str | None = None, base: str | None = None) -> list[Path]:
    """Fetch the files, and describe them in a README.md beside them. Returns their paths. Raises
    the errors of `Published.fetch` and `read_traces`.
    """
    paths = SOURCE.fetch(out, base)
    folder = paths[0].parent
    bench = read_traces(folder)
    digests = "\n".join(f"{digest} {name}" for name, digest in SOURCE.files.items())
    text = (
        f"# Traces of SpecDecode-Bench\n\nFiles of github.com/{REPOSITORY}, commit {COMMIT}. The "
        f"repository names no licence, so do not pass the files on.\n\n```\n{digests}\n```\n\n"
        f"{len(bench.texts)} prompts, read as {len(bench.starts)} starts by "
        f"`speclab.logs.specdecode_bench`:\n\n{__doc__}"
    )
    card = folder / "README.md"
    written(card, lambda part: part.write_text(text, "utf-8"))
    return [*paths, card]

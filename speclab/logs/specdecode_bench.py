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

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from speclab.logs.fetch import Published, decompressed
from speclab.place import folder_of
from speclab.plain import Facts
from speclab.study.runs import PLACE, RUNS

COMMIT = "2fdccbd61b62be339fb85fd90caf43f5e8392aa6"
REPOSITORY = "SpecDecode-Bench/simulator"
EAGLE, LOOKUP = "eagle", "n-gram"
LIMIT = 20  # drafted tokens that were tried per block
TEXT_LIMIT = 8192  # tokens at which texts were stopped
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
    RUNS / "specdecode-bench",
    "python -m speclab fetch specdecode-bench",
)
fetch = SOURCE.fetch
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


def _texts_of(lines: list[Facts], domain: str) -> pd.DataFrame:
    """`SpecDecodeBench.texts` of a file, with its lists of entries by proposer."""
    facts = pd.json_normalize(lines)
    lists = ["prompt_token_ids", "generated_token_ids", "acc_eagle.acc_len", "acc_ngram.acc_len"]
    texts = facts[lists].map(np.array).set_axis([*lists[:2], EAGLE, LOOKUP], axis=1)
    texts = texts.assign(prompt_id=domain + "-" + facts["id"].astype(str), domain=domain)
    entries, tokens = texts[EAGLE].map(len), texts["generated_token_ids"].map(len)
    return texts.assign(
        same_length=entries == tokens, ran_away=np.maximum(entries, tokens) >= TEXT_LIMIT
    )


def _starts_of(texts: pd.DataFrame, proposer: str) -> pd.DataFrame:
    starts = texts[["prompt_id", "domain"]].assign(
        prompt_tokens=texts["prompt_token_ids"].map(len),
        accepted=texts[proposer].map(lambda entries: entries[1:] - 1),  # no block begins at 0
    )
    starts = starts.explode("accepted", ignore_index=True).dropna(ignore_index=True)
    of_text = starts.groupby("prompt_id", sort=False)
    remaining = of_text.cumcount(ascending=False) + 1
    return starts.assign(
        proposer=proposer,
        limit=LIMIT,
        position=of_text.cumcount() + 1,
        accepted=np.minimum(starts["accepted"].astype(int), remaining),
        remaining=remaining,
    )


# ---- a folder ------------------------------------------------------------------------------------


def read_traces(folder: Path | str | None = None) -> SpecDecodeBench | None:
    """The traces in `folder`, else in $SPECLAB_TRACES if it has any of them, else in
    data/runs/specdecode-bench. None if there are none (show ABSENT).

    Files are .jsonl or .jsonl.gz; a set whose file is missing is left out. ValueError for a file
    that is damaged or not the published one.
    """
    places = [folder] if folder else [folder_of(PLACE), SOURCE.folder]
    for place in filter(None, places):
        either = [Path(place, f"{name}{ending}") for name in SOURCE.files for ending in (".gz", "")]
        files = {path.name.removesuffix(".gz"): path for path in either if path.is_file()}
        if files:
            break
    else:
        return None
    starts, texts = [], []
    for name, path in sorted(files.items()):
        content = decompressed(path)
        SOURCE.check(path, name, content)
        lines = [json.loads(line) for line in content.splitlines()]
        domain = name.removeprefix("combined_").removesuffix(".jsonl")
        texts.append(_texts_of(lines, domain))
        starts += [_starts_of(texts[-1], proposer) for proposer in (EAGLE, LOOKUP)]
    return SpecDecodeBench(
        pd.concat(starts, ignore_index=True), pd.concat(texts, ignore_index=True)
    )

"""Makes atlas.parquet from the raw files of its sources (`sources.yaml`):

    python -m data.atlas.prepare --data FOLDER

FOLDER holds the files anywhere below it, as .json, .jsonl or .jsonl.gz, under any names: each is
found by its SHA-256. To get one: git clone https://github.com/REPOSITORY, then git checkout COMMIT.
Nothing is written before all files are found and read. The texts are compared, and not kept.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from speclab.logs import atlas, logs, readers
from speclab.logs.fetch import decompressed

SMALL = dict.fromkeys(["run", "prompt_id", "domain"], "category") | {"turn": "int8"}
SMALL |= {"tokens": "int16", "passes": "int16", "drafted": "Int16"}
COLUMNS = ["run", "prompt_id", "domain", "turn", "tokens", "passes", "drafted", "accepted", "text"]


def files_in(folder: Path) -> dict[str, Path]:
    """The JSON files below a folder, by the SHA-256 of their content."""
    paths = [path for end in ("json", "jsonl", "jsonl.gz") for path in folder.rglob(f"*.{end}")]
    return {hashlib.sha256(decompressed(path)).hexdigest(): path for path in sorted(paths)}


def answers_of(run: Mapping[str, Any], paths: list[Path]) -> pd.DataFrame:
    """The answers of one run of sources.yaml: COLUMNS, where text is the answer's own text."""
    if run["format"] == "llama.cpp":
        read = (json.loads(path.read_bytes()) for path in paths)
        rows = pd.DataFrame([row for log in read for row in of_timings(run, log)])
        return rows.assign(accepted=None, run=run["run"], target=run["target"])
    names = categories() if run["format"] == "eagle" else None
    # one file at a time: a run's files may share a name
    logs_of = [logs.read_log([path], run["format"], domains=names) for path in paths]
    parts = [
        of_totals(log.sums) if log.passes is None else of_passes(log.passes) for log in logs_of
    ]
    rows = pd.concat(parts, ignore_index=True)
    texts = pd.DataFrame(texts_of(paths), columns=["prompt_id", "turn", "text"])
    rows = rows.merge(texts, how="left", validate="1:1")
    return rows.assign(run=run["run"], target=run["target"])


def of_passes(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per answer from one per pass."""
    by_answer = frame.groupby(["prompt_id", "domain", "turn"], sort=False)
    rows = by_answer.agg(
        tokens=("emitted", "sum"),
        passes=("emitted", "size"),
        accepted=("accepted", list),
    )
    return rows.reset_index()


def of_totals(sums: pd.DataFrame) -> pd.DataFrame:
    """One row per request, as turn 0, from its totals."""
    rows = sums.rename(columns={"emitted": "tokens", "blocks": "passes"})
    return rows[["prompt_id", "domain", "tokens", "passes"]].assign(turn=0, accepted=None)


def of_timings(run: Mapping[str, Any], log: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row per request from llama.cpp's `timings`. The prompt's own pass gives the first token,
    so n tokens, of which a were drafted, are n - 1 - a passes after it. text: the text's hash.
    """
    for request in requests_in(log[run["part"]], {}):
        if all(request[name] == value for name, value in run.get("where", {}).items()):
            tokens = request.get("predicted_n", request.get("completion_tokens")) - 1
            yield {
                "prompt_id": request.get("prompt_id", request.get("id")),
                "domain": request["category"],
                "turn": request.get("repetition", 1) - 1,
                "tokens": tokens,
                "passes": tokens - (request["draft_n_accepted"] or 0),
                "drafted": request["draft_n"] or 0,
                "text": request.get("out_hash", request.get("content_sha256")),
            }


def requests_in(value: Any, around: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What a JSON value says of each request, with what the objects around it say."""
    if isinstance(value, dict):
        around = {**around, **value}
        if "draft_n" in value:
            yield around
            return
    for one in value.values() if isinstance(value, dict) else value:
        if isinstance(one, dict | list):
            yield from requests_in(one, around)


def categories() -> dict[str, str]:
    """MT-Bench's category of each prompt_id."""
    facts = atlas.sources()["mt_bench"]
    first, each, names = facts["first"], facts["each"], facts["categories"]
    return {str(first + i): names[i // each] for i in range(each * len(names))}


def texts_of(paths: list[Path]) -> Iterator[tuple[str, int, str]]:
    """(prompt_id, turn, text) of each answer that has counts per pass."""
    for path in paths:
        for _, line in readers.parse_text(readers.text_of(path), path.name):
            choice = line["choices"][0]
            if "decoding_steps" in choice or "accept_lengths:" in choice:
                for turn, text in enumerate(choice["turns"]):
                    yield str(line["question_id"]), turn, text.strip()


def table(found: Mapping[str, Path]) -> pd.DataFrame:
    """The answers of all runs, in the order of sources.yaml. ValueError names what is missing."""
    parts = []
    for run in atlas.sources()["runs"]:
        missing = [name for name, digest in run["files"].items() if digest not in found]
        if missing:
            raise ValueError(f"{run['repository']}: {missing[0]} is not there, or has other bytes")
        parts.append(answers_of(run, [found[digest] for digest in run["files"].values()]))
    return compact(pd.concat(parts, ignore_index=True))


def compact(rows: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS in small types. `text`: the number of a text among the answers of a target to the
    same turn, in order of appearance; missing where there is no text.
    """
    of_turn = rows.groupby(["target", "domain", "prompt_id", "turn"], sort=False)["text"]
    number = of_turn.transform(lambda texts: pd.factorize(texts)[0])
    rows = rows.assign(text=number.astype("Int8").mask(rows["text"].isna()))
    return rows.reindex(columns=COLUMNS).astype(SMALL)


def main() -> None:
    """Write atlas.parquet and say what it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    rows = table(files_in(parser.parse_args().data))
    write(rows, atlas.TABLE)
    print(f"{atlas.TABLE}: {len(rows):,} answers, {rows['passes'].sum():,} passes")


def write(rows: pd.DataFrame, path: Path) -> None:
    """Write the table as it is shipped."""
    rows.to_parquet(path, index=False, compression="zstd", compression_level=19)


if __name__ == "__main__":
    main()

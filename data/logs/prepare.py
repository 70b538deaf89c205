"""Decode the kit's 200 prompts with `smollm` at T = 0 and write `smollm.jsonl.gz`, the log that
notebook 14 reads unless you name another one.

    python -m data.logs.prepare                  # ten minutes on one core

The prompts are decoded in a shuffled order, as the requests of a server come mixed. From the lines
of `decode` the texts and the times are left out. What is left depends on the models and the prompts
only, so a second call writes the same bytes.
"""

import gzip
import json
import random
from pathlib import Path

from speclab.__main__ import main
from speclab.study.profiles import ROOT

OUT = ROOT / "data" / "logs" / "smollm.jsonl.gz"
WORK = ROOT / "build" / "logs"  # a stopped call continues there
SEED = 0  # of the order of the prompts
LEFT_OUT = ("text", "time_s", "prefill_time_s")


def shuffled_prompts(path: Path) -> None:
    """Write the kit's prompts in one file, in the order of SEED."""
    files = sorted((ROOT / "data" / "prompts").glob("*.jsonl"))
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    random.Random(SEED).shuffle(lines)
    path.write_text("\n".join(lines), "utf-8")


def as_log(lines: str) -> bytes:
    """The lines of `decode` without LEFT_OUT, compressed."""
    rows = []
    for line in lines.splitlines():
        row = {name: value for name, value in json.loads(line).items() if name not in LEFT_OUT}
        rows.append(json.dumps(row))
    return gzip.compress("\n".join([*rows, ""]).encode(), mtime=0)


def decode_and_write() -> int:
    """Decode the prompts in WORK and write OUT. Returns the exit status of `decode`."""
    WORK.mkdir(parents=True, exist_ok=True)
    prompts, decoded = WORK / "prompts.jsonl", WORK / "decoded.jsonl"
    shuffled_prompts(prompts)
    words = ["decode", "--profile", "smollm", "--shape", "chain:4"]
    status = main([*words, "--prompts", str(prompts), "--out", str(decoded)])
    if not status:
        OUT.write_bytes(as_log(decoded.read_text("utf-8")))
    return status


if __name__ == "__main__":
    raise SystemExit(decode_and_write())

"""Seconds and peak memory of `python -m speclab log` over a made-up vLLM log of 100,000 requests
with 60 target passes each. `make bench` calls `measured`; alone: `python tests/tools/log_bench.py`.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

REQUESTS, PASSES, GAMMA = 100_000, 60, 4
MOST_S, MOST_GB = 60, 2  # goals
TEXT = "word " * 150  # of an answer, which the reader leaves out


def response(name, accepted):
    """A response of vLLM at the level `detailed`."""
    total, steps = int(accepted.sum()), len(accepted)
    facts = {
        "mean_acceptance_length": 1 + total / steps,
        "draft_acceptance_rate": total / (GAMMA * steps),
        "acceptance_histogram": np.bincount(accepted, minlength=GAMMA + 1).tolist(),
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": total,
        "num_draft_tokens": GAMMA * steps,
        "num_spec_tokens": GAMMA,
        "per_step_accepted": accepted.tolist(),
        "per_step_drafted": [GAMMA] * steps,
    }
    return {
        "id": f"chatcmpl-{name}",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}}],
        "usage": {"completion_tokens": 1 + total + steps},
        "metrics": {"speculative_decoding": facts},
    }


def write_log(path):
    """A log of REQUESTS responses, with independent acceptance."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for number in range(REQUESTS):
            accepted = rng.binomial(GAMMA, 0.6, PASSES)
            file.write(json.dumps(response(number, accepted)) + "\n")


def measured():
    """What the verb needs for such a log, in a process of its own: megabytes of the log, seconds
    and gigabytes at the peak, with the goals.
    """
    with TemporaryDirectory() as place:
        path = Path(place, "log.jsonl")
        write_log(path)
        command = [sys.executable, "-m", "speclab", "log", path, "--out", Path(place, "log")]
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        assert status == 0
        row = {"requests": REQUESTS, "log_mb": path.stat().st_size / 1e6, "seconds": seconds}
    return row | {"most_seconds": MOST_S, "peak_gb": used.ru_maxrss / 1e6, "most_gb": MOST_GB}


if __name__ == "__main__":
    print(measured())

"""`make bench`: the recorder against the literal procedure, measured in one run on this machine;
prints a table of ratios.

Each case runs in a fresh process, so that peak memory belongs to it. Prompts are cut from the
project's own, no stop token, so that every case has its full length. The literal procedure is timed
on every `stride`-th step of a continuation (teacher-forced, spread evenly over it, so its nodes per
second are those of the whole run).
"""

import dataclasses
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).parent)]

CASES = [(64, 64), (64, 512), (256, 64), (256, 512)]  # new tokens, prompt tokens
BLOCK = 10  # prompts the recorder takes at once, as in a run
TREE = (3, 2, 8)


def _prompts(pair, length: int, count: int) -> list:
    from speclab.prompts import EncodedPrompt, load_prompts

    text = [
        t
        for p in load_prompts("project", 50)
        for t in pair.tokenizer(p.text)["input_ids"][1:]
    ]
    start = pair.tokenizer.bos_token_id
    return [
        EncodedPrompt(
            f"bench-{i}", "code", (start, *text[i * 600 : i * 600 + length - 1]), 0
        )
        for i in range(count)
    ]


def _recorder(pair, new: int, length: int) -> tuple[int, float]:
    from toy import record_block

    from speclab.sampling import Sampling
    from speclab.tree import static_tree

    endless = dataclasses.replace(pair, stop_ids=frozenset())

    def work(prompts: list) -> list:
        return record_block(
            endless, prompts, static_tree(*TREE), Sampling(), new, 0, 2048
        )

    prompts = _prompts(pair, length, BLOCK)
    work(prompts[:1])
    began = time.perf_counter()
    nodes = sum(len(r.nodes["node"]) for r in work(prompts))
    return nodes, time.perf_counter() - began


def _literal(pair, new: int, length: int) -> tuple[int, float]:
    import literal

    from speclab.record import generate
    from speclab.sampling import Sampling

    (prompt,), stride = _prompts(pair, length, 1), max(1, new // 16)
    (text,) = generate(pair.target, [prompt], new, frozenset(), Sampling(), 0)
    literal.measure(pair.target, pair.draft, prompt.ids, 1, frozenset(), *TREE)
    began, nodes = time.perf_counter(), 0
    for step in range(stride // 2, new, stride):
        nodes += len(
            literal.measure(
                pair.target, pair.draft, prompt.ids + text[:step], 1, frozenset(), *TREE
            )[0]
        )
    return nodes, time.perf_counter() - began


def _case(which: str, new: int, length: int) -> None:
    import torch

    from speclab.models.pairs import load_pair
    from speclab.profiles import load_profile

    torch.set_num_threads(2)
    pair = load_pair(load_profile("tiny", {"device": "cpu"}))
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    nodes, seconds = {"recorder": _recorder, "literal": _literal}[which](
        pair, new, length
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps(
            {
                "nodes_per_s": nodes / seconds,
                "peak_bytes": peak * 1024,
                "above_loaded_bytes": (peak - loaded) * 1024,
            }
        )
    )


def _run(which: str, new: int, length: int) -> dict:
    out = subprocess.run(
        [sys.executable, __file__, which, str(new), str(length)],
        capture_output=True,
        text=True,
    )
    if out.returncode:
        sys.exit(f"bench {which} {new} {length} failed:\n{out.stderr}")
    return json.loads(out.stdout.splitlines()[-1])


def main() -> None:
    """All cases, one line each; then decoding; all of it into build/bench.json."""
    cases = []
    print(
        f"tiny pair, tree {TREE}, CPU float32, 2 threads; "
        "nodes per second and peak memory (MB, whole process)"
    )
    print(
        f"{'new':>4} {'prompt':>6} {'literal/s':>10} {'recorder/s':>10} {'ratio':>6} "
        f"{'literal MB':>10} {'recorder MB':>11}"
    )
    for new, length in CASES:
        slow, fast = _run("literal", new, length), _run("recorder", new, length)
        ratio = fast["nodes_per_s"] / slow["nodes_per_s"]
        cases.append(
            {
                "new_tokens": new,
                "prompt_tokens": length,
                "literal_nodes_per_s": slow["nodes_per_s"],
                "recorder_nodes_per_s": fast["nodes_per_s"],
            }
        )
        print(
            f"{new:4} {length:6} {slow['nodes_per_s']:10.1f} "
            f"{fast['nodes_per_s']:10.0f} {ratio:5.0f}x "
            f"{slow['peak_bytes'] / 1e6:10.0f} {fast['peak_bytes'] / 1e6:11.0f}",
            flush=True,
        )
    import bench_decode
    import bench_limits

    found = {"recorder": cases} | bench_decode.main()
    bars = bench_limits.bars(found)
    print(f"\n{bars.to_string(float_format='%.2f', index=False)}")
    found["bars"] = bars.to_dict(orient="records")
    place = Path(__file__).resolve().parents[1] / "build" / "bench.json"
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _case(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])) if len(
        sys.argv
    ) == 4 else main()

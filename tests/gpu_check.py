"""`make gpu-check`: what the kit does on a CUDA device, in one command.

Needs torch, transformers, safetensors, tokenizers and numpy; what else a check would need is
skipped by name. Every check runs in a process of its own, so that one that breaks the device, runs
out of memory or hangs leaves the others alone. After each of them the JSON file and the page
beside it are written anew. Without a CUDA device all runs that a CPU can of it.

The checks are in gpu_checks.py; this file imports the standard library only.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT)]
LIMIT_S = 1200  # of one check

# in the order in which they run, with the question that each answers
CHECKS = {
    "pairs": "A pair on the device, or on it and the CPU: the same records as on the CPU?",
    "packing": "Nodes recorded at once, or a few at a time: the same records?",
    "text": "Greedy text of chains, static and dynamic trees: that of plain decoding?",
    "sampling": "Sampled text on the device: the CPU's, with the same random numbers?",
    "recorder": "The recorder: the records of the literal procedure?",
    "gptq": "The 4-bit target: does it run, and is its record the literal one?",
    "processes": "Two pairs in two processes on the device: what one records?",
    "halving": "Out of memory: does the recorder go on with half, to the same records?",
    "timing": "What does a pass cost (c, v(n))?",
    "shapes": "Recording at the paper's shapes: minutes and memory against the plan?",
}


@dataclass(frozen=True)
class Asked:
    """What a check is asked to do: where (`auto`: the first CUDA device, else the CPU), in which
    number formats, and how much; None: what suits the device.
    """

    device: str = "auto"
    formats: tuple[str, ...] | None = None
    prompts: int | None = None
    literal_tokens: int | None = None
    tokens: int | None = None

    def on(self, device: str, formats: list[str]) -> "Asked":
        """The same on a device that has these formats, with all set."""
        fast = device != "cpu"
        return Asked(
            device,
            self.formats or tuple(formats),
            self.prompts or (2 if fast else 1),
            self.literal_tokens or (24 if fast else 2),
            self.tokens or (64 if fast else 12),
        )


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    top = argparse.ArgumentParser("gpu-check", description=__doc__.split("\n")[0])
    add = top.add_argument
    add("--device", default="auto", help="cuda:0, cuda:1, …, cpu; auto: the first GPU")
    add("--only", nargs="+", choices=CHECKS, metavar="CHECK", help=", ".join(CHECKS))
    add("--out", type=Path, default=ROOT / "build" / "gpu-check.json", help="a .json")
    names = ("float32", "float16", "bfloat16")
    add("--formats", nargs="+", choices=names, help="else all that the device has")
    for name, what in (
        ("prompts", "prompts a domain"),
        ("tokens", "new tokens of a text"),
        ("literal-tokens", "new tokens that the literal procedure follows"),
    ):
        add(f"--{name}", type=int, help=what)
    add("--child", help=argparse.SUPPRESS)
    return top.parse_args(arguments)


# ---- one check, in a process of its own ----------------------------------------------------------


def in_child(name: str, asked: Asked) -> dict:
    """What a check found; a process that dies, or takes longer than LIMIT_S, has failed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, __file__, "--child", name, "--out", str(result)]
        for option, value in asdict(asked).items():
            values = value if isinstance(value, tuple) else (value,)
            if value is not None:
                command += [f"--{option.replace('_', '-')}", *map(str, values)]
        code, output = _ended(command)
        if result.is_file():
            return json.loads(result.read_text(encoding="utf-8"))
    why = f"its process ended by signal {-code}" if code < 0 else f"exit status {code}"
    if code == -signal.SIGKILL and time.monotonic() - began > LIMIT_S:
        why = f"it took longer than {LIMIT_S} s"
    return {
        "name": name,
        "status": "failed",
        "said": why,
        "time_s": round(time.monotonic() - began, 3),
        "facts": {"output": output.splitlines()[-30:]},
    }


def _ended(command: list[str]) -> tuple[int, str]:
    """Exit status and output of a command, which is stopped with all that it started after LIMIT_S
    or by Ctrl-C.
    """
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | quiet,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        _kill(child)
        output, _ = child.communicate()
    except BaseException:
        _kill(child)
        raise
    return child.returncode, output


def _kill(child: subprocess.Popen) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    child.wait()


def child(asked: argparse.Namespace) -> None:
    """Run one check here and write what it found."""
    import gpu_checks

    numbers = asked.prompts, asked.literal_tokens, asked.tokens
    formats = tuple(asked.formats or ())
    settings = gpu_checks.Settings(asked.device, formats, *numbers)
    found = gpu_checks.judged(asked.child, settings)
    write(asked.out, json.dumps(found))


# ---- results -------------------------------------------------------------------------------------


def write(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text + "\n", encoding="utf-8")
    new.replace(path)


def page(results: dict) -> str:
    """The results as a short page of Markdown."""
    machine, lines = results["machine"], ["# GPU check", ""]
    facts = machine["facts"]
    lines.append(f"{machine['said']}.")
    if "packages" in facts:
        versions = [f"{name} {number}" for name, number in facts["packages"].items()]
        lines.append(f"{', '.join(versions)}; Python {facts['python']}.")
    if facts.get("total_bytes"):
        memory = (
            f"{facts['total_bytes'] / 1e9:.1f} GB, {facts['free_bytes'] / 1e9:.1f} free"
        )
        lines.append(
            f"Compute capability {facts['capability']}, {memory}, driver {facts['driver']}, "
            f"CUDA {facts['torch_cuda']}."
        )
    lines += ["", f"**{results['summary']}**", ""]
    lines += ["| check | question | status | s | what was found |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for one in results["checks"]:
        said = one["said"].replace("|", "\\|").replace("; ", ";<br>")
        question = CHECKS[one["name"]]
        cells = [one["name"], question, one["status"], f"{one['time_s']:.0f}", said]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "*passed*: equal. *reported*: differences at margins that rounding explains (the largest "
        "are in the JSON file). *failed*: differences that it does not explain, or an error.",
    ]
    return "\n".join(lines)


def summary(results: dict) -> str:
    """How many checks ended how; and on a CPU what that leaves out."""
    checks = results["checks"]
    counted: dict[str, list[str]] = {}
    for one in checks:
        counted.setdefault(one["status"], []).append(one["name"])
    words = [
        f"{len(names)} {status}"
        + ("" if status == "passed" else f" ({', '.join(names)})")
        for status, names in counted.items()
    ]
    said = ", ".join(words) or "nothing ran"
    if results["machine"]["facts"].get("device") == "cpu":
        said = f"no CUDA device: ran on the CPU: {said}"
    return said + ("; stopped" if results["stopped"] else "")


def save(results: dict, out: Path) -> None:
    """The JSON file and the page beside it."""
    results["summary"] = summary(results)
    write(out, json.dumps(results, indent=1))
    write(out.with_suffix(".md"), page(results))


def main(
    arguments: list[str] | None = None,
    run: Callable[[str, Asked], dict] = in_child,
) -> int:
    """All checks, or those of --only; 0 when none failed, 1 otherwise, 130 when stopped."""
    given = options(arguments)
    if given.child:
        child(given)
        return 0
    numbers = given.prompts, given.literal_tokens, given.tokens
    formats = tuple(given.formats) if given.formats else None
    asked = Asked(given.device, formats, *numbers)
    results: dict = {
        "machine": {"said": "", "facts": {}},
        "checks": [],
        "stopped": True,
    }
    try:
        results["machine"] = run("machine", asked)
        print(results["machine"]["said"], flush=True)
        if results["machine"]["status"] == "failed":
            return 1
        about = results["machine"]["facts"]
        asked = asked.on(about["device"], about["formats"])
        for name in [name for name in CHECKS if name in (given.only or CHECKS)]:
            found = run(name, asked)
            results["checks"].append(found)
            save(results, given.out)
            said = f"{found['status']:9} {found['time_s']:6.1f} s  {found['said']}"
            print(f"{name:10} {said}", flush=True)
        results["stopped"] = False
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    finally:
        save(results, given.out)
        print(f"{results['summary']}\n{given.out}, {given.out.with_suffix('.md')}")
    return int(any(one["status"] == "failed" for one in results["checks"]))


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)  # as by Ctrl-C: no check is left running
    sys.exit(main())

"""From a trace to a server: the options with which other engines draft what a recorded run
recommends, and the run's acceptance as NVIDIA's speculation profile.

data/engines/options.yaml holds what is printed for an engine, so no engine has code of its own.
Only chains are exported, because no engine drafts trees with a draft model.
"""

import json
import shlex
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd

from speclab import replay
from speclab.cli import metrics
from speclab.logs import passes
from speclab.plain import Facts, read_yaml, shown
from speclab.study.profiles import MODELS, ROOT, load_profile
from speclab.study.runs import Run, RunError, load_run, recorded_run, written

EXACT = {
    "greedy": "exact: the counts of the greedy decoder on these prompts",
    "point-mass": "exact for these sampled texts, drafted by the draft's best tokens",
    "rejection": "an expectation: the mean over the decoder's random numbers, given these sampled "
    "texts; counts need not be whole",
}
OFF = {"top_k": 0, "top_p": 1}  # not sent: some servers refuse a top_k of 0
# how texts were drawn: a run says it, a log does not
OF_TEXTS = (
    *("stop_ids", "max_new_tokens", "do_sample", "temperature", "top_k", "top_p", "request"),
    *("generation_config", "sampling_defaults"),
)
TRACES = ROOT / "data" / "traces"
READS = ["data/engines/options.yaml"]
# by the names of `export --for`
ENGINES: dict[str, dict[str, Any]] = read_yaml(ROOT / READS[0], "fetch it again")


def run_named(name: str) -> Run:
    """The run or trace in a folder, a trace that comes with the kit (smollm/sampled), or the greedy
    run of a profile. RunError if it is not recorded yet.
    """
    for folder in (Path(name), ROOT / name, TRACES / name):
        if (folder / "manifest.json").is_file():
            return load_run(folder)
    run = recorded_run(load_profile(name), "greedy")
    if run is None:
        raise RunError(
            f"profile {name} has no recorded greedy run; run `python -m speclab record --profile "
            f"{name}` first"
        )
    return run


def rule_of(run: Run, engine: str) -> str:
    """The rule by which an engine accepts the tokens of a chain at the run's temperature."""
    is_sampled = run.manifest["profile"]["temperature"] > 0
    return ENGINES[engine]["sampled"] if is_sampled else "greedy"


# ---- for an engine -------------------------------------------------------------------------------


def why_not(run: Run, engine: str) -> str:
    """Why an engine cannot run the pair, in one line; '' if it can."""
    known, pair = ENGINES[engine], run.manifest["pair"]
    said = pair["draft"]["tokens_said"]
    shared = pair["shared_vocabulary"]
    target, draft = vocabularies(run)
    if run.by_start:
        if "print_head" in known:
            return ""
        reason = "it is a trained head in the format of speculators"
    elif said < shared:
        reason = (
            f"its output vocabulary has {said:,} of {shared:,} tokens, and its file format is "
            "speclab's (python -m speclab decode runs it)"
        )
    elif abs(target - draft) > known["apart"]:
        reason = f"its vocabulary has {draft:,} tokens, the target's {target:,}"
    else:
        return ""
    return (
        f"{known['engine']} cannot use this draft: {reason}. Without a draft model, "
        f"{known['engine']} offers: {known['no_model']}"
    )


def vocabularies(run: Run) -> list[int]:
    """Sizes of the target's and the draft's vocabulary, padding included, from the profile's notes,
    else the shared size. ValueError for a size that is no number.
    """
    notes = run.manifest["profile"]["notes"]
    shared = run.manifest["pair"]["shared_vocabulary"]
    sizes = [notes[f"{name}_config"].get("vocab_size", shared) for name in MODELS]
    if [*map(type, sizes)] != [int, int]:
        raise ValueError(
            f"notes of the profile: `vocab_size` of target_config and draft_config are {sizes}, "
            "but must be whole numbers; correct or remove the notes"
        )
    return sizes


def commands(run: Run, engine: str, gamma: int) -> str:
    """The shell or Python lines that run the pair with chains of `gamma` tokens; '' for gamma = 0,
    because a server drafts nothing by default.
    """
    if not gamma:
        return ""
    pair, settings = run.manifest["pair"], run.manifest["profile"]
    is_target_alone = pair["target"]["quantised"] > pair["draft"]["quantised"]
    values: dict[str, Any] = {
        "unquant": "unquant" if is_target_alone else None,
        "own_vocabularies": len({*vocabularies(run)}) > 1 or None,
        "stop_ids": run.manifest["stop_ids"] or None,
        "max_new_tokens": settings["max_new_tokens"],
    }
    values |= _as_sampled(settings)
    for name in MODELS:
        values[name] = as_argument(pair[name]["path"])
        values[f"{name}_revision"] = pair[name]["revision"]
        values[f"{name}_dtype"] = pair[name]["dtype"]
    which = "print_head" if run.by_start else "print"
    return _printed(engine, gamma, sums_of(run, gamma, rule_of(run, engine)), values, which)


def commands_of_log(log: pd.DataFrame, engine: str, gamma: int) -> str:
    """The lines that draft chains of `gamma` tokens as `commands` prints them, from the passes of a
    log. TARGET and DRAFT stand for the models, which a log does not name. Conditions as of
    `passes.trace_of`.

    The acceptance rates for load tests are exact at the log's own gamma. At another gamma a token
    that the log does not know counts as rejected, and a comment says so.
    """
    if not gamma:
        return ""
    sums, with_hits = (
        replay.prompt_sums(replay.replay(passes.trace_of(log, unknown), gamma))
        for unknown in (passes.MISSES, passes.HITS)
    )
    optional = [f"{name}_{what}" for name in MODELS for what in ("revision", "dtype")]
    optional += ["unquant", "own_vocabularies", *OF_TEXTS]
    values: dict[str, Any] = dict.fromkeys(optional) | {"target": "TARGET", "draft": "DRAFT"}
    lines = _printed(engine, gamma, sums, values)
    is_exact = sums["blocks"].sum() == with_hits["blocks"].sum()
    if is_exact or "synthetic" not in lines:
        return lines
    return f"{lines}\n# in these rates, a token that the log does not know counts as rejected"


def _as_sampled(settings: Facts) -> Facts:
    """How the texts were sampled: `do_sample`, `temperature`, `top_k` and `top_p` (None for greedy
    texts), `request`, what a request to a server has to set, and how to turn a server's own
    defaults off.
    """
    do_sample = settings["temperature"] > 0
    names = ("temperature", "top_k", "top_p") if do_sample else ("temperature",)
    values = {name: settings[name] for name in names}
    request = {name: value for name, value in values.items() if value != OFF.get(name)}
    own = {"generation_config": "vllm", "sampling_defaults": "openai"}
    return own | {"top_k": None, "top_p": None, "do_sample": do_sample, "request": request} | values


def _printed(
    engine: str, gamma: int, sums: pd.DataFrame, values: dict[str, Any], which: str = "print"
) -> str:
    """What an engine's options print for chains of `gamma` tokens, for a draft model or a head."""
    survival = metrics.figures(sums, gamma)["survival_by_depth"]
    values = values | {"gamma": gamma, "gamma_and_bonus": gamma + 1, "survival": survival}
    template = ENGINES[engine][which]
    lines = [filled(line, values) for line in template.splitlines()]
    return "\n".join(line for line in lines if line is not None)


def as_argument(path: str) -> str:
    """A path that no program mistakes for an option."""
    return f"./{path}" if path.startswith("-") else path


class _Line(Template):
    """A line of options.yaml: `$name`, or `${name.way}` with one of WAYS."""

    braceidpattern = r"[a-z_]+\.[a-z]+"


def filled(line: str, values: dict[str, Any]) -> str | None:
    """A line of options.yaml with its values, each in the format that the line names; None if a
    value is missing. ValueError for a name with control characters.
    """
    template, texts = _Line(line), {}
    for identifier in template.get_identifiers():
        name, _, way = identifier.partition(".")
        if values[name] is None:
            return None
        texts[identifier] = WAYS[way](values[name])
    return template.substitute(texts)


def shell_word(value: Any) -> str:
    """A value as one word of a POSIX shell. ValueError for control characters, which a terminal
    would obey.
    """
    text = str(value)
    lines = text.split("\n")
    if [*map(shown, lines)] != lines:
        raise ValueError(
            f"the name {shown(text)} holds control characters, which a terminal would obey; rename "
            "the folder and record again"
        )
    return shlex.quote(text)


def quoted_json(value: Any) -> str:
    """A value as JSON that fits between a shell's single quotes."""
    return json.dumps(value).replace("'", r"\u0027").replace("\x7f", r"\u007f")


def literal(value: Any) -> str:
    """A text, a number or a list on one line, readable by Python and by YAML."""
    return shown(json.dumps(value, ensure_ascii=False))


WAYS = {"": shell_word, "json": quoted_json, "literal": literal}


# ---- NVIDIA's speculation profile ----------------------------------------------------------------


def sums_of(run: Run, gamma: int, rule: str) -> pd.DataFrame:
    """`replay.prompt_sums` of chains of `gamma` tokens."""
    walk = replay.replay_sampled if rule == "rejection" else replay.replay
    return replay.prompt_sums(walk(run.trace, gamma))


def rates_of(figures: dict[str, Any]) -> dict[str, Any]:
    """Conditional acceptance by depth (0 if no block reached it), marginal acceptance by depth, and
    the mean tokens per block, with the bonus.
    """
    conditional = np.nan_to_num(figures["accept_by_depth"])
    return {
        "conditional_accept_rates": conditional.tolist(),
        "marginal_accept_rates": figures["survival_by_depth"],
        "mean_accept_length": figures["mean_accepted_and_bonus"],
    }


def speculation_profile(run: Run, gamma: int, rule: str) -> dict[str, Any]:
    """speculation_profile.json of a run replayed with chains of `gamma` tokens: schema 1.0 of
    NVIDIA/Model-Optimizer #2247 @edf879d, whose categories are the run's prompt sets.

    Rates are pooled over blocks. A block that the text's end cuts counts with the tokens accepted
    inside the text.
    """
    sums = sums_of(run, gamma, rule)
    pooled = metrics.figures(sums, gamma)
    lengths = 1 + sums["accepted"] / sums["blocks"]
    domains = {}
    for domain, rows in sums.groupby("domain", sort=False, observed=True):
        domains[domain] = rates_of(metrics.figures(rows, gamma))
    settings = run.manifest["profile"]
    conditions = {
        "writer": "speclab export, version 1",
        "run": run.manifest["key"],
        "num_samples": run.manifest["prompts"],
        "prompts": settings["prompts"],
        "max_new_tokens": settings["max_new_tokens"],
        "temperature": settings["temperature"],
        "rule": rule,
        "exact": EXACT[rule],
        "truncated_blocks": pooled["truncated"],
    }
    mean = pooled["mean_accepted_and_bonus"]
    histogram = {str(n): blocks for n, blocks in enumerate(pooled["blocks_by_accepted"], 1)}
    return {
        "schema_version": "1.0",
        "measured": True,
        "method": "eagle3" if run.by_start else "draft_model",
        "draft_checkpoint": settings["draft"],
        "target_model": settings["target"],
        "num_speculative_tokens": gamma,
        "block_size": None,
        "max_supported_k": gamma,
        "verification_method": "longest_prefix",
        **rates_of(pooled),
        "mean_accept_length_per_request": round(lengths.mean(), 6),
        "accept_length_model": "chain_analytic",
        "accept_length_by_k": {str(gamma): mean},
        "acceptance_length_histogram": histogram,
        "per_category": domains,
        "measurement_conditions": conditions,
    }


def write_profile(run: Run, gamma: int, rule: str, path: Path) -> None:
    """Write `speculation_profile` as JSON; the file appears whole or not at all."""
    text = json.dumps(speculation_profile(run, gamma, rule), indent=1)
    written(path, lambda part: part.write_text(text))

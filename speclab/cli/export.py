"""From a trace to a server: the lines that make other engines draft what a recorded run recommends.

A function per engine writes its lines. The comment in it says where the options were looked up, in
November 2026. Only chains are exported, because no engine drafts trees with a draft model.
"""

import json
import math
import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.cost import Costs
from speclab.estimates import ABOVE, BELOW, Estimates
from speclab.lab import choose, stopping
from speclab.models.folder import ModelFolder
from speclab.plain import Facts, ModelSpec, shown
from speclab.study.profiles import MODELS, ROOT, load_profile, profile_names
from speclab.study.runs import Run, RunError, load_run, profile_of, recorded_run
from speclab.study.timing_runs import PairCosts

OFF = {"top_k": 0, "top_p": 1, "min_p": 0}  # not sent: some servers refuse a top_k of 0
MISSING = "\0"  # stands for a value that is not known; a line with it is not printed


def run_named(name: str) -> Run:
    """The run or trace in a folder, a trace that comes with the kit (smollm/sampled), or the greedy
    run of a profile. RunError if it is not recorded yet.
    """
    for folder in (Path(name), ROOT / name, ROOT / "data/traces" / name):
        if (folder / "manifest.json").is_file():
            return load_run(folder)
    if Path(name).is_dir() and name not in profile_names():
        return load_run(Path(name))  # says what it lacks
    run = recorded_run(load_profile(name), "greedy")
    if run is None:
        raise RunError(
            f"profile {name} has no recorded greedy run; run `python -m speclab record --profile "
            f"{name}` first"
        )
    return run


# ---- what an engine is told ----------------------------------------------------------------------


def word(value: object) -> str:
    """A value as one word of a shell; a path that begins with a dash is no option. ValueError for
    control characters, which a terminal would obey.
    """
    text = str(value)
    if shown(text) != text:
        raise ValueError(
            f"the name {shown(text)} holds control characters, which a terminal would obey; rename "
            "the folder and record again"
        )
    return shlex.quote("./" * text.startswith("-") + text)


# the endings of a name in `Texts`, and how the value is written: Python and YAML read a literal
WAYS: dict[str, Callable] = {
    "": word,
    "_json": lambda value: json.dumps(value).replace("'", r"\u0027"),  # in a shell's quotes
    "_literal": partial(json.dumps, ensure_ascii=False),
}


class Texts(SimpleNamespace):
    """Values as texts, by name and ending, and MISSING for every other name."""

    def __getattr__(self, _name: str) -> str:
        return MISSING


def _vllm(its: Texts) -> str:
    # main @002e77c: vllm/config/speculative.py, docs/features/speculative_decoding/README.md
    # @01ed47b; use_heterogeneous_vocab since 0.25.1. With --generation-config vllm the model's
    # generation_config.json gives its end tokens only. docs/features/speculative_decoding/eagle.md
    # and issue #54526: some releases guess a head's layers. Two vocabularies: vllm/v1/spec_decode/
    # vocab_mapping.py @0f17ee0 and #38174; the draft proposes its best tokens, above T = 0 too, and
    # another draft_sample_method is refused. It (#40269, 2026-05-14) is greedy where nothing is
    # said; drawn drafts have the request's temperature without its top_k and top_p (#56724)
    return f"""\
# compare the server's acceptance with the recording's: some releases ignore the head's {its.layers}
# expect a lower acceptance: the draft reads all but {its.common} tokens as one unknown token there
vllm serve {its.target_path} \\
  --revision {its.target_revision} \\
  --generation-config {its.generation_config} \\
  --speculative-config '{{"method": {its.method_json}, "model": {its.draft_path_json},
    "revision": {its.draft_revision_json},
    "use_heterogeneous_vocab": {its.own_vocabularies_json},
    "draft_sample_method": {its.drawing_json},
    "num_speculative_tokens": {its.gamma}}}'
# every request sets {its.request_json}"""


def _sglang(its: Texts) -> str:
    # main @067ad4d: docs/advanced_features/speculative_decoding.md, docs/basic_usage/
    # sampling_params.md @0a0dd35. Without its own quantization a draft is read as the target is.
    # A test of configurations there reads a speculators head as a Llama head of EAGLE-3
    return f"""\
# compare the server's acceptance with the recording's: some releases ignore the head's {its.layers}
python3 -m sglang.launch_server --model-path {its.target_path} \\
  --revision {its.target_revision} \\
  --sampling-defaults {its.sampling_defaults} \\
  --speculative-draft-model-revision {its.draft_revision} \\
  --speculative-draft-model-quantization {its.unquant} \\
  --speculative-algorithm {its.algorithm} --speculative-draft-model-path {its.draft_path} \\
  --speculative-num-steps {its.gamma} --speculative-eagle-topk 1 \\
  --speculative-num-draft-tokens {int(its.gamma) + 1}
# every request sets {its.request_json}"""


def _llama_cpp(its: Texts) -> str:
    # after #22964 (2026-05-12), which refuses --draft-max: the help of llama-server and
    # tools/server/README.md @00dc805. The .gguf (#17120) and the server have sampling defaults:
    # options win, and samplers that are not named are off. With a p-min above 0 a draft ends before
    # a token with a lower share of the draft's ten best (common/speculative.cpp @001d906)
    min_p = ";min_p" * (its.min_p != MISSING)
    return f"""\
# TARGET.gguf, DRAFT.gguf: {its.target_path_literal} and {its.draft_path_literal}
# by convert_hf_to_gguf.py; in other number formats they have another acceptance
llama-server --model TARGET.gguf --spec-draft-model DRAFT.gguf --spec-type draft-simple \\
  --top-k {its.top_k} --top-p {its.top_p} \\
  --min-p {its.min_p} \\
  --samplers 'temperature;top_k;top_p{min_p}' --temp {its.temperature} \\
  --spec-draft-n-max {its.gamma} --spec-draft-n-min 0 --spec-draft-p-min {its.threshold}"""


def _transformers(its: Texts) -> str:
    # 5.23.0: src/transformers/generation/configuration_utils.py, candidate_generator.py. `generate`
    # fills what a call leaves open from generation_config.json, of the draft too: so both get
    # settings of their own. Where fewer than gamma tokens fit it drafts one less, for the bonus.
    # Two vocabularies, at T = 0: AssistedCandidateGeneratorDifferentTokenizers, which writes text.
    # No threshold: a draft would end after the unsure token (ConfidenceCriteria), and where
    # scikit-learn is installed update_candidate_strategy would change it
    tokenizers = ", tokenizer=of_target, assistant_tokenizer=of_draft" * (its.both != MISSING)
    return f"""\
from transformers import AutoModelForCausalLM, GenerationConfig
target = AutoModelForCausalLM.from_pretrained(
    {its.target_path_literal},
    revision={its.target_revision_literal},
    dtype={its.target_dtype_literal},
)
draft = AutoModelForCausalLM.from_pretrained(
    {its.draft_path_literal},
    revision={its.draft_revision_literal},
    dtype={its.draft_dtype_literal},
)
# as recorded: nothing else of generation_config.json
target.generation_config = GenerationConfig(
    eos_token_id=target.generation_config.eos_token_id,
    max_new_tokens={its.max_new_tokens},
    do_sample={its.do_sample},
    temperature={its.temperature}, top_k={its.top_k}, top_p={its.top_p},
    min_p={its.min_p},
)
target.generation_config.eos_token_id = {its.stop_ids_literal}
draft.generation_config = GenerationConfig(
    num_assistant_tokens={its.gamma},
    num_assistant_tokens_schedule="constant",
    assistant_confidence_threshold=0.0,
)
from transformers import AutoTokenizer  # not only the {its.common} common tokens are drafted here
of_target, of_draft = map(AutoTokenizer.from_pretrained, {its.both_literal})
# then: target.generate(**inputs, assistant_model=draft{tokenizers})"""


def _tensorrt_llm(its: Texts) -> str:
    # main @04c8822: tensorrt_llm/llmapi/llm_args.py (DraftTargetDecodingConfig) says Draft_Target,
    # the documentation DraftTarget. Of generation_config.json it reads the end tokens only
    return f"""\
cat > draft.yaml <<'END'
disable_overlap_scheduler: true
speculative_config:
  decoding_type: Draft_Target
  max_draft_len: {its.gamma}
  speculative_model: {its.draft_path_literal}
END
trtllm-serve {its.target_path} --config draft.yaml
# every request sets {its.request_json}"""


ENGINES = {  # what writes the lines, by the names of `export --for`
    "vllm": _vllm,
    "sglang": _sglang,
    "llama.cpp": _llama_cpp,
    "transformers": _transformers,
    "tensorrt-llm": _tensorrt_llm,
}
RUN_HEADS = ("vllm", "sglang")  # found to run trained heads in the format of speculators
# found to draft with another vocabulary than the target's. llama.cpp compares the tokens one by one
# (common/speculative.cpp @001d906; --spec-replace went), SGLang too (#23838; TLI is open, #22883),
# TensorRT-LLM asks for one tokenizer (docs/source/features/speculative-decoding.md @04c8822)
JOIN_VOCABULARIES = ("vllm", "transformers")
# found to apply min-p where they draft. vLLM 0.31.0 refuses it (vllm/sampling_params.py,
# _validate_spec_decode; #42802 is open); of SGLang and TensorRT-LLM nothing was found
APPLY_MIN_P = ("llama.cpp", "transformers")
# how far the sizes of the vocabularies may differ, where a check was found: common/speculative.cpp,
# SPEC_VOCAB_MAX_SIZE_DIFFERENCE; transformers would write the drafts of another tokenizer as text
APART = {"llama.cpp": 128, "transformers": 0}
# vLLM's name of the way to draft that is accepted more often, and its rule
DRAWING = {ABOVE: ("probabilistic", "rejection"), BELOW: ("greedy", "point-mass")}
BATCHES = (1, 2, 4, 7)  # requests at a time: their chains of up to 8 tokens fill 63 of 64 places


# ---- of a run and of a log -----------------------------------------------------------------------


def rule_of(run: Run, engine: str) -> str:
    """The rule by which an engine accepts the tokens of a chain at the run's temperature."""
    if run.manifest["profile"]["temperature"] == 0:
        return "greedy"
    return "rejection" if engine == "transformers" else "point-mass"


def why_not(run: Run, engine: str) -> str:
    """Why an engine cannot run the pair, in one line; '' if it can."""
    pair, (target, draft) = run.manifest["pair"], vocabularies(run)
    said, shared, reason = pair["draft"]["tokens_said"], pair["shared_vocabulary"], ""
    if run.by_start:
        if engine not in RUN_HEADS:
            reason = "it is a trained head in the format of speculators"
    elif said < shared:
        # it is trimmed or has another vocabulary: its folder says which, and runs since December
        folder = ModelFolder.local(ModelSpec(pair["draft"]["path"]))
        if folder.trimmed if folder else "own_vocabulary" not in pair["draft"]:
            reason = f"it has {said:,} of {shared:,} tokens, in speclab's own file format"
        elif engine not in JOIN_VOCABULARIES:
            reason = "its vocabulary is not the target's, and no option allows that"
        elif rule_of(run, engine) == "rejection":
            # transformers 5.23.0, AssistantToTargetTranslator: logits in the order of one list of
            # the common tokens are read in the order of another
            reason = (
                "above T = 0 it mixes up q of the tokens that two vocabularies share, so the texts "
                "would not be the target's"
            )
    elif abs(target - draft) > APART.get(engine, math.inf):
        reason = f"its vocabulary has {draft:,} tokens, the target's {target:,}"
    settings = run.manifest["profile"]
    if not reason and settings["temperature"] and settings["min_p"] and engine not in APPLY_MIN_P:
        return (
            f"{engine} is not known to apply min_p where it drafts; record without min_p, or "
            f"export for {' or '.join(APPLY_MIN_P)}"
        )
    without = "record another draft, or let the server draft from n-grams"
    return reason and f"{engine} cannot use this draft: {reason}; {without}"


def vocabularies(run: Run) -> list[int]:
    """Sizes of the target's and the draft's vocabulary, padding included, if the profile's notes
    say them, else the shared size.
    """
    notes, shared = run.manifest["profile"]["notes"], run.manifest["pair"]["shared_vocabulary"]
    sizes = [notes[f"{name}_config"].get("vocab_size") for name in MODELS]
    return [size if isinstance(size, int) else shared for size in sizes]


def has_two_vocabularies(run: Run) -> bool:
    """Whether vLLM has to join the vocabularies: a draft model's is another, or of another size."""
    pair = run.manifest["pair"]
    is_other = pair["draft"]["tokens_said"] < pair["shared_vocabulary"]
    return not run.by_start and (is_other or len({*vocabularies(run)}) > 1)


def stop_rule(starts: pd.DataFrame, costs: Costs) -> tuple[Estimates, tuple[float, int]]:
    """How much faster the best stop rule is than the best gamma, both fitted on other prompts, and
    the threshold and limit that most prompts get. starts: of `stopping.chains`.
    """
    starts = starts.assign(domain=stats.UNNAMED)  # a server has one rule for all prompts
    methods = stopping.FIXED, stopping.CONFIDENCE
    fixed, best = (stopping.fit_rule(starts, costs, name) for name in methods)
    speed = choose.speeds({"fixed": fixed, "best": best})
    gain = speed.table({"": speed["best"] / speed["fixed"] - 1})
    rules = best.judged[["threshold", "limit"]].value_counts()
    return gain.at(domain=score.POOLED), rules.index.tolist()[0]


def recommend(run: Run, engine: str, found: PairCosts) -> tuple[list[str], str]:
    """What an engine is told of a pair: sentences that say why, and the lines of `commands`."""
    settings, rule = run.manifest["profile"], rule_of(run, engine)
    stats.LEVEL = settings["level"]
    notes = [f"intervals: {100 * stats.LEVEL:g} %", f"costs: {found.source}"]
    values: Facts = {}
    # vLLM takes the draft's best tokens, or draws them from the whole q: top_mass[1] or alpha
    is_whole = OFF.items() <= settings.items() and not has_two_vocabularies(run)
    if engine == "vllm" and rule == "point-mass" and is_whole:
        best = np.stack(run.trace["top_draft_p"])[:, 0]
        rows = run.trace.assign(more=run.trace["overlap"] - best)
        more = stats.by_domain(rows, score.mean_of("more")).at(domain=score.POOLED)
        if more.verdict() in DRAWING:
            values["drawing"], rule = DRAWING[more.verdict()]
            notes.append(
                "acceptance of a block's first token, drawn minus the draft's best: "
                f"{more.in_units('points', 1)}"
            )
    # as many tokens as pay, for one request and, where it was measured, for several at a time
    limit = settings["max_new_tokens"]
    best_for = {
        batch: choose.best_gamma(run.trace, replace(found.costs, batch=batch), rule, limit)
        for batch in (BATCHES if found.runs else BATCHES[:1])
    }
    gamma, said = best_for[1]
    if found.runs:
        by_batch = {batch: each for batch, (each, _) in best_for.items()}
        notes.append(f"gamma by requests at a time: {by_batch}")
    # a draft may end where it is unsure
    can_stop = gamma and rule == "greedy" and engine == "llama.cpp"
    if can_stop and (chained := recorded_run(profile_of(run), "chain")):
        gain, its = stop_rule(stopping.chains(chained.nodes, limit), found.costs)
        is_faster = gain.verdict() == ABOVE
        if is_faster:
            values["threshold"], gamma = its
        notes.append(
            f"a draft ends {'where it is unsure or ' * is_faster}after {gamma} tokens: ending it "
            f"where it is unsure changes the best gamma's speed by {gain.in_units('%', 1)}"
        )
    return [said, *notes], commands(run, engine, gamma, **values)


def commands(run: Run, engine: str, gamma: int, **more: object) -> str:
    """The shell or Python lines that run the pair with chains of `gamma` tokens; '' for gamma = 0,
    because a server drafts nothing by default. ValueError for a name with control characters.
    """
    pair, settings = run.manifest["pair"], run.manifest["profile"]
    is_sampled = settings["temperature"] > 0
    names = ["temperature", *["top_k", "top_p"] * is_sampled]
    names += ["min_p"] * (is_sampled and settings["min_p"] > 0)
    drawn = {name: settings[name] for name in names}
    values = {f"{name}_{key}": value for name in MODELS for key, value in pair[name].items()}
    is_target_alone = values["target_quantised"] > values["draft_quantised"]
    values |= drawn | {
        "request": {name: value for name, value in drawn.items() if value != OFF.get(name)},
        "do_sample": is_sampled,
        "max_new_tokens": settings["max_new_tokens"],
        "stop_ids": run.manifest["stop_ids"] or None,
        # what turns a server's own defaults off
        "generation_config": "vllm",
        "sampling_defaults": "openai",
        "unquant": "unquant" if is_target_alone else None,
    }
    if run.by_start:
        values |= {"layers": "layers", "method": "eagle3", "algorithm": "EAGLE3"}
    else:
        common = values["draft_tokens_said"]  # a trimmed draft is refused
        if common < pair["shared_vocabulary"]:
            values |= {"common": f"{common:,}", "both": [pair[name]["path"] for name in MODELS]}
        values["own_vocabularies"] = has_two_vocabularies(run) or None
    return _written(engine, gamma, values | more)


def commands_of_log(engine: str, gamma: int) -> str:
    """The lines that draft chains of `gamma` tokens, as `commands` writes them. TARGET and DRAFT
    stand for the models, which a log does not name.
    """
    return _written(engine, gamma, {f"{name}_path": name.upper() for name in MODELS})


def _written(engine: str, gamma: int, values: Facts) -> str:
    """The lines of an engine without those that lack a value; '' for gamma = 0. ValueError for a
    name with control characters, which a terminal would obey.
    """
    of_chains = {
        "method": "draft_model",
        "algorithm": "STANDALONE",
        "gamma": gamma,
        "threshold": 0.0,
    }
    given = {name: value for name, value in (of_chains | values).items() if value is not None}
    texts = Texts(**{name + end: way(given[name]) for name in given for end, way in WAYS.items()})
    lines = ENGINES[engine](texts).splitlines() if gamma else []
    return "\n".join(line for line in lines if MISSING not in line)

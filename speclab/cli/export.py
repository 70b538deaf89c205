"""From a trace to a server: the lines that make other engines draft what a recorded run recommends.

A function per engine writes its lines. The comment in it says where the options were looked up, in
November 2026. Only chains are exported, because no engine drafts trees with a draft model.
"""

import json
import math
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from speclab.models.folder import ModelFolder
from speclab.plain import Facts, ModelSpec, shown
from speclab.study.profiles import MODELS, ROOT, load_profile
from speclab.study.runs import Run, RunError, load_run, recorded_run

OFF = {"top_k": 0, "top_p": 1}  # not sent: some servers refuse a top_k of 0
MISSING = "\0"  # stands for a value that is not known; a line with it is not printed


def run_named(name: str) -> Run:
    """The run or trace in a folder, a trace that comes with the kit (smollm/sampled), or the greedy
    run of a profile. RunError if it is not recorded yet.
    """
    for folder in (Path(name), ROOT / name, ROOT / "data/traces" / name):
        if (folder / "manifest.json").is_file():
            return load_run(folder)
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
    # vocab_mapping.py @0f17ee0 and #38174; the draft proposes its best tokens, above T = 0 too
    return f"""\
# compare the server's acceptance with the recording's: some releases ignore the head's {its.layers}
# expect a lower acceptance: the draft reads all but {its.common} tokens as one unknown token there
vllm serve {its.target_path} \\
  --revision {its.target_revision} \\
  --generation-config {its.generation_config} \\
  --speculative-config '{{"method": {its.method_json}, "model": {its.draft_path_json},
    "revision": {its.draft_revision_json},
    "use_heterogeneous_vocab": {its.own_vocabularies_json},
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
    # options win, and samplers that are not named are off. With a p-min above 0 a draft ends where
    # the draft is not sure
    return f"""\
# TARGET.gguf, DRAFT.gguf: {its.target_path_literal} and {its.draft_path_literal}
# by convert_hf_to_gguf.py; in other number formats they have another acceptance
llama-server --model TARGET.gguf --spec-draft-model DRAFT.gguf --spec-type draft-simple \\
  --top-k {its.top_k} --top-p {its.top_p} \\
  --samplers 'temperature;top_k;top_p' --temp {its.temperature} \\
  --spec-draft-n-max {its.gamma} --spec-draft-n-min 0 --spec-draft-p-min 0.0"""


def _transformers(its: Texts) -> str:
    # 5.23.0: src/transformers/generation/configuration_utils.py, candidate_generator.py. `generate`
    # fills what a call leaves open from generation_config.json, of the draft too: so both get
    # settings of their own. Where fewer than gamma tokens fit it drafts one less, for the bonus.
    # Two vocabularies, at T = 0: AssistedCandidateGeneratorDifferentTokenizers, which writes text
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
# how far the sizes of the vocabularies may differ, where a check was found: common/speculative.cpp,
# SPEC_VOCAB_MAX_SIZE_DIFFERENCE; transformers would write the drafts of another tokenizer as text
APART = {"llama.cpp": 128, "transformers": 0}


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
    without = "record another draft, or let the server draft from n-grams"
    return reason and f"{engine} cannot use this draft: {reason}; {without}"


def vocabularies(run: Run) -> list[int]:
    """Sizes of the target's and the draft's vocabulary, padding included, if the profile's notes
    say them, else the shared size.
    """
    notes, shared = run.manifest["profile"]["notes"], run.manifest["pair"]["shared_vocabulary"]
    sizes = [notes[f"{name}_config"].get("vocab_size") for name in MODELS]
    return [size if isinstance(size, int) else shared for size in sizes]


def commands(run: Run, engine: str, gamma: int) -> str:
    """The shell or Python lines that run the pair with chains of `gamma` tokens; '' for gamma = 0,
    because a server drafts nothing by default. ValueError for a name with control characters.
    """
    pair, settings = run.manifest["pair"], run.manifest["profile"]
    is_sampled = settings["temperature"] > 0
    drawn = {name: settings[name] for name in ("temperature", *["top_k", "top_p"] * is_sampled)}
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
        is_other = common < pair["shared_vocabulary"]
        if is_other:
            values |= {"common": f"{common:,}", "both": [pair[name]["path"] for name in MODELS]}
        values["own_vocabularies"] = is_other or len({*vocabularies(run)}) > 1 or None
    return _written(engine, gamma, values)


def commands_of_log(engine: str, gamma: int) -> str:
    """The lines that draft chains of `gamma` tokens, as `commands` writes them. TARGET and DRAFT
    stand for the models, which a log does not name.
    """
    return _written(engine, gamma, {f"{name}_path": name.upper() for name in MODELS})


def _written(engine: str, gamma: int, values: Facts) -> str:
    """The lines of an engine without those that lack a value; '' for gamma = 0. ValueError for a
    name with control characters, which a terminal would obey.
    """
    of_chains = {"method": "draft_model", "algorithm": "STANDALONE", "gamma": gamma}
    given = {name: value for name, value in (of_chains | values).items() if value is not None}
    texts = Texts(**{name + end: way(given[name]) for name in given for end, way in WAYS.items()})
    lines = ENGINES[engine](texts).splitlines() if gamma else []
    return "\n".join(line for line in lines if MISSING not in line)

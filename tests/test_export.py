"""`export`: its lines are valid for a shell, a JSON or YAML reader and transformers. Also: rejected
input and the recommendation.
"""

import ast
import copy
import json
import shutil
import subprocess
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from conftest import edit_json, save_random_llama
from test_choose import COSTS, random_trace, trace_of
from test_stopping import nodes_of, sure
from test_translated import DRAFT as OTHER
from test_translated import TARGET as ONE

from speclab.__main__ import main
from speclab.cli import export
from speclab.cost import Costs
from speclab.decode import decode_prompt
from speclab.lab import choose
from speclab.logs import logs
from speclab.sampling import Sampling, entropy
from speclab.shapes import parse_shape
from speclab.study import timing_runs
from speclab.study.pairs import load_pair
from speclab.study.profiles import MODELS, ROOT, load_profile
from speclab.study.runs import RunError, encoded_prompts, record_run, texts_of

TARGET, DRAFT = "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen/Qwen2.5-0.5B-Instruct"
AT, OF = ("e9c932ac1893a49ae0fc497ad6e1e86e2e39af20", "7ae557604adf67be50417f59c2c2f167def9a775")
CONFIG = (
    f'{{"method": "draft_model", "model": "{DRAFT}", "revision": "{OF}", '
    '"use_heterogeneous_vocab": true, "num_speculative_tokens": 3'
)
OWN = "--generation-config vllm"
SAID = {
    "vllm": f"serve {TARGET} --revision {AT} {OWN} --speculative-config {CONFIG}}}",
    "sglang": f"-m sglang.launch_server --model-path {TARGET} --revision {AT} "
    "--sampling-defaults openai "
    f"--speculative-draft-model-revision {OF} --speculative-draft-model-quantization unquant "
    f"--speculative-algorithm STANDALONE --speculative-draft-model-path {DRAFT} "
    "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
    "llama.cpp": "--model TARGET.gguf --spec-draft-model DRAFT.gguf --spec-type "
    "draft-simple --samplers temperature;top_k;top_p --temp 0.0 --spec-draft-n-max 3 "
    "--spec-draft-n-min 0 --spec-draft-p-min 0.0",
    "tensorrt-llm": f"{TARGET} --config draft.yaml",
}


@pytest.fixture(scope="module")
def tiny():
    """The greedy trace of the tiny pair."""
    return export.run_named("tiny/greedy")


@pytest.fixture(scope="module")
def qwen(tiny):
    """The same trace as if it were of a pair of the hub: a quantised target, padded otherwise."""
    settings = asdict(load_profile("qwen"))
    said = {"tokens_said": 151936}
    models = {m: settings[m] | said | {"quantised": m == "target"} for m in MODELS}
    pair = models | {"shared_vocabulary": 151936}
    return replace(tiny, manifest=tiny.manifest | {"profile": settings, "pair": pair})


# a program that prints its arguments, each followed by a zero byte
STUB = "#!/bin/sh\nprintf '%s\\0' \"$@\"\n"


@pytest.fixture
def told(tmp_path):
    """Arguments that programs get from lines that a shell reads, and the files that appear, as YAML
    values.
    """
    stubs, place = tmp_path / "stubs", tmp_path / "place"
    for folder in (stubs, place):
        folder.mkdir()
    for name in ("vllm", "python3", "llama-server", "trtllm-serve"):
        (stubs / name).write_text(STUB)
        (stubs / name).chmod(0o755)
    (stubs / "cat").symlink_to(shutil.which("cat"))

    def run(shell, text):
        command = [shutil.which(shell), "-euc", text]
        said = subprocess.check_output(command, cwd=place, env={"PATH": str(stubs)}, text=True)
        files = {file.name: yaml.safe_load(file.read_text()) for file in place.iterdir()}
        return said.split("\0")[:-1], files

    return run


@pytest.mark.parametrize("engine", SAID)
def test_a_shell_reads_what_the_engine_is_told(qwen, engine, told):
    words, files = told("bash", export.commands(qwen, engine, 3))
    assert " ".join(" ".join(words).split()) == SAID[engine]
    draft = {"decoding_type": "Draft_Target", "max_draft_len": 3, "speculative_model": DRAFT}
    config = {"disable_overlap_scheduler": True, "speculative_config": draft}
    assert files == ({"draft.yaml": config} if engine == "tensorrt-llm" else {})
    for word in words:
        assert not word.startswith("{") or json.loads(word)["model"] == DRAFT


@pytest.fixture(scope="module")
def asking(short_profile, tmp_path_factory):
    """A profile whose models, two copies of one, ask in their own settings of generation for other
    texts.
    """
    root, profile = tmp_path_factory.mktemp("asking"), short_profile.replace(max_new_tokens=12)
    settings = {"do_sample": True, "temperature": 0.6, "top_k": 3, "min_p": 0.3}
    settings |= {"repetition_penalty": 1.3, "suppress_tokens": [*range(3, 20)]}
    spec = profile.target
    for name in MODELS:
        folder = shutil.copytree(spec.path, root / name)
        edit_json(folder / "generation_config.json", **settings)
        profile = profile.replace(**{name: replace(spec, path=str(folder))})
    return profile


def of_printed(run, gamma):
    """The target and the draft that the printed lines of transformers load, and how `generate`
    continues a prompt as the last line says.
    """
    made = {}
    text = export.commands(run, "transformers", gamma)
    exec(text, made)
    call = text.rpartition("# then: ")[2]

    def generate(prompt, **options):
        ids = torch.tensor([prompt.ids])
        made["inputs"] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)} | options
        return eval(call, made)

    return made["target"], generate


@pytest.fixture(scope="module")
def two_vocabularies(short_profile, tmp_path_factory):
    """A profile of two random models with the tokenizers of `test_translated`."""
    root, profile = tmp_path_factory.mktemp("two"), short_profile.replace(max_new_tokens=16)
    for seed, (name, tokenizer) in enumerate(zip(MODELS, (ONE, OTHER), strict=True)):
        folder = save_random_llama(root / name, seed, len(tokenizer))
        tokenizer.save_pretrained(folder)
        profile = profile.replace(**{name: replace(profile.target, path=str(folder))})
    return profile


@pytest.mark.parametrize("name", ["asking", "two_vocabularies"])
def test_the_printed_lines_of_transformers_write_the_recorded_greedy_texts(name, request, tmp_path):
    profile = request.getfixturevalue(name)
    run, pair = record_run(profile, tmp_path / "run"), load_pair(profile)
    target, generate = of_printed(run, 3)
    texts, read = texts_of(run), []
    target.register_forward_pre_hook(lambda *_: read.append(1))
    for prompt in encoded_prompts(profile):
        read.clear()
        text = generate(prompt)[0, len(prompt.ids) :].tolist()
        assert text == list(texts[prompt.prompt_id])
        shape = parse_shape("chain:3")
        own = decode_prompt(pair, prompt, "greedy", shape, Sampling(), profile.max_new_tokens)
        # of two vocabularies transformers drafts texts, and other ones
        is_one = name == "asking"
        assert len(read) == own.target_passes or not is_one, "the draft proposes what was recorded"
    assert export.why_not(run, "transformers") == ""
    assert ("own_vocabulary" in run.manifest["pair"]["draft"]) != is_one


def test_the_printed_lines_of_transformers_sample_as_recorded(asking, tmp_path):
    warm = asking.replace(temperature=0.8, top_k=9, top_p=0.9, min_p=0.2)
    run = record_run(warm, tmp_path / "run")
    _, generate = of_printed(run, 3)
    first = run.trace[run.trace["position"] == 0].set_index("prompt_id")
    for prompt in encoded_prompts(warm):
        asked = {"output_scores": True, "return_dict_in_generate": True}
        p = generate(prompt, **asked).scores[0][0].softmax(-1)
        row = first.loc[prompt.prompt_id]
        assert p[row["token"]].item() == pytest.approx(row["p_token"], abs=1e-4)
        assert entropy(p).item() == pytest.approx(row["target_entropy"], abs=1e-4)


def test_a_server_is_told_how_the_texts_were_sampled(tiny, told):
    run = copy.deepcopy(tiny)
    run.manifest["profile"] |= {"temperature": 0.8, "top_k": 9, "top_p": 0.9}
    words, _ = told("bash", export.commands(run, "llama.cpp", 3))
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert [options[f"--{name}"] for name in ("temp", "top-k", "top-p")] == ["0.8", "9", "0.9"]
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        request = export.commands(run, engine, 3).partition("every request sets ")[2]
        asked = json.loads(request.splitlines()[0])
        assert asked == {"temperature": 0.8, "top_k": 9, "top_p": 0.9}
        assert '{"temperature": 0.0}' in export.commands(tiny, engine, 3)
    run.manifest["profile"] |= {"min_p": 0.1}
    words, _ = told("bash", export.commands(run, "llama.cpp", 3))
    assert words[words.index("--min-p") + 1] == "0.1" and "top_p;min_p" in str(words)
    assert export.why_not(run, "llama.cpp") == ""
    assert "vllm is not known to apply min_p" in export.why_not(run, "vllm")


@pytest.mark.parametrize("engine", [*SAID, "transformers"])
def test_a_draft_that_an_engine_cannot_use_is_refused(engine, qwen, tiny, capsys):
    assert main(["export", "smollm/greedy", "--for", engine]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "10,240 of 49,152 tokens" in said
    assert export.why_not(tiny, engine) == ""
    padded = export.why_not(qwen, engine)  # by 128 tokens
    assert ("151,936 tokens, the target's 152,064" in padded) == (engine not in SAID)


# ---- two vocabularies ----------------------------------------------------------------------------


def of_two(run, path="data/pairs/smollm/target", temperature=0.0, **facts):
    """A run as if its draft, in the folder `path`, had another vocabulary than its target."""
    run = copy.deepcopy(run)
    run.manifest["profile"]["temperature"] = temperature
    run.manifest["pair"]["shared_vocabulary"] = 151936
    run.manifest["pair"]["draft"] |= {"path": path, "tokens_said": 39237} | facts
    return run


# why an engine cannot use a draft with another vocabulary, at T = 0 and above; "": it can
OF_TWO = dict.fromkeys(export.ENGINES, ("its vocabulary is not the target's",) * 2)
OF_TWO |= {"vllm": ("", ""), "transformers": ("", "mixes up q")}


@pytest.mark.parametrize("engine", export.ENGINES)
def test_which_engines_draft_with_another_vocabulary(engine, tiny):
    for temperature, reason in zip((0.0, 0.7), OF_TWO[engine], strict=True):
        run = of_two(tiny, temperature=temperature)
        said = export.why_not(run, engine)
        assert reason in said and bool(reason) == bool(said)
        # of a draft that is not on this machine, a run says it
        away = of_two(tiny, "not/here", temperature, own_vocabulary=49152)
        assert export.why_not(away, engine) == said
        is_told = ["use_heterogeneous_vocab" in export.commands(r, engine, 3) for r in (tiny, run)]
        assert is_told == [False, engine == "vllm"]


@pytest.mark.parametrize("engine", export.ENGINES)
def test_no_engine_uses_a_trimmed_draft_whatever_its_vocabulary(engine, tiny):
    trimmed = of_two(tiny, "data/pairs/smollm/draft", own_vocabulary=49152)
    for run in (trimmed, of_two(tiny, "not/here")):
        assert "39,237 of 151,936 tokens, in speclab's own" in export.why_not(run, engine)


# ---- trained heads -------------------------------------------------------------------------------

SAID_OF_HEAD = {
    "vllm": f"serve data/pairs/smollm/target {OWN} --speculative-config "
    '{"method": "eagle3", "model": "data/pairs/smollm/head", "num_speculative_tokens": 1}',
    "sglang": "-m sglang.launch_server --model-path data/pairs/smollm/target "
    "--sampling-defaults openai --speculative-algorithm EAGLE3 --speculative-draft-model-path "
    "data/pairs/smollm/head --speculative-num-steps 1 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 2",
}


@pytest.mark.parametrize("engine", export.ENGINES)
def test_a_head_is_written_for_the_engines_that_run_one(engine, told):
    run = export.run_named("smollm-head/greedy")
    if engine not in SAID_OF_HEAD:
        assert "cannot use this draft: it is a trained head" in export.why_not(run, engine)
        return
    assert export.why_not(run, engine) == ""
    words, _ = told("bash", export.commands(run, engine, 1))
    assert " ".join(" ".join(words).split()) == SAID_OF_HEAD[engine]


def test_the_smallest_gamma_that_is_not_significantly_slower_than_the_fastest():
    costs = Costs.assumed(0.1)
    for rank, best in ((0, 8), (3, 0)):
        texts = {f"{d}-{i}": (d, [rank] * 72) for d in "ab" for i in range(6)}
        found, said = choose.best_gamma(trace_of(texts), costs, "greedy", None)
        assert found == best and said.count("chain:") == (best > 0)
    gamma, said = choose.best_gamma(random_trace(), COSTS, "greedy", None)
    assert 0 < gamma < 8 and f"such gammas: chain:{gamma} " in said
    assert said.count("chain:") > 1, "several are not significantly slower here"


@pytest.mark.parametrize(("a", "b"), [(1, 6), (1, 1)])
def test_a_gamma_of_few_prompts_is_not_plain_for_want_of_intervals(a, b):
    sizes = {"a": a, "b": b}
    texts = {f"{d}-{i}": (d, [0] * 72) for d, size in sizes.items() for i in range(size)}
    gamma, said = choose.best_gamma(trace_of(texts), Costs.assumed(0.1), "greedy", None)
    assert gamma == 8
    assert ("too few prompts for an interval" in said) == (a + b < 5) == ("[" not in said)


# ---- several requests, drawn drafts, drafts that end early ---------------------------------------


def planted(run, **columns):
    """A run with other columns in its trace."""
    other = replace(run)
    vars(other)["trace"] = run.trace.assign(**columns)
    return other


def recommended(run, engine, costs=COSTS, runs=()):
    notes, lines = export.recommend(run, engine, timing_runs.PairCosts(costs, runs, "known."))
    return "\n".join(notes), lines


def test_gamma_by_requests_at_a_time(tiny):
    """All drafts are right and a pass takes as long over 8 tokens as over one, so the best chains
    make a batch 8 tokens wide. By hand for 7 requests: 2 tokens in 0.1 + 14 / 8 < 2.
    """
    costs = Costs(1.0, (1, 8, 64), (0.1, 0.1, 0.8), (1.0, 1.0, 8.0))
    right = planted(tiny, draft_rank=0)
    said, _ = recommended(right, "sglang", costs, (costs,))
    assert "at a time: {1: 7, 2: 3, 4: 1, 7: 1}" in said


DRAWN = "drawn minus the draft's best: "


@pytest.mark.parametrize(
    ("more", "way", "rule"),
    [
        (0.1, "probabilistic", "rejection"),
        (-0.1, "greedy", "point-mass"),
        (0.0, "", "point-mass"),
    ],
)
def test_vllm_drafts_in_the_way_that_is_accepted_more(more, way, rule):
    sampled = export.run_named("tiny/sampled")
    run = planted(sampled, overlap=sampled.trace["top_draft_p"].str[0] + more)
    cheap = Costs.assumed(0.05)
    said, lines = recommended(run, "vllm", cheap)
    assert (f'"draft_sample_method": "{way}"' in lines) == (DRAWN in said) == bool(way)
    # the chain is as long as this way of drafting makes it worth
    assert said.startswith(choose.best_gamma(run.trace, cheap, rule, 64)[1])


@pytest.mark.parametrize(
    ("position", "is_faster"), [(sure, True), (lambda right: (right, [0.9] * 4), False)]
)
def test_a_draft_ends_early_where_that_is_faster(tiny, monkeypatch, position, is_faster):
    """Drafts are right for 0 to 4 tokens, and sure exactly as far, or equally sure of all."""
    runs = np.random.default_rng(1).integers(0, 5, (12, 30)).tolist()
    texts = {i: ("code", [*map(position, each)]) for i, each in enumerate(runs)}
    chained = SimpleNamespace(nodes=nodes_of(texts))
    monkeypatch.setattr(export, "recorded_run", lambda *_: chained)
    said, lines = recommended(tiny, "llama.cpp")
    assert ("ends where it is unsure or after 4 tokens" in said) == is_faster
    assert ("p-min 0.0" in lines) != is_faster


def test_a_folder_without_a_run_is_said():
    with pytest.raises(RunError, match="smollm is no finished run"):
        export.run_named(str(ROOT / "data/traces/smollm"))


def test_where_neither_is_tried(tiny, monkeypatch):
    monkeypatch.setattr(export, "recorded_run", None)  # a call would fail
    sampled = export.run_named("tiny/sampled")
    of_top = copy.deepcopy(sampled)
    of_top.manifest["profile"] |= {"top_k": 9}  # vLLM draws from the whole q
    for run, engine in ((tiny, "vllm"), (of_top, "vllm"), (sampled, "llama.cpp")):
        assert DRAWN not in recommended(run, engine)[0]
    monkeypatch.setattr(export, "vocabularies", lambda _: [1, 2])
    assert "sample_method" not in recommended(sampled, "vllm")[1], "vLLM refuses it then"


# ---- from a log ----------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", SAID)
def test_a_shell_reads_what_a_log_recommends(engine, told):
    words, files = told("bash", export.commands_of_log(engine, 3))
    # a log does not say how its texts were drawn, so the server keeps its own settings
    own = {"--generation-config", "--sampling-defaults", "--samplers", "--temp", "--revision"}
    assert not own & {*words} and "TARGET" in " ".join([*words, str(files)])
    configs = [yaml.safe_load(word) for word in words if word.startswith("{")]
    assert [config["num_speculative_tokens"] for config in configs] == [3] * (engine == "vllm")


def test_the_gamma_of_a_log_has_the_highest_lower_bound(tmp_path, capsys):
    logs.save(logs.opened(ROOT / "data" / "logs" / "smollm.jsonl.gz"), tmp_path / "log")
    command = ["export", str(tmp_path / "log"), "--for", "vllm", "--c"]
    assert main([*command, "0.05"]) == 0
    said = capsys.readouterr().out
    assert "# Use gamma = 4." in said and '"num_speculative_tokens": 4' in said
    assert "chains of a draft model at T = 0" in said
    assert main([*command, "0.9"]) == 0
    said = capsys.readouterr().out
    assert "# Use gamma = 0." in said and "start the server without a draft model" in said
    assert main(command[:-1]) == 2
    assert "--c must name the cost" in capsys.readouterr().err


def test_a_log_that_decides_no_gamma_is_refused(tmp_path, capsys):
    line = {"question_id": 1, "choices": [{"idxs": [1], "new_tokens": [4]}]}
    (tmp_path / "log.jsonl").write_text(json.dumps(line))
    logs.save(logs.opened(tmp_path / "log.jsonl"), tmp_path / "log")
    assert main(["export", str(tmp_path / "log"), "--for", "sglang", "--c", "0.1"]) == 2
    assert "totals per request" in capsys.readouterr().err


# ---- names of others -----------------------------------------------------------------------------

CANARY = "canary"  # a file that appears where a shell runs a part of a name
NAMES = (
    "a  folder/of two words",
    "it's",
    'say "hi" \\"',
    f"`: >{CANARY}`",
    f"$(: >{CANARY})",
    "$HOME/${target}/$unknown/$",
    f"a; : >{CANARY} & : >{CANARY} #",
    f"'; : >{CANARY}; '",
    f"' '\"`: >{CANARY}`\"'\\''",
    "END",
    "100 %s %d",
    "größe/名前/\U0001f600",
    "C:\\new\\table\\",
    "*/~/{a,b}/[x]!!",
    "true",
    "# none",
    "a: &b !!python/name:os.system",
)


def of_names(run, path):
    """A run as if both models had this path, and revisions with it."""
    run = copy.deepcopy(run)
    for model in MODELS:
        run.manifest["pair"][model] |= {"path": path, "revision": f"of {path}"}
    return run


def constants(text):
    """The values in lines of Python."""
    return [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]


@pytest.mark.parametrize(
    ("engine", "shell"),
    [(engine, shell) for engine in SAID for shell in ("bash", "sh")] + [("transformers", "python")],
)
def test_a_name_stays_one_value_and_no_part_of_it_is_run(engine, shell, tiny, told):
    def values(name):
        """All that a program gets, the JSON in its words as values."""
        text = export.commands(of_names(tiny, name), engine, 1)
        if shell == "python":
            return constants(text)
        words, files = told(shell, text)
        return [json.loads(word) if word.startswith('{"') else word for word in words], files

    plain = json.dumps(values("NAME"))
    for name in NAMES:
        wanted = plain.replace('"NAME"', json.dumps(name))
        wanted = wanted.replace('"of NAME"', json.dumps(f"of {name}"))
        assert json.dumps(values(name)) == json.dumps(json.loads(wanted))


def test_a_name_is_no_option_of_a_program(tiny, told):
    words, _ = told("sh", export.commands(of_names(tiny, "-rf"), "sglang", 1))
    assert words.count("./-rf") == 2 and "-rf" not in words


@pytest.mark.parametrize("name", ["\x1b]0;title", "\x7f", "\u202e", f"two\n: >{CANARY}\nlines"])
def test_a_name_that_a_terminal_would_obey_is_refused(name, tiny):
    with pytest.raises(ValueError, match=r"the name [\\ -~]* holds control characters"):
        export.commands(of_names(tiny, name), "transformers", 1)


def test_whose_machine_was_measured_is_said_in_a_comment(tiny, told, monkeypatch, capsys):
    found = timing_runs.PairCosts(Costs.assumed(9), (), f"cpu\n: >{CANARY}\r: >{CANARY}")
    monkeypatch.setattr(timing_runs, "costs_for", lambda *_: found)
    assert main(["export", "tiny/greedy", "--for", "sglang"]) == 0
    text = capsys.readouterr().out
    assert r"cpu\n: >" in text and told("sh", text) == ([], {}), "where no draft pays"

"""What a server is told: lines that a shell, a JSON or YAML reader and transformers take, with
names that each engine has; who is refused; what is recommended; the speculation profile.
"""

import ast
import copy
import datetime
import json
import re
import shutil
import subprocess
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from bench import of_library
from test_choose import COSTS, random_trace, trace_of
from test_decode import tiny_prompts

from speclab.__main__ import main
from speclab.analysis import choose, policy
from speclab.cost import Costs
from speclab.decode import decode_prompt
from speclab.draft import parse_shape
from speclab.ops import export
from speclab.profiles import MODELS, ROOT, load_profile
from speclab.sampling import Sampling

TARGET, DRAFT = "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen/Qwen2.5-0.5B-Instruct"
AT, OF = ("e9c932ac1893a49ae0fc497ad6e1e86e2e39af20", "7ae557604adf67be50417f59c2c2f167def9a775")
CONFIG = (
    f'{{"method": "draft_model", "model": "{DRAFT}", "revision": "{OF}", '
    '"use_heterogeneous_vocab": true, "num_speculative_tokens": 3'
)
RATES = "[0.612749, 0.404288, 0.276799]"
SAID = {
    "vllm": f"vllm serve {TARGET} --revision {AT} --speculative-config {CONFIG}}}\n"
    f"vllm serve {TARGET} --revision {AT} --speculative-config {CONFIG}, "
    f'"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": {RATES}}}',
    "sglang": f"python3 -m sglang.launch_server --model-path {TARGET} --revision {AT} "
    f"--speculative-draft-model-revision {OF} --speculative-draft-model-quantization unquant "
    f"--speculative-algorithm STANDALONE --speculative-draft-model-path {DRAFT} "
    "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
    "llama.cpp": "llama-server --model TARGET.gguf --spec-draft-model DRAFT.gguf --spec-type "
    "draft-simple --spec-draft-n-max 3 --spec-draft-n-min 0 --spec-draft-p-min 0.0",
    "tensorrt-llm": f"trtllm-serve {TARGET} --config draft.yaml",
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


@pytest.mark.parametrize("engine", SAID)
def test_a_shell_reads_what_the_engine_knows(qwen, engine, tmp_path):
    program, known = SAID[engine].split()[0], export.engines()[engine]
    script = f"{program}() {{ echo {program} $@; }}\n" + export.commands(qwen, engine, 3)
    said = subprocess.check_output(["bash", "-euc", script], cwd=tmp_path, text=True)
    assert said.strip() == SAID[engine]
    assert {*re.findall(r" (--[a-z-]+)", said)} <= {*known["options"]}
    settings = said.rpartition("-config ")[2] if engine == "vllm" else "{}"
    if engine == "tensorrt-llm":
        settings = (tmp_path / "draft.yaml").read_text()
        assert f'max_draft_len: 3\n  speculative_model: "{DRAFT}"\n' in settings
    read = yaml.safe_load(settings)
    assert {*read, *read.get("speculative_config", {})} <= {*known.get("keys", [])}


def test_transformers_makes_the_same_texts_in_the_same_blocks(tiny, tiny_pair, monkeypatch):
    monkeypatch.chdir(ROOT)
    made, read, new, gamma = {}, [], 24, 4
    exec(export.commands(tiny, "transformers", gamma), made)
    target, draft = made["target"], made["draft"]
    known = export.engines()["transformers"]["options"]
    assert {*known} <= {*vars(draft.generation_config)}

    def seen(_, __, given):
        read.append(given["input_ids"].shape[1])

    target.register_forward_pre_hook(seen, with_kwargs=True)
    theirs = SimpleNamespace(target=SimpleNamespace(network=target))
    ours = replace(tiny_pair, stop_ids=frozenset())
    shape = parse_shape(f"chain:{gamma}")
    for prompt in tiny_prompts(tiny_pair, 1):
        read.clear()
        text = of_library(theirs, prompt, new, assistant_model=draft).ids
        own = decode_prompt(ours, prompt, "greedy", shape, Sampling(), new)
        assert text == own.token_ids and len(read) == own.target_passes
        lengths = [len(step.tokens) for step in own.steps]
        left = new - np.cumsum([0, *lengths[:-1]])
        # a pass reads the draft behind the text's last token, the first one behind the prompt
        read[0] -= len(prompt.ids) - 1
        # at the end ours drafts all that fits, theirs leaves room for the bonus
        assert [n - 1 for n in read] == np.minimum(gamma, left - 1).tolist()
        drafted = [step.drafted for step in own.steps]
        assert drafted == np.minimum(gamma, left).tolist()


@pytest.mark.parametrize("engine", [*SAID, "transformers"])
def test_a_draft_that_an_engine_cannot_use_is_refused(engine, qwen, tiny, capsys):
    assert main(["export", "smollm/greedy", "--for", engine]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "10240 of 49152 tokens" in said
    assert export.why_not(tiny, engine) == ""
    padded = export.why_not(qwen, engine)  # by 128 tokens
    assert ("151936 tokens, the target's 152064" in padded) == (engine not in SAID)


@pytest.mark.parametrize("config", [[1], {"vocab_size": "4096"}])
def test_notes_that_are_no_config_are_refused(config, tiny):
    tiny = copy.deepcopy(tiny)
    tiny.manifest["profile"]["notes"]["draft_config"] = config
    with pytest.raises(ValueError, match=r"draft_config.*vocab_size"):
        export.commands(tiny, "vllm", 1)


def test_the_smallest_gamma_that_is_not_told_apart_from_the_fastest():
    costs = Costs.assumed(0.1)
    for rank, best in ((0, 8), (3, 0)):
        texts = {f"{d}-{i}": (d, [rank] * 72) for d in "ab" for i in range(6)}
        assert choose.best_gamma(trace_of(texts), costs, "greedy", None)[0] == best
    gamma, said = choose.best_gamma(random_trace(), COSTS, "greedy", None)
    assert 0 < gamma < 8 and f"predicted: chain:{gamma} " in said
    assert said.count("chain:") > 1, "several are not told apart here"


def test_costs_are_measured_assumed_or_named(tiny, tmp_path, monkeypatch):
    smollm = export.run_named("smollm/greedy")
    measured = policy.load(ROOT / "figures/smollm/09/policy.json").costs
    assert policy.costs_for(smollm)[0] == measured
    assert policy.costs_for(smollm, 0.2)[0] == Costs.assumed(0.2)
    monkeypatch.setattr(policy, "ROOT", tmp_path)  # nothing was measured there
    costs, said = policy.costs_for(tiny)
    assert said.startswith("assumed, c = 0.117") and costs.v(9) == 1


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_a_speculation_profile_agrees_with_itself(kind, tmp_path, capsys):
    path = tmp_path / "new" / "speculation_profile.json"
    asked = ["export", f"tiny/{kind}", "--for", "transformers", "--profile-json"]
    assert main([*asked, str(path)]) == 0
    found = json.loads(path.read_text())
    gamma, marginal = found["num_speculative_tokens"], found["marginal_accept_rates"]
    assert f"num_assistant_tokens = {gamma}\n" in capsys.readouterr().out
    joint = np.cumprod(found["conditional_accept_rates"])
    np.testing.assert_allclose(marginal, joint, atol=1e-5)
    lengths = pd.Series(found["acceptance_length_histogram"])
    mean = (lengths * lengths.index.astype(int)).sum() / lengths.sum()
    means = found["mean_accept_length"], 1 + sum(marginal)
    np.testing.assert_allclose(means, mean, atol=1e-5)


def test_a_profile_json_appears_whole_and_writes_over_nothing(tmp_path, capsys, monkeypatch):
    path = tmp_path / "profile.json"
    asked = ["export", "tiny/greedy", "--for", "vllm", "--profile-json", str(path)]
    broken = {"a": 1, "b": object()}
    monkeypatch.setattr(export, "speculation_profile", lambda *_: broken)
    with pytest.raises(TypeError):
        main(asked)
    assert not list(tmp_path.iterdir()), "no half file is left"
    path.write_text("mine")
    capsys.readouterr()
    assert main(asked) == 2 and path.read_text() == "mine"
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1, "refused before any work"


# ---- names of others -----------------------------------------------------------------------------

CANARY = "canary"  # a file that appears where a shell runs a part of a name
# what a path may be called, and what a program is to get
NAMES = {
    name: name
    for name in (
        "a  folder/of two words",
        "it's",
        'say "hi" \\"',
        f"`: >{CANARY}`",
        f"$(: >{CANARY})",
        "$HOME/${target}/$unknown/$",
        f"two\n: >{CANARY}\nlines\n",
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
} | {"-rf": "./-rf", "--trust-remote-code": "./--trust-remote-code"}
# a program that says its words, each ended by a zero
STUB = "#!/bin/sh\nprintf '%s\\0' \"$@\"\n"


def of_names(run, path):
    """A run as if both models had this path, and revisions with it."""
    run = copy.deepcopy(run)
    for model in MODELS:
        run.manifest["pair"][model] |= {"path": path, "revision": f"of {path}"}
    return run


@pytest.fixture
def told(tmp_path):
    """What programs are told by lines that a shell (or Python) reads: their words, and the files
    that appear; JSON and YAML as values.
    """
    stubs, place = tmp_path / "stubs", tmp_path / "place"
    for folder in (stubs, place):
        folder.mkdir()
    for name in ("vllm", "python3", "llama-server", "trtllm-serve"):
        (stubs / name).write_text(STUB)
        (stubs / name).chmod(0o755)
    (stubs / "cat").symlink_to(shutil.which("cat"))

    def run(shell, text):
        if shell == "python":
            nodes = ast.walk(ast.parse(text))
            return [n.value if isinstance(n, ast.Constant) else str(type(n)) for n in nodes]
        command, env = [shutil.which(shell), "-euc", text], {"PATH": str(stubs)}
        words = subprocess.check_output(command, cwd=place, env=env, text=True).split("\0")
        files = {file.name: yaml.safe_load(file.read_text()) for file in place.iterdir()}
        return [json.loads(w) if w.startswith('{"') else w for w in words] + [files]

    return run


@pytest.mark.parametrize(
    ("engine", "shell"),
    [(engine, shell) for engine in SAID for shell in ("bash", "sh")] + [("transformers", "python")],
)
def test_a_name_stays_one_value_and_no_part_of_it_is_run(engine, shell, tiny, told):
    plain = json.dumps(told(shell, export.commands(of_names(tiny, "NAME"), engine, 1)))
    for name, argument in NAMES.items():
        found = told(shell, export.commands(of_names(tiny, name), engine, 1))
        wanted = plain.replace('"NAME"', json.dumps(argument))
        assert found == json.loads(wanted.replace('"of NAME"', json.dumps(f"of {name}")))


@pytest.mark.parametrize("engine", [*SAID, "transformers"])
def test_control_characters_are_refused_or_written_as_escapes(engine, tiny):
    try:
        said = export.commands(of_names(tiny, "\x1b]0;title\x07 \u202e"), engine, 1)
    except ValueError as error:
        said = str(error)
    assert ("1b" in said) and not set(said) & {"\x1b", "\x07", "\u202e"}


def test_whose_machine_was_measured_and_when_is_said_in_a_comment(
    tiny, told, tmp_path, monkeypatch, capsys
):
    file = tmp_path / "09/policy.json"
    monkeypatch.setattr(policy.costs_for, "__defaults__", (None, tmp_path))
    found = policy.load(ROOT / "figures/smollm/09/policy.json")
    pair, device = tiny.manifest["weights"], f"cpu\n: >{CANARY}\r: >{CANARY}"
    policy.write_policy(replace(found, pair=pair, device=device), file)
    for written in (str(datetime.date.today()), "does not name"):
        assert main(["export", "tiny/greedy", "--for", "sglang"]) == 0
        text = capsys.readouterr().out
        assert written in text and r"cpu\n: >" in text
        assert CANARY not in told("sh", text)[-1]
        old = json.loads(file.read_text())
        file.write_text(json.dumps({name: old[name] for name in old if name != "made"}))
    assert main(["export", "tiny/greedy", "--for", "sglang", "--c", "9"]) == 0
    assert told("sh", capsys.readouterr().out) == ["", {}], "no draft pays"

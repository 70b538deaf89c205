"""The doctor: every line on machines that are made up, and one real look at this one."""

import dataclasses
import json
import shutil
import urllib.error

import pytest
from safetensors.numpy import save_file

from speclab.__main__ import main
from speclab.ops import doctor
from speclab.ops import plan as memory
from speclab.ops import probe as machine
from speclab.ops.doctor import WIDTH, Line, check_runs, examine, kernel_by_rule
from speclab.ops.plan import Speed
from speclab.ops.probe import Found, Gpu, Machine, find_model, requirements
from speclab.profiles import ROOT, ModelSpec, load_profile
from speclab.prompts import HUB_SETS

PAPER, T4_PROFILE, TINY = (
    load_profile("paper"),
    load_profile("t4"),
    load_profile("tiny"),
)
T4 = Gpu("Tesla T4", (7, 5), 15_300_000_000, 15_800_000_000)
PACKAGES = {
    r.name: str(
        next(iter(sorted(r.specifier, key=lambda s: s.operator != ">="))).version
    )
    for r in requirements(True)
}
SETS = frozenset(s.name for s in HUB_SETS.values())


def kaggle(**changes):
    """Two T4s, the hub in reach, every package at the lower end of its range."""
    return dataclasses.replace(
        Machine(
            (3, 11),
            dict(PACKAGES),
            (T4, T4),
            30_000_000_000,
            60_000_000_000,
            hub=True,
            nvcc=True,
            cores=4,
            threads=3,
        ),
        **changes,
    )


def lines(profile, **changes):
    """Lines by subject."""
    return {line.subject: line for line in examine(profile, kaggle(**changes))}


def todo(profile, **changes):
    """(subject, what to do) of the lines that are not well."""
    return [
        (line.subject, line.do)
        for line in examine(profile, kaggle(**changes))
        if line.do
    ]


@pytest.mark.parametrize("name", ["t4", "paper", "qwen", "reasoning", "small"])
def test_all_is_well_on_two_t4s(name):
    assert todo(load_profile(name)) == []


def test_the_paper_on_two_t4s_says_what_will_happen():
    found = lines(PAPER)
    memory_and_limits = (
        "15.3 GB of 15.8 GB free; no bfloat16, no FlashAttention-2 (neither is used)"
    )
    assert (
        found["target on cuda:0"].text
        == f"Tesla T4, capability 7.5, {memory_and_limits}"
    )
    kernel = (
        "triton (reasoned); unpacks all weights at every pass; Triton promises 8.0 and up: if it "
        "fails here, backend=marlin or torch"
    )
    assert found["kernel of the target"].text == kernel
    newer = dataclasses.replace(T4, capability=(8, 9))
    assert (
        lines(PAPER, gpus=(newer, newer))["kernel of the target"].text
        == "triton (reasoned); unpacks all weights at every pass"
    )
    assert (
        found["disk"].text == "60.0 GB free, 7.1 GB needed"
    )  # 3.9 + 2.2 to fetch, 1 to spare
    assert (
        "generate (context 0.6 GB, weights 3.9 GB, KV cache 6.0 GB"
        in found["memory of cuda:0"].text
    )
    assert (
        "a T4's usual speed" in found["time"].text
        and "if every prompt had 512 tokens" in found["time"].text
    )
    assert (
        found["prompts"].text
        == "4 of the paper's data sets will be fetched from the hub"
    )


@pytest.mark.parametrize(
    ("profile", "changes", "subject", "words"),
    [
        (PAPER, {"python": (3, 10)}, "Python", "use Python 3.11, 3.12 or 3.13"),
        (
            PAPER,
            {"packages": PACKAGES | {"torch": "2.5.1"}},
            "torch",
            "pip install 'torch<2.14,>=2.11'",
        ),
        (
            PAPER,
            {"packages": {k: v for k, v in PACKAGES.items() if k != "gptqmodel"}},
            "gptqmodel",
            "pip install 'gptqmodel<7.7,>=7.6'",
        ),
        (
            PAPER,
            {"gpus": (T4,)},
            "draft on cuda:1",
            "--set device=cuda:0 (both models on one GPU)",
        ),
        (
            T4_PROFILE,
            {"gpus": ()},
            "target on cuda:0",
            "Kaggle: Settings, Accelerator, GPU T4 x2",
        ),
        (
            load_profile("t4", {"dtype": "bfloat16"}),
            {},
            "target on cuda:0",
            "it has no bfloat16: --set dtype=float16",
        ),
        (
            load_profile("small", {"dtype": "float16", "device": "cpu"}),
            {},
            "draft on cpu",
            "slow on a CPU: --set dtype=float32",
        ),
        (
            T4_PROFILE,
            {"hub": False},
            T4_PROFILE.target.path,
            "attach it and set SPECLAB_MODELS",
        ),
        (PAPER, {"hub": False}, "prompts", "attach copies and set SPECLAB_DATASETS"),
        (
            PAPER,
            {"mirror": True, "datasets": SETS - {"openai/gsm8k"}},
            "prompts",
            "attach copies and set SPECLAB_DATASETS",
        ),
        (
            TINY,
            {"prompts_problem": "x.jsonl, line 3: not valid JSON"},
            "prompts",
            "mend it, or change prompts or prompts_per_domain",
        ),
        (
            PAPER.replace(prompts_per_domain=100_000),
            {},
            "prompts",
            "--set prompts_per_domain=164",
        ),
        (
            TINY,
            {
                "models": {
                    TINY.draft.path: Found("folder", {}, problem="x is cut; fetch")
                }
            },
            TINY.draft.path,
            "fetch",
        ),
        (
            TINY,
            {"runs": {"greedy": "x is damaged; record it again", "chain": ""}},
            "runs greedy",
            "record it again",
        ),
        (
            PAPER,
            {"disk_bytes": 6_000_000_000},
            "disk",
            "free space, or set HF_HOME to a larger disk",
        ),
        (
            load_profile("t4", {"backend": "auto"}),
            {"nvcc": False},
            "kernel of the target",
            "--set backend=triton",
        ),
        (
            load_profile("t4", {"device": "cpu", "dtype": "float32"}),
            {},
            "kernel of the target",
            "triton needs a GPU: --set backend=torch",
        ),
        (PAPER, {"threads": 8}, "threads", "export OMP_NUM_THREADS=4"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(profile, changes, subject, words):
    found = [do for name, do in todo(profile, **changes) if subject in name]
    assert found and words in found[0], todo(profile, **changes)


def test_a_model_too_large_for_a_t4_names_the_block_that_fits():
    half = dataclasses.replace(T4, free_bytes=10_000_000_000)
    ((subject, do),) = todo(T4_PROFILE, gpus=(half,))
    size = int(do.partition("block_prompts=")[2])
    assert subject == "memory of cuda:0" and 1 <= size < T4_PROFILE.block_prompts
    assert todo(T4_PROFILE.replace(block_prompts=size), gpus=(half,)) == []
    assert todo(T4_PROFILE.replace(block_prompts=size + 1), gpus=(half,)) != [], (
        "the largest that fits"
    )
    ((_, do),) = todo(
        T4_PROFILE, gpus=(dataclasses.replace(T4, free_bytes=5_000_000_000),)
    )
    assert do.startswith("a smaller pair, 4 bit, shorter prompts")


def test_models_that_are_here_are_not_fetched():
    paths = {"target": T4_PROFILE.target.path, "draft": T4_PROFILE.draft.path}
    here = {
        path: Found("folder", T4_PROFILE.notes[f"{which}_config"], True)
        for which, path in paths.items()
    }
    found = lines(T4_PROFILE, models=here, hub=False, disk_bytes=2_000_000_000)
    assert (
        not [line for line in found.values() if line.do]
        and found["disk"].text == "2.0 GB free, 1.0 GB needed"
    )
    cut = here | {
        T4_PROFILE.draft.path: dataclasses.replace(
            here[T4_PROFILE.draft.path], whole=False
        )
    }
    assert (
        "copy its *.safetensors again"
        in lines(T4_PROFILE, models=cut)[f"draft {T4_PROFILE.draft.path}"].do
    )


def test_what_is_not_known_is_said():
    bare = T4_PROFILE.replace(notes={})
    assert (
        lines(bare)["memory"].text
        == "not known before config.json is here"
        == lines(bare)["time"].text
    )
    assert (
        lines(load_profile("small"), gpus=())["time"].text
        == "not known: the machine's speed was not measured"
    )
    assert (
        "revision not pinned"
        in lines(load_profile("reasoning"))[
            f"target {load_profile('reasoning').target.path}"
        ].text
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt2"}, "model_type='gpt2': the memory plan knows"),
        ({"hidden_size": "a"}, "hidden_size is 'a', a whole number"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"head_dim": []}, "head_dim is []"),
        ({"quantization_config": 5}, "quantization_config is no object"),
        ({"quantization_config": {"bits": "4"}}, "bits is '4'"),
    ],
)
def test_a_config_that_cannot_be_planned_with_still_ends_with_lines(changes, words):
    """It was an error instead of the doctor's lines."""
    config = T4_PROFILE.notes["target_config"] | changes
    models = {T4_PROFILE.target.path: Found("folder", config, True)}
    found = lines(T4_PROFILE, models=models)
    assert words in found["memory"].text and words in found["time"].text
    assert len(found) >= 10


def test_which_runs_can_be_read_without_the_models():
    where = {"greedy": "shipped", "sampled": "shipped", "chain": "recorded", "x": ""}
    assert lines(TINY, runs=where)["runs"].text == (
        "read without the models (shipped traces): greedy, sampled; read without the models "
        "(recorded here): chain; yet to be recorded: x"
    )
    assert "not known" in lines(TINY)["runs"].text and not lines(TINY)["runs"].do
    broken = dict.fromkeys(("greedy", "balanced"), "m.json is damaged; record again")
    [line] = check_runs(TINY, kaggle(runs=broken))
    assert line == Line("runs greedy, balanced", "m.json is damaged", "record again")


def test_time_is_that_of_the_plan():
    one = lines(T4_PROFILE, prompt_chars=186.0)["time"].text
    models = [
        memory.held(s, T4_PROFILE.notes[f"{w}_config"], 2)
        for w, s in (("target", T4_PROFILE.target), ("draft", T4_PROFILE.draft))
    ]
    assert one.startswith(
        f"about {memory.seconds(T4_PROFILE, *models, prompt_tokens=62) / 60:.1f} min to record, "
    )
    slow = lines(load_profile("small"), gpus=(), speed=memory.Speed(1e9, 1e9))[
        "time"
    ].text
    assert "this machine's speed, measured now" in slow and float(slow.split()[0]) > 60


@pytest.mark.parametrize(
    ("backend", "capability", "kernel"),
    [
        ("auto", (7, 5), "marlin"),
        ("auto", (9, 0), "marlin"),
        ("auto", (7, 0), "exllama_v2"),
        ("auto", None, "torch"),
        ("triton", (7, 5), "triton"),
    ],
)
def test_kernels_by_capability(backend, capability, kernel):
    assert kernel_by_rule(backend, capability) == kernel


def test_the_rule_is_what_gptqmodel_says_of_its_kernels():
    pytest.importorskip("gptqmodel")
    from gptqmodel.nn_modules.qlinear import marlin
    from gptqmodel.nn_modules.qlinear.exllamav2 import ExllamaV2Linear
    from gptqmodel.nn_modules.qlinear.tritonv2 import TritonV2Linear
    from gptqmodel.quantization import FORMAT

    ranks = [
        kernel.SUPPORTS_FORMATS[FORMAT.GPTQ]
        for kernel in (marlin.MarlinLinear, ExllamaV2Linear, TritonV2Linear)
    ]
    assert ranks == sorted(ranks, reverse=True) and marlin._MARLIN_MIN_CAPABILITY == (
        7,
        5,
    )


def test_gptqmodel_is_asked_where_it_can_answer():
    pytest.importorskip("gptqmodel")
    config = T4_PROFILE.notes["target_config"]
    assert "Torch" in machine.gptq_kernel(
        config, ModelSpec("a/b", backend="torch"), "cpu"
    )
    assert (
        machine.gptq_kernel(config, ModelSpec("a/b", backend="marlin"), "cpu") == ""
    ), "no such kernel on a CPU"
    own = lines(
        T4_PROFILE, kernels={T4_PROFILE.target.path: "MarlinLinear"}, nvcc=False
    )["kernel of the target"]
    assert (
        own.text == "MarlinLinear (GPTQModel says so)" and "nvcc is not here" in own.do
    )


# ---- weights that `make pair` makes --------------------------------------------------------------

SMOLLM = load_profile("smollm")


def laptop(size=0, **changes):
    """Two cores without a GPU and the pair smollm, whose target's `size` bytes are yet to make."""
    models = {}
    for spec, to_make in ((SMOLLM.target, size), (SMOLLM.draft, 0)):
        config = json.loads((ROOT / spec.path / "config.json").read_text())
        models[spec.path] = Found("folder", config, not to_make, to_make)
    here = {"gpus": (), "cores": 2, "threads": 2, "models": models, "hub": False}
    speed = Speed(30e9, 8e9, 0.2e-3)
    facts = {"ram_bytes": 8_000_000_000, "speed": speed, "prompt_chars": 400}
    return kaggle(**here | facts | changes)


def test_a_pair_whose_weights_are_made_needs_nothing():
    found = {line.subject: line for line in examine(SMOLLM, laptop())}
    assert not [line for line in found.values() if line.do]
    assert found[f"target {SMOLLM.target.path}"].text == "in a folder"
    # 134.5 M + 17.6 M parameters in float32; a head of 49,152 would add 0.04 GB
    assert "weights 1.2 GB" in found["memory of cpu"].text
    minutes = float(found["time"].text.split()[1])
    assert 8 < minutes < 40, "30 GFLOP/s, 200 prompts: some twenty minutes"


def test_weights_that_are_yet_to_be_made_say_make_pair_and_what_it_needs():
    size = 538_000_000
    packages = {"packages": PACKAGES | {"gguf": "0.19.0"}}
    [line] = [x for x in examine(SMOLLM, laptop(size, **packages)) if x.do]
    assert line.do == "make pair PROFILE=smollm"
    assert line.text == "its weights are yet to be made (0.5 GB, once)"
    found = {x.subject: x for x in examine(SMOLLM, laptop(size))}
    assert found["gguf"].do == "pip install 'gguf>=0.17'"
    short = laptop(size, disk_bytes=1_500_000_000, **packages)
    found = {x.subject: x for x in examine(SMOLLM, short)}
    assert found["disk"].text == "1.5 GB free, 1.8 GB needed" and found["disk"].do
    assert "GB" in found["memory of cpu"].text, "planned from config.json alone"


def test_the_probe_sees_what_is_yet_to_be_made(tmp_path):
    target = ROOT / SMOLLM.target.path
    for name in ("config.json", "source.json"):
        shutil.copy(target / name, tmp_path)
    found = find_model(ModelSpec(str(tmp_path)))
    assert found.where == "folder" and not found.whole
    assert found.to_make == 538_090_408
    save_file({}, tmp_path / "model.safetensors")
    assert find_model(ModelSpec(str(tmp_path))).to_make == 0
    (tmp_path / "source.json").write_text('{"weights": 5}')
    found = find_model(ModelSpec(str(tmp_path)))
    assert "source.json does not say where weights come from" in found.problem


# ---- the real look -------------------------------------------------------------------------------


def test_models_are_found_where_the_loader_finds_them(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    spec = ModelSpec("owner/name")
    assert find_model(spec) == Found()
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / "quantize_config.json").write_text(json.dumps({"bits": 4}))
    monkeypatch.setenv("SPECLAB_MODELS", str(tmp_path))
    assert find_model(spec) == Found(
        "folder", {"model_type": "llama", "quantization_config": {"bits": 4}}, False
    )
    shards = {"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(shards))
    save_file({}, folder / "model-1.safetensors")
    assert not find_model(spec).whole, "the second shard is missing"
    save_file({}, folder / "model-2.safetensors")
    assert find_model(spec).whole
    assert find_model(ModelSpec("data/pairs/tiny/target")).whole


def test_the_hub_is_asked_once_and_not_for_long(monkeypatch):
    asked = []

    def answer(request, timeout):
        asked.append((request.get_method(), timeout))
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(machine.urllib.request, "urlopen", answer)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    assert machine._hub_answers() is False and asked == [("HEAD", machine.ASK_S)]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert machine._hub_answers() is False and len(asked) == 1, (
        "offline mode: nobody is asked"
    )


def test_data_sets_are_looked_for_in_the_mirror_alone(tmp_path, monkeypatch):
    (tmp_path / "openai" / "gsm8k").mkdir(parents=True)
    monkeypatch.setenv("SPECLAB_DATASETS", str(tmp_path))
    assert machine._datasets() == {"openai/gsm8k"}


def test_what_is_broken_of_a_model_is_found(tmp_path, random_folders):
    """All of it was well to the doctor, or ended it."""
    folder = shutil.copytree(random_folders[0], tmp_path / "model")
    spec, weights = ModelSpec(str(folder)), folder / "model.safetensors"
    assert find_model(spec).whole and not find_model(spec).problem
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    found = find_model(spec)
    assert not found.whole and f"{weights} is damaged or cut" in found.problem
    assert found.config["model_type"] == "llama", "memory and time are still planned"
    shutil.copy(random_folders[0] / "model.safetensors", weights)
    index = folder / "model.safetensors.index.json"
    for path, content, words in (
        (index, "[]", "an object is needed"),
        (index, '{"weight_map": 5}', "names no weights"),
        (index, '{"weight_map": {"a": 5}}', ""),
        (folder / "quantize_config.json", "[", "is damaged (not JSON"),
        (folder / "tokenizer.json", "", "is damaged (not JSON"),
        (folder / "config.json", '{"model_type": "no-such-thing"}', "no-such-thing"),
        (folder / "config.json", "null", "an object is needed"),
    ):
        old = path.read_text() if path.is_file() else None
        path.write_text(content)
        found = find_model(spec)
        assert words in found.problem and not found.whole
        assert "\n" not in found.problem
        path.unlink() if old is None else path.write_text(old)


def test_broken_prompts_and_too_many_are_found(tmp_path, monkeypatch):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt_id": "a", "domain": "code", "prompt": "x"}\n{"promp')
    for change, words in (
        ({"prompts": str(path)}, f"{path}, line 2: not valid JSON"),
        ({"prompts": "no/such.jsonl"}, "no prompts at"),
        ({"prompts_per_domain": 100_000}, "domain code has 50, asked for 100000"),
    ):
        prompts, problem = machine._prompts(TINY.replace(**change))
        assert prompts == [] and words in problem
    prompts, problem = machine._prompts(TINY)
    assert len(prompts) == 200 and problem == ""


def test_runs_are_looked_for_where_they_are_read(tmp_path, monkeypatch):
    """smollm's traces are read with and without its weights; tiny records two kinds itself."""
    monkeypatch.setattr("speclab.runs.RUNS", tmp_path / "none")
    monkeypatch.delenv("SPECLAB_TRACES", raising=False)
    prompts, _ = machine._prompts(SMOLLM)
    assert set(machine._runs(SMOLLM, prompts).values()) == {"shipped"}
    found = machine._runs(TINY, prompts)
    assert {kind for kind, where in found.items() if not where} == {"greedy", "sampled"}
    traces = shutil.copytree(ROOT / "data" / "traces" / "tiny", tmp_path / "traces")
    monkeypatch.setenv("SPECLAB_TRACES", str(traces))
    found = machine._runs(TINY, prompts)
    assert set(found.values()) == {"shipped"}
    with (traces / "sampled" / "nodes.parquet").open("ab") as spoiled:
        spoiled.write(b"x")
    shutil.copytree(
        traces / "greedy", tmp_path / "none" / f"tiny-greedy-{key_of(traces)}"
    )
    found = machine._runs(TINY, prompts)
    assert "nodes.parquet is damaged" in found["sampled"]
    assert found["greedy"] == "recorded" and found["balanced"] == "shipped"
    unpinned = load_profile("reasoning")
    assert machine._runs(TINY, []) == {} == machine._runs(unpinned, prompts)


def key_of(traces):
    return json.loads((traces / "greedy" / "manifest.json").read_text())["key"]


def test_a_half_model_is_a_line_of_the_command(
    tmp_path, random_folders, capsys, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(machine, "_hub_answers", lambda: False)
    folder = shutil.copytree(random_folders[0], tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:3000])
    changes = [f"target.path={folder}", "prompts_per_domain=100000"]
    assert main(["doctor", "--set", *changes]) == 1
    said = capsys.readouterr().out
    assert "damaged or cut" in " ".join(said.split())
    assert "asked for 100000" in " ".join(said.split())
    assert said.endswith("tiny: 2 of 12 lines have something to do\n")


# ---- packages and the repository that are missing ------------------------------------------------


def test_the_tiny_profile_is_well_on_this_machine(capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["doctor", "--profile", "tiny"]) == 0
    said = capsys.readouterr().out
    assert (
        said.endswith("tiny: all is well\n")
        and max(map(len, said.splitlines())) <= WIDTH
    )
    assert all(line[:4] in ("ok  ", "    ", "", "tiny") for line in said.splitlines())


def test_exit_status_and_bad_profiles(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "probe", lambda profile: kaggle(threads=9))
    assert main(["doctor", "--profile", "t4"]) == 1
    assert (
        "do  threads: 9 on 4 cores" in (said := capsys.readouterr().out)
        and "t4: 1 of" in said
    )
    assert main(["doctor", "--profile", "t5"]) == 2
    assert "did you mean 't4'" in capsys.readouterr().err
    assert main(["doctor", "--profile", "t4", "--set", "dtype=int8"]) == 2
    assert "dtype='int8'" in capsys.readouterr().err


def test_a_long_line_is_broken_for_a_phone():
    text = str(Line("target owner/" + "x" * 30, "not here " * 8, "do this " * 12))
    assert (
        max(map(len, text.splitlines())) <= 60
        and text.count("->") == 1
        and text.startswith("do  ")
    )

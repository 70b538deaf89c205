"""Which models the kit can use: `doctor`, `plan` and `record` say the same before any weights are
read, and every architecture of transformers decodes to its own greedy text or is refused.
"""

import json
import re
import shutil
from importlib.metadata import version

import pytest
import torch
from architectures import KINDS, small_network, small_settings
from conftest import edit_json, profile_of, save_random_llama, write_rows
from transformers import AutoModelForCausalLM

from speclab.__main__ import main
from speclab.cli import doctor
from speclab.decode import decode_prompt
from speclab.plain import EncodedPrompt
from speclab.sampling import Sampling
from speclab.shapes import parse_shape
from speclab.study import runs
from speclab.study.pairs import load_pair
from speclab.study.profiles import ROOT

GUIDE = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
WORK, UNTRIED = "Models that work", "Not tried"
AT_LOADING = "nothing: loading refuses it"
PROMPT, NEW = (5, 9, 13, 7, 22, 30, 11, 17, 8, 3, 35, 20), 24


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A random Llama with a tokenizer; it takes 512 positions."""
    return save_random_llama(tmp_path_factory.mktemp("llama") / "model", 1)


# ---- refused before any work, by name ------------------------------------------------------------


@pytest.fixture
def study(llama, tmp_path, monkeypatch):
    """Options of a verb for a study whose target or draft is another model, with contexts of 123
    positions. The weights of both models are damaged.
    """
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(runs, "RUNS", tmp_path / "runs")
    rows = [{"prompt_id": f"p{i}", "domain": "any", "prompt": "a b c"} for i in range(6)]
    write_rows(tmp_path / "prompts.jsonl", rows)
    for name in ("plain", "other"):
        shutil.copytree(llama, tmp_path / name)
        (tmp_path / name / "model.safetensors").write_bytes(b"damaged")

    def options(which="target", kind="llama", written=(), **changes):
        small_settings(kind, **changes).save_pretrained(tmp_path / "other")
        edit_json(tmp_path / "other" / "config.json", **dict(written))
        facts = {"target": "plain", "draft": "plain"} | {which: "other"}
        facts |= {"prompts": "prompts.jsonl", "max_prompt_tokens": 100, "max_new_tokens": 20}
        (tmp_path / "study.yaml").write_text(json.dumps(facts))
        return ["--profile", str(tmp_path / "study.yaml"), "--set=device=cpu"]

    return options


TURNS = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
LONG = {"original_max_position_embeddings": 64, "rope_parameters": TURNS | {"rope_theta": 1e4}}
REFUSED = [
    ("gemma2", {}, {}, r"\(final_logit_softcapping=30.0\)"),
    ("granite", {"logits_scaling": 8.0}, {}, r"\(logits_scaling=8.0\)"),
    ("cohere", {}, {}, r"\(logit_scale=0.0625\)"),
    ("deepseek_v3", {}, {}, r"latent attention \(kv_lora_rank="),
    ("mamba", {}, {}, "layers of the kind 'linear_attention'"),
    ("gpt_oss", {}, {}, "transformers has no sdpa attention"),
    ("bart", {}, {}, r"\(is_encoder_decoder\)"),
    ("falcon", {"alibi": True}, {}, r"\(alibi=True\)"),
    ("llama", {}, {"model_type": "t5"}, "no causal language model for model_type='t5'"),
    ("llama", {}, {"speculators_model_type": "dflash"}, "head of the kind 'dflash'"),
    ("llama", {"max_position_embeddings": 120}, {}, "max_position_embeddings .* 120 .* but 123 "),
    ("gemma3_text", {"sliding_window": 120}, {}, "sliding_window .* 120 positions, but 123 are"),
    ("phi3", LONG, {}, "original_max_position_embeddings .* allows 64 "),
]


@pytest.mark.parametrize("place", range(len(REFUSED)), ids=[case[-1] for case in REFUSED])
def test_what_a_config_refuses_is_said_by_every_verb(study, tmp_path, capsys, place):
    kind, changes, written, words = REFUSED[place]
    which, out = ("target", "draft")[place % 2], tmp_path / "run"
    options = study(which, kind, written, **changes)
    assert main(["doctor", *options]) == 1
    said = capsys.readouterr().out
    found = re.search(rf"^do  {which}: (.*{words}.*)\n    -> (.+)$", said, re.MULTILINE)
    assert found, said
    refusal = "; ".join(found.groups())
    assert refusal.startswith(f"{which} {tmp_path / 'other'}: ")
    assert main(["plan", "--notebook", "02", *options]) == 0
    said = capsys.readouterr().out
    assert f"cannot be recorded: {refusal}" in said and "to record" not in said
    assert main(["record", "--out", str(out), *options]) == 2
    assert capsys.readouterr().err.strip() == f"speclab: {refusal}"
    assert not out.exists() and not (tmp_path / "runs").exists()


ODD = {"model_type": ["x"], "vocab_size": "many", "quantization_config": "x", "dtype": "auto"}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_config_is_a_line(study, capsys, odd):
    options = study("draft", written={odd: ODD[odd]})
    for verb in ("doctor", "record"):
        assert main([verb, *options]) in (1, 2)
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        assert said.err.count("\n") <= 1


def test_a_plan_says_which_runs_do_not_fit(study, capsys):
    """The kind `chain` drafts deeper than a text may be long."""
    options = study("draft", max_position_embeddings=125)
    notebooks = ["--notebook", "06", "--notebook", "10"]
    assert main(["plan", *notebooks, *options]) == 0
    said = capsys.readouterr().out
    assert re.search("cannot be recorded: draft .* allows 125 positions, but 128 are needed", said)
    cells = {line.split()[0]: line for line in said.splitlines() if "  " in line}
    assert "to record" in cells["greedy"] and "cannot be recorded" in cells["chain"]
    assert "1 run to record" in said


# ---- all architectures ---------------------------------------------------------------------------


def saved(network, folder, llama):
    """A network in a folder, with a tokenizer."""
    network.save_pretrained(folder)
    for file in llama.glob("tokenizer*"):
        shutil.copy(file, folder)
    return folder


def noisy(network):
    """A draft that agrees with the target now and then."""
    torch.manual_seed(1)
    for weights in network.parameters():
        if weights.is_floating_point():
            weights.data += 0.05 * torch.randn_like(weights)
    return network


def check_texts(folder, pair):
    """A chain and a tree write the text of transformers' own greedy decoding."""
    network = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor([PROMPT])
    options = {"do_sample": False, "max_new_tokens": NEW, "attention_mask": torch.ones_like(ids)}
    text = network.generate(ids, **options)[0, len(PROMPT) :].tolist()
    prompt = EncodedPrompt("p", "code", PROMPT, 0)
    for shape in ("chain:3", "tree:3,2"):
        decoded = decode_prompt(pair, prompt, "greedy", parse_shape(shape), Sampling(), NEW)
        assert list(decoded.token_ids) == text, shape


def outcome(kind, llama, folder, **changes):
    """'holds' for an architecture whose texts are its own, AT_LOADING for one that loading refuses,
    else the reason, by `doctor`, of the refusal, with which loading refuses it too.
    """
    network = small_network(kind, **changes)
    target = saved(network, folder / "target", llama)
    draft = saved(noisy(network), folder / "draft", llama)
    short = {"max_prompt_tokens": 16, "max_new_tokens": NEW, "max_packed_tokens": 64}
    profile = profile_of(target, draft).replace(**short)
    said = doctor.answer("target", doctor.model, profile, "target")
    if said.startswith("ok"):
        check_texts(target, load_pair(profile))
        return "holds"
    reason = re.sub(r"\s+-> ", "; ", said.removeprefix("do  target: "))
    with pytest.raises(ValueError, match=re.escape(reason)):
        load_pair(profile)
    return reason


def section(heading):
    """The text of the guide under a heading."""
    return GUIDE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def named(heading):
    """The names in the last paragraph of a section of the guide."""
    return set(re.findall(r"`([a-z0-9_.-]+)`", section(heading).strip().split("\n\n")[-1]))


def refused():
    """The names in each row of the guide's table, by the words of the refusal."""
    row = r"^\| `(.+?)` \| .+ \| (.+?) \|$"
    rows = re.findall(row, section("What is refused"), re.MULTILINE)
    return {words: set(re.findall(r"`(.+?)`", names)) for words, names in rows}


@pytest.mark.parametrize("kind", ["falcon", "gemma3", "gpt2", "jetmoe", "opt", "qwen3_moe"])
def test_an_architecture_writes_its_own_texts(kind, llama, tmp_path):
    """Parallel blocks, nested settings, learned positions, experts, ..."""
    assert outcome(kind, llama, tmp_path) == "holds" and kind in named(WORK)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_guide_lists_every_architecture(llama, tmp_path):
    """Those that work, those that are refused with the reason, and those that cannot be built small
    or at all.
    """
    if f"transformers {version('transformers')}" not in GUIDE:
        pytest.skip("the guide lists the architectures of another version of transformers")
    rows, found = refused(), {}
    for kind in KINDS:
        try:
            is_built = small_network(kind).config.model_type in KINDS
        except Exception:  # each has checks of its own
            is_built = False
        if not is_built:
            found.setdefault(UNTRIED, set()).add(kind)
            continue
        reason = outcome(kind, llama, tmp_path / kind)
        shutil.rmtree(tmp_path / kind)
        [told] = [words for words in (WORK, *rows) if words in reason.replace("holds", WORK)]
        found.setdefault(told, set()).add(kind)
    assert found == rows | {name: named(name) for name in (WORK, UNTRIED)}

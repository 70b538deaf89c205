"""The real pair: its committed files, and, where its weights are, that its tokens are right: texts
equal to transformers' and to each other, records equal to the literal procedure's.
"""

import json
import shutil

import numpy as np
import pytest
import torch
from conftest import ROOT
from safetensors.torch import load_file
from test_decode import assert_equal_to_plain_and_replay
from test_record import assert_equal_records

from data.pairs.smollm import prepare
from speclab import runs
from speclab.decode import decode_prompt
from speclab.draft import parse_shape
from speclab.models.pairs import ModelsMissing, load_pair, load_tokenizer
from speclab.profiles import load_profile
from speclab.prompts import EncodedPrompt, encode_prompts, load_prompts
from speclab.record import generate, record_prompt
from speclab.runs import weights_digest
from speclab.sampling import Sampling
from speclab.tree import static_tree

PAIR = ROOT / "data" / "pairs" / "smollm"
TRACES = ROOT / "data" / "traces" / "smollm"
GREEDY = Sampling()
NEW = 48


@pytest.fixture(scope="module")
def tokenizer():
    """The target's; the draft's folder has none of its own."""
    return load_tokenizer(PAIR / "draft")


@pytest.fixture(scope="module")
def pair():
    """The pair on the CPU in float32; skipped where its weights were not made."""
    try:
        return load_pair(load_profile("smollm", {"device": "cpu"}))
    except ModelsMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def prompts(pair):
    """One prompt a domain, in the chat template."""
    return encode_prompts(pair.tokenizer, load_prompts("project", 1), 512, "chat")


# ---- how the draft was made ----------------------------------------------------------------------


def test_a_step_does_not_change_what_a_later_one_has_read(tmp_path):
    path, kept = tmp_path / "text.safetensors", tmp_path / "kept.safetensors"
    for content in (b"one", b"two"):  # nobody has read it yet
        prepare.settled(path, content, "kept.safetensors")
    kept.write_bytes(b"made of it")
    prepare.settled(path, b"two", "kept.safetensors")
    with pytest.raises(ValueError, match=r"would change, and .*kept.safetensors was"):
        prepare.settled(path, b"three", "kept.safetensors")
    assert path.read_bytes() == b"two"


@pytest.mark.parametrize(
    ("arguments", "files", "words"),
    [
        (["train"], {}, "train needs a phase: learn or distil"),
        (["text"], {}, "text needs --data"),
        (["write"], {}, "run the step `prompts`"),
        (["write"], {"prompts.json": b"[1,"}, "prompts.json is damaged (not JSON"),
        (["vocabulary"], {}, "text.safetensors is missing"),
        (["vocabulary"], {"text.safetensors": b"cut"}, "is damaged or cut"),
        (["export", "learn"], {}, "run `train learn` first"),
        (["train", "learn"], {"kept.safetensors": b""}, "is damaged or cut"),
    ],
)
def test_a_step_out_of_order_or_on_cut_files_is_one_line(
    tmp_path, monkeypatch, capsys, arguments, files, words
):
    monkeypatch.setattr(prepare, "weight_bytes", lambda folder: 0)
    monkeypatch.setattr(prepare, "base_embedding", lambda folder: torch.ones(9, 9))
    monkeypatch.setattr(
        prepare, "Draft", lambda embedding, kept: pytest.fail("kept was read")
    )
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr("sys.argv", ["prepare", *arguments, "--work", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        prepare.main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and words in said and "Traceback" not in said


# ---- files, without the weights ------------------------------------------------------------------


def test_what_is_committed_is_small_safe_and_of_no_training_machine():
    [weights] = (PAIR / "draft").glob("*.safetensors")
    assert weights.stat().st_size <= 30e6
    pickled = (".bin", ".pt", ".pth", ".pkl")
    assert not [f for f in PAIR.rglob("*") if f.suffix in pickled]
    for file in [*PAIR.rglob("*.json"), PAIR / "README.md"]:
        if file.name != "tokenizer.json":
            text = file.read_text()
            assert not [
                word for word in ("/tmp", "/work", "/home", "/root") if word in text
            ]


def test_the_draft_says_its_kept_tokens_and_every_one_that_ends_or_marks_a_turn(
    tokenizer,
):
    stored = load_file(PAIR / "draft" / "model.safetensors")
    config = json.loads((PAIR / "draft" / "config.json").read_text())
    kept = stored["kept"]
    assert len(kept) == config["kept_tokens"] == len(stored["lm_head.weight"])
    assert (kept.diff() > 0).all() and kept.max() < config["vocab_size"]
    assert {part.dtype for name, part in stored.items() if name != "kept"} == {
        torch.float16
    }
    assert tokenizer.eos_token_id in kept


def test_chat_template_and_ends(tokenizer):
    (prompt,) = encode_prompts(
        tokenizer, load_prompts("project", 1, ("chat",)), 512, "chat"
    )
    text = tokenizer.decode(prompt.ids)
    (known,) = load_prompts("project", 1, ("chat",))
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    turns = [("system", system), ("user", known.text)]
    marked = "".join(f"<|im_start|>{who}\n{said}<|im_end|>\n" for who, said in turns)
    assert text == f"{marked}<|im_start|>assistant\n"
    assert tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"]) == [1, 2]
    assert prompt.ids[0] == 1 and prompt.ids.count(2) == 2, "marks are single tokens"
    assert tokenizer.eos_token_id == 2
    words = "def f(x):\n    return x + 123\nÜnïcode, $x^2$ and\ttabs"
    assert tokenizer.decode(tokenizer(words)["input_ids"]) == words


def test_the_key_is_the_same_with_and_without_the_weights(tmp_path):
    if not (PAIR / "target" / "model.safetensors").is_file():
        pytest.skip("needs the target's weights: `make pair PROFILE=smollm`")
    ignored = shutil.ignore_patterns("*.safetensors")
    shutil.copytree(PAIR / "target", tmp_path / "target", ignore=ignored)
    assert weights_digest(tmp_path / "target") == weights_digest(PAIR / "target")


@pytest.mark.parametrize("folder", sorted(TRACES.iterdir()), ids=lambda f: f.name)
def test_every_shipped_run_is_read_without_the_models(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RUNS", tmp_path)
    monkeypatch.setattr(runs, "record_run", lambda *_, **__: pytest.fail("recorded"))
    kind, profile = folder.name, load_profile("smollm")
    run = runs.load_or_record(profile, kind)
    assert run.folder == folder and run.manifest["kind"] == kind
    assert run.manifest["rows"]["trace"] == len(run.trace)
    assert run.trace["prompt_id"].nunique() == 200
    recorded = run.manifest["profile"]
    for name, value in runs.KINDS[kind].items():
        assert recorded[name] == value
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert size < (2e6 if recorded["budget"] == 1 else 4e6)


def test_a_shipped_run_for_every_kind_that_the_notebooks_read():
    shipped = {folder.name for folder in TRACES.iterdir()}
    # `chat-template`: the profile's own prompts are in it
    assert shipped == set(runs.KINDS) - {"chat-template"}


# ---- with the weights ----------------------------------------------------------------------------


@pytest.mark.slow
def test_it_stops_where_its_template_ends_a_turn_and_says_what_the_files_say(pair):
    assert pair.stop_ids == {2} and pair.vocab == 49_152 and pair.is_exact
    assert pair.facts["target"]["tokens_said"] == 49_152
    assert pair.facts["draft"]["tokens_said"] == len(pair.draft.head.kept)
    assert pair.draft.body.lean and pair.target.body.lean
    question = {"role": "user", "content": "Say only: yes."}
    ids = pair.tokenizer.apply_chat_template([question], add_generation_prompt=True)[
        "input_ids"
    ]
    prompt = EncodedPrompt("p", "chat", tuple(ids), 0)
    (text,) = generate(pair.target, [prompt], NEW, pair.stop_ids, GREEDY, 0)
    assert text[-1] == 2 and len(text) < NEW and text.count(2) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_plain_greedy_is_transformers_token_for_token(pair, prompts):
    texts = generate(pair.target, prompts, NEW, pair.stop_ids, GREEDY, 0)
    for prompt, text in zip(prompts, texts, strict=True):
        ids = torch.tensor([prompt.ids])
        out = pair.target.network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW,
            do_sample=False,
            eos_token_id=sorted(pair.stop_ids),
            pad_token_id=2,
        )
        assert tuple(out[0, len(prompt.ids) :].tolist()) == text, prompt.domain


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_decoded_is_plain_and_replayed_is_counted(pair, prompts):
    for prompt in prompts:
        assert_equal_to_plain_and_replay(pair, prompt, [2, 4], [(3, 2, 8)], NEW)
        (plain,) = generate(pair.target, [prompt], NEW, pair.stop_ids, GREEDY, 0)
        dynamic = parse_shape("dynamic:4,3,7")
        made = decode_prompt(pair, prompt, "greedy", dynamic, GREEDY, NEW)
        assert made.token_ids == plain


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_recorded_is_the_literal_procedure(pair, prompts):
    shortest = min(prompts, key=lambda prompt: len(prompt.ids))
    (text,) = generate(pair.target, [shortest], 4, pair.stop_ids, GREEDY, 0)
    found = record_prompt(pair, shortest, text, static_tree(3, 2, 8), GREEDY)
    assert_equal_records(pair, shortest, found, 4)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tokens_that_the_draft_cannot_say_are_recorded_as_such(pair, prompts):
    """Some of the target's text sampled at T = 1 lies outside."""
    kept, warm = pair.draft.head.kept.numpy(), Sampling(1.0)
    texts = generate(pair.target, prompts, NEW, pair.stop_ids, warm, 0)
    outside = []
    for prompt, text in zip(prompts, texts, strict=True):
        found = record_prompt(pair, prompt, text, static_tree(1, 1), warm)
        unsaid = ~np.isin(found.trace["token"], kept)
        assert (found.trace["q_token"][unsaid] == 0).all()
        assert (found.trace["draft_rank"][unsaid] == len(kept)).all()
        assert (found.trace["draft_rank"][~unsaid] < len(kept)).all()
        assert np.isin(found.trace["top_draft_ids"], kept).all()
        for name in ("kl", "overlap", "draft_entropy"):
            assert np.isfinite(found.trace[name]).all()
        outside.append(unsaid.mean())
    assert 0 < np.mean(outside) < 0.2

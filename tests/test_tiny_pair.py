"""The committed pair: its files, its tokenizer, its card, and that it is good enough to study."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import ROOT
from safetensors import safe_open
from toy import record_block

from data.corpus import Document
from data.pairs.tiny import prepare
from speclab.drafts.train import TrainConfig
from speclab.prompts import DOMAINS, encode_prompts, load_prompts
from speclab.sampling import Sampling
from speclab.tree import static_tree

PAIR = ROOT / "data" / "pairs" / "tiny"


def test_the_weights_are_small_half_precision_safetensors_and_nothing_is_pickled():
    sizes = {f.parent.name: f.stat().st_size for f in PAIR.glob("*/*.safetensors")}
    assert set(sizes) == {"target", "draft", "target-gptq"}
    assert sizes["target"] + sizes["draft"] <= 25e6 and max(sizes.values()) < 16e6
    for name in ("target", "draft"):
        with safe_open(PAIR / name / "model.safetensors", "pt") as weights:
            names = list(weights.keys())
            assert {weights.get_tensor(name).dtype.itemsize for name in names} == {2}
    assert not [
        f for f in PAIR.rglob("*") if f.suffix in (".bin", ".pt", ".pth", ".pkl")
    ]


def test_no_folder_of_a_training_machine_is_in_any_file():
    for file in [*PAIR.rglob("*.json"), PAIR / "README.md"]:
        text = file.read_text()
        assert (
            "/tmp" not in text
            and "/work" not in text
            and "/home" not in text
            and "/root" not in text
        ), file


def test_the_tokenizer_adds_a_bos_reads_digits_singly_and_gives_text_back(tiny_pair):
    tokenizer = tiny_pair.tokenizer
    for text in ("def f(x):\n    return x + 123\n", "Ünïcode, $x^2$ and\ttabs\r\n"):
        ids = tokenizer(text)["input_ids"]
        assert (
            ids[0] == tokenizer.bos_token_id
            and tokenizer.decode(ids[1:], clean_up_tokenization_spaces=False) == text
        )
    assert len(tokenizer("12345")["input_ids"]) == 6
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert chat == "<s><|user|>Hi</s><|assistant|>"
    assert tiny_pair.stop_ids == {tokenizer.eos_token_id}


def test_the_card_shows_the_losses_that_training_logged():
    facts, card = (
        json.loads((PAIR / "training.json").read_text()),
        (PAIR / "README.md").read_text(),
    )
    for domain in DOMAINS:
        row = " | ".join(
            f"{facts['log'][name][-1][domain]:.2f}" for name in ("draft", "target")
        )
        assert f"| {domain} | {row} |" in card
        assert (
            facts["log"]["target"][-1][domain] < facts["log"]["draft"][-1][domain]
        )  # the target is the better model, everywhere


@pytest.mark.parametrize(
    ("count", "new"), [(6, 24), pytest.param(10, 32, marks=pytest.mark.slow)]
)
def test_acceptance_is_between_0_4_and_0_9_in_every_domain_and_domains_differ(
    tiny_pair, count, new
):
    means = {}
    for domain in DOMAINS:
        prompts = encode_prompts(
            tiny_pair.tokenizer, load_prompts("project", count, (domain,)), 512, "none"
        )
        recorded = record_block(
            tiny_pair, prompts, static_tree(1, 1), Sampling(), new, 0, 2048
        )
        means[domain] = np.concatenate([r.trace["overlap"] for r in recorded]).mean()
    assert all(0.4 <= m <= 0.9 for m in means.values()), means
    assert max(means.values()) - min(means.values()) > 0.05, means


def test_the_card_is_written_from_the_log_between_its_marks(tmp_path):
    facts = json.loads((PAIR / "training.json").read_text())
    last = pd.DataFrame({name: facts["log"][name][-1] for name in ("draft", "target")})
    losses = last.drop(index=["step", "minutes", "loss"])
    card, there = tmp_path / "README.md", (PAIR / "README.md").read_text()
    start, end = (there.index(mark) for mark in prepare.CARD_MARKS)
    card.write_text(there[: start + len(prepare.CARD_MARKS[0])] + "old" + there[end:])
    prepare.write_card(card, losses.rename_axis("held-out loss, nats per token"), facts)
    assert card.read_text() == there
    card.write_text("a <!-- x --> b")
    prepare.write_card(card, losses, facts)
    assert card.read_text() == "a <!-- x --> b", "a card without marks is left alone"


def test_held_out_rows_are_consecutive_and_one_token_longer_than_the_context(tiny_pair):
    docs = [
        Document("code", "a b c d e f g " * 9, True),
        Document("code", "never", False),
    ]
    config = TrainConfig(steps=1, context=8)
    rows = prepare.held_out_rows(tiny_pair.tokenizer, docs, config)["code"]
    tokens = prepare.encode(tiny_pair.tokenizer, docs[:1])
    assert rows.shape == ((len(tokens) - 1) // 8, 9)
    assert rows[1].tolist() == tokens[8:17].tolist()


def test_the_command_names_what_is_missing_in_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        prepare.main(["--data", str(tmp_path), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert "DATA must hold train/ and hub_mirror/" in capsys.readouterr().err


@pytest.fixture
def small(monkeypatch, tmp_path):
    """The command over made-up text, with models that train in a second: a function of its options;
    returns the exit status.
    """
    text = (
        "def add(a, b):\n    return a + b  # the sum of both, whatever they are\n" * 90
    )
    docs = {
        seed: [Document("code", text + str(seed), held) for held in (0, 1)]
        for seed in (0, 1)
    }
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    monkeypatch.setattr(prepare, "documents", lambda data, seed: docs[seed])
    monkeypatch.setattr(prepare, "SIZES", dict.fromkeys(prepare.SIZES, sizes | heads))
    monkeypatch.setattr(prepare, "quantise", lambda *_: None)

    def command(*options):
        places = ["--data", "none", "--out", str(tmp_path / "out"), "--work"]
        with pytest.raises(SystemExit) as stopped:
            prepare.main([*places, str(tmp_path / "work"), *options])
        return stopped.value.code or 0

    return command


def test_other_settings_in_the_same_folder_are_refused_and_change_nothing(
    small, tmp_path, capsys
):
    assert small("--steps", "1") == 0
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.safetensors")}
    facts = (tmp_path / "out" / "training.json").read_text()
    assert len(before) == 4 and json.loads(facts)["seed"] == 0
    capsys.readouterr()
    for options, words in (
        (("--steps", "1", "--seed", "1"), "with another seed, text"),
        (("--steps", "2"), "with another steps"),
        (("--steps", "0"), "steps=0: allowed are 1 and up"),
    ):
        assert small(*options) == 2
        [line] = [x for x in capsys.readouterr().err.splitlines() if "speclab" in x]
        assert words in line
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.safetensors")} == before
    assert (tmp_path / "out" / "training.json").read_text() == facts
    assert small("--steps", "1") == 0, "the same settings go on"


def test_a_cut_checkpoint_and_a_folder_that_is_a_file_are_one_line(
    small, tmp_path, capsys
):
    (tmp_path / "out").write_text("")
    assert small("--steps", "1") == 2
    assert f"speclab: cannot write {tmp_path / 'out'}" in capsys.readouterr().err
    (tmp_path / "out").unlink()
    assert small("--steps", "1") == 0
    checkpoint = tmp_path / "work" / "target" / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    assert small("--steps", "1") == 2
    said = capsys.readouterr().err
    assert f"speclab: {checkpoint} is damaged or cut" in said
    assert "Traceback" not in said


def test_the_end_of_a_users_turn_is_not_learned_from_the_given_step_on(
    tiny_pair, monkeypatch
):
    seen = []
    monkeypatch.setattr(
        prepare, "next_token_loss", lambda model, rows, ignored: seen.append(ignored)
    )
    text = "<s><|user|>Hi there</s><|assistant|>Hello!</s>"
    rows = torch.tensor(
        [tiny_pair.tokenizer(text, add_special_tokens=False)["input_ids"]]
    )
    loss = prepare.turn_loss(tiny_pair.tokenizer, mask_from=2)
    loss(None, rows, 1), loss(None, rows, 2)
    labels = tiny_pair.tokenizer.convert_ids_to_tokens(rows[0, 1:])
    assert seen[0] is None and [
        t for t, skip in zip(labels, seen[1][0], strict=True) if skip
    ] == ["</s>"]
    assert seen[1][0].nonzero()[0].item() == labels.index("</s>")

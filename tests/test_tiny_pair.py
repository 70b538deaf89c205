"""The committed tiny pair: its files, its tokenizer, its card, and whether it is good enough to
study.
"""

from conftest import ROOT

from speclab.study.prompts import Prompt, encode_prompts

PAIR = ROOT / "data" / "pairs" / "tiny"


def test_the_weights_are_small_safetensors_and_nothing_is_pickled():
    sizes = [file.stat().st_size for file in PAIR.glob("*/*.safetensors")]
    assert len(sizes) == 3 and max(sizes) < 16e6
    check_committed(PAIR)


def check_committed(pair):
    """Nothing is pickled, and no file names a folder of the machine that trained."""
    files = [file for file in pair.rglob("*") if file.is_file()]
    assert not {file.suffix for file in files} & {".bin", ".pt", ".pth", ".pkl"}
    for file in files:
        if file.suffix in (".json", ".md") and file.name != "tokenizer.json":
            places = ("/tmp", "/work", "/home", "/root")
            assert not [place for place in places if place in file.read_text()]


def test_the_tokenizer_adds_a_bos_reads_digits_singly_and_gives_text_back(tiny_pair):
    tokenizer = tiny_pair.tokenizer
    text = "def f(x):\n    return x + 123\nÜnïcode, $x^2$ and\ttabs\r\n"
    first, *ids = tokenizer(text)["input_ids"]
    assert first == tokenizer.bos_token_id
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    assert len(tokenizer("12345")["input_ids"]) == 6
    [prompt] = encode_prompts(tokenizer, [Prompt("p", "chat", "Hi")], 99, "chat")
    assert tokenizer.decode(prompt.ids) == "<s><|user|>Hi</s><|assistant|>"
    assert tiny_pair.stop_ids == {tokenizer.eos_token_id}

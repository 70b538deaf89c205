"""Shared fixtures: a random Llama pair on disk (transformers, no training), the toy pair, and the
tiny pair.
"""

import gc
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import settings

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "tools")]
ROOT = Path(__file__).resolve().parents[1]
# those with tests that take long: begun first, so that no worker is left with one at the end
LONGEST = ("end_to_end", "workers", "jupyterlab", "reproduce", "faults", "decode")


def committed(pattern):
    """The committed files of a pattern, if all figures are as they were committed. After a call of
    `make reproduce` they are the reader's own, and tests of them have no parameter or skip.
    """

    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)

    if git("diff", "--quiet", "HEAD", "--", "figures", "data").returncode:
        return []
    names = git("ls-files", "-z", f":(glob){pattern}").stdout
    return [ROOT / name for name in sorted(filter(None, names.split("\0")))]


def pytest_addoption(parser):
    """`--as-amx` runs the tests with 4-bit products as a processor with AMX computes them."""
    parser.addoption("--as-amx", action="store_true", help="4-bit kernels round as on AMX")


def pytest_configure(config):
    """How many examples hypothesis makes: fewer where the slow tests are left out.

    A green run stays green: new examples are looked for at home; a busy machine is no failure.
    """
    count = 30 if config.option.markexpr == "not slow" else 100
    settings.register_profile("kit", deadline=None, max_examples=count)
    settings.register_profile("ci", settings.get_profile("kit"), derandomize=True)
    settings.load_profile("ci" if os.environ.get("CI") else "kit")


def pytest_collection_finish():
    """What is imported by now stays: the collector of garbage need not look through it again."""
    gc.freeze()


def pytest_collection_modifyitems(items):
    """The longest files first, the others in their order."""
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Workers of pytest-xdist share the cores: more threads than cores are slower than one."""
    torch.set_num_threads(1)


def round_as_amx(monkeypatch):
    """Let GPTQModel's kernel for CPUs sum parts of a product in bfloat16, as many as the number of
    rows says. On a processor with AMX a row's result also depends on the other rows of its pass.
    """
    from gptqmodel.nn_modules.qlinear.torch_fused import Int4PackedOp

    honest = Int4PackedOp.forward

    def rounded(self, x):
        parts = torch.arange(x.shape[-1]) % (1 + len(x) % 4)
        return sum(honest(self, x * (parts == part)) for part in parts.unique())

    monkeypatch.setattr(Int4PackedOp, "forward", rounded)


@pytest.fixture(scope="session", autouse=True)
def the_processor(request):
    """The kernels of this processor, or with `--as-amx` those of another."""
    with pytest.MonkeyPatch.context() as patch:
        if request.config.option.as_amx:
            round_as_amx(patch)
        yield


SMALL = {
    **{"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512},
    **{"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None, "tie_word_embeddings": False},
}


def random_network(kind="Llama", seed=0, **changes):
    """A small network of an architecture with wide random weights (default initialisation would
    make mask tests blind); changes: of its configuration.
    """
    import transformers

    torch.manual_seed(seed)
    settings = SMALL | {"initializer_range": 0.2} | changes
    config = getattr(transformers, f"{kind}Config")(**settings)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def save_random_llama(folder, seed, vocab=40, layers=2, kv_heads=2, words=37, **changes):
    """A random Llama and a byte tokenizer of `vocab` ids."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    sizes = {"vocab_size": vocab, "num_hidden_layers": layers, "num_key_value_heads": kv_heads}
    random_network("Llama", seed, **(sizes | changes)).save_pretrained(folder)
    names = ["<s>", "</s>", "<unk>"] + [chr(97 + i) if i < 26 else f"w{i}" for i in range(words)]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    return folder


def save_trimmed_draft(folder, base, kept, own=False, dtype=torch.float16, vocab=40):
    """A random draft that outputs the tokens of `kept`. It uses the embedding of `base`, or its
    `own` embedding and tokenizer.
    """
    from safetensors.torch import load_file, save_file

    small = {"layers": 1, "kv_heads": 1, "hidden_size": 16, "head_dim": 8}
    save_random_llama(folder, 5, vocab, **small)
    weights = load_file(folder / "model.safetensors")
    whole = weights["model.embed_tokens.weight"]
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"kept_tokens": len(kept)}
    weights["kept"] = torch.tensor(kept, dtype=torch.int32)
    weights["lm_head.weight"] = weights["lm_head.weight"][list(kept)]
    if not own:
        del weights["model.embed_tokens.weight"]
        weights["embed_map"], weights["embed_kept"] = whole[:32], whole[list(kept)]
        settings["embedding_of"] = os.path.relpath(base, folder)
        for file in folder.glob("*token*"):
            file.unlink()
    (folder / "config.json").write_text(json.dumps(settings))
    half = {k: v if k == "kept" else v.to(dtype) for k, v in weights.items()}
    save_file(half, folder / "model.safetensors", {"format": "pt"})
    return folder


def save_random_head(
    folder, target, said=range(1, 40, 2), taps=(1, 2, 3), layers=1, spread=0.2, **changes
):
    """A random head in the format of speculators for the Llama in the folder `target`, without the
    target's weights. said: the tokens of its vocabulary; taps: the layers that it reads; layers:
    its own; changes: of its configuration.
    """
    from safetensors.torch import save_file
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig
    from transformers import AutoConfig, LlamaConfig

    of_target = AutoConfig.from_pretrained(target)
    settings = {name: getattr(of_target, name) for name in SMALL}
    layer = LlamaConfig(**settings | {"num_hidden_layers": layers})
    verifier = VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"])
    method = GreedyTokenProposalConfig(speculative_tokens=3)
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=len(said),
        eagle_aux_hidden_state_layer_ids=list(taps),
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[method],
            default_proposal_method="greedy",
            verifier=verifier,
        ),
        **changes,
    )
    network = Eagle3DraftModel(config)
    torch.manual_seed(7)
    for value in network.parameters():
        # norms are not 1: a missing norm would not be noticed
        value.data.normal_(1 if value.ndim == 1 else 0, 0.2)
    kept = torch.tensor(said)
    if network.use_draft_vocab:
        network.t2d = torch.isin(torch.arange(settings["vocab_size"]), kept)
        network.d2t = kept - torch.arange(len(kept))
    of_others = ("embed_tokens", "verifier")
    weights = {k: v for k, v in network.state_dict().items() if not k.startswith(of_others)}
    config.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="session")
def random_folders(tmp_path_factory):
    """Folders of a random target and a random draft of one vocabulary."""
    base = tmp_path_factory.mktemp("random-pair")
    return save_random_llama(base / "target", 1), save_random_llama(
        base / "draft", 2, layers=1, kv_heads=1
    )


@pytest.fixture(scope="session")
def random_profile(random_folders):
    """A profile of the random pair."""
    return profile_of(*random_folders)


def profile_of(target, draft, dtype="auto"):
    """A profile of two folders on the CPU."""
    from speclab.plain import ModelSpec
    from speclab.study.profiles import Profile

    both = [ModelSpec(str(one), device="cpu", dtype=dtype) for one in (target, draft)]
    return Profile("random", *both, max_prompt_tokens=128, max_new_tokens=12)


def write_rows(path, rows):
    """A file with a line of JSON for each row."""
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def write_prompts(folder, count):
    """A file with this many short prompts of code and of chat."""
    rows = [
        {"prompt_id": f"{d}-{i}", "domain": d, "prompt": "a b c d"[: 2 * i + 1]}
        for d in ("code", "chat")
        for i in range(count)
    ]
    return write_rows(folder / "prompts.jsonl", rows)


@pytest.fixture(scope="session")
def short_profile(random_profile, tmp_path_factory):
    """The random pair over six short prompts, a block each."""
    prompts = write_prompts(tmp_path_factory.mktemp("prompts"), 3)
    return random_profile.replace(
        prompts=str(prompts),
        prompts_per_domain=3,
        domains=("code", "chat"),
        block_prompts=1,
        max_new_tokens=6,
    )


@pytest.fixture(scope="session")
def short_run(short_profile, random_pair, tmp_path_factory):
    """A recorded run of `short_profile`, only to be read; `run_copy` is to be damaged."""
    from speclab.study.runs import record_run

    folder = tmp_path_factory.mktemp("recorded") / "run"
    return record_run(short_profile, folder, random_pair)


@pytest.fixture
def run_copy(short_run, tmp_path):
    """The folder of a copy of `short_run`."""
    return Path(shutil.copytree(short_run.folder, tmp_path / "copy"))


@contextmanager
def refuses(words):
    """A ValueError must come, of one line, with these words; yields pytest's record of it."""
    with pytest.raises(ValueError, match=words) as error:
        yield error
    assert "\n" not in str(error.value)


def edit_json(path, **changes):
    """Change entries of a JSON file, or make one."""
    facts = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(facts | changes))


def change_weights(folder, *unwanted, **more):
    """Change the weights of a folder: leave out names that hold an unwanted text, add others."""
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    weights = load_file(file)
    kept = {k: v for k, v in weights.items() if not any(text in k for text in unwanted)}
    save_file(kept | more, file, {"format": "pt"})
    return len(weights) - len(kept)


def cut_file(path):
    """Leave the first half of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def tables(folder):
    """The tables of a run folder, byte by byte."""
    return [(folder / f"{name}.parquet").read_bytes() for name in ("trace", "nodes")]


def contents(folder):
    """The files and folders below a folder."""
    paths = folder.rglob("*")
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def interrupted(monkeypatch, owner, name, at):
    """A function is stopped at its call `at` (from 1), as by Ctrl-C; returns the calls it gets."""
    honest, calls = getattr(owner, name), []

    def stopping(*given):
        calls.append(given)
        if len(calls) == at:
            raise KeyboardInterrupt
        return honest(*given)

    monkeypatch.setattr(owner, name, stopping)
    return calls


@pytest.fixture(scope="session")
def random_pair(random_profile):
    """The random pair, loaded through the real loader."""
    from speclab.study.pairs import load_pair

    return load_pair(random_profile)


@pytest.fixture(scope="session")
def tiny_pair():
    """The committed tiny pair on the CPU in float32."""
    from speclab.study.pairs import load_pair
    from speclab.study.profiles import load_profile

    return load_pair(load_profile("tiny", {"device": "cpu"}))

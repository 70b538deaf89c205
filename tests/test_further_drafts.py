"""Further drafts of a profile (`drafts`): notebook 08 compares them along the target's recorded
texts, and they change no run. Each acceptance is computed here again, by transformers alone.
"""

import json
import re
import shutil

import pandas as pd
import pytest
import torch
import yaml
from conftest import edit_json, profile_of, refuses, save_random_head, save_random_llama
from safetensors.torch import load_file, save_file
from test_end_to_end import imported, light  # noqa: F401
from test_small_studies import little, quick  # noqa: F401
from test_translated import byte_level
from transformers import AutoModelForCausalLM

from speclab.__main__ import main
from speclab.cli import doctor
from speclab.drafts import candidates, shipped
from speclab.plain import ModelSpec
from speclab.score import ALL
from speclab.study import pairs, recording, runs
from speclab.study.pairs import load_pair
from speclab.study.profiles import ROOT, load_profile

TINY = ROOT / "data/pairs/tiny"
FIND_SHIPPED = shipped.shipped_drafts
KEPT = 2000  # tokens of the draft with another vocabulary, of the target's 4096


def with_one_layer(folder):
    """The tiny draft without its last layer."""
    shutil.copytree(TINY / "draft", folder)
    edit_json(folder / "config.json", num_hidden_layers=1)
    return folder


def with_other_ids(folder):
    """The tiny draft with another vocabulary: the first KEPT tokens, from the last to the first."""
    shutil.copytree(TINY / "draft", folder)
    edit_json(folder / "config.json", vocab_size=KEPT)
    weights = load_file(folder / "model.safetensors")
    name = "model.embed_tokens.weight"
    weights[name] = weights[name][:KEPT].flip(0).contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    facts = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = {t: KEPT - 1 - i for t, i in facts["model"]["vocab"].items() if i < KEPT}
    merges = [both for both in facts["model"]["merges"] if "".join(both) in vocab]
    for token in facts["added_tokens"]:
        token["id"] = vocab[token["content"]]
    facts["model"] |= {"vocab": vocab, "merges": merges}
    edit_json(folder / "tokenizer.json", **facts)
    return folder


def hits_by_hand(folder, prompts, texts, spelled):
    """Whether the best token of a network of transformers is the text's, by prompt. spelled: its
    ids of each of the target's.
    """
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = {}
    for prompt in prompts:
        text, own, ends = texts[prompt.prompt_id], [], []
        for token in (*prompt.ids, *text[:-1]):
            own += spelled[token]
            ends.append(len(own) - 1)
        with torch.inference_mode():
            logits = network(torch.tensor([own])).logits[0, ends[-len(text) :]]
        best = logits.argmax(-1).tolist()
        found[prompt.prompt_id] = [(b,) == spelled[t] for b, t in zip(best, text, strict=True)]
    return found


def mean_of_domains(prompts, hits):
    """The share of accepted first tokens."""
    rows = [(prompt.domain, hit) for prompt in prompts for hit in hits[prompt.prompt_id]]
    return pd.DataFrame(rows, columns=["domain", "hit"]).groupby("domain")["hit"].mean().mean()


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("quick")
def test_each_draft_has_a_row_of_its_own_acceptance(little, capfd, monkeypatch):  # noqa: F811
    """The study's own draft has another vocabulary; one further draft is the kit's own."""
    folders = {
        "own draft": with_other_ids(little / "other/draft"),
        "short/draft": with_one_layer(little / "short/draft"),
        "tiny/draft": TINY / "draft",
    }
    study, work = little / "mine.yaml", little / "runs" / "drafts"
    facts = {"target": "data/pairs/tiny/target", "draft": "other/draft"}
    facts |= {"drafts": ["short/draft", {"path": "data/pairs/tiny/draft"}]}
    facts |= {"prompts_per_domain": 5, "max_new_tokens": 24, "other_prompts": []}
    changes = {"bit_widths": [0], "exit_layers": [2], "max_gamma": 2}
    study.write_text(yaml.safe_dump(facts | {"notebooks": {"08": changes}}), encoding="utf-8")
    profile = load_profile(study)
    pair = load_pair(profile)
    for module in (pairs, recording):
        monkeypatch.setattr(module, "load_pair", lambda profile: pair)
    monkeypatch.setattr(shipped, "shipped_drafts", FIND_SHIPPED)
    monkeypatch.setattr(candidates, "WORK", work)
    words = ["reproduce", "--profile", str(study), "--notebook", "08", "--out", str(little)]
    status = main(words)
    said = capfd.readouterr()
    assert status == 0, said.out[-3000:] + said.err[-3000:]

    # one row per draft in every table
    tables = little / "figures/mine/08"
    first = pd.read_csv(tables / "first-token.csv")
    first = first[first["domain"] == ALL].set_index("draft")["estimate"]
    for name in ("first-token", "drafts", "tokens-per-pass"):
        drafts = pd.read_csv(tables / f"{name}.csv")["draft"]
        assert {*drafts} == {*folders, "early exit after 2 layers", "prompt lookup"}, name

    # the target wrote once, what it writes with every draft
    run, prompts = runs.recorded_run(profile, "greedy"), runs.encoded_prompts(profile)
    assert {*(little / "runs").iterdir()} == {run.folder, work}
    texts = runs.texts_of(run)
    shipped_texts = runs.texts_of(runs.load_run("data/traces/tiny/greedy"))
    assert texts == {name: shipped_texts[name][: len(text)] for name, text in texts.items()}

    # their acceptance, by hand and from their traces
    same = [(place,) for place in range(4096)]
    kept = [pd.read_parquet(path) for path in (work / "greedy").glob("further-draft-*")]
    assert len(kept) == 2, "a trace each"
    by_prompt = [
        {name: (rows["draft_rank"] == 0).tolist() for name, rows in trace.groupby("prompt_id")}
        for trace in [run.trace, *kept]
    ]
    for name, folder in folders.items():
        spelled = pair.draft.spelled if name == "own draft" else same
        wanted = hits_by_hand(folder, prompts, texts, spelled)
        assert wanted in by_prompt, name
        assert first[name] == pytest.approx(mean_of_domains(prompts, wanted)), name
    assert first[[*folders]].nunique() == 3 and first[[*folders]].min() > 0.1


# ---- the key of a profile ------------------------------------------------------------------------


def test_further_drafts_change_no_run_and_have_keys_of_their_own(random_folders, tmp_path):
    profile = profile_of(*random_folders).replace(prompts_per_domain=5)
    further = [ModelSpec(str(save_random_llama(tmp_path / str(n), n))) for n in (3, 4)]
    both = profile.replace(drafts=tuple(further))
    assert runs.run_key(both) == runs.run_key(profile)
    assert len({runs.run_key(profile.replace(draft=one)) for one in (profile.draft, *further)}) == 3
    assert [*both.models.values()] == [profile.target, profile.draft, *further]


def test_settings_of_further_drafts_are_read_as_those_of_the_draft(tmp_path):
    (tmp_path / "mine").mkdir()
    text = "target: data/pairs/tiny/target\ndraft: data/pairs/tiny/draft\ndrafts: [mine, "
    (tmp_path / "my.yaml").write_text(text + "{path: owner/name, dtype: float16, revision: abc}]")
    profile = load_profile(tmp_path / "my.yaml", {"device": "cpu"})
    assert profile.drafts == (
        ModelSpec(str(tmp_path / "mine"), device="cpu"),
        ModelSpec("owner/name", "abc", "float16", "cpu"),
    )
    assert load_profile(tmp_path / "my.yaml", {"drafts": ["a/b"]}).drafts == (ModelSpec("a/b"),)


@pytest.mark.parametrize(
    ("drafts", "words"),
    [
        (["a/b", {"path": "a/b/", "dtype": "float16"}], "drafts: a/b is named twice"),
        (["data/pairs/tiny/target"], "target is named twice"),
        (["a/b", "data/pairs/smollm/../tiny/draft"], "draft is named twice"),
        ("a/b", "drafts='a/b': "),
        ([{"pth": "a/b"}], r"drafts\.0: .*unknown parameter 'pth': did you mean 'path'"),
        (["a/b", {"path": "c/d", "dtype": "int4"}], r"drafts\.1: dtype='int4'"),
        (["a/b", 7], r"drafts\.1: path=7"),
    ],
)
def test_a_list_that_names_no_further_draft_is_refused(drafts, words):
    with refuses(words):
        load_profile("tiny", {"drafts": drafts})


# ---- drafts that are refused, and drafts that run with a line ------------------------------------


def loaded(pair, profile, folder):
    """A folder as a further draft of a pair."""
    return candidates.load_candidate("any", pair, profile, ModelSpec(str(folder), device="cpu"))


def test_a_head_is_the_draft_of_a_profile_of_its_own(random_folders, random_pair, tmp_path):
    head = save_random_head(tmp_path / "head", random_folders[0])
    profile = profile_of(*random_folders).replace(drafts=(ModelSpec(str(head)),))
    with refuses(f"{head}: it is a trained head.*use a causal"):
        loaded(random_pair, profile, head)
    said, _ = doctor.report(profile)
    [row] = re.findall(rf"do  drafts.0: drafts.0 {head}: it is a trained head.*\n.*", said)
    assert "-> use a causal language model" in row and " disk: " in said


def test_a_larger_draft_runs_and_is_said_once(random_folders, random_pair, tmp_path, capsys):
    large = save_random_llama(tmp_path / "large", 3, layers=4)
    for _ in range(2):
        loaded(random_pair, profile_of(*random_folders), large)
        load_pair(profile_of(random_folders[0], large))
    assert re.findall(".*more parameters.*", capsys.readouterr().out) == [
        f"{large} has more parameters than its target, so it will hardly save time"
    ]
    loaded(random_pair, profile_of(*random_folders), random_folders[1])
    assert not capsys.readouterr().out, "a smaller draft"


def test_few_common_tokens_are_counted(tiny_pair, tmp_path, capsys):
    words = byte_level(["in", "Ġth", "zzz"], ("</s>", "<other>"))
    folder = save_random_llama(tmp_path / "few", 3, len(words), 1, max_position_embeddings=1024)
    words.save_pretrained(folder)
    few = loaded(tiny_pair, load_profile("tiny", {"device": "cpu"}), folder)
    common = {*words.get_vocab()} & {*tiny_pair.tokenizer.get_vocab()}
    assert 256 < few.pair.draft.tokens_said == len(common) < len(words)
    assert f"{folder} shares only {len(common)} tokens with its target" in capsys.readouterr().out


def test_the_ids_of_the_own_draft_do_not_limit_a_further_one(tmp_path):
    """Nor the other way round: with each draft the target has the ids that these two share."""
    sizes = {"target": 48, "small": 40, "large": 48}
    target, *drafts = (
        save_random_llama(tmp_path / name, seed, vocab=size, words=size - 3)
        for seed, (name, size) in enumerate(sizes.items())
    )
    texts = {}
    for own, further in (drafts, drafts[::-1]):
        profile = profile_of(target, own).replace(prompts_per_domain=1, max_new_tokens=6)
        pair, [prompt, *_] = load_pair(profile), runs.encoded_prompts(profile)
        text = texts.setdefault(prompt.prompt_id, (5, 9, 33, 20))
        one = loaded(pair, profile, further)
        assert (pair.vocab, one.pair.vocab) == (sizes[own.name], sizes[further.name])
        made, wanted = (
            candidates.trace_along(each, profile, {prompt.prompt_id: text})
            for each in (one.pair, load_pair(profile_of(target, further)))
        )
        pd.testing.assert_frame_equal(made, wanted)

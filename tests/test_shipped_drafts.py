"""The shipped drafts: notebook 08 finds all of them by the weights of the pair."""

import shutil

import pytest
from test_faults import turned

from data.drafts import prepare
from speclab.drafts import candidates, quantise, shipped
from speclab.drafts.shipped import INDEX, SHIPPED, shipped_drafts
from speclab.models.folder import ModelFolder
from speclab.study.profiles import load_profile
from speclab.study.prompts import load_prompts
from speclab.study.runs import Damaged, of_kind, write_facts

TINY = SHIPPED / "tiny"


@pytest.fixture(scope="module")
def profile():
    return load_profile("tiny", {"device": "cpu"}).replace(temperature=0.0)


@pytest.fixture
def copied(tmp_path):
    """A copy of the drafts of `tiny`, which a test may change."""
    return shutil.copytree(TINY, tmp_path / "drafts" / "tiny")


def test_all_of_them_are_found(tiny_pair, random_pair):
    made = shipped_drafts(tiny_pair)
    assert len(made) == 9 and shipped_drafts(random_pair) == []
    assert {one.folder for one in made} == {path.parent for path in TINY.glob("*/*.safetensors")}


def test_a_draft_without_its_tokenizer_is_refused(copied):
    """Its config.json names the pair's draft, which was not copied."""
    folder = ModelFolder(next(copied.glob("distilled-*")))
    with pytest.raises(ValueError, match=r"config.json says that its tokenizer is in .*copy that"):
        _ = folder.tokenizer


def test_the_scripts_would_make_the_same_ones(tiny_pair, profile, copied, monkeypatch):
    """Names contain a hash of texts and settings, so this checks the target, the prompts and all
    settings. Nothing is trained, because every draft is finished.
    """
    monkeypatch.setattr("data.drafts.texts.generate", None)
    monkeypatch.setattr("data.drafts.distil.optimise", None)
    (copied / INDEX).unlink()
    drafts = prepare.train_all(prepare.wanted(tiny_pair, profile), copied)
    assert len(drafts) == 9 and all(one.facts["tokens"] > 20_000 for one in drafts)
    assert (copied / INDEX).read_bytes() == (TINY / INDEX).read_bytes()
    card = (SHIPPED / "README.md").read_text(encoding="utf-8")
    assert prepare.card_table(drafts) in card, "python -m data.drafts.prepare"
    other = prepare.wanted(tiny_pair, profile, steps=7)
    with pytest.raises(TypeError, match="not callable"):  # not finished: it would be trained
        prepare.train_all(other[:1], copied)


def test_a_damaged_draft_is_refused(tiny_pair, copied):
    weights = next(copied.glob("*/model.safetensors"))
    weights.write_bytes(turned(weights.read_bytes(), -1))
    with pytest.raises(Damaged, match=f"{weights} has changed .* git checkout"):
        shipped_drafts(tiny_pair, copied.parent)


# ---- recorded drafts -----------------------------------------------------------------------------


def test_a_recorded_draft_is_read_for_what_it_was_made_of(tiny_pair, profile, tmp_path):
    """The same target, calibration and bit width."""
    texts = {prompt.prompt_id: (5, 6, 7) for prompt in load_prompts("project", 1)}
    folder = tiny_pair.target.folder.path

    def made_of(rows, bits):
        calibration = quantise.calibration_of(tiny_pair, profile, 1, 0, rows)
        return quantise.made_of(folder, calibration, bits)

    trace = candidates.trace_along(tiny_pair, of_kind(profile, "greedy"), texts)
    written = tmp_path / "tiny" / shipped.name_of("int4", *made_of(2, 4)[1])
    written.mkdir(parents=True)
    trace.to_parquet(written / "greedy.parquet")
    write_facts(written / shipped.FACTS, {"weight_bytes": 1000}, [written / "greedy.parquet"])
    again = shipped.recorded_draft(*made_of(2, 4), tmp_path)
    assert again.weight_bytes == 1000
    assert again.traces["greedy"]["token"].tolist() == [5, 6, 7] * len(texts)
    assert shipped.recorded_draft(*made_of(1, 4), tmp_path) is None, "another calibration"
    assert shipped.recorded_draft(*made_of(2, 3), tmp_path) is None, "other bits"
    table = written / "greedy.parquet"
    table.write_bytes(turned(table.read_bytes(), 40))
    with pytest.raises(Damaged, match="git checkout"):
        shipped.recorded_draft(*made_of(2, 4), tmp_path)

"""The trained drafts that come with the kit: notebook 08 finds them all by the weights of the pair,
they are whole, and they were made of what their names say.
"""

import shutil
from types import SimpleNamespace

import pytest
from test_faults import turned

from data.drafts import prepare
from speclab.drafts import shipped
from speclab.drafts.shipped import INDEX, SHIPPED, shipped_drafts
from speclab.ops import reproduce
from speclab.profiles import ROOT, load_profile
from speclab.runs import Damaged, read_facts, write_facts
from speclab.studies.better_drafts import candidates

TINY = SHIPPED / "tiny"


@pytest.fixture(scope="module")
def profile():
    return load_profile("tiny", {"device": "cpu"}).replace(temperature=0.0)


@pytest.fixture
def copied(tmp_path):
    """A copy of the drafts of `tiny`, which a test may change."""
    return shutil.copytree(TINY, tmp_path / "drafts" / "tiny")


def test_notebook_08_finds_all_of_them(tiny_pair, profile):
    tried = SimpleNamespace(pair=tiny_pair, profile=profile, added=[])
    tried.add = tried.added.append
    trained = candidates.trained_drafts(tried)
    made = [one for family in trained.values() for one in family.values()]
    assert len(made) == len(tried.added) == 9
    assert {one.folder for one in made} == {path.parent for path in TINY.glob("*/*.safetensors")}


def test_the_scripts_would_make_the_same_ones(tiny_pair, profile, copied, monkeypatch):
    """Names contain a hash of texts and settings, so this holds the target, the prompts and all
    settings. Nothing is trained: every draft is finished.
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


def test_a_pair_of_other_weights_has_none(tiny_pair, random_pair):
    assert len(shipped_drafts(tiny_pair)) == 9 and shipped_drafts(random_pair) == []


def test_a_damaged_draft_is_refused(tiny_pair, copied):
    weights = next(copied.glob("*/model.safetensors"))
    weights.write_bytes(turned(weights.read_bytes(), -1))
    with pytest.raises(Damaged, match=f"{weights} is damaged .* git checkout"):
        shipped_drafts(tiny_pair, copied.parent)


def test_a_draft_of_other_settings_than_its_name_says_is_refused(tiny_pair, copied):
    path = next(copied.glob(f"specialist-seed-1-*/{shipped.FACTS}"))
    facts = read_facts(path, "") | {"objective": "sequence"}
    write_facts(path, facts, [path.parent / name for name in facts["files"]])
    with pytest.raises(Damaged, match="specialist-seed-1-.* other settings than its name"):
        shipped_drafts(tiny_pair, copied.parent)


def test_they_are_an_input_of_notebook_08():
    assert ROOT / shipped.READS[0] == SHIPPED
    path = ROOT / "notebooks" / "08_better_drafts.ipynb"
    assert reproduce.notebook_of(path, {}).reads >= {*shipped.READS}

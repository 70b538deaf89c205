"""How the drafts of notebook 08 were trained: `python -m data.drafts.prepare [--profile tiny]`.

With the notebook's own parameters and functions, into data/drafts/<profile>; a finished draft stays
(remove its folder to train it again), a killed call goes on. Then the table of the card is written.
"""

import sys
from pathlib import Path

import click

from speclab.drafts.distil import SHIPPED, TrainedDraft, distil
from speclab.models.pairs import Pair, load_model, load_pair
from speclab.ops.parameters import parameters_of
from speclab.profiles import ROOT, ModelSpec, Profile, load_profile
from speclab.runs import RunError
from speclab.studies.better_drafts.candidates import (
    Training,
    train_config,
    training_text,
    trainings,
)

NOTEBOOK = ROOT / "notebooks" / "08_better_drafts.ipynb"
CARD_MARKS = (
    "<!-- numbers: written by `python -m data.drafts.prepare` -->",
    "<!-- /numbers -->",
)


def asked(pair: Pair, profile: Profile) -> list[Training]:
    """The trainings that notebook 08 asks for with this profile."""
    defaults = {n: p.default for n, p in parameters_of(NOTEBOOK).items()}
    own = defaults | profile.notebooks.get(NOTEBOOK.stem, {})
    text = training_text(
        pair, profile, own["train_prompts_per_domain"], own["train_prompts_seed"]
    )
    config = train_config(own["steps"], own["batch"], own["learning_rate"])
    return list(trainings(text, own["objectives"], own["seeds"], config))


def checked(made: TrainedDraft) -> TrainedDraft:
    """A draft that loads, and learnt: its objective on held-out text has fallen."""
    load_model(ModelSpec(str(made.folder), device="cpu"))
    first, *_, last = made.curve["objective"]
    if not last < first:
        raise ValueError(
            f"{made.folder}: the objective on held-out text rose from {first:.3f} to {last:.3f}"
        )
    return made


def card_table(drafts: list[TrainedDraft]) -> str:
    """A row a draft: its folder, the text it was trained on, minutes, and acceptance on held-out
    training prompts before and after.
    """
    lines = [
        "| folder | texts | tokens | minutes | hit[1] | alpha |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for made in drafts:
        facts, curve = made.facts, made.curve
        counts = [f"{facts['texts']}", f"{facts['tokens']}", f"{facts['minutes']:.1f}"]
        changes = [
            f"{curve[name].iloc[0]:.3f} → {curve[name].iloc[-1]:.3f}"
            for name in ("hit[1]", "overlap")
        ]
        lines.append(f"| {' | '.join([made.folder.name, *counts, *changes])} |")
    return "\n".join(lines)


def write_card(card: Path, table: str) -> None:
    """Put the table between the marks of the card."""
    before, _, rest = card.read_text(encoding="utf-8").partition(CARD_MARKS[0])
    after = rest.partition(CARD_MARKS[1])[2]
    text = f"{before}{CARD_MARKS[0]}\n{table}\n{CARD_MARKS[1]}{after}"
    card.write_text(text, encoding="utf-8")


@click.command(help=__doc__)
@click.option("--profile", "name", default="tiny", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=SHIPPED)
def main(name: str, out: Path) -> None:
    """Train what is not there yet, check it, write the card."""
    try:
        profile = load_profile(name, {"device": "cpu"}).replace(temperature=0.0)
        pair, folder = load_pair(profile), out / name
        drafts = []
        for one in asked(pair, profile):
            made = distil(one.text, one.objective, one.config, one.name, folder)
            drafts.append(checked(made))
            (made.folder / ".lock").unlink(missing_ok=True)
        if (out / "README.md").is_file() and name == "tiny":
            write_card(out / "README.md", card_table(drafts))
    except (ValueError, RunError, OSError, FloatingPointError) as error:
        print(f"speclab: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

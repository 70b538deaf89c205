"""`python -m data.drafts.prepare [--profile tiny]`: train the drafts that notebook 08 tests.

They are written to data/drafts/<profile>. Finished drafts are kept (remove a draft's folder to
train it again), and an interrupted call can be continued. The script then writes the index
`drafts.json`, and for `tiny` the table in the card.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from data.drafts.distil import TrainedDraft, distil
from data.drafts.texts import FOLDER, TextConfig, TrainingText, continuations
from data.drafts.train import TrainConfig, fill_card
from data.training_prompts.compose import training_prompts
from speclab.drafts.shipped import INDEX, SHIPPED, weights_of
from speclab.model import Pair
from speclab.models.pairs import load_model
from speclab.plain import ModelSpec
from speclab.study.pairs import load_pair
from speclab.study.profiles import Profile, load_profile
from speclab.study.runs import RunError, write_facts

# the first objective is trained with every seed, the others with the first seed
ORDER = ("total-variation", "forward-kl", "reverse-kl", "sequence")
SEEDS = (0, 1, 2)
SPECIALIST = "specialist"  # the family that learns some domains only
SPECIALTY = ("math", "reasoning")  # domains of the specialist


class Training(NamedTuple):
    """One draft to train: its family (an objective, or the specialist), its name, its objective and
    its training text.
    """

    family: str
    name: str
    objective: str
    text: TrainingText
    config: TrainConfig


def train_config(steps: int = 150, batch: int = 16, learning_rate: float = 1e-3) -> TrainConfig:
    """A configuration for steps of `batch` texts. One step in fifteen is warm-up. The draft is
    measured five times.
    """
    return TrainConfig(
        steps=steps,
        batch=batch,
        lr_matrix=learning_rate,
        lr_other=learning_rate,
        warmup_steps=max(1, steps // 15),
        checkpoint_every=max(1, steps // 5),
    )


def trainings(
    text: TrainingText,
    config: TrainConfig,
    objectives: Sequence[str] = ORDER,
    seeds: Sequence[int] = SEEDS,
) -> Iterator[Training]:
    """The first objective with every seed, and the others with the first seed. Then the specialist
    with every seed, trained with the first objective on SPECIALTY only.
    """
    first = objectives[0]
    for family in objectives:
        for seed in seeds if family == first else seeds[:1]:
            name = f"distilled, {family}, seed {seed}"
            yield Training(family, name, family, text, replace(config, seed=seed))
    for seed in seeds:
        name = f"{SPECIALIST}, seed {seed}"
        settings = replace(config, seed=seed)
        yield Training(SPECIALIST, name, first, text.only(SPECIALTY), settings)


def wanted(
    pair: Pair, profile: Profile, steps: int = 150, prompts_per_domain: int = 100
) -> list[Training]:
    """The trainings of a pair, on its target's continuations of composed prompts."""
    limits = profile.max_prompt_tokens, profile.max_new_tokens
    settings = TextConfig(*limits, template=profile.template)
    prompts = training_prompts(prompts_per_domain)
    text = continuations(pair, prompts, settings, FOLDER)
    return list(trainings(text, train_config(steps)))


def train_all(asked: Sequence[Training], folder: Path) -> list[TrainedDraft]:
    """Train missing drafts in `folder`, check every draft, and write the index."""
    drafts, rows = [], []
    for one in asked:
        made = distil(one.text, one.objective, one.config, one.name, folder)
        drafts.append(checked(made))
        (made.folder / ".lock").unlink(missing_ok=True)
        rows.append({"name": one.name, "family": one.family, "folder": made.folder.name})
    listed = {"pair": weights_of(asked[0].text.pair), "drafts": rows}
    write_facts(folder / INDEX, listed, [])
    return drafts


def checked(made: TrainedDraft) -> TrainedDraft:
    """Check that a draft loads and that training lowered its objective on held-out text."""
    load_model(ModelSpec(str(made.folder), device="cpu"))
    first, *_, last = made.curve["objective"]
    if not last < first:
        raise ValueError(
            f"{made.folder}: the objective on held-out text rose from {first:.3f} to {last:.3f}"
        )
    return made


def card_table(drafts: list[TrainedDraft]) -> str:
    """One row per draft: its folder, training texts, minutes, and acceptance on held-out training
    prompts before and after training.
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


@click.command(help=__doc__)
@click.option("--profile", "name", default="tiny", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=SHIPPED)
@click.option("--steps", type=click.IntRange(1), default=150, show_default=True)
@click.option("--prompts-per-domain", type=click.IntRange(1), default=100, show_default=True)
def main(name: str, out: Path, steps: int, prompts_per_domain: int) -> None:
    """Train missing drafts, check them, and write the index and the card."""
    try:
        profile = load_profile(name, {"device": "cpu"}).replace(temperature=0.0)
        asked = wanted(load_pair(profile), profile, steps, prompts_per_domain)
        drafts = train_all(asked, out / name)
        if name == "tiny":
            fill_card(out / "README.md", card_table(drafts))
    except (ValueError, RunError, OSError, FloatingPointError) as error:
        print(f"speclab: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

"""`python -m data.drafts.self_draft --profile smollm --bits 4`: record a self-draft.

GPTQ makes a copy of the target with a few bits, calibrated as notebook 08 does for this profile.
The copy runs once over the texts on which the notebook tests drafts. data/drafts/<profile> then
contains its proposals at each position. Notebook 08 reads them and makes no copy.
"""

from dataclasses import replace
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path

import click

from speclab.drafts import candidates, quantise, shipped
from speclab.study.pairs import load_pair
from speclab.study.profiles import load_profile
from speclab.study.prompts import decoded_prompts
from speclab.study.runs import (
    encoded_prompts,
    load_or_record,
    of_kind,
    texts_of,
    write_facts,
    written,
)

NOTEBOOK = "08_better_drafts"
CALIBRATION = ("calibration_prompts_per_domain", "calibration_seed", "calibration_rows")


@click.command(help=__doc__)
@click.option("--profile", "name", default="smollm", show_default=True)
@click.option("--bits", type=click.IntRange(2, 8), default=4, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=shipped.SHIPPED)
def main(name: str, bits: int, out: Path) -> None:
    """Record the self-draft of a profile."""
    profile = load_profile(name).replace(temperature=0.0)
    settings = profile.notebooks[NOTEBOOK]
    pair = load_pair(profile)
    judged = settings["judged_prompts_per_domain"]
    every = encoded_prompts(profile)
    prompts = decoded_prompts(every, judged, profile.notes.decoded_from) if judged else every
    numbers = [settings[key] for key in CALIBRATION]
    calibration = quantise.calibration_of(pair, profile, *numbers)
    made = quantise.quantised_copy(pair.target.folder.path, candidates.WORK, calibration, bits)
    spec = replace(profile.draft, path=str(made.plain), revision=None)
    draft = candidates.load_candidate(name, pair, profile, spec)
    label, made_of = quantise.made_of(pair.target.folder.path, calibration, bits)
    folder, tables = out / name / shipped.name_of(label, *made_of), []
    for kind in ("greedy", "sampled"):
        texts = texts_of(load_or_record(profile, kind))
        wanted = {prompt.prompt_id: texts[prompt.prompt_id] for prompt in prompts}
        trace = candidates.trace_along(draft.pair, of_kind(profile, kind), wanted)
        tables.append(folder / f"{kind}.parquet")
        written(tables[-1], partial(trace.to_parquet, index=False, compression="zstd"))
    facts = {
        "bits": bits,
        "group": quantise.GROUP,
        "gptqmodel": version("gptqmodel"),
        "made": str(date.today()),
        "weight_bytes": made.weight_bytes,
        **dict(zip(CALIBRATION, numbers, strict=True)),
    }
    write_facts(folder / shipped.FACTS, facts, tables)
    click.echo(folder)


if __name__ == "__main__":
    main()

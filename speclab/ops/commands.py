"""The verbs of the command line `python -m speclab VERB`, see --help. `make` calls them too.

Every verb is a few lines that hand its options to the module that does the work, imported when it
is called, so that --help is fast. An error that the user can mend is one line that says what to do,
and exit status 2.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, get_args, get_origin

import click

from speclab.ops import hosted
from speclab.ops.decode_call import READS, DecodeCall
from speclab.plain import notice, shown
from speclab.profiles import load_profile, parse_overrides
from speclab.show.notebook import quiet

STOPPED = (
    "speclab: stopped; what record, decode, reproduce and fetch have finished is kept, and the "
    "same command (without --force) goes on from there"
)
PLACE = click.Path(path_type=Path)
TYPES = {Path: PLACE, Path | None: PLACE}
SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}
option = click.option


def echo(text: object) -> None:
    """Print a text on one line: names come from manifests and folders of others, so control
    characters are shown and not obeyed.
    """
    click.echo(shown(text))


@click.group(context_settings=SETTINGS, no_args_is_help=False)
def cli() -> None:
    """Study kit for speculative decoding."""


verb = cli.command  # the function below it, with the options above it
PROFILE = option(
    "--profile", default="smollm", help="A name from notebooks/profiles, or a YAML file."
)
CHANGES = option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    callback=lambda _context, _option, values: parse_overrides(values),
    help="Change a parameter of the profile; again for more.",
)


# ---- record and decode ---------------------------------------------------------------------------


@verb("record")
@PROFILE
@option(
    "--kind",
    default="greedy",
    help="greedy, sampled (at the profile's temperature above 0, else at 1), sampled-seed-1, "
    "sampled-seed-2, sampled-0.3, sampled-0.7 (at these temperatures), balanced, chain, "
    "chat-template, plain-template, long, or one of the profile's other prompts (unwrapped, "
    "second, other-FILE; with -sampled at its temperature). `plan` lists them.",
)
@CHANGES
@option("--out", type=PLACE, help="Folder of the run (default: data/runs/PROFILE-KIND-KEY).")
@option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    help="ray: actors on the cluster of RAY_ADDRESS, else of this machine.",
)
@option(
    "--devices",
    multiple=True,
    metavar="DEVICE",
    help="local: a process and a pair of its own on this device; again for more.",
)
@option(
    "--workers", type=click.IntRange(1), help="ray: actors (default: one a GPU, else one a CPU)."
)
def _record(profile, kind, changes, out, engine, devices, workers) -> None:
    """Record trace, nodes and manifest of a profile."""
    from speclab import runs
    from speclab.ops import run_plan
    from speclab.ops.workers import engine_of

    settings = load_profile(profile, changes)
    of_kind = runs.of_kind(settings, kind)
    decides = {name for name, value in runs.kinds_of(settings)[kind].items() if value is not None}
    if decided := sorted(decides & changes.keys()):
        raise ValueError(f"--set {decided[0]}: --kind {kind} decides it; leave it out")
    workers = engine_of(engine, devices, workers)
    run_plan.fetch_models(settings, [kind])
    if out:
        run = runs.record_run(of_kind, out, engine=workers, kind=kind)
    else:
        run = runs.load_or_record(settings, kind, workers)
    rows = run.manifest["rows"]
    echo(f"{rows['trace']} positions, {rows['nodes']} nodes in {run.folder}")


@verb("pack")
@click.argument("run", type=PLACE)
@option("--out", type=PLACE, required=True, help="Folder of the trace: a new one.")
@option("--kind", help="Where the folder of the run does not tell, as greedy.")
@option(
    "--licence",
    help="Of prompts and text, in a line (default: `licence` of the profile's notes).",
)
def _pack(run, out, kind, licence) -> None:
    """Write the finished run in the folder RUN as a trace to give away: tables, manifest, card."""
    from speclab.ops.pack import pack
    from speclab.runs import load_run

    folder = pack(load_run(run), out, kind, licence)
    size = sum(path.stat().st_size for path in folder.iterdir())
    echo(f"{size / 1e6:.1f} MB in {folder}; it is described in its README.md")


@verb("explore")
@click.argument("folders", nargs=-1, type=PLACE, metavar="[RUN [RUN]]")
@option("--profile", help="In place of RUN: this profile's runs, where they are there.")
@CHANGES
@option("--out", type=PLACE, required=True, help="The HTML file.")
def _explore(folders, profile, changes, out) -> None:
    """Write a page that replays the run or trace in the folder RUN under any draft, by hand, in a
    browser; a greedy and a sampled run of one pair can be given together.
    """
    from speclab.explore import page
    from speclab.runs import load_run

    if bool(folders) == bool(profile):
        raise ValueError("give folders of runs, or --profile")
    if folders and changes:
        raise ValueError("--set changes a --profile, not a recorded run; leave it out")
    if profile:
        runs = page.runs_there(load_profile(profile, changes))
    else:
        runs = [load_run(folder) for folder in folders]
    is_new = page.write_page(runs, out)
    echo(f"{out}: {'done' if is_new else 'up to date'}; open it in a browser")


@verb("export")
@click.argument("run")
@option(
    "--for",
    "engine",
    required=True,
    type=click.Choice(["vllm", "sglang", "llama.cpp", "transformers", "tensorrt-llm"]),
)
@option(
    "--c",
    type=click.FloatRange(0),
    help="Assume that a draft pass costs this many target passes (v = 1, o = 0), as elsewhere "
    "(default: what notebook 09 measured for the pair, else the draft's share of the bytes).",
)
@option(
    "--profile-json",
    type=PLACE,
    help="Also write the acceptance as NVIDIA's speculation_profile.json, a new file.",
)
def _export(run, engine, c, profile_json) -> None:
    """Print how a server is told to draft as is best for the pair of RUN: the folder of a run or
    trace, a trace of the kit (smollm/sampled), or a profile (its greedy run).

    It is the smallest gamma that is not significantly slower than the fastest.
    """
    from speclab.analysis import choose, policy
    from speclab.ops import export

    if profile_json and profile_json.exists():
        raise ValueError(f"--profile-json {profile_json} is there; name a new file")
    recorded = export.run_named(run)
    if reason := export.why_not(recorded, engine):
        raise ValueError(reason)
    costs, measured = policy.costs_for(recorded, c)
    rule = export.rule_of(recorded, engine)
    longest = recorded.manifest["profile"]["max_new_tokens"]
    gamma, said = choose.best_gamma(recorded.trace, costs, rule, longest)
    echo(f"# {said}")
    echo(f"# costs: {measured}")
    lines = export.commands(recorded, engine, gamma)
    click.echo(lines or "# start the server without a draft model")
    if profile_json:
        export.write_profile(recorded, gamma or 1, rule, profile_json)


def options_of(call: type) -> Callable[[Callable], Callable]:
    """The options of a verb from the fields of a dataclass that are annotated with their help."""

    def decorated(function: Callable) -> Callable:
        for field in reversed(fields(call)):
            if get_origin(field.type) is Annotated:
                kind, text = get_args(field.type)
                about = {"help": text, "type": TYPES.get(kind), "is_flag": kind is bool}
                if field.default is MISSING:
                    about["required"] = True
                else:
                    about["default"] = field.default
                function = option(f"--{field.name}", **about)(function)
        return function

    return decorated


@verb("decode")
@PROFILE
@options_of(DecodeCall)
@CHANGES
def _decode(profile, changes, **options) -> None:
    """Decode prompts speculatively, one JSON line each.

    Goes on where an earlier call with the same settings stopped: they stand in OUT.settings.json.
    """
    from speclab.models.pairs import load_pair
    from speclab.ops.decode_file import decode_file

    call = DecodeCall(load_profile(profile, changes), **options)
    for name in changes:
        if name.partition(".")[0] not in READS:
            raise ValueError(f"--set {name}: decode does not read it; leave it out")
    call.refuse_inputs(Path(profile))
    count = len(call.shapes)  # each is checked, before anything is loaded
    line = f"{count} texts in {call.out}"
    if len(call.lines_there(call.check)) == count:
        echo(f"{line}: all of an earlier call")
        return
    call.out.parent.mkdir(parents=True, exist_ok=True)  # an error before anything is loaded
    decode_file(call, load_pair(call.profile))
    echo(line)


# ---- the notebooks -------------------------------------------------------------------------------


@verb("reproduce")
@PROFILE
@option(
    "--notebook",
    "notebooks",
    multiple=True,
    metavar="NN",
    help="Number or name; again for more (default: all).",
)
@CHANGES
@option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a parameter of the notebooks; again for more.",
)
@option("--out", type=PLACE, help="Folder for build/ and figures/ (default: the repository).")
@option(
    "--workers",
    type=click.IntRange(1),
    help="Notebooks at once, of those that measure no time (default: 2; at most one a core, one "
    "where there is a GPU).",
)
@option(
    "--fetch",
    is_flag=True,
    help="First fetch weights that the profile's models lack, where they can be had.",
)
def _reproduce(profile, notebooks, changes, parameters, out, workers, fetch) -> int:
    """Run the notebooks whose outcome may have changed, and write the report."""
    from speclab.ops import reproduce as runner

    call = runner.open_call(
        profile, notebooks, changes, parse_overrides(parameters, "--parameter"), out
    )
    if fetch:
        runner.fetch_weights(call)
    return runner.reproduce(call, workers)


@verb("figure")
@click.argument("name", metavar="NN/SLUG")
@PROFILE
@option(
    "--format",
    "kind",
    type=click.Choice(["pdf", "svg", "png"]),
    help="(default: as OUT ends, else pdf)",
)
@option("--width", type=click.FloatRange(1, 20), help="Inches: 7 is two columns, 3.4 one.")
@option("--height", type=click.FloatRange(1, 20), help="Inches (default: as the figure needs).")
@option("--font", help="Name of an installed font.")
@option("--size", type=click.FloatRange(4, 30), help="Text size in points.")
@option("--title", help='The sentence above the figure (default: its own; "": none).')
@option("--out", type=PLACE, help="The file (default: ./NN-SLUG.FORMAT).")
@option("--figures", type=PLACE, help="Folder of figures (default: the repository's).")
def _figure(name, profile, kind, width, height, font, size, title, out, figures) -> None:
    """Draw a figure of a notebook again, as 02/speed-up: at another width, in another font. It is
    drawn from its data; no notebook runs.
    """
    from speclab.place import ROOT
    from speclab.show import redraw

    if profile.endswith((".yaml", ".yml")):
        profile = load_profile(profile).name
    ending = out.suffix[1:].lower() if out else ""
    kind = kind or ending or "pdf"
    if kind not in redraw.FORMATS or ending not in ("", kind):
        ends = f".{kind}" if kind in redraw.FORMATS else ".pdf, .svg or .png"
        raise ValueError(f"--out {out}: the file's name must end in {ends}")
    folder = (figures or ROOT / "figures") / profile
    drawn = redraw.redraw(folder, name, kind, width, height, font, size, title)
    out = out or Path(f"{name.replace('/', '-')}.{kind}")
    redraw.written(out, lambda path: path.write_bytes(drawn))
    echo(out)


@verb("pair")
@PROFILE
@CHANGES
def _pair(profile, changes) -> None:
    """Fetch the models of a profile that are not here from the hub, or convert the weights that
    they lack (smollm: 93 MB); once.
    """
    from speclab.ops import pair

    settings = load_profile(profile, changes)
    made = pair.make(settings) + pair.fetch_pair(settings)
    for path in made:
        echo(path)
    if not made:
        echo(f"{profile}: nothing to fetch or convert")


@verb("plan")
@PROFILE
@option(
    "--notebook",
    "notebooks",
    multiple=True,
    metavar="NN",
    help="Number or name; again for more (default: all).",
)
@CHANGES
def _plan(profile, notebooks, changes) -> None:
    """Say which runs the notebooks ask for and what it takes to record those that are not here;
    downloads nothing.
    """
    import torch

    from speclab.ops.run_plan import lines_of_plan

    for line in lines_of_plan(load_profile(profile, changes), notebooks, torch.cuda.device_count()):
        echo(line)


@verb("doctor")
@PROFILE
@CHANGES
def _doctor(profile, changes) -> int:
    """Say what this machine lacks for a profile; of models that are not here it fetches no more
    than the config.json.

    Exit status 1: something has to be done.
    """
    from speclab.ops.doctor import report

    text, todo = report(load_profile(profile, changes))
    for line in text.splitlines():
        echo(line)
    return 1 if todo else 0


@verb("fetch")
@click.argument("what", type=click.Choice(["specdecode-bench", "author-records"]))
@option("--out", type=PLACE, help="Folder (default: data/runs/WHAT).")
@option("--base", help="Address of the folder that holds the files.")
def _fetch(what, out, base) -> None:
    """Fetch what others published, each file checked by its digest: SpecDecode-Bench's traces of
    Llama-3.1-8B, or the node records of the paper's authors.
    """
    if what == "author-records":
        from speclab.studies.paper_audit.author_records import fetch
    else:
        from speclab.analysis.specdecode_bench import fetch

    for path in fetch(out, base):
        echo(path)


# ---- Kaggle and Colab ----------------------------------------------------------------------------


@cli.group("hosted", no_args_is_help=False)
def _hosted() -> None:
    """Kaggle and Colab: install what is missing, keep recordings longer than a session.

    The cell below a notebook's parameters finds the kit in the working folder or above it, in
    ./speclab-kit, or clones it from SPECLAB_REPO. On Kaggle and Colab it then runs
    `hosted install`.

    Kaggle: import a notebook and choose GPU T4 x2. Without internet attach the kit, models and data
    sets. Copy the kit with `!cp -r /kaggle/input/FOLDER speclab-kit`; the rest is found by name. To
    go on after a session attach its output.

    Colab: mount Drive, then `hosted keep /content/drive/MyDrive/speclab`: each part is safe as soon
    as it is written.
    """


@_hosted.command("install")
@option("--gptq", is_flag=True, help="Also GPTQModel, for 4-bit models.")
@option("--reproduce", is_flag=True, help="Also what `reproduce` needs (papermill).")
def _install(gptq, reproduce) -> None:
    """Install packages that the active environment lacks, before a notebook imports any.

    torch, numpy, pandas, the running kernel and what they need stay as they are. If one of them is
    out of range, nothing is installed.
    """
    echo(hosted.install(gptq, reproduce))


@_hosted.command("restore")
@click.argument(
    "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default="/kaggle/input"
)
def _restore(folder) -> None:
    """Copy saved runs from FOLDER (where Kaggle attaches them) into data/runs."""
    echo(f"restored: {', '.join(hosted.restore(folder)) or 'nothing new'}")


@_hosted.command("keep")
@click.argument("folder", type=PLACE)
def _keep(folder) -> None:
    """Keep data/runs in FOLDER, on a disk that outlives the session."""
    hosted.keep(folder)
    echo(f"data/runs is now {folder}")


# ---- errors --------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Run a verb; 0 done, 1 something failed or is to be done, 2 an error the user can mend, 130
    stopped by Ctrl-C.
    """
    try:
        quiet()
        name = "python -m speclab"
        return cli.main(arguments, prog_name=name, standalone_mode=False) or 0
    except click.ClickException as error:
        return failed(f"{error.format_message()} (see --help)")
    except (click.Abort, KeyboardInterrupt):
        notice(STOPPED)
        return 130
    except ImportError as error:
        return failed(hosted.missing_package(error))
    except (ValueError, FloatingPointError, OSError, MemoryError, RuntimeError) as error:
        # a plain one is a mistake of ours; RunError and out of memory are the user's to mend
        if type(error) is RuntimeError:
            raise
        return failed(error)


def failed(reason: object) -> int:
    """Say in one line what is wrong."""
    line = " ".join(str(reason).split()) or type(reason).__name__
    notice(f"speclab: {line}")
    return 2

"""The verbs of the command line `python -m speclab VERB`, see --help. `make` calls them too.

Every verb passes its options to the module that does the work. It imports that module when it is
called, so that --help is fast. An error that the user can fix is one line that says what to do,
with exit status 2.
"""

import io
import re
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, get_args, get_origin

import click

from speclab.cli import hosted
from speclab.cli.decode_call import READS, DecodeCall
from speclab.plain import notice, shown
from speclab.show.notebook import quiet
from speclab.study.profiles import load_profile, parse_overrides

STOPPED = (
    "speclab: stopped. Finished work of record, decode, reproduce and fetch is kept. Run the same "
    "command again (without --force) to continue."
)
PLAIN_SERVER = "# start the server without a draft model"
PLACE = click.Path(path_type=Path)
AS_WRITTEN = (
    "A value is taken as it is written; one in quotes, and a list or mapping in [] or {}, is YAML."
)
# a pair in SET or PARAMETERS of `make`, in quotes if it has a space
WORD = re.compile(r"""(?:'([^']*)'|"([^"]*)"|(\S+))(?:\s+|$)""")
SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}
option = click.option


def echo(text: object) -> None:
    """Print a text on one line. Names come from other people's manifests and folders, so control
    characters are shown as text.
    """
    click.echo(shown(text))


@click.group(context_settings=SETTINGS, no_args_is_help=False)
def cli() -> None:
    """Study kit for speculative decoding."""


verb = cli.command  # the function below it, with the options above it
PROFILE = option(
    "--profile", default="smollm", help="Study: a name from notebooks/profiles, or a YAML file."
)
CHANGES = option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    callback=lambda _context, _option, values: parse_overrides(values),
    help=f"Change a parameter of the profile; may be repeated. {AS_WRITTEN}",
)


# ---- record and decode ---------------------------------------------------------------------------


@verb("record")
@PROFILE
@option(
    "--kind",
    default="greedy",
    help="What to record: greedy, sampled (at the profile's temperature, or at 1 if that is 0), "
    "sampled-seed-1 to sampled-seed-5, sampled-0.3, sampled-0.7 (at this temperature), balanced, "
    "chain, chat-template, plain-template, long, or another prompt set (unwrapped, second, "
    "other-FILE; with -sampled: sampled). `plan` lists the kinds that a study needs.",
)
@CHANGES
@option("--out", type=PLACE, help="Folder for the run (default: data/runs/PROFILE-KIND-KEY).")
@option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    help="local: this machine. ray: the Ray cluster at RAY_ADDRESS, or one started here.",
)
@option(
    "--devices",
    multiple=True,
    metavar="DEVICE",
    help="For local: run one process, with its own pair, on this device; may be repeated.",
)
@option(
    "--workers",
    type=click.IntRange(1),
    help="For ray: number of workers (default: one per GPU, or one per CPU without GPUs).",
)
def _record(profile, kind, changes, out, engine, devices, workers) -> None:
    """Record a run of a profile: trace, nodes and manifest."""
    from speclab.cli import run_plan
    from speclab.cli.workers import engine_of
    from speclab.study import runs

    settings = load_profile(profile, changes)
    of_kind = runs.of_kind(settings, kind)
    decides = {name for name, value in runs.kinds_of(settings)[kind].items() if value is not None}
    if decided := sorted(decides & changes.keys()):
        raise ValueError(f"--set {decided[0]} conflicts with --kind {kind}, which sets it; omit it")
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
@option("--out", type=PLACE, required=True, help="Folder for the trace; it must not exist yet.")
@option("--kind", help="Kind of the run, e.g. greedy, if its manifest does not say.")
@option(
    "--licence",
    help="Licence of prompts and texts, in one line (default: from the profile's notes).",
)
def _pack(run, out, kind, licence) -> None:
    """Pack a finished run as a trace for others.

    The trace of the run in folder RUN has tables, a manifest and a README.
    """
    from speclab.cli.pack import pack
    from speclab.study.runs import load_run

    folder = pack(load_run(run), out, kind, licence)
    size = sum(path.stat().st_size for path in folder.iterdir())
    echo(f"{folder}: {size / 1e6:.1f} MB; README.md describes it")


@verb("explore")
@click.argument("folders", nargs=-1, type=PLACE, metavar="[RUN [RUN]]")
@option("--profile", help="Instead of RUN: the recorded runs of this profile.")
@option(
    "--second",
    type=PLACE,
    multiple=True,
    help="Run of a second draft over the same texts, to compare; once for each temperature.",
)
@CHANGES
@option("--out", type=PLACE, required=True, help="HTML file to write.")
def _explore(folders, profile, second, changes, out) -> None:
    """Write a page that replays runs in a browser.

    The page replays the run or trace in folder RUN under any draft length or tree. A greedy and a
    sampled run of the same pair can be given together. With --profile the second draft is the
    profile's trained head, if its runs are shipped and no other second draft is named.
    """
    from speclab.explore import page
    from speclab.study.runs import load_run

    if bool(folders) == bool(profile):
        raise ValueError("name either folders of runs or --profile")
    if folders and changes:
        raise ValueError("--set changes a --profile, not a recorded run; omit it")
    if profile:
        runs = page.runs_there(load_profile(profile, changes))
    else:
        runs = [load_run(folder) for folder in folders]
    others = [load_run(folder) for folder in second]
    if profile and not second:
        others = page.heads_there(load_profile(profile, changes), runs)
    is_new = page.write_page(runs, out, others)
    echo(f"{out}: {'done' if is_new else 'up to date'}; open it in a browser")


@verb("export")
@click.argument("run")
@option(
    "--for",
    "engine",
    required=True,
    type=click.Choice(["vllm", "sglang", "llama.cpp", "transformers", "tensorrt-llm"]),
    help="The server.",
)
@option(
    "--c",
    type=click.FloatRange(0),
    help="Assume that a draft pass costs this many target passes, with v = 1 and o = 0 (default: "
    "as measured by notebook 10 for the pair, or the draft's share of the weight bytes).",
)
def _export(run, engine, c) -> None:
    """Print the server options for the best draft length.

    RUN is the folder of a run or trace, a trace of the kit (smollm/sampled), a profile (its greedy
    run), or the folder of a log (`speclab log`; needs --c).

    The best draft length is the smallest gamma that is not significantly slower than the fastest.
    From a log it is the gamma to try, with the highest estimate of the speed-up.
    """
    from speclab.cli import export
    from speclab.lab import choose
    from speclab.logs import logs
    from speclab.study import timing_runs

    if logs.is_log(Path(run)):
        _export_log(Path(run), engine, c)
        return

    recorded = export.run_named(run)
    if reason := export.why_not(recorded, engine):
        raise ValueError(reason)
    found = timing_runs.costs_for(recorded, c)
    rule = export.rule_of(recorded, engine)
    longest = recorded.manifest["profile"]["max_new_tokens"]
    gamma, said = choose.best_gamma(recorded.trace, found.costs, rule, longest)
    echo(f"# {said}")
    echo(f"# costs: {found.source}")
    click.echo(export.commands(recorded, engine, gamma) or PLAIN_SERVER)


def _export_log(folder: Path, engine: str, c: float | None) -> None:
    """Print what `export` prints, from the folder of a log of chains at T = 0."""
    from speclab.cli import export
    from speclab.cost import Costs
    from speclab.logs import log_gammas, logs

    if c is None:
        raise ValueError(
            f"{folder} is a log, which names no models: --c must name the cost of a draft pass in "
            "target passes"
        )
    log = logs.read_folder(folder)
    drafts = log_gammas.OF_FORMAT.get(log.format, log_gammas.MODEL)
    if reason := log_gammas.why_no_bounds(log.passes, drafts):
        raise ValueError(f"{folder}: {reason}")
    gamma, said = log_gammas.gamma_to_try(log.passes, Costs.assumed(c))
    echo(f"# {said}")
    echo(f"# costs: assumed, c = {c:g}, v = 1 and o = 0")
    echo("# holds for chains of a draft model at T = 0; TARGET and DRAFT stand for your models")
    click.echo(export.commands_of_log(log.passes, engine, gamma) or PLAIN_SERVER)


def options_of(call: type) -> Callable[[Callable], Callable]:
    """The options of a verb, from the fields of a dataclass that have a help text."""

    def decorated(function: Callable) -> Callable:
        for field in reversed(fields(call)):
            if get_origin(field.type) is Annotated:
                kind, text = get_args(field.type)
                about = {
                    "help": text,
                    "type": PLACE if kind is Path else None,
                    "is_flag": kind is bool,
                }
                is_needed = field.default is MISSING
                about |= {"required": True} if is_needed else {"default": field.default}
                function = option(f"--{field.name}", **about)(function)
        return function

    return decorated


@verb("decode")
@PROFILE
@options_of(DecodeCall)
@CHANGES
def _decode(profile, changes, **options) -> None:
    """Decode prompts speculatively; write one JSON line per prompt.

    Continues an earlier call: prompts that have a line are skipped. A line holds a digest of its
    settings, and one with other settings is refused.
    """
    from speclab.cli.decode_file import decode_file
    from speclab.study.pairs import load_pair

    call = DecodeCall(load_profile(profile, changes), **options)
    for name in changes:
        if name.partition(".")[0] not in READS:
            raise ValueError(f"--set {name} has no effect on decode; omit it")
    call.refuse_inputs(Path(profile))
    count = len(call.prompt_list)
    call.check_shape()  # before anything is loaded
    line = f"{count} texts in {call.out}"
    if len(call.rows_of(call.lines_there())) == count:
        echo(f"{line}, all from an earlier call")
        return
    call.out.parent.mkdir(parents=True, exist_ok=True)  # an error before anything is loaded
    decode_file(call, load_pair(call.profile))
    echo(line)


@verb("log")
@click.argument("files", nargs=-1, required=True, type=PLACE, metavar="FILE...")
@option("--out", type=PLACE, required=True, help="Folder for the log.")
@option(
    "--format",
    "kind",
    help="Format of the files: vllm, aiperf, sglang, spec-bench, eagle, speclab, specdecode-eagle "
    "or specdecode-ngram (default: recognised; the last two must be named).",
)
@option(
    "--prompts",
    type=PLACE,
    help="JSON lines with prompt_id and domain: the domain of each request.",
)
@option(
    "--drafted",
    metavar="K",
    help="Tokens per draft, if the files do not say it: a number, or heuristic, the schedule of "
    "transformers.",
)
@option("--force", is_flag=True, help="Replace the log in the folder --out.")
def _log(files, out, kind, prompts, drafted, force) -> None:
    """Read the log of a server and save its acceptance as a folder.

    Each FILE holds JSON lines (or is such a file as .gz) with what every request drafted and
    accepted. data/engines/README.md describes the formats. The folder holds numbers, request ids
    and domains, and no text.
    """
    from speclab.logs import logs
    from speclab.logs.log_summary import summary_lines

    logs.refuse_folder(out, force)
    domains = logs.domains_of(prompts) if prompts else None
    log = logs.read_log(files, kind or "", domains, drafted or "")
    logs.save(log, out, force)
    for line in summary_lines(log, out):
        echo(line)


def pairs_of_make(variable: str, text: str) -> list[str]:
    """The pairs in a variable of `make`. ValueError for a word without a value."""
    pairs = ["".join(parts) for parts in WORD.findall(text)]
    if lost := [pair for pair in pairs if "=" not in pair]:
        raise ValueError(
            f"{variable}: {lost[0]!r} is no NAME=VALUE; if a value has a space, give its pair "
            f"quotes of its own, as {variable}=\"'NAME=two words'\""
        )
    return pairs


# ---- the notebooks -------------------------------------------------------------------------------


@verb("reproduce")
@PROFILE
@option(
    "--notebook",
    "notebooks",
    multiple=True,
    metavar="NN",
    help="Number or name of a notebook; may be repeated (default: all).",
)
@CHANGES
@option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Change a parameter of the notebooks; may be repeated. {AS_WRITTEN}",
)
@option("--SET", "make_set", default="", hidden=True)
@option("--PARAMETERS", "make_parameters", default="", hidden=True)
@option("--out", type=PLACE, help="Folder for build/ and figures/ (default: the repository).")
@option(
    "--workers",
    type=click.IntRange(1),
    help="Number of notebooks that run at once; those that measure time run alone (default: 2, or "
    "1 with less than 6 GB of free memory; at most one per core, and one if there is a GPU).",
)
@option(
    "--fetch",
    is_flag=True,
    help="First download missing weights of the profile's models.",
)
def _reproduce(
    profile, notebooks, changes, parameters, make_set, make_parameters, out, workers, fetch
) -> int:
    """Run the notebooks that need it, and write the report.

    A notebook needs it if its results may have changed.
    """
    from speclab.run import reproduce as runner

    changes |= parse_overrides(pairs_of_make("SET", make_set), "SET")
    texts = runner.text_parameters(notebooks) if parameters or make_parameters else ()
    values = parse_overrides(parameters, "--parameter", texts)
    of_make = pairs_of_make("PARAMETERS", make_parameters)
    values |= parse_overrides(of_make, "PARAMETERS", texts)
    call = runner.open_call(profile, notebooks, changes, values, out)
    if fetch:
        runner.fetch_weights(call)
    return runner.reproduce(call, workers)


@verb("pair")
@PROFILE
@CHANGES
def _pair(profile, changes) -> None:
    """Download or convert the models of a profile.

    Needed once, for models that are not on this machine (smollm: 93 MB).
    """
    from speclab.cli import pair

    settings = load_profile(profile, changes)
    made = pair.make(settings) + pair.fetch_pair(settings)
    for path in made:
        echo(path)
    if not made:
        echo(f"{profile}: nothing to download or convert")


@verb("plan")
@PROFILE
@option(
    "--notebook",
    "notebooks",
    multiple=True,
    metavar="NN",
    help="Number or name of a notebook; may be repeated (default: all).",
)
@CHANGES
def _plan(profile, notebooks, changes) -> None:
    """List the runs that the notebooks need, and their cost.

    The cost is the tokens, time and bytes of runs that are not recorded yet. Downloads nothing.
    """
    import torch

    from speclab.cli.run_plan import lines_of_plan
    from speclab.run import parameters

    settings = load_profile(profile, changes)
    parameters.of_profile(settings)
    for line in lines_of_plan(settings, notebooks, torch.cuda.device_count()):
        echo(line)


@verb("doctor")
@PROFILE
@CHANGES
def _doctor(profile, changes) -> int:
    """Check what this machine lacks for a profile.

    Downloads at most the config.json of its models. Exit status 1 means that there is something to
    do.
    """
    from speclab.cli.doctor import report

    text, todo = report(load_profile(profile, changes))
    for line in text.splitlines():
        echo(line)
    return 1 if todo else 0


@verb("fetch")
@click.argument("what", type=click.Choice(["specdecode-bench", "author-records"]))
@option("--out", type=PLACE, help="Folder for the files (default: data/runs/WHAT).")
@option("--base", help="Address to fetch the files from.")
def _fetch(what, out, base) -> None:
    """Download data that others published.

    These are SpecDecode-Bench's traces of Llama-3.1-8B, or the node records of the paper's authors.
    Each file is checked by its digest.
    """
    if what == "author-records":
        from speclab.logs.author_records import fetch
    else:
        from speclab.logs.specdecode_bench import fetch

    for path in fetch(out, base):
        echo(path)


# ---- Kaggle and Colab ----------------------------------------------------------------------------


@cli.group("hosted", no_args_is_help=False)
def _hosted() -> None:
    """Install the kit's packages beside those of Colab or Kaggle.

    The cell below a notebook's parameters finds the kit in the working folder, in the folder above
    it, in ./speclab-kit, or where the kernel has speclab. If the kit is missing, the cell clones it
    from SPECLAB_REPO and runs `hosted install`. notebooks/README.md has both hosts step by step.
    """


@_hosted.command("install")
@option("--gptq", is_flag=True, help="Also install GPTQModel, for 4-bit models.")
@option("--heads", is_flag=True, help="Also install speculators, for trained heads.")
@option("--reproduce", is_flag=True, help="Also install what `reproduce` needs (papermill).")
def _install(gptq, heads, reproduce) -> None:
    """Install missing packages into the active environment.

    Run it before a notebook imports any of them. Only a package that is out of its range gets
    another version. If that is torch, numpy, pandas, or the running kernel, nothing is installed.
    """
    echo(hosted.install(gptq, heads, reproduce))


# ---- errors --------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Run a verb. Returns 0: done, 1: something failed or is to be done, 2: an error that the user
    can fix, 130: stopped by Ctrl-C.
    """
    try:
        quiet()
        if isinstance(sys.stdout, io.TextIOWrapper):  # names may have characters that it lacks
            sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)
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
        # a plain RuntimeError is our mistake; the user can fix a RunError or missing memory
        if type(error) is RuntimeError:
            raise
        return failed(error)


def failed(reason: object) -> int:
    """Print in one line what is wrong."""
    line = " ".join(str(reason).split()) or type(reason).__name__
    notice(f"speclab: {line}")
    return 2

"""The verbs of the command line `python -m speclab VERB`, see --help. `make` calls them too.

A verb is a function: `verb` makes its options from the signature and the docstring. It passes them
to the module that does the work, which it imports when it is called, so that --help is fast. An
error that the user can fix is one line that says what to do, with exit status 2.
"""

import inspect
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import click

from speclab.cli import hosted
from speclab.plain import notice, shown
from speclab.show.notebook import quiet
from speclab.study.profiles import load_profile, parse_overrides

STOPPED = (
    "speclab: stopped. Finished work of record, decode, reproduce and fetch is kept. Run the same "
    "command again (without --force) to continue."
)
PLAIN_SERVER = "# start the server without a draft model"
# a pair in SET or PARAMETERS of `make`, in quotes if it has a space
WORD = re.compile(r"""(?:'([^']*)'|"([^"]*)"|(\S+))(?:\s+|$)""")
SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}
# types of options and arguments that are no text
TYPES = dict.fromkeys(
    ["run", "folders", "files", "prompts", "second", "out"], click.Path(path_type=Path)
) | {
    "workers": click.IntRange(1),
    "c": click.FloatRange(0),
    "engine": click.Choice(["local", "ray"]),
    "for": click.Choice(["vllm", "sglang", "llama.cpp", "transformers", "tensorrt-llm"]),
    "data": click.Choice(["specdecode-bench", "author-records"]),
    "action": click.Choice(["install"]),
}
AS_WRITTEN = "may be repeated. A value is YAML; a text, such as a path, is taken as it is written."
HELP = {  # of options that several verbs have
    "profile": "Study: a name from notebooks/profiles, or a YAML file.",
    "set": f"Change a parameter of the profile: KEY=VALUE; {AS_WRITTEN}",
    "notebook": "Number or name of a notebook; may be repeated (default: all).",
}


def echo(*lines: object) -> None:
    """Print each text on one line. Names come from other people's manifests and folders, so control
    characters are shown as text.
    """
    for line in lines:
        click.echo(shown(line))


# ---- options from signatures ---------------------------------------------------------------------


@click.group(context_settings=SETTINGS, no_args_is_help=False)
def cli() -> None:
    """Study kit for speculative decoding."""


def verb(function: Callable) -> Callable:
    """Make a verb of a function. Parameters before the `*` are arguments, of which one in the
    plural takes many; the others are options: flags if the default is False, repeated if it is ().

    A paragraph `name: text` of the docstring is the help of an option. A `_` at the end of a name
    is no part of it.
    """
    about, *parts = re.split(r"\n\n(?=\w+: )", inspect.getdoc(function) or "")
    texts = HELP | dict(part.split(": ", 1) for part in parts)
    made: list[click.Parameter] = []
    for name, given in inspect.signature(function).parameters.items():
        word, default = name.strip("_"), given.default
        facts = {"type": TYPES.get(word), "required": True}
        if default is not given.empty:
            facts |= {"required": False, "default": default}
        if given.kind is given.KEYWORD_ONLY:
            facts |= {"multiple": default == (), "is_flag": default is False, "help": texts[word]}
            made.append(click.Option([f"--{word.replace('_', '-')}", name], **facts))
        else:
            made.append(click.Argument([name], nargs=-1 if word.endswith("s") else 1, **facts))
    cli.add_command(click.Command(function.__name__.strip("_"), None, function, made, about))
    return function


# ---- record and decode ---------------------------------------------------------------------------


@verb
def _record(
    *,
    profile="smollm",
    kind="greedy",
    set_=(),
    out=None,
    engine="local",
    devices=(),
    workers=None,
):
    """Record a run of a profile: trace, nodes and manifest.

    kind: What to record: greedy, sampled (at the profile's temperature, or at 1 if that is 0),
    sampled-seed-1 to sampled-seed-5, sampled-0.3, sampled-0.7 (at this temperature), balanced,
    chain, chat-template, plain-template, long, or another prompt set (unwrapped, second,
    other-FILE; with -sampled: sampled). `plan` lists the kinds that a study needs.

    out: Folder for the run (default: data/runs/PROFILE-KIND-KEY).

    engine: local: this machine. ray: the Ray cluster at RAY_ADDRESS, or one started here.

    devices: For local: run one process, with its own pair, on this device; may be repeated.

    workers: For ray: number of workers, at most one per GPU, or one per CPU without GPUs (default:
    as many as that).
    """
    from speclab.cli import pair
    from speclab.cli.workers import engine_of
    from speclab.study import runs

    changes = parse_overrides(set_)
    settings = load_profile(profile, changes)
    of_kind = runs.of_kind(settings, kind)
    for name, value in runs.kinds_of(settings)[kind].items():
        if name in changes and value is not None:
            raise ValueError(f"--set {name} conflicts with --kind {kind}, which sets it; omit it")
    workers = engine_of(engine, devices, workers)
    if not runs.recorded_run(settings, kind):
        pair.fetch_pair(settings)
    if out:
        run = runs.record_run(of_kind, out, engine=workers, kind=kind)
    else:
        run = runs.load_or_record(settings, kind, workers)
    rows = run.manifest["rows"]
    echo(f"{rows['trace']} positions, {rows['nodes']} nodes in {run.folder}")


@verb
def _pack(run, *, out, kind=None, licence=None):
    """Pack a finished run as a trace for others.

    The trace of the run in folder RUN has tables, a manifest and a README.

    out: Folder for the trace; it must not exist yet.

    kind: Kind of the run, e.g. greedy, if its manifest does not say.

    licence: Licence of prompts and texts, in one line (default: from the profile's notes).
    """
    from speclab.cli import pack
    from speclab.study.runs import load_run

    echo(f"{pack.pack(load_run(run), out, kind, licence)}: README.md describes it")


@verb
def _explore(
    folders=(),
    *,
    profile=None,
    second=(),
    set_=(),
    out,
):
    """Write a page that replays runs in a browser.

    The page replays the runs or traces in FOLDERS under any draft length or tree. A greedy and a
    sampled run of the same pair can be given together. With --profile the second draft is the
    profile's trained head, if its runs are shipped and no other second draft is named.

    profile: Instead of folders: the recorded runs of this profile.

    second: Run of a second draft over the same texts, to compare; once for each temperature.

    out: HTML file to write.
    """
    from speclab.explore import page
    from speclab.study.runs import load_run

    if bool(folders) == bool(profile) or (folders and set_):
        raise ValueError("name either folders of runs, or --profile and its --set")
    others = [load_run(folder) for folder in second]
    if profile:
        settings = load_profile(profile, parse_overrides(set_))
        runs = page.runs_there(settings)
        others = others or page.heads_there(settings, runs)
    else:
        runs = [load_run(folder) for folder in folders]
    is_new = page.write_page(runs, out, others)
    echo(f"{out}: {'done' if is_new else 'up to date'}; open it in a browser")


@verb
def _export(run, *, for_, c=None):
    """Print the server options for the best draft length.

    RUN is the folder of a run or trace, a trace of the kit (smollm/sampled), a profile (its greedy
    run), or the folder of a log (`speclab log`; needs --c).

    The best draft length is the smallest gamma that is not significantly slower than the fastest.
    From a log it is the gamma to try, with the highest estimate of the speed-up.

    for: The server.

    c: Assume that a draft pass costs this many target passes, with v = 1 and o = 0 (default: as
    measured by notebook 10 for the pair, or 0.1).
    """
    from speclab.cli import export
    from speclab.cost import Costs
    from speclab.logs import log_gammas, logs
    from speclab.logs.readers import MODEL, SETTINGS
    from speclab.study import timing_runs

    if logs.is_log(run):
        if c is None:
            raise ValueError(
                f"{run} is a log, which names no models: --c must name the cost of a draft pass in "
                "target passes"
            )
        log = logs.read_folder(run)
        passes = None if log.about == SETTINGS else log.passes
        if reason := log_gammas.why_no_bounds(passes, log.drafts or MODEL):
            raise ValueError(f"{run}: {reason}")
        gamma, said = log_gammas.gamma_to_try(passes, Costs.assumed(c))
        echo(
            f"# {said}",
            f"# costs: assumed, c = {c:g}, v = 1 and o = 0",
            "# holds for chains of a draft model at T = 0; TARGET and DRAFT stand for your models",
        )
        lines = export.commands_of_log(for_, gamma)
    else:
        recorded = export.run_named(run)
        if reason := export.why_not(recorded, for_):
            raise ValueError(reason)
        notes, lines = export.recommend(recorded, for_, timing_runs.costs_for(recorded, c))
        echo(*(f"# {note}" for note in notes))
    click.echo(lines or PLAIN_SERVER)


@verb
def _decode(
    *,
    profile="smollm",
    prompts,
    out,
    rule=None,
    shape="chain:4",
    check=False,
    allow_lossy=False,
    force=False,
    set_=(),
):
    """Decode prompts speculatively; write one JSON line per prompt.

    Continues an earlier call: prompts that have a line are skipped. A line holds a digest of its
    settings, and one with other settings is refused.

    prompts: Input: JSON lines with prompt_id, and prompt or messages.

    out: Output: JSON lines with the texts; a stopped call continues.

    rule: Verification rule: greedy, rejection, point-mass, without-replacement, block or
    exact-match (default: greedy at temperature 0, else rejection for chains and point-mass for
    trees); with --allow-lossy also typical or ratio.

    shape: What to draft: plain, chain:GAMMA, tree:DEPTH,BRANCHES[,BUDGET],
    dynamic:DEPTH,BRANCHES,BUDGET, lookup:LEAST (copy from the text so far if its last LEAST or more
    tokens occurred before), chain:GAMMA+lookup:LEAST (copy, else draft) or paths:FILE (a list of
    paths in YAML or JSON, as Medusa and EAGLE publish their trees).

    check: Compare with plain greedy decoding (always done in half precision).

    allow_lossy: Allow a rule that is not lossless, and print how far its output is from the
    target's.

    force: Start over and replace the result in the file --out.
    """
    from speclab.cli.decode_file import READS, decode_file, finished_lines, open_call
    from speclab.study.pairs import load_pair

    changes = parse_overrides(set_)
    settings = load_profile(profile, changes)
    for name in changes:
        if name.partition(".")[0] not in READS:
            raise ValueError(f"--set {name} has no effect on decode; omit it")
    call = open_call(settings, prompts, out, rule, shape, check, force, allow_lossy)
    if len(finished_lines(call)[1]) < len(call.prompts):  # else nothing is loaded
        decode_file(call, load_pair(settings))
    echo(f"{len(call.prompts)} texts in {out}")


@verb
def _log(
    files,
    *,
    out=None,
    format_="",
    prompts=None,
    drafted="",
    part="",
    explain=False,
    force=False,
):
    """Read the log of a server and save its acceptance as a folder, or compare two logs.

    Each of the FILES holds what was drafted and accepted: JSON, a table, the text that a server
    prints, or its counters, plain or as .gz. data/engines/README.md describes the formats. The
    folder holds numbers, request ids and domains, and no text.

    Without --out two logs of the same prompts are compared. Each is a file, or such a folder.

    out: Folder for the log.

    format: Format of the files, if they hold several (default: recognised).

    prompts: JSON with the id and the domain of each request.

    drafted: Tokens per draft, if the files do not say it: a number, or heuristic, the schedule of
    transformers.

    part: One run of a file with several, as the summary names it (default: each run is a domain).

    explain: Say which known shape of low acceptance the (first) log looks like, and what to check.

    force: Replace the log in the folder --out.
    """
    from speclab.logs import logs, why
    from speclab.logs.log_compare import compared_lines
    from speclab.logs.log_summary import summary_lines

    if out is None:
        if len(files) != 2:
            raise ValueError("name --out for the folder of one log, or two logs to compare them")
        options = {"prompts": prompts or "", "kind": format_, "drafted": drafted, "part": part}
        both = [logs.opened(file, **({} if file.is_dir() else options)) for file in files]
        echo(*compared_lines(dict(zip(map(str, files), both, strict=True))))
        if explain:
            echo(*why.explain_log(*both))
        return
    logs.refuse_folder(out, force)
    domains = logs.domains_of(prompts) if prompts else None
    found = logs.read_log(files, format_, domains, drafted, part)
    logs.save(found, out, force)
    echo(*summary_lines(found, out))
    if explain:
        echo(*why.explain_log(found))


# ---- the notebooks -------------------------------------------------------------------------------


def pairs_of_make(text: str) -> tuple[str, ...]:
    """The pairs in a variable of `make`, without their quotes."""
    return tuple("".join(parts) for parts in WORD.findall(text))


@verb
def _reproduce(
    *,
    profile="smollm",
    notebook=(),
    set_=(),
    parameter=(),
    SET="",
    PARAMETERS="",
    out=None,
    workers=2,
    fetch=False,
):
    """Run the notebooks that need it, and write the report.

    A notebook needs it if its results may have changed.

    out: Folder for build/ and figures/ (default: the repository).

    SET: As --set, for `make`: pairs with a space between them, in quotes if they have one.

    PARAMETERS: As --parameter, for `make`.

    parameter: Change a parameter of the notebooks, as --set.

    workers: Number of notebooks that run at once; those that measure time run alone, and so do all
    if there is a GPU.

    fetch: First download missing weights of the profile's models.
    """
    from speclab.cli import pair
    from speclab.run import reproduce as runner

    overrides = parse_overrides(set_ + pairs_of_make(SET))
    changes = parameter + pairs_of_make(PARAMETERS)
    call = runner.open_run(profile, notebook, overrides, changes, out)
    if fetch:
        try:
            pair.make(call.profile)
            # with a progress bar, which a notebook's own download would not show
            if any("load_pair(" in one.path.read_text("utf-8") for one in call.notebooks):
                pair.fetch_pair(call.profile)
        except (ValueError, OSError, RuntimeError) as error:
            echo(f"{error}. {runner.STILL}")
    return runner.reproduce(call, workers)


@verb
def _pair(*, profile="smollm", set_=()):
    """Download or convert the models of a profile.

    Needed once, for models that are not on this machine. It says first how much it
    downloads and writes (smollm: 93 MB and 538 MB; qwen-coder: 1.1 GB and 7.1 GB).
    """
    from speclab.cli import pair

    settings = load_profile(profile, parse_overrides(set_))
    made = pair.make(settings) + pair.fetch_pair(settings)
    echo(*(made or (f"{profile}: nothing to download or convert",)))


@verb
def _plan(*, profile="smollm", notebook=(), set_=()):
    """List the runs that the notebooks need, and their cost.

    The cost is the tokens and the time of runs that are not recorded yet. Downloads nothing.
    """
    from speclab.cli.run_plan import lines_of_plan
    from speclab.run.reproduce import open_run

    call = open_run(profile, notebook, parse_overrides(set_), ())
    notebooks = {one.path: one.values for one in call.notebooks}
    for line in lines_of_plan(call.profile, notebooks):
        echo(line)


@verb
def _doctor(*, profile="smollm", set_=()):
    """Check what this machine lacks for a profile.

    Downloads at most settings and tokenizers of its models. Exit status 1 means that there is
    something to do.
    """
    from speclab.cli.doctor import report

    text, todo = report(load_profile(profile, parse_overrides(set_)))
    echo(*text.splitlines())
    return int(todo > 0)


@verb
def _fetch(
    data,
    *,
    out=None,
    base=None,
):
    """Download data that others published.

    These are SpecDecode-Bench's traces of Llama-3.1-8B, or the node records of the paper's authors.
    Each file is checked by its digest.

    out: Folder for the files (default: data/runs/DATA).

    base: Address to fetch the files from.
    """
    from speclab.logs import author_records, specdecode_bench

    source = author_records if data == "author-records" else specdecode_bench
    echo(*source.fetch(out, base))


@verb
def _hosted_(
    action,
    *,
    gptq=False,
    heads=False,
    reproduce=False,
):
    """Install missing packages into the active environment, as that of Colab or Kaggle.

    Run it before a notebook imports any of them. Only a package that is out of its range gets
    another version. If that is torch, numpy, pandas, or the running kernel, nothing is installed.

    The cell below a notebook's parameters finds the kit in the working folder, in the folder above
    it, in ./speclab-kit, or where the kernel has speclab. If the kit is missing, the cell clones it
    from SPECLAB_REPO and runs `hosted install`. notebooks/README.md has both hosts step by step.

    gptq: Also install GPTQModel, for 4-bit models.

    heads: Also install speculators, for trained heads.

    reproduce: Also install what `reproduce` needs (papermill).
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
        return cli.main(arguments, "python -m speclab", standalone_mode=False) or 0
    except (click.Abort, KeyboardInterrupt):
        notice(STOPPED)
        return 130
    except click.ClickException as error:
        reason = f"{error.format_message()} (see --help)"
    except ImportError as error:
        reason = hosted.missing_package(error)
    except (ValueError, FloatingPointError, OSError, MemoryError, RuntimeError) as error:
        # a plain RuntimeError is our mistake; the user can fix a RunError or missing memory
        if type(error) is RuntimeError:
            raise
        reason = str(error) or type(error).__name__
    notice(f"speclab: {' '.join(reason.split())}")
    return 2

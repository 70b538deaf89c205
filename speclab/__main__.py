"""The one command line: `python -m speclab VERB`, see --help. `make` calls it too.

Every verb is a few lines that hand its options to the module that does the work, imported when it
is asked for. An error that the user can mend is one line that says what to do, and exit status 2.
"""

import errno
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclab import missing

try:
    import click

    from speclab.plain import is_whole_text
    from speclab.show.notebook import quiet
except ImportError as _error:  # every verb needs them
    print(missing.without("speclab", _error)[0])
    sys.exit(1)

if TYPE_CHECKING:
    from speclab.analysis.policy import Policy
    from speclab.profiles import Profile
    from speclab.sampling import Sampling

GOES_ON = {  # what each verb keeps when it is stopped; the others begin anew
    "record": "finished blocks are kept",
    "decode": "finished texts are kept",
    "reproduce": "finished notebooks and blocks are kept",
    "authors": "fetched files are kept",
}
DECODE_READS = (
    *("target", "draft", "dtype", "device", "backend", "template"),
    *("max_prompt_tokens", "max_new_tokens", "temperature", "top_k", "top_p", "seed"),
)
NODE_BYTES = 64  # of a row of the nodes, in memory
LONGEST = 1000  # characters of an error


class Command(click.Command):
    """A command whose repeatable options take several values at once: `--set a=1 b=2` is `--set a=1
    --set b=2`.
    """

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Repeat the name of such an option before each of its values."""
        several = {
            name
            for option in self.params
            if getattr(option, "multiple", False)
            for name in option.opts
        }
        return super().parse_args(context, list(repeated(arguments, several)))


def repeated(arguments: list[str], several: set[str]) -> Iterator[str]:
    """`--set a b --out c` as `--set a --set b --out c`, for the options named in `several`."""
    current, values = "", 0
    for argument in arguments:
        if argument.startswith("--"):
            current, values = argument, 0
        elif current in several:
            values += 1
            if values > 1:
                yield current
        yield argument


class NotEmpty(click.ParamType):
    """A value that is not empty, made into `kind`: an empty path would be the folder that one is
    in.
    """

    def __init__(self, kind: Callable[[str], Any], name: str) -> None:
        self.kind, self.name = kind, name

    def convert(self, value: Any, param: Any, context: Any) -> Any:
        """The value as `kind`; click's error for an empty one."""
        text = str(value)
        if not text.strip() or "\0" in text:
            problem = "holds a NUL byte" if text.strip() else "is empty"
            self.fail(f"{text!r} {problem}; give a {self.name}", param, context)
        if self.kind is Path and _leads_in_a_circle(text):
            self.fail(f"{text!r} is a link to itself; give a path", param, context)
        return self.kind(value)


def _leads_in_a_circle(path: str) -> bool:
    try:
        Path(path).stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


PLACE = NotEmpty(Path, "path")
WORDS = NotEmpty(str, "text")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Study kit for speculative decoding."""
    missing.check_checkout()


def verb(name: str, group: click.Group = cli) -> Callable:
    """A verb of the command line: the function below it, with the options above it."""
    return group.command(name, cls=Command)


def option(*names: str, **settings: Any) -> Callable:
    """An option that shows its default in the help text."""
    return click.option(*names, show_default=True, **settings)


PROFILE = option(
    "--profile", default="tiny", help="A name from notebooks/profiles, or a YAML file."
)
CHANGES = option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE …",
    help="Change parameters of the profile.",
)


# ---- record and decode ---------------------------------------------------------------------------


@verb("record")
@PROFILE
@option(
    "--kind",
    default="greedy",
    help="greedy, sampled, sampled-0.3, sampled-0.7 (text at these temperatures), sampled-seed-1, "
    "sampled-seed-2, balanced, chain, chat-template or plain-template.",
)
@CHANGES
@option(
    "--out", type=PLACE, help="Folder of the run (default: data/runs/PROFILE-KIND-KEY)."
)
@option(
    "--engine",
    default="local",
    help="local, or ray: actors on the cluster of RAY_ADDRESS, else of this machine.",
)
@option(
    "--devices",
    multiple=True,
    metavar="DEVICE …",
    help="local: one process and one pair each, as cuda:0 cuda:1.",
)
@option("--workers", type=int, help="ray: actors (default: one a GPU, else one a CPU).")
def _record(
    profile: str,
    kind: str,
    changes: tuple,
    out: Path,
    engine: str,
    devices: tuple,
    workers: int,
) -> None:
    """Record trace, nodes and manifest of a profile."""
    from speclab.ops.engines import engine_of
    from speclab.profiles import load_profile, parse_overrides
    from speclab.runs import load_or_record, of_kind, record_run

    overrides = parse_overrides(list(changes))
    settings = load_profile(profile, overrides)
    asked = of_kind(settings, kind)
    check_kind(kind, overrides)
    check_rows(asked)
    chosen = engine_of(engine, list(devices), workers)
    run = (
        record_run(asked, out, engine=chosen)
        if out
        else load_or_record(settings, kind, chosen)
    )
    rows = run.manifest["rows"]
    click.echo(f"{rows['trace']} positions, {rows['nodes']} nodes in {run.folder}")


def check_kind(kind: str, overrides: dict) -> None:
    """ValueError where --set names what the kind decides, and says something else."""
    from speclab.runs import KINDS

    for name, value in KINDS[kind].items():
        if name in overrides and overrides[name] != value:
            raise ValueError(
                f"--set {name}={overrides[name]}: --kind {kind} has {name}={value}; leave it out, "
                "or take --kind greedy, which is the profile as it is set"
            )


def check_rows(profile: "Profile") -> None:
    """ValueError where the table of all nodes, which is put together last, fits in no memory."""
    import torch

    from speclab.models.pairs import free_bytes

    positions = (
        profile.prompts_per_domain * len(profile.domains) * profile.max_new_tokens
    )
    need, free = (
        positions * profile.tree.size * NODE_BYTES,
        free_bytes(torch.device("cpu")),
    )
    if need > free:
        raise ValueError(
            f"{positions} positions with {profile.tree.size} nodes each need {need / 1e9:.1f} GB, "
            f"{free / 1e9:.1f} GB of memory are free; at most "
            f"{free // (positions * NODE_BYTES)} nodes fit: lower budget, prompts_per_domain or "
            "max_new_tokens"
        )


@verb("pack")
@click.argument("run", type=PLACE)
@option("--out", type=PLACE, required=True, help="Folder of the trace: a new one.")
@option(
    "--kind", type=WORDS, help="Where the folder of the run does not tell, as greedy."
)
@option(
    "--licence",
    type=WORDS,
    metavar="TEXT",
    help="Of prompts and text, in a line (default: `licence` of the profile's notes).",
)
def _pack(run: Path, out: Path, kind: str | None, licence: str | None) -> None:
    """Write the finished run in the folder RUN as a trace to give away: tables, manifest, card."""
    from speclab import runs, traces

    recorded = runs.load_run(run)
    folder = traces.pack(recorded, out, runs.kind_of(recorded, kind), licence)
    size = sum(path.stat().st_size for path in folder.iterdir())
    click.echo(f"{size / 1e6:.1f} MB in {folder}; it is described in its README.md")


@verb("explore")
@click.argument("folders", nargs=-1, required=True, type=PLACE, metavar="RUN [RUN]")
@option("--out", type=PLACE, required=True, help="The HTML file.")
def _explore(folders: tuple, out: Path) -> None:
    """Write a page that replays the run or trace in the folder RUN under any draft, by hand, in a
    browser; a greedy and a sampled run of one pair can be given together.
    """
    from speclab.explore import page
    from speclab.runs import load_run

    page.write_page([load_run(folder) for folder in folders], out)
    click.echo(f"{out.stat().st_size / 1e6:.1f} MB in {out}: open it in a browser")


@verb("metrics")
@click.argument("run", type=PLACE)
@option(
    "--shape",
    default="chain:4",
    help="chain:GAMMA or tree:DEPTH,BRANCHES[,BUDGET].",
)
@option(
    "--rule",
    help="greedy, rejection or point-mass (default: by the run's temperature).",
)
@option(
    "--beside",
    type=PLACE,
    metavar="FILE",
    help="A log or /metrics text of vLLM or llama.cpp, an export of AIPerf, a result file of "
    "Spec-Bench.",
)
def _metrics(run: Path, shape: str, rule: str | None, beside: Path | None) -> None:
    """Print what is accepted of the run or trace in the folder RUN under other engines' names."""
    import json

    from speclab.ops.metrics import metrics_of
    from speclab.runs import load_run

    found = metrics_of(load_run(run), shape, rule, beside)
    click.echo(json.dumps(found, indent=1))


@verb("decode")
@PROFILE
@option(
    "--rule",
    default="greedy",
    help="greedy, rejection, point-mass or without-replacement.",
)
@option(
    "--shape",
    help="plain, chain:GAMMA, tree:DEPTH,BRANCHES[,BUDGET] or dynamic:DEPTH,BRANCHES,BUDGET "
    "(default: chain:4).",
)
@option(
    "--policy",
    type=PLACE,
    metavar="FILE",
    help="Of notebook 09: a shape for each prompt, in place of --shape.",
)
@option("--temperature", type=float, help="As --set temperature=.")
@option("--seed", type=int, help="As --set seed=.")
@option(
    "--prompts", type=PLACE, required=True, help="JSON lines with prompt_id and prompt."
)
@option(
    "--check",
    is_flag=True,
    help="Compare with plain greedy text (always done in half precision).",
)
@option(
    "--out",
    type=PLACE,
    required=True,
    help="JSON lines with the texts; a call that was stopped goes on.",
)
@option("--force", is_flag=True, help="Write anew what is in --out.")
@CHANGES
def _decode(
    profile: str,
    rule: str,
    shape: str | None,
    policy: Path | None,
    temperature: float | None,
    seed: int | None,
    prompts: Path,
    check: bool,
    out: Path,
    force: bool,
    changes: tuple,
) -> None:
    """Decode prompts speculatively, one JSON line each.

    Goes on where an earlier call with the same settings stopped: they stand in OUT.settings.json.
    """
    from speclab.analysis import policy as policies
    from speclab.decode import check_rule
    from speclab.draft import parse_shape
    from speclab.models.pairs import load_pair
    from speclab.ops import decode_file as files
    from speclab.profiles import load_profile, parse_overrides
    from speclab.prompts import read_prompts
    from speclab.sampling import Sampling

    if seed is not None and not 0 <= seed < 2**32:
        raise ValueError(
            f"--seed {seed}: allowed are whole numbers from 0 to {2**32 - 1}"
        )
    if check and rule != "greedy":
        raise ValueError(
            f"--check compares greedy texts; it does not go with --rule {rule}"
        )
    if policy and shape is not None:
        raise ValueError(
            f"--policy {policy} names the shapes; leave out --shape {shape}"
        )
    overrides = parse_overrides(list(changes))
    agree(overrides, "temperature", temperature)
    agree(overrides, "seed", seed)
    settings = load_profile(profile, overrides)
    check_read(overrides)
    shape = "chain:4" if shape is None else shape
    sampling = Sampling(settings.temperature, settings.top_k, settings.top_p)
    # all of this before the models are loaded
    check_rule(rule, parse_shape(shape), sampling)
    plan = read_policy(policy, rule, settings, sampling) if policy else None
    wanted = read_prompts(prompts, optional=("domain",))
    if not wanted:
        raise ValueError(
            f"{prompts}: no prompt in it; write one object with prompt_id and prompt on each line"
        )
    files.refuse_inputs(out, prompts, [Path(profile), *([policy] if policy else [])])
    drafted = policies.what_decides(plan) if plan else shape
    asked = files.settings_of(settings, wanted, rule, drafted, check)
    if len(files.lines_there(out, asked, wanted, force)) == len(wanted):
        click.echo(f"{len(wanted)} texts in {out}: all of an earlier call")
        return
    one = parse_shape(shape)
    shapes = [policies.shape_for(plan, prompt) if plan else one for prompt in wanted]
    pair = load_pair(settings)
    exact = pair.is_exact and not pair.target.quantised
    check = rule == "greedy" and (check or not exact)
    files.decode_file(pair, wanted, settings, rule, shapes, out, asked, check, force)
    click.echo(f"{len(wanted)} texts in {out}")


def agree(overrides: dict, name: str, value: Any) -> None:
    """Add an option's value to what --set says; ValueError where --set says something else."""
    if value is None:
        return
    if overrides.setdefault(name, value) != value:
        raise ValueError(
            f"--{name} {value} and --set {name}={overrides[name]}: give one of them"
        )


def check_read(overrides: dict) -> None:
    """ValueError for a parameter of the profile that `decode` does not read."""
    for name in overrides:
        if name.partition(".")[0] not in DECODE_READS:
            raise ValueError(
                f"--set {name}: decode does not read it (what is drafted is --shape, of which "
                f"prompts is --prompts); it reads {', '.join(DECODE_READS)}"
            )


def read_policy(
    file: Path, rule: str, profile: "Profile", sampling: "Sampling"
) -> "Policy":
    """A policy file, made for this profile's pair; every setting of it goes with the rule."""
    from speclab.analysis import policy
    from speclab.decode import check_rule
    from speclab.draft import parse_shape

    plan = policy.load(file, policy.identity(profile))
    for setting in (plan.default, *plan.domains.values()):
        try:
            check_rule(rule, parse_shape(setting), sampling)
        except ValueError as error:
            raise ValueError(f"{file}, setting {setting!r}: {error}") from None
    return plan


# ---- the notebooks -------------------------------------------------------------------------------


@verb("reproduce")
@PROFILE
@option(
    "--notebook",
    "notebooks",
    multiple=True,
    metavar="NN …",
    help="Numbers or names (default: all).",
)
@CHANGES
@option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE …",
    help="Change parameters of the notebooks.",
)
@option(
    "--out",
    type=PLACE,
    help="Folder for build/ and figures/ (default: the repository).",
)
@option("--force", is_flag=True, help="Run also what is up to date.")
@option(
    "--workers",
    type=click.IntRange(1),
    help="Notebooks at once, of those that measure no time (default: 2; at most one a core, one "
    "where there is a GPU).",
)
def _reproduce(
    profile: str,
    notebooks: tuple,
    changes: tuple,
    parameters: tuple,
    out: Path | None,
    force: bool,
    workers: int | None,
) -> int:
    """Run the notebooks whose outcome may have changed, and write the report."""
    from speclab.ops import reproduce as runner
    from speclab.profiles import parse_overrides

    call, chosen = runner.open_call(
        profile,
        list(notebooks),
        parse_overrides(list(changes)),
        parse_overrides(list(parameters), "--parameter"),
        out,
    )
    return runner.reproduce(call, chosen, force, workers)


@verb("pair")
@PROFILE
def _pair(profile: str) -> None:
    """Fetch and convert the weights that a profile's models lack (smollm: 93 MB, once)."""
    from speclab.ops import pair
    from speclab.profiles import load_profile

    made = pair.make(load_profile(profile))
    for path in made:
        click.echo(path)
    if not made:
        click.echo(f"{profile}: nothing to fetch or convert")


@verb("doctor")
@PROFILE
@CHANGES
def _doctor(profile: str, changes: tuple) -> int:
    """Say what this machine lacks for a profile; downloads nothing.

    Exit status 1: something has to be done.
    """
    try:
        from speclab.ops.doctor import report
        from speclab.profiles import load_profile, parse_overrides

        text, todo = report(load_profile(profile, parse_overrides(list(changes))))
    except (ImportError, OSError) as error:  # OSError: a library that lies in a package
        text, todo = missing.without(profile, error)
    click.echo(text)
    return 1 if todo else 0


@verb("authors")
@option("--out", type=PLACE, help="Folder (default: data/runs/author-records).")
@option("--base", help="Address of the folder that holds the files.")
def _authors(out: Path | None, base: str | None) -> None:
    """Fetch the node records that the paper's authors published (checked by their git ids)."""
    from speclab.studies.paper_audit import author_records

    for path in author_records.fetch(
        out or author_records.FOLDER, author_records.BASE if base is None else base
    ):
        click.echo(path)


@verb("readme")
@option(
    "--alone",
    type=PLACE,
    help="OUT of a `make reproduce PROFILE=smollm` without the models: its seconds are taken.",
)
def _readme(alone: Path | None) -> None:
    """Write the numbers of README.md from the last `make reproduce` and `make bench`."""
    from speclab.ops import readme as writer

    writer.write(alone=alone)


# ---- Kaggle and Colab ----------------------------------------------------------------------------


@cli.group("hosted")
def _hosted() -> None:
    """Kaggle and Colab: notebooks to push, recordings that outlive a session."""


@verb("kaggle", _hosted)
@option("--notebook", required=True, help="Number or name, as 02.")
@option("--user", required=True, help="Your name on Kaggle.")
@option(
    "--profile",
    default="t4",
    help="A name from notebooks/profiles, or a YAML file: it goes along.",
)
@CHANGES
@option("--repo", default="", help="Git address of the kit.")
@option("--no-internet", is_flag=True)
@option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="OWNER/NAME …",
    help="Attach data sets.",
)
@option(
    "--model",
    "models",
    multiple=True,
    metavar="OWNER/MODEL/FRAMEWORK/VARIATION/VERSION …",
    help="Attach models.",
)
@option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="OWNER/NAME …",
    help="Attach the output of notebooks.",
)
@option("--out", type=PLACE, help="Folder (default: build/kaggle).")
def _kaggle(
    notebook: str,
    user: str,
    profile: str,
    changes: tuple,
    repo: str,
    no_internet: bool,
    datasets: tuple,
    models: tuple,
    kernels: tuple,
    out: Path | None,
) -> None:
    """Write a folder that `kaggle kernels push -p FOLDER` takes."""
    from speclab.ops import hosted
    from speclab.profiles import ROOT, load_profile, parse_overrides

    if not repo and not datasets:
        raise ValueError(
            "how shall the notebook get the kit? --repo ADDRESS (git, internet on), or --dataset "
            "NAME/speclab (attached)"
        )
    if repo and (repo.startswith("-") or not repo.strip()):
        raise ValueError(f"--repo {repo!r}: a git address is needed, as https://…")
    if repo and no_internet:
        raise ValueError("--repo needs the internet: leave it out, or --no-internet")
    overrides = parse_overrides(list(changes))
    named, text = hosted.profile_there(profile, load_profile(profile, overrides))
    parameters = {"profile": named}
    if overrides:
        parameters["overrides"] = overrides
    metadata = hosted.kernel_metadata(
        notebook, user, not no_internet, list(datasets), list(models), list(kernels)
    )
    folder = out or ROOT / "build" / "kaggle"
    hosted.write_kernel(folder, metadata, parameters, repo, text)
    click.echo(
        f"{folder}: kernel-metadata.json and {metadata['code_file']}; next: kaggle kernels push "
        f"-p {folder}"
    )


@verb("restore", _hosted)
@click.argument("folder", type=PLACE, required=False)
def _restore(folder: Path | None) -> None:
    """Copy saved runs from FOLDER (default: what Kaggle attached) into data/runs."""
    from speclab.ops import hosted

    folder = folder or hosted.MOUNTED
    if not folder.is_dir():
        raise ValueError(
            f"{folder}: no such folder; attach the last session's output first"
        )
    click.echo(f"restored: {', '.join(hosted.restore(folder)) or 'nothing new'}")


@verb("keep", _hosted)
@click.argument("folder", type=PLACE)
def _keep(folder: Path) -> None:
    """Keep data/runs in FOLDER, on a disk that outlives the session."""
    from speclab.ops import hosted

    hosted.keep(folder)
    click.echo(f"data/runs is now {folder}")


# ---- errors --------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Run a verb; 0 done, 1 something failed or is to be done, 2 an error the user can mend, 130
    stopped by Ctrl-C.
    """
    given = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # say `\\u2026` where it has no such character
            stream.reconfigure(errors="backslashreplace")
    try:
        quiet()
        check_arguments(given)
        return (
            cli.main(given, prog_name="python -m speclab", standalone_mode=False) or 0
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        return failed(f"{error.format_message()} (see --help)")
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"speclab: {after_a_stop(given)}", err=True)
        return 130
    except (ValueError, FloatingPointError, OSError, MemoryError) as error:
        return failed(error)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("speclab", "data"):  # of ours
            raise
        return failed(f"{error}; `python -m speclab doctor` says which packages lack")
    except RuntimeError as error:
        if (
            type(error) is RuntimeError
        ):  # a mistake of ours; RunError and out of memory are the user's to mend
            raise
        return failed(error)


def check_arguments(arguments: list[str]) -> None:
    """ValueError for an argument that is no text: it could be neither said nor written."""
    for argument in arguments:
        if not is_whole_text(argument):
            raise ValueError(
                f"{argument!r}: allowed is text in UTF-8; rename such a file"
            )


def after_a_stop(arguments: list[str]) -> str:
    """What is true after Ctrl-C: what is kept, and whether the same command goes on."""
    kept = GOES_ON.get(next(iter(arguments), ""))
    if kept is None:
        return "stopped; the same command begins anew"
    anew = " (without --force)" if "--force" in arguments else ""
    return f"stopped; {kept}, the same command{anew} goes on from there"


def failed(reason: object) -> int:
    """Say in one line what is wrong, whatever the text of an error is."""
    line = " ".join(str(reason).split()) or type(reason).__name__
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    if len(line) > LONGEST:  # the end says what to do
        line = f"{line[: LONGEST * 2 // 3]} … {line[-LONGEST // 3 :]}"
    click.echo(f"speclab: {line}", err=True)
    return 2


if __name__ == "__main__":
    sys.exit(main())

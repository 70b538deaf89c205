"""Command line: `python -m speclab record | decode | tiny-pair` (see --help).

Errors are one line that says what to do; exit status 2.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from speclab.notebook import quiet

if TYPE_CHECKING:
    from speclab.profiles import Profile
    from speclab.sampling import Sampling


def _record(args: argparse.Namespace) -> None:
    from speclab.ops.engines import engine_of
    from speclab.profiles import load_profile, parse_overrides
    from speclab.runs import KINDS, load_or_record, record_run

    profile, engine = (
        load_profile(args.profile, parse_overrides(args.set)),
        engine_of(args.engine, args.devices, args.workers),
    )
    if args.out:
        run = record_run(profile.replace(**KINDS[args.kind]), args.out, engine=engine)
    else:
        run = load_or_record(profile, args.kind, engine)
    print(
        f"{run.manifest['rows']['trace']} positions, {run.manifest['rows']['nodes']} nodes in {run.folder}"
    )


def _decode(args: argparse.Namespace) -> None:
    from speclab.decode import check_rule, decode_file
    from speclab.draft import parse_shape
    from speclab.pairs import load_pair
    from speclab.profiles import load_profile, parse_overrides
    from speclab.prompts import read_prompts
    from speclab.sampling import Sampling

    if args.seed < 0:
        raise ValueError(f"--seed {args.seed}: allowed are whole numbers from 0")
    if args.check and args.rule != "greedy":
        raise ValueError(f"--check compares greedy texts; it does not go with --rule {args.rule}")
    settings = parse_overrides(args.set) | (
        {} if args.temperature is None else {"temperature": args.temperature}
    )
    profile, shape = load_profile(args.profile, settings), parse_shape(args.shape)
    sampling = Sampling(profile.temperature, profile.top_k, profile.top_p)
    check_rule(args.rule, shape, sampling)  # before the models are loaded
    shape_of = _shape_of(args, profile, sampling) if args.policy else None
    if not (prompts := read_prompts(args.prompts, optional=("domain",))):
        raise ValueError(
            f"{args.prompts}: no prompt in it; write one object with prompt_id and prompt on each line"
        )
    pair = load_pair(profile)
    # in half precision passes of other shapes round otherwise: a near tie may fall the other way,
    # and is then told
    exact = (
        pair.facts["target"]["dtype"],
        pair.facts["target"]["device"],
        pair.facts["target"]["quantised"],
    ) == ("float32", "cpu", False)
    check = args.rule == "greedy" and (args.check or not exact)
    decode_file(
        pair, prompts, profile, args.rule, shape, sampling, args.seed, args.out, check, shape_of
    )
    print(f"{len(prompts)} texts in {args.out}")


def _shape_of(args: argparse.Namespace, profile: "Profile", sampling: "Sampling") -> Callable:
    """What the policy file drafts for a prompt; every setting of it is checked before the models
    are loaded.
    """
    from speclab.analysis import policy
    from speclab.decode import check_rule
    from speclab.draft import PLAIN

    plan = policy.load(args.policy, policy.identity(profile))
    for setting in (plan.default, *plan.domains.values()):
        try:
            check_rule(args.rule, policy.parse_setting(setting) or PLAIN, sampling)
        except ValueError as error:
            raise ValueError(f"{args.policy}, setting {setting!r}: {error}") from None
    return lambda prompt: policy.choose(plan, prompt) or PLAIN


def _tiny_pair(args: argparse.Namespace) -> None:
    from data.pairs.tiny.prepare import build_tiny_pair

    build_tiny_pair(args.data, args.out, args.work, args.steps, args.seed)


def parser() -> argparse.ArgumentParser:
    """The command line of the kit."""
    from speclab.runs import KINDS

    top = argparse.ArgumentParser("speclab", description="Study kit for speculative decoding.")
    commands = top.add_subparsers(required=True)
    record = commands.add_parser("record", help="record trace, nodes and manifest of a profile")
    record.add_argument("--profile", default="tiny", help="name of a profile or a YAML file")
    record.add_argument("--kind", default="greedy", choices=list(KINDS))
    record.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="change parameters of the profile",
    )
    record.add_argument(
        "--out", type=Path, help="folder of the run (default: data/runs/PROFILE-KIND-KEY)"
    )
    record.add_argument(
        "--engine",
        default="local",
        help="local or ray: actors on the cluster of RAY_ADDRESS, else of this machine",
    )
    record.add_argument(
        "--devices",
        nargs="+",
        default=[],
        help="local: one process and one pair a device, as cuda:0 cuda:1",
    )
    record.add_argument(
        "--workers", type=int, help="ray: actors (default: one a GPU, else one a CPU)"
    )
    record.set_defaults(run=_record)
    decode = commands.add_parser("decode", help="decode prompts speculatively, one JSON line each")
    decode.add_argument("--profile", default="tiny", help="name of a profile or a YAML file")
    decode.add_argument(
        "--rule", default="greedy", help="greedy, rejection, point-mass or without-replacement"
    )
    decode.add_argument(
        "--shape",
        default="chain:4",
        help="chain:GAMMA, tree:DEPTH,BRANCHES[,BUDGET] or dynamic:DEPTH,BRANCHES,BUDGET",
    )
    decode.add_argument(
        "--policy",
        type=Path,
        metavar="FILE",
        help="of notebook 09: a shape for each prompt, in place of --shape",
    )
    decode.add_argument("--temperature", type=float)
    decode.add_argument("--seed", type=int, default=0)
    decode.add_argument(
        "--prompts", type=Path, required=True, help="JSON lines with prompt_id and prompt"
    )
    decode.add_argument(
        "--check",
        action="store_true",
        help="compare greedy text with plain greedy text (always done in half precision)",
    )
    decode.add_argument("--out", type=Path, required=True)
    decode.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="change parameters of the profile",
    )
    decode.set_defaults(run=_decode)
    tiny = commands.add_parser("tiny-pair", help="train the tiny pair again from its text")
    tiny.add_argument("--data", type=Path, required=True, help="folder with train/ and hub_mirror/")
    tiny.add_argument("--out", type=Path, default=Path("data/pairs/tiny"))
    tiny.add_argument(
        "--work",
        type=Path,
        default=Path("build/tiny-pair"),
        help="checkpoints; a killed run goes on from here",
    )
    tiny.add_argument(
        "--steps",
        type=int,
        help="training steps of each model (default: as the committed pair; the fewer, the worse)",
    )
    tiny.add_argument("--seed", type=int, default=0)
    tiny.set_defaults(run=_tiny_pair)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run a command; 0 done, 2 an error the user can mend, 130 stopped by Ctrl-C (finished work is
    kept).
    """
    args = parser().parse_args(argv)
    quiet()
    try:
        args.run(args)
    except (ValueError, FloatingPointError, FileNotFoundError, RuntimeError) as error:
        if type(error) is RuntimeError:
            raise
        print(f"speclab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "speclab: stopped; finished blocks are kept, the same command goes on from there",
            file=sys.stderr,
        )
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

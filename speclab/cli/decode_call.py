"""The settings of a call of `python -m speclab decode`, and the lines that an earlier call wrote.

OUT.settings.json beside the result OUT holds everything that decides its texts. It is written
before the first line, so that a later call knows whether the lines have its own settings.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from speclab.plain import read_json
from speclab.study.profiles import Profile
from speclab.study.prompts import EncodedPrompt, Prompt, read_prompts

if TYPE_CHECKING:
    from speclab.sampling import Sampling
    from speclab.shapes import Shape

DEFAULT = "chain:4"  # the shape if none is named
MEND = "choose another --out, or start over with --force"
# the parameters of a profile that decide what is decoded
READS = (
    *("target", "draft", "dtype", "device", "backend", "template", "max_prompt_tokens"),
    *("truncate", "max_new_tokens", "temperature", "top_k", "top_p", "seed"),
)


@dataclass(frozen=True)
class DecodeCall:
    """A call of `decode`: a profile, and the options of the command line, each with its help.

    Loads no models. ValueError for options that exclude each other.
    """

    profile: Profile
    prompts: Annotated[Path, "Input: JSON lines with prompt_id, and prompt or messages."]
    out: Annotated[Path, "Output: JSON lines with the texts; a stopped call continues."]
    rule: Annotated[
        str | None,
        "Verification rule: greedy, rejection, point-mass or without-replacement (default: greedy "
        "at temperature 0, else rejection for chains and point-mass for trees).",
    ] = None
    shape: Annotated[
        str | None,
        "What to draft: plain, chain:GAMMA, tree:DEPTH,BRANCHES[,BUDGET], "
        "dynamic:DEPTH,BRANCHES,BUDGET, lookup:LEAST (copy from the text so far if its last LEAST "
        "or more tokens occurred before) or chain:GAMMA+lookup:LEAST (copy, else draft) (default: "
        "chain:4).",
    ] = None
    check: Annotated[
        bool, "Compare with plain greedy decoding (always done in half precision)."
    ] = False
    force: Annotated[bool, "Start over and replace the file --out."] = False

    def __post_init__(self) -> None:
        if self.check and not self.is_greedy:
            texts = f"--rule {self.rule}" if self.rule else f"T = {self.profile.temperature:g}"
            raise ValueError(
                f"--check compares greedy texts only, and {texts} is not greedy; omit it"
            )

    @cached_property
    def prompt_list(self) -> list[Prompt]:
        """The prompts of the file."""
        prompts = read_prompts(self.prompts, needs_domain=False)
        if not prompts:
            raise ValueError(f"{self.prompts} holds no prompt; add one JSON line per prompt")
        return prompts

    @cached_property
    def sampling(self) -> "Sampling":
        """How the target's tokens are drawn."""
        return self.profile.sampling

    @property
    def is_greedy(self) -> bool:
        """Whether the texts are the target's greedy texts."""
        return self.rule == "greedy" if self.rule else self.sampling.greedy

    def rule_for(self, shape: "Shape") -> str:
        """The rule that verifies a shape: the named rule, else the lossless rule for the
        temperature.
        """
        if self.rule or self.sampling.greedy:
            return self.rule or "greedy"
        return "rejection" if shape.is_chain else "point-mass"

    @cached_property
    def parsed_shape(self) -> "Shape":
        """What is drafted in a block."""
        from speclab.shapes import parse_shape

        return parse_shape(self.shape or DEFAULT)

    def check_shape(self) -> None:
        """ValueError for a text that names no shape, or for one that the rule cannot verify."""
        from speclab.decode import check_rule

        check_rule(self.rule_for(self.parsed_shape), self.parsed_shape, self.sampling)

    @cached_property
    def encoded(self) -> tuple[EncodedPrompt, ...]:
        """The prompts as the target reads them. ValueError as of `prompts.encode_prompts`."""
        from speclab.models.folder import read_by_target

        return read_by_target(self.profile, self.prompt_list).prompts

    # ---- the result ------------------------------------------------------------------------------

    @property
    def settings_file(self) -> Path:
        """The file with the settings of the result."""
        return self.out.with_name(f"{self.out.name}.settings.json")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything that decides the lines of the result, except their times, as JSON; no path and
        no name.
        """
        from speclab.models.folder import pair_digests, read_by_target
        from speclab.models.pairs import device_of

        profile = self.profile
        settings: dict[str, Any] = {}
        for name, weights in pair_digests(profile).items():
            spec = getattr(profile, name)
            settings[name] = {
                "dtype": spec.dtype,
                "device": str(device_of(spec)),
                "backend": spec.backend,
                "weights": weights,
            }
        names = ["max_new_tokens", "temperature"]
        if profile.temperature > 0:
            names += ["top_k", "top_p", "seed"]
        settings |= {name: getattr(profile, name) for name in names}
        rule = self.rule_for(self.parsed_shape)
        settings |= {"rule": rule, "drafted": self.shape or DEFAULT, "check": self.check}
        read = read_by_target(profile, self.prompt_list)
        return settings | {"left_out": {}} | read.facts

    def refuse_inputs(self, profile: Path) -> None:
        """ValueError if the result, or its settings file, would overwrite an input or the profile's
        file; links are followed. ValueError as of `runs.output_file`.
        """
        from speclab.study.runs import output_file

        results = {output_file(self.out), output_file(self.settings_file)}
        read = [self.prompts, *self.prompts.glob("*.jsonl"), profile]
        for path in read:
            if path.exists() and any(one.exists() and path.samefile(one) for one in results):
                raise ValueError(
                    f"--out {self.out} would overwrite {path}, which is an input; choose another "
                    "--out"
                )

    def lines_there(self, is_checked: bool) -> list[bytes]:
        """The whole lines that an earlier call with the same settings wrote, in the order of the
        prompts; none without a result, or with --force. Only reads.

        is_checked: each line must hold its comparison with plain decoding. ValueError for a file
        that holds anything else.
        """
        out, beside = self.out, self.settings_file
        if beside.exists() and not (self.force or out.exists()):
            raise ValueError(f"{beside} exists already, without its {out.name}; {MEND}")
        if self.force or not out.exists() or not out.stat().st_size:
            return []
        if not beside.is_file():
            raise ValueError(f"--out {out} exists already, without its {beside.name}; {MEND}")
        there = read_json(beside, MEND)
        others = [name for name, value in self.settings.items() if there.get(name, {}) != value]
        if others:
            raise ValueError(
                f"--out {out} holds texts with other settings ({', '.join(others)}; see "
                f"{beside.name}); {MEND}"
            )
        lines = out.read_bytes().split(b"\n")[:-1]  # what follows the last newline is half a line
        names = [_prompt_of(line, is_checked) for line in lines]
        if names != [prompt.prompt_id for prompt in self.prompt_list][: len(names)]:
            raise ValueError(
                f"--out {out}: a line is damaged, or belongs to another prompt; {MEND}"
            )
        return lines


def _prompt_of(line: bytes, is_checked: bool) -> str | None:
    """The prompt_id of a line; None for a line that is damaged or incomplete."""
    try:
        row = json.loads(line)
        parts = {"token_ids", "text", *["plain_difference"] * is_checked}
        return row["prompt_id"] if parts <= {*row} else None
    except (ValueError, LookupError, TypeError):
        return None

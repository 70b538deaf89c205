"""The settings of a call of `python -m speclab decode`, and the lines that an earlier call wrote.

Each line holds a digest of everything that decides it, so that a later call knows its own lines.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from speclab.plain import EncodedPrompt, Facts, digest_of
from speclab.study.profiles import Profile
from speclab.study.prompts import Prompt, read_prompts

if TYPE_CHECKING:
    from speclab.shapes import Shape

DEFAULT = "chain:4"  # the shape if none is named
MEND = "choose another --out, or start over with --force"
BEGIN = b'{"settings": "'  # of every line
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

    @property
    def is_greedy(self) -> bool:
        """Whether the texts are the target's greedy texts."""
        return self.rule == "greedy" if self.rule else self.profile.sampling.greedy

    def rule_for(self, shape: "Shape") -> str:
        """The rule that verifies a shape: the named rule, else the lossless rule for the
        temperature.
        """
        if self.rule or self.profile.sampling.greedy:
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

        check_rule(self.rule_for(self.parsed_shape), self.parsed_shape, self.profile.sampling)

    @cached_property
    def encoded(self) -> tuple[EncodedPrompt, ...]:
        """The prompts as the target reads them. ValueError as of `prompts.encode_prompts`."""
        from speclab.study.pairs import read_by_target

        return read_by_target(self.profile, self.prompt_list).prompts

    # ---- the result ------------------------------------------------------------------------------

    @cached_property
    def settings(self) -> Facts:
        """Everything that decides the lines of the result, except their prompts and times, as JSON;
        no path and no name.
        """
        from speclab.models.pairs import device_of
        from speclab.study.pairs import pair_digests, read_by_target

        profile = self.profile
        settings: Facts = {}
        for name, weights in pair_digests(profile).items():
            spec = getattr(profile, name)
            settings[name] = [spec.dtype, str(device_of(spec)), spec.backend, weights]
        names = ["max_new_tokens", "temperature"]
        if profile.temperature > 0:
            names += ["top_k", "top_p", "seed"]
        settings |= {name: getattr(profile, name) for name in names}
        rule = self.rule_for(self.parsed_shape)
        settings |= {"rule": rule, "drafted": self.shape or DEFAULT, "check": self.check}
        facts = read_by_target(profile, self.prompt_list).facts
        return settings | {name: facts.get(name) for name in ("stop_ids", "left_out")}

    @cached_property
    def digests(self) -> dict[str, str]:
        """The digest in the line of each prompt, by prompt_id."""
        return {
            prompt.prompt_id: digest_of([self.settings, prompt.domain, prompt.ids])[:16]
            for prompt in self.encoded
        }

    def refuse_inputs(self, profile: Path) -> None:
        """ValueError if the result would overwrite an input or the profile's file; links are
        followed. ValueError as of `runs.output_file`.
        """
        from speclab.study.runs import output_file

        result = output_file(self.out)
        for path in (self.prompts, *self.prompts.glob("*.jsonl"), profile):
            if path.exists() and result.exists() and path.samefile(result):
                raise ValueError(
                    f"--out {self.out} would overwrite {path}, which is an input; choose another "
                    "--out"
                )

    def lines_there(self) -> bytes:
        """The whole lines of an earlier call; b"" with --force. What follows the last newline is
        half a line, if a line begins so. ValueError if not: the file is no result.
        """
        if self.force or not self.out.exists():
            return b""
        content = self.out.read_bytes()
        end = content.rfind(b"\n") + 1
        if not BEGIN.startswith(content[end:][: len(BEGIN)]):
            raise ValueError(f"--out {self.out} exists already and is no result of decode; {MEND}")
        return content[:end]

    def rows_of(self, lines: bytes) -> dict[str, Facts]:
        """The content of whole lines by prompt_id. ValueError for a line that is damaged or has
        another digest than this call's.
        """
        rows = {}
        for number, line in enumerate(lines.splitlines(), 1):
            try:
                row = json.loads(line)
                name, digest = row["prompt_id"], row["settings"]
                is_own = digest and self.digests.get(name) == digest
            except (ValueError, LookupError, TypeError):
                raise ValueError(
                    f"--out {self.out}, line {number} is damaged, or of another version; {MEND}"
                ) from None
            if not is_own:
                raise ValueError(
                    f"--out {self.out}, line {number} was decoded with other settings or models, "
                    f"or from another prompt; {MEND}"
                )
            rows[name] = row
        return rows

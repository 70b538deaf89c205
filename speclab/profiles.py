"""Profiles: one YAML file names a pair, its prompts, its tree and its limits; every parameter is
checked on the way in.
"""

import dataclasses
import difflib
import functools
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, ValidationError, field_validator
from pydantic.dataclasses import dataclass

from speclab.missing import check_checkout
from speclab.plain import brief, parse_yaml, read_yaml
from speclab.prompts import DOMAINS
from speclab.tree import Tree, static_tree

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks" / "profiles"
MODELS = ("target", "draft")


def _near(name: str, allowed: list[str]) -> str:
    close = difflib.get_close_matches(name, allowed, 1, cutoff=0.45)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}allowed are {', '.join(allowed)}"


def _words(cls: type, error: ValidationError) -> str:
    """The first complaint in one line: the parameter, what came, what is allowed."""
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    name, value = first["loc"][0], first["input"]
    field = cls.__pydantic_fields__.get(name)
    if first["type"] == "literal_error":
        allowed = _near(str(value), list(get_args(field.annotation)))
    elif first["type"].startswith("int_"):
        allowed = "a whole number is needed"
    elif first["type"].startswith("float_"):
        allowed = "a number is needed"
    else:
        allowed = (field and field.description) or first["msg"]
    return f"{name}={brief(value)}: {allowed}"


def _checked(cls: type) -> type:
    """A frozen dataclass checked by pydantic; the first wrong value is a ValueError of one line."""
    made = dataclass(
        frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False)
    )(cls)
    check = made.__init__

    @functools.wraps(check)
    def init(self, *args, **values):
        try:
            check(self, *args, **values)
        except ValidationError as error:
            raise ValueError(_words(made, error)) from None

    made.__init__ = init
    return made


def _number(default: float, low: float, high: float) -> Any:
    words = f"allowed are numbers from {low} to {high}"
    return Field(default, ge=low, le=high, strict=True, description=words)


# it names folders below build/, figures/ and data/runs/
Name = Annotated[
    str,
    Field(
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z",
        description="allowed are up to 64 letters, digits, '-', '_' and '.', a letter or digit "
        "first; set `name` in the profile",
    ),
]


@_checked
class ModelSpec:
    """Where a model comes from and how it is held: a folder (relative to the repository) or a hub
    id, `revision` a commit hash.
    """

    path: str = Field(
        pattern=r"\A\S(.{0,500}\S)?\z",
        description="a folder, or owner/name on the hub, is needed",
    )
    revision: str | None = None
    # auto: float32 on a CPU, float16 on a GPU
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    # auto: the first GPU, else the CPU
    device: str = Field(
        "auto",
        pattern=r"\A(auto|cpu|cuda(:[0-9]{1,3})?)\z",
        description="allowed are auto, cpu, cuda, cuda:0, cuda:1, …",
    )
    # kernel of a GPTQ model; auto: GPTQModel's own choice; torch works everywhere, slowly
    backend: Literal["auto", "torch", "triton", "marlin"] = "auto"


@_checked
class Profile:
    """All parameters of a run.

    Lengths in tokens; `budget` null means no cut; see notebooks/profiles/tiny.yaml for each.
    """

    name: Name
    target: ModelSpec
    draft: ModelSpec
    description: str = ""
    template: Literal["none", "chat"] = "none"
    prompts: str = Field(
        "project",
        min_length=1,
        description="write project, paper, or a .jsonl file or folder of such files",
    )
    prompts_per_domain: int = _number(50, 1, 100_000)
    domains: tuple = Field(DOMAINS, description="write a list, as domains=[math,code]")
    max_prompt_tokens: int = _number(512, 1, 131_072)
    max_new_tokens: int = _number(64, 1, 65_536)
    depth: int = Field(3, strict=True)
    branches: int = Field(2, strict=True)
    budget: int | None = Field(8, strict=True)
    temperature: float = _number(0.0, 0.0, 10.0)
    top_k: int = _number(0, 0, 1_000_000)
    top_p: float = _number(1.0, 1e-6, 1.0)
    seed: int = _number(42, 0, 2**32 - 1)
    position_bin: int = _number(32, 1, 65_536)
    block_prompts: int = _number(10, 1, 1024)
    max_packed_tokens: int = _number(2048, 1, 1_000_000)
    # shipped recordings, a folder for each kind; relative to the repository
    traces: str | None = Field(
        None, min_length=1, description="a folder of traces is needed"
    )
    # kinds of run that every machine records itself, though a trace is shipped
    recorded: tuple = Field(
        (), description="write a list, as recorded=[greedy,sampled]"
    )
    # parameters of single notebooks that `make reproduce` sets for this pair, by their names
    notebooks: dict[str, dict] = Field(
        default_factory=dict,
        repr=False,
        description="write parameters by notebook, as {11_paper_audit: {beside: tiny}}",
    )
    notes: dict = dataclasses.field(default_factory=dict, compare=False)

    @field_validator("temperature")
    @classmethod
    def _no_sign_of_zero(cls, value: float) -> float:
        return value + 0.0  # -0.0 is 0.0, also in the key of a run

    def __post_init__(self):
        static_tree(self.depth, self.branches, self.budget)  # says what is too much
        for domain in self.domains:
            if domain not in DOMAINS:
                near = _near(str(domain), list(DOMAINS))
                raise ValueError(f"domains: {brief(domain)}: {near}")
        if not self.domains or len(set(self.domains)) < len(self.domains):
            raise ValueError(
                f"domains={list(self.domains)}: write each once, one or more of "
                f"{', '.join(DOMAINS)}"
            )

    @property
    def tree(self) -> Tree:
        """The static draft tree of depth, branches and budget."""
        return static_tree(self.depth, self.branches, self.budget)

    def replace(self, **changes: Any) -> "Profile":
        """A copy with some parameters changed and checked again."""
        return dataclasses.replace(self, **changes)


def profile_names() -> list[str]:
    """Names of the profiles that come with the kit."""
    return sorted(p.stem for p in FOLDER.glob("*.yaml"))


def _made(cls: type, values: dict, where: str) -> Any:
    known = [f.name for f in dataclasses.fields(cls)]
    for key in values:
        if key not in known:
            near = _near(str(key), known)
            raise ValueError(f"{where}: unknown parameter {brief(key)}: {near}")
    if cls is ModelSpec and "path" not in values:
        raise ValueError(
            f"{where}: `path` is missing: a folder, or owner/name on the hub"
        )
    return cls(**values)


def _merge(values: dict, overrides: dict) -> dict:
    """Overrides win; `target.device` reaches into a model, `dtype`, `device` and `backend` alone
    reach both models.
    """
    for key, value in overrides.items():
        head, _, tail = key.partition(".")
        if tail and head in MODELS:
            values[head] = values[head] | {tail: value}
        elif key in MODELS:
            values[key] = _as_settings(value)
        elif key in ("dtype", "device", "backend"):
            values |= {model: values[model] | {key: value} for model in MODELS}
        else:
            values[key] = value
    return values


def _as_settings(model: Any) -> dict:
    """Settings of a model; a path alone stands for {path: …}."""
    return model if isinstance(model, dict) else {"path": model}


def load_profile(name: str | Path, overrides: dict | None = None) -> Profile:
    """The profile of a name (notebooks/profiles/NAME.yaml) or of a YAML file, with overrides
    applied and every value checked.
    """
    path = (
        Path(name) if str(name).endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    )
    if not path.exists():
        check_checkout()
        near = _near(str(name), profile_names())
        raise ValueError(f"profile={brief(str(name))}: {near} or a YAML file")
    values = read_yaml(path, f"write it as {FOLDER.name}/tiny.yaml is written")
    if not isinstance(values, dict) or not set(MODELS) <= set(values):
        raise ValueError(f"{path}: a profile needs at least `target` and `draft`")
    values |= {model: _as_settings(values[model]) for model in MODELS}
    values = {"name": path.stem} | _merge(values, overrides or {})
    for model in MODELS:
        values[model] = _made(ModelSpec, values[model], f"{path.name}: {model}")
    return _made(Profile, values, path.name)


def parse_overrides(items: list[str], option: str = "--set") -> dict:
    """`["gamma=4", "tree=…"]` of an option of the command line as a dict; values are read as YAML
    scalars.
    """
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ValueError(
                f"{option} {brief(item)}: write KEY=VALUE, as max_new_tokens=32"
            )
        if key in found:
            raise ValueError(f"{option} {key} comes twice: write it once")
        try:
            found[key] = parse_yaml(value)
        except ValueError as error:
            raise ValueError(
                f"{option} {brief(item)}: the value is not YAML ({error}); "
                "write it as max_new_tokens=32 or domains=[math,code]"
            ) from None
    return found

"""Profiles: one YAML file names a pair, its prompts, its tree and its limits; every parameter is
checked on the way in.
"""

import dataclasses
import difflib
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from speclab.prompts import DOMAINS
from speclab.tree import Tree, check_limit, static_tree

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks" / "profiles"
RANGES = {
    "prompts_per_domain": (1, 100_000),
    "max_prompt_tokens": (1, 131_072),
    "max_new_tokens": (1, 65_536),
    "temperature": (0.0, 10.0),
    "top_k": (0, 1_000_000),
    "top_p": (1e-6, 1.0),
    "seed": (0, 2**32 - 1),
    "position_bin": (1, 65_536),
    "block_prompts": (1, 1024),
    "max_packed_tokens": (1, 1_000_000),
}
CHOICES = {
    "template": ("none", "chat"),
    "dtype": ("auto", "float32", "float16", "bfloat16"),
    "backend": ("auto", "torch", "triton", "marlin"),
}


def _near(name: str, allowed: list[str]) -> str:
    close = difflib.get_close_matches(name, allowed, 1, cutoff=0.45)
    return f"did you mean {close[0]!r}? " if close else ""


def _check_choice(name: str, value: str) -> None:
    if value not in CHOICES[name]:
        raise ValueError(
            f"{name}={value!r}: {_near(str(value), list(CHOICES[name]))}allowed are {', '.join(CHOICES[name])}"
        )


@dataclass(frozen=True)
class ModelSpec:
    """Where a model comes from and how it is held: a folder (relative to the repository) or a hub
    id, `revision` a commit hash.
    """

    path: str
    revision: str | None = None
    dtype: str = "auto"  # auto: float32 on a CPU, float16 on a GPU
    device: str = "auto"  # auto: the first GPU, else the CPU
    # kernel of a GPTQ model; auto: GPTQModel's own choice; torch works everywhere, slowly
    backend: str = "auto"

    def __post_init__(self):
        _check_choice("dtype", self.dtype)
        _check_choice("backend", self.backend)
        if not isinstance(self.path, str) or not self.path:
            raise ValueError(f"path={self.path!r}: a folder, or owner/name on the hub, is needed")
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", str(self.device)):
            raise ValueError(
                f"device={self.device!r}: allowed are auto, cpu, cuda, cuda:0, cuda:1, …"
            )


@dataclass(frozen=True)
class Profile:
    """All parameters of a run.

    Lengths in tokens; `budget` null means no cut; see notebooks/profiles/tiny.yaml for each.
    """

    name: str
    target: ModelSpec
    draft: ModelSpec
    description: str = ""
    template: str = "none"
    prompts: str = "project"
    prompts_per_domain: int = 50
    domains: tuple[str, ...] = DOMAINS
    max_prompt_tokens: int = 512
    max_new_tokens: int = 64
    depth: int = 3
    branches: int = 2
    budget: int | None = 8
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 42
    position_bin: int = 32
    block_prompts: int = 10
    max_packed_tokens: int = 2048
    notes: dict = field(default_factory=dict, compare=False)

    def __post_init__(self):
        _check_choice("template", self.template)
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not low <= value <= high
            ):
                raise ValueError(f"{name}={value!r}: allowed are numbers from {low} to {high}")
        for name in ("depth", "branches") + (("budget",) if self.budget is not None else ()):
            check_limit(name, getattr(self, name))
        if not isinstance(self.domains, tuple):
            raise ValueError(f"domains={self.domains!r}: write a list, as domains=[math,code]")
        for domain in self.domains:
            if domain not in DOMAINS:
                raise ValueError(
                    f"domains: {domain!r}: {_near(domain, list(DOMAINS))}allowed are {', '.join(DOMAINS)}"
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


def _from_dict(cls: type, values: Any, where: str) -> Any:
    known = [f.name for f in fields(cls)]
    if not isinstance(values, dict):
        raise ValueError(f"{where}: a mapping of parameters is needed, got {type(values).__name__}")
    for key in values:
        if key not in known:
            raise ValueError(
                f"{where}: unknown parameter {key!r}: {_near(str(key), known)}allowed are {', '.join(known)}"
            )
    if cls is ModelSpec and "path" not in values:
        raise ValueError(f"{where}: `path` is missing: a folder, or owner/name on the hub")
    return cls(**values)


def _typed(cls: type, key: str, value: Any) -> Any:
    """Whole numbers stay whole; YAML reads 1e-3 as text and 1 as a whole number, so floats are
    converted here.
    """
    kind = {f.name: f.type for f in fields(cls)}.get(key)
    if kind is float and isinstance(value, int | str) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError:
            raise ValueError(f"{key}={value!r}: a number is needed") from None
    if kind is int and not (isinstance(value, int) and not isinstance(value, bool)):
        raise ValueError(f"{key}={value!r}: a whole number is needed")
    return tuple(value) if key == "domains" and isinstance(value, list | tuple) else value


def _merge(values: dict, overrides: dict) -> dict:
    """Overrides win; `target.device` reaches into a model, `dtype`, `device` and `backend` alone
    reach both models.
    """
    for key, value in overrides.items():
        head, _, tail = key.partition(".")
        if tail and head in ("target", "draft"):
            values[head] = {**values[head], tail: value}
        elif key in ("dtype", "device", "backend"):
            values |= {m: {**values[m], key: value} for m in ("target", "draft")}
        else:
            values[key] = value
    return values


def load_profile(name: str | Path, overrides: dict | None = None) -> Profile:
    """The profile of a name (notebooks/profiles/NAME.yaml) or of a YAML file, with overrides
    applied and every value checked.
    """
    path = Path(name) if str(name).endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise ValueError(
            f"profile={str(name)!r}: {_near(str(name), profile_names())}allowed are {', '.join(profile_names())} or a YAML file"
        )
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(values, dict) or not {"target", "draft"} <= set(values):
        raise ValueError(f"{path}: a profile needs at least `target` and `draft`")
    values = _merge(values, overrides or {})
    models = {
        m: _from_dict(
            ModelSpec,
            values[m] if isinstance(values[m], dict) else {"path": values[m]},
            f"{path.name}: {m}",
        )
        for m in ("target", "draft")
    }
    rest = {k: _typed(Profile, k, v) for k, v in values.items() if k not in models}
    return _from_dict(Profile, {"name": path.stem, **rest, **models}, path.name)


def parse_overrides(items: list[str]) -> dict:
    """`["gamma=4", "tree=…"]` from the command line as a dict; values are read as YAML scalars."""
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ValueError(f"--set {item!r}: write KEY=VALUE, as max_new_tokens=32")
        try:
            found[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ValueError(
                f"--set {item!r}: the value is not YAML; write it as max_new_tokens=32 or domains=[math,code]"
            ) from None
    return found

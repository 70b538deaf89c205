"""Profiles: one YAML file names a pair, its prompts, its tree and its limits. Every parameter is
checked when it is read.
"""

import dataclasses
import os
from collections.abc import Container, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, JsonValue
from pydantic.dataclasses import dataclass

from speclab import place
from speclab.plain import STRICT, Facts, ModelSpec, brief
from speclab.study.prompts import SETS, HubPrompts
from speclab.study.reading import checked, near, parse_yaml, read_yaml
from speclab.tree import Tree, static_tree

if TYPE_CHECKING:
    from speclab.sampling import Sampling

ROOT = place.ROOT
FOLDER = ROOT / "notebooks" / "profiles"
Which = Literal["target", "draft"]
MODELS: tuple[str, ...] = get_args(Which)
OF_ALL = ("dtype", "device", "backend")
# parameters that are texts: their values on the command line are taken as they are written
TEXTS = ("name", "description", "system", "prompts", "traces", "path", "revision", "device")
OPEN = (*MODELS, "font")  # these are texts, too, unless they begin as a mapping or a list


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


@dataclass(frozen=True, config=STRICT)
class Notes:
    """Facts about a pair that do not change any run."""

    # of the prompts and of the texts that continue them
    licence: str | None = None
    # the published config.json of both models, to plan memory before anything is downloaded
    target_config: Facts = Field(default_factory=dict)
    draft_config: Facts = Field(default_factory=dict)
    # the composed prompts (data/training_prompts) that a draft was trained on: `seed`, and in
    # `composed` how many of its first prompts for each domain
    trained_on: Facts | None = None
    # prompt sets that a draft was trained on, by the draft's path
    saw: dict[str, list[str]] = Field(default_factory=dict)
    # how many first prompts of a domain chose the length of the draft's training
    chose: int = Field(default=0, ge=0, le=100_000)
    # if only some prompts of a domain are decoded for real, they start at this number
    decoded_from: int = Field(default=0, ge=0, le=100_000)


@dataclass(frozen=True, config=STRICT)
class Profile:
    """All parameters of a study; notebooks/profiles/reference.yaml explains each.

    Lengths in tokens; `budget` null means no cut.
    """

    # it names folders below build/, figures/ and data/runs/
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    target: ModelSpec
    draft: ModelSpec
    # further drafts, which notebook 08 compares with the draft; they change no run
    drafts: Annotated[tuple[ModelSpec, ...], Field(strict=False)] = ()
    description: str = ""
    template: Literal["none", "chat"] = "none"
    # of a chat template: a system message before every prompt, and further variables
    system: str | None = None
    template_arguments: dict[str, JsonValue] = Field(default_factory=dict)
    # a name of speclab/study/prompts.py (SETS), a .jsonl file or folder of such files, or a set of
    # the hub
    prompts: Annotated[str, Field(min_length=1)] | HubPrompts = "project"
    # at most this many; None: all
    prompts_per_domain: Annotated[int, Field(ge=1, le=100_000)] | None = None
    # selects and orders the domains; None: all, in order of appearance
    domains: Annotated[tuple[str, ...], Field(min_length=1, strict=False)] | None = None
    # prompt sets on which findings are tested again, named as in `prompts`; None: the kit's own if
    # `prompts` is a set by name, else none
    other_prompts: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    max_prompt_tokens: int = Field(default=512, ge=1, le=131_072)
    # whether the message of a prompt that is too long with its chat template is cut, or refused
    truncate: bool = False
    max_new_tokens: int = Field(default=64, ge=1, le=65_536)
    depth: int = 3
    branches: int = 2
    budget: int | None = 8
    # of sampled text; studies also show T = 0
    temperature: float = Field(default=0.0, ge=0, le=10)
    top_k: int = Field(default=0, ge=0, le=1_000_000)
    top_p: float = Field(default=1.0, ge=1e-6, le=1)
    min_p: float = Field(default=0.0, ge=0, le=1)
    seed: int = Field(default=42, ge=0, lt=2**32)
    block_prompts: int = Field(default=10, ge=1, le=1024)
    max_packed_tokens: int = Field(default=2048, ge=1, le=1_000_000)
    # shipped recordings, one folder per kind; relative to the repository
    traces: str | None = None
    # kinds of run that every machine records itself, even if a trace is shipped
    recorded: tuple[str, ...] = Field(default=(), strict=False)
    # parameters of single notebooks that `make reproduce` sets for this pair, by their names
    notebooks: dict[str, Facts] = Field(default_factory=dict, repr=False)
    # how results are shown: the level of all intervals, families of fonts that figures use before
    # the house font, and whether tables for a paper go across both of its columns
    level: float = Field(default=0.95, ge=0.5, le=0.99)
    font: Annotated[tuple[str, ...], BeforeValidator(_as_list), Field(strict=False)] = ()
    wide_tables: bool = False
    notes: Notes = dataclasses.field(default_factory=Notes, compare=False)

    def __post_init__(self) -> None:
        _ = self.tree  # an error says what is too large
        if self.template == "none" and (self.system is not None or self.template_arguments):
            raise ValueError(
                "template='none': system and template_arguments need a chat template; set "
                "template: chat, or omit them"
            )
        for name in ("domains", "other_prompts"):
            named = getattr(self, name) or ()
            if len(set(named)) < len(named):
                raise ValueError(f"{name}={list(named)}: a name occurs twice; write it once")
        paths = [Path(one.path) for one in self.models.values()]
        for path in paths[2:]:
            if paths.count(path) > 1:
                raise ValueError(
                    f"drafts: {path} is named twice (target and draft count); name each model once"
                )
        if self.prompts in self.notes.saw.get(self.draft.path, []):
            raise ValueError(
                f"prompts={self.prompts!r}: the draft {self.draft.path} was trained on prompts of "
                "this set, so its acceptance there is meaningless; use 'project' or a file of your "
                "own"
            )

    @property
    def models(self) -> dict[str, ModelSpec]:
        """All models by the key that names them: target, draft, drafts.0, drafts.1 and so on."""
        further = {f"drafts.{at}": one for at, one in enumerate(self.drafts)}
        return {"target": self.target, "draft": self.draft} | further

    @property
    def tree(self) -> Tree:
        """The static draft tree of depth, branches and budget."""
        return static_tree(self.depth, self.branches, self.budget)

    @property
    def positions(self) -> int:
        """The most positions of a context: a prompt, its text, and a block drafted at its end."""
        return self.max_prompt_tokens + self.max_new_tokens + self.depth

    @property
    def sampled_temperature(self) -> float:
        """The temperature above 0 that studies show: the profile's, or 1 if that is 0."""
        return self.temperature or 1.0

    @property
    def sampled_as(self) -> str:
        """How sampled texts are drawn, in words: 'T = 0.6, top-k = 20, top-p = 0.95'."""
        words = [f"T = {self.sampled_temperature:g}"]
        words += [f"top-k = {self.top_k}"] * (self.top_k > 0)
        words += [f"top-p = {self.top_p:g}"] * (self.top_p < 1)
        words += [f"min-p = {self.min_p:g}"] * (self.min_p > 0)
        return ", ".join(words)

    @property
    def others(self) -> tuple[str, ...]:
        """The prompt sets on which findings are tested again."""
        if self.other_prompts is not None:
            return self.other_prompts
        if self.prompts == "project":
            return "unwrapped", "second"
        if self.prompts in {*SETS} - {"second"}:
            return ("second",)
        return ()

    @property
    def sampling(self) -> "Sampling":
        """How tokens are drawn: temperature, top_k, top_p and min_p."""
        from speclab.sampling import Sampling

        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p)

    def replace(self, **changes: Any) -> "Profile":
        """A copy with some parameters changed and checked again."""
        return dataclasses.replace(self, **changes)


def profile_names() -> list[str]:
    """Names of the profiles that come with the kit."""
    return sorted(p.stem for p in FOLDER.glob("*.yaml"))


def load_profile(name: str | Path, overrides: Facts | str | None = None) -> Profile:
    """The profile with this name (notebooks/profiles/NAME.yaml) or in this YAML file, with
    overrides applied (names with values, or a text that is YAML for them) and every value checked.
    Files and folders in it are searched beside the YAML file, then in the working folder and in the
    repository.
    """
    is_file = str(name).endswith((".yaml", ".yml"))
    path = Path(name) if is_file else FOLDER / f"{name}.yaml"
    if not path.exists():
        allowed = near(str(name), profile_names())
        raise ValueError(f"profile={str(name)!r}: {allowed} or a YAML file")
    values: Facts = {"name": path.stem, "notes": {}}
    values |= read_yaml(path, f"correct it; {FOLDER.name}/reference.yaml is an example", dict)
    try:  # papermill makes a text of `-p overrides '{…}'`
        changes = parse_yaml(overrides) if isinstance(overrides, str) else overrides or {}
        changes = dict(**changes)
    except (TypeError, ValueError):
        raise ValueError(
            f"overrides={brief(overrides)}: write names with values, as "
            '{"prompts_per_domain": 10}'
        ) from None
    # overrides win: `dtype`, `device` and `backend` over every model, `target.device` over these
    of_all: Facts = {}
    of_model: dict[str, Facts] = {model: {} for model in MODELS}
    for key, value in changes.items():
        model, _, inner = key.rpartition(".")
        if model in of_model:
            of_model[model][inner] = value
        elif key in OF_ALL:
            of_all[key] = value
        else:
            values[key] = value
    # names of files and folders become their places
    place = partial(_place, path.parent)
    for key in {"prompts", "other_prompts", "traces"} & values.keys():
        values[key] = place(values[key])
    if isinstance(values.get("prompts"), dict):
        values["prompts"] = checked(HubPrompts, values["prompts"], f"{path.name}: prompts")

    def spec(key: str, model: Any, own: Facts) -> ModelSpec:
        """A model of the YAML file, changed and checked; a plain path means {path: …}."""
        settings = (model if isinstance(model, dict) else {"path": model}) | of_all | own
        if "path" in settings:
            settings["path"] = place(settings["path"])
        return checked(ModelSpec, settings, f"{path.name}: {key}")

    for name, own in of_model.items():
        values[name] = spec(name, values.get(name), own)
    if isinstance(further := values.get("drafts"), list):  # else it is refused below
        values["drafts"] = [spec(f"drafts.{at}", one, {}) for at, one in enumerate(further)]
    values["notes"] = checked(Notes, values["notes"], f"{path.name}: notes", of_json=True)
    return checked(Profile, values, path.name)


def with_head(profile: Profile) -> Profile | None:
    """The same study with the pair's trained head as draft: the draft and the traces of the profile
    NAME-head. None if the kit has no such profile.
    """
    name = f"{profile.name}-head"
    if name not in profile_names():
        return None
    of_head = load_profile(name)
    return profile.replace(name=name, draft=of_head.draft, drafts=(), traces=of_head.traces)


def _place(folder: Path, name: Any) -> Any:
    """The file or folder with this name in `folder`, else in the working folder, else in the
    repository; of a list, each. A path in the repository is relative to it; others are absolute. A
    name that is not found is unchanged, because it may be a name of the hub or of a prompt set.
    """
    if isinstance(name, list):
        return [_place(folder, one) for one in name]
    if not isinstance(name, str) or name in {"", *SETS}:
        return name
    for root in (folder, Path(), ROOT):
        place = Path(os.path.abspath(root / name))
        if os.path.exists(place):  # False for a text that no file can have as its name
            is_inside = place.is_relative_to(ROOT) and place != ROOT
            return place.relative_to(ROOT).as_posix() if is_inside else str(place)
    return name


def parse_overrides(
    items: Iterable[str], option: str = "--set", texts: Container[str] = TEXTS
) -> Facts:
    """`["gamma=4", "tree=…"]` from an option of the command line as a dict. Values are YAML, but
    those of `texts`, parameters whose value is a text, are taken as they are written, except null.
    """
    values: Facts = {}
    for item in items:
        key, equals, value = item.partition("=")
        name = key.strip()
        word = value.strip()
        is_text = name.rpartition(".")[2] in texts or (name in OPEN and word[:1] not in ("{", "["))
        try:
            if not (name and equals):
                raise ValueError("no name or no =")
            values[name] = value if is_text and word != "null" else parse_yaml(value)
        except ValueError as error:
            raise ValueError(
                f"{option} {item} has no value in YAML ({error}); write KEY=VALUE, as "
                "max_new_tokens=32, and quote what is no YAML"
            ) from None
    return values

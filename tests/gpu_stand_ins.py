"""Stand-ins for psutil and pydantic, where they are not installed: `make gpu-check` shall run on a
machine with torch and transformers alone. Importing this module puts them in place.

Only what the core asks of them while it loads a pair and records. A stand-in checks no parameter:
profiles come from the repository here.
"""

import dataclasses
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


def install() -> list[str]:
    """Put a stand-in in the place of each of the two that is missing; their names."""
    made = []
    for name, build in (("psutil", _psutil), ("pydantic", _pydantic)):
        if name not in sys.modules and find_spec(name) is None:
            sys.modules |= build()
            made.append(name)
    return made


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)  # who looks for it finds it
    vars(module).update(members)
    return module


# ---- psutil: bytes of memory, as Linux tells them ------------------------------------------------


def _kilobytes(file: str, name: str) -> int:
    for line in Path(file).read_text(encoding="ascii").splitlines():
        head, _, value = line.partition(":")
        if head == name:
            return 1024 * int(value.split()[0])
    raise ValueError(f"{file} has no {name}; install psutil")


def _psutil() -> dict[str, ModuleType]:
    def virtual_memory() -> SimpleNamespace:
        return SimpleNamespace(available=_kilobytes("/proc/meminfo", "MemAvailable"))

    class Process:
        def memory_info(self) -> SimpleNamespace:
            return SimpleNamespace(rss=_kilobytes("/proc/self/status", "VmRSS"))

    return {"psutil": _module("psutil", virtual_memory=virtual_memory, Process=Process)}


# ---- pydantic: its dataclasses, unchecked --------------------------------------------------------


def _field(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    kept = {
        name: options[name] for name in ("default_factory", "repr") if name in options
    }
    if default is not dataclasses.MISSING:
        kept["default"] = default
    return dataclasses.field(**kept)


def _dataclass(frozen: bool, config: Any) -> Callable[[type], type]:
    return dataclasses.dataclass(frozen=frozen)


def _unchecked(*fields: str) -> Callable:
    return lambda check: check


def _pydantic() -> dict[str, ModuleType]:
    whole = _module(
        "pydantic",
        ConfigDict=dict,
        Field=_field,
        ValidationError=type("ValidationError", (ValueError,), {}),
        field_validator=_unchecked,
    )
    whole.dataclasses = _module("pydantic.dataclasses", dataclass=_dataclass)
    return {"pydantic": whole, "pydantic.dataclasses": whole.dataclasses}


STAND_INS = install()

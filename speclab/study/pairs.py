"""The pair of a profile: checked by its settings, and both models loaded.

Imports torch only when models are loaded, because keys and recorded runs are read without it.
"""

from typing import TYPE_CHECKING

from speclab.models.folder import GENERATION, ModelFolder
from speclab.models.support import check_spec
from speclab.plain import Facts, brief, say_once
from speclab.study.profiles import MODELS, Profile

if TYPE_CHECKING:
    from speclab.model import Pair


def load_pair(profile: Profile) -> "Pair":
    """Both models of a profile, checked, cut to their shared ids, with the target's tokenizer."""
    from speclab.models.pairs import load_both

    target, draft = check_pair(profile)
    say_left_out(profile.target.path, target.left_out(profile.temperature > 0))
    slots = profile.positions + profile.max_packed_tokens
    return load_both(profile.target, profile.draft, target, draft, slots)


def check_pair(profile: Profile) -> list[ModelFolder]:
    """The folders of both models of a profile, each after `check_spec`; nothing is loaded."""
    return [check_spec(getattr(profile, name), profile.positions, name) for name in MODELS]


def say_left_out(target: str, left_out: Facts) -> None:
    """Print, once, what the kit leaves out of the target's own settings of generation."""
    if left_out:
        values = ", ".join(f"{name}={brief(value)}" for name, value in left_out.items())
        say_once(
            f"{target}: its {GENERATION} asks for {values}, which the kit leaves out; the texts "
            "follow the model's own distribution"
        )

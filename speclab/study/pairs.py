"""The pair of a profile: its digests, how its target reads prompts, and both models loaded.

Imports torch only when models are loaded, because keys and recorded runs are read without it.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from speclab.models.folder import GENERATION, ModelFolder, model_digest
from speclab.plain import EncodedPrompt, Facts, brief, digest_of, say_once
from speclab.study.profiles import MODELS, Profile
from speclab.study.prompts import Prompt, encode_prompts

if TYPE_CHECKING:
    from speclab.model import Pair


def load_pair(profile: Profile) -> "Pair":
    """Both models of a profile, checked, cut to their shared ids, with the target's tokenizer."""
    from speclab.models.pairs import load_both

    folder = ModelFolder.fetched(profile.target, weights=False)
    say_left_out(profile.target.path, folder.left_out(profile.temperature > 0))
    specs = profile.target, profile.draft
    return load_both(*specs, profile.positions, profile.max_packed_tokens)


def say_left_out(target: str, left_out: Facts) -> None:
    """Print, once, what the kit leaves out of the target's own settings of generation."""
    if left_out:
        values = ", ".join(f"{name}={brief(value)}" for name, value in left_out.items())
        say_once(
            f"{target}: its {GENERATION} asks for {values}, which the kit leaves out; the texts "
            "follow the model's own distribution"
        )


def check_pair(profile: Profile) -> None:
    """`check_spec` of both models of a profile."""
    from speclab.models.pairs import check_spec

    for which in MODELS:
        check_spec(getattr(profile, which), profile.positions, which)


def pair_digests(profile: Profile, fetch: bool = True) -> dict[str, str]:
    """`model_digest` of the target and of the draft."""
    return {name: model_digest(getattr(profile, name), fetch) for name in MODELS}


Read = tuple[tuple[EncodedPrompt, ...], Facts]


def read_by_target(profile: Profile, prompts: Sequence[Prompt]) -> Read:
    """Prompts as token ids of the profile's target, whose tokenizer is downloaded if needed, and
    facts: `encoded`, a SHA-256 of their ids, domains and token ids, `stop_ids`, the ids that end
    the target's texts, `prompts_cut`, the number of prompts that are cut, and `left_out`
    (`ModelFolder`).
    """
    folder = ModelFolder.fetched(profile.target, weights=False)
    limits = profile.max_prompt_tokens, profile.template, profile.truncate
    files = sorted([*folder.path.glob("*"), *folder.reader.path.glob("*")])
    stamps = tuple((file, file.stat().st_mtime_ns) for file in files)
    encoded, facts = _read(folder, stamps, tuple(prompts), limits)
    return encoded, facts | {"left_out": folder.left_out(profile.temperature > 0)}


@cache
def _read(
    folder: ModelFolder, _stamps: tuple[Any, ...], prompts: tuple[Prompt, ...], limits: Any
) -> Read:
    """Computed once per process, unless a file of the model's folder changes: reading a tokenizer
    takes a second, and each kind of run asks.
    """
    tokenizer = folder.tokenizer
    stops = sorted(folder.stop_ids(tokenizer), key=str)
    encoded = encode_prompts(tokenizer, prompts, *limits)
    rows = [(prompt.prompt_id, prompt.domain, prompt.ids) for prompt in encoded]
    cut = sum(prompt.cut > 0 for prompt in encoded)
    facts = {"encoded": digest_of(rows), "stop_ids": stops, "prompts_cut": cut}
    return tuple(encoded), facts

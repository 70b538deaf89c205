"""The pair of a profile: its digests, how its target reads prompts, and both models loaded.

Imports torch only when models are loaded, because keys and recorded runs are read without it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from speclab.models.folder import GENERATION, ModelFolder
from speclab.plain import EncodedPrompt, Facts, brief, digest_of, say_once
from speclab.study.profiles import MODELS, Profile
from speclab.study.prompts import Prompt, encode_prompts

if TYPE_CHECKING:
    from speclab.model import Pair


def load_pair(profile: Profile) -> "Pair":
    """Both models of a profile, checked, cut to their shared ids, with the target's tokenizer. It
    prints, once, what the kit leaves out of the target's own settings of generation.
    """
    from speclab.models.pairs import load_both

    folder = ModelFolder.fetched(profile.target, weights=False)
    if left_out := folder.left_out(profile.temperature > 0):
        values = ", ".join(f"{name}={brief(value)}" for name, value in left_out.items())
        say_once(
            f"{profile.target.path}: its {GENERATION} asks for {values}, which the kit leaves out; "
            "the texts follow the model's own distribution"
        )
    specs = profile.target, profile.draft
    return load_both(*specs, profile.positions, profile.max_packed_tokens)


def check_pair(profile: Profile) -> None:
    """`check_spec` of both models of a profile."""
    from speclab.models.pairs import check_spec

    for which in MODELS:
        check_spec(getattr(profile, which), profile.positions, which)


Read = tuple[tuple[EncodedPrompt, ...], Facts]
# what was read, by the model's files and what it was given: reading a tokenizer takes a second, and
# each kind of run asks
KNOWN: dict[Any, Read] = {}


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
    asked = stamps, tuple(prompts), limits
    if asked not in KNOWN:
        tokenizer = folder.tokenizer
        stops = sorted(folder.stop_ids(tokenizer), key=str)
        encoded = tuple(encode_prompts(tokenizer, prompts, *limits))
        rows = [(prompt.prompt_id, prompt.domain, prompt.ids) for prompt in encoded]
        cut = sum(prompt.cut > 0 for prompt in encoded)
        read = {"encoded": digest_of(rows), "stop_ids": stops, "prompts_cut": cut}
        KNOWN[asked] = encoded, read
    encoded, facts = KNOWN[asked]
    return encoded, facts | {"left_out": folder.left_out(profile.temperature > 0)}

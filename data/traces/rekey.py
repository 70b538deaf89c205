"""Give runs of an older kit a key of today: `python -m data.traces.rekey FOLDER …`.

Version 1 of a key held paths, and neither the chat template nor the stop ids. A run may have the
new key only where the models and prompts that it was recorded with are here and give the key that
it has. Of each folder this script checks, before it writes the manifest and nothing else:

1. the old key, computed from the folder's profile and from what is on this machine, is the run's;
2. every text ends as the target's stop ids say: at the first of them, or at the limit;
3. with the models at hand, the first text recorded again gives the rows that the tables have.

Afterwards the tables' checksums must be as before. A folder of data/runs is renamed to its new key.
"""

import hashlib
import json
import re
import sys
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path

import numpy as np

from speclab import runs
from speclab.manifest import KEY_VERSION, TABLES, Manifest
from speclab.models.folder import ModelFolder
from speclab.models.pairs import Pair, load_pair
from speclab.profiles import MODELS, ModelSpec, Profile
from speclab.prompts import prompts_digest
from speclab.record import record_prompt

# what version 1 left out, of the profiles of its time
LEFT_OUT = (
    *("name", "description", "notes", "block_prompts", "max_packed_tokens"),
    *("traces", "recorded", "notebooks"),
)


def old_key(profile: Profile) -> str:
    """The key of version 1."""
    kept = {name: value for name, value in asdict(profile).items() if name not in LEFT_OUT}
    weights = {name: old_digest(getattr(profile, name)) for name in MODELS}
    prompts = prompts_digest(runs.profile_prompts(profile))
    text = json.dumps([1, kept, weights, prompts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def old_digest(spec: ModelSpec) -> str:
    """The digest of a model's weights, configuration and tokenizer in version 1."""
    folder = ModelFolder.fetched(spec).path
    if re.fullmatch(r"[0-9a-f]{40}", folder.name):
        return folder.name
    source = folder / "source.json"
    digests = {}
    if source.is_file():
        promised = json.loads(source.read_bytes())["weights"]
        digests = {name: made["sha256"] for name, made in promised.items()}
    settings = [folder / "config.json", folder / "tokenizer.json"]
    for file in [*folder.glob("*.safetensors"), *settings]:
        if file.is_file():
            digests[file.name] = runs.sha256_of(file)
    inner = "".join(digests[name] for name in sorted(digests))
    return hashlib.sha256(bytes.fromhex(inner)).hexdigest()[:40]


def profile_of(settings: dict) -> Profile:
    """The profile of a manifest, as this kit has it."""
    known = {field.name for field in fields(Profile)}
    values = {name: value for name, value in settings.items() if name in known}
    models = {name: ModelSpec(**settings[name]) for name in MODELS}
    return Profile(**values | models)


def check_ends(texts: dict, stop_ids: list[int], limit: int) -> None:
    """ValueError for a text that goes on behind a stop id, or ends without one before the limit."""
    for prompt, text in texts.items():
        stops = [place for place, token in enumerate(text) if token in stop_ids]
        if (stops or [limit - 1])[0] != len(text) - 1:
            raise ValueError(f"{prompt}: its text does not end as the stop ids {stop_ids} say")


@cache
def pair_of(target: ModelSpec, draft: ModelSpec, longest: int) -> Pair:
    """Both models, loaded once for all folders of a pair."""
    return load_pair(Profile("rekey", target, draft, max_new_tokens=longest))


def check_first(run: runs.Run, profile: Profile) -> bool:
    """Whether the weights are here; ValueError where the first text, recorded again, is another."""
    specs = profile.target, profile.draft
    if not all(ModelFolder.fetched(spec).tensors for spec in specs):
        return False
    (prompt, *_) = runs.read_by_target(profile, runs.profile_prompts(profile)).prompts
    text = runs.texts_of(run)[prompt.prompt_id]
    sampling = profile.sampling
    pair = pair_of(*specs, profile.max_new_tokens)
    found = record_prompt(pair, prompt, text, profile.tree, sampling).trace
    rows = run.trace[run.trace["prompt_id"] == prompt.prompt_id]
    for name in ("token", "draft_rank", "p_token", "q_token", "overlap"):
        if not np.allclose(found[name], rows[name], atol=1e-4):
            raise ValueError(f"{prompt.prompt_id}: recorded again, {name} is another")
    return True


def rekey(folder: Path) -> str:
    """Check a run and write its manifest with its new key; what was done, in a line. ValueError for
    a run whose key cannot be told.
    """
    path = folder / "manifest.json"
    old = runs.read_facts(path, runs.MEND)
    if old.get("key_version") == KEY_VERSION:
        return f"{folder}: has a key of today"
    profile = profile_of(old["profile"])
    if old_key(profile) != old["key"]:
        raise ValueError(f"{folder}: models, prompts or settings are not here as it was recorded")
    prompts = runs.profile_prompts(profile)
    identity = runs.identity_of(profile, prompts)
    known = {name: old[name] for name in Manifest.__dataclass_fields__ if name in old}
    facts = known | identity
    run = runs.Run(folder, facts)
    check_ends(runs.texts_of(run), facts["stop_ids"], profile.max_new_tokens)
    again = check_first(run, profile)
    assert len(run.nodes) == facts["rows"]["nodes"]
    del facts["files"]
    runs.write_facts(path, facts, [folder / name for name in TABLES])
    written = runs.load_run(folder)
    assert written.manifest["files"] == old["files"], "the tables are as they were"
    card = folder / "README.md"
    if card.is_file():
        text = card.read_text(encoding="utf-8")
        for name in MODELS:
            text = text.replace(old["weights"][name], facts["weights"][name])
        card.write_text(text.replace(old["key"], facts["key"]), encoding="utf-8")
    if folder.name.endswith(old["key"]):
        folder.rename(folder.with_name(folder.name.replace(old["key"], facts["key"])))
    proof = "its first text recorded again" if again else "no weights here to record a text again"
    return f"{folder}: {old['key']} is now {facts['key']} ({proof})"


def main(folders: list[str]) -> int:
    """Exit status 1 where a folder kept its key."""
    failed = 0
    for name in folders:
        try:
            print(rekey(Path(name)))
        except (ValueError, RuntimeError) as error:
            failed = 1
            print(f"{error}; it keeps its key", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

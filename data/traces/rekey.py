"""Give runs of an older kit a current key: `python -m data.traces.rekey FOLDER …`.

Version 1 of the key contained paths, but neither the chat template nor the stop ids. A run may get
the new key only if its models and prompts are on this machine and reproduce its old key. For each
folder the script makes these checks, then writes only the manifest:

1. the old key, computed from the folder's profile and from the files on this machine, matches;
2. every text ends at the first of the target's stop ids, or at the length limit;
3. if the models are present, recording the first text again gives the same rows.

Afterwards the checksums of the tables must be unchanged. A folder in data/runs is renamed to its
new key.
"""

import hashlib
import json
import re
import sys
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path

import numpy as np

from speclab.models.folder import ModelFolder
from speclab.models.pairs import Pair, load_pair
from speclab.record import record_prompt
from speclab.study import runs
from speclab.study.manifest import KEY_VERSION, TABLES, Manifest
from speclab.study.profiles import MODELS, ModelSpec, Profile
from speclab.study.prompts import prompts_digest

# fields of a profile that version 1 did not include
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
    """The profile of a manifest, as a current `Profile`."""
    known = {field.name for field in fields(Profile)}
    values = {name: value for name, value in settings.items() if name in known}
    models = {name: ModelSpec(**settings[name]) for name in MODELS}
    return Profile(**values | models)


def check_ends(texts: dict, stop_ids: list[int], limit: int) -> None:
    """Raise ValueError for a text that continues after a stop id, or ends early without one."""
    for prompt, text in texts.items():
        stops = [place for place, token in enumerate(text) if token in stop_ids]
        if (stops or [limit - 1])[0] != len(text) - 1:
            raise ValueError(f"{prompt}: its text does not end at a stop id ({stop_ids})")


@cache
def pair_of(target: ModelSpec, draft: ModelSpec, longest: int) -> Pair:
    """Both models, loaded once for all folders of a pair."""
    return load_pair(Profile("rekey", target, draft, max_new_tokens=longest))


def check_first(run: runs.Run, profile: Profile) -> bool:
    """True if the weights are present and the first text is recorded again with the same rows;
    False without weights. Raises ValueError if the rows differ.
    """
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
            raise ValueError(f"{prompt.prompt_id}: recorded again, {name} differs")
    return True


def rekey(folder: Path) -> str:
    """Check a run and write its manifest with the new key. Returns one line about the result.
    Raises ValueError if a check fails.
    """
    path = folder / "manifest.json"
    old = runs.read_facts(path, runs.MEND)
    if old.get("key_version") == KEY_VERSION:
        return f"{folder}: its key is current"
    profile = profile_of(old["profile"])
    if old_key(profile) != old["key"]:
        raise ValueError(
            f"{folder}: the models, prompts or settings of its recording are not on this machine"
        )
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
    assert written.manifest["files"] == old["files"], "the tables have changed"
    card = folder / "README.md"
    if card.is_file():
        text = card.read_text(encoding="utf-8")
        for name in MODELS:
            text = text.replace(old["weights"][name], facts["weights"][name])
        card.write_text(text.replace(old["key"], facts["key"]), encoding="utf-8")
    if folder.name.endswith(old["key"]):
        folder.rename(folder.with_name(folder.name.replace(old["key"], facts["key"])))
    proof = "first text recorded again" if again else "not recorded again: the weights are missing"
    return f"{folder}: {old['key']} is now {facts['key']} ({proof})"


def main(folders: list[str]) -> int:
    """Re-key all folders. Returns exit status 1 if a folder kept its old key."""
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

"""A model's folder: where it is, what it holds, and how its model reads prompts.

Imports neither torch nor transformers before a tokenizer is needed, because keys and recorded runs
are read without loading a model.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speclab.models import hub
from speclab.models.hub import EVERYTHING, INDEX, MEND, OF_GPTQ, READING, SINGLE, ModelsMissing
from speclab.place import ROOT, folder_of
from speclab.plain import Facts, ModelSpec, digest_of, one_line, read_json, sha256_of

# in a model's config.json; the first two are relative to its folder
PATHS = ("embedding_of", "tokenizer_of", "_name_or_path")
OF_HEAD = "transformer_layer_config"  # in a trained head's config.json: the settings of its layers
GENERATION = "generation_config.json"
AGAIN = "take it from the repository again (git checkout)"  # a damaged source.json
COMMIT = r"[0-9a-f]{40}"
ADAPTER = "adapter_config.json"
# settings of a model's own generation that change no text, that the kit reads, or that the profile
# decides: end and padding, sampling, lengths, cache, outputs, drafts, beams (but for `num_beams`)
OBEYED = (
    r"(eos|pad|bos|decoder_start)_token_id|do_sample|temperature|top_[kp]|min_p|max_.*|use_cache"
    r"|cache_.*|.*compile.*|prefill_chunk_size|low_memory|continuous_batching_config|output_.*"
    r"|return_dict_in_generate|num_return_sequences|.*assistant.*|prompt_lookup_.*"
    r"|target_lookbehind"
    r"|use_mtp|speculation_type|early_stopping|length_penalty|num_beam_groups|diversity_penalty"
    r"|renormalize_logits|remove_invalid_values|transformers_version|_.*"
)
OF_SAMPLING = r"top_h|typical_p|epsilon_cutoff|eta_cutoff"  # they change no greedy text
# without effect at 1; all others are without effect at 0, false, null or an empty list
OFF_AT_1 = (
    *("repetition_penalty", "encoder_repetition_penalty", "typical_p"),
    *("num_beams", "guidance_scale"),
)


@dataclass(frozen=True)
class ModelFolder:
    """A folder in Hugging Face's layout, with weights in safetensors. Its config.json is read once.
    ValueError, in one line with the file's name, for a damaged file.
    """

    path: Path

    # ---- where it is

    @classmethod
    def local(cls, spec: ModelSpec) -> "ModelFolder | None":
        """The folder of a model that is on this machine without the hub: as named, relative to the
        repository, or under SPECLAB_MODELS; a folder with weights is preferred.
        """
        attached = folder_of("SPECLAB_MODELS") or ROOT
        places = [Path(root) / spec.path for root in (".", ROOT, attached)]
        folders = [cls(place) for place in places if (place / "config.json").is_file()]
        return max(folders, key=lambda folder: bool(folder.tensors), default=None)

    @classmethod
    def here(cls, spec: ModelSpec) -> "ModelFolder | None":
        """Where a model is on this machine, the hub's cache included, complete or in part; None if
        nowhere. Downloads nothing.
        """
        if folder := cls.local(spec):
            return folder
        from huggingface_hub import errors, snapshot_download

        try:
            place: Any = snapshot_download(spec.path, revision=spec.revision, local_files_only=True)
        except (errors.LocalEntryNotFoundError, errors.HFValidationError) as error:
            place = getattr(error, "snapshot_path", None)  # some files are missing, as README.md
        return cls(Path(place)) if place else None

    @classmethod
    def whole(cls, spec: ModelSpec) -> "ModelFolder | None":
        """Where a model is on this machine with all its weights, or with the source of them."""
        folder = cls.here(spec)
        return folder if folder and folder.has_weights else None

    @classmethod
    def fetched(cls, spec: ModelSpec, patterns: Sequence[str] = READING) -> "ModelFolder":
        """The folder of a model. If it is not on this machine, the files of these patterns are
        downloaded from the hub, with a progress bar: settings and tokenizer, or EVERYTHING.
        ModelsMissing if that fails.
        """
        if folder := cls.local(spec) or cls.whole(spec):
            return folder
        return cls(Path(hub.download(spec, patterns, tqdm_class=tqdm)))

    # ---- what it holds

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its config.json."""
        return read_json(self.path / "config.json", MEND)

    @cached_property
    def text(self) -> Any:
        """The settings of its text network as transformers reads them, with their defaults."""
        from transformers import AutoConfig

        with self.used():
            config = AutoConfig.from_pretrained(self.path, trust_remote_code=False)
            return config.get_text_config()

    @property
    def _named(self) -> list[Path]:
        """The files of its weights, whether they are there or not, as transformers chooses them:
        what its config.json names, else a single file, else those of the index.
        """
        named = self.config.get("transformers_weights")
        single = self.path / str(named or SINGLE)
        index = single if single.suffix == ".json" else self.path / INDEX
        if index != single and (named or single.is_file() or not index.is_file()):
            return [*self.path.glob(OF_GPTQ), single][:1]
        names = read_json(index, MEND).get("weight_map")
        if not isinstance(names, dict):
            raise ValueError(f"{index} does not name the files of the weights; {MEND}")
        return sorted({self.path / str(name) for name in names.values()})

    @property
    def tensors(self) -> list[Path]:
        """The files of its weights that are there (a download may have stopped)."""
        return [file for file in self._named if file.is_file()]

    @property
    def files(self) -> list[Path]:
        """All files of its weights. ValueError if one is missing (pickled weights are refused).

        ModelsMissing if the folder has a source.json, from which `make pair` makes the weights.
        """
        missing = [file.name for file in self._named if not file.is_file()]
        if missing and self.source.is_file():
            pair = self.path.parent.name
            raise ModelsMissing(
                f"{self.path} has no weights yet; `make pair PROFILE={pair}` makes them"
            )
        if missing:
            raise ValueError(
                f"{self.path} has no {missing[0]} (pickled weights are refused). Download or train "
                "the weights again"
            )
        return self._named

    @property
    def has_weights(self) -> bool:
        """Whether all files of its weights are there, or their source.json."""
        return self.source.is_file() or self.tensors == self._named

    @property
    def shapes(self) -> dict[str, list[int]]:
        """The shape of each tensor of its weights, by name. ValueError as in `files`, and for a
        damaged file.
        """
        shapes: dict[str, list[int]] = {}
        for file in self.files:
            shapes |= tensor_shapes(file)
        return shapes

    @property
    def source(self) -> Path:
        """The file that says how its weights are made, if they are made on this machine."""
        return self.path / "source.json"

    @property
    def recipe(self) -> Facts:
        """What its source.json says. Its `weights` hold bytes and SHA-256 by the file's name; empty
        if they are not made on this machine. ValueError for a damaged file.
        """
        if not self.source.is_file():
            return {"weights": {}}
        return read_json(self.source, AGAIN)

    @property
    def quantised(self) -> bool:
        """Whether its weights are packed by GPTQ."""
        return bool(self.config.get("quantization_config"))

    @property
    def trimmed(self) -> bool:
        """Whether it is a draft with a trimmed vocabulary (`trimmed`)."""
        return "kept_tokens" in self.config

    @property
    def is_head(self) -> bool:
        """Whether it is a trained head in the format of speculators (`head`)."""
        return "speculators_model_type" in self.config

    @property
    def base(self) -> "ModelFolder | None":
        """The model whose embedding (and tokenizer) a draft uses; None if it has its own."""
        return self._beside("embedding_of")

    @property
    def reader(self) -> "ModelFolder":
        """The folder with its tokenizer: this one, or the folder that its config.json names."""
        return self._beside("tokenizer_of") or self.base or self

    def _beside(self, entry: str) -> "ModelFolder | None":
        named = self.config.get(entry)
        return ModelFolder((self.path / named).resolve()) if named else None

    @property
    def bytes(self) -> int:
        """Size of its weights. ValueError as in `files`."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def digest(self) -> str:
        """A hash of its weights, configuration and tokenizer, whatever its path: 40 hex digits. For
        weights that are not made yet it uses the hash in source.json. For a draft that uses another
        model's embedding it includes that model.
        """
        digests = {name: made["sha256"] for name, made in self.recipe["weights"].items()}
        for file in [*self.tensors, self.path / "tokenizer.json"]:
            if file.is_file():
                digests[file.name] = _file_digest(file, file.stat().st_mtime_ns)
        # where its config.json names paths, the hash is of all other settings
        others = {name: value for name, value in self.config.items() if name not in PATHS}
        digest = digest_of(others)
        if others == self.config:
            digest = sha256_of(self.path / "config.json")
        digests["config.json"] = digest
        if self.base:
            digests["base"] = self.base.digest
        inner = "".join(digests[name] for name in sorted(digests))
        return hashlib.sha256(bytes.fromhex(inner)).hexdigest()[:40]

    def with_weights(self, spec: ModelSpec) -> "ModelFolder":
        """The folder with its weights, downloaded if needed. ValueError as in `shapes`."""
        folder = self if self.has_weights else ModelFolder.fetched(spec, EVERYTHING)
        folder.check()
        return folder

    def check(self) -> None:
        """ValueError for damaged or missing weights, in this folder and in `base`, and for an
        adapter.
        """
        if (self.path / ADAPTER).is_file():
            raise ValueError(
                f"{self.path} holds an adapter ({ADAPTER}), and the kit applies none; merge it "
                "into the weights, or remove its files"
            )
        _ = self.shapes
        if self.base:
            self.base.check()

    def refuse(self, wrong: Iterable[str]) -> None:
        """ValueError that names wrong tensors of its weights, if there are any."""
        if names := sorted(wrong):
            raise ValueError(
                f"{self.path}: {len(names)} weights are missing, have another shape, or belong to "
                f"no layer of config.json, as {names[:2]}; {MEND}, or use another model"
            )

    # ---- how its model reads

    @property
    def stamps(self) -> tuple[tuple[Path, int], ...]:
        """Its files and those of its `reader`, with the times of their last change."""
        files = sorted({*self.path.glob("*"), *self.reader.path.glob("*")})
        return tuple((file, file.stat().st_mtime_ns) for file in files)

    @property
    def tokenizer(self) -> Any:
        """Its tokenizer, or that of the folder that config.json names for it; read once unless a
        file changes. ValueError if this folder is not there.
        """
        if not self.reader.path.is_dir():
            raise ValueError(
                f"{self.path / 'config.json'} says that its tokenizer is in {self.reader.path}, "
                "which is not there; copy that folder too, or put the tokenizer's files beside "
                "config.json and remove the entry"
            )
        with self.reader.used():
            return _tokenizer(self.reader.path, self.stamps)

    @property
    def generation(self) -> Facts:
        """The settings of its own generation; {} if it has none."""
        file = self.path / GENERATION
        return read_json(file, MEND) if file.is_file() else {}

    def stop_ids(self, tokenizer: Any) -> frozenset[int]:
        """The ids that end its texts: from its generation_config.json (else its config.json), and
        the tokenizer's end of text.
        """
        return all_stops(self.generation.get("eos_token_id", self.text.eos_token_id), tokenizer)

    def left_out(self, sampled: bool) -> dict[str, Any]:
        """The settings in its generation_config.json that would change its texts and that the kit
        does not obey, as a repetition penalty. sampled: whether the texts are sampled.
        """
        obeyed = OBEYED if sampled else f"{OBEYED}|{OF_SAMPLING}"
        left = {}
        for name, value in self.generation.items():
            is_off = not value or (value == 1 and name in OFF_AT_1)
            if not is_off and not re.fullmatch(obeyed, name):
                left[name] = value
        return left

    @contextmanager
    def used(self) -> Iterator[None]:
        """Turn any error of a library about its files into a ValueError of one line that names
        the folder.
        """
        try:
            yield
        except Exception as error:
            check_torchvision()
            is_module = isinstance(error, ImportError) and error.name  # `main` says what to do
            if type(error).__name__ == "OutOfMemoryError" or is_module:
                raise
            said = one_line(f"{type(error).__name__}: {error}")
            raise ValueError(
                f"{self.path}: its files cannot be used ({said[:300]}); if one is damaged, "
                f"{MEND}; else run `pip check`, or use another dtype, backend or model"
            ) from error


def all_stops(named: int | list[int] | None, tokenizer: Any) -> frozenset[int]:
    """The ids that a model names as ends of its texts, and its tokenizer's end of text."""
    several = named if isinstance(named, list) else [named]
    return frozenset([tokenizer.eos_token_id, *several]) - {None}


@cache
def _tokenizer(path: Path, _stamps: tuple) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, trust_remote_code=False)


def check_torchvision() -> None:
    """ValueError for an installed torchvision that does not fit torch. transformers imports it with
    every model, and then fails for all models. speclab itself does not need it.
    """
    try:
        import torchvision  # noqa: F401
    except ModuleNotFoundError:
        return
    except Exception as error:
        raise ValueError(
            f"torchvision does not fit torch ({error}), so transformers can import no model; run "
            "`pip uninstall torchvision`, or install the release for this torch"
        ) from None


def tensor_shapes(file: Path, do: str = MEND) -> dict[str, list[int]]:
    """The shape of each tensor of a safetensors file, by name. ValueError for a damaged file, whose
    header states its length.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np") as tensors:
            names = tensors.keys()
            return {name: tensors.get_slice(name).get_shape() for name in names}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is damaged or cut ({one_line(error)}); {do}") from None


# ---- the name of weights ------------------------------------------------------------------------


@cache
def _file_digest(file: Path, mtime_ns: int) -> str:
    """SHA-256 of a file, read once per process unless the file changes (4 GB take 10 s, and a key
    is needed several times). The hub's cache names large files by it.
    """
    stored = file.resolve()
    if stored.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{64}", stored.name):
        return stored.name
    return sha256_of(file)


def model_digest(spec: ModelSpec, fetch: bool = True) -> str:
    """The name of a model's weights: the digest of its folder, or, for a commit of the hub that is
    not on this machine, the commit (without a download).

    fetch: False gives "" for a model that is not on this machine and has no commit.
    """
    folder, revision = ModelFolder.whole(spec), spec.revision or ""
    if folder is None and re.fullmatch(COMMIT, revision):
        return revision
    if folder is None and not fetch:
        return ""
    return (folder or ModelFolder.fetched(spec, EVERYTHING)).digest

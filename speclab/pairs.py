"""Loading a pair: the only module that knows transformers and GPTQModel.

Every check fails with what to do about it.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from speclab.lean import LeanBody, knows
from speclab.model import LanguageModel
from speclab.profiles import ROOT, ModelSpec, Profile

os.environ.setdefault(
    "GPTQMODEL_CPU_WORKERS", "2"
)  # its pool asks for two workers also where there is one core
WEIGHTS = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]
NO_CACHE = "{name}: rejected tokens must be taken back from a key/value cache, and {why}; use a model of attention layers with such a cache"
PROBE = (5, 9, 7)  # token ids of the load-time probe: one root, two siblings


@dataclass(frozen=True)
class Pair:
    """A target and a draft over one vocabulary.

    `stop_ids` end a continuation; `facts` go into manifests.
    """

    target: LanguageModel
    draft: LanguageModel
    tokenizer: Any
    stop_ids: frozenset[int]
    facts: dict

    @property
    def vocab(self) -> int:
        """Ids both models share."""
        return self.target.vocab

    @property
    def is_exact(self) -> bool:
        """True where a token scores the same in every pass shape: float32 on the CPU. Elsewhere a
        pass of another shape rounds otherwise, and a near tie may fall the other way.
        """
        models = (self.target, self.draft)
        return all(m.dtype == torch.float32 and str(m.device) == "cpu" for m in models)


def model_folder(spec: ModelSpec) -> Path:
    """The local folder of a model: as named, relative to the repository, under SPECLAB_MODELS, or
    fetched from the hub.
    """
    attached = os.environ.get("SPECLAB_MODELS")
    places = [Path(spec.path), ROOT / spec.path] + (
        [Path(attached) / spec.path] if attached else []
    )
    for place in places:
        if (place / "config.json").is_file():
            return place
    if spec.path.count("/") != 1 or any(place.is_dir() for place in places):
        raise ValueError(
            f"model {spec.path!r}: no config.json in {', '.join(map(str, places))}; for the tiny pair run `make tiny-pair DATA=…`"
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(spec.path, revision=spec.revision, allow_patterns=WEIGHTS))
    except Exception as error:
        raise ValueError(
            f"model {spec.path!r} (revision {spec.revision}) is neither a folder nor to be had from the hub: "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}. "
            "Without a network put it under a folder and set SPECLAB_MODELS to that folder"
        ) from error


def weight_files(folder: Path) -> list[Path]:
    """The safetensors of a model; an error when there are none (pickled weights are refused)."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(
            f"{folder}: no *.safetensors (only these are loaded; pickled weights are refused). Missing weights: download or train again"
        )
    return files


def _device(spec: ModelSpec) -> torch.device:
    if spec.device == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    device = torch.device(spec.device)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device={spec.device!r}: this machine has {torch.cuda.device_count()} GPUs; name another or device=auto"
        )
    return device


def _dtype(spec: ModelSpec, device: torch.device) -> torch.dtype:
    if spec.dtype != "auto":
        return getattr(torch, spec.dtype)
    return torch.float32 if device.type == "cpu" else torch.float16


def free_bytes(device: torch.device) -> int:
    """Bytes that tensors may still take: what is free, and on a GPU also what PyTorch keeps of
    tensors that are gone.
    """
    if device.type == "cpu":
        return psutil.virtual_memory().available
    return (
        torch.cuda.mem_get_info(device)[0]
        + torch.cuda.memory_reserved(device)
        - torch.cuda.memory_allocated(device)
    )


def check_memory(folder: Path, device: torch.device, dtype: torch.dtype, quantised: bool) -> int:
    """Bytes the weights will take; an error when the device has fewer free."""
    stored = sum(f.stat().st_size for f in weight_files(folder))
    need = int(stored * (1 if quantised else dtype.itemsize / 2) * 1.1)
    free = free_bytes(device)
    if need > free:
        raise ValueError(
            f"{folder.name}: about {need / 1e9:.2f} GB are needed on {device}, {free / 1e9:.2f} GB are free; "
            "use a smaller pair, 4 bit, or another device"
        )
    return need


def _check_window(config: Any, context: int) -> None:
    window = (
        getattr(config, "sliding_window", None)
        if getattr(config, "use_sliding_window", True)
        else None
    )
    if window is not None and window < context:
        raise ValueError(
            f"sliding_window={window} is shorter than the context of {context} tokens: tree masks would be wrong; shorten the prompts"
        )
    limit = getattr(config, "max_position_embeddings", None)
    if limit is not None and limit < context:
        raise ValueError(
            f"the model takes {limit} positions, {context} are asked for; lower max_prompt_tokens or max_new_tokens"
        )


def _kernel(network: Any) -> str:
    """Class of the quantised layers, or of the plain ones."""
    names = {type(m).__name__ for m in network.modules() if "Linear" in type(m).__name__}
    return "+".join(sorted(n for n in names if n != "Linear") or sorted(names))


def _load_network(
    folder: Path, spec: ModelSpec, device: torch.device, dtype: torch.dtype
) -> tuple[Any, bool]:
    config = json.loads((folder / "config.json").read_text())
    quantised = "quantization_config" in config or (folder / "quantize_config.json").is_file()
    check_memory(folder, device, dtype, quantised)
    if quantised:
        from gptqmodel import BACKEND, GPTQModel

        chosen = BACKEND.AUTO if spec.backend == "auto" else BACKEND(f"gptq_{spec.backend}")
        return GPTQModel.load(
            str(folder), device=str(device), backend=chosen, dtype=dtype, trust_remote_code=False
        ).model, True
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        network, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, attn_implementation="sdpa",
            # looked at below: without it the error does not name the weight
            output_loading_info=True, ignore_mismatched_sizes=True,
        )  # fmt: skip
    except ValueError as error:
        if "attention implementation" in str(error):  # no attention at all, or one without masks
            raise ValueError(
                NO_CACHE.format(name=folder.name, why="it has no scaled dot-product attention")
            ) from error
        raise
    _check_weights(folder, info)
    return network.to(device), False


def _check_weights(folder: Path, info: dict) -> None:
    """An error for weights that the file lacks, or has in another shape: transformers would draw
    them at random and go on.
    """
    if any(name.endswith("qweight") for name in info["unexpected_keys"]):
        raise ValueError(
            f"{folder}: GPTQ weights, but no quantization_config in config.json and no quantize_config.json; "
            "fetch the model's folder whole, with all its .json files"
        )
    lost = sorted(info["missing_keys"]) + sorted(str(entry[0]) for entry in info["mismatched_keys"])
    if lost:
        raise ValueError(
            f"{folder}: {len(lost)} weights are missing or of another shape, as {lost[:2]}; fetch the model again, whole"
        )


def load_model(spec: ModelSpec, context: int = 0) -> LanguageModel:
    """A LanguageModel with its full vocabulary; `context` is the longest prompt plus continuation
    it must take.
    """
    folder, device = model_folder(spec), _device(spec)
    weight_files(folder)
    dtype = _dtype(spec, device)
    network, quantised = _load_network(folder, spec, device, dtype)
    _check_window(network.config, context)
    network.eval().requires_grad_(False)
    head = network.get_output_embeddings()
    model = LanguageModel(
        LeanBody(network) if knows(network) else network.base_model,
        head,
        head.out_features,
        dtype,
        device,
        _kernel(network),
    )
    model.network, model.folder, model.quantised = network, folder, quantised
    _probe(model, spec.path)
    return model


@torch.inference_mode()
def _probe(model: LanguageModel, name: str) -> None:
    """The cache must hold every layer's state; a packed tree must score as its paths do; body and
    head as the whole network does.
    """
    root, left, right = PROBE
    paths = torch.stack(
        [
            model.network(input_ids=torch.tensor([[root, t]], device=model.device))
            .logits[0, -1]
            .float()
            for t in (left, right)
        ]
    )
    visible = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
    cache = model.cache()
    try:
        hidden = model.forward(torch.tensor([PROBE]), cache, torch.tensor([0, 1, 1]), visible)
    except (
        TypeError,
        AttributeError,
        NotImplementedError,
    ) as error:  # it asks our cache for what a plain one does not have
        raise ValueError(
            NO_CACHE.format(
                name=name, why=f"it does not run over ours ({type(error).__name__}: {error})"
            )
        ) from error
    if len(cache.layers) != model.network.config.num_hidden_layers:
        why = f"only {len(cache.layers)} of its {model.network.config.num_hidden_layers} layers write to ours"
        raise ValueError(NO_CACHE.format(name=name, why=why))
    packed = model.head(hidden)[0, 1:].float()
    gap, scale = (packed - paths).abs().max().item(), paths.abs().max().item()
    if not gap <= (1e-3 if model.dtype == torch.float32 else 0.05) * max(scale, 1.0):
        raise ValueError(
            f"{name}: a packed tree and its paths differ by {gap:.3g} at logit scale {scale:.3g}: "
            "this architecture does not take 4-D masks, and cannot be used here"
        )


def check_vocabularies(target: Any, draft: Any, sizes: tuple[int, int]) -> int:
    """Number of ids both models share; an error unless the tokenizers agree on every one of them."""
    shared, (left, right) = min(sizes), (t.get_vocab() for t in (target, draft))
    wrong = sorted(
        token
        for token in left.keys() | right.keys()
        if left.get(token, shared) < shared or right.get(token, shared) < shared
        if left.get(token) != right.get(token)
    )
    if wrong:
        raise ValueError(
            f"target and draft have different vocabularies: {len(wrong)} tokens differ, as {wrong[:3]}. "
            "Speculative decoding needs one vocabulary: use a draft of the target's family"
        )
    return shared


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def load_pair(profile: Profile) -> Pair:
    """Both models of a profile, checked, cut to their shared ids, with the target's tokenizer."""
    context = profile.max_prompt_tokens + profile.max_new_tokens + profile.depth
    target, draft = (load_model(spec, context) for spec in (profile.target, profile.draft))
    tokenizers = [load_tokenizer(m.folder) for m in (target, draft)]
    shared = check_vocabularies(*tokenizers, (target.vocab, draft.vocab))
    target.vocab = draft.vocab = shared
    stops = getattr(target.network.generation_config, "eos_token_id", None)
    stops = {tokenizers[0].eos_token_id} | set(stops if isinstance(stops, list) else [stops])
    facts = {
        name: model_facts(spec, m)
        for name, spec, m in (("target", profile.target, target), ("draft", profile.draft, draft))
    }
    return Pair(
        target,
        draft,
        tokenizers[0],
        frozenset(s for s in stops if s is not None),
        facts | {"shared_vocabulary": shared},
    )


def parameter_count(network: Any) -> int:
    """Parameters as if unquantised: packed layers count their inputs times outputs."""
    plain = sum(p.numel() for p in network.parameters())
    packed = [m for m in network.modules() if hasattr(m, "qweight")]
    return plain + sum(m.in_features * m.out_features for m in packed)


def model_facts(spec: ModelSpec, model: LanguageModel) -> dict:
    """What a manifest says of a model."""
    return {
        "path": spec.path,
        "revision": spec.revision,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "kernel": model.kernel,
        "quantised": model.quantised,
        "parameters": parameter_count(model.network),
        "weight_bytes": sum(f.stat().st_size for f in weight_files(model.folder)),
        "architecture": type(model.network).__name__,
        "layers": model.network.config.num_hidden_layers,
        "width": model.network.config.hidden_size,
        "heads": model.network.config.num_attention_heads,
    }

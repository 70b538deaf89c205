"""Load a pair, with transformers or GPTQModel, as the kit's `LanguageModel`s.

Every failed check says what to do.
"""

import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from torch import Tensor

from speclab.models import head, trimmed
from speclab.models.folder import ModelFolder, left_out_in_words
from speclab.models.lean import LeanBody, knows
from speclab.models.model import (
    MKL,
    WINDOW,
    LanguageModel,
    Projection,
    limits,
    send_few_rows,
    take_fastest,
)
from speclab.models.support import check_positions, check_usable
from speclab.plain import say_once
from speclab.study.profiles import MODELS, ModelSpec, Profile

# GPTQModel's pool needs two workers even with one core
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")
# allowed difference between a packed tree and its paths, as a share of the largest logit, by the
# number format of the products (measured on both pairs in bfloat16: up to 0.03; with a wrong mask,
# in all formats: 0.18 and more)
ROUNDING = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.1}
SCALE = 64  # the largest logit at which the output is compared: soft caps are 15 to 50
PACKED = 2048  # tokens that a pass adds at most, unless a profile says otherwise


@dataclass(frozen=True)
class Pair:
    """A target and a draft with one vocabulary.

    `stop_ids` end a continuation; `facts` go into manifests. ValueError for a network that
    `check_model` refuses; a model that is loaded was checked before.
    """

    target: LanguageModel
    draft: LanguageModel
    tokenizer: Any
    stop_ids: frozenset[int]
    facts: dict

    def __post_init__(self) -> None:
        for model in (self.target, self.draft):
            if model.network is None and isinstance(model.body, torch.nn.Module):
                raise ValueError(
                    "a model without its whole network cannot be checked against it; build it with "
                    "pairs.model_of(network)"
                )
            if model.network is not None and not model.checked:
                check_model(model)

    @property
    def vocab(self) -> int:
        """Ids both models share."""
        return self.target.vocab

    @property
    def is_exact(self) -> bool:
        """True for plain weights on the CPU in float32, where passes of different shapes differ in
        the last digits only. Elsewhere rounding can decide a near tie the other way.
        """
        models = (self.target, self.draft)
        plain = all(m.dtype == torch.float32 and not m.quantised for m in models)
        return plain and all(m.device.type == "cpu" for m in models)


def load_pair(profile: Profile) -> Pair:
    """Both models of a profile, checked, cut to their shared ids, with the target's tokenizer."""
    check_pair(profile)  # both before either is loaded
    context, packed = profile.positions, profile.max_packed_tokens
    target = load_model(profile.target, context, packed)
    tokenizer = target.folder.tokenizer
    stops = target.folder.stop_ids(tokenizer)
    if ModelFolder.fetched(profile.draft).is_head:
        dtype = getattr(torch, profile.draft.dtype_on(target.device.type))
        draft: LanguageModel = head.load_head(profile.draft, target, dtype)
        shared = target.vocab  # a head has the target's tokens, and no tokenizer
    else:
        draft = load_model(profile.draft, context, packed)
        sizes = target.vocab, draft.vocab
        shared = check_vocabularies(tokenizer, draft.folder.tokenizer, sizes)
    _check_stops(target.folder, stops, shared)
    if line := left_out_in_words(profile):
        say_once(line)
    target.vocab = draft.vocab = shared
    facts = {
        "target": model_facts(profile.target, target),
        "draft": model_facts(profile.draft, draft),
        "shared_vocabulary": shared,
    }
    if draft.folder.trimmed:
        trimmed.check_kept(draft.folder, draft.head.kept, shared)
    return Pair(target, draft, tokenizer, stops, facts)


def check_pair(profile: Profile) -> None:
    """`check_spec` of both models of a profile."""
    for which in MODELS:
        spec = getattr(profile, which)
        check_spec(spec, profile.positions, profile.max_packed_tokens, which)


def check_spec(
    spec: ModelSpec, context: int = 0, packed: int = PACKED, which: str = "model"
) -> None:
    """ValueError if the config.json of a model says that it cannot be used, or not for texts of
    `context` tokens and passes that add `packed` tokens. Reads and downloads no weights.
    """
    folder = ModelFolder.fetched(spec, weights=False)
    try:
        check_usable(folder.stated, context, packed)
    except ValueError as error:
        raise ValueError(f"{which} {spec.path}: {error}") from None


def load_model(spec: ModelSpec, context: int = 0, packed: int = PACKED) -> LanguageModel:
    """A LanguageModel with its full vocabulary. context: the longest prompt plus continuation.
    packed: the most tokens that a pass adds to it.
    """
    check_spec(spec, context, packed)
    device = device_of(spec)
    dtype = getattr(torch, spec.dtype_on(device.type))
    folder = ModelFolder.fetched(spec)
    folder.check()
    check_fits(folder, device, dtype)
    with folder.used():
        if folder.quantised:
            network, wrong = _load_quantised(folder, spec.backend, device, dtype)
        elif not folder.trimmed:
            network, wrong = _load_plain(folder, dtype, device)
        else:
            network, wrong = trimmed.load_network(folder, dtype)
            network = network.to(device)
        network = network.eval().requires_grad_(False)
    folder.refuse(wrong)
    _check_angles(folder, network)
    return model_of(network, folder, dtype, context, packed)


def model_of(
    network: Any,
    folder: ModelFolder | None = None,
    dtype: torch.dtype | None = None,
    context: int = 0,
    packed: int = PACKED,
) -> LanguageModel:
    """A causal network of transformers as a LanguageModel, after `check_model`.

    folder: where it was loaded from, if it was. dtype: of its activations (default: its weights').
    """
    head = network.get_output_embeddings()
    model = LanguageModel(
        body=LeanBody(network) if knows(network) else network.get_decoder(),
        head=_frozen(head),
        vocab=head.out_features,
        dtype=dtype or network.dtype,
        device=network.device,
        kernel=_kernel(network),
        network=network,
        folder=folder,
    )
    model.few_rows = take_fastest(_projections(model))
    check_model(model, context, packed)
    return model


# ---- device, dtype, memory -----------------------------------------------------------------------


def device_of(spec: ModelSpec) -> torch.device:
    """The device of a model. ValueError for a GPU that this machine does not have."""
    there = torch.cuda.device_count()
    if spec.device == "auto":
        return torch.device("cuda:0" if there else "cpu")
    device = torch.device(spec.device)
    if device.type != "cuda":
        return device
    index = device.index or 0  # with no index GPTQModel would spread the layers over all GPUs
    if index >= there:
        raise ValueError(
            f"device={spec.device!r}: this machine has {there} GPUs; name another device, or auto"
        )
    return torch.device("cuda", index)


def free_bytes(device: torch.device) -> int:
    """Bytes that tensors can still use: free memory, and on a GPU also the memory that PyTorch has
    kept from deleted tensors.
    """
    if device.type == "cpu":
        return psutil.virtual_memory().available
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def check_fits(folder: ModelFolder, device: torch.device, dtype: torch.dtype) -> None:
    """ValueError if the device has fewer free bytes than the weights need in `dtype`."""
    need, free = folder.bytes, free_bytes(device)
    if not folder.quantised:
        need = dtype.itemsize * sum(map(math.prod, folder.shapes.values()))
        if device.type == "cpu" and dtype == torch.float32:
            need *= 2  # most products' weights are laid out a second time
    need = round(1.1 * need)
    if need > free:
        raise ValueError(
            f"{folder.path.name} needs about {need / 1e9:.2f} GB on {device}, but "
            f"{free / 1e9:.2f} GB are free; use a smaller pair, 4 bit, or another device"
        )


# ---- the network ---------------------------------------------------------------------------------


def _load_quantised(
    folder: ModelFolder, backend: str, device: torch.device, dtype: torch.dtype
) -> tuple[Any, list[str]]:
    """A network, and the names of wrong weights, as `_load_plain`. GPTQModel fills missing ones
    with zeros.
    """
    from gptqmodel import BACKEND, GPTQModel

    kernel = BACKEND("auto" if backend == "auto" else f"gptq_{backend}")
    place = str(folder.path)
    network = GPTQModel.load(
        place, device=str(device), backend=kernel, dtype=dtype, trust_remote_code=False
    ).model
    held = folder.shapes.keys()
    missing = [min(names) for names in _needed(network) if not held & names]
    return network, [*missing, *_beyond(network, held)]


def _needed(network: Any) -> list[set[str]]:
    """The names of each tensor that a network of GPTQModel needs: several if weights are tied."""
    needed: dict[Any, set[str]] = {}
    packed = {name: m for name, m in network.named_modules() if hasattr(m, "qzero_format")}
    for name, module in packed.items():
        parts = ["qweight", "qzeros", "scales"]
        parts += ["g_idx"] * module.desc_act  # else the groups are in order
        parts += ["bias"] * (module.bias is not None)
        needed |= {f"{name}.{part}": {f"{name}.{part}"} for part in parts}
    unpacked = tuple(f"{name}." for name in packed)  # their parts have other names by now
    for name, tensor in network.state_dict(keep_vars=True).items():
        if not name.startswith(unpacked):
            needed.setdefault(id(tensor), set()).add(name)
    return list(needed.values())


def _beyond(network: Any, names: Iterable[str]) -> list[str]:
    """Names of tensors of layers that config.json does not have. Libraries ignore these."""
    own = network.state_dict().keys()
    beyond = [name for name in names if name not in own]
    return [name for name in beyond if re.sub(r"\.\d+\.", ".0.", name, count=1) in own]


def _load_plain(
    folder: ModelFolder, dtype: torch.dtype, device: torch.device
) -> tuple[Any, list[str]]:
    """A network, and the names of wrong weights: missing or of another shape (transformers fills
    them at random), or of layers that config.json does not have (transformers ignores them).
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder.path,
        dtype=dtype,
        device_map={"": str(device)},  # weight by weight, not first all to the host
        use_safetensors=True,
        trust_remote_code=False,
        attn_implementation="sdpa",
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # else the error does not name the weight
    )
    network, info = loaded
    wrong = [*info["missing_keys"], *(entry[0] for entry in info["mismatched_keys"])]
    return network, wrong + _beyond(network, info["unexpected_keys"])


def _check_angles(folder: ModelFolder, network: Any) -> None:
    """ValueError for rotary frequencies in half precision, whose angles are wrong by 0.09 at
    position 575.
    """
    for name, buffer in network.named_buffers():
        if name.endswith("inv_freq") and buffer.dtype != torch.float32:
            raise ValueError(
                f"{folder.path}: the frequencies of its positions ({name}) were loaded as "
                f"{buffer.dtype}, not float32; use dtype=float32 for this model"
            )


def _projections(model: LanguageModel) -> list[Projection]:
    """The products of a pass that the kit computes itself."""
    of_head = getattr(model.head, "product", model.head)
    layers = getattr(model.body, "projections", [])
    return [part for part in (*layers, of_head) if isinstance(part, Projection)]


def fix_few_rows(pair: Pair, libraries: Mapping[str, str | None]) -> None:
    """Let the named library (else MKL) multiply few rows in the target and the draft, and record it
    in `facts`. The fastest library can change from one loading to the next, and libraries round
    differently.
    """
    for name in MODELS:
        model = getattr(pair, name)
        if getattr(model, "few_rows", None):
            model.few_rows = libraries.get(name) or MKL
            send_few_rows(_projections(model), model.few_rows)
            pair.facts[name]["few_rows"] = model.few_rows


def _frozen(head: Any) -> Any:
    """An output layer with fixed weights, in the kit's faster form if there is one."""
    if isinstance(head, trimmed.TrimmedHead):
        return trimmed.FrozenHead(head)
    if type(head) is torch.nn.Linear:
        return Projection(head.weight, head.bias)
    return head


# ---- are its probabilities the model's own? ------------------------------------------------------


def check_model(model: LanguageModel, context: int = 0, packed: int = PACKED) -> None:
    """ValueError unless body and head score as the whole network does, the cache holds every
    layer's state, and packed trees score as their paths do, for texts of `context` tokens and
    passes that add `packed` tokens.
    """
    check_positions(model.config, context, packed)
    _check_output(model)
    windows = [size for name, size in limits(model.config).items() if WINDOW.search(name)]
    full = [size for size in windows if size < context + packed]
    _check_tree(model, max(full, default=0))
    model.checked = True


@contextmanager
def _reading(model: LanguageModel) -> Iterator[None]:
    """Errors of the network become errors of its folder, if it has one."""
    with model.folder.used() if model.folder else nullcontext():
        yield


def _name(model: LanguageModel) -> str:
    """What messages call a model."""
    return str(model.folder.path) if model.folder else type(model.network).__name__


def _probe_tokens(model: LanguageModel) -> tuple[int, int, int]:
    """A root and two siblings: not the first ids, which may be unused and equal."""
    seventh = model.vocab / 7
    return int(2 * seventh), int(3 * seventh), int(5 * seventh)


@torch.inference_mode()
def _check_output(model: LanguageModel) -> None:
    """ValueError unless the network's logits are what its head says of its body's states. Both are
    of one pass, so they are equal in every number format. The head's output is scaled on the way,
    so that a soft cap that is far above the logits of this pass is seen too.
    """
    network, seen = model.network, dict[str, Any]()
    body, head = network.get_decoder(), network.get_output_embeddings()

    # what leaves the body, what the head reads, and what the head says, made large so that a cap
    # or a shift of the logits shows
    def of_body(_module: Any, _given: Any, out: Any) -> None:
        seen["state"] = out[0]

    def of_head(_module: Any, given: Any, out: Tensor) -> Tensor:
        largest = out.where(out.isfinite(), 0).abs().max()
        seen["read"], seen["said"] = given[0], out * (SCALE / largest)
        return seen["said"]

    tokens = torch.tensor([_probe_tokens(model)], device=model.device)
    hooks = [body.register_forward_hook(of_body), head.register_forward_hook(of_head)]
    try:
        with _reading(model):
            logits = network(input_ids=tokens).logits
    finally:
        for hook in hooks:
            hook.remove()
    if logits.isnan().any() or not logits.isfinite().any():
        raise ValueError(f"{_name(model)}: its logits are not finite; its weights are damaged")
    pairs = (("read", seen.get("state")), ("said", logits))
    same = [torch.equal(seen[name].float(), other.float()) for name, other in pairs if name in seen]
    if same != [True, True]:
        raise ValueError(
            f"{_name(model)}: its logits do not come from its head alone (they are capped, scaled "
            "or shifted before or after it), and the kit computes nothing else; use another model"
        )


@torch.inference_mode()
def _check_tree(model: LanguageModel, window: int) -> None:
    """ValueError unless the cache holds every layer's state, and a packed tree scores as its paths
    do, also if it has more tokens than attention sees at once (`window`), each of which sees few.
    """
    root, left, right = _probe_tokens(model)
    paths = torch.tensor([[root, left], [root, right]], device=model.device)
    many = 1 + window // 2
    tree = torch.tensor([[root, *many * [left, right]]])
    visible = torch.eye(2 * many + 1, dtype=torch.bool)
    visible[:, 0] = True
    positions = torch.ones(2 * many + 1, dtype=torch.long)
    positions[0] = 0
    cache = model.cache()
    with _reading(model):  # it may call methods that our cache does not have
        alone = model.network(input_ids=paths).logits[:, -1].float()
        hidden = model.forward(tree, cache, positions, visible)
    layers = model.config.num_hidden_layers
    if len(cache.layers) != layers:
        raise ValueError(
            f"{_name(model)}: only {len(cache.layers)} of its {layers} layers keep their "
            "state in the cache, so rejected tokens cannot be removed; use a model of attention "
            "layers"
        )
    ends = torch.cat([hidden[0, 1:3], hidden[0, -2:]])
    packed = model.head(ends).float().view(2, *alone.shape)
    said = ~alone.isneginf()  # a trimmed draft does not output all tokens
    gap = float((packed - alone)[:, said].abs().max())
    scale = float(alone[said].abs().max())
    if not gap <= ROUNDING[model.computes] * max(scale, 1.0):  # also true for NaN
        raise ValueError(
            f"{_name(model)}: a packed tree and its paths differ by {gap:.3g} at logit scale "
            f"{scale:.3g}. Its weights are damaged, or its architecture does not support 4-D "
            "masks, so it cannot be used here; use another model"
        )


# ---- the pair ------------------------------------------------------------------------------------


def check_vocabularies(target: Any, draft: Any, sizes: tuple[int, int]) -> int:
    """The number of ids that both models share. ValueError unless the tokenizers agree on each of
    them. Prints which tokens of the target are left out.
    """
    shared, named = min(sizes), target.get_vocab()
    if beyond := sorted(t for t, place in named.items() if shared <= place < sizes[0]):
        print(
            f"{len(beyond)} tokens of the target, as {beyond[:3]}, are not among the draft's "
            f"{shared} ids, so no text can contain them",
            file=sys.stderr,
        )
    differ = named.items() ^ draft.get_vocab().items()
    wrong = sorted({token for token, place in differ if place < shared})
    if wrong:
        raise ValueError(
            f"target and draft have different vocabularies: {len(wrong)} tokens differ, as "
            f"{wrong[:3]}. Speculative decoding needs one vocabulary; "
            "use a draft of the target's family"
        )
    return shared


def _check_stops(folder: ModelFolder, stops: frozenset[int], shared: int) -> None:
    """ValueError for a stop id that is not shared: it would never occur, and no text would end."""
    if beyond := [stop for stop in stops if stop not in range(shared)]:
        raise ValueError(
            f"{folder.path}: its texts end with token id {beyond[0]!r} (eos_token_id), which is "
            f"not among the {shared} ids that both models share; use a draft with this id, or "
            "correct generation_config.json"
        )


# ---- facts ---------------------------------------------------------------------------------------


def _kernel(network: Any) -> str:
    """Class of the quantised layers, or else of the plain layers."""
    names = {type(module).__name__ for module in network.modules()}
    linear = {name for name in names if "Linear" in name}
    return "+".join(sorted(linear - {"Linear"} or linear))


def parameter_count(network: Any) -> int:
    """Parameters as if unquantised: a packed layer counts as inputs times outputs."""
    plain = sum(p.numel() for p in network.parameters())
    packed = [m for m in network.modules() if hasattr(m, "qweight")]
    return plain + sum(m.in_features * m.out_features for m in packed)


def model_facts(spec: ModelSpec, model: LanguageModel) -> dict:
    """A manifest's facts about a model."""
    config = model.config
    on_gpu = model.device.type == "cuda"
    gpu = torch.cuda.get_device_name(model.device) if on_gpu else None
    return {
        "path": spec.path,
        "revision": spec.revision,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "gpu": gpu,
        "kernel": model.kernel,
        "few_rows": model.few_rows,
        "quantised": model.quantised,
        "parameters": parameter_count(model.network) - model.borrowed,
        "weight_bytes": model.folder.bytes,
        "architecture": type(model.network).__name__,
        "layers": config.num_hidden_layers,
        "width": config.hidden_size,
        "heads": config.num_attention_heads,
        "tokens_said": model.tokens_said,
    }

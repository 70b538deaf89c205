"""Load a pair, with transformers or GPTQModel, as the kit's `Network`s.

Every failed check says what to do.
"""

import copy
import os
from contextlib import nullcontext
from typing import Any

import psutil
import torch
from torch import Tensor

from speclab.model import LanguageModel, Pair, over_trunk
from speclab.models import head, trimmed
from speclab.models.folder import ModelFolder, all_stops
from speclab.models.lean import LeanBody, is_supported
from speclab.models.model import Network, Projection
from speclab.models.support import WINDOW, check_architecture, check_spec, limits
from speclab.models.translated import TranslatedModel
from speclab.models.vocabularies import spelling_of
from speclab.plain import Facts, ModelSpec, say_once

# GPTQModel's pool needs two workers even with one core
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")
# allowed difference between a packed tree and its paths, as a share of the largest logit, by the
# number format of the products (measured on both pairs in bfloat16: up to 0.03; with a wrong mask,
# in all formats: 0.18 and more)
ROUNDING = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.1}
SCALE = 64  # the largest logit at which the output is compared: soft caps are 15 to 50
PACKED = 2048  # tokens that a pass adds at most, unless a profile says otherwise
FEW = 1000  # common tokens of two vocabularies, which is said (Qwen2.5 and SmolLM2: 39,237)


def load_both(
    target: ModelSpec, draft: ModelSpec, folder: ModelFolder, of_draft: ModelFolder, slots: int
) -> Pair:
    """A target and a draft from their folders, after `check_spec`, cut to their shared ids, with
    the target's tokenizer. slots: as in `check_model`.
    """
    folder = folder.with_weights(target)  # both before either is loaded
    of_draft = of_draft.with_weights(draft)
    first = _load(target, folder, slots)
    tokenizers = folder.tokenizer, None if of_draft.is_head else of_draft.tokenizer
    stops = folder.stop_ids(tokenizers[0])
    if of_draft.is_head:
        dtype = getattr(torch, draft.dtype_on(first.device.type))
        second: Network = head.load_head(of_draft, first, dtype)
        check_head(second)
    else:
        second = _load(draft, of_draft, slots)
    facts = {"target": model_facts(target, first), "draft": model_facts(draft, second)}
    return _paired((first, second), facts, tokenizers, stops)


def pair_of(target: Any, draft: Any, tokenizer: Any, draft_tokenizer: Any = None) -> Pair:
    """Two causal language models of transformers that are in memory, as a Pair, after all checks of
    `load_pair`: the settings that the kit does not compute, as a soft cap on logits, and a packed
    tree against the whole network.

    tokenizer: the target's; also the draft's, unless draft_tokenizer is named. Texts follow the
    models' own distribution, whatever else generation_config asks for. The pair has copies of some
    weights, so make it again after a training step. ValueError for models that it cannot use.
    """
    from transformers import PreTrainedModel

    facts: Facts = {}
    models: list[Network] = []
    for which, network in {"target": target, "draft": draft}.items():
        if not isinstance(network, PreTrainedModel) or not network.can_generate():
            raise ValueError(
                f"{which} is a {type(network).__name__}; pass a model of transformers, such as "
                "AutoModelForCausalLM.from_pretrained(…), with its adapters merged"
            )
        if network.training or getattr(network.config, "quantization_config", None):
            raise ValueError(
                f"{which} is in training mode or has packed weights (quantization_config); call "
                "its eval() first, or load packed weights by a profile and load_pair"
            )
        check_architecture(type(network), network.config)
        models.append(model_of(network))
        spec = ModelSpec(network.name_or_path or type(network).__name__)
        facts[which] = model_facts(spec, models[-1])
    stops = all_stops(target.generation_config.eos_token_id, tokenizer)
    return _paired((models[0], models[1]), facts, (tokenizer, draft_tokenizer or tokenizer), stops)


def _paired(
    models: tuple[Network, Network],
    facts: Facts,
    tokenizers: tuple[Any, Any],
    stops: frozenset[int],
) -> Pair:
    """A loaded target and draft, cut to their shared ids. ValueError as of `joined`, and for a stop
    id that is not shared: it would never occur, and no text would end.
    """
    first, second = models
    drafting = second if second.by_start else joined(second, facts, tokenizers, first.vocab)
    first.vocab = drafting.vocab
    if beyond := [stop for stop in stops if stop not in range(first.vocab)]:
        raise ValueError(
            f"{facts['target']['path']}: its texts end with token id {beyond[0]!r} (eos_token_id), "
            f"which is not among the {first.vocab} ids that both models share; use a draft with "
            "this id, or correct generation_config.json"
        )
    facts["draft"]["tokens_said"] = drafting.tokens_said
    if drafting is not second:  # translated
        facts["draft"]["own_vocabulary"] = second.vocab
    return Pair(first, drafting, tokenizers[0], stops, facts | {"shared_vocabulary": first.vocab})


def load_model(spec: ModelSpec, context: int = 0) -> Network:
    """A network with its full vocabulary. context: the longest prompt plus continuation."""
    folder = check_spec(spec, context).with_weights(spec)
    return _load(spec, folder, context + PACKED)


def _load(spec: ModelSpec, folder: ModelFolder, slots: int) -> Network:
    """The network in a folder with weights. slots: as in `check_model`."""
    device = device_of(spec)
    dtype = getattr(torch, spec.dtype_on(device.type))
    # float32 doubles weights of 16 bits, and on a CPU `Projection` keeps a second layout
    copies = 1 + (dtype == torch.float32)
    need = copies * folder.bytes / 1e9
    free = free_bytes(device) / 1e9
    if need > free:
        raise ValueError(
            f"{folder.path.name} needs about {need:.2f} GB on {device}, but {free:.2f} GB are "
            "free; use a smaller pair, 4 bit, or another device"
        )
    wrong: list[str] = []
    with folder.used():
        if folder.quantised:
            network, wrong = _load_quantised(folder, spec.backend, device, dtype)
        elif folder.trimmed:
            network = trimmed.load_network(folder, dtype).to(device)
        else:
            network, wrong = _load_plain(folder, dtype, device)
        network = network.eval().requires_grad_(False)
    folder.refuse(wrong)
    return model_of(network, folder, slots)


def model_of(network: Any, folder: ModelFolder | None = None, slots: int = PACKED) -> Network:
    """A causal network of transformers as a Network, after `check_model` for this many slots.
    folder: where it was loaded from, if it was.
    """
    # the output layer with fixed weights, in the kit's faster form if there is one
    own = head = network.get_output_embeddings()
    if isinstance(own, trimmed.TrimmedHead):
        head = copy.copy(own)  # the network's own stays as it is
        head.product = Projection(own.weight)
    elif type(own) is torch.nn.Linear:
        head = Projection(own.weight, own.bias)
    # the class of the quantised layers, or else of the plain layers
    names = (type(module).__name__ for module in network.modules())
    linear = {name for name in names if "Linear" in name}
    model = Network(
        body=LeanBody(network) if is_supported(network) else network.get_decoder(),
        head=head,
        vocab=own.out_features,
        dtype=network.dtype,
        device=network.device,
        kernel="+".join(sorted(linear - {"Linear"} or linear)),
        network=network,
        folder=folder,
    )
    check_model(model, slots)
    return model


# ---- device, dtype, memory -----------------------------------------------------------------------


def device_of(spec: ModelSpec) -> torch.device:
    """The device of a model. ValueError for a GPU that this machine does not have."""
    there = torch.cuda.device_count()
    name = spec.device
    if name == "auto":
        name = "cuda" if there else "cpu"
    device = torch.device(name)
    if device.type == "cpu":
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
    loaded = GPTQModel.load(
        place, device=str(device), backend=kernel, dtype=dtype, trust_remote_code=False
    )
    held = folder.shapes.keys()
    missing = [min(names) for names in _needed(loaded.model) if not held & names]
    return loaded.model, missing


def _needed(network: Any) -> list[set[str]]:
    """The names of each tensor that a network of GPTQModel needs: several if weights are tied."""
    packed = {name: m for name, m in network.named_modules() if hasattr(m, "qzero_format")}
    needed: dict[Any, set[str]] = {}
    for name, module in packed.items():
        # without an order of its own (desc_act) a layer needs no list of groups
        for part in ("qweight", "qzeros", "scales", *["g_idx"] * module.desc_act):
            needed[name, part] = {f"{name}.{part}"}
    unpacked = tuple(f"{name}." for name in packed)  # their parts have other names by now
    for name, tensor in network.state_dict(keep_vars=True).items():
        if not name.startswith(unpacked):
            needed.setdefault(id(tensor), set()).add(name)
    return list(needed.values())


def _load_plain(
    folder: ModelFolder, dtype: torch.dtype, device: torch.device
) -> tuple[Any, list[str]]:
    """A network, and the names of weights that are missing or of another shape, which transformers
    fills at random.
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
    mismatched = [entry[0] for entry in info["mismatched_keys"]]
    return network, [*info["missing_keys"], *mismatched]


# ---- are its probabilities the model's own? ------------------------------------------------------


@torch.inference_mode()
def check_model(model: Network, slots: int) -> None:
    """ValueError unless a packed tree scores as the whole network does along its paths. slots: the
    most tokens of a text and of the pass that follows it, together.
    """
    root, left, right = probe_tokens(model)
    network = model.network
    enlarged: list[Tensor] = []
    name = str(model.folder.path) if model.folder else type(network).__name__

    # the whole network along two paths, with the numbers of its output layer made large, so that a
    # cap on logits shows
    def enlarge(_module: Any, _given: Any, out: Tensor) -> Tensor:
        largest = out.where(out.isfinite(), 0).abs().max()
        enlarged.append(SCALE / largest)
        return out * enlarged[0]

    paths = torch.tensor([[root, left], [root, right]], device=model.device)
    # the same paths as a packed tree over a cached root, with more leaves than attention sees at
    # once, each of which sees the root and itself
    windows = [size for entry, size in limits(model.config).items() if WINDOW.search(entry)]
    widest = max([size for size in windows if size < slots], default=0)
    many = 1 + widest // 2
    leaves = torch.tensor([many * [left, right]])
    sees = over_trunk(1, torch.eye(2 * many, dtype=torch.bool))
    cache = model.cache()
    # errors of the network, which may call methods that our cache lacks, name its folder
    with model.folder.used() if model.folder else nullcontext():
        with network.get_output_embeddings().register_forward_hook(enlarge):
            alone = network(input_ids=paths).logits[:, -1].float()
        model.forward(torch.tensor([[root]]), cache)
        hidden = model.forward(leaves, cache, torch.ones_like(leaves[0]), sees)
    first_and_last = torch.cat([hidden[0, :2], hidden[0, -2:]])
    of_leaves = model.head(first_and_last).float()
    packed_logits = enlarged[0] * of_leaves.view(2, *alone.shape)
    check_same(name, packed_logits, alone, model.computes)


@torch.inference_mode()
def check_head(model: Network) -> None:
    """ValueError unless two packed siblings score as each alone does."""
    root, left, right = probe_tokens(model)
    features = torch.linspace(-1, 1, model.network.fc.in_features)[None]

    def scored(*siblings: int) -> Tensor:
        """Logits of siblings after a text of two tokens."""
        cache = model.cache()
        cache.take(features)
        model.forward(torch.tensor([[left, root]]), cache)
        sees = over_trunk(2, torch.eye(len(siblings), dtype=torch.bool))
        places = torch.full((len(siblings),), 2)
        hidden = model.forward(torch.tensor([siblings]), cache, places, sees)
        return model.logits(hidden[0])

    alone = torch.cat([scored(left), scored(right)])
    check_same(str(model.folder.path), scored(left, right), alone, model.dtype)


def probe_tokens(model: Network) -> tuple[int, int, int]:
    """A root and two siblings, for checks: not the first ids, which may be unused and equal."""
    seventh = model.vocab / 7
    return int(2 * seventh), int(3 * seventh), int(5 * seventh)


def check_same(name: str, packed: Tensor, alone: Tensor, computes: torch.dtype) -> None:
    """ValueError unless logits of a packed tree are those along its paths (-inf: not output), but
    for the rounding of products in this number format.
    """
    said = ~alone.isneginf()
    gap = float((packed - alone)[..., said].abs().max())
    scale = float(alone[said].abs().max())
    if not gap <= ROUNDING[computes] * max(scale, 1.0):  # also true for NaN
        raise ValueError(
            f"{name}: a packed tree and its paths differ by {gap:.3g} at logit scale {scale:.3g}. "
            "Its weights are damaged, or it caps, scales or shifts its logits, or its attention "
            "does not support 4-D masks, so it cannot be used here; use another model"
        )


# ---- the pair ------------------------------------------------------------------------------------


def joined(draft: Network, facts: Facts, tokenizers: tuple[Any, Any], vocab: int) -> LanguageModel:
    """A draft for a target with `vocab` ids: cut to the ids that both share, or translated, if the
    tokenizers differ in one of them. ValueError as of `spelling_of`.

    facts, tokenizers: `model_facts` and tokenizers of target and draft. Prints a line, once, if the
    draft is larger than the target, or shares few tokens with it.
    """
    path = facts["draft"]["path"]
    if facts["draft"]["parameters"] > facts["target"]["parameters"]:
        say_once(f"{path} has more parameters than its target, so it will hardly save time")
    try:
        found = spelling_of(*tokenizers, (vocab, draft.vocab))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if found is None:
        draft.vocab = min(vocab, draft.vocab)
        return draft
    spelled, common = found
    if draft.kept is not None:  # it is trimmed too
        said = {*draft.kept.tolist()}
        common = {place: own for place, own in common.items() if own in said}
    if len(common) < FEW:
        say_once(
            f"{path} shares only {len(common)} tokens with its target, and can propose no others"
        )
    return TranslatedModel(draft, spelled, common)


# ---- facts ---------------------------------------------------------------------------------------


def parameter_count(network: Any) -> int:
    """Parameters as if unquantised: a packed layer counts as inputs times outputs."""
    layers = [m for m in network.modules() if hasattr(m, "qweight")]
    packed = [m.in_features * m.out_features for m in layers]
    plain: int = network.num_parameters()
    return plain + sum(packed)


def model_facts(spec: ModelSpec, model: Network) -> dict:
    """A manifest's facts about a model."""
    config = model.config
    on_gpu = model.device.type == "cuda"
    gpu = torch.cuda.get_device_name(model.device) if on_gpu else None
    size = model.folder.bytes if model.folder else model.network.get_memory_footprint()
    return {
        "path": spec.path,
        "revision": spec.revision,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "gpu": gpu,
        "kernel": model.kernel,
        "quantised": model.quantised,
        "parameters": parameter_count(model.network) - model.borrowed,
        "weight_bytes": size,
        "architecture": type(model.network).__name__,
        "layers": config.num_hidden_layers,
        "width": config.hidden_size,
        "heads": config.num_attention_heads,
        "tokens_said": model.tokens_said,
    }

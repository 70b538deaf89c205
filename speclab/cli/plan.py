"""About how many bytes a recording needs on each device, before anything is loaded.

Weights are counted on torch's meta device, where a network has shapes without memory. All other
memory is a coarse upper bound: every prompt is as long as allowed, every text has its full length,
and every cache has grown to the next power of two. tests/tools/gpu_check.py compares it with
measurements.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speclab.models import hub
from speclab.models.folder import OF_HEAD, ModelFolder
from speclab.plain import ModelSpec
from speclab.study.profiles import MODELS, Profile
from speclab.study.runs import sizes_of

# per entry of a vocabulary-sized row at the peak: logits and probabilities of both models in
# float32, rank keys in float64, a temporary
LOGIT_BYTES = 44
CONTEXT_BYTES = 600_000_000  # CUDA context and library workspaces of a process on a GPU


@dataclass(frozen=True)
class Held:
    """A model as a profile loads it on `device`: its `parameters`, and in bytes its weights there
    (`loaded`), the host's memory during loading (`on_host`), the keys and values of a token
    (`cached`), a token in a pass (`passing`), and a pair of tokens in attention (`attending`).
    """

    device: str
    parameters: int
    loaded: int
    on_host: int
    cached: int
    passing: int
    attending: int
    vocab: int

    def running(self, tokens: int, seen: int) -> int:
        """Bytes of one pass over `tokens` tokens, each of which sees `seen` tokens."""
        return tokens * (self.passing + seen * self.attending)


def held(config: Mapping[str, Any], dtype: str, device: str, feeds_head: bool = False) -> Held:
    """The model or trained head of a config.json in a number format on a device. A head counts as
    its layer with an output for every token, and as much as reads the target's states.

    feeds_head: a head reads the model's hidden states, so a pass keeps those of all its layers.
    ValueError for an architecture that transformers does not know.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    is_head = OF_HEAD in config
    plain = dict(config[OF_HEAD] if is_head else config)
    quantised = plain.pop("quantization_config", None) or {}
    shape = AutoConfig.for_model(**plain)
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(shape, dtype=getattr(torch, dtype))
    size, width, layers = network.dtype.itemsize, shape.hidden_size, shape.num_hidden_layers
    inner = getattr(shape, "intermediate_size", None) or 4 * width
    heads = shape.num_attention_heads
    per_head = getattr(shape, "head_dim", None) or width // heads
    groups = getattr(shape, "num_key_value_heads", None) or heads
    # the embedding and the output layer, which is the embedding in some models
    table = shape.vocab_size * width
    parameters = network.num_parameters() + 7 * width**2 * is_head
    tables = table if shape.tie_word_embeddings else 2 * table
    loaded, on_host = parameters * size, table * size  # loading goes weight by weight
    if is_head:  # read as a whole, in 16 bit, into a float32 network
        on_host = 6 * parameters
    if quantised:  # read as a whole; a group has a float16 scale and a zero point
        packed = quantised["bits"] / 8
        packed += (2 + packed) / max(32, quantised.get("group_size", 128))
        loaded = on_host = int((parameters - tables) * packed) + tables * size
        loaded += 2 * size * width * inner  # one, unpacked for a pass
    elif device == "cpu" and dtype == "float32":  # once more, as `Projection` lays products out
        loaded *= 2
    # the residual stream and its norm, queries, keys and values; gate, up and their product
    passing = 8 * width + 4 * inner + width * (layers + 1) * feeds_head
    return Held(
        device=device,
        parameters=parameters,
        loaded=loaded,
        on_host=on_host,
        # of a head also states and features
        cached=(2 * layers * groups * per_head + 3 * width * is_head) * size,
        passing=passing * size,
        attending=heads * (4 + size) + 3 + size,  # scores, and the mask
        vocab=shape.vocab_size,
    )


def known_config(profile: Profile, which: str) -> Mapping[str, Any]:
    """A model's config.json: from this machine, else from the profile's notes; {} if neither has
    it.
    """
    folder = ModelFolder.here(getattr(profile, which))
    return folder.config if folder else getattr(profile.notes, f"{which}_config")


def config_of(profile: Profile, which: str, asks: bool = False) -> Mapping[str, Any]:
    """A model's config.json: from this machine, else from the profile's notes, else, if `asks`,
    from the hub. ValueError if none has it, or if it is damaged.
    """
    spec: ModelSpec = getattr(profile, which)
    known = known_config(profile, which)
    if not known and not asks:
        raise ValueError(f"config.json of {spec.path} is not on this machine yet")
    return known or hub.config(spec)


def model_line(profile: Profile, which: str, asks: bool = False) -> str:
    """A model's architecture and positions by its config.json. ValueError if it cannot be used, or
    not for the longest context of the profile.
    """
    from speclab.models.support import check_usable

    config = dict(config_of(profile, which, asks))
    return check_usable(config, profile.positions)


def planned_pair(profile: Profile, gpus: int = 2, asks: bool = False) -> list[Held]:
    """Target and draft as they are loaded on a machine with this many GPUs.

    asks: ask the hub for an unknown config.json. ValueError if a config.json is unknown or cannot
    be used.
    """
    first = "cuda:0" if gpus else "cpu"
    configs = {which: config_of(profile, which, asks) for which in MODELS}
    has_head = OF_HEAD in configs["draft"]
    pair: list[Any] = []
    for which, config in configs.items():
        spec: ModelSpec = getattr(profile, which)
        device = {"auto": first, "cuda": "cuda:0"}.get(spec.device, spec.device)
        if has_head and pair:
            device = pair[0].device  # where it reads the target's hidden states
        feeds_head = has_head and not pair
        pair.append(held(config, spec.dtype_on(device), device, feeds_head))
    return pair


def planned_bytes(profile: Profile, pair: list[Held]) -> dict[str, int]:
    """The most bytes that a recording needs on each device: the weights, and the memory to score a
    chunk of trees or to write a block's texts.
    """
    from speclab.record import ROWS

    length, new = profile.max_prompt_tokens, profile.max_new_tokens
    trunk = length + new
    # nodes of trees that a pass packs together, at least those of one tree
    nodes = max(profile.max_packed_tokens, profile.tree.size)
    seen, widest = trunk + nodes, max(trunk, nodes)
    places = max(2 * trunk, _next_power(seen))
    needed: Counter[str] = Counter()
    for model in pair:
        logits = ROWS * model.vocab * LOGIT_BYTES // len(pair)
        needed[model.device] += logits + places * model.cached
        needed[model.device] += model.running(widest, seen)
    target = pair[0]
    block = min(profile.block_prompts, sum(sizes_of(profile).values()))
    places = max(trunk, _next_power(length))
    writing = block * (places * target.cached + target.running(length, length))
    needed[target.device] = max(needed[target.device], writing)
    for model in pair:
        needed[model.device] += model.loaded
    return {device: size + CONTEXT_BYTES * (device != "cpu") for device, size in needed.items()}


def _next_power(tokens: int) -> int:
    """Capacity of a cache that has grown for this many tokens."""
    return 1 << (tokens - 1).bit_length()

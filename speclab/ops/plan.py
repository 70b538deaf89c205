"""Bytes of a recording before anything is loaded: both models on torch's meta device,
where a network has shapes and holds nothing.

The plan follows `record` pass by pass, as if every text had its full length; it leaves out what it
cannot know (fragmentation). tests/tools/gpu_check.py holds it against measurement.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from speclab.models.folder import cached, local_folder
from speclab.plain import read_json
from speclab.profiles import MODELS, ModelSpec, Profile

MEND = "fetch the model again, whole"
KNOWN = ("llama", "qwen2", "mistral")  # gated MLP, grouped-query attention, RMSNorm
# per entry of a vocabulary-sized row at the peak: logits and probabilities of both models in
# float32, rank keys in float64, a temporary
LOGIT_BYTES = 44


# ---- a model on the meta device ------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """A model as a profile holds it: bytes of a number; `packed`: of a weight of its products where
    GPTQ packs them, else 0; weights of its layers' products, of all `others`, and of the output
    layer among these; and what config.json says of its shape.
    """

    device: str
    itemsize: int
    packed: float
    products: int
    others: int
    head: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    inner: int
    vocab: int

    @property
    def stored(self) -> int:
        """Bytes of the weights."""
        of_products = int(self.products * (self.packed or self.itemsize))
        return of_products + self.others * self.itemsize

    @property
    def loaded(self) -> int:
        """Bytes that the weights take: on a CPU in float32 those of all products twice, the second
        time as `model.Projection` lays them out.
        """
        twice = self.device == "cpu" and self.itemsize == 4 and not self.packed
        return self.stored + 4 * twice * (self.products + self.head)

    @property
    def unpacked(self) -> int:
        """Bytes of one projection in full precision, where GPTQ packs them; else 0."""
        weights = self.width * self.inner
        return 2 * weights * self.itemsize * bool(self.packed)

    def cached(self, tokens: int) -> int:
        """Bytes of the keys and values of tokens."""
        entries = self.layers * self.kv_heads * self.head_dim
        return 2 * tokens * entries * self.itemsize

    def activations(self, n: int, behind: int = 0) -> int:
        """Bytes of one pass over n tokens behind others, an upper bound. Of a token: the residual
        stream (its norm in float32) and the larger of attention (rotated copies) and MLP (gate, up,
        their product); of two tokens: mask and scores.
        """
        both = self.heads + 2 * self.kv_heads
        attention = 3 * both * self.head_dim * self.itemsize
        mlp = 4 * self.inner * self.itemsize
        stream = self.width * (3 * self.itemsize + 8)
        of_one = stream + max(attention, mlp)
        of_two = 3 + self.itemsize + self.heads * (4 + self.itemsize)
        return n * (of_one + (behind + n) * of_two)


class Planned(NamedTuple):
    """Both models of a pair."""

    target: Held
    draft: Held


def held(config: Mapping[str, Any], dtype: str, device: str) -> Held:
    """The model of a config.json in a number format on a device.

    ValueError for an unknown architecture.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kind = config.get("model_type")
    if kind not in KNOWN:
        raise ValueError(f"model_type={kind!r}: known are {', '.join(KNOWN)}")
    plain = dict(config)
    quantised = plain.pop("quantization_config", None) or {}
    packed = quantised.get("bits", 0) / 8
    if packed:  # a group has a float16 scale and a zero point
        group = max(32, quantised.get("group_size", 128))
        packed += (2 + packed) / group
    shape = AutoConfig.for_model(**plain)
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(shape, dtype=getattr(torch, dtype))
    of_layers = network.base_model.layers.parameters()
    products = sum(weight.numel() for weight in of_layers if weight.dim() == 2)
    head_dim = getattr(shape, "head_dim", None)
    return Held(
        device=device,
        itemsize=network.dtype.itemsize,
        packed=packed,
        products=products,
        others=network.num_parameters() - products,
        head=network.get_output_embeddings().weight.numel(),
        layers=shape.num_hidden_layers,
        heads=shape.num_attention_heads,
        kv_heads=shape.num_key_value_heads,
        head_dim=head_dim or shape.hidden_size // shape.num_attention_heads,
        width=shape.hidden_size,
        inner=shape.intermediate_size,
        vocab=shape.vocab_size,
    )


# ---- where models are ----------------------------------------------------------------------------


def folder_of(spec: ModelSpec) -> Path | None:
    """Where the loader would find a model without downloading it; None for nowhere."""
    return local_folder(spec) or cached(spec.path, spec.revision)


def config_of(profile: Profile, which: str) -> dict:
    """A model's config.json where it is here, else what the profile's notes say of it; {}: nothing.

    ValueError for one that is damaged.
    """
    folder = folder_of(getattr(profile, which))
    if folder is None:
        return profile.notes.get(f"{which}_config", {})
    return read_json(folder / "config.json", MEND)


def planned_device(spec: ModelSpec, gpus: int) -> str:
    """The device of a model on a machine with that many GPUs."""
    first = "cuda:0" if gpus else "cpu"
    return {"auto": first, "cuda": "cuda:0"}.get(spec.device, spec.device)


def planned_pair(profile: Profile, gpus: int = 2) -> Planned:
    """Target and draft as they are held on a machine with that many GPUs.

    ValueError where a config.json is not known or cannot be used.
    """
    pair = []
    for which in MODELS:
        spec = getattr(profile, which)
        config = config_of(profile, which)
        if not config:
            raise ValueError("config.json is not here yet")
        device = planned_device(spec, gpus)
        auto = "float32" if device == "cpu" else "float16"
        dtype = auto if spec.dtype == "auto" else spec.dtype
        pair.append(held(config, dtype, device))
    return Planned(*pair)


# ---- bytes ---------------------------------------------------------------------------------------

CONTEXT_BYTES = 600_000_000  # CUDA context and library workspaces of a process on a GPU


def _prompts_and_block(profile: Profile) -> tuple[int, int]:
    count = profile.prompts_per_domain * len(profile.domains)
    return count, min(profile.block_prompts, count)


def _levels_and_together(profile: Profile) -> tuple[list[int], int]:
    """Nodes with children of each level below the root, which a pass over that level packs; and the
    trees that are packed together.
    """
    levels = [len(level.parents) for level in profile.tree.levels[1:]]
    most = profile.max_packed_tokens // max(1, sum(levels))
    return levels, min(profile.max_new_tokens, max(1, most))


def _slots(tokens: int) -> int:
    """Places of a cache that grew to hold tokens: powers of two."""
    return 1 << (tokens - 1).bit_length()


def slots_beside(profile: Profile) -> int:
    """Places of the cache in which a chunk of trees is scored: twice the trunk, or as it grew."""
    levels, together = _levels_and_together(profile)
    trunk = profile.max_prompt_tokens + profile.max_new_tokens - 1
    nodes = together * sum(levels)
    return 2 * trunk if nodes <= trunk else _slots(trunk + nodes)


def beside_weights(model: Held, profile: Profile, logit_bytes: int) -> int:
    """Bytes beside a model's weights while a chunk of trees is scored, an upper bound: cache,
    activations, and `logit_bytes` for each entry of the rows that are reduced at once.
    """
    from speclab.record import ROWS

    levels, together = _levels_and_together(profile)
    new = profile.max_new_tokens
    behind = profile.max_prompt_tokens + new - 1
    largest = model.activations(behind)
    for count in levels:
        largest = max(largest, model.activations(together * count, behind))
        behind += together * count
    hidden = model.width * (new + together * sum(levels))
    widest = max([1, *levels])
    rows = min(ROWS, new * widest)
    logits = rows * model.vocab * logit_bytes
    cache = model.cached(slots_beside(profile))
    return cache + largest + model.unpacked + hidden * model.itemsize + logits


def planned_bytes(profile: Profile, pair: Planned) -> dict[str, int]:
    """Most bytes that a recording holds on each device, with prompts as long as is allowed: weights
    and, beside them, what scoring the trees takes, or writing a block's texts.
    """
    target, draft = pair
    copied = draft.itemsize + 4 if draft.device != target.device else 0
    scored = beside_weights(target, profile, LOGIT_BYTES)
    found = Counter({target.device: scored})
    found[draft.device] += beside_weights(draft, profile, copied)
    length = profile.max_prompt_tokens
    # a cache is as long as was asked for, or what is first written to it grows
    slots = max(length + profile.max_new_tokens, _slots(length))
    of_text = target.activations(length) + target.cached(slots)
    _, block = _prompts_and_block(profile)
    write = block * of_text + target.unpacked
    found[target.device] = max(found[target.device], write)
    for model in pair:
        found[model.device] += model.loaded
    return {d: size + CONTEXT_BYTES * (d != "cpu") for d, size in found.items()}

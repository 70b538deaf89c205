"""How many nodes can be recorded at once: the bytes of a packed chunk from a model's configuration,
held against what is free.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from speclab.profiles import Profile

if TYPE_CHECKING:
    from speclab.models.pairs import Pair

ROWS = 256  # vocabulary-sized rows that the recorder reduces at once
SMALLEST = 8  # packed tokens; with fewer, what does not fit is an error
KNOWN = ("llama", "qwen2", "mistral")  # gated MLP, grouped-query attention, RMSNorm
# per entry of a vocabulary-sized row at the peak: logits and probabilities of both models in
# float32, rank keys in float64, a temporary
LOGIT_BYTES = 44


def chunk_bytes(
    config: Any,
    itemsize: int,
    profile: Profile,
    packed: int,
    logit_bytes: int,
    quantised: bool,
) -> dict[str, int]:
    """Bytes beside the weights while `packed` nodes are recorded at once, an upper bound by part.

    config: of a KNOWN architecture, with Hugging Face's names; itemsize: bytes of a number.
    """
    heads, width, inner = (
        config.num_attention_heads,
        config.hidden_size,
        config.intermediate_size,
    )
    kv_heads = config.num_key_value_heads
    head_dim = getattr(config, "head_dim", None) or width // heads
    new, tree = profile.max_new_tokens, profile.tree
    trunk = profile.max_prompt_tokens + new - 1
    parents = [
        int((tree.width[tree.level(d)] > 0).sum()) for d in range(1, tree.max_depth)
    ]
    positions = min(new, max(1, packed // max(1, sum(parents))))
    nodes = positions * sum(parents)
    # a cache holds twice the trunk, then grows to powers of two
    slots = 2 * trunk if nodes <= trunk else 1 << (trunk + nodes - 1).bit_length()
    # of a token: the residual stream (its norm in float32) and the larger of attention (rotated
    # copies) and MLP (gate, up, their product); of two tokens: mask and scores
    attention = 3 * (heads + 2 * kv_heads) * head_dim * itemsize
    token = width * (3 * itemsize + 8) + max(attention, 4 * inner * itemsize)
    pair = 3 + itemsize + heads * (4 + itemsize)
    largest, behind = trunk * (token + trunk * pair), trunk
    for count in parents:
        n = positions * count
        largest = max(largest, n * (token + (behind + n) * pair))
        behind += n
    unpacked = (
        2 * width * inner * itemsize if quantised else 0
    )  # one projection of 4 bits
    rows = min(ROWS, new * max([1, *parents]))
    return {
        "KV cache": slots
        * 2
        * config.num_hidden_layers
        * kv_heads
        * head_dim
        * itemsize,
        "activations": largest + unpacked + width * itemsize * (new + nodes),
        "logits": rows * config.vocab_size * logit_bytes,
    }


def _needed(pair: "Pair", profile: Profile, packed: int) -> Counter:
    """Bytes on each device."""
    target, draft = pair.target, pair.draft
    copied = draft.dtype.itemsize + 4 if draft.device != target.device else 0
    need: Counter = Counter()
    for model, logits in ((target, LOGIT_BYTES), (draft, copied)):
        config, size = model.network.config, model.dtype.itemsize
        parts = chunk_bytes(config, size, profile, packed, logits, model.quantised)
        need[model.device] += sum(parts.values())
    return need


def packed_tokens_for(pair: "Pair", profile: Profile) -> int:
    """The largest of max_packed_tokens, a half, a quarter, … with which recording fits what is free
    beside the loaded pair; the profile's own value for an architecture that is not KNOWN.

    ValueError when not even SMALLEST tokens fit.
    """
    from speclab.models.pairs import free_bytes

    packed = profile.max_packed_tokens
    for model in (pair.target, pair.draft):
        if model.network is None or model.network.config.model_type not in KNOWN:
            return packed
    while True:
        need = _needed(pair, profile, packed)
        short = [device for device in need if need[device] > free_bytes(device)]
        if not short:
            return packed
        if packed // 2 < SMALLEST:
            bytes_needed, bytes_free = need[short[0]] / 1e9, free_bytes(short[0]) / 1e9
            raise ValueError(
                f"{short[0]}: recording needs {bytes_needed:.2f} GB beside the weights even with "
                f"max_packed_tokens={packed}, {bytes_free:.2f} GB are free; lower "
                "max_prompt_tokens, max_new_tokens or budget, or use another device"
            )
        packed //= 2

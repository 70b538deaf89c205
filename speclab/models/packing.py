"""The bytes of a packed chunk from a model's configuration: what the plan holds against what is
free. The recorder itself halves a chunk where memory runs out.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from speclab.profiles import Profile
from speclab.tree import Tree

if TYPE_CHECKING:
    from speclab.models.pairs import Pair

ROWS = 256  # vocabulary-sized rows that the recorder reduces at once
SMALLEST = 8  # packed tokens; with fewer, what does not fit is an error
KNOWN = ("llama", "qwen2", "mistral")  # gated MLP, grouped-query attention, RMSNorm
# per entry of a vocabulary-sized row at the peak: logits and probabilities of both models in
# float32, rank keys in float64, a temporary
LOGIT_BYTES = 44


def head_dim(config: Any) -> int:
    """Entries of one head's keys."""
    own = getattr(config, "head_dim", None)
    return own or config.hidden_size // config.num_attention_heads


def token_bytes(config: Any, itemsize: int) -> int:
    """Bytes of a token's keys and values in all layers."""
    heads = config.num_hidden_layers * config.num_key_value_heads
    return 2 * heads * head_dim(config) * itemsize


def pass_bytes(config: Any, itemsize: int, n: int, behind: int = 0) -> int:
    """Activations of one pass over n tokens behind others, an upper bound. Of a token: the residual
    stream (its norm in float32) and the larger of attention (rotated copies) and MLP (gate, up,
    their product); of two tokens: mask and scores.
    """
    heads, width = config.num_attention_heads, config.hidden_size
    both = heads + 2 * config.num_key_value_heads
    attention = 3 * both * head_dim(config) * itemsize
    mlp = 4 * config.intermediate_size * itemsize
    token = width * (3 * itemsize + 8) + max(attention, mlp)
    pair = 3 + itemsize + heads * (4 + itemsize)
    return n * (token + (behind + n) * pair)


def level_sizes(tree: Tree) -> list[int]:
    """Nodes with children of each level below the root: what a pass over that level packs."""
    return [len(level.parents) for level in tree.levels[1:]]


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
    new, levels = profile.max_new_tokens, level_sizes(profile.tree)
    trunk = profile.max_prompt_tokens + new - 1
    positions = min(new, max(1, packed // max(1, sum(levels))))
    nodes = positions * sum(levels)
    # a cache holds twice the trunk, then grows to powers of two
    slots = 2 * trunk if nodes <= trunk else 1 << (trunk + nodes - 1).bit_length()
    largest, behind = pass_bytes(config, itemsize, trunk), trunk
    for count in levels:
        n = positions * count
        largest = max(largest, pass_bytes(config, itemsize, n, behind))
        behind += n
    unpacked = unpacked_bytes(config, itemsize) if quantised else 0
    rows = min(ROWS, new * max([1, *levels]))
    return {
        "KV cache": slots * token_bytes(config, itemsize),
        "activations": largest
        + unpacked
        + config.hidden_size * itemsize * (new + nodes),
        "logits": rows * config.vocab_size * logit_bytes,
    }


def unpacked_bytes(config: Any, itemsize: int) -> int:
    """One projection of a 4-bit model in full precision."""
    return 2 * config.hidden_size * config.intermediate_size * itemsize


def beside_weights(pair: "Pair", profile: Profile, packed: int) -> Counter:
    """Bytes on each device while `packed` nodes are recorded at once, the weights left out."""
    target, draft = pair.target, pair.draft
    copied = draft.dtype.itemsize + 4 if draft.device != target.device else 0
    need: Counter = Counter()
    for model, logits in ((target, LOGIT_BYTES), (draft, copied)):
        config, size = model.network.config, model.dtype.itemsize
        parts = chunk_bytes(config, size, profile, packed, logits, model.quantised)
        need[model.device] += sum(parts.values())
    return need

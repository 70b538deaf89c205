"""The required form of a run's manifest and tables: `Manifest`, SCHEMAS, `schema_of`.

Checksums show that the tables are those that were recorded, so only their columns and the number of
their rows are compared.
"""

from collections.abc import Collection
from typing import Annotated, Literal, get_args

import pyarrow as pa
from pydantic import Field
from pydantic.dataclasses import dataclass

from speclab.plain import STRICT, Facts
from speclab.study.profiles import Profile, Which

SCHEMA_VERSION = 1
KEY_VERSION = 2  # 1: keys held paths, and neither the chat template nor the stop ids
I32, F32 = pa.int32(), pa.float32()
IDS, PROBS = pa.list_(I32), pa.list_(F32)
WHO = {"prompt_id": pa.string(), "domain": pa.string(), "position": I32}
TRACE = WHO | {
    "token": I32,
    "draft_rank": I32,
    "p_token": F32,
    "q_token": F32,
    "overlap": F32,
    "kl": F32,
    "target_entropy": F32,
    "draft_entropy": F32,
    "target_top": I32,
    "draft_top": I32,
    "target_margin": F32,
    "top_draft_ids": IDS,
    "top_draft_q": PROBS,
    "top_draft_p": PROBS,
}
NODES = WHO | {
    "node": I32,
    "parent": I32,
    "depth": I32,
    "rank": I32,
    "token": I32,
    "draft_prob": F32,
    "target_prob": F32,
    "target_entropy": F32,
    "draft_entropy": F32,
    "target_rank": I32,
    "best_path": pa.bool_(),
}
# of a draft whose distributions depend on where the block began (a trained head): the rank and the
# probability of the text's next tokens, if a block begins at this position
OF_BLOCKS = {"block_ranks": IDS, "block_q": PROBS}
META = {"speclab_schema": str(SCHEMA_VERSION)}
SCHEMAS = {"trace": pa.schema(TRACE, META), "nodes": pa.schema(NODES, META)}
Table = Literal["trace.parquet", "nodes.parquet"]
TABLES: tuple[str, ...] = get_args(Table)

Count = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(max_length=1000)]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


@dataclass(frozen=True, config=STRICT)
class Manifest:
    """All entries of manifest.json except its seal."""

    schema: Literal[1]
    key_version: Literal[2]
    key: Text
    kind: Text | None
    profile: Profile
    weights: Annotated[dict[Which, Commit], Field(min_length=2)]
    # of prompt_id, domain and token ids of all prompts; of their texts
    encoded: Text
    prompt_set: Text
    stop_ids: list[Count]
    # of both models as they were loaded (`pairs.model_facts`), and `shared_vocabulary`; a draft
    # with another vocabulary than its target's has `own_vocabulary`, how many ids it has
    pair: Facts
    prompts: Count
    prompts_cut: Count
    rows: Annotated[dict[Literal["trace", "nodes"], Count], Field(min_length=2)]
    time_s: float
    peak_bytes: dict[str, Count]
    max_packed_tokens: Count
    libraries: dict[str, Text]
    python: Text
    machine: Text
    finished: Text
    files: Annotated[dict[Table, Text], Field(min_length=2)]
    licence: Text | None = None
    # of greedy text: the share of positions at which, by rounding, the token is not the argmax
    not_argmax: float | None = None
    # settings of the target's own generation that the kit does not obey (`ModelFolder.left_out`)
    left_out: Facts = Field(default_factory=dict)


def schema_of(name: str, columns: Collection[str]) -> pa.Schema:
    """The schema of a table with these columns: of SCHEMAS, or a head's trace."""
    if "block_ranks" in columns:
        return pa.schema(TRACE | OF_BLOCKS, META)
    return SCHEMAS[name]

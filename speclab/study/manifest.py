"""The required form of a run's manifest and tables: SCHEMAS, `Manifest`, `check_table`.

A run may come from anybody. Checksums show that a file is unchanged, not that this kit wrote it. So
every field has a type, and every column a type and a range.
"""

from collections.abc import Collection
from typing import Annotated, Literal, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field
from pydantic.dataclasses import dataclass

from speclab.plain import STRICT, Facts
from speclab.study.profiles import Profile, Which
from speclab.tree import static_tree

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
# nats; other columns of floats are shares, rounded in float32
MOST = dict.fromkeys(("kl", "target_entropy", "draft_entropy"), 1e38)
OF_VOCABULARY = ("token", "target_top", "draft_top", "top_draft_ids")

Count = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(max_length=1000)]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, config=STRICT)
class ModelFacts:
    """A manifest's facts about a model as it was loaded (`pairs.model_facts`)."""

    path: Text
    kernel: Text
    quantised: bool
    parameters: Count
    weight_bytes: Count
    layers: Count
    heads: Count
    tokens_said: Annotated[int, Field(ge=1)]
    # missing if no model was loaded
    width: Count | None = None
    revision: Text | None = None
    dtype: Literal["float32", "float16", "bfloat16"] | None = None
    device: Text | None = None
    gpu: Text | None = None
    architecture: Text | None = None
    few_rows: Literal["MKL", "oneDNN"] | None = None  # of older runs; no longer written


@dataclass(frozen=True, config=STRICT)
class PairFacts:
    """Both models, and how many token ids they share."""

    target: ModelFacts
    draft: ModelFacts
    shared_vocabulary: Annotated[int, Field(ge=1)]

    def __post_init__(self) -> None:
        if not self.target.weight_bytes:
            raise ValueError("weight_bytes=0, but a target has weights")


@dataclass(frozen=True, config=STRICT)
class Manifest:
    """All entries of manifest.json except its seal."""

    schema: Literal[1]
    key_version: Literal[2]
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    kind: Text | None
    profile: Profile
    weights: Annotated[dict[Which, Commit], Field(min_length=2)]
    # of prompt_id, domain and token ids of all prompts; of their texts
    encoded: Sha256
    prompt_set: Sha256
    stop_ids: list[Count]
    pair: PairFacts
    prompts: Annotated[int, Field(ge=1)]
    prompts_cut: Count
    rows: Annotated[dict[Literal["trace", "nodes"], Count], Field(min_length=2)]
    time_s: Annotated[float, Field(ge=0)]
    peak_bytes: dict[str, Count]
    max_packed_tokens: Annotated[int, Field(ge=1)]
    libraries: dict[str, Text]
    python: Text
    machine: Text
    finished: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT[\d:+.Z-]{5,40}$")]
    files: Annotated[dict[Table, Sha256], Field(min_length=2)]
    licence: Text | None = None
    # of greedy text: the share of positions at which, by rounding, the token is not the argmax
    not_argmax: Annotated[float, Field(ge=0, le=1)] | None = None
    # settings of the target's own generation that the kit does not obey (`ModelFolder.left_out`)
    left_out: Facts = Field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rows["trace"]:
            raise ValueError("rows.trace=0, but every prompt has a text")


def schema_of(name: str, columns: Collection[str]) -> pa.Schema:
    """The schema of a table with these columns: of SCHEMAS, or a head's trace."""
    if name == "trace" and {*OF_BLOCKS} & {*columns}:
        return pa.schema(TRACE | OF_BLOCKS, META)
    return SCHEMAS[name]


def check_table(name: str, table: pa.Table, manifest: Facts) -> None:
    """ValueError unless a table has the columns of SCHEMAS and the manifest's number of rows, no
    value is missing or out of range, and positions run from 0 to the end of each prompt's text.
    """
    wanted, rows = schema_of(name, table.schema.names), manifest["rows"][name]
    if not table.schema.equals(wanted) or table.num_rows != rows:
        raise ValueError(
            f"it has the columns {table.schema.names} and {table.num_rows} rows, instead of "
            f"{wanted.names} with the kit's types and {rows} rows"
        )
    vocabulary = manifest["pair"]["shared_vocabulary"]
    for column in table.column_names:
        _check_values(column, table[column], vocabulary)
    positions = table.select([*WHO]).to_pandas()
    if name == "nodes":
        positions = _first_of_trees(positions, table, manifest["profile"])
    if name == "trace" or len(positions):
        _check_positions(positions, manifest)
    for column in OF_BLOCKS.keys() & {*table.column_names}:
        _check_reach(column, table[column], positions)


def _check_values(name: str, column: pa.ChunkedArray, vocabulary: int) -> None:
    """ValueError for a value that is missing or out of range."""
    missing = column.null_count
    if pa.types.is_list(column.type):
        column = pc.list_flatten(column)
        missing += column.null_count
    if missing:
        raise ValueError(f"{missing} values of {name} are missing")
    if column.type not in (I32, F32) or not len(column):
        return
    values = column.to_numpy()
    least, most = values.min(), values.max()
    allowed = MOST.get(name, 1.00001 if column.type == F32 else 2**31)
    if name in OF_VOCABULARY:
        allowed = vocabulary - 1
    if not (least >= 0 and most <= allowed):  # so that NaN is refused
        raise ValueError(f"{name} ranges from {least} to {most}, but 0 to {allowed} is allowed")


def _check_reach(name: str, lists: pa.ChunkedArray, positions: pd.DataFrame) -> None:
    """ValueError unless the lists of a head's blocks have one length, except near the end of a
    text, which they reach.
    """
    lengths = pc.list_value_length(lists).to_numpy()
    sizes = positions.groupby("prompt_id")["prompt_id"].transform("size")
    left = sizes - positions["position"]
    if not np.array_equal(lengths, np.minimum(left, lengths.max())):
        raise ValueError(f"the lists of {name} have other lengths than a head's blocks")


def _first_of_trees(positions: pd.DataFrame, table: pa.Table, profile: Facts) -> pd.DataFrame:
    """The first row of every position of `nodes`; ValueError unless the rows of each position are
    the nodes of the profile's tree.
    """
    tree = static_tree(profile["depth"], profile["branches"], profile["budget"])
    size = max(tree.size, 1)
    firsts = positions[::size]
    shape = {"node": np.arange(tree.size + 1)}
    shape |= {name: getattr(tree, name) for name in ("parent", "depth", "rank", "best_path")}
    wanted = {name: np.tile(values[1:], len(firsts)) for name, values in shape.items()}
    wanted |= {name: np.repeat(firsts[name].to_numpy(), size) for name in WHO}
    for name, values in wanted.items():
        if not np.array_equal(table[name].to_numpy(), values):
            raise ValueError("the nodes differ from the profile's tree at some positions")
    return firsts


def _check_positions(positions: pd.DataFrame, manifest: Facts) -> None:
    """ValueError unless texts follow one another, each complete, and their number and length agree
    with the manifest.
    """
    names = positions["prompt_id"]
    texts = positions.groupby("prompt_id", sort=False)
    turns = (names != names.shift()).sum()
    whole = positions["position"] == texts.cumcount()
    if turns != len(texts) or not whole.all() or (texts["domain"].nunique() > 1).any():
        raise ValueError("positions of a text do not run from 0 to its end, or it occurs twice")
    profile = manifest["profile"]
    if (positions["position"] >= profile["max_new_tokens"]).any():
        raise ValueError("a text is longer than the manifest's max_new_tokens")
    if len(texts) != manifest["prompts"]:
        raise ValueError(f"it has {len(texts)} prompts, and the manifest {manifest['prompts']}")
    domains = set(positions["domain"])
    if unknown := domains - set(profile["domains"] or domains):
        raise ValueError(f"the manifest lacks the domains {sorted(unknown)}")

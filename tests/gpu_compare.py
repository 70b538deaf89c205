"""Two records of the same text, and two texts of the same prompt, held against each other; every
difference comes with the margin at which it fell.

A difference is a choice that fell otherwise: another drafted token, another rank, another token of
the text. Its margin is how far apart the model's logits of the two choices lie: rounding explains
a small one, a large one is a bug.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import gpu_stand_ins  # noqa: F401 before speclab, which needs them
import literal
import numpy as np
import torch

from speclab.models.pairs import Pair
from speclab.prompts import EncodedPrompt
from speclab.record import Recorded

TREE = (3, 2, 8)  # depth, branches, budget: the paper's
PLACES = ("position", "node", "parent", "depth", "rank", "best_path")
NUMBERS = ("draft_prob", "target_prob", "draft_entropy", "target_entropy")
# what rounding explains, by number format: of a margin (logits), a probability, an entropy (nats).
# Seen on the tiny pair on a CPU: 6e-6, 0.01 and 0.08; a wrong mask gives 1.4 and more in each
ROUNDING = {torch.float32: 1e-4, torch.float16: 0.06, torch.bfloat16: 0.5}


@dataclass(frozen=True)
class Difference:
    """A choice that fell otherwise: `what` it was, where, and at which `margin` (logits)."""

    what: str
    prompt_id: str
    position: int
    margin: float


@dataclass
class Compared:
    """What was held against each other: `rows` in all, of which `unread` hang below another drafted
    token (they say nothing), the largest `gap` of a number, and the differences.
    """

    rows: int = 0
    unread: int = 0
    gap: float = 0.0
    differences: list[Difference] = field(default_factory=list)

    def add(self, other: "Compared") -> None:
        """Take in what another prompt gave."""
        self.rows += other.rows
        self.unread += other.unread
        self.gap = max(self.gap, other.gap)
        self.differences += other.differences

    @property
    def margin(self) -> float:
        """The largest margin of a difference; 0 where there is none."""
        return max((one.margin for one in self.differences), default=0.0)

    def status(self, dtype: torch.dtype) -> str:
        """`passed`: all choices equal; `reported`: rounding explains those that are not; `failed`:
        it does not, or a number is further off than it explains.
        """
        # a comparison with a NaN is False: that too has failed
        if not (self.margin <= ROUNDING[dtype] and self.gap <= ROUNDING[dtype]):
            return "failed"
        return "reported" if self.differences else "passed"

    def said(self) -> str:
        """In a few words."""
        words = f"{self.rows} rows, {len(self.differences)} differences"
        if self.differences:
            words += f" (largest margin {self.margin:.2g} logits)"
        return f"{words}, numbers within {self.gap:.1g}"

    def facts(self) -> dict:
        """As JSON has it; of many differences those with the largest margins."""
        largest = sorted(self.differences, key=lambda one: -one.margin)[:20]
        counted = {}
        for one in self.differences:
            counted[one.what] = counted.get(one.what, 0) + 1
        return {
            "rows": self.rows,
            "rows_below_another_token": self.unread,
            "largest_number_gap": self.gap,
            "differences": counted,
            "largest_margin": self.margin,
            "largest": [vars(one) for one in largest],
        }


# ---- records -------------------------------------------------------------------------------------


def rows_of(recorded: Recorded) -> list[dict]:
    """Node records, a row each."""
    columns = {name: values.tolist() for name, values in recorded.nodes.items()}
    return [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]


def literal_rows(
    pair: Pair, prompt: EncodedPrompt, text: tuple[int, ...]
) -> tuple[list[dict], list[int]]:
    """The literal procedure along a given text: its node records, and the token that it would have
    gone on with at each position.
    """
    rows, tokens = [], []
    for position in range(len(text)):
        context = prompt.ids + text[:position]
        found, (token,) = literal.measure(
            pair.target, pair.draft, context, 1, frozenset(), *TREE
        )
        rows += [row | {"position": position} for row in found]
        tokens.append(token)
    return rows, tokens


def compare_rows(
    pair: Pair,
    prompt: EncodedPrompt,
    text: tuple[int, ...],
    ours: list[dict],
    theirs: list[dict],
) -> Compared:
    """Node records of one text, made in two ways."""
    assert len(ours) == len(theirs), f"{len(ours)} rows, {len(theirs)} expected"
    found = Compared(rows=len(ours))
    paths: dict[tuple[int, int], tuple[int, ...] | None] = {}  # None: not the same
    for our, their in zip(ours, theirs, strict=True):
        for name in PLACES:
            assert our[name] == their[name], f"{name}: {our[name]}, not {their[name]}"
        position = our["position"]
        above = paths.get((position, our["parent"]), ())
        same = above is not None and our["token"] == their["token"]
        paths[position, our["node"]] = (*above, our["token"]) if same else None
        if above is None:
            found.unread += 1
            continue
        context = [*prompt.ids, *text[:position], *above]
        where = (prompt.prompt_id, position)
        if not same:
            margin = _apart(pair.draft, context, our["token"], their["token"])
            found.differences.append(Difference("drafted token", *where, margin))
            continue
        gaps = [abs(our[name] - their[name]) for name in NUMBERS]
        found.gap = float(np.max([found.gap, *gaps]))  # a NaN stays one
        if our["target_rank"] != their["target_rank"]:
            logits = _logits(pair.target, context)
            order = literal.best_tokens(logits, len(logits))
            crossed = order[our["target_rank"]]
            margin = float(abs(logits[our["token"]] - logits[crossed]))
            found.differences.append(Difference("target rank", *where, margin))
    return found


def compare_tokens(
    pair: Pair, prompt: EncodedPrompt, text: Iterable[int], tokens: Iterable[int]
) -> Compared:
    """A text, and the tokens that the target would go on with along it."""
    text, found = tuple(text), Compared()
    for position, (our, their) in enumerate(zip(text, tokens, strict=True)):
        found.rows += 1
        if our != their:
            context = [*prompt.ids, *text[:position]]
            margin = _apart(pair.target, context, our, their)
            one = Difference("token of the text", prompt.prompt_id, position, margin)
            found.differences.append(one)
    return found


def _logits(model, context: list[int]) -> torch.Tensor:
    return literal.full_logits(model, [context])[0, -1]


def _apart(model, context: list[int], one: int, other: int) -> float:
    logits = _logits(model, context)
    return float(abs(logits[one] - logits[other]))


# ---- texts ---------------------------------------------------------------------------------------


def compare_texts(
    pair: Pair, prompt: EncodedPrompt, text: tuple[int, ...], plain: tuple[int, ...]
) -> Compared:
    """A greedy text against the plain one, up to where they part; the margin there is one of
    probabilities, which is never above that of the logits.
    """
    from speclab.ops.decode_file import margin_at_difference

    found = Compared(rows=len(plain))
    if said := margin_at_difference(pair, prompt, text, plain):
        place = said["position"]
        margin = said["target_margin"]
        found.differences.append(Difference("text", prompt.prompt_id, place, margin))
    return found

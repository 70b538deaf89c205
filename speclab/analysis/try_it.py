"""A prompt that somebody types (notebooks 01 and 12): what is asked, checked; the text, a block at
a time, so that it can be shown as it comes and stopped between two blocks; plain decoding of the
same prompt beside it; the draft of any block with both models' probabilities.

`prompt_cell` is the cell with the fields and buttons; nothing here knows of one.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from speclab.decode import (
    LanguageModel,
    Pair,
    Step,
    decode,
    prefill,
    score_tree,
    wait_for,
)
from speclab.draft import PLAIN, Shape, parse_shape
from speclab.profiles import Profile
from speclab.prompts import Prompt, encode_prompts
from speclab.sampling import Sampling, probabilities
from speclab.show import figures

# ---- what is asked -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A prompt, encoded, and how it shall go on. A sampled text belongs to its `seed`."""

    ids: tuple[int, ...]
    rule: str
    shape: Shape
    sampling: Sampling
    new_tokens: int
    seed: int = 0

    @property
    def plain(self) -> "Request":
        """The same without a draft."""
        return replace(self, shape=PLAIN)


def request(
    pair: Pair,
    profile: Profile,
    prompt: str,
    rule: str = "greedy",
    shape: str = "chain:4",
    temperature: float = 0.0,
    new_tokens: int = 64,
    seed: int = 0,
) -> Request:
    """What somebody asks for, encoded by the profile's template, with its top_k and top_p.

    shape: as of `parse_shape`. Raises ValueError for an empty or too long prompt; what else
    does not go together `decode` refuses.
    """
    if not prompt.strip():
        raise ValueError("The prompt is empty: type a few words.")
    drafted = parse_shape(shape)
    sampling = Sampling(temperature, profile.top_k, profile.top_p)
    positions = min(pair.target.positions, pair.draft.positions)
    room = positions - new_tokens - drafted.room
    longest = max(1, min(profile.max_prompt_tokens, room))
    words = [Prompt("typed", "", prompt)]
    [encoded] = encode_prompts(pair.tokenizer, words, longest, profile.template)
    if encoded.cut:
        raise ValueError(
            f"The prompt is too long: {len(encoded.ids) + encoded.cut} tokens, and {longest} fit "
            f"with {new_tokens} new ones. Shorten it."
        )
    return Request(encoded.ids, rule, drafted, sampling, new_tokens, seed)


# ---- the text ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """One target pass: what it gave, how many draft passes it took, and the seconds of all."""

    step: Step
    draft_passes: int
    time_s: float


@dataclass(frozen=True)
class Answer:
    """A text as far as it is written."""

    request: Request
    blocks: tuple[Block, ...]

    @property
    def steps(self) -> list[Step]:
        """What each target pass gave."""
        return [block.step for block in self.blocks]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens, the stop token included."""
        return tuple(token for step in self.steps for token in step.tokens)

    @property
    def time_s(self) -> float:
        """Seconds of all blocks; the prompt's own pass is left out."""
        return sum(block.time_s for block in self.blocks)

    @property
    def block_efficiency(self) -> float:
        """Emitted tokens per target pass."""
        return len(self.token_ids) / len(self.blocks)

    @property
    def tokens_per_second(self) -> float:
        """Behind the prompt's own pass."""
        return len(self.token_ids) / self.time_s


def as_it_comes(pair: Pair, asked: Request) -> Iterator[Answer]:
    """The text after each of its blocks. Whoever asks for no more has stopped it."""
    shape, new, rng = asked.shape, asked.new_tokens, np.random.default_rng(asked.seed)
    caches = prefill(pair, asked.ids, new + shape.room)
    steps = decode(pair, asked.ids, asked.rule, shape, asked.sampling, new, rng, caches)
    wait_for(pair.target.device)  # else the first block is charged for the prompt
    blocks: tuple[Block, ...] = ()
    while True:
        began, before = time.perf_counter(), pair.draft.passes
        if (step := next(steps, None)) is None:
            return
        spent = time.perf_counter() - began
        blocks += (Block(step, pair.draft.passes - before, spent),)
        yield Answer(asked, blocks)


def answer_of(pair: Pair, asked: Request) -> Answer:
    """The text at once."""
    *_, whole = as_it_comes(pair, asked)
    return whole


# ---- beside plain decoding -----------------------------------------------------------------------


def beside_plain(text: Answer, plain: Answer) -> pd.DataFrame:
    """Passes, tokens per pass and times of a text and of plain decoding: index `decoding`."""
    rows = [
        {
            "tokens": len(one.token_ids),
            "target_passes": len(one.blocks),
            "draft_passes": sum(block.draft_passes for block in one.blocks),
            "block_efficiency": one.block_efficiency,
            "time_s": one.time_s,
            "tokens_per_s": one.tokens_per_second,
        }
        for one in (text, plain)
    ]
    return pd.DataFrame(rows, pd.Index(["with the draft", "plain"], name="decoding"))


def passes_in_words(text: Answer) -> str:
    """Tokens, passes and tokens per pass, as Markdown without a link."""
    return (
        f"{len(text.token_ids)} tokens in {len(text.blocks)} target passes: "
        f"**{text.block_efficiency:.2f} tokens per pass**."
    )


def speed_in_words(text: Answer, plain: Answer) -> str:
    """How fast that was against plain decoding, and whether the texts are the same."""
    ratio = text.tokens_per_second / plain.tokens_per_second
    verdict = f"**{ratio:.2f} times as fast as plain decoding**"
    if ratio < 1:
        verdict = f"**slower than plain decoding** ({ratio:.2f} of its speed)"
    return (
        f"{text.tokens_per_second:.1f} tokens a second, against "
        f"{plain.tokens_per_second:.1f}: {verdict}, measured once. {_same_text(text, plain)}"
    )


def _same_text(text: Answer, plain: Answer) -> str:
    if not text.request.sampling.greedy:
        return (
            "The two texts are two draws from one distribution, the target's: "
            "they differ, and neither is the better one."
        )
    if text.token_ids == plain.token_ids:
        return "Both texts are the same, token for token."
    return (
        "The texts part: a packed pass rounds otherwise than a single one, and two tokens were all "
        "but equally likely there."
    )


# ---- the draft of a block ------------------------------------------------------------------------


@dataclass(frozen=True)
class DraftedBlock:
    """A block's draft, looked at: q and p of each drafted token behind its parents (float64 [N +
    1], the root's is 1); `own_p`: p of the token that the target put behind the accepted ones, None
    where the text ended before.
    """

    step: Step
    context: list[int]
    q: np.ndarray
    p: np.ndarray
    own_p: float | None


def drafted_block(pair: Pair, text: Answer, number: int) -> DraftedBlock:
    """Both models' probabilities in block `number` (from 0), by one pass of each over its context
    and one over its draft. At temperature 0 they are those at temperature 1.
    """
    step, asked = text.steps[number], text.request
    before = Answer(asked, text.blocks[:number]).token_ids
    context, tree, tokens = [*asked.ids, *before], step.draft.tree, step.draft.tokens

    def after(model: LanguageModel) -> torch.Tensor:
        """Its distributions after the root and every drafted node, [N + 1, vocab]."""
        cache = model.cache(len(context) + step.drafted)
        if len(context) > 1:
            model.forward(torch.tensor([context[:-1]]), cache)
        logits = score_tree(model, cache, context, tree, tokens)
        return probabilities(logits, asked.sampling).cpu().double()

    def of_nodes(rows: torch.Tensor) -> np.ndarray:
        return np.append(1.0, rows[tree.parent[1:], tokens[1:]].numpy())

    p, q = after(pair.target), after(pair.draft)
    last = [0, *step.draft.path][-1]
    own = float(p[last, step.tokens[-1]]) if step.kind != "cut" else None
    return DraftedBlock(step, context, of_nodes(q), of_nodes(p), own)


def draw_block(drafted: DraftedBlock, strings: Sequence[str]) -> figures.Figure:
    """The tree as a picture; `strings[id]`: the text of token id."""
    draft = drafted.step.draft
    context = "".join(strings[token] for token in drafted.context[-8:])
    labels = [context, *(strings[token] for token in draft.tokens[1:])]
    accepted = np.isin(np.arange(len(drafted.p)), [0, *draft.path])
    return figures.draw_tree(draft.tree, labels, drafted.q, drafted.p, accepted)


def block_in_words(drafted: DraftedBlock, number: int, strings: Sequence[str]) -> str:
    """What became of a block's draft; `number` from 0, said from 1."""
    step = drafted.step
    kept = f"Block {number + 1}: {step.accepted} of {step.drafted} drafted tokens kept"
    if drafted.own_p is None:
        return f"{kept}; the text ends there."
    own = figures.visible(strings[step.tokens[-1]])
    why = "as a bonus, since nothing was rejected"
    if step.kind == "recovered":
        why = "in place of what it rejected"
    return f"{kept}; the target added {own} (p {drafted.own_p:.2f}) {why}."


def telling_block(text: Answer) -> int:
    """The first block, of those where the target kept something and put in its own for the rest,
    with the most kept tokens; where there is none, the first with the most kept tokens.
    """

    def worth(number: int) -> tuple[bool, int]:
        step = text.steps[number]
        return step.accepted > 0 and step.kind == "recovered", step.accepted

    return max(range(len(text.steps)), key=worth)

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
    check_rule,
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

# what one looks at, in seconds on a laptop
LONGEST = 256  # new tokens
LARGEST = 64  # drafted tokens a block


# ---- what is asked -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A prompt, encoded, and how it shall go on; `request` has checked that all this goes together.

    A sampled text belongs to its `seed`.
    """

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
    """What somebody asks for, checked and encoded by the profile's template, top_k and top_p.

    shape: as of `parse_shape`. Raises ValueError for an empty or too long prompt, for a number that
    is out of its range, and for a rule that does not go with the shape or the temperature.
    """
    if not prompt.strip():
        raise ValueError("The prompt is empty: type a few words.")
    if not 1 <= new_tokens <= LONGEST:
        raise ValueError(f"new tokens: {new_tokens} is not from 1 to {LONGEST}.")
    if seed < 0:
        raise ValueError(f"seed: {seed} is below 0.")
    drafted, sampling = settings(profile, rule, shape, temperature)
    if drafted.tree is not None:
        pair.draft.check_branches(int(drafted.tree.width.max()))
    words = Prompt("typed", "", prompt)
    positions = min(pair.target.positions, pair.draft.positions)
    room = positions - new_tokens - drafted.room
    longest = max(1, min(profile.max_prompt_tokens, room))
    [encoded] = encode_prompts(pair.tokenizer, [words], longest, profile.template)
    if encoded.cut:
        raise ValueError(
            f"The prompt is too long: {len(encoded.ids) + encoded.cut} tokens, and {longest} fit "
            f"with {new_tokens} new ones. Shorten it."
        )
    pair.target.check_ids(encoded.ids)
    return Request(encoded.ids, rule, drafted, sampling, new_tokens, seed)


def settings(
    profile: Profile, rule: str, shape: str, temperature: float
) -> tuple[Shape, Sampling]:
    """Shape and sampling of what was typed; ValueError unless they and the rule go together, and
    for a shape that is larger than one looks at.
    """
    drafted = parse_shape(shape)
    size = max(drafted.size, drafted.depth * drafted.branches)
    if size > LARGEST:
        raise ValueError(
            f"shape={shape!r}: {size} tokens a block, and {LARGEST} are the most here"
        )
    sampling = Sampling(temperature, profile.top_k, profile.top_p)
    check_rule(rule, drafted, sampling)
    return drafted, sampling


# ---- the text ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """One target pass: what it gave, how many draft passes it took, and the seconds of all."""

    step: Step
    draft_passes: int
    time_s: float


@dataclass(frozen=True)
class Answer:
    """A text as far as it is written; `ended`: nobody stopped it."""

    request: Request
    blocks: tuple[Block, ...]
    ended: bool = True

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
    def draft_passes(self) -> int:
        """Passes of the draft model."""
        return sum(block.draft_passes for block in self.blocks)

    @property
    def block_efficiency(self) -> float:
        """Emitted tokens per target pass."""
        return len(self.token_ids) / len(self.blocks)

    @property
    def tokens_per_second(self) -> float:
        """Behind the prompt's own pass."""
        return len(self.token_ids) / self.time_s


def blocks_as_they_come(pair: Pair, asked: Request) -> Iterator[Block]:
    """The text's blocks as they come. Whoever asks for no more of them has stopped it."""
    rng = np.random.default_rng(asked.seed)
    room = asked.new_tokens + asked.shape.room
    caches = prefill(pair, asked.ids, room)
    steps = decode(
        pair,
        asked.ids,
        asked.rule,
        asked.shape,
        asked.sampling,
        asked.new_tokens,
        rng,
        caches,
    )
    wait_for(pair.target.device)  # else the first block is charged for the prompt
    while True:
        began, before = time.perf_counter(), pair.draft.passes
        step = next(steps, None)
        if step is None:
            return
        spent = time.perf_counter() - began
        yield Block(step, pair.draft.passes - before, spent)


def answer_of(pair: Pair, asked: Request) -> Answer:
    """The text at once."""
    return Answer(asked, tuple(blocks_as_they_come(pair, asked)))


# ---- beside plain decoding -----------------------------------------------------------------------


def beside_plain(text: Answer, plain: Answer) -> pd.DataFrame:
    """Passes, tokens per pass and times of a text and of plain decoding: index `decoding`."""
    rows = {"with the draft": text, "plain": plain}
    table = {
        name: {
            "tokens": len(one.token_ids),
            "target_passes": len(one.blocks),
            "draft_passes": one.draft_passes,
            "block_efficiency": one.block_efficiency,
            "time_s": one.time_s,
            "tokens_per_s": one.tokens_per_second,
        }
        for name, one in rows.items()
    }
    frame = pd.DataFrame(table).T.rename_axis("decoding")
    whole_numbers = ["tokens", "target_passes", "draft_passes"]
    return frame.astype(dict.fromkeys(whole_numbers, int))


def passes_in_words(text: Answer) -> str:
    """Tokens, passes and tokens per pass, as Markdown without a link."""
    tokens, passes = len(text.token_ids), len(text.blocks)
    return (
        f"{_counted(tokens, 'token')} in {_counted(passes, 'target pass')}: "
        f"**{text.block_efficiency:.2f} tokens per pass**."
    )


def speed_in_words(text: Answer, plain: Answer) -> str:
    """How fast that was against plain decoding, and whether the texts are the same."""
    ratio = text.tokens_per_second / plain.tokens_per_second
    verdict = f"{ratio:.2f} times as fast as" if ratio >= 1 else "slower than"
    slower = "" if ratio >= 1 else f" ({ratio:.2f} of its speed)"
    return (
        f"{text.tokens_per_second:.1f} tokens a second, against "
        f"{plain.tokens_per_second:.1f}: **{verdict} plain decoding**{slower}, measured once. "
        f"{_same_text(text, plain)}"
    )


def _same_text(text: Answer, plain: Answer) -> str:
    if not text.request.sampling.greedy:
        return (
            "The two texts are two draws from one distribution, the target's: "
            "they differ, and neither is the better one."
        )
    if text.token_ids == plain.token_ids:
        return "Both texts are the same, token for token."
    pairs = zip(text.token_ids, plain.token_ids, strict=False)
    equal = [mine == its for mine, its in pairs]
    place = [*equal, False].index(False) + 1
    return (
        f"The texts part at token {place}: a packed pass rounds otherwise than a single one, and "
        "two tokens were all but equally likely there."
    )


def _counted(count: int, what: str) -> str:
    plural = "es" if what.endswith("s") else "s"
    return f"{count} {what}{'' if count == 1 else plural}"


# ---- the draft of a block ------------------------------------------------------------------------


@dataclass(frozen=True)
class DraftedBlock:
    """A block's draft, looked at: q and p of each drafted token behind its parents (float64 [N +
    1], the root's is 1), whether it was accepted (bool [N + 1]); `own_p`: p of the token that the
    target put behind the accepted ones, None where the text ended before.
    """

    step: Step
    context: list[int]
    q: np.ndarray
    p: np.ndarray
    accepted: np.ndarray
    own_p: float | None


def drafted_block(pair: Pair, text: Answer, number: int) -> DraftedBlock:
    """Both models' probabilities in block `number` (from 0), by one pass of each over its context
    and one over its draft. At temperature 0 they are those at temperature 1.
    """
    step = text.blocks[number].step
    before = [token for block in text.blocks[:number] for token in block.step.tokens]
    context = [*text.request.ids, *before]
    sampling = text.request.sampling
    p = _after_nodes(pair.target, context, step, sampling)
    q = _after_nodes(pair.draft, context, step, sampling)
    path = step.draft.path
    last = path[-1] if path else 0
    own = float(p[last, step.tokens[-1]]) if step.kind != "cut" else None
    accepted = np.isin(np.arange(step.draft.tree.size + 1), [0, *path])
    of_nodes = (_of_nodes(rows, step) for rows in (q, p))
    return DraftedBlock(step, context, *of_nodes, accepted, own)


def _after_nodes(
    model: LanguageModel, context: list[int], step: Step, sampling: Sampling
) -> torch.Tensor:
    """A model's next-token distributions after the root and every drafted node, [N + 1, vocab]."""
    drafted, cache = step.draft, model.cache(len(context) + step.drafted)
    if len(context) > 1:
        model.forward(torch.tensor([context[:-1]]), cache)
    logits = score_tree(model, cache, context, drafted.tree, drafted.tokens)
    return probabilities(logits, sampling).cpu()


def _of_nodes(after: torch.Tensor, step: Step) -> np.ndarray:
    tree, tokens = step.draft.tree, step.draft.tokens
    found = after[tree.parent[1:], tokens[1:]].double().numpy()
    return np.append(1.0, found)


def draw_block(drafted: DraftedBlock, strings: Sequence[str]) -> figures.Figure:
    """The tree as a picture; `strings[id]`: the text of token id."""
    step = drafted.step
    tokens = [strings[token] for token in step.draft.tokens[1:]]
    labels = ["".join(strings[token] for token in drafted.context[-8:]), *tokens]
    return figures.draw_tree(
        step.draft.tree, labels, drafted.q, drafted.p, drafted.accepted
    )


def block_in_words(drafted: DraftedBlock, number: int, strings: Sequence[str]) -> str:
    """What became of a block's draft; `number` from 0, said from 1."""
    step = drafted.step
    kept = f"Block {number + 1}: {step.accepted} of {_counted(step.drafted, 'drafted token')} kept"
    if drafted.own_p is None:
        return f"{kept}; the text ends there."
    own = figures.visible(strings[step.tokens[-1]])
    why = {
        "recovered": "in place of what it rejected",
        "bonus": "as a bonus, since nothing was rejected",
    }[step.kind]
    return f"{kept}; the target added {own} (p {drafted.own_p:.2f}) {why}."


def telling_block(text: Answer) -> int:
    """The first block, of those where the target kept something and put in its own for the rest,
    with the most kept tokens; where there is none, the first with the most kept tokens.
    """
    worth = [(step.accepted, step.kind == "recovered") for step in text.steps]
    both = [kept if kept and mended else -1 for kept, mended in worth]
    found = both if max(both) > 0 else [kept for kept, _ in worth]
    return found.index(max(found))
